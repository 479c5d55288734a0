// SPDX-License-Identifier: Apache-2.0
// Products as dot products along k, for b whose k is contiguous, as checkpoints hold weights: no
// element of b moves to another lane, so that one row costs no more than reading b. Each engine's
// file defines, before it includes this file:
//
//   LANES       floats in a register of sums
//   DOT_ROWS    most rows of a register tile
//   DOT_COLUMNS columns of a register tile of more than three rows
//   DOT_PARTS   registers of operands that hold 2 * LANES elements along k
//   vec, dot_operand, dot_element   registers of sums and of operands; an element of decoded a
//   dot_load_b(b, dtype, part)      a part of 2 * LANES elements of b
//   dot_add(sum, x, y)              sum + x y, lane by lane
//
// Bits: an element's lanes take their k in one order through at most QNI_GEMM_DOT_K, are then
// folded by one tree, and the result is added to the sum. Tiles of any shape do the same.
#ifndef QNI_GEMM_DOT_H
#define QNI_GEMM_DOT_H

#include "gemm_cpu.h"

#include <string.h>

enum {
    DOT_STEP = 2 * LANES,
    DOT_WIDEST = QNI_GEMM_DOT_N, // columns of a tile of one row: as many chains hide the latency
};
static_assert(QNI_GEMM_DOT_K % DOT_STEP == 0 && DOT_WIDEST % DOT_COLUMNS == 0);

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec8 __attribute__((vector_size(32)));

/** Adds lanes that lie far apart until four are left. */
static inline vec4 fold(vec x) {
#if LANES == 16
    const vec8 low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    const vec8 y = low + __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
    const vec8 y = x;
#endif
#if LANES >= 8
    return __builtin_shufflevector(y, y, 0, 1, 2, 3) + __builtin_shufflevector(y, y, 4, 5, 6, 7);
#else
    return x;
#endif
}

/** Returns the sum of each of four vectors. */
static inline vec4 sums_of(vec4 a, vec4 b, vec4 c, vec4 d) {
    const vec4 ab =
        __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const vec4 cd =
        __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/** sums[row][column] = (is_first ? 0 : sums) + the sum of the element's lanes. */
[[gnu::always_inline]] static inline void
dot_finish(int rows, int columns, float *sums, vec lanes[DOT_ROWS][DOT_WIDEST], bool is_first) {
#pragma clang loop unroll(full)
    for (int m = 0; m < rows; m++)
#pragma clang loop unroll(full)
        for (int n = 0; n < columns; n += 4) {
            const bool is_whole = columns >= 4; // else two columns, twice
            float *to = sums + m * QNI_GEMM_PANEL_N + n;
            const size_t bytes = (is_whole ? 4 : 2) * sizeof *to;
            vec4 before = {}, now;
            if (!is_first)
                memcpy(&before, to, bytes);
            now = sums_of(fold(lanes[m][n]), fold(lanes[m][n + 1]),
                          fold(lanes[m][is_whole ? n + 2 : n]),
                          fold(lanes[m][is_whole ? n + 3 : n + 1]));
            now += before;
            memcpy(to, &now, bytes);
        }
}

/** Adds 2 * LANES elements along k. `rows` and `columns` are constants at each call. */
[[gnu::always_inline]] static inline void
dot_step(int rows, int columns, vec lanes[DOT_ROWS][DOT_WIDEST], const dot_element *a,
         int64_t stride, const char *const b[], int64_t at, qni_dtype dtype) {
#pragma clang loop unroll(full)
    for (int part = 0; part < DOT_PARTS; part++) {
        dot_operand y[DOT_WIDEST];
#pragma clang loop unroll(full)
        for (int n = 0; n < columns; n++)
            y[n] = dot_load_b(b[n] + at, dtype, part);
#pragma clang loop unroll(full)
        for (int m = 0; m < rows; m++) {
            dot_operand x;
            memcpy(&x, a + m * stride + part * (DOT_STEP / DOT_PARTS), sizeof x);
#pragma clang loop unroll(full)
            for (int n = 0; n < columns; n++)
                lanes[m][n] = dot_add(lanes[m][n], x, y[n]);
        }
    }
}

[[gnu::noinline]] static void copy_rest(char rest[][DOT_STEP * sizeof(float)],
                                        const char *const b[], int columns, int64_t at,
                                        int64_t bytes) {
    for (int n = 0; n < columns; n++)
        memcpy(rest[n], b[n] + at, (size_t)bytes);
}

/** Fetches `bytes` of each column. */
[[gnu::always_inline]] static inline void dot_fetch(int columns, const char *const b[], int64_t at,
                                                    int64_t bytes) {
#pragma clang loop unroll(full)
    for (int n = 0; n < columns; n++)
        for (int64_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(b[n] + at + i, 0, 2);
}

/** Multiplies rows of a by columns of b, at most QNI_GEMM_DOT_K deep. Columns that do not exist are
 *  the last one again; nobody looks at them. `ahead`, if not 0, is how many bytes behind these the
 *  next columns lie, which are fetched: the processor does not foresee so many short rows. */
[[gnu::always_inline]] static inline void dot_tile(int rows, int columns, float *sums,
                                                   const dot_element *a, int64_t stride,
                                                   const qni_gemm_block *b, int64_t column,
                                                   qni_dtype dtype, bool is_first, int64_t ahead) {
    const int64_t bytes = qni_dtype_bytes(dtype), whole = b->depth / DOT_STEP * DOT_STEP;
    const char *from[DOT_WIDEST];
    vec lanes[DOT_ROWS][DOT_WIDEST];
#pragma clang loop unroll(full)
    for (int n = 0; n < columns; n++) {
        const int64_t existing = column + n < b->rows ? column + n : b->rows - 1;
        from[n] = (const char *)b->data + existing * b->row_stride * bytes;
#pragma clang loop unroll(full)
        for (int m = 0; m < rows; m++)
            lanes[m][n] = (vec){};
    }
    int64_t k = 0;
    for (; k < whole; k += DOT_STEP) {
        if (ahead)
            dot_fetch(columns, from, k * bytes + ahead, DOT_STEP * bytes);
        dot_step(rows, columns, lanes, a + k, stride, from, k * bytes, dtype);
    }
    if (k < b->depth) { // behind the last element b is not to be read, and counts as zero
        char rest[DOT_WIDEST][DOT_STEP * sizeof(float)] = {};
        copy_rest(rest, from, columns, k * bytes, (b->depth - k) * bytes);
#pragma clang loop unroll(full)
        for (int n = 0; n < columns; n++)
            from[n] = rest[n];
        dot_step(rows, columns, lanes, a + k, stride, from, 0, dtype);
    }
    dot_finish(rows, columns, sums, lanes, is_first);
}

[[gnu::always_inline]] static inline void dot_rows(int rows, float *sums, const dot_element *a,
                                                   int64_t stride, const qni_gemm_block *b,
                                                   qni_dtype dtype, bool is_first, int64_t ahead) {
    const int columns = rows == 1 ? DOT_WIDEST : rows <= 3 && DOT_COLUMNS < 4 ? 4 : DOT_COLUMNS;
    for (int64_t n = 0; n < b->rows; n += columns)
        dot_tile(rows, columns, sums + n, a, stride, b, n, dtype, is_first, ahead);
}

/** Multiplies up to DOT_ROWS rows. */
[[gnu::always_inline]] static inline void dot_some(int64_t rows, float *sums, const dot_element *a,
                                                   int64_t stride, const qni_gemm_block *b,
                                                   qni_dtype dtype, bool is_first, int64_t ahead) {
    switch (rows) {
#define CASE(ROWS)                                                                                 \
    case ROWS:                                                                                     \
        dot_rows(ROWS, sums, a, stride, b, dtype, is_first, ahead);                                \
        return;
        CASE(6)
        CASE(5)
        CASE(4)
        CASE(3)
        CASE(2)
        CASE(1)
#undef CASE
    }
}

/** Deals rows out to register tiles of equal height. */
[[gnu::always_inline]] static inline void dot_all(float *sums, const dot_element *a, int64_t stride,
                                                  const qni_gemm_block *b, int64_t rows,
                                                  qni_dtype dtype, bool is_first) {
    int64_t ahead = QNI_GEMM_DOT_N * b->row_stride * qni_dtype_bytes(dtype);
    for (int64_t tiles = (rows + DOT_ROWS - 1) / DOT_ROWS; tiles > 0; tiles--, ahead = 0) {
        const int64_t some = (rows + tiles - 1) / tiles;
        dot_some(some, sums, a, stride, b, dtype, is_first, ahead);
        sums += some * QNI_GEMM_PANEL_N;
        a += some * stride;
        rows -= some;
    }
}

#endif
