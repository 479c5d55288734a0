// SPDX-License-Identifier: Apache-2.0
// qn_transform_scales and qn_pack_k_grouped_scales: check the tensors, choose a kernel, run it.
#include "scales.h"

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

const qni_op qni_op_scales = QN_OP("scales", variants);
const qni_op qni_op_scales_k_grouped = QN_OP("scales_k_grouped", k_grouped_variants);

int64_t qn_tma_aligned_size(int64_t count, int64_t element_bytes) {
    if (count < 0 || element_bytes < 1 || element_bytes > 16 || 16 % element_bytes != 0)
        return -1;
    const int64_t step = 16 / element_bytes;
    return (count + step - 1) / step * step;
}

/** Of a group's rows, or of its k. */
constexpr uint32_t usual_alignment = 128;

// ---- what both functions check

static qn_status check_words(const qn_stream *stream, const char *op, const char *name,
                             const DLTensor *t, int ndim, bool may_be_f32, bool may_be_i32) {
    QN_TRY(qni_check_tensor(stream, op, name, t, ndim));
    const qni_dtype dtype = qni_dtype_of(t);
    if (!(may_be_f32 && dtype == QNI_F32) && !(may_be_i32 && dtype == QNI_I32))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: %s%s%s", op, name,
                       qni_dtype_text(t), may_be_f32 ? "f32" : "",
                       may_be_f32 && may_be_i32 ? ", " : "",
                       may_be_i32 ? "i32 (UE8M0, four to a word)" : "");
    for (int i = 0; i < ndim; i++)
        if (t->shape[i] >= INT32_MAX)
            return QN_FAIL(QN_E_UNSUPPORTED,
                           "%s: %s has %ld in dimension %d; accepted: below 2^31 - 1", op, name,
                           (long)t->shape[i], i);
    return qni_check_alignment(op, name, t);
}

/** What is written: its elements lie apart, and meet neither of the others. */
static qn_status check_out(const char *op, const DLTensor *out, const DLTensor *scale,
                           const char *layout_name, const DLTensor *layout) {
    QN_TRY(qni_check_elements_apart(op, "out", out));
    QN_TRY(qni_check_disjoint(op, "out", out, "scale", scale));
    return qni_check_disjoint(op, "out", out, layout_name, layout);
}

static qn_status check_number(const char *op, const char *name, int64_t value, int64_t low,
                              int64_t high) {
    if (value >= low && value <= high)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID, "%s: %s is %ld; accepted: %ld to %ld", op, name, (long)value,
                   (long)low, (long)high);
}

// ---- rows

static qn_status check_ends(qn_stream *stream, const char *op, const DLTensor *ends,
                            const DLTensor *out) {
    if (out->ndim != 2)
        return QN_FAIL(QN_E_INVALID, "%s: ends is given and out has %d dimensions, needs 2", op,
                       out->ndim);
    QN_TRY(qni_check_indices(stream, op, "ends", ends, -1));
    if (ends->shape[0] == 0)
        return QN_FAIL(QN_E_INVALID, "%s: ends is empty, needs at least one entry", op);
    if (qni_validates_indices(stream))
        QN_TRY(
            qni_validate_rising(stream, op, "ends", qni_data(ends), ends->shape[0], out->shape[0]));
    return QN_OK;
}

/** The last dimension that scale must have: scales for scales, words for words, four scales to a
 *  word. */
static int64_t want_cols(const DLTensor *scale, const DLTensor *out) {
    const int last = out->ndim - 1;
    const int64_t has = scale->shape[last], cols = out->shape[last];
    if (qni_dtype_of(scale) == qni_dtype_of(out))
        return cols;
    if (qni_dtype_of(scale) == QNI_I32)
        return (cols + 3) / 4;
    return (has + 3) / 4 == cols ? has : 4 * cols; // the last word may be partial
}

static qn_status check_scale_shape(const char *op, const DLTensor *scale, const DLTensor *out,
                                   int64_t block_rows) {
    const int last = out->ndim - 1;
    int64_t want[3] = {out->shape[0]};
    want[last - 1] = (out->shape[last - 1] + block_rows - 1) / block_rows;
    want[last] = want_cols(scale, out);
    return qni_check_shape(op, "scale", scale, out->ndim, want);
}

static qni_scales_problem make_problem(const DLTensor *out, const DLTensor *scale) {
    const int last = out->ndim - 1;
    qni_scales_problem p = {.in = qni_data(scale),
                            .out = qni_data(out),
                            .in_row = qni_stride(scale, last - 1),
                            .in_col = qni_stride(scale, last),
                            .out_row = qni_stride(out, last - 1),
                            .out_col = qni_stride(out, last),
                            .groups = 1,
                            .rows = (uint32_t)out->shape[last - 1],
                            .is_packed_in = qni_dtype_of(scale) == QNI_I32,
                            .is_packed_out = qni_dtype_of(out) == QNI_I32};
    if (last == 2) {
        p.groups = (uint32_t)out->shape[0];
        p.in_group = qni_stride(scale, 0);
        p.out_group = qni_stride(out, 0);
    }
    const DLTensor *counted = p.is_packed_out ? scale : out;
    p.cols = (uint32_t)counted->shape[last];
    p.quads = p.is_packed_in && p.is_packed_out ? p.cols : (p.cols + 3) / 4;
    if (p.is_packed_in && p.is_packed_out)
        p.cols *= 4;
    return p;
}

qn_status qn_transform_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                              const DLTensor *ends, int64_t block_rows, int64_t m_alignment,
                              int32_t round_scale) {
    constexpr char op[] = "transform_scales";
    const int ndim = out && out->ndim == 3 ? 3 : 2;
    QN_TRY(check_words(stream, op, "out", out, ndim, true, true));
    QN_TRY(check_words(stream, op, "scale", scale, ndim, true, true));
    QN_TRY(check_number(op, "block_rows", block_rows, 1, INT32_MAX));
    QN_TRY(check_number(op, "m_alignment", m_alignment, 0, INT32_MAX));
    QN_TRY(check_number(op, "round_scale", round_scale, 0, 1));
    QN_TRY(check_scale_shape(op, scale, out, block_rows));
    if (ends)
        QN_TRY(check_ends(stream, op, ends, out));
    QN_TRY(check_out(op, out, scale, "ends", ends));
    qni_scales_problem p = make_problem(out, scale);
    p.block_rows = (uint32_t)block_rows;
    p.rounds = round_scale == 1;
    p.ends = ends ? qni_data(ends) : nullptr;
    p.num_ends = ends ? (uint32_t)ends->shape[0] : 0;
    p.alignment = m_alignment ? (uint32_t)m_alignment : usual_alignment;
    if (!qni_is_empty(out))
        QN_TRY(qni_run(&qni_op_scales, stream, &p));
    return QN_OK;
}

// ---- groups along k

/** Reads the layout: every group begins and ends right, and all have room. */
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
    QN_TRY(check_words(stream, op, "out", out, 2, false, true));
    QN_TRY(check_words(stream, op, "scale", scale, 2, true, false));
    QN_TRY(qni_check_indices(stream, op, "group_layout", group_layout, -1));
    QN_TRY(check_number(op, "gran_k", gran_k, 1, INT32_MAX));
    QN_TRY(check_number(op, "k_alignment", k_alignment, 0, INT32_MAX));
    QN_TRY(check_number(op, "by_ends", by_ends, 0, 1));
    QN_TRY(check_number(op, "round_scale", round_scale, 0, 1));
    const int64_t want[] = {-1, out->shape[1]};
    QN_TRY(qni_check_shape(op, "scale", scale, 2, want));
    QN_TRY(check_out(op, out, scale, "group_layout", group_layout));
    const qni_k_scales_problem p = {.in = qni_data(scale),
                                    .out = qni_data(out),
                                    .in_scale = qni_stride(scale, 0),
                                    .in_row = qni_stride(scale, 1),
                                    .out_word = qni_stride(out, 0),
                                    .out_row = qni_stride(out, 1),
                                    .layout = qni_data(group_layout),
                                    .scales = (uint32_t)scale->shape[0],
                                    .words = (uint32_t)out->shape[0],
                                    .rows = (uint32_t)out->shape[1],
                                    .groups = (uint32_t)group_layout->shape[0],
                                    .gran_k = (uint32_t)gran_k,
                                    .alignment =
                                        k_alignment ? (uint32_t)k_alignment : usual_alignment,
                                    .is_by_ends = by_ends == 1,
                                    .rounds = round_scale == 1};
    if (qni_validates_indices(stream))
        QN_TRY(validate_layout(stream, op, &p));
    if (!qni_is_empty(out))
        QN_TRY(qni_run(&qni_op_scales_k_grouped, stream, &p));
    return QN_OK;
}
