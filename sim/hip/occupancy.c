// SPDX-License-Identifier: Apache-2.0
// Answers programs that ask how many workgroups of a kernel fit on a compute unit; chip/occupancy.c
// computes it.
#include "runtime.h"

enum { MAX_BLOCK = 1024 };

static uint32_t min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t groups_per_unit(const sim_chip *c, const sim_kernel *k, uint32_t block,
                                size_t dynamic_lds) {
    if (block > k->max_threads || dynamic_lds > c->lds_bytes)
        return 0;
    return sim_find_occupancy(c, k, block, k->lds_bytes + (uint32_t)dynamic_lds).groups;
}

static hipError_t active_groups(int *groups, hipFunction_t f, int block, size_t dynamic_lds,
                                unsigned flags) {
    if (!groups || block <= 0 || flags > 1) // of a block too large, none fits
        return hipErrorInvalidValue;
    *groups =
        (int)groups_per_unit(f->module->device->chip, f->kernel, (uint32_t)block, dynamic_lds);
    return hipSuccess;
}

/** Finds the largest of the workgroup sizes that keep most work-items on a unit. */
static hipError_t best_block(int *grid, int *block, hipFunction_t f, size_t dynamic_lds, int limit,
                             unsigned flags) {
    if (!grid || !block || limit < 0 || flags > 1)
        return hipErrorInvalidValue;
    const sim_chip *c = f->module->device->chip;
    uint32_t max = min(f->kernel->max_threads, MAX_BLOCK), best = 0;
    max = limit ? min(max, (uint32_t)limit) : max;
    const uint32_t step = min(c->wave_size, max);
    for (uint32_t size = max / step * step; size; size -= step) {
        const uint32_t groups = groups_per_unit(c, f->kernel, size, dynamic_lds);
        if (groups * size > best) {
            best = groups * size;
            *block = (int)size;
            *grid = (int)(groups * c->compute_units);
        }
    }
    return best ? hipSuccess : hipErrorInvalidValue; // the LDS wanted fits on no unit
}

// ---- by a module's function

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *groups, hipFunction_t f,
                                                                       int block,
                                                                       size_t dynamic_lds,
                                                                       unsigned flags) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_is_function(f)
                              ? active_groups(groups, f, block, dynamic_lds, flags)
                              : hipErrorInvalidValue);
}

hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, hipFunction_t f,
                                                              int block, size_t dynamic_lds) {
    return hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(groups, f, block,
                                                                       dynamic_lds, 0);
}

hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, hipFunction_t f,
                                                            size_t dynamic_lds, int limit,
                                                            unsigned flags) {
    SIM_HIP_START();
    return sim_hip_result(sim_hip_is_function(f)
                              ? best_block(grid, block, f, dynamic_lds, limit, flags)
                              : hipErrorInvalidValue);
}

hipError_t hipModuleOccupancyMaxPotentialBlockSize(int *grid, int *block, hipFunction_t f,
                                                   size_t dynamic_lds, int limit) {
    return hipModuleOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, dynamic_lds, limit, 0);
}

// ---- by a program's kernel

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *groups, const void *kernel,
                                                                 int block, size_t dynamic_lds,
                                                                 unsigned flags) {
    SIM_HIP_START();
    hipFunction_t f;
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    return sim_hip_result(error == hipSuccess ? active_groups(groups, f, block, dynamic_lds, flags)
                                              : error);
}

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, const void *kernel, int block,
                                                        size_t dynamic_lds) {
    return hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(groups, kernel, block, dynamic_lds,
                                                                 0);
}

hipError_t hipOccupancyMaxPotentialBlockSize(int *grid, int *block, const void *kernel,
                                             size_t dynamic_lds, int limit) {
    SIM_HIP_START();
    hipFunction_t f;
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    return sim_hip_result(error == hipSuccess ? best_block(grid, block, f, dynamic_lds, limit, 0)
                                              : error);
}

/** Returns the most dynamic LDS with which `groups` of a kernel still fit on a unit. */
static size_t spare_lds(const sim_chip *c, const sim_kernel *k, uint32_t groups, uint32_t block) {
    size_t low = 0, high = c->lds_bytes - k->lds_bytes;
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        const bool fits = groups_per_unit(c, k, block, middle) >= groups;
        low = fits ? middle : low;
        high = fits ? high : middle - 1;
    }
    return low;
}

hipError_t hipOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *kernel, int groups,
                                                    int block) {
    SIM_HIP_START();
    hipFunction_t f;
    if (!bytes || groups <= 0 || block <= 0 || block > MAX_BLOCK)
        return sim_hip_result(hipErrorInvalidValue);
    hipError_t error = sim_hip_registered(&f, kernel, sim_hip_device());
    if (error != hipSuccess)
        return sim_hip_result(error);
    const sim_chip *c = f->module->device->chip;
    if (groups_per_unit(c, f->kernel, (uint32_t)block, 0) < (uint32_t)groups)
        return sim_hip_result(hipErrorInvalidValue);
    *bytes = spare_lds(c, f->kernel, (uint32_t)groups, (uint32_t)block);
    return hipSuccess;
}
