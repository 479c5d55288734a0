// SPDX-License-Identifier: Apache-2.0
// The rate of memory, by two launches of which the second moves more: what a launch itself takes
// drops out of the difference.
#include "probe.h"

enum { MORE = 4 }; // times as much in the second launch, a power of two

/** What a launch moved, in what time, and at how many MHz of the shader clock. */
typedef struct moved {
    double bytes, ns, mhz;
} moved;

static uint32_t groups_of(const qni_probe_run *run, const qni_stream_shape *shape) {
    return shape->groups ? shape->groups : (uint32_t)run->device->info.num_compute_units;
}

/** Lays out `times` the memory of each workgroup. What an XCD writes lies together, as its channels
 *  then get equal shares of the little that the second level holds. */
static qk_stream_args lay_out(const qni_probe_run *run, const qni_stream_shape *shape, void *bytes,
                              uint32_t times, uint32_t pieces) {
    const uint32_t own = times * shape->kib * 1024;
    return (qk_stream_args){.out = run->out,
                            .bytes = bytes,
                            .mask = own - 1,
                            .stride = shape->is_shared ? 0 : own,
                            .pieces = pieces,
                            .xcds = shape->writes ? qni_probe_xcds(run, groups_of(run, shape)) : 1,
                            .writes = shape->writes};
}

static qn_status launch(qni_probe_run *run, const qni_stream_shape *shape,
                        const qk_stream_args *args, moved *out) {
    const uint32_t groups = groups_of(run, shape);
    qk_moment at[2];
    int64_t ns;
    QN_TRY(qn_event_record(run->start, run->stream));
    QN_TRY(qni_probe_launch(run, "probe_stream", "qk_probe_stream", groups, QK_STREAM_THREADS, args,
                            sizeof *args));
    QN_TRY(qn_event_record(run->end, run->stream));
    QN_TRY(qn_event_sync(run->end));
    QN_TRY(qn_event_elapsed(&ns, run->start, run->end));
    QN_TRY(qni_probe_take(run, at, sizeof at));
    *out = (moved){.bytes = (double)groups * args->pieces * (double)QK_PIECE_BYTES,
                   .ns = (double)ns,
                   .mhz = 100.0 * (double)(at[1].cycles - at[0].cycles) /
                          (double)(at[1].ticks - at[0].ticks)};
    return QN_OK;
}

/** Goes through the same memory several times; before that once for the caches. */
static qn_status move_again(qni_probe_run *run, const qni_stream_shape *shape, char *bytes,
                            moved *less, moved *more) {
    qk_stream_args args = lay_out(run, shape, bytes, 1, shape->pieces);
    QN_TRY(launch(run, shape, &args, less));
    QN_TRY(launch(run, shape, &args, less));
    args = lay_out(run, shape, bytes, 1, MORE * shape->pieces);
    return launch(run, shape, &args, more);
}

/** Goes through some memory, and through more that lies behind it. */
static qn_status move_once(qni_probe_run *run, const qni_stream_shape *shape, char *bytes,
                           moved *less, moved *more) {
    const size_t first = (size_t)groups_of(run, shape) * shape->kib * 1024;
    qk_stream_args args = lay_out(run, shape, bytes, 1, shape->pieces);
    QN_TRY(launch(run, shape, &args, less));
    args = lay_out(run, shape, bytes + first, MORE, MORE * shape->pieces);
    return launch(run, shape, &args, more);
}

qn_status qni_probe_stream(qni_probe_run *run, const qni_probe *probe, double *value) {
    const qni_stream_shape *shape = &probe->stream;
    const uint32_t groups = shape->is_shared ? 1 : groups_of(run, shape);
    const int64_t all = (int64_t)groups * shape->kib * 1024 * (shape->is_new ? MORE + 1 : 1);
    char *bytes = nullptr;
    moved less, more;
    qn_status st;
    QN_TRY_OUT(qni_probe_alloc(run, (void **)&bytes, all, false));
    QN_TRY_OUT((shape->is_new ? move_once : move_again)(run, shape, bytes, &less, &more));
    *value = (more.bytes - less.bytes) / (more.ns - less.ns);
    if (!shape->per_ns)
        *value *= 1000 / more.mhz;
    snprintf(run->detail, sizeof run->detail, "at %.0f MHz", more.mhz);
out:
    qn_free(run->device, bytes);
    return st;
}
