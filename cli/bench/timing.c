// SPDX-License-Identifier: Apache-2.0
// What bench's measurements share: events around calls, medians, a copy of as many bytes, limits,
// filled tensors.
#include "timing.h"

#include "../file.h"
#include "call.h"

#include <stdlib.h>
#include <string.h>

// ---- timing

int timing_warm_up(const cli_device *device) {
    return device->info.is_modelled ? 1 : 2;
}

/** The times of one side's runs. */
typedef struct timer {
    qn_event *start, *end;
    int64_t *times;
    int count;
} timer;

/** One of the functions that take turns. */
typedef struct side {
    qn_status (*body)(void *);
    void *context;
    timer timer;
} side;

static qn_status timer_open(timer *t, cli_device *device, int runs) {
    *t = (timer){.times = cli_alloc((size_t)runs * sizeof(int64_t))};
    const qn_status st = qn_event_create(&t->start, device->device);
    return st == QN_OK ? qn_event_create(&t->end, device->device) : st;
}

static void timer_close(timer *t) {
    qn_event_destroy(t->start);
    qn_event_destroy(t->end);
    free(t->times);
}

/** Runs a side; the time of one of its repeats counts if `counts`, which is false for warm-ups. */
static qn_status run_side(side *s, cli_device *device, int repeats, bool counts) {
    timer *t = &s->timer;
    int64_t ns;
    CLI_TRY(qn_event_record(t->start, device->stream));
    for (int i = 0; i < repeats; i++)
        CLI_TRY(s->body(s->context));
    CLI_TRY(qn_event_record(t->end, device->stream));
    CLI_TRY(qn_event_sync(t->end));
    CLI_TRY(qn_event_elapsed(&ns, t->start, t->end));
    if (counts)
        t->times[t->count++] = ns / repeats;
    return QN_OK;
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/** Keeps where the time of the runs since the last call went, if it is modelled. */
static void take_clock(measurement *out, const cli_device *device) {
    if (!device->info.is_modelled)
        return;
    json_decref(out->clock);
    out->clock = cli_clock_take();
}

/** Runs the sides in turns and sorts their times. The measurement is the first side's times and
 *  kernel. */
static qn_status run_sides(measurement *out, cli_device *device, side *sides, int count, int runs) {
    for (int i = 0; i < count; i++)
        CLI_TRY(timer_open(&sides[i].timer, device, runs));
    const int warm_up = timing_warm_up(device);
    for (int i = 0; i < runs + warm_up; i++) {
        take_clock(out, device);
        for (int n = 0; n < count; n++)
            CLI_TRY(run_side(&sides[n], device, 1, i >= warm_up));
        cli_progress_add(1);
    }
    take_clock(out, device);
    for (int i = 0; i < count; i++)
        qsort(sides[i].timer.times, (size_t)runs, sizeof(int64_t), by_value);
    out->kernel = qn_last_kernel();
    out->median_ns = sides[0].timer.times[runs / 2];
    out->fastest_ns = sides[0].timer.times[0];
    return QN_OK;
}

qn_status timing_alone(measurement *out, cli_device *device, qn_status (*body)(void *),
                       void *context, int runs) {
    side op = {body, context, {0}};
    const qn_status st = run_sides(out, device, &op, 1, runs);
    timer_close(&op.timer);
    return st;
}

static qn_status take_turns(cli_device *device, side *sides, timing_turn *turns, int count,
                            int rounds, int repeats) {
    for (int i = 0; i < count; i++) {
        sides[i] = (side){turns[i].body, turns[i].context, {0}};
        CLI_TRY(timer_open(&sides[i].timer, device, rounds));
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++) {
            CLI_TRY(cli_check_signals());
            CLI_TRY(run_side(&sides[i], device, repeats, true));
        }
    for (int i = 0; i < count; i++) {
        int64_t *times = sides[i].timer.times;
        qsort(times, (size_t)rounds, sizeof *times, by_value);
        turns[i].median_ns = times[rounds / 2];
        turns[i].spread_ns = times[3 * (rounds - 1) / 4] - times[(rounds - 1) / 4];
    }
    return QN_OK;
}

qn_status timing_take_turns(cli_device *device, timing_turn *turns, int count, int rounds,
                            int repeats) {
    side *sides = cli_alloc((size_t)count * sizeof *sides);
    const qn_status st = take_turns(device, sides, turns, count, rounds, repeats);
    for (int i = 0; i < count; i++)
        timer_close(&sides[i].timer);
    free(sides);
    return st;
}

void bench_call_close(bench_call *call) {
    if (call->close)
        call->close(call->context);
    *call = (bench_call){0};
}

void timing_set_limit(measurement *out, double flops, double read_bytes) {
    if (!(flops > 0) || !(read_bytes > 0))
        return;
    const double memory = out->bytes / read_bytes * 1e9, arithmetic = out->flops / flops * 1e9;
    out->limit_ns = memory > arithmetic ? memory : arithmetic;
    out->bound = memory > arithmetic ? "memory" : "arithmetic";
}

// ---- data

/** Fills in bf16 values that differ, near 1 in size. */
static void fill_bf16(uint16_t *to, int64_t count, cli_random *random) {
    for (int64_t i = 0; i < count; i++)
        to[i] = (uint16_t)(cli_random_next(random) & 0x80FF) | 0x3F00;
}

/** Fills in codes of e4m3fn, or of e4m3fnuz, other than NaN. */
static void fill_fp8(uint8_t *to, int64_t count, bool is_fnuz, cli_random *random) {
    for (int64_t i = 0; i < count; i++) {
        const uint8_t code = (uint8_t)(cli_random_next(random) >> 24);
        const bool is_nan = is_fnuz ? code == 0x80 : (code & 0x7F) == 0x7F;
        to[i] = is_nan ? code ^ 1 : code;
    }
}

/** Fills in `count` elements, of which those behind the first million repeat them. The number of
 *  these is a prime, so that no rows are equal. */
static void fill(void *to, DLDataType dtype, int64_t count, cli_random *random) {
    constexpr int64_t period = 1'048'573;
    const int64_t own = count < period ? count : period;
    const size_t bytes = dtype.bits / 8;
    if (dtype.bits == 8)
        fill_fp8(to, own, dtype.code == kDLFloat8_e4m3fnuz, random);
    else if (dtype.bits == 16)
        fill_bf16(to, own, random);
    else
        for (int64_t i = 0; i < own; i++)
            ((float *)to)[i] = 0x1p-8F * (float)(1 + (cli_random_next(random) & 15));
    for (int64_t i = own; i < count; i += own)
        memcpy((char *)to + (size_t)i * bytes, to,
               (size_t)(count - i < own ? count - i : own) * bytes);
}

qn_status timing_make_filled(cli_tensor *out, cli_device *device, DLDataType dtype, int ndim,
                             const int64_t *shape, cli_random *random) {
    qn_status st = cli_tensor_make(out, device, dtype, ndim, shape);
    if (st != QN_OK)
        return st;
    int64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    void *host = cli_alloc((size_t)(count * dtype.bits / 8));
    if (dtype.code == kDLInt)
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)host)[i] = (int32_t)i;
    else
        fill(host, dtype, count, random);
    st = cli_tensor_load(out, device, host);
    free(host);
    return st;
}

// ---- beside a copy

typedef struct copy_run {
    cli_device *device;
    cli_tensor from, to;
} copy_run;

static qn_status run_copy(void *context) {
    copy_run *r = context;
    return qn_copy(r->device->stream, &r->to.t, &r->from.t);
}

static qn_status timing_beside_memory(measurement *out, cli_device *device,
                                      qn_status (*body)(void *), void *context, int runs) {
    cli_limits limits;
    cli_limits_get(&limits, &device->info);
    timing_set_limit(out, limits.bf16_flops, limits.read_bytes);
    return timing_alone(out, device, body, context, runs);
}

qn_status timing_beside_copy(measurement *out, cli_device *device, qn_status (*body)(void *),
                             void *context, int runs) {
    if (device->info.is_modelled)
        return timing_beside_memory(out, device, body, context, runs);
    copy_run c = {.device = device};
    side sides[] = {{body, context, {0}}, {run_copy, &c, {0}}};
    cli_random random = {1};
    // A copy reads and writes each byte, so half as many bytes make the same traffic.
    const int64_t bytes[] = {(int64_t)out->bytes / 2};
    const DLDataType u8 = {kDLUInt, 8, 1};
    qn_status st;
    CLI_TRY_OUT(timing_make_filled(&c.from, device, u8, 1, bytes, &random));
    CLI_TRY_OUT(timing_make_filled(&c.to, device, u8, 1, bytes, &random));
    CLI_TRY_OUT(run_sides(out, device, sides, 2, runs));
    out->copy_ns = sides[1].timer.times[runs / 2];
out:
    timer_close(&sides[0].timer);
    timer_close(&sides[1].timer);
    cli_tensor_free(&c.from, device);
    cli_tensor_free(&c.to, device);
    return st;
}
