// SPDX-License-Identifier: Apache-2.0
// The trace: each instruction that a wave executes, and the registers and memory that it changed.
//
// A copy of the wave's registers is kept and compared after each instruction, so that every change
// is seen. Destinations of the instruction are shown even if they did not change.
#include "../isa/decode.h"
#include "../report/plain.h"
#include "look.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512, SCALARS = 128, VCC = 106, M0 = 124, EXEC = 126, TTMP = 108 };

static struct {
    pthread_mutex_t lock;
    sim_look_options options;
    FILE *file;          // of options.trace_file
    atomic_bool is_told; // the user was told that the file cannot be written
    uint64_t num_launches;
    uint32_t num_running; // traced dispatches, which write to the file
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

/** What a traced dispatch has. */
typedef struct traced_dispatch {
    uint64_t launch, wave; // launch counts traced launches; wave is that of the options
    FILE *to;
    _Atomic(char *)
        *texts; // of the instruction at each dword of the code, null until one is needed
    uint64_t num_texts;
} traced_dispatch;

/** A wave's registers as they were after its last instruction. */
typedef struct wave_copy {
    bool is_traced;
    uint32_t scc;
    uint32_t s[SCALARS];
    uint32_t v[ROWS][SIM_LANES];
} wave_copy;

/** What a workgroup has. */
typedef struct traced_group {
    const traced_dispatch *dispatch;
    char text[32768]; // of one instruction, written at once
    size_t used;
    wave_copy waves[];
} traced_group;

// ---- options

/** Opens the trace's file; null after a complaint. The lock is held. */
static FILE *open_file(const char *path, char *error, size_t error_bytes) {
    if (trace.num_running) {
        snprintf(error, error_bytes, "trace_file=%s: cannot change while a traced kernel runs",
                 path);
        return nullptr;
    }
    FILE *file = *path ? fopen(path, "we") : stderr;
    if (!file)
        snprintf(error, error_bytes, "trace_file=%s: cannot be written: %s", path, strerror(errno));
    return file;
}

/** Tells once for each file that some of the trace is lost. */
static void complain_once(void) {
    const int error = errno;
    if (!atomic_exchange(&trace.is_told, true)) {
        fprintf(stderr, "quernsim: trace_file=%s: cannot be written, the trace is not whole: %s\n",
                trace.options.trace_file, strerror(error));
    }
}

static void close_file(void) {
    if (trace.file && trace.file != stderr && fclose(trace.file) != 0)
        complain_once();
    trace.file = nullptr;
    atomic_store(&trace.is_told, false);
}

bool sim_trace_configure(const sim_look_options *options, char *error, size_t error_bytes) {
    bool ok = true;
    pthread_mutex_lock(&trace.lock);
    const bool is_new = !trace.file || strcmp(options->trace_file, trace.options.trace_file) != 0;
    if (*options->trace && is_new) {
        FILE *file = open_file(options->trace_file, error, error_bytes);
        ok = file;
        if (ok) {
            close_file();
            trace.file = file;
        }
    }
    if (ok)
        trace.options = *options;
    pthread_mutex_unlock(&trace.lock);
    return ok;
}

void sim_trace_finish(void) {
    pthread_mutex_lock(&trace.lock);
    *trace.options.trace = 0;
    close_file();
    pthread_mutex_unlock(&trace.lock);
}

void sim_trace_fork_prepare(void) {
    pthread_mutex_lock(&trace.lock);
    if (trace.file)
        fflush(trace.file); // or the child would write the same again
}

void sim_trace_fork_parent(void) {
    pthread_mutex_unlock(&trace.lock);
}

void sim_trace_fork_child(void) {
    pthread_mutex_init(&trace.lock, nullptr);
    trace.num_running = 0;
}

// ---- text

[[gnu::format(printf, 2, 3)]] static void put(traced_group *g, const char *format, ...) {
    const size_t room = sizeof g->text - g->used;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(g->text + g->used, room, format, args);
    va_end(args);
    g->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

static void write_text(traced_group *g) {
    // One call writes the text, so that lines of other threads stay apart.
    if (fwrite(g->text, 1, g->used, g->dispatch->to) != g->used)
        complain_once();
    g->used = 0;
}

static uint64_t flat_wave(const sim_workgroup *group, uint32_t wave) {
    return group->flat_id * group->num_waves + wave;
}

/** Writes how each line of a wave begins. */
static void put_head(traced_group *g, const sim_wave *w) {
    put(g, "%llu:%llu ", (unsigned long long)g->dispatch->launch,
        (unsigned long long)flat_wave(w->group, w->index));
}

static void put_result(traced_group *g, const sim_wave *w) {
    put_head(g, w);
    put(g, "          ");
}

/** Writes lanes as "0-31,40". */
static void put_lanes(traced_group *g, uint64_t mask) {
    const char *comma = "";
    for (int lane = 0; lane < SIM_LANES; lane++) {
        const int first = lane;
        while (lane < SIM_LANES && mask >> lane & 1)
            lane++;
        if (lane > first) {
            put(g, lane - 1 > first ? "%s%d-%d" : "%s%d", comma, first, lane - 1);
            comma = ",";
        }
    }
}

// ---- vector registers

static bool is_uniform(const uint32_t *row, uint64_t mask) {
    const uint32_t value = row[__builtin_ctzll(mask)];
    for (uint64_t left = mask; left; left &= left - 1)
        if (row[__builtin_ctzll(left)] != value)
            return false;
    return true;
}

/** Writes one value if all lanes have it, else the values of the first lanes. */
static void put_row(traced_group *g, const sim_wave *w, unsigned reg, uint64_t mask) {
    enum { SHOWN = 8 };
    const uint32_t *row = w->v[reg];
    const bool uniform = is_uniform(row, mask);
    put_result(g, w);
    put(g, "%c%u[", reg < 256 ? 'v' : 'a', reg % 256);
    put_lanes(g, mask);
    put(g, "] =");
    int n = 0;
    for (uint64_t left = mask; left && n < (uniform ? 1 : SHOWN); left &= left - 1, n++)
        put(g, " 0x%x", row[__builtin_ctzll(left)]);
    put(g, "%s\n", !uniform && __builtin_popcountll(mask) > SHOWN ? " ..." : "");
}

static bool is_dst(const sim_inst *inst, uint8_t kind, unsigned reg) {
    for (; inst; inst = inst->second) {
        for (unsigned i = 0; i < inst->num_dst; i++) {
            const sim_operand *op = &inst->dst[i];
            if (op->kind == kind && reg >= op->reg && reg < (unsigned)op->reg + op->count)
                return true;
        }
    }
    return false;
}

/** Shows the lanes of a destination, or the lanes that changed. */
static void put_vectors(traced_group *g, wave_copy *copy, const sim_wave *w, const sim_facts *f) {
    const unsigned rows = w->group->dispatch->chip->gfx_major > 9 ? 256 : ROWS;
    for (unsigned reg = 0; reg < rows; reg++) {
        uint64_t mask = f->is_issued && is_dst(f->inst, SIM_OP_VGPR, reg) ? f->exec : 0;
        if (memcmp(copy->v[reg], w->v[reg], sizeof copy->v[reg]) != 0) {
            for (unsigned lane = 0; lane < SIM_LANES; lane++)
                mask |= (uint64_t)(copy->v[reg][lane] != w->v[reg][lane]) << lane;
            memcpy(copy->v[reg], w->v[reg], sizeof copy->v[reg]);
        }
        if (mask)
            put_row(g, w, reg, mask);
    }
}

// ---- scalar registers

/** Returns the last register of a run. Registers side by side share a line, save for VCC, M0 and
 *  EXEC, which have names. */
static unsigned last_of_run(const bool shown[SCALARS], unsigned first) {
    unsigned last = first;
    while (last + 1 < SCALARS && shown[last + 1] && last + 1 != VCC && last + 1 != TTMP &&
           last + 1 != M0 && last + 1 != EXEC) {
        last++;
    }
    return last;
}

static void put_scalar_name(traced_group *g, unsigned first, unsigned last) {
    const bool is_trap = first >= TTMP && first < M0;
    const unsigned base = is_trap ? TTMP : 0;
    if (first == VCC || first == EXEC || first == M0)
        put(g, first == VCC ? "vcc" : first == EXEC ? "exec" : "m0");
    else if (first == last)
        put(g, "%s%u", is_trap ? "ttmp" : "s", first - base);
    else
        put(g, "%s[%u:%u]", is_trap ? "ttmp" : "s", first - base, last - base);
}

static void put_scalar_run(traced_group *g, const sim_wave *w, unsigned first, unsigned last) {
    put_result(g, w);
    put_scalar_name(g, first, last);
    put(g, " =");
    if (first == VCC || first == EXEC)
        put(g, " 0x%llx", (unsigned long long)(w->s[first] | (uint64_t)w->s[first + 1] << 32));
    else
        for (unsigned reg = first; reg <= last; reg++)
            put(g, " 0x%x", w->s[reg]);
    put(g, "\n");
}

static void put_scalars(traced_group *g, wave_copy *copy, const sim_wave *w, const sim_facts *f) {
    bool shown[SCALARS];
    for (unsigned reg = 0; reg < SCALARS; reg++)
        shown[reg] = w->s[reg] != copy->s[reg] || is_dst(f->inst, SIM_OP_SGPR, reg);
    for (unsigned pair = VCC; pair <= EXEC; pair += EXEC - VCC) {
        shown[pair] |= shown[pair + 1];
        shown[pair + 1] = false;
    }
    for (unsigned reg = 0; reg < SCALARS; reg++) {
        if (shown[reg]) {
            const unsigned last = last_of_run(shown, reg);
            put_scalar_run(g, w, reg, last);
            reg = last;
        }
    }
    memcpy(copy->s, w->s, sizeof copy->s);
    if (copy->scc != w->scc) {
        put_result(g, w);
        put(g, "scc = %u\n", w->scc);
        copy->scc = w->scc;
    }
}

// ---- memory

static void put_touch(traced_group *g, const sim_wave *w, const char *space, const sim_touch *t) {
    uint64_t low = UINT64_MAX, high = 0;
    uint32_t bytes = 0;
    for (uint64_t left = t->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint64_t last = t->address[lane] + t->bytes[lane] - 1;
        low = t->address[lane] < low ? t->address[lane] : low;
        high = last > high ? last : high;
        bytes += t->bytes[lane];
    }
    if (t->mask) {
        put_result(g, w);
        put(g, "%s: %u bytes of lanes ", space, bytes);
        put_lanes(g, t->mask);
        put(g, " in 0x%llx..0x%llx\n", (unsigned long long)low, (unsigned long long)high);
    }
}

static void put_accesses(traced_group *g, const sim_wave *w, const sim_facts *f) {
    put_touch(g, w, "memory", &f->memory);
    put_touch(g, w, "scratch", &f->scratch);
    for (unsigned i = 0; i < f->num_lds; i++)
        put_touch(g, w, "lds", &f->lds[i]);
    if (f->scalar_bytes) {
        put_result(g, w);
        put(g, "memory: %u bytes at 0x%llx\n", f->scalar_bytes,
            (unsigned long long)f->scalar_address);
    }
}

// ---- the observer

/** Writes the first line of a dispatch's trace in one call, as other dispatches may write
 *  theirs. */
static void put_title(const traced_dispatch *traced, const sim_dispatch *d) {
    flockfile(traced->to);
    fprintf(traced->to, "trace of launch %llu: kernel ", (unsigned long long)traced->launch);
    sim_print_plain(traced->to, d->kernel->name);
    fprintf(traced->to, ", %s, device %u, %ux%ux%u workgroups of %ux%ux%u\n", d->chip->name,
            d->device, d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1], d->block[2]);
    funlockfile(traced->to);
}

static void *begin_dispatch(const sim_dispatch *d) {
    traced_dispatch *traced = nullptr;
    pthread_mutex_lock(&trace.lock);
    if (*trace.options.trace && fnmatch(trace.options.trace, d->kernel->name, 0) == 0)
        traced = malloc(sizeof *traced);
    if (traced) {
        trace.num_running++;
        *traced = (traced_dispatch){
            .launch = trace.num_launches++, .wave = trace.options.trace_wave, .to = trace.file};
        traced->texts = calloc(d->text->size / 4 + 1, sizeof *traced->texts);
        traced->num_texts = traced->texts ? d->text->size / 4 : 0;
        put_title(traced, d);
    }
    pthread_mutex_unlock(&trace.lock);
    return traced;
}

static void end_dispatch(void *of_dispatch, sim_dispatch *) {
    traced_dispatch *traced = of_dispatch;
    pthread_mutex_lock(&trace.lock);
    if (fflush(traced->to) != 0)
        complain_once();
    trace.num_running--;
    pthread_mutex_unlock(&trace.lock);
    for (uint64_t i = 0; i < traced->num_texts; i++)
        free(atomic_load(&traced->texts[i]));
    free((void *)traced->texts);
    free(traced);
}

static bool is_wanted(const traced_dispatch *d, const sim_workgroup *group, uint32_t wave) {
    return d->wave == SIM_ALL_WAVES || d->wave == flat_wave(group, wave);
}

static size_t group_bytes(const void *of_dispatch, const sim_workgroup *group) {
    bool any = false;
    for (uint32_t i = 0; i < group->num_waves; i++)
        any |= is_wanted(of_dispatch, group, i);
    return any ? sizeof(traced_group) + group->num_waves * sizeof(wave_copy) : 0;
}

static void begin_group(void *of_dispatch, void *of_group, const sim_workgroup *group) {
    traced_group *g = of_group;
    g->dispatch = of_dispatch;
    for (uint32_t i = 0; i < group->num_waves; i++) {
        const sim_wave *w = &group->waves[i];
        wave_copy *copy = &g->waves[i];
        if (!is_wanted(of_dispatch, group, i))
            continue;
        copy->is_traced = true;
        copy->scc = w->scc;
        memcpy(copy->s, w->s, sizeof copy->s);
        memcpy(copy->v, w->v, sizeof copy->v);
        put_head(g, w);
        put(g, "workgroup (%u, %u, %u), wave %u, exec = 0x%llx\n", group->id[0], group->id[1],
            group->id[2], i, (unsigned long long)w->exec);
        write_text(g);
    }
}

/** Returns an instruction's text, disassembled once and kept; without memory it is disassembled
 *  into `room`. */
static const char *find_text(const traced_dispatch *traced, const sim_wave *w, uint64_t pc,
                             char room[SIM_INST_TEXT_BYTES]) {
    const sim_text *code = w->group->dispatch->text;
    const uint64_t at = (pc - code->start) / 4;
    char *known = at < traced->num_texts ? atomic_load(&traced->texts[at]) : nullptr;
    if (known)
        return known;
    sim_inst_text(code, !w->wave32, pc, room);
    char *copy = at < traced->num_texts ? strdup(room) : nullptr;
    if (copy && !atomic_compare_exchange_strong(&traced->texts[at], &known, copy))
        free(copy); // another thread kept the text first
    return room;
}

/** Writes "+0x34: v_add_u32_e32 v1, v0, v2" with the offset from the kernel's first
 *  instruction. */
static void put_inst(traced_group *g, const sim_wave *w, const sim_inst *inst) {
    const sim_dispatch *d = w->group->dispatch;
    char text[SIM_INST_TEXT_BYTES];
    const bool is_before = inst->pc < d->kernel->entry; // in a function that it calls
    const uint64_t distance = is_before ? d->kernel->entry - inst->pc : inst->pc - d->kernel->entry;
    put_head(g, w);
    put(g, "%c0x%04llx: %s\n", is_before ? '-' : '+', (unsigned long long)distance,
        find_text(g->dispatch, w, inst->pc, text));
}

static void step(void *of_group, const sim_wave *w, const sim_facts *f) {
    traced_group *g = of_group;
    wave_copy *copy = &g->waves[w->index];
    if (!copy->is_traced)
        return;
    put_inst(g, w, f->inst);
    put_scalars(g, copy, w, f);
    put_vectors(g, copy, w, f);
    put_accesses(g, w, f);
    write_text(g);
}

static void end_group(void *, void *, const sim_workgroup *) {}

const sim_observer sim_tracer = {.begin_dispatch = begin_dispatch,
                                 .group_bytes = group_bytes,
                                 .begin_group = begin_group,
                                 .step = step,
                                 .end_group = end_group,
                                 .end_dispatch = end_dispatch};
