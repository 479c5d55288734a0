// SPDX-License-Identifier: Apache-2.0
// Checks that a request's bits are equal alone and among other requests; with
// QUERN_BATCH_INVARIANT=1 also that a query's are, alone and among its request's queries; and
// likewise for merging.
#include "attention_case.h"

#include <stdlib.h>

#define PAGED .storage = QNI_CASE_PAGED, .page = 16
#define RAGGED .storage = QNI_CASE_RAGGED
#define HEADS(q, k, d) .qo_heads = q, .kv_heads = k, .dim = d
#define ALL_OF(dtype_name) .dtype = dtype_name, .dtype_kv = dtype_name, .dtype_o = dtype_name
#define QUICK .is_quick = true

/** The rows of a case that other cases have, too: a tensor for each row's o, then a tensor for each
 *  row's lse. */
typedef struct common_rows {
    DLTensor *list;
    const DLTensor **pointers;
    int64_t dim, one;
    int32_t count;
} common_rows;

static void put_row(common_rows *rows, const qni_attention_case *c, int which, int64_t at) {
    const qni_area *a = &c->areas[which];
    DLTensor *t = &rows->list[rows->count];
    *t = (DLTensor){.data = (char *)qni_area_device(a) + at * qni_dtype_bytes(a->dtype),
                    .device = qn_device_id(a->owner),
                    .ndim = 1,
                    .dtype = qni_dl_dtype(a->dtype),
                    .shape = which == QNI_CASE_O ? &rows->dim : &rows->one};
    rows->pointers[rows->count++] = t;
}

/** Collects queries first .. first + count - 1 of request `common`. */
static qn_status make_rows(common_rows *rows, const qni_attention_case *c, int64_t first,
                           int64_t count) {
    const qk_attention_args *g = &c->problem.args;
    const int64_t heads = g->num_kv_heads * g->group, request = c->spec->common;
    const qni_area *schedule = &c->areas[QNI_CASE_SCHEDULE];
    const qk_attention_schedule *plan = schedule->owner ? qni_area_host(schedule) : nullptr;
    const int64_t begin = plan ? qk_attention_requests(plan)[request].qo_begin : 0;
    *rows = (common_rows){.list = calloc((size_t)(2 * count * heads), sizeof *rows->list),
                          .pointers = calloc((size_t)(2 * count * heads), sizeof *rows->pointers),
                          .dim = g->head_dim_vo,
                          .one = 1};
    if (!rows->list || !rows->pointers)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    for (int64_t i = 0; i < count * heads; i++) {
        const int64_t token = begin + first + i / heads, head = i % heads;
        put_row(rows, c, QNI_CASE_O, request * g->o_batch + token * g->o_token + head * g->o_head);
        if (g->lse)
            put_row(rows, c, QNI_CASE_LSE,
                    request * g->lse_batch + token * g->lse_token + head * g->lse_head);
    }
    return QN_OK;
}

static void free_rows(common_rows *rows) {
    free(rows->list);
    free(rows->pointers);
}

/** Adds a batch, of which queries first .. first + count - 1 of the common request are
 *  compared. */
static qn_status add_batch(qni_trial_batches *batches, const qni_attention_spec *spec,
                           int64_t first, int64_t count) {
    qni_attention_case *c = calloc(1, sizeof *c);
    common_rows rows = {};
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(qni_attention_case_create(c, qni_trial_stream(batches->run), spec,
                                         qni_trial_seed(batches->run)));
    QN_TRY_OUT(make_rows(&rows, c, first, count));
    QN_TRY_OUT(qni_trial_batches_add(
        batches, &(qni_trial_problem){.op = batches->op,
                                      .text = c->text,
                                      .problem = &c->problem,
                                      .context = &(qni_areas){c->areas, QNI_CASE_AREAS},
                                      .reset = qni_areas_reset,
                                      .outputs = rows.pointers,
                                      .num_outputs = rows.count,
                                      .call = qni_attention_call(&c->problem)}));
out:
    free_rows(&rows);
    qni_attention_case_destroy(c);
    free(c);
    return st;
}

// clang-format off: a request with what the others are like, a line
/** The common request's keys reach over more than one chunk, the other requests' rows over tiles of
 *  every size; there are more other requests than units. */
static const qni_attention_spec among_others[] = {
    {PAGED, .qo = {1, 70, 3}, .kv = {300, 90, 17}, HEADS(4, 1, 64), ALL_OF(QNI_BF16), .has_lse = true, QUICK},
    {PAGED, .qo = {2, 1, 5}, .kv = {530, 40, 6}, HEADS(4, 2, 128), ALL_OF(QNI_F16), .is_causal = true, .has_sinks = true,
     .has_scales = true},
    {PAGED, .qo = {1, 33, 1}, .kv = {300, 33, 280}, HEADS(4, 2, 64), .dtype = QNI_BF16, .dtype_kv = QNI_E4M3FN,
     .dtype_o = QNI_BF16, .is_causal = true},
    {RAGGED, .qo = {40, 140, 1}, .kv = {100, 150, 30}, HEADS(2, 1, 64), ALL_OF(QNI_BF16), .is_causal = true,
     .has_lse = true, QUICK},
    {RAGGED, .qo = {40, 9, 1}, .kv = {2060, 9, 300}, HEADS(1, 1, 64), ALL_OF(QNI_F16), .has_left = true, .left = 1900},
    {RAGGED, .qo = {9, 70, 1}, .kv = {130, 70, 0}, HEADS(2, 1, 256), ALL_OF(QNI_F16), .is_causal = true},
    {RAGGED, .qo = {3, 30, 1}, .kv = {290, 30, 9}, HEADS(2, 1, 33), ALL_OF(QNI_F32), .has_lse = true, QUICK},
    {RAGGED, .qo = {5, 30, 1}, .kv = {90, 30, 9}, HEADS(2, 2, 64), ALL_OF(QNI_BF16), .cap = 30,
     .chunk = 40, .splits = 2},
    {PAGED, .qo = {30, 90, 1}, .kv = {230, 100, 40}, HEADS(4, 2, 128), ALL_OF(QNI_BF16), .is_causal = true, .has_lse = true},
    {RAGGED, .qo = {50, 300, 1}, .kv = {90, 30, 70}, HEADS(1, 1, 192), .dim_vo = 128, ALL_OF(QNI_BF16), .is_causal = true},
    {PAGED, .qo = {20, 90, 1}, .kv = {230, 100, 40}, HEADS(2, 1, 256), ALL_OF(QNI_F16), .is_causal = true},
    {.storage = QNI_CASE_PADDED, .qo = {3}, .kv = {310, 0, 40}, HEADS(4, 2, 64), ALL_OF(QNI_F16), .is_causal = true},
    {.storage = QNI_CASE_DENSE, .qo = {1}, .kv = {300}, HEADS(4, 1, 64), ALL_OF(QNI_BF16), .has_lse = true, QUICK},
    {.storage = QNI_CASE_DENSE, .qo = {33}, .kv = {70}, HEADS(2, 2, 128), ALL_OF(QNI_F16), .is_causal = true},
};

/** Cases for a query alone, in a chunk and in its prompt. */
static const qni_attention_spec among_queries[] = {
    {PAGED, HEADS(4, 1, 64), ALL_OF(QNI_BF16), .has_lse = true, QUICK},
    {PAGED, HEADS(4, 1, 128), ALL_OF(QNI_F16), .has_sinks = true, .has_scales = true, .has_left = true, .left = 270},
    {PAGED, HEADS(2, 1, 64), .dtype = QNI_BF16, .dtype_kv = QNI_E4M3FN, .dtype_o = QNI_BF16, QUICK},
    {RAGGED, HEADS(2, 2, 72), ALL_OF(QNI_F16), .has_left = true, .left = 100, .has_lse = true, QUICK},
    {RAGGED, HEADS(2, 1, 40), ALL_OF(QNI_F32), .has_lse = true, QUICK},
    {RAGGED, HEADS(2, 1, 256), ALL_OF(QNI_BF16), .pos = QN_POS_ALIBI},
    {.storage = QNI_CASE_DENSE, HEADS(4, 2, 128), ALL_OF(QNI_BF16), .has_lse = true, QUICK},
    {.storage = QNI_CASE_DENSE, HEADS(2, 1, 64), ALL_OF(QNI_F16), .cap = 20},
};
// clang-format on

static qn_status try_among_others(qni_trial_run *run, const qni_attention_spec *base) {
    static const int32_t counts[] = {1, 9, 40};
    qni_trial_batches batches = {.run = run, .op = &qni_op_attention};
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof counts / sizeof *counts; i++) {
        qni_attention_spec spec = *base;
        spec.batches = counts[i], spec.common = counts[i] / 2;
        spec.units = 8, spec.is_bits_alone = true;
        st = add_batch(&batches, &spec, 0, spec.qo[0]);
    }
    return st;
}

static qn_status try_among_queries(qni_trial_run *run, const qni_attention_spec *base) {
    static const struct {
        int32_t qo, kv, query;
    } parts[] = {{1, 301, 0}, {9, 305, 4}, {70, 310, 60}, {310, 310, 300}};
    qni_trial_batches batches = {.run = run, .op = &qni_op_attention};
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof parts / sizeof *parts; i++) {
        qni_attention_spec spec = *base;
        spec.batches = 1, spec.qo[0] = parts[i].qo, spec.kv[0] = parts[i].kv;
        spec.is_causal = true, spec.is_bits_alone = true;
        st = add_batch(&batches, &spec, parts[i].query, 1);
    }
    return st;
}

qn_status qni_attention_try_batches(qni_trial_run *run) {
    const bool is_quick = qni_trial_is_quick(run);
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof among_others / sizeof *among_others; i++)
        if (!is_quick || among_others[i].is_quick)
            st = try_among_others(run, &among_others[i]);
    for (size_t i = 0; st == QN_OK && qni_env_get()->batch_invariant &&
                       i < sizeof among_queries / sizeof *among_queries;
         i++)
        if (!is_quick || among_queries[i].is_quick)
            st = try_among_queries(run, &among_queries[i]);
    return st;
}

// ---- merging

/** Adds the states of one query among those of other queries. */
static qn_status add_merge(qni_trial_batches *batches, const qni_merge_spec *spec) {
    qni_merge_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(qni_merge_case_create(c, qni_trial_stream(batches->run), spec,
                                     qni_trial_seed(batches->run)));
    int64_t shapes[2] = {spec->heads * spec->dim, spec->heads};
    DLTensor rows[2];
    for (int i = 0; i < 2; i++) {
        const qni_area *a = i ? c->out_s : c->out_v;
        const int64_t at = (spec->common - 1) * shapes[i] * qni_dtype_bytes(a->dtype);
        rows[i] = (DLTensor){.data = (char *)qni_area_device(a) + at,
                             .device = qn_device_id(a->owner),
                             .ndim = 1,
                             .dtype = qni_dl_dtype(a->dtype),
                             .shape = &shapes[i]};
    }
    QN_TRY_OUT(qni_trial_batches_add(
        batches, &(qni_trial_problem){.op = batches->op,
                                      .text = c->text,
                                      .problem = &c->problem,
                                      .context = &(qni_areas){c->areas, QNI_MERGE_AREAS},
                                      .reset = qni_areas_reset,
                                      .outputs = (const DLTensor *[]){&rows[0], &rows[1]},
                                      .num_outputs = 2}));
out:
    qni_merge_case_destroy(c);
    free(c);
    return st;
}

qn_status qni_merge_try_batches(qni_trial_run *run) {
    static const int64_t counts[] = {1, 9, 40};
    qn_status st = QN_OK;
    for (int is_pair = 0; is_pair < 2; is_pair++) {
        qni_trial_batches batches = {.run = run, .op = &qni_op_merge_states};
        for (size_t i = 0; st == QN_OK && i < sizeof counts / sizeof *counts; i++)
            st = add_merge(&batches, &(qni_merge_spec){.dtype = QNI_F32,
                                                       .n = counts[i],
                                                       .states = 5,
                                                       .heads = 3,
                                                       .dim = 72,
                                                       .is_pair = is_pair,
                                                       .common = 1 + counts[i] / 2});
    }
    return st;
}
