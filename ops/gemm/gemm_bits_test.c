// SPDX-License-Identifier: Apache-2.0
// A row's bits by each kernel: on the CPU a kernel's bits do not depend on how many rows there are;
// on a GPU all kernels that take a problem give equal bits. gemm_batches_check.c compares the bits
// of plain calls in more batches.
#include "gemm_test_case.h"

#include <quern/quantize.h>

enum { N = 200, K = 1172 };

static int open_gfx942(void **) {
    return open_device("sim:gfx942");
}
static int open_gfx90a(void **) {
    return open_device("sim:gfx90a");
}
static int open_gfx1151(void **) {
    return open_device("sim:gfx1151");
}
static int open_gfx1201(void **) {
    return open_device("sim:gfx1201");
}
static int open_gfx950(void **) {
    return open_device("sim:gfx950");
}

/** Gives the first row's bits, by one kernel, of a case with `m` rows. Returns false if the kernel
 *  does not take the problem. */
static bool first_row(const qni_variant *variant, const qni_gemm_spec *spec, int64_t m,
                      uint32_t out[N]) {
    qni_gemm_case c;
    qni_gemm_spec with_m = *spec;
    qni_reason why;
    with_m.m = m;
    assert_int_equal(qni_gemm_case_create(&c, stream, &with_m, 7), QN_OK);
    const bool fits = qni_variant_fits(variant, device, &c.problem, &why);
    if (fits) {
        assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
        assert_int_equal(variant->run(variant, stream, &c.problem), QN_OK);
        assert_int_equal(device->backend->copy(stream, out, qni_data(&c.d.t),
                                               c.d.shape[2] * (int64_t)sizeof *out,
                                               QNI_COPY_TO_HOST),
                         QN_OK);
        assert_int_equal(qn_stream_sync(stream), QN_OK);
    }
    qni_gemm_case_destroy(&c);
    return fits;
}

#define SPEC(DTYPE, ...)                                                                           \
    {.n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = DTYPE,                                                                             \
     .dtype_b = DTYPE,                                                                             \
     .dtype_d = QNI_F32,                                                                           \
     .fill = QNI_FILL_CANCEL,                                                                      \
     .has_no_answer = true,                                                                        \
     __VA_ARGS__}

/** Tries numbers of rows at which engines work in other ways: few rows, register tiles and what is
 *  left over of them, tiles. */
static void each_kernel_agrees_with_itself(void **) {
    static const qni_gemm_spec specs[] = {
        SPEC(QNI_E4M3FN, .is_packed = true),
        SPEC(QNI_E4M3FNUZ, .is_packed = true),
        SPEC(QNI_E4M3FN, .is_packed = false),
        SPEC(QNI_E4M3FN, .a_transposed = true, .b_transposed = true),
        SPEC(QNI_E4M3FN, .scales_a = QNI_SCALES_LINES, .scales_b = QNI_SCALES_LINES),
        SPEC(QNI_E4M3FN, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_BLOCKS,
             .is_packed = true),
        SPEC(QNI_BF16, .is_packed = false),
        SPEC(QNI_BF16, .b_transposed = true),
        SPEC(QNI_BF16, .a_transposed = true),
        SPEC(QNI_BF16, .a_transposed = true, .b_transposed = true),
        SPEC(QNI_F16, .is_packed = false),
        SPEC(QNI_F32, .is_packed = false),
        SPEC(QNI_E4M3FN, .is_packed = true, .has_bias = true, .activation = QN_GEMM_GELU_TANH,
             .gate_batches = 1, .adds_c = true),
        SPEC(QNI_BF16, .has_bias = true, .activation = QN_GEMM_SILU_AND_MUL),
    };
    static const int64_t rows[] = {2, 3, 4, 5, 6, 7, 11, 16, 17, 33, 63, 200, 300};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int v = 0; v < qni_op_gemm.num_variants; v++) {
            const qni_variant *variant = &qni_op_gemm.variants[v];
            uint32_t alone[N] = {}, among[N] = {};
            if (!first_row(variant, &specs[s], 1, alone))
                continue;
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                assert_true(first_row(variant, &specs[s], rows[i], among));
                if (memcmp(alone, among, sizeof alone) != 0)
                    fail_msg("%s: row 0 of %ld rows, problem %zu, has other bits than alone",
                             variant->name, (long)rows[i], s);
            }
        }
}

/** Runs each kernel on each number of rows and compares with the first run of all. gemm.any is left
 *  out, because it converts FP8 to bf16; it runs only where no other kernel can. */
static void all_kernels_agree(void **) {
    static const qni_gemm_spec specs[] = {SPEC(QNI_E4M3FNUZ, .is_packed = true),
                                          SPEC(QNI_E4M3FN, .is_packed = true),
                                          SPEC(QNI_E4M3FNUZ, .is_packed = false),
                                          SPEC(QNI_E4M3FN, .is_packed = false),
                                          SPEC(QNI_E4M3FNUZ, .is_packed = true, .has_bias = true,
                                               .activation = QN_GEMM_GELU_TANH, .gate_batches = 1,
                                               .adds_c = true),
                                          SPEC(QNI_E4M3FNUZ, .is_packed = true, .has_bias = true,
                                               .activation = QN_GEMM_SILU_AND_MUL)};
    static const int64_t rows[] = {1, 40, 290};
    int most = 0;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        uint32_t want[N] = {}, got[N] = {};
        int ran = 0;
        for (int i = 0; i < 3 * qni_op_gemm.num_variants; i++) {
            const qni_variant *variant = &qni_op_gemm.variants[i / 3];
            if (!variant->cost ||
                !first_row(variant, &specs[s], rows[i % 3], ran == 0 ? want : got))
                continue;
            if (ran++ > 0 && memcmp(want, got, sizeof got) != 0)
                fail_msg("%s: row 0 of %ld rows, problem %zu, has not the bits of the first kernel",
                         variant->name, (long)rows[i % 3], s);
        }
        most = ran > most ? ran : most;
    }
    assert_in_range(most, 4 * 3, 100); // decode, two tiles and any_fp8
}

/** Compares kernels that say that they give equal bits: a wave of each holds other columns, and so
 *  each has its own way of laying them out. */
static void tiles_of(const qni_gemm_spec *spec, int least) {
    static const int64_t rows[] = {1, 40, 290};
    uint32_t want[N] = {}, got[N] = {}, bits = 0;
    int ran = 0;
    for (int i = 0; i < 3 * qni_op_gemm.num_variants; i++) {
        const qni_variant *variant = &qni_op_gemm.variants[i / 3];
        if (!variant->config.bits || (ran > 0 && variant->config.bits != bits) ||
            !first_row(variant, spec, rows[i % 3], ran == 0 ? want : got))
            continue;
        bits = variant->config.bits;
        if (ran++ > 0 && memcmp(want, got, sizeof got) != 0)
            fail_msg("%s: row 0 of %ld rows of %s has not the bits of the first kernel",
                     variant->name, (long)rows[i % 3], qni_dtype_name(spec->dtype_a));
    }
    assert_in_range(ran, least * 3, 100);
}

static const qni_gemm_spec halves[] = {
    SPEC(QNI_BF16, .is_packed = false),
    SPEC(QNI_BF16, .has_bias = true, .activation = QN_GEMM_GELU_TANH, .gate_batches = 1,
         .adds_c = true),
    SPEC(QNI_BF16, .has_bias = true, .activation = QN_GEMM_SILU_AND_MUL),
    SPEC(QNI_F16, .is_packed = false)};

static void tiles_agree(void **) {
    static const qni_gemm_spec fp8[] = {
        SPEC(QNI_E4M3FN, .is_packed = false), SPEC(QNI_E4M3FN, .is_packed = true),
        SPEC(QNI_E4M3FN, .scales_a = QNI_SCALES_ROWS, .scales_b = QNI_SCALES_ONE)};
    for (size_t s = 0; s < sizeof halves / sizeof *halves; s++)
        tiles_of(&halves[s], 2);
    for (size_t s = 0; s < sizeof fp8 / sizeof *fp8; s++)
        tiles_of(&fp8[s], 2);
}

/** The same of bf16 and f16 on CDNA: two kernels for few rows and four tiles; gfx90a has none of
 *  f16. */
static void halves_agree(void **) {
    const bool has_f16 = qni_has(device, QNI_F(TILE_F16));
    for (size_t s = 0; s < sizeof halves / sizeof *halves; s++)
        if (has_f16 || halves[s].dtype_a != QNI_F16)
            tiles_of(&halves[s], 2 + 4);
}

// ---- d of FP8: quantize's bits of the results in f32

enum { CODE_ROWS = 35, MOST = CODE_ROWS * N };

/** d of one kernel and, of FP8, its scales. */
typedef struct result {
    uint8_t d[MOST * sizeof(float)];
    float scales[CODE_ROWS * 2];
    int64_t columns;
} result;

static void fetch(void *to, const qni_gemm_matrix *x) {
    const int64_t bytes = x->shape[0] * x->shape[1] * x->shape[2] * qni_dtype_bytes(x->area.dtype);
    assert_int_equal(device->backend->copy(stream, to, qni_data(&x->t), bytes, QNI_COPY_TO_HOST),
                     QN_OK);
}

/** Runs one kernel on a case of `spec`. Returns false if it does not take the problem. */
static bool run_for(const qni_variant *variant, const qni_gemm_spec *spec, qni_dtype dtype_d,
                    result *out) {
    qni_gemm_case c;
    qni_gemm_spec with_d = *spec;
    with_d.m = CODE_ROWS, with_d.dtype_d = dtype_d;
    with_d.has_given_scale &= dtype_d != QNI_F32;
    assert_int_equal(qni_gemm_case_create(&c, stream, &with_d, 7), QN_OK);
    const bool fits = qni_variant_fits(variant, device, &c.problem, nullptr);
    out->columns = c.d.shape[2];
    if (fits) {
        assert_int_equal(variant->run(variant, stream, &c.problem), QN_OK);
        fetch(out->d, &c.d);
        if (c.scale_d.area.owner)
            fetch(out->scales, &c.scale_d);
        assert_int_equal(qn_stream_sync(stream), QN_OK);
    }
    qni_gemm_case_destroy(&c);
    return fits;
}

/** Quantises results in f32 on the CPU. */
static void quantize(result *of, bool has_given_scale, qni_dtype dtype, result *out) {
    qn_device *cpu;
    qn_stream *own;
    float given = 0.37f;
    int64_t one = 1, shape[] = {CODE_ROWS, of->columns};
    int64_t groups[] = {CODE_ROWS, (of->columns + 127) / 128};
    assert_int_equal(qn_device_open(&cpu, "cpu"), QN_OK);
    assert_int_equal(qn_stream_create(&own, cpu), QN_OK);
    DLTensor x = {of->d, cpu->id, 2, qni_dl_dtype(QNI_F32), shape, nullptr, 0}, q = x, scale = x;
    q.data = out->d, q.dtype = qni_dl_dtype(dtype);
    scale.data = out->scales, scale.shape = groups;
    DLTensor fixed = {&given, cpu->id, 1, qni_dl_dtype(QNI_F32), &one, nullptr, 0};
    assert_int_equal(has_given_scale ? qn_quantize_static(own, &q, &x, &fixed)
                                     : qn_quantize_groups(own, &q, &scale, &x, 128, 0, 1e-10f),
                     QN_OK);
    qn_stream_destroy(own);
    qn_device_close(cpu);
}

/** Compares a kernel's FP8 with quantize's. Returns whether the kernel takes the problem. */
static bool compare_codes(const qni_variant *variant, const qni_gemm_spec *spec, qni_dtype dtype) {
    static result exact, got, want;
    memset(&got, 0, sizeof got);
    memset(&want, 0, sizeof want);
    if (!run_for(variant, spec, QNI_F32, &exact) || !run_for(variant, spec, dtype, &got))
        return false;
    quantize(&exact, spec->has_given_scale, dtype, &want);
    if (memcmp(got.scales, want.scales, sizeof want.scales) != 0)
        fail_msg("%s: scales of %s are not quantize's", variant->name, qni_dtype_name(dtype));
    if (memcmp(got.d, want.d, (size_t)(CODE_ROWS * got.columns)) != 0)
        fail_msg("%s: codes of %s are not quantize's", variant->name, qni_dtype_name(dtype));
    return true;
}

static void codes_are_those_of_quantize(void **) {
    static const qni_dtype dtypes[] = {QNI_E4M3FN, QNI_E4M3FNUZ, QNI_E5M2, QNI_E5M2FNUZ};
    const qni_dtype usual = qni_usual_e4m3(device);
    const qni_gemm_spec specs[] = {
        {.n = N, .k = 24, .dtype_a = usual, .dtype_b = usual, .is_packed = true, .has_bias = true},
        {.n = N,
         .k = 24,
         .dtype_a = usual,
         .dtype_b = usual,
         .is_packed = true,
         .activation = QN_GEMM_SILU_AND_MUL},
        {.n = N,
         .k = 24,
         .dtype_a = QNI_BF16,
         .dtype_b = QNI_BF16,
         .activation = QN_GEMM_GELU_TANH,
         .has_given_scale = true},
        {.n = N,
         .k = 24,
         .dtype_a = usual,
         .dtype_b = usual,
         .is_packed = true,
         .activation = QN_GEMM_SILU_AND_MUL,
         .has_given_scale = true,
         .fill = QNI_FILL_NAN},
    };
    int ran = 0;
    for (size_t i = 0; i < 4 * sizeof specs / sizeof *specs; i++)
        for (int v = 0; v < qni_op_gemm.num_variants; v++)
            ran += compare_codes(&qni_op_gemm.variants[v], &specs[i / 4], dtypes[i % 4]);
    assert_in_range(ran, 4 * 4, 1000);
}

int main(void) {
    const struct CMUnitTest own[] = {cmocka_unit_test(each_kernel_agrees_with_itself),
                                     cmocka_unit_test(codes_are_those_of_quantize)};
    const struct CMUnitTest all[] = {cmocka_unit_test(all_kernels_agree),
                                     cmocka_unit_test(halves_agree),
                                     cmocka_unit_test(codes_are_those_of_quantize)};
    const struct CMUnitTest bf16[] = {cmocka_unit_test(halves_agree)};
    const struct CMUnitTest rdna[] = {cmocka_unit_test(tiles_agree),
                                      cmocka_unit_test(codes_are_those_of_quantize)};
    int failed = cmocka_run_group_tests(own, open_cpu, close_device);
    failed += cmocka_run_group_tests(bf16, open_gfx90a, close_device);
    failed += cmocka_run_group_tests(all, open_gfx942, close_device);
    failed += cmocka_run_group_tests(rdna, open_gfx1151, close_device);
    failed += cmocka_run_group_tests(rdna, open_gfx1201, close_device);
    return failed + cmocka_run_group_tests(all, open_gfx950, close_device);
}
