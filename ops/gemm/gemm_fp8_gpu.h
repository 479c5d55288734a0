// SPDX-License-Identifier: Apache-2.0
// A tile of FP8 gemm with block scales on CDNA's matrix cores: its sizes, LDS, a wave's registers,
// and its end, from the sums to d. gemm_fp8_gpu.c has the loop.
#ifndef QK_GEMM_FP8_GPU_H
#define QK_GEMM_FP8_GPU_H

#include "copy.h"
#include "gemm_full_gpu.h"

#ifndef QK_MT
#define QK_WM 2 // waves one below another
#define QK_MT 4 // tiles of 32 rows a wave
#endif
#ifndef QK_STAGES
#define QK_STAGES 2 // K-blocks of a in LDS, and of b in registers
#endif
enum { WM = QK_WM, MT = QK_MT, WN = 4 / WM, NT = WM, WAVES = WM * WN, THREADS = 64 * WAVES };
enum { TM = 32 * WM * MT, TN = 32 * WN * NT, STAGES = QK_STAGES, BLOCK_K = 128 };
enum { STAGE = TM * BLOCK_K };
enum {
    TILES = MT * NT,
    STEPS = 8 * TILES,      // MFMAs of a K-block
    MEET = 8 * NT,          // the step before which the waves meet
    WAVE_ROWS = TM / WAVES, // rows of a that a wave copies
#ifdef QK_REPAIR
    FETCHES = WAVE_ROWS / 8, // 16 bytes a lane, eight rows, each
#else
    FETCHES = WAVE_ROWS / 2, // 4 bytes a lane, two rows, each
#endif
    LOADS = 4 * NT + MT + 1,     // memory reads between the copies and the meeting
    SPARE = MEET / 2 - (MT + 1), // even steps before the waves meet that load no scale
    SCALES_AT = 2 * (SPARE < 2 ? SPARE : 2),
    // memory reads that begin between the copies of a block and the meeting that ends their wait
    FLYING = (STAGES - 2) * (LOADS + FETCHES) + LOADS,
    LAND = 5, // the step from which data fetched through registers are written to LDS
};
#ifdef QK_REPAIR
static_assert(LAND + 2 * FETCHES <= MEET && STAGES == 2);
#endif
static_assert(TN == 128 && WAVES == 4 && FETCHES <= STEPS - MEET && MT >= 2 && SPARE >= 0);
static_assert(STAGES * TILES % 2 == 0 && STAGES <= 4 && FLYING < 64);

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds0[STAGE] __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds1[STAGE] __attribute__((aligned(128)));
// A stage that the image lacks is the first one: unoptimised code would have even a byte, for which
// tiles of 256 rows leave no room.
#if QK_STAGES > 2
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds2[STAGE] __attribute__((aligned(128)));
#else
#define lds2 lds0
#endif
#if QK_STAGES > 3
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds3[STAGE] __attribute__((aligned(128)));
#else
#define lds3 lds0
#endif

/** Returns stage i of LDS, where i is a constant: of one array clang would not know which copies a
 *  read has to wait for. */
QD_INLINE QD_LDS uint8_t *stage_of(int i) {
    return i == 0 ? lds0 : i == 1 ? lds1 : i == 2 ? lds2 : lds3;
}

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    const uint8_t *a_base, *b_base;
    const float *scale_a_base, *scale_b_base;
    uint32_t a_bytes, b_bytes, scale_a_bytes, scale_b_bytes;
    __amdgpu_buffer_rsrc_t a, b, scale_a, scale_b;
    uint32_t wave, rows;                         // rows: the tile's rows that exist
    uint32_t a_offset[FETCHES];                  // this lane's, for each fetch of a
    uint32_t b_offset, scale_offset[MT];         // this lane's
    uint32_t read_offset[4];                     // this lane's 16 bytes j of its row, in a stage
    uint32_t a_at, b_at, scale_a_at, scale_b_at; // where the next block begins in each, bytes
    uint32_t scale_a_step, strip_bytes;
    qd_u32x4 a_tile[MT][4], b_tile[STAGES][NT][4];
    float scale_a_of[STAGES][MT], scale_b_of[STAGES];
    qd_f32x16 part[2];
    qd_f32x2 sum[MT][NT]
                [8]; // in pairs: as one f32x16 with part, clang moves them to AGPRs and back
    float scale;     // of the tile before this one
    uint32_t past;   // a sign bit for the scales of blocks past the end
#ifdef QK_REPAIR
    qd_u32x4 fetched[FETCHES];
#endif
} wave;

/** Returns where 16-byte piece `piece` of a row lies in a stage. */
QD_INLINE uint32_t swizzle(uint32_t row, uint32_t piece) {
    return row * BLOCK_K + (piece ^ (row & 7)) * 16;
}

// ---- the end

/** Returns four columns of this lane's row of a tile; i counts them in steps of eight over the
 *  wave's columns. */
QD_INLINE qd_f32x4 columns_of(const wave *w, int m, int i) {
    const qd_f32x2 *sum = &w->sum[m][i / 4][i % 4 * 2];
    return (qd_f32x4){sum[0].x, sum[0].y, sum[1].x, sum[1].y};
}

QD_INLINE void set_columns(wave *w, int m, int i, qd_f32x4 values) {
    qd_f32x2 *sum = &w->sum[m][i / 4][i % 4 * 2];
    sum[0] = values.xy;
    sum[1] = values.zw;
}

/** Returns the row of d that this lane has of tile row m, and the first of its columns i. */
QD_INLINE uint32_t row_of(const wave *w, const qk_gemm_tile *tile, int m) {
    return tile->row + w->wave / WN * MT * 32 + m * 32 + qd_lane() % 32;
}
QD_INLINE uint32_t column_of(const wave *w, uint32_t n0, int i) {
    return n0 + w->wave % WN * NT * 32 + i / 4 * 32 + i % 4 * 8 + qd_lane() / 32 * 4;
}

/** Lets bias, activation and gate act on the sums. With a ratio of 2 (gemm_full_gpu.h) piece i then
 *  has two columns of d, from column_of() / 2 on. */
QD_INLINE void finish(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0,
                      uint32_t ratio) {
    if (g->bias) QD_UNROLL
        for (int i = 0; i < NT * 4; i++) {
            const qd_f32x4 bias = qk_gemm_bias4(g, column_of(w, n0, i));
            QD_UNROLL for (int m = 0; m < MT; m++)
                set_columns(w, m, i, columns_of(w, m, i) + bias);
        }
    if (g->activation == QK_GELU_TANH || ratio == 2) QD_UNROLL
        for (int m = 0; m < MT; m++) QD_UNROLL
            for (int i = 0; i < NT * 4; i++)
                set_columns(w, m, i,
                            ratio == 2 ? qk_gemm_silu4(columns_of(w, m, i))
                                       : qk_gemm_gelu4(columns_of(w, m, i)));
    if (g->gate) QD_UNROLL
        for (int m = 0; m < MT; m++) QD_UNROLL
            for (int i = 0; i < NT * 4; i++)
                set_columns(w, m, i,
                            columns_of(w, m, i) * qk_gemm_gate4(g, row_of(w, tile, m),
                                                                column_of(w, n0, i) / ratio,
                                                                g->n / ratio));
}

#ifndef QK_FULL
/** Gives NaNs among the sums no bits that round2 would lose. Few products have any, and to look for
 *  them in pairs takes less than a choice for each element. */
QD_INLINE void settle_nans(wave *w) {
    bool has_nan = false;
    QD_UNROLL for (int i = 0; i < TILES * 8; i++) {
        const qd_f32x2 v = w->sum[i / (8 * NT)][i / 8 % NT][i % 8];
        has_nan |= __builtin_isunordered(v.x, v.y);
    }
    if (qd_ballot(has_nan) == 0)
        return;
    QD_UNROLL for (int i = 0; i < TILES * 8; i++) QD_UNROLL
        for (int e = 0; e < 2; e++) {
            qd_f32x2 *v = &w->sum[i / (8 * NT)][i / 8 % NT][i % 8];
            const uint32_t quiet = (qd_as_u32((*v)[e]) | 0x00400000) & 0xFFFF0000;
            (*v)[e] = (*v)[e] != (*v)[e] ? qd_as_f32(quiet) : (*v)[e];
        }
}

/** Returns the word that rounds to bf16 in its upper half: to nearest, ties to even. */
QD_INLINE uint32_t round_up(float v) {
    return qd_as_u32(v) + 0x7FFF + (qd_as_u32(v) >> 16 & 1);
}
QD_INLINE uint32_t round2(float low, float high) {
    return qd_halves(round_up(low), round_up(high), true);
}
#endif

/** Writes piece i of a row of the wave to its place in LDS, where pieces of one row lie as in d. */
QD_INLINE void put_piece(const qk_gemm_args *g, QD_LDS uint8_t *own, uint32_t row, uint32_t i,
                         uint32_t ratio, qd_f32x4 values) {
    const uint32_t half = qd_lane() / 32;
#ifdef QK_FULL
    QD_LDS uint32_t *to = (QD_LDS uint32_t *)(own + swizzle(row, i / ratio) +
                                              (ratio == 2 ? i % 2 * 8 : 0) + half * 8 / ratio);
    to[0] = qk_gemm_pair16(g->type_d == QK_F16, values.xy);
    if (ratio == 1)
        to[1] = qk_gemm_pair16(g->type_d == QK_F16, values.zw);
#else
    (void)g, (void)ratio;
    *(QD_LDS qd_u32x2 *)(own + swizzle(row, i) + half * 8) =
        (qd_u32x2){round2(values.x, values.y), round2(values.z, values.w)};
#endif
}

/** Stores whole rows of 64 columns through LDS, so that eight lanes write 128 bytes together, or
 *  four lanes 64 bytes. With NT == 1 two neighbouring waves have them, and store half each. */
QD_INLINE void store_rows(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0, uint32_t ratio) {
    constexpr uint32_t sharers = 2 / NT, count = MT * 32, bytes = count * BLOCK_K;
    const uint32_t lane = qd_lane(), wave_m = w->wave / WN * count, lanes = 8 / ratio; // of a row
    const uint32_t in = w->wave % sharers, wave_n = (w->wave % WN - in) * NT * 32;
    QD_LDS uint8_t *own = (w->wave < 2 ? lds0 : lds1) + (NT == 2 ? w->wave % 2 * bytes : 0);
    QD_WAIT(0);
    qd_barrier(); // no wave reads a stage any more
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (uint32_t i = 0; i < NT * 4; i++)
            put_piece(g, own, m * 32 + lane % 32, in * 4 + i, ratio, columns_of(w, m, (int)i));
    if (sharers > 1)
        qd_barrier();
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + n0 / ratio + wave_n / ratio +
                  lane % lanes * 8;
    const uint32_t first = in * (count / sharers) + lane / lanes, piece = lane % lanes;
    constexpr uint32_t turns = MT * 4 / sharers; // of ratio 1
    if (g->grouping != QK_GROUPED_INDEX && tile->zero_end <= tile->end) {
        QD_UNROLL for (uint32_t i = 0; i < turns / ratio; i++) {
            const uint32_t row = first + i * 8 * ratio, d_row = tile->row + wave_m + row;
            if (d_row < tile->end)
                *(qd_u32x4 *)(d + d_row * g->d_row) =
                    *(QD_LDS qd_u32x4 *)(own + swizzle(row, piece));
        }
        return;
    }
    QD_NO_UNROLL for (uint32_t i = 0; i < turns / ratio; i++) {
        const uint32_t row = first + i * 8 * ratio, d_row = tile->row + wave_m + row;
        const qd_u32x4 columns = *(QD_LDS qd_u32x4 *)(own + swizzle(row, piece));
        bool is_zero;
        if (qk_gemm_writes_row(g, tile, d_row, &is_zero))
            *(qd_u32x4 *)(d + d_row * g->d_row) = is_zero ? 0 : columns;
    }
}

/** Returns whether store_rows() can store the tile. */
QD_INLINE bool has_whole_rows(const qk_gemm_args *g, uint32_t n0) {
    const bool is_aligned = (uintptr_t)g->d % 16 == 0 && (g->d_row | g->d_group) % 8 == 0;
#ifdef QK_FULL
    const bool has_halves = g->type_d == QK_BF16 || g->type_d == QK_F16;
#else
    const bool has_halves = g->type_d == QK_BF16;
#endif
    return is_aligned && has_halves && !g->c && n0 + TN <= g->n;
}

#ifndef QK_FULL
/** Stores pieces of four columns as they lie in registers, where lanes are rows of d. */
QD_INLINE void store_pieces(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                            uint32_t n0) {
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int i = 0; i < NT * 4; i++)
            qk_gemm_store4(g, tile, row_of(w, tile, m), column_of(w, n0, i), columns_of(w, m, i));
}
#else
/** Returns the place in LDS of column `column` of d, in row `row` of the 32 WM that take part. */
QD_INLINE QD_LDS float *result_at(uint32_t row, uint32_t column) {
    constexpr uint32_t half = WM * 16;
    const uint32_t in = row % half, piece = column / 4 ^ row % 32;
    return (QD_LDS float *)((row < half ? lds0 : lds1) + in * TN * 4 + piece * 16) + column % 4;
}

/** Stores 32 rows of each wave from LDS, where they lie as f32, m-th of the tile's; 16 lanes take a
 *  row. Codes get their scales here. `has_codes`, like ratio, is a constant: one loop for both
 *  would spill SGPRs. */
QD_INLINE void store_runs(const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                          const qk_gemm_tile *tile, uint32_t n0, uint32_t m, uint32_t ratio,
                          bool has_codes) {
    const uint32_t column = qd_thread() % QD_ROW * QD_RUN, d0 = n0 / ratio;
    const uint32_t end = qd_min(g->n / ratio, d0 + TN / ratio);
    QD_NO_UNROLL for (uint32_t r = qd_thread() / QD_ROW; r < WM * 32; r += THREADS / QD_ROW) {
        const uint32_t row = tile->row + (r / 32 * MT + m) * 32 + r % 32;
        qd_f32x4 low = 0, high = 0;
        if (column < TN / ratio) {
            low = *(QD_LDS qd_f32x4 *)result_at(r, column);
            high = *(QD_LDS qd_f32x4 *)result_at(r, column + 4);
        }
        const qd_f32x8 v = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
        if (has_codes)
            qk_gemm_quantize8(g, scaling, tile, row, d0 + column, end, v);
        else
            qk_gemm_store8(g, tile, row, d0 + column, end, v);
    }
}

/** Stores the tile, 32 rows of each wave at a time, by way of LDS. */
QD_INLINE void store_by_lds(const wave *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                            const qk_gemm_tile *tile, uint32_t n0, uint32_t ratio, bool has_codes) {
    const uint32_t row = w->wave / WN * 32 + qd_lane() % 32;
    QD_UNROLL for (int m = 0; m < MT; m++) {
        QD_WAIT(0);
        qd_barrier(); // no wave reads LDS any more
        QD_UNROLL for (int i = 0; i < NT * 4; i++) {
            const qd_f32x4 values = columns_of(w, m, i);
            QD_LDS float *to = result_at(row, column_of(w, 0, i) / ratio);
            if (ratio == 1)
                *(QD_LDS qd_f32x4 *)to = values;
            else
                *(QD_LDS qd_f32x2 *)to = values.xy;
        }
        qd_barrier();
        store_runs(g, scaling, tile, n0, (uint32_t)m, ratio, has_codes);
    }
}
#endif

#endif
