// SPDX-License-Identifier: Apache-2.0
// qn_gather_paged_mla_kv_cache: reads its tensors and makes a problem.
#include "kvcache.h"

static const char op[] = "gather_paged_mla_kv_cache";

enum { OUT, CACHE, SCALE, SCALES, PAGES, NUM_TENSORS = PAGES + QNI_MAX_PAGE_TENSORS };

static qn_status check_places(const qn_gather_paged_mla_kv_cache_args *a) {
    const DLTensor *others[] = {a->batch_indices, a->positions, a->kv_indices, a->kv_indptr,
                                a->kv_last_page_len};
    static const char *const names[] = {"batch_indices", "positions", "kv_indices", "kv_indptr",
                                        "kv_last_page_len"};
    for (int i = 0; a->slot_mapping && i < 5; i++)
        if (others[i])
            return QN_FAIL(QN_E_INVALID, "%s: %s is given beside slot_mapping; accepted: null", op,
                           names[i]);
    return QN_OK;
}

static qn_status check_dtypes(const qni_tensor *t, const char *scale) {
    const qni_dtype cache = t[CACHE].dtype, out = t[OUT].dtype;
    const bool is_scaled = scale;
    if (is_scaled && !qni_is_fp8(cache))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: cache has dtype %s; accepted with %s: FP8", op,
                       qni_dtype_name(cache), scale);
    if (is_scaled ? !qni_is_float16_or_32(out) : out != cache)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: out has dtype %s; accepted: %s", op,
                       qni_dtype_name(out), is_scaled ? "f32, f16, bf16" : qni_dtype_name(cache));
    return QN_OK;
}

/** Reads the scale of all codes, or those of groups. */
static qn_status read_scales(const qni_call *call, const qn_gather_paged_mla_kv_cache_args *a,
                             qni_tensor *t, qni_gather_problem *p) {
    const int64_t groups = (p->width + QK_CACHE_GROUP - 1) / QK_CACHE_GROUP;
    if (a->scale && a->scales)
        return QN_FAIL(QN_E_INVALID, "%s: scale is given beside scales; accepted: one of them", op);
    t[SCALE] = qni_given_scale("scale", a->scale);
    t[SCALE].may_be_null = true;
    t[SCALES] = (qni_tensor){
        .name = "scales",
        .t = a->scales,
        .ndim = 3,
        .dtypes = qni_of_f32,
        .shape = (const int64_t[]){t[CACHE].size[0], t[CACHE].size[1], groups},
        .may_be_null = true,
        .has_rows = true,
    };
    QN_TRY(qni_read_tensors(call, &t[SCALE], 2));
    p->scale = t[SCALE].data, p->scales = t[SCALES].data;
    p->scale_page = t[SCALES].stride[0], p->scale_place = t[SCALES].stride[1];
    return check_dtypes(t, a->scale ? "scale" : a->scales ? "scales" : nullptr);
}

/** Reads the cache, out and the scales into the problem. */
static qn_status read_rows(const qni_call *call, const qn_gather_paged_mla_kv_cache_args *a,
                           qni_tensor *t, qni_gather_problem *p, qni_cache_view *view) {
    DLTensor *const cache = (DLTensor *)a->cache; // that it is only read is said below
    QN_TRY(qni_read_cache(call, &t[CACHE], "cache", cache, QN_NHD, -1, -1, view));
    t[CACHE].is_written = false;
    p->width = t[CACHE].size[2];
    t[OUT] = (qni_tensor){.name = "out",
                          .t = a->out,
                          .ndim = 2,
                          .dtypes = qni_of_floats | qni_of_fp8,
                          .shape = (const int64_t[]){-1, p->width},
                          .has_rows = true,
                          .is_written = true};
    QN_TRY(qni_read_tensors(call, &t[OUT], 1));
    QN_TRY(read_scales(call, a, t, p));
    p->dtype = t[CACHE].dtype, p->dtype_out = t[OUT].dtype;
    p->cache = view->data, p->page = view->page, p->place = view->place;
    p->out = t[OUT].data, p->out_token = t[OUT].stride[0], p->n = t[OUT].size[0];
    return QN_OK;
}

qn_status qn_gather_paged_mla_kv_cache(qn_stream *stream,
                                       const qn_gather_paged_mla_kv_cache_args *args) {
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_gather_paged_mla_kv_cache_args, args));
    const qni_call call = {op, stream};
    const qni_page_tensors pages = {.slot_mapping = args->slot_mapping,
                                    .batch_indices = args->batch_indices,
                                    .positions = args->positions,
                                    .kv_indices = args->kv_indices,
                                    .kv_indptr = args->kv_indptr,
                                    .kv_last_page_len = args->kv_last_page_len};
    qni_gather_problem p = {};
    qni_cache_view view;
    qni_tensor t[NUM_TENSORS] = {};
    QN_TRY(check_places(args));
    QN_TRY(read_rows(&call, args, t, &p, &view));
    if (p.scale)
        QN_TRY(qni_validate_scale(stream, op, "scale", p.scale));
    QN_TRY(qni_read_pages(stream, &call, &pages, p.n, &view, &t[PAGES], &p.pages));
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    return p.n > 0 ? qni_run(&qni_op_kvcache_gather, stream, &p) : QN_OK;
}
