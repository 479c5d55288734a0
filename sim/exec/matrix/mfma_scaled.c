// SPDX-License-Identifier: Apache-2.0
// gfx950's f8f6f4 matrix instructions: mixed 8, 6 and 4-bit floats with a scale for every 32 k of a
// row.
//
// cbsz and blgp name the types of A and B. A scale is a power of two, 2^(byte - 127), and a NaN for
// byte 255. Lane l holds the scales of row l % 16 (or 32) and block l / 16 (or 32), in the byte
// that op_sel chooses. AMD documents no accumulation order: each block is one group of the split
// rule. Not known to be bit-exact.
#include "mfma.h"

static constexpr uint8_t SCALE_NAN = 255;
static constexpr int SCALE_BIAS = 127;

typedef struct scaled_terms {
    mfma_term a[MFMA_MAX_TERMS], b[MFMA_MAX_TERMS];
    uint8_t scale[2][SIM_LANES]; // by lane
} scaled_terms;

static mfma_type type_of(int field) {
    static const mfma_type types[] = {MFMA_FP8, MFMA_BF8, MFMA_FP6, MFMA_BF6, MFMA_FP4};
    return types[field < 5 ? field : 0];
}

mfma_form mfma_typed_form(const sim_inst *inst) {
    mfma_form f = *mfma_form_of(inst);
    if (f.group == MFMA_SCALE_BLOCK) {
        f.a_type = (uint8_t)type_of(inst->cbsz);
        f.b_type = (uint8_t)type_of(inst->blgp);
    }
    return f;
}

bool mfma_is_plain_f8(const sim_inst *inst) {
    const mfma_form f = mfma_typed_form(inst);
    return inst->num_src == 3 && mfma_formats[f.a_type].bits == 8 &&
           mfma_formats[f.b_type].bits == 8;
}

static void read_scales(sim_wave *w, const sim_inst *inst, int side, uint8_t out[SIM_LANES]) {
    const int byte = (inst->op_sel >> side & 1) | (inst->op_sel_hi >> side & 1) << 1;
    const uint32_t *rows = inst->num_src > 3 ? mfma_rows(w, &inst->src[3 + side]) : nullptr;
    for (int lane = 0; lane < SIM_LANES; lane++)
        out[lane] = rows ? (uint8_t)(rows[lane] >> (8 * byte)) : SCALE_BIAS;
}

static uint64_t scaled_output(const mfma_form *f, const void *state, mfma_place p, uint64_t c) {
    const scaled_terms *t = state;
    for (int block = 0; block < f->k / MFMA_SCALE_BLOCK; block++) {
        const uint8_t a = t->scale[0][block * f->m + p.row],
                      b = t->scale[1][block * f->n + p.column];
        if (a == SCALE_NAN || b == SCALE_NAN)
            return MFMA_NAN32;
        c = mfma_dot(f, t->a + p.row * f->k + block * MFMA_SCALE_BLOCK,
                     t->b + p.column * f->k + block * MFMA_SCALE_BLOCK, MFMA_SCALE_BLOCK, c,
                     a + b - 2 * SCALE_BIAS);
    }
    return c;
}

void mfma_exec_scaled(sim_wave *w, const sim_inst *inst) {
    if (w->fast_matrix && mfma_exec_fast(w, inst))
        return;
    const mfma_form f = mfma_typed_form(inst);
#ifdef __AVX512F__
    if (mfma_is_plain_f8(inst) && mfma_run_fp8(&f, w, inst))
        return;
#endif
    scaled_terms t;
    mfma_read_terms(&f, w, inst, 0, t.a);
    mfma_read_terms(&f, w, inst, 1, t.b);
    read_scales(w, inst, 0, t.scale[0]);
    read_scales(w, inst, 1, t.scale[1]);
    mfma_each_output(&f, w, inst, &inst->src[2], scaled_output, &t);
}
