// SPDX-License-Identifier: Apache-2.0
// qn_quantize_and_cache_mla: reads its tensors and makes a problem.
#include "kvcache.h"

static const char op[] = "quantize_and_cache_mla";

enum { KV_C, K_PE, CKV_CACHE, SCALE_CACHE, KPE_CACHE, PAGES };
enum { NUM_TENSORS = PAGES + QNI_MAX_PAGE_TENSORS };

typedef struct groups_call {
    qni_call of;
    qni_tensor t[NUM_TENSORS];
    qni_cache_view views[3]; // of ckv_cache, scale_cache, kpe_cache
} groups_call;

static qn_status check_dtype(const qni_tensor *t, bool is_accepted, const char *accepted) {
    if (is_accepted)
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: %s", op, t->name,
                   qni_dtype_name(t->dtype), accepted);
}

static qn_status read_tokens(groups_call *c, const qn_quantize_and_cache_mla_args *a) {
    c->t[KV_C] = (qni_tensor){.name = "kv_c",
                              .t = a->kv_c,
                              .ndim = 2,
                              .dtypes = qni_of_floats,
                              .shape = (const int64_t[]){-1, -1},
                              .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[KV_C], 1));
    c->t[K_PE] = (qni_tensor){.name = "k_pe",
                              .t = a->k_pe,
                              .ndim = 2,
                              .dtypes = qni_of_floats,
                              .shape = (const int64_t[]){c->t[KV_C].size[0], -1},
                              .has_rows = true};
    QN_TRY(qni_read_tensors(&c->of, &c->t[K_PE], 1));
    return check_dtype(&c->t[K_PE], c->t[K_PE].dtype == c->t[KV_C].dtype,
                       qni_dtype_name(c->t[KV_C].dtype));
}

/** Reads a cache of `width` columns, which has the pages of the first one. */
static qn_status read_cache(groups_call *c, int i, const char *name, DLTensor *cache,
                            int64_t width) {
    const qni_cache_view *first = &c->views[0], *view = &c->views[i];
    QN_TRY(
        qni_read_cache(&c->of, &c->t[CKV_CACHE + i], name, cache, QN_NHD, -1, width, &c->views[i]));
    if (view->pages == first->pages && view->page_size == first->page_size)
        return QN_OK;
    return QN_FAIL(
        QN_E_INVALID, "%s: %s has %ld pages of %ld, ckv_cache %ld of %ld; both need the same", op,
        name, (long)view->pages, (long)view->page_size, (long)first->pages, (long)first->page_size);
}

static qn_status read_caches(groups_call *c, const qn_quantize_and_cache_mla_args *a) {
    const int64_t width = c->t[KV_C].size[1];
    const int64_t groups = (width + QK_CACHE_GROUP - 1) / QK_CACHE_GROUP;
    QN_TRY(read_cache(c, 0, "ckv_cache", a->ckv_cache, width));
    QN_TRY(check_dtype(&c->t[CKV_CACHE], qni_is_fp8(c->t[CKV_CACHE].dtype), "FP8"));
    QN_TRY(read_cache(c, 1, "scale_cache", a->scale_cache, groups));
    QN_TRY(check_dtype(&c->t[SCALE_CACHE], c->t[SCALE_CACHE].dtype == QNI_F32, "f32"));
    QN_TRY(read_cache(c, 2, "kpe_cache", a->kpe_cache, c->t[K_PE].size[1]));
    return check_dtype(&c->t[KPE_CACHE], c->t[KPE_CACHE].dtype == c->t[K_PE].dtype,
                       qni_dtype_name(c->t[K_PE].dtype));
}

static qni_groups_problem problem_of(const groups_call *c) {
    const qni_tensor *t = c->t;
    const qni_cache_view *v = c->views;
    return (qni_groups_problem){.dtype = t[KV_C].dtype,
                                .dtype_codes = t[CKV_CACHE].dtype,
                                .n = t[KV_C].size[0],
                                .width = t[KV_C].size[1],
                                .rope_width = t[K_PE].size[1],
                                .args = {.ckv = t[KV_C].data,
                                         .kpe = t[K_PE].data,
                                         .codes = v[0].data,
                                         .scales = v[1].data,
                                         .rope = v[2].data,
                                         .ckv_token = t[KV_C].stride[0],
                                         .kpe_token = t[K_PE].stride[0],
                                         .codes_page = v[0].page,
                                         .codes_place = v[0].place,
                                         .scales_page = v[1].page,
                                         .scales_place = v[1].place,
                                         .rope_page = v[2].page,
                                         .rope_place = v[2].place}};
}

qn_status qn_quantize_and_cache_mla(qn_stream *stream, const qn_quantize_and_cache_mla_args *args) {
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_quantize_and_cache_mla_args, args));
    groups_call c = {.of = {op, stream}};
    if (!args->slot_mapping)
        return QN_FAIL(QN_E_INVALID, "%s: slot_mapping is null", op);
    QN_TRY(read_tokens(&c, args));
    QN_TRY(read_caches(&c, args));
    qni_groups_problem p = problem_of(&c);
    QN_TRY(qni_read_pages(stream, &c.of, &(qni_page_tensors){.slot_mapping = args->slot_mapping},
                          p.n, &c.views[0], &c.t[PAGES], &p.args.pages));
    QN_TRY(qni_check_apart(&c.of, c.t, NUM_TENSORS));
    return p.n > 0 ? qni_run(&qni_op_kvcache_groups, stream, &p) : QN_OK;
}
