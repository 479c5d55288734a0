// SPDX-License-Identifier: Apache-2.0
// What the gemm kernels for Hopper's tensor cores share: the tiles that a workgroup walks, the ring
// of stages that one wave fills, the way of a tile's sums to d.
//
// A kernel's image says QK_BM, QK_BN (the tile), QK_STAGES and QK_TEAMS (those that multiply; one
// more loads), perhaps QK_PASS: columns of d that pass through LDS at a time. The file that
// includes this defines SCALE_A_BYTES and SCALE_B_BYTES, a stage's scales; 0 if there are none.
// QK_FORM tells what a kernel leaves out, for what it has costs time even where it is not used:
//   0 (or undefined)  epilogues
//   1                 groups, epilogues, and d that the copy engine does not store
//   2                 groups
//   3                 epilogues; maps have a third dimension, so that groups may lie anywhere
//   4                 groups, and d that is not of e4m3fn codes; tiles hold groups of 128 columns
// QK_PAIRS: forms 0, 2 and 4 for SiLU-and-multiply alone (gemm_wgmma_pairs_gpu.h). Form 4 then
// knows groups, and a workgroup multiplies two tiles side by side, whose pairs make 128 columns of
// d.
// QK_ROWS: a tile has fewer rows than QK_BM, which the tensor cores multiply: what follows in LDS
// becomes rows that nobody stores.
// QK_BESIDE: so many workgroups share a multiprocessor, and each has one tile, so that the next
// tile goes to whichever multiprocessor is done first.
// QK_A_ACROSS, QK_B_ACROSS: the operand's rows, not k, are contiguous (16-bit kinds alone). Its
// tile comes in boxes of 64 of its rows by the stage's k.
#ifndef QK_GEMM_WGMMA_GPU_H
#define QK_GEMM_WGMMA_GPU_H

#include "../gemm_gpu.h"
#include "mma/sm90.h"
#include "tensor_copy.h"

#if !defined(QK_FORM)
#define QK_FORM 0
#endif
#if !defined(QK_PAIRS)
#define QK_PAIRS 0
#endif
enum {
    HAS_PAIRS = QK_PAIRS,
    HAS_CODES = QK_FORM == 4,
    HAS_STEPS = (QK_FORM == 2 || HAS_CODES) && !HAS_PAIRS,
    IS_DENSE = QK_FORM == 1 || QK_FORM == 2 || (HAS_CODES && !HAS_PAIRS),
    HAS_LANES = QK_FORM != 1 && !HAS_CODES,
    HAS_SLABS = QK_FORM == 3,
    SIDE_BY_SIDE = HAS_CODES && HAS_PAIRS ? 2 : 1, // tiles of a place
};
#if !defined(QK_A_ACROSS)
#define QK_A_ACROSS 0
#endif
#if !defined(QK_B_ACROSS)
#define QK_B_ACROSS 0
#endif

#if !defined(QK_BESIDE)
#define QK_BESIDE 1
#endif
#if !defined(QK_ROWS)
#define QK_ROWS QK_BM
#endif
enum { HAS_ONE_TILE = QK_BESIDE > 1, ROWS = QK_ROWS };

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
#if QK_BESIDE == 2
#define TEAM_REGISTERS() QD_REGISTERS_MORE(208)
#else
#define TEAM_REGISTERS()
#endif
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
    // Whether the sums of two chunks and a product's leave no register to spare. What then holds
    // ptxas from spilling sums in the loop was found by trial: another form of the loop, and LDS
    // named by an address that clang knows. ptx_test counts what is spilled.
    IS_TIGHT = IS_DENSE && CHUNKS > 1,
    GROUPS = BN / 8,         // of columns, four sums each
    K_BYTES = 128,           // of a stage, a row
    BOX = BN < 64 ? BN : 64, // columns of d that one store takes, of 64 rows
    BOX_BYTES = 64 * BOX * 2,
    REGIONS = PASS < BN ? 1 : CHUNKS, // passes of d that have a place of their own
    TEAM_D_BYTES = REGIONS * 64 * PASS * 2,
    A_BYTES = ROWS * K_BYTES,
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
static_assert(QK_BESIDE * (LDS_BYTES + 1024) <= 233472,
              "the stages are more than a multiprocessor's LDS");

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
        for (uint32_t s = 0; s < (IS_DENSE ? 0 : PLACES); s++) {
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

/** Returns how many K-blocks there are, as a value from which to count down: a count that ptxas can
 *  read anew is read anew in each block, between the products. */
QD_INLINE uint32_t count_blocks(const qk_gemm_wgmma_args *p) {
    return qd_wave_uniform(qd_opaque(p->blocks));
}

// ---- tiles

typedef struct place {
    qk_gemm_tile tile;
    uint32_t n; // first column
} place;

QD_INLINE bool has_counted_groups(const qk_gemm_args *g) {
    return !IS_DENSE && (g->grouping == QK_GROUPED_ENDS || g->grouping == QK_GROUPED_MASKED);
}

/** The rows of tiles that there are. All lanes take part. */
QD_INLINE uint32_t count_tiles_m(const qk_gemm_args *g) {
    if (!has_counted_groups(g))
        return g->tiles_m;
    uint32_t count = 0;
    for (uint32_t first = 0; first < g->groups; first += QD_WAVE) {
        const qk_gemm_tile own =
            qk_gemm_group_rows(g, g->grouping == QK_GROUPED_MASKED, first + qd_lane());
        const uint32_t sum = qd_scan_sum(qd_div_up(own.zero_end - own.row, ROWS));
        count += qd_read_lane(sum, QD_WAVE - 1);
    }
    return count;
}

QD_INLINE bool find_group_rows(const qk_gemm_args *g, uint32_t index, qk_gemm_tile *tile) {
    if (has_counted_groups(g))
        return qk_gemm_tile_by_groups(g, g->grouping == QK_GROUPED_MASKED, index, ROWS, tile);
    *tile = (qk_gemm_tile){0, index * ROWS, g->m, 0};
    if (IS_DENSE || g->grouping == QK_DENSE)
        return true;
    tile->group = (uint32_t)g->layout[tile->row]; // of all of the tile's rows that are not padding
    return tile->group < g->groups;
}

/** Finds the rows of a tile; of one lower than what is multiplied, no more than it has. */
QD_INLINE bool find_rows(const qk_gemm_args *g, uint32_t index, qk_gemm_tile *tile) {
    const bool is_found = find_group_rows(g, index, tile);
    if (ROWS < BM) {
        tile->end = qd_min(tile->end, tile->row + ROWS);
        tile->zero_end = qd_min(tile->zero_end, tile->row + ROWS);
    }
    return is_found;
}

/** Finds the place of the tile with number `index`. Returns false if it is nobody's. Bands of tiles
 *  are walked column by column, so that tiles which run at one time share rows of a and of b. All
 *  lanes take part. */
QD_INLINE bool find_place(const qk_gemm_wgmma_args *p, uint32_t tiles_m, uint32_t index,
                          place *at) {
    if (HAS_ONE_TILE) {
        at->n = index % p->g.tiles_n * BN;
        return find_rows(&p->g, index / p->g.tiles_n, &at->tile);
    }
    const uint32_t in_whole = p->band * p->g.tiles_n, band = index / in_whole;
    const uint32_t in_band = index - band * in_whole;
    const uint32_t height = qd_min(p->band, tiles_m - band * p->band);
    at->n = in_band / height * (BN * SIDE_BY_SIDE);
    return find_rows(&p->g, band * p->band + in_band % height, &at->tile);
}

QD_INLINE uint32_t slab_of(const qk_gemm_args *g, const place *at) {
    return !IS_DENSE && g->grouping == QK_GROUPED_MASKED ? at->tile.group : 0;
}

/** Returns whether a box of 64 rows has only rows of the tile's group, or rows past the map's. */
QD_INLINE bool is_whole(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row) {
    if (g->grouping == QK_GROUPED_MASKED && !HAS_SLABS)
        return row + 64 <= tile->end; // the next slab's rows follow
    const uint32_t last = qd_min(row + 64, g->m) - 1;
    if (g->grouping != QK_GROUPED_INDEX)
        return last < tile->end;
    return row < g->m && (ROWS == BM || last < tile->end) &&
           (uint32_t)g->layout[row] == tile->group && (uint32_t)g->layout[last] == tile->group;
}

/** What waves that multiply need of a place: early, so that a tile ends soon. */
typedef struct target {
    uint32_t n;      // first column, or NO_PLACE
    uint32_t row;    // first row, of d's map
    uint32_t boxes;  // bit i: the copy engine stores the tile's rows 64 i to 64 i + 63
    uint32_t others; // lanes store some of them
} target;

/** Finds a place's target. All lanes take part. */
QD_INLINE target target_of(const qk_gemm_wgmma_args *p, const place *at) {
    const qk_gemm_tile *tile = &at->tile;
    const uint32_t row = tile->row + qd_lane() * 64;
    const bool is_here = qd_lane() < BM / 64 && row < qd_max(tile->end, tile->zero_end);
    const bool is_box = is_here && p->has_map_d && is_whole(&p->g, tile, row);
    const uint32_t rows = (uint32_t)qd_ballot(is_here), whole = (uint32_t)qd_ballot(is_box);
    target to = {at->n, slab_of(&p->g, at) * p->slab_d + tile->row, 0, 0};
    QD_UNROLL for (uint32_t team = 0; team < TEAMS; team++) {
        const uint32_t chunks = ((1u << CHUNKS) - 1) << team * CHUNKS;
        if ((whole & chunks) == chunks) // a team stores all of its rows in one way
            to.boxes |= chunks;
        else
            to.others |= rows & chunks;
    }
    return to;
}

/** Returns how many tiles there are. All lanes take part. */
QD_INLINE uint32_t count_tiles(const qk_gemm_args *g) {
    return qd_wave_uniform(count_tiles_m(g)) * g->tiles_n;
}

/** This workgroup's numbers of tiles. The assembler sees that a wave's lanes leave such a loop
 *  together, and so keeps in uniform registers what descriptors are made of; a loop that ends where
 *  a place says so would cost some 20 moves a K-block. */
#define FOR_TILES(i, tiles)                                                                        \
    for (uint32_t i = qd_block(), end_ = HAS_ONE_TILE ? i + 1 : tiles; i < end_;                   \
         i += __gpu_num_blocks(0))

constexpr uint32_t NO_PLACE = ~0u; // as n: the tile is nobody's

/** Tells the other waves a tile's place. All lanes take part. */
QD_INLINE void tell_place(const qk_gemm_wgmma_args *p, uint32_t base, qd_ring *r, const place *at) {
    const uint32_t to = base + PLACE_AT + r->at * PLACE_BYTES;
    const target found = target_of(p, at);
    if (qd_lane() == 0) {
        qd_mbarrier_wait(base + TAKEN_AT + 8 * r->at, r->parity);
        *(QD_LDS qd_u32x4 *)(uintptr_t)to =
            (qd_u32x4){at->tile.group, at->tile.row, at->tile.end, at->tile.zero_end};
        *(QD_LDS qd_u32x4 *)(uintptr_t)(to + 16) =
            (qd_u32x4){found.n, found.row, found.boxes, found.others};
        qd_mbarrier_arrive(base + TOLD_AT + 8 * r->at);
    }
    qd_ring_advance(r, PLACES);
}

/** Returns the place of a target, at whose place the ring is. All lanes take part. */
QD_INLINE place place_of(const qk_gemm_args *g, uint32_t base, const qd_ring *r, const target *to) {
    if (IS_DENSE)
        return (place){{0, to->row, g->m, 0}, to->n};
    const uint32_t from = base + PLACE_AT + r->at * PLACE_BYTES;
    const qd_u32x4 rows = *(const QD_LDS qd_u32x4 *)(uintptr_t)from;
    return (place){.tile = {qd_wave_uniform(rows.x), qd_wave_uniform(rows.y),
                            qd_wave_uniform(rows.z), qd_wave_uniform(rows.w)},
                   .n = to->n};
}

/** Returns the target of the tile with number `i`, whose turn it is. Places of dense products are
 *  found by each wave: to tell them costs 2 to 5 % of the speed. */
QD_INLINE target next_target(const qk_gemm_wgmma_args *p, uint32_t base, const qd_ring *r,
                             uint32_t i) {
    if (IS_DENSE) {
        place at;
        find_place(p, p->g.tiles_m, i, &at);
        return (target){at.n, at.tile.row, 0, ~0u};
    }
    qd_mbarrier_wait(base + TOLD_AT + 8 * r->at, r->parity);
    const uint32_t from = base + PLACE_AT + r->at * PLACE_BYTES + 16;
    const qd_u32x4 v = *(const QD_LDS qd_u32x4 *)(uintptr_t)from;
    return (target){qd_wave_uniform(v.x), qd_wave_uniform(v.y), qd_wave_uniform(v.z),
                    qd_wave_uniform(v.w)};
}

/** Returns the slab of d's map in which a target lies, at whose place the ring is. All lanes take
 *  part. */
QD_INLINE uint32_t slab_of_target(const qk_gemm_args *g, uint32_t base, const qd_ring *r,
                                  const target *to) {
    if (!HAS_SLABS)
        return 0;
    const place at = place_of(g, base, r, to);
    return slab_of(g, &at);
}

/** Says that this wave needs the place no more, and goes to the next one. */
QD_INLINE void leave_place(uint32_t base, qd_ring *r) {
    if (IS_DENSE)
        return;
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

QD_INLINE void load_box(uint32_t to, uint64_t map, uint32_t full, uint32_t x, uint32_t y,
                        uint32_t slab) {
    if (HAS_SLABS)
        qd_tensor_load3(to, map, full, x, y, slab);
    else
        qd_tensor_load2(to, map, full, x, y);
}

/** Copies a K-block, from k on, of an operand's `count` rows from `row` on. */
QD_INLINE void load_operand(bool is_across, uint32_t to, uint64_t map, uint32_t full, uint32_t k,
                            uint32_t row, uint32_t count, uint32_t slab) {
    if (!is_across) {
        load_box(to, map, full, k, row, slab);
        return;
    }
    QD_UNROLL for (uint32_t i = 0; i < count; i += 64)
        load_box(to + i * K_BYTES, map, full, row + i, k, slab);
}

/** Returns the rows of a that a tile's boxes bring. Taller tiles have boxes of their own rows:
 *  ptxas spills sums of theirs if it does not know how many. */
QD_INLINE uint32_t rows_to_load(const qk_gemm_wgmma_args *p, const qk_gemm_tile *tile) {
    if (BM != 64)
        return BM;
    const uint32_t rows = tile->end > tile->row ? qd_min(tile->end - tile->row, ROWS) : 0;
    return qd_div_up(rows, p->box_rows) * p->box_rows;
}

/** Returns how many bytes a stage's copies bring. */
QD_INLINE uint32_t stage_bytes(const qk_gemm_wgmma_args *p, uint32_t rows, bool has_scales) {
    const uint32_t scale_rows = BM == 64 ? qd_min(ROWS, qd_div_up(p->g.m, 8) * 8) : BM;
    return rows * K_BYTES + B_BYTES +
           (has_scales ? scale_rows * (SCALE_A_BYTES / BM) + SCALE_B_BYTES : 0);
}

/** Copies a K-block, from k on, of a's `count` rows from `row` on. */
QD_INLINE void load_a(const qk_gemm_wgmma_args *p, uint32_t to, uint64_t map, uint32_t full,
                      uint32_t k, uint32_t row, uint32_t count, uint32_t slab) {
    if (BM != 64 || QK_A_ACROSS) {
        load_operand(QK_A_ACROSS, to, map, full, k, row, BM, slab);
        return;
    }
    for (uint32_t i = 0; i < count; i += p->box_rows)
        load_box(to + i * K_BYTES, map, full, k, row + i, slab);
}

/** Fills stages with a tile's operands, k after k; one thread. */
QD_INLINE void load_tile(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, qd_ring *r,
                         const place *at, uint32_t block_k) {
    const float *scale_b = SCALE_B_BYTES > 0 ? scales_b(&p->g, at) : nullptr;
    const bool is_last = at->n / 128 == (p->g.n - 1) / 128;
    const bool has_scales = SCALE_A_BYTES > 0 && p->has_scales;
    const uint32_t slab = slab_of(&p->g, at), row = slab * p->slab_a + at->tile.row;
    const uint32_t column = at->tile.group * p->slab_b + at->n;
    const uint32_t rows = rows_to_load(p, &at->tile);
    QD_NO_UNROLL for (uint32_t kb = 0; kb < p->blocks; kb++) {
        const uint32_t full = full_of(base, r), stage = r->at;
        qd_mbarrier_wait(empty_of(base, stage), r->parity);
        qd_mbarrier_expect(full, stage_bytes(p, rows, has_scales));
        if (has_scales) {
            qd_tensor_load2(base + SCALE_A_AT + stage * SCALE_A_BYTES,
                            maps + offsetof(qk_gemm_wgmma_args, scale_a), full, at->tile.row,
                            slab * p->slab_scales + kb);
            load_scales_b(p, base + SCALE_B_AT + stage * SCALE_B_BYTES, scale_b, is_last, kb, full);
        }
        load_a(p, base + A_AT + stage * A_BYTES, maps + offsetof(qk_gemm_wgmma_args, a), full,
               kb * block_k, row, rows, slab);
        load_operand(QK_B_ACROSS, base + B_AT + stage * B_BYTES,
                     maps + offsetof(qk_gemm_wgmma_args, b), full, kb * block_k, column, BN,
                     at->tile.group);
        qd_ring_advance(r, STAGES);
    }
}

/** Finds this workgroup's tiles, tells them, and fills stages with their operands; one wave. */
QD_INLINE void load_tiles(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base,
                          uint32_t block_k) {
    if (!IS_DENSE)
        qd_begin(); // before the layout is read
    const uint32_t tiles_m = HAS_ONE_TILE ? 0 : count_tiles_m(&p->g);
    qd_ring stages = {0, 1}, places = {0, 1};
    FOR_TILES(i, tiles_m * p->g.tiles_n) {
        place at;
        const bool is_found = find_place(p, tiles_m, i, &at);
        at.n = is_found ? at.n : NO_PLACE;
        if (IS_DENSE && i == qd_block())
            qd_begin();
        if (!IS_DENSE)
            tell_place(p, base, &places, &at);
        if (qd_lane() == 0 && is_found)
            load_tile(p, maps, base, &stages, &at, block_k);
        at.n += BN;
        if (SIDE_BY_SIDE == 2 && qd_lane() == 0 && is_found)
            load_tile(p, maps, base, &stages, &at, block_k);
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

#endif
