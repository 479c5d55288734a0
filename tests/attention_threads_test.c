// SPDX-License-Identifier: Apache-2.0
// Threads with a stream each on one device append to caches of their own, plan, attend and merge at
// the same time, and get the bits that one thread alone gets. In ThreadSanitizer's build (make
// tsan) the sanitizer looks for races meanwhile.
#include <quern/quern.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS = 4, HEADS = 4, KV_HEADS = 2, DIM = 64, PAGE = 4, PAGES = 16, BATCHES = 3 };
enum { TOKENS = 60, QUERIES = 27, ELEMENTS = QUERIES * HEADS * DIM };
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((st = (call)) != QN_OK)                                                                \
            goto out;                                                                              \
    } while (0)

static const int32_t qo_indptr[] = {0, 1, 4, QUERIES}, kv_indptr[] = {0, 8, 10, 16},
                     last[] = {2, 4, 2};

/** A contiguous tensor on the device. */
typedef struct tensor {
    DLTensor t;
    int64_t shape[4];
} tensor;

typedef struct work {
    tensor k_new, v_new, k, v, indices, indptr, batch, positions, q, o, lse, o_twice, lse_twice,
        schedule, workspace;
    alignas(8) uint8_t plan[4096];
    int64_t plan_bytes;
    qn_stream *stream;
} work;

typedef struct job {
    qn_device *device;
    int rounds;
    float o[ELEMENTS], lse[QUERIES * HEADS], want_o[ELEMENTS], want_lse[QUERIES * HEADS];
    char error[256]; // "": every round gave the right result
} job;

static int64_t bytes_of(const tensor *x) {
    int64_t bytes = x->t.dtype.bits / 8;
    for (int i = 0; i < x->t.ndim; i++)
        bytes *= x->shape[i];
    return bytes;
}

static qn_status copy(qn_stream *stream, tensor *device, void *host, bool to_host) {
    DLTensor other = device->t;
    other.data = host;
    other.device = (DLDevice){kDLCPU, 0};
    return to_host ? qn_copy(stream, &other, &device->t) : qn_copy(stream, &device->t, &other);
}

/** Makes a tensor. `shape` ends with -1; values null: zeros. */
static qn_status make(work *w, tensor *x, DLDataType dtype, const int64_t *shape, void *values) {
    qn_device *device = qn_stream_device(w->stream);
    void *zeros = nullptr;
    qn_status st;
    x->t = (DLTensor){.device = qn_device_id(device), .dtype = dtype, .shape = x->shape};
    for (; shape[x->t.ndim] >= 0; x->t.ndim++)
        x->shape[x->t.ndim] = shape[x->t.ndim];
    if (!values)
        values = zeros = calloc(1, (size_t)bytes_of(x) + 1);
    TRY(qn_malloc(device, &x->t.data, bytes_of(x)));
    TRY(copy(w->stream, x, values, false));
    TRY(qn_stream_sync(w->stream));
out:
    free(zeros);
    return st;
}
#define MAKE(x, dtype, values, ...)                                                                \
    TRY(make(w, x, dtype, (const int64_t[]){__VA_ARGS__, -1}, values))

/** Makes a tensor of values whose period is not a head's. */
static qn_status make_values(work *w, tensor *x, int64_t tokens, int64_t heads) {
    static const DLDataType f32 = {kDLFloat, 32, 1};
    float values[TOKENS * HEADS * DIM];
    qn_status st;
    for (int64_t i = 0; i < tokens * heads * DIM; i++)
        values[i] = (float)(i * 37 % 101) / 50.0f - 1;
    MAKE(x, f32, values, tokens, heads, DIM);
out:
    return st;
}

static qn_status make_plan(work *w, int64_t *workspace_bytes) {
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = BATCHES,
                                      .qo_indptr = qo_indptr,
                                      .kv_indptr = kv_indptr,
                                      .kv_last_page_len = last,
                                      .page_size = PAGE,
                                      .num_qo_heads = HEADS,
                                      .num_kv_heads = KV_HEADS,
                                      .head_dim_vo = DIM,
                                      .kv_chunk = 8};
    w->plan_bytes = sizeof w->plan;
    return qn_attention_plan(w->plan, &w->plan_bytes, workspace_bytes, &a);
}

static qn_status open_work(work *w) {
    static const DLDataType f32 = {kDLFloat, 32, 1}, i32 = {kDLInt, 32, 1}, u8 = {kDLUInt, 8, 1};
    int32_t pages[PAGES], batch[TOKENS], positions[TOKENS];
    int64_t workspace_bytes;
    qn_status st;
    for (int i = 0; i < PAGES; i++)
        pages[i] = i * 5 % PAGES;
    for (int b = 0, n = 0; b < BATCHES; b++)
        for (int i = 0; i < (kv_indptr[b + 1] - kv_indptr[b] - 1) * PAGE + last[b]; i++, n++)
            batch[n] = b, positions[n] = i;
    TRY(make_plan(w, &workspace_bytes));
    TRY(make_values(w, &w->k_new, TOKENS, KV_HEADS));
    TRY(make_values(w, &w->v_new, TOKENS, KV_HEADS));
    TRY(make_values(w, &w->q, QUERIES, HEADS));
    MAKE(&w->k, f32, nullptr, PAGES, PAGE, KV_HEADS, DIM);
    MAKE(&w->v, f32, nullptr, PAGES, PAGE, KV_HEADS, DIM);
    MAKE(&w->o, f32, nullptr, QUERIES, HEADS, DIM);
    MAKE(&w->o_twice, f32, nullptr, QUERIES, HEADS, DIM);
    MAKE(&w->lse, f32, nullptr, QUERIES, HEADS);
    MAKE(&w->lse_twice, f32, nullptr, QUERIES, HEADS);
    MAKE(&w->indices, i32, pages, PAGES);
    MAKE(&w->indptr, i32, (void *)kv_indptr, BATCHES + 1);
    MAKE(&w->batch, i32, batch, TOKENS);
    MAKE(&w->positions, i32, positions, TOKENS);
    MAKE(&w->schedule, u8, w->plan, w->plan_bytes);
    MAKE(&w->workspace, u8, nullptr, workspace_bytes);
out:
    return st;
}

static void close_work(work *w) {
    tensor *const all[] = {&w->k_new,  &w->v_new,   &w->k,         &w->v,        &w->indices,
                           &w->indptr, &w->batch,   &w->positions, &w->q,        &w->o,
                           &w->lse,    &w->o_twice, &w->lse_twice, &w->schedule, &w->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_free(qn_stream_device(w->stream), all[i]->t.data);
}

/** Appends all tokens, attends to them, and merges the result with itself, which leaves o as it is
 *  and makes lse one more in base 2. */
static qn_status run_once(work *w) {
    const qn_append_paged_kv_cache_args append = {.struct_size = sizeof append,
                                                  .k_cache = &w->k.t,
                                                  .v_cache = &w->v.t,
                                                  .append_key = &w->k_new.t,
                                                  .append_value = &w->v_new.t,
                                                  .batch_indices = &w->batch.t,
                                                  .positions = &w->positions.t,
                                                  .kv_indices = &w->indices.t,
                                                  .kv_indptr = &w->indptr.t};
    const qn_attention_args attention = {.struct_size = sizeof attention,
                                         .o = &w->o.t,
                                         .lse = &w->lse.t,
                                         .q = &w->q.t,
                                         .k = &w->k.t,
                                         .v = &w->v.t,
                                         .kv_indices = &w->indices.t,
                                         .plan = w->plan,
                                         .plan_bytes = w->plan_bytes,
                                         .schedule = &w->schedule.t,
                                         .workspace = &w->workspace.t,
                                         .is_causal = 1};
    int64_t workspace_bytes;
    qn_status st;
    TRY(make_plan(w, &workspace_bytes));
    TRY(qn_append_paged_kv_cache(w->stream, &append));
    TRY(qn_attention(w->stream, &attention));
    TRY(qn_merge_state(w->stream, &w->o_twice.t, &w->lse_twice.t, &w->o.t, &w->lse.t, &w->o.t,
                       &w->lse.t, QN_LSE_BASE_2));
out:
    return st;
}

static qn_status run_rounds(job *j) {
    work *w = calloc(1, sizeof *w);
    qn_status st = QN_E_MEMORY;
    if (!w)
        return st;
    TRY(qn_stream_create(&w->stream, j->device));
    TRY(open_work(w));
    for (int i = 0; i < j->rounds; i++) {
        TRY(run_once(w));
        TRY(copy(w->stream, &w->o_twice, j->o, true));
        TRY(copy(w->stream, &w->lse_twice, j->lse, true));
        TRY(qn_stream_sync(w->stream));
        if (memcmp(j->o, j->want_o, sizeof j->o) != 0 ||
            memcmp(j->lse, j->want_lse, sizeof j->lse) != 0)
            snprintf(j->error, sizeof j->error, "round %d gives other bits", i);
    }
out:
    if (st != QN_OK)
        snprintf(j->error, sizeof j->error, "%s", qn_last_error());
    if (w->stream)
        close_work(w);
    qn_stream_destroy(w->stream);
    free(w);
    return st;
}

static void *run_job(void *context) {
    run_rounds(context);
    return nullptr;
}

static void test_device(void **state) {
    static job first, jobs[THREADS];
    pthread_t threads[THREADS];
    const char *spec = *state;
    const bool is_cpu = strcmp(spec, "cpu") == 0;
    first = (job){.rounds = 1};
    if (qn_device_open(&first.device, spec) != QN_OK) {
        print_message("%s\n", qn_last_error()); // built without the simulator
        skip();
    }
    assert_int_equal(run_rounds(&first), QN_OK);
    assert_true(first.o[0] > -1 && first.o[0] < 1 && first.lse[0] > 1);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.device = first.device, .rounds = is_cpu ? 20 : 1};
        memcpy(jobs[i].want_o, first.o, sizeof first.o);
        memcpy(jobs[i].want_lse, first.lse, sizeof first.lse);
        assert_int_equal(pthread_create(&threads[i], nullptr, run_job, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], nullptr);
        assert_string_equal(jobs[i].error, "");
    }
    qn_device_close(first.device);
}

int main(void) {
    static char cpu[] = "cpu", sim[] = "sim:gfx942";
    setenv("QUERN_NUM_THREADS", "3", 0); // before the first call reads it
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_device, cpu),
        cmocka_unit_test_prestate(test_device, sim),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
