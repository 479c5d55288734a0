// SPDX-License-Identifier: Apache-2.0
// Copies between memory and LDS that bypass registers on NVIDIA: boxes of tensors and runs of bytes
// by the copy engine (sm_90a), single elements or 16 bytes by a lane.
//
// A kernel has its tensor maps (qk_tensor_map) at the begin of its one struct, and names them by
// their generic address: QD_ARGUMENTS(entry) plus the map's offset. Coordinates are in elements,
// innermost first. One thread starts a copy; the barrier that it names counts the bytes. Source:
// PTX ISA 8.0, cp.async.bulk.
#ifndef QD_TENSOR_COPY_H
#define QD_TENSOR_COPY_H

#include "mbarrier.h"

/** The generic address of the kernel's struct. `&args.map` in C makes clang copy the struct to
 *  scratch, which the copy engine cannot read; in PTX clang names the struct ENTRY_param_0. */
#define QD_ARGUMENTS(entry)                                                                        \
    ({                                                                                             \
        uint64_t at_;                                                                              \
        asm("{.reg .b64 p; mov.b64 p, " #entry "_param_0; cvta.param.u64 %0, p;}" : "=l"(at_));    \
        at_;                                                                                       \
    })

QD_INLINE void qd_tensor_prefetch(uint64_t map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/** Has the line of memory at p come to L2. */
QD_INLINE void qd_prefetch(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"((uint64_t)p));
}
/** Copies a box of a tensor of rank 2 to LDS. */
QD_INLINE void qd_tensor_load2(uint32_t to, uint64_t map, uint32_t bar, uint32_t x, uint32_t y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}
/** As qd_tensor_load2, of rank 3. */
QD_INLINE void qd_tensor_load3(uint32_t to, uint64_t map, uint32_t bar, uint32_t x, uint32_t y,
                               uint32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
/** As qd_tensor_load2, of rank 4. */
QD_INLINE void qd_tensor_load4(uint32_t to, uint64_t map, uint32_t bar, uint32_t x, uint32_t y,
                               uint32_t z, uint32_t w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
/** Copies `bytes` to LDS: a multiple of 16, as both addresses are. */
QD_INLINE void qd_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to),
                 "l"((uint64_t)from), "r"(bytes), "r"(bar)
                 : "memory");
}
/** Copies 4 bytes to LDS, by this lane; zeros unless `is_in`. */
QD_INLINE void qd_copy_f32(uint32_t to, const float *from, bool is_in) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"((uint64_t)from),
                 "r"(is_in ? 4 : 0)
                 : "memory");
}

/** Copies 16 bytes, at multiples of 16, to LDS by this lane; zeros unless `is_in`. */
QD_INLINE void qd_copy16(uint32_t to, const void *from, bool is_in) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"((uint64_t)from), "r"(is_in ? 16 : 0)
                 : "memory");
}
/** Makes the lane's copies since its last commit a group. */
QD_INLINE void qd_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/** Waits for the lane's copies, but for those of the last group. */
QD_INLINE void qd_copy_wait_before_last(void) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/** Waits for all of the lane's copies. */
QD_INLINE void qd_copy_wait(void) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/** Copies a box from LDS to a tensor of rank 2. */
QD_INLINE void qd_tensor_store2(uint64_t map, uint32_t from, uint32_t x, uint32_t y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 "\n\tcp.async.bulk.commit_group;" ::"l"(map),
                 "r"(from), "r"(x), "r"(y)
                 : "memory");
}
/** As qd_tensor_store2, of rank 3. */
QD_INLINE void qd_tensor_store3(uint64_t map, uint32_t from, uint32_t x, uint32_t y, uint32_t z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 "\n\tcp.async.bulk.commit_group;" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
/** As qd_tensor_store2, of rank 4. */
QD_INLINE void qd_tensor_store4(uint64_t map, uint32_t from, uint32_t x, uint32_t y, uint32_t z,
                                uint32_t w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], "
                 "[%1];\n\tcp.async.bulk.commit_group;" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}
/** Waits until this thread's stores have read their LDS; what they write may be on its way. */
QD_INLINE void qd_tensor_store_wait(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/** What this thread stored to LDS is seen by copies and matrix instructions that start after the
 *  next barrier. */
QD_INLINE void qd_async_fence(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
