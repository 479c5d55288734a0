// SPDX-License-Identifier: Apache-2.0
// What norm's functions refuse, the edge vectors of the family, and the independence of rows.
// families_test shows that kernels agree with the definition.
#include "../shared/op_test.h"
#include "norm.h"

static box x, out, w, res, scale, beta;

static void make_all(qni_dtype dtype, int64_t n, int64_t h) {
    MAKE(&x, dtype, n, h);
    MAKE(&out, dtype, n, h);
    MAKE(&res, dtype, n, h);
    MAKE(&w, dtype, h);
    MAKE(&beta, dtype, h);
    MAKE(&scale, QNI_F32, 1);
    fill(&x, 1);
    fill(&res, 1);
    fill(&w, 1);
    fill(&beta, 0);
    fill(&scale, 1);
}

static void test_refusals(void **) {
    make_all(QNI_F16, 3, 8);
    const float nan = __builtin_nanf("");
    assert_refused(qn_rmsnorm(nullptr, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID, "stream is null");
    assert_refused(qn_rmsnorm(stream, nullptr, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "rmsnorm: out is null");
    assert_refused(qn_rmsnorm(stream, &out.t, nullptr, &w.t, 1e-6f), QN_E_INVALID, "x is null");
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, nullptr, 1e-6f), QN_E_INVALID,
                   "weight is null");
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, nan), QN_E_INVALID, "eps is nan");
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, -1), QN_E_INVALID, "eps is -1");
    w.shape[0] = 7;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "rmsnorm: weight has shape [7], needs [8]");
    MAKE(&w, QNI_BF16, 8);
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_UNSUPPORTED,
                   "weight has dtype bf16; accepted: x's (f16) and f32");
    make_all(QNI_F16, 3, 8);
    MAKE(&out, QNI_F32, 3, 8);
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_UNSUPPORTED,
                   "out has dtype f32, needs x's, f16");
    out.t.dtype = (DLDataType){kDLFloat, 7, 3}; // a dtype whose alignment nobody knows
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_UNSUPPORTED,
                   "out has dtype ?, needs x's, f16");
    make_all(QNI_I32, 3, 8);
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_UNSUPPORTED,
                   "x has dtype i32");
    make_all(QNI_F16, 3, 8);
    x.strides[1] = 2;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "x has stride 2 in its last dimension");
    make_all(QNI_F16, 3, 8);
    out.strides[0] = 4;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "out has stride 4 in dimension 0, needs at least 8");
    make_all(QNI_F16, 3, 0);
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "rows of 0 elements");
    make_all(QNI_F16, 3, 8);
    x.t.byte_offset = 1;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID, "2-byte elements");
    make_all(QNI_F16, 3, 8);
    x.t.device = (DLDevice){kDLCUDA, 0};
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "x is on DLPack device");
}

static void test_quant_refusals(void **) {
    make_all(QNI_BF16, 3, 8);
    assert_refused(qn_rmsnorm_quant(stream, &out.t, &x.t, &w.t, &scale.t, 1e-6f), QN_E_UNSUPPORTED,
                   "out has dtype bf16; accepted: e4m3fn");
    MAKE(&out, QNI_E4M3FN, 3, 8);
    assert_refused(qn_rmsnorm_quant(stream, &out.t, &x.t, &w.t, nullptr, 1e-6f), QN_E_INVALID,
                   "scale is null");
    MAKE(&scale, QNI_F32, 2);
    assert_refused(qn_rmsnorm_quant(stream, &out.t, &x.t, &w.t, &scale.t, 1e-6f), QN_E_INVALID,
                   "scale has shape [2], needs [1]");
    MAKE(&scale, QNI_F16, 1);
    assert_refused(qn_layernorm_quant(stream, &out.t, &x.t, &w.t, &beta.t, &scale.t, 1e-6f),
                   QN_E_UNSUPPORTED, "scale has dtype f16");
    MAKE(&scale, QNI_F32, 3, 2);
    assert_refused(
        qn_rmsnorm_dynamic_quant(stream, &out.t, &scale.t, &x.t, nullptr, &w.t, 1e-6f, 1e-4f),
        QN_E_INVALID, "scale has shape [3, 2], needs [3, 1]");
    MAKE(&scale, QNI_F32, 3);
    assert_refused(
        qn_rmsnorm_dynamic_quant(stream, &out.t, &scale.t, &x.t, nullptr, &w.t, 1e-6f, 0),
        QN_E_INVALID, "scale_eps is 0");
    for (int i = 0; i < 24; i++)
        assert_int_equal(out.data[i], 0xFF); // nothing was written
}

static void test_overlap(void **) {
    make_all(QNI_F32, 3, 8);
    assert_int_equal(qn_rmsnorm(stream, &x.t, &x.t, &w.t, 1e-6f), QN_OK); // in place
    out.t.data = x.data + 4;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID, "out overlaps x");
    assert_refused(qn_fused_add_rmsnorm(stream, &x.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "residual overlaps");
    w.t.data = out.data;
    out.t.data = out.data;
    assert_refused(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_E_INVALID,
                   "out overlaps weight");
    // Halves of packed rows lie between each other, but share no element.
    make_all(QNI_F32, 3, 8);
    x.strides[0] = out.strides[0] = 16;
    out.t.data = x.data + 32;
    fill(&w, 1);
    for (int i = 0; i < 3 * 16; i++)
        ((float *)x.data)[i] = 2;
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 0), QN_OK);
    assert_true(((float *)x.data)[8] == 1 && ((float *)x.data)[16] == 2);
}

static void test_empty(void **) {
    make_all(QNI_F16, 0, 8);
    x.t.data = out.t.data = res.t.data = nullptr;
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_OK);
    assert_int_equal(qn_fused_add_rmsnorm(stream, &x.t, &res.t, &w.t, 1e-6f), QN_OK);
    assert_int_equal(qn_layernorm(stream, &out.t, &x.t, nullptr, nullptr, 1e-6f), QN_OK);
}

/** A row of zeros, a row of f16's largest values, and rows of one element. */
static void test_rows(void **) {
    make_all(QNI_F16, 2, 4);
    for (int i = 0; i < 4; i++) {
        qni_put(QNI_F16, x.data, i, 0);
        qni_put(QNI_F16, x.data, 4 + i, i % 2 ? -65504 : 65504);
    }
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(at(&out, i) == 0);
        assert_true(at(&out, 4 + i) == (i % 2 ? -1 : 1));
    }
    make_all(QNI_F32, 1, 1);
    qni_put(QNI_F32, x.data, 0, 3);
    qni_put(QNI_F32, w.data, 0, -1);
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 0), QN_OK);
    assert_true(at(&out, 0) == -1);
    assert_int_equal(qn_layernorm(stream, &out.t, &x.t, &w.t, nullptr, 1e-5f), QN_OK);
    assert_true(at(&out, 0) == 0);
}

/** Results beyond the range of the FP8 kind become its largest value, with either sign. */
static void test_saturation(void **) {
    static const double largest[] = {448, 240, 57344, 57344};
    for (int kind = 0; kind < QNI_NUM_FP8; kind++) {
        make_all(QNI_F32, 1, 8);
        MAKE(&out, (qni_dtype)(QNI_E4M3FN + kind), 1, 8);
        fill(&scale, 1e-6);
        for (int i = 0; i < 8; i++)
            qni_put(QNI_F32, x.data, i, i % 2 ? -1 : 1);
        assert_int_equal(qn_rmsnorm_quant(stream, &out.t, &x.t, &w.t, &scale.t, 0), QN_OK);
        for (int i = 0; i < 8; i++)
            assert_true(at(&out, i) == (i % 2 ? -largest[kind] : largest[kind]));
    }
}

/** A row of ones has its weights as results, so its codes are those of the weights. The weights
 *  have every exponent of f32, with fractions around the ties of all kinds; some saturate, some are
 *  zeros of either sign, and some are NaNs if has_nans. */
static void compare_codes(qni_run_fn *kernel, qni_dtype dtype, qni_fp8 kind, bool has_nans) {
    enum { FRACTIONS = 64, H = 512 * FRACTIONS, STEP_BITS = 19 };
    static alignas(64) char ones[4 * H];
    static float weights[H];
    static alignas(64) uint8_t codes[H];
    for (uint32_t i = 0; i < H; i++) {
        const uint32_t top = i / FRACTIONS << 23 | (i % 16) << STEP_BITS,
                       near[] = {0, 1, 0x7FFFF, 2};
        weights[i] = __builtin_bit_cast(float, top | near[i / 16 % 4]);
        if (isnan(weights[i]) && !has_nans)
            weights[i] = -0.0f;
        qni_put(dtype, ones, i, 1);
    }
    float one = 1;
    const qni_norm_problem p = {.dtype = dtype,
                                .dtype_weights = QNI_F32,
                                .dtype_out = (qni_dtype)(QNI_E4M3FN + (int)kind),
                                .rows = 1,
                                .inner = 1,
                                .h = H,
                                .x = {ones, 0, H},
                                .out = {codes, 0, H},
                                .weight = {weights, 0},
                                .quant = QNI_NORM_STATIC,
                                .scale = &one};
    assert_int_equal(kernel(nullptr, stream, &p), QN_OK);
    for (int i = 0; i < H; i++)
        if (codes[i] != qni_fp8_encode(kind, weights[i]))
            fail_msg("kind %d: %a gives 0x%02x, not 0x%02x", (int)kind, (double)weights[i],
                     codes[i], qni_fp8_encode(kind, weights[i]));
}

static void test_codes(void **) {
    static const struct {
        qni_run_fn *run;
        uint64_t needs;
        bool is_bf16_alone;
    } kernels[] = {{qni_norm_avx512bf16, QNI_F(AVX512_BF16), true},
                   {qni_norm_avx512, QNI_F(AVX512), false},
                   {qni_norm_avx2, QNI_F(AVX2), false},
                   {qni_norm_cpu, 0, false}};
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (int kind = 0; kind < QNI_NUM_FP8 && (kernels[k].needs & ~cpu->features) == 0; kind++)
            for (int has_nans = 0; has_nans < 2; has_nans++) {
                compare_codes(kernels[k].run, QNI_BF16, (qni_fp8)kind, has_nans);
                if (!kernels[k].is_bf16_alone)
                    compare_codes(kernels[k].run, QNI_F32, (qni_fp8)kind, has_nans);
            }
}

/** x + residual is a tie in bf16: the new residual is rounded down, but the norm takes the sum
 *  unrounded. */
static void test_unrounded_sum(void **) {
    make_all(QNI_BF16, 1, 2);
    const double sum = 1 + 0x1p-8; // half-way between two bf16
    const double root = sqrt((sum * sum + 256) / 2);
    qni_put(QNI_BF16, x.data, 0, 0x1p-8);
    qni_put(QNI_BF16, x.data, 1, 15);
    MAKE(&w, QNI_F32, 2);
    fill(&w, 1.75 * root);
    assert_int_equal(qn_fused_add_rmsnorm(stream, &x.t, &res.t, &w.t, 0), QN_OK);
    assert_true(at(&res, 0) == 1);
    assert_true(at(&x, 0) == 1.75 + 0x1p-7); // the rounded sum would give 1.75
}

/** A NaN makes its own row NaN, and FP8 has a code for it. */
static void test_nan(void **) {
    make_all(QNI_BF16, 2, 8);
    qni_put(QNI_BF16, x.data, 11, (double)NAN);
    assert_int_equal(qn_layernorm(stream, &out.t, &x.t, &w.t, &beta.t, 1e-6f), QN_OK);
    for (int i = 0; i < 8; i++)
        assert_true(at(&out, i) == 0 && isnan(at(&out, 8 + i)));
    MAKE(&out, QNI_E4M3FNUZ, 2, 8);
    assert_int_equal(qn_rmsnorm_quant(stream, &out.t, &x.t, &w.t, &scale.t, 1e-6f), QN_OK);
    assert_int_equal(out.data[8], 0x80);
    assert_true(at(&out, 0) == 1);
}

/** A row's bits depend neither on how many rows there are nor on the row's place. */
static void test_batch(void **) {
    enum { N = 5, H = 37 };
    uint16_t alone[H];
    make_all(QNI_F16, N, H);
    for (int i = 0; i < N * H; i++)
        qni_put(QNI_F16, x.data, i, sin(i % H) * (1 + i / H % 2));
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_OK);
    memcpy(alone, out.data + 2 * H * sizeof *alone, sizeof alone);
    assert_memory_equal(alone, out.data, sizeof alone); // row 0 holds what row 2 does
    x.shape[0] = out.shape[0] = 1;
    assert_int_equal(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 1e-6f), QN_OK);
    assert_memory_equal(alone, out.data, sizeof alone);
}

/** Rows of a large output are stored past the caches, single rows are not; both must get equal
 *  bits, and nothing may be written between rows. */
static void compare_large(qni_run_fn *kernel, qni_dtype dtype, qni_norm_quant quant) {
    enum { N = 2060, H = 4104, STRIDE = 4160 }; // 8 MiB of FP8; rows at cache lines, their ends not
    const qni_dtype dtype_out = quant == QNI_NORM_PLAIN ? dtype : QNI_E4M3FN;
    const size_t size = (size_t)qni_dtype_bytes(dtype_out), row = STRIDE * size;
    char *in = calloc(STRIDE, 4), *many = aligned_alloc(64, N * row), *one = aligned_alloc(64, row);
    assert_true(in && many && one);
    memset(many, 0xA5, N * row);
    memset(one, 0xA5, row);
    for (int i = 0; i < H; i++)
        qni_put(dtype, in, i, 3 * sin(i));
    float scales[2][N] = {}, *found = quant == QNI_NORM_PLAIN ? nullptr : scales[0];
    qni_norm_problem p = {.dtype = dtype,
                          .dtype_weights = dtype,
                          .dtype_out = dtype_out,
                          .rows = N,
                          .inner = N,
                          .h = H,
                          .x = {in, 0, 0}, // all rows are one row
                          .out = {many, 0, STRIDE},
                          .weight = {in, 0},
                          .eps = 1e-6f,
                          .scale_eps = 1e-10f,
                          .quant = quant,
                          .scale = found,
                          .scale_row = 1};
    assert_int_equal(kernel(nullptr, stream, &p), QN_OK);
    p.rows = 1, p.out.data = one, p.scale = found ? scales[1] : nullptr;
    assert_int_equal(kernel(nullptr, stream, &p), QN_OK);
    for (size_t r = 0; r < N; r++) {
        assert_memory_equal(many + r * row, one, row);
        assert_true(scales[0][r] == scales[1][0]);
    }
    free(in);
    free(many);
    free(one);
}

static void test_large(void **) {
    static const struct {
        qni_run_fn *run;
        uint64_t needs;
    } kernels[] = {
        {qni_norm_avx512, QNI_F(AVX512)}, {qni_norm_avx2, QNI_F(AVX2)}, {qni_norm_cpu, 0}};
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        if ((kernels[k].needs & ~cpu->features) != 0)
            continue;
        compare_large(kernels[k].run, QNI_BF16, QNI_NORM_PLAIN);
        compare_large(kernels[k].run, QNI_F16, QNI_NORM_PLAIN);
        compare_large(kernels[k].run, QNI_F32, QNI_NORM_PLAIN);
        compare_large(kernels[k].run, QNI_BF16, QNI_NORM_PER_TOKEN);
    }
}

/** LayerNorm of rows whose first elements lie far from their mean loses no digits. */
static void test_far_beginning(void **) {
    enum { H = 16000, FAR = 64 };
    make_all(QNI_F32, 1, H);
    for (int i = 0; i < H; i++)
        qni_put(QNI_F32, x.data, i, i < FAR ? 1000.25 : (i % 7) * 0.3);
    assert_int_equal(qn_layernorm(stream, &out.t, &x.t, nullptr, nullptr, 0), QN_OK);
    double mean = 0, square = 0;
    for (int i = 0; i < H; i++)
        mean += at(&x, i) / (double)H;
    for (int i = 0; i < H; i++)
        square += (at(&x, i) - mean) * (at(&x, i) - mean) / (double)H;
    assert_true(fabs(at(&out, 0) / ((at(&x, 0) - mean) / sqrt(square)) - 1) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_quant_refusals),
        cmocka_unit_test(test_overlap),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_rows),          cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_nan),           cmocka_unit_test(test_unrounded_sum),
        cmocka_unit_test(test_batch),         cmocka_unit_test(test_large),
        cmocka_unit_test(test_far_beginning), cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
