// SPDX-License-Identifier: Apache-2.0
// What a workgroup and a lane of attention's matrix kernel hold, and how large its tiles are.
#ifndef QK_ATTENTION_TILE_GPU_H
#define QK_ATTENTION_TILE_GPU_H

#include "attention_mma_gpu.h"
#include "attention_row_gpu.h"

#ifndef QK_D
#define QK_D 128 // head dims up to this
#endif
#ifndef QK_F16
#define QK_F16 0 // else bf16
#endif
#ifndef QK_FP8
#define QK_FP8 0 // k and v, any of the four kinds; else of q's type
#endif

enum { D = QK_D, THREADS = 256, WAVES = THREADS / QD_WAVE, RISE = 8 };
#if defined(__NVPTX__)
enum { TILE = D > 128 ? 32 : 4096 / D, SLICES = D > 128 ? 2 : 1 };
#define QK_OCCUPANCY
#elif defined(__GFX9__)
enum { TILE = 8192 / D, SLICES = 1 };
#define QK_OCCUPANCY amdgpu_waves_per_eu(QK_D > 128 ? 1 : 2, QK_D > 128 ? 1 : 2)
#elif defined(__GFX11__)
enum {
    TILE = 4096 / D,
    SLICES = D > 128 ? 4 : 1
}; // slices of o's columns, each of a wave of its own
#define QK_OCCUPANCY amdgpu_waves_per_eu(4, 5)
#else
enum { TILE = 4096 / D, SLICES = D > 128 ? 2 : 1 };
#define QK_OCCUPANCY amdgpu_waves_per_eu(4, 5)
#endif
enum { ROWS = WAVES / SLICES * QD_MMA_QUERIES, COLUMNS = D / SLICES };
enum { S_TILES = TILE / QD_MMA_KEYS, O_TILES = COLUMNS / QD_MMA_KEYS, FRAGMENTS = TILE / QD_MMA_K };
enum { PIECES = D / 8, K_ROW = 2 * D, V_ROW = 2 * TILE };
enum { PAIRS = TILE / 2 * PIECES / THREADS }; // of keys, whose piece of k and of v a thread moves
constexpr float least = -0x1.FFFFFEp+127f;    // finite

[[clang::loader_uninitialized]] static QD_LDS uint8_t k_tile[TILE * K_ROW]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t v_tile[D * V_ROW]
    __attribute__((aligned(128)));

enum { KV_BYTES = QK_FP8 ? 1 : 2 }; // of an element in memory
/** Eight elements of a row of k or v in memory. */
#if QK_FP8
typedef qd_u32x2 kv_piece;
#else
typedef qd_u32x4 kv_piece;
#endif

/** What a thread moves to LDS. */
typedef struct mover {
    uint32_t key, piece; // the first key, the piece of its row
    uint32_t k_turn,
        v_turn; // the piece's place in a row of k, the keys' in a row of v, as the first row turns it
} mover;

/** k or v of a request's head, where its keys are one piece of memory. */
typedef struct source {
    const char *begin;
    uint32_t row;    // bytes
    uint32_t offset; // of what this thread moves, in a tile
} source;

/** What a workgroup works at: some rows, a chunk of keys. */
typedef struct part {
    const qk_attention_args *args; // for reread() alone
    qk_attention_request request;
    uint32_t index, kv_head; // of the request
    uint32_t row_end;
    uint32_t chunk_begin, chunk_end; // keys
    source k, v;
    bool is_whole;     // k and v are as above, and a tile of them is less than 4 GiB
    uint32_t k_pieces; // of a row of k
    int kind;          // of k and v, if QK_FP8
    mover mover;
} part;

/** A row of queries that a lane owns. */
typedef struct row {
    float top, sum; // of base-2 scores: the maximum, lagging by RISE at most; this lane's keys' sum
    float scale;    // of natural scores
    uint32_t query, head;
    bool exists;
    uint32_t first, end; // keys that it sees
} row;

/** What a lane holds. */
typedef struct wave {
    qd_mma_operand q[D / QD_MMA_K][QD_MMA_OWN];
    qd_mma_acc o[O_TILES];
    row rows[QD_MMA_OWN];
    uint32_t all_first, all_end; // keys that all of the wave's rows see
    uint32_t any_first, any_end; // that any of them does
    kv_piece moving[2 * PAIRS];  // of k or v, on their way to LDS
} wave;

#endif
