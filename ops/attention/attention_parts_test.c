// SPDX-License-Identifier: Apache-2.0
// Which kernel a call of attention gets by its types, head dims and rows. A batch with requests of
// few rows and of more gets two kernels, which leave each other's requests alone. The log names the
// kernels.
#include "../../runtime/testing.h"
#include "attention_case.h"

#include <quern/choice.h>

#define ALL_OF(type) .dtype = type, .dtype_kv = type, .dtype_o = type
#define TYPES(q, kv) .dtype = q, .dtype_kv = kv, .dtype_o = QNI_BF16
#define ROWS(n) .storage = QNI_CASE_DENSE, .batches = 1, .qo = {n}, .kv = {24}
#define HEADS(d) .qo_heads = 1, .kv_heads = 1, .dim = d
#define MIXED .storage = QNI_CASE_RAGGED, .batches = 3, .qo = {2, 20, 16}, .kv = {30, 40, 20}

static qni_attention_case *make_case(qn_stream *stream, const qni_attention_spec *spec) {
    qni_attention_case *c = calloc(1, sizeof *c);
    CHILD_CHECK(c && qni_attention_case_create(c, stream, spec, 1) == QN_OK);
    return c;
}

static void free_case(qni_attention_case *c) {
    qni_attention_case_destroy(c);
    free(c);
}

static qn_stream *open_stream(const char *spec, qn_device **device) {
    qn_stream *stream = nullptr;
    CHILD_CHECK(qn_device_open(device, spec) == QN_OK);
    CHILD_CHECK(qn_stream_create(&stream, *device) == QN_OK);
    return stream;
}

static void close_stream(qn_stream *stream, qn_device *device) {
    qn_stream_destroy(stream);
    qn_device_close(device);
}

/** Checks that every result is right, and that bytes that no expectation names are unchanged. */
static void check_results(qn_stream *stream, qni_attention_case *c) {
    char detail[512] = "";
    double error = 0;
    const qn_status st = qni_areas_compare(&(qni_areas){c->areas, QNI_CASE_AREAS}, stream, &error,
                                           detail, sizeof detail);
    if (st != QN_OK || !(error <= 1))
        fprintf(stderr, "%s: %s\n", c->text, detail);
    CHILD_CHECK(st == QN_OK && error <= 1);
}

static void reset(qn_stream *stream, qni_attention_case *c) {
    CHILD_CHECK(qni_areas_reset(&(qni_areas){c->areas, QNI_CASE_AREAS}, stream) == QN_OK);
}

// ---- which kernel

static const struct {
    const char *kernel;
    qni_attention_spec spec;
} lines[] = {
    {"attention.gpu_decode_bf16", {ROWS(16), HEADS(64), ALL_OF(QNI_BF16)}},
    {"attention.gpu_decode_f16_fp8", {ROWS(2), HEADS(8), TYPES(QNI_F16, QNI_E4M3FNUZ)}},
    {"attention.gpu_tile_64_f16", {ROWS(17), HEADS(8), ALL_OF(QNI_F16)}},
    {"attention.gpu_tile_128_f16", {ROWS(17), HEADS(64), .dim_vo = 128, ALL_OF(QNI_F16)}},
    {"attention.gpu_tile_256_bf16", {ROWS(1), HEADS(136), ALL_OF(QNI_BF16)}},
    {"attention.gpu_mfma_64_f16", {ROWS(17), HEADS(64), ALL_OF(QNI_F16)}},
    {"attention.gpu_mfma_128_bf16", {ROWS(17), HEADS(128), ALL_OF(QNI_BF16)}},
    {"attention.gpu_mfma_192_bf16", {ROWS(17), HEADS(192), .dim_vo = 128, ALL_OF(QNI_BF16)}},
    {"attention.gpu_mfma_256_f16", {ROWS(17), HEADS(256), ALL_OF(QNI_F16)}},
    {"attention.gpu_mfma_128_bf16_fp8", {ROWS(17), HEADS(128), TYPES(QNI_BF16, QNI_E4M3FNUZ)}},
    {"attention.gpu_mfma_64_bf16_fp8", {ROWS(17), HEADS(64), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ)}},
    {"attention.gpu_tile_128_bf16_fp8", {ROWS(17), HEADS(128), TYPES(QNI_BF16, QNI_E4M3FN)}},
    {"attention.gpu_tile_128_bf16", {ROWS(17), HEADS(128), ALL_OF(QNI_BF16), .cap = 8}},
    {"attention.gpu_tile_128_bf16", {ROWS(17), HEADS(128), ALL_OF(QNI_BF16), .dropout = 0.5f}},
    {"attention.gpu_tile_64_f16", {ROWS(2), HEADS(64), ALL_OF(QNI_F16), .dropout = 0.5f}},
    {"attention.gpu_any_128",
     {ROWS(17), HEADS(64), TYPES(QNI_BF16, QNI_E4M3FNUZ), .dropout = 0.5f}},
    {"attention.gpu_tile_64_bf16_fp8", {ROWS(1), HEADS(64), TYPES(QNI_BF16, QNI_E5M2)}},
    {"attention.gpu_tile_128_bf16_fp8", {ROWS(17), HEADS(80), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ)}},
    {"attention.gpu_any_128", {ROWS(1), HEADS(33), ALL_OF(QNI_F32)}},
    {"attention.gpu_any_512", {ROWS(1), HEADS(264), ALL_OF(QNI_F32)}},
};

static void choose_leaves(void *) {
    qn_device *device = nullptr;
    qn_stream *stream = open_stream("sim:gfx942", &device);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        qni_attention_case *c = make_case(stream, &lines[i].spec);
        reset(stream, c);
        CHILD_CHECK(qn_attention(stream, &c->args) == QN_OK);
        if (strcmp(qn_last_kernel(), lines[i].kernel) != 0)
            fprintf(stderr, "%s took %s, not %s\n", c->text, qn_last_kernel(), lines[i].kernel);
        CHILD_CHECK(strcmp(qn_last_kernel(), lines[i].kernel) == 0);
        check_results(stream, c);
        free_case(c);
    }
    close_stream(stream, device);
}

static void test_leaves(void **) {
    needs_images("gfx942");
    child_run(choose_leaves, nullptr, (const char *[]){"QUERN_NO_JIT=1", nullptr});
}

// ---- parts

static const qni_attention_spec mixed = {MIXED, HEADS(64), ALL_OF(QNI_BF16), .has_lse = true};
/** A batch of which requests of both kinds are split. */
static const qni_attention_spec split = {MIXED, HEADS(64), ALL_OF(QNI_BF16), .chunk = 8};

static void call_mixed(void *spec) {
    qn_device *device = nullptr;
    qn_stream *stream = open_stream(spec, &device);
    const qni_attention_spec *const specs[] = {&mixed, &split};
    for (int i = 0; i < 2; i++) {
        qni_attention_case *c = make_case(stream, specs[i]);
        reset(stream, c);
        CHILD_CHECK(qn_attention(stream, &c->args) == QN_OK);
        check_results(stream, c);
        free_case(c);
    }
    fprintf(stderr, "last: %s\n", qn_last_kernel());
    close_stream(stream, device);
}

static const char *log_of(const char *spec, const char *variable) {
    const char *const env[] = {"QUERN_NO_JIT=1", "QUERN_LOG=kernel", variable, nullptr};
    return child_run(call_mixed, (void *)(uintptr_t)spec, env);
}

static void test_two_kernels(void **) {
    needs_images("gfx942");
    const char *log = log_of("sim:gfx942", nullptr);
    assert_non_null(strstr(log, "attention on sim:gfx942: attention.gpu_decode_bf16; "));
    assert_non_null(strstr(log, "attention on sim:gfx942: attention.gpu_mfma_64_bf16; "));
    assert_non_null(strstr(log, "a request has more than 16 rows"));
    assert_non_null(strstr(log, "last: attention.gpu_mfma_64_bf16"));
}

/** A kernel for both kinds takes all requests at once; then there is nothing to leave to another
 *  part. */
static void test_other_kernels(void **) {
    needs_images("gfx942");
    const char *log = log_of("sim:gfx942", "QUERN_BATCH_INVARIANT=1");
    assert_null(strstr(log, ": attention.gpu_decode_bf16; "));
    assert_non_null(strstr(log, "not attention.gpu_decode_bf16: QUERN_BATCH_INVARIANT is 1"));
    log = log_of("sim:gfx942", "QUERN_FORCE=attention=attention.gpu_tile_64_bf16");
    assert_null(strstr(log, "gpu_decode"));
    log =
        log_of("sim:gfx942", "QUERN_DISABLE=attention.gpu_tile_64_bf16,attention.gpu_mfma_64_bf16");
    assert_non_null(strstr(log, "attention on sim:gfx942: attention.gpu_decode_bf16; "));
    assert_non_null(strstr(log, "attention on sim:gfx942: attention.gpu_any_128; "));
}

/** If one part has only a slow kernel, the call is refused before the other part has written. */
static void refuse_half(void *) {
    qn_device *device = nullptr;
    qn_stream *stream = open_stream("sim:gfx942", &device);
    qni_attention_case *c = make_case(stream, &mixed);
    for (int i = QNI_CASE_O; i <= QNI_CASE_LSE; i++)
        for (int64_t n = 0; n < c->areas[i].count; n++)
            c->areas[i].tolerance[n] = -1;
    reset(stream, c);
    qn_allow_slow_kernels(false);
    CHILD_CHECK(qn_attention(stream, &c->args) == QN_E_UNSUPPORTED);
    CHILD_CHECK(strstr(qn_last_error(), "takes attention.gpu_any_128, which is slow"));
    check_results(stream, c);
    free_case(c);
    close_stream(stream, device);
}

static void test_refusal(void **) {
    needs_images("gfx942");
    child_run(refuse_half, nullptr,
              (const char *[]){
                  "QUERN_DISABLE=attention.gpu_tile_64_bf16,attention.gpu_mfma_64_bf16", nullptr});
}

// ---- a kernel leaves requests alone that it is not launched for

/** Expects that what requests of few rows, or those of more, get stays as it is. */
static void expect_part(qni_attention_case *c, bool of_few_rows) {
    const qk_attention_args *g = &c->problem.args;
    const qk_attention_schedule *plan = c->problem.plan;
    for (uint32_t r = 0; r < plan->num_requests; r++) {
        const qk_attention_request *request = &qk_attention_requests(plan)[r];
        const bool has_few = request->qo_len * (int)g->group <= QK_ATTENTION_FEW_ROWS;
        for (int64_t t = request->qo_begin;
             has_few != of_few_rows && t < request->qo_begin + request->qo_len; t++)
            for (int64_t h = 0; h < g->num_kv_heads * g->group; h++) {
                double *o = c->areas[QNI_CASE_O].tolerance + t * g->o_token + h * g->o_head;
                c->areas[QNI_CASE_LSE].tolerance[t * g->lse_token + h * g->lse_head] = -1;
                for (uint32_t d = 0; d < g->head_dim_vo; d++)
                    o[d] = -1;
            }
    }
}

static int run_part(qn_stream *stream, const qni_variant *variant, bool of_few_rows) {
    qni_attention_case *c = make_case(stream, &mixed);
    qni_attention_problem *p = &c->problem;
    p->has_few_rows = of_few_rows, p->has_more_rows = !of_few_rows;
    p->args.least_rows = of_few_rows ? 0 : QK_ATTENTION_FEW_ROWS + 1;
    p->args.most_rows = of_few_rows ? QK_ATTENTION_FEW_ROWS : UINT32_MAX;
    const bool is_taken = qni_variant_fits(variant, qn_stream_device(stream), p, nullptr);
    if (is_taken) {
        expect_part(c, of_few_rows);
        reset(stream, c);
        CHILD_CHECK(variant->run(variant, stream, p) == QN_OK);
        check_results(stream, c);
    }
    free_case(c);
    return is_taken;
}

static void run_parts(void *spec) {
    qn_device *device = nullptr;
    qn_stream *stream = open_stream(spec, &device);
    int count = 0;
    for (int i = 0; i < qni_op_attention.num_variants; i++)
        for (int of_few_rows = 0; of_few_rows < 2; of_few_rows++)
            count += run_part(stream, &qni_op_attention.variants[i], of_few_rows);
    CHILD_CHECK(count >= 2);
    close_stream(stream, device);
}

static void test_parts(void **state) {
    const char *spec = *state;
    if (strchr(spec, ':'))
        needs_images(strchr(spec, ':') + 1);
    child_run(run_parts, *state, (const char *[]){"QUERN_NO_JIT=1", nullptr});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_two_kernels),
        cmocka_unit_test(test_other_kernels),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test_prestate(test_parts, (void *)(uintptr_t)"cpu"),
        cmocka_unit_test_prestate(test_parts, (void *)(uintptr_t)"sim:gfx942"),
        cmocka_unit_test_prestate(test_parts, (void *)(uintptr_t)"sim:gfx1151"),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
