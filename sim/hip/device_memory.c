// SPDX-License-Identifier: Apache-2.0
// Memory that kernels find through hidden arguments: the buffer of printf (-mprintf-kind=buffered)
// and malloc's heap.
//
// The buffer begins with the bytes used and the bytes that exist, both counting these eight. A
// message in the buffer is a word of 32 bits (bit 0: standard error, bit 1: the format is one of
// the code object's, from bit 2: bytes of the message), then the format's number, or the format
// itself, then the arguments as printf.c has them.
#include "hostcall.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

// ---- printf

enum { HEADER_BYTES = 8, DEFAULT_PRINTF_BYTES = 4 << 20 };

uint64_t sim_hip_printf_buffer(sim_stream *stream) {
    const size_t limit = atomic_load(&stream->device->limits[SIM_LIMIT_PRINTF]);
    const uint64_t bytes = limit ? limit : DEFAULT_PRINTF_BYTES;
    if (stream->printf_buffer && stream->printf_bytes != bytes) {
        sim_memory_free(sim_hip.memory, stream->printf_buffer);
        stream->printf_buffer = 0;
    }
    if (!stream->printf_buffer) {
        const sim_region *region =
            sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_KERNARG, stream->device->id);
        stream->printf_buffer = region ? region->base : 0;
        stream->printf_bytes = bytes;
    }
    uint32_t *header = sim_memory_host(sim_hip.memory, stream->printf_buffer, HEADER_BYTES);
    if (header) {
        header[0] = 0;
        header[1] = (uint32_t)bytes;
    }
    return stream->printf_buffer;
}

/** Prints one message of `bytes`, its control word included, which may be anything. */
static void print_message(const sim_object *object, const uint8_t *message, uint32_t bytes,
                          uint64_t *words) {
    enum { CONTROL = 4, ID = 8, TO_STDERR = 1, HAS_ID = 2 };
    uint32_t control;
    uint64_t id = 0;
    memcpy(&control, message, CONTROL);
    const uint32_t begin = control & HAS_ID ? CONTROL + ID : CONTROL;
    if (bytes < begin)
        return;
    if (control & HAS_ID)
        memcpy(&id, message + CONTROL, ID);
    const char *format = control & HAS_ID ? sim_object_format(object, id) : nullptr;
    if ((control & HAS_ID) && !format)
        return;
    memcpy(words, message + begin, bytes - begin);
    sim_device_print(control & TO_STDERR, format, words, (bytes - begin) / 8);
}

void sim_hip_print_buffer(sim_stream *stream, const sim_object *object) {
    uint8_t *buffer = sim_memory_host(sim_hip.memory, stream->printf_buffer, stream->printf_bytes);
    uint64_t *words = buffer ? malloc(stream->printf_bytes) : nullptr;
    if (!words)
        return;
    uint32_t used, control;
    memcpy(&used, buffer, sizeof used);
    const uint64_t room = stream->printf_bytes - HEADER_BYTES, end = used < room ? used : room;
    for (uint64_t at = 0; at + sizeof control <= end; at += control >> 2) {
        memcpy(&control, buffer + HEADER_BYTES + at, sizeof control);
        if (control >> 2 < sizeof control || control >> 2 > end - at)
            break; // the kernel was stopped, or wrote here itself
        print_message(object, buffer + HEADER_BYTES + at, control >> 2, words);
    }
    memset(buffer, 0, HEADER_BYTES + end);
    free(words);
}

// ---- malloc

/** Makes the heap as ockl's __ockl_dm_init_v1 leaves it: zeros, but for three words that describe
 *  memory given at the start, of which there is none. The heap asks the host for all that it
 *  needs. */
uint64_t sim_hip_heap(sim_device *device) {
    enum { HEAP_BYTES = 128 << 10 };
    pthread_mutex_lock(&sim_hip.lock);
    if (!device->heap) {
        const sim_region *region =
            sim_memory_alloc(sim_hip.memory, HEAP_BYTES, SIM_REGION_DEVICE, device->id);
        device->heap = region ? region->base : 0;
        sim_memory_wrote(sim_hip.memory, device->heap, HEAP_BYTES);
    }
    const uint64_t heap = device->heap;
    pthread_mutex_unlock(&sim_hip.lock);
    return heap;
}
