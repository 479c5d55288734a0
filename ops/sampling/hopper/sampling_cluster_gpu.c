// SPDX-License-Identifier: Apache-2.0
// Functions on rows of sampling where a cluster of workgroups has a row and reads it from memory
// once.
//
// Needs     sm_90a; a row's part fits into QK_PART_BYTES
// Tile      a cluster of 8 workgroups has a row, each a part of it, which lies in LDS as it
//           lies in memory, by places in 16 bytes
// Launch    QK_THREADS threads, a cluster for each row
// LDS       the part; and, but for kernels without filters, 40 KiB: a histogram and a list
// Edges     run-time bounds; a part may have no elements
// Passes    as sampling_gpu.c's, over LDS. Workgroups tell each other their largest element and
//           their mass, and make histograms and lists those of the whole row
// Source    the same
#include "../sampling_abi.h"

#define QK_PARTS QK_SAMPLING_PARTS
#include "../sampling_rows_gpu.h"
#include "tensor_copy.h"

#define LDS_BYTES (QK_PART_BYTES + 16)
#define CLUSTER_OF(parts) QD_CLUSTER(parts) // QD_CLUSTER takes digits, no macro's name

/** Copies elements of the part that belong to no whole 16 bytes, one a lane. */
QD_INLINE void copy_edges(const row *r, QD_LDS uint8_t *to, uint32_t head, uint32_t inside) {
    if (qd_thread() >= r->count - inside)
        return;
    const uint32_t i = qd_thread() + (qd_thread() < head ? 0 : inside);
    if (r->dtype == QD_F32)
        ((QD_LDS uint32_t *)to)[i] = ((const uint32_t *)r->x)[i];
    else
        ((QD_LDS uint16_t *)to)[i] = ((const uint16_t *)r->x)[i];
}

/** Makes a row this workgroup's part of it, and copies the part to LDS; a row that is not there has
 *  no elements. */
QD_INLINE void take_part(row *r, bool exists) {
    const uint32_t bytes = r->dtype == QD_F32 ? 4 : 2;
    const uint32_t part = qk_sampling_part(r->count);
    r->first = qd_min(qd_cluster_rank() * part, r->count);
    r->count = exists ? qd_min(part, r->count - r->first) : 0;
    r->x = (const uint8_t *)r->x + r->first * bytes;
    QD_LDS uint8_t *const to = qd_launch_lds + (uintptr_t)r->x % 16;
    const uint32_t head = qd_min(r->count, (uint32_t)(-(uintptr_t)r->x % 16) / bytes);
    const uint32_t vectors = (r->count - head) * bytes / 16;
    copy_edges(r, to, head, vectors * 16 / bytes);
    for (uint32_t v = qd_thread(); v < vectors; v += THREADS)
        qd_copy16(qd_lds_address(to) + head * bytes + 16 * v,
                  (const uint8_t *)r->x + head * bytes + 16 * v, true);
    qd_copy_commit();
    qd_copy_wait();
    qd_barrier();
    r->x = (const void *)to;
}

/** Begins a launch: the workgroup's part of its row, in LDS, once the cluster's workgroups run. */
QD_INLINE row begin(const qk_sampling_args *g, const qk_sampling_row *f, uint32_t b, bool *exists) {
    if (qd_thread() < NUM_TOLD)
        qd_told_init(&told[qd_thread()]);
    qd_barrier();
    qd_cluster_arrive();
    row r = row_of(g, f, b, exists);
    take_part(&r, *exists);
    qd_cluster_wait();
    return r;
}

QD_INLINE void run(const qk_sampling_args *g, bool takes_filters) {
    qd_begin();
    const uint32_t b = qd_block() / PARTS;
    const qk_sampling_row f = qk_sampling_row_of(g, b);
    bool exists;
    row r = begin(g, &f, b, &exists);
    run_row(g, &f, &r, b, exists, takes_filters);
    if (!r.is_alone)
        qd_cluster_arrive();
    qd_cluster_wait();
}

QD_KERNEL_HEAD_BESIDE(QK_BESIDE, QK_THREADS, LDS_BYTES, CLUSTER_OF(QK_PARTS), qk_sampling_cluster)
(const qk_sampling_args g) {
    run(qd_reread(&g), true);
}

/** For rows without top_k and top_p. */
QD_KERNEL_HEAD_BESIDE(QK_BESIDE_PLAIN, QK_THREADS, LDS_BYTES, CLUSTER_OF(QK_PARTS),
                      qk_sampling_cluster_plain)
(const qk_sampling_args g) {
    run(qd_reread(&g), false);
}

// ---- softmax

/** Sums weights, and puts them in the places of f32 logits. */
QD_INLINE void visit_for_weights(const row *r, void *state, uint32_t i, qd_f32x4 x, bool is_one) {
    const qd_f32x4 w = weights_exp2(exponents_of(r, x));
    add_weights(state, w);
    float *to = (float *)r->x + i;
    if (r->dtype != QD_F32)
        return;
    if (is_one)
        *to = w[0];
    else
        *(qd_f32x4 *)to = w;
}

QD_KERNEL_HEAD_BESIDE(QK_BESIDE_PLAIN, QK_THREADS, LDS_BYTES, CLUSTER_OF(QK_PARTS),
                      qk_sampling_cluster_softmax)
(const qk_sampling_args args) {
    qd_begin();
    const qk_sampling_args *g = qd_reread(&args);
    const uint32_t b = qd_block() / PARTS;
    const qk_sampling_row f = qk_sampling_row_of(g, b);
    bool exists;
    row r = begin(g, &f, b, &exists);
    r.is_logits = true;
    find_top(&r, false);
    const bool is_spoilt = qk_is_degenerate(true, r.top) || !f.is_valid;
    uint64_t total = 0;
    if (!is_spoilt) {
        sums s = {};
        uint64_t before;
        walk_row(&r, visit_for_weights, &s);
        total = sum_of_parts(MASSES, sum_of_all(total_of(&s)), &before);
    }
    qd_cluster_arrive();
    write_numbers(g, &f, &r, b, total, !is_spoilt && r.dtype == QD_F32);
    qd_cluster_wait();
}
