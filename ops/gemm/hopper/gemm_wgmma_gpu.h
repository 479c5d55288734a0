// SPDX-License-Identifier: Apache-2.0
// What the gemm kernels for Hopper's tensor cores share: the tiles that a workgroup walks, the ring
// of stages that one wave fills, the way of a tile's sums to d.
//
// A kernel's image says QK_BM, QK_BN (the tile), QK_STAGES and QK_TEAMS (those that multiply; one
// more loads), perhaps QK_PASS: columns of d that pass through LDS at a time. The file that
// includes this defines SCALE_A_BYTES and SCALE_B_BYTES, a stage's scales; 0 if there are none.
#ifndef QK_GEMM_WGMMA_GPU_H
#define QK_GEMM_WGMMA_GPU_H

#include "../gemm_gpu.h"
#include "mma/sm90.h"
#include "tensor_copy.h"

#if QK_BN == 32
#define SUMS 16 // a thread's of a chunk
#elif QK_BN == 64
#define SUMS 32
#elif QK_BN == 128
#define SUMS 64
#elif QK_BN == 192
#define SUMS 96
#elif QK_BN == 256
#define SUMS 128
#endif

// Registers: what the launch has is too many for the loader's team and too few for the others.
#if QK_TEAMS == 1
#define THREADS 256
#define LOADER_REGISTERS() QD_REGISTERS_LESS(40)
#define TEAM_REGISTERS()
#elif QK_TEAMS == 2
#define THREADS 384
#define LOADER_REGISTERS() QD_REGISTERS_LESS(40)
#define TEAM_REGISTERS() QD_REGISTERS_MORE(232)
#else
#define THREADS 512
#define LOADER_REGISTERS() QD_REGISTERS_LESS(32)
#define TEAM_REGISTERS() QD_REGISTERS_MORE(160)
#endif

#ifndef QK_PASS
#define QK_PASS QK_BN
#endif

enum { BM = QK_BM, BN = QK_BN, STAGES = QK_STAGES, TEAMS = QK_TEAMS, PASS = QK_PASS };
enum {
    CHUNKS = BM / 64 / TEAMS, // of 64 rows, a team's
    GROUPS = BN / 8,          // of columns, four sums each
    K_BYTES = 128,            // of a stage, a row
    BOX = BN < 64 ? BN : 64,  // columns of d that one store takes, of 64 rows
    BOX_BYTES = 64 * BOX * 2,
    REGIONS = PASS < BN ? 1 : CHUNKS, // passes of d that have a place of their own
    TEAM_D_BYTES = REGIONS * 64 * PASS * 2,
    A_BYTES = BM * K_BYTES,
    B_BYTES = BN * K_BYTES,
    A_AT = TEAMS * TEAM_D_BYTES,
    B_AT = A_AT + STAGES * A_BYTES,
    SCALE_A_AT = B_AT + STAGES * B_BYTES,
    SCALE_B_AT = SCALE_A_AT + STAGES * SCALE_A_BYTES,
    FULL_AT = SCALE_B_AT + STAGES * SCALE_B_BYTES,
    EMPTY_AT = FULL_AT + 8 * STAGES,
    PLACES = 4, // tiles that the loader may be ahead
    PLACE_AT = EMPTY_AT + 8 * STAGES,
    PLACE_BYTES = 32,
    TOLD_AT = PLACE_AT + PLACES * PLACE_BYTES,
    TAKEN_AT = TOLD_AT + 8 * PLACES,
    LDS_BYTES = TAKEN_AT + 8 * PLACES,
};
static_assert(LDS_BYTES <= 232448, "the stages are more than a multiprocessor's LDS");

// ---- rings: of stages, and of places of tiles

QD_INLINE uint32_t full_of(uint32_t base, const qd_ring *r) {
    return base + FULL_AT + 8 * r->at;
}
QD_INLINE uint32_t empty_of(uint32_t base, uint32_t stage) {
    return base + EMPTY_AT + 8 * stage;
}

/** A stage is full when the loader and its bytes have arrived, and with them the lanes that copy
 *  scales; it is empty when each wave that multiplies has said so. A place is told by the loader,
 *  and taken by all waves that want it. */
QD_INLINE void make_rings(uint32_t base, bool lanes_copy_scales) {
    if (qd_thread() == 0) {
        for (uint32_t s = 0; s < STAGES; s++) {
            qd_mbarrier_init(base + FULL_AT + 8 * s, lanes_copy_scales ? 1 + QD_WAVE : 1);
            qd_mbarrier_init(base + EMPTY_AT + 8 * s, TEAMS * 4);
        }
        for (uint32_t s = 0; s < PLACES; s++) {
            qd_mbarrier_init(base + TOLD_AT + 8 * s, 1);
            qd_mbarrier_init(base + TAKEN_AT + 8 * s, TEAMS * 4 + (lanes_copy_scales ? 1 : 0));
        }
        qd_mbarrier_init_fence();
    }
    qd_barrier();
}

/** Says that this wave is done with a stage. */
QD_INLINE void release(uint32_t base, uint32_t stage) {
    if (qd_lane() == 0)
        qd_mbarrier_arrive(empty_of(base, stage));
}

// ---- tiles

typedef struct place {
    qk_gemm_tile tile;
    uint32_t n; // first column
} place;

QD_INLINE bool has_counted_groups(const qk_gemm_args *g) {
    return g->grouping == QK_GROUPED_ENDS || g->grouping == QK_GROUPED_MASKED;
}

/** The rows of tiles that there are. All lanes take part. */
QD_INLINE uint32_t count_tiles_m(const qk_gemm_args *g) {
    if (!has_counted_groups(g))
        return g->tiles_m;
    uint32_t count = 0;
    for (uint32_t first = 0; first < g->groups; first += QD_WAVE) {
        const qk_gemm_tile own =
            qk_gemm_group_rows(g, g->grouping == QK_GROUPED_MASKED, first + qd_lane());
        const uint32_t sum = qd_scan_sum(qd_div_up(own.zero_end - own.row, BM));
        count += qd_read_lane(sum, QD_WAVE - 1);
    }
    return count;
}

QD_INLINE bool find_rows(const qk_gemm_args *g, uint32_t index, qk_gemm_tile *tile) {
    if (has_counted_groups(g))
        return qk_gemm_tile_by_groups(g, g->grouping == QK_GROUPED_MASKED, index, BM, tile);
    *tile = (qk_gemm_tile){0, index * BM, g->m, 0};
    if (g->grouping == QK_DENSE)
        return true;
    tile->group = (uint32_t)g->layout[tile->row]; // of all of the tile's rows that are not padding
    return tile->group < g->groups;
}

/** Finds the place of the tile with number `index`. Returns false if it is nobody's. Bands of tiles
 *  are walked column by column, so that tiles which run at one time share rows of a and of b. All
 *  lanes take part. */
QD_INLINE bool find_place(const qk_gemm_wgmma_args *p, uint32_t tiles_m, uint32_t index,
                          place *at) {
    const uint32_t in_whole = p->band * p->g.tiles_n, band = index / in_whole;
    const uint32_t in_band = index - band * in_whole;
    const uint32_t height = qd_min(p->band, tiles_m - band * p->band);
    at->n = in_band / height * BN;
    return find_rows(&p->g, band * p->band + in_band % height, &at->tile);
}

QD_INLINE uint32_t slab_of(const qk_gemm_args *g, const place *at) {
    return g->grouping == QK_GROUPED_MASKED ? at->tile.group : 0;
}

/** Returns how many tiles there are. All lanes take part. */
QD_INLINE uint32_t count_tiles(const qk_gemm_args *g) {
    return qd_wave_uniform(count_tiles_m(g)) * g->tiles_n;
}

/** This workgroup's numbers of tiles. The assembler sees that a wave's lanes leave such a loop
 *  together, and so keeps in uniform registers what descriptors are made of; a loop that ends where
 *  a place says so would cost some 20 moves a K-block. */
#define FOR_TILES(i, tiles)                                                                        \
    for (uint32_t i = qd_block(), end_ = tiles; i < end_; i += __gpu_num_blocks(0))

constexpr uint32_t NO_PLACE = ~0u; // as n: the tile is nobody's

/** Tells the other waves a tile's place; one thread. */
QD_INLINE void tell_place(uint32_t base, qd_ring *r, const place *at) {
    const uint32_t to = base + PLACE_AT + r->at * PLACE_BYTES;
    qd_mbarrier_wait(base + TAKEN_AT + 8 * r->at, r->parity);
    *(QD_LDS qd_u32x4 *)(uintptr_t)to =
        (qd_u32x4){at->tile.group, at->tile.row, at->tile.end, at->tile.zero_end};
    *(QD_LDS uint32_t *)(uintptr_t)(to + 16) = at->n;
    qd_mbarrier_arrive(base + TOLD_AT + 8 * r->at);
    qd_ring_advance(r, PLACES);
}

/** Reads the place at which the ring is. All lanes take part. */
QD_INLINE place read_place(uint32_t base, const qd_ring *r) {
    const uint32_t from = base + PLACE_AT + r->at * PLACE_BYTES;
    const qd_u32x4 rows = *(const QD_LDS qd_u32x4 *)(uintptr_t)from;
    return (place){.tile = {qd_wave_uniform(rows.x), qd_wave_uniform(rows.y),
                            qd_wave_uniform(rows.z), qd_wave_uniform(rows.w)},
                   .n = qd_wave_uniform(*(const QD_LDS uint32_t *)(uintptr_t)(from + 16))};
}

/** Waits for the next tile's place. Returns its first column, or NO_PLACE. */
QD_INLINE uint32_t wait_for_place(uint32_t base, const qd_ring *r) {
    qd_mbarrier_wait(base + TOLD_AT + 8 * r->at, r->parity);
    return read_place(base, r).n;
}

/** Says that this wave needs the place no more, and goes to the next one. */
QD_INLINE void leave_place(uint32_t base, qd_ring *r) {
    qd_wave_barrier(); // all lanes have read it
    if (qd_lane() == 0)
        qd_mbarrier_arrive(base + TAKEN_AT + 8 * r->at);
    qd_ring_advance(r, PLACES);
}

// ---- the loader

/** Copies a K-block's scales of b; a tile may lie in two blocks of 128 columns. */
QD_INLINE void load_scales_b(const qk_gemm_wgmma_args *p, uint32_t to, const float *from,
                             bool is_last, uint32_t kb, uint32_t full) {
    qd_bulk_load(to, from + kb / 4 * 4, 16, full);
    if (SCALE_B_BYTES == 32)
        qd_bulk_load(to + 16, from + (is_last ? 0 : p->g.scale_b_nb) + kb / 4 * 4, 16, full);
}

/** The scales of b for the columns from n on. */
QD_INLINE const float *scales_b(const qk_gemm_args *g, const place *at) {
    return g->scale_b + at->tile.group * g->scale_b_group + at->n / 128 * g->scale_b_nb;
}

/** Fills stages with a tile's operands, k after k; one thread. */
QD_INLINE void load_tile(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, qd_ring *r,
                         const place *at, uint32_t blocks, uint32_t block_k) {
    const float *scale_b = SCALE_B_BYTES > 0 ? scales_b(&p->g, at) : nullptr;
    const bool is_last = at->n / 128 == (p->g.n - 1) / 128;
    const bool has_scales = SCALE_A_BYTES > 0 && p->has_scales;
    const uint32_t slab = slab_of(&p->g, at);
    QD_NO_UNROLL for (uint32_t kb = 0; kb < blocks; kb++) {
        const uint32_t full = full_of(base, r), stage = r->at;
        qd_mbarrier_wait(empty_of(base, stage), r->parity);
        qd_mbarrier_expect(full,
                           A_BYTES + B_BYTES + (has_scales ? SCALE_A_BYTES + SCALE_B_BYTES : 0));
        if (has_scales) {
            qd_tensor_load3(base + SCALE_A_AT + stage * SCALE_A_BYTES,
                            maps + offsetof(qk_gemm_wgmma_args, scale_a), full, at->tile.row, kb,
                            slab);
            load_scales_b(p, base + SCALE_B_AT + stage * SCALE_B_BYTES, scale_b, is_last, kb, full);
        }
        qd_tensor_load3(base + A_AT + stage * A_BYTES, maps + offsetof(qk_gemm_wgmma_args, a), full,
                        kb * block_k, at->tile.row, slab);
        qd_tensor_load3(base + B_AT + stage * B_BYTES, maps + offsetof(qk_gemm_wgmma_args, b), full,
                        kb * block_k, at->n, at->tile.group);
        qd_ring_advance(r, STAGES);
    }
}

/** Finds this workgroup's tiles, tells them, and fills stages with their operands; one wave. */
QD_INLINE void load_tiles(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base,
                          uint32_t block_k) {
    const uint32_t blocks = qd_div_up(p->g.k, block_k), tiles_m = count_tiles_m(&p->g);
    qd_ring stages = {0, 1}, places = {0, 1};
    FOR_TILES(i, tiles_m * p->g.tiles_n) {
        place at;
        const bool is_found = find_place(p, tiles_m, i, &at);
        at.n = is_found ? at.n : NO_PLACE;
        if (qd_lane() == 0) {
            tell_place(base, &places, &at);
            if (is_found)
                load_tile(p, maps, base, &stages, &at, blocks, block_k);
        }
        qd_wave_barrier(); // all lanes look for the next tile
    }
}

/** Has the maps fetched before they are needed; they are arguments, not memory. */
QD_INLINE void prefetch_maps(uint64_t maps) {
    if (qd_thread() == TEAMS * QD_TEAM) {
        qd_tensor_prefetch(maps + offsetof(qk_gemm_wgmma_args, a));
        qd_tensor_prefetch(maps + offsetof(qk_gemm_wgmma_args, b));
        qd_tensor_prefetch(maps + offsetof(qk_gemm_wgmma_args, d));
        if (SCALE_A_BYTES > 0)
            qd_tensor_prefetch(maps + offsetof(qk_gemm_wgmma_args, scale_a));
    }
}

// ---- from sums to d

/** Returns whether a box of 64 rows has only rows of the tile's group, or rows past m. */
QD_INLINE bool is_whole(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row) {
    const uint32_t last = qd_min(row + 64, g->m) - 1;
    if (g->grouping != QK_GROUPED_INDEX)
        return last < tile->end;
    return row < g->m && (uint32_t)g->layout[row] == tile->group &&
           (uint32_t)g->layout[last] == tile->group;
}

/** Makes the team meet once its stores have read their LDS. */
QD_INLINE void wait_for_stores(uint32_t team) {
    if (qd_thread() % QD_TEAM == 0)
        qd_tensor_store_wait();
    qd_team_barrier(1 + team, QD_TEAM);
}

/** Stores columns x to x + PASS - 1 of a chunk's sums by way of LDS at `region`. */
QD_INLINE void store_pass(uint64_t maps, uint32_t region, uint32_t team, const place *at,
                          uint32_t slab, uint32_t row, uint32_t x, const float *sum) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = thread % 32;
    const uint32_t own = thread / 32 * 16 + lane % 16;
    QD_UNROLL for (uint32_t g = 0; g < PASS / 8; g += 2) {
        const uint32_t box = region + g * 8 / BOX * BOX_BYTES;
        const uint32_t piece = (g % (BOX / 8) + lane / 16) ^ (BOX == 64 ? own % 8 : 0);
        const float *s = &sum[x / 2 + 4 * g];
        qd_store_tiles(box + own * BOX * 2 + piece * 16, qd_pack_bf16(s[0], s[1]),
                       qd_pack_bf16(s[2], s[3]), qd_pack_bf16(s[4], s[5]),
                       qd_pack_bf16(s[6], s[7]));
    }
    qd_async_fence();
    qd_team_barrier(1 + team, QD_TEAM);
    if (thread == 0) QD_UNROLL
        for (uint32_t i = 0; i < PASS; i += BOX)
            qd_tensor_store3(maps + offsetof(qk_gemm_wgmma_args, d), region + i / BOX * BOX_BYTES,
                             at->n + x + i, row, slab);
}

/** Stores columns x to x + PART - 1 of a chunk by lanes, four columns each: any d, c added, only
 *  rows that are to be written. Pieces of 16 bytes in LDS are exchanged by row, so that banks
 *  differ. */
enum { PART = TEAM_D_BYTES / (64 * 4), PIECES = PART / 4, TURNS = PIECES < 8 ? PIECES : 8 };
QD_INLINE void store_part(const qk_gemm_args *g, uint32_t region, uint32_t team, const place *at,
                          uint32_t row, uint32_t x, const float *sum) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = thread % 32;
    const uint32_t own = thread / 32 * 16 + lane / 4;
    QD_UNROLL for (uint32_t i = 0; i < PART / 8; i++) {
        const float *s = &sum[x / 2 + 4 * i];
        const uint32_t piece = (2 * i + lane % 4 / 2) ^ own % TURNS;
        const uint32_t to = region + own * PART * 4 + piece * 16 + lane % 2 * 8;
        *(QD_LDS qd_f32x2 *)(uintptr_t)to = (qd_f32x2){s[0], s[1]};
        *(QD_LDS qd_f32x2 *)(uintptr_t)(to + 8 * PART * 4) = (qd_f32x2){s[2], s[3]};
    }
    qd_team_barrier(1 + team, QD_TEAM);
    QD_NO_UNROLL for (uint32_t i = thread; i < 64 * PIECES; i += QD_TEAM) {
        const uint32_t r = i / PIECES, piece = i % PIECES;
        const uint32_t from = region + r * PART * 4 + (piece ^ r % TURNS) * 16;
        const uint32_t column = at->n + x + piece * 4;
        if (column < g->n)
            qk_gemm_store4(g, &at->tile, row + r, column,
                           *(const QD_LDS qd_f32x4 *)(uintptr_t)from);
    }
    qd_team_barrier(1 + team, QD_TEAM);
}

/** Stores a team's sums of a tile. Stores of boxes run on while the next tile begins. */
QD_INLINE void store(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, uint32_t team,
                     place at, float sum[CHUNKS][SUMS]) {
    // From an address that it knows, ptxas computes others before the product's loop and then
    // spills sums in it: 256 x 128 has no register to spare.
    const uint32_t region = qd_opaque(base) + team * TEAM_D_BYTES;
    QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t row = at.tile.row + (team * CHUNKS + c) * 64;
        if (row >= qd_max(at.tile.end, at.tile.zero_end))
            continue;
        if (p->has_map_d && is_whole(&p->g, &at.tile, row)) {
            QD_UNROLL for (uint32_t x = 0; x < BN; x += PASS) {
                if (REGIONS == 1 || c == 0) // else nobody has stored from its place since
                    wait_for_stores(team);
                store_pass(maps, region + c % REGIONS * 64 * PASS * 2, team, &at,
                           slab_of(&p->g, &at), row, x, sum[c]);
            }
        } else {
            wait_for_stores(team);
            QD_UNROLL for (uint32_t x = 0; x < BN; x += PART)
                store_part(&p->g, region, team, &at, row, x, sum[c]);
        }
    }
}

#endif
