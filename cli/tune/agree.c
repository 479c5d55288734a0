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

static constexpr double u_bf16 = 0x1p-8; // of a result's last rounding

static int64_t count_of(const cli_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->t.ndim; i++)
        count *= t->t.shape[i];
    return count;
}

qn_status tune_poison(const bench_call *call) {
    const int64_t bytes = count_of(call->out) * call->out->t.dtype.bits / 8;
    void *ones = cli_alloc((size_t)bytes);
    memset(ones, 0xFF, (size_t)bytes);
    cli_tensor to = *call->out;
    to.t.shape = to.shape;
    const qn_status st = cli_tensor_load(&to, call->device, ones);
    free(ones);
    return st;
}

qn_status tune_fetch(tune_result *out, const bench_call *call) {
    const DLDataType dtype = call->out->t.dtype;
    *out = (tune_result){.count = count_of(call->out), .dtype = dtype};
    out->data = cli_alloc((size_t)(out->count * dtype.bits / 8));
    return cli_tensor_store(out->data, call->device, call->out);
}

/** Returns by how much two results may differ in element i, besides their last roundings. */
static double slack_of(const bench_call *call, int64_t i) {
    const int64_t columns = call->out->t.shape[call->out->t.ndim - 1];
    const double size = call->row_size
                            ? call->row_size[i / columns] * call->column_size[i % columns]
                            : call->size_limit;
    return 2 * call->error * size;
}

/** Returns whether every bit of an element is one, as tune_poison leaves it. */
static bool is_poison(const tune_result *r, int64_t i) {
    static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    const size_t bytes = r->dtype.bits / 8;
    return memcmp((const uint8_t *)r->data + (size_t)i * bytes, ones, bytes) == 0;
}

static bool is_equal(const tune_result *a, const tune_result *b, int64_t i) {
    const size_t bytes = a->dtype.bits / 8, at = (size_t)i * bytes;
    return memcmp((const uint8_t *)a->data + at, (const uint8_t *)b->data + at, bytes) == 0;
}

/** Returns whether two elements agree; NaN agrees with NaN alone. */
static bool agree_at(const bench_call *call, const tune_result *usual, const tune_result *other,
                     bool in_bits, int64_t i) {
    if (is_equal(usual, other, i))
        return true;
    const double x = cli_number_get(usual->dtype, usual->data, i),
                 y = cli_number_get(other->dtype, other->data, i);
    if (in_bits)
        return false;
    return fabs(x - y) <= u_bf16 * (fabs(x) + fabs(y)) + slack_of(call, i);
}

bool tune_agrees(const bench_call *call, const tune_result *usual, const tune_result *other,
                 bool in_bits, bool is_sample, char *why, size_t room) {
    int64_t compared = 0, bad = 0, first = 0;
    for (int64_t i = 0; i < usual->count; i++) {
        if (is_sample && (is_poison(usual, i) || is_poison(other, i)))
            continue;
        compared++;
        if (!agree_at(call, usual, other, in_bits, i) && bad++ == 0)
            first = i;
    }
    if (bad)
        snprintf(why, room,
                 "%" PRId64 " of %" PRId64
                 " elements differ from the usual kernel's%s: element %" PRId64
                 " is %.9g, not %.9g",
                 bad, compared, in_bits ? " bits" : "", first,
                 cli_number_get(other->dtype, other->data, first),
                 cli_number_get(usual->dtype, usual->data, first));
    else if (compared == 0)
        snprintf(why, room, "no element was computed by both kernels, so that none is compared");
    return bad == 0 && compared > 0;
}
