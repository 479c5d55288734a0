// SPDX-License-Identifier: Apache-2.0
// check=uninit and the program: which calls of HIP write device memory, and which bytes a kernel
// then finds written.
#include "../hip_testing.h"

enum { WORDS = 1024, BYTES = 4 * WORDS, THREADS = 128 }; // as in testdata/pair.h

static char report_file[] = "/tmp/quern_unwritten_XXXXXX";

/** A kernel of testdata/, whose arguments are out, in, shared and one. */
static hipError_t run(const char *object, const char *name, void *out, void *in) {
    char path[4096];
    hipModule_t module;
    snprintf(path, sizeof path, "%s/testdata/%s.O3.co", build_dir(), object);
    OK(hip.hipModuleLoad(&module, path));
    struct {
        void *out, *in, *shared;
        uint64_t one;
    } args = {out, in, out, 1};
    void *params[] = {&args.out, &args.in, &args.shared, &args.one};
    OK(hip.hipModuleLaunchKernel(kernel(module, name), 1, 1, 1, THREADS, 1, 1, 0, nullptr, params,
                                 nullptr));
    return hip.hipDeviceSynchronize();
}

// ---- ways to fill `in`. Each returns the first unwritten word of those that the kernel reads; -1:
// none.

static const uint32_t words[WORDS] = {[3] = 7};

static int by_nothing(void *) {
    return 0;
}
static int by_copy(void *in) {
    OK(hip.hipMemcpy(in, words, BYTES, hipMemcpyHostToDevice));
    return -1;
}
static int by_copy_with_a_gap(void *in) {
    OK(hip.hipMemcpyHtoD(in, words, 4 * 5));
    OK(hip.hipMemcpyHtoD((char *)in + 4 * 6, words, BYTES - 4 * 6));
    return 5;
}
static int by_fill(void *in) {
    OK(hip.hipMemset(in, 0, BYTES));
    return -1;
}
static int by_short_fill(void *in) {
    OK(hip.hipMemsetD32Async(in, 9, 100, nullptr));
    return 100;
}
static int by_fill_of_halves(void *in) {
    OK(hip.hipMemsetD16(in, 9, 2 * 90));
    return 90;
}
static int by_rectangle(void *in) {
    OK(hip.hipMemset2D(in, 64, 0, 60, BYTES / 64));
    return 15;
}
static int by_copied_rectangle(void *in) {
    OK(hip.hipMemcpy2D(in, 64, words, 64, 56, BYTES / 64, hipMemcpyHostToDevice));
    return 14;
}
static int by_rows_without_gaps(void *in) {
    OK(hip.hipMemcpy2D(in, 64, words, 64, 64, BYTES / 64, hipMemcpyHostToDevice));
    return -1;
}
/** Copies on the device: unwritten bytes stay unwritten in the copy. */
static int by_copy_of_nothing(void *in) {
    void *from;
    OK(hip.hipMalloc(&from, BYTES));
    by_fill(in);
    OK(hip.hipMemset((char *)from + 4, 0, 4 * 20));
    OK(hip.hipMemcpyDtoD((char *)in + 4 * 8, (char *)from + 4, 4 * 40));
    OK(hip.hipFree(from));
    return 8 + 20;
}
static int by_copy_of_all(void *in) {
    void *from = device_alloc(BYTES, words);
    OK(hip.hipMemcpyPeer(in, 0, from, 0, BYTES));
    OK(hip.hipFree(from));
    return -1;
}
static int by_kernel(void *in) {
    OK(hip.hipMemset((char *)in + 4 * THREADS, 0, BYTES - 4 * THREADS));
    OK(run("faults", "good_store_past_the_end", in, in));
    return -1;
}
/** Copies to the host, which may take unwritten bytes, as it takes padding. */
static int by_looking(void *in) {
    static uint32_t host[WORDS];
    OK(hip.hipMemcpy(host, in, BYTES, hipMemcpyDeviceToHost));
    return 0;
}
/** Switches the check off and on again, so that nobody knows what was written in between. */
static int by_forgetting(void *) {
    OK(hip.quernsim_configure("check=bounds"));
    OK(hip.quernsim_configure("check=uninit"));
    return -1;
}

// ---- the tests

static char *last_report(void) {
    static char text[8192];
    FILE *file = fopen(report_file, "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_int_equal(truncate(report_file, 0), 0);
    text[size] = 0;
    return text;
}

/** Expects that the kernel's results depend on word `missing` of `in`, which was never written; -1:
 *  on no unwritten word. */
static void expect(const char *name, void *in, int missing) {
    void *out = device_alloc(BYTES, nullptr);
    hipError_t error = run("unwritten", "good_input_of_nothing", out, in);
    const char *report = last_report();
    if (missing < 0) {
        if (error != hipSuccess || *report)
            fail_msg("%s: %s", name, report);
        OK(hip.hipFree(out));
        return;
    }
    char value[64];
    snprintf(value, sizeof value, "\"value\": \"0x%llx\", \"access\": \"load\", \"bytes\": 4",
             (unsigned long long)(uintptr_t)in + 4 * (unsigned)missing);
    bool is_found = error == hipErrorLaunchFailure && strstr(report, value) &&
                    strstr(report, "\"kind\": \"uninitialised\"") &&
                    strstr(report, "\"other\": {\"pc\"") && strstr(report, "global_load_dword") &&
                    strstr(report, "\"freed\": false");
    if (!is_found)
        fail_msg("%s: wanted %s, found %d and '%s'", name, value, error, report);
    OK(hip.hipDeviceReset());
}

static void test_writers(void **) {
    static const struct {
        const char *name;
        int (*fill)(void *in);
    } ways[] = {{"nothing", by_nothing},
                {"a copy", by_copy},
                {"a copy with a gap", by_copy_with_a_gap},
                {"a fill", by_fill},
                {"a short fill", by_short_fill},
                {"a fill of halves", by_fill_of_halves},
                {"a rectangle", by_rectangle},
                {"a copied rectangle", by_copied_rectangle},
                {"rows without gaps", by_rows_without_gaps},
                {"a copy of nothing", by_copy_of_nothing},
                {"a copy of all", by_copy_of_all},
                {"a kernel", by_kernel},
                {"a look", by_looking},
                {"forgetting", by_forgetting}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        void *in;
        OK(hip.hipMalloc(&in, BYTES));
        expect(ways[i].name, in, ways[i].fill(in));
    }
}

/** Tries memory of every call that allocates. Writes to memory that was freed since do not
 *  count. */
static void test_allocations(void **) {
    void *in;
    size_t pitch;
    OK(hip.hipMallocAsync(&in, BYTES, nullptr));
    expect("hipMallocAsync", in, 0);
    OK(hip.hipMallocPitch(&in, &pitch, BYTES, 1));
    expect("hipMallocPitch", in, 0);
    OK(hip.hipHostMalloc(&in, BYTES, 0));
    expect("hipHostMalloc", in, -1);
    static _Alignas(4096) uint32_t own[WORDS];
    OK(hip.hipHostRegister(own, BYTES, 0));
    expect("hipHostRegister", own, -1);
    for (int i = 0; i < 2; i++) {
        OK(hip.hipMalloc(&in, BYTES));
        by_fill(in);
        OK(hip.hipFree(in));
    }
    OK(hip.hipMalloc(&in, BYTES));
    expect("allocated again", in, 0);
}

/** Memory that existed when the check was switched on counts as written. */
static void test_switched_on_later(void **) {
    void *in;
    OK(hip.quernsim_configure("check=bounds"));
    OK(hip.hipMalloc(&in, BYTES));
    OK(hip.quernsim_configure("check=uninit"));
    expect("switched on later", in, -1);
}

/** Variables of a module count as written from the start, those without a value too. */
static void test_variables(void **) {
    char path[4096];
    hipModule_t module;
    snprintf(path, sizeof path, "%s/testdata/reports.O1.co", build_dir());
    OK(hip.hipModuleLoad(&module, path));
    void *table;
    size_t bytes;
    OK(hip.hipModuleGetGlobal(&table, &bytes, module, "table"));
    expect("a variable", table, -1);
}

int main(void) {
    const int file = mkstemp(report_file);
    char options[128];
    snprintf(options, sizeof options, "arch=gfx942;check=uninit;report=%s", report_file);
    setenv("QUERN_SIM", options, 1);
    open_library();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writers), cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_switched_on_later), cmocka_unit_test(test_variables)};
    const int failed = file < 0 ? 1 : cmocka_run_group_tests(tests, nullptr, nullptr);
    unlink(report_file);
    return failed;
}
