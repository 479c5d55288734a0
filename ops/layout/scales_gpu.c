// SPDX-License-Identifier: Apache-2.0
// Lays out scales: transposes them, broadcasts them to rows, rounds them to powers of two, packs
// them into words of UE8M0, and unpacks such words.
//
// Needs     nothing beyond vector instructions
// Tile      a lane moves four scales of a row: four f32, or a word; lanes go along rows, in which
//           required layouts are contiguous
// Launch    256 threads; grid = tiles of rows x quads x groups. Workgroups step through what is
//           left
// LDS       none: a row-major input's lines are read by neighbouring workgroups, out of the second
//           cache
// Edges     any shape and stride; scales that a word has no room for are 0; rows of no group are
//           left alone
// Source    DeepGEMM's transpose_fp32, transpose_and_pack_fp32_into_ue8m0 and pack_fp32_into_ue8m0,
//           for their results
#include "gpu.h"
#include "scales_abi.h"

QD_KERNEL(QK_SCALES_THREADS) qk_scales(const qk_scales_args g) {
    const uint32_t step = __gpu_num_blocks(0) * QK_SCALES_THREADS;
    for (uint32_t group = __gpu_block_id(2); group < g.groups; group += __gpu_num_blocks(2))
        for (uint32_t quad = __gpu_block_id(1); quad < g.quads; quad += __gpu_num_blocks(1))
            for (uint32_t row = qd_block() * QK_SCALES_THREADS + qd_thread(); row < g.rows;
                 row += step)
                qk_move_quad(&g, group, quad, row);
}

QD_KERNEL(QK_SCALES_THREADS) qk_scales_k_grouped(const qk_k_scales_args g) {
    const uint32_t step = __gpu_num_blocks(0) * QK_SCALES_THREADS;
    for (uint32_t word = __gpu_block_id(1); word < g.words; word += __gpu_num_blocks(1)) {
        const qk_k_word w = qk_find_k_word(&g, word);
        for (uint32_t row = qd_block() * QK_SCALES_THREADS + qd_thread(); row < g.rows; row += step)
            qk_move_k_quad(&g, w, word, row);
    }
}
