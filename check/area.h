// SPDX-License-Identifier: Apache-2.0
// A tensor of a check: its memory on the device between guards, and what must be there after a run.
//
// An op's check fills areas, runs its definition, which says of each element that is to be written
// what it must be and how far off it may be, and compares. Whatever no expectation names must keep
// its bytes: inputs, gaps between rows, guards.
#ifndef QNI_AREA_H
#define QNI_AREA_H

#include "../ops/shared/elements.h"
#include "check.h"

typedef struct qni_area {
    const char *name;
    qni_dtype dtype;
    void *device;
    uint8_t *before, *got; // host copies of the whole
    int64_t bytes, first;  // of the whole; byte of the first element
    double *want;          // of each element
    double *tolerance;     // of each element; below 0: it keeps its bytes
    int64_t count;
    int64_t rows, row, stride; // elements i * stride .. + row - 1 exist; dense: one row of all
    qn_device *owner;
    DLTensor flat; // the whole, as bytes; of far rows, [rows, bytes with guards]
    int64_t flat_shape[2], flat_strides[2];
} qni_area;

/** Room for `count` elements, the first of them `offset` elements behind an address of 256 bytes.
 *  All bytes are a poison, 0xFF, which is a NaN of every dtype. */
qn_status qni_area_create(qni_area *area, const char *name, qn_device *owner, qni_dtype dtype,
                          int64_t count, int64_t offset);
/** The same for `rows` rows of `row` elements, `stride` apart. Where that is far, only the rows and
 *  guards around each of them are filled and compared, and host memory behind all else is never
 *  touched. */
qn_status qni_area_create_rows(qni_area *area, const char *name, qn_device *owner, qni_dtype dtype,
                               int64_t rows, int64_t row, int64_t stride, int64_t offset);
void qni_area_destroy(qni_area *area);

/** A stride in elements that does not fit 31 bits, and twice that not 32, so far rows are three;
 *  the fast kernels take it. */
constexpr int64_t qni_far = (INT64_C(1) << 31) + 64;
/** Gives back st; but a problem that lacked memory, which its stride excuses, is reported as left
 *  out, and that is QN_OK. */
qn_status qni_areas_excuse_far(qni_trial_run *run, const qni_op *op, const char *text,
                               int64_t stride, qn_status st);

/** The elements in host memory, as they are before a run; and their place on the device. */
static inline void *qni_area_host(const qni_area *area) {
    return area->before + area->first;
}
static inline void *qni_area_device(const qni_area *area) {
    return (char *)area->device + area->first;
}
/** One or the other; null if there is no such area. */
static inline void *qni_area_data(const qni_area *area, bool on_host) {
    if (!area->owner)
        return nullptr;
    return on_host ? qni_area_host(area) : qni_area_device(area);
}

/** Element i must be `want`, give or take `tolerance`, rounded to the dtype; NaN for NaN, infinity
 *  for the same. */
void qni_area_expect(qni_area *area, int64_t i, double want, double tolerance);

/** Exact results of f32 arithmetic, y[0] to y[count - 1], and how far each may be off. */
typedef struct qni_exact {
    const double *y, *error;
    int64_t count;
} qni_exact;
/** Elements at, at + 1, … of codes must be those results, divided by a scale that is itself off by
 *  scale_error of it. */
void qni_area_expect_codes(qni_area *codes, int64_t at, qni_exact exact, double scale,
                           double scale_error);
/** Elements i, i + 1, … of scales, each of `group` results, must bring the largest of these, or
 *  least if that is larger, to the largest FP8 number of the codes' kind; and the codes be divided
 *  by them. */
void qni_area_expect_found_scales(qni_area *scales, int64_t i, qni_area *codes, int64_t at,
                                  qni_exact exact, int64_t group, double least);

/** Puts the bytes of before on the device. */
qn_status qni_area_reset(qni_area *area, qn_stream *stream);
/** Fetches the device's bytes. *error becomes the largest error over tolerance if that is larger
 *  than it was, and detail says where; a byte changed that should not have been counts as 1e9. */
qn_status qni_area_compare(qni_area *area, qn_stream *stream, double *error, char *detail,
                           size_t room);

/** The areas of a problem; those never created do not count. */
typedef struct qni_areas {
    qni_area *list;
    int count;
} qni_areas;
/** Of a qni_trial_problem whose context begins with a qni_areas: qni_area_reset and
 *  qni_area_compare for each. */
qn_status qni_areas_reset(void *context, qn_stream *stream);
qn_status qni_areas_compare(void *context, qn_stream *stream, double *error, char *detail,
                            size_t room);

/** Runs every kernel of an op on a problem whose tensors are these areas: each is reset before a
 *  run and compared after it, the last first, so that a wrong scale is told before its codes. Those
 *  with an expectation are the outputs, whose bits must be the same in every run. `text` names the
 *  problem. */
qn_status qni_areas_try(qni_trial_run *run, const qni_op *op, const void *problem, const char *text,
                        qni_area *areas, int count);
void qni_areas_destroy(qni_area *areas, int count);

/** splitmix64; and a value near a normal distribution of variance 1. */
uint32_t qni_random(uint64_t *state);
double qni_random_normal(uint64_t *state);

#endif
