// SPDX-License-Identifier: Apache-2.0
// Areas: guarded device memory with expectations.
#include "area.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

constexpr int64_t guard_bytes = 256;
constexpr double touched = 1e9; // the error of a byte that was written but must not be

/** Rows further apart than this are separate pieces. */
constexpr int64_t far_bytes = 1 << 20;

/** Makes host memory. If rows lie far apart, only pages that are written take memory. */
static void *room_create(const qni_area *a, int64_t bytes) {
    if (a->rows == 1)
        return malloc((size_t)bytes);
    void *room = mmap(nullptr, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room == MAP_FAILED ? nullptr : room;
}

static void room_destroy(const qni_area *a, void *room, int64_t bytes) {
    if (a->rows == 1)
        free(room);
    else if (room)
        munmap(room, (size_t)bytes);
}

/** Returns a byte that makes a NaN of the dtype, if the dtype has one. */
static int poison_of(qni_dtype dtype) {
    return dtype == QNI_E4M3FNUZ || dtype == QNI_E5M2FNUZ ? 0x80 : 0xFF;
}

/** Returns the byte of the area at which row i and its guards begin. */
static int64_t piece_begin(const qni_area *a, int64_t i) {
    return i * a->stride * qni_dtype_bytes(a->dtype);
}
static int64_t piece_bytes(const qni_area *a) {
    return a->first + a->row * qni_dtype_bytes(a->dtype) + guard_bytes;
}

static int64_t doubles_bytes(const qni_area *a) {
    return (a->count + 1) * (int64_t)sizeof(double);
}

static qn_status make_rooms(qni_area *a) {
    a->before = room_create(a, a->bytes);
    a->got = room_create(a, a->bytes);
    a->want = room_create(a, doubles_bytes(a));
    a->tolerance = room_create(a, doubles_bytes(a));
    if (!a->before || !a->got || !a->want || !a->tolerance)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory for %ld elements", (long)a->count);
    for (int64_t r = 0; r < a->rows; r++) {
        memset(a->before + piece_begin(a, r), poison_of(a->dtype), (size_t)piece_bytes(a));
        for (int64_t i = r * a->stride; i < r * a->stride + a->row; i++)
            a->tolerance[i] = -1;
    }
    return QN_OK;
}

qn_status qni_area_create_rows(qni_area *a, const char *name, qn_device *owner, qni_dtype dtype,
                               int64_t rows, int64_t row, int64_t stride, int64_t offset) {
    const int64_t size = qni_dtype_bytes(dtype);
    const bool is_far = rows > 1 && (stride - row) * size > far_bytes;
    *a = (qni_area){.name = name,
                    .dtype = dtype,
                    .owner = owner,
                    .count = (rows - 1) * stride + row,
                    .rows = is_far ? rows : 1,
                    .stride = stride,
                    .first = guard_bytes + offset * size};
    a->row = is_far ? row : a->count;
    a->bytes = a->first + a->count * size + guard_bytes;
    a->flat_shape[0] = a->rows, a->flat_shape[1] = piece_bytes(a);
    a->flat_strides[0] = stride * size, a->flat_strides[1] = 1;
    QN_TRY(make_rooms(a));
    QN_TRY(qn_malloc(owner, &a->device, a->bytes));
    a->flat = (DLTensor){.data = a->device,
                         .device = qn_device_id(owner),
                         .ndim = 2,
                         .dtype = qni_dl_dtype(QNI_U8),
                         .shape = a->flat_shape,
                         .strides = a->flat_strides};
    return QN_OK;
}

qn_status qni_area_create(qni_area *a, const char *name, qn_device *owner, qni_dtype dtype,
                          int64_t count, int64_t offset) {
    return qni_area_create_rows(a, name, owner, dtype, 1, count, count + 1, offset);
}

void qni_area_destroy(qni_area *a) {
    room_destroy(a, a->before, a->bytes);
    room_destroy(a, a->got, a->bytes);
    room_destroy(a, a->want, doubles_bytes(a));
    room_destroy(a, a->tolerance, doubles_bytes(a));
    qn_free(a->owner, a->device);
    *a = (qni_area){};
}

void *qni_area_draft(qni_area *a) {
    for (int64_t r = 0; r < a->rows; r++)
        memcpy(a->got + piece_begin(a, r), a->before + piece_begin(a, r), (size_t)piece_bytes(a));
    return a->got + a->first;
}

void qni_area_expect(qni_area *a, int64_t i, double want, double tolerance) {
    a->want[i] = want;
    a->tolerance[i] = tolerance;
}

qn_status qni_area_reset(qni_area *a, qn_stream *stream) {
    qn_status st = QN_OK;
    for (int64_t r = 0; st == QN_OK && r < a->rows; r++)
        st = stream->device->backend->copy(stream, (char *)a->device + piece_begin(a, r),
                                           a->before + piece_begin(a, r), piece_bytes(a),
                                           QNI_COPY_TO_DEVICE);
    return st;
}

/** Returns how far element i is off, over how far it may be: by its tolerance and the rounding of
 *  the last step. */
static double element_error(const qni_area *a, int64_t i, double got) {
    const double want = a->want[i], tolerance = a->tolerance[i];
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (tolerance == 0)
        return got == qni_round_to(a->dtype, want) ? 0 : HUGE_VAL;
    const double most = qni_max(a->dtype);
    const double bounded = want > most ? most : want < -most ? -most : want;
    if (isinf(got)) // right if the expected value, or one within its tolerance, rounds to infinity
        return qni_round_to(a->dtype, want + copysign(tolerance, got)) == got ? 0 : HUGE_VAL;
    if (isinf(qni_round_to(a->dtype, fabs(want) - tolerance)))
        return HUGE_VAL;
    const double allowed = tolerance + qni_spacing(a->dtype, fabs(bounded) + tolerance) / 2;
    return fabs(got - bounded) / allowed;
}

/** Returns whether element i's error is certainly no more than `error`, as the element may be off
 *  by its tolerance at least. This settles nearly all elements, at a fraction of element_error's
 *  cost. */
static bool is_nearer(const qni_area *a, int64_t i, double got, double error) {
    return got == a->want[i] || (fabs(a->want[i]) <= qni_max(a->dtype) &&
                                 fabs(got - a->want[i]) < error * a->tolerance[i]);
}

/** Finds the first changed byte from `begin` on, before `end`. Returns false if there is none. */
static bool find_change(const qni_area *a, int64_t begin, int64_t end, int64_t *byte) {
    if (memcmp(a->got + begin, a->before + begin, (size_t)(end - begin)) == 0)
        return false;
    for (*byte = begin; a->got[*byte] == a->before[*byte];)
        ++*byte;
    return true;
}

/** Finds a changed byte of row r or its guards that no expectation names. */
static bool find_touched_in_row(const qni_area *a, int64_t r, int64_t *byte) {
    const int64_t size = qni_dtype_bytes(a->dtype), begin = piece_begin(a, r),
                  first = begin + a->first, last = first + a->row * size;
    if (!find_change(a, begin, begin + piece_bytes(a), byte))
        return false; // most inputs
    if (find_change(a, begin, first, byte) || find_change(a, last, last + guard_bytes, byte))
        return true;
    for (int64_t i = 0; i < a->row; i++)
        if (a->tolerance[r * a->stride + i] < 0 &&
            find_change(a, first + i * size, first + (i + 1) * size, byte))
            return true;
    return false;
}

/** Finds a changed byte outside the expected elements. Returns false if there is none. */
static bool find_touched(const qni_area *a, int64_t *byte) {
    for (int64_t r = 0; r < a->rows; r++)
        if (find_touched_in_row(a, r, byte))
            return true;
    return false;
}

/** Finds the worst of a row's elements, if it is worse than *error. */
static void compare_row(const qni_area *a, int64_t r, double *error, char *detail, size_t room) {
    for (int64_t i = r * a->stride; i < r * a->stride + a->row; i++) {
        if (a->tolerance[i] < 0)
            continue;
        const double got = qni_get(a->dtype, a->got + a->first, i);
        if (is_nearer(a, i, got, *error))
            continue;
        const double e = element_error(a, i, got);
        if (e <= *error)
            continue;
        *error = e;
        snprintf(detail, room, "%s[%ld] is %.9g, must be %.9g within %.3g", a->name, (long)i, got,
                 a->want[i], a->tolerance[i]);
    }
}

qn_status qni_area_compare(qni_area *a, qn_stream *stream, double *error, char *detail,
                           size_t room) {
    int64_t byte;
    for (int64_t r = 0; r < a->rows; r++) {
        const qn_status st = stream->device->backend->copy(stream, a->got + piece_begin(a, r),
                                                           (char *)a->device + piece_begin(a, r),
                                                           piece_bytes(a), QNI_COPY_TO_HOST);
        if (st != QN_OK)
            return st;
        compare_row(a, r, error, detail, room);
    }
    if (*error < touched && find_touched(a, &byte)) {
        *error = touched;
        snprintf(detail, room, "%s: byte %ld from its first element was 0x%02x and is 0x%02x",
                 a->name, (long)(byte - a->first), a->before[byte], a->got[byte]);
    }
    return QN_OK;
}

// ---- expectations of FP8 codes with scales

void qni_area_expect_codes(qni_area *codes, int64_t at, qni_exact exact, double scale,
                           double scale_error) {
    for (int64_t i = 0; i < exact.count; i++) {
        const double q = exact.y[i] / scale;
        qni_area_expect(codes, at + i, q,
                        exact.error[i] / scale + fabs(q) * (scale_error + 4 * 0x1p-24));
    }
}

/** Expects a computed scale and its codes. */
static void expect_found_scale(qni_area *scale, int64_t i, qni_area *codes, int64_t at,
                               qni_exact exact, double least) {
    double amax = 0, error = 0;
    for (int64_t n = 0; n < exact.count; n++) {
        amax = fmax(amax, fabs(exact.y[n]));
        error = fmax(error, exact.error[n]);
    }
    const double clamped = fmax(amax, least);
    const double most = (double)qni_fp8_format_of(qni_fp8_of(codes->dtype)).max;
    qni_area_expect(scale, i, clamped / most, error / most + 0x1p-24 * clamped / most);
    qni_area_expect_codes(codes, at, exact, clamped / most, error / clamped + 2 * 0x1p-24);
}

void qni_area_expect_found_scales(qni_area *scales, int64_t i, int64_t step, qni_area *codes,
                                  int64_t at, qni_exact exact, int64_t group, double least) {
    for (int64_t n = 0; n < exact.count; n += group) {
        const int64_t count = n + group < exact.count ? group : exact.count - n;
        expect_found_scale(scales, i + n / group * step, codes, at + n,
                           (qni_exact){exact.y + n, exact.error + n, count}, least);
    }
}

// ---- running all kernels

qn_status qni_areas_reset(void *context, qn_stream *stream) {
    const qni_areas *all = context;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < all->count; i++)
        if (all->list[i].owner)
            st = qni_area_reset(&all->list[i], stream);
    return st;
}

qn_status qni_areas_compare(void *context, qn_stream *stream, double *error, char *detail,
                            size_t room) {
    const qni_areas *all = context;
    qn_status st = QN_OK;
    *error = 0;
    *detail = 0;
    for (int i = all->count - 1; st == QN_OK && i >= 0; i--)
        if (all->list[i].owner)
            st = qni_area_compare(&all->list[i], stream, error, detail, room);
    return st;
}

static bool has_expectation(const qni_area *a) {
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = r * a->stride; i < r * a->stride + a->row; i++)
            if (a->tolerance[i] >= 0)
                return true;
    return false;
}

qn_status qni_areas_try(qni_trial_run *run, const qni_op *op, const void *problem, const char *text,
                        qni_area *list, int count) {
    const DLTensor *outputs[8];
    int num_outputs = 0;
    for (int i = 0; i < count; i++)
        if (list[i].owner && has_expectation(&list[i])) {
            assert(num_outputs < (int)(sizeof outputs / sizeof *outputs));
            outputs[num_outputs++] = &list[i].flat;
        }
    return qni_trial_problem_run(run, &(qni_trial_problem){.op = op,
                                                           .text = text,
                                                           .problem = problem,
                                                           .context = &(qni_areas){list, count},
                                                           .reset = qni_areas_reset,
                                                           .compare = qni_areas_compare,
                                                           .outputs = outputs,
                                                           .num_outputs = num_outputs});
}

qn_status qni_areas_excuse_far(qni_trial_run *run, const qni_op *op, const char *text,
                               int64_t stride, qn_status st) {
    if (st != QN_E_MEMORY || stride < qni_far / 2)
        return st;
    qni_trial_problem_leave_out(run, op, text, qn_last_error());
    return QN_OK;
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
    double sum = 0; // a sum of twelve uniform values has variance 1
    for (int i = 0; i < 12; i++)
        sum += (double)qni_random(state) * 0x1p-32;
    return sum - 6;
}
