// SPDX-License-Identifier: Apache-2.0
// 16-bit vector instructions of RDNA. With true16 each operand is a half of a register, and the
// other half of the destination stays. Source: "RDNA3" and "RDNA4" ISA, VOP1, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

static u32x16 v_mov_b16(u32x16 a) {
    return a;
}
static u32x16 v_not_b16(u32x16 a) {
    return ~a;
}
static u32x16 v_and_b16(u32x16 a, u32x16 b) {
    return a & b;
}
static u32x16 v_or_b16(u32x16 a, u32x16 b) {
    return a | b;
}
static u32x16 v_xor_b16(u32x16 a, u32x16 b) {
    return a ^ b;
}
static u32x16 v_add_nc_i16(u32x16 a, u32x16 b) {
    return a + b;
}
static u32x16 v_sub_nc_i16(u32x16 a, u32x16 b) {
    return a - b;
}

/** mask ? b : a */
static void exec_v_cndmask_b16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint64_t mask = sim_read64(w, &inst->src[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 chosen = lanes16((uint32_t)(mask >> k) & 0xffff);
        store16(result + k, select16(chosen, load16(b + k), load16(a + k)));
    }
    sim_finish32(w, inst, result);
}

/** Swaps two halves. */
static void exec_v_swap_b16(sim_wave *w, const sim_inst *inst) {
    uint32_t *a = w->v[inst->dst[0].reg], *b = w->v[inst->src[0].reg];
    const unsigned to = inst->dst[0].half == SIM_HIGH_HALF ? 16 : 0;
    const unsigned from = inst->src[0].half == SIM_HIGH_HALF ? 16 : 0;
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t x = a[lane] >> to & 0xffff, y = b[lane] >> from & 0xffff;
        a[lane] = (a[lane] & ~(0xffffu << to)) | y << to;
        b[lane] = (b[lane] & ~(0xffffu << from)) | x << from;
    }
}

// ---- dot products

/** Two products and an addend, each step rounded to f32, the sum to f16 or bf16. */
static u32x16 v_dot2_f16_f16(u32x16 a, u32x16 b, u32x16 c) {
    return f16_of_f32(fused_twice(f32_of_f16(a >> 16), f32_of_f16(b >> 16), f32_of_f16(a & 0xffff),
                                  f32_of_f16(b & 0xffff), f32_of_f16(c & 0xffff)));
}

static u32x16 v_dot2_bf16_bf16(u32x16 a, u32x16 b, u32x16 c) {
    f32x16 sum = fused_twice((f32x16)(a & 0xffff0000), (f32x16)(b & 0xffff0000), (f32x16)(a << 16),
                             (f32x16)(b << 16), (f32x16)(c << 16));
    u32x16 bits = (u32x16)sum;
    return select16(is_nan(sum), bits >> 16 | 0x40, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// clang-format off
#define LIST(X) \
    X(1, u32, v_mov_b16, "w:w", GFX11P, 'i') \
    X(1, u32, v_not_b16, "w:w", GFX11P, 'i') \
    X(2, u32, v_and_b16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_or_b16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_xor_b16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_add_nc_i16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_sub_nc_i16, "w:ww", GFX11P, 'i') \
    X(3, u32, v_dot2_f16_f16, "x:HHh", GFX11P, '?', SIM_IS_DOT) \
    X(3, u32, v_dot2_bf16_bf16, "k:WWw", GFX11P, '?', SIM_IS_DOT | SIM_IS_BF16)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    SIM_ROW("v_cndmask_b16", exec_v_cndmask_b16, GFX11P, SIM_VALU, 'i', "w:wwm", .flow = SIM_FLOW_SELECT)
    SIM_ROW("v_swap_b16", exec_v_swap_b16, GFX11P, SIM_VALU, 'i', "w:w", .flow = SIM_FLOW_SWAP)};
// clang-format on
SIM_TABLE(sim_ops_valu_rdna16, opcodes);
