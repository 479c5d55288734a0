// SPDX-License-Identifier: Apache-2.0
// For tests: makes a small set of cases in which every value of every axis meets every value of
// every other axis.
//
// A case begins with the first pair of values that no earlier case has. Each other axis then takes
// the value that adds the most new pairs, as long as the case stays cheap. Equal axes give equal
// cases.
#ifndef QNI_COVERING_H
#define QNI_COVERING_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { QNI_MAX_AXES = 16, QNI_MAX_VALUES = 12 };

typedef struct qni_axes {
    int count;
    int sizes[QNI_MAX_AXES]; // axis i has the values 0 .. sizes[i] - 1, the cheapest first
    /** Returns whether value a of axis i and value b of axis j may meet. i may be the larger or the
     *  smaller of the two axes. */
    bool (*can_meet)(int i, int a, int j, int b);
    /** Returns the cost of a case. A case costs at most `most`, unless its first pair forbids. */
    double (*cost)(const void *context, const int *values);
    const void *context;
    double most;
} qni_axes;

/** The pairs that the cases so far have; zero before the first case. */
typedef struct qni_covering {
    int cases;
    bool has_met[QNI_MAX_AXES][QNI_MAX_VALUES][QNI_MAX_AXES][QNI_MAX_VALUES];
} qni_covering;

static inline void qni_covering_add(qni_covering *c, const qni_axes *axes, const int *values) {
    c->cases++;
    for (int i = 0; i < axes->count; i++)
        for (int j = 0; j < axes->count; j++)
            c->has_met[i][values[i]][j][values[j]] = true;
}

/** Finds the first pair that may meet and has not met yet. Returns false if there is none. */
static inline bool qni_covering_find(const qni_covering *c, const qni_axes *axes, int pair[4]) {
    for (int i = 0; i < axes->count; i++)
        for (int j = i + 1; j < axes->count; j++)
            for (int a = 0; a < axes->sizes[i]; a++)
                for (int b = 0; b < axes->sizes[j]; b++)
                    if (!c->has_met[i][a][j][b] && axes->can_meet(i, a, j, b)) {
                        memcpy(pair, (const int[]){i, a, j, b}, 4 * sizeof *pair);
                        return true;
                    }
    return false;
}

/** Returns how many new pairs value a of axis i makes with the values of the chosen axes; below 0
 *  if it may not meet one of these values. */
static inline int qni_covering_gain(const qni_covering *c, const qni_axes *axes, const int *values,
                                    uint32_t chosen, int i, int a) {
    int gain = 0;
    for (int j = 0; j < axes->count; j++) {
        if (!(chosen >> j & 1))
            continue;
        if (!axes->can_meet(i, a, j, values[j]))
            return -1;
        gain += !c->has_met[i][a][j][values[j]];
    }
    return gain;
}

/** Returns the value of axis i that adds the most new pairs among those with which the case stays
 *  cheap; if there are none, the cheapest value that may meet the chosen ones. */
static inline int qni_covering_pick(const qni_covering *c, const qni_axes *axes, int *values,
                                    uint32_t chosen, int i) {
    int best = -1, best_gain = -1, least = -1;
    for (int n = 0; n < axes->sizes[i]; n++) {
        const int a = (c->cases + i + n) % axes->sizes[i];
        const int gain = qni_covering_gain(c, axes, values, chosen, i, a);
        if (gain < 0)
            continue;
        least = least < 0 || a < least ? a : least;
        values[i] = a;
        if (gain > best_gain && axes->cost(axes->context, values) <= axes->most)
            best = a, best_gain = gain;
    }
    assert(least >= 0);
    return best < 0 ? least : best;
}

/** Writes the next case to values. Returns false if all pairs have met. */
static inline bool qni_covering_next(qni_covering *c, const qni_axes *axes, int *values) {
    int pair[4];
    if (!qni_covering_find(c, axes, pair))
        return false;
    memset(values, 0, (size_t)axes->count * sizeof *values);
    values[pair[0]] = pair[1], values[pair[2]] = pair[3];
    uint32_t chosen = 1u << pair[0] | 1u << pair[2];
    for (int i = 0; i < axes->count; i++) {
        if (chosen >> i & 1)
            continue;
        values[i] = qni_covering_pick(c, axes, values, chosen, i);
        chosen |= 1u << i;
    }
    qni_covering_add(c, axes, values);
    return true;
}

#endif
