// SPDX-License-Identifier: Apache-2.0
// FP8 gemm with block scales by Hopper's tensor cores: persistent workgroups, weights as
// checkpoints hold them.
//
// Needs     sm_90a; e4m3fn, k contiguous in a and in b
// Tile      QK_BM x QK_BN x 128; QK_TEAMS teams multiply, each QK_BM / QK_TEAMS rows
// Launch    (QK_TEAMS + 1) * 128 threads, at most as many workgroups as multiprocessors; each walks
//           tiles. QK_BESIDE: a workgroup a tile
// LDS       d's tile, then QK_STAGES of a's and b's tile (128-byte swizzle), their scales, and two
//           barriers a stage
// Registers a thread's sums, and those of the product under way
// Roles     the last team loads: one wave by the copy engine, and a second one the scales, if their
//           strides are not for the copy engine; the others multiply and store
// Edges     what lies outside m, n and k reads as zero; rows of others are stored by lanes, as is
//           d in f32
// Sum       as everywhere in the family: K-block after K-block, fma(partial, scale of a * scale of
//           b, sum). The tensor cores keep 14 bits of a sum of FP8 products within a K-block.
// Schedule  a team tests the next stage's barrier while its product runs, and promotes while the
//           other teams' products run
#include "../gemm_abi.h"

enum { SCALE_A_BYTES = QK_BM * 4, SCALE_B_BYTES = 128 % QK_BN ? 32 : 16 };
#include "gemm_wgmma_store_gpu.h"

#define KIND "m64n" QD_TEXT(QK_BN) "k32.f32.e4m3.e4m3"

/** Copies both operands' scales to LDS, whatever their strides; one wave. */
QD_INLINE void load_tile_scales(const qk_gemm_args *g, uint32_t base, qd_ring *r, const place *at) {
    const uint32_t lane = qd_lane(), row = at->tile.row + lane;
    const float *a = g->scale_a + slab_of(g, at) * g->scale_a_group + (int64_t)row * g->scale_a_row;
    const uint32_t nb = qd_min(at->n / 128 + lane, (g->n - 1) / 128);
    const float *b = g->scale_b + at->tile.group * g->scale_b_group + nb * g->scale_b_nb;
    for (uint32_t kb = 0; kb < qd_div_up(g->k, 128); kb++) {
        const uint32_t stage = r->at, to = base + SCALE_A_AT + stage * SCALE_A_BYTES + 4 * lane;
        qd_mbarrier_wait(empty_of(base, stage), r->parity);
        QD_UNROLL for (uint32_t i = 0; i < BM; i += QD_WAVE) {
            const bool is_in = row + i < g->m;
            qd_copy_f32(to + 4 * i,
                        is_in ? a + i * g->scale_a_row + kb * g->scale_a_kb : g->scale_a, is_in);
        }
        if (lane < SCALE_B_BYTES / 16)
            qd_copy_f32(base + SCALE_B_AT + stage * SCALE_B_BYTES + lane * 16 + kb % 4 * 4, b + kb,
                        true);
        qd_mbarrier_arrive_copies(full_of(base, r));
        qd_ring_advance(r, STAGES);
    }
}

QD_INLINE void load_scales(const qk_gemm_wgmma_args *p, uint32_t base) {
    qd_ring r = {0, 1}, places = {0, 0};
    FOR_TILES(i, count_tiles(&p->g)) {
        const target to = next_target(p, base, &places, i);
        if (to.n != NO_PLACE) {
            place at = place_of(&p->g, base, &places, &to);
            load_tile_scales(&p->g, base, &r, &at);
            at.n += BN;
            if (SIDE_BY_SIDE == 2)
                load_tile_scales(&p->g, base, &r, &at);
        }
        leave_place(base, &places);
    }
}

/** Whether scales are read while their block's product runs. Before it, they wait in registers that
 *  three teams do not have; one or two teams are up to 9 % slower if they read late. */
enum { READS_LATE = TEAMS == 3 };

typedef struct scales {
    float row0, row8;  // of a, rows r and r + 8
    float left, right; // of b, columns before the edge and from it on
} scales;

/** Reads a K-block's scales for this thread's rows of a chunk. */
QD_INLINE scales read_scales(uint32_t base, uint32_t stage, uint32_t row, uint32_t kb) {
    const uint32_t own = row + qd_thread() % QD_TEAM / 32 * 16 + qd_lane() / 4;
    const uint32_t a = base + SCALE_A_AT + stage * SCALE_A_BYTES + 4 * own;
    const uint32_t b = base + SCALE_B_AT + stage * SCALE_B_BYTES + kb % 4 * 4;
    return (scales){qd_lds_f32(a), qd_lds_f32(a + 32), qd_lds_f32(b),
                    SCALE_B_BYTES == 32 ? qd_lds_f32(b + 16) : 0};
}

/** Starts the product of 64 rows of a stage's a, from `row` on, and its b. */
QD_INLINE void start(uint32_t base, uint32_t stage, uint32_t row, float part[SUMS]) {
    const uint64_t a = qd_wgmma_tile(base + A_AT + row * K_BYTES) + stage * (A_BYTES / 16);
    const uint64_t b = qd_wgmma_tile(base + B_AT) + stage * (B_BYTES / 16);
    qd_wgmma_begin();
    QD_WGMMA(KIND, "1, 1", SUMS, 0, part, a, b);
    QD_WGMMA(KIND, "1, 1", SUMS, 1, part, a + 2, b + 2);
    QD_WGMMA(KIND, "1, 1", SUMS, 1, part, a + 4, b + 4);
    QD_WGMMA(KIND, "1, 1", SUMS, 1, part, a + 6, b + 6);
    qd_wgmma_commit();
}

QD_INLINE void promote(float sum[SUMS], const float part[SUMS], scales s, uint32_t edge) {
    QD_UNROLL for (uint32_t g = 0; g < GROUPS; g++) {
        const float b = g < edge ? s.left : s.right, scale0 = s.row0 * b, scale8 = s.row8 * b;
        sum[4 * g] = __builtin_fmaf(scale0, part[4 * g], sum[4 * g]);
        sum[4 * g + 1] = __builtin_fmaf(scale0, part[4 * g + 1], sum[4 * g + 1]);
        sum[4 * g + 2] = __builtin_fmaf(scale8, part[4 * g + 2], sum[4 * g + 2]);
        sum[4 * g + 3] = __builtin_fmaf(scale8, part[4 * g + 3], sum[4 * g + 3]);
    }
}

/** Adds K-block kb to the sums. `is_full`: its stage is known to be full; returns whether the next
 *  one's is. */
QD_INLINE bool add_block(uint32_t base, qd_ring *r, uint32_t team, uint32_t kb, bool is_full,
                         float sum[CHUNKS][SUMS], uint32_t edge) {
    const uint32_t stage = r->at;
    if (!is_full)
        qd_mbarrier_wait(full_of(base, r), r->parity);
    is_full = false;
    qd_ring_advance(r, STAGES);
    QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t row = (team * CHUNKS + c) * 64;
        float part[SUMS] = {0};
        scales s = {};
        if (!READS_LATE)
            s = read_scales(base, stage, row, kb);
        start(base, stage, row, part);
        if (READS_LATE)
            s = read_scales(base, stage, row, kb);
        if (c == CHUNKS - 1)
            is_full = qd_mbarrier_test(full_of(base, r), r->parity); // its latency passes unseen
        QD_WGMMA_WAIT(SUMS, part);
        if (c == CHUNKS - 1)
            release(base, stage);
        promote(sum[c], part, s, edge);
    }
    return is_full;
}

/** The sums of one tile; column groups from `edge` on have b's second scale. */
QD_INLINE void multiply(const qk_gemm_wgmma_args *p, uint32_t base, qd_ring *r, uint32_t team,
                        float sum[CHUNKS][SUMS], uint32_t edge) {
    QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++) QD_UNROLL
        for (uint32_t i = 0; i < SUMS; i++)
            sum[c][i] = 0;
    bool is_full = false;
    if (IS_TIGHT) {
        QD_NO_UNROLL for (uint32_t kb = 0; kb < p->blocks; kb++)
            is_full = add_block(base, r, team, kb, is_full, sum, edge);
        return;
    }
    uint32_t kb = 0, left = count_blocks(p);
    QD_NO_UNROLL do
        is_full = add_block(base, r, team, kb++, is_full, sum, edge);
    while (--left > 0);
}

/** Multiplies two tiles side by side, and stores their pairs as codes. */
QD_INLINE void run_two(const qk_gemm_wgmma_args *p, uint32_t base, qd_ring *r,
                       const qd_ring *places, uint32_t team, const target *to) {
    const uint32_t region = qd_opaque(base) + team * TEAM_D_BYTES;
    const place at = place_of(&p->g, base, places, to);
    float pair[2][PAIRS];
    QD_UNROLL for (uint32_t t = 0; t < 2; t++) {
        float sum[CHUNKS][SUMS];
        multiply(p, base, r, team, sum, GROUPS);
        make_pairs(p, region, team, at.tile.group, at.n + t * BN, sum[0], pair[t]);
    }
    store_pair_codes(p, region, team, &at, pair);
}

QD_INLINE void run_tiles(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, uint32_t team) {
    qd_ring r = {0, 0}, places = {0, 0};
    FOR_TILES(i, count_tiles(&p->g)) {
        const target to = next_target(p, base, &places, i);
        if (SIDE_BY_SIDE == 2) {
            if (to.n != NO_PLACE)
                run_two(p, base, &r, &places, team, &to);
        } else if (IS_DENSE || to.n != NO_PLACE) {
            float sum[CHUNKS][SUMS];
            if (HAS_STEPS && p->has_steps)
                expect_epilogue(p, team, &to);
            if (BN == 192 && to.n % 128 != 0)
                multiply(p, base, &r, team, sum, 8);
            else
                multiply(p, base, &r, team, sum, 16);
            store(p, maps, base, &places, team, &to, sum);
        }
        leave_place(base, &places);
    }
    wait_for_stores(team); // LDS goes with the workgroup
}

QD_KERNEL_HEAD_BESIDE(QK_BESIDE, THREADS, LDS_BYTES, "", qk_gemm_fp8_wgmma)
(const qk_gemm_wgmma_args p) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    const uint64_t maps = QD_ARGUMENTS(qk_gemm_fp8_wgmma);
    make_rings(base, !p.has_scales);
    prefetch_maps(maps);
    if (team < TEAMS) {
        qd_begin();
        TEAM_REGISTERS();
        run_tiles(&p, maps, base, team);
    } else {
        LOADER_REGISTERS();
        const uint32_t wave = qd_wave_uniform(qd_wave() % 4);
        if (wave == 0)
            load_tiles(&p, maps, base, 128);
        else if (wave == 1 && !p.has_scales) {
            qd_begin();
            load_scales(&p, base);
        }
    }
}
