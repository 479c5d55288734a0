// SPDX-License-Identifier: Apache-2.0
// Runs a call in two parts, requests of few rows and those of more, if each kind has a kernel of
// its own. Only the request decides which kernel it gets, so that its bits do not depend on its
// neighbours.
#include "attention.h"

#include <string.h>

static qni_attention_problem make_part(const qni_attention_problem *p, bool of_few_rows) {
    qni_attention_problem part = *p;
    part.has_few_rows = of_few_rows;
    part.has_more_rows = !of_few_rows;
    if (of_few_rows)
        part.args.most_rows = part.max_rows = QK_ATTENTION_FEW_ROWS;
    else
        part.args.least_rows = QK_ATTENTION_FEW_ROWS + 1;
    return part;
}

/** Returns whether one kernel may merge what both variants' kernels write, as it has one form. Else
 *  the first part is merged before the second part writes to the same workspace. */
static bool share_merge(const qni_variant *a, const qni_variant *b) {
    const char *x = a->config.kernel[1].image, *y = b->config.kernel[1].image;
    return !x || !y || strcmp(x, y) == 0;
}

/** Chooses both kernels before one runs, so that a call that is refused has written nothing. */
static qn_status run_parts(const qni_op *op, qn_stream *stream, const qni_attention_problem *p) {
    qni_attention_problem few = make_part(p, true), more = make_part(p, false);
    const qni_variant *of_few = nullptr, *of_more = nullptr;
    QN_TRY(qni_choose(op, stream->device, &few, &of_few));
    QN_TRY(qni_choose(op, stream->device, &more, &of_more));
    if (of_few == of_more)
        return qni_run_variant(of_more, stream, p);
    few.is_merged_later = share_merge(of_few, of_more);
    few.merges_own = more.merges_own = !few.is_merged_later;
    QN_TRY(qni_run_variant(of_few, stream, &few));
    return qni_run_variant(of_more, stream, &more);
}

qn_status qni_attention_run_parts(const qni_op *op, qn_stream *stream,
                                  const qni_attention_problem *p) {
    return qni_attention_is_mixed(p) ? run_parts(op, stream, p) : qni_run(op, stream, p);
}

qn_status qni_attention_run(qn_stream *stream, const void *problem) {
    return qni_attention_run_parts(&qni_op_attention, stream, problem);
}
