// SPDX-License-Identifier: Apache-2.0
// Wait states of gfx9: how many instructions, or states of s_nop, must lie between two instructions
// where the hardware does not look whether the first one's result is there. Compilers count them;
// assembly must.
//
// Each wave has a clock of wait states, and for each register the last instruction that left
// something unfinished there. The clock counts as compilers do, one for an instruction, and the
// time that a matrix instruction waits for the one before it, as they share a unit. Longer stalls
// count as one, so what is reported is what the numbers of the documents forbid, even if a wait for
// memory between may save it. Sources: "CDNA3" ISA, "Manually inserted wait states"; the numbers of
// gfx90a and gfx950 are those that LLVM keeps to.
#include "check.h"

#include <stdio.h>
#include <string.h>

enum { // sim_hazard.traits
    IS_VECTOR = 1 << 0,
    IS_MEMORY = 1 << 1, // vector memory or LDS
    IS_VMEM = 1 << 2,
    IS_TRANS = 1 << 3,
    IS_DPP = 1 << 4,
    READS_LANE = 1 << 5,
    WRITES_LANE = 1 << 6,
    SELECTS_LANE = 1 << 7, // its second source may be a lane's number
    IS_DIV_FMAS = 1 << 8,
    WRITES_EXEC = 1 << 9,
    WRITES_HALF = 1 << 10, // of its register
    IS_WIDE_STORE = 1 << 11,
    READS_M0 = 1 << 12,
    MOVES_ACC = 1 << 13, // no vector instruction to those that come after
    IS_DOT = 1 << 14,
    FORGETS = 1 << 15, // a call or return
};

enum { MATRIX_NONE, MATRIX_XDL, MATRIX_F32, MATRIX_F64 };

static bool has(const sim_inst *inst, const char *part) {
    return strstr(inst->opcode->mnemonic, part);
}

static bool begins(const sim_inst *inst, const char *part) {
    return !strncmp(inst->opcode->mnemonic, part, strlen(part));
}

static bool ends(const sim_inst *inst, const char *part) {
    const size_t length = strlen(inst->opcode->mnemonic), want = strlen(part);
    return length >= want && !strcmp(inst->opcode->mnemonic + length - want, part);
}

// ---- decoding

/** Passes of four cycles that a matrix instruction takes: by the rows of its blocks, its depth and
 *  its types. */
static uint8_t passes_of(const sim_inst *inst, sim_arch arch, uint8_t matrix) {
    const char *size = strstr(inst->opcode->mnemonic, matrix == MATRIX_F64 ? "64_" : "32_");
    unsigned m = 0, n = 0, k = 0;
    if (!size || sscanf(size + 3, "%ux%ux%u", &m, &n, &k) != 3)
        return 0;
    if (matrix == MATRIX_F64)
        return m == 4 ? 4 : arch == SIM_GFX950 ? 16 : 8;
    if (m == 4)
        return 2;
    const bool by_bytes = has(inst, "f8f6f4") && (inst->cbsz < 2 || inst->blgp < 2);
    const bool is_shallow = m == 16 ? k < 8 : k <= 4 && !ends(inst, "xf32");
    const bool is_half_rate = arch == SIM_GFX90A || matrix == MATRIX_F32 || by_bytes ||
                              (is_shallow && !begins(inst, "v_smfmac"));
    return (uint8_t)(m / 4 * (is_half_rate ? 2 : 1));
}

static uint8_t matrix_of(const sim_inst *inst, sim_arch arch) {
    if (inst->opcode->klass != SIM_MFMA)
        return MATRIX_NONE;
    const bool is_f32 = ends(inst, "f32") && !ends(inst, "xf32") && arch != SIM_GFX90A;
    return begins(inst, "v_mfma_f64") ? MATRIX_F64 : is_f32 ? MATRIX_F32 : MATRIX_XDL;
}

static uint16_t vector_traits(const sim_inst *inst) {
    static const struct {
        const char *begin;
        uint16_t traits;
    } names[] = {{"v_exp_", IS_TRANS},
                 {"v_log_", IS_TRANS},
                 {"v_rcp_", IS_TRANS},
                 {"v_rsq_", IS_TRANS},
                 {"v_sqrt_", IS_TRANS},
                 {"v_sin_", IS_TRANS},
                 {"v_cos_", IS_TRANS},
                 {"v_readlane_", READS_LANE | SELECTS_LANE},
                 {"v_readfirstlane_", READS_LANE},
                 {"v_writelane_", WRITES_LANE | SELECTS_LANE},
                 {"v_div_fmas_", IS_DIV_FMAS},
                 {"v_cmpx_", WRITES_EXEC},
                 {"v_accvgpr_", MOVES_ACC},
                 {"v_dot", IS_DOT}};
    uint16_t traits = IS_VECTOR;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        traits |= begins(inst, names[i].begin) ? names[i].traits : 0;
    traits |= inst->flags & SIM_DPP ? IS_DPP : 0;
    traits |= (inst->flags & SIM_SDWA) && inst->sdwa_dst_sel != 6 ? WRITES_HALF : 0;
    return traits;
}

/** Bytes of a store's data beyond 8 are read later; a buffer's, where its offset is no register. */
static bool is_wide_store(const sim_inst *inst) {
    const bool is_buffer = inst->opcode->mnemonic[0] == 'b' || inst->opcode->mnemonic[0] == 't';
    return has(inst, "_store") && inst->src[is_buffer ? 0 : 1].count > 2 &&
           !(is_buffer && inst->src[inst->num_src - 1].kind == SIM_OP_SGPR);
}

static uint16_t traits_of(const sim_inst *inst) {
    const bool reads_m0 = (inst->flags & SIM_LDS) || has(inst, "load_lds") ||
                          begins(inst, "s_movrel") || begins(inst, "s_sendmsg");
    const uint16_t traits = reads_m0 ? READS_M0 : 0;
    switch (inst->opcode->klass) {
    case SIM_VALU:
        return traits | vector_traits(inst);
    case SIM_VMEM:
        return traits | IS_MEMORY | IS_VMEM | (is_wide_store(inst) ? IS_WIDE_STORE : 0);
    case SIM_LDS_OP:
        return traits | IS_MEMORY;
    default:
        return begins(inst, "s_setpc") || begins(inst, "s_swappc") || begins(inst, "s_call")
                   ? traits | FORGETS
                   : traits;
    }
}

sim_hazard sim_find_hazard(const sim_inst *inst, sim_arch arch) {
    if (arch > SIM_GFX950)
        return (sim_hazard){};
    sim_hazard h = {.states = 1, .traits = traits_of(inst), .matrix = matrix_of(inst, arch)};
    h.passes = h.matrix ? passes_of(inst, arch, h.matrix) : 0;
    h.matrix = h.passes ? h.matrix : MATRIX_NONE;
    if (!strcmp(inst->opcode->mnemonic, "s_nop"))
        h.states = (uint8_t)((inst->word[0] & 15) + 1);
    return h;
}

// ---- how many wait states are needed

/** What an instruction does with a register. */
typedef enum use {
    USE_C_SAME, // the sum goes on in the registers of the last one
    USE_C,
    USE_A_B,
    USE_VECTOR, // read or written
    USE_MEMORY,
} use;

static uint32_t after_f64(const sim_inst *by, const sim_inst *inst, use u, sim_arch arch) {
    const bool is_small = by->effects.hazard.passes == 4, is_slow = arch == SIM_GFX950 && !is_small;
    const bool same_size = inst->effects.hazard.passes == by->effects.hazard.passes;
    switch (u) {
    case USE_C_SAME:
        return is_small && same_size && inst->effects.hazard.matrix == MATRIX_F64 ? 4 : 0;
    case USE_C:
        return inst->effects.hazard.matrix != MATRIX_F64 ? 0 : is_small ? 4 : is_slow ? 17 : 9;
    case USE_MEMORY:
        return is_small ? 9 : 18;
    default:
        return is_small ? 6 : is_slow ? 19 : 11;
    }
}

/** Between a matrix instruction and another use of what it writes. LLVM looks no further back than
 *  19. */
static uint32_t after_matrix(const sim_inst *by, const sim_inst *inst, use u, sim_arch arch) {
    enum { MOST = 19 };
    const sim_hazard *h = &by->effects.hazard;
    uint32_t need;
    const bool is_slow = arch == SIM_GFX950 && h->matrix == MATRIX_XDL && h->passes != 2;
    const bool is_old = arch == SIM_GFX90A;
    if (h->matrix == MATRIX_F64)
        return after_f64(by, inst, u, arch);
    switch (u) {
    case USE_C_SAME:
        return h->passes == 2 && !is_old ? 2 : 0;
    case USE_C:
        if (is_old)
            return inst->effects.hazard.matrix == MATRIX_F64 ? h->passes + 1u : h->passes;
        return h->matrix == MATRIX_XDL                     ? h->passes + 1u + is_slow
               : inst->effects.hazard.matrix == MATRIX_XDL ? 0
                                                           : h->passes;
    default:
        need = h->passes + (h->matrix == MATRIX_XDL ? 3u + is_slow : 2u);
        return need < MOST ? need : MOST;
    }
}

static use use_of(const sim_inst *inst, unsigned source, const sim_inst *by) {
    const uint16_t traits = inst->effects.hazard.traits;
    if (!inst->effects.hazard.matrix)
        return traits & IS_MEMORY ? USE_MEMORY : USE_VECTOR;
    const unsigned c = begins(inst, "v_smfmac") ? 3 : 2;
    const sim_operand *op = &inst->src[source], *d = &by->dst[0];
    const bool is_same = op->reg == d->reg && op->count == d->count;
    return source != c ? USE_A_B : is_same ? USE_C_SAME : USE_C;
}

/** Between a vector instruction that writes a vector register and one that reads it. */
static uint32_t after_vector(const sim_inst *by, const sim_inst *inst, sim_arch arch) {
    const uint16_t wrote = by->effects.hazard.traits, reads = inst->effects.hazard.traits;
    if (inst->effects.hazard.matrix)
        return wrote & (MOVES_ACC | IS_DOT) ? 0 : 2;
    if (reads & IS_DPP)
        return 2;
    const bool is_forwarded = !(wrote & WRITES_HALF) &&
                              (!(wrote & IS_TRANS) || (reads & IS_TRANS)) && !(reads & READS_LANE);
    return arch != SIM_GFX90A && (reads & IS_VECTOR) && !is_forwarded ? 1 : 0;
}

/** Between a vector instruction that writes a scalar register and one whose source it is. */
static uint32_t after_mask(const sim_inst *inst, unsigned source, sim_arch arch) {
    const uint16_t reads = inst->effects.hazard.traits;
    if ((reads & SELECTS_LANE) && source == 1)
        return 4;
    if (reads & IS_VMEM)
        return 5;
    return (reads & IS_VECTOR) && arch != SIM_GFX90A ? 2 : 0;
}

static uint32_t after_exec(const sim_inst *inst, sim_arch arch) {
    const uint16_t reads = inst->effects.hazard.traits;
    const bool by_lane = reads & (READS_LANE | WRITES_LANE);
    return reads & IS_DPP                                                   ? 5
           : inst->effects.hazard.matrix || (by_lane && arch != SIM_GFX90A) ? 4
                                                                            : 0;
}

// ---- the wave's past

static const char *deed_name(unsigned deed) {
    static const char *const names[SIM_NUM_DEEDS] = {"wrote it", "wrote it", "took it as C",
                                                     "stored it", "wrote it"};
    return names[deed];
}

/** Whether `need` wait states have passed since the last deed on a register; reports where not. */
static bool has_waited(sim_wave *w, const sim_inst *inst, unsigned deed, unsigned reg,
                       uint32_t need, bool is_write) {
    const struct sim_past *past = &w->shadow->past;
    const uint32_t at = past->at[deed][reg], states = past->clock - at - 1;
    if (!at || states >= need)
        return true;
    const sim_inst *by = past->by[deed][reg];
    sim_fault_about about = {.other_pc = by->pc};
    char name[16], place[SIM_PLACE_BYTES];
    sim_place_text(w->group->dispatch, by->pc, place);
    sim_fault_report(w, inst, -1, SIM_FAULT_WAIT, &about,
                     "missing wait states: %s is %s %u after %s at %s %s: %u must lie between, as "
                     "s_nop or other instructions",
                     reg == SIM_REG_EXEC ? "exec" : sim_reg_name(reg, name),
                     is_write ? "written" : "read", states, by->opcode->mnemonic, place,
                     deed_name(deed), need);
    return false;
}

static bool check_source(sim_wave *w, const sim_inst *inst, unsigned i, sim_arch arch) {
    const struct sim_past *past = &w->shadow->past;
    span span = span_of(&inst->src[i]);
    for (unsigned reg = span.first; reg < span.first + span.count; reg++) {
        const bool is_vector = reg < SIM_REG_SCALAR;
        const sim_inst *matrix =
            is_vector && past->at[SIM_DEED_MATRIX][reg] ? past->by[SIM_DEED_MATRIX][reg] : nullptr;
        if (matrix &&
            !has_waited(w, inst, SIM_DEED_MATRIX, reg,
                        after_matrix(matrix, inst, use_of(inst, i, matrix), arch), false)) {
            return false;
        }
        if (!past->at[SIM_DEED_VECTOR][reg])
            continue;
        const uint32_t need = is_vector ? after_vector(past->by[SIM_DEED_VECTOR][reg], inst, arch)
                                        : after_mask(inst, i, arch);
        if (!has_waited(w, inst, SIM_DEED_VECTOR, reg, need, false))
            return false;
    }
    return true;
}

/** A vector instruction overwrites what a matrix instruction or a store may still read, or the
 *  former write. */
static bool check_result(sim_wave *w, const sim_inst *inst, unsigned reg, sim_arch arch) {
    const struct sim_past *past = &w->shadow->past;
    const sim_inst *matrix = past->by[SIM_DEED_MATRIX][reg], *c = past->by[SIM_DEED_C][reg];
    return (!past->at[SIM_DEED_MATRIX][reg] ||
            has_waited(w, inst, SIM_DEED_MATRIX, reg, after_matrix(matrix, inst, USE_VECTOR, arch),
                       true)) &&
           (!past->at[SIM_DEED_C][reg] ||
            has_waited(w, inst, SIM_DEED_C, reg, c->effects.hazard.passes - 1u, true)) &&
           has_waited(w, inst, SIM_DEED_STORE, reg, arch == SIM_GFX90A ? 1 : 2, true);
}

static bool check_special(sim_wave *w, const sim_inst *inst, sim_arch arch) {
    enum { VCC = SIM_REG_SCALAR + 106, M0 = SIM_REG_SCALAR + 124 };
    const uint16_t traits = inst->effects.hazard.traits;
    return has_waited(w, inst, SIM_DEED_VECTOR, SIM_REG_EXEC, after_exec(inst, arch), false) &&
           (!(traits & IS_DIV_FMAS) || has_waited(w, inst, SIM_DEED_VECTOR, VCC, 4, false)) &&
           (!(traits & READS_M0) || has_waited(w, inst, SIM_DEED_SCALAR, M0, 1, false));
}

static bool check(sim_wave *w, const sim_inst *inst) {
    sim_arch arch = w->group->dispatch->chip->arch;
    for (unsigned i = 0; i < inst->num_src; i++)
        if (!check_source(w, inst, i, arch))
            return false;
    const bool writes = inst->effects.hazard.traits & IS_VECTOR;
    for (unsigned i = 0; writes && i < inst->num_dst; i++) {
        span span = span_of(&inst->dst[i]);
        for (unsigned reg = span.first; reg < span.first + span.count && reg < SIM_REG_SCALAR;
             reg++) {
            if (!check_result(w, inst, reg, arch))
                return false;
        }
    }
    return check_special(w, inst, arch);
}

static void note_span(struct sim_past *past, unsigned deed, span span, const sim_inst *inst) {
    for (unsigned reg = span.first; reg < span.first + span.count; reg++) {
        past->at[deed][reg] = inst ? past->clock : 0;
        past->by[deed][reg] = inst;
    }
}

static void note_matrix(struct sim_past *past, const sim_inst *inst) {
    const uint8_t matrix = inst->effects.hazard.matrix;
    const sim_operand *c = &inst->src[begins(inst, "v_smfmac") ? 3 : 2];
    if (matrix == MATRIX_XDL && c->kind == SIM_OP_VGPR) // of the others it is read at once
        note_span(past, SIM_DEED_C, span_of(c), inst);
    note_span(past, SIM_DEED_MATRIX, span_of(&inst->dst[0]), inst);
    note_span(past, SIM_DEED_VECTOR, span_of(&inst->dst[0]), nullptr);
    past->unit_free = past->clock + inst->effects.hazard.passes;
}

static void note(struct sim_past *past, const sim_inst *inst) {
    const sim_hazard *h = &inst->effects.hazard;
    if (h->matrix) {
        note_matrix(past, inst);
        return;
    }
    for (unsigned i = 0; i < inst->num_dst; i++) {
        span span = span_of(&inst->dst[i]);
        const bool is_vector = h->traits & IS_VECTOR;
        note_span(past, SIM_DEED_VECTOR, span, is_vector ? inst : nullptr);
        if (is_vector && inst->dst[i].kind == SIM_OP_VGPR)
            note_span(past, SIM_DEED_MATRIX, span, nullptr);
        else if (inst->opcode->klass == SIM_SALU)
            note_span(past, SIM_DEED_SCALAR, span, inst);
    }
    if (h->traits & WRITES_EXEC)
        note_span(past, SIM_DEED_VECTOR, (span){SIM_REG_EXEC, 1}, inst);
    if (h->traits & IS_WIDE_STORE)
        note_span(past, SIM_DEED_STORE, span_of(&inst->src[is_buffer(inst) ? 0 : 1]), inst);
}

void sim_check_hazards(sim_wave *w, const sim_inst *inst) {
    struct sim_past *past = &w->shadow->past;
    const sim_hazard *h = &inst->effects.hazard;
    if (h->traits & FORGETS)
        memset(past->at, 0, sizeof past->at);
    if (h->matrix && (int32_t)(past->unit_free - past->clock) > 0)
        past->clock = past->unit_free;
    check(w, inst);
    note(past, inst);
    past->clock += h->states;
}

void sim_hazards_begin(sim_wave *w) {
    struct sim_past *past = &w->shadow->past;
    memset(past->at, 0, sizeof past->at);
    past->clock = past->unit_free = 1;
}
