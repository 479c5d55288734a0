// SPDX-License-Identifier: Apache-2.0
// A batch with requests of few rows and of more, all of them split, on gfx942: one merge if both
// kernels write chunks' results in one form, and one for each if they do not. The log names the
// launches.
#include "../../runtime/testing.h"
#include "mla_case.h"

static const qni_mla_spec mixed = {.batches = 3,
                                   .qo = {1, 3, 2},
                                   .kv = {150, 200, 40},
                                   .heads = 12,
                                   .dim = 512,
                                   .rope_dim = 64,
                                   .page = 16,
                                   .dtype = QNI_BF16,
                                   .dtype_kv = QNI_E4M3FNUZ,
                                   .dtype_o = QNI_BF16,
                                   .has_lse = true,
                                   .chunk = 32};

static void check_results(qn_stream *stream, qni_mla_case *c) {
    char detail[512] = "";
    double error = 0;
    const qn_status st = qni_areas_compare(&(qni_areas){c->areas, QNI_MLA_AREAS}, stream, &error,
                                           detail, sizeof detail);
    if (st != QN_OK || !(error <= 1))
        fprintf(stderr, "%s: %s\n", c->text, detail);
    CHILD_CHECK(st == QN_OK && error <= 1);
}

static void call_mixed(void *) {
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    qni_mla_case *c = calloc(1, sizeof *c);
    CHILD_CHECK(c && qn_device_open(&device, "sim:gfx942") == QN_OK);
    CHILD_CHECK(qn_stream_create(&stream, device) == QN_OK);
    CHILD_CHECK(qni_mla_case_create(c, stream, &mixed, 1) == QN_OK);
    CHILD_CHECK(qni_areas_reset(&(qni_areas){c->areas, QNI_MLA_AREAS}, stream) == QN_OK);
    CHILD_CHECK(qni_attention_is_mixed(&c->problem));
    CHILD_CHECK(qni_mla_run(stream, &c->problem) == QN_OK);
    check_results(stream, c);
    qni_mla_case_destroy(c);
    free(c);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

static const char *log_of(const char *variable) {
    const char *const env[] = {"QUERN_NO_JIT=1", "QUERN_LOG=launch", variable, nullptr};
    return child_run(call_mixed, nullptr, env);
}

static void test_one_merge(void **) {
    needs_images("gfx942");
    const char *log = log_of(nullptr);
    assert_int_equal(count_text(log, "qk_mla_few"), 1);
    assert_int_equal(count_text(log, "qk_mla_many"), 1);
    assert_int_equal(count_text(log, "qk_mla_merge"), 1);
    assert_int_equal(count_text(log, "qk_attention_merge"), 0);
}

/** Without gpu_many_bf16_fp8 the requests of more rows have a kernel that writes f32. */
static void test_two_merges(void **) {
    needs_images("gfx942");
    const char *log = log_of("QUERN_DISABLE=mla.gpu_many_bf16_fp8");
    assert_int_equal(count_text(log, "qk_mla_few"), 1);
    assert_int_equal(count_text(log, "qk_mla_tile"), 1);
    assert_int_equal(count_text(log, "qk_mla_merge"), 1);
    assert_int_equal(count_text(log, "qk_attention_merge"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_merge),
        cmocka_unit_test(test_two_merges),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
