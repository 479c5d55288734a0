// SPDX-License-Identifier: Apache-2.0
// Vector compares: v_cmp_* writes a lane mask, v_cmpx_* also EXEC. Source: "CDNA3" ISA, VOPC.
#include "vector.h"

/** Writes the mask of a compare. Inactive lanes compare false. gfx9's v_cmpx writes its mask and
 *  EXEC, later chips' v_cmpx EXEC alone. */
static void put_mask(sim_wave *w, const sim_inst *inst, uint64_t mask) {
    mask &= w->exec;
    if (inst->num_dst)
        sim_write_lanes(w, &inst->dst[0], mask);
    if (inst->traits.is & SIM_WRITES_EXEC)
        w->exec = mask;
}

SIM_INLINE void compare32(sim_wave *w, const sim_inst *inst, u32x16 (*op)(u32x16, u32x16)) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    const uint32_t *a = get32(w, inst, plain, 0, tmp[0]), *b = get32(w, inst, plain, 1, tmp[1]);
    uint64_t mask = 0;
    for (unsigned k = 0; k < SIM_LANES; k += 16)
        mask |= (uint64_t)bits16(op(load16(a + k), load16(b + k))) << k;
    put_mask(w, inst, mask);
}

SIM_INLINE void compare64(sim_wave *w, const sim_inst *inst, const char *types,
                          u64x8 (*op)(u64x8, u64x8)) {
    _Alignas(64) uint32_t tmp[2][2 * SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    const uint32_t *a = get(w, inst, plain, 0, types[2], tmp[0]);
    const uint32_t *b = get(w, inst, plain, 1, types[3], tmp[1]);
    uint64_t mask = 0;
    COMPACT for (unsigned k = 0; k < SIM_LANES; k += 8)
        mask |= (uint64_t)bits8(op(load8(a + k, types[2]), load8(b + k, types[3]))) << k;
    put_mask(w, inst, mask);
}

// 16-bit integers in the upper half compare like 32-bit ones.
#define IN_u16(x) ((x) << 16)
#define IN_i16(x) ((i32x16)((x) << 16))

// clang-format off
// X(condition, what it is for operands a and b)
#define FLOAT_CONDITIONS(X, ...) \
    X(f, a != a & a == a, __VA_ARGS__) \
    X(lt, a < b, __VA_ARGS__) \
    X(eq, a == b, __VA_ARGS__) \
    X(le, a <= b, __VA_ARGS__) \
    X(gt, a > b, __VA_ARGS__) \
    X(lg, (a < b) | (a > b), __VA_ARGS__) \
    X(ge, a >= b, __VA_ARGS__) \
    X(o, (a == a) & (b == b), __VA_ARGS__) \
    X(u, (a != a) | (b != b), __VA_ARGS__) \
    X(nge, ~(a >= b), __VA_ARGS__) \
    X(nlg, ~((a < b) | (a > b)), __VA_ARGS__) \
    X(ngt, ~(a > b), __VA_ARGS__) \
    X(nle, ~(a <= b), __VA_ARGS__) \
    X(neq, ~(a == b), __VA_ARGS__) \
    X(nlt, ~(a < b), __VA_ARGS__) \
    X(tru, (a == a) | (a != a), __VA_ARGS__)
#define INTEGER_CONDITIONS(X, ...) \
    X(f, a != a, __VA_ARGS__) \
    X(lt, a < b, __VA_ARGS__) \
    X(eq, a == b, __VA_ARGS__) \
    X(le, a <= b, __VA_ARGS__) \
    X(gt, a > b, __VA_ARGS__) \
    X(ne, a != b, __VA_ARGS__) \
    X(ge, a >= b, __VA_ARGS__) \
    X(t, a == a, __VA_ARGS__)

// X(condition, meaning, type, the macro that makes a block operands, operand types)
#define LIST32(X) \
    FLOAT_CONDITIONS(X, f32, f32x16, IN_f32, "m:ff") \
    FLOAT_CONDITIONS(X, f16, f32x16, IN_f16, "m:hh") \
    INTEGER_CONDITIONS(X, i32, i32x16, IN_i32, "m:ii") \
    INTEGER_CONDITIONS(X, u32, u32x16, IN_u32, "m:ii") \
    INTEGER_CONDITIONS(X, i16, i32x16, IN_i16, "m:ww") \
    INTEGER_CONDITIONS(X, u16, u32x16, IN_u16, "m:ww")
#define LIST64(X) \
    FLOAT_CONDITIONS(X, f64, f64x8, IN_f64, "m:dd") \
    INTEGER_CONDITIONS(X, i64, i64x8, IN_i64, "m:QQ") \
    INTEGER_CONDITIONS(X, u64, u64x8, IN_u64, "m:qq")

// clang-format on
#define WRAP_COMPARE32(condition, meaning, type, block, in, types)                                 \
    static u32x16 condition##_##type(u32x16 x, UNUSED u32x16 y) {                                  \
        UNUSED block a = in(x), b = in(y);                                                         \
        return (u32x16)(meaning);                                                                  \
    }                                                                                              \
    static void exec_##condition##_##type(sim_wave *w, const sim_inst *inst) {                     \
        compare32(w, inst, condition##_##type);                                                    \
    }
#define WRAP_COMPARE64(condition, meaning, type, block, in, types)                                 \
    static u64x8 condition##_##type(u64x8 x, UNUSED u64x8 y) {                                     \
        UNUSED block a = in(x), b = in(y);                                                         \
        return (u64x8)(meaning);                                                                   \
    }                                                                                              \
    static void exec_##condition##_##type(sim_wave *w, const sim_inst *inst) {                     \
        compare64(w, inst, types, condition##_##type);                                             \
    }

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wtautological-compare" // the conditions "never" and "always"
LIST32(WRAP_COMPARE32)
LIST64(WRAP_COMPARE64)
#pragma clang diagnostic pop

// ---- classes: bit 0 signalling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, then +0 ..
// +inf

static uint32_t class_of(bool negative, bool is_nan, bool quiet, bool infinite, bool normal,
                         bool zero) {
    if (is_nan)
        return quiet ? 1 << 1 : 1 << 0;
    const unsigned kind = infinite ? 0 : normal ? 1 : zero ? 3 : 2; // from infinity down to zero
    return negative ? 1u << (2 + kind) : 1u << (9 - kind);
}

static uint32_t class_f32(uint32_t x) {
    const uint32_t exponent = x >> 23 & 255, mantissa = x & 0x7fffff;
    return class_of(x >> 31, exponent == 255 && mantissa, x >> 22 & 1, exponent == 255 && !mantissa,
                    exponent, !exponent && !mantissa);
}

static uint32_t class_f16(uint32_t x) {
    const uint32_t exponent = x >> 10 & 31, mantissa = x & 0x3ff;
    return class_of(x >> 15 & 1, exponent == 31 && mantissa, x >> 9 & 1,
                    exponent == 31 && !mantissa, exponent, !exponent && !mantissa);
}

static uint32_t class_f64(uint64_t x) {
    const uint64_t exponent = x >> 52 & 2047, mantissa = x & UINT64_C(0xfffffffffffff);
    return class_of(x >> 63, exponent == 2047 && mantissa, x >> 51 & 1,
                    exponent == 2047 && !mantissa, exponent, !exponent && !mantissa);
}

static void compare_class(sim_wave *w, const sim_inst *inst, uint32_t (*class_of_bits)(uint32_t)) {
    uint32_t tmp[2][SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    uint64_t mask = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        mask |= (uint64_t)((class_of_bits(a[lane]) & b[lane]) != 0) << lane;
    put_mask(w, inst, mask);
}

static void exec_class_f32(sim_wave *w, const sim_inst *inst) {
    compare_class(w, inst, class_f32);
}
static void exec_class_f16(sim_wave *w, const sim_inst *inst) {
    compare_class(w, inst, class_f16);
}

static void exec_class_f64(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][2 * SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    uint64_t mask = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t bits = a[lane] | (uint64_t)a[SIM_LANES + lane] << 32;
        mask |= (uint64_t)((class_f64(bits) & b[lane]) != 0) << lane;
    }
    put_mask(w, inst, mask);
}

// ---- table. gfx11 and gfx12 print v_cmpx without a destination.

// clang-format off
#define CMP_LINE(name, type, types) SIM_ROW("v_cmp_" #name "_" #type, exec_##name##_##type, ALL, SIM_VALU, 'i', types)
#define CMPX(name, function, archs, types) \
    SIM_ROW("v_cmpx_" #name, exec_##function, archs, SIM_VALU, 'i', types, .is = SIM_WRITES_EXEC)
#define CMPX_LINE(name, type, types) \
    CMPX(name##_##type, name##_##type, GFX9, types) CMPX(name##_##type, name##_##type, GFX11P, &types[1])
#define LINES(condition, meaning, type, block, in, types) \
    CMP_LINE(condition, type, types) CMPX_LINE(condition, type, types)

// RDNA3's name of "tru".
#define T_LINES(type, types) \
    SIM_ROW("v_cmp_t_" #type, exec_tru_##type, GFX11, SIM_VALU, 'i', types) \
    CMPX(t_##type, tru_##type, GFX11, &types[1])

static const sim_opcode opcodes[] = {
    T_LINES(f32, "m:ff") T_LINES(f16, "m:hh") T_LINES(f64, "m:dd")
    LIST32(LINES) LIST64(LINES)
    CMP_LINE(class, f32, "m:fi") CMPX_LINE(class, f32, "m:fi")
    CMP_LINE(class, f16, "m:hw") CMPX_LINE(class, f16, "m:hw")
    CMP_LINE(class, f64, "m:di") CMPX_LINE(class, f64, "m:di")};

// clang-format on
SIM_TABLE(sim_ops_valu_compare, opcodes);
