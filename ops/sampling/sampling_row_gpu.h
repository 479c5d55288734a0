// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of sampling: a row, walks along it, weights, and sums over the
// workgroup, or over the cluster of workgroups that share the row.
#ifndef QK_SAMPLING_ROW_GPU_H
#define QK_SAMPLING_ROW_GPU_H

#include "cluster.h"
#include "elements.h"
#include "sampling_abi.h"

#if !defined(QK_PARTS)
#define QK_PARTS 1
#define QK_THREADS 1024
#endif

/** Workgroups that share a row, each with a part of it; their threads. */
enum { PARTS = QK_PARTS, THREADS = QK_THREADS, WAVES = THREADS / QD_WAVE };
// Loads of 16 bytes that a lane has under way, at most 4: of memory, or of LDS.
enum { IN_FLIGHT = PARTS > 1 ? 2 : 4 };

[[clang::loader_uninitialized]] static QD_LDS uint64_t of_waves[WAVES];

/** A workgroup's part of a row, and what is known of the row so far. Elements are counted from the
 *  part's first, which is element `first` of the row. */
typedef struct row {
    const void *x;
    const float *draft; // speculative sampling: what is taken away from x; or null
    uint32_t dtype, first, count;
    bool is_logits, is_surplus;
    uint32_t top;           // the largest key
    float largest, scale;   // the element of key top; log2(e) / temperature
    float least_x, least;   // smaller elements are not kept, and smaller weights
    bool is_listed;         // all that is kept is in the list:
    uint32_t in_bin, above; // its two parts
    bool is_alone;          // no other workgroup needs to know more
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

/** Stores four elements, the first of which lies at a multiple of four elements' bytes. */
QD_INLINE void store4(uint32_t dtype, void *p, uint32_t i, qd_f32x4 v) {
    if (dtype == QD_F32)
        *(qd_f32x4 *)((float *)p + i) = v;
    else if (dtype == QD_F16)
        *(qd_f16x4 *)((uint16_t *)p + i) = __builtin_convertvector(v, qd_f16x4);
    else
        *(qd_bf16x4 *)((uint16_t *)p + i) = __builtin_convertvector(v, qd_bf16x4);
}

/** Returns the elements whose keys are not below `key`, as a bound for elements; a row with a
 *  largest key has no NaN. */
QD_INLINE float bound_of_key(uint32_t key) {
    return key > QK_KEY_NONE ? qk_of_ordered(key) : -__builtin_inff();
}

/** Returns the binary logarithms of logits' weights, at most 0; where the largest is infinite, its
 *  own is 0, for the least of 0 and NaN is 0. */
QD_INLINE qd_f32x4 exponents_of(const row *r, qd_f32x4 x) {
    qd_f32x4 y = (x - r->largest) * r->scale;
    QD_UNROLL for (int k = 0; k < 4; k++)
        y[k] = __builtin_fminf(y[k], 0);
    return y;
}

/** As qk_exp2, in whole vectors, of which some targets compute two floats at a time. */
QD_INLINE qd_f32x4 weights_exp2(qd_f32x4 y) {
    const float c[] = QK_EXP2_COEFFICIENTS;
    const qd_f32x4 sum = y + QK_EXP2_MAGIC, f = y - (sum - QK_EXP2_MAGIC);
    qd_f32x4 p = c[5];
    QD_UNROLL for (int i = 4; i >= 0; i--)
        p = __builtin_elementwise_fma(p, f, (qd_f32x4)c[i]);
    p = __builtin_elementwise_fma(p, f, (qd_f32x4)1.0f);
    p *= __builtin_bit_cast(qd_f32x4, __builtin_bit_cast(qd_u32x4, sum) << 23);
    QD_UNROLL for (int k = 0; k < 4; k++)
        p[k] = y[k] >= QK_EXP2_LEAST ? p[k] : 0;
    return p;
}

/** Returns four elements' weights, 0 for those that are not kept. */
QD_INLINE qd_f32x4 weights_of(const row *r, qd_f32x4 x) {
    qd_f32x4 w;
    if (r->is_logits)
        w = weights_exp2(exponents_of(r, x));
    else QD_UNROLL
        for (int k = 0; k < 4; k++)
            w[k] = qk_weight_of_prob(x[k]);
    QD_UNROLL for (int k = 0; k < 4; k++)
        w[k] = ((x[k] >= r->least_x) & (w[k] >= r->least)) ? w[k] : 0;
    return w;
}

/** Returns the mass of element i, which is x. */
QD_INLINE uint64_t mass_of(const row *r, uint32_t i, float x) {
    if (r->is_surplus)
        return qk_whole(qk_surplus(r->draft ? r->draft[i] : 0, x));
    return qk_whole(weights_of(r, x)[0]);
}

// ---- walks

/** Sees elements i to i + 3 of a row. Only the first is meant if is_one: the others are beside
 *  it in no row, and x has `nothing` for them. */
typedef void visitor(const row *r, void *state, uint32_t i, qd_f32x4 x, bool is_one);

/** What stands beside a lone element: of no weight, below all that a filter looks at. */
#define NOTHING (-__builtin_inff())

QD_INLINE void visit_f32(const row *r, uint32_t first, uint32_t vectors, uint32_t v, uint32_t lanes,
                         const qd_u32x4 *bits, visitor *visit, void *state) {
    QD_UNROLL for (uint32_t k = 0; k < IN_FLIGHT; k++)
        if (v + k * lanes < vectors)
            visit(r, state, first + 4 * (v + k * lanes), __builtin_bit_cast(qd_f32x4, bits[k]),
                  false);
}

/** Visits f16 or bf16. The visitor's code stands once: what is left moves to the first place. */
QD_INLINE void visit_16(const row *r, uint32_t first, uint32_t vectors, uint32_t v, uint32_t lanes,
                        qd_u32x4 *bits, visitor *visit, void *state) {
    QD_NO_UNROLL for (uint32_t k = 0; k < 2 * IN_FLIGHT && v < vectors; k++) {
        const uint32_t i = first + 8 * v + (k & 1) * 4;
        visit(r, state, i,
              r->dtype == QD_BF16 ? qd_from_16(QD_BF16, bits[0]).lo
                                  : qd_from_16(QD_F16, bits[0]).lo,
              false);
        QD_UNROLL for (uint32_t j = 0; j < IN_FLIGHT; j++)
            bits[j] =
                __builtin_shufflevector(bits[j], bits[qd_min(j + 1, IN_FLIGHT - 1)], 2, 3, 4, 5);
        v += (k & 1) * lanes;
    }
}

QD_INLINE void walk_vectors(bool is_f32, const row *r, uint32_t first, uint32_t vectors,
                            uint32_t lane, uint32_t lanes, visitor *visit, void *state) {
    const qd_u32x4 *p = qd_at(is_f32 ? QD_F32 : QD_F16, r->x, first);
    QD_NO_UNROLL for (uint32_t v = lane; v < vectors; v += IN_FLIGHT * lanes) {
        qd_u32x4 bits[IN_FLIGHT];
        QD_UNROLL for (uint32_t k = 0; k < IN_FLIGHT; k++)
            bits[k] = p[qd_min(v + k * lanes, vectors - 1)];
        QD_UNROLL for (uint32_t k = 0; k < IN_FLIGHT; k++)
            bits[k] = qd_opaque4(bits[k]); // else compilers put each load behind its branch
        QD_UNROLL for (uint32_t k = 1; k < IN_FLIGHT; k++) // the first use stands behind all loads
            bits[0][k] = qd_after(bits[k][k], bits[0][k]);
        if (is_f32)
            visit_f32(r, first, vectors, v, lanes, bits, visit, state);
        else
            visit_16(r, first, vectors, v, lanes, bits, visit, state);
    }
}

/** Shows `count` elements from `first` on to a visitor, each to one of the lanes, which are a wave
 *  or the workgroup: first those that belong to no whole 16 bytes, then the others. */
QD_INLINE void walk(const row *r, uint32_t first, uint32_t count, uint32_t lane, uint32_t lanes,
                    visitor *visit, void *state) {
    const bool is_f32 = r->dtype == QD_F32;
    const uint32_t bytes = is_f32 ? 4 : 2;
    const uintptr_t at = (uintptr_t)r->x + (uintptr_t)first * bytes;
    const uint32_t head = qd_min(count, (uint32_t)(-at % 16) / bytes);
    const uint32_t vectors = (count - head) * bytes / 16, inside = vectors * 16 / bytes;
    if (lane < count - inside) {
        const uint32_t i = first + lane + (lane < head ? 0 : inside);
        visit(r, state, i, (qd_f32x4){load(r, i), NOTHING, NOTHING, NOTHING}, true);
    }
    if (is_f32)
        walk_vectors(true, r, first + head, vectors, lane, lanes, visit, state);
    else
        walk_vectors(false, r, first + head, vectors, lane, lanes, visit, state);
}

QD_INLINE void walk_row(const row *r, visitor *visit, void *state) {
    walk(r, 0, r->count, qd_thread(), THREADS, visit, state);
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

QD_INLINE uint64_t read_lane(uint64_t x, uint32_t from) {
    return (uint64_t)qd_read_lane((uint32_t)(x >> 32), from) << 32 |
           qd_read_lane((uint32_t)x, from);
}

/** Puts each wave's sum of x, which `scanned` is the scan of, into of_waves. */
QD_INLINE void put_waves(uint64_t scanned) {
    if (qd_lane() == QD_WAVE - 1)
        of_waves[qd_wave()] = scanned;
    qd_barrier();
}

/** Returns, in lane w, the sum of the numbers that waves 0 to w have put; in later lanes all. */
QD_INLINE uint64_t scan_waves(void) {
    return scan_lanes(qd_lane() < WAVES ? of_waves[qd_lane()] : 0);
}
static_assert(WAVES <= QD_WAVE);

/** Returns the sum of x over the workgroup. */
QD_INLINE uint64_t sum_of_all(uint64_t x) {
    put_waves(scan_lanes(x));
    const uint64_t total = read_lane(scan_waves(), QD_WAVE - 1);
    qd_barrier();
    return total;
}

/** Returns the largest x of the wave. */
QD_INLINE uint64_t max_of_wave(uint64_t x) {
    QD_UNROLL for (uint32_t step = 1; step < QD_WAVE; step *= 2) {
        const uint64_t other =
            __gpu_shuffle_idx_u64(__gpu_lane_mask(), qd_lane() ^ step, x, QD_WAVE);
        x = other > x ? other : x;
    }
    return x;
}

// ---- the parts of a row

/** What a workgroup tells the others of its cluster: its largest element, the mass of its part, and
 *  twice, for top_k and for top_p, what it has listed. */
enum { TOPS, MASSES, LISTED, NUM_TOLD = LISTED + 2 };
[[clang::loader_uninitialized]] static QD_LDS qd_told told[NUM_TOLD];

/** Returns the sum of x over the parts, none if one is spoilt; *before: over those before this
 *  one. */
QD_INLINE uint64_t sum_of_parts(uint32_t kind, uint64_t x, uint64_t *before) {
    *before = 0;
    if (PARTS == 1)
        return x >> 63 ? 0 : x;
    const uint64_t of_lane = qd_tell(&told[kind], PARTS, x);
    if (qd_ballot(of_lane >> 63))
        return 0;
    const uint64_t scanned = scan_lanes(of_lane);
    const uint32_t rank = qd_cluster_rank();
    *before = rank > 0 ? read_lane(scanned, rank - 1) : 0;
    return read_lane(scanned, QD_WAVE - 1);
}

/** Returns the largest x of the row. */
QD_INLINE uint64_t max_of_all(uint64_t x) {
    put_waves(max_of_wave(x));
    x = max_of_wave(qd_lane() < WAVES ? of_waves[qd_lane()] : 0);
    qd_barrier();
    return PARTS > 1 ? max_of_wave(qd_tell(&told[TOPS], PARTS, x)) : x;
}

// ---- the largest element

/** The largest element that a lane has seen, the first element of the first four that have it, and
 *  the largest bits, which tell of an element that spoils the row. */
typedef struct best {
    float x;
    uint32_t i, bits;
} best;

QD_INLINE void visit_for_top(const row *r, void *state, uint32_t i, qd_f32x4 x, bool is_one) {
    best *b = state;
    QD_UNROLL for (int k = 0; k < 4; k++) {
        const float v = is_one ? x[0] : x[k];
        // Bits without their sign, doubled, are above those of infinity for NaNs alone; those of
        // good probabilities are below those of 2.
        b->bits = qd_max(b->bits, r->is_logits ? qd_as_u32(v) << 1 : qd_as_u32(v + 0.0f));
    }
    const float most =
        is_one ? x[0] : __builtin_fmaxf(__builtin_fmaxf(x[0], x[1]), __builtin_fmaxf(x[2], x[3]));
    const bool is_better = (most > b->x) | ((most == b->x) & (i < b->i));
    b->x = is_better ? most : b->x;
    b->i = is_better ? i : b->i;
}

/** Finds the largest key. Returns its first element if that is asked for. */
QD_INLINE uint32_t find_top(row *r, bool is_asked) {
    best b = {.x = -__builtin_inff(), .i = 0xFFFFFFFF};
    walk_row(r, visit_for_top, &b);
    const bool is_spoilt = b.bits > (r->is_logits ? 0xFF000000 : 0x3FFFFFFF);
    for (uint32_t k = 0; is_asked && b.i < r->count && k < 3; k++)
        b.i += load(r, b.i) != b.x;
    const uint64_t key = is_spoilt ? QK_KEY_SPOILT : qk_ordered(b.x);
    const uint64_t top = max_of_all(key << 32 | (uint32_t)~(r->first + b.i));
    r->top = (uint32_t)(top >> 32);
    r->largest = qk_of_ordered(r->top);
    return ~(uint32_t)top;
}

// ---- masses

/** Sums of the bits of weights as qk_whole rounds them, of `count` vectors. */
typedef struct sums {
    qd_u32x4 high, low;
    uint32_t count;
} sums;
// Each high part is below 2^21.
static_assert(QK_SAMPLING_MOST / PARTS / THREADS / 4 < 1 << 11);

QD_INLINE void add_weights(sums *s, qd_f32x4 w) {
    const qd_f32x4 upper = w + QK_TO_20_DIGITS, left = w - (upper - QK_TO_20_DIGITS);
    s->high += __builtin_bit_cast(qd_u32x4, upper);
    s->low += __builtin_bit_cast(qd_u32x4, left + QK_TO_40_DIGITS);
    s->count++;
}

QD_INLINE void visit_for_sum(const row *r, void *state, uint32_t, qd_f32x4 x, bool) {
    add_weights(state, weights_of(r, x));
}

QD_INLINE uint64_t total_of(const sums *s) {
    const uint32_t high = s->count * __builtin_bit_cast(uint32_t, QK_TO_20_DIGITS);
    const uint32_t low = s->count * __builtin_bit_cast(uint32_t, QK_TO_40_DIGITS);
    uint64_t total = 0;
    QD_UNROLL for (int k = 0; k < 4; k++)
        total +=
            ((uint64_t)(s->high[k] - high) << 20) + (uint64_t)(int64_t)(int32_t)(s->low[k] - low);
    return total;
}

/** The largest bits and the mass of probabilities. Others than good ones have bits above theirs. */
typedef struct bits_and_sums {
    uint32_t bits;
    sums sums;
} bits_and_sums;

QD_INLINE void visit_for_both(const row *, void *state, uint32_t, qd_f32x4 x, bool is_one) {
    bits_and_sums *both = state;
    qd_f32x4 w;
    QD_UNROLL for (int k = 0; k < 4; k++) {
        both->bits = qd_max(both->bits, qd_as_u32((is_one ? x[0] : x[k]) + 0.0f));
        w[k] = qk_weight_of_prob(x[k]);
    }
    add_weights(&both->sums, w);
}

/** The mass of what has an element that spoils the row; others are below. */
constexpr uint64_t spoilt_mass = 1ull << 63;
static_assert((uint64_t)QK_SAMPLING_MOST << (QK_SAMPLING_POINT + 1) <= spoilt_mass);

/** Returns the mass of this lane's elements of the wave's part of a row, all of which are kept. */
QD_INLINE uint64_t sum_probs(const row *r) {
    const uint32_t part = qd_div_up(r->count, WAVES), begin = qd_min(qd_wave() * part, r->count);
    bits_and_sums both = {};
    walk(r, begin, qd_min(part, r->count - begin), qd_lane(), QD_WAVE, visit_for_both, &both);
    return both.bits < qd_as_u32(2.0f) ? total_of(&both.sums) : spoilt_mass;
}

/** Returns the mass of this lane's elements of the wave's part of `count` elements from `first`
 *  on. */
QD_INLINE uint64_t sum_of_lane(const row *r, uint32_t first, uint32_t count) {
    const uint32_t part = qd_div_up(count, WAVES), begin = qd_min(qd_wave() * part, count);
    const uint32_t mine = qd_min(part, count - begin);
    if (!r->is_surplus) {
        sums s = {};
        walk(r, first + begin, mine, qd_lane(), QD_WAVE, visit_for_sum, &s);
        return total_of(&s);
    }
    uint64_t sum = 0;
    for (uint32_t i = first + begin + qd_lane(); i < first + begin + mine; i += QD_WAVE)
        sum += mass_of(r, i, load(r, i));
    return sum;
}

#endif
