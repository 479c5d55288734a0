// SPDX-License-Identifier: Apache-2.0
// The table of measured choices: its lines change which kernel runs, in order and by range; a
// faulty line is refused, and its place is named.
#include "../ops/gemm/gemm.h"
#include "../ops/norm/norm.h"
#include "../runtime/testing.h"
#include "../runtime/tune.h"
#include "check.h"

#include <quern/choice.h>
#include <quern/quantize.h>
#include <quern/tune.h>

static char folder[64], path[96], arch[64], units[16];

/** Writes the table that children follow: a header, and the text with the CPU's arch for each
 *  @. */
static void write_table(const char *text) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs("quern tune 1\n", f);
    for (; *text; text++)
        if (*text == '@')
            fputs(arch, f);
        else
            fputc(*text, f);
    assert_int_equal(fclose(f), 0);
}

/** Returns the environment of a child that follows the table, with one more variable at most. */
static const char *const *with_table(const char *more) {
    static char variable[128];
    static const char *env[3];
    snprintf(variable, sizeof variable, "QUERN_TUNE=%s", path);
    env[0] = variable;
    env[1] = more;
    return env;
}

// ---- on the CPU, by calls

/** Returns the kernel that quantises a matrix of 256 columns. */
static const char *quantizer(int64_t rows) {
    static float x[64 * 256], scale[64 * 2];
    static uint8_t q[64 * 256];
    int64_t shape[] = {rows, 256}, scales[] = {rows, 2};
    DLTensor xs = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}};
    DLTensor qs = xs, ss = xs;
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    xs.shape = qs.shape = shape;
    qs.data = q;
    qs.dtype = qni_dl_dtype(QNI_E4M3FN);
    ss.data = scale;
    ss.shape = scales;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_OK);
    CHILD_CHECK(qn_stream_create(&stream, device) == QN_OK);
    CHILD_CHECK(qn_quantize_fp8(stream, &qs, &ss, &xs, 1, 128, 1e-10f) == QN_OK);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return qn_last_kernel();
}

typedef struct expected {
    int64_t rows;
    const char *kernel;
} expected;

static void quantize(void *wanted) {
    for (const expected *e = wanted; e->kernel; e++)
        if (strcmp(quantizer(e->rows), e->kernel) != 0) {
            fprintf(stderr, "%ld rows: %s, not %s\n", (long)e->rows, qn_last_kernel(), e->kernel);
            _exit(1);
        }
}

static void find_cpu(void *) {
    qn_device *device = nullptr;
    qn_device_info info = {.struct_size = sizeof info};
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_OK);
    CHILD_CHECK(qn_device_get_info(device, &info) == QN_OK);
    fprintf(stderr, "%s %d", info.arch, (int)info.num_compute_units);
    qn_device_close(device);
}

static void first_choice(void *) {
    fputs(quantizer(3), stderr);
}

/** Returns what costs choose, to see that a line changes the choice. */
static const char *usual(void) {
    static char kernel[64];
    snprintf(kernel, sizeof kernel, "%s", child_run(first_choice, nullptr, nullptr));
    return kernel;
}

#define RUN_QUANTIZE(more, ...)                                                                    \
    child_run(quantize, (expected[]){__VA_ARGS__, {0, nullptr}}, with_table(more))

static void test_a_line_changes_the_choice(void **) {
    const char *const before = usual(), *kernel = "quantize.cpu";
    if (strcmp(before, kernel) == 0)
        skip(); // a processor without AVX2
    write_table("quantize @ rows=3 -> quantize.cpu # by 3.5 us\n");
    RUN_QUANTIZE(nullptr, {3, kernel}, {2, before}, {4, before});
    write_table("# for all\n\n  quantize\t@ -> quantize.cpu\n");
    RUN_QUANTIZE(nullptr, {3, kernel}, {1, kernel});
    write_table("quantize @ cols=256 block_rows=1 x=f32 q=e4m3fn rows=2..3 -> quantize.cpu\n");
    RUN_QUANTIZE(nullptr, {3, kernel}, {2, kernel}, {4, before}, {1, before});
    write_table("quantize @ rows=3.. -> quantize.cpu\n");
    RUN_QUANTIZE(nullptr, {3, kernel}, {64, kernel}, {2, before});
    char text[128];
    snprintf(text, sizeof text, "quantize @ units=%s -> quantize.cpu\n", units);
    write_table(text);
    RUN_QUANTIZE(nullptr, {3, kernel});
}

static void test_lines_that_do_not_match(void **) {
    const char *const before = usual();
    write_table("quantize gfx942 -> quantize.gpu_rows\nquantize sm_90 -> quantize.gpu_rows\n"
                "dequantize @ -> dequantize.cpu\nquantize @ x=bf16 -> quantize.cpu\n"
                "quantize @ cols=128 -> quantize.cpu\nquantize @ units=7777 -> quantize.cpu\n"
                "quantize @ q=e5m2 -> quantize.cpu\nquantize @ block_rows=128 -> quantize.cpu\n");
    RUN_QUANTIZE(nullptr, {3, before}, {64, before});
    write_table("");
    RUN_QUANTIZE(nullptr, {3, before});
}

static void test_first_line_wins(void **) {
    write_table("quantize @ rows=2..3 -> quantize.cpu\nquantize @ rows=3..5 -> quantize.cpu_avx2\n"
                "quantize @ -> quantize.cpu\n");
    if (strcmp(usual(), "quantize.cpu") == 0)
        skip();
    RUN_QUANTIZE(nullptr, {2, "quantize.cpu"}, {3, "quantize.cpu"}, {4, "quantize.cpu_avx2"},
                 {6, "quantize.cpu"});
}

static void test_others_beat_it(void **) {
    const char *text;
    if (strcmp(usual(), "quantize.cpu") == 0)
        skip();
    write_table("quantize @ -> quantize.cpu\n");
    RUN_QUANTIZE("QUERN_FORCE=quantize=quantize.cpu_avx2", {3, "quantize.cpu_avx2"});
    // A line with a forbidden kernel is not followed, and the log says so.
    write_table("quantize @ -> quantize.cpu_avx2\n");
    text = RUN_QUANTIZE("QUERN_LOG=kernel", {3, "quantize.cpu_avx2"});
    assert_non_null(strstr(text, "quantize on cpu: quantize.cpu_avx2, chosen by "));
    assert_non_null(strstr(text, "/tune:2; units="));
    assert_non_null(strstr(text, " cols=256 block_rows=1 x=f32 q=e4m3fn rows=3"));
    setenv("QUERN_LOG", "kernel", 1);
    text = RUN_QUANTIZE("QUERN_DISABLE=quantize.cpu_avx2,quantize.cpu_avx512", {3, "quantize.cpu"});
    unsetenv("QUERN_LOG");
    assert_non_null(strstr(text, "quantize on cpu: quantize.cpu; not quantize.cpu_avx2 of "));
    assert_non_null(strstr(text, "/tune:2: QUERN_DISABLE names it; "));
}

// ---- on the simulated GPU, choices alone

/** Returns a product of packed weights, as qn_gemm makes it of contiguous tensors. Nothing reads
 *  the scales. */
static qni_gemm_problem product(int64_t m) {
    static const float scales[1];
    return (qni_gemm_problem){.dtype_a = QNI_E4M3FNUZ,
                              .dtype_b = QNI_E4M3FNUZ,
                              .dtype_d = QNI_BF16,
                              .groups = 1,
                              .m = m,
                              .n = 4096,
                              .k = 7168,
                              .a_row = 7168,
                              .a_k = 1,
                              .d_row = 4096,
                              .scale_a = scales,
                              .scale_b = scales,
                              .scale_a_row = 56,
                              .scale_a_kb = 1,
                              .scale_b_nb = 56,
                              .scale_b_kb = 1,
                              .scale_b_columns = 128,
                              .is_packed = true,
                              .packed_n = 4096,
                              .packed_k = 7168};
}

static void choose_with(const expected *wanted, qn_gemm_activation activation) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    for (const expected *e = wanted; e->kernel; e++) {
        qni_gemm_problem p = product(e->rows);
        const qni_variant *found = nullptr;
        p.activation = activation;
        CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_OK);
        if (strcmp(found->name, e->kernel) != 0) {
            fprintf(stderr, "m=%ld: %s, not %s\n", (long)e->rows, found->name, e->kernel);
            _exit(1);
        }
    }
    qn_device_close(device);
}

static void choose_products(void *wanted) {
    choose_with(wanted, QN_GEMM_NO_ACTIVATION);
}

#define CHOOSE_PRODUCTS(more, ...)                                                                 \
    child_run(choose_products, (expected[]){__VA_ARGS__, {0, nullptr}}, with_table(more))

static void open_sim(void *is_there) {
    qn_device *device = nullptr;
    (void)is_there;
    if (qn_device_open(&device, "sim:gfx942") != QN_OK)
        fputs("no simulator", stderr);
    qn_device_close(device);
}

static void need_sim(void) {
    if (*child_run(open_sim, nullptr, nullptr))
        skip();
}

static void test_gemm(void **) {
    need_sim();
    const char *text, *tile = "gemm.fp8_mfma_256x128", *few = "gemm.fp8_rows_16x32";
    child_run(choose_products, (expected[]){{4, few}, {8192, "gemm.fp8_mfma_128x128"}, {}},
              (const char *const[]){"QUERN_TUNE=none", nullptr});
    write_table("gemm gfx942 units=1..999 n=4096 k=7168 a=e4m3fnuz m=1..8 -> "
                "gemm.fp8_mfma_256x128\n"
                "gemm gfx950 -> gemm.any\n"
                "gemm gfx942 packed=yes grouping=dense m=1024.. -> gemm.fp8_mfma_256x128\n");
    text = CHOOSE_PRODUCTS("QUERN_LOG=kernel", {4, tile}, {9, few}, {8192, tile});
    assert_non_null(strstr(text, "gemm on sim:gfx942: gemm.fp8_mfma_256x128, chosen by "));
    assert_non_null(strstr(text,
                           "n=4096 k=7168 a=e4m3fnuz b=e4m3fnuz d=bf16 packed=yes epilogue=none "
                           "grouping=dense groups=1 m=4 expected_m=0; passed over "
                           "gemm.fp8_decode: 0.646, not 3.07; "));
    assert_int_equal(count_text(text, "chosen by"), 2);
}

/** What was measured of plain products need not hold of others. */
static void choose_activated(void *wanted) {
    choose_with(wanted, QN_GEMM_GELU_TANH);
}

static void test_epilogues(void **) {
    need_sim();
    const char *tile = "gemm.fp8_mfma_128x128", *few = "gemm.fp8_rows_16x32";
    write_table("gemm gfx942 epilogue=none -> gemm.fp8_mfma_128x128\n");
    CHOOSE_PRODUCTS(nullptr, {4, tile});
    child_run(choose_activated, (expected[]){{4, few}, {}}, with_table(nullptr));
    write_table("gemm gfx942 epilogue=gelu_tanh -> gemm.fp8_mfma_128x128\n");
    CHOOSE_PRODUCTS(nullptr, {4, few});
    child_run(choose_activated, (expected[]){{4, tile}, {}}, with_table(nullptr));
}

/** Rows keep their bits: a line for some batches may only choose a kernel that agrees with the
 *  kernel for other batches. */
static void test_batches(void **) {
    need_sim();
    const char *text, *any = "gemm.any", *few = "gemm.fp8_rows_16x32";
    write_table("gemm gfx942 m=1..8 -> gemm.fp8_rows_16x32\ngemm gfx942 -> gemm.any\n");
    text = CHOOSE_PRODUCTS("QUERN_LOG=kernel", {4, any}, {9, any});
    assert_non_null(strstr(text, "gemm.any, chosen by "));
    assert_non_null(strstr(text, "/tune:2: a row has other bits by gemm.any, which takes the other "
                                 "batches; units="));
    write_table("gemm gfx942 m=1..8 -> gemm.fp8_rows_16x32\ngemm gfx942 -> gemm.any_fp8\n");
    CHOOSE_PRODUCTS(nullptr, {4, few}, {9, "gemm.any_fp8"});
    // A line that cannot be followed leaves the choice to costs, or to the line for all.
    write_table("gemm gfx942 m=1..8 -> gemm.fp8_mfma_fn_128x128\ngemm gfx942 -> gemm.any_fp8\n");
    text = CHOOSE_PRODUCTS("QUERN_LOG=kernel", {4, "gemm.any_fp8"});
    assert_non_null(strstr(text, "not gemm.fp8_mfma_fn_128x128 of "));
    assert_non_null(strstr(text, "/tune:2: a is e4m3fnuz, takes e4m3fn; units="));
    write_table("gemm gfx942 -> gemm.fp8_mfma_fn_128x128\n");
    text = CHOOSE_PRODUCTS("QUERN_LOG=kernel", {4, few});
    assert_non_null(strstr(text, "gemm.fp8_rows_16x32; not gemm.fp8_mfma_fn_128x128 of "));
}

static void choose_norm(void *) {
    static const _Alignas(16) float weight[4096];
    const qni_norm_problem p = {.h = 4096, .rows = 8, .inner = 8, .weight = {.data = weight}};
    const qni_variant *found = nullptr;
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    CHILD_CHECK(qni_choose(&qni_op_norm, device, &p, &found) == QN_OK);
    CHILD_CHECK(strcmp(found->name, "norm.gpu_any") == 0);
    qn_allow_slow_kernels(false);
    CHILD_CHECK(qni_choose(&qni_op_norm, device, &p, &found) == QN_OK);
    CHILD_CHECK(strcmp(found->name, "norm.gpu_any") != 0);
    qn_device_close(device);
}

static void test_slow_kernels(void **) {
    need_sim();
    write_table("norm gfx942 -> norm.gpu_any\n");
    const char *text = child_run(choose_norm, nullptr, with_table("QUERN_LOG=kernel"));
    assert_non_null(strstr(text, "; not norm.gpu_any of "));
    assert_non_null(strstr(text, "/tune:2: it is slow and was not asked for"));
}

// ---- what a tuner asks of its thread's calls

/** What was reported last, and how often. */
typedef struct watched {
    int count, num_kernels;
    bool goes_on;
    char line[512], first[64];
    uint32_t bits;
} watched;

static bool take_choice(void *context, const qn_tune_choice *c) {
    watched *w = context;
    w->count++;
    w->num_kernels = c->num_kernels;
    snprintf(w->line, sizeof w->line, "%s %s %s | %s", c->op, c->device, c->problem, c->batch);
    snprintf(w->first, sizeof w->first, "%s", c->kernels[0].name);
    w->bits = c->kernels[c->num_kernels - 1].bits;
    return w->goes_on;
}

/** The choice of costs is reported with all other kernels, whatever the table says. */
static void watch_products(void *) {
    qn_device *device = nullptr;
    const qni_variant *found = nullptr;
    watched w = {.goes_on = true};
    qni_gemm_problem p = product(4);
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    qn_tune_watch(take_choice, &w);
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_OK);
    CHILD_CHECK(strcmp(found->name, "gemm.fp8_mfma_128x128") == 0); // by the table
    CHILD_CHECK(w.count == 1 && strcmp(w.first, "gemm.fp8_rows_16x32") == 0);
    CHILD_CHECK(strcmp(w.line, "gemm gfx942 units=304 n=4096 k=7168 a=e4m3fnuz b=e4m3fnuz d=bf16 "
                               "packed=yes epilogue=none | grouping=dense groups=1 m=4 "
                               "expected_m=0") == 0);
    CHILD_CHECK(w.num_kernels == 12 && w.bits == 0); // the last is gemm.any_mixed
    w.goes_on = false;
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_E_UNSUPPORTED && w.count == 2);
    qn_tune_watch(nullptr, nullptr);
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_OK && w.count == 2);
    qn_device_close(device);
}

/** A kernel that a thread asks for goes before the table and QUERN_FORCE, and before whoever
 *  watches. */
static void force_products(void *) {
    qn_device *device = nullptr;
    const qni_variant *found = nullptr;
    watched w = {.goes_on = false};
    qni_gemm_problem p = product(4);
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_OK);
    qn_tune_watch(take_choice, &w);
    CHILD_CHECK(qn_tune_force("gemm.fp8_mfma_256x128") == QN_OK);
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_OK && w.count == 0);
    CHILD_CHECK(strcmp(found->name, "gemm.fp8_mfma_256x128") == 0);
    CHILD_CHECK(qn_tune_force("gemm.fp8_mfma_256x129") == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "there is no kernel \"gemm.fp8_mfma_256x129\""));
    CHILD_CHECK(qn_tune_force("gemm.fp8_mfma_fn_128x128") == QN_OK);
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_E_UNSUPPORTED);
    CHILD_CHECK(strstr(qn_last_error(), "gemm.fp8_mfma_fn_128x128, which cannot run: a is "));
    CHILD_CHECK(qn_tune_force("norm.gpu_any") == QN_OK); // says nothing of gemm
    qn_tune_watch(nullptr, nullptr);
    CHILD_CHECK(qni_choose(&qni_op_gemm, device, &p, &found) == QN_OK);
    CHILD_CHECK(strcmp(found->name, "gemm.any_fp8") == 0); // QUERN_FORCE
    CHILD_CHECK(qn_tune_force(nullptr) == QN_OK);
    qn_device_close(device);
}

static void test_a_tuner(void **) {
    need_sim();
    write_table("gemm gfx942 m=1..8 -> gemm.fp8_mfma_128x128\n");
    child_run(watch_products, nullptr, with_table(nullptr));
    child_run(force_products, nullptr, with_table("QUERN_FORCE=gemm=gemm.any_fp8"));
}

// ---- every op tells its problems apart

static void check_op(void *op) {
    qn_device *device = nullptr;
    const qn_check_options options = {.struct_size = sizeof options, .seed = 1, .quick = true};
    const qni_op *const found = qni_op_find(op, strlen(op));
    const bool is_cpu = found->variants[found->num_variants - 1].is_cpu; // else for this chip alone
    CHILD_CHECK(qn_device_open(&device, is_cpu ? "cpu" : "sim:gfx942") == QN_OK);
    CHILD_CHECK(qn_check(device, op, &options, nullptr, nullptr) == QN_OK);
    qn_device_close(device);
}

/** A catch-all line is followed for each op, and the log has a value for each of its names. */
static void test_every_op(void **) {
    for (const char *const *name = qn_op_names(); *name; name++) {
        const qni_op *op = qni_op_find(*name, strlen(*name));
        const qni_variant *last = &op->variants[op->num_variants - 1];
        char table[256];
        if (!last->is_cpu && *child_run(open_sim, nullptr, nullptr))
            continue;
        snprintf(table, sizeof table, "%s %s -> %s\n", *name, last->is_cpu ? "@" : "gfx942",
                 last->name);
        write_table(table);
        const char *text =
            child_run(check_op, (void *)(uintptr_t)*name, with_table("QUERN_LOG=kernel"));
        assert_true(count_text(text, "chosen by") > 0);
        assert_int_equal(count_text(text, "=?"), 0);
        for (const qni_key *key = op->keys; key->name; key++) {
            char wanted[40];
            snprintf(wanted, sizeof wanted, " %s=", key->name);
            if (!strstr(text, wanted))
                fail_msg("%s: no \"%s\" in\n%.1000s", *name, wanted, text);
        }
    }
}

// ---- refused tables

static void open_badly(void *says) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_E_INVALID && !device);
    CHILD_CHECK(strstr(qn_last_error(), "environment: QUERN_TUNE: tune: "));
    CHILD_CHECK(strstr(qn_last_error(), says));
}

static void test_refusals(void **) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"\n\ngem @ -> gemm.any\n", "/tune:4: the op is \"gem\"; accepted: quantize, dequantize, "},
        {"gemm\n", "/tune:2: the device is \"\"; accepted: what quern devices shows as arch"},
        {"gemm gfx999 -> gemm.any\n", "/tune:2: the device is \"gfx999\"; accepted"},
        {"gemm sm_90a -> gemm.any\n", "the device is \"sm_90a\""},
        {"gemm gfx942\n",
         "/tune:2: there is no kernel; accepted: OP DEVICE NAME=VALUE... -> KERNEL"},
        {"gemm gfx942 # -> gemm.any\n", "there is no kernel"},
        {"gemm gfx942 gemm.any\n", "\"gemm.any\"; accepted: NAME=VALUE, or -> before the kernel"},
        {"gemm gfx942 ->\n", "the kernel is \"\"; accepted: gemm.fp8_decode, "},
        {"gemm gfx942 -> gemm.all\n", "/tune:2: the kernel is \"gemm.all\"; accepted: gemm."},
        {"gemm gfx942 -> norm.gpu_any\n", "the kernel is \"norm.gpu_any\"; accepted: gemm."},
        {"gemm gfx942 -> gemm.any 12.5\n", "\"12.5\" stands behind the kernel; accepted: #"},
        {"gemm gfx942 -> gemm.cpu_avx2\n", "gemm.cpu_avx2 runs on processors, gfx942 is none"},
        {"gemm @ -> gemm.any\n", "gemm.any runs on GPUs, x86-64"},
        {"gemm gfx942 mm=1 -> gemm.any\n",
         "\"mm\" is nothing that gemm problems have; accepted: units, n, k, a, "},
        {"gemm gfx942 =1 -> gemm.any\n", "\"\" is nothing that gemm problems have"},
        {"gemm gfx942 n=1 n=2 -> gemm.any\n", "/tune:2: n stands twice"},
        {"gemm gfx942 a=bf61 -> gemm.any\n", "a is \"bf61\"; accepted: f32, f16, bf16, "},
        {"gemm gfx942 n= -> gemm.any\n", "n is \"\"; accepted: a number, LOW..HIGH, LOW.."},
        {"gemm gfx942 n=-1 -> gemm.any\n", "n is \"-1\"; accepted"},
        {"gemm gfx942 n=..4 -> gemm.any\n", "n is \"..4\"; accepted"},
        {"gemm gfx942 n=1...4 -> gemm.any\n", "n is \"1...4\"; accepted"},
        {"gemm gfx942 n=1..2x -> gemm.any\n", "n is \"1..2x\"; accepted"},
        {"gemm gfx942 n=0x10 -> gemm.any\n", "n is \"0x10\"; accepted"},
        {"gemm gfx942 n=9223372036854775808 -> gemm.any\n", "n is \"9223372036854775808\""},
        {"gemm gfx942 n=4..3 -> gemm.any\n", "n is \"4..3\", which holds no number"},
        {"gemm gfx942 m=1 -> gemm.any\n",
         "/tune:2: m is the batch's, and rows may have other bits by gemm.any than "},
        {"gemm @ n=1 groups=2 -> gemm.cpu_avx2\n", "groups is the batch's"},
        {"attention gfx942 requests=1 -> attention.gpu_any_128\n", "requests is the batch's"},
        {"norm gfx942 rows=1 -> norm.gpu_any\n", "rows is the batch's"},
        {"gemm gfx942 n=4 -> gemm.any\ngemm gfx942 n=4 -> gemm.any_fp8\n",
         "/tune:3: no problem gets here: line 2 takes all that this line is for"},
        {"gemm gfx942 n=1..9 -> gemm.any\ngemm gfx950 -> gemm.any\n"
         "gemm gfx942 k=1 n=2..9 m=7 -> gemm.any_fp8\n",
         "/tune:4: no problem gets here: line 2"},
        {"gemm gfx942 -> gemm.any", "/tune:2: the file ends within this line"},
        {"# gemm", "/tune:2: the file ends within this line"},
        {"gemm gfx942 -> gemm.any # \xC3\x28\n", "/tune:2: byte 27 is 0xc3; accepted: UTF-8 text"},
        {"gemm gfx942 -> gemm.any # \xED\xA0\x80\n", "byte 27 is 0xed"},
        {"gemm gfx942 -> gemm.any\r\n", "byte 24 is 0x0d; accepted"},
        {"# \x1B[2J\n", "byte 3 is 0x1b"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_table(bad[i].text);
        child_run(open_badly, (void *)(uintptr_t)bad[i].says, with_table(nullptr));
    }
}

static void write_bytes(const char *text, size_t bytes) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void test_refused_files(void **) {
    static const struct {
        const char *text;
        size_t bytes;
        const char *says;
    } bad[] = {
        {"", 0, "/tune:1: the first line is \"\"; accepted: quern tune 1"},
        {"quern tune 2\n", 13, "/tune:1: the first line is \"quern tune 2\"; accepted"},
        {"quern tune 10\n", 14, "/tune:1: the first line is \"quern tune 10\""},
        {"\x7F"
         "ELF",
         4, "/tune:1: the first line is \"\""},
        {"quern tune 1\ngemm\0gfx942\n", 25, "/tune:2: byte 5 is 0x00; accepted"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_bytes(bad[i].text, bad[i].bytes);
        child_run(open_badly, (void *)(uintptr_t)bad[i].says, with_table(nullptr));
    }
    char table[2100] = "gemm gfx942 -> gemm.any #";
    memset(table + strlen(table), 'x', 1100);
    strcat(table, "\n");
    write_table(table);
    child_run(open_badly, "/tune:2: the line has 1125 bytes; accepted: up to 1024",
              with_table(nullptr));
    FILE *f = fopen(path, "we");
    fputs("quern tune 1\n", f);
    for (int i = 0; i <= QNI_TUNE_MAX_LINES; i++)
        fprintf(f, "gemm gfx942 n=%d -> gemm.any\n", i);
    fclose(f);
    child_run(open_badly, "/tune:10002: the table is full; accepted: 10000 lines",
              with_table(nullptr));
}

static void open_without_file(void *says) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_E_IO && !device);
    CHILD_CHECK(strstr(qn_last_error(), says));
}

static void test_no_file(void **) {
    unlink(path);
    child_run(open_without_file, "/tune: No such file or directory", with_table(nullptr));
    assert_int_equal(mkdir(path, 0700), 0);
    child_run(open_without_file, "/tune: it is not a file", with_table(nullptr));
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    child_run(open_without_file, "/tune: it is not a file", with_table(nullptr));
    unlink(path);
    write_bytes("", 0);
    assert_int_equal(truncate(path, (1 << 24) + 1), 0);
    child_run(open_without_file, "/tune: it has 16777217 bytes; accepted: up to 16777216",
              with_table(nullptr));
}

// ---- the user's view

typedef struct listing {
    char text[2000];
} listing;

static void note(void *context, const qn_tune_entry *e) {
    listing *l = context;
    const size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%d|%s|%s|%s|%s|%s|%.40s\n", (int)e->line,
             e->op, e->device, e->problem, e->kernel, e->comment, e->fault ? e->fault : "");
}

static void list_used(void *) {
    char found[200];
    listing l = {""};
    CHILD_CHECK(qn_tune_path(found, sizeof found) == QN_OK && strcmp(found, path) == 0);
    CHILD_CHECK(qn_tune_path(found, strlen(path)) == QN_E_INVALID);
    CHILD_CHECK(qn_tune_path(nullptr, 0) == QN_E_INVALID);
    CHILD_CHECK(qn_tune_list(nullptr, nullptr, nullptr) == QN_E_INVALID);
    CHILD_CHECK(qn_tune_list(nullptr, note, &l) == QN_OK);
    fputs(l.text, stderr);
}

static void list_named(void *) {
    char found[200];
    listing l = {""};
    CHILD_CHECK(qn_tune_path(found, sizeof found) == QN_E_NOT_FOUND);
    CHILD_CHECK(qn_tune_list("/nonesuch", note, &l) == QN_E_IO);
    CHILD_CHECK(qn_tune_list(path, note, &l) == QN_OK);
    fputs(l.text, stderr);
}

static void test_list(void **) {
    static const char wanted[] =
        "3|gemm|gfx942|units=304 n=4096 packed=yes m=1..8|gemm.fp8_decode|12 µs, any 14 µs|\n"
        "4||||||the op is \"gem\"; accepted: quantize, deq\n"
        "6|norm|sm_90|h=128..|norm.gpu_any||\n"
        "7||||||no problem gets here: line 6 takes all t\n";
    write_table(
        "# measured\n"
        "gemm gfx942 m=1..8 packed=yes units=304 n=4096 -> gemm.fp8_decode #  12 µs, any 14 µs\n"
        "gem gfx942 -> gemm.any\n\nnorm sm_90 h=128.. -> norm.gpu_any\n"
        "norm sm_90 h=128..256 -> norm.gpu_any\n");
    assert_string_equal(child_run(list_used, nullptr, with_table(nullptr)), wanted);
    assert_string_equal(child_run(list_named, nullptr, nullptr), wanted);
    write_bytes("quern\ngemm\n", 11);
    assert_string_equal(child_run(list_named, nullptr, nullptr),
                        "1||||||the first line is \"quern\"; accepted: que\n");
}

/** What quern's own table says: its lines, by their device, and its faults. */
typedef struct shipped {
    int lines, faults;
} shipped;

static void count_shipped(void *context, const qn_tune_entry *e) {
    shipped *s = context;
    s->lines++;
    s->faults += e->fault || !(strstr(e->comment, " us, by costs ") ||
                               strstr(e->comment, "faster than the choice by costs at every size"));
}

static void list_shipped(void *) {
    char found[200];
    shipped s = {};
    CHILD_CHECK(qn_tune_list(nullptr, count_shipped, &s) == QN_OK);
    CHILD_CHECK(s.lines > 0 && s.faults == 0);
    CHILD_CHECK(qn_tune_path(found, sizeof found) == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "quern's own table"));
}

static void list_none(void *) {
    char found[200];
    shipped s = {};
    CHILD_CHECK(qn_tune_path(found, sizeof found) == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "QUERN_TUNE is none"));
    CHILD_CHECK(qn_tune_list(nullptr, count_shipped, &s) == QN_E_NOT_FOUND && s.lines == 0);
}

/** A call of the library's own table, on gfx942. */
typedef struct followed {
    qn_device *device;
    int count;
} followed;

/** Takes a line for norms of bf16 alone and compares what the most rows of it run. */
static void follow_line(void *context, const qn_tune_entry *e) {
    static uint16_t data[8] __attribute__((aligned(16))); // nothing reads it
    followed *f = context;
    long h, first, last;
    char kind[8];
    if (strcmp(e->device, "gfx942") != 0 || strcmp(e->op, "norm") != 0 ||
        sscanf(e->problem,
               "units=304 h=%ld x=bf16 weights=bf16 out=bf16 kind=%7s quant=none sum=no "
               "rows=%ld..%ld",
               &h, kind, &first, &last) != 4)
        return;
    const bool is_layer = strcmp(kind, "layer") == 0;
    const qni_norm_rows rows = {.data = data, .batch = h * last, .row = h};
    const qni_norm_problem p = {.dtype = QNI_BF16,
                                .dtype_weights = QNI_BF16,
                                .dtype_out = QNI_BF16,
                                .rows = last,
                                .inner = last,
                                .h = h,
                                .x = rows,
                                .out = rows,
                                .weight = {.data = data},
                                .beta = {.data = is_layer ? data : nullptr},
                                .subtracts_mean = is_layer};
    const qni_variant *found = nullptr;
    CHILD_CHECK(qni_choose(&qni_op_norm, f->device, &p, &found) == QN_OK);
    CHILD_CHECK(strcmp(found->name, e->kernel) == 0);
    f->count++;
}

static void follow_shipped(void *) {
    followed f = {};
    CHILD_CHECK(qn_device_open(&f.device, "sim:gfx942") == QN_OK);
    CHILD_CHECK(qn_tune_list(nullptr, follow_line, &f) == QN_OK);
    CHILD_CHECK(f.count > 0);
    qn_device_close(f.device);
}

static void test_shipped(void **) {
    child_run(list_shipped, nullptr, nullptr);
    child_run(list_none, nullptr, (const char *const[]){"QUERN_TUNE=none", nullptr});
    need_sim();
    child_run(follow_shipped, nullptr, nullptr);
}

static int make(void **) {
    make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/tune", folder);
    return sscanf(child_run(find_cpu, nullptr, nullptr), "%63s %15s", arch, units) != 2;
}

static int clear(void **) {
    remove_folder(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_changes_the_choice),
        cmocka_unit_test(test_lines_that_do_not_match),
        cmocka_unit_test(test_first_line_wins),
        cmocka_unit_test(test_others_beat_it),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_epilogues),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_slow_kernels),
        cmocka_unit_test(test_a_tuner),
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
