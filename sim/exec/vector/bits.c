// SPDX-License-Identifier: Apache-2.0
// Bitwise vector instructions, fields of bits, counts of bits. Source: "CDNA3" and "RDNA3" ISA,
// VOP1, VOP2, VOP3.
#include "vector.h"

static u32x16 v_not_b32(u32x16 a) {
    return ~a;
}
static u32x16 v_and_b32(u32x16 a, u32x16 b) {
    return a & b;
}
static u32x16 v_or_b32(u32x16 a, u32x16 b) {
    return a | b;
}
static u32x16 v_xor_b32(u32x16 a, u32x16 b) {
    return a ^ b;
}
static u32x16 v_xnor_b32(u32x16 a, u32x16 b) {
    return ~(a ^ b);
}
static u32x16 v_and_or_b32(u32x16 a, u32x16 b, u32x16 c) {
    return (a & b) | c;
}
static u32x16 v_or3_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a | b | c;
}
static u32x16 v_xor3_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a ^ b ^ c;
}

// RDNA has some of these for halves of registers.

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

/** Computes any function of three bits: the result is bit 4a + 2b + c of the table. */
static void bitop3(sim_wave *w, const sim_inst *inst, uint32_t kept) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row32(w, inst, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = load16(a + k), y = load16(b + k), z = load16(c + k), out = {};
        for (unsigned i = 0; i < 8; i++) {
            u32x16 term = (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
            out |= inst->imm >> i & 1 ? term : (u32x16){};
        }
        store16(result + k, out & kept);
    }
    sim_finish32(w, inst, result);
}

static void exec_v_bitop3_b32(sim_wave *w, const sim_inst *inst) {
    bitop3(w, inst, UINT32_MAX);
}
static void exec_v_bitop3_b16(sim_wave *w, const sim_inst *inst) {
    bitop3(w, inst, 0xffff);
}

// ---- fields

static u32x16 v_bfi_b32(u32x16 a, u32x16 b, u32x16 c) {
    return (a & b) | (~a & c);
}
static u32x16 v_bfm_b32(u32x16 a, u32x16 b) {
    return ((1u << (a & 31)) - 1) << (b & 31);
}
static u32x16 v_bfe_u32(u32x16 a, u32x16 b, u32x16 c) {
    return a >> (b & 31) & ((1u << (c & 31)) - 1);
}

static i32x16 v_bfe_i32(i32x16 a, i32x16 b, i32x16 c) {
    u32x16 width = (u32x16)c & 31, unused = (32 - width) & 31;
    u32x16 field = (u32x16)(a >> (b & 31)) << unused;
    return (i32x16)((u32x16)((i32x16)field >> (i32x16)unused) & (u32x16)(width != 0));
}

typedef uint8_t u8x64 __attribute__((vector_size(64)));
static u8x64 select_bytes(u8x64 mask, u8x64 yes, u8x64 no) {
    return (mask & yes) | (~mask & no);
}

/** Picks each byte of the result by a byte of c: 0-3 pick from b, 4-7 from a, 8-11 the signs of
 *  words, 12 picks zero, 13 and up 0xff. */
static u32x16 v_perm_b32(u32x16 a, u32x16 b, u32x16 c) {
    const u32x16 first = {0,          0x04040404, 0x08080808, 0x0c0c0c0c, 0,          0x04040404,
                          0x08080808, 0x0c0c0c0c, 0,          0x04040404, 0x08080808, 0x0c0c0c0c,
                          0,          0x04040404, 0x08080808, 0x0c0c0c0c};
    u8x64 sel = (u8x64)c, is_byte = (u8x64)(sel < 8);
    u8x64 index = select_bytes(is_byte, sel & 3, sel << 1 | 1) & 3;
    u8x64 from_a = (u8x64)((select_bytes(is_byte, sel >> 1, sel) & 2) != 0);
    u32x16 at = (u32x16)index | first;
    u8x64 byte = select_bytes(from_a, (u8x64)pick_bytes(a, at), (u8x64)pick_bytes(b, at));
    u8x64 filled = (u8x64)(byte > 127);
    filled = select_bytes((u8x64)(sel < 12), filled, (u8x64)(sel > 12));
    return (u32x16)select_bytes(is_byte, byte, filled);
}

// ---- counts

static u32x16 v_bcnt_u32_b32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_popcount(a) + b;
}
static u32x16 v_bfrev_b32(u32x16 a) {
    return __builtin_elementwise_bitreverse(a);
}

/** Returns the number of leading zeros, or -1 for 0. */
static u32x16 v_ffbh_u32(u32x16 a) {
    return __builtin_elementwise_clzg(a, ~(u32x16){});
}

static u32x16 v_ffbl_b32(u32x16 a) {
    return __builtin_elementwise_ctzg(a, ~(u32x16){});
}

/** Returns the number of leading bits equal to the sign, or -1 if all are. */
static i32x16 v_ffbh_i32(i32x16 a) {
    return (i32x16)v_ffbh_u32((u32x16)(a ^ (a >> 31)));
}

// clang-format off
#define LIST(X) \
    X(1, u32, v_not_b32, "i:i", ALL, 'i') \
    X(2, u32, v_and_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_or_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_xor_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_xnor_b32, "i:ii", ALL, 'i') \
    X(3, u32, v_and_or_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_or3_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_xor3_b32, "i:iii", GFX11P, 'i') \
    X(1, u32, v_not_b16, "w:w", GFX11P, 'i') \
    X(2, u32, v_and_b16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_or_b16, "w:ww", GFX11P, 'i') \
    X(2, u32, v_xor_b16, "w:ww", GFX11P, 'i') \
    X(OWN, u32, v_bitop3_b32, "i:iii", GFX950, 'l', SIM_HAS_TABLE) \
    X(OWN, u32, v_bitop3_b16, "k:www", GFX950, 'i', SIM_HAS_TABLE) \
    X(3, u32, v_bfi_b32, "i:iii", ALL, 'i') \
    X(2, u32, v_bfm_b32, "i:ii", ALL, 'i') \
    X(3, u32, v_bfe_u32, "i:iii", ALL, 'i') \
    X(3, i32, v_bfe_i32, "i:iii", ALL, 'i') \
    X(3, u32, v_perm_b32, "i:iii", ALL, 'i') \
    X(2, u32, v_bcnt_u32_b32, "i:ii", ALL, 'i') \
    X(1, u32, v_bfrev_b32, "i:i", ALL, 'i') \
    X(1, u32, v_ffbh_u32, "i:i", GFX9, 'i') \
    X(1, u32, v_ffbl_b32, "i:i", GFX9, 'i') \
    X(1, i32, v_ffbh_i32, "i:i", GFX9, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    // RDNA's names
    VALU_ALIAS(v_clz_i32_u32, v_ffbh_u32, GFX11P, "i:i")
    VALU_ALIAS(v_ctz_i32_b32, v_ffbl_b32, GFX11P, "i:i")
    VALU_ALIAS(v_cls_i32, v_ffbh_i32, GFX11P, "i:i")};
// clang-format on
SIM_TABLE(sim_ops_valu_bits, opcodes);
