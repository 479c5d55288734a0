// SPDX-License-Identifier: Apache-2.0
// f64 matrix instructions, eight outputs at a time.
//
// Every lane holds one element of A and one of B: lane = 16 k + slot, slot = block * rows + row.
// Sixteen lanes of a result pair share 16 slots of B. They share one slot of A (16x16), or have one
// for each block (4x4).
#include "mfma_vector.h"

#include <string.h>

enum { SLOTS = 16, EIGHT = 8, MAX_PAIRS = 4 };

/** Reads a register pair as f64. `sign` is the sign bit if the operand is negated, else 0. */
static void read_pair(const uint32_t *rows, uint64_t sign, double out[SIM_LANES]) {
    for (int lane = 0; lane < SIM_LANES; lane++) {
        uint64_t bits = (rows[lane] | (uint64_t)rows[SIM_LANES + lane] << 32) ^ sign;
        memcpy(&out[lane], &bits, sizeof bits);
    }
}

static void write_pair(const double in[SIM_LANES], uint32_t *rows) {
    for (int lane = 0; lane < SIM_LANES; lane++) {
        uint64_t bits;
        memcpy(&bits, &in[lane], sizeof bits);
        bits = in[lane] != in[lane] ? MFMA_NAN64 : bits;
        rows[lane] = (uint32_t)bits;
        rows[SIM_LANES + lane] = (uint32_t)(bits >> 32);
    }
}

/** Computes eight lanes of result pair `reg` from `lane` on: c becomes d. */
static void chain_eight(const mfma_form *f, const double *a, const double *b, int reg, int lane,
                        double *c) {
    // At least four lanes share a block and a row.
    mfma_place first = mfma_place_of(f, reg, lane), second = mfma_place_of(f, reg, lane + 4);
    const double *a0 = a + first.block * f->m + first.row;
    const double *a1 = a + second.block * f->m + second.row;
    mfma_f64 sum, y;
    memcpy(&sum, c, sizeof sum);
    for (int k = 0; k < f->k; k++) {
        const double u = a0[k * SLOTS], v = a1[k * SLOTS];
        memcpy(&y, b + k * SLOTS + lane % SLOTS, sizeof y);
        sum = __builtin_elementwise_fma((mfma_f64){u, u, u, u, v, v, v, v}, y, sum);
    }
    memcpy(c, &sum, sizeof sum);
}

void mfma_exec_f64(sim_wave *w, const sim_inst *inst) {
    const mfma_form *f = mfma_form_of(inst);
    double a[SIM_LANES], b[SIM_LANES], d[MAX_PAIRS][SIM_LANES];
    read_pair(mfma_rows(w, &inst->src[0]), mfma_signs(inst, 0), a);
    read_pair(mfma_rows(w, &inst->src[1]), mfma_signs(inst, 1), b);
    const uint64_t c_sign = mfma_signs(inst, 2);
    const int pairs = mfma_num_results(f);
    for (int reg = 0; reg < pairs; reg++) {
        for (int lane = 0; lane < SIM_LANES; lane++) {
            uint64_t c = mfma_c_bits(w, &inst->src[2], true, reg, lane) ^ c_sign;
            memcpy(&d[reg][lane], &c, sizeof c);
        }
        for (int lane = 0; lane < SIM_LANES; lane += EIGHT)
            chain_eight(f, a, b, reg, lane, &d[reg][lane]);
    }
    for (int reg = 0; reg < pairs; reg++)
        write_pair(d[reg], mfma_rows(w, &inst->dst[0]) + 2 * reg * SIM_LANES);
}
