// SPDX-License-Identifier: Apache-2.0
// The check problems of attention's backward pass: cases of the forward pass, whose results become
// inputs, with gradients beside them.
#include "attention_backward_check.h"

#include "attention_backward.h"

#include <stdlib.h>

#define HEADS(q, k, d) .qo_heads = q, .kv_heads = k, .dim = d
#define TYPES(a, b, c) .dtype = a, .dtype_kv = b, .dtype_o = c, .has_lse = true
#define ALL_OF(dtype_name) TYPES(dtype_name, dtype_name, dtype_name)
#define BF16 ALL_OF(QNI_BF16)
#define F16 ALL_OF(QNI_F16)
#define F32 ALL_OF(QNI_F32)
#define QUICK .is_quick = true
#define DENSE QNI_CASE_DENSE
#define RAGGED QNI_CASE_RAGGED
#define PADDED QNI_CASE_PADDED

// clang-format off: a case a line
static const qni_attention_spec specs[] = {
    // Storage, heads, head dims, types.
    {DENSE, 1, {7}, {9}, HEADS(2, 1, 64), BF16, QUICK},
    {DENSE, 2, {70}, {70}, HEADS(4, 2, 128), BF16, .is_causal = true, QUICK},
    {DENSE, 1, {130}, {67}, HEADS(3, 1, 64), F16, .is_hnd = true, QUICK},
    {DENSE, 2, {33}, {200}, HEADS(2, 2, 33), F32, .gap = 3, .offset = 1, .block_gap = 5, .is_natural = true, QUICK},
    {DENSE, 1, {40}, {40}, HEADS(6, 2, 256), BF16, .is_causal = true},
    {DENSE, 1, {20}, {37}, HEADS(2, 1, 512), F16, .is_swapped = true, .is_hnd = true},
    {DENSE, 1, {20}, {37}, HEADS(2, 1, 511), F32, .offset = 1},
    {DENSE, 1, {5}, {6}, HEADS(2, 1, 1), F32},
    {DENSE, 1, {66}, {70}, HEADS(2, 1, 192), .dim_vo = 128, BF16, .is_causal = true, QUICK},
    {DENSE, 1, {20}, {31}, HEADS(2, 1, 40), .dim_vo = 300, F32},
    {DENSE, 1, {20}, {31}, HEADS(2, 1, 72), TYPES(QNI_F32, QNI_BF16, QNI_F16), QUICK},
    {DENSE, 1, {20}, {31}, HEADS(2, 2, 80), TYPES(QNI_BF16, QNI_F16, QNI_F32)},
    {RAGGED, 3, {70, 9, 1}, {70, 100, 3}, HEADS(4, 2, 64), BF16, .is_causal = true, QUICK},
    {RAGGED, 3, {30, 0, 20}, {9, 10, 0}, HEADS(2, 1, 64), F16, .is_causal = true, QUICK},
    {RAGGED, 2, {65, 130}, {129, 64}, HEADS(4, 1, 128), BF16, .is_hnd = true},
    {DENSE, 1, {40}, {70}, HEADS(2, 1, 128), F16, .cap = 3, .is_causal = true, QUICK},
    {RAGGED, 2, {33, 70}, {100, 60}, HEADS(4, 2, 128), .dim_vo = 72, BF16, .has_sinks = true, .dropout = 0.25f, QUICK},
    {PADDED, 3, {20}, {70, 9, 33}, HEADS(2, 1, 64), BF16, .is_causal = true, QUICK},
    {DENSE, 1, {1}, {300}, HEADS(8, 1, 64), BF16},
    {DENSE, 1, {300}, {1}, HEADS(2, 1, 64), BF16},
    // Less than a tile, with more NaNs than a tile has rows behind each request.
    {DENSE, 2, {21}, {21}, HEADS(2, 2, 64), BF16, .block_gap = 128 * 128, QUICK},
    {DENSE, 2, {22}, {21}, HEADS(4, 4, 128), BF16, .block_gap = 128 * 512, QUICK},
    // Bounds: queries that see no key, keys that no query sees.
    {DENSE, 1, {90}, {50}, HEADS(2, 1, 64), BF16, .is_causal = true, QUICK},
    {DENSE, 1, {50}, {200}, HEADS(2, 1, 64), BF16, .is_causal = true, .is_top_left = true, QUICK},
    {DENSE, 1, {150}, {170}, HEADS(2, 1, 64), F16, .is_causal = true, .has_left = true, .left = 20, QUICK},
    {DENSE, 1, {150}, {140}, HEADS(2, 1, 64), F32, .has_left = true, .left = 9, .has_right = true, .right = 30},
    {DENSE, 1, {70}, {260}, HEADS(2, 1, 64), BF16, .has_left = true, .left = 0},
    {RAGGED, 2, {33, 70}, {100, 70}, HEADS(2, 1, 64), BF16, .is_causal = true, .has_left = true, .left = 17},
    // Masks.
    {DENSE, 2, {9}, {70}, HEADS(2, 1, 64), BF16, .has_custom_mask = true, QUICK},
    {RAGGED, 2, {9, 20}, {50, 30}, HEADS(2, 1, 64), F16, .has_custom_mask = true},
    {DENSE, 2, {12}, {70}, HEADS(2, 1, 64), BF16, .mask_kind = QK_MASK_BOOL, QUICK},
    {DENSE, 2, {12}, {70}, HEADS(4, 2, 64), BF16, .mask_kind = QK_MASK_F32, QUICK},
    {DENSE, 2, {12}, {33}, HEADS(2, 1, 64), BF16, .mask_kind = QK_MASK_F32, .is_mask_broadcast = true, QUICK},
    {DENSE, 1, {12}, {133}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_F16},
    {DENSE, 3, {5}, {33}, HEADS(4, 2, 33), F32, .mask_kind = QK_MASK_BF16, .is_mask_broadcast = true, .is_hnd = true},
    {DENSE, 1, {5}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_F32, .is_mask_zero = true},
    // Tiles of a mask's gradient: several; sums over batches and heads; behind caps and scales.
    {DENSE, 2, {140}, {150}, HEADS(4, 2, 128), BF16, .cap = 3, .mask_kind = QK_MASK_F32, QUICK},
    {DENSE, 2, {131}, {70}, HEADS(2, 1, 64), F16, .mask_kind = QK_MASK_BF16, .is_mask_broadcast = true, .has_scales = true, .dropout = 0.25f, QUICK},
    {PADDED, 2, {20}, {70, 33}, HEADS(2, 1, 72), BF16, .mask_kind = QK_MASK_F16, .is_mask_broadcast = true},
    // Scores.
    {DENSE, 1, {12}, {40}, HEADS(12, 4, 64), BF16, .pos = QN_POS_ALIBI, .is_causal = true, QUICK},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), BF16, .cap = 3, .is_causal = true, QUICK},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), F32, .cap = 0.1f, .mask_kind = QK_MASK_F32},
    {DENSE, 2, {40}, {40}, HEADS(4, 2, 64), BF16, .has_sinks = true, .is_natural = true, QUICK},
    {RAGGED, 2, {30, 5}, {10, 40}, HEADS(4, 2, 64), BF16, .has_sinks = true, .is_causal = true},
    {DENSE, 2, {12}, {43}, HEADS(4, 2, 64), BF16, .dropout = 0.5f, QUICK},
    {RAGGED, 2, {70, 3}, {40, 90}, HEADS(2, 1, 64), F16, .dropout = 0.1f, .is_causal = true},
    {DENSE, 1, {20}, {50}, HEADS(4, 2, 64), BF16, .has_scales = true, .has_negative_scales = true, QUICK},
    {DENSE, 1, {30}, {70}, HEADS(2, 1, 64), BF16, .values = QNI_CASE_PEAKS, QUICK},
    {DENSE, 1, {70}, {340}, HEADS(2, 1, 128), F16, .values = QNI_CASE_RAMPS, .is_causal = true, .has_left = true, .left = 100},
    {DENSE, 1, {20}, {20}, HEADS(4, 1, 64), F16, .values = QNI_CASE_LOW, .has_left = true, .is_causal = true},
    // Several tiles of keys and blocks of queries of Hopper's kernels, and their edges.
    {DENSE, 1, {200}, {300}, HEADS(2, 1, 128), BF16, .is_causal = true, QUICK},
    {DENSE, 2, {256}, {384}, HEADS(2, 2, 64), F16, QUICK},
    {DENSE, 1, {330}, {129}, HEADS(2, 1, 96), F16, .is_causal = true, QUICK},
    {DENSE, 1, {64}, {257}, HEADS(4, 1, 128), F16, .is_causal = true, .is_top_left = true},
    {DENSE, 1, {150}, {260}, HEADS(2, 1, 128), BF16, .has_right = true, .right = 70},
    {DENSE, 1, {140}, {200}, HEADS(2, 1, 72), .dim_vo = 40, BF16, .has_sinks = true, .is_hnd = true},
    {DENSE, 1, {150}, {270}, HEADS(2, 2, 128), F16, .values = QNI_CASE_PEAKS, .is_causal = true},
    {RAGGED, 3, {130, 65, 3}, {260, 129, 70}, HEADS(4, 2, 128), BF16, .is_causal = true, QUICK},
    {RAGGED, 3, {0, 200, 129}, {10, 0, 300}, HEADS(2, 1, 64), BF16, QUICK},
    {PADDED, 2, {140}, {200, 129}, HEADS(2, 1, 128), F16, .is_causal = true},
    {PADDED, 2, {140}, {200, 129}, HEADS(2, 1, 128), BF16, QUICK},
};
// clang-format on

enum { D_O = QNI_CASE_AREAS, DQ, DK, DV, DMASK, DSINKS, WORKSPACE, NUM_AREAS };
enum { NUM_GRADIENTS = WORKSPACE - DQ };

/** A case of the forward pass, whose areas are the first ones here, and the gradients'. */
typedef struct backward_case {
    qni_attention_case forward;
    qni_backward_problem problem;
    qni_area areas[NUM_AREAS];
    qni_case_tensor tensors[NUM_AREAS];
    qn_attention_backward_args args;
    const DLTensor *outputs[NUM_GRADIENTS];
    int num_outputs;
    uint64_t random;
} backward_case;

// ---- tensors

/** Makes an area and a tensor that lie as one of the forward pass does. */
static qn_status make_like(backward_case *c, qn_stream *stream, int which, const char *name,
                           int like, qni_dtype dtype) {
    const qni_area *of = &c->areas[like];
    const qni_case_tensor *from = &c->forward.tensors[like];
    qni_case_tensor *t = &c->tensors[which];
    const int64_t offset =
        like == QNI_CASE_MASK || like == QNI_CASE_SINKS ? 0 : c->forward.spec->offset;
    QN_TRY(qni_area_create(&c->areas[which], name, qn_stream_device(stream), dtype, of->count,
                           offset));
    *t = *from;
    t->t.data = qni_area_device(&c->areas[which]);
    t->t.dtype = qni_dl_dtype(dtype);
    t->t.shape = t->shape;
    t->t.strides = t->strides;
    return QN_OK;
}

/** Gradients of q, k and v have their types, or in every other case f32. */
static qni_dtype gradient_type(const backward_case *c, qni_dtype dtype) {
    return c->forward.spec->qo[0] % 2 ? QNI_F32 : dtype;
}

static qn_status make_tensors(backward_case *c, qn_stream *stream) {
    const qni_attention_spec *s = c->forward.spec;
    QN_TRY(make_like(c, stream, D_O, "d_o", QNI_CASE_O, s->dtype_o));
    QN_TRY(make_like(c, stream, DQ, "dq", QNI_CASE_Q, gradient_type(c, s->dtype)));
    QN_TRY(make_like(c, stream, DK, "dk", QNI_CASE_K, gradient_type(c, s->dtype_kv)));
    QN_TRY(make_like(c, stream, DV, "dv", QNI_CASE_V, gradient_type(c, s->dtype_kv)));
    if (s->mask_kind >= QK_MASK_F32)
        QN_TRY(make_like(c, stream, DMASK, "dmask", QNI_CASE_MASK, gradient_type(c, QNI_BF16)));
    if (s->has_sinks)
        QN_TRY(make_like(c, stream, DSINKS, "dsinks", QNI_CASE_SINKS, QNI_F32));
    return QN_OK;
}

static DLTensor *tensor_of(backward_case *c, int which) {
    return c->areas[which].owner ? &c->tensors[which].t : nullptr;
}

static qn_status make_workspace(backward_case *c, qn_stream *stream) {
    qni_case_tensor *t = &c->tensors[WORKSPACE];
    int64_t bytes;
    QN_TRY(qn_attention_backward_workspace_bytes(&bytes, stream, &c->args));
    QN_TRY(qni_area_create(&c->areas[WORKSPACE], "workspace", qn_stream_device(stream), QNI_U8,
                           bytes, 0));
    t->shape[0] = bytes, t->strides[0] = 1;
    t->t = (DLTensor){.data = qni_area_device(&c->areas[WORKSPACE]),
                      .device = qn_device_id(qn_stream_device(stream)),
                      .ndim = 1,
                      .dtype = qni_dl_dtype(QNI_U8),
                      .shape = t->shape,
                      .strides = t->strides};
    for (int64_t i = 0; i < bytes; i++)
        qni_area_expect(&c->areas[WORKSPACE], i, 0, 255); // it may hold anything
    c->args.workspace = &t->t;
    return QN_OK;
}

static qn_status make_args(backward_case *c, qn_stream *stream) {
    c->args = (qn_attention_backward_args){.struct_size = sizeof c->args,
                                           .forward = &c->forward.args,
                                           .d_o = tensor_of(c, D_O),
                                           .dq = tensor_of(c, DQ),
                                           .dk = tensor_of(c, DK),
                                           .dv = tensor_of(c, DV),
                                           .dmask = tensor_of(c, DMASK),
                                           .dsinks = tensor_of(c, DSINKS)};
    QN_TRY(make_workspace(c, stream));
    return qni_backward_make(stream, &c->args, &c->problem);
}

// ---- values

/** Makes what the forward pass must give an input, which keeps its bytes. */
static void keep_results(qni_area *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->tolerance[i] >= 0) {
            qni_put(a->dtype, qni_area_host(a), i, a->want[i]);
            a->tolerance[i] = -1;
        }
}

/** Calls `each` for the first element of the rows of all queries, or of all keys, of all heads. */
static void walk(backward_case *c, bool is_of_keys, const qk_attention_rows *rows, int which,
                 int64_t dim, void (*each)(backward_case *, int, int64_t at, int64_t dim)) {
    const qk_attention_args *g = &c->problem.args.common;
    const uint32_t heads = g->num_kv_heads * (is_of_keys ? 1 : g->group);
    for (uint32_t b = 0; b < (uint32_t)c->forward.spec->batches; b++) {
        const qk_attention_request r = qni_attention_case_request(c->forward.spec, (int)b);
        const int64_t begin = is_of_keys ? r.kv_begin : r.qo_begin;
        for (int64_t i = 0; i < (is_of_keys ? r.kv_len : r.qo_len); i++)
            for (uint32_t h = 0; h < heads; h++)
                each(c, which, b * rows->block + (begin + i) * rows->token + h * rows->head, dim);
    }
}

static void fill(backward_case *c, int which, int64_t at, int64_t dim) {
    for (int64_t d = 0; d < dim; d++)
        qni_put(c->areas[which].dtype, qni_area_host(&c->areas[which]), at + d,
                qni_random_normal(&c->random));
}

/** Returns the problem over the areas' host copies. */
static qni_backward_problem on_host(backward_case *c) {
    qni_backward_problem p = c->problem;
    p.forward = qni_attention_case_on_host(&c->forward);
    p.forward.args.o = qni_area_host(&c->areas[QNI_CASE_O]);
    p.forward.args.lse = qni_area_host(&c->areas[QNI_CASE_LSE]);
    p.args.common = p.forward.args;
    p.args.d_o.data = qni_area_host(&c->areas[D_O]);
    return p;
}

// ---- expectations

static bool make_sums(qni_bounded *sums, int64_t count) {
    sums->value = calloc(2 * (size_t)count + 1, sizeof(double));
    sums->bound = sums->value ? sums->value + count : nullptr;
    return sums->value;
}

static void expect_row(qni_area *area, int64_t at, const qni_bounded *sums, int64_t from,
                       int64_t dim) {
    for (int64_t d = 0; d < dim; d++)
        qni_area_expect(area, at + d, sums->value[from + d], sums->bound[from + d]);
}

/** Expects dk and dv of the keys of a request and kv head, and dq of their rows. */
static void expect_gradients(backward_case *c, const qk_attention_request *r, uint32_t request,
                             uint32_t kv_head, const qni_gradients *sums) {
    const qk_backward_args *b = &c->problem.args;
    const qk_attention_args *g = &b->common;
    for (int64_t i = 0; i < (int64_t)r->qo_len * g->group; i++)
        expect_row(&c->areas[DQ],
                   request * b->dq.block + (r->qo_begin + i / g->group) * b->dq.token +
                       (kv_head * g->group + i % g->group) * b->dq.head,
                   &sums->dq, i * g->head_dim_qk, g->head_dim_qk);
    for (int64_t j = 0; j < r->kv_len; j++) {
        expect_row(&c->areas[DK],
                   request * b->dk.block + (r->kv_begin + j) * b->dk.token + kv_head * b->dk.head,
                   &sums->dk, j * g->head_dim_qk, g->head_dim_qk);
        expect_row(&c->areas[DV],
                   request * b->dv.block + (r->kv_begin + j) * b->dv.token + kv_head * b->dv.head,
                   &sums->dv, j * g->head_dim_vo, g->head_dim_vo);
    }
}

/** Expects what one kv head of a request gives; adds to the sums of mask and sinks. */
static qn_status expect_head(backward_case *c, const qni_backward_problem *host, uint32_t request,
                             uint32_t kv_head, qni_gradients sums) {
    const qk_attention_args *g = &host->args.common;
    const qk_attention_request r = qni_attention_case_request(c->forward.spec, (int)request);
    const bool is_made = make_sums(&sums.dq, (int64_t)r.qo_len * g->group * g->head_dim_qk) &&
                         make_sums(&sums.dk, (int64_t)r.kv_len * g->head_dim_qk) &&
                         make_sums(&sums.dv, (int64_t)r.kv_len * g->head_dim_vo) &&
                         qni_backward_ref(host, &r, request, kv_head, &sums);
    if (is_made)
        expect_gradients(c, &r, request, kv_head, &sums);
    free(sums.dq.value);
    free(sums.dk.value);
    free(sums.dv.value);
    return is_made ? QN_OK : QN_FAIL(QN_E_MEMORY, "check: out of memory");
}

static qn_status expect_all(backward_case *c, const qni_backward_problem *host) {
    qni_gradients sums = {};
    qn_status st = QN_OK;
    qni_area *mask = &c->areas[DMASK], *sinks = &c->areas[DSINKS];
    if ((mask->owner && !make_sums(&sums.dmask, mask->count)) ||
        (sinks->owner && !make_sums(&sums.dsinks, sinks->count)))
        QN_TRY_OUT(QN_FAIL(QN_E_MEMORY, "check: out of memory"));
    for (uint32_t b = 0; b < host->requests; b++)
        for (uint32_t h = 0; h < host->args.common.num_kv_heads; h++)
            QN_TRY_OUT(expect_head(c, host, b, h, sums));
    if (mask->owner)
        expect_row(mask, 0, &sums.dmask, 0, mask->count);
    if (sinks->owner)
        expect_row(sinks, 0, &sums.dsinks, 0, sinks->count);
out:
    free(sums.dmask.value);
    free(sums.dsinks.value);
    return st;
}

// ---- cases

static qn_status create(backward_case *c, qn_stream *stream, const qni_attention_spec *spec,
                        uint64_t seed) {
    QN_TRY(qni_attention_case_create(&c->forward, stream, spec, seed));
    for (int i = 0; i < QNI_CASE_AREAS; i++)
        c->areas[i] = c->forward.areas[i];
    c->random = seed;
    QN_TRY(make_tensors(c, stream));
    QN_TRY(make_args(c, stream));
    keep_results(&c->areas[QNI_CASE_O]);
    keep_results(&c->areas[QNI_CASE_LSE]);
    walk(c, false, &c->problem.args.d_o, D_O, c->problem.args.common.head_dim_vo, fill);
    const qni_backward_problem host = on_host(c);
    QN_TRY(expect_all(c, &host));
    for (int i = DQ; i <= DSINKS; i++)
        if (c->areas[i].owner)
            c->outputs[c->num_outputs++] = &c->areas[i].flat;
    return QN_OK;
}

static void destroy(backward_case *c) {
    qni_areas_destroy(c->areas + QNI_CASE_AREAS, NUM_AREAS - QNI_CASE_AREAS);
    qni_attention_case_destroy(&c->forward);
}

qn_status qni_backward_check(qni_trial_run *run, const qni_attention_spec *spec, uint64_t seed) {
    backward_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(create(c, qni_trial_stream(run), spec, seed));
    const qni_trial_problem problem = {.op = &qni_op_attention_backward,
                                       .text = c->forward.text,
                                       .problem = &c->problem,
                                       .context = &(qni_areas){c->areas, NUM_AREAS},
                                       .reset = qni_areas_reset,
                                       .compare = qni_areas_compare,
                                       .outputs = c->outputs,
                                       .num_outputs = c->num_outputs};
    QN_TRY_OUT(qni_trial_problem_run(run, &problem));
out:
    destroy(c);
    free(c);
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof specs / sizeof *specs; i++)
        if (!qni_trial_is_quick(run) || specs[i].is_quick)
            st = qni_backward_check(run, &specs[i], qni_trial_seed(run) + i);
    return st;
}

static const qni_op *const ops[] = {&qni_op_attention_backward, nullptr};
const qni_family qni_family_attention_backward = {"attention_backward", ops, try_op};
