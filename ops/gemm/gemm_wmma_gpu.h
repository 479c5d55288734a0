// SPDX-License-Identifier: Apache-2.0
// What gemm_wmma_gpu.c and the stores of its tiles share: sizes, LDS, a wave's registers.
#ifndef QK_GEMM_WMMA_GPU_H
#define QK_GEMM_WMMA_GPU_H

#define QK_FULL // one image has all forms of a product's end, which acts behind the loop
#include "gemm_full_gpu.h"
#include "mma.h"

#ifdef QK_IS_FP8
enum { IS_FP8 = 1, ELEMENT = 1, IS_F16 = 1 }; // ELEMENT: bytes in memory
#else
#ifdef QK_IS_F16
enum { IS_FP8 = 0, ELEMENT = 2, IS_F16 = 1 };
#else
enum { IS_FP8 = 0, ELEMENT = 2, IS_F16 = 0 };
#endif
#endif
#if defined(QK_IS_FP8) && QD_HAS_FP8_OCP
#define BY_FP8 1 // as what it is multiplied
#else
#define BY_FP8 0
#endif
enum { WIDENS = IS_FP8 && !BY_FP8, SCALE = WIDENS ? 65536 : 1 }; // f16 in LDS are 2^-8 of codes
enum { MT = QK_MT, NT = QK_NT, WM = QK_WM, WN = QK_WN };
enum { BLOCK_K = BY_FP8 ? 64 : 32, LINE_K = 2 * BLOCK_K, STEP_K = BLOCK_K / 2 };
enum { SCALE_K = 128, LINES = IS_FP8 ? SCALE_K / LINE_K : 1 }; // LINES: of a turn of the loop
enum { THREADS = 32 * WM * WN, TM = 16 * MT * WM, TN = 16 * NT * WN };
enum { TILES = MT * NT, READS = MT + NT, RATE = (READS + TILES - 1) / TILES }; // of a half
// Sets of registers for a's operands. Partials beside the sums of a large tile leave room for one:
// an operand is then read behind the last product of the one before.
enum { A_SETS = IS_FP8 && TILES > 4 ? 1 : 2 };
enum { COPIES = BY_FP8 ? 2 : 1 }; // of scales: registers of gfx11 suffice for one
enum { PIECES = 4, PIECE_K = BLOCK_K / PIECES, BLOCK_BYTES = BLOCK_K * ELEMENT };
// Behind each eight rows of 16-bit kinds are 16 bytes more: see gemm_wmma_across_gpu.h.
enum { PITCH = PIECES * 16 + 16, PAD = IS_FP8 ? 0 : 16 };
enum { STAGE_BYTES = (TM + TN) * PITCH + (TM + TN) / 8 * PAD };
enum {
    TURN = THREADS / PIECES, // rows of which all threads load a piece
    LOADS_A = TM / TURN,
    LOADS_B = TN / TURN,
    LOADS = LOADS_A + LOADS_B, // of a thread, for a K-block
};
static_assert(TM % TURN == 0 && TN % TURN == 0 && TURN % 16 == 0); // so that row_at(TURN) counts
// How d leaves through LDS: a row of tiles of each wave at once, as f32.
enum { PASS_ROWS = 16 * WM, RESULT_PITCH = TN / 4 + 1, HAS_CODES = 128 % TN == 0 };
static_assert(PASS_ROWS * RESULT_PITCH * 16 <= 2 * STAGE_BYTES);

#define MEMORY __attribute__((address_space(1)))
#if defined(QK_IS_FP8) && !BY_FP8
typedef qd_u32x2 codes;
#else
typedef qd_u32x4 codes;
#endif
typedef codes __attribute__((aligned(ELEMENT))) piece; // PIECE_K elements, at any one's address

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds[2 * STAGE_BYTES]
    __attribute__((aligned(16)));

/** What is to be known of a product; constants at each call. */
enum {
    BY_BLOCKS = 1, // scales are of blocks
    A_ACROSS = 2,  // m is contiguous in a
    B_ACROSS = 4,  // n is contiguous in b
    FIRST = 8,     // it begins a block of scales, or
    LAST = 16,     // it ends one
};

/** An operand that lies across. */
typedef struct across {
    uint32_t step; // bytes from a k to the next one
    uint32_t to;   // where this thread's first row goes, in a stage
} across;

/** A wave's registers. Once all loops are unrolled, constants alone index the arrays. */
typedef struct wave {
    uint32_t rows, columns;      // of the tile, that exist
    uint32_t read_a, read_b;     // this lane's first piece of its row, in a stage
    uint32_t write;              // where this thread's first piece goes
    const MEMORY uint8_t *a, *b; // the line that is loaded next
    uint32_t a_block, b_block;   // bytes from a K-block to the next one
    uint32_t offset[LOADS];      // this thread's rows, from there on; across: an operand's first
    across a_across, b_across;
    codes held[2][LOADS];                               // of each block
    qd_mma16_operand a_tile[A_SETS][MT], b_tile[2][NT]; // of each half of a K-block
    qd_mma16_acc sum[MT][NT];
    // Scales of blocks:
    qd_mma16_acc part[MT][NT];               // the sum of 128 of k
    const MEMORY uint8_t *scale_a, *scale_b; // those that are loaded next
    uint32_t scale_a_step, scale_offset[MT]; // bytes from block to block; this lane's rows
    float next_a[MT], next_b;                // as loaded
    float scale[COPIES][MT];                 // of the block that is multiplied
} wave;

/** Returns p, of which the compiler knows nothing, in scalar registers: what a lane adds to it then
 *  stays a part of the load. Code that is not optimised keeps p in scratch, which is no scalar. */
QD_INLINE const MEMORY uint8_t *in_scalars(const MEMORY uint8_t *p) {
#ifdef __OPTIMIZE__
    asm volatile("" : "+s"(p));
#endif
    return p;
}

/** Returns where a row begins in a stage. */
QD_INLINE uint32_t row_at(uint32_t row) {
    return row * PITCH + row / 8 * PAD;
}

/** Returns which column of a wave's the line `row` of its operands is. Results of a lane are rows
 *  of these, and a lane is to have 8 NT neighbouring ones of them in the order of its registers. */
QD_INLINE uint32_t column_of(uint32_t row) {
    uint32_t place = 0;
    QD_UNROLL for (uint32_t i = 0; i < 16; i++)
        if (qd_mma16_row(i / 8 * 16, i % 8) == row % 16)
            place = i / 8 * 8 * NT + i % 8;
    return row / (16 * NT) * (16 * NT) + row / 16 % NT * 8 + place;
}

#endif
