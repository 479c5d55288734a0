// SPDX-License-Identifier: Apache-2.0
// How many workgroups of a kernel fit on a compute unit: registers, LDS, waves.
//
// gfx90a and later: the vector registers of a lane are ArchVGPRs and AccVGPRs together. RDNA:
// scalar registers never limit; a wave of 64 takes two of a lane's registers, and half of the
// granule. Source: LLVM's AMDGPUBaseInfo (IsaInfo).
#include "../object/object.h"
#include "chip.h"

static uint32_t min(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t round_up(uint32_t value, uint32_t granule) {
    return (value + granule - 1) / granule * granule;
}

/** Returns how many waves a register file of `total` holds. */
static uint32_t waves_of(uint32_t total, uint32_t used, uint32_t granule) {
    return total ? total / round_up(used ? used : 1, granule) : UINT32_MAX;
}

/** Returns how many workgroups of `waves` fit if each SIMD holds `per_simd` waves. */
static uint32_t groups_of(const sim_chip *chip, uint32_t per_simd, uint32_t waves) {
    return per_simd == UINT32_MAX ? UINT32_MAX : chip->simds * per_simd / waves;
}

sim_occupancy sim_find_occupancy(const sim_chip *chip, const sim_kernel *kernel, uint32_t threads,
                                 uint32_t lds_bytes) {
    const bool is_half = chip->gfx_major > 9 && !kernel->wave32;
    const uint32_t lanes = chip->gfx_major > 9 && kernel->wave32 ? 32 : 64, parts = is_half ? 2 : 1;
    const uint32_t waves = (threads + lanes - 1) / lanes;
    const uint32_t lds = round_up(lds_bytes, chip->lds_granule);
    uint32_t by_vgprs =
        waves_of(chip->vgprs / parts, kernel->num_vgprs, chip->vgpr_granule / parts);
    const uint32_t by_sgprs = waves_of(chip->sgprs, kernel->num_sgprs, chip->sgpr_granule);
    sim_occupancy out = {
        .groups = UINT32_MAX,
        .by = {[SIM_LIMIT_WAVES] = groups_of(chip, chip->max_waves_per_simd, waves),
               [SIM_LIMIT_VGPRS] = groups_of(chip, by_vgprs, waves),
               [SIM_LIMIT_SGPRS] = groups_of(chip, by_sgprs, waves),
               [SIM_LIMIT_LDS] = lds ? chip->lds_bytes / lds : UINT32_MAX,
               [SIM_LIMIT_GROUPS] = chip->max_groups}};
    for (int i = 0; i < SIM_NUM_LIMITS; i++) {
        out.limit = out.by[i] < out.groups ? (sim_limit)i : out.limit;
        out.groups = min(out.groups, out.by[i]);
    }
    return out;
}
