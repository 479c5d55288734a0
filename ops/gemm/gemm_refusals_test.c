// SPDX-License-Identifier: Apache-2.0
// What the gemm family refuses: a call with one wrong argument must fail with a message that names
// it, and write nothing.
#include "gemm_test_case.h"

#define FN QNI_E4M3FN
#define BF QNI_BF16

// ---- errors: the message names the argument, and d keeps what it held

typedef struct refusal {
    const char *name; // of the change
    qn_status status;
    const char *words;
    void (*change)(qni_gemm_case *c);
    qn_gemm_grouping grouping;
} refusal;

static int64_t other_shape[3], other_strides[3];

static DLTensor *reshape(qni_gemm_matrix *x, int64_t rows, int64_t columns) {
    memcpy(other_shape, (int64_t[]){rows, columns}, sizeof other_shape);
    x->t.shape = other_shape;
    return &x->t;
}

static void restride(qni_gemm_matrix *x, int64_t row, int64_t column) {
    memcpy(other_strides, (int64_t[]){row, column}, 2 * sizeof *other_strides);
    x->t.strides = other_strides;
}

static void null_d(qni_gemm_case *c) {
    c->args.d = nullptr;
}
static void null_a(qni_gemm_case *c) {
    c->args.a = nullptr;
}
static void null_data(qni_gemm_case *c) {
    c->b.t.data = nullptr;
}
static void old_size(qni_gemm_case *c) {
    c->args.struct_size = 8;
}
static void short_b(qni_gemm_case *c) {
    reshape(&c->b, 4, 99);
}
static void short_scale(qni_gemm_case *c) {
    reshape(&c->scale_b, 1, 3);
}
static void tall_scale(qni_gemm_case *c) {
    reshape(&c->scale_a, 2, 2);
}
static void deep_scale(qni_gemm_case *c) {
    c->scale_b.t.ndim = 3;
}
static void backward_scale(qni_gemm_case *c) {
    restride(&c->scale_a, -2, 1);
}
static void flat_a(qni_gemm_case *c) {
    c->a.t.ndim = 1;
}
static void u8_b(qni_gemm_case *c) {
    c->b.t.dtype = qni_dl_dtype(QNI_U8);
}
static void i32_a(qni_gemm_case *c) {
    c->a.t.dtype = qni_dl_dtype(QNI_I32);
}
static void i32_d(qni_gemm_case *c) {
    c->d.t.dtype = qni_dl_dtype(QNI_I32);
}
static void f32_d(qni_gemm_case *c) {
    c->d.t.dtype = qni_dl_dtype(QNI_F32);
}
static void f32_c(qni_gemm_case *c) {
    c->args.c = &c->c.t;
    c->c.t.dtype = qni_dl_dtype(QNI_F32);
}
static void bf16_scale(qni_gemm_case *c) {
    c->scale_b.t.dtype = qni_dl_dtype(BF);
}
static void u8_scale(qni_gemm_case *c) {
    c->scale_a.t.dtype = qni_dl_dtype(QNI_U8);
}
static void many_words(qni_gemm_case *c) {
    c->scale_a.t.dtype = qni_dl_dtype(QNI_I32);
}
static void flat_words(qni_gemm_case *c) {
    c->scale_a.t.dtype = qni_dl_dtype(QNI_I32);
    c->scale_a.t.ndim = 1;
}
static void flat_d(qni_gemm_case *c) {
    c->d.t.ndim = 1;
}
static void fewer_b(qni_gemm_case *c) {
    memcpy(other_shape, (int64_t[]){2, 5, 130}, sizeof other_shape);
    c->b.t.shape = other_shape;
}
static void one_b(qni_gemm_case *c) {
    fewer_b(c);
    other_shape[0] = 1;
}
static void flat_c(qni_gemm_case *c) {
    c->c.t.ndim = 2;
    c->args.c = &c->c.t;
}
static void gap_d(qni_gemm_case *c) {
    restride(&c->d, 20, 2);
}
static void narrow_d(qni_gemm_case *c) {
    restride(&c->d, 3, 1);
}
static void gap_a(qni_gemm_case *c) {
    restride(&c->a, 300, 2);
}
static void backward_a(qni_gemm_case *c) {
    restride(&c->a, -130, 1);
}
static void odd_d(qni_gemm_case *c) {
    c->d.t.byte_offset++;
}
static void other_device(qni_gemm_case *c) {
    c->a.t.device.device_type = kDLROCM;
}
static void shifted_c(qni_gemm_case *c) {
    c->c.t = c->d.t;
    c->c.t.byte_offset += 2;
    c->args.c = &c->c.t;
}
static void lay_d_on(qni_gemm_case *c, const DLTensor *t) {
    c->d.t.data = t->data;
    c->d.t.byte_offset = t->byte_offset;
}
static void a_over_d(qni_gemm_case *c) {
    lay_d_on(c, &c->a.t);
}
static void b_over_d(qni_gemm_case *c) {
    lay_d_on(c, &c->b.t);
}
static void scale_over_d(qni_gemm_case *c) {
    lay_d_on(c, &c->scale_b.t);
}
static void layout_over_d(qni_gemm_case *c) {
    lay_d_on(c, &c->layout.t);
}
static void packed_b(qni_gemm_case *c) {
    c->args.b_is_packed = 1;
}
static void odd_flag(qni_gemm_case *c) {
    c->args.b_is_packed = 2;
}
static void stray_layout(qni_gemm_case *c) {
    c->args.group_layout = &c->layout.t;
}
static void stray_alignment(qni_gemm_case *c) {
    c->args.m_alignment = 64;
}
static void stray_expected(qni_gemm_case *c) {
    c->args.expected_m = 64;
}
static void no_expected(qni_gemm_case *c) {
    c->args.expected_m = 0;
}
static void no_layout(qni_gemm_case *c) {
    c->args.group_layout = nullptr;
}
static void grouped_c(qni_gemm_case *c) {
    c->args.c = &c->d.t;
}
static void i64_layout(qni_gemm_case *c) {
    c->layout.t.dtype = qni_dl_dtype(QNI_I64);
}
static void negative_alignment(qni_gemm_case *c) {
    c->args.m_alignment = -1;
}

static void lend(DLTensor *t, void *data, qni_dtype dtype, int64_t rows, int64_t columns) {
    memcpy(other_shape, rows ? (int64_t[]){rows, columns} : (int64_t[]){columns, 0},
           2 * sizeof *other_shape);
    *t = (DLTensor){data, device->id, rows ? 2 : 1, qni_dl_dtype(dtype), other_shape, nullptr, 0};
}

static DLTensor vectors;
static float numbers[64];
static void give_bias(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 0, 5);
    c->args.bias = &vectors;
}
static void short_bias(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 0, 4);
    c->args.bias = &vectors;
}
static void f16_bias(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F16, 0, 5);
    c->args.bias = &vectors;
}
static void gap_bias(qni_gemm_case *c) {
    give_bias(c);
    other_strides[0] = 2;
    vectors.strides = other_strides;
}
static void bias_over_d(qni_gemm_case *c) {
    lend(&vectors, qni_data(&c->d.t), BF, 0, 5);
    c->args.bias = &vectors;
}
static void give_gate(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 1, 5);
    c->args.gate = &vectors;
}
static void two_gates(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 2, 5);
    c->args.gate = &vectors;
}
static void no_gates(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 1, 5);
    other_shape[0] = 0;
    c->args.gate = &vectors;
}
static void short_gate(qni_gemm_case *c) {
    lend(&vectors, numbers, QNI_F32, 3, 4);
    c->args.gate = &vectors;
}
static void deep_gate(qni_gemm_case *c) {
    give_gate(c);
    vectors.ndim = 3;
}
static void gate_over_d(qni_gemm_case *c) {
    lend(&vectors, qni_data(&c->d.t), BF, 1, 5);
    c->args.gate = &vectors;
}
static void odd_activation(qni_gemm_case *c) {
    c->args.activation = (qn_gemm_activation)3;
}
static void halve_d(qni_gemm_case *c) {
    c->args.activation = QN_GEMM_SILU_AND_MUL;
}
static int64_t wide_shape[2];
static void halve_c(qni_gemm_case *c) {
    c->args.activation = QN_GEMM_SILU_AND_MUL;
    reshape(&c->b, 10, 130);
    memcpy(wide_shape, (int64_t[]){3, 10}, sizeof wide_shape);
    c->c.t.shape = wide_shape;
    c->args.c = &c->c.t;
}
static DLTensor scales;
static int64_t scales_shape[2], scales_strides[2];
static void give_scale_d(qni_gemm_case *c) {
    memcpy(scales_shape, (int64_t[]){3, 1}, sizeof scales_shape);
    scales = (DLTensor){numbers, device->id, 2, qni_dl_dtype(QNI_F32), scales_shape, nullptr, 0};
    c->args.scale_d = &scales;
}
static void fp8_d(qni_gemm_case *c) {
    c->d.t.dtype = qni_dl_dtype(FN);
}
static void fp8_with_scale(qni_gemm_case *c) {
    give_scale_d(c);
    fp8_d(c);
}
static void both_scales(qni_gemm_case *c) {
    fp8_with_scale(c);
    c->args.given_scale_d = &scales;
}
static void fp8_with_c(qni_gemm_case *c) {
    fp8_with_scale(c);
    c->args.c = &c->c.t;
}
static void small_eps(qni_gemm_case *c) {
    fp8_with_scale(c);
    c->args.scale_d_eps = 1e-31f;
}
static void stray_eps(qni_gemm_case *c) {
    c->args.scale_d_eps = 1e-10f;
}
static void short_scale_d(qni_gemm_case *c) {
    fp8_with_scale(c);
    scales_shape[0] = 2;
}
static void folded_scale_d(qni_gemm_case *c) {
    fp8_with_scale(c);
    scales.strides = scales_strides;
}
static void scale_d_over_d(qni_gemm_case *c) {
    fp8_with_scale(c);
    scales.data = qni_data(&c->d.t);
}
static void two_given(qni_gemm_case *c) {
    fp8_with_scale(c);
    scales.ndim = 1;
    c->args.given_scale_d = c->args.scale_d;
    c->args.scale_d = nullptr;
}
static void between_sizes(qni_gemm_case *c) {
    c->args.struct_size = offsetof(qn_gemm_args, gate);
}
static void newer_size(qni_gemm_case *c) {
    c->args.struct_size = sizeof c->args + 8;
}

static const refusal refusals[] = {
    {"null d", QN_E_INVALID, "gemm: d is null", null_d, QN_GEMM_DENSE},
    {"null a", QN_E_INVALID, "gemm: a is null", null_a, QN_GEMM_DENSE},
    {"null data", QN_E_INVALID, "with null data", null_data, QN_GEMM_DENSE},
    {"struct_size", QN_E_INVALID, "gemm: args.struct_size is 8; set it to sizeof(qn_gemm_args)",
     old_size, QN_GEMM_DENSE},
    {"short b", QN_E_INVALID, "gemm: b has shape [4, 99], needs [5, 130]", short_b, QN_GEMM_DENSE},
    {"short scale", QN_E_INVALID,
     "gemm: scale_b is [1, 3] f32 strides [2, 1]; needs [1 or 5, 2], any", short_scale,
     QN_GEMM_DENSE},
    {"tall scale", QN_E_INVALID,
     "gemm: scale_a is [2, 2] f32 strides [2, 1]; needs [3, 2], any of these", tall_scale,
     QN_GEMM_DENSE},
    {"deep scale", QN_E_INVALID, "gemm: scale_b has 3 dimensions, needs 2", deep_scale,
     QN_GEMM_DENSE},
    {"backward scale", QN_E_INVALID, "gemm: scale_a is [3, 2] f32 strides [-2, 1]; needs [3, 2], ",
     backward_scale, QN_GEMM_DENSE},
    {"flat a", QN_E_INVALID, "gemm: a has 1 dimensions, needs 2", flat_a, QN_GEMM_DENSE},
    {"u8 b", QN_E_UNSUPPORTED,
     "gemm: b has dtype u8; accepted: f32, f16, bf16, e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, i8", u8_b,
     QN_GEMM_DENSE},
    {"i32 a", QN_E_UNSUPPORTED, "gemm_grouped_masked: a has dtype i32; accepted: f32, f16, bf16",
     i32_a, QN_GEMM_GROUPED_MASKED},
    {"i32 d", QN_E_UNSUPPORTED, "gemm: d has dtype i32; accepted: f32, f16, bf16, e4m3fn", i32_d,
     QN_GEMM_DENSE},
    {"f32 groups", QN_E_UNSUPPORTED, "gemm_grouped_masked: d has dtype f32; accepted: f16, bf16, ",
     f32_d, QN_GEMM_GROUPED_MASKED},
    {"f32 c", QN_E_UNSUPPORTED, "gemm: c has dtype f32, needs d's, bf16", f32_c, QN_GEMM_DENSE},
    {"scale type", QN_E_UNSUPPORTED, "gemm: scale_b has dtype bf16; accepted: f32", bf16_scale,
     QN_GEMM_DENSE},
    {"gaps in d", QN_E_INVALID, "gemm: d is [3, 5] bf16 strides [20, 2]; needs columns", gap_d,
     QN_GEMM_DENSE},
    {"narrow d", QN_E_INVALID, "gemm: d has stride 3 in dimension 0, needs at least 5", narrow_d,
     QN_GEMM_DENSE},
    {"gaps in a", QN_E_INVALID, "gemm: a is [3, 130] e4m3fn strides [300, 2]", gap_a,
     QN_GEMM_DENSE},
    {"backward a", QN_E_INVALID, "gemm: a is [3, 130] e4m3fn strides [-130, 1]", backward_a,
     QN_GEMM_DENSE},
    {"odd d", QN_E_INVALID, "a multiple of its 2-byte elements", odd_d, QN_GEMM_DENSE},
    {"device", QN_E_INVALID, "gemm: a is on DLPack device", other_device, QN_GEMM_DENSE},
    {"overlap", QN_E_INVALID, "gemm: d overlaps c without being c itself", shifted_c,
     QN_GEMM_DENSE},
    {"d on a", QN_E_INVALID, "gemm: d overlaps a", a_over_d, QN_GEMM_DENSE},
    {"d on b", QN_E_INVALID, "gemm_grouped_contiguous: d overlaps b", b_over_d,
     QN_GEMM_GROUPED_ENDS},
    {"d on scales", QN_E_INVALID, "gemm: d overlaps scale_b", scale_over_d, QN_GEMM_DENSE},
    {"d on layout", QN_E_INVALID, "gemm_grouped_masked: d overlaps group_layout", layout_over_d,
     QN_GEMM_GROUPED_MASKED},
    {"not packed", QN_E_INVALID, "gemm: b has 2 dimensions, needs 3", packed_b, QN_GEMM_DENSE},
    {"flag", QN_E_INVALID, "gemm: b_is_packed is 2, needs 0 or 1", odd_flag, QN_GEMM_DENSE},
    {"layout", QN_E_INVALID, "gemm: group_layout is given", stray_layout, QN_GEMM_DENSE},
    {"alignment", QN_E_INVALID, "gemm: m_alignment is 64", stray_alignment, QN_GEMM_DENSE},
    {"hint", QN_E_INVALID, "gemm: expected_m is 64, needs 0", stray_expected, QN_GEMM_DENSE},
    {"no hint", QN_E_INVALID, "gemm_grouped_masked: expected_m is 0, needs at least 1", no_expected,
     QN_GEMM_GROUPED_MASKED},
    {"no layout", QN_E_INVALID, "gemm_grouped_contiguous: group_layout is null", no_layout,
     QN_GEMM_GROUPED_INDEX},
    {"grouped c", QN_E_INVALID, "gemm_grouped_contiguous: c is given", grouped_c,
     QN_GEMM_GROUPED_ENDS},
    {"layout type", QN_E_UNSUPPORTED, "group_layout has dtype i64; accepted: i32", i64_layout,
     QN_GEMM_GROUPED_INDEX},
    {"alignment", QN_E_INVALID, "m_alignment is -1", negative_alignment, QN_GEMM_GROUPED_ENDS},
    {"size between", QN_E_INVALID, "gemm: args.struct_size is 96; set it to", between_sizes,
     QN_GEMM_DENSE},
    {"newer size", QN_E_INVALID, "gemm: args.struct_size is ", newer_size, QN_GEMM_DENSE},
    {"short bias", QN_E_INVALID, "gemm: bias has shape [4], needs [5]", short_bias, QN_GEMM_DENSE},
    {"bias type", QN_E_UNSUPPORTED, "gemm: bias has dtype f16; accepted: f32, bf16", f16_bias,
     QN_GEMM_DENSE},
    {"gaps in bias", QN_E_INVALID, "gemm: bias has stride 2 in its last dimension, needs 1",
     gap_bias, QN_GEMM_DENSE},
    {"d on bias", QN_E_INVALID, "gemm: d overlaps bias", bias_over_d, QN_GEMM_DENSE},
    {"d on gate", QN_E_INVALID, "gemm: d overlaps gate", gate_over_d, QN_GEMM_DENSE},
    {"gates", QN_E_INVALID, "gemm: gate has 2 rows; d's 3 rows are no multiple of them", two_gates,
     QN_GEMM_DENSE},
    {"no gates", QN_E_INVALID, "gemm: gate has 0 rows; d's 3 rows are no", no_gates, QN_GEMM_DENSE},
    {"short gate", QN_E_INVALID, "gemm: gate has shape [3, 4], needs [any, 5]", short_gate,
     QN_GEMM_DENSE},
    {"deep gate", QN_E_INVALID, "gemm: gate has 3 dimensions, needs 2", deep_gate, QN_GEMM_DENSE},
    {"activation", QN_E_INVALID, "gemm: activation is 3, needs QN_GEMM_NO_ACTIVATION (0), ",
     odd_activation, QN_GEMM_DENSE},
    {"silu, short b", QN_E_INVALID, "gemm: b has shape [5, 130], needs [10, 130]", halve_d,
     QN_GEMM_DENSE},
    {"silu, wide c", QN_E_INVALID, "gemm: c has shape [3, 10], needs [3, 5]", halve_c,
     QN_GEMM_DENSE},
    {"flat bias", QN_E_INVALID, "gemm_grouped_contiguous: bias has 1 dimensions, needs 2",
     give_bias, QN_GEMM_GROUPED_INDEX},
    {"no scale", QN_E_INVALID,
     "gemm: scale_d and given_scale_d are null; d is e4m3fn, which takes one of them", fp8_d,
     QN_GEMM_DENSE},
    {"two scales", QN_E_INVALID,
     "gemm: scale_d and given_scale_d are given; d is e4m3fn, which takes one", both_scales,
     QN_GEMM_DENSE},
    {"stray scale", QN_E_INVALID, "gemm: scale_d is given; d is bf16, which takes no scales",
     give_scale_d, QN_GEMM_DENSE},
    {"c of FP8", QN_E_INVALID, "gemm: c is given; d is e4m3fn, which takes none", fp8_with_c,
     QN_GEMM_DENSE},
    {"small eps", QN_E_INVALID, "gemm: scale_d_eps is 1e-31; accepted: 1e-30 or more", small_eps,
     QN_GEMM_DENSE},
    {"stray eps", QN_E_INVALID, "gemm: scale_d_eps is 1e-10; accepted: 0 without scale_d",
     stray_eps, QN_GEMM_DENSE},
    {"short scale_d", QN_E_INVALID, "gemm: scale_d has shape [2, 1], needs [3, 1]", short_scale_d,
     QN_GEMM_DENSE},
    {"folded scale_d", QN_E_INVALID, "gemm: scale_d has stride 0 in dimension 0, needs at least 1",
     folded_scale_d, QN_GEMM_DENSE},
    {"scale_d on d", QN_E_INVALID, "overlaps", scale_d_over_d, QN_GEMM_DENSE},
    {"given scales", QN_E_INVALID, "gemm: given_scale_d has shape [3], needs [1]", two_given,
     QN_GEMM_DENSE},
    {"grouped gate", QN_E_INVALID,
     "gemm_grouped_contiguous: gate is given; only the dense form takes one", give_gate,
     QN_GEMM_GROUPED_ENDS},
    {"one b for groups", QN_E_INVALID,
     "gemm_grouped_masked: b has shape [1, 5, 130], needs [2, 5, 130]", one_b,
     QN_GEMM_GROUPED_MASKED},
    {"u8 scale", QN_E_UNSUPPORTED, "gemm: scale_a has dtype u8; accepted: f32, i32, e8m0fnu",
     u8_scale, QN_GEMM_DENSE},
    {"many words", QN_E_INVALID,
     "gemm: scale_a is [3, 2] i32 strides [2, 1]; needs [3, 1], any of these but the last 1, no ",
     many_words, QN_GEMM_DENSE},
    {"flat words", QN_E_INVALID, "gemm: scale_a has 1 dimensions, needs 2", flat_words,
     QN_GEMM_DENSE},
    {"flat d", QN_E_INVALID, "gemm: d has 1 dimensions, needs 2, or 3 with batches", flat_d,
     QN_GEMM_DENSE},
};

/** The same of three batches. */
static const refusal refusals_of_batches[] = {
    {"fewer b", QN_E_INVALID, "gemm: b has shape [2, 5, 130], needs [3, 5, 130]", fewer_b,
     QN_GEMM_DENSE},
    {"flat c", QN_E_INVALID, "gemm: c has 2 dimensions, needs 3", flat_c, QN_GEMM_DENSE},
    {"bias of batches", QN_E_INVALID, "gemm: bias has 1 dimensions, needs 2", give_bias,
     QN_GEMM_DENSE},
    {"gate of batches", QN_E_INVALID,
     "gemm: gate is given; only the dense form takes one, without batches", give_gate,
     QN_GEMM_DENSE},
    {"hint of batches", QN_E_INVALID, "gemm: expected_m is 64, needs 0", stray_expected,
     QN_GEMM_DENSE},
    {"scale of batches", QN_E_INVALID,
     "gemm: scale_a is [3, 3, 2] f32 strides [-2, 1, 0]; needs [3, 3, 2], any of these 1",
     backward_scale, QN_GEMM_DENSE},
};

static void refuse(const refusal *r, int64_t batches) {
    qni_gemm_spec spec = small_spec(r->grouping);
    qni_gemm_case c;
    spec.groups += batches;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 7), QN_OK);
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    r->change(&c);
    const qn_status st = qni_gemm_case_call(&c);
    if (st != r->status || !strstr(qn_last_error(), r->words))
        fail_msg("%s: %s: %s", r->name, qn_status_name(st), qn_last_error());
    assert_memory_equal(c.d.area.device, c.d.area.before, (size_t)c.d.area.bytes);
    qni_gemm_case_destroy(&c);
}

static void bad_arguments_are_refused(void **) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        refuse(&refusals[i], 0);
    for (size_t i = 0; i < sizeof refusals_of_batches / sizeof *refusals_of_batches; i++)
        refuse(&refusals_of_batches[i], 3);
    assert_int_equal(qn_gemm(nullptr, nullptr), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm: stream is null");
    assert_int_equal(qn_gemm(stream, nullptr), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm: args is null");
    assert_int_equal(qn_gemm_grouped_contiguous(stream, nullptr, QN_GEMM_DENSE), QN_E_INVALID);
    assert_non_null(strstr(qn_last_error(), "grouping is 0, needs QN_GEMM_GROUPED_INDEX (1)"));
}

/** c may be other columns of the matrix whose columns d is. */
static void column_slices_do_not_overlap(void **) {
    const qni_gemm_spec spec = {
        .m = 4, .n = 8, .k = 16, .dtype_a = FN, .dtype_b = FN, .dtype_d = QNI_F32};
    float both[4 * 16] = {0};
    int64_t shape[] = {4, 8}, strides[] = {16, 1};
    qni_gemm_case c;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 8), QN_OK);
    DLTensor d = {both, device->id, 2, qni_dl_dtype(QNI_F32), shape, strides, 0}, add = d;
    add.byte_offset = 8 * sizeof(float);
    c.args.d = &d;
    c.args.c = &add;
    assert_int_equal(qn_gemm(stream, &c.args), QN_OK);
    qni_gemm_case_destroy(&c);
}

static void take_smaller_struct(size_t before) {
    const qni_gemm_spec spec = small_spec(QN_GEMM_DENSE);
    qni_gemm_case c;
    char detail[256];
    double error = NAN;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 7), QN_OK);
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    memset((char *)&c.args + before, 0x5A, sizeof c.args - before);
    c.args.struct_size = before;
    assert_int_equal(qn_gemm(stream, &c.args), QN_OK);
    assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
    assert_true(error <= 1);
    qni_gemm_case_destroy(&c);
}

/** A caller that was compiled before there were epilogues has a struct that ends where bias begins;
 *  before d could be FP8, where scale_d does. */
static void smaller_structs_are_taken(void **) {
    assert_int_equal(offsetof(qn_gemm_args, bias), 88);
    assert_int_equal(offsetof(qn_gemm_args, scale_d), 112);
    take_smaller_struct(88);
    take_smaller_struct(112);
}

// ---- packing

static void packing_refuses(void **) {
    const qni_gemm_spec spec = {
        .m = 1, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF, .is_packed = true};
    qni_gemm_case c;
    int64_t shape[3];
    DLDataType dtype;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 9), QN_OK);
    assert_int_equal(qn_gemm_packed_shape(device, &c.b.t, shape, &dtype), QN_OK);
    assert_int_equal(shape[0], 1);
    assert_int_equal(shape[1], 128);
    assert_int_equal(shape[2], 256);
    DLTensor bf16 = c.b.t, small = c.packed.t;
    bf16.dtype = qni_dl_dtype(BF);
    assert_int_equal(qn_gemm_packed_shape(device, &bf16, shape, &dtype), QN_E_UNSUPPORTED);
    assert_string_equal(
        qn_last_error(),
        "gemm_packed_shape: b is bf16; e4m3fn and e4m3fnuz are packed, bf16 needs no packing");
    DLTensor odd = c.b.t;
    odd.shape = nullptr;
    assert_int_equal(qn_gemm_packed_shape(device, &odd, shape, &dtype), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm_packed_shape: b has a null shape");
    odd.shape = (int64_t[]){0, INT64_MAX};
    assert_int_equal(qn_gemm_packed_shape(device, &odd, shape, &dtype), QN_E_INVALID);
    odd.shape = (int64_t[]){1, 1ll << 61}; // 64 or 128 rows of it, packed
    assert_int_equal(qn_gemm_packed_shape(device, &odd, shape, &dtype), QN_E_INVALID);
    assert_non_null(strstr(qn_last_error(), "gemm_packed_shape: packed b is"));
    small.shape = (int64_t[]){1, 64, 256};
    assert_int_equal(qn_gemm_pack(stream, &small, &c.packed_scale.t, &c.b.t, &c.scale_b.t),
                     QN_E_INVALID);
    assert_string_equal(qn_last_error(),
                        "gemm_pack: packed has shape [1, 64, 256], needs [1, 128, 256]");
    assert_int_equal(qn_gemm_pack(stream, &c.packed.t, nullptr, &c.b.t, &c.scale_b.t),
                     QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm_pack: packed_scale is null");
    c.packed_scale.t.dtype = qni_dl_dtype(QNI_E8M0FNU);
    assert_int_equal(qn_gemm(stream, &c.args), QN_E_UNSUPPORTED);
    assert_string_equal(qn_last_error(), "gemm: scale_b has dtype e8m0fnu; accepted: f32");
    qni_gemm_case_destroy(&c);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(column_slices_do_not_overlap),
        cmocka_unit_test(smaller_structs_are_taken),
        cmocka_unit_test(packing_refuses),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_device);
}
