// SPDX-License-Identifier: Apache-2.0
// What sampling's GPU kernels, CPU kernels and definition share: the structs of arguments, and the
// arithmetic on one element and on a row's sums.
//
// A token must be the same on every device. So an element's weight is one chain of f32 operations,
// each rounded once, and then a whole number. Sums of whole numbers have the same bits in any
// order.
// Products below 2^-100 count as 0, so that no operation meets a denormal that a device may flush.
#ifndef QK_SAMPLING_ABI_H
#define QK_SAMPLING_ABI_H

#include "../shared/philox_abi.h"

#include <stdint.h>

#define QK_INLINE static inline __attribute__((always_inline))

enum {
    QK_SAMPLING_SOFTMAX, // out: probabilities of logits, f32
    QK_SAMPLING_TOKENS,  // out: a token for each row
    QK_SAMPLING_GREEDY,  // out: the first of the largest elements
    QK_SAMPLING_RENORM,  // out: kept probabilities, divided by their sum
    QK_SAMPLING_MASK,    // out: kept logits; -infinity for others
    QK_SAMPLING_CHAIN,
    QK_SAMPLING_PENALTIES
};

/** Bits behind the point of a weight, and the largest vocabulary: weights are below 2, so that 64
 *  bits hold their sum. */
enum { QK_SAMPLING_POINT = 40, QK_SAMPLING_MOST = 1 << 22 };

/** What a row's random words depend on. */
typedef struct qk_sampling_random {
    const int64_t *seeds, *offsets; // null: the number below
    uint64_t seed, offset;
    uint32_t seed_step, offset_step; // 1: an entry for each row, 0: one for all
} qk_sampling_random;

/** The arguments for functions on rows. Strides are in elements. Where a pointer to numbers is
 *  null, the number beside it counts for all rows. */
typedef struct qk_sampling_args {
    const void *x;          // [rows, vocab]
    void *out;              // i32 [batch], or [batch, vocab]
    uint8_t *valid;         // [batch] or null
    const int32_t *indices; // [batch] or null: the row of x
    const float *temperatures, *top_ps, *min_ps;
    const int32_t *top_ks;
    qk_sampling_random random;
    int64_t x_row, out_row;
    float temperature, top_p, min_p; // top_p 1 and min_p 0: no filter
    uint32_t top_k;                  // the size of the vocabulary or more: no filter
    uint32_t batch, vocab, rows;
    uint32_t what, dtype, is_logits;
    uint32_t is_joint; // top_p counts among all elements, else among those that top_k keeps
} qk_sampling_args;

/** The arguments for speculative sampling; everything is contiguous. */
typedef struct qk_chain_args {
    const float *draft;       // [batch, n, vocab]
    const float *target;      // [batch, n + 1, vocab]
    const int32_t *ids;       // [batch, n]
    int32_t *out;             // [batch, n + 1]
    int32_t *accepted, *sent; // [batch] or null
    qk_sampling_random random;
    uint32_t batch, n, vocab;
} qk_chain_args;

/** Threads of a workgroup, and tokens that a lane takes at a time. */
enum { QK_PENALTIES_THREADS = 256, QK_PENALTIES_GROUP = 4 };

/** The arguments for penalties. */
typedef struct qk_penalty_args {
    const void *x;
    void *out;
    const int32_t *counts;    // [batch, vocab], how often each token was sent; or null
    const uint8_t *in_prompt; // [batch, vocab] or null
    const float *repetitions, *presences, *frequencies;
    int64_t x_row, out_row, counts_row, prompt_row;
    float repetition, presence, frequency;
    uint32_t batch, vocab, dtype;
} qk_penalty_args;

// ---- one element

/** Returns x as an integer of the same order; that of -0 is that of 0. */
QK_INLINE uint32_t qk_ordered(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    return bits >> 31 ? (bits << 1 ? ~bits : 0x80000000) : bits | 0x80000000;
}
QK_INLINE float qk_of_ordered(uint32_t key) {
    return __builtin_bit_cast(float, key >> 31 ? key & 0x7FFFFFFF : ~key);
}

/** The key of an element that spoils its row: a NaN, or a probability not from 0 to below 2. It is
 *  above all other keys. */
enum : uint32_t { QK_KEY_SPOILT = 0xFFFFFFFF, QK_KEY_NONE = 0x007FFFFF, QK_KEY_ZERO = 0x80000000 };

QK_INLINE uint32_t qk_key(bool is_logits, float x) {
    const bool is_good = is_logits ? x == x : x >= 0 && x < 2;
    return is_good ? qk_ordered(x) : QK_KEY_SPOILT;
}

/** Returns whether a row whose largest key is `top` has nothing to sample from. */
QK_INLINE bool qk_is_degenerate(bool is_logits, uint32_t top) {
    return top == QK_KEY_SPOILT || top <= (is_logits ? QK_KEY_NONE : QK_KEY_ZERO);
}

/** 2^f = 1 + f (c[0] + f (c[1] + …)) for f in [-1/2, 1/2], with a relative error of 2^-28.3 before
 *  rounding. */
#define QK_EXP2_COEFFICIENTS                                                                       \
    {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6af7ap-5f,                                              \
     0x1.3b2dd2p-7f, 0x1.5f0948p-10f, 0x1.417a9cp-13f}
// To add it rounds to a whole number, in the low bits of the sum, plus the bias of exponents.
#define QK_EXP2_MAGIC (0x1.8p23f + 127)
#define QK_EXP2_LEAST (-100.0f)

/** Returns 2^y for y <= 0; 0 below 2^-100. */
QK_INLINE float qk_exp2(float y) {
    const float c[] = QK_EXP2_COEFFICIENTS;
    const float sum = y + QK_EXP2_MAGIC, f = y - (sum - QK_EXP2_MAGIC);
    float p = c[5];
    for (int i = 4; i >= 0; i--)
        p = __builtin_fmaf(p, f, c[i]);
    const uint32_t exponent = __builtin_bit_cast(uint32_t, sum) << 23;
    p = __builtin_fmaf(p, f, 1.0f) * __builtin_bit_cast(float, exponent);
    return y >= QK_EXP2_LEAST ? p : 0.0f;
}

/** Returns exp((x - top) / temperature) for scale = log2(e) / temperature; 1 for the top itself,
 *  though it be infinite. */
QK_INLINE float qk_weight_of_logit(float x, float top, float scale) {
    return x == top ? 1.0f : qk_exp2((x - top) * scale);
}

/** Returns a probability as a weight: tiny ones count as 0. */
QK_INLINE float qk_weight_of_prob(float p) {
    return p >= 0x1p-100f ? p : 0.0f;
}

/** Floats from 8 to 16 end with a digit of 2^-20; 2^-20 times as much, with one of 2^-40. To add
 *  one of these to a weight below 2 rounds the weight to that digit, in the low bits of the sum. */
#define QK_TO_20_DIGITS 12.0f
#define QK_TO_40_DIGITS 0xCp-20f

/** Returns a weight from 0 to below 2 as a whole number, rounded to nearest, ties to even. Its
 *  upper digits are rounded first, and what is left then, which may be below 0. */
QK_INLINE uint64_t qk_whole(float weight) {
    const float upper = weight + QK_TO_20_DIGITS, left = weight - (upper - QK_TO_20_DIGITS);
    const float lower = left + QK_TO_40_DIGITS;
    const uint32_t high =
        __builtin_bit_cast(uint32_t, upper) - __builtin_bit_cast(uint32_t, QK_TO_20_DIGITS);
    const uint32_t low =
        __builtin_bit_cast(uint32_t, lower) - __builtin_bit_cast(uint32_t, QK_TO_40_DIGITS);
    return ((uint64_t)high << 20) + (uint64_t)(int64_t)(int32_t)low;
}

/** Returns what all weights are multiplied by for the sum `total`, above 0, to become 1. */
QK_INLINE float qk_normalizer(uint64_t total) {
    return 1.0f / ((float)total * 0x1p-40f);
}

// ---- a row

/** Returns the mass that the tokens of the nucleus must reach: p of the total, above 0. */
QK_INLINE uint64_t qk_share(uint64_t total, float p) {
    const uint64_t part = (uint64_t)(p * 0x1p32f);
    const uint64_t share = (total >> 32) * part + ((total & 0xFFFFFFFF) * part >> 32);
    return share ? share : 1;
}

/** Returns a * b / 2^64. */
QK_INLINE uint64_t qk_high_product(uint64_t a, uint64_t b) {
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), low = (uint32_t)middle + a0 * b1;
    return a1 * b1 + (middle >> 32) + (low >> 32);
}

QK_INLINE void qk_random_words(const qk_sampling_random *r, uint32_t row, uint32_t step,
                               uint32_t words[4]) {
    const uint64_t seed = r->seeds ? (uint64_t)r->seeds[row * r->seed_step] : r->seed;
    const uint64_t offset = r->offsets ? (uint64_t)r->offsets[row * r->offset_step] : r->offset;
    qk_philox_of(seed, r->seeds && r->seed_step ? 0 : row, offset + step, words);
}

/** Draws a number below `total` for a row: the token is the one in whose share of the running sum
 *  the number lies. */
QK_INLINE uint64_t qk_draw(const qk_sampling_random *r, uint32_t row, uint32_t step,
                           uint64_t total) {
    uint32_t words[4];
    qk_random_words(r, row, step, words);
    return qk_high_product(words[0] | (uint64_t)words[1] << 32, total);
}

/** What one row is filtered by. */
typedef struct qk_sampling_row {
    float scale; // log2(e) / temperature
    float top_p, min_p;
    uint32_t top_k;
    bool is_valid; // all are in their ranges
} qk_sampling_row;

QK_INLINE qk_sampling_row qk_sampling_row_of(const qk_sampling_args *g, uint32_t b) {
    const float temperature = g->temperatures ? g->temperatures[b] : g->temperature;
    const int32_t top_k = g->top_ks ? g->top_ks[b] : (int32_t)g->top_k;
    qk_sampling_row r = {.scale = 0x1.715476p+0f / temperature,
                         .top_p = g->top_ps ? g->top_ps[b] : g->top_p,
                         .min_p = g->min_ps ? g->min_ps[b] : g->min_p,
                         .top_k = (uint32_t)top_k};
    r.is_valid = temperature >= 0x1p-100f && temperature <= 0x1p100f && top_k >= 1 && r.top_p > 0 &&
                 r.top_p <= 1 && r.min_p >= 0 && r.min_p <= 1;
    return r;
}

/** Returns whether a filter may keep less than all of a row. */
QK_INLINE bool qk_has_filter(const qk_sampling_row *r, uint32_t vocab) {
    return r->top_k < vocab || r->top_p < 1 || r->min_p > 0;
}

/** Returns where row b of x begins, in elements; below 0: there is no such row. */
QK_INLINE int64_t qk_sampling_from(const qk_sampling_args *g, uint32_t b) {
    const int64_t row = g->indices ? g->indices[b] : (int64_t)b;
    return row >= 0 && row < (int64_t)g->rows ? row * g->x_row : -1;
}

/** Workgroups of a cluster that share a row. */
#define QK_SAMPLING_PARTS 8

/** Returns the elements of a workgroup's part of a row: a multiple of 16 bytes. The last parts may
 *  have less. */
QK_INLINE uint32_t qk_sampling_part(uint32_t vocab) {
    const uint32_t most = vocab / QK_SAMPLING_PARTS + (vocab % QK_SAMPLING_PARTS != 0);
    return (most + 7) / 8 * 8;
}

// ---- speculative sampling

/** Returns whether a drafted token of probability `draft` is accepted: with probability
 *  target / draft. */
QK_INLINE bool qk_accepts(float draft, float target, uint32_t word) {
    const float p = draft >= 0x1p-100f ? draft : 0.0f;
    return (float)(word >> 8) * p < (target >= 0x1p-100f ? target : 0.0f) * 0x1p24f;
}

/** Returns the weight of a token after a rejection: what the target has more than the draft. */
QK_INLINE float qk_surplus(float draft, float target) {
    const float more = target - draft;
    return more >= 0x1p-100f && more < 2 ? more : 0.0f;
}

// ---- penalties

QK_INLINE float qk_penalized(float x, int32_t count, bool in_prompt, float repetition,
                             float presence, float frequency) {
    if (count > 0 || in_prompt)
        x = x > 0 ? x / repetition : x * repetition;
    x -= frequency * (float)count;
    return count > 0 ? x - presence : x;
}

#endif
