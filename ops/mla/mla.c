// SPDX-License-Identifier: Apache-2.0
// MLA, host side: the public function and the table of kernels. mla_args.c reads the arguments.
#include "mla.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_mla 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_mla

static const qni_key keys[] = {{.name = "heads"},
                               {.name = "dim"},
                               {.name = "rope_dim"},
                               {.name = "q", .words = qni_dtype_words},
                               {.name = "kv", .words = qni_dtype_words},
                               {.name = "kpe", .words = qni_dtype_words},
                               {.name = "o", .words = qni_dtype_words},
                               {.name = "requests", .is_of_batch = true},
                               {.name = "rows", .is_of_batch = true},
                               {}};

/** Describes a problem by these numbers; rows are those of the longest request. */
static void describe(const void *problem, int64_t *values) {
    const qni_attention_problem *p = problem;
    QN_SET_VALUES(keys, values, p->args.group, p->args.head_dim_vo, p->tail.dim, p->dtype,
                  p->dtype_kv, p->dtype_tail, p->dtype_o, p->plan->num_requests, p->max_rows);
}

const qni_op qni_op_mla = QN_OP("mla", variants, keys, describe);

qn_status qni_mla_run(qn_stream *stream, const void *problem) {
    return qni_attention_run_parts(&qni_op_mla, stream, problem);
}

qn_status qn_mla_decode(qn_stream *stream, const qn_mla_args *args) {
    qni_attention_problem p;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "mla_decode: stream is null");
    QN_TRY(QNI_CHECK_STRUCT("mla_decode", "args", qn_mla_args, args));
    QN_TRY(qni_mla_make(stream, args, &p));
    QN_TRY(qni_attention_validate_pages(stream, "mla_decode", &p));
    if (p.max_rows > 0 && p.plan->num_requests > 0)
        QN_TRY(qni_mla_run(stream, &p));
    return QN_OK;
}
