// SPDX-License-Identifier: Apache-2.0
// gfx950's scaled conversions: pairs of 4-bit and 8-bit floats to and from wider ones, times or divided by a power
// of two, the exponent of the last source. Source: "CDNA4" ISA, v_cvt_scalef32_*; the OCP microscaling formats.
#include "exec.h"
#include "fp8.h"

#include <math.h>

/** 2^(exponent - 127) of an f32 pattern; the pattern of NaN and infinity stands for NaN. */
static double scale_of(uint32_t bits) {
    int exponent = (int)(bits >> 23 & 255);
    return exponent == 255 ? NAN : ldexp(1, exponent - 127);
}

static double fp4_value(uint32_t bits) {
    static const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return bits & 8 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
}

/** To nearest, ties to even; beyond 6: 6. There is no NaN: it becomes 6 too. */
static uint32_t fp4_nearest(double value) {
    uint32_t sign = signbit(value) ? 8 : 0, best = 7;
    double x = fabs(value);
    for (uint32_t bits = 7; bits-- > 0;) {
        double mine = fabs(x - fp4_value(bits)), least = fabs(x - fp4_value(best));
        if (mine < least || (mine == least && !(bits & 1))) {
            best = bits;
        }
    }
    return sign | best;
}

/** op_sel bits 0 and 1 choose the byte that holds the pair. */
static void exec_v_cvt_scalef32_pk_f32_fp4(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][SIM_LANES], result[2 * SIM_LANES], shift = 8 * (inst->op_sel & 3u);
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *scale = sim_row32(w, inst, 1, tmp[1]);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint32_t byte = a[lane] >> shift & 255;
        result[lane] = f32_bits((float)(fp4_value(byte & 15) * scale_of(scale[lane])));
        result[SIM_LANES + lane] = f32_bits((float)(fp4_value(byte >> 4) * scale_of(scale[lane])));
    }
    sim_finish64(w, inst, result);
}

/** op_sel bits 2 and 3 choose the byte that is written; the others stay. */
static void exec_v_cvt_scalef32_pk_fp4_f32(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[3][SIM_LANES], shift = 8 * (inst->op_sel >> 2 & 3u);
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *scale = sim_row32(w, inst, 2, tmp[2]);
    uint32_t *dst = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        int lane = __builtin_ctzll(left);
        double by = scale_of(scale[lane]);
        uint32_t byte = fp4_nearest((double)as_f32(a[lane]) / by) |
                        fp4_nearest((double)as_f32(b[lane]) / by) << 4;
        dst[lane] = (dst[lane] & ~(255u << shift)) | byte << shift;
    }
}

static uint32_t bf16_of(float value) {
    uint32_t bits = f32_bits(value);
    return isnan(value) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/** op_sel bit 0 chooses the half that holds the pair. */
static void exec_v_cvt_scalef32_pk_bf16_fp8(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][SIM_LANES], result[SIM_LANES], shift = inst->op_sel & 1 ? 16 : 0;
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *scale = sim_row32(w, inst, 1, tmp[1]);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        u32x16 pair = {a[lane] >> shift & 255, a[lane] >> (shift + 8) & 255};
        pair = sim_fp8_decode(&sim_e4m3fn, pair);
        double by = scale_of(scale[lane]);
        result[lane] = bf16_of((float)((double)as_f32(pair[0]) * by)) |
                       bf16_of((float)((double)as_f32(pair[1]) * by)) << 16;
    }
    sim_finish32(w, inst, result);
}

// clang-format off
#define LINE(name, types) {#name, exec_##name, GFX950, SIM_VALU, '?', types},
static const sim_opcode opcodes[] = {
    LINE(v_cvt_scalef32_pk_f32_fp4, "F:if")
    LINE(v_cvt_scalef32_pk_fp4_f32, "i:fff")
    LINE(v_cvt_scalef32_pk_bf16_fp8, "i:if")};
// clang-format on
SIM_TABLE(sim_ops_valu_scale, opcodes);
