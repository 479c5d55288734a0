// SPDX-License-Identifier: Apache-2.0
// Layouts of scales. A valid problem is the struct that kernels take; scales.c has checked
// everything, also that counts are below 2^31.
#ifndef QNI_SCALES_H
#define QNI_SCALES_H

#include "layout.h"
#include "scales_abi.h"

typedef qk_scales_args qni_scales_problem;
typedef qk_k_scales_args qni_k_scales_problem;

extern const qni_op qni_op_scales, qni_op_scales_k_grouped;

#endif
