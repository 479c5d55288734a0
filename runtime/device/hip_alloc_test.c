// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in a simulated GPU: the n-th allocation of a process fails, for every n,
// alone or with all later ones, in whatever thread. A call must do without the memory, or give
// QN_E_MEMORY and a message about memory.
#include "../../tests/failing_malloc.h"
#include "../runtime.h"
#include "../testing.h"

#include <quern/norm.h>

#if IS_MALLOC_TAKEN

int main(void) {
    return 77; // the sanitizer has replaced malloc already
}

#else

enum { ROWS = 2, DIM = 64, TRIES = 20000 };

/** Does all that a program does from its first call on: opens a device, launches a kernel, reads
 *  the kernel's result. */
static qn_status use_sim(void) {
    static float host[ROWS * DIM];
    int64_t shape[] = {ROWS, DIM};
    DLTensor x = {
        .data = host, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    void *data = nullptr, *weights = nullptr;
    qn_status st;
    QN_TRY_OUT(qn_device_open(&device, "sim:gfx942"));
    QN_TRY_OUT(qn_stream_create(&stream, device));
    QN_TRY_OUT(qn_malloc(device, &data, sizeof host));
    QN_TRY_OUT(qn_malloc(device, &weights, sizeof host));
    DLTensor y = x, weight = x;
    y.data = data;
    y.device = qn_device_id(device);
    weight.data = weights;
    weight.device = y.device;
    weight.ndim = 1;
    weight.shape = shape + 1;
    QN_TRY_OUT(qn_copy(stream, &y, &x));
    QN_TRY_OUT(qn_rmsnorm(stream, &y, &y, &weight, 1e-6f));
    QN_TRY_OUT(qn_copy(stream, &x, &y));
    QN_TRY_OUT(qn_stream_sync(stream));
out:
    is_failing_anywhere = false;
    qn_free(device, data);
    qn_free(device, weights);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return st;
}

typedef struct attempt {
    int64_t n;
    bool for_good;
} attempt;

enum { DONE = 0, SURVIVED = 10, REFUSED = 11, ABORTED = 12, WRONG = 13 };

/** Fails the n-th allocation in this process, whose exit status tells the outcome. */
static void fail_one(void *context) {
    const attempt *a = context;
    atomic_store(&left_anywhere, a->n);
    for_good_anywhere = a->for_good;
    is_failing_anywhere = true;
    const qn_status st = use_sim();
    is_failing_anywhere = false;
    const bool has_failed = atomic_load(&left_anywhere) < 0;
    if (st != QN_OK && (st != QN_E_MEMORY || !strstr(qn_last_error(), "memory"))) {
        fprintf(stderr, "%s: %s", qn_status_name(st), qn_last_error());
        _exit(WRONG);
    }
    _exit(!has_failed ? DONE : st == QN_OK ? SURVIVED : REFUSED);
}

static void fail_each(bool always) {
    needs_images("gfx942");
    int outcomes[WRONG + 1] = {};
    int code = SURVIVED;
    for (int64_t n = 0; code != DONE && n < TRIES; n++) {
        attempt a = {n, always};
        const char *printed;
        child c = child_start(fail_one, &a, nullptr);
        code = child_wait(&c, &printed);
        if (strstr(printed, "cannot allocate memory for thread-local data: ABORT"))
            code = ABORTED; // the C library aborts at a thread's first use of a library's variables
        if (code != DONE && code != SURVIVED && code != REFUSED && code != ABORTED) {
            print_error("allocation %ld failed: ended with %d: %s\n", (long)n, code, printed);
            code = WRONG;
        }
        outcomes[code]++;
    }
    print_message("%d allocations that failed were refused, %d done without\n", outcomes[REFUSED],
                  outcomes[SURVIVED]);
    assert_int_equal(outcomes[WRONG], 0);
    assert_true(outcomes[ABORTED] <= 3);
    assert_int_equal(code, DONE);
    assert_true(outcomes[REFUSED] > 20);
}

static void test_one_allocation(void **) {
    fail_each(false);
}

static void test_all_from_there_on(void **) {
    fail_each(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_allocation),
                                       cmocka_unit_test(test_all_from_there_on)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#endif
