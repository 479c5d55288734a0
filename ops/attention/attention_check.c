// SPDX-License-Identifier: Apache-2.0
// The check problems of the attention family: every storage, mask and dtype; the edges of the published vectors.
#include "attention_case.h"

#include <stdlib.h>
#include <string.h>

#define DENSE .storage = QNI_CASE_DENSE
#define RAGGED .storage = QNI_CASE_RAGGED
#define PAGED .storage = QNI_CASE_PAGED
#define PADDED .storage = QNI_CASE_PADDED
#define HEADS(q, k, d) .qo_heads = q, .kv_heads = k, .dim = d
#define ALL_OF(dtype_name) .dtype = dtype_name, .dtype_kv = dtype_name, .dtype_o = dtype_name
#define TYPES(a, b, c) .dtype = a, .dtype_kv = b, .dtype_o = c
#define BF16 ALL_OF(QNI_BF16)
#define F16 ALL_OF(QNI_F16)
#define QUICK .is_quick = true

static const qni_attention_spec specs[] = {
    // Dense: head dims, layouts, tiles and their edges.
    {DENSE, 2, {17}, {33}, HEADS(2, 2, 64), BF16, .has_lse = true, QUICK},
    {DENSE, 1, {64}, {64}, HEADS(4, 2, 72), F16, .is_hnd = true, .is_causal = true},
    {DENSE, 1, {65}, {65}, HEADS(1, 1, 80), BF16, .is_causal = true, .has_lse = true},
    {DENSE, 1, {40}, {63}, HEADS(2, 1, 96), F16, .is_swapped = true, QUICK},
    {DENSE, 1, {31}, {70}, HEADS(3, 3, 112), BF16, .is_hnd = true, .is_swapped = true},
    {DENSE, 1, {130}, {130}, HEADS(2, 1, 128), BF16, .is_causal = true, .has_lse = true, QUICK},
    {DENSE, 1, {129}, {200}, HEADS(2, 2, 128), F16, .is_hnd = true, .is_causal = true},
    {DENSE, 1, {20}, {40}, HEADS(2, 2, 160), BF16, .gap = 8},
    {DENSE, 1, {33}, {47}, HEADS(2, 1, 256), F16, .is_causal = true, QUICK},
    {DENSE,
     1,
     {34},
     {50},
     HEADS(2, 2, 192),
     .dim_vo = 128,
     BF16,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {DENSE,
     1,
     {5},
     {9},
     HEADS(2, 1, 33),
     ALL_OF(QNI_F32),
     .gap = 3,
     .offset = 1,
     .has_lse = true,
     QUICK},
    {DENSE, 1, {3}, {5}, HEADS(1, 1, 1), ALL_OF(QNI_F32)},
    {DENSE, 1, {4}, {6}, HEADS(1, 1, 512), BF16, .dim_vo = 7},
    {DENSE, 2, {40}, {40}, HEADS(2, 2, 64), ALL_OF(QNI_F32), .is_causal = true, .has_lse = true},
    {DENSE, 1, {260}, {70}, HEADS(2, 2, 64), BF16, .is_hnd = true, .has_lse = true},
    {DENSE, 1, {300}, {300}, HEADS(1, 1, 64), F16, .is_causal = true, .is_top_left = true},
    // Types.
    {DENSE, 1, {6}, {30}, HEADS(4, 2, 64), TYPES(QNI_F32, QNI_BF16, QNI_F16), .has_scales = true},
    {DENSE,
     1,
     {7},
     {66},
     HEADS(4, 1, 128),
     TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16),
     .has_scales = true,
     QUICK},
    {DENSE,
     1,
     {7},
     {66},
     HEADS(4, 1, 128),
     TYPES(QNI_F16, QNI_E4M3FNUZ, QNI_F32),
     .has_scales = true,
     QUICK},
    {DENSE, 1, {7}, {40}, HEADS(2, 1, 64), TYPES(QNI_F16, QNI_E5M2, QNI_F16)},
    {DENSE,
     1,
     {7},
     {40},
     HEADS(2, 1, 64),
     TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_BF16),
     .has_scales = true},
    {DENSE,
     1,
     {7},
     {40},
     HEADS(2, 1, 80),
     TYPES(QNI_E5M2FNUZ, QNI_E5M2FNUZ, QNI_F16),
     .is_causal = true},
    // Ragged, padded.
    {RAGGED,
     3,
     {5, 0, 70},
     {9, 4, 80},
     HEADS(4, 2, 64),
     BF16,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {RAGGED, 3, {1, 30, 3}, {100, 30, 0}, HEADS(2, 2, 128), F16, .is_hnd = true, .has_lse = true},
    {RAGGED, 2, {33, 8}, {20, 8}, HEADS(2, 1, 192), .dim_vo = 128, BF16, .is_causal = true},
    {PADDED, 3, {4}, {33, 0, 20}, HEADS(4, 4, 64), BF16, .is_causal = true, .has_lse = true, QUICK},
    {PADDED, 2, {1}, {70, 5}, HEADS(8, 2, 128), F16, .is_hnd = true},
    // Paged: page sizes, layouts, decode and append; NaNs in all unused slots, a shared page.
    {PAGED, 3, {1, 1, 1}, {70, 33, 1}, HEADS(8, 2, 128), BF16, .page = 16, .has_lse = true, QUICK},
    {PAGED, 3, {1, 1, 1}, {21, 0, 9}, HEADS(4, 4, 64), F16, .page = 1, .has_lse = true},
    {PAGED,
     3,
     {3, 17, 0},
     {23, 40, 10},
     HEADS(4, 1, 64),
     BF16,
     .page = 5,
     .is_hnd = true,
     .is_causal = true,
     QUICK},
    {PAGED, 2, {9, 1}, {200, 130}, HEADS(2, 1, 128), BF16, .page = 1024, .is_causal = true},
    {PAGED,
     2,
     {1, 2},
     {300, 77},
     HEADS(8, 1, 128),
     TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16),
     .page = 16,
     .is_hnd = true,
     .has_scales = true,
     .has_lse = true},
    {PAGED,
     2,
     {1, 2},
     {70, 77},
     HEADS(4, 1, 256),
     TYPES(QNI_F16, QNI_E4M3FN, QNI_F16),
     .page = 8,
     .gap = 16},
    // Split keys: fixed chunks, shared by fewer work items, with sinks.
    {PAGED,
     2,
     {1, 3},
     {150, 40},
     HEADS(4, 2, 64),
     BF16,
     .page = 16,
     .chunk = 32,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {PAGED,
     2,
     {1, 3},
     {150, 40},
     HEADS(4, 2, 64),
     BF16,
     .page = 16,
     .chunk = 32,
     .splits = 2,
     .has_sinks = true,
     .has_lse = true},
    {DENSE, 1, {2}, {600}, HEADS(2, 1, 64), F16, .has_lse = true, .is_natural = true, QUICK},
    {DENSE,
     1,
     {40},
     {90},
     HEADS(2, 1, 64),
     BF16,
     .chunk = 33,
     .is_causal = true,
     .has_scales = true,
     .has_lse = true},
    {DENSE,
     1,
     {3},
     {100},
     HEADS(2, 2, 64),
     BF16,
     .chunk = 10,
     .splits = 7,
     .has_left = true,
     .left = 12,
     .has_lse = true},
    // Masks.
    {DENSE,
     1,
     {20},
     {50},
     HEADS(2, 2, 64),
     BF16,
     .has_left = true,
     .left = 0,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {DENSE,
     1,
     {20},
     {50},
     HEADS(2, 2, 64),
     BF16,
     .has_left = true,
     .left = 7,
     .is_causal = true,
     QUICK},
    {DENSE, 1, {150}, {150}, HEADS(1, 1, 64), F16, .has_left = true, .left = 20, .is_causal = true},
    {DENSE,
     1,
     {30},
     {40},
     HEADS(1, 1, 64),
     F16,
     .has_left = true,
     .left = 1000,
     .has_right = true,
     .right = 3},
    {DENSE,
     1,
     {50},
     {20},
     HEADS(2, 1, 64),
     BF16,
     .is_causal = true,
     .is_top_left = true,
     .has_lse = true},
    {DENSE, 1, {20}, {50}, HEADS(2, 1, 64), BF16, .is_causal = true, .is_top_left = true, QUICK},
    {DENSE,
     1,
     {80},
     {30},
     HEADS(2, 1, 64),
     BF16,
     .is_causal = true,
     .has_lse = true,
     QUICK}, // E9: rows without keys
    {RAGGED,
     2,
     {9, 20},
     {21, 30},
     HEADS(2, 1, 64),
     BF16,
     .has_custom_mask = true,
     .has_lse = true,
     QUICK},
    {DENSE,
     1,
     {9},
     {21},
     HEADS(2, 1, 64),
     BF16,
     .has_custom_mask = true,
     .is_mask_zero = true,
     .is_causal = true,
     .has_lse = true},
    {DENSE,
     2,
     {12},
     {70},
     HEADS(2, 1, 64),
     BF16,
     .mask_kind = QK_MASK_BOOL,
     .has_lse = true,
     QUICK},
    {DENSE,
     2,
     {12},
     {70},
     HEADS(2, 1, 64),
     BF16,
     .mask_kind = QK_MASK_BOOL,
     .is_mask_broadcast = true},
    {DENSE,
     2,
     {12},
     {33},
     HEADS(2, 1, 64),
     BF16,
     .mask_kind = QK_MASK_F32,
     .is_mask_broadcast = true,
     .is_hnd = true,
     QUICK},
    {DENSE, 1, {12}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_F16, .has_lse = true},
    {DENSE, 1, {12}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_BF16},
    {DENSE,
     1,
     {5},
     {33},
     HEADS(2, 2, 64),
     F16,
     .mask_kind = QK_MASK_F32,
     .is_mask_zero = true,
     .has_lse = true},
    // Scores.
    {DENSE,
     1,
     {12},
     {40},
     HEADS(12, 4, 64),
     BF16,
     .pos = QN_POS_ALIBI,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {RAGGED,
     2,
     {7, 3},
     {40, 9},
     HEADS(2, 1, 64),
     F16,
     .pos = QN_POS_ROPE_LLAMA,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {PAGED, 2, {1, 3}, {40, 9}, HEADS(2, 1, 128), BF16, .page = 4, .pos = QN_POS_ROPE_LLAMA},
    {DENSE,
     1,
     {12},
     {40},
     HEADS(2, 1, 64),
     BF16,
     .cap = 30,
     .is_causal = true,
     .has_lse = true,
     QUICK},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), BF16, .cap = 1e-3f},
    {DENSE,
     1,
     {12},
     {40},
     HEADS(4, 2, 64),
     BF16,
     .has_sinks = true,
     .has_lse = true,
     .is_natural = true,
     QUICK},
    {DENSE,
     1,
     {30},
     {10},
     HEADS(4, 2, 64),
     BF16,
     .has_sinks = true,
     .is_causal = true,
     .has_lse = true},
    {DENSE, 2, {12}, {43}, HEADS(4, 2, 64), BF16, .dropout = 0.5f, .has_lse = true, QUICK},
    {RAGGED, 2, {7, 3}, {40, 9}, HEADS(2, 1, 64), F16, .dropout = 0.1f, .is_causal = true},
    {DENSE,
     1,
     {1},
     {1},
     HEADS(2, 1, 128),
     BF16,
     .values = QNI_CASE_LOW,
     .has_lse = true,
     QUICK}, // E10
    {DENSE,
     1,
     {8},
     {8},
     HEADS(2, 1, 128),
     F16,
     .values = QNI_CASE_LOW,
     .has_left = true,
     .is_causal = true,
     .has_lse = true},
    {DENSE, 1, {30}, {70}, HEADS(2, 1, 64), BF16, .values = QNI_CASE_PEAKS, .has_lse = true, QUICK},
    // Maxima that rise far from one tile of keys to the next.
    {DENSE, 1, {9}, {500}, HEADS(1, 1, 64), BF16, .values = QNI_CASE_PEAKS, .has_lse = true, QUICK},
    {DENSE, 1, {9}, {250}, HEADS(1, 1, 128), F16, .values = QNI_CASE_PEAKS, .has_lse = true},
};

static qn_status reset_areas(qni_area *areas, int count, qn_stream *stream) {
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < count; i++)
        if (areas[i].owner)
            st = qni_area_reset(&areas[i], stream);
    return st;
}

static qn_status compare_areas(qni_area *areas, int count, qn_stream *stream, double *error,
                               char *detail, size_t room) {
    qn_status st = QN_OK;
    *error = 0;
    *detail = 0;
    for (int i = 0; st == QN_OK && i < count; i++)
        if (areas[i].owner)
            st = qni_area_compare(&areas[i], stream, error, detail, room);
    return st;
}

static qn_status reset_case(void *context, qn_stream *stream) {
    return reset_areas(((qni_attention_case *)context)->areas, QNI_CASE_AREAS, stream);
}

static qn_status compare_case(void *context, qn_stream *stream, double *error, char *detail,
                              size_t room) {
    return compare_areas(((qni_attention_case *)context)->areas, QNI_CASE_AREAS, stream, error,
                         detail, room);
}

static qn_status check_spec(qni_check_run *run, const qni_attention_spec *spec) {
    qni_attention_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY(qni_attention_case_create(c, qni_check_stream(run), spec,
                                     qni_check_seed(run) + (uint64_t)(spec - specs)));
    const qni_check_problem problem = {.op = &qni_op_attention,
                                       .text = c->text,
                                       .problem = &c->problem,
                                       .context = c,
                                       .reset = reset_case,
                                       .compare = compare_case,
                                       .outputs = c->outputs,
                                       .num_outputs = 1 + spec->has_lse};
    QN_TRY(qni_check_problem_run(run, &problem));
out:
    qni_attention_case_destroy(c);
    free(c);
    return st;
}

// ---- merging

enum { IN_V, IN_S, OUT_V, OUT_S, MERGE_AREAS };

typedef struct merge_case {
    qni_area areas[MERGE_AREAS];
    qni_merge_problem problem;
    const DLTensor *outputs[2];
    char text[96];
} merge_case;

static qn_status reset_merge(void *context, qn_stream *stream) {
    return reset_areas(((merge_case *)context)->areas, MERGE_AREAS, stream);
}

static qn_status compare_merge(void *context, qn_stream *stream, double *error, char *detail,
                               size_t room) {
    return compare_areas(((merge_case *)context)->areas, MERGE_AREAS, stream, error, detail, room);
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

static qn_status check_merges(qni_check_run *run) {
    static const int64_t states[] = {0, 1, 2, 7, 70}, dims[] = {64, 128, 33, 256, 7};
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < 5; i++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++)
            if (!qni_check_is_quick(run) || dtype == i % 3)
                st = check_merge(run, (qni_dtype)dtype, states[i], dims[i]);
    return st;
}

// ---- dropout's mask

typedef struct dropout_case {
    qni_area r;
    qni_dropout_problem problem;
} dropout_case;

static qn_status reset_dropout(void *context, qn_stream *stream) {
    return reset_areas(&((dropout_case *)context)->r, 1, stream);
}

static qn_status compare_dropout(void *context, qn_stream *stream, double *error, char *detail,
                                 size_t room) {
    return compare_areas(&((dropout_case *)context)->r, 1, stream, error, detail, room);
}

static qn_status check_dropout(qni_check_run *run, qni_dtype dtype, int64_t keys, float dropout_p) {
    const int64_t batches = 2, heads = 3, queries = 5, rows = batches * heads * queries;
    dropout_case c = {};
    char text[96];
    qn_status st;
    QN_TRY(
        qni_area_create(&c.r, "r", qn_stream_device(qni_check_stream(run)), dtype, rows * keys, 0));
    c.problem = (qni_dropout_problem){.args = {.num_kv_heads = (uint32_t)heads,
                                               .group = 1,
                                               .dropout_queries = (uint32_t)queries,
                                               .dropout_quads = (uint32_t)((keys + 3) / 4)},
                                      .r = qni_area_device(&c.r),
                                      .dtype = dtype,
                                      .batches = batches,
                                      .heads = heads,
                                      .queries = queries,
                                      .keys = keys};
    qni_attention_set_dropout(&c.problem.args, dropout_p, 0xFEDCBA9876543210, 0xFFFFFFFF);
    c.problem.args.has_dropout = 1;
    for (int64_t i = 0; i < rows; i++) {
        const qni_attention_row row = {.index = (uint32_t)(i / (heads * queries)),
                                       .head = (uint32_t)(i / queries % heads),
                                       .query = (uint32_t)(i % queries)};
        for (int64_t j = 0; j < keys; j++)
            qni_area_expect(&c.r, i * keys + j,
                            qni_attention_keeps(&c.problem.args, &row, (uint32_t)j) ? 0.5 : -0.5,
                            0);
    }
    snprintf(text, sizeof text, "[2, 3, 5, %ld] %s p=%g", (long)keys, qni_dtype_name(dtype),
             (double)dropout_p);
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

static qn_status check_dropouts(qni_check_run *run) {
    qn_status st;
    QN_TRY(check_dropout(run, QNI_F32, 33, 0.5f));
    QN_TRY(check_dropout(run, QNI_F16, 64, 0.1f));
    QN_TRY(check_dropout(run, QNI_BF16, 7, 0.9f));
out:
    return st;
}

qn_status qni_attention_check(qni_check_run *run, const qni_op *op) {
    qn_status st = QN_OK;
    if (op == &qni_op_merge_states)
        return check_merges(run);
    if (op == &qni_op_attention_dropout)
        return check_dropouts(run);
    for (size_t i = 0; st == QN_OK && i < sizeof specs / sizeof *specs; i++)
        if (!qni_check_is_quick(run) || specs[i].is_quick)
            st = check_spec(run, &specs[i]);
    return st;
}
