// SPDX-License-Identifier: Apache-2.0
// The profile: counters of every kernel that ran, written as JSON when the process ends.
//
// Workgroups count for themselves, and add their counts under the lock when they end. Launches of
// one kernel with equal workgroups on one device share a record. The file is also written in
// between, and when a launch fails, as the process often ends then.
#include "../chip/timing.h"
#include "../clock/report.h"
#include "../isa/decode.h"
#include "../report/plain.h"
#include "count.h"
#include "listing.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SPANS = 1024 }; // launches of a record whose times are kept one by one

/** When a launch ran. */
typedef struct launch_span {
    uint64_t dispatch;
    uint32_t stream;
    sim_span span;
} launch_span;

/** Launches of a kernel that need as much of a compute unit. */
typedef struct record {
    struct record *next;
    uint64_t id; // from 1
    const sim_chip *chip;
    uint32_t device, block[3], lds_bytes;
    sim_kernel kernel; // its name is our own copy; nothing else that it points to is
    uint64_t launches, failed_launches, groups;
    uint64_t counters[SIM_NUM_COUNTERS];
    sim_clock_result timed; // all launches; nothing if no time is modelled
    // Of launches of which it is known when they ran: the first ones, in the order of their ends.
    launch_span *spans;
    size_t num_spans;
    uint64_t num_shown, elapsed_ns, shared_ns; // of all of them
    sim_listing listing;                       // the code, as far as time was modelled
    uint64_t code, entry;                      // a hash of it; the kernel's first instruction in it
} record;

static struct {
    pthread_mutex_t lock;
    char path[SIM_PATH_BYTES];    // empty: off
    record *first, **last;        // in the order of their first launch
    uint64_t num_records;         // that were ever made
    uint64_t written_ns, cost_ns; // when the file was written last, and how long that took
    bool is_child;                // after fork: another process writes the file of that name
} profile = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &profile.first};

// ---- JSON

static void write_counters(FILE *out, const record *r) {
    const char *comma = "";
    fputs("     \"counters\": {", out);
    for (int i = 0; i < SIM_NUM_COUNTERS; i++) {
        const char *name = sim_counter_name((sim_counter)i, r->chip);
        if (name) {
            fprintf(out, "%s\n      \"%s\": %llu", comma, name, (unsigned long long)r->counters[i]);
            comma = ",";
        }
    }
    fputs("}", out);
}

/** Writes how many workgroups and waves a compute unit holds, and why not more. */
static void write_occupancy(FILE *out, const record *r) {
    static const char *const names[SIM_NUM_LIMITS] = {
        [SIM_LIMIT_WAVES] = "wave slots",
        [SIM_LIMIT_VGPRS] = "VGPRs",
        [SIM_LIMIT_SGPRS] = "SGPRs",
        [SIM_LIMIT_LDS] = "LDS",
        [SIM_LIMIT_GROUPS] = "workgroup slots",
    };
    const uint32_t threads = r->block[0] * r->block[1] * r->block[2];
    const uint32_t lanes = r->kernel.wave32 && r->chip->gfx_major > 9 ? 32 : 64;
    const uint32_t waves = (threads + lanes - 1) / lanes;
    sim_occupancy o = sim_find_occupancy(r->chip, &r->kernel, threads, r->lds_bytes);
    fprintf(out,
            "     \"occupancy\": {\"workgroups\": %u, \"waves\": %u, \"max_waves\": %u, "
            "\"limit\": \"%s%s\",\n      \"workgroups_by\": {",
            o.groups, o.groups * waves, r->chip->simds * r->chip->max_waves_per_simd,
            names[o.limit], o.limit == SIM_LIMIT_VGPRS && r->kernel.num_agprs ? " and AGPRs" : "");
    const char *comma = "";
    for (int i = 0; i < SIM_NUM_LIMITS; i++) {
        if (o.by[i] != UINT32_MAX) {
            fprintf(out, "%s\"%s\": %u", comma, names[i], o.by[i]);
            comma = ", ";
        }
    }
    fputs("}},\n", out);
}

/** Writes what the chip can do at its highest clock. */
static void write_chip(FILE *out, const sim_chip *chip) {
    const sim_timing *t = chip->timing;
    const uint64_t mhz = chip->clock_khz / 1000, units = chip->compute_units;
    const uint64_t lanes = units * chip->simds * chip->wave_size / t->valu_cycles;
    fprintf(out,
            "     \"chip\": {\"compute_units\": %llu, \"simds\": %u, \"mhz\": %llu, "
            "\"lane_mops_per_s\": %llu,\n      \"mb_per_s\": {\"lds\": %llu, \"l1\": %llu, "
            "\"l2\": %llu, \"fabric\": %llu, \"hbm\": %llu}},\n",
            (unsigned long long)units, chip->simds, (unsigned long long)mhz,
            (unsigned long long)(lanes * mhz),
            (unsigned long long)(units * chip->simds / 2 * t->lds_pair_bytes * mhz),
            (unsigned long long)(units * t->l1_port_bytes * mhz),
            (unsigned long long)chip->num_xccs * t->l2_channels * t->l2_read_bytes * mhz,
            (unsigned long long)chip->num_xccs * t->fabric_bytes * mhz,
            (unsigned long long)t->hbm_channels * t->hbm_mb_per_s);
}

/** Writes when launches ran, as their streams share the chip. */
static void write_spans(FILE *out, const record *r) {
    fprintf(out,
            ",\n      \"elapsed_launches\": %llu, \"elapsed_ns\": %llu, \"shared_ns\": %llu,\n"
            "      \"timestamps\": [",
            (unsigned long long)r->num_shown, (unsigned long long)r->elapsed_ns,
            (unsigned long long)r->shared_ns);
    for (size_t i = 0; i < r->num_spans; i++) {
        const launch_span *l = &r->spans[i];
        fprintf(out,
                "%s\n       {\"dispatch\": %llu, \"stream\": %u, \"start_ns\": %llu, "
                "\"end_ns\": %llu, \"shared_ns\": %llu}",
                i ? "," : "", (unsigned long long)l->dispatch, l->stream,
                (unsigned long long)l->span.begin_ns, (unsigned long long)l->span.end_ns,
                (unsigned long long)l->span.shared_ns);
    }
    fputs("]", out);
}

static void write_clock(FILE *out, const record *r) {
    fputs("     \"clock\": {", out);
    sim_clock_write(out, &r->timed);
    write_spans(out, r);
    fputs(",\n      \"instructions\": [", out);
    sim_listing_write(out, &r->listing, &r->timed);
    fputs("]},\n", out);
}

static void write_record(FILE *out, const record *r) {
    const bool is_wave32 = r->kernel.wave32 && r->chip->gfx_major > 9;
    fputs("    {\"name\": ", out);
    sim_print_json(out, r->kernel.name);
    fprintf(out, ", \"arch\": \"%s\", \"device\": %u,\n", r->chip->name, r->device);
    fprintf(out,
            "     \"launches\": %llu, \"failed_launches\": %llu, \"workgroups\": %llu, "
            "\"block\": [%u, %u, %u], \"wave_size\": %d,\n",
            (unsigned long long)r->launches, (unsigned long long)r->failed_launches,
            (unsigned long long)r->groups, r->block[0], r->block[1], r->block[2],
            is_wave32 ? 32 : 64);
    fprintf(out,
            "     \"vgprs\": %u, \"agprs\": %u, \"sgprs\": %u, \"lds_bytes\": %u, "
            "\"scratch_bytes\": %u,\n",
            r->kernel.num_vgprs, r->kernel.num_agprs, r->kernel.num_sgprs, r->lds_bytes,
            sim_kernel_scratch(&r->kernel));
    fprintf(out, "     \"code\": \"%016llx\", \"entry\": %llu,\n", (unsigned long long)r->code,
            (unsigned long long)r->entry);
    write_occupancy(out, r);
    if (r->chip->timing)
        write_chip(out, r->chip);
    if (r->timed.ns)
        write_clock(out, r);
    write_counters(out, r);
    fputs("}", out);
}

static bool write_json(const char *name) {
    FILE *out = fopen(name, "we");
    if (!out)
        return false;
    fputs("{\n  \"kernels\": [", out);
    for (const record *r = profile.first; r; r = r->next) {
        fputs(r == profile.first ? "\n" : ",\n", out);
        write_record(out, r);
    }
    fputs("]\n}\n", out);
    const bool ok = !ferror(out);
    return fclose(out) == 0 && ok;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/** Replaces the file as a whole, so that a reader never sees a part. The lock is held. */
static bool write_file(void) {
    const uint64_t began_ns = now_ns();
    char *name = sim_option_file(profile.path, profile.is_child), *aside = nullptr;
    bool ok = name && asprintf(&aside, "%s.part", name) >= 0;
    ok = ok && write_json(aside) && rename(aside, name) == 0;
    const int error = errno;
    if (!ok && aside)
        unlink(aside);
    free(aside);
    free(name);
    profile.written_ns = now_ns();
    profile.cost_ns = profile.written_ns - began_ns;
    errno = error;
    return ok;
}

static void write_or_complain(void) {
    if (!write_file()) {
        fprintf(stderr, "quernsim: profile=%s: cannot be written: %s\n", profile.path,
                strerror(errno));
    }
}

// ---- the process

bool sim_profile_configure(const sim_look_options *options, char *error, size_t error_bytes) {
    bool ok = true;
    pthread_mutex_lock(&profile.lock);
    if (strcmp(options->profile, profile.path) != 0) {
        char before[SIM_PATH_BYTES];
        memcpy(before, profile.path, sizeof before);
        memcpy(profile.path, options->profile, sizeof profile.path);
        ok = !*profile.path || write_file();
        if (!ok) {
            snprintf(error, error_bytes, "profile=%s: cannot be written: %s", options->profile,
                     strerror(errno));
            memcpy(profile.path, before, sizeof before);
        }
    }
    pthread_mutex_unlock(&profile.lock);
    return ok;
}

static void forget_records(void) {
    for (record *r = profile.first, *next; r; r = next) {
        next = r->next;
        free(r->timed.insts);
        free(r->spans);
        sim_listing_deinit(&r->listing);
        free(r->kernel.name);
        free(r);
    }
    profile.first = nullptr;
    profile.last = &profile.first;
}

void sim_profile_finish(void) {
    pthread_mutex_lock(&profile.lock);
    if (*profile.path && (profile.first || !profile.is_child))
        write_or_complain();
    *profile.path = 0;
    forget_records();
    pthread_mutex_unlock(&profile.lock);
}

void sim_profile_fork_prepare(void) {
    pthread_mutex_lock(&profile.lock);
}

void sim_profile_fork_parent(void) {
    pthread_mutex_unlock(&profile.lock);
}

void sim_profile_fork_child(void) {
    pthread_mutex_init(&profile.lock, nullptr);
    profile.is_child = true;
    forget_records();
}

// ---- the observer

/** Returns a hash of a dispatch's code: kernels of one name may be of several objects. */
static uint64_t hash_code(const sim_dispatch *d) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (uint64_t at = 0; at + sizeof word <= d->text->size; at += sizeof word) {
        memcpy(&word, d->text->bytes + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash ^ d->text->size;
}

static bool fits(const record *r, const sim_dispatch *d, uint64_t code) {
    return r->code == code && r->chip == d->chip && r->device == d->device &&
           r->lds_bytes == d->lds_bytes && memcmp(r->block, d->block, sizeof r->block) == 0 &&
           r->kernel.rsrc1 == d->kernel->rsrc1 && r->kernel.rsrc3 == d->kernel->rsrc3 &&
           r->kernel.wave32 == d->kernel->wave32 && strcmp(r->kernel.name, d->kernel->name) == 0;
}

/** Returns the record of a dispatch, which may be new; null without memory. The lock is held. */
static record *find_record(const sim_dispatch *d) {
    const uint64_t code = hash_code(d);
    for (record *r = profile.first; r; r = r->next)
        if (fits(r, d, code))
            return r;
    record *r = calloc(1, sizeof *r);
    char *name = strdup(d->kernel->name);
    if (!r || !name) {
        free(r);
        free(name);
        return nullptr;
    }
    *r = (record){.id = ++profile.num_records,
                  .chip = d->chip,
                  .device = d->device,
                  .lds_bytes = d->lds_bytes,
                  .kernel = *d->kernel,
                  .code = code,
                  .entry = d->kernel->entry - d->text->start};
    memcpy(r->block, d->block, sizeof r->block);
    r->kernel.name = name;
    r->kernel.args = nullptr;
    *profile.last = r;
    profile.last = &r->next;
    return r;
}

/** A launch that is counted. */
typedef struct launch {
    record *record;
    sim_footprint loaded, stored;
} launch;

static void complain(const sim_dispatch *d, const char *what) {
    flockfile(stderr);
    fputs("quernsim: profile: out of memory: a launch of ", stderr);
    sim_print_plain(stderr, d->kernel->name);
    fprintf(stderr, " %s\n", what);
    funlockfile(stderr);
}

static void *begin_dispatch(const sim_dispatch *d) {
    launch *l = nullptr;
    pthread_mutex_lock(&profile.lock);
    if (*profile.path) {
        l = calloc(1, sizeof *l);
        record *r = l ? find_record(d) : nullptr;
        if (r) {
            l->record = r;
            r->launches++;
        } else {
            complain(d, "is not counted");
            free(l);
            l = nullptr;
        }
    }
    pthread_mutex_unlock(&profile.lock);
    return l;
}

static size_t group_bytes(const void *, const sim_workgroup *) {
    return sizeof(sim_counts);
}

static void begin_group(void *, void *of_group, const sim_workgroup *group) {
    sim_counts *counts = of_group;
    counts->counters[SIM_COUNT_WAVES] = group->num_waves;
}

static void step(void *of_group, const sim_wave *w, const sim_facts *facts) {
    sim_count(of_group, w, facts);
}

static uint64_t footprint_bytes(const sim_footprint *f) {
    return sim_footprint_lines(f) * SIM_FOOTPRINT_LINE;
}

static void end_group(void *of_dispatch, void *of_group, const sim_workgroup *) {
    launch *l = of_dispatch;
    sim_counts *counts = of_group;
    counts->counters[SIM_COUNT_GROUP_LOAD_BYTES] = footprint_bytes(&counts->loaded);
    counts->counters[SIM_COUNT_GROUP_STORE_BYTES] = footprint_bytes(&counts->stored);
    pthread_mutex_lock(&profile.lock);
    l->record->groups++;
    for (int i = 0; i < SIM_NUM_COUNTERS; i++)
        l->record->counters[i] += counts->counters[i];
    sim_footprint_merge(&l->loaded, &counts->loaded);
    sim_footprint_merge(&l->stored, &counts->stored);
    pthread_mutex_unlock(&profile.lock);
    sim_footprint_deinit(&counts->loaded);
    sim_footprint_deinit(&counts->stored);
}

/** Returns whether the file should be written again. The process may be killed, so the file is
 *  written as often as that costs little. */
static bool is_due(void) {
    enum { SHARE = 20 }; // of the time
    return now_ns() - profile.written_ns > SHARE * profile.cost_ns;
}

static void end_dispatch(void *of_dispatch, sim_dispatch *d) {
    launch *l = of_dispatch;
    record *r = l->record;
    d->shown.record = r->id;
    d->shown.dispatch = d->id;
    const bool failed = atomic_load(&d->stop) || sim_faults_failing(&d->faults);
    if (l->loaded.is_incomplete || l->stored.is_incomplete)
        complain(d, "has not all its bytes counted");
    pthread_mutex_lock(&profile.lock);
    r->failed_launches += failed;
    if (d->clock)
        sim_clock_add(&r->timed, &d->timed);
    const bool has_insts =
        sim_clock_add_insts(&r->timed, &d->timed) && sim_listing_add(&r->listing, d);
    r->counters[SIM_COUNT_LAUNCH_LOAD_BYTES] += footprint_bytes(&l->loaded);
    r->counters[SIM_COUNT_LAUNCH_STORE_BYTES] += footprint_bytes(&l->stored);
    if (*profile.path && (failed || is_due()))
        write_or_complain();
    pthread_mutex_unlock(&profile.lock);
    if (!has_insts)
        complain(d, "has not all its instructions' cycles counted");
    sim_footprint_deinit(&l->loaded);
    sim_footprint_deinit(&l->stored);
    free(l);
}

/** Keeps when a launch ran. Returns false if memory runs out. The lock is held. */
static bool add_span(record *r, const sim_shown *shown, const sim_span *span) {
    r->num_shown++;
    r->elapsed_ns += span->end_ns - span->begin_ns;
    r->shared_ns += span->shared_ns;
    if (r->num_spans == MAX_SPANS)
        return true;
    if (!(r->num_spans & (r->num_spans - 1))) { // a power of two: all room is used
        const size_t room = r->num_spans ? 2 * r->num_spans : 1;
        launch_span *spans = realloc(r->spans, room * sizeof *spans);
        if (!spans)
            return false;
        r->spans = spans;
    }
    r->spans[r->num_spans++] = (launch_span){shown->dispatch, shown->stream, *span};
    return true;
}

void sim_profile_show(const sim_shown *shown, const sim_span *span) {
    pthread_mutex_lock(&profile.lock);
    record *r = profile.first;
    while (r && r->id != shown->record)
        r = r->next;
    if (r && !add_span(r, shown, span))
        fputs("quernsim: profile: out of memory: when a launch ran is not kept\n", stderr);
    if (r && *profile.path && is_due())
        write_or_complain();
    pthread_mutex_unlock(&profile.lock);
}

const sim_observer sim_profiler = {.begin_dispatch = begin_dispatch,
                                   .group_bytes = group_bytes,
                                   .begin_group = begin_group,
                                   .step = step,
                                   .end_group = end_group,
                                   .end_dispatch = end_dispatch};
