// SPDX-License-Identifier: Apache-2.0
// What bench's measurements share: events around a call, medians, a copy of as many bytes, filled tensors.
#ifndef CLI_TIMING_H
#define CLI_TIMING_H

#include "measure.h"
#include "number.h"

enum { WARM_UP = 2 };

/** Times of one side's runs. */
typedef struct timer {
    qn_event *start, *end;
    int64_t *times;
    int count;
} timer;

qn_status timer_open(timer *t, cli_device *device, int runs);
void timer_close(timer *t);
/** Runs body once; its time counts if it is no warm-up. */
qn_status timer_run(timer *t, cli_device *device, qn_status (*body)(void *), void *context,
                    bool counts);
/** Sorts the times and gives the middle one. */
int64_t timer_median(timer *t);

/** A tensor of values that differ: bf16 near 1 in size, small f32 above zero, FP8 codes other than NaN,
 *  i32 that count from 0. */
qn_status timing_make_filled(cli_tensor *out, cli_device *device, DLDataType dtype, int ndim,
                             const int64_t *shape, cli_random *random);

/** Runs of body in turns with copies that read and write out->bytes in all; fills in times and kernel. */
qn_status timing_beside_copy(measurement *out, cli_device *device, qn_status (*body)(void *),
                             void *context, int runs);

#endif
