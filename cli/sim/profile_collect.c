// SPDX-License-Identifier: Apache-2.0
// Adds up what a program's processes counted, each in a file of its own.
#include "../file.h"
#include "profile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void profile_add_numbers(json_t *to, const json_t *from) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, name, value) {
        json_t *sum = json_object_get(to, name);
        if (!sum)
            cli_json_set(to, name, json_deep_copy(value));
        else if (json_is_object(value))
            profile_add_numbers(sum, value);
        else if (json_is_integer(value))
            json_integer_set(sum, json_integer_value(sum) + json_integer_value(value));
    }
}

static int64_t offset_of(const json_t *instruction) {
    return json_integer_value(json_object_get(instruction, "offset"));
}

/** Adds what instructions cost, each to the one at the same offset. Both lists are in the order of
 *  offsets. */
static void add_instructions(json_t *to, const json_t *from) {
    size_t i, at = 0;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)from, i, one) {
        while (at < json_array_size(to) && offset_of(json_array_get(to, at)) < offset_of(one))
            at++;
        json_t *known = json_array_get(to, at);
        if (known && offset_of(known) == offset_of(one)) {
            profile_add_numbers(json_object_get(known, "simd_cycles"),
                                json_object_get(one, "simd_cycles"));
            json_t *issues = json_object_get(known, "issues");
            json_integer_set(issues, json_integer_value(issues) +
                                         json_integer_value(json_object_get(one, "issues")));
        } else {
            cli_json_insert(to, at, json_incref(one));
        }
    }
}

/** Adds modelled time. The clock and the watts are of one launch, the last that is added. */
static void add_clock(json_t *known, const json_t *kernel) {
    json_t *to = json_object_get(known, "clock"), *from = json_object_get(kernel, "clock");
    if (!to || !from) {
        if (from)
            cli_json_set(known, "clock", json_incref(from));
        return;
    }
    profile_add_numbers(to, from);
    add_instructions(json_object_get(to, "instructions"), json_object_get(from, "instructions"));
    if (json_array_extend(json_object_get(to, "timestamps"), json_object_get(from, "timestamps")))
        cli_out_of_memory();
    static const char *const last[] = {"mhz", "watts"};
    for (int i = 0; i < 2; i++)
        cli_json_set(to, last[i], json_incref(json_object_get(from, last[i])));
}

static const char *const sums[] = {"launches", "failed_launches", "workgroups"};

/** Returns whether two records agree in everything that is not counted. */
static bool is_same_kernel(const json_t *a, const json_t *b) {
    json_t *x = json_copy((json_t *)(uintptr_t)a), *y = json_copy((json_t *)(uintptr_t)b);
    for (int i = 0; i < 3; i++) {
        json_object_del(x, sums[i]);
        json_object_del(y, sums[i]);
    }
    static const char *const added[] = {"counters", "clock"};
    for (int i = 0; i < 2; i++) {
        json_object_del(x, added[i]);
        json_object_del(y, added[i]);
    }
    const bool same = json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static void add_kernel(json_t *kernels, json_t *kernel) {
    size_t i;
    json_t *known;
    json_array_foreach(kernels, i, known) {
        if (!is_same_kernel(known, kernel))
            continue;
        profile_add_numbers(json_object_get(known, "counters"),
                            json_object_get(kernel, "counters"));
        add_clock(known, kernel);
        for (int k = 0; k < 3; k++) {
            json_t *sum = json_object_get(known, sums[k]);
            json_integer_set(sum, json_integer_value(sum) +
                                      json_integer_value(json_object_get(kernel, sums[k])));
        }
        return;
    }
    cli_json_add(kernels, json_incref(kernel));
}

/** Says of a kernel's launches that they are of a process. Each has a device's time of its own. */
static void number_launches(json_t *kernel, int process) {
    size_t i;
    json_t *span;
    json_array_foreach(json_object_get(json_object_get(kernel, "clock"), "timestamps"), i, span)
        cli_json_set(span, "process", json_integer(process));
}

bool profile_map(cli_map *map, const char *path) {
    const qn_status st = cli_map_open(map, path);
    if (st == QN_E_MEMORY)
        cli_out_of_memory();
    return st == QN_OK;
}

/** Adds the file of a process, which has a number. Returns false if the file is no such file, or
 *  was not written to its end. */
static bool read_file(json_t *kernels, const char *folder, const char *name, int process) {
    char *path = cli_path(folder, name);
    const char *dot = strrchr(name, '.');
    json_t *whole = nullptr;
    cli_map map = {0};
    size_t i;
    json_t *kernel;
    if (dot && strcmp(dot, ".json") == 0 && profile_map(&map, path) && map.data)
        whole = json_loadb((const char *)map.data, (size_t)map.bytes, 0, nullptr);
    json_array_foreach(json_object_get(whole, "kernels"), i, kernel) {
        if (process)
            number_launches(kernel, process);
        add_kernel(kernels, kernel);
    }
    cli_map_close(&map);
    free(path);
    json_decref(whole);
    return whole;
}

json_t *profile_collect(const char *folder, int *processes) {
    json_t *kernels = json_array();
    DIR *dir = opendir(folder);
    *processes = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (*entry->d_name != '.')
            *processes += read_file(kernels, folder, entry->d_name, *processes);
    if (!dir && errno == ENOMEM)
        cli_out_of_memory();
    if (dir)
        closedir(dir);
    return kernels;
}
