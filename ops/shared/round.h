// SPDX-License-Identifier: Apache-2.0
// Counts in pieces of one size.
#ifndef QNI_ROUND_H
#define QNI_ROUND_H

#include <stdint.h>

/** Pieces that `count` takes, the last of them perhaps in part. */
static inline int64_t qni_pieces(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}
/** The least multiple of `size` that is not below `count`. */
static inline int64_t qni_round_up(int64_t count, int64_t size) {
    return qni_pieces(count, size) * size;
}

#endif
