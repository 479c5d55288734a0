// SPDX-License-Identifier: Apache-2.0
// Lays FP8 weights out in the order of qk_gemm_packed_offset; converts e4m3fn to e4m3fnuz if asked.
//
// Tile      one block of 32 rows x 128 k for each workgroup: 256 pieces of 16 bytes, one a lane
// Launch    256 threads; grid = groups * (packed_n / 32) * (packed_k / 128)
// Edges     rows and k past the end become zero; any row stride, rows aligned to bytes
// Scales    the workgroup of a 128 x 128 block's first 32 rows copies or doubles the block's scale
#include "fp8.h"
#include "gemm_gpu.h"

enum { THREADS = 256 };

QD_INLINE void pack_scale(const qk_gemm_pack_args *g, uint32_t group, uint32_t nb, uint32_t kb) {
    const uint32_t num_nb = qd_div_up(g->n, 128), num_kb = qd_div_up(g->k, 128);
    if (nb >= num_nb || kb >= num_kb)
        return;
    const float scale = g->scale_b[group * g->scale_b_group + nb * g->scale_b_nb + kb];
    g->packed_scale[((int64_t)group * num_nb + nb) * num_kb + kb] =
        g->fn_to_fnuz ? 2 * scale : scale;
}

QD_KERNEL(THREADS) qk_gemm_pack(const qk_gemm_pack_args g) {
    const uint32_t blocks_k = g.packed_k / QK_PACK_K, strips = g.packed_n / QK_PACK_ROWS;
    const uint32_t kb = qd_block() % blocks_k, rest = qd_block() / blocks_k;
    const uint32_t strip = rest % strips, group = rest / strips;
    const uint32_t lane = qd_thread() % 64, row = strip * QK_PACK_ROWS + lane % 32;
    const uint32_t k = kb * QK_PACK_K + qd_thread() / 64 * 32 + lane / 32 * 16;
    qd_u32x4 codes = 0;
    if (row < g.n)
        codes = qk_gemm_load_piece((const uint8_t *)g.b + group * g.b_group + row * g.b_n, k, g.k);
    if (g.fn_to_fnuz) QD_UNROLL
        for (int i = 0; i < 4; i++)
            codes[i] = qd_fp8_fnuz_from_fn(codes[i]);
    uint8_t *out = (uint8_t *)g.packed + (int64_t)group * g.packed_n * g.packed_k;
    *(qd_u32x4 *)(out + qk_gemm_packed_offset(row, k, g.packed_k)) = codes;
    if (strip % 4 == 0 && qd_thread() == 0)
        pack_scale(&g, group, strip / 4, kb);
}
