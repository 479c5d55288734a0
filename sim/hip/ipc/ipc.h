// SPDX-License-Identifier: Apache-2.0
// Handles by which other processes find memory and events of this one: a descriptor, by its number
// in the process that owns it.
#ifndef SIM_HIP_IPC_H
#define SIM_HIP_IPC_H

#include "../runtime.h"

/** What a handle of 64 bytes holds. */
typedef struct sim_ipc_handle {
    uint64_t magic;
    uint64_t file; // its inode, as the number may be another file's by now
    uint64_t bytes, offset;
    int pid, fd;
} sim_ipc_handle;

/** Writes a handle for a descriptor of this process. Returns false if that is none. */
bool sim_ipc_describe(char out[64], uint64_t magic, int fd, sim_ipc_handle handle);
/** Opens what a handle stands for; *fd is then the caller's. Errors: hipErrorInvalidContext if it
 *  is this process's own, unless `own` says that it may be; hipErrorInvalidValue if it is no
 *  handle, or not for files of `magic`; hipErrorInvalidDevicePointer if the other process, or what
 *  it gave, is gone. */
hipError_t sim_ipc_open(sim_ipc_handle *handle, int *fd, const char text[64], uint64_t magic,
                        bool own);

#endif
