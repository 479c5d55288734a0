// SPDX-License-Identifier: Apache-2.0
// A profile for people: each kernel's figures, then its counters.
#include "clock.h"
#include "profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t integer(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

static const char *string(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

void profile_classes(profile_class out[PROFILE_CLASSES], const json_t *k) {
    const int64_t matrix = profile_counter_of(k, "SQ_INSTS_MFMA", "insts_wmma");
    const profile_class classes[PROFILE_CLASSES] = {
        {"vector", "#4477aa", profile_counter(k, "SQ_INSTS_VALU") - matrix},
        {"matrix", "#aa3377", matrix},
        {"scalar", "#66ccee", profile_counter(k, "SQ_INSTS_SALU")},
        {"scalar memory", "#228833", profile_counter(k, "SQ_INSTS_SMEM")},
        {"vector memory", "#ccbb44", profile_counter_of(k, "SQ_INSTS_VMEM", "insts_vmem")},
        {"LDS", "#ee6677", profile_counter(k, "SQ_INSTS_LDS")},
        {"branch", "#bbbbbb", profile_counter_of(k, "SQ_INSTS_BRANCH", "insts_branch")},
        {"other", "#dddddd", profile_counter_of(k, "SQ_INSTS", "insts")}};
    memcpy(out, classes, sizeof classes);
    for (int i = 0; i + 1 < PROFILE_CLASSES; i++)
        out[PROFILE_CLASSES - 1].count -= out[i].count;
}

// ---- figures

static void print_launches(FILE *to, const json_t *k) {
    const json_t *block = json_object_get(k, "block");
    const int64_t failed = integer(k, "failed_launches");
    fprintf(to, "  launches      %lld", (long long)integer(k, "launches"));
    if (failed)
        fprintf(to, " (%lld failed)", (long long)failed);
    fprintf(to, ", %lld workgroups of %lldx%lldx%lld, waves of %lld\n",
            (long long)integer(k, "workgroups"), json_integer_value(json_array_get(block, 0)),
            json_integer_value(json_array_get(block, 1)),
            json_integer_value(json_array_get(block, 2)), (long long)integer(k, "wave_size"));
}

static void print_occupancy(FILE *to, const json_t *k) {
    const json_t *o = json_object_get(k, "occupancy");
    char lds[32], scratch[32];
    fprintf(
        to,
        "  resources     %lld VGPRs, %lld of them AGPRs; %lld SGPRs; LDS %s; scratch %s a lane\n",
        (long long)integer(k, "vgprs"), (long long)integer(k, "agprs"),
        (long long)integer(k, "sgprs"), cli_bytes_text(integer(k, "lds_bytes"), lds, sizeof lds),
        cli_bytes_text(integer(k, "scratch_bytes"), scratch, sizeof scratch));
    fprintf(
        to,
        "  occupancy     %lld of %lld waves a compute unit, in %lld workgroups; limited by %s\n",
        (long long)integer(o, "waves"), (long long)integer(o, "max_waves"),
        (long long)integer(o, "workgroups"), string(o, "limit"));
}

/** Prints "91.5 %", or "-" if there is nothing to divide by. */
static void print_percent(FILE *to, const char *title, double percent, const char *of) {
    fprintf(to, isfinite(percent) ? "  %-13s %.1f %% %s\n" : "  %-13s -\n", title, percent, of);
}

static int64_t sum_of(const json_t *k, const char *a, const char *b) {
    return profile_counter(k, a) + profile_counter(k, b);
}

/** Prints bytes, from those that lanes ask for to those that memory has to give at least. */
static void print_memory(FILE *to, const json_t *k) {
    char wanted[32], lines[32], groups[32], launches[32], scalar[32], lds[32];
    const int64_t line_bytes = profile_counter(k, "memory_line_bytes");
    fprintf(
        to,
        "  memory        lanes want %s; lines of each instruction %s, of each workgroup %s, of "
        "each launch %s\n",
        cli_bytes_text(sum_of(k, "memory_load_bytes", "memory_store_bytes") +
                           profile_counter(k, "memory_atomic_bytes"),
                       wanted, sizeof wanted),
        cli_bytes_text(line_bytes, lines, sizeof lines),
        cli_bytes_text(sum_of(k, "group_load_bytes", "group_store_bytes"), groups, sizeof groups),
        cli_bytes_text(sum_of(k, "launch_load_bytes", "launch_store_bytes"), launches,
                       sizeof launches));
    fprintf(to, "  other bytes   scalar %s, LDS %s\n",
            cli_bytes_text(profile_counter(k, "scalar_bytes"), scalar, sizeof scalar),
            cli_bytes_text(sum_of(k, "lds_load_bytes", "lds_store_bytes") +
                               sum_of(k, "lds_atomic_bytes", "lds_dma_bytes"),
                           lds, sizeof lds));
    print_percent(to, "coalescing",
                  profile_percent(profile_counter(k, "memory_touched_bytes"), line_bytes),
                  "of each instruction's lines is wanted");
}

static void print_lanes(FILE *to, const json_t *k) {
    const int64_t conflict = profile_counter_of(k, "SQ_LDS_BANK_CONFLICT", "SQC_LDS_BANK_CONFLICT");
    const int64_t active = profile_counter_of(k, "SQ_LDS_IDX_ACTIVE", "SQC_LDS_IDX_ACTIVE");
    print_percent(
        to, "active lanes",
        profile_percent(profile_counter(k, "valu_active_lanes"), profile_counter(k, "valu_lanes")),
        "of vector instructions");
    print_percent(to, "LDS conflicts", profile_percent(conflict, active), "of its cycles");
}

static void print_mix(FILE *to, const json_t *k) {
    profile_class classes[PROFILE_CLASSES];
    profile_classes(classes, k);
    const int64_t all = profile_counter_of(k, "SQ_INSTS", "insts");
    const char *comma = "";
    fprintf(to, "  instructions ");
    for (int i = 0; i < PROFILE_CLASSES; i++)
        if (classes[i].count) {
            fprintf(to, "%s %s %.1f %%", comma, classes[i].name,
                    profile_percent(classes[i].count, all));
            comma = ",";
        }
    fputs(all ? "\n" : " -\n", to);
}

// ---- modelled time

enum { LINE = 128 };

/** Prints the times of a launch, on average. */
static void print_times(FILE *to, const json_t *k, const json_t *clock) {
    const int64_t launches = integer(k, "launches") ? integer(k, "launches") : 1;
    char with[32], without[32];
    fprintf(to,
            "  modelled      %s a launch, %s without the power limit; at %lld MHz, %lld W; "
            "%lld of %lld workgroups ran at modelled time\n",
            cli_time_text(integer(clock, "ns") / launches, with, sizeof with),
            cli_time_text(integer(clock, "unlimited_ns") / launches, without, sizeof without),
            (long long)integer(clock, "mhz"), (long long)integer(clock, "watts"),
            (long long)integer(clock, "workgroups_run"), (long long)integer(clock, "workgroups"));
}

/** Prints how long launches ran beside others, if any did. */
static void print_elapsed(FILE *to, const json_t *clock) {
    const int64_t launches = integer(clock, "elapsed_launches");
    char each[32];
    if (integer(clock, "shared_ns") > 0)
        fprintf(
            to,
            "  streams       %s a launch from start to end, %.1f %% of it beside other launches\n",
            cli_time_text(integer(clock, "elapsed_ns") / launches, each, sizeof each),
            profile_percent(integer(clock, "shared_ns"), integer(clock, "elapsed_ns")));
}

/** Prints "L1 87.3 %", or "L1 -" for a level that nobody asked. */
static void print_hits(FILE *to, const char *level, int64_t hits, int64_t lines) {
    fprintf(to, lines ? "%s %.1f %%, " : "%s -, ", level, profile_percent(hits, lines));
}

/** Prints the bytes that each level was asked for. */
static void print_levels(FILE *to, const json_t *m) {
    char bytes[4][32];
    static const char *const levels[] = {"l1_lines", "l2_lines", "fabric_lines"};
    for (int i = 0; i < 3; i++)
        cli_bytes_text(integer(m, levels[i]) * LINE, bytes[i], sizeof bytes[i]);
    fprintf(to, "  asked for     L1 %s, L2 %s, memory-side %s; LDS %s\n", bytes[0], bytes[1],
            bytes[2], cli_bytes_text(integer(m, "lds_bytes"), bytes[3], sizeof bytes[3]));
}

enum { SHOWN = 8 }; // instructions, and lines

/** Prints the share of an instruction's or a line's cycles, and on what most of them went. */
static void print_cost(FILE *to, const char *title, const json_t *clock, const json_t *of) {
    cli_spent spent[CLI_SPENT];
    cli_clock_spent(spent, of);
    fprintf(to, "  %-13s %5.1f %%  %-14s", title,
            profile_percent(profile_cycles(of), profile_busy_cycles(clock)), spent[0].name);
}

/** Prints the instructions that cost most of the cycles during which SIMDs had waves. */
static void print_dearest(FILE *to, const json_t *k, const json_t *clock) {
    char place[32];
    size_t count;
    const json_t **list = profile_dearest(json_object_get(clock, "instructions"), &count);
    for (size_t i = 0; i < count && i < SHOWN; i++) {
        print_cost(to, i ? "" : "dearest", clock, list[i]);
        fprintf(to, " %s ", profile_place(k, list[i], place, sizeof place));
        cli_write_plain(to, string(list[i], "text"));
        fputc('\n', to);
    }
    free(list);
}

static void print_lines(FILE *to, const json_t *clock) {
    const json_t *lines = json_object_get(clock, "lines");
    if (!lines)
        fputs("  source lines  none: the code has no line table (the compiler's -g makes one)\n",
              to);
    for (size_t i = 0; i < json_array_size(lines) && i < SHOWN; i++) {
        const json_t *line = json_array_get(lines, i);
        print_cost(to, i ? "" : "source lines", clock, line);
        fputc(' ', to);
        cli_write_plain(to, string(line, "file"));
        fprintf(to, ":%lld\n", (long long)integer(line, "line"));
    }
}

static void print_clock(FILE *to, const json_t *k) {
    const json_t *clock = json_object_get(k, "clock"), *m = json_object_get(clock, "memory");
    char text[512], bytes[32];
    if (!clock)
        return;
    print_times(to, k, clock);
    print_elapsed(to, clock);
    fprintf(to, "  SIMD cycles   %s\n", cli_clock_text(clock, CLI_SPENT, text, sizeof text));
    fputs("  cache hits    ", to);
    print_hits(to, "L1", integer(m, "l1_hits"), integer(m, "l1_lines"));
    print_hits(to, "L2", integer(m, "l2_hits"), integer(m, "l2_lines"));
    print_hits(to, "memory-side", integer(m, "mall_hits"), integer(m, "fabric_lines"));
    fprintf(to, "from memory %s, by these workgroups\n",
            cli_bytes_text(integer(m, "hbm_lines") * LINE, bytes, sizeof bytes));
    print_levels(to, m);
    fprintf(to, "  waves         %.2f a SIMD on average, room for %.0f\n", profile_waves(k),
            (double)integer(json_object_get(k, "occupancy"), "waves") /
                (double)integer(json_object_get(k, "chip"), "simds"));
    print_dearest(to, k, clock);
    print_lines(to, clock);
}

// ---- counters

/** Prints the counters that are not 0, in two columns. */
static void print_counters(FILE *to, const json_t *k) {
    const char *name;
    json_t *value;
    int column = 0;
    json_object_foreach(json_object_get(k, "counters"), name, value) {
        const long long count = json_integer_value(value);
        if (count) {
            fprintf(to, "%s%-24s %14lld", column ? "   " : "  ", name, count);
            column = !column;
            fputs(column ? "" : "\n", to);
        }
    }
    fputs(column ? "\n" : "", to);
}

void profile_print(FILE *to, const json_t *kernels) {
    size_t i;
    json_t *k;
    json_array_foreach((json_t *)(uintptr_t)kernels, i, k) {
        fputs(i ? "\n" : "", to);
        cli_write_plain(to, string(k, "name"));
        fprintf(to, " (%s, device %lld)\n", string(k, "arch"), (long long)integer(k, "device"));
        print_launches(to, k);
        print_occupancy(to, k);
        print_mix(to, k);
        print_memory(to, k);
        print_lanes(to, k);
        print_clock(to, k);
        print_counters(to, k);
    }
}
