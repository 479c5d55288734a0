// SPDX-License-Identifier: Apache-2.0
// RDNA matrix instructions (WMMA): D = A B + C for 16x16 tiles, waves of 32 lanes.
//
// RDNA3 (gfx11): lane l and lane l + 16 both hold row l of A and column l of B, every k; 16-bit results
// take the half of each register that op_sel chooses. RDNA4 (gfx12): the two halves of the wave share k,
// 16-bit results are packed. AMD publishes no order of accumulation: floats are taken two k at a time,
// each step one f32 add; so results are not known to be bit-exact. Integers are exact.
// Source of layouts: AMD's matrix instruction calculator. EXEC is ignored.
#include "fp8.h"
#include "mfma.h"
#include "numbers.h"

enum { TILE = 16 };

typedef enum wmma_result { WMMA_F32, WMMA_F16, WMMA_BF16, WMMA_I32 } wmma_result;

typedef struct wmma_form {
    uint8_t bits; // of an input element
    uint8_t k;
    uint8_t a_type, b_type; // mfma_type; MFMA_I8 stands for integers of any width
    uint8_t result;         // wmma_result
    bool shared;            // RDNA4: the halves of the wave share k
} wmma_form;

// mnemonic, chips, input bits, k, A, B, result
#define WMMA_FORMS(X)                                                                              \
    X("v_wmma_f32_16x16x16_f16", GFX11, 16, 16, F16, F16, F32, false)                              \
    X("v_wmma_f32_16x16x16_bf16", GFX11, 16, 16, BF16, BF16, F32, false)                           \
    X("v_wmma_f16_16x16x16_f16", GFX11, 16, 16, F16, F16, F16, false)                              \
    X("v_wmma_bf16_16x16x16_bf16", GFX11, 16, 16, BF16, BF16, BF16, false)                         \
    X("v_wmma_i32_16x16x16_iu8", GFX11, 8, 16, I8, I8, I32, false)                                 \
    X("v_wmma_i32_16x16x16_iu4", GFX11, 4, 16, I8, I8, I32, false)                                 \
    X("v_wmma_f32_16x16x16_f16", GFX12, 16, 16, F16, F16, F32, true)                               \
    X("v_wmma_f32_16x16x16_bf16", GFX12, 16, 16, BF16, BF16, F32, true)                            \
    X("v_wmma_f16_16x16x16_f16", GFX12, 16, 16, F16, F16, F16, true)                               \
    X("v_wmma_bf16_16x16x16_bf16", GFX12, 16, 16, BF16, BF16, BF16, true)                          \
    X("v_wmma_i32_16x16x16_iu8", GFX12, 8, 16, I8, I8, I32, true)                                  \
    X("v_wmma_i32_16x16x16_iu4", GFX12, 4, 16, I8, I8, I32, true)                                  \
    X("v_wmma_i32_16x16x32_iu4", GFX12, 4, 32, I8, I8, I32, true)                                  \
    X("v_wmma_f32_16x16x16_fp8_fp8", GFX12, 8, 16, FP8, FP8, F32, true)                            \
    X("v_wmma_f32_16x16x16_fp8_bf8", GFX12, 8, 16, FP8, BF8, F32, true)                            \
    X("v_wmma_f32_16x16x16_bf8_fp8", GFX12, 8, 16, BF8, FP8, F32, true)                            \
    X("v_wmma_f32_16x16x16_bf8_bf8", GFX12, 8, 16, BF8, BF8, F32, true)

static const wmma_form forms[] = {
#define FORM(name, chips, bits, k, A, B, D, shared) {bits, k, MFMA_##A, MFMA_##B, WMMA_##D, shared},
    WMMA_FORMS(FORM)
#undef FORM
};

extern const sim_opcode_table SIM_NAME(sim_ops_wmma);

static const wmma_form *form_of(const sim_inst *inst) {
    return &forms[inst->opcode - SIM_NAME(sim_ops_wmma).opcodes];
}

/** An operand by k: the values of its sixteen rows (A) or columns (B), f32 or integers. */
typedef struct wmma_plane {
    u32x16 x[32];
} wmma_plane;

// ---- elements

/** The k of an element of A or B in a half of the wave. */
static int k_of(const wmma_form *f, int half, int element) {
    if (!f->shared) {
        return element;
    }
    return f->bits == 16 ? element / 4 * 8 + half * 4 + element % 4 : half * f->k / 2 + element;
}

/** Exact in f32, whatever the type. */
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
    unsigned unused = 32 - (unsigned)bits;
    return is_signed ? (u32x16)((i32x16)(x << unused) >> (int)unused) : x;
}

/** A (side 0) or B. */
static void read_input(const wmma_form *f, sim_wave *w, const sim_inst *inst, int side,
                       wmma_plane *out) {
    int halves = f->shared ? 2 : 1, count = f->k / halves;
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    const uint32_t *rows = mfma_rows(w, &inst->src[side]);
    uint32_t mask = (1u << f->bits) - 1;
    bool flag[2] = {inst->neg_lo >> side & 1, inst->neg_hi >> side & 1}; // of even k, of odd k
    for (int i = 0; i < halves * count; i++) {
        int half = i / count, e = i % count, bit = e * f->bits;
        u32x16 bits = load16(rows + bit / 32 * SIM_LANES + half * TILE) >> bit % 32 & mask;
        u32x16 *at = &out->x[k_of(f, half, e)];
        if (type == MFMA_I8) {
            *at = integers_of(f->bits, bits, flag[0]); // neg_lo says signed
        } else {
            *at = (u32x16)values_of(type, bits) ^ (flag[e % 2] ? 0x80000000u : 0);
        }
    }
}

// ---- C and D: a strip is the sixteen columns of one row, sixteen lanes of one register

static bool is_half(const wmma_form *f) {
    return f->result == WMMA_F16 || f->result == WMMA_BF16;
}

/** Register and bit where result `index` (0 to 7) of a lane lies. */
static int bit_of(const wmma_form *f, const sim_inst *inst, int index) {
    if (!is_half(f)) {
        return index * 32;
    }
    return f->shared ? index * 16 : index * 32 + (inst->op_sel >> 2 & 1) * 16;
}

/** C as f32, or as integers. */
static u32x16 read_c(const wmma_form *f, sim_wave *w, const sim_inst *inst, int half, int index) {
    static const mfma_type types[] = {MFMA_F32, MFMA_F16, MFMA_BF16, MFMA_F32};
    u32x16 bits = (u32x16){} + inst->src[2].value;
    if (inst->src[2].kind == SIM_OP_VGPR) {
        int bit = bit_of(f, inst, index);
        const uint32_t *rows = mfma_rows(w, &inst->src[2]);
        bits = load16(rows + bit / 32 * SIM_LANES + half * TILE) >> bit % 32;
    }
    if (f->result == WMMA_I32) {
        return bits;
    }
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

static f64x16 product(const wmma_plane *a, const wmma_plane *b, int row, int k) {
    double left = (double)as_f32(a->x[k][row]);
    return left * __builtin_convertvector((f32x16)b->x[k], f64x16);
}

static u32x16 float_strip(const wmma_form *f, const wmma_plane *a, const wmma_plane *b, int row,
                          u32x16 c) {
    f32x16 sum = (f32x16)c;
    for (int k = 0; k < f->k; k += 2) {
        sum += __builtin_convertvector(product(a, b, row, k) + product(a, b, row, k + 1), f32x16);
    }
    return result_bits(f, sum);
}

/** The products' sum is far from 32 bits, so only adding C can overflow. */
static u32x16 integer_strip(const wmma_form *f, const wmma_plane *a, const wmma_plane *b, int row,
                            u32x16 c, bool clamp) {
    u32x16 sum = {};
    for (int k = 0; k < f->k; k++) {
        sum += a->x[k][row] * b->x[k];
    }
    return clamp ? (u32x16)__builtin_elementwise_add_sat((i32x16)sum, (i32x16)c) : sum + c;
}

static void write_strip(const wmma_form *f, sim_wave *w, const sim_inst *inst, int half, int index,
                        u32x16 x) {
    int bit = bit_of(f, inst, index);
    uint32_t *at = mfma_rows(w, &inst->dst[0]) + bit / 32 * SIM_LANES + half * TILE;
    u32x16 mask = (u32x16){} + (is_half(f) ? 0xffffu << bit % 32 : UINT32_MAX);
    store16(at, select16(mask, x << bit % 32, load16(at)));
}

// ---- execution

static void wmma_exec(sim_wave *w, const sim_inst *inst) {
    const wmma_form *f = form_of(inst);
    if (w->group && !w->group->dispatch->kernel->wave32) {
        sim_fault_raise(w, inst, -1,
                        "matrix instructions in waves of 64 lanes are not implemented");
        return;
    }
    wmma_plane a, b;
    u32x16 d[2][8]; // D may overlap any source
    read_input(f, w, inst, 0, &a);
    read_input(f, w, inst, 1, &b);
    for (int i = 0; i < 16; i++) {
        int half = i / 8, index = i % 8, row = f->shared ? half * 8 + index : index * 2 + half;
        u32x16 c = read_c(f, w, inst, half, index);
        d[half][index] = f->result == WMMA_I32
                             ? integer_strip(f, &a, &b, row, c, inst->flags & SIM_CLAMP)
                             : float_strip(f, &a, &b, row, c);
    }
    for (int i = 0; i < 16; i++) {
        write_strip(f, w, inst, i / 8, i % 8, d[i / 8][i % 8]);
    }
}

#define TEXT_F32 "f:iif"
#define TEXT_F16 "i:iih"
#define TEXT_BF16 "i:iiw"
#define TEXT_I32 "i:iii"

static const sim_opcode opcodes[] = {
#define FORM(name, chips, bits, k, A, B, D, shared)                                                \
    {name, wmma_exec, chips, SIM_MFMA, '?', TEXT_##D},
    WMMA_FORMS(FORM)
#undef FORM
};

const sim_opcode_table SIM_NAME(sim_ops_wmma) = {opcodes, sizeof opcodes / sizeof *opcodes};
