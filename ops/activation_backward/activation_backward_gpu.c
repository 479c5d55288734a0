// SPDX-License-Identifier: Apache-2.0
// The backward pass of gated activations in one pass over memory.
//
// Needs     nothing beyond vector instructions
// Tile      a lane has 2 runs of 8 elements of gate, up and d_out under way; run c of a tile
//           belongs to lane c % lanes, so that every load is of whole cache lines
// Launch    256 threads, 2^lanes_log2 lanes along a row and the others on the rows below; grid =
//           rows x tiles of a row. Workgroups step through the rows that are left
// LDS       none
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; _any: elements are moved
//           one by one, and those past the row's end are neither read nor written
// Source    the derivatives of arXiv:2002.05202's functions
#include "activation_backward_abi.h"
#include "elementary.h"
#include "elements.h"

enum { RUNS = 2 };

typedef struct mode {
    int dtype;
    bool is_whole; // runs are whole and aligned
} mode;

/** One row of the problem. */
typedef struct row {
    const void *gate, *up, *d;
    void *dgate, *dup;
} row;

/** f and its derivative. */
typedef struct values {
    float f, slope;
} values;

// ---- the derivatives

/** Returns x s and its derivative, s + x s (1 - s) inner, for s = 1 / (1 + 2^y). */
QD_INLINE values of_logistic(float x, float y, float inner) {
    const float s = qd_rcp(1.0f + qd_exp2_flushed(y));
    return (values){x * s, s + x * s * (1.0f - s) * inner};
}

QD_INLINE values of_gelu_tanh(float x) {
    // Where the square is larger, s (1 - s) is 0.
    const float square = x * x, bound = square < 0x1p20f ? square : 0x1p20f;
    const float y = x * __builtin_fmaf(square, -0x1.a5a7dp-4f, -0x1.26aec2p+1f);
    // 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2)
    return of_logistic(x, y, __builtin_fmaf(bound, 0x1.b6676cp-3f, 0x1.988454p+0f));
}

/** Returns x Phi(x) and Phi(x) + x phi(x). */
QD_INLINE values of_gelu(float x) {
    const float f = qd_gelu(x), density = qd_exp2(x * x * -0x1.715476p-1f) * 0x1.988454p-2f;
    return (values){f, (x == 0 ? 0.5f : f / x) + x * density};
}

QD_INLINE values values_of(int function, float x) {
    return function == QK_SILU   ? of_logistic(x, x * -0x1.715476p+0f, 1)
           : function == QK_GELU ? of_gelu(x)
                                 : of_gelu_tanh(x);
}

// ---- runs

QD_INLINE qd_f32x8 load_run(mode m, const void *p, int64_t at, uint32_t n) {
    return m.is_whole ? qd_load8(m.dtype, qd_at(m.dtype, p, at))
                      : qd_load_part(m.dtype, qd_at(m.dtype, p, at), n);
}

QD_INLINE void store_run(mode m, void *p, int64_t at, uint32_t n, qd_f32x8 v) {
    if (m.is_whole)
        qd_store8(m.dtype, (void *)qd_at(m.dtype, p, at), v);
    else
        qd_store_part(m.dtype, (void *)qd_at(m.dtype, p, at), n, v);
}

/** Replaces gate and up by their gradients. */
QD_INLINE void find_gradients(int function, float limit, qd_f32x8 *gate, qd_f32x8 *up, qd_f32x8 d) {
    QD_UNROLL for (int i = 0; i < QD_RUN; i++) {
        const float x = (*gate)[i], y = (*up)[i];
        const float low = y < -limit ? -limit : y, clamped = low > limit ? limit : low;
        const values v = values_of(function, x > limit ? limit : x); // a NaN stays
        (*gate)[i] = x > limit ? 0 : d[i] * clamped * v.slope;
        (*up)[i] = y > limit || y < -limit ? 0 : d[i] * v.f;
    }
}

QD_INLINE void backward_run(mode m, const qk_activation_backward_args *g, const row *r,
                            uint32_t c) {
    const int64_t at = (int64_t)c * QD_RUN;
    if (at >= g->h)
        return;
    const uint32_t n = qd_min(g->h - (uint32_t)at, QD_RUN);
    qd_f32x8 gate = load_run(m, r->gate, at, n), up = load_run(m, r->up, at, n);
    const qd_f32x8 d = load_run(m, r->d, at, n);
    // Branches stand around loops, not inside.
    if (g->function == QK_SILU)
        find_gradients(QK_SILU, g->limit, &gate, &up, d);
    else if (g->function == QK_GELU)
        find_gradients(QK_GELU, g->limit, &gate, &up, d);
    else
        find_gradients(QK_GELU_TANH, g->limit, &gate, &up, d);
    store_run(m, r->dgate, at, n, gate);
    store_run(m, r->dup, at, n, up);
}

QD_INLINE row find_row(int dtype, const qk_activation_backward_args *g, uint32_t r) {
    // The branch avoids a division, which takes longer than all else before the first load.
    const uint32_t batch = r < g->inner ? 0 : r / g->inner, i = r - batch * g->inner;
    const int64_t x = (int64_t)batch * g->x_batch + (int64_t)i * g->x_row;
    const int64_t d = (int64_t)batch * g->d_out_batch + (int64_t)i * g->d_out_row;
    const int64_t dx = (int64_t)batch * g->dx_batch + (int64_t)i * g->dx_row;
    return (row){.gate = qd_at(dtype, g->x, x),
                 .up = qd_at(dtype, g->x, x + g->h),
                 .d = qd_at(dtype, g->d_out, d),
                 .dgate = (void *)qd_at(dtype, g->dx, dx),
                 .dup = (void *)qd_at(dtype, g->dx, dx + g->h)};
}

QD_INLINE void backward(mode m, const qk_activation_backward_args *g) {
    qd_begin();
    const uint32_t lanes = 1u << g->lanes_log2, below = __gpu_num_threads(0) >> g->lanes_log2;
    const uint32_t first = __gpu_block_id(1) * lanes * RUNS + (qd_thread() & (lanes - 1));
    for (uint32_t r = qd_block() * below + (qd_thread() >> g->lanes_log2); r < g->rows;
         r += __gpu_num_blocks(0) * below) {
        const row of = find_row(m.dtype, g, r);
        QD_UNROLL for (uint32_t i = 0; i < RUNS; i++)
            backward_run(m, g, &of, first + i * lanes);
    }
}

#define KERNELS(name, dtype)                                                                       \
    QD_KERNEL(256) qk_activation_backward_##name(const qk_activation_backward_args g) {            \
        backward((mode){dtype, true}, &g);                                                         \
    }                                                                                              \
    QD_KERNEL(256) qk_activation_backward_any_##name(const qk_activation_backward_args g) {        \
        backward((mode){dtype, false}, &g);                                                        \
    }
KERNELS(f32, QD_F32)
KERNELS(f16, QD_F16)
KERNELS(bf16, QD_BF16)
