// SPDX-License-Identifier: Apache-2.0
// The limits beside which bench shows its figures. On the CPU a loop that does nothing else
// measures each limit, on as many threads as the library uses; a GPU's limits come from its data
// sheet.
#include "limits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

constexpr int num_chains = 12, num_loops = 100'000, max_threads = 256;

/** Keeps a value without storing it, so that the compiler does not remove the loop that made
 *  it. */
#define KEEP(value) __asm__ volatile("" : : "x"(value))

// ---- arithmetic: num_chains independent sums hide each other's latency. Each function returns its
// operations.

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bf16"))) static double spin_avx512bf16(void) {
    __m512 sum[num_chains] = {0};
    __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3F80);
    for (int i = 0; i < num_loops; i++) {
#pragma clang loop unroll(full)
        for (int c = 0; c < num_chains; c++) {
            sum[c] = _mm512_dpbf16_ps(sum[c], ones, ones);
            __asm__ volatile("" : "+v"(sum[c])); // keeps twelve registers, not one
        }
    }
    return 64.0 * num_loops * num_chains;
}

__attribute__((target("avx512f"))) static double spin_avx512(void) {
    __m512 sum[num_chains] = {0}, ones = _mm512_set1_ps(1);
    for (int i = 0; i < num_loops; i++) {
#pragma clang loop unroll(full)
        for (int c = 0; c < num_chains; c++) {
            sum[c] = _mm512_fmadd_ps(ones, ones, sum[c]);
            __asm__ volatile("" : "+v"(sum[c]));
        }
    }
    return 32.0 * num_loops * num_chains;
}

__attribute__((target("avx2,fma"))) static double spin_avx2(void) {
    __m256 sum[num_chains] = {0}, ones = _mm256_set1_ps(1);
    for (int i = 0; i < num_loops; i++) {
#pragma clang loop unroll(full)
        for (int c = 0; c < num_chains; c++) {
            sum[c] = _mm256_fmadd_ps(ones, ones, sum[c]);
            __asm__ volatile("" : "+x"(sum[c]));
        }
    }
    return 16.0 * num_loops * num_chains;
}
#endif

typedef double (*spin_fn)(void);

static spin_fn choose_spin(const char **name) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16")) {
        *name = "AVX-512 BF16";
        return spin_avx512bf16;
    }
    if (__builtin_cpu_supports("avx512f")) {
        *name = "AVX-512";
        return spin_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *name = "AVX2";
        return spin_avx2;
    }
#endif
    *name = "none";
    return nullptr;
}

// ---- threads

constexpr int read_bytes = 128 << 20; // for each thread; more than any cache holds

typedef struct worker {
    pthread_t thread;
    spin_fn spin;
    const uint64_t *memory; // null: arithmetic
    double rate;            // a second, in the fastest of five rounds
} worker;

static double read_memory(const uint64_t *memory) {
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < read_bytes / 8; i += 8)
        for (int c = 0; c < 8; c++)
            sum[c] |= memory[i + (size_t)c];
    for (int c = 0; c < 8; c++)
        KEEP((double)sum[c]);
    return read_bytes;
}

static void *work(void *context) {
    worker *w = context;
    for (int round = 0; round < 5; round++) {
        const int64_t start = cli_now_ns();
        const double done = w->memory ? read_memory(w->memory) : w->spin();
        const double rate = done * 1e9 / (double)(cli_now_ns() - start);
        w->rate = rate > w->rate ? rate : w->rate;
    }
    return nullptr;
}

/** Returns the sum of the rates of all threads that run at once. */
static double run_workers(int threads, spin_fn spin, const uint64_t *memory) {
    worker *workers = cli_alloc((size_t)threads * sizeof *workers);
    double rate = 0;
    int started = 0;
    for (; started < threads; started++) {
        worker *w = &workers[started];
        w->spin = spin;
        w->memory = memory ? memory + (size_t)started * (read_bytes / 8) : nullptr;
        if (pthread_create(&w->thread, nullptr, work, w) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, nullptr);
        rate += workers[i].rate;
    }
    free(workers);
    return rate;
}

static void measure_cpu(cli_limits *out, int threads) {
    static char source[96];
    const char *name;
    threads = threads < max_threads ? threads : max_threads;
    spin_fn spin = choose_spin(&name);
    const size_t bytes = (size_t)threads * read_bytes;
    uint64_t *memory = cli_alloc(bytes);
    memset(memory, 1, bytes); // pages of its own, not the one page of zeros
    out->flops = spin ? run_workers(threads, spin, nullptr) : 0;
    out->bf16_flops = out->flops; // the CPU turns FP8 into bf16
    out->read_bytes = run_workers(threads, nullptr, memory);
    free(memory);
    snprintf(source, sizeof source, "measured on %d thread%s, arithmetic with %s", threads,
             threads == 1 ? "" : "s", name);
    out->source = source;
}

/** Rates of AMD's GPUs: matrix operations of FP8 (gfx90a, gfx1151: of bf16) and of bf16 for each
 *  compute unit and clock, and bytes a second. Source: AMD's data sheets of MI250X, of which a die
 *  is a device, MI300X, MI355X, Ryzen AI Max+ 395, Radeon RX 9070 XT. */
static const struct {
    const char *arch;
    double flops_per_clock, bf16_flops_per_clock, read_bytes;
} gpus[] = {{"gfx90a", 1024, 1024, 1.6e12},
            {"gfx942", 4096, 2048, 5.3e12},
            {"gfx950", 8192, 4096, 8.0e12},
            {"gfx1151", 512, 512, 0.256e12},
            {"gfx1201", 2048, 1024, 0.640e12}};

/** Rates of NVIDIA's GPUs, by the driver's name: matrix operations of FP8 (A100: of bf16, into
 *  which FP8 is turned) and of bf16 a second, without sparsity, and bytes a second. A part of a
 *  card (MIG) has another name. Source: NVIDIA's data sheets of A100, H100 and H200, the SXM
 *  forms. */
static const struct {
    const char *name;
    double flops, bf16_flops, read_bytes;
} cards[] = {{"NVIDIA A100-SXM4-40GB", 312e12, 312e12, 1.555e12},
             {"NVIDIA A100-SXM4-80GB", 312e12, 312e12, 2.039e12},
             {"NVIDIA H100 80GB HBM3", 1978.9e12, 989.4e12, 3.35e12},
             {"NVIDIA H200", 1978.9e12, 989.4e12, 4.8e12}};

/** Sets the limits of a GPU whose architecture is in the table. */
static void take_gpu(cli_limits *out, const qn_device_info *info) {
    const double clocks = info->num_compute_units * (double)info->clock_khz * 1e3;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (strcmp(gpus[i].arch, info->arch) == 0)
            *out = (cli_limits){.flops = gpus[i].flops_per_clock * clocks,
                                .bf16_flops = gpus[i].bf16_flops_per_clock * clocks,
                                .read_bytes = gpus[i].read_bytes,
                                .source = "data sheet"};
}

/** Sets the limits of a GPU whose name is in the table. */
static void take_card(cli_limits *out, const qn_device_info *info) {
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
        if (strcmp(cards[i].name, info->name) == 0)
            *out = (cli_limits){.flops = cards[i].flops,
                                .bf16_flops = cards[i].bf16_flops,
                                .read_bytes = cards[i].read_bytes,
                                .source = "data sheet"};
}

void cli_limits_get(cli_limits *out, const qn_device_info *info) {
    *out = (cli_limits){.source = "not known"};
    if (info->wave_size == 1) {
        measure_cpu(out, info->num_compute_units);
        return;
    }
    take_gpu(out, info);
    take_card(out, info);
}

cli_unit cli_flops_unit(const qn_device_info *info) {
    return info->wave_size == 1 ? (cli_unit){"GFLOP/s", 1e9, 1} : (cli_unit){"TFLOP/s", 1e12, 2};
}
