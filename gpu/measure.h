// SPDX-License-Identifier: Apache-2.0
// What probes need of a target: its clocks, and which generation of CDNA's instructions it has.
#ifndef QD_MEASURE_H
#define QD_MEASURE_H

#include "gpu.h"

#if defined(__gfx950__)
#define QD_IS_CDNA4 1
#else
#define QD_IS_CDNA4 0
#endif

/** Returns the cycles of the shader clock since some moment. */
QD_INLINE uint64_t qd_cycles(void) {
    return __builtin_readcyclecounter();
}

/** Returns the ticks of a clock that no load changes since some moment: on AMD's cards 100 million
 *  a second. */
QD_INLINE uint64_t qd_ticks(void) {
    return __builtin_readsteadycounter();
}

#endif
