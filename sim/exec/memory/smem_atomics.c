// SPDX-License-Identifier: Apache-2.0
// Scalar atomics of gfx9, through a 64-bit base or a buffer descriptor. Source: "CDNA3" ISA, SMEM.
#include "../../check/hooks.h"
#include "../../look/hooks.h"
#include "../exec.h"

// ---- what they do: the new value from the old, the data, and the value to compare with

typedef uint64_t (*step)(uint64_t old, uint64_t data, uint64_t compare);

static uint64_t step_add(uint64_t old, uint64_t data, uint64_t) {
    return old + data;
}
static uint64_t step_sub(uint64_t old, uint64_t data, uint64_t) {
    return old - data;
}
static uint64_t step_swap(uint64_t, uint64_t data, uint64_t) {
    return data;
}
static uint64_t step_cmpswap(uint64_t old, uint64_t data, uint64_t compare) {
    return old == compare ? data : old;
}
static uint64_t step_and(uint64_t old, uint64_t data, uint64_t) {
    return old & data;
}
static uint64_t step_or(uint64_t old, uint64_t data, uint64_t) {
    return old | data;
}
static uint64_t step_xor(uint64_t old, uint64_t data, uint64_t) {
    return old ^ data;
}
static uint64_t step_umin(uint64_t old, uint64_t data, uint64_t) {
    return old < data ? old : data;
}
static uint64_t step_umax(uint64_t old, uint64_t data, uint64_t) {
    return old > data ? old : data;
}
static uint64_t step_smin(uint64_t old, uint64_t data, uint64_t) {
    return (int64_t)old < (int64_t)data ? old : data;
}
static uint64_t step_smax(uint64_t old, uint64_t data, uint64_t) {
    return (int64_t)old > (int64_t)data ? old : data;
}
/** Counts up to `data`, then starts at 0 again. */
static uint64_t step_inc(uint64_t old, uint64_t data, uint64_t) {
    return old >= data ? 0 : old + 1;
}
/** Counts down to 0, then starts at `data` again. */
static uint64_t step_dec(uint64_t old, uint64_t data, uint64_t) {
    return old == 0 || old > data ? data : old - 1;
}

// ---- on memory

/** 32-bit values compare as signed numbers where the step does. */
static uint64_t widened(uint32_t value, bool is_signed) {
    return is_signed ? (uint64_t)(int32_t)value : value;
}

static uint64_t update32(uint32_t *at, step op, bool is_signed, const uint32_t *data) {
    uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED), next;
    do {
        next = (uint32_t)op(widened(old, is_signed), widened(data[0], is_signed),
                            widened(data[1], is_signed));
    } while (
        !__atomic_compare_exchange_n(at, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return old;
}

static uint64_t update64(uint64_t *at, step op, const uint32_t *data) {
    uint64_t old = __atomic_load_n(at, __ATOMIC_RELAXED), operands[2];
    memcpy(operands, data, sizeof operands);
    while (!__atomic_compare_exchange_n(at, &old, op(old, operands[0], operands[1]), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return old;
}

/** The address, aligned to 4 bytes as the hardware does. In a buffer, *in_range says whether its
 *  range holds it. */
static uint64_t address_of(const sim_wave *w, const sim_inst *inst, bool is_buffer, unsigned bytes,
                           bool *in_range) {
    const sim_operand *offset = &inst->src[2];
    uint64_t at = offset->kind == SIM_OP_IMM ? offset->value64 : sim_read32(w, offset);
    at += (uint64_t)(int64_t)inst->offset;
    *in_range = true;
    if (!is_buffer)
        return (sim_read64(w, &inst->src[1]) + at) & ~UINT64_C(3);
    const uint32_t *srd = &w->s[inst->src[1].reg];
    const uint64_t stride = srd[1] >> 16 & 0x3fff;
    *in_range = (at & ~UINT64_C(3)) + bytes <= srd[2] * (stride ? stride : 1);
    return (srd[0] | (uint64_t)(srd[1] & 0xffff) << 32) + (at & ~UINT64_C(3));
}

static void atomic(sim_wave *w, const sim_inst *inst, step op, bool is_signed, unsigned bytes) {
    bool is_buffer = inst->src[1].count == 4, in_range;
    uint64_t address = address_of(w, inst, is_buffer, bytes, &in_range), old = 0;
    uint32_t data[4] = {};
    memcpy(data, &w->s[inst->src[0].reg], sizeof *data * inst->src[0].count);
    if (w->look && in_range) [[clang::unlikely]]
        sim_look_scalar(w, address, bytes);
    bool goes_on;
    uint8_t *at = in_range ? sim_reach(w, inst, -1, address, bytes, true, &goes_on) : nullptr;
    if (at && w->shadow) [[clang::unlikely]]
        sim_check_memory(w, inst, &address, &at, 1, bytes);
    if ((uintptr_t)at & (bytes - 1)) {
        sim_fault_raise(w, inst, -1,
                        "atomic on %u bytes at an address that is not a multiple of them", bytes);
        return;
    }
    if (at) {
        old = bytes == 4 ? update32((uint32_t *)(void *)at, op, is_signed, data)
                         : update64((uint64_t *)(void *)at, op, data);
    }
    if (inst->flags & SIM_GLC)
        memcpy(&w->s[inst->src[0].reg], &old, bytes);
}

// clang-format off
#define ATOMICS(X) \
    X(add, false) X(sub, false) X(swap, false, SIM_SWAPS) X(cmpswap, false, SIM_COMPARES) X(and, false) X(or, false) X(xor, false) \
    X(umin, false) X(umax, false) X(smin, true) X(smax, true) X(inc, false) X(dec, false)
#define WRAP(name, is_signed, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { atomic(w, inst, step_##name, is_signed, 4); } \
    static void exec_##name##_x2(sim_wave *w, const sim_inst *inst) { atomic(w, inst, step_##name, is_signed, 8); }
ATOMICS(WRAP)

#define ROW(name, function, ...) \
    SIM_ROW(name, function, GFX9, SIM_SMEM, 'i', ":iqi", .access = SIM_ACCESS_ATOMIC __VA_OPT__(, .is =) __VA_ARGS__)
#define LINE(name, is_signed, ...) \
    ROW("s_atomic_" #name, exec_##name, __VA_ARGS__) ROW("s_atomic_" #name "_x2", exec_##name##_x2, __VA_ARGS__) \
    ROW("s_buffer_atomic_" #name, exec_##name, __VA_ARGS__) \
    ROW("s_buffer_atomic_" #name "_x2", exec_##name##_x2, __VA_ARGS__)
static const sim_opcode opcodes[] = {ATOMICS(LINE)};
// clang-format on
SIM_TABLE(sim_ops_smem_atomics, opcodes);
