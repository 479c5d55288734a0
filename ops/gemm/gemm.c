// SPDX-License-Identifier: Apache-2.0
// Matrix multiplication, host side: the public functions and the family's tables of kernels.
// gemm_args.c checks the arguments, gemm_ref.c is the definition, gemm_pack.c lays weights out.
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

const qni_op qni_op_gemm = QN_OP("gemm", gemm_variants);
const qni_op qni_op_gemm_pack = QN_OP("gemm_pack", pack_variants);

// ---- what the layout holds: looked at on the CPU always, on GPUs with QUERN_VALIDATE=1

/** The group of row i. Kernels take that of a tile's first row for all of its rows but padding. */
static qn_status check_index(const qni_gemm_problem *p, const char *op, const int32_t *layout,
                             int64_t i) {
    constexpr int64_t tile = 128;
    const int32_t value = layout[i], first = layout[i / tile * tile];
    if (value < -1 || value >= p->groups)
        return QN_FAIL(QN_E_INVALID, "%s: group_layout[%ld] is %d, needs a group 0..%ld or -1", op,
                       (long)i, value, (long)p->groups - 1);
    if (value != -1 && value != first)
        return QN_FAIL(QN_E_INVALID,
                       "%s: group_layout[%ld] is %d, group_layout[%ld] %d; a group needs to start "
                       "at a multiple of 128",
                       op, (long)i, value, (long)(i / tile * tile), first);
    return QN_OK;
}

/** One entry of ends or masked, `start` being where the group may begin at the earliest (ends). */
static qn_status check_entry(const qni_gemm_problem *p, const char *op, int64_t i, int64_t value,
                             int64_t start) {
    if (p->grouping == QN_GEMM_GROUPED_ENDS && (value < start || value > p->m))
        return QN_FAIL(QN_E_INVALID, "%s: group_layout[%ld] is %ld, needs an end in %ld..%ld", op,
                       (long)i, (long)value, (long)start, (long)p->m);
    if (p->grouping == QN_GEMM_GROUPED_MASKED && (value < 0 || value > p->m))
        return QN_FAIL(QN_E_INVALID, "%s: group_layout[%ld] is %ld, needs 0..%ld rows", op, (long)i,
                       (long)value, (long)p->m);
    return QN_OK;
}

static qn_status check_entries(const qni_gemm_problem *p, const char *op, const int32_t *layout,
                               int64_t count) {
    qn_status st = QN_OK;
    int64_t end = 0;
    for (int64_t i = 0; i < count && st == QN_OK; i++) {
        if (p->grouping == QN_GEMM_GROUPED_INDEX) {
            st = check_index(p, op, layout, i);
            continue;
        }
        const int64_t start = (end + p->m_alignment - 1) / p->m_alignment * p->m_alignment;
        // An empty group may end where the one before it does.
        st = check_entry(p, op, i, layout[i], layout[i] == end ? end : start);
        end = layout[i];
    }
    return st;
}

static qn_status validate_layout(const qni_gemm_problem *p, const char *op, qn_stream *stream) {
    const int64_t count = p->grouping == QN_GEMM_GROUPED_INDEX ? p->m : p->groups;
    const int32_t *layout = nullptr;
    qn_status st = QN_OK;
    QN_TRY(qni_read_indices(stream, op, "group_layout", p->layout, count, &layout));
    st = check_entries(p, op, layout, count);
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
    if (st != QN_OK || problem.m == 0 || problem.n == 0 || problem.groups == 0)
        return st;
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
