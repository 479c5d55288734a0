// SPDX-License-Identifier: Apache-2.0
// Fixed vectors of blocks: one largest value among zeros, blocks of zeros, powers of two in rows
// that lie far apart.
#include "../../check/area.h"
#include "quantize.h"
#include "quantize_check.h"

enum { X, Q, SCALE, NUM_AREAS };
static const char *const area_names[] = {"x", "q", "scale"};
enum { ROWS = 3, COLS = 256 };

typedef struct vector {
    const char *name;
    /** One largest value stands alone in the first block of the tensor. Else rows repeat the
     *  largest, its half, its quarter and so on, with signs in turn. */
    bool is_lone;
    int64_t stride;
} vector;
static const vector vectors[] = {{"one among zeros", true, COLS},
                                 {"halves", false, COLS + 8},
                                 {"halves, far rows", false, qni_far}};

static double most_of(qni_fp8 kind) {
    return (double)qni_fp8_format_of(kind).max;
}

/** Returns an element of x, which is that of q too, because scales are 1 where x is not 0. */
static double value(const vector *v, qni_fp8 kind, int64_t row, int64_t col) {
    if (v->is_lone)
        return row == 0 && col == 77 ? most_of(kind) : 0;
    return ldexp(col % 2 ? most_of(kind) : -most_of(kind), -(int)(col % 8));
}

static double scale_of(const vector *v, const qni_quantize_problem *p, int64_t block) {
    return v->is_lone && block > 0 ? (double)(p->eps / (float)most_of(p->kind)) : 1;
}

/** Sets an element of an input, or expects an element of an output, exactly. */
static void set(qni_area *a, bool is_input, int64_t i, double v) {
    if (is_input)
        qni_put(a->dtype, qni_area_host(a), i, v);
    else
        qni_area_expect(a, i, v, 0);
}

static void fill(qni_area *areas, const vector *v, const qni_quantize_problem *p, bool quantizes) {
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        const int64_t at = i / COLS * v->stride + i % COLS;
        set(&areas[X], quantizes, at, value(v, p->kind, i / COLS, i % COLS));
        set(&areas[Q], !quantizes, at, value(v, p->kind, i / COLS, i % COLS));
    }
    for (int64_t i = 0; i < qni_quantize_num_blocks(p); i++)
        set(&areas[SCALE], !quantizes, i, scale_of(v, p, i));
}

static qn_status try_one(qni_trial_run *run, const qni_op *op, const vector *v, qni_dtype dtype,
                         qni_fp8 kind, int64_t block_rows) {
    qni_area areas[NUM_AREAS] = {};
    qn_device *device = qn_stream_device(qni_trial_stream(run));
    qni_quantize_problem p = {.dtype_x = dtype,
                              .kind = kind,
                              .rows = ROWS,
                              .cols = COLS,
                              .block_rows = block_rows,
                              .x_row = v->stride,
                              .q_row = v->stride,
                              .scale_row = COLS / QNI_BLOCK,
                              .eps = 1e-4f};
    char text[120];
    qn_status st;
    snprintf(text, sizeof text, "%s, block=%ldx128 %s, %s", v->name, (long)block_rows,
             qni_dtype_name(dtype), qni_dtype_name((qni_dtype)(QNI_E4M3FN + (int)kind)));
    QN_TRY_OUT(
        qni_area_create_rows(&areas[X], area_names[X], device, dtype, ROWS, COLS, v->stride, 0));
    QN_TRY_OUT(qni_area_create_rows(&areas[Q], area_names[Q], device,
                                    (qni_dtype)(QNI_E4M3FN + (int)kind), ROWS, COLS, v->stride, 0));
    QN_TRY_OUT(qni_area_create(&areas[SCALE], area_names[SCALE], device, QNI_F32,
                               qni_quantize_num_blocks(&p), 0));
    fill(areas, v, &p, op == &qni_op_quantize);
    p.x = qni_area_device(&areas[X]);
    p.q = qni_area_device(&areas[Q]);
    p.scale = qni_area_device(&areas[SCALE]);
    QN_TRY_OUT(qni_areas_try(run, op, &p, text, areas, NUM_AREAS));
out:
    st = qni_areas_excuse_far(run, op, text, v->stride, st);
    qni_areas_destroy(areas, NUM_AREAS);
    return st;
}

qn_status qni_quantize_vectors_try(qni_trial_run *run, const qni_op *op) {
    qn_status st = QN_OK;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        for (int kind = 0; kind < QNI_NUM_FP8; kind++)
            for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++) {
                if (vectors[i].stride >= qni_far && (dtype != QNI_BF16 || kind > 0))
                    continue; // far rows take much memory
                st = try_one(run, op, &vectors[i], (qni_dtype)dtype, (qni_fp8)kind, 1);
                if (st == QN_OK)
                    st = try_one(run, op, &vectors[i], (qni_dtype)dtype, (qni_fp8)kind, QNI_BLOCK);
            }
    return st;
}
