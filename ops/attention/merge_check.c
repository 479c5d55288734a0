// SPDX-License-Identifier: Apache-2.0
// The check problems of merging and of dropout's mask.
#include "attention_case.h"

#include <stdlib.h>

// ---- merging

/** Where state i lies: in which of the two tensors, and which state of that tensor it is. */
typedef struct place {
    int pair;
    int64_t v, s;
} place;

static place find_state(const qni_merge_problem *p, int64_t n, int64_t i, int64_t head) {
    const int pair = p->v[1] ? (int)i : 0;
    const int64_t state = p->v[1] ? 0 : i;
    return (place){pair, n * p->v_token[pair] + state * p->v_state + head * p->v_head[pair],
                   n * p->s_token[pair] + state * p->s_state + head * p->s_head[pair]};
}

static float *host_lse(qni_merge_case *c, const place *at) {
    return (float *)qni_area_host(&c->areas[QNI_MERGE_S + at->pair]) + at->s;
}

enum { PLAIN = 3 };
/** Returns the lse of a state. Query 0 has no state at all, query 1 only one, query 2 equal
 *  ones. */
static double state_lse(int64_t n, int64_t i, uint64_t *random) {
    const double s = 8 * qni_random_normal(random);
    return n == 0 || (n == 1 && i > 0) ? -HUGE_VAL : n == 2 ? 3 : s;
}

static void fill_merge(qni_merge_case *c, const qni_merge_spec *spec, uint64_t seed) {
    const qni_merge_problem *p = &c->problem;
    uint64_t random = seed;
    for (int64_t row = 0; row < p->n * p->states * p->heads; row++) {
        const int64_t n = row / (p->states * p->heads), i = row / p->heads % p->states;
        const place at = find_state(p, n, i, row % p->heads);
        const bool is_common = spec->common > 0 && n == spec->common - 1;
        if (row % (p->states * p->heads) == 0)
            random = seed + ((uint64_t)(is_common ? 0 : n + 1) << 40);
        const double s = state_lse(is_common ? PLAIN : n, i, &random);
        *host_lse(c, &at) = (float)s;
        for (int64_t d = 0; d < p->head_dim && !isinf(s); d++) // else v stays NaN
            qni_put(p->dtype, qni_area_host(&c->areas[QNI_MERGE_V + at.pair]), at.v + d,
                    qni_random_normal(&random));
    }
}

/** What the states of a query and head weigh. unit 1 means natural logarithms. */
typedef struct weights {
    double max, sum, unit;
    double spread; // of the exponents
} weights;

static weights weigh(qni_merge_case *c, int64_t n, int64_t head) {
    const qni_merge_problem *p = &c->problem;
    weights w = {.max = -HUGE_VAL, .unit = log(2) / (double)p->lse_unit};
    for (int64_t i = 0; i < p->states; i++) {
        const place at = find_state(p, n, i, head);
        w.max = fmax(w.max, (double)*host_lse(c, &at));
    }
    for (int64_t i = 0; w.max > -HUGE_VAL && i < p->states; i++) {
        const place at = find_state(p, n, i, head);
        const double x = (double)*host_lse(c, &at);
        w.sum += exp((x - w.max) * w.unit);
        w.spread = isinf(x) ? w.spread : fmax(w.spread, fabs(w.max) + fabs(x));
    }
    return w;
}

/** Expects the merge of a query's states. Weights are base^(s - max); each is off by 4u + 2u |s -
 *  max|, and their sum likewise. */
static void expect_merge(qni_merge_case *c, int64_t n, int64_t head) {
    const qni_merge_problem *p = &c->problem;
    const weights w = weigh(c, n, head);
    const double u = 0x1p-24, off = u * ((double)p->states + 16 + 8 * w.spread);
    for (int64_t d = 0; d < p->head_dim; d++) {
        double o = 0, magnitude = 0;
        for (int64_t i = 0; w.sum > 0 && i < p->states; i++) {
            const place at = find_state(p, n, i, head);
            const double x = (double)*host_lse(c, &at), weight = exp((x - w.max) * w.unit) / w.sum;
            const double v =
                isinf(x)
                    ? 0
                    : qni_get(p->dtype, qni_area_host(&c->areas[QNI_MERGE_V + at.pair]), at.v + d);
            o += weight * v;
            magnitude += weight * fabs(v);
        }
        qni_area_expect(c->out_v, n * p->o_token + head * p->o_head + d, o, magnitude * off);
    }
    qni_area_expect(c->out_s, n * p->lse_token + head * p->lse_head,
                    w.sum > 0 ? w.max + log(w.sum) / w.unit : -HUGE_VAL, off);
}

static qn_status make_states(qni_merge_case *c, qn_device *device, const qni_merge_spec *s) {
    static const char *const names[] = {"v_a", "v_b", "s_a", "s_b"};
    const int64_t states = s->is_pair ? 1 : s->states, rows = s->n * states * s->heads;
    qni_merge_problem *p = &c->problem;
    for (int i = 0; i <= s->is_pair; i++) {
        qni_area *v = &c->areas[QNI_MERGE_V + i], *lse = &c->areas[QNI_MERGE_S + i];
        QN_TRY(qni_area_create(v, names[i], device, s->dtype, rows * s->dim, 0));
        QN_TRY(qni_area_create(lse, names[2 + i], device, QNI_F32, rows, 0));
        p->v[i] = qni_area_device(v), p->s[i] = qni_area_device(lse);
        p->v_token[i] = states * s->heads * s->dim, p->v_head[i] = s->dim;
        p->s_token[i] = states * s->heads, p->s_head[i] = 1;
    }
    p->v_state = s->heads * s->dim, p->s_state = s->heads;
    return QN_OK;
}

/** Makes the results; in place they are the first state's tensors. */
static qn_status make_results(qni_merge_case *c, qn_device *device, const qni_merge_spec *s) {
    const int64_t rows = s->n * s->heads;
    qni_merge_problem *p = &c->problem;
    c->out_v = &c->areas[s->is_in_place ? QNI_MERGE_V : QNI_MERGE_OUT_V];
    c->out_s = &c->areas[s->is_in_place ? QNI_MERGE_S : QNI_MERGE_OUT_S];
    if (!s->is_in_place) {
        QN_TRY(qni_area_create(c->out_v, "v", device, s->dtype, rows * s->dim, 0));
        QN_TRY(qni_area_create(c->out_s, "s", device, QNI_F32, rows, 0));
    }
    p->o = qni_area_device(c->out_v), p->lse = qni_area_device(c->out_s);
    p->o_token = s->heads * s->dim, p->o_head = s->dim;
    p->lse_token = s->heads, p->lse_head = 1;
    c->outputs[0] = &c->out_v->flat, c->outputs[1] = &c->out_s->flat;
    return QN_OK;
}

qn_status qni_merge_case_create(qni_merge_case *c, qn_stream *stream, const qni_merge_spec *spec,
                                uint64_t seed) {
    qn_device *device = qn_stream_device(stream);
    *c = (qni_merge_case){.problem = {.dtype = spec->dtype,
                                      .n = spec->n,
                                      .heads = spec->heads,
                                      .head_dim = spec->dim,
                                      .states = spec->is_pair ? 2 : spec->states,
                                      .lse_unit = spec->is_natural ? 0x1.62E43p-1f : 1.0f}};
    snprintf(c->text, sizeof c->text, "n=%ld states=%ld heads=%ld d=%ld %s%s%s", (long)spec->n,
             (long)c->problem.states, (long)spec->heads, (long)spec->dim,
             qni_dtype_name(spec->dtype), spec->is_pair ? " pair" : "",
             spec->is_in_place ? " in place" : "");
    QN_TRY(make_states(c, device, spec));
    QN_TRY(make_results(c, device, spec));
    fill_merge(c, spec, seed);
    for (int64_t i = 0; i < spec->n * spec->heads; i++)
        expect_merge(c, i / spec->heads, i % spec->heads);
    return QN_OK;
}

void qni_merge_case_destroy(qni_merge_case *c) {
    qni_areas_destroy(c->areas, QNI_MERGE_AREAS);
    *c = (qni_merge_case){};
}

static qn_status try_merge(qni_trial_run *run, const qni_merge_spec *spec) {
    qni_merge_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(qni_merge_case_create(c, qni_trial_stream(run), spec, qni_trial_seed(run)));
    QN_TRY_OUT(
        qni_areas_try(run, &qni_op_merge_states, &c->problem, c->text, c->areas, QNI_MERGE_AREAS));
out:
    qni_merge_case_destroy(c);
    free(c);
    return st;
}

qn_status qni_merge_try(qni_trial_run *run) {
    static const int64_t states[] = {0, 1, 2, 7, 70}, dims[] = {64, 128, 33, 256, 7};
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < 5; i++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++)
            if (!qni_trial_is_quick(run) || dtype == i % 3)
                st = try_merge(run, &(qni_merge_spec){.dtype = (qni_dtype)dtype,
                                                      .n = 5,
                                                      .states = states[i],
                                                      .heads = 3,
                                                      .dim = dims[i],
                                                      .is_natural = i % 2});
    for (int i = 0; st == QN_OK && i < 2; i++)
        st = try_merge(run, &(qni_merge_spec){.dtype = QNI_BF16,
                                              .n = 5,
                                              .heads = 3,
                                              .dim = 64,
                                              .is_pair = true,
                                              .is_in_place = i});
    return st == QN_OK ? qni_merge_try_batches(run) : st;
}

// ---- dropout's mask and random numbers

typedef struct dropout_case {
    qni_area r;
    qni_dropout_problem problem;
} dropout_case;

/** Returns what r must hold, exactly. */
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

/** Tries dropout on r of [2, 3, 5, keys], with `gap` elements between rows, and heads inside
 *  queries. */
static qn_status try_dropout(qni_trial_run *run, uint32_t what, qni_dtype dtype, int64_t keys,
                             int64_t gap, float dropout_p) {
    const int64_t batches = 2, heads = 3, queries = 5, row = keys + gap;
    static const char *const names[] = {"mask", "words", "uniform"};
    dropout_case c = {};
    char text[96];
    qn_status st;
    QN_TRY_OUT(qni_area_create(&c.r, "r", qn_stream_device(qni_trial_stream(run)), dtype,
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
    QN_TRY_OUT(qni_areas_try(run, &qni_op_attention_dropout, &c.problem, text, &c.r, 1));
out:
    qni_areas_destroy(&c.r, 1);
    return st;
}

qn_status qni_dropout_try(qni_trial_run *run) {
    QN_TRY(try_dropout(run, QK_DROPOUT_MASK, QNI_F32, 33, 0, 0.5f));
    QN_TRY(try_dropout(run, QK_DROPOUT_MASK, QNI_F16, 64, 3, 0.1f));
    QN_TRY(try_dropout(run, QK_DROPOUT_MASK, QNI_BF16, 7, 0, 0.9f));
    QN_TRY(try_dropout(run, QK_DROPOUT_WORDS, QNI_I32, 33, 0, 0));
    QN_TRY(try_dropout(run, QK_DROPOUT_WORDS, QNI_I32, 6, 1, 0));
    return try_dropout(run, QK_DROPOUT_UNIFORM, QNI_F32, 33, 2, 0);
}
