// SPDX-License-Identifier: Apache-2.0
// Two rare modes of gfx9 that change what an instruction does: VSKIP, where vector instructions are
// not issued, and GPR indexing, where M0 displaces vector registers. Source: "CDNA3" ISA,
// s_setvskip, s_set_gpr_idx_on.
#include "isa/inst.h"
#include "wave.h"

static bool is_vector(const sim_inst *inst) {
    const uint8_t klass = inst->traits.klass;
    return klass == SIM_VALU || klass == SIM_MFMA || klass == SIM_LDS_OP || klass == SIM_VMEM;
}

/** Displaces a register. One that leaves the register file becomes register 0. */
static void displace(sim_operand *op, uint32_t index) {
    if (op->kind == SIM_OP_VGPR) {
        const uint32_t reg = op->reg + index;
        op->reg = reg < 256 ? (uint16_t)reg : 0;
    }
}

/** Displaces an instruction's operands. M0[7:0] is the index; M0[15:12] say which operands it
 *  displaces: src0, src1, src2, destination. */
static void displace_all(const sim_wave *w, sim_inst *inst) {
    const uint32_t index = w->m0 & 255, which = w->m0 >> 12;
    for (unsigned i = 0; i < 3; i++)
        displace(&inst->src[i], which >> i & 1 ? index : 0);
    displace(&inst->dst[0], which >> 3 & 1 ? index : 0);
}

bool sim_is_issued(const sim_wave *w, sim_inst *inst) {
    if ((w->mode & SIM_MODE_VSKIP) && is_vector(inst))
        return false;
    if ((w->mode & SIM_MODE_GPR_IDX_EN) && inst->traits.klass == SIM_VALU)
        displace_all(w, inst);
    return true;
}

void sim_exec_special(sim_wave *w, const sim_inst *inst) {
    sim_inst copy = *inst;
    if (sim_is_issued(w, &copy))
        inst->exec(w, &copy);
}
