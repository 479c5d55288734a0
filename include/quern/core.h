// SPDX-License-Identifier: Apache-2.0
// Status codes, devices, memory, streams and events: what every quern call relies on.
#ifndef QUERN_CORE_H
#define QUERN_CORE_H

#include <quern/dlpack/dlpack.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_VERSION "0.2.0"
#define QN_API __attribute__((visibility("default")))

/** Every call that can fail returns one of these codes; qn_last_error() returns the message. */
typedef int32_t qn_status;
enum {
    QN_OK = 0,
    QN_E_INVALID = -1,     /**< an argument is null, misshapen or out of range */
    QN_E_UNSUPPORTED = -2, /**< the request is valid, but no kernel or device here can run it */
    QN_E_DEVICE = -3,      /**< the driver reported an error */
    QN_E_MEMORY = -4,      /**< host or device memory is exhausted */
    QN_E_IO = -5,          /**< a file could not be read or written */
    QN_E_NOT_FOUND = -6,   /**< no such device, file, kernel or symbol */
    QN_E_MISMATCH = -7,    /**< a check compared two results, and they differ */
};

typedef struct qn_device qn_device;
typedef struct qn_stream qn_stream;
typedef struct qn_event qn_event;

/** Returns the message of this thread's last failed call, or "" if no call failed. The text is
 *  valid until this thread's next failure. */
QN_API const char *qn_last_error(void);
/** Returns the name of a status ("QN_OK", "QN_E_INVALID", …), or "QN_E_?" if there is no such
 *  status. */
QN_API const char *qn_status_name(qn_status status);
/** Returns the full name of the kernel that this thread's last op call ran
 *  ("gemm.fp8_mfma_128x128"), or "" before the first call. Attention may run a second kernel for
 *  requests of more than a few rows, and then this is the second. */
QN_API const char *qn_last_kernel(void);
/** Returns the library's version: QN_VERSION as it was when the library was built. */
QN_API const char *qn_version(void);

typedef struct qn_device_info {
    size_t struct_size;   /**< set by the caller: sizeof(qn_device_info) */
    char spec[48];        /**< spec that opens the device: "cpu", "hip:0", "cuda:0", "sim:gfx942" */
    char name[128];       /**< marketing name, or the processor's brand string */
    char arch[48];        /**< "gfx942", "x86-64-avx512bf16" */
    char driver[128];     /**< the driver library and its version */
    int64_t memory_bytes; /**< total device memory */
    int64_t lds_bytes;    /**< LDS that a workgroup may use; 0 on the CPU */
    int32_t num_compute_units; /**< compute units; CPU: threads that the system allows */
    int32_t wave_size;         /**< lanes in a wave; CPU: 1 */
    int32_t clock_khz;         /**< peak clock; 0 if unknown */
    int32_t has_clock;         /**< 1: events have times; 0: the device has no clock */
    int32_t is_modelled;       /**< 1: the device is a simulated GPU, whose clock is modelled: off
                                    unless QUERN_SIM has clock=on or clock=full */
} qn_device_info;

/** Opens a device.
 *
 *  spec    "cpu", "hip:0", "cuda:0", "sim:gfx942", "sim:gfx942:2" (a second simulated gfx942),
 *          "auto" or null. "auto" and null take what QUERN_DEVICE names, else the first real GPU,
 *          else the CPU.
 *  Errors: QN_E_INVALID (malformed spec), QN_E_NOT_FOUND (no such device or driver), QN_E_DEVICE.
 *
 *  A device has one handle: every open of a device returns that handle, and needs a close of its
 *  own. */
QN_API qn_status qn_device_open(qn_device **out, const char *spec);
/** Closes a device that qn_device_open opened; null does nothing. The last close of a device must
 *  come after its streams, events and memory are destroyed. */
QN_API void qn_device_close(qn_device *device);
/** Fills the members of info that lie within info->struct_size, which the caller sets.
 *  Errors: QN_E_INVALID (null, a struct_size that no version had). */
QN_API qn_status qn_device_get_info(const qn_device *device, qn_device_info *info);
/** Returns the DLDevice that tensors on this device carry.
 *
 *  CPU            kDLCPU
 *  cuda, hip      kDLCUDA and kDLROCM, with the driver's number of the device
 *  simulated GPU  kDLROCM, with an id that this process gave it
 *  null           device_type 0, which is no device */
QN_API DLDevice qn_device_id(const qn_device *device);
/** Lists every device that can be opened here, in the order in which "auto" would take them, the
 *  simulated ones last. Backends that QUERN_DISABLE names are left out.
 *
 *  infos   null: only count is written; else an array, in whose first element the caller sets
 *          struct_size, for all elements
 *  count   in: room in infos; out: number of devices, which may be larger
 *  Errors: QN_E_INVALID (null, struct_size, an environment variable that is not understood),
 *          QN_E_MEMORY, QN_E_IO. */
QN_API qn_status qn_device_list(qn_device_info *infos, int32_t *count);

/** A place where the library of a GPU's driver is looked for. */
typedef struct qn_driver_place {
    size_t struct_size; /**< set by the caller: sizeof(qn_driver_place) */
    char kind[8];       /**< of the devices: "hip", "cuda" */
    char where[48];     /**< what names the place: "ROCM_PATH", "this process" */
    char path[256];     /**< the library, or its name alone where the loader looks for it */
    char found[192];    /**< "taken", "not there", "not loaded", "not looked at", or why it cannot
                             be loaded */
    int32_t is_used;    /**< 1: this is the driver */
} qn_driver_place;

/** Lists where the drivers of hip:N and cuda:N are looked for, in the order of the search, up to
 *  one that is taken or cannot be loaded; places behind that one are not looked at. The search goes
 *  by QUERN_HIP_LIBRARY alone if it is set; else through the libraries that the process has, the
 *  folders lib of ROCM_PATH, HIP_PATH, /opt/rocm and /opt/rocm-*, TheRock's wheels of the running
 *  Python and beside quern's own, and the loader's path. For CUDA there are QUERN_CUDA_LIBRARY,
 *  the process, WSL's folder and the loader's path.
 *
 *  places  null: only count is written; else an array, in whose first element the caller sets
 *          struct_size, for all elements
 *  count   in: room in places; out: number of places, which may be larger
 *  Errors: QN_E_INVALID (null, struct_size). */
QN_API qn_status qn_driver_places(qn_driver_place *places, int32_t *count);

/** Allocates device memory, 256-byte aligned, with undefined contents; bytes == 0 gives a null
 *  pointer. Errors: QN_E_INVALID (null, bytes < 0), QN_E_MEMORY. */
QN_API qn_status qn_malloc(qn_device *device, void **out, int64_t bytes);
/** Frees memory that qn_malloc allocated; null does nothing. The call waits for no stream: all
 *  work that uses the memory must be done. */
QN_API void qn_free(qn_device *device, void *ptr);

/** Creates a stream: a queue of work on the device, which runs in the order of the calls. One
 *  thread at a time may use a stream. A CPU stream queues nothing: each call has done its work when
 *  it returns. Errors: QN_E_INVALID (null), QN_E_MEMORY, QN_E_DEVICE. */
QN_API qn_status qn_stream_create(qn_stream **out, qn_device *device);
/** Makes a stream of the caller's own hipStream_t or cudaStream_t (null: the default stream), which
 *  stays the caller's; on the CPU, native must be null. Errors: QN_E_INVALID (null), QN_E_MEMORY,
 *  QN_E_DEVICE. */
QN_API qn_status qn_stream_wrap(qn_stream **out, qn_device *device, void *native);
/** Destroys a stream; null does nothing. Work that is queued still runs; a native stream that was
 *  wrapped lives on. */
QN_API void qn_stream_destroy(qn_stream *stream);
/** Waits until all queued work is done. Errors: QN_E_INVALID (null), QN_E_DEVICE (also for a fault
 *  of a kernel). */
QN_API qn_status qn_stream_sync(qn_stream *stream);
/** Returns the device that the stream was made for; null for null. */
QN_API qn_device *qn_stream_device(const qn_stream *stream);

/** Copies src to dst. Both have one shape, of 64 dimensions at most, and one dtype; each lies on
 *  the CPU or on the stream's device.
 *
 *  Strides: any on the CPU; a tensor on a device is contiguous.
 *  Edge:    no elements: a no-op.
 *  Async:   queued if both tensors lie on the device; done on return if one lies on the CPU.
 *  Errors:  QN_E_INVALID (null, shape, dtype, device), QN_E_UNSUPPORTED (a strided side on a
 *           device; elements of less than a byte), QN_E_MEMORY (a strided side on the CPU),
 *           QN_E_DEVICE. */
QN_API qn_status qn_copy(qn_stream *stream, DLTensor *dst, const DLTensor *src);

/** Creates an event: a mark in a stream, which the stream passes when all work before the mark is
 *  done. Errors: QN_E_INVALID (null), QN_E_MEMORY, QN_E_DEVICE. */
QN_API qn_status qn_event_create(qn_event **out, qn_device *device);
/** Destroys an event; null does nothing. */
QN_API void qn_event_destroy(qn_event *event);
/** Queues the event's mark on a stream of the event's device. Errors: QN_E_INVALID (null, a stream
 *  of another device), QN_E_DEVICE. */
QN_API qn_status qn_event_record(qn_event *event, qn_stream *stream);
/** Waits until the stream has passed the event's mark. Errors: QN_E_INVALID (null), QN_E_DEVICE. */
QN_API qn_status qn_event_sync(qn_event *event);
/** Measures the time between two events of one device that their streams have passed.
 *
 *  out_ns  written: nanoseconds from start to end
 *  Errors: QN_E_INVALID (null, events of two devices), QN_E_UNSUPPORTED (a device without a clock:
 *          qn_device_info.has_clock), QN_E_DEVICE. */
QN_API qn_status qn_event_elapsed(int64_t *out_ns, qn_event *start, qn_event *end);

#ifdef __cplusplus
}
#endif
#endif
