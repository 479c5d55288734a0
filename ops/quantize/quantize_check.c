// SPDX-License-Identifier: Apache-2.0
// The check problems of the quantize family: every kernel gives the bits of the definition, and
// touches nothing else. Used by qn_check on every device.
#include "quantize_check.h"

#include "../../check/area.h"
#include "quantize.h"
#include "rows.h"

#include <stdlib.h>
#include <string.h>

/** What x is filled with when quantising. */
typedef enum fill { FILL_NORMAL, FILL_ANY_FINITE, FILL_TIES, FILL_NONFINITE, NUM_FILLS } fill;
static const char *const fill_names[NUM_FILLS] = {"normal", "any-finite", "ties", "nonfinite"};

/** A problem by its numbers. */
typedef struct shape {
    int64_t rows, cols;
    int64_t x_gap, q_gap; // elements between the end of a row and the next
    int64_t offset;       // elements from an aligned address to the first
} shape;
static const shape shapes[] = {
    {1, 1, 0, 0, 0},     {3, 127, 1, 2, 1},    {128, 128, 0, 0, 0}, {130, 257, 7, 7, 0},
    {257, 384, 8, 3, 8}, {33, 2048, 4, 16, 0}, {5, 4104, 0, 0, 0},  {40, 200, 8, 8, 8},
};

/** x, q or scale: its memory on the device, and the same bytes on the host before and after a run.
 *  Guards lie on both sides; guards, gaps and outputs hold a poison at first. */
typedef struct area {
    uint8_t *before, *after, *got;
    void *device;
    int64_t bytes, first; // of the whole, and of the first element
    DLTensor flat;        // the whole, as bytes
} area;
enum { SCALE, Q, X, NUM_AREAS }; // in the order in which differences are told: a cause first
constexpr int64_t guard_bytes = 256;
constexpr uint8_t poison = 0xFF; // a NaN of every dtype

typedef struct trial_case {
    qni_quantize_problem problem; // pointers into device memory
    bool dequantizes;
    qn_device *owner;
    area areas[NUM_AREAS];
    const DLTensor *output_list[2];
    int num_outputs;
    uint64_t random;
    char text[160];
} trial_case;

static qn_status area_create(trial_case *c, area *a, int64_t rows, int64_t stride, int64_t offset,
                             int64_t element) {
    a->first = guard_bytes + offset * element;
    a->bytes = a->first + rows * stride * element + guard_bytes;
    a->before = malloc((size_t)a->bytes);
    a->after = malloc((size_t)a->bytes);
    a->got = malloc((size_t)a->bytes);
    if (!a->before || !a->after || !a->got)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory for %ld bytes", (long)(3 * a->bytes));
    memset(a->before, poison, (size_t)a->bytes);
    const qn_status st = qn_malloc(c->owner, &a->device, a->bytes);
    a->flat = (DLTensor){.data = a->device,
                         .device = qn_device_id(c->owner),
                         .ndim = 1,
                         .dtype = qni_dl_dtype(QNI_U8),
                         .shape = &a->bytes};
    return st;
}

static void case_destroy(trial_case *c) {
    for (int i = 0; i < NUM_AREAS; i++) {
        free(c->areas[i].before);
        free(c->areas[i].after);
        free(c->areas[i].got);
        qn_free(c->owner, c->areas[i].device);
    }
    free(c);
}

/** The problem with its pointers into the `after` copies, for the definition to run on. */
static qni_quantize_problem on_host(const trial_case *c) {
    qni_quantize_problem p = c->problem;
    p.x = c->areas[X].after + c->areas[X].first;
    p.q = c->areas[Q].after + c->areas[Q].first;
    p.scale = (float *)(c->areas[SCALE].after + c->areas[SCALE].first);
    return p;
}

static void store_element(qni_dtype dtype, void *x, int64_t i, float v) {
    if (dtype == QNI_F32)
        ((float *)x)[i] = v;
    else if (dtype == QNI_F16)
        ((_Float16 *)x)[i] = (_Float16)v;
    else
        ((uint16_t *)x)[i] = (uint16_t)(__builtin_bit_cast(uint32_t, v) >> 16);
}

/** Sum of uniform values: near enough to normal, on 2^-16 grid. */
static float normal_value(trial_case *c) {
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += qni_random(&c->random) >> 12;
    return (float)(sum - (2 << 20)) * 0x1p-19f;
}

/** Any bits but those of an infinity or a NaN. */
static float finite_value(trial_case *c, qni_dtype dtype) {
    for (;;) {
        const uint32_t bits = qni_random(&c->random);
        const uint16_t half = (uint16_t)bits;
        const float v =
            dtype == QNI_F32 ? __builtin_bit_cast(float, bits) : qni_load_element(dtype, &half, 0);
        if (isfinite(v))
            return v;
    }
}

/** Half-way between two codes; the first element of a row of a block makes its scale 1. */
static float tie_value(trial_case *c, int64_t col) {
    const qni_fp8_format f = qni_fp8_format_of(c->problem.kind);
    if (col % QNI_BLOCK == 0)
        return f.max;
    const uint8_t code = (uint8_t)(qni_random(&c->random) % f.max_code);
    const float tie = (qni_fp8_decode(c->problem.kind, code) +
                       qni_fp8_decode(c->problem.kind, (uint8_t)(code + 1))) *
                      0.5f;
    return qni_random(&c->random) & 1 ? tie : -tie;
}

static float nonfinite_value(trial_case *c) {
    switch (qni_random(&c->random) % 256) {
    case 0:
        return __builtin_nanf("");
    case 1:
        return qni_random(&c->random) & 1 ? __builtin_inff() : -__builtin_inff();
    default:
        return normal_value(c);
    }
}

static float fill_value(trial_case *c, fill with, int64_t row, int64_t col) {
    switch (with) {
    case FILL_ANY_FINITE:
        return finite_value(c, c->problem.dtype_x);
    case FILL_TIES:
        return tie_value(c, col);
    case FILL_NONFINITE:
        return nonfinite_value(c);
    default: // each row on a scale of its own; the last row is zero
        return row == c->problem.rows - 1 ? 0 : ldexpf(normal_value(c), (int)(row % 24) - 12);
    }
}

static void fill_x(trial_case *c, fill with) {
    const qni_quantize_problem *p = &c->problem;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t col = 0; col < p->cols; col++)
            store_element(p->dtype_x, c->areas[X].before + c->areas[X].first, r * p->x_row + col,
                          fill_value(c, with, r, col));
}

/** A scale of any size; now and then any bits at all, a denormal, or one whose product with a small
 *  code lies so near a tie between two bf16 denormals that f32 cannot tell them apart. */
static float scale_value(trial_case *c) {
    const uint32_t bits = qni_random(&c->random);
    switch (qni_random(&c->random) % 16) {
    case 0:
        return __builtin_bit_cast(float, bits);
    case 1:
        return __builtin_bit_cast(float, bits >> 12);
    case 2: // times 3, 5, … 15 smallest steps of e4m3fn (2^-9) or e4m3fnuz: about 2^-134
        return __builtin_bit_cast(float, (UINT32_C(1) << (24 + bits / 8 % 2)) / (3 + bits % 7 * 2));
    default:
        return ldexpf(1.0f + (float)(bits >> 9) * 0x1p-23f, (int)(bits % 24) - 18);
    }
}

/** Every code. */
static void fill_quantized(trial_case *c) {
    const qni_quantize_problem *p = &c->problem;
    uint8_t *q = c->areas[Q].before + c->areas[Q].first;
    float *scale = (float *)(c->areas[SCALE].before + c->areas[SCALE].first);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t col = 0; col < p->cols; col++)
            q[r * p->q_row + col] = (uint8_t)qni_random(&c->random);
    const int64_t scale_rows = (p->rows + p->block_rows - 1) / p->block_rows;
    for (int64_t r = 0; r < scale_rows; r++)
        for (int64_t col = 0; col < qni_quantize_block_cols(p); col++)
            scale[r * p->scale_row + col] = scale_value(c);
}

static qn_status upload(trial_case *c, qn_stream *stream) {
    for (int i = 0; i < NUM_AREAS; i++) {
        const area *a = &c->areas[i];
        const qn_status st = stream->device->backend->copy(stream, a->device, a->before, a->bytes,
                                                           QNI_COPY_TO_DEVICE);
        if (st != QN_OK)
            return st;
    }
    return QN_OK;
}

static qn_status reset(void *context, qn_stream *stream) {
    return upload(context, stream);
}

/** Says where the first wrong byte is and gives how many there are. */
static int64_t compare_area(const trial_case *c, int which, char *detail, size_t room) {
    static const char *const names[NUM_AREAS] = {"scale", "q", "x"};
    const qni_quantize_problem *p = &c->problem;
    const int64_t element[] = {4, 1, qni_element_bytes(p->dtype_x)};
    const int64_t stride[] = {p->scale_row, p->q_row, p->x_row};
    const area *a = &c->areas[which];
    int64_t wrong = 0;
    for (int64_t i = 0; i < a->bytes; i++) {
        if (a->got[i] == a->after[i] || wrong++ > 0)
            continue;
        const int64_t at = i - a->first, index = at / element[which];
        const int64_t in_row = which == SCALE ? qni_quantize_block_cols(p) : p->cols;
        if (at >= 0 && index % stride[which] < in_row && i < a->bytes - guard_bytes)
            snprintf(detail, room, "%s[%ld, %ld]: byte %ld is 0x%02x, reference 0x%02x",
                     names[which], (long)(index / stride[which]), (long)(index % stride[which]),
                     (long)(at % element[which]), a->got[i], a->after[i]);
        else
            snprintf(detail, room, "wrote outside %s, %ld bytes from its first element",
                     names[which], (long)at);
    }
    return wrong;
}

/** Tolerance: none. *error is the number of wrong bytes, plus one so that a single one fails. */
static qn_status compare(void *context, qn_stream *stream, double *error, char *detail,
                         size_t room) {
    trial_case *c = context;
    int64_t wrong = 0;
    *detail = 0;
    for (int i = 0; i < NUM_AREAS; i++) {
        const area *a = &c->areas[i];
        qn_status st =
            stream->device->backend->copy(stream, a->got, a->device, a->bytes, QNI_COPY_TO_HOST);
        if (st != QN_OK)
            return st;
        if (memcmp(a->got, a->after, (size_t)a->bytes) != 0 && wrong == 0)
            wrong = compare_area(c, i, detail, room);
    }
    *error = wrong == 0 ? 0 : (double)wrong + 1;
    return QN_OK;
}

static qn_status make_areas(trial_case *c, const shape *s) {
    qni_quantize_problem *p = &c->problem;
    const int64_t scale_rows = (p->rows + p->block_rows - 1) / p->block_rows;
    QN_TRY(
        area_create(c, &c->areas[X], p->rows, p->x_row, s->offset, qni_element_bytes(p->dtype_x)));
    QN_TRY(area_create(c, &c->areas[Q], p->rows, p->q_row, s->offset, 1));
    QN_TRY(area_create(c, &c->areas[SCALE], scale_rows, p->scale_row, s->offset, 4));
    p->x = (char *)c->areas[X].device + c->areas[X].first;
    p->q = (uint8_t *)c->areas[Q].device + c->areas[Q].first;
    p->scale = (float *)((char *)c->areas[SCALE].device + c->areas[SCALE].first);
    return QN_OK;
}

/** The inputs, and what the definition makes of them. */
static void make_contents(trial_case *c, fill with) {
    if (c->dequantizes)
        fill_quantized(c);
    else
        fill_x(c, with);
    for (int i = 0; i < NUM_AREAS; i++)
        memcpy(c->areas[i].after, c->areas[i].before, (size_t)c->areas[i].bytes);
    const qni_quantize_problem p = on_host(c);
    if (c->dequantizes)
        qni_dequantize_ref(&p);
    else
        qni_quantize_ref(&p);
    c->output_list[0] = &c->areas[c->dequantizes ? X : Q].flat;
    c->output_list[1] = &c->areas[SCALE].flat;
    c->num_outputs = c->dequantizes ? 1 : 2;
}

static void describe(trial_case *c, const shape *s, fill with) {
    const qni_quantize_problem *p = &c->problem;
    const char *q = qni_dtype_name((qni_dtype)(QNI_E4M3FN + (int)p->kind));
    const char *x = qni_dtype_name(p->dtype_x);
    snprintf(c->text, sizeof c->text, "rows=%ld cols=%ld gaps=%ld,%ld block=%ldx128 %s->%s %s",
             (long)s->rows, (long)s->cols, (long)s->x_gap, (long)s->q_gap, (long)p->block_rows,
             c->dequantizes ? q : x, c->dequantizes ? x : q,
             c->dequantizes ? "any-code" : fill_names[with]);
}

static qn_status try_one(qni_trial_run *run, const qni_op *op, const shape *s, qni_dtype dtype,
                         qni_fp8 kind, int64_t block_rows, fill with) {
    trial_case *c = calloc(1, sizeof *c);
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    qn_status st;
    c->owner = qn_stream_device(qni_trial_stream(run));
    c->dequantizes = op == &qni_op_dequantize;
    c->random = qni_trial_seed(run) + (uint64_t)(s - shapes) * 1000 + (uint64_t)kind;
    c->problem = (qni_quantize_problem){.dtype_x = dtype,
                                        .kind = kind,
                                        .rows = s->rows,
                                        .cols = s->cols,
                                        .block_rows = block_rows,
                                        .x_row = s->cols + s->x_gap,
                                        .q_row = s->cols + s->q_gap,
                                        .eps = 1e-4f};
    c->problem.scale_row = qni_quantize_block_cols(&c->problem) + s->q_gap;
    QN_TRY_OUT(make_areas(c, s));
    make_contents(c, with);
    describe(c, s, with);
    const qni_trial_problem problem = {.op = op,
                                       .text = c->text,
                                       .problem = &c->problem,
                                       .context = c,
                                       .reset = reset,
                                       .compare = compare,
                                       .outputs = c->output_list,
                                       .num_outputs = c->num_outputs};
    QN_TRY_OUT(qni_trial_problem_run(run, &problem));
out:
    case_destroy(c);
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    if (op == &qni_op_quantize_rows)
        return qni_quantize_rows_try(run, op);
    const bool quick = qni_trial_is_quick(run);
    const int num_shapes = sizeof shapes / sizeof *shapes;
    int turn = 0; // fills, kinds and dtypes take turns over the shapes
    for (int i = 0; i < num_shapes; i++)
        for (int kind = 0; kind < (quick ? 2 : QNI_NUM_FP8); kind++)
            for (int dtype = QNI_F32; dtype <= QNI_BF16; dtype++)
                for (int64_t block_rows = 1; block_rows <= QNI_BLOCK; block_rows += QNI_BLOCK - 1) {
                    turn++;
                    if (quick && turn % 5 != 0)
                        continue;
                    const qn_status st =
                        try_one(run, op, &shapes[i], (qni_dtype)dtype, (qni_fp8)kind, block_rows,
                                (fill)(turn % NUM_FILLS));
                    if (st != QN_OK)
                        return st;
                }
    return qni_quantize_vectors_try(run, op);
}

static const qni_op *const ops[] = {&qni_op_quantize, &qni_op_dequantize, &qni_op_quantize_rows,
                                    nullptr};
const qni_family qni_family_quantize = {"quantize", ops, try_op};
