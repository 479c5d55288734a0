// SPDX-License-Identifier: Apache-2.0
// The definition of sampling, a row at a time: elements are sorted, filters walk down from the
// largest, and the token is found by one walk through the vocabulary.
#include "sampling.h"

#include <stdlib.h>

typedef struct element {
    uint32_t key, index;
    uint64_t mass;
    float value; // exp((x - top) / temperature) or x, a probability
    bool is_kept;
} element;
static_assert(sizeof(element) <= 40);

/** A row's elements in the vocabulary's order, and what is known of all of them. */
typedef struct row {
    element *e;
    int64_t count;
    uint32_t top;
    bool is_degenerate;
} row;

static int compare_keys(const void *a, const void *b) {
    const element *x = a, *y = b;
    return x->key < y->key ? 1 : x->key > y->key ? -1 : x->index < y->index ? -1 : 1;
}
static int compare_indices(const void *a, const void *b) {
    const element *x = a, *y = b;
    return x->index < y->index ? -1 : 1;
}

static row read_row(const qk_sampling_args *g, const qk_sampling_row *r, int64_t from, element *e) {
    row out = {.e = e, .count = g->vocab};
    for (int64_t i = 0; i < out.count; i++) {
        const float x = from < 0 ? NAN : (float)qni_get((qni_dtype)g->dtype, g->x, from + i);
        e[i] = (element){.key = qk_key(g->is_logits, x), .index = (uint32_t)i, .value = x};
        if (e[i].key > out.top)
            out.top = e[i].key;
    }
    out.is_degenerate = qk_is_degenerate(g->is_logits, out.top) || !r->is_valid;
    for (int64_t i = 0; !out.is_degenerate && i < out.count; i++) {
        e[i].value = g->is_logits ? qk_weight_of_logit(e[i].value, qk_of_ordered(out.top), r->scale)
                                  : qk_weight_of_prob(e[i].value);
        e[i].mass = qk_whole(e[i].value);
        e[i].is_kept = true;
    }
    return out;
}

/** Keeps the k largest of the sorted elements and whatever equals the last of them. */
static void keep_top_k(row *r, uint32_t k) {
    for (int64_t i = k; i < r->count; i++)
        r->e[i].is_kept = r->e[i].key == r->e[k - 1].key;
}

/** Keeps, of the sorted elements, those above which there is less than p of the mass; counts the
 *  mass of all elements, or of those that are kept so far. */
static void keep_top_p(row *r, float p, bool counts_all) {
    uint64_t total = 0, above = 0, next = 0;
    for (int64_t i = 0; i < r->count; i++)
        total += counts_all || r->e[i].is_kept ? r->e[i].mass : 0;
    for (int64_t i = 0; i < r->count; i++) {
        if (i > 0 && r->e[i].key != r->e[i - 1].key)
            above = next;
        next += counts_all || r->e[i].is_kept ? r->e[i].mass : 0;
        r->e[i].is_kept = r->e[i].is_kept && above < qk_share(total, p);
    }
}

static void keep_min_p(const qk_sampling_args *g, row *r, float min_p) {
    const float least = g->is_logits ? min_p : min_p * qk_of_ordered(r->top);
    for (int64_t i = 0; i < r->count; i++)
        r->e[i].is_kept = r->e[i].is_kept && r->e[i].value >= least;
}

static void filter(const qk_sampling_args *g, const qk_sampling_row *f, row *r) {
    qsort(r->e, (size_t)r->count, sizeof *r->e, compare_keys);
    if (f->top_k < g->vocab)
        keep_top_k(r, f->top_k);
    if (f->top_p < 1)
        keep_top_p(r, f->top_p, g->is_joint);
    keep_min_p(g, r, f->min_p);
    qsort(r->e, (size_t)r->count, sizeof *r->e, compare_indices);
}

static uint64_t kept_mass(const row *r) {
    uint64_t total = 0;
    for (int64_t i = 0; i < r->count; i++)
        total += r->e[i].is_kept ? r->e[i].mass : 0;
    return total;
}

/** Returns the element in whose share of the running sum of kept masses `at` lies. */
static int64_t find(const row *r, uint64_t at) {
    for (int64_t i = 0;; i++) {
        const uint64_t mass = r->e[i].is_kept ? r->e[i].mass : 0;
        if (at < mass)
            return i;
        at -= mass;
    }
}

static void write_token(const qk_sampling_args *g, const row *r, int64_t b) {
    const uint64_t total = r->is_degenerate ? 0 : kept_mass(r);
    ((int32_t *)g->out)[b] =
        total ? (int32_t)find(r, qk_draw(&g->random, (uint32_t)b, 0, total)) : 0;
    if (g->valid)
        g->valid[b] = total > 0;
}

static void write_greedy(const qk_sampling_args *g, const row *r, int64_t b) {
    int32_t token = 0;
    while (!r->is_degenerate && r->e[token].key != r->top)
        token++;
    ((int32_t *)g->out)[b] = token;
    if (g->valid)
        g->valid[b] = !r->is_degenerate;
}

/** Returns what becomes of element i of a row of numbers. */
static float result_of(const qk_sampling_args *g, const row *r, bool is_filtered, int64_t i,
                       float x, uint64_t total) {
    if (r->is_degenerate && r->top != QK_KEY_SPOILT && g->what != QK_SAMPLING_MASK)
        return 0;
    if (g->what == QK_SAMPLING_MASK)
        return r->is_degenerate || r->e[i].is_kept ? x : -INFINITY;
    if (g->what == QK_SAMPLING_RENORM && !is_filtered)
        return x;
    return r->e[i].is_kept && total ? r->e[i].value * qk_normalizer(total) : 0;
}

static void write_numbers(const qk_sampling_args *g, const qk_sampling_row *f, const row *r,
                          int64_t from, int64_t b) {
    const qni_dtype dtype = g->what == QK_SAMPLING_SOFTMAX ? QNI_F32 : (qni_dtype)g->dtype;
    const uint64_t total = r->is_degenerate ? 0 : kept_mass(r);
    const bool is_spoilt = r->top == QK_KEY_SPOILT || !f->is_valid;
    for (int64_t i = 0; i < r->count; i++) {
        const float x = (float)qni_get((qni_dtype)g->dtype, g->x, from + i);
        qni_sampling_put(dtype, g->out, b * g->out_row + i,
                         is_spoilt ? NAN
                                   : result_of(g, r, qk_has_filter(f, g->vocab), i, x, total));
    }
}

static void run_rows(const qk_sampling_args *g, int64_t b, element *e) {
    const qk_sampling_row f = qk_sampling_row_of(g, (uint32_t)b);
    const int64_t from = qk_sampling_from(g, (uint32_t)b);
    row r = read_row(g, &f, from, e);
    if (!r.is_degenerate)
        filter(g, &f, &r);
    if (g->what == QK_SAMPLING_TOKENS)
        write_token(g, &r, b);
    else if (g->what == QK_SAMPLING_GREEDY)
        write_greedy(g, &r, b);
    else
        write_numbers(g, &f, &r, from, b);
}

// ---- speculative sampling

/** Reads the distribution after the drafted tokens: what the target has more than the draft, or the
 *  target itself if there is no draft or nothing is more. */
static row read_last(const qk_chain_args *g, const float *draft, const float *target, element *e) {
    row r = {.e = e, .count = g->vocab};
    for (int64_t i = 0; i < r.count; i++)
        e[i] = (element){.mass = qk_whole(qk_surplus(draft ? draft[i] : 0, target[i])),
                         .is_kept = true};
    return draft && kept_mass(&r) == 0 ? read_last(g, nullptr, target, e) : r;
}

static void run_chain(const qk_chain_args *g, int64_t b, element *e) {
    const float *draft = g->draft + b * g->n * g->vocab;
    const float *target = g->target + b * (g->n + 1) * g->vocab;
    int32_t *out = g->out + b * (g->n + 1);
    uint32_t sent = 0, accepted = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t words[4];
        const int32_t id = g->ids[b * g->n + i];
        qk_random_words(&g->random, (uint32_t)b, i, words);
        const bool accepts = id >= 0 && id < (int32_t)g->vocab &&
                             qk_accepts(draft[(int64_t)i * g->vocab + id],
                                        target[(int64_t)i * g->vocab + id], words[0]);
        accepted += accepts;
        if (sent == i && accepts)
            out[sent++] = id;
    }
    const int64_t last = (int64_t)sent * g->vocab;
    const row r = read_last(g, sent < g->n ? draft + last : nullptr, target + last, e);
    const uint64_t total = kept_mass(&r);
    out[sent] = total ? (int32_t)find(&r, qk_draw(&g->random, (uint32_t)b, g->n, total)) : 0;
    for (uint32_t i = sent + 1; i <= g->n; i++)
        out[i] = -1;
    if (g->accepted)
        g->accepted[b] += (int32_t)accepted;
    if (g->sent)
        g->sent[b] += (int32_t)sent;
}

static void run_penalties(const qk_penalty_args *g, int64_t b) {
    const qni_dtype dtype = (qni_dtype)g->dtype;
    for (int64_t i = 0; i < g->vocab; i++)
        qni_sampling_put(dtype, g->out, b * g->out_row + i,
                         qk_penalized((float)qni_get(dtype, g->x, b * g->x_row + i),
                                      g->counts ? g->counts[b * g->counts_row + i] : 0,
                                      g->in_prompt && g->in_prompt[b * g->prompt_row + i],
                                      g->repetitions ? g->repetitions[b] : g->repetition,
                                      g->presences ? g->presences[b] : g->presence,
                                      g->frequencies ? g->frequencies[b] : g->frequency));
}

void qni_sampling_ref(const qni_sampling_problem *p, int64_t b, void *scratch) {
    if (p->what == QK_SAMPLING_CHAIN)
        run_chain(&p->chain, b, scratch);
    else if (p->what == QK_SAMPLING_PENALTIES)
        run_penalties(&p->penalties, b);
    else
        run_rows(&p->rows, b, scratch);
}
