// SPDX-License-Identifier: Apache-2.0
// How every family's cases are made, tried and freed.
#include "case.h"

#include <assert.h>
#include <stdlib.h>

/** Creates and fills the areas; *stride becomes the largest distance of two rows. */
static qn_status make_areas(qni_case *c, qn_device *device, int64_t *stride) {
    assert(c->kind->num_tensors <= (int)(sizeof c->areas / sizeof *c->areas));
    for (int i = 0; i < c->kind->num_tensors; i++) {
        const qni_extent e = c->kind->extent_of(c, i);
        if (e.rows == 0)
            continue;
        *stride = e.stride > *stride ? e.stride : *stride;
        QN_TRY(qni_area_create_rows(&c->areas[i], c->kind->names[i], device, e.dtype, e.rows, e.row,
                                    e.stride, e.offset));
        c->kind->fill(c, i);
    }
    return QN_OK;
}

static qn_status make_expectations(qni_case *c) {
    void *scratch = malloc(c->scratch_bytes);
    if (!scratch && c->scratch_bytes > 0)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory for %zu bytes", c->scratch_bytes);
    c->kind->place(c, true);
    c->kind->expect(c, scratch);
    free(scratch);
    return QN_OK;
}

qn_status qni_case_try(qni_trial_run *run, qni_case *c) {
    int64_t stride = 0;
    qn_status st;
    QN_TRY_OUT(make_areas(c, qn_stream_device(qni_trial_stream(run)), &stride));
    QN_TRY_OUT(make_expectations(c));
    QN_TRY_OUT(qni_areas_try(run, c->op, c->kind->place(c, false), c->text, c->areas,
                             c->kind->num_tensors));
out:
    st = qni_areas_excuse_far(run, c->op, c->text, stride, st);
    qni_areas_destroy(c->areas, c->kind->num_tensors);
    return st;
}
