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

#define QN_VERSION "0.1.0"
#define QN_API __attribute__((visibility("default")))

/** Every call that can fail returns one of these; qn_last_error() has the words. */
typedef int32_t qn_status;
enum {
    QN_OK = 0,
    QN_E_INVALID = -1,     /**< an argument is null, misshapen or out of range */
    QN_E_UNSUPPORTED = -2, /**< valid, but no kernel or device here does it */
    QN_E_DEVICE = -3,      /**< the driver reported an error */
    QN_E_MEMORY = -4,      /**< host or device memory is exhausted */
    QN_E_IO = -5,          /**< a file could not be read or written */
    QN_E_NOT_FOUND = -6,   /**< no such device, file, kernel or symbol */
    QN_E_MISMATCH = -7,    /**< a check compared two results and they differ */
};

typedef struct qn_device qn_device;
typedef struct qn_stream qn_stream;
typedef struct qn_event qn_event;

/** The message of this thread's last failed call; "" if none failed. Valid until the next failure.
 */
QN_API const char *qn_last_error(void);
/** "QN_OK", "QN_E_INVALID", …; "QN_E_?" for a value that is no status. */
QN_API const char *qn_status_name(qn_status status);
/** Full name of the kernel that this thread's last op call ran ("gemm.fp8_mfma_128x128"); "" before
 *  the first. */
QN_API const char *qn_last_kernel(void);
/** The library's version, as QN_VERSION was when it was built. */
QN_API const char *qn_version(void);

typedef struct qn_device_info {
    size_t struct_size;   /**< set by the caller: sizeof(qn_device_info) */
    char spec[48];        /**< the spec that opens it: "cpu", "hip:0", "cuda:0", "sim:gfx942" */
    char name[128];       /**< marketing name, or the processor's brand string */
    char arch[48];        /**< "gfx942", "x86-64-avx512bf16" */
    char driver[128];     /**< the library behind it and its version */
    int64_t memory_bytes; /**< total device memory */
    int64_t lds_bytes;    /**< LDS a workgroup may use; 0 on the CPU */
    int32_t num_compute_units; /**< compute units; CPU: threads, as far as the system allows */
    int32_t wave_size;         /**< lanes a wave; CPU: 1 */
    int32_t clock_khz;         /**< peak clock, 0 if unknown */
    int32_t has_clock;         /**< 1: event times are measured; 0: the device has no clock */
    int32_t is_modelled;       /**< 1: a simulated GPU, which has no clock */
} qn_device_info;

/** Opens a device.
 *
 *  spec    "cpu", "hip:0", "cuda:0", "sim:gfx942", "sim:gfx942:2" (second of that kind), "auto" or
 *          null. auto: QUERN_DEVICE, else the first real GPU, else the CPU.
 *  Errors: QN_E_INVALID (malformed spec), QN_E_NOT_FOUND (no such device or driver), QN_E_DEVICE.
 *  One handle a device: opening it again gives the same handle; each open needs its close. */
QN_API qn_status qn_device_open(qn_device **out, const char *spec);
/** Gives a handle back; null does nothing. Streams, events and memory of it must be gone by then.
 */
QN_API void qn_device_close(qn_device *device);
/** Fills as much of info as its struct_size, which the caller sets, has room for.
 *  Errors: QN_E_INVALID (null, a struct_size that no version had). */
QN_API qn_status qn_device_get_info(const qn_device *device, qn_device_info *info);
/** The DLDevice that tensors on this device carry: kDLCPU; kDLCUDA or, for hip, kDLROCM with the
 *  driver's number; kDLROCM with an id of this process for a simulated GPU. For null one of type 0,
 *  which is none. */
QN_API DLDevice qn_device_id(const qn_device *device);
/** Every device that can be opened here, in the order in which auto would take them, the simulated
 *  ones last. Backends that QUERN_DISABLE names are left out.
 *
 *  infos   null: only their number is told; else an array, whose first struct_size the caller sets,
 *          for all
 *  count   in: room in infos; out: number of devices, which may be larger
 *  Errors: QN_E_INVALID (null, struct_size, an environment variable that is not understood). */
QN_API qn_status qn_device_list(qn_device_info *infos, int32_t *count);

/** Device memory, 256-byte aligned; what it holds is undefined. bytes == 0 gives a null pointer.
 *  Errors: QN_E_INVALID (null, bytes < 0), QN_E_MEMORY. */
QN_API qn_status qn_malloc(qn_device *device, void **out, int64_t bytes);
/** Null does nothing. Waits for nothing: the caller's streams must have passed its last use. */
QN_API void qn_free(qn_device *device, void *ptr);

/** A queue of work on the device, whose calls run in order; of one thread at a time. The CPU's
 *  holds no queue: each call has done its work when it returns. Errors: QN_E_INVALID (null),
 *  QN_E_MEMORY, QN_E_DEVICE. */
QN_API qn_status qn_stream_create(qn_stream **out, qn_device *device);
/** Wraps the caller's own hipStream_t or cudaStream_t (null: the default stream), which stays the
 *  caller's; CPU: native must be null. Errors as above. */
QN_API qn_status qn_stream_wrap(qn_stream **out, qn_device *device, void *native);
/** Null does nothing. Work that is queued is done all the same; a wrapped stream lives on. */
QN_API void qn_stream_destroy(qn_stream *stream);
/** Waits until all that is queued is done. Errors: QN_E_INVALID (null), QN_E_DEVICE (a kernel's
 *  fault, too). */
QN_API qn_status qn_stream_sync(qn_stream *stream);
/** The device it was made for; null for null. */
QN_API qn_device *qn_stream_device(const qn_stream *stream);

/** Copies src to dst, of one shape (of 64 dimensions or fewer) and dtype, either side on the CPU or
 *  on the stream's device.
 *
 *  Strides: any on the CPU; a side on a device is contiguous.
 *  Edge:    no elements: a no-op.
 *  Async:   queued between tensors on the device; done on return when one side is on the CPU.
 *  Errors:  QN_E_INVALID (null, shape, dtype, device), QN_E_UNSUPPORTED (a strided side on a
 *           device; elements of less than a byte), QN_E_MEMORY (a strided side on the CPU),
 *           QN_E_DEVICE. */
QN_API qn_status qn_copy(qn_stream *stream, DLTensor *dst, const DLTensor *src);

/** A mark that a stream passes. Errors: QN_E_INVALID (null), QN_E_MEMORY, QN_E_DEVICE. */
QN_API qn_status qn_event_create(qn_event **out, qn_device *device);
/** Null does nothing. */
QN_API void qn_event_destroy(qn_event *event);
/** Queues the mark on a stream of the event's device. Errors: QN_E_INVALID (null, another device),
 *  QN_E_DEVICE. */
QN_API qn_status qn_event_record(qn_event *event, qn_stream *stream);
/** Waits until the stream has passed the mark. Errors: QN_E_INVALID (null), QN_E_DEVICE. */
QN_API qn_status qn_event_sync(qn_event *event);
/** Time between two recorded, completed events of one device, in nanoseconds. Errors: QN_E_INVALID
 *  (null, two devices), QN_E_UNSUPPORTED (a device without a clock: qn_device_info.has_clock),
 *          QN_E_DEVICE. */
QN_API qn_status qn_event_elapsed(int64_t *out_ns, qn_event *start, qn_event *end);

#ifdef __cplusplus
}
#endif
#endif
