// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of rope: positions, angles, and the angles' cosines and sines.
//
// An angle is an integer, of which 2^32 is a full turn. The kernel multiplies a position by a
// frequency in units of 2^-64 turns, and keeps the upper 32 of the lower 64 bits. So the angle is
// reduced exactly, and nothing is lost at any position of 31 bits. Two Taylor series then cover an
// eighth of a turn to either side.
#ifndef QK_ROPE_ROW_GPU_H
#define QK_ROPE_ROW_GPU_H

#include "elements.h"
#include "rope_abi.h"

/** Returns token t's position; *is_there becomes false if t is in no segment. All lanes ask for one
 *  token. */
QD_INLINE int64_t position_of(const qk_rope_args *g, uint32_t t, bool *is_there) {
    *is_there = true;
    if (g->pos_ids)
        return g->pos_ids[t];
    uint32_t low = 0, high = g->batches; // the segment of t is in low .. high - 1, if in any
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (g->indptr[middle] <= (int32_t)t)
            low = middle;
        else
            high = middle;
    }
    const int32_t first = g->indptr[low];
    *is_there = (int32_t)t >= first && (int32_t)t < g->indptr[low + 1];
    return (int64_t)g->offsets[low] + ((int32_t)t - first);
}

QD_INLINE uint32_t angle_of(uint64_t turns, int64_t position) {
    return (uint32_t)((uint64_t)position * turns >> 32);
}

/** Computes cosine and sine, off by less than 2^-21: see rope_ref.c. */
QD_INLINE void cos_sin(uint32_t angle, float *cosine, float *sine) {
    const uint32_t quadrant = (angle + 0x20000000u) >> 30;
    const float y = (float)(int32_t)(angle - (quadrant << 30)) * 0x1.921FB6p-30f; // 2 pi / 2^32
    const float z = y * y;
    float s = __builtin_fmaf(z, 0x1.71DE3Ap-19f, -0x1.A01A02p-13f); // 1 / 9!, -1 / 7!
    s = __builtin_fmaf(z, s, 0x1.111112p-7f);                       // 1 / 5!
    s = __builtin_fmaf(z, s, -0x1.555556p-3f);                      // -1 / 3!
    s = __builtin_fmaf(y * z, s, y);
    float c = __builtin_fmaf(z, 0x1.A01A02p-16f, -0x1.6C16C2p-10f); // 1 / 8!, -1 / 6!
    c = __builtin_fmaf(z, c, 0x1.555556p-5f);                       // 1 / 4!
    c = __builtin_fmaf(z, c, -0.5f);
    c = __builtin_fmaf(z, c, 1.0f);
    const float first = quadrant & 1 ? s : c, second = quadrant & 1 ? c : s;
    *cosine = (quadrant + 1) & 2 ? -first : first;
    *sine = quadrant & 2 ? -second : second;
}

/** Returns where a token's row of the tables begins. */
QD_INLINE int64_t table_row(const qk_rope_args *g, uint32_t t, int64_t position) {
    return (g->angles == QK_ROPE_BY_TOKEN ? (int64_t)(t % g->inner) : position) * g->table_row;
}

/** Returns where a token's rows begin. */
QD_INLINE int64_t in_offset(const qk_rope_args *g, const qk_rope_rows *r, uint32_t t) {
    const uint32_t batch = t < g->inner ? 0 : t / g->inner;
    return (int64_t)batch * r->in_batch + (int64_t)(t - batch * g->inner) * r->in_token;
}

/** Returns where a token's results begin; below 0: the token has no place in the cache. */
QD_INLINE int64_t out_offset(const qk_rope_args *g, const qk_rope_rows *r, uint32_t t) {
    if (r->is_paged) {
        const qk_place at = qk_find_place(&g->pages, t);
        return at.page < 0 ? -1 : at.page * r->out_batch + at.place * r->out_token;
    }
    const uint32_t batch = t < g->inner ? 0 : t / g->inner;
    return (int64_t)batch * r->out_batch + (int64_t)(t - batch * g->inner) * r->out_token;
}

/** Adds v over groups of `lanes` lanes, a power of two. */
QD_INLINE float add_lanes(float v, uint32_t lanes) {
    for (uint32_t step = lanes / 2; step > 0; step /= 2)
        v += qd_as_f32(
            __gpu_shuffle_idx_u32(__gpu_lane_mask(), qd_lane() ^ step, qd_as_u32(v), QD_WAVE));
    return v;
}

#endif
