// SPDX-License-Identifier: Apache-2.0
// The check problems of merging and of dropout's mask.
#include "attention_case.h"

#include <stdlib.h>

// ---- merging

enum { IN_V, IN_S, OUT_V, OUT_S, MERGE_AREAS };

typedef struct merge_case {
    qni_area areas[MERGE_AREAS];
    qni_merge_problem problem;
    const DLTensor *outputs[2];
    char text[96];
} merge_case;

static qn_status reset_merge(void *context, qn_stream *stream) {
    return qni_case_reset(((merge_case *)context)->areas, MERGE_AREAS, stream);
}

static qn_status compare_merge(void *context, qn_stream *stream, double *error, char *detail,
                               size_t room) {
    return qni_case_compare(((merge_case *)context)->areas, MERGE_AREAS, stream, error, detail,
                            room);
}

/** Query 0 has no state at all, query 1 one only, query 2 equal ones. */
static double state_lse(int64_t n, int64_t i, uint64_t *random) {
    const double s = 8 * qni_random_normal(random);
    return n == 0 || (n == 1 && i > 0) ? -HUGE_VAL : n == 2 ? 3 : s;
}

/** Weights base^(s - max), each off by 4u + 2u |s - max|, and their sum likewise. */
static void expect_merge(merge_case *c, int64_t n, int64_t head) {
    const qni_merge_problem *p = &c->problem;
    const double unit = log(2) / (double)p->lse_unit, u = 0x1p-24;
    const float *s = qni_area_host(&c->areas[IN_S]);
    double max = -HUGE_VAL, sum = 0, spread = 0;
    for (int64_t i = 0; i < p->states; i++)
        max = fmax(max, (double)s[n * p->s_token[0] + i * p->s_state + head]);
    for (int64_t i = 0; max > -HUGE_VAL && i < p->states; i++) {
        const double x = (double)s[n * p->s_token[0] + i * p->s_state + head];
        sum += exp((x - max) * unit);
        spread = isinf(x) ? spread : fmax(spread, fabs(max) + fabs(x));
    }
    for (int64_t d = 0; d < p->head_dim; d++) {
        double o = 0, magnitude = 0;
        for (int64_t i = 0; sum > 0 && i < p->states; i++) {
            const double x = (double)s[n * p->s_token[0] + i * p->s_state + head];
            const double v =
                isinf(x) ? 0
                         : qni_get(p->dtype, qni_area_host(&c->areas[IN_V]),
                                   n * p->v_token[0] + i * p->v_state + head * p->v_head[0] + d);
            o += exp((x - max) * unit) * v / sum;
            magnitude += exp((x - max) * unit) * fabs(v) / sum;
        }
        qni_area_expect(&c->areas[OUT_V], n * p->o_token + head * p->o_head + d, o,
                        magnitude * u * ((double)p->states + 16 + 8 * spread));
    }
    qni_area_expect(&c->areas[OUT_S], n * p->lse_token + head,
                    sum > 0 ? max + log(sum) / unit : -HUGE_VAL,
                    u * ((double)p->states + 16 + 8 * spread));
}

static void fill_merge(merge_case *c, uint64_t random) {
    const qni_merge_problem *p = &c->problem;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t i = 0; i < p->states; i++)
            for (int64_t h = 0; h < p->heads; h++) {
                const double s = state_lse(n, i, &random);
                qni_put(QNI_F32, qni_area_host(&c->areas[IN_S]),
                        n * p->s_token[0] + i * p->s_state + h, s);
                for (int64_t d = 0; d < p->head_dim && !isinf(s); d++) // else NaN stays there
                    qni_put(p->dtype, qni_area_host(&c->areas[IN_V]),
                            n * p->v_token[0] + i * p->v_state + h * p->v_head[0] + d,
                            qni_random_normal(&random));
            }
}

static qn_status make_merge(qni_check_run *run, merge_case *c, qni_dtype dtype, int64_t states,
                            int64_t dim) {
    const int64_t n = 5, heads = 3;
    qn_device *device = qn_stream_device(qni_check_stream(run));
    qn_status st;
    QN_TRY(
        qni_area_create(&c->areas[IN_V], "v_states", device, dtype, n * states * heads * dim, 0));
    QN_TRY(qni_area_create(&c->areas[IN_S], "s_states", device, QNI_F32, n * states * heads, 0));
    QN_TRY(qni_area_create(&c->areas[OUT_V], "v", device, dtype, n * heads * dim, 0));
    QN_TRY(qni_area_create(&c->areas[OUT_S], "s", device, QNI_F32, n * heads, 0));
    c->problem = (qni_merge_problem){.dtype = dtype,
                                     .v = {qni_area_device(&c->areas[IN_V])},
                                     .s = {qni_area_device(&c->areas[IN_S])},
                                     .v_token = {states * heads * dim},
                                     .v_state = heads * dim,
                                     .v_head = {dim},
                                     .s_token = {states * heads},
                                     .s_state = heads,
                                     .s_head = {1},
                                     .o = qni_area_device(&c->areas[OUT_V]),
                                     .lse = qni_area_device(&c->areas[OUT_S]),
                                     .o_token = heads * dim,
                                     .o_head = dim,
                                     .lse_token = heads,
                                     .lse_head = 1,
                                     .n = n,
                                     .heads = heads,
                                     .head_dim = dim,
                                     .states = states,
                                     .lse_unit = states % 2 ? 0x1.62E43p-1f : 1.0f};
    c->outputs[0] = &c->areas[OUT_V].flat, c->outputs[1] = &c->areas[OUT_S].flat;
out:
    return st;
}

static qn_status check_merge(qni_check_run *run, qni_dtype dtype, int64_t states, int64_t dim) {
    merge_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY(make_merge(run, c, dtype, states, dim));
    fill_merge(c, qni_check_seed(run));
    for (int64_t i = 0; i < c->problem.n * c->problem.heads; i++)
        expect_merge(c, i / c->problem.heads, i % c->problem.heads);
    snprintf(c->text, sizeof c->text, "n=5 states=%ld heads=3 d=%ld %s", (long)states, (long)dim,
             qni_dtype_name(dtype));
    const qni_check_problem problem = {.op = &qni_op_merge_states,
                                       .text = c->text,
                                       .problem = &c->problem,
                                       .context = c,
                                       .reset = reset_merge,
                                       .compare = compare_merge,
                                       .outputs = c->outputs,
                                       .num_outputs = 2};
    QN_TRY(qni_check_problem_run(run, &problem));
out:
    for (int i = 0; i < MERGE_AREAS; i++)
        if (c->areas[i].owner)
            qni_area_destroy(&c->areas[i]);
    free(c);
    return st;
}

qn_status qni_merge_check(qni_check_run *run) {
    static const int64_t states[] = {0, 1, 2, 7, 70}, dims[] = {64, 128, 33, 256, 7};
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < 5; i++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++)
            if (!qni_check_is_quick(run) || dtype == i % 3)
                st = check_merge(run, (qni_dtype)dtype, states[i], dims[i]);
    return st;
}

// ---- dropout's mask and random numbers

typedef struct dropout_case {
    qni_area r;
    qni_dropout_problem problem;
} dropout_case;

static qn_status reset_dropout(void *context, qn_stream *stream) {
    return qni_case_reset(&((dropout_case *)context)->r, 1, stream);
}

static qn_status compare_dropout(void *context, qn_stream *stream, double *error, char *detail,
                                 size_t room) {
    return qni_case_compare(&((dropout_case *)context)->r, 1, stream, error, detail, room);
}

/** What must stand there, exactly. */
static double expect_random(const qni_dropout_problem *p, const qni_attention_row *row,
                            uint32_t key) {
    const uint32_t word = qni_attention_word(&p->args, row, key);
    return p->what == QK_DROPOUT_WORDS               ? (double)(int32_t)word
           : p->what == QK_DROPOUT_UNIFORM           ? (double)qk_philox_uniform(word)
           : qni_attention_keeps(&p->args, row, key) ? 0.5
                                                     : -0.5;
}

static void expect_dropout(dropout_case *c) {
    const qni_dropout_problem *p = &c->problem;
    for (int64_t i = 0; i < p->batches * p->heads * p->queries; i++) {
        const qni_attention_row row = {.index = (uint32_t)(i / (p->heads * p->queries)),
                                       .head = (uint32_t)(i / p->queries % p->heads),
                                       .query = (uint32_t)(i % p->queries)};
        const int64_t at = row.index * p->r_batch + row.head * p->r_head + row.query * p->r_query;
        for (int64_t j = 0; j < p->keys; j++)
            qni_area_expect(&c->r, at + j, expect_random(p, &row, (uint32_t)j), 0);
    }
}

/** r of [2, 3, 5, keys], `gap` elements between rows, heads inside queries. */
static qn_status check_dropout(qni_check_run *run, uint32_t what, qni_dtype dtype, int64_t keys,
                               int64_t gap, float dropout_p) {
    const int64_t batches = 2, heads = 3, queries = 5, row = keys + gap;
    static const char *const names[] = {"mask", "words", "uniform"};
    dropout_case c = {};
    char text[96];
    qn_status st;
    QN_TRY(qni_area_create(&c.r, "r", qn_stream_device(qni_check_stream(run)), dtype,
                           batches * heads * queries * row, 0));
    c.problem = (qni_dropout_problem){.args = {.num_kv_heads = (uint32_t)heads,
                                               .group = 1,
                                               .dropout_queries = (uint32_t)queries,
                                               .dropout_quads = (uint32_t)((keys + 3) / 4)},
                                      .r = qni_area_device(&c.r),
                                      .r_batch = heads * queries * row,
                                      .r_head = gap ? row : queries * row,
                                      .r_query = gap ? heads * row : row,
                                      .dtype = dtype,
                                      .what = what,
                                      .batches = batches,
                                      .heads = heads,
                                      .queries = queries,
                                      .keys = keys};
    qni_attention_set_dropout(&c.problem.args, dropout_p, 0xFEDCBA9876543210, 0xFFFFFFFF);
    c.problem.args.has_dropout = 1;
    expect_dropout(&c);
    snprintf(text, sizeof text, "[2, 3, 5, %ld] %s %s p=%g%s", (long)keys, names[what],
             qni_dtype_name(dtype), (double)dropout_p, gap ? " strided" : "");
    const DLTensor *const outputs[] = {&c.r.flat};
    const qni_check_problem problem = {.op = &qni_op_attention_dropout,
                                       .text = text,
                                       .problem = &c.problem,
                                       .context = &c,
                                       .reset = reset_dropout,
                                       .compare = compare_dropout,
                                       .outputs = outputs,
                                       .num_outputs = 1};
    QN_TRY(qni_check_problem_run(run, &problem));
out:
    if (c.r.owner)
        qni_area_destroy(&c.r);
    return st;
}

qn_status qni_dropout_check(qni_check_run *run) {
    qn_status st;
    QN_TRY(check_dropout(run, QK_DROPOUT_MASK, QNI_F32, 33, 0, 0.5f));
    QN_TRY(check_dropout(run, QK_DROPOUT_MASK, QNI_F16, 64, 3, 0.1f));
    QN_TRY(check_dropout(run, QK_DROPOUT_MASK, QNI_BF16, 7, 0, 0.9f));
    QN_TRY(check_dropout(run, QK_DROPOUT_WORDS, QNI_I32, 33, 0, 0));
    QN_TRY(check_dropout(run, QK_DROPOUT_WORDS, QNI_I32, 6, 1, 0));
    QN_TRY(check_dropout(run, QK_DROPOUT_UNIFORM, QNI_F32, 33, 2, 0));
out:
    return st;
}
