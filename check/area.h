// SPDX-License-Identifier: Apache-2.0
// A tensor of a check: memory on the device between guards, and what the memory must hold after a
// run.
//
// An op's check fills areas, runs the op's definition, and compares. The definition says what each
// written element must be, and how far off it may be. Bytes that no expectation names must stay as
// they are: inputs, gaps between rows, guards.
#ifndef QNI_AREA_H
#define QNI_AREA_H

#include "../ops/shared/elements.h"
#include "check.h"

typedef struct qni_area {
    const char *name;
    qni_dtype dtype;
    void *device;
    uint8_t *before, *got; // host copies of the area, guards and all: before and after a run
    int64_t bytes, first;  // bytes of the area; the first element begins at byte `first`
    double *want;          // what each element must be
    double *tolerance;     // how far off each element may be; below 0: it must keep its bytes
    int64_t count;
    int64_t rows, row, stride; // row i is elements i * stride .. i * stride + row - 1; dense: 1 row
    qn_device *owner;
    DLTensor flat; // the area as bytes; of far rows, [rows, bytes with guards]
    int64_t flat_shape[2], flat_strides[2];
} qni_area;

/** Makes an area of `count` elements, of which the first lies `offset` elements behind a multiple
 *  of 256 bytes. All bytes are a poison, a NaN of the dtype if it has one. */
qn_status qni_area_create(qni_area *area, const char *name, qn_device *owner, qni_dtype dtype,
                          int64_t count, int64_t offset);
/** Makes an area of `rows` rows of `row` elements, which begin `stride` elements apart. If the rows
 *  are far apart, only the rows and guards around each row are filled and compared, and the rest of
 *  the host's copies is never touched. */
qn_status qni_area_create_rows(qni_area *area, const char *name, qn_device *owner, qni_dtype dtype,
                               int64_t rows, int64_t row, int64_t stride, int64_t offset);
void qni_area_destroy(qni_area *area);

/** The stride of far rows, in elements. The second row's offset does not fit 31 bits, and the
 *  third's does not fit 32, so that three far rows try both. The fast kernels take this stride. */
constexpr int64_t qni_far = (INT64_C(1) << 31) + 64;
/** Returns st, the status of a problem. But if st is lack of memory, and `stride` is so large that
 *  this is no fault, reports the problem as left out and returns QN_OK. */
qn_status qni_areas_excuse_far(qni_trial_run *run, const qni_op *op, const char *text,
                               int64_t stride, qn_status st);

/** Returns the host's copy of the elements as they are before a run. */
static inline void *qni_area_host(const qni_area *area) {
    return area->before + area->first;
}
/** Returns the address of the elements on the device. */
static inline void *qni_area_device(const qni_area *area) {
    return (char *)area->device + area->first;
}
/** Returns qni_area_host or qni_area_device; null for an area that was never created. */
static inline void *qni_area_data(const qni_area *area, bool on_host) {
    if (!area->owner)
        return nullptr;
    return on_host ? qni_area_host(area) : qni_area_device(area);
}

/** Returns memory for a definition that writes the area's elements, which must not change: what the
 *  elements are before a run. It lasts until the area is compared. */
void *qni_area_draft(qni_area *area);

/** Expects element i to be `want`, plus or minus `tolerance`, rounded to the dtype. A `want` of NaN
 *  or infinity expects NaN or that infinity. A tolerance of 0 expects `want` rounded to nearest and
 *  no other value. */
void qni_area_expect(qni_area *area, int64_t i, double want, double tolerance);

/** Exact results y[0] .. y[count - 1], and the error that f32 arithmetic may make in each. */
typedef struct qni_exact {
    const double *y, *error;
    int64_t count;
} qni_exact;
/** Expects elements at, at + 1, … of codes to be the exact results divided by scale, whose relative
 *  error is at most scale_error. */
void qni_area_expect_codes(qni_area *codes, int64_t at, qni_exact exact, double scale,
                           double scale_error);
/** Expects elements i, i + step, … of scales to be the computed scales of the exact results, one
 *  for each `group` of them: the group's largest magnitude, or `least` if that is larger, divided
 *  by the largest number of the codes' FP8 kind. Expects codes from element `at` on to be the
 *  results divided by these scales. */
void qni_area_expect_found_scales(qni_area *scales, int64_t i, int64_t step, qni_area *codes,
                                  int64_t at, qni_exact exact, int64_t group, double least);

/** Copies area->before to the device. */
qn_status qni_area_reset(qni_area *area, qn_stream *stream);
/** Fetches the area from the device and compares it with what is expected. If the largest quotient
 *  of error and tolerance is above *error, *error becomes the quotient, and detail says where it
 *  is. A changed byte that no expectation names counts as 1e9. */
qn_status qni_area_compare(qni_area *area, qn_stream *stream, double *error, char *detail,
                           size_t room);

/** The areas of a problem. Areas that were never created are passed over. */
typedef struct qni_areas {
    qni_area *list;
    int count;
} qni_areas;
/** Functions for a qni_trial_problem whose context begins with a qni_areas: they call
 *  qni_area_reset and qni_area_compare for each area. */
qn_status qni_areas_reset(void *context, qn_stream *stream);
qn_status qni_areas_compare(void *context, qn_stream *stream, double *error, char *detail,
                            size_t room);

/** Runs every kernel of an op on a problem whose tensors are these areas; `text` names the problem.
 *  Each area is reset before a run and compared after it. The last area is compared first, so that
 *  a wrong scale is reported before the codes that it spoils. Areas with an expectation are the
 *  outputs, whose bits must be equal in every run. */
qn_status qni_areas_try(qni_trial_run *run, const qni_op *op, const void *problem, const char *text,
                        qni_area *areas, int count);
void qni_areas_destroy(qni_area *areas, int count);

/** Returns 32 random bits, by splitmix64. */
uint32_t qni_random(uint64_t *state);
/** Returns a random value of almost a normal distribution with variance 1. */
double qni_random_normal(uint64_t *state);

#endif
