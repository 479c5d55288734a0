// SPDX-License-Identifier: Apache-2.0
// Sampling of any vocabulary, stride and alignment, in every form.
//
// Needs     atomic additions in LDS
// Tile      a workgroup has a row; lanes go along it 16 bytes at a time, four times under way. What
//           lies before the first and behind the last whole 16 bytes goes an element a lane
// Launch    1024 threads; workgroups step through the rows that are left. Penalties: 256, and
//           few rows are shared by workgroups, which grid.y counts
// LDS       41 KiB: a histogram, a list of elements, a sum for each wave, what was found
// Edges     none: run-time bounds
// Passes    one for the largest element; two for each of top_k and top_p: a histogram, and a list
//           of what may be kept, which is all that top_p and the draw need then, if it has all that
//           is kept. Else one in which each wave sums a part of the row; the part in which the
//           token lies is divided among the waves again, and so on, until one element is left.
//           Numbers take one more, which writes them. Three for each of top_k and top_p, one for
//           each digit of the last kept key, where a list cannot help (sampling_select_gpu.h)
// Source    radix select; inverse of a cumulative sum
#include "sampling_penalties_gpu.h"
#include "sampling_rows_gpu.h"

// ---- functions on rows

QD_KERNEL_WITHIN(1024, 64, qk_sampling_rows)(const qk_sampling_args g) {
    qd_begin();
    for (uint32_t b = qd_block(); b < g.batch; b += __gpu_num_blocks(0)) {
        const qk_sampling_row f = qk_sampling_row_of(qd_reread(&g), b);
        bool exists;
        row r = row_of(qd_reread(&g), &f, b, &exists);
        run_row(qd_reread(&g), &f, &r, b, exists, true);
    }
}

// ---- speculative sampling

/** Finds how many drafted tokens are sent, and writes them; every thread finds the same. */
QD_INLINE uint32_t send_drafts(const qk_chain_args *g, uint32_t b) {
    const int64_t ids = (int64_t)b * g->n, outs = ids + b;
    uint32_t sent = 0, accepted = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t words[4];
        const int32_t id = g->ids[ids + i];
        qk_random_words(&g->random, b, i, words);
        const bool accepts = id >= 0 && id < (int32_t)g->vocab &&
                             qk_accepts(g->draft[(ids + i) * g->vocab + id],
                                        g->target[(outs + i) * g->vocab + id], words[0]);
        accepted += accepts;
        const bool sends = sent == i && accepts;
        sent += sends;
        if (qd_thread() == 0)
            g->out[outs + i] = sends ? id : -1;
    }
    if (qd_thread() == 0 && g->accepted)
        g->accepted[b] += (int32_t)accepted;
    if (qd_thread() == 0 && g->sent)
        g->sent[b] += (int32_t)sent;
    return sent;
}

/** Draws the token behind the drafts that are sent: once more without the draft, if the target has
 *  nowhere more. */
QD_INLINE uint32_t draw_last(const qk_chain_args *g, uint32_t b, uint32_t sent) {
    const int64_t outs = (int64_t)b * (g->n + 1);
    row r = {.x = g->target + (outs + sent) * g->vocab, .count = g->vocab, .is_surplus = true};
    if (sent < g->n)
        r.draft = g->draft + ((int64_t)b * g->n + sent) * g->vocab;
    uint32_t token = 0;
    uint64_t total = 0;
    QD_NO_UNROLL for (uint32_t turn = 0; turn < 2 && total == 0; turn++) {
        g = qd_reread(g);
        total = draw_token(&r, &g->random, b, g->n, false, 0, &token);
        r.draft = nullptr;
    }
    return token;
}

QD_KERNEL_WITHIN(1024, 64, qk_sampling_chain)(const qk_chain_args all) {
    qd_begin();
    for (uint32_t b = qd_block(); b < all.batch; b += __gpu_num_blocks(0)) {
        const uint32_t sent = send_drafts(qd_reread(&all), b);
        const uint32_t token = draw_last(qd_reread(&all), b, sent);
        const qk_chain_args *g = qd_reread(&all);
        const int64_t outs = (int64_t)b * (g->n + 1);
        if (qd_thread() == 0 && sent < g->n)
            g->out[outs + g->n] = -1;
        if (qd_thread() == 0)
            g->out[outs + sent] = (int32_t)token;
    }
}

// ---- penalties

QD_KERNEL_WITHIN(256, 64, qk_sampling_penalties)(const qk_penalty_args g) {
    qd_begin();
    const uint32_t lane = __gpu_block_id(1) * QK_PENALTIES_THREADS + qd_thread();
    const uint32_t lanes = __gpu_num_blocks(1) * QK_PENALTIES_THREADS;
    for (uint32_t b = qd_block(); b < g.batch; b += __gpu_num_blocks(0)) {
        const penalized r = penalized_of(&g, b);
        penalize_row(&r, g.vocab, lane, lanes);
    }
}
static_assert(QK_PENALTIES_THREADS == 256);
