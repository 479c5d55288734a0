// SPDX-License-Identifier: Apache-2.0
// Fetches the next packed panel while the processor multiplies, instead of in a burst before the
// panel is decoded.
#ifndef QNI_GEMM_FETCH_H
#define QNI_GEMM_FETCH_H

#include "gemm_cpu.h"

/** The bytes that are still to be fetched, at..end-1, by `step` bytes at once. */
typedef struct fetch {
    const char *at, *end;
    int64_t step;
} fetch;

/** Spreads the fetching evenly over `steps`. */
static inline fetch plan_fetch(const char *next, int64_t steps) {
    const int64_t lines = QNI_GEMM_PANEL_BYTES / 64;
    return next ? (fetch){next, next + QNI_GEMM_PANEL_BYTES, (lines + steps - 1) / steps * 64}
                : (fetch){0};
}

static inline void fetch_step(fetch *f) {
    const char *stop = f->end - f->at < f->step ? f->end : f->at + f->step;
    for (; f->at < stop; f->at += 64)
        __builtin_prefetch(f->at);
}

#endif
