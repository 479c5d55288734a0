// SPDX-License-Identifier: Apache-2.0
// Memory without an address, for ranges of addresses (virtual.c): a file in memory, so that it can
// have several addresses, and other processes can have it too.
#include "virtual.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PINNED = 1, DEVICE = 1, NO_HANDLE = 0, DESCRIPTOR = 1 };

pthread_mutex_t sim_virtual_lock = PTHREAD_MUTEX_INITIALIZER;
static hipMemGenericAllocationHandle_t all;

bool sim_is_physical(hipMemGenericAllocationHandle_t memory) {
    return memory && sim_handle_is(SIM_HANDLE_PHYSICAL, memory) && memory->references;
}

void sim_physical_drop(hipMemGenericAllocationHandle_t memory) {
    if (memory->references || memory->mappings)
        return;
    hipMemGenericAllocationHandle_t *at = &all;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    if (!memory->is_imported)
        sim_memory_count(sim_hip.memory, (uint32_t)memory->prop.location.id,
                         -(int64_t)memory->bytes);
    close(memory->fd);
    sim_handle_remove(SIM_HANDLE_PHYSICAL, memory);
    free(memory);
}

void sim_physical_reset(const sim_device *device) {
    for (hipMemGenericAllocationHandle_t m = all, next; m; m = next) {
        next = m->next;
        if (!device || m->prop.location.id == (int)device->id) {
            m->references = 0;
            sim_physical_drop(m);
        }
    }
}

/** Makes a handle of a file, which it then owns. Returns hipErrorOutOfMemory, with the file as it
 *  was, without memory. */
static hipError_t make(hipMemGenericAllocationHandle_t *out, int fd, uint64_t bytes,
                       const hipMemAllocationProp *prop, bool is_imported) {
    hipMemGenericAllocationHandle_t m = calloc(1, sizeof *m);
    if (!m || !sim_handle_add(SIM_HANDLE_PHYSICAL, m)) {
        free(m);
        return hipErrorOutOfMemory;
    }
    pthread_mutex_lock(&sim_virtual_lock);
    *m = (struct sim_physical){.next = all,
                               .bytes = bytes,
                               .fd = fd,
                               .is_imported = is_imported,
                               .prop = *prop,
                               .references = 1};
    all = m;
    pthread_mutex_unlock(&sim_virtual_lock);
    if (!is_imported)
        sim_memory_count(sim_hip.memory, (uint32_t)prop->location.id, (int64_t)bytes);
    *out = m;
    return hipSuccess;
}

static bool is_of_device(const hipMemAllocationProp *prop) {
    return prop && prop->type == PINNED && prop->location.type == DEVICE &&
           sim_hip_device_at(prop->location.id);
}

hipError_t hipMemGetAllocationGranularity(size_t *out, const hipMemAllocationProp *prop,
                                          int option) {
    enum { MINIMUM, RECOMMENDED };
    constexpr size_t LARGE_PAGE = 2 << 20;
    SIM_HIP_START();
    if (!out || !is_of_device(prop) || (option != MINIMUM && option != RECOMMENDED))
        return sim_hip_result(hipErrorInvalidValue);
    *out = option == MINIMUM ? SIM_GRANULE : LARGE_PAGE;
    return hipSuccess;
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *out, size_t bytes,
                        const hipMemAllocationProp *prop, unsigned long long flags) {
    SIM_HIP_START();
    if (!out || !bytes || bytes % SIM_VIRTUAL_PAGE || flags || !is_of_device(prop))
        return sim_hip_result(hipErrorInvalidValue);
    const int type = prop->requestedHandleType;
    if (type != NO_HANDLE && type != DESCRIPTOR) {
        sim_hip_report("hipMemCreate", "handle type %d; accepted: 0, none, and 1, a descriptor",
                       type);
        return sim_hip_result(hipErrorNotSupported);
    }
    const sim_device *device = sim_hip_device_at(prop->location.id);
    if (bytes > device->chip->memory_bytes - sim_memory_used(sim_hip.memory, device->id))
        return sim_hip_result(hipErrorOutOfMemory);
    const int fd = sim_memory_file(bytes);
    hipError_t error = fd < 0 ? hipErrorOutOfMemory : make(out, fd, bytes, prop, false);
    if (error != hipSuccess && fd >= 0)
        close(fd);
    return sim_hip_result(error);
}

/** Takes the lock for a handle. Returns false, without the lock, if it is none. */
static bool enter(hipMemGenericAllocationHandle_t memory) {
    pthread_mutex_lock(&sim_virtual_lock);
    if (sim_is_physical(memory))
        return true;
    pthread_mutex_unlock(&sim_virtual_lock);
    return false;
}

static hipError_t leave(hipError_t error) {
    pthread_mutex_unlock(&sim_virtual_lock);
    return sim_hip_result(error);
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t memory) {
    SIM_HIP_START();
    if (!enter(memory))
        return sim_hip_result(hipErrorInvalidValue);
    memory->references--;
    sim_physical_drop(memory);
    return leave(hipSuccess);
}

hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t *out, void *ptr) {
    SIM_HIP_START();
    if (!out || !ptr)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&sim_virtual_lock);
    hipMemGenericAllocationHandle_t memory = sim_physical_at((uintptr_t)ptr);
    if (memory) {
        memory->references++;
        *out = memory;
    }
    return leave(memory ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp *prop,
                                                   hipMemGenericAllocationHandle_t memory) {
    SIM_HIP_START();
    if (!prop || !enter(memory))
        return sim_hip_result(hipErrorInvalidValue);
    *prop = memory->prop;
    return leave(hipSuccess);
}

// ---- between processes

/** Gives a descriptor, which the program owns. */
hipError_t hipMemExportToShareableHandle(void *out, hipMemGenericAllocationHandle_t memory,
                                         int type, unsigned long long flags) {
    SIM_HIP_START();
    if (!out || flags || type != DESCRIPTOR || !enter(memory))
        return sim_hip_result(hipErrorInvalidValue);
    if (memory->prop.requestedHandleType != type)
        return leave(hipErrorInvalidValue);
    const int fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        memcpy(out, &fd, sizeof fd);
    return leave(fd >= 0 ? hipSuccess : hipErrorOutOfMemory);
}

/** Takes a copy of a descriptor that hipMemExportToShareableHandle gave, here or in another
 *  process. As HIP 7 has it, `handle` is the descriptor itself; as HIP 6 has it, it points to the
 *  descriptor: no pointer is as small as a descriptor. The memory then is the current device's. */
hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t *out, void *handle,
                                           int type) {
    constexpr uintptr_t MAX_DESCRIPTOR = 1 << 20;
    SIM_HIP_START();
    if (!out || !handle || type != DESCRIPTOR)
        return sim_hip_result(hipErrorInvalidValue);
    int given = (int)(uintptr_t)handle;
    if ((uintptr_t)handle >= MAX_DESCRIPTOR)
        memcpy(&given, handle, sizeof given);
    uint64_t bytes;
    if (given < 0 || !sim_memory_is_file(given, &bytes))
        return sim_hip_result(hipErrorInvalidValue);
    const int fd = fcntl(given, F_DUPFD_CLOEXEC, 0), device = (int)sim_hip_device()->id;
    const hipMemAllocationProp prop = {PINNED, type, {DEVICE, device}, nullptr, {0, 0, 0}};
    hipError_t error = fd < 0 ? hipErrorOutOfMemory : make(out, fd, bytes, &prop, true);
    if (error != hipSuccess && fd >= 0)
        close(fd);
    return sim_hip_result(error);
}
