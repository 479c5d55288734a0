// SPDX-License-Identifier: Apache-2.0
// Gives every code of the FP8 kinds as key and as value to attention on simulated GPUs: a value
// must come out unchanged, to the bit, and a key's score must be the code's value.
#include "../../runtime/testing.h"
#include "attention.h"

#include <quern/choice.h>

#include <math.h>

// Each code has a request of one key; all elements of the key, and of its value, are the code, as
// many as every kernel for heads of up to 64 takes. A request has one row, or more rows than the
// kernel for few rows takes, by as many query heads for the one kv head.
enum { CODES = 256, DIM = 64, HEADS = 17, COUNT = CODES * DIM, MOST = COUNT * HEADS };

typedef struct setup {
    qn_device *device;
    qn_stream *stream;
    qni_dtype q_dtype, kind;
    int heads;
} setup;

/** A tensor on the device: [CODES, 1, heads, DIM], or for lse [CODES, 1, heads]. */
typedef struct box {
    DLTensor t;
    int64_t shape[4];
} box;

static DLTensor on_host(const box *b, void *data) {
    DLTensor t = b->t;
    t.data = data;
    t.device = (DLDevice){kDLCPU, 0};
    return t;
}

static void make(setup *s, box *b, qni_dtype dtype, int ndim, int heads, void *values) {
    *b = (box){.shape = {CODES, 1, heads, DIM}};
    b->t = (DLTensor){.device = qn_device_id(s->device),
                      .ndim = ndim,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = b->shape};
    CHILD_CHECK(qn_malloc(s->device, &b->t.data, MOST * 4) == QN_OK);
    DLTensor host = on_host(b, values);
    CHILD_CHECK(qn_copy(s->stream, &b->t, &host) == QN_OK);
}

/** Returns whether an element is right. An infinite value may become a NaN, because tiles repeat a
 *  request's last key with weight 0. */
static bool is_same(double want, float got) {
    return isfinite(want) ? want == (double)got : isnan(got) || want == (double)got;
}

/** Returns whether lse is that of a score x. It may be off by the change of the logarithm's unit
 *  and back, and by the roundings of a sum with gfx90a's headroom of 11 bits; the least code's
 *  score is 2^-17. */
static bool is_score(double x, float got) {
    if (isnan(x) || x == HUGE_VAL)
        return !isfinite(got);
    return x == -HUGE_VAL ? got == -HUGE_VALF
                          : fabs((double)got - x) <= fabs(x) * 0x1p-21 + 0x1p-20;
}

/** Computes o and lse of the requests; sm_scale is 1. */
static void run(setup *s, void *k, void *v, float *o, float *lse) {
    static uint16_t q[MOST];
    box boxes[5];
    for (int i = 0; i < MOST; i++)
        qni_put(s->q_dtype, q, i, 1.0 / DIM);
    make(s, &boxes[0], s->q_dtype, 4, s->heads, q);
    make(s, &boxes[1], s->kind, 4, 1, k);
    make(s, &boxes[2], s->kind, 4, 1, v);
    make(s, &boxes[3], QNI_F32, 4, s->heads, o);
    make(s, &boxes[4], QNI_F32, 3, s->heads, lse);
    const qn_attention_args args = {.struct_size = sizeof args,
                                    .q = &boxes[0].t,
                                    .k = &boxes[1].t,
                                    .v = &boxes[2].t,
                                    .o = &boxes[3].t,
                                    .lse = &boxes[4].t,
                                    .lse_base = QN_LSE_BASE_E,
                                    .sm_scale = 1};
    DLTensor to_o = on_host(&boxes[3], o), to_lse = on_host(&boxes[4], lse);
    CHILD_CHECK(qn_attention(s->stream, &args) == QN_OK);
    CHILD_CHECK(qn_copy(s->stream, &to_o, &boxes[3].t) == QN_OK);
    CHILD_CHECK(qn_copy(s->stream, &to_lse, &boxes[4].t) == QN_OK);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        qn_free(s->device, boxes[i].t.data);
}

static void check_codes(setup *s) {
    static float o[MOST], lse[MOST];
    static uint8_t codes[COUNT], zeros[COUNT];
    const int rows = CODES * s->heads;
    for (int i = 0; i < COUNT; i++)
        codes[i] = (uint8_t)(i / DIM);
    run(s, codes, zeros, o, lse);
    for (int i = 0; i < rows; i++)
        CHILD_CHECK(is_score(qni_get(s->kind, codes, i / s->heads * DIM), lse[i]));
    run(s, zeros, codes, o, lse); // scores are 0, weights 1
    for (int i = 0; i < rows * DIM; i++)
        CHILD_CHECK(is_same(qni_get(s->kind, codes, i / DIM / s->heads * DIM), o[i]));
}

/** Checks q of both types; of f16 only where the matrix core keeps f16's subnormals. */
static void check_kinds(void *spec) {
    setup s = {};
    CHILD_CHECK(qn_device_open(&s.device, spec) == QN_OK);
    CHILD_CHECK(qn_stream_create(&s.stream, s.device) == QN_OK);
    qn_allow_slow_kernels(false); // a call that no matrix core takes is an error
    for (s.kind = QNI_E4M3FN; s.kind <= QNI_E5M2FNUZ; s.kind++) {
        const bool is_flushed = !strcmp(spec, "sim:gfx90a") && s.kind >= QNI_E5M2;
        for (s.heads = 1; s.heads <= HEADS; s.heads += HEADS - 1) {
            s.q_dtype = QNI_BF16;
            check_codes(&s);
            s.q_dtype = QNI_F16;
            if (!is_flushed)
                check_codes(&s);
        }
    }
    qn_stream_destroy(s.stream);
    qn_device_close(s.device);
}

/** Returns whether the build has a target's images; make TARGETS=… may have left them out. */
static bool has_images(const char *target) {
    for (const qni_image *built = qni_images; built->id; built++)
        if (strcmp(built->target, target) == 0)
            return true;
    return false;
}

static void test_device(void **state) {
    static const char *const env[] = {"QUERN_NO_JIT=1", nullptr};
    if (!has_images((const char *)*state + strlen("sim:")))
        skip();
    child_run(check_kinds, *state, env);
}

int main(void) {
#define ON(chip) cmocka_unit_test_prestate(test_device, (void *)(uintptr_t)"sim:" chip)
    const struct CMUnitTest tests[] = {ON("gfx90a"), ON("gfx942"), ON("gfx950"), ON("gfx1151"),
                                       ON("gfx1201")};
#undef ON
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
