// SPDX-License-Identifier: Apache-2.0
// Cases of a small op: what the family's functions are asked, what is found, and what is left when
// memory is short.
#include "../runtime/testing.h"
#include "case.h"

enum { IN, OUT, BIAS, NUM_TENSORS, ROWS = 2, COLS = 3 };
static const char *const names[] = {"in", "out", "bias"};

/** out = 2 * in, by rows of COLS. */
typedef struct problem {
    int64_t stride;
    const float *in;
    float *out;
} problem;

typedef struct trial_case {
    qni_case base; // first
    problem problem;
    int64_t rows;                   // of `out`
    int filled, on_host, on_device; // calls
} trial_case;

static void twice(const problem *p, float *out) {
    for (int64_t i = 0; i < ROWS * COLS; i++)
        out[i / COLS * p->stride + i % COLS] = 2 * p->in[i / COLS * p->stride + i % COLS];
}

static qn_status run_right(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    twice(p, p->out);
    return QN_OK;
}

static qn_status run_wrong(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    twice(p, p->out);
    p->out[p->stride + 1] += 1;
    return QN_OK;
}

static qn_status run_too_far(const qni_variant *, qn_stream *, const void *given) {
    const problem *p = given;
    twice(p, p->out);
    p->out[COLS] = 0; // the gap behind the first row
    return QN_OK;
}

static const qni_variant variants[] = {
    {"twice.right", {.all = 0}, true, nullptr, nullptr, run_right, {}},
    {"twice.wrong", {.all = 0}, true, nullptr, nullptr, run_wrong, {}},
    {"twice.too_far", {.all = 0}, true, nullptr, nullptr, run_too_far, {}}};
static const qni_op op_twice = {"twice", variants, 3, nullptr, nullptr};

// ---- the family's functions

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    if (which == BIAS)
        return (qni_extent){};
    return (qni_extent){QNI_F32, which == OUT ? c->rows : ROWS, COLS, c->problem.stride, 1};
}

static void fill(void *context, int which) {
    trial_case *c = context;
    float *data = qni_area_host(&c->base.areas[which]);
    c->filled |= 1 << which;
    for (int64_t i = 0; which == IN && i < ROWS * COLS; i++)
        data[i / COLS * c->problem.stride + i % COLS] = (float)i + 1;
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    assert_null(qni_area_data(&c->base.areas[BIAS], on_host));
    c->problem.in = qni_area_data(&c->base.areas[IN], on_host);
    c->problem.out = qni_area_data(&c->base.areas[OUT], on_host);
    c->on_host += on_host;
    c->on_device += !on_host;
    return &c->problem;
}

/** Takes the results of a definition that writes `out` itself. */
static void expect(void *context, void *scratch) {
    trial_case *c = context;
    assert_int_equal(c->on_device, 0);
    memset(scratch, 0, c->base.scratch_bytes);
    const float *right = qni_area_draft(&c->base.areas[OUT]);
    assert_true(isnan(c->problem.out[0]) && isnan(right[0])); // poison
    twice(&c->problem, qni_area_draft(&c->base.areas[OUT]));
    assert_true(isnan(c->problem.out[0]));
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        const int64_t at = i / COLS * c->problem.stride + i % COLS;
        qni_area_expect(&c->base.areas[OUT], at, (double)right[at], 0);
    }
}

static const qni_case_kind kind = {names, NUM_TENSORS, extent_of, fill, place, expect};

// ---- cases

static int64_t rows, stride; // of the case
static qn_status tried;

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    trial_case c = {.base = {.kind = &kind, .op = op, .scratch_bytes = 24, .text = "any"},
                    .problem = {.stride = stride},
                    .rows = rows};
    tried = qni_case_try(run, &c.base);
    assert_int_equal(c.filled, rows == ROWS ? 1 << IN | 1 << OUT : 1 << IN);
    assert_int_equal(c.on_host, rows == ROWS);
    assert_int_equal(c.on_device, rows == ROWS);
    for (int i = 0; i < NUM_TENSORS; i++) // freed on every path
        assert_true(!c.base.areas[i].owner && !c.base.areas[i].before && !c.base.areas[i].device);
    return tried;
}

typedef struct seen {
    int count, passed;
    char text[3][160];
} seen;

static void note_result(void *context, const qn_check_result *result) {
    seen *s = context;
    assert_true(s->count < 3);
    s->passed += result->passed;
    snprintf(s->text[s->count++], 160, "%s", result->reason ? result->reason : result->detail);
}

static seen run_case(int64_t with_rows, int64_t with_stride, qn_status want) {
    const qni_family family = {"twice", (const qni_op *const[]){&op_twice, nullptr}, try_op};
    const qni_family *const families[] = {&family, nullptr};
    qn_device *device = nullptr;
    seen s = {};
    rows = with_rows;
    stride = with_stride;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qni_trial_families(families, device, "twice", nullptr, note_result, &s), want);
    qn_device_close(device);
    return s;
}

static void test_kernels(void **) {
    for (int64_t far = 0; far < 2; far++) {
        const seen s = run_case(ROWS, far ? 1 << 20 : COLS + 2, QN_E_MISMATCH);
        assert_int_equal(tried, QN_OK);
        assert_int_equal(s.count, 3);
        assert_int_equal(s.passed, 1);
        assert_string_equal(s.text[0], "");
        assert_non_null(strstr(s.text[1], far ? "out[1048577] is 11" : "out[6] is 11"));
        assert_non_null(strstr(s.text[2], "out: byte 12 from its first element was 0xff"));
    }
}

/** A tensor that no machine holds is an error, unless its rows lie so far apart that it is none. */
static void test_no_memory(void **) {
    constexpr int64_t too_many = 1 << 20;
    assert_int_equal(run_case(too_many, qni_far / 4, QN_E_MEMORY).count, 0);
    const seen s = run_case(too_many, qni_far, QN_OK);
    assert_int_equal(tried, QN_OK);
    assert_int_equal(s.count, 3); // every kernel is left out
    assert_int_equal(s.passed, 0);
    assert_non_null(strstr(s.text[0], "out of memory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
