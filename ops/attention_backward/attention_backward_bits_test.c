// SPDX-License-Identifier: Apache-2.0
// A request's gradients have equal bits from run to run and whatever other requests are in the
// batch, be it of NaNs, on matrix cores of simulated GPUs and on the CPU, there for any number of
// threads. o and the log-sum-exp are any numbers: the op takes what it is given.
#include "../../check/area.h"
#include "../../runtime/testing.h"
#include "attention_backward.h"

#include <stdlib.h>

enum { REQUESTS = 3, HEADS = 4, KV_HEADS = 2, QUERIES = 200, KEYS = 400 };
static const int32_t qo_indptr[] = {0, 131, 140, QUERIES};
static int32_t kv_indptr[] = {0, 131, 281, KEYS};

/** Device memory with its tensor. */
typedef struct box {
    DLTensor t;
    int64_t shape[3];
    int64_t bytes;
} box;

enum { Q, K, V, O, LSE, D_O, DQ, DK, DV, BOXES };
enum { GRADIENTS = BOXES - DQ };

typedef struct setup {
    qn_device *device;
    qn_stream *stream;
    box boxes[BOXES];
} setup;

/** The device and the head dim; the kernel that is to run. */
typedef struct place {
    const char *spec, *kernel;
    int64_t dim;
} place;

static DLTensor on_host(const box *b, void *data) {
    DLTensor t = b->t;
    t.data = data;
    t.device = (DLDevice){kDLCPU, 0};
    return t;
}

static bool is_of_keys(int which) {
    return which == K || which == V || which == DK || which == DV;
}

/** Cuts the tensors of queries off behind a token, as a plan wants it. */
static void set_queries(setup *s, int64_t tokens) {
    for (int i = 0; i < BOXES; i++)
        if (!is_of_keys(i))
            s->boxes[i].shape[0] = tokens;
}

static void make(setup *s, int which, qni_dtype dtype, int64_t tokens, int64_t heads, int64_t dim) {
    box *b = &s->boxes[which];
    *b = (box){.shape = {tokens, heads, dim}};
    const int64_t count = tokens * heads * dim;
    uint64_t random = (uint64_t)which + 1;
    b->bytes = count * qni_dtype_bytes(dtype);
    b->t = (DLTensor){.device = qn_device_id(s->device),
                      .ndim = which == LSE ? 2 : 3,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = b->shape};
    void *host = malloc((size_t)b->bytes);
    CHILD_CHECK(host && qn_malloc(s->device, &b->t.data, b->bytes) == QN_OK);
    for (int64_t i = 0; i < count; i++)
        qni_put(dtype, host, i, qni_random_normal(&random) + (which == LSE ? 8 : 0));
    const DLTensor from = on_host(b, host);
    CHILD_CHECK(qn_copy(s->stream, &b->t, &from) == QN_OK);
    free(host);
}

static void open_setup(setup *s, const place *at) {
    CHILD_CHECK(qn_device_open(&s->device, at->spec) == QN_OK);
    CHILD_CHECK(qn_stream_create(&s->stream, s->device) == QN_OK);
    for (int i = 0; i < BOXES; i++)
        make(s, i, i == LSE ? QNI_F32 : QNI_BF16, is_of_keys(i) ? kv_indptr[REQUESTS] : QUERIES,
             is_of_keys(i) ? KV_HEADS : HEADS, i == LSE ? 1 : at->dim);
}

static void close_setup(setup *s) {
    for (int i = 0; i < BOXES; i++)
        qn_free(s->device, s->boxes[i].t.data);
    qn_stream_destroy(s->stream);
    qn_device_close(s->device);
}

/** Requests first .. first + count - 1. */
typedef struct batch {
    int first, count;
} batch;

/** Makes the plan of a batch, which begins at the first request's tokens. */
static void *make_plan(const batch *which, int64_t dim, int64_t *bytes) {
    int64_t unused;
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = which->count,
                                      .qo_indptr = qo_indptr + which->first,
                                      .kv_indptr = kv_indptr + which->first,
                                      .num_qo_heads = HEADS,
                                      .num_kv_heads = KV_HEADS,
                                      .head_dim_vo = dim};
    CHILD_CHECK(qn_attention_plan(nullptr, bytes, &unused, &a) == QN_OK);
    void *plan = malloc((size_t)*bytes);
    CHILD_CHECK(plan && qn_attention_plan(plan, bytes, &unused, &a) == QN_OK);
    return plan;
}

/** Runs the op for a batch and copies all gradients to host memory. */
static void run(setup *s, const place *at, const batch *which, uint8_t *out[GRADIENTS]) {
    int64_t plan_bytes, bytes;
    void *plan = make_plan(which, at->dim, &plan_bytes);
    box schedule = {.bytes = plan_bytes}, workspace = {};
    box *const more[] = {&schedule, &workspace};
    const qn_attention_args forward = {.struct_size = sizeof forward,
                                       .o = &s->boxes[O].t,
                                       .lse = &s->boxes[LSE].t,
                                       .q = &s->boxes[Q].t,
                                       .k = &s->boxes[K].t,
                                       .v = &s->boxes[V].t,
                                       .plan = plan,
                                       .plan_bytes = plan_bytes,
                                       .schedule = &schedule.t,
                                       .is_causal = 1};
    const qn_attention_backward_args args = {.struct_size = sizeof args,
                                             .forward = &forward,
                                             .d_o = &s->boxes[D_O].t,
                                             .dq = &s->boxes[DQ].t,
                                             .dk = &s->boxes[DK].t,
                                             .dv = &s->boxes[DV].t,
                                             .workspace = &workspace.t};
    set_queries(s, qo_indptr[which->first + which->count]);
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            CHILD_CHECK(qn_attention_backward_workspace_bytes(&bytes, s->stream, &args) == QN_OK);
            workspace.bytes = bytes;
        }
        more[i]->t = (DLTensor){.device = qn_device_id(s->device),
                                .ndim = 1,
                                .dtype = qni_dl_dtype(QNI_U8),
                                .shape = &more[i]->bytes};
        CHILD_CHECK(qn_malloc(s->device, &more[i]->t.data, more[i]->bytes) == QN_OK);
        const DLTensor from = on_host(more[i], plan);
        CHILD_CHECK(i == 1 || qn_copy(s->stream, &more[i]->t, &from) == QN_OK);
    }
    CHILD_CHECK(qn_attention_backward(s->stream, &args) == QN_OK);
    CHILD_CHECK(strcmp(qn_last_kernel(), at->kernel) == 0);
    set_queries(s, QUERIES);
    for (int i = 0; i < GRADIENTS; i++) {
        DLTensor to = on_host(&s->boxes[DQ + i], out[i]);
        CHILD_CHECK(qn_copy(s->stream, &to, &s->boxes[DQ + i].t) == QN_OK);
    }
    for (int i = 0; i < 2; i++)
        qn_free(s->device, more[i]->t.data);
    free(plan);
}

static void compare(const setup *s, const batch *which, uint8_t *const want[GRADIENTS],
                    uint8_t *const got[GRADIENTS]) {
    for (int i = 0; i < GRADIENTS; i++) {
        const box *b = &s->boxes[DQ + i];
        const int32_t *indptr = i == 0 ? qo_indptr : kv_indptr;
        const int64_t row = b->bytes / b->shape[0], begin = indptr[which->first] * row;
        const int64_t end = indptr[which->first + which->count] * row;
        CHILD_CHECK(memcmp(want[i] + begin, got[i] + begin, (size_t)(end - begin)) == 0);
    }
}

/** Makes NaNs of a request's rows of q, k, v and d_o. */
static void poison(setup *s, int request) {
    static const int which[] = {Q, K, V, D_O};
    for (int i = 0; i < 4; i++) {
        box *b = &s->boxes[which[i]];
        const int32_t *indptr = is_of_keys(which[i]) ? kv_indptr : qo_indptr;
        int64_t shape[] = {indptr[request + 1] - indptr[request], b->shape[1], b->shape[2]};
        const int64_t row = b->bytes / b->shape[0];
        void *nans = malloc((size_t)(shape[0] * row));
        CHILD_CHECK(nans);
        memset(nans, 0xFF, (size_t)(shape[0] * row));
        DLTensor to = b->t, from = on_host(b, nans);
        to.shape = from.shape = shape;
        to.byte_offset = (uint64_t)(indptr[request] * row);
        CHILD_CHECK(qn_copy(s->stream, &to, &from) == QN_OK);
        free(nans);
    }
}

static void compare_batches(void *at) {
    static const batch batches[] = {{0, 3}, {0, 1}, {1, 1}, {2, 1}, {1, 2}};
    setup s = {};
    uint8_t *want[GRADIENTS], *got[GRADIENTS];
    open_setup(&s, at);
    for (int i = 0; i < GRADIENTS; i++) {
        want[i] = malloc((size_t)s.boxes[DQ + i].bytes);
        got[i] = malloc((size_t)s.boxes[DQ + i].bytes);
        CHILD_CHECK(want[i] && got[i]);
    }
    run(&s, at, &batches[0], want);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        run(&s, at, &batches[i], got);
        compare(&s, &batches[i], want, got);
    }
    poison(&s, 1); // its neighbours must not notice
    run(&s, at, &batches[0], got);
    compare(&s, &batches[1], want, got);
    compare(&s, &batches[3], want, got);
    for (int i = 0; i < GRADIENTS; i++) {
        free(want[i]);
        free(got[i]);
    }
    close_setup(&s);
    fprintf(stderr, "equal");
}

static void test_batches(void **state) {
    const place *at = *state;
    if (strchr(at->spec, ':'))
        needs_images(strchr(at->spec, ':') + 1);
    char force[80];
    snprintf(force, sizeof force, "QUERN_FORCE=attention_backward=%s", at->kernel);
    assert_string_equal(
        child_run(compare_batches, *state, (const char *[]){"QUERN_NO_JIT=1", force, nullptr}),
        "equal");
}

// ---- threads

/** Prints a number that depends on every byte of the gradients of a batch. */
static void print_bits(const setup *s, uint8_t *const out[GRADIENTS]) {
    uint64_t sum = 0;
    for (int i = 0; i < GRADIENTS; i++)
        for (int64_t b = 0; b < s->boxes[DQ + i].bytes; b++)
            sum = (sum ^ out[i][b]) * UINT64_C(0x100000001B3);
    fprintf(stderr, "%016lx ", (unsigned long)sum);
}

/** Runs all requests, and one whose few kv heads leave threads to share a head. Each has many
 *  blocks of keys, and few queries, so that blocks often wait for their turns. */
static void run_batches(void *at) {
    static const batch batches[] = {{0, 3}, {0, 1}};
    setup s = {};
    uint8_t *out[GRADIENTS];
    for (int i = 0; i <= REQUESTS; i++)
        kv_indptr[i] *= 10;
    open_setup(&s, at);
    for (int i = 0; i < GRADIENTS; i++)
        CHILD_CHECK((out[i] = calloc(1, (size_t)s.boxes[DQ + i].bytes)));
    for (int round = 0; round < 20; round++) {
        run(&s, at, &batches[round % 2], out);
        if (round < 2 || round > 17)
            print_bits(&s, out);
    }
    for (int i = 0; i < GRADIENTS; i++)
        free(out[i]);
    close_setup(&s);
}

static void test_threads(void **) {
    static const char *const numbers[] = {"QUERN_NUM_THREADS=1", "QUERN_NUM_THREADS=2",
                                          "QUERN_NUM_THREADS=3", "QUERN_NUM_THREADS=8"};
    place at = {"cpu", "attention_backward.cpu", 16};
    char want[128];
    for (int i = 0; i < 4; i++) {
        const char *const env[] = {"QUERN_FORCE=attention_backward=attention_backward.cpu",
                                   numbers[i], nullptr};
        const char *got = child_run(run_batches, &at, env);
        assert_int_equal(strlen(got), 4 * 17);
        assert_memory_equal(got, got + 2 * 17, 2 * 17); // from run to run
        if (i == 0)
            snprintf(want, sizeof want, "%s", got);
        assert_string_equal(got, want);
    }
}

int main(void) {
    static const place places[] = {
        {"sim:gfx942", "attention_backward.gpu_tile_64_bf16", 64},
        {"sim:gfx942", "attention_backward.gpu_tile_128_bf16", 128},
        {"sim:gfx1151", "attention_backward.gpu_tile_64_bf16", 64},
        {"sim:gfx1151", "attention_backward.gpu_tile_128_bf16", 128},
        {"sim:gfx1201", "attention_backward.gpu_tile_128_bf16", 128},
        {"cpu", "attention_backward.cpu", 64},
    };
#define TEST(i) cmocka_unit_test_prestate(test_batches, (void *)(uintptr_t)&places[i])
    const struct CMUnitTest tests[] = {
        TEST(0), TEST(1), TEST(2), TEST(3), TEST(4), TEST(5), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
