// SPDX-License-Identifier: Apache-2.0
// Events of several processes: how often they were recorded, and passed, stands in a file in memory
// that all of them map.
#include "ipc.h"

#include <sys/mman.h>
#include <unistd.h>

constexpr uint64_t EVENT_MAGIC = UINT64_C(0x746e657665636971);

/** Lets an event count in a file, which the event then owns. Returns false without memory. */
static bool share(hipEvent_t event, int fd) {
    sim_event_counts *counts = sim_memory_map_file(nullptr, fd, sizeof *counts);
    if (!counts)
        return false;
    event->counts = counts;
    event->fd = fd;
    return true;
}

void sim_event_unshare(hipEvent_t event) {
    munmap(event->counts, sizeof *event->counts);
    close(event->fd);
    event->counts = &event->own;
}

/** Moves an event's counts to a file. The lock is held. */
static bool move_to_file(hipEvent_t event) {
    const int fd = sim_memory_file(sizeof event->own);
    if (fd < 0 || !share(event, fd)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    event->counts->recorded = event->own.recorded;
    event->counts->passed = event->own.passed;
    return true;
}

hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t *out, hipEvent_t event_handle) {
    SIM_HIP_START();
    hipEvent_t event = out ? sim_event_take(event_handle) : nullptr;
    if (!event)
        return sim_hip_result(hipErrorInvalidValue);
    if (!(event->flags & hipEventInterprocess))
        return sim_event_give(event, hipErrorInvalidConfiguration); // as AMD's runtime has it
    pthread_mutex_lock(&sim_hip.lock);
    const bool ok = event->counts != &event->own || move_to_file(event);
    pthread_mutex_unlock(&sim_hip.lock);
    const sim_ipc_handle handle = {.bytes = sizeof event->own};
    return sim_event_give(event,
                          ok && sim_ipc_describe(out->reserved, EVENT_MAGIC, event->fd, handle)
                              ? hipSuccess
                              : hipErrorOutOfMemory);
}

hipError_t hipIpcOpenEventHandle(hipEvent_t *out, hipIpcEventHandle_t text) {
    SIM_HIP_START();
    sim_ipc_handle handle;
    int fd;
    if (!out)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_ipc_open(&handle, &fd, text.reserved, EVENT_MAGIC, false);
    hipEvent_t event = nullptr;
    if (error != hipSuccess)
        return sim_hip_result(error);
    error = sim_event_create(&event, hipEventDisableTiming | hipEventInterprocess);
    if (error == hipSuccess && !share(event, fd)) {
        hipEventDestroy(event);
        error = hipErrorOutOfMemory;
    }
    if (error != hipSuccess)
        close(fd);
    else
        *out = event;
    return sim_hip_result(error);
}
