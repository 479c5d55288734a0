// SPDX-License-Identifier: Apache-2.0
// qn_moe_sort: reads its tensors and makes a problem.
#include "../../runtime/tensor/read.h"
#include "moe.h"

enum {
    IDS,
    MAP,
    ENDS,
    ROW_OF_PAIR,
    PAIR_OF_ROW,
    EXPERT_OF_ROW,
    EXPERT_OF_BLOCK,
    NUM_ROWS,
    NUM_TENSORS
};
static const char op[] = "moe_sort";
constexpr int64_t default_alignment = 128;

int64_t qn_moe_sort_rows(int64_t pairs, int64_t experts, int64_t alignment) {
    int64_t padding, rows;
    alignment = alignment == 0 ? default_alignment : alignment;
    if (pairs < 0 || experts < 0 || alignment < 0)
        return -1;
    const int64_t used = pairs < experts ? pairs : experts; // experts that may have pairs
    if (__builtin_mul_overflow(used, alignment - 1, &padding) ||
        __builtin_add_overflow(pairs, padding, &rows))
        return -1;
    return rows / alignment * alignment;
}

/** States a vector that is written, of *count i32; null: it is not wanted. */
static qni_tensor output(const char *name, DLTensor *t, const int64_t *count) {
    qni_tensor x = qni_indices(name, t, count);
    x.is_written = x.may_be_null = true;
    return x;
}

/** Returns a vector's length; below 0: it is none. */
static int64_t length_of(const DLTensor *t) {
    return t && t->ndim == 1 && t->shape ? t->shape[0] : -1;
}

/** Returns the number of rows: of the tensors that have it, or what qn_moe_sort_rows tells. A
 *  tensor that is wrong is refused later. */
static int64_t rows_of(const qn_moe_sort_args *a, int64_t least, int64_t alignment) {
    const int64_t rows = length_of(a->pair_of_row ? a->pair_of_row : a->expert_of_row);
    const int64_t blocks = length_of(a->expert_of_block);
    if (rows >= 0 || a->pair_of_row || a->expert_of_row)
        return rows >= 0 ? rows : least;
    return blocks >= 0 && blocks < INT32_MAX / alignment ? blocks * alignment : least;
}

static qn_status read_tensors(const qni_call *call, const qn_moe_sort_args *a, int64_t alignment,
                              qni_tensor t[NUM_TENSORS], int64_t *rows) {
    static const int64_t one = 1;
    t[IDS] = (qni_tensor){"ids", a->ids, 2, qni_of_i32, .has_rows = true};
    t[MAP] = qni_indices("expert_map", a->expert_map, nullptr);
    t[MAP].may_be_null = true;
    t[ENDS] = output("ends", a->ends, &a->experts);
    t[ENDS].may_be_null = false;
    QN_TRY(qni_read_tensors(call, t, ENDS + 1));
    if (t[IDS].size[0] > INT32_MAX || t[IDS].size[1] > INT32_MAX ||
        t[IDS].size[0] * t[IDS].size[1] >= INT32_MAX)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: ids are %ld x %ld; accepted: fewer than 2^31 pairs",
                       op, (long)t[IDS].size[0], (long)t[IDS].size[1]);
    const int64_t least = qn_moe_sort_rows(t[IDS].size[0] * t[IDS].size[1], a->experts, alignment);
    *rows = rows_of(a, least, alignment);
    const int64_t blocks = *rows / alignment;
    t[ROW_OF_PAIR] = (qni_tensor){.name = "row_of_pair",
                                  .t = a->row_of_pair,
                                  .ndim = 2,
                                  .dtypes = qni_of_i32,
                                  .shape = t[IDS].size,
                                  .has_rows = true,
                                  .may_be_null = true,
                                  .is_written = true};
    t[PAIR_OF_ROW] = output("pair_of_row", a->pair_of_row, rows);
    t[EXPERT_OF_ROW] = output("expert_of_row", a->expert_of_row, rows);
    t[EXPERT_OF_BLOCK] = output("expert_of_block", a->expert_of_block, &blocks);
    t[NUM_ROWS] = output("num_rows", a->num_rows, &one);
    QN_TRY(qni_read_tensors(call, &t[ROW_OF_PAIR], NUM_TENSORS - ROW_OF_PAIR));
    if (*rows < least || least < 0 || *rows > INT32_MAX - alignment)
        return QN_FAIL(QN_E_INVALID,
                       "%s: there are %ld rows; accepted: at least %ld, for %ld pairs of %ld "
                       "experts with alignment %ld, and fewer than 2^31 with alignment more",
                       op, (long)*rows, (long)least, (long)(t[IDS].size[0] * t[IDS].size[1]),
                       (long)a->experts, (long)alignment);
    return QN_OK;
}

static qn_status validate(qn_stream *stream, const qni_moe_sort_problem *p, int64_t tokens) {
    const int64_t most = p->expert_map ? p->mapped : p->experts;
    const bool is_dense = p->ids_row == p->top_k;
    if (!qni_validates_indices(stream))
        return QN_OK;
    for (int64_t t = 0; t < (is_dense ? 1 : tokens); t++)
        QN_TRY(qni_validate_range(stream, op, "ids", p->ids + t * p->ids_row,
                                  is_dense ? p->pairs : p->top_k, -1, most));
    return p->expert_map ? qni_validate_range(stream, op, "expert_map", p->expert_map, p->mapped,
                                              -1, p->experts)
                         : QN_OK;
}

qn_status qn_moe_sort(qn_stream *stream, const qn_moe_sort_args *args) {
    const qni_call call = {op, stream};
    qni_tensor t[NUM_TENSORS] = {};
    int64_t rows;
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_moe_sort_args, args));
    if (args->experts < 1 || args->experts > INT32_MAX)
        return QN_FAIL(QN_E_INVALID, "%s: experts is %ld; accepted: 1 to 2^31 - 1", op,
                       (long)args->experts);
    const int64_t alignment = args->alignment ? args->alignment : default_alignment;
    if (alignment < 1 || alignment > 1 << 20)
        return QN_FAIL(QN_E_INVALID, "%s: alignment is %ld; accepted: 1 to 2^20, and 0 for 128", op,
                       (long)alignment);
    QN_TRY(read_tensors(&call, args, alignment, t, &rows));
    const qni_moe_sort_problem p = {.ids = t[IDS].data,
                                    .expert_map = t[MAP].data,
                                    .ends = t[ENDS].data,
                                    .row_of_pair = t[ROW_OF_PAIR].data,
                                    .pair_of_row = t[PAIR_OF_ROW].data,
                                    .expert_of_row = t[EXPERT_OF_ROW].data,
                                    .expert_of_block = t[EXPERT_OF_BLOCK].data,
                                    .num_rows = t[NUM_ROWS].data,
                                    .ids_row = t[IDS].stride[0],
                                    .row_of_pair_row =
                                        args->row_of_pair ? t[ROW_OF_PAIR].stride[0] : 0,
                                    .pairs = (uint32_t)(t[IDS].size[0] * t[IDS].size[1]),
                                    .top_k = (uint32_t)t[IDS].size[1],
                                    .mapped = args->expert_map ? (uint32_t)t[MAP].size[0] : 0,
                                    .experts = (uint32_t)args->experts,
                                    .alignment = (uint32_t)alignment,
                                    .rows = (uint32_t)rows};
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    QN_TRY(validate(stream, &p, t[IDS].size[0]));
    return qni_run(&qni_op_moe_sort, stream, &p);
}
