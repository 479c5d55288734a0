// SPDX-License-Identifier: Apache-2.0
// The simulated GPU as a HIP program sees it: through the shared library, with kernels that clang
// compiled.
//
// The library is opened as any program opens it. A case that needs a process of its own (a bad
// QUERN_SIM, exit while a kernel runs) runs this program again with an argument that names the
// case.
#include "hip_testing.h"

// ---- streams and events

static void *host_flag(void) {
    void *flag;
    OK(hip.hipHostMalloc(&flag, 4, 0));
    *(volatile uint32_t *)flag = 0;
    return flag;
}

static void test_asynchronous(void **state) {
    (void)state;
    hipStream_t a, b;
    hipEvent_t event;
    float ms;
    OK(hip.hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
    OK(hip.hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    OK(hip.hipEventCreate(&event));
    OK(hip.hipEventQuery(event)); // never recorded: nothing to wait for
    void *flag = host_flag();
    OK(launch(kernel(modules[2], "t_spin"), 1, 64, a, &flag, sizeof flag));
    OK(hip.hipEventRecord(event, a));
    assert_int_equal(hip.hipStreamQuery(a), hipErrorNotReady);
    assert_int_equal(hip.hipEventQuery(event), hipErrorNotReady);
    assert_int_equal(hip.hipEventElapsedTime(&ms, event, event), hipErrorNotReady);
    assert_int_equal(hip.hipGetLastError(), hipSuccess); // not ready is no error
    OK(hip.hipStreamWaitEvent(b, event, 0));
    void *d = device_alloc(4, nullptr);
    OK(hip.hipMemsetD32Async(d, 5, 1, b));
    assert_int_equal(hip.hipStreamQuery(b), hipErrorNotReady);
    *(volatile uint32_t *)flag = 1;
    OK(hip.hipStreamSynchronize(b));
    OK(hip.hipEventQuery(event));
    OK(hip.hipStreamSynchronize(a));
    OK(hip.hipStreamQuery(a));
    OK(hip.hipEventElapsedTime(&ms, event, event));
    assert_true(ms == 0);
    uint32_t value;
    take(&value, d, 4);
    assert_int_equal(value, 5);
    OK(hip.hipEventDestroy(event));
    OK(hip.hipHostFree(flag));
    OK(hip.hipStreamDestroy(a));
    OK(hip.hipStreamDestroy(b));
}

/** A kernel on one stream waits for one on another. */
static void test_concurrent_kernels(void **state) {
    (void)state;
    hipStream_t a, b;
    OK(hip.hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
    OK(hip.hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    void *flag = device_alloc(4, nullptr);
    OK(hip.hipMemset(flag, 0, 4));
    OK(hip.hipDeviceSynchronize());
    OK(launch(kernel(modules[2], "t_spin"), 3, 64, a, &flag, sizeof flag));
    OK(launch(kernel(modules[2], "t_set"), 1, 1, b, &flag, sizeof flag));
    OK(hip.hipStreamSynchronize(a));
    OK(hip.hipStreamDestroy(a));
    OK(hip.hipStreamDestroy(b));
    OK(hip.hipFree(flag));
}

/** The default stream and a blocking one run in the order in which they were given work. */
static void test_default_stream(void **state) {
    (void)state;
    hipStream_t blocking;
    OK(hip.hipStreamCreate(&blocking));
    void *flag = host_flag(), *d = device_alloc(4, nullptr);
    OK(launch(kernel(modules[1], "t_spin"), 1, 1, blocking, &flag, sizeof flag));
    OK(hip.hipMemsetD32Async(d, 1, 1, nullptr));  // waits for the kernel
    OK(hip.hipMemsetD32Async(d, 2, 1, blocking)); // waits for the default stream
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, nullptr);
    assert_int_equal(hip.hipStreamQuery(nullptr), hipErrorNotReady);
    *(volatile uint32_t *)flag = 1;
    OK(hip.hipStreamSynchronize(nullptr));
    uint32_t value;
    take(&value, d, 4);
    assert_int_equal(value, 2);
    OK(hip.hipHostFree(flag));
    OK(hip.hipStreamDestroy(blocking));
}

// ---- memory

static void test_memory(void **state) {
    (void)state;
    uint8_t host[300], back[300];
    for (size_t i = 0; i < sizeof host; i++)
        host[i] = (uint8_t)random_bits();
    uint8_t *d = device_alloc(300, host), *e = device_alloc(300, nullptr);
    assert_int_equal((uintptr_t)d % 256, 0);
    OK(hip.hipMemcpyDtoD(e + 1, d, 299));
    OK(hip.hipMemsetD8(e + 100, 0x5A, 7));
    take(back, e, 300);
    memset(host + 99, 0x5A, 7);
    assert_memory_equal(back + 1, host, 299);
    assert_int_equal(back[0], 0xEE);
    // Ranges that leave their allocation, in each direction and by a fill.
    assert_int_equal(hip.hipMemcpy(d, host, 301, hipMemcpyHostToDevice), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy(d + 1, host, 300, hipMemcpyDefault), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy(back, d + 300, 1, hipMemcpyDeviceToHost), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy(host, back, 1, hipMemcpyHostToDevice), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemset(d + 1, 0, 300), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemsetD32(d, 0, SIZE_MAX / 2), hipErrorInvalidValue);
    assert_int_equal(hip.hipGetLastError(), hipErrorInvalidValue);
    assert_int_equal(hip.hipGetLastError(), hipSuccess);
    assert_int_equal(hip.hipFree(d + 256), hipErrorInvalidValue);
    OK(hip.hipFree(d));
    assert_int_equal(hip.hipFree(d), hipErrorInvalidValue);
    assert_int_equal(hip.hipMemcpy(back, d, 1, hipMemcpyDeviceToHost), hipErrorInvalidValue);
    OK(hip.hipFree(nullptr));
    OK(hip.hipMemcpy(nullptr, nullptr, 0, hipMemcpyDefault));
}

static void test_pointer_attributes(void **state) {
    (void)state;
    hipPointerAttribute_t attributes;
    void *d = device_alloc(1000, nullptr), *h = host_flag();
    size_t free_bytes, total = 0, free_now;
    OK(hip.hipPointerGetAttributes(&attributes, (char *)d + 999));
    assert_int_equal(attributes.type, hipMemoryTypeDevice);
    assert_null(attributes.hostPointer);
    OK(hip.hipPointerGetAttributes(&attributes, h));
    assert_int_equal(attributes.type, hipMemoryTypeHost);
    assert_ptr_equal(attributes.hostPointer, h);
    OK(hip.hipPointerGetAttributes(&attributes, &total));
    assert_int_equal(attributes.type, hipMemoryTypeUnregistered);
    OK(hip.hipPointerGetAttribute(&total, HIP_POINTER_ATTRIBUTE_RANGE_SIZE, d));
    assert_int_equal(total, 1000);
    OK(hip.hipMemGetInfo(&free_bytes, &total));
    OK(hip.hipFree(d));
    OK(hip.hipMemGetInfo(&free_now, &total));
    assert_int_equal(free_now, free_bytes + 1000);
    assert_int_equal(total, UINT64_C(192) << 30);
    assert_int_equal(hip.hipMalloc(&d, total + 1), hipErrorOutOfMemory);
    assert_null(d);
    OK(hip.hipHostFree(h));
}

// ---- devices, modules, errors

static void test_device(void **state) {
    (void)state;
    int count, value;
    hipDeviceProp_tR0600 p;
    OK(hip.hipInit(0));
    OK(hip.hipGetDeviceCount(&count));
    assert_int_equal(count, 1);
    memset(&p, 0xFF, sizeof p);
    OK(hip.hipGetDevicePropertiesR0600(&p, 0));
    assert_string_equal(p.gcnArchName, "gfx942:sramecc+:xnack-");
    assert_int_equal(p.multiProcessorCount, 304);
    assert_int_equal(p.warpSize, 64);
    OK(hip.hipDeviceGetAttribute(&value, 63, 0));
    assert_int_equal(value, 304);
    OK(hip.hipDeviceGetAttribute(&value, 74, 0));
    assert_int_equal(value, 65536);
    OK(hip.hipDeviceGetAttribute(&value, 87, 0));
    assert_int_equal(value, 64);
    assert_int_equal(hip.hipDeviceGetAttribute(&value, 12345, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipGetDevicePropertiesR0600(&p, 1), hipErrorInvalidDevice);
    assert_int_equal(hip.hipSetDevice(-1), hipErrorInvalidDevice);
    assert_string_equal(hip.hipGetErrorName(hipErrorNoBinaryForGpu), "hipErrorNoBinaryForGpu");
    assert_string_equal(hip.hipGetErrorString(hipErrorNotReady), "device not ready");
    void *f;
    hipDriverProcAddressQueryResult status;
    OK(hip.hipGetProcAddress("hipGetDeviceProperties", &f, HIP_VERSION, 0, &status));
    assert_ptr_equal(f, (void *)hip.hipGetDevicePropertiesR0600);
    assert_int_equal(hip.hipGetProcAddress("hipNoSuchCall", &f, HIP_VERSION, 0, &status),
                     hipErrorNotFound);
    assert_int_equal(status, HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    hip.hipGetLastError();
}

static void test_all_exported(void **state) {
    (void)state;
    void *f;
    // By name these two take the properties of HIP 6; who links them has those of HIP 5.
    void *const named[] = {hip.hipGetDevicePropertiesR0600, hip.hipChooseDeviceR0600};
#define HIP_FUNCTION(name)                                                                         \
    assert_non_null(hip.name);                                                                     \
    OK(hip.hipGetProcAddress(#name, &f, HIP_VERSION, 0, nullptr));                                 \
    assert_ptr_equal(f, strcmp(#name, "hipGetDeviceProperties") == 0 ? named[0]                    \
                        : strcmp(#name, "hipChooseDevice") == 0      ? named[1]                    \
                                                                     : (void *)hip.name);
#include "functions.def"
#undef HIP_FUNCTION
    assert_non_null(hip.quernsim_configure);
}

/** Calls and attributes that are not supported say so, by name. */
static void test_unsupported(void **state) {
    (void)state;
    hipError_t (*f)(void);
#define HIP_UNSUPPORTED(name)                                                                      \
    f = (hipError_t (*)(void))dlsym(library, #name);                                               \
    assert_non_null(f);                                                                            \
    assert_int_equal(f(), hipErrorNotSupported);                                                   \
    assert_non_null(strstr(hip.hipGetErrorString(hip.hipGetLastError()), " " #name));
#include "unsupported.def"
#undef HIP_UNSUPPORTED
    void *found;
    OK(hip.hipGetProcAddress("hipTexObjectCreate", &found, HIP_VERSION, 0, nullptr));
    assert_ptr_equal(found, dlsym(library, "hipTexObjectCreate"));
}

static void *read_object(const char *level, size_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/testdata/kernels.%s.co", build_dir(), level);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static uint8_t image[1 << 20];
    *bytes = fread(image, 1, sizeof image, file);
    fclose(file);
    return image;
}

static void test_modules(void **state) {
    (void)state;
    size_t bytes;
    int value;
    uint8_t *image = read_object("O3", &bytes);
    hipModule_t module;
    OK(hip.hipModuleLoadData(&module, image));
    OK(hip.hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                               kernel(module, "t_reduce")));
    assert_int_equal(value, 1024);
    hipFunction_t f;
    assert_int_equal(hip.hipModuleGetFunction(&f, module, "t_none"), hipErrorNotFound);
    OK(hip.hipModuleUnload(module));
    assert_int_equal(hip.hipModuleUnload(module), hipErrorNotFound);
    image[48] = 0x4F; // e_flags: gfx950
    assert_int_equal(hip.hipModuleLoadData(&module, image), hipErrorNoBinaryForGpu);
    image[0] = 0;
    assert_int_equal(hip.hipModuleLoadData(&module, image), hipErrorInvalidImage);
    assert_int_equal(hip.hipModuleLoad(&module, "/nonexistent"), hipErrorFileNotFound);
    hip.hipGetLastError();
}

/** A bare ELF file in place of a fat binary, as some libraries register their kernels by
 *  themselves. */
static void test_registered_elf(void **state) {
    (void)state;
    enum { MAGIC = 0x48495046 };
    size_t bytes;
    static const char handle; // any address will do
    const struct {
        uint32_t magic, version;
        const void *image;
        void *unused;
    } wrapper = {MAGIC, 1, read_object("O3", &bytes), nullptr};
    void *flag = device_alloc(4, nullptr), *args[] = {&flag};
    const dim3 one = {1, 1, 1};
    void **binary = hip.__hipRegisterFatBinary(&wrapper);
    assert_non_null(binary);
    hip.__hipRegisterFunction(binary, &handle, "t_set", "t_set", UINT32_MAX, nullptr, nullptr,
                              nullptr, nullptr, nullptr);
    hip.__hipRegisterFunction(binary, &bytes, "t_none", "t_none", UINT32_MAX, nullptr, nullptr,
                              nullptr, nullptr, nullptr);
    OK(hip.hipLaunchKernel(&handle, one, one, args, 0, nullptr));
    assert_int_equal(hip.hipLaunchKernel(&bytes, one, one, args, 0, nullptr),
                     hipErrorInvalidDeviceFunction);
    assert_int_equal(hip.hipLaunchKernel(&handle, one, (dim3){1025, 1, 1}, args, 0, nullptr),
                     hipErrorInvalidConfiguration);
    hipLaunchAttribute window = {.id = 1};
    hipLaunchConfig_t config = {.gridDim = one, .blockDim = one, .attrs = &window, .numAttrs = 1};
    assert_int_equal(hip.hipLaunchKernelExC(&config, &handle, args), hipErrorNotSupported);
    config.attrs = nullptr;
    assert_int_equal(hip.hipLaunchKernelExC(&config, &handle, args), hipErrorInvalidValue);
    hip.__hipUnregisterFatBinary(binary);
    assert_int_equal(hip.hipLaunchKernel(&handle, one, one, args, 0, nullptr),
                     hipErrorInvalidDeviceFunction);
    hip.__hipRegisterTexture(binary = hip.__hipRegisterFatBinary(&wrapper), nullptr, nullptr,
                             (char[]){"texture"}, 2, 0, 0);
    hip.__hipRegisterFunction(binary, &handle, "t_set", "t_set", UINT32_MAX, nullptr, nullptr,
                              nullptr, nullptr, nullptr);
    assert_int_equal(hip.hipLaunchKernel(&handle, one, one, args, 0, nullptr),
                     hipErrorNotSupported);
    hip.__hipUnregisterFatBinary(binary);
    assert_int_equal(hip.__hipPopCallConfiguration(nullptr, nullptr, nullptr, nullptr),
                     hipErrorMissingConfiguration);
    uint32_t value;
    take(&value, flag, 4);
    assert_int_equal(value, 1);
    hip.hipGetLastError();
}

static void test_launch_checks(void **state) {
    (void)state;
    hipFunction_t f = kernel(modules[2], "t_peek");
    void *params[] = {nullptr, nullptr};
    assert_int_equal(launch(f, 0, 1, nullptr, params, 16), hipErrorInvalidValue);
    assert_int_equal(launch(f, 1, 0, nullptr, params, 16), hipErrorInvalidValue);
    assert_int_equal(launch(f, 1, 1025, nullptr, params, 16), hipErrorInvalidValue);
    assert_int_equal(launch(f, (unsigned)INT32_MAX + 1, 1, nullptr, params, 16),
                     hipErrorInvalidValue);
    assert_int_equal(
        hip.hipModuleLaunchKernel(f, 1, 65537, 1, 1, 1, 1, 0, nullptr, params, nullptr),
        hipErrorInvalidValue);
    assert_int_equal(hip.hipModuleLaunchKernel(f, 1, 1, 1, 32, 33, 1, 0, nullptr, params, nullptr),
                     hipErrorInvalidValue);
    assert_int_equal(
        hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 65537, nullptr, params, nullptr),
        hipErrorInvalidValue);
    assert_int_equal(hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                     hipErrorInvalidValue);
    assert_int_equal(launch(nullptr, 1, 1, nullptr, params, 16), hipErrorInvalidHandle);
    const unsigned max = UINT32_MAX; // the number of workgroups has more than 64 bits
    assert_int_equal(
        hip.hipModuleLaunchKernel(f, max, max, max, 1, 1, 1, 0, nullptr, params, nullptr),
        hipErrorInvalidValue);
    hipStream_t stream;
    OK(hip.hipStreamCreate(&stream));
    OK(hip.hipStreamDestroy(stream));
    assert_int_equal(hip.hipStreamDestroy(stream), hipErrorContextIsDestroyed);
    assert_int_equal(launch(f, 1, 1, stream, params, 16), hipErrorContextIsDestroyed);
    hip.hipGetLastError();
}

/** Runs fn with standard error in a file, and copies what fn wrote to text. */
static void capture(void (*fn)(void), char *text, size_t bytes) {
    char path[] = "/tmp/quern_hip_test_XXXXXX";
    const int file = mkstemp(path), saved = dup(2);
    assert_true(file >= 0 && saved >= 0);
    fflush(stderr);
    dup2(file, 2);
    fn();
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    const ssize_t got = pread(file, text, bytes - 1, 0);
    text[got > 0 ? got : 0] = 0;
    close(file);
    unlink(path);
}

static void store_past_the_end(void) {
    struct {
        void *out;
        uint64_t offset;
    } args = {device_alloc(4096, nullptr), 1027};
    OK(launch(kernel(modules[2], "t_wild"), 2, 64, nullptr, &args, sizeof args));
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorIllegalAddress);
    // The error stays.
    void *p = args.out;
    assert_int_equal(hip.hipMemset(p, 0, 4), hipErrorIllegalAddress);
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorIllegalAddress);
    OK(hip.hipFree(p));
}

static void read_freed(void) {
    struct {
        void *out, *from;
    } args = {device_alloc(4, nullptr), device_alloc(4096, nullptr)};
    OK(hip.hipFree(args.from));
    args.from = (char *)args.from + 8;
    OK(launch(kernel(modules[1], "t_peek"), 1, 1, nullptr, &args, sizeof args));
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorIllegalAddress);
}

static uint32_t host_secret = 42;

static void read_host(void) {
    struct {
        void *out, *from;
    } args = {device_alloc(4, nullptr), &host_secret};
    OK(launch(kernel(modules[1], "t_peek"), 1, 1, nullptr, &args, sizeof args));
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorIllegalAddress);
}

static void test_faults(void **state) {
    (void)state;
    char text[2048];
    capture(store_past_the_end, text, sizeof text);
    assert_non_null(strstr(text, "12 bytes past the end of a 4096-byte allocation"));
    assert_non_null(strstr(text, "kernel t_wild: store of 4 bytes"));
    assert_non_null(strstr(text, "wave 0, lane 5, work-item (5, 0, 0)"));
    reset();
    capture(read_freed, text, sizeof text);
    assert_non_null(strstr(text, "8 bytes into a 4096-byte allocation"));
    assert_non_null(strstr(text, "that was freed"));
    reset();
    capture(read_host, text, sizeof text);
    assert_non_null(strstr(text, "no allocation is near"));
    reset();
}

static void meet_at_two_barriers(void) {
    void *d = device_alloc(8, nullptr);
    OK(launch(kernel(modules[2], "t_two_barriers"), 1, 128, nullptr, &d, sizeof d));
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorLaunchFailure);
}

static void spin_past_the_limit(void) {
    void *flag = host_flag();
    OK(launch(kernel(modules[2], "t_spin"), 1, 1, nullptr, &flag, sizeof flag));
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorLaunchFailure);
    OK(hip.hipHostFree(flag));
}

static void test_divergent_barrier_and_limit(void **state) {
    (void)state;
    char text[2048];
    uint32_t out[2];
    void *d = device_alloc(8, nullptr);
    OK(launch(kernel(modules[2], "t_two_barriers"), 1, 128, nullptr, &d, sizeof d));
    take(out, d, 8); // legal on hardware, so no error unless the check is on
    assert_true(out[0] == 1 && out[1] == 1);
    OK(hip.quernsim_configure("check=bounds,barrier"));
    capture(meet_at_two_barriers, text, sizeof text);
    assert_non_null(strstr(text, "divergent barrier"));
    reset();
    OK(hip.quernsim_configure("check=bounds;limit=100000"));
    capture(spin_past_the_limit, text, sizeof text);
    assert_non_null(strstr(text, "an endless loop?"));
    reset();
    OK(hip.quernsim_configure("limit=0"));
}

// ---- processes

/** Runs this program again for one of the cases of run_case(). Returns its exit status, or -1 after
 *  20 s. */
static int run_self(const char *name, const char *options) {
    pid_t child = fork();
    if (child == 0) {
        setenv("QUERN_SIM", options, 1);
        execl("/proc/self/exe", "hip_test", name, nullptr);
        _exit(126);
    }
    for (int i = 0; i < 2000; i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, nullptr);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
}

static int run_case(const char *name) {
    int count;
    hipError_t error = hip.hipGetDeviceCount(&count);
    if (strcmp(name, "count") == 0)
        return error == hipSuccess ? count : 100;
    void *flag = host_flag();
    hipModule_t module = load("O3");
    OK(launch(kernel(module, "t_spin"), 4, 64, nullptr, &flag, sizeof flag));
    if (strcmp(name, "close") == 0)
        _exit(dlclose(library)); // at once: what libstdc++ keeps for itself would be called a leak
    return strcmp(name, "exit") == 0 ? 7 : 101; // with the kernel still running
}

static void test_processes(void **state) {
    (void)state;
    assert_int_equal(run_self("count", ""), 1);
    assert_int_equal(run_self("count", "arch=gfx942,gfx942;threads=1;check=none;clock=off"), 2);
    assert_int_equal(run_self("count", "arch=gfx9000"), 100);
    assert_int_equal(run_self("count", "speed=high"), 100);
    assert_int_equal(run_self("exit", "threads=3"), 7);
    assert_int_equal(run_self("close", "threads=3"), 0);
}

static void report_error(void) {
    assert_int_equal(run_self("count", "check=most"), 100);
}

static void test_option_message(void **state) {
    (void)state;
    char text[2048];
    capture(report_error, text, sizeof text);
    assert_non_null(strstr(text, "QUERN_SIM: check=most: no such check; accepted: none"));
}

/** A child after fork has the parent's memory and modules, and streams that work. */
static void test_fork(void **state) {
    (void)state;
#if __has_feature(thread_sanitizer)
    skip(); // the sanitizer does not let a forked child start threads
#endif
    uint32_t five = 5, value = 0;
    void *flag = host_flag(), *d = device_alloc(4, &five);
    hipStream_t stream;
    OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    OK(launch(kernel(modules[2], "t_spin"), 1, 64, stream, &flag, sizeof flag));
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        bool ok = hip.hipMemcpy(&value, d, 4, hipMemcpyDeviceToHost) == hipSuccess && value == 5;
        void *args[2] = {d, d};
        ok = ok && launch(kernel(modules[2], "t_peek"), 1, 1, nullptr, args, 16) == hipSuccess &&
             hip.hipDeviceSynchronize() == hipSuccess;
        exit(ok ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    *(volatile uint32_t *)flag = 1;
    OK(hip.hipStreamSynchronize(stream));
    OK(hip.hipStreamDestroy(stream));
    take(&value, d, 4);
    OK(hip.hipHostFree(flag));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    open_library();
    if (argc > 1)
        return run_case(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_exported, start),
        cmocka_unit_test_setup(test_unsupported, start),
        cmocka_unit_test_setup(test_device, start),
        cmocka_unit_test_setup(test_memory, start),
        cmocka_unit_test_setup(test_pointer_attributes, start),
        cmocka_unit_test_setup(test_modules, start),
        cmocka_unit_test_setup(test_registered_elf, start),
        cmocka_unit_test_setup(test_launch_checks, start),
        cmocka_unit_test_setup(test_asynchronous, start),
        cmocka_unit_test_setup(test_concurrent_kernels, start),
        cmocka_unit_test_setup(test_default_stream, start),
        cmocka_unit_test_setup(test_faults, start),
        cmocka_unit_test_setup(test_divergent_barrier_and_limit, start),
        cmocka_unit_test_setup(test_processes, start),
        cmocka_unit_test_setup(test_option_message, start),
        cmocka_unit_test_setup(test_fork, start),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
