// SPDX-License-Identifier: Apache-2.0
// What kvcache's GPU kernels and their launch code share: the structs of arguments.
#ifndef QK_KVCACHE_ABI_H
#define QK_KVCACHE_ABI_H

#include "pages_abi.h"

#include <stdint.h>

/** Rows as the kernel's items (of 16 bytes, 8 elements, or 1 element). Strides are in items. */
typedef struct qk_cache_rows {
    const void *in;
    void *out;
    int64_t in_token, in_head, out_page, out_place, out_head;
    const float *scale; // FP8: elements are divided by it
    uint32_t heads, width;
} qk_cache_rows;

typedef struct qk_kvcache_args {
    qk_cache_rows parts[2];
    qk_pages pages;
    uint32_t first, n;          // tokens from first on, below n
    uint32_t dtype, item_bytes; // of the new tokens; qk_kvcache_any: bytes of an element
    uint32_t is_quant, kind;
} qk_kvcache_args;

enum { QK_CACHE_GROUP = 128 };         // elements of an MLA cache that have a scale of their own
constexpr float qk_cache_eps = 1e-10f; // the smallest amax of a group, as of qn_quantize_groups

/** New tokens of an MLA cache with scales of groups. Strides are in elements. */
typedef struct qk_groups_args {
    const void *ckv, *kpe;
    uint8_t *codes;
    float *scales;
    void *rope;
    int64_t ckv_token, kpe_token, codes_page, codes_place, scales_page, scales_place, rope_page,
        rope_place;
    qk_pages pages;
    uint32_t n, width, rope_width;
    uint32_t dtype, kind; // of the new tokens; of the codes
} qk_groups_args;

/** Strides and width are in items: of 1, 2, 4 or 16 bytes for copies, of one element for codes. */
typedef struct qk_gather_args {
    const void *cache;
    void *out;
    int64_t page, place, out_token;
    const float *scale;  // of all codes
    const float *scales; // of groups of codes; both null: bits are copied
    int64_t scale_page, scale_place;
    qk_pages pages;
    uint32_t n, width;
    uint32_t item_bytes;      // of copies
    uint32_t kind, dtype_out; // of codes and of what they become
} qk_gather_args;

typedef struct qk_positions_args {
    int32_t *batch_indices, *positions;
    const int32_t *append_indptr, *seq_lens;
    uint32_t n, batches;
} qk_positions_args;

typedef struct qk_seq_lens_args {
    int32_t *seq_lens;
    const int32_t *kv_indptr, *kv_last_page_len;
    uint32_t batches;
    int32_t page_size;
} qk_seq_lens_args;

/** Returns a sequence's length; without pages, the length that its last page is said to hold.
 *  Arithmetic is modulo 2^32, so that it is defined whatever the vectors hold. */
static inline int32_t qk_seq_len(const int32_t *kv_indptr, const int32_t *last_page_len,
                                 int32_t page_size, int64_t b) {
    const int64_t full = (int64_t)kv_indptr[b + 1] - kv_indptr[b] - 1;
    return (int32_t)((full < 0 ? 0 : full) * page_size + last_page_len[b]);
}

/** Returns the position of token t in a sequence of `length` tokens, where `end` is the token
 *  behind the sequence's last. Arithmetic is modulo 2^32. */
static inline int32_t qk_position(int32_t length, int32_t end, int64_t t) {
    return (int32_t)(length - (end - t));
}

/** Returns the segment that t is in; -1: in none. */
static inline int32_t qk_find_segment(const int32_t *indptr, uint32_t segments, int32_t t) {
    uint32_t low = 0, high = segments;
    if (segments == 0 || t < indptr[0] || t >= indptr[segments])
        return -1;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (indptr[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return (int32_t)low;
}

#endif
