// SPDX-License-Identifier: Apache-2.0
// Matrix instructions sixteen outputs at a time: operand planes, and every rule but the fused ones.
#include "mfma_vector.h"

#include <string.h>

// ---- operands

/** A decoded strip of raw elements: the value to compute with and, for fused rules, the term. */
typedef struct decoded {
    mfma_i32 x, m, e, special; // special: all ones where not finite; the rest is then a zero's
} decoded;

static decoded decode_strip(mfma_type type, mfma_i32 raw) {
    const mfma_format *f = &mfma_formats[type];
    int fraction_bits = f->fraction, width = f->bits;
    if (type == MFMA_XF32) {
        raw = (raw >> 13) & 0x7ffff;
        width = 19;
    }
    const int top = (1 << (width - 1 - fraction_bits)) - 1;
    mfma_i32 sign = -(raw >> (width - 1)); // all ones if negative
    mfma_i32 exponent = (raw >> fraction_bits) & top;
    mfma_i32 fraction = raw & ((1 << fraction_bits) - 1);
    mfma_i32 is_normal = exponent != 0;
    mfma_i32 m = fraction | (is_normal & (1 << fraction_bits));
    decoded d = {.m = (m ^ sign) - sign};
    d.e = mfma_select(m == 0, mfma_splat(-126), mfma_max(exponent, mfma_splat(1)) - f->bias);
    switch (f->specials) {
    case MFMA_IEEE:
        d.special = exponent == top;
        break;
    case MFMA_FNUZ:
        d.special = raw == (1 << (width - 1));
        break;
    default: // MFMA_FN
        d.special = (raw & ((1 << (width - 1)) - 1)) == (1 << (width - 1)) - 1;
    }
    // m * 2^(e - fraction), exact: f32 holds every value of these types.
    mfma_i32 power = mfma_max(d.e - fraction_bits + 127, mfma_splat(1)) << 23;
    d.x = (mfma_i32)(__builtin_convertvector(d.m, mfma_f32) * (mfma_f32)power);
    if (f->bias == 127) // the power above may be subnormal, but these types are f32 already
        d.x = raw << (32 - width);
    d.x &= ~d.special;
    d.m &= ~d.special;
    d.e = mfma_select(d.special, mfma_splat(-126), d.e);
    return d;
}

/** Widens gfx90a's f16 and bf16 inputs. Subnormals become +0. */
static mfma_i32 widen_flushed(mfma_type type, mfma_i32 raw) {
    mfma_i32 wide = raw << 16, exponent = raw & 0x7f80, top = exponent == 0x7f80;
    if (type == MFMA_F16) {
        exponent = raw & 0x7c00;
        top = exponent == 0x7c00;
        wide = (raw & 0x8000) << 16 | ((raw & 0x7fff) << 13) + (112 << 23);
        wide |= top & 0x7f800000;
    }
    return (exponent != 0) & wide;
}

/** Decodes one strip of raw elements into the plane at `at`. */
static void put_strip(const mfma_form *f, mfma_type type, mfma_plane *plane, int at, mfma_i32 raw,
                      mfma_i32 *special, mfma_i32 *largest) {
    if (f->rule == MFMA_CHAIN) {
        mfma_store(plane->x + at, raw);
    } else if (f->rule == MFMA_INTEGER) {
        mfma_store(plane->x + at, raw << 24 >> 24);
    } else if (f->rule == MFMA_PAIRWISE) {
        mfma_store(plane->x + at, widen_flushed(type, raw));
    } else {
        decoded d = decode_strip(type, raw);
        mfma_store(plane->x + at, d.x);
        mfma_store(plane->m + at, d.m);
        mfma_store(plane->e + at, d.e);
        *special |= d.special;
        *largest = mfma_max(*largest, d.e);
    }
}

static uint64_t special_slots(const mfma_i32 special[4]) {
    uint64_t slots = 0;
    if (__builtin_reduce_or(special[0] | special[1] | special[2] | special[3]) != 0)
        for (int i = 0; i < SIM_LANES; i++)
            slots |= (uint64_t)(special[i / MFMA_STRIP][i % MFMA_STRIP] != 0) << i;
    return slots;
}

static void read_plane(const mfma_form *f, sim_wave *w, const sim_inst *inst, int side,
                       mfma_plane *plane) {
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    const int width = mfma_formats[type].bits;
    plane->slots = (side == 0 ? f->m : f->n) * f->blocks;
    const int per_lane = f->k * plane->slots / SIM_LANES, per_dword = 32 / width;
    const uint32_t *rows = mfma_rows(w, &inst->src[side]);
    uint32_t moved[4][SIM_LANES];
    uint8_t map[SIM_LANES];
    if (mfma_lane_map(f, inst, side, map)) {
        for (int i = 0; i < per_lane / per_dword * SIM_LANES; i++) {
            moved[i / SIM_LANES][i % SIM_LANES] =
                rows[i / SIM_LANES * SIM_LANES + map[i % SIM_LANES]];
        }
        rows = moved[0];
    }
    mfma_i32 special[4] = {0}, largest = mfma_splat(INT16_MIN);
    const int32_t mask = (int32_t)((1ull << width) - 1);
    for (int lane = 0; lane < SIM_LANES; lane += MFMA_STRIP) {
        const int slot = lane % plane->slots;
        for (int e = 0; e < per_lane; e++) {
            mfma_u32 dword = (mfma_u32)mfma_load(rows + e / per_dword * SIM_LANES + lane);
            mfma_i32 raw = (mfma_i32)(dword >> (unsigned)(e % per_dword * width)) & mask;
            const int k = lane / plane->slots * per_lane + e;
            put_strip(f, type, plane, k * plane->slots + slot, raw, &special[slot / MFMA_STRIP],
                      &largest);
        }
    }
    plane->special = special_slots(special);
    plane->largest = __builtin_reduce_max(largest);
}

// ---- rules

static mfma_i32 canonical(mfma_f32 x) {
    return mfma_select(x != x, mfma_splat((int32_t)MFMA_NAN32), (mfma_i32)x);
}

MFMA_INLINE mfma_i32 chain_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                 mfma_strip s, mfma_i32 c) {
    mfma_f32 sum = (mfma_f32)c;
    for (int k = 0; k < f->k; k++) {
        sum = __builtin_elementwise_fma((mfma_f32)mfma_a_strip(a->x, s, k),
                                        (mfma_f32)mfma_b_strip(b->x, s, k), sum);
    }
    return canonical(sum);
}

MFMA_INLINE mfma_i32 integer_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                   mfma_strip s, mfma_i32 c) {
    mfma_u32 sum = (mfma_u32)c;
    for (int k = 0; k < f->k; k++)
        sum += (mfma_u32)(mfma_a_strip(a->x, s, k) * mfma_b_strip(b->x, s, k));
    return (mfma_i32)sum;
}

/** Returns x with subnormals as zeros of their sign. */
MFMA_INLINE mfma_f32 flushed(mfma_f32 x) {
    mfma_i32 bits = (mfma_i32)x, keep = (bits & 0x7f800000) != 0;
    return (mfma_f32)(bits & (keep | INT32_MIN));
}

MFMA_INLINE mfma_f32 flushed_product(const mfma_plane *a, const mfma_plane *b, mfma_strip s,
                                     int k) {
    return flushed(__builtin_elementwise_fma((mfma_f32)mfma_a_strip(a->x, s, k),
                                             (mfma_f32)mfma_b_strip(b->x, s, k), (mfma_f32){0}));
}

MFMA_INLINE mfma_i32 pairwise_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                    mfma_strip s, mfma_i32 c) {
    mfma_f32 sum = (mfma_f32)(c & ((c & 0x7f800000) != 0));
    for (int k = 0; k < f->k; k += f->group) {
        mfma_f32 t = flushed(flushed_product(a, b, s, k) + flushed_product(a, b, s, k + 1));
        if (f->group == 4) {
            t = flushed(t +
                        flushed(flushed_product(a, b, s, k + 2) + flushed_product(a, b, s, k + 3)));
        }
        sum = flushed(sum + t);
    }
    return canonical(sum);
}

// ---- execution

static void run_tile(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                     uint32_t d[][SIM_LANES]) {
    switch ((mfma_rule)f->rule) {
    case MFMA_CHAIN:
        mfma_each_strip(f, a, b, d, chain_strip);
        break;
    case MFMA_PAIRWISE:
        mfma_each_strip(f, a, b, d, pairwise_strip);
        break;
    case MFMA_INTEGER:
        mfma_each_strip(f, a, b, d, integer_strip);
        break;
    default:
        mfma_fused_tile(f, a, b, d);
    }
}

/** Computes again, by the definition, the outputs whose row of A or column of B holds an Inf or a
 *  NaN. */
static void redo_specials(const mfma_form *f, sim_wave *w, const sim_inst *inst, uint64_t a_special,
                          uint64_t b_special, uint32_t d[][SIM_LANES]) {
    mfma_term a[MFMA_MAX_ELEMENTS], b[MFMA_MAX_ELEMENTS];
    mfma_read_terms(f, w, inst, 0, a);
    mfma_read_terms(f, w, inst, 1, b);
    for (int i = 0; i < mfma_num_results(f) * SIM_LANES; i++) {
        const int reg = i / SIM_LANES, lane = i % SIM_LANES;
        mfma_place p = mfma_place_of(f, reg, lane);
        const int a_slot = p.block * f->m + p.row, b_slot = p.block * f->n + p.column;
        if ((a_special >> a_slot | b_special >> b_slot) & 1) {
            const uint64_t c = mfma_c_bits(w, &inst->src[2], false, reg, lane);
            d[reg][lane] = (uint32_t)mfma_dot(f, a + a_slot * f->k, b + b_slot * f->k, f->k, c, 0);
        }
    }
}

void mfma_exec_vector(sim_wave *w, const sim_inst *inst) {
    if (w->fast_matrix && mfma_exec_fast(w, inst))
        return;
    const mfma_form *f = mfma_form_of(inst);
    mfma_plane a, b;
    read_plane(f, w, inst, 0, &a);
    read_plane(f, w, inst, 1, &b);
    const bool is_fused = f->rule == MFMA_FUSED || f->rule == MFMA_SPLIT;
    if (is_fused && a.largest + b.largest >= 126) {
        mfma_exec_exact(w, inst); // a product may pass f32's range
        return;
    }
    _Alignas(64) uint32_t d[32][SIM_LANES]; // D may overlap C
    const size_t bytes = (size_t)mfma_num_results(f) * sizeof d[0];
    const sim_operand *c = &inst->src[2];
    if (c->kind == SIM_OP_VGPR)
        memcpy(d, mfma_rows(w, c), bytes);
    else
        for (size_t i = 0; i < bytes / sizeof(mfma_i32); i++)
            mfma_store(&d[i / 4][i % 4 * MFMA_STRIP], mfma_splat((int32_t)c->value));
    run_tile(f, &a, &b, d);
    if (is_fused && (a.special | b.special))
        redo_specials(f, w, inst, a.special, b.special, d);
    memcpy(mfma_rows(w, &inst->dst[0]), d, bytes);
}
