// SPDX-License-Identifier: Apache-2.0
// Sparse matrix instructions (SMFMAC): D += A B, where A holds 2 of every 4 consecutive k.
//
// src2 has two bits for each element of A that the same lane holds, which say which of the four k
// it is. With cbsz 0, abid chooses among the sets of bits that fit in the register; otherwise the
// first is used. The chosen products count as a dense stream in the order of k. Not known to be
// bit-exact.
#include "mfma.h"

typedef struct sparse_terms {
    mfma_term a[MFMA_MAX_TERMS], b[MFMA_MAX_TERMS];
    uint8_t k[MFMA_MAX_TERMS]; // of each element of A
} sparse_terms;

/** Returns the form of A as it lies in registers: with half the k. */
static mfma_form packed_form(const mfma_form *f) {
    mfma_form packed = *f;
    packed.k /= 2;
    return packed;
}

static void read_indices(const mfma_form *packed, sim_wave *w, const sim_inst *inst,
                         uint8_t out[MFMA_MAX_TERMS]) {
    const int per_lane = packed->k * packed->m / SIM_LANES;
    const int first = inst->cbsz == 0 ? inst->abid * per_lane * 2 % 32 : 0;
    const uint32_t *indices = mfma_rows(w, &inst->src[2]);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        for (int e = 0; e < per_lane; e++) {
            const int at = mfma_k_of(packed, 0, lane, e);
            const uint32_t which = indices[lane] >> (first + 2 * e) & 3;
            out[lane % packed->m * packed->k + at] = (uint8_t)((uint32_t)at / 2 * 4 + which);
        }
    }
}

static uint64_t sparse_output(const mfma_form *f, const void *state, mfma_place p, uint64_t c) {
    const sparse_terms *t = state;
    const int packed = f->k / 2;
    mfma_term b[SIM_LANES];
    for (int i = 0; i < packed; i++)
        b[i] = t->b[p.column * f->k + t->k[p.row * packed + i]];
    return mfma_dot(f, t->a + p.row * packed, b, packed, c, 0);
}

void mfma_exec_sparse(sim_wave *w, const sim_inst *inst) {
    const mfma_form *f = mfma_form_of(inst);
    mfma_form packed = packed_form(f);
    sparse_terms t;
    mfma_read_terms(&packed, w, inst, 0, t.a);
    mfma_read_terms(f, w, inst, 1, t.b);
    read_indices(&packed, w, inst, t.k);
    mfma_each_output(f, w, inst, &inst->dst[0], sparse_output, &t);
}
