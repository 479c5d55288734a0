// SPDX-License-Identifier: Apache-2.0
// The check problems of the kvcache family. A copied byte must be its source's; a quantised element
// follows the definition x / scale. The check computes places from what the case was made of, not
// from its index tensors.
#include "kvcache_check.h"

#include "../../check/case.h"
#include "kvcache.h"

#include <string.h>

typedef struct shape {
    int64_t n, heads, width, page;
    int64_t gap, offset; // elements between tokens and between pages; elements before the first
    bool is_hnd, by_slot;
    bool is_shared; // all sequences share their pages
} shape;
static const shape shapes[] = {
    {1, 1, 1, 1, 0, 0, false, false, false},
    {7, 2, 64, 5, 0, 0, false, false, false},
    {19, 3, 128, 16, 16, 0, true, false, false},
    {5, 8, 128, 1, 0, 16, false, true, false},
    {3, 5, 33, 5, 3, 1, true, true, false},
    {4, 1, 576, 64, 0, 0, false, false, false},
    {9, 2, 72, 3, 8, 8, true, true, false},
    {40, 8, 128, 16, 0, 0, true, false, false},
    {11, 2, 32, 1, 0, 0, true, false, true},
    {30, 1, 40, 5, 0, 0, false, false, true},
    {50, 2, 24, 16, 8, 8, false, false, true},
    {23, 1, 16, 1024, 0, 0, true, false, true},
    {40, 2, 16, 1024, 1, 1, false, false, false},
    {3, 2, 64, 16, qni_far - 128, 16, true, false, false},
};
enum { KEY, VALUE, K_CACHE, V_CACHE, K_SCALE, V_SCALE, SLOTS, BATCH, POSITIONS, INDICES, INDPTR };
enum { NUM_AREAS = INDPTR + 1, BATCHES = 3 };
static const char *const area_names[NUM_AREAS] = {
    "key",          "value",         "k_cache",   "v_cache",    "k_scale",  "v_scale",
    "slot_mapping", "batch_indices", "positions", "kv_indices", "kv_indptr"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_kvcache_problem problem;
} trial_case;

// ---- where tokens go in the case

static bool is_left_out(int64_t t) {
    return t % 7 == 5;
}
static int64_t batch_of(int64_t t) {
    return t % BATCHES;
}
/** Returns token t's position. No two sequences have a position in common, so that they may share
 *  pages. */
static int64_t position_of(const shape *s, int64_t t) {
    return t / BATCHES + (s->n / BATCHES + 1) * batch_of(t);
}
/** Returns a sequence's pages, one more than its positions need. */
static int64_t pages_of_batch(const shape *s) {
    return (s->n / BATCHES + 1) * BATCHES / s->page + 2;
}
static int64_t num_pages(const shape *s) {
    return (s->is_shared ? 1 : BATCHES) * pages_of_batch(s);
}
/** Returns entry i of all sequences' pages. Pages are shuffled; each sequence's last page, which no
 *  position reaches, is the first page of the first sequence. */
static int64_t page_at(const shape *s, int64_t i) {
    const int64_t per = pages_of_batch(s), pages = num_pages(s), step = pages % 5 ? 5 : 7;
    const int64_t page = i % per == per - 1 ? 0 : s->is_shared ? i % per : i;
    return (page * step + 1) % pages;
}
static int64_t page_of(const shape *s, int64_t t) {
    return page_at(s, batch_of(t) * pages_of_batch(s) + position_of(s, t) / s->page);
}
static int64_t page_stride(const shape *s) {
    return s->page * s->heads * s->width + s->gap;
}

// ---- the tensors

static bool is_quant(const trial_case *c) {
    return c->problem.dtype != c->problem.dtype_out;
}

/** Returns how many elements of an area make an element of its cache. Areas of copies are bytes, so
 *  that each byte is compared. */
static int64_t cache_unit(const trial_case *c) {
    return is_quant(c) ? 1 : qni_dtype_bytes(c->problem.dtype);
}

/** Returns how many elements an index or scale area has; 0: the case has no such area. */
static int64_t area_count(const trial_case *c, int which) {
    const shape *s = c->shape;
    switch (which) {
    case K_SCALE:
    case V_SCALE:
        return is_quant(c);
    case SLOTS:
        return s->by_slot ? s->n : 0;
    case INDICES:
        return s->by_slot ? 0 : BATCHES * pages_of_batch(s);
    case INDPTR:
        return s->by_slot ? 0 : BATCHES + 1;
    default:
        return s->by_slot ? 0 : s->n;
    }
}

static qni_dtype area_dtype(const trial_case *c, int which) {
    return which <= VALUE     ? c->problem.dtype
           : which <= V_CACHE ? (is_quant(c) ? c->problem.dtype_out : QNI_U8)
           : which <= V_SCALE ? QNI_F32
                              : QNI_I32;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const qni_dtype dtype = area_dtype(c, which);
    const int64_t row = s->heads * s->width, unit = cache_unit(c);
    if (which <= VALUE)
        return (qni_extent){dtype, s->n, row, row + s->gap, s->offset};
    if (which <= V_CACHE)
        return (qni_extent){dtype, num_pages(s), s->page * row * unit, page_stride(s) * unit,
                            s->offset * unit};
    const int64_t count = area_count(c, which);
    return count == 0 ? (qni_extent){} : qni_dense(dtype, count);
}

static int32_t index_of(const shape *s, int which, int64_t i) {
    return which == SLOTS
               ? (is_left_out(i) ? -1 - (int32_t)i
                                 : (int32_t)(page_of(s, i) * s->page + position_of(s, i) % s->page))
           : which == BATCH     ? (is_left_out(i) ? -1 : (int32_t)batch_of(i))
           : which == POSITIONS ? (int32_t)position_of(s, i)
           : which == INDICES   ? (int32_t)page_at(s, i)
                                : (int32_t)(i * pages_of_batch(s));
}

/** Fills tokens with values for FP8, else with any bits, so that NaNs have all payloads. Gaps keep
 *  their poison. */
static void fill_tokens(trial_case *c, qni_area *a) {
    uint8_t *bytes = qni_area_host(a);
    const int64_t size = qni_dtype_bytes(a->dtype), row = c->shape->heads * c->shape->width;
    for (int64_t i = 0; i < c->shape->n * row; i++) {
        const int64_t at = i / row * (row + c->shape->gap) + i % row;
        for (int64_t k = 0; k < size; k++)
            bytes[at * size + k] = (uint8_t)qni_random(&c->base.random);
        if (is_quant(c))
            qni_put(a->dtype, bytes, at,
                    i % 61 == 7 ? (double)NAN : qni_random_normal(&c->base.random));
    }
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    if (which <= VALUE)
        fill_tokens(c, a);
    else if (which == K_SCALE || which == V_SCALE)
        *(float *)qni_area_host(a) = which == K_SCALE ? 0.37f : 0.001f; // the latter saturates
    else if (which > V_SCALE)
        for (int64_t i = 0; i < a->count; i++)
            ((int32_t *)qni_area_host(a))[i] = index_of(c->shape, which, i);
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    const qni_area *a = c->base.areas;
    const shape *s = c->shape;
    qni_kvcache_problem *p = &c->problem;
    const int64_t width = s->width, row = s->heads * width;
    for (int i = 0; i < 2; i++)
        p->parts[i] = (qni_cache_rows){.in = qni_area_data(&a[KEY + i], on_host),
                                       .out = qni_area_data(&a[K_CACHE + i], on_host),
                                       .in_token = row + s->gap,
                                       .in_head = width,
                                       .out_page = page_stride(s),
                                       .out_place = s->is_hnd ? width : row,
                                       .out_head = s->is_hnd ? s->page * width : width,
                                       .heads = s->heads,
                                       .width = width,
                                       .scale = qni_area_data(&a[K_SCALE + i], on_host)};
    p->pages = (qk_pages){.slots = qni_area_data(&a[SLOTS], on_host),
                          .batch_indices = qni_area_data(&a[BATCH], on_host),
                          .positions = qni_area_data(&a[POSITIONS], on_host),
                          .kv_indices = qni_area_data(&a[INDICES], on_host),
                          .kv_indptr = qni_area_data(&a[INDPTR], on_host),
                          .page_size = (int32_t)s->page};
    return p;
}

// ---- expected results

static void expect_element(trial_case *c, int side, int64_t from, int64_t to) {
    const qni_area *in = &c->base.areas[KEY + side];
    qni_area *out = &c->base.areas[K_CACHE + side];
    const int64_t size = qni_dtype_bytes(in->dtype);
    if (is_quant(c)) {
        const double scale = qni_get(QNI_F32, qni_area_host(&c->base.areas[K_SCALE + side]), 0);
        const double want = qni_get(in->dtype, qni_area_host(in), from) / scale;
        qni_area_expect(out, to, want, isnan(want) ? 0 : fabs(want) * 0x1.01p-23); // two roundings
        return;
    }
    for (int64_t k = 0; k < size; k++)
        qni_area_expect(out, to * size + k, ((const uint8_t *)qni_area_host(in))[from * size + k],
                        0);
}

static void expect(void *context, void *) {
    trial_case *c = context;
    const shape *s = c->shape;
    const int64_t row = s->heads * s->width;
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t i = 0; !is_left_out(t) && i < row; i++) {
            const int64_t slot = position_of(s, t) % s->page, h = i / s->width, d = i % s->width;
            const int64_t in_page =
                s->is_hnd ? (h * s->page + slot) * s->width + d : slot * row + i;
            for (int side = 0; side < 2; side++)
                expect_element(c, side, t * (row + s->gap) + i,
                               page_of(s, t) * page_stride(s) + in_page);
        }
}

// ---- a case

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_append(qni_trial_run *run, const shape *s, qni_dtype dtype,
                            qni_dtype dtype_out) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_kvcache},
                    .shape = s,
                    .problem = {.dtype = dtype, .dtype_out = dtype_out, .n = s->n}};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "n=%ld [%ld, %ld] page=%ld %s %s%s gap=%ld offset=%ld %s ->%s", (long)s->n,
             (long)s->heads, (long)s->width, (long)s->page, s->is_hnd ? "HND" : "NHD",
             s->by_slot ? "slots" : "pages", s->is_shared ? " shared" : "", (long)s->gap,
             (long)s->offset, qni_dtype_name(dtype), qni_dtype_name(dtype_out));
    return qni_case_try(run, &c.base);
}

// ---- positions and lengths

/** Tries sequences that append 2, 0 and n - 3 tokens; the last token is in no sequence. */
static qn_status try_positions(qni_trial_run *run, int64_t n) {
    enum { IDS, PLACES, LENS, BEGINS, COUNT };
    static const char *const names[] = {"batch_indices", "positions", "seq_lens", "append_indptr"};
    const int32_t indptr[BATCHES + 1] = {0, 2, 2, (int32_t)n - 1}, lens[] = {2, 9, (int32_t)n + 40};
    const int64_t counts[] = {n, n, BATCHES, BATCHES + 1};
    qni_area a[COUNT] = {};
    char text[60];
    qn_status st;
    for (int i = 0; i < COUNT; i++)
        QN_TRY_OUT(qni_area_create(&a[i], names[i], qn_stream_device(qni_trial_stream(run)),
                                   QNI_I32, counts[i], 0));
    memcpy(qni_area_host(&a[LENS]), lens, sizeof lens);
    memcpy(qni_area_host(&a[BEGINS]), indptr, sizeof indptr);
    for (int64_t t = 0; t < n; t++) {
        const int b = t < 2 ? 0 : t < n - 1 ? 2 : -1;
        qni_area_expect(&a[IDS], t, b, 0);
        qni_area_expect(&a[PLACES], t, b < 0 ? 0 : b == 0 ? (double)t : (double)(41 + t), 0);
    }
    const qni_positions_problem p = {.batch_indices = qni_area_device(&a[IDS]),
                                     .positions = qni_area_device(&a[PLACES]),
                                     .append_indptr = qni_area_device(&a[BEGINS]),
                                     .seq_lens = qni_area_device(&a[LENS]),
                                     .n = n,
                                     .batches = BATCHES};
    snprintf(text, sizeof text, "n=%ld batches=%d", (long)n, BATCHES);
    QN_TRY_OUT(qni_areas_try(run, &qni_op_kvcache_positions, &p, text, a, COUNT));
out:
    qni_areas_destroy(a, COUNT);
    return st;
}

/** Tries sequences of 0, 1, 2, … pages, whose last page is partly full. */
static qn_status try_seq_lens(qni_trial_run *run, int64_t batches, int32_t page_size) {
    enum { LENS, BEGINS, LASTS, COUNT };
    static const char *const names[] = {"seq_lens", "kv_indptr", "kv_last_page_len"};
    qni_area a[COUNT] = {};
    char text[60];
    qn_status st;
    for (int i = 0; i < COUNT; i++)
        QN_TRY_OUT(qni_area_create(&a[i], names[i], qn_stream_device(qni_trial_stream(run)),
                                   QNI_I32, batches + (i == BEGINS), i));
    int32_t *begins = qni_area_host(&a[BEGINS]), *lasts = qni_area_host(&a[LASTS]);
    for (int64_t b = 0, pages = 0; b <= batches; pages += b % 5, b++)
        begins[b] = (int32_t)pages;
    for (int64_t b = 0; b < batches; b++) {
        const int64_t pages = b % 5;
        lasts[b] = pages ? 1 + (int32_t)(b % page_size) : 0;
        qni_area_expect(&a[LENS], b, pages ? (double)((pages - 1) * page_size + lasts[b]) : 0, 0);
    }
    const qni_seq_lens_problem p = {.seq_lens = qni_area_device(&a[LENS]),
                                    .kv_indptr = qni_area_device(&a[BEGINS]),
                                    .kv_last_page_len = qni_area_device(&a[LASTS]),
                                    .batches = batches,
                                    .page_size = page_size};
    snprintf(text, sizeof text, "batches=%ld page=%d", (long)batches, page_size);
    QN_TRY_OUT(qni_areas_try(run, &qni_op_kvcache_seq_lens, &p, text, a, COUNT));
out:
    qni_areas_destroy(a, COUNT);
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    const int thinning = qni_trial_is_quick(run) ? 3 : 1;
    qn_status st = QN_OK;
    if (op == &qni_op_kvcache_positions) {
        for (int64_t n = 4; st == QN_OK && n < 1000; n *= 5)
            st = try_positions(run, n);
        return st;
    }
    if (op == &qni_op_kvcache_seq_lens) {
        for (int64_t batches = 1; st == QN_OK && batches < 1000; batches = batches * 7 + 1)
            st = try_seq_lens(run, batches, batches % 2 ? 16 : 1);
        return st;
    }
    if (op == &qni_op_kvcache_gather)
        return qni_kvcache_try_gather(run);
    if (op == &qni_op_kvcache_groups)
        return qni_kvcache_try_groups(run);
    int turn = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = QNI_F32; dtype <= QNI_E4M3FN; dtype++)
            for (int quantizes = 0; st == QN_OK && quantizes <= (dtype <= QNI_BF16); quantizes++) {
                const qni_dtype out = (qni_dtype)(QNI_E4M3FN + (turn + (int)s) % QNI_NUM_FP8);
                const bool is_far =
                    shapes[s].gap > qni_far / 2; // far rows are tried as bytes alone, to need less
                                                 // room
                if (is_far ? dtype == QNI_E4M3FN : ++turn % thinning == 0)
                    st = try_append(run, &shapes[s], (qni_dtype)dtype,
                                    quantizes ? out : (qni_dtype)dtype);
            }
    return st == QN_OK ? qni_kvcache_try_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_kvcache,          &qni_op_kvcache_positions,
                                    &qni_op_kvcache_seq_lens, &qni_op_kvcache_gather,
                                    &qni_op_kvcache_groups,   nullptr};
const qni_family qni_family_kvcache = {"kvcache", ops, try_op};
