// SPDX-License-Identifier: Apache-2.0
// An op's table of kernels, out of its family's variants.def, which has the lines of all its ops:
//
//   #define QN_TABLE_OF_gemm 0,
//   static const qni_variant gemm_variants[] = {
//   #include "variants.def"
//   };
//   #undef QN_TABLE_OF_gemm
//
// Lines of ops whose QN_TABLE_OF_op is not defined vanish. For the one file that makes a family's tables.
#ifndef QNI_VARIANTS_H
#define QNI_VARIANTS_H

#include "../runtime/runtime.h"

// The third column of variants.def.
#define CPU true
#define GPU false

// An op over its table.
#define QN_OP(name, table) {(name), (table), sizeof(table) / sizeof *(table)}

#define QN_IMAGE(...)
#define QN_VARIANT(op, kernel, where, needs, supports, run)                                        \
    QN_FIND_SECOND(QN_TABLE_OF_##op QN_KEEP_LINE, QN_DROP_LINE, 0)                                 \
    (#op "." #kernel, needs, where, supports, run)

// The 0 and comma of a defined QN_TABLE_OF_op put QN_KEEP_LINE in second place.
#define QN_FIND_SECOND(...) QN_SECOND(__VA_ARGS__)
#define QN_SECOND(first, second, ...) second
#define QN_KEEP_LINE(...) {__VA_ARGS__},
#define QN_DROP_LINE(...)

#endif
