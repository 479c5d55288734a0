// SPDX-License-Identifier: Apache-2.0
// A cluster: workgroups side by side that run at the same time and reach each other's LDS (sm_90a).
// Elsewhere a workgroup is a cluster of its own, so that one source has both.
//
// A kernel's head says how large its clusters are (QD_CLUSTER). Another workgroup's LDS may be
// reached between the first and the last time that the cluster meets. Source: PTX ISA 8.0, mapa,
// barrier.cluster, cp.async.bulk.
#ifndef QD_CLUSTER_H
#define QD_CLUSTER_H

#include "gpu.h"

enum { QD_CLUSTER_MOST = 8 }; // workgroups

/** A number that each workgroup of a cluster tells all others, once in a launch. In LDS. Copies
 *  take 16 bytes, at multiples of 16. */
typedef struct qd_told {
    alignas(16) uint64_t of[QD_CLUSTER_MOST][2];
    uint64_t mine[QD_CLUSTER_MOST][2];
    uint64_t barrier;
} qd_told;

#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900

#include "mbarrier.h"

/** Where something in a workgroup's LDS is, for loads and stores of its cluster. */
typedef uint32_t qd_cluster_address;

/** Returns the workgroup's place in its cluster. */
QD_INLINE uint32_t qd_cluster_rank(void) {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/** Makes all waves of the cluster meet. What they wrote before is visible to all of them after. */
QD_INLINE void qd_cluster_barrier(void) {
    __nvvm_barrier_cluster_arrive();
    __nvvm_barrier_cluster_wait();
}

/** Says that this wave has come to a point; qd_cluster_wait waits until all have. So a cluster
 *  begins and ends: LDS of others is there from the first such point to the last. */
QD_INLINE void qd_cluster_arrive(void) {
    __nvvm_barrier_cluster_arrive_relaxed();
}
QD_INLINE void qd_cluster_wait(void) {
    __nvvm_barrier_cluster_wait();
}

/** Returns where workgroup `rank` of the cluster has what this one has at p. */
QD_INLINE qd_cluster_address qd_cluster_at(const QD_LDS void *p, uint32_t rank) {
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"((uint32_t)(uintptr_t)p), "r"(rank));
    return at;
}

QD_INLINE uint64_t qd_cluster_load64(qd_cluster_address at) {
    uint64_t x;
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(x) : "r"(at) : "memory");
    return x;
}
QD_INLINE void qd_cluster_store64(qd_cluster_address at, uint64_t x) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(at), "l"(x) : "memory");
}
QD_INLINE void qd_cluster_store32(qd_cluster_address at, uint32_t x) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

/** Makes told ready; one thread, before the cluster meets first. */
QD_INLINE void qd_told_init(QD_LDS qd_told *told) {
    qd_mbarrier_init(qd_lds_address(&told->barrier), 1);
    qd_mbarrier_init_fence();
}

/** Tells the cluster's `parts` workgroups x, which all threads have. Returns in lane p what
 *  workgroup p has told, in lanes behind them 0. Numbers go by the copy engine, so that nobody
 *  waits for other writes to be visible. */
QD_INLINE uint64_t qd_tell(QD_LDS qd_told *told, uint32_t parts, uint64_t x) {
    const uint32_t bar = qd_lds_address(&told->barrier), lane = qd_thread();
    if (lane < parts) {
        told->mine[lane][0] = x;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
            "[%0], [%1], 16, [%2];" ::"r"(qd_cluster_at(&told->of[qd_cluster_rank()], lane)),
            "r"(qd_lds_address(&told->mine[lane])), "r"(qd_cluster_at(&told->barrier, lane))
            : "memory");
    }
    if (lane == 0)
        qd_mbarrier_expect(bar, 16 * parts);
    qd_mbarrier_wait(bar, 0);
    return qd_lane() < parts ? told->of[qd_lane()][0] : 0;
}

#else

typedef QD_LDS void *qd_cluster_address;

QD_INLINE uint32_t qd_cluster_rank(void) {
    return 0;
}
QD_INLINE void qd_cluster_barrier(void) {
    qd_barrier();
}
QD_INLINE void qd_cluster_arrive(void) {}
QD_INLINE qd_cluster_address qd_cluster_at(const QD_LDS void *p, [[maybe_unused]] uint32_t rank) {
    return (qd_cluster_address)p;
}
QD_INLINE uint64_t qd_cluster_load64(qd_cluster_address at) {
    return *(const QD_LDS uint64_t *)at;
}
QD_INLINE void qd_cluster_store64(qd_cluster_address at, uint64_t x) {
    *(QD_LDS uint64_t *)at = x;
}
QD_INLINE void qd_cluster_store32(qd_cluster_address at, uint32_t x) {
    *(QD_LDS uint32_t *)at = x;
}
QD_INLINE uint64_t qd_tell(QD_LDS qd_told *, uint32_t, uint64_t x) {
    return qd_lane() == 0 ? x : 0;
}

#endif

#endif
