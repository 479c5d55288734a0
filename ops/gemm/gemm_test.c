// SPDX-License-Identifier: Apache-2.0
// Tests of the gemm family on the CPU: every check problem and the public functions; bits that
// depend neither on threads nor on neighbouring rows. gemm_check.c has the problems that every
// device must pass, gemm_refusals_test.c the calls that are refused.
#include "../../runtime/image/image.h"
#include "gemm_launch.h"
#include "gemm_test_case.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FN QNI_E4M3FN
#define BF QNI_BF16

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

/** Makes a case of three batches of m rows that share b, joins them, and calls. */
static void join_and_compare(qni_gemm_spec spec, int64_t m, bool is_one) {
    qni_gemm_case c;
    spec.m = m, spec.n = 70, spec.k = 130, spec.groups = 3;
    spec.shares_b = spec.shares_bias = true;
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 2), QN_OK);
    qni_gemm_join_batches(&c.problem);
    if ((c.problem.grouping == QN_GEMM_DENSE && c.problem.m == 3 * m) != is_one)
        fail_msg("%s: %d", c.text, (int)c.problem.grouping);
    qni_gemm_case_destroy(&c);
    call_and_compare(&spec);
}

/** The definition knows batches alone, which calls make one product where they can. */
static void batches_that_share_b_are_one(void **) {
    const qni_gemm_spec of_bf16 = {.dtype_a = BF, .dtype_b = BF, .dtype_d = BF, .has_bias = true},
                        of_fp8 = {.dtype_a = FN, .dtype_b = FN, .dtype_d = FN};
    for (int64_t m = 1; m < 5; m += 3) {
        qni_gemm_spec spec = of_bf16;
        join_and_compare(spec, m, true);
        spec.c_is_d = true;
        join_and_compare(spec, m, true);
        spec.is_strided = true; // gaps between batches; rows of one each are as far apart
        join_and_compare(spec, m, m == 1);
        spec = of_bf16, spec.takes_turns = true; // rows are three rows apart, and batches one
        join_and_compare(spec, m, m == 1);
        spec = of_bf16, spec.a_transposed = true;
        join_and_compare(spec, m, m == 1);
        join_and_compare(of_fp8, m, true);
        spec = of_fp8, spec.has_scale_columns = true;
        join_and_compare(spec, m, m == 1);
        spec.exponents_a = QNI_WORDS; // one word has all K-blocks
        join_and_compare(spec, m, true);
        spec = of_fp8, spec.is_strided = true;
        join_and_compare(spec, m, m == 1);
        spec = of_fp8, spec.scales_a = QNI_SCALES_ONE;
        join_and_compare(spec, m, true);
        spec.scales_a = QNI_SCALES_GROUPS;
        join_and_compare(spec, m, m == 1);
    }
}

/** A call with nothing to do is no error, whatever the data pointers are. */
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

/** Gives d of a packed product as bits: m rows from row `first` on of one set of 70 rows. */
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

/** Returns a sum of the bits of a product that is large enough for many tiles. Runs in a child with
 *  an environment of its own. */
static uint64_t product_hash(void) {
    const qni_gemm_spec spec = {
        .m = 300, .n = 500, .k = 300, .dtype_a = FN, .dtype_b = FN, .dtype_d = BF};
    static uint16_t d[300 * 500];
    qni_gemm_case c;
    uint64_t hash = 1;
    open_cpu(nullptr);
    assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 4), QN_OK);
    product_bits(&c, 0, spec.m, d);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        hash = hash * 31 + d[i];
    qni_gemm_case_destroy(&c);
    close_device(nullptr);
    return hash;
}

/** Returns what `body` returns in a child whose environment has name=value. A process reads its
 *  environment only once, so a child is needed. */
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

/** Reserves address space; pages that are never touched take no memory. */
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

// ---- packing

/** Packed weights need no more alignment than 16 bytes. */
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
    void *got = malloc((size_t)c->d.area.bytes);
    const bool is_equal =
        got &&
        stream->device->backend->copy(stream, got, c->d.area.device, c->d.area.bytes,
                                      QNI_COPY_TO_HOST) == QN_OK &&
        qn_stream_sync(stream) == QN_OK &&
        memcmp(got, c->d.area.before, (size_t)c->d.area.bytes) == 0;
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
    const qni_gemm_spec spec = small_spec(grouping);
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
    bool all = refuses_entry(QN_GEMM_GROUPED_INDEX, 2, "group_layout[1] is 2; accepted: -1 to 1");
    all &= refuses_entry(QN_GEMM_GROUPED_INDEX, 1,
                         "group_layout[1] is 1, group_layout[0] 0; a group needs to start at");
    all &= refuses_entry(QN_GEMM_GROUPED_INDEX, -2, "group_layout[1] is -2; accepted: -1 to 1");
    all &= refuses_entry(QN_GEMM_GROUPED_ENDS, 100000, "group_layout[1] is 100000; accepted: ");
    all &= refuses_entry(QN_GEMM_GROUPED_ENDS, 200,
                         "group_layout[1] is 200; accepted: 129, for no rows, or 256, where");
    all &= refuses_entry(QN_GEMM_GROUPED_MASKED, 4, "group_layout[1] is 4; accepted: 0 to 3");
    all &= refuses_entry(QN_GEMM_GROUPED_MASKED, -1, "group_layout[1] is -1; accepted: 0 to 3");
    return all;
}

/** Runs in a child with QUERN_VALIDATE=1. Returns 1 if all is well, 2 without the simulator. */
static uint64_t gpu_validation(void) {
    if (qn_device_open(&device, "sim:gfx942") != QN_OK)
        return 2;
    if (qn_stream_create(&stream, device) != QN_OK)
        return 0;
    const uint64_t result = refuses_bad_groups();
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

/** Kernels that meet a bad group id, as they do on GPUs without validation, must never leave the
 *  tensors. */
static void bad_groups_stay_inside(void **) {
    const qn_gemm_grouping all[] = {QN_GEMM_GROUPED_INDEX, QN_GEMM_GROUPED_ENDS,
                                    QN_GEMM_GROUPED_MASKED};
    for (int i = 0; i < 3; i++)
        for (int32_t entry = -1000000; entry <= 1000000; entry += 2000000) {
            const qni_gemm_spec spec = small_spec(all[i]);
            qni_gemm_case c;
            char detail[256];
            double error = NAN;
            assert_int_equal(qni_gemm_case_create(&c, stream, &spec, 11), QN_OK);
            ((int32_t *)qni_data(&c.layout.t))[1] = entry;
            assert_int_equal(qni_gemm_case_reset(&c), QN_OK);
            assert_int_equal(qni_run(&qni_op_gemm, stream, &c.problem), QN_OK);
            for (int64_t m = 0; m < c.d.shape[0] * c.d.shape[1]; m++) // any row may have been
                                                                      // written
                memset((uint16_t *)qni_data(&c.d.t) + m * spec.n, 0xFF, 2 * (size_t)spec.n);
            for (int64_t at = 0; at < c.d.area.count; at++)
                c.d.area.tolerance[at] = -1;
            assert_int_equal(qni_gemm_case_compare(&c, &error, detail, sizeof detail), QN_OK);
            assert_true(error == 0);
            qni_gemm_case_destroy(&c);
        }
}

// ---- grids

/** Returns the most tiles of `rows` rows that groups have who share up to `left` rows, and each of
 *  which begins at a multiple of `place`. */
static int64_t most_tiles(int64_t groups, int64_t left, int64_t rows, int64_t place) {
    int64_t most = 0;
    for (int64_t own = 0; groups > 0 && own <= left; own++) {
        const int64_t places = (own + place - 1) / place * place;
        const int64_t rest = most_tiles(groups - 1, left - places, rows, place);
        const int64_t tiles = (own + rows - 1) / rows + rest;
        most = tiles > most ? tiles : most;
    }
    return most;
}

/** A grid has a place for every tile that groups by ends can have. It has no more where groups
 *  begin anywhere, and never more than there. */
static void grids_have_as_many_tiles_as_groups_can(void **) {
    for (int64_t groups = 1; groups <= 4; groups++)
        for (int64_t m = 0; m <= 9; m++)
            for (int64_t i = 0; i < 4 * 10; i++) {
                const int64_t rows = 1 + i % 4, place = 1 + i / 4;
                const qni_gemm_problem p = {.m = m,
                                            .n = 1,
                                            .groups = groups,
                                            .grouping = QN_GEMM_GROUPED_ENDS,
                                            .m_alignment = place};
                const int64_t tiles = qni_gemm_count_tiles(&p, rows, 1);
                assert_true(tiles >= most_tiles(groups, m, rows, place));
                assert_true(tiles <= most_tiles(groups, m, rows, 1));
            }
}

// ---- targets

static bool is_built(const char *id, const qni_target *target) {
    for (const qni_image *image = qni_images; image->id; image++)
        if ((!id || strcmp(image->id, id) == 0) && strcmp(image->target, target->name) == 0)
            return true;
    return false;
}

/** Each target has a kernel for any problem, and the build has its image. */
static void every_target_has_gemm(void **) {
    for (int t = 0; t < QNI_NUM_TARGETS; t++) {
        const qn_device chip = {.target = &qni_targets[t], .features = qni_targets[t].features};
        bool is_found = !is_built(nullptr, chip.target);
        for (int v = 0; v < qni_op_gemm.num_variants; v++) {
            const qni_variant *variant = &qni_op_gemm.variants[v];
            is_found |= strcmp(variant->name, "gemm.any") == 0 &&
                        qni_device_meets(&chip, variant->needs) &&
                        is_built(variant->config.kernel[0].image, chip.target);
        }
        if (!is_found)
            fail_msg("%s has no kernel", chip.target->name);
    }
}

int main(void) {
    // The children run before anything here reads the environment, which is read once.
    hash_of_threads[0] = in_child("QUERN_NUM_THREADS", "1", product_hash);
    hash_of_threads[1] = in_child("QUERN_NUM_THREADS", "3", product_hash);
    hash_of_threads[2] = in_child("QUERN_NUM_THREADS", "16", product_hash);
    gpu_validation_result = in_child("QUERN_VALIDATE", "1", gpu_validation);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree_with_the_reference),
        cmocka_unit_test(public_calls_agree),
        cmocka_unit_test(batches_that_share_b_are_one),
        cmocka_unit_test(empty_problems_do_nothing),
        cmocka_unit_test(bits_do_not_depend_on_other_rows),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(strides_beyond_32_bits),
        cmocka_unit_test(strides_of_single_elements),
        cmocka_unit_test(packed_weights_may_lie_anywhere),
        cmocka_unit_test(validation_finds_bad_groups_on_gpus),
        cmocka_unit_test(the_cpu_finds_bad_groups),
        cmocka_unit_test(bad_groups_stay_inside),
        cmocka_unit_test(grids_have_as_many_tiles_as_groups_can),
        cmocka_unit_test(every_target_has_gemm),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_device);
}
