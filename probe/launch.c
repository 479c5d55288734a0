// SPDX-License-Identifier: Apache-2.0
// What launches and workgroups take that do nothing, and how many waves a SIMD holds.
#include "probe.h"

enum { LAUNCHES = 50, NAPS = 8, MOST_WAVES = 20, SIMDS = 4 };

/** Returns the time of `launches` launches of `groups` waves each. */
static qn_status time_launches(qni_probe_run *run, const char *entry, uint32_t groups, int launches,
                               double *ns) {
    const qk_launch_args args = {.naps = NAPS};
    int64_t elapsed;
    QN_TRY(qn_event_record(run->start, run->stream));
    for (int i = 0; i < launches; i++)
        QN_TRY(qni_probe_launch(run, "probe_launch", entry, groups,
                                (uint32_t)run->device->target->wave_size, &args, sizeof args));
    QN_TRY(qn_event_record(run->end, run->stream));
    QN_TRY(qn_event_sync(run->end));
    QN_TRY(qn_event_elapsed(&elapsed, run->start, run->end));
    *ns = (double)elapsed;
    return QN_OK;
}

qn_status qni_probe_launches(qni_probe_run *run, const qni_probe *, double *value) {
    double once, twice;
    QN_TRY(time_launches(run, "qk_probe_nothing", 1, LAUNCHES, &once));
    QN_TRY(time_launches(run, "qk_probe_nothing", 1, LAUNCHES, &once));
    QN_TRY(time_launches(run, "qk_probe_nothing", 1, 2 * LAUNCHES, &twice));
    *value = (twice - once) / (double)LAUNCHES;
    return QN_OK;
}

qn_status qni_probe_groups(qni_probe_run *run, const qni_probe *, double *value) {
    const uint32_t groups = 256 * (uint32_t)run->device->info.num_compute_units;
    double once, twice;
    QN_TRY(time_launches(run, "qk_probe_nothing", groups, 1, &once));
    QN_TRY(time_launches(run, "qk_probe_nothing", groups, 1, &once));
    QN_TRY(time_launches(run, "qk_probe_nothing", 2 * groups, 1, &twice));
    *value = (twice - once) * run->device->info.clock_khz * 1e-6 / groups;
    return QN_OK;
}

/** Waves that sleep take twice the time as soon as a SIMD cannot hold them all. */
qn_status qni_probe_slots(qni_probe_run *run, const qni_probe *, double *value) {
    const uint32_t simds = SIMDS * (uint32_t)run->device->info.num_compute_units;
    double one, ns;
    uint32_t waves = 1;
    QN_TRY(time_launches(run, "qk_probe_sleep", simds, 1, &one));
    for (ns = one; waves < MOST_WAVES && ns < 1.6 * one; waves++)
        QN_TRY(time_launches(run, "qk_probe_sleep", (waves + 1) * simds, 1, &ns));
    *value = waves - 1;
    return QN_OK;
}
