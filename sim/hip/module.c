// SPDX-License-Identifier: Apache-2.0
// Modules: code objects in memory or in files, their kernels and variables.
#include "../isa/decode.h"
#include "runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Those that the program has unloaded while operations still had their code, such as graphs'. The
// runtime's lock guards the list.
static hipModule_t unloaded;

/** Returns the place of a module in its device's list; null if the handle is no module's. The lock
 *  is held. */
static hipModule_t *place_of(hipModule_t module) {
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        for (hipModule_t *at = &sim_hip.devices[i].modules; *at; at = &(*at)->next)
            if (*at == module)
                return at;
    return nullptr;
}

/** Takes the lock for a module. Returns false, without the lock, if the handle is no module's. */
static bool enter(hipModule_t module) {
    pthread_mutex_lock(&sim_hip.lock);
    if (place_of(module))
        return true;
    pthread_mutex_unlock(&sim_hip.lock);
    return false;
}

/** Gives the lock back, and the result to the program. */
static hipError_t leave(hipError_t error) {
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error);
}

static hipError_t error_of(sim_object_status status) {
    switch (status) {
    case SIM_OBJECT_OK:
        return hipSuccess;
    case SIM_OBJECT_INVALID:
        return hipErrorInvalidImage;
    case SIM_OBJECT_WRONG_ARCH:
        return hipErrorNoBinaryForGpu;
    case SIM_OBJECT_NO_MEMORY:
        return hipErrorOutOfMemory;
    }
    return hipErrorUnknown;
}

hipError_t sim_hip_load_module(hipModule_t *out, sim_device *device, const void *image,
                               size_t bytes, const char *what) {
    hipModule_t module = calloc(1, sizeof *module);
    if (!module)
        return hipErrorOutOfMemory;
    char text[512];
    sim_object_status status = sim_object_load(&module->object, sim_hip.memory, device->chip,
                                               device->id, image, bytes, text, sizeof text);
    if (status != SIM_OBJECT_OK) {
        sim_hip_report(what, "%s", text);
        free(module);
        return error_of(status);
    }
    pthread_mutex_lock(&sim_hip.lock);
    module->device = device;
    module->next = device->modules;
    device->modules = module;
    pthread_mutex_unlock(&sim_hip.lock);
    *out = module;
    return hipSuccess;
}

static hipError_t load(hipModule_t *out, const void *image, size_t bytes, const char *what) {
    hipModule_t module;
    hipError_t error = sim_hip_load_module(&module, sim_hip_device(), image, bytes, what);
    if (error == hipSuccess && !sim_module_make_managed(module)) {
        hipModuleUnload(module);
        error = hipErrorOutOfMemory;
    }
    if (error == hipSuccess)
        *out = module;
    return error;
}

hipError_t hipModuleLoadData(hipModule_t *out, const void *image) {
    SIM_HIP_START();
    if (!out || !image)
        return sim_hip_result(hipErrorInvalidValue);
    const size_t bytes = sim_object_extent(image);
    if (bytes == 0) {
        sim_hip_report("hipModuleLoadData", "neither an ELF file nor an offload bundle");
        return sim_hip_result(hipErrorInvalidImage);
    }
    return sim_hip_result(load(out, image, bytes, "hipModuleLoadData"));
}

hipError_t hipModuleLoadDataEx(hipModule_t *out, const void *image, unsigned num_options,
                               void *options, void **values) {
    // The options steer a compiler; there is none here.
    (void)num_options;
    (void)options;
    (void)values;
    return hipModuleLoadData(out, image);
}

hipError_t hipModuleLoadFatBinary(hipModule_t *out, const void *image) {
    return hipModuleLoadData(out, image);
}

void *sim_hip_read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return nullptr;
    char *text = nullptr;
    size_t have = 0, room = 0, got;
    do {
        if (have == room) {
            room = room ? 2 * room : 1 << 16;
            char *grown = realloc(text, room);
            if (!grown)
                break;
            text = grown;
        }
        got = fread(text + have, 1, room - have, file);
        have += got;
    } while (got);
    if (ferror(file) || have == room) {
        free(text);
        text = nullptr;
        errno = ferror(file) ? EIO : ENOMEM;
    }
    fclose(file);
    *bytes = have;
    return text;
}

hipError_t hipModuleLoad(hipModule_t *out, const char *path) {
    SIM_HIP_START();
    if (!out || !path || !*path)
        return sim_hip_result(hipErrorInvalidValue);
    size_t bytes;
    void *image = sim_hip_read_file(path, &bytes);
    if (!image) {
        sim_hip_report("hipModuleLoad", "%s: %s", path, strerror(errno));
        return sim_hip_result(hipErrorFileNotFound);
    }
    hipError_t error = load(out, image, bytes, path);
    free(image);
    return sim_hip_result(error);
}

static void free_module(hipModule_t module) {
    for (hipFunction_t f = module->functions, next; f; f = next) {
        next = f->next;
        free(f);
    }
    sim_module_free_managed(module);
    sim_object_unload(module->object);
    free(module);
}

/** Ends a module's handle and its functions'. The lock is held. */
static void retire(hipModule_t *at) {
    hipModule_t module = *at;
    *at = module->next;
    for (hipFunction_t f = module->functions; f; f = f->next)
        sim_handle_remove(SIM_HANDLE_FUNCTION, f);
    module->next = unloaded;
    unloaded = module;
}

/** Frees unloaded modules whose code no operation has any more: this one, and those that could not
 *  be freed when they were unloaded; all if it is null. Another thread's is left to that thread, so
 *  that its handle does not soon become somebody else's. */
static void sweep(const struct sim_module *own) {
    hipModule_t unused = nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    for (hipModule_t *at = &unloaded, module; (module = *at);) {
        const bool is_busy = atomic_load(&module->num_ops);
        if (is_busy || (own && module != own && !module->is_late)) {
            module->is_late |= module == own;
            at = &module->next;
            continue;
        }
        *at = module->next;
        module->next = unused;
        unused = module;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    for (hipModule_t next; unused; unused = next) {
        next = unused->next;
        free_module(unused);
    }
}

hipError_t hipModuleUnload(hipModule_t module) {
    SIM_HIP_START();
    if (!enter(module)) // as AMD's runtime has it
        return sim_hip_result(module ? hipErrorNotFound : hipErrorInvalidHandle);
    sim_device *device = module->device;
    retire(place_of(module));
    pthread_mutex_unlock(&sim_hip.lock);
    sim_hip_drain(device); // the module's kernels may still be queued
    sweep(module);
    return hipSuccess;
}

void sim_hip_unload_modules(sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    while (device->modules)
        retire(&device->modules);
    pthread_mutex_unlock(&sim_hip.lock);
    sweep(nullptr);
}

bool sim_hip_is_function(hipFunction_t function) {
    return function && sim_handle_is(SIM_HANDLE_FUNCTION, function);
}

/** Makes a kernel's handle; null without memory. The lock is held. */
static hipFunction_t new_function(hipModule_t module, const sim_kernel *kernel) {
    hipFunction_t f = calloc(1, sizeof *f);
    if (!f || !sim_handle_add(SIM_HANDLE_FUNCTION, f)) {
        free(f);
        return nullptr;
    }
    *f = (struct sim_function){module, kernel, module->functions};
    module->functions = f;
    return f;
}

/** Finds or makes the handle of a module's kernel. The lock is held. */
static hipError_t function_of(hipFunction_t *out, hipModule_t module, const char *name) {
    const sim_kernel *kernel = sim_object_kernel(module->object, name);
    hipFunction_t f = module->functions;
    while (f && f->kernel != kernel)
        f = f->next;
    f = kernel && !f ? new_function(module, kernel) : f;
    if (f)
        *out = f;
    return f ? hipSuccess : kernel ? hipErrorOutOfMemory : hipErrorNotFound;
}

hipError_t sim_hip_function(hipFunction_t *out, hipModule_t module, const char *name) {
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = function_of(out, module, name);
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module, const char *name) {
    SIM_HIP_START();
    if (!out || !name || !enter(module))
        return sim_hip_result(out && name ? hipErrorInvalidHandle : hipErrorInvalidValue);
    return leave(function_of(out, module, name));
}

hipError_t hipModuleGetFunctionCount(unsigned *count, hipModule_t module) {
    SIM_HIP_START();
    if (!count || !enter(module))
        return sim_hip_result(count ? hipErrorInvalidHandle : hipErrorInvalidValue);
    *count = (unsigned)sim_object_num_kernels(module->object);
    return leave(hipSuccess);
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t *out, size_t *bytes, hipModule_t module,
                              const char *name) {
    SIM_HIP_START();
    if (!name || !*name || (!out && !bytes))
        return sim_hip_result(hipErrorInvalidValue);
    if (!enter(module))
        return sim_hip_result(hipErrorInvalidHandle);
    uint64_t addr, size;
    if (!sim_module_find_managed(module, name, &addr, &size) &&
        !sim_object_global(module->object, name, &addr, &size))
        return leave(hipErrorNotFound);
    if (out)
        *out = (void *)addr;
    if (bytes)
        *bytes = size;
    return leave(hipSuccess);
}

char quernsim_evidence(hipFunction_t function, char *names, size_t bytes) {
    if (!sim_hip_is_function(function) || !names || !bytes)
        return 0;
    return sim_kernel_evidence(sim_object_text(function->module->object), function->kernel, names,
                               bytes);
}

hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute,
                               hipFunction_t function) {
    SIM_HIP_START();
    if (!value || !sim_hip_is_function(function))
        return sim_hip_result(value ? hipErrorInvalidHandle : hipErrorInvalidValue);
    const sim_kernel *k = function->kernel;
    const sim_chip *c = function->module->device->chip;
    switch (attribute) {
    case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)k->max_threads;
        break;
    case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)k->lds_bytes;
        break;
    case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)k->scratch_bytes;
        break;
    case HIP_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)k->num_vgprs;
        break;
    case HIP_FUNC_ATTRIBUTE_PTX_VERSION:
    case HIP_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)(10 * c->gfx_major + c->gfx_minor);
        break;
    case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = 0;
        break;
    case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)(c->lds_bytes - k->lds_bytes);
        break;
    default:
        return sim_hip_result(hipErrorInvalidValue);
    }
    return hipSuccess;
}
