// SPDX-License-Identifier: Apache-2.0
// What RDNA's scalar unit has beyond gfx9's: floats (RDNA3.5 and later), EXEC's instructions for 32
// lanes, 64-bit sums and products (RDNA4). Source: "RDNA3.5" and "RDNA4" ISA, SOP1, SOP2, SOPC.
#include "../numbers.h"

#include <math.h>

// ---- EXEC with 32 lanes: save it, combine it with the source. not0 inverts the source, not1 EXEC.

static uint32_t and_saveexec(uint32_t a, uint32_t exec) {
    return a & exec;
}
static uint32_t or_saveexec(uint32_t a, uint32_t exec) {
    return a | exec;
}
static uint32_t xor_saveexec(uint32_t a, uint32_t exec) {
    return a ^ exec;
}
static uint32_t nand_saveexec(uint32_t a, uint32_t exec) {
    return ~(a & exec);
}
static uint32_t nor_saveexec(uint32_t a, uint32_t exec) {
    return ~(a | exec);
}
static uint32_t xnor_saveexec(uint32_t a, uint32_t exec) {
    return ~(a ^ exec);
}
static uint32_t and_not0_saveexec(uint32_t a, uint32_t exec) {
    return ~a & exec;
}
static uint32_t or_not0_saveexec(uint32_t a, uint32_t exec) {
    return ~a | exec;
}
static uint32_t and_not1_saveexec(uint32_t a, uint32_t exec) {
    return a & ~exec;
}
static uint32_t or_not1_saveexec(uint32_t a, uint32_t exec) {
    return a | ~exec;
}

/** Writes EXEC's lower half; the upper one is 0 with 32 lanes. */
static void write_exec(sim_wave *w, uint32_t value) {
    w->exec = (w->exec & ~(uint64_t)UINT32_MAX) | value;
    w->scc = value != 0;
}

// wrexec stores the new EXEC, not the old one.
static void exec_s_and_not0_wrexec_b32(sim_wave *w, const sim_inst *inst) {
    write_exec(w, ~sim_read32(w, &inst->src[0]) & (uint32_t)w->exec);
    sim_write32(w, &inst->dst[0], (uint32_t)w->exec);
}

static void exec_s_and_not1_wrexec_b32(sim_wave *w, const sim_inst *inst) {
    write_exec(w, sim_read32(w, &inst->src[0]) & ~(uint32_t)w->exec);
    sim_write32(w, &inst->dst[0], (uint32_t)w->exec);
}

static void exec_s_and_not0_wrexec_b64(sim_wave *w, const sim_inst *inst) {
    w->exec &= ~sim_read64(w, &inst->src[0]);
    w->scc = w->exec != 0;
    sim_write64(w, &inst->dst[0], w->exec);
}

static void exec_s_and_not1_wrexec_b64(sim_wave *w, const sim_inst *inst) {
    w->exec = sim_read64(w, &inst->src[0]) & ~w->exec;
    w->scc = w->exec != 0;
    sim_write64(w, &inst->dst[0], w->exec);
}

// ---- integers

/** Each bit of every group of four becomes the group's OR. */
static void exec_s_wqm_b32(sim_wave *w, const sim_inst *inst) {
    const uint32_t a = sim_read32(w, &inst->src[0]);
    const uint32_t out = ((a | a >> 1 | a >> 2 | a >> 3) & 0x11111111) * 15;
    w->scc = out != 0;
    sim_write32(w, &inst->dst[0], out);
}

static void exec_s_pack_hl_b32_b16(sim_wave *w, const sim_inst *inst) {
    const uint32_t a = sim_read32(w, &inst->src[0]), b = sim_read32(w, &inst->src[1]);
    sim_write32(w, &inst->dst[0], a >> 16 | b << 16);
}

/** The scalar register that M0 names beside the given one; beyond the file it is that one. */
static uint32_t indexed(const sim_wave *w, uint16_t reg, uint32_t dwords) {
    const uint64_t at = (uint64_t)reg + w->m0;
    return at + dwords <= 106 ? (uint32_t)at : reg;
}

static void exec_s_movrels_b32(sim_wave *w, const sim_inst *inst) {
    sim_write32(w, &inst->dst[0], w->s[indexed(w, inst->src[0].reg, 1)]);
}

static void exec_s_movrels_b64(sim_wave *w, const sim_inst *inst) {
    const uint32_t *from = &w->s[indexed(w, inst->src[0].reg, 2)];
    sim_write64(w, &inst->dst[0], from[0] | (uint64_t)from[1] << 32);
}

static void exec_s_movreld_b32(sim_wave *w, const sim_inst *inst) {
    if (inst->dst[0].kind != SIM_OP_SGPR)
        return; // null
    w->s[indexed(w, inst->dst[0].reg, 1)] = sim_read32(w, &inst->src[0]);
}

static void exec_s_movreld_b64(sim_wave *w, const sim_inst *inst) {
    if (inst->dst[0].kind != SIM_OP_SGPR)
        return;
    const uint64_t value = sim_read64(w, &inst->src[0]);
    uint32_t *to = &w->s[indexed(w, inst->dst[0].reg, 2)];
    to[0] = (uint32_t)value;
    to[1] = (uint32_t)(value >> 32);
}

/** The source's index in M0[9:0], the destination's in M0[25:16]. */
static void exec_s_movrelsd_2_b32(sim_wave *w, const sim_inst *inst) {
    const uint64_t from = (uint64_t)inst->src[0].reg + (w->m0 & 0x3ff);
    const uint64_t to = (uint64_t)inst->dst[0].reg + (w->m0 >> 16 & 0x3ff);
    if (inst->dst[0].kind == SIM_OP_SGPR)
        w->s[to < 106 ? to : inst->dst[0].reg] = w->s[from < 106 ? from : inst->src[0].reg];
}

static void exec_s_add_nc_u64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], sim_read64(w, &inst->src[0]) + sim_read64(w, &inst->src[1]));
}
static void exec_s_sub_nc_u64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], sim_read64(w, &inst->src[0]) - sim_read64(w, &inst->src[1]));
}
static void exec_s_mul_u64(sim_wave *w, const sim_inst *inst) {
    sim_write64(w, &inst->dst[0], sim_read64(w, &inst->src[0]) * sim_read64(w, &inst->src[1]));
}

// ---- floats: MODE's denormals and rounding hold as for vectors

typedef enum precision { F32, F16 } precision;

/** Of bits, since 0 + -0 would be +0. */
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
    if ((bits & 0x7c00) == 0x7c00) // a conversion would quiet a NaN
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

/** Truncates, saturates; NaN is 0. */
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
#define SAVEEXEC(X) \
    X(and_saveexec, AND) X(or_saveexec, OR) X(xor_saveexec, ANY) X(nand_saveexec, AND) X(nor_saveexec, OR) \
    X(xnor_saveexec, ANY) X(and_not0_saveexec, AND_NOT0) X(or_not0_saveexec, OR_NOT0) \
    X(and_not1_saveexec, AND_NOT1) X(or_not1_saveexec, OR_NOT1)
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

#define WRAP_SAVEEXEC(name, logic) \
    static void exec_s_##name##_b32(sim_wave *w, const sim_inst *inst) { \
        uint32_t a = sim_read32(w, &inst->src[0]), old = (uint32_t)w->exec; \
        sim_write32(w, &inst->dst[0], old); \
        write_exec(w, name(a, old)); \
    }
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
SAVEEXEC(WRAP_SAVEEXEC)
BINARY(WRAP_BINARY)
WRAP_BY_MODE(min)
WRAP_BY_MODE(max)
UNARY(WRAP_UNARY)
COMPARES(WRAP_COMPARE)

#define OPCODE(name, function, archs, types, ...) SIM_ROW(name, function, archs, SIM_SALU, 'i', types, __VA_ARGS__)
#define LINE(name, archs, types, ...) OPCODE(#name, exec_##name, archs, types, __VA_ARGS__)
#define SAVES(logic_) .is = SIM_WRITES_EXEC, .logic = SIM_LOGIC_##logic_
#define LINE_SAVEEXEC(name, logic_) LINE(s_##name##_b32, GFX11P, "i:i", SAVES(logic_))
#define KEEPS .is = SIM_KEEPS_SCC
#define KEEPING(name, archs, types) LINE(name, archs, types, KEEPS)
#define LINE_BINARY(name, function, archs) \
    KEEPING(s_##name##_f32, archs, "f:ff") KEEPING(s_##name##_f16, archs, "h:hh")
#define LINE_UNARY(name, function) KEEPING(s_##name##_f32, GFX11P, "f:f") KEEPING(s_##name##_f16, GFX11P, "h:h")
#define LINE_COMPARE(name, condition, negated) \
    OPCODE("s_cmp_" #name "_f32", exec_cmp_##name##_f32, GFX11P, ":ff") \
    OPCODE("s_cmp_" #name "_f16", exec_cmp_##name##_f16, GFX11P, ":hh")
#define INDEXES(is_) .is = SIM_KEEPS_SCC | SIM_READS_M0 | is_
#define FROM INDEXES(SIM_INDEXES_SRC)
#define TO INDEXES(SIM_INDEXES_DST)

static const sim_opcode opcodes[] = {
    SAVEEXEC(LINE_SAVEEXEC) LINE(s_and_not0_wrexec_b32, GFX11P, "i:i", SAVES(AND_NOT0))
    LINE(s_and_not1_wrexec_b32, GFX11P, "i:i", SAVES(AND_NOT1))
    LINE(s_and_not0_wrexec_b64, GFX11P, "q:q", SAVES(AND_NOT0))
    LINE(s_and_not1_wrexec_b64, GFX11P, "q:q", SAVES(AND_NOT1))
    OPCODE("s_andn1_wrexec_b64", exec_s_and_not0_wrexec_b64, GFX9, "q:q", SAVES(AND_NOT0))
    OPCODE("s_andn2_wrexec_b64", exec_s_and_not1_wrexec_b64, GFX9, "q:q", SAVES(AND_NOT1))
    LINE(s_wqm_b32, ALL, "i:i") LINE(s_pack_hl_b32_b16, GFX11P, "i:ii", KEEPS)
    LINE(s_movrels_b32, ALL, "i:i", FROM) LINE(s_movrels_b64, ALL, "q:q", FROM)
    LINE(s_movreld_b32, ALL, "i:i", TO) LINE(s_movreld_b64, ALL, "q:q", TO)
    LINE(s_movrelsd_2_b32, GFX11P, "i:i", INDEXES(SIM_INDEXES_SRC | SIM_INDEXES_DST | SIM_INDEXES_BOTH))
    KEEPING(s_add_nc_u64, GFX12, "q:qq") KEEPING(s_sub_nc_u64, GFX12, "q:qq") KEEPING(s_mul_u64, GFX12, "q:qq")
    BINARY(LINE_BINARY) LINE_BINARY(min, by_mode, GFX11) LINE_BINARY(max, by_mode, GFX11) UNARY(LINE_UNARY) COMPARES(LINE_COMPARE)
    OPCODE("s_fmac_f32", exec_fma_f32, GFX11P, "f:ff+", KEEPS) OPCODE("s_fmac_f16", exec_fma_f16, GFX11P, "h:hh+", KEEPS)
    OPCODE("s_fmaak_f32", exec_fma_f32, GFX11P, "f:fff", KEEPS) OPCODE("s_fmamk_f32", exec_fma_f32, GFX11P, "f:fff", KEEPS)
    KEEPING(s_cvt_f32_i32, GFX11P, "f:i") KEEPING(s_cvt_f32_u32, GFX11P, "f:i") KEEPING(s_cvt_i32_f32, GFX11P, "i:f")
    KEEPING(s_cvt_u32_f32, GFX11P, "i:f") KEEPING(s_cvt_f16_f32, GFX11P, "h:f") KEEPING(s_cvt_f32_f16, GFX11P, "f:h")
    KEEPING(s_cvt_hi_f32_f16, GFX11P, "f:i")};

// clang-format on
SIM_TABLE(sim_ops_salu_rdna, opcodes);
