// SPDX-License-Identifier: Apache-2.0
// The simulated chips: their names, their resources, and how many workgroups they hold.
#ifndef SIM_CHIP_H
#define SIM_CHIP_H

#include <stdint.h>

/** Lanes of the widest wave. */
enum { SIM_LANES = 64 };

typedef enum sim_arch {
    SIM_GFX90A,
    SIM_GFX942,
    SIM_GFX950,
    SIM_GFX1151,
    SIM_GFX1201,
    SIM_GFX11_GENERIC,
    SIM_GFX12_GENERIC,
    SIM_NUM_ARCHS
} sim_arch;

typedef struct sim_chip {
    sim_arch arch;
    const char *name;      // "gfx942"
    const char *gcn_name;  // "gfx942:sramecc+:xnack-"
    const char *marketing; // "AMD Instinct MI300X (simulated)"
    uint32_t elf_mach;     // low byte of e_flags
    uint32_t compute_units, wave_size, lds_bytes, max_waves_per_simd, clock_khz;
    uint64_t memory_bytes;
    uint32_t gfx_major, gfx_minor; // the compute capability: 9.4, 11.5, 12.0
    uint32_t generic_mach;         // elf_mach of the generic target that runs here; 0: none
    uint32_t memory_clock_khz, memory_bus_bits, l2_bytes, num_xccs, pci_chip;
    uint32_t simds;                              // in a compute unit
    uint32_t joint_units;                        // that hold a workgroup together, if it wants so
    uint32_t vgprs, vgpr_granule;                // in a SIMD, for each lane of a wave of wave_size
    uint32_t sgprs, sgpr_granule;                // in a SIMD; 0: SGPRs never limit
    uint32_t lds_granule, lds_banks, max_groups; // in a compute unit
    uint32_t line_bytes;                         // in the vector cache nearest to a compute unit
    const struct sim_timing *timing;             // null: no time is modelled
} sim_chip;

const sim_chip *sim_chip_by_name(const char *name); // null if there is none
const sim_chip *sim_chip_by_arch(sim_arch arch);
const char *sim_chip_mach_name(uint32_t elf_mach); // null if unknown

struct sim_kernel;

typedef enum sim_limit { // what limits the number of workgroups on a compute unit
    SIM_LIMIT_WAVES,     // wave slots
    SIM_LIMIT_VGPRS,
    SIM_LIMIT_SGPRS,
    SIM_LIMIT_LDS,
    SIM_LIMIT_GROUPS, // workgroup slots
    SIM_NUM_LIMITS
} sim_limit;

/** How many workgroups a compute unit holds: `groups` by all limits, `by` by each limit alone
 *  (UINT32_MAX: it does not limit). */
typedef struct sim_occupancy {
    uint32_t groups, by[SIM_NUM_LIMITS];
    sim_limit limit; // the lowest limit; of equal ones the first
} sim_occupancy;
/** Returns the occupancy of workgroups of `threads` work-items that use lds_bytes each. */
sim_occupancy sim_find_occupancy(const sim_chip *chip, const struct sim_kernel *kernel,
                                 uint32_t threads, uint32_t lds_bytes);

#endif
