// SPDX-License-Identifier: Apache-2.0
// LDS: reads of bytes that nobody wrote, data used before the wait for them, waves that meet on an
// address without a barrier between.
//
// Each four bytes have a cell that knows who wrote and who read them last, and in which epoch.
// Between two barriers waves run in any order, so two accesses of one epoch race if they come from
// different waves and one of them writes; whether they disturbed each other in this run does not
// matter. Atomics do not race with atomics. Writes of equal values do no harm and are no race.
// LDS-DMA's data have arrived once its wave has waited for them; other waves see them, and ordinary
// writes, if the wave waited before the barrier.
#include "../isa/decode.h"
#include "check.h"
#include "hooks.h"

#include <string.h>

/** One lane's access to one cell. The last line is the same for all of an instruction's lanes. */
typedef struct touch {
    sim_wave *w;
    const sim_inst *inst;
    int lane;
    uint32_t offset; // of the cell's word
    uint8_t bytes;   // bit i: byte i of the word; all of the cell's
    uint8_t stream, wave;
    uint32_t check, epoch, pc, seq; // pc as an offset from the kernel's entry
} touch;

static touch touch_of(sim_wave *w, const sim_inst *inst, unsigned stream) {
    return (touch){.w = w,
                   .inst = inst,
                   .stream = (uint8_t)stream,
                   .wave = (uint8_t)w->index,
                   .check = w->group->dispatch->check,
                   .epoch = w->shadow->epoch,
                   .pc = sim_check_offset(w, inst->pc),
                   .seq = (uint32_t)w->shadow->issued[stream]};
}

static const char *mnemonic_at(sim_wave *w, uint32_t offset) {
    const sim_dispatch *d = w->group->dispatch;
    return sim_mnemonic(sim_fetch(w, d->text, sim_check_pc(w, offset)));
}

static bool wants(const touch *t, uint32_t check) {
    return t->check & check;
}

/** Returns the address of the first byte. */
static uint32_t address_of(const touch *t) {
    return t->offset + (uint32_t)__builtin_ctz(t->bytes);
}

static sim_fault_about about_of(const touch *t, uint32_t other) {
    return (sim_fault_about){.space = SIM_SPACE_LDS,
                             .is_store = t->inst->traits.access != SIM_ACCESS_LOAD,
                             .bytes = (uint32_t)__builtin_popcount(t->bytes),
                             .address = address_of(t),
                             .other_pc = sim_check_pc(t->w, other)};
}

static bool report_race(const touch *t, const char *what, unsigned other, const char *other_what,
                        uint32_t pc) {
    sim_fault_about about = about_of(t, pc);
    char place[SIM_PLACE_BYTES];
    sim_place_text(t->w->group->dispatch, about.other_pc, place);
    return sim_fault_report(
        t->w, t->inst, t->lane, SIM_FAULT_RACE, &about,
        "race on LDS: wave %u %s 0x%x, which wave %u %s at %s (%s), with no barrier "
        "between",
        t->w->index, what, address_of(t), other, other_what, place, mnemonic_at(t->w, pc));
}

static bool report_early(const touch *t, const sim_cell *c, const char *what) {
    const bool is_own = c->writer == t->w->index;
    sim_fault_about about = about_of(t, c->write_pc);
    char place[SIM_PLACE_BYTES];
    sim_place_text(t->w->group->dispatch, about.other_pc, place);
    return sim_fault_report(
        t->w, t->inst, t->lane, SIM_FAULT_WAIT, &about,
        "missing wait: LDS address 0x%x is %s before what %s at %s (wave %u) writes "
        "there has arrived: %s",
        address_of(t), what, mnemonic_at(t->w, c->write_pc), place, c->writer,
        is_own ? "no wait stands between" : "that wave did not wait before the barrier");
}

/** Returns whether the cell's last write has arrived for the wave of `t`. */
static bool has_arrived(const touch *t, const sim_cell *c) {
    const struct sim_shadow *writer = t->w->group->waves[c->writer].shadow;
    if (c->writer != t->w->index)
        return c->write_seq <= writer->done_at_barrier[c->write_stream];
    return c->write_stream == SIM_STREAM_LDS || // in order
           t->stream == c->write_stream || c->write_seq <= writer->done[c->write_stream];
}

/** Returns whether another wave wrote the cell in this epoch. */
static bool was_written_now(const touch *t, const sim_cell *c) {
    return c->write_epoch == t->epoch && (c->writer != t->wave || c->several_writers);
}

static bool report_unwritten(const touch *t) {
    const uint32_t address = address_of(t);
    sim_fault_about about = {.space = SIM_SPACE_LDS, .bytes = 1, .address = address};
    return sim_fault_report(t->w, t->inst, t->lane, SIM_FAULT_UNINIT, &about,
                            "read of LDS address 0x%x, which no wave of the workgroup has written",
                            address);
}

/** Exchanges the bytes of the last write with those that the cell held before. */
static void exchange(const touch *t, sim_cell *c) {
    uint8_t *now = t->w->group->lds + t->offset, *kept = (uint8_t *)&c->kept;
    for (unsigned i = 0; i < 4; i++) {
        if (!(c->away >> i & 1)) {
            const uint8_t value = now[i];
            now[i] = kept[i];
            kept[i] = value;
        }
    }
}

/** Handles a use of data that have not arrived: the use sees the cell's old bytes, until the
 *  writer's next wait. */
static bool meet_early(const touch *t, sim_cell *c, const char *what) {
    if (c->late)
        return true;
    if (!report_early(t, c, what))
        return false;
    exchange(t, c);
    c->late = true;
    t->w->group->shadow->num_late++;
    return true;
}

static bool check_read(const touch *t, sim_cell *c, bool is_atomic) {
    if (wants(t, SIM_CHECK_UNINIT) && !c->written)
        return report_unwritten(t);
    if (was_written_now(t, c)) {
        const bool harmless = is_atomic && c->atomic;
        const bool known = !c->several_writers || c->atomic;
        return harmless || !known || !wants(t, SIM_CHECK_RACE) ||
               report_race(t, "reads", c->writer, "wrote", c->write_pc);
    }
    return !c->write_epoch || !wants(t, SIM_CHECK_WAIT) || has_arrived(t, c) ||
           meet_early(t, c, "read");
}

static void note_read(const touch *t, sim_cell *c) {
    const bool again = c->read_epoch == t->epoch;
    c->several_readers = again && (c->several_readers || c->reader != t->wave);
    c->read_epoch = t->epoch;
    c->reader = t->wave;
    c->read_pc = t->pc;
}

/** Notes a write over another wave's write of this epoch; sim_check_doubts looks at its value
 *  later. */
static void doubt(const touch *t, const sim_cell *c) {
    struct sim_group_shadow *group = t->w->group->shadow;
    if (group->num_doubts == SIM_MAX_LDS_DOUBTS || !wants(t, SIM_CHECK_RACE))
        return;
    sim_lds_doubt *d = &group->doubts[group->num_doubts++];
    *d = (sim_lds_doubt){.offset = t->offset,
                         .write_pc = c->write_pc,
                         .writer = c->writer,
                         .bytes = t->bytes,
                         .lane = (int8_t)t->lane};
    memcpy(&d->value, t->w->group->lds + t->offset, 4);
}

static bool check_write(const touch *t, sim_cell *c, bool is_atomic) {
    bool read_now = c->read_epoch == t->epoch && (c->several_readers || c->reader != t->wave);
    if (read_now && wants(t, SIM_CHECK_RACE))
        return report_race(t, "writes", c->reader, "read", c->read_pc);
    if (!was_written_now(t, c)) {
        return !c->write_epoch || c->writer != t->wave || !wants(t, SIM_CHECK_WAIT) ||
               has_arrived(t, c) || meet_early(t, c, "written");
    }
    if (!(is_atomic && c->atomic) && (!c->several_writers || c->atomic))
        doubt(t, c);
    return true;
}

static void note_write(const touch *t, sim_cell *c, bool is_atomic) {
    const bool again = c->write_epoch == t->epoch;
    c->several_writers = again && (c->several_writers || c->writer != t->wave);
    c->atomic = is_atomic && (!again || c->atomic);
    c->write_epoch = t->epoch;
    c->writer = t->wave;
    c->written = true;
    c->write_stream = t->stream & 3;
    c->write_seq = t->seq;
    c->write_pc = t->pc;
    if (!c->late) // else the earlier write lands on this one
        memcpy(&c->kept, t->w->group->lds + t->offset, 4);
}

static bool touch_cell(const touch *t, sim_cell *c) {
    const unsigned access = t->inst->traits.access;
    const bool is_atomic = access == SIM_ACCESS_ATOMIC;
    const bool reads = access == SIM_ACCESS_LOAD || is_atomic, writes = access != SIM_ACCESS_LOAD;
    if ((reads && !check_read(t, c, is_atomic)) || (writes && !check_write(t, c, is_atomic)))
        return false;
    if (writes)
        note_write(t, c, is_atomic);
    else
        note_read(t, c);
    return true;
}

// ---- words and their cells

enum { WORD = 15 }; // all bytes of a word

/** Returns a word's cell that begins at the first of `bytes`. */
static sim_cell *cell_at(const struct sim_group_shadow *group, uint32_t word, unsigned bytes) {
    const unsigned first = (unsigned)__builtin_ctz(bytes);
    return first ? &group->parts[3 * word + first - 1] : &group->cells[word];
}

static unsigned bytes_of(const sim_cell *c) {
    return WORD & ~(unsigned)c->away;
}

/** Cuts a cell in two, if only some of its bytes are in `bytes`. */
static void cut(struct sim_group_shadow *group, uint32_t word, sim_cell *c, unsigned bytes) {
    const unsigned own = bytes_of(c), in = own & bytes, out = own & ~bytes;
    if (!in || !out)
        return;
    const unsigned moved = in & own & -own ? out : in; // a cell lies where its first byte does
    sim_cell *other = cell_at(group, word, moved);
    *other = *c;
    other->away = (uint8_t)(WORD & ~moved);
    c->away |= (uint8_t)moved;
    group->num_late += c->late;
}

/** Touches those of a word's cells that the access needs. */
static bool touch_parts(touch *t) {
    struct sim_group_shadow *group = t->w->group->shadow;
    const uint32_t word = t->offset / 4;
    const unsigned bytes = t->bytes;
    sim_cell *c;
    for (unsigned left = WORD; left; left &= c->away) {
        c = cell_at(group, word, left);
        cut(group, word, c, bytes);
        t->bytes = (uint8_t)bytes_of(c);
        if ((t->bytes & bytes) && !touch_cell(t, c))
            return false;
    }
    return true;
}

static bool touch_word(touch *t, sim_cell *first) {
    return t->bytes == WORD && !first->away ? touch_cell(t, first) : touch_parts(t);
}

/** Returns the bytes of [at, at + bytes) that lie in the word at `word`. */
static uint8_t bytes_in(uint32_t word, uint32_t at, uint32_t bytes) {
    const uint32_t first = at > word ? at - word : 0;
    const uint32_t end = at + bytes < word + 4 ? at + bytes - word : 4;
    return (uint8_t)((1u << end) - (1u << first));
}

static bool check_alignment(const touch *t, uint32_t at, uint32_t bytes) {
    if (bytes < 4 || !(at & 3) || !wants(t, SIM_CHECK_ALIGN))
        return true;
    sim_fault_about about = {.space = SIM_SPACE_LDS, .bytes = bytes, .address = at};
    return sim_fault_report(
        t->w, t->inst, t->lane, SIM_FAULT_ALIGN, &about,
        "misaligned: %u bytes at LDS address 0x%x, which is not a multiple of 4", bytes, at);
}

void sim_check_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                   uint64_t mask, uint32_t bytes) {
    const bool is_dma = inst->traits.access == SIM_ACCESS_DMA;
    touch t = touch_of(w, inst, is_dma ? SIM_STREAM_LOAD : SIM_STREAM_LDS);
    sim_cell *cells = w->group->shadow->cells;
    if (inst->traits.access == SIM_ACCESS_ATOMIC)
        sim_race_lds_atomic(w);
    for (uint64_t left = mask; left; left &= left - 1) {
        t.lane = __builtin_ctzll(left);
        const uint32_t at = (uint32_t)(lane_address[t.lane] - w->group->lds);
        const bool is_whole = !((at | bytes) & 3);
        if (!check_alignment(&t, at, bytes))
            return;
        for (uint32_t word = at & ~3u; word < at + bytes; word += 4) {
            t.offset = word;
            t.bytes = is_whole ? WORD : bytes_in(word, at, bytes);
            if (!touch_word(&t, &cells[word / 4]))
                return;
        }
    }
    if (w->group->dispatch->check & SIM_CHECK_UNINIT)
        sim_unwritten_lds(w, inst, lane_address, mask, bytes);
}

/** Writes to a word what was held back of a wave's writes, as far as it has arrived. */
static void land(sim_wave *w, uint32_t word) {
    struct sim_group_shadow *group = w->group->shadow;
    const touch t = {.w = w, .offset = 4 * word};
    sim_cell *c;
    for (unsigned left = WORD; left; left &= c->away) {
        c = cell_at(group, word, left);
        if (c->late && c->writer == w->index && c->write_seq <= w->shadow->done[c->write_stream]) {
            exchange(&t, c);
            c->late = false;
            group->num_late--;
        }
    }
}

void sim_check_arrivals_in_lds(sim_wave *w) {
    const uint32_t num_words = (w->group->dispatch->lds_bytes + 3) / 4;
    for (uint32_t i = 0; w->group->shadow->num_late && i < num_words; i++)
        land(w, i);
}

/** Returns the bytes in doubt whose value has changed. */
static uint8_t changed(const sim_lds_doubt *d, const uint8_t *word) {
    const uint8_t *before = (const uint8_t *)&d->value;
    unsigned bytes = 0;
    for (unsigned i = 0; i < 4; i++)
        bytes |= (unsigned)(word[i] != before[i]) << i;
    return (uint8_t)(bytes & d->bytes);
}

void sim_check_doubts(sim_wave *w, const sim_inst *inst) {
    struct sim_group_shadow *group = w->group->shadow;
    bool is_told = w->state == SIM_FAULTED;
    for (uint32_t i = 0; i < group->num_doubts && !is_told; i++) {
        const sim_lds_doubt *d = &group->doubts[i];
        touch t = {.w = w, .inst = inst, .lane = d->lane, .offset = d->offset};
        t.bytes = changed(d, w->group->lds + d->offset);
        is_told = t.bytes;
        if (is_told)
            report_race(&t, "writes", d->writer, "wrote", d->write_pc);
    }
    group->num_doubts = 0;
}
