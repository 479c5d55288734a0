// SPDX-License-Identifier: Apache-2.0
// gfx950's scaled conversions: floats of 4, 6 and 8 bits become wider ones times a power of two,
// and back, divided by it. The power is the exponent of the last source. Source: "CDNA4" ISA,
// v_cvt_scalef32_*; the OCP microscaling formats.
#include "../exec.h"
#include "../fp8.h"

#include <math.h>

// ---- one number

/** A small float. Kinds of less than 8 bits have neither NaN nor infinity: values beyond the
 *  largest number become that number. */
typedef struct narrow_float {
    uint32_t bits;
    int exponent_bits, mantissa_bits, bias;
    const sim_fp8 *fp8;
} narrow_float;

static const narrow_float FP4 = {4, 2, 1, 1, nullptr}, FP6 = {6, 2, 3, 1, nullptr},
                          BF6 = {6, 3, 2, 3, nullptr}, FP8 = {8, 4, 3, 7, &sim_e4m3fn},
                          BF8 = {8, 5, 2, 15, &sim_e5m2};

typedef enum wide_float { F32, F16, BF16 } wide_float;

/** Returns 2^(exponent - 127) of an f32 pattern, or NaN for the exponent of NaN and infinity. */
static double scale_of(uint32_t bits) {
    const int exponent = (int)(bits >> 23 & 255);
    return exponent == 255 ? NAN : ldexp(1, exponent - 127);
}

static double decode(const narrow_float *kind, uint32_t bits) {
    if (kind->fp8)
        return (double)as_f32(sim_fp8_decode(kind->fp8, (u32x16){} + bits)[0]);
    const uint32_t sign = bits >> (kind->bits - 1),
                   magnitude = bits & ((1u << (kind->bits - 1)) - 1);
    const int exponent = (int)(magnitude >> kind->mantissa_bits), one = 1 << kind->mantissa_bits;
    const int fraction = (int)magnitude & (one - 1);
    const double value = exponent
                             ? ldexp(one + fraction, exponent - kind->bias - kind->mantissa_bits)
                             : ldexp(fraction, 1 - kind->bias - kind->mantissa_bits);
    return sign ? -value : value;
}

/** Rounds to nearest, ties to even. With `random`, adds it as a fraction of the last place, then
 *  cuts. */
static uint32_t encode_small(const narrow_float *kind, double value, const uint32_t *random) {
    const uint32_t sign = signbit(value) ? 1u << (kind->bits - 1) : 0,
                   most = (1u << (kind->bits - 1)) - 1;
    const double x = fabs(value);
    if (!(x < 64)) // NaN too
        return sign | most;
    int least = 1 - kind->bias, exponent = x > 0 ? ilogb(x) : least;
    exponent = exponent < least ? least : exponent;
    double places = ldexp(x, kind->mantissa_bits - exponent);
    places = random ? floor(places + (double)*random * 0x1p-32) : rint(places);
    const uint32_t out = (uint32_t)places + ((uint32_t)(exponent - least) << kind->mantissa_bits);
    return sign | (out < most ? out : most);
}

static uint32_t encode(const sim_wave *w, const narrow_float *kind, double value,
                       const uint32_t *random) {
    if (!kind->fp8)
        return encode_small(kind, value, random);
    const bool saturate = w->mode & SIM_MODE_FP16_OVFL;
    const uint32_t bits = f32_bits((float)value);
    return random ? sim_fp8_encode_random(kind->fp8, bits, *random, saturate)
                  : sim_fp8_encode(kind->fp8, (u32x16){} + bits, saturate)[0];
}

static uint32_t bf16_of(float value) {
    const uint32_t bits = f32_bits(value);
    return isnan(value) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint32_t widened(wide_float kind, double value) {
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return kind == F32 ? f32_bits((float)value) : kind == F16 ? bits : bf16_of((float)value);
}

static double value_of(wide_float kind, uint32_t bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 half;
    memcpy(&half, &low, sizeof half);
    return kind == F32   ? (double)as_f32(bits)
           : kind == F16 ? (double)half
                         : (double)as_f32(bits << 16);
}

/** Returns the next number of v_prng_b32, a shift register with feedback. */
static uint32_t next_in_sequence(uint32_t x) {
    return x << 1 ^ (x >> 31 ? 197 : 0);
}

// ---- small to wide

/** Returns the first bit of the source: op_sel bits 0 and 1 choose the byte, or bit 0 the half,
 *  that holds the numbers. */
static uint32_t source_bit(const sim_inst *inst, uint32_t bits) {
    return bits == 8 ? 8 * (inst->op_sel & 3u) : bits == 16 ? 16 * (inst->op_sel & 1u) : 0;
}

/** Puts element i of a lane where the wide kind has it: in a register of its own, or in half of
 *  one. */
static void put_wide(uint32_t out[][SIM_LANES], wide_float to, unsigned i, unsigned lane,
                     uint32_t bits) {
    if (to == F32)
        out[i][lane] = bits;
    else
        out[i / 2][lane] = i & 1 ? out[i / 2][lane] | bits << 16 : bits;
}

static void widen(sim_wave *w, const sim_inst *inst, const narrow_float *from, wide_float to,
                  unsigned count) {
    _Alignas(64) uint32_t tmp[2][SIM_LANES], out[32][SIM_LANES];
    const uint32_t *scale = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *src = count == 32 ? w->v[inst->src[0].reg] : sim_row32(w, inst, 0, tmp[0]);
    const uint32_t first = source_bit(inst, from->bits * count);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        for (unsigned i = 0; i < count; i++) {
            const uint32_t bit = first + i * from->bits, low = bit & 31;
            const uint32_t *at = src + bit / 32 * SIM_LANES + lane;
            const uint64_t pair = *at | (low + from->bits > 32 ? (uint64_t)at[SIM_LANES] << 32 : 0);
            const uint32_t bits = (uint32_t)(pair >> low) & ((1u << from->bits) - 1);
            put_wide(out, to, i, lane, widened(to, decode(from, bits) * scale_of(scale[lane])));
        }
    }
    uint32_t *dst = w->v[inst->dst[0].reg];
    if (count == 1 && to == F16) { // op_sel bit 3 chooses the half; the other keeps its value
        const bool high = inst->op_sel & 8;
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            out[0][lane] = high ? out[0][lane] << 16 | (dst[lane] & 0xffff)
                                : out[0][lane] | (dst[lane] & 0xffff0000);
        }
    }
    const unsigned rows = to == F32 ? count : (count + 1) / 2;
    for (unsigned i = 0; i < rows; i++)
        store_masked(dst + i * SIM_LANES, out[i], w->exec);
}

// ---- wide to small

enum {
    RANDOM = 1,
    TWO_SOURCES = 2
}; // the flags `how`: stochastic rounding; elements alternate between two sources

/** Finds where the wide elements lie: one row for each f32, one for each two of the others. */
static void find_rows(const sim_wave *w, const sim_inst *inst, wide_float from, unsigned count,
                      unsigned how, uint32_t tmp[][SIM_LANES], const uint32_t *rows[32]) {
    if (count == 32) {
        for (unsigned i = 0; i < 32; i++) {
            const unsigned source = how & TWO_SOURCES ? i & 1 : 0;
            const unsigned step = how & TWO_SOURCES ? i / 2 : from == F32 ? i : i / 2;
            rows[i] = w->v[inst->src[source].reg + step];
        }
    } else if (from == F32 && count == 2 && (how & RANDOM)) { // a pair of registers
        rows[0] = sim_row64(w, inst, 0, tmp[0]);
        rows[1] = rows[0] + SIM_LANES;
    } else {
        rows[0] = sim_row32(w, inst, 0, tmp[0]);
        rows[1] = from == F32 && count == 2 ? sim_row32(w, inst, 1, tmp[1]) : rows[0];
    }
}

/** Computes and packs the results of one lane. */
static void narrow_lane(const sim_wave *w, const narrow_float *to, wide_float from, unsigned count,
                        const uint32_t *const rows[32], unsigned lane, double scale,
                        const uint32_t *seed, uint32_t packed[6]) {
    uint32_t random = seed ? seed[lane] : 0;
    uint64_t bits = 0;
    uint32_t have = 0, word = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t element = rows[i][lane] >> (from != F32 && (i & 1) ? 16 : 0);
        const double value = value_of(from, element) / scale;
        bits |= (uint64_t)encode(w, to, value, seed ? &random : nullptr) << have;
        random = next_in_sequence(random);
        have += to->bits;
        if (have >= 32 || i + 1 == count) {
            packed[word++] = (uint32_t)bits;
            bits >>= 32;
            have -= have >= 32 ? 32 : have;
        }
    }
}

/** Converts wide numbers to small ones. op_sel bits 2 and 3 choose the byte, or bit 3 the half,
 *  that is written; the rest of the register keeps its value. */
static void narrow(sim_wave *w, const sim_inst *inst, const narrow_float *to, wide_float from,
                   unsigned count, unsigned how) {
    _Alignas(64) uint32_t tmp[5][SIM_LANES], out[6][SIM_LANES];
    const uint32_t *rows[32], *scale = sim_row32(w, inst, inst->num_src - 1u, tmp[2]);
    const uint32_t *seed = how & RANDOM ? sim_row32(w, inst, 1, tmp[3]) : nullptr;
    uint32_t *dst = w->v[inst->dst[0].reg], total = to->bits * count;
    find_rows(w, inst, from, count, how, tmp, rows);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint32_t packed[6];
        narrow_lane(w, to, from, count, rows, lane, scale_of(scale[lane]), seed, packed);
        const uint32_t shift =
            total == 8 ? 8 * (inst->op_sel >> 2 & 3u) : 16 * (inst->op_sel >> 3 & 1u);
        const uint32_t mask = total == 8 ? 255u << shift : 0xffffu << shift;
        if (total < 32) {
            out[0][lane] = (dst[lane] & ~mask) | packed[0] << shift;
            continue;
        }
        for (unsigned i = 0; i < 6; i++)
            out[i][lane] = packed[i];
    }
    for (unsigned i = 0; i < (total < 32 ? 1 : 6); i++)
        store_masked(dst + i * SIM_LANES, out[i], w->exec);
}

static u32x16 prng(u32x16 x) {
    return x << 1 ^ ((u32x16)((i32x16)x < 0) & 197);
}

static void exec_v_prng_b32(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp);
    for (unsigned k = 0; k < SIM_LANES; k += 16)
        store16(result + k, prng(load16(a + k)));
    sim_finish32(w, inst, result);
}

// ---- tables
// clang-format off
// X(mnemonic after v_cvt_scalef32_, small kind, wide kind, numbers, types)
#define WIDEN(X) \
    X(f32_fp8, FP8, F32, 1, "i:if") X(f32_bf8, BF8, F32, 1, "i:if") \
    X(f16_fp8, FP8, F16, 1, "i:if") X(f16_bf8, BF8, F16, 1, "i:if") \
    X(pk_f32_fp8, FP8, F32, 2, "q:if") X(pk_f32_bf8, BF8, F32, 2, "q:if") \
    X(pk_f16_fp8, FP8, F16, 2, "i:if") X(pk_f16_bf8, BF8, F16, 2, "i:if") \
    X(pk_bf16_fp8, FP8, BF16, 2, "i:if") X(pk_bf16_bf8, BF8, BF16, 2, "i:if") \
    X(pk_f32_fp4, FP4, F32, 2, "q:if") X(pk_f16_fp4, FP4, F16, 2, "i:if") X(pk_bf16_fp4, FP4, BF16, 2, "i:if") \
    X(pk32_f32_fp6, FP6, F32, 32, "i:if") X(pk32_f32_bf6, BF6, F32, 32, "i:if") \
    X(pk32_f16_fp6, FP6, F16, 32, "i:if") X(pk32_f16_bf6, BF6, F16, 32, "i:if") \
    X(pk32_bf16_fp6, FP6, BF16, 32, "i:if") X(pk32_bf16_bf6, BF6, BF16, 32, "i:if")
// X(mnemonic, small kind, wide kind, numbers, how, types)
#define NARROW(X) \
    X(pk_fp8_f32, FP8, F32, 2, 0, "i:fff") X(pk_bf8_f32, BF8, F32, 2, 0, "i:fff") \
    X(pk_fp8_f16, FP8, F16, 2, 0, "i:if") X(pk_bf8_f16, BF8, F16, 2, 0, "i:if") \
    X(pk_fp8_bf16, FP8, BF16, 2, 0, "i:if") X(pk_bf8_bf16, BF8, BF16, 2, 0, "i:if") \
    X(pk_fp4_f32, FP4, F32, 2, 0, "i:fff") X(pk_fp4_f16, FP4, F16, 2, 0, "i:if") X(pk_fp4_bf16, FP4, BF16, 2, 0, "i:if") \
    X(sr_fp8_f32, FP8, F32, 1, RANDOM, "i:fif") X(sr_bf8_f32, BF8, F32, 1, RANDOM, "i:fif") \
    X(sr_fp8_f16, FP8, F16, 1, RANDOM, "i:iif") X(sr_bf8_f16, BF8, F16, 1, RANDOM, "i:iif") \
    X(sr_fp8_bf16, FP8, BF16, 1, RANDOM, "i:iif") X(sr_bf8_bf16, BF8, BF16, 1, RANDOM, "i:iif") \
    X(sr_pk_fp4_f32, FP4, F32, 2, RANDOM, "i:qif") X(sr_pk_fp4_f16, FP4, F16, 2, RANDOM, "i:iif") \
    X(sr_pk_fp4_bf16, FP4, BF16, 2, RANDOM, "i:iif") \
    X(2xpk16_fp6_f32, FP6, F32, 32, TWO_SOURCES, "i:iif") X(2xpk16_bf6_f32, BF6, F32, 32, TWO_SOURCES, "i:iif") \
    X(pk32_fp6_f16, FP6, F16, 32, 0, "i:if") X(pk32_bf6_f16, BF6, F16, 32, 0, "i:if") \
    X(pk32_fp6_bf16, FP6, BF16, 32, 0, "i:if") X(pk32_bf6_bf16, BF6, BF16, 32, 0, "i:if") \
    X(sr_pk32_fp6_f32, FP6, F32, 32, RANDOM, "i:iif") X(sr_pk32_bf6_f32, BF6, F32, 32, RANDOM, "i:iif") \
    X(sr_pk32_fp6_f16, FP6, F16, 32, RANDOM, "i:iif") X(sr_pk32_bf6_f16, BF6, F16, 32, RANDOM, "i:iif") \
    X(sr_pk32_fp6_bf16, FP6, BF16, 32, RANDOM, "i:iif") X(sr_pk32_bf6_bf16, BF6, BF16, 32, RANDOM, "i:iif")

#define WRAP_WIDEN(name, small, wide, count, types) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { widen(w, inst, &small, wide, count); }
#define WRAP_NARROW(name, small, wide, count, how, types) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { narrow(w, inst, &small, wide, count, how); }
WIDEN(WRAP_WIDEN)
NARROW(WRAP_NARROW)

#define LINE(name, types) SIM_ROW("v_cvt_scalef32_" #name, exec_##name, GFX950, SIM_VALU, 'i', types)
#define WIDEN_LINE(name, small, wide, count, types) LINE(name, types)
#define NARROW_LINE(name, small, wide, count, how, types) LINE(name, types)
static const sim_opcode opcodes[] = {WIDEN(WIDEN_LINE) NARROW(NARROW_LINE)
    SIM_ROW("v_prng_b32", exec_v_prng_b32, GFX950, SIM_VALU, 'i', "i:i")};
// clang-format on
SIM_TABLE(sim_ops_valu_convert_scaled, opcodes);
