// SPDX-License-Identifier: Apache-2.0
// Devices: which exist, and their properties; the runtime's start, end and fork.
#include "../chip/chip_file.h"
#include "../isa/decode.h"
#include "../look/hooks.h"
#include "../pool.h"
#include "memory/arrays.h"
#include "runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_runtime sim_hip = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static thread_local int current_device = -1; // -1: the thread has chosen none
static atomic_int default_device;            // of threads that have chosen none
constexpr sim_arch DEFAULT_ARCH = SIM_GFX942;
// The runtime's lock guards these.
static hipError_t start_error; // from QUERN_SIM
static bool is_started;
static uint32_t numbers[SIM_MAX_DEVICES]; // of the visible ones among QUERN_SIM's devices
static uint32_t num_listed, num_hidden;   // of QUERN_SIM's devices

// ---- start, end, fork

static void before_fork(void) {
    sim_virtual_fork_prepare();
    sim_hip_fork_registry_prepare();
    sim_library_fork_prepare();
    pthread_mutex_lock(&sim_hip.lock);
    if (sim_hip.memory)
        sim_memory_fork_prepare(sim_hip.memory);
    sim_pool_fork_prepare();
    sim_look_fork_prepare();
    sim_decode_fork_prepare();
    sim_handle_fork_prepare();
    sim_pointer_fork_prepare();
}

static void after_fork_in_parent(void) {
    sim_pointer_fork_done();
    sim_handle_fork_done();
    sim_decode_fork_done();
    sim_look_fork_parent();
    sim_pool_fork_parent();
    if (sim_hip.memory)
        sim_memory_fork_parent(sim_hip.memory);
    pthread_mutex_unlock(&sim_hip.lock);
    sim_library_fork_done();
    sim_hip_fork_registry_done();
    sim_virtual_fork_done();
}

static void after_fork_in_child(void) {
    sim_pointer_fork_done();
    sim_handle_fork_done();
    sim_decode_fork_done();
    sim_look_fork_child();
    sim_pool_fork_child();
    if (sim_hip.memory)
        sim_memory_fork_child(sim_hip.memory);
    pthread_mutex_init(&sim_hip.lock, nullptr);
    pthread_cond_init(&sim_hip.changed, nullptr);
    sim_hip_fork_streams();
    sim_hip_fork_faults();
    sim_library_fork_done();
    sim_hip_fork_registry_done();
    sim_virtual_fork_done();
}

/** Runs at process exit or dlclose. No thread of ours may be left, and no guest memory. */
[[gnu::destructor]] static void stop(void) {
    sim_hip_stop_streams();
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        sim_schedule_finish(&sim_hip.devices[i].schedule);
    sim_pool_shutdown();
    sim_look_finish();
    sim_disassemble_shutdown();
    sim_libraries_free_all();
    sim_graphs_free_all(); // before the modules, whose code graphs have
    for (uint32_t i = 0; i < sim_hip.num_devices; i++) {
        sim_hip_forget_registered(&sim_hip.devices[i]);
        sim_hip_unload_modules(&sim_hip.devices[i]);
        sim_clock_deinit(&sim_hip.devices[i].clock);
        sim_schedule_deinit(&sim_hip.devices[i].schedule);
    }
    sim_hip.num_devices = 0;
    sim_blocks_reset(nullptr);
    sim_arrays_free_all();
    sim_events_free_all();
    sim_user_objects_free_all();
    sim_rtc_free_all();
    sim_managed_forget(0);
    sim_pointers_forget_all();
    sim_pools_reset(nullptr);
    sim_virtual_reset(nullptr);
    sim_ipc_close_all();
    sim_memory_destroy(sim_hip.memory);
    sim_hip.memory = nullptr;
    sim_hip_finish_faults(); // may not return
}

static sim_chip_file chip_file; // if the options name one

static bool is_replaced(sim_arch arch) {
    return *sim_hip.options.chip && chip_file.chip.arch == arch;
}

/** Returns the chip of a new device, which a later chip file does not change. */
static const sim_chip *chip_of(uint32_t id, sim_arch arch) {
    static sim_chip_file chips[SIM_MAX_DEVICES];
    if (!is_replaced(arch))
        return sim_chip_by_arch(arch);
    chips[id] = chip_file;
    chips[id].chip.timing = &chips[id].timing;
    return &chips[id].chip;
}

/** Makes devices for the architectures that the options list. The lock is held. */
static hipError_t add_devices(void) {
    while (sim_hip.num_devices < sim_hip.options.num_archs) {
        const uint32_t id = sim_hip.num_devices;
        sim_device *device = &sim_hip.devices[id];
        *device = (sim_device){.id = id,
                               .number = id < num_listed ? numbers[id] : id + num_hidden,
                               .chip = chip_of(id, sim_hip.options.archs[id])};
        sim_clock_init(&device->clock);
        sim_schedule_init(&device->schedule);
        if (!sim_hip_add_default_stream(device))
            return hipErrorOutOfMemory;
        sim_hip.num_devices++;
    }
    return hipSuccess;
}

/** Configures memory that is allocated from now on, as the options say. */
static void configure_memory(void) {
    if (sim_hip.memory) {
        sim_memory_keep_pages(sim_hip.memory, sim_hip.options.passes_overreads);
        sim_memory_note_writes(sim_hip.memory, sim_hip.options.check & SIM_CHECK_UNINIT);
    }
}

/** Returns whether a chip of the architecture is among the devices that the options list. Without a
 *  list there is the default device. */
static bool is_listed(const sim_options *options, sim_arch arch) {
    for (uint32_t i = 0; i < options->num_archs; i++)
        if (options->archs[i] == arch)
            return true;
    return options->num_archs == 0 && arch == DEFAULT_ARCH;
}

/** Reads the chip file that new options name. A file that no device follows is an error, when it is
 *  read, and when the first list of devices is. */
static bool read_chip_file(const char *call, const sim_options *options) {
    char error[256 + SIM_PATH_BYTES];
    sim_chip_file file = chip_file;
    const bool is_new = strcmp(options->chip, sim_hip.options.chip) != 0;
    if (is_new && !sim_chip_file_read(&file, options->chip, error, sizeof error)) {
        sim_hip_report(call, "chip=%s", error);
        return false;
    }
    const bool is_first = !sim_hip.options.num_archs && !num_hidden;
    if ((is_new || is_first) && !is_listed(options, file.chip.arch)) {
        sim_hip_report(call, "chip=%s: base is %s; accepted: a chip that arch= lists, here %s%s",
                       options->chip, file.chip.name, sim_chip_by_arch(options->archs[0])->name,
                       options->num_archs > 1 ? " and others" : "");
        return false;
    }
    chip_file = file;
    chip_file.chip.timing = &chip_file.timing;
    return true;
}

/** Reads options; a complaint goes to standard error. The lock is held. */
static hipError_t read_options(const char *call, const char *text) {
    char error[256 + SIM_PATH_BYTES];
    sim_options options = sim_hip.options;
    if (!sim_options_parse(&options, text, error, sizeof error) ||
        !sim_look_configure(&options.look, error, sizeof error)) {
        sim_hip_report(call, "%s", error);
        return strcmp(error, SIM_OPTIONS_NO_MEMORY) ? hipErrorInvalidValue : hipErrorOutOfMemory;
    }
    if (sim_exec_lacks(options.exec)) {
        sim_hip_report(call,
                       "%s, for which alone libquernsim was built; make TARGETS=all builds all",
                       sim_exec_lacks(options.exec));
        return hipErrorInvalidDevice;
    }
    if (!sim_exec_choose(options.exec)) {
        sim_hip_report(call, "exec: instructions have been decoded for another build; accepted: "
                             "before the first launch");
        return hipErrorInvalidValue;
    }
    if (*options.chip && !read_chip_file(call, &options))
        return hipErrorInvalidValue;
    sim_hip.options = options;
    configure_memory();
    if (sim_hip.options.errorcode)
        sim_hip_stay_loaded();
    return hipSuccess;
}

/** Keeps the devices that the process may see, of those that QUERN_SIM lists or, without a list, of
 *  the default device. The lock is held. */
static void hide_devices(void) {
    sim_options *options = &sim_hip.options;
    sim_arch all[SIM_MAX_DEVICES];
    memcpy(all, options->archs, sizeof all);
    num_listed = sim_hip_visible(options->num_archs, numbers);
    for (uint32_t i = 0; i < num_listed; i++)
        options->archs[i] = all[numbers[i]];
    num_hidden = options->num_archs - num_listed;
    options->num_archs = num_listed;
}

/** Prepares the runtime at the first call: makes memory, reads QUERN_SIM. The lock is held. */
static hipError_t prepare(void) {
    static bool is_prepared;
    if (!is_prepared) {
        is_prepared = true;
        sim_hip.options.check = SIM_CHECK_BOUNDS;
        const char *text = getenv("QUERN_SIM");
        start_error = text ? read_options("QUERN_SIM", text) : hipSuccess;
        hide_devices();
        if (sim_hip.options.threads)
            sim_pool_configure(sim_hip.options.threads);
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    }
    if (!sim_hip.memory) {
        sim_hip.memory = sim_memory_create();
        configure_memory();
    }
    return sim_hip.memory ? start_error : hipErrorOutOfMemory;
}

hipError_t sim_hip_start(void) {
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = sim_hip.is_stopping ? hipErrorDeinitialized : prepare();
    if (error == hipSuccess && !is_started) {
        if (sim_hip.options.num_archs == 0 && num_hidden == 0) {
            sim_hip.options.archs[sim_hip.options.num_archs++] = DEFAULT_ARCH;
            hide_devices();
        }
        error = add_devices();
        is_started = error == hipSuccess;
    }
    error = error == hipSuccess && !sim_hip.num_devices ? hipErrorNoDevice : error;
    pthread_mutex_unlock(&sim_hip.lock);
    return error;
}

int quernsim_configure(const char *options) {
    if (!options)
        return (int)sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_hip.lock);
    uint32_t threads = sim_hip.options.threads;
    hipError_t error = prepare();
    error = error == hipSuccess ? read_options("quernsim_configure", options) : error;
    error = error == hipSuccess && is_started ? add_devices() : error;
    threads = sim_hip.options.threads == threads ? 0 : sim_hip.options.threads;
    pthread_mutex_unlock(&sim_hip.lock);
    if (error == hipSuccess && threads) {
        for (uint32_t i = 0; i < sim_hip.num_devices; i++)
            sim_hip_drain(&sim_hip.devices[i]);
        sim_pool_configure(threads);
    }
    return (int)sim_hip_result(error);
}

/** Writes a chip to text as a chip file. Returns 1, 0 if it has no room, or -1 without memory. */
static int write_chip(char *text, size_t bytes, const sim_chip *chip) {
    FILE *to = fmemopen(text, bytes, "w");
    if (!to)
        return errno == ENOMEM ? -1 : 0;
    sim_chip_file_write(to, chip);
    return fclose(to) == 0 && strlen(text) + 1 < bytes;
}

int quernsim_chip(const char *arch, char *text, size_t bytes) {
    const sim_chip *chip = arch ? sim_chip_by_name(arch) : nullptr;
    pthread_mutex_lock(&sim_hip.lock);
    const hipError_t error = prepare();
    if (chip && is_replaced(chip->arch))
        chip = &chip_file.chip;
    int told = error == hipErrorOutOfMemory ? -1 : 0;
    if (error == hipSuccess && chip && chip->timing)
        told = write_chip(text, bytes, chip);
    pthread_mutex_unlock(&sim_hip.lock);
    return told;
}

sim_device *sim_hip_device(void) {
    return &sim_hip.devices[current_device < 0 ? default_device : current_device];
}

sim_device *sim_hip_device_at(int id) {
    return id >= 0 && (uint32_t)id < sim_hip.num_devices ? &sim_hip.devices[id] : nullptr;
}

// ---- choosing a device

hipError_t hipInit(unsigned flags) {
    SIM_HIP_START();
    return sim_hip_result(flags ? hipErrorInvalidValue : hipSuccess);
}

hipError_t hipDriverGetVersion(int *version) {
    if (!version)
        return sim_hip_result(hipErrorInvalidValue);
    *version = HIP_VERSION;
    return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int *version) {
    return hipDriverGetVersion(version);
}

hipError_t hipGetDeviceCount(int *count) {
    hipError_t error = sim_hip_start();
    if (count && (error == hipSuccess || error == hipErrorNoDevice)) {
        *count = (int)sim_hip.num_devices;
        return sim_hip_result(error);
    }
    return sim_hip_result(error == hipSuccess ? hipErrorInvalidValue : error);
}

hipError_t hipSetDevice(int device) {
    SIM_HIP_START();
    if (!sim_hip_device_at(device))
        return sim_hip_result(hipErrorInvalidDevice);
    current_device = device;
    return hipSuccess;
}

/** Lets the first device of a list be that of threads that choose none; the first of all if the
 *  list is empty. */
hipError_t hipSetValidDevices(int *list, int count) {
    SIM_HIP_START();
    if (count < 0 || (uint32_t)count > sim_hip.num_devices || (count && !list))
        return sim_hip_result(hipErrorInvalidValue);
    for (int i = 0; i < count; i++)
        if (!sim_hip_device_at(list[i]))
            return sim_hip_result(hipErrorInvalidDevice);
    default_device = count ? list[0] : 0;
    return hipSuccess;
}

hipError_t hipGetDevice(int *device) {
    SIM_HIP_START();
    if (!device)
        return sim_hip_result(hipErrorInvalidValue);
    *device = (int)sim_hip_device()->id;
    return hipSuccess;
}

hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) {
    SIM_HIP_START();
    if (!device || !sim_hip_device_at(ordinal))
        return sim_hip_result(device ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *device = ordinal;
    return hipSuccess;
}

hipError_t hipDeviceSynchronize(void) {
    SIM_HIP_START();
    pthread_mutex_lock(&sim_hip.lock);
    hipError_t error = sim_capture_refuse_all();
    pthread_mutex_unlock(&sim_hip.lock);
    return sim_hip_result(error == hipSuccess ? sim_hip_drain(sim_hip_device()) : error);
}

hipError_t hipDeviceReset(void) {
    SIM_HIP_START();
    sim_device *device = sim_hip_device();
    sim_hip_drain(device);
    sim_hip_forget_registered(device);
    sim_libraries_reset(device);
    sim_hip_unload_modules(device);
    sim_memory_free_all(sim_hip.memory, SIM_REGION_DEVICE, device->id);
    sim_pools_reset(device);
    sim_virtual_reset(device);
    sim_blocks_reset(device);
    pthread_mutex_lock(&sim_hip.lock);
    device->heap = 0;
    device->error = hipSuccess;
    pthread_mutex_unlock(&sim_hip.lock);
    return hipSuccess;
}

// ---- properties

/** hipDeviceArch_t, as HIP's headers tell it to device code: all but funnel shifts, the extended
 *  __syncthreads, surfaces and dynamic parallelism. */
enum { ARCH_FEATURES = 0x1ffff & ~(1 << 11 | 1 << 13 | 1 << 14 | 1 << 16) };

static void fill_limits(hipDeviceProp_tR0600 *p, const sim_chip *c) {
    p->warpSize = (int)c->wave_size;
    p->memPitch = INT32_MAX;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = p->maxThreadsDim[2] = 1024;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65536;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->sharedMemPerBlock = p->sharedMemPerBlockOptin = c->lds_bytes;
    p->sharedMemPerMultiprocessor = p->maxSharedMemoryPerMultiProcessor = c->lds_bytes;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->totalConstMem = INT32_MAX;
    p->textureAlignment = p->texturePitchAlignment = p->surfaceAlignment = 256;
}

static void fill_properties(hipDeviceProp_tR0600 *p, const sim_device *device) {
    const sim_chip *c = device->chip;
    *p = (hipDeviceProp_tR0600){.totalGlobalMem = c->memory_bytes,
                                .clockRate = (int)c->clock_khz,
                                .major = (int)c->gfx_major,
                                .minor = (int)c->gfx_minor,
                                .multiProcessorCount = (int)c->compute_units,
                                .canMapHostMemory = 1,
                                .concurrentKernels = 1,
                                .managedMemory = 1,
                                .cooperativeLaunch = c->arch != SIM_GFX90A,
                                .cooperativeMultiDeviceLaunch = c->arch != SIM_GFX90A,
                                .concurrentManagedAccess = 1,
                                .hostNativeAtomicSupported = 1,
                                .pciBusID = (int)device->number + 1,
                                .asyncEngineCount = 1,
                                .unifiedAddressing = 1,
                                .memoryClockRate = (int)c->memory_clock_khz,
                                .memoryBusWidth = (int)c->memory_bus_bits,
                                .l2CacheSize = (int)c->l2_bytes,
                                .clockInstructionRate = 100000,
                                .arch = ARCH_FEATURES};
    snprintf(p->name, sizeof p->name, "%s", c->marketing);
    snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", c->gcn_name);
    char uuid[SIM_UUID_BYTES];
    sim_hip_uuid(device->number, uuid);
    memcpy(p->uuid, uuid, sizeof p->uuid);
    fill_limits(p, c);
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device) {
    SIM_HIP_START();
    if (!properties || !sim_hip_device_at(device))
        return sim_hip_result(properties ? hipErrorInvalidDevice : hipErrorInvalidValue);
    fill_properties(properties, sim_hip_device_at(device));
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device) {
    SIM_HIP_START();
    if (!value || !sim_hip_device_at(device))
        return sim_hip_result(value ? hipErrorInvalidDevice : hipErrorInvalidValue);
    hipDeviceProp_tR0600 properties;
    const hipDeviceProp_tR0600 *p = &properties;
    const sim_chip *c = sim_hip_device_at(device)->chip;
    fill_properties(&properties, sim_hip_device_at(device));
    switch (attribute) {
#define HIP_ATTRIBUTE(id, name, expression)                                                        \
    case id:                                                                                       \
        *value = expression;                                                                       \
        return hipSuccess;
#include "attributes.def"
#undef HIP_ATTRIBUTE
    }
    return sim_hip_result(hipErrorInvalidValue);
}

hipError_t hipDeviceGetName(char *name, int bytes, hipDevice_t device) {
    SIM_HIP_START();
    if (!name || bytes <= 0 || !sim_hip_device_at(device))
        return sim_hip_result(name && bytes > 0 ? hipErrorInvalidDevice : hipErrorInvalidValue);
    snprintf(name, (size_t)bytes, "%s", sim_hip_device_at(device)->chip->marketing);
    return hipSuccess;
}

hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device) {
    SIM_HIP_START();
    if (!bytes || !sim_hip_device_at(device))
        return sim_hip_result(bytes ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *bytes = sim_hip_device_at(device)->chip->memory_bytes;
    return hipSuccess;
}

// ---- calls by name

// Declared in unsupported.c; here only their addresses matter.
#define HIP_UNSUPPORTED(name) extern hipError_t name(void);
#include "unsupported.def"
#undef HIP_UNSUPPORTED

/** Returns a call's address by its name; null if there is no such call. */
static void *call_named(const char *symbol) {
    static const struct {
        const char *name;
        void *function;
    } calls[] = {
        // By name, these calls have the layout of HIP 6 and later; as ELF symbols they would have
        // the old layout.
        {"hipGetDeviceProperties", (void *)hipGetDevicePropertiesR0600},
        {"hipChooseDevice", (void *)hipChooseDeviceR0600},
#define HIP_FUNCTION(name) {#name, (void *)name},
#include "functions.def"
#undef HIP_FUNCTION
#define HIP_UNSUPPORTED(name) {#name, (void *)name},
#include "unsupported.def"
#undef HIP_UNSUPPORTED
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, symbol) == 0)
            return calls[i].function;
    return nullptr;
}

hipError_t hipGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                             hipDriverProcAddressQueryResult *status) {
    enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };
    (void)version;
    if (!symbol || !function || flags > PER_THREAD_STREAM)
        return sim_hip_result(hipErrorInvalidValue);
    char per_thread[128];
    snprintf(per_thread, sizeof per_thread, "%s_spt", symbol);
    *function = flags == PER_THREAD_STREAM ? call_named(per_thread) : nullptr;
    *function = *function ? *function : call_named(symbol);
    if (status)
        *status = *function ? HIP_GET_PROC_ADDRESS_SUCCESS : HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return sim_hip_result(*function ? hipSuccess : hipErrorNotFound);
}

hipError_t hipGetProcAddress_spt(const char *symbol, void **function, int version, uint64_t flags,
                                 hipDriverProcAddressQueryResult *status) {
    return hipGetProcAddress(symbol, function, version, flags ? flags : 2, status);
}

hipError_t hipGetDriverEntryPoint(const char *symbol, void **function, uint64_t flags,
                                  hipDriverProcAddressQueryResult *status) {
    return hipGetProcAddress(symbol, function, HIP_VERSION, flags, status);
}

hipError_t hipGetDriverEntryPoint_spt(const char *symbol, void **function, uint64_t flags,
                                      hipDriverProcAddressQueryResult *status) {
    return hipGetProcAddress_spt(symbol, function, HIP_VERSION, flags, status);
}
