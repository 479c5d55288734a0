// SPDX-License-Identifier: Apache-2.0
// The backward pass of gated activations with vectors of QN_LANES f32: included by
// activation_backward_cpu.c, _avx2.c, _avx512.c and, with QN_BF16_ALONE, which leaves out the other
// dtypes, _avx512bf16.c.
#ifndef QNI_ACTIVATION_BACKWARD_SIMD_H
#define QNI_ACTIVATION_BACKWARD_SIMD_H

#include "../shared/groups_simd.h"
#include "activation_backward.h"

/** What the code is built for. The compiler makes a copy for each mix in use. */
typedef struct mix {
    qni_dtype dtype;
    qn_activation function;
} mix;

/** f and its derivative. */
typedef struct values {
    f32v f, slope;
} values;

/** Returns x s and its derivative, s + x s (1 - s) inner, for s = 1 / (1 + 2^y). */
QN_INLINE values of_logistic(f32v x, f32v y, f32v inner) {
    const f32v s = logistic_of(all_of(1), y);
    return (values){x * s, s + x * s * (1.0f - s) * inner};
}

QN_INLINE values of_gelu_tanh(f32v x) {
    // Where the square is larger, s (1 - s) is 0.
    const f32v square = x * x, most = all_of(0x1p20f);
    const f32v bound = select_of(square < most, square, most);
    const f32v y = x * fma_of(square, all_of(-0x1.a5a7dp-4f), all_of(-0x1.26aec2p+1f));
    // 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2)
    return of_logistic(x, y, fma_of(bound, all_of(0x1.b6676cp-3f), all_of(0x1.988454p+0f)));
}

/** Returns x Phi(x) and Phi(x) + x phi(x), as gpu/elementary.h explains. */
QN_INLINE values of_gelu(f32v x) {
    const f32v f = gelu_of(x), density = exp2_of(x * x * -0x1.715476p-1f, 0) * 0x1.988454p-2f;
    return (values){f, select_of(x == 0.0f, all_of(0.5f), f / x) + x * density};
}

QN_INLINE values values_of(qn_activation function, f32v x) {
    if (function == QN_GELU)
        return of_gelu(x);
    return function == QN_SILU ? of_logistic(x, x * -0x1.715476p+0f, all_of(1)) : of_gelu_tanh(x);
}

/** Computes gradients of a vector: out[0] by gate, out[1] by up. */
QN_INLINE void find_gradients(mix m, f32v gate, f32v up, f32v d, float limit, f32v out[2]) {
    const f32v most = all_of(limit), least = -most, none = {};
    const i32v is_above = gate > most, is_outside = (up > most) | (up < least);
    const f32v clamped = select_of(up > most, most, select_of(up < least, least, up));
    const values v = values_of(m.function, select_of(is_above, most, gate)); // a NaN stays
    out[0] = select_of(is_above, none, d * clamped * v.slope);
    out[1] = select_of(is_outside, none, d * v.f);
}

QN_INLINE void backward_row(mix m, const qni_activation_backward_problem *p, int64_t r) {
    const int64_t size = m.dtype == QNI_F32 ? 4 : 2, h = p->h;
#define ROW(rows) ((char *)(rows).data + qni_activation_backward_at(p, &(rows), r) * size)
    const char *gate = ROW(p->x), *up = gate + h * size, *d = ROW(p->d_out);
    char *dgate = ROW(p->dx), *dup = dgate + h * size;
#undef ROW
    f32v out[2];
    int64_t i = 0;
    for (; i + QN_LANES <= h; i += QN_LANES) {
        find_gradients(m, load(m.dtype, gate, i), load(m.dtype, up, i), load(m.dtype, d, i),
                       p->limit, out);
        store(m.dtype, dgate, i, out[0]);
        store(m.dtype, dup, i, out[1]);
    }
    if (i == h)
        return;
    find_gradients(m, load_some(m.dtype, gate, i, h - i), load_some(m.dtype, up, i, h - i),
                   load_some(m.dtype, d, i, h - i), p->limit, out);
    store_some(m.dtype, dgate, i, h - i, out[0]);
    store_some(m.dtype, dup, i, h - i, out[1]);
}

// Each mix has a function: compilers take longer over one function with all the code.
#define ROWS_OF(name, ...)                                                                         \
    QN_SHARED void name(const qni_activation_backward_problem *p, int64_t first, int64_t last) {   \
        for (int64_t r = first; r < last; r++)                                                     \
            backward_row((mix){__VA_ARGS__}, p, r);                                                \
    }
#define OF_FUNCTIONS(name, dtype)                                                                  \
    ROWS_OF(name##_silu, dtype, QN_SILU)                                                           \
    ROWS_OF(name##_gelu, dtype, QN_GELU)                                                           \
    ROWS_OF(name##_gelu_tanh, dtype, QN_GELU_TANH)                                                 \
    static const qni_activation_backward_fn name[] = {                                             \
        [QN_SILU] = name##_silu, [QN_GELU] = name##_gelu, [QN_GELU_TANH] = name##_gelu_tanh};
#ifndef QN_BF16_ALONE
OF_FUNCTIONS(f32, QNI_F32)
OF_FUNCTIONS(f16, QNI_F16)
#endif
OF_FUNCTIONS(bf16, QNI_BF16)
#undef OF_FUNCTIONS
#undef ROWS_OF

/** Computes rows first .. last - 1. */
static void backward_rows(const qni_activation_backward_problem *p, int64_t first, int64_t last) {
#ifndef QN_BF16_ALONE
    if (p->dtype == QNI_F32)
        return f32[p->function](p, first, last);
    if (p->dtype == QNI_F16)
        return f16[p->function](p, first, last);
#endif
    bf16[p->function](p, first, last);
}

#endif
