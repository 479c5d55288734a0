// SPDX-License-Identifier: Apache-2.0
// Memory pools of one process in another one. A pool's handle is the descriptor of a file that says
// no more than that it is one; each allocation has a handle of its own, as in ipc/memory.c.
#include "ipc.h"

#include <unistd.h>

constexpr uint64_t POOL_MAGIC = UINT64_C(0x6c6f6f706d697371);
enum { DESCRIPTOR = 1 };

/** Gives a descriptor, which the program owns, for a pool that was made for that. */
hipError_t hipMemPoolExportToShareableHandle(void *out, hipMemPool_t pool, int type,
                                             unsigned flags) {
    SIM_HIP_START();
    if (!out || flags || type != DESCRIPTOR || !sim_pool_is_shareable(pool))
        return sim_hip_result(hipErrorInvalidValue);
    const uint64_t magic = POOL_MAGIC;
    const int fd = sim_memory_file(sizeof magic);
    if (fd >= 0 && pwrite(fd, &magic, sizeof magic, 0) == sizeof magic) {
        *(int *)out = fd;
        return hipSuccess;
    }
    if (fd >= 0)
        close(fd);
    return sim_hip_result(hipErrorOutOfMemory);
}

/** Makes a pool of the current device for the memory of another process's. `handle` is the
 *  descriptor, which stays the program's. */
hipError_t hipMemPoolImportFromShareableHandle(hipMemPool_t *out, void *handle, int type,
                                               unsigned flags) {
    SIM_HIP_START();
    const int fd = (int)(intptr_t)handle;
    uint64_t bytes, magic = 0;
    if (!out || !handle || flags || type != DESCRIPTOR || !sim_memory_is_file(fd, &bytes) ||
        pread(fd, &magic, sizeof magic, 0) != sizeof magic || magic != POOL_MAGIC) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    hipMemPool_t pool = sim_pool_import(sim_hip_device());
    if (pool)
        *out = pool;
    return sim_hip_result(pool ? hipSuccess : hipErrorOutOfMemory);
}

/** Describes an allocation of a pool that other processes may open. */
hipError_t hipMemPoolExportPointer(hipMemPoolPtrExportData *out, void *ptr) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!out || !region || region->base != (uintptr_t)ptr ||
        sim_pool_share_of(region->base) != SIM_POOL_SHAREABLE) {
        return sim_hip_result(hipErrorInvalidValue);
    }
    const int fd = sim_memory_share(sim_hip.memory, region->base);
    const sim_ipc_handle handle = {.bytes = region->size};
    return sim_hip_result(fd >= 0 && sim_ipc_describe(out->reserved, POOL_MAGIC, fd, handle)
                              ? hipSuccess
                              : hipErrorOutOfMemory);
}

bool sim_pool_is_opened(const sim_region *region) {
    return region && region->kind == SIM_REGION_IMPORTED &&
           sim_pool_share_of(region->base) == SIM_POOL_IMPORTED;
}

/** Gives an allocation of another process an address here, a new one each time. hipFree and
 *  hipFreeAsync end that. */
hipError_t hipMemPoolImportPointer(void **out, hipMemPool_t pool, hipMemPoolPtrExportData *data) {
    SIM_HIP_START();
    sim_ipc_handle handle;
    int fd;
    const sim_device *device = pool ? sim_pool_importer(pool) : nullptr;
    if (!out || !data || !device)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_ipc_open(&handle, &fd, data->reserved, POOL_MAGIC, true);
    if (error != hipSuccess)
        return sim_hip_result(error);
    const sim_region *region = sim_memory_open(sim_hip.memory, fd, handle.bytes, device->id);
    if (!region) {
        close(fd);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    if (!sim_pool_adopt(pool, region->base, handle.bytes)) {
        sim_memory_free(sim_hip.memory, region->base);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    *out = (void *)region->base;
    return hipSuccess;
}
