// SPDX-License-Identifier: Apache-2.0
// Makes an op's table of kernels from variants.def, which has the kernels of all ops of a family:
//
//   #define QN_TABLE_OF_gemm 0,
//   static const qni_variant gemm_variants[] = {
//   #include "variants.def"
//   };
//   #undef QN_TABLE_OF_gemm
//
// Lines of other ops, whose QN_TABLE_OF_op is not defined, vanish. Only the file that makes a
// family's tables includes this header.
#ifndef QNI_VARIANTS_H
#define QNI_VARIANTS_H

#include "../../runtime/runtime.h"

// The third column of variants.def.
#define CPU true
#define GPU false

// The initialiser of a qni_op with its table, and with its keys and the function that describes a
// problem by them.
#define QN_OP(name, table, keys, describe)                                                         \
    {(name), (table), sizeof(table) / sizeof *(table), (keys), (describe)}
// The body of such a function behind `p`: a value for each key.
#define QN_SET_VALUES(keys, values, ...)                                                           \
    do {                                                                                           \
        const int64_t set[] = {__VA_ARGS__};                                                       \
        static_assert(sizeof set / sizeof *set + 1 == sizeof(keys) / sizeof *(keys));              \
        static_assert(sizeof set / sizeof *set <= QNI_MAX_KEYS);                                   \
        __builtin_memcpy((values), set, sizeof set);                                               \
    } while (0)

#define QN_IMAGE(...)
#define QN_VARIANT(op, kernel, where, needs, supports, cost, run, ...)                             \
    QN_FIND_SECOND(QN_TABLE_OF_##op QN_KEEP_LINE, QN_DROP_LINE, 0)                                 \
    (#op "." #kernel, {.all = needs}, where, supports, cost, run, {__VA_ARGS__})

// The needs of a kernel that needs each feature of all_of and at least one of one_of.
#define QN_NEEDS(all_of, one_of) all_of, .any = one_of

// The config of a variant with an entry point for each dtype, qk_rms_f32, qk_rms_f16, qk_rms_bf16;
// of a variant with another such for a second launch.
#define QN_EACH_DTYPE(image_id, prefix)                                                            \
    {.image = image_id, .entry = prefix "_f32"}, {.image = image_id, .entry = prefix "_f16"},      \
        {.image = image_id, .entry = prefix "_bf16"}
#define QN_BY_DTYPE(image_id, prefix) .kernel = {QN_EACH_DTYPE(image_id, prefix)}
#define QN_TWO_BY_DTYPE(image_id, prefix, second)                                                  \
    .kernel = {QN_EACH_DTYPE(image_id, prefix), QN_EACH_DTYPE(image_id, second)}
static_assert(QNI_F32 == 0 && QNI_F16 == 1 && QNI_BF16 == 2, "QN_EACH_DTYPE numbers them so");

// The config of a variant with one entry point for all dtypes.
#define QN_KERNEL(image_id, name) .kernel = {{.image = image_id, .entry = name}}

// QN_VARIANT chooses between QN_KEEP_LINE and QN_DROP_LINE as the second argument here. If
// QN_TABLE_OF_op is defined, its `0,` is the first argument, and QN_KEEP_LINE the second. If not,
// QN_TABLE_OF_op and QN_KEEP_LINE are the first argument together, and QN_DROP_LINE is the second.
#define QN_FIND_SECOND(...) QN_SECOND(__VA_ARGS__)
#define QN_SECOND(first, second, ...) second
#define QN_KEEP_LINE(...) {__VA_ARGS__},
#define QN_DROP_LINE(...)

#endif
