// SPDX-License-Identifier: Apache-2.0
// Conversions between 32-bit integers, f32, f16 and smaller fields; packs. Source: "CDNA3" ISA,
// VOP1, VOP3.
#include "../numbers.h"
#include "vector.h"

// ---- integers and f32

/** By halves: a host without the conversion subtracts a large number, and rounded down 0 becomes
 *  -0. */
static u32x16 v_cvt_f32_u32(u32x16 a) {
    i32x16 high = (i32x16)(a >> 16), low = (i32x16)(a & 0xffff);
    return (u32x16)(__builtin_convertvector(high, f32x16) * 0x1p16f +
                    __builtin_convertvector(low, f32x16));
}
static u32x16 v_cvt_f32_i32(u32x16 a) {
    return (u32x16) __builtin_convertvector((i32x16)a, f32x16);
}

static f32x16 zero_if_nan(f32x16 a) {
    return choose(is_nan(a), (f32x16){}, a);
}

/** Truncated; saturated; NaN is 0. */
static u32x16 to_i32(f32x16 a) {
    f32x16 low = (f32x16){} - 0x1p31f, high = (f32x16){} + 0x1.fffffep30f;
    f32x16 inside = min_number(max_number(zero_if_nan(a), low), high);
    u32x16 value = (u32x16) __builtin_convertvector(inside, i32x16);
    return select16((u32x16)(a >= 0x1p31f), (u32x16){} + INT32_MAX, value);
}

static u32x16 to_u32(f32x16 a) {
    f32x16 high = (f32x16){} + 0x1.fffffep31f;
    f32x16 inside = min_number(max_number(zero_if_nan(a), (f32x16){}), high);
    u32x16 value = __builtin_convertvector(inside, u32x16);
    return select16((u32x16)(a >= 0x1p32f), (u32x16){} + UINT32_MAX, value);
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

/** A signed 4-bit integer, divided by 16. */
static u32x16 v_cvt_off_f32_i4(u32x16 a) {
    i32x16 value = (i32x16)(a << 28) >> 28;
    return (u32x16)(__builtin_convertvector(value, f32x16) * 0x1p-4f);
}

// ---- f16

static u32x16 v_cvt_f32_f16(u32x16 a) {
    return (u32x16)f32_of_f16(a & 0xffff);
}
static u32x16 v_cvt_f16_f32(u32x16 a) {
    return f16_of_f32((f32x16)a);
}
static u32x16 v_cvt_f16_u16(u32x16 a) {
    return f16_of_f32(__builtin_convertvector(a & 0xffff, f32x16));
}

static u32x16 v_cvt_f16_i16(u32x16 a) {
    return f16_of_f32(__builtin_convertvector((i32x16)(a << 16) >> 16, f32x16));
}

static f32x16 limit(f32x16 a, float low, float high) {
    return min_number(max_number(zero_if_nan(a), (f32x16){} + low), (f32x16){} + high);
}

static u32x16 v_cvt_u16_f16(u32x16 a) {
    return to_u32(limit(f32_of_f16(a & 0xffff), 0, 65535));
}
static u32x16 v_cvt_i16_f16(u32x16 a) {
    return to_i32(limit(f32_of_f16(a & 0xffff), -32768, 32767)) & 0xffff;
}

/** f32 to f16 towards zero: the nearest f16, stepped back where it is further from zero. */
static u32x16 toward_zero(f32x16 a) {
    u32x16 nearest = f16_of_f32(a);
    f32x16 back = f32_of_f16(nearest);
    u32x16 beyond = (u32x16)(__builtin_elementwise_abs(back) > __builtin_elementwise_abs(a));
    return nearest - (beyond & 1); // infinity becomes the largest number
}

static u32x16 v_cvt_pkrtz_f16_f32(u32x16 a, u32x16 b) {
    return toward_zero((f32x16)a) | toward_zero((f32x16)b) << 16;
}

static u32x16 v_cvt_pk_f16_f32(u32x16 a, u32x16 b) {
    return f16_of_f32((f32x16)a) | f16_of_f32((f32x16)b) << 16;
}
static u32x16 v_pack_b32_f16(u32x16 a, u32x16 b) {
    return (a & 0xffff) | b << 16;
}

// ---- packs of small integers

/** -1 (or 0) to 1 as a whole number; the product is exact, so that it is rounded once. */
static u32x16 normalised(f32x16 a, float scale) {
    f64x16 product = __builtin_convertvector(limit(a, scale > 32767 ? 0 : -1, 1), f64x16) *
                     ((f64x16){} + (double)scale);
    return to_i32(__builtin_convertvector(__builtin_elementwise_roundeven(product), f32x16)) &
           0xffff;
}

static u32x16 v_cvt_pknorm_i16_f32(u32x16 a, u32x16 b) {
    return normalised((f32x16)a, 32767) | normalised((f32x16)b, 32767) << 16;
}

static u32x16 v_cvt_pknorm_u16_f32(u32x16 a, u32x16 b) {
    return normalised((f32x16)a, 65535) | normalised((f32x16)b, 65535) << 16;
}

static u32x16 v_cvt_pk_u16_u32(u32x16 a, u32x16 b) {
    u32x16 most = (u32x16){} + 65535;
    return __builtin_elementwise_min(a, most) | __builtin_elementwise_min(b, most) << 16;
}

static u32x16 clamp_i16(u32x16 a) {
    i32x16 low = (i32x16){} - 32768, high = (i32x16){} + 32767;
    return (u32x16)__builtin_elementwise_min(__builtin_elementwise_max((i32x16)a, low), high) &
           0xffff;
}

static u32x16 v_cvt_pk_i16_i32(u32x16 a, u32x16 b) {
    return clamp_i16(a) | clamp_i16(b) << 16;
}

/** The first source as a byte into byte b of the third. */
static u32x16 v_cvt_pk_u8_f32(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 shift = (b & 3) * 8, byte = to_u32(limit((f32x16)a, 0, 255));
    return (c & ~((u32x16){} + 255 << shift)) | byte << shift;
}

// ---- RDNA

static u32x16 v_cvt_pk_i16_f32(u32x16 a, u32x16 b) {
    u32x16 low = to_i32(limit((f32x16)a, -32768, 32767));
    return (low & 0xffff) | to_i32(limit((f32x16)b, -32768, 32767)) << 16;
}

static u32x16 v_cvt_pk_u16_f32(u32x16 a, u32x16 b) {
    return to_u32(limit((f32x16)a, 0, 65535)) | to_u32(limit((f32x16)b, 0, 65535)) << 16;
}

static u32x16 v_cvt_norm_i16_f16(u32x16 a) {
    return normalised(f32_of_f16(a & 0xffff), 32767);
}
static u32x16 v_cvt_norm_u16_f16(u32x16 a) {
    return normalised(f32_of_f16(a & 0xffff), 65535);
}

static u32x16 v_cvt_pk_norm_i16_f16(u32x16 a, u32x16 b) {
    return normalised(f32_of_f16(a & 0xffff), 32767) | normalised(f32_of_f16(b & 0xffff), 32767)
                                                           << 16;
}

static u32x16 v_cvt_pk_norm_u16_f16(u32x16 a, u32x16 b) {
    return normalised(f32_of_f16(a & 0xffff), 65535) | normalised(f32_of_f16(b & 0xffff), 65535)
                                                           << 16;
}

/** Of two scalars. */
static void exec_s_cvt_pk_rtz_f16_f32(sim_wave *w, const sim_inst *inst) {
    u32x16 zero = {};
    u32x16 a = zero + sim_read32(w, &inst->src[0]), b = zero + sim_read32(w, &inst->src[1]);
    sim_write32(w, &inst->dst[0], v_cvt_pkrtz_f16_f32(a, b)[0]);
}

// ---- bf16 (gfx950)

/** Nearest even; NaN stays NaN. */
static u32x16 bf16_of(u32x16 a) {
    u32x16 rounded = (a + 0x7fff + (a >> 16 & 1)) >> 16;
    return select16(is_nan((f32x16)a), a >> 16 | 0x40, rounded);
}

static u32x16 v_cvt_pk_bf16_f32(u32x16 a, u32x16 b) {
    return bf16_of(a) | bf16_of(b) << 16;
}
static u32x16 v_cvt_f32_bf16(u32x16 a) {
    return a << 16;
}

// clang-format off
#define LIST(X) \
    X(1, u32, v_cvt_f32_u32, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_i32, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_u32_f32, "i:f", ALL, 'i') \
    X(1, u32, v_cvt_i32_f32, "i:f", ALL, 'i') \
    X(1, u32, v_cvt_rpi_i32_f32, "i:f", GFX9, 'i') \
    X(1, u32, v_cvt_flr_i32_f32, "i:f", GFX9, 'i') \
    X(1, u32, v_cvt_f32_ubyte0, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte1, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte2, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_ubyte3, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_off_f32_i4, "f:i", ALL, 'i') \
    X(1, u32, v_cvt_f32_f16, "f:h", ALL, 'i') \
    X(1, u32, v_cvt_f16_f32, "h:f", ALL, 'i') \
    X(1, u32, v_cvt_f16_u16, "h:w", ALL, 'i') \
    X(1, u32, v_cvt_f16_i16, "h:w", ALL, 'i') \
    X(1, u32, v_cvt_u16_f16, "w:h", ALL, 'i') \
    X(1, u32, v_cvt_i16_f16, "w:h", ALL, 'i') \
    X(2, u32, v_cvt_pkrtz_f16_f32, "H:ff", GFX9, 'i') \
    X(2, u32, v_cvt_pk_f16_f32, "H:ff", GFX950, 'l') \
    X(2, u32, v_pack_b32_f16, "H:hh", ALL, 'i') \
    X(2, u32, v_cvt_pknorm_i16_f32, "i:ff", GFX9, 'i') \
    X(2, u32, v_cvt_pknorm_u16_f32, "i:ff", GFX9, 'i') \
    X(2, u32, v_cvt_pk_u16_u32, "i:ii", ALL, 'i') \
    X(2, u32, v_cvt_pk_i16_i32, "i:ii", ALL, 'i') \
    X(3, u32, v_cvt_pk_u8_f32, "i:fii", ALL, 'i') \
    X(2, u32, v_cvt_pk_i16_f32, "i:ff", GFX11P, 'i') \
    X(2, u32, v_cvt_pk_u16_f32, "i:ff", GFX11P, 'i') \
    X(1, u32, v_cvt_norm_i16_f16, "w:h", ALL, 'i') \
    X(1, u32, v_cvt_norm_u16_f16, "w:h", ALL, 'i') \
    X(2, u32, v_cvt_pk_norm_i16_f16, "i:hh", GFX11P, 'i') \
    X(2, u32, v_cvt_pk_norm_u16_f16, "i:hh", GFX11P, 'i') \
    X(2, u32, v_cvt_pk_bf16_f32, "i:ff", GFX950, 'l') \
    X(1, u32, v_cvt_f32_bf16, "f:w", GFX950, 'l', SIM_IS_BF16)

// RDNA's names.
#define RENAMED(X) \
    X(v_cvt_pk_rtz_f16_f32, v_cvt_pkrtz_f16_f32, "H:ff") X(v_cvt_pk_norm_i16_f32, v_cvt_pknorm_i16_f32, "i:ff") \
    X(v_cvt_pk_norm_u16_f32, v_cvt_pknorm_u16_f32, "i:ff") X(v_cvt_floor_i32_f32, v_cvt_flr_i32_f32, "i:f") \
    X(v_cvt_nearest_i32_f32, v_cvt_rpi_i32_f32, "i:f")
#define RENAMED_LINE(name, old, types) SIM_ROW(#name, exec_##old, GFX11P, SIM_VALU, 'i', types)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {
    SIM_ROW("s_cvt_pk_rtz_f16_f32", exec_s_cvt_pk_rtz_f16_f32, GFX11P, SIM_SALU, 'i', "H:ff", .is = SIM_KEEPS_SCC)
    SIM_ROW("v_cvt_pknorm_i16_f16", exec_v_cvt_pk_norm_i16_f16, GFX9, SIM_VALU, 'i', "i:hh")
    SIM_ROW("v_cvt_pknorm_u16_f16", exec_v_cvt_pk_norm_u16_f16, GFX9, SIM_VALU, 'i', "i:hh")
    SIM_ROW("v_cvt_pkaccum_u8_f32", exec_v_cvt_pk_u8_f32, GFX9, SIM_VALU, 'i', "i:fi+")
    LIST(VALU_LINE) RENAMED(RENAMED_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_cvt, opcodes);
