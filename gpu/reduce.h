// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a row of 16 lanes, and over a workgroup through LDS, with equal bits in
// every lane.
//
// On every target a row of 16 lanes lies inside a wave, so that this header need not know whether a
// wave has 32 or 64 lanes.
#ifndef QD_REDUCE_H
#define QD_REDUCE_H

#include "gpu.h"

enum { QD_ROW = 16, QD_MAX_ROWS = 1024 / QD_ROW }; // lanes of a row; rows of the largest workgroup

/** Returns the x of lane `from` of this lane's four, a constant: 0 to 3. The whole wave takes
 *  part. */
QD_INLINE uint32_t qd_lane_of_four(uint32_t x, uint32_t from) {
#if defined(__NVPTX__)
    return (uint32_t)__nvvm_shfl_sync_idx_i32(0xFFFFFFFF, (int)x, (int)from, 0x1C1F);
#else
#define QD_DPP(control) (uint32_t)__builtin_amdgcn_update_dpp(0, (int)x, control, 0xF, 0xF, false)
    return from == 0   ? QD_DPP(0x00) // quad_perm:[0,0,0,0]
           : from == 1 ? QD_DPP(0x55)
           : from == 2 ? QD_DPP(0xAA)
                       : QD_DPP(0xFF);
#undef QD_DPP
#endif
}

QD_INLINE float qd_row_sum(float v) {
    v += qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 8));
    v += qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 4));
    v += qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 2));
    return v + qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 1));
}

/** Returns the largest v of the row. As integers, bits of f32 magnitudes have the order of the
 *  magnitudes, with NaNs on top. */
QD_INLINE uint32_t qd_row_max(uint32_t v) {
    v = qd_max(v, QD_ROW_PARTNER(v, 8));
    v = qd_max(v, QD_ROW_PARTNER(v, 4));
    v = qd_max(v, QD_ROW_PARTNER(v, 2));
    return qd_max(v, QD_ROW_PARTNER(v, 1));
}

/** LDS for a workgroup's sums and maxima, which QD_SHARED declares. Reductions use its two halves
 *  in turn, so that one barrier each is enough: a wave that writes a half again has met all others
 *  since they read it. */
typedef struct qd_shared {
    QD_LDS uint32_t (*halves)[QD_MAX_ROWS];
    uint32_t turn;
} qd_shared;
#define QD_SHARED(name) [[clang::loader_uninitialized]] static QD_LDS uint32_t name[2][QD_MAX_ROWS]

/** Puts each row's value into LDS. Returns the half where all waves find the values after a
 *  barrier. */
QD_INLINE QD_LDS uint32_t *qd_put_row(qd_shared *shared, uint32_t v) {
    QD_LDS uint32_t *half = shared->halves[shared->turn++ & 1];
    if (qd_thread() % QD_ROW == 0)
        half[qd_thread() / QD_ROW] = v;
    return half;
}

/** Loops over the rows whose values this lane takes; 16 lanes take all rows. */
#define QD_EACH_SHARED(r)                                                                          \
    for (uint32_t r = qd_thread() % QD_ROW; r < __gpu_num_threads(0) / QD_ROW; r += QD_ROW)

/** Returns the sum of the values that the rows have put into a half. */
QD_INLINE float qd_shared_sum(const QD_LDS uint32_t *half) {
    float sum = 0;
    QD_EACH_SHARED(r) sum += qd_as_f32(half[r]);
    return qd_row_sum(sum);
}
/** Returns the maximum of the values that the rows have put into a half. */
QD_INLINE uint32_t qd_shared_max(const QD_LDS uint32_t *half) {
    uint32_t top = 0;
    QD_EACH_SHARED(r) top = qd_max(top, half[r]);
    return qd_row_max(top);
}

/** Returns the sum of v over the workgroup, whose size is a multiple of 16. */
QD_INLINE float qd_workgroup_sum(qd_shared *shared, float v) {
    const QD_LDS uint32_t *half = qd_put_row(shared, qd_as_u32(qd_row_sum(v)));
    qd_barrier();
    return qd_shared_sum(half);
}

QD_INLINE uint32_t qd_workgroup_max(qd_shared *shared, uint32_t v) {
    const QD_LDS uint32_t *half = qd_put_row(shared, qd_row_max(v));
    qd_barrier();
    return qd_shared_max(half);
}

#endif
