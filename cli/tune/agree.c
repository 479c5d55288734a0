// SPDX-License-Identifier: Apache-2.0
// Whether a kernel's result agrees with that of the usual kernel.
//
// Each of two kernels may be off by what its op's definition allows (ops/*/*_ref.c), so that two
// results may differ by twice that. The definitions allow a part of a sum of magnitudes. It is at
// most the product of both factors' norms (Cauchy and Schwarz), or attention's largest |v|.
#include "../number.h"
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Returns the part of an element that its last rounding may be off. */
static double rounding_of(DLDataType dtype) {
    return dtype.bits == 8 ? 0x1p-4 : dtype.bits == 16 ? 0x1p-8 : 0x1p-20;
}

static int64_t count_of(const cli_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->t.ndim; i++)
        count *= t->t.shape[i];
    return count;
}

static size_t bytes_of(const cli_tensor *t) {
    return (size_t)(count_of(t) * t->t.dtype.bits / 8);
}

/** Fills a tensor with ones in every bit, which are a NaN. */
static qn_status poison(const cli_tensor *t, cli_device *device) {
    void *ones = cli_alloc(bytes_of(t));
    cli_tensor to = *t;
    to.t.shape = to.shape;
    memset(ones, 0xFF, bytes_of(t));
    const qn_status st = cli_tensor_load(&to, device, ones);
    free(ones);
    return st;
}

qn_status tune_prepare(const bench_call *call) {
    for (int i = 0; i < call->num_outs; i++)
        CLI_TRY(poison(call->outs[i], call->device));
    return call->restore ? call->restore(call->context) : QN_OK;
}

qn_status tune_fetch(tune_result *out, const bench_call *call) {
    *out = (tune_result){0};
    for (int i = 0; i < call->num_outs; i++) {
        out->data[i] = cli_alloc(bytes_of(call->outs[i]));
        CLI_TRY(cli_tensor_store(out->data[i], call->device, call->outs[i]));
    }
    return QN_OK;
}

void tune_result_free(tune_result *r) {
    for (int i = 0; i < BENCH_MAX_OUTS; i++)
        free(r->data[i]);
    *r = (tune_result){0};
}

/** Both kernels' values of one tensor. */
typedef struct pair {
    const bench_call *call;
    const cli_tensor *tensor;
    const uint8_t *usual, *other;
    bool in_bits, is_sample;
} pair;

/** Returns by how much element i of a result may differ, besides its last roundings. FP8 has values
 *  up to 448, of which the smallest steps are 2^-9. */
static double slack_of(const pair *p, int64_t i) {
    const bench_call *call = p->call;
    const int64_t columns = p->tensor->t.shape[p->tensor->t.ndim - 1];
    if (p->tensor->t.dtype.bits == 8)
        return 2 * call->error * 448 + 0x1p-9;
    const double size = call->row_size
                            ? call->row_size[i / columns] * call->column_size[i % columns]
                            : call->size_limit;
    return 2 * call->error * size;
}

/** Returns whether neither kernel, or only one, wrote an element, which is then as it was. */
static bool is_left(const pair *p, int64_t i) {
    static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    const size_t bytes = p->tensor->t.dtype.bits / 8, at = (size_t)i * bytes;
    return memcmp(p->usual + at, ones, bytes) == 0 || memcmp(p->other + at, ones, bytes) == 0;
}

/** Returns whether element i agrees; NaN agrees with NaN alone. */
static bool agree_at(const pair *p, int64_t i) {
    const DLDataType dtype = p->tensor->t.dtype;
    const size_t bytes = dtype.bits / 8, at = (size_t)i * bytes;
    if (memcmp(p->usual + at, p->other + at, bytes) == 0)
        return true;
    const double x = cli_number_get(dtype, p->usual, i), y = cli_number_get(dtype, p->other, i);
    return !p->in_bits && fabs(x - y) <= rounding_of(dtype) * (fabs(x) + fabs(y)) + slack_of(p, i);
}

/** Compares one tensor; if it differs, writes how to why. Returns how many elements were
 *  compared; -1: some differ. */
static int64_t compare(const pair *p, char *why, size_t room) {
    const int64_t count = count_of(p->tensor);
    int64_t compared = 0, bad = 0, first = 0;
    for (int64_t i = 0; i < count; i++) {
        if (p->is_sample && is_left(p, i))
            continue;
        compared += !isnan(cli_number_get(p->tensor->t.dtype, p->usual, i)); // NaN tells nothing
        if (!agree_at(p, i) && bad++ == 0)
            first = i;
    }
    if (!bad)
        return compared;
    const DLDataType dtype = p->tensor->t.dtype;
    snprintf(why, room,
             "%" PRId64 " of %" PRId64
             " elements differ from the usual kernel's%s: element %" PRId64 " is %.9g, not %.9g",
             bad, count, p->in_bits ? " in some bit" : "", first,
             cli_number_get(dtype, p->other, first), cli_number_get(dtype, p->usual, first));
    return -1;
}

bool tune_agrees(const bench_call *call, const tune_result *usual, const tune_result *other,
                 bool in_bits, bool is_sample, char *why, size_t room) {
    int64_t compared = 0;
    for (int i = 0; i < call->num_outs; i++) {
        const pair p = {.call = call,
                        .tensor = call->outs[i],
                        .usual = usual->data[i],
                        .other = other->data[i],
                        .in_bits = in_bits || call->is_exact,
                        .is_sample = is_sample};
        const int64_t count = compare(&p, why, room);
        if (count < 0)
            return false;
        compared += count;
    }
    if (compared == 0)
        snprintf(why, room, "no element is a number by both kernels, so that none is compared");
    return compared > 0;
}
