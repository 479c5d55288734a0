// SPDX-License-Identifier: Apache-2.0
// The check problems of the mla family, and requests in batches of several sizes.
#include "mla_case.h"

#include <stdlib.h>

#define SIZES(h, d, r) .heads = h, .dim = d, .rope_dim = r
#define ALL_OF(dtype_name) .dtype = dtype_name, .dtype_kv = dtype_name, .dtype_o = dtype_name
#define TYPES(a, b, c) .dtype = a, .dtype_kv = b, .dtype_o = c
#define GROUPS(dtype) .has_groups = true, .dtype_kpe = dtype
#define BF16 ALL_OF(QNI_BF16)
#define F16 ALL_OF(QNI_F16)
#define QUICK .is_quick = true
#define RAMPS .values = QNI_MLA_RAMPS, .has_lse = true

// clang-format off: a case a line
static const qni_mla_spec specs[] = {
    // DeepSeek's sizes: heads, query tokens, pages, one tensor or two.
    {1, {1}, {70}, SIZES(16, 512, 64), BF16, .page = 64, .has_lse = true, QUICK},
    {3, {1, 2, 1}, {33, 1, 130}, SIZES(16, 512, 64), BF16, .page = 1, .is_joined = true, .is_causal = true},
    {2, {4, 1}, {70, 9}, SIZES(8, 512, 64), BF16, .page = 16, .is_joined = true, .is_causal = true, .has_lse = true, QUICK},
    {1, {1}, {40}, SIZES(128, 512, 64), BF16, .page = 32},
    {2, {3, 1}, {65, 64}, SIZES(1, 512, 64), F16, .page = 8, .has_lse = true, .is_natural = true},
    {1, {2}, {300}, SIZES(4, 512, 64), F16, .page = 64, .is_joined = true, .chunk = 100, .splits = 2},
    // FP8 caches with scales, of every kind; FP8 queries.
    {1, {2}, {70}, SIZES(16, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 64, .has_scales = true, .has_lse = true, QUICK},
    {2, {1, 1}, {40, 33}, SIZES(20, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .is_joined = true,
     .has_scales = true, QUICK},
    {1, {3}, {37}, SIZES(4, 512, 64), TYPES(QNI_F16, QNI_E5M2, QNI_F32), .page = 1, .is_causal = true},
    {1, {1}, {50}, SIZES(5, 128, 64), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_BF16), .page = 4, .has_scales = true},
    {1, {1}, {50}, SIZES(5, 64, 16), TYPES(QNI_F32, QNI_E5M2FNUZ, QNI_F16), .page = 4, .is_joined = true},
    // CDNA's kernels for these sizes: at most 16 rows and more; FP8 in q; several tiles of rows; o
    // of every type.
    {2, {1, 1}, {100, 33}, SIZES(16, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_F32), .page = 64, .is_joined = true, .has_scales = true,
     .has_lse = true, QUICK},
    {2, {2, 5}, {90, 50}, SIZES(5, 512, 64), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ, QNI_BF16), .page = 7, .is_causal = true, .has_lse = true,
     QUICK},
    {2, {1, 1}, {37, 300}, SIZES(16, 512, 64), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_F16), .page = 1, .has_scales = true, QUICK},
    {1, {1}, {70}, SIZES(16, 512, 64), TYPES(QNI_E5M2, QNI_E5M2, QNI_F16), .page = 1},
    {2, {3, 2}, {70, 200}, SIZES(64, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .is_joined = true, .is_causal = true,
     .has_lse = true},
    {2, {3, 2}, {70, 200}, SIZES(64, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_F32), .page = 16, .is_joined = true, .is_causal = true,
     .has_lse = true, .chunk = 48},
    {1, {2}, {77}, SIZES(24, 512, 64), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ, QNI_F16), .page = 3, .gap = 16, .has_scales = true, .has_lse = true,
     QUICK},
    {1, {2}, {150}, SIZES(8, 512, 64), TYPES(QNI_BF16, QNI_BF16, QNI_F16), .page = 12, .chunk = 64, .splits = 1, .is_causal = true,
     .has_lse = true, QUICK},
    {1, {1}, {300}, SIZES(128, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 64, RAMPS, .chunk = 80},
    // Requests of at most 16 rows and of more in one batch, all of them split; more chunks than a
    // wave has lanes, whose rows one wave merges or several.
    {3, {1, 3, 2}, {150, 200, 40}, SIZES(12, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .has_scales = true,
     .has_lse = true, .chunk = 32, QUICK},
    {3, {1, 3, 2}, {150, 200, 40}, SIZES(12, 512, 64), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_F32), .page = 16, .is_causal = true,
     .has_lse = true, .chunk = 32},
    {1, {2}, {200}, SIZES(24, 512, 64), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ, QNI_F16), .page = 16, .has_scales = true, .has_lse = true,
     .chunk = 48},
    {2, {1, 3}, {150, 200}, SIZES(12, 512, 64), BF16, .page = 16, .is_causal = true, .has_lse = true, .chunk = 32, QUICK},
    {2, {1, 2}, {1100, 40}, SIZES(9, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_F16), .page = 16, .has_lse = true, .chunk = 16},
    {1, {1}, {1100}, SIZES(16, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .has_scales = true, .has_lse = true,
     .chunk = 16, QUICK},
    {1, {1}, {1100}, SIZES(4, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_F16), .page = 16, .has_lse = true, .chunk = 16},
    {1, {2}, {1100}, SIZES(8, 512, 64), TYPES(QNI_BF16, QNI_BF16, QNI_F32), .page = 64, .is_causal = true, .chunk = 16},
    {1, {16}, {300}, SIZES(1, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 64, RAMPS, .is_causal = true, QUICK},
    {2, {2, 0}, {300, 4}, SIZES(8, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 32, .values = QNI_MLA_PEAKS, .has_lse = true},
    {1, {2}, {300}, SIZES(100, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 32, .values = QNI_MLA_PEAKS, .has_lse = true},
    // FP8 caches with scales of groups and kpe of 16 bits or f32: fp8_ds_mla, other dims, all
    // weight on one key.
    {2, {2, 1}, {70, 9}, SIZES(8, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), GROUPS(QNI_BF16), .page = 64, .gap = 16,
     .is_causal = true, .has_lse = true, QUICK},
    {1, {1}, {40}, SIZES(128, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), GROUPS(QNI_BF16), .page = 16, .has_scales = true},
    {1, {2}, {300}, SIZES(4, 512, 64), TYPES(QNI_F16, QNI_E4M3FN, QNI_F16), GROUPS(QNI_F16), .page = 64, .chunk = 100, .splits = 2,
     QUICK},
    {1, {3}, {37}, SIZES(3, 300, 33), TYPES(QNI_F32, QNI_E5M2, QNI_F32), GROUPS(QNI_F32), .page = 5, .gap = 3, .offset = 1,
     .has_lse = true, .is_natural = true, QUICK},
    {1, {1}, {20}, SIZES(2, 128, 8), TYPES(QNI_E4M3FN, QNI_E5M2FNUZ, QNI_BF16), GROUPS(QNI_BF16), .page = 1},
    {2, {1, 3}, {333, 65}, SIZES(6, 256, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_F32), GROUPS(QNI_BF16), .page = 16, RAMPS,
     .is_causal = true},
    {3, {2, 0, 3}, {0, 20, 2}, SIZES(4, 129, 16), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), GROUPS(QNI_BF16), .page = 4,
     .is_causal = true, .has_lse = true},
    // Any dims, gaps and offsets; other pairs of types.
    {1, {5}, {9}, SIZES(2, 33, 5), ALL_OF(QNI_F32), .page = 3, .gap = 3, .offset = 1, .is_causal = true, .has_lse = true, QUICK},
    {1, {1}, {3}, SIZES(1, 1, 1), ALL_OF(QNI_F32), .page = 2, .has_lse = true},
    {1, {2}, {20}, SIZES(3, 511, 63), BF16, .page = 5, .is_joined = true, .offset = 1},
    {1, {2}, {20}, SIZES(3, 256, 32), BF16, .page = 16, .gap = 8, .offset = 8},
    {1, {6}, {30}, SIZES(4, 72, 24), TYPES(QNI_F32, QNI_BF16, QNI_F16), .page = 7, .has_scales = true},
    {1, {2}, {40}, SIZES(10, 40, 8), TYPES(QNI_BF16, QNI_F16, QNI_F32), .page = 7, .is_joined = true},
    // Requests without keys, without queries, with more queries than keys.
    {3, {2, 0, 3}, {0, 20, 2}, SIZES(4, 64, 16), BF16, .page = 4, .is_causal = true, .has_lse = true, QUICK},
    {3, {2, 0, 3}, {0, 20, 2}, SIZES(4, 512, 64), BF16, .page = 4, .is_causal = true, .has_lse = true},
    // All weight on the first or last key that is seen: bounds, pages, chunks, tiles of rows and
    // keys.
    {2, {1, 3}, {333, 65}, SIZES(6, 128, 64), BF16, .page = 16, RAMPS, .is_causal = true, QUICK},
    {2, {1, 3}, {333, 65}, SIZES(6, 512, 64), BF16, .page = 16, RAMPS, .is_causal = true},
    {2, {4, 1}, {320, 33}, SIZES(17, 64, 16), BF16, .page = 1, RAMPS, .is_causal = true},
    {1, {2}, {700}, SIZES(2, 32, 8), F16, .page = 64, RAMPS, .is_causal = true, .chunk = 96, .splits = 3, QUICK},
    {1, {40}, {129}, SIZES(3, 64, 16), BF16, .page = 64, .is_joined = true, RAMPS, .is_causal = true},
    {1, {30}, {310}, SIZES(2, 64, 8), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 16, RAMPS, .is_causal = true},
    {2, {4, 1}, {320, 33}, SIZES(17, 512, 64), BF16, .page = 1, RAMPS, .is_causal = true},
    {1, {2}, {500}, SIZES(20, 512, 64), F16, .page = 64, .is_joined = true, RAMPS, .is_causal = true, .chunk = 96, .splits = 3},
    {1, {1}, {400}, SIZES(128, 512, 64), BF16, .page = 64, RAMPS, .chunk = -1},
    // Maxima that rise far from one tile of keys to the next.
    {1, {2}, {300}, SIZES(4, 64, 16), BF16, .page = 32, .values = QNI_MLA_PEAKS, .has_lse = true, QUICK},
    {1, {1}, {150}, SIZES(16, 512, 64), F16, .page = 64, .values = QNI_MLA_PEAKS, .has_lse = true},
    {1, {2}, {300}, SIZES(4, 512, 64), BF16, .page = 32, .values = QNI_MLA_PEAKS, .has_lse = true, .has_scales = true},
};

/** A request whose keys reach over more than one chunk, with what the others are like. */
static const qni_mla_spec among_others[] = {
    {.qo = {1, 9, 3}, .kv = {300, 90, 17}, SIZES(4, 64, 16), BF16, .page = 16, .has_lse = true, QUICK},
    {.qo = {2, 1, 5}, .kv = {530, 40, 6}, SIZES(3, 512, 64), F16, .page = 64, .is_joined = true, .is_causal = true},
    {.qo = {1, 5, 3}, .kv = {300, 90, 17}, SIZES(20, 512, 64), BF16, .page = 16, .has_lse = true},
    {.qo = {1, 2, 3}, .kv = {300, 90, 17}, SIZES(16, 512, 64), BF16, .page = 16, .has_lse = true, QUICK},
    {.qo = {2, 1, 5}, .kv = {290, 600, 17}, SIZES(8, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .is_causal = true},
    {.qo = {1, 2, 3}, .kv = {300, 90, 17}, SIZES(16, 512, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16, .has_lse = true,
     .chunk = 16, QUICK},
    {.qo = {1, 2, 3}, .kv = {300, 90, 17}, SIZES(16, 512, 64), BF16, .page = 16, .has_lse = true, .chunk = 16},
    {.qo = {1, 33, 1}, .kv = {300, 33, 280}, SIZES(20, 64, 16), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 1, .has_scales = true},
    {.qo = {1, 9, 3}, .kv = {300, 90, 17}, SIZES(4, 512, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), GROUPS(QNI_BF16), .page = 16, .has_lse = true},
    {.qo = {3, 30, 1}, .kv = {290, 30, 9}, SIZES(2, 33, 5), ALL_OF(QNI_F32), .page = 5, .has_lse = true, QUICK},
};
// clang-format on

static qn_status try_spec(qni_trial_run *run, const qni_mla_spec *spec) {
    qni_mla_case *const c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(qni_mla_case_create(c, qni_trial_stream(run), spec,
                                   qni_trial_seed(run) + (uint64_t)(spec - specs)));
    QN_TRY_OUT(qni_trial_problem_run(
        run, &(qni_trial_problem){.op = &qni_op_mla,
                                  .text = c->text,
                                  .problem = &c->problem,
                                  .context = &(qni_areas){c->areas, QNI_MLA_AREAS},
                                  .reset = qni_areas_reset,
                                  .call = qni_mla_call(&c->problem),
                                  .compare = qni_areas_compare,
                                  .outputs = c->outputs,
                                  .num_outputs = 1 + spec->has_lse}));
out:
    qni_mla_case_destroy(c);
    free(c);
    return st;
}

// ---- in batches

/** Request `common`'s o and lse, as two tensors without gaps. */
typedef struct common_rows {
    DLTensor list[2];
    int64_t shape[2];
} common_rows;

static int find_rows(const qni_mla_case *c, common_rows *rows) {
    const int count = 1 + c->spec->has_lse;
    const int64_t heads = c->spec->heads, tokens = c->spec->qo[0];
    for (int i = 0; i < count; i++) {
        const int which = i ? QNI_MLA_LSE : QNI_MLA_O;
        const qni_area *a = &c->areas[which];
        const int64_t token = c->tensors[which].strides[0];
        rows->shape[i] = tokens * token - (token / heads - (i ? 1 : c->spec->dim));
        rows->list[i] =
            (DLTensor){.data = (char *)qni_area_device(a) +
                               qni_mla_case_common_token(c) * token * qni_dtype_bytes(a->dtype),
                       .device = qn_device_id(a->owner),
                       .ndim = 1,
                       .dtype = qni_dl_dtype(a->dtype),
                       .shape = &rows->shape[i]};
    }
    return count;
}

static qn_status add_batch(qni_trial_batches *batches, const qni_mla_spec *spec) {
    qni_mla_case *const c = calloc(1, sizeof *c);
    common_rows rows;
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(
        qni_mla_case_create(c, qni_trial_stream(batches->run), spec, qni_trial_seed(batches->run)));
    const int count = find_rows(c, &rows);
    QN_TRY_OUT(qni_trial_batches_add(
        batches, &(qni_trial_problem){.op = batches->op,
                                      .text = c->text,
                                      .problem = &c->problem,
                                      .context = &(qni_areas){c->areas, QNI_MLA_AREAS},
                                      .reset = qni_areas_reset,
                                      .call = qni_mla_call(&c->problem),
                                      .outputs = (const DLTensor *[]){&rows.list[0], &rows.list[1]},
                                      .num_outputs = count}));
out:
    qni_mla_case_destroy(c);
    free(c);
    return st;
}

static qn_status try_among_others(qni_trial_run *run, const qni_mla_spec *base) {
    static const int32_t counts[] = {1, 9, 40};
    qni_trial_batches batches = {.run = run, .op = &qni_op_mla};
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof counts / sizeof *counts; i++) {
        qni_mla_spec spec = *base;
        spec.batches = counts[i], spec.common = counts[i] / 2, spec.is_bits_alone = true;
        st = add_batch(&batches, &spec);
    }
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    const bool is_quick = qni_trial_is_quick(run);
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof specs / sizeof *specs; i++)
        if (!is_quick || specs[i].is_quick)
            st = try_spec(run, &specs[i]);
    for (size_t i = 0; st == QN_OK && i < sizeof among_others / sizeof *among_others; i++)
        if (!is_quick || among_others[i].is_quick)
            st = try_among_others(run, &among_others[i]);
    return st;
}

static const qni_op *const ops[] = {&qni_op_mla, nullptr};
const qni_family qni_family_mla = {"mla", ops, try_op};
