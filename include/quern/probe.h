// SPDX-License-Identifier: Apache-2.0
// Probes: microbenchmarks of what the model of a simulated GPU's time has to know (docs/probe.md).
#ifndef QUERN_PROBE_H
#define QUERN_PROBE_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a probe measures. Its strings live as long as the process. */
typedef struct qn_probe_info {
    const char *name;  /**< "l2_latency" */
    const char *unit;  /**< "cycles" */
    const char *entry; /**< the entry of a chip file that it gives; null: none, a fact beside it */
    const char *about; /**< "a load that hits in the second level" */
} qn_probe_info;

/** The result of one probe. Its strings live as long as the callback runs. */
typedef struct qn_probe_result {
    const qn_probe_info *info;
    double value;       /**< in info->unit; NaN: it could not be run */
    double model;       /**< what follows from the given chip; NaN: an entry of it is not known */
    double entry_value; /**< of info->entry; NaN: there is none */
    const char *detail; /**< what else was seen; "": nothing */
    const char *reason; /**< why there is no value; null: there is one */
} qn_probe_result;

typedef struct qn_probe_options {
    size_t struct_size; /**< sizeof(qn_probe_options) */
    /** Returns an entry of the chip that the results are compared with; NaN if it has none. Null:
     *  no chip is given. */
    double (*given)(void *context, const char *entry);
    int32_t runs; /**< of which the median counts; 0: 9, and 1 of modelled time */
} qn_probe_options;

typedef void (*qn_probe_fn)(void *context, const qn_probe_result *result);

/** Returns what all probes measure, in the order in which they run; *count becomes their number. */
QN_API const qn_probe_info *qn_probe_infos(int32_t *count);

/** Runs a probe and reports its result.
 *
 *  name     null: all probes
 *  options  null: all members zero
 *  report   called from this thread, once for each probe
 *  context  handed to report and to options->given
 *  Errors:  QN_E_NOT_FOUND (no such probe), QN_E_UNSUPPORTED (the device has no clock, or none that
 *           probes know: gfx942 and gfx950), QN_E_INVALID (null), QN_E_MEMORY, QN_E_DEVICE. */
QN_API qn_status qn_probe(qn_device *device, const char *name, const qn_probe_options *options,
                          qn_probe_fn report, void *context);

#ifdef __cplusplus
}
#endif
#endif
