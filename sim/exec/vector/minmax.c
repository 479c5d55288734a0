// SPDX-License-Identifier: Apache-2.0
// Minimum, maximum and median. For floats up to RDNA3, MODE's bit IEEE chooses the rule: with it, a
// signalling NaN makes the result a NaN; without it, and in RDNA4's _num forms, a number beats
// every NaN. RDNA4's minimum and maximum keep each NaN. -0 is below +0. Source: "CDNA3", "RDNA3"
// and "RDNA4" ISA, VOP2 and VOP3.
#include "../numbers.h"
#include "half.h"
#include "vector.h"

// ---- integers

static u32x16 v_min_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_min(a, b);
}
static u32x16 v_max_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_max(a, b);
}
static i32x16 v_min_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_min(a, b);
}
static i32x16 v_max_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_max(a, b);
}

// clang-format off
#define INTEGERS(X) X(u32x16, u32) X(i32x16, i32) X(u32x16, u16) X(u32x16, i16)
#define DEFINE_INTEGERS(block, type) \
    static block v_min3_##type(block a, block b, block c) { return v_min_##type(v_min_##type(a, b), c); } \
    static block v_max3_##type(block a, block b, block c) { return v_max_##type(v_max_##type(a, b), c); } \
    static block v_med3_##type(block a, block b, block c) { \
        return v_max_##type(v_min_##type(a, b), v_min_##type(v_max_##type(a, b), c)); \
    }
INTEGERS(DEFINE_INTEGERS)
// clang-format on

static i32x16 v_minmax_i32(i32x16 a, i32x16 b, i32x16 c) {
    return v_max_i32(v_min_i32(a, b), c);
}
static i32x16 v_maxmin_i32(i32x16 a, i32x16 b, i32x16 c) {
    return v_min_i32(v_max_i32(a, b), c);
}
static u32x16 v_minmax_u32(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_u32(v_min_u32(a, b), c);
}
static u32x16 v_maxmin_u32(u32x16 a, u32x16 b, u32x16 c) {
    return v_min_u32(v_max_u32(a, b), c);
}

// ---- two doubles

static f64x8 keep_signalling64(f64x8 a, f64x8 b, f64x8 otherwise) {
    const uint64_t quiet_bit = UINT64_C(1) << 51;
    u64x8 a_signals = is_nan64(a) & (u64x8)(((u64x8)a & quiet_bit) == 0);
    u64x8 b_signals = is_nan64(b) & (u64x8)(((u64x8)b & quiet_bit) == 0);
    return choose64(a_signals, quiet64(a), choose64(b_signals, quiet64(b), otherwise));
}

static f64x8 number_v_min_f64(f64x8 a, f64x8 b) {
    f64x8 smaller = choose64((u64x8)(a < b) | is_nan64(b), a, b);
    return choose64((u64x8)(a == b), (f64x8)((u64x8)a | (u64x8)b), smaller);
}
static f64x8 number_v_max_f64(f64x8 a, f64x8 b) {
    f64x8 larger = choose64((u64x8)(a > b) | is_nan64(b), a, b);
    return choose64((u64x8)(a == b), (f64x8)((u64x8)a & (u64x8)b), larger);
}
static f64x8 ieee_v_min_f64(f64x8 a, f64x8 b) {
    return keep_signalling64(a, b, number_v_min_f64(a, b));
}
static f64x8 ieee_v_max_f64(f64x8 a, f64x8 b) {
    return keep_signalling64(a, b, number_v_max_f64(a, b));
}
static f64x8 v_minimum_f64(f64x8 a, f64x8 b) {
    f64x8 of_b = choose64(is_nan64(b), quiet64(b), number_v_min_f64(a, b));
    return choose64(is_nan64(a), quiet64(a), of_b);
}
static f64x8 v_maximum_f64(f64x8 a, f64x8 b) {
    f64x8 of_b = choose64(is_nan64(b), quiet64(b), number_v_max_f64(a, b));
    return choose64(is_nan64(a), quiet64(a), of_b);
}

// ---- the median, as the ISA's text has it: without (one of) the greatest, the greater of the
// others, where zeros of either sign are the same; with a NaN, the least of the others

#define MEDIAN_F32(name, min, max)                                                                 \
    static f32x16 name(f32x16 a, f32x16 b, f32x16 c) {                                             \
        f32x16 top = max(max(a, b), c);                                                            \
        f32x16 rest = choose((u32x16)(top == b), max(a, c), max(a, b));                            \
        rest = choose((u32x16)(top == a), max(b, c), rest);                                        \
        return choose(is_nan(a) | is_nan(b) | is_nan(c), min(min(a, b), c), rest);                 \
    }
MEDIAN_F32(number_v_med3_f32, min_number, max_number)
MEDIAN_F32(ieee_v_med3_f32, min_ieee, max_ieee)

static u32x16 number_v_med3_f16(u32x16 a, u32x16 b, u32x16 c) {
    return f16_of_f32(number_v_med3_f32(f32_of_f16(a), f32_of_f16(b), f32_of_f16(c)));
}

static u32x16 ieee_v_med3_f16(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 signals = is_signalling16(a) | is_signalling16(b) | is_signalling16(c);
    return select16(signals, ieee_min16(ieee_min16(a, b), c), number_v_med3_f16(a, b, c));
}

// ---- two and three operands, by their functions of two: X(name, inner, outer)

// clang-format off
#define TWO(X) X(min, min, min) X(max, max, max)
#define THREE(X) X(min3, min, min) X(max3, max, max) X(minmax, min, max) X(maxmin, max, min)
#define KEEPING(X) X(minimum3, minimum, minimum) X(maximum3, maximum, maximum) \
    X(minimummaximum, minimum, maximum) X(maximumminimum, maximum, minimum)

#define DEFINE_TWO(name, inner, outer) \
    static f32x16 number_v_##name##_f32(f32x16 a, f32x16 b) { return inner##_number(a, b); } \
    static f32x16 ieee_v_##name##_f32(f32x16 a, f32x16 b) { return inner##_ieee(a, b); } \
    static u32x16 number_v_##name##_f16(u32x16 a, u32x16 b) { return number_##inner##16(a, b); } \
    static u32x16 ieee_v_##name##_f16(u32x16 a, u32x16 b) { return ieee_##inner##16(a, b); }
#define DEFINE_THREE(name, inner, outer) \
    static f32x16 number_v_##name##_f32(f32x16 a, f32x16 b, f32x16 c) { return outer##_number(inner##_number(a, b), c); } \
    static f32x16 ieee_v_##name##_f32(f32x16 a, f32x16 b, f32x16 c) { return outer##_ieee(inner##_ieee(a, b), c); } \
    static u32x16 number_v_##name##_f16(u32x16 a, u32x16 b, u32x16 c) { return number_##outer##16(number_##inner##16(a, b), c); } \
    static u32x16 ieee_v_##name##_f16(u32x16 a, u32x16 b, u32x16 c) { return ieee_##outer##16(ieee_##inner##16(a, b), c); }
#define DEFINE_KEEPING(name, inner, outer) \
    static f32x16 v_##name##_f32(f32x16 a, f32x16 b, f32x16 c) { return outer(inner(a, b), c); } \
    static u32x16 v_##name##_f16(u32x16 a, u32x16 b, u32x16 c) { return outer##16(inner##16(a, b), c); }
TWO(DEFINE_TWO)
THREE(DEFINE_THREE)
KEEPING(DEFINE_KEEPING)

static f32x16 v_minimum_f32(f32x16 a, f32x16 b) { return minimum(a, b); }
static f32x16 v_maximum_f32(f32x16 a, f32x16 b) { return maximum(a, b); }
static u32x16 v_minimum_f16(u32x16 a, u32x16 b) { return minimum16(a, b); }
static u32x16 v_maximum_f16(u32x16 a, u32x16 b) { return maximum16(a, b); }

// ---- the table. Of what MODE decides, X(shape, type, name without "v_", RDNA4's name, types,
// chips).
#define BY_MODE(X) \
    X(2, f32, min_f32, min_num_f32, "f:ff", GFX9 | GFX11) X(2, f32, max_f32, max_num_f32, "f:ff", GFX9 | GFX11) \
    X(L3, f32, min3_f32, min3_num_f32, "f:fff", GFX9 | GFX11) X(L3, f32, max3_f32, max3_num_f32, "f:fff", GFX9 | GFX11) \
    X(L3, f32, med3_f32, med3_num_f32, "f:fff", GFX9 | GFX11) \
    X(L3, f32, minmax_f32, minmax_num_f32, "f:fff", GFX11) X(L3, f32, maxmin_f32, maxmin_num_f32, "f:fff", GFX11) \
    X(2, u32, min_f16, min_num_f16, "h:hh", GFX9 | GFX11) X(2, u32, max_f16, max_num_f16, "h:hh", GFX9 | GFX11) \
    X(L3, u32, min3_f16, min3_num_f16, "x:hhh", GFX9 | GFX11) X(L3, u32, max3_f16, max3_num_f16, "x:hhh", GFX9 | GFX11) \
    X(L3, u32, med3_f16, med3_num_f16, "x:hhh", GFX9 | GFX11) \
    X(L3, u32, minmax_f16, minmax_num_f16, "x:hhh", GFX11) X(L3, u32, maxmin_f16, maxmin_num_f16, "x:hhh", GFX11) \
    X(W2, f64, min_f64, min_num_f64, "d:dd", GFX9 | GFX11) X(W2, f64, max_f64, max_num_f64, "d:dd", GFX9 | GFX11)
#define LIST(X) \
    X(2, u32, v_min_u32, "i:ii", ALL, 'i') X(2, u32, v_max_u32, "i:ii", ALL, 'i') \
    X(2, i32, v_min_i32, "i:ii", ALL, 'i') X(2, i32, v_max_i32, "i:ii", ALL, 'i') \
    X(3, u32, v_min3_u32, "i:iii", ALL, 'i') X(3, u32, v_max3_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_med3_u32, "i:iii", ALL, 'i') X(3, i32, v_min3_i32, "i:iii", ALL, 'i') \
    X(3, i32, v_max3_i32, "i:iii", ALL, 'i') X(3, i32, v_med3_i32, "i:iii", ALL, 'i') \
    X(2, u32, v_min_u16, "w:ww", ALL, 'i') X(2, u32, v_max_u16, "w:ww", ALL, 'i') \
    X(2, u32, v_min_i16, "w:ww", ALL, 'i') X(2, u32, v_max_i16, "w:ww", ALL, 'i') \
    X(3, u32, v_min3_u16, "k:www", ALL, 'i') X(3, u32, v_max3_u16, "k:www", ALL, 'i') \
    X(3, u32, v_med3_u16, "k:www", ALL, 'i') X(3, u32, v_min3_i16, "k:www", ALL, 'i') \
    X(3, u32, v_max3_i16, "k:www", ALL, 'i') X(3, u32, v_med3_i16, "k:www", ALL, 'i') \
    X(3, i32, v_minmax_i32, "i:iii", GFX11P, 'i') X(3, i32, v_maxmin_i32, "i:iii", GFX11P, 'i') \
    X(3, u32, v_minmax_u32, "i:iii", GFX11P, 'i') X(3, u32, v_maxmin_u32, "i:iii", GFX11P, 'i') \
    X(2, f32, v_minimum_f32, "f:ff", GFX12, 'i') X(2, f32, v_maximum_f32, "f:ff", GFX12, 'i') \
    X(L3, f32, v_minimum3_f32, "f:fff", GFX12 | GFX950, 'i') X(L3, f32, v_maximum3_f32, "f:fff", GFX12 | GFX950, 'i') \
    X(L3, f32, v_minimummaximum_f32, "f:fff", GFX12, 'i') X(L3, f32, v_maximumminimum_f32, "f:fff", GFX12, 'i') \
    X(2, u32, v_minimum_f16, "h:hh", GFX12, 'i') X(2, u32, v_maximum_f16, "h:hh", GFX12, 'i') \
    X(L3, u32, v_minimum3_f16, "x:hhh", GFX12, 'i') X(L3, u32, v_maximum3_f16, "x:hhh", GFX12, 'i') \
    X(L3, u32, v_minimummaximum_f16, "x:hhh", GFX12, 'i') X(L3, u32, v_maximumminimum_f16, "x:hhh", GFX12, 'i') \
    X(W2, f64, v_minimum_f64, "d:dd", GFX12, 'i') X(W2, f64, v_maximum_f64, "d:dd", GFX12, 'i')

#define WRAP_BY_MODE(shape, type, name, renamed, types, archs) \
    WRAP_##shape(type, number_v_##name, types) \
    WRAP_##shape(type, ieee_v_##name, types) \
    static void exec_v_##name(sim_wave *w, const sim_inst *inst) { \
        if (w->mode & SIM_MODE_IEEE) { exec_ieee_v_##name(w, inst); } else { exec_number_v_##name(w, inst); } \
    }
#define LINES_BY_MODE(shape, type, name, renamed, types, archs) \
    SIM_ROW("v_" #name, exec_v_##name, archs, SIM_VALU, 'i', types) \
    SIM_ROW("v_" #renamed, exec_number_v_##name, GFX12, SIM_VALU, 'i', types)

BY_MODE(WRAP_BY_MODE)
LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {BY_MODE(LINES_BY_MODE) LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_minmax, opcodes);
