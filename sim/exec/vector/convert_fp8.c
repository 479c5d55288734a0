// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the 8-bit floats. The same mnemonics use different numbers: FNUZ on
// gfx942, OCP on later chips.
#include "../exec.h"
#include "../fp8.h"

static const sim_fp8 *e4m3_of(const sim_wave *w) {
    return w->group->dispatch->chip->arch == SIM_GFX942 ? &sim_e4m3fnuz : &sim_e4m3fn;
}

static const sim_fp8 *e5m2_of(const sim_wave *w) {
    return w->group->dispatch->chip->arch == SIM_GFX942 ? &sim_e5m2fnuz : &sim_e5m2;
}

// ---- to f32. SDWA selects the byte or the half; without it, the lowest.

static void decode(sim_wave *w, const sim_inst *inst, const sim_fp8 *kind) {
    _Alignas(64) uint32_t tmp[SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 byte = load16(a + k) >> 8 * inst->byte_sel & 255; // byte_sel: gfx12
        store16(result + k, sim_fp8_decode(kind, byte));
    }
    sim_finish32(w, inst, result);
}

static void decode_pair(sim_wave *w, const sim_inst *inst, const sim_fp8 *kind) {
    _Alignas(64) uint32_t tmp[SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp);
    for (unsigned k = 0; k < SIM_LANES; k += 16) { // gfx12 selects the half by op_sel
        u32x16 pair = load16(a + k);
        store16(result + k, sim_fp8_decode(kind, pair & 255));
        store16(result + SIM_LANES + k, sim_fp8_decode(kind, pair >> 8 & 255));
    }
    sim_finish64(w, inst, result);
}

static void exec_v_cvt_f32_fp8(sim_wave *w, const sim_inst *inst) {
    decode(w, inst, e4m3_of(w));
}
static void exec_v_cvt_f32_bf8(sim_wave *w, const sim_inst *inst) {
    decode(w, inst, e5m2_of(w));
}
static void exec_v_cvt_pk_f32_fp8(sim_wave *w, const sim_inst *inst) {
    decode_pair(w, inst, e4m3_of(w));
}
static void exec_v_cvt_pk_f32_bf8(sim_wave *w, const sim_inst *inst) {
    decode_pair(w, inst, e5m2_of(w));
}

// ---- from f32: a pair into one half, or one byte by stochastic rounding; the rest of the register
// stays

static void encode_pair(sim_wave *w, const sim_inst *inst, const sim_fp8 *kind) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const bool saturate = w->mode & SIM_MODE_FP16_OVFL;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 low = sim_fp8_encode(kind, load16(a + k), saturate);
        store16(result + k, low | sim_fp8_encode(kind, load16(b + k), saturate) << 8);
    }
    sim_finish32(w, inst, result);
}

static void encode_random(sim_wave *w, const sim_inst *inst, const sim_fp8 *kind) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    uint32_t *dst = w->v[inst->dst[0].reg], shift = 8 * ((inst->op_sel >> 2 & 3u) | inst->byte_sel);
    const bool saturate = w->mode & SIM_MODE_FP16_OVFL;
    for (uint64_t left = sim_write_mask(w, inst); left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t byte = sim_fp8_encode_random(kind, a[lane], b[lane], saturate);
        dst[lane] = (dst[lane] & ~(255u << shift)) | byte << shift;
    }
}

static void exec_v_cvt_pk_fp8_f32(sim_wave *w, const sim_inst *inst) {
    encode_pair(w, inst, e4m3_of(w));
}
static void exec_v_cvt_pk_bf8_f32(sim_wave *w, const sim_inst *inst) {
    encode_pair(w, inst, e5m2_of(w));
}
static void exec_v_cvt_sr_fp8_f32(sim_wave *w, const sim_inst *inst) {
    encode_random(w, inst, e4m3_of(w));
}
static void exec_v_cvt_sr_bf8_f32(sim_wave *w, const sim_inst *inst) {
    encode_random(w, inst, e5m2_of(w));
}

// clang-format off
#define LINE(name, types, known) SIM_ROW(#name, exec_##name, GFX94 | GFX12, SIM_VALU, known, types)
static const sim_opcode opcodes[] = {
    LINE(v_cvt_f32_fp8, "f:i", 'i') LINE(v_cvt_f32_bf8, "f:i", 'i')
    LINE(v_cvt_pk_f32_fp8, "F:w", 'i') LINE(v_cvt_pk_f32_bf8, "F:w", 'i')
    LINE(v_cvt_pk_fp8_f32, "k:ff", 'l') LINE(v_cvt_pk_bf8_f32, "k:ff", 'l')
    LINE(v_cvt_sr_fp8_f32, "i:fi", '?') LINE(v_cvt_sr_bf8_f32, "i:fi", '?')};
// clang-format on
SIM_TABLE(sim_ops_valu_convert_fp8, opcodes);
