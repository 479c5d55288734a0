// SPDX-License-Identifier: Apache-2.0
// The chips: what a device reports about itself, and which code objects it takes.
//
// Sources: vendor data sheets for units, clocks and memory; LLVM's AMDGPUUsage for the machine
// numbers of e_flags. Registers and granules: LLVM's AMDGPUBaseInfo (IsaInfo). Cache lines: CDNA3
// white paper; 64 bytes on MI200 (ROCm Compute Profiler, vector L1). LDS banks: look/banks.c. Joint
// units: RDNA's workgroup processors ("RDNA3" ISA). The generic targets stand for the smallest card
// of their family.
#include "timing.h"

#include <string.h>

// clang-format off
static const sim_chip chips[] = {
    {.arch = SIM_GFX90A, .name = "gfx90a", .gcn_name = "gfx90a:sramecc+:xnack-",
     .marketing = "AMD Instinct MI250X (simulated)", .elf_mach = 0x3f, .gfx_major = 9, .gfx_minor = 0,
     .compute_units = 110, .wave_size = 64, .lds_bytes = 65536, .max_waves_per_simd = 8, .clock_khz = 1700000,
     .memory_bytes = UINT64_C(64) << 30, .memory_clock_khz = 1600000, .memory_bus_bits = 4096,
     .l2_bytes = 8 << 20, .num_xccs = 1, .pci_chip = 0x7408,
     .simds = 4, .joint_units = 1, .vgprs = 512, .vgpr_granule = 8, .sgprs = 800, .sgpr_granule = 16, .lds_granule = 512,
     .lds_banks = 32, .max_groups = 32, .line_bytes = 64, .timing = &sim_gfx90a_timing},
    {.arch = SIM_GFX942, .name = "gfx942", .gcn_name = "gfx942:sramecc+:xnack-",
     .marketing = "AMD Instinct MI300X (simulated)", .elf_mach = 0x4c, .generic_mach = 0x5f, .gfx_major = 9, .gfx_minor = 4,
     .compute_units = 304, .wave_size = 64, .lds_bytes = 65536, .max_waves_per_simd = 8, .clock_khz = 2100000,
     .memory_bytes = UINT64_C(192) << 30, .memory_clock_khz = 1300000, .memory_bus_bits = 8192,
     .l2_bytes = 4 << 20, .num_xccs = 8, .pci_chip = 0x74a1,
     .simds = 4, .joint_units = 1, .vgprs = 512, .vgpr_granule = 8, .sgprs = 800, .sgpr_granule = 16, .lds_granule = 512,
     .lds_banks = 32, .max_groups = 32, .line_bytes = 128, .timing = &sim_gfx942_timing},
    {.arch = SIM_GFX950, .name = "gfx950", .gcn_name = "gfx950:sramecc+:xnack-",
     .marketing = "AMD Instinct MI355X (simulated)", .elf_mach = 0x4f, .generic_mach = 0x5f, .gfx_major = 9, .gfx_minor = 5,
     .compute_units = 256, .wave_size = 64, .lds_bytes = 163840, .max_waves_per_simd = 8, .clock_khz = 2400000,
     .memory_bytes = UINT64_C(288) << 30, .memory_clock_khz = 1950000, .memory_bus_bits = 8192,
     .l2_bytes = 4 << 20, .num_xccs = 8, .pci_chip = 0x75a3,
     .simds = 4, .joint_units = 1, .vgprs = 512, .vgpr_granule = 8, .sgprs = 800, .sgpr_granule = 16, .lds_granule = 1280,
     .lds_banks = 64, .max_groups = 32, .line_bytes = 128, .timing = &sim_gfx950_timing},
    {.arch = SIM_GFX1151, .name = "gfx1151", .gcn_name = "gfx1151",
     .marketing = "AMD Radeon 8060S (simulated)", .elf_mach = 0x4a, .generic_mach = 0x54, .gfx_major = 11, .gfx_minor = 5,
     .compute_units = 40, .wave_size = 32, .lds_bytes = 65536, .max_waves_per_simd = 16, .clock_khz = 2900000,
     .memory_bytes = UINT64_C(96) << 30, .memory_clock_khz = 1000000, .memory_bus_bits = 256,
     .l2_bytes = 2 << 20, .num_xccs = 1, .pci_chip = 0x1586,
     .simds = 2, .joint_units = 2, .vgprs = 1536, .vgpr_granule = 24, .lds_granule = 512, .lds_banks = 32, .max_groups = 32,
     .line_bytes = 128, .timing = &sim_gfx1151_timing},
    {.arch = SIM_GFX1201, .name = "gfx1201", .gcn_name = "gfx1201",
     .marketing = "AMD Radeon RX 9070 XT (simulated)", .elf_mach = 0x4e, .generic_mach = 0x59, .gfx_major = 12, .gfx_minor = 0,
     .compute_units = 64, .wave_size = 32, .lds_bytes = 65536, .max_waves_per_simd = 16, .clock_khz = 2970000,
     .memory_bytes = UINT64_C(16) << 30, .memory_clock_khz = 1258000, .memory_bus_bits = 256,
     .l2_bytes = 8 << 20, .num_xccs = 1, .pci_chip = 0x7550,
     .simds = 2, .joint_units = 2, .vgprs = 1536, .vgpr_granule = 24, .lds_granule = 512, .lds_banks = 32, .max_groups = 32,
     .line_bytes = 128, .timing = &sim_gfx1201_timing},
    {.arch = SIM_GFX11_GENERIC, .name = "gfx11-generic", .gcn_name = "gfx11-generic",
     .marketing = "AMD RDNA3 (simulated)", .elf_mach = 0x54, .generic_mach = 0x54, .gfx_major = 11, .gfx_minor = 0,
     .compute_units = 12, .wave_size = 32, .lds_bytes = 65536, .max_waves_per_simd = 16, .clock_khz = 2500000,
     .memory_bytes = UINT64_C(8) << 30, .memory_clock_khz = 1125000, .memory_bus_bits = 128,
     .l2_bytes = 2 << 20, .num_xccs = 1, .pci_chip = 0x7480,
     .simds = 2, .joint_units = 2, .vgprs = 1024, .vgpr_granule = 16, .lds_granule = 512, .lds_banks = 32, .max_groups = 32,
     .line_bytes = 128},
    {.arch = SIM_GFX12_GENERIC, .name = "gfx12-generic", .gcn_name = "gfx12-generic",
     .marketing = "AMD RDNA4 (simulated)", .elf_mach = 0x59, .generic_mach = 0x59, .gfx_major = 12, .gfx_minor = 0,
     .compute_units = 32, .wave_size = 32, .lds_bytes = 65536, .max_waves_per_simd = 16, .clock_khz = 2500000,
     .memory_bytes = UINT64_C(16) << 30, .memory_clock_khz = 1258000, .memory_bus_bits = 128,
     .l2_bytes = 4 << 20, .num_xccs = 1, .pci_chip = 0x7590,
     .simds = 2, .joint_units = 2, .vgprs = 1536, .vgpr_granule = 24, .lds_granule = 512, .lds_banks = 32, .max_groups = 32,
     .line_bytes = 128},
};
// clang-format on

static_assert(sizeof chips / sizeof *chips == SIM_NUM_ARCHS);

const sim_chip *sim_chip_by_name(const char *name) {
    for (size_t i = 0; i < SIM_NUM_ARCHS; i++)
        if (strcmp(chips[i].name, name) == 0)
            return &chips[i];
    return nullptr;
}

const sim_chip *sim_chip_by_arch(sim_arch arch) {
    for (size_t i = 0; i < SIM_NUM_ARCHS; i++)
        if (chips[i].arch == arch)
            return &chips[i];
    return nullptr;
}

const char *sim_chip_mach_name(uint32_t elf_mach) {
    static const struct {
        uint32_t mach;
        const char *name;
    } generic[] = {{0x51, "gfx9-generic"},
                   {0x52, "gfx10-1-generic"},
                   {0x53, "gfx10-3-generic"},
                   {0x5f, "gfx9-4-generic"}}; // of no chip here but gfx942 and gfx950
    for (size_t i = 0; i < sizeof generic / sizeof *generic; i++)
        if (generic[i].mach == elf_mach)
            return generic[i].name;
    for (size_t i = 0; i < SIM_NUM_ARCHS; i++)
        if (chips[i].elf_mach == elf_mach)
            return chips[i].name;
    return nullptr;
}
