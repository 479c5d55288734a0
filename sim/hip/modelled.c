// SPDX-License-Identifier: Apache-2.0
// Modelled time of streams: what each operation has to wait for, told to the device's schedule.
//
// A copy, or a function of the program, takes no time. The device's error, and memory that runs
// out, end all launches that are queued: then no time is asked for.
#include "runtime.h"

#include <stdlib.h>

bool sim_hip_is_modelled(const sim_device *device) {
    return sim_hip.options.clock != SIM_CLOCK_OFF && device->chip->timing;
}

/** Replaces a moment by a reference. */
static void replace(sim_moment **at, sim_moment *moment) {
    sim_moment_release(*at);
    *at = moment;
}

bool sim_hip_time_queue(sim_stream *stream, sim_op *op) {
    sim_schedule *s = &stream->device->schedule;
    if (!sim_hip_is_modelled(stream->device))
        return true;
    if (op->kind == SIM_OP_LAUNCH && !(op->end = sim_schedule_queue(s, stream->priority)))
        return false;
    op->host = sim_moment_keep(s->host);
    return true;
}

bool sim_hip_time_is_met(const sim_stream *stream, const sim_op *op) {
    return !op->end || sim_schedule_is_next(&stream->device->schedule, op->end);
}

void sim_hip_time_wait(sim_stream *stream, sim_moment *moment) {
    replace(&stream->moment, sim_schedule_later(&stream->device->schedule, stream->moment, moment));
}

void sim_hip_time_begin(sim_stream *stream, const sim_op *op) {
    for (size_t i = 0; i < op->num_dependencies; i++)
        sim_hip_time_wait(stream, op->dependencies[i].stream->moment);
}

void sim_hip_time_ran(sim_stream *stream, sim_op *op, sim_dispatch *d, bool is_done) {
    sim_schedule *s = &stream->device->schedule;
    sim_demand *demand = d->demand;
    d->demand = nullptr;
    if (!op->end)
        return;
    if (is_done && demand) {
        demand->shown = d->shown;
        sim_schedule_ran(s, op->end, stream->moment, demand);
    } else {
        free(demand);
        s->is_lost |= is_done; // memory ran out for what it asks for
        sim_schedule_failed(s, op->end, stream->moment, &d->shown, d->timed.ns);
    }
    replace(&stream->moment, op->end);
    op->end = nullptr;
}

void sim_hip_time_end(sim_device *device, sim_op *op) {
    if (op->end)
        sim_schedule_ran(&device->schedule, op->end, nullptr, nullptr);
    replace(&op->end, nullptr);
    replace(&op->host, nullptr);
}

void sim_hip_time_waited(sim_device *device, sim_moment *moment) {
    sim_schedule_wait(&device->schedule, moment);
    sim_schedule_advance(&device->schedule);
}

void sim_hip_time_synced(sim_stream *stream) {
    sim_hip_time_waited(stream->device, stream->moment);
}

/** Waits until a moment is known. Returns false if that will never be. */
static bool find(sim_device *device, sim_moment *moment, uint64_t *ns) {
    sim_schedule *s = &device->schedule;
    sim_hip_time_waited(device, moment);
    while (!sim_schedule_find(s, moment, ns) && !s->is_lost && !sim_hip.is_stopping)
        pthread_cond_wait(&sim_hip.changed, &sim_hip.lock);
    return !s->is_lost && !sim_hip.is_stopping;
}

hipError_t sim_hip_time_between(sim_device *device, sim_moment *from, sim_moment *to, int64_t *ns) {
    uint64_t begin = 0, end = 0;
    sim_moment_keep(from);
    sim_moment_keep(to);
    const bool is_found = find(device, from, &begin) && find(device, to, &end);
    sim_moment_release(from);
    sim_moment_release(to);
    *ns = (int64_t)(end - begin);
    return is_found                   ? hipSuccess
           : device->schedule.is_lost ? hipErrorOutOfMemory
                                      : hipErrorDeinitialized;
}
