// SPDX-License-Identifier: Apache-2.0
// Scalar memory: loads and stores through a 64-bit base or a buffer descriptor; clocks; cache
// control.
#include "../../check/hooks.h"
#include "../../clock/clock.h"
#include "../../look/hooks.h"
#include "../../options.h"
#include "../exec.h"

/** Returns the address without its two low bits, as the hardware ignores them. A program that sets
 *  them is probably wrong. */
static uint64_t aligned(sim_wave *w, const sim_inst *inst, uint64_t address) {
    if ((address & 3) && (w->group->dispatch->check & SIM_CHECK_ALIGN)) {
        sim_fault_about about = {.space = SIM_SPACE_MEMORY, .address = address};
        sim_fault_report(w, inst, -1, SIM_FAULT_ALIGN, &about,
                         "misaligned: scalar access at 0x%llx, which acts on 0x%llx",
                         (unsigned long long)address, (unsigned long long)(address & ~UINT64_C(3)));
    }
    return address & ~UINT64_C(3);
}

/** Shows the coming access to the observer, if there is one. */
static void show(sim_wave *w, uint64_t address, uint32_t bytes) {
    if (w->look) [[clang::unlikely]]
        sim_look_scalar(w, address, bytes);
}

/** Returns the sum of base, register or constant offset, and constant offset. A register offset is
 *  unsigned. */
static uint64_t address_of(sim_wave *w, const sim_inst *inst) {
    const sim_operand *offset = &inst->src[inst->num_src - 1];
    const sim_operand *base = &inst->src[inst->num_src - 2];
    const uint64_t value = offset->kind == SIM_OP_IMM ? offset->value64 : sim_read32(w, offset);
    const uint64_t address = sim_read64(w, base) + value + (uint64_t)(int64_t)inst->offset;
    return aligned(w, inst, address);
}

/** Returns where `bytes` at an address lie on the host, or null after raising a fault. */
static void *reach(sim_wave *w, const sim_inst *inst, uint64_t address, uint32_t bytes,
                   bool is_store) {
    bool goes_on;
    uint8_t *host = sim_reach(w, inst, -1, address, bytes, is_store, &goes_on);
    if (host && w->shadow) [[clang::unlikely]]
        sim_check_memory(w, inst, &address, &host, 1, bytes);
    return host;
}

/** Returns where a load's `bytes` lie on the host, or zeros if the load is refused. */
static const void *load_from(sim_wave *w, const sim_inst *inst, uint64_t address, uint32_t bytes) {
    static const uint32_t zeros[16];
    const void *host = reach(w, inst, address, bytes, false);
    return host ? host : zeros;
}

/** Reads the base before it writes any register, because a load may overwrite its own base. */
static void load(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    const uint64_t address = address_of(w, inst);
    show(w, address, dwords * 4);
    const uint32_t *from = load_from(w, inst, address, dwords * 4);
    memcpy(&w->s[inst->dst[0].reg], from, dwords * 4);
}

static uint32_t extended(const void *from, unsigned bytes, bool is_signed) {
    uint32_t value = 0, unused = 32 - 8 * bytes;
    memcpy(&value, from, bytes);
    return is_signed ? (uint32_t)((int32_t)(value << unused) >> unused) : value;
}

/** Loads a byte or a half, extended to a register. */
static void load_narrow(sim_wave *w, const sim_inst *inst, unsigned bytes, bool is_signed) {
    const sim_operand *offset = &inst->src[1];
    uint64_t address = sim_read64(w, &inst->src[0]) + (uint64_t)(int64_t)inst->offset;
    address += offset->kind == SIM_OP_IMM ? offset->value64 : sim_read32(w, offset);
    show(w, address, bytes);
    sim_write32(w, &inst->dst[0], extended(load_from(w, inst, address, bytes), bytes, is_signed));
}

// ---- buffers: what lies outside reads 0 and is not written, dword by dword

/** Where an access to a buffer begins, and the bytes of it that lie inside. */
typedef struct buffer_part {
    uint64_t address;
    uint32_t bytes;
} buffer_part;

static buffer_part part_of(sim_wave *w, const sim_inst *inst, uint32_t bytes) {
    const sim_operand *offset = &inst->src[inst->num_src - 1];
    const uint32_t *srd = &w->s[inst->src[inst->num_src - 2].reg];
    const uint64_t base = srd[0] | (uint64_t)(srd[1] & 0xffff) << 32,
                   stride = srd[1] >> 16 & 0x3fff;
    const uint64_t size = srd[2] * (stride ? stride : 1), unit = bytes < 4 ? bytes : 4;
    uint64_t at = sim_read32(w, offset) + (uint32_t)inst->offset;
    at &= bytes < 4 ? UINT64_MAX : ~UINT64_C(3);
    const uint64_t left = at < size ? (size - at) / unit * unit : 0;
    buffer_part part = {base + at, left < bytes ? (uint32_t)left : bytes};
    show(w, part.address, part.bytes);
    return part;
}

static void buffer_load_narrow(sim_wave *w, const sim_inst *inst, unsigned bytes, bool is_signed) {
    buffer_part part = part_of(w, inst, bytes);
    const bool inside = part.bytes == bytes;
    const void *from = inside ? load_from(w, inst, part.address, bytes) : nullptr;
    sim_write32(w, &inst->dst[0], from ? extended(from, bytes, is_signed) : 0);
}

static void buffer_load(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    buffer_part part = part_of(w, inst, 4 * dwords);
    uint32_t out[16] = {};
    for (unsigned k = 0; k < part.bytes / 4; k++)
        memcpy(&out[k], load_from(w, inst, part.address + 4 * k, 4), 4);
    memcpy(&w->s[inst->dst[0].reg], out, dwords * 4);
}

static void store(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    const uint64_t address = address_of(w, inst);
    show(w, address, dwords * 4);
    uint32_t *to = reach(w, inst, address, dwords * 4, true);
    if (to)
        memcpy(to, &w->s[inst->src[0].reg], dwords * 4);
}

static void buffer_store(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    buffer_part part = part_of(w, inst, 4 * dwords);
    for (unsigned k = 0; k < part.bytes / 4; k++) {
        uint32_t *to = reach(w, inst, part.address + 4 * k, 4, true);
        if (to)
            *to = w->s[inst->src[0].reg + k];
    }
}

/** Returns whether the offset into scalar scratch is known. The documents disagree on the unit of
 *  an offset in a register: bytes, or blocks of 64. */
static bool is_scratch_offset_known(sim_wave *w, const sim_inst *inst) {
    if (inst->src[inst->num_src - 1].kind == SIM_OP_IMM)
        return true;
    sim_fault_raise(w, inst, -1,
                    "a scalar scratch access with its offset in a register is not "
                    "executed: the documents disagree on its unit");
    return false;
}

static void scratch_load(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    if (is_scratch_offset_known(w, inst))
        load(w, inst, dwords);
}

static void scratch_store(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    if (is_scratch_offset_known(w, inst))
        store(w, inst, dwords);
}

/** Gives the core clocks since some moment. */
static void exec_s_memtime(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], sim_clock_cycles(w->group->dispatch));
}

/** Gives a clock of 100 MHz that never stands, because programs spin on it. */
static void exec_s_memrealtime(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], sim_clock_100mhz(w->group->dispatch));
}

/** Does nothing for a cache, because there is one coherent memory. */
static void exec_nothing(sim_wave *, const sim_inst *) {}

// ---- tables
// clang-format off

#define LOADS(X) \
    X(s_load_dword, load, 1) X(s_load_dwordx2, load, 2) X(s_load_dwordx4, load, 4) X(s_load_dwordx8, load, 8)\
    X(s_load_dwordx16, load, 16) X(s_load_dwordx3, load, 3) \
    X(s_scratch_load_dword, scratch_load, 1) X(s_scratch_load_dwordx2, scratch_load, 2) \
    X(s_scratch_load_dwordx4, scratch_load, 4) \
    X(s_buffer_load_dword, buffer_load, 1) X(s_buffer_load_dwordx2, buffer_load, 2) \
    X(s_buffer_load_dwordx3, buffer_load, 3) X(s_buffer_load_dwordx4, buffer_load, 4) X(s_buffer_load_dwordx8, buffer_load, 8) \
    X(s_buffer_load_dwordx16, buffer_load, 16)
#define STORES(X) \
    X(s_store_dword, store, 1) X(s_store_dwordx2, store, 2) X(s_store_dwordx4, store, 4) \
    X(s_scratch_store_dword, scratch_store, 1) X(s_scratch_store_dwordx2, scratch_store, 2) \
    X(s_scratch_store_dwordx4, scratch_store, 4) X(s_buffer_store_dword, buffer_store, 1) \
    X(s_buffer_store_dwordx2, buffer_store, 2) X(s_buffer_store_dwordx4, buffer_store, 4)
#define WRAP(name, function, dwords) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, dwords); }

LOADS(WRAP)
STORES(WRAP)

#define ROW(name, function, archs, types, access_) \
    SIM_ROW(name, function, archs, SIM_SMEM, 'i', types, .access = SIM_ACCESS_##access_)
#define LINE_LOAD(name, function, dwords) ROW(#name, exec_##name, GFX9, "i:qi", LOAD)
#define LINE_STORE(name, function, dwords) ROW(#name, exec_##name, GFX9, ":iqi", STORE)

// RDNA names loads by bits; those of less than a dword are gfx12's.
#define RENAMED(X) \
    X(load_b32, load_dword) X(load_b64, load_dwordx2) X(load_b96, load_dwordx3) X(load_b128, load_dwordx4) \
    X(load_b256, load_dwordx8) X(load_b512, load_dwordx16)
#define NARROW(X) \
    X(s_load_u8, load_narrow, 1, false) X(s_load_i8, load_narrow, 1, true) X(s_load_u16, load_narrow, 2, false) \
    X(s_load_i16, load_narrow, 2, true) X(s_buffer_load_u8, buffer_load_narrow, 1, false) \
    X(s_buffer_load_i8, buffer_load_narrow, 1, true) X(s_buffer_load_u16, buffer_load_narrow, 2, false) \
    X(s_buffer_load_i16, buffer_load_narrow, 2, true)
#define WRAP_NARROW(name, function, bytes, is_signed) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, bytes, is_signed); }
NARROW(WRAP_NARROW)
#define LINE_RENAMED(name, old) \
    ROW("s_" #name, exec_s_##old, GFX11P, "i:qi", LOAD) \
    ROW("s_buffer_" #name, exec_s_buffer_##old, GFX11P, "i:qi", LOAD)
#define LINE_NARROW(name, function, bytes, is_signed) ROW(#name, exec_##name, GFX12, "i:qi", LOAD)
#define NOTHING(name, archs, types) SIM_ROW(#name, exec_nothing, archs, SIM_SMEM, 'i', types)

static const sim_opcode opcodes[] = {RENAMED(LINE_RENAMED) NARROW(LINE_NARROW) LOADS(LINE_LOAD) STORES(LINE_STORE)
    ROW("s_memtime", exec_s_memtime, GFX9, "q:", LOAD) ROW("s_memrealtime", exec_s_memrealtime, GFX9, "q:", LOAD)
    NOTHING(s_dcache_wb, ALL, ":") NOTHING(s_dcache_inv, ALL, ":") NOTHING(s_dcache_discard, GFX9, ":t")
    NOTHING(s_dcache_discard_x2, GFX9, ":t") NOTHING(s_dcache_inv_vol, ALL, ":") NOTHING(s_dcache_wb_vol, ALL, ":")
    // these ask for a translation and return nothing
    NOTHING(s_atc_probe, ALL, ":t") NOTHING(s_atc_probe_buffer, ALL, ":t")};

// clang-format on
SIM_TABLE(sim_ops_smem, opcodes);
