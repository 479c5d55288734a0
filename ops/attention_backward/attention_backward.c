// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention, host side: the public functions and the table of kernels.
// attention_backward_args.c reads the arguments, attention_backward_ref.c is the definition.
#include "attention_backward.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_attention_backward 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_attention_backward

static const qni_key keys[] = {{.name = "kv_heads"},
                               {.name = "group"},
                               {.name = "head_dim_qk"},
                               {.name = "head_dim_vo"},
                               {.name = "q", .words = qni_dtype_words},
                               {.name = "kv", .words = qni_dtype_words},
                               {.name = "o", .words = qni_dtype_words},
                               {.name = "dmask", .words = qni_no_yes_words},
                               {.name = "requests", .is_of_batch = true},
                               {.name = "queries", .is_of_batch = true},
                               {.name = "keys", .is_of_batch = true},
                               {}};

/** Describes a problem by these numbers; queries and keys are those of the longest request. */
static void describe(const void *problem, int64_t *values) {
    const qni_backward_problem *p = problem;
    const qk_attention_args *g = &p->args.common;
    QN_SET_VALUES(keys, values, g->num_kv_heads, g->group, g->head_dim_qk, g->head_dim_vo,
                  p->forward.dtype, p->forward.dtype_kv, p->forward.dtype_o,
                  p->args.dmask.data != nullptr, p->requests, p->args.max_qo, p->args.max_kv);
}

const qni_op qni_op_attention_backward = QN_OP("attention_backward", variants, keys, describe);

qn_status qn_attention_backward(qn_stream *stream, const qn_attention_backward_args *args) {
    qni_backward_problem p;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "attention_backward: stream is null");
    QN_TRY(qni_backward_make(stream, args, &p));
    return qni_run(&qni_op_attention_backward, stream, &p);
}
