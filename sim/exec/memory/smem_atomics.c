// SPDX-License-Identifier: Apache-2.0
// Scalar atomics of gfx9, through a 64-bit base or a buffer descriptor. Source: "CDNA3" ISA, SMEM.
#include "../../check/hooks.h"
#include "../../look/hooks.h"
#include "steps.h"

/** Returns the address, aligned to 4 bytes as the hardware does. For a buffer, *in_range gets
 *  whether its range holds the address. */
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

/** Updates the data at `at` by the step that is not null, which gives their width. */
static uint64_t update(uint8_t *at, step32 narrow, step64 wide, const uint32_t *data) {
    uint64_t operands[2];
    if (narrow)
        return update32((uint32_t *)(void *)at, narrow, data[0], data[1]);
    memcpy(operands, data, sizeof operands);
    return update64((uint64_t *)(void *)at, wide, operands[0], operands[1]);
}

static void atomic(sim_wave *w, const sim_inst *inst, step32 narrow, step64 wide) {
    const unsigned bytes = narrow ? 4 : 8;
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
    if (at)
        old = update(at, narrow, wide, data);
    if (inst->flags & SIM_GLC)
        memcpy(&w->s[inst->src[0].reg], &old, bytes);
}

// clang-format off
#define ATOMICS(X) \
    X(add) X(sub) X(swap, SIM_SWAPS) X(cmpswap, SIM_COMPARES) X(and) X(or) X(xor) X(umin) X(umax) X(smin) X(smax) X(inc) X(dec)
#define WRAP(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { atomic(w, inst, name##32, nullptr); } \
    static void exec_##name##_x2(sim_wave *w, const sim_inst *inst) { atomic(w, inst, nullptr, name##64); }
ATOMICS(WRAP)

#define ROW(name, function, ...) \
    SIM_ROW(name, function, GFX9, SIM_SMEM, 'i', ":iqi", .access = SIM_ACCESS_ATOMIC __VA_OPT__(, .is =) __VA_ARGS__)
#define LINE(name, ...) \
    ROW("s_atomic_" #name, exec_##name, __VA_ARGS__) ROW("s_atomic_" #name "_x2", exec_##name##_x2, __VA_ARGS__) \
    ROW("s_buffer_atomic_" #name, exec_##name, __VA_ARGS__) \
    ROW("s_buffer_atomic_" #name "_x2", exec_##name##_x2, __VA_ARGS__)
static const sim_opcode opcodes[] = {ATOMICS(LINE)};
// clang-format on
SIM_TABLE(sim_ops_smem_atomics, opcodes);
