// SPDX-License-Identifier: Apache-2.0
// Addresses of vector memory instructions: global, flat, scratch and buffer forms, with their range
// checks.
#include "access.h"

#include "../../check/hooks.h"
#include "../../look/hooks.h"

// ---- guest memory

/** Resolves all lanes by one range, with one look-up instead of 64. That is enough in almost every
 *  case. */
static bool resolve_range(sim_wave *w, const uint64_t *address, uint32_t bytes, bool is_store,
                          sim_access *out) {
    uint64_t low = UINT64_MAX, high = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t at =
            out->mask >> lane & 1 ? address[lane] : address[__builtin_ctzll(out->mask)];
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    if (high - low > UINT32_MAX)
        return false;
    uint8_t *host = sim_wave_host(w, low, high - low + bytes);
    if (!host || (is_store && sim_hits_code(w, low, high - low + bytes)))
        return false;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) // inactive lanes may point anywhere
        out->host[lane] = (uint8_t *)((uintptr_t)host + (address[lane] - low));
    return true;
}

static bool resolve_lane(sim_wave *w, const sim_inst *inst, int lane, uint64_t address,
                         uint32_t bytes, bool is_store, sim_access *out) {
    bool goes_on;
    out->host[lane] = sim_reach(w, inst, lane, address, bytes, is_store, &goes_on);
    if (!out->host[lane])
        out->mask &= ~(UINT64_C(1) << lane);
    return goes_on;
}

static bool resolve_lanes(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                          uint32_t bytes, bool is_store, sim_access *out) {
    for (uint64_t left = out->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        if (!resolve_lane(w, inst, lane, address[lane], bytes, is_store, out))
            return false;
    }
    return true;
}

static bool resolve_global(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                           uint32_t bytes, bool is_store, sim_access *out) {
    if (w->look) [[clang::unlikely]]
        sim_look_memory(w, address, out->mask, bytes);
    if (out->mask && !resolve_range(w, address, bytes, is_store, out) &&
        !resolve_lanes(w, inst, address, bytes, is_store, out)) {
        return false;
    }
    if (w->shadow) [[clang::unlikely]]
        sim_check_memory(w, inst, address, out->host, out->mask, bytes);
    return true;
}

// ---- scratch: each lane has its own

static bool resolve_scratch_lane(sim_wave *w, const sim_inst *inst, int lane, uint64_t offset,
                                 uint32_t bytes, bool is_store, sim_access *out) {
    const uint32_t size = w->scratch_bytes;
    if (offset + bytes > size) {
        sim_fault_about about = {SIM_SPACE_SCRATCH, is_store, bytes, offset, 0};
        out->mask &= ~(UINT64_C(1) << lane);
        return sim_fault_report(w, inst, lane, SIM_FAULT_SCRATCH, &about,
                                "scratch %s of %u bytes at %#llx: the kernel has %u bytes a lane",
                                is_store ? "store" : "load", bytes, (unsigned long long)offset,
                                size);
    }
    if (w->look) [[clang::unlikely]]
        sim_look_scratch_lane(w, lane, offset, bytes);
    out->host[lane] = w->scratch + (uint64_t)lane * size + offset;
    return true;
}

/** Returns whether FLAT_SCRATCH gives the base of scratch. gfx90a has no hardware base: without
 *  this register, lanes reach each other's memory. */
static bool is_scratch_ready(sim_wave *w, const sim_inst *inst) {
    const uint64_t want = SIM_SCRATCH_BASE + sim_scratch_offset(w);
    const uint64_t flat_scratch = w->s[102] | (uint64_t)w->s[103] << 32;
    if (w->group->dispatch->chip->arch != SIM_GFX90A || flat_scratch == want)
        return true;
    sim_fault_raise(w, inst, -1, "FLAT_SCRATCH is %#llx, the wave's scratch begins at %#llx",
                    (unsigned long long)flat_scratch, (unsigned long long)want);
    return false;
}

static bool resolve_scratch(sim_wave *w, const sim_inst *inst, uint32_t skip, uint32_t bytes,
                            bool is_store, sim_access *out) {
    const sim_operand *saddr = &inst->src[inst->num_src - 1];
    const sim_operand *vaddr = &inst->src[0];
    const uint32_t base = sim_read32(w, saddr) + (uint32_t)inst->offset + skip;
    if (!is_scratch_ready(w, inst))
        return false;
    for (uint64_t left = out->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t offset = base + (vaddr->kind == SIM_OP_VGPR ? w->v[vaddr->reg][lane] : 0);
        if (!resolve_scratch_lane(w, inst, lane, offset, bytes, is_store, out))
            return false;
    }
    return true;
}

// ---- global and flat

static void global_addresses(const sim_wave *w, const sim_inst *inst, uint32_t skip,
                             uint64_t *address) {
    const sim_operand *saddr = &inst->src[inst->num_src - 1];
    uint64_t base = (uint64_t)(int64_t)inst->offset + skip;
    const uint32_t *low = w->v[inst->src[0].reg];
    if (saddr->kind == SIM_OP_SGPR) { // 64-bit scalar base, unsigned 32-bit vector offset
        base += sim_read64(w, saddr);
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            address[lane] = base + low[lane];
        return;
    }
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        address[lane] = base + (low[lane] | (uint64_t)low[SIM_LANES + lane] << 32);
}

/** Resolves a flat address in LDS. One beyond the allocation is no access. */
static bool resolve_flat_lds(sim_wave *w, const sim_inst *inst, int lane, uint32_t offset,
                             uint32_t bytes, sim_access *out) {
    out->host[lane] = w->group->lds + offset;
    if ((uint64_t)offset + bytes > w->group->dispatch->lds_bytes) {
        uint64_t offsets[SIM_LANES], mask = UINT64_C(1) << lane;
        offsets[lane] = offset;
        out->mask &= ~mask;
        return sim_lds_fault(w, inst, mask, offsets, bytes);
    }
    if (w->look)
        sim_look_lds_lane(w, lane, offset, bytes);
    return true;
}

/** Resolves flat addresses. The upper half of an address says whether it is LDS, scratch or
 *  memory. */
static bool resolve_flat(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint32_t bytes,
                         bool is_store, sim_access *out) {
    bool ok = true;
    uint64_t in_lds = 0, in_memory = 0;
    for (uint64_t left = out->mask; left && ok; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint64_t at = address[lane];
        if (at >> 32 == w->shared_base >> 32) {
            ok = resolve_flat_lds(w, inst, lane, (uint32_t)at, bytes, out);
            in_lds |= UINT64_C(1) << lane;
        } else if (at >> 32 == w->private_base >> 32) {
            ok = is_scratch_ready(w, inst) &&
                 resolve_scratch_lane(w, inst, lane, (uint32_t)at, bytes, is_store, out);
        } else {
            ok = resolve_lane(w, inst, lane, at, bytes, is_store, out);
            in_memory |= UINT64_C(1) << lane;
            if (w->look) [[clang::unlikely]]
                sim_look_memory_lane(w, lane, at, bytes);
        }
    }
    if (w->shadow && ok) [[clang::unlikely]] {
        sim_check_lds(w, inst, out->host, out->mask & in_lds, bytes);
        sim_check_memory(w, inst, address, out->host, out->mask & in_memory, bytes);
    }
    return ok;
}

// ---- buffers

// Which lanes a descriptor lets through, and where swizzling acts, follows what AMD's emulator
// rocjitsu (ROCm/rocm-systems, emulation/rocjitsu) took from gfx950, gfx11 and gfx12 cards; the ISA
// documents contradict it on SOFFSET, and do not describe a swizzled buffer without an index.

/** The checks of an offset, numbered as RDNA's OOB_SELECT. gfx9 chooses by index and stride. */
typedef enum range_rule {
    RANGE_INDEX_AND_OFFSET, // the index in records, the offset in the stride
    RANGE_INDEX,
    RANGE_RECORDS, // only whether there are records
    RANGE_RAW,     // the end in bytes, SOFFSET included
    RANGE_NONE,
} range_rule;

typedef struct buffer {
    uint64_t base;
    uint32_t stride, num_records;
    uint32_t element_size, index_stride; // of swizzling; element_size 0: no swizzling
    bool adds_lane;                      // the lane is part of the index
    range_rule rule;
} buffer;

/** Resolves scratch through its descriptor. The wave's dwords lie in memory as rows of one dword
 *  for each lane: the scalar parts of the address count bytes of whole rows, the vector parts bytes
 *  of the lane. */
static bool resolve_scratch_buffer(sim_wave *w, const sim_inst *inst, uint32_t skip, uint32_t bytes,
                                   bool is_store, sim_access *out) {
    const sim_operand *vaddr = &inst->src[inst->num_src - 3];
    const uint32_t *srd = &w->s[inst->src[inst->num_src - 2].reg];
    const uint32_t rows =
        srd[0] - sim_scratch_offset(w) + sim_read32(w, &inst->src[inst->num_src - 1]);
    if (rows % (4 * SIM_LANES) || (inst->flags & SIM_IDXEN)) {
        sim_fault_raise(w, inst, -1, "scratch rows at %#x: not the wave's own memory", rows);
        return false;
    }
    const uint64_t base = rows / SIM_LANES + (uint32_t)inst->offset + skip;
    for (uint64_t left = out->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint64_t offset = base + (inst->flags & SIM_OFFEN ? w->v[vaddr->reg][lane] : 0);
        if (!resolve_scratch_lane(w, inst, lane, offset, bytes, is_store, out))
            return false;
    }
    return true;
}

/** Reads gfx9's descriptor. gfx9 swizzles in units of 4 bytes, and only where ADD_TID_ENABLE gives
 *  each lane an index. */
static buffer read_gfx9_buffer(const uint32_t *srd, bool idxen) {
    const bool adds_tid = srd[3] >> 23 & 1, is_swizzled = adds_tid && srd[1] >> 31;
    buffer b = {.stride = srd[1] >> 16 & 0x3fff,
                .element_size = is_swizzled ? 4 : 0,
                .adds_lane = adds_tid && (is_swizzled || !idxen)};
    const bool has_index = idxen && b.stride;
    b.rule = adds_tid && !idxen ? RANGE_NONE : has_index ? RANGE_INDEX : RANGE_RAW;
    if (b.adds_lane)
        b.stride |= (srd[3] >> 15 & 15) << 14; // which take the place of the data format
    return b;
}

/** Reads RDNA's descriptor. RDNA swizzles in units of 4, 8 or 16 bytes, only with an index, which
 *  idxen gives as well as ADD_TID_ENABLE. */
static buffer read_rdna_buffer(const uint32_t *srd, bool idxen) {
    const bool adds_tid = srd[3] >> 23 & 1;
    const uint32_t swizzle = idxen || adds_tid ? srd[1] >> 30 : 0;
    buffer b = {.stride = srd[1] >> 16 & 0x3fff,
                .element_size = swizzle ? 2u << swizzle : 0,
                .adds_lane = adds_tid && !idxen,
                .rule = (range_rule)(srd[3] >> 28 & 3)};
    if (b.rule == RANGE_RAW && swizzle && b.stride)
        b.rule = RANGE_INDEX_AND_OFFSET;
    return b;
}

/** Reads the fields of the descriptor. Source: "CDNA3" and "RDNA3" ISA, buffer resource
 *  descriptor. */
static buffer read_buffer(const sim_wave *w, const uint32_t *srd, bool idxen) {
    const bool is_rdna = w->group->dispatch->chip->gfx_major > 9;
    buffer b = is_rdna ? read_rdna_buffer(srd, idxen) : read_gfx9_buffer(srd, idxen);
    b.base = srd[0] | (uint64_t)(srd[1] & 0xffff) << 32;
    b.num_records = srd[2];
    b.index_stride = 8u << (srd[3] >> 21 & 3);
    return b;
}

/** Returns the bytes from the base to an element. A swizzled buffer keeps element i of index_stride
 *  records together. Source: "CDNA3" and "RDNA3" ISA, buffer addressing. */
static uint64_t buffer_offset(const buffer *b, uint32_t index, uint64_t offset) {
    if (!b->element_size)
        return offset + (uint64_t)index * b->stride;
    const uint64_t block = index / b->index_stride, record = index % b->index_stride;
    const uint64_t element = offset / b->element_size, byte = offset % b->element_size;
    return (block * b->stride + element * b->element_size) * b->index_stride +
           record * b->element_size + byte;
}

static bool in_range(const buffer *b, uint32_t index, uint64_t end, uint32_t soffset) {
    switch (b->rule) {
    case RANGE_INDEX_AND_OFFSET:
        return index < b->num_records && end <= b->stride;
    case RANGE_INDEX:
        return index < b->num_records;
    case RANGE_RECORDS:
        return b->num_records;
    case RANGE_RAW:
        return end + soffset <= b->num_records;
    default:
        return true;
    }
}

static bool resolve_buffer(sim_wave *w, const sim_inst *inst, uint32_t skip, uint32_t bytes,
                           bool is_store, sim_access *out) {
    const sim_operand *vaddr = &inst->src[inst->num_src - 3];
    const uint32_t *srd = &w->s[inst->src[inst->num_src - 2].reg];
    if (sim_is_scratch_buffer(srd))
        return resolve_scratch_buffer(w, inst, skip, bytes, is_store, out);
    const bool idxen = inst->flags & SIM_IDXEN, offen = inst->flags & SIM_OFFEN;
    buffer b = read_buffer(w, srd, idxen);
    const uint32_t *first = w->v[vaddr->kind == SIM_OP_VGPR ? vaddr->reg : 0];
    const uint32_t *second = idxen && offen ? first + SIM_LANES : first;
    const uint32_t soffset = sim_read32(w, &inst->src[inst->num_src - 1]);
    uint64_t address[SIM_LANES];
    uint64_t active = out->mask;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t given = idxen ? first[lane] : 0, index = given + (b.adds_lane ? lane : 0);
        // The sum of the vector offset and the instruction's wraps at 32 bits.
        const uint64_t offset =
            (uint64_t)((offen ? second[lane] : 0) + (uint32_t)inst->offset) + skip;
        if (!in_range(&b, idxen ? given : index, offset + bytes, soffset))
            active &= ~(UINT64_C(1) << lane);
        address[lane] = b.base + soffset + buffer_offset(&b, index, offset);
    }
    out->mask &= active;
    return resolve_global(w, inst, address, bytes, is_store, out);
}

bool sim_resolve(sim_wave *w, const sim_inst *inst, uint32_t skip, uint32_t bytes, bool is_store,
                 sim_access *out) {
    uint64_t address[SIM_LANES];
    out->mask = w->exec;
    out->is_lds = false;
    switch (inst->traits.addressing) {
    case SIM_BUFFER:
    case SIM_TYPED_BUFFER:
        return resolve_buffer(w, inst, skip, bytes, is_store, out);
    case SIM_SCRATCH:
        return resolve_scratch(w, inst, skip, bytes, is_store, out);
    case SIM_FLAT:
        global_addresses(w, inst, skip, address);
        return resolve_flat(w, inst, address, bytes, is_store, out);
    default:
        global_addresses(w, inst, skip, address);
        return resolve_global(w, inst, address, bytes, is_store, out);
    }
}

bool sim_resolve_addresses(sim_wave *w, const sim_inst *inst, const uint64_t address[SIM_LANES],
                           uint32_t bytes, bool is_store, sim_access *out) {
    out->mask = w->exec;
    out->is_lds = false;
    return resolve_global(w, inst, address, bytes, is_store, out);
}

// ---- LDS

void sim_resolve_lds(sim_wave *w, const sim_inst *inst, uint32_t offset, uint32_t bytes,
                     sim_access *out) {
    const uint32_t *base = w->v[inst->src[0].reg];
    const uint64_t size = w->group->dispatch->lds_bytes;
    uint64_t inside = 0, at[SIM_LANES];
    out->is_lds = true;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        at[lane] = base[lane] + offset; // wraps at 32 bits, because clang adds offsets to negative
                                        // bases
        const bool fits = at[lane] + bytes <= size;
        inside |= (uint64_t)fits << lane;
        out->host[lane] = w->group->lds + (fits ? at[lane] : 0);
    }
    out->mask = inside & w->exec;
    if (out->mask != w->exec) [[clang::unlikely]]
        sim_lds_fault(w, inst, w->exec & ~inside, at, bytes);
    if (w->shadow) [[clang::unlikely]]
        sim_check_lds(w, inst, out->host, out->mask, bytes);
    if (w->look) [[clang::unlikely]]
        sim_look_lds(w, out->host, out->mask, bytes);
}
