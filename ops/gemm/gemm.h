// SPDX-License-Identifier: Apache-2.0
// What the files of the gemm family share: a checked problem, which kernels take.
#ifndef QNI_GEMM_H
#define QNI_GEMM_H

#include "../shared/elements.h"
#include "../shared/round.h"

#include <quern/gemm.h>

enum {
    QNI_GEMM_GROUP = 128, // columns of d that share an element of scale_d
    // A kernel's flags.
    QNI_GEMM_WIDENS = 1,     // of FP8 a workgroup computes a whole group
    QNI_GEMM_A_ACROSS = 2,   // m, not k, is contiguous in a
    QNI_GEMM_B_ACROSS = 4,   // n, not k, is contiguous in b
    QNI_GEMM_BY_F16 = 8,     // multiplies f16; else bf16
    QNI_GEMM_BY_PARTS = 16,  // multiplies sums of two bf16
    QNI_GEMM_PAIRS = 32,     // Hopper: SiLU-and-multiply alone
    QNI_GEMM_ALONE = 64,     // has two stages of LDS, and so a compute unit to itself
    QNI_GEMM_ONE_TILE = 128, // Hopper: a workgroup has one tile, beside others on a multiprocessor
    QNI_GEMM_WIDE = 256,     // its tile fills a compute unit
    QNI_GEMM_BY_FP8 = 512,   // multiplies FP8 of the cores' kind
};

/** A valid problem: gemm.c has checked every pointer, shape, stride and dtype. Strides are in
 *  elements. */
typedef struct qni_gemm_problem {
    qn_gemm_grouping grouping;           // batches: masked, layout null, as all rows are real
    qni_dtype dtype_a, dtype_b, dtype_d; // a and b f32, f16, bf16, FP8 or i8 in any mix
    int64_t groups;                      // 1 when dense
    int64_t m, n, k; // n: the product's columns; masked: m is the slab's rows (m_max)
    void *d;
    const void *a, *b, *c; // c null: nothing is added
    const void *bias;      // [groups, n]; null: none
    const void *gate;      // [m / gate_rows, columns of d]; null: none
    qni_dtype dtype_bias, dtype_gate;
    int64_t bias_group;
    int64_t gate_rows, gate_batch; // gate_rows rows of d share a row of gate
    qn_gemm_activation activation;
    const void *scale_a, *scale_b; // null: 1
    const int32_t *layout;         // on the device; null when dense and of batches
    float *scale_d;                // d of FP8: written; null: given_scale_d is read
    const float *given_scale_d;    // null: d is not FP8, or has scales that are written
    int64_t scale_d_group, scale_d_row, scale_d_nb;
    float eps;              // the least largest magnitude of scale_d's groups
    int64_t d_group, d_row; // columns are contiguous
    int64_t c_group, c_row;
    int64_t a_group, a_row, a_k; // a_row or a_k is 1
    int64_t b_group, b_n, b_k;   // b_n or b_k is 1; both unused when packed
    // f32; e8m0fnu, exponents; or i32, four exponents of neighbouring K-blocks a word, which kb's
    // stride then counts.
    qni_dtype dtype_scale_a, dtype_scale_b;
    // Strides are 0 where one scale stands for all.
    int64_t scale_a_group, scale_a_row, scale_a_kb;
    int64_t scale_b_group, scale_b_nb, scale_b_kb;
    int64_t scale_b_columns;         // nb counts so many columns: 128 or 1
    int64_t m_alignment, expected_m; // m_alignment: above 0 with groups by ends
    bool is_packed, zero_padding;
    int64_t packed_n, packed_k; // packed: n and k rounded up as qn_gemm_packed_shape said
} qni_gemm_problem;

/** Checked weights to be packed. dtype_out is the dtype that qn_gemm_packed_shape gave. */
typedef struct qni_gemm_pack_problem {
    qni_dtype dtype_in, dtype_out;
    int64_t groups, n, k, packed_n, packed_k;
    const void *b;
    int64_t b_group, b_n; // k is contiguous
    const float *scale_b;
    int64_t scale_b_group, scale_b_nb;
    void *packed;        // [groups, packed_n, packed_k] bytes in the device's order
    float *packed_scale; // [groups, ceil(n/128), ceil(k/128)]
} qni_gemm_pack_problem;

static inline bool qni_gemm_is_e4m3(qni_dtype dtype) {
    return dtype == QNI_E4M3FN || dtype == QNI_E4M3FNUZ;
}
/** Returns whether the dtype is bf16 or e4m3, which most kernels are for. */
static inline bool qni_gemm_is_usual(qni_dtype dtype) {
    return dtype == QNI_BF16 || qni_gemm_is_e4m3(dtype);
}
/** Returns whether the dtype is no code: f32, f16, bf16. */
static inline bool qni_gemm_is_float(qni_dtype dtype) {
    return dtype == QNI_F32 || dtype == QNI_F16 || dtype == QNI_BF16;
}

/** Returns how many columns of the product make one of d. */
static inline int64_t qni_gemm_ratio(const qni_gemm_problem *p) {
    return p->activation == QN_GEMM_SILU_AND_MUL ? 2 : 1;
}
/** Returns the columns of d, c and gate. */
static inline int64_t qni_gemm_columns(const qni_gemm_problem *p) {
    return p->n / qni_gemm_ratio(p);
}

/** Returns whether more than c acts on the product before it is rounded. */
static inline bool qni_gemm_has_epilogue(const qni_gemm_problem *p) {
    return p->bias || p->gate || p->activation != QN_GEMM_NO_ACTIVATION;
}

/** Returns whether the problem is for kernels with all forms of a product's end: on GPUs those of
 *  images of their own (-DQK_FULL). A kernel that has no such image must refuse the problem. */
static inline bool qni_gemm_needs_full(const qni_gemm_problem *p) {
    return p->activation == QN_GEMM_SILU_AND_MUL ||
           (p->dtype_d != QNI_F32 && p->dtype_d != QNI_BF16) ||
           (p->grouping != QN_GEMM_DENSE && (p->c || qni_gemm_has_epilogue(p)));
}

/** Returns whether there are no scales to be read. */
static inline bool qni_gemm_has_no_scales(const qni_gemm_problem *p) {
    return p->k == 0 || (!p->scale_a && !p->scale_b);
}
/** Returns the scale of K-block kb, where that of block 0 is element `at`; 1 without scales. */
static inline float qni_gemm_scale(const void *scales, qni_dtype dtype, int64_t at, int64_t kb,
                                   int64_t kb_stride) {
    const uint8_t *e = scales;
    if (!scales)
        return 1;
    if (dtype == QNI_F32)
        return ((const float *)scales)[at + kb * kb_stride];
    return qni_e8m0_decode(dtype == QNI_I32 ? e[(at + kb / 4 * kb_stride) * 4 + kb % 4]
                                            : e[at + kb * kb_stride]);
}

static inline bool qni_gemm_steps(int64_t count, int64_t stride) {
    return count <= 1 || stride != 0;
}
/** Returns whether scales are f32, of 1 x 128 elements of a and 128 x 128 of b, b's with kb
 *  contiguous: the form that kernels read which know one form. */
static inline bool qni_gemm_has_block_scales(const qni_gemm_problem *p) {
    if (p->k == 0)
        return true;
    const int64_t kb = qni_pieces(p->k, 128);
    const int64_t slabs = p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
    return p->scale_a && p->scale_b && p->dtype_scale_a == QNI_F32 && p->dtype_scale_b == QNI_F32 &&
           p->scale_b_columns == 128 && p->scale_b_kb == 1 &&
           qni_gemm_steps(slabs, p->scale_a_group) && qni_gemm_steps(p->m, p->scale_a_row) &&
           qni_gemm_steps(kb, p->scale_a_kb) && qni_gemm_steps(p->groups, p->scale_b_group) &&
           qni_gemm_steps(qni_pieces(p->n, 128), p->scale_b_nb);
}

/** Returns how many neighbouring columns of the product a kernel must have together: those of a
 *  group of scale_d. */
static inline int64_t qni_gemm_together(const qni_gemm_problem *p) {
    return p->scale_d ? QNI_GEMM_GROUP * qni_gemm_ratio(p) : 1;
}

extern const qni_op qni_op_gemm, qni_op_gemm_pack;

/** Checks the arguments and fills the problem. Error messages begin with op. All tensors must be on
 *  the stream's device. */
qn_status qni_gemm_problem_set(qni_gemm_problem *problem, qn_stream *stream, const char *op,
                               const qn_gemm_args *args, qn_gemm_grouping grouping);

/** Makes batches that share b, and whose rows follow each other in every tensor, one product of all
 *  rows. It takes faster kernels, and b is read once. */
void qni_gemm_join_batches(qni_gemm_problem *problem);

// ---- which rows belong to which group (gemm_ref.c); layout must be host memory

enum {
    QNI_GEMM_ROW_UNTOUCHED = -1, // d keeps what it holds
    QNI_GEMM_ROW_ZERO = -2,      // padding that becomes zero
};
/** Returns the group of row m of slab `slab` (0 unless masked), or a constant of the enum above. A
 *  row whose group id or end is out of range is untouched, so that bad layouts never lead outside
 *  the tensors. */
int64_t qni_gemm_row_group(const qni_gemm_problem *problem, int64_t slab, int64_t m);

// ---- the definition (gemm_ref.c)

/** What kernels of a device may lose besides what f32 loses. */
enum {
    QNI_GEMM_CUTS_FP8 = 1,   // Hopper's tensor cores cut sums of FP8 products
    QNI_GEMM_SPLITS_F32 = 2, // f32 is a sum of two bf16, which three products multiply
    QNI_GEMM_SPLITS_F16 = 4, // and so is f16 in any mix, not only beside f32 and bf16
};
uint32_t qni_gemm_losses(const qn_device *device);

/** Computes d in double precision, before rounding to dtype_d. `d` is [slabs * m, columns of d]
 *  contiguous, where slabs is groups if the problem is masked, else 1. Rows that the problem does
 *  not write are left alone. `bound` has d's shape and may be null; it gets how far from d a kernel
 *  may be that multiplies and adds in f32, before rounding to dtype_d. All pointers are host
 *  memory. Packed problems are not taken: the reference reads weights as they were before packing.
 *  gemm_ref.c says how much the losses are. */
void qni_gemm_ref(const qni_gemm_problem *problem, uint32_t losses, double *d, double *bound);

// ---- packed weights (gemm_pack.c)

/** Gives the tile to whose multiples the device's packed matrices are padded. */
void qni_gemm_pack_tiles(const qn_device *device, int64_t *tile_n, int64_t *tile_k);
/** Returns the FP8 kind in which weights of `dtype` are packed for the device. */
qni_dtype qni_gemm_pack_dtype(const qn_device *device, qni_dtype dtype);
/** Returns where element [n, k] of a group's [packed_n, packed_k] bytes lies. This function defines
 *  the layouts. */
int64_t qni_gemm_packed_offset(const qn_device *device, int64_t packed_k, int64_t n, int64_t k);
/** Returns the packed byte for `byte`, where weights of dtype_in are packed as dtype_out. */
uint8_t qni_gemm_pack_byte(qni_dtype dtype_in, qni_dtype dtype_out, uint8_t byte);

// ---- kernels: what variants.def lists; those of GPUs are in gemm_launch.c

#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

#endif
