// SPDX-License-Identifier: Apache-2.0
// bf16 gemm by Hopper's tensor cores: persistent workgroups, weights as checkpoints hold them.
//
// Needs     sm_90a; k contiguous in a and in b, or with QK_A_ACROSS m in a, with QK_B_ACROSS n in b
// Tile      QK_BM x QK_BN x 64; QK_TEAMS teams multiply, each 64 rows
// Launch    (QK_TEAMS + 1) * 128 threads, at most as many workgroups as multiprocessors; each walks
//           tiles
// LDS       QK_PASS columns of d's tile, then QK_STAGES of a's and b's tile (128-byte swizzle), and
//           two barriers a stage
// Registers a thread's sums
// Roles     one wave of the last team loads by the copy engine; the others multiply and store
// Edges     what lies outside m, n and k reads as zero; rows of others are stored by lanes, as is
//           d in f32
// Sum       in f32, by the tensor cores, k after k
// Schedule  a block's product runs while the next one's operands are awaited
#include "../gemm_abi.h"

enum { SCALE_A_BYTES = 0, SCALE_B_BYTES = 0, BLOCK_K = 64 };
#include "gemm_wgmma_store_gpu.h"

#define KIND "m64n" QD_TEXT(QK_BN) "k16.f32.bf16.bf16"
#define LAST "1, 1, " QD_TEXT(QK_A_ACROSS) ", " QD_TEXT(QK_B_ACROSS)

// Sixteen k further, in descriptors.
enum {
    B_ROW_BYTES = BN < 64 ? BN * 2 : K_BYTES, // across
    STEP_A = QK_A_ACROSS ? K_BYTES : 2,
    STEP_B = QK_B_ACROSS ? B_ROW_BYTES : 2,
};

/** The descriptor of an operand's tile of `rows` rows, and a K-block. */
QD_INLINE uint64_t tile_of(bool is_across, uint32_t at, uint32_t rows) {
    if (!is_across)
        return qd_wgmma_tile(at);
    return rows < 64 ? qd_wgmma_tile_across_32(at) : qd_wgmma_tile_across(at, 64 * K_BYTES);
}

QD_INLINE void start(uint32_t base, uint32_t stage, uint32_t team, float sum[SUMS]) {
    const uint64_t a =
        tile_of(QK_A_ACROSS, base + A_AT + team * 64 * K_BYTES, 64) + stage * (A_BYTES / 16);
    const uint64_t b = tile_of(QK_B_ACROSS, base + B_AT, BN) + stage * (B_BYTES / 16);
    qd_wgmma_begin();
    QD_WGMMA(KIND, LAST, SUMS, 1, sum, a, b);
    QD_WGMMA(KIND, LAST, SUMS, 1, sum, a + STEP_A, b + STEP_B);
    QD_WGMMA(KIND, LAST, SUMS, 1, sum, a + 2 * STEP_A, b + 2 * STEP_B);
    QD_WGMMA(KIND, LAST, SUMS, 1, sum, a + 3 * STEP_A, b + 3 * STEP_B);
    qd_wgmma_commit();
}

/** The sums of one tile. */
QD_INLINE void multiply(const qk_gemm_wgmma_args *p, uint32_t base, qd_ring *r, uint32_t team,
                        float sum[SUMS]) {
    uint32_t last = r->at, left = count_blocks(p);
    bool is_first = true;
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
        sum[i] = 0;
    // At least once: sums under way must not meet others where a skipped loop would end.
    QD_NO_UNROLL do {
        qd_mbarrier_wait(full_of(base, r), r->parity);
        start(base, r->at, team, sum);
        qd_wgmma_wait_before_last();
        if (!is_first)
            release(base, last);
        is_first = false;
        last = r->at;
        qd_ring_advance(r, STAGES);
    } while (--left > 0);
    QD_WGMMA_WAIT(SUMS, sum);
    release(base, last);
}

QD_INLINE void run_tiles(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, uint32_t team) {
    qd_ring r = {0, 0}, places = {0, 0};
    FOR_TILES(i, count_tiles(&p->g)) {
        const target to = next_target(p, base, &places, i);
        if (IS_DENSE || to.n != NO_PLACE) {
            float sum[CHUNKS][SUMS];
            if (HAS_STEPS && p->has_steps)
                expect_epilogue(p, team, &to);
            multiply(p, base, &r, team, sum[0]);
            store(p, maps, base, &places, team, &to, sum);
        }
        leave_place(base, &places);
    }
    wait_for_stores(team); // LDS goes with the workgroup
}

static_assert(CHUNKS == 1, "a team has 64 rows");

QD_KERNEL_HEAD(THREADS, LDS_BYTES, "", qk_gemm_bf16_wgmma)(const qk_gemm_wgmma_args p) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    const uint64_t maps = QD_ARGUMENTS(qk_gemm_bf16_wgmma);
    make_rings(base, false);
    prefetch_maps(maps);
    if (team < TEAMS) {
        qd_begin();
        TEAM_REGISTERS();
        run_tiles(&p, maps, base, team);
    } else {
        LOADER_REGISTERS();
        if (qd_wave_uniform(qd_wave() % 4) == 0)
            load_tiles(&p, maps, base, BLOCK_K);
    }
}
