// SPDX-License-Identifier: Apache-2.0
// Vector instructions that read or write lane masks: carries, selects, wide multiply-add.
#include "vector.h"

/** Returns all ones in the lanes of block k whose bit in the mask operand is set. */
SIM_INLINE u32x16 mask_block(uint64_t mask, unsigned k) {
    return lanes16((uint32_t)(mask >> k) & 0xffff);
}

/** Computes a sum or difference with carry in and out. `op` returns the carry as a lane mask. With
 *  clamp, a result that carries becomes `limit`, and the carry stays. */
SIM_INLINE void run_carry(sim_wave *w, const sim_inst *inst, bool has_carry_in, uint32_t limit,
                          u32x16 (*op)(u32x16, u32x16, u32x16 carry, u32x16 *out)) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], result[SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    const uint32_t *a = get32(w, inst, plain, 0, tmp[0]), *b = get32(w, inst, plain, 1, tmp[1]);
    uint64_t carry_in = has_carry_in ? sim_read64(w, &inst->src[2]) : 0, carry = 0;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 sum;
        u32x16 over = op(load16(a + k), load16(b + k), mask_block(carry_in, k) & 1, &sum);
        const bool clamp = inst->flags & SIM_CLAMP;
        store16(result + k, clamp ? select16(over, (u32x16){} + limit, sum) : sum);
        carry |= (uint64_t)bits16(over) << k;
    }
    put32(w, inst, plain, result);
    sim_write_lanes(w, &inst->dst[1], carry & w->exec);
}

SIM_INLINE u32x16 add(u32x16 a, u32x16 b, u32x16 carry, u32x16 *out) {
    u32x16 sum = a + b;
    *out = sum + carry;
    return (u32x16)(sum < a) | (u32x16)(*out < sum);
}

SIM_INLINE u32x16 sub(u32x16 a, u32x16 b, u32x16 borrow, u32x16 *out) {
    u32x16 difference = a - b;
    *out = difference - borrow;
    return (u32x16)(a < b) | (u32x16)(difference < borrow);
}

SIM_INLINE u32x16 subrev(u32x16 a, u32x16 b, u32x16 borrow, u32x16 *out) {
    return sub(b, a, borrow, out);
}

static void exec_v_add_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, false, UINT32_MAX, add);
}
static void exec_v_sub_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, false, 0, sub);
}
static void exec_v_subrev_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, false, 0, subrev);
}
static void exec_v_addc_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, true, UINT32_MAX, add);
}
static void exec_v_subb_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, true, 0, sub);
}
static void exec_v_subbrev_co_u32(sim_wave *w, const sim_inst *inst) {
    run_carry(w, inst, true, 0, subrev);
}

/** Computes mask ? b : a. */
static void exec_v_cndmask_b32(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], result[SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    const uint32_t *a = get32(w, inst, plain, 0, tmp[0]), *b = get32(w, inst, plain, 1, tmp[1]);
    const uint64_t mask = sim_read64(w, &inst->src[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16)
        store16(result + k, select16(mask_block(mask, k), load16(b + k), load16(a + k)));
    put32(w, inst, plain, result);
}

SIM_INLINE u64x8 extended(u64x8 a, bool is_signed) {
    return is_signed ? (u64x8)((i64x8)(a << 32) >> 32) : a;
}

/** Computes a * b + c in 64 bits, with carry out. Clamp gives the nearest 64-bit number. */
SIM_INLINE void multiply_add(sim_wave *w, const sim_inst *inst, bool is_signed) {
    _Alignas(64) uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES], over[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row64(w, inst, 2, tmp[2]);
    const bool clamps = inst->flags & SIM_CLAMP;
    uint64_t carry = 0;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        lane_pair x = load_pair(a + k, 'i'), y = load_pair(b + k, 'i'), z = load_pair(c + k, 'q');
        lane_pair sum, out;
        for (unsigned i = 0; i < 2; i++) {
            u64x8 product = extended(x.of[i], is_signed) * extended(y.of[i], is_signed);
            sum.of[i] = product + z.of[i];
            u64x8 overflow = ~(product ^ z.of[i]) & (product ^ sum.of[i]);
            out.of[i] = is_signed ? (u64x8)((i64x8)overflow >> 63) : (u64x8)(sum.of[i] < z.of[i]);
            u64x8 signs = (u64x8)((i64x8)z.of[i] >> 63); // both summands' where they overflow
            u64x8 limit = is_signed ? signs ^ INT64_MAX : ~(u64x8){};
            u64x8 over_limit = clamps ? out.of[i] : (u64x8){};
            sum.of[i] = (over_limit & limit) | (~over_limit & sum.of[i]);
        }
        store_pair(result + k, sum, 'q');
        store_pair(over + k, out, 'i');
        carry |= (uint64_t)bits16(load16(over + k)) << k;
    }
    sim_finish64(w, inst, result);
    sim_write_lanes(w, &inst->dst[1], carry & w->exec);
}

static void exec_v_mad_u64_u32(sim_wave *w, const sim_inst *inst) {
    multiply_add(w, inst, false);
}
static void exec_v_mad_i64_i32(sim_wave *w, const sim_inst *inst) {
    multiply_add(w, inst, true);
}

// ---- table; the later chips' names follow gfx9's

// clang-format off
#define LINE(name, function, archs, types, ...) \
    SIM_ROW(name, exec_##function, archs, SIM_VALU, 'i', types, .is = SIM_SATURATES __VA_OPT__(|) __VA_ARGS__)

static const sim_opcode opcodes[] = {
    LINE("v_add_co_u32", v_add_co_u32, ALL, "im:ii")
    LINE("v_sub_co_u32", v_sub_co_u32, ALL, "im:ii")
    LINE("v_subrev_co_u32", v_subrev_co_u32, ALL, "im:ii")
    LINE("v_addc_co_u32", v_addc_co_u32, GFX9, "im:iim")
    LINE("v_subb_co_u32", v_subb_co_u32, GFX9, "im:iim")
    LINE("v_subbrev_co_u32", v_subbrev_co_u32, GFX9, "im:iim")
    LINE("v_add_co_ci_u32", v_addc_co_u32, GFX11P, "im:iim")
    LINE("v_sub_co_ci_u32", v_subb_co_u32, GFX11P, "im:iim")
    LINE("v_subrev_co_ci_u32", v_subbrev_co_u32, GFX11P, "im:iim")
    LINE("v_mad_u64_u32", v_mad_u64_u32, GFX9 | GFX11, "qm:iiq", SIM_IS_LOW_FIRST)
    LINE("v_mad_i64_i32", v_mad_i64_i32, GFX9 | GFX11, "Qm:iiQ", SIM_IS_LOW_FIRST)
    LINE("v_mad_co_u64_u32", v_mad_u64_u32, GFX12, "qm:iiq", SIM_IS_LOW_FIRST)
    LINE("v_mad_co_i64_i32", v_mad_i64_i32, GFX12, "Qm:iiQ", SIM_IS_LOW_FIRST)
    SIM_ROW("v_cndmask_b32", exec_v_cndmask_b32, ALL, SIM_VALU, 'i', "i:iim", .flow = SIM_FLOW_SELECT)
    SIM_ROW("v_cndmask_b16", exec_v_cndmask_b32, GFX11P, SIM_VALU, 'i', "w:wwm", .flow = SIM_FLOW_SELECT)};

// clang-format on
SIM_TABLE(sim_ops_valu_mask, opcodes);
