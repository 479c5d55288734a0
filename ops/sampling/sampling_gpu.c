// SPDX-License-Identifier: Apache-2.0
// Sampling of any vocabulary, stride and alignment, in every form.
//
// Needs     atomic additions of 64 bits in LDS
// Tile      a workgroup has a row; lanes go along it, an element at a time
// Launch    1024 threads; workgroups step through the rows that are left
// LDS       17 KiB: a histogram, a sum for each wave, what was found
// Edges     none: run-time bounds
// Passes    one for the largest element; three for each of top_k and top_p, one for each digit of
//           the last kept key; then one, in which each wave sums a part of the row. The part in
//           which the token lies is divided among the waves again, and so on, until one element is
//           left. Numbers take one more, which writes them
// Source    radix select; inverse of a cumulative sum
#include "elements.h"
#include "sampling_abi.h"

enum { THREADS = 1024, WAVES = THREADS / QD_WAVE, DIGIT = 11, BINS = 1 << DIGIT };

[[clang::loader_uninitialized]] static QD_LDS uint64_t bins[BINS];
[[clang::loader_uninitialized]] static QD_LDS uint64_t of_waves[WAVES];
[[clang::loader_uninitialized]] static QD_LDS uint64_t found_above;
[[clang::loader_uninitialized]] static QD_LDS uint32_t found_bin;

/** A row, and what is known of it so far. */
typedef struct row {
    const void *x;
    const float *draft; // speculative sampling: what is taken away from x; or null
    uint32_t dtype, count;
    bool is_logits, is_surplus;
    uint32_t top, least_key; // the largest key; smaller ones than least_key are not kept
    float largest, scale;    // the element of key top; log2(e) / temperature
    float least;             // smaller weights are not kept
} row;

// ---- elements

QD_INLINE float load(const row *r, uint32_t i) {
    return r->dtype == QD_F32   ? qd_load1(QD_F32, (const float *)r->x + i)
           : r->dtype == QD_F16 ? qd_load1(QD_F16, (const uint16_t *)r->x + i)
                                : qd_load1(QD_BF16, (const uint16_t *)r->x + i);
}

QD_INLINE void store(uint32_t dtype, void *p, uint32_t i, float v) {
    if (dtype == QD_F32)
        qd_store1(QD_F32, (float *)p + i, v);
    else if (dtype == QD_F16)
        qd_store1(QD_F16, (uint16_t *)p + i, v);
    else
        qd_store1(QD_BF16, (uint16_t *)p + i, v);
}

/** Returns an element's weight, 0 if it is not kept. */
QD_INLINE float weight_of(const row *r, uint32_t i, float x) {
    if (r->is_surplus)
        return qk_surplus(r->draft ? r->draft[i] : 0, x);
    const float w =
        r->is_logits ? qk_weight_of_logit(x, r->largest, r->scale) : qk_weight_of_prob(x);
    return qk_key(r->is_logits, x) >= r->least_key && w >= r->least ? w : 0;
}

// ---- a wave and a workgroup

/** Returns the sum of x over this lane and the lanes below; all lanes take part. */
QD_INLINE uint64_t scan_lanes(uint64_t x) {
    QD_UNROLL for (uint32_t step = 1; step < QD_WAVE; step *= 2) {
        const uint64_t below =
            __gpu_shuffle_idx_u64(__gpu_lane_mask(), qd_lane() - step, x, QD_WAVE);
        x += qd_lane() >= step ? below : 0;
    }
    return x;
}

/** Puts each wave's sum of x, which `scanned` is the scan of, into of_waves. */
QD_INLINE void put_waves(uint64_t scanned) {
    if (qd_lane() == QD_WAVE - 1)
        of_waves[qd_wave()] = scanned;
    qd_barrier();
}

/** Returns the largest x of the workgroup. */
QD_INLINE uint64_t max_of_all(uint64_t x) {
    QD_UNROLL for (uint32_t step = 1; step < QD_WAVE; step *= 2) {
        const uint64_t other =
            __gpu_shuffle_idx_u64(__gpu_lane_mask(), qd_lane() ^ step, x, QD_WAVE);
        x = other > x ? other : x;
    }
    put_waves(x);
    QD_NO_UNROLL for (uint32_t w = 0; w < WAVES; w++)
        x = of_waves[w] > x ? of_waves[w] : x;
    qd_barrier();
    return x;
}

// ---- passes over a row

/** Finds the largest key. Returns its first element. */
QD_INLINE uint32_t find_top(row *r) {
    uint64_t best = 0;
    for (uint32_t i = qd_thread(); i < r->count; i += THREADS) {
        const uint64_t key = (uint64_t)qk_key(r->is_logits, load(r, i)) << 32 | (uint32_t)~i;
        best = key > best ? key : best;
    }
    best = max_of_all(best);
    r->top = (uint32_t)(best >> 32);
    r->largest = qk_of_ordered(r->top);
    return ~(uint32_t)best;
}

/** Sums the masses of `count` elements from `first` on: each wave those of its part, into of_waves.
 *  Returns the elements of a part. */
QD_INLINE uint32_t sum_parts(const row *r, uint32_t first, uint32_t count) {
    const uint32_t part = qd_div_up(count, WAVES), begin = qd_wave() * part;
    uint64_t sum = 0;
    for (uint32_t i = begin + qd_lane(); i < begin + part && i < count; i += QD_WAVE)
        sum += qk_whole(weight_of(r, first + i, load(r, first + i)));
    put_waves(scan_lanes(sum));
    return part;
}

QD_INLINE uint64_t sum_waves(void) {
    uint64_t total = 0;
    QD_NO_UNROLL for (uint32_t w = 0; w < WAVES; w++)
        total += of_waves[w];
    return total;
}

/** Draws a token. Returns the row's mass: 0, no token. */
QD_INLINE uint64_t draw_token(const row *r, const qk_sampling_random *random, uint32_t b,
                              uint32_t step, uint32_t *token) {
    uint32_t first = 0, count = r->count;
    uint64_t total = 0, at = 0;
    do {
        const uint32_t part = sum_parts(r, first, count);
        uint32_t w = 0;
        if (total == 0) {
            total = sum_waves();
            at = qk_draw(random, b, step, total);
        }
        QD_NO_UNROLL for (; w < WAVES - 1 && at >= of_waves[w]; w++)
            at -= of_waves[w];
        qd_barrier();
        first += w * part;
        count = qd_min(part, count - w * part);
    } while (count > 1 && total > 0);
    *token = total ? first : 0;
    return total;
}

/** Adds what each element counts for to the bin of its key's digit at `shift`, if its key is not
 *  below `least` and is `key` from bit `above` on; 0: whatever it is. */
QD_INLINE void fill_bins(const row *r, bool by_mass, uint32_t least, uint32_t key, uint32_t above,
                         uint32_t shift) {
    for (uint32_t i = qd_thread(); i < BINS; i += THREADS)
        bins[i] = 0;
    qd_barrier();
    for (uint32_t i = qd_thread(); i < r->count; i += THREADS) {
        const float x = load(r, i);
        const uint32_t k = qk_key(r->is_logits, x);
        if (k < least || (above && k >> above != key >> above))
            continue;
        const uint64_t amount = by_mass ? qk_whole(weight_of(r, i, x)) : 1;
        __scoped_atomic_fetch_add(&bins[k >> shift & (BINS - 1)], amount, __ATOMIC_RELAXED,
                                  __MEMORY_SCOPE_WRKGRP);
    }
    qd_barrier();
}

/** Finds the highest bin with which the sum from the last bin down reaches *need; by mass, and with
 *  the first digit, that is p of the sum. Takes what lies above the bin away from *need. Returns
 *  BINS if the sum is too small. A thread has two bins. */
QD_INLINE uint32_t find_bin(bool by_mass, float p, bool is_first, uint64_t *need) {
    const uint32_t high = BINS - 1 - 2 * qd_thread();
    const uint64_t upper = bins[high], both = upper + bins[high - 1];
    const uint64_t scanned = scan_lanes(both);
    put_waves(scanned);
    uint64_t before = scanned - both;
    QD_NO_UNROLL for (uint32_t w = 0; w < qd_wave(); w++)
        before += of_waves[w];
    const uint64_t total = sum_waves();
    if (by_mass && is_first)
        *need = qk_share(total, p);
    if (before < *need && *need <= before + both) {
        const bool is_lower = *need > before + upper;
        found_bin = high - is_lower;
        found_above = before + (is_lower ? upper : 0);
    }
    qd_barrier();
    const bool is_there = *need <= total;
    *need -= is_there ? found_above : 0;
    const uint32_t bin = is_there ? found_bin : BINS;
    qd_barrier();
    return bin;
}
static_assert(2 * THREADS == BINS);

/** Returns the largest key with which the elements from there up reach a count of `need`, or p of
 *  the mass; of elements whose keys are not below `least`. */
QD_INLINE uint32_t select_key(const row *r, bool by_mass, uint64_t need, float p, uint32_t least) {
    uint32_t key = 0, above = 0;
    QD_NO_UNROLL for (uint32_t digit = 0; digit < 3; digit++) {
        const uint32_t shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
        fill_bins(r, by_mass, least, key, above, shift);
        const uint32_t bin = find_bin(by_mass, p, digit == 0, &need);
        if (bin == BINS)
            return 0;
        key |= bin << shift; // the last digit has the bit before it as well
        above = shift;
    }
    return key;
}

/** Finds what the filters keep: by top_k first, then by top_p, with one piece of code for both. */
QD_INLINE void filter(const qk_sampling_args *g, const qk_sampling_row *f, row *r) {
    uint32_t least_key = 0;
    QD_NO_UNROLL for (uint32_t by_mass = 0; by_mass < 2; by_mass++) {
        g = qd_reread(g);
        if (by_mass ? f->top_p >= 1 : f->top_k >= g->vocab)
            continue;
        const uint32_t key =
            select_key(r, by_mass, f->top_k, f->top_p, g->is_joint ? 0 : least_key);
        least_key = qd_max(key, least_key);
    }
    r->least_key = least_key;
    r->least = r->is_logits ? f->min_p : f->min_p * r->largest;
}

// ---- functions on rows

QD_INLINE void write_token(const qk_sampling_args *g, uint32_t b, uint32_t token, bool is_valid) {
    if (qd_thread() != 0)
        return;
    ((int32_t *)g->out)[b] = (int32_t)token;
    if (g->valid)
        g->valid[b] = is_valid;
}

QD_INLINE void write_numbers(const qk_sampling_args *g, const qk_sampling_row *f, row *r,
                             uint32_t b) {
    const bool is_softmax = g->what == QK_SAMPLING_SOFTMAX, is_mask = g->what == QK_SAMPLING_MASK;
    const bool is_spoilt = r->top == QK_KEY_SPOILT || !f->is_valid;
    const bool is_empty = qk_is_degenerate(r->is_logits, r->top);
    const bool has_filter = qk_has_filter(f, g->vocab),
               copies = is_mask || !(is_softmax || has_filter);
    const uint32_t dtype = is_softmax ? QD_F32 : g->dtype;
    void *out = (char *)g->out + b * g->out_row * (dtype == QD_F32 ? 4 : 2);
    float factor = 0;
    if (has_filter && !is_spoilt && !is_empty)
        filter(g, f, r);
    if (!copies && !is_spoilt && !is_empty) {
        sum_parts(r, 0, r->count);
        const uint64_t total = sum_waves();
        factor = total ? qk_normalizer(total) : 0;
        qd_barrier();
    }
    for (uint32_t i = qd_thread(); i < r->count; i += THREADS) {
        const float x = load(r, i);
        const bool is_kept = qk_key(r->is_logits, x) >= r->least_key;
        store(dtype, out, i,
              is_spoilt  ? __builtin_nanf("")
              : is_empty ? (is_mask ? x : 0)
              : !copies  ? weight_of(r, i, x) * factor
              : is_kept  ? x
                         : -__builtin_inff());
    }
}

QD_INLINE void run_row(const qk_sampling_args *g, uint32_t b) {
    const qk_sampling_row f = qk_sampling_row_of(g, b);
    const int64_t from = qk_sampling_from(g, b);
    row r = {.x = (const char *)g->x + from * (g->dtype == QD_F32 ? 4 : 2),
             .dtype = g->dtype,
             .count = g->vocab,
             .is_logits = g->is_logits,
             .scale = f.scale};
    const uint32_t first = from < 0 ? 0 : find_top(&r);
    g = qd_reread(g);
    const bool is_degenerate = qk_is_degenerate(g->is_logits, r.top) || !f.is_valid;
    if (g->what == QK_SAMPLING_GREEDY) {
        write_token(g, b, is_degenerate ? 0 : first, !is_degenerate);
    } else if (g->what == QK_SAMPLING_TOKENS) {
        uint32_t token = 0;
        uint64_t total = 0;
        if (!is_degenerate) {
            filter(g, &f, &r);
            g = qd_reread(g);
            total = draw_token(&r, &g->random, b, 0, &token);
            g = qd_reread(g);
        }
        write_token(g, b, token, total > 0);
    } else {
        write_numbers(g, &f, &r, b);
    }
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

QD_INLINE void penalize_row(const qk_penalty_args *g, uint32_t b) {
    const float repetition = g->repetitions ? g->repetitions[b] : g->repetition;
    const float presence = g->presences ? g->presences[b] : g->presence;
    const float frequency = g->frequencies ? g->frequencies[b] : g->frequency;
    const uint32_t bytes = g->dtype == QD_F32 ? 4 : 2;
    const row r = {.x = (const char *)g->x + b * g->x_row * bytes, .dtype = g->dtype};
    void *out = (char *)g->out + b * g->out_row * bytes;
    for (uint32_t i = qd_thread(); i < g->vocab; i += THREADS) {
        const int32_t count = g->counts ? g->counts[b * g->counts_row + i] : 0;
        const bool in_prompt = g->in_prompt && g->in_prompt[b * g->prompt_row + i];
        store(g->dtype, out, i,
              qk_penalized(load(&r, i), count, in_prompt, repetition, presence, frequency));
    }
}

QD_KERNEL_WITHIN(1024, 64, qk_sampling_penalties)(const qk_penalty_args g) {
    qd_begin();
    for (uint32_t b = qd_block(); b < g.batch; b += __gpu_num_blocks(0))
        penalize_row(&g, b);
}
