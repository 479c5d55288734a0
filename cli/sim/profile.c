// SPDX-License-Identifier: Apache-2.0
// quern profile -- PROGRAM: runs a HIP program on the simulated GPU and tells what its kernels did.
#include "profile.h"

#include "../file.h"
#include "simulator.h"

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

static const char *arch, *pattern, *json_path, *svg_path, *html_path, *timeline_path, *clock_mode;
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
    {.name = "--html",
     .kind = CLI_TEXT,
     .value = "FILE.html",
     .to = &html_path,
     .help = "write a page: roofline, stalls, levels of memory, annotated listing"},
    CLI_SIM_CLOCK_OPTION(clock_mode, "model time: of some workgroups alone, of some, of all"),
    {.name = "--timeline",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &timeline_path,
     .help = "with the clock on, write waves and their waits to FILE, for Perfetto"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace files that exist"},
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

/** Returns all counters as JSON, which the caller frees. */
static char *make_json(const json_t *kernels, int count, char **arguments, int ended) {
    json_t *program = json_array();
    for (int i = 0; i < count; i++)
        cli_json_add(program, cli_json_text(arguments[i]));
    return cli_json_lines(cli_json_pack(
        "{s:s, s:o, s:o, s:o, s:O}", "version", qn_version(), "program", program, "exit_status",
        WIFEXITED(ended) ? json_integer(WEXITSTATUS(ended)) : json_null(), "signal",
        WIFSIGNALED(ended) ? json_integer(WTERMSIG(ended)) : json_null(), "kernels", kernels));
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

/** Starts a file with a text, which it frees. */
static qn_status start(cli_output *out, const char *path, char *text) {
    const qn_status st = cli_output_text(out, path, text, force);
    free(text);
    return st;
}

/** Shows the kernels, and writes all files whole before any gets its name. */
static qn_status show(json_t *kernels, int count, char **arguments, int ended, const char *folder) {
    enum { JSON, SVG, HTML, TIMELINE, FILES };
    cli_output files[FILES] = {};
    size_t i;
    json_t *kernel;
    qn_status st;
    json_array_foreach(kernels, i, kernel) {
        add_derived(kernel);
        profile_add_lines(kernel);
    }
    profile_print(stdout, kernels);
    CLI_TRY_OUT(cli_flush());
    if (json_path)
        CLI_TRY_OUT(start(&files[JSON], json_path, make_json(kernels, count, arguments, ended)));
    if (svg_path)
        CLI_TRY_OUT(start(&files[SVG], svg_path, profile_draw(kernels)));
    if (html_path)
        CLI_TRY_OUT(start(&files[HTML], html_path, profile_page(kernels, count, arguments)));
    if (timeline_path)
        CLI_TRY_OUT(start(&files[TIMELINE], timeline_path, profile_timeline(folder)));
    for (int k = 0; k < FILES; k++)
        if (files[k].path)
            CLI_TRY_OUT(cli_output_commit(&files[k]));
out:
    for (int k = 0; k < FILES; k++)
        cli_output_discard(&files[k]);
    return st;
}

/** Runs the program and shows what its processes leave in `folder`. Returns the exit status. */
static int profile(int count, char **arguments, const char *folder) {
    int ended = 0, processes;
    const bool started = run_program(count, arguments, &ended);
    const int error = errno;
    json_t *kernels = profile_collect(folder, &processes);
    char *others;
    choose(kernels, &others);
    int status = started ? CLI_DONE : cli_sim_no_program("profile", arguments[0], error);
    if (started) {
        explain(kernels, arguments[0], processes, others, ended);
        status = cli_finish("profile", show(kernels, count, arguments, ended, folder));
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
    char *file = cli_path(folder, "%p.json"), *waves = cli_path(folder, "%p" PROFILE_TIMELINE);
    char *paths = cli_sim_search_path(links);
    const bool ok = cli_sim_accepts("profile", links, text);
    text = cli_sim_option(text, "profile", file);
    if (timeline_path)
        text = cli_sim_option(text, "timeline", waves);
    cli_set_env("QUERN_SIM", text);
    cli_set_env("LD_LIBRARY_PATH", paths);
    free(paths);
    free(waves);
    free(file);
    free(text);
    return ok;
}

/** Returns whether time will be modelled: the last value of an option counts. */
static bool has_clock(void) {
    static const char key[] = "clock=";
    const char *at = getenv("QUERN_SIM"), *mode = nullptr;
    while (at && (at = strstr(at, key)))
        mode = at += sizeof key - 1;
    return clock_mode || (mode && strncmp(mode, "off", 3) != 0);
}

static qn_status check_arguments(int count) {
    qn_status st =
        count ? QN_OK
              : cli_fail(QN_E_INVALID, "found no PROGRAM to run, needs PROGRAM [ARGUMENT...]");
    const char *const paths[] = {json_path, svg_path, html_path, timeline_path};
    if (st == QN_OK && timeline_path && !has_clock())
        st = cli_fail(QN_E_INVALID, "--timeline %s: no time is modelled, needs --clock",
                      timeline_path);
    for (size_t i = 0; st == QN_OK && i < sizeof paths / sizeof *paths; i++)
        st = cli_output_check(paths[i], force);
    return st;
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
        "--clock models the time of kernels, and where it went: sample runs some workgroups\n"
        "alone, on the others as well, full all at modelled time (docs/clock.md).\n"
        "--timeline writes waves and their longest waits for ui.perfetto.dev, --html a page.\n"
        "PROGRAM runs as with quern sim; put -- before a program that has options of its\n"
        "own. The exit status is the program's.",
    .options = options,
    .max_arguments = INT_MAX,
    .run = run};
