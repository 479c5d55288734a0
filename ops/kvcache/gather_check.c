// SPDX-License-Identifier: Apache-2.0
// The check problems of "kvcache_gather". A copied byte must be its source's; a code that is
// decoded follows the definition code * scale, with one scale or with its group's. Places come from
// what the case was made of, not from its index tensors.
#include "../../check/case.h"
#include "kvcache.h"
#include "kvcache_check.h"

typedef struct shape {
    int64_t n, width, page;
    int64_t gap, offset; // elements between rows and between pages; elements before the first
    bool by_slot;
} shape;
static const shape shapes[] = {
    {1, 1, 1, 0, 0, false},
    {7, 64, 5, 0, 0, false},
    {19, 576, 16, 64, 0, true},
    {5, 576, 1, 0, 16, true},
    {12, 33, 5, 1, 3, false},
    {40, 40, 64, 8, 8, false},
    {3, 64, 16, qni_far - 128, 1, false},
    {23, 17, 3, 0, 1, true},
    {3, 512, 16, 64, 0, true},
};
enum {
    OUT,
    CACHE,
    SCALE,
    SCALES,
    SLOTS,
    BATCH,
    POSITIONS,
    INDICES,
    INDPTR,
    NUM_AREAS,
    BATCHES = 3
};
static const char *const area_names[NUM_AREAS] = {"out",       "cache",        "scale",
                                                  "scales",    "slot_mapping", "batch_indices",
                                                  "positions", "kv_indices",   "kv_indptr"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_gather_problem problem;
    bool by_group; // codes have scales of groups
} trial_case;

// ---- where tokens are

static bool is_nowhere(int64_t t) {
    return t % 7 == 5;
}
static int64_t position_of(int64_t t) {
    return t / BATCHES;
}
static int64_t pages_of_batch(const shape *s) {
    return s->n / BATCHES / s->page + 1;
}
static int64_t num_pages(const shape *s) {
    return BATCHES * pages_of_batch(s);
}
/** Returns entry i of all sequences' pages, which are in reverse order. */
static int64_t page_at(const shape *s, int64_t i) {
    return num_pages(s) - 1 - i;
}
static int64_t page_of(const shape *s, int64_t t) {
    return page_at(s, t % BATCHES * pages_of_batch(s) + position_of(t) / s->page);
}
static int64_t page_stride(const shape *s) {
    return s->page * s->width + s->gap;
}

/** Returns the scales of a token, and how far pages of scales are apart: there is a gap. */
static int64_t groups_of(const shape *s) {
    return (s->width + QK_CACHE_GROUP - 1) / QK_CACHE_GROUP;
}
static int64_t page_of_scales(const shape *s) {
    return s->page * (groups_of(s) + 1) + 3;
}

// ---- the tensors

static bool is_scaled(const trial_case *c) {
    return c->problem.dtype != c->problem.dtype_out;
}

/** Returns how many elements of an area make an element of its tensor. Areas of copies are bytes,
 *  so that each byte is compared. */
static int64_t unit_of(const trial_case *c) {
    return is_scaled(c) ? 1 : qni_dtype_bytes(c->problem.dtype);
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    const int64_t unit = unit_of(c);
    if (which == OUT)
        return (qni_extent){is_scaled(c) ? c->problem.dtype_out : QNI_U8, s->n, s->width * unit,
                            (s->width + s->gap) * unit, s->offset * unit};
    if (which == CACHE)
        return (qni_extent){is_scaled(c) ? c->problem.dtype : QNI_U8, num_pages(s),
                            s->page * s->width * unit, page_stride(s) * unit, s->offset * unit};
    if (which == SCALE)
        return is_scaled(c) && !c->by_group ? qni_dense(QNI_F32, 1) : (qni_extent){};
    if (which == SCALES)
        return c->by_group ? qni_dense(QNI_F32, num_pages(s) * page_of_scales(s)) : (qni_extent){};
    if ((which == SLOTS) != s->by_slot)
        return (qni_extent){};
    return qni_dense(QNI_I32, which == INDICES  ? num_pages(s)
                              : which == INDPTR ? BATCHES + 1
                                                : s->n);
}

static int32_t index_of(const shape *s, int which, int64_t i) {
    return (int32_t)(which == INDICES     ? page_at(s, i)
                     : which == INDPTR    ? i * pages_of_batch(s)
                     : which == POSITIONS ? position_of(i)
                     : is_nowhere(i)      ? -1
                     : which == BATCH     ? i % BATCHES
                                          : page_of(s, i) * s->page + position_of(i) % s->page);
}

/** Fills pages with any bits: all codes, NaNs too. Gaps keep their poison. */
static void fill_cache(trial_case *c, uint8_t *bytes) {
    const int64_t unit = unit_of(c), page = page_stride(c->shape) * unit;
    for (int64_t p = 0; p < num_pages(c->shape); p++)
        for (int64_t i = 0; i < c->shape->page * c->shape->width * unit; i++)
            bytes[p * page + i] = (uint8_t)qni_random(&c->base.random);
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    if (which == SCALE)
        *(float *)qni_area_host(a) = 0.37f;
    else if (which == SCALES)
        for (int64_t i = 0; i < a->count; i++)
            ((float *)qni_area_host(a))[i] = (float)exp2(4 * qni_random_normal(&c->base.random));
    else if (which > SCALES)
        for (int64_t i = 0; i < a->count; i++)
            ((int32_t *)qni_area_host(a))[i] = index_of(c->shape, which, i);
    else if (which == CACHE)
        fill_cache(c, qni_area_host(a));
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    const qni_area *a = c->base.areas;
    const shape *s = c->shape;
    qni_gather_problem *p = &c->problem;
    p->cache = qni_area_data(&a[CACHE], on_host);
    p->out = qni_area_data(&a[OUT], on_host);
    p->scale = qni_area_data(&a[SCALE], on_host);
    p->scales = qni_area_data(&a[SCALES], on_host);
    p->scale_page = page_of_scales(s), p->scale_place = groups_of(s) + 1;
    p->n = s->n, p->width = s->width;
    p->page = page_stride(s), p->place = s->width, p->out_token = s->width + s->gap;
    p->pages = (qk_pages){.slots = qni_area_data(&a[SLOTS], on_host),
                          .batch_indices = qni_area_data(&a[BATCH], on_host),
                          .positions = qni_area_data(&a[POSITIONS], on_host),
                          .kv_indices = qni_area_data(&a[INDICES], on_host),
                          .kv_indptr = qni_area_data(&a[INDPTR], on_host),
                          .page_size = (int32_t)s->page};
    return p;
}

// ---- expected results

/** Returns the scale of element i of token t. */
static double scale_of(const trial_case *c, int64_t t, int64_t i) {
    const shape *s = c->shape;
    const int64_t place = position_of(t) % s->page * (groups_of(s) + 1);
    const int64_t at = page_of(s, t) * page_of_scales(s) + place + i / QK_CACHE_GROUP;
    return c->by_group ? qni_get(QNI_F32, qni_area_host(&c->base.areas[SCALES]), at)
                       : qni_get(QNI_F32, qni_area_host(&c->base.areas[SCALE]), 0);
}

static void expect_element(trial_case *c, int64_t t, int64_t i) {
    const qni_area *in = &c->base.areas[CACHE];
    qni_area *out = &c->base.areas[OUT];
    const shape *s = c->shape;
    const int64_t unit = unit_of(c), to = t * (s->width + s->gap) + i;
    const int64_t from = page_of(s, t) * page_stride(s) + position_of(t) % s->page * s->width + i;
    if (is_scaled(c)) {
        const double want = qni_get(in->dtype, qni_area_host(in), from) * scale_of(c, t, i);
        qni_area_expect(out, to, want, isnan(want) ? 0 : fabs(want) * 0x1.01p-24); // in f32
        return;
    }
    for (int64_t k = 0; k < unit; k++)
        qni_area_expect(out, to * unit + k, ((const uint8_t *)qni_area_host(in))[from * unit + k],
                        0);
}

static void expect(void *context, void *) {
    trial_case *c = context;
    const shape *s = c->shape;
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t i = 0; !is_nowhere(t) && i < s->width; i++)
            expect_element(c, t, i);
}

// ---- the cases

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_case(qni_trial_run *run, const shape *s, qni_dtype dtype, qni_dtype dtype_out,
                          bool by_group) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_kvcache_gather},
                    .shape = s,
                    .problem = {.dtype = dtype, .dtype_out = dtype_out},
                    .by_group = by_group};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "n=%ld width=%ld page=%ld %s gap=%ld offset=%ld %s->%s%s", (long)s->n, (long)s->width,
             (long)s->page, s->by_slot ? "slots" : "pages", (long)s->gap, (long)s->offset,
             qni_dtype_name(dtype), qni_dtype_name(dtype_out), by_group ? " by groups" : "");
    return qni_case_try(run, &c.base);
}

qn_status qni_kvcache_try_gather(qni_trial_run *run) {
    const int thinning = qni_trial_is_quick(run) ? 3 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = QNI_F32; dtype <= QNI_E4M3FN; dtype++)
            for (int scales = 0; st == QN_OK && scales <= 2 * (dtype <= QNI_BF16); scales++) {
                const qni_dtype code = (qni_dtype)(QNI_E4M3FN + (turn + (int)s) % QNI_NUM_FP8);
                const bool is_far = shapes[s].gap > qni_far / 2; // tried as bytes alone
                if (is_far ? dtype == QNI_E4M3FN : ++turn % thinning == 0)
                    st = try_case(run, &shapes[s], scales ? code : (qni_dtype)dtype,
                                  (qni_dtype)dtype, scales == 2);
            }
    return st;
}
