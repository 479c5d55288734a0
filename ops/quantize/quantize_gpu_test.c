// SPDX-License-Identifier: Apache-2.0
// The GPU kernels give equal bits at every level of optimisation: the simulator runs what clang
// makes of them at each level. The images of the build are at -O3; the other images come from the
// JIT.
#include "quantize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 70, COLS = 200, BLOCKS = 2 * ROWS };

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
    uint16_t x[ROWS * COLS];
    uint8_t q[ROWS * COLS];
    float scale[BLOCKS];
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

/** Fills a case with bf16 of both signs from about 2^-6 to 2^6, a NaN and an infinity, and
 *  quantises it by the definition. */
static void init_case(level_case *c, qni_fp8 kind, int64_t block_rows) {
    uint32_t random = 1;
    for (int i = 0; i < ROWS * COLS; i++) {
        random = random * 1664525 + 1013904223;
        c->x[i] = (uint16_t)(random >> 31 << 15 | (0x3C80 + (random >> 20) % 0x600));
    }
    c->x[3] = 0xFFC1;
    c->x[ROWS * COLS - 1] = 0x7F80;
    c->problem = (qni_quantize_problem){.dtype_x = QNI_BF16,
                                        .kind = kind,
                                        .rows = ROWS,
                                        .cols = COLS,
                                        .block_rows = block_rows,
                                        .x = c->x,
                                        .q = c->q,
                                        .scale = c->scale,
                                        .x_row = COLS,
                                        .q_row = COLS,
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

static void check_quantize(const qni_kernel_ref *kernel, qni_fp8 kind, int64_t block_rows) {
    static level_case c;
    static const uint8_t nothing[ROWS * COLS];
    init_case(&c, kind, block_rows);
    qni_quantize_problem p = c.problem;
    p.x = to_device(c.x, sizeof c.x);
    p.q = to_device(nothing, sizeof c.q);
    p.scale = to_device(nothing, sizeof c.scale);
    const qn_status st = block_rows == 1 ? qni_quantize_launch_teams(stream, &p, kernel)
                                         : qni_quantize_launch_blocks(stream, &p, kernel);
    if (st != QN_OK)
        fail_msg("%s", qn_last_error());
    assert_same(p.scale, c.scale, sizeof c.scale);
    assert_same(p.q, c.q, sizeof c.q);
    free_device(&p);
}

static void check_dequantize(const qni_kernel_ref *kernel, qni_fp8 kind) {
    static level_case c;
    init_case(&c, kind, 1);
    qni_quantize_problem p = c.problem;
    p.x = to_device(c.x, sizeof c.x);
    p.q = to_device(c.q, sizeof c.q);
    p.scale = to_device(c.scale, sizeof c.scale);
    if (qni_quantize_launch_teams(stream, &p, kernel) != QN_OK)
        fail_msg("%s", qn_last_error());
    qni_dequantize_ref(&c.problem);
    assert_same(p.x, c.x, sizeof c.x);
    free_device(&p);
}

/** Unoptimised code keeps its variables in scratch. */
#define LEVEL(entry_name, level)                                                                   \
    {.image = "quantize",                                                                          \
     .entry = entry_name,                                                                          \
     .defines = level,                                                                             \
     .max_scratch_bytes = INT32_MAX,                                                               \
     .max_sgpr_spills = INT32_MAX}
#define LEVELS(entry) {LEVEL(entry, "-O0"), LEVEL(entry, "-O1"), LEVEL(entry, nullptr)}
enum { NUM_LEVELS = 3 };
static const qni_kernel_ref rows_kernels[NUM_LEVELS] = LEVELS("qk_quantize_rows_bf16");
static const qni_kernel_ref blocks_kernels[NUM_LEVELS] = LEVELS("qk_quantize_blocks_bf16");
static const qni_kernel_ref dequantize_kernels[NUM_LEVELS] = LEVELS("qk_dequantize_bf16");

static void test_levels(void **state) {
    (void)state;
    if (!stream)
        skip();
    for (int i = 0; i < NUM_LEVELS; i++)
        for (int kind = QNI_FP8_E4M3FN; kind <= QNI_FP8_E4M3FNUZ;
             kind++) { // kinds that are converted by integers, or by v_cvt if the chip has it
            check_quantize(&rows_kernels[i], (qni_fp8)kind, 1);
            check_quantize(&blocks_kernels[i], (qni_fp8)kind, QNI_BLOCK);
            check_dequantize(&dequantize_kernels[i], (qni_fp8)kind);
        }
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
