// SPDX-License-Identifier: Apache-2.0
// Fetches the next block of b while the processor multiplies, instead of in a burst before the
// block is used.
#ifndef QNI_GEMM_FETCH_H
#define QNI_GEMM_FETCH_H

#include "gemm_cpu.h"

/** The lines that are still to be fetched, by `step` at once; two are a row. */
typedef struct fetch {
    qni_gemm_next next;
    int64_t line, end, step;
} fetch;

/** Spreads the fetching evenly over `steps`. */
static inline fetch plan_fetch(qni_gemm_next next, int64_t steps) {
    const int64_t lines = next.rows ? QNI_GEMM_PANEL_BYTES / 64 : 0;
    return (fetch){.next = next, .end = lines, .step = (lines + steps - 1) / steps};
}

/** Fetches into the first-level cache, or else into the second. */
[[gnu::always_inline]] static inline void fetch_step(fetch *f, bool to_first) {
    const int64_t stop = f->end - f->line < f->step ? f->end : f->line + f->step;
    for (; f->line < stop; f->line++) {
        const char *line = f->next.rows + f->line / 2 * f->next.stride + f->line % 2 * 64;
        if (to_first)
            __builtin_prefetch(line);
        else
            __builtin_prefetch(line, 0, 2);
    }
}

/** Fetches two rows. */
[[gnu::always_inline]] static inline void fetch_two_rows(qni_gemm_next *next) {
    for (int i = 0; i < 2; i++, next->rows += next->stride) {
        __builtin_prefetch(next->rows);
        __builtin_prefetch(next->rows + 64);
    }
}

#endif
