// SPDX-License-Identifier: Apache-2.0
// RDNA matrix instructions: WMMA, D = A B + C for 16x16 tiles, and SWMMAC (gfx12), D += A B where A
// holds 2 of every 4 consecutive k.
//
// A register row is 2 (wave32) or 4 (wave64) groups of sixteen lanes, which are the rows of A and
// the columns of B, C and D. On RDNA3 (gfx11) each group holds every k of A and B, and 16-bit
// results take the half of each register that op_sel chooses. On RDNA4 (gfx12) two groups share k,
// wave64's third and fourth group hold what wave32 keeps in the upper registers, and 16-bit results
// are packed. AMD publishes no order of accumulation: floats are taken two k at a time, each step
// with one f32 add, so results are not known to be bit-exact. Integers are exact. Source of
// layouts: AMD's matrix instruction calculator. EXEC is ignored.
#include "../fp8.h"
#include "../numbers.h"
#include "mfma.h"

enum { TILE = 16 };

typedef enum wmma_result { WMMA_F32, WMMA_F16, WMMA_BF16, WMMA_I32 } wmma_result;

typedef struct wmma_form {
    uint8_t bits; // of an input element
    uint8_t k;
    uint8_t a_type, b_type; // mfma_type; MFMA_I8 stands for integers of any width
    uint8_t result;         // wmma_result
    bool shared;            // RDNA4: the groups of the wave share k
    bool sparse;            // A has half of the k
} wmma_form;

// The mnemonic, chips, input bits, passes of four cycles, k, A, B, result, shared, and how the form
// is known. The passes are from AMD's matrix instruction calculator; those of 4-bit integers and of
// sparse forms from the chips' published peak rates.
#define WMMA_FORMS(X)                                                                              \
    X("v_wmma_f32_16x16x16_f16", GFX11, 16, 8, 16, F16, F16, F32, false, '?')                      \
    X("v_wmma_f32_16x16x16_bf16", GFX11, 16, 8, 16, BF16, BF16, F32, false, '?')                   \
    X("v_wmma_f16_16x16x16_f16", GFX11, 16, 8, 16, F16, F16, F16, false, '?')                      \
    X("v_wmma_bf16_16x16x16_bf16", GFX11, 16, 8, 16, BF16, BF16, BF16, false, '?')                 \
    X("v_wmma_i32_16x16x16_iu8", GFX11, 8, 8, 16, I8, I8, I32, false, 'i')                         \
    X("v_wmma_i32_16x16x16_iu4", GFX11, 4, 4, 16, I8, I8, I32, false, 'i')                         \
    X("v_wmma_f32_16x16x16_f16", GFX12, 16, 4, 16, F16, F16, F32, true, '?')                       \
    X("v_wmma_f32_16x16x16_bf16", GFX12, 16, 4, 16, BF16, BF16, F32, true, '?')                    \
    X("v_wmma_f16_16x16x16_f16", GFX12, 16, 4, 16, F16, F16, F16, true, '?')                       \
    X("v_wmma_bf16_16x16x16_bf16", GFX12, 16, 4, 16, BF16, BF16, BF16, true, '?')                  \
    X("v_wmma_i32_16x16x16_iu8", GFX12, 8, 2, 16, I8, I8, I32, true, 'i')                          \
    X("v_wmma_i32_16x16x16_iu4", GFX12, 4, 2, 16, I8, I8, I32, true, 'i')                          \
    X("v_wmma_i32_16x16x32_iu4", GFX12, 4, 2, 32, I8, I8, I32, true, 'i')                          \
    X("v_wmma_f32_16x16x16_fp8_fp8", GFX12, 8, 2, 16, FP8, FP8, F32, true, '?')                    \
    X("v_wmma_f32_16x16x16_fp8_bf8", GFX12, 8, 2, 16, FP8, BF8, F32, true, '?')                    \
    X("v_wmma_f32_16x16x16_bf8_fp8", GFX12, 8, 2, 16, BF8, FP8, F32, true, '?')                    \
    X("v_wmma_f32_16x16x16_bf8_bf8", GFX12, 8, 2, 16, BF8, BF8, F32, true, '?')
// The mnemonic, input bits, passes, k of the dense product, A, B, result, and how the form is
// known.
#define SWMMAC_FORMS(X)                                                                            \
    X("v_swmmac_f32_16x16x32_f16", 16, 4, 32, F16, F16, F32, '?')                                  \
    X("v_swmmac_f32_16x16x32_bf16", 16, 4, 32, BF16, BF16, F32, '?')                               \
    X("v_swmmac_f16_16x16x32_f16", 16, 4, 32, F16, F16, F16, '?')                                  \
    X("v_swmmac_bf16_16x16x32_bf16", 16, 4, 32, BF16, BF16, BF16, '?')                             \
    X("v_swmmac_i32_16x16x32_iu8", 8, 2, 32, I8, I8, I32, 'i')                                     \
    X("v_swmmac_i32_16x16x32_iu4", 4, 2, 32, I8, I8, I32, 'i')                                     \
    X("v_swmmac_i32_16x16x64_iu4", 4, 2, 64, I8, I8, I32, 'i')                                     \
    X("v_swmmac_f32_16x16x32_fp8_fp8", 8, 2, 32, FP8, FP8, F32, '?')                               \
    X("v_swmmac_f32_16x16x32_fp8_bf8", 8, 2, 32, FP8, BF8, F32, '?')                               \
    X("v_swmmac_f32_16x16x32_bf8_fp8", 8, 2, 32, BF8, FP8, F32, '?')                               \
    X("v_swmmac_f32_16x16x32_bf8_bf8", 8, 2, 32, BF8, BF8, F32, '?')

static const wmma_form forms[] = {
#define FORM(name, chips, bits, passes, k, A, B, D, shared, known)                                 \
    {bits, k, MFMA_##A, MFMA_##B, WMMA_##D, shared, false},
    WMMA_FORMS(FORM)
#undef FORM
#define FORM(name, bits, passes, k, A, B, D, known)                                                \
    {bits, k, MFMA_##A, MFMA_##B, WMMA_##D, true, true},
        SWMMAC_FORMS(FORM)
#undef FORM
};

extern const sim_opcode_table SIM_NAME(sim_ops_wmma);

static const wmma_form *form_of(const sim_inst *inst) {
    return &forms[inst->opcode - SIM_NAME(sim_ops_wmma).opcodes];
}

/** An operand by k: the values of its sixteen rows (A) or columns (B), f32 or integers. */
typedef struct wmma_plane {
    u32x16 x[64];
} wmma_plane;

typedef struct wmma_terms {
    wmma_plane a, b;
    uint8_t which[32][TILE]; // if sparse, the k of B that goes with each k and row of A
} wmma_terms;

// ---- elements

/** How A or B lies in the groups of lanes. */
typedef struct wmma_spread {
    int groups;   // groups that hold different k
    int per_lane; // elements
    int run;      // consecutive k of a lane, before those of the group beside it
} wmma_spread;

static wmma_spread spread_of(const wmma_form *f, bool wave32, int side) {
    const int k = f->sparse && side == 0 ? f->k / 2 : f->k;
    if (!f->shared)
        return (wmma_spread){1, k, k};
    const int run = f->bits < 16 ? k / 2 : f->sparse && side == 1 ? 8 : 4;
    bool halves = wave32 || k / 2 * f->bits < 64; // one register cannot be split further
    return halves ? (wmma_spread){2, k / 2, run} : (wmma_spread){4, k / 4, run};
}

static int k_of(const wmma_spread *s, int group, int element) {
    const int e = group / 2 * s->per_lane + element;
    return s->groups == 1 ? element : e / s->run * 2 * s->run + group % 2 * s->run + e % s->run;
}

/** Returns the values as f32, which is exact for every type. */
static f32x16 values_of(mfma_type type, u32x16 bits) {
    switch (type) {
    case MFMA_F32:
        return (f32x16)bits;
    case MFMA_F16:
        return f32_of_f16(bits);
    case MFMA_BF16:
        return (f32x16)(bits << 16);
    default: // the kinds of RDNA4 are OCP's
        return (f32x16)sim_fp8_decode(type == MFMA_FP8 ? &sim_e4m3fn : &sim_e5m2, bits);
    }
}

static u32x16 integers_of(int bits, u32x16 x, bool is_signed) {
    const unsigned unused = 32 - (unsigned)bits;
    return is_signed ? (u32x16)((i32x16)(x << unused) >> (int)unused) : x;
}

/** Reads A (side 0) or B (side 1). */
static void read_input(const wmma_form *f, sim_wave *w, const sim_inst *inst, int side,
                       wmma_plane *out) {
    wmma_spread s = spread_of(f, w->wave32, side);
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    const uint32_t *rows = mfma_rows(w, &inst->src[side]);
    const uint32_t mask = (1u << f->bits) - 1;
    bool flag[2] = {inst->neg_lo >> side & 1, inst->neg_hi >> side & 1}; // of even k, of odd k
    for (int i = 0; i < s.groups * s.per_lane; i++) {
        const int group = i / s.per_lane, e = i % s.per_lane, bit = e * f->bits;
        u32x16 bits = load16(rows + bit / 32 * SIM_LANES + group * TILE) >> bit % 32 & mask;
        u32x16 *at = &out->x[k_of(&s, group, e)];
        if (type == MFMA_I8)
            *at = integers_of(f->bits, bits, flag[0]); // neg_lo means signed
        else
            *at = (u32x16)values_of(type, bits) ^ (flag[e % 2] ? 0x80000000u : 0);
    }
}

/** Reads, for each element of A, which of the four k it is: two bits each, in the lane that holds
 *  the element. index_key (in abid) chooses among the sets of bits that fit in the register. */
static void read_indices(const wmma_form *f, sim_wave *w, const sim_inst *inst, wmma_terms *out) {
    wmma_spread s = spread_of(f, w->wave32, 0);
    const int first = inst->abid * s.per_lane * 2 % 32;
    const uint32_t *rows = mfma_rows(w, &inst->src[2]);
    for (int i = 0; i < s.groups * s.per_lane; i++) {
        const int group = i / s.per_lane, e = i % s.per_lane, k = k_of(&s, group, e);
        for (int row = 0; row < TILE; row++) {
            const uint32_t which = rows[group * TILE + row] >> (first + 2 * e) & 3;
            out->which[k][row] = (uint8_t)((uint32_t)k / 2 * 4 + which);
        }
    }
}

// ---- C and D: a strip is the sixteen columns of one row, sixteen lanes of one register

/** The place of one row of C and D lies. */
typedef struct wmma_strip {
    int row, group, index; // index: of the results in a lane
} wmma_strip;

static wmma_strip strip_of(const wmma_form *f, bool wave32, int i) {
    const int groups = wave32 ? 2 : 4, per_lane = TILE / groups;
    wmma_strip s = {.group = i / per_lane, .index = i % per_lane};
    s.row = f->shared ? s.group % 2 * 8 + s.group / 2 * 4 + s.index : s.index * groups + s.group;
    return s;
}

static bool is_half(const wmma_form *f) {
    return f->result == WMMA_F16 || f->result == WMMA_BF16;
}

/** Returns the register and bit where result `index` of a lane lies. */
static int bit_of(const wmma_form *f, const sim_inst *inst, int index) {
    if (!is_half(f))
        return index * 32;
    return f->shared ? index * 16 : index * 32 + (inst->op_sel >> 2 & 1) * 16;
}

/** Reads C as f32, or as integers. */
static u32x16 read_c(const wmma_form *f, sim_wave *w, const sim_inst *inst, wmma_strip s) {
    static const mfma_type types[] = {MFMA_F32, MFMA_F16, MFMA_BF16, MFMA_F32};
    const sim_operand *from = f->sparse ? &inst->dst[0] : &inst->src[2];
    u32x16 bits = (u32x16){} + from->value;
    if (from->kind == SIM_OP_VGPR) {
        const int bit = bit_of(f, inst, s.index);
        bits = load16(mfma_rows(w, from) + bit / 32 * SIM_LANES + s.group * TILE) >> bit % 32;
    }
    if (f->result == WMMA_I32)
        return bits;
    u32x16 c = (u32x16)values_of(types[f->result], is_half(f) ? bits & 0xffff : bits);
    c = inst->neg_hi & 4 ? c & 0x7fffffff : c;
    return inst->neg_lo & 4 ? c ^ 0x80000000 : c;
}

static u32x16 result_bits(const wmma_form *f, f32x16 x) {
    u32x16 bits = (u32x16)x, nan = is_nan(x), zero = {};
    switch (f->result) {
    case WMMA_F16:
        return select16(nan, zero + 0x7e00, f16_of_f32(x));
    case WMMA_BF16:
        return select16(nan, zero + 0x7fc0, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    default:
        return select16(nan, zero + MFMA_NAN32, bits);
    }
}

/** Returns the k of B that goes with a k of A. */
SIM_INLINE int partner(const wmma_terms *t, bool sparse, int row, int k) {
    return sparse ? t->which[k][row] : k;
}

SIM_INLINE f64x16 product(const wmma_terms *t, bool sparse, int row, int k) {
    const double left = (double)as_f32(t->a.x[k][row]);
    return left * __builtin_convertvector((f32x16)t->b.x[partner(t, sparse, row, k)], f64x16);
}

SIM_INLINE u32x16 float_strip(const wmma_form *f, const wmma_terms *t, bool sparse, int row,
                              u32x16 c) {
    f32x16 sum = (f32x16)c;
    for (int k = 0; k < f->k >> sparse; k += 2) {
        sum += __builtin_convertvector(product(t, sparse, row, k) + product(t, sparse, row, k + 1),
                                       f32x16);
    }
    return result_bits(f, sum);
}

/** Computes a strip for mfma=fast: one f32 step for each k, rounded once where the host has a fused
 *  multiply-add. */
SIM_INLINE u32x16 fast_strip(const wmma_form *f, const wmma_terms *t, bool sparse, int row,
                             u32x16 c) {
    f32x16 sum = (f32x16)c;
    for (int k = 0; k < f->k >> sparse; k++) {
        f32x16 x = (f32x16){} + as_f32(t->a.x[k][row]);
        f32x16 y = (f32x16)t->b.x[partner(t, sparse, row, k)];
#ifdef __FMA__
        sum = __builtin_elementwise_fma(x, y, sum);
#else
        sum += x * y;
#endif
    }
    return result_bits(f, sum);
}

/** Computes a strip of integers. The products' sum is far from 32 bits, so only adding C can
 *  overflow. */
SIM_INLINE u32x16 integer_strip(const wmma_form *f, const wmma_terms *t, bool sparse, int row,
                                u32x16 c, bool clamp) {
    u32x16 sum = {};
    for (int k = 0; k < f->k >> sparse; k++)
        sum += t->a.x[k][row] * t->b.x[partner(t, sparse, row, k)];
    return clamp ? (u32x16)__builtin_elementwise_add_sat((i32x16)sum, (i32x16)c) : sum + c;
}

static void write_strip(const wmma_form *f, sim_wave *w, const sim_inst *inst, wmma_strip s,
                        u32x16 x) {
    const int bit = bit_of(f, inst, s.index);
    uint32_t *at = mfma_rows(w, &inst->dst[0]) + bit / 32 * SIM_LANES + s.group * TILE;
    u32x16 mask = (u32x16){} + (is_half(f) ? 0xffffu << bit % 32 : UINT32_MAX);
    store16(at, select16(mask, x << bit % 32, load16(at)));
}

// ---- execution

SIM_INLINE void multiply(sim_wave *w, const sim_inst *inst, bool sparse) {
    const wmma_form *f = form_of(inst);
    wmma_terms t;
    u32x16 d[TILE]; // D may overlap any source
    read_input(f, w, inst, 0, &t.a);
    read_input(f, w, inst, 1, &t.b);
    if (sparse)
        read_indices(f, w, inst, &t);
    for (int i = 0; i < TILE; i++) {
        wmma_strip s = strip_of(f, w->wave32, i);
        u32x16 c = read_c(f, w, inst, s);
        if (f->result == WMMA_I32)
            d[i] = integer_strip(f, &t, sparse, s.row, c, inst->flags & SIM_CLAMP);
        else if (w->fast_matrix)
            d[i] = fast_strip(f, &t, sparse, s.row, c);
        else
            d[i] = float_strip(f, &t, sparse, s.row, c);
    }
    for (int i = 0; i < TILE; i++)
        write_strip(f, w, inst, strip_of(f, w->wave32, i), d[i]);
}

static void wmma_exec(sim_wave *w, const sim_inst *inst) {
    multiply(w, inst, false);
}

static void swmmac_exec(sim_wave *w, const sim_inst *inst) {
    multiply(w, inst, true);
}

#define TEXT_F32 "f:iif"
#define TEXT_F16 "i:iih"
#define TEXT_BF16 "i:iiw"
#define TEXT_I32 "i:iii"
// D is the last source.
#define SPARSE_TEXT_F32 "f:iii+"
#define SPARSE_TEXT_F16 "i:iii+"
#define SPARSE_TEXT_BF16 "i:iii+"
#define SPARSE_TEXT_I32 "i:iii+"

#define SATURATES_F32 0
#define SATURATES_F16 0
#define SATURATES_BF16 0
#define SATURATES_I32 SIM_SATURATES
#define MATRIX(A, k, passes) {TILE, TILE, 1, SIM_MATRIX_XDL, passes, MFMA_INPUTS_##A, k}

static const sim_opcode opcodes[] = {
#define FORM(name, chips, bits, passes, k, A, B, D, shared, known)                                 \
    SIM_ROW(name, wmma_exec, chips, SIM_MFMA, known, TEXT_##D, .is = SATURATES_##D,                \
            .matrix = MATRIX(A, k, passes))
    WMMA_FORMS(FORM)
#undef FORM
#define FORM(name, bits, passes, k, A, B, D, known)                                                \
    SIM_ROW(name, swmmac_exec, GFX12, SIM_MFMA, known, SPARSE_TEXT_##D,                            \
            .is = SATURATES_##D | SIM_IS_SPARSE, .matrix = MATRIX(A, k, passes))
        SWMMAC_FORMS(FORM)
#undef FORM
};

const sim_opcode_table SIM_NAME(sim_ops_wmma) = {opcodes, sizeof opcodes / sizeof *opcodes};
