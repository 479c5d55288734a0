// SPDX-License-Identifier: Apache-2.0
// Writes timelines in the JSON Array Format of the Trace Event Format: an event a line, in
// microseconds of modelled time. One process of the trace has the device's launches, a thread for
// each stream. A compute unit is a process, too, and has a thread for each place of its SIMDs and
// each stream, since launches of several streams are timed one by one and take the same places.
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
enum { NAMES = 1 << 20 };                                     // elements of `named`, a power of two
static_assert(NAMES > 4 * SIM_TIMELINE_EVENTS);               // an event needs two names at most

static struct {
    pthread_mutex_t lock;
    char path[SIM_PATH_BYTES]; // empty: off
    FILE *file;                // null: not open yet
    bool is_child;             // after fork: another process has the file of that name
    bool is_lost, is_cut;      // the user was told so
    uint64_t events;           // written, or kept by launches that have run
    uint64_t number;           // of the file
    uint64_t *named;           // a hash table of processes and threads that have names
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
    free(timeline.named);
    timeline.named = name ? calloc(NAMES, sizeof *timeline.named) : nullptr;
    timeline.file = timeline.named ? fopen(name, "we") : nullptr;
    const int error = errno;
    free(name);
    errno = error;
    if (timeline.file)
        fputs("[\n", timeline.file);
    timeline.number++;
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
    free(timeline.named);
    timeline.named = nullptr;
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
    if (t)
        t->file = timeline.number;
    pthread_mutex_unlock(&timeline.lock);
    return t;
}

// ---- a launch that has run

/** Returns how many events of a kind may still be written: they count as written. */
static size_t reserve(size_t count, uint64_t each, bool *is_cut) {
    const uint64_t left = (SIM_TIMELINE_EVENTS - timeline.events) / each;
    *is_cut |= count > left;
    count = count < left ? count : (size_t)left;
    timeline.events += count * each;
    return count;
}

/** Leaves out what is too much for the file. Returns false if all is. */
static bool cut(sim_timeline *t) {
    const size_t slices = t->launch.has_rest ? 2 : 1;
    if (timeline.is_lost || timeline.is_cut || t->file != timeline.number)
        return false;
    timeline.is_cut = t->is_cut;
    timeline.events += slices; // even if they are more than the limit by one
    timeline.events = timeline.events < SIM_TIMELINE_EVENTS ? timeline.events : SIM_TIMELINE_EVENTS;
    t->num_waves = reserve(t->num_waves, 1, &timeline.is_cut);
    t->num_waits = reserve(t->num_waits, 1, &timeline.is_cut);
    t->num_samples = t->num_samples ? 1 + reserve(t->num_samples - 1, 2, &timeline.is_cut) : 0;
    if (timeline.is_cut)
        fprintf(stderr, "quernsim: timeline=%s: stopped after %d events\n", timeline.path,
                SIM_TIMELINE_EVENTS);
    return true;
}

static bool describe(sim_traced_launch *l, const sim_machine *m) {
    const sim_dispatch *d = m->dispatch;
    *l = (sim_traced_launch){.kernel = strdup(d->kernel->name),
                             .chip = d->chip,
                             .number = d->id,
                             .groups = d->timed.groups,
                             .groups_run = d->timed.groups_run,
                             .cycles = d->timed.cycles,
                             .launch_ns = m->timing->launch_ns,
                             .last = m->last,
                             .mhz = d->timed.mhz,
                             .device = d->device,
                             .units_per_xcd = m->units_per_xcd,
                             .has_rest = m->sample.groups > m->sample.run};
    memcpy(l->grid, d->grid, sizeof l->grid);
    memcpy(l->block, d->block, sizeof l->block);
    return l->kernel;
}

/** Gives back the room for what there is not. */
static void shrink(sim_timeline *t) {
    sim_traced_wait *waits = realloc(t->waits, (t->num_waits + 1) * sizeof *waits);
    sim_traced_wave *waves = realloc(t->waves, (t->num_waves + 1) * sizeof *waves);
    t->waits = waits ? waits : t->waits;
    t->waves = waves ? waves : t->waves;
}

sim_timeline *sim_timeline_keep(sim_timeline *t, const sim_machine *m) {
    const uint64_t now = m->now_cycles * SIM_TICKS;
    if (!t)
        return nullptr;
    for (size_t i = 0; i < t->num_waves; i++) // those of a launch that was stopped have no end
        if (!t->waves[i].ended)
            t->waves[i].ended = sim_later(now, t->waves[i].began);
    pthread_mutex_lock(&timeline.lock);
    const bool is_known = describe(&t->launch, m), is_kept = is_known && cut(t);
    if (!is_known)
        complain_once("out of memory, the timeline is not whole", "");
    pthread_mutex_unlock(&timeline.lock);
    if (is_kept)
        shrink(t);
    else
        sim_timeline_destroy(t);
    return is_kept ? t : nullptr;
}

// ---- events

/** A launch while it is written. */
typedef struct writer {
    FILE *out;
    const sim_timeline *t;
    const sim_traced_launch *l;
    uint32_t device, stream; // the trace's process of the device
    double from, per_tick;   // tenths of nanoseconds: the first tick's, a tick's
} writer;

static uint64_t tenths(const writer *w, uint64_t tick) {
    return (uint64_t)llround(w->from + w->per_tick * (double)tick);
}

/** Begins an event: its place, kind and time in tenths of nanoseconds. */
static void begin_event(const writer *w, uint32_t process, uint64_t thread, char kind,
                        uint64_t at) {
    fprintf(w->out, "{\"pid\":%u,\"tid\":%llu,\"ph\":\"%c\",\"ts\":%llu.%04llu", process,
            (unsigned long long)thread, kind, (unsigned long long)at / 10000,
            (unsigned long long)at % 10000);
}

/** Begins a slice from one time to another. */
static void begin_slice(const writer *w, uint32_t process, uint64_t thread, uint64_t from,
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

/** Returns whether a process has no name yet, or one of its threads, counted from 1. It then has
 *  one. */
static bool is_new(uint32_t process, uint64_t thread) {
    const uint64_t key = (thread << 16 | process) + 1;
    uint64_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    while (timeline.named[at % NAMES] && timeline.named[at % NAMES] != key)
        at++;
    const bool is = !timeline.named[at % NAMES];
    timeline.named[at % NAMES] = key;
    return is;
}
static_assert(SIM_MAX_DEVICES * UNITS <= 1 << 16);

/** Returns the thread of a place, for launches of a stream. */
static uint64_t thread_of(const writer *w, uint32_t slot) {
    return (uint64_t)w->stream * SLOTS + slot;
}

/** Names a place, and the process that has it, unless they have names. */
static void name_place(const writer *w, uint32_t unit, uint32_t slot) {
    const uint32_t process = w->device + 1 + unit, per_xcd = w->l->units_per_xcd;
    const uint64_t thread = thread_of(w, slot);
    if (is_new(process, 0)) {
        name_it(w, "process_name", process, "\"args\":{\"name\":\"XCD %u unit %u\"}",
                unit / per_xcd, unit % per_xcd);
        name_it(w, "process_sort_index", process, "\"args\":{\"sort_index\":%u}", process);
    }
    if (is_new(process, 1 + thread))
        name_it(w, "thread_name", process,
                "\"tid\":%llu,\"args\":{\"name\":\"SIMD %u place %u, stream %u\"}",
                (unsigned long long)thread, slot / SIM_MAX_WAVES, slot % SIM_MAX_WAVES, w->stream);
}

static void write_wave(const writer *w, const sim_traced_wave *wave) {
    name_place(w, wave->unit, wave->slot);
    begin_slice(w, w->device + 1 + wave->unit, thread_of(w, wave->slot), tenths(w, wave->began),
                tenths(w, wave->ended));
    sim_print_json(w->out, w->l->kernel);
    fprintf(w->out, ",\"args\":{\"workgroup\":[%u,%u,%u],\"wave\":%u}},\n", wave->group[0],
            wave->group[1], wave->group[2], wave->wave);
}

static void write_wait(const writer *w, const sim_traced_wait *wait) {
    const sim_traced_wave *wave = &w->t->waves[wait->wave];
    begin_slice(w, w->device + 1 + wave->unit, thread_of(w, wave->slot), tenths(w, wait->began),
                tenths(w, wait->ended));
    fprintf(w->out, "\"%s\"},\n", sim_spent_name(wait->kind));
}

/** Writes a counter of the launch's stream. */
static void write_counter(const writer *w, const char *name, const char *unit, double value,
                          uint64_t at) {
    begin_event(w, w->device, w->stream, 'C', at);
    fprintf(w->out, ",\"name\":\"%s, stream %u\",\"args\":{\"%s\":%.*f}},\n", name, w->stream, unit,
            value == floor(value) ? 0 : 1, value);
}

/** Writes the traffic since the sample before, and the waves. */
static void write_sample(const writer *w, const sim_traced_sample *before,
                         const sim_traced_sample *s) {
    const double bytes = (double)(s->hbm_lines - before->hbm_lines) * SIM_LINE;
    const double ns = w->per_tick / 10 * (double)(s->tick - before->tick);
    write_counter(w, "memory, GB/s", "GB/s", ns > 0 ? bytes / ns : 0, tenths(w, before->tick));
    write_counter(w, "waves", "waves", s->waves, tenths(w, s->tick));
}

/** Writes the launch, and within it the time of what did not run. */
static void write_launch(const writer *w, const sim_span *span) {
    const sim_traced_launch *l = w->l;
    const uint64_t end = 10 * span->end_ns;
    if (is_new(w->device, 0))
        name_it(w, "process_name", w->device,
                "\"args\":{\"name\":\"device %u (%s), modelled time\"}", l->device, l->chip->name);
    if (is_new(w->device, 1 + w->stream))
        name_it(w, "thread_name", w->device, "\"tid\":%u,\"args\":{\"name\":\"stream %u%s\"}",
                w->stream, w->stream, w->stream ? "" : " (default)");
    begin_slice(w, w->device, w->stream, 10 * span->begin_ns, end);
    sim_print_json(w->out, l->kernel);
    fprintf(w->out,
            ",\"args\":{\"launch\":%llu,\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],"
            "\"workgroups\":%llu,\"workgroups_run\":%llu,\"cycles\":%llu,\"mhz\":%.0f,"
            "\"shared_ns\":%llu}},\n",
            (unsigned long long)l->number, l->grid[0], l->grid[1], l->grid[2], l->block[0],
            l->block[1], l->block[2], (unsigned long long)l->groups,
            (unsigned long long)l->groups_run, (unsigned long long)l->cycles, l->mhz,
            (unsigned long long)span->shared_ns);
    if (l->has_rest) {
        begin_slice(w, w->device, w->stream, tenths(w, l->last), end);
        fputs("\"rounds that did not run\"},\n", w->out);
    }
}

static void write_events(const writer *w) {
    const sim_timeline *t = w->t;
    for (size_t i = 0; i < t->num_waves; i++)
        write_wave(w, &t->waves[i]);
    for (size_t i = 0; i < t->num_waits; i++)
        write_wait(w, &t->waits[i]);
    for (size_t i = 1; i < t->num_samples; i++)
        write_sample(w, &t->samples[i - 1], &t->samples[i]);
}

void sim_timeline_show(const sim_shown *shown, const sim_span *span) {
    const sim_timeline *t = shown->timeline;
    if (!t)
        return;
    const sim_traced_launch *l = &t->launch;
    const double ticks = (double)(l->cycles ? l->cycles : 1) * SIM_TICKS;
    writer w = {.t = t, .l = l, .device = l->device * UNITS, .stream = shown->stream};
    w.from = 10 * (double)(span->begin_ns + l->launch_ns);
    w.per_tick = 10 * ((double)(span->end_ns - span->begin_ns) - (double)l->launch_ns) / ticks;
    pthread_mutex_lock(&timeline.lock);
    // A child of fork, which has a file of its own, has its parent's launches, too.
    if ((w.out = timeline.file) && t->file == timeline.number) {
        write_launch(&w, span);
        write_events(&w);
        flush();
    }
    pthread_mutex_unlock(&timeline.lock);
}
