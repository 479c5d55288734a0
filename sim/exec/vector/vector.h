// SPDX-License-Identifier: Apache-2.0
// Runs vector instructions: drivers that call an instruction's function on blocks of lanes, and the
// macros that make a table of opcodes.
#ifndef SIM_VECTOR_H
#define SIM_VECTOR_H

#include "permute.h"

/** Writes a whole row of results; if `in_place`, the blocks are in the register already. */
SIM_INLINE void put32(sim_wave *w, const sim_inst *inst, bool plain, uint32_t *result) {
    if (plain)
        store_masked(w->v[inst->dst[0].reg], result, w->exec);
    else
        sim_finish32(w, inst, result);
}

SIM_INLINE const uint32_t *get32(const sim_wave *w, const sim_inst *inst, bool plain, unsigned i,
                                 uint32_t *tmp) {
    const sim_operand *op = &inst->src[i];
    if (plain && op->kind == SIM_OP_VGPR)
        return w->v[op->reg];
    if (plain) {
        u32x16 value = (u32x16){} + sim_read32(w, op);
        for (unsigned k = 0; k < SIM_LANES; k += 16)
            store16(tmp + k, value);
        return tmp;
    }
    return sim_row32(w, inst, i, tmp);
}

/** Returns whether a whole wave is active and the instruction is plain except for DPP within rows
 *  and signs. */
SIM_INLINE bool is_whole_light(const sim_wave *w, const sim_inst *inst) {
    return inst->light && (w->exec == UINT64_MAX || w->exec == UINT32_MAX) &&
           sim_is_mode_plain(w, inst);
}

/** The sign modifiers of a source, applied as (value & keep) ^ flip. */
typedef struct signs {
    u32x16 keep, flip;
} signs;

SIM_INLINE signs signs_of(const sim_operand *op) {
    return (signs){(u32x16){} + (op->mods & SIM_ABS ? 0x7fffffff : UINT32_MAX),
                   (u32x16){} + (op->mods & SIM_NEG ? 0x80000000 : 0)};
}

/** Keeps the compiler from unrolling a loop. On the rarer paths of instructions, four copies of
 *  each operation cost more compile time and instruction cache than they gain. */
#define COMPACT _Pragma("clang loop unroll(disable)")

/** The rows of an instruction's three sources; missing ones are the first one again. */
typedef struct sources {
    const uint32_t *a, *b, *c;
} sources;

SIM_INLINE sources get_sources32(const sim_wave *w, const sim_inst *inst, bool plain,
                                 unsigned arity, uint32_t tmp[3][SIM_LANES]) {
    const uint32_t *a = get32(w, inst, plain, 0, tmp[0]);
    const uint32_t *b = arity > 1 ? get32(w, inst, plain, 1, tmp[1]) : a;
    return (sources){a, b, arity > 2 ? get32(w, inst, plain, 2, tmp[2]) : a};
}

/** Runs an instruction with DPP within rows: each row of sixteen lanes is a block. In a wave of 32
 *  lanes the upper half is not written. */
SIM_INLINE void run_light32(sim_wave *w, const sim_inst *inst, sources from,
                            u32x16 (*op)(u32x16, u32x16, u32x16)) {
    u32x16 lanes = lane_numbers(inst->dpp_lane);
    signs sa = signs_of(&inst->src[0]), sb = signs_of(&inst->src[1]), sc = signs_of(&inst->src[2]);
    sa.keep &= lanes16(inst->dpp_exists & 0xffff);
    const uint64_t bound = inst->flags & SIM_DPP_BOUND_CTRL ? UINT64_MAX : inst->dpp_exists;
    const uint64_t written = inst->dpp_writes & bound & w->exec;
    uint32_t *row = w->v[inst->dst[0].reg];
    COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = (pick_within(load16(from.a + k), lanes) & sa.keep) ^ sa.flip;
        u32x16 y = (load16(from.b + k) & sb.keep) ^ sb.flip;
        u32x16 z = (load16(from.c + k) & sc.keep) ^ sc.flip;
        store16(row + k,
                select16(lanes16((uint32_t)(written >> k) & 0xffff), op(x, y, z), load16(row + k)));
    }
}

/** Runs an instruction whose sources are read already, with all modifiers of results. */
SIM_INLINE void run_masked32(sim_wave *w, const sim_inst *inst, bool plain, sources from,
                             u32x16 (*op)(u32x16, u32x16, u32x16)) {
    _Alignas(64) uint32_t result[SIM_LANES];
    const bool rounding = !plain && sim_rounding_begin(w, inst);
    COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16)
        store16(result + k, op(load16(from.a + k), load16(from.b + k), load16(from.c + k)));
    if (rounding)
        sim_rounding_end();
    put32(w, inst, plain, result);
}

/** Runs an instruction with up to three 32-bit sources and one 32-bit result. A lane depends only
 *  on its own sources, so results may go straight to a register that is also a source. */
SIM_INLINE void run32(sim_wave *w, const sim_inst *inst, unsigned arity,
                      u32x16 (*op)(u32x16, u32x16, u32x16)) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES];
    const bool plain = sim_is_plain(w, inst), light = !plain && is_whole_light(w, inst);
    sources from = get_sources32(w, inst, plain || light, arity, tmp);
    if (light) {
        run_light32(w, inst, from, op);
    } else if (plain && (w->exec == UINT64_MAX || w->exec == UINT32_MAX)) {
        uint32_t *row = w->v[inst->dst[0].reg]; // of a whole wave of 64 or 32 lanes
        const unsigned lanes = w->exec == UINT64_MAX ? SIM_LANES : SIM_LANES / 2;
        COMPACT for (unsigned k = 0; k < lanes; k += 32) {
            store16(row + k, op(load16(from.a + k), load16(from.b + k), load16(from.c + k)));
            const unsigned n = k + 16;
            store16(row + n, op(load16(from.a + n), load16(from.b + n), load16(from.c + n)));
        }
    } else {
        run_masked32(w, inst, plain, from, op);
    }
}

/** Runs a long instruction, whose operation works on rows, so that this code is there once. */
[[maybe_unused]] static __attribute__((noinline)) void
run_long32(sim_wave *w, const sim_inst *inst, unsigned arity,
           void (*op)(uint32_t *, const uint32_t *, const uint32_t *, const uint32_t *, unsigned)) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    sources from = get_sources32(w, inst, plain, arity, tmp);
    if (plain && (w->exec == UINT64_MAX || w->exec == UINT32_MAX)) {
        op(w->v[inst->dst[0].reg], from.a, from.b, from.c,
           w->exec == UINT64_MAX ? SIM_LANES : SIM_LANES / 2);
        return;
    }
    const bool rounding = !plain && sim_rounding_begin(w, inst);
    op(result, from.a, from.b, from.c, SIM_LANES);
    if (rounding)
        sim_rounding_end();
    put32(w, inst, plain, result);
}

/** Runs an instruction with clamp, which is never plain. */
SIM_INLINE void run_clamped32(sim_wave *w, const sim_inst *inst, unsigned arity,
                              u32x16 (*op)(u32x16, u32x16, u32x16)) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES];
    run_masked32(w, inst, false, get_sources32(w, inst, false, arity, tmp), op);
}

SIM_INLINE bool is_wide(char type) {
    return type == 'q' || type == 'Q' || type == 'd' || type == 'F';
}

/** Returns the type letter of source i; "+" stands for the destination's. */
SIM_INLINE char source_type(const char *types, unsigned i) {
    return types[2 + i] == '+' ? types[0] : types[2 + i];
}

SIM_INLINE const uint32_t *get(const sim_wave *w, const sim_inst *inst, bool plain, unsigned i,
                               char type, uint32_t *tmp) {
    if (!is_wide(type))
        return get32(w, inst, plain, i, tmp);
    return plain && inst->src[i].kind == SIM_OP_VGPR ? w->v[inst->src[i].reg]
                                                     : sim_row64(w, inst, i, tmp);
}

SIM_INLINE u64x8 load8(const uint32_t *row, char type) {
    return is_wide(type) ? load8x64(row) : load8x32(row);
}

/** Loads sixteen lanes of 64 bits, or of 32 bits extended by zeros, in the order of unpack
 *  instructions, which costs least. store_pair undoes that order. */
typedef struct lane_pair {
    u64x8 of[2];
} lane_pair;

SIM_INLINE lane_pair load_pair(const uint32_t *row, char type) {
    u32x16 low = load16(row), high = is_wide(type) ? load16(row + SIM_LANES) : (u32x16){};
    return (lane_pair){{(u64x8)__builtin_shufflevector(low, high, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24,
                                                       9, 25, 12, 28, 13, 29),
                        (u64x8)__builtin_shufflevector(low, high, 2, 18, 3, 19, 6, 22, 7, 23, 10,
                                                       26, 11, 27, 14, 30, 15, 31)}};
}

SIM_INLINE void store_pair(uint32_t *row, lane_pair pair, char type) {
    u32x16 a = (u32x16)pair.of[0], b = (u32x16)pair.of[1];
    store16(row, __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14,
                                         28, 30));
    if (is_wide(type)) {
        store16(row + SIM_LANES, __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11,
                                                         25, 27, 13, 15, 29, 31));
    }
}

/** Runs an instruction that has a 64-bit operand. `types` is the opcode's: one destination and
 *  `arity` sources. */
SIM_INLINE void run64(sim_wave *w, const sim_inst *inst, unsigned arity, const char *types,
                      u64x8 (*op)(u64x8, u64x8, u64x8)) {
    _Alignas(64) uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES];
    const bool plain = sim_is_plain(w, inst);
    const uint32_t *src[3] = {};
    for (unsigned i = 0; i < arity; i++)
        src[i] = get(w, inst, plain, i, source_type(types, i), tmp[i]);
    const bool whole = plain && (w->exec == UINT64_MAX || w->exec == UINT32_MAX);
    uint32_t *out = whole ? w->v[inst->dst[0].reg] : result;
    const unsigned lanes = whole && w->exec == UINT32_MAX ? SIM_LANES / 2 : SIM_LANES;
    const bool rounding = !plain && sim_rounding_begin(w, inst);
    COMPACT for (unsigned k = 0; k < lanes; k += 16) {
        lane_pair a = load_pair(src[0] + k, source_type(types, 0));
        lane_pair b = arity > 1 ? load_pair(src[1] + k, source_type(types, 1)) : a;
        lane_pair c = arity > 2 ? load_pair(src[2] + k, source_type(types, 2)) : a;
        lane_pair d = {{op(a.of[0], b.of[0], c.of[0]), op(a.of[1], b.of[1], c.of[1])}};
        store_pair(out + k, d, types[0]);
    }
    if (rounding)
        sim_rounding_end();
    if (whole)
        return;
    if (is_wide(types[0]))
        sim_finish64(w, inst, result);
    else
        sim_finish32(w, inst, result);
}

// ---- packed operands

/** Returns the half of source i for one of the two results, negated as asked. */
SIM_INLINE u32x16 sim_packed_half(u32x16 block, const sim_inst *inst, unsigned i, bool high) {
    const uint8_t select = high ? inst->op_sel_hi : inst->op_sel,
                  negate = high ? inst->neg_hi : inst->neg_lo;
    u32x16 half = select >> i & 1 ? block >> 16 : block & 0xffff;
    return half ^ (negate >> i & 1 ? 0x8000u : 0);
}

// ---- tables
//
// A family's list has one line for each instruction: X(shape, type, name, operand types, chips,
// known), and perhaps what it is beside (isa/traits.h).
//   shape   1 2 3: sources of a function on 32-bit blocks; L1 L2 L3: of a long one, around which
//           there is less code of its own; W1 W2 W3: on blocks of 64-bit lanes; S2 S3: and
//           saturated_NAME is what the modifier clamp makes of it; OWN: exec_NAME is written out
//   type    what the function takes and returns: u32 i32 f32 f16 (as f32) or u64 i64 f64

#define IN_u32(x) (x)
#define IN_i32(x) ((i32x16)(x))
#define IN_f32(x) ((f32x16)(x))
#define IN_f16(x) f32_of_f16(x)
#define OUT_u32(x) (x)
#define OUT_i32(x) ((u32x16)(x))
#define OUT_f32(x) ((u32x16)(x))
#define OUT_f16(x) f16_of_f32(x)
#define IN_u64(x) (x)
#define IN_i64(x) ((i64x8)(x))
#define IN_f64(x) ((f64x8)(x))
#define OUT_u64(x) (x)
#define OUT_i64(x) ((u64x8)(x))
#define OUT_f64(x) ((u64x8)(x))

#define ARGS_1(type) IN_##type(a)
#define ARGS_2(type) IN_##type(a), IN_##type(b)
#define ARGS_3(type) IN_##type(a), IN_##type(b), IN_##type(c)

#define UNUSED [[maybe_unused]]
#define WRAP32(arity, type, name)                                                                  \
    static u32x16 block_##name(UNUSED u32x16 a, UNUSED u32x16 b, UNUSED u32x16 c) {                \
        return OUT_##type(name(ARGS_##arity(type)));                                               \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        run32(w, inst, arity, block_##name);                                                       \
    }
#define WRAP_LONG(arity, type, name)                                                               \
    static void rows_##name(uint32_t *out, const uint32_t *x, UNUSED const uint32_t *y,            \
                            UNUSED const uint32_t *z, unsigned lanes) {                            \
        COMPACT for (unsigned k = 0; k < lanes; k += 16) {                                         \
            u32x16 a = load16(x + k);                                                              \
            UNUSED u32x16 b = load16(y + k), c = load16(z + k);                                    \
            store16(out + k, OUT_##type(name(ARGS_##arity(type))));                                \
        }                                                                                          \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        run_long32(w, inst, arity, rows_##name);                                                   \
    }
#define WRAP64(arity, type, name, types)                                                           \
    static u64x8 block_##name(UNUSED u64x8 a, UNUSED u64x8 b, UNUSED u64x8 c) {                    \
        return OUT_##type(name(ARGS_##arity(type)));                                               \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        run64(w, inst, arity, types, block_##name);                                                \
    }
#define WRAP_1(type, name, types) WRAP32(1, type, name)
#define WRAP_2(type, name, types) WRAP32(2, type, name)
#define WRAP_3(type, name, types) WRAP32(3, type, name)
#define WRAP_L1(type, name, types) WRAP_LONG(1, type, name)
#define WRAP_L2(type, name, types) WRAP_LONG(2, type, name)
#define WRAP_L3(type, name, types) WRAP_LONG(3, type, name)
#define WRAP_W1(type, name, types) WRAP64(1, type, name, types)
#define WRAP_W2(type, name, types) WRAP64(2, type, name, types)
#define WRAP_W3(type, name, types) WRAP64(3, type, name, types)
#define WRAP_SATURATED(arity, type, name)                                                          \
    static u32x16 block_##name(u32x16 a, u32x16 b, UNUSED u32x16 c) {                              \
        return OUT_##type(name(ARGS_##arity(type)));                                               \
    }                                                                                              \
    static u32x16 saturated_block_##name(u32x16 a, u32x16 b, UNUSED u32x16 c) {                    \
        return OUT_##type(saturated_##name(ARGS_##arity(type)));                                   \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        if (inst->flags & SIM_CLAMP) {                                                             \
            run_clamped32(w, inst, arity, saturated_block_##name);                                 \
        } else {                                                                                   \
            run32(w, inst, arity, block_##name);                                                   \
        }                                                                                          \
    }
#define WRAP_S2(type, name, types) WRAP_SATURATED(2, type, name)
#define WRAP_S3(type, name, types) WRAP_SATURATED(3, type, name)
#define WRAP_OWN(type, name, types) // exec_NAME is written out

// The column of what clamp does, by shape.
#define SATURATES_1 0
#define SATURATES_2 0
#define SATURATES_3 0
#define SATURATES_L1 0
#define SATURATES_L2 0
#define SATURATES_L3 0
#define SATURATES_W1 0
#define SATURATES_W2 0
#define SATURATES_W3 0
#define SATURATES_S2 SIM_SATURATES
#define SATURATES_S3 SIM_SATURATES
#define SATURATES_OWN 0

#define VALU_WRAP(shape, type, name, types, archs, known, ...) WRAP_##shape(type, name, types)
#define VALU_LINE(shape, type, name, types, archs, known, ...)                                     \
    SIM_ROW(#name, exec_##name, archs, SIM_VALU, known, types,                                     \
            .is = SATURATES_##shape __VA_OPT__(|) __VA_ARGS__)
/** Makes a row of another name for what `of` does. */
#define VALU_ALIAS(name, of, archs, types, ...)                                                    \
    SIM_ROW(#name, exec_##of, archs, SIM_VALU, 'i', types, __VA_ARGS__)

#endif
