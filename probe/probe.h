// SPDX-License-Identifier: Apache-2.0
// What the probes' files share: a line of probes.def, a run, memory of the device, times.
#ifndef QNI_PROBE_H
#define QNI_PROBE_H

#include "../runtime/runtime.h"
#include "probe_abi.h"

#include <quern/probe.h>

/** Cycles of a line of bodies_abi.def, of the waves that do it side by side, times a weight. Zeros
 *  mean  1 wave, and weight 1. */
typedef struct qni_term {
    qk_body body;
    double weight;
    uint32_t waves;
    qk_body other; // what waves from first_other on do meanwhile; 0: all waves do the same
    uint32_t first_other;
    bool on_one_simd; // waves that are not on the first wave's SIMD end at once
} qni_term;

/** Memory that workgroups read or write in two launches, of which the second moves more. */
typedef struct qni_stream_shape {
    uint32_t groups;     // 0: one for each compute unit
    uint32_t kib;        // of each workgroup's memory, a power of two
    uint32_t pieces;     // of 8 KiB that each moves in the first launch, going round in its memory
    bool is_shared;      // all workgroups have the same memory
    bool is_new;         // nothing has touched the memory before, and each piece is moved once
    bool writes, per_ns; // per_ns: GB/s, else bytes a cycle
} qni_stream_shape;

enum { QNI_CDNA3 = 1, QNI_CDNA4 = 2, QNI_MAX_TERMS = 3 };

typedef struct qni_probe_run qni_probe_run;

/** A line of probes.def. */
typedef struct qni_probe {
    qn_probe_info info;
    /** The model gives factor (of CDNA3, of CDNA4; 0: as CDNA3) times the product of these entries
     *  of a  chip file, parted by blanks; one behind a '/' divides. */
    const char *entries;
    double factor[2];
    unsigned generations; // 0: both
    qn_status (*run)(qni_probe_run *run, const struct qni_probe *probe, double *value);
    qni_term terms[QNI_MAX_TERMS]; // issue.c
    double bytes;            // issue.c: the value is so many bytes over the cycles; 0: the cycles
    qni_stream_shape stream; // stream.c
    uint32_t place;          // chase.c: which memory; phase.c: which access
    double operations;       // power.c: of the body, in a wave
} qni_probe;

struct qni_probe_run {
    qn_device *device;
    qn_stream *stream;
    qn_event *start, *end;
    void *out; // device memory for what kernels say: QNI_PROBE_OUT_BYTES
    const qn_probe_options *options;
    void *context;
    char detail[256];
};

enum { QNI_PROBE_OUT_BYTES = 65536 };

/** Allocates memory of the device; zeroed if `is_clear`. */
qn_status qni_probe_alloc(qni_probe_run *run, void **out, int64_t bytes, bool is_clear);
/** Copies bytes to the device or, to run->out's beginning from there, back; both wait. */
qn_status qni_probe_put(qni_probe_run *run, void *to, const void *from, int64_t bytes);
qn_status qni_probe_take(qni_probe_run *run, void *to, int64_t bytes);
/** Launches a kernel of the probes. */
qn_status qni_probe_launch(qni_probe_run *run, const char *image, const char *entry,
                           uint32_t groups, uint32_t threads, const void *args, size_t args_bytes);
/** Returns an entry of the given chip; NaN: not known. */
double qni_probe_given(const qni_probe_run *run, const char *entry);
bool qni_probe_is_cdna4(const qn_device *device);
/** Returns among how many XCDs so many workgroups go in turn, as many to each; 1: not known. */
uint32_t qni_probe_xcds(const qni_probe_run *run, uint32_t groups);

// What the lines of probes.def call. Each gives the value in the line's unit.
qn_status qni_probe_issue(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_chase(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_stream(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_phase(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_banks(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_launches(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_groups(qni_probe_run *run, const qni_probe *probe, double *value);
qn_status qni_probe_slots(qni_probe_run *run, const qni_probe *probe, double *value);

#endif
