// SPDX-License-Identifier: Apache-2.0
// Serves what a running kernel asks of the host: printf, the text of a failed assert, memory for
// the kernel's malloc.
//
// The device libraries (ockl, hostcall_impl.cl) put a request into a packet of a shared buffer: a
// slot of eight words for each lane. The wave that asked spins on the packet's ready bit. Packets
// are linked by lock-free stacks, whose links carry a tag above the index. The buffer, with every
// offset that the device code uses:
//
//   0   headers: for each packet u64 next, u64 lanes, u32 service, u32 control (bit 0: waits for
//       the host)
//   8   payloads: for each packet 64 slots of 8 words
//   16  a signal that the device rings; its mailbox is null, as a thread here looks by itself
//   24  top of the free stack, 32  top of the ready stack, 40  mask of a link's index
//
// A kernel's stream has one buffer and, while a kernel runs that may use it, one thread that serves
// it.
#include "hostcall.h"

#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SERVICE_PRINTF = 2, SERVICE_MEMORY = 3 };
enum { HEADER_BYTES = 24, WORDS = 8, PAYLOAD_BYTES = SIM_LANES * WORDS * 8, SIGNAL_BYTES = 64 };
enum { MAX_WAVES = 32 }; // of a workgroup, and so those that a host thread runs

/** The first 48 bytes of the buffer. */
typedef struct shared {
    uint64_t headers, payloads, doorbell; // guest addresses
    _Atomic uint64_t free_stack, ready_stack;
    uint64_t index_mask;
} shared;

typedef struct header {
    uint64_t next, lanes;
    uint32_t service;
    _Atomic uint32_t control;
} header;

static_assert(sizeof(header) == HEADER_BYTES && offsetof(shared, index_mask) == 40);

/** A text that arrives in parts. */
typedef struct message {
    uint64_t *words;
    size_t count, room;
    bool is_live;
} message;

struct sim_hostcall {
    uint64_t addr; // of the buffer
    uint32_t num_packets;
    shared *top; // the host's view of it
    header *headers;
    uint64_t (*payloads)[SIM_LANES][WORDS];
    message *messages;
    size_t num_messages;
    sim_dispatch *dispatch;
    atomic_bool stop, has_failed;
    pthread_t thread;
};

// ---- the buffer

/** Returns as many packets as waves can run at once, rounded up to a power of two, so that the
 *  device never waits for a free one. */
static uint32_t count_packets(void) {
    const long cores =
        sim_hip.options.threads ? sim_hip.options.threads : sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = ((uint32_t)(cores < 1 ? 1 : cores) + 1) * MAX_WAVES, count = 64;
    while (count < wanted)
        count *= 2;
    return count;
}

static void init_buffer(sim_hostcall *h) {
    uint64_t after_top = sizeof(shared) + SIGNAL_BYTES;
    after_top = (after_top + 63) & ~UINT64_C(63);
    uint64_t after_headers = after_top + (uint64_t)h->num_packets * HEADER_BYTES;
    after_headers = (after_headers + 63) & ~UINT64_C(63);
    h->headers = (header *)((uint8_t *)h->top + after_top);
    h->payloads = (void *)((uint8_t *)h->top + after_headers);
    *h->top = (shared){.headers = h->addr + after_top,
                       .payloads = h->addr + after_headers,
                       .doorbell = h->addr + 64,
                       .free_stack = h->num_packets, // index 0 with a tag, as null means none
                       .index_mask = h->num_packets - 1};
    for (uint32_t i = 0; i < h->num_packets; i++)
        h->headers[i].next = i + 1 < h->num_packets ? i + 1 : 0;
}

sim_hostcall *sim_hostcall_create(uint32_t device) {
    sim_hostcall *h = calloc(1, sizeof *h);
    if (!h)
        return nullptr;
    h->num_packets = count_packets();
    const uint64_t bytes = 4096 + (uint64_t)h->num_packets * (HEADER_BYTES + PAYLOAD_BYTES);
    const sim_region *region = sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_KERNARG, device);
    if (!region) {
        free(h);
        return nullptr;
    }
    h->addr = region->base;
    h->top = (shared *)region->host;
    return h;
}

void sim_hostcall_destroy(sim_hostcall *h) {
    if (!h)
        return;
    sim_memory_free(sim_hip.memory, h->addr);
    for (size_t i = 0; i < h->num_messages; i++)
        free(h->messages[i].words);
    free(h->messages);
    free(h);
}

uint64_t sim_hostcall_address(const sim_hostcall *h) {
    return h->addr;
}

// ---- messages: texts that arrive in several requests

/** The fields of a descriptor: bit 0 begins a message, bit 1 ends it, bits 5 to 7 count the words
 *  that follow, and bits from 8 on are the message's number. */
enum { BEGIN = 1, END = 2, LENGTH_SHIFT = 5, ID_SHIFT = 8, MAX_WORDS = 1 << 20 };

static message *new_message(sim_hostcall *h, size_t *id) {
    for (*id = 0; *id < h->num_messages; ++*id)
        if (!h->messages[*id].is_live)
            break;
    if (*id == h->num_messages) {
        message *grown = realloc(h->messages, (*id + 1) * sizeof *grown);
        if (!grown)
            return nullptr;
        h->messages = grown;
        h->messages[h->num_messages++] = (message){0};
    }
    h->messages[*id].is_live = true;
    h->messages[*id].count = 0;
    return &h->messages[*id];
}

static bool append(message *m, const uint64_t *words, size_t count) {
    if (m->count + count > m->room) {
        const size_t room = m->room ? 2 * m->room : 64;
        uint64_t *grown = room <= MAX_WORDS ? realloc(m->words, room * sizeof *grown) : nullptr;
        if (!grown)
            return false;
        m->words = grown;
        m->room = room;
    }
    memcpy(m->words + m->count, words, count * sizeof *words);
    m->count += count;
    return true;
}

/** Serves one lane's request; the first word of its slot gets the answer. */
static bool serve_printf(sim_hostcall *h, uint64_t slot[WORDS]) {
    const uint64_t descriptor = slot[0];
    size_t id = descriptor >> ID_SHIFT;
    message *m = descriptor & BEGIN     ? new_message(h, &id)
                 : id < h->num_messages ? &h->messages[id]
                                        : nullptr;
    if (!m || !m->is_live || !append(m, slot + 1, descriptor >> LENGTH_SHIFT & 7))
        return false;
    slot[0] = (descriptor & 0xfe) | (uint64_t)id << ID_SHIFT;
    if (descriptor & END) {
        slot[0] = (uint64_t)(int64_t)sim_device_printf(m->words, m->count);
        m->is_live = false;
    }
    return true;
}

/** Serves the device's heap (ockl's devmem_request). A request is an address to free, or 0 and the
 *  bytes wanted; the answer is the new address, null if there is no memory. */
static bool serve_memory(sim_hostcall *h, uint64_t slot[WORDS]) {
    const sim_dispatch *d = h->dispatch;
    if (slot[0]) {
        const bool ok = sim_memory_retire(sim_hip.memory,
                                          slot[0]); // the kernel runs, and this call must not wait
                                                    // for it
        slot[0] = 0;
        return ok;
    }
    const uint64_t used = sim_memory_used(sim_hip.memory, d->device), bytes = slot[1];
    const bool fits = bytes && bytes <= d->chip->memory_bytes - used;
    const sim_region *region =
        fits ? sim_memory_alloc(sim_hip.memory, bytes, SIM_REGION_DEVICE, d->device) : nullptr;
    slot[0] = region ? region->base : 0;
    sim_memory_wrote(sim_hip.memory, slot[0],
                     bytes); // pages for malloc, whose own allocations are not followed
    return true;
}

// ---- the thread

static void refuse(sim_hostcall *h, const header *packet) {
    sim_fault_stop(h->dispatch, SIM_FAULT_UNSUPPORTED,
                   "it asks the host for service %u in a way that is not supported; accepted: 2 "
                   "(printf), 3 (memory)",
                   packet->service);
    atomic_store(&h->has_failed, true);
}

/** Serves every packet that waits. Returns false if there was none. */
static bool serve(sim_hostcall *h) {
    uint64_t link = atomic_exchange(&h->top->ready_stack, 0), mask = h->num_packets - 1;
    if (!link)
        return false;
    uint32_t served = 0;
    for (uint64_t next; link; link = next) {
        header *packet = &h->headers[link & mask];
        next = packet->next; // an answered packet belongs to the device again
        bool ok = served++ < h->num_packets;
        for (uint64_t lanes = packet->lanes; ok && lanes; lanes &= lanes - 1) {
            uint64_t *slot = h->payloads[link & mask][__builtin_ctzll(lanes)];
            ok = packet->service == SERVICE_PRINTF   ? serve_printf(h, slot)
                 : packet->service == SERVICE_MEMORY ? serve_memory(h, slot)
                                                     : false;
        }
        if (!ok) {
            refuse(h, packet);
            return true;
        }
        atomic_fetch_and(&packet->control, ~1u);
    }
    return true;
}

static void *serve_loop(void *argument) {
    constexpr struct timespec PAUSE = {.tv_nsec = 20000};
    sim_hostcall *h = argument;
    for (;;) {
        const bool is_last = atomic_load(&h->stop);
        if (!atomic_load(&h->has_failed) && serve(h))
            continue;
        if (is_last)
            return nullptr;
        nanosleep(&PAUSE, nullptr);
    }
}

bool sim_hostcall_begin(sim_hostcall *h, sim_dispatch *dispatch) {
    init_buffer(h);
    h->dispatch = dispatch;
    atomic_store(&h->stop, false);
    atomic_store(&h->has_failed, false);
    return pthread_create(&h->thread, nullptr, serve_loop, h) == 0;
}

void sim_hostcall_end(sim_hostcall *h) {
    atomic_store(&h->stop, true);
    pthread_join(h->thread, nullptr);
    for (size_t i = 0; i < h->num_messages; i++)
        h->messages[i].is_live = false; // messages of waves that were stopped halfway
}
