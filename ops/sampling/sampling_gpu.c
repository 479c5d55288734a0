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
#include "sampling_select_gpu.h"

// ---- functions on rows

QD_INLINE void write_token(const qk_sampling_args *g, uint32_t b, uint32_t token, bool is_valid) {
    if (qd_thread() != 0)
        return;
    ((int32_t *)g->out)[b] = (int32_t)token;
    if (g->valid)
        g->valid[b] = is_valid;
}

/** Returns whether the sum of a row's weights matters: not where elements are copied. */
QD_INLINE bool needs_mass(const qk_sampling_args *g, const qk_sampling_row *f) {
    return g->what == QK_SAMPLING_RENORM ? qk_has_filter(f, g->vocab) : g->what != QK_SAMPLING_MASK;
}

/** How a row of numbers is written. */
typedef struct writer {
    void *out;
    uint32_t dtype;
    bool is_aligned;             // four results go at a time
    bool is_even, copies, masks; // all are `factor`; elements themselves; of those that are kept
    float factor;
} writer;

QD_INLINE void visit_for_writing(const row *r, void *state, uint32_t i, qd_f32x4 x, bool is_one) {
    const writer *w = state;
    qd_f32x4 v = x;
    if (w->is_even)
        v = w->factor;
    else if (!w->copies)
        v = weights_of(r, x) * w->factor;
    else if (w->masks) QD_UNROLL
        for (int k = 0; k < 4; k++)
            v[k] = x[k] >= r->least_x ? x[k] : -__builtin_inff();
    if (w->is_aligned && !is_one)
        store4(w->dtype, w->out, i, v);
    else QD_UNROLL
        for (uint32_t k = 0; k < 4; k++)
            if (k == 0 || !is_one)
                store(w->dtype, w->out, i + k, v[k]);
}

/** Returns whether results of four elements, the first of which lie at multiples of 16 bytes, lie
 *  at multiples of their own size. */
QD_INLINE bool is_aligned(const row *r, const writer *w) {
    const uint32_t bytes = qd_element_bytes((int)r->dtype),
                   out_bytes = qd_element_bytes((int)w->dtype);
    const uintptr_t head = -(uintptr_t)r->x % 16 / bytes;
    return ((uintptr_t)w->out + head * out_bytes) % (4 * out_bytes) == 0;
}

QD_INLINE void write_numbers(const qk_sampling_args *g, const qk_sampling_row *f, const row *r,
                             uint32_t b, uint64_t total) {
    const bool is_softmax = g->what == QK_SAMPLING_SOFTMAX, is_mask = g->what == QK_SAMPLING_MASK;
    const bool is_spoilt = r->top == QK_KEY_SPOILT || !f->is_valid;
    const bool is_empty = qk_is_degenerate(r->is_logits, r->top);
    writer w = {.dtype = is_softmax ? QD_F32 : g->dtype,
                .copies = !needs_mass(g, f),
                .masks = is_mask && !is_empty,
                .is_even = is_spoilt || (is_empty && !is_mask)};
    w.out = (char *)g->out + b * g->out_row * qd_element_bytes((int)w.dtype);
    w.is_aligned = is_aligned(r, &w);
    w.factor = is_spoilt ? __builtin_nanf("") : total ? qk_normalizer(total) : 0;
    walk_row(r, visit_for_writing, &w);
}

QD_INLINE void run_row(const qk_sampling_args *g, uint32_t b) {
    const qk_sampling_row f = qk_sampling_row_of(g, b);
    const int64_t from = qk_sampling_from(g, b);
    row r = {.x = (const char *)g->x + from * (g->dtype == QD_F32 ? 4 : 2),
             .dtype = g->dtype,
             .count = g->vocab,
             .is_logits = g->is_logits,
             .scale = f.scale,
             .least_x = NOTHING};
    uint32_t token = from < 0 ? 0 : find_top(&r, g->what == QK_SAMPLING_GREEDY);
    g = qd_reread(g);
    const bool is_degenerate = qk_is_degenerate(g->is_logits, r.top) || !f.is_valid;
    if (g->what == QK_SAMPLING_GREEDY) {
        write_token(g, b, is_degenerate ? 0 : token, !is_degenerate);
        return;
    }
    uint64_t total = 0;
    token = 0;
    if (!is_degenerate) {
        filter(g, &f, &r);
        g = qd_reread(g);
        if (needs_mass(g, &f))
            total =
                draw_token(&r, g->what == QK_SAMPLING_TOKENS ? &g->random : nullptr, b, 0, &token);
        g = qd_reread(g);
    }
    if (g->what == QK_SAMPLING_TOKENS)
        write_token(g, b, token, total > 0);
    else
        write_numbers(g, &f, &r, b, total);
}

QD_KERNEL_WITHIN(1024, 64, qk_sampling_rows)(const qk_sampling_args g) {
    qd_begin();
    for (uint32_t b = qd_block(); b < g.batch; b += __gpu_num_blocks(0))
        run_row(qd_reread(&g), b);
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
        total = draw_token(&r, &g->random, b, g->n, &token);
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
