// SPDX-License-Identifier: Apache-2.0
// A batch whose requests fill the device is decoded by a workgroup for each request and head of k,
// which merges its chunks itself: with the bits that a request has in a small batch, whose chunks
// have workgroups of their own and a merge that follows.
#include "../../runtime/testing.h"
#include "attention_case.h"
#include "attention_decode_abi.h"

#include <unistd.h>

enum { GROUP = 4, KV_HEADS = 8, HEADS = GROUP * KV_HEADS, DIM = 64, MANY = 115, FEW = 5 };

/** Keys of the requests in turn: of no whole tile, of whole chunks, one key more, three chunks. */
static const int32_t lengths[FEW] = {300, 256, 257, 513, 40};

typedef struct setup {
    qn_device *device;
    qn_stream *stream;
} setup;

/** Returns a new tensor on the device, with `data`, or without it with numbers from a seed. */
static DLTensor make(const setup *s, qni_dtype dtype, int ndim, int64_t *shape, const void *data) {
    DLTensor t = {.device = qn_device_id(s->device),
                  .ndim = ndim,
                  .dtype = qni_dl_dtype(dtype),
                  .shape = shape};
    int64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    const int64_t bytes = count * qni_dtype_bytes(dtype);
    void *host = malloc((size_t)bytes);
    CHILD_CHECK(host && qn_malloc(s->device, &t.data, bytes) == QN_OK);
    uint32_t seed = (uint32_t)count;
    for (int64_t i = 0; !data && i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        qni_put(dtype, host, i, ((double)(seed >> 8) / (1 << 23) - 1) * 2);
    }
    DLTensor from = t;
    from.data = data ? (void *)(uintptr_t)data : host;
    from.device = (DLDevice){kDLCPU, 0};
    CHILD_CHECK(qn_copy(s->stream, &t, &from) == QN_OK);
    free(host);
    return t;
}

/** Decodes the first `batches` requests of MANY, and copies o to `out`. */
static void decode(const setup *s, qni_dtype dtype_kv, int32_t batches, bool has_window,
                   uint16_t *out) {
    int32_t qo_indptr[MANY + 1], kv_indptr[MANY + 1] = {};
    int32_t all = 0; // tokens of k and v, whichever of them this batch has
    for (int32_t i = 0; i <= MANY; i++) {
        qo_indptr[i] = i;
        kv_indptr[i] = all;
        all += lengths[i % FEW];
    }
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = batches,
                                      .qo_indptr = qo_indptr,
                                      .kv_indptr = kv_indptr,
                                      .num_qo_heads = HEADS,
                                      .num_kv_heads = KV_HEADS,
                                      .head_dim_vo = DIM,
                                      .num_compute_units = 304};
    int64_t bytes = 0, room = 0, q_shape[] = {batches, HEADS, DIM},
            k_shape[] = {all, KV_HEADS, DIM};
    CHILD_CHECK(qn_attention_plan(nullptr, &bytes, &room, &a) == QN_OK && room > 0);
    void *plan = malloc((size_t)bytes);
    CHILD_CHECK(plan && qn_attention_plan(plan, &bytes, &room, &a) == QN_OK);
    int64_t all_q[] = {MANY, HEADS, DIM};
    DLTensor q = make(s, QNI_BF16, 3, all_q, nullptr), k = make(s, dtype_kv, 3, k_shape, nullptr),
             v = make(s, dtype_kv, 3, k_shape, nullptr), o = make(s, QNI_BF16, 3, q_shape, nullptr),
             schedule = make(s, QNI_U8, 1, &bytes, plan),
             workspace = make(s, QNI_U8, 1, &room, nullptr);
    q.shape = q_shape;
    const qn_attention_args args = {.struct_size = sizeof args,
                                    .o = &o,
                                    .q = &q,
                                    .k = &k,
                                    .v = &v,
                                    .plan = plan,
                                    .plan_bytes = bytes,
                                    .schedule = &schedule,
                                    .workspace = &workspace,
                                    .has_window_left = has_window,
                                    .window_left = 300};
    CHILD_CHECK(qn_attention(s->stream, &args) == QN_OK);
    DLTensor to = o;
    to.data = out;
    to.device = (DLDevice){kDLCPU, 0};
    CHILD_CHECK(qn_copy(s->stream, &to, &o) == QN_OK);
    DLTensor *const tensors[] = {&q, &k, &v, &o, &schedule, &workspace};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        qn_free(s->device, tensors[i]->data);
    free(plan);
}

/** What a child decodes. */
typedef struct job {
    qni_dtype dtype_kv;
    bool has_window;
} job;

static uint16_t many[MANY * HEADS * DIM], few[FEW * HEADS * DIM];

static void open_setup(setup *s) {
    CHILD_CHECK(qn_device_open(&s->device, "sim:gfx942") == QN_OK);
    CHILD_CHECK(qn_stream_create(&s->stream, s->device) == QN_OK);
}

static void compare_batches(void *data) {
    const job *j = data;
    setup s;
    open_setup(&s);
    decode(&s, j->dtype_kv, MANY, j->has_window, many);
    decode(&s, j->dtype_kv, FEW, j->has_window, few);
    CHILD_CHECK(memcmp(many, few, sizeof few) == 0);
    qn_stream_destroy(s.stream);
    qn_device_close(s.device);
}

static void test_bits(void **) {
    static const char *const env[] = {"QUERN_NO_JIT=1", nullptr};
    static const job jobs[] = {{QNI_BF16, false}, {QNI_BF16, true}, {QNI_E4M3FNUZ, false}};
    needs_images("gfx942");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        child_run(compare_batches, (void *)(uintptr_t)&jobs[i], env);
}

static void decode_batch(void *batches) {
    setup s;
    open_setup(&s);
    decode(&s, QNI_BF16, *(const int32_t *)batches, false, many);
    qn_stream_destroy(s.stream);
    qn_device_close(s.device);
    exit(0); // which writes the profile
}

/** Returns whether a batch has a merge of its own, by the simulator's list of kernels. */
static bool is_merged_apart(int32_t batches) {
    static char text[1 << 22]; // a profile has a line for each instruction
    char path[] = "/tmp/attention_whole_test.XXXXXX", sim[64];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    snprintf(sim, sizeof sim, "QUERN_SIM=profile=%s", path);
    child_run(decode_batch, &batches, (const char *[]){"QUERN_NO_JIT=1", sim, nullptr});
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    const size_t size = fread(text, 1, sizeof text - 1, in);
    text[size] = 0;
    assert_true(size < sizeof text - 1);
    fclose(in);
    close(file);
    unlink(path);
    assert_non_null(strstr(text, "qk_attention_decode"));
    return strstr(text, "qk_attention_merge");
}

static void test_launches(void **) {
    needs_images("gfx942");
    assert_true(is_merged_apart(FEW));
    assert_false(is_merged_apart(MANY));
}

/** Division by a factor is exact for each page size and each key, next to multiples above all. */
static void test_pages(void **) {
    for (uint64_t size = 1; size <= INT32_MAX; size += 1 + size / 7) {
        uint32_t factor, bits;
        qk_attention_find_page_factor((uint32_t)size, &factor, &bits);
        for (uint64_t key = 0; key <= INT32_MAX; key += 1 + key / 5) {
            const uint64_t multiple = key / size * size;
            const uint64_t keys[] = {key, multiple, multiple > 0 ? multiple - 1 : 0, INT32_MAX};
            for (int i = 0; i < 4; i++)
                assert_int_equal(qk_attention_page_of((uint32_t)keys[i], factor, bits),
                                 keys[i] / size);
        }
    }
    uint32_t factor, bits;
    qk_attention_find_page_factor(0, &factor, &bits);
    assert_int_equal(qk_attention_page_of(INT32_MAX, factor, bits), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages), cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_launches)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
