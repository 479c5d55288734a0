// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: ranges of addresses (virtual.c), and memory that they are given
// (physical.c). One lock guards both; it is taken before the runtime's own.
#ifndef SIM_HIP_VIRTUAL_H
#define SIM_HIP_VIRTUAL_H

#include "../runtime.h"

constexpr uint64_t SIM_GRANULE = UINT64_C(1) << 16; // the pages of sim/memory.h
/** Sizes are multiples of this, as with AMD's driver; what is mapped begins at a granule. */
constexpr uint64_t SIM_VIRTUAL_PAGE = 4096;

/** Memory without an address: a file. */
struct sim_physical {
    hipMemGenericAllocationHandle_t next;
    uint64_t bytes;
    int fd;
    bool is_imported; // another process counts it as used
    hipMemAllocationProp prop;
    unsigned references, mappings; // of the program; it goes when there are none of either
};

extern pthread_mutex_t sim_virtual_lock;

/** The next functions have the lock. Returns whether the program may use a handle. */
bool sim_is_physical(hipMemGenericAllocationHandle_t memory);
/** Frees memory that nobody refers to any more. */
void sim_physical_drop(hipMemGenericAllocationHandle_t memory);
/** Takes all of the program's references to the memory of a device, or of all: null. */
void sim_physical_reset(const sim_device *device);
/** Returns the memory that an address has; null if it has none. */
hipMemGenericAllocationHandle_t sim_physical_at(uint64_t addr);

#endif
