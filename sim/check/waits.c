// SPDX-License-Identifier: Apache-2.0
// Waits: results used before the s_waitcnt that proves that they have arrived.
//
// Memory operations of a stream are numbered; a wait proves the oldest ones complete, and a
// register may be used once the operation that writes it is among them. SMEM may complete in any
// order: only a wait for all proves it. Stores read their data when they are issued on all chips
// here, so that the data's registers may be written at once.
//
// A result comes as late as it may. The simulator writes a result when the instruction is issued,
// and keeps the register's old value. If the register is used too early, it gets the old value
// back, and the wait that proves the result puts the result there. So a kernel goes on with the
// stale value, as it may on the chip. Nothing is moved while nothing is wrong.
#include "../isa/decode.h"
#include "check.h"

#include <stdio.h>
#include <string.h>

const char *sim_reg_name(unsigned reg, char text[16]) {
    static const char *const named[] = {"vcc_lo", "vcc_hi"};
    const unsigned scalar = reg - SIM_REG_SCALAR;
    if (reg < 256)
        snprintf(text, 16, "v%u", reg);
    else if (reg < SIM_REG_SCALAR)
        snprintf(text, 16, "a%u", reg - 256);
    else if (scalar < 106)
        snprintf(text, 16, "s%u", scalar);
    else if (scalar < 108)
        return named[scalar - 106];
    else
        return reg == SIM_REG_SCC ? "scc" : "a system register";
    return text;
}

/** Returns the lanes that an instruction reads and writes of an operand. */
uint64_t sim_lanes_of(const sim_wave *w, const sim_inst *inst, const sim_operand *op) {
    const bool all = op->kind == SIM_OP_SGPR || inst->traits.flow == SIM_FLOW_MATRIX;
    return all ? UINT64_MAX : w->exec;
}

int sim_first_lane(uint64_t lanes) {
    return lanes && lanes != UINT64_MAX ? __builtin_ctzll(lanes) : lanes ? 0 : -1;
}

// ---- reports

static const char *counter_of(const sim_wave *w, unsigned stream) {
    static const char *const names[3][SIM_NUM_STREAMS] = {
        {"vmcnt", "vmcnt", "lgkmcnt", "lgkmcnt"},
        {"vmcnt", "vscnt", "lgkmcnt", "lgkmcnt"},
        {"loadcnt", "storecnt", "dscnt", "kmcnt"}};
    const uint32_t major = w->group->dispatch->chip->gfx_major;
    return names[major >= 12 ? 2 : major > 9][stream];
}

static const char *mnemonic_at(sim_wave *w, uint32_t offset) {
    const sim_dispatch *d = w->group->dispatch;
    return sim_mnemonic(sim_fetch(w, d->text, sim_check_pc(w, offset)));
}

static bool report_pending(sim_wave *w, const sim_inst *inst, unsigned reg, uint64_t lanes,
                           bool is_write) {
    const struct sim_shadow *s = w->shadow;
    const sim_result *result = &s->results[reg];
    char name[16];
    const uint64_t left =
        result->stream == SIM_STREAM_SMEM ? 0 : s->issued[result->stream] - result->seq;
    sim_fault_about about = {.other_pc = sim_check_pc(w, result->pc)};
    char place[SIM_PLACE_BYTES];
    sim_place_text(w->group->dispatch, about.other_pc, place);
    return sim_fault_report(
        w, inst, reg < SIM_REG_SCALAR ? sim_first_lane(lanes) : -1, SIM_FAULT_WAIT, &about,
        "missing wait: %s is %s before the result of %s at %s is there: it needs a "
        "wait for %s(%llu) between",
        sim_reg_name(reg, name), is_write ? "written" : "read", mnemonic_at(w, result->pc), place,
        counter_of(w, result->stream), (unsigned long long)left);
}

/** Returns whether two loads complete in order, as those of one stream into one register do. */
static bool is_ordered(const sim_inst *inst, const sim_result *result, bool is_write) {
    return is_write && inst->traits.stream == result->stream && result->stream != SIM_STREAM_SMEM;
}

/** Exchanges lanes of a register with their kept values. */
static void exchange(sim_wave *w, unsigned reg, uint64_t lanes) {
    struct sim_shadow *s = w->shadow;
    const bool is_scalar = reg >= SIM_REG_SCALAR;
    uint32_t *now = is_scalar ? &w->s[reg - SIM_REG_SCALAR] : w->v[reg];
    uint32_t *kept = is_scalar ? &s->kept_scalars[reg - SIM_REG_SCALAR] : s->kept[reg];
    for (uint64_t left = is_scalar ? 1 : lanes; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t value = now[lane];
        now[lane] = kept[lane];
        kept[lane] = value;
    }
}

static void set_late(struct sim_shadow *s, unsigned reg, bool on) {
    const bool was = s->late[reg / 64] >> reg % 64 & 1;
    set_bit(s->late, reg, on);
    s->num_late += (uint32_t)on - (uint32_t)was;
}

[[gnu::noinline]] static bool check_pending(sim_wave *w, const sim_inst *inst,
                                            const sim_operand *op, bool is_write) {
    struct sim_shadow *s = w->shadow;
    span span = span_of(op);
    for (uint64_t left = bits_of(s->pending, span); left; left &= left - 1) {
        const unsigned reg = span.first + (unsigned)__builtin_ctzll(left);
        const sim_result *result = &s->results[reg];
        const uint64_t lanes = sim_lanes_of(w, inst, op) & result->lanes;
        if (result->seq <= s->done[result->stream]) {
            set_bit(s->pending, reg, false);
        } else if (lanes && !is_ordered(inst, result, is_write)) {
            if (!report_pending(w, inst, reg, lanes, is_write))
                return false;
            set_bit(s->pending, reg, false);
            exchange(w, reg, result->lanes);
            set_late(s, reg, true);
        }
    }
    return true;
}

/** Returns whether a register of the operand may wait for its result; few do. */
static inline bool may_be_pending(const sim_wave *w, const sim_operand *op) {
    return bits_of(w->shadow->pending, span_of(op));
}

bool sim_check_waits(sim_wave *w, const sim_inst *inst) {
    for (unsigned i = 0; i < inst->num_src; i++)
        if (may_be_pending(w, &inst->src[i]) && !check_pending(w, inst, &inst->src[i], false))
            return false;
    for (unsigned i = 0; i < inst->num_dst; i++)
        if (may_be_pending(w, &inst->dst[i]) && !check_pending(w, inst, &inst->dst[i], true))
            return false;
    return true;
}

/** Puts results that have arrived into their registers. */
static void deliver(sim_wave *w) {
    struct sim_shadow *s = w->shadow;
    for (unsigned reg = 0; reg < SIM_NUM_REGS; reg++) {
        const sim_result *result = &s->results[reg];
        const bool is_late = s->late[reg / 64] >> reg % 64 & 1;
        if (is_late && result->seq <= s->done[result->stream]) {
            exchange(w, reg, result->lanes);
            set_late(s, reg, false);
        }
    }
}

void sim_check_arrivals(sim_wave *w, const sim_traits *wait) {
    struct sim_shadow *s = w->shadow;
    s->has_stored &=
        wait->left[SIM_STREAM_LOAD] == SIM_LEFT_ANY && wait->left[SIM_STREAM_STORE] == SIM_LEFT_ANY;
    for (unsigned k = 0; k < SIM_NUM_STREAMS; k++) {
        const uint64_t left = wait->left[k];
        if (left == SIM_LEFT_ANY || left >= s->issued[k] || (k == SIM_STREAM_SMEM && left))
            continue;
        const uint64_t done = s->issued[k] - left;
        s->done[k] = done > s->done[k] ? done : s->done[k];
    }
    if (s->num_late) [[clang::unlikely]]
        deliver(w);
    if (w->group->shadow->num_late) [[clang::unlikely]]
        sim_check_arrivals_in_lds(w);
}

bool sim_reaches(const sim_wave *w, const sim_inst *inst, uint64_t aperture) {
    const uint32_t *high = w->v[inst->src[0].reg + 1u];
    for (uint64_t left = w->exec; left; left &= left - 1)
        if (high[__builtin_ctzll(left)] == aperture >> 32)
            return true;
    return false;
}

/** Returns the operand that a memory operation returns its result in. Buffer and scalar atomics
 *  return it in their data. */
static const sim_operand *result_of(const sim_inst *inst) {
    if (inst->num_dst)
        return &inst->dst[0];
    const bool returns = inst->traits.is & SIM_RETURNS;
    return returns && (sim_is_buffer(&inst->traits) || inst->traits.klass == SIM_SMEM)
               ? &inst->src[0]
               : nullptr;
}

/** Keeps what a result will overwrite. Lanes that already wait for another result keep the value
 *  from before that result. */
static void keep(sim_wave *w, unsigned reg, uint64_t waiting) {
    struct sim_shadow *s = w->shadow;
    if (reg >= SIM_REG_SCALAR) {
        uint32_t *kept = &s->kept_scalars[reg - SIM_REG_SCALAR];
        *kept = waiting ? *kept : w->s[reg - SIM_REG_SCALAR];
    } else if (!waiting) {
        memcpy(s->kept[reg], w->v[reg], sizeof s->kept[reg]);
    } else {
        for (uint64_t left = ~waiting; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            s->kept[reg][lane] = w->v[reg][lane];
        }
    }
}

static void expect(sim_wave *w, unsigned reg, sim_result result) {
    struct sim_shadow *s = w->shadow;
    const sim_result *before = &s->results[reg];
    const bool is_pending = s->pending[reg / 64] >> reg % 64 & 1;
    const uint64_t waiting =
        is_pending && before->seq > s->done[before->stream] ? before->lanes : 0;
    keep(w, reg, waiting);
    result.lanes |= is_pending && before->stream == result.stream ? before->lanes : 0;
    s->results[reg] = result;
    set_bit(s->pending, reg, true);
    set_late(s, reg, false);
}

/** Returns the stream of an instruction. A flat one is of memory's, or of LDS's if it goes there,
 *  and counts in the other one as well: in order from RDNA on. On CDNA it may leave the other
 *  counter early, so that nothing is proved by its count. */
static unsigned stream_of(sim_wave *w, const sim_inst *inst) {
    const unsigned stream = inst->traits.stream;
    if (inst->traits.addressing != SIM_FLAT)
        return stream;
    const bool is_lds = sim_reaches(w, inst, w->shared_base);
    if (w->group->dispatch->chip->gfx_major > 9)
        w->shadow->issued[is_lds ? stream : SIM_STREAM_LDS]++;
    return is_lds ? SIM_STREAM_LDS : stream;
}

void sim_check_issue(sim_wave *w, const sim_inst *inst) {
    const unsigned stream = stream_of(w, inst);
    sim_result result = {.seq = ++w->shadow->issued[stream],
                         .pc = sim_check_offset(w, inst->pc),
                         .stream = (uint8_t)stream};
    const sim_operand *op = result_of(inst);
    result.lanes = op ? sim_lanes_of(w, inst, op) : 0;
    span span = result.lanes ? span_of(op) : (struct span){};
    for (unsigned reg = span.first; reg < span.first + span.count; reg++)
        expect(w, reg, result);
}
