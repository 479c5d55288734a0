// SPDX-License-Identifier: Apache-2.0
// Areas: guarded device memory with expectations.
#include "area.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

constexpr int64_t guard_bytes = 256;
constexpr uint8_t poison = 0xFF;
constexpr double touched = 1e9; // the error of a byte that should have been left alone

qn_status qni_area_create(qni_area *a, const char *name, qn_device *owner, qni_dtype dtype,
                          int64_t count, int64_t offset) {
    const int64_t size = qni_dtype_bytes(dtype);
    *a = (qni_area){.name = name, .dtype = dtype, .owner = owner, .count = count};
    a->first = guard_bytes + offset * size;
    a->bytes = a->first + count * size + guard_bytes;
    a->before = malloc((size_t)a->bytes);
    a->got = malloc((size_t)a->bytes);
    a->want = calloc((size_t)count + 1, sizeof *a->want);
    a->tolerance = malloc(((size_t)count + 1) * sizeof *a->tolerance);
    if (!a->before || !a->got || !a->want || !a->tolerance)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory for %ld elements", (long)count);
    memset(a->before, poison, (size_t)a->bytes);
    for (int64_t i = 0; i < count; i++)
        a->tolerance[i] = -1;
    qn_status st = qn_malloc(owner, &a->device, a->bytes);
    a->flat = (DLTensor){.data = a->device,
                         .device = qn_device_id(owner),
                         .ndim = 1,
                         .dtype = qni_dl_dtype(QNI_U8),
                         .shape = &a->bytes};
    return st;
}

void qni_area_destroy(qni_area *a) {
    free(a->before);
    free(a->got);
    free(a->want);
    free(a->tolerance);
    qn_free(a->owner, a->device);
    *a = (qni_area){};
}

void qni_area_expect(qni_area *a, int64_t i, double want, double tolerance) {
    a->want[i] = want;
    a->tolerance[i] = tolerance;
}

qn_status qni_area_reset(qni_area *a, qn_stream *stream) {
    return stream->device->backend->copy(stream, a->device, a->before, a->bytes,
                                         QNI_COPY_TO_DEVICE);
}

/** How far element i is off, over what it may be: its tolerance and the rounding of the last step. */
static double element_error(const qni_area *a, int64_t i, double got) {
    const double want = a->want[i], tolerance = a->tolerance[i];
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    const double most = qni_max(a->dtype);
    const double bounded = want > most ? most : want < -most ? -most : want;
    if (isinf(got)) // right if what must be there, or a value within tolerance of it, rounds to it
        return qni_round_to(a->dtype, want + copysign(tolerance, got)) == got ? 0 : HUGE_VAL;
    if (isinf(qni_round_to(a->dtype, fabs(want) - tolerance)))
        return HUGE_VAL;
    const double allowed = tolerance + qni_spacing(a->dtype, fabs(bounded) + tolerance) / 2;
    return fabs(got - bounded) / allowed;
}

/** Looks at everything but expected elements: the bytes must be what they were. */
static bool find_touched(const qni_area *a, int64_t *byte) {
    const int64_t size = qni_dtype_bytes(a->dtype);
    for (*byte = 0; *byte < a->bytes; ++*byte) {
        const int64_t i = *byte < a->first ? -1 : (*byte - a->first) / size;
        const bool is_expected = i >= 0 && i < a->count && a->tolerance[i] >= 0;
        if (!is_expected && a->got[*byte] != a->before[*byte])
            return true;
    }
    return false;
}

qn_status qni_area_compare(qni_area *a, qn_stream *stream, double *error, char *detail,
                           size_t room) {
    int64_t byte;
    qn_status st =
        stream->device->backend->copy(stream, a->got, a->device, a->bytes, QNI_COPY_TO_HOST);
    if (st != QN_OK)
        return st;
    for (int64_t i = 0; i < a->count; i++) {
        if (a->tolerance[i] < 0)
            continue;
        const double got = qni_get(a->dtype, a->got + a->first, i), e = element_error(a, i, got);
        if (e <= *error)
            continue;
        *error = e;
        snprintf(detail, room, "%s[%ld] is %.9g, must be %.9g within %.3g", a->name, (long)i, got,
                 a->want[i], a->tolerance[i]);
    }
    if (*error < touched && find_touched(a, &byte)) {
        *error = touched;
        snprintf(detail, room, "%s: byte %ld from its first element was 0x%02x and is 0x%02x",
                 a->name, (long)(byte - a->first), a->before[byte], a->got[byte]);
    }
    return QN_OK;
}

/** The areas of a problem. */
typedef struct areas {
    qni_area *list;
    int count;
} areas;

static qn_status reset_all(void *context, qn_stream *stream) {
    const areas *all = context;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < all->count; i++)
        if (all->list[i].owner)
            st = qni_area_reset(&all->list[i], stream);
    return st;
}

static qn_status compare_all(void *context, qn_stream *stream, double *error, char *detail,
                             size_t room) {
    const areas *all = context;
    qn_status st = QN_OK;
    *error = 0;
    *detail = 0;
    for (int i = all->count - 1; st == QN_OK && i >= 0; i--)
        if (all->list[i].owner)
            st = qni_area_compare(&all->list[i], stream, error, detail, room);
    return st;
}

static bool has_expectation(const qni_area *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->tolerance[i] >= 0)
            return true;
    return false;
}

qn_status qni_areas_check(qni_check_run *run, const qni_op *op, const void *problem,
                          const char *text, qni_area *list, int count) {
    const DLTensor *outputs[8];
    int num_outputs = 0;
    for (int i = 0; i < count; i++)
        if (list[i].owner && has_expectation(&list[i])) {
            assert(num_outputs < (int)(sizeof outputs / sizeof *outputs));
            outputs[num_outputs++] = &list[i].flat;
        }
    return qni_check_problem_run(run, &(qni_check_problem){.op = op,
                                                           .text = text,
                                                           .problem = problem,
                                                           .context = &(areas){list, count},
                                                           .reset = reset_all,
                                                           .compare = compare_all,
                                                           .outputs = outputs,
                                                           .num_outputs = num_outputs});
}

void qni_areas_destroy(qni_area *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i].owner)
            qni_area_destroy(&list[i]);
}

uint32_t qni_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (uint32_t)(z >> 32);
}

double qni_random_normal(uint64_t *state) {
    double sum = 0; // of twelve uniform values: variance 1
    for (int i = 0; i < 12; i++)
        sum += (double)qni_random(state) * 0x1p-32;
    return sum - 6;
}
