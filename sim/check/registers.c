// SPDX-License-Identifier: Apache-2.0
// Registers: values that were never written, in the register or in the memory from which it was
// loaded (unwritten.c).
//
// An undefined value may be copied and computed with, as compilers do with parts that nobody needs;
// the result is then undefined too, lane by lane. Storing an undefined value to memory is a fault,
// and so is letting it decide something: an address, a branch, EXEC. These are left out, so that no
// right program is reported: the stack, bits of a register, and data that went through the stack,
// or from a register that was never written through LDS.
#include "check.h"

#include <stdio.h>
#include <string.h>

// ---- undefined values

static hole join(hole a, hole b) {
    return (hole){a.lanes | b.lanes, a.lanes ? a.origin : b.origin};
}

/** Returns the lanes where any register of the operand is undefined; `all`: where all registers
 *  are. A scalar gives all lanes if any of its bits is undefined. */
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

/** Notes that lanes write their bits of a scalar mask; inactive lanes' bits become 0. */
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
    if (op->kind == SIM_OP_SGPR && inst->traits.klass == SIM_VALU) {
        write_mask(s, span, (hole){h.lanes & w->exec, h.origin});
        return;
    }
    for (unsigned k = 0; k < span.count; k++)
        write_lanes(s, span.first + k, sim_lanes_of(w, inst, op), h);
}

/** Returns the destination that an instruction with an index in M0 writes, as s_movreld and
 *  v_movreld do. */
static sim_operand indexed_dst(const sim_wave *w, const sim_inst *inst, unsigned i) {
    sim_operand op = inst->dst[i];
    if (!(inst->traits.is & SIM_INDEXES_DST))
        return op;
    const bool is_apart = inst->traits.is & SIM_INDEXES_BOTH;
    const uint64_t at = (uint64_t)op.reg + (is_apart ? w->m0 >> 16 & 0x3ff : w->m0);
    if (op.kind == SIM_OP_SGPR)
        op.reg = at + op.count <= 106 ? (uint16_t)at : op.reg;
    else if (op.kind == SIM_OP_VGPR)
        op.reg = at < 256 ? (uint16_t)at : 0;
    return op;
}

/** Returns whether no source and no destination has a hole, which is so in almost every case. */
static bool all_defined(const struct sim_shadow *s, const sim_inst *inst) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < inst->num_src; i++)
        bits |= bits_of(s->undefined, span_of(&inst->src[i]));
    for (unsigned i = 0; i < inst->num_dst; i++)
        bits |= bits_of(s->undefined, span_of(&inst->dst[i]));
    return !bits && !(inst->traits.is & SIM_INDEXES_DST);
}

static hole all_sources(const sim_wave *w, const sim_inst *inst) {
    const bool by_parts = inst->traits.is & (SIM_IS_PACKED | SIM_COPIES_PAIR);
    hole h = {};
    for (unsigned i = 0; i < inst->num_src; i++)
        h = join(h, undefined_in(w->shadow, &inst->src[i], by_parts));
    return h;
}

/** Returns the holes of a 64-bit sum, product or left shift. Compilers compute 32 bits with these
 *  instructions, and leave the upper half unwritten. */
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

/** Returns the undefined bits of a scalar's dword. */
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

/** Returns the holes of v_cndmask's result: the mask says which source counts. */
static hole selected(const sim_wave *w, const sim_inst *inst) {
    const sim_operand *op = &inst->src[2];
    const uint64_t mask = scalar_value(w, op, 0) | (uint64_t)scalar_value(w, op, 1) << 32;
    hole no = undefined_in(w->shadow, &inst->src[0], false);
    hole yes = undefined_in(w->shadow, &inst->src[1], false);
    no.lanes &= ~mask;
    yes.lanes &= mask;
    return join(join(no, yes), mask_lanes(w->shadow, op));
}

/** Returns the lane that the instruction names, or the first active one. */
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
    h.lanes = is_part ? 0 : h.lanes; // a saved mask; lanes have no bits to note its holes
    write_lanes(w->shadow, inst->dst[0].reg, UINT64_C(1) << named_lane(w, inst), h);
}

static void flow_swap(const sim_wave *w, const sim_inst *inst) {
    hole a = undefined_in(w->shadow, &inst->dst[0], false);
    hole b = undefined_in(w->shadow, &inst->src[0], false);
    if (inst->traits.flow == SIM_FLOW_SWAP_ROWS) { // undefined only if both are, everywhere
        a.lanes &= b.lanes;
        b.lanes = a.lanes = (a.lanes & w->exec) == w->exec ? a.lanes : 0;
    }
    write_lanes(w->shadow, inst->dst[0].reg, w->exec, b);
    write_lanes(w->shadow, inst->src[0].reg, w->exec, a);
}

/** Follows a matrix instruction. C goes to D lane by lane. A and B are spread over the tile, so
 *  they count only where a register has no value at all. */
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
    switch (inst->traits.flow) {
    case SIM_FLOW_READ_LANE:
        flow_read_lane(w, inst);
        return;
    case SIM_FLOW_WRITE_LANE:
        flow_write_lane(w, inst);
        return;
    case SIM_FLOW_SWAP:
    case SIM_FLOW_SWAP_ROWS:
        flow_swap(w, inst);
        return;
    case SIM_FLOW_MATRIX:
        flow_matrix(w, inst);
        return;
    case SIM_FLOW_SELECT:
        h = selected(w, inst);
        break;
    case SIM_FLOW_CROSS: // lanes mix: undefined if every lane is
        h = inst->traits.is & SIM_INDEXES_SRC ? (hole){} : all_sources(w, inst);
        h.lanes = (h.lanes & w->exec) == w->exec ? h.lanes : 0;
        break;
    default:
        h = all_sources(w, inst);
    }
    hole low = inst->traits.is & SIM_IS_LOW_FIRST ? low_sources(w, inst) : h;
    for (unsigned i = 0; i < inst->num_dst; i++) {
        sim_operand dst = indexed_dst(w, inst, i);
        write_operand(w, inst, &dst, h);
    }
    if (low.lanes != h.lanes)
        write_lanes(w->shadow, inst->dst[0].reg, w->exec, low);
}

/** Makes all values of one origin count as written, because a fault is reported once for each
 *  origin. A reporter looks again after this, and ends. */
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

// ---- decisions that undefined values must not make

static bool writes_exec(const sim_inst *inst) {
    const sim_operand *d = &inst->dst[0];
    return (inst->traits.is & SIM_WRITES_EXEC) ||
           (inst->num_dst && d->kind == SIM_OP_SGPR && d->reg >= 126);
}

/** Returns the undefined bits of a op b; a defined bit of one may decide the result's bit
 *  alone. */
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

/** The rules of instructions that work bit by bit, with which lane masks are built; null for other
 *  instructions. */
static bit_rule *const bit_rules[] = {
    [SIM_LOGIC_NONE] = nullptr,        [SIM_LOGIC_ANY] = any_bits,
    [SIM_LOGIC_AND] = and_bits,        [SIM_LOGIC_OR] = or_bits,
    [SIM_LOGIC_AND_NOT1] = andn2_bits, [SIM_LOGIC_OR_NOT1] = orn2_bits,
    [SIM_LOGIC_AND_NOT0] = andn1_bits, [SIM_LOGIC_OR_NOT0] = orn1_bits};

static const sim_operand exec_operand = {.kind = SIM_OP_SGPR, .reg = 126, .count = 2};

/** Follows a bitwise instruction. The saveexec forms take EXEC as their second source, and write
 *  it. */
static bool flow_bits(sim_wave *w, const sim_inst *inst, bit_rule *rule) {
    static const sim_operand nothing;
    struct sim_shadow *s = w->shadow;
    const bool saves = inst->traits.is & SIM_WRITES_EXEC;
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

/** Follows a comparison, which sets SCC. Comparing a mask of which some bits are known with 0 is no
 *  fault. */
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
    if (!(inst->traits.is & SIM_KEEPS_SCC) &&
        (s->undefined[SIM_REG_SCC / 64] >> SIM_REG_SCC % 64 & 1))
        write_lanes(s, SIM_REG_SCC, UINT64_MAX, (hole){});
    if (is_clear)
        return true;
    bit_rule *rule = bit_rules[inst->traits.logic];
    if (rule)
        return flow_bits(w, inst, rule);
    if (compares) {
        flow_compare(w, inst);
        return true;
    }
    hole h = inst->traits.is & SIM_INDEXES_SRC ? (hole){}
             : inst->traits.flow == SIM_FLOW_SELECT
                 ? undefined_in(s, &inst->src[w->scc ? 0 : 1], false)
                 : all_sources(w, inst);
    if (h.lanes && writes_exec(inst))
        return report_undefined(w, inst, h, -1, "EXEC") && flow_scalar(w, inst);
    for (unsigned i = 0; i < inst->num_dst; i++) {
        sim_operand dst = indexed_dst(w, inst, i);
        write_operand(w, inst, &dst, h);
    }
    return true;
}

/** Returns the holes of VCC that leave a branch undecided: a defined bit that is set decides
 *  it. */
static hole undecided_vcc(const sim_wave *w) {
    static const sim_operand vcc = {.kind = SIM_OP_SGPR, .reg = 106, .count = 2};
    hole h = mask_lanes(w->shadow, &vcc);
    h.lanes = w->vcc & ~h.lanes ? 0 : h.lanes;
    return h;
}

static bool flow_branch(sim_wave *w, const sim_inst *inst) {
    const struct sim_shadow *s = w->shadow;
    const bool by_vcc = inst->traits.is & SIM_BY_VCC, by_scc = inst->traits.is & SIM_BY_SCC;
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

/** Returns as bits the sources that are data rather than address. */
static unsigned data_sources(const sim_inst *inst) {
    const sim_kind_of_access access = inst->traits.access;
    if (inst->traits.stream == SIM_STREAM_LDS)
        return access == SIM_ACCESS_NONE ? 7 : 6;
    if (access != SIM_ACCESS_STORE && access != SIM_ACCESS_ATOMIC)
        return 0;
    return sim_is_buffer(&inst->traits) || inst->traits.klass == SIM_SMEM ? 1 : 2;
}

/** Returns whether undefined data may be stored: to the stack, where functions save registers that
 *  they do not know, and to LDS. */
static bool may_store_undefined(const sim_wave *w, const sim_inst *inst) {
    const sim_traits *t = &inst->traits;
    return t->klass == SIM_LDS_OP || t->klass == SIM_SMEM || t->addressing == SIM_SCRATCH ||
           (sim_is_buffer(t) && sim_is_scratch_buffer(&w->s[inst->src[inst->num_src - 2].reg])) ||
           (t->addressing == SIM_FLAT &&
            (sim_reaches(w, inst, w->private_base) || sim_reaches(w, inst, w->shared_base)));
}

static bool check_memory_operands(sim_wave *w, const sim_inst *inst) {
    const unsigned data = data_sources(inst);
    for (unsigned i = 0; i < inst->num_src; i++) {
        const sim_operand *op = &inst->src[i];
        hole h = undefined_in(w->shadow, op, false);
        h.lanes &= inst->traits.klass == SIM_SMEM ? UINT64_MAX : w->exec;
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
    if (inst->traits.klass == SIM_FLOW)
        return flow_branch(w, inst);
    if (inst->traits.klass == SIM_SALU)
        return flow_scalar(w, inst);
    if (all_defined(w->shadow, inst))
        return true;
    if (inst->traits.access != SIM_ACCESS_NONE)
        return check_memory_operands(w, inst);
    flow_vector(w, inst);
    return true;
}

/** Checks a dual instruction, whose halves read all sources before either writes. */
static bool check_dual(sim_wave *w, const sim_inst *inst) {
    const sim_inst *first = inst->saves_row ? inst->second : inst;
    const sim_inst *second = inst->saves_row ? inst : inst->second;
    return check_undefined(w, first) && check_undefined(w, second);
}

bool sim_check_registers(sim_wave *w, const sim_inst *inst) {
    const uint32_t check = w->group->dispatch->check;
    if (inst->traits.is & SIM_IS_WAIT) {
        sim_check_arrivals(w, &inst->traits);
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
    if (inst->traits.stream != SIM_NUM_STREAMS) {
        w->shadow->lds_parts = w->shadow->memory_parts = 0;
        sim_check_issue(w, inst);
    }
    return true;
}
