// SPDX-License-Identifier: Apache-2.0
// Registers: values that were never written, there or in the memory that they were loaded from
// (unwritten.c).
//
// What was never written may be copied and computed with, as compilers do with parts that nobody
// needs; the result is then undefined too, lane by lane. It is a fault where it is stored to memory
// or decides something: an address, a branch, EXEC. Left out, so that nothing right is reported:
// the stack, bits of a register, and data that went through the stack, or from a register that was
// never written through LDS.
#include "check.h"

#include <stdio.h>
#include <string.h>

// ---- undefined values

static hole join(hole a, hole b) {
    return (hole){a.lanes | b.lanes, a.lanes ? a.origin : b.origin};
}

/** Lanes where any register of the operand is undefined; `all`: where all of them are. Of a scalar:
 *  all lanes, if any of its bits is. */
static hole undefined_in(const struct sim_shadow *s, const sim_operand *op, bool all) {
    span span = span_of(op);
    hole out = {};
    uint64_t bits = bits_of(s->undefined, span), every = UINT64_MAX;
    for (unsigned k = 0; bits && k < span.count; k++) {
        hole h = undefined_reg(s, span.first + k);
        h.lanes = h.lanes && op->kind == SIM_OP_SGPR ? UINT64_MAX : h.lanes;
        every &= h.lanes;
        out.lanes |= h.lanes;
        out.origin = h.lanes ? h.origin : out.origin;
    }
    out.lanes &= all ? every : UINT64_MAX;
    return out;
}

/** Lanes write their own bits of a scalar mask; inactive lanes' bits become 0. */
static void write_mask(struct sim_shadow *s, span span, hole h) {
    for (unsigned k = 0; k < span.count; k++) {
        hole part = {k < 2 ? h.lanes >> 32 * k & UINT32_MAX : 0, h.origin};
        write_lanes(s, span.first + k, UINT64_MAX, part);
    }
}

static void write_operand(const sim_wave *w, const sim_inst *inst, const sim_operand *op, hole h) {
    struct sim_shadow *s = w->shadow;
    span span = span_of(op);
    if (!h.lanes && !bits_of(s->undefined, span))
        return;
    if (op->kind == SIM_OP_SGPR && inst->opcode->klass == SIM_VALU) {
        write_mask(s, span, (hole){h.lanes & w->exec, h.origin});
        return;
    }
    for (unsigned k = 0; k < span.count; k++)
        write_lanes(s, span.first + k, sim_lanes_of(w, inst, op), h);
}

/** Whether M0 says which register is the source: it is taken to be defined. */
static bool reads_by_index(const sim_inst *inst) {
    const char *name = inst->opcode->mnemonic;
    return strstr(name, "movrels") || strstr(name, "swaprel");
}

/** The destination that an instruction with an index in M0 writes, as s_movreld and v_movreld
 *  execute it. */
static sim_operand indexed_dst(const sim_wave *w, const sim_inst *inst, unsigned i) {
    sim_operand op = inst->dst[i];
    if (!inst->effects.is_indexed)
        return op;
    const char *name = inst->opcode->mnemonic;
    const bool two = strstr(name, "movrelsd_2") || strstr(name, "swaprel");
    const uint64_t at = (uint64_t)op.reg + (two ? w->m0 >> 16 & 0x3ff : w->m0);
    if (op.kind == SIM_OP_SGPR)
        op.reg = at + op.count <= 106 ? (uint16_t)at : op.reg;
    else if (op.kind == SIM_OP_VGPR)
        op.reg = at < 256 ? (uint16_t)at : 0;
    return op;
}

/** True in almost every case: no source and no destination has a hole. */
static bool all_defined(const struct sim_shadow *s, const sim_inst *inst) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < inst->num_src; i++)
        bits |= bits_of(s->undefined, span_of(&inst->src[i]));
    for (unsigned i = 0; i < inst->num_dst; i++)
        bits |= bits_of(s->undefined, span_of(&inst->dst[i]));
    return !bits && !inst->effects.is_indexed;
}

/** Packed pairs, of which compilers leave one half unused. */
static bool is_by_parts(const sim_inst *inst) {
    const char *name = inst->opcode->mnemonic;
    return !strncmp(name, "v_pk_", 5) || !strcmp(name, "v_mov_b64");
}

static hole all_sources(const sim_wave *w, const sim_inst *inst) {
    const bool by_parts = is_by_parts(inst);
    hole h = {};
    for (unsigned i = 0; i < inst->num_src; i++)
        h = join(h, undefined_in(w->shadow, &inst->src[i], by_parts));
    return h;
}

/** 64-bit sums, products and left shifts: the low half of the result depends on low halves alone.
 *  Compilers compute 32 bits so, with nothing in the upper half. */
static bool is_low_first(const sim_inst *inst) {
    static const char *const names[] = {"v_mad_", "v_lshl_add_u64", "v_lshlrev_b64", "v_mul_u64",
                                        "v_add_nc_u64"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (inst->dst[0].count == 2 && !strncmp(inst->opcode->mnemonic, names[i], strlen(names[i])))
            return true;
    return false;
}

static hole low_sources(const sim_wave *w, const sim_inst *inst) {
    hole h = {};
    for (unsigned i = 0; i < inst->num_src; i++) {
        sim_operand low = inst->src[i];
        low.count = low.count > 1 ? 1 : low.count;
        h = join(h, undefined_in(w->shadow, &low, false));
    }
    return h;
}

static uint32_t scalar_value(const sim_wave *w, const sim_operand *op, unsigned k) {
    if (op->kind == SIM_OP_SGPR)
        return k < op->count ? w->s[op->reg + k] : 0;
    return k ? (uint32_t)(op->value64 >> 32) : (uint32_t)op->value64;
}

/** Undefined bits of a scalar's dword. */
static hole scalar_bits(const struct sim_shadow *s, const sim_operand *op, unsigned k) {
    hole h = op->kind == SIM_OP_SGPR && k < op->count
                 ? undefined_reg(s, SIM_REG_SCALAR + op->reg + k)
                 : (hole){};
    h.lanes &= UINT32_MAX;
    return h;
}

static hole mask_lanes(const struct sim_shadow *s, const sim_operand *op) {
    hole low = scalar_bits(s, op, 0), high = scalar_bits(s, op, 1);
    high.lanes <<= 32;
    return join(low, high);
}

/** v_cndmask: the mask says which source counts. */
static hole selected(const sim_wave *w, const sim_inst *inst) {
    const sim_operand *op = &inst->src[2];
    const uint64_t mask = scalar_value(w, op, 0) | (uint64_t)scalar_value(w, op, 1) << 32;
    hole no = undefined_in(w->shadow, &inst->src[0], false);
    hole yes = undefined_in(w->shadow, &inst->src[1], false);
    no.lanes &= ~mask;
    yes.lanes &= mask;
    return join(join(no, yes), mask_lanes(w->shadow, op));
}

/** A lane that is named, or the first active one. */
static unsigned named_lane(const sim_wave *w, const sim_inst *inst) {
    if (inst->num_src < 2)
        return w->exec ? (unsigned)__builtin_ctzll(w->exec) : 0;
    const sim_operand *op = &inst->src[1];
    return (op->kind == SIM_OP_SGPR ? w->s[op->reg] : op->value) & 63;
}

static void flow_read_lane(const sim_wave *w, const sim_inst *inst) {
    hole h = undefined_in(w->shadow, &inst->src[0], false);
    h.lanes = h.lanes >> named_lane(w, inst) & 1 ? UINT64_MAX : 0;
    span to = span_of(&inst->dst[0]);
    for (unsigned k = 0; k < to.count; k++)
        write_lanes(w->shadow, to.first + k, UINT64_MAX, h);
}

static void flow_write_lane(const sim_wave *w, const sim_inst *inst) {
    hole h = undefined_in(w->shadow, &inst->src[0], false);
    const bool is_part = inst->src[0].kind == SIM_OP_SGPR &&
                         scalar_bits(w->shadow, &inst->src[0], 0).lanes != UINT32_MAX;
    h.lanes = is_part ? 0 : h.lanes; // a mask that is saved: lanes have no bits to remember it by
    write_lanes(w->shadow, inst->dst[0].reg, UINT64_C(1) << named_lane(w, inst), h);
}

static void flow_swap(const sim_wave *w, const sim_inst *inst) {
    hole a = undefined_in(w->shadow, &inst->dst[0], false);
    hole b = undefined_in(w->shadow, &inst->src[0], false);
    const bool lane_by_lane = !strncmp(inst->opcode->mnemonic, "v_swap", 6);
    if (!lane_by_lane) { // undefined only if both are, everywhere
        a.lanes &= b.lanes;
        b.lanes = a.lanes = (a.lanes & w->exec) == w->exec ? a.lanes : 0;
    }
    write_lanes(w->shadow, inst->dst[0].reg, w->exec, b);
    write_lanes(w->shadow, inst->src[0].reg, w->exec, a);
}

/** C goes to D lane by lane. A and B are spread over the tile: they count where a register has no
 *  value at all. */
static void flow_matrix(const sim_wave *w, const sim_inst *inst) {
    struct sim_shadow *s = w->shadow;
    const sim_operand *c = inst->num_src > 2 ? &inst->src[2] : nullptr, *d = &inst->dst[0];
    const uint64_t every = w->wave32 ? UINT32_MAX : UINT64_MAX;
    hole whole = {};
    for (unsigned i = 0; i < 2; i++) {
        span span = span_of(&inst->src[i]);
        for (unsigned k = 0; k < span.count; k++) {
            hole h = undefined_reg(s, span.first + k);
            whole = (h.lanes & every) == every ? h : whole;
        }
    }
    const bool has_c = c && c->kind == SIM_OP_VGPR && c->count == d->count;
    hole parts[32];
    for (unsigned k = 0; k < d->count; k++) // D may overlap C
        parts[k] = has_c ? join(whole, undefined_reg(s, c->reg + k)) : whole;
    for (unsigned k = 0; k < d->count; k++)
        write_lanes(s, d->reg + k, UINT64_MAX, parts[k]);
}

static void flow_vector(const sim_wave *w, const sim_inst *inst) {
    hole h = {};
    switch (inst->effects.flow) {
    case SIM_FLOW_READ_LANE:
        flow_read_lane(w, inst);
        return;
    case SIM_FLOW_WRITE_LANE:
        flow_write_lane(w, inst);
        return;
    case SIM_FLOW_SWAP:
        flow_swap(w, inst);
        return;
    case SIM_FLOW_MATRIX:
        flow_matrix(w, inst);
        return;
    case SIM_FLOW_SELECT:
        h = selected(w, inst);
        break;
    case SIM_FLOW_CROSS: // lanes mix: undefined if every lane is
        h = reads_by_index(inst) ? (hole){} : all_sources(w, inst);
        h.lanes = (h.lanes & w->exec) == w->exec ? h.lanes : 0;
        break;
    default:
        h = all_sources(w, inst);
    }
    hole low = is_low_first(inst) ? low_sources(w, inst) : h;
    for (unsigned i = 0; i < inst->num_dst; i++) {
        sim_operand dst = indexed_dst(w, inst, i);
        write_operand(w, inst, &dst, h);
    }
    if (low.lanes != h.lanes)
        write_lanes(w->shadow, inst->dst[0].reg, w->exec, low);
}

/** What depends on what was never written is told once: from then on it counts as written. So
 *  whoever reports looks again, and ends. */
static void forgive(struct sim_shadow *s, unsigned origin) {
    for (unsigned reg = 0; reg < SIM_NUM_REGS; reg++)
        if (s->origin[reg] == origin)
            set_bit(s->undefined, reg, false);
}

static bool report_undefined(sim_wave *w, const sim_inst *inst, hole h, int lane, const char *use) {
    char name[16];
    const bool on = h.origin >= SIM_NUM_REGS
                        ? sim_report_unwritten(w, inst, h, lane, use)
                        : sim_fault_report(w, inst, lane, SIM_FAULT_UNINIT, nullptr,
                                           "%s depends on %s, which was never written", use,
                                           sim_reg_name(h.origin, name));
    if (on)
        forgive(w->shadow, h.origin);
    return on;
}

// ---- what undefined values must not decide

static bool writes_exec(const sim_inst *inst) {
    const sim_operand *d = &inst->dst[0];
    return strstr(inst->opcode->mnemonic, "exec") ||
           (inst->num_dst && d->kind == SIM_OP_SGPR && d->reg >= 126);
}

/** Instructions that leave SCC alone, by how they begin. */
static bool keeps_scc(const sim_inst *inst) {
    static const char *const names[] = {"s_mov", "s_cmov", "s_cselect", "s_mul", "s_pack"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(inst->opcode->mnemonic, names[i], strlen(names[i])))
            return true;
    return false;
}

/** Undefined bits of a op b, where the other's value may decide a bit. */
typedef uint64_t bit_rule(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub);

static uint64_t and_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return (ua & ub) | (ua & b) | (ub & a);
}
static uint64_t or_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return (ua & ub) | (ua & ~b) | (ub & ~a);
}
static uint64_t andn2_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return and_bits(a, ua, ~b, ub);
}
static uint64_t orn2_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return or_bits(a, ua, ~b, ub);
}
static uint64_t andn1_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return and_bits(~a, ua, b, ub);
}
static uint64_t orn1_bits(uint32_t a, uint64_t ua, uint32_t b, uint64_t ub) {
    return or_bits(~a, ua, b, ub);
}
static uint64_t any_bits(uint32_t, uint64_t ua, uint32_t, uint64_t ub) {
    return ua | ub;
}

/** The rule of an instruction that works bit by bit; null for others. Lane masks are built with
 *  these. */
static bit_rule *rule_of(const sim_inst *inst) {
    static const struct {
        const char *name;
        bit_rule *rule;
    } rules[] = {
        {"s_andn2_", andn2_bits},    {"s_and_not1_", andn2_bits}, {"s_andn1_", andn1_bits},
        {"s_and_not0_", andn1_bits}, {"s_and_", and_bits},        {"s_orn2_", orn2_bits},
        {"s_or_not1_", orn2_bits},   {"s_orn1_", orn1_bits},      {"s_or_not0_", orn1_bits},
        {"s_or_", or_bits},          {"s_nand_", and_bits},       {"s_nor_", or_bits},
        {"s_xor_", any_bits},        {"s_xnor_", any_bits},       {"s_mov_", any_bits},
        {"s_not_", any_bits},        {"s_cmov_", any_bits}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strncmp(inst->opcode->mnemonic, rules[i].name, strlen(rules[i].name)))
            return rules[i].rule;
    return nullptr;
}

static const sim_operand exec_operand = {.kind = SIM_OP_SGPR, .reg = 126, .count = 2};

/** A bitwise instruction's result; the saveexec forms take EXEC as their second source and write
 *  it. */
static bool flow_bits(sim_wave *w, const sim_inst *inst, bit_rule *rule) {
    static const sim_operand nothing;
    struct sim_shadow *s = w->shadow;
    const bool saves = strstr(inst->opcode->mnemonic, "exec");
    const sim_operand *a = &inst->src[0], *b = saves ? &exec_operand : &inst->src[1];
    b = saves || inst->num_src > 1 ? b : &nothing;
    hole out[2] = {};
    for (unsigned k = 0; k < 2; k++) {
        hole ha = scalar_bits(s, a, k), hb = scalar_bits(s, b, k);
        out[k] = join(ha, hb);
        out[k].lanes =
            rule(scalar_value(w, a, k), ha.lanes, scalar_value(w, b, k), hb.lanes) & UINT32_MAX;
        if (out[k].lanes && writes_exec(inst))
            return report_undefined(w, inst, out[k], -1, "EXEC") && flow_bits(w, inst, rule);
    }
    for (unsigned k = 0; k < inst->dst[0].count && inst->num_dst; k++) {
        hole h = saves ? (hole){} : out[k & 1];
        write_lanes(s, SIM_REG_SCALAR + inst->dst[0].reg + k, UINT64_MAX, h);
    }
    return true;
}

/** Comparisons set SCC. A mask of which some bits are known may well be compared with 0. */
static void flow_compare(const sim_wave *w, const sim_inst *inst) {
    hole h = {};
    for (unsigned i = 0; i < inst->num_src; i++) {
        hole low = scalar_bits(w->shadow, &inst->src[i], 0);
        h = low.lanes == UINT32_MAX ? low : h;
    }
    write_lanes(w->shadow, SIM_REG_SCC, UINT64_MAX, h);
}

static bool flow_scalar(sim_wave *w, const sim_inst *inst) {
    struct sim_shadow *s = w->shadow;
    const bool is_clear = all_defined(s, inst), compares = !inst->num_dst;
    if (!keeps_scc(inst) && (s->undefined[SIM_REG_SCC / 64] >> SIM_REG_SCC % 64 & 1))
        write_lanes(s, SIM_REG_SCC, UINT64_MAX, (hole){});
    if (is_clear)
        return true;
    bit_rule *rule = rule_of(inst);
    if (rule)
        return flow_bits(w, inst, rule);
    if (compares) {
        flow_compare(w, inst);
        return true;
    }
    const bool selects = strstr(inst->opcode->mnemonic, "s_cselect");
    hole h = reads_by_index(inst) ? (hole){}
             : selects            ? undefined_in(s, &inst->src[w->scc ? 0 : 1], false)
                                  : all_sources(w, inst);
    if (h.lanes && writes_exec(inst))
        return report_undefined(w, inst, h, -1, "EXEC") && flow_scalar(w, inst);
    for (unsigned i = 0; i < inst->num_dst; i++) {
        sim_operand dst = indexed_dst(w, inst, i);
        write_operand(w, inst, &dst, h);
    }
    return true;
}

/** A branch on VCC is decided if a bit that is known is set. */
static hole undecided_vcc(const sim_wave *w) {
    static const sim_operand vcc = {.kind = SIM_OP_SGPR, .reg = 106, .count = 2};
    hole h = mask_lanes(w->shadow, &vcc);
    h.lanes = w->vcc & ~h.lanes ? 0 : h.lanes;
    return h;
}

static bool flow_branch(sim_wave *w, const sim_inst *inst) {
    const struct sim_shadow *s = w->shadow;
    const bool by_vcc = strstr(inst->opcode->mnemonic, "branch_vcc");
    const bool by_scc = strstr(inst->opcode->mnemonic, "branch_scc");
    hole h = by_vcc   ? undecided_vcc(w)
             : by_scc ? undefined_reg(s, SIM_REG_SCC)
                      : all_sources(w, inst);
    if (h.lanes) {
        const char *use = by_vcc || by_scc ? "a branch" : "control flow";
        return report_undefined(w, inst, h, -1, use) && flow_branch(w, inst);
    }
    for (unsigned i = 0; i < inst->num_dst; i++)
        write_operand(w, inst, &inst->dst[i], h);
    return true;
}

/** Sources that are data rather than address, as bits. */
static unsigned data_sources(const sim_inst *inst) {
    const unsigned access = inst->effects.access;
    if (inst->effects.stream == SIM_STREAM_LDS)
        return access == SIM_ACCESS_NONE ? 7 : 6;
    if (access != SIM_ACCESS_STORE && access != SIM_ACCESS_ATOMIC)
        return 0;
    return is_buffer(inst) || inst->opcode->klass == SIM_SMEM ? 1 : 2;
}

/** Undefined data may go to the stack, where callers save what they do not know, and to LDS. */
static bool may_store_undefined(const sim_wave *w, const sim_inst *inst) {
    return inst->opcode->klass == SIM_LDS_OP || inst->opcode->mnemonic[0] == 's' ||
           (is_buffer(inst) && sim_is_scratch_buffer(&w->s[inst->src[inst->num_src - 2].reg])) ||
           (is_flat(inst) &&
            (sim_reaches(w, inst, w->private_base) || sim_reaches(w, inst, w->shared_base)));
}

static bool check_memory_operands(sim_wave *w, const sim_inst *inst) {
    const unsigned data = data_sources(inst);
    for (unsigned i = 0; i < inst->num_src; i++) {
        const sim_operand *op = &inst->src[i];
        hole h = undefined_in(w->shadow, op, false);
        h.lanes &= inst->opcode->klass == SIM_SMEM ? UINT64_MAX : w->exec;
        const bool is_data = data >> i & 1;
        if (h.lanes && !(is_data && may_store_undefined(w, inst))) {
            const int lane = op->kind == SIM_OP_VGPR ? sim_first_lane(h.lanes) : -1;
            return report_undefined(w, inst, h, lane,
                                    is_data ? "the stored value" : "the address") &&
                   check_memory_operands(w, inst);
        }
    }
    for (unsigned i = 0; i < inst->num_dst; i++)
        write_operand(w, inst, &inst->dst[i], (hole){});
    return true;
}

static bool check_undefined(sim_wave *w, const sim_inst *inst) {
    if (inst->opcode->klass == SIM_FLOW)
        return flow_branch(w, inst);
    if (inst->opcode->klass == SIM_SALU)
        return flow_scalar(w, inst);
    if (all_defined(w->shadow, inst))
        return true;
    if (inst->effects.access != SIM_ACCESS_NONE)
        return check_memory_operands(w, inst);
    flow_vector(w, inst);
    return true;
}

/** The halves of a dual instruction read all sources before either writes. */
static bool check_dual(sim_wave *w, const sim_inst *inst) {
    const sim_inst *first = inst->saves_row ? inst->second : inst;
    const sim_inst *second = inst->saves_row ? inst : inst->second;
    return check_undefined(w, first) && check_undefined(w, second);
}

bool sim_check_registers(sim_wave *w, const sim_inst *inst) {
    const uint32_t check = w->group->dispatch->check;
    if (inst->effects.is_wait) {
        sim_check_arrivals(w, &inst->effects);
        return true;
    }
    if ((check & SIM_CHECK_WAIT) &&
        (!sim_check_waits(w, inst) || (inst->second && !sim_check_waits(w, inst->second)))) {
        return false;
    }
    if ((check & SIM_CHECK_UNINIT) &&
        !(inst->second ? check_dual(w, inst) : check_undefined(w, inst))) {
        return false;
    }
    if (inst->effects.stream != SIM_NUM_STREAMS) {
        w->shadow->lds_parts = w->shadow->memory_parts = 0;
        sim_check_issue(w, inst);
    }
    return true;
}
