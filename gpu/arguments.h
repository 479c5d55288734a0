// SPDX-License-Identifier: Apache-2.0
// A kernel's arguments on gfx9, for kernels that run for few microseconds.
#ifndef QD_ARGUMENTS_H
#define QD_ARGUMENTS_H

#include "gpu.h"

/** Brings the first 256 bytes of the arguments, of which the last 60 need not exist, to the
 *  scalar cache at one time: the compiler's loads stand one behind the other, each with a wait for
 *  memory. To be called before anything else. */
QD_INLINE void qd_touch_arguments(void) {
    uint32_t line[4];
    asm volatile("s_load_dword %0, %4, 0x0\n\ts_load_dword %1, %4, 0x40\n\t"
                 "s_load_dword %2, %4, 0x80\n\ts_load_dword %3, %4, 0xc0\n\t"
                 "s_waitcnt lgkmcnt(0)"
                 : "=&s"(line[0]), "=&s"(line[1]), "=&s"(line[2]), "=&s"(line[3])
                 : "s"(__builtin_amdgcn_kernarg_segment_ptr()));
}

#endif
