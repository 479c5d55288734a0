// SPDX-License-Identifier: Apache-2.0
// What a SIMD does when it is visited: of its waves, those with the highest priority and then the
// oldest first, each that can issues its next instruction, at most one of each category.
//
// Where a chip says so, an instruction waits for the results that it needs.
//
// Source: ROCm Compute Profiler's page on the pipeline; GCN's documents. An instruction that no
// unit executes, such as s_waitcnt, takes its wave's turn but no category's.
#include "../isa/decode.h"
#include "machine.h"
#include "timeline.h"

typedef enum category { VECTOR, MEMORY, LDS, SCALAR, BRANCH, MESSAGE, NO_CATEGORY } category;

/** A visit while it is handled. */
typedef struct visit {
    sim_machine *m;
    sim_group_unit *unit;
    sim_compute_unit *compute_unit; // of the SIMD
    sim_simd *simd;
    uint32_t index; // of the SIMD
    uint64_t tick;
    uint32_t used; // bit i: category i has issued
    bool has_issued;
    sim_spent issued;             // of the first instruction that issued
    uint64_t issued_at, waits_at; // their places in sim_machine.insts
    uint64_t next;                // the earliest tick at which a wave that did not issue may
    sim_spent waits;              // what that wave waits for
} visit;

static category category_of(const sim_traits *t) {
    switch (t->unit) {
    case SIM_UNIT_VALU:
    case SIM_UNIT_TRANS:
    case SIM_UNIT_MATRIX:
        return VECTOR;
    case SIM_UNIT_VMEM:
    case SIM_UNIT_CACHE:
        return MEMORY;
    case SIM_UNIT_LDS:
        return LDS;
    case SIM_UNIT_SALU:
    case SIM_UNIT_SMEM:
        return SCALAR;
    case SIM_UNIT_BRANCH:
        return BRANCH;
    case SIM_UNIT_MESSAGE:
        return MESSAGE;
    default:
        return NO_CATEGORY;
    }
}

static sim_spent spent_by(const sim_traits *t) {
    static const sim_spent by_category[] = {
        [VECTOR] = SIM_SPENT_VALU,      [MEMORY] = SIM_SPENT_VMEM,  [LDS] = SIM_SPENT_LDS,
        [SCALAR] = SIM_SPENT_SCALAR,    [BRANCH] = SIM_SPENT_OTHER, [MESSAGE] = SIM_SPENT_OTHER,
        [NO_CATEGORY] = SIM_SPENT_OTHER};
    return t->unit == SIM_UNIT_MATRIX ? SIM_SPENT_MATRIX : by_category[category_of(t)];
}

/** Returns the place of a wave's next instruction in sim_machine.insts. */
static uint64_t place_of(const sim_machine *m, const sim_timed_wave *w) {
    const uint64_t at = (w->wave->pc - m->dispatch->text->start) / 4;
    return at < m->num_insts ? at : m->num_insts;
}

/** Notes that a wave may go on at a tick. Returns false. */
static bool put_off(visit *v, const sim_timed_wave *w, uint64_t tick, sim_spent reason) {
    if (v->m->timeline)
        sim_timeline_turn(v->m->timeline, w, reason, v->tick);
    if (tick < v->next || v->next == SIM_NEVER) {
        v->next = tick;
        v->waits = reason;
        v->waits_at = reason == SIM_SPENT_IDLE ? v->m->num_insts : place_of(v->m, w);
    }
    return false;
}

// ---- before an instruction issues

/** Returns when a wait is over: when the last operation that may not be left is complete. */
static uint64_t end_of_wait(const sim_timed_wave *w, const sim_traits *t, sim_spent *reason) {
    uint64_t end = 0;
    for (unsigned stream = 0; stream < SIM_NUM_STREAMS; stream++) {
        const uint8_t left = t->left[stream];
        if (left == SIM_LEFT_ANY || left >= w->issued[stream] || left >= SIM_RING)
            continue;
        const bool in_order = stream != SIM_STREAM_SMEM;
        const uint64_t done =
            in_order ? w->done[stream][(w->issued[stream] - 1 - left) % SIM_RING] : w->last[stream];
        if (done > end) {
            end = done;
            *reason = stream <= SIM_STREAM_STORE ? SIM_SPENT_WAIT_VMEM : SIM_SPENT_WAIT_LDS;
        }
    }
    return end;
}

/** Returns whether a vector instruction does not run beside a matrix instruction: packed ones with
 *  two registers as their result, and dot products. */
static bool runs_alone(const sim_inst *inst) {
    const bool is_pair = inst->traits.is & SIM_IS_PACKED && inst->dst[0].count == 2;
    return is_pair || inst->traits.is & SIM_IS_DOT;
}

/** Returns from which tick on the unit takes the instruction. */
static uint64_t opens(const visit *v, const sim_timed_wave *w, const sim_inst *inst,
                      sim_spent *reason) {
    const sim_traits *t = &inst->traits;
    const sim_simd *s = v->simd;
    switch (t->unit) {
    case SIM_UNIT_MATRIX:
        *reason = s->matrix_free > s->lanes_free ? SIM_SPENT_WAIT_MATRIX : SIM_SPENT_WAIT_VALU;
        return sim_later(s->matrix_free, s->lanes_free);
    case SIM_UNIT_VALU:
        *reason = SIM_SPENT_WAIT_VALU;
        if (!runs_alone(inst) || s->packed_free <= s->lanes_free)
            return s->lanes_free;
        *reason = SIM_SPENT_WAIT_MATRIX;
        return s->packed_free;
    case SIM_UNIT_TRANS:
        *reason = SIM_SPENT_WAIT_VALU;
        return sim_later(s->lanes_free, s->trans_free);
    case SIM_UNIT_VMEM:
        *reason = SIM_SPENT_WAIT_QUEUE;
        return sim_vector_open(v->compute_unit);
    case SIM_UNIT_LDS:
        *reason = SIM_SPENT_WAIT_QUEUE;
        return sim_lds_open(v->unit, v->index);
    default:
        return t->is & SIM_IS_WAIT ? end_of_wait(w, t, reason) : 0;
    }
}

/** Returns when the wave has the line of the instruction cache that holds its next instruction. */
static uint64_t fetch(const visit *v, sim_timed_wave *w, const sim_inst *inst) {
    const uint64_t line = (inst->pc + inst->bytes - 1) / v->m->timing->fetch_bytes;
    if (line == w->fetched)
        return v->tick;
    w->fetched = line;
    return sim_time_fetch(v->compute_unit, line * v->m->timing->fetch_bytes, v->tick);
}

/** Returns whether the wave has to wait for a result that its next instruction needs. */
static bool needs_result(const visit *v, sim_timed_wave *w, const sim_inst *inst) {
    w->ready = sim_results_ready(w->results, inst);
    w->reason = v->simd->matrix_free > v->tick ? SIM_SPENT_WAIT_MATRIX : SIM_SPENT_WAIT_VALU;
    return w->ready > v->tick;
}

// ---- after it has issued

/** Returns how many times 16 bytes a lane has of a matrix instruction's factor. */
static uint64_t quads_of(const sim_operand *factor) {
    return factor->count / 4;
}

static void occupy_matrix(const visit *v, const sim_inst *inst) {
    const sim_timing *time = v->m->timing;
    const sim_traits *t = &inst->traits;
    const uint64_t busy = sim_ticks((uint64_t)t->matrix.passes * time->pass_cycles);
    const uint64_t a = quads_of(&inst->src[0]), b = quads_of(&inst->src[1]);
    const uint64_t shadow =
        sim_ticks(time->matrix_shadow_cycles + (a > b ? a : b) * time->matrix_source_cycles);
    v->m->busy[SIM_PART_MATRIX] += busy;
    v->m->matrix_ops += sim_matrix_ops(&t->matrix);
    v->simd->matrix_free = v->tick + busy;
    v->simd->packed_free = v->simd->matrix_free + sim_ticks(time->packed_wait_cycles) +
                           sim_ticks(a ? time->matrix_source_cycles : 0);
    const uint64_t lanes = t->matrix.unit == SIM_MATRIX_XDL && shadow < busy ? shadow : busy;
    v->m->busy[SIM_PART_LANES] += lanes;
    v->simd->lanes_free = v->tick + lanes;
}

static void occupy_lanes(const visit *v, const sim_traits *t) {
    const sim_timing *time = v->m->timing;
    const bool is_trans = t->unit == SIM_UNIT_TRANS;
    const uint32_t cycles = is_trans ? time->trans_shadow_cycles : time->valu_cycles;
    const uint64_t busy = sim_ticks((uint64_t)cycles * v->m->wave_parts);
    v->simd->lanes_free = v->tick + busy;
    v->m->busy[SIM_PART_LANES] += busy;
    if (is_trans)
        v->simd->trans_free = v->tick + sim_ticks((uint64_t)time->trans_cycles * v->m->wave_parts);
}

/** Notes when the instruction's result is there: a matrix instruction's when its unit is free. */
static void note_result(const visit *v, sim_timed_wave *w, const sim_inst *inst) {
    const sim_timing *time = v->m->timing;
    const uint64_t later = sim_ticks((v->m->wave_parts - 1) * (uint64_t)time->valu_cycles);
    uint64_t done = v->tick + later;
    switch (inst->traits.unit) {
    case SIM_UNIT_MATRIX:
        done = sim_later(v->simd->matrix_free, v->tick + sim_ticks(time->valu_result_cycles));
        break;
    case SIM_UNIT_VALU:
        done += sim_ticks(time->valu_result_cycles);
        break;
    case SIM_UNIT_TRANS:
        done += sim_ticks(time->trans_result_cycles);
        break;
    case SIM_UNIT_SALU:
        done = v->tick + sim_ticks(time->scalar_result_cycles);
        break;
    default:
        return;
    }
    sim_results_note(w->results, inst, done);
}

/** Starts the operation that the instruction leaves behind. */
static void occupy(const visit *v, sim_timed_wave *w, const sim_facts *facts) {
    const sim_traits *t = &facts->inst->traits;
    const bool is_memory = t->unit == SIM_UNIT_VMEM, is_flat = t->addressing == SIM_FLAT;
    if (t->unit == SIM_UNIT_MATRIX)
        occupy_matrix(v, facts->inst);
    else if (t->unit == SIM_UNIT_VALU || t->unit == SIM_UNIT_TRANS)
        occupy_lanes(v, t);
    if (w->results)
        note_result(v, w, facts->inst);
    if (is_memory && t->stream < SIM_NUM_STREAMS)
        sim_note(w, t->stream, sim_time_vector(v->compute_unit, facts, v->tick));
    if (t->unit == SIM_UNIT_LDS || (is_flat && facts->num_lds))
        sim_note(w, SIM_STREAM_LDS, sim_time_lds_access(v->unit, v->index, facts, v->tick));
    if (t->unit == SIM_UNIT_SMEM)
        sim_note(w, SIM_STREAM_SMEM, sim_time_scalar(v->compute_unit, facts, v->tick));
}

/** Says when the wave's next instruction may issue. One that no unit executes takes no time, so
 *  that the next may issue at the same visit, unless it is there to pass time. */
static void go_on(const visit *v, sim_timed_wave *w, const sim_inst *inst) {
    const sim_timing *time = v->m->timing;
    const sim_traits *t = &inst->traits;
    const bool is_free = t->unit == SIM_UNIT_NONE && !(t->is & SIM_IS_NOP);
    uint64_t cycles = is_free ? 0 : time->issue_cycles;
    w->reason = SIM_SPENT_WAIT_WAVE;
    if (t->is & SIM_IS_NOP)
        cycles *= (inst->imm & 15) + 1;
    else if (t->is & SIM_SLEEPS)
        cycles = (uint64_t)(inst->imm & 127) * time->sleep_cycles;
    else if (t->unit == SIM_UNIT_BRANCH && w->wave->pc != inst->pc + inst->bytes) {
        cycles = time->branch_cycles > cycles ? time->branch_cycles : cycles;
        w->reason = SIM_SPENT_WAIT_FETCH;
    }
    if (t->is & SIM_SETS_PRIORITY)
        w->priority = inst->imm & 3;
    w->ready = v->tick + sim_ticks(cycles);
    if (t->is & SIM_AWAITS && w->wave->state == SIM_RUNNING) { // of gfx12: all have signalled
        w->reason = SIM_SPENT_WAIT_BARRIER;
        w->ready = sim_later(w->ready, w->resident->signalled + sim_ticks(time->barrier_cycles));
    }
}

/** Returns the energy of a multiplication or addition of a matrix instruction. */
static uint64_t flop_fj(const sim_timing *time, sim_kind kind) {
    switch (kind) {
    case SIM_KIND_MATRIX_F16:
        return time->flop_f16_fj;
    case SIM_KIND_MATRIX_BF16:
        return time->flop_bf16_fj;
    case SIM_KIND_MATRIX_I8:
        return time->flop_i8_fj;
    case SIM_KIND_MATRIX_F8:
    case SIM_KIND_MATRIX_F6F4:
        return time->flop_f8_fj;
    default:
        return time->flop_f32_fj;
    }
}

/** Returns the bytes of registers that a matrix instruction reads and writes. */
static uint64_t register_bytes(const sim_machine *m, const sim_inst *inst) {
    const uint64_t sums = 2u * inst->dst[0].count; // the old one and the new one
    return (sums + inst->src[0].count + inst->src[1].count) * 4 * sim_wave_size(m->dispatch);
}

static void add_energy(sim_machine *m, const sim_inst *inst) {
    const sim_timing *time = m->timing;
    const sim_traits *t = &inst->traits;
    if (t->unit == SIM_UNIT_MATRIX)
        m->energy_fj += sim_matrix_ops(&t->matrix) * flop_fj(time, t->kind) +
                        register_bytes(m, inst) * time->register_byte_fj;
    else if (category_of(t) == VECTOR)
        m->energy_fj += UINT64_C(1000) * time->valu_pj;
}

// ---- barriers

static sim_timed_wave *seat_of(const sim_resident *r, uint32_t index) {
    const struct sim_seat *at = &r->places[index];
    return &r->unit->simds[at->simd].waves[at->place];
}

static bool any_runs(const sim_workgroup *group) {
    bool runs = false;
    for (uint32_t i = 0; i < group->num_waves; i++)
        runs |= group->waves[i].state == SIM_RUNNING;
    return runs;
}

/** Lets the waves of a workgroup go on whose barrier is complete. */
static void open_barrier(const visit *v, sim_resident *r) {
    sim_workgroup *group = &r->group;
    const bool is_quiet = !any_runs(group);
    const uint64_t tick = v->tick + sim_ticks(v->m->timing->barrier_cycles);
    for (uint32_t i = 0; i < group->num_waves; i++) {
        sim_wave *w = &group->waves[i];
        const bool opens = w->num_waits ? sim_barrier_is_complete(w) : is_quiet;
        if (w->state != SIM_AT_BARRIER || !opens || !sim_barrier_is_complete(w))
            continue;
        w->state = SIM_RUNNING;
        sim_timed_wave *timed = seat_of(r, i);
        timed->ready = tick;
        timed->reason = SIM_SPENT_WAIT_BARRIER;
        sim_wake(v->m, r->unit, r->places[i].simd, tick);
    }
    if (is_quiet && !any_runs(group))
        sim_group_release(group); // reports waves that wait for ever
}

// ---- a visit

static void count_issue(sim_inst_cost *cost, const char *name) {
    cost->name = name;
    cost->issues++;
}

/** Executes the wave's next instruction at the visit's tick. */
static void issue(visit *v, sim_timed_wave *w, const sim_inst *inst) {
    sim_machine *m = v->m;
    sim_resident *r = w->resident;
    m->now_cycles = v->tick / SIM_TICKS;
    m->facts = nullptr;
    const uint64_t at = place_of(m, w);
    if (m->timeline)
        sim_timeline_turn(m->timeline, w, SIM_NUM_SPENT, v->tick);
    count_issue(&m->insts[at], sim_mnemonic(inst));
    m->issued++;
    sim_wave_step(w->wave, 1);
    if (!v->has_issued) {
        v->issued = spent_by(&inst->traits);
        v->issued_at = at;
    }
    v->has_issued |= inst->traits.unit != SIM_UNIT_NONE;
    v->used |= 1u << category_of(&inst->traits);
    if (m->facts)
        occupy(v, w, m->facts);
    add_energy(m, inst);
    if (inst->traits.is & SIM_SIGNALS)
        r->signalled = v->tick;
    go_on(v, w, inst);
    const sim_wave_state state = w->wave->state;
    if (state == SIM_ENDED || state == SIM_FAULTED)
        sim_leave(m, v->simd, w, v->tick);
    if (r->num_left && (state != SIM_RUNNING || inst->traits.is & SIM_SIGNALS))
        open_barrier(v, r);
}

/** Issues the wave's next instruction if it can. Returns whether it did. */
static bool try_wave(visit *v, sim_timed_wave *w) {
    if (!w->wave)
        return false;
    if (w->wave->state != SIM_RUNNING)
        return put_off(v, w, SIM_NEVER, SIM_SPENT_WAIT_BARRIER);
    if (w->ready > v->tick)
        return put_off(v, w, w->ready, w->reason);
    const sim_inst *inst = sim_fetch(w->wave, v->m->dispatch->text, w->wave->pc);
    if (!inst) {
        sim_leave(v->m, v->simd, w, v->tick);
        return false;
    }
    w->ready = fetch(v, w, inst);
    w->reason = SIM_SPENT_WAIT_FETCH;
    if (w->ready > v->tick)
        return put_off(v, w, w->ready, w->reason);
    if (w->results && needs_result(v, w, inst))
        return put_off(v, w, w->ready, w->reason);
    sim_spent reason = SIM_SPENT_WAIT_WAVE;
    const category c = category_of(&inst->traits);
    if (c != NO_CATEGORY && v->used >> c & 1)
        return put_off(v, w, v->tick + sim_ticks(v->m->timing->issue_cycles), reason);
    const uint64_t open = opens(v, w, inst, &reason);
    if (open > v->tick)
        return put_off(v, w, open, reason);
    issue(v, w, inst);
    return true;
}

/** Writes the places of the SIMD's waves in the order in which they may issue. */
static uint32_t sort_waves(const sim_simd *s, uint8_t places[SIM_MAX_WAVES]) {
    for (uint32_t i = 0; i < s->num_waves; i++) {
        uint32_t at = i;
        for (; at && s->waves[places[at - 1]].priority < s->waves[s->order[i]].priority; at--)
            places[at] = places[at - 1];
        places[at] = s->order[i];
    }
    return s->num_waves;
}

void sim_count_time(sim_machine *m, sim_simd *s, uint64_t tick) {
    s->spent[s->waits] += tick - s->counted;
    m->insts[s->waits_at].cycles[s->waits] += tick - s->counted;
    s->counted = tick;
}

void sim_visit(sim_machine *m, sim_group_unit *unit, uint32_t index, uint64_t tick) {
    sim_simd *s = &unit->simds[index];
    uint8_t places[SIM_MAX_WAVES];
    visit v = {.m = m,
               .unit = unit,
               .compute_unit = sim_compute_unit_of(m, unit, index),
               .simd = s,
               .index = index,
               .tick = tick,
               .next = SIM_NEVER,
               .waits = SIM_SPENT_IDLE,
               .waits_at = m->num_insts};
    sim_count_time(m, s, tick);
    s->next = SIM_NEVER;
    const uint32_t count = sort_waves(s, places);
    for (uint32_t i = 0; i < count; i++)
        while (try_wave(&v, &s->waves[places[i]])) {
        }
    if (v.has_issued)
        v.next = tick + sim_ticks(m->timing->issue_cycles);
    s->waits = v.has_issued ? v.issued : v.waits;
    s->waits_at = v.has_issued ? v.issued_at : v.waits_at;
    if (v.next != SIM_NEVER)
        sim_wake(m, unit, index, v.next);
}
