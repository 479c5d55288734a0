// SPDX-License-Identifier: Apache-2.0
// NVIDIA's tensor cores by the instructions of Ampere (mma.m16n8k16): implements gpu/mma.h from
// sm_80 on.
//
// The instruction's rows, which are rows of its a, are columns here, lines of y. The instruction's
// columns, which are columns of its b, are rows here, lines of x.
#ifndef QD_MMA_SM80_H
#define QD_MMA_SM80_H

#include "../elements.h"
#include "../halves.h"

enum { QD_MMA_ROWS = 8, QD_MMA_COLUMNS = 16, QD_MMA_ACC = 4, QD_MMA_OWN = 2, QD_MMA_PARTS = 4 };
enum { QD_MMA_K = 32, QD_MMA_PAIR = 1, QD_MMA_NEXT_PAIR = 8, QD_MMA_RUN = 2, QD_MMA_RUNS = 1 };
enum { QD_MMA_FLUSHES_F16 = 0 };
typedef qd_f32x4 qd_mma_acc;
typedef qd_u32x4
    qd_mma_operand; // of each 32 consecutive k the part's 8, in the order of two instructions
typedef qd_f32x2 qd_mma_run;

// ---- places of elements

QD_INLINE uint32_t qd_mma_part(void) {
    return qd_lane() % 4;
}
QD_INLINE uint32_t qd_mma_line(void) {
    return qd_lane() / 4;
}
QD_INLINE uint32_t qd_mma_row(uint32_t part, uint32_t e) {
    return 2 * part + e % 2;
}
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
    return i / 16 * 32 + i % 4 * 8 + i / 4 % 4 * 2;
}
QD_INLINE uint32_t qd_mma_turn(uint32_t row) {
    return row % 2 * 4; // eight lanes read four pieces of two rows
}

// ---- products

#define QD_MMA_READ(c, piece) piece(4 * (c) + qd_mma_part())
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i) {
    return 4 * c + qd_mma_part() + i;
}

#define QD_MMA_PTX(type, d, a0, a1, a2, a3, b0, b1)                                                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                            \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])                          \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand y[QD_MMA_OWN],
                            qd_mma_acc acc) {
    const qd_mma_operand a = y[0], b = y[1];
    float d[4] = {acc.x, acc.y, acc.z, acc.w};
    if (is_f16) {
        QD_MMA_PTX("f16", d, a.x, b.x, a.y, b.y, x.x, x.y);
        QD_MMA_PTX("f16", d, a.z, b.z, a.w, b.w, x.z, x.w);
    } else {
        QD_MMA_PTX("bf16", d, a.x, b.x, a.y, b.y, x.x, x.y);
        QD_MMA_PTX("bf16", d, a.z, b.z, a.w, b.w, x.z, x.w);
    }
    return (qd_mma_acc){d[0], d[1], d[2], d[3]};
}

// ---- results

QD_INLINE uint32_t qd_mma_other(uint32_t v, uint32_t step) {
    return (uint32_t)__nvvm_shfl_sync_bfly_i32(0xFFFFFFFF, (int)v, (int)step, 31);
}
QD_INLINE qd_mma_acc qd_mma_spread(const float factor[QD_MMA_OWN]) {
    return (qd_mma_acc){factor[0], factor[0], factor[1], factor[1]};
}
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc d) {
    return d;
}
QD_INLINE qd_mma_operand qd_mma_from_results(const uint32_t packed[4]) {
    return (qd_mma_operand){packed[0], packed[1], packed[2], packed[3]};
}
QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc d, uint32_t own, uint32_t r) {
    (void)r;
    return own ? d.zw : d.xy;
}
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v) {
    if (dtype == QD_F32)
        *(qd_f32x2 *)p = v;
    else if (dtype == QD_F16)
        *(qd_f16x2 *)p = __builtin_convertvector(v, qd_f16x2);
    else
        *(qd_bf16x2 *)p = __builtin_convertvector(v, qd_bf16x2);
}

// ---- operands from LDS, for kernels of NVIDIA's own

/** Loads four 8 x 8 tiles of 16-bit values from the rows whose addresses the lanes give: lane 8 i +
 *  r row r of tile i. Element i is tile i's row lane / 4, columns 2 (lane % 4) and the next;
 *  qd_load_tiles_turned has rows and columns exchanged. */
QD_INLINE qd_u32x4 qd_load_tiles(uint32_t row) {
    qd_u32x4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}
QD_INLINE qd_u32x4 qd_load_tiles_turned(uint32_t row) {
    qd_u32x4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row)
                 : "memory");
    return v;
}

// ---- 16 x 16: two instructions, each with eight of the rows

enum { QD_MMA16_RUN = 4, QD_MMA16_K = 16, QD_MMA16_ACC = 8, QD_MMA16_OWN = 2 };
typedef qd_f32x8 qd_mma16_acc;
typedef struct qd_mma16_operand {
    qd_u32x2 line[2]; // lane / 4 and 8 further
} qd_mma16_operand;

QD_INLINE uint32_t qd_mma16_column(uint32_t lane, uint32_t own) {
    return lane / 4 + 8 * own;
}
/** The instruction's own order of k has two runs of two; x and y agree on another. */
QD_INLINE uint32_t qd_mma16_k(uint32_t lane) {
    return lane % 4 * QD_MMA16_RUN;
}
QD_INLINE uint32_t qd_mma16_row(uint32_t lane, uint32_t e) {
    return e / 2 % 2 * 8 + lane % 4 * 2 + e % 2;
}
QD_INLINE qd_mma16_operand qd_mma16_read(const QD_LDS uint8_t *at, uint32_t row_bytes) {
    return (qd_mma16_operand){
        {*(const QD_LDS qd_u32x2 *)at, *(const QD_LDS qd_u32x2 *)(at + 8 * row_bytes)}};
}
QD_INLINE qd_mma16_acc qd_mma16_spread(const float factor[QD_MMA16_OWN]) {
    const qd_f32x4 low = factor[0], high = factor[1];
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
QD_INLINE qd_mma16_acc qd_mma16(bool is_f16, qd_mma16_operand x, qd_mma16_operand y,
                                qd_mma16_acc d) {
    const qd_u32x2 a = y.line[0], b = y.line[1];
    float low[4] = {d[0], d[1], d[4], d[5]}, high[4] = {d[2], d[3], d[6], d[7]};
    if (is_f16) {
        QD_MMA_PTX("f16", low, a.x, b.x, a.y, b.y, x.line[0].x, x.line[0].y);
        QD_MMA_PTX("f16", high, a.x, b.x, a.y, b.y, x.line[1].x, x.line[1].y);
    } else {
        QD_MMA_PTX("bf16", low, a.x, b.x, a.y, b.y, x.line[0].x, x.line[0].y);
        QD_MMA_PTX("bf16", high, a.x, b.x, a.y, b.y, x.line[1].x, x.line[1].y);
    }
    return (qd_mma16_acc){low[0], low[1], high[0], high[1], low[2], low[3], high[2], high[3]};
}

#endif
