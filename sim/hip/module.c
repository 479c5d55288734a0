// SPDX-License-Identifier: Apache-2.0
// Modules: code objects in memory or in files, their kernels and variables.
#include "../isa/decode.h"
#include "runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_module(hipModule_t module) {
    bool found = false;
    pthread_mutex_lock(&sim_hip.lock);
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        for (hipModule_t m = sim_hip.devices[i].modules; m && !found; m = m->next)
            found = m == module;
    pthread_mutex_unlock(&sim_hip.lock);
    return found;
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
    return sim_hip_load_module(out, sim_hip_device(), image, bytes, what);
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

/** Returns a whole file; null with errno set. */
static void *read_file(const char *path, size_t *bytes) {
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
    if (!out || !path)
        return sim_hip_result(hipErrorInvalidValue);
    size_t bytes;
    void *image = read_file(path, &bytes);
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
        f->magic = 0;
        free(f);
    }
    sim_object_unload(module->object);
    free(module);
}

hipError_t hipModuleUnload(hipModule_t module) {
    SIM_HIP_START();
    if (!is_module(module))
        return sim_hip_result(hipErrorInvalidHandle);
    sim_hip_drain(module->device); // the module's kernels may still be queued
    pthread_mutex_lock(&sim_hip.lock);
    hipModule_t *at = &module->device->modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    pthread_mutex_unlock(&sim_hip.lock);
    free_module(module);
    return hipSuccess;
}

void sim_hip_unload_modules(sim_device *device) {
    pthread_mutex_lock(&sim_hip.lock);
    hipModule_t modules = device->modules;
    device->modules = nullptr;
    pthread_mutex_unlock(&sim_hip.lock);
    for (hipModule_t next; modules; modules = next) {
        next = modules->next;
        free_module(modules);
    }
}

hipError_t sim_hip_function(hipFunction_t *out, hipModule_t module, const char *name) {
    const sim_kernel *kernel = sim_object_kernel(module->object, name);
    if (!kernel)
        return hipErrorNotFound;
    pthread_mutex_lock(&sim_hip.lock);
    hipFunction_t f = module->functions;
    while (f && f->kernel != kernel)
        f = f->next;
    if (!f && (f = calloc(1, sizeof *f))) {
        *f = (struct sim_function){SIM_FUNCTION_MAGIC, module, kernel, module->functions};
        module->functions = f;
    }
    pthread_mutex_unlock(&sim_hip.lock);
    *out = f;
    return f ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module, const char *name) {
    SIM_HIP_START();
    if (!out || !name || !is_module(module))
        return sim_hip_result(out && name ? hipErrorInvalidHandle : hipErrorInvalidValue);
    return sim_hip_result(sim_hip_function(out, module, name));
}

hipError_t hipModuleGetFunctionCount(unsigned *count, hipModule_t module) {
    SIM_HIP_START();
    if (!count || !is_module(module))
        return sim_hip_result(count ? hipErrorInvalidHandle : hipErrorInvalidValue);
    *count = (unsigned)sim_object_num_kernels(module->object);
    return hipSuccess;
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t *out, size_t *bytes, hipModule_t module,
                              const char *name) {
    SIM_HIP_START();
    if (!name || !is_module(module))
        return sim_hip_result(name ? hipErrorInvalidHandle : hipErrorInvalidValue);
    uint64_t addr, size;
    if (!sim_object_global(module->object, name, &addr, &size))
        return sim_hip_result(hipErrorNotFound);
    if (out)
        *out = (void *)addr;
    if (bytes)
        *bytes = size;
    return hipSuccess;
}

char quernsim_evidence(hipFunction_t function, char *names, size_t bytes) {
    if (!function || function->magic != SIM_FUNCTION_MAGIC || !names || !bytes)
        return 0;
    return sim_kernel_evidence(sim_object_text(function->module->object), function->kernel, names,
                               bytes);
}

hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute,
                               hipFunction_t function) {
    SIM_HIP_START();
    if (!value || !function || function->magic != SIM_FUNCTION_MAGIC)
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
