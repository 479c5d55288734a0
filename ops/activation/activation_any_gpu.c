// SPDX-License-Identifier: Apache-2.0
// Gated activations of any h, strides and alignment, in every form.
//
// Needs     nothing beyond vector instructions
// Tile      a lane takes runs of 8 elements, one at a time; run c of a row belongs to lane c % 256
// Launch    256 threads, a row a workgroup; workgroups step through the rows that are left
// LDS       512 bytes: largest magnitudes of 16 lanes, twice
// Edges     elements past the row's end count as zeros and are not stored. With a scale for the
//           row, its results are found twice: for the largest, then for the codes
// Source    FlashInfer's activation functions
#include "activation_row_gpu.h"

QD_SHARED(lds);

QD_INLINE uint32_t run_length(const qk_activation_args *g, uint32_t c) {
    return c < qd_div_up(g->h, QD_RUN) ? qd_min(g->h - c * QD_RUN, QD_RUN) : 0;
}

QD_INLINE qd_f32x8 result(int dtype, const qk_activation_args *g, const row *r, uint32_t c) {
    const uint32_t n = run_length(g, c);
    const int64_t from = (int64_t)c * QD_RUN;
    const qd_f32x8 gate = qd_load_part(dtype, qd_at(dtype, r->gate, from), n);
    const qd_f32x8 up = qd_load_part(dtype, qd_at(dtype, r->up, from), n);
    qd_f32x8 y;
    EACH_FUNCTION(g, y = activated(function, limited, g, gate, up);)
    return y;
}

/** Returns the row's scale, computed or given; 1 if groups have their own. */
QD_INLINE float row_scale(int dtype, const qk_activation_args *g, const row *r, qd_shared *shared) {
    uint32_t top = 0;
    if (g->quant == QK_ACTIVATION_STATIC)
        return *g->scale;
    if (g->quant != QK_ACTIVATION_PER_TOKEN)
        return 1.0f;
    for (uint32_t c = qd_thread(); run_length(g, c); c += __gpu_num_threads(0))
        top = qd_max(top, qd_run_top(result(dtype, g, r, c)));
    top = qd_workgroup_max(shared, top);
    const float scale = qd_scale_of(top, g->scale_eps, qd_fp8_max((int)g->kind));
    if (qd_thread() == 0)
        *r->scale = scale;
    return scale;
}

QD_INLINE void activate_row(int dtype, const qk_activation_args *g, const row *r,
                            qd_shared *shared) {
    const uint32_t runs = qd_div_up(g->h, QD_RUN);
    float inverse = 1.0f / row_scale(dtype, g, r, shared);
    // Waves stay together, as lanes compute scales together.
    for (uint32_t c = qd_thread(); c - c % QD_WAVE < runs; c += __gpu_num_threads(0)) {
        const qd_f32x8 y = result(dtype, g, r, c);
        const uint32_t n = run_length(g, c);
        if (g->quant == QK_ACTIVATION_PLAIN) {
            qd_store_part(dtype, (void *)qd_at(dtype, r->out, (int64_t)c * QD_RUN), n, y);
            continue;
        }
        if (g->quant == QK_ACTIVATION_PER_GROUP) {
            const float scale =
                qd_scale_of(qd_row_max(qd_run_top(y)), g->scale_eps, qd_fp8_max((int)g->kind));
            if (c % QD_ROW == 0 && n)
                r->scale[c / QD_ROW] = scale;
            inverse = 1.0f / scale;
        }
        qd_store_codes_part((uint8_t *)r->out + (int64_t)c * QD_RUN, n,
                            qd_encode8((int)g->kind, y * inverse));
    }
}

QD_INLINE void activate(int dtype, const qk_activation_args *g) {
    qd_begin();
    qd_shared shared = {lds, 0};
    for (uint32_t r = qd_block(); r < g->rows; r += __gpu_num_blocks(0)) {
        const row at = find_row(dtype, g, r);
        activate_row(dtype, g, &at, &shared);
    }
}

#define KERNEL(name, dtype)                                                                        \
    QD_KERNEL(256) qk_activation_any_##name(const qk_activation_args g) {                          \
        activate(dtype, &g);                                                                       \
    }
KERNEL(f32, QD_F32)
KERNEL(f16, QD_F16)
KERNEL(bf16, QD_BF16)
