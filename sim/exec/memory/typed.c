// SPDX-License-Identifier: Apache-2.0
// Typed buffer loads and stores: elements of one to four components, converted between memory's
// format and f32, f16 or integers. buffer_*_format_* take the format from the descriptor, tbuffer_*
// from the instruction. Source: "CDNA3", "RDNA3" and "RDNA4" ISA, buffer instructions; LLVM's names
// of the format numbers. How the hardware rounds values out of a format's range is not published.
// Here they become the nearest even value within the range.
#include "access.h"

#include <math.h>

typedef enum number { UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT, NO_NUMBER } number;

/** A data format: the bits of its components, the lowest first. The ISA's names have the highest
 *  first. */
typedef struct layout {
    uint8_t count, bits[4];
} layout;

enum {
    L_NONE,
    L_8,
    L_16,
    L_8_8,
    L_32,
    L_16_16,
    L_10_11_11,
    L_11_11_10,
    L_10_10_10_2,
    L_2_10_10_10,
    L_8_8_8_8,
    L_32_32,
    L_16_16_16_16,
    L_32_32_32,
    L_32_32_32_32,
    NUM_LAYOUTS
};

/** In the order of gfx9's DATA_FORMAT. */
static const layout layouts[NUM_LAYOUTS] = {
    {0, {}},
    {1, {8}},
    {1, {16}},
    {2, {8, 8}},
    {1, {32}},
    {2, {16, 16}},
    {3, {11, 11, 10}},
    {3, {10, 11, 11}},
    {4, {2, 10, 10, 10}},
    {4, {10, 10, 10, 2}},
    {4, {8, 8, 8, 8}},
    {2, {32, 32}},
    {4, {16, 16, 16, 16}},
    {3, {32, 32, 32}},
    {4, {32, 32, 32, 32}},
};

typedef struct format {
    uint8_t layout; // L_NONE: none
    uint8_t number;
} format;

/** Returns one of RDNA3's and RDNA4's 64 formats, which are runs of kinds of number for one
 *  layout. */
static format unified_format(uint32_t n) {
    static const struct {
        uint8_t layout, first, count;
        uint8_t numbers[7];
    } runs[] = {
        {L_8, 1, 6, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT}},
        {L_16, 7, 7, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT}},
        {L_8_8, 14, 6, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT}},
        {L_32, 20, 3, {UINT, SINT, FLOAT}},
        {L_16_16, 23, 7, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT}},
        {L_10_11_11, 30, 1, {FLOAT}},
        {L_11_11_10, 31, 1, {FLOAT}},
        {L_10_10_10_2, 32, 4, {UNORM, SNORM, UINT, SINT}},
        {L_2_10_10_10, 36, 6, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT}},
        {L_8_8_8_8, 42, 6, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT}},
        {L_32_32, 48, 3, {UINT, SINT, FLOAT}},
        {L_16_16_16_16, 51, 7, {UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT}},
        {L_32_32_32, 58, 3, {UINT, SINT, FLOAT}},
        {L_32_32_32_32, 61, 3, {UINT, SINT, FLOAT}},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (n >= runs[i].first && n < runs[i].first + runs[i].count)
            return (format){runs[i].layout, runs[i].numbers[n - runs[i].first]};
    return (format){};
}

/** Returns gfx9's format, which keeps layout and kind of number apart. Kind 6 is reserved. */
static format split_format(uint32_t data, uint32_t kind) {
    static const uint8_t numbers[8] = {UNORM, SNORM, USCALED,   SSCALED,
                                       UINT,  SINT,  NO_NUMBER, FLOAT};
    if (data >= NUM_LAYOUTS || numbers[kind] == NO_NUMBER)
        return (format){};
    return (format){(uint8_t)data, numbers[kind]};
}

static const uint32_t *descriptor(const sim_wave *w, const sim_inst *inst) {
    return &w->s[inst->src[inst->num_src - 2].reg];
}

static format find_format(const sim_wave *w, const sim_inst *inst) {
    const uint32_t word = descriptor(w, inst)[3], major = w->group->dispatch->chip->gfx_major;
    if (inst->traits.addressing == SIM_TYPED_BUFFER) {
        return major == 9    ? split_format(inst->word[0] >> 19 & 15, inst->word[0] >> 23 & 7)
               : major == 11 ? unified_format(inst->word[0] >> 19 & 127)
                             : unified_format(inst->word[1] >> 23 & 127);
    }
    return major == 9 ? split_format(word >> 15 & 15, word >> 12 & 7)
                      : unified_format(word >> 12 & 63);
}

static uint32_t bytes_of(const layout *l) {
    uint32_t bits = 0;
    for (unsigned i = 0; i < l->count; i++)
        bits += l->bits[i];
    return bits / 8;
}

// ---- one component

static bool is_integer(uint8_t number) {
    return number == UINT || number == SINT;
}

static uint32_t ones(unsigned bits) {
    return bits == 32 ? UINT32_MAX : (1u << bits) - 1;
}

static int32_t sign_extended(uint32_t x, unsigned bits) {
    return (int32_t)(x << (32 - bits)) >> (32 - bits);
}

/** Decodes a float. One of 10 or 11 bits has no sign and 5 bits of exponent; the rest is
 *  mantissa. */
static float decode_float(uint32_t x, unsigned bits) {
    uint16_t half = (uint16_t)(bits < 16 ? x << (15 - bits) : x);
    _Float16 value;
    memcpy(&value, &half, sizeof half);
    return bits == 32 ? as_f32(x) : (float)value;
}

/** Returns the value of a register: the bits of an f32, or an integer. */
static uint32_t decode(uint8_t number, uint32_t x, unsigned bits) {
    const int32_t signed_x = sign_extended(x, bits);
    switch (number) {
    case UNORM:
        return f32_bits((float)((double)x / ones(bits)));
    case SNORM:
        return f32_bits((float)fmax((double)signed_x / ones(bits - 1), -1));
    case USCALED:
        return f32_bits((float)x);
    case SSCALED:
        return f32_bits((float)signed_x);
    case SINT:
        return (uint32_t)signed_x;
    case FLOAT:
        return f32_bits(decode_float(x, bits));
    default:
        return x;
    }
}

/** Rounds to the nearest even integer within [low, high]. NaN becomes 0. */
static uint32_t to_integer(double x, double low, double high) {
    const double inside = x != x ? 0 : fmin(fmax(x, low), high);
    return (uint32_t)(int64_t)rint(inside);
}

static uint32_t encode_float(float x, unsigned bits) {
    if (bits == 32)
        return f32_bits(x);
    _Float16 half = (_Float16)x;
    uint16_t out;
    memcpy(&out, &half, sizeof out);
    if (bits == 16)
        return out;
    const bool negative = out >> 15 && x == x; // the format has no sign, so values below 0 become 0
    const unsigned unused = 15 - bits;
    const uint32_t magnitude = out & 0x7fff,
                   rounded =
                       (magnitude + (1u << unused >> 1) - 1 + (magnitude >> unused & 1)) >> unused;
    return negative ? 0 : x != x ? ones(bits) : rounded;
}

static uint32_t encode(uint8_t number, uint32_t value, unsigned bits) {
    const double x = (double)as_f32(value), high = ones(bits), half = ones(bits - 1);
    switch (number) {
    case UNORM:
        return to_integer(x * high, 0, high);
    case SNORM:
        return to_integer(x * half, -half, half);
    case USCALED:
        return to_integer(x, 0, high);
    case SSCALED:
        return to_integer(x, -half - 1, half);
    case FLOAT:
        return encode_float(as_f32(value), bits);
    default:
        return value;
    }
}

// ---- one element

/** Reads the components as they lie in memory, lowest first. */
static void unpack(const layout *l, const uint8_t *from, uint32_t out[4]) {
    unsigned at = 0;
    for (unsigned i = 0; i < l->count; at += l->bits[i++]) {
        uint64_t bits = 0;
        const uint32_t bytes = (at % 8 + l->bits[i] + 7) / 8;
        memcpy(&bits, from + at / 8, bytes);
        out[i] = (uint32_t)(bits >> at % 8) & ones(l->bits[i]);
    }
}

static void pack(const layout *l, uint8_t *to, const uint32_t in[4], unsigned count) {
    unsigned at = 0;
    for (unsigned i = 0; i < l->count; at += l->bits[i++]) {
        if (i >= count && l->bits[i] % 8 == 0)
            continue; // components of whole bytes that are not stored keep their value
        uint64_t bits = 0, mask = (uint64_t)ones(l->bits[i]) << at % 8;
        const uint32_t bytes = (at % 8 + l->bits[i] + 7) / 8;
        memcpy(&bits, to + at / 8, bytes);
        bits = (bits & ~mask) | ((i < count ? (uint64_t)in[i] << at % 8 : 0) & mask);
        memcpy(to + at / 8, &bits, bytes);
    }
}

/** Returns component `want` of a load: the descriptor chooses 0, 1 or a component. Missing ones are
 *  0, the fourth 1. */
static uint32_t selected(const sim_wave *w, const sim_inst *inst, format f, const uint32_t in[4],
                         unsigned want) {
    const uint32_t one = is_integer(f.number) ? 1 : f32_bits(1);
    const uint32_t select = descriptor(w, inst)[3] >> 3 * want & 7;
    const unsigned from = inst->traits.addressing == SIM_TYPED_BUFFER ? want : select - 4;
    if (inst->traits.addressing != SIM_TYPED_BUFFER && select < 4)
        return select == 1 ? one : 0;
    const layout *l = &layouts[f.layout];
    return from < l->count ? decode(f.number, in[from], l->bits[from]) : from == 3 ? one : 0;
}

// ---- 16-bit registers

static uint32_t to_half(format f, uint32_t value) {
    if (is_integer(f.number))
        return value & 0xffff;
    _Float16 half = (_Float16)as_f32(value);
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

static uint32_t from_half(format f, uint32_t bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 half;
    memcpy(&half, &low, sizeof half);
    return f.number == SINT       ? (uint32_t)(int16_t)low
           : is_integer(f.number) ? low
                                  : f32_bits((float)half);
}

// ---- execution

typedef enum packing { WHOLE, HALVES, HIGH_HALF } packing;

static bool is_format_known(sim_wave *w, const sim_inst *inst, format f) {
    if (f.layout == L_NONE) {
        sim_fault_raise(w, inst, -1,
                        "a typed buffer access with a format that is reserved: "
                        "descriptor word 3 is %08x",
                        descriptor(w, inst)[3]);
    }
    return f.layout != L_NONE;
}

static void put(sim_wave *w, const sim_inst *inst, int lane, unsigned i, packing p,
                uint32_t value) {
    uint32_t *at = &w->v[inst->dst[0].reg + (p == WHOLE ? i : i / 2)][lane];
    if (p == WHOLE) {
        *at = value;
    } else {
        const unsigned shift = p == HIGH_HALF ? 16 : i % 2 * 16;
        *at = (*at & ~(0xffffu << shift)) | value << shift;
    }
}

static void load_typed(sim_wave *w, const sim_inst *inst, unsigned count, packing p) {
    format f = find_format(w, inst);
    const layout *l = &layouts[f.layout];
    sim_access at;
    if (!is_format_known(w, inst, f) || !sim_resolve(w, inst, 0, bytes_of(l), false, &at))
        return;
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const bool inside = at.mask >> lane & 1;
        uint32_t in[4] = {};
        if (inside)
            unpack(l, at.host[lane], in);
        for (unsigned i = 0; i < count; i++) {
            const uint32_t value = inside ? selected(w, inst, f, in, i) : 0;
            put(w, inst, lane, i, p, p == WHOLE ? value : to_half(f, value));
        }
    }
}

static uint32_t get(const sim_wave *w, const sim_inst *inst, int lane, unsigned i, packing p,
                    format f) {
    const uint32_t row = w->v[inst->src[0].reg + (p == WHOLE ? i : i / 2)][lane];
    return p == WHOLE ? row : from_half(f, p == HIGH_HALF || i % 2 ? row >> 16 : row);
}

static void store_typed(sim_wave *w, const sim_inst *inst, unsigned count, packing p) {
    format f = find_format(w, inst);
    const layout *l = &layouts[f.layout];
    sim_access at;
    if (!is_format_known(w, inst, f) || !sim_resolve(w, inst, 0, bytes_of(l), true, &at))
        return;
    for (uint64_t left = at.mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint32_t out[4] = {};
        for (unsigned i = 0; i < count && i < l->count; i++)
            out[i] = encode(f.number, get(w, inst, lane, i, p, f), l->bits[i]);
        pack(l, at.host[lane], out, count);
    }
}

// clang-format off
#define SIZES(X) X(x, 1) X(xy, 2) X(xyz, 3) X(xyzw, 4)
#define WRAP(size, n) \
    static void exec_load_##size(sim_wave *w, const sim_inst *inst) { load_typed(w, inst, n, WHOLE); } \
    static void exec_store_##size(sim_wave *w, const sim_inst *inst) { store_typed(w, inst, n, WHOLE); } \
    static void exec_load_d16_##size(sim_wave *w, const sim_inst *inst) { load_typed(w, inst, n, HALVES); } \
    static void exec_store_d16_##size(sim_wave *w, const sim_inst *inst) { store_typed(w, inst, n, HALVES); }
SIZES(WRAP)
static void exec_load_d16_hi(sim_wave *w, const sim_inst *inst) { load_typed(w, inst, 1, HIGH_HALF); }
static void exec_store_d16_hi(sim_wave *w, const sim_inst *inst) { store_typed(w, inst, 1, HIGH_HALF); }

#define ROW(form, name, function, archs, types, access_, is_) \
    SIM_ROW(#form "_" name, exec_##function, archs, SIM_VMEM, '?', types, .access = SIM_ACCESS_##access_, \
            .addressing = ADDRESSING_##form, .is = SIM_HAS_FORMAT | is_)
#define LOAD(form, name, function, archs, is) ROW(form, name, function, archs, "i:", LOAD, is)
#define STORE(form, name, function, archs, is) ROW(form, name, function, archs, ":", STORE, is)
// RDNA says d16_format, gfx9 format_d16.
#define LINE(form, size) \
    LOAD(form, "load_format_" #size, load_##size, ALL, 0) STORE(form, "store_format_" #size, store_##size, ALL, 0) \
    LOAD(form, "load_format_d16_" #size, load_d16_##size, GFX9, SIM_IS_D16) \
    STORE(form, "store_format_d16_" #size, store_d16_##size, GFX9, SIM_IS_D16) \
    LOAD(form, "load_d16_format_" #size, load_d16_##size, GFX11P, SIM_IS_D16) \
    STORE(form, "store_d16_format_" #size, store_d16_##size, GFX11P, SIM_IS_D16)
#define LINES(size, n) LINE(buffer, size) LINE(tbuffer, size)
static const sim_opcode opcodes[] = {SIZES(LINES)
    LOAD(buffer, "load_format_d16_hi_x", load_d16_hi, GFX9, SIM_IS_D16)
    STORE(buffer, "store_format_d16_hi_x", store_d16_hi, GFX9, SIM_IS_D16)
    LOAD(buffer, "load_d16_hi_format_x", load_d16_hi, GFX11P, SIM_IS_D16)
    STORE(buffer, "store_d16_hi_format_x", store_d16_hi, GFX11P, SIM_IS_D16)};
// clang-format on
SIM_TABLE(sim_ops_typed, opcodes);
