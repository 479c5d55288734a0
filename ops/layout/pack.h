// SPDX-License-Identifier: Apache-2.0
// Packing of truth values into bits, all in one piece or in segments that each begin at a byte.
#ifndef QNI_PACK_H
#define QNI_PACK_H

#include "layout.h"

/** A valid problem: pack.c has checked everything. Without indptr there is one segment of `count`
 *  values. */
typedef struct qni_pack_problem {
    const uint8_t *x; // [count]
    uint8_t *out;
    const int32_t *indptr; // [segments + 1]; null: none
    int32_t *indptr_out;   // [segments + 1], written: where each segment's bytes begin
    int64_t count, segments;
    bool is_little;
} qni_pack_problem;

extern const qni_op qni_op_packbits;

/** Packs one segment of `count` values by the definition, in host memory. */
void qni_pack_segment(const uint8_t *x, int64_t count, uint8_t *out, bool is_little);

#endif
