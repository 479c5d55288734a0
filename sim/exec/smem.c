// SPDX-License-Identifier: Apache-2.0
// Scalar memory: loads, stores and atomics through a 64-bit base or a buffer descriptor; clocks; cache control.
#include "exec.h"

#include <time.h>

/** The hardware ignores the two low bits, which the program can hardly want. */
static uint64_t aligned(sim_wave *w, const sim_inst *inst, uint64_t address) {
    if ((address & 3) && (w->group->dispatch->check & SIM_CHECK_ALIGN)) {
        sim_fault_about about = {.space = SIM_SPACE_MEMORY, .address = address};
        sim_fault_report(w, inst, -1, SIM_FAULT_ALIGN, &about,
                         "misaligned: scalar access at 0x%llx, which acts on 0x%llx",
                         (unsigned long long)address, (unsigned long long)(address & ~UINT64_C(3)));
    }
    return address & ~UINT64_C(3);
}

/** Shows what is going to be accessed to whoever looks. */
static void show(sim_wave *w, uint64_t address, uint32_t bytes) {
    if (w->look) [[clang::unlikely]] {
        sim_look_scalar(w, address, bytes);
    }
}

/** Base, register or constant offset, constant offset. A register offset is unsigned. */
static uint64_t address_of(sim_wave *w, const sim_inst *inst) {
    const sim_operand *offset = &inst->src[inst->num_src - 1];
    const sim_operand *base = &inst->src[inst->num_src - 2];
    uint64_t value = offset->kind == SIM_OP_IMM ? offset->value64 : sim_read32(w, offset);
    uint64_t address = sim_read64(w, base) + value + (uint64_t)(int64_t)inst->offset;
    return aligned(w, inst, address);
}

/** Where `bytes` at an address lie here; null after raising a fault. */
static void *reach(sim_wave *w, const sim_inst *inst, uint64_t address, uint32_t bytes,
                   bool is_store) {
    uint8_t *host = sim_wave_host(w, address, bytes);
    if (!host) {
        sim_memory_fault(w, inst, -1, address, bytes, is_store);
    } else if (w->shadow) [[clang::unlikely]] {
        sim_check_memory(w, inst, &address, &host, 1, bytes);
    }
    return host;
}

/** The same for a load: zeros where it is refused. */
static const void *load_from(sim_wave *w, const sim_inst *inst, uint64_t address, uint32_t bytes) {
    static const uint32_t zeros[16];
    const void *host = reach(w, inst, address, bytes, false);
    return host ? host : zeros;
}

/** The base is read before any register is written: a load may overwrite its own base. */
static void load(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    uint64_t address = address_of(w, inst);
    show(w, address, dwords * 4);
    const uint32_t *from = load_from(w, inst, address, dwords * 4);
    memcpy(&w->s[inst->dst[0].reg], from, dwords * 4);
}

/** A byte or a half, extended to a register. */
static void load_narrow(sim_wave *w, const sim_inst *inst, unsigned bytes, bool is_signed) {
    const sim_operand *offset = &inst->src[1];
    uint64_t address = sim_read64(w, &inst->src[0]) + (uint64_t)(int64_t)inst->offset;
    address += offset->kind == SIM_OP_IMM ? offset->value64 : sim_read32(w, offset);
    show(w, address, bytes);
    const uint8_t *from = load_from(w, inst, address, bytes);
    uint32_t value = 0, unused = 32 - 8 * bytes;
    memcpy(&value, from, bytes);
    int32_t extended = (int32_t)(value << unused) >> unused;
    sim_write32(w, &inst->dst[0], is_signed ? (uint32_t)extended : value);
}

/** Buffer form: the descriptor's base and, in bytes, its size; what lies outside reads 0. */
static void buffer_load(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    const sim_operand *offset = &inst->src[1];
    const uint32_t *srd = &w->s[inst->src[0].reg];
    uint64_t base = srd[0] | (uint64_t)(srd[1] & 0xffff) << 32;
    uint64_t stride = srd[1] >> 16 & 0x3fff, size = srd[2] * (stride ? stride : 1);
    uint64_t at = (sim_read32(w, offset) + (uint32_t)inst->offset) & ~UINT32_C(3);
    uint32_t out[16] = {};
    if (w->look) [[clang::unlikely]] {
        uint64_t left = at < size ? (size - at) & ~UINT64_C(3) : 0;
        sim_look_scalar(w, base + at, left < 4 * dwords ? (uint32_t)left : 4 * dwords);
    }
    for (unsigned k = 0; k < dwords && at + 4 * k + 4 <= size; k++) {
        memcpy(&out[k], load_from(w, inst, base + at + 4 * k, 4), 4);
    }
    memcpy(&w->s[inst->dst[0].reg], out, dwords * 4);
}

static void store(sim_wave *w, const sim_inst *inst, unsigned dwords) {
    uint64_t address = address_of(w, inst);
    show(w, address, dwords * 4);
    uint32_t *to = reach(w, inst, address, dwords * 4, true);
    if (to) {
        memcpy(to, &w->s[inst->src[0].reg], dwords * 4);
    }
}

static uint32_t s_atomic_add(uint32_t old, uint32_t data) {
    return old + data;
}
static uint32_t s_atomic_sub(uint32_t old, uint32_t data) {
    return old - data;
}
static uint32_t s_atomic_swap(uint32_t, uint32_t data) {
    return data;
}
static uint32_t s_atomic_and(uint32_t old, uint32_t data) {
    return old & data;
}
static uint32_t s_atomic_or(uint32_t old, uint32_t data) {
    return old | data;
}
static uint32_t s_atomic_xor(uint32_t old, uint32_t data) {
    return old ^ data;
}
static uint32_t s_atomic_umin(uint32_t old, uint32_t data) {
    return old < data ? old : data;
}
static uint32_t s_atomic_umax(uint32_t old, uint32_t data) {
    return old > data ? old : data;
}
/** Counts up to `data`, then starts at 0 again. */
static uint32_t s_atomic_inc(uint32_t old, uint32_t data) {
    return old >= data ? 0 : old + 1;
}
/** Counts down to 0, then starts at `data` again. */
static uint32_t s_atomic_dec(uint32_t old, uint32_t data) {
    return old == 0 || old > data ? data : old - 1;
}

static void atomic(sim_wave *w, const sim_inst *inst, uint32_t (*op)(uint32_t, uint32_t)) {
    uint64_t address = address_of(w, inst);
    show(w, address, 4);
    uint32_t *at = reach(w, inst, address, 4, true), *data = &w->s[inst->src[0].reg];
    if (!at) {
        *data = inst->flags & SIM_GLC ? 0 : *data;
        return;
    }
    uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, op(old, *data), false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    if (inst->flags & SIM_GLC) {
        *data = old;
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/** Core clocks since some moment. */
static void exec_s_memtime(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], now_ns() / 1000 * w->group->dispatch->chip->clock_khz / 1000);
}

/** A clock of 100 MHz that follows real time: programs spin on it. */
static void exec_s_memrealtime(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], now_ns() / 10);
}

/** Caches: there is one coherent memory. */
static void exec_nothing(sim_wave *, const sim_inst *) {}

// ---- tables
// clang-format off

#define LOADS(X) \
    X(s_load_dword, load, 1) X(s_load_dwordx2, load, 2) X(s_load_dwordx4, load, 4) X(s_load_dwordx8, load, 8)\
    X(s_load_dwordx16, load, 16) X(s_load_dwordx3, load, 3) X(s_scratch_load_dword, load, 1) \
    X(s_buffer_load_dword, buffer_load, 1) X(s_buffer_load_dwordx2, buffer_load, 2) \
    X(s_buffer_load_dwordx3, buffer_load, 3) X(s_buffer_load_dwordx4, buffer_load, 4) X(s_buffer_load_dwordx8, buffer_load, 8) \
    X(s_buffer_load_dwordx16, buffer_load, 16)
#define STORES(X) \
    X(s_store_dword, store, 1) X(s_store_dwordx2, store, 2) X(s_store_dwordx4, store, 4)
#define ATOMICS(X) \
    X(s_atomic_add) X(s_atomic_sub) X(s_atomic_swap) X(s_atomic_and) X(s_atomic_or) X(s_atomic_xor) \
    X(s_atomic_umin) X(s_atomic_umax) X(s_atomic_inc) X(s_atomic_dec)

#define WRAP(name, function, dwords) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, dwords); }
#define WRAP_ATOMIC(name) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { atomic(w, inst, name); }

LOADS(WRAP)
STORES(WRAP)
ATOMICS(WRAP_ATOMIC)

#define LINE(name, types) {#name, exec_##name, GFX9, SIM_SMEM, 'i', types},
#define LINE_LOAD(name, function, dwords) LINE(name, "i:qi")
#define LINE_STORE(name, function, dwords) LINE(name, ":iqi")
#define LINE_ATOMIC(name) LINE(name, ":iqi")

// RDNA names loads by bits; those of less than a dword are gfx12's.
#define RENAMED(X) \
    X(load_b32, load_dword) X(load_b64, load_dwordx2) X(load_b96, load_dwordx3) X(load_b128, load_dwordx4) \
    X(load_b256, load_dwordx8) X(load_b512, load_dwordx16)
#define NARROW(X) \
    X(s_load_u8, load_narrow, 1, false) X(s_load_i8, load_narrow, 1, true) X(s_load_u16, load_narrow, 2, false) \
    X(s_load_i16, load_narrow, 2, true)
#define WRAP_NARROW(name, function, bytes, is_signed) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, bytes, is_signed); }
NARROW(WRAP_NARROW)
#define LINE_RENAMED(name, old) \
    {"s_" #name, exec_s_##old, GFX11P, SIM_SMEM, 'i', "i:qi"}, \
    {"s_buffer_" #name, exec_s_buffer_##old, GFX11P, SIM_SMEM, 'i', "i:qi"},
#define LINE_NARROW(name, function, bytes, is_signed) {#name, exec_##name, GFX12, SIM_SMEM, 'i', "i:qi"},

static const sim_opcode opcodes[] = {RENAMED(LINE_RENAMED) NARROW(LINE_NARROW) LOADS(LINE_LOAD) STORES(LINE_STORE) ATOMICS(LINE_ATOMIC)
    LINE(s_memtime, "q:") LINE(s_memrealtime, "q:")
    {"s_dcache_wb", exec_nothing, ALL, SIM_SMEM, 'i', ":"},
    {"s_dcache_inv", exec_nothing, ALL, SIM_SMEM, 'i', ":"},
    {"s_dcache_inv_vol", exec_nothing, ALL, SIM_SMEM, 'i', ":"},
    {"s_dcache_wb_vol", exec_nothing, ALL, SIM_SMEM, 'i', ":"}};

// clang-format on
SIM_TABLE(sim_ops_smem, opcodes);
