// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales on CDNA's matrix cores, weights packed: d = c + a b^T.
//
// Needs     v_mfma_f32_32x32x16_fp8_fp8, copies to LDS (gfx942, gfx950); b from qk_gemm_pack; a and
//           b of the kind that the target's cores take
// Tile      TM x TN x 128 with TM = 32 WM MT, TN = 32 WN NT = 128; WM x WN waves, each MT x NT
//           tiles of 32 x 32
// Launch    64 WM WN threads; grid = tiles_m * tiles_n (* groups when masked), order of
//           qk_gemm_order
// LDS       a only: two stages of TM rows of 128 bytes; 16-byte piece c of row r stands at c ^ (r &
//           7), so that the eight lanes of a read's phase touch all banks. b goes from memory to
//           registers.
// Registers 16 MT NT sums and 32 partials in VGPRs, where the scale's FMA reads and writes;
// operands may be AGPRs
// Edges     a lane whose row does not exist copies zeros; the last k % 128 go through registers
//           (tail); d is stored in rows of 64 columns where it is bf16, aligned and whole, else in
//           pieces of four columns or one
// Schedule  K-block kb runs MT NT tiles of 8 MFMAs. Each step is one MFMA, two FMAs that add the
//           tile before to its sum (deferred so that they never wait for their MFMA) and at most
//           one memory operation; a pin ends it. In order: reads of a's last tile; loads of b and
//           scales of kb + 1. After an eighth to a half of the block the waves meet. Then copies of
//           kb + 2 overwrite the stage that all have read, and a's tiles of kb + 1 replace those
//           just used.
// QK_FULL   all forms of gemm_full_gpu.h; what is not whole rows of 16 bits leaves through LDS as
//           f32, 64 rows at a time: stores from registers, unrolled, took clang eight times as long
// QK_REPAIR a is e4m3fn, and the cores take FNUZ: 16 bytes a lane go through registers, where -0
//           and NaN become FNUZ's, and the scale doubles. Without QK_REPAIR a bypasses registers.
// Source    manual "CDNA3", matrix chapter, for the lane layouts; checked by the simulator's MFMA
//           tests
#include "copy.h"
#include "fp8.h"
#include "gemm_full_gpu.h"
#include "mma.h"

#ifndef QK_MT
#define QK_MT 4 // tiles of 32 rows a wave: 4 makes 256 x 128, 2 makes 128 x 128
#endif
enum { WM = 2, WN = 2, MT = QK_MT, NT = 2, WAVES = WM * WN, THREADS = 64 * WAVES };
enum { TM = 32 * WM * MT, TN = 32 * WN * NT, BLOCK_K = 128 };
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
    LOADS = 4 * NT + MT + 1, // memory reads between the copies and the meeting
    LAND = 5, // the step from which data fetched through registers are written to LDS
};
#ifdef QK_REPAIR
static_assert(LAND + 2 * FETCHES <= MEET);
#endif
static_assert(TILES % 2 == 0 && TN == 128 && WAVES == 4 && FETCHES <= STEPS - MEET && MT >= 2);

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds0[TM * BLOCK_K]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds1[TM * BLOCK_K]
    __attribute__((aligned(128)));

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    __amdgpu_buffer_rsrc_t a, b, scale_a, scale_b;
    uint32_t wave, rows;                         // rows: the tile's rows that exist
    uint32_t a_offset[FETCHES];                  // this lane's, for each fetch of a
    uint32_t b_offset, scale_offset[MT];         // this lane's
    uint32_t read_offset[4];                     // this lane's 16 bytes j of its row, in a stage
    uint32_t a_at, b_at, scale_a_at, scale_b_at; // where the next block begins in each, bytes
    uint32_t scale_a_step, strip_bytes;
    qd_u32x4 a_tile[MT][4], b_tile[2][NT][4];
    float scale_a_of[2][MT], scale_b_of[2];
    qd_f32x16 part[2];
    qd_f32x2 sum[MT][NT]
                [8]; // in pairs: as one f32x16 with part, clang moves them to AGPRs and back
    float scale;     // of the tile before this one
#ifdef QK_REPAIR
    qd_u32x4 fetched[FETCHES];
#endif
} wave;

/** Returns where 16-byte piece `piece` of a row lies in a stage. */
QD_INLINE uint32_t swizzle(uint32_t row, uint32_t piece) {
    return row * BLOCK_K + (piece ^ (row & 7)) * 16;
}

// ---- memory operations, one a step

QD_INLINE void read_a(wave *w, QD_LDS uint8_t *stage, int m, int j) {
    w->a_tile[m][j] = *(QD_LDS qd_u32x4 *)(stage + w->read_offset[j] + m * 32 * BLOCK_K);
}

QD_INLINE void load_b(wave *w, int p, int i) {
    const uint32_t strip = i / 4, j = i % 4;
    w->b_tile[p][strip][j] =
        qd_buffer_load4(w->b, w->b_offset + j * 1024, w->b_at + strip * w->strip_bytes);
}

QD_INLINE void load_scale(wave *w, int p, int i) {
    if (i < MT)
        w->scale_a_of[p][i] =
            qd_as_f32(qd_buffer_load(w->scale_a, w->scale_offset[i], w->scale_a_at));
    else
        w->scale_b_of[p] = qd_as_f32(qd_buffer_load(w->scale_b, 0, w->scale_b_at));
}

#ifdef QK_REPAIR
QD_INLINE qd_u32x4 repair(qd_u32x4 codes) {
    QD_UNROLL for (int i = 0; i < 4; i++)
        codes[i] = qd_fp8_fnuz_from_fn(codes[i]);
    return codes;
}
/** Starts loading 1 KiB of a, eight rows of this wave, into registers. */
QD_INLINE void fetch_step(wave *w, QD_LDS uint8_t *, int i) {
    w->fetched[i] = qd_buffer_load4(w->a, w->a_offset[i], w->a_at);
}
/** Writes what fetch_step loaded into the stage. */
QD_INLINE void land_step(const wave *w, QD_LDS uint8_t *stage, int i) {
    const uint32_t row = w->wave * WAVE_ROWS + i * 8 + qd_lane() / 8;
    *(QD_LDS qd_u32x4 *)(stage + swizzle(row, qd_lane() % 8)) = repair(w->fetched[i]);
}
#else
QD_INLINE qd_u32x4 repair(qd_u32x4 codes) {
    return codes;
}
/** Starts copying 256 bytes of a, two rows of this wave, to the stage. */
QD_INLINE void fetch_step(wave *w, QD_LDS uint8_t *stage, int i) {
    qd_copy_to_lds(stage + w->wave * WAVE_ROWS * BLOCK_K + i * 256, w->a, w->a_offset[i], w->a_at);
}
QD_INLINE void land_step(const wave *, QD_LDS uint8_t *, int) {} // copies land by themselves
#endif

/** Does the memory operations of step s of a block whose a lies in `now`; `next` gets the next
 *  block's a. In the table, row 0 is the steps before the waves meet, and p ^ 1 is the register set
 *  of the next block:
 *
 *    steps 0 .. 3                   read the last tile of this block's a
 *    row 0, odd steps               load b of the next block
 *    row 0, even steps from 4 on    load the MT + 1 scales of the next block
 *    row 0, steps LAND, LAND + 2 …  put into `next` what was fetched through registers
 *    row > 0, FETCHES steps         fetch a of the block after the next, over this block's a
 *    row > 0, steps 1 .. 4          read tile row - 1 of the next block's a */
QD_INLINE void memory_step(wave *w, int p, QD_LDS uint8_t *now, QD_LDS uint8_t *next, int s) {
    const int row = s / MEET, in = s % MEET;
    if (s < 4)
        read_a(w, now, MT - 1, s);
    if (row == 0 && in % 2 == 1)
        load_b(w, p ^ 1, in / 2);
    if (row == 0 && in % 2 == 0 && in >= 4 && in / 2 - 2 <= MT)
        load_scale(w, p ^ 1, in / 2 - 2);
    if (row == 0 && in >= LAND && (in - LAND) % 2 == 0 && (in - LAND) / 2 < FETCHES)
        land_step(w, next, (in - LAND) / 2);
    if (row > 0 && s - MEET < FETCHES)
        fetch_step(w, now, s - MEET);
    if (row > 0 && in >= 1 && in <= 4)
        read_a(w, next, row - 1, in - 1);
}

// ---- arithmetic

/** Runs MFMA q of a tile's eight. The result has weights as rows and activations as columns. */
QD_INLINE qd_f32x16 multiply(const wave *w, int p, int m, int n, int q, qd_f32x16 part) {
    return qd_mma32_fp8(w->b_tile[p][n][q / 2], w->a_tile[m][q / 2], q % 2, part);
}

/** Adds elements 2 e and 2 e + 1 of a tile's partial, scaled, to the tile's sum. The two FMAs are
 *  scalar because v_fmac_f32, unlike the packed FMA, runs beside an MFMA. */
QD_INLINE void promote(wave *w, int tile, int e, qd_f32x16 part, float scale) {
    qd_f32x2 *sum = &w->sum[tile / NT][tile % NT][e];
    sum->x = __builtin_fmaf(part[2 * e], scale, sum->x);
    sum->y = __builtin_fmaf(part[2 * e + 1], scale, sum->y);
}

QD_INLINE float scale_of(const wave *w, int p, int m) {
#ifdef QK_REPAIR
    return w->scale_a_of[p][m] * (2 * w->scale_b_of[p]); // read as FNUZ, e4m3fn's bits mean half
#else
    return w->scale_a_of[p][m] * w->scale_b_of[p];
#endif
}

/** Lets the waves meet: then the copies of the next block have landed, and all waves have read this
 *  block's stage. */
QD_INLINE void meet(void) {
    QD_WAIT(LOADS);
    qd_barrier();
    qd_pin();
}

/** Runs one K-block of 128 with operands p. The steps stand in the order in which they run. */
QD_INLINE void run_block(wave *w, int p, QD_LDS uint8_t *now, QD_LDS uint8_t *next) {
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        const int before = (tile + TILES - 1) % TILES, m = tile / NT;
        if (tile == NT)
            meet();
        qd_f32x16 part = 0, last = w->part[(tile + 1) % 2];
        QD_UNROLL for (int q = 0; q < 8; q++) {
            part = multiply(w, p, m, tile % NT, q, part);
            memory_step(w, p, now, next, tile * 8 + q);
            if (q > 0)
                promote(w, before, q - 1, last, w->scale);
            if (q == 7) {
                promote(w, before, 7, last, w->scale);
                w->scale = scale_of(w, p, m);
            }
            qd_pin();
        }
        w->part[tile % 2] = part;
    }
}

/** Sets where loads of block `load` and copies of block `copy` begin. Past the end they repeat the
 *  last of `blocks`, which nobody reads, so as not to leave the matrix. */
QD_INLINE void aim(wave *w, uint32_t load, uint32_t copy, uint32_t blocks) {
    load = qd_min(load, blocks - 1);
    w->a_at = qd_min(copy, blocks - 1) * BLOCK_K;
    w->b_at = load * QK_PACK_BLOCK;
    w->scale_a_at = load * w->scale_a_step;
    w->scale_b_at = load * sizeof(float);
}

/** Fills the pipeline with block 0 and, into the second stage, block 1. Loads stand in the loop's
 *  order, so that the compiler's wait counts agree where prologue and loop join. */
QD_INLINE void prologue(wave *w, uint32_t blocks) {
    aim(w, 0, 0, blocks);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        fetch_step(w, lds0, i);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        land_step(w, lds0, i);
    qd_pin();
    QD_UNROLL for (int i = 0; i < 4 * NT; i++)
        load_b(w, 0, i);
    QD_UNROLL for (int i = 0; i <= MT; i++)
        load_scale(w, 0, i);
    qd_pin();
    meet();
    aim(w, 0, 1, blocks);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        fetch_step(w, lds1, i);
    qd_pin();
    QD_UNROLL for (int m = 0; m < MT - 1; m++) QD_UNROLL
        for (int j = 0; j < 4; j++)
            read_a(w, lds0, m, j);
    qd_pin();
}

/** Runs an even number of whole K-blocks, two a turn, because operands p and stages alternate. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    w->part[1] = 0;
    w->scale = 0;
    prologue(w, blocks);
    for (uint32_t kb = 0; kb < blocks; kb += 2) {
        aim(w, kb + 1, kb + 2, blocks);
        run_block(w, 0, lds0, lds1);
        aim(w, kb + 2, kb + 3, blocks);
        run_block(w, 1, lds1, lds0);
    }
    QD_UNROLL for (int e = 0; e < 8; e++)
        promote(w, TILES - 1, e, w->part[1], w->scale);
    QD_WAIT(0); // the LDS must not change hands while copies are under way
}

/** Runs one K-block, whole or not, with a through registers. Nothing past a row's end is read or
 *  multiplied. */
QD_INLINE void run_last(wave *w, const qk_gemm_args *g, const uint8_t *a, uint32_t block) {
    qd_barrier();
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < TM * 8; i += THREADS) {
        qd_u32x4 codes = 0;
        if (i / 8 < w->rows)
            codes = qk_gemm_load_piece(a + i / 8 * g->a_row, block * BLOCK_K + i % 8 * 16, g->k);
        *(QD_LDS qd_u32x4 *)(lds0 + swizzle(i / 8, i % 8)) = repair(codes);
    }
    aim(w, block, block, block + 1);
    QD_UNROLL for (int i = 0; i < 4 * NT; i++)
        load_b(w, 0, i);
    QD_UNROLL for (int i = 0; i <= MT; i++)
        load_scale(w, 0, i);
    QD_WAIT(0);
    qd_barrier();
    QD_UNROLL for (int tile = 0; tile < TILES; tile++) {
        if (tile % NT == 0) QD_UNROLL
            for (int j = 0; j < 4; j++)
                read_a(w, lds0, tile / NT, j);
        qd_f32x16 part = 0;
        QD_UNROLL for (int q = 0; q < 8; q++)
            part = multiply(w, 0, tile / NT, tile % NT, q, part);
        QD_UNROLL for (int e = 0; e < 8; e++)
            promote(w, tile, e, part, scale_of(w, 0, tile / NT));
    }
}

// ---- setting up and storing

/** Returns this lane's offset of copy i: that of its row and of the piece that belongs at the
 *  lane's place in LDS. */
QD_INLINE uint32_t a_offset(const wave *w, const qk_gemm_args *g, uint32_t i) {
#ifdef QK_REPAIR
    uint32_t row = w->wave * WAVE_ROWS + i * 8 + qd_lane() / 8, k = qd_lane() % 8 * 16;
#else
    const uint32_t row = w->wave * WAVE_ROWS + i * 2 + qd_lane() / 32;
    const uint32_t k = (qd_lane() / 4 % 8 ^ (row & 7)) * 16 + qd_lane() % 4 * 4;
#endif
    const uint32_t offset = qd_by_all_lanes(row * (uint32_t)g->a_row + k);
    return row < w->rows ? offset : QD_OUTSIDE;
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, const uint8_t *a,
                      uint32_t n0) {
    const uint32_t lane = qd_lane(), num_kb = qd_div_up(g->k, BLOCK_K);
    const uint32_t wave_m = w->wave / WN * MT * 32, wave_n = w->wave % WN * NT * 32;
    const uint8_t *b = (const uint8_t *)g->b + tile->group * g->b_group;
    const float *scale_a = g->scale_a + tile->group * g->scale_a_group + tile->row * g->scale_a_row;
    const float *scale_b = g->scale_b + tile->group * g->scale_b_group + n0 / 128 * g->scale_b_nb;
    w->a = qd_buffer(a, (w->rows - 1) * (uint32_t)g->a_row + g->k);
    w->b = qd_buffer(b + (int64_t)(n0 + wave_n) * g->packed_k, NT * 32 * g->packed_k);
    w->scale_a = qd_buffer(scale_a, ((w->rows - 1) * (uint32_t)g->scale_a_row +
                                     (num_kb - 1) * (uint32_t)g->scale_a_kb + 1) *
                                        (uint32_t)sizeof(float));
    w->scale_b = qd_buffer(scale_b, num_kb * (uint32_t)sizeof(float));
    w->a_at = w->b_at = w->scale_a_at = w->scale_b_at = 0;
    w->scale_a_step = (uint32_t)(g->scale_a_kb * sizeof(float));
    w->strip_bytes = g->packed_k * QK_PACK_ROWS;
    w->b_offset = lane * 16;
    QD_UNROLL for (int i = 0; i < MT; i++) {
        const uint32_t row = wave_m + i * 32 + lane % 32;
        w->scale_offset[i] =
            row < w->rows ? row * (uint32_t)(g->scale_a_row * sizeof(float)) : QD_OUTSIDE;
    }
    QD_UNROLL for (uint32_t j = 0; j < 4; j++)
        w->read_offset[j] = swizzle(wave_m + lane % 32, 2 * j + lane / 32);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        w->a_offset[i] = a_offset(w, g, i);
}

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
    *(QD_LDS qd_bf16x4 *)(own + swizzle(row, i) + half * 8) =
        __builtin_convertvector(values, qd_bf16x4);
#endif
}

/** Stores whole rows of the wave's columns through LDS, so that eight lanes write 128 bytes
 *  together, or four lanes 64 bytes. */
QD_INLINE void store_rows(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                          uint32_t n0, uint32_t ratio) {
    constexpr uint32_t bytes =
        MT * 32 * BLOCK_K; // a wave's share of the stages: 64 columns of bf16 a row
    const uint32_t lane = qd_lane(), wave_m = w->wave / WN * MT * 32,
                   wave_n = w->wave % WN * NT * 32, lanes = 8 / ratio; // of a row
    QD_LDS uint8_t *own = (w->wave < 2 ? lds0 : lds1) + w->wave % 2 * bytes;
    QD_WAIT(0);
    qd_barrier(); // no wave reads a stage any more
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int i = 0; i < NT * 4; i++)
            put_piece(g, own, m * 32 + lane % 32, i, ratio, columns_of(w, m, i));
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + n0 / ratio + wave_n / ratio +
                  lane % lanes * 8;
    QD_UNROLL for (uint32_t i = 0; i < MT * 4 / ratio; i++) {
        const uint32_t row = i * 8 * ratio + lane / lanes;
        qd_u32x4 columns = *(QD_LDS qd_u32x4 *)(own + swizzle(row, lane % lanes));
        const uint32_t d_row = tile->row + wave_m + row;
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
/** Returns the place in LDS of column `column` of d, in row `row` of the 64 that take part. */
QD_INLINE QD_LDS float *result_at(uint32_t row, uint32_t column) {
    const uint32_t in = row % 32, piece = column / 4 ^ in;
    return (QD_LDS float *)((row < 32 ? lds0 : lds1) + in * TN * 4 + piece * 16) + column % 4;
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

QD_WAVES_PER_EU(MT == 4 ? 1 : 2) QD_KERNEL(THREADS) qk_gemm_fp8(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    qk_gemm_order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, TM, &tile))
        return;
    wave w;
    w.wave = qd_wave();
    w.rows = tile.row < tile.end ? qd_min(tile.end - tile.row, TM) : 0;
    QD_UNROLL for (int m = 0; m < MT; m++) QD_UNROLL
        for (int n = 0; n < NT; n++) QD_UNROLL
            for (int e = 0; e < 8; e++)
                w.sum[m][n][e] = 0;
    if (w.rows > 0 && g.k > 0) {
        const uint8_t *a = (const uint8_t *)g.a + tile.group * g.a_group + tile.row * g.a_row;
        set_up(&w, &g, &tile, a, tile_n * TN);
        const uint32_t pairs = g.k / (2 * BLOCK_K);
        if (pairs > 0)
            run_blocks(&w, 2 * pairs);
        for (uint32_t block = 2 * pairs; block * BLOCK_K < g.k; block++)
            run_last(&w, &g, a, block);
    }
#ifdef QK_FULL
    const qk_gemm_full_args full = qk_gemm_reread(&f, &tile);
    QK_GEMM_EACH_RATIO(&full.g, {
        finish(&w, &full.g, &tile, tile_n * TN, ratio);
        if (has_whole_rows(&full.g, tile_n * TN))
            store_rows(&w, &full.g, &tile, tile_n * TN, ratio);
        else if (qk_gemm_has_codes(&full.g))
            store_by_lds(&w, &full.g, &full.scaling, &tile, tile_n * TN, ratio, true);
        else
            store_by_lds(&w, &full.g, &full.scaling, &tile, tile_n * TN, ratio, false);
    })
#else
    const qk_gemm_args again = *(const qk_gemm_args *)qd_reread(&g); // not kept during the loop
    if (again.has_epilogue)
        finish(&w, &again, &tile, tile_n * TN, 1);
    if (has_whole_rows(&again, tile_n * TN))
        store_rows(&w, &again, &tile, tile_n * TN, 1);
    else
        store_pieces(&w, &again, &tile, tile_n * TN);
#endif
}
