// SPDX-License-Identifier: Apache-2.0
// The problems of an op on rows: every form on every shape in every type.
#ifndef QNI_WALK_H
#define QNI_WALK_H

#include "../runtime/runtime.h"
#include "area.h"

/** Whether a problem is tried: when its turn comes, or whatever its turn is. */
typedef enum qni_due { QNI_DUE_BY_TURN, QNI_DUE_NEVER, QNI_DUE_ALWAYS } qni_due;

typedef struct qni_walk {
    int forms, shapes, types; // how many there are
    int thinning;             // each so many-th is tried; a prime, so that all of them get a turn
    qni_due (*is_due)(const struct qni_walk *walk); // null: all by turn
    int turn, form, shape, type;                    // of the problem; turn counts from 1
} qni_walk;

/** Steps to the next problem that is tried, the first of a walk without turn; false: there is
 *  none. */
static inline bool qni_walk_next(qni_walk *w) {
    while (w->turn < w->forms * w->shapes * w->types) {
        const int at = w->turn++;
        w->type = at % w->types;
        w->shape = at / w->types % w->shapes;
        w->form = at / w->types / w->shapes;
        const qni_due due = w->is_due ? w->is_due(w) : QNI_DUE_BY_TURN;
        if (due == QNI_DUE_ALWAYS || (due == QNI_DUE_BY_TURN && w->turn % w->thinning == 0))
            return true;
    }
    return false;
}

/** Rows far apart take much memory: as bf16 alone, and of a thinned walk in the first form alone.
 *  Types begin as qni_dtype does. */
static inline qni_due qni_walk_far(const qni_walk *w) {
    return w->type == QNI_BF16 && (w->form == 0 || w->thinning == 1) ? QNI_DUE_ALWAYS
                                                                     : QNI_DUE_NEVER;
}

/** Says when a shape is due whose rows have so many elements between them. */
static inline qni_due qni_walk_by_gap(const qni_walk *w, int64_t gap) {
    return gap > qni_far / 2 ? qni_walk_far(w) : QNI_DUE_BY_TURN;
}

#endif
