// SPDX-License-Identifier: Apache-2.0
// qn_transform_scales and qn_pack_k_grouped_scales: read the tensors, choose a kernel, run it.
#include "scales.h"

#include "../../runtime/tensor/read.h"
#include "../shared/variants.h"

#define QN_TABLE_OF_scales 0,
static const qni_variant variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_scales

#define QN_TABLE_OF_scales_k_grouped 0,
static const qni_variant k_grouped_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_scales_k_grouped

static const qni_key keys[] = {{.name = "cols"},
                               {.name = "groups"},
                               {.name = "block_rows"},
                               {.name = "packed_in", .words = qni_no_yes_words},
                               {.name = "packed_out", .words = qni_no_yes_words},
                               {.name = "rows", .is_of_batch = true},
                               {}};

static void describe(const void *problem, int64_t *values) {
    const qni_scales_problem *p = problem;
    QN_SET_VALUES(keys, values, p->cols, p->groups, p->block_rows, p->is_packed_in,
                  p->is_packed_out, p->rows);
}

static const qni_key k_keys[] = {{.name = "rows"},
                                 {.name = "groups"},
                                 {.name = "gran_k"},
                                 {.name = "scales", .is_of_batch = true},
                                 {}};

static void describe_k(const void *problem, int64_t *values) {
    const qni_k_scales_problem *p = problem;
    QN_SET_VALUES(k_keys, values, p->rows, p->groups, p->gran_k, p->scales);
}

const qni_op qni_op_scales = QN_OP("scales", variants, keys, describe);
const qni_op qni_op_scales_k_grouped =
    QN_OP("scales_k_grouped", k_grouped_variants, k_keys, describe_k);

int64_t qn_tma_aligned_size(int64_t count, int64_t element_bytes) {
    if (count < 0 || element_bytes < 1 || element_bytes > 16 || 16 % element_bytes != 0)
        return -1;
    const int64_t step = 16 / element_bytes;
    return (count + step - 1) / step * step;
}

/** The alignment of a group's rows, or of its k. */
constexpr uint32_t usual_alignment = 128;

// ---- what both functions read

enum { SCALE, LAYOUT, OUT, NUM_TENSORS };

/** Reads scales, or words of scales, whose sizes kernels must be able to count. */
static qn_status read_words(const qni_call *call, qni_tensor *t) {
    QN_TRY(qni_read_tensors(call, t, 1));
    for (int i = 0; i < t->ndim; i++)
        if (t->size[i] >= INT32_MAX)
            return QN_FAIL(QN_E_UNSUPPORTED,
                           "%s: %s has %ld in dimension %d; accepted: below 2^31 - 1", call->op,
                           t->name, (long)t->size[i], i);
    return QN_OK;
}

static qn_status check_number(const char *op, const char *name, int64_t value, int64_t low,
                              int64_t high) {
    if (value >= low && value <= high)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s is %ld; accepted: %ld to %ld", op, name, (long)value,
                   (long)low, (long)high);
}

// ---- rows

static qn_status read_ends(qn_stream *stream, const qni_call *call, qni_tensor *ends,
                           const qni_tensor *out) {
    if (!ends->t)
        return QN_OK;
    if (out->ndim != 2)
        return QN_FAIL(QN_E_INVALID, "%s: ends is given and out has %d dimensions, needs 2",
                       call->op, out->ndim);
    QN_TRY(qni_read_tensors(call, ends, 1));
    if (ends->size[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: ends is empty, needs at least one entry", call->op);
    return qni_validates_indices(stream) ? qni_validate_rising(stream, call->op, "ends", ends->data,
                                                               ends->size[0], out->size[0])
                                         : QN_OK;
}

/** Returns the last dimension that scale must have: out's, times or over four if one of them is of
 *  words of four scales. */
static int64_t want_cols(const qni_tensor *scale, const qni_tensor *out) {
    const int last = out->ndim - 1;
    const int64_t has = scale->size[last], cols = out->size[last];
    if (scale->dtype == out->dtype)
        return cols;
    if (scale->dtype == QNI_I32)
        return (cols + 3) / 4;
    return (has + 3) / 4 == cols ? has : 4 * cols; // the last word may be partial
}

static qn_status check_scale_shape(const qni_call *call, const qni_tensor *scale,
                                   const qni_tensor *out, int64_t block_rows) {
    const int last = out->ndim - 1;
    int64_t want[3] = {out->size[0]};
    want[last - 1] = (out->size[last - 1] + block_rows - 1) / block_rows;
    want[last] = want_cols(scale, out);
    return qni_check_shape(call->op, "scale", scale->t, out->ndim, want);
}

static qni_scales_problem make_problem(const qni_tensor *out, const qni_tensor *scale) {
    const int last = out->ndim - 1;
    qni_scales_problem p = {.in = scale->data,
                            .out = out->data,
                            .in_row = scale->stride[last - 1],
                            .in_col = scale->stride[last],
                            .out_row = out->stride[last - 1],
                            .out_col = out->stride[last],
                            .groups = 1,
                            .rows = (uint32_t)out->size[last - 1],
                            .is_packed_in = scale->dtype == QNI_I32,
                            .is_packed_out = out->dtype == QNI_I32};
    if (last == 2) {
        p.groups = (uint32_t)out->size[0];
        p.in_group = scale->stride[0];
        p.out_group = out->stride[0];
    }
    const qni_tensor *counted = p.is_packed_out ? scale : out;
    p.cols = (uint32_t)counted->size[last];
    p.quads = p.is_packed_in && p.is_packed_out ? p.cols : (p.cols + 3) / 4;
    if (p.is_packed_in && p.is_packed_out)
        p.cols *= 4;
    return p;
}

qn_status qn_transform_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                              const DLTensor *ends, int64_t block_rows, int64_t m_alignment,
                              int32_t round_scale) {
    constexpr char op[] = "transform_scales";
    const qni_call call = {op, stream};
    const int ndim = out && out->ndim == 3 ? 3 : 2;
    qni_tensor t[NUM_TENSORS] = {
        [SCALE] = {"scale", scale, ndim, .dtypes = qni_of_f32 | qni_of_i32},
        [LAYOUT] = qni_indices("ends", ends, nullptr),
        [OUT] = {"out", out, ndim, qni_of_f32 | qni_of_i32, .is_written = true}};
    QN_TRY(read_words(&call, &t[OUT]));
    QN_TRY(read_words(&call, &t[SCALE]));
    QN_TRY(check_number(op, "block_rows", block_rows, 1, INT32_MAX));
    QN_TRY(check_number(op, "m_alignment", m_alignment, 0, INT32_MAX));
    QN_TRY(check_number(op, "round_scale", round_scale, 0, 1));
    QN_TRY(check_scale_shape(&call, &t[SCALE], &t[OUT], block_rows));
    QN_TRY(read_ends(stream, &call, &t[LAYOUT], &t[OUT]));
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    qni_scales_problem p = make_problem(&t[OUT], &t[SCALE]);
    p.block_rows = (uint32_t)block_rows;
    p.rounds = round_scale == 1;
    p.ends = t[LAYOUT].data;
    p.num_ends = ends ? (uint32_t)t[LAYOUT].size[0] : 0;
    p.alignment = m_alignment ? (uint32_t)m_alignment : usual_alignment;
    return qni_is_empty(out) ? QN_OK : qni_run(&qni_op_scales, stream, &p);
}

// ---- groups along k

/** Validates the layout: every group must begin and end right, and all groups must have room. */
static qn_status validate_layout(qn_stream *stream, const char *op, const qni_k_scales_problem *p) {
    const int32_t *layout = nullptr;
    int64_t scales = 0, words = 0, begin = 0;
    qn_status st;
    QN_TRY_OUT(qni_read_indices(stream, op, "group_layout", p->layout, p->groups, &layout));
    for (int64_t i = 0; st == QN_OK && i < p->groups; i++) {
        const int64_t k = p->is_by_ends ? layout[i] - begin : layout[i];
        const int64_t count = (k + p->gran_k - 1) / p->gran_k;
        if (k < 0)
            st = QN_FAIL(QN_E_INVALID, "%s: group_layout[%ld] is %d; accepted: %ld or more", op,
                         (long)i, layout[i], p->is_by_ends ? (long)begin : 0L);
        scales += count;
        words += (count + 3) / 4;
        begin = ((int64_t)layout[i] + p->alignment - 1) / p->alignment * p->alignment;
    }
    if (st == QN_OK && (scales > p->scales || words > p->words))
        st = QN_FAIL(QN_E_INVALID,
                     "%s: group_layout needs %ld scales and %ld words; scale has %u, out %u", op,
                     (long)scales, (long)words, p->scales, p->words);
out:
    qni_release_indices(stream, layout);
    return st;
}

qn_status qn_pack_k_grouped_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                                   const DLTensor *group_layout, int64_t gran_k,
                                   int64_t k_alignment, int32_t by_ends, int32_t round_scale) {
    constexpr char op[] = "pack_k_grouped_scales";
    const qni_call call = {op, stream};
    qni_tensor t[NUM_TENSORS] = {[SCALE] = {"scale", scale, 2, .dtypes = qni_of_f32},
                                 [LAYOUT] = qni_indices("group_layout", group_layout, nullptr),
                                 [OUT] = {"out", out, 2, qni_of_i32, .is_written = true}};
    QN_TRY(read_words(&call, &t[OUT]));
    t[SCALE].shape = (const int64_t[]){-1, t[OUT].size[1]};
    QN_TRY(read_words(&call, &t[SCALE]));
    QN_TRY(qni_read_tensors(&call, &t[LAYOUT], 1));
    QN_TRY(check_number(op, "gran_k", gran_k, 1, INT32_MAX));
    QN_TRY(check_number(op, "k_alignment", k_alignment, 0, INT32_MAX));
    QN_TRY(check_number(op, "by_ends", by_ends, 0, 1));
    QN_TRY(check_number(op, "round_scale", round_scale, 0, 1));
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    const qni_k_scales_problem p = {.in = t[SCALE].data,
                                    .out = t[OUT].data,
                                    .in_scale = t[SCALE].stride[0],
                                    .in_row = t[SCALE].stride[1],
                                    .out_word = t[OUT].stride[0],
                                    .out_row = t[OUT].stride[1],
                                    .layout = t[LAYOUT].data,
                                    .scales = (uint32_t)t[SCALE].size[0],
                                    .words = (uint32_t)t[OUT].size[0],
                                    .rows = (uint32_t)t[OUT].size[1],
                                    .groups = (uint32_t)t[LAYOUT].size[0],
                                    .gran_k = (uint32_t)gran_k,
                                    .alignment =
                                        k_alignment ? (uint32_t)k_alignment : usual_alignment,
                                    .is_by_ends = by_ends == 1,
                                    .rounds = round_scale == 1};
    if (qni_validates_indices(stream))
        QN_TRY(validate_layout(stream, op, &p));
    return qni_is_empty(out) ? QN_OK : qni_run(&qni_op_scales_k_grouped, stream, &p);
}
