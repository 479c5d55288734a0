// SPDX-License-Identifier: Apache-2.0
// Tries the kernels that can run a problem: compares their results with the usual kernel's, and
// times them beside it.
#include "../bench/timing.h"
#include "../file.h"
#include "tune.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TOO_SLOW = 4,          // times as long as the usual kernel: no more runs
    MAX_REPEATS = 64,      // of a call in a round
    WEIGHT_BYTES = 1 << 29 // of all weights that products go round, at least one
};
constexpr int64_t round_ns = 200'000; // a round takes that long at least, if it may repeat so often

typedef struct trial {
    tune_record *record;
    cli_device *device;
    const tune_problem *problem;
    const tune_trying *options;
    bench_call call;
    int64_t once_ns[TUNE_MAX_KERNELS]; // the first run, then a warm one
    int64_t shown;                     // of TUNE_STEPS, in the progress bar
} trial;

/** One of the kernels, as what takes a turn. */
typedef struct turn {
    trial *trial;
    const tune_kernel *kernel;
} turn;

static bool is_modelled(const trial *t) {
    return t->device->info.is_modelled;
}

/** Shows that a part of the problem is done. */
static void advance(trial *t, double part) {
    const int64_t steps = (int64_t)(part * (double)TUNE_STEPS);
    cli_progress_add(steps - t->shown);
    t->shown = steps;
}

static qn_status run_turn(void *context) {
    const turn *n = context;
    CLI_TRY(qn_tune_force(n->kernel->name));
    const qn_status st = n->trial->call.run(n->trial->call.context);
    qn_tune_force(nullptr);
    return st;
}

// ---- the call

/** Returns how many weights a product goes round, so that none stays in a cache but memory
 *  suffices. */
static int count_weights(const trial *t) {
    const gemm_shape *s = &t->problem->gemm;
    const int64_t bytes = s->n * s->k * s->dtype.bits / 8, count = WEIGHT_BYTES / bytes;
    return is_modelled(t) ? 1 : count < 1 ? 1 : count > 8 ? 8 : (int)count;
}

static qn_status open_call(trial *t) {
    const tune_problem *p = t->problem;
    const bool is_dry = t->options->is_dry;
    int64_t bytes;
    switch (p->op) {
    case TUNE_GEMM:
        return gemm_call_open(&t->call, t->device, &p->gemm, is_dry ? 0 : count_weights(t),
                              !is_dry);
    case TUNE_ATTENTION:
        return attention_call_open(&t->call, t->device, &p->attention);
    case TUNE_MLA:
        return mla_call_open(&t->call, t->device, &p->mla);
    case TUNE_NORM:
    case TUNE_ACTIVATION:
        return rows_call_open(&t->call, t->device, p->rows.number, p->rows.shape, !is_dry, &bytes);
    case TUNE_QUANTIZE:
        return quantize_call_open(&t->call, t->device, p->quantize.shape, p->quantize.block_rows);
    case TUNE_OPS:
        break;
    }
    __builtin_unreachable();
}

/** Makes the next product one of that weight. */
static qn_status begin_with(trial *t, int weight) {
    return t->problem->op == TUNE_GEMM ? gemm_call_begin(&t->call, weight) : QN_OK;
}

// ---- which kernels there are

static bool take_choice(void *context, const qn_tune_choice *c) {
    tune_record *r = context;
    if (*r->op)
        return false; // the first choice of a call is the op's
    snprintf(r->op, sizeof r->op, "%s", c->op);
    snprintf(r->problem, sizeof r->problem, "%s", c->problem);
    snprintf(r->batch, sizeof r->batch, "%s", c->batch);
    for (int i = 0; i < c->num_kernels && i < TUNE_MAX_KERNELS; i++) {
        tune_kernel *k = &r->kernels[r->num_kernels++];
        snprintf(k->name, sizeof k->name, "%s", c->kernels[i].name);
        k->bits = c->kernels[i].bits;
    }
    return false;
}

/** Lists the kernels; where there is none, record->why says why. */
static qn_status list_kernels(trial *t) {
    qn_tune_watch(take_choice, t->record);
    const qn_status st = t->call.run(t->call.context);
    qn_tune_watch(nullptr, nullptr);
    if (t->record->num_kernels > 0)
        return QN_OK;
    if (st != QN_E_UNSUPPORTED)
        return st;
    *t->record->op = '\0';
    snprintf(t->record->why, sizeof t->record->why, "%s", qn_last_error());
    return QN_OK;
}

// ---- results

static void refuse(tune_kernel *k, const char *why) {
    snprintf(k->refused, sizeof k->refused, "%s", why);
}

/** Runs a kernel once, on the first weight, and fetches its result. once_ns becomes the time. */
static qn_status run_once(trial *t, int i, tune_result *out) {
    turn n = {t, &t->record->kernels[i]};
    timing_turn one = {.body = run_turn, .context = &n};
    CLI_TRY(begin_with(t, 0));
    CLI_TRY(tune_prepare(&t->call));
    CLI_TRY(timing_take_turns(t->device, &one, 1, 1, 1));
    t->once_ns[i] = one.median_ns;
    return tune_fetch(out, &t->call);
}

/** Runs a kernel, and refuses it if its result is not the usual one's or if it fails. */
static qn_status compare(trial *t, int i, const tune_result *usual) {
    const tune_kernel *first = t->record->kernels;
    tune_kernel *k = &t->record->kernels[i];
    tune_result got = {0};
    char why[sizeof k->refused];
    const qn_status st = run_once(t, i, &got);
    if (st != QN_OK && cli_check_signals() == QN_OK)
        refuse(k, qn_last_error());
    else if (st == QN_OK && !tune_agrees(&t->call, usual, &got, k->bits && k->bits == first->bits,
                                         t->options->is_sample, why, sizeof why))
        refuse(k, why);
    tune_result_free(&got);
    return cli_check_signals();
}

/** Times warm runs of a kernel. Modelled time needs one, whose weight is new to the caches, as the
 *  weights of a model's layers are. */
static qn_status time_warm(trial *t, int i) {
    turn n = {t, &t->record->kernels[i]};
    timing_turn one = {.body = run_turn, .context = &n};
    if (is_modelled(t))
        CLI_TRY(begin_with(t, 1 + i));
    CLI_TRY(timing_take_turns(t->device, &one, 1, is_modelled(t) ? 1 : 3, 1));
    t->once_ns[i] = one.median_ns;
    return QN_OK;
}

/** Returns whether a kernel's first run is reason enough not to time it. On real devices that run
 *  loads code. */
static bool is_hopeless(const trial *t, int i, int64_t usual_ns) {
    return is_modelled(t) && t->once_ns[i] > TOO_SLOW * usual_ns;
}

/** Compares all results with the first kernel's, and times warm runs. */
static qn_status try_each(trial *t) {
    tune_record *r = t->record;
    tune_result usual = {0};
    int64_t usual_ns = 0;
    qn_status st;
    CLI_TRY_OUT(run_once(t, 0, &usual));
    usual_ns = t->once_ns[0];
    for (int i = 0; i < r->num_kernels; i++) {
        if (i >= t->options->kernels)
            refuse(&r->kernels[i], TUNE_NOT_TRIED);
        else if (i > 0)
            CLI_TRY_OUT(compare(t, i, &usual));
        if (!*r->kernels[i].refused && !is_hopeless(t, i, usual_ns))
            CLI_TRY_OUT(time_warm(t, i));
        r->kernels[i].ns = *r->kernels[i].refused ? 0 : t->once_ns[i];
        advance(t, (i + 1.0) / r->num_kernels * (is_modelled(t) ? 1 : 0.3));
    }
out:
    tune_result_free(&usual);
    return st;
}

// ---- times

/** Times some of the kernels in turns. */
static qn_status time_some(trial *t, const int *which, int count, int rounds) {
    timing_turn turns[TUNE_MAX_KERNELS] = {0};
    turn contexts[TUNE_MAX_KERNELS];
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; i++) {
        contexts[i] = (turn){t, &t->record->kernels[which[i]]};
        turns[i] = (timing_turn){.body = run_turn, .context = &contexts[i]};
        least = t->once_ns[which[i]] < least ? t->once_ns[which[i]] : least;
    }
    const int64_t wanted = least > 0 ? round_ns / least : MAX_REPEATS;
    CLI_TRY(timing_take_turns(t->device, turns, count, rounds,
                              wanted < 1             ? 1
                              : wanted > MAX_REPEATS ? MAX_REPEATS
                                                     : (int)wanted));
    for (int i = 0; i < count; i++) {
        t->record->kernels[which[i]].ns = turns[i].median_ns;
        t->record->kernels[which[i]].noise_ns = turns[i].spread_ns;
    }
    return QN_OK;
}

/** Returns the fastest kernel that may be chosen in place of the first; 0: none is faster. */
static int fastest(const tune_record *r) {
    int best = 0;
    for (int i = 1; i < r->num_kernels; i++)
        if (!*r->kernels[i].refused && r->kernels[i].ns < r->kernels[best].ns)
            best = i;
    return best;
}

/** Times all kernels that may be worth it, and then the fastest once more beside the first, until
 *  it is one that was: the least of many times is likely too small. */
static qn_status time_all(trial *t, int rounds) {
    tune_record *r = t->record;
    int which[TUNE_MAX_KERNELS], count = 0;
    bool is_confirmed[TUNE_MAX_KERNELS] = {false};
    for (int i = 0; i < r->num_kernels; i++)
        if (!*r->kernels[i].refused && t->once_ns[i] <= TOO_SLOW * t->once_ns[0])
            which[count++] = i;
    if (count > 1)
        CLI_TRY(time_some(t, which, count, rounds));
    advance(t, 0.8);
    for (int best = fastest(r); best && !is_confirmed[best]; best = fastest(r)) {
        CLI_TRY(time_some(t, (const int[]){0, best}, 2, rounds));
        is_confirmed[best] = true;
    }
    return QN_OK;
}

static void set_date(tune_record *r) {
    const time_t now = time(nullptr);
    struct tm parts;
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
}

qn_status tune_try(tune_record *out, cli_device *device, const tune_problem *problem,
                   const tune_trying *options) {
    trial t = {.record = out, .device = device, .problem = problem, .options = options};
    qn_status st;
    *out = (tune_record){0};
    set_date(out);
    CLI_TRY_OUT(open_call(&t));
    CLI_TRY_OUT(list_kernels(&t));
    if (!options->is_dry && out->num_kernels > 0)
        CLI_TRY_OUT(try_each(&t));
    if (!options->is_dry && out->num_kernels > 1 && !is_modelled(&t))
        CLI_TRY_OUT(time_all(&t, options->rounds));
    advance(&t, 1);
out:
    bench_call_close(&t.call);
    return st;
}
