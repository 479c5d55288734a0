// SPDX-License-Identifier: Apache-2.0
// Which kernel the figures of a problem speak for.
//
// A kernel replaces the usual one if it is faster by more than either's times scatter. A row's bits
// must not depend on its batch, so that a line for one batch may only choose a kernel of the usual
// one's bits. Any other kernel can be chosen for all batches together; it must then be faster at
// every batch that was measured. Problems that a table cannot tell apart get one kernel, which must
// be faster for each of them.
#include "tune.h"

#include <string.h>

static bool is_faster(const tune_kernel *k, const tune_kernel *than) {
    const int64_t noise = k->noise_ns > than->noise_ns ? k->noise_ns : than->noise_ns;
    return !*k->refused && k->ns > 0 && k->ns + noise < than->ns;
}

static bool agree(const tune_kernel *a, const tune_kernel *b) {
    return a->bits && a->bits == b->bits;
}

static int find(const tune_record *r, const char *kernel) {
    for (int i = 0; i < r->num_kernels; i++)
        if (strcmp(r->kernels[i].name, kernel) == 0)
            return i;
    return -1;
}

/** Returns whether a table's line for one problem is for the other, too: one that names the batch,
 *  or one for all batches. */
static bool share_line(const tune_record *a, const tune_record *b, bool for_all) {
    return strcmp(a->problem, b->problem) == 0 && strcmp(a->op, b->op) == 0 &&
           (for_all || strcmp(a->batch, b->batch) == 0);
}

/** Returns how many times as fast as the usual kernel another one of its bits is, added up over all
 *  problems of r's line; 0 if it is not faster for each of them. */
static double gain_for_batch(const tune_file *f, const tune_record *r, const char *kernel) {
    double gain = 0;
    for (int i = 0; i < f->count; i++) {
        const tune_record *other = &f->records[i];
        if (!share_line(r, other, false))
            continue;
        const int at = find(other, kernel);
        if (at < 1 || !agree(&other->kernels[at], &other->kernels[0]) ||
            !is_faster(&other->kernels[at], &other->kernels[0]))
            return 0;
        gain += (double)other->kernels[0].ns / (double)other->kernels[at].ns;
    }
    return gain;
}

/** Returns the best kernel of the usual one's bits. */
static int best_for_batch(const tune_file *f, const tune_record *r) {
    int best = 0;
    double most = 0;
    for (int i = 1; i < r->num_kernels; i++) {
        const double gain = gain_for_batch(f, r, r->kernels[i].name);
        if (gain > most) {
            most = gain;
            best = i;
        }
    }
    return best;
}

/** Does what gain_for_batch does for a line for all batches, beside the best kernel of each batch.
 *  A problem that the kernel cannot run keeps its own. */
static double gain_for_all(const tune_file *f, const tune_record *r, const char *kernel) {
    double gain = 0;
    for (int i = 0; i < f->count; i++) {
        const tune_record *other = &f->records[i];
        const int at = share_line(r, other, true) ? find(other, kernel) : -1;
        const int best = at >= 0 ? best_for_batch(f, other) : 0;
        if (at < 0 || at == best)
            continue;
        if (!is_faster(&other->kernels[at], &other->kernels[best]))
            return 0;
        gain += (double)other->kernels[best].ns / (double)other->kernels[at].ns;
    }
    return gain;
}

/** Returns whether all batches are measured of the groups that share r's line for all. */
static bool is_complete(const tune_file *f, const tune_problems *p, const tune_record *r) {
    if (f->count == p->count)
        return true;
    const int open = p->list[f->count].group; // the only group that may be measured in part
    for (int i = f->count - 1; i >= 0 && p->list[i].group == open; i--)
        if (share_line(r, &f->records[i], true))
            return false;
    return true;
}

const char *tune_choose_for_all(const tune_file *f, const tune_problems *p, int problem) {
    const tune_record *r = &f->records[problem];
    const char *best = nullptr;
    double most = 0;
    if (!is_complete(f, p, r))
        return nullptr;
    for (int i = 0; i < f->count; i++)
        for (int k = 1; k < f->records[i].num_kernels && share_line(r, &f->records[i], true); k++) {
            const tune_kernel *kernel = &f->records[i].kernels[k];
            const double gain =
                agree(kernel, &f->records[i].kernels[0]) ? 0 : gain_for_all(f, r, kernel->name);
            if (gain > most) {
                most = gain;
                best = kernel->name;
            }
        }
    return best;
}

int tune_choose(const tune_file *f, const tune_problems *p, int problem, bool *for_all) {
    const char *all = tune_choose_for_all(f, p, problem);
    const int at = all ? find(&f->records[problem], all) : -1;
    *for_all = at >= 0;
    return at >= 0 ? at : best_for_batch(f, &f->records[problem]);
}

bool tune_is_last(const tune_file *f, int problem, bool for_all) {
    for (int i = problem + 1; i < f->count; i++)
        if (share_line(&f->records[problem], &f->records[i], for_all))
            return false;
    return true;
}
