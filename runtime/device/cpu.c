// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: the processor's features, plain memory, streams that run in order on the
// caller.
//
// A CPU stream holds no queue: each call does its work before it returns, on the caller and the
// threads of threads.c. Syncing is therefore a no-op, and an event is the time at which it was
// recorded.
#include "../runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)

enum {               // XCR0: which registers the operating system saves
    XCR0_YMM = 0x06, // SSE and AVX state
    XCR0_ZMM = 0xe6, // and opmask, upper halves, upper sixteen
};

static uint64_t read_xcr0(void) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/** Returns the instructions that kernels may use: the processor has them and the system saves their
 *  registers. Bits as in the CPUID instruction's description (Intel SDM volume 2A, AMD APM volume
 *  3). */
static uint64_t cpu_features(void) {
    unsigned a, b, c, d, b7, c7, d7, a71, unused;
    uint64_t has = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return 0;
    if (!__get_cpuid_count(7, 1, &a71, &unused, &unused, &unused))
        a71 = 0;
    const uint64_t xcr0 = read_xcr0();
    const bool has_fma_f16c = (c & bit_FMA) && (c & bit_F16C);
    if ((xcr0 & XCR0_YMM) == XCR0_YMM && (b7 & bit_AVX2) && has_fma_f16c)
        has |= QNI_F(AVX2);
    constexpr unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if ((xcr0 & XCR0_ZMM) != XCR0_ZMM || (b7 & avx512) != avx512 || !has_fma_f16c)
        return has;
    has |= QNI_F(AVX512);
    if (a71 & bit_AVX512BF16)
        has |= QNI_F(AVX512_BF16);
    if (c7 & bit_AVX512VNNI)
        has |= QNI_F(AVX512_VNNI);
    if (c7 & bit_AVX512VBMI)
        has |= QNI_F(AVX512_VBMI);
    return has;
}

static void cpu_name(char *name, size_t room) {
    unsigned words[13] = {0}; // 48 characters and the terminating zero
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                         &words[4 * i + 3]))
            words[0] = 0;
    const char *text = (const char *)words;
    text += strspn(text, " ");
    snprintf(name, room, "%s", *text ? text : "x86-64");
    for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
        name[n - 1] = 0;
}

static const char *cpu_arch(uint64_t features) {
    if (features & QNI_F(AVX512_BF16))
        return qni_cpu_archs[0];
    if (features & QNI_F(AVX512))
        return qni_cpu_archs[1];
    return qni_cpu_archs[features & QNI_F(AVX2) ? 2 : 3];
}

#else

static uint64_t cpu_features(void) {
    return 0;
}

static void cpu_name(char *name, size_t room) {
    snprintf(name, room, "CPU");
}

static const char *cpu_arch(uint64_t) {
    return qni_cpu_archs[4];
}

#endif

static int64_t memory_bytes(void) {
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/** Returns the peak clock that Linux tells; 0 if it tells none, as on most virtual machines. */
static int32_t clock_khz(void) {
    int32_t khz = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &khz) != 1)
        khz = 0;
    fclose(f);
    return khz;
}

static void close_cpu(qn_device *) {}

static qn_status mem_alloc(qn_device *, void **out, int64_t bytes) {
    int64_t rounded;
    if (__builtin_add_overflow(bytes, 255, &rounded) ||
        !(*out = aligned_alloc(256, (size_t)(rounded & ~INT64_C(255)))))
        return QN_FAIL(QN_E_MEMORY, "malloc: out of memory: the system has no %ld bytes",
                       (long)bytes);
    return QN_OK;
}

static void mem_free(qn_device *, void *ptr) {
    free(ptr);
}

static qn_status copy(qn_stream *, void *dst, const void *src, int64_t bytes, qni_copy_kind) {
    memmove(dst, src, (size_t)bytes);
    return QN_OK;
}

static qn_status fill(qn_stream *, void *dst, uint8_t value, int64_t bytes) {
    memset(dst, value, (size_t)bytes);
    return QN_OK;
}

static qn_status stream_create(qn_device *, void **native) {
    *native = nullptr;
    return QN_OK;
}

static void stream_destroy(qn_device *, void *) {}

static qn_status stream_sync(qn_stream *) {
    return QN_OK;
}

typedef struct cpu_event {
    int64_t ns; // -1: not recorded yet
} cpu_event;

static qn_status event_create(qn_device *, void **native) {
    cpu_event *event = malloc(sizeof *event);
    if (!event)
        return QN_FAIL(QN_E_MEMORY, "event_create: out of memory");
    event->ns = -1;
    *native = event;
    return QN_OK;
}

static void event_destroy(qn_device *, void *native) {
    free(native);
}

static qn_status event_record(qn_event *event, qn_stream *) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ((cpu_event *)event->native)->ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    return QN_OK;
}

static qn_status event_sync(qn_event *) {
    return QN_OK;
}

static qn_status event_elapsed(int64_t *out_ns, qn_event *start, qn_event *end) {
    const cpu_event *from = start->native, *to = end->native;
    if (from->ns < 0 || to->ns < 0)
        return QN_FAIL(QN_E_INVALID, "event_elapsed: the %s event was never recorded",
                       from->ns < 0 ? "start" : "end");
    *out_ns = to->ns - from->ns;
    return QN_OK;
}

static const qni_backend cpu_backend = {
    .name = "cpu",
    .close = close_cpu,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
};

qn_status qni_cpu_open(qn_device *device, const char *arg) {
    if (*arg)
        return QN_FAIL(QN_E_INVALID, "device: \"cpu:%s\": there is one CPU device, \"cpu\"", arg);
    device->backend = &cpu_backend;
    device->features = cpu_features();
    device->id = (DLDevice){kDLCPU, 0};
    qn_device_info *info = &device->info;
    snprintf(info->spec, sizeof info->spec, "cpu");
    snprintf(info->arch, sizeof info->arch, "%s", cpu_arch(device->features));
    snprintf(info->driver, sizeof info->driver, "quern %s", QN_VERSION);
    cpu_name(info->name, sizeof info->name);
    info->memory_bytes = memory_bytes();
    info->num_compute_units = qni_num_threads();
    info->wave_size = 1;
    info->clock_khz = clock_khz();
    info->has_clock = 1;
    return QN_OK;
}
