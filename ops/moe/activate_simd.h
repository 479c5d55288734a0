// SPDX-License-Identifier: Apache-2.0
// What acts on the halves of experts' first products, with vectors of QN_LANES f32: included by
// activate_cpu.c, activate_avx2.c and activate_avx512.c.
#ifndef QNI_MOE_ACTIVATE_SIMD_H
#define QNI_MOE_ACTIVATE_SIMD_H

#include "../shared/groups_simd.h"
#include "moe.h"

QN_INLINE f32v activated(const qni_moe_activate_problem *p, f32v gate, f32v up) {
    const f32v most = all_of(p->limit), least = -most;
    gate = select_of(gate > most, most, gate); // a NaN stays
    up = select_of(up > most, most, select_of(up < least, least, up));
    switch (p->function) {
    case QN_MOE_SILU:
        return silu_of(gate) * up;
    case QN_MOE_GELU:
        return gelu_of(gate) * up;
    case QN_MOE_GELU_TANH:
        return gelu_tanh_of(gate) * up;
    default:
        return logistic_of(gate, gate * p->alpha * -0x1.715476p+0f) * (up + 1.0f); // log2(e)
    }
}

/** Computes results i .. i + 2 QN_LANES - 1 of a row, of which `count` exist; the others are those
 *  of zeros. */
QN_INLINE void make_two(qni_dtype dtype, const qni_moe_activate_problem *p, const char *row,
                        int64_t i, int64_t count, f32v y[2]) {
    f32v gate[2], up[2], pair[2];
    for (int k = 0; p->is_interleaved && k < 2; k++) {
        const int64_t at = 2 * i + 2 * k * QN_LANES, left = 2 * count - 2 * k * QN_LANES;
        if (left >= 2 * QN_LANES)
            load_two(true, dtype, row, at, pair);
        else
            load_two_some(true, dtype, row, left > 0 ? at : 0, left > 0 ? left : 0, pair);
        gate[k] = pair[0], up[k] = pair[1];
    }
    if (!p->is_interleaved && count == 2 * QN_LANES) {
        load_two(false, dtype, row, i, gate);
        load_two(false, dtype, row, i + p->h, up);
    } else if (!p->is_interleaved) {
        load_two_some(false, dtype, row, i, count, gate);
        load_two_some(false, dtype, row, i + p->h, count, up);
    }
    for (int k = 0; k < 2; k++)
        y[k] = activated(p, gate[k], up[k]);
}

QN_INLINE void write_row(qni_dtype dtype, const qni_moe_activate_problem *p, const char *row,
                         char *out) {
    f32v y[2];
    for (int64_t i = 0; i < p->h; i += 2 * QN_LANES) {
        const int64_t left = p->h - i;
        make_two(dtype, p, row, i, left < 2 * QN_LANES ? left : 2 * QN_LANES, y);
        if (left >= 2 * QN_LANES)
            store_two(false, dtype, false, out, i, y);
        else
            store_two_some(false, dtype, out, i, left, y);
    }
}

/** Writes a row as FP8 with a scale for each group, as many groups at a time as a chunk has. */
QN_INLINE void quantize_row(qni_dtype dtype, const qni_moe_activate_problem *p, const char *row,
                            uint8_t *out, float *scales) {
    static_assert(QNI_MOE_GROUP == GROUP && GROUP % (2 * QN_LANES) == 0);
    float found[CHUNK_GROUPS];
    chunk c;
    f32v y[2];
    for (int64_t first = 0; first < p->h; first += CHUNK) {
        const int64_t count = p->h - first < CHUNK ? p->h - first : CHUNK;
        for (int64_t i = 0; i < count; i += 2 * QN_LANES) {
            const int64_t left = count - i;
            u32v *top = &c.top[i / GROUP];
            make_two(dtype, p, row, first + i, left < 2 * QN_LANES ? left : 2 * QN_LANES, y);
            memcpy(c.y + i, y, sizeof y);
            *top = larger_of(larger_of(i % GROUP ? *top : (u32v){}, y[0]), y[1]);
        }
        encode_chunk(false, false, qni_fp8_of(p->dtype_out), &c, count, p->scale_eps, found,
                     out + first);
        for (int64_t g = 0; g < (count + GROUP - 1) / GROUP; g++)
            scales[(first / GROUP + g) * p->scale_column] = found[g];
    }
}

QN_INLINE void activate_as(qni_dtype dtype, const qni_moe_activate_problem *p, int64_t r) {
    const int64_t size = qni_dtype_bytes(dtype);
    const char *row = (const char *)p->x + r * p->x_row * size;
    if (p->scale)
        quantize_row(dtype, p, row, (uint8_t *)p->out + r * p->out_row,
                     p->scale + r * p->scale_row);
    else
        write_row(dtype, p, row, (char *)p->out + r * p->out_row * size);
}

/** Computes rows first .. end - 1. */
static void activate_rows(const qni_moe_activate_problem *p, int64_t first, int64_t end) {
    for (int64_t r = first; r < end; r++)
        if (p->expert_of_row && p->expert_of_row[r] < 0)
            continue;
        else if (p->dtype == QNI_BF16)
            activate_as(QNI_BF16, p, r);
        else if (p->dtype == QNI_F16)
            activate_as(QNI_F16, p, r);
        else
            activate_as(QNI_F32, p, r);
}

#endif
