// SPDX-License-Identifier: Apache-2.0
// Writes timelines in the JSON Array Format of the Trace Event Format: an event a line, in
// microseconds of modelled time. A process of the trace is a compute unit, and each place of its
// SIMDs a thread; one more process has the device's launches.
//
// The format's own end may be missing, so that the file of a process that is killed can be read.
#include "../report/plain.h"
#include "report.h"
#include "timeline.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 2048, SLOTS = SIM_MAX_SIMDS * SIM_MAX_WAVES }; // of a device; of a unit
static_assert(SLOTS == 64);                                   // bits of an element of `named`

static struct {
    pthread_mutex_t lock;
    char path[SIM_PATH_BYTES]; // empty: off
    FILE *file;                // null: not open yet
    bool is_child;             // after fork: another process has the file of that name
    bool is_lost, is_cut;      // the user was told so
    uint64_t events;           // written
    uint64_t named[SIM_MAX_DEVICES * UNITS]; // bit i: place i of that process has a name
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- the file

static void complain_once(const char *what, const char *why) {
    if (!timeline.is_lost)
        fprintf(stderr, "quernsim: timeline=%s: %s%s%s\n", timeline.path, what, *why ? ": " : "",
                why);
    timeline.is_lost = true;
}

static bool open_file(const char *path) {
    char *name = sim_option_file(path, timeline.is_child);
    timeline.file = name ? fopen(name, "we") : nullptr;
    const int error = errno;
    free(name);
    errno = error;
    if (timeline.file)
        fputs("[\n", timeline.file);
    memset(timeline.named, 0, sizeof timeline.named);
    timeline.events = 0;
    timeline.is_lost = timeline.is_cut = false;
    return timeline.file;
}

/** Hands what was written to the system. What cannot be written is told once. */
static void flush(void) {
    if (timeline.file && (ferror(timeline.file) || fflush(timeline.file) != 0))
        complain_once("cannot be written, the timeline is not whole", strerror(errno));
}

static void close_file(void) {
    if (!timeline.file)
        return;
    fputs(
        "{\"pid\":0,\"ph\":\"M\",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":0}}\n]\n",
        timeline.file);
    flush();
    fclose(timeline.file);
    timeline.file = nullptr;
}

bool sim_timeline_configure(const sim_look_options *options, char *error, size_t error_bytes) {
    bool ok = true;
    pthread_mutex_lock(&timeline.lock);
    if (strcmp(options->timeline, timeline.path) != 0) {
        close_file();
        ok = !*options->timeline || open_file(options->timeline);
        if (!ok)
            snprintf(error, error_bytes, "timeline=%s: cannot be written: %s", options->timeline,
                     strerror(errno));
        memcpy(timeline.path, ok ? options->timeline : "", ok ? sizeof timeline.path : 1);
    }
    pthread_mutex_unlock(&timeline.lock);
    return ok;
}

void sim_timeline_finish(void) {
    pthread_mutex_lock(&timeline.lock);
    close_file();
    *timeline.path = 0;
    pthread_mutex_unlock(&timeline.lock);
}

void sim_timeline_fork_prepare(void) {
    pthread_mutex_lock(&timeline.lock);
    flush(); // or the child would write the same again
}

void sim_timeline_fork_parent(void) {
    pthread_mutex_unlock(&timeline.lock);
}

/** The child has a file and events of its own. It opens the file when it launches a kernel. */
void sim_timeline_fork_child(void) {
    pthread_mutex_init(&timeline.lock, nullptr);
    timeline.is_child = true;
    timeline.is_lost = timeline.is_cut = false;
    if (timeline.file)
        fclose(timeline.file);
    timeline.file = nullptr;
}

sim_timeline *sim_timeline_begin(void) {
    sim_timeline *t = nullptr;
    pthread_mutex_lock(&timeline.lock);
    const bool is_on = *timeline.path && !timeline.is_lost && !timeline.is_cut;
    if (is_on && !timeline.file && !open_file(timeline.path))
        complain_once("cannot be written", strerror(errno));
    if (is_on && timeline.file && !(t = sim_timeline_create(SIM_TIMELINE_EVENTS - timeline.events)))
        complain_once("out of memory, the timeline is not whole", "");
    pthread_mutex_unlock(&timeline.lock);
    return t;
}

// ---- events

/** A launch while it is written. */
typedef struct writer {
    FILE *out;
    const sim_machine *m;
    const sim_dispatch *d;
    const sim_timeline *t;
    uint32_t device;       // the trace's process of the device
    double from, per_tick; // tenths of nanoseconds: the first tick's, a tick's
} writer;

static uint64_t tenths(const writer *w, uint64_t tick) {
    return (uint64_t)llround(w->from + w->per_tick * (double)tick);
}

/** Begins an event: its place, kind and time in tenths of nanoseconds. */
static void begin_event(const writer *w, uint32_t process, uint32_t thread, char kind,
                        uint64_t at) {
    fprintf(w->out, "{\"pid\":%u,\"tid\":%u,\"ph\":\"%c\",\"ts\":%llu.%04llu", process, thread,
            kind, (unsigned long long)at / 10000, (unsigned long long)at % 10000);
    timeline.events++;
}

/** Begins a slice from one time to another. */
static void begin_slice(const writer *w, uint32_t process, uint32_t thread, uint64_t from,
                        uint64_t to) {
    begin_event(w, process, thread, 'X', from);
    fprintf(w->out, ",\"dur\":%llu.%04llu,\"name\":", (unsigned long long)(to - from) / 10000,
            (unsigned long long)(to - from) % 10000);
}

[[gnu::format(printf, 4, 5)]] static void name_it(const writer *w, const char *what,
                                                  uint32_t process, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(w->out, "{\"pid\":%u,\"ph\":\"M\",\"name\":\"%s\",", process, what);
    vfprintf(w->out, format, args);
    fputs("},\n", w->out);
    va_end(args);
}

/** Names a place, and the process that has it, unless they have names. */
static void name_place(const writer *w, uint32_t unit, uint32_t slot) {
    const uint32_t process = w->device + 1 + unit, per_xcd = w->m->units_per_xcd;
    uint64_t *named = &timeline.named[process];
    if (!*named) {
        name_it(w, "process_name", process, "\"args\":{\"name\":\"XCD %u unit %u\"}",
                unit / per_xcd, unit % per_xcd);
        name_it(w, "process_sort_index", process, "\"args\":{\"sort_index\":%u}", process);
    }
    if (!(*named >> slot & 1))
        name_it(w, "thread_name", process, "\"tid\":%u,\"args\":{\"name\":\"SIMD %u place %u\"}",
                slot, slot / SIM_MAX_WAVES, slot % SIM_MAX_WAVES);
    *named |= UINT64_C(1) << slot;
}

static void write_wave(const writer *w, const sim_traced_wave *wave) {
    const uint64_t end =
        wave->ended ? wave->ended : sim_later(w->m->now_cycles * SIM_TICKS, wave->began);
    name_place(w, wave->unit, wave->slot);
    begin_slice(w, w->device + 1 + wave->unit, wave->slot, tenths(w, wave->began), tenths(w, end));
    sim_print_json(w->out, w->d->kernel->name);
    fprintf(w->out, ",\"args\":{\"workgroup\":[%u,%u,%u],\"wave\":%u}},\n", wave->group[0],
            wave->group[1], wave->group[2], wave->wave);
}

static void write_wait(const writer *w, const sim_traced_wait *wait) {
    const sim_traced_wave *wave = &w->t->waves[wait->wave];
    begin_slice(w, w->device + 1 + wave->unit, wave->slot, tenths(w, wait->began),
                tenths(w, wait->ended));
    fprintf(w->out, "\"%s\"},\n", sim_spent_name(wait->kind));
}

/** Writes the traffic since the sample before, and the waves. */
static void write_sample(const writer *w, const sim_traced_sample *before,
                         const sim_traced_sample *s) {
    const double bytes = (double)(s->hbm_lines - before->hbm_lines) * SIM_LINE;
    const double ns = w->per_tick / 10 * (double)(s->tick - before->tick);
    begin_event(w, w->device, 0, 'C', tenths(w, before->tick));
    fprintf(w->out, ",\"name\":\"memory, GB/s\",\"args\":{\"GB/s\":%.1f}},\n",
            ns > 0 ? bytes / ns : 0);
    begin_event(w, w->device, 0, 'C', tenths(w, s->tick));
    fprintf(w->out, ",\"name\":\"waves\",\"args\":{\"waves\":%u}},\n", s->waves);
}

/** Writes the launch, and within it the time of what did not run. */
static void write_launch(const writer *w, uint64_t begin, uint64_t end, uint64_t last) {
    const sim_dispatch *d = w->d;
    if (!timeline.named[w->device])
        name_it(w, "process_name", w->device,
                "\"args\":{\"name\":\"device %u (%s), modelled time\"}", d->device, d->chip->name);
    timeline.named[w->device] = 1;
    begin_slice(w, w->device, 0, begin, end);
    sim_print_json(w->out, d->kernel->name);
    fprintf(w->out,
            ",\"args\":{\"launch\":%llu,\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],"
            "\"workgroups\":%llu,\"workgroups_run\":%llu,\"cycles\":%llu,\"mhz\":%.0f}},\n",
            (unsigned long long)d->id, d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1],
            d->block[2], (unsigned long long)d->timed.groups,
            (unsigned long long)d->timed.groups_run, (unsigned long long)d->timed.cycles,
            d->timed.mhz);
    if (w->m->sample.groups > w->m->sample.run) {
        begin_slice(w, w->device, 0, last, end);
        fputs("\"rounds that did not run\"},\n", w->out);
    }
}

/** Returns how many events of a kind may still be written. */
static size_t room_for(size_t count, uint64_t each, bool *is_cut) {
    const uint64_t left = (SIM_TIMELINE_EVENTS - timeline.events) / each;
    *is_cut |= count > left;
    return count < left ? count : (size_t)left;
}

static void write_events(const writer *w, bool *is_cut) {
    const sim_timeline *t = w->t;
    for (size_t i = 0, n = room_for(t->num_waves, 1, is_cut); i < n; i++)
        write_wave(w, &t->waves[i]);
    for (size_t i = 0, n = room_for(t->num_waits, 1, is_cut); i < n; i++)
        write_wait(w, &t->waits[i]);
    for (size_t i = 1, n = room_for(t->num_samples, 2, is_cut); i < n; i++)
        write_sample(w, &t->samples[i - 1], &t->samples[i]);
}

void sim_timeline_end(sim_timeline *t, const sim_machine *m, uint64_t from_ns) {
    const sim_dispatch *d = m->dispatch;
    const uint64_t launch_ns = m->timing->launch_ns;
    const double ticks = (double)(d->timed.cycles ? d->timed.cycles : 1) * SIM_TICKS;
    writer w = {.m = m, .d = d, .t = t, .device = d->device * UNITS};
    w.from = 10 * (double)(from_ns + launch_ns);
    w.per_tick = 10 * (double)(d->timed.ns - launch_ns) / ticks;
    if (!t)
        return;
    pthread_mutex_lock(&timeline.lock);
    if ((w.out = timeline.file)) {
        bool is_cut = t->is_cut;
        write_launch(&w, 10 * from_ns, 10 * (from_ns + d->timed.ns), tenths(&w, m->last));
        write_events(&w, &is_cut);
        if (is_cut && !timeline.is_cut)
            fprintf(stderr, "quernsim: timeline=%s: stopped after %d events\n", timeline.path,
                    SIM_TIMELINE_EVENTS);
        timeline.is_cut |= is_cut;
        flush();
    }
    pthread_mutex_unlock(&timeline.lock);
    sim_timeline_destroy(t);
}
