// SPDX-License-Identifier: Apache-2.0
// Gives attention what no caller should: plans that are cut, damaged or made for something else,
// numbers at the ends of their types, tensors that reach around memory. QUERN_VALIDATE is not set;
// even so nothing outside the tensors may be touched on the CPU. tests/fuzz/attention_fuzz.c looks
// for more.
#include "../shared/op_test.h"
#include "attention.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, QUERIES = 6, KEYS = 20, CHUNK = 5 };

static box q, k, v, o, lse, workspace, other;
static qn_attention_args args;

/** Two ragged requests of which both are split: 3 queries and 10 keys each. */
static const int32_t qo_indptr[] = {0, 3, 6}, kv_indptr[] = {0, 10, 20};

static qn_attention_plan_args plan_args(void) {
    return (qn_attention_plan_args){.struct_size = sizeof(qn_attention_plan_args),
                                    .batches = 2,
                                    .qo_indptr = qo_indptr,
                                    .kv_indptr = kv_indptr,
                                    .num_qo_heads = HEADS,
                                    .num_kv_heads = KV_HEADS,
                                    .head_dim_vo = DIM,
                                    .kv_chunk = CHUNK};
}

static void make_tensors(void) {
    MAKE(&q, QNI_F16, QUERIES, HEADS, DIM);
    MAKE(&o, QNI_F16, QUERIES, HEADS, DIM);
    MAKE(&lse, QNI_F32, QUERIES, HEADS);
    MAKE(&k, QNI_F16, KEYS, KV_HEADS, DIM);
    MAKE(&v, QNI_F16, KEYS, KV_HEADS, DIM);
    fill(&q, 0.5), fill(&k, 0.5), fill(&v, 0.5);
    args = (qn_attention_args){
        .struct_size = sizeof args, .o = &o.t, .lse = &lse.t, .q = &q.t, .k = &k.t, .v = &v.t};
}

static void assert_attention_refused(qn_status want, const char *words) {
    assert_refused(qn_attention(stream, &args), want, words);
    assert_int_equal(o.data[0], 0xFF);
    assert_int_equal(lse.data[0], 0xFF);
}

// ---- plans

/** A number of a plan, at an offset, and the number that replaces it. */
typedef struct damage {
    const char *part;
    size_t at, bytes;
    int64_t value;
} damage;

#define HEADER(field, value)                                                                       \
    {"its header", offsetof(qk_attention_schedule, field),                                         \
     sizeof((qk_attention_schedule){}.field), value}
#define REQUEST(field, value)                                                                      \
    {"a request", sizeof(qk_attention_schedule) + offsetof(qk_attention_request, field),           \
     sizeof((qk_attention_request){}.field), value}
#define WORK(i, field, value)                                                                      \
    {"a work item",                                                                                \
     sizeof(qk_attention_schedule) + 2 * sizeof(qk_attention_request) +                            \
         (i) * sizeof(qk_attention_work) + offsetof(qk_attention_work, field),                     \
     sizeof((qk_attention_work){}.field), value}

/** Of a batch whose first request has more than few rows. */
static void test_damaged_tiles(void **) {
    static const int32_t queries[] = {0, 30, 31}, keys[] = {0, 40, 50};
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = 2,
                                      .qo_indptr = queries,
                                      .kv_indptr = keys,
                                      .num_qo_heads = 8,
                                      .num_kv_heads = 1,
                                      .head_dim_vo = 64,
                                      .kv_chunk = 16};
    static const struct {
        size_t at;
        uint32_t value;
    } all[] = {{offsetof(qk_attention_batch_tile, request), 2},
               {offsetof(qk_attention_batch_tile, row), 240},
               {offsetof(qk_attention_batch_tile, kv_begin), 8},
               {offsetof(qk_attention_batch_tile, kv_begin), 48}};
    int64_t bytes = 4096, workspace_bytes;
    alignas(8) uint8_t plan[4096], damaged[4096];
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    const qk_attention_schedule *s = (const qk_attention_schedule *)plan;
    const size_t tiles = (size_t)((const uint8_t *)qk_attention_batch_tiles(s) - plan);
    assert_int_equal(s->num_tiles, 6); // 2 of rows, each of 3 chunks
    assert_null(qni_attention_check_plan(plan, bytes, true));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        memcpy(damaged, plan, sizeof plan);
        memcpy(damaged + tiles + all[i].at, &all[i].value, sizeof all[i].value);
        assert_string_equal(qni_attention_check_plan(damaged, bytes, true), "is damaged: a tile");
    }
    ((qk_attention_schedule *)plan)->tile_rows = 128;
    assert_string_equal(qni_attention_check_plan(plan, bytes, false), "is damaged: its header");
}

/** Each number that could lead outside the tensors is damaged, one at a time. */
static void test_damaged_plan(void **) {
    static const damage all[] = {
        HEADER(num_requests, 3),
        HEADER(num_works, UINT32_MAX),
        HEADER(bytes, 8),
        HEADER(qo_end, -1),
        HEADER(kv_end, -1),
        HEADER(mask_bytes, -1),
        HEADER(mask_bytes, INT64_MAX),
        HEADER(workspace_rows, -1),
        HEADER(workspace_rows, (int64_t)1 << 62), // their bytes are 0 modulo 2^64
        HEADER(num_kv_heads, 0),
        HEADER(num_kv_heads, 3),
        HEADER(page_size, -4),
        HEADER(q_tile, 0),
        HEADER(max_qo_len, -1),
        HEADER(max_kv_len, -1),
        REQUEST(mask_begin, INT64_MAX),
        REQUEST(mask_begin, -1),
        REQUEST(partial_begin, INT64_MAX),
        REQUEST(partial_begin, 1000),
        REQUEST(partial_begin, -1),
        REQUEST(qo_begin, 4),
        REQUEST(qo_begin, -1),
        REQUEST(qo_len, INT32_MAX),
        REQUEST(kv_begin, 11),
        REQUEST(kv_len, INT32_MAX),
        REQUEST(kv_chunk, 0),
        REQUEST(kv_chunk, 1), // more chunks than the workspace has room for
        WORK(0, request, 2),
        WORK(0, row_begin, 6),
        WORK(0, row_end, 7),
        WORK(0, kv_begin, 3),  // within a chunk
        WORK(1, kv_begin, 10), // behind the last one
        WORK(1, kv_end, 11),
        WORK(4, row_end, 7), // a merge
    };
    const qn_attention_plan_args a = plan_args();
    int64_t bytes = 0, workspace_bytes = 0;
    alignas(8) uint8_t plan[1024], damaged[1024];
    assert_int_equal(qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a), QN_OK);
    assert_true(bytes <= (int64_t)sizeof plan);
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    make_tensors();
    MAKE(&workspace, QNI_U8, workspace_bytes);
    args.workspace = &workspace.t, args.plan = damaged, args.plan_bytes = bytes;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char words[64];
        memcpy(damaged, plan, sizeof plan);
        memcpy(damaged + all[i].at, &all[i].value, all[i].bytes);
        snprintf(words, sizeof words, "plan is damaged: %s", all[i].part);
        assert_attention_refused(QN_E_INVALID, words);
    }
    memcpy(damaged, plan, sizeof plan);
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    assert_true(fabs(at(&o, 0) - 0.5) < 0.001);
}

/** Plans that are cut anywhere, of merges alone, or made for other tensors. */
static void test_other_plan(void **) {
    qn_attention_plan_args a = plan_args();
    int64_t bytes = 1024, workspace_bytes;
    alignas(8) uint8_t plan[1024];
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    make_tensors();
    MAKE(&workspace, QNI_U8, workspace_bytes);
    args.workspace = &workspace.t, args.plan = plan;
    for (args.plan_bytes = -1; args.plan_bytes < bytes; args.plan_bytes++)
        assert_attention_refused(QN_E_INVALID, "plan ");
    args.plan_bytes = bytes, args.plan = plan + 4;
    assert_attention_refused(QN_E_INVALID, "plan is not aligned to 8 bytes");
    args.plan = plan;
    k.shape[0] = v.shape[0] = KEYS - 1;
    assert_attention_refused(QN_E_INVALID, "k has 19 entries, the plan needs 20");
    make_tensors();
    MAKE(&workspace, QNI_U8, workspace_bytes - 1);
    args.workspace = &workspace.t, args.plan = plan, args.plan_bytes = bytes;
    assert_attention_refused(QN_E_INVALID, "workspace has 1727 bytes, needs 1728");
    a.kv_chunk = -1;
    bytes = 1024;
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    qk_attention_schedule *s =
        (qk_attention_schedule *)plan; // nothing is split, but an item claims to be a merge
    s->num_works--, s->num_merges++;
    args.plan_bytes = bytes;
    assert_attention_refused(QN_E_INVALID, "plan is damaged: a work item");
}

/** Numbers that overflow are refused, and the message says which number it was. */
static void test_plan_numbers(void **) {
    int64_t bytes, workspace_bytes;
    qn_attention_plan_args a;
#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        a = (qn_attention_plan_args){.struct_size = sizeof a,                                      \
                                     .batches = 1,                                                 \
                                     .num_qo_heads = 1,                                            \
                                     .num_kv_heads = 1,                                            \
                                     .head_dim_vo = 8,                                             \
                                     __VA_ARGS__};                                                 \
        assert_refused(qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a), QN_E_INVALID,     \
                       words);                                                                     \
    } while (0)
    _Pragma("clang diagnostic push")
        _Pragma("clang diagnostic ignored \"-Winitializer-overrides\"");
    REFUSED("num_qo_heads is 4611686018427387904; accepted: below 2^31",
            .num_qo_heads = (int64_t)1 << 62);
    REFUSED("qo_len is -1; accepted: 0 to 2^31 - 1", .qo_len = -1);
    REFUSED("kv_len is 2147483648; accepted: 0 to 2^31 - 1", .kv_len = (int64_t)1 << 31);
    REFUSED("max_qo_len is -1; accepted: 0 to 2^31 - 1", .max_qo_len = -1);
    REFUSED("max_kv_len is 4294967296; accepted: 0 to 2^31 - 1", .max_kv_len = (int64_t)1 << 32);
    REFUSED("num_compute_units is 9223372036854775807; accepted: 0 to 2^31 - 1",
            .num_compute_units = INT64_MAX);
    REFUSED("rows of queries and heads in a request; fewer than 2^30 are accepted",
            .qo_len = INT32_MAX, .num_qo_heads = INT32_MAX);
    REFUSED("work items for each of 1 kv heads", .qo_len = (1 << 30) - 1, .kv_len = INT32_MAX,
            .kv_chunk = 1);
    REFUSED("work items for each of 1 kv heads", .batches = 9, .qo_len = (1 << 30) - 1,
            .kv_len = INT32_MAX, .kv_chunk = 1, .max_kv_splits = 1);
    REFUSED("more bytes than 63 bits can count", .qo_len = (1 << 28) - 1, .kv_len = INT32_MAX,
            .kv_chunk = 1, .max_kv_splits = 1, .head_dim_vo = 512);
    _Pragma("clang diagnostic pop");
#undef REFUSED
}

// ---- index tensors

enum { PAGE = 4, PAGES = 6 };
static box indices;

/** Three requests over pages: 2 queries and 7 keys, no query and 4 keys, 3 queries and 9 keys.
 *  Entry 0 is nobody's. */
static qn_attention_plan_args paged_args(void) {
    static const int32_t queries[] = {0, 2, 2, 5}, pages[] = {1, 3, 4, 7}, last[] = {3, 4, 1};
    qn_attention_plan_args a = plan_args();
    a.batches = 3, a.qo_indptr = queries, a.kv_chunk = 0;
    a.kv_indptr = pages, a.kv_last_page_len = last, a.page_size = PAGE;
    return a;
}

static void make_pages(void *plan, int64_t bytes) {
    make_tensors();
    q.shape[0] = o.shape[0] = lse.shape[0] = 5;
    MAKE(&k, QNI_F16, PAGES, PAGE, KV_HEADS, DIM);
    MAKE(&v, QNI_F16, PAGES, PAGE, KV_HEADS, DIM);
    fill(&k, 0.5), fill(&v, 0.5);
    INDICES(&indices, 5, 0, 3, 1, 2, 5, 4);
    args.kv_indices = &indices.t, args.plan = plan, args.plan_bytes = bytes;
}

/** Each page of a request with queries is put out of range in every way; entries that nobody reads
 *  may hold anything. */
static void test_pages(void **) {
    static const int32_t bad[] = {PAGES, -1, INT32_MAX, INT32_MIN, PAGES + 1000};
    static const int used[] = {1, 2, 4, 5, 6}, unused[] = {0, 3};
    const qn_attention_plan_args a = paged_args();
    alignas(8) uint8_t plan[1024];
    int64_t bytes = sizeof plan, workspace_bytes;
    char words[96];
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    for (size_t u = 0; u < sizeof used / sizeof *used; u++)
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            make_pages(plan, bytes);
            ((int32_t *)indices.data)[used[u]] = bad[b];
            snprintf(words, sizeof words, "attention: kv_indices[%d] is %d; accepted: 0 to 5",
                     used[u], bad[b]);
            assert_attention_refused(QN_E_INVALID, words);
        }
    make_pages(plan, bytes);
    for (int i = 0; i < 2; i++)
        ((int32_t *)indices.data)[unused[i]] = bad[i];
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    for (int64_t i = 0; i < 5 * HEADS * DIM; i++)
        assert_true(fabs(at(&o, i) - 0.5) < 0.001);
    make_pages(plan, bytes);
    k.shape[0] = v.shape[0] = 0;
    assert_attention_refused(QN_E_INVALID, "kv_indices[1] is 0; accepted: 0 to -1");
}

/** Plans refuse index arrays that fall, begin below 0 or end past their tensor. */
static void test_plan_indices(void **) {
    static const int32_t falling[] = {0, 2, 1, 5}, below[] = {-1, 3, 4, 7}, past[] = {1, 3, 4, 8},
                         too_long[] = {3, 5, 1}, none[] = {0, 4, 1}, negative[] = {3, 4, -1};
    alignas(8) uint8_t plan[1024];
    int64_t bytes, workspace_bytes;
    qn_attention_plan_args a;
#define REFUSED(field, array, words)                                                               \
    (a = paged_args(), a.field = array,                                                            \
     assert_refused(qn_attention_plan(nullptr, &bytes, &workspace_bytes, &a), QN_E_INVALID,        \
                    words))
    REFUSED(qo_indptr, falling, "qo_indptr[2] is 1; accepted: 2 or more");
    REFUSED(qo_indptr, below, "qo_indptr[0] is -1; accepted: 0 or more");
    REFUSED(kv_indptr, falling, "kv_indptr[2] is 1; accepted: 2 or more");
    REFUSED(kv_indptr, below, "kv_indptr[0] is -1; accepted: 0 or more");
    REFUSED(kv_last_page_len, too_long, "kv_last_page_len[1] is 5");
    REFUSED(kv_last_page_len, none, "kv_last_page_len[0] is 0");
    REFUSED(kv_last_page_len, negative, "kv_last_page_len[2] is -1");
#undef REFUSED
    a = paged_args(), a.kv_indptr = past;
    bytes = sizeof plan;
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    make_pages(plan, bytes);
    assert_attention_refused(QN_E_INVALID, "kv_indices has 7 entries, the plan needs 8");
    a = paged_args();
    bytes = sizeof plan;
    assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
    make_pages(plan, bytes);
    MAKE(&other, QNI_U8, 5); // a bit for each query and key: 2 and 4 bytes
    args.custom_mask = &other.t;
    assert_attention_refused(QN_E_INVALID, "custom_mask has 5 bytes, needs 6");
}

// ---- tensors and numbers

static void make_dense(void) {
    make_tensors();
    MAKE(&q, QNI_F16, 1, QUERIES, HEADS, DIM);
    MAKE(&o, QNI_F16, 1, QUERIES, HEADS, DIM);
    MAKE(&lse, QNI_F32, 1, QUERIES, HEADS);
    MAKE(&k, QNI_F16, 1, KEYS, KV_HEADS, DIM);
    MAKE(&v, QNI_F16, 1, KEYS, KV_HEADS, DIM);
    fill(&q, 0.5), fill(&k, 0.5), fill(&v, 0.5);
}

static void test_tensors(void **) {
    make_dense();
    o.strides[1] = INT64_MAX;
    assert_attention_refused(QN_E_INVALID, "it reaches over more bytes than 62 bits can count");
    make_dense();
    k.strides[1] = INT64_MIN;
    assert_attention_refused(QN_E_INVALID, "it reaches over more bytes than 62 bits can count");
    make_dense();
    q.strides[1] = -q.strides[1]; // allowed; it leads from q's last query down to o's place
    q.t.byte_offset = sizeof(uint16_t) * (QUERIES - 1) * HEADS * DIM;
    assert_int_equal(qn_attention(stream, &args), QN_OK);
    make_dense();
    q.strides[1] = -q.strides[1];
    q.t.data = o.data + (QUERIES - 1) * HEADS * DIM * 2;
    assert_attention_refused(QN_E_INVALID, "o overlaps q");
    make_dense();
    MAKE(&other, QNI_U8, 1, 1, QUERIES, KEYS);
    args.mask = &other.t, other.t.ndim = 1 << 20;
    assert_attention_refused(QN_E_INVALID, "mask has 1048576 dimensions; accepted: 2 to 4");
    make_dense();
    MAKE(&workspace, QNI_U8, 8); // the call needs no workspace
    args.workspace = &workspace.t, workspace.t.shape = nullptr;
    assert_attention_refused(QN_E_INVALID, "workspace has a null shape");
    make_dense();
    args.schedule = &workspace.t;
    assert_attention_refused(QN_E_INVALID, "schedule is given, plan is null");
}

static void test_workspace_bytes(void **) {
    int64_t bytes = -5;
    make_dense();
    k.shape[1] = v.shape[1] = INT64_MAX;
    assert_refused(qn_attention_workspace_bytes(&bytes, &args), QN_E_INVALID,
                   "k has 9223372036854775807 in dimension 1; accepted: 0 to 2^31 - 1");
    make_dense();
    q.shape[0] = q.shape[2] = INT32_MAX;
    assert_refused(qn_attention_workspace_bytes(&bytes, &args), QN_E_UNSUPPORTED,
                   "fewer than 2^31 are accepted");
    make_dense();
    v.t.shape = nullptr;
    assert_refused(qn_attention_workspace_bytes(&bytes, &args), QN_E_INVALID, "v has a null shape");
    assert_int_equal(bytes, -5);
}

/** Tests as many keys as there can be, all in one place. A window leaves only the last keys. The
 *  very last key is a chunk of its own, whose step has places past it that no number of 31 bits
 *  names. The test runs few queries, and tiles. */
static void test_most_keys(void **) {
    static const int64_t lengths[] = {3, 300};
    for (int i = 0; i < 2; i++) {
        const qn_attention_plan_args a = {.struct_size = sizeof a,
                                          .batches = 1,
                                          .qo_len = lengths[i],
                                          .kv_len = INT32_MAX,
                                          .num_qo_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_dim_vo = DIM,
                                          .kv_chunk = INT32_MAX - 1};
        alignas(8) uint8_t plan[1024];
        int64_t bytes = sizeof plan, workspace_bytes;
        assert_int_equal(qn_attention_plan(plan, &bytes, &workspace_bytes, &a), QN_OK);
        make_tensors();
        MAKE(&q, QNI_F16, 1, lengths[i], 1, DIM);
        MAKE(&o, QNI_F16, 1, lengths[i], 1, DIM);
        MAKE(&k, QNI_F16, 1, 1, 1, DIM);
        MAKE(&v, QNI_F16, 1, 1, 1, DIM);
        fill(&q, 0.5), fill(&k, 0.5), fill(&v, 0.25);
        k.shape[1] = v.shape[1] = INT32_MAX;
        k.strides[1] = v.strides[1] = 0;
        MAKE(&workspace, QNI_U8, workspace_bytes);
        args.lse = nullptr, args.plan = plan, args.plan_bytes = bytes;
        args.workspace = &workspace.t;
        args.is_causal = args.has_window_left = 1, args.window_left = 3;
        assert_int_equal(qn_attention(stream, &args), QN_OK);
        for (int64_t j = 0; j < lengths[i] * DIM; j++)
            assert_true(fabs(at(&o, j) - 0.25) < 0.001);
    }
}

/** Heads without elements have strides that nobody checks; their log-sum-exps are merged even
 *  so. */
static void test_merge_of_no_elements(void **) {
    MAKE(&v, QNI_F16, 2, 3, 1, 0);
    MAKE(&o, QNI_F16, 2, 1, 0);
    MAKE(&lse, QNI_F32, 2, 3, 1);
    MAKE(&other, QNI_F32, 2, 1);
    fill(&lse, 1);
    for (int i = 0; i < 3; i++)
        v.strides[i] = o.strides[i] = INT64_MIN;
    assert_int_equal(qn_merge_states(stream, &o.t, &other.t, &v.t, &lse.t, QN_LSE_BASE_2), QN_OK);
    for (int i = 0; i < 2; i++)
        assert_true(at(&other, i) > 2.5849 && at(&other, i) < 2.5850); // 1 + log2(3)
}

int main(void) {
    unsetenv("QUERN_VALIDATE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_of_no_elements), cmocka_unit_test(test_damaged_plan),
        cmocka_unit_test(test_damaged_tiles),        cmocka_unit_test(test_other_plan),
        cmocka_unit_test(test_plan_numbers),         cmocka_unit_test(test_pages),
        cmocka_unit_test(test_plan_indices),         cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_workspace_bytes),      cmocka_unit_test(test_most_keys),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
