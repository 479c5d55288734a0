// SPDX-License-Identifier: Apache-2.0
// Copies and fills of boxes: rows that lie a pitch apart, in slices that lie apart too.
#include "../runtime.h"

#include <stdlib.h>
#include <string.h>

typedef struct box_op {
    sim_op op;
    sim_box box;
    size_t dst_bytes, src_bytes; // from the first byte to the last
} box_op;

/** Fills a row: its first part unit by unit, the rest from the first part. */
static void fill_row(uint8_t *dst, const sim_box *b) {
    constexpr size_t PART = 4096;
    if (b->unit == 1) {
        memset(dst, (int)b->value, b->width);
        return;
    }
    const size_t part = b->width < PART ? b->width : PART;
    for (size_t x = 0; x < part; x += b->unit)
        memcpy(dst + x, &b->value, b->unit);
    for (size_t x = part; x < b->width; x += part)
        memcpy(dst + x, dst, b->width - x < part ? b->width - x : part);
}

/** Copies or fills the row at offsets into the two sides' memory. */
static void do_row(const sim_box *b, uint8_t *dst, size_t to, const uint8_t *src, size_t from) {
    if (b->src) {
        memmove(dst + to, src + from, b->width);
        sim_memory_copied(sim_hip.memory, (uintptr_t)b->dst + to, (uintptr_t)b->src + from,
                          b->width);
    } else {
        fill_row(dst + to, b);
        sim_memory_wrote(sim_hip.memory, (uintptr_t)b->dst + to, b->width);
    }
}

static hipError_t run_box(sim_stream *stream, sim_op *op) {
    (void)stream;
    const box_op *o = (box_op *)op;
    const sim_box *b = &o->box;
    sim_memory_enter(sim_hip.memory);
    uint8_t *dst = sim_hip_resolve(b->dst, o->dst_bytes);
    const uint8_t *src = b->src ? sim_hip_resolve(b->src, o->src_bytes) : dst;
    for (size_t z = 0; dst && src && z < b->depth; z++)
        for (size_t y = 0; y < b->height; y++)
            do_row(b, dst, z * b->dst_slice + y * b->dst_pitch, src,
                   z * b->src_slice + y * b->src_pitch);
    sim_memory_leave(sim_hip.memory);
    return dst && src ? hipSuccess : hipErrorIllegalAddress;
}

/** Computes the bytes that a box covers. Returns false if they overflow. */
static bool cover(size_t pitch, size_t slice, const sim_box *b, size_t *bytes) {
    size_t slices;
    return !__builtin_mul_overflow(pitch, b->height - 1, bytes) &&
           !__builtin_mul_overflow(slice, b->depth - 1, &slices) &&
           !__builtin_add_overflow(*bytes, b->width, bytes) &&
           !__builtin_add_overflow(*bytes, slices, bytes);
}

hipError_t sim_hip_box_op(sim_op **out, const sim_box *b, hipMemcpyKind kind, bool *waits) {
    box_op o = {.op = {.run = run_box, .kind = SIM_OP_BOX, .bytes = sizeof o}, .box = *b};
    o.box.kind = kind;
    *out = nullptr;
    *waits = false;
    if (b->width == 0 || b->height == 0 || b->depth == 0)
        return hipSuccess;
    if (!b->src && !b->unit) // a copy from nowhere, and no fill
        return hipErrorInvalidValue;
    if (b->width > b->dst_pitch || (b->src && b->width > b->src_pitch))
        return hipErrorInvalidPitchValue;
    if (!cover(b->dst_pitch, b->dst_slice, b, &o.dst_bytes) ||
        !cover(b->src_pitch, b->src_slice, b, &o.src_bytes)) {
        return hipErrorInvalidValue;
    }
    hipError_t error = hipSuccess;
    if (b->src)
        error = sim_hip_check_copy(b->dst, o.dst_bytes, b->src, o.src_bytes, kind, waits);
    else if (!b->dst || (!sim_memory_host(sim_hip.memory, (uintptr_t)b->dst, o.dst_bytes) &&
                         !sim_block_has(b->dst, o.dst_bytes)))
        error = hipErrorInvalidValue;
    if (error != hipSuccess)
        return error;
    box_op *op = malloc(sizeof *op);
    if (!op)
        return hipErrorOutOfMemory;
    *op = o;
    *out = &op->op;
    return hipSuccess;
}

const sim_box *sim_hip_box_of(const sim_op *op) {
    return &((const box_op *)op)->box;
}

static bool is_of_device(const void *ptr) {
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    return region && region->kind == SIM_REGION_DEVICE;
}

/** Returns whether a call waits for a box: not if all of it is device memory, even if the call is
 *  not asynchronous by name, unless the program has set that for the memory. */
static bool has_to_wait(const sim_box *box, bool is_async) {
    if (sim_pointer_is_synced(box->dst) || (box->src && sim_pointer_is_synced(box->src)))
        return true;
    return !is_async && !(is_of_device(box->dst) && (!box->src || is_of_device(box->src)));
}

hipError_t sim_hip_box(const sim_box *box, hipMemcpyKind kind, hipStream_t handle, bool is_async) {
    sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return hipErrorContextIsDestroyed;
    sim_op *op;
    bool waits;
    hipError_t error = sim_hip_box_op(&op, box, kind, &waits);
    if (error != hipSuccess || !op)
        return error;
    waits |= has_to_wait(box, is_async);
    if ((!is_async || waits) && sim_hip_run_here(stream, op, &error))
        return error;
    uint64_t ticket;
    error = sim_hip_queue(stream, op, &ticket);
    return error == hipSuccess && waits ? sim_hip_wait(stream, ticket) : error;
}
