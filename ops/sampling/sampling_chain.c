// SPDX-License-Identifier: Apache-2.0
// The sampling family's other functions: speculative sampling and penalties.
#include "sampling_args.h"

// ---- speculative sampling

enum { DRAFT, TARGET, IDS, OUT, ACCEPTED, SENT, SEEDS, OFFSETS, NUM_CHAIN };

static qni_tensor contiguous(const char *name, const DLTensor *t, int ndim, uint32_t dtypes,
                             const int64_t *shape) {
    return (qni_tensor){name, t, ndim, dtypes, .shape = shape, .has_rows = true};
}

/** Reads the tensors in the order of their shapes: draft_probs says the others'. */
static qn_status read_chain(const qni_call *call, const qn_chain_speculative_sampling_args *a,
                            qni_tensor *t) {
    t[DRAFT] = contiguous("draft_probs", a->draft_probs, 3, qni_of_f32, nullptr);
    QN_TRY(qni_read_tensors(call, &t[DRAFT], 1));
    QN_TRY(qni_sampling_check_vocab(call, &t[DRAFT]));
    const int64_t batch = t[DRAFT].size[0], n = t[DRAFT].size[1], vocab = t[DRAFT].size[2];
    const int64_t target[] = {batch, n + 1, vocab}, ids[] = {batch, n}, out[] = {batch, n + 1};
    t[TARGET] = contiguous("target_probs", a->target_probs, 3, qni_of_f32, target);
    t[IDS] = contiguous("draft_ids", a->draft_ids, 2, qni_of_i32, ids);
    t[OUT] = contiguous("out", a->out, 2, qni_of_i32, out);
    t[ACCEPTED] = contiguous("accepted", a->accepted, 1, qni_of_i32, &batch);
    t[SENT] = contiguous("sent", a->sent, 1, qni_of_i32, &batch);
    for (int i = OUT; i <= SENT; i++)
        t[i].is_written = true;
    t[ACCEPTED].may_be_null = t[SENT].may_be_null = true;
    QN_TRY(qni_read_tensors(call, &t[TARGET], SENT - TARGET + 1));
    for (int i = DRAFT; i <= SENT; i++)
        if (t[i].t && !qni_is_contiguous(t[i].t))
            return QN_FAIL(QN_E_INVALID, "%s: %s is not contiguous", call->op, t[i].name);
    return QN_OK;
}

qn_status qn_chain_speculative_sampling(qn_stream *stream,
                                        const qn_chain_speculative_sampling_args *args) {
    const qni_call call = {"chain_speculative_sampling", stream};
    QN_TRY(QNI_CHECK_STRUCT(call.op, "args", qn_chain_speculative_sampling_args, args));
    qni_tensor t[NUM_CHAIN];
    QN_TRY(read_chain(&call, args, t));
    const int64_t batch = t[DRAFT].size[0], n = t[DRAFT].size[1];
    qni_sampling_problem p = {.what = QK_SAMPLING_CHAIN,
                              .chain = {.draft = t[DRAFT].data,
                                        .target = t[TARGET].data,
                                        .ids = t[IDS].data,
                                        .out = t[OUT].data,
                                        .accepted = t[ACCEPTED].data,
                                        .sent = t[SENT].data,
                                        .batch = (uint32_t)batch,
                                        .n = (uint32_t)n,
                                        .vocab = (uint32_t)t[DRAFT].size[2]}};
    QN_TRY(qni_sampling_read_random(&call, args->seeds, args->offsets, args->seed, args->offset,
                                    batch, &t[SEEDS], &p.chain.random));
    if (n >= 1 << 20)
        return QN_FAIL(QN_E_INVALID, "%s: draft_probs has chains of %ld; accepted: below 2^20",
                       call.op, (long)n);
    QN_TRY(qni_check_apart(&call, t, NUM_CHAIN));
    if (batch * n > 0 && qni_validates_indices(stream))
        QN_TRY(qni_validate_range(stream, call.op, "draft_ids", p.chain.ids, batch * n, 0,
                                  p.chain.vocab));
    return batch == 0 ? QN_OK : qni_run(&qni_op_sampling, stream, &p);
}

// ---- penalties

enum { X, RESULT, COUNTS, IN_PROMPT, REPETITIONS, PRESENCES, FREQUENCIES, NUM_PENALTIES };

static qn_status read_penalties(const qni_call *call, const qn_penalties_args *a, qni_tensor *t) {
    t[X] = (qni_tensor){"logits", a->logits, 2, qni_of_floats, .has_rows = true};
    QN_TRY(qni_read_tensors(call, &t[X], 1));
    QN_TRY(qni_sampling_check_vocab(call, &t[X]));
    const int64_t *shape = t[X].size;
    t[RESULT] = (qni_tensor){"out",
                             a->out,
                             2,
                             .like = &t[X],
                             .shape = shape,
                             .has_rows = true,
                             .is_written = true,
                             .may_be = &t[X]};
    t[COUNTS] = (qni_tensor){"counts",         a->counts,          2, qni_of_i32, .shape = shape,
                             .has_rows = true, .may_be_null = true};
    t[IN_PROMPT] =
        (qni_tensor){"in_prompt",      a->in_prompt,       2, qni_sampling_of_flags, .shape = shape,
                     .has_rows = true, .may_be_null = true};
    return qni_read_tensors(call, &t[RESULT], 3);
}

static qn_status read_strengths(const qni_call *call, qn_stream *stream, const qn_penalties_args *a,
                                qni_tensor *t, qk_penalty_args *g) {
    const float most = __FLT_MAX__, least = 0x1p-149f;
    const qni_sampling_numbers numbers[] = {
        {"repetition", "repetitions", a->repetitions, g->repetition, least, most},
        {"presence", "presences", a->presences, g->presence, -most, most},
        {"frequency", "frequencies", a->frequencies, g->frequency, -most, most}};
    const float **const vectors[] = {&g->repetitions, &g->presences, &g->frequencies};
    for (int i = 0; i < 3; i++)
        QN_TRY(qni_sampling_read_numbers(call, stream, &numbers[i], g->batch, &t[REPETITIONS + i],
                                         vectors[i]));
    return QN_OK;
}

qn_status qn_apply_penalties(qn_stream *stream, const qn_penalties_args *args) {
    const qni_call call = {"apply_penalties", stream};
    QN_TRY(QNI_CHECK_STRUCT(call.op, "args", qn_penalties_args, args));
    qni_tensor t[NUM_PENALTIES];
    QN_TRY(read_penalties(&call, args, t));
    qni_sampling_problem p = {
        .what = QK_SAMPLING_PENALTIES,
        .penalties = {.x = t[X].data,
                      .out = t[RESULT].data,
                      .counts = t[COUNTS].data,
                      .in_prompt = t[IN_PROMPT].data,
                      .x_row = t[X].stride[0],
                      .out_row = t[RESULT].stride[0],
                      .counts_row = t[COUNTS].stride[0],
                      .prompt_row = t[IN_PROMPT].stride[0],
                      .repetition = args->repetition == 0 ? 1 : args->repetition,
                      .presence = args->presence,
                      .frequency = args->frequency,
                      .batch = (uint32_t)t[X].size[0],
                      .vocab = (uint32_t)t[X].size[1],
                      .dtype = (uint32_t)t[X].dtype}};
    QN_TRY(read_strengths(&call, stream, args, t, &p.penalties));
    QN_TRY(qni_check_apart(&call, t, NUM_PENALTIES));
    return p.penalties.batch == 0 ? QN_OK : qni_run(&qni_op_sampling, stream, &p);
}
