// SPDX-License-Identifier: Apache-2.0
// Where a token goes in a paged cache, by batch, position and page table, or by a slot number; for
// host and device.
#ifndef QK_PAGES_ABI_H
#define QK_PAGES_ABI_H

#include <stdint.h>

/** Either slots, or the four other arrays; page_size is at least 1. */
typedef struct qk_pages {
    const int32_t *slots;                     // [n] page * page_size + place in the page
    const int32_t *batch_indices, *positions; // [n] each
    const int32_t *kv_indices;                // pages of all batches, one behind the other
    const int32_t *kv_indptr;                 // [batches + 1] where each batch's pages begin
    int32_t page_size;
} qk_pages;

typedef struct qk_place {
    int64_t page;  // below 0: the token goes nowhere
    int32_t place; // in its page
} qk_place;

static inline qk_place qk_find_place(const qk_pages *pages, int64_t token) {
    const uint32_t size = (uint32_t)pages->page_size;
    if (pages->slots) {
        const int32_t slot = pages->slots[token];
        if (slot < 0)
            return (qk_place){-1, 0};
        return (qk_place){(uint32_t)slot / size, (int32_t)((uint32_t)slot % size)};
    }
    const int32_t batch = pages->batch_indices[token];
    const uint32_t position = (uint32_t)pages->positions[token];
    if (batch < 0)
        return (qk_place){-1, 0};
    const int32_t *list = pages->kv_indices + pages->kv_indptr[batch];
    return (qk_place){list[position / size], (int32_t)(position % size)};
}

#endif
