// SPDX-License-Identifier: Apache-2.0
// What attention's functions refuse and leave alone; plans; the published edge vectors, on the CPU.
// families_test shows that kernels agree with the definition on every device.
#include "../shared/op_test.h"
#include "attention.h"

enum { QUERIES = 3, KEYS = 5, HEADS = 4, KV_HEADS = 2, DIM = 8 };

static box q, k, v, o, lse, mask, workspace, indices, scales;
static qn_attention_args args;

/** Queries and values count up, all keys are equal: o is the mean of the visible values. */
static void fill_steps(box *b, double step) {
    for (int64_t i = 0; i < qni_numel(&b->t); i++)
        qni_put(qni_dtype_of(&b->t), b->data, i, 1 + step * (double)(i / DIM % 16));
}

/** Makes dense tensors [1, tokens, heads, DIM] of f16. */
static void make_dense(int64_t queries, int64_t keys) {
    MAKE(&q, QNI_F16, 1, queries, HEADS, DIM);
    MAKE(&k, QNI_F16, 1, keys, KV_HEADS, DIM);
    MAKE(&v, QNI_F16, 1, keys, KV_HEADS, DIM);
    MAKE(&o, QNI_F16, 1, queries, HEADS, DIM);
    MAKE(&lse, QNI_F32, 1, queries, HEADS);
    fill_steps(&q, 0.25);
    fill_steps(&k, 0);
    fill_steps(&v, 1);
    q.t.strides = k.t.strides = o.t.strides = nullptr; // null strides mean contiguous
    args = (qn_attention_args){
        .struct_size = sizeof args, .o = &o.t, .lse = &lse.t, .q = &q.t, .k = &k.t, .v = &v.t};
}

static void assert_attention_refused(qn_status want, const char *words) {
    assert_refused(qn_attention(stream, &args), want, words);
    assert_int_equal(o.data[0], 0xFF); // nothing was written
}

static double o_at(int64_t query, int64_t head) {
    return qni_get(QNI_F16, o.data, (query * HEADS + head) * DIM);
}
static double v_at(int64_t key, int64_t kv_head) {
    return qni_get(QNI_F16, v.data, (key * KV_HEADS + kv_head) * DIM);
}

/** Checks that o of a query's head is the mean of values first .. last, 0 if last < first. */
static void assert_mean(int64_t query, int64_t first, int64_t last) {
    for (int64_t h = 0; h < HEADS; h++) {
        double sum = 0;
        for (int64_t j = first; j <= last; j++)
            sum += v_at(j, h / (HEADS / KV_HEADS));
        const double want = last < first ? 0 : sum / (double)(last - first + 1);
        assert_true(fabs(o_at(query, h) - want) < 0.01);
        if (last < first)
            assert_true(isinf(((float *)lse.data)[query * HEADS + h]));
    }
}

static void test_causal(void **) {
    make_dense(QUERIES, KEYS);
    args.is_causal = 1;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, 0, i + KEYS - QUERIES);
    args.is_top_left = 1;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, 0, i);
    make_dense(KEYS, QUERIES); // the first queries see nothing
    args.is_causal = 1;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < KEYS; i++)
        assert_mean(i, 0, i - (KEYS - QUERIES));
}

static void test_window(void **) {
    make_dense(KEYS, KEYS);
    args.is_causal = args.has_window_left = 1;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < KEYS; i++)
        assert_mean(i, i, i);
    args.is_causal = 0;
    args.window_left = args.window_right = 1;
    args.has_window_right = 1;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < KEYS; i++)
        assert_mean(i, i > 0 ? i - 1 : 0, i < KEYS - 1 ? i + 1 : KEYS - 1);
}

/** Calls without keys, and without queries. */
static void test_empty(void **) {
    make_dense(QUERIES, KEYS);
    k.shape[1] = v.shape[1] = 0;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, 0, -1);
    make_dense(QUERIES, KEYS);
    q.shape[1] = o.shape[1] = lse.shape[1] = 0;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    assert_int_equal(o.data[0], 0xFF);
}

/** Tests that with one key the result is its value, bit for bit, even at a score of -524288. */
static void test_low_score(void **) {
    make_dense(1, 1);
    for (int64_t i = 0; i < HEADS * DIM; i++)
        qni_put(QNI_F16, q.data, i, 256), qni_put(QNI_F16, k.data, i / 2, -256);
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t h = 0; h < HEADS; h++) {
        assert_true(o_at(0, h) == v_at(0, h / 2));
        assert_true(isfinite(((float *)lse.data)[h]));
    }
}

/** Masks: a boolean mask that all heads share, one of a dtype of its own, and packed bits. */
static void test_masks(void **) {
    make_dense(QUERIES, KEYS);
    MAKE(&mask, QNI_U8, 1, 1, QUERIES, KEYS);
    for (int i = 0; i < QUERIES * KEYS; i++)
        mask.data[i] = i % KEYS == 1 || i % KEYS == 2;
    mask.t.dtype = (DLDataType){kDLBool, 8, 1};
    args.mask = &mask.t;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, 1, 2);
    MAKE(&mask, QNI_BF16, QUERIES, KEYS);
    for (int i = 0; i < QUERIES * KEYS; i++)
        qni_put(QNI_BF16, mask.data, i, i % KEYS == 3 ? 0 : -HUGE_VAL);
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, 3, 3);
    MAKE(&mask, QNI_U8, (QUERIES * KEYS + 7) / 8);
    memset(mask.data, 0, 2);
    for (int i = 0; i < QUERIES; i++)
        mask.data[(i * KEYS + i) / 8] |= (uint8_t)(1 << (i * KEYS + i) % 8);
    args.mask = nullptr;
    args.custom_mask = &mask.t;
    args.is_causal = 1; // has no effect with a custom mask
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < QUERIES; i++)
        assert_mean(i, i, i);
}

static void test_refusals(void **) {
    make_dense(QUERIES, KEYS);
    MAKE(&mask, QNI_U8, 1, 1, QUERIES, KEYS);
    args.mask = &mask.t, args.is_causal = 1;
    assert_attention_refused(QN_E_INVALID, "mask and is_causal are both given");
    args.is_causal = 0;
    MAKE(&mask, QNI_U8, 1, 1, QUERIES, KEYS - 1);
    assert_attention_refused(
        QN_E_INVALID,
        "mask is [1, 1, 3, 4] u8 strides [12, 12, 4, 1]; its dimension 3 needs to be 1 or 5");
    mask.t.dtype = qni_dl_dtype(QNI_I32);
    assert_attention_refused(QN_E_UNSUPPORTED,
                             "mask has dtype i32; accepted: f32, f16, bf16, u8, bool");
    make_dense(QUERIES, KEYS);
    MAKE(&mask, QNI_U8, 3);
    args.custom_mask = &mask.t;
    assert_attention_refused(QN_E_INVALID,
                             "custom_mask has 3 bytes, needs 2: qo_len * kv_len bits");
    MAKE(&mask, QNI_I32, 2);
    assert_attention_refused(QN_E_UNSUPPORTED, "custom_mask has dtype i32; accepted: u8");
    make_dense(QUERIES, KEYS);
    k.shape[2] = v.shape[2] = 3;
    assert_attention_refused(QN_E_INVALID, "num_qo_heads 4 is no multiple of num_kv_heads 3");
    make_dense(QUERIES, KEYS);
    q.shape[3] = k.shape[3] = 520;
    assert_attention_refused(QN_E_UNSUPPORTED,
                             "q has head_dim 520; accepted: 1 to 512 (fast: multiples of 8");
    make_dense(QUERIES, KEYS);
    k.t.dtype = qni_dl_dtype(QNI_BF16);
    assert_attention_refused(QN_E_UNSUPPORTED, "k has dtype bf16, v f16; both need the same");
    make_dense(QUERIES, KEYS);
    q.t.dtype = qni_dl_dtype(QNI_I32);
    assert_attention_refused(
        QN_E_UNSUPPORTED,
        "q has dtype i32; accepted: f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz");
    make_dense(QUERIES, KEYS);
    args.pos_encoding = QN_POS_ALIBI, args.logits_soft_cap = 30;
    assert_attention_refused(QN_E_UNSUPPORTED, "logits_soft_cap with QN_POS_ALIBI");
    make_dense(QUERIES, KEYS);
    args.has_window_left = 1, args.window_left = -1;
    assert_attention_refused(QN_E_INVALID, "window_left is -1; accepted: 0 to 2^31 - 1");
    make_dense(QUERIES, KEYS);
    args.dropout_p = 1;
    assert_attention_refused(QN_E_INVALID, "dropout_p is 1; accepted: 0 to below 1");
    make_dense(QUERIES, KEYS);
    MAKE(&scales, QNI_F32, KV_HEADS);
    args.q_scales = &scales.t;
    assert_attention_refused(QN_E_INVALID, "q_scales has shape [2], needs [4]");
    make_dense(QUERIES, KEYS);
    o.t.data = q.data;
    assert_attention_refused(QN_E_INVALID, "o overlaps q");
    make_dense(QUERIES, KEYS);
    args.struct_size = 8;
    assert_attention_refused(QN_E_INVALID, "args.struct_size is 8");
    make_dense(QUERIES, KEYS);
    MAKE(&q, QNI_F16, QUERIES, HEADS, DIM);
    MAKE(&o, QNI_F16, QUERIES, HEADS, DIM);
    MAKE(&lse, QNI_F32, QUERIES, HEADS);
    assert_attention_refused(QN_E_INVALID, "plan is null; ragged q needs one");
}

/** Returns the workspace that a call of so many queries and keys needs; only shapes are looked
 *  at. */
static int64_t workspace_of(int64_t queries, int64_t keys) {
    int64_t bytes;
    make_dense(QUERIES, KEYS);
    q.shape[1] = queries;
    k.shape[1] = v.shape[1] = keys;
    assert_int_equal(qn_attention_workspace_bytes(&bytes, &args), QN_OK);
    return bytes;
}

/** The workspace does not grow with queries times keys: long prompts need none, and a few queries
 *  need 64 partial results each at most. */
static void test_workspace_is_small(void **) {
    const int64_t row = HEADS * (DIM + 1) * (int64_t)sizeof(float);
    assert_int_equal(workspace_of(1 << 20, 1 << 20), 0);
    assert_int_equal(workspace_of(1, 4096), 16 * row);
    assert_int_equal(workspace_of(1, 1 << 20), 64 * row);
    assert_true(workspace_of(256, 1 << 20) <= 64 * 256 * row);
}

/** Dense keys in several chunks need a workspace. */
static void test_workspace(void **) {
    int64_t bytes;
    make_dense(1, KEYS);
    MAKE(&workspace, QNI_U8, 9); // not needed, so it may lie anywhere
    workspace.t.byte_offset = 1, workspace.shape[0] = 8;
    args.workspace = &workspace.t;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    make_dense(1, 300);
    assert_int_equal(qn_attention_workspace_bytes(&bytes, &args), QN_OK);
    assert_int_equal(bytes, 2 * HEADS * (DIM + 1) * 4); // two chunks of 256
    assert_attention_refused(QN_E_INVALID, "workspace is null, needs 288 bytes");
    MAKE(&workspace, QNI_U8, 287);
    args.workspace = &workspace.t;
    assert_attention_refused(QN_E_INVALID, "workspace has 287 bytes, needs 288");
    MAKE(&workspace, QNI_F32, 72);
    assert_attention_refused(QN_E_UNSUPPORTED, "workspace has dtype f32; accepted: u8");
    MAKE(&workspace, QNI_U8, 296);
    workspace.t.byte_offset = 8;
    assert_attention_refused(QN_E_INVALID, "needs a multiple of 16 bytes");
    MAKE(&workspace, QNI_U8, 288);
    assert_int_equal(qn_attention(stream, &args), QN_OK);
}

// ---- plans

static const int32_t qo_indptr[] = {0, 1, 1, 40}, kv_indptr[] = {0, 3, 5, 5}, last[] = {2, 4, 99};

static qn_attention_plan_args paged_plan(void) {
    return (qn_attention_plan_args){.struct_size = sizeof(qn_attention_plan_args),
                                    .batches = 3,
                                    .qo_indptr = qo_indptr,
                                    .kv_indptr = kv_indptr,
                                    .kv_last_page_len = last,
                                    .page_size = 4,
                                    .num_qo_heads = HEADS,
                                    .num_kv_heads = KV_HEADS,
                                    .head_dim_vo = DIM};
}

/** Makes a plan in fresh memory; the caller frees it. */
static qk_attention_schedule *make_plan(const qn_attention_plan_args *a, int64_t *bytes,
                                        int64_t *workspace_bytes) {
    assert_int_equal(qn_attention_plan(nullptr, bytes, workspace_bytes, a), QN_OK);
    void *plan = malloc((size_t)*bytes);
    assert_non_null(plan);
    assert_int_equal(qn_attention_plan(plan, bytes, workspace_bytes, a), QN_OK);
    assert_null(qni_attention_check_plan(plan, *bytes, true));
    return plan;
}

/** Checks that each row takes each key exactly once, and that each row of a split request is merged
 *  once. */
static void assert_covers(const qk_attention_schedule *s) {
    const uint32_t group = (uint32_t)(s->num_qo_heads / s->num_kv_heads);
    const qk_attention_work *works = qk_attention_works(s);
    for (uint32_t b = 0; b < s->num_requests; b++) {
        const qk_attention_request *r = &qk_attention_requests(s)[b];
        for (uint32_t row = 0; row < (uint32_t)r->qo_len * group; row++) {
            uint32_t keys = 0, visits = 0, merges = 0;
            for (uint32_t i = 0; i < s->num_works + s->num_merges; i++) {
                const qk_attention_work *w = &works[i];
                if (w->request != b || row < w->row_begin || row >= w->row_end)
                    continue;
                if (i >= s->num_works)
                    merges++;
                else if (visits++ == 0 || w->kv_begin == keys)
                    keys = w->kv_end;
            }
            assert_int_equal(keys, r->kv_len);
            assert_int_equal(merges, qk_attention_chunks(r) > 1);
        }
    }
}

/** Checks that the tiles have each chunk of each row of requests of more than few rows once, and
 *  that those with most keys come first. */
static void assert_tiles_cover(const qk_attention_schedule *s) {
    const uint32_t group = (uint32_t)(s->num_qo_heads / s->num_kv_heads);
    const qk_attention_batch_tile *tiles = qk_attention_batch_tiles(s);
    assert_int_equal((const char *)(tiles + s->num_tiles) - (const char *)s, s->bytes);
    for (uint32_t b = 0; b < s->num_requests; b++) {
        const qk_attention_request *r = &qk_attention_requests(s)[b];
        const uint32_t wanted = (uint32_t)r->qo_len * group > QK_ATTENTION_FEW_ROWS;
        for (uint32_t row = 0; row < (uint32_t)r->qo_len * qk_attention_pack(group); row++)
            for (uint32_t chunk = 0; chunk < qk_attention_chunks(r); chunk++) {
                uint32_t visits = 0;
                for (uint32_t i = 0; i < s->num_tiles; i++)
                    visits += tiles[i].request == b && row >= tiles[i].row &&
                              row < tiles[i].row + s->tile_rows &&
                              tiles[i].kv_begin == chunk * (uint32_t)r->kv_chunk;
                assert_int_equal(visits, wanted);
            }
    }
    for (uint32_t i = 1; i < s->num_tiles; i++)
        assert_true(tiles[i - 1].keys >= tiles[i].keys);
}

static void test_tiles(void **) {
    static const int32_t queries[] = {0, 300, 303, 303, 500}, keys[] = {0, 500, 520, 530, 730};
    static const int64_t heads[][2] = {{4, 1}, {6, 2}, {64, 1}, {5, 5}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int64_t dim = 128; dim <= 256; dim *= 2) {
            const qn_attention_plan_args a = {.struct_size = sizeof a,
                                              .batches = 4,
                                              .qo_indptr = queries,
                                              .kv_indptr = keys,
                                              .num_qo_heads = heads[i][0],
                                              .num_kv_heads = heads[i][1],
                                              .head_dim_vo = dim,
                                              .kv_chunk = i == 1   ? 130
                                                          : i == 2 ? 96
                                                                   : 0};
            int64_t bytes, workspace_bytes;
            qk_attention_schedule *plan = make_plan(&a, &bytes, &workspace_bytes);
            assert_int_equal(plan->tile_rows, dim == 128 ? 192 : 128);
            assert_int_equal(plan->has_odd_chunks, i == 1);
            assert_tiles_cover(plan);
            free(plan);
        }
}

static void test_plan(void **) {
    qn_attention_plan_args a = paged_plan();
    int64_t bytes, again, workspace_bytes;
    qk_attention_schedule *plan = make_plan(&a, &bytes, &workspace_bytes);
    const qk_attention_request *r = qk_attention_requests(plan);
    assert_int_equal(r[0].kv_len, 10); // 3 pages of 4, the last one holds 2
    assert_int_equal(r[1].qo_len, 0);
    assert_int_equal(r[2].kv_len, 0); // without pages last_page_len has no effect
    assert_int_equal(workspace_bytes, 0);
    assert_covers(plan);
    qk_attention_schedule *twin = make_plan(&a, &again, &workspace_bytes);
    assert_int_equal(bytes, again);
    assert_memory_equal(plan, twin, (size_t)bytes);
    free(twin);
    free(plan);
}

/** The boundaries of chunks come from the request's own lengths, whatever the batch and the
 *  splits. */
static void test_chunks(void **) {
    static const int32_t lens[] = {2000, 100, 700};
    static const int64_t splits[] = {0, 1, 2, 7};
    for (int i = 0; i < 4; i++)
        for (int64_t batches = 1; batches <= 3; batches++) {
            const qn_attention_plan_args a = {.struct_size = sizeof a,
                                              .batches = batches,
                                              .qo_len = 3,
                                              .kv_lens = lens,
                                              .num_qo_heads = HEADS,
                                              .num_kv_heads = KV_HEADS,
                                              .head_dim_vo = DIM,
                                              .max_kv_splits = splits[i]};
            int64_t bytes, workspace_bytes;
            qk_attention_schedule *plan = make_plan(&a, &bytes, &workspace_bytes);
            assert_covers(plan);
            assert_int_equal(qk_attention_requests(plan)[0].kv_chunk, 256);
            assert_int_equal(qk_attention_requests(plan)[0].partial_begin, 0);
            assert_int_equal(
                plan->num_works,
                (uint32_t)(splits[i] && splits[i] < 8 ? splits[i] : 8) + (batches > 1) +
                    (batches > 2) * (splits[i] && splits[i] < 3 ? (uint32_t)splits[i] : 3));
            free(plan);
        }
}

static void test_plan_refusals(void **) {
    qn_attention_plan_args a = paged_plan();
    int64_t bytes, workspace_bytes, small = 8;
    alignas(8) char room[8];
#define REFUSED(words)                                                                             \
    assert_refused(qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a), QN_E_INVALID, words)
    static const int32_t falling[] = {0, 3, 2, 5}, bad_last[] = {2, 5, 1}, no_last[] = {0, 1, 1};
    a.kv_indptr = falling;
    REFUSED("kv_indptr[2] is 2; accepted: 3 or more");
    a = paged_plan(), a.kv_last_page_len = bad_last;
    REFUSED("kv_last_page_len[1] is 5; accepted where a request has pages: 1 to page_size 4");
    a = paged_plan(), a.kv_last_page_len = no_last;
    REFUSED("kv_last_page_len[0] is 0");
    a = paged_plan(), a.kv_last_page_len = nullptr;
    REFUSED("kv_last_page_len is null; page_size 4 needs it");
    a = paged_plan(), a.num_kv_heads = 3;
    REFUSED("num_qo_heads 4 is no multiple of num_kv_heads 3");
    a = paged_plan(), a.q_tile = 17;
    REFUSED("q_tile is 17; accepted: 16, 64, 128, 256 or 0");
    a = paged_plan();
    assert_refused(qn_attention_plan(room, &small, &workspace_bytes, &a), QN_E_INVALID,
                   "plan has room for 8 bytes, needs");
#undef REFUSED
}

/** A plan over pages is used as it is, then for tensors that it was not made for, then damaged. */
static void test_paged(void **) {
    const qn_attention_plan_args a = paged_plan();
    static const int32_t list[] = {4, 2, 0, 1, 3};
    int64_t bytes, workspace_bytes;
    qk_attention_schedule *plan = make_plan(&a, &bytes, &workspace_bytes);
    MAKE(&q, QNI_F16, 40, HEADS, DIM);
    MAKE(&o, QNI_F16, 40, HEADS, DIM);
    MAKE(&k, QNI_F16, 5, 4, KV_HEADS, DIM);
    MAKE(&v, QNI_F16, 5, 4, KV_HEADS, DIM);
    MAKE(&indices, QNI_I32, 5);
    memcpy(indices.data, list, sizeof list);
    fill_steps(&q, 1), fill_steps(&k, 0), fill_steps(&v, 1);
    memset(v.data + 2 * 2 * KV_HEADS * DIM, 0xFF,
           2 * 2 * KV_HEADS * DIM); // page 0: two places unused
    args = (qn_attention_args){.struct_size = sizeof args,
                               .o = &o.t,
                               .q = &q.t,
                               .k = &k.t,
                               .v = &v.t,
                               .kv_indices = &indices.t,
                               .plan = plan,
                               .plan_bytes = bytes};
    MAKE(&workspace, QNI_U8, bytes);
    workspace.strides[0] = 2;
    args.schedule = &workspace.t;
    assert_attention_refused(QN_E_INVALID, "schedule has stride 2 in its last dimension");
    args.schedule = nullptr;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    assert_true(isfinite(o_at(0, 0)) && o_at(0, 0) > 0);
    assert_true(o_at(1, 0) == 0); // the third request has no keys
    memset(o.data, 0xFF, sizeof o.data);
    ((int32_t *)indices.data)[3] = 5;
    assert_attention_refused(QN_E_INVALID, "kv_indices[3] is 5; accepted: 0 to 4");
    ((int32_t *)indices.data)[3] = -1;
    assert_attention_refused(QN_E_INVALID, "kv_indices[3] is -1; accepted: 0 to 4");
    ((int32_t *)indices.data)[3] = 1;
    k.shape[1] = v.shape[1] = 2;
    assert_attention_refused(QN_E_INVALID, "plan is for page_size 4, k has 2");
    k.shape[1] = v.shape[1] = 4;
    q.shape[0] = o.shape[0] = 39;
    assert_attention_refused(QN_E_INVALID, "q has 39 tokens, the plan needs 40");
    q.shape[0] = o.shape[0] = 41; // the last query would stay unwritten
    assert_attention_refused(QN_E_INVALID, "q has 41 tokens, the plan is for 40");
    q.shape[0] = o.shape[0] = 40;
    ((qk_attention_request *)(plan + 1))[1].kv_len = 1000;
    assert_attention_refused(QN_E_INVALID, "plan is damaged: a request");
    plan->magic++;
    assert_attention_refused(QN_E_INVALID, "plan was not made by qn_attention_plan");
    free(plan);
}

// ---- merging, dropout

/** Merges two empty states, an empty one with another, and equal ones. */
static void test_merge(void **) {
    box va, vb, sa, sb;
    MAKE(&va, QNI_F32, 3, 1, 2);
    MAKE(&vb, QNI_F32, 3, 1, 2);
    MAKE(&o, QNI_F32, 3, 1, 2);
    MAKE(&sa, QNI_F32, 3, 1);
    MAKE(&sb, QNI_F32, 3, 1);
    MAKE(&lse, QNI_F32, 3, 1);
    memcpy(va.data, (const float[]){NAN, NAN, 1, 2, 3, 4}, 24);
    memcpy(vb.data, (const float[]){NAN, NAN, NAN, NAN, 5, 8}, 24);
    memcpy(sa.data, (const float[]){-INFINITY, 5, 7}, 12);
    memcpy(sb.data, (const float[]){-INFINITY, -INFINITY, 7}, 12);
    assert_int_equal(
        qn_merge_state(stream, &o.t, &lse.t, &va.t, &sa.t, &vb.t, &sb.t, QN_LSE_BASE_2), QN_OK);
    static const float want[] = {0, 0, 1, 2, 4, 6}, want_s[] = {-INFINITY, 5, 8};
    assert_memory_equal(o.data, want, sizeof want);
    assert_memory_equal(lse.data, want_s, sizeof want_s);
    assert_int_equal(
        qn_merge_state(stream, &va.t, &sa.t, &va.t, &sa.t, &vb.t, &sb.t, QN_LSE_BASE_2), QN_OK);
    assert_memory_equal(va.data, want, sizeof want); // in place
    assert_refused(qn_merge_state(stream, &vb.t, &lse.t, &va.t, &sa.t, &vb.t, &sb.t, QN_LSE_BASE_2),
                   QN_E_INVALID, "v overlaps v_b");
    assert_refused(qn_merge_states(stream, &o.t, &lse.t, &va.t, &sa.t, QN_LSE_BASE_2), QN_E_INVALID,
                   "v_states");
}

/** Philox's known answers; the mask's rate and its independence of the tensor's dtype. */
static void test_dropout(void **) {
    static const uint32_t zero[] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
    uint32_t out[4];
    qk_philox(0, 0, out);
    assert_memory_equal(out, zero, sizeof zero);
    MAKE(&o, QNI_F32, 2, 2, 8, 30);
    MAKE(&q, QNI_BF16, 2, 2, 8, 30);
    assert_int_equal(qn_attention_dropout_mask(stream, &o.t, 0.25f, 5, 7), QN_OK);
    assert_int_equal(qn_attention_dropout_mask(stream, &q.t, 0.25f, 5, 7), QN_OK);
    int dropped = 0;
    for (int i = 0; i < 960; i++) {
        const double r = qni_get(QNI_F32, o.data, i);
        assert_true(fabs(r) == 0.5 && r == qni_get(QNI_BF16, q.data, i));
        dropped += r < 0;
    }
    assert_in_range(dropped, 190, 290); // of 960, a quarter; 4 standard deviations are 54
    assert_refused(qn_attention_dropout_mask(stream, &o.t, -1, 0, 0), QN_E_INVALID,
                   "dropout_p is -1");
}

/** The words are Philox's, in the order of keys, also if rows have gaps. As numbers they reach both
 *  ends. */
static void test_random_numbers(void **) {
    static const int32_t first[] = {0x6627E8D5, (int32_t)0xE169C58D, (int32_t)0xBC57AC4C,
                                    (int32_t)0x9B00DBD8};
    int32_t word;
    MAKE(&o, QNI_I32, 1, 1, 2, 7);
    o.shape[3] = 6; // of rows of 7
    assert_int_equal(qn_attention_dropout_rng(stream, &o.t, 0, 0), QN_OK);
    assert_memory_equal(o.data, first, sizeof first);
    for (int row = 0; row < 2; row++) {
        memcpy(&word, o.data + 4 * (7 * row + 6), sizeof word);
        assert_int_equal(word, -1); // poison
    }
    MAKE(&q, QNI_F32, 1, 1, 2, 6);
    assert_int_equal(qn_attention_dropout_rng(stream, &q.t, 0, 0), QN_OK);
    for (int i = 0; i < 12; i++) {
        memcpy(&word, o.data + 4 * (i / 6 * 7 + i % 6), sizeof word);
        assert_true(at(&q, i) == (double)((float)word * 2.32830658e-10f + 0.5f));
    }
    assert_true(qk_philox_uniform(0x7FFFFFFF) == 1 && qk_philox_uniform(0) == 0.5f);
    assert_true(fabsf(qk_philox_uniform(0x80000000)) <= 0x1p-24f);
    o.strides[3] = 2;
    assert_refused(qn_attention_dropout_rng(stream, &o.t, 0, 0), QN_E_INVALID,
                   "attention_dropout_rng: r has stride 2 in its last dimension");
    o.strides[3] = 1, o.strides[2] = 5;
    assert_refused(qn_attention_dropout_rng(stream, &o.t, 0, 0), QN_E_INVALID,
                   "r has stride 5 in dimension 2, needs at least 6");
    MAKE(&o, QNI_F16, 1, 1, 2, 7);
    assert_refused(qn_attention_dropout_rng(stream, &o.t, 0, 0), QN_E_UNSUPPORTED,
                   "r has dtype f16; accepted: f32, i32");
    assert_int_equal(o.data[0], 0xFF);
}

int main(void) {
    setenv("QUERN_VALIDATE", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_low_score),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_workspace_is_small),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_plan_refusals),
        cmocka_unit_test(test_paged),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_random_numbers),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
