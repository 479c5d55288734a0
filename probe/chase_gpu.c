// SPDX-License-Identifier: Apache-2.0
// The latency of memory: a wave follows a ring of offsets, each of which it has to load before it
// knows the next.
//
// Needs     s_memtime and s_memrealtime; a scalar base for vector loads
// Launch    one wave, whose lanes all follow the same ring
// Edges     steps are a multiple of 64; those beyond the ring go round again
#include "measure.h"
#include "probe_abi.h"

enum {
    UNROLLED = 64
}; // what a turn of the loop takes beside its loads is then too little to matter

QD_INLINE uint32_t follow(const uint8_t *ring, uint32_t at, uint32_t steps) {
    QD_NO_UNROLL for (uint32_t i = 0; i < steps / UNROLLED; i++)
        asm volatile(".rept 64\n global_load_dword %0, %0, %1\n s_waitcnt vmcnt(0)\n .endr"
                     : "+v"(at)
                     : "s"(ring)
                     : "memory");
    return at;
}

QD_KERNEL(QD_WAVE) qk_probe_chase(const qk_chase_args g) {
    uint32_t at = follow(g.ring, 0, g.warm);
    at = follow(g.ring, at, UNROLLED); // the loop's instructions are there
    const qk_moment begin = {qd_cycles(), qd_ticks()};
    at = follow(g.ring, qd_opaque(at), g.steps);
    const qk_moment end = {qd_cycles(), qd_ticks()};
    if (qd_lane() == 0) {
        g.out[0] = begin;
        g.out[1] = end;
        g.out[2].cycles = at; // that nothing may be left out
    }
}
