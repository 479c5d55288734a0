// SPDX-License-Identifier: Apache-2.0
// The HIP runtime's own state: devices, streams and queued operations.
//
// One lock guards all of this state; kernels, copies and the guest's memory have locks of their
// own, which are taken after it. A stream has one thread, which starts with the stream's first
// operation, so that no queued operation runs in the caller's thread; but a copy for which a call
// waits does, if nothing has to come before it.
#ifndef SIM_HIP_RUNTIME_H
#define SIM_HIP_RUNTIME_H

#include "../chip/chip.h"
#include "../clock/clock.h"
#include "../clock/streams/schedule.h"
#include "../memory.h"
#include "../object/object.h"
#include "../options.h"
#include "../wave.h"
#include "hip.h"

#include <pthread.h>

typedef struct sim_device sim_device;
typedef struct sim_stream sim_stream;
typedef struct sim_op sim_op;
typedef struct sim_hostcall sim_hostcall;

/** Says that an operation waits until `stream` has finished `count` operations. */
typedef struct sim_dependency {
    sim_stream *stream; // a reference
    uint64_t count;
} sim_dependency;

/** What an operation is, for graphs that capture it. */
typedef enum sim_op_kind { SIM_OP_OTHER, SIM_OP_LAUNCH, SIM_OP_BOX, SIM_OP_HOST } sim_op_kind;

/** An operation queued on a stream, allocated by malloc. Each kind of operation has a struct of its
 *  own, whose first member this is. */
struct sim_op {
    sim_op *next;
    size_t bytes; // of the whole struct, which a graph may copy; 0: no graph takes this operation
    hipError_t (*run)(sim_stream *stream, sim_op *op); // without the lock, in the stream's thread
    void (*destroy)(sim_op *op); // frees what the struct owns, with the lock held; null: nothing
    bool is_marker;              // the operation runs even after the device has failed
    sim_dependency *dependencies;
    size_t num_dependencies;
    sim_op_kind kind;
    struct sim_module *module; // whose code it runs, counted there; null: none
    // If time is modelled: the last moment for which the program had waited; a launch's end.
    sim_moment *host, *end;
};

/** A list of nodes of a graph. */
typedef struct sim_nodes {
    struct hipGraphNode **list;
    size_t count;
} sim_nodes;

/** How far a stream's operations were queued when an event was recorded there. */
typedef struct sim_known {
    uint64_t stream, position; // sim_stream_key; 0: none
} sim_known;

enum { SIM_NUM_KNOWN = 8 };

struct sim_stream {
    sim_device *device;
    sim_stream *next; // of the device
    unsigned flags;
    uint32_t number; // of the device, in the order in which they were made
    int priority;
    int wait_policy; // of hipStreamSetAttribute; 0: none was set
    unsigned references;
    bool has_thread, is_closing;
    bool is_taken;                 // a thread of the program's runs an operation (sim_hip_run_here)
    struct sim_capture *capture;   // null: none; what is queued becomes nodes of a graph
    struct sim_nodes capture_last; // nodes on which the next one depends
    pthread_t thread;
    sim_op *first, **last;
    uint64_t queued, done; // operations so far
    sim_moment *moment;    // when the last of those that are done was over
    uint64_t kernarg;      // guest memory for kernel arguments, reused by each launch; 0: none yet
    uint64_t kernarg_bytes;
    uint64_t grid_sync;     // guest memory for a cooperative launch's barriers; 0: none yet
    sim_dispatch *dispatch; // the dispatch that runs now
    sim_hostcall *hostcall; // null until a kernel may need it
    uint64_t printf_buffer; // guest memory; 0 until a kernel needs it
    uint64_t printf_bytes;
    uint32_t *cu_mask;              // of the units that it wishes for; null: all
    sim_known known[SIM_NUM_KNOWN]; // of other streams, by events
    unsigned num_known;             // that were ever noted
};

/** Calls of hipEventRecord, and how many of them the stream reached. */
typedef struct sim_event_counts {
    _Atomic uint64_t recorded, passed;
} sim_event_counts;

struct sim_event {
    unsigned flags, references;
    sim_device *device; // device that was current when the event was made
    uint64_t ns;        // when the stream last came to it
    sim_moment *moment; // the same on the device, of the last record, if time is modelled
    unsigned long long capture_id; // of the last record, if a graph captured it; else 0
    struct sim_nodes capture_last;
    sim_known source;              // of the last record
    sim_event_counts own, *counts; // counts: own, or those of all processes that have the event
    int fd;                        // of the file with the latter
};

struct sim_function {
    struct sim_module *module;
    const sim_kernel *kernel;
    struct sim_function *next; // of the module
};

struct sim_module {
    sim_device *device;
    sim_object *object;
    struct sim_function *functions;
    struct sim_module_managed *managed; // its variables in managed memory (module_managed.c)
    atomic_uint num_ops;                // that run its code, of streams and graphs
    bool is_late;                       // operations had its code when it was unloaded
    struct sim_module *next;            // of the device, or of those that were unloaded
};

enum { SIM_LIMIT_STACK, SIM_LIMIT_PRINTF, SIM_LIMIT_HEAP, SIM_HIP_LIMITS };

struct sim_device {
    uint32_t id;
    uint32_t number; // among all devices, hidden ones too
    const sim_chip *chip;
    sim_stream *streams; // the default stream is the last
    sim_stream *default_stream;
    struct sim_module *modules;
    hipError_t error; // of a failed kernel: stays until hipDeviceReset
    atomic_uint_fast64_t num_dispatches;
    atomic_uint flags; // of hipSetDeviceFlags
    atomic_uint peers; // bit i: hipDeviceEnablePeerAccess was called for device i
    atomic_size_t limits[SIM_HIP_LIMITS]; // of hipDeviceSetLimit; 0: as it was
    sim_clock clock;
    sim_schedule schedule;
    uint32_t num_streams;  // that were ever made
    unsigned num_captures; // blocking streams that capture
    uint64_t heap;         // of device malloc, guest memory; 0 until a kernel needs it
};

typedef struct sim_runtime {
    pthread_mutex_t lock;
    pthread_cond_t changed; // signalled when a member below changes
    sim_memory *memory;
    sim_options options;
    sim_device devices[SIM_MAX_DEVICES];
    uint32_t num_devices;
    bool is_stopping;
} sim_runtime;

extern sim_runtime sim_hip;

/** Returns a number, not 0, that no other stream of the process has or had. */
static inline uint64_t sim_stream_key(const sim_stream *stream) {
    return (uint64_t)(stream->device->id + 1) << 32 | stream->number;
}

enum { SIM_GREATEST_PRIORITY = -1, SIM_LEAST_PRIORITY = 1 }; // of streams, as in AMD's runtime

enum { SIM_UUID_BYTES = 17 };
/** Writes a device's UUID, 16 hexadecimal digits, as ROCm's tools show it behind "GPU-".
 *  (visible.c) */
void sim_hip_uuid(uint32_t number, char uuid[SIM_UUID_BYTES]);
/** Writes the numbers of those of `count` devices that the environment lets the process see, in the
 *  environment's order. Returns how many there are. (visible.c) */
uint32_t sim_hip_visible(uint32_t count, uint32_t numbers[SIM_MAX_DEVICES]);

/** Starts the runtime if need be; every HIP call begins with this. (device.c) */
hipError_t sim_hip_start(void);
/** Returns the thread's current device. Called only after sim_hip_start. */
sim_device *sim_hip_device(void);
/** Remembers an error for hipGetLastError, and returns the error. (error.c) */
hipError_t sim_hip_result(hipError_t error);
/** Remembers the name of an unsupported call for hipGetErrorString. Returns hipErrorNotSupported.
 *  (error.c) */
hipError_t sim_hip_unsupported(const char *call);
/** Writes "quernsim: CALL: …" to standard error. (error.c) */
[[gnu::format(printf, 2, 3)]] void sim_hip_report(const char *call, const char *format, ...);

bool sim_hip_is_event(hipEvent_t event);
/** Takes a reference to an event, which another thread may destroy meanwhile. Returns null if the
 *  handle is no event's. (event.c) */
hipEvent_t sim_event_take(hipEvent_t handle);
/** Ends a call for an event, which may be null, with the call's result. */
hipError_t sim_event_give(hipEvent_t event, hipError_t error);
/** Records an event in a stream that does not capture; sim_hip_await waits for its last record.
 *  Errors: hipErrorInvalidHandle if it is no event. */
hipError_t sim_hip_record(hipEvent_t event, sim_stream *stream);
/** Makes an event. (event.c) */
hipError_t sim_event_create(hipEvent_t *out, unsigned flags);
/** Free what the program has left, at the end. (event.c, graph/objects.c, rtc/rtc.c) */
void sim_events_free_all(void);
void sim_user_objects_free_all(void);
void sim_rtc_free_all(void);
/** Ends that an event has the counts of a file. (ipc/events.c) */
void sim_event_unshare(hipEvent_t event);
hipError_t sim_hip_await(sim_stream *stream, hipEvent_t event);
/** Makes an operation that calls a function of the program; null without memory. (stream_info.c) */
sim_op *sim_hip_host_op(const hipHostNodeParams *call);
const hipHostNodeParams *sim_hip_host_of(const sim_op *op);
/** Makes an operation that writes values and waits for values. Errors: hipErrorInvalidValue,
 *  hipErrorOutOfMemory. (stream_values.c) */
hipError_t sim_hip_batch_op(sim_op **out, const hipBatchMemOpNodeParams *params);
/** Returns its parameters, which point into the operation. */
hipBatchMemOpNodeParams sim_hip_batch_of(sim_op *op);
/** The next functions have the lock. (graph/capture.c) Makes a node of an operation that is queued
 *  on a capturing stream; the graph then owns the operation. */
hipError_t sim_capture_op(sim_stream *stream, sim_op *op);
/** A record of an event on a capturing stream: the event then stands for what the stream has
 *  captured. */
hipError_t sim_capture_record(sim_stream *stream, hipEvent_t event);
/** A wait for such an event: the stream joins the capture. */
hipError_t sim_capture_wait(sim_stream *stream, hipEvent_t event);
/** Returns the capture for which an event stands; null if there is none, or it has ended. */
struct sim_capture *sim_capture_of(const struct sim_event *event);
/** A stream is about to go: its capture is then invalid, or ends if it began there. */
void sim_capture_drop(sim_stream *stream);
void sim_captures_drop_all(void);
/** Returns the error of a call that waits for all streams; all captures are then invalid. */
hipError_t sim_capture_refuse_all(void);
/** Returns the error of a call that allocates, frees or registers memory, if a capture forbids it
 *  to this thread; the captures are then invalid. Takes the lock. */
hipError_t sim_capture_forbids(void);
/** Forgets what an event stands for. */
void sim_capture_forget(hipEvent_t event);
/** Returns the error of a call that waits for a stream, or uses the default stream, while a graph
 *  captures; the capture is then invalid. */
hipError_t sim_capture_refuse(sim_stream *stream);
/** hipMallocAsync and hipFreeAsync on a capturing stream become nodes. */
hipError_t sim_capture_alloc(sim_stream *stream, void **out, size_t bytes);
hipError_t sim_capture_free(sim_stream *stream, void *ptr);
/** Returns whether a range lies in memory of a graph, which may not be there yet.
 *  (graph/memory.c) */
bool sim_block_has(const void *ptr, size_t bytes);
/** Returns whether a graph's memory that begins here is allocated, as far as is queued. */
bool sim_block_is_out(const void *ptr);
/** Graph memory will be freed by a stream, or is freed. Any address may be given. */
void sim_block_freeing(uint64_t base);
void sim_block_freed(uint64_t base);
/** Forgets graphs' memory on a device, or all: null. */
void sim_blocks_reset(const sim_device *device);
/** Forgets graphs that the program has left. (graph/graph.c) */
void sim_graphs_free_all(void);

/** Returns the stream of a handle; null and hipStreamLegacy stand for the default stream. Returns
 *  null if the handle is no stream's. */
sim_stream *sim_hip_stream(hipStream_t handle);
/** Queues an operation, which the stream then owns. On failure the operation is destroyed. *ticket
 *  is for sim_hip_wait; `ticket` may be null. */
hipError_t sim_hip_queue(sim_stream *stream, sim_op *op, uint64_t *ticket);
/** Destroys an operation that is not queued. */
void sim_hip_drop(sim_stream *stream, sim_op *op);
/** Runs an operation in the caller's thread, for a call that has to wait for it anyway, if nothing
 *  that is queued has to come before it. Returns false if the operation has to be queued. */
bool sim_hip_run_here(sim_stream *stream, sim_op *op, hipError_t *error);
/** Returns whether the device's time is modelled. (modelled.c) */
bool sim_hip_is_modelled(const sim_device *device);
/** The next functions have the lock. An operation is queued on a stream. Returns false if memory
 *  runs out. */
bool sim_hip_time_queue(sim_stream *stream, sim_op *op);
/** Returns whether an operation may run: launches run in the order in which they were queued. */
bool sim_hip_time_is_met(const sim_stream *stream, const sim_op *op);
/** An operation whose dependencies are met begins. */
void sim_hip_time_begin(sim_stream *stream, const sim_op *op);
/** A launch has run, or failed. */
void sim_hip_time_ran(sim_stream *stream, sim_op *op, sim_dispatch *d, bool is_done);
/** A stream waits for a moment. */
void sim_hip_time_wait(sim_stream *stream, sim_moment *moment);
/** An operation ends or is dropped. */
void sim_hip_time_end(sim_device *device, sim_op *op);
/** The program has waited for what a stream has done, or for a moment. */
void sim_hip_time_synced(sim_stream *stream);
void sim_hip_time_waited(sim_device *device, sim_moment *moment);
/** Finds the time between two moments for which the program has waited, which may take until other
 *  launches have run. */
hipError_t sim_hip_time_between(sim_device *device, sim_moment *from, sim_moment *to, int64_t *ns);
/** Waits until the stream has finished the operation of the ticket and all before it; 0: all that
 *  are queued now. */
hipError_t sim_hip_wait(sim_stream *stream, uint64_t ticket);
/** Waits for everything queued on a device so far. */
hipError_t sim_hip_drain(sim_device *device);
/** Makes a device's default stream, with the lock held. Returns false if memory runs out. */
bool sim_hip_add_default_stream(sim_device *device);
/** Stops running kernels, drops queued operations, and joins every thread. */
void sim_hip_stop_streams(void);
/** Called in a child after fork: forgets the streams' threads, which are gone, and queued
 *  operations, which are the parent's. */
void sim_hip_fork_streams(void);
/** Makes a stream's buffer for its kernels' requests to the host. Returns null if memory runs out.
 *  (hostcall.c) */
sim_hostcall *sim_hostcall_create(uint32_t device);
void sim_hostcall_destroy(sim_hostcall *hostcall);
/** Returns the guest address of the buffer. */
uint64_t sim_hostcall_address(const sim_hostcall *hostcall);
/** Begins to serve a dispatch, before it starts; sim_hostcall_end ends that. A dispatch that asks
 *  for an unknown service has a fault. */
bool sim_hostcall_begin(sim_hostcall *hostcall, sim_dispatch *dispatch);
void sim_hostcall_end(sim_hostcall *hostcall);
/** Returns the buffer that a stream's kernels print into; 0 if memory runs out.
 *  (device_memory.c) */
uint64_t sim_hip_printf_buffer(sim_stream *stream);
/** Prints the text that a kernel has left in the stream's buffer. */
void sim_hip_print_buffer(sim_stream *stream, const sim_object *object);
/** Returns the heap of a device's malloc; 0 if memory runs out. */
uint64_t sim_hip_heap(sim_device *device);
/** Unloads a device's modules; nothing may be running on it. (module.c) */
void sim_hip_unload_modules(sim_device *device);
/** Loads a code object or bundle onto a device. If that fails, writes `what` and the reason to
 *  standard error. */
hipError_t sim_hip_load_module(hipModule_t *out, sim_device *device, const void *image,
                               size_t bytes, const char *what);
/** Finds the kernel of a module that stays loaded meanwhile. Errors: hipErrorNotFound,
 *  hipErrorOutOfMemory. */
hipError_t sim_hip_function(hipFunction_t *out, hipModule_t module, const char *name);
bool sim_hip_is_function(hipFunction_t function);
/** Gives a module that the program loads memory for its managed variables. Returns false without
 *  memory. (module_managed.c) */
bool sim_module_make_managed(hipModule_t module);
void sim_module_free_managed(hipModule_t module);
/** Finds a managed variable. Returns false if there is none of this name. */
bool sim_module_find_managed(hipModule_t module, const char *name, uint64_t *addr, uint64_t *bytes);
/** Returns a whole file; null with errno set. */
void *sim_hip_read_file(const char *path, size_t *bytes);
/** Finds the function of a library's kernel on a device. Errors: hipErrorInvalidDeviceFunction if
 *  the handle is none of these. (library.c) */
hipError_t sim_library_function(hipFunction_t *out, const void *kernel, sim_device *device);
/** Forgets what libraries have loaded onto a device; frees them all. */
void sim_libraries_reset(const sim_device *device);
void sim_libraries_free_all(void);
void sim_library_fork_prepare(void);
void sim_library_fork_done(void);
/** The barrier of grids that wait for each other. The runtime's lock guards `references`. */
typedef struct sim_shared_grids {
    uint64_t barrier; // guest memory
    unsigned references;
} sim_shared_grids;

/** Releases references, with the lock held; null: none. (launch.c) */
void sim_hip_release_grids(sim_shared_grids *shared, unsigned count);

/** A cooperative launch's place among the grids that wait for each other; items are work-items. */
typedef struct sim_grids {
    sim_shared_grids *shared; // null: the grid is alone
    uint32_t index, count;
    uint64_t first_item, num_items;
} sim_grids;

/** What is asked for by a launch. */
typedef struct sim_launch {
    hipFunction_t function;
    uint32_t grid[3], block[3];
    size_t dynamic_lds;
    void **params, **extra; // a pointer to each argument, or all of them in a buffer
    const sim_grids *grids; // null: not cooperative
    const void *host;       // by which the program knows the kernel; null: by the function
} sim_launch;

/** Checks a launch and makes the operation, which the caller owns; for the function's device if
 *  `device` is null. (launch.c) */
hipError_t sim_hip_launch_op(sim_op **out, const sim_device *device, const sim_launch *launch);
/** Returns whether all workgroups of a launch fit on the device at a time. (cooperative.c) */
bool sim_hip_fits(const sim_launch *launch);
/** Makes a launch's operation that of a cooperative launch, whose grid is alone, or not. */
void sim_hip_set_cooperative(sim_op *op, bool is_cooperative);
bool sim_hip_is_cooperative(const sim_op *op);
/** Gives an operation that is a launch its number among the device's. */
void sim_hip_number_launch(sim_op *op);
/** Returns the arguments of an operation that is a launch; what was asked for. */
uint8_t *sim_hip_launch_args(sim_op *op);
const sim_launch *sim_hip_launch_of(const sim_op *op);
hipError_t sim_hip_launch_attributes(const hipLaunchAttribute *attributes, unsigned count,
                                     bool *is_cooperative);
hipError_t sim_hip_queue_launch(hipStream_t handle, const sim_launch *launch);
/** Checks and queues a cooperative launch. (cooperative.c) */
hipError_t sim_hip_cooperative(hipStream_t handle, sim_launch *launch);
/** Queues a launch. Either `params` has a pointer to each argument, or `extra` gives a buffer with
 *  all arguments. (launch.c) */
hipError_t sim_hip_launch(hipFunction_t function, const uint32_t grid[3], const uint32_t block[3],
                          size_t dynamic_lds, hipStream_t handle, void **params, void **extra);
/** Reports and counts the faults of a launch. Returns the error that the program gets, which
 *  depends on the first fault. (faults.c) */
hipError_t sim_hip_report_faults(const sim_dispatch *dispatch);
/** Prints how many faults there were, and ends the process if the option errorcode asks for that.
 *  Called at exit or dlclose, when no thread of the library is left. */
void sim_hip_finish_faults(void);
/** Makes dlclose leave the library in place, so that it is there when the process ends. */
void sim_hip_stay_loaded(void);
/** Called in a child after fork: forgets the parent's faults. */
void sim_hip_fork_faults(void);
/** Returns the device of an ordinal, or null. (device.c) */
sim_device *sim_hip_device_at(int id);
/** Does what hipMalloc does, on any device. (memory/memory.c) */
hipError_t sim_hip_alloc(sim_device *device, void **out, size_t bytes);
/** Checks that ranges of the program's or the guest's memory can be copied as `kind` says. Sets
 *  *waits if the call must wait for the copy, because a range is the program's own memory.
 *  (memory/memory.c) */
hipError_t sim_hip_check_copy(const void *dst, size_t dst_bytes, const void *src, size_t src_bytes,
                              hipMemcpyKind kind, bool *waits);
/** Returns the host's address of the program's or the guest's memory; null if device memory has
 *  been freed. Called between sim_memory_enter and sim_memory_leave. */
void *sim_hip_resolve(const void *ptr, size_t bytes);
/** Gives where the allocation begins that an address lies in, and its size. (memory/memory.c) */
void sim_hip_extent(const sim_region *region, const void *ptr, uint64_t *base, uint64_t *bytes);
/** Copies as hipMemcpyAsync does if is_async, else as hipMemcpy does. (memory/memory.c) */
hipError_t sim_hip_copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                        hipStream_t handle, bool is_async);
/** Forgets what the program set for memory that is about to be freed, or for all.
 *  (memory/pointers.c) */
void sim_pointer_forget(uint64_t base);
void sim_pointers_forget_all(void);
/** Returns a number that no other allocation has or had; 0 without memory. */
unsigned sim_pointer_id(const sim_region *region);
/** Called around fork, innermost of all. */
void sim_pointer_fork_prepare(void);
void sim_pointer_fork_done(void);
/** Returns whether calls have to wait for copies and fills of the memory that an address has. */
bool sim_pointer_is_synced(const void *ptr);
/** Returns the pool from which a device's stream-ordered allocations come. (memory/pools.c) */
hipMemPool_t sim_pool_of(sim_device *device);
/** Allocates for what a stream does from now on. (memory/pool_blocks.c) */
hipError_t sim_pool_alloc(hipMemPool_t pool, void **out, size_t bytes, const sim_stream *stream);
/** Lets a pool have memory back that an operation frees which the stream is about to be given.
 *  Returns a number for sim_pool_reach; 0 if it comes from no pool, or goes at once. */
uint64_t sim_pool_free_later(uint64_t base, const sim_stream *stream);
/** A stream has come to that operation. */
void sim_pool_reach(uint64_t serial);
/** Returns whether memory is a pool's that was freed in a stream's order. */
bool sim_pool_has_freed(uint64_t base);
/** A call has waited: pools give back what they hold above their thresholds. */
void sim_pools_waited(void);
/** Returns whether other processes may open a pool. */
bool sim_pool_is_shareable(hipMemPool_t pool);
/** Makes a pool of another process's memory; null without memory. */
hipMemPool_t sim_pool_import(sim_device *device);
/** Returns the device of such a pool; null if the handle is none of these. */
sim_device *sim_pool_importer(hipMemPool_t pool);
/** Enters memory of another process in a pool. Returns false without memory. */
bool sim_pool_adopt(hipMemPool_t pool, uint64_t base, uint64_t bytes);
/** What pool memory comes from that begins at an address: one that other processes may open, or
 *  another process's. */
typedef enum sim_pool_share { SIM_POOL_NONE, SIM_POOL_SHAREABLE, SIM_POOL_IMPORTED } sim_pool_share;
sim_pool_share sim_pool_share_of(uint64_t base);
/** Returns whether memory, null for none, came from another process's pool. (ipc/pools.c) */
bool sim_pool_is_opened(const sim_region *region);
/** Takes memory that is about to be freed out of its pool, if it comes from one. */
void sim_pool_freed(uint64_t base);
/** Forgets the pools of a device, or of all: null. */
void sim_pools_reset(const sim_device *device);
/** Allocates managed memory. (memory/managed.c) */
hipError_t sim_managed_alloc(void **out, size_t bytes, unsigned flags);
/** Forgets the advice for managed memory that is about to be freed. */
void sim_managed_forget(uint64_t base);

/** Forgets the ranges' memory on a device, or all ranges: null. (memory/virtual.c) */
void sim_virtual_reset(const sim_device *device);
/** Finds the part of a range, given memory by one call, that an address lies in. Returns false if
 *  the address has no such memory. */
bool sim_virtual_find(uint64_t addr, uint64_t *base, uint64_t *bytes);
/** Called around fork, outermost of all. */
void sim_virtual_fork_prepare(void);
void sim_virtual_fork_done(void);
/** Forgets memory of other processes that is still open. (ipc/memory.c) */
void sim_ipc_close_all(void);

/** A box of a copy or fill (memory/boxes.c): rows of `width` bytes, `pitch` bytes apart, in
 *  slices. */
typedef struct sim_box {
    uint8_t *dst;
    const uint8_t *src; // null: a fill
    size_t dst_pitch, src_pitch, dst_slice, src_slice, width, height, depth;
    uint32_t value;     // of a fill, in units of 1, 2 or 4 bytes
    size_t unit;        // 0: a copy
    hipMemcpyKind kind; // as the program gave it; sim_hip_box_op sets it
} sim_box;

/** Checks a box and makes the operation, which the caller owns; null for an empty box. Sets *waits
 *  as sim_hip_check_copy does. */
hipError_t sim_hip_box_op(sim_op **out, const sim_box *box, hipMemcpyKind kind, bool *waits);
/** Returns the box of an operation that is one. */
const sim_box *sim_hip_box_of(const sim_op *op);
/** Queues a box, and waits for it as sim_hip_copy does. */
hipError_t sim_hip_box(const sim_box *box, hipMemcpyKind kind, hipStream_t handle, bool is_async);
/** Finds the box of a copy of arrays or memory. (memory/volumes.c) */
hipError_t sim_hip_volume(sim_box *out, const hipMemcpy3DParms *copy);
hipError_t sim_hip_driver_volume(sim_box *out, const HIP_MEMCPY3D *copy);
hipMemcpyKind sim_hip_copy_kind(hipMemoryType to, hipMemoryType from);

/** What a handle of the program stands for. (handles.c) */
typedef enum sim_handle_kind {
    SIM_HANDLE_ARRAY,
    SIM_HANDLE_POOL,
    SIM_HANDLE_GRAPH,
    SIM_HANDLE_NODE,
    SIM_HANDLE_EXEC,
    SIM_HANDLE_USER_OBJECT,
    SIM_HANDLE_CONTEXT,
    SIM_HANDLE_PROGRAM,
    SIM_HANDLE_LINK,
    SIM_HANDLE_PHYSICAL,
    SIM_HANDLE_EVENT,
    SIM_HANDLE_LIBRARY,
    SIM_HANDLE_KERNEL,
    SIM_HANDLE_FUNCTION,
    SIM_HANDLE_FREEING, // memory that a stream will free
} sim_handle_kind;

/** Enters a handle. Returns false without memory. */
bool sim_handle_add(sim_handle_kind kind, const void *handle);
bool sim_handle_is(sim_handle_kind kind, const void *handle);
/** Returns whether there was such a handle. */
bool sim_handle_remove(sim_handle_kind kind, const void *handle);
/** Removes any handle of a kind, for the end of the process; null if there is none. */
void *sim_handle_take(sim_handle_kind kind);
/** Called around fork, innermost of all. */
void sim_handle_fork_prepare(void);
void sim_handle_fork_done(void);

/** Finds the guest address of `bytes` at an offset into a variable, on the current device.
 *  (registry.c) */
hipError_t sim_hip_symbol(const void *symbol, size_t bytes, size_t offset, void **out);
/** Finds the kernel of a program's handle on a device; loads the kernel's code if need be.
 *  (registry.c) Errors: hipErrorInvalidDeviceFunction, hipErrorNoBinaryForGpu,
 *  hipErrorInvalidImage. */
hipError_t sim_hip_registered(hipFunction_t *out, const void *kernel, sim_device *device);
/** Lets the kernels of a unit be refused, for a variable without which they cannot run. */
void sim_hip_refuse_binary(void **handle, const char *variable);
/** Forgets the kernels of a device whose modules are about to be unloaded. */
void sim_hip_forget_registered(sim_device *device);
/** Called around fork, before the runtime's own lock is taken and after it is given back. */
void sim_hip_fork_registry_prepare(void);
void sim_hip_fork_registry_done(void);

#define SIM_HIP_START()                                                                            \
    do {                                                                                           \
        hipError_t error_ = sim_hip_start();                                                       \
        if (error_ != hipSuccess)                                                                  \
            return sim_hip_result(error_);                                                         \
    } while (0)

/** The same for calls that a capture may forbid. */
#define SIM_HIP_START_UNCAPTURED()                                                                 \
    do {                                                                                           \
        SIM_HIP_START();                                                                           \
        hipError_t forbidden_ = sim_capture_forbids();                                             \
        if (forbidden_ != hipSuccess)                                                              \
            return sim_hip_result(forbidden_);                                                     \
    } while (0)

#endif
