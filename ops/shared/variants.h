// SPDX-License-Identifier: Apache-2.0
// An op's table of kernels, out of its family's variants.def, which has the lines of all its ops:
//
//   #define QN_TABLE_OF_gemm 0,
//   static const qni_variant gemm_variants[] = {
//   #include "variants.def"
//   };
//   #undef QN_TABLE_OF_gemm
//
// Lines of ops whose QN_TABLE_OF_op is not defined vanish. For the one file that makes a family's
// tables.
#ifndef QNI_VARIANTS_H
#define QNI_VARIANTS_H

#include "../../runtime/runtime.h"

// The third column of variants.def.
#define CPU true
#define GPU false

// An op over its table.
#define QN_OP(name, table) {(name), (table), sizeof(table) / sizeof *(table)}

#define QN_IMAGE(...)
#define QN_VARIANT(op, kernel, where, needs, supports, cost, run, ...)                             \
    QN_FIND_SECOND(QN_TABLE_OF_##op QN_KEEP_LINE, QN_DROP_LINE, 0)                                 \
    (#op "." #kernel, {.all = needs}, where, supports, cost, run, {__VA_ARGS__})

// Needs of both kinds: all of the first, and one of the second.
#define QN_NEEDS(all_of, one_of) all_of, .any = one_of

// Kernels of one entry point for each dtype: qk_rms_f32, qk_rms_f16, qk_rms_bf16.
#define QN_BY_DTYPE(image_id, prefix)                                                              \
    .kernel = {{.image = image_id, .entry = prefix "_f32"},                                        \
               {.image = image_id, .entry = prefix "_f16"},                                        \
               {.image = image_id, .entry = prefix "_bf16"}}
static_assert(QNI_F32 == 0 && QNI_F16 == 1 && QNI_BF16 == 2, "QN_BY_DTYPE numbers them so");

// The 0 and comma of a defined QN_TABLE_OF_op put QN_KEEP_LINE in second place.
#define QN_FIND_SECOND(...) QN_SECOND(__VA_ARGS__)
#define QN_SECOND(first, second, ...) second
#define QN_KEEP_LINE(...) {__VA_ARGS__},
#define QN_DROP_LINE(...)

#endif
