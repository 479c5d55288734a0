// SPDX-License-Identifier: Apache-2.0
// Tests of the gemm family on the CPU: every check problem, the public functions, their errors, and that bits
// depend neither on threads nor on neighbours. gemm_check.c has the problems that every device must pass.
#include "gemm_case.h"

#include <quern/check.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// clang-format off: cmocka.h needs what stands before it
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
// clang-format on

#define FN QNI_E4M3FN
#define BF QNI_BF16

static qn_device *device;
static qn_stream *stream;

static int open_device(void **) {
    return qn_device_open(&device, "cpu") != QN_OK || qn_stream_create(&stream, device) != QN_OK;
}

static int close_device(void **) {
    qn_stream_destroy(stream);
    qn_device_close(device);
    return 0;
}

// ---- agreement with the reference

static void print_failure(void *context, const qn_check_result *r) {
    int *ran = context;
    *ran += r->reason == nullptr;
    if (!r->reason && !r->passed)
        print_error("%s on %s: error %g: %s\n", r->kernel, r->problem, r->error, r->detail);
}

static void kernels_agree_with_the_reference(void **) {
    int ran = 0;
    qn_check_options options = {.struct_size = sizeof options, .seed = 1};
    assert_int_equal(qn_check(device, "gemm", &options, print_failure, &ran), QN_OK);
    assert_int_equal(qn_check(device, "gemm_pack", &options, print_failure, &ran), QN_OK);
    assert_true(ran > 80);
}

/** Makes the case, calls the public function, compares. */
static void call_and_compare(const qni_gemm_spec *spec) {
    qni_gemm_case c;
    char detail[256] = "";
    double error = NAN;
    assert_int_equal(qni_gemm_case_create(&c, stream, spec, 2), QN_OK);
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    assert_int_equal(qni_gemm_case_call(&c), QN_OK);
    assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
    if (!(error <= 1))
        fail_msg("%s: error %g: %s", c.text, error, detail);
    qni_gemm_case_destroy(&c);
}

static void public_calls_agree(void **) {
    const qni_gemm_spec specs[] = {
        {.m = 7, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF},
        {.m = 7, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF, .is_packed = true},
        {.m = 7,
         .n = 70,
         .k = 130,
         .dtype_a = BF,
         .dtype_b = BF,
         .dtype_d = QNI_F32,
         .c_is_d = true},
        {QN_GEMM_GROUPED_INDEX, 5, 0, 70, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL},
        {QN_GEMM_GROUPED_ENDS, 5, 0, 70, 130, FN, FN, BF, .zero_padding = true},
        {QN_GEMM_GROUPED_MASKED, 5, 40, 70, 130, FN, FN, BF, .is_packed = true},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        call_and_compare(&specs[i]);
}

/** E1: nothing to do is no error, whatever the data pointers are. */
static void empty_problems_do_nothing(void **) {
    const qni_gemm_spec specs[] = {
        {.m = 0, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF},
        {.m = 7, .n = 0, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF},
        {.m = 0, .n = 0, .k = 0, .dtype_a = BF, .dtype_b = BF, .dtype_d = BF},
        {.m = 0, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF, .is_packed = true},
        {QN_GEMM_GROUPED_MASKED, 0, 4, 70, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL},
        {QN_GEMM_GROUPED_MASKED, 3, 0, 70, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        call_and_compare(&specs[i]);
}

// ---- bits

/** d of a packed product, as bits; m rows starting at row `first` of the same 70. */
static void product_bits(qni_gemm_case *c, int64_t first, int64_t m, uint16_t *out) {
    int64_t a_shape[] = {m, c->spec.k}, d_shape[] = {m, c->spec.n};
    int64_t s_shape[] = {m, (c->spec.k + 127) / 128};
    DLTensor a = c->a.t, scale = c->scale_a.t, d = c->d.t;
    a.shape = a_shape;
    a.byte_offset += (uint64_t)(first * c->a.strides[1]);
    scale.shape = s_shape;
    scale.byte_offset += (uint64_t)(first * c->scale_a.strides[1] * 4);
    d.shape = d_shape;
    d.strides = nullptr;
    d.data = out;
    d.byte_offset = 0;
    qn_gemm_args args = c->args;
    args.a = &a;
    args.scale_a = &scale;
    args.d = &d;
    assert_int_equal(qn_gemm(stream, &args), QN_OK);
}

static void bits_do_not_depend_on_other_rows(void **) {
    enum { M = 70, N = 150 };
    qni_gemm_spec spec = {.m = M, .n = N, .k = 500, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF};
    for (int packed = 0; packed < 2; packed++) {
        static uint16_t all[M * N], some[M * N];
        qni_gemm_case c;
        spec.is_packed = packed;
        assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 3), QN_OK);
        product_bits(&c, 0, M, all);
        for (int64_t m = 1; m < 20; m++) {
            product_bits(&c, M - 2 * m, m, some);
            assert_memory_equal(some, all + (M - 2 * m) * N, (size_t)(m * N) * sizeof *some);
        }
        qni_gemm_case_destroy(&c);
    }
}

/** A product large enough for many tiles; a sum of its bits. Runs in a child with its own environment. */
static uint64_t product_hash(void) {
    const qni_gemm_spec spec = {
        .m = 300, .n = 500, .k = 300, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF};
    static uint16_t d[300 * 500];
    qni_gemm_case c;
    uint64_t hash = 1;
    open_device(nullptr);
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 4), QN_OK);
    product_bits(&c, 0, spec.m, d);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        hash = hash * 31 + d[i];
    qni_gemm_case_destroy(&c);
    close_device(nullptr);
    return hash;
}

/** What `body` gives in a child whose environment has name=value: the environment is read once a process. */
static uint64_t in_child(const char *name, const char *value, uint64_t (*body)(void)) {
    int ends[2];
    uint64_t result = 0;
    if (pipe(ends) != 0)
        return 0;
    pid_t child = fork();
    if (child == 0) {
        setenv(name, value, 1);
        result = body();
        _exit(write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &result, sizeof result) != sizeof result)
        result = 0;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return result;
}

static uint64_t hash_of_threads[3];

static void bits_do_not_depend_on_threads(void **) {
    assert_int_not_equal(hash_of_threads[0], 0);
    assert_int_equal(hash_of_threads[1], hash_of_threads[0]);
    assert_int_equal(hash_of_threads[2], hash_of_threads[0]);
}

// ---- far strides

/** Address space without memory behind what is never touched. */
static char *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

/** Copies rows so that they lie `stride` bytes apart. */
static void spread(char *to, int64_t stride, const char *from, int64_t row_bytes, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * stride, from + i * row_bytes, (size_t)row_bytes);
}

static void strides_beyond_32_bits(void **) {
    enum { M = 3, N = 5, K = 130 };
    const int64_t far = (INT64_C(1) << 31) + 10; // elements
    const qni_gemm_spec spec = {
        .m = M, .n = N, .k = K, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF};
    uint16_t near_d[M * N];
    qni_gemm_case c;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 5), QN_OK);
    product_bits(&c, 0, M, near_d);
    char *a = reserve((size_t)far * M), *b = reserve((size_t)far * N),
         *d = reserve((size_t)far * 2 * M);
    assert_true(a && b && d);
    spread(a, far, (char *)qni_data(&c.a.t), K, M);
    spread(b, far, (char *)qni_data(&c.b.t), K, N);
    int64_t strides[] = {far, 1};
    DLTensor far_a = c.a.t, far_b = c.b.t, far_d = c.d.t;
    far_a.strides = far_b.strides = far_d.strides = strides;
    far_a.byte_offset = far_b.byte_offset = far_d.byte_offset = 0;
    far_a.data = a, far_b.data = b, far_d.data = d;
    c.args.a = &far_a, c.args.b = &far_b, c.args.d = &far_d;
    assert_int_equal(qn_gemm(stream, &c.args), QN_OK);
    for (int64_t m = 0; m < M; m++)
        assert_memory_equal(d + m * far * 2, near_d + m * N, N * sizeof *near_d);
    munmap(a, (size_t)far * M);
    munmap(b, (size_t)far * N);
    munmap(d, (size_t)far * 2 * M);
    qni_gemm_case_destroy(&c);
}

/** A dimension of one element may carry any stride. */
static void strides_of_single_elements(void **) {
    const qni_gemm_spec spec = {
        .m = 1, .n = 1, .k = 1, .dtype_a = FN, .dtype_b = FN, .dtype_d = QNI_F32};
    int64_t odd[] = {-77, 1234567};
    qni_gemm_case c;
    char detail[256];
    double error = NAN;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 6), QN_OK);
    c.a.t.strides = c.b.t.strides = c.d.t.strides = c.scale_a.t.strides = c.scale_b.t.strides = odd;
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    assert_int_equal(qn_gemm(stream, &c.args), QN_OK);
    assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
    assert_true(error <= 1);
    qni_gemm_case_destroy(&c);
}

// ---- errors: each is refused with words that name it, and d keeps what it held

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
static void null_scale(qni_gemm_case *c) {
    c->args.scale_a = nullptr;
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
    reshape(&c->scale_b, 1, 1);
}
static void flat_a(qni_gemm_case *c) {
    c->a.t.ndim = 1;
}
static void e5m2_b(qni_gemm_case *c) {
    c->b.t.dtype = qni_dl_dtype(QNI_E5M2);
}
static void bf16_b(qni_gemm_case *c) {
    c->b.t.dtype = qni_dl_dtype(BF);
}
static void f16_d(qni_gemm_case *c) {
    c->d.t.dtype = qni_dl_dtype(QNI_F16);
}
static void f32_c(qni_gemm_case *c) {
    c->args.c = &c->c.t;
    c->c.t.dtype = qni_dl_dtype(QNI_F32);
}
static void bf16_scale(qni_gemm_case *c) {
    c->scale_b.t.dtype = qni_dl_dtype(BF);
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

static const refusal refusals[] = {
    {"null d", QN_E_INVALID, "gemm: d is null", null_d, QN_GEMM_DENSE},
    {"null a", QN_E_INVALID, "gemm: a is null", null_a, QN_GEMM_DENSE},
    {"null scale", QN_E_INVALID, "gemm: scale_a is null; FP8 needs scales", null_scale,
     QN_GEMM_DENSE},
    {"null data", QN_E_INVALID, "with null data", null_data, QN_GEMM_DENSE},
    {"struct_size", QN_E_INVALID, "gemm: args.struct_size is 8; set it to sizeof(qn_gemm_args)",
     old_size, QN_GEMM_DENSE},
    {"short b", QN_E_INVALID, "gemm: b has shape [4, 99], needs [5, 130]", short_b, QN_GEMM_DENSE},
    {"short scale", QN_E_INVALID, "gemm: scale_b has shape [1, 1], needs [1, 2]", short_scale,
     QN_GEMM_DENSE},
    {"flat a", QN_E_INVALID, "gemm: a has 1 dimensions, needs 2", flat_a, QN_GEMM_DENSE},
    {"e5m2", QN_E_UNSUPPORTED, "gemm: a is e4m3fn and b is e5m2; accepted are", e5m2_b,
     QN_GEMM_DENSE},
    {"mixed", QN_E_UNSUPPORTED, "gemm: a is e4m3fn and b is bf16; accepted are", bf16_b,
     QN_GEMM_DENSE},
    {"f16 d", QN_E_UNSUPPORTED, "gemm: d has dtype f16; accepted: f32, bf16", f16_d, QN_GEMM_DENSE},
    {"f32 c", QN_E_UNSUPPORTED, "gemm: c is f32, needs d's bf16", f32_c, QN_GEMM_DENSE},
    {"scale type", QN_E_UNSUPPORTED, "gemm: scale_b has dtype bf16; accepted: f32", bf16_scale,
     QN_GEMM_DENSE},
    {"gaps in d", QN_E_INVALID, "gemm: d is [3, 5] bf16 strides [20, 2]; needs columns", gap_d,
     QN_GEMM_DENSE},
    {"narrow d", QN_E_INVALID, "gemm: d is [3, 5] bf16 strides [3, 1]; needs columns", narrow_d,
     QN_GEMM_DENSE},
    {"gaps in a", QN_E_INVALID, "gemm: a is [3, 130] e4m3fn strides [300, 2]", gap_a,
     QN_GEMM_DENSE},
    {"backward a", QN_E_INVALID, "gemm: a is [3, 130] e4m3fn strides [-130, 1]", backward_a,
     QN_GEMM_DENSE},
    {"odd d", QN_E_INVALID, "a multiple of its 2-byte elements", odd_d, QN_GEMM_DENSE},
    {"device", QN_E_INVALID, "gemm: a is on DLPack device", other_device, QN_GEMM_DENSE},
    {"overlap", QN_E_INVALID, "gemm: c overlaps d without being d itself", shifted_c,
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
};

static void refuse(const refusal *r) {
    const qni_gemm_spec spec = {r->grouping, 2, 3, 5, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL};
    qni_gemm_case c;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 7), QN_OK);
    assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
    r->change(&c);
    qn_status st = qni_gemm_case_call(&c);
    if (st != r->status || !strstr(qn_last_error(), r->words))
        fail_msg("%s: %s: %s", r->name, qn_status_name(st), qn_last_error());
    assert_memory_equal(c.d.device, c.d.host, (size_t)c.d.bytes);
    qni_gemm_case_destroy(&c);
}

static void bad_arguments_are_refused(void **) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        refuse(&refusals[i]);
    assert_int_equal(qn_gemm(nullptr, nullptr), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm: stream is null");
    assert_int_equal(qn_gemm(stream, nullptr), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm: args is null");
    assert_int_equal(qn_gemm_grouped_contiguous(stream, nullptr, QN_GEMM_DENSE), QN_E_INVALID);
    assert_non_null(strstr(qn_last_error(), "grouping is 0, needs QN_GEMM_GROUPED_INDEX (1)"));
}

/** c may be another part of the matrix of which d is columns. */
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
    qni_gemm_case_destroy(&c);
}

/** 16 bytes are all the alignment that packed weights need. */
static void packed_weights_may_lie_anywhere(void **) {
    const qni_gemm_spec spec = {
        .m = 9, .n = 70, .k = 130, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF, .is_packed = true};
    uint16_t want[9 * 70], got[9 * 70];
    alignas(64) static char room[128 * 256 + 64];
    qni_gemm_case c;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 12), QN_OK);
    product_bits(&c, 0, spec.m, want);
    memcpy(room + 16, qni_data(&c.packed.t), 128 * 256);
    DLTensor moved = c.packed.t;
    moved.data = room;
    moved.byte_offset = 16;
    c.args.b = &moved;
    for (int64_t m = 1; m <= spec.m; m += 4) {
        product_bits(&c, 0, m, got);
        assert_memory_equal(got, want, (size_t)(m * spec.n) * sizeof *got);
    }
    moved.byte_offset = 8;
    c.args.d = &c.d.t;
    assert_int_equal(qn_gemm(stream, &c.args), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "gemm: packed b must be contiguous and 16-byte aligned");
    qni_gemm_case_destroy(&c);
}

// ---- what the layout holds

static bool is_untouched(const qni_gemm_case *c) {
    void *got = malloc((size_t)c->d.bytes);
    bool is_equal = got &&
                    stream->device->backend->copy(stream, got, c->d.device, c->d.bytes,
                                                  QNI_COPY_TO_HOST) == QN_OK &&
                    qn_stream_sync(stream) == QN_OK &&
                    memcmp(got, c->d.host, (size_t)c->d.bytes) == 0;
    free(got);
    return is_equal;
}

static bool set_entry(const qni_gemm_case *c, int32_t entry) {
    int32_t *at = (int32_t *)qni_data(&c->layout.t) + 1;
    return stream->device->backend->copy(stream, at, &entry, sizeof entry, QNI_COPY_TO_DEVICE) ==
               QN_OK &&
           qn_stream_sync(stream) == QN_OK;
}

static bool refuses_entry(qn_gemm_grouping grouping, int32_t entry, const char *words) {
    const qni_gemm_spec spec = {grouping, 2, 3, 5, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL};
    qni_gemm_case c;
    bool is_right = qni_gemm_case_create(&c, stream, &spec, 10) == QN_OK &&
                    qni_gemm_case_reset(&c) == QN_OK && qni_gemm_case_call(&c) == QN_OK &&
                    qni_gemm_case_reset(&c) == QN_OK && set_entry(&c, entry);
    is_right = is_right && qni_gemm_case_call(&c) == QN_E_INVALID &&
               strstr(qn_last_error(), words) && is_untouched(&c);
    if (!is_right)
        print_error("wanted \"%s\", got \"%s\"\n", words, qn_last_error());
    qni_gemm_case_destroy(&c);
    return is_right;
}

static bool refuses_bad_groups(void) {
    bool all =
        refuses_entry(QN_GEMM_GROUPED_INDEX, 2, "group_layout[1] is 2, needs a group 0..1 or -1");
    all &= refuses_entry(QN_GEMM_GROUPED_INDEX, 1,
                         "group_layout[1] is 1, group_layout[0] 0; a group needs to start at");
    all &= refuses_entry(QN_GEMM_GROUPED_INDEX, -2, "group_layout[1] is -2, needs a group");
    all &=
        refuses_entry(QN_GEMM_GROUPED_ENDS, 100000, "group_layout[1] is 100000, needs an end in");
    all &= refuses_entry(QN_GEMM_GROUPED_MASKED, 4, "group_layout[1] is 4, needs 0..3 rows");
    all &= refuses_entry(QN_GEMM_GROUPED_MASKED, -1, "group_layout[1] is -1, needs 0..3 rows");
    return all;
}

/** Runs in a child with QUERN_VALIDATE=1: 1 if all is well, 2 without the simulator. */
static uint64_t gpu_validation(void) {
    if (qn_device_open(&device, "sim:gfx942") != QN_OK)
        return 2;
    if (qn_stream_create(&stream, device) != QN_OK)
        return 0;
    uint64_t result = refuses_bad_groups();
    close_device(nullptr);
    return result;
}

static uint64_t gpu_validation_result;

static void validation_finds_bad_groups_on_gpus(void **) {
    if (gpu_validation_result == 2)
        skip();
    assert_int_equal(gpu_validation_result, 1);
}

static void the_cpu_finds_bad_groups(void **) {
    assert_true(refuses_bad_groups());
}

/** Kernels that meet a bad id, as on GPUs without validation, never leave the tensors. */
static void bad_groups_stay_inside(void **) {
    const qn_gemm_grouping all[] = {QN_GEMM_GROUPED_INDEX, QN_GEMM_GROUPED_ENDS,
                                    QN_GEMM_GROUPED_MASKED};
    for (int i = 0; i < 3; i++)
        for (int32_t entry = -1000000; entry <= 1000000; entry += 2000000) {
            const qni_gemm_spec spec = {all[i], 2, 3, 5, 130, FN, FN, BF, .fill = QNI_FILL_NORMAL};
            qni_gemm_case c;
            char detail[256];
            double error = NAN;
            assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 11), QN_OK);
            ((int32_t *)qni_data(&c.layout.t))[1] = entry;
            assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
            assert_int_equal(qni_run(&qni_op_gemm, stream, &c.problem), QN_OK);
            for (int64_t m = 0; m < c.d.shape[0] * c.d.shape[1]; m++) // all rows are fair game
                memset((uint16_t *)qni_data(&c.d.t) + m * spec.n, 0xFF, 2 * (size_t)spec.n);
            c.spec.m = 0;
            assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
            assert_true(error == 0);
            qni_gemm_case_destroy(&c);
        }
}

int main(void) {
    // Before anything here reads the environment, which is read once.
    hash_of_threads[0] = in_child("QUERN_NUM_THREADS", "1", product_hash);
    hash_of_threads[1] = in_child("QUERN_NUM_THREADS", "3", product_hash);
    hash_of_threads[2] = in_child("QUERN_NUM_THREADS", "16", product_hash);
    gpu_validation_result = in_child("QUERN_VALIDATE", "1", gpu_validation);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree_with_the_reference),
        cmocka_unit_test(public_calls_agree),
        cmocka_unit_test(empty_problems_do_nothing),
        cmocka_unit_test(bits_do_not_depend_on_other_rows),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(strides_beyond_32_bits),
        cmocka_unit_test(strides_of_single_elements),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(column_slices_do_not_overlap),
        cmocka_unit_test(packing_refuses),
        cmocka_unit_test(packed_weights_may_lie_anywhere),
        cmocka_unit_test(validation_finds_bad_groups_on_gpus),
        cmocka_unit_test(the_cpu_finds_bad_groups),
        cmocka_unit_test(bad_groups_stay_inside),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
