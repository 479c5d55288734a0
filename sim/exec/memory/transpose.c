// SPDX-License-Identifier: Apache-2.0
// Transposing loads of gfx12: each lane reads its own 8 or 16 bytes, then elements change lanes.
// Source: "RDNA4" ISA, VGLOBAL.
#include "access.h"

enum {
    TILE_ROW_BYTES = 8
}; // bytes that 16-bit and 8-bit forms have in common: eight elements or eight bytes

/** Returns the source lane of element `e` of `lane` for 16-bit elements: each eight lanes transpose
 *  8 x 8 of them. Source: a published measurement on gfx1201 ("received(L, j) = R(8 (L / 8) + j)[L
 *  % 8]"). */
static unsigned source_of_half(unsigned lane, unsigned e) {
    return lane / 8 * 8 + e;
}

/** Returns the source lane of byte `e` of `lane`: each sixteen lanes transpose 8 x 16 of them;
 *  lanes 0 to 3 read the left half of rows 0 to 3, lanes 4 to 7 the right half, lanes 8 to 15 rows
 *  4 to 7. Source: Mesa's lowering of the instruction, which published results on gfx1201 agree
 *  with. */
static unsigned source_of_byte(unsigned lane, unsigned e) {
    return lane / 16 * 16 + e / 4 * 8 + lane / 8 % 2 * 4 + e % 4;
}

static void load_transposed(sim_wave *w, const sim_inst *inst, unsigned bytes,
                            unsigned (*source)(unsigned, unsigned)) {
    sim_access at;
    uint8_t data[SIM_LANES][16] = {}, moved[SIM_LANES][16];
    if (!w->wave32) {
        sim_fault_raise(w, inst, -1,
                        "transposing loads in waves of 64 lanes: the lanes' order is "
                        "not published, so they are not executed");
        return;
    }
    if (!sim_resolve(w, inst, 0, TILE_ROW_BYTES * bytes, false, &at))
        return;
    for (uint64_t left = at.mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        memcpy(data[lane], at.host[lane], TILE_ROW_BYTES * bytes);
    }
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned e = 0; e < 8; e++)
            memcpy(moved[lane] + e * bytes, data[source(lane, e)] + lane % 8 * bytes, bytes);
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        for (unsigned k = 0; k < 2 * bytes; k++)
            memcpy(&w->v[inst->dst[0].reg + k][lane], moved[lane] + 4 * k, 4);
    }
}

static void exec_global_load_tr_b128(sim_wave *w, const sim_inst *inst) {
    load_transposed(w, inst, 2, source_of_half);
}
static void exec_global_load_tr_b64(sim_wave *w, const sim_inst *inst) {
    load_transposed(w, inst, 1, source_of_byte);
}

// clang-format off
#define LINE(name) \
    SIM_ROW("global_" #name, exec_global_##name, GFX12, SIM_VMEM, 'm', "i:", .access = SIM_ACCESS_LOAD, \
            .addressing = SIM_GLOBAL, .is = SIM_TRANSPOSES)
static const sim_opcode opcodes[] = {LINE(load_tr_b128) LINE(load_tr_b64)};
// clang-format on
SIM_TABLE(sim_ops_transpose, opcodes);
