// SPDX-License-Identifier: Apache-2.0
// Vector instructions of CDNA, some of which every chip has: packing shifts, 16-bit logic, byte
// differences, dot products onto the destination, stochastic rounding, the digits of 2/pi. Source:
// "CDNA4" ISA, VOP2 and VOP3.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

// ---- integers

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

/** Any function of three bits: bit 4a + 2b + c of the table. */
static void exec_v_bitop3_b16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row32(w, inst, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = load16(a + k), y = load16(b + k), z = load16(c + k), out = {};
        for (unsigned i = 0; i < 8; i++) {
            u32x16 term = (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
            out |= inst->imm >> i & 1 ? term : (u32x16){};
        }
        store16(result + k, out & 0xffff);
    }
    sim_finish32(w, inst, result);
}

// ---- sums of absolute differences of bytes

/** With `masked`, bytes of b that are 0 do not count. */
static uint32_t differences(uint32_t a, uint32_t b, bool masked) {
    uint32_t sum = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        const uint32_t x = a >> shift & 255, y = b >> shift & 255;
        sum += masked && !y ? 0 : x > y ? x - y : y - x;
    }
    return sum;
}

static u32x16 v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    for (unsigned i = 0; i < 16; i++)
        c[i] += differences(a[i], b[i], true);
    return c;
}
static u32x16 saturated_v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_msad_u8(a, b, (u32x16){}), c);
}

/** Four windows of the first source, each a byte further; 16-bit sums, added to those of the third
 *  source. */
SIM_INLINE u64x8 windows(u64x8 a, u64x8 b, u64x8 c, bool masked, bool saturate) {
    u64x8 out = {};
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned n = 0; n < 4; n++) {
            uint64_t sum = differences((uint32_t)(a[i] >> 8 * n), (uint32_t)b[i], masked);
            sum += c[i] >> 16 * n & 0xffff;
            out[i] |= (saturate && sum > 0xffff ? 0xffff : sum & 0xffff) << 16 * n;
        }
    }
    return out;
}
#define WINDOWS(name, masked)                                                                      \
    static u64x8 wrapped_##name(u64x8 a, u64x8 b, u64x8 c) {                                       \
        return windows(a, b, c, masked, false);                                                    \
    }                                                                                              \
    static u64x8 saturated_##name(u64x8 a, u64x8 b, u64x8 c) {                                     \
        return windows(a, b, c, masked, true);                                                     \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        run64(w, inst, 3, "q:qiq", inst->flags & SIM_CLAMP ? saturated_##name : wrapped_##name);   \
    }
WINDOWS(v_qsad_pk_u16_u8, false)
WINDOWS(v_mqsad_pk_u16_u8, true)

// ---- dot products of integer fields, added to the destination

SIM_INLINE u32x16 field_of(u32x16 value, unsigned i, unsigned bits) {
    return (u32x16)((i32x16)(value << (32 - bits * (i + 1))) >> (int)(32 - bits));
}

SIM_INLINE u32x16 dot(u32x16 a, u32x16 b, u32x16 c, unsigned bits) {
    for (unsigned i = 0; i < 32 / bits; i++)
        c += field_of(a, i, bits) * field_of(b, i, bits);
    return c;
}
static u32x16 v_dot2c_i32_i16(u32x16 a, u32x16 b, u32x16 c) {
    return dot(a, b, c, 16);
}
static u32x16 v_dot4c_i32_i8(u32x16 a, u32x16 b, u32x16 c) {
    return dot(a, b, c, 8);
}
static u32x16 v_dot8c_i32_i4(u32x16 a, u32x16 b, u32x16 c) {
    return dot(a, b, c, 4);
}

static f32x16 half_of(u32x16 block, bool high, bool flush) {
    u32x16 half = block >> (high ? 16 : 0) & 0xffff;
    return f32_of_f16(flush ? select16((u32x16)((half & 0x7c00) != 0), half, half & 0x8000) : half);
}

/** Two fused multiply-adds of halves. Of MODE it follows f16's rounding, denormals and overflow. */
static void exec_v_pk_fmac_f16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *src[3];
    for (unsigned i = 0; i < 3; i++)
        src[i] = sim_row32(w, inst, i, tmp[i]);
    const bool rounding = sim_rounding_begin(w, inst);
    const bool flush_in = !(w->mode >> 6 & 1), flush_out = !(w->mode >> 7 & 1);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 a = load16(src[0] + k), b = load16(src[1] + k), c = load16(src[2] + k), both = {};
        for (unsigned high = 0; high < 2; high++) {
            f32x16 x = half_of(a, high, flush_in), y = half_of(b, high, flush_in);
            f32x16 z = half_of(c, high, flush_in);
            u32x16 half = f16_of_f32(fma_for_f16(x, y, z));
            half = sim_limit_f16(w, half, is_infinite(x) | is_infinite(y) | is_infinite(z));
            half = flush_out ? f16_of_f32(half_of(half, false, true)) : half;
            both |= half << 16 * high;
        }
        store16(result + k, both);
    }
    if (rounding)
        sim_rounding_end();
    sim_finish32(w, inst, result);
}

// ---- stochastic rounding: the second source is a fraction of the last place, added before the cut

static uint32_t random_f16(uint32_t bits, uint32_t random) {
    double value = (double)as_f32(bits), x = fabs(value);
    if (isfinite(value) && x > 0) {
        const int exponent = ilogb(x) < -14 ? -14 : ilogb(x);
        const double places = floor(ldexp(x, 10 - exponent) + (double)random * 0x1p-32);
        value = copysign(ldexp(places, exponent - 10), value);
    }
    _Float16 half = (_Float16)value;
    uint16_t out;
    memcpy(&out, &half, sizeof out);
    return out;
}

static u32x16 v_cvt_sr_f16_f32(u32x16 a, u32x16 b) {
    for (unsigned i = 0; i < 16; i++)
        a[i] = random_f16(a[i], b[i]);
    return a;
}

static u32x16 v_cvt_sr_bf16_f32(u32x16 a, u32x16 b) {
    u32x16 special = (u32x16)((a & 0x7f800000) == 0x7f800000);
    u32x16 quiet = is_nan((f32x16)a) & 0x40;
    return select16(special, a >> 16 | quiet, (a + (b >> 16)) >> 16);
}

// ---- 53 digits of 2/pi, for reducing large angles

/** 1201 binary digits of 2/pi after the point, most significant first; the rest are 0 to the
 *  instruction. */
enum { DIGITS = 1201 };
static const uint64_t two_over_pi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

static uint64_t digits(uint32_t first) {
    uint64_t out = 0;
    for (uint32_t i = first; i < first + 53; i++) {
        const uint64_t digit = i < DIGITS ? two_over_pi[i / 64] >> (63 - i % 64) & 1 : 0;
        out = out << 1 | digit;
    }
    return out;
}

/** Group b of 53 digits, further on for larger a; a power of two keeps the largest from
 *  vanishing. */
static u64x8 v_trig_preop_f64(u64x8 a, u64x8 b) {
    for (unsigned i = 0; i < 8; i++) {
        uint32_t exponent = (uint32_t)(a[i] >> 52 & 2047), first = (uint32_t)(b[i] & 31) * 53;
        first += exponent > 1077 ? exponent - 1077 : 0;
        const int scale = -53 - (int)first + (exponent >= 1968 ? 128 : 0);
        a[i] = f64_bits(ldexp((double)(int64_t)digits(first), scale));
    }
    return a;
}

// clang-format off
#define LIST(X) \
    X(3, u32, v_ashr_pk_i8_i32, "k:iii", GFX950, 'i') \
    X(3, u32, v_ashr_pk_u8_i32, "k:iii", GFX950, 'i') \
    X(OWN, u32, v_bitop3_b16, "k:www", GFX950, 'i', SIM_HAS_TABLE) \
    X(S3, u32, v_msad_u8, "i:iii", ALL, 'i') \
    X(OWN, u64, v_qsad_pk_u16_u8, "q:qiq", ALL, 'i', SIM_SATURATES) \
    X(OWN, u64, v_mqsad_pk_u16_u8, "q:qiq", ALL, 'i', SIM_SATURATES) \
    X(3, u32, v_dot2c_i32_i16, "i:ii+", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(3, u32, v_dot4c_i32_i8, "i:ii+", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(3, u32, v_dot8c_i32_i4, "i:ii+", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_pk_fmac_f16, "H:ii+", ALL, 'i', SIM_IS_PACKED) \
    X(2, u32, v_cvt_sr_f16_f32, "k:fi", GFX950, '?') \
    X(2, u32, v_cvt_sr_bf16_f32, "k:fi", GFX950, '?') \
    X(W2, u64, v_trig_preop_f64, "d:di", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_cdna, opcodes);
