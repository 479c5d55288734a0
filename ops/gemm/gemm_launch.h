// SPDX-License-Identifier: Apache-2.0
// What the host sides of the family's GPU kernels share: arguments, tiles, the rows that groups are
// likely to have.
#ifndef QNI_GEMM_LAUNCH_H
#define QNI_GEMM_LAUNCH_H

#include "gemm.h"
#include "gemm_abi.h"

/** Returns how many tiles of `rows` by `columns` there may be. */
int64_t qni_gemm_count_tiles(const qni_gemm_problem *p, int64_t rows, int64_t columns);
/** Returns whether 32 bits can count the problem's rows, columns, k and tiles. */
bool qni_gemm_fits_grid(const qni_variant *variant, const qni_gemm_problem *p, qni_reason *why);
qk_gemm_args qni_gemm_kernel_args(const qni_gemm_problem *p, int64_t rows, int64_t columns);
/** Writes why a problem is not for a kernel that takes block scales of f32 alone. Returns false. */
bool qni_gemm_fail_scales(const qni_gemm_problem *p, qni_reason *why);
/** Returns how a d of FP8 is scaled. */
qk_gemm_scaling qni_gemm_scaling(const qni_gemm_problem *p);
/** Launches one of the variant's kernels, which was compiled with -DQK_FULL. */
qn_status qni_gemm_tiled_full(const qni_variant *variant, qn_stream *stream, const void *problem,
                              int kernel);
/** Returns the rows that a group is likely to have. */
int64_t qni_gemm_likely_rows(const qni_gemm_problem *p);

#endif
