// SPDX-License-Identifier: Apache-2.0
// quern profile -- PROGRAM: runs a HIP program on the simulated GPU and tells what its kernels did.
#include "profile.h"

#include "../file.h"
#include "simulator.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *arch, *pattern, *json_path, *svg_path, *clock_mode;
static int64_t num_devices;
static bool force;

static const cli_option options[] = {
    CLI_SIM_DEVICE_OPTIONS(arch, num_devices),
    {.name = "--kernel",
     .kind = CLI_TEXT,
     .value = "PATTERN",
     .to = &pattern,
     .help = "only kernels of this name; * stands for any letters, ? for any letter"},
    {.name = "--json",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &json_path,
     .help = "write all counters to FILE as JSON"},
    {.name = "--svg",
     .kind = CLI_TEXT,
     .value = "FILE.svg",
     .to = &svg_path,
     .help = "draw instruction mix, bytes, occupancy, and where modelled time went"},
    CLI_SIM_CLOCK_OPTION(clock_mode, "model time: of some workgroups alone, of some, of all"),
    {.name = "--force",
     .kind = CLI_FLAG,
     .to = &force,
     .help = "replace FILE and FILE.svg if they exist"},
    {0}};

// ---- the program

/** Runs the program to its end, whose wait status is *ended; false, with errno, if it cannot be
 *  started. The keyboard's interrupt is for the program: what it has counted by then is still
 *  shown. */
static bool run_program(int count, char **arguments, int *ended) {
    char **argv = cli_sim_arguments(count, arguments);
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    pid_t child;
    int error = posix_spawnp(&child, argv[0], nullptr, &attributes, argv, environ);
    while (!error && waitpid(child, ended, 0) < 0)
        error = errno == EINTR ? 0 : errno;
    posix_spawnattr_destroy(&attributes);
    free(argv);
    errno = error;
    return !error;
}

// ---- what the program's processes counted

/** Adds what two processes counted for one kernel: every number, at any depth. */
static void add_numbers(json_t *to, const json_t *from) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, name, value) {
        json_t *sum = json_object_get(to, name);
        if (!sum)
            cli_json_set(to, name, json_incref(value));
        else if (json_is_object(value))
            add_numbers(sum, value);
        else if (json_is_integer(value))
            json_integer_set(sum, json_integer_value(sum) + json_integer_value(value));
    }
}

/** Adds what instructions cost, each to the one at the same offset. */
static void add_instructions(json_t *to, const json_t *from) {
    size_t i, k;
    json_t *one, *known;
    json_array_foreach((json_t *)(uintptr_t)from, i, one) {
        const json_t *offset = json_object_get(one, "offset");
        json_array_foreach(to, k,
                           known) if (json_equal(json_object_get(known, "offset"), offset)) break;
        if (k == json_array_size(to))
            cli_json_add(to, json_incref(one));
        else
            add_numbers(json_object_get(known, "simd_cycles"), json_object_get(one, "simd_cycles"));
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
    add_numbers(to, from);
    add_instructions(json_object_get(to, "instructions"), json_object_get(from, "instructions"));
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
        add_numbers(json_object_get(known, "counters"), json_object_get(kernel, "counters"));
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

/** Adds a process's file. Returns false if the file is no such file, or was not written to its
 *  end. */
static bool read_file(json_t *kernels, const char *folder, const char *name) {
    char *path = cli_path(folder, name);
    const char *dot = strrchr(name, '.');
    json_t *whole = nullptr;
    cli_map map = {0};
    size_t i;
    json_t *kernel;
    if (dot && strcmp(dot, ".json") == 0 && cli_map_open(&map, path) == QN_OK && map.data)
        whole = json_loadb((const char *)map.data, (size_t)map.bytes, 0, nullptr);
    json_array_foreach(json_object_get(whole, "kernels"), i, kernel) add_kernel(kernels, kernel);
    cli_map_close(&map);
    free(path);
    json_decref(whole);
    return whole;
}

/** Collects the counters of all files in the folder; *processes counts the processes that used the
 *  simulated GPU. */
static json_t *collect(const char *folder, int *processes) {
    json_t *kernels = json_array();
    DIR *dir = opendir(folder);
    *processes = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (*entry->d_name != '.')
            *processes += read_file(kernels, folder, entry->d_name);
    if (!dir && errno == ENOMEM)
        cli_out_of_memory();
    if (dir)
        closedir(dir);
    return kernels;
}

/** Drops the kernels that are not wanted, and lists their names in *others. */
static void choose(json_t *kernels, char **others) {
    *others = cli_text("%s", "");
    for (size_t i = json_array_size(kernels); i-- > 0;) {
        const char *name = json_string_value(json_object_get(json_array_get(kernels, i), "name"));
        if (!pattern || fnmatch(pattern, name, 0) == 0)
            continue;
        if (!strstr(*others, name)) {
            char *longer = cli_text("%s%s%s", *others, **others ? ", " : "", name);
            free(*others);
            *others = longer;
        }
        json_array_remove(kernels, i);
    }
}

// ---- derived figures

int64_t profile_counter(const json_t *kernel, const char *name) {
    return json_integer_value(json_object_get(json_object_get(kernel, "counters"), name));
}

int64_t profile_counter_of(const json_t *kernel, const char *cdna, const char *rdna) {
    return profile_counter(kernel, cdna) + profile_counter(kernel, rdna);
}

double profile_percent(int64_t part, int64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : NAN;
}

/** Adds derived figures. VALUUtilization is rocprof's name. */
static void add_derived(json_t *kernel) {
    const int64_t conflict =
        profile_counter_of(kernel, "SQ_LDS_BANK_CONFLICT", "SQC_LDS_BANK_CONFLICT");
    const int64_t active = profile_counter_of(kernel, "SQ_LDS_IDX_ACTIVE", "SQC_LDS_IDX_ACTIVE");
    const json_t *occupancy = json_object_get(kernel, "occupancy");
    const double waves =
        profile_percent(json_integer_value(json_object_get(occupancy, "waves")),
                        json_integer_value(json_object_get(occupancy, "max_waves")));
    const double lanes = profile_percent(profile_counter(kernel, "valu_active_lanes"),
                                         profile_counter(kernel, "valu_lanes"));
    const double coalescing = profile_percent(profile_counter(kernel, "memory_touched_bytes"),
                                              profile_counter(kernel, "memory_line_bytes"));
    const double conflicts = profile_percent(conflict, active - conflict) / 100;
    cli_json_set(kernel, "derived",
                 cli_json_pack("{s:o, s:o, s:o, s:o}", "VALUUtilization", cli_json_number(lanes),
                               "coalescing_percent", cli_json_number(coalescing),
                               "lds_conflicts_per_cycle", cli_json_number(conflicts),
                               "occupancy_percent", cli_json_number(waves)));
}

// ---- output

static qn_status start_json(cli_output *out, const json_t *kernels, int count, char **arguments,
                            int ended) {
    json_t *program = json_array();
    for (int i = 0; i < count; i++)
        cli_json_add(program, cli_json_text(arguments[i]));
    json_t *whole = cli_json_pack(
        "{s:s, s:o, s:o, s:o, s:O}", "version", qn_version(), "program", program, "exit_status",
        WIFEXITED(ended) ? json_integer(WEXITSTATUS(ended)) : json_null(), "signal",
        WIFSIGNALED(ended) ? json_integer(WTERMSIG(ended)) : json_null(), "kernels", kernels);
    char *lines = cli_json_lines(whole);
    const qn_status st = cli_output_text(out, json_path, lines, force);
    free(lines);
    return st;
}

/** Explains on standard error what the numbers do not show: an end by a signal, or why there is
 *  nothing to show. */
static void explain(const json_t *kernels, const char *program, int processes, const char *others,
                    int ended) {
    if (WIFSIGNALED(ended))
        fprintf(stderr,
                "quern profile: %s was killed by signal %d (%s): its last counts may be missing\n",
                program, WTERMSIG(ended), strsignal(WTERMSIG(ended)));
    if (json_array_size(kernels) > 0)
        return;
    if (*others)
        fprintf(stderr, "quern profile: no kernel matches '%s'; there were: %s\n", pattern, others);
    else
        fprintf(stderr, "quern profile: %s %s\n", program,
                processes ? "launched no kernel"
                          : "did not use the simulated GPU: it made no HIP call");
}

static qn_status start_picture(cli_output *out, const json_t *kernels) {
    char *text = profile_draw(kernels);
    const qn_status st = cli_output_text(out, svg_path, text, force);
    free(text);
    return st;
}

/** Shows the kernels, and writes both files whole before either gets its name. */
static qn_status show(json_t *kernels, int count, char **arguments, int ended) {
    cli_output json = {0}, picture = {0};
    size_t i;
    json_t *kernel;
    qn_status st;
    json_array_foreach(kernels, i, kernel) add_derived(kernel);
    profile_print(stdout, kernels);
    CLI_TRY_OUT(cli_flush());
    if (json_path)
        CLI_TRY_OUT(start_json(&json, kernels, count, arguments, ended));
    if (svg_path)
        CLI_TRY_OUT(start_picture(&picture, kernels));
    if (json_path)
        CLI_TRY_OUT(cli_output_commit(&json));
    if (svg_path)
        CLI_TRY_OUT(cli_output_commit(&picture));
out:
    cli_output_discard(&json);
    cli_output_discard(&picture);
    return st;
}

/** Runs the program and shows what its processes leave in `folder`. Returns the exit status. */
static int profile(int count, char **arguments, const char *folder) {
    int ended = 0, processes;
    const bool started = run_program(count, arguments, &ended);
    const int error = errno;
    json_t *kernels = collect(folder, &processes);
    char *others;
    choose(kernels, &others);
    int status = started ? CLI_DONE : cli_sim_no_program("profile", arguments[0], error);
    if (started) {
        explain(kernels, arguments[0], processes, others, ended);
        status = cli_finish("profile", show(kernels, count, arguments, ended));
    }
    if (started && status == CLI_DONE)
        status = WIFEXITED(ended) ? WEXITSTATUS(ended) : CLI_KILLED + WTERMSIG(ended);
    free(others);
    json_decref(kernels);
    return status;
}

/** Makes a folder for the counters of the program's processes. Returns null, with the message
 *  stored, on failure. */
static cli_temp *make_folder(void) {
    const char *parent = getenv("TMPDIR");
    char *folder = cli_text("%s/quern-profile", parent && *parent ? parent : "/tmp");
    cli_temp *made = cli_temp_folder(folder);
    if (!made)
        cli_fail_path(folder, "cannot be created");
    free(folder);
    return made;
}

/** Sets the program's environment: the options of QUERN_SIM, the devices, and where to count.
 *  Returns false after a complaint. */
static bool set_environment(const char *links, const char *folder) {
    const char *given = getenv("QUERN_SIM");
    char *text = cli_sim_devices(cli_text("%s", given ? given : ""), arch, num_devices);
    if (clock_mode)
        text = cli_sim_option(text, "clock", clock_mode);
    char *file = cli_path(folder, "%p.json"), *paths = cli_sim_search_path(links);
    const bool ok = cli_sim_accepts("profile", links, text);
    text = cli_sim_option(text, "profile", file);
    cli_set_env("QUERN_SIM", text);
    cli_set_env("LD_LIBRARY_PATH", paths);
    free(paths);
    free(file);
    free(text);
    return ok;
}

static qn_status check_arguments(int count) {
    qn_status st =
        count ? QN_OK
              : cli_fail(QN_E_INVALID, "found no PROGRAM to run, needs PROGRAM [ARGUMENT...]");
    if (st == QN_OK)
        st = cli_output_check(json_path, force);
    return st == QN_OK ? cli_output_check(svg_path, force) : st;
}

static int run(int count, char **arguments) {
    const qn_status st = check_arguments(count);
    if (st != QN_OK)
        return cli_finish("profile", st);
    char *links = cli_sim_folder();
    cli_temp *folder = links ? make_folder() : nullptr;
    int status = CLI_BAD_INPUT;
    if (!folder)
        status = cli_finish("profile", QN_E_IO);
    else if (set_environment(links, folder->path))
        status = profile(count, arguments, folder->path);
    cli_temp_remove(folder);
    free(links);
    return status;
}

const cli_command cli_profile = {
    .name = "profile",
    .arguments = "PROGRAM [ARGUMENT...]",
    .summary = "Count what a HIP program's kernels do, on the simulated GPU",
    .details =
        "Counts instructions by class, bytes, LDS bank conflicts and active lanes of each\n"
        "kernel, and says what limits the kernel's occupancy. Names in capitals are\n"
        "rocprof's. docs/simulator.md says what each counter counts. Nothing is timed, but\n"
        "--clock models the time of kernels on gfx942, and where it went: sample runs some\n"
        "workgroups alone, on the others as well, full all at modelled time (docs/clock.md).\n"
        "PROGRAM runs as with quern sim; put -- before a program that has options of its\n"
        "own. The exit status is the program's.",
    .options = options,
    .max_arguments = INT_MAX,
    .run = run};
