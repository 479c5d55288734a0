// SPDX-License-Identifier: Apache-2.0
// The check problems of the sampling family: every function and filter on rows of every kind. The
// definition says each bit.
#include "../../check/batches.h"
#include "../../check/case.h"
#include "../../check/walk.h"
#include "sampling.h"

typedef struct form {
    const char *name;
    uint32_t what;
    bool is_logits, is_joint;
    bool has_vectors; // numbers for each row, some of them out of range
    bool has_indices;
    float temperature, top_p, min_p; // top_p, top_k 0: no filter
    uint32_t top_k;
    uint32_t n; // drafted tokens
} form;
#define LOGITS(function) .what = function, .is_logits = true, .temperature = 0.7f
#define PROBS(function) .what = function, .temperature = 1
static const form forms[] = {
    {"softmax", LOGITS(QK_SAMPLING_SOFTMAX)},
    {"sample", LOGITS(QK_SAMPLING_TOKENS)},
    {"sample top_k", LOGITS(QK_SAMPLING_TOKENS), .top_k = 40},
    {"sample top_p", LOGITS(QK_SAMPLING_TOKENS), .top_p = 0.8f},
    {"sample min_p", LOGITS(QK_SAMPLING_TOKENS), .min_p = 0.1f},
    {"sample top_k top_p", LOGITS(QK_SAMPLING_TOKENS), .top_k = 20, .top_p = 0.9f},
    {"sample joint", LOGITS(QK_SAMPLING_TOKENS), .top_k = 20, .top_p = 0.4f, .min_p = 0.02f,
     .is_joint = true},
    {"sample vectors", LOGITS(QK_SAMPLING_TOKENS), .has_vectors = true},
    {"sample probs", PROBS(QK_SAMPLING_TOKENS)},
    {"sample probs vectors", PROBS(QK_SAMPLING_TOKENS), .has_vectors = true, .has_indices = true},
    {"sample probs joint", PROBS(QK_SAMPLING_TOKENS), .top_k = 30, .top_p = 0.5f, .is_joint = true,
     .has_indices = true},
    {"greedy", LOGITS(QK_SAMPLING_GREEDY)},
    {"top_k_renorm_probs", PROBS(QK_SAMPLING_RENORM), .top_k = 17},
    {"top_p_renorm_probs", PROBS(QK_SAMPLING_RENORM), .top_p = 0.6f},
    {"renorm vectors", PROBS(QK_SAMPLING_RENORM), .has_vectors = true},
    {"renorm all", PROBS(QK_SAMPLING_RENORM)},
    {"top_k_mask_logits", LOGITS(QK_SAMPLING_MASK), .top_k = 33},
    {"mask vectors", LOGITS(QK_SAMPLING_MASK), .has_vectors = true},
    {"chain of 3", PROBS(QK_SAMPLING_CHAIN), .n = 3, .has_vectors = true},
    {"chain of 0", PROBS(QK_SAMPLING_CHAIN), .n = 0},
    {"penalties", LOGITS(QK_SAMPLING_PENALTIES)},
    {"penalties vectors", LOGITS(QK_SAMPLING_PENALTIES), .has_vectors = true},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

typedef struct shape {
    int64_t rows, vocab;
    int64_t gap, offset; // elements between rows; elements before the first row
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0},      {9, 5, 0, 0},     {17, 64, 0, 8},           {8, 1000, 3, 1},
    {9, 2049, 0, 0},   {10, 4097, 7, 3}, {3, 64, qni_far - 64, 0}, {9, 32000, 0, 0},
    {3, 128256, 0, 0},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

enum {
    X,
    TARGET,
    IDS,
    COUNTS,
    IN_PROMPT,
    FIRST, // three vectors of f32
    THIRD = FIRST + 2,
    TOP_KS,
    SEEDS,
    OFFSETS,
    OUT,
    VALID,
    ACCEPTED,
    SENT,
    NUM_AREAS
};
static const char *const area_names[] = {"x",       "target", "ids",   "counts",   "in_prompt",
                                         "first",   "second", "third", "top_ks",   "seeds",
                                         "offsets", "out",    "valid", "accepted", "sent"};

typedef struct trial_case {
    qni_case base; // first
    const form *form;
    const shape *shape;
    qni_dtype dtype;
    int64_t batch;
    qni_sampling_problem problem;
} trial_case;

// ---- the tensors

static bool is_on_rows(const trial_case *c) {
    return c->form->what < QK_SAMPLING_CHAIN;
}
static bool has_tokens(const trial_case *c) {
    return c->form->what == QK_SAMPLING_TOKENS || c->form->what == QK_SAMPLING_GREEDY;
}
static int64_t stride_of(const trial_case *c) {
    return c->shape->vocab + (c->form->what == QK_SAMPLING_CHAIN ? 0 : c->shape->gap);
}

static bool has_area(const trial_case *c, int which) {
    const form *f = c->form;
    const bool is_chain = f->what == QK_SAMPLING_CHAIN;
    switch (which) {
    case X:
        return !is_chain || f->n > 0;
    case OUT:
        return true;
    case TARGET:
    case ACCEPTED:
    case SENT:
        return is_chain;
    case IDS:
        return is_chain ? f->n > 0 : f->has_indices;
    case COUNTS:
    case IN_PROMPT:
        return f->what == QK_SAMPLING_PENALTIES;
    case SEEDS:
    case OFFSETS:
        return f->has_vectors && f->what != QK_SAMPLING_PENALTIES;
    case VALID:
        return has_tokens(c);
    case TOP_KS:
        return f->has_vectors && is_on_rows(c);
    case FIRST + 1:
    case THIRD:
        return f->has_vectors && !is_chain && f->what != QK_SAMPLING_MASK;
    default:
        return f->has_vectors && !is_chain;
    }
}

static qni_dtype dtype_of(const trial_case *c, int which) {
    switch (which) {
    case X:
        return c->dtype;
    case OUT:
        return has_tokens(c) || c->form->what == QK_SAMPLING_CHAIN ? QNI_I32
               : c->form->what == QK_SAMPLING_SOFTMAX              ? QNI_F32
                                                                   : c->dtype;
    case IN_PROMPT:
    case VALID:
        return QNI_U8;
    case SEEDS:
    case OFFSETS:
        return QNI_I64;
    case TARGET:
    case FIRST:
    case FIRST + 1:
    case THIRD:
        return QNI_F32;
    default:
        return QNI_I32;
    }
}

/** Returns the elements of a tensor without gaps; 0: it has rows of the vocabulary. */
static int64_t dense_count(const trial_case *c, int which) {
    const int64_t n = c->form->n;
    const bool is_chain = c->form->what == QK_SAMPLING_CHAIN;
    switch (which) {
    case X:
        return is_chain ? c->batch * n * c->shape->vocab : 0;
    case TARGET:
        return c->batch * (n + 1) * c->shape->vocab;
    case IDS:
        return is_chain ? c->batch * n : c->batch;
    case OUT:
        return is_chain ? c->batch * (n + 1) : has_tokens(c) ? c->batch : 0;
    case COUNTS:
    case IN_PROMPT:
        return 0;
    case OFFSETS:
        return 1;
    default:
        return c->batch;
    }
}

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    if (!has_area(c, which))
        return (qni_extent){};
    const int64_t count = dense_count(c, which);
    if (count > 0)
        return qni_dense(dtype_of(c, which), count);
    return (qni_extent){.dtype = dtype_of(c, which),
                        .rows = which == OUT ? c->batch : c->shape->rows,
                        .row = c->shape->vocab,
                        .stride = stride_of(c),
                        .offset = c->shape->offset};
}

/** Returns a logit. Of eight rows one has ties, one is one-hot, one has zeros of both signs and
 *  keys that differ in their last bits, one holds a NaN, one is of minus infinities, one has two
 *  infinities, and one is steep. */
static double logit_of(trial_case *c, int64_t row, int64_t i) {
    const double normal = qni_random_normal(&c->base.random);
    const int64_t vocab = c->shape->vocab;
    switch (row % 8) {
    case 1:
        return rint(2 * normal);
    case 2:
        return i == vocab / 3 ? 2 : -(double)INFINITY;
    case 3:
        return i % 2 ? 1 + ldexp((double)(i % 4099), -23) : i % 4 ? 0.0 : -0.0;
    case 4:
        return i == vocab / 2 ? (double)NAN : normal;
    case 5:
        return -(double)INFINITY;
    case 6:
        return i == vocab / 5 || i == vocab - 1 ? (double)INFINITY : normal;
    case 7:
        return 200 * normal;
    default:
        return 3 * normal;
    }
}

/** Returns a probability: rows as those of logits, one with values too small to count, one that is
 *  not normal, one whose sum is far from 1, one of the smallest masses there are, where a draw that
 *  is off by one is another token, and one of no mass, though its values are above 0. */
static double prob_of(trial_case *c, int64_t row, int64_t i) {
    const double normal = qni_random_normal(&c->base.random), vocab = (double)c->shape->vocab;
    switch (row % 10) {
    case 1:
        return fmin(1, fabs(rint(4 * normal)) / vocab / 4);
    case 2:
        return i == c->shape->vocab / 3;
    case 3:
        return ldexp(1 + ldexp((double)(i * 7 % 4099), -23), -12);
    case 4:
        return i == c->shape->vocab / 2 ? -0.5 : 0.5 / vocab;
    case 5:
        return i % 2 ? 0.0 : -0.0;
    case 6:
        return ldexp(fabs(normal) / (1 + fabs(normal)), i % 7 ? -60 : -1);
    case 7:
        return ldexp(fmin(1, exp(2 * normal) / 8), -(int)(i % 20));
    case 8:
        return i % 3 ? 0 : ldexp(1, -QK_SAMPLING_POINT);
    case 9:
        return ldexp(1, -102);
    default:
        return fmin(1, exp(normal) / 1.6 / vocab);
    }
}

static void fill_rows(trial_case *c, qni_area *a, int64_t rows, int64_t stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c->shape->vocab; i++) {
            const double v = c->form->is_logits ? logit_of(c, r, i) : prob_of(c, r, i);
            if (a->dtype == QNI_F32 || a->dtype == QNI_F16 || a->dtype == QNI_BF16)
                qni_put(a->dtype, qni_area_host(a), r * stride + i, v);
            else if (a->dtype == QNI_I32)
                ((int32_t *)qni_area_host(a))[r * stride + i] = i % 5 == 1 ? (int32_t)(i % 3) : 0;
            else
                ((uint8_t *)qni_area_host(a))[r * stride + i] = i % 7 == 3;
        }
}

/** Returns entry b of a vector of f32; row 5's is out of range. */
static float number_of(const trial_case *c, int which, int64_t b) {
    if (c->form->what == QK_SAMPLING_PENALTIES)
        return which == FIRST ? 1.0f + 0.1f * (float)b : 0.3f * (float)b - 0.5f;
    if (which == FIRST)
        return b % 8 == 5 ? 0.0f : 0.4f + 0.3f * (float)(b % 5);
    if (which == FIRST + 1)
        return b == 7 ? 1.5f : b % 3 == 2 ? 1.0f : 0.3f + 0.2f * (float)(b % 3);
    return b % 4 ? 0.0f : 0.05f;
}

/** Makes the targets of each third chain half of its drafts: nowhere do they have more. */
static void halve_targets(trial_case *c) {
    const int64_t vocab = c->shape->vocab, n = c->form->n;
    const float *draft = n ? qni_area_host(&c->base.areas[X]) : nullptr;
    float *target = qni_area_host(&c->base.areas[TARGET]);
    for (int64_t b = 1; b < c->batch; b += 3)
        for (int64_t i = 0; i < n * vocab; i++)
            target[b * (n + 1) * vocab + i] = draft[b * n * vocab + i] / 2;
}

static void fill(void *context, int which) {
    trial_case *c = context;
    qni_area *a = &c->base.areas[which];
    void *host = qni_area_host(a);
    if (which >= OUT) {
        for (int64_t i = 0; which >= ACCEPTED && i < a->count; i++)
            ((int32_t *)host)[i] = (int32_t)(5 * i);
    } else if (which == X || which == COUNTS || which == IN_PROMPT) {
        const int64_t dense = dense_count(c, which);
        fill_rows(c, a, dense ? dense / c->shape->vocab : c->shape->rows, stride_of(c));
    } else if (which == TARGET) {
        fill_rows(c, a, a->count / c->shape->vocab, c->shape->vocab);
        halve_targets(c);
    } else {
        for (int64_t i = 0; i < a->count; i++)
            if (which >= FIRST && which <= THIRD)
                ((float *)host)[i] = number_of(c, which, i);
            else if (which == TOP_KS)
                ((int32_t *)host)[i] = i == 6 ? 0 : (int32_t)(i % 2 ? 1 << 30 : 1 + 9 * i);
            else if (which == IDS)
                ((int32_t *)host)[i] =
                    i == 2 ? -1
                           : (int32_t)(i * 7 + 3) %
                                 (int32_t)(c->form->n ? c->shape->vocab : c->shape->rows);
            else
                ((int64_t *)host)[i] = (int64_t)(0x9E3779B97F4A7C15ULL * (uint64_t)(i + 1));
    }
}

static qk_sampling_random random_of(const qni_area *a, bool on_host) {
    return (qk_sampling_random){.seeds = qni_area_data(&a[SEEDS], on_host),
                                .offsets = qni_area_data(&a[OFFSETS], on_host),
                                .seed = 1234567,
                                .offset = 0xFFFFFFFFFFULL,
                                .seed_step = 1};
}

static void place_rows(const trial_case *c, const qni_area *a, bool on_host, qk_sampling_args *g) {
    const form *f = c->form;
    *g = (qk_sampling_args){.x = qni_area_data(&a[X], on_host),
                            .out = qni_area_data(&a[OUT], on_host),
                            .valid = qni_area_data(&a[VALID], on_host),
                            .indices = qni_area_data(&a[IDS], on_host),
                            .temperatures = qni_area_data(&a[FIRST], on_host),
                            .top_ps = qni_area_data(&a[FIRST + 1], on_host),
                            .min_ps = qni_area_data(&a[THIRD], on_host),
                            .top_ks = qni_area_data(&a[TOP_KS], on_host),
                            .random = random_of(a, on_host),
                            .x_row = stride_of(c),
                            .out_row = stride_of(c),
                            .temperature = f->temperature,
                            .top_p = f->top_p > 0 ? f->top_p : 1,
                            .min_p = f->min_p,
                            .top_k = f->top_k ? f->top_k : (uint32_t)c->shape->vocab,
                            .batch = (uint32_t)c->batch,
                            .vocab = (uint32_t)c->shape->vocab,
                            .rows = (uint32_t)c->shape->rows,
                            .what = f->what,
                            .dtype = (uint32_t)c->dtype,
                            .is_logits = f->is_logits,
                            .is_joint = f->is_joint};
}

static void place_chain(const trial_case *c, const qni_area *a, bool on_host, qk_chain_args *g) {
    *g = (qk_chain_args){.draft = qni_area_data(&a[X], on_host),
                         .target = qni_area_data(&a[TARGET], on_host),
                         .ids = qni_area_data(&a[IDS], on_host),
                         .out = qni_area_data(&a[OUT], on_host),
                         .accepted = qni_area_data(&a[ACCEPTED], on_host),
                         .sent = qni_area_data(&a[SENT], on_host),
                         .random = random_of(a, on_host),
                         .batch = (uint32_t)c->batch,
                         .n = c->form->n,
                         .vocab = (uint32_t)c->shape->vocab};
}

static void place_penalties(const trial_case *c, const qni_area *a, bool on_host,
                            qk_penalty_args *g) {
    const int64_t stride = stride_of(c);
    *g = (qk_penalty_args){.x = qni_area_data(&a[X], on_host),
                           .out = qni_area_data(&a[OUT], on_host),
                           .counts = qni_area_data(&a[COUNTS], on_host),
                           .in_prompt = qni_area_data(&a[IN_PROMPT], on_host),
                           .repetitions = qni_area_data(&a[FIRST], on_host),
                           .presences = qni_area_data(&a[FIRST + 1], on_host),
                           .frequencies = qni_area_data(&a[THIRD], on_host),
                           .x_row = stride,
                           .out_row = stride,
                           .counts_row = stride,
                           .prompt_row = stride,
                           .repetition = 1.2f,
                           .presence = 0.5f,
                           .frequency = -0.25f,
                           .batch = (uint32_t)c->batch,
                           .vocab = (uint32_t)c->shape->vocab,
                           .dtype = (uint32_t)c->dtype};
}

static const void *place(void *context, bool on_host) {
    trial_case *c = context;
    c->problem.what = c->form->what;
    if (c->form->what == QK_SAMPLING_CHAIN)
        place_chain(c, c->base.areas, on_host, &c->problem.chain);
    else if (c->form->what == QK_SAMPLING_PENALTIES)
        place_penalties(c, c->base.areas, on_host, &c->problem.penalties);
    else
        place_rows(c, c->base.areas, on_host, &c->problem.rows);
    return &c->problem;
}

// ---- expected results

/** Returns the problem with its results in memory that the definition may write. */
static qni_sampling_problem draft_of(trial_case *c) {
    qni_area *a = c->base.areas;
    qni_sampling_problem p = c->problem;
    void *const out = qni_area_draft(&a[OUT]);
    if (p.what == QK_SAMPLING_CHAIN) {
        p.chain.out = out;
        p.chain.accepted = qni_area_draft(&a[ACCEPTED]);
        p.chain.sent = qni_area_draft(&a[SENT]);
    } else if (p.what == QK_SAMPLING_PENALTIES) {
        p.penalties.out = out;
    } else {
        p.rows.out = out;
        p.rows.valid = has_area(c, VALID) ? qni_area_draft(&a[VALID]) : nullptr;
    }
    return p;
}

static void expect_draft(trial_case *c, int which) {
    qni_area *a = &c->base.areas[which];
    const uint8_t *draft = a->got + a->first;
    for (int64_t r = 0; has_area(c, which) && r < a->rows; r++)
        for (int64_t i = r * a->stride; i < r * a->stride + a->row; i++)
            qni_area_expect(a, i, qni_get(a->dtype, draft, i), 0);
}

static void expect(void *context, void *scratch) {
    trial_case *c = context;
    const qni_sampling_problem p = draft_of(c);
    for (int64_t b = 0; b < c->batch; b++)
        qni_sampling_ref(&p, b, scratch);
    for (int which = OUT; which <= SENT; which++)
        expect_draft(c, which);
}

static const qni_case_kind case_kind = {area_names, NUM_AREAS, extent_of, fill, place, expect};

static qn_status try_one(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype) {
    trial_case c = {.base = {&case_kind, &qni_op_sampling,
                             .scratch_bytes = qni_sampling_scratch_bytes(s->vocab)},
                    .form = f,
                    .shape = s,
                    .dtype = f->what == QK_SAMPLING_CHAIN ? QNI_F32 : dtype,
                    .batch = f->has_indices ? s->rows + 2 : s->rows};
    c.base.random = qni_trial_seed(run) + (uint64_t)(f - forms) * 1000 + (uint64_t)(s - shapes);
    snprintf(c.base.text, sizeof c.base.text, "%s [%ld, %ld] gap=%ld offset=%ld %s", f->name,
             (long)s->rows, (long)s->vocab, (long)s->gap, (long)s->offset, qni_dtype_name(c.dtype));
    return qni_case_try(run, &c.base);
}

// ---- rows in batches

/** Makes a batch. context is the case, whose problem has all but pointers and rows. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    trial_case *c = context;
    qk_sampling_args *g = &c->problem.rows;
    g->batch = g->rows = (uint32_t)rows;
    g->x = data[0];
    g->out = data[1];
    g->random = (qk_sampling_random){.seeds = data[2], .seed_step = 1};
    return &c->problem;
}

static qn_status try_batches(qni_trial_run *run, const form *f, const shape *s, qni_dtype dtype) {
    trial_case c = {.form = f, .shape = s, .dtype = dtype};
    place(&c, false);
    const qni_batch_tensor tensors[] = {
        {.name = "x", .dtype = dtype, .width = s->vocab},
        {.name = "out",
         .dtype = dtype_of(&c, OUT),
         .width = has_tokens(&c) ? 1 : s->vocab,
         .is_written = true},
        {.name = "seeds", .dtype = QNI_I32, .width = 2}}; // two words each
    snprintf(c.base.text, sizeof c.base.text, "%s of batches, vocab %ld, %s", f->name,
             (long)s->vocab, qni_dtype_name(dtype));
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_sampling, c.base.text, tensors, 3, make_batch, &c});
}

/** Tries functions of logits without vectors of their own, each at both widths or, quickly, at one.
 */
static qn_status try_all_batches(qni_trial_run *run) {
    static const shape widths[] = {{1, 1000, 0, 0}, {1, 37, 0, 0}};
    const bool quick = qni_trial_is_quick(run);
    qn_status st = QN_OK;
    for (int f = 0; f < NUM_FORMS; f++)
        if (forms[f].is_logits && forms[f].what < QK_SAMPLING_CHAIN && !forms[f].has_vectors)
            for (int w = quick ? f % 2 : 0; st == QN_OK && w < (quick ? f % 2 + 1 : 2); w++)
                st = try_batches(run, &forms[f], &widths[w], (qni_dtype)((f + w) % 3));
    return st;
}

/** Returns whether a problem is due: long rows take long, chains have no gaps and one dtype. */
static qni_due is_due(const qni_walk *w) {
    const form *f = &forms[w->form];
    if (f->what == QK_SAMPLING_CHAIN && (w->type != QNI_F32 || shapes[w->shape].gap != 0))
        return QNI_DUE_NEVER;
    return qni_walk_by_gap(w, shapes[w->shape].gap);
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    (void)op; // the family has one op
    const bool quick = qni_trial_is_quick(run);
    qni_walk w = {.forms = NUM_FORMS,
                  .shapes = NUM_SHAPES - quick, // the last takes long
                  .types = 3,                   // dtypes
                  .thinning = quick ? 5 : 1,
                  .is_due = is_due};
    qn_status st = QN_OK;
    while (st == QN_OK && qni_walk_next(&w))
        st = try_one(run, &forms[w.form], &shapes[w.shape], (qni_dtype)w.type);
    return st == QN_OK ? try_all_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_sampling, nullptr};
const qni_family qni_family_sampling = {"sampling", ops, try_op};
