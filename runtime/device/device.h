// SPDX-License-Identifier: Apache-2.0
// The one interface to devices. cpu.c, hip.c and cuda.c implement it; nothing above knows which is
// behind it.
#ifndef QNI_DEVICE_H
#define QNI_DEVICE_H

#include <quern/core.h>

#include <stdatomic.h>

enum qni_feature_bit {
#define QN_FEATURE(id, name) QNI_BIT_##id,
#include "features.def"
#undef QN_FEATURE
    QNI_NUM_FEATURES
};
#define QNI_F(id) (UINT64_C(1) << QNI_BIT_##id)

/** A GPU that images are built for: a line of targets.def. */
typedef struct qni_target {
    const char *name;
    int32_t code_object_version; // 0: PTX
    int32_t wave_size, lds_bytes;
    uint64_t features;
} qni_target;

enum {
#define QN_TARGET(name, version, wave, lds, features) +1
    QNI_NUM_TARGETS = 0
#include "targets.def"
#undef QN_TARGET
};
extern const qni_target qni_targets[QNI_NUM_TARGETS];

enum { QNI_MAX_SIM_DEVICES = 16 }; // of all architectures, in a process; the simulator's own limit

/** The target of that name (`length` bytes of it); null if there is none. */
const qni_target *qni_target_find(const char *name, size_t length);
/** The target of images that also run on `target`: a whole family's; null if there is none. */
const qni_target *qni_target_generic(const qni_target *target);
/** The target whose PTX an NVIDIA GPU of that compute capability runs; null if none. */
const qni_target *qni_target_of_capability(int major, int minor);
static inline bool qni_target_is_ptx(const qni_target *target) {
    return target->code_object_version == 0;
}
/** The target whose images a device of that gcnArchName ("gfx942:sramecc+:xnack-") runs; null if
 * none. */
const qni_target *qni_target_of_arch(const char *gcn_arch);

typedef enum qni_copy_kind {
    QNI_COPY_TO_DEVICE,
    QNI_COPY_TO_HOST,
    QNI_COPY_ON_DEVICE
} qni_copy_kind;

/** What a loaded kernel uses, from its code object; checked against the kernel's contract. */
typedef struct qni_kernel_usage {
    int32_t vgprs;
    int32_t agprs;
    int32_t scratch_bytes;
    int32_t sgpr_spills; // SGPRs kept in lanes of VGPRs
    int32_t lds_bytes;
    int32_t max_threads;
    int32_t kernarg_bytes;
    bool waits_itself; // for the kernel before it on the stream: it may be started early (CUDA)
} qni_kernel_usage;

/** A driver. Every function sets the error message when it fails. `native` handles are the driver's
 * own. */
typedef struct qni_backend {
    const char *name; // "cpu", "hip", "cuda"
    void (*close)(qn_device *device);
    qn_status (*mem_alloc)(qn_device *device, void **out, int64_t bytes);
    void (*mem_free)(qn_device *device, void *ptr);
    qn_status (*copy)(qn_stream *stream, void *dst, const void *src, int64_t bytes,
                      qni_copy_kind kind);
    qn_status (*fill)(qn_stream *stream, void *dst, uint8_t value, int64_t bytes);
    qn_status (*stream_create)(qn_device *device, void **native);
    void (*stream_destroy)(qn_device *device, void *native);
    qn_status (*stream_sync)(qn_stream *stream);
    qn_status (*event_create)(qn_device *device, void **native);
    void (*event_destroy)(qn_device *device, void *native);
    qn_status (*event_record)(qn_event *event, qn_stream *stream);
    qn_status (*event_sync)(qn_event *event);
    qn_status (*event_elapsed)(int64_t *out_ns, qn_event *start, qn_event *end);
    // GPU only; null on the CPU.
    qn_status (*image_load)(qn_device *device, void **native_module, const void *image,
                            size_t bytes);
    void (*image_unload)(qn_device *device, void *native_module);
    qn_status (*kernel_get)(qn_device *device, void **native_kernel, void *native_module,
                            const char *entry);
    /** What the driver alone knows of a kernel; null where the image says it all. */
    qn_status (*kernel_usage)(qn_device *device, void *native_kernel, qni_kernel_usage *usage);
    /** How the meaning of the kernel's instructions is known, by the weakest: quernsim_evidence's
     *  letter and names; 0 on silicon, which needs no evidence. May be null. */
    char (*kernel_evidence)(qn_device *device, void *native_kernel, char *names, size_t bytes);
    qn_status (*launch)(qn_stream *stream, void *native_kernel, const qni_kernel_usage *usage,
                        const uint32_t grid[3], uint32_t threads, const void *args,
                        size_t args_bytes);
} qni_backend;

struct qn_device {
    const qni_backend *backend;
    void *state; // the backend's own
    qn_device_info info;
    const qni_target *target; // whose images run here; null on the CPU
    uint64_t features;
    DLDevice id;
    atomic_int references;
    struct qni_kernel_cache *kernels; // loaded images and kernels (image.c); null on the CPU
    qn_device *next;
};

struct qn_stream {
    qn_device *device;
    void *native;
    bool is_wrapped; // native belongs to the caller
};

struct qn_event {
    qn_device *device;
    void *native;
};

/** Opens a device of the backend; `arg` is what follows the first colon of the spec ("" if
 * nothing). */
qn_status qni_cpu_open(qn_device *device, const char *arg);
qn_status qni_hip_open(qn_device *device, const char *arg);
qn_status qni_cuda_open(qn_device *device, const char *arg);
/** The simulated GPU: the same HIP backend over libquernsim. */
qn_status qni_sim_open(qn_device *device, const char *arg);
/** How many devices of that architecture the simulated GPU shows without being asked for more; 0 if
 *  there is no simulated GPU. Under device.c's lock, as the above. */
int qni_sim_count(const qni_target *target);

static inline bool qni_has(const qn_device *device, uint64_t features) {
    return (device->features & features) == features;
}

#endif
