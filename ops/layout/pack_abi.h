// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels that pack bits and their launch code share.
#ifndef QK_PACK_ABI_H
#define QK_PACK_ABI_H

#include <stdint.h>

enum { QK_PACK_THREADS = 256 };

typedef struct qk_pack_args {
    const uint8_t *x;      // [count]
    uint8_t *out;          // a byte for each 8 values of a segment
    const int32_t *indptr; // [segments + 1]; null: one segment
    int32_t *indptr_out;   // [segments + 1]
    int64_t count;
    uint32_t segments, is_little;
} qk_pack_args;

#endif
