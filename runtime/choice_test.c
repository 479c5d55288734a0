// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel: order, reasons, what QUERN_DISABLE, QUERN_FORCE and QUERN_LOG do; the
// check harness.
#include "runtime.h"
#include "testing.h"

#include <quern/choice.h>

#include <math.h>

// A small op: doubles `count` floats. Its kernels differ in what they take, and note that they ran.
typedef struct problem {
    int64_t count;
    const float *from;
    float *to;
} problem;

static const char *last_run;

static qn_status double_all(const problem *p, const char *name) {
    last_run = name;
    for (int64_t i = 0; i < p->count; i++)
        p->to[i] = 2 * p->from[i];
    return QN_OK;
}

static bool takes_fours(const qni_variant *, const qn_device *, const void *p, qni_reason *why) {
    int64_t count = ((const problem *)p)->count;
    return count % 4 == 0 ? true : qni_no(why, "count=%ld is no multiple of 4", (long)count);
}

static qn_status run_wide(const qni_variant *, qn_stream *, const void *p) {
    return double_all(p, "double.wide");
}

static qn_status run_fours(const qni_variant *, qn_stream *, const void *p) {
    return double_all(p, "double.fours");
}

static qn_status run_any(const qni_variant *, qn_stream *, const void *p) {
    return double_all(p, "double.any");
}

static const qni_variant variants[] = {
    {"double.gpu", {.all = QNI_F(GPU)}, false, nullptr, nullptr, run_wide, {}},
    {"double.wide", {.all = QNI_F(AVX512)}, true, takes_fours, nullptr, run_wide, {}},
    {"double.fours", {.all = 0}, true, takes_fours, nullptr, run_fours, {}},
    {"double.any", {.all = 0}, true, nullptr, nullptr, run_any, {}},
};
static const qni_op op_double = {"double", variants, 4};
static const qni_op op_gpu_only = {"gpuonly", variants, 1};

/** The CPU device with other features: what a lesser or greater machine would choose. */
static qn_device device_with(uint64_t features) {
    qn_device device = {0};
    CHILD_CHECK(qni_cpu_open(&device, "") == QN_OK);
    device.features = features;
    return device;
}

static const char *chosen(uint64_t features, int64_t count) {
    qn_device device = device_with(features);
    problem p = {.count = count};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_double, &device, &p, &found) == QN_OK);
    return found->name;
}

// ---- order and reasons

static void choose_in_order(void *) {
    CHILD_CHECK(strcmp(chosen(QNI_F(AVX512), 8), "double.wide") == 0);
    CHILD_CHECK(strcmp(chosen(0, 8), "double.fours") == 0);
    CHILD_CHECK(strcmp(chosen(QNI_F(AVX512), 7), "double.any") == 0);
    qn_device device = device_with(0);
    problem p = {.count = 7};
    qni_reason why = {""};
    CHILD_CHECK(!qni_variant_fits(&variants[1], &device, &p, &why));
    CHILD_CHECK(strstr(why.text, "needs avx512, which cpu"));
    CHILD_CHECK(!qni_variant_fits(&variants[2], &device, &p, &why));
    CHILD_CHECK(strcmp(why.text, "count=7 is no multiple of 4") == 0);
    CHILD_CHECK(!qni_variant_fits(&variants[0], &device, &p, nullptr));
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_gpu_only, &device, &p, &found) == QN_E_UNSUPPORTED);
    CHILD_CHECK(!found && strstr(qn_last_error(), "none was written for such a device"));
}

static qn_status run_slow(const qni_variant *, qn_stream *, const void *p) {
    return double_all(p, "double.gpu_any");
}

static void leave_out_slow(void *) {
    static const qni_variant of_gpu[] = {
        {"double.gpu_fours", {.all = 0}, false, takes_fours, nullptr, run_fours, {}},
        {"double.gpu_any", {.all = 0}, false, nullptr, nullptr, run_slow, {}}};
    static const qni_op op = {"double", of_gpu, 2};
    qn_device device = device_with(0);
    device.id.device_type = kDLROCM;
    problem fours = {.count = 8}, others = {.count = 7};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op, &device, &others, &found) == QN_OK && found == &of_gpu[1]);
    CHILD_CHECK(qn_allow_slow_kernels(false));
    CHILD_CHECK(qni_choose(&op, &device, &fours, &found) == QN_OK && found == &of_gpu[0]);
    CHILD_CHECK(qni_choose(&op, &device, &others, &found) == QN_E_UNSUPPORTED);
    CHILD_CHECK(strstr(qn_last_error(),
                       "takes double.gpu_any, which is slow and was not asked for; not "
                       "double.gpu_fours: count=7 is no multiple of 4"));
    CHILD_CHECK(strcmp(chosen(0, 7), "double.any") ==
                0); // the CPU's last kernel is not one of these
    CHILD_CHECK(!qn_allow_slow_kernels(true));
    CHILD_CHECK(qni_choose(&op, &device, &others, &found) == QN_OK && found == &of_gpu[1]);
}

// ---- costs

static double per_item(const qni_variant *variant, const qn_device *, const void *p) {
    return (double)variant->config.rows +
           (double)((const problem *)p)->count * variant->config.columns;
}

/** The first costs 10, the second one an item, the third is for what they cannot run. */
static const qni_variant priced[] = {
    {"priced.flat", {.all = 0}, true, takes_fours, per_item, run_fours, {.rows = 10}},
    {"priced.each", {.all = 0}, true, takes_fours, per_item, run_wide, {.columns = 1}},
    {"priced.kin", {.any = QNI_F(AVX512) | QNI_F(AVX2)}, true, nullptr, nullptr, run_any, {}},
    {"priced.any", {.all = 0}, true, nullptr, nullptr, run_any, {}},
};
static const qni_op op_priced = {"priced", priced, 4};

static const char *cheapest(uint64_t features, int64_t count) {
    qn_device device = device_with(features);
    problem p = {.count = count};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_priced, &device, &p, &found) == QN_OK);
    return found->name;
}

static void choose_by_cost(void *) {
    CHILD_CHECK(strcmp(cheapest(0, 4), "priced.each") == 0);
    CHILD_CHECK(strcmp(cheapest(0, 12), "priced.flat") == 0);
    CHILD_CHECK(strcmp(cheapest(0, 11), "priced.any") == 0);
    // One of two features is enough.
    CHILD_CHECK(strcmp(cheapest(QNI_F(AVX2), 11), "priced.kin") == 0);
    CHILD_CHECK(strcmp(cheapest(QNI_F(AVX512), 11), "priced.kin") == 0);
}

static void force_dearer(void *) { // QUERN_FORCE=priced=priced.flat
    CHILD_CHECK(strcmp(cheapest(0, 4), "priced.flat") == 0);
}

static void remember_last(void *) {
    qn_device device = device_with(0);
    qn_stream stream = {.device = &device};
    float in[] = {1, 2, 3}, out[3];
    problem p = {3, in, out};
    CHILD_CHECK(strcmp(qn_last_kernel(), "") == 0);
    CHILD_CHECK(qni_run(&op_double, &stream, &p) == QN_OK);
    CHILD_CHECK(strcmp(qn_last_kernel(), "double.any") == 0);
    CHILD_CHECK(strcmp(last_run, "double.any") == 0 && out[0] == 2.0f && out[2] == 6.0f);
}

static void choose_without(void *) { // QUERN_DISABLE=double.wide,double.any
    CHILD_CHECK(strcmp(chosen(QNI_F(AVX512), 8), "double.fours") == 0);
    qn_device device = device_with(QNI_F(AVX512));
    problem p = {.count = 7};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_double, &device, &p, &found) == QN_E_UNSUPPORTED);
    // Every kernel's reason is in the message.
    CHILD_CHECK(strstr(qn_last_error(), "not double.wide: QUERN_DISABLE names it"));
    CHILD_CHECK(strstr(qn_last_error(), "not double.fours: count=7 is no multiple of 4"));
    CHILD_CHECK(strstr(qn_last_error(), "not double.any: QUERN_DISABLE names it"));
}

static void choose_none(void *) { // QUERN_DISABLE=hip,cpu
    qn_device device = device_with(QNI_F(AVX512));
    problem p = {.count = 8};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_double, &device, &p, &found) == QN_E_UNSUPPORTED);
    CHILD_CHECK(strstr(qn_last_error(), "QUERN_DISABLE names its backend, cpu"));
}

static void choose_forced(void *) { // QUERN_FORCE=doubles=double.fours,double=double.any
    CHILD_CHECK(strcmp(chosen(QNI_F(AVX512), 8), "double.any") == 0);
}

static void refuse_forced(void *) { // QUERN_FORCE=double=double.fours
    qn_device device = device_with(QNI_F(AVX512));
    problem p = {.count = 7};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_double, &device, &p, &found) == QN_E_UNSUPPORTED && !found);
    CHILD_CHECK(strstr(qn_last_error(), "QUERN_FORCE asks for double.fours, which cannot run: "
                                        "count=7 is no multiple of 4"));
}

static void refuse_unknown(void *) { // QUERN_FORCE=double=double.four
    qn_device device = device_with(QNI_F(AVX512));
    problem p = {.count = 8};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&op_double, &device, &p, &found) == QN_E_INVALID && !found);
    CHILD_CHECK(strstr(qn_last_error(), "double.gpu, double.wide, double.fours, double.any"));
}

static void choose_often(void *) {
    for (int i = 0; i < 100; i++) {
        chosen(0, 8);
        chosen(0, 7);
    }
}

static void test_choice(void **) {
    child_run(choose_in_order, nullptr, nullptr);
    child_run(choose_by_cost, nullptr, nullptr);
    child_run(force_dearer, nullptr, (const char *[]){"QUERN_FORCE=priced=priced.flat", nullptr});
    child_run(remember_last, nullptr, nullptr);
    child_run(leave_out_slow, nullptr, nullptr);
    child_run(choose_without, nullptr,
              (const char *[]){"QUERN_DISABLE=double.wide,double.any", nullptr});
    child_run(choose_none, nullptr, (const char *[]){"QUERN_DISABLE=hip,cpu", nullptr});
    child_run(choose_forced, nullptr,
              (const char *[]){"QUERN_FORCE=doubles=double.fours,double=double.any", nullptr});
    child_run(refuse_forced, nullptr, (const char *[]){"QUERN_FORCE=double=double.fours", nullptr});
    child_run(refuse_unknown, nullptr, (const char *[]){"QUERN_FORCE=double=double.four", nullptr});
}

// Names of the library's own ops: those of the test's are unknown to qn_device_open.
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

static void test_log(void **) {
    const char *text =
        child_run(choose_often, nullptr, (const char *[]){"QUERN_LOG=kernel", nullptr});
    assert_int_equal(count_text(text, "\n"), 2); // one line for each distinct choice
    assert_non_null(strstr(text, "quern: kernel: double on cpu: double.fours; not double.wide: "
                                 "needs avx512"));
    assert_non_null(strstr(text, "double.any; not double.wide: needs avx512"));
    assert_non_null(strstr(text, "; not double.fours: count=7 is no multiple of 4\n"));
    text = child_run(choose_by_cost, nullptr, (const char *[]){"QUERN_LOG=kernel", nullptr});
    assert_non_null(strstr(text, "priced on cpu: priced.each; dearer priced.flat: 10, not 4\n"));
    assert_non_null(strstr(text, "priced on cpu: priced.flat; dearer priced.each: 12, not 10\n"));
    assert_non_null(strstr(text, "priced.any; not priced.flat: count=11 is no multiple of 4; not "
                                 "priced.each: count=11 is no multiple of 4; not priced.kin: "
                                 "needs avx2 or another of its kind; cpu"));
    text = child_run(choose_often, nullptr, (const char *[]){"QUERN_LOG=jit,launch", nullptr});
    assert_string_equal(text, "");
    text = child_run(choose_often, nullptr,
                     (const char *[]){"QUERN_LOG=all", "QUERN_FORCE=double=double.any", nullptr});
    assert_string_equal(text, "quern: kernel: double on cpu: double.any (QUERN_FORCE)\n");
}

// ---- the check harness, on an op with one right and several wrong kernels

typedef struct checked {
    float in[8], out[8];
    int64_t shape[1];
    DLTensor tensor;
    const DLTensor *outputs[1];
    int resets;
} checked;

static qn_status run_wrong(const qni_variant *, qn_stream *, const void *p) {
    double_all(p, "wrong");
    ((const problem *)p)->to[5] += 1;
    return QN_OK;
}

static qn_status run_lazy(const qni_variant *, qn_stream *, const void *) {
    return QN_OK; // leaves the poison
}

static qn_status run_fickle(const qni_variant *, qn_stream *, const void *p) {
    static int runs;
    double_all(p, "fickle");
    ((const problem *)p)->to[3] +=
        1e-6f * (float)(++runs % 2); // within tolerance, but not the same bits
    return QN_OK;
}

static qn_status run_broken(const qni_variant *, qn_stream *, const void *) {
    return QN_FAIL(QN_E_DEVICE, "the driver said no");
}

static const qni_variant check_variants[] = {
    {"twice.gpu", {.all = QNI_F(GPU)}, false, nullptr, nullptr, run_wide, {}},
    {"twice.right", {.all = 0}, true, nullptr, nullptr, run_any, {}},
    {"twice.wrong", {.all = 0}, true, nullptr, nullptr, run_wrong, {}},
    {"twice.lazy", {.all = 0}, true, nullptr, nullptr, run_lazy, {}},
    {"twice.fickle", {.all = 0}, true, nullptr, nullptr, run_fickle, {}},
    {"twice.broken", {.all = 0}, true, nullptr, nullptr, run_broken, {}},
};
static const qni_op op_twice = {"twice", check_variants, 6};
static const qni_op op_right = {"right", check_variants, 2};

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

static qn_status check_one(qni_check_run *run, const qni_op *op) {
    checked c = {.shape = {8}};
    for (int i = 0; i < 8; i++)
        c.in[i] = (float)i + (float)(qni_check_seed(run) % 5);
    c.tensor = (DLTensor){.data = c.out,
                          .device = {kDLCPU, 0},
                          .ndim = 1,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = c.shape};
    c.outputs[0] = &c.tensor;
    problem p = {8, c.in, c.out};
    qni_check_problem problem_of_8 = {.op = op,
                                      .text = "count=8",
                                      .problem = &p,
                                      .context = &c,
                                      .reset = reset,
                                      .compare = compare,
                                      .outputs = c.outputs,
                                      .num_outputs = 1};
    const qn_status st = qni_check_problem_run(run, &problem_of_8);
    assert_true(st != QN_OK || c.resets >= 2);
    return st;
}

static const qni_family family_right = {"right", (const qni_op *const[]){&op_right, nullptr},
                                        check_one};
static const qni_family family_twice = {"twice", (const qni_op *const[]){&op_twice, nullptr},
                                        check_one};

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
    const qni_family *const families[] = {&family_right, &family_twice, nullptr};
    assert_int_equal(qni_check_families(families, device, "twice", &options, note_result, &s),
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
    assert_int_equal(qni_check_families(families, device, "right", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.result[1].time_ns, -1); // nobody asked
    assert_int_equal(qni_check_families(families, device, "left", nullptr, note_result, &s),
                     QN_E_NOT_FOUND);
    options.struct_size = 3;
    assert_int_equal(qni_check_families(families, device, nullptr, &options, note_result, &s),
                     QN_E_INVALID);
    assert_int_equal(qn_check(nullptr, nullptr, nullptr, nullptr, nullptr), QN_E_INVALID);
    qn_device_close(device);
}

static qn_status run_poor(const qni_variant *, qn_stream *, const void *) {
    return QN_FAIL(QN_E_MEMORY, "poor: out of memory");
}

static const qni_variant poor_variants[] = {
    {"poor.cpu", {.all = 0}, true, nullptr, nullptr, run_poor, {}}};
static const qni_op op_poor = {"poor", poor_variants, 1};

static qn_status check_poor(qni_check_run *run, const qni_op *op) {
    const qni_check_problem p = {
        .op = op, .text = "any", .context = &(checked){}, .reset = reset, .compare = compare};
    return qni_check_problem_run(run, &p);
}

static const qni_family family_poor = {"poor", (const qni_op *const[]){&op_poor, nullptr},
                                       check_poor};

/** Without memory nothing is known of a kernel: it does not disagree. */
static void test_no_memory(void **) {
    const qni_family *const families[] = {&family_poor, nullptr};
    qn_device *device = nullptr;
    seen s = {0};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_check_families(families, device, "poor", nullptr, note_result, &s),
                     QN_E_MEMORY);
    assert_int_equal(s.count, 0);
    qn_device_close(device);
}

// ---- batches, on an op with a kernel that looks at its batch's size

static qn_status run_by_count(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    double_all(p, "by count");
    if (p->count > 4)
        p->to[0] += 1e-6f;
    return QN_OK;
}

static const qni_variant batch_variants[] = {
    {"batch.right", {.all = 0}, true, nullptr, nullptr, run_any, {}}};
static const qni_variant by_count_variants[] = {
    {"by_count.wrong", {.all = 0}, true, nullptr, nullptr, run_by_count, {}}};
static const qni_op op_batch = {"batch", batch_variants, 1};
static const qni_op op_by_count = {"by_count", by_count_variants, 1};
static const qni_variant elsewhere_variants[] = {
    {"elsewhere.gpu", {.all = QNI_F(GPU)}, false, nullptr, nullptr, run_any, {}}};
static const qni_op op_elsewhere = {"elsewhere", elsewhere_variants, 1};

/** Batches of 1, 4 and 8 numbers, of which all have the first. */
static qn_status check_batches(qni_check_run *run, const qni_op *op) {
    static const int64_t sizes[] = {1, 4, 8};
    qni_check_batches batches = {.run = run, .op = op};
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
        assert_int_equal(qni_check_batches_add(&batches, &(qni_check_problem){.op = op,
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
    "batch", (const qni_op *const[]){&op_batch, &op_by_count, &op_elsewhere, nullptr},
    check_batches};

static void test_batches(void **) {
    const qni_family *const families[] = {&family_batch, nullptr};
    qn_device *device = nullptr;
    seen s = {0};
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_check_families(families, device, "batch", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 2); // of three batches, the first is what others are held to
    assert_true(s.result[0].passed && s.result[1].passed);
    s = (seen){0};
    assert_int_equal(qni_check_families(families, device, "by_count", nullptr, note_result, &s),
                     QN_E_MISMATCH);
    assert_true(s.result[0].passed && !s.result[1].passed);
    assert_non_null(strstr(s.text[1], "batch of 1 by by_count.wrong"));
    s = (seen){0};
    assert_int_equal(qni_check_families(families, device, "elsewhere", nullptr, note_result, &s),
                     QN_OK);
    assert_int_equal(s.count, 3);
    assert_non_null(strstr(s.text[0], "elsewhere: no kernel for this on cpu"));
    qn_device_close(device);
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
        cmocka_unit_test(test_choice),   cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_log),      cmocka_unit_test(test_harness),
        cmocka_unit_test(test_batches),  cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_families),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
