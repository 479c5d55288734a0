// SPDX-License-Identifier: Apache-2.0
// The one interface to devices. cpu.c, hip.c and cuda.c implement it; callers do not know which of
// them they call.
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

enum { QNI_MAX_SIM_DEVICES = 16 }; // in a process, of all architectures; the simulator's own limit

/** Returns the target whose name is the `length` bytes at `name`; null if there is none. */
const qni_target *qni_target_find(const char *name, size_t length);
/** Returns the target of the whole family to which `target` belongs, whose images run on `target`
 *  as well; null if there is none. */
const qni_target *qni_target_generic(const qni_target *target);
/** Returns the target whose PTX an NVIDIA GPU of that compute capability runs; null if there is
 *  none. */
const qni_target *qni_target_of_capability(int major, int minor);
/** The kinds of device whose qn_device_info has an arch: "gfx942", "sm_90", "x86-64-avx512". */
typedef enum qni_arch { QNI_ARCH_UNKNOWN, QNI_ARCH_CPU, QNI_ARCH_GPU } qni_arch;
qni_arch qni_arch_of(const char *name, size_t length);
extern const char *const
    qni_cpu_archs[]; // by features, most first; then a processor that is no x86
static inline bool qni_target_is_ptx(const qni_target *target) {
    return target->code_object_version == 0;
}
/** Returns the target whose images a device of that gcnArchName ("gfx942:sramecc+:xnack-") runs;
 *  null if there is none. */
const qni_target *qni_target_of_arch(const char *gcn_arch);

struct qni_tensor_map; // runtime.h

typedef enum qni_copy_kind {
    QNI_COPY_TO_DEVICE,
    QNI_COPY_TO_HOST,
    QNI_COPY_ON_DEVICE
} qni_copy_kind;

/** What a loaded kernel uses, read from its code object; checked against the kernel's contract. */
typedef struct qni_kernel_usage {
    int32_t vgprs;
    int32_t agprs;
    int32_t scratch_bytes;
    int32_t sgpr_spills; // SGPRs kept in lanes of VGPRs
    int32_t lds_bytes;
    int32_t max_threads;
    int32_t kernarg_bytes;
    int32_t launch_lds_bytes; // that a launch gives, beyond lds_bytes (CUDA)
    bool waits_itself;        // waits for the stream's kernel before it, so may start early (CUDA)
} qni_kernel_usage;

/** The functions of a driver. Each sets the error message when it fails. `native` handles are the
 *  driver's own. */
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
    /** Fills in what only the driver knows of a kernel; null if the image says everything. */
    qn_status (*kernel_usage)(qn_device *device, void *native_kernel, qni_kernel_usage *usage);
    /** Tells how well the kernel's instructions are known: returns the letter of quernsim_evidence
     *  for the weakest evidence and writes the instructions' names; returns 0 on silicon, which
     *  needs no evidence. May be null. */
    char (*kernel_evidence)(qn_device *device, void *native_kernel, char *names, size_t bytes);
    /** Fills in a qk_tensor_map, of a map that fits; null where there are no tensor copies. */
    qn_status (*tensor_map_encode)(const qn_device *device, const struct qni_tensor_map *map,
                                   void *out);
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

/** Open a device of a backend; `arg` is what follows the first colon of the spec, or "". */
qn_status qni_cpu_open(qn_device *device, const char *arg);
qn_status qni_hip_open(qn_device *device, const char *arg);
qn_status qni_cuda_open(qn_device *device, const char *arg);
/** Opens a simulated GPU: the HIP backend over libquernsim. */
qn_status qni_sim_open(qn_device *device, const char *arg);
/** Returns how many devices of that architecture the simulated GPU shows unless asked for more; 0
 *  if there is no simulated GPU. This and the functions that open devices run under device.c's
 *  lock. */
int qni_sim_count(const qni_target *target);

static inline bool qni_has(const qn_device *device, uint64_t features) {
    return (device->features & features) == features;
}

#endif
