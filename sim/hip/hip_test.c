// SPDX-License-Identifier: Apache-2.0
// The simulated GPU as a HIP program sees it: through the shared library, with kernels that clang compiled.
//
// The library is opened as any program would open it. What needs a process of its own (a bad QUERN_SIM, exit while
// a kernel runs) runs this program again with an argument that names it.
#include "hip.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
#define HIP_FUNCTION(name) typeof(name) *name;
#include "functions.def"
#undef HIP_FUNCTION
    typeof(quernsim_configure) *quernsim_configure;
} hip;
static void *library;

enum { NUM_LEVELS = 3 };
static const char *const levels[NUM_LEVELS] = {"O0", "O1", "O3"};
static hipModule_t modules[NUM_LEVELS];

#define OK(call) assert_int_equal((call), hipSuccess)

static const char *build_dir(void) {
    const char *dir = getenv("QUERN_BUILD_DIR");
    return dir ? dir : ".";
}

static void open_library(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libquernsim.so", build_dir());
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define HIP_FUNCTION(name) hip.name = (typeof(hip.name))dlsym(library, #name);
#include "functions.def"
#undef HIP_FUNCTION
    hip.quernsim_configure = (typeof(hip.quernsim_configure))dlsym(library, "quernsim_configure");
}

static hipModule_t load(const char *level) {
    char path[4096];
    snprintf(path, sizeof path, "%s/testdata/kernels.%s.co", build_dir(), level);
    hipModule_t module;
    OK(hip.hipModuleLoad(&module, path));
    return module;
}

static hipFunction_t kernel(hipModule_t module, const char *name) {
    hipFunction_t f;
    OK(hip.hipModuleGetFunction(&f, module, name));
    return f;
}

/** Launches with the arguments packed in a struct, as quern's own runtime does. */
static hipError_t launch(hipFunction_t f, unsigned grid, unsigned block, hipStream_t stream,
                         void *args, size_t bytes) {
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     HIP_LAUNCH_PARAM_END};
    return hip.hipModuleLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, nullptr, extra);
}

static void *device_alloc(size_t bytes, const void *contents) {
    void *p;
    OK(hip.hipMalloc(&p, bytes));
    if (contents) {
        OK(hip.hipMemcpy(p, contents, bytes, hipMemcpyHostToDevice));
    } else {
        OK(hip.hipMemset(p, 0xEE, bytes));
    }
    return p;
}

/** Copies device memory out and frees it. */
static void take(void *host, void *device, size_t bytes) {
    OK(hip.hipMemcpy(host, device, bytes, hipMemcpyDeviceToHost));
    OK(hip.hipFree(device));
}

static uint64_t random_state = 0x9E3779B97F4A7C15;

static uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

// ---- kernels

static void test_ids(void **state) {
    (void)state;
    enum { GX = 3, GY = 2, GZ = 2, BX = 5, BY = 3, BZ = 7, N = GX * GY * GZ * BX * BY * BZ };
    for (int l = 0; l < NUM_LEVELS; l++) {
        static uint32_t out[N];
        void *d = device_alloc(sizeof out, nullptr), *params[] = {&d};
        OK(hip.hipModuleLaunchKernel(kernel(modules[l], "t_ids"), GX, GY, GZ, BX, BY, BZ, 0,
                                     nullptr, params, nullptr));
        take(out, d, sizeof out);
        for (uint32_t i = 0; i < N; i++) {
            uint32_t x = i % (GX * BX), y = i / (GX * BX) % (GY * BY),
                     z = i / (GX * BX) / (GY * BY);
            assert_int_equal(out[i], x | y << 10 | z << 20);
        }
    }
}

static void test_collatz(void **state) {
    (void)state;
    enum { N = 1000, BLOCK = 192 }; // three waves, the last workgroup partly past the end
    uint32_t start[N], steps[N + 1];
    for (uint32_t i = 0; i < N; i++) {
        start[i] = 1 + (uint32_t)(random_bits() % 100000);
    }
    for (int l = 0; l < NUM_LEVELS; l++) {
        struct {
            void *steps, *start;
            uint32_t count;
        } args = {device_alloc(sizeof steps, nullptr), device_alloc(sizeof start, start), N};
        OK(launch(kernel(modules[l], "t_collatz"), (N + BLOCK - 1) / BLOCK, BLOCK, nullptr, &args,
                  sizeof args));
        take(steps, args.steps, sizeof steps);
        OK(hip.hipFree(args.start));
        for (uint32_t i = 0; i < N; i++) {
            uint32_t n = start[i], s = 0;
            for (; n > 1; s++) {
                n = n & 1 ? 3 * n + 1 : n / 2;
            }
            assert_int_equal(steps[i], s);
        }
        assert_int_equal(steps[N], 0xEEEEEEEE);
    }
}

static void test_reduce(void **state) {
    (void)state;
    enum { GROUPS = 9, N = GROUPS * 256 };
    float x[N], sums[GROUPS];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(int64_t)(random_bits() % 2001) - 1000; // whole numbers: the sum is exact
    }
    for (int l = 0; l < NUM_LEVELS; l++) {
        struct {
            void *sums, *x;
        } args = {device_alloc(sizeof sums, nullptr), device_alloc(sizeof x, x)};
        OK(launch(kernel(modules[l], "t_reduce"), GROUPS, 256, nullptr, &args, sizeof args));
        take(sums, args.sums, sizeof sums);
        OK(hip.hipFree(args.x));
        for (int g = 0; g < GROUPS; g++) {
            float sum = 0;
            for (int i = 0; i < 256; i++) {
                sum += x[256 * g + i];
            }
            assert_true(sums[g] == sum);
        }
    }
}

static void test_int64(void **state) {
    (void)state;
    enum { N = 512 };
    uint64_t a[N], b[N], out[N];
    for (int i = 0; i < N; i++) {
        a[i] = random_bits() >> (random_bits() & 63);
        b[i] = random_bits() >> (random_bits() & 63);
    }
    a[0] = b[0] = 0;
    a[1] = UINT64_MAX, b[1] = 1;
    for (int l = 0; l < NUM_LEVELS; l++) {
        struct {
            void *out, *a, *b;
        } args = {device_alloc(sizeof out, nullptr), device_alloc(sizeof a, a),
                  device_alloc(sizeof b, b)};
        OK(launch(kernel(modules[l], "t_int64"), N / 128, 128, nullptr, &args, sizeof args));
        take(out, args.out, sizeof out);
        OK(hip.hipFree(args.a));
        OK(hip.hipFree(args.b));
        for (int i = 0; i < N; i++) {
            uint64_t r = a[i] * b[i] + (a[i] >> (b[i] & 63)) - (b[i] << (a[i] & 63));
            r ^= (int64_t)a[i] < (int64_t)b[i] ? ~a[i] : a[i] / (b[i] | 1);
            assert_int_equal(out[i], r);
        }
    }
}

static void test_axpy(void **state) {
    (void)state;
    enum { N = 777, BLOCK = 64, GROUPS = 3 };
    float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)((double)(int64_t)random_bits() / 0x1p60);
    }
    for (int l = 0; l < NUM_LEVELS; l++) {
        struct {
            double scale;
            float bias;
            uint32_t count;
            void *y, *x;
            uint32_t step;
        } args = {
            1.0 / 3,       0.625f, N, device_alloc(sizeof y, nullptr), device_alloc(sizeof x, x),
            BLOCK * GROUPS};
        OK(launch(kernel(modules[l], "t_axpy"), GROUPS, BLOCK, nullptr, &args, sizeof args));
        take(y, args.y, sizeof y);
        OK(hip.hipFree(args.x));
        for (int i = 0; i < N; i++) {
            float v = (float)(args.scale * (double)x[i]);
            float want = v < 0 ? args.bias - v : args.bias + v;
            assert_true(y[i] == want);
        }
    }
}

static void test_stack(void **state) {
    (void)state;
    enum { N = 128 };
    uint32_t in[N], out[N];
    for (int i = 0; i < N; i++) {
        in[i] = (uint32_t)(random_bits() >> (random_bits() % 33 + 31));
    }
    for (int l = 0; l < NUM_LEVELS; l++) {
        struct {
            void *out, *in;
        } args = {device_alloc(sizeof out, nullptr), device_alloc(sizeof in, in)};
        OK(launch(kernel(modules[l], "t_stack"), N / 64, 64, nullptr, &args, sizeof args));
        take(out, args.out, sizeof out);
        OK(hip.hipFree(args.in));
        for (int i = 0; i < N; i++) {
            uint32_t sum = 0, v = in[i], n = 0;
            do {
                sum += v % 10 * ++n;
                v /= 10;
            } while (v);
            assert_int_equal(out[i], sum);
        }
    }
}

static void test_globals(void **state) {
    (void)state;
    for (int l = 0; l < NUM_LEVELS; l++) {
        hipDeviceptr_t counter;
        size_t bytes;
        uint32_t out, value;
        OK(hip.hipModuleGetGlobal(&counter, &bytes, modules[l], "counter"));
        assert_int_equal(bytes, 4);
        void *d = device_alloc(4, nullptr);
        OK(launch(kernel(modules[l], "t_globals"), 1, 1, nullptr, &d, sizeof d));
        take(&out, d, 4);
        assert_int_equal(out, 7 * 3 * 5);
        OK(hip.hipMemcpyDtoH(&value, counter, 4));
        assert_int_equal(value, 8);
        assert_int_equal(hip.hipModuleGetGlobal(&counter, &bytes, modules[l], "none"),
                         hipErrorNotFound);
    }
}

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
    assert_int_equal(hip.hipEventElapsedTime(&ms, event, event), hipErrorNotSupported);
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
    for (size_t i = 0; i < sizeof host; i++) {
        host[i] = (uint8_t)random_bits();
    }
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
#define HIP_FUNCTION(name)                                                                         \
    assert_non_null(hip.name);                                                                     \
    OK(hip.hipGetProcAddress(#name, &f, HIP_VERSION, 0, nullptr));                                 \
    assert_ptr_equal(f, (void *)hip.name);
#include "functions.def"
#undef HIP_FUNCTION
    assert_non_null(hip.quernsim_configure);
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
    image[48] = 0x4F; // e_flags: gfx950
    assert_int_equal(hip.hipModuleLoadData(&module, image), hipErrorNoBinaryForGpu);
    image[0] = 0;
    assert_int_equal(hip.hipModuleLoadData(&module, image), hipErrorInvalidImage);
    assert_int_equal(hip.hipModuleLoad(&module, "/nonexistent"), hipErrorFileNotFound);
    hip.hipGetLastError();
}

static void test_launch_checks(void **state) {
    (void)state;
    hipFunction_t f = kernel(modules[2], "t_peek");
    void *params[] = {nullptr, nullptr};
    assert_int_equal(launch(f, 0, 1, nullptr, params, 16), hipErrorInvalidConfiguration);
    assert_int_equal(launch(f, 1, 1025, nullptr, params, 16), hipErrorInvalidConfiguration);
    assert_int_equal(
        hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 65537, nullptr, params, nullptr),
        hipErrorInvalidValue);
    assert_int_equal(hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                     hipErrorInvalidValue);
    assert_int_equal(launch(nullptr, 1, 1, nullptr, params, 16), hipErrorInvalidHandle);
    hip.hipGetLastError();
}

/** Runs fn with standard error in a file; what it wrote goes to text. */
static void capture(void (*fn)(void), char *text, size_t bytes) {
    char path[] = "/tmp/quern_hip_test_XXXXXX";
    int file = mkstemp(path), saved = dup(2);
    assert_true(file >= 0 && saved >= 0);
    fflush(stderr);
    dup2(file, 2);
    fn();
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    ssize_t got = pread(file, text, bytes - 1, 0);
    text[got > 0 ? got : 0] = 0;
    close(file);
    unlink(path);
}

static void reset(void) {
    OK(hip.hipDeviceReset());
    for (int l = 0; l < NUM_LEVELS; l++) {
        modules[l] = load(levels[l]);
    }
    hip.hipGetLastError();
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

/** Runs this program again for one of the cases of run_case(); its exit status, or -1 after 20 s. */
static int run_self(const char *name, const char *options) {
    pid_t child = fork();
    if (child == 0) {
        setenv("QUERN_SIM", options, 1);
        execl("/proc/self/exe", "hip_test", name, nullptr);
        _exit(126);
    }
    for (int i = 0; i < 2000; i++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
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
    if (strcmp(name, "count") == 0) {
        return error == hipSuccess ? count : 100;
    }
    void *flag = host_flag();
    hipModule_t module = load("O3");
    OK(launch(kernel(module, "t_spin"), 4, 64, nullptr, &flag, sizeof flag));
    if (strcmp(name, "close") == 0) {
        _exit(dlclose(library)); // at once: what libstdc++ keeps for itself would be called a leak
    }
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
    assert_int_equal(run_self("count", "check=all"), 100);
}

static void test_option_message(void **state) {
    (void)state;
    char text[2048];
    capture(report_error, text, sizeof text);
    assert_non_null(strstr(text, "QUERN_SIM: check=all: no such check; accepted: none"));
}

/** A child after fork has the parent's memory and modules, and streams that work. */
static void test_fork(void **state) {
    (void)state;
#if __has_feature(thread_sanitizer)
    skip(); // it does not let a forked child start threads
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

/** Before each test: what an earlier one broke must not fail this one. */
static int start(void **state) {
    (void)state;
    if (!modules[0] || hip.hipDeviceSynchronize() != hipSuccess) {
        reset();
    }
    hip.hipGetLastError();
    return 0;
}

int main(int argc, char **argv) {
    open_library();
    if (argc > 1) {
        return run_case(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_exported, start),
        cmocka_unit_test_setup(test_device, start),
        cmocka_unit_test_setup(test_memory, start),
        cmocka_unit_test_setup(test_pointer_attributes, start),
        cmocka_unit_test_setup(test_modules, start),
        cmocka_unit_test_setup(test_launch_checks, start),
        cmocka_unit_test_setup(test_ids, start),
        cmocka_unit_test_setup(test_collatz, start),
        cmocka_unit_test_setup(test_reduce, start),
        cmocka_unit_test_setup(test_int64, start),
        cmocka_unit_test_setup(test_axpy, start),
        cmocka_unit_test_setup(test_stack, start),
        cmocka_unit_test_setup(test_globals, start),
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
