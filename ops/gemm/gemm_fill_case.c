// SPDX-License-Identifier: Apache-2.0
// Fills the matrices of a case: values of many sorts, scales, and the groups of rows.
#include "gemm_case.h"

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

static bool has_narrow_range(qni_dtype dtype) {
    return qni_is_fp8(dtype) || dtype == QNI_F16 || dtype == QNI_I8;
}

static double largest(qni_dtype dtype) {
    return has_narrow_range(dtype) ? qni_max(dtype) : 1e18;
}

static double smallest(qni_dtype dtype) {
    return has_narrow_range(dtype) ? qni_spacing(dtype, 0) : 0x1p-130;
}

/** Returns a subnormal value. Of f32 it is one of 2^-134 to 2^-117: its low part, as a bf16, may be
 *  subnormal where it is not. */
static double tiny(qni_dtype dtype, uint64_t *state) {
    const uint32_t bits = qni_random(state);
    if (dtype == QNI_F32)
        return ldexp(1 + random_unit(state), -118 - (int)(bits % 17));
    return smallest(dtype) * (1 + bits % 7);
}

static double any_code(qni_dtype dtype, uint64_t *state) {
    const bool has_codes = qni_is_fp8(dtype) || dtype == QNI_I8;
    const int powers = dtype == QNI_F16 ? 24 : 64;
    for (;;) {
        const uint32_t bits = qni_random(state);
        const uint8_t code = (uint8_t)(bits >> 24);
        const double value = has_codes ? qni_get(dtype, &code, 0)
                                       : ldexp(qni_random_normal(state),
                                               (int)(bits % (uint32_t)powers) - powers / 2);
        if (isfinite(value))
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
    const bool has_codes = qni_is_fp8(dtype) || dtype == QNI_I8;
    const double normal = qni_random_normal(state) * (has_codes ? 64 : 1);
    switch (spec->fill) {
    case QNI_FILL_POWERS:
        return ldexp(random_sign(state), (int)(qni_random(state) >> 30));
    case QNI_FILL_EQUAL:
        return 1.5;
    case QNI_FILL_LARGE:
        return largest(dtype) * random_sign(state);
    case QNI_FILL_TINY:
        return is_b ? normal : tiny(dtype, state);
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
        const double value = qni_gemm_matrix_get(x, qni_gemm_matrix_at(x, g, row, k));
        qni_gemm_matrix_set(x, qni_gemm_matrix_at(x, g, row, last + k), is_b ? value : -value);
    }
}

/** Sets an element to NaN, or infinity, if the fill and the dtype have it. */
static void set_special(qni_gemm_case *c, qni_gemm_matrix *x, bool is_b, int64_t at) {
    const qni_dtype dtype = x->area.dtype;
    if (c->spec.fill == QNI_FILL_NAN && dtype != QNI_I8)
        qni_gemm_matrix_set(x, at, NAN);
    if (c->spec.fill == QNI_FILL_INFINITE && dtype == QNI_E5M2)
        ((uint8_t *)qni_area_host(&x->area))[at] = is_b ? 0xFC : 0x7C; // numbers saturate
    else if (c->spec.fill == QNI_FILL_INFINITE && qni_is_float16_or_32(dtype))
        qni_gemm_matrix_set(x, at, is_b ? -HUGE_VAL : HUGE_VAL);
}

static void fill_operand(qni_gemm_case *c, qni_gemm_matrix *x, bool is_b, uint64_t *state) {
    for (int64_t g = 0; g < x->shape[0]; g++)
        for (int64_t row = 0; row < x->shape[1]; row++) {
            for (int64_t k = 0; k < x->shape[2]; k++)
                qni_gemm_matrix_set(x, qni_gemm_matrix_at(x, g, row, k),
                                    sample(&c->spec, is_b, k, state));
            if (c->spec.fill == QNI_FILL_CANCEL)
                cancel_row(c, x, is_b, g, row);
        }
    const int64_t k = is_b ? x->shape[2] - 1 : 0;
    if ((is_b || x->shape[1] > 1) && !qni_is_empty(&x->t))
        set_special(c, x, is_b, qni_gemm_matrix_at(x, x->shape[0] / 2, x->shape[1] / 2, k));
}

/** Returns an exponent of a scale: with QNI_FILL_LARGE 0, the smallest, which stands for a
 *  subnormal f32. */
static uint8_t sample_exponent(const qni_gemm_spec *spec, bool is_a, uint64_t *state) {
    const uint8_t drawn = (uint8_t)(123 + (qni_random(state) >> 29));
    return spec->fill == QNI_FILL_LARGE && is_a ? 0 : drawn;
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

/** Returns the bytes of a scale's element, in which each K-block has an exponent. */
static int64_t exponents_in(const qni_gemm_matrix *x) {
    return qni_dtype_bytes(x->area.dtype);
}

/** Fills one element with exponents. Those of K-blocks that do not exist are NaN. */
static void fill_exponents(qni_gemm_case *c, qni_gemm_matrix *x, int64_t at, int64_t column,
                           uint64_t *state) {
    const int64_t count = exponents_in(x), blocks = qni_pieces(c->spec.k, 128);
    uint8_t *bytes = qni_area_host(&x->area);
    for (int64_t i = 0; i < count; i++)
        bytes[at * count + i] = count > 1 && column * count + i >= blocks
                                    ? 255
                                    : sample_exponent(&c->spec, x == &c->scale_a, state);
}

static void fill_scale(qni_gemm_case *c, qni_gemm_matrix *x, uint64_t *state) {
    for (int64_t g = 0; g < x->shape[0]; g++)
        for (int64_t row = 0; row < x->shape[1]; row++)
            for (int64_t kb = 0; kb < x->shape[2]; kb++)
                if (x->area.dtype == QNI_F32)
                    qni_gemm_matrix_set(x, qni_gemm_matrix_at(x, g, row, kb),
                                        sample_scale(&c->spec, kb, state));
                else
                    fill_exponents(c, x, qni_gemm_matrix_at(x, g, row, kb), kb, state);
    if (x == &c->scale_a && x->area.dtype != QNI_F32 && c->spec.fill == QNI_FILL_NAN)
        ((uint8_t *)qni_area_host(
            &x->area))[qni_gemm_matrix_at(x, 0, x->shape[1] / 3, 0) * exponents_in(x)] = 255;
}

/** Fills c as weights are filled or, if sums are exact, with small whole numbers. */
static void fill_c(qni_gemm_case *c, uint64_t *state) {
    const bool is_exact = c->spec.fill == QNI_FILL_POWERS;
    const int64_t rows = c->c.shape[1];
    for (int64_t i = 0; i < c->c.shape[0] * rows; i++)
        for (int64_t n = 0; n < c->c.shape[2]; n++) {
            const double value = qni_random_normal(state) * 32;
            qni_gemm_matrix_set(&c->c, qni_gemm_matrix_at(&c->c, i / rows, i % rows, n),
                                is_exact ? rint(value) : value);
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
            qni_gemm_matrix_set(x, qni_gemm_matrix_at(x, 0, batch, n),
                                !is_exact ? value
                                : is_gate ? power
                                          : whole);
        }
    if (spec->fill == QNI_FILL_NAN && x->area.owner)
        qni_gemm_matrix_set(x, qni_gemm_matrix_at(x, 0, x->shape[1] - 1, x->shape[2] / 3 + is_gate),
                            NAN);
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

int64_t qni_gemm_case_rows(const qni_gemm_spec *spec) {
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

// ---- all of them

void qni_gemm_case_fill(qni_gemm_case *c, uint64_t seed) {
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
        qni_gemm_matrix_set(&c->given_scale_d, 0, 0.37); // some results saturate
    if (c->spec.c_is_d)                                  // they are laid out alike
        memcpy(c->d.area.before, c->c.area.before, (size_t)c->d.area.bytes);
}
