// SPDX-License-Identifier: Apache-2.0
// Libraries: code that is loaded onto a device when a kernel of it is first needed there, so that a
// kernel's handle is good on every device.
#include "../object/entries.h"
#include "runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sim_library_kernel {
    struct sim_library_kernel *next;
    hipLibrary_t library;
    char name[];
};

struct sim_library {
    struct sim_library *next;
    void *image;
    size_t bytes;
    hipModule_t modules[SIM_MAX_DEVICES]; // null: not loaded there
    hipKernel_t kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of this file, before the runtime's
static hipLibrary_t libraries;

// ---- with the lock held

static bool is_library(hipLibrary_t library) {
    return library && sim_handle_is(SIM_HANDLE_LIBRARY, library);
}

static bool is_kernel(hipKernel_t kernel) {
    return kernel && sim_handle_is(SIM_HANDLE_KERNEL, kernel);
}

/** Gives a library's module on a device, which is loaded if need be. */
static hipError_t module_on(hipModule_t *out, hipLibrary_t library, sim_device *device) {
    hipModule_t *module = &library->modules[device->id];
    hipError_t error =
        *module ? hipSuccess
                : sim_hip_load_module(module, device, library->image, library->bytes, "library");
    *out = *module;
    return error;
}

static hipError_t function_on(hipFunction_t *out, hipKernel_t kernel, sim_device *device) {
    hipModule_t module;
    hipError_t error = module_on(&module, kernel->library, device);
    return error == hipSuccess ? sim_hip_function(out, module, kernel->name) : error;
}

/** Finds or makes the handle of a kernel that the library has; null without memory. */
static hipKernel_t kernel_named(hipLibrary_t library, const char *name) {
    hipKernel_t kernel = library->kernels;
    while (kernel && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    if (kernel)
        return kernel;
    const size_t length = strlen(name);
    kernel = calloc(1, sizeof *kernel + length + 1);
    if (!kernel || !sim_handle_add(SIM_HANDLE_KERNEL, kernel)) {
        free(kernel);
        return nullptr;
    }
    *kernel = (struct sim_library_kernel){library->kernels, library};
    memcpy(kernel->name, name, length);
    library->kernels = kernel;
    return kernel;
}

static void free_library(hipLibrary_t library) {
    hipLibrary_t *at = &libraries;
    while (*at != library)
        at = &(*at)->next;
    *at = library->next;
    sim_handle_remove(SIM_HANDLE_LIBRARY, library);
    for (hipKernel_t k = library->kernels, next; k; k = next) {
        next = k->next;
        sim_handle_remove(SIM_HANDLE_KERNEL, k);
        free(k);
    }
    free(library->image);
    free(library);
}

static hipError_t leave(hipError_t error) {
    pthread_mutex_unlock(&lock);
    return sim_hip_result(error);
}

/** Takes the lock for a library. Returns false, without the lock, if the handle is none's. */
static bool enter(hipLibrary_t library) {
    pthread_mutex_lock(&lock);
    if (is_library(library))
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

static bool enter_kernel(hipKernel_t kernel) {
    pthread_mutex_lock(&lock);
    if (is_kernel(kernel))
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

// ---- for the rest of the runtime

void sim_libraries_reset(const sim_device *device) {
    pthread_mutex_lock(&lock);
    for (hipLibrary_t library = libraries; library; library = library->next)
        library->modules[device->id] = nullptr;
    pthread_mutex_unlock(&lock);
}

void sim_libraries_free_all(void) {
    while (libraries)
        free_library(libraries);
}

hipError_t sim_library_function(hipFunction_t *out, const void *kernel, sim_device *device) {
    hipKernel_t handle = (hipKernel_t)kernel;
    if (!enter_kernel(handle))
        return hipErrorInvalidDeviceFunction;
    hipError_t error = function_on(out, handle, device);
    pthread_mutex_unlock(&lock);
    return error;
}

void sim_library_fork_prepare(void) {
    pthread_mutex_lock(&lock);
}

void sim_library_fork_done(void) {
    pthread_mutex_unlock(&lock);
}

// ---- loading

/** Makes a library of an image, which it then owns, and loads it onto the current device, so that
 *  an image that does not fit is found. */
static hipError_t load(hipLibrary_t *out, void *image, size_t bytes) {
    hipLibrary_t library = calloc(1, sizeof *library);
    hipModule_t module;
    if (!library || !sim_handle_add(SIM_HANDLE_LIBRARY, library)) {
        free(library);
        free(image);
        return hipErrorOutOfMemory;
    }
    pthread_mutex_lock(&lock);
    *library = (struct sim_library){.next = libraries, .image = image, .bytes = bytes};
    libraries = library;
    hipError_t error = module_on(&module, library, sim_hip_device());
    if (error != hipSuccess)
        free_library(library);
    else
        *out = library;
    pthread_mutex_unlock(&lock);
    return error;
}

/** Returns whether lists of options are there; what they say steers a compiler that CUDA has. */
static bool are_options(int **options, void **values, unsigned count) {
    return !count || (options && values);
}

hipError_t hipLibraryLoadData(hipLibrary_t *out, const void *code, int **jit_options,
                              void **jit_values, unsigned num_jit, int **options, void **values,
                              unsigned num_options) {
    SIM_HIP_START();
    if (!out || !code || !are_options(jit_options, jit_values, num_jit) ||
        !are_options(options, values, num_options))
        return sim_hip_result(hipErrorInvalidValue);
    const size_t bytes = sim_object_extent(code);
    void *image = bytes ? malloc(bytes) : nullptr;
    if (!image)
        return sim_hip_result(bytes ? hipErrorOutOfMemory : hipErrorInvalidImage);
    memcpy(image, code, bytes);
    return sim_hip_result(load(out, image, bytes));
}

hipError_t hipLibraryLoadFromFile(hipLibrary_t *out, const char *path, int **jit_options,
                                  void **jit_values, unsigned num_jit, int **options, void **values,
                                  unsigned num_options) {
    SIM_HIP_START();
    size_t bytes;
    if (!out || !path || !are_options(jit_options, jit_values, num_jit) ||
        !are_options(options, values, num_options))
        return sim_hip_result(hipErrorInvalidValue);
    void *image = sim_hip_read_file(path, &bytes);
    if (!image)
        sim_hip_report("hipLibraryLoadFromFile", "%s: %s", path, strerror(errno));
    return sim_hip_result(image ? load(out, image, bytes) : hipErrorFileNotFound);
}

/** Unloads the library from every device. */
hipError_t hipLibraryUnload(hipLibrary_t library) {
    hipModule_t modules[SIM_MAX_DEVICES];
    SIM_HIP_START();
    if (!enter(library))
        return sim_hip_result(hipErrorInvalidHandle);
    memcpy(modules, library->modules, sizeof modules);
    free_library(library);
    pthread_mutex_unlock(&lock);
    for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++)
        if (modules[i])
            hipModuleUnload(modules[i]);
    return hipSuccess;
}

// ---- kernels

hipError_t hipLibraryGetKernel(hipKernel_t *out, hipLibrary_t library, const char *name) {
    SIM_HIP_START();
    hipModule_t module;
    hipFunction_t function;
    if (!out || !name || !enter(library))
        return sim_hip_result(out && name ? hipErrorInvalidHandle : hipErrorInvalidValue);
    hipError_t error = module_on(&module, library, sim_hip_device());
    error = error == hipSuccess ? sim_hip_function(&function, module, name) : error;
    hipKernel_t kernel = error == hipSuccess ? kernel_named(library, name) : nullptr;
    if (kernel)
        *out = kernel;
    return leave(kernel || error != hipSuccess ? error : hipErrorOutOfMemory);
}

hipError_t hipLibraryGetKernelCount(unsigned *count, hipLibrary_t library) {
    SIM_HIP_START();
    hipModule_t module;
    if (!count || !enter(library))
        return sim_hip_result(count ? hipErrorInvalidHandle : hipErrorInvalidValue);
    hipError_t error = module_on(&module, library, sim_hip_device());
    if (error == hipSuccess)
        *count = (unsigned)sim_object_num_kernels(module->object);
    return leave(error);
}

/** Gives the first `count` kernels of the library. */
hipError_t hipLibraryEnumerateKernels(hipKernel_t *kernels, unsigned count, hipLibrary_t library) {
    SIM_HIP_START();
    hipModule_t module;
    if (!kernels || !count || !enter(library))
        return sim_hip_result(kernels && count ? hipErrorInvalidHandle : hipErrorInvalidValue);
    hipError_t error = module_on(&module, library, sim_hip_device());
    const size_t there = error == hipSuccess ? sim_object_num_kernels(module->object) : 0;
    for (size_t i = 0; error == hipSuccess && i < count && i < there; i++) {
        kernels[i] = kernel_named(library, sim_object_kernel_at(module->object, i)->name);
        error = kernels[i] ? hipSuccess : hipErrorOutOfMemory;
    }
    return leave(error);
}

/** Gives the kernel's function on the current device. */
hipError_t hipKernelGetFunction(hipFunction_t *out, hipKernel_t kernel) {
    SIM_HIP_START();
    if (!out || !enter_kernel(kernel))
        return sim_hip_result(out ? hipErrorInvalidHandle : hipErrorInvalidValue);
    return leave(function_on(out, kernel, sim_hip_device()));
}

hipError_t hipKernelGetLibrary(hipLibrary_t *out, hipKernel_t kernel) {
    SIM_HIP_START();
    if (!out || !enter_kernel(kernel))
        return sim_hip_result(out ? hipErrorInvalidHandle : hipErrorInvalidValue);
    *out = kernel->library;
    return leave(hipSuccess);
}

hipError_t hipKernelGetName(const char **out, hipKernel_t kernel) {
    SIM_HIP_START();
    if (!out || !enter_kernel(kernel))
        return sim_hip_result(out ? hipErrorInvalidHandle : hipErrorInvalidValue);
    *out = kernel->name;
    return leave(hipSuccess);
}

/** Gives where an explicit argument lies among the arguments, and its size, which may be null. */
hipError_t hipKernelGetParamInfo(hipKernel_t kernel, size_t index, size_t *offset, size_t *bytes) {
    SIM_HIP_START();
    hipFunction_t f;
    if (!offset || !enter_kernel(kernel))
        return sim_hip_result(offset ? hipErrorInvalidHandle : hipErrorInvalidValue);
    hipError_t error = function_on(&f, kernel, sim_hip_device());
    if (error == hipSuccess &&
        (index >= f->kernel->num_args || f->kernel->args[index].hidden >= 0)) // hidden ones follow
        error = hipErrorInvalidValue;
    if (error == hipSuccess)
        *offset = f->kernel->args[index].offset;
    if (error == hipSuccess && bytes)
        *bytes = f->kernel->args[index].bytes;
    return leave(error);
}

hipError_t hipKernelGetAttribute(int *value, hipFunction_attribute attribute, hipKernel_t kernel,
                                 hipDevice_t device) {
    SIM_HIP_START();
    hipFunction_t f;
    if (!value || !sim_hip_device_at(device))
        return sim_hip_result(value ? hipErrorInvalidDevice : hipErrorInvalidValue);
    if (!enter_kernel(kernel))
        return sim_hip_result(hipErrorInvalidHandle);
    hipError_t error = function_on(&f, kernel, sim_hip_device_at(device));
    pthread_mutex_unlock(&lock);
    return error == hipSuccess ? hipFuncGetAttribute(value, attribute, f) : sim_hip_result(error);
}

/** Checks whether a wish can be met; it changes nothing, as every launch may use all LDS. */
hipError_t hipKernelSetAttribute(hipFunction_attribute attribute, int value, hipKernel_t kernel,
                                 hipDevice_t device) {
    int max;
    if (attribute == HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        hipError_t error = hipKernelGetAttribute(&max, attribute, kernel, device);
        const bool fits = value >= -1 && value <= 100; // percent; -1: the default
        return error == hipSuccess && !fits ? sim_hip_result(hipErrorInvalidValue) : error;
    }
    if (attribute != HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = hipKernelGetAttribute(&max, attribute, kernel, device);
    const bool fits = value >= 0 && value <= max;
    return error == hipSuccess && !fits ? sim_hip_result(hipErrorInvalidValue) : error;
}
