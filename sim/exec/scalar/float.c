// SPDX-License-Identifier: Apache-2.0
// Scalar floats (RDNA3.5 and later): MODE's denormals and rounding apply as they do for vectors.
// Source: "RDNA3.5" and "RDNA4" ISA, SOP1, SOP2, SOPC.
#include "../numbers.h"
#include "scalar.h"

#include <math.h>

typedef enum precision { F32, F16 } precision;

/** Builds the vector from x's bits, because 0 + -0 would be +0. */
static f32x16 splat(float x) {
    return (f32x16)((u32x16){} + f32_bits(x));
}

static bool keeps_denormals(const sim_wave *w, precision p, bool is_output) {
    return w->mode >> ((p == F32 ? 4 : 6) + is_output) & 1;
}

static float source(const sim_wave *w, const sim_inst *inst, unsigned i, precision p) {
    uint32_t bits = sim_read32(w, &inst->src[i]);
    const bool keep = keeps_denormals(w, p, false);
    if (p == F32)
        return as_f32(keep || (bits & 0x7f800000) ? bits : bits & 0x80000000);
    bits = keep || (bits & 0x7c00) ? bits : bits & 0x8000;
    if ((bits & 0x7c00) == 0x7c00) // because a conversion would quiet a NaN
        return as_f32((bits & 0x8000) << 16 | 0x7f800000 | (bits & 0x3ff) << 13);
    return f32_of_f16((u32x16){} + (bits & 0xffff))[0];
}

static void put(sim_wave *w, const sim_inst *inst, precision p, float value) {
    const bool keep = keeps_denormals(w, p, true);
    const uint32_t bits = p == F32 ? f32_bits(value) : f16_of_f32(splat(value))[0];
    const uint32_t exponent = p == F32 ? 0x7f800000 : 0x7c00, sign = p == F32 ? 0x80000000 : 0x8000;
    sim_write32(w, &inst->dst[0], keep || (bits & exponent) ? bits : bits & sign);
}

typedef f32x16 (*binary)(f32x16, f32x16);

static f32x16 add(f32x16 a, f32x16 b) {
    return sum_of(a, b);
}
static f32x16 sub(f32x16 a, f32x16 b) {
    return difference_of(a, b);
}
static f32x16 mul(f32x16 a, f32x16 b) {
    return product_of(a, b);
}

static void run_binary(sim_wave *w, const sim_inst *inst, precision p, binary op) {
    const bool rounding = sim_rounding_begin(w, inst);
    f32x16 a = splat(source(w, inst, 0, p)), b = splat(source(w, inst, 1, p));
    put(w, inst, p, op(a, b)[0]);
    if (rounding)
        sim_rounding_end();
}

static void run_fma(sim_wave *w, const sim_inst *inst, precision p) {
    const bool rounding = sim_rounding_begin(w, inst);
    f32x16 a = splat(source(w, inst, 0, p)), b = splat(source(w, inst, 1, p));
    f32x16 c = splat(source(w, inst, 2, p));
    put(w, inst, p, p == F32 ? fused(a, b, c)[0] : fma_for_f16(a, b, c)[0]);
    if (rounding)
        sim_rounding_end();
}

static void exec_fma_f32(sim_wave *w, const sim_inst *inst) {
    run_fma(w, inst, F32);
}
static void exec_fma_f16(sim_wave *w, const sim_inst *inst) {
    run_fma(w, inst, F16);
}

static void run_unary(sim_wave *w, const sim_inst *inst, precision p, float (*op)(float)) {
    put(w, inst, p, op(source(w, inst, 0, p)));
}

// ---- conversions

static void exec_s_cvt_f32_i32(sim_wave *w, const sim_inst *inst) {
    const bool rounding = sim_rounding_begin(w, inst);
    sim_write32(w, &inst->dst[0], f32_bits((float)(int32_t)sim_read32(w, &inst->src[0])));
    if (rounding)
        sim_rounding_end();
}

static void exec_s_cvt_f32_u32(sim_wave *w, const sim_inst *inst) {
    const bool rounding = sim_rounding_begin(w, inst);
    sim_write32(w, &inst->dst[0], f32_bits((float)sim_read32(w, &inst->src[0])));
    if (rounding)
        sim_rounding_end();
}

/** Truncates and saturates. NaN becomes 0. */
static void exec_s_cvt_i32_f32(sim_wave *w, const sim_inst *inst) {
    const float x = source(w, inst, 0, F32);
    const int32_t value = isnan(x)       ? 0
                          : x >= 0x1p31f ? INT32_MAX
                          : x < -0x1p31f ? INT32_MIN
                                         : (int32_t)x;
    sim_write32(w, &inst->dst[0], (uint32_t)value);
}

static void exec_s_cvt_u32_f32(sim_wave *w, const sim_inst *inst) {
    const float x = source(w, inst, 0, F32);
    const uint32_t value = !(x > 0) ? 0 : x >= 0x1p32f ? UINT32_MAX : (uint32_t)x;
    sim_write32(w, &inst->dst[0], value);
}

static void exec_s_cvt_f16_f32(sim_wave *w, const sim_inst *inst) {
    const bool rounding = sim_rounding_begin(w, inst);
    put(w, inst, F16, source(w, inst, 0, F32));
    if (rounding)
        sim_rounding_end();
}

/** Converts both sources toward zero, one into each half. */
static void exec_s_cvt_pk_rtz_f16_f32(sim_wave *w, const sim_inst *inst) {
    u32x16 zero = {};
    f32x16 a = (f32x16)(zero + sim_read32(w, &inst->src[0]));
    f32x16 b = (f32x16)(zero + sim_read32(w, &inst->src[1]));
    sim_write32(w, &inst->dst[0], (f16_toward_zero(a) | f16_toward_zero(b) << 16)[0]);
}

static void exec_s_cvt_f32_f16(sim_wave *w, const sim_inst *inst) {
    put(w, inst, F32, source(w, inst, 0, F16));
}

static void exec_s_cvt_hi_f32_f16(sim_wave *w, const sim_inst *inst) {
    const uint32_t half = sim_read32(w, &inst->src[0]) >> 16;
    put(w, inst, F32, f32_of_f16((u32x16){} + half)[0]);
}

// ---- compares

static bool lt(float a, float b) {
    return a < b;
}
static bool eq(float a, float b) {
    return a <= b && a >= b;
}
static bool le(float a, float b) {
    return a <= b;
}
static bool gt(float a, float b) {
    return a > b;
}
static bool lg(float a, float b) {
    return a < b || a > b;
}
static bool ge(float a, float b) {
    return a >= b;
}
static bool o(float a, float b) {
    return !isunordered(a, b);
}
static bool u(float a, float b) {
    return isunordered(a, b);
}

static void compare(sim_wave *w, const sim_inst *inst, precision p, bool (*op)(float, float),
                    bool negated) {
    w->scc = op(source(w, inst, 0, p), source(w, inst, 1, p)) != negated;
}

// ---- tables
// clang-format off
// X(name, function, chips)
#define BINARY(X) \
    X(add, add, GFX11P) X(sub, sub, GFX11P) X(mul, mul, GFX11P) \
    X(min_num, min_number, GFX12) X(max_num, max_number, GFX12) \
    X(minimum, minimum, GFX12) X(maximum, maximum, GFX12)
#define UNARY(X) X(ceil, ceilf) X(floor, floorf) X(trunc, truncf) X(rndne, roundevenf)
// X(name, condition, negated)
#define COMPARES(X) \
    X(lt, lt, false) X(eq, eq, false) X(le, le, false) X(gt, gt, false) X(lg, lg, false) X(ge, ge, false) \
    X(o, o, false) X(u, u, false) X(nge, ge, true) X(nlg, lg, true) X(ngt, gt, true) X(nle, le, true) \
    X(neq, eq, true) X(nlt, lt, true)

#define WRAP_BINARY(name, function, archs) \
    static void exec_s_##name##_f32(sim_wave *w, const sim_inst *inst) { run_binary(w, inst, F32, function); } \
    static void exec_s_##name##_f16(sim_wave *w, const sim_inst *inst) { run_binary(w, inst, F16, function); }
#define WRAP_BY_MODE(name) \
    static void exec_s_##name##_f32(sim_wave *w, const sim_inst *inst) { \
        run_binary(w, inst, F32, w->mode & SIM_MODE_IEEE ? name##_ieee : name##_number); \
    } \
    static void exec_s_##name##_f16(sim_wave *w, const sim_inst *inst) { \
        run_binary(w, inst, F16, w->mode & SIM_MODE_IEEE ? name##_ieee : name##_number); \
    }
#define WRAP_UNARY(name, function) \
    static void exec_s_##name##_f32(sim_wave *w, const sim_inst *inst) { run_unary(w, inst, F32, function); } \
    static void exec_s_##name##_f16(sim_wave *w, const sim_inst *inst) { run_unary(w, inst, F16, function); }
#define WRAP_COMPARE(name, condition, negated) \
    static void exec_cmp_##name##_f32(sim_wave *w, const sim_inst *inst) { \
        compare(w, inst, F32, condition, negated); \
    } \
    static void exec_cmp_##name##_f16(sim_wave *w, const sim_inst *inst) { \
        compare(w, inst, F16, condition, negated); \
    }
BINARY(WRAP_BINARY)
WRAP_BY_MODE(min)
WRAP_BY_MODE(max)
UNARY(WRAP_UNARY)
COMPARES(WRAP_COMPARE)

#define OPCODE(name, function, archs, types, ...) SIM_ROW(name, function, archs, SIM_SALU, 'i', types, __VA_ARGS__)
#define LINE(name, archs, types, ...) OPCODE(#name, exec_##name, archs, types, __VA_ARGS__)
#define KEEPING(name, archs, types) LINE(name, archs, types, KEEPS)
#define LINE_BINARY(name, function, archs) \
    KEEPING(s_##name##_f32, archs, "f:ff") KEEPING(s_##name##_f16, archs, "h:hh")
#define LINE_UNARY(name, function) KEEPING(s_##name##_f32, GFX11P, "f:f") KEEPING(s_##name##_f16, GFX11P, "h:h")
#define LINE_COMPARE(name, condition, negated) \
    OPCODE("s_cmp_" #name "_f32", exec_cmp_##name##_f32, GFX11P, ":ff") \
    OPCODE("s_cmp_" #name "_f16", exec_cmp_##name##_f16, GFX11P, ":hh")

static const sim_opcode opcodes[] = {
    BINARY(LINE_BINARY) LINE_BINARY(min, by_mode, GFX11) LINE_BINARY(max, by_mode, GFX11) UNARY(LINE_UNARY) COMPARES(LINE_COMPARE)
    OPCODE("s_fmac_f32", exec_fma_f32, GFX11P, "f:ff+", KEEPS) OPCODE("s_fmac_f16", exec_fma_f16, GFX11P, "h:hh+", KEEPS)
    OPCODE("s_fmaak_f32", exec_fma_f32, GFX11P, "f:fff", KEEPS) OPCODE("s_fmamk_f32", exec_fma_f32, GFX11P, "f:fff", KEEPS)
    KEEPING(s_cvt_f32_i32, GFX11P, "f:i") KEEPING(s_cvt_f32_u32, GFX11P, "f:i") KEEPING(s_cvt_i32_f32, GFX11P, "i:f")
    KEEPING(s_cvt_u32_f32, GFX11P, "i:f") KEEPING(s_cvt_f16_f32, GFX11P, "h:f")
    KEEPING(s_cvt_pk_rtz_f16_f32, GFX11P, "H:ff") KEEPING(s_cvt_f32_f16, GFX11P, "f:h")
    KEEPING(s_cvt_hi_f32_f16, GFX11P, "f:i")};

// clang-format on
SIM_TABLE(sim_ops_salu_float, opcodes);
