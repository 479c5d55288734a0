// SPDX-License-Identifier: Apache-2.0
// Every GPU kernel of quantize and dequantize gives equal bits at every level of optimisation: the
// simulator runs what clang makes of it at each level. The images of the build are at -O3; the
// other images come from the JIT.
#include "quantize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = 256, MAX_COLS = 256, MAX_SCALES = 2 * MAX_ROWS };

static qn_device *gpu;
static qn_stream *stream;

static const char *spec;

static int open_gpu(void **state) {
    (void)state;
    if (qn_device_open(&gpu, spec) == QN_OK)
        return qn_stream_create(&stream, gpu) != QN_OK;
    print_message("%s\n", qn_last_error());
    return 0;
}

static int close_gpu(void **state) {
    (void)state;
    qn_stream_destroy(stream);
    qn_device_close(gpu);
    stream = nullptr;
    gpu = nullptr;
    return 0;
}

/** One problem, its tensors on the host, as the definition leaves them, and the device's. */
typedef struct level_case {
    alignas(16) uint16_t x[MAX_ROWS * MAX_COLS];
    alignas(16) uint8_t q[MAX_ROWS * MAX_COLS];
    float scale[MAX_SCALES];
    qni_quantize_problem problem;
} level_case;

static void *to_device(const void *host, int64_t bytes) {
    void *there = nullptr;
    if (qn_malloc(gpu, &there, bytes) != QN_OK ||
        gpu->backend->copy(stream, there, host, bytes, QNI_COPY_TO_DEVICE) != QN_OK)
        fail_msg("%s", qn_last_error());
    return there;
}

static void assert_same(const void *device, const void *host, int64_t bytes) {
    char *got = malloc((size_t)bytes);
    assert_non_null(got);
    if (gpu->backend->copy(stream, got, device, bytes, QNI_COPY_TO_HOST) != QN_OK)
        fail_msg("%s", qn_last_error());
    assert_memory_equal(got, host, (size_t)bytes);
    free(got);
}

typedef struct level_shape {
    int64_t rows, cols, block_rows;
} level_shape;

/** Some kernels take whole blocks alone; most rows and columns are not whole ones. */
static const level_shape shapes[] = {{70, 200, 1}, {70, 200, QNI_BLOCK}, {256, 256, QNI_BLOCK}};

/** Fills a case with bf16 of both signs from about 2^-6 to 2^6, a NaN and an infinity, and
 *  quantises it by the definition. */
static void init_case(level_case *c, qni_fp8 kind, const level_shape *shape) {
    const int64_t rows = shape->rows, cols = shape->cols;
    uint32_t random = 1;
    for (int64_t i = 0; i < rows * cols; i++) {
        random = random * 1664525 + 1013904223;
        c->x[i] = (uint16_t)(random >> 31 << 15 | (0x3C80 + (random >> 20) % 0x600));
    }
    c->x[3] = 0xFFC1;
    c->x[rows * cols - 1] = 0x7F80;
    c->problem = (qni_quantize_problem){.dtype_x = QNI_BF16,
                                        .kind = kind,
                                        .rows = rows,
                                        .cols = cols,
                                        .block_rows = shape->block_rows,
                                        .x = c->x,
                                        .q = c->q,
                                        .scale = c->scale,
                                        .x_row = cols,
                                        .q_row = cols,
                                        .scale_row = 2,
                                        .eps = 1e-4f};
    memset(c->scale, 0, sizeof c->scale);
    qni_quantize_ref(&c->problem);
}

static void free_device(const qni_quantize_problem *p) {
    qn_free(gpu, p->x);
    qn_free(gpu, p->q);
    qn_free(gpu, p->scale);
}

static void run(const qni_variant *variant, const qni_quantize_problem *p) {
    if (variant->run(variant, stream, p) != QN_OK)
        fail_msg("%s: %s", variant->name, qn_last_error());
}

static void check_quantize(const qni_variant *variant, const level_case *c) {
    static const uint8_t nothing[MAX_ROWS * MAX_COLS];
    qni_quantize_problem p = c->problem;
    p.x = to_device(c->x, sizeof c->x);
    p.q = to_device(nothing, sizeof c->q);
    p.scale = to_device(nothing, sizeof c->scale);
    run(variant, &p);
    assert_same(p.scale, c->scale, sizeof c->scale);
    assert_same(p.q, c->q, (int64_t)(c->problem.rows * c->problem.cols));
    free_device(&p);
}

static void check_dequantize(const qni_variant *variant, level_case *c) {
    qni_quantize_problem p = c->problem;
    p.x = to_device(c->x, sizeof c->x);
    p.q = to_device(c->q, sizeof c->q);
    p.scale = to_device(c->scale, sizeof c->scale);
    run(variant, &p);
    qni_dequantize_ref(&c->problem);
    assert_same(p.x, c->x, (int64_t)sizeof *c->x * c->problem.rows * c->problem.cols);
    free_device(&p);
}

/** Checks one kernel on each shape and kind that it takes. Some chips convert a kind by v_cvt, the
 *  others by integers. Returns how many problems it took. */
static int check_variant(const qni_variant *variant, bool is_quantize) {
    static level_case c;
    int taken = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = QNI_FP8_E4M3FN; kind <= QNI_FP8_E4M3FNUZ; kind++) {
            qni_reason why;
            init_case(&c, (qni_fp8)kind, &shapes[i]);
            if (!qni_variant_fits(variant, gpu, &c.problem, &why))
                continue;
            taken++;
            if (is_quantize)
                check_quantize(variant, &c);
            else
                check_dequantize(variant, &c);
        }
    return taken;
}

/** Checks one GPU kernel at each level. Unoptimised code keeps its variables in scratch. */
static void check_levels(const qni_variant *variant, bool is_quantize) {
    static const char *const levels[] = {"-O0", "-O1", nullptr};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        qni_variant leveled = *variant;
        qni_kernel_ref *kernel = &leveled.config.kernel[QNI_BF16];
        kernel->defines = levels[i];
        kernel->max_scratch_bytes = INT32_MAX;
        kernel->max_sgpr_spills = INT32_MAX;
        if (check_variant(&leveled, is_quantize) == 0)
            fail_msg("%s took no problem", variant->name);
    }
}

static void test_levels(void **state) {
    (void)state;
    if (!stream)
        skip();
    static const qni_op *const ops[] = {&qni_op_quantize, &qni_op_dequantize};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int i = 0; i < ops[o]->num_variants; i++)
            if (!ops[o]->variants[i].is_cpu)
                check_levels(&ops[o]->variants[i], o == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};
    static const char *const specs[] = {"sim:gfx942", "sim:gfx90a", "sim:gfx950", "sim:gfx1151",
                                        "sim:gfx1201"};
    int failed = 0;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        spec = specs[i];
        failed += cmocka_run_group_tests_name(spec, tests, open_gpu, close_gpu);
    }
    return failed;
}
