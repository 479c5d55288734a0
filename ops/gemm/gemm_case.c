// SPDX-License-Identifier: Apache-2.0
// Makes problems for the checks: matrices with guards and gaps full of NaN, group layouts, and the
// right answer.
#include "gemm_case.h"

#include <stdlib.h>
#include <string.h>

// ---- random numbers

static double random_unit(uint64_t *state) {
    return (double)qni_random(state) * 0x1p-32;
}

static double random_sign(uint64_t *state) {
    return qni_random(state) >> 31 ? -1 : 1;
}

/** Returns where the random numbers of matrix number i begin, so that its elements do not depend on
 *  the sizes of other matrices. */
static uint64_t random_state(uint64_t seed, uint64_t i) {
    return (seed * 8 + i + 1) * UINT64_C(0xD1342543DE82EF95);
}

// ---- matrices

static int64_t matrix_at(const qni_gemm_matrix *x, int64_t g, int64_t row, int64_t column) {
    return g * x->strides[0] + row * x->strides[1] + column * x->strides[2];
}

static void matrix_set(qni_gemm_matrix *x, int64_t at, double value) {
    qni_put(x->area.dtype, qni_area_host(&x->area), at, value);
}

static double matrix_get(const qni_gemm_matrix *x, int64_t at) {
    return qni_get(x->area.dtype, qni_area_host(&x->area), at);
}

/** How matrix_create lays a matrix out. */
typedef struct form {
    const char *name;
    int rank;
    int64_t groups, rows, columns;
    qni_dtype dtype;
    bool transposed, strided, takes_turns;
} form;

static qn_status matrix_create(qni_gemm_matrix *x, const qn_stream *stream, form f) {
    const int64_t inner = f.transposed ? f.rows : f.columns,
                  outer = f.transposed ? f.columns : f.rows;
    const int64_t width = inner + (f.strided ? 5 : 0), turns = f.takes_turns ? f.groups : 1;
    const int64_t line = width * turns, slab = line * outer + (f.strided ? 3 : 0);
    memcpy(x->shape, (int64_t[]){f.groups, f.rows, f.columns}, sizeof x->shape);
    memcpy(
        x->strides,
        (int64_t[]){f.takes_turns ? width : slab, f.transposed ? 1 : line, f.transposed ? line : 1},
        sizeof x->strides);
    QN_TRY(qni_area_create(&x->area, f.name, stream->device, f.dtype, slab * f.groups / turns,
                           f.strided ? 3 : 0));
    x->t = (DLTensor){.data = x->area.device,
                      .device = stream->device->id,
                      .ndim = f.rank,
                      .dtype = qni_dl_dtype(f.dtype),
                      .shape = x->shape + 3 - f.rank,
                      .strides = x->strides + 3 - f.rank,
                      .byte_offset = (uint64_t)x->area.first};
    return QN_OK;
}

// ---- what they hold

static double largest(qni_dtype dtype) {
    return qni_is_fp8(dtype) ? qni_max(dtype) : 1e18;
}

static double smallest(qni_dtype dtype) {
    return qni_is_fp8(dtype) ? qni_spacing(dtype, 0) : 0x1p-130;
}

static double any_code(qni_dtype dtype, uint64_t *state) {
    for (;;) {
        const uint32_t bits = qni_random(state);
        const uint8_t code = (uint8_t)(bits >> 24);
        const double value = qni_is_fp8(dtype)
                                 ? qni_get(dtype, &code, 0)
                                 : ldexp(qni_random_normal(state), (int)(bits % 64) - 32);
        if (!isnan(value))
            return value;
    }
}

/** Returns whether the K-block is one of the two that cancel. */
static bool is_large_block(const qni_gemm_spec *spec, int64_t kb) {
    return kb == 0 || kb == spec->k / 128 - 1;
}

/** Returns a random value for an element at k of b if is_b, else of a. */
static double sample(const qni_gemm_spec *spec, bool is_b, int64_t k, uint64_t *state) {
    qni_dtype dtype = is_b ? spec->dtype_b : spec->dtype_a;
    const double normal = qni_random_normal(state) * (qni_is_fp8(dtype) ? 64 : 1);
    switch (spec->fill) {
    case QNI_FILL_POWERS:
        return ldexp(random_sign(state), (int)(qni_random(state) >> 30));
    case QNI_FILL_EQUAL:
        return 1.5;
    case QNI_FILL_LARGE:
        return largest(dtype) * random_sign(state);
    case QNI_FILL_TINY:
        return is_b ? normal : smallest(dtype) * (1 + qni_random(state) % 7);
    case QNI_FILL_SPARSE:
        return k % 256 == 5 ? largest(dtype) : 0;
    case QNI_FILL_NEGATIVE_ZERO:
        return is_b && k % 3 == 0 ? -0.0 : normal;
    case QNI_FILL_ANY:
        return any_code(dtype, state);
    case QNI_FILL_CANCEL:
        return is_large_block(spec, k / 128) ? normal : normal / 256;
    default:
        return normal;
    }
}

/** Makes a row's last whole K-block equal its first one, in a with the sign changed. */
static void cancel_row(qni_gemm_case *c, qni_gemm_matrix *x, bool is_b, int64_t g, int64_t row) {
    const int64_t last = (c->spec.k / 128 - 1) * 128;
    for (int64_t k = 0; k < 128 && last > 0; k++) {
        const double value = matrix_get(x, matrix_at(x, g, row, k));
        matrix_set(x, matrix_at(x, g, row, last + k), is_b ? value : -value);
    }
}

static void fill_operand(qni_gemm_case *c, qni_gemm_matrix *x, bool is_b, uint64_t *state) {
    for (int64_t g = 0; g < x->shape[0]; g++)
        for (int64_t row = 0; row < x->shape[1]; row++) {
            for (int64_t k = 0; k < x->shape[2]; k++)
                matrix_set(x, matrix_at(x, g, row, k), sample(&c->spec, is_b, k, state));
            if (c->spec.fill == QNI_FILL_CANCEL)
                cancel_row(c, x, is_b, g, row);
        }
    const int64_t k = is_b ? x->shape[2] - 1 : 0;
    const bool has_nan = c->spec.fill == QNI_FILL_NAN && (is_b || x->shape[1] > 1);
    if (has_nan && !qni_is_empty(&x->t))
        matrix_set(x, matrix_at(x, x->shape[0] / 2, x->shape[1] / 2, k), NAN);
}

static double sample_scale(const qni_gemm_spec *spec, int64_t kb, uint64_t *state) {
    const int power = (int)(qni_random(state) >> 29) - 4;
    switch (spec->fill) {
    case QNI_FILL_POWERS:
        return ldexp(1, power);
    case QNI_FILL_SPARSE:
        return kb % 2 ? 1e-4 / 448 : 1;
    case QNI_FILL_CANCEL:
        return is_large_block(spec, kb) ? 1.5 : 1 + random_unit(state);
    default:
        return ldexp(1 + random_unit(state), power - 6);
    }
}

static void fill_scale(qni_gemm_case *c, qni_gemm_matrix *x, uint64_t *state) {
    for (int64_t g = 0; g < x->shape[0]; g++)
        for (int64_t row = 0; row < x->shape[1]; row++)
            for (int64_t kb = 0; kb < x->shape[2]; kb++)
                matrix_set(x, matrix_at(x, g, row, kb), sample_scale(&c->spec, kb, state));
}

/** Fills c as weights are filled or, if sums are exact, with small whole numbers. */
static void fill_c(qni_gemm_case *c, uint64_t *state) {
    const bool is_exact = c->spec.fill == QNI_FILL_POWERS;
    for (int64_t row = 0; row < c->c.shape[1]; row++)
        for (int64_t n = 0; n < c->c.shape[2]; n++) {
            const double value = qni_random_normal(state) * 32;
            matrix_set(&c->c, matrix_at(&c->c, 0, row, n), is_exact ? rint(value) : value);
        }
}

/** Fills bias or gate. If sums are exact, a bias has small whole numbers and a gate powers of
 *  two. */
static void fill_vectors(const qni_gemm_spec *spec, qni_gemm_matrix *x, bool is_gate,
                         uint64_t *state) {
    const bool is_exact = spec->fill == QNI_FILL_POWERS;
    for (int64_t batch = 0; batch < x->shape[1]; batch++)
        for (int64_t n = 0; n < x->shape[2]; n++) {
            const double value = qni_random_normal(state) * (is_gate ? 1 : 4);
            const double whole = rint(value), power = ldexp(whole < 0 ? -1 : 1, (int)(n % 5) - 2);
            matrix_set(x, matrix_at(x, 0, batch, n), !is_exact ? value : is_gate ? power : whole);
        }
    if (spec->fill == QNI_FILL_NAN && x->area.owner)
        matrix_set(x, matrix_at(x, 0, x->shape[1] - 1, x->shape[2] / 3 + is_gate), NAN);
}

// ---- groups

static int64_t group_rows(const qni_gemm_spec *spec, int64_t g) {
    static const int64_t mixed[] = {0, 1, 127, 128, 129, 40};
    const bool is_masked = spec->grouping == QN_GEMM_GROUPED_MASKED;
    if (spec->rows == QNI_ROWS_NONE)
        return 0;
    if (spec->rows == QNI_ROWS_FULL)
        return spec->m;
    if (spec->rows == QNI_ROWS_FEW)
        return (g + 1) % 3;
    const int64_t masked[] = {0, spec->m > 0, spec->m, spec->m / 2};
    return is_masked ? masked[g % 4] : mixed[(g + spec->k) % 6];
}

static int64_t alignment_of(const qni_gemm_spec *spec) {
    return spec->m_alignment ? spec->m_alignment : 128;
}

/** Returns how many rows a and d have: the groups, padded to the alignment, then a tile that is
 *  nobody's. */
static int64_t count_rows(const qni_gemm_spec *spec) {
    int64_t m = 0;
    for (int64_t g = 0; g < spec->groups; g++)
        m += qni_round_up(group_rows(spec, g), alignment_of(spec));
    return m + alignment_of(spec);
}

static void fill_layout(qni_gemm_case *c) {
    const qni_gemm_spec *spec = &c->spec;
    int32_t *layout = qni_area_host(&c->layout.area);
    int64_t start = 0;
    if (spec->grouping == QN_GEMM_GROUPED_INDEX)
        memset(layout, 0xFF, (size_t)spec->m * sizeof *layout); // -1: nobody's
    for (int64_t g = 0; g < spec->groups; g++) {
        const int64_t rows = group_rows(spec, g);
        if (spec->grouping == QN_GEMM_GROUPED_INDEX)
            for (int64_t m = 0; m < rows; m++)
                layout[start + m] = (int32_t)g;
        else
            layout[g] = (int32_t)(spec->grouping == QN_GEMM_GROUPED_ENDS ? start + rows : rows);
        start += qni_round_up(rows, alignment_of(spec));
    }
}

// ---- the case

static int64_t d_columns(const qni_gemm_spec *s) {
    return s->activation == QN_GEMM_SILU_AND_MUL ? s->n / 2 : s->n;
}

static bool has_found_scales(const qni_gemm_spec *s) {
    return qni_is_fp8(s->dtype_d) && !s->has_given_scale;
}

static bool has_scales(qni_dtype dtype, qni_gemm_scales scales) {
    return scales == QNI_SCALES_BLOCKS ? qni_is_fp8(dtype) : scales != QNI_SCALES_NONE;
}

/** Returns the form of an operand's scales; `blocks` is their form by blocks. */
static form scales_form(qni_gemm_scales scales, form blocks, int64_t rows) {
    form f = blocks;
    if (scales == QNI_SCALES_LINES)
        f.rows = rows;
    if (scales == QNI_SCALES_BLOCKS || scales == QNI_SCALES_LINES)
        return f;
    f.transposed = false;
    f.rank = scales == QNI_SCALES_ROWS ? blocks.rank - 1 : 1;
    f.columns = scales == QNI_SCALES_ROWS ? rows : scales == QNI_SCALES_GROUPS ? blocks.groups : 1;
    f.rows = scales == QNI_SCALES_ROWS ? blocks.groups : 1;
    f.groups = 1;
    return f;
}

static qn_status create_scales(qni_gemm_case *c, qn_stream *stream, int rank, int rank_b,
                               int64_t slabs) {
    const qni_gemm_spec *s = &c->spec;
    const int64_t kb = qni_pieces(s->k, 128);
    const bool gaps = s->is_strided, turned = gaps || s->has_scale_columns;
    const form a = {"scale_a", rank, slabs, s->m, kb, QNI_F32, turned, gaps, false},
               b = {"scale_b", rank_b, s->groups, qni_pieces(s->n, 128), kb, QNI_F32,
                    false,     gaps,   false};
    QN_TRY(matrix_create(&c->scale_a, stream, scales_form(s->scales_a, a, s->m)));
    return matrix_create(&c->scale_b, stream, scales_form(s->scales_b, b, s->n));
}

static qn_status create_operands(qni_gemm_case *c, qn_stream *stream) {
    const qni_gemm_spec *s = &c->spec;
    const bool is_masked = s->grouping == QN_GEMM_GROUPED_MASKED,
               is_dense = s->grouping == QN_GEMM_DENSE;
    const int rank = is_masked ? 3 : 2, rank_b = is_dense ? 2 : 3;
    const int64_t slabs = is_masked ? s->groups : 1, columns = d_columns(s);
    const bool gaps = s->is_strided, turns = s->takes_turns;
    QN_TRY(matrix_create(
        &c->a, stream,
        (form){"a", rank, slabs, s->m, s->k, s->dtype_a, s->a_transposed, gaps, turns}));
    QN_TRY(matrix_create(
        &c->b, stream,
        (form){"b", rank_b, s->groups, s->n, s->k, s->dtype_b, s->b_transposed, gaps, turns}));
    QN_TRY(matrix_create(&c->d, stream,
                         (form){"d", rank, slabs, s->m, columns, s->dtype_d, false, gaps, turns}));
    QN_TRY(matrix_create(&c->c, stream,
                         (form){"c", 2, 1, s->m, columns, s->dtype_d, false, gaps, false}));
    QN_TRY(create_scales(c, stream, rank, rank_b, slabs));
    const qni_dtype vectors = s->has_f32_vectors ? QNI_F32 : QNI_BF16;
    if (s->has_bias)
        QN_TRY(matrix_create(&c->bias, stream,
                             (form){"bias", is_dense ? 1 : 2, 1, is_dense ? 1 : s->groups, s->n,
                                    vectors, false, gaps, false}));
    if (has_found_scales(s))
        QN_TRY(matrix_create(&c->scale_d, stream,
                             (form){"scale_d", rank, slabs, s->m, qni_pieces(columns, 128), QNI_F32,
                                    false, gaps, false}));
    if (s->has_given_scale)
        QN_TRY(matrix_create(&c->given_scale_d, stream,
                             (form){"given_scale_d", 1, 1, 1, 1, QNI_F32, false, false, false}));
    if (s->gate_batches)
        QN_TRY(matrix_create(&c->gate, stream,
                             (form){"gate", s->gate_batches > 1 ? 2 : 1, 1, s->gate_batches,
                                    columns, vectors, false, gaps, false}));
    const int64_t entries = s->grouping == QN_GEMM_GROUPED_INDEX ? s->m : s->groups;
    QN_TRY(matrix_create(&c->layout, stream,
                         (form){"layout", 1, 1, 1, entries, QNI_I32, false, false, false}));
    return QN_OK;
}

static qn_status fill_all(qni_gemm_case *c, qn_stream *stream, uint64_t seed) {
    uint64_t state[7];
    for (uint64_t i = 0; i < 7; i++)
        state[i] = random_state(seed, i);
    fill_operand(c, &c->a, false, &state[0]);
    fill_operand(c, &c->b, true, &state[1]);
    fill_scale(c, &c->scale_a, &state[2]);
    fill_scale(c, &c->scale_b, &state[3]);
    fill_c(c, &state[4]);
    fill_vectors(&c->spec, &c->bias, false, &state[5]);
    fill_vectors(&c->spec, &c->gate, true, &state[6]);
    if (c->spec.grouping != QN_GEMM_DENSE)
        fill_layout(c);
    if (c->spec.has_given_scale)
        matrix_set(&c->given_scale_d, 0, 0.37); // some results saturate
    if (c->spec.c_is_d)                         // they are laid out alike
        memcpy(c->d.area.before, c->c.area.before, (size_t)c->d.area.bytes);
    qni_gemm_matrix *all[] = {&c->a,      &c->b,    &c->c,    &c->scale_a,      &c->scale_b,
                              &c->layout, &c->bias, &c->gate, &c->given_scale_d};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->area.owner)
            QN_TRY(qni_area_reset(&all[i]->area, stream));
    return QN_OK;
}

static void set_args(qni_gemm_case *c) {
    const qni_gemm_spec *s = &c->spec;
    const bool is_masked = s->grouping == QN_GEMM_GROUPED_MASKED;
    c->args = (qn_gemm_args){
        .struct_size = sizeof c->args,
        .d = &c->d.t,
        .a = &c->a.t,
        .b = &c->b.t,
        .c = s->c_is_d   ? &c->d.t
             : s->adds_c ? &c->c.t
                         : nullptr,
        .scale_a = has_scales(s->dtype_a, s->scales_a) ? &c->scale_a.t : nullptr,
        .scale_b = has_scales(s->dtype_b, s->scales_b) ? &c->scale_b.t : nullptr,
        .group_layout = s->grouping != QN_GEMM_DENSE ? &c->layout.t : nullptr,
        .expected_m = !is_masked      ? 0
                      : s->expected_m ? s->expected_m
                      : s->m          ? s->m
                                      : 1,
        .m_alignment = s->m_alignment,
        .zero_padding = s->zero_padding,
        .bias = s->has_bias ? &c->bias.t : nullptr,
        .gate = s->gate_batches ? &c->gate.t : nullptr,
        .activation = s->activation,
        .scale_d = has_found_scales(s) ? &c->scale_d.t : nullptr,
        .given_scale_d = s->has_given_scale ? &c->given_scale_d.t : nullptr,
    };
}

/** Returns the problem with host pointers in place of the device's. */
static qni_gemm_problem on_host(const qni_gemm_case *c) {
    qni_gemm_problem host = c->problem;
    host.a = qni_area_host(&c->a.area);
    host.b = qni_area_host(&c->b.area);
    host.c = host.c ? qni_area_host(&c->c.area) : nullptr;
    host.c_row = c->c.strides[1];
    host.scale_a = host.scale_a ? qni_area_host(&c->scale_a.area) : nullptr;
    host.scale_b = host.scale_b ? qni_area_host(&c->scale_b.area) : nullptr;
    host.bias = host.bias ? qni_area_host(&c->bias.area) : nullptr;
    host.gate = host.gate ? qni_area_host(&c->gate.area) : nullptr;
    host.layout = host.layout ? qni_area_host(&c->layout.area) : nullptr;
    return host;
}

/** Expects a row of FP8, and its scales unless one is given. */
static void expect_codes(qni_gemm_case *c, int64_t slab, int64_t row, qni_exact exact) {
    const int64_t at = matrix_at(&c->d, slab, row, 0);
    if (c->spec.has_given_scale)
        qni_area_expect_codes(&c->d.area, at, exact, matrix_get(&c->given_scale_d, 0), 0);
    else
        qni_area_expect_found_scales(&c->scale_d.area, matrix_at(&c->scale_d, slab, row, 0), 1,
                                     &c->d.area, at, exact, QNI_GEMM_GROUP, 1e-10);
}

/** Expects the answer in rows that belong to a group. If sums are exact, so must the result be;
 *  else the smallest numbers may be off, as products below f32's range are. */
static void expect_rows(qni_gemm_case *c, const qni_gemm_problem *host, const double *want,
                        const double *bound) {
    const bool is_exact = c->spec.fill == QNI_FILL_POWERS && !c->spec.activation;
    const int64_t rows = c->spec.m, columns = c->d.shape[2];
    for (int64_t i = 0; i < c->d.shape[0] * rows; i++) {
        if (qni_gemm_row_group(host, i / rows, i % rows) == QNI_GEMM_ROW_UNTOUCHED)
            continue;
        if (qni_is_fp8(c->spec.dtype_d)) {
            expect_codes(c, i / rows, i % rows,
                         (qni_exact){want + i * columns, bound + i * columns, columns});
            continue;
        }
        for (int64_t n = 0; n < columns; n++)
            qni_area_expect(&c->d.area, matrix_at(&c->d, i / rows, i % rows, n),
                            want[i * columns + n],
                            is_exact ? 0 : bound[i * columns + n] + 0x1p-133);
    }
}

static qn_status make_expectations(qni_gemm_case *c) {
    const qni_gemm_problem host = on_host(c);
    const size_t count = (size_t)(c->d.shape[0] * c->d.shape[1] * c->d.shape[2]) + 1;
    double *want = calloc(count, sizeof *want), *bound = calloc(count, sizeof *bound);
    qn_status st = QN_OK;
    if (want && bound) {
        qni_gemm_ref(&host, qni_is_fp8(host.dtype_a) && qni_has(c->stream->device, QNI_F(WGMMA)),
                     want, bound);
        expect_rows(c, &host, want, bound);
    } else {
        st = QN_FAIL(QN_E_MEMORY, "gemm check: no memory for %zu results", count);
    }
    free(want);
    free(bound);
    return st;
}

/** Packs b with the device's own kernel. From then on the case's problem is the packed one. */
static qn_status pack(qni_gemm_case *c, qn_stream *stream) {
    const qni_gemm_spec *s = &c->spec;
    int64_t shape[3], nb = qni_pieces(s->n, 128), kb = qni_pieces(s->k, 128);
    const int rank = s->grouping == QN_GEMM_DENSE ? 2 : 3;
    DLDataType dtype;
    QN_TRY(qn_gemm_packed_shape(stream->device, &c->b.t, shape, &dtype));
    qni_dtype kind = qni_gemm_pack_dtype(stream->device, s->dtype_b);
    QN_TRY(matrix_create(
        &c->packed, stream,
        (form){"packed", 3, shape[0], shape[1], shape[2], kind, false, false, false}));
    QN_TRY(matrix_create(
        &c->packed_scale, stream,
        (form){"packed_scale", rank, s->groups, nb, kb, QNI_F32, false, false, false}));
    QN_TRY(qni_area_reset(&c->packed.area, stream));
    QN_TRY(qn_gemm_pack(stream, &c->packed.t, &c->packed_scale.t, &c->b.t, &c->scale_b.t));
    c->args.b = &c->packed.t;
    c->args.scale_b = &c->packed_scale.t;
    c->args.b_is_packed = 1;
    return qni_gemm_problem_set(&c->problem, stream, "gemm", &c->args, s->grouping);
}

static void describe(qni_gemm_case *c) {
    static const char *const groupings[] = {"", "index ", "ends ", "masked "};
    static const char *const fills[] = {"",     " powers", " equal",      " large", " tiny",
                                        " nan", " sparse", " -0 weights", " any",   " cancelling"};
    static const char *const rows[] = {"", " no rows", " full", " few rows"};
    static const char *const activations[] = {"", " gelu_tanh", " silu_and_mul"};
    static const char *const scales[] = {"blocks", "lines", "rows", "groups", "one", "none"};
    const qni_gemm_spec *s = &c->spec;
    char groups[32] = "", gate[32] = "", scaled[48] = "";
    if (s->scales_a || s->scales_b)
        snprintf(scaled, sizeof scaled, " scales of %s x %s", scales[s->scales_a],
                 scales[s->scales_b]);
    if (s->grouping != QN_GEMM_DENSE)
        snprintf(groups, sizeof groups, "groups=%ld ", (long)s->groups);
    if (s->gate_batches)
        snprintf(gate, sizeof gate, " gate=%ld", (long)s->gate_batches);
    snprintf(c->text, sizeof c->text,
             "%s%sm=%ld n=%ld k=%ld %s x %s -> %s %c%c%s%s%s%s%s%s%s%s%s%s%s%s%s%s",
             groupings[s->grouping], groups, (long)s->m, (long)s->n, (long)s->k,
             qni_dtype_name(s->dtype_a), qni_dtype_name(s->dtype_b), qni_dtype_name(s->dtype_d),
             s->a_transposed ? 'T' : 'N', s->b_transposed ? 'N' : 'T', scaled,
             s->is_packed ? " packed" : "", s->is_strided ? " strided" : "",
             s->takes_turns ? " in turns" : "",
             s->c_is_d   ? " +=d"
             : s->adds_c ? " +c"
                         : "",
             s->has_bias ? " bias" : "", activations[s->activation], gate,
             s->has_f32_vectors ? " of f32" : "", s->has_given_scale ? " scaled" : "",
             s->zero_padding ? " zeroed" : "", s->m_alignment ? " aligned" : "", fills[s->fill],
             rows[s->rows]);
}

qn_status qni_gemm_case_create(qni_gemm_case *c, qn_stream *stream, const qni_gemm_spec *spec,
                               uint64_t seed) {
    *c = (qni_gemm_case){.spec = *spec, .stream = stream};
    if (spec->grouping == QN_GEMM_DENSE)
        c->spec.groups = 1;
    else if (spec->grouping != QN_GEMM_GROUPED_MASKED)
        c->spec.m = count_rows(spec);
    describe(c);
    QN_TRY(create_operands(c, stream));
    QN_TRY(fill_all(c, stream, seed));
    set_args(c);
    QN_TRY(qni_gemm_problem_set(&c->problem, stream, "gemm", &c->args, spec->grouping));
    if (!spec->has_no_answer)
        QN_TRY(make_expectations(c));
    if (spec->is_packed)
        QN_TRY(pack(c, stream));
    return qn_stream_sync(stream);
}

void qni_gemm_case_destroy(qni_gemm_case *c) {
    qni_gemm_matrix *all[] = {&c->a,
                              &c->b,
                              &c->c,
                              &c->d,
                              &c->scale_a,
                              &c->scale_b,
                              &c->layout,
                              &c->bias,
                              &c->gate,
                              &c->packed,
                              &c->packed_scale,
                              &c->scale_d,
                              &c->given_scale_d};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->area.owner)
            qni_area_destroy(&all[i]->area);
}

qn_status qni_gemm_case_call(qni_gemm_case *c) {
    if (c->spec.grouping == QN_GEMM_DENSE)
        return qn_gemm(c->stream, &c->args);
    if (c->spec.grouping == QN_GEMM_GROUPED_MASKED)
        return qn_gemm_grouped_masked(c->stream, &c->args);
    return qn_gemm_grouped_contiguous(c->stream, &c->args, c->spec.grouping);
}

// ---- before and after

qn_status qni_gemm_case_reset(qni_gemm_case *c) {
    if (c->scale_d.area.owner)
        QN_TRY(qni_area_reset(&c->scale_d.area, c->stream));
    return qni_area_reset(&c->d.area, c->stream);
}

qn_status qni_gemm_case_compare(qni_gemm_case *c, double *error, char *detail, size_t room) {
    *error = 0;
    *detail = 0;
    if (c->scale_d.area.owner)
        QN_TRY(qni_area_compare(&c->scale_d.area, c->stream, error, detail, room));
    return qni_area_compare(&c->d.area, c->stream, error, detail, room);
}
