// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel for quantisation along rows, and how every CPU kernel's rows are shared
// among threads.
#include "rows_simd.h"

/** Elements of one task: enough that starting a task costs nothing beside it. */
constexpr int64_t task_elements = 1 << 16;

typedef struct shared_rows {
    const qni_rows_problem *p;
    const qni_rows_fns *fns;
    int64_t per_task;
    float scale; // the tensor's scale
} shared_rows;

static int64_t end_of(const shared_rows *s, int64_t i) {
    const int64_t end = (i + 1) * s->per_task;
    return end < s->p->rows ? end : s->p->rows;
}

/** Writes a task's largest magnitude to the workspace, which has a place for each task. */
static void find_maximum(void *context, int64_t i) {
    const shared_rows *s = context;
    float amax = 0;
    for (int64_t r = i * s->per_task; r < end_of(s, i); r++) {
        const float of_row = s->fns->amax(s->p, r, 0, s->p->cols);
        amax = of_row > amax ? of_row : amax;
    }
    s->p->maxima[i] = __builtin_bit_cast(uint32_t, amax);
}

static void quantize_row(const shared_rows *s, int64_t row) {
    const qni_rows_problem *p = s->p;
    float scale = s->scale;
    for (int64_t i = 0; i < qni_rows_groups(p); i++) {
        const int64_t col = i * p->group, left = p->cols - col;
        const int64_t count = left < p->group ? left : p->group;
        if (!qni_rows_has_one_scale(p)) {
            scale = qni_rows_scale(p, s->fns->amax(p, row, col, count));
            qni_rows_put_scale(p, row, i, scale);
        }
        s->fns->encode(p, row, col, count, 1.0f / scale);
    }
}

static void quantize_rows(void *context, int64_t i) {
    const shared_rows *s = context;
    for (int64_t r = i * s->per_task; r < end_of(s, i); r++)
        quantize_row(s, r);
}

static float tensor_scale(shared_rows *s, int64_t tasks) {
    float amax = 0;
    qni_parallel(tasks, find_maximum, s);
    for (int64_t i = 0; i < tasks; i++) {
        const float of_task = __builtin_bit_cast(float, s->p->maxima[i]);
        amax = of_task > amax ? of_task : amax;
    }
    return *(float *)s->p->scale = qni_rows_scale(s->p, amax);
}

qn_status qni_rows_on_threads(const qni_rows_problem *p, const qni_rows_fns *kernels) {
    const int64_t few = 1 + task_elements / p->cols;
    const int64_t least = (p->rows + QNI_ROWS_MAXIMA - 1) / QNI_ROWS_MAXIMA;
    shared_rows s = {p, kernels, few > least ? few : least, 0};
    const int64_t tasks = (p->rows + s.per_task - 1) / s.per_task;
    if (p->form == QNI_SCALE_GIVEN)
        s.scale = *(const float *)p->scale;
    else if (p->form == QNI_SCALE_TENSOR)
        s.scale = tensor_scale(&s, tasks);
    qni_parallel(tasks, quantize_rows, &s);
    return QN_OK;
}

qn_status qni_rows_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rows_on_threads(problem, &fns);
}
