// SPDX-License-Identifier: Apache-2.0
// What qn_mla_decode refuses and leaves alone, and small results that are known, on the CPU.
// families_test shows that kernels agree with the definition on every device.
#include "../shared/op_test.h"
#include "mla.h"

enum { TOKENS = 3, HEADS = 2, DIM = 8, ROPE = 4, PAGE = 2, PAGES = 4, KEYS = 5 };

static box q_nope, q_pe, ckv, kpe, o, lse, indices, workspace, schedule, scales;
static qn_mla_args args;
static alignas(8) uint8_t plan[1024];

/** Returns what the plan of one request of TOKENS queries and KEYS keys in pages 3, 1, 2 is made
 *  from. */
static qn_attention_plan_args usual_plan(void) {
    static const int32_t qo_indptr[] = {0, TOKENS}, kv_indptr[] = {0, 3}, last[] = {1};
    return (qn_attention_plan_args){.struct_size = sizeof(qn_attention_plan_args),
                                    .batches = 1,
                                    .qo_indptr = qo_indptr,
                                    .kv_indptr = kv_indptr,
                                    .kv_last_page_len = last,
                                    .page_size = PAGE,
                                    .num_qo_heads = HEADS,
                                    .num_kv_heads = 1,
                                    .head_dim_vo = DIM};
}

static void plan_from(const qn_attention_plan_args *a) {
    int64_t workspace_bytes;
    args.plan = plan;
    args.plan_bytes = sizeof plan;
    assert_int_equal(qn_attention_plan(plan, &args.plan_bytes, &workspace_bytes, a), QN_OK);
    MAKE(&workspace, QNI_U8, workspace_bytes);
    args.workspace = &workspace.t;
}

static void make_call(qni_dtype dtype, qni_dtype dtype_kv, int64_t kv_chunk) {
    qn_attention_plan_args a = usual_plan();
    a.kv_chunk = kv_chunk;
    MAKE(&q_nope, dtype, TOKENS, HEADS, DIM);
    MAKE(&q_pe, dtype, TOKENS, HEADS, ROPE);
    MAKE(&ckv, dtype_kv, PAGES, PAGE, DIM);
    MAKE(&kpe, dtype_kv, PAGES, PAGE, ROPE);
    MAKE(&o, QNI_F32, TOKENS, HEADS, DIM);
    MAKE(&lse, QNI_F32, TOKENS, HEADS);
    INDICES(&indices, 3, 1, 2);
    fill(&q_nope, 0);
    fill(&q_pe, 0);
    args = (qn_mla_args){.struct_size = sizeof args,
                         .o = &o.t,
                         .lse = &lse.t,
                         .q_nope = &q_nope.t,
                         .q_pe = &q_pe.t,
                         .ckv = &ckv.t,
                         .kpe = &kpe.t,
                         .kv_indices = &indices.t,
                         .sm_scale = 1};
    plan_from(&a);
}

/** Returns where key j lies in the caches, in tokens. */
static int64_t token_of(int64_t j) {
    static const int64_t pages[] = {3, 1, 2};
    return pages[j / PAGE] * PAGE + j % PAGE;
}

/** Fills keys with ckv 1 + j, and kpe by `kpe_of`; places of no key stay NaN. */
static void fill_keys(const double *kpe_of) {
    for (int64_t j = 0; j < KEYS; j++) {
        for (int64_t d = 0; d < DIM; d++)
            qni_put(qni_dtype_of(&ckv.t), ckv.data, token_of(j) * DIM + d, 1 + (double)j);
        for (int64_t d = 0; d < ROPE; d++)
            qni_put(qni_dtype_of(&kpe.t), kpe.data, token_of(j) * ROPE + d, kpe_of[j]);
    }
}

static void assert_mla_refused(qn_status want, const char *words) {
    assert_refused(qn_mla_decode(stream, &args), want, words);
    assert_int_equal(o.data[0], 0xFF); // nothing was written
    make_call(QNI_BF16, QNI_BF16, 0);
}

/** With q of zeros o is the mean of what is seen; with causality each query sees one key more. */
static void test_means(void **) {
    static const double none[KEYS] = {};
    for (int is_causal = 0; is_causal < 2; is_causal++) {
        make_call(QNI_BF16, QNI_BF16, 0);
        fill_keys(none);
        args.is_causal = is_causal;
        assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
        for (int64_t i = 0; i < TOKENS * HEADS; i++) {
            const double seen = (double)(is_causal ? KEYS - TOKENS + 1 + i / HEADS : KEYS);
            for (int64_t d = 0; d < DIM; d++)
                assert_true(fabs(at(&o, i * DIM + d) - (seen + 1) / 2) < 0.02);
            assert_true(fabs(at(&lse, i) - log2(seen)) < 1e-5);
        }
    }
}

/** kpe alone gives all weight to one key, whose ckv comes back to the bit, times the scale. */
static void test_rope_part_chooses(void **) {
    static const double third[KEYS] = {0, 0, 64, 0, 0};
    static const qni_dtype kv[] = {QNI_BF16, QNI_F32, QNI_E4M3FN};
    for (size_t i = 0; i < sizeof kv / sizeof *kv; i++) {
        make_call(QNI_BF16, kv[i], i == 1 ? 2 : 0); // once in chunks of two keys
        fill_keys(third);
        fill(&q_pe, 1);
        args.sm_scale = 0.5f, args.q_scale = 2, args.kv_scale = 4;
        args.lse_base = QN_LSE_BASE_E;
        assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
        for (int64_t n = 0; n < TOKENS * HEADS * DIM; n++)
            assert_true(at(&o, n) == 4 * 3); // kv_scale times the third key's 3
        assert_true(fabs(at(&lse, 0) - 4 * ROPE * 64) < 0.1);
    }
}

/** The heads have scales of their own, and the cache one on the device. */
static void test_scale_tensors(void **) {
    static const double third[KEYS] = {0, 0, 64, 0, 0};
    box kv_scale;
    make_call(QNI_BF16, QNI_BF16, 0);
    fill_keys(third);
    fill(&q_pe, 1);
    MAKE(&scales, QNI_F32, HEADS);
    MAKE(&kv_scale, QNI_F32, 1);
    memcpy(scales.data, (const float[]){1, 0}, 8); // the second head sees all keys alike
    memcpy(kv_scale.data, (const float[]){2}, 4);
    args.q_scales = &scales.t, args.kv_scales = &kv_scale.t;
    assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
    assert_true(at(&o, 0) == 2 * 3);
    assert_true(fabs(at(&o, DIM) - 2 * 3) < 0.02); // the mean of 1 to 5, too
    assert_true(fabs(at(&lse, 1) - log2(KEYS)) < 1e-5);
    assert_true(fabs(at(&lse, 0) - 2 * ROPE * 64 / log(2)) < 0.1);
}

static void test_views(void **) {
    static const double third[KEYS] = {0, 0, 64, 0, 0};
    box cache;
    make_call(QNI_F16, QNI_F16, 0);
    fill_keys(third);
    fill(&q_pe, 1);
    MAKE(&cache, QNI_F16, PAGES, PAGE, DIM + ROPE);
    for (int64_t t = 0; t < PAGES * PAGE; t++) {
        memcpy(cache.data + t * (DIM + ROPE) * 2, ckv.data + t * DIM * 2, DIM * 2);
        memcpy(cache.data + (t * (DIM + ROPE) + DIM) * 2, kpe.data + t * ROPE * 2, ROPE * 2);
    }
    ckv.t.data = kpe.t.data = cache.data;
    kpe.t.byte_offset = DIM * 2;
    memcpy(ckv.strides, cache.strides, sizeof cache.strides);
    memcpy(kpe.strides, cache.strides, sizeof cache.strides);
    assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
    assert_true(at(&o, 0) == 3);
}

/** Places a cache as fp8_ds_mla lies in memory: a token's codes, their scales, kpe of bf16. */
static void make_groups(box *cache, box *groups) {
    const int64_t row = DIM + 4 + 2 * ROPE; // bytes
    make_call(QNI_BF16, QNI_E4M3FN, 0);
    fill(&q_pe, 1);
    MAKE(&kpe, QNI_BF16, PAGES, PAGE, ROPE);
    MAKE(groups, QNI_F32, PAGES, PAGE, 1);
    MAKE(cache, QNI_U8, PAGES, PAGE, row);
    ckv.t.data = groups->t.data = kpe.t.data = cache->data;
    groups->t.byte_offset = DIM, kpe.t.byte_offset = DIM + 4;
    ckv.strides[0] = PAGE * row, ckv.strides[1] = row;
    groups->strides[0] = PAGE * row / 4, groups->strides[1] = row / 4;
    kpe.strides[0] = PAGE * row / 2, kpe.strides[1] = row / 2;
    args.ckv_scales = &groups->t;
    for (int64_t j = 0; j < KEYS; j++) {
        uint8_t *token = cache->data + token_of(j) * row;
        for (int64_t d = 0; d < DIM; d++)
            qni_put(QNI_E4M3FN, token, d, 1 + (double)j);
        qni_put(QNI_F32, token + DIM, 0, j == 2 ? 0.25 : 1);
        for (int64_t d = 0; d < ROPE; d++)
            qni_put(QNI_BF16, token + DIM + 4, d, j == 2 ? 64.5 : 0); // no FP8 number
    }
}

/** Codes count times their group's scale, and kpe by itself. */
static void test_groups(void **) {
    box cache, groups;
    make_groups(&cache, &groups);
    assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
    for (int64_t n = 0; n < TOKENS * HEADS * DIM; n++)
        assert_true(at(&o, n) == 0.25 * 3);
    assert_true(fabs(at(&lse, 0) - (double)ROPE * 64.5 / log(2)) < 0.1);
    fill(&q_pe, 0), fill(&q_nope, 16); // keys of 1, 2, 3 / 4, 4 and 5: the last one, by far
    args.is_causal = false;
    assert_int_equal(qn_mla_decode(stream, &args), QN_OK);
    assert_true(at(&o, 0) == 5);
}

static void test_group_refusals(void **) {
    box cache, groups;
    make_groups(&cache, &groups);
    groups.shape[2] = 2;
    assert_mla_refused(QN_E_INVALID, "ckv_scales has shape [4, 2, 2], needs [4, 2, 1]");
    make_groups(&cache, &groups);
    groups.t.dtype = qni_dl_dtype(QNI_I32);
    assert_mla_refused(QN_E_UNSUPPORTED, "ckv_scales has dtype i32");
    make_groups(&cache, &groups);
    MAKE(&kpe, QNI_E4M3FN, PAGES, PAGE, ROPE);
    assert_mla_refused(QN_E_UNSUPPORTED,
                       "kpe has dtype e4m3fn; accepted with ckv_scales: f32, f16, bf16");
    make_groups(&cache, &groups);
    MAKE(&ckv, QNI_BF16, PAGES, PAGE, DIM);
    assert_mla_refused(QN_E_UNSUPPORTED, "ckv has dtype bf16; accepted with ckv_scales: FP8");
    make_groups(&cache, &groups);
    args.ckv_scales = nullptr;
    assert_mla_refused(QN_E_UNSUPPORTED, "ckv has dtype e4m3fn, kpe bf16; both need the same");
}

static void test_input_refusals(void **) {
    make_call(QNI_BF16, QNI_BF16, 0);
    args.q_pe = nullptr;
    assert_mla_refused(QN_E_INVALID, "mla_decode: q_pe is null");
    args.ckv = nullptr;
    assert_mla_refused(QN_E_INVALID, "ckv is null");
    args.kv_indices = nullptr;
    assert_mla_refused(QN_E_INVALID, "kv_indices is null");
    MAKE(&q_nope, QNI_BF16, TOKENS, HEADS, 513);
    assert_mla_refused(QN_E_UNSUPPORTED, "q_nope has a last dimension of 513; accepted: 1 to 512");
    MAKE(&q_pe, QNI_BF16, TOKENS, HEADS, 65);
    assert_mla_refused(QN_E_UNSUPPORTED, "q_pe has a last dimension of 65; accepted: 1 to 64");
    MAKE(&q_pe, QNI_BF16, TOKENS, HEADS + 1, ROPE);
    assert_mla_refused(QN_E_INVALID, "q_pe [3, 3, 4] bf16 strides [12, 4, 1]; all but the last "
                                     "dimension need to be the same");
    MAKE(&kpe, QNI_BF16, PAGES, PAGE + 1, ROPE);
    assert_mla_refused(QN_E_INVALID,
                       "ckv is [4, 2, 8] bf16 strides [16, 8, 1], kpe [4, 3, 4] bf16");
    MAKE(&ckv, QNI_BF16, PAGES, PAGE, DIM + 1);
    assert_mla_refused(QN_E_INVALID, "q_nope has a last dimension of 8, ckv 9; both need the same");
    MAKE(&kpe, QNI_BF16, PAGES, PAGE, ROPE + 1);
    assert_mla_refused(QN_E_INVALID, "q_pe has a last dimension of 4, kpe 5; both need the same");
    MAKE(&kpe, QNI_F16, PAGES, PAGE, ROPE);
    assert_mla_refused(QN_E_UNSUPPORTED, "ckv has dtype bf16, kpe f16; both need the same");
    MAKE(&q_nope, QNI_I32, TOKENS, HEADS, DIM);
    assert_mla_refused(QN_E_UNSUPPORTED, "q_nope has dtype i32; accepted: f32, f16, bf16, e4m3fn");
    MAKE(&q_nope, QNI_BF16, TOKENS, 0, DIM);
    MAKE(&q_pe, QNI_BF16, TOKENS, 0, ROPE);
    assert_mla_refused(QN_E_INVALID, "q_nope has 0 heads, needs 1 or more");
    MAKE(&ckv, QNI_BF16, PAGES, 0, DIM);
    MAKE(&kpe, QNI_BF16, PAGES, 0, ROPE);
    assert_mla_refused(QN_E_INVALID, "ckv has pages of 0, needs 1 or more");
}

static void test_other_refusals(void **) {
    make_call(QNI_BF16, QNI_BF16, 0);
    args.struct_size = 8;
    assert_mla_refused(QN_E_INVALID, "args.struct_size is 8");
    args.sm_scale = 0;
    assert_mla_refused(QN_E_INVALID, "sm_scale is 0; accepted: above 0, finite");
    args.sm_scale = NAN;
    assert_mla_refused(QN_E_INVALID, "sm_scale is nan");
    args.q_scale = -1;
    assert_mla_refused(QN_E_INVALID, "q_scale is -1");
    args.kv_scale = INFINITY;
    assert_mla_refused(QN_E_INVALID, "kv_scale is inf");
    args.q_scale = args.kv_scale = 1e30f;
    assert_mla_refused(QN_E_INVALID, "sm_scale, q_scale and kv_scale multiply to inf");
    args.lse_base = 7;
    assert_mla_refused(QN_E_INVALID, "lse_base is 7");
    MAKE(&scales, QNI_F32, HEADS + 1);
    args.q_scales = &scales.t;
    assert_mla_refused(QN_E_INVALID, "q_scales has shape [3], needs [2]");
    MAKE(&scales, QNI_F32, HEADS);
    args.kv_scales = &scales.t;
    assert_mla_refused(QN_E_INVALID, "kv_scales has shape [2], needs [1]");
    MAKE(&o, QNI_BF16, TOKENS, HEADS, DIM + ROPE);
    assert_mla_refused(QN_E_INVALID, "o has shape [3, 2, 12], needs [3, 2, 8]");
    MAKE(&lse, QNI_F32, TOKENS, HEADS + 1);
    assert_mla_refused(QN_E_INVALID, "lse has shape [3, 3], needs [3, 2]");
    o.t.data = q_nope.data;
    assert_refused(qn_mla_decode(stream, &args), QN_E_INVALID, "o overlaps q_nope");
    make_call(QNI_BF16, QNI_BF16, 2);
    args.workspace = nullptr;
    assert_mla_refused(QN_E_INVALID, "workspace is null, needs 648 bytes"); // 3 chunks, 3 tokens
    MAKE(&schedule, QNI_U8, args.plan_bytes + 1);
    args.schedule = &schedule.t;
    assert_mla_refused(QN_E_INVALID, "schedule has shape");
    ((int32_t *)indices.data)[1] = PAGES;
    assert_mla_refused(QN_E_INVALID, "mla_decode: kv_indices[1] is 4; accepted: 0 to 3");
}

static void test_plan_refusals(void **) {
    qn_attention_plan_args a = usual_plan();
    make_call(QNI_BF16, QNI_BF16, 0);
    args.plan = nullptr;
    assert_mla_refused(QN_E_INVALID, "plan is null, needs one of qn_attention_plan");
    args.plan_bytes--;
    assert_mla_refused(QN_E_INVALID, "plan is damaged: its header");
    a.num_kv_heads = 2;
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "plan is for 2 and 2 heads and v of 8; q_nope has 2, ckv 1");
    a = usual_plan(), a.head_dim_vo = DIM + ROPE;
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "plan is for 2 and 1 heads and v of 12; q_nope has 2, ckv 1, "
                                     "v is of 8");
    a = usual_plan(), a.page_size = 4;
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "plan is for page_size 4, ckv has 2");
    a = usual_plan(), a.qo_indptr = nullptr, a.qo_len = TOKENS;
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "plan is for dense q and ragged k; q_nope has 3 dimensions");
    a = usual_plan(), a.qo_indptr = (const int32_t[]){0, TOKENS + 1};
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "q_nope has 3 tokens, the plan needs 4");
    a.qo_indptr = (const int32_t[]){0, TOKENS - 1};
    plan_from(&a);
    assert_mla_refused(QN_E_INVALID, "q_nope has 3 tokens, the plan is for 2");
    indices.shape[0] = 2;
    assert_mla_refused(QN_E_INVALID, "kv_indices has 2 entries, the plan needs 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),          cmocka_unit_test(test_rope_part_chooses),
        cmocka_unit_test(test_scale_tensors),  cmocka_unit_test(test_views),
        cmocka_unit_test(test_input_refusals), cmocka_unit_test(test_other_refusals),
        cmocka_unit_test(test_plan_refusals),  cmocka_unit_test(test_groups),
        cmocka_unit_test(test_group_refusals),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
