// SPDX-License-Identifier: Apache-2.0
// Which bytes of an allocation have been written: a bit for each byte, and how many are missing, so
// that memory that is written whole costs one look. Host threads note writes at the same time.
#include "memory.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sim_written {
    atomic_bool is_over; // writes are no longer noted: all counts as written
    _Atomic uint64_t num_missing;
    _Atomic uint64_t words[];
};

sim_written *sim_written_create(uint64_t bytes) {
    sim_written *written = calloc(1, sizeof *written + (bytes + 63) / 64 * sizeof(uint64_t));
    if (written)
        atomic_store(&written->num_missing, bytes);
    return written;
}

void sim_written_end(sim_written *written) {
    atomic_store(&written->is_over, true);
}

bool sim_region_is_written(const sim_region *region) {
    const sim_written *written = region->written;
    return !written || !atomic_load_explicit(&written->num_missing, memory_order_relaxed) ||
           atomic_load_explicit(&written->is_over, memory_order_relaxed);
}

/** Returns the bits from `at` on that lie in at's word and before `end`. */
static uint64_t bits_from(uint64_t at, uint64_t end) {
    const uint64_t count = end - at < 64 - at % 64 ? end - at : 64 - at % 64;
    return (count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX) << at % 64;
}

uint64_t sim_region_num_written(const sim_region *region, uint64_t offset, uint64_t bytes) {
    const sim_written *written = region->written;
    uint64_t count = 0, end = offset + bytes;
    if (sim_region_is_written(region) || end > region->size)
        return bytes;
    for (uint64_t at = offset; at < end; at = (at | 63) + 1) {
        const uint64_t word = atomic_load_explicit(&written->words[at / 64], memory_order_relaxed);
        count += (uint64_t)__builtin_popcountll(word & bits_from(at, end));
    }
    return count;
}

/** Sets the bits of `mask` as they are in `bits`. */
static void put_bits(sim_written *written, uint64_t word, uint64_t mask, uint64_t bits) {
    const uint64_t set = mask & bits, clear = mask & ~bits;
    uint64_t before = atomic_load_explicit(&written->words[word], memory_order_relaxed);
    if (set & ~before) {
        before = atomic_fetch_or(&written->words[word], set);
        atomic_fetch_sub(&written->num_missing, (uint64_t)__builtin_popcountll(set & ~before));
    }
    if (clear & before) {
        before = atomic_fetch_and(&written->words[word], ~clear);
        atomic_fetch_add(&written->num_missing, (uint64_t)__builtin_popcountll(clear & before));
    }
}

void sim_region_note_write(const sim_region *region, uint64_t offset, uint64_t bytes) {
    const uint64_t end = offset + bytes;
    for (uint64_t at = offset; at < end && !sim_region_is_written(region); at = (at | 63) + 1)
        put_bits(region->written, at / 64, bits_from(at, end), UINT64_MAX);
}

// ---- copies

/** Returns the state of up to 64 bytes. */
static uint64_t get_bits(const sim_region *region, uint64_t offset, uint64_t count) {
    if (!region || sim_region_is_written(region))
        return UINT64_MAX;
    const sim_written *written = region->written;
    uint64_t bits = atomic_load(&written->words[offset / 64]) >> offset % 64;
    if (offset % 64 + count > 64)
        bits |= atomic_load(&written->words[offset / 64 + 1]) << (64 - offset % 64);
    return bits;
}

static void set_bits(const sim_region *region, uint64_t offset, uint64_t count, uint64_t bits) {
    const uint64_t end = offset + count, next = (offset | 63) + 1;
    put_bits(region->written, offset / 64, bits_from(offset, end), bits << offset % 64);
    if (next < end)
        put_bits(region->written, next / 64, bits_from(next, end), bits >> (next - offset));
}

/** Copies from the end on if the destination is behind the source, as memmove does. */
void sim_region_note_copy(const sim_region *to, uint64_t to_offset, const sim_region *from,
                          uint64_t from_offset, uint64_t bytes) {
    const bool is_back = to == from && to_offset > from_offset;
    const bool is_from_written = !from || sim_region_is_written(from);
    if (!to->written || (is_from_written && sim_region_is_written(to)))
        return;
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = bytes - done < 64 ? bytes - done : 64;
        const uint64_t at = is_back ? bytes - done - count : done;
        set_bits(to, to_offset + at, count, get_bits(from, from_offset + at, count));
    }
}
