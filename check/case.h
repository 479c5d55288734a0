// SPDX-License-Identifier: Apache-2.0
// A case: one problem of an op, from the memory of its tensors to the kernels' results. A family
// says what the tensors are, what they hold, and what the op must write; the rest is done here.
#ifndef QNI_CASE_H
#define QNI_CASE_H

#include "area.h"

/** The elements of a tensor: rows of `row` elements, which begin `stride` elements apart. The first
 *  lies `offset` elements behind a multiple of 256 bytes. Zero: the case has no such tensor. */
typedef struct qni_extent {
    qni_dtype dtype;
    int64_t rows, row, stride, offset;
} qni_extent;

/** Returns the extent of a tensor without gaps. */
static inline qni_extent qni_dense(qni_dtype dtype, int64_t count) {
    return (qni_extent){.dtype = dtype, .rows = 1, .row = count};
}

/** How a family makes its cases. The functions get the case, a struct that begins with a qni_case,
 *  and the number of a tensor. */
typedef struct qni_case_kind {
    const char *const *names; // of the tensors
    int num_tensors;
    qni_extent (*extent_of)(const void *context, int which);
    /** Fills a tensor on the host. Elements that are left alone keep their poison. */
    void (*fill)(void *context, int which);
    /** Writes the tensors' addresses, the host's or the device's, into the problem; returns it. */
    const void *(*place)(void *context, bool on_host);
    /** Expects what the op must write. The problem's tensors are the host's, which must keep what
     *  they hold. */
    void (*expect)(void *context, void *scratch);
} qni_case_kind;

typedef struct qni_case {
    const qni_case_kind *kind;
    const qni_op *op;
    size_t scratch_bytes; // of memory that `expect` gets
    uint64_t random;      // state of qni_random
    char text[200];       // names the problem
    qni_area areas[24];   // of the tensors
} qni_case;

/** Makes the tensors, tries every kernel on the problem (qni_areas_try), and frees the tensors. If
 *  there is too little memory for rows that lie far apart, the problem is reported as left out. */
qn_status qni_case_try(qni_trial_run *run, qni_case *c);

#endif
