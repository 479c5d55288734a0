// SPDX-License-Identifier: Apache-2.0
// Gated activations with vectors of QN_LANES f32: included by activation_cpu.c, activation_avx2.c,
// activation_avx512.c.
//
// Plain rows are written past the caches if they are large and made of whole cache lines. Rows that
// become FP8 go through a scratch row of f32.
#ifndef QNI_ACTIVATION_SIMD_H
#define QNI_ACTIVATION_SIMD_H

#include "../shared/groups_simd.h"
#include "activation.h"

#include <stdatomic.h>

QN_INLINE f32v activated(qn_activation function, f32v x) {
    if (function == QN_GELU)
        return gelu_of(x);
    return function == QN_SILU ? silu_of(x) : gelu_tanh_of(x);
}

/** Returns f(gate) * up; `limited`: the problem has a limit. */
QN_INLINE f32v result(qn_activation function, bool limited, f32v gate, f32v up, float limit) {
    const f32v most = all_of(limit), least = -most;
    if (limited) { // a NaN stays
        gate = select_of(gate > most, most, gate);
        up = select_of(up > most, most, select_of(up < least, least, up));
    }
    return activated(function, gate) * up;
}

/** What the code is built for. The compiler makes a copy for each mix in use. */
typedef struct mix {
    qni_dtype dtype;
    qn_activation function;
    bool is_limited; // the problem has a limit
} mix;

QN_INLINE bool is_split(mix m) {
    return m.dtype == QNI_BF16;
}

/** Computes the results of elements i .. i + 2 QN_LANES - 1 of a row. Only `count` of them exist;
 *  the others are zero. */
QN_INLINE void make_two(mix m, const char *gate, const char *up, int64_t i, int64_t count,
                        float limit, f32v y[2]) {
    f32v g[2], u[2];
    if (count == 2 * QN_LANES) {
        load_two(is_split(m), m.dtype, gate, i, g);
        load_two(is_split(m), m.dtype, up, i, u);
    } else {
        load_two_some(is_split(m), m.dtype, gate, i, count, g);
        load_two_some(is_split(m), m.dtype, up, i, count, u);
    }
    for (int k = 0; k < 2; k++)
        y[k] = result(m.function, m.is_limited, g[k], u[k], limit);
}

/** Fetches what comes 8 KiB later. That may lie past the tensor, where fetching does nothing. The
 *  hardware's own prefetching stops at pages. With 1 KiB in place of 8, a row of 14336 took a
 *  quarter longer. */
QN_INLINE void fetch_ahead(const char *gate, const char *up, int64_t at) {
    constexpr uintptr_t ahead = 8192;
    for (uintptr_t line = 0; line < 4 * QN_LANES; line += 64) {
        __builtin_prefetch((const void *)((uintptr_t)gate + (uintptr_t)at + ahead + line));
        __builtin_prefetch((const void *)((uintptr_t)up + (uintptr_t)at + ahead + line));
    }
}

/** Writes a row in the dtype of x, past the caches if `streams`; out then begins at a cache
 *  line. */
QN_INLINE void write_row(mix m, bool streams, const char *gate, const char *up, char *out,
                         int64_t h, float limit) {
    const int64_t size = m.dtype == QNI_F32 ? 4 : 2;
    const int64_t last = h / (2 * QN_LANES) * (2 * QN_LANES);
    f32v y[2];
    for (int64_t i = 0; i < last; i += 2 * QN_LANES) {
        fetch_ahead(gate, up, i * size);
        make_two(m, gate, up, i, 2 * QN_LANES, limit, y);
        store_two(is_split(m), m.dtype, streams, out, i, y);
    }
    if (last == h)
        return;
    make_two(m, gate, up, last, h - last, limit, y);
    store_two_some(is_split(m), m.dtype, out, last, h - last, y);
}

/** Writes the results of elements first .. end - 1 to scratch, in the order of pairs of vectors,
 *  and zeros after them. Returns the largest magnitudes of each lane. */
QN_INLINE u32v make_values(mix m, const char *gate, const char *up, int64_t first, int64_t end,
                           float limit, float *scratch) {
    u32v top = {};
    f32v y[2];
    for (int64_t i = first; i < end; i += 2 * QN_LANES, scratch += 2 * QN_LANES) {
        const int64_t left = end - i;
        make_two(m, gate, up, i, left < 2 * QN_LANES ? left : 2 * QN_LANES, limit, y);
        for (int k = 0; k < 2; k++)
            top = larger_of(top, y[k]);
        memcpy(scratch, y, sizeof y);
    }
    return top;
}

/** Writes a row as FP8 with one scale, given or computed from the whole row. The row's results go
 *  through scratch. */
QN_INLINE void quantize_row(mix m, const qni_activation_problem *p, int64_t r, const char *gate,
                            const char *up, uint8_t *out, float *scratch) {
    const qni_fp8 fp8 = qni_fp8_of(p->dtype_out);
    const rounding kind = rounding_of(fp8);
    const bool is_given = p->quant == QNI_ACTIVATION_STATIC;
    const int64_t step = is_given ? CHUNK : p->h;
    for (int64_t i = 0; i < p->h; i += step) {
        const int64_t end = i + step < p->h ? i + step : p->h;
        const u32v top = make_values(m, gate, up, i, end, p->limit, scratch);
        if (!is_given) {
            const float amax = __builtin_bit_cast(float, __builtin_reduce_max(top));
            p->scale[r * p->scale_row] =
                (amax > p->scale_eps ? amax : p->scale_eps) / qni_fp8_format_of(fp8).max;
        }
        const float inverse = 1.0f / (is_given ? *p->scale : p->scale[r * p->scale_row]);
        encode_values(is_split(m), false, &kind, scratch, end - i, inverse, out + i);
    }
}

/** Writes a row as FP8 with a scale for each group. */
QN_INLINE void quantize_groups(mix m, const qni_activation_problem *p, int64_t r, const char *gate,
                               const char *up, uint8_t *out) {
    static_assert(QNI_ACTIVATION_GROUP == GROUP);
    chunk c;
    for (int64_t i = 0; i < p->h; i += CHUNK) {
        const int64_t end = i + CHUNK < p->h ? i + CHUNK : p->h;
        for (int64_t k = i; k < end; k += GROUP)
            c.top[(k - i) / GROUP] = make_values(m, gate, up, k, k + GROUP < end ? k + GROUP : end,
                                                 p->limit, c.y + (k - i));
        encode_chunk(is_split(m), false, qni_fp8_of(p->dtype_out), &c, end - i, p->scale_eps,
                     p->scale + r * p->scale_row + i / GROUP, out + i);
    }
}

/** Outputs from this size on, which no cache would hold until they are read again, are written past
 *  the caches. */
constexpr int64_t large_bytes = 4 << 20;

QN_INLINE void activate_rows_as(mix m, const qni_activation_problem *p, int64_t first, int64_t last,
                                float *scratch) {
    const int64_t size = m.dtype == QNI_F32 ? 4 : 2;
    const bool is_large = p->rows * p->h * size >= large_bytes;
    for (int64_t r = first; r < last; r++) {
        const char *gate = (const char *)p->x.data + qni_activation_at(p, &p->x, r) * size;
        const char *up = gate + p->h * size;
        const int64_t at = qni_activation_at(p, &p->out, r);
        char *out = (char *)p->out.data + at * size;
        if (p->quant == QNI_ACTIVATION_PER_GROUP)
            quantize_groups(m, p, r, gate, up, (uint8_t *)p->out.data + at);
        else if (p->quant != QNI_ACTIVATION_PLAIN)
            quantize_row(m, p, r, gate, up, (uint8_t *)p->out.data + at, scratch);
        else if (is_large && (uintptr_t)out % 64 == 0)
            write_row(m, true, gate, up, out, p->h, p->limit);
        else
            write_row(m, false, gate, up, out, p->h, p->limit);
    }
    atomic_thread_fence(
        memory_order_seq_cst); // makes stores past the caches visible before the call ends
}

// Each mix has a function: compilers take longer over one function with all the code.
#define ROWS_OF(name, ...)                                                                         \
    QN_SHARED void name(const qni_activation_problem *p, int64_t first, int64_t last,              \
                        float *scratch) {                                                          \
        activate_rows_as((mix){__VA_ARGS__}, p, first, last, scratch);                             \
    }
#define OF_FUNCTIONS(name, dtype, is_limited)                                                      \
    ROWS_OF(name##_silu, dtype, QN_SILU, is_limited)                                               \
    ROWS_OF(name##_gelu, dtype, QN_GELU, is_limited)                                               \
    ROWS_OF(name##_gelu_tanh, dtype, QN_GELU_TANH, is_limited)                                     \
    static const qni_activation_rows_fn name[] = {                                                 \
        [QN_SILU] = name##_silu, [QN_GELU] = name##_gelu, [QN_GELU_TANH] = name##_gelu_tanh};
#ifndef QN_BF16_ALONE
OF_FUNCTIONS(f32, QNI_F32, false)
OF_FUNCTIONS(f16, QNI_F16, false)
OF_FUNCTIONS(limited_f32, QNI_F32, true)
OF_FUNCTIONS(limited_f16, QNI_F16, true)
#endif
OF_FUNCTIONS(bf16, QNI_BF16, false)
OF_FUNCTIONS(limited_bf16, QNI_BF16, true)
#undef OF_FUNCTIONS
#undef ROWS_OF

/** Returns the functions for the problem's dtype and limit. */
static const qni_activation_rows_fn *functions_of(const qni_activation_problem *p) {
    const bool is_limited = p->limit < HUGE_VALF;
#ifndef QN_BF16_ALONE
    if (p->dtype == QNI_F32)
        return is_limited ? limited_f32 : f32;
    if (p->dtype == QNI_F16)
        return is_limited ? limited_f16 : f16;
#endif
    return is_limited ? limited_bf16 : bf16;
}

/** Computes rows first .. last - 1. */
static void activation_rows(const qni_activation_problem *p, int64_t first, int64_t last,
                            float *scratch) {
    functions_of(p)[p->function](p, first, last, scratch);
}

#endif
