// SPDX-License-Identifier: Apache-2.0
// Shifts, and sums and packs of shifted values. Source: "CDNA3" and "CDNA4" ISA, VOP2, VOP3.
#include "half.h"
#include "vector.h"

static u32x16 v_lshlrev_b32(u32x16 a, u32x16 b) {
    return b << (a & 31);
}
static u32x16 v_lshrrev_b32(u32x16 a, u32x16 b) {
    return b >> (a & 31);
}
static i32x16 v_ashrrev_i32(i32x16 a, i32x16 b) {
    return b >> (a & 31);
}
static u64x8 v_lshlrev_b64(u64x8 a, u64x8 b) {
    return b << (a & 63);
}
static u64x8 v_lshrrev_b64(u64x8 a, u64x8 b) {
    return b >> (a & 63);
}
static u64x8 v_ashrrev_i64(u64x8 a, u64x8 b) {
    return (u64x8)((i64x8)b >> (i64x8)(a & 63));
}

static u32x16 v_alignbit_b32(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 n = c & 31;
    return b >> n | (a << 1) << (31 - n);
}

static u32x16 v_alignbyte_b32(u32x16 a, u32x16 b, u32x16 c) {
    return v_alignbit_b32(a, b, (c & 3) * 8);
}
static u32x16 v_lshl_or_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a << (b & 31) | c;
}
static u32x16 v_lshl_add_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a << (b & 31)) + c;
}
static u32x16 v_add_lshl_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a + b) << (c & 31);
}
static u64x8 v_lshl_add_u64(u64x8 a, u64x8 b, u64x8 c) {
    return (a << (b & 7)) + c;
}

static u32x16 limited(i32x16 a, int32_t least, int32_t most) {
    i32x16 low = (i32x16){} + least, high = (i32x16){} + most;
    return (u32x16)__builtin_elementwise_min(__builtin_elementwise_max(a, low), high);
}

static u32x16 v_ashr_pk_i8_i32(u32x16 a, u32x16 b, u32x16 c) {
    i32x16 by = (i32x16)(c & 31);
    return (limited((i32x16)a >> by, -128, 127) & 255) | (limited((i32x16)b >> by, -128, 127) & 255)
                                                             << 8;
}

static u32x16 v_ashr_pk_u8_i32(u32x16 a, u32x16 b, u32x16 c) {
    i32x16 by = (i32x16)(c & 31);
    return limited((i32x16)a >> by, 0, 255) | limited((i32x16)b >> by, 0, 255) << 8;
}

// clang-format off
#define LIST(X) \
    X(2, u32, v_lshlrev_b16, "w:ww", ALL, 'i') \
    X(2, u32, v_lshrrev_b16, "w:ww", ALL, 'i') \
    X(2, u32, v_ashrrev_i16, "w:ww", ALL, 'i') \
    X(2, u32, v_lshlrev_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_lshrrev_b32, "i:ii", ALL, 'i') \
    X(2, i32, v_ashrrev_i32, "i:ii", ALL, 'i') \
    X(W2, u64, v_lshlrev_b64, "q:iq", ALL, 'i', SIM_IS_LOW_FIRST) \
    X(W2, u64, v_lshrrev_b64, "q:iq", ALL, 'i') \
    X(W2, u64, v_ashrrev_i64, "q:iQ", ALL, 'i') \
    X(3, u32, v_alignbit_b32, "i:iiw", ALL, 'i') \
    X(3, u32, v_alignbyte_b32, "i:iiw", ALL, 'i') \
    X(3, u32, v_lshl_or_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_lshl_add_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_add_lshl_u32, "i:iii", ALL, 'i') \
    X(W3, u64, v_lshl_add_u64, "q:qiq", GFX94, 'i', SIM_IS_LOW_FIRST) \
    X(3, u32, v_ashr_pk_i8_i32, "k:iii", GFX950, 'i') \
    X(3, u32, v_ashr_pk_u8_i32, "k:iii", GFX950, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_shift, opcodes);
