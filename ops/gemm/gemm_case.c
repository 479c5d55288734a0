// SPDX-License-Identifier: Apache-2.0
// Makes problems for the checks: matrices with guards and gaps full of NaN, and the right answer.
// gemm_fill_case.c says what the matrices hold.
#include "gemm_case.h"

#include <stdlib.h>
#include <string.h>

// ---- matrices

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

// ---- the case

static int64_t d_columns(const qni_gemm_spec *s) {
    return s->activation == QN_GEMM_SILU_AND_MUL ? s->n / 2 : s->n;
}

/** Returns whether a and d have a slab of rows for each group, or for each batch. */
static bool has_slabs(const qni_gemm_spec *s) {
    return s->grouping == QN_GEMM_GROUPED_MASKED || (s->grouping == QN_GEMM_DENSE && s->groups);
}

static int64_t groups_of_b(const qni_gemm_spec *s) {
    return s->shares_b || (s->grouping == QN_GEMM_DENSE && !s->groups) ? 1 : s->groups;
}

static bool has_found_scales(const qni_gemm_spec *s) {
    return qni_is_fp8(s->dtype_d) && !s->has_given_scale;
}

static bool has_scales(qni_dtype dtype, qni_gemm_scales scales) {
    return scales == QNI_SCALES_BLOCKS ? qni_is_fp8(dtype) : scales != QNI_SCALES_NONE;
}

/** Returns the form of an operand's scales; `blocks` is their form by blocks. */
static form scales_form(qni_gemm_scales scales, qni_gemm_exponents exponents, form blocks,
                        int64_t rows) {
    form f = blocks;
    f.dtype = exponents == QNI_WORDS ? QNI_I32 : exponents == QNI_EXPONENTS ? QNI_E8M0FNU : QNI_F32;
    if (exponents == QNI_WORDS) {
        f.columns = qni_pieces(f.columns, 4);
        f.transposed = true;
    }
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
               b = {"scale_b", rank_b, groups_of_b(s), qni_pieces(s->n, 128), kb, QNI_F32,
                    false,     gaps,   false};
    QN_TRY(matrix_create(&c->scale_a, stream, scales_form(s->scales_a, s->exponents_a, a, s->m)));
    return matrix_create(&c->scale_b, stream, scales_form(s->scales_b, s->exponents_b, b, s->n));
}

static qn_status create_operands(qni_gemm_case *c, qn_stream *stream) {
    const qni_gemm_spec *s = &c->spec;
    const bool is_dense = s->grouping == QN_GEMM_DENSE && !s->groups;
    const int rank = has_slabs(s) ? 3 : 2, rank_b = is_dense ? 2 : 3;
    const int64_t slabs = has_slabs(s) ? s->groups : 1, columns = d_columns(s);
    const bool gaps = s->is_strided, turns = s->takes_turns;
    QN_TRY(matrix_create(
        &c->a, stream,
        (form){"a", rank, slabs, s->m, s->k, s->dtype_a, s->a_transposed, gaps, turns}));
    QN_TRY(matrix_create(
        &c->b, stream,
        (form){"b", rank_b, groups_of_b(s), s->n, s->k, s->dtype_b, s->b_transposed, gaps, turns}));
    QN_TRY(matrix_create(&c->d, stream,
                         (form){"d", rank, slabs, s->m, columns, s->dtype_d, false, gaps, turns}));
    QN_TRY(matrix_create(&c->c, stream,
                         (form){"c", rank, slabs, s->m, columns, s->dtype_d, false, gaps, turns}));
    QN_TRY(create_scales(c, stream, rank, rank_b, slabs));
    const qni_dtype vectors = s->has_f32_vectors ? QNI_F32 : QNI_BF16;
    if (s->has_bias)
        QN_TRY(matrix_create(&c->bias, stream,
                             (form){"bias", is_dense ? 1 : 2, 1,
                                    is_dense || s->shares_bias ? 1 : s->groups, s->n, vectors,
                                    false, gaps, false}));
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
    const int64_t entries = s->grouping == QN_GEMM_GROUPED_INDEX ? s->m : groups_of_b(s);
    QN_TRY(matrix_create(&c->layout, stream,
                         (form){"layout", 1, 1, 1, entries, QNI_I32, false, false, false}));
    return QN_OK;
}

/** Copies what has been filled to the device. */
static qn_status upload(qni_gemm_case *c, qn_stream *stream) {
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
    host.scale_a = host.scale_a ? qni_area_host(&c->scale_a.area) : nullptr;
    host.scale_b = host.scale_b ? qni_area_host(&c->scale_b.area) : nullptr;
    host.bias = host.bias ? qni_area_host(&c->bias.area) : nullptr;
    host.gate = host.gate ? qni_area_host(&c->gate.area) : nullptr;
    host.layout = host.layout ? qni_area_host(&c->layout.area) : nullptr;
    return host;
}

/** Expects a row of FP8, and its scales unless one is given. */
static void expect_codes(qni_gemm_case *c, int64_t slab, int64_t row, qni_exact exact) {
    const int64_t at = qni_gemm_matrix_at(&c->d, slab, row, 0);
    if (c->spec.has_given_scale)
        qni_area_expect_codes(&c->d.area, at, exact, qni_gemm_matrix_get(&c->given_scale_d, 0), 0);
    else
        qni_area_expect_found_scales(&c->scale_d.area,
                                     qni_gemm_matrix_at(&c->scale_d, slab, row, 0), 1, &c->d.area,
                                     at, exact, QNI_GEMM_GROUP, 1e-10);
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
            qni_area_expect(&c->d.area, qni_gemm_matrix_at(&c->d, i / rows, i % rows, n),
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
        qni_gemm_ref(&host, qni_gemm_losses(c->stream->device), want, bound);
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
    DLDataType dtype;
    QN_TRY(qn_gemm_packed_shape(stream->device, &c->b.t, shape, &dtype));
    qni_dtype kind = qni_gemm_pack_dtype(stream->device, s->dtype_b);
    QN_TRY(matrix_create(
        &c->packed, stream,
        (form){"packed", 3, shape[0], shape[1], shape[2], kind, false, false, false}));
    QN_TRY(matrix_create(
        &c->packed_scale, stream,
        (form){"packed_scale", c->b.t.ndim, groups_of_b(s), nb, kb, QNI_F32, false, false, false}));
    QN_TRY(qni_area_reset(&c->packed.area, stream));
    QN_TRY(qn_gemm_pack(stream, &c->packed.t, &c->packed_scale.t, &c->b.t, &c->scale_b.t));
    c->args.b = &c->packed.t;
    c->args.scale_b = &c->packed_scale.t;
    c->args.b_is_packed = 1;
    return qni_gemm_problem_set(&c->problem, stream, "gemm", &c->args, s->grouping);
}

static void describe(qni_gemm_case *c) {
    static const char *const groupings[] = {"", "index ", "ends ", "masked "};
    static const char *const fills[] = {
        "",          " powers", " equal",      " large", " tiny",      " nan",
        " infinite", " sparse", " -0 weights", " any",   " cancelling"};
    static const char *const rows[] = {"", " no rows", " full", " few rows"};
    static const char *const activations[] = {"", " gelu_tanh", " silu_and_mul"};
    static const char *const scales[] = {"blocks", "lines", "rows", "groups", "one", "none"};
    static const char *const kinds[] = {"", " as exponents", " as words"};
    const qni_gemm_spec *s = &c->spec;
    char groups[32] = "", gate[32] = "", scaled[80] = "";
    if (s->scales_a || s->scales_b || s->exponents_a || s->exponents_b)
        snprintf(scaled, sizeof scaled, " scales of %s%s x %s%s", scales[s->scales_a],
                 kinds[s->exponents_a], scales[s->scales_b], kinds[s->exponents_b]);
    if (s->groups)
        snprintf(groups, sizeof groups, "%s=%ld ",
                 s->grouping != QN_GEMM_DENSE ? "groups"
                 : s->shares_b                ? "one b, batches"
                                              : "batches",
                 (long)s->groups);
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
    if (spec->grouping == QN_GEMM_GROUPED_INDEX || spec->grouping == QN_GEMM_GROUPED_ENDS)
        c->spec.m = qni_gemm_case_rows(spec);
    describe(c);
    QN_TRY(create_operands(c, stream));
    qni_gemm_case_fill(c, seed);
    QN_TRY(upload(c, stream));
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
