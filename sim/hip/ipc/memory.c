// SPDX-License-Identifier: Apache-2.0
// Memory of one process in another one.
//
// The allocation moves to a file in memory, and its handle says which descriptor of which process
// the file has; the other process opens it through /proc. So both have to be of one user and see
// each other's numbers, and nothing is left when they end.
#include "../memory/virtual.h"
#include "ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

constexpr uint64_t MEMORY_MAGIC = UINT64_C(0x79726f6d656d7173);

static_assert(sizeof(sim_ipc_handle) <= 64, "a handle has 64 bytes");

bool sim_ipc_describe(char out[64], uint64_t magic, int fd, sim_ipc_handle handle) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    handle.magic = magic;
    handle.file = info.st_ino;
    handle.pid = getpid();
    handle.fd = fd;
    memset(out, 0, 64);
    memcpy(out, &handle, sizeof handle);
    return true;
}

hipError_t sim_ipc_open(sim_ipc_handle *handle, int *fd, const char text[64], uint64_t magic,
                        bool own) {
    memcpy(handle, text, sizeof *handle);
    if (handle->magic != magic)
        return hipErrorInvalidValue;
    if (handle->pid == getpid() && !own)
        return hipErrorInvalidContext;
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd >= 0 && fstat(*fd, &info) == 0 && info.st_ino == handle->file &&
        handle->bytes <= (uint64_t)info.st_size)
        return hipSuccess;
    if (*fd >= 0)
        close(*fd);
    return hipErrorInvalidDevicePointer;
}

// ---- memory

/** An allocation of another process. Opened again, it is the same one. */
typedef struct opened {
    struct opened *next;
    uint64_t file, base;
    unsigned count;
} opened;

static opened *all; // the lock of memory/virtual.h guards the list

/** Gives a handle of the allocation that an address lies in, and the offset in it. */
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *out, void *ptr) {
    SIM_HIP_START();
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    if (!out || !region || region->kind != SIM_REGION_DEVICE)
        return sim_hip_result(hipErrorInvalidValue);
    const int fd = sim_memory_share(sim_hip.memory, region->base);
    const sim_ipc_handle handle = {.bytes = region->size, .offset = (uintptr_t)ptr - region->base};
    return sim_hip_result(fd >= 0 && sim_ipc_describe(out->reserved, MEMORY_MAGIC, fd, handle)
                              ? hipSuccess
                              : hipErrorOutOfMemory);
}

static opened *find(uint64_t file) {
    opened *o = all;
    while (o && o->file != file)
        o = o->next;
    return o;
}

/** Opens a file, which it then owns. The lock is held. */
static opened *open_file(const sim_ipc_handle *handle, int fd) {
    opened *o = calloc(1, sizeof *o);
    const sim_region *region =
        o ? sim_memory_open(sim_hip.memory, fd, handle->bytes, sim_hip_device()->id) : nullptr;
    if (!region) {
        close(fd);
        free(o);
        return nullptr;
    }
    *o = (opened){.next = all, .file = handle->file, .base = region->base};
    all = o;
    return o;
}

/** Opens memory of another process; it then is the current device's, as with AMD's runtime. */
hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t text, unsigned flags) {
    enum { LAZY_PEER_ACCESS = 1 };
    SIM_HIP_START();
    sim_ipc_handle handle;
    int fd;
    if (!out || flags != LAZY_PEER_ACCESS)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_ipc_open(&handle, &fd, text.reserved, MEMORY_MAGIC, false);
    if (error != hipSuccess)
        return sim_hip_result(error);
    if (handle.offset >= handle.bytes) {
        close(fd);
        return sim_hip_result(hipErrorInvalidValue);
    }
    pthread_mutex_lock(&sim_virtual_lock);
    opened *o = find(handle.file);
    if (o)
        close(fd);
    else
        o = open_file(&handle, fd);
    if (o) {
        o->count++;
        *out = (void *)(o->base + handle.offset);
    }
    pthread_mutex_unlock(&sim_virtual_lock);
    return sim_hip_result(o ? hipSuccess : hipErrorOutOfMemory);
}

/** Closes memory that was opened, by any address in it, once all devices have done what was
 *  queued. */
hipError_t hipIpcCloseMemHandle(void *ptr) {
    SIM_HIP_START();
    for (uint32_t i = 0; i < sim_hip.num_devices; i++)
        sim_hip_drain(&sim_hip.devices[i]);
    const sim_region *region = sim_memory_find(sim_hip.memory, (uintptr_t)ptr);
    pthread_mutex_lock(&sim_virtual_lock);
    opened **at = &all;
    while (region && *at && (*at)->base != region->base)
        at = &(*at)->next;
    opened *o = region ? *at : nullptr;
    if (o && !--o->count) {
        *at = o->next;
        sim_memory_free(sim_hip.memory, o->base);
        free(o);
    }
    pthread_mutex_unlock(&sim_virtual_lock);
    return sim_hip_result(o ? hipSuccess : hipErrorInvalidValue);
}

void sim_ipc_close_all(void) {
    for (opened *o = all, *next; o; o = next) {
        next = o->next;
        free(o); // the memory goes with the guest's
    }
    all = nullptr;
}
