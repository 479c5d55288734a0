// SPDX-License-Identifier: Apache-2.0
// The check problems of the rope family: every form of the ops, on shapes that reach every kernel
// and every edge.
#include "rope_check.h"

#include "../../check/case.h"
#include "../../check/walk.h"
#include "rope.h"

/** How a form's angles are given. */
typedef enum source {
    BY_POS_IDS,
    BY_SEGMENTS,
    BY_LLAMA31,
    BY_CACHE,
    BY_TABLES,     // [n, R / 2]
    BY_FULL_TABLES // [n, R]
} source;

/** One of the family's functions, by what it computes. */
typedef struct form {
    const char *name;
    source source;
    bool is_interleaved, in_place, has_norm, is_quant;
    bool is_latent; // k has one head, as MLA has
    bool is_paged;
} form;
static const form forms[] = {
    {.name = "apply_rope_pos_ids", .source = BY_POS_IDS},
    {.name = "apply_rope_pos_ids interleaved", .source = BY_POS_IDS, .is_interleaved = true},
    {.name = "apply_rope in place",
     .source = BY_SEGMENTS,
     .is_interleaved = true,
     .in_place = true},
    {.name = "apply_llama31_rope", .source = BY_LLAMA31, .is_interleaved = true},
    {.name = "apply_llama31_rope in place", .source = BY_LLAMA31, .in_place = true},
    {.name = "apply_rope_with_cos_sin_cache", .source = BY_CACHE},
    {.name = "qk_rmsnorm_rope", .source = BY_TABLES, .has_norm = true},
    {.name = "qk_rmsnorm_rope interleaved",
     .source = BY_FULL_TABLES,
     .is_interleaved = true,
     .has_norm = true,
     .in_place = true},
    {.name = "qk_rmsnorm_rope without norm", .source = BY_FULL_TABLES},
    {.name = "rope_quantize_fp8", .source = BY_CACHE, .is_quant = true},
    {.name = "mla_rope_quantize_fp8",
     .source = BY_CACHE,
     .is_interleaved = true,
     .is_quant = true,
     .is_latent = true},
    {.name = "rope_quantize_fp8_append", .source = BY_CACHE, .is_quant = true, .is_paged = true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

typedef struct shape {
    int64_t batches, inner, q_heads, k_heads, width, rotary_dim;
    int64_t gap, offset; // elements behind each token; elements before the first token
    bool is_head_major;  // heads lie further apart than tokens
} shape;
static const shape shapes[] = {
    {1, 1, 1, 1, 2, 2, 0, 0, false},       {1, 7, 4, 2, 64, 64, 0, 0, false},
    {1, 3, 32, 8, 128, 128, 8, 0, false},  {2, 5, 3, 3, 128, 64, 16, 8, true},
    {1, 2, 5, 1, 256, 64, 0, 0, false},    {1, 9, 2, 1, 80, 32, 0, 0, false},
    {1, 4, 3, 2, 96, 96, 0, 8, true},      {2, 2, 2, 1, 100, 30, 3, 1, false},
    {1, 11, 12, 12, 64, 16, 0, 0, false},  {1, 2, 1, 1, 512, 512, 8, 0, false},
    {1, 7, 2, 1, 256, 64, 0, 0, false},    {1, 3, 2, 1, 64, 64, qni_far - 128, 0, false},
    {1, 90, 24, 24, 128, 128, 0, 0, true}, {1, 700, 3, 1, 128, 128, 0, 0, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum {
    IN,                            // of each part
    OUT = IN + QNI_ROPE_PARTS,     // of each part
    WEIGHT = OUT + QNI_ROPE_PARTS, // of q and k
    COS = WEIGHT + 2,
    SIN,
    POS_IDS,
    INDPTR,
    OFFSETS,
    BATCH_INDICES,
    POSITIONS,
    KV_INDICES,
    KV_INDPTR,
    NUM_AREAS
};
static const char *const area_names[NUM_AREAS] = {
    "q",          "k",          "q_nope",  "k_nope",        "v",         "q_out",      "k_out",
    "q_nope_out", "k_nope_out", "v_out",   "q_weight",      "k_weight",  "cos",        "sin",
    "pos_ids",    "indptr",     "offsets", "batch_indices", "positions", "kv_indices", "kv_indptr"};
enum { CACHE_ROWS = 64, PAGE = 5, BATCHES = 3, SEGMENTS = 4 };

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_rope_problem problem;
    double *x, *y; // a head, and what it becomes
} trial_case;

// ---- the tensors

static int64_t heads_of(const trial_case *c, int part) {
    const bool is_k = part == QNI_ROPE_K || part == QNI_ROPE_K_NOPE;
    if (part > QNI_ROPE_K && !c->form->is_quant)
        return 0;
    if (part == QNI_ROPE_V)
        return c->form->is_paged ? c->shape->k_heads : 0;
    return is_k ? c->form->is_latent ? 1 : c->shape->k_heads : c->shape->q_heads;
}

static bool is_paged(const trial_case *c, int part) {
    return c->form->is_paged &&
           (part == QNI_ROPE_K || part == QNI_ROPE_K_NOPE || part == QNI_ROPE_V);
}

static int64_t width_of(const trial_case *c, int part) {
    const shape *s = c->shape;
    return part == QNI_ROPE_V  ? s->width
           : part > QNI_ROPE_K ? s->width + 16
           : c->form->is_quant ? s->rotary_dim
                               : s->width;
}

static int64_t token_stride(const trial_case *c, int part) {
    const int64_t width = width_of(c, part);
    return (c->shape->is_head_major ? width : heads_of(c, part) * width) + c->shape->gap;
}

static int64_t tokens(const trial_case *c) {
    return c->shape->batches * c->shape->inner;
}

static int64_t pages_of_batch(const trial_case *c) {
    return (tokens(c) / BATCHES + 1 + 2 * BATCHES) / PAGE + 1;
}

/** Returns a part's rows of `token_stride`: tokens, or tokens of heads. */
static int64_t part_rows(const trial_case *c, int part) {
    return tokens(c) * (c->shape->is_head_major ? heads_of(c, part) : 1);
}

/** Returns how many elements the pages of a part have. */
static int64_t page_elements(const trial_case *c, int part) {
    return pages_of_batch(c) * BATCHES * PAGE * heads_of(c, part) * width_of(c, part);
}

static int64_t table_width(const trial_case *c) {
    const int64_t dim = c->shape->rotary_dim;
    return c->form->source == BY_TABLES ? dim / 2 : dim;
}

/** Returns how many elements an area has, or how many rows if it has rows; 0: the case has no such
 *  area. */
static int64_t area_count(const trial_case *c, int which) {
    const form *f = c->form;
    const bool by_segments = f->source == BY_SEGMENTS, has_tables = f->source >= BY_TABLES;
    const bool by_pos_ids =
        f->source == BY_POS_IDS || f->source == BY_LLAMA31 || f->source == BY_CACHE;
    if (which < OUT)
        return heads_of(c, which) ? part_rows(c, which) : 0;
    if (which < WEIGHT)
        return f->in_place                ? 0
               : is_paged(c, which - OUT) ? page_elements(c, which - OUT)
               : heads_of(c, which - OUT) ? part_rows(c, which - OUT)
                                          : 0;
    switch (which) {
    case WEIGHT:
    case WEIGHT + 1:
        return f->has_norm ? c->shape->width : 0;
    case COS:
        return f->source == BY_CACHE ? CACHE_ROWS * c->shape->rotary_dim
               : has_tables          ? c->shape->inner * table_width(c)
                                     : 0;
    case SIN:
        return has_tables ? c->shape->inner * table_width(c) : 0;
    case POS_IDS:
        return by_pos_ids ? tokens(c) : 0;
    case INDPTR:
        return by_segments ? SEGMENTS + 1 : 0;
    case OFFSETS:
        return by_segments ? SEGMENTS : 0;
    case BATCH_INDICES:
    case POSITIONS:
        return f->is_paged ? tokens(c) : 0;
    case KV_INDICES:
        return f->is_paged ? BATCHES * pages_of_batch(c) : 0;
    default:
        return f->is_paged ? BATCHES + 1 : 0;
    }
}

static qni_dtype area_dtype(const trial_case *c, int which) {
    const qni_rope_problem *p = &c->problem;
    return which < OUT                    ? p->dtype
           : which < WEIGHT               ? p->dtype_out
           : which == COS || which == SIN ? p->dtype_table
           : which < COS                  ? p->dtype
                                          : QNI_I32;
}

/** Returns a value: mostly normal, sometimes zero or among the largest, rarely a NaN. */
static double value(trial_case *c) {
    const double normal = qni_random_normal(&c->base.random);
    switch (qni_random(&c->base.random) % 256) {
    case 0:
        return 0;
    case 1:
        return c->problem.dtype == QNI_F16 ? copysign(65504, normal) : ldexp(normal, 40);
    case 2:
        return qni_random(&c->base.random) % 8 ? ldexp(normal, -20) : (double)NAN;
    default:
        return normal;
    }
}

static void fill_index(trial_case *c, int which) {
    static const int32_t far[] = {0, 1, 1 << 20, (1 << 20) - 1, INT32_MAX, -3, 131071};
    int32_t *to = qni_area_host(&c->base.areas[which]);
    const int64_t n = tokens(c), count = c->base.areas[which].count, per = pages_of_batch(c);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t random = qni_random(&c->base.random);
        to[i] = which == POS_IDS && c->form->source == BY_CACHE ? (int32_t)(random % CACHE_ROWS)
                : which == POS_IDS && i % 2                     ? (int32_t)(random % (1 << 21))
                : which == POS_IDS                              ? far[i / 2 % 7]
                // Segments: the first begins behind the first token, one is empty, the last token
                // is in none.
                : which == INDPTR        ? (int32_t)(i == 0   ? n > 2
                                                     : i == 1 ? n / 2
                                                     : i == 2 ? n / 2
                                                              : n - (n > 3))
                : which == OFFSETS       ? (int32_t)(random % (1 << 20))
                : which == BATCH_INDICES ? (i % 7 == 5 ? -1 : (int32_t)(i % BATCHES))
                : which == POSITIONS     ? (int32_t)(i / BATCHES + 2 * (i % BATCHES))
                : which == KV_INDICES    ? (int32_t)((i * (count - 1) + 1) % count) // backwards
                                         : (int32_t)(i * per);
    }
}

static void fill_table(trial_case *c, int which) {
    qni_area *a = &c->base.areas[which];
    const int64_t width = table_width(c), half = c->shape->rotary_dim / 2;
    for (int64_t i = 0; i < a->count; i++)
        qni_put(a->dtype, qni_area_host(a), i, sin((double)(i % 97) + which));
    // The second element of each pair of a full table is never read.
    for (int64_t i = 0; c->form->source == BY_FULL_TABLES && i < a->count; i++)
        if (c->form->is_interleaved ? i % 2 == 1 : i % width >= half)
            qni_put(a->dtype, qni_area_host(a), i, (double)NAN);
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    if (which >= POS_IDS) {
        fill_index(c, which);
    } else if (which == COS || which == SIN) {
        fill_table(c, which);
    } else if (which >= WEIGHT) {
        for (int64_t i = 0; i < a->count; i++)
            qni_put(a->dtype, qni_area_host(a), i, 0.5 + qni_random_normal(&c->base.random));
    } else if (which < OUT) {
        const int64_t stride = token_stride(c, which), row = stride - c->shape->gap;
        for (int64_t i = 0; i < part_rows(c, which) * row; i++) // gaps keep their poison
            qni_put(a->dtype, qni_area_host(a), i / row * stride + i % row,
                    c->form->has_norm && i / row % 3 == 2 ? 0 : value(c)); // heads of zeros
    }
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    const int64_t count = area_count(c, which), offset = which < COS ? c->shape->offset : 0;
    const bool is_out = which >= OUT && which < WEIGHT;
    const int part = is_out ? which - OUT : which;
    if (count == 0)
        return (qni_extent){};
    if (which >= WEIGHT || (is_out && is_paged(c, part)))
        return (qni_extent){area_dtype(c, which), 1, .row = count, .offset = offset};
    return (qni_extent){.dtype = area_dtype(c, which),
                        .rows = count,
                        .row = token_stride(c, part) - c->shape->gap,
                        .stride = token_stride(c, part),
                        .offset = offset};
}

static void *at(const trial_case *c, int which, bool on_host) {
    return qni_area_data(&c->base.areas[which], on_host);
}

static int out_area(const trial_case *c, int part) {
    return c->form->in_place ? IN + part : OUT + part;
}

static void place_part(const trial_case *c, qni_rope_problem *p, int part, bool on_host) {
    const shape *s = c->shape;
    const int64_t width = width_of(c, part), heads = heads_of(c, part);
    const int64_t token = token_stride(c, part),
                  head = s->is_head_major ? tokens(c) * token : width;
    const bool is_cut = c->form->in_place && !c->form->has_norm, is_hnd = part != QNI_ROPE_V;
    qni_rope_rows *r = &p->parts[part];
    *r = (qni_rope_rows){.in = at(c, IN + part, on_host),
                         .out = at(c, out_area(c, part), on_host),
                         .weight = part <= QNI_ROPE_K ? at(c, WEIGHT + part, on_host) : nullptr,
                         .in_batch = s->inner * token,
                         .in_token = token,
                         .in_head = head,
                         .out_batch = s->inner * token,
                         .out_token = token,
                         .out_head = head,
                         .heads = heads,
                         .width = is_cut ? s->rotary_dim : width,
                         .scale = part == QNI_ROPE_Q ? 2.5f : 0.75f + (float)part};
    if (!is_paged(c, part))
        return;
    r->is_paged = true;
    r->out_batch = PAGE * heads * width;
    r->out_token = is_hnd ? width : heads * width;
    r->out_head = is_hnd ? PAGE * width : width;
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    qni_rope_problem *p = &c->problem;
    for (int part = 0; part < QNI_ROPE_PARTS; part++)
        place_part(c, p, part, on_host);
    p->cos = at(c, COS, on_host);
    p->sin = at(c, SIN, on_host);
    p->table_row = table_width(c);
    p->table_step = c->form->source == BY_FULL_TABLES && c->form->is_interleaved ? 2 : 1;
    if (c->form->source == BY_CACHE)
        p->sin = (const float *)p->cos + c->shape->rotary_dim / 2;
    p->pos_ids = at(c, POS_IDS, on_host);
    p->indptr = at(c, INDPTR, on_host);
    p->offsets = at(c, OFFSETS, on_host);
    p->pages = (qk_pages){.batch_indices = at(c, BATCH_INDICES, on_host),
                          .positions = at(c, POSITIONS, on_host),
                          .kv_indices = at(c, KV_INDICES, on_host),
                          .kv_indptr = at(c, KV_INDPTR, on_host),
                          .page_size = PAGE};
    return p;
}

// ---- expected results

/** Returns how far x may be off, relative to x. Only the norm's root errs, by its sum in any order
 *  and by the steps after it. */
static double x_error(const trial_case *c) {
    return c->form->has_norm ? ((double)c->shape->width / 8 + 12) * 0x1p-24 : 0;
}

/** Returns how far an element of a pair may be off: by the errors of the angle, of x, and of the
 *  products' rounding. */
static double pair_error(const trial_case *c, int64_t position, int64_t i) {
    const qni_rope_problem *p = &c->problem;
    const int64_t half = p->rotary_dim / 2;
    const int64_t other = p->is_interleaved ? i ^ 1 : i < half ? i + half : i - half;
    const double magnitude = fabs(c->x[i]) + fabs(c->x[other]);
    const double angle = p->angles == QNI_ROPE_BY_FREQUENCY ? qni_rope_angle_error : 0;
    if (position == 0 && p->angles == QNI_ROPE_BY_FREQUENCY && !c->form->has_norm)
        return 0; // nothing turns
    return magnitude * (angle + x_error(c) + 3 * 0x1p-24);
}

static void expect_head(trial_case *c, int part, int64_t t, int64_t head, int64_t position) {
    const qni_rope_problem *p = &c->problem;
    const qni_rope_rows *r = &p->parts[part];
    const int64_t to = qni_rope_out(p, r, t) + head * r->out_head;
    qni_area *out = &c->base.areas[out_area(c, part)];
    qni_rope_ref_head(p, part, t, head, position, c->x, c->y);
    for (int64_t i = 0; i < r->width; i++) {
        const bool turns = part <= QNI_ROPE_K && i < p->rotary_dim;
        const double error = turns ? pair_error(c, position, i) : fabs(c->x[i]) * x_error(c);
        const double scale = c->form->is_quant ? (double)r->scale : 1;
        const double rounding = c->form->is_quant ? fabs(c->y[i]) * 0x1p-24 : 0;
        // A NaN must stay a NaN, whatever the other element of its pair is.
        qni_area_expect(out, to + i, c->y[i], isnan(c->y[i]) ? 0 : error * scale + rounding);
    }
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    const qni_rope_problem *p = &c->problem;
    c->x = scratch;
    c->y = c->x + c->shape->width + 16;
    for (int64_t t = 0; t < p->n; t++) {
        int64_t position;
        const bool is_there = qni_rope_position(p, t, &position);
        for (int part = is_there ? 0 : QNI_ROPE_Q_NOPE; part < QNI_ROPE_PARTS; part++)
            for (int64_t h = 0; h < p->parts[part].heads; h++)
                if (qni_rope_out(p, &p->parts[part], t) >= 0)
                    expect_head(c, part, t, h, position);
    }
}

// ---- a case

static void name_case(trial_case *c) {
    const shape *s = c->shape;
    snprintf(c->base.text, sizeof c->base.text,
             "%s [%ld, %ld, %ld/%ld, %ld] R=%ld gap=%ld offset=%ld %s ->%s", c->form->name,
             (long)s->batches, (long)s->inner, (long)s->q_heads, (long)s->k_heads, (long)s->width,
             (long)s->rotary_dim, (long)s->gap, (long)s->offset, qni_dtype_name(c->problem.dtype),
             qni_dtype_name(c->problem.dtype_out));
}

static qni_rope_problem make_problem(const form *f, const shape *s, qni_dtype dtype,
                                     qni_dtype table, qni_fp8 kind) {
    const bool is_llama31 = f->source == BY_LLAMA31;
    return (qni_rope_problem){
        .dtype = dtype,
        .dtype_out = f->is_quant ? (qni_dtype)(QNI_E4M3FN + (int)kind) : dtype,
        .dtype_table = f->source >= BY_TABLES ? table : QNI_F32,
        .n = s->batches * s->inner,
        .inner = s->inner,
        .rotary_dim = s->rotary_dim,
        .is_interleaved = f->is_interleaved,
        .eps = s->gap == 0 ? 0 : 1e-6f,
        .angles = f->source >= BY_TABLES  ? QNI_ROPE_BY_TOKEN
                  : f->source == BY_CACHE ? QNI_ROPE_BY_POSITION
                                          : QNI_ROPE_BY_FREQUENCY,
        .law = {.theta = is_llama31 ? 5e5f : 1e4f,
                .scale = is_llama31 ? 8 : 1.5f,
                .low_freq_factor = is_llama31,
                .high_freq_factor = is_llama31 ? 4 : 0,
                .old_context_len = is_llama31 ? 8192 : 0},
        .segments = SEGMENTS,
    };
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype,
                         int turn) {
    const size_t head_bytes = (size_t)(s->width + 16) * sizeof(double);
    trial_case c = {
        .base = {.kind = &case_kind, .op = &qni_op_rope, .scratch_bytes = 2 * head_bytes},
        .form = f,
        .shape = s};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    c.problem =
        make_problem(f, s, dtype, turn % 2 ? dtype : QNI_F32, (qni_fp8)(turn % QNI_NUM_FP8));
    name_case(&c);
    return qni_case_try(run, &c.base);
}

/** Returns whether a problem is due. The shape of which a quarter turns, with positions 0 and 2^20,
 *  is always due, in both orders of pairs. */
static qni_due is_due(const qni_walk *w) {
    const form *f = &forms[w->form];
    const shape *s = &shapes[w->shape];
    if (s->gap > qni_far / 2)
        return f->is_paged ? QNI_DUE_NEVER : qni_walk_far(w);
    return s->width == 4 * s->rotary_dim && f->source == BY_POS_IDS ? QNI_DUE_ALWAYS
                                                                    : QNI_DUE_BY_TURN;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES - (quick ? 2 : 0), // the last two are long
                  .types = QNI_BF16 + 1,
                  .thinning = quick ? 7 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)w.type, w.turn);
    return st == QN_OK ? qni_rope_try_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_rope, nullptr};
const qni_family qni_family_rope = {"rope", ops, try_op};
