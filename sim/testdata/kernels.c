// SPDX-License-Identifier: Apache-2.0
// Kernels for the simulator's tests: what compilers make of loops, divergence, LDS, barriers, calls
// and stacks. hip/kernels_test.c does these computations on the host.
#include <gpuintrin.h>
#include <stdint.h>

#define KERNEL __attribute__((amdgpu_kernel)) void
#define PUBLIC __attribute__((visibility("protected")))
#define LOCAL __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))

static uint32_t global_id(void) {
    return __gpu_block_id_x() * __gpu_num_threads_x() + __gpu_thread_id_x();
}

/** out[i] = i, for every work-item of a three-dimensional launch, by its global ids. */
KERNEL t_ids(uint32_t GLOBAL *out) {
    const uint32_t x = __gpu_block_id_x() * __gpu_num_threads_x() + __gpu_thread_id_x();
    const uint32_t y = __gpu_block_id_y() * __gpu_num_threads_y() + __gpu_thread_id_y();
    const uint32_t z = __gpu_block_id_z() * __gpu_num_threads_z() + __gpu_thread_id_z();
    const uint32_t width = __gpu_num_blocks_x() * __gpu_num_threads_x();
    const uint32_t height = __gpu_num_blocks_y() * __gpu_num_threads_y();
    out[(z * height + y) * width + x] = x | y << 10 | z << 20;
}

/** Runs a loop whose length differs from lane to lane. */
KERNEL t_collatz(uint32_t GLOBAL *steps, const uint32_t GLOBAL *start, uint32_t count) {
    const uint32_t i = global_id();
    if (i >= count)
        return;
    uint32_t n = start[i], s = 0;
    while (n > 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        s++;
    }
    steps[i] = s;
}

/** __gpu_sync_threads of clang 22 has no fence before its barrier, so that stores to LDS may still
 *  be on their way. */
static void sync_threads(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/** The sum of each workgroup's 256 values, by halves through LDS. */
KERNEL t_reduce(float GLOBAL *sums, const float GLOBAL *x) {
    [[clang::loader_uninitialized]] static LOCAL float part[256];
    const uint32_t t = __gpu_thread_id_x();
    part[t] = x[global_id()];
    for (uint32_t half = 128; half; half /= 2) {
        sync_threads();
        if (t < half)
            part[t] += part[t + half];
    }
    if (t == 0)
        sums[__gpu_block_id_x()] = part[0];
}

/** 64-bit integers: multiply, shift, compare, divide by a variable. */
KERNEL t_int64(uint64_t GLOBAL *out, const uint64_t GLOBAL *a, const uint64_t GLOBAL *b) {
    const uint32_t i = global_id();
    const uint64_t x = a[i], y = b[i];
    uint64_t r = x * y + (x >> (y & 63)) - (y << (x & 63));
    r ^= (int64_t)x < (int64_t)y ? ~x : x / (y | 1);
    out[i] = r;
}

/** A struct by value, doubles and floats, a select. */
typedef struct axpy {
    double scale;
    float bias;
    uint32_t count;
    float GLOBAL *y;
    const float GLOBAL *x;
} axpy;

KERNEL t_axpy(axpy args, uint32_t step) {
    for (uint32_t i = global_id(); i < args.count; i += step) {
        const float v = (float)(args.scale * args.x[i]);
        args.y[i] = v < 0 ? args.bias - v : args.bias + v;
    }
}

/** Calls and an array indexed by a variable: a stack in scratch memory. */
__attribute__((noinline)) static uint32_t weigh(const uint32_t *digits, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += digits[i] * (i + 1);
    return sum;
}

KERNEL t_stack(uint32_t GLOBAL *out, const uint32_t GLOBAL *in) {
    uint32_t digits[10], v = in[global_id()], n = 0;
    do {
        digits[n++] = v % 10;
        v /= 10;
    } while (v);
    out[global_id()] = weigh(digits, n);
}

/** The wave's number in its workgroup, from where the hardware has it: ttmp8 on gfx12. */
KERNEL t_wave(uint32_t GLOBAL *out) {
#ifdef __GFX12__
    uint32_t wave;
    __asm__("s_bfe_u32 %0, ttmp8, 0x50019" : "=s"(wave));
#else
    const uint32_t wave = __gpu_thread_id_x() / __builtin_amdgcn_wavefrontsize();
#endif
    out[global_id()] = wave;
}

/** Module variables, one of them a table that a relocation fills in. */
PUBLIC uint32_t GLOBAL counter = 7;
static uint32_t GLOBAL three = 3, five = 5;
PUBLIC uint32_t GLOBAL *GLOBAL table[2] = {&three, &five};

KERNEL t_globals(uint32_t GLOBAL *out) {
    out[0] = counter++ * *table[0] * *table[1];
}

/** Counts the work-items that run. */
KERNEL t_count(uint32_t GLOBAL *count) {
    __scoped_atomic_fetch_add(count, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/** Two waves append their numbers to a list, 64 times each. list[0] counts. */
KERNEL t_turns(uint32_t GLOBAL *list) {
    const uint32_t id = __gpu_thread_id_x();
    for (int i = 0; id % 64 == 0 && i < 64; i++) {
        list[1 + __scoped_atomic_fetch_add(list, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)] =
            id / 64;
    }
}

/** Stores far beyond its buffer when asked to. */
KERNEL t_wild(uint32_t GLOBAL *out, uint64_t offset) {
    if (__gpu_thread_id_x() == 5)
        out[offset] = 1;
}

/** Reads through a pointer that may be anything. */
KERNEL t_peek(uint32_t GLOBAL *out, const uint32_t GLOBAL *from) {
    out[0] = from[0];
}

/** Runs until the host, or another kernel, sets the flag. */
KERNEL t_spin(const volatile uint32_t GLOBAL *flag) {
    while (!*flag) {
    }
}

KERNEL t_set(volatile uint32_t GLOBAL *flag) {
    *flag = 1;
}

/** Half of the waves come to one barrier, half to another. */
KERNEL t_two_barriers(uint32_t GLOBAL *out) {
    if (__builtin_amdgcn_readfirstlane((int)__gpu_thread_id_x()) < 64) {
        __builtin_amdgcn_s_barrier();
        out[0] = 1;
    } else {
        out[1] = 1;
        __builtin_amdgcn_s_barrier();
    }
}
