// SPDX-License-Identifier: Apache-2.0
// A tensor map as it lies in a kernel's struct: host code fills it in (qni_tensor_map_encode), the
// kernel's tensor copies read it (gpu/tensor_copy.h).
#ifndef QK_TENSOR_MAP_ABI_H
#define QK_TENSOR_MAP_ABI_H

#include <stdint.h>

/** The driver's own form: 128 bytes at a multiple of 64. */
typedef struct qk_tensor_map {
    _Alignas(64) uint64_t words[16];
} qk_tensor_map;

#endif
