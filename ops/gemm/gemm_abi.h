// SPDX-License-Identifier: Apache-2.0
// What the host and the GPU kernels of the gemm family share: kernel arguments and the packed
// order.
#ifndef QK_GEMM_ABI_H
#define QK_GEMM_ABI_H

#include "../shared/tensor_map_abi.h"

#include <stdbool.h>
#include <stdint.h>

/** Element types, with the values of qni_dtype. */
enum { QK_F32, QK_F16, QK_BF16, QK_E4M3FN, QK_E4M3FNUZ, QK_E5M2, QK_E5M2FNUZ, QK_I8 = 9 };
/** Types of scales besides f32: words of four exponents, and exponents. */
enum { QK_I32 = 7, QK_E8M0FNU = 10 };

/** As what kernels compiled with -DQK_MIXED multiply elements; gemm_any_types_gpu.h has more. */
enum { QK_BY_BF16, QK_BY_F16, QK_BY_PARTS };

/** How rows are split among groups, with the values of qn_gemm_grouping. */
enum { QK_DENSE, QK_GROUPED_INDEX, QK_GROUPED_ENDS, QK_GROUPED_MASKED };

/** What acts on the product, with the values of qn_gemm_activation. Kernels compiled with -DQK_FULL
 *  know all of them, others those before QK_SILU_AND_MUL. */
enum { QK_NO_ACTIVATION, QK_GELU_TANH, QK_SILU_AND_MUL };

/** The arguments of every gemm kernel: one product. Strides are in elements, dimensions below
 *  2^31. */
typedef struct qk_gemm_args {
    void *d;                        // [groups][m, n]
    const void *a;                  // [groups][m, k]; groups of a and d only when masked
    const void *b;                  // [groups][n, k], or packed
    const void *c;                  // [m, n]; null: nothing is added; groups: qk_gemm_full_args
    const float *scale_a, *scale_b; // [m, ceil(k/128)], [groups][ceil(n/128), ceil(k/128)]; null: 1
    const int32_t *layout;          // masked: null if all rows are real
    int64_t d_group, d_row, c_row;
    int64_t a_group, a_row, a_k;
    int64_t b_group, b_n, b_k;
    int64_t scale_a_group, scale_a_row, scale_a_kb;
    int64_t scale_b_group, scale_b_nb;
    uint32_t m, n, k, groups;
    uint32_t m_alignment;
    uint32_t tiles_m, tiles_n; // of the grid; tiles_m: an upper bound (masked: of one group)
    uint32_t packed_k;         // packed: k rounded up
    uint8_t grouping, type_a, type_b, type_d, is_packed, zero_padding;
    uint8_t has_epilogue; // bias, gate or activation: only kernels that say so read the rest
    uint8_t activation, type_bias, type_gate;
    uint32_t gate_rows; // rows of d that share a row of gate
    const void *bias;   // [n]; null: none
    const void *gate;   // [m / gate_rows, columns of d]; null: none
    int64_t gate_batch;
} qk_gemm_args;

/** How a d of FP8 is scaled. */
typedef struct qk_gemm_scaling {
    float *found;       // [groups][m, ceil(columns of d / 128)]: written; null: given is read
    const float *given; // one scale
    int64_t group, row, nb;
    float eps; // the least largest magnitude
} qk_gemm_scaling;

/** A product as kernels compiled with -DQK_FULL take it. */
typedef struct qk_gemm_full_args {
    qk_gemm_args g;
    qk_gemm_scaling scaling;
    int64_t bias_group; // from a group's bias to the next one's
    int64_t c_group;    // the same of c
} qk_gemm_full_args;

/** A product as kernels compiled with -DQK_MIXED take it: of any types, with scales of any type and
 *  form, whose strides are 0 where one scale stands for all. Of words, kb's stride counts words. */
typedef struct qk_gemm_mixed_args {
    qk_gemm_full_args f; // in f.g scale_a and scale_b are null each by itself, and of any type
    int64_t scale_b_kb;
    uint32_t scale_b_columns; // nb counts so many columns
    uint8_t how;              // QK_BY_BF16, …
    uint8_t type_scale_a, type_scale_b;
} qk_gemm_mixed_args;

/** A product as the kernels of Hopper's tensor cores take it. The maps are of rank 2: the rows of
 *  all of a matrix's groups lie one below the other; but QK_FORM 3 has the groups of a, b and d in
 *  a third dimension. */
typedef struct qk_gemm_wgmma_args {
    // Boxes: 128 bytes of k by box_rows, by the tile's columns; across, 64 of these, or 32 columns
    // of a tile that has no more, by 64 of k.
    qk_tensor_map a, b;
    // 64 rows by 64 columns, or by the tile's if it has fewer; codes: by 128; pairs: by 64, 32 or
    // 16, of which the tile's columns of d are a multiple.
    qk_tensor_map d;
    qk_tensor_map scale_a; // [groups][ceil(k/128), m]: box_rows of one K-block
    qk_gemm_args g;
    // Rows of the maps from one group to the next; 0 where a third dimension counts groups.
    uint32_t slab_a, slab_b, slab_d, slab_scales;
    uint32_t blocks;    // of k
    uint32_t band;      // rows of tiles that are walked column by column
    uint8_t has_map_d;  // boxes are stored, and epilogues act in registers; else lanes do both
    uint8_t has_steps;  // c or an epilogue
    uint8_t has_scales; // the copy engine takes scales, a's by the map and b's in runs; else lanes
    qk_gemm_scaling scaling; // QK_FORM 4: d is e4m3fn
    int64_t bias_group;      // QK_PAIRS: from a group's bias to the next one's
    uint32_t box_rows;       // of a's boxes: the tile's; a tile of 64's fewer where a has fewer
} qk_gemm_wgmma_args;

/** Weights to be laid out for the matrix cores. Strides are in elements. */
typedef struct qk_gemm_pack_args {
    void *packed;        // [groups][packed_n, packed_k] in the order of qk_gemm_packed_offset
    float *packed_scale; // [groups, ceil(n/128), ceil(k/128)], contiguous
    const void *b;       // [groups][n, k], k contiguous
    const float *scale_b;
    int64_t b_group, b_n;
    int64_t scale_b_group, scale_b_nb;
    uint32_t groups, n, k, packed_n, packed_k;
    uint8_t fn_to_fnuz; // 1: e4m3fn becomes e4m3fnuz, scales double
} qk_gemm_pack_args;

/** The packed order: strips of 32 rows; in a strip, K-blocks of 128; in a block, 4 x 64 pieces of
 *  16 bytes.
 *
 *  Piece j of lane l holds k = 32 j + 16 (l / 32) + 0..15 of row l % 32, so that one 16-byte load a
 *  lane fetches what two v_mfma_f32_32x32x16 take, and a wave's load is 1 KiB in a row. packed_n
 *  and packed_k are multiples of 128. */
enum { QK_PACK_ROWS = 32, QK_PACK_K = 128, QK_PACK_BLOCK = QK_PACK_ROWS * QK_PACK_K };

/** Returns the byte at which element (row, k) lies in one group's packed matrix. */
static inline int64_t qk_gemm_packed_offset(uint32_t row, uint32_t k, uint32_t packed_k) {
    const int64_t strip = (int64_t)(row / QK_PACK_ROWS) * packed_k * QK_PACK_ROWS;
    const uint32_t block = k / QK_PACK_K * QK_PACK_BLOCK, in = k % QK_PACK_K;
    return strip + block + in / 32 * 1024 + in % 32 / 16 * 512 + row % 32 * 16 + in % 16;
}

#endif
