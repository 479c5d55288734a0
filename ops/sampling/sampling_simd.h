// SPDX-License-Identifier: Apache-2.0
// Sampling on the CPU: sampling_cpu.c, sampling_avx2.c and sampling_avx512.c compile this header.
//
// A row's weights are computed once, into scratch. top_k and top_p find their last kept element by
// a histogram of the keys' upper bits, which leaves few candidates, and two more of the candidates.
// Masses are kept for each block, so that only one block is walked through for the token.
#ifndef QNI_SAMPLING_SIMD_H
#define QNI_SAMPLING_SIMD_H

#include "../shared/round.h"
#include "../shared/simd.h"
#include "sampling.h"

enum { BLOCK = 2048, DIGIT = 11, BINS = 1 << DIGIT };

typedef uint64_t u64v __attribute__((vector_size(8 * QN_LANES)));

/** An element that may be the last kept one: its key, and what it counts for. */
typedef struct candidate {
    uint64_t amount;
    uint32_t key;
} candidate;

/** A row, and what is known of it so far. */
typedef struct row {
    qni_dtype dtype;
    bool is_logits;
    const void *x; // the row's first element
    int64_t count;
    uint32_t top;       // the largest key
    uint32_t least_key; // smaller keys are not kept
    float least;        // smaller weights are not kept
    // scratch:
    float *values;           // weights
    uint64_t *masses, *bins; // of blocks; of a histogram
    candidate *list;
    int64_t listed;
} row;

static int64_t padded(int64_t vocab) {
    return qni_round_up(vocab, BLOCK);
}
static int64_t scratch_bytes(int64_t vocab) {
    return padded(vocab) * (int64_t)(sizeof(float) + sizeof(candidate)) +
           (padded(vocab) / BLOCK + BINS) * (int64_t)sizeof(uint64_t);
}
static void place_scratch(row *r, void *scratch, int64_t vocab) {
    r->values = scratch;
    r->list = (candidate *)(r->values + padded(vocab));
    r->masses = (uint64_t *)(r->list + padded(vocab));
    r->bins = r->masses + padded(vocab) / BLOCK;
}

// ---- vectors

/** Loads QN_LANES elements from element i on; lanes past the row's end are the smallest there
 *  is. */
QN_INLINE f32v load_lanes(qni_dtype dtype, const row *r, int64_t i) {
    if (i + QN_LANES <= r->count)
        return load(dtype, r->x, i);
    f32v v = load_some(dtype, r->x, i, r->count - i);
    for (int64_t k = r->count - i; k < QN_LANES; k++)
        v[k] = r->is_logits ? -HUGE_VALF : 0;
    return v;
}

/** As qk_ordered; adding 0 turns -0 into 0. */
QN_INLINE u32v keys_of(f32v v) {
    const i32v bits = (i32v)(v + 0.0f);
    return (u32v)(bits ^ (bits >> 31 | INT32_MIN));
}

/** As qk_exp2. */
QN_INLINE f32v weights_exp2(f32v y) {
    const float c[] = QK_EXP2_COEFFICIENTS;
    const f32v sum = y + QK_EXP2_MAGIC, f = y - (sum - QK_EXP2_MAGIC);
    f32v p = all_of(c[5]);
    for (int i = 4; i >= 0; i--)
        p = __builtin_elementwise_fma(p, f, all_of(c[i]));
    p = __builtin_elementwise_fma(p, f, all_of(1.0f));
    return (f32v)((u32v)(p * (f32v)((u32v)sum << 23)) & (u32v)(y >= QK_EXP2_LEAST));
}

/** What elements are: probabilities, logits, or logits of which the largest is infinite. */
enum { PROBS, LOGITS, INFINITE_LOGITS };

/** As qk_weight_of_logit and qk_weight_of_prob. A finite top's own weight needs no case. */
QN_INLINE f32v weights_of(int kind, f32v x, float top, float scale) {
    if (kind == PROBS)
        return (f32v)((u32v)x & (u32v)(x >= all_of(0x1p-100f)));
    if (kind == INFINITE_LOGITS)
        return (f32v)((u32v)all_of(1.0f) & (u32v)(x == all_of(top)));
    return weights_exp2((x - top) * scale);
}

/** Sums of the bits of weights as qk_whole rounds them; `count` vectors. */
typedef struct sums {
    u32v high, low;
    uint32_t count;
} sums;

/** Adds weights; a block has room for 512, as each high part is below 2^21. */
QN_INLINE void add_weights(sums *s, f32v w) {
    const f32v upper = w + QK_TO_20_DIGITS, left = w - (upper - QK_TO_20_DIGITS);
    s->high += (u32v)upper;
    s->low += (u32v)(left + QK_TO_40_DIGITS);
    s->count++;
}
static_assert(QN_LANES >= 4 && BLOCK / QN_LANES <= 512);

QN_INLINE uint64_t total_of(const sums *s) {
    const uint32_t high = s->count * __builtin_bit_cast(uint32_t, QK_TO_20_DIGITS);
    const uint32_t low = s->count * __builtin_bit_cast(uint32_t, QK_TO_40_DIGITS);
    uint64_t total = 0;
    for (int k = 0; k < QN_LANES; k++)
        total +=
            ((uint64_t)(s->high[k] - high) << 20) + (uint64_t)(int64_t)(int32_t)(s->low[k] - low);
    return total;
}

// ---- passes over a row. EACH_DTYPE makes a pass for each dtype of r, where `dtype` is a constant.

#define EACH_DTYPE(call)                                                                           \
    do {                                                                                           \
        if (r->dtype == QNI_F32) {                                                                 \
            constexpr qni_dtype dtype = QNI_F32;                                                   \
            call;                                                                                  \
        } else if (r->dtype == QNI_F16) {                                                          \
            constexpr qni_dtype dtype = QNI_F16;                                                   \
            call;                                                                                  \
        } else {                                                                                   \
            constexpr qni_dtype dtype = QNI_BF16;                                                  \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

/** The largest elements so far, and what tells whether an element spoils the row. */
typedef struct tops {
    f32v most;
    u32v bits;
} tops;

/** Takes in elements. Bits without their sign, doubled, are above those of infinity for NaNs alone;
 *  bits of good probabilities are below those of 2, and in the order of the probabilities. */
QN_INLINE void take_top(bool is_logits, tops *t, f32v v) {
    const u32v bits = is_logits ? (u32v)v << 1 : (u32v)(v + 0.0f);
    t->bits = __builtin_elementwise_max(t->bits, bits);
    if (is_logits)
        t->most = select_of(v > t->most, v, t->most);
}

QN_INLINE uint32_t key_of_tops(bool is_logits, const tops *t) {
    const uint32_t bits = __builtin_reduce_max(t->bits);
    if (bits > (is_logits ? 0xFF000000 : 0x3FFFFFFF))
        return QK_KEY_SPOILT;
    return is_logits ? __builtin_reduce_max(keys_of(t->most)) : bits | QK_KEY_ZERO;
}

/** Returns the largest key. */
QN_INLINE uint32_t pass_for_top(qni_dtype dtype, bool is_logits, const row *r) {
    enum { CHAINS = 4 };
    tops t[CHAINS];
    int64_t i = 0;
    for (int k = 0; k < CHAINS; k++)
        t[k] = (tops){.most = all_of(-HUGE_VALF)};
    for (; i + CHAINS * QN_LANES <= r->count; i += CHAINS * QN_LANES)
        for (int k = 0; k < CHAINS; k++)
            take_top(is_logits, &t[k], load(dtype, r->x, i + k * QN_LANES));
    for (; i < r->count; i += QN_LANES)
        take_top(is_logits, &t[0], load_lanes(dtype, r, i));
    uint32_t top = 0;
    for (int k = 0; k < CHAINS; k++) {
        const uint32_t key = key_of_tops(is_logits, &t[k]);
        top = key > top ? key : top;
    }
    return top;
}
static void find_top(row *r) {
    EACH_DTYPE(r->top =
                   r->is_logits ? pass_for_top(dtype, true, r) : pass_for_top(dtype, false, r));
}

/** Computes a block's weights and mass; `is_whole`: no vector reaches past the row's end. */
QN_INLINE uint64_t weigh_block(qni_dtype dtype, int kind, bool is_whole, row *r, int64_t from,
                               float top, float scale) {
    sums s = {};
    for (int64_t i = from; i < from + BLOCK && (is_whole || i < r->count); i += QN_LANES) {
        const f32v x = is_whole ? load(dtype, r->x, i) : load_lanes(dtype, r, i);
        const f32v w = weights_of(kind, x, top, scale);
        memcpy(r->values + i, &w, sizeof w);
        add_weights(&s, w);
    }
    return total_of(&s);
}

/** Computes the weights, and each block's mass. Returns the sum. */
QN_INLINE uint64_t pass_for_weights(qni_dtype dtype, int kind, row *r, float scale) {
    const float top = qk_of_ordered(r->top);
    uint64_t total = 0;
    for (int64_t from = 0; from < r->count; from += BLOCK)
        total += r->masses[from / BLOCK] =
            from + BLOCK <= r->count ? weigh_block(dtype, kind, true, r, from, top, scale)
                                     : weigh_block(dtype, kind, false, r, from, top, scale);
    return total;
}
static uint64_t find_weights(row *r, float scale) {
    const bool is_infinite = qk_of_ordered(r->top) == HUGE_VALF;
    uint64_t total;
    EACH_DTYPE(total = !r->is_logits ? pass_for_weights(dtype, PROBS, r, scale)
                       : is_infinite ? pass_for_weights(dtype, INFINITE_LOGITS, r, scale)
                                     : pass_for_weights(dtype, LOGITS, r, scale));
    return total;
}

/** Zeroes the weights that are not kept, and computes each block's mass again. Returns the sum. */
QN_INLINE uint64_t pass_for_kept(qni_dtype dtype, row *r) {
    const u32v least_key = (u32v){} + r->least_key;
    uint64_t total = 0;
    for (int64_t from = 0; from < r->count; from += BLOCK) {
        sums s = {};
        for (int64_t i = from; i < from + BLOCK && i < r->count; i += QN_LANES) {
            f32v w;
            memcpy(&w, r->values + i, sizeof w);
            const i32v is_kept =
                (keys_of(load_lanes(dtype, r, i)) >= least_key) & (w >= all_of(r->least));
            w = (f32v)((u32v)w & (u32v)is_kept);
            memcpy(r->values + i, &w, sizeof w);
            add_weights(&s, w);
        }
        total += r->masses[from / BLOCK] = total_of(&s);
    }
    return total;
}

/** Adds what each element counts for to the bin of its key's upper digit. */
QN_INLINE void pass_for_bins(qni_dtype dtype, const row *r, bool by_mass) {
    for (int64_t i = 0; i < r->count; i += QN_LANES) {
        uint32_t bin[QN_LANES];
        const u32v digits = keys_of(load_lanes(dtype, r, i)) >> (32 - DIGIT);
        memcpy(bin, &digits, sizeof bin);
        for (int k = 0; k < QN_LANES; k++)
            r->bins[bin[k]] += by_mass ? qk_whole(r->values[i + k]) : 1;
    }
}

/** Lists the elements with keys from `low` to `high`. */
QN_INLINE void pass_for_list(qni_dtype dtype, row *r, uint32_t low, uint32_t high, bool by_mass) {
    const u32v above = (u32v){} + low, below = (u32v){} + high;
    r->listed = 0;
    for (int64_t i = 0; i < r->count; i += QN_LANES) {
        const u32v keys = keys_of(load_lanes(dtype, r, i));
        const i32v is_in = (keys >= above) & (keys <= below);
        if (!__builtin_reduce_or(is_in))
            continue;
        for (int k = 0; k < QN_LANES; k++)
            if (is_in[k])
                r->list[r->listed++] =
                    (candidate){by_mass ? qk_whole(r->values[i + k]) : 1, keys[k]};
    }
}

/** Returns the highest bin with which the sum of the bins reaches *need, of which what lies above
 *  the bin is taken away. 0: it is never reached. */
static uint32_t walk_bins(const row *r, uint64_t *need) {
    uint32_t bin = BINS - 1;
    for (; bin > 0 && r->bins[bin] < *need; bin--)
        *need -= r->bins[bin];
    return bin;
}

/** Finds a digit of the last kept key among the candidates, and leaves those that have it. */
static uint32_t select_digit(row *r, int shift, uint64_t *need) {
    memset(r->bins, 0, BINS * sizeof *r->bins);
    for (int64_t i = 0; i < r->listed; i++)
        r->bins[r->list[i].key >> shift & (BINS - 1)] += r->list[i].amount;
    const uint32_t digit = walk_bins(r, need);
    int64_t left = 0;
    for (int64_t i = 0; i < r->listed; i++)
        if ((r->list[i].key >> shift & (BINS - 1)) == digit)
            r->list[left++] = r->list[i];
    r->listed = left;
    return digit;
}

/** Returns the largest key with which the elements from there up reach a count of `need`, or, by
 *  mass, p of the mass; of the elements that are kept so far, if `among_kept`. */
static uint32_t select_key(row *r, bool by_mass, uint64_t need, float p, bool among_kept) {
    uint64_t total = 0;
    uint32_t digit;
    if (among_kept && r->least_key > 0) {
        EACH_DTYPE(pass_for_list(dtype, r, r->least_key, UINT32_MAX, by_mass));
        for (int64_t i = 0; i < r->listed; i++)
            total += r->list[i].amount;
        need = by_mass ? qk_share(total, p) : need;
        digit = select_digit(r, 32 - DIGIT, &need);
    } else {
        memset(r->bins, 0, BINS * sizeof *r->bins);
        EACH_DTYPE(by_mass ? pass_for_bins(dtype, r, true) : pass_for_bins(dtype, r, false));
        for (int b = 0; b < BINS; b++)
            total += r->bins[b];
        need = by_mass ? qk_share(total, p) : need;
        digit = walk_bins(r, &need);
        const uint32_t low = digit << (32 - DIGIT);
        EACH_DTYPE(pass_for_list(dtype, r, low, low | ((1u << (32 - DIGIT)) - 1), by_mass));
    }
    if (total < need)
        return 0;
    uint32_t key = digit << (32 - DIGIT);
    key |= select_digit(r, 32 - 2 * DIGIT, &need) << (32 - 2 * DIGIT);
    const uint32_t last = select_digit(r, 0, &need) & ((1u << (32 - 2 * DIGIT)) - 1);
    return key | last;
}

/** Finds what the filters keep. Returns the kept mass; `total` is that of all elements. */
static uint64_t filter(const qk_sampling_args *g, const qk_sampling_row *f, row *r,
                       uint64_t total) {
    const bool has_top_k = f->top_k < g->vocab;
    if (!qk_has_filter(f, g->vocab))
        return total;
    if (has_top_k)
        r->least_key = select_key(r, false, f->top_k, 0, false);
    if (f->top_p < 1) {
        const uint32_t key = select_key(r, true, 0, f->top_p, !g->is_joint);
        r->least_key = key > r->least_key ? key : r->least_key;
    }
    r->least = r->is_logits ? f->min_p : f->min_p * qk_of_ordered(r->top);
    EACH_DTYPE(total = pass_for_kept(dtype, r));
    return total;
}

/** Returns the element in whose share of the running sum `at` lies. */
static int32_t pick(const row *r, uint64_t at) {
    int64_t i = 0;
    for (; at >= r->masses[i / BLOCK]; i += BLOCK)
        at -= r->masses[i / BLOCK];
    for (; at >= qk_whole(r->values[i]); i++)
        at -= qk_whole(r->values[i]);
    return (int32_t)i;
}

// ---- functions on rows

QN_INLINE int64_t pass_for_first(qni_dtype dtype, const row *r) {
    const u32v top = (u32v){} + r->top;
    int64_t i = 0;
    while (!__builtin_reduce_or(keys_of(load_lanes(dtype, r, i)) == top))
        i += QN_LANES;
    const u32v keys = keys_of(load_lanes(dtype, r, i));
    int k = 0;
    while (keys[k] != r->top)
        k++;
    return i + k;
}

static void write_token(const qk_sampling_args *g, int64_t b, int64_t token, bool is_valid) {
    ((int32_t *)g->out)[b] = (int32_t)token;
    if (g->valid)
        g->valid[b] = is_valid;
}

QN_INLINE void store_lanes(qni_dtype dtype, void *out, int64_t i, int64_t count, f32v v) {
    if (i + QN_LANES <= count)
        store(dtype, out, i, v);
    else
        store_some(dtype, out, i, count - i, v);
}

static void write_all(const qk_sampling_args *g, int64_t b, float value) {
    const qni_dtype dtype = g->what == QK_SAMPLING_SOFTMAX ? QNI_F32 : (qni_dtype)g->dtype;
    for (int64_t i = 0; i < g->vocab; i++)
        qni_sampling_put(dtype, g->out, b * g->out_row + i, value);
}

/** Writes the kept weights, divided by their sum. */
QN_INLINE void pass_for_probs(qni_dtype dtype, void *out, const row *r, float factor) {
    f32v w;
    int64_t i = 0;
    for (; i + QN_LANES <= r->count; i += QN_LANES) {
        memcpy(&w, r->values + i, sizeof w);
        store(dtype, out, i, w * factor);
    }
    if (i < r->count) {
        memcpy(&w, r->values + i, sizeof w);
        store_lanes(dtype, out, i, r->count, w * factor);
    }
}

/** Writes the kept elements as they are, and minus infinity for others. */
QN_INLINE void pass_for_masked(qni_dtype dtype, void *out, const row *r) {
    const u32v least_key = (u32v){} + r->least_key;
    for (int64_t i = 0; i < r->count; i += QN_LANES) {
        const f32v v = load_lanes(dtype, r, i);
        store_lanes(dtype, out, i, r->count,
                    select_of(keys_of(v) >= least_key, v, all_of(-HUGE_VALF)));
    }
}

static void run_masked(const qk_sampling_args *g, const qk_sampling_row *f, row *r, void *out) {
    if (f->top_k < g->vocab && !qk_is_degenerate(true, r->top))
        r->least_key = select_key(r, false, f->top_k, 0, false);
    EACH_DTYPE(pass_for_masked(dtype, out, r));
}

static void run_numbers(const qk_sampling_args *g, const qk_sampling_row *f, row *r, int64_t b) {
    const bool is_softmax = g->what == QK_SAMPLING_SOFTMAX;
    void *out = (char *)g->out + b * g->out_row * (is_softmax ? 4 : qni_dtype_bytes(r->dtype));
    if (r->top == QK_KEY_SPOILT || !f->is_valid) {
        write_all(g, b, NAN);
    } else if (g->what == QK_SAMPLING_MASK) {
        run_masked(g, f, r, out);
    } else if (qk_is_degenerate(r->is_logits, r->top)) {
        write_all(g, b, 0);
    } else if (!is_softmax && !qk_has_filter(f, g->vocab)) {
        EACH_DTYPE(pass_for_masked(dtype, out, r));
    } else {
        if (is_softmax && r->count % QN_LANES == 0)
            r->values = out; // whole vectors need no room behind the row
        const uint64_t total = filter(g, f, r, find_weights(r, f->scale));
        const float factor = total ? qk_normalizer(total) : 0;
        if (is_softmax)
            pass_for_probs(QNI_F32, out, r, factor);
        else
            EACH_DTYPE(pass_for_probs(dtype, out, r, factor));
    }
}

static void run_greedy(const qk_sampling_args *g, const row *r, int64_t b, bool is_degenerate) {
    int64_t token = 0;
    if (!is_degenerate)
        EACH_DTYPE(token = pass_for_first(dtype, r));
    write_token(g, b, token, !is_degenerate);
}

static void run_tokens(const qk_sampling_args *g, const qk_sampling_row *f, row *r, int64_t b,
                       bool is_degenerate) {
    const uint64_t total = is_degenerate ? 0 : filter(g, f, r, find_weights(r, f->scale));
    const int64_t token = total ? pick(r, qk_draw(&g->random, (uint32_t)b, 0, total)) : 0;
    write_token(g, b, token, total > 0);
}

static void run_row(const qk_sampling_args *g, int64_t b, void *scratch) {
    const qk_sampling_row f = qk_sampling_row_of(g, (uint32_t)b);
    const int64_t from = qk_sampling_from(g, (uint32_t)b);
    row r = {.dtype = (qni_dtype)g->dtype, .is_logits = g->is_logits, .count = g->vocab};
    place_scratch(&r, scratch, g->vocab);
    r.x = (const char *)g->x + (from < 0 ? 0 : from) * qni_dtype_bytes(r.dtype);
    if (from >= 0)
        find_top(&r);
    const bool is_degenerate = qk_is_degenerate(g->is_logits, r.top) || !f.is_valid;
    if (g->what == QK_SAMPLING_GREEDY)
        run_greedy(g, &r, b, is_degenerate);
    else if (g->what == QK_SAMPLING_TOKENS)
        run_tokens(g, &f, &r, b, is_degenerate);
    else
        run_numbers(g, &f, &r, b);
}

// ---- speculative sampling

/** Computes the weights after the drafted tokens; without draft, the target's. Returns the sum. */
static uint64_t find_surplus(row *r, const float *draft, const float *target) {
    uint64_t total = 0;
    for (int64_t from = 0; from < r->count; from += BLOCK) {
        uint64_t mass = 0;
        const int64_t end = from + BLOCK < r->count ? from + BLOCK : r->count;
        for (int64_t i = from; i < end; i++)
            mass += qk_whole(r->values[i] = qk_surplus(draft ? draft[i] : 0, target[i]));
        total += r->masses[from / BLOCK] = mass;
    }
    return total;
}

/** Writes the drafted tokens that are sent, and counts. Returns how many are sent. */
static uint32_t send_drafts(const qk_chain_args *g, int64_t b, int32_t *out) {
    uint32_t sent = 0, accepted = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t words[4];
        const int32_t id = g->ids[b * g->n + i];
        qk_random_words(&g->random, (uint32_t)b, i, words);
        const bool accepts = id >= 0 && id < (int32_t)g->vocab &&
                             qk_accepts(g->draft[(b * g->n + i) * g->vocab + id],
                                        g->target[(b * (g->n + 1) + i) * g->vocab + id], words[0]);
        accepted += accepts;
        if (sent == i && accepts)
            out[sent++] = id;
    }
    if (g->accepted)
        g->accepted[b] += (int32_t)accepted;
    if (g->sent)
        g->sent[b] += (int32_t)sent;
    return sent;
}

static void run_chain(const qk_chain_args *g, int64_t b, void *scratch) {
    int32_t *out = g->out + b * (g->n + 1);
    const uint32_t sent = send_drafts(g, b, out);
    const float *target = g->target + (b * (g->n + 1) + sent) * g->vocab;
    const float *draft = sent < g->n ? g->draft + (b * g->n + sent) * g->vocab : nullptr;
    row r = {.count = g->vocab};
    place_scratch(&r, scratch, g->vocab);
    uint64_t total = find_surplus(&r, draft, target);
    if (total == 0 && draft)
        total = find_surplus(&r, nullptr, target);
    out[sent] = total ? pick(&r, qk_draw(&g->random, (uint32_t)b, g->n, total)) : 0;
    for (uint32_t i = sent + 1; i <= g->n; i++)
        out[i] = -1;
}

// ---- penalties

/** A row's numbers, and its tokens' counts and places in the prompt; null: none. */
typedef struct penalty {
    float repetition, presence, frequency;
    const int32_t *counts;
    const uint8_t *in_prompt;
} penalty;

/** As qk_penalized, of whole vectors. */
QN_INLINE f32v penalized_lanes(const penalty *p, int64_t i, f32v x) {
    i32v counts = {}, seen;
    u8v in_prompt = {};
    if (p->counts)
        memcpy(&counts, p->counts + i, sizeof counts);
    if (p->in_prompt)
        memcpy(&in_prompt, p->in_prompt + i, sizeof in_prompt);
    const i32v sent = counts > 0;
    seen = sent | (__builtin_convertvector(in_prompt, i32v) != 0);
    x = select_of(seen, select_of(x > 0, x / p->repetition, x * p->repetition), x);
    x -= p->frequency * __builtin_convertvector(counts, f32v);
    return select_of(sent, x - p->presence, x);
}

QN_INLINE void pass_for_penalties(qni_dtype dtype, const penalty *p, const row *r, void *out) {
    int64_t i = 0;
    for (; i + QN_LANES <= r->count; i += QN_LANES)
        store(dtype, out, i, penalized_lanes(p, i, load(dtype, r->x, i)));
    for (; i < r->count; i++)
        qni_sampling_put(dtype, out, i,
                         qk_penalized((float)qni_get(dtype, r->x, i), p->counts ? p->counts[i] : 0,
                                      p->in_prompt && p->in_prompt[i], p->repetition, p->presence,
                                      p->frequency));
}

static void run_penalties(const qk_penalty_args *g, int64_t b) {
    const int64_t bytes = qni_dtype_bytes((qni_dtype)g->dtype);
    const penalty p = {.repetition = g->repetitions ? g->repetitions[b] : g->repetition,
                       .presence = g->presences ? g->presences[b] : g->presence,
                       .frequency = g->frequencies ? g->frequencies[b] : g->frequency,
                       .counts = g->counts ? g->counts + b * g->counts_row : nullptr,
                       .in_prompt = g->in_prompt ? g->in_prompt + b * g->prompt_row : nullptr};
    const row this = {.dtype = (qni_dtype)g->dtype,
                      .x = (const char *)g->x + b * g->x_row * bytes,
                      .count = g->vocab};
    const row *const r = &this;
    EACH_DTYPE(pass_for_penalties(dtype, &p, r, (char *)g->out + b * g->out_row * bytes));
}

// ---- the kernel

static void run_rows(void *context, int64_t first, int64_t end, void *scratch) {
    const qni_sampling_problem *p = context;
    for (int64_t b = first; b < end; b++)
        if (p->what == QK_SAMPLING_CHAIN)
            run_chain(&p->chain, b, scratch);
        else if (p->what == QK_SAMPLING_PENALTIES)
            run_penalties(&p->penalties, b);
        else
            run_row(&p->rows, b, scratch);
}

static qn_status run_problem(const qni_sampling_problem *p) {
    const int64_t vocab = qni_sampling_vocab(p), task = 1 << 15; // elements that one task reads
    if (qni_parallel_runs(qni_sampling_batch(p), 1 + task / vocab, scratch_bytes(vocab), run_rows,
                          (void *)p))
        return QN_OK;
    return QN_FAIL(QN_E_MEMORY, "sampling: no memory for a row of %ld", (long)vocab);
}

#endif
