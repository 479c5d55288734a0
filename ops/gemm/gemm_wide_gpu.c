// SPDX-License-Identifier: Apache-2.0
// gemm of bf16, f16 and FP8 (gemm_half_gpu.h): d = c + a b^T; stages are filled through
// registers, in which the next K-block waits. k is contiguous, or with QK_A_ACROSS m in a, with
// QK_B_ACROSS n in b: then a lane turns eight rows by two or four k on their way to LDS.
//
// Needs     v_mfma_f32_16x16x16; rows of a and b, or of a^T and b^T, at multiples of four bytes
// Launch    an XCD has tiles that follow each other, in bands of four rows
// LDS       one stage, and so a workgroup a compute unit. Across, 16 bytes lie between eights of
//           rows, so that lanes that write one row each of their eights touch all banks
// Registers for each load: 16 bytes a lane. k contiguous: eight rows a wave, or four of eight bytes
//           a lane. Across: eight rows of one k a lane
// Edges     across, eight rows past the end are a copy of the last eight that begin before it. They
//           may pass the last k's end, so that if one does, run_last has the last K-block
// Schedule  A K-block of 64 runs 4 MT NT MFMAs, the half of k = 0..31 first; a pin ends each step.
//           Reads of the second half are spread over the first steps. Then the waves meet, as all
//           have read the stage, and write the next block to it; behind an operand's writes its
//           loads of the block after that one begin, which so have nearly a whole block to land.
//           They meet again, and read the next block's first half. Behind the loop the end's
//           code is asked for.
#define QK_PAD (QK_A_ACROSS || QK_B_ACROSS ? 16 : 0)
#include "code.h"
#include "gemm_half_gpu.h"

enum {
    IS_ACROSS = QK_A_ACROSS || QK_B_ACROSS,
    LOADS_A = TM / 8 / WAVES, // eights of rows, or k of a lane's eight rows
    LOADS_B = TN / 8 / WAVES,
    HAS_FOUR = TN % (8 * WAVES) != 0, // and four rows more
    LOADS = LOADS_A + LOADS_B + HAS_FOUR,
    // Writes and loads in their order: those of a, those of b.
    OPS_A = (QK_A_ACROSS ? 8 : LOADS_A) + LOADS_A,
    OPS = OPS_A + (QK_B_ACROSS ? 8 : LOADS_B + HAS_FOUR) + LOADS_B + HAS_FOUR,
    READ_EVERY = TILES > 16 ? 3 : 2,
    OPS_STEPS = TILES > 16 ? 24 : 22,
    EMPTY = READ_EVERY * READS + 4,  // the step before which all have read the stage
    WRITTEN = EMPTY + OPS_STEPS + 6, // that before which the next block is written
    REREAD = WRITTEN > STEPS / 2 ? WRITTEN : STEPS / 2,
    REREAD_EVERY = (STEPS - REREAD - 4) / READS,
};
static_assert(TM % (8 * WAVES) == 0 && TN % (4 * WAVES) == 0 && EMPTY <= STEPS / 2);
static_assert(REREAD_EVERY >= 1 && TM == 256);
static_assert(!QK_A_ACROSS || LOADS_A == 4);
static_assert(!QK_B_ACROSS || (!HAS_FOUR && (LOADS_B == 2 || LOADS_B == 4)));

/** A wave's registers. */
typedef struct wave {
    products p;
    __amdgpu_buffer_rsrc_t a, b;
    uint32_t offset[LOADS];    // this lane's; across: an operand's first one alone
    uint32_t to_a, to_b, four; // its place in a stage; across: of its eight rows
    uint32_t slot_a, slot_b;   // across: the byte of its first k in a row
    uint32_t block_a, block_b; // bytes from a K-block to the next one
    uint32_t k_a, k_b;         // across: bytes from a k to the next one
    uint32_t at_a, at_b;       // where the block to be loaded begins, bytes
    qd_u32x4 next[LOADS];      // a block on its way
} wave;

// ---- memory operations

QD_INLINE void load(wave *w, int i) {
    if (i < LOADS_A)
        w->next[i] = qd_buffer_load4(w->a, w->offset[QK_A_ACROSS ? 0 : i],
                                     w->at_a + (QK_A_ACROSS ? (uint32_t)i * w->k_a : 0));
    else if (i < LOADS_A + LOADS_B)
        w->next[i] =
            qd_buffer_load4(w->b, w->offset[QK_B_ACROSS ? LOADS_A : i],
                            w->at_b + (QK_B_ACROSS ? (uint32_t)(i - LOADS_A) * w->k_b : 0));
    else
        w->next[i].xy = qd_buffer_load2(w->b, w->offset[i], w->at_b);
}

/** Writes row i of a lane's eight rows, of which v has `count` k. */
QD_INLINE void write_across(QD_LDS uint8_t *rows, uint32_t slot, const qd_u32x4 *v, int count,
                            int i) {
    QD_LDS uint8_t *to = rows + i * ROW_BYTES + (slot ^ (uint32_t)i * 16);
    const uint32_t pair = qd_halves(v[0][i / 2], v[1][i / 2], i % 2);
    if (count == 2)
        *(QD_LDS uint32_t *)to = pair;
    else
        *(QD_LDS qd_u32x2 *)to = (qd_u32x2){pair, qd_halves(v[2][i / 2], v[3][i / 2], i % 2)};
}

QD_INLINE void write_a(wave *w, int i) {
    if (QK_A_ACROSS)
        write_across(lds0 + w->to_a, w->slot_a, w->next, LOADS_A, i);
    else
        *(QD_LDS qd_u32x4 *)(lds0 + w->to_a + WAVES * i * EIGHT_BYTES) = w->next[i];
}

QD_INLINE void write_b(wave *w, int i) {
    QD_LDS uint8_t *b = lds0 + TM / 8 * EIGHT_BYTES;
    if (QK_B_ACROSS)
        write_across(b + w->to_b, w->slot_b, w->next + LOADS_A, LOADS_B, i);
    else if (i < LOADS_B)
        *(QD_LDS qd_u32x4 *)(b + w->to_b + WAVES * i * EIGHT_BYTES) = w->next[LOADS_A + i];
    else
        *(QD_LDS qd_u32x2 *)(b + w->four) = w->next[LOADS_A + i].xy;
}

/** Does write or load `op` of those that hand the stage to the next block. */
QD_INLINE void hand_over(wave *w, int op) {
    const bool is_a = op < OPS_A;
    const int at = is_a ? op : op - OPS_A;
    if (is_a ? QK_A_ACROSS : QK_B_ACROSS) {
        if (at >= 8)
            load(w, (is_a ? 0 : LOADS_A) + at - 8);
        else if (is_a)
            write_a(w, at);
        else
            write_b(w, at);
    } else if (at % 2 == 1) {
        load(w, (is_a ? 0 : LOADS_A) + at / 2);
    } else if (is_a) {
        write_a(w, at / 2);
    } else {
        write_b(w, at / 2);
    }
}

/** Lets the waves meet: then all have read and written what they had begun to. */
QD_INLINE void meet(void) {
    QD_WAIT(63);
    qd_meet();
    qd_pin();
}

/** Does the memory operations of step s of a block. */
QD_INLINE void memory_step(wave *w, int s) {
    const int again = s - REREAD;
    if (s % READ_EVERY == 0 && s / READ_EVERY < READS)
        read(&w->p, lds0, 1, s / READ_EVERY);
    QD_UNROLL for (int op = 0; op < OPS; op++)
        if (s == EMPTY + op * OPS_STEPS / OPS)
            hand_over(w, op);
    if (again >= 0 && again % REREAD_EVERY == 0 && again / REREAD_EVERY < READS)
        read(&w->p, lds0, 0, again / REREAD_EVERY);
}

QD_INLINE void run_block(wave *w) {
    QD_UNROLL for (int s = 0; s < STEPS; s++) {
        if (s == EMPTY || s == WRITTEN)
            meet();
        multiply(&w->p, s);
        memory_step(w, s);
        qd_pin();
    }
}

/** Sets where the loads of a block begin. Past the end they repeat the last of `blocks`, which
 *  nobody reads, so as not to leave the matrix. */
QD_INLINE void aim(wave *w, uint32_t block, uint32_t blocks) {
    w->at_a = qd_min(block, blocks - 1) * w->block_a;
    w->at_b = qd_min(block, blocks - 1) * w->block_b;
}

QD_INLINE void load_first(wave *w, uint32_t blocks) {
    aim(w, 0, blocks);
    QD_UNROLL for (int i = 0; i < LOADS; i++)
        load(w, i);
    qd_pin();
}

/** Runs whole K-blocks, the first of which is on its way. */
QD_INLINE void run_blocks(wave *w, uint32_t blocks) {
    aim(w, 1, blocks);
    QD_UNROLL for (int op = 0; op < OPS; op++) {
        hand_over(w, op);
        qd_pin();
    }
    meet();
    QD_UNROLL for (int i = 0; i < READS; i++)
        read(&w->p, lds0, 0, i);
    qd_pin();
    for (uint32_t block = 0; block < blocks; block++) {
        aim(w, block + 2, blocks);
        run_block(w);
    }
}

// ---- setting up

/** Returns the first row of load i of a wave, of a's or b's, k contiguous. */
QD_INLINE uint32_t row_of_load(uint32_t wave, int i) {
    if (i < LOADS_A)
        return (wave + WAVES * (uint32_t)i) * 8;
    if (i < LOADS_A + LOADS_B)
        return (wave + WAVES * (uint32_t)(i - LOADS_A)) * 8;
    return TN / (8 * WAVES) * (8 * WAVES) + wave * 4;
}

/** Returns this lane's offset of load i, k contiguous, of `count` rows of which the last stands for
 *  those that do not exist. */
QD_INLINE uint32_t offset_of(uint32_t wave, int i, uint32_t count, uint32_t row_bytes) {
    const uint32_t lane = qd_lane(), lanes = i < LOADS_A + LOADS_B ? 8 : 16; // of a row
    const uint32_t at = row_of_load(wave, i) + lane / lanes, row = i < LOADS_A ? at : column_in(at);
    return qd_by_all_lanes(qd_min(row, count - 1) * row_bytes + lane % lanes * (128 / lanes));
}

/** The same of an operand across: of its eight rows and of the first of its `loads` k. */
QD_INLINE uint32_t offset_across(uint32_t eights, uint32_t loads, uint32_t count,
                                 uint32_t k_bytes) {
    const uint32_t eight = qd_min(qd_thread() % eights, (count - 1) / 8);
    return qd_by_all_lanes(qd_thread() / eights * loads * k_bytes + eight * 16);
}

QD_INLINE void set_up_a(wave *w, const qk_gemm_args *g, const element *a) {
    const uint32_t lane = qd_lane(), step = (uint32_t)(QK_A_ACROSS ? g->a_k : g->a_row) * ELEMENT;
    w->k_a = step;
    w->block_a = QK_A_ACROSS ? BLOCK_K * step : ROW_BYTES;
    if (QK_A_ACROSS) {
        w->a = qd_buffer(a, (g->k - 1) * step + w->p.rows * 2);
        w->offset[0] = offset_across(TM / 8, LOADS_A, w->p.rows, step);
        w->to_a = qd_thread() % (TM / 8) * EIGHT_BYTES;
        w->slot_a = qd_thread() / (TM / 8) * LOADS_A * 2;
        return;
    }
    w->a = qd_buffer(a, (w->p.rows - 1) * step + g->k * ELEMENT);
    w->to_a = swizzle(w->p.wave * 8 + lane / 8, lane % 8);
    QD_UNROLL for (int i = 0; i < LOADS_A; i++)
        w->offset[i] = offset_of(w->p.wave, i, w->p.rows, step);
}

QD_INLINE void set_up_b(wave *w, const qk_gemm_args *g, const element *b) {
    const uint32_t lane = qd_lane(), step = (uint32_t)(QK_B_ACROSS ? g->b_k : g->b_n) * ELEMENT;
    w->k_b = step;
    w->block_b = QK_B_ACROSS ? BLOCK_K * step : ROW_BYTES;
    if (QK_B_ACROSS) {
        w->b = qd_buffer(b, (g->k - 1) * step + w->p.columns * 2);
        w->offset[LOADS_A] = offset_across(TN / 8, LOADS_B, w->p.columns, step);
        w->to_b = qd_thread() % (TN / 8) * EIGHT_BYTES;
        w->slot_b = qd_thread() / (TN / 8) * LOADS_B * 2;
        return;
    }
    const uint32_t four = row_of_load(w->p.wave, LOADS) + lane / 16;
    w->b = qd_buffer(b, (w->p.columns - 1) * step + g->k * ELEMENT);
    w->to_b = swizzle(w->p.wave * 8 + lane / 8, lane % 8);
    w->four = swizzle(four, lane % 16 / 2) + lane % 2 * 8;
    QD_UNROLL for (int i = LOADS_A; i < LOADS; i++)
        w->offset[i] = offset_of(w->p.wave, i, w->p.columns, step);
}

/** Returns how many K-blocks run_blocks() may run. */
QD_INLINE uint32_t whole_blocks(const wave *w, uint32_t k) {
    const bool is_ragged = (QK_A_ACROSS && w->p.rows % 8) || (QK_B_ACROSS && w->p.columns % 8);
    return (k - is_ragged) / BLOCK_K;
}

/** Chooses a workgroup's tile: as qk_gemm_order, but an XCD has one run of tiles, as long as it can
 *  be, since few tiles of this size make a launch. */
QD_INLINE void order(const qk_gemm_args *g, uint32_t block, uint32_t *tile_m, uint32_t *tile_n) {
    constexpr uint32_t xcds = 8, band_rows = 4;
    const uint32_t tiles_m = g->grouping == QK_GROUPED_MASKED ? g->tiles_m * g->groups : g->tiles_m;
    const uint32_t run = tiles_m * g->tiles_n / xcds;
    if (block < run * xcds)
        block = block % xcds * run + block / xcds;
    const uint32_t band = block / (band_rows * g->tiles_n), in = block % (band_rows * g->tiles_n);
    const uint32_t height = qd_min(tiles_m - band * band_rows, band_rows);
    *tile_m = band * band_rows + in % band_rows;
    *tile_n = in / band_rows;
    if (height < band_rows) { // a division takes long
        *tile_m = band * band_rows + in % height;
        *tile_n = in / height;
    }
}

static void code_end(void);

/** Asks for the code from here on, a line for each thread, and does not wait: a launch's first
 *  workgroups find the end's lines neither in their instruction cache nor, behind so many operands,
 *  in the second level. What it returns is to be kept until the load is over. */
QD_INLINE uint32_t ask_for_end(void) {
    enum { LINE = 128 };
    typedef const __attribute__((address_space(1))) uint32_t *code;
    uint64_t begin;
    asm volatile("s_getpc_b64 %0" : "=s"(begin));
    const uint32_t size = (uint32_t)((uint64_t)(uintptr_t)&code_end - begin);
    return *(code)((begin + qd_min(qd_thread() * LINE, size)) & ~UINT64_C(3));
}

QD_WAVES_PER_EU(2) QD_KERNEL(THREADS) qk_gemm_wide(QK_GEMM_PARAMETER) {
    QK_GEMM_OPEN
    uint32_t tile_m, tile_n;
    qk_gemm_tile tile;
    // Groups by index begin at multiples of 128 rows: such tiles are of half as many.
    const uint32_t rows = g.grouping == QK_GROUPED_INDEX ? TM / 2 : TM;
    order(&g, qd_block(), &tile_m, &tile_n);
    if (!qk_gemm_find_tile(&g, tile_m, rows, &tile))
        return;
    tile.end = qd_min(tile.end, tile.row + rows);
    const uint32_t n0 = tile_n * TN;
    wave w;
    find_operands(&w.p, &g, &tile, n0);
    const uint32_t k = w.p.rows > 0 ? g.k : 0, blocks = k > 0 ? whole_blocks(&w, k) : 0;
    const element *a = (const element *)g.a + tile.group * g.a_group + tile.row * g.a_row;
    const element *b = (const element *)g.b + tile.group * g.b_group + n0 * g.b_n;
    if (blocks > 0) {
        set_up_a(&w, &g, a);
        set_up_b(&w, &g, b);
        load_first(&w, blocks);
        if (IS_ACROSS) { // in one branch, or else the loop computes addresses again
            clear_sums(&w.p);
            run_blocks(&w, blocks);
        }
    }
    if (!IS_ACROSS || blocks == 0)
        clear_sums(&w.p);
    if (!IS_ACROSS && blocks > 0) // in two, or else clang 22 spills registers
        run_blocks(&w, blocks);
    const uint32_t code = ask_for_end();
    if (blocks * BLOCK_K < k)
        run_last(&w.p, &g, a, b, blocks);
    finish(&w.p, &f, &tile, n0);
    asm volatile("" : : "v"(code));
}
QD_CODE_END(code_end)
