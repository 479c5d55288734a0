// SPDX-License-Identifier: Apache-2.0
// How long accesses to memory take: a unit's vector cache, the second level of its XCD, the fabric,
// the memory-side cache and memory.
//
// Each part takes requests one after the other at its rate, so that a request finds the part busy
// until those before it are served; its latency comes on top. Parts that units share get requests
// out of the order of their time (server.h). A line that is on its way already is not asked for
// twice. Loads of a wave complete in order (machine.h).
#include "machine.h"
#include "share.h"

enum { LINE = 128, MAX_LINES = 2 * SIM_LANES };

// ---- rates

/** Takes a part of a unit at a tick for some ticks. Returns when its work begins. */
static uint64_t take(uint64_t *free_from, uint64_t at, uint64_t ticks) {
    const uint64_t begin = sim_later(*free_from, at);
    *free_from = begin + ticks;
    return begin;
}

static uint64_t ticks_of_bytes(uint64_t bytes, uint32_t bytes_per_cycle) {
    return (bytes * SIM_TICKS + bytes_per_cycle - 1) / bytes_per_cycle;
}

static uint64_t ticks_of_ns(const sim_machine *m, uint32_t ns) {
    return (uint64_t)ns * m->chip->clock_khz * SIM_TICKS / 1000000;
}

/** Returns a number below 1024 that says nothing of a line's channel. */
static uint32_t lot_of(uint64_t line) {
    return (uint32_t)((line * UINT64_C(0xd6e8feb86659fd93) >> 32) % 1024);
}

// ---- behind the second level

/** Returns in ticks how much later than on average memory answers an XCD about a line. */
static int64_t distance_of(const sim_xcd *xcd, uint64_t line) {
    const sim_machine *m = xcd->machine;
    const double hops = sim_hops(m->chip, xcd->index, line) - m->timing->most_hops / 2.0;
    return (int64_t)((double)ticks_of_ns(m, m->timing->hop_ns) * (hops + m->farther));
}

/** Returns when an answer from memory or its cache is there that takes `ns` on average. */
static uint64_t from_memory(const sim_xcd *xcd, uint64_t line, uint64_t begin, uint32_t ns) {
    const int64_t ticks = (int64_t)ticks_of_ns(xcd->machine, ns) + distance_of(xcd, line);
    return begin + (ticks > 0 ? (uint64_t)ticks : 0);
}

/** Writes a line that leaves the second level to memory. Nobody waits for it. */
static void write_back(sim_machine *m, uint64_t line, uint64_t at) {
    m->traffic.hbm_lines++;
    sim_serve(&m->hbm[sim_spread(line, m->hbm_channels)], at, m->hbm_ticks, 1);
}

static uint64_t read_memory(sim_xcd *xcd, uint64_t line, uint64_t at) {
    sim_machine *m = xcd->machine;
    // a line takes few ticks, and whole ones would miss the rate by some percent
    const uint64_t begin = sim_serve(&xcd->fabric, at, LINE * SIM_TICKS, m->timing->fabric_bytes);
    m->traffic.fabric_lines++;
    sim_cached *held = m->mall ? sim_tags_find(m->mall, line) : nullptr;
    if (held || (m->mall && lot_of(line) >= m->own_share)) {
        const uint64_t done = from_memory(xcd, line, begin, m->timing->mall_ns);
        m->traffic.mall_hits++;
        return held && held->ready > m->base ? sim_later(done, held->ready - m->base) : done;
    }
    m->traffic.hbm_lines++;
    const uint64_t served =
        sim_serve(&m->hbm[sim_spread(line, m->hbm_channels)], begin, m->hbm_ticks, 1);
    const uint64_t done = from_memory(xcd, line, served, m->timing->hbm_ns);
    if (m->mall)
        sim_tags_put(m->mall, sim_tags_replace(m->mall, line), line, m->base + done, false);
    return done;
}

// ---- the second level

/** Takes the channel of a line. Returns when its work begins. */
static uint64_t take_channel(sim_xcd *xcd, uint64_t line, uint64_t at, uint64_t ticks) {
    xcd->machine->busy[SIM_PART_L2] += ticks;
    return sim_serve(&xcd->channels[sim_spread(line, xcd->machine->timing->l2_channels)], at, ticks,
                     1);
}

static void put_l2(sim_xcd *xcd, uint64_t line, uint64_t ready, bool is_dirty, uint64_t at) {
    sim_cached *place = sim_tags_replace(&xcd->l2, line);
    if (place->number && place->is_dirty)
        write_back(xcd->machine, place->number - 1, at);
    sim_tags_put(&xcd->l2, place, line, ready, is_dirty);
}

static uint64_t read_l2(sim_xcd *xcd, uint64_t line, uint64_t at) {
    sim_machine *m = xcd->machine;
    const sim_timing *t = m->timing;
    const uint64_t begin = take_channel(xcd, line, at, ticks_of_bytes(LINE, t->l2_read_bytes));
    m->traffic.l2_lines++;
    const sim_cached *held = sim_tags_find(&xcd->l2, line);
    if (held) {
        m->traffic.l2_hits++;
        return sim_later(begin + sim_ticks(t->l2_hit_cycles), held->ready);
    }
    const uint64_t done = read_memory(xcd, line, begin);
    put_l2(xcd, line, done, false, begin);
    return done;
}

/** Returns how long a channel takes some bytes that come with a request of their own. */
static uint64_t ticks_of_write(const sim_timing *t, uint64_t bytes) {
    return sim_later(ticks_of_bytes(bytes, t->l2_write_bytes), SIM_TICKS);
}

/** Stores some bytes of a line, which the second level keeps. */
static uint64_t write_l2(sim_xcd *xcd, uint64_t line, uint32_t bytes, uint64_t at) {
    sim_machine *m = xcd->machine;
    const sim_timing *t = m->timing;
    const uint64_t begin = take_channel(xcd, line, at, ticks_of_write(t, bytes));
    m->traffic.l2_lines++;
    sim_cached *held = sim_tags_find(&xcd->l2, line);
    m->traffic.l2_hits += held != nullptr;
    if (held)
        held->is_dirty = true;
    else
        put_l2(xcd, line, begin, true, begin);
    return begin + sim_ticks(t->l2_hit_cycles);
}

/** Adds to words of a line, of which one is `turns` lanes'. Their way is a store's, and lanes that
 *  add to one word follow each other. */
static uint64_t atomic_l2(sim_xcd *xcd, uint64_t line, uint32_t bytes, uint32_t turns,
                          uint64_t at) {
    const sim_timing *t = xcd->machine->timing;
    const uint64_t ticks = sim_later(ticks_of_write(t, bytes), sim_ticks(turns));
    const uint64_t begin = take_channel(xcd, line, at, ticks);
    const sim_cached *held = sim_tags_find(&xcd->l2, line);
    uint64_t done = begin + sim_ticks(t->atomic_cycles);
    if (!held) {
        done = sim_later(done, read_memory(xcd, line, begin));
        put_l2(xcd, line, done, true, begin);
    } else if (held->ready > begin) {
        done += held->ready - begin;
    }
    return done;
}

// ---- between the second level and the caches of compute units

/** Reads a line from the cache in front of the second level, if there is one, or from that. */
static uint64_t read_shared(const sim_compute_unit *unit, uint64_t line, bool is_past,
                            uint64_t at) {
    const sim_timing *t = unit->xcd->machine->timing;
    if (is_past || !unit->xcd->mids)
        return read_l2(unit->xcd, line, at);
    sim_mid *mid = &unit->xcd->mids[unit->index / t->mid_units];
    const uint64_t begin = sim_serve(&mid->server, at, ticks_of_bytes(LINE, t->mid_read_bytes), 1);
    const sim_cached *held = sim_tags_find(&mid->tags, line);
    if (held)
        return sim_later(begin + sim_ticks(t->mid_hit_cycles), held->ready);
    const uint64_t done = read_l2(unit->xcd, line, begin);
    sim_tags_put(&mid->tags, sim_tags_replace(&mid->tags, line), line, done, false);
    return done;
}

// ---- a unit's vector cache

/** Reads a line through the vector cache, or past it. */
static uint64_t read_line(sim_compute_unit *unit, uint64_t line, bool is_past, uint64_t at) {
    sim_machine *m = unit->xcd->machine;
    const sim_timing *t = m->timing;
    m->traffic.l1_lines++;
    const sim_cached *held = is_past ? nullptr : sim_tags_find(&unit->l1, line);
    if (held) {
        m->traffic.l1_hits++;
        return sim_later(at + sim_ticks(t->l1_hit_cycles), held->ready);
    }
    uint64_t *oldest = &unit->misses[unit->next_miss++ % t->l1_misses];
    const uint64_t begin =
        take(&unit->l2_port_free, sim_later(at, *oldest), ticks_of_bytes(LINE, t->l2_unit_bytes));
    const uint64_t done = read_shared(unit, line, is_past, begin);
    *oldest = done;
    if (!is_past)
        sim_tags_put(&unit->l1, sim_tags_replace(&unit->l1, line), line, done, false);
    return done;
}

/** Finds the lines that an access touches, in the order of its lanes. Returns their number. */
static uint32_t find_lines(const sim_touch *touch, uint64_t lines[MAX_LINES]) {
    uint32_t count = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint64_t end = touch->address[lane] + (touch->bytes[lane] ? touch->bytes[lane] : 1);
        for (uint64_t line = touch->address[lane] / LINE; line * LINE < end; line++) {
            uint32_t i = count;
            while (i && lines[i - 1] != line)
                i--;
            if (!i)
                lines[count++] = line;
        }
    }
    return count;
}

static uint32_t count_bytes(const sim_touch *touch) {
    uint32_t bytes = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1)
        bytes += touch->bytes[__builtin_ctzll(left)];
    return bytes;
}

/** Returns how many lanes have the word that most lanes have. */
static uint32_t count_turns(const sim_touch *touch) {
    uint32_t most = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1) {
        const uint64_t word = touch->address[__builtin_ctzll(left)];
        uint32_t same = 0;
        for (uint64_t others = left; others; others &= others - 1)
            same += touch->address[__builtin_ctzll(others)] == word;
        most = same > most ? same : most;
    }
    return most;
}

uint64_t sim_vector_open(const sim_compute_unit *unit) {
    const uint64_t queue = sim_ticks(unit->xcd->machine->timing->l1_queue_cycles);
    return unit->port_free > queue ? unit->port_free - queue : 0;
}

static uint64_t take_port(sim_compute_unit *unit, uint64_t at, uint64_t ticks) {
    unit->xcd->machine->busy[SIM_PART_VECTOR_CACHE] += ticks;
    return take(&unit->port_free, at, ticks);
}

/** Scratch lies in lines of its own, of which each dword of all lanes fills some. It is taken to be
 *  in the vector cache. */
static uint64_t time_scratch(sim_compute_unit *unit, const sim_touch *touch, uint64_t at) {
    const sim_timing *t = unit->xcd->machine->timing;
    const uint64_t cost = ticks_of_bytes(count_bytes(touch), t->l1_port_bytes);
    const uint64_t least = sim_ticks(t->address_cycles);
    return take_port(unit, at, sim_later(cost, least)) + sim_ticks(t->l1_hit_cycles);
}

uint64_t sim_time_vector(sim_compute_unit *unit, const sim_facts *facts, uint64_t at) {
    const sim_timing *t = unit->xcd->machine->timing;
    const sim_traits *traits = &facts->inst->traits;
    if (facts->scratch.mask)
        return time_scratch(unit, &facts->scratch, at);
    uint64_t lines[MAX_LINES];
    const uint32_t count = find_lines(&facts->memory, lines);
    const uint32_t bytes = count_bytes(&facts->memory);
    const uint64_t step = ticks_of_bytes(LINE, t->l1_port_bytes);
    const uint64_t begin =
        take_port(unit, at, sim_later(count * step, sim_ticks(t->address_cycles)));
    const bool is_past = facts->inst->flags & SIM_SCOPED;
    const uint32_t each = count ? (bytes + count - 1) / count : 0;
    const uint32_t turns = traits->access == SIM_ACCESS_ATOMIC ? count_turns(&facts->memory) : 0;
    uint64_t done = begin + sim_ticks(t->l1_hit_cycles);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t when = begin + i * step;
        const uint64_t line_done = traits->access == SIM_ACCESS_STORE
                                       ? write_l2(unit->xcd, lines[i], each, when)
                                   : traits->access == SIM_ACCESS_ATOMIC
                                       ? atomic_l2(unit->xcd, lines[i], each, turns, when)
                                       : read_line(unit, lines[i], is_past, when);
        done = sim_later(done, line_done);
    }
    if (traits->access == SIM_ACCESS_DMA) // the banks are taken now: later work may go before
        take(&unit->lds_free, begin, ticks_of_bytes(bytes, t->l1_port_bytes));
    return done;
}

// ---- scalar memory and instructions

/** Reads a line of the second level into a cache whose lines may be shorter. */
static uint64_t fill(const sim_compute_unit *unit, sim_tags *tags, uint64_t address, uint32_t bytes,
                     uint64_t at) {
    const sim_cached *held = sim_tags_find(tags, address / bytes);
    if (held)
        return sim_later(at, held->ready);
    const uint64_t done = read_shared(unit, address / LINE, false, at);
    sim_tags_put(tags, sim_tags_replace(tags, address / bytes), address / bytes, done, false);
    return done;
}

static sim_scalar_unit *scalar_of(sim_compute_unit *unit) {
    return &unit->xcd->scalars[unit->index / unit->xcd->machine->timing->scalar_units];
}

uint64_t sim_time_scalar(sim_compute_unit *unit, const sim_facts *facts, uint64_t at) {
    const sim_timing *t = unit->xcd->machine->timing;
    uint64_t done = at;
    const uint64_t end = facts->scalar_address + facts->scalar_bytes;
    for (uint64_t line = facts->scalar_address / t->scalar_line_bytes;
         facts->scalar_bytes && line * t->scalar_line_bytes < end; line++) {
        const uint64_t arrived = fill(unit, &scalar_of(unit)->data, line * t->scalar_line_bytes,
                                      t->scalar_line_bytes, at);
        done = sim_later(done, arrived);
    }
    return done + sim_ticks(t->scalar_hit_cycles);
}

uint64_t sim_time_fetch(sim_compute_unit *unit, uint64_t address, uint64_t at) {
    const sim_timing *t = unit->xcd->machine->timing;
    sim_tags *code = scalar_of(unit)->code;
    const uint64_t done = fill(unit, code, address, t->fetch_bytes, at);
    for (uint32_t i = 1; done > at && i <= t->fetch_ahead; i++)
        fill(unit, code, address + (uint64_t)i * t->fetch_bytes, t->fetch_bytes, at);
    return done;
}

// ---- the end

void sim_forget_lines(const sim_machine *m) {
    const bool all_xcds = m->num_xcds == m->chip->num_xccs;
    if (!m->mall || !all_xcds || !m->groups_run || m->sample.run == m->sample.groups)
        return;
    const uint64_t brought = m->traffic.hbm_lines * m->sample.groups / m->groups_run;
    if (brought > (uint64_t)m->mall->sets * m->mall->ways)
        sim_tags_clear(m->mall);
}

uint64_t sim_time_flush(sim_machine *m, uint64_t at) {
    uint64_t last = at;
    for (uint32_t i = 0; i < m->num_xcds; i++) {
        const uint64_t dirty = sim_tags_dirty(&m->xcds[i].l2);
        const uint64_t begin = sim_later(at, m->xcds[i].fabric.end / m->timing->fabric_bytes);
        last = sim_later(last, begin + ticks_of_bytes(dirty * LINE, m->timing->fabric_bytes));
        m->traffic.hbm_lines += dirty;
    }
    return last;
}
