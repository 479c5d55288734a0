// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: the table of forms, how operands are read, and execution by the definition.
//
// EXEC is ignored: every lane takes part. All sources are read before D is written, so D may
// overlap any of them. MODE is not consulted: the published model has no such input.
#include "mfma.h"

#include <string.h>

static constexpr uint32_t GFX90A = 1u << SIM_GFX90A;
static constexpr uint32_t GFX942 = 1u << SIM_GFX942;
static constexpr uint32_t GFX950 = 1u << SIM_GFX950;
static constexpr uint32_t GFX94X = 1u << SIM_GFX942 | 1u << SIM_GFX950;

#define EXEC_f64 mfma_exec_f64
#define EXEC_vector mfma_exec_vector
#define EXEC_scaled mfma_exec_scaled
#define EXEC_sparse mfma_exec_sparse
#ifdef __AVX512F__
#define EXEC_fp8 mfma_exec_fp8
#else
#define EXEC_fp8 mfma_exec_vector
#endif

static const mfma_form forms[] = {
#define FORM(name, target, M, N, K, BLOCKS, passes, A, B, RULE, GROUP, known, exec)                \
    {M, N, BLOCKS, GROUP, K, MFMA_##A, MFMA_##B, MFMA_##RULE},
#include "mfma.def"
#undef FORM
};

// How the decoder reads operands, by the way of execution and A's type.
#define TEXT_f64(A) TYPES_##A
#define TEXT_vector(A) TYPES_##A
#define TEXT_fp8(A) TYPES_##A
#define TEXT_scaled(A) "f:iifii" // the scales last
#define TEXT_sparse(A) "f:iii+"  // D is the last source
#define TYPES_F64 "d:ddd"
#define TYPES_F32 "f:fff"
#define TYPES_I8 "i:iii"
#define TYPES_XF32 "f:iif"
#define TYPES_F16 "f:iif"
#define TYPES_BF16 "f:iif"
#define TYPES_FP8 "f:iif"
#define TYPES_BF8 "f:iif"
#define TYPES_FP8_FNUZ "f:iif"
#define TYPES_BF8_FNUZ "f:iif"

// What counters and timing know of the form. gfx90a has one unit for all forms but f64.
#define IS_SPARSE_f64 0
#define IS_SPARSE_vector 0
#define IS_SPARSE_fp8 0
#define IS_SPARSE_scaled 0
#define IS_SPARSE_sparse SIM_IS_SPARSE
#define UNIT(A, target)                                                                            \
    (MFMA_##A == MFMA_F64                         ? SIM_MATRIX_F64                                 \
     : MFMA_##A == MFMA_F32 && (target) != GFX90A ? SIM_MATRIX_F32                                 \
                                                  : SIM_MATRIX_XDL)

static const sim_opcode mfma_opcodes[] = {
#define FORM(name, target, M, N, K, BLOCKS, passes_, A, B, RULE, GROUP, known, exec)               \
    SIM_ROW(name, EXEC_##exec, target, SIM_MFMA, known, TEXT_##exec(A), .is = IS_SPARSE_##exec,    \
            .matrix = {M, N, BLOCKS, UNIT(A, target), passes_, MFMA_INPUTS_##A, K})
#include "mfma.def"
#undef FORM
};

const sim_opcode_table sim_ops_mfma = {mfma_opcodes, sizeof mfma_opcodes / sizeof mfma_opcodes[0]};

const mfma_form *mfma_form_of(const sim_inst *inst) {
    return &forms[inst->opcode - mfma_opcodes];
}

// ---- reading operands

bool mfma_lane_map(const mfma_form *form, const sim_inst *inst, int side, uint8_t map[SIM_LANES]) {
    const int field = side == 0 ? inst->cbsz : inst->blgp;
    if (field == 0 || mfma_is_f64(form) || form->group == MFMA_SCALE_BLOCK)
        return false;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        if (side == 0) { // A of block abid for each run of 2^cbsz blocks
            const int block = lane / form->m % form->blocks;
            const int from = (block >> field << field) + inst->abid;
            map[lane] = (uint8_t)((lane + (from - block) * form->m) % SIM_LANES);
        } else if (field <= 2) { // one half for both
            map[lane] = (uint8_t)(lane % 32 + (field - 1) * 32);
        } else if (field == 3) {
            map[lane] = (uint8_t)((lane + 16) % SIM_LANES);
        } else { // one quarter for all
            map[lane] = (uint8_t)(lane % 16 + (field - 4) * 16);
        }
    }
    return true;
}

uint64_t mfma_element(const uint32_t *rows, int lane, int element, int width) {
    const int bit = element * width;
    const uint32_t *row = rows + bit / 32 * SIM_LANES + lane;
    uint64_t x = row[0];
    if (bit % 32 + width > 32)
        x |= (uint64_t)row[SIM_LANES] << 32;
    x >>= bit % 32;
    return width == 64 ? x : x & ((1ull << width) - 1);
}

uint64_t mfma_c_bits(sim_wave *w, const sim_operand *c, bool is_f64, int reg, int lane) {
    if (c->kind != SIM_OP_VGPR)
        return is_f64 ? c->value64 : c->value;
    const uint32_t *rows = mfma_rows(w, c);
    return mfma_element(rows, lane, reg, is_f64 ? 64 : 32);
}

uint64_t mfma_signs(const sim_inst *inst, int source) {
    const int bits = inst->blgp | inst->neg_lo;
    return (bits >> source & 1) != 0 || inst->src[source].mods & SIM_NEG ? 1ull << 63 : 0;
}

int mfma_k_of(const mfma_form *f, int side, int lane, int element) {
    const int slots = (side == 0 ? f->m : f->n) * f->blocks, groups = SIM_LANES / slots;
    const int per_lane = f->k / groups;
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    if (f->group == MFMA_SCALE_BLOCK && mfma_formats[type].bits == 8) {
        // Eight registers of bytes hold two runs of 16 k, like two instructions of half the k.
        return (element / 16 * groups + lane / slots) * 16 + element % 16;
    }
    return lane / slots * per_lane + element;
}

void mfma_read_terms(const mfma_form *f, sim_wave *w, const sim_inst *inst, int side,
                     mfma_term *out) {
    mfma_type type = (mfma_type)(side == 0 ? f->a_type : f->b_type);
    const int slots = (side == 0 ? f->m : f->n) * f->blocks;
    const int per_lane = f->k * slots / SIM_LANES;
    const uint64_t sign = mfma_is_f64(f) ? mfma_signs(inst, side) : 0;
    uint8_t map[SIM_LANES];
    const bool mapped = mfma_lane_map(f, inst, side, map);
    const uint32_t *rows = mfma_rows(w, &inst->src[side]);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        for (int e = 0; e < per_lane; e++) {
            uint64_t bits =
                mfma_element(rows, mapped ? map[lane] : lane, e, mfma_formats[type].bits);
            const int at = lane % slots * f->k + mfma_k_of(f, side, lane, e);
            out[at] = mfma_decode(type, bits ^ sign);
        }
    }
}

// ---- by the definition

void mfma_each_output(const mfma_form *f, sim_wave *w, const sim_inst *inst, const sim_operand *c,
                      mfma_output *output, const void *state) {
    uint64_t d[32][SIM_LANES]; // D may overlap any source
    const bool is_f64 = mfma_is_f64(f);
    const uint64_t c_sign = is_f64 ? mfma_signs(inst, 2) : 0;
    const int num_results = mfma_num_results(f);
    for (int reg = 0; reg < num_results; reg++) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            const uint64_t c_bits = mfma_c_bits(w, c, is_f64, reg, lane) ^ c_sign;
            d[reg][lane] = output(f, state, mfma_place_of(f, reg, lane), c_bits);
        }
    }
    uint32_t *out = mfma_rows(w, &inst->dst[0]);
    for (int reg = 0; reg < num_results; reg++) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            out[reg * (is_f64 ? 2 : 1) * SIM_LANES + lane] = (uint32_t)d[reg][lane];
            if (is_f64)
                out[(reg * 2 + 1) * SIM_LANES + lane] = (uint32_t)(d[reg][lane] >> 32);
        }
    }
}

typedef struct dense_terms {
    mfma_term a[MFMA_MAX_TERMS], b[MFMA_MAX_TERMS];
} dense_terms;

static uint64_t dense_output(const mfma_form *f, const void *state, mfma_place p, uint64_t c) {
    const dense_terms *t = state;
    return mfma_dot(f, t->a + (p.block * f->m + p.row) * f->k,
                    t->b + (p.block * f->n + p.column) * f->k, f->k, c, 0);
}

void mfma_exec_exact(sim_wave *w, const sim_inst *inst) {
    const mfma_form *f = mfma_form_of(inst);
    dense_terms t;
    mfma_read_terms(f, w, inst, 0, t.a);
    mfma_read_terms(f, w, inst, 1, t.b);
    mfma_each_output(f, w, inst, &inst->src[2], dense_output, &t);
}
