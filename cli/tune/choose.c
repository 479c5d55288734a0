// SPDX-License-Identifier: Apache-2.0
// Which kernel the figures of a problem speak for.
//
// A kernel replaces the usual one if it is faster by more than either's times scatter. A row's bits
// must not depend on its batch, so that a line for one batch may only choose a kernel of the usual
// one's bits. Any other kernel can be chosen for all batches together; it must then be faster at
// every batch that was measured.
#include "tune.h"

#include <string.h>

static bool is_faster(const tune_kernel *k, const tune_kernel *than) {
    const int64_t noise = k->noise_ns > than->noise_ns ? k->noise_ns : than->noise_ns;
    return !*k->refused && k->ns > 0 && k->ns + noise < than->ns;
}

static bool agree(const tune_kernel *a, const tune_kernel *b) {
    return a->bits && a->bits == b->bits;
}

/** Returns the best kernel of the usual one's bits. */
static int best_for_batch(const tune_record *r) {
    int best = 0;
    for (int i = 1; i < r->num_kernels; i++)
        if (agree(&r->kernels[i], &r->kernels[0]) && is_faster(&r->kernels[i], &r->kernels[0]) &&
            (best == 0 || r->kernels[i].ns < r->kernels[best].ns))
            best = i;
    return best;
}

static int find(const tune_record *r, const char *kernel) {
    for (int i = 0; i < r->num_kernels; i++)
        if (strcmp(r->kernels[i].name, kernel) == 0)
            return i;
    return -1;
}

/** Returns how many times as fast as the best of each batch a kernel is, added up over a group's
 *  records; 0 if it is not faster at all of them that it can run. */
static double gain_for_all(const tune_record *records, int count, const char *kernel) {
    double gain = 0;
    for (int i = 0; i < count; i++) {
        const tune_record *r = &records[i];
        const int at = find(r, kernel), best = best_for_batch(r);
        if (at < 0 || at == best)
            continue;
        if (!is_faster(&r->kernels[at], &r->kernels[best]))
            return 0;
        gain += (double)r->kernels[best].ns / (double)r->kernels[at].ns;
    }
    return gain;
}

/** Returns the name of the kernel that all batches of a group should have; null: each its own. */
static const char *best_for_all(const tune_record *records, int count) {
    const char *best = nullptr;
    double most = 0;
    for (int i = 0; i < count; i++)
        for (int k = 1; k < records[i].num_kernels; k++) {
            const tune_kernel *kernel = &records[i].kernels[k];
            const double gain = agree(kernel, &records[i].kernels[0])
                                    ? 0
                                    : gain_for_all(records, count, kernel->name);
            if (gain > most) {
                most = gain;
                best = kernel->name;
            }
        }
    return best;
}

int tune_choose(const tune_file *f, const tune_problems *p, int problem, bool *for_all) {
    const int group = p->list[problem].group;
    int begin = problem, end = problem;
    while (begin > 0 && p->list[begin - 1].group == group)
        begin--;
    while (end < p->count && p->list[end].group == group)
        end++;
    const char *all = end <= f->count ? best_for_all(f->records + begin, end - begin) : nullptr;
    const int at = all ? find(&f->records[problem], all) : -1;
    *for_all = at >= 0;
    return at >= 0 ? at : best_for_batch(&f->records[problem]);
}
