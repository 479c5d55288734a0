// SPDX-License-Identifier: Apache-2.0
// DPP controls: which lane each lane reads, which lanes are written. They are computed once, when
// decoding.
#include "isa.h"

/** Returns the lane that `lane` reads, or -1 if there is none. Source: "CDNA3" ISA, DPP_CTRL. */
static int dpp_lane(unsigned ctrl, unsigned lane) {
    const unsigned row = lane & ~15u, pos = lane & 15, n = ctrl & 15;
    if (ctrl < 0x100)
        return (int)((lane & ~3u) | (ctrl >> 2 * (lane & 3) & 3));
    switch (ctrl & 0x1f0) {
    case 0x100: // row_shl
        return pos + n < 16 ? (int)(lane + n) : -1;
    case 0x110: // row_shr
        return pos >= n ? (int)(lane - n) : -1;
    case 0x120: // row_ror
        return (int)(row | ((pos - n) & 15));
    case 0x150: // row_newbcast, row_share
        return (int)(row | n);
    case 0x160: // row_xmask
        return (int)(row | (pos ^ n));
    }
    switch (ctrl) {
    case 0x130: // wave_shl
        return lane < 63 ? (int)lane + 1 : -1;
    case 0x134: // wave_rol
        return (int)((lane + 1) & 63);
    case 0x138: // wave_shr
        return (int)lane - 1;
    case 0x13c: // wave_ror
        return (int)((lane - 1) & 63);
    case 0x140: // row_mirror
        return (int)(row | (15 - pos));
    case 0x141: // row_half_mirror
        return (int)((lane & ~7u) | (7 - (lane & 7)));
    case 0x142: // row_bcast:15
        return (int)row - 1;
    default: // row_bcast:31
        return lane < 32 ? -1 : 31;
    }
}

/** Prepares DPP8, which names for each lane of eight the lane of these eight that it reads, and
 *  writes all lanes. */
static void prepare_dpp8(sim_inst *inst) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        inst->dpp_lane[lane] = (uint8_t)((lane & ~7u) | (inst->dpp8 >> 3 * (lane & 7) & 7));
    inst->dpp_exists = inst->dpp_writes = UINT64_MAX;
    inst->flags |= SIM_DPP_BOUND_CTRL;
}

static bool is_in_rows(const sim_inst *inst) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const bool exists = inst->dpp_exists >> lane & 1,
                   first_exists = inst->dpp_exists >> lane % 16 & 1;
        const bool same = inst->dpp_lane[lane] == (lane & ~15u) + inst->dpp_lane[lane % 16];
        if (exists != first_exists || (exists && !same) || inst->dpp_lane[lane % 16] > 15)
            return false;
    }
    return true;
}

static void prepare_dpp16(sim_inst *inst) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const int from = dpp_lane(inst->dpp_ctrl, lane);
        inst->dpp_lane[lane] = (uint8_t)(from >= 0 ? from : 0);
        inst->dpp_exists |= (uint64_t)(from >= 0) << lane;
        // a row is sixteen lanes, a bank four
        bool on =
            (inst->dpp_row_mask >> lane / 16 & 1) && (inst->dpp_bank_mask >> (lane / 4 & 3) & 1);
        inst->dpp_writes |= (uint64_t)on << lane;
    }
}

void sim_prepare_dpp(sim_inst *inst) {
    if (!(inst->flags & SIM_DPP)) { // as if each lane read itself
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            inst->dpp_lane[lane] = (uint8_t)lane;
        inst->dpp_exists = inst->dpp_writes = UINT64_MAX;
    } else if (inst->flags & SIM_DPP8) {
        prepare_dpp8(inst);
    } else {
        prepare_dpp16(inst);
    }
    inst->dpp_in_rows = is_in_rows(inst);
}
