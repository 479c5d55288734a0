// SPDX-License-Identifier: Apache-2.0
// Gives each pair a row: counts the pairs of experts, then places them in order.
//
// Needs     nothing beyond vector instructions and additions in LDS
// Tile      counting: one workgroup, a pair a lane; placing: a wave an expert, which looks at all
//           pairs and finds the places of its own by ballots, so that no order depends on time. Of
//           few pairs one workgroup does both
// Launch    1024 threads; 256 threads, and a wave more than there are experts, for pairs without
//           rows; few pairs: 1024 threads, at most as many pairs
// LDS       8 KiB: the count of each expert; few pairs: 12 KiB more, where experts begin and whose
//           the pairs are
// Edges     up to 2048 experts, any number of pairs
// Source    moe_align_block_size of the serving engines
#include "gpu.h"
#include "moe_abi.h"

[[clang::loader_uninitialized]] static QD_LDS uint32_t counts[QK_MOE_MAX_EXPERTS];

enum { AHEAD = 8, NOBODY = -2 }; // ids of a lane that are under way at once; past the last pair

/** Finds the experts of AHEAD pairs, `step` apart. */
QD_INLINE void find_experts(const qk_moe_sort_args *g, uint32_t pair, uint32_t step,
                            int32_t experts[AHEAD]) {
    QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++) {
        const uint32_t at = qd_min(pair + j * step, g->pairs - 1);
        experts[j] = g->ids[qk_moe_pair_at(at, g->top_k, g->ids_row)];
    }
    QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++)
        experts[j] = pair + j * step < g->pairs ? qk_moe_expert_of_id(g, experts[j]) : NOBODY;
}

/** Makes ends of counts; one wave takes experts as many at a time as it has lanes. Returns the rows
 *  of all experts. `begins` gets where each one's begin; null: nobody asks. */
QD_INLINE uint32_t find_ends(const qk_moe_sort_args *g, QD_LDS uint32_t *begins) {
    uint32_t begin = 0;
    for (uint32_t first = 0; first < g->experts; first += QD_WAVE) {
        const uint32_t e = first + qd_lane();
        const uint32_t count = e < g->experts ? counts[e] : 0;
        const uint32_t room = qk_moe_round_up(count, g->alignment), end = qd_scan_sum(room);
        if (e < g->experts)
            g->ends[e] = (int32_t)(begin + end - room + count);
        if (begins && e < g->experts)
            begins[e] = begin + end - room;
        begin += qd_read_lane(end, QD_WAVE - 1);
    }
    if (g->num_rows && qd_lane() == 0)
        *g->num_rows = (int32_t)begin;
    return begin;
}

QD_KERNEL_UP_TO(1024, qk_moe_count)(const qk_moe_sort_args g) {
    qd_begin();
    for (uint32_t e = qd_thread(); e < g.experts; e += 1024)
        counts[e] = 0;
    qd_barrier();
    for (uint32_t pair = qd_thread(); pair < g.pairs; pair += 1024 * AHEAD) {
        int32_t experts[AHEAD];
        find_experts(&g, pair, 1024, experts);
        QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++)
            if (experts[j] >= 0)
                qd_lds_add(&counts[experts[j]], 1);
    }
    qd_barrier();
    if (qd_wave() == 0)
        find_ends(&g, nullptr);
}

QD_INLINE void write_row(const qk_moe_sort_args *g, uint32_t row, uint32_t pair, int32_t expert) {
    if (g->pair_of_row)
        g->pair_of_row[row] = (int32_t)pair;
    if (g->expert_of_row)
        g->expert_of_row[row] = expert;
}

/** Makes padding of rows first + step * i. */
QD_INLINE void pad(const qk_moe_sort_args *g, uint32_t first, uint32_t end, uint32_t step) {
    for (uint32_t row = first; row < end; row += step)
        write_row(g, row, g->pairs, -1);
}

/** Places a wave's worth of pairs, of which this lane has one, of expert e, or of none for -1.
 *  Returns the row behind them. */
QD_INLINE uint32_t place_some(const qk_moe_sort_args *g, int32_t e, uint32_t row, uint32_t pair,
                              bool is_own) {
    const uint64_t own = qd_ballot(is_own);
    const uint32_t before = (uint32_t)__builtin_popcountll(own & ((UINT64_C(1) << qd_lane()) - 1));
    if (is_own && g->row_of_pair)
        g->row_of_pair[qk_moe_pair_at(pair, g->top_k, g->row_of_pair_row)] =
            e < 0 ? -1 : (int32_t)(row + before);
    if (is_own && e >= 0)
        write_row(g, row + before, pair, e);
    return row + (uint32_t)__builtin_popcountll(own);
}

/** Places all pairs of expert e. */
QD_INLINE uint32_t place(const qk_moe_sort_args *g, int32_t e, uint32_t row) {
    for (uint32_t first = 0; first < g->pairs; first += QD_WAVE * AHEAD) {
        const uint32_t pair = first + qd_lane();
        int32_t experts[AHEAD];
        find_experts(g, pair, QD_WAVE, experts);
        QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++)
            row = place_some(g, e, row, pair + j * QD_WAVE, experts[j] == e);
    }
    return row;
}

/** Ends an expert's rows, which begin at `begin` and of which `end` is the first that is free. */
QD_INLINE void finish(const qk_moe_sort_args *g, int32_t e, uint32_t begin, uint32_t end) {
    const uint32_t next = qk_moe_round_up(end, g->alignment);
    pad(g, end + qd_lane(), next, QD_WAVE);
    for (uint32_t b = begin / g->alignment + qd_lane();
         g->expert_of_block && b < next / g->alignment; b += QD_WAVE)
        g->expert_of_block[b] = e;
}

/** Makes padding of what lies behind all experts' rows, `used`; every thread takes part. */
QD_INLINE void pad_rest(const qk_moe_sort_args *g, uint32_t used, uint32_t thread,
                        uint32_t threads) {
    pad(g, used + thread, g->rows, threads);
    for (uint32_t b = used / g->alignment + thread;
         g->expert_of_block && b < g->rows / g->alignment; b += threads)
        g->expert_of_block[b] = -1;
}

QD_KERNEL(256) qk_moe_place(const qk_moe_sort_args g) {
    qd_begin();
    const uint32_t waves = 256 / QD_WAVE, e = qd_block() * waves + qd_wave();
    const uint32_t used = qk_moe_round_up((uint32_t)g.ends[g.experts - 1], g.alignment);
    pad_rest(&g, used, qd_block() * 256 + qd_thread(), __gpu_num_blocks(0) * 256);
    if (e > g.experts)
        return;
    if (e == g.experts) {
        place(&g, -1, 0);
        return;
    }
    const uint32_t begin = e ? qk_moe_round_up((uint32_t)g.ends[e - 1], g.alignment) : 0;
    finish(&g, (int32_t)e, begin, place(&g, (int32_t)e, begin));
}

// ---- few pairs: one of a thread

[[clang::loader_uninitialized]] static QD_LDS uint32_t begins[QK_MOE_MAX_EXPERTS];
[[clang::loader_uninitialized]] static QD_LDS int32_t owners[QK_MOE_FEW_PAIRS];
[[clang::loader_uninitialized]] static QD_LDS uint32_t all_rows;

/** Finds the expert of this thread's pair, if it has one, and counts it. */
QD_INLINE void count_own(const qk_moe_sort_args *g) {
    if (qd_thread() >= g->pairs)
        return;
    const int32_t e = qk_moe_expert_of(g, qd_thread());
    owners[qd_thread()] = e;
    if (e >= 0)
        qd_lds_add(&counts[e], 1);
    else if (g->row_of_pair)
        g->row_of_pair[qk_moe_pair_at(qd_thread(), g->top_k, g->row_of_pair_row)] = -1;
}

/** Places the pairs of an expert that has some. */
QD_INLINE void place_own(const qk_moe_sort_args *g, int32_t e) {
    uint32_t row = begins[e];
    for (uint32_t first = 0; first < g->pairs; first += QD_WAVE) {
        const uint32_t pair = first + qd_lane();
        row = place_some(g, e, row, pair, pair < g->pairs && owners[pair] == e);
    }
    finish(g, e, begins[e], row);
}

QD_KERNEL_UP_TO(1024, qk_moe_sort_few)(const qk_moe_sort_args g) {
    qd_begin();
    for (uint32_t e = qd_thread(); e < g.experts; e += 1024)
        counts[e] = 0;
    qd_barrier();
    count_own(&g);
    qd_barrier();
    if (qd_wave() == 0) {
        const uint32_t rows = find_ends(&g, begins);
        if (qd_lane() == 0)
            all_rows = rows;
    }
    qd_barrier();
    pad_rest(&g, all_rows, qd_thread(), 1024);
    for (uint32_t e = qd_wave(); e < g.experts; e += 1024 / QD_WAVE)
        if (counts[e] > 0)
            place_own(&g, (int32_t)e);
}
