// SPDX-License-Identifier: Apache-2.0
// The check harness on small ops with right and wrong kernels, and the list of families.
#include "../runtime/testing.h"
#include "area.h"

#include <math.h>

// Small ops: each doubles `count` floats.
typedef struct problem {
    int64_t count;
    const float *from;
    float *to;
} problem;

static qn_status run_right(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    for (int64_t i = 0; i < p->count; i++)
        p->to[i] = 2 * p->from[i];
    return QN_OK;
}

// ---- an op with one right and several wrong kernels

typedef struct checked {
    float in[8], out[8];
    int64_t shape[1];
    DLTensor tensor;
    const DLTensor *outputs[1];
    int resets;
} checked;

static qn_status run_wrong(const qni_variant *, qn_stream *, const void *p) {
    run_right(nullptr, nullptr, p);
    ((const problem *)p)->to[5] += 1;
    return QN_OK;
}

static qn_status run_lazy(const qni_variant *, qn_stream *, const void *) {
    return QN_OK; // leaves the poison
}

static qn_status run_fickle(const qni_variant *, qn_stream *, const void *p) {
    static int runs;
    run_right(nullptr, nullptr, p);
    ((const problem *)p)->to[3] +=
        1e-6f * (float)(++runs % 2); // within tolerance, but other bits in each run
    return QN_OK;
}

static qn_status run_broken(const qni_variant *, qn_stream *, const void *) {
    return QN_FAIL(QN_E_DEVICE, "the driver said no");
}

static const qni_variant twice_variants[] = {
    {"twice.gpu", {.all = QNI_F(GPU)}, false, nullptr, nullptr, run_right, {}},
    {"twice.right", {.all = 0}, true, nullptr, nullptr, run_right, {}},
    {"twice.wrong", {.all = 0}, true, nullptr, nullptr, run_wrong, {}},
    {"twice.lazy", {.all = 0}, true, nullptr, nullptr, run_lazy, {}},
    {"twice.fickle", {.all = 0}, true, nullptr, nullptr, run_fickle, {}},
    {"twice.broken", {.all = 0}, true, nullptr, nullptr, run_broken, {}},
};
static const qni_op op_twice = {"twice", twice_variants, 6, nullptr, nullptr};
static const qni_op op_right = {"right", twice_variants, 2, nullptr, nullptr};
static const qni_op op_called = {"called", twice_variants, 2, nullptr, nullptr};

/** A plain call that runs another kernel than its op's table chooses. */
static qn_status call_wrong(qn_stream *stream, const void *p) {
    return qni_run_variant(&twice_variants[2], stream, p);
}

static qn_status run_near(const qni_variant *, qn_stream *, const void *p) {
    run_right(nullptr, nullptr, p);
    ((const problem *)p)->to[3] += 1e-6f; // within tolerance
    return QN_OK;
}

static const qni_variant kin_variants[] = {
    {"kin.first", {.all = 0}, true, nullptr, nullptr, run_right, {.bits = 1}},
    {"kin.same", {.all = 0}, true, nullptr, nullptr, run_right, {.bits = 1}},
    {"kin.near", {.all = 0}, true, nullptr, nullptr, run_near, {.bits = 1}},
    {"kin.apart", {.all = 0}, true, nullptr, nullptr, run_near, {.bits = 2}},
    {"kin.alone", {.all = 0}, true, nullptr, nullptr, run_near, {}},
    {"kin.beyond", {.all = 0}, true, nullptr, nullptr, run_right, {.bits = 4}},
};
static const qni_op op_kin = {"kin", kin_variants, 6, nullptr, nullptr};

static qn_status reset(void *context, qn_stream *) {
    checked *c = context;
    c->resets++;
    for (int i = 0; i < 8; i++)
        c->out[i] = NAN;
    return QN_OK;
}

static qn_status compare(void *context, qn_stream *, double *error, char *detail, size_t room) {
    checked *c = context;
    *error = 0;
    for (int i = 0; i < 8; i++) {
        const double this_error = fabs((double)c->out[i] - 2.0 * (double)c->in[i]) / 1e-3;
        if (!(this_error <= *error)) {
            *error = this_error;
            snprintf(detail, room, "[%d] is %g, not %g", i, (double)c->out[i],
                     2.0 * (double)c->in[i]);
        }
        if (isnan(this_error))
            break;
    }
    return QN_OK;
}

static qn_status try_one(qni_trial_run *run, const qni_op *op) {
    checked c = {.shape = {8}};
    for (int i = 0; i < 8; i++)
        c.in[i] = (float)i + (float)(qni_trial_seed(run) % 5);
    c.tensor = (DLTensor){.data = c.out,
                          .device = {kDLCPU, 0},
                          .ndim = 1,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = c.shape};
    c.outputs[0] = &c.tensor;
    problem p = {8, c.in, c.out};
    qni_trial_problem problem_of_8 = {.op = op,
                                      .text = "count=8",
                                      .problem = &p,
                                      .context = &c,
                                      .reset = reset,
                                      .compare = compare,
                                      .outputs = c.outputs,
                                      .num_outputs = 1,
                                      .call = op == &op_called ? call_wrong : nullptr};
    const qn_status st = qni_trial_problem_run(run, &problem_of_8);
    assert_true(st != QN_OK || c.resets >= 2);
    return st;
}

static const qni_family family_right = {"right", (const qni_op *const[]){&op_right, nullptr},
                                        try_one};
static const qni_family family_called = {"called", (const qni_op *const[]){&op_called, nullptr},
                                         try_one};
static const qni_family family_twice = {"twice", (const qni_op *const[]){&op_twice, nullptr},
                                        try_one};
static const qni_family family_kin = {"kin", (const qni_op *const[]){&op_kin, nullptr}, try_one};

typedef struct seen {
    int count;
    char text[8][160];
    qn_check_result result[8];
} seen;

static void note_result(void *context, const qn_check_result *result) {
    seen *s = context;
    assert_true(s->count < 8);
    s->result[s->count] = *result;
    snprintf(s->text[s->count++], 160, "%s", result->reason ? result->reason : result->detail);
}

static void test_harness(void **) {
    qn_device *device = nullptr;
    seen s = {0};
    qn_check_options options = {.struct_size = sizeof options, .seed = 3, .timed_runs = 2};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    const qni_family *const families[] = {&family_right, &family_called, &family_twice, nullptr};
    assert_int_equal(qni_trial_families(families, device, "twice", &options, note_result, &s),
                     QN_E_MISMATCH);
    assert_int_equal(s.count, 6);
    assert_non_null(strstr(s.text[0], "runs on GPUs"));
    static const char *const want[] = {"",
                                       "",
                                       "[5] is ",
                                       "[0] is nan",
                                       "two runs on the same input",
                                       "QN_E_DEVICE: the driver said no"};
    for (int i = 1; i < 6; i++) {
        assert_int_equal(s.result[i].passed, i == 1);
        assert_int_equal(s.result[i].is_choice, i == 1);
        assert_int_equal(s.result[i].time_ns >= 0, i == 1);
        if (!strstr(s.text[i], want[i]))
            fail_msg("\"%s\" is not in \"%s\"", want[i], s.text[i]);
    }
    assert_true(s.result[2].error > 1);
    assert_false(s.result[3].error <= 1); // NaN
    assert_string_equal(s.text[1], "");
    s = (seen){0};
    assert_int_equal(qni_trial_families(families, device, "right", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.result[1].time_ns, -1); // nobody asked
    s = (seen){0};
    assert_int_equal(qni_trial_families(families, device, "called", nullptr, note_result, &s),
                     QN_E_MISMATCH);
    assert_int_equal(s.count, 3);
    assert_true(s.result[1].passed && !s.result[1].is_choice);
    assert_true(!s.result[2].passed && s.result[2].is_choice);
    assert_string_equal(s.result[2].kernel, "twice.wrong");
    assert_int_equal(qni_trial_families(families, device, "left", nullptr, note_result, &s),
                     QN_E_NOT_FOUND);
    options.struct_size = 3;
    assert_int_equal(qni_trial_families(families, device, nullptr, &options, note_result, &s),
                     QN_E_INVALID);
    assert_int_equal(qn_check(nullptr, nullptr, nullptr, nullptr, nullptr), QN_E_INVALID);
    qn_device_close(device);
}

/** Kernels that must give equal bits are compared with each other. */
static void test_agreement(void **) {
    const qni_family *const families[] = {&family_kin, nullptr};
    qn_device *device = nullptr;
    seen s = {0};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_trial_families(families, device, "kin", nullptr, note_result, &s),
                     QN_E_MISMATCH);
    assert_int_equal(s.count, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(s.result[i].passed, i != 2 && i != 5);
    assert_non_null(strstr(s.text[2], "other bits than those of kin.first"));
    assert_non_null(strstr(s.text[5], "config.bits is 4; accepted: 0 to 3"));
    qn_device_close(device);
}

static qn_status run_poor(const qni_variant *, qn_stream *, const void *) {
    return QN_FAIL(QN_E_MEMORY, "poor: out of memory");
}

static const qni_variant poor_variants[] = {
    {"poor.cpu", {.all = 0}, true, nullptr, nullptr, run_poor, {}}};
static const qni_op op_poor = {"poor", poor_variants, 1, nullptr, nullptr};

static qn_status try_poor(qni_trial_run *run, const qni_op *op) {
    const qni_trial_problem p = {
        .op = op, .text = "any", .context = &(checked){}, .reset = reset, .compare = compare};
    return qni_trial_problem_run(run, &p);
}

static const qni_family family_poor = {"poor", (const qni_op *const[]){&op_poor, nullptr},
                                       try_poor};

/** Without memory nothing is known of a kernel, so it does not count as wrong. */
static void test_no_memory(void **) {
    const qni_family *const families[] = {&family_poor, nullptr};
    qn_device *device = nullptr;
    seen s = {0};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_trial_families(families, device, "poor", nullptr, note_result, &s),
                     QN_E_MEMORY);
    assert_int_equal(s.count, 0);
    qn_device_close(device);
}

// ---- batches, on an op with a kernel that looks at its batch's size

static qn_status run_by_count(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    run_right(nullptr, nullptr, p);
    if (p->count > 4)
        p->to[0] += 1e-6f;
    return QN_OK;
}

static const qni_variant batch_variants[] = {
    {"batch.right", {.all = 0}, true, nullptr, nullptr, run_right, {}}};
static const qni_variant by_count_variants[] = {
    {"by_count.wrong", {.all = 0}, true, nullptr, nullptr, run_by_count, {}}};
static const qni_op op_batch = {"batch", batch_variants, 1, nullptr, nullptr};
static const qni_op op_by_count = {"by_count", by_count_variants, 1, nullptr, nullptr};
static const qni_variant elsewhere_variants[] = {
    {"elsewhere.gpu", {.all = QNI_F(GPU)}, false, nullptr, nullptr, run_right, {}}};
static const qni_op op_elsewhere = {"elsewhere", elsewhere_variants, 1, nullptr, nullptr};

/** Batches of 1, 4 and 8 numbers, which share the first number. */
static qn_status try_batches(qni_trial_run *run, const qni_op *op) {
    static const int64_t sizes[] = {1, 4, 8};
    qni_trial_batches batches = {.run = run, .op = op};
    checked c = {.in = {1, 2, 3, 4, 5, 6, 7, 8}, .shape = {1}};
    c.tensor = (DLTensor){.data = c.out,
                          .device = {kDLCPU, 0},
                          .ndim = 1,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = c.shape};
    c.outputs[0] = &c.tensor;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const problem p = {sizes[i], c.in, c.out};
        char text[32];
        snprintf(text, sizeof text, "batch of %ld", (long)sizes[i]);
        assert_int_equal(qni_trial_batches_add(&batches, &(qni_trial_problem){.op = op,
                                                                              .text = text,
                                                                              .problem = &p,
                                                                              .context = &c,
                                                                              .reset = reset,
                                                                              .outputs = c.outputs,
                                                                              .num_outputs = 1}),
                         QN_OK);
    }
    return QN_OK;
}

static const qni_family family_batch = {
    "batch", (const qni_op *const[]){&op_batch, &op_by_count, &op_elsewhere, nullptr}, try_batches};

static void test_batches(void **) {
    const qni_family *const families[] = {&family_batch, nullptr};
    qn_device *device = nullptr;
    seen s = {0};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_trial_families(families, device, "batch", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 2); // of three batches the first is compared with the two others
    assert_true(s.result[0].passed && s.result[1].passed);
    s = (seen){0};
    assert_int_equal(qni_trial_families(families, device, "by_count", nullptr, note_result, &s),
                     QN_E_MISMATCH);
    assert_true(s.result[0].passed && !s.result[1].passed);
    assert_non_null(strstr(s.text[1], "batch of 1 by by_count.wrong"));
    s = (seen){0};
    assert_int_equal(qni_trial_families(families, device, "elsewhere", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 3);
    assert_non_null(strstr(s.text[0], "elsewhere: no kernel for this on cpu"));
    qn_device_close(device);
}

// ---- areas

/** Returns how far a value is off that stands where `want` must. */
static double area_error(qn_stream *stream, qni_dtype dtype, double value, double want,
                         double tolerance) {
    qni_area a;
    char detail[256];
    double error = 0;
    assert_int_equal(qni_area_create(&a, "a", qn_stream_device(stream), dtype, 3, 0), QN_OK);
    qni_put(dtype, qni_area_host(&a), 1, value);
    qni_area_expect(&a, 1, want, tolerance);
    assert_true(isnan(qni_get(dtype, qni_area_host(&a), 0))); // poison
    assert_int_equal(qni_area_reset(&a, stream), QN_OK);
    assert_int_equal(qni_area_compare(&a, stream, &error, detail, sizeof detail), QN_OK);
    qni_area_destroy(&a);
    return error;
}

static void test_areas(void **) {
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    for (qni_dtype dtype = QNI_F32; dtype <= QNI_E5M2FNUZ; dtype++)
        assert_true(area_error(stream, dtype, 1, 1, 0) == 0);
    assert_true(area_error(stream, QNI_BF16, 1 + 0x1p-7, 1, 0x1p-6) < 1);
    assert_true(area_error(stream, QNI_BF16, 1 + 0x1p-5, 1, 0x1p-6) > 1);
    // Half a step above a power of two is a whole step below it.
    assert_true(area_error(stream, QNI_F32, 1 - 0x1p-24, 1, 0) > 1);
    assert_true(area_error(stream, QNI_BF16, 1, 1 + 0x1p-9, 0) == 0); // rounded to nearest
    qn_stream_destroy(stream);
    qn_device_close(device);
}

// ---- the families

// The names are of the library's own ops, as qn_device_open does not know the test's.
static void open_well(void *) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_OK);
    qn_device_close(device);
}

static void open_badly(void *word) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), word));
}

static void test_unknown_names(void **) {
    char text[256];
    const qni_op *op = qni_families[0]->ops[0];
    const char *const env[] = {text, nullptr};
    snprintf(text, sizeof text, "QUERN_DISABLE=sim,%s,hip", op->variants[0].name);
    child_run(open_well, nullptr, env);
    snprintf(text, sizeof text, "QUERN_FORCE=%s=%s", op->name, op->variants[0].name);
    child_run(open_well, nullptr, env);
    snprintf(text, sizeof text, "QUERN_FORCE=%s=%sx", op->name, op->variants[0].name);
    child_run(open_badly, "QUERN_FORCE has", env);
    snprintf(text, sizeof text, "QUERN_FORCE=%1$s=%2$s,%1$s=%2$s", op->name, op->variants[0].name);
    child_run(open_badly, "accepted: one for each op", env);
    for (const char *const *bad =
             (const char *const[]){"QUERN_DISABLE=opencl", "QUERN_DISABLE=cpu,gemm.nobody",
                                   "QUERN_FORCE=gemm",
                                   "QUERN_FORCE==", "QUERN_FORCE=nobody=gemm.any", nullptr};
         *bad; bad++)
        child_run(open_badly, "accepted: ", (const char *[]){*bad, nullptr});
}

/** Checks that a table of measured choices can name each property of the op's problems. */
static void check_keys(const qni_op *op) {
    assert_non_null(op->keys);
    assert_non_null(op->describe);
    for (const qni_key *key = op->keys; key->name; key++) {
        assert_int_equal(strspn(key->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(key->name));
        assert_string_not_equal(key->name, "units");
        for (const qni_key *other = op->keys; other < key; other++)
            assert_string_not_equal(key->name, other->name);
        for (const char *const *word = key->words; word && *word; word++)
            assert_int_equal(strcspn(*word, " \t#="), strlen(*word));
    }
}

/** Fails unless the kernel that every CPU can run is called OP.cpu, and the other kernels of CPUs,
 *  and these alone, are called OP.cpu_WHAT. An op that only GPUs have kernels for is one that
 *  another op may take in place of its parts. */
static void check_cpu_names(const qni_op *op) {
    char portable[64], others[64];
    int portables = 0, of_cpus = 0;
    snprintf(portable, sizeof portable, "%s.cpu", op->name);
    const int length = snprintf(others, sizeof others, "%s.cpu_", op->name);
    for (int v = 0; v < op->num_variants; v++) {
        const qni_variant *variant = &op->variants[v];
        const bool is_portable = variant->is_cpu && !variant->needs.all && !variant->needs.any;
        portables += is_portable;
        of_cpus += variant->is_cpu;
        if (is_portable)
            assert_string_equal(variant->name, portable);
        else
            assert_int_equal(variant->is_cpu, strncmp(variant->name, others, (size_t)length) == 0);
    }
    assert_int_equal(portables, of_cpus > 0);
}

/** Every family of the library is well formed: names are unique and belong to their ops. */
static void test_families(void **) {
    const char *const *names = qn_op_names();
    int count = 0;
    for (int f = 0; qni_families[f]; f++)
        for (int o = 0; qni_families[f]->ops[o]; o++) {
            const qni_op *op = qni_families[f]->ops[o];
            assert_string_equal(names[count++], op->name);
            assert_true(op->num_variants > 0);
            check_keys(op);
            check_cpu_names(op);
            for (int v = 0; v < op->num_variants; v++) {
                const size_t length = strlen(op->name);
                assert_true(strncmp(op->variants[v].name, op->name, length) == 0);
                assert_int_equal(op->variants[v].name[length], '.');
                for (int w = 0; w < v; w++)
                    assert_string_not_equal(op->variants[v].name, op->variants[w].name);
            }
        }
    assert_null(names[count]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_names), // first: a process reads its environment once
        cmocka_unit_test(test_harness),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_batches),       cmocka_unit_test(test_areas),
        cmocka_unit_test(test_families),      cmocka_unit_test(test_agreement),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
