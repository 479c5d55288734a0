// SPDX-License-Identifier: Apache-2.0
// What modelled time says of a kernel's instructions and source lines.
#include "clock.h"
#include "profile.h"

#include <stdlib.h>
#include <string.h>

int64_t profile_cycles(const json_t *of) {
    json_t *value;
    const char *name;
    int64_t sum = 0;
    json_object_foreach(json_object_get(of, "simd_cycles"), name, value) sum +=
        json_integer_value(value);
    return sum;
}

int64_t profile_busy_cycles(const json_t *clock) {
    const json_t *idle = json_object_get(json_object_get(clock, "simd_cycles"), "idle");
    return profile_cycles(clock) - json_integer_value(idle);
}

double profile_waves(const json_t *kernel) {
    const json_t *clock = json_object_get(kernel, "clock");
    const int64_t all = profile_cycles(clock);
    const json_t *waves = json_object_get(clock, "wave_cycles");
    return all ? (double)json_integer_value(waves) / (double)all : 0;
}

// ---- the dearest

typedef struct cost {
    const json_t *item;
    int64_t cycles;
    size_t at;
} cost;

static int by_cost(const void *a, const void *b) {
    const cost *x = a, *y = b;
    if (x->cycles != y->cycles)
        return x->cycles < y->cycles ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

const json_t **profile_dearest(const json_t *items, size_t *count) {
    const size_t all = json_array_size(items);
    cost *costs = cli_alloc(all * sizeof *costs);
    const json_t **list = cli_alloc(all * sizeof *list);
    *count = 0;
    for (size_t i = 0; i < all; i++) {
        const json_t *item = json_array_get(items, i);
        const int64_t cycles = profile_cycles(item);
        if (cycles)
            costs[(*count)++] = (cost){item, cycles, i};
    }
    qsort(costs, *count, sizeof *costs, by_cost);
    for (size_t i = 0; i < *count; i++)
        list[i] = costs[i].item;
    free(costs);
    return list;
}

// ---- source lines

/** Adds an instruction to its line, which `lines` has under "FILE:LINE". */
static void add_to_line(json_t *lines, const json_t *instruction) {
    const json_t *source = json_object_get(instruction, "source");
    const json_t *number = json_object_get(source, "line");
    const char *file = json_string_value(json_object_get(source, "file"));
    if (!file)
        return;
    char *key = cli_text("%s:%lld", file, json_integer_value(number));
    json_t *line = json_object_get(lines, key);
    if (!line) {
        line = cli_json_pack("{s:s, s:I, s:{}}", "file", file, "line", json_integer_value(number),
                             "simd_cycles");
        cli_json_set(lines, key, line);
    }
    profile_add_numbers(json_object_get(line, "simd_cycles"),
                        json_object_get(instruction, "simd_cycles"));
    free(key);
}

/** Returns the lines as an array, the dearest first. */
static json_t *in_order(json_t *lines) {
    json_t *all = json_array(), *sorted = json_array(), *line;
    const char *key;
    size_t count;
    json_object_foreach(lines, key, line) cli_json_add(all, json_incref(line));
    const json_t **list = profile_dearest(all, &count);
    for (size_t i = 0; i < count; i++)
        cli_json_add(sorted, json_incref((json_t *)(uintptr_t)list[i]));
    free(list);
    json_decref(all);
    return sorted;
}

void profile_add_lines(json_t *kernel) {
    json_t *clock = json_object_get(kernel, "clock"), *instruction;
    json_t *lines = json_object();
    size_t i;
    json_array_foreach(json_object_get(clock, "instructions"), i, instruction)
        add_to_line(lines, instruction);
    if (json_object_size(lines))
        cli_json_set(clock, "lines", in_order(lines));
    json_decref(lines);
}

// ---- places

const char *profile_place(const json_t *kernel, const json_t *instruction, char *buf, size_t room) {
    const int64_t entry = json_integer_value(json_object_get(kernel, "entry"));
    const int64_t at = json_integer_value(json_object_get(instruction, "offset"));
    snprintf(buf, room, "%c0x%04llx", at < entry ? '-' : '+',
             (unsigned long long)(at < entry ? entry - at : at - entry));
    return buf;
}
