// SPDX-License-Identifier: Apache-2.0
// Devices and tensors of their own for Python: opening a device, allocating on it, lending NumPy's
// memory.
#include "ffi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/extra/c_env_api.h>

// ---- devices

enum {
    SIMULATED_IDS = 1000, // kDLROCM numbers from here on are simulated devices (qn_device_id)
    MAX_DEVICES = 256
};

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static qn_device *devices[MAX_DEVICES]; // under devices_lock; never closed
static int num_devices;

static qn_device *find_device(DLDevice id) {
    for (int i = 0; i < num_devices; i++) {
        DLDevice has = qn_device_id(devices[i]);
        if (has.device_type == id.device_type && has.device_id == id.device_id)
            return devices[i];
    }
    return nullptr;
}

/** Opens a device, or takes it if it is already open. devices_lock is held. */
static qn_status open_device(qn_device **out, const char *spec) {
    qn_device *device;
    const qn_status status = qn_device_open(&device, spec);
    if (status != QN_OK)
        return status;
    if (find_device(qn_device_id(device)))
        qn_device_close(device);        // this process's other handle stays
    else if (num_devices < MAX_DEVICES) // each call opens a device beyond these anew
        devices[num_devices++] = device;
    *out = device;
    return QN_OK;
}

qn_status ffi_device(qn_device **out, DLDevice id) {
    char spec[48] = "cpu";
    qn_status status = QN_OK;
    pthread_mutex_lock(&devices_lock);
    *out = find_device(id);
    if (!*out) {
        if (id.device_type == kDLCUDA)
            snprintf(spec, sizeof spec, "cuda:%d", id.device_id);
        else if (id.device_type == kDLROCM && id.device_id < SIMULATED_IDS)
            snprintf(spec, sizeof spec, "hip:%d", id.device_id);
        // No device has this spec: the library's message lists those that exist.
        else if (id.device_type != kDLCPU)
            snprintf(spec, sizeof spec, "DLPack device (%d, %d)", (int)id.device_type,
                     id.device_id);
        status = open_device(out, spec);
    }
    pthread_mutex_unlock(&devices_lock);
    return status;
}

qn_status ffi_stream_create(qn_stream **out, DLDevice id) {
    qn_device *device;
    const qn_status status = ffi_device(&device, id);
    if (status != QN_OK)
        return status;
    void *native = nullptr; // the CPU has no streams
    if (id.device_type != kDLCPU)
        native = TVMFFIEnvGetStream((int32_t)id.device_type, id.device_id);
    return qn_stream_wrap(out, device, native);
}

static int give_text(const char *text, TVMFFIAny *result) {
    return TVMFFIStringFromByteArray(&(TVMFFIByteArray){text, strlen(text)}, result);
}

/** Returns a string argument; null if it is no string. A zero ends Python's strings. */
static const char *text_of(const TVMFFIAny *arg) {
    switch (arg->type_index) {
    case kTVMFFIRawStr:
        return arg->v_c_str;
    case kTVMFFISmallStr:
        return arg->v_bytes;
    case kTVMFFIStr:
        return ((const TVMFFIByteArray *)((const char *)arg->v_obj + sizeof(TVMFFIObject)))->data;
    default:
        return nullptr;
    }
}

/** device_open(spec) -> device */
FFI_FUNCTION(device_open) {
    const char *spec = count == 1 ? text_of(&args[0]) : nullptr;
    if (!spec)
        return ffi_raise("TypeError", "device: spec must be a string");
    qn_device *device;
    pthread_mutex_lock(&devices_lock);
    const qn_status status = open_device(&device, spec);
    pthread_mutex_unlock(&devices_lock);
    if (status != QN_OK)
        return ffi_finish(status);
    *result = (TVMFFIAny){.type_index = kTVMFFIDevice, .v_device = qn_device_id(device)};
    return 0;
}

/** device_info(device) -> "SPEC\nNAME\nARCH\nDRIVER" */
FFI_FUNCTION(device_info) {
    qn_device *device;
    qn_device_info info = {.struct_size = sizeof info};
    char text[sizeof info + 4];
    if (count != 1 || args[0].type_index != kTVMFFIDevice)
        return ffi_raise("TypeError", "device_info: device must be a device");
    qn_status status = ffi_device(&device, args[0].v_device);
    if (status == QN_OK)
        status = qn_device_get_info(device, &info);
    if (status != QN_OK)
        return ffi_finish(status);
    snprintf(text, sizeof text, "%s\n%s\n%s\n%s", info.spec, info.name, info.arch, info.driver);
    return give_text(text, result);
}

/** device_specs() -> the specs of all devices, one a line */
FFI_FUNCTION(device_specs) {
    qn_device_info infos[MAX_DEVICES] = {{.struct_size = sizeof(qn_device_info)}};
    char text[MAX_DEVICES * sizeof infos->spec];
    int32_t found = MAX_DEVICES;
    size_t length = 0;
    const qn_status status = qn_device_list(infos, &found);
    if (status != QN_OK)
        return ffi_finish(status);
    text[0] = '\0';
    for (int32_t i = 0; i < found && i < MAX_DEVICES; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i ? "\n" : "",
                                   infos[i].spec);
    return give_text(text, result);
}

/** synchronize(device): waits for what is queued on the framework's stream */
FFI_FUNCTION(synchronize) {
    qn_stream *stream;
    if (count != 1 || args[0].type_index != kTVMFFIDevice)
        return ffi_raise("TypeError", "synchronize: device must be a device");
    qn_status status = ffi_stream_create(&stream, args[0].v_device);
    if (status == QN_OK) {
        status = qn_stream_sync(stream);
        qn_stream_destroy(stream);
    }
    return ffi_finish(status);
}

FFI_FUNCTION(version) {
    return give_text(qn_version(), result);
}

FFI_FUNCTION(allow_slow_kernels) {
    result->type_index = kTVMFFIBool;
    result->v_int64 = qn_allow_slow_kernels(args[0].v_int64 != 0);
    return 0;
}

FFI_FUNCTION(last_kernel) {
    return give_text(qn_last_kernel(), result);
}

// ---- tensors

/** A tensor handed to TVM-FFI, with its shape and strides behind it. */
typedef struct own_tensor {
    DLManagedTensorVersioned managed;
    qn_device *device;       // whose memory it is; null: another's
    TVMFFIObjectHandle base; // the tensor whose memory it is; null: the caller sees to that
    int64_t sizes[];         // [2 * ndim] shape, strides in elements
} own_tensor;

/** Work that still uses the memory may be queued on the framework's stream: waits for it, then
 *  frees. */
static void delete_tensor(DLManagedTensorVersioned *managed) {
    own_tensor *own = managed->manager_ctx;
    qn_stream *stream;
    if (own->device && managed->dl_tensor.data) {
        if (ffi_stream_create(&stream, managed->dl_tensor.device) == QN_OK) {
            qn_stream_sync(stream);
            qn_stream_destroy(stream);
        }
        qn_free(own->device, managed->dl_tensor.data);
    }
    if (own->base)
        TVMFFIObjectDecRef(own->base);
    free(own);
}

static const TVMFFIShapeCell *shape_of(const TVMFFIAny *arg) {
    return arg->type_index == kTVMFFIShape
               ? (const TVMFFIShapeCell *)((const char *)arg->v_obj + sizeof(TVMFFIObject))
               : nullptr;
}

static own_tensor *make_tensor(const TVMFFIShapeCell *shape, const int64_t *strides,
                               DLDataType dtype) {
    const size_t ndim = shape->size;
    own_tensor *own = calloc(1, sizeof *own + 2 * ndim * sizeof(int64_t));
    if (!own)
        return nullptr;
    int64_t stride = 1;
    for (size_t i = ndim; i-- > 0;) {
        own->sizes[i] = shape->data[i];
        own->sizes[ndim + i] = strides ? strides[i] : stride;
        if (stride < 0 || __builtin_mul_overflow(stride, shape->data[i], &stride))
            stride = -1; // -1, which no op takes
    }
    own->managed =
        (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                   .manager_ctx = own,
                                   .deleter = delete_tensor,
                                   .dl_tensor = {.device = {kDLCPU, 0},
                                                 .ndim = (int32_t)ndim,
                                                 .dtype = dtype,
                                                 .shape = own->sizes,
                                                 .strides = own->sizes + ndim}};
    return own;
}

/** Hands the tensor over as the function's result. */
static int give_tensor(own_tensor *own, TVMFFIAny *result) {
    TVMFFIObjectHandle handle;
    if (TVMFFITensorFromDLPackVersioned(&own->managed, 0, 0, &handle) != 0) {
        delete_tensor(&own->managed);
        return -1;
    }
    *result = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = handle};
    return 0;
}

/** Returns the bytes from a tensor's first element to the end of its last; -1: they are too many,
 *  or make no sense. */
static int64_t extent_bytes(const DLTensor *t) {
    int64_t last = 0, reach, bytes;
    bool is_empty = false;
    for (int32_t i = 0; i < t->ndim; i++) {
        is_empty |= t->shape[i] == 0;
        if (t->shape[i] < 0 || t->strides[i] < 0 ||
            __builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return -1; // the library refuses such a tensor, with a message
    }
    if (is_empty)
        return 0;
    return __builtin_add_overflow(last, 1, &last) ||
                   __builtin_mul_overflow(last, (t->dtype.bits * t->dtype.lanes + 7) / 8, &bytes)
               ? -1
               : bytes;
}

/** Allocates what the tensor describes on the device. */
static qn_status allocate(own_tensor *own, DLDevice id) {
    DLTensor *t = &own->managed.dl_tensor;
    const int64_t bytes = extent_bytes(t);
    const qn_status status = ffi_device(&own->device, id);
    t->device = id;
    return status == QN_OK ? qn_malloc(own->device, &t->data, bytes) : status;
}

/** Makes a new tensor on the device, not initialised. */
static int give_new(const TVMFFIShapeCell *shape, const int64_t *strides, DLDataType dtype,
                    DLDevice id, TVMFFIAny *result) {
    own_tensor *own = make_tensor(shape, strides, dtype);
    if (!own)
        return ffi_raise("MemoryError", "empty: out of memory");
    const qn_status status = allocate(own, id);
    if (status != QN_OK) {
        delete_tensor(&own->managed);
        return ffi_finish(status);
    }
    return give_tensor(own, result);
}

/** empty(shape, dtype, device) -> tensor */
FFI_FUNCTION(empty) {
    const TVMFFIShapeCell *shape = count == 3 ? shape_of(&args[0]) : nullptr;
    if (!shape || args[1].type_index != kTVMFFIDataType || args[2].type_index != kTVMFFIDevice)
        return ffi_raise("TypeError", "empty: needs a shape, a dtype and a device");
    return give_new(shape, nullptr, args[1].v_dtype, args[2].v_device, result);
}

/** empty_strided(shape, strides, dtype, device) -> tensor */
FFI_FUNCTION(empty_strided) {
    const TVMFFIShapeCell *shape = count == 4 ? shape_of(&args[0]) : nullptr;
    const TVMFFIShapeCell *strides = count == 4 ? shape_of(&args[1]) : nullptr;
    if (!shape || !strides || shape->size != strides->size ||
        args[2].type_index != kTVMFFIDataType || args[3].type_index != kTVMFFIDevice)
        return ffi_raise("TypeError",
                         "empty_strided: needs a shape, strides, a dtype and a device");
    return give_new(shape, strides->data, args[2].v_dtype, args[3].v_device, result);
}

/** lend(address, shape, strides, dtype) -> a CPU tensor over the caller's memory, which must
 *  outlive it */
FFI_FUNCTION(lend) {
    const TVMFFIShapeCell *shape = count == 4 ? shape_of(&args[1]) : nullptr;
    const TVMFFIShapeCell *strides = count == 4 ? shape_of(&args[2]) : nullptr;
    if (!shape || !strides || shape->size != strides->size || args[0].type_index != kTVMFFIInt ||
        args[3].type_index != kTVMFFIDataType)
        return ffi_raise("TypeError", "lend: needs an address, a shape, strides and a dtype");
    own_tensor *own = make_tensor(shape, strides->data, args[3].v_dtype);
    if (!own)
        return ffi_raise("MemoryError", "lend: out of memory");
    own->managed.dl_tensor.data = (void *)(uintptr_t)args[0].v_int64;
    return give_tensor(own, result);
}

/** Makes a tensor over the memory of another, which it keeps alive; a foreign tensor must outlive
 *  it. */
static int give_view(const TVMFFIAny *of, int64_t offset_bytes, const TVMFFIShapeCell *shape,
                     const int64_t *strides, DLDataType dtype, TVMFFIAny *result) {
    const DLTensor *t = ffi_tensor(of);
    own_tensor *own = make_tensor(shape, strides, dtype);
    if (!own)
        return ffi_raise("MemoryError", "view: out of memory");
    own->managed.dl_tensor.data = (char *)t->data + t->byte_offset + offset_bytes;
    own->managed.dl_tensor.device = t->device;
    if (of->type_index == kTVMFFITensor) {
        TVMFFIObjectIncRef(of->v_obj);
        own->base = of->v_obj;
    }
    return give_tensor(own, result);
}

/** lend_as(tensor, dtype) -> a view of the tensor, with its elements' bits as that dtype of their
 *  size */
FFI_FUNCTION(lend_as) {
    const DLTensor *t = count == 2 ? ffi_tensor(&args[0]) : nullptr;
    if (!t || args[1].type_index != kTVMFFIDataType || args[1].v_dtype.bits != t->dtype.bits)
        return ffi_raise("TypeError", "lend_as: needs a tensor and a dtype of its elements' size");
    const TVMFFIShapeCell shape = {t->shape, (size_t)t->ndim};
    return give_view(&args[0], 0, &shape, t->strides, args[1].v_dtype, result);
}

/** view(tensor, offset, shape, strides) -> a view of it that begins `offset` bytes on; the caller
 *  sees to the bounds */
FFI_FUNCTION(view) {
    const DLTensor *t = count == 4 ? ffi_tensor(&args[0]) : nullptr;
    const TVMFFIShapeCell *shape = count == 4 ? shape_of(&args[2]) : nullptr;
    const TVMFFIShapeCell *strides = count == 4 ? shape_of(&args[3]) : nullptr;
    if (!t || !shape || !strides || shape->size != strides->size ||
        args[1].type_index != kTVMFFIInt)
        return ffi_raise("TypeError", "view: needs a tensor, an offset, a shape and strides");
    return give_view(&args[0], args[1].v_int64, shape, strides->data, t->dtype, result);
}

/** gemm_packed_empty(b) -> the tensor that gemm_pack writes for b, on b's device */
FFI_FUNCTION(gemm_packed_empty) {
    if (ffi_check_args("gemm_pack", "b", args, count) != 0)
        return -1;
    const DLTensor *b = ffi_tensor(&args[0]);
    qn_device *device;
    int64_t sizes[3];
    DLDataType dtype;
    qn_status status = ffi_device(&device, b->device);
    if (status == QN_OK)
        status = qn_gemm_packed_shape(device, b, sizes, &dtype);
    if (status != QN_OK)
        return ffi_finish(status);
    return give_new(&(TVMFFIShapeCell){sizes, 3}, nullptr, dtype, b->device, result);
}

/** quantize_tensor_workspace() -> bytes */
FFI_FUNCTION(quantize_tensor_workspace) {
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = qn_quantize_tensor_workspace()};
    return 0;
}
