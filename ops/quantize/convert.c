// SPDX-License-Identifier: Apache-2.0
// qn_convert_fp8 converts between the OCP and the FNUZ encoding of e4m3, block by block, exactly if
// a block allows it.
//
// A code is worth half as much in FNUZ as in OCP. So fn to fnuz keeps the codes and doubles the
// scale. Backwards, there are two exact ways. The scale can be halved unless the block has FNUZ's
// largest code (0x7F, which is fn's NaN). Or the scale can be kept, which is exact unless an
// element below 2^-6 is an odd multiple of 2^-10, half of fn's smallest step. A block with both has
// no exact form: rounding keeps its scale, so that no element is off by more than that half step.
#include "../../runtime/tensor/read.h"
#include "quantize.h"

typedef enum method { CHANGE_SCALE, KEEP_SCALE, ROUND } method;

typedef struct conversion {
    const uint8_t *q; // [rows, cols]
    const float *scale;
    uint8_t *q_out;
    float *scale_out;
    int64_t rows, cols, block_rows, block_cols; // block_cols: blocks side by side
    bool to_fnuz;
    uint8_t same_bits[256];  // the code that goes with a changed scale
    uint8_t same_value[256]; // the code that goes with the scale as it is; fnuz to fn only
    atomic_int_least64_t inexact_blocks;
    atomic_uint
        max_rel_error; // bits of an f32 that is not negative, which are ordered as the values
} conversion;

typedef struct block_range {
    int64_t row, end_row, col, end_col;
} block_range;

static block_range range_of(const conversion *c, int64_t block) {
    const int64_t row = block / c->block_cols * c->block_rows;
    const int64_t col = block % c->block_cols * QNI_BLOCK;
    const int64_t end_row = row + c->block_rows, end_col = col + QNI_BLOCK;
    return (block_range){row, end_row < c->rows ? end_row : c->rows, col,
                         end_col < c->cols ? end_col : c->cols};
}

/** Returns the method that keeps a block exact; ROUND if there is none. */
static method method_of(const conversion *c, int64_t block) {
    if (c->to_fnuz)
        return CHANGE_SCALE;
    const float scale = c->scale[block];
    const bool halves = isfinite(scale) && scale * 0.5f * 2.0f == scale; // not an odd denormal
    bool has_largest = false, has_half_step = false;
    const block_range b = range_of(c, block);
    for (int64_t r = b.row; r < b.end_row; r++)
        for (int64_t col = b.col; col < b.end_col; col++) {
            const uint8_t magnitude = c->q[r * c->cols + col] & 0x7F;
            has_largest |= magnitude == 0x7F;
            has_half_step |= magnitude < 16 && (magnitude & 1) != 0;
        }
    if (halves && !has_largest)
        return CHANGE_SCALE;
    return has_half_step ? ROUND : KEEP_SCALE;
}

/** Returns the code of the other kind with these bits; zero and NaN are converted. */
static uint8_t keep_bits(bool to_fnuz, uint8_t code) {
    if (!to_fnuz)
        return code == 0x80 ? 0x7F : code;
    if (code == 0x80)
        return 0;
    return (code & 0x7F) == 0x7F ? 0x80 : code;
}

static void make_tables(conversion *c) {
    for (int i = 0; i < 256; i++) {
        const uint8_t code = (uint8_t)i;
        c->same_bits[i] = keep_bits(c->to_fnuz, code);
        c->same_value[i] = qni_fp8_encode(QNI_FP8_E4M3FN, qni_fp8_decode(QNI_FP8_E4M3FNUZ, code));
    }
}

static float rel_error(uint8_t from, uint8_t to) {
    const float exact = qni_fp8_decode(QNI_FP8_E4M3FNUZ, from);
    const float error = fabsf(qni_fp8_decode(QNI_FP8_E4M3FN, to) - exact);
    return error > 0 ? error / fabsf(exact) : 0; // 0 for a NaN, which stays a NaN
}

/** Counts a block that has no exact form, and finds how far off rounding would leave it. */
static void survey_block(conversion *c, int64_t block) {
    if (method_of(c, block) != ROUND)
        return;
    atomic_fetch_add(&c->inexact_blocks, 1);
    const block_range b = range_of(c, block);
    float worst = 0;
    for (int64_t r = b.row; r < b.end_row; r++)
        for (int64_t col = b.col; col < b.end_col; col++) {
            const uint8_t code = c->q[r * c->cols + col];
            worst = fmaxf(worst, rel_error(code, c->same_value[code]));
        }
    const unsigned bits = __builtin_bit_cast(unsigned, worst);
    unsigned seen = atomic_load(&c->max_rel_error);
    while (seen < bits && !atomic_compare_exchange_weak(&c->max_rel_error, &seen, bits))
        continue;
}

static void convert_block(conversion *c, int64_t block) {
    const method how = method_of(c, block); // must come before the block is written, as the call
                                            // may be in place
    const uint8_t *table = how == CHANGE_SCALE ? c->same_bits : c->same_value;
    const block_range b = range_of(c, block);
    for (int64_t r = b.row; r < b.end_row; r++)
        for (int64_t i = r * c->cols + b.col; i < r * c->cols + b.end_col; i++)
            c->q_out[i] = table[c->q[i]];
    const float factor = c->to_fnuz ? 2.0f : 0.5f;
    c->scale_out[block] = c->scale[block] * (how == CHANGE_SCALE ? factor : 1.0f);
}

static void survey_row(void *context, int64_t block_row) {
    conversion *c = context;
    for (int64_t i = 0; i < c->block_cols; i++)
        survey_block(c, block_row * c->block_cols + i);
}

static void convert_row(void *context, int64_t block_row) {
    conversion *c = context;
    for (int64_t i = 0; i < c->block_cols; i++)
        convert_block(c, block_row * c->block_cols + i);
}

static constexpr char op[] = "convert_fp8";

enum { Q, SCALE, Q_OUT, SCALE_OUT, NUM_TENSORS };

static qn_status check_kinds(qni_dtype from, qni_dtype to) {
    if ((from == QNI_E4M3FN && to == QNI_E4M3FNUZ) || (from == QNI_E4M3FNUZ && to == QNI_E4M3FN))
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED,
                   "%s: q has dtype %s and q_out %s; accepted: e4m3fn and e4m3fnuz, either way", op,
                   qni_dtype_name(from), qni_dtype_name(to));
}

/** Reads a contiguous matrix on the CPU. */
static qn_status read_matrix(const qni_call *call, qni_tensor *t) {
    char text[256];
    QN_TRY(qni_read_tensors(call, t, 1));
    if (t->t->device.device_type != kDLCPU)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s is on %s; accepted: cpu", op, t->name,
                       call->stream->device->info.spec);
    if (!qni_is_contiguous(t->t))
        return QN_FAIL(QN_E_INVALID, "%s: %s is %s, needs to be contiguous", op, t->name,
                       qni_tensor_text(t->t, text, sizeof text));
    return QN_OK;
}

/** Finds from the scale's shape whether blocks are 1 x 128 or 128 x 128. */
static qn_status read_blocks(const int64_t *scale, conversion *c) {
    const int64_t tall = (c->rows + QNI_BLOCK - 1) / QNI_BLOCK;
    c->block_cols = (c->cols + QNI_BLOCK - 1) / QNI_BLOCK;
    c->block_rows = scale[0] == c->rows ? 1 : QNI_BLOCK;
    if (scale[1] == c->block_cols && (c->block_rows == 1 || scale[0] == tall))
        return QN_OK;
    return QN_FAIL(QN_E_INVALID,
                   "%s: scale has shape [%ld, %ld], needs [%ld, %ld] (blocks of 1 x 128) or "
                   "[%ld, %ld] (128 x 128)",
                   op, (long)scale[0], (long)scale[1], (long)c->rows, (long)c->block_cols,
                   (long)tall, (long)c->block_cols);
}

/** Checks that twice each scale is still an f32. */
static qn_status check_scales_double(const conversion *c, const DLTensor *scale) {
    for (int64_t i = 0; c->to_fnuz && i < qni_numel(scale); i++)
        if (isfinite(c->scale[i]) && isinf(c->scale[i] * 2))
            return QN_FAIL(QN_E_INVALID, "%s: scale[%ld, %ld] is %g; accepted: what f32 can double",
                           op, (long)(i / c->block_cols), (long)(i % c->block_cols),
                           (double)c->scale[i]);
    return QN_OK;
}

/** Reads the tensors. An output may be its input, and overlaps nothing else. */
static qn_status read_all(const qni_call *call, qni_tensor t[NUM_TENSORS], conversion *c) {
    QN_TRY(read_matrix(call, &t[Q]));
    c->rows = t[Q].size[0];
    c->cols = t[Q].size[1];
    t[Q_OUT].shape = t[Q].size;
    QN_TRY(read_matrix(call, &t[Q_OUT]));
    QN_TRY(check_kinds(t[Q].dtype, t[Q_OUT].dtype));
    QN_TRY(read_matrix(call, &t[SCALE]));
    QN_TRY(read_blocks(t[SCALE].size, c));
    t[SCALE_OUT].shape = t[SCALE].size;
    QN_TRY(read_matrix(call, &t[SCALE_OUT]));
    c->q = t[Q].data, c->scale = t[SCALE].data;
    c->q_out = t[Q_OUT].data, c->scale_out = t[SCALE_OUT].data;
    c->to_fnuz = t[Q].dtype == QNI_E4M3FN;
    return qni_check_apart(call, t, NUM_TENSORS);
}

qn_status qn_convert_fp8(qn_stream *stream, DLTensor *q_out, DLTensor *scale_out, const DLTensor *q,
                         const DLTensor *scale, int32_t allow_rounding, qn_convert_report *report) {
    const qni_call call = {op, stream};
    conversion c = {};
    qni_tensor t[NUM_TENSORS] = {
        [Q] = {.name = "q", .t = q, .ndim = 2},
        [SCALE] = {"scale", scale, 2, .dtypes = qni_of_f32},
        [Q_OUT] = {.name = "q_out", .t = q_out, .ndim = 2, .is_written = true, .may_be = &t[Q]},
        [SCALE_OUT] = {"scale_out", scale_out, 2, qni_of_f32, .is_written = true,
                       .may_be = &t[SCALE]}};
    QN_TRY(read_all(&call, t, &c));
    if (report)
        QN_TRY(QNI_CHECK_STRUCT_FROM(op, "report", qn_convert_report, report, max_rel_error));
    if (allow_rounding != 0 && allow_rounding != 1)
        return QN_FAIL(QN_E_INVALID, "%s: allow_rounding is %d, needs 0 or 1", op, allow_rounding);
    make_tables(&c);
    QN_TRY(check_scales_double(&c, scale));
    qni_parallel(scale->shape[0], survey_row, &c);
    const int64_t inexact = atomic_load(&c.inexact_blocks);
    if (report) {
        report->inexact_blocks = inexact;
        report->max_rel_error = (double)__builtin_bit_cast(float, atomic_load(&c.max_rel_error));
    }
    if (inexact > 0 && !allow_rounding)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: %ld of %ld blocks have no exact e4m3fn form (neither keeping nor "
                       "halving the scale is exact); rounding must be asked for",
                       op, (long)inexact, (long)qni_numel(scale));
    qni_parallel(scale->shape[0], convert_row, &c);
    return QN_OK;
}
