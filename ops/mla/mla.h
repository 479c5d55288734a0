// SPDX-License-Identifier: Apache-2.0
// What the files of the mla family share. A problem of op "mla" is one of attention with a single
// kv head, whose rows of q and k have a tail (q_pe, kpe), and whose values are the keys without it;
// so attention has its definition, its plans and most of its kernels.
#ifndef QNI_MLA_H
#define QNI_MLA_H

#include "../attention/attention.h"

#include <quern/mla.h>

extern const qni_op qni_op_mla;

/** The kernels that are not attention's: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Runs op "mla" on a qni_attention_problem, in parts, as qni_attention_run_parts. mla.c. */
qn_status qni_mla_run(qn_stream *stream, const void *problem);
/** Returns qni_mla_run, which the check harness calls; null where it runs a single kernel. */
static inline qn_status (*qni_mla_call(const qni_attention_problem *p))(qn_stream *, const void *) {
    return qni_attention_is_mixed(p) ? qni_mla_run : nullptr;
}

/** Checks a call and fills the problem. mla_args.c. */
qn_status qni_mla_make(const qn_stream *stream, const qn_mla_args *args, qni_attention_problem *p);

#endif
