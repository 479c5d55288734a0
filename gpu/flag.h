// SPDX-License-Identifier: Apache-2.0
// Flags in memory, by which a workgroup hands data to another of the same launch.
//
// Needs     sm_70
#ifndef QD_FLAG_H
#define QD_FLAG_H

#include "gpu.h"

/** Sets a flag; one thread. What its workgroup wrote before it last met is there for whoever sees
 *  the flag. */
QD_INLINE void qd_flag_set(uint64_t *flag, uint64_t value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

/** Waits until a flag has a value; one thread. */
QD_INLINE void qd_flag_wait(const uint64_t *flag, uint64_t value) {
    uint64_t now;
    do
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(flag) : "memory");
    while (now != value);
}

#endif
