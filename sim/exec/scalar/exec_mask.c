// SPDX-License-Identifier: Apache-2.0
// Combinations of EXEC with a source: SAVEEXEC stores the old EXEC, WREXEC the new one. In waves of
// 32 lanes, the upper half is not written. not0 inverts the source, not1 EXEC. Source: "CDNA3" and
// "RDNA3" ISA, SOP1.
#include "scalar.h"

static void set_exec32(sim_wave *w, uint32_t value) {
    w->exec = (w->exec & ~(uint64_t)UINT32_MAX) | flag(w, value);
}

static void set_exec64(sim_wave *w, uint64_t value) {
    w->exec = flag64(w, value);
}

// clang-format off
#define NOT0(X) X(and_not0, ~a & b, AND_NOT0) X(or_not0, ~a | b, OR_NOT0)
#define WREXEC(X) X(and_not0, ~a & b, AND_NOT0) X(and_not1, a & ~b, AND_NOT1)

#define WRAP_SAVEEXEC(name, meaning, logic) \
    static void exec_s_##name##_saveexec_b32(sim_wave *w, const sim_inst *inst) { \
        uint32_t a = sim_read32(w, &inst->src[0]), b = (uint32_t)w->exec; \
        sim_write32(w, &inst->dst[0], b); \
        set_exec32(w, meaning); \
    } \
    static void exec_s_##name##_saveexec_b64(sim_wave *w, const sim_inst *inst) { \
        uint64_t a = sim_read64(w, &inst->src[0]), b = w->exec; \
        sim_write64(w, &inst->dst[0], b); \
        set_exec64(w, meaning); \
    }
#define WRAP_WREXEC(name, meaning, logic) \
    static void exec_s_##name##_wrexec_b32(sim_wave *w, const sim_inst *inst) { \
        uint32_t a = sim_read32(w, &inst->src[0]), b = (uint32_t)w->exec; \
        set_exec32(w, meaning); \
        sim_write32(w, &inst->dst[0], (uint32_t)w->exec); \
    } \
    static void exec_s_##name##_wrexec_b64(sim_wave *w, const sim_inst *inst) { \
        uint64_t a = sim_read64(w, &inst->src[0]), b = w->exec; \
        set_exec64(w, meaning); \
        sim_write64(w, &inst->dst[0], w->exec); \
    }
LOGIC(WRAP_SAVEEXEC)
NOT0(WRAP_SAVEEXEC)
WREXEC(WRAP_WREXEC)

#define SETS(logic_) .is = SIM_WRITES_EXEC, BITS(logic_)
#define LINE_SAVEEXEC(name, meaning, logic) \
    SALU_ROW(s_##name##_saveexec_b32, GFX11P, "i:i", SETS(logic)) SALU_LINE(s_##name##_saveexec_b64, "q:q", SETS(logic))
#define LINE_WREXEC(name, meaning, logic) \
    SALU_ROW(s_##name##_wrexec_b32, GFX11P, "i:i", SETS(logic)) SALU_ROW(s_##name##_wrexec_b64, GFX11P, "q:q", SETS(logic))
#define LINE_GFX9(name, of, logic) SALU_ALIAS(name, of, GFX9, "q:q", SETS(logic))

static const sim_opcode opcodes[] = {LOGIC(LINE_SAVEEXEC) NOT0(LINE_SAVEEXEC) WREXEC(LINE_WREXEC)
    LINE_GFX9(s_andn1_saveexec_b64, s_and_not0_saveexec_b64, AND_NOT0)
    LINE_GFX9(s_andn2_saveexec_b64, s_and_not1_saveexec_b64, AND_NOT1)
    LINE_GFX9(s_orn1_saveexec_b64, s_or_not0_saveexec_b64, OR_NOT0)
    LINE_GFX9(s_orn2_saveexec_b64, s_or_not1_saveexec_b64, OR_NOT1)
    LINE_GFX9(s_andn1_wrexec_b64, s_and_not0_wrexec_b64, AND_NOT0)
    LINE_GFX9(s_andn2_wrexec_b64, s_and_not1_wrexec_b64, AND_NOT1)};
// clang-format on
SIM_TABLE(sim_ops_salu_exec, opcodes);
