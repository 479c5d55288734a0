// SPDX-License-Identifier: Apache-2.0
// Brings a kernel's own code to the second level of cache before it is executed.
//
// A launch finds its code in memory, or in the cache at memory's side, and a wave that comes to the
// end of a line waits for the next one or two: 16 KiB take twenty to thirty microseconds so, one
// line after the other. Asked for at once they take one.
#ifndef QD_CODE_H
#define QD_CODE_H

#include "gpu.h"

#if defined(__AMDGPU__)
/** Defines `name` as the end of the code before it. It stands behind the file's last kernel. */
#define QD_CODE_END(name)                                                                          \
    __attribute__((used, noinline)) static void name(void) {                                       \
        __builtin_amdgcn_sched_barrier(0);                                                         \
    }
#define QD_ASK_FOR_CODE(name)                                                                      \
    do {                                                                                           \
        if (qd_block() < QD_XCDS && qd_wave() == 0)                                                \
            qd_ask_for_code((uint64_t)(uintptr_t)&name);                                           \
    } while (0)
enum { QD_XCDS = 8 };
/** Asks again for the code from here on, in every workgroup: data that went by since have driven it
 *  out. The workgroup's waves must meet behind this. */
#define QD_ASK_FOR_CODE_AGAIN(name)                                                                \
    do {                                                                                           \
        if (qd_wave() == 0)                                                                        \
            qd_ask_for_code((uint64_t)(uintptr_t)&name);                                           \
    } while (0)

/** Asks for the code from here to `end`, up to 32 KiB, a line for each lane, and waits until it is
 *  there. One wave of the first workgroup of each XCD does so: QD_XCDS are the most that there are,
 *  and workgroups go to them in turn. Others find its lines. */
QD_INLINE void qd_ask_for_code(uint64_t end) {
    enum { LINE = 128, STEPS = 32768 / (QD_WAVE * LINE) };
    typedef const __attribute__((address_space(1))) uint32_t *code;
    uint64_t begin; // the builtin may be computed once for two places, or twice for one
    uint32_t words = 0;
    asm volatile("s_getpc_b64 %0" : "=s"(begin));
    if (end - begin > UINT32_MAX) // the end stands elsewhere
        return;
    QD_UNROLL for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t at = qd_min((i * QD_WAVE + qd_lane()) * LINE, (uint32_t)(end - begin));
        words |= *(code)((begin + at) & ~UINT64_C(3));
    }
    asm volatile("" : : "v"(words));
}
#else
#define QD_CODE_END(name)                                                                          \
    __attribute__((unused)) static void name(void) {}
#define QD_ASK_FOR_CODE(name) ((void)0) // NVIDIA's code cannot be read
#define QD_ASK_FOR_CODE_AGAIN(name) ((void)0)
#endif

#endif
