// SPDX-License-Identifier: Apache-2.0
// Runs of bytes from LDS to memory by the copy engine, which can also add them to what is there
// (sm_90a).
//
// One thread starts copies, and waits for its own. Copies and flags (flag.h) go different ways to
// memory: qd_async_fence_all stands between one and the other, in either order. Source: PTX ISA
// 8.0, cp.reduce.async.bulk, fence.proxy.
#ifndef QD_BULK_ADD_H
#define QD_BULK_ADD_H

#include "gpu.h"

/** Copies `bytes` from LDS: a multiple of 16, as both addresses are. */
QD_INLINE void qd_bulk_store(void *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 "\n\tcp.async.bulk.commit_group;" ::"l"((uint64_t)to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
/** As qd_bulk_store, but adds f32 to those in memory. Where two such sums meet, their order is that
 *  in which they come. */
QD_INLINE void qd_bulk_add_f32(void *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 "\n\tcp.async.bulk.commit_group;" ::"l"((uint64_t)to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
/** Waits until what this thread's copies write is in memory. */
QD_INLINE void qd_bulk_wait_written(void) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
QD_INLINE void qd_async_fence_all(void) {
    asm volatile("fence.proxy.async;" ::: "memory");
}

#endif
