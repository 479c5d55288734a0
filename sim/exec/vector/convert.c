// SPDX-License-Identifier: Apache-2.0
// Conversions between integers and floats, and between floats of different sizes. Source: "CDNA3",
// "CDNA4" and "RDNA3" ISA, VOP1, VOP3.
#include "convert.h"

#include "../numbers.h"
#include "vector.h"

#include <math.h>

// ---- integers and f32

/** Converts by halves, because a host without the conversion subtracts a large number, and rounding
 *  down makes -0 of 0. */
static u32x16 v_cvt_f32_u32(u32x16 a) {
    i32x16 high = (i32x16)(a >> 16), low = (i32x16)(a & 0xffff);
    return (u32x16)(__builtin_convertvector(high, f32x16) * 0x1p16f +
                    __builtin_convertvector(low, f32x16));
}

static u32x16 v_cvt_f32_i32(u32x16 a) {
    return (u32x16) __builtin_convertvector((i32x16)a, f32x16);
}
static u32x16 v_cvt_i32_f32(u32x16 a) {
    return to_i32((f32x16)a);
}
static u32x16 v_cvt_u32_f32(u32x16 a) {
    return to_u32((f32x16)a);
}
static u32x16 v_cvt_flr_i32_f32(u32x16 a) {
    return to_i32(__builtin_elementwise_floor((f32x16)a));
}
static u32x16 v_cvt_rpi_i32_f32(u32x16 a) {
    return to_i32(__builtin_elementwise_floor((f32x16)a + 0.5f));
}
static u32x16 ubyte(u32x16 a, unsigned byte) {
    return v_cvt_f32_i32(a >> 8 * byte & 255);
}
static u32x16 v_cvt_f32_ubyte0(u32x16 a) {
    return ubyte(a, 0);
}
static u32x16 v_cvt_f32_ubyte1(u32x16 a) {
    return ubyte(a, 1);
}
static u32x16 v_cvt_f32_ubyte2(u32x16 a) {
    return ubyte(a, 2);
}
static u32x16 v_cvt_f32_ubyte3(u32x16 a) {
    return ubyte(a, 3);
}

/** Converts a signed 4-bit integer, divided by 16. */
static u32x16 v_cvt_off_f32_i4(u32x16 a) {
    i32x16 value = (i32x16)(a << 28) >> 28;
    return (u32x16)(__builtin_convertvector(value, f32x16) * 0x1p-4f);
}

// ---- integers of 16 and 32 bits

static u32x16 v_cvt_u32_u16(u32x16 a) {
    return a & 0xffff;
}
static u32x16 v_cvt_i32_i16(u32x16 a) {
    return (u32x16)((i32x16)(a << 16) >> 16);
}

// ---- f16 and bf16

static u32x16 v_cvt_f32_f16(u32x16 a) {
    return (u32x16)f32_of_f16(a & 0xffff);
}
static u32x16 v_cvt_f16_f32(u32x16 a) {
    return f16_of_f32((f32x16)a);
}
/** Converts as a signed integer, for the reason that v_cvt_f32_u32 gives. A compiler that saw that
 *  no value is negative would convert an unsigned one. */
static u32x16 v_cvt_f16_u16(u32x16 a) {
    i32x16 value = (i32x16)(a & 0xffff);
    __asm__("" : "+m"(value));
    return f16_of_f32(__builtin_convertvector(value, f32x16));
}
static u32x16 v_cvt_f16_i16(u32x16 a) {
    return f16_of_f32(__builtin_convertvector((i32x16)(a << 16) >> 16, f32x16));
}
static u32x16 v_cvt_u16_f16(u32x16 a) {
    return to_u32(limit(f32_of_f16(a & 0xffff), 0, 65535));
}
static u32x16 v_cvt_i16_f16(u32x16 a) {
    return to_i32(limit(f32_of_f16(a & 0xffff), -32768, 32767)) & 0xffff;
}
static u32x16 v_cvt_f32_bf16(u32x16 a) {
    return a << 16;
}

// ---- f64

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
static u32x8 low32(u64x8 a) {
    return __builtin_convertvector(a, u32x8);
}
static u64x8 zero_extend(u32x8 a) {
    return __builtin_convertvector(a, u64x8);
}
static u64x8 v_cvt_f64_f32(u64x8 a) {
    return (u64x8) __builtin_convertvector((f32x8)low32(a), f64x8);
}
static u64x8 v_cvt_f32_f64(u64x8 a) {
    return zero_extend((u32x8) __builtin_convertvector((f64x8)a, f32x8));
}
static u64x8 v_cvt_f64_i32(u64x8 a) {
    return (u64x8) __builtin_convertvector((i32x8)low32(a), f64x8);
}

/** Converts by halves, because a host without the conversion subtracts a large number, and rounding
 *  down makes -0 of 0. */
static u64x8 v_cvt_f64_u32(u64x8 a) {
    u32x8 high = low32(a) >> 16, low = low32(a) & 0xffff;
    return (u64x8)(__builtin_convertvector((i32x8)high, f64x8) * 0x1p16 +
                   __builtin_convertvector((i32x8)low, f64x8));
}

/** Truncates and saturates. NaN becomes 0. */
static u64x8 v_cvt_i32_f64(u64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        const double x = as_f64(a[i]);
        const int32_t value = x >= 0x1p31    ? INT32_MAX
                              : x <= -0x1p31 ? INT32_MIN
                              : x == x       ? (int32_t)x
                                             : 0;
        a[i] = (uint32_t)value;
    }
    return a;
}

static u64x8 v_cvt_u32_f64(u64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        const double x = as_f64(a[i]);
        a[i] = x >= 0x1p32 ? UINT32_MAX : x > 0 ? (uint32_t)x : 0;
    }
    return a;
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

// clang-format off
#define LIST(X) \
    X(1, u32, v_cvt_f32_u32, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_i32, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_u32_f32, "i:f", ALL, 'i') \
    X(1, u32, v_cvt_i32_f32, "i:f", ALL, 'i') \
    X(L1, u32, v_cvt_rpi_i32_f32, "i:f", GFX9, 'i') \
    X(1, u32, v_cvt_flr_i32_f32, "i:f", GFX9, 'i') \
    X(1, u32, v_cvt_f32_ubyte0, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte1, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte2, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte3, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_off_f32_i4, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_u32_u16, "i:w", GFX11P, 'i') \
    X(1, u32, v_cvt_i32_i16, "i:w", GFX11P, 'i') \
    X(1, u32, v_cvt_f32_f16, "f:h", ALL, 'i') \
    X(1, u32, v_cvt_f16_f32, "h:f", ALL, 'i') \
    X(1, u32, v_cvt_f16_u16, "h:w", ALL, 'i') \
    X(1, u32, v_cvt_f16_i16, "h:w", ALL, 'i') \
    X(L1, u32, v_cvt_u16_f16, "w:h", ALL, 'i') \
    X(L1, u32, v_cvt_i16_f16, "w:h", ALL, 'i') \
    X(1, u32, v_cvt_f32_bf16, "f:w", GFX950, 'l', SIM_IS_BF16) \
    X(W1, u64, v_cvt_f64_f32, "d:f", ALL, 'i') \
    X(W1, u64, v_cvt_f32_f64, "f:d", ALL, 'i') \
    X(W1, u64, v_cvt_f64_i32, "d:i", ALL, 'i') \
    X(W1, u64, v_cvt_f64_u32, "d:i", ALL, 'i') \
    X(W1, u64, v_cvt_i32_f64, "i:d", ALL, 'i') \
    X(W1, u64, v_cvt_u32_f64, "i:d", ALL, 'i') \
    X(L2, u32, v_cvt_sr_f16_f32, "k:fi", GFX950, '?') \
    X(L2, u32, v_cvt_sr_bf16_f32, "k:fi", GFX950, '?')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    // RDNA's names
    VALU_ALIAS(v_cvt_floor_i32_f32, v_cvt_flr_i32_f32, GFX11P, "i:f")
    VALU_ALIAS(v_cvt_nearest_i32_f32, v_cvt_rpi_i32_f32, GFX11P, "i:f")};
// clang-format on
SIM_TABLE(sim_ops_valu_convert, opcodes);
