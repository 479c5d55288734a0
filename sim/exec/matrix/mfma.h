// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: their forms, the places of their elements in registers, and the rules of
// their arithmetic.
//
// D = A B + C for each block, A [m][k], B [k][n], C and D [m][n]. The rules, by the names used
// here:
//   chain     one fused multiply-add a k, in order                            f32, f64
//   pairwise  gfx90a f16, bf16: f32 adds in a tree, subnormals flushed
//   fused     gfx942 f16, bf16, xf32: a group of products in fixed point
//   split     gfx942 fp8, bf8: as fused, with even and odd k apart
//   integer   i8: modulo 2^32
// Source of pairwise, fused and split: MMA-Sim, arXiv:2511.10909 (randomised tests on silicon of
// CDNA2 and CDNA3); gfx950 has no published model and takes gfx942's rules. Layouts: "CDNA3" ISA
// manual, matrix chapter, and AMD's matrix instruction calculator.
#ifndef SIM_EXEC_MFMA_H
#define SIM_EXEC_MFMA_H

#include "../../chip/chip.h"
#include "../../isa/inst.h"
#include "../../wave.h"

typedef enum mfma_type {
    MFMA_F64,
    MFMA_F32,
    MFMA_XF32, // f32 cut to 10 fraction bits
    MFMA_F16,
    MFMA_BF16,
    MFMA_I8,
    MFMA_FP8_FNUZ, // e4m3, bias 8
    MFMA_BF8_FNUZ, // e5m2, bias 16
    MFMA_FP8,      // e4m3, bias 7
    MFMA_BF8,      // e5m2, bias 15
    MFMA_FP6,      // e2m3
    MFMA_BF6,      // e3m2
    MFMA_FP4,      // e2m1
    MFMA_BY_FIELD, // f8f6f4: cbsz names A's type, blgp B's
    MFMA_NUM_TYPES
} mfma_type;

// The kinds of these types, for the tables. The form that takes 8-, 6- and 4-bit floats is named
// after the narrowest type.
#define MFMA_INPUTS_F64 SIM_KIND_MATRIX_F64
#define MFMA_INPUTS_F32 SIM_KIND_MATRIX_F32
#define MFMA_INPUTS_XF32 SIM_KIND_MATRIX_XF32
#define MFMA_INPUTS_F16 SIM_KIND_MATRIX_F16
#define MFMA_INPUTS_BF16 SIM_KIND_MATRIX_BF16
#define MFMA_INPUTS_I8 SIM_KIND_MATRIX_I8
#define MFMA_INPUTS_FP8_FNUZ SIM_KIND_MATRIX_F8
#define MFMA_INPUTS_BF8_FNUZ SIM_KIND_MATRIX_F8
#define MFMA_INPUTS_FP8 SIM_KIND_MATRIX_F8
#define MFMA_INPUTS_BF8 SIM_KIND_MATRIX_F8
#define MFMA_INPUTS_BY_FIELD SIM_KIND_MATRIX_F6F4

typedef enum mfma_rule {
    MFMA_CHAIN,
    MFMA_PAIRWISE,
    MFMA_FUSED,
    MFMA_SPLIT,
    MFMA_INTEGER
} mfma_rule;

/** One matrix instruction of one target. */
typedef struct mfma_form {
    uint8_t m, n, blocks;
    uint8_t group; // products summed before one rounding; 1 for chain
    uint16_t k;    // of the dense product
    uint8_t a_type, b_type;
    uint8_t rule;
} mfma_form;

/** An input element: its bits, and for the fused rules its decoded value m * 2^(e - fraction). */
typedef struct mfma_term {
    uint64_t bits;
    int32_t m;
    int16_t e;    // zero: -126; subnormal: the type's smallest, not normalised
    uint8_t kind; // mfma_kind
} mfma_term;

typedef enum mfma_kind { MFMA_FINITE, MFMA_INF, MFMA_NAN } mfma_kind;

/** The meaning of a floating-point type's bits. */
typedef struct mfma_format {
    uint8_t bits, fraction;
    int16_t bias;
    uint8_t specials; // mfma_specials
} mfma_format;

typedef enum mfma_specials {
    MFMA_IEEE,   // largest exponent: Inf and NaN
    MFMA_FNUZ,   // negative zero is NaN, nothing else is special
    MFMA_FN,     // all ones is NaN, no Inf
    MFMA_ALL_OK, // every pattern is a number
} mfma_specials;

enum {
    MFMA_SCALE_BLOCK = 32, // k of a block with scales of its own; the group of f8f6f4 forms alone
    MFMA_MAX_TERMS = SIM_LANES * 32,
};

static constexpr uint32_t MFMA_NAN32 = 0x7fc00000;
static constexpr uint64_t MFMA_NAN64 = 0x7ff8000000000000;

// Every name is built once for each host instruction set.
#define mfma_formats SIM_NAME(mfma_formats)
#define mfma_decode SIM_NAME(mfma_decode)
#define mfma_dot SIM_NAME(mfma_dot)
#define mfma_exec_exact SIM_NAME(mfma_exec_exact)
#define mfma_exec_vector SIM_NAME(mfma_exec_vector)
#define mfma_exec_fp8 SIM_NAME(mfma_exec_fp8)
#define mfma_run_fp8 SIM_NAME(mfma_run_fp8)
#define mfma_exec_fast SIM_NAME(mfma_exec_fast)
#define mfma_form_of SIM_NAME(mfma_form_of)
#define mfma_typed_form SIM_NAME(mfma_typed_form)
#define mfma_is_plain_f8 SIM_NAME(mfma_is_plain_f8)
#define mfma_lane_map SIM_NAME(mfma_lane_map)
#define mfma_element SIM_NAME(mfma_element)
#define mfma_c_bits SIM_NAME(mfma_c_bits)
#define mfma_k_of SIM_NAME(mfma_k_of)
#define mfma_read_terms SIM_NAME(mfma_read_terms)
#define mfma_each_output SIM_NAME(mfma_each_output)
#define mfma_exec_f64 SIM_NAME(mfma_exec_f64)
#define mfma_exec_scaled SIM_NAME(mfma_exec_scaled)
#define mfma_exec_sparse SIM_NAME(mfma_exec_sparse)
#define mfma_signs SIM_NAME(mfma_signs)
#define sim_ops_mfma SIM_NAME(sim_ops_mfma)

// ---- mfma_rules.c: the definition, one output at a time

extern const mfma_format mfma_formats[MFMA_NUM_TYPES];

/** Returns the term that an element's bits stand for; bits above the type's width are ignored. */
mfma_term mfma_decode(mfma_type type, uint64_t bits);

/** Returns one output: c plus the dot product of `count` terms, in order of k. `form` gives types,
 *  rule and group; c and the result are bits of f64, i32 or f32. A NaN result is MFMA_NAN32 or
 *  MFMA_NAN64. `scale_exponent` is added to the exponent of every product (0 but for block-scaled
 *  forms). */
uint64_t mfma_dot(const mfma_form *form, const mfma_term *a, const mfma_term *b, int count,
                  uint64_t c, int scale_exponent);

// ---- mfma.c: operands, layouts, tables

extern const sim_opcode_table sim_ops_mfma;

/** Returns the form of a decoded matrix instruction. */
const mfma_form *mfma_form_of(const sim_inst *inst);

/** Returns the form with the types that the instruction's fields name, if its form leaves them to
 *  these. */
mfma_form mfma_typed_form(const sim_inst *inst);

/** Returns whether an f8f6f4 instruction has 8-bit types on both sides and no scales. */
bool mfma_is_plain_f8(const sim_inst *inst);

/** Returns the first register row of a source or destination that is a VGPR range. */
static inline uint32_t *mfma_rows(sim_wave *w, const sim_operand *op) {
    return w->v[op->reg];
}

/** Writes to map[lane] the lane that A (cbsz, abid) or B (blgp) reads for `lane`. Returns false,
 *  and writes nothing, if every lane reads itself. */
bool mfma_lane_map(const mfma_form *form, const sim_inst *inst, int side, uint8_t map[SIM_LANES]);

/** Returns element `element` of `width` bits, packed low to high in the registers from `rows`
 *  on. */
uint64_t mfma_element(const uint32_t *rows, int lane, int element, int width);

/** Returns one element of C, from a register (a pair for f64) or a constant. */
uint64_t mfma_c_bits(sim_wave *w, const sim_operand *c, bool is_f64, int reg, int lane);

/** Returns, for f64 forms, the sign bit if source 0, 1 or 2 is negated (in the field that is blgp
 *  in other forms). */
uint64_t mfma_signs(const sim_inst *inst, int source);

/** Returns the k of element `element` of A (side 0) or B in `lane`. */
int mfma_k_of(const mfma_form *f, int side, int lane, int element);

/** Writes A (side 0) or B as terms, in rows of k: out[(block * rows + row) * k + kk]. */
void mfma_read_terms(const mfma_form *f, sim_wave *w, const sim_inst *inst, int side,
                     mfma_term *out);

/** Returns the block, row and column that register `reg` of D and C holds in `lane`. For 64-bit
 *  results `reg` counts pairs. */
typedef struct mfma_place {
    int block, row, column;
} mfma_place;

static inline bool mfma_is_f64(const mfma_form *f) {
    return f->a_type == MFMA_F64;
}

/** Returns the number of registers of D, counting a pair for f64 as one. */
static inline int mfma_num_results(const mfma_form *f) {
    return f->m * f->n * f->blocks / SIM_LANES;
}

static inline mfma_place mfma_place_of(const mfma_form *f, int reg, int lane) {
    const int height =
        mfma_is_f64(f) ? 1 : 4;          // consecutive rows in consecutive registers of a lane
    const int across = SIM_LANES / f->n; // row groups and blocks that share one register
    const int per_block = f->m * f->n / SIM_LANES;
    const int blocks =
        per_block > 0 && per_block >= height ? 1 : SIM_LANES * height / (f->m * f->n);
    const int lane_group = lane / f->n;
    mfma_place p = {.column = lane % f->n};
    p.block = lane_group % blocks + (blocks == 1 ? reg / per_block : 0);
    const int local = blocks == 1 ? reg % per_block : reg;
    const int rows_across = across / blocks;
    p.row = local / height * height * rows_across + lane_group / blocks * height + local % height;
    return p;
}

/** Returns one output, computed from c, as bits of D's type. */
typedef uint64_t mfma_output(const mfma_form *f, const void *state, mfma_place place, uint64_t c);

/** Computes every output, then writes D. */
void mfma_each_output(const mfma_form *f, sim_wave *w, const sim_inst *inst, const sim_operand *c,
                      mfma_output *output, const void *state);

// ---- the ways to execute

void mfma_exec_exact(sim_wave *w, const sim_inst *inst);  // any form, by the definition
void mfma_exec_vector(sim_wave *w, const sim_inst *inst); // dense forms, a register row at a time
void mfma_exec_f64(sim_wave *w, const sim_inst *inst);    // f64 forms
void mfma_exec_scaled(sim_wave *w, const sim_inst *inst); // f8f6f4, with and without scales
void mfma_exec_sparse(sim_wave *w, const sim_inst *inst); // SMFMAC
void mfma_exec_fp8(sim_wave *w, const sim_inst *inst);    // 8-bit floats on AVX-512

#ifdef __AVX512F__
/** Executes a form of 8-bit floats and no scales. Returns false, and does nothing, on a host
 *  without AVX-512 VBMI and if an operand holds an Inf or a NaN. */
bool mfma_run_fp8(const mfma_form *f, sim_wave *w, const sim_inst *inst);
#endif

/** Executes a dense float form in plain f32 arithmetic, if the wave asks for it
 *  (sim_wave.fast_matrix). Returns false, and does nothing, for other forms and waves. */
bool mfma_exec_fast(sim_wave *w, const sim_inst *inst);

#endif
