// SPDX-License-Identifier: Apache-2.0
// What the files of the sampling family share: its problems and their definition.
#ifndef QNI_SAMPLING_H
#define QNI_SAMPLING_H

#include "../shared/elements.h"
#include "sampling_abi.h"

#include <quern/sampling.h>

/** A valid problem: sampling.c and sampling_chain.c have checked everything. `what` says which
 *  member counts: chain and penalties have their own, all others are rows. */
typedef struct qni_sampling_problem {
    uint32_t what; // QK_SAMPLING_...
    union {
        qk_sampling_args rows;
        qk_chain_args chain;
        qk_penalty_args penalties;
    };
} qni_sampling_problem;

extern const qni_op qni_op_sampling;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** The most `columns` of kernels that run several workgroups a multiprocessor. */
enum { QNI_SAMPLING_NARROW = 16384 };

static inline bool qni_sampling_is_on_rows(const qni_sampling_problem *p) {
    return p->what != QK_SAMPLING_CHAIN && p->what != QK_SAMPLING_PENALTIES;
}
/** Returns whether top_k and top_p keep everything, whatever the row. sampling_cost.c. */
bool qni_sampling_is_plain(const qk_sampling_args *g);

static inline int64_t qni_sampling_batch(const qni_sampling_problem *p) {
    return p->what == QK_SAMPLING_CHAIN       ? p->chain.batch
           : p->what == QK_SAMPLING_PENALTIES ? p->penalties.batch
                                              : p->rows.batch;
}
static inline int64_t qni_sampling_vocab(const qni_sampling_problem *p) {
    return p->what == QK_SAMPLING_CHAIN       ? p->chain.vocab
           : p->what == QK_SAMPLING_PENALTIES ? p->penalties.vocab
                                              : p->rows.vocab;
}

/** Computes row b of a problem by the definition: sorts the row. `scratch` has room for
 *  qni_sampling_scratch_bytes of the vocabulary. sampling_ref.c. */
void qni_sampling_ref(const qni_sampling_problem *p, int64_t b, void *scratch);
static inline size_t qni_sampling_scratch_bytes(int64_t vocab) {
    return (size_t)vocab * 40;
}

/** Stores v as element i of an f32, f16 or bf16 array, rounded to nearest, ties to even. */
static inline void qni_sampling_put(qni_dtype dtype, void *p, int64_t i, float v) {
    if (dtype == QNI_F32) {
        ((float *)p)[i] = v;
    } else if (dtype == QNI_F16) {
        ((_Float16 *)p)[i] = (_Float16)v;
    } else {
        const uint32_t bits = __builtin_bit_cast(uint32_t, v);
        const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1);
        ((uint16_t *)p)[i] = (uint16_t)((v == v ? rounded : bits | 0x400000) >> 16);
    }
}

#endif
