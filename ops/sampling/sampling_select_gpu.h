// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of sampling: what filters keep, and the draw.
//
// top_k and top_p keep all elements from some key up. A histogram over the distance to the largest
// element, in 32 bins an octave of weight, finds the bin of that key. The next pass lists what is
// in the bin and, if there is room, what lies above it. The key is then found in the list by three
// digits, and a token is drawn from the list, by its index's digits. Where the histogram does not
// reach far enough, or the bin is too full for the list, the digits are those of the whole row.
#ifndef QK_SAMPLING_SELECT_GPU_H
#define QK_SAMPLING_SELECT_GPU_H

#include "sampling_row_gpu.h"

enum { DIGIT = 11, BINS = 1 << DIGIT, BINS_AN_OCTAVE = 32 };
enum { ROOM = 1536 }; // elements of a part of the list

[[clang::loader_uninitialized]] static QD_LDS uint64_t bins[BINS];
[[clang::loader_uninitialized]] static QD_LDS uint64_t found_above;
[[clang::loader_uninitialized]] static QD_LDS uint32_t found_bin;
/** The list: its first half has elements of the bin, its second half those above. */
[[clang::loader_uninitialized]] static QD_LDS float list_x[2 * ROOM];
[[clang::loader_uninitialized]] static QD_LDS uint32_t list_index[2 * ROOM], listed[2];

// ---- histograms

/** Makes the histogram empty. */
QD_INLINE void clear_bins(void) {
    for (uint32_t i = qd_thread(); i < BINS; i += THREADS)
        bins[i] = 0;
    qd_barrier();
}

/** Makes each workgroup's histogram the whole row's: each adds up its share of the bins and gives
 *  the sums to all. Only it reads its share of others' bins, so that they may be written. */
QD_INLINE void share_bins(void) {
    if (PARTS == 1)
        return;
    qd_cluster_barrier();
    for (uint32_t i = qd_thread(); i < BINS / PARTS; i += THREADS) {
        QD_LDS uint64_t *bin = &bins[qd_cluster_rank() * (BINS / PARTS) + i];
        uint64_t sum = 0;
        QD_UNROLL for (uint32_t p = 0; p < PARTS; p++)
            sum += qd_cluster_load64(qd_cluster_at(bin, p));
        QD_UNROLL for (uint32_t p = 0; p < PARTS; p++)
            qd_cluster_store64(qd_cluster_at(bin, p), sum);
    }
    qd_cluster_barrier();
}

enum { OF_LANE = BINS / THREADS }; // bins of a thread

/** Finds the highest bin with which the sum from the last bin down reaches *need; if is_share, that
 *  is p of the sum. Takes what lies above the bin away from *need. Returns BINS if the sum is too
 *  small. */
QD_INLINE uint32_t find_bin(bool is_share, float p, uint64_t *need) {
    const uint32_t high = BINS - 1 - OF_LANE * qd_thread();
    uint64_t mine[OF_LANE], sum = 0;
    QD_UNROLL for (uint32_t k = 0; k < OF_LANE; k++)
        sum += mine[k] = bins[high - k];
    const uint64_t scanned = scan_lanes(sum);
    if (qd_thread() == 0) {
        found_bin = BINS;
        found_above = 0;
    }
    put_waves(scanned);
    const uint64_t waves = scan_waves(), total = read_lane(waves, QD_WAVE - 1);
    uint64_t before = scanned - sum + (qd_wave() > 0 ? read_lane(waves, qd_wave() - 1) : 0);
    if (is_share)
        *need = qk_share(total, p);
    QD_UNROLL for (uint32_t k = 0; k < OF_LANE; k++) {
        if (before < *need && *need <= before + mine[k]) {
            found_bin = high - k;
            found_above = before;
        }
        before += mine[k];
    }
    qd_barrier();
    *need -= found_above;
    const uint32_t bin = found_bin;
    qd_barrier();
    return bin;
}
static_assert(OF_LANE * THREADS == BINS);

// ---- bins by distance

typedef struct places {
    uint32_t at[4];
} places;

/** Returns the bins of four elements: the larger, the higher; 0: too far from the largest element
 *  for a bin, and of no mass. */
QD_INLINE places places_of(const row *r, qd_f32x4 x) {
    places p;
    if (r->is_logits) {
        const qd_f32x4 distance = exponents_of(r, x) * -(float)BINS_AN_OCTAVE;
        QD_UNROLL for (int k = 0; k < 4; k++)
            p.at[k] = BINS - 1 - (uint32_t)__builtin_fminf(distance[k], BINS - 1);
    } else {
        QD_UNROLL for (int k = 0; k < 4; k++)
            p.at[k] = BINS - 1 - qd_min((r->top - (qd_as_u32(x[k]) | QK_KEY_ZERO)) >> 18, BINS - 1);
    }
    return p;
}
static_assert(BINS_AN_OCTAVE == 1 << (23 - 18) && BINS / BINS_AN_OCTAVE > QK_SAMPLING_POINT + 2);

QD_INLINE void visit_for_counts(const row *r, void *, uint32_t, qd_f32x4 x, bool) {
    const places p = places_of(r, x);
    QD_UNROLL for (int k = 0; k < 4; k++)
        if (p.at[k] > 0)
            qd_lds_add_low(&bins[p.at[k]], 1);
}

QD_INLINE void visit_for_masses(const row *r, void *, uint32_t, qd_f32x4 x, bool) {
    const places p = places_of(r, x);
    const qd_f32x4 w = weights_of(r, x);
    QD_UNROLL for (int k = 0; k < 4; k++) {
        const uint64_t mass = qk_whole(w[k]);
        if (mass > 0)
            qd_lds_add64(&bins[p.at[k]], mass);
    }
}

/** What a lane lists: the elements of a bin and those above. */
typedef struct lister {
    uint32_t bin;
    uint32_t full; // a bit for each half that the lane has found full
} lister;

QD_INLINE void visit_for_list(const row *r, void *state, uint32_t i, qd_f32x4 x, bool) {
    lister *l = state;
    const uint32_t bin = l->bin;
    const places p = places_of(r, x);
    if (qd_max(qd_max(p.at[0], p.at[1]), qd_max(p.at[2], p.at[3])) < bin)
        return;
    QD_UNROLL for (uint32_t k = 0; k < 4; k++) {
        const uint32_t half = p.at[k] > bin;
        // A half that has too many is of no use, and the lane gives it no more.
        if (p.at[k] < bin || l->full >> half & 1)
            continue;
        const uint32_t slot = qd_lds_fetch_add(&listed[half], 1);
        if (slot < ROOM) {
            list_x[half * ROOM + slot] = x[k];
            list_index[half * ROOM + slot] = r->first + i + k;
        } else {
            l->full |= 1u << half;
        }
    }
}

enum { SLOTS = (2 * ROOM + THREADS - 1) / THREADS }; // of the list, of a thread

/** Gives all workgroups the list of all parts, one part's elements behind the other's, and sets the
 *  numbers of elements. Of a half for which there is no room only the number counts. */
QD_INLINE void share_list(row *r, bool by_mass) {
    const uint32_t counts[2] = {qd_min(listed[0], ROOM), qd_min(listed[1], ROOM)};
    float x[SLOTS];
    uint32_t index[SLOTS];
    QD_UNROLL for (uint32_t k = 0; PARTS > 1 && k < SLOTS; k++) {
        const uint32_t slot = qd_min(qd_thread() + k * THREADS, 2 * ROOM - 1);
        x[k] = list_x[slot];
        index[k] = list_index[slot];
    }
    uint64_t before;
    const uint64_t total =
        sum_of_parts(LISTED + by_mass, listed[0] | (uint64_t)listed[1] << 32, &before);
    r->in_bin = (uint32_t)total;
    r->above = (uint32_t)(total >> 32);
    if (PARTS == 1)
        return;
    QD_UNROLL for (uint32_t k = 0; k < SLOTS; k++) {
        const uint32_t slot = qd_thread() + k * THREADS, half = slot >= ROOM;
        const uint32_t to = slot + (uint32_t)(half ? before >> 32 : before);
        if (slot - half * ROOM >= counts[half] || (half ? r->above : r->in_bin) > ROOM)
            continue;
        QD_UNROLL for (uint32_t p = 0; p < PARTS; p++) {
            qd_cluster_store32(qd_cluster_at(&list_x[to], p), qd_as_u32(x[k]));
            qd_cluster_store32(qd_cluster_at(&list_index[to], p), index[k]);
        }
    }
    qd_cluster_barrier();
}

/** Which elements a selection is among. */
enum { ROW, BIN, LIST };

/** Lists the elements of the bin of the last kept key, and those above. Takes what lies above from
 *  *need. Returns BIN, or ROW if no list can help. */
QD_INLINE uint32_t list_bin(row *r, bool by_mass, float p, uint64_t *need) {
    uint64_t left = *need;
    r->is_listed = false;
    if (qd_thread() < 2)
        listed[qd_thread()] = 0;
    clear_bins();
    if (by_mass)
        walk_row(r, visit_for_masses, nullptr);
    else
        walk_row(r, visit_for_counts, nullptr);
    qd_barrier();
    share_bins();
    lister l = {.bin = find_bin(by_mass, p, &left)};
    if (l.bin == BINS)
        return ROW;
    walk_row(r, visit_for_list, &l);
    qd_barrier();
    share_list(r, by_mass);
    if (r->in_bin > ROOM)
        return ROW;
    r->is_listed = r->above <= ROOM;
    *need = left;
    return BIN;
}

// ---- selection by digits

/** What a selection goes by. */
enum { BY_COUNT, BY_MASS, BY_PLACE };

QD_INLINE uint32_t count_of(const row *r, uint32_t among) {
    return among == ROW ? r->count : among == BIN ? r->in_bin : r->in_bin + r->above;
}

/** Returns element i of the row or of the list; *index: its place in the row. */
QD_INLINE float element_of(const row *r, uint32_t among, uint32_t i, uint32_t *index) {
    const uint32_t at = i < r->in_bin ? i : ROOM + i - r->in_bin;
    *index = among == ROW ? r->first + i : list_index[at];
    return among == ROW ? load(r, i) : list_x[at];
}

/** Adds what each element counts for to the bin of its key's digit at `shift`, if its key is `key`
 *  from bit `above` on; 0: whatever it is. */
QD_INLINE void fill_bins(const row *r, uint32_t among, uint32_t by, uint32_t key, uint32_t above,
                         uint32_t shift) {
    clear_bins();
    for (uint32_t i = qd_thread(); i < count_of(r, among); i += THREADS) {
        uint32_t index;
        const float x = element_of(r, among, i, &index);
        const uint32_t k = by == BY_PLACE ? ~index : qk_key(r->is_logits, x);
        if (above && (k ^ key) >> above)
            continue;
        const uint64_t amount = by == BY_COUNT ? 1 : mass_of(r, index, x);
        if (amount > 0)
            qd_lds_add64(&bins[k >> shift & (BINS - 1)], amount);
    }
    qd_barrier();
}

/** Returns the largest key with which the elements from there up reach a count or mass of `need`;
 *  if is_share, p of the mass. A key BY_PLACE is the complement of an index. */
QD_INLINE uint32_t select_key(const row *r, uint32_t among, uint32_t by, bool is_share, float p,
                              uint64_t need) {
    uint32_t key = 0, above = 0;
    QD_NO_UNROLL for (uint32_t digit = 0; digit < 3; digit++) {
        const uint32_t shift = digit == 0 ? 21 : digit == 1 ? 10 : 0;
        fill_bins(r, among, by, key, above, shift);
        if (among == ROW)
            share_bins();
        const uint32_t bin = find_bin(is_share && digit == 0, p, &need);
        if (bin == BINS)
            return 0;
        key |= bin << shift; // the last digit has the bit before it as well
        above = shift;
    }
    return key;
}

/** Finds what the filters keep: by top_k first, then by top_p, with one piece of code for both. */
QD_INLINE void filter(const qk_sampling_args *g, const qk_sampling_row *f, row *r) {
    float least_x = r->least_x;
    QD_NO_UNROLL for (uint32_t by_mass = 0; by_mass < 2; by_mass++) {
        g = qd_reread(g);
        if (by_mass ? f->top_p >= 1 : f->top_k >= g->vocab)
            continue;
        uint64_t need = f->top_k;
        const bool has_list = r->is_listed && !g->is_joint;
        const uint32_t among = has_list ? LIST : list_bin(r, by_mass, f->top_p, &need);
        const uint32_t key = select_key(r, among, by_mass, by_mass && among != BIN, f->top_p, need);
        least_x = __builtin_fmaxf(bound_of_key(key), least_x);
        g = qd_reread(g);
        if (!g->is_joint)
            r->least_x = least_x;
    }
    r->least_x = least_x;
    r->least = r->is_logits ? f->min_p : f->min_p * r->largest;
}
static_assert(BY_COUNT == 0 && BY_MASS == 1);

// ---- the draw

/** Returns the mass of what is kept; all of it is in the list. */
QD_INLINE uint64_t sum_list(const row *r) {
    uint64_t sum = 0;
    for (uint32_t i = qd_thread(); i < count_of(r, LIST); i += THREADS) {
        uint32_t index;
        const float x = element_of(r, LIST, i, &index);
        sum += mass_of(r, index, x);
    }
    return sum_of_all(sum);
}

/** The token that is drawn is in another workgroup's part, and that workgroup knows it. */
constexpr uint32_t elsewhere = 0xFFFFFFFF;

/** Puts the waves' masses into of_waves, which are those of their lanes. */
QD_INLINE void put_masses(uint64_t of_lane) {
    put_waves(qd_ballot(of_lane >> 63) ? spoilt_mass : scan_lanes(of_lane));
}

/** Returns the mass of all waves, which `scanned` has the scan of. */
QD_INLINE uint64_t mass_of_waves(uint64_t scanned) {
    const bool is_spoilt = qd_ballot(qd_lane() < WAVES && of_waves[qd_lane()] >> 63);
    return is_spoilt ? spoilt_mass : read_lane(scanned, QD_WAVE - 1);
}

/** Returns the mass of what is kept; 0: no token. Draws a token unless `random` is null. If
 *  is_summed, `sum` is the mass of this lane's elements, as sum_probs returns it. Where parts tell
 *  each other masses, their cluster has no more to do, and the row is alone. */
QD_INLINE uint64_t draw_token(row *r, const qk_sampling_random *random, uint32_t b, uint32_t step,
                              bool is_summed, uint64_t sum, uint32_t *token) {
    uint32_t first = 0, count = r->count;
    uint64_t total = r->is_listed ? sum_list(r) : 0, at = 0;
    *token = 0;
    if (r->is_listed) {
        if (random && total > 0)
            *token = ~select_key(r, LIST, BY_PLACE, false, 0, qk_draw(random, b, step, total) + 1);
        return total;
    }
    QD_NO_UNROLL do {
        const uint32_t part = qd_div_up(count, WAVES);
        put_masses(is_summed && total == 0 ? sum : sum_of_lane(r, first, count));
        const uint64_t waves = scan_waves();
        if (total == 0) {
            const uint64_t mine = mass_of_waves(waves);
            uint64_t before;
            total = sum_of_parts(MASSES, mine, &before);
            if (PARTS > 1)
                qd_cluster_arrive();
            r->is_alone = true;
            at = random ? qk_draw(random, b, step, total) - before : 0;
            if (PARTS > 1 && at >= mine) {
                *token = total ? elsewhere : 0;
                return total;
            }
        }
        const uint32_t w = qd_uniform(
            (uint32_t)__builtin_popcountll(qd_ballot(qd_lane() < WAVES - 1 && waves <= at)));
        at -= w > 0 ? read_lane(waves, w - 1) : 0;
        qd_barrier();
        first += w * part;
        count = qd_min(part, count - w * part);
    } while (random && count > 1 && total > 0);
    *token = total ? r->first + first : 0;
    return total;
}

#endif
