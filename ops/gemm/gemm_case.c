// SPDX-License-Identifier: Apache-2.0
// Makes problems for the checks: matrices with guards and gaps full of NaN, group layouts, the
// right answer.
#include "gemm_case.h"

#include "../shared/fp8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t round_up(int64_t x, int64_t unit) {
    return (x + unit - 1) / unit * unit;
}

static bool is_fp8(qni_dtype dtype) {
    return dtype == QNI_E4M3FN || dtype == QNI_E4M3FNUZ;
}

static qni_fp8 fp8_kind(qni_dtype dtype) {
    return dtype == QNI_E4M3FN ? QNI_FP8_E4M3FN : QNI_FP8_E4M3FNUZ;
}

// ---- random numbers: xorshift64*

static uint64_t random_bits(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static double random_unit(uint64_t *state) {
    return (double)(random_bits(state) >> 11) * 0x1p-53;
}

static double random_sign(uint64_t *state) {
    return random_bits(state) >> 63 ? -1 : 1;
}

/** Where matrix number i's numbers begin: what it holds does not depend on the others' sizes. */
static uint64_t random_state(uint64_t seed, uint64_t i) {
    return (seed * 8 + i + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

/** Mean 0, variance 1: the sum of twelve uniform numbers. */
static double random_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += random_unit(state);
    return sum;
}

// ---- matrices

static int64_t matrix_at(const qni_gemm_matrix *x, int64_t g, int64_t row, int64_t column) {
    return x->origin + g * x->strides[0] + row * x->strides[1] + column * x->strides[2];
}

static uint16_t bf16_of(double value) {
    const float x = (float)value;
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    return (uint16_t)(isnan(x) ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void matrix_set(qni_gemm_matrix *x, int64_t at, double value) {
    switch (x->dtype) {
    case QNI_F32:
        ((float *)x->host)[at] = (float)value;
        return;
    case QNI_I32:
        ((int32_t *)x->host)[at] = (int32_t)value;
        return;
    case QNI_BF16:
        ((uint16_t *)x->host)[at] = bf16_of(value);
        return;
    default:
        ((uint8_t *)x->host)[at] = qni_fp8_encode(fp8_kind(x->dtype), (float)value);
    }
}

static double matrix_get(const qni_gemm_matrix *x, int64_t at) {
    if (x->dtype == QNI_F32)
        return (double)((const float *)x->host)[at];
    if (is_fp8(x->dtype))
        return (double)qni_fp8_decode(fp8_kind(x->dtype), ((const uint8_t *)x->host)[at]);
    return (double)__builtin_bit_cast(float, (uint32_t)((const uint16_t *)x->host)[at] << 16);
}

/** How matrix_create lays one out. */
typedef struct form {
    int rank;
    int64_t groups, rows, columns;
    qni_dtype dtype;
    bool transposed, strided;
} form;

/** All bytes 0xFF: NaN in every type but e4m3fnuz, where 0x80 is. */
static qn_status matrix_create(qni_gemm_matrix *x, const qn_stream *stream, form f) {
    enum { GUARD = 256 }; // elements; a multiple keeps the first one aligned
    const int64_t inner = f.transposed ? f.rows : f.columns,
                  outer = f.transposed ? f.columns : f.rows;
    const int64_t line = inner + (f.strided ? 5 : 0), slab = line * outer + (f.strided ? 3 : 0);
    *x = (qni_gemm_matrix){.dtype = f.dtype, .origin = GUARD + (f.strided ? 3 : 0)};
    memcpy(x->shape, (int64_t[]){f.groups, f.rows, f.columns}, sizeof x->shape);
    memcpy(x->strides, (int64_t[]){slab, f.transposed ? 1 : line, f.transposed ? line : 1},
           sizeof x->strides);
    x->bytes = (x->origin + slab * f.groups + GUARD) * qni_dtype_bytes(f.dtype);
    x->host = malloc((size_t)x->bytes);
    if (!x->host)
        return QN_FAIL(QN_E_MEMORY, "gemm check: no memory for %ld bytes", (long)x->bytes);
    memset(x->host, f.dtype == QNI_E4M3FNUZ ? 0x80 : 0xFF, (size_t)x->bytes);
    const qn_status st = qn_malloc(stream->device, &x->device, x->bytes);
    x->t = (DLTensor){.data = x->device,
                      .device = stream->device->id,
                      .ndim = f.rank,
                      .dtype = qni_dl_dtype(f.dtype),
                      .shape = x->shape + 3 - f.rank,
                      .strides = x->strides + 3 - f.rank,
                      .byte_offset = (uint64_t)(x->origin * qni_dtype_bytes(f.dtype))};
    return st;
}

static void matrix_destroy(qni_gemm_matrix *x, qn_device *device) {
    free(x->host);
    if (x->device)
        qn_free(device, x->device);
    *x = (qni_gemm_matrix){0};
}

static qn_status matrix_upload(const qni_gemm_matrix *x, qn_stream *stream) {
    return stream->device->backend->copy(stream, x->device, x->host, x->bytes, QNI_COPY_TO_DEVICE);
}

// ---- what they hold

static double largest(qni_dtype dtype) {
    return is_fp8(dtype) ? (double)qni_fp8_format_of(fp8_kind(dtype)).max : 1e18;
}

static double smallest(qni_dtype dtype) {
    return dtype == QNI_E4M3FN ? 0x1p-9 : dtype == QNI_E4M3FNUZ ? 0x1p-10 : 0x1p-130;
}

static double any_code(qni_dtype dtype, uint64_t *state) {
    for (;;) {
        const uint64_t bits = random_bits(state) >> 40;
        const double value = is_fp8(dtype) ? (double)qni_fp8_decode(fp8_kind(dtype), (uint8_t)bits)
                                           : ldexp(random_normal(state), (int)(bits % 64) - 32);
        if (!isnan(value))
            return value;
    }
}

/** Whether the K-block is one of the two that cancel. */
static bool is_large_block(const qni_gemm_spec *spec, int64_t kb) {
    return kb == 0 || kb == spec->k / 128 - 1;
}

/** Element [row, k] of a (is_b: of b). */
static double sample(const qni_gemm_spec *spec, bool is_b, int64_t k, uint64_t *state) {
    qni_dtype dtype = is_b ? spec->dtype_b : spec->dtype_a;
    const double normal = random_normal(state) * (is_fp8(dtype) ? 64 : 1);
    switch (spec->fill) {
    case QNI_FILL_POWERS:
        return ldexp(random_sign(state), (int)(random_bits(state) >> 62));
    case QNI_FILL_EQUAL:
        return 1.5;
    case QNI_FILL_LARGE:
        return largest(dtype) * random_sign(state);
    case QNI_FILL_TINY:
        return is_b ? normal : smallest(dtype) * (double)(1 + (random_bits(state) >> 32) % 7);
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

/** A row's last whole K-block becomes its first one, in a with the sign changed. */
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
    const int power = (int)(random_bits(state) >> 61) - 4;
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

/** c, by the rules of a weight or, where sums are exact, small whole numbers. */
static void fill_c(qni_gemm_case *c, uint64_t *state) {
    const bool is_exact = c->spec.fill == QNI_FILL_POWERS;
    for (int64_t row = 0; row < c->c.shape[1]; row++)
        for (int64_t n = 0; n < c->c.shape[2]; n++) {
            const double value = random_normal(state) * 32;
            matrix_set(&c->c, matrix_at(&c->c, 0, row, n), is_exact ? rint(value) : value);
        }
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

/** Rows of a and d: groups padded to the alignment, then a tile that is nobody's. */
static int64_t count_rows(const qni_gemm_spec *spec) {
    int64_t m = 0;
    for (int64_t g = 0; g < spec->groups; g++)
        m += round_up(group_rows(spec, g), alignment_of(spec));
    return m + alignment_of(spec);
}

static void fill_layout(qni_gemm_case *c) {
    const qni_gemm_spec *spec = &c->spec;
    const bool is_index = spec->grouping == QN_GEMM_GROUPED_INDEX;
    int64_t start = 0, at = c->layout.origin;
    for (int64_t m = 0; is_index && m < spec->m; m++)
        matrix_set(&c->layout, at + m, -1);
    for (int64_t g = 0; g < spec->groups; g++) {
        const int64_t rows = group_rows(spec, g);
        for (int64_t m = 0; is_index && m < rows; m++)
            matrix_set(&c->layout, at + start + m, (double)g);
        if (!is_index)
            matrix_set(&c->layout, at + g,
                       (double)(spec->grouping == QN_GEMM_GROUPED_MASKED ? rows : start + rows));
        start += round_up(rows, alignment_of(spec));
    }
}

// ---- the case

static qn_status create_operands(qni_gemm_case *c, qn_stream *stream) {
    const qni_gemm_spec *s = &c->spec;
    const bool is_masked = s->grouping == QN_GEMM_GROUPED_MASKED,
               is_dense = s->grouping == QN_GEMM_DENSE;
    const int rank = is_masked ? 3 : 2, rank_b = is_dense ? 2 : 3;
    const int64_t slabs = is_masked ? s->groups : 1, kb = (s->k + 127) / 128,
                  nb = (s->n + 127) / 128;
    const bool gaps = s->is_strided;
    QN_TRY(matrix_create(&c->a, stream,
                         (form){rank, slabs, s->m, s->k, s->dtype_a, s->a_transposed, gaps}));
    QN_TRY(matrix_create(&c->b, stream,
                         (form){rank_b, s->groups, s->n, s->k, s->dtype_b, s->b_transposed, gaps}));
    QN_TRY(matrix_create(&c->d, stream, (form){rank, slabs, s->m, s->n, s->dtype_d, false, gaps}));
    QN_TRY(matrix_create(&c->c, stream, (form){2, 1, s->m, s->n, s->dtype_d, false, gaps}));
    QN_TRY(matrix_create(&c->scale_a, stream, (form){rank, slabs, s->m, kb, QNI_F32, gaps, gaps}));
    QN_TRY(matrix_create(&c->scale_b, stream,
                         (form){rank_b, s->groups, nb, kb, QNI_F32, false, gaps}));
    const int64_t entries = s->grouping == QN_GEMM_GROUPED_INDEX ? s->m : s->groups;
    QN_TRY(matrix_create(&c->layout, stream, (form){1, 1, 1, entries, QNI_I32, false, false}));
    return QN_OK;
}

static qn_status fill_all(qni_gemm_case *c, qn_stream *stream, uint64_t seed) {
    uint64_t state[5];
    for (uint64_t i = 0; i < 5; i++)
        state[i] = random_state(seed, i);
    fill_operand(c, &c->a, false, &state[0]);
    fill_operand(c, &c->b, true, &state[1]);
    fill_scale(c, &c->scale_a, &state[2]);
    fill_scale(c, &c->scale_b, &state[3]);
    fill_c(c, &state[4]);
    if (c->spec.grouping != QN_GEMM_DENSE)
        fill_layout(c);
    qni_gemm_matrix *all[] = {&c->a, &c->b, &c->c, &c->scale_a, &c->scale_b, &c->layout};
    qn_status st = QN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && st == QN_OK; i++)
        st = matrix_upload(all[i], stream);
    return st;
}

static void set_args(qni_gemm_case *c) {
    const qni_gemm_spec *s = &c->spec;
    const bool has_scales = is_fp8(s->dtype_a), is_masked = s->grouping == QN_GEMM_GROUPED_MASKED;
    c->args = (qn_gemm_args){
        .struct_size = sizeof c->args,
        .d = &c->d.t,
        .a = &c->a.t,
        .b = &c->b.t,
        .c = s->c_is_d   ? &c->d.t
             : s->adds_c ? &c->c.t
                         : nullptr,
        .scale_a = has_scales ? &c->scale_a.t : nullptr,
        .scale_b = has_scales ? &c->scale_b.t : nullptr,
        .group_layout = s->grouping != QN_GEMM_DENSE ? &c->layout.t : nullptr,
        .expected_m = !is_masked      ? 0
                      : s->expected_m ? s->expected_m
                      : s->m          ? s->m
                                      : 1,
        .m_alignment = s->m_alignment,
        .zero_padding = s->zero_padding,
    };
}

/** The right answer, from the problem with host pointers in place of the device's. */
static qn_status create_answer(qni_gemm_case *c) {
    qni_gemm_problem host = c->problem;
    host.a = (char *)c->a.host + c->a.t.byte_offset;
    host.b = (char *)c->b.host + c->b.t.byte_offset;
    host.c = host.c ? (char *)c->c.host + c->c.t.byte_offset : nullptr;
    host.c_row = c->c.strides[1];
    host.scale_a = host.scale_a ? (float *)c->scale_a.host + c->scale_a.origin : nullptr;
    host.scale_b = host.scale_b ? (float *)c->scale_b.host + c->scale_b.origin : nullptr;
    host.layout = host.layout ? (int32_t *)c->layout.host + c->layout.origin : nullptr;
    const size_t count = (size_t)(c->d.shape[0] * c->d.shape[1] * c->d.shape[2]) + 1;
    c->want = calloc(count, sizeof *c->want);
    c->bound = calloc(count, sizeof *c->bound);
    if (!c->want || !c->bound)
        return QN_FAIL(QN_E_MEMORY, "gemm check: no memory for %zu results", count);
    qni_gemm_ref(&host, c->want, c->bound);
    return QN_OK;
}

/** Packs b with the device's own kernel; from then on the problem is the packed one. */
static qn_status pack(qni_gemm_case *c, qn_stream *stream) {
    const qni_gemm_spec *s = &c->spec;
    int64_t shape[3], nb = (s->n + 127) / 128, kb = (s->k + 127) / 128;
    const int rank = s->grouping == QN_GEMM_DENSE ? 2 : 3;
    DLDataType dtype;
    QN_TRY(qn_gemm_packed_shape(stream->device, &c->b.t, shape, &dtype));
    qni_dtype kind = qni_gemm_pack_dtype(stream->device, s->dtype_b);
    QN_TRY(matrix_create(&c->packed, stream,
                         (form){3, shape[0], shape[1], shape[2], kind, false, false}));
    QN_TRY(matrix_create(&c->packed_scale, stream,
                         (form){rank, s->groups, nb, kb, QNI_F32, false, false}));
    QN_TRY(matrix_upload(&c->packed, stream));
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
    const qni_gemm_spec *s = &c->spec;
    char groups[32] = "";
    if (s->grouping != QN_GEMM_DENSE)
        snprintf(groups, sizeof groups, "groups=%ld ", (long)s->groups);
    snprintf(c->text, sizeof c->text, "%s%sm=%ld n=%ld k=%ld %s x %s -> %s %c%c%s%s%s%s%s%s%s",
             groupings[s->grouping], groups, (long)s->m, (long)s->n, (long)s->k,
             qni_dtype_name(s->dtype_a), qni_dtype_name(s->dtype_b), qni_dtype_name(s->dtype_d),
             s->a_transposed ? 'T' : 'N', s->b_transposed ? 'N' : 'T',
             s->is_packed ? " packed" : "", s->is_strided ? " strided" : "",
             s->c_is_d   ? " +=d"
             : s->adds_c ? " +c"
                         : "",
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
        QN_TRY(create_answer(c));
    if (spec->is_packed)
        QN_TRY(pack(c, stream));
    return qn_stream_sync(stream);
}

void qni_gemm_case_destroy(qni_gemm_case *c) {
    qni_gemm_matrix *all[] = {&c->a,       &c->b,      &c->c,      &c->d,           &c->scale_a,
                              &c->scale_b, &c->layout, &c->packed, &c->packed_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        matrix_destroy(all[i], c->stream->device);
    free(c->want);
    free(c->bound);
}

qn_status qni_gemm_case_call(qni_gemm_case *c) {
    if (c->spec.grouping == QN_GEMM_DENSE)
        return qn_gemm(c->stream, &c->args);
    if (c->spec.grouping == QN_GEMM_GROUPED_MASKED)
        return qn_gemm_grouped_masked(c->stream, &c->args);
    return qn_gemm_grouped_contiguous(c->stream, &c->args, c->spec.grouping);
}

// ---- before and after

/** d as it is before the call: c and d are laid out alike, so c's bytes are d's where c is d. */
static void fill_d(qni_gemm_case *c) {
    if (c->spec.c_is_d)
        memcpy(c->d.host, c->c.host, (size_t)c->d.bytes);
    else
        memset(c->d.host, 0xFF, (size_t)c->d.bytes);
}

qn_status qni_gemm_case_reset(qni_gemm_case *c) {
    fill_d(c);
    return matrix_upload(&c->d, c->stream);
}

typedef struct worst {
    double error, got, want, tolerance;
    int64_t slab, m, n;
} worst;

/** u of style: half a step of the type at 1, doubled. */
static double out_rounding(qni_dtype dtype) {
    return dtype == QNI_BF16 ? 0x1p-8 : 0x1p-24;
}

static double round_to(qni_dtype dtype, double x) {
    const float f = (float)x;
    return dtype == QNI_F32 ? (double)f
                            : (double)__builtin_bit_cast(float, (uint32_t)bf16_of((double)f) << 16);
}

/** Error over tolerance of one element. */
static double judge(const qni_gemm_case *c, double got, double want, double bound,
                    double *tolerance) {
    qni_dtype dtype = c->spec.dtype_d;
    const bool is_exact = c->spec.fill == QNI_FILL_POWERS;
    *tolerance = is_exact ? 0 : out_rounding(dtype) * fabs(want) + bound + 0x1p-133;
    const double rounded = round_to(dtype, want);
    if (got == rounded || (isnan(got) && isnan(want)))
        return 0;
    const double error = fabs(got - want);
    return is_exact ? INFINITY : error / *tolerance;
}

static void compare_row(qni_gemm_case *c, int64_t slab, int64_t m, worst *w) {
    for (int64_t n = 0; n < c->spec.n; n++) {
        const int64_t at = matrix_at(&c->d, slab, m, n), i = (slab * c->spec.m + m) * c->spec.n + n;
        double got = matrix_get(&c->d, at), tolerance;
        const double error = judge(c, got, c->want[i], c->bound[i], &tolerance);
        if (!(error <= w->error))
            *w = (worst){error, got, c->want[i], tolerance, slab, m, n};
        if (isnan(w->error))
            return;
    }
}

/** Puts back what the row held before the call, so that only changes that no row owns remain. */
static void forget_row(qni_gemm_case *c, const void *before, int64_t slab, int64_t m) {
    const int64_t bytes = qni_dtype_bytes(c->spec.dtype_d),
                  at = matrix_at(&c->d, slab, m, 0) * bytes;
    memcpy((char *)c->d.host + at, (const char *)before + at, (size_t)(c->spec.n * bytes));
}

/** Byte at which the two first differ; -1: nowhere. */
static int64_t first_difference(const char *x, const char *y, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            return i;
    return -1;
}

static int64_t row_group(const qni_gemm_case *c, int64_t slab, int64_t m) {
    qni_gemm_problem host = c->problem;
    host.layout = (const int32_t *)c->layout.host + c->layout.origin;
    return qni_gemm_row_group(&host, slab, m);
}

/** Fetches d, compares the rows that are somebody's, and then the rest with what was there
 *  before. */
static void compare_fetched(qni_gemm_case *c, const void *before, worst *w, int64_t *stray) {
    for (int64_t slab = 0; slab < c->d.shape[0]; slab++)
        for (int64_t m = 0; m < c->spec.m; m++) {
            if (row_group(c, slab, m) == QNI_GEMM_ROW_UNTOUCHED)
                continue;
            if (!isnan(w->error))
                compare_row(c, slab, m, w);
            forget_row(c, before, slab, m);
        }
    *stray = first_difference(c->d.host, before, c->d.bytes);
}

qn_status qni_gemm_case_compare(qni_gemm_case *c, double *error, char *detail, size_t room) {
    fill_d(c);
    void *before = malloc((size_t)c->d.bytes);
    if (!before)
        return QN_FAIL(QN_E_MEMORY, "gemm check: no memory for %ld bytes", (long)c->d.bytes);
    memcpy(before, c->d.host, (size_t)c->d.bytes);
    worst w = {0};
    int64_t stray = -1;
    qn_status st;
    QN_TRY_OUT(c->stream->device->backend->copy(c->stream, c->d.host, c->d.device, c->d.bytes,
                                                QNI_COPY_TO_HOST));
    QN_TRY_OUT(qn_stream_sync(c->stream));
    compare_fetched(c, before, &w, &stray);
    *error = stray >= 0 ? INFINITY : w.error;
    if (stray >= 0)
        snprintf(detail, room, "wrote byte %ld of d's memory, which no row of the problem owns",
                 (long)(stray - c->d.origin * qni_dtype_bytes(c->spec.dtype_d)));
    else
        snprintf(detail, room, "d[%ld,%ld,%ld] is %.9g, reference %.9g, tolerance %.3g",
                 (long)w.slab, (long)w.m, (long)w.n, w.got, w.want, w.tolerance);
out:
    free(before);
    return st;
}
