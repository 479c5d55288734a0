// SPDX-License-Identifier: Apache-2.0
// Single-precision vector instructions. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "valu.h"

static f32x16 v_add_f32(f32x16 a, f32x16 b) {
    return a + b;
}
static f32x16 v_sub_f32(f32x16 a, f32x16 b) {
    return a - b;
}
static f32x16 v_subrev_f32(f32x16 a, f32x16 b) {
    return b - a;
}
static f32x16 v_mul_f32(f32x16 a, f32x16 b) {
    return a * b;
}
static f32x16 v_fma_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}
static f32x16 v_fmaak_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}
static f32x16 v_fmamk_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}

/** Zero times anything is zero, even infinity and NaN. */
static f32x16 v_mul_legacy_f32(f32x16 a, f32x16 b) {
    u32x16 zero = (u32x16)((a == 0) | (b == 0));
    return (f32x16)(~zero & (u32x16)(a * b));
}

static f32x16 v_floor_f32(f32x16 a) {
    return __builtin_elementwise_floor(a);
}
static f32x16 v_ceil_f32(f32x16 a) {
    return __builtin_elementwise_ceil(a);
}
static f32x16 v_trunc_f32(f32x16 a) {
    return __builtin_elementwise_trunc(a);
}
static f32x16 v_rndne_f32(f32x16 a) {
    return __builtin_elementwise_roundeven(a);
}

// clang-format off
#define LIST(X) \
    X(2, f32, v_add_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_sub_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_subrev_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_mul_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_mul_legacy_f32, "f:ff", GFX9, 'i') \
    X(3, f32, v_fma_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_fmaak_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_fmamk_f32, "f:fff", ALL, 'i') \
    X(1, f32, v_floor_f32, "f:f", ALL, 'i') \
    X(1, f32, v_ceil_f32, "f:f", ALL, 'i') \
    X(1, f32, v_trunc_f32, "f:f", ALL, 'i') \
    X(1, f32, v_rndne_f32, "f:f", ALL, 'i')

// clang-format on
LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
SIM_TABLE(sim_ops_valu_f32, opcodes);
