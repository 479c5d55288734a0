// SPDX-License-Identifier: Apache-2.0
// The HIP backend and images, on the simulated GPU; kernels are compiled here, by the clang that
// the JIT uses.
#include "../image/compiler.h"
#include "../image/image.h"
#include "../runtime.h"
#include "../testing.h"

#include <quern/cache.h>
#include <quern/quantize.h>

#include <pthread.h>

static qn_device *gpu;
static qn_stream *stream;

static void assert_ok(qn_status st) {
    if (st != QN_OK)
        fail_msg("%s: %s", qn_status_name(st), qn_last_error());
}

static void assert_error_has(const char *word) {
    if (!strstr(qn_last_error(), word))
        fail_msg("the message lacks \"%s\": %s", word, qn_last_error());
}

/** Returns the simulated GPU's library of this build; null if the build has none
 *  (QUERN_SIM=OFF). */
static const char *sim_library(void) {
    static char path[512];
    const char *build = getenv("QUERN_BUILD_DIR"), *chosen = getenv("QUERN_SIM_LIBRARY");
    snprintf(path, sizeof path, "%s/libquernsim.so.0", build ? build : ".");
    if (chosen)
        snprintf(path, sizeof path, "%s", chosen);
    return access(path, R_OK) == 0 ? path : nullptr;
}

static int open_gpu(void **) {
    assert_ok(qn_device_open(&gpu, "sim:gfx942"));
    assert_ok(qn_stream_create(&stream, gpu));
    return 0;
}

static int close_gpu(void **) {
    qn_stream_destroy(stream);
    qn_device_close(gpu);
    return 0;
}

// ---- devices

static void test_devices(void **) {
    qn_device *again = nullptr, *second = nullptr;
    qn_device_info info = {.struct_size = sizeof info};
    assert_ok(qn_device_open(&again, "sim:gfx942:1"));
    assert_ptr_equal(again, gpu); // one device, two ways to say it
    assert_ok(qn_device_open(&second, "sim:gfx942:2"));
    assert_ptr_not_equal(second, gpu);
    assert_int_equal(qn_device_id(gpu).device_type, kDLROCM);
    assert_true(qn_device_id(gpu).device_id >= 1000);
    assert_int_equal(qn_device_id(second).device_id, qn_device_id(gpu).device_id + 1);
    assert_ok(qn_device_get_info(gpu, &info));
    assert_string_equal(info.spec, "sim:gfx942");
    assert_string_equal(info.arch, "gfx942");
    assert_int_equal(info.lds_bytes, 65536);
    assert_int_equal(info.wave_size, 64);
    assert_int_equal(info.is_modelled, 1);
    assert_true(info.memory_bytes > 0 && info.num_compute_units > 0);
    assert_true(gpu->features & QNI_F(MFMA_FP8_FNUZ));
    qn_device_close(second);
    qn_device_close(again);
}

/** Work on two devices in turn runs on the right device. */
static void test_two_devices(void **) {
    qn_device *second = nullptr;
    qn_stream *second_stream = nullptr;
    void *here = nullptr, *there = nullptr;
    uint8_t got[64];
    assert_ok(qn_device_open(&second, "sim:gfx942:2"));
    assert_ok(qn_stream_create(&second_stream, second));
    assert_ok(qn_malloc(second, &there, sizeof got));
    assert_ok(qn_malloc(gpu, &here, sizeof got));
    assert_ok(second->backend->fill(second_stream, there, 2, sizeof got));
    assert_ok(gpu->backend->fill(stream, here, 1, sizeof got));
    assert_ok(second->backend->copy(second_stream, got, there, sizeof got, QNI_COPY_TO_HOST));
    assert_int_equal(got[0] + got[63], 4);
    assert_ok(gpu->backend->copy(stream, got, here, sizeof got, QNI_COPY_TO_HOST));
    assert_int_equal(got[0] + got[63], 2);
    // The default stream is the current device's: wrapped, it must be the wrapping device's.
    qn_stream *wrapped = nullptr;
    assert_ok(qn_stream_wrap(&wrapped, second, nullptr));
    assert_ok(second->backend->fill(wrapped, there, 3, sizeof got));
    assert_ok(qn_stream_sync(wrapped));
    assert_ok(second->backend->copy(wrapped, got, there, sizeof got, QNI_COPY_TO_HOST));
    assert_int_equal(got[0] + got[63], 6);
    qn_stream_destroy(wrapped);
    qn_free(gpu, here);
    qn_free(second, there);
    qn_stream_destroy(second_stream);
    qn_device_close(second);
}

static void open_seventeen(void *) {
    qn_device *last = nullptr, *other = nullptr;
    CHILD_CHECK(qn_device_open(&last, "sim:gfx942:16") == QN_OK);
    CHILD_CHECK(qn_device_open(&other, "sim:gfx1151") == QN_E_UNSUPPORTED);
    CHILD_CHECK(strstr(qn_last_error(), "simulated GPU 17 of this process; accepted: at most 16"));
    qn_device_close(last);
}

static void test_seventeen_devices(void **) {
    child_run(open_seventeen, nullptr, (const char *[]){"QUERN_SIM", nullptr});
}

static void test_list(void **) {
    qn_device_info infos[32] = {{.struct_size = sizeof *infos}};
    int32_t count = 32;
    int simulated = 0; // one of each architecture at least
    assert_ok(qn_device_list(infos, &count));
    for (int i = 0; i < count; i++)
        for (int t = 0; t < QNI_NUM_TARGETS; t++)
            simulated += strncmp(infos[i].spec, "sim:", 4) == 0 &&
                         strcmp(infos[i].spec + 4, qni_targets[t].name) == 0;
    assert_int_equal(simulated, QNI_NUM_TARGETS - 2);            // all but NVIDIA's
    assert_true(strncmp(infos[count - 1].spec, "sim:", 4) == 0); // the simulated ones are last
}

// ---- memory and copies

static void test_copies(void **) {
    enum { ROWS = 37, COLS = 53 };
    static int32_t from[ROWS][COLS], wide[ROWS][COLS + 3];
    int64_t shape[] = {ROWS, COLS}, wide_strides[] = {COLS + 3, 1}, loose[] = {COLS, 2};
    void *a = nullptr, *b = nullptr;
    for (int i = 0; i < ROWS * COLS; i++)
        (&from[0][0])[i] = i * 7;
    memset(wide, -1, sizeof wide);
    assert_ok(qn_malloc(gpu, &a, sizeof from));
    assert_ok(qn_malloc(gpu, &b, sizeof from));
    assert_int_equal((uintptr_t)a % 256, 0);
    DLTensor host = {.data = from,
                     .device = {kDLCPU, 0},
                     .ndim = 2,
                     .dtype = qni_dl_dtype(QNI_I32),
                     .shape = shape};
    DLTensor on_a = host, on_b = host, back = host;
    on_a.data = a, on_b.data = b, back.data = wide;
    on_a.device = on_b.device = qn_device_id(gpu);
    back.strides = wide_strides;
    assert_ok(qn_copy(stream, &on_a, &host));
    assert_ok(qn_copy(stream, &on_b, &on_a));
    assert_ok(qn_copy(stream, &back, &on_b)); // into rows with gaps between
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(wide[r], from[r], sizeof from[r]);
        for (int c = COLS; c < COLS + 3; c++)
            assert_int_equal(wide[r][c], -1);
    }
    assert_ok(gpu->backend->fill(stream, a, 0x11, sizeof from));
    assert_ok(qn_copy(stream, &on_a, &back)); // and out of them again
    memset(from, 0, sizeof from);
    assert_ok(qn_copy(stream, &host, &on_a));
    assert_int_equal(from[ROWS - 1][COLS - 1], 7 * (ROWS * COLS - 1));
    on_a.strides = loose;
    assert_int_equal(qn_copy(stream, &host, &on_a), QN_E_UNSUPPORTED);
    on_a.strides = nullptr;
    on_a.device.device_id++;
    assert_int_equal(qn_copy(stream, &host, &on_a), QN_E_INVALID);
    qn_free(gpu, a);
    qn_free(gpu, b);
    void *none = nullptr;
    assert_int_equal(qn_malloc(gpu, &none, INT64_C(1) << 60), QN_E_MEMORY);
    assert_error_has("hipErrorOutOfMemory");
}

static void test_streams_and_events(void **) {
    qn_stream *wrapped = nullptr, *cpu_stream = nullptr;
    qn_event *start = nullptr, *end = nullptr;
    qn_device *cpu = nullptr;
    int64_t ns = -7;
    assert_ok(qn_stream_wrap(&wrapped, gpu, nullptr)); // the default stream
    assert_ok(qn_stream_sync(wrapped));
    assert_ok(qn_event_create(&start, gpu));
    assert_ok(qn_event_create(&end, gpu));
    assert_ok(qn_event_record(start, stream));
    assert_ok(qn_event_record(end, stream));
    assert_ok(qn_event_sync(end));
    if (gpu->info.has_clock) {
        assert_ok(qn_event_elapsed(&ns, start, end));
        assert_true(ns >= 0);
    } else {
        assert_int_equal(qn_event_elapsed(&ns, start, end), QN_E_UNSUPPORTED);
        assert_error_has("sim:gfx942 has no clock");
        assert_int_equal(ns, -7);
    }
    assert_ok(qn_device_open(&cpu, "cpu"));
    assert_ok(qn_stream_create(&cpu_stream, cpu));
    assert_int_equal(qn_event_record(start, cpu_stream), QN_E_INVALID);
    qn_stream_destroy(cpu_stream);
    qn_device_close(cpu);
    qn_event_destroy(start);
    qn_event_destroy(end);
    qn_stream_destroy(wrapped);
}

// ---- launches, through the backend

/** Compiles a kernel for gfx942 with the build's own flags. */
static void *compile(const char *text, size_t *count) {
    char folder[64], source[96], object[96], output[2000];
    const qni_compiler *compiler = nullptr;
    char *argv[64];
    int n = 0, exit_code = 0;
    make_folder(folder, sizeof folder);
    snprintf(source, sizeof source, "%s/k.c", folder);
    snprintf(object, sizeof object, "%s/k.co", folder);
    FILE *f = fopen(source, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_ok(qni_compiler_find(&compiler));
    argv[n++] = (char *)compiler->path;
    for (const char *const *flag = qni_device_flags; *flag && n < 48; flag++)
        argv[n++] = (char *)*flag;
    for (const char *const *flag = qni_amd_flags; *flag && n < 48; flag++)
        argv[n++] = (char *)*flag;
    for (const char *const *word = (const char *const[]){"-mcpu=gfx942", "-mcode-object-version=5",
                                                         "-o", object, source, nullptr};
         *word; word++)
        argv[n++] = (char *)*word;
    argv[n] = nullptr;
    assert_ok(qni_spawn(argv, nullptr, 600, output, sizeof output, &exit_code));
    if (exit_code != 0)
        fail_msg("%s", output);
    char *data = malloc(1 << 20);
    f = fopen(object, "re");
    assert_non_null(f);
    *count = fread(data, 1, 1 << 20, f);
    fclose(f);
    remove_folder(folder);
    return data;
}

static const char *const kernel_source =
    "typedef unsigned u32;\n"
    "#define GLOBAL __attribute__((address_space(1)))\n"
    "#define KERNEL __attribute__((amdgpu_kernel, visibility(\"protected\"),"
    " amdgpu_flat_work_group_size(64, 64)))\n"
    "typedef struct args { GLOBAL u32 *out; u32 rows, factor; } args;\n"
    "KERNEL void number(const args a) {\n"
    "    u32 x = __builtin_amdgcn_workgroup_id_x(), y = __builtin_amdgcn_workgroup_id_y();\n"
    "    u32 i = __builtin_amdgcn_workitem_id_x();\n"
    "    a.out[(y * a.rows + x) * 64 + i] = (y * a.rows + x) * a.factor + i;\n"
    "}\n"
    "KERNEL void stray(const args a) { *(GLOBAL u32 *)((unsigned long)a.rows << 4) = a.factor; }\n";

typedef struct number_args {
    void *out;
    uint32_t rows, factor;
} number_args;

static void test_launch(void **) {
    enum { ROWS = 3, COLUMNS = 5, COUNT = ROWS * COLUMNS * 64 };
    size_t count = 0;
    void *object = compile(kernel_source, &count), *module = nullptr, *kernel = nullptr;
    void *out = nullptr;
    static uint32_t got[COUNT + 1];
    assert_ok(gpu->backend->image_load(gpu, &module, object, count));
    assert_ok(gpu->backend->kernel_get(gpu, &kernel, module, "number"));
    assert_ok(qn_malloc(gpu, &out, sizeof got));
    assert_ok(gpu->backend->fill(stream, out, 0xff, sizeof got));
    number_args args = {out, ROWS, 1000};
    const qni_kernel_usage usage = {};
    assert_ok(gpu->backend->launch(stream, kernel, &usage, (const uint32_t[]){ROWS, COLUMNS, 1}, 64,
                                   &args, sizeof args));
    memset(&args, 0, sizeof args); // the launch took a copy
    assert_ok(gpu->backend->copy(stream, got, out, sizeof got, QNI_COPY_TO_HOST));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(got[i], i / 64 * 1000 + i % 64);
    assert_int_equal(got[COUNT], UINT32_MAX); // and not one more
    assert_int_equal(gpu->backend->kernel_get(gpu, &kernel, module, "nobody"), QN_E_DEVICE);
    assert_error_has("hipModuleGetFunction of nobody on sim:gfx942: hipErrorNotFound");
    gpu->backend->image_unload(gpu, module);
    static const char no_image[4096] =
        "not an image"; // HIP is told no size, so it may read some way in
    assert_int_equal(gpu->backend->image_load(gpu, &module, no_image, sizeof no_image),
                     QN_E_DEVICE);
    qn_free(gpu, out);
    free(object);
}

static void run_stray(void *) {
    size_t count = 0;
    void *object = compile(kernel_source, &count), *module = nullptr, *kernel = nullptr;
    open_gpu(nullptr);
    assert_ok(gpu->backend->image_load(gpu, &module, object, count));
    assert_ok(gpu->backend->kernel_get(gpu, &kernel, module, "stray"));
    number_args args = {nullptr, 1, 2};
    const qni_kernel_usage usage = {};
    gpu->backend->launch(stream, kernel, &usage, (const uint32_t[]){1, 1, 1}, 64, &args,
                         sizeof args);
    CHILD_CHECK(qn_stream_sync(stream) == QN_E_DEVICE);
    CHILD_CHECK(strstr(qn_last_error(), "on sim:gfx942: hipError"));
}

static void test_stray_pointer(void **) {
    child_run(run_stray, nullptr, nullptr);
}

// ---- images, through the runtime

static const qni_kernel_ref pack = {.image = "gemm_pack", .entry = "qk_gemm_pack"};
static const qni_kernel_ref pack_again = {.image = "gemm_pack", .entry = "qk_gemm_pack"};
static const qni_kernel_ref pack_special = {
    .image = "gemm_pack", .entry = "qk_gemm_pack", .defines = "-DQK_UNUSED=1"};
static const qni_kernel_ref no_entry = {.image = "gemm_pack", .entry = "qk_nobody"};
static const qni_kernel_ref unknown_image = {.image = "nothing", .entry = "qk_nobody"};
static const qni_kernel_ref strict = {
    .image = "gemm_pack", .entry = "qk_gemm_pack", .max_scratch_bytes = -1};

/** Defines for so few SGPRs that clang spills some; another define keeps the two images of one
 *  kernel apart. */
#define FEW_SGPRS "-Dqk_gemm_pack=__attribute__((amdgpu_num_sgpr(16)))qk_gemm_pack"
static const qni_kernel_ref spilling = {
    .image = "gemm_pack", .entry = "qk_gemm_pack", .defines = FEW_SGPRS};
static const qni_kernel_ref may_spill = {.image = "gemm_pack",
                                         .entry = "qk_gemm_pack",
                                         .defines = FEW_SGPRS " -DQK_APART=1",
                                         .max_sgpr_spills = 100};

static void test_images(void **) {
    qni_kernel_usage usage = {0}, special = {0};
    assert_ok(qni_kernel_get_usage(gpu, &pack, &usage));
    assert_int_equal(usage.max_threads, 256);
    assert_true(usage.vgprs > 0 && usage.kernarg_bytes > 0);
    assert_ok(qni_kernel_get_usage(gpu, &pack_special, &special)); // from the JIT
    assert_memory_equal(&usage, &special, sizeof usage);
    assert_int_equal(qni_kernel_get_usage(gpu, &no_entry, &usage), QN_E_NOT_FOUND);
    assert_error_has("no kernel qk_nobody");
    assert_int_equal(qni_kernel_get_usage(gpu, &unknown_image, &usage), QN_E_NOT_FOUND);
    assert_error_has("no recipe is called nothing");
    assert_int_equal(qni_kernel_get_usage(gpu, &strict, &usage), QN_E_UNSUPPORTED);
    assert_error_has("qk_gemm_pack: uses 0 bytes of scratch a lane; its contract allows -1");
    qn_device *cpu = nullptr;
    assert_ok(qn_device_open(&cpu, "cpu"));
    assert_int_equal(qni_kernel_get_usage(cpu, &pack, &usage), QN_E_UNSUPPORTED);
    qn_device_close(cpu);
}

// ---- filling the cache: an op with a kernel for each case

typedef struct filled {
    int count;
    const char *kernels[4];
    bool is_ready[4];
} filled;

static void note_filled(void *context, const qn_cache_fill_result *r) {
    filled *f = context;
    assert_true(f->count < 4 && r->ns >= 0);
    assert_string_equal(r->op, "made_up");
    if (r->error)
        assert_non_null(strstr(r->error, "no recipe is called nothing"));
    f->kernels[f->count] = r->kernel;
    f->is_ready[f->count++] = !r->error;
}

static void test_fill(void **) {
    static const qni_variant kernels[] = {
        {.name = "made_up.cpu", .is_cpu = true},
        {.name = "made_up.of_others",
         .needs = {.all = QNI_F(WGMMA), .any = 0},
         .config.kernel = {unknown_image}},
        {.name = "made_up.lost", .config.kernel = {pack, unknown_image}},
        {.name = "made_up.good", .config.kernel = {pack, {}, {}, pack_special}}};
    static const qni_op op = {.name = "made_up", .variants = kernels, .num_variants = 4};
    static const qni_op *const ops[] = {&op, nullptr};
    const qni_op *const *usual = qni_choice_ops();
    filled f = {};
    qni_choice_set_ops(ops);
    const qn_status st = qn_cache_fill(gpu, "made_up", note_filled, &f);
    const qn_status unknown = qn_cache_fill(gpu, "nonesuch", note_filled, &f);
    qni_choice_set_ops(usual);
    assert_int_equal(st, QN_E_NOT_FOUND); // of the lost kernel
    assert_int_equal(unknown, QN_E_NOT_FOUND);
    assert_error_has("cache: no op is named 'nonesuch'");
    assert_int_equal(f.count, 2);
    assert_string_equal(f.kernels[0], "made_up.lost");
    assert_string_equal(f.kernels[1], "made_up.good");
    assert_true(!f.is_ready[0] && f.is_ready[1]);
    assert_int_equal(qn_cache_fill(nullptr, nullptr, note_filled, &f), QN_E_INVALID);
}

static void test_spilled_sgprs(void **) {
    qni_kernel_usage usage = {0};
    assert_int_equal(qni_kernel_get_usage(gpu, &spilling, &usage), QN_E_UNSUPPORTED);
    assert_error_has("qk_gemm_pack: spills ");
    assert_error_has(" SGPRs on gfx942; its contract allows 0");
    assert_ok(qni_kernel_get_usage(gpu, &may_spill, &usage));
    assert_in_range(usage.sgpr_spills, 1, 100);
}

static void test_launch_refusals(void **) {
    const uint32_t one[3] = {1, 1, 1}, none[3] = {4, 0, 1};
    char args[512] = {0};
    assert_ok(qni_launch(stream, &pack, none, 256, args, 8)); // nothing to do
    assert_int_equal(qni_launch(stream, &pack, one, 512, args, 8), QN_E_UNSUPPORTED);
    assert_error_has("launched with 512 threads; it was built for at most 256");
    assert_int_equal(qni_launch(stream, &pack, one, 256, args, sizeof args), QN_E_UNSUPPORTED);
    assert_error_has("launched with 512 bytes of arguments");
}

static void *load_both(void *) {
    for (int i = 0; i < 100; i++) {
        qni_kernel_usage usage;
        CHILD_CHECK(qni_kernel_get_usage(gpu, i % 2 ? &pack : &pack_again, &usage) == QN_OK);
        CHILD_CHECK(usage.max_threads == 256);
    }
    return nullptr;
}

static void load_from_threads(void *) {
    pthread_t threads[8];
    open_gpu(nullptr);
    for (int i = 0; i < 8; i++)
        CHILD_CHECK(pthread_create(&threads[i], nullptr, load_both, nullptr) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], nullptr);
    close_gpu(nullptr);
}

static void test_first_load_race(void **) {
    child_run(load_from_threads, nullptr, nullptr);
}

// ---- an op, as a user calls it

/** Quantises a row of ones on the GPU: the scale must be 1/448, and every code 448's. */
static void quantize_ones(void *) {
    enum { COLS = 256 };
    float ones[COLS], scales[2];
    uint8_t codes[COLS];
    int64_t shape[] = {1, COLS}, scale_shape[] = {1, 2};
    open_gpu(nullptr);
    for (int i = 0; i < COLS; i++)
        ones[i] = 1;
    DLTensor x = {.data = ones,
                  .device = {kDLCPU, 0},
                  .ndim = 2,
                  .dtype = qni_dl_dtype(QNI_F32),
                  .shape = shape};
    DLTensor q = x, scale = x, gx = x, gq, gscale;
    q.data = codes, q.dtype = qni_dl_dtype(QNI_E4M3FN);
    scale.data = scales, scale.shape = scale_shape;
    gq = q, gscale = scale;
    gx.device = gq.device = gscale.device = qn_device_id(gpu);
    CHILD_CHECK(qn_malloc(gpu, &gx.data, sizeof ones) == QN_OK);
    CHILD_CHECK(qn_malloc(gpu, &gq.data, sizeof codes) == QN_OK);
    CHILD_CHECK(qn_malloc(gpu, &gscale.data, sizeof scales) == QN_OK);
    CHILD_CHECK(qn_copy(stream, &gx, &x) == QN_OK);
    CHILD_CHECK(qn_quantize_fp8(stream, &gq, &gscale, &gx, 1, 128, 1e-4f) == QN_OK);
    CHILD_CHECK(strncmp(qn_last_kernel(), "quantize.gpu", 12) == 0);
    CHILD_CHECK(qn_copy(stream, &q, &gq) == QN_OK && qn_copy(stream, &scale, &gscale) == QN_OK);
    for (int i = 0; i < COLS; i++)
        CHILD_CHECK(codes[i] == 0x7e && scales[i / 128] == 1.0f / 448);
    CHILD_CHECK(qn_quantize_fp8(stream, &gq, &gscale, &x, 1, 128, 1e-4f) == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), "x is on DLPack device (1, 0), the stream's device"));
    qn_free(gpu, gx.data);
    qn_free(gpu, gq.data);
    qn_free(gpu, gscale.data);
    close_gpu(nullptr);
}

static void test_op(void **) {
    needs_images("gfx942");
    const char *text = child_run(quantize_ones, nullptr, (const char *[]){"QUERN_LOG", nullptr});
    assert_string_equal(text, "");
    text =
        child_run(quantize_ones, nullptr,
                  (const char *[]){"QUERN_LOG=launch,kernel", "AMD_SERIALIZE_KERNEL=3", nullptr});
    assert_int_equal(count_text(text, "quern: launch: qk_quantize"), 1);
    assert_int_equal(count_text(text, " of quantize on sim:gfx942: "), 1);
    assert_int_equal(count_text(text, "quern: kernel: quantize on sim:gfx942: quantize.gpu"), 1);
    text = child_run(quantize_ones, nullptr,
                     (const char *[]){"QUERN_DISABLE=cpu", "QUERN_NO_JIT=1", nullptr});
    assert_string_equal(text, ""); // built-in images need no compiler
}

// ---- drivers

static void open_both(void *) {
    qn_device *real = nullptr;
    open_gpu(nullptr);
    CHILD_CHECK(qn_device_open(&real, "hip:0") == QN_OK);
    CHILD_CHECK(real != gpu && qn_device_id(real).device_id == 0);
    CHILD_CHECK(strcmp(real->info.spec, "hip:0") == 0);
    CHILD_CHECK(real->info.is_modelled && !real->info.has_clock); // it is the simulator after all
    void *here = nullptr, *there = nullptr;
    CHILD_CHECK(qn_malloc(real, &there, 64) == QN_OK && qn_malloc(gpu, &here, 64) == QN_OK);
    qn_free(real, there);
    qn_free(gpu, here);
    qn_device *other = nullptr;
    CHILD_CHECK(qn_device_open(&other, "hip:63") == QN_E_NOT_FOUND);
    CHILD_CHECK(strstr(qn_last_error(), "no device 63; the driver"));
    qn_device_close(real);
    CHILD_CHECK(qn_device_open(&real, nullptr) == QN_OK); // auto takes the real GPU
    CHILD_CHECK(strcmp(real->info.spec, "hip:0") == 0);
    qn_device_close(real);
    close_gpu(nullptr);
}

/** The count equals the list, although listing makes devices of the library that is hip's as
 *  well. */
static void list_twice(void *) {
    qn_device_info infos[64] = {};
    int32_t count = 0, again = 64;
    CHILD_CHECK(qn_device_list(nullptr, &count) == QN_OK && count <= again);
    infos[0].struct_size = sizeof *infos;
    CHILD_CHECK(qn_device_list(infos, &again) == QN_OK && count == again);
    CHILD_CHECK(strcmp(infos[0].spec, "hip:0") == 0);
    for (int32_t i = 0; i < count; i++)
        CHILD_CHECK(*infos[i].spec && *infos[i].arch);
}

static void refuse_driver(void *word) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "hip:0") == QN_E_DEVICE && !device);
    CHILD_CHECK(strstr(qn_last_error(), word));
}

static void refuse_sim(void *word) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, "sim:gfx942") == QN_E_NOT_FOUND && !device);
    CHILD_CHECK(strstr(qn_last_error(), word));
}

/** A second copy of the library stands for the system's driver: two drivers in one process. */
static void test_two_drivers(void **) {
    char folder[64], variable[128], command[700];
    make_folder(folder, sizeof folder);
    snprintf(variable, sizeof variable, "QUERN_HIP_LIBRARY=%s/libamdhip64.so.6", folder);
    snprintf(command, sizeof command, "%s/libamdhip64.so.6", folder);
    FILE *from = fopen(sim_library(), "re"), *to = fopen(command, "we");
    assert_true(from && to);
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, from)) > 0;)
        assert_int_equal(fwrite(block, 1, n, to), n);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    child_run(open_both, nullptr, (const char *[]){variable, "QUERN_DEVICE", nullptr});
    remove_folder(folder);
    snprintf(variable, sizeof variable, "QUERN_HIP_LIBRARY=%s", sim_library());
    child_run(list_twice, nullptr, (const char *[]){variable, nullptr});
    child_run(refuse_driver, "has no hip",
              (const char *[]){"QUERN_HIP_LIBRARY=libm.so.6", nullptr});
    child_run(refuse_sim, "QUERN_SIM_LIBRARY: ",
              (const char *[]){"QUERN_SIM_LIBRARY=/nonexistent.so", nullptr});
}

int main(void) {
    const struct CMUnitTest alone[] = {
        // Children first: they must not inherit a read environment or a running driver.
        cmocka_unit_test(test_two_drivers),       cmocka_unit_test(test_first_load_race),
        cmocka_unit_test(test_seventeen_devices), cmocka_unit_test(test_op),
        cmocka_unit_test(test_stray_pointer),
    };
    const struct CMUnitTest together[] = {
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_streams_and_events),
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_spilled_sgprs),
        cmocka_unit_test(test_launch_refusals),
    };
    if (!sim_library()) {
        print_message("this build has no simulated GPU\n");
        return 77;
    }
    const int failed = cmocka_run_group_tests(alone, nullptr, nullptr);
    return failed + cmocka_run_group_tests(together, open_gpu, close_gpu);
}
