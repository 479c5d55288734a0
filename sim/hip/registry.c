// SPDX-License-Identifier: Apache-2.0
// Programs that clang compiled as HIP: their fat binaries, kernels and variables, and launches
// through <<<>>>.
//
// Before main, and whenever a shared object is loaded or unloaded, each translation unit registers
// its code (a bundle, or a bare ELF file) and names for the addresses by which the host program
// knows its kernels and variables. The code is loaded onto a device when a part of it is first
// needed there: most code of a large program never is.
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

constexpr uint32_t WRAPPER_MAGIC = 0x48495046; // "HIPF"

typedef struct wrapper {
    uint32_t magic, version;
    const void *image;
    void *unused;
} wrapper;

typedef struct symbol {
    const void *host; // the address that the program uses
    struct binary *binary;
    struct symbol *next; // of the bucket
    bool is_variable;
    char name[];
} symbol;

/** A variable in managed memory: the device's code and the host's each have a pointer to it. */
typedef struct managed {
    struct managed *next;
    void **host; // the host's pointer
    void *memory;
    char name[]; // of the device's pointer
} managed;

typedef struct binary {
    struct binary *next;
    managed *managed;
    const void *image;
    const char *refused; // the name of a variable that is not supported, and without which it
                         // cannot run
    hipModule_t modules[SIM_MAX_DEVICES];
    hipError_t errors[SIM_MAX_DEVICES]; // of the first attempt to load the binary
} binary;

/** Guards everything in this file. It is taken before the runtime's own lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static binary *binaries;
enum { NUM_BUCKETS = 4096 };
static symbol *buckets[NUM_BUCKETS]; // by host address

static symbol **bucket_of(const void *host) {
    constexpr uint64_t GOLDEN = UINT64_C(0x9E3779B97F4A7C15);
    return &buckets[(uint64_t)(uintptr_t)host * GOLDEN >> 52];
}

// ---- registering

void **__hipRegisterFatBinary(const void *data) {
    const wrapper *w = data;
    if (!w || w->magic != WRAPPER_MAGIC || !w->image) {
        sim_hip_report("__hipRegisterFatBinary", "not a HIP fat binary");
        return nullptr;
    }
    binary *b = calloc(1, sizeof *b);
    if (!b) {
        sim_hip_report("__hipRegisterFatBinary", "out of memory");
        return nullptr;
    }
    b->image = w->image;
    pthread_mutex_lock(&lock);
    b->next = binaries;
    binaries = b;
    pthread_mutex_unlock(&lock);
    return (void **)b;
}

static void add_symbol(void **handle, const void *host, const char *name, bool is_variable) {
    const size_t length = strlen(name);
    symbol *s = handle ? calloc(1, sizeof *s + length + 1) : nullptr;
    if (!s) {
        sim_hip_report("HIP registration", "%s is lost: %s", name,
                       handle ? "out of memory" : "its fat binary was refused");
        return;
    }
    *s = (symbol){.host = host, .binary = (binary *)handle, .is_variable = is_variable};
    memcpy(s->name, name, length);
    pthread_mutex_lock(&lock);
    symbol **bucket = bucket_of(host);
    s->next = *bucket;
    *bucket = s;
    pthread_mutex_unlock(&lock);
}

void __hipRegisterFunction(void **handle, const void *host, char *stub_name, const char *name,
                           unsigned max_threads, void *thread_id, void *block_id, dim3 *block,
                           dim3 *grid, int *wave_size) {
    // clang passes empty values for the other parameters; the code object has the true ones.
    (void)stub_name, (void)max_threads, (void)thread_id, (void)block_id;
    (void)block, (void)grid, (void)wave_size;
    add_symbol(handle, host, name, false);
}

void __hipRegisterVar(void **handle, void *host, char *host_name, char *name, int is_external,
                      size_t bytes, int is_constant, int is_global) {
    (void)host_name, (void)is_external, (void)bytes, (void)is_constant, (void)is_global;
    add_symbol(handle, host, name, true);
}

/** Makes a managed variable: memory with its first value, which the host's pointer then points to.
 *  Programs use it before their first HIP call. */
void __hipRegisterManagedVar(void **handle, void **host, void *initial, const char *name,
                             size_t bytes, unsigned alignment) {
    enum { GLOBAL = 1, MAX_ALIGNMENT = 1 << 16 }; // memory begins at a page of 64 KiB
    binary *b = (binary *)handle;
    const size_t length = strlen(name);
    managed *m =
        b && host && sim_hip_start() == hipSuccess ? calloc(1, sizeof *m + length + 1) : nullptr;
    if (!m || alignment > MAX_ALIGNMENT ||
        sim_managed_alloc(&m->memory, bytes ? bytes : 1, GLOBAL) != hipSuccess) {
        sim_hip_report("HIP registration", "managed variable %s is lost", name);
        free(m);
        return;
    }
    if (initial)
        memcpy(m->memory, initial, bytes);
    *host = m->memory;
    m->host = host;
    memcpy(m->name, name, length);
    pthread_mutex_lock(&lock);
    m->next = b->managed;
    b->managed = m;
    pthread_mutex_unlock(&lock);
}

void sim_hip_refuse_binary(void **handle, const char *variable) {
    if (handle)
        ((binary *)handle)->refused = variable;
}

/** Lets a module's pointers to managed variables point to them. */
static void point_to_managed(const binary *b, hipModule_t module) {
    for (const managed *m = b->managed; m; m = m->next) {
        uint64_t addr, bytes, memory = (uintptr_t)m->memory;
        void *at = sim_object_global(module->object, m->name, &addr, &bytes)
                       ? sim_memory_host(sim_hip.memory, addr, sizeof memory)
                       : nullptr;
        if (at)
            memcpy(at, &memory, sizeof memory);
    }
}

/** Takes a binary's symbols out of the table. The lock is held. */
static void remove_symbols(const binary *b) {
    for (size_t i = 0; i < NUM_BUCKETS; i++) {
        for (symbol **at = &buckets[i]; *at;) {
            symbol *s = *at;
            if (s->binary != b) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            free(s);
        }
    }
}

/** Unloads what was loaded, unless the process is ending, which unloads it. */
static void unload(binary *b) {
    for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++)
        if (b->modules[i])
            hipModuleUnload(b->modules[i]);
    for (managed *m = b->managed, *next; m; m = next) {
        next = m->next;
        hipFree(m->memory);
        free(m);
    }
}

void __hipUnregisterFatBinary(void **handle) {
    binary *b = (binary *)handle;
    pthread_mutex_lock(&lock);
    binary **at = &binaries;
    while (*at && *at != b)
        at = &(*at)->next;
    const bool found = *at;
    if (found) {
        *at = b->next;
        remove_symbols(b);
    }
    pthread_mutex_unlock(&lock);
    if (found) {
        unload(b);
        free(b);
    }
}

void sim_hip_forget_registered(sim_device *device) {
    pthread_mutex_lock(&lock);
    for (binary *b = binaries; b; b = b->next) {
        b->modules[device->id] = nullptr;
        b->errors[device->id] = hipSuccess;
    }
    pthread_mutex_unlock(&lock);
}

void sim_hip_fork_registry_prepare(void) {
    pthread_mutex_lock(&lock);
}

void sim_hip_fork_registry_done(void) {
    pthread_mutex_unlock(&lock);
}

// ---- looking up

/** Gives the code of a binary on a device, which is loaded once. The lock is held. */
static hipError_t module_of(hipModule_t *out, binary *b, sim_device *device) {
    if (b->refused) {
        sim_hip_report("launch", "texture or surface %s: not supported", b->refused);
        return hipErrorNotSupported;
    }
    hipError_t *error = &b->errors[device->id];
    if (!b->modules[device->id] && *error == hipSuccess) {
        const size_t bytes = sim_object_extent(b->image);
        *error = bytes ? sim_hip_load_module(&b->modules[device->id], device, b->image, bytes,
                                             "fat binary")
                       : hipErrorInvalidImage;
        if (*error == hipSuccess)
            point_to_managed(b, b->modules[device->id]);
    }
    *out = b->modules[device->id];
    return *error;
}

/** Returns the newest symbol at an address; null if there is none of this kind. The lock is
 *  held. */
static symbol *find(const void *host, bool is_variable) {
    symbol *s = *bucket_of(host);
    while (s && (s->host != host || s->is_variable != is_variable))
        s = s->next;
    return s;
}

hipError_t sim_hip_registered(hipFunction_t *out, const void *kernel, sim_device *device) {
    pthread_mutex_lock(&lock);
    const symbol *s = find(kernel, false);
    hipModule_t module;
    hipError_t error = s ? module_of(&module, s->binary, device) : hipErrorInvalidDeviceFunction;
    error = error == hipSuccess ? sim_hip_function(out, module, s->name) : error;
    pthread_mutex_unlock(&lock);
    if (!s) // then it may be a library's kernel
        error = sim_library_function(out, kernel, device);
    return error == hipErrorNotFound ? hipErrorInvalidDeviceFunction : error;
}

static hipError_t find_variable(const void *host, uint64_t *addr, uint64_t *bytes) {
    pthread_mutex_lock(&lock);
    const symbol *s = find(host, true);
    hipModule_t module;
    hipError_t error = s ? module_of(&module, s->binary, sim_hip_device()) : hipErrorInvalidSymbol;
    if (error == hipSuccess && !sim_object_global(module->object, s->name, addr, bytes))
        error = hipErrorInvalidSymbol;
    pthread_mutex_unlock(&lock);
    return error;
}

// ---- launches

static hipError_t launch(const void *kernel, dim3 g, dim3 b, void **args, size_t dynamic_lds,
                         hipStream_t handle, bool is_cooperative) {
    const sim_stream *stream = sim_hip_stream(handle);
    if (!stream)
        return hipErrorContextIsDestroyed;
    sim_launch l = {.grid = {g.x, g.y, g.z},
                    .block = {b.x, b.y, b.z},
                    .dynamic_lds = dynamic_lds,
                    .params = args,
                    .host = kernel};
    hipError_t error = sim_hip_registered(&l.function, kernel, stream->device);
    if (error != hipSuccess)
        return error;
    return is_cooperative ? sim_hip_cooperative(handle, &l) : sim_hip_queue_launch(handle, &l);
}

hipError_t hipLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args,
                           size_t dynamic_lds, hipStream_t stream) {
    SIM_HIP_START();
    return sim_hip_result(launch(kernel, grid, block, args, dynamic_lds, stream, false));
}

hipError_t hipLaunchKernelExC(const hipLaunchConfig_t *config, const void *kernel, void **args) {
    SIM_HIP_START();
    bool is_cooperative;
    if (!config)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_hip_launch_attributes(config->attrs, config->numAttrs, &is_cooperative);
    return sim_hip_result(error == hipSuccess
                              ? launch(kernel, config->gridDim, config->blockDim, args,
                                       config->dynamicSmemBytes, config->stream, is_cooperative)
                              : error);
}

hipError_t hipGetFuncBySymbol(hipFunction_t *out, const void *kernel) {
    SIM_HIP_START();
    return sim_hip_result(out ? sim_hip_registered(out, kernel, sim_hip_device())
                              : hipErrorInvalidValue);
}

// ---- attributes of kernels

hipError_t hipFuncGetAttributes(hipFuncAttributes *out, const void *kernel) {
    SIM_HIP_START();
    hipFunction_t f;
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    if (error != hipSuccess)
        return sim_hip_result(error);
    const sim_kernel *k = f->kernel;
    const sim_chip *c = f->module->device->chip;
    const int version = (int)(10 * c->gfx_major + c->gfx_minor);
    *out = (hipFuncAttributes){.binaryVersion = version,
                               .ptxVersion = version,
                               .localSizeBytes = k->scratch_bytes,
                               .sharedSizeBytes = k->lds_bytes,
                               .maxDynamicSharedSizeBytes = (int)(c->lds_bytes - k->lds_bytes),
                               .maxThreadsPerBlock = (int)k->max_threads,
                               .numRegs = (int)k->num_vgprs};
    return hipSuccess;
}

/** Checks whether a wish can be met; it changes nothing, as every launch may use all LDS. */
hipError_t hipFuncSetAttribute(const void *kernel, hipFuncAttribute attribute, int value) {
    SIM_HIP_START();
    hipFunction_t f;
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    if (error != hipSuccess)
        return sim_hip_result(error);
    int64_t max = 100, min = -1; // a carveout in percent, -1 for the default; LDS has a size of its
                                 // own
    if (attribute == hipFuncAttributeMaxDynamicSharedMemorySize) {
        max = (int64_t)f->module->device->chip->lds_bytes - f->kernel->lds_bytes;
        min = 0;
    } else if (attribute != hipFuncAttributePreferredSharedMemoryCarveout) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    return sim_hip_result(value >= min && value <= max ? hipSuccess : hipErrorInvalidValue);
}

/** AMD's chips have nothing to configure: LDS and cache are apart, bank widths fixed. */
static hipError_t accept_hint(const void *kernel, int config, int max) {
    SIM_HIP_START();
    hipFunction_t f;
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    const bool known = config >= 0 && config <= max;
    return sim_hip_result(error == hipSuccess && !known ? hipErrorInvalidValue : error);
}

hipError_t hipFuncSetCacheConfig(const void *kernel, int config) {
    return accept_hint(kernel, config, 3);
}

hipError_t hipFuncSetSharedMemConfig(const void *kernel, int config) {
    return accept_hint(kernel, config, 2);
}

// ---- variables

hipError_t hipGetSymbolAddress(void **out, const void *symbol) {
    SIM_HIP_START();
    uint64_t addr, bytes;
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = find_variable(symbol, &addr, &bytes);
    if (error == hipSuccess)
        *out = (void *)addr;
    return sim_hip_result(error);
}

hipError_t hipGetSymbolSize(size_t *out, const void *symbol) {
    SIM_HIP_START();
    uint64_t addr, bytes;
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = find_variable(symbol, &addr, &bytes);
    if (error == hipSuccess)
        *out = bytes;
    return sim_hip_result(error);
}

hipError_t sim_hip_symbol(const void *symbol, size_t bytes, size_t offset, void **out) {
    uint64_t addr, size;
    hipError_t error = find_variable(symbol, &addr, &size);
    if (error != hipSuccess)
        return error;
    if (offset > size || bytes > size - offset)
        return hipErrorInvalidValue;
    *out = (void *)(addr + offset);
    return hipSuccess;
}

static hipError_t to_symbol(const void *symbol, const void *src, size_t bytes, size_t offset,
                            hipMemcpyKind kind, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    void *dst;
    if (kind == hipMemcpyDeviceToHost || kind == hipMemcpyHostToHost)
        return sim_hip_result(hipErrorInvalidMemcpyDirection);
    hipError_t error = sim_hip_symbol(symbol, bytes, offset, &dst);
    return sim_hip_result(
        error == hipSuccess ? sim_hip_copy(dst, src, bytes, kind, stream, is_async) : error);
}

static hipError_t from_symbol(void *dst, const void *symbol, size_t bytes, size_t offset,
                              hipMemcpyKind kind, hipStream_t stream, bool is_async) {
    SIM_HIP_START();
    void *src;
    if (kind == hipMemcpyHostToDevice || kind == hipMemcpyHostToHost)
        return sim_hip_result(hipErrorInvalidMemcpyDirection);
    hipError_t error = sim_hip_symbol(symbol, bytes, offset, &src);
    return sim_hip_result(
        error == hipSuccess ? sim_hip_copy(dst, src, bytes, kind, stream, is_async) : error);
}

hipError_t hipMemcpyToSymbol(const void *symbol, const void *src, size_t bytes, size_t offset,
                             hipMemcpyKind kind) {
    return to_symbol(symbol, src, bytes, offset, kind, nullptr, false);
}

hipError_t hipMemcpyToSymbolAsync(const void *symbol, const void *src, size_t bytes, size_t offset,
                                  hipMemcpyKind kind, hipStream_t stream) {
    return to_symbol(symbol, src, bytes, offset, kind, stream, true);
}

hipError_t hipMemcpyFromSymbol(void *dst, const void *symbol, size_t bytes, size_t offset,
                               hipMemcpyKind kind) {
    return from_symbol(dst, symbol, bytes, offset, kind, nullptr, false);
}

hipError_t hipMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t bytes, size_t offset,
                                    hipMemcpyKind kind, hipStream_t stream) {
    return from_symbol(dst, symbol, bytes, offset, kind, stream, true);
}
