// SPDX-License-Identifier: Apache-2.0
// Matrix multiplication, host side: the public functions and the family's tables of kernels.
// gemm_args.c reads the arguments, gemm_ref.c is the definition, gemm_pack.c lays weights out.
#include "gemm.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_gemm 0,
static const qni_variant gemm_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_gemm

#define QN_TABLE_OF_gemm_pack 0,
static const qni_variant pack_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_gemm_pack

static const char *const grouping_words[] = {"dense",  "index",   "ends",
                                             "masked", "batches", nullptr};
static const char *const epilogue_words[] = {"none", "vectors", "gelu_tanh", "silu_and_mul",
                                             nullptr};
static const qni_key gemm_keys[] = {
    {.name = "n"},
    {.name = "k"},
    {.name = "a", .words = qni_dtype_words},
    {.name = "b", .words = qni_dtype_words},
    {.name = "d", .words = qni_dtype_words},
    {.name = "packed", .words = qni_no_yes_words},
    {.name = "epilogue", .words = epilogue_words},
    {.name = "grouping", .words = grouping_words, .is_of_batch = true},
    {.name = "groups", .is_of_batch = true},
    {.name = "m", .is_of_batch = true},
    {.name = "expected_m", .is_of_batch = true},
    {}};

/** Returns the index of the word for what acts on the product besides c. Bias and gate have one
 *  where no activation is with them. */
static int64_t epilogue_of(const qni_gemm_problem *p) {
    if (p->activation != QN_GEMM_NO_ACTIVATION)
        return 1 + (int64_t)p->activation;
    return p->bias || p->gate;
}

/** Returns the index of the word for how rows are split. */
static int64_t grouping_of(const qni_gemm_problem *p) {
    return p->grouping + (p->grouping == QN_GEMM_GROUPED_MASKED && !p->layout);
}

static void describe_gemm(const void *problem, int64_t *values) {
    const qni_gemm_problem *p = problem;
    QN_SET_VALUES(gemm_keys, values, p->n, p->k, p->dtype_a, p->dtype_b, p->dtype_d, p->is_packed,
                  epilogue_of(p), grouping_of(p), p->groups, p->m, p->expected_m);
}

static const qni_key pack_keys[] = {{.name = "n"},
                                    {.name = "k"},
                                    {.name = "groups"},
                                    {.name = "from", .words = qni_dtype_words},
                                    {.name = "to", .words = qni_dtype_words},
                                    {}};

static void describe_pack(const void *problem, int64_t *values) {
    const qni_gemm_pack_problem *p = problem;
    QN_SET_VALUES(pack_keys, values, p->n, p->k, p->groups, p->dtype_in, p->dtype_out);
}

const qni_op qni_op_gemm = QN_OP("gemm", gemm_variants, gemm_keys, describe_gemm);
const qni_op qni_op_gemm_pack = QN_OP("gemm_pack", pack_variants, pack_keys, describe_pack);

// ---- what the layout holds: checked always on the CPU, on GPUs with QUERN_VALIDATE=1

/** Checks that all rows of a tile but padding are of its first row's group, as kernels assume. */
static qn_status check_tiles(const char *op, const int32_t *layout, int64_t count) {
    constexpr int64_t tile = 128;
    for (int64_t i = 0; i < count; i++) {
        const int64_t first = i / tile * tile;
        if (layout[i] != -1 && layout[i] != layout[first])
            return QN_FAIL(QN_E_INVALID,
                           "%s: group_layout[%ld] is %d, group_layout[%ld] %d; a group needs to "
                           "start at a multiple of 128",
                           op, (long)i, layout[i], (long)first, layout[first]);
    }
    return QN_OK;
}

/** Checks that groups begin at multiples of the alignment. An empty group may end where the one
 *  before it does. */
static qn_status check_ends(const char *op, const int32_t *ends, int64_t count, int64_t alignment) {
    for (int64_t i = 1; i < count; i++) {
        const int64_t start = qni_round_up(ends[i - 1], alignment);
        if (ends[i] != ends[i - 1] && ends[i] < start)
            return QN_FAIL(QN_E_INVALID,
                           "%s: group_layout[%ld] is %d; accepted: %d, for no rows, or %ld, where "
                           "the group begins, and above",
                           op, (long)i, ends[i], ends[i - 1], (long)start);
    }
    return QN_OK;
}

static qn_status validate_layout(const qni_gemm_problem *p, const char *op, qn_stream *stream) {
    constexpr char name[] = "group_layout";
    const bool is_index = p->grouping == QN_GEMM_GROUPED_INDEX;
    const int64_t count = is_index ? p->m : p->groups;
    const int32_t *layout = nullptr;
    qn_status st = QN_OK;
    if (p->grouping == QN_GEMM_GROUPED_MASKED)
        return qni_validate_range(stream, op, name, p->layout, count, 0, p->m + 1);
    if (is_index)
        QN_TRY(qni_validate_range(stream, op, name, p->layout, count, -1, p->groups));
    else
        QN_TRY(qni_validate_rising(stream, op, name, p->layout, count, p->m));
    QN_TRY(qni_read_indices(stream, op, name, p->layout, count, &layout));
    st = is_index ? check_tiles(op, layout, count) : check_ends(op, layout, count, p->m_alignment);
    qni_release_indices(stream, layout);
    return st;
}

// ---- public functions

static qn_status run(qn_stream *stream, const char *op, const qn_gemm_args *args,
                     qn_gemm_grouping grouping) {
    qni_gemm_problem problem;
    qn_status st = qni_gemm_problem_set(&problem, stream, op, args, grouping);
    if (st != QN_OK)
        return st;
    if (grouping != QN_GEMM_DENSE && qni_validates_indices(stream))
        st = validate_layout(&problem, op, stream);
    if (st == QN_OK && problem.given_scale_d)
        st = qni_validate_scale(stream, op, "given_scale_d", problem.given_scale_d);
    if (st != QN_OK || problem.m == 0 || problem.n == 0 || problem.groups == 0)
        return st;
    qni_gemm_join_batches(&problem);
    return qni_run(&qni_op_gemm, stream, &problem);
}

qn_status qn_gemm(qn_stream *stream, const qn_gemm_args *args) {
    return run(stream, "gemm", args, QN_GEMM_DENSE);
}

qn_status qn_gemm_grouped_contiguous(qn_stream *stream, const qn_gemm_args *args,
                                     qn_gemm_grouping grouping) {
    const char *op = "gemm_grouped_contiguous";
    if (grouping != QN_GEMM_GROUPED_INDEX && grouping != QN_GEMM_GROUPED_ENDS)
        return QN_FAIL(QN_E_INVALID,
                       "%s: grouping is %d, needs QN_GEMM_GROUPED_INDEX (%d) or "
                       "QN_GEMM_GROUPED_ENDS (%d)",
                       op, (int)grouping, (int)QN_GEMM_GROUPED_INDEX, (int)QN_GEMM_GROUPED_ENDS);
    return run(stream, op, args, grouping);
}

qn_status qn_gemm_grouped_masked(qn_stream *stream, const qn_gemm_args *args) {
    return run(stream, "gemm_grouped_masked", args, QN_GEMM_GROUPED_MASKED);
}
