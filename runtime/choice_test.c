// SPDX-License-Identifier: Apache-2.0
// The choice of a kernel: order, reasons, and the effects of QUERN_DISABLE, QUERN_FORCE and
// QUERN_LOG.
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
static const qni_op op_double = {"double", variants, 4, nullptr, nullptr};
static const qni_op op_gpu_only = {"gpuonly", variants, 1, nullptr, nullptr};

/** Returns the CPU device with other features, for the choice on a lesser or greater machine. */
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
    static const qni_op op = {"double", of_gpu, 2, nullptr, nullptr};
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

/** The first costs 10, the second 1 for each item; the third is for problems that these two cannot
 *  run. */
static const qni_variant priced[] = {
    {"priced.flat", {.all = 0}, true, takes_fours, per_item, run_fours, {.rows = 10}},
    {"priced.each", {.all = 0}, true, takes_fours, per_item, run_wide, {.columns = 1}},
    {"priced.kin", {.any = QNI_F(AVX512) | QNI_F(AVX2)}, true, nullptr, nullptr, run_any, {}},
    {"priced.any", {.all = 0}, true, nullptr, nullptr, run_any, {}},
};
static const qni_op op_priced = {"priced", priced, 4, nullptr, nullptr};

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

/** Appends "name[*][ (reason)];" to the text, * for a general kernel. */
static void note_kernel(void *context, const qn_kernel *k) {
    char *text = context;
    const size_t used = strlen(text);
    snprintf(text + used, 512 - used, "%s%s%s%s;", k->name, k->is_general ? "*" : "",
             k->reason ? " " : "", k->reason ? k->reason : "");
}

static void list_kernels(void *) {
    static const qni_op *const ops[] = {&op_double, &op_gpu_only, nullptr};
    qn_device device = device_with(QNI_F(AVX512));
    char text[512] = "";
    qni_choice_set_ops(ops);
    CHILD_CHECK(qn_kernel_list(&device, nullptr, note_kernel, text) == QN_OK);
    CHILD_CHECK(strcmp(text, "double.wide;double.fours* QUERN_DISABLE names it;double.any*;") == 0);
    *text = 0;
    device.features = 0;
    CHILD_CHECK(qn_kernel_list(&device, "double", note_kernel, text) == QN_OK);
    CHILD_CHECK(strstr(text, "double.wide needs avx512, which cpu"));
    *text = 0;
    device.id.device_type = kDLROCM;
    device.features = QNI_F(GPU);
    CHILD_CHECK(qn_kernel_list(&device, "gpuonly", note_kernel, text) == QN_OK);
    CHILD_CHECK(strcmp(text, "double.gpu;") == 0);
    CHILD_CHECK(qn_kernel_list(&device, "gemv", note_kernel, text) == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "no op is called \"gemv\""));
    CHILD_CHECK(qn_kernel_list(nullptr, nullptr, note_kernel, text) == QN_E_INVALID);
    CHILD_CHECK(qn_kernel_list(&device, nullptr, nullptr, text) == QN_E_INVALID);
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
    child_run(list_kernels, nullptr, (const char *[]){"QUERN_DISABLE=double.fours", nullptr});
    child_run(refuse_unknown, nullptr, (const char *[]){"QUERN_FORCE=double=double.four", nullptr});
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
    assert_non_null(strstr(text, "priced.any; not priced.flat and 1 more: count=11 is no multiple "
                                 "of 4; not priced.kin: needs avx2 or another of its kind; cpu"));
    text = child_run(choose_often, nullptr, (const char *[]){"QUERN_LOG=jit,launch", nullptr});
    assert_string_equal(text, "");
    text = child_run(choose_often, nullptr,
                     (const char *[]){"QUERN_LOG=all", "QUERN_FORCE=double=double.any", nullptr});
    assert_string_equal(text, "quern: kernel: double on cpu: double.any (QUERN_FORCE)\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_log)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
