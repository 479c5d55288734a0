// SPDX-License-Identifier: Apache-2.0
// Fused multiply-add in f32. op_sel_hi says which sources are f16 halves; the others are f32.
// Source: "CDNA3" ISA, VOP3P.
#include "../numbers.h"
#include "vector.h"

/** Returns whether source i is a float constant of the encoding. If it stands for a half, LLVM's
 *  operand types give it the f16 bits in its lower half and zeros above (the disassembler's MCInst
 *  says 0x3c00 for 1.0). */
static bool is_float_constant(const sim_inst *inst, unsigned i) {
    const uint32_t field = inst->word[1] >> 9 * i & 0x1ff;
    return field >= 240 && field <= 248;
}

static f32x16 flushed_unless(f32x16 x, bool kept) {
    return kept ? x : flush_f32(x);
}

static f32x16 mixed_source(const sim_wave *w, const sim_inst *inst, unsigned i, const uint32_t *row,
                           unsigned k) {
    u32x16 block = load16(row + k);
    const bool is_half = inst->op_sel_hi >> i & 1, high = inst->op_sel >> i & 1;
    block = is_half && is_float_constant(inst, i) ? f16_of_f32(block) : block;
    f32x16 value = is_half ? f32_of_f16((high ? block >> 16 : block) & 0xffff)
                           : flushed_unless((f32x16)block, w->mode >> 4 & 1);
    value = inst->src[i].mods & SIM_ABS ? __builtin_elementwise_abs(value) : value;
    return inst->src[i].mods & SIM_NEG ? -value : value;
}

typedef enum mixed_result { MIXED_F32, MIXED_LOW, MIXED_HIGH } mixed_result;

static void mixed_fma(sim_wave *w, const sim_inst *inst, mixed_result where) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    uint32_t *dst = w->v[inst->dst[0].reg];
    const uint32_t *src[3];
    for (unsigned i = 0; i < 3; i++)
        src[i] = get32(w, inst, true, i, tmp[i]);
    const bool rounding = sim_rounding_begin(w, inst);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 a = mixed_source(w, inst, 0, src[0], k), b = mixed_source(w, inst, 1, src[1], k);
        f32x16 c = mixed_source(w, inst, 2, src[2], k), sum = fused(a, b, c);
        u32x16 keep = is_infinite(a) | is_infinite(b) | is_infinite(c);
        sum = flushed_unless(sum, w->mode >> 5 & 1);
        sum = inst->flags & SIM_CLAMP ? clamp_to_one(sum) : sum;
        u32x16 half = sim_limit_f16(w, f16_of_f32(sum), keep), old = load16(dst + k);
        half = where == MIXED_F32 ? (u32x16)sum : half;
        half = where == MIXED_LOW ? (old & 0xffff0000) | half : half;
        store16(result + k, where == MIXED_HIGH ? (old & 0xffff) | half << 16 : half);
    }
    if (rounding)
        sim_rounding_end();
    store_masked(dst, result, w->exec);
}

static void exec_v_fma_mix_f32(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_F32);
}
static void exec_v_fma_mixlo_f16(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_LOW);
}
static void exec_v_fma_mixhi_f16(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_HIGH);
}

// clang-format off
#define LINE(name) SIM_ROW(#name, exec_##name, ALL, SIM_VALU, 'i', "f:fff", .is = SIM_MIXES_HALVES)
static const sim_opcode opcodes[] = {LINE(v_fma_mix_f32) LINE(v_fma_mixlo_f16) LINE(v_fma_mixhi_f16)};
// clang-format on
SIM_TABLE(sim_ops_valu_mix, opcodes);
