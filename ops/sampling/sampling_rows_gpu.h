// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of sampling: functions on rows from end to end.
#ifndef QK_SAMPLING_ROWS_GPU_H
#define QK_SAMPLING_ROWS_GPU_H

#include "sampling_select_gpu.h"

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
    bool has_weights;            // elements have become their weights
    float factor;
} writer;

QD_INLINE void visit_for_writing(const row *r, void *state, uint32_t i, qd_f32x4 x, bool is_one) {
    const writer *w = state;
    qd_f32x4 v = x;
    if (w->is_even)
        v = w->factor;
    else if (w->has_weights)
        v = x * w->factor;
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
                             uint32_t b, uint64_t total, bool has_weights) {
    const bool is_softmax = g->what == QK_SAMPLING_SOFTMAX, is_mask = g->what == QK_SAMPLING_MASK;
    const bool is_spoilt = r->top == QK_KEY_SPOILT || !f->is_valid;
    const bool is_empty = qk_is_degenerate(r->is_logits, r->top);
    writer w = {.dtype = is_softmax ? QD_F32 : g->dtype,
                .copies = !needs_mass(g, f),
                .masks = is_mask && !is_empty,
                .has_weights = has_weights,
                .is_even = is_spoilt || (is_empty && !is_mask)};
    w.out = (char *)g->out + (b * g->out_row + r->first) * qd_element_bytes((int)w.dtype);
    w.is_aligned = is_aligned(r, &w);
    w.factor = is_spoilt ? __builtin_nanf("") : total ? qk_normalizer(total) : 0;
    walk_row(r, visit_for_writing, &w);
}

/** Returns row b, of which nothing is known; where it is not, *exists is false. */
QD_INLINE row row_of(const qk_sampling_args *g, const qk_sampling_row *f, uint32_t b,
                     bool *exists) {
    const int64_t from = qk_sampling_from(g, b);
    *exists = from >= 0;
    return (row){.x = (const char *)g->x + from * (g->dtype == QD_F32 ? 4 : 2),
                 .dtype = g->dtype,
                 .count = g->vocab,
                 .is_logits = g->is_logits,
                 .scale = f->scale,
                 .least_x = NOTHING};
}

/** Returns whether this workgroup knows the token that a row has: all know one from a list. */
QD_INLINE bool has_token(const row *r, uint64_t total, uint32_t token) {
    return PARTS == 1 || (r->is_listed || total == 0 ? qd_cluster_rank() == 0 : token != elsewhere);
}

/** Returns whether one walk along probabilities is enough: their largest does not matter. */
QD_INLINE bool sums_at_once(const qk_sampling_args *g, const qk_sampling_row *f) {
    return g->what == QK_SAMPLING_TOKENS && !g->is_logits && !qk_has_filter(f, g->vocab);
}

/** Finds the result of row b and writes it; not all kernels take top_k and top_p. */
QD_INLINE void run_row(const qk_sampling_args *g, const qk_sampling_row *f, row *r, uint32_t b,
                       bool exists, bool takes_filters) {
    const bool at_once = sums_at_once(g, f);
    uint64_t total = 0, sum = 0;
    uint32_t token = 0;
    if (exists && at_once)
        sum = sum_probs(r);
    else if (exists)
        token = find_top(r, g->what == QK_SAMPLING_GREEDY);
    g = qd_reread(g);
    const bool is_degenerate =
        !f->is_valid || (at_once ? !exists : qk_is_degenerate(g->is_logits, r->top));
    if (g->what == QK_SAMPLING_GREEDY) {
        if (PARTS == 1 || qd_cluster_rank() == 0)
            write_token(g, b, is_degenerate ? 0 : token, !is_degenerate);
        return;
    }
    token = 0;
    if (!is_degenerate) {
        if (takes_filters)
            filter(g, f, r);
        else
            r->least = r->is_logits ? f->min_p : f->min_p * r->largest;
        g = qd_reread(g);
        if (needs_mass(g, f))
            total = draw_token(r, g->what == QK_SAMPLING_TOKENS ? &g->random : nullptr, b, 0,
                               at_once, sum, &token);
        g = qd_reread(g);
    }
    if (g->what != QK_SAMPLING_TOKENS)
        write_numbers(g, f, r, b, total, false);
    else if (has_token(r, total, token))
        write_token(g, b, token, total > 0);
}

#endif
