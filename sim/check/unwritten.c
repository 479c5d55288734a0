// SPDX-License-Identifier: Apache-2.0
// Memory: bytes that a kernel uses though neither the host nor a kernel has written them since they
// were allocated.
//
// A load of such bytes is no fault, as kernels load padding and do not use it. The loaded value is
// undefined like a register that was never written (registers.c), and is followed through registers
// and LDS to its use. A dword is undefined if none of its bytes was written. Loads into a half of a
// register count as written. An atomic uses what it finds at once.
#include "check.h"

#include <stdio.h>
#include <string.h>

// ---- memory

/** The live allocation that holds an address, or null. */
static const sim_region *region_of(const sim_wave *w, uint64_t address) {
    const sim_region *region = w->region;
    return address - region->base < region->bytes
               ? region
               : sim_memory_find(w->group->dispatch->memory, address);
}

static uint64_t num_written(const sim_wave *w, uint64_t address, uint32_t bytes) {
    const sim_region *region = region_of(w, address);
    return region ? sim_region_num_written(region, address - region->base, bytes) : bytes;
}

static void note_write(const sim_wave *w, uint64_t address, uint32_t bytes) {
    const sim_region *region = region_of(w, address);
    if (region)
        sim_region_note_write(region, address - region->base, bytes);
}

/** Returns the entry for a dword of a load, which may be new; null if there is no room. */
static sim_unwritten *entry_for(struct sim_shadow *s, uint64_t pc, uint32_t dword) {
    sim_unwritten *u = s->unwritten, *end = u + s->num_unwritten;
    while (u < end && (u->pc != pc || u->dword != dword))
        u++;
    if (u == end) {
        if (s->num_unwritten == SIM_MAX_UNWRITTEN)
            return nullptr;
        s->num_unwritten++;
        *u = (sim_unwritten){.pc = pc, .dword = dword};
    }
    return u;
}

/** Returns the hole that a dword of a load leaves in `lanes`; none once the dword has been
 *  reported. */
static hole hole_of(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint32_t dword,
                    uint64_t lanes, uint32_t bytes) {
    struct sim_shadow *s = w->shadow;
    sim_unwritten *u = lanes ? entry_for(s, inst->pc, dword) : nullptr;
    if (!u || u->is_told)
        return (hole){};
    u->lanes = lanes;
    u->bytes = bytes;
    for (uint64_t left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        u->address[lane] = address[lane] + 4 * dword;
    }
    return (hole){lanes,
                  SIM_NUM_REGS + w->index * SIM_MAX_UNWRITTEN + (unsigned)(u - s->unwritten)};
}

static sim_unwritten *entry_of(const sim_wave *w, unsigned origin) {
    const unsigned number = origin - SIM_NUM_REGS;
    struct sim_shadow *s = w->group->waves[number / SIM_MAX_UNWRITTEN].shadow;
    return &s->unwritten[number % SIM_MAX_UNWRITTEN];
}

static void find_holes(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint64_t mask,
                       uint32_t bytes, sim_holes *out) {
    out->count = (bytes + 3) / 4;
    for (uint32_t k = 0; k < out->count; k++) {
        const uint32_t part = bytes - 4 * k < 4 ? bytes - 4 * k : 4;
        uint64_t lanes = 0;
        for (uint64_t left = mask; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            lanes |= (uint64_t)!num_written(w, address[lane] + 4 * k, part) << lane;
        }
        out->dword[k] = hole_of(w, inst, address, k, lanes, part);
    }
}

/** Returns whether the whole span of the lanes has been written; then one look is enough, instead
 *  of one for each lane. */
static bool is_all_written(const sim_wave *w, const uint64_t *address, uint64_t mask,
                           uint32_t bytes) {
    enum { NEAR = 8192 };
    uint64_t low = UINT64_MAX, high = 0;
    for (uint64_t left = mask; left; left &= left - 1) {
        const uint64_t at = address[__builtin_ctzll(left)];
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    const sim_region *region = region_of(w, low);
    const uint64_t span = high - low + bytes;
    return region && region == region_of(w, high) &&
           (sim_region_is_written(region) ||
            (span <= NEAR && sim_region_num_written(region, low - region->base, span) == span));
}

// ---- registers

/** Returns which register of `op` the first dword of an instruction's access number `part` goes to
 *  or comes from; -1: the access is not followed. */
static int first_register(const sim_wave *w, const sim_inst *inst, const sim_operand *op,
                          uint32_t bytes, unsigned part) {
    const bool is_vector = inst->traits.klass == SIM_VMEM;
    if (inst->traits.is & SIM_IS_D16)
        return -1;
    if (inst->traits.is & SIM_IS_BLOCK) { // a dword for each bit of M0
        uint32_t left = w->m0;
        for (unsigned i = 0; i < part; i++)
            left &= left - 1;
        return left ? __builtin_ctz(left) : -1;
    }
    if (op->count * 4u == bytes || (op->count == 1 && bytes < 4))
        return 0;
    if (op->count * 4u == 2 * bytes && inst->traits.klass == SIM_LDS_OP) // two addresses
        return (int)(part * bytes / 4);
    // vectors: after a look at the whole
    const bool by_dwords = bytes == 4 && !(inst->traits.is & SIM_HAS_FORMAT);
    return !by_dwords || (is_vector && !part) ? -1 : (int)part - (int)is_vector;
}

/** Mixes lanes, as they change places: a lane is undefined if every lane is. */
static void mix_lanes(const sim_wave *w, sim_holes *holes) {
    uint64_t each = w->exec;
    for (unsigned k = 0; k < holes->count; k++)
        each &= holes->dword[k].lanes;
    for (unsigned k = 0; k < holes->count; k++)
        holes->dword[k].lanes = each == w->exec ? each : 0;
}

/** Notes a load's holes in its registers. */
static void put_registers(sim_wave *w, const sim_inst *inst, sim_holes *holes, uint32_t bytes,
                          unsigned part) {
    const sim_operand *op = &inst->dst[0];
    const int first = inst->num_dst ? first_register(w, inst, op, bytes, part) : -1;
    if (inst->traits.is & SIM_TRANSPOSES)
        mix_lanes(w, holes);
    for (unsigned k = 0; first >= 0 && k < holes->count; k++) {
        hole h = holes->dword[k];
        h.lanes = h.lanes && op->kind == SIM_OP_SGPR ? UINT64_MAX : h.lanes;
        if (h.lanes)
            write_lanes(w->shadow, span_of(op).first + (unsigned)first + k, h.lanes, h);
    }
}

/** Finds which of a store's data comes from memory. */
static void get_registers(const sim_wave *w, const sim_inst *inst, uint32_t bytes, unsigned part,
                          sim_holes *out) {
    const sim_operand *op = &inst->src[1 + part];
    const int first = 1 + part < inst->num_src ? first_register(w, inst, op, bytes, 0) : -1;
    out->count = (bytes + 3) / 4;
    for (unsigned k = 0; k < out->count; k++) {
        hole h = first < 0 ? (hole){} : undefined_reg(w->shadow, span_of(op).first + k);
        out->dword[k] = h.origin >= SIM_NUM_REGS ? h : (hole){};
    }
}

// ---- accesses to memory

/** Returns whether an atomic overwrites memory without using its old value. */
static bool overwrites(const sim_inst *inst) {
    return (inst->traits.is & SIM_SWAPS) && !(inst->traits.is & SIM_RETURNS);
}

static void check_atomic(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint64_t mask,
                         uint32_t bytes) {
    uint64_t lanes = 0;
    for (uint64_t left = overwrites(inst) ? 0 : mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        lanes |= (uint64_t)(num_written(w, address[lane], bytes) < bytes) << lane;
    }
    hole h = hole_of(w, inst, address, 0, lanes, bytes);
    if (h.lanes) {
        const int lane = inst->traits.klass == SIM_SMEM ? -1 : sim_first_lane(h.lanes);
        sim_report_unwritten(w, inst, h, lane, "the atomic");
    }
}

void sim_unwritten_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint64_t mask,
                          uint32_t bytes) {
    const unsigned access = inst->traits.access, part = w->shadow->memory_parts++;
    const bool loads = access == SIM_ACCESS_LOAD || access == SIM_ACCESS_DMA;
    w->group->shadow->dma.count = 0;
    if (!mask || is_all_written(w, address, mask, bytes))
        return;
    if (loads) {
        sim_holes holes;
        find_holes(w, inst, address, mask, bytes, &holes);
        put_registers(w, inst, &holes, bytes, part);
        w->group->shadow->dma = holes;
        return;
    }
    if (access == SIM_ACCESS_ATOMIC)
        check_atomic(w, inst, address, mask, bytes);
    for (uint64_t left = mask; left; left &= left - 1)
        note_write(w, address[__builtin_ctzll(left)], bytes);
}

// ---- accesses to LDS

static void put_cells(sim_wave *w, const sim_holes *holes, uint8_t *const lane_address[SIM_LANES],
                      uint64_t mask, uint32_t bytes) {
    struct sim_group_shadow *group = w->group->shadow;
    for (uint64_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t at = (uint32_t)(lane_address[lane] - w->group->lds);
        for (uint32_t i = 0; i < bytes; i++) {
            sim_cell *c = &group->cells[(at + i) / 4];
            hole h = i / 4 < holes->count ? holes->dword[i / 4] : (hole){};
            const bool is_hole = h.lanes >> lane & 1;
            c->holes =
                (uint8_t)((c->holes & ~(1u << (at + i) % 4)) | (unsigned)is_hole << (at + i) % 4);
            c->origin = is_hole ? (uint16_t)h.origin : c->origin;
            group->has_holes |= is_hole;
        }
    }
}

/** Adds a lane's part of a dword that the lane reads. */
static void get_cell(const sim_wave *w, int lane, uint32_t at, uint32_t bytes, hole *out) {
    const struct sim_group_shadow *group = w->group->shadow;
    uint32_t num_holes = 0, origin = 0;
    for (uint32_t i = at; i < at + bytes; i++) {
        const sim_cell *c = &group->cells[i / 4];
        num_holes += c->holes >> i % 4 & 1;
        origin = c->origin;
    }
    if (num_holes == bytes && !entry_of(w, origin)->is_told)
        *out = (hole){out->lanes | UINT64_C(1) << lane, origin};
}

static void get_cells(const sim_wave *w, uint8_t *const lane_address[SIM_LANES], uint64_t mask,
                      uint32_t bytes, sim_holes *out) {
    *out = (sim_holes){.count = (bytes + 3) / 4};
    for (uint64_t left = mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t at = (uint32_t)(lane_address[lane] - w->group->lds);
        for (uint32_t k = 0; k < out->count; k++) {
            const uint32_t part = bytes - 4 * k < 4 ? bytes - 4 * k : 4;
            get_cell(w, lane, at + 4 * k, part, &out->dword[k]);
        }
    }
}

static bool is_any(const sim_holes *holes) {
    uint64_t lanes = 0;
    for (unsigned k = 0; k < holes->count; k++)
        lanes |= holes->dword[k].lanes;
    return lanes;
}

void sim_unwritten_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                       uint64_t mask, uint32_t bytes) {
    struct sim_group_shadow *group = w->group->shadow;
    const unsigned access = inst->traits.access, part = w->shadow->lds_parts++;
    if (!group->has_holes && !w->shadow->num_unwritten)
        return;
    sim_holes holes = {};
    if (access == SIM_ACCESS_LOAD) {
        if (group->has_holes) {
            get_cells(w, lane_address, mask, bytes, &holes);
            put_registers(w, inst, &holes, bytes, part);
        }
        return;
    }
    if (access == SIM_ACCESS_DMA)
        holes = group->dma;
    else if (access == SIM_ACCESS_STORE)
        get_registers(w, inst, bytes, part, &holes);
    if (group->has_holes || is_any(&holes))
        put_cells(w, &holes, lane_address, mask, bytes);
}

// ---- reports

bool sim_report_unwritten(sim_wave *w, const sim_inst *inst, hole h, int lane, const char *use) {
    const sim_dispatch *d = w->group->dispatch;
    sim_unwritten *u = entry_of(w, h.origin);
    if (u->is_told)
        return true;
    u->is_told = true;
    const int from = sim_first_lane(u->lanes & h.lanes ? u->lanes & h.lanes : u->lanes);
    sim_fault_about about = {.space = SIM_SPACE_MEMORY,
                             .bytes = u->bytes,
                             .address = u->address[from],
                             .other_pc = u->pc == inst->pc ? 0 : u->pc};
    sim_region region;
    char where[192];
    sim_memory_nearest(d->memory, about.address, &region);
    sim_region_describe(&region, about.address, u->bytes, where, sizeof where);
    return sim_fault_report(w, inst, lane, SIM_FAULT_UNINIT, &about,
                            "%s depends on %u bytes at 0x%llx, which were never written: %s", use,
                            u->bytes, (unsigned long long)about.address, where);
}
