// SPDX-License-Identifier: Apache-2.0
// Declarations that the instruction families share: lane vectors, rows of operands, results.
//
// A row is one vector register: 64 lanes of 32 bits. An instruction's meaning is a function on
// blocks of 16 lanes (8 lanes for 64-bit operands), written with clang's vector types, which become
// SSE or AVX-512 code. Drivers in vector.h call this function: on the registers in place if the
// instruction has no modifiers, else on copies that sim_row32 prepares and sim_finish32 writes
// back.
#ifndef SIM_EXEC_H
#define SIM_EXEC_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../wave.h"

#include <string.h>

typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef uint64_t u64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef uint64_t u64x16 __attribute__((vector_size(128)));
typedef int64_t i64x16 __attribute__((vector_size(128)));
typedef double f64x16 __attribute__((vector_size(128)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

#define SIM_INLINE static inline __attribute__((always_inline))

// Sets of chips, for sim_opcode.archs.
enum {
    GFX90A = 1 << SIM_GFX90A,
    GFX942 = 1 << SIM_GFX942,
    GFX950 = 1 << SIM_GFX950,
    GFX9 = GFX90A | GFX942 | GFX950,
    GFX94 = GFX942 | GFX950,
    GFX11 = 1 << SIM_GFX1151 | 1 << SIM_GFX11_GENERIC,
    GFX12 = 1 << SIM_GFX1201 | 1 << SIM_GFX12_GENERIC,
    GFX11P = GFX11 | GFX12,
    ALL = GFX9 | GFX11P,
};

// ---- scalar operands

/** Returns VCC as a lane mask. In a wave of 32 lanes its upper half is an ordinary register. */
static inline uint64_t sim_vcc(const sim_wave *w) {
    return w->wave32 ? (uint32_t)w->vcc : w->vcc;
}

static inline uint64_t sim_special_value(const sim_wave *w, uint16_t special) {
    switch (special) {
    case SIM_SRC_SCC:
        return w->scc;
    case SIM_SRC_VCCZ:
        return sim_vcc(w) == 0;
    case SIM_SRC_EXECZ:
        return w->exec == 0;
    case SIM_SRC_SHARED_BASE:
        return w->shared_base;
    case SIM_SRC_SHARED_LIMIT:
        return w->shared_base | 0xffffffff;
    case SIM_SRC_PRIVATE_BASE:
        return w->private_base;
    case SIM_SRC_PRIVATE_LIMIT:
        return w->private_base | 0xffffffff;
    default:
        return 0; // null
    }
}

/** Returns a scalar operand's 32 bits. Of a 64-bit special operand these are the upper half, as
 *  s_mov_b32 of src_shared_base gives. */
static inline uint32_t sim_read32(const sim_wave *w, const sim_operand *op) {
    switch (op->kind) {
    case SIM_OP_SGPR:
        return w->s[op->reg];
    case SIM_OP_IMM:
        return op->value;
    case SIM_OP_SPECIAL: {
        const uint64_t value = sim_special_value(w, op->reg);
        return op->count == 2 ? (uint32_t)(value >> 32) : (uint32_t)value;
    }
    default:
        return 0;
    }
}

static inline uint64_t sim_read64(const sim_wave *w, const sim_operand *op) {
    switch (op->kind) {
    case SIM_OP_SGPR:
        return op->count == 1 ? w->s[op->reg] : w->s[op->reg] | (uint64_t)w->s[op->reg + 1] << 32;
    case SIM_OP_IMM:
        return op->value64;
    case SIM_OP_SPECIAL:
        return sim_special_value(w, op->reg);
    default:
        return 0;
    }
}

static inline void sim_write32(sim_wave *w, const sim_operand *op, uint32_t value) {
    if (op->kind == SIM_OP_SGPR)
        w->s[op->reg] = value;
}

static inline void sim_write64(sim_wave *w, const sim_operand *op, uint64_t value) {
    if (op->kind == SIM_OP_SGPR) {
        w->s[op->reg] = (uint32_t)value;
        w->s[op->reg + 1] = (uint32_t)(value >> 32);
    }
}

/** Writes a lane mask, which is a pair of SGPRs, or a single SGPR in waves of 32 lanes. */
static inline void sim_write_lanes(sim_wave *w, const sim_operand *op, uint64_t mask) {
    if (op->count == 1)
        sim_write32(w, op, (uint32_t)mask);
    else
        sim_write64(w, op, mask);
}

// ---- vector operands

/** Returns source `i` as a row: the register itself, or a copy in `tmp` to which the constant,
 *  modifiers, SDWA and DPP are applied. */
const uint32_t *SIM_NAME(sim_row32)(const sim_wave *w, const sim_inst *inst, unsigned i,
                                    uint32_t tmp[SIM_LANES]);
/** Returns a 64-bit source as sim_row32 returns a 32-bit one. The lower halves begin at [0], the
 *  upper halves at [SIM_LANES]. */
const uint32_t *SIM_NAME(sim_row64)(const sim_wave *w, const sim_inst *inst, unsigned i,
                                    uint32_t tmp[2 * SIM_LANES]);
/** Writes a row of results to dst[0], with output modifiers, MODE, parts by SDWA and op_sel, and
 *  the masks of EXEC and DPP. */
void SIM_NAME(sim_finish32)(sim_wave *w, const sim_inst *inst, uint32_t result[SIM_LANES]);
/** Writes 64-bit results as sim_finish32 writes 32-bit ones; halves lie as in sim_row64. */
void SIM_NAME(sim_finish64)(sim_wave *w, const sim_inst *inst, uint32_t result[2 * SIM_LANES]);
/** Returns the lanes that an instruction writes: EXEC without the lanes that DPP leaves out. */
uint64_t SIM_NAME(sim_write_mask)(const sim_wave *w, const sim_inst *inst);
/** Sets the host's rounding mode as MODE demands for an instruction. Returns true if it had to be
 *  changed; sim_rounding_end then changes it back. */
bool SIM_NAME(sim_rounding_begin)(const sim_wave *w, const sim_inst *inst);
void SIM_NAME(sim_rounding_end)(void);

#define sim_row32 SIM_NAME(sim_row32)
#define sim_row64 SIM_NAME(sim_row64)
#define sim_finish32 SIM_NAME(sim_finish32)
#define sim_finish64 SIM_NAME(sim_finish64)
#define sim_write_mask SIM_NAME(sim_write_mask)
#define sim_rounding_begin SIM_NAME(sim_rounding_begin)
#define sim_rounding_end SIM_NAME(sim_rounding_end)

/** Returns whether MODE has its usual values in the fields that the instruction depends on. */
static inline bool sim_is_mode_plain(const sim_wave *w, const sim_inst *inst) {
    const uint32_t field = inst->overflow ? SIM_MODE_FLOAT | SIM_MODE_FP16_OVFL : SIM_MODE_FLOAT;
    return !inst->is_float || (w->mode & field) == SIM_MODE_FLOAT_PLAIN;
}

/** Returns whether operands may be read and written in place: the instruction has no modifiers, and
 *  MODE has its usual values. */
static inline bool sim_is_plain(const sim_wave *w, const sim_inst *inst) {
    return inst->plain && sim_is_mode_plain(w, inst);
}

// ---- blocks

static inline u32x16 load16(const uint32_t *row) {
    u32x16 block;
    memcpy(&block, row, sizeof block);
    return block;
}

static inline void store16(uint32_t *row, u32x16 block) {
    memcpy(row, &block, sizeof block);
}

/** Returns all ones in lanes whose bit of `mask` is set, zeros in others. */
static inline u32x16 lanes16(uint32_t mask) {
    const u32x16 bit = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                        1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    return (u32x16)((mask & bit) != 0);
}

static inline u32x16 select16(u32x16 mask, u32x16 yes, u32x16 no) {
    return (mask & yes) | (~mask & no);
}

static inline uint32_t bits16(u32x16 mask) {
    typedef bool bool16 __attribute__((ext_vector_type(16)));
    bool16 bits = __builtin_convertvector(mask, bool16);
    uint16_t out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static inline uint32_t bits8(u64x8 mask) {
    typedef bool bool8 __attribute__((ext_vector_type(8)));
    bool8 bits = __builtin_convertvector(mask, bool8);
    uint8_t out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static inline u64x8 load8x64(const uint32_t *row) {
    u32x8 low, high;
    memcpy(&low, row, sizeof low);
    memcpy(&high, row + SIM_LANES, sizeof high);
    return __builtin_convertvector(low, u64x8) | __builtin_convertvector(high, u64x8) << 32;
}

static inline u64x8 load8x32(const uint32_t *row) {
    u32x8 low;
    memcpy(&low, row, sizeof low);
    return __builtin_convertvector(low, u64x8);
}

static inline void store8x64(uint32_t *row, u64x8 block) {
    u32x8 low = __builtin_convertvector(block, u32x8);
    u32x8 high = __builtin_convertvector(block >> 32, u32x8);
    memcpy(row, &low, sizeof low);
    memcpy(row + SIM_LANES, &high, sizeof high);
}

static inline void store8x32(uint32_t *row, u64x8 block) {
    u32x8 low = __builtin_convertvector(block, u32x8);
    memcpy(row, &low, sizeof low);
}

/** Copies the lanes of `mask` from one row to another. */
static inline void store_masked(uint32_t *row, const uint32_t *value, uint64_t mask) {
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        store16(row + k, select16(lanes16((uint32_t)(mask >> k) & 0xffff), load16(value + k),
                                  load16(row + k)));
    }
}

/** Returns f16 results as MODE.FP16_OVFL demands: infinities become the largest number, except in
 *  the lanes of `keep`. */
static inline u32x16 sim_limit_f16(const sim_wave *w, u32x16 half, u32x16 keep) {
    u32x16 limited = (u32x16)((half & 0x7fff) == 0x7c00) & ~keep;
    return w->mode & SIM_MODE_FP16_OVFL ? half + limited : half; // less 1: 0x7bff
}

// ---- sixteen lanes' runs of dwords, in lane order, and the rows that hold them

#define SIM_FIRST8(a, b, k)                                                                        \
    __builtin_shufflevector(a, b, k, k + 4, k + 8, k + 12, k + 16, k + 20, k + 24, k + 28)
#define SIM_JOIN(a, b)                                                                             \
    __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define SIM_DEAL4(k)                                                                               \
    store16(rows + SIM_LANES * k, SIM_JOIN(SIM_FIRST8(a, b, k), SIM_FIRST8(c, d, k)))

/** Deals runs of dwords out to rows: lane i of rows[k] becomes data[dwords * i + k]. */
SIM_INLINE void deal16(uint32_t *rows, const uint32_t *data, uint32_t dwords) {
    u32x16 a = load16(data), b, c, d;
    switch (dwords) {
    case 1:
        store16(rows, a);
        return;
    case 2:
        b = load16(data + 16);
        store16(rows, __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
                                              26, 28, 30));
        store16(rows + SIM_LANES, __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                                                          21, 23, 25, 27, 29, 31));
        return;
    case 4:
        b = load16(data + 16);
        c = load16(data + 32);
        d = load16(data + 48);
        SIM_DEAL4(0);
        SIM_DEAL4(1);
        SIM_DEAL4(2);
        SIM_DEAL4(3);
        return;
    default:
        for (uint32_t i = 0; i < 16 * dwords; i++)
            rows[SIM_LANES * (i % dwords) + i / dwords] = data[i];
    }
}

#define SIM_LOW(a, b)                                                                              \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define SIM_HIGH(a, b)                                                                             \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/** Collects runs of dwords from rows: data[dwords * i + k] becomes lane i of rows[k]. */
SIM_INLINE void collect16(uint32_t *data, const uint32_t *rows, uint32_t dwords) {
    u32x16 a = load16(rows), b, c, d;
    switch (dwords) {
    case 1:
        store16(data, a);
        return;
    case 2:
        b = load16(rows + SIM_LANES);
        store16(data, SIM_LOW(a, b));
        store16(data + 16, SIM_HIGH(a, b));
        return;
    case 4:
        b = load16(rows + SIM_LANES);
        c = load16(rows + 2 * SIM_LANES);
        d = load16(rows + 3 * SIM_LANES);
        store16(data, SIM_LOW(SIM_LOW(a, c), SIM_LOW(b, d)));
        store16(data + 16, SIM_HIGH(SIM_LOW(a, c), SIM_LOW(b, d)));
        store16(data + 32, SIM_LOW(SIM_HIGH(a, c), SIM_HIGH(b, d)));
        store16(data + 48, SIM_HIGH(SIM_HIGH(a, c), SIM_HIGH(b, d)));
        return;
    default:
        for (uint32_t i = 0; i < 16 * dwords; i++)
            data[i] = rows[SIM_LANES * (i % dwords) + i / dwords];
    }
}

// ---- numbers

static inline float as_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double as_f64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t f64_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

typedef _Float16 f16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

/** For conversions of f16. Without instructions for f16 a conversion is sixteen calls, so its long
 *  and slow code is not inlined but shared. */
#ifdef __F16C__
#define SIM_CONVERSION static inline
#else
#define SIM_CONVERSION static inline __attribute__((noinline))
#endif

#ifdef __F16C__
static inline f32x16 f32_of_f16(u32x16 bits) {
    return __builtin_convertvector((f16x16) __builtin_convertvector(bits, u16x16), f32x16);
}
#else
/** Does what the instruction for it does: exact, and signalling NaNs become quiet. */
SIM_CONVERSION f32x16 f32_of_f16(u32x16 bits) {
    const u32x16 exponent = bits & 0x7c00, mantissa = bits & 0x3ff;
    const f32x16 small = __builtin_convertvector(mantissa, f32x16) * 0x1p-24f;
    const u32x16 quiet = (u32x16)(mantissa != 0) & 0x400000;
    const u32x16 special = 0x7f800000 | mantissa << 13 | quiet;
    const u32x16 normal = (exponent << 13 | mantissa << 13) + (112u << 23);
    const u32x16 is_small = (u32x16)(exponent == 0), is_special = (u32x16)(exponent == 0x7c00);
    const u32x16 size =
        ((u32x16)small & is_small) | (special & is_special) | (normal & ~is_small & ~is_special);
    return (f32x16)(size | (bits & 0x8000) << 16);
}
#endif

SIM_CONVERSION u32x16 f16_of_f32(f32x16 value) {
    return __builtin_convertvector((u16x16) __builtin_convertvector(value, f16x16), u32x16);
}

#define SIM_TABLE(name, array)                                                                     \
    extern const sim_opcode_table SIM_NAME(name);                                                  \
    const sim_opcode_table SIM_NAME(name) = {array, sizeof array / sizeof *array}

#endif
