// SPDX-License-Identifier: Apache-2.0
// Measures the most f32 FMAs that threads do at one time in 256-bit registers. bench/peers.py
// compiles this file and compares AVX2 kernels with the measurement.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

typedef float vec __attribute__((vector_size(32)));

enum { CHAINS = 12 }; // more than two FMAs a cycle of four or five cycles each need

static void *multiply(void *turns) {
    vec sums[CHAINS] = {0}, x = (vec){0} + 0.5f;
    for (long i = 0; i < *(long *)turns; i++)
#pragma clang loop unroll(full)
        for (int c = 0; c < CHAINS; c++) {
            sums[c] = __builtin_elementwise_fma(sums[c], x, x);
            __asm__ volatile("" : "+x"(sums[c])); // keeps the compiler from leaving FMAs out
        }
    return nullptr;
}

/** Returns the `i`-th of the allowed processors without `home`. A thread that is left to the
 *  scheduler may share the caller's processor for as long as it lives. */
static cpu_set_t other_processor(cpu_set_t allowed, int home, int i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && i >= 0; cpu++)
        if (CPU_ISSET(cpu, &allowed) && cpu != home && i-- == 0)
            CPU_SET(cpu, &one);
    return CPU_COUNT(&one) ? one : allowed;
}

/** Keeps the calling thread on the processor that it is on. */
static int stay(void) {
    const int home = sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(home, &one);
    sched_setaffinity(0, sizeof one, &one);
    return home;
}

/** Runs `turns` of the chains on each of `threads` (at most 64) and returns the operations done:
 *  two for each FMA. */
double fma_peak(int threads, long turns) {
    pthread_t others[64];
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int made = 0, home = stay();
    for (; made + 1 < threads; made++) {
        pthread_attr_t attributes;
        cpu_set_t processor = other_processor(allowed, home, made);
        pthread_attr_init(&attributes);
        pthread_attr_setaffinity_np(&attributes, sizeof processor, &processor);
        if (pthread_create(&others[made], &attributes, multiply, &turns) != 0)
            break;
        pthread_attr_destroy(&attributes);
    }
    multiply(&turns);
    for (int i = 0; i < made; i++)
        pthread_join(others[i], nullptr);
    sched_setaffinity(0, sizeof allowed, &allowed);
    return 2.0 * CHAINS * 8 * (double)turns * (made + 1);
}
