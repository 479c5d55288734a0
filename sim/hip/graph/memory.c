// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate and free. Its address is known as soon as the node is made; the
// memory is there from the node's run until a node, or the program, frees it.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/** What a node allocates; the node and its copies share it. */
struct sim_block {
    sim_block *next;
    sim_device *device;
    uint64_t base, bytes;
    unsigned references; // of nodes and operations
    unsigned instances;  // of the references, those of executable graphs
    bool is_freed_by_node;
    bool is_out;  // as far as is queued, it is allocated
    bool is_live; // it is allocated now
};

/** The bytes that graphs have on a device, and the most that they had. */
typedef struct usage {
    uint64_t now, high, reserved_high;
} usage;

// The lock, which is taken after all others but the guest memory's, guards these.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sim_block *blocks;
static usage used[SIM_MAX_DEVICES];

// ---- with the lock held

static sim_block *find(uint64_t addr) {
    sim_block *b = blocks;
    while (b && addr - b->base >= b->bytes)
        b = b->next;
    return b;
}

static void drop(sim_block *b) {
    if (b->references || b->is_out || b->is_live)
        return;
    sim_block **at = &blocks;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    free(b);
}

static void count(const sim_block *b, bool is_live) {
    usage *u = &used[b->device->id];
    u->now = is_live ? u->now + b->bytes : u->now - b->bytes;
    u->high = u->now > u->high ? u->now : u->high;
    u->reserved_high = u->now > u->reserved_high ? u->now : u->reserved_high;
}

// ---- for nodes

static sim_block *new_block(sim_device *device, uint64_t bytes) {
    constexpr uint64_t PAGE = UINT64_C(1) << 16;
    sim_block *b = calloc(1, sizeof *b);
    const uint64_t base = b ? sim_memory_reserve(sim_hip.memory, bytes, PAGE) : 0;
    if (!base) {
        free(b);
        return nullptr;
    }
    pthread_mutex_lock(&lock);
    *b = (sim_block){
        .next = blocks, .device = device, .base = base, .bytes = bytes, .references = 1};
    blocks = b;
    pthread_mutex_unlock(&lock);
    return b;
}

void sim_block_keep(sim_block *b, bool is_instance) {
    pthread_mutex_lock(&lock);
    b->references++;
    b->instances += is_instance;
    pthread_mutex_unlock(&lock);
}

void sim_block_release(sim_block *b, bool is_instance) {
    pthread_mutex_lock(&lock);
    b->references--;
    b->instances -= is_instance;
    drop(b);
    pthread_mutex_unlock(&lock);
}

bool sim_block_has(const void *ptr, size_t bytes) {
    pthread_mutex_lock(&lock);
    const sim_block *b = find((uintptr_t)ptr);
    const bool has = b && bytes <= b->bytes - ((uintptr_t)ptr - b->base);
    pthread_mutex_unlock(&lock);
    return has;
}

bool sim_block_is_out(const void *ptr) {
    pthread_mutex_lock(&lock);
    const sim_block *b = find((uintptr_t)ptr);
    const bool is_out = b && b->base == (uintptr_t)ptr && b->is_out;
    pthread_mutex_unlock(&lock);
    return is_out;
}

void sim_block_freeing(uint64_t base) {
    pthread_mutex_lock(&lock);
    sim_block *b = find(base);
    if (b && b->base == base)
        b->is_out = false;
    pthread_mutex_unlock(&lock);
}

void sim_block_freed(uint64_t base) {
    pthread_mutex_lock(&lock);
    sim_block *b = find(base);
    if (b && b->base == base && b->is_live) {
        b->is_out = b->is_live = false;
        count(b, false);
        drop(b);
    }
    pthread_mutex_unlock(&lock);
}

void sim_blocks_reset(const sim_device *device) {
    pthread_mutex_lock(&lock);
    for (sim_block *b = blocks, *next; b; b = next) {
        next = b->next;
        if (device && b->device != device)
            continue;
        if (b->is_live)
            count(b, false);
        b->is_out = b->is_live = false;
        drop(b);
    }
    pthread_mutex_unlock(&lock);
}

// ---- operations

typedef struct block_op {
    sim_op op;
    sim_block *block; // a reference
} block_op;

static hipError_t run_alloc(sim_stream *stream, sim_op *op) {
    (void)stream;
    sim_block *b = ((block_op *)op)->block;
    const bool fits =
        b->bytes <= b->device->chip->memory_bytes - sim_memory_used(sim_hip.memory, b->device->id);
    if (!fits ||
        !sim_memory_alloc_at(sim_hip.memory, b->base, b->bytes, SIM_REGION_DEVICE, b->device->id))
        return hipErrorOutOfMemory;
    pthread_mutex_lock(&lock);
    b->is_live = true;
    count(b, true);
    pthread_mutex_unlock(&lock);
    return hipSuccess;
}

static hipError_t run_free(sim_stream *stream, sim_op *op) {
    (void)stream;
    sim_block *b = ((block_op *)op)->block;
    const uint64_t base = b->base;
    const bool ok = sim_memory_free(sim_hip.memory, base);
    pthread_mutex_lock(&lock);
    if (b->is_live)
        count(b, false);
    b->is_live = false;
    pthread_mutex_unlock(&lock);
    return ok ? hipSuccess : hipErrorInvalidValue;
}

static void release_block(sim_op *op) {
    sim_block_release(((block_op *)op)->block, false);
}

/** Queues an allocation or the end of one. */
static hipError_t queue(sim_stream *stream, sim_block *b, bool is_alloc) {
    block_op *op = malloc(sizeof *op);
    if (!op)
        return hipErrorOutOfMemory;
    *op = (block_op){{.run = is_alloc ? run_alloc : run_free, .destroy = release_block}, b};
    pthread_mutex_lock(&lock);
    b->is_out = is_alloc;
    b->references++;
    pthread_mutex_unlock(&lock);
    return sim_hip_queue(stream, &op->op, nullptr);
}

hipError_t sim_block_launch(const struct hipGraphNode *node, sim_stream *stream) {
    const bool is_alloc = node->type == hipGraphNodeTypeMemAlloc;
    return queue(stream, node->block, is_alloc);
}

hipError_t sim_blocks_prepare(hipGraph_t graph, bool frees, sim_stream *stream) {
    hipError_t error = hipSuccess;
    for (hipGraphNode_t node = graph->first; node && error == hipSuccess; node = node->next)
        if (node->type == hipGraphNodeTypeMemAlloc && sim_block_is_out((void *)node->block->base))
            error = frees ? queue(stream, node->block, false) : hipErrorInvalidValue;
    return error;
}

bool sim_graph_has_memory(hipGraph_t graph) {
    hipGraphNode_t node = graph->first;
    while (node && node->type != hipGraphNodeTypeMemAlloc && node->type != hipGraphNodeTypeMemFree)
        node = node->next;
    return node;
}

bool sim_graph_has_instance(hipGraph_t graph) {
    bool has = false;
    pthread_mutex_lock(&lock);
    for (hipGraphNode_t node = graph->first; node && !has; node = node->next)
        has = node->type == hipGraphNodeTypeMemAlloc && node->block && node->block->instances;
    pthread_mutex_unlock(&lock);
    return has;
}

// ---- nodes

/** Gives a node a block of its own. */
static hipError_t set_alloc(hipGraphNode_t node, hipMemAllocNodeParams *p) {
    node->block = new_block(sim_hip_device_at(p->poolProps.location.id), p->bytesize);
    if (!node->block)
        return hipErrorOutOfMemory;
    p->dptr = (void *)node->block->base;
    node->alloc = *p;
    return hipSuccess;
}

hipError_t hipGraphAddMemAllocNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                   size_t count_on, hipMemAllocNodeParams *p) {
    enum { PINNED = 1, DEVICE = 1 };
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    if (!out || !p)
        return sim_hip_result(hipErrorInvalidValue);
    p->dptr = nullptr;
    if (!p->bytesize || p->poolProps.allocType != PINNED || p->poolProps.location.type != DEVICE ||
        !sim_hip_device_at(p->poolProps.location.id))
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_graph_place(&node, graph, on, count_on, hipGraphNodeTypeMemAlloc);
    error = error == hipSuccess ? sim_graph_keep(&node, set_alloc(node, p)) : error;
    if (error == hipSuccess)
        *out = node;
    return sim_hip_result(error);
}

/** Takes the right to free a block, which one node alone may have. */
static sim_block *claim(const void *ptr) {
    pthread_mutex_lock(&lock);
    sim_block *b = find((uintptr_t)ptr);
    const bool ok = b && b->base == (uintptr_t)ptr && !b->is_freed_by_node;
    if (ok) {
        b->is_freed_by_node = true;
        b->references++;
    }
    pthread_mutex_unlock(&lock);
    return ok ? b : nullptr;
}

static void unclaim(sim_block *b) {
    pthread_mutex_lock(&lock);
    b->is_freed_by_node = false;
    pthread_mutex_unlock(&lock);
    sim_block_release(b, false);
}

hipError_t hipGraphAddMemFreeNode(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                                  size_t count_on, void *ptr) {
    SIM_HIP_START();
    hipGraphNode_t node = nullptr;
    sim_block *b = out && ptr ? claim(ptr) : nullptr;
    if (!b)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_graph_place(&node, graph, on, count_on, hipGraphNodeTypeMemFree);
    if (error != hipSuccess) {
        unclaim(b);
        return sim_hip_result(error);
    }
    node->block = b;
    *out = node;
    return hipSuccess;
}

hipError_t hipDrvGraphAddMemFreeNode(hipGraphNode_t *out, hipGraph_t graph,
                                     const hipGraphNode_t *on, size_t count_on,
                                     hipDeviceptr_t ptr) {
    return hipGraphAddMemFreeNode(out, graph, on, count_on, ptr);
}

hipError_t hipGraphMemAllocNodeGetParams(hipGraphNode_t node, hipMemAllocNodeParams *p) {
    SIM_HIP_START();
    if (!p || sim_graph_typed(node, hipGraphNodeTypeMemAlloc) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    *p = node->alloc;
    return hipSuccess;
}

hipError_t hipGraphMemFreeNodeGetParams(hipGraphNode_t node, void *out) {
    SIM_HIP_START();
    if (!out || sim_graph_typed(node, hipGraphNodeTypeMemFree) != hipSuccess)
        return sim_hip_result(hipErrorInvalidValue);
    void *ptr = (void *)node->block->base;
    memcpy(out, &ptr, sizeof ptr);
    return hipSuccess;
}

// ---- capture, with the runtime's lock

bool sim_block_capture_alloc(hipGraphNode_t node, sim_device *device, size_t bytes, void **out) {
    hipMemAllocNodeParams p = {.poolProps = {.allocType = 1, .location = {1, (int)device->id}},
                               .bytesize = bytes};
    if (set_alloc(node, &p) != hipSuccess)
        return false;
    *out = p.dptr;
    return true;
}

bool sim_block_capture_free(hipGraphNode_t node, void *ptr) {
    node->block = claim(ptr);
    return node->block;
}

// ---- what graphs have

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

hipError_t hipDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    SIM_HIP_START();
    if (!sim_hip_device_at(device) || !value || attribute < USED || attribute > RESERVED_HIGH)
        return sim_hip_result(sim_hip_device_at(device) ? hipErrorInvalidValue
                                                        : hipErrorInvalidDevice);
    pthread_mutex_lock(&lock);
    const usage *u = &used[device];
    *(uint64_t *)value = attribute == USED_HIGH       ? u->high
                         : attribute == RESERVED_HIGH ? u->reserved_high
                                                      : u->now;
    pthread_mutex_unlock(&lock);
    return hipSuccess;
}

/** Sets a high-water mark back; it can only be set to 0. */
hipError_t hipDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
    SIM_HIP_START();
    if (!sim_hip_device_at(device))
        return sim_hip_result(hipErrorInvalidDevice);
    if (!value || (attribute != USED_HIGH && attribute != RESERVED_HIGH) || *(uint64_t *)value)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    usage *u = &used[device];
    if (attribute == USED_HIGH)
        u->high = u->now;
    else
        u->reserved_high = u->now;
    pthread_mutex_unlock(&lock);
    return hipSuccess;
}

/** Checks its argument: graphs keep no memory that could be given back. */
hipError_t hipDeviceGraphMemTrim(int device) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_device_at(device) ? hipSuccess : hipErrorInvalidDevice);
}
