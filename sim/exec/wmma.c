// SPDX-License-Identifier: Apache-2.0
// RDNA matrix instructions (WMMA): D = A B + C for 16x16 tiles, waves of 32 lanes.
//
// RDNA3 (gfx11): lane l and lane l + 16 both hold row l of A and column l of B, every k; 16-bit results
// take the half of each register that op_sel chooses. RDNA4 (gfx12): the two halves of the wave share k,
// 16-bit results are packed. AMD publishes no order of accumulation: floats are taken two k at a time,
// each step one f32 add; so results are not known to be bit-exact. Integers are exact.
// Source of layouts: AMD's matrix instruction calculator. EXEC is ignored.
#include "exec.h"
#include "mfma.h"

#include <math.h>
#include <stdlib.h>

enum { TILE = 16, WAVE = 32 };

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

// ---- elements

/** The k of an element of A or B in `lane`. */
static int k_of(const wmma_form *f, int lane, int element) {
    if (!f->shared) {
        return element;
    }
    int half = lane / TILE;
    return f->bits == 16 ? element / 4 * 8 + half * 4 + element % 4 : half * f->k / 2 + element;
}

static double value_of(mfma_type type, uint64_t bits) {
    mfma_term t = mfma_decode(type, bits);
    if (t.kind == MFMA_NAN) {
        return NAN;
    }
    bool negative = bits >> (mfma_formats[type].bits - 1) & 1; // a zero's term has lost its sign
    double size =
        t.kind == MFMA_INF ? INFINITY : ldexp(abs(t.m), t.e - mfma_formats[type].fraction);
    return negative ? -size : size;
}

static double integer_of(int bits, uint64_t x, bool is_signed) {
    bool negative = is_signed && x >> (bits - 1) & 1;
    return (double)x - (negative ? (double)(1 << bits) : 0);
}

/** A (side 0) or B by row and k. Every input type's values are exact in double. */
static void read_input(const wmma_form *f, sim_wave *w, const sim_inst *inst, int side,
                       double out[TILE][32]) {
    int lanes = f->shared ? WAVE : TILE, count = f->shared ? f->k / 2 : f->k;
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    const uint32_t *rows = mfma_rows(w, &inst->src[side]);
    bool flag[2] = {inst->neg_lo >> side & 1, inst->neg_hi >> side & 1}; // of even k, of odd k
    for (int lane = 0; lane < lanes; lane++) {
        for (int e = 0; e < count; e++) {
            uint64_t bits = mfma_element(rows, lane, e, f->bits);
            double *at = &out[lane % TILE][k_of(f, lane, e)];
            if (type == MFMA_I8) {
                *at = integer_of(f->bits, bits, flag[0]); // neg_lo says signed
            } else {
                *at = flag[e % 2] ? -value_of(type, bits) : value_of(type, bits);
            }
        }
    }
}

// ---- C and D

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

static double c_value(const wmma_form *f, sim_wave *w, const sim_inst *inst, int lane, int index) {
    static const mfma_type types[] = {MFMA_F32, MFMA_F16, MFMA_BF16, MFMA_F32};
    int width = is_half(f) ? 16 : 32;
    uint64_t bits = inst->src[2].value;
    if (inst->src[2].kind == SIM_OP_VGPR) {
        int bit = bit_of(f, inst, index);
        bits = mfma_element(mfma_rows(w, &inst->src[2]), lane, bit / width, width);
    }
    if (f->result == WMMA_I32) {
        return (double)(int32_t)bits;
    }
    double c = value_of(types[f->result], bits);
    c = inst->neg_hi & 4 ? fabs(c) : c;
    return inst->neg_lo & 4 ? -c : c;
}

static uint32_t half_bits(wmma_result result, float x) {
    uint32_t bits;
    if (result == WMMA_F16) {
        _Float16 half = (_Float16)x;
        uint16_t short_bits;
        memcpy(&short_bits, &half, sizeof half);
        return isnan(x) ? 0x7e00 : short_bits;
    }
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint32_t float_output(const wmma_form *f, const double *a, const double *b, double c) {
    float s = (float)c;
    for (int k = 0; k < f->k; k += 2) {
        s += (float)(a[k] * b[k] + a[k + 1] * b[k + 1]);
    }
    if (is_half(f)) {
        return half_bits((wmma_result)f->result, s);
    }
    uint32_t bits;
    memcpy(&bits, &s, sizeof bits);
    return isnan(s) ? MFMA_NAN32 : bits;
}

static uint32_t integer_output(const wmma_form *f, const double *a, const double *b, double c,
                               bool clamp) {
    int64_t s = (int64_t)c;
    for (int k = 0; k < f->k; k++) {
        s += (int64_t)(a[k] * b[k]);
    }
    if (clamp) {
        s = s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s;
    }
    return (uint32_t)s;
}

static void write_result(const wmma_form *f, sim_wave *w, const sim_inst *inst, int lane, int index,
                         uint32_t x) {
    int bit = bit_of(f, inst, index);
    uint32_t *at = mfma_rows(w, &inst->dst[0]) + bit / 32 * SIM_LANES + lane;
    uint32_t mask = is_half(f) ? 0xffffu << bit % 32 : UINT32_MAX;
    *at = (*at & ~mask) | (x << bit % 32 & mask);
}

// ---- execution

static void wmma_exec(sim_wave *w, const sim_inst *inst) {
    const wmma_form *f = form_of(inst);
    if (w->group && !w->group->dispatch->kernel->wave32) {
        sim_fault_raise(w, inst, -1,
                        "matrix instructions in waves of 64 lanes are not implemented");
        return;
    }
    double a[TILE][32], b[TILE][32];
    uint32_t d[8][WAVE]; // D may overlap any source
    read_input(f, w, inst, 0, a);
    read_input(f, w, inst, 1, b);
    for (int i = 0; i < 8 * WAVE; i++) {
        int index = i / WAVE, lane = i % WAVE, half = lane / TILE, column = lane % TILE;
        int row = f->shared ? half * 8 + index : index * 2 + half;
        double c = c_value(f, w, inst, lane, index);
        d[index][lane] = f->result == WMMA_I32
                             ? integer_output(f, a[row], b[column], c, inst->flags & SIM_CLAMP)
                             : float_output(f, a[row], b[column], c);
    }
    for (int i = 0; i < 8 * WAVE; i++) {
        write_result(f, w, inst, i % WAVE, i / WAVE, d[i / WAVE][i % WAVE]);
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
