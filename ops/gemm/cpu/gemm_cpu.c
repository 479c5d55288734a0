// SPDX-License-Identifier: Apache-2.0
// GEMM on the CPU: tiles, threads and scratch memory, alike for every engine; and the portable
// kernel, whose engine is f32 in vectors that every 64-bit processor has.
//
// Bits: a sum runs through K in one order whatever the tiles are, so bits depend neither on the
// number of threads nor on the other rows of a. Whether a product goes along k, which is another
// order, is a question of b alone.
#define LANES 4
#define ROWS 4
#define VECTORS 2
#include "gemm_f32_dot.h"

#include <stdlib.h>

// ---- scratch: one block a thread, kept from launch to launch

typedef struct scratch {
    alignas(64) float a[QNI_GEMM_SPAN];
    alignas(64) float b[QNI_GEMM_PANEL_N * QNI_GEMM_BLOCK_K];
    alignas(64) float sums[QNI_GEMM_TILE_PANELS][QNI_GEMM_TILE_M * QNI_GEMM_PANEL_N];
    alignas(64) float scales_a[QNI_GEMM_TILE_M], scales[QNI_GEMM_TILE_M];
    alignas(64) float block[QNI_GEMM_TILE_M * QNI_GEMM_PANEL_N]; // a K-block's sums
    alignas(64) uint8_t panel[QNI_GEMM_PANEL_BYTES];             // gathered codes of b
} scratch;
static_assert(QNI_GEMM_SPAN >= QNI_GEMM_TILE_M * QNI_GEMM_BLOCK_K &&
              QNI_GEMM_SPAN >= QNI_GEMM_DOT_M * QNI_GEMM_DOT_K);

// A launch takes one entry. If launches on several streams need more than fit here, the others are
// made and freed.
static _Atomic(scratch *) scratch_pool[16];
static constexpr int POOL_SLOTS = sizeof scratch_pool / sizeof *scratch_pool;

static scratch *scratch_get(void) {
    for (int i = 0; i < POOL_SLOTS; i++) {
        scratch *found = atomic_exchange(&scratch_pool[i], nullptr);
        if (found)
            return found;
    }
    return aligned_alloc(64, (size_t)qni_num_threads() * sizeof(scratch));
}

static void scratch_put(scratch *s) {
    for (int i = 0; i < POOL_SLOTS; i++) {
        scratch *expected = nullptr;
        if (atomic_compare_exchange_strong(&scratch_pool[i], &expected, s))
            return;
    }
    free(s);
}

// ---- the work: tiles, taken by threads one after the other

typedef struct work {
    const qni_gemm_engine *engine;
    const qni_gemm_problem *problem;
    scratch *scratch;
    int64_t tile_m, tile_panels, tiles_m, tiles_n, tiles;
    bool is_along_k;
    int64_t unit;        // panels that stay together: those of a group of d's columns
    int64_t whole_tiles; // the tiles after these go unit by unit, so that all threads end together
    _Atomic int64_t next;
} work;

/** Rows m0..m1-1 of one group and the columns of some panels. */
typedef struct tile {
    int64_t slab, group, m0, m1, panel0, panel1;
    int64_t next_group; // of the tile's row m1; negative: there is none
} tile;

static int64_t min_i64(int64_t x, int64_t y) {
    return x < y ? x : y;
}

static qni_gemm_block block_a(const qni_gemm_problem *p, const tile *t, int64_t k0) {
    const int64_t at = t->slab * p->a_group + t->m0 * p->a_row + k0 * p->a_k;
    return (qni_gemm_block){
        .data = (const char *)p->a + at * qni_dtype_bytes(p->dtype_a),
        .dtype = p->dtype_a,
        .row_stride = p->a_row,
        .k_stride = p->a_k,
        .rows = t->m1 - t->m0,
        .depth = min_i64(p->k - k0, QNI_GEMM_BLOCK_K),
        .is_beside_e4m3 = qni_gemm_is_e4m3(p->dtype_b),
    };
}

static const char *packed_panel(const qni_gemm_problem *p, int64_t group, int64_t panel,
                                int64_t k0) {
    const int64_t k_blocks = p->packed_k / QNI_GEMM_BLOCK_K;
    const int64_t at = panel * k_blocks + k0 / QNI_GEMM_BLOCK_K;
    return (const char *)p->b + group * p->b_group + at * QNI_GEMM_PANEL_BYTES;
}

/** Returns whether b has codes that are put in a packed panel's order on the way. */
static bool gathers(const qni_gemm_problem *p) {
    return qni_gemm_is_e4m3(p->dtype_b) && !p->is_packed && p->b_k == 1;
}

/** Returns where a panel's K-block begins. */
static const char *data_b(const qni_gemm_problem *p, int64_t group, int64_t panel, int64_t k0) {
    const int64_t at = group * p->b_group + panel * QNI_GEMM_PANEL_N * p->b_n + k0 * p->b_k;
    return p->is_packed ? packed_panel(p, group, panel, k0)
                        : (const char *)p->b + at * qni_dtype_bytes(p->dtype_b);
}

/** Returns the codes of b that the tile's loops reach next: those of the neighbouring panel, of the
 *  first panel in the next K-block, or of the group that comes next. */
static qni_gemm_next next_codes(const qni_gemm_problem *p, const tile *t, int64_t panel,
                                int64_t k0) {
    qni_gemm_next next = {.stride = p->is_packed ? QNI_GEMM_BLOCK_K : p->b_n};
    if (!p->is_packed && !gathers(p))
        return next;
    if (panel + 1 < t->panel1)
        next.rows = data_b(p, t->group, panel + 1, k0);
    else if (k0 + QNI_GEMM_BLOCK_K < p->k)
        next.rows = data_b(p, t->group, t->panel0, k0 + QNI_GEMM_BLOCK_K);
    else if (t->next_group >= 0)
        next.rows = data_b(p, t->next_group, t->panel0, 0);
    return next;
}

static qni_gemm_block block_b(const qni_gemm_problem *p, const tile *t, int64_t panel, int64_t k0) {
    const int64_t n0 = panel * QNI_GEMM_PANEL_N;
    return (qni_gemm_block){
        .data = data_b(p, t->group, panel, k0),
        .dtype = p->dtype_b,
        .row_stride = p->b_n,
        .k_stride = p->b_k,
        .rows = min_i64(p->n - n0, QNI_GEMM_PANEL_N),
        .depth = min_i64(p->k - k0, QNI_GEMM_BLOCK_K),
        .is_packed = p->is_packed,
        .is_beside_e4m3 = qni_gemm_is_e4m3(p->dtype_a),
    };
}

/** Returns whether b has a scale for each column. */
static bool has_column_scales(const qni_gemm_problem *p) {
    return p->scale_b && p->scale_b_columns == 1;
}

/** Loads a's scales of a K-block; they are 1 if a has none. */
static void load_scales(float *scales, const qni_gemm_problem *p, const tile *t, int64_t k0) {
    const int64_t rows = t->m1 - t->m0, at = t->slab * p->scale_a_group + t->m0 * p->scale_a_row;
    for (int64_t i = 0; i < rows; i++)
        scales[i] = qni_gemm_scale(p->scale_a, p->dtype_scale_a, at + i * p->scale_a_row,
                                   k0 / QNI_GEMM_BLOCK_K, p->scale_a_kb);
}

/** Returns b's scale of a column and a K-block; 1 if b has none. */
static float scale_b_of(const qni_gemm_problem *p, const tile *t, int64_t n, int64_t k0) {
    const int64_t at = t->group * p->scale_b_group + n / p->scale_b_columns * p->scale_b_nb;
    return qni_gemm_scale(p->scale_b, p->dtype_scale_b, at, k0 / QNI_GEMM_BLOCK_K, p->scale_b_kb);
}

/** Computes a's scales times b's scale of the panel and K-block, unless columns have their own. */
static void panel_scales(float *scales, const float *a, const qni_gemm_problem *p, const tile *t,
                         int64_t panel, int64_t k0) {
    const int64_t rows = t->m1 - t->m0;
    const float b = has_column_scales(p) ? 1 : scale_b_of(p, t, panel * QNI_GEMM_PANEL_N, k0);
    for (int64_t i = 0; i < rows; i++)
        scales[i] = a[i] * b;
}

/** Adds the K-block's sums, which have a's scales, to a panel's, with a scale for each column. */
static void add_block(float *sums, const float *block, const qni_gemm_problem *p, const tile *t,
                      int64_t panel, int64_t k0) {
    const int64_t rows = t->m1 - t->m0, n0 = panel * QNI_GEMM_PANEL_N;
    float scales[QNI_GEMM_PANEL_N] = {};
    for (int64_t n = 0; n < min_i64(p->n - n0, QNI_GEMM_PANEL_N); n++)
        scales[n] = scale_b_of(p, t, n0 + n, k0);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n++) {
            float *sum = sums + m * QNI_GEMM_PANEL_N + n;
            *sum = (k0 == 0 ? 0 : *sum) + block[m * QNI_GEMM_PANEL_N + n] * scales[n];
        }
}

// ---- the tile's result

/** Returns element i of bias or gate, which are f32 or bf16. */
static float vector_at(const void *data, qni_dtype dtype, int64_t i) {
    return dtype == QNI_F32
               ? ((const float *)data)[i]
               : __builtin_bit_cast(float, (uint32_t)((const uint16_t *)data)[i] << 16);
}

static void load_gate(qni_gemm_epilogue *e, const qni_gemm_problem *p, int64_t batch, int64_t n0,
                      int64_t columns) {
    const int64_t at = batch * p->gate_batch + n0;
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n++)
        e->gate[n] = p->gate && n < columns ? vector_at(p->gate, p->dtype_gate, at + n) : 1;
}

static void load_bias(qni_gemm_epilogue *e, const qni_gemm_problem *p, int64_t group, int64_t n0,
                      int64_t columns) {
    const int64_t at = group * p->bias_group + n0;
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n++)
        e->bias[n] = p->bias && n < columns ? vector_at(p->bias, p->dtype_bias, at + n) : 0;
}

/** Lets bias, activation and gate act on a panel's sums, which become `columns` columns of d from
 *  n0 on. */
static void finish_panel(const work *w, const tile *t, int64_t n0, int64_t columns, float *sums) {
    const qni_gemm_problem *p = w->problem;
    qni_gemm_epilogue e = {.activation = p->activation};
    int64_t batch_end = t->m0;
    load_bias(&e, p, t->group, n0 * qni_gemm_ratio(p), columns * qni_gemm_ratio(p));
    for (int64_t m = t->m0; m < t->m1; m++, sums += QNI_GEMM_PANEL_N) {
        if (m == batch_end) {
            const int64_t batch = p->gate ? m / p->gate_rows : 0;
            load_gate(&e, p, batch, n0, columns);
            batch_end = p->gate ? (batch + 1) * p->gate_rows : t->m1;
        }
        w->engine->finish(sums, &e);
    }
}

static void store_panel(const work *w, const tile *t, int64_t panel, float *sums) {
    const qni_gemm_problem *p = w->problem;
    const int64_t per_panel = QNI_GEMM_PANEL_N / qni_gemm_ratio(p), n0 = panel * per_panel;
    const int64_t columns = min_i64(qni_gemm_columns(p) - n0, per_panel);
    const int64_t bytes = qni_dtype_bytes(p->dtype_d);
    if (qni_gemm_has_epilogue(p))
        finish_panel(w, t, n0, columns, sums);
    if (qni_is_fp8(p->dtype_d))
        return;
    for (int64_t m = t->m0; m < t->m1; m++, sums += QNI_GEMM_PANEL_N) {
        char *d = (char *)p->d + (t->slab * p->d_group + m * p->d_row + n0) * bytes;
        const char *c =
            p->c ? (const char *)p->c + (t->slab * p->c_group + m * p->c_row + n0) * bytes
                 : nullptr;
        w->engine->store(d, c, p->dtype_d, sums, columns);
    }
}

/** Returns the scale of a row of d from column n on, or where it is to be written. */
static qni_gemm_scaling scaling_of(const qni_gemm_problem *p, int64_t slab, int64_t m, int64_t n) {
    if (p->given_scale_d)
        return (qni_gemm_scaling){.given = *p->given_scale_d};
    const int64_t at = slab * p->scale_d_group + m * p->scale_d_row;
    return (qni_gemm_scaling){.found = p->scale_d + at + n / QNI_GEMM_GROUP * p->scale_d_nb,
                              .eps = p->eps};
}

/** Stores up to 128 columns of d as FP8, whose panels have been finished. */
static void quantize_group(const work *w, const tile *t, int64_t panel, const scratch *s) {
    const qni_gemm_problem *p = w->problem;
    const int64_t per_panel = QNI_GEMM_PANEL_N / qni_gemm_ratio(p), n0 = panel * per_panel;
    const int64_t columns = min_i64(qni_gemm_columns(p) - n0, w->unit * per_panel);
    for (int64_t m = t->m0; m < t->m1; m++) {
        alignas(64) float values[QNI_GEMM_GROUP] = {};
        for (int64_t n = 0; n < columns; n += per_panel)
            memcpy(values + n,
                   s->sums[panel - t->panel0 + n / per_panel] + (m - t->m0) * QNI_GEMM_PANEL_N,
                   (size_t)min_i64(columns - n, per_panel) * sizeof *values);
        const qni_gemm_scaling scaling = scaling_of(p, t->slab, m, n0);
        uint8_t *d = (uint8_t *)p->d + t->slab * p->d_group + m * p->d_row + n0;
        w->engine->quantize(d, p->dtype_d, &scaling, values, columns);
    }
}

/** Writes the scales that rows of zeros have. */
static void zero_scales(const work *w, const tile *t) {
    const qni_gemm_problem *p = w->problem;
    const int64_t per_panel = QNI_GEMM_PANEL_N / qni_gemm_ratio(p);
    const float scale = p->eps / qni_fp8_format_of(qni_fp8_of(p->dtype_d)).max;
    for (int64_t m = t->m0; m < t->m1; m++)
        for (int64_t panel = t->panel0; panel < t->panel1; panel += w->unit)
            *scaling_of(p, t->slab, m, panel * per_panel).found = scale;
}

static void zero_tile(const work *w, const tile *t) {
    const qni_gemm_problem *p = w->problem;
    const int64_t bytes = qni_dtype_bytes(p->dtype_d);
    const int64_t per_panel = QNI_GEMM_PANEL_N / qni_gemm_ratio(p), n0 = t->panel0 * per_panel;
    const int64_t columns = min_i64(qni_gemm_columns(p), t->panel1 * per_panel) - n0;
    for (int64_t m = t->m0; m < t->m1; m++)
        memset((char *)p->d + (m * p->d_row + n0) * bytes, 0, (size_t)(columns * bytes));
    if (p->scale_d)
        zero_scales(w, t);
}

/** Returns whether so few rows use a decoded panel that it need not be kept. */
static bool is_direct(const qni_gemm_engine *engine, const qni_gemm_problem *p, int64_t rows) {
    const bool takes_a =
        qni_gemm_is_e4m3(p->dtype_a) || (engine->takes_bf16_directly && p->dtype_a == QNI_BF16);
    return engine->multiply_packed && takes_a && (p->is_packed || gathers(p)) &&
           rows <= engine->direct_rows;
}

/** Makes b a packed panel, in which what lies beyond its edges is zero. */
static void gather_panel(const work *w, scratch *s, qni_gemm_block *b) {
    const uint8_t *data = b->data;
    if (b->rows == QNI_GEMM_PANEL_N && b->depth == QNI_GEMM_BLOCK_K) {
        w->engine->gather(s->panel, data, b->row_stride);
    } else {
        alignas(64) uint8_t whole[QNI_GEMM_PANEL_BYTES] = {};
        for (int64_t n = 0; n < b->rows; n++)
            memcpy(whole + n * QNI_GEMM_BLOCK_K, data + n * b->row_stride, (size_t)b->depth);
        w->engine->gather(s->panel, whole, QNI_GEMM_BLOCK_K);
    }
    b->data = s->panel;
    b->is_packed = true;
}

static void multiply_panel(const work *w, const tile *t, int64_t panel, int64_t k0, scratch *s) {
    const qni_gemm_problem *p = w->problem;
    const int64_t rows = t->m1 - t->m0;
    qni_gemm_block b = block_b(p, t, panel, k0);
    const bool by_columns = has_column_scales(p), is_first = by_columns || k0 == 0;
    float *all = s->sums[panel - t->panel0], *sums = by_columns ? s->block : all;
    const qni_gemm_next next = next_codes(p, t, panel, k0);
    panel_scales(s->scales, s->scales_a, p, t, panel, k0);
    if (gathers(p))
        gather_panel(w, s, &b);
    if (is_direct(w->engine, p, rows)) {
        w->engine->multiply_packed(sums, s->a, &b, s->scales, rows, is_first, next);
    } else {
        w->engine->load_b(s->b, &b);
        w->engine->multiply(sums, s->a, s->b, s->scales, rows, is_first, next);
    }
    if (by_columns)
        add_block(all, s->block, p, t, panel, k0);
}

static void multiply_block(const work *w, const tile *t, int64_t k0, scratch *s) {
    qni_gemm_block a = block_a(w->problem, t, k0);
    w->engine->load_a(s->a, &a);
    load_scales(s->scales_a, w->problem, t, k0);
    for (int64_t panel = t->panel0; panel < t->panel1; panel++)
        multiply_panel(w, t, panel, k0, s);
}

// ---- products along k

/** Returns whether the engine multiplies along k: never a question of rows, whose bits would then
 *  depend on their number. */
static bool is_along_k(const qni_gemm_engine *engine, const qni_gemm_problem *p) {
    return engine->multiply_along_k && !p->is_packed && p->b_k == 1 && qni_gemm_has_no_scales(p) &&
           qni_gemm_is_float(p->dtype_b);
}

/** Multiplies a panel with rows of a that are decoded from k0 on, `span` deep: eight columns after
 *  eight, so that memory is read along few rows of b. */
static void multiply_span(const work *w, const tile *t, int64_t panel, int64_t k0, int64_t span,
                          float *sums, const scratch *s) {
    const int64_t end = min_i64(w->problem->k, k0 + span);
    const qni_gemm_block of_panel = block_b(w->problem, t, panel, k0);
    for (int64_t n = 0; n < of_panel.rows; n += QNI_GEMM_DOT_N)
        for (int64_t k = k0; k < end; k += QNI_GEMM_DOT_K) {
            qni_gemm_block b = of_panel;
            const int64_t at = n * b.row_stride + k - k0;
            b.data = (const char *)b.data + at * qni_dtype_bytes(b.dtype);
            b.rows = min_i64(of_panel.rows - n, QNI_GEMM_DOT_N);
            b.depth = min_i64(end - k, QNI_GEMM_DOT_K);
            w->engine->multiply_along_k(sums + n,
                                        (const char *)s->a + (k - k0) * w->engine->dot_bytes, span,
                                        &b, t->m1 - t->m0, k == 0);
        }
}

/** Multiplies a tile: as much of k at once as there is room for decoded rows. */
static void multiply_tile_along_k(const work *w, const tile *whole, scratch *s) {
    const qni_gemm_problem *p = w->problem;
    const int64_t most = min_i64(whole->m1 - whole->m0, QNI_GEMM_DOT_M);
    const int64_t room = QNI_GEMM_SPAN / most / QNI_GEMM_DOT_K * QNI_GEMM_DOT_K;
    const int64_t span = min_i64(qni_pieces(p->k, QNI_GEMM_DOT_K) * QNI_GEMM_DOT_K, room);
    for (int64_t k0 = 0; k0 < p->k; k0 += span)
        for (int64_t m = whole->m0; m < whole->m1; m += QNI_GEMM_DOT_M) {
            tile t = *whole;
            t.m0 = m, t.m1 = min_i64(whole->m1, m + QNI_GEMM_DOT_M);
            qni_gemm_block a = block_a(p, &t, k0);
            a.depth = min_i64(p->k - k0, span);
            w->engine->load_a_along_k(s->a, &a, span, p->dtype_b);
            for (int64_t panel = t.panel0; panel < t.panel1; panel++)
                multiply_span(w, &t, panel, k0, span,
                              s->sums[panel - t.panel0] + (m - whole->m0) * QNI_GEMM_PANEL_N, s);
        }
}

static void multiply_tile(const work *w, const tile *t, scratch *s) {
    if (w->problem->k == 0)
        memset(s->sums, 0, sizeof s->sums);
    if (w->is_along_k)
        multiply_tile_along_k(w, t, s);
    for (int64_t k0 = 0; !w->is_along_k && k0 < w->problem->k; k0 += QNI_GEMM_BLOCK_K)
        multiply_block(w, t, k0, s);
    for (int64_t panel = t->panel0; panel < t->panel1; panel++)
        store_panel(w, t, panel, s->sums[panel - t->panel0]);
    for (int64_t panel = t->panel0; qni_is_fp8(w->problem->dtype_d) && panel < t->panel1;
         panel += w->unit)
        quantize_group(w, t, panel, s);
}

/** Returns the end of the rows from m on that share row m's group or, without a group, its
 *  treatment; at most m1. */
static int64_t run_end(const qni_gemm_problem *p, int64_t slab, int64_t group, int64_t m,
                       int64_t m1) {
    int64_t end = m + 1;
    switch (p->grouping) {
    case QN_GEMM_DENSE:
        return m1;
    case QN_GEMM_GROUPED_INDEX:
        while (end < m1 && p->layout[end] == p->layout[m])
            end++;
        return end;
    case QN_GEMM_GROUPED_ENDS: // padding, like what follows the last group, ends at a multiple
        end = group >= 0 ? p->layout[group] : (m / p->m_alignment + 1) * p->m_alignment;
        return min_i64(end, m1);
    case QN_GEMM_GROUPED_MASKED:
        return group >= 0 && p->layout ? min_i64(p->layout[slab], m1) : m1;
    }
    return end;
}

/** Computes `count` panels of tile number i, from the tile's panel `first` on, one group of its
 *  rows after another. */
static void do_tile(const work *w, int64_t i, int64_t first, int64_t count, scratch *s) {
    const qni_gemm_problem *p = w->problem;
    const int64_t panels = (p->n + QNI_GEMM_PANEL_N - 1) / QNI_GEMM_PANEL_N;
    const int64_t panel0 = i / w->tiles_m % w->tiles_n * w->tile_panels + first;
    tile t = {.slab = i / w->tiles_m / w->tiles_n,
              .m0 = i % w->tiles_m * w->tile_m,
              .panel0 = panel0,
              .panel1 = min_i64(panel0 + count, panels)};
    if (t.panel0 >= t.panel1)
        return;
    const int64_t m1 = min_i64(t.m0 + w->tile_m, p->m);
    t.next_group = t.m0 < m1 ? qni_gemm_row_group(p, t.slab, t.m0) : -1;
    for (; t.m0 < m1; t.m0 = t.m1) {
        t.group = t.next_group;
        t.m1 = run_end(p, t.slab, t.group, t.m0, m1);
        t.next_group = t.m1 < m1 ? qni_gemm_row_group(p, t.slab, t.m1) : -1;
        if (t.group >= 0)
            multiply_tile(w, &t, s);
        else if (t.group == QNI_GEMM_ROW_ZERO)
            zero_tile(w, &t);
    }
}

static void do_thread(void *context, int64_t thread) {
    work *w = context;
    const int64_t units = w->tile_panels / w->unit;
    const int64_t parts = w->whole_tiles + (w->tiles - w->whole_tiles) * units;
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
        if (i >= parts)
            return;
        const int64_t late = i - w->whole_tiles;
        if (late < 0)
            do_tile(w, i, 0, w->tile_panels, &w->scratch[thread]);
        else
            do_tile(w, w->whole_tiles + late / units, late % units * w->unit, w->unit,
                    &w->scratch[thread]);
    }
}

/** Returns whether so few rows share a panel that reading b is most of the work. It is then better
 *  to read one panel after the other: packed weights lie in that order in memory, and of other
 *  weights only 64 rows, and their pages, are read at once. */
static bool reads_in_order(const qni_gemm_engine *engine, const qni_gemm_problem *p) {
    return is_direct(engine, p, p->m) || (!p->is_packed && p->m <= 16);
}

/** Chooses the tiles' size: large tiles decode less; small ones keep all threads busy. */
static void choose_tiles(work *w) {
    const qni_gemm_problem *p = w->problem;
    const int64_t slabs = p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
    w->tile_m = QNI_GEMM_TILE_M;
    w->unit = qni_pieces(qni_gemm_together(p), QNI_GEMM_PANEL_N);
    w->tile_panels = reads_in_order(w->engine, p) ? w->unit : QNI_GEMM_TILE_PANELS;
    for (;;) {
        const int64_t tile_n = w->tile_panels * QNI_GEMM_PANEL_N;
        w->tiles_m = (p->m + w->tile_m - 1) / w->tile_m;
        w->tiles_n = (p->n + tile_n - 1) / tile_n;
        w->tiles = slabs * w->tiles_m * w->tiles_n;
        if (w->tiles >= 4 * qni_num_threads())
            return;
        if (w->tile_panels > w->unit)
            w->tile_panels /= 2;
        else if (w->tile_m > 64)
            w->tile_m /= 2;
        else
            return;
    }
}

qn_status qni_gemm_cpu_run(const qni_gemm_engine *engine, const qni_gemm_problem *problem) {
    work w = {.engine = engine, .problem = problem, .is_along_k = is_along_k(engine, problem)};
    choose_tiles(&w);
    w.whole_tiles = w.tiles - min_i64(w.tiles, 2 * qni_num_threads());
    w.scratch = scratch_get();
    if (!w.scratch)
        return QN_FAIL(QN_E_MEMORY, "gemm: no memory for %zu bytes of scratch a thread",
                       sizeof(scratch));
    qni_parallel(min_i64(qni_num_threads(), w.tiles), do_thread, &w);
    scratch_put(w.scratch);
    return QN_OK;
}

/** Copies 16 columns at 4 k, whose k is contiguous, as a packed line. */
static void gather_line(uint8_t *line, const uint8_t *data, int64_t row_stride) {
    typedef uint16_t pairs __attribute__((vector_size(16)));
    for (int64_t n = 0; n < 16; n += 4, line += 16, data += 4 * row_stride) {
        uint32_t codes[4];
        pairs x;
        for (int64_t i = 0; i < 4; i++)
            memcpy(&codes[i], data + i * row_stride, sizeof codes[i]);
        memcpy(&x, codes, sizeof x);
        x = __builtin_shufflevector(x, x, 0, 2, 4, 6, 1, 3, 5, 7);
        memcpy(line, &x, sizeof x);
    }
}

static void gather(uint8_t *panel, const uint8_t *rows, int64_t row_stride) {
    for (int64_t n = 0; n < QNI_GEMM_PANEL_N; n += 16)
        for (int64_t k = 0; k < QNI_GEMM_BLOCK_K; k += 4)
            gather_line(panel + k / 4 * 256 + n / 16 * 64, rows + n * row_stride + k, row_stride);
}

qn_status qni_gemm_cpu(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {.gather = gather,
                                           .load_a = f32_load_a,
                                           .load_b = f32_load_b,
                                           .multiply = f32_multiply,
                                           .load_a_along_k = f32_load_a_along_k,
                                           .multiply_along_k = f32_multiply_along_k,
                                           .dot_bytes = sizeof(float),
                                           .finish = finish_row,
                                           .store = store_row,
                                           .quantize = quantize_row};
    return qni_gemm_cpu_run(&engine, problem);
}
