// SPDX-License-Identifier: Apache-2.0
// The check problems of scales' layouts. Everything is compared as 32-bit words, so that one wrong
// bit is an error.
#include "../../check/case.h"
#include "../shared/round.h"
#include "layout_check.h"
#include "scales.h"

#include <string.h>

/** What scales and results are: f32 or packed words. */
typedef enum form { COPY, ROUND, PACK, ROUND_AND_PACK, UNPACK, REPACK, NUM_FORMS } form;
static const char *const form_names[] = {"f32",       "f32 up",   "packed",
                                         "packed up", "unpacked", "words"};

typedef struct shape {
    int64_t groups, rows, cols, block_rows;
    bool is_mn_major_in, is_k_major_out; // else as DeepGEMM's tensors are
    int64_t offset;                      // of in and out from a multiple of 256 bytes
    bool is_far;                         // rows of in and columns of out
} shape;
static const shape shapes[] = {
    {1, 1, 1, 1, false, false, 0, false},     {1, 5, 3, 1, true, false, 1, false},
    {1, 257, 56, 1, false, false, 0, false},  {2, 129, 57, 1, false, false, 3, false},
    {4, 130, 4, 128, false, false, 0, false}, {1, 300, 9, 128, true, true, 1, false},
    {3, 70, 130, 3, false, true, 0, false},   {1, 1030, 7, 1, true, false, 0, false},
    {70000, 1, 2, 1, false, false, 0, false}, {1, 2, 20003, 1, false, false, 0, false},
    {1, 3, 12, 1, false, false, 0, true},
};
/** How rows are split into groups: the shape, the groups, and the alignment of their begins. */
static const struct {
    int shape, count, alignment;
    int32_t ends[4];
} splits[] = {{2, 4, 128, {0, 100, 131, 250}}, {5, 3, 32, {7, 40, 64}}, {7, 2, 128, {300, 900}}};

enum { IN, OUT, LAYOUT, NUM_AREAS };
static const char *const area_names[] = {"scale", "out", "group_layout"};

typedef struct trial_case {
    qni_case base; // first
    union {
        qni_scales_problem rows;
        qni_k_scales_problem k;
    } problem;
    const struct k_shape *shape; // of k
    qni_extent extents[NUM_AREAS];
    const uint32_t *fixed; // scales; null: random ones
    const int32_t *layout; // what group_layout holds
} trial_case;

// ---- scales, and their conversion

/** Returns the bits of a random scale: a power of two, another number, or one at an end of the
 *  range. Scales that are packed without rounding may be anything. */
static uint32_t random_scale(uint64_t *random) {
    static const uint32_t special[] = {0,          1,          0x007FFFFF, 0x00800000,
                                       0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x7F000000,
                                       0x7F000001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000};
    const uint32_t r = qni_random(random);
    if (r % 5 == 0)
        return special[r / 5 % (sizeof special / sizeof *special)];
    return r % 5 < 3 ? qni_random(random) & 0x7F800000 : qni_random(random) & 0x7FFFFFFF;
}

static uint32_t rounded(uint32_t bits) {
    return qni_ue8m0_up(__builtin_bit_cast(float, bits)) << 23;
}

static uint32_t exponent(uint32_t bits) {
    return bits / 0x800000 % 256;
}

static uint32_t word_at(const trial_case *c, int64_t i) {
    return ((const uint32_t *)qni_area_host(&c->base.areas[IN]))[i];
}

static void expect(trial_case *c, int64_t at, uint32_t word) {
    qni_area_expect(&c->base.areas[OUT], at, (double)(int32_t)word, 0);
}

// ---- areas

static qni_extent extent_of(const void *context, int which) {
    const trial_case *c = context;
    return c->extents[which];
}

static void fill(void *context, int which) {
    trial_case *c = context;
    const qni_extent *e = &c->extents[which];
    uint32_t *words = qni_area_host(&c->base.areas[which]);
    for (int64_t i = 0; which == IN && i < e->rows * e->row; i++)
        words[i / e->row * e->stride + i % e->row] =
            c->fixed ? c->fixed[i] : random_scale(&c->base.random);
    if (which == LAYOUT)
        memcpy(words, c->layout, (size_t)e->row * sizeof *words);
}

// ---- rows

static bool is_row_of_group(const qni_scales_problem *p, int64_t row) {
    for (int64_t i = 0, begin = 0; i < p->num_ends; i++) {
        if (row >= begin && row < p->ends[i])
            return true;
        begin = qni_round_up(p->ends[i], p->alignment);
    }
    return p->num_ends == 0;
}

/** Returns scale `col` of a row, as f32 bits. */
static uint32_t scale_at(const trial_case *c, int64_t group, int64_t row, int64_t col) {
    const qni_scales_problem *p = &c->problem.rows;
    const int64_t at = group * p->in_group + row / p->block_rows * p->in_row;
    if (col >= p->cols)
        return 0;
    if (p->is_packed_in)
        return (word_at(c, at + col / 4 * p->in_col) >> col % 4 * 8 & 0xFF) * 0x800000;
    const uint32_t bits = word_at(c, at + col * p->in_col);
    return p->rounds ? rounded(bits) : bits;
}

static void expect_row(trial_case *c, int64_t group, int64_t row) {
    const qni_scales_problem *p = &c->problem.rows;
    const int64_t at = group * p->out_group + row * p->out_row;
    for (int64_t col = 0; !p->is_packed_out && col < p->cols; col++)
        expect(c, at + col * p->out_col, scale_at(c, group, row, col));
    for (int64_t col = 0; p->is_packed_out && col < p->cols; col += 4) {
        uint32_t word = 0;
        for (int64_t i = 3; i >= 0; i--)
            word = word * 256 + exponent(scale_at(c, group, row, col + i));
        expect(c, at + col / 4 * p->out_col, word);
    }
}

/** Lays out [groups, rows, words]: MN-major with aligned columns, or row-major with a gap
 *  behind each row; or far apart. */
static qni_extent lay_out(const shape *s, int64_t rows, int64_t words, bool is_k_major,
                          int64_t *group, int64_t *row, int64_t *col) {
    const int64_t near = is_k_major ? words + 1 : qn_tma_aligned_size(rows, 4);
    const qni_extent e = {.dtype = QNI_I32,
                          .rows = s->groups * (is_k_major ? rows : words),
                          .row = is_k_major ? words : rows,
                          .stride = s->is_far ? qni_far : near,
                          .offset = s->offset};
    *row = is_k_major ? e.stride : 1;
    *col = is_k_major ? 1 : e.stride;
    *group = e.rows / s->groups * e.stride;
    return e;
}

static qni_scales_problem make_problem(const shape *s, form with) {
    const bool is_packed_in = with == UNPACK || with == REPACK;
    const bool is_packed_out = with == PACK || with == ROUND_AND_PACK || with == REPACK;
    const int64_t cols = with == REPACK ? qni_round_up(s->cols, 4) : s->cols;
    return (qni_scales_problem){.groups = (uint32_t)s->groups,
                                .rows = (uint32_t)s->rows,
                                .cols = (uint32_t)cols,
                                .quads = (uint32_t)qni_pieces(cols, 4),
                                .block_rows = (uint32_t)s->block_rows,
                                .alignment = 128,
                                .is_packed_in = is_packed_in,
                                .is_packed_out = is_packed_out,
                                .rounds = with == ROUND || with == ROUND_AND_PACK};
}

/** Makes a problem of all rows. */
static void make_rows(trial_case *c, const shape *s, form with) {
    qni_scales_problem *p = &c->problem.rows;
    *p = make_problem(s, with);
    c->extents[IN] =
        lay_out(s, qni_pieces(s->rows, s->block_rows), p->is_packed_in ? p->quads : p->cols,
                !s->is_mn_major_in, &p->in_group, &p->in_row, &p->in_col);
    c->extents[OUT] = lay_out(s, s->rows, p->is_packed_out ? p->quads : p->cols, s->is_k_major_out,
                              &p->out_group, &p->out_row, &p->out_col);
}

static const void *place_rows(void *context, bool on_host) {
    trial_case *c = context;
    qni_scales_problem *p = &c->problem.rows;
    p->in = qni_area_data(&c->base.areas[IN], on_host);
    p->out = qni_area_data(&c->base.areas[OUT], on_host);
    p->ends = qni_area_data(&c->base.areas[LAYOUT], on_host);
    return p;
}

static void expect_rows(void *context, void *) {
    trial_case *c = context;
    const qni_scales_problem *p = &c->problem.rows;
    for (int64_t i = 0; i < (int64_t)p->groups * p->rows; i++)
        if (is_row_of_group(p, i))
            expect_row(c, i / p->rows, i % p->rows);
}

static const qni_case_kind rows_kind = {area_names, NUM_AREAS,  extent_of,
                                        fill,       place_rows, expect_rows};

/** Tries a shape with scales by rows. split < 0: all rows count. */
static qn_status try_rows(qni_trial_run *run, const shape *s, form with, int split) {
    trial_case c = {.base = {.kind = &rows_kind, .op = &qni_op_scales}};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - shapes);
    make_rows(&c, s, with);
    if (split >= 0) {
        c.layout = splits[split].ends;
        c.extents[LAYOUT] = qni_dense(QNI_I32, splits[split].count);
        c.problem.rows.num_ends = (uint32_t)splits[split].count;
        c.problem.rows.alignment = (uint32_t)splits[split].alignment;
    }
    snprintf(c.base.text, sizeof c.base.text, "[%ld, %ld, %ld] %s %s->%s block_rows=%ld%s%s",
             (long)s->groups, (long)s->rows, (long)s->cols, form_names[with],
             s->is_mn_major_in ? "MN" : "K", s->is_k_major_out ? "K" : "MN", (long)s->block_rows,
             split < 0 ? "" : " by ends", s->is_far ? " far" : "");
    return qni_case_try(run, &c.base);
}

/** Zero, denormals, 1 and its neighbours, the largest number, infinity and NaN, and the exponents
 *  of the powers of two that they become. */
static const uint32_t vector_bits[] = {0,          1,          0x007FFFFF, 0x00800000,
                                       0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7EFFFFFF,
                                       0x7F000001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000};
static const uint8_t vector_exponents[] = {1, 1, 1, 1, 127, 127, 128, 254, 254, 254, 254, 254};
enum { VECTOR = sizeof vector_bits / sizeof *vector_bits };

static void expect_vector(void *context, void *) {
    trial_case *c = context;
    const qni_scales_problem *p = &c->problem.rows;
    const uint8_t *e = vector_exponents;
    for (int i = 0; i < VECTOR; i++)
        if (!p->is_packed_out)
            expect(c, i * p->out_col, (uint32_t)e[i] << 23);
        else if (i % 4 == 0)
            expect(c, i / 4 * p->out_col,
                   e[i] + e[i + 1] * 0x100u + e[i + 2] * 0x10000u + e[i + 3] * 0x1000000u);
}

static const qni_case_kind vector_kind = {area_names, NUM_AREAS,  extent_of,
                                          fill,       place_rows, expect_vector};

static qn_status try_vector(qni_trial_run *run, bool packs) {
    trial_case c = {.base = {.kind = &vector_kind, .op = &qni_op_scales}, .fixed = vector_bits};
    const shape s = {1, 1, VECTOR, 1, false, false, 0, false};
    make_rows(&c, &s, packs ? ROUND_AND_PACK : ROUND);
    snprintf(c.base.text, sizeof c.base.text, "fixed vector %s", packs ? "packed" : "f32");
    return qni_case_try(run, &c.base);
}

static qn_status try_all_rows(qni_trial_run *run) {
    const int num_shapes = sizeof shapes / sizeof *shapes;
    qn_status st = QN_OK;
    int turn = 0;
    for (int i = 0; i < num_shapes; i++)
        for (int with = 0; st == QN_OK && with < NUM_FORMS; with++)
            if (shapes[i].is_far ? with == PACK : !qni_trial_is_quick(run) || turn++ % 3 == i % 3)
                st = try_rows(run, &shapes[i], (form)with, -1);
    for (int packs = 0; st == QN_OK && packs < 2; packs++)
        st = try_vector(run, packs != 0);
    for (int i = 0; i < (int)(sizeof splits / sizeof *splits); i++)
        for (int with = COPY; st == QN_OK && with <= PACK; with += PACK)
            st = try_rows(run, &shapes[splits[i].shape], (form)with, i);
    return st;
}

// ---- groups along k

enum { MAX_GROUPS = 140 };

typedef struct k_shape {
    int64_t rows, gran_k, alignment;
    bool is_by_ends, rounds;
    int64_t spare; // words behind those of the last group
    int groups;
    int32_t k[6]; // of each group; they repeat
} k_shape;
static const k_shape k_shapes[] = {
    {4, 128, 128, false, false, 0, 1, {128}},
    {260, 128, 128, false, true, 0, 4, {512, 0, 896, 128}},
    {129, 32, 128, false, false, 3, 5, {128, 384, 0, 32, 640}},
    {64, 128, 128, true, false, 0, 6, {100, 0, 512, 129, 1, 700}},
    {257, 32, 256, true, true, 2, 4, {31, 800, 0, 33}},
    {8, 32, 128, false, false, 1, MAX_GROUPS, {96, 0, 160, 32, 64, 128}},
};

static int32_t k_of(const k_shape *s, int group) {
    return s->k[group % 6];
}

/** Makes group_layout, and counts its scales and words. */
static void make_layout(const k_shape *s, int32_t *layout, int64_t *scales, int64_t *words) {
    int64_t begin = 0;
    *scales = *words = 0;
    for (int i = 0; i < s->groups; i++) {
        layout[i] = s->is_by_ends ? (int32_t)begin + k_of(s, i) : k_of(s, i);
        begin = qni_round_up(begin + k_of(s, i), s->alignment);
        *scales += qni_pieces(k_of(s, i), s->gran_k);
        *words += qni_pieces(qni_pieces(k_of(s, i), s->gran_k), 4);
    }
}

static void expect_group(trial_case *c, const k_shape *s, int group, int64_t *scale,
                         int64_t *word) {
    const qni_k_scales_problem *p = &c->problem.k;
    const int64_t end = *scale + qni_pieces(k_of(s, group), s->gran_k);
    for (; *scale < end; *scale += 4, ++*word)
        for (int64_t row = 0; row < s->rows; row++) {
            uint32_t bytes = 0;
            for (int64_t i = 0; i < 4 && *scale + i < end; i++) {
                const uint32_t bits = word_at(c, (*scale + i) * p->in_scale + row * p->in_row);
                bytes |= exponent(s->rounds ? rounded(bits) : bits) << 8 * i;
            }
            expect(c, *word * p->out_word + row * p->out_row, bytes);
        }
    *scale = end;
}

static const void *place_k(void *context, bool on_host) {
    trial_case *c = context;
    qni_k_scales_problem *p = &c->problem.k;
    p->in = qni_area_data(&c->base.areas[IN], on_host);
    p->out = qni_area_data(&c->base.areas[OUT], on_host);
    p->layout = qni_area_data(&c->base.areas[LAYOUT], on_host);
    return p;
}

static void expect_k(void *context, void *) {
    trial_case *c = context;
    const k_shape *s = c->shape;
    const qni_k_scales_problem *p = &c->problem.k;
    int64_t scale = 0, word = 0;
    for (int i = 0; i < s->groups; i++)
        expect_group(c, s, i, &scale, &word);
    for (; word < p->words; word++)
        for (int64_t row = 0; row < s->rows; row++)
            expect(c, word * p->out_word + row * p->out_row, 0);
}

static const qni_case_kind k_kind = {area_names, NUM_AREAS, extent_of, fill, place_k, expect_k};

static qn_status try_k_grouped(qni_trial_run *run, const k_shape *s) {
    int32_t layout[MAX_GROUPS];
    int64_t scales, words;
    make_layout(s, layout, &scales, &words);
    words += s->spare;
    trial_case c = {.base = {.kind = &k_kind, .op = &qni_op_scales_k_grouped},
                    .shape = s,
                    .extents = {[IN] = {QNI_I32, scales, s->rows, s->rows + 1, 1},
                                [OUT] = {QNI_I32, words, s->rows, s->rows + 2, 0},
                                [LAYOUT] = qni_dense(QNI_I32, s->groups)},
                    .layout = layout,
                    .problem.k = {.in_scale = s->rows + 1,
                                  .in_row = 1,
                                  .out_word = s->rows + 2,
                                  .out_row = 1,
                                  .scales = (uint32_t)scales,
                                  .words = (uint32_t)words,
                                  .rows = (uint32_t)s->rows,
                                  .groups = (uint32_t)s->groups,
                                  .gran_k = (uint32_t)s->gran_k,
                                  .alignment = (uint32_t)s->alignment,
                                  .is_by_ends = s->is_by_ends,
                                  .rounds = s->rounds}};
    c.base.random = qni_trial_seed(run) + (uint64_t)(s - k_shapes);
    snprintf(c.base.text, sizeof c.base.text, "[%ld, %ld] in %d groups%s gran_k=%ld%s",
             (long)scales, (long)s->rows, s->groups, s->is_by_ends ? " by ends" : "",
             (long)s->gran_k, s->rounds ? " up" : "");
    return qni_case_try(run, &c.base);
}

qn_status qni_scales_try(qni_trial_run *run, const qni_op *op) {
    qn_status st = QN_OK;
    if (op == &qni_op_scales)
        return try_all_rows(run);
    for (int i = 0; st == QN_OK && i < (int)(sizeof k_shapes / sizeof *k_shapes); i++)
        st = try_k_grouped(run, &k_shapes[i]);
    return st;
}
