// SPDX-License-Identifier: Apache-2.0
// Kernels that clang compiled in several ways, run through the simulated GPU's HIP library and
// compared with the host.
#include "hip_testing.h"

static int device; // that the tests use

static void test_ids(void **state) {
    (void)state;
    enum { GX = 3, GY = 2, GZ = 2, BX = 5, BY = 3, BZ = 7, N = GX * GY * GZ * BX * BY * BZ };
    for (int l = 0; l < num_levels; l++) {
        static uint32_t out[N];
        void *d = device_alloc(sizeof out, nullptr), *params[] = {&d};
        OK(hip.hipModuleLaunchKernel(kernel(modules[l], "t_ids"), GX, GY, GZ, BX, BY, BZ, 0,
                                     nullptr, params, nullptr));
        take(out, d, sizeof out);
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t x = i % (GX * BX), y = i / (GX * BX) % (GY * BY),
                           z = i / (GX * BX) / (GY * BY);
            assert_int_equal(out[i], x | y << 10 | z << 20);
        }
    }
}

static void test_collatz(void **state) {
    (void)state;
    enum { N = 1000, BLOCK = 192 }; // three waves, the last workgroup partly past the end
    uint32_t start[N], steps[N + 1];
    for (uint32_t i = 0; i < N; i++)
        start[i] = 1 + (uint32_t)(random_bits() % 100000);
    for (int l = 0; l < num_levels; l++) {
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
            for (; n > 1; s++)
                n = n & 1 ? 3 * n + 1 : n / 2;
            assert_int_equal(steps[i], s);
        }
        assert_int_equal(steps[N], 0xEEEEEEEE);
    }
}

static void test_reduce(void **state) {
    (void)state;
    enum { GROUPS = 9, N = GROUPS * 256 };
    float x[N], sums[GROUPS];
    for (int i = 0; i < N; i++)
        x[i] = (float)(int64_t)(random_bits() % 2001) - 1000; // whole numbers: the sum is exact
    for (int l = 0; l < num_levels; l++) {
        struct {
            void *sums, *x;
        } args = {device_alloc(sizeof sums, nullptr), device_alloc(sizeof x, x)};
        OK(launch(kernel(modules[l], "t_reduce"), GROUPS, 256, nullptr, &args, sizeof args));
        take(sums, args.sums, sizeof sums);
        OK(hip.hipFree(args.x));
        for (int g = 0; g < GROUPS; g++) {
            float sum = 0;
            for (int i = 0; i < 256; i++)
                sum += x[256 * g + i];
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
    for (int l = 0; l < num_levels; l++) {
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
    for (int i = 0; i < N; i++)
        x[i] = (float)((double)(int64_t)random_bits() / 0x1p60);
    for (int l = 0; l < num_levels; l++) {
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
            const float v = (float)(args.scale * (double)x[i]);
            const float want = v < 0 ? args.bias - v : args.bias + v;
            assert_true(y[i] == want);
        }
    }
}

static void test_stack(void **state) {
    (void)state;
    enum { N = 128 };
    uint32_t in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = (uint32_t)(random_bits() >> (random_bits() % 33 + 31));
    for (int l = 0; l < num_levels; l++) {
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

/** Workgroups whose last wave is not full. */
static void test_partial_waves(void **state) {
    (void)state;
    static const unsigned blocks[] = {1, 63, 64, 65, 1000, 1024};
    for (int l = 0; l < num_levels; l++) {
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            uint32_t count = 0;
            void *d = device_alloc(4, &count);
            OK(launch(kernel(modules[l], "t_count"), 7, blocks[b], nullptr, &d, sizeof d));
            take(&count, d, 4);
            assert_int_equal(count, 7 * blocks[b]);
        }
    }
}

/** Waves know their number. Two workgroups of 1024 work-items, waves of 64 lanes or 32. */
static void test_wave_numbers(void **state) {
    (void)state;
    for (int l = 0; l < num_levels; l++) {
        static uint32_t out[2048];
        void *d = device_alloc(sizeof out, nullptr);
        OK(launch(kernel(modules[l], "t_wave"), 2, 1024, nullptr, &d, sizeof d));
        take(out, d, sizeof out);
        const uint32_t lanes = out[32] ? 32 : 64;
        for (uint32_t i = 0; i < 2048; i++)
            assert_int_equal(out[i], i % 1024 / lanes);
    }
}

static void test_globals(void **state) {
    (void)state;
    for (int l = 0; l < num_levels; l++) {
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

/** Returns how often the writer changes in the list of t_turns. */
static int count_changes(int level) {
    uint32_t list[129] = {0};
    void *d = device_alloc(sizeof list, list);
    OK(launch(kernel(modules[level], "t_turns"), 1, 128, nullptr, &d, sizeof d));
    take(list, d, sizeof list);
    assert_int_equal(list[0], 128);
    int changes = 0;
    for (int i = 2; i <= 128; i++)
        changes += list[i] != list[i - 1];
    return changes;
}

/** The waves of a workgroup stay in step, unless an option lets one run ahead of another. */
static void test_turns(void **state) {
    (void)state;
    for (int l = 0; l < num_levels; l++) {
        assert_true(count_changes(l) > 32);
        OK(hip.quernsim_configure("turn=100000"));
        assert_int_equal(count_changes(l), 1);
        OK(hip.quernsim_configure("turn=1"));
        assert_true(count_changes(l) > 100);
        OK(hip.quernsim_configure("turn=16"));
    }
}

/** A workgroup may have all of a chip's LDS, and not a byte more. */
static void test_lds_limit(void **state) {
    (void)state;
    int bytes;
    uint32_t count = 0;
    void *d = device_alloc(4, &count), *params[] = {&d};
    OK(hip.hipDeviceGetAttribute(&bytes, hipDeviceAttributeMaxSharedMemoryPerBlock, device));
    assert_int_equal(bytes, strstr(levels[0], "gfx950") ? 163840 : 65536);
    hipFunction_t f = kernel(modules[0], "t_count");
    OK(hip.hipModuleLaunchKernel(f, 2, 1, 1, 70, 1, 1, (unsigned)bytes, nullptr, params, nullptr));
    assert_int_equal(hip.hipModuleLaunchKernel(f, 2, 1, 1, 70, 1, 1, (unsigned)bytes + 1, nullptr,
                                               params, nullptr),
                     hipErrorInvalidValue);
    take(&count, d, 4);
    assert_int_equal(count, 140);
}

/** The chips' devices, in the order of QUERN_SIM below. */
static const struct {
    const char *chip, *levels[NUM_LEVELS];
    int num_levels;
} devices[] = {{"gfx942", {"O0", "O1", "O3", "v4", "preload"}, 5},
               {"gfx90a", {"gfx90a.O0", "gfx90a.O3"}, 2},
               {"gfx950", {"gfx950.O0", "gfx950.O3"}, 2},
               {"gfx1151", {"gfx1151.O0", "gfx1151.O3"}, 2},
               {"gfx1201", {"gfx1201.O0", "gfx1201.O3", "gfx1201.wave64"}, 3}};

static void use_device(int d) {
    OK(hip.hipSetDevice(d));
    device = d;
    levels = devices[d].levels;
    num_levels = devices[d].num_levels;
    reset();
}

int main(void) {
    setenv("QUERN_SIM", "arch=gfx942,gfx90a,gfx950,gfx1151,gfx1201", true);
    open_library();
    int failed = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ids, start),
        cmocka_unit_test_setup(test_collatz, start),
        cmocka_unit_test_setup(test_reduce, start),
        cmocka_unit_test_setup(test_int64, start),
        cmocka_unit_test_setup(test_axpy, start),
        cmocka_unit_test_setup(test_stack, start),
        cmocka_unit_test_setup(test_partial_waves, start),
        cmocka_unit_test_setup(test_wave_numbers, start),
        cmocka_unit_test_setup(test_turns, start),
        cmocka_unit_test_setup(test_globals, start),
        cmocka_unit_test_setup(test_lds_limit, start),
    };
    for (int d = 0; d < (int)(sizeof devices / sizeof *devices); d++) {
        use_device(d);
        failed += cmocka_run_group_tests_name(devices[d].chip, tests, nullptr, nullptr);
    }
    return failed;
}
