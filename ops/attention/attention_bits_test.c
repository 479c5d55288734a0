// SPDX-License-Identifier: Apache-2.0
// A request's bits are equal however its chunks are shared, however its rows are cut, and whatever
// else is in the batch. This is tried on the CPU with any number of threads, and on simulated GPUs,
// also in a graph that was captured with another plan. With QUERN_BATCH_INVARIANT=1 a query's bits
// are equal alone, in a chunk and in its prompt.
#include "../../runtime/testing.h"
#include "attention_case.h"

enum {
    REQUESTS = 3,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    QUERIES = 3 + 40 + 1,
    KEYS = 600 + 100 + 300
};
static const int32_t qo_indptr[] = {0, 3, 43, 44}, kv_indptr[] = {0, 600, 700, 1000};

/** Device memory with its tensor. */
typedef struct box {
    DLTensor t;
    int64_t shape[3];
} box;

typedef struct setup {
    qn_device *device;
    qn_stream *stream;
    box q, k, v, o;
    int64_t count; // elements of o
} setup;

static DLTensor host_tensor(DLTensor t, void *data) {
    t.data = data;
    t.device = (DLDevice){kDLCPU, 0};
    return t;
}

static void make(setup *s, box *b, qni_dtype dtype, int64_t tokens, int64_t heads, uint32_t seed) {
    *b = (box){.shape = {tokens, heads, DIM}};
    b->t = (DLTensor){.device = qn_device_id(s->device),
                      .ndim = 3,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = b->shape};
    const int64_t count = tokens * heads * DIM, bytes = count * qni_dtype_bytes(dtype);
    void *host = malloc((size_t)bytes);
    CHILD_CHECK(host && qn_malloc(s->device, &b->t.data, bytes) == QN_OK);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        qni_put(dtype, host, i, ((double)(seed >> 8) / (1 << 23) - 1) * 2);
    }
    DLTensor from = host_tensor(b->t, host);
    CHILD_CHECK(qn_copy(s->stream, &b->t, &from) == QN_OK);
    free(host);
}

/** The device, and the dtype of k and v; all other tensors are bf16. */
typedef struct place {
    const char *spec;
    qni_dtype dtype_kv;
} place;

static void open_setup(setup *s, const place *at) {
    CHILD_CHECK(qn_device_open(&s->device, at->spec) == QN_OK);
    CHILD_CHECK(qn_stream_create(&s->stream, s->device) == QN_OK);
    make(s, &s->q, QNI_BF16, QUERIES, HEADS, 1);
    make(s, &s->k, at->dtype_kv, KEYS, KV_HEADS, 2);
    make(s, &s->v, at->dtype_kv, KEYS, KV_HEADS, 3);
    make(s, &s->o, QNI_BF16, QUERIES, HEADS, 4);
    s->count = QUERIES * HEADS * DIM;
}

static void close_setup(setup *s) {
    qn_free(s->device, s->q.t.data);
    qn_free(s->device, s->k.t.data);
    qn_free(s->device, s->v.t.data);
    qn_free(s->device, s->o.t.data);
    qn_stream_destroy(s->stream);
    qn_device_close(s->device);
}

/** How the work is cut, and which requests, first .. first + count - 1, run. */
typedef struct cut {
    int64_t splits, tile;
    int first, count;
    bool has_window;
} cut;

typedef struct made_plan {
    void *data;
    int64_t bytes, workspace_bytes;
} made_plan;

static made_plan make_plan(const cut *c, const int32_t *kv, bool is_for_graph) {
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = c->count,
                                      .qo_indptr = qo_indptr + c->first,
                                      .kv_indptr = kv + c->first,
                                      .num_qo_heads = HEADS,
                                      .num_kv_heads = KV_HEADS,
                                      .head_dim_vo = DIM,
                                      .max_kv_splits = c->splits,
                                      .q_tile = c->tile,
                                      .is_for_graph = is_for_graph};
    made_plan p = {};
    CHILD_CHECK(qn_attention_plan(nullptr, &p.bytes, &p.workspace_bytes, &a) == QN_OK);
    p.data = malloc((size_t)p.bytes);
    CHILD_CHECK(p.data && qn_attention_plan(p.data, &p.bytes, &p.workspace_bytes, &a) == QN_OK);
    return p;
}

/** Returns a tensor of bytes on the device, which gets `data` if that is not null. */
static DLTensor device_bytes(setup *s, int64_t *bytes, void *data) {
    DLTensor t = {.device = qn_device_id(s->device),
                  .ndim = 1,
                  .dtype = qni_dl_dtype(QNI_U8),
                  .shape = bytes};
    CHILD_CHECK(qn_malloc(s->device, &t.data, *bytes) == QN_OK);
    const DLTensor from = host_tensor(t, data);
    CHILD_CHECK(!data || qn_copy(s->stream, &t, &from) == QN_OK);
    return t;
}

/** Runs a call over whole tensors, launched for the plan `host` with `plan` where the device looks,
 *  and copies o to host memory. */
static void run_plans(setup *s, const cut *c, const made_plan *host, made_plan *plan,
                      uint16_t *out) {
    DLTensor schedule = device_bytes(s, &plan->bytes, plan->data);
    DLTensor workspace = device_bytes(s, &plan->workspace_bytes, nullptr);
    DLTensor to = host_tensor(s->o.t, out);
    int64_t bytes = host->bytes;
    memset(out, 0xFF, (size_t)s->count * sizeof *out); // so that nothing is left of the previous
                                                       // run
    CHILD_CHECK(qn_copy(s->stream, &s->o.t, &to) == QN_OK);
    schedule.shape = &bytes;
    s->q.shape[0] = s->o.shape[0] = qo_indptr[c->first + c->count];
    const qn_attention_args args = {.struct_size = sizeof args,
                                    .o = &s->o.t,
                                    .q = &s->q.t,
                                    .k = &s->k.t,
                                    .v = &s->v.t,
                                    .plan = host->data,
                                    .plan_bytes = bytes,
                                    .schedule = &schedule,
                                    .workspace = &workspace,
                                    .is_causal = 1,
                                    .has_window_left = c->has_window,
                                    .window_left = 70};
    CHILD_CHECK(qn_attention(s->stream, &args) == QN_OK);
    s->o.shape[0] = QUERIES;
    CHILD_CHECK(qn_copy(s->stream, &to, &s->o.t) == QN_OK);
    qn_free(s->device, schedule.data);
    qn_free(s->device, workspace.data);
}

static void run_cut(setup *s, const cut *c, uint16_t *out) {
    made_plan plan = make_plan(c, kv_indptr, false);
    run_plans(s, c, &plan, &plan, out);
    free(plan.data);
}

/** Runs the call as a graph replays it that was captured with requests of one key each. */
static void run_replayed(setup *s, const cut *c, uint16_t *out) {
    static const int32_t captured_kv[] = {0, 1, 2, 3};
    made_plan captured = make_plan(c, captured_kv, true), plan = make_plan(c, kv_indptr, true);
    CHILD_CHECK(captured.workspace_bytes == 0 && plan.workspace_bytes > 0);
    run_plans(s, c, &captured, &plan, out);
    free(captured.data);
    free(plan.data);
}

/** Compares all cuts with the default one. Returns a hash of its bits. */
static uint64_t compare_with_window(setup *s, bool has_window, uint16_t *want, uint16_t *got) {
    static const cut cuts[] = {{1, 0, 0, 3, 0},   {2, 64, 0, 3, 0}, {7, 16, 0, 3, 0},
                               {0, 256, 0, 3, 0}, {0, 0, 0, 1, 0},  {0, 16, 1, 2, 0}};
    uint64_t hash = 1469598103934665603u; // FNV-1a's
    run_cut(s, &(cut){0, 0, 0, 3, has_window}, want);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        cut c = cuts[i];
        const int64_t begin = (int64_t)qo_indptr[c.first] * HEADS * DIM;
        const int64_t end = (int64_t)qo_indptr[c.first + c.count] * HEADS * DIM;
        c.has_window = has_window;
        run_cut(s, &c, got);
        CHILD_CHECK(memcmp(got + begin, want + begin, (size_t)(end - begin) * 2) == 0);
    }
    if (qn_device_id(s->device).device_type != kDLCPU) {
        run_replayed(s, &(cut){0, 0, 0, 3, has_window}, got);
        CHILD_CHECK(memcmp(got, want, (size_t)s->count * 2) == 0);
    }
    for (int64_t i = 0; i < s->count; i++)
        hash = (hash ^ want[i]) * 1099511628211u;
    return hash;
}

static void compare_cuts(void *at) {
    setup s = {};
    open_setup(&s, at);
    uint16_t *want = malloc((size_t)s.count * 2), *got = malloc((size_t)s.count * 2);
    CHILD_CHECK(want && got);
    const uint64_t hash = compare_with_window(&s, false, want, got);
    fprintf(stderr, "%016lx", (unsigned long)(hash ^ compare_with_window(&s, true, want, got)));
    free(want);
    free(got);
    close_setup(&s);
}

static const place cpu = {"cpu", QNI_BF16}, gfx942 = {"sim:gfx942", QNI_BF16},
                   gfx1151 = {"sim:gfx1151", QNI_BF16}, gfx942_fp8 = {"sim:gfx942", QNI_E4M3FNUZ},
                   gfx1151_fp8 = {"sim:gfx1151", QNI_E4M3FN};

static void test_cpu(void **) {
    char first[32];
    snprintf(first, sizeof first, "%s",
             child_run(compare_cuts, (void *)(uintptr_t)&cpu,
                       (const char *[]){"QUERN_NUM_THREADS=1", nullptr}));
    assert_int_equal(strlen(first), 16);
    assert_string_equal(first, child_run(compare_cuts, (void *)(uintptr_t)&cpu,
                                         (const char *[]){"QUERN_NUM_THREADS=3", nullptr}));
}

static void test_cpu_f32(void **) {
    static const char *const wide[] = {"QUERN_DISABLE=attention.cpu_avx512bf16", nullptr},
                             *const narrow[] = {"QUERN_DISABLE=attention.cpu_avx512bf16,"
                                                "attention.cpu_avx512",
                                                nullptr};
    child_run(compare_cuts, (void *)(uintptr_t)&cpu, wide);
    child_run(compare_cuts, (void *)(uintptr_t)&cpu, narrow);
}

static void test_gpu(void **state) {
    static const char *const env[] = {"QUERN_NO_JIT=1", nullptr};
    const place *at = *state;
    needs_images(strchr(at->spec, ':') + 1);
    assert_int_equal(strlen(child_run(compare_cuts, *state, env)), 16);
}

static void test_gpu_any(void **) {
    static const char *const env[] = {"QUERN_NO_JIT=1",
                                      "QUERN_FORCE=attention=attention.gpu_any_128", nullptr};
    needs_images("gfx942");
    assert_int_equal(strlen(child_run(compare_cuts, (void *)(uintptr_t)&gfx942, env)), 16);
}

// ---- a query alone and among others

static qn_status try_batches(qni_trial_run *run, const qni_op *) {
    return qni_attention_try_batches(run);
}

static void print_result(void *context, const qn_check_result *result) {
    ++*(int *)context;
    if (!result->passed)
        fprintf(stderr, "%s, %s: %s\n", result->kernel, result->problem, result->detail);
}

/** Returns whether the device has the instructions of the kernel that QUERN_FORCE names; true if it
 *  names none. */
static bool has_forced(const qn_device *device) {
    const char *forced = strrchr(qni_env_get()->force, '=');
    for (int i = 0; forced && i < qni_op_attention.num_variants; i++)
        if (strcmp(forced + 1, qni_op_attention.variants[i].name) == 0)
            return qni_device_meets(device, qni_op_attention.variants[i].needs);
    return true;
}

/** Runs the part of attention's check that compares batches. */
static void try_bits(void *at) {
    static const qni_op *const ops[] = {&qni_op_attention, nullptr};
    static const qni_family family = {"attention", ops, try_batches};
    static const qni_family *const families[] = {&family, nullptr};
    const place *where = at;
    const qn_check_options options = {.struct_size = sizeof options, .seed = 1, .quick = 1};
    qn_device *device;
    int count = 0;
    CHILD_CHECK(qn_device_open(&device, where->spec) == QN_OK);
    if (has_forced(device)) {
        CHILD_CHECK(qni_trial_families(families, device, nullptr, &options, print_result, &count) ==
                    QN_OK);
        // There are four lists of batches, each of which compares its first batch with two; and
        // five lists of queries, which compare with three.
        CHILD_CHECK(count == 4 * 2 + 5 * 3);
    }
    qn_device_close(device);
}

static void try_queries(const place *at, const char *force) {
    const char *const env[] = {"QUERN_BATCH_INVARIANT=1", "QUERN_NO_JIT=1", force, nullptr};
    child_run(try_bits, (void *)(uintptr_t)at, env);
}

/** Forces each kernel by itself, so that none hides behind a better one. */
static void test_queries_on_cpu(void **) {
    try_queries(&cpu, nullptr);
    try_queries(&cpu, "QUERN_FORCE=attention=attention.cpu_avx512");
    try_queries(&cpu, "QUERN_FORCE=attention=attention.cpu_avx2");
    try_queries(&cpu, "QUERN_FORCE=attention=attention.cpu");
}

static void test_queries_on_gpu(void **state) {
    const place *at = *state;
    needs_images(strchr(at->spec, ':') + 1);
    try_queries(at, nullptr);
    try_queries(at, "QUERN_FORCE=attention=attention.gpu_any_128");
}

int main(void) {
    static const place gfx90a = {.spec = "sim:gfx90a"}, gfx1201 = {.spec = "sim:gfx1201"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_cpu_f32),
        cmocka_unit_test_prestate(test_gpu, (void *)(uintptr_t)&gfx942),
        cmocka_unit_test_prestate(test_gpu, (void *)(uintptr_t)&gfx1151),
        cmocka_unit_test_prestate(test_gpu, (void *)(uintptr_t)&gfx942_fp8),
        cmocka_unit_test_prestate(test_gpu, (void *)(uintptr_t)&gfx1151_fp8),
        cmocka_unit_test(test_gpu_any),
        cmocka_unit_test(test_queries_on_cpu),
        cmocka_unit_test_prestate(test_queries_on_gpu, (void *)(uintptr_t)&gfx90a),
        cmocka_unit_test_prestate(test_queries_on_gpu, (void *)(uintptr_t)&gfx942),
        cmocka_unit_test_prestate(test_queries_on_gpu, (void *)(uintptr_t)&gfx1151),
        cmocka_unit_test_prestate(test_queries_on_gpu, (void *)(uintptr_t)&gfx1201),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
