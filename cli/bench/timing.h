// SPDX-License-Identifier: Apache-2.0
// What bench's measurements share: events around calls, medians, a copy of as many bytes, limits,
// filled tensors.
#ifndef CLI_TIMING_H
#define CLI_TIMING_H

#include "../number.h"
#include "../sim/clock.h"
#include "measure.h"

/** Returns how many runs come before those that count: caches and code are then warm. */
int timing_warm_up(const cli_device *device);

/** Makes a tensor of values that differ: bf16 near 1 in size, small f32 above zero, FP8 codes other
 *  than NaN, i32 that count from 0. */
qn_status timing_make_filled(cli_tensor *out, cli_device *device, DLDataType dtype, int ndim,
                             const int64_t *shape, cli_random *random);

/** Times runs of body; fills in times and kernel. */
qn_status timing_alone(measurement *out, cli_device *device, qn_status (*body)(void *),
                       void *context, int runs);
/** One of several functions that are timed beside each other. */
typedef struct timing_turn {
    qn_status (*body)(void *);
    void *context;
    int64_t median_ns, spread_ns; // written: of a run; the middle half of the times lies within
} timing_turn;

/** Times the functions in turns: in each round `repeats` runs of one behind each other, then of the
 *  next. Errors: also those of cli_check_signals. */
qn_status timing_take_turns(cli_device *device, timing_turn *turns, int count, int rounds,
                            int repeats);

/** Times runs of body in turns with copies that read and write out->bytes in all; fills in times
 *  and kernel. On a simulated device, where copies take no time, the limit of memory stands in for
 *  them. */
qn_status timing_beside_copy(measurement *out, cli_device *device, qn_status (*body)(void *),
                             void *context, int runs);
/** Sets the time that out's bytes and operations take at least, at so many a second; 0 for either:
 *  not known. */
void timing_set_limit(measurement *out, double flops, double read_bytes);

#endif
