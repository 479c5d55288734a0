// SPDX-License-Identifier: Apache-2.0
// Devices, memory, streams, events, copies, threads, errors: through the public API, on the CPU.
#include "../runtime.h"
#include "../testing.h"

#include <pthread.h>
#include <sched.h>

static qn_device *open_cpu(void) {
    qn_device *device = nullptr;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    return device;
}

static void assert_error_has(const char *word) {
    if (!strstr(qn_last_error(), word))
        fail_msg("the message lacks \"%s\": %s", word, qn_last_error());
}

// ---- specs

static void test_bad_specs(void **) {
    static const char *const bad[] = {"",
                                      "gpu",
                                      "cpu:0",
                                      "cpu:",
                                      "hip:x",
                                      "hip:-1",
                                      "hip:01",
                                      "hip:99999",
                                      "hip:1:2",
                                      "sim",
                                      "sim:",
                                      "sim:gfx94",
                                      "sim:gfx9422",
                                      "sim:gfx942:0",
                                      "sim:gfx942:17",
                                      "sim:gfx942:x",
                                      "sim:gfx942:1:1",
                                      "cuda0",
                                      "cuda:x",
                                      "sim:sm_90a",
                                      "CPU",
                                      " cpu",
                                      "cpu ",
                                      "hip:+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qn_device *device = (qn_device *)8;
        if (qn_device_open(&device, bad[i]) != QN_E_INVALID)
            fail_msg("\"%s\" was not refused as malformed", bad[i]);
        assert_ptr_equal(device, (qn_device *)8);
        assert_error_has("accepted: cpu, hip:N, cuda:N, sim:ARCH");
    }
    assert_int_equal(qn_device_open(nullptr, "cpu"), QN_E_INVALID);
}

static void test_one_handle(void **) {
    qn_device *a = open_cpu(), *b = open_cpu();
    assert_ptr_equal(a, b);
    qn_device_close(b);
    void *still = nullptr;
    assert_int_equal(qn_malloc(a, &still, 16), QN_OK);
    qn_free(a, still);
    qn_device_close(a);
    qn_device_close(nullptr);
}

static void test_info(void **) {
    qn_device *device = open_cpu();
    struct {
        qn_device_info info;
        char guard[64];
    } room;
    memset(&room, 0x5a, sizeof room);
    room.info.struct_size = sizeof room.info;
    assert_int_equal(qn_device_get_info(device, &room.info), QN_OK);
    assert_string_equal(room.info.spec, "cpu");
    assert_true(room.info.memory_bytes > 1 << 20);
    assert_int_equal(room.info.num_compute_units, qni_num_threads());
    assert_int_equal(room.info.has_clock, 1);
    for (size_t i = 0; i < sizeof room.guard; i++)
        assert_int_equal(room.guard[i], 0x5a);
    // A caller of an older version has room for less, and gets no more.
    memset(&room, 0x5a, sizeof room);
    room.info.struct_size = offsetof(qn_device_info, arch);
    assert_int_equal(qn_device_get_info(device, &room.info), QN_OK);
    assert_int_equal(room.info.arch[0], 0x5a);
    assert_int_equal(room.info.struct_size, offsetof(qn_device_info, arch));
    room.info.struct_size = 0;
    assert_int_equal(qn_device_get_info(device, &room.info), QN_E_INVALID);
    assert_int_equal(qn_device_get_info(nullptr, &room.info), QN_E_INVALID);
    DLDevice id = qn_device_id(device);
    assert_int_equal(id.device_type, kDLCPU);
    assert_int_equal(id.device_id, 0);
    assert_int_equal(qn_device_id(nullptr).device_type, 0);
    qn_device_close(device);
}

static void test_list(void **) {
    qn_device_info infos[32];
    int32_t all = 0, count = 1;
    assert_int_equal(qn_device_list(nullptr, &all), QN_OK);
    assert_true(all >= 1 && all <= 32);
    infos[0].struct_size = sizeof *infos;
    infos[1].spec[0] = 'x';
    assert_int_equal(qn_device_list(infos, &count),
                     QN_OK); // room for one: the rest is only counted
    assert_int_equal(count, all);
    assert_int_equal(infos[1].spec[0], 'x');
    count = 32;
    assert_int_equal(qn_device_list(infos, &count), QN_OK);
    bool has_cpu = false, has_sim = false;
    for (int i = 0; i < count; i++) {
        has_cpu |= strcmp(infos[i].spec, "cpu") == 0;
        has_sim |= strncmp(infos[i].spec, "sim:", 4) == 0;
        assert_false(has_sim && !has_cpu); // simulated ones come last
        qn_device *device = nullptr;
        assert_int_equal(qn_device_open(&device, infos[i].spec), QN_OK);
        qn_device_close(device);
    }
    assert_true(has_cpu);
    assert_int_equal(qn_device_list(nullptr, nullptr), QN_E_INVALID);
}

// ---- the environment

static void open_spec(void *spec) {
    qn_device *device = nullptr;
    CHILD_CHECK(qn_device_open(&device, spec) == QN_OK);
    fprintf(stderr, "opened %s\n", device->info.spec);
    qn_device_close(device);
}

static void refuse_environment(void *word) {
    qn_device *device = nullptr;
    int32_t count = 0;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), word));
    CHILD_CHECK(qn_device_list(nullptr, &count) == QN_E_INVALID);
}

static void list_disabled(void *) { // QUERN_DISABLE=hip,cuda,sim
    qn_device_info info = {.struct_size = sizeof info};
    int32_t count = 1;
    CHILD_CHECK(qn_device_list(&info, &count) == QN_OK && count == 1);
    CHILD_CHECK(strcmp(info.spec, "cpu") == 0);
}

static void list_none(void *) { // QUERN_DISABLE=hip,cuda,sim,cpu
    int32_t count = 1;
    CHILD_CHECK(qn_device_list(nullptr, &count) == QN_OK && count == 0);
}

static void test_environment(void **) {
    static const char *const no_gpu = "QUERN_HIP_LIBRARY=/nonexistent/libamdhip64.so";
    const char *text = child_run(open_spec, nullptr, (const char *[]){no_gpu, nullptr});
    assert_non_null(strstr(text, "opened cpu"));
    assert_int_equal(count_text(text, "quern:"), 0); // no log unless asked for
    text = child_run(open_spec, "auto",
                     (const char *[]){no_gpu, "QUERN_LOG=kernel", "QUERN_DEVICE", nullptr});
    assert_non_null(strstr(text, "not hip:0: hip: QUERN_HIP_LIBRARY"));
    text = child_run(open_spec, nullptr, (const char *[]){"QUERN_DEVICE=cpu", nullptr});
    assert_non_null(strstr(text, "opened cpu"));
    text = child_run(open_spec, nullptr,
                     (const char *[]){"QUERN_DISABLE=hip", "QUERN_LOG=kernel", nullptr});
    assert_non_null(strstr(text, "opened cpu"));
    child_run(list_disabled, nullptr, (const char *[]){"QUERN_DISABLE=hip,cuda,sim", nullptr});
    child_run(list_none, nullptr, (const char *[]){"QUERN_DISABLE=hip,cuda,sim,cpu", nullptr});
    child_run(refuse_environment, "QUERN_LOG has \"jitt\"",
              (const char *[]){"QUERN_LOG=kernel,jitt", nullptr});
    child_run(refuse_environment, "QUERN_NUM_THREADS is \"0\"",
              (const char *[]){"QUERN_NUM_THREADS=0", nullptr});
    child_run(refuse_environment, "QUERN_NO_JIT is \"yes\"",
              (const char *[]){"QUERN_NO_JIT=yes", nullptr});
}

// ---- memory, copies

static void test_memory(void **) {
    qn_device *device = open_cpu();
    void *ptr = (void *)8;
    assert_int_equal(qn_malloc(device, &ptr, 0), QN_OK);
    assert_null(ptr);
    assert_int_equal(qn_malloc(device, &ptr, 1), QN_OK);
    assert_int_equal((uintptr_t)ptr % 256, 0);
    qn_free(device, ptr);
    qn_free(device, nullptr);
    ptr = (void *)8;
    assert_int_equal(qn_malloc(device, &ptr, -1), QN_E_INVALID);
    assert_int_equal(qn_malloc(device, &ptr, INT64_MAX), QN_E_MEMORY);
    assert_ptr_equal(ptr, (void *)8);
    assert_int_equal(qn_malloc(nullptr, &ptr, 1), QN_E_INVALID);
    qn_device_close(device);
}

static DLTensor tensor_of(void *data, qni_dtype dtype, int ndim, int64_t *shape, int64_t *strides) {
    return (DLTensor){.data = data,
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = shape,
                      .strides = strides};
}

static void test_copy(void **) {
    qn_device *device = open_cpu();
    qn_stream *stream = nullptr;
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    int32_t from[3][5], to[5][4];
    int64_t shape[] = {2, 3}, row_major[] = {5, 1}, transposed[] = {1, 4};
    for (int i = 0; i < 15; i++)
        (&from[0][0])[i] = i;
    memset(to, -1, sizeof to);
    DLTensor src = tensor_of(from, QNI_I32, 2, shape, row_major);
    DLTensor dst = tensor_of(to, QNI_I32, 2, shape, transposed);
    src.byte_offset = sizeof(int32_t);
    assert_int_equal(qn_copy(stream, &dst, &src), QN_OK);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
            assert_int_equal(to[i][j], i < 3 && j < 2 ? from[j][i + 1] : -1);
    // A dimension of one index may have any stride. Its product with a size must not be formed:
    // overflow is undefined, which sanitizers report.
    int64_t one_of[] = {2, 1}, odd[] = {1, INT64_MIN};
    src = tensor_of(from, QNI_I32, 2, one_of, odd);
    dst = tensor_of(to, QNI_I32, 2, one_of, odd);
    assert_int_equal(qn_copy(stream, &dst, &src), QN_OK);
    assert_true(to[0][0] == 0 && to[0][1] == 1 && to[0][2] == -1);
    // Contiguous onto itself, empty, of no dimensions.
    int64_t whole[] = {3, 5}, none[] = {0, 5};
    DLTensor all = tensor_of(from, QNI_I32, 2, whole, nullptr);
    assert_int_equal(qn_copy(stream, &all, &all), QN_OK);
    DLTensor empty = tensor_of(nullptr, QNI_I32, 2, none, nullptr);
    assert_int_equal(qn_copy(stream, &empty, &empty), QN_OK);
    int32_t one = 7, other = 0;
    DLTensor scalar = tensor_of(&one, QNI_I32, 0, nullptr, nullptr), scalar_to = scalar;
    scalar_to.data = &other;
    assert_int_equal(qn_copy(stream, &scalar_to, &scalar), QN_OK);
    assert_int_equal(other, 7);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

/** Copies large enough to be shared among threads, from and to any address, leave all bytes around
 *  them. */
static void test_large_copy(void **) {
    enum { BYTES = (5 << 20) + 77, MARGIN = 64 };
    qn_device *device = open_cpu();
    qn_stream *stream = nullptr;
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    uint8_t *from = malloc(BYTES + 2 * MARGIN), *to = malloc(BYTES + 2 * MARGIN);
    assert_true(from && to);
    for (size_t i = 0; i < BYTES + 2 * MARGIN; i++)
        from[i] = (uint8_t)(i * 0x9E3779B1 >> 16);
    for (size_t offset = 0; offset < MARGIN; offset += 21) {
        int64_t shape[] = {BYTES};
        DLTensor src = tensor_of(from + offset, QNI_U8, 1, shape, nullptr);
        DLTensor dst = tensor_of(to + MARGIN - offset, QNI_U8, 1, shape, nullptr);
        memset(to, 0xA5, BYTES + 2 * MARGIN);
        assert_int_equal(qn_copy(stream, &dst, &src), QN_OK);
        assert_memory_equal(dst.data, src.data, BYTES);
        assert_int_equal(to[MARGIN - offset - 1], 0xA5);
        assert_int_equal(to[MARGIN - offset + BYTES], 0xA5);
    }
    // A copy onto itself, further on, works as memmove does.
    int64_t shape[] = {BYTES - 100};
    memcpy(to, from, BYTES);
    DLTensor src = tensor_of(to, QNI_U8, 1, shape, nullptr);
    DLTensor dst = tensor_of(to + 100, QNI_U8, 1, shape, nullptr);
    assert_int_equal(qn_copy(stream, &dst, &src), QN_OK);
    assert_memory_equal(to + 100, from, BYTES - 100);
    free(from);
    free(to);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

static void test_copy_refusals(void **) {
    qn_device *device = open_cpu();
    qn_stream *stream = nullptr;
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    int32_t data[6];
    int64_t shape[] = {2, 3}, other[] = {3, 2}, negative[] = {-1, 3}, huge[] = {INT64_MAX, 3};
    DLTensor good = tensor_of(data, QNI_I32, 2, shape, nullptr), bad = good;
    bad.shape = other;
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    assert_error_has("dst is [2, 3] i32, src is [3, 2] i32");
    bad = good;
    bad.dtype = qni_dl_dtype(QNI_F32);
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    bad = good;
    bad.shape = negative;
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    bad.shape = huge;
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    assert_error_has("more bytes than 62 bits can count");
    bad.dtype = qni_dl_dtype(QNI_U8); // the bytes of tensors without elements are counted too, with
                                      // room to add two sizes
    bad.shape = (int64_t[]){0, 1ll << 62};
    assert_int_equal(qn_copy(stream, &bad, &bad), QN_E_INVALID);
    assert_error_has("more bytes than 62 bits can count");
    bad.shape = huge;
    bad.dtype = (DLDataType){kDLFloat, 0, 0}; // elements without bits are counted, too
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    assert_error_has("more bytes than 62 bits can count");
    for (int i = 0; i < 2; i++) { // sizes are looked at only if so many dimensions are allowed
        bad = good;
        bad.ndim = i ? 1000000 : -1;
        assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
        assert_error_has(i ? "src has 1000000 dimensions; accepted: 0 to 64" : "src has -1");
        assert_int_equal(qn_copy(stream, &bad, &good), QN_E_INVALID);
    }
    bad = good;
    bad.data = nullptr;
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    bad = good;
    bad.device = (DLDevice){kDLROCM, 3};
    assert_int_equal(qn_copy(stream, &good, &bad), QN_E_INVALID);
    assert_error_has("src is on DLPack device (10, 3)");
    assert_int_equal(qn_copy(stream, nullptr, &good), QN_E_INVALID);
    assert_int_equal(qn_copy(nullptr, &good, &good), QN_E_INVALID);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

// ---- tensors

static void test_tensor_texts(void **) {
    char text[64];
    int64_t shape[] = {3, 128}, strides[] = {128, 1}, loose[] = {256, 2};
    DLTensor t = tensor_of(nullptr, QNI_E4M3FN, 2, shape, strides);
    assert_string_equal(qni_tensor_text(&t, text, sizeof text), "[3, 128] e4m3fn strides [128, 1]");
    assert_string_equal(qni_tensor_text(&t, text, 8), "[3, 128"); // cut, not overrun
    assert_true(qni_is_contiguous(&t));
    t.strides = loose;
    assert_false(qni_is_contiguous(&t));
    shape[0] = 1, loose[1] = 1; // the stride of a dimension of one does not matter
    assert_true(qni_is_contiguous(&t));
    t.strides = nullptr;
    assert_int_equal(qni_stride(&t, 0), 128);
    assert_int_equal(qni_stride(&t, 1), 1);
    t.dtype = (DLDataType){kDLFloat4_e2m1fn, 4, 2};
    assert_int_equal(qni_dtype_of(&t), QNI_DTYPE_NONE);
    assert_string_equal(qni_dtype_name(QNI_DTYPE_NONE), "?");
    for (int d = 0; d < QNI_NUM_DTYPES; d++) {
        t.dtype = qni_dl_dtype((qni_dtype)d);
        assert_int_equal(qni_dtype_of(&t), d);
        assert_int_equal(qni_dtype_bytes((qni_dtype)d) * 8, t.dtype.bits);
    }
    int64_t want[] = {-1, 64};
    assert_int_equal(qni_check_shape("op", "x", &t, 2, want), QN_E_INVALID);
    assert_string_equal(qn_last_error(), "op: x has shape [1, 128], needs [any, 64]");
    want[1] = 128;
    assert_int_equal(qni_check_shape("op", "x", &t, 2, want), QN_OK);
}

// ---- events

static void test_events(void **) {
    qn_device *device = open_cpu();
    qn_stream *stream = nullptr;
    qn_event *start = nullptr, *end = nullptr;
    int64_t ns = -7;
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    assert_ptr_equal(qn_stream_device(stream), device);
    assert_int_equal(qn_event_create(&start, device), QN_OK);
    assert_int_equal(qn_event_create(&end, device), QN_OK);
    assert_int_equal(qn_event_record(start, stream), QN_OK);
    assert_int_equal(qn_event_elapsed(&ns, start, end), QN_E_INVALID);
    assert_error_has("end event was never recorded");
    assert_int_equal(ns, -7);
    usleep(2000);
    assert_int_equal(qn_event_record(end, stream), QN_OK);
    assert_int_equal(qn_event_sync(end), QN_OK);
    assert_int_equal(qn_stream_sync(stream), QN_OK);
    assert_int_equal(qn_event_elapsed(&ns, start, end), QN_OK);
    assert_true(ns >= 2000000);
    assert_int_equal(qn_event_elapsed(nullptr, start, end), QN_E_INVALID);
    assert_int_equal(qn_event_record(nullptr, stream), QN_E_INVALID);
    qn_event_destroy(start);
    qn_event_destroy(end);
    qn_event_destroy(nullptr);
    qn_stream_destroy(stream);
    qn_stream_destroy(nullptr);
    assert_int_equal(qn_stream_wrap(&stream, device, &ns), QN_E_INVALID);
    assert_int_equal(qn_stream_wrap(&stream, device, nullptr), QN_OK);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

// ---- errors

static void *fail_elsewhere(void *) {
    assert_string_equal(qn_last_error(), "");
    qni_fail(QN_E_IO, "from the other thread");
    return nullptr;
}

static void test_errors(void **) {
    pthread_t thread;
    assert_int_equal(qni_fail(QN_E_INVALID, "first %d", 1), QN_E_INVALID);
    assert_int_equal(pthread_create(&thread, nullptr, fail_elsewhere, nullptr), 0);
    pthread_join(thread, nullptr);
    assert_string_equal(qn_last_error(), "first 1"); // a message is its thread's own
    qni_fail(QN_E_DEVICE, "above: %s", qn_last_error());
    assert_string_equal(qn_last_error(), "above: first 1");
    static char longer[10000];
    memset(longer, 'x', sizeof longer - 1);
    qni_fail(QN_E_DEVICE, "%s", longer);
    assert_int_equal(strlen(qn_last_error()), 4095);
    assert_string_equal(qn_status_name(QN_OK), "QN_OK");
    assert_string_equal(qn_status_name(QN_E_MISMATCH), "QN_E_MISMATCH");
    assert_string_equal(qn_status_name(17), "QN_E_?");
    assert_string_equal(qn_version(), QN_VERSION);
}

// ---- threads

enum { ITEMS = 1000 };
typedef struct tally {
    atomic_int times[ITEMS];
    atomic_int nested;
} tally;

static void count_nested(void *context, int64_t) {
    atomic_fetch_add(&((tally *)context)->nested, 1);
}

static void count_item(void *context, int64_t i) {
    atomic_fetch_add(&((tally *)context)->times[i], 1);
    if (i % 100 == 0)
        qni_parallel(3, count_nested, context);
}

static void tally_all(void *) {
    static tally t;
    memset(&t, 0, sizeof t);
    qni_parallel(ITEMS, count_item, &t);
    for (int i = 0; i < ITEMS; i++)
        CHILD_CHECK(atomic_load(&t.times[i]) == 1);
    CHILD_CHECK(atomic_load(&t.nested) == 30);
    qni_parallel(0, count_item, &t);
    CHILD_CHECK(atomic_load(&t.times[0]) == 1);
}

static void fork_and_tally(void *) {
    tally_all(nullptr); // the pool exists
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20); // a pool without its threads would wait forever
        tally_all(nullptr);
        _exit(0);
    }
    int status = 0;
    CHILD_CHECK(waitpid(pid, &status, 0) == pid);
    CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tally_all(nullptr); // and the parent's still works
}

static void add_one(void *context, int64_t i) {
    ((int64_t *)context)[i]++;
}

/** Runs as one of several threads that call the pool at one time. */
static void *call_often(void *) {
    int64_t counts[64] = {0};
    for (int round = 0; round < 200; round++)
        qni_parallel(64, add_one, counts);
    for (int i = 0; i < 64; i++)
        CHILD_CHECK(counts[i] == 200);
    return nullptr;
}

static void call_from_threads(void *) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHILD_CHECK(pthread_create(&threads[i], nullptr, call_often, nullptr) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], nullptr);
}

static void test_threads(void **) {
    child_run(tally_all, nullptr, (const char *[]){"QUERN_NUM_THREADS=1", nullptr});
    child_run(tally_all, nullptr, (const char *[]){"QUERN_NUM_THREADS=4", nullptr});
#if !__has_feature(thread_sanitizer) // the sanitizer refuses threads in the child of a threaded
                                     // process
    child_run(fork_and_tally, nullptr, (const char *[]){"QUERN_NUM_THREADS=4", nullptr});
#else
    (void)fork_and_tally;
#endif
    child_run(call_from_threads, nullptr, (const char *[]){"QUERN_NUM_THREADS=3", nullptr});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment), // first: children must not inherit a read environment
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_one_handle),    cmocka_unit_test(test_info),
        cmocka_unit_test(test_list),          cmocka_unit_test(test_memory),
        cmocka_unit_test(test_copy),          cmocka_unit_test(test_large_copy),
        cmocka_unit_test(test_copy_refusals), cmocka_unit_test(test_tensor_texts),
        cmocka_unit_test(test_events),        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
