// SPDX-License-Identifier: Apache-2.0
// For tests: a small set of cases in which every value of every axis meets every value of every
// other axis.
//
// The first pair that no case has yet opens a case; each other axis then takes the value that
// brings the most new pairs, as long as the case stays cheap. The same axes give the same cases.
#ifndef QNI_COVERING_H
#define QNI_COVERING_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { QNI_MAX_AXES = 16, QNI_MAX_VALUES = 12 };

typedef struct qni_axes {
    int count;
    int sizes[QNI_MAX_AXES]; // values of each axis, 0 .. size - 1, cheapest first
    /** Whether value a of axis i and value b of axis j may meet; an order of i and j is not
     *  promised. */
    bool (*can_meet)(int i, int a, int j, int b);
    /** Of a case, and what it is to stay below if its first pair allows. */
    double (*cost)(const void *context, const int *values);
    const void *context;
    double most;
} qni_axes;

/** How far it has come; zero at the begin. */
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

/** The first pair that may meet and has not. */
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

/** Pairs that value a of axis i adds to the chosen axes; below 0: it may not meet one of them. */
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

/** The best value of axis i; those that make the case dear only where all others may not be. */
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

/** The next case, into values; false: all pairs have met. */
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
