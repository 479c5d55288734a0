// SPDX-License-Identifier: Apache-2.0
// Vector memory loads and stores: global, flat, scratch and buffer forms, and loads straight to
// LDS.
#include "../../check/hooks.h"
#include "../../look/hooks.h"
#include "access.h"

/** The kinds of a lane's part of memory, which is widened to a register. */
typedef enum width { U8, I8, U16, I16 } width;

static uint32_t read_narrow(const uint8_t *from, width kind) {
    uint16_t half;
    switch (kind) {
    case U8:
        return *from;
    case I8:
        return (uint32_t)(int8_t)*from;
    default:
        memcpy(&half, from, sizeof half);
        return kind == U16 ? half : (uint32_t)(int16_t)half;
    }
}

static uint32_t width_bytes(width kind) {
    return kind <= I8 ? 1 : 2;
}

// Memory at any alignment, which is read or written whole: waves on other threads poll a flag and a
// value beside it that the hardware moves as one. Volatile accesses are not split.
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32x4 __attribute__((ext_vector_type(4), aligned(1), may_alias));

/** Loads a lane's dwords into rows; what is aligned to 4, 8 or 16 bytes and as long, at once. */
SIM_INLINE void load_lane(uint32_t *rows, const uint8_t *from, unsigned dwords) {
    if (dwords == 4) {
        const any_u32x4 x = *(const volatile any_u32x4 *)from;
        for (unsigned k = 0; k < 4; k++)
            rows[SIM_LANES * k] = x[k];
        return;
    }
    if (dwords >= 2) {
        const uint64_t x = *(const volatile any_u64 *)from;
        rows[0] = (uint32_t)x;
        rows[SIM_LANES] = (uint32_t)(x >> 32);
    }
    if (dwords % 2)
        rows[SIM_LANES * (dwords - 1)] = *(const volatile any_u32 *)(from + 4 * (dwords - 1));
}

/** Stores a lane's dwords, likewise. */
SIM_INLINE void store_lane(const uint32_t *rows, uint8_t *to, unsigned dwords) {
    if (dwords == 4) {
        *(volatile any_u32x4 *)to =
            (any_u32x4){rows[0], rows[SIM_LANES], rows[2 * SIM_LANES], rows[3 * SIM_LANES]};
        return;
    }
    if (dwords >= 2)
        *(volatile any_u64 *)to = rows[0] | (uint64_t)rows[SIM_LANES] << 32;
    if (dwords % 2)
        *(volatile any_u32 *)(to + 4 * (dwords - 1)) = rows[SIM_LANES * (dwords - 1)];
}

/** Writes the dwords of each active lane; a lane out of range loads 0. */
SIM_INLINE void load_rows(sim_wave *w, uint32_t *rows, const sim_access *at, unsigned dwords) {
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        if (at->mask >> lane & 1)
            load_lane(rows + lane, at->host[lane], dwords);
        else
            for (unsigned k = 0; k < dwords; k++)
                rows[SIM_LANES * k + lane] = 0;
    }
}

SIM_INLINE void store_rows(const uint32_t *rows, const sim_access *at, unsigned dwords) {
    for (uint64_t left = at->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        store_lane(rows + lane, at->host[lane], dwords);
    }
}

enum { CHUNK = 16 };

/** Returns whether each of sixteen lanes' `bytes` follow those of the lane before. */
static bool are_side_by_side(uint8_t *const host[CHUNK], uint32_t bytes) {
    uint64_t apart = 0;
    for (unsigned lane = 1; lane < CHUNK; lane++)
        apart |= (uint64_t)(uintptr_t)host[lane] - (uint64_t)(uintptr_t)host[0] - lane * bytes;
    return !apart;
}

/** Loads sixteen lanes' `dwords` in lane order and deals them out to rows. */
SIM_INLINE void load_chunk(uint32_t *rows, uint8_t *const host[CHUNK], unsigned dwords) {
    _Alignas(64) uint32_t data[CHUNK * 4];
    if (are_side_by_side(host, 4 * dwords))
        memcpy(data, host[0], 4 * CHUNK * dwords);
    else
        for (unsigned lane = 0; lane < CHUNK; lane++)
            memcpy(data + dwords * lane, host[lane], 4 * dwords);
    deal16(rows, data, dwords);
}

/** Loads by sixteen lanes, if of each sixteen all are active and reach memory or none is active.
 *  Else returns false. */
SIM_INLINE bool load_chunks(sim_wave *w, uint32_t *rows, const sim_access *at, unsigned dwords) {
    if (at->mask != w->exec)
        return false;
    for (unsigned k = 0; k < SIM_LANES; k += CHUNK) {
        const uint32_t lanes = w->exec >> k & 0xffff;
        if (lanes && lanes != 0xffff)
            return false;
    }
    for (unsigned k = 0; k < SIM_LANES; k += CHUNK)
        if (w->exec >> k & 1)
            load_chunk(rows + k, at->host + k, dwords);
    return true;
}

/** Resolves all lanes before it writes any register, because a load may overwrite its own
 *  address. */
SIM_INLINE void load_dwords(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    sim_access at[4];
    if (!sim_resolve(w, inst, 0, 4 * dwords, false, &at[0]) ||
        load_chunks(w, w->v[inst->dst[0].reg], &at[0], dwords)) {
        return;
    }
    uint32_t *rows = w->v[inst->dst[0].reg];
    if (!sim_is_buffer(&inst->traits) || at[0].mask == w->exec) {
        load_rows(w, rows, &at[0], dwords);
        return;
    }
    for (unsigned k = 0; k < dwords; k++) // each dword has its own range check
        if (!sim_resolve(w, inst, 4 * k, 4, false, &at[k]))
            return;
    for (unsigned k = 0; k < dwords; k++)
        load_rows(w, rows + SIM_LANES * k, &at[k], 1);
}

/** Returns the data to store: they stand after the address in global, flat and scratch forms, and
 *  first in buffer forms. */
static uint32_t *data_rows(sim_wave *w, const sim_inst *inst) {
    return w->v[inst->src[sim_is_buffer(&inst->traits) ? 0 : 1].reg];
}

SIM_INLINE void store_dwords(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    sim_access at;
    const uint32_t *rows = data_rows(w, inst);
    if (!sim_resolve(w, inst, 0, 4 * dwords, true, &at))
        return;
    if (!sim_is_buffer(&inst->traits) || at.mask == w->exec) {
        store_rows(rows, &at, dwords);
        return;
    }
    for (unsigned k = 0; k < dwords; k++) { // each dword has its own range check
        if (!sim_resolve(w, inst, 4 * k, 4, true, &at))
            return;
        store_rows(rows + SIM_LANES * k, &at, 1);
    }
}

static void load_narrow(sim_wave *w, const sim_inst *inst, width kind) {
    sim_access at;
    if (!sim_resolve(w, inst, 0, width_bytes(kind), false, &at))
        return;
    uint32_t *row = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        row[lane] = at.mask >> lane & 1 ? read_narrow(at.host[lane], kind) : 0;
    }
}

/** Loads one half of the register (d16). The other half keeps its value. */
static void load_half(sim_wave *w, const sim_inst *inst, width kind, bool high) {
    sim_access at;
    if (!sim_resolve(w, inst, 0, width_bytes(kind), false, &at))
        return;
    uint32_t *row = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t value = at.mask >> lane & 1 ? read_narrow(at.host[lane], kind) & 0xffff : 0;
        row[lane] = high ? value << 16 | (row[lane] & 0xffff) : value | (row[lane] & 0xffff0000);
    }
}

static void store_narrow(sim_wave *w, const sim_inst *inst, uint32_t bytes, bool high) {
    sim_access at;
    const uint32_t *row = data_rows(w, inst);
    if (!sim_resolve(w, inst, 0, bytes, true, &at))
        return;
    for (uint64_t left = at.mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint32_t value = high ? row[lane] >> 16 : row[lane];
        memcpy(at.host[lane], &value, bytes);
    }
}

/** Returns whether `slot` bytes at an address are the workgroup's LDS. Addresses wrap at 32 bits,
 *  as those of other LDS instructions do. */
static bool fits_lds(const sim_wave *w, uint32_t at, uint32_t slot) {
    return (uint64_t)at + slot <= w->group->dispatch->lds_bytes;
}

/** Tells the observers where load_to_lds writes. */
static void tell_slots(sim_wave *w, const sim_inst *inst, uint32_t base, uint32_t slot) {
    uint8_t *to[SIM_LANES];
    uint64_t mask = 0;
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t at = base + lane * slot;
        to[lane] = w->group->lds + at;
        mask |= (uint64_t)fits_lds(w, at, slot) << lane;
    }
    if (w->shadow)
        sim_check_lds(w, inst, to, mask & w->exec, slot);
    if (w->look)
        sim_look_lds(w, to, mask & w->exec, slot);
}

/** Reports slots beyond the workgroup's LDS, which are not written. */
static void check_slots(sim_wave *w, const sim_inst *inst, uint32_t base, uint32_t slot) {
    uint64_t outside = 0, at[SIM_LANES];
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t address = base + lane * slot;
        at[lane] = address;
        outside |= (uint64_t)!fits_lds(w, address, slot) << lane;
    }
    if (outside & w->exec) [[clang::unlikely]]
        sim_lds_fault(w, inst, outside & w->exec, at, slot);
}

/** Does LDS-DMA: lane i's `bytes` go to M0[15:0] (inferred: M0[17:0] where LDS is larger, as clang
 *  writes the whole address) + offset + i * bytes. Inactive lanes keep their slot; bytes out of
 *  range in memory arrive as 0. */
static void load_to_lds(sim_wave *w, const sim_inst *inst, uint32_t bytes, width kind) {
    sim_access at;
    const uint32_t read_bytes = bytes < 4 ? width_bytes(kind) : bytes, slot = bytes < 4 ? 4 : bytes;
    if (!sim_resolve(w, inst, 0, read_bytes, false, &at))
        return;
    const uint32_t m0_mask = w->group->dispatch->chip->lds_bytes > 65536 ? 0x3ffff : 0xffff;
    const uint32_t base = (w->m0 & m0_mask) + (uint32_t)inst->offset;
    if (w->shadow || w->look) [[clang::unlikely]]
        tell_slots(w, inst, base, slot);
    check_slots(w, inst, base, slot);
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctzll(left), to = base + lane * slot;
        if (!fits_lds(w, to, slot))
            continue;
        uint8_t *out = w->group->lds + to;
        if (!(at.mask >> lane & 1)) {
            memset(out, 0, slot);
        } else if (bytes < 4) {
            uint32_t value = read_narrow(at.host[lane], kind);
            memcpy(out, &value, sizeof value);
        } else {
            memcpy(out, at.host[lane], bytes);
        }
    }
}

// ---- tables. Buffer loads with the modifier "lds" are the LDS-DMA form of the same mnemonic.

SIM_INLINE void load_or_dma(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    if (inst->flags & SIM_LDS)
        load_to_lds(w, inst, 4 * dwords, U16);
    else
        load_dwords(w, inst, dwords);
}

static void load_narrow_or_dma(sim_wave *w, const sim_inst *inst, width kind) {
    if (inst->flags & SIM_LDS)
        load_to_lds(w, inst, 1, kind);
    else
        load_narrow(w, inst, kind);
}

static void exec_load_lds_dword(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 4, U16);
}
static void exec_load_lds_dwordx3(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 12, U16);
}
static void exec_load_lds_dwordx4(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 16, U16);
}
static void exec_load_lds_ubyte(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 1, U8);
}
static void exec_load_lds_sbyte(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 1, I8);
}
static void exec_load_lds_ushort(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 1, U16);
}
static void exec_load_lds_sshort(sim_wave *w, const sim_inst *inst) {
    load_to_lds(w, inst, 1, I16);
}

// clang-format off
// X(suffix, function, arguments)
#define LOADS(X) \
    X(load_dword, load_or_dma, 1) X(load_dwordx2, load_or_dma, 2) X(load_dwordx3, load_or_dma, 3) \
    X(load_dwordx4, load_or_dma, 4) X(load_ubyte, load_narrow_or_dma, U8) \
    X(load_sbyte, load_narrow_or_dma, I8) X(load_ushort, load_narrow_or_dma, U16) \
    X(load_sshort, load_narrow_or_dma, I16)
#define D16_LOADS(X) \
    X(load_ubyte_d16, load_half, U8, false) X(load_ubyte_d16_hi, load_half, U8, true) \
    X(load_sbyte_d16, load_half, I8, false) X(load_sbyte_d16_hi, load_half, I8, true) \
    X(load_short_d16, load_half, U16, false) X(load_short_d16_hi, load_half, U16, true)
#define STORES(X) \
    X(store_dword, store_dwords, 1) X(store_dwordx2, store_dwords, 2) X(store_dwordx3, store_dwords, 3) \
    X(store_dwordx4, store_dwords, 4) X(store_byte, store_narrow, 1, false) X(store_short, store_narrow, 2, false)
#define D16_STORES(X) X(store_byte_d16_hi, store_narrow, 1, true) X(store_short_d16_hi, store_narrow, 2, true)

#define WRAP(name, function, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, __VA_ARGS__); }
LOADS(WRAP)
D16_LOADS(WRAP)
STORES(WRAP)
D16_STORES(WRAP)

#define ROW(form, name, function, archs, types, access_, ...) \
    SIM_ROW(#form "_" #name, exec_##function, archs, SIM_VMEM, 'i', types, .access = SIM_ACCESS_##access_, \
            .addressing = ADDRESSING_##form __VA_OPT__(, .is =) __VA_ARGS__)
#define FORMS(name, function, archs, types, access, ...) \
    ROW(global, name, function, archs, types, access, __VA_ARGS__) \
    ROW(flat, name, function, archs, types, access, __VA_ARGS__) \
    ROW(scratch, name, function, archs, types, access, __VA_ARGS__) \
    ROW(buffer, name, function, archs, types, access, __VA_ARGS__)
#define LOAD_LINES(name, ...) FORMS(name, name, GFX9, "i:", LOAD)
#define STORE_LINES(name, ...) FORMS(name, name, GFX9, ":", STORE)
#define D16_LOAD_LINES(name, ...) FORMS(name, name, GFX9, "i:", LOAD, SIM_IS_D16)
#define D16_STORE_LINES(name, ...) FORMS(name, name, GFX9, ":", STORE, SIM_IS_D16)
#define DMA_LINE(form, name, archs) ROW(form, name, name, archs, ":", DMA, SIM_READS_M0)

// RDNA names loads and stores by bits.
#define RENAMED_LOADS(X) \
    X(load_b32, load_dword) X(load_b64, load_dwordx2) X(load_b96, load_dwordx3) X(load_b128, load_dwordx4) \
    X(load_u8, load_ubyte) X(load_i8, load_sbyte) X(load_u16, load_ushort) X(load_i16, load_sshort)
#define RENAMED_D16_LOADS(X) \
    X(load_d16_u8, load_ubyte_d16) X(load_d16_hi_u8, load_ubyte_d16_hi) X(load_d16_i8, load_sbyte_d16) \
    X(load_d16_hi_i8, load_sbyte_d16_hi) X(load_d16_b16, load_short_d16) X(load_d16_hi_b16, load_short_d16_hi)
#define RENAMED_STORES(X) \
    X(store_b32, store_dword) X(store_b64, store_dwordx2) X(store_b96, store_dwordx3) X(store_b128, store_dwordx4) \
    X(store_b8, store_byte) X(store_b16, store_short)
#define RENAMED_D16_STORES(X) X(store_d16_hi_b8, store_byte_d16_hi) X(store_d16_hi_b16, store_short_d16_hi)
#define RENAMED_LOAD(name, old) FORMS(name, old, GFX11P, "i:", LOAD)
#define RENAMED_STORE(name, old) FORMS(name, old, GFX11P, ":", STORE)
#define RENAMED_D16_LOAD(name, old) FORMS(name, old, GFX11P, "i:", LOAD, SIM_IS_D16)
#define RENAMED_D16_STORE(name, old) FORMS(name, old, GFX11P, ":", STORE, SIM_IS_D16)

static const sim_opcode opcodes[] = {
    RENAMED_LOADS(RENAMED_LOAD) RENAMED_STORES(RENAMED_STORE) RENAMED_D16_LOADS(RENAMED_D16_LOAD)
    RENAMED_D16_STORES(RENAMED_D16_STORE) LOADS(LOAD_LINES) STORES(STORE_LINES) D16_LOADS(D16_LOAD_LINES)
    D16_STORES(D16_STORE_LINES)
    DMA_LINE(global, load_lds_dword, GFX94) DMA_LINE(global, load_lds_ubyte, GFX94)
    DMA_LINE(global, load_lds_sbyte, GFX94) DMA_LINE(global, load_lds_ushort, GFX94)
    DMA_LINE(global, load_lds_sshort, GFX94) DMA_LINE(global, load_lds_dwordx3, GFX950)
    DMA_LINE(global, load_lds_dwordx4, GFX950) DMA_LINE(scratch, load_lds_dword, GFX94)
    DMA_LINE(scratch, load_lds_ubyte, GFX94) DMA_LINE(scratch, load_lds_sbyte, GFX94)
    DMA_LINE(scratch, load_lds_ushort, GFX94) DMA_LINE(scratch, load_lds_sshort, GFX94)};

// clang-format on
SIM_TABLE(sim_ops_vmem, opcodes);
