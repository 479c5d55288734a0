// SPDX-License-Identifier: Apache-2.0
// Integer and bitwise vector instructions on 32 and 64 bits. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "vector.h"

// ---- 32 bits

static u32x16 v_mov_b32(u32x16 a) {
    return a;
}
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
static u32x16 v_add_u32(u32x16 a, u32x16 b) {
    return a + b;
}
static u32x16 v_sub_u32(u32x16 a, u32x16 b) {
    return a - b;
}
static u32x16 v_subrev_u32(u32x16 a, u32x16 b) {
    return b - a;
}
static u32x16 saturated_v_add_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_add_sat(a, b);
}
static u32x16 saturated_v_sub_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(a, b);
}
static u32x16 saturated_v_subrev_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(b, a);
}
static u32x16 v_lshlrev_b32(u32x16 a, u32x16 b) {
    return b << (a & 31);
}
static u32x16 v_lshrrev_b32(u32x16 a, u32x16 b) {
    return b >> (a & 31);
}
static i32x16 v_ashrrev_i32(i32x16 a, i32x16 b) {
    return b >> (a & 31);
}
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
static u32x16 v_mul_lo_u32(u32x16 a, u32x16 b) {
    return a * b;
}
static u32x16 v_bfrev_b32(u32x16 a) {
    return __builtin_elementwise_bitreverse(a);
}

static u32x16 v_mul_u32_u24(u32x16 a, u32x16 b) {
    return (a & 0xffffff) * (b & 0xffffff);
}

static i32x16 low24(i32x16 a) {
    return (i32x16)((u32x16)a << 8) >> 8;
}

static i32x16 v_mul_i32_i24(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)low24(a) * (u32x16)low24(b));
}

static u32x16 high_product(u32x16 a, u32x16 b) {
    u64x16 product = __builtin_convertvector(a, u64x16) * __builtin_convertvector(b, u64x16);
    return __builtin_convertvector(product >> 32, u32x16);
}

static u32x16 signed_high_product(i32x16 a, i32x16 b) {
    i64x16 product = __builtin_convertvector(a, i64x16) * __builtin_convertvector(b, i64x16);
    return __builtin_convertvector((u64x16)product >> 32, u32x16);
}

static u32x16 v_mul_hi_u32(u32x16 a, u32x16 b) {
    return high_product(a, b);
}
static i32x16 v_mul_hi_i32(i32x16 a, i32x16 b) {
    return (i32x16)signed_high_product(a, b);
}

static u32x16 v_mul_hi_u32_u24(u32x16 a, u32x16 b) {
    return high_product(a & 0xffffff, b & 0xffffff);
}

static i32x16 v_mul_hi_i32_i24(i32x16 a, i32x16 b) {
    return (i32x16)signed_high_product(low24(a), low24(b));
}

static i32x16 v_add_i32(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)a + (u32x16)b);
}
static i32x16 v_sub_i32(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)a - (u32x16)b);
}
static i32x16 saturated_v_add_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_add_sat(a, b);
}
static i32x16 saturated_v_sub_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_sub_sat(a, b);
}
static u32x16 v_add3_u32(u32x16 a, u32x16 b, u32x16 c) {
    return a + b + c;
}
static u32x16 v_add_lshl_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a + b) << (c & 31);
}
static u32x16 v_lshl_add_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a << (b & 31)) + c;
}
static u32x16 v_lshl_or_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a << (b & 31) | c;
}
static u32x16 v_and_or_b32(u32x16 a, u32x16 b, u32x16 c) {
    return (a & b) | c;
}
static u32x16 v_or3_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a | b | c;
}
static u32x16 v_xad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a ^ b) + c;
}
static u32x16 v_xor3_b32(u32x16 a, u32x16 b, u32x16 c) {
    return a ^ b ^ c;
}
static u32x16 v_bfi_b32(u32x16 a, u32x16 b, u32x16 c) {
    return (a & b) | (~a & c);
}
static u32x16 v_bfm_b32(u32x16 a, u32x16 b) {
    return ((1u << (a & 31)) - 1) << (b & 31);
}
static u32x16 v_mad_u32_u24(u32x16 a, u32x16 b, u32x16 c) {
    return v_mul_u32_u24(a, b) + c;
}

static i32x16 v_mad_i32_i24(i32x16 a, i32x16 b, i32x16 c) {
    return (i32x16)((u32x16)v_mul_i32_i24(a, b) + (u32x16)c);
}
/** The exact sums have more than 32 bits. */
static u32x16 saturated_v_mad_u32_u24(u32x16 a, u32x16 b, u32x16 c) {
    u64x16 x = __builtin_convertvector(a & 0xffffff, u64x16);
    u64x16 y = __builtin_convertvector(b & 0xffffff, u64x16);
    u64x16 sum = x * y + __builtin_convertvector(c, u64x16), most = (u64x16){} + UINT32_MAX;
    return __builtin_convertvector(__builtin_elementwise_min(sum, most), u32x16);
}
static i32x16 saturated_v_mad_i32_i24(i32x16 a, i32x16 b, i32x16 c) {
    i64x16 x = __builtin_convertvector((i32x16)((u32x16)a << 8) >> 8, i64x16);
    i64x16 y = __builtin_convertvector((i32x16)((u32x16)b << 8) >> 8, i64x16);
    i64x16 sum = x * y + __builtin_convertvector(c, i64x16);
    i64x16 least = (i64x16){} + INT32_MIN, most = (i64x16){} + INT32_MAX;
    sum = __builtin_elementwise_max(__builtin_elementwise_min(sum, most), least);
    return __builtin_convertvector(sum, i32x16);
}

static u32x16 v_bfe_u32(u32x16 a, u32x16 b, u32x16 c) {
    return a >> (b & 31) & ((1u << (c & 31)) - 1);
}

static i32x16 v_bfe_i32(i32x16 a, i32x16 b, i32x16 c) {
    u32x16 width = (u32x16)c & 31, unused = (32 - width) & 31;
    u32x16 field = (u32x16)(a >> (b & 31)) << unused;
    return (i32x16)((u32x16)((i32x16)field >> (i32x16)unused) & (u32x16)(width != 0));
}

static u32x16 v_alignbit_b32(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 n = c & 31;
    return b >> n | (a << 1) << (31 - n);
}

static u32x16 v_alignbyte_b32(u32x16 a, u32x16 b, u32x16 c) {
    return v_alignbit_b32(a, b, (c & 3) * 8);
}

static u32x16 v_min3_u32(u32x16 a, u32x16 b, u32x16 c) {
    return v_min_u32(v_min_u32(a, b), c);
}
static u32x16 v_max3_u32(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_u32(v_max_u32(a, b), c);
}
static i32x16 v_min3_i32(i32x16 a, i32x16 b, i32x16 c) {
    return v_min_i32(v_min_i32(a, b), c);
}
static i32x16 v_max3_i32(i32x16 a, i32x16 b, i32x16 c) {
    return v_max_i32(v_max_i32(a, b), c);
}

static u32x16 v_med3_u32(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_u32(v_min_u32(a, b), v_min_u32(v_max_u32(a, b), c));
}

static i32x16 v_med3_i32(i32x16 a, i32x16 b, i32x16 c) {
    return v_max_i32(v_min_i32(a, b), v_min_i32(v_max_i32(a, b), c));
}

static u32x16 v_bcnt_u32_b32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_popcount(a) + b;
}

/** The number of leading zeros; -1 for 0. */
static u32x16 v_ffbh_u32(u32x16 a) {
    u32x16 out;
    for (unsigned i = 0; i < 16; i++)
        out[i] = a[i] ? (uint32_t)__builtin_clz(a[i]) : UINT32_MAX;
    return out;
}

static u32x16 v_ffbl_b32(u32x16 a) {
    u32x16 out;
    for (unsigned i = 0; i < 16; i++)
        out[i] = a[i] ? (uint32_t)__builtin_ctz(a[i]) : UINT32_MAX;
    return out;
}

/** Leading bits equal to the sign; -1 if all are. */
static i32x16 v_ffbh_i32(i32x16 a) {
    return (i32x16)v_ffbh_u32((u32x16)(a ^ (a >> 31)));
}

typedef uint8_t u8x64 __attribute__((vector_size(64)));

static u8x64 select_bytes(u8x64 mask, u8x64 yes, u8x64 no) {
    return (mask & yes) | (~mask & no);
}

/** Each byte of the result is picked by a byte of c: 0-3 from b, 4-7 from a, 8-11 the signs of
 *  words, 12 zero, 13 and up 0xff. */
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

/** Any function of three bits: bit 4a + 2b + c of the table. */
static void exec_v_bitop3_b32(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row32(w, inst, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = load16(a + k), y = load16(b + k), z = load16(c + k), out = {};
        for (unsigned i = 0; i < 8; i++) {
            u32x16 term = (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
            out |= inst->imm >> i & 1 ? term : (u32x16){};
        }
        store16(result + k, out);
    }
    sim_finish32(w, inst, result);
}

static u32x16 absolute_difference(u32x16 a, u32x16 b) {
    return v_max_u32(a, b) - v_min_u32(a, b);
}

static u32x16 v_sad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return absolute_difference(a, b) + c;
}

static u32x16 v_sad_u8(u32x16 a, u32x16 b, u32x16 c) {
    for (unsigned shift = 0; shift < 32; shift += 8)
        c += absolute_difference(a >> shift & 0xff, b >> shift & 0xff);
    return c;
}

static u32x16 v_sad_hi_u8(u32x16 a, u32x16 b, u32x16 c) {
    return (v_sad_u8(a, b, (u32x16){}) << 16) + c;
}

static u32x16 v_sad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return absolute_difference(a & 0xffff, b & 0xffff) + absolute_difference(a >> 16, b >> 16) + c;
}

// The differences alone fit, so only adding the third source can overflow.
static u32x16 saturated_v_sad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u32(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u8(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_hi_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_hi_u8(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u16(a, b, (u32x16){}), c);
}

static u32x16 v_lerp_u8(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 out = {};
    for (unsigned shift = 0; shift < 32; shift += 8) {
        u32x16 sum = (a >> shift & 0xff) + (b >> shift & 0xff) + (c >> shift & 1);
        out |= (sum >> 1) << shift;
    }
    return out;
}

// ---- 64 bits

static u64x8 v_mov_b64(u64x8 a) {
    return a;
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
static u64x8 v_lshl_add_u64(u64x8 a, u64x8 b, u64x8 c) {
    return (a << (b & 7)) + c;
}

// clang-format off
#define LIST(X) \
    X(1, u32, v_mov_b32, "i:i", ALL, 'i') \
    X(1, u32, v_not_b32, "i:i", ALL, 'i') \
    X(2, u32, v_and_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_or_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_xor_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_xnor_b32, "i:ii", ALL, 'i') \
    X(S2, u32, v_add_u32, "i:ii", GFX9, 'i') \
    X(S2, u32, v_sub_u32, "i:ii", GFX9, 'i') \
    X(S2, u32, v_subrev_u32, "i:ii", GFX9, 'i') \
    X(2, u32, v_lshlrev_b32, "i:ii", ALL, 'i') \
    X(2, u32, v_lshrrev_b32, "i:ii", ALL, 'i') \
    X(2, i32, v_ashrrev_i32, "i:ii", ALL, 'i') \
    X(2, u32, v_min_u32, "i:ii", ALL, 'i') \
    X(2, u32, v_max_u32, "i:ii", ALL, 'i') \
    X(2, i32, v_min_i32, "i:ii", ALL, 'i') \
    X(2, i32, v_max_i32, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_lo_u32, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_hi_u32, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_hi_i32, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_u32_u24, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_i32_i24, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_hi_u32_u24, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_hi_i32_i24, "i:ii", ALL, 'i') \
    X(S2, i32, v_add_i32, "i:ii", GFX9, 'i') \
    X(S2, i32, v_sub_i32, "i:ii", GFX9, 'i') \
    X(3, u32, v_add3_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_add_lshl_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_lshl_add_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_lshl_or_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_and_or_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_or3_b32, "i:iii", ALL, 'i') \
    X(3, u32, v_xad_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_xor3_b32, "i:iii", GFX11P, 'i') \
    X(3, u32, v_bfi_b32, "i:iii", ALL, 'i') \
    X(2, u32, v_bfm_b32, "i:ii", ALL, 'i') \
    X(S3, u32, v_mad_u32_u24, "i:iii", ALL, 'i') \
    X(S3, i32, v_mad_i32_i24, "i:iii", ALL, 'i') \
    X(3, u32, v_bfe_u32, "i:iii", ALL, 'i') \
    X(3, i32, v_bfe_i32, "i:iii", ALL, 'i') \
    X(3, u32, v_alignbit_b32, "i:iiw", ALL, 'i') \
    X(3, u32, v_alignbyte_b32, "i:iiw", ALL, 'i') \
    X(3, u32, v_min3_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_max3_u32, "i:iii", ALL, 'i') \
    X(3, i32, v_min3_i32, "i:iii", ALL, 'i') \
    X(3, i32, v_max3_i32, "i:iii", ALL, 'i') \
    X(3, u32, v_med3_u32, "i:iii", ALL, 'i') \
    X(3, i32, v_med3_i32, "i:iii", ALL, 'i') \
    X(2, u32, v_bcnt_u32_b32, "i:ii", ALL, 'i') \
    X(1, u32, v_bfrev_b32, "i:i", ALL, 'i') \
    X(1, u32, v_ffbh_u32, "i:i", GFX9, 'i') \
    X(1, u32, v_ffbl_b32, "i:i", GFX9, 'i') \
    X(1, i32, v_ffbh_i32, "i:i", GFX9, 'i') \
    X(3, u32, v_perm_b32, "i:iii", ALL, 'i') \
    X(OWN, u32, v_bitop3_b32, "i:iii", GFX950, 'l', SIM_HAS_TABLE) \
    X(S3, u32, v_sad_u8, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_hi_u8, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_u16, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_lerp_u8, "i:iii", ALL, 'i') \
    X(W1, u64, v_mov_b64, "q:q", GFX94, 'i', SIM_COPIES_PAIR) \
    X(W2, u64, v_lshlrev_b64, "q:iq", ALL, 'i', SIM_IS_LOW_FIRST) \
    X(W2, u64, v_lshrrev_b64, "q:iq", ALL, 'i') \
    X(W2, u64, v_ashrrev_i64, "q:iQ", ALL, 'i') \
    X(W3, u64, v_lshl_add_u64, "q:qiq", GFX94, 'i', SIM_IS_LOW_FIRST)

// RDNA's names.
#define RENAMED(X) \
    X(v_add_nc_u32, v_add_u32, "i:ii", SIM_SATURATES) X(v_sub_nc_u32, v_sub_u32, "i:ii", SIM_SATURATES) \
    X(v_subrev_nc_u32, v_subrev_u32, "i:ii", SIM_SATURATES) X(v_add_nc_i32, v_add_i32, "i:ii", SIM_SATURATES) \
    X(v_sub_nc_i32, v_sub_i32, "i:ii", SIM_SATURATES) X(v_clz_i32_u32, v_ffbh_u32, "i:i", 0) \
    X(v_ctz_i32_b32, v_ffbl_b32, "i:i", 0) X(v_cls_i32, v_ffbh_i32, "i:i", 0)
#define RENAMED_LINE(name, old, types, is_) SIM_ROW(#name, exec_##old, GFX11P, SIM_VALU, 'i', types, .is = is_)

// clang-format on
LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE) RENAMED(RENAMED_LINE)};
SIM_TABLE(sim_ops_valu_int, opcodes);
