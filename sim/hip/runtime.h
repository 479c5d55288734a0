// SPDX-License-Identifier: Apache-2.0
// The HIP runtime's own state: devices, streams and what is queued on them.
//
// One lock guards all of it; kernels, copies and the guest's memory have locks of their own below
// it. A stream has one thread, started with its first operation, so that nothing queued ever runs
// in the caller's.
#ifndef SIM_HIP_RUNTIME_H
#define SIM_HIP_RUNTIME_H

#include "../chip/chip.h"
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

/** Waits for `stream` to have finished `count` operations. */
typedef struct sim_dependency {
    sim_stream *stream; // a reference
    uint64_t count;
} sim_dependency;

/** Something queued on a stream; the first member of each kind's own struct. From malloc. */
struct sim_op {
    sim_op *next;
    hipError_t (*run)(sim_stream *stream, sim_op *op); // without the lock, in the stream's thread
    void (*destroy)(sim_op *op); // what the struct owns, with the lock held; null: nothing
    bool is_marker;              // runs even after the device has failed
    sim_dependency *dependencies;
    size_t num_dependencies;
};

struct sim_stream {
    sim_device *device;
    sim_stream *next; // of the device
    unsigned flags;
    /** Kept for the program: there is nothing here that one stream could take from another. */
    int priority;
    unsigned references;
    bool has_thread, is_closing;
    pthread_t thread;
    sim_op *first, **last;
    uint64_t queued, done; // operations so far
    uint64_t kernarg;      // guest memory for kernel arguments, reused by each launch; 0: none yet
    uint64_t kernarg_bytes;
    sim_dispatch *dispatch; // that runs now
    sim_hostcall *hostcall; // null until a kernel may need it
    uint64_t printf_buffer; // guest memory; 0 until a kernel needs it
    uint64_t printf_bytes;
};

struct sim_event {
    uint64_t magic;
    unsigned flags, references;
    sim_device *device;        // that was current when it was made
    uint64_t recorded, passed; // counts of hipEventRecord, and of those that the stream has reached
};

struct sim_function {
    uint64_t magic;
    struct sim_module *module;
    const sim_kernel *kernel;
    struct sim_function *next; // of the module
};

struct sim_module {
    sim_device *device;
    sim_object *object;
    struct sim_function *functions;
    struct sim_module *next; // of the device
};

struct sim_device {
    uint32_t id;
    uint32_t number; // among all that there are, hidden ones too
    const sim_chip *chip;
    sim_stream *streams; // the default stream is the last
    sim_stream *default_stream;
    struct sim_module *modules;
    hipError_t error; // of a failed kernel: stays until hipDeviceReset
    atomic_uint_fast64_t num_dispatches;
    atomic_uint flags;       // of hipSetDeviceFlags
    atomic_uint peers;       // bit i: hipDeviceEnablePeerAccess was called for device i
    atomic_uint stack_limit; // of hipDeviceSetLimit; 0: as it was
    atomic_uint printf_limit;
    uint64_t heap; // of device malloc, guest memory; 0 until a kernel needs it
};

typedef struct sim_runtime {
    pthread_mutex_t lock;
    pthread_cond_t changed; // anything below
    sim_memory *memory;
    sim_options options;
    sim_device devices[SIM_MAX_DEVICES];
    uint32_t num_devices;
    bool is_stopping;
} sim_runtime;

extern sim_runtime sim_hip;

enum { SIM_GREATEST_PRIORITY = -1, SIM_LEAST_PRIORITY = 1 }; // of streams, as on AMD's
constexpr uint64_t SIM_EVENT_MAGIC = UINT64_C(0x746e657665737173);
constexpr uint64_t SIM_FUNCTION_MAGIC = UINT64_C(0x6e6f697463667173);

enum { SIM_UUID_BYTES = 17 };
/** A device's UUID, 16 hexadecimal digits: what ROCm's tools show behind "GPU-". (visible.c) */
void sim_hip_uuid(uint32_t number, char uuid[SIM_UUID_BYTES]);
/** The numbers of those of `count` devices that the environment lets the process see, in its order.
 *  (visible.c) */
uint32_t sim_hip_visible(uint32_t count, uint32_t numbers[SIM_MAX_DEVICES]);

/** Starts the runtime if need be; every call begins with it. (device.c) */
hipError_t sim_hip_start(void);
/** The thread's current device. Only after sim_hip_start. */
sim_device *sim_hip_device(void);
/** Remembers an error for hipGetLastError; gives it back. (error.c) */
hipError_t sim_hip_result(hipError_t error);
/** Remembers that a call is not there, for hipGetErrorString; gives hipErrorNotSupported.
 *  (error.c) */
hipError_t sim_hip_unsupported(const char *call);
/** Writes "quernsim: CALL: …" to standard error. (error.c) */
[[gnu::format(printf, 2, 3)]] void sim_hip_report(const char *call, const char *format, ...);

/** The stream that a handle means, null and hipStreamLegacy being the default stream; null if it is
 *  none. */
sim_stream *sim_hip_stream(hipStream_t handle);
/** Queues op and takes it over; *ticket (may be null) is for sim_hip_wait. Destroys it on
 *  failure. */
hipError_t sim_hip_queue(sim_stream *stream, sim_op *op, uint64_t *ticket);
/** Waits until the stream has finished what it had been given up to the ticket; 0: up to now. */
hipError_t sim_hip_wait(sim_stream *stream, uint64_t ticket);
/** Waits for everything queued on a device so far. */
hipError_t sim_hip_drain(sim_device *device);
/** Makes a device's default stream; false without memory. The lock is held. */
bool sim_hip_add_default_stream(sim_device *device);
/** Stops running kernels, drops what is queued, joins every thread. */
void sim_hip_stop_streams(void);
/** In a child after fork: the streams' threads are gone, and what was queued is the parent's. */
void sim_hip_fork_streams(void);
/** A stream's buffer for what its kernels ask of the host; null without memory. (hostcall.c) */
sim_hostcall *sim_hostcall_create(uint32_t device);
void sim_hostcall_destroy(sim_hostcall *hostcall);
/** Where kernels find it. */
uint64_t sim_hostcall_address(const sim_hostcall *hostcall);
/** Serves a dispatch from before it starts until it has ended. One that asks for what is not there
 *  has a fault. */
bool sim_hostcall_begin(sim_hostcall *hostcall, sim_dispatch *dispatch);
void sim_hostcall_end(sim_hostcall *hostcall);
/** The buffer that a stream's kernels print into; 0 without memory. (device_memory.c) */
uint64_t sim_hip_printf_buffer(sim_stream *stream);
/** Prints what a kernel has left there. */
void sim_hip_print_buffer(sim_stream *stream, const sim_object *object);
/** The heap of a device's malloc; 0 without memory. */
uint64_t sim_hip_heap(sim_device *device);
/** Unloads a device's modules; nothing may be running on it. (module.c) */
void sim_hip_unload_modules(sim_device *device);
/** Loads a code object or bundle onto a device; a complaint goes to standard error after `what`. */
hipError_t sim_hip_load_module(hipModule_t *out, sim_device *device, const void *image,
                               size_t bytes, const char *what);
/** A module's kernel. Errors: hipErrorNotFound, hipErrorOutOfMemory. */
hipError_t sim_hip_function(hipFunction_t *out, hipModule_t module, const char *name);
/** Queues a launch. `params` has a pointer for each argument; or `extra` tells of a packed buffer.
 *  (launch.c) */
hipError_t sim_hip_launch(hipFunction_t function, const uint32_t grid[3], const uint32_t block[3],
                          size_t dynamic_lds, hipStream_t handle, void **params, void **extra);
/** Tells what a launch did wrong and counts it; the first fault says which error the program gets.
 *  (faults.c) */
hipError_t sim_hip_report_faults(const sim_dispatch *dispatch);
/** At exit or dlclose, once no thread of ours is left: prints how many faults there were, and ends
 *  the process where the option errorcode asks for it. */
void sim_hip_finish_faults(void);
/** Makes dlclose leave the library in place, so that it is there when the process ends. */
void sim_hip_stay_loaded(void);
/** In a child after fork, which has no faults of its own yet. */
void sim_hip_fork_faults(void);
/** The device of an ordinal, or null. (device.c) */
sim_device *sim_hip_device_at(int id);
/** hipMalloc on any device. (memory.c) */
hipError_t sim_hip_alloc(sim_device *device, void **out, size_t bytes);
/** Whether ranges of the program's or the guest's memory can be copied as `kind` says. *waits: the
 *  call has to wait for the copy, as a range is the program's own memory. (memory.c) */
hipError_t sim_hip_check_copy(const void *dst, size_t dst_bytes, const void *src, size_t src_bytes,
                              hipMemcpyKind kind, bool *waits);
/** The host's address for either side's memory; null if device memory has gone. Within
 *  sim_memory_enter. */
void *sim_hip_resolve(const void *ptr, size_t bytes);
/** A copy as hipMemcpyAsync, or as hipMemcpy where it must be done on return. (memory.c) */
hipError_t sim_hip_copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                        hipStream_t handle, bool is_async);
/** The kernel that a program's handle means on a device; loads its code if need be. (registry.c)
 *  Errors: hipErrorInvalidDeviceFunction, hipErrorNoBinaryForGpu, hipErrorInvalidImage. */
hipError_t sim_hip_registered(hipFunction_t *out, const void *kernel, sim_device *device);
/** A device's modules are about to go. */
void sim_hip_forget_registered(sim_device *device);
/** Around fork, before the runtime's own lock is taken and after it is given back. */
void sim_hip_fork_registry_prepare(void);
void sim_hip_fork_registry_done(void);

#define SIM_HIP_START()                                                                            \
    do {                                                                                           \
        hipError_t error_ = sim_hip_start();                                                       \
        if (error_ != hipSuccess)                                                                  \
            return sim_hip_result(error_);                                                         \
    } while (0)

#endif
