// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of activations: a row's place, and runs of eight results.
#ifndef QK_ACTIVATION_ROW_GPU_H
#define QK_ACTIVATION_ROW_GPU_H

#include "activation_abi.h"
#include "elementary.h"
#include "elements.h"
#include "reduce.h"
#include "scale.h"

/** One row of the problem. */
typedef struct row {
    const void *gate, *up;
    void *out;
    float *scale;
} row;

QD_INLINE row find_row(int dtype, const qk_activation_args *g, uint32_t r) {
    // The branch avoids a division, which takes longer than all else before the first load.
    const uint32_t batch = r < g->inner ? 0 : r / g->inner;
    const int64_t i = r - (int64_t)batch * g->inner;
    const int64_t x = (int64_t)batch * g->x_batch + i * g->x_row;
    const int64_t out = (int64_t)batch * g->out_batch + i * g->out_row;
    return (row){.gate = qd_at(dtype, g->x, x),
                 .up = qd_at(dtype, g->x, x + g->h),
                 .out = g->quant == QK_ACTIVATION_PLAIN ? (void *)qd_at(dtype, g->out, out)
                                                        : (uint8_t *)g->out + out,
                 .scale = g->scale + (int64_t)r * g->scale_row};
}

/** Returns f(gate) * up; `limited`: gate and up are limited first. */
QD_INLINE qd_f32x8 activated(int function, bool limited, const qk_activation_args *g, qd_f32x8 gate,
                             qd_f32x8 up) {
    qd_f32x8 y;
    QD_UNROLL for (int i = 0; i < QD_RUN; i++) {
        const float x = limited && gate[i] > g->limit ? g->limit : gate[i];
        const float f = function == QK_SILU   ? qd_silu(x)
                        : function == QK_GELU ? qd_gelu(x)
                                              : qd_gelu_tanh(x);
        const float low = limited && up[i] < -g->limit ? -g->limit : up[i];
        y[i] = f * (limited && low > g->limit ? g->limit : low);
    }
    return y;
}

/** Expands `…` with constants `function` and `limited`, so that branches stand around loops and not
 *  inside. */
#define EACH_FUNCTION(g, ...)                                                                      \
    if ((g)->function == QK_SILU && (g)->limit == __builtin_inff()) {                              \
        constexpr int function = QK_SILU;                                                          \
        constexpr bool limited = false;                                                            \
        __VA_ARGS__                                                                                \
    } else if ((g)->function == QK_SILU) {                                                         \
        constexpr int function = QK_SILU;                                                          \
        constexpr bool limited = true;                                                             \
        __VA_ARGS__                                                                                \
    } else if ((g)->function == QK_GELU) {                                                         \
        constexpr int function = QK_GELU;                                                          \
        constexpr bool limited = true;                                                             \
        __VA_ARGS__                                                                                \
    } else {                                                                                       \
        constexpr int function = QK_GELU_TANH;                                                     \
        constexpr bool limited = true;                                                             \
        __VA_ARGS__                                                                                \
    }

#endif
