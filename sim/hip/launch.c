// SPDX-License-Identifier: Apache-2.0
// Kernel launches: arguments, the compiler's hidden arguments, the dispatch packet, the run.
#include "../pool.h"
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BLOCK = 1024,
    MAX_KERNARG = 1 << 20,
    MAX_SCRATCH = 1 << 18, // bytes for each lane
    PACKET_BYTES = 64,
    KERNARG_SLACK = 256, // scalar loads may reach past the bytes that they need
};

typedef struct launch_op {
    sim_op op;
    sim_dispatch dispatch;
    sim_launch asked;
    sim_grids grids; // of a cooperative launch
    size_t args_bytes;
    uint8_t args[]; // the kernarg segment
} launch_op;

// ---- checks

static hipError_t check_shape(const sim_kernel *kernel, const sim_chip *chip,
                              const uint32_t grid[3], const uint32_t block[3], size_t dynamic_lds) {
    uint64_t threads = 1, groups = 1;
    for (int i = 0; i < 3; i++) {
        if (grid[i] == 0 || block[i] == 0 || block[i] > MAX_BLOCK ||
            (uint64_t)grid[i] * block[i] > UINT32_MAX) {
            return hipErrorInvalidConfiguration;
        }
        threads *= block[i];
        if (__builtin_mul_overflow(groups, grid[i], &groups))
            return hipErrorInvalidConfiguration;
    }
    if (threads > MAX_BLOCK || threads > kernel->max_threads || groups > INT64_MAX)
        return hipErrorInvalidConfiguration;
    if (dynamic_lds > chip->lds_bytes || kernel->lds_bytes + dynamic_lds > chip->lds_bytes)
        return hipErrorInvalidValue;
    const bool fits =
        kernel->kernarg_bytes <= MAX_KERNARG && sim_kernel_scratch(kernel) <= MAX_SCRATCH;
    return fits ? hipSuccess : hipErrorLaunchOutOfResources;
}

// ---- arguments

/** Copies the explicit arguments that `params` points to, one pointer each. */
static hipError_t copy_params(const sim_kernel *kernel, uint8_t *args, void **params) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < kernel->num_args; i++) {
        const sim_arg *arg = &kernel->args[i];
        if (arg->hidden >= 0)
            continue;
        if (!params || !params[n])
            return hipErrorInvalidValue;
        memcpy(args + arg->offset, params[n++], arg->bytes);
    }
    return hipSuccess;
}

/** Copies the caller's argument buffer; it may be longer or shorter than the segment. */
static hipError_t copy_extra(const sim_kernel *kernel, uint8_t *args, void **extra) {
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; *extra != HIP_LAUNCH_PARAM_END; extra += 2)
        if (*extra == HIP_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == HIP_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
            bytes = *(const size_t *)extra[1];
        else
            return hipErrorInvalidValue;
    bytes = bytes < kernel->kernarg_bytes ? bytes : kernel->kernarg_bytes;
    if (bytes && !buffer)
        return hipErrorInvalidValue;
    memcpy(args, buffer ? buffer : args, bytes);
    return hipSuccess;
}

static uint64_t hidden_value(const sim_dispatch *d, sim_hidden hidden) {
    switch (hidden) {
    case SIM_HIDDEN_BLOCK_COUNT_X:
    case SIM_HIDDEN_BLOCK_COUNT_Y:
    case SIM_HIDDEN_BLOCK_COUNT_Z:
        return d->grid[hidden - SIM_HIDDEN_BLOCK_COUNT_X];
    case SIM_HIDDEN_GROUP_SIZE_X:
    case SIM_HIDDEN_GROUP_SIZE_Y:
    case SIM_HIDDEN_GROUP_SIZE_Z:
        return d->block[hidden - SIM_HIDDEN_GROUP_SIZE_X];
    case SIM_HIDDEN_GRID_DIMS:
        return 3;
    case SIM_HIDDEN_DYNAMIC_LDS_SIZE:
        return d->lds_bytes - d->kernel->lds_bytes;
    case SIM_HIDDEN_SHARED_BASE:
        return SIM_SHARED_APERTURE >> 32;
    case SIM_HIDDEN_PRIVATE_BASE:
        return SIM_PRIVATE_APERTURE >> 32;
    default:
        return 0; // 0: no remainder, as blocks are whole; no offset; nothing behind the other
                  // pointers
    }
}

static void fill_hidden(const sim_dispatch *d, uint8_t *args) {
    for (uint32_t i = 0; i < d->kernel->num_args; i++) {
        const sim_arg *arg = &d->kernel->args[i];
        if (arg->hidden >= 0) {
            uint64_t value = hidden_value(d, (sim_hidden)arg->hidden);
            memcpy(args + arg->offset, &value, arg->bytes < 8 ? arg->bytes : 8);
        }
    }
}

// ---- the run

/** The launch as an HSA AQL packet, which a kernel sees through its dispatch pointer. */
typedef struct packet {
    uint16_t header, setup, block[3], reserved0;
    uint32_t grid[3], private_bytes, group_bytes;
    uint64_t kernel, kernarg, reserved1, completion;
} packet;

static_assert(sizeof(packet) == PACKET_BYTES);

static packet make_packet(const sim_dispatch *d) {
    enum { KERNEL_DISPATCH = 2, DIMENSIONS = 3 };
    packet p = {.header = KERNEL_DISPATCH,
                .setup = DIMENSIONS,
                .private_bytes = sim_kernel_scratch(d->kernel),
                .group_bytes = d->lds_bytes,
                .kernel = d->kernel->descriptor,
                .kernarg = d->kernarg};
    for (int i = 0; i < 3; i++) {
        p.block[i] = (uint16_t)d->block[i];
        p.grid[i] = d->grid[i] * d->block[i];
    }
    return p;
}

/** Returns where a kernel wants an address as a hidden argument; null if it wants none. */
static uint8_t *hidden_place(launch_op *launch, sim_hidden hidden) {
    const sim_kernel *kernel = launch->dispatch.kernel;
    for (uint32_t i = 0; i < kernel->num_args; i++) {
        const sim_arg *arg = &kernel->args[i];
        if (arg->hidden == (int)hidden && arg->bytes >= sizeof(uint64_t))
            return launch->args + arg->offset;
    }
    return nullptr;
}

/** Writes an address to its place. Returns false if the address is null. */
static bool put_address(uint8_t *place, uint64_t addr) {
    memcpy(place, &addr, sizeof addr);
    return addr;
}

/** What a cooperative launch's barriers use, as the device library lays it out. */
typedef struct grid_sync {
    uint64_t others; // guest address of the barrier of all grids; 0: one grid
    uint32_t index, count;
    uint64_t first_item, num_items; // of all grids
    uint32_t arrived, unused, num_groups;
} grid_sync;

static_assert(offsetof(grid_sync, num_groups) == 40);

static grid_sync make_grid_sync(const launch_op *launch) {
    const sim_grids *g = &launch->grids;
    return (grid_sync){.others = g->shared ? g->shared->barrier : 0,
                       .index = g->index,
                       .count = g->count,
                       .first_item = g->first_item,
                       .num_items = g->num_items,
                       .num_groups = (uint32_t)sim_dispatch_groups(&launch->dispatch)};
}

/** Places what a cooperative kernel's barriers use: memory that the check of races looks at, as
 *  arguments are not. Returns false without memory. */
static bool place_grid_sync(sim_stream *stream, launch_op *launch) {
    uint8_t *place = hidden_place(launch, SIM_HIDDEN_GRID_SYNC);
    if (!place || !launch->dispatch.is_cooperative)
        return true;
    if (!stream->grid_sync) {
        const sim_region *region = sim_memory_alloc(sim_hip.memory, sizeof(grid_sync),
                                                    SIM_REGION_HOST, stream->device->id);
        stream->grid_sync = region ? region->base : 0;
    }
    const grid_sync sync = make_grid_sync(launch);
    if (stream->grid_sync)
        memcpy((void *)stream->grid_sync, &sync, sizeof sync);
    return put_address(place, stream->grid_sync);
}

/** Puts the arguments and the packet into the stream's guest memory, which grows as needed. */
static bool place_args(sim_stream *stream, launch_op *launch) {
    enum { FIRST_BYTES = 8192 };
    const uint64_t packet_at = (launch->args_bytes + 63) & ~UINT64_C(63);
    const uint64_t bytes = packet_at + PACKET_BYTES + KERNARG_SLACK;
    if (stream->kernarg_bytes < bytes) {
        if (stream->kernarg)
            sim_memory_free(sim_hip.memory, stream->kernarg);
        stream->kernarg_bytes = bytes < FIRST_BYTES ? FIRST_BYTES : bytes;
        const sim_region *region = sim_memory_alloc(sim_hip.memory, stream->kernarg_bytes,
                                                    SIM_REGION_KERNARG, stream->device->id);
        stream->kernarg = region ? region->base : 0;
        stream->kernarg_bytes = region ? stream->kernarg_bytes : 0;
        if (!region)
            return false;
    }
    launch->dispatch.kernarg = stream->kernarg;
    launch->dispatch.packet = stream->kernarg + packet_at;
    packet p = make_packet(&launch->dispatch);
    uint8_t *host = sim_memory_host(sim_hip.memory, stream->kernarg, stream->kernarg_bytes);
    memcpy(host, launch->args, launch->args_bytes);
    memcpy(host + packet_at, &p, sizeof p);
    return true;
}

/** Places the memory that the kernel finds through the hidden arguments that it wants. Returns
 *  false without memory. */
static bool place_memory(sim_stream *stream, launch_op *launch, bool *asks_host, bool *prints) {
    uint8_t *hostcall = hidden_place(launch, SIM_HIDDEN_HOSTCALL_BUFFER);
    uint8_t *buffer = hidden_place(launch, SIM_HIDDEN_PRINTF_BUFFER);
    uint8_t *heap = hidden_place(launch, SIM_HIDDEN_HEAP);
    *asks_host = hostcall;
    *prints = buffer;
    if (hostcall && !stream->hostcall &&
        !(stream->hostcall = sim_hostcall_create(stream->device->id))) {
        return false;
    }
    return place_grid_sync(stream, launch) &&
           (!hostcall || put_address(hostcall, sim_hostcall_address(stream->hostcall))) &&
           (!buffer || put_address(buffer, sim_hip_printf_buffer(stream))) &&
           (!heap || put_address(heap, sim_hip_heap(stream->device)));
}

/** Makes the dispatch known to sim_hip_stop_streams. Returns false if that call came first. */
static bool announce(sim_stream *stream, sim_dispatch *dispatch) {
    pthread_mutex_lock(&sim_hip.lock);
    stream->dispatch = dispatch;
    const bool go_on = !sim_hip.is_stopping;
    pthread_mutex_unlock(&sim_hip.lock);
    return go_on;
}

static void end_run(sim_stream *stream, sim_op *op, bool is_done) {
    pthread_mutex_lock(&sim_hip.lock);
    stream->dispatch = nullptr;
    sim_hip_time_ran(stream, op, &((launch_op *)op)->dispatch, is_done);
    pthread_mutex_unlock(&sim_hip.lock);
}

static hipError_t run_launch(sim_stream *stream, sim_op *op) {
    launch_op *launch = (launch_op *)op;
    sim_dispatch *d = &launch->dispatch;
    bool asks_host, prints;
    if (!place_memory(stream, launch, &asks_host, &prints) || !place_args(stream, launch) ||
        (asks_host && !sim_hostcall_begin(stream->hostcall, d))) {
        return hipErrorOutOfMemory;
    }
    d->wants_demand = op->end;
    d->shown.stream = stream->number;
    const bool is_done = announce(stream, d) && sim_dispatch_run(d);
    end_run(stream, op, is_done);
    if (asks_host)
        sim_hostcall_end(stream->hostcall);
    if (prints)
        sim_hip_print_buffer(stream, d->object);
    hipError_t error = sim_hip_report_faults(d);
    sim_faults_deinit(&d->faults);
    return error;
}

static void init_dispatch(sim_dispatch *d, hipFunction_t function, const uint32_t grid[3],
                          const uint32_t block[3], uint32_t dynamic_lds) {
    sim_device *device = function->module->device;
    d->chip = device->chip;
    d->device = device->id;
    d->memory = sim_hip.memory;
    d->kernel = function->kernel;
    d->object = function->module->object;
    d->text = sim_object_text(d->object);
    memcpy(d->grid, grid, sizeof d->grid);
    memcpy(d->block, block, sizeof d->block);
    d->lds_bytes = function->kernel->lds_bytes + dynamic_lds;
    d->check = sim_hip.options.check;
    d->fast_matrix = sim_hip.options.fast_matrix;
    d->turn = sim_hip.options.turn;
    d->limit = sim_hip.options.limit;
    d->passes_overreads = sim_hip.options.passes_overreads;
    d->faults.max = sim_hip.options.faults;
    d->clock = sim_hip.options.clock == SIM_CLOCK_OFF ? nullptr : &device->clock;
    d->clock_mode = sim_hip.options.clock;
}

static hipError_t check_modelled(const sim_device *device, bool is_cooperative) {
    if (sim_hip.options.clock == SIM_CLOCK_OFF || (device->chip->timing && !is_cooperative))
        return hipSuccess;
    if (is_cooperative)
        sim_hip_report("QUERN_SIM", "clock: no time is modelled for cooperative launches");
    else
        sim_hip_report("QUERN_SIM",
                       "clock: no time is modelled for %s; accepted: any but generic chips",
                       device->chip->name);
    return hipErrorNotSupported;
}

void sim_hip_release_grids(sim_shared_grids *shared, unsigned count) {
    if (!shared || (shared->references -= count))
        return;
    sim_memory_retire(sim_hip.memory, shared->barrier);
    free(shared);
}

static void destroy_launch(sim_op *op) {
    sim_hip_release_grids(((launch_op *)op)->grids.shared, 1);
}

void sim_hip_number_launch(sim_op *op) {
    sim_dispatch *d = &((launch_op *)op)->dispatch;
    d->id = atomic_fetch_add(&sim_hip.devices[d->device].num_dispatches, 1);
}

const sim_launch *sim_hip_launch_of(const sim_op *op) {
    return &((const launch_op *)op)->asked;
}

void sim_hip_set_cooperative(sim_op *op, bool is_cooperative) {
    launch_op *launch = (launch_op *)op;
    const sim_launch *l = &launch->asked;
    uint64_t items = 1;
    for (int i = 0; i < 3; i++)
        items *= (uint64_t)l->grid[i] * l->block[i];
    launch->grids = (sim_grids){.num_items = items};
    launch->dispatch.is_cooperative = is_cooperative;
}

bool sim_hip_is_cooperative(const sim_op *op) {
    return ((const launch_op *)op)->dispatch.is_cooperative;
}

uint8_t *sim_hip_launch_args(sim_op *op) {
    return ((launch_op *)op)->args;
}

/** Notes that an operation has a function's code. Returns the module; null if the handle is no
 *  function's. */
static struct sim_module *take_module(hipFunction_t f) {
    pthread_mutex_lock(&sim_hip.lock);
    struct sim_module *module = sim_hip_is_function(f) ? f->module : nullptr;
    if (module)
        atomic_fetch_add(&module->num_ops, 1);
    pthread_mutex_unlock(&sim_hip.lock);
    return module;
}

/** Makes the operation of a launch on the device of the kernel's module. */
static hipError_t make_op(sim_op **out, const sim_device *device, const sim_launch *l) {
    const sim_kernel *kernel = l->function->kernel;
    hipError_t error = check_modelled(device, l->grids);
    if (error == hipSuccess)
        error = check_shape(kernel, device->chip, l->grid, l->block, l->dynamic_lds);
    if (error != hipSuccess)
        return error;
    if (l->params && l->extra)
        return hipErrorInvalidValue;
    launch_op *op = calloc(1, sizeof *op + kernel->kernarg_bytes);
    if (!op)
        return hipErrorOutOfMemory;
    op->op.run = run_launch;
    op->op.kind = SIM_OP_LAUNCH;
    op->asked = *l;
    op->op.bytes = sizeof *op + kernel->kernarg_bytes;
    op->args_bytes = kernel->kernarg_bytes;
    init_dispatch(&op->dispatch, l->function, l->grid, l->block, (uint32_t)l->dynamic_lds);
    error = l->extra ? copy_extra(kernel, op->args, l->extra)
                     : copy_params(kernel, op->args, l->params);
    if (error != hipSuccess) {
        free(op);
        return error;
    }
    fill_hidden(&op->dispatch, op->args);
    if (l->grids) {
        op->grids = *l->grids;
        op->asked.grids = nullptr; // the caller's
        op->dispatch.is_cooperative = true;
        op->op.destroy = l->grids->shared ? destroy_launch : nullptr;
    }
    op->op.module = l->function->module;
    *out = &op->op;
    return hipSuccess;
}

hipError_t sim_hip_launch_op(sim_op **out, const sim_device *device, const sim_launch *l) {
    struct sim_module *module = take_module(l->function);
    if (!module)
        return hipErrorInvalidHandle;
    hipError_t error = device && device != module->device ? hipErrorInvalidHandle
                                                          : make_op(out, module->device, l);
    if (error != hipSuccess)
        atomic_fetch_sub(&module->num_ops, 1);
    return error;
}

/** Checks what AMD's runtime calls a wrong value where a graph's node has a wrong configuration: no
 *  work-items, and in launches of modules' functions also shapes beyond the device's limits. */
static bool is_wrong_value(const sim_launch *l) {
    const uint32_t max_grid[3] = {INT32_MAX, 65536, 65536};
    bool is_empty = false, is_beyond = false;
    uint64_t threads = 1;
    for (int i = 0; i < 3; i++) {
        is_empty |= !l->grid[i] || !l->block[i];
        is_beyond |= l->grid[i] > max_grid[i] || l->block[i] > MAX_BLOCK;
        threads *= l->block[i] <= MAX_BLOCK ? l->block[i] : 1;
    }
    return is_empty || (!l->host && (is_beyond || threads > MAX_BLOCK));
}

hipError_t sim_hip_queue_launch(hipStream_t handle, const sim_launch *launch) {
    sim_stream *stream = sim_hip_stream(handle);
    sim_op *op;
    if (!stream)
        return hipErrorContextIsDestroyed;
    sim_launch l = *launch;
    if (!sim_hip_is_function(l.function)) // then it may be a library's kernel
        sim_library_function(&l.function, launch->function, stream->device);
    if (sim_hip_is_function(l.function) && is_wrong_value(&l))
        return hipErrorInvalidValue;
    hipError_t error = sim_hip_launch_op(&op, stream->device, &l);
    return error == hipSuccess ? sim_hip_queue(stream, op, nullptr) : error;
}

hipError_t sim_hip_launch(hipFunction_t function, const uint32_t grid[3], const uint32_t block[3],
                          size_t dynamic_lds, hipStream_t handle, void **params, void **extra) {
    const sim_launch launch = {.function = function,
                               .grid = {grid[0], grid[1], grid[2]},
                               .block = {block[0], block[1], block[2]},
                               .dynamic_lds = dynamic_lds,
                               .params = params,
                               .extra = extra};
    return sim_hip_queue_launch(handle, &launch);
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned dynamic_lds, hipStream_t stream,
                                 void **params, void **extra) {
    SIM_HIP_START();
    const uint32_t grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return sim_hip_result(
        sim_hip_launch(function, grid, block, dynamic_lds, stream, params, extra));
}

/** Reads a launch's attributes: it may be cooperative, or have a priority, which changes nothing
 *  here as launches do not compete. */
hipError_t sim_hip_launch_attributes(const hipLaunchAttribute *attributes, unsigned count,
                                     bool *is_cooperative) {
    enum { COOPERATIVE = 2, PRIORITY = 8 };
    *is_cooperative = false;
    if (count && !attributes)
        return hipErrorInvalidValue;
    for (unsigned i = 0; i < count; i++) {
        if (attributes[i].id != COOPERATIVE && attributes[i].id != PRIORITY)
            return hipErrorNotSupported;
        if (attributes[i].id == COOPERATIVE)
            *is_cooperative = attributes[i].value.number;
    }
    return hipSuccess;
}

hipError_t hipDrvLaunchKernelEx(const HIP_LAUNCH_CONFIG *config, hipFunction_t function,
                                void **params, void **extra) {
    SIM_HIP_START();
    bool is_cooperative;
    if (!config)
        return sim_hip_result(hipErrorInvalidValue);
    sim_launch l = {.function = function,
                    .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                    .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                    .dynamic_lds = config->sharedMemBytes,
                    .params = params,
                    .extra = extra};
    hipError_t error = sim_hip_launch_attributes(config->attrs, config->numAttrs, &is_cooperative);
    if (error == hipSuccess)
        error = is_cooperative ? sim_hip_cooperative(config->hStream, &l)
                               : sim_hip_queue_launch(config->hStream, &l);
    return sim_hip_result(error);
}
