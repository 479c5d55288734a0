// SPDX-License-Identifier: Apache-2.0
// Barriers in LDS that count waves and bytes, and barriers of some of a workgroup's waves (sm_90a).
//
// LDS is named by its 32-bit address there (qd_lds_address), which is what these instructions take.
// A barrier has phases, numbered from 0: one ends when all arrivals and all expected bytes are in.
// Source: PTX ISA 8.0, mbarrier.
#ifndef QD_MBARRIER_H
#define QD_MBARRIER_H

#include "gpu.h"

QD_INLINE uint32_t qd_lds_address(const QD_LDS void *p) {
    return (uint32_t)(uintptr_t)p;
}
QD_INLINE float qd_lds_f32(uint32_t at) {
    return *(const QD_LDS float *)(uintptr_t)at;
}

/** Makes a barrier, 8 bytes, whose phases end after so many arrivals. One thread calls this; then
 *  qd_mbarrier_init_fence, before the workgroup or the cluster meets. */
QD_INLINE void qd_mbarrier_init(uint32_t bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
QD_INLINE void qd_mbarrier_init_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

QD_INLINE void qd_mbarrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/** Arrives, and says how many bytes copies will bring in this phase. */
QD_INLINE void qd_mbarrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
/** Arrives when this thread's copies by qd_copy_f32 and qd_copy16 have landed. */
QD_INLINE void qd_mbarrier_arrive_copies(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

/** Waits for the end of the phase whose number is odd or even as `parity`. A fresh barrier counts
 *  as having ended an odd one. */
QD_INLINE void qd_mbarrier_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{.reg .pred done;\n"
                 "AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra AGAIN_%=;}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
/** Returns whether that phase has ended. */
QD_INLINE bool qd_mbarrier_test(uint32_t bar, uint32_t parity) {
    uint32_t is_done;
    asm volatile("{.reg .pred done; mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2; "
                 "selp.u32 %0, 1, 0, done;}"
                 : "=r"(is_done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return is_done;
}

/** Where a thread is in a ring of barriers or of what they guard: the next one, and the parity of
 *  the phase that it waits for. */
typedef struct qd_ring {
    uint32_t at, parity;
} qd_ring;

QD_INLINE void qd_ring_advance(qd_ring *r, uint32_t count) {
    r->at++;
    if (r->at == count) {
        r->at = 0;
        r->parity ^= 1;
    }
}

/** Makes `threads` threads of the workgroup, whole waves, meet at barrier `id`, 1 to 15. */
QD_INLINE void qd_team_barrier(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif
