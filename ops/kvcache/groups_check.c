// SPDX-License-Identifier: Apache-2.0
// The check problems of "kvcache_groups": scales and codes follow the definition, worked out here
// in double precision, and each byte of rotated keys must be its source's. Places come from what
// the case was made of.
#include "../../check/case.h"
#include "kvcache.h"
#include "kvcache_check.h"

typedef struct shape {
    int64_t n, width, rope, page;
    int64_t gap, offset; // elements between rows; elements before the first
} shape;
static const shape shapes[] = {
    {1, 128, 1, 1, 0, 0},     {7, 512, 64, 16, 0, 0}, {19, 512, 64, 64, 144, 0},
    {5, 256, 32, 3, 8, 8},    {12, 33, 5, 5, 1, 3},   {6, 129, 7, 4, 3, 1},
    {40, 640, 64, 1, 16, 16}, {3, 1, 1, 2, 0, 0},     {130, 384, 64, 8, 0, 0}};
enum { KV_C, K_PE, CODES, SCALES, ROPE, SLOTS, NUM_AREAS };
static const char *const area_names[NUM_AREAS] = {"kv_c",        "k_pe",      "ckv_cache",
                                                  "scale_cache", "kpe_cache", "slot_mapping"};

typedef struct trial_case {
    qni_case base; // first
    const shape *shape;
    qni_groups_problem problem;
} trial_case;

static bool is_left_out(int64_t t) {
    return t % 7 == 5;
}
/** Returns where a token goes: pages are filled from the last place down, a place is left free. */
static int64_t slots_of(const shape *s) {
    return (s->n / s->page + 2) * s->page;
}
static int64_t slot_of(const shape *s, int64_t t) {
    return slots_of(s) - 2 - t;
}
static int64_t groups_of(const shape *s) {
    return (s->width + QK_CACHE_GROUP - 1) / QK_CACHE_GROUP;
}

/** Returns the elements of a row of an area, and those from a row to the next. */
static int64_t row_of(const trial_case *c, int which) {
    const shape *s = c->shape;
    const int64_t bytes = which == ROPE ? qni_dtype_bytes(c->problem.dtype) : 1; // compared so
    return which == SCALES                  ? groups_of(s)
           : which == K_PE || which == ROPE ? s->rope * bytes
                                            : s->width;
}
static int64_t step_of(const trial_case *c, int which) {
    const int64_t bytes = which == ROPE ? qni_dtype_bytes(c->problem.dtype) : 1;
    return row_of(c, which) + c->shape->gap * bytes;
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const shape *s = c->shape;
    if (which == SLOTS)
        return qni_dense(QNI_I32, s->n);
    const qni_dtype dtype = which <= K_PE     ? c->problem.dtype
                            : which == CODES  ? c->problem.dtype_codes
                            : which == SCALES ? QNI_F32
                                              : QNI_U8;
    const int64_t bytes = which == ROPE ? qni_dtype_bytes(c->problem.dtype) : 1;
    return (qni_extent){dtype, which <= K_PE ? s->n : slots_of(s), row_of(c, which),
                        step_of(c, which), s->offset * bytes};
}

/** Returns an element of kv_c. The scales of groups differ by far; a group of zeros has the least
 *  scale, and a NaN stays one without a part in the scale. */
static double value_of(trial_case *c, int64_t t, int64_t i) {
    const double x = qni_random_normal(&c->base.random);
    const int64_t group = i / QK_CACHE_GROUP;
    if ((t + group) % 6 == 4)
        return 0;
    return i % 61 == 7 ? (double)NAN : x * exp2((double)((t * 5 + group * 3) % 11 - 5));
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    for (int64_t t = 0; which == SLOTS && t < c->shape->n; t++)
        ((int32_t *)qni_area_host(a))[t] =
            is_left_out(t) ? -1 - (int32_t)t : (int32_t)slot_of(c->shape, t);
    for (int64_t t = 0; which <= K_PE && t < c->shape->n; t++)
        for (int64_t i = 0; i < row_of(c, which); i++)
            qni_put(a->dtype, qni_area_host(a), t * step_of(c, which) + i, value_of(c, t, i));
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    const qni_area *a = c->base.areas;
    const shape *s = c->shape;
    qni_groups_problem *p = &c->problem;
    p->n = s->n, p->width = s->width, p->rope_width = s->rope;
    p->args = (qk_groups_args){
        .ckv = qni_area_data(&a[KV_C], on_host),
        .kpe = qni_area_data(&a[K_PE], on_host),
        .codes = qni_area_data(&a[CODES], on_host),
        .scales = qni_area_data(&a[SCALES], on_host),
        .rope = qni_area_data(&a[ROPE], on_host),
        .ckv_token = step_of(c, KV_C),
        .kpe_token = step_of(c, K_PE),
        .codes_place = step_of(c, CODES),
        .scales_place = step_of(c, SCALES),
        .rope_place = s->rope + s->gap,
        .pages = {.slots = qni_area_data(&a[SLOTS], on_host), .page_size = (int32_t)s->page}};
    p->args.codes_page = p->args.codes_place * s->page;
    p->args.scales_page = p->args.scales_place * s->page;
    p->args.rope_page = p->args.rope_place * s->page;
    return p;
}

static double largest_of(qni_dtype dtype) {
    return dtype == QNI_E4M3FN ? 448 : dtype == QNI_E4M3FNUZ ? 240 : 57344;
}

static void expect_group(trial_case *c, int64_t t, int64_t group) {
    const qni_area *in = &c->base.areas[KV_C];
    const int64_t first = group * QK_CACHE_GROUP, left = c->shape->width - first;
    const int64_t count = left < QK_CACHE_GROUP ? left : QK_CACHE_GROUP;
    const int64_t from = t * step_of(c, KV_C) + first, slot = slot_of(c->shape, t);
    double amax = (double)qk_cache_eps;
    for (int64_t i = 0; i < count; i++)
        amax = fmax(amax, fabs(qni_get(in->dtype, qni_area_host(in), from + i)));
    const double scale = amax / largest_of(c->problem.dtype_codes);
    qni_area_expect(&c->base.areas[SCALES], slot * step_of(c, SCALES) + group, scale, 0);
    for (int64_t i = 0; i < count; i++) {
        const double want = qni_get(in->dtype, qni_area_host(in), from + i) / scale;
        qni_area_expect(&c->base.areas[CODES], slot * step_of(c, CODES) + first + i, want,
                        isnan(want) ? 0 : fabs(want) * 0x1.8p-23); // scale, inverse, product
    }
}

static void expect(void *context, void *) {
    trial_case *c = context;
    const int64_t size = qni_dtype_bytes(c->problem.dtype);
    for (int64_t t = 0; t < c->shape->n; t++) {
        const uint8_t *rope =
            (const uint8_t *)qni_area_host(&c->base.areas[K_PE]) + t * step_of(c, K_PE) * size;
        for (int64_t group = 0; !is_left_out(t) && group < groups_of(c->shape); group++)
            expect_group(c, t, group);
        for (int64_t i = 0; !is_left_out(t) && i < row_of(c, ROPE); i++)
            qni_area_expect(&c->base.areas[ROPE], slot_of(c->shape, t) * step_of(c, ROPE) + i,
                            rope[i], 0);
    }
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_case(qni_trial_run *run, const shape *s, qni_dtype dtype,
                          qni_dtype dtype_codes) {
    trial_case c = {.base = {.kind = &case_kind, .op = &qni_op_kvcache_groups},
                    .shape = s,
                    .problem = {.dtype = dtype, .dtype_codes = dtype_codes}};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text,
             "n=%ld dim=%ld+%ld page=%ld gap=%ld offset=%ld %s->%s", (long)s->n, (long)s->width,
             (long)s->rope, (long)s->page, (long)s->gap, (long)s->offset, qni_dtype_name(dtype),
             qni_dtype_name(dtype_codes));
    return qni_case_try(run, &c.base);
}

qn_status qni_kvcache_try_groups(qni_trial_run *run) {
    const int thinning = qni_trial_is_quick(run) ? 3 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++, turn++)
            if (turn % thinning == 0)
                st = try_case(run, &shapes[s], (qni_dtype)dtype,
                              (qni_dtype)(QNI_E4M3FN + (turn / 2) % QNI_NUM_FP8));
    return st;
}
