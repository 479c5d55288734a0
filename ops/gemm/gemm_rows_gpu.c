// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales for few rows, weights packed or as checkpoints hold them: streams the
// weights, at the speed of memory (gfx942).
//
// Needs     v_mfma_f32_16x16x32_fp8_fp8; b from qk_gemm_pack; a, and with QK_FLAT b, e4m3fn or
//           e4m3fnuz
// Tile      R x 16 WAVES x 128 with R = 16 RT; a wave has 16 columns of all rows, so that each byte
//           of b goes to one wave, straight into its registers
// QK_FLAT   b as checkpoints hold it: a wave loads whole lines of its 16 columns, and turns them in
//           its own part of LDS
// Sum       K-block after K-block; the products of a K-block in the order of two 32 x 32 x 16
//           (qd_mma16_k_fp8): the same bits as in the family's other kernels
// Launch    64 WAVES threads; grid = tiles_m * tiles_n (* groups when masked), order of place_of
// LDS       a: two stages of GROUP K-blocks of R rows. Rows are 136 bytes apart, so that 16 lanes
//           that read eight bytes of a row each touch all banks. scale_a: of two turns of AHEAD
//           K-blocks
// Registers AHEAD K-blocks of a and b on their way, 4 FETCHES + 8 VGPRs each
// Edges     rows that do not exist read as zero; the last k % 128 by checked loads of a
// Schedule  the next group of a goes from registers to LDS while this one is multiplied; then the
//           waves meet. Each K-block's reads, loads and the promotion of the block before run
//           under its products. A last turn that is not whole ends with the group that has the
//           last K-block, which runs on zeros past it: loads past the last K-block touch no
//           memory. Loads take whole lines: eight lanes have a row of a, and a turn's scales of a
//           are loaded once, along k or m, whichever way they lie. A load of 16 bytes of each of
//           32 rows, or of a scale from each of 32 lines, would keep the vector cache busy four
//           and sixteen times as long.
#include "arguments.h"
#include "copy.h"
#include "fp8.h"
#include "gemm_columns_gpu.h"
#include "gemm_full_gpu.h"
#include "gemm_words_gpu.h"
#include "mma.h"

#ifndef QK_RT
#define QK_RT 2    // tiles of 16 rows
#define QK_WAVES 4 // of 16 columns
#define QK_GROUP 2 // K-blocks between two meetings
#endif
enum { RT = QK_RT, WAVES = QK_WAVES, GROUP = QK_GROUP, THREADS = 64 * WAVES };
enum {
    BLOCK_K = 128,
    AHEAD = 8, // K-blocks of a turn, whose loads are under way
    R = 16 * RT,
    TN = 16 * WAVES,
    GROUPS = AHEAD / GROUP,
    PITCH = BLOCK_K + 8,      // bytes from row to row in LDS
    STAGE = R * PITCH,        // of a K-block of a
    FETCHES = 2 * RT / WAVES, // a lane's pieces of a K-block of a, and its scales of a turn
};
static_assert(FETCHES * WAVES == 2 * RT && TN % QK_PACK_ROWS == 0 && GROUPS % 2 == 0);

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_a[2][GROUP * STAGE]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS float lds_scale[2][AHEAD][R];
#ifdef QK_FLAT
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_b[WAVES][16 * PITCH]
    __attribute__((aligned(128)));
#endif

typedef qd_u32x4 unaligned4 __attribute__((aligned(8))); // rows in LDS begin at multiples of 8

/** This lane's operands of a K-block: pieces of a, on their way to LDS; 8 bytes of b for each 32 of
 *  k, or with QK_FLAT pieces of b, which are to be turned in LDS. */
typedef struct block {
    qd_u32x4 a[FETCHES];
#ifdef QK_FLAT
    qd_u32x4 b[2];
#else
    qd_u32x2 b[4];
#endif
} block;

/** What a K-block's products read. */
typedef struct operands {
    qd_mma16_codes a[4][RT], b[4];
    float scale[RT];
} operands;

/** A wave's registers. */
typedef struct wave {
    __amdgpu_buffer_rsrc_t a, b, a_scales, b_scales;
    uint32_t blocks, num_kb;                                // whole K-blocks; all
    uint32_t a_offset[FETCHES];                             // this lane's
    uint32_t scale_offset[FETCHES], scale_kb[FETCHES];      // this lane's; its K-block of a turn
    uint32_t scale_step;                                    // bytes from K-block to K-block
    uint32_t write_at[FETCHES], read_at, scale_at[FETCHES]; // this lane's, in LDS
    block x[AHEAD];
    float next_a[FETCHES], next_b, scale_b; // of a turn; scale_b: lane i has that of its K-block i
    uint32_t half;                          // of lds_scale: this turn's
    qd_f32x4 sum[RT];
    bool is_fn; // a is to be repaired for FNUZ cores
#ifdef QK_FLAT
    bool is_b_fn;
    uint32_t b_offset[2], b_write_at; // this lane's; its place in LDS
#else
    uint32_t b_offset; // this lane's
#endif
} wave;

// ---- loads

/** Loads a of K-block kb, if it is whole. */
QD_INLINE void load_a(const wave *w, block *x, uint32_t kb) {
    const uint32_t outside = kb < w->blocks ? 0 : QD_OUTSIDE;
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        x->a[i] = qd_buffer_load4(w->a, w->a_offset[i] | outside, kb * BLOCK_K);
}

/** The same of b. */
QD_INLINE void load_b(const wave *w, block *x, uint32_t kb) {
    const uint32_t outside = kb < w->blocks ? 0 : QD_OUTSIDE;
#ifdef QK_FLAT
    QD_UNROLL for (uint32_t i = 0; i < 2; i++)
        x->b[i] = qd_buffer_stream4(w->b, w->b_offset[i] | outside, kb * BLOCK_K);
#else
    QD_UNROLL for (uint32_t q = 0; q < 4; q++)
        x->b[q] = qd_buffer_stream2(w->b, (w->b_offset | outside) + q * 1024, kb * QK_PACK_BLOCK);
#endif
}

/** Loads blocks of groups to come, i-th of theirs: a of one whose a is in LDS, b of one that has
 *  been multiplied. The pin keeps this many loads under way. */
QD_INLINE void load_block(wave *w, uint32_t first, int g, int i) {
    load_a(w, &w->x[(g + 1) % GROUPS * GROUP + i], first + (g + 1) * GROUP + AHEAD + i);
    load_b(w, &w->x[g * GROUP + i], first + g * GROUP + AHEAD + i);
    qd_pin();
}

/** Loads the scales of the AHEAD K-blocks from `first` on, of which those from `end` on get 0 and
 *  -0. */
QD_INLINE void load_scales(wave *w, uint32_t first, uint32_t end) {
    const uint32_t left = end - qd_min(first, end), lane = qd_lane();
    first = qd_min(first, end - 1);
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        w->next_a[i] = qd_as_f32(
            qd_buffer_load(w->a_scales, w->scale_kb[i] < left ? w->scale_offset[i] : QD_OUTSIDE,
                           first * w->scale_step));
    const float b = qd_as_f32(qd_buffer_load(w->b_scales, lane < left ? lane * 4 : QD_OUTSIDE,
                                             first * (uint32_t)sizeof(float)));
    w->next_b = lane < left ? b : -0.0f;
    qd_pin();
}

// ---- LDS

/** Puts `count` K-blocks of a where all waves read them. The pin keeps the repair of e4m3fn a
 *  branch: from a choice the compiler would make vector instructions that always run. */
QD_INLINE void write_a(const wave *w, block *x, int count, QD_LDS uint8_t *stage) {
    if (w->is_fn) {
        qd_pin();
        QD_UNROLL for (int b = 0; b < count; b++) QD_UNROLL
            for (int i = 0; i < 4 * FETCHES; i++)
                x[b].a[i / 4][i % 4] = qd_fp8_fnuz_from_fn(x[b].a[i / 4][i % 4]);
    }
    QD_UNROLL for (int b = 0; b < count; b++) QD_UNROLL
        for (int i = 0; i < FETCHES; i++)
            *(QD_LDS unaligned4 *)(stage + b * STAGE + w->write_at[i]) = x[b].a[i];
}

/** Puts what load_scales loaded where the turn's waves read it, and makes this turn current. */
QD_INLINE void write_scales(wave *w) {
    w->half ^= 1;
    QD_UNROLL for (int i = 0; i < FETCHES; i++)
        (&lds_scale[w->half][0][0])[w->scale_at[i]] = w->next_a[i];
    w->scale_b = w->is_fn ? 2 * w->next_b : w->next_b;
#ifdef QK_FLAT
    w->scale_b = w->is_b_fn ? 2 * w->scale_b : w->scale_b;
#endif
}

// ---- arithmetic

/** Takes the operands of b, which QK_FLAT turns in the wave's own part of LDS. */
QD_INLINE void take_b(const wave *w, block *x, operands *to) {
#ifdef QK_FLAT
    QD_LDS uint8_t *own = lds_b[qd_wave()];
    if (w->is_b_fn) {
        qd_pin(); // as in write_a
        QD_UNROLL for (int i = 0; i < 8; i++)
            x->b[i / 4][i % 4] = qd_fp8_fnuz_from_fn(x->b[i / 4][i % 4]);
    }
    QD_UNROLL for (int i = 0; i < 2; i++)
        *(QD_LDS unaligned4 *)(own + w->b_write_at + i * 8 * PITCH) = x->b[i];
    asm volatile("" ::: "memory"); // a wave's accesses of LDS keep their order
    QD_UNROLL for (int q = 0; q < 4; q++)
        to->b[q] = *(const QD_LDS qd_mma16_codes *)(own + w->read_at + q * 32);
#else
    (void)w;
    QD_UNROLL for (int q = 0; q < 4; q++)
        to->b[q] = __builtin_bit_cast(qd_mma16_codes, x->b[q]);
#endif
}

/** Reads K-block i of the turn whose scales lie in a half of lds_scale; its a lies in `stage`, and
 *  `from` has its b. */
QD_INLINE operands read_block(const wave *w, const QD_LDS uint8_t *stage, uint32_t half, uint32_t i,
                              block *from) {
    operands x;
    take_b(w, from, &x);
    QD_UNROLL for (int q = 0; q < 4; q++) QD_UNROLL
        for (int t = 0; t < RT; t++)
            x.a[q][t] =
                *(const QD_LDS qd_mma16_codes *)(stage + w->read_at + q * 32 + t * 16 * PITCH);
    QD_UNROLL for (int t = 0; t < RT; t++)
        x.scale[t] = lds_scale[half][i][t * 16 + qd_lane() % 16];
    return x;
}

/** A K-block's sums, and what scales them. */
typedef struct product {
    qd_f32x4 part[RT];
    float scale[RT];
} product;

/** Multiplies K-block i of the turn. A block past the end has zeros, and scales whose product is
 *  -0: that leaves every sum's bits. */
QD_INLINE product multiply(const operands *y, float scale_b, uint32_t i) {
    const float of_b = qd_as_f32(qd_read_lane(qd_as_u32(scale_b), i));
    product p = {};
    QD_UNROLL for (int q = 0; q < 4; q++) QD_UNROLL
        for (int t = 0; t < RT; t++)
            p.part[t] = qd_mma16_fp8(y->b[q], y->a[q][t], p.part[t]);
    QD_UNROLL for (int t = 0; t < RT; t++)
        p.scale[t] = y->scale[t] * of_b;
    return p;
}

QD_INLINE void promote(wave *w, const product *p) {
    QD_UNROLL for (int t = 0; t < RT; t++) QD_UNROLL
        for (int e = 0; e < 4; e++)
            w->sum[t][e] = __builtin_fmaf(p->part[t][e], p->scale[t], w->sum[t][e]);
}

/** Multiplies group g of the turn that begins at `first`. Each block's reads, loads and the
 *  promotion of the block before run under products. */
QD_INLINE void multiply_group(wave *w, uint32_t first, int g, bool has_next, uint32_t half,
                              float scale_b) {
    const QD_LDS uint8_t *stage = lds_a[g % 2];
    operands y[GROUP];
    product p[GROUP];
    y[0] = read_block(w, stage, half, g * GROUP, &w->x[g * GROUP]);
    QD_UNROLL for (int i = 0; i < GROUP; i++) {
        if (i + 1 < GROUP)
            y[i + 1] = read_block(w, stage + (i + 1) * STAGE, half, g * GROUP + i + 1,
                                  &w->x[g * GROUP + i + 1]);
        qd_pin();
        p[i] = multiply(&y[i], scale_b, g * GROUP + i);
        if (i > 0)
            promote(w, &p[i - 1]);
        if (has_next)
            load_block(w, first, g, i);
    }
    promote(w, &p[GROUP - 1]);
}

/** Runs group g of a turn that another one follows, or of the last one. */
QD_INLINE void step(wave *w, uint32_t first, int g, bool has_next) {
    const uint32_t half = w->half;
    const float scale_b = w->scale_b;
    if (has_next || g + 1 < GROUPS)
        write_a(w, w->x + (g + 1) % GROUPS * GROUP, GROUP, lds_a[(g + 1) % 2]);
    if (has_next && g == GROUPS - 1)
        write_scales(w);
    multiply_group(w, first, g, has_next, half, scale_b);
    qd_barrier();
}

/** Loads the first blocks, about in the loop's order, so that wait counts agree where both join. */
QD_INLINE void prologue(wave *w) {
    QD_UNROLL for (int i = 0; i < GROUP; i++)
        load_a(w, &w->x[i], i);
    qd_pin();
    QD_UNROLL for (int i = 0; i < AHEAD; i++) {
        if (i + GROUP < AHEAD)
            load_a(w, &w->x[i + GROUP], i + GROUP);
        load_b(w, &w->x[i], i);
        qd_pin();
    }
    write_scales(w);
    write_a(w, w->x, GROUP, lds_a[0]);
    QD_UNROLL for (int i = 0; i < GROUP; i++)
        load_a(w, &w->x[i], AHEAD + i);
    qd_pin();
    qd_barrier();
}

QD_INLINE void run_blocks(wave *w) {
    uint32_t first = 0;
    load_scales(w, 0, w->blocks);
    prologue(w);
    for (; first + AHEAD <= w->blocks; first += AHEAD) {
        load_scales(w, first + AHEAD, w->blocks);
        QD_UNROLL for (int g = 0; g < GROUPS; g++)
            step(w, first, g, true);
    }
    QD_UNROLL for (uint32_t g = 0; g < GROUPS; g++)
        if (first + g * GROUP < w->blocks)
            step(w, first, (int)g, false);
}

/** Loads b of the last, broken K-block. */
QD_INLINE void load_last_b(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                           uint32_t n0, block *x) {
#ifdef QK_FLAT
    const uint8_t *b = (const uint8_t *)g->b + tile->group * g->b_group;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
        const uint32_t lane = qd_lane(), row = n0 + qd_wave() * 16 + i * 8 + lane / 8;
        x->b[i] = 0;
        if (row < g->n)
            x->b[i] =
                qk_gemm_load_piece(b + row * g->b_n, w->blocks * BLOCK_K + lane % 8 * 16, g->k);
    }
#else
    (void)g, (void)tile, (void)n0;
    QD_UNROLL for (uint32_t q = 0; q < 4; q++)
        x->b[q] = qd_buffer_stream2(w->b, w->b_offset + q * 1024, w->blocks * QK_PACK_BLOCK);
#endif
}

/** Runs the last, broken K-block. Nothing past a row's end of a is read or multiplied. */
QD_INLINE void run_tail(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t rows,
                        uint32_t n0) {
    const uint8_t *a = (const uint8_t *)g->a + tile->group * g->a_group + tile->row * g->a_row;
    block x;
    QD_UNROLL for (int i = 0; i < FETCHES; i++) {
        const uint32_t at = i * THREADS + qd_thread(), row = at / 8;
        x.a[i] = 0;
        if (row < rows)
            x.a[i] =
                qk_gemm_load_piece(a + row * g->a_row, w->blocks * BLOCK_K + at % 8 * 16, g->k);
    }
    load_last_b(w, g, tile, n0, &x);
    const uint32_t i = w->blocks % AHEAD;
    load_scales(w, w->blocks - i, w->num_kb); // the loop's are of whole K-blocks
    write_scales(w);
    write_a(w, &x, 1, lds_a[0]);
    qd_barrier();
    const operands y = read_block(w, lds_a[0], w->half, i, &x);
    const product p = multiply(&y, w->scale_b, i);
    promote(w, &p);
}

// ---- setting up and storing

/** Sets this lane's places of one of its pieces of a and of one of its scales. Where scales lie
 *  along k, neighbouring lanes have neighbouring K-blocks of a row, else neighbouring rows. */
QD_INLINE void set_fetch(wave *w, const qk_gemm_args *g, uint32_t rows, uint32_t i) {
    const uint32_t at = i * THREADS + qd_thread(), row = at / 8, piece = at % 8;
    w->a_offset[i] = row < rows ? row * (uint32_t)g->a_row + piece * 16 : QD_OUTSIDE;
    w->write_at[i] = row * PITCH + piece * 16;
    const bool is_along_k = g->scale_a_kb == 1;
    const uint32_t scale_row = is_along_k ? at / AHEAD : at % R;
    w->scale_kb[i] = is_along_k ? at % AHEAD : at / R;
    w->scale_at[i] = w->scale_kb[i] * R + scale_row;
    w->scale_offset[i] =
        scale_row < rows
            ? (scale_row * (uint32_t)g->scale_a_row + w->scale_kb[i] * (uint32_t)g->scale_a_kb) *
                  (uint32_t)sizeof(float)
            : QD_OUTSIDE;
}

/** Where a tile's operands begin. */
typedef struct operand_places {
    const uint8_t *a, *b; // b: the group's
    const float *scale_a, *scale_b;
} operand_places;

/** Returns the places of a tile's rows of a, and of its group's b. The pin keeps the groups' part a
 *  branch. */
QD_INLINE operand_places places_of(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    operand_places at = {
        (const uint8_t *)g->a + tile->row * g->a_row,
        (const uint8_t *)g->b,
        g->scale_a + tile->row * g->scale_a_row,
        g->scale_b + n0 / 128 * g->scale_b_nb,
    };
    if (tile->group > 0) {
        qd_pin();
        at.a += tile->group * g->a_group;
        at.b += tile->group * g->b_group;
        at.scale_a += tile->group * g->scale_a_group;
        at.scale_b += tile->group * g->scale_b_group;
    }
    return at;
}

/** Sets where the wave's columns of the group's b lie. */
QD_INLINE void set_up_b(wave *w, const qk_gemm_args *g, const uint8_t *b, uint32_t n0) {
    const uint32_t lane = qd_lane(), column = n0 + qd_wave() * 16;
#ifdef QK_FLAT
    const uint32_t count = qd_min(g->n - n0, TN), b_bytes = (uint32_t)g->b_n;
    w->b = qd_buffer(b + n0 * g->b_n, (count - 1) * b_bytes + g->k);
    w->b_write_at = lane / 8 * PITCH + lane % 8 * 16;
    w->is_b_fn = QD_FP8_USUAL == QD_E4M3FNUZ && g->type_b == QK_E4M3FN;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = column - n0 + i * 8 + lane / 8;
        w->b_offset[i] = row < count ? row * b_bytes + lane % 8 * 16 : QD_OUTSIDE;
    }
#else
    const uint32_t in = column % QK_PACK_ROWS; // the wave's first line of its strip of b
    w->b = qd_buffer(b + (int64_t)(column - in) * g->packed_k, QK_PACK_ROWS * g->packed_k);
    w->b_offset = lane / 16 % 2 * 512 + (in + lane % 16) * 16 + lane / 32 * 8;
#endif
}

QD_INLINE void set_up(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t rows,
                      uint32_t n0) {
    const uint32_t lane = qd_lane();
    const operand_places at = places_of(g, tile, n0);
    w->blocks = g->k / BLOCK_K;
    w->num_kb = qd_div_up(g->k, BLOCK_K);
    w->a = qd_buffer(at.a, (rows - 1) * (uint32_t)g->a_row + g->k);
    set_up_b(w, g, at.b, n0);
    w->a_scales = qd_buffer(at.scale_a, ((rows - 1) * (uint32_t)g->scale_a_row +
                                         (w->num_kb - 1) * (uint32_t)g->scale_a_kb + 1) *
                                            (uint32_t)sizeof(float));
    w->b_scales = qd_buffer(at.scale_b, w->num_kb * (uint32_t)sizeof(float));
    w->scale_step = (uint32_t)(g->scale_a_kb * sizeof(float));
    w->half = 1;
    w->is_fn = QD_FP8_USUAL == QD_E4M3FNUZ && g->type_a == QK_E4M3FN;
    w->read_at = lane % 16 * PITCH + qd_mma16_k_fp8(lane);
    QD_UNROLL for (uint32_t i = 0; i < FETCHES; i++)
        set_fetch(w, g, rows, i);
}

/** Stores the wave's columns. Each lane has four columns of a row of each 16. */
QD_INLINE void finish(const wave *w, const qk_gemm_args *g, const qk_gemm_scaling *scaling,
                      const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t column = n0 + qd_wave() * 16 + qd_lane() / 16 * 4;
    QD_UNROLL for (int t = 0; t < RT; t++) {
        const uint32_t row = tile->row + t * 16 + qd_lane() % 16;
        qd_f32x4 values = w->sum[t];
#ifdef QK_FULL
        qk_gemm_end_columns(g, scaling, tile, row, column, values);
#else
        (void)scaling;
        if (g->has_epilogue)
            values = qk_gemm_finish4(g, row, column, values);
        qk_gemm_store4(g, tile, row, column, values);
#endif
    }
}

/** Chooses the workgroup's tile. Returns the row tile's number; masked slabs have theirs one after
 *  the other. */
QD_INLINE uint32_t place_of(const qk_gemm_args *g, uint32_t block, uint32_t *tile_n) {
    uint32_t slab = 0;
    if (g->grouping == QK_GROUPED_MASKED) {
        slab = block / (g->tiles_m * g->tiles_n);
        block -= slab * g->tiles_m * g->tiles_n;
    }
    return slab * g->tiles_m + qk_gemm_column_order(g, block, tile_n);
}

#ifdef QK_FULL
#define QK_GEMM_ARGS qk_gemm_full_args
#define QK_GEMM_OF(given) (&(given)->g)
#else
#define QK_GEMM_ARGS qk_gemm_args
#define QK_GEMM_OF(given) (given)
#endif

QD_KERNEL(THREADS) qk_gemm_rows(const QK_GEMM_ARGS given) {
    static_assert(sizeof given > 3 * 64 + 4);
    qd_touch_arguments();
    const qk_gemm_args g = qk_gemm_by_words(QK_GEMM_OF(&given));
    uint32_t tile_n;
    qk_gemm_tile tile;
    const uint32_t tile_m = place_of(&g, qd_block(), &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, R, &tile))
        return;
    const uint32_t n0 = tile_n * TN;
    const uint32_t rows = tile.row < tile.end ? qd_min(tile.end - tile.row, R) : 0;
    wave w;
    QD_UNROLL for (int t = 0; t < RT; t++)
        w.sum[t] = 0;
    if (rows > 0 && g.k > 0) {
        set_up(&w, &g, &tile, rows, n0);
        if (w.blocks > 0)
            run_blocks(&w);
        if (g.k % BLOCK_K)
            run_tail(&w, &g, &tile, rows, n0);
    }
#ifdef QK_FULL
    const qk_gemm_full_args again = qk_gemm_reread(&given, &tile);
    finish(&w, &again.g, &again.scaling, &tile, n0);
#else
    finish(&w, &g, nullptr, &tile, n0);
#endif
}
