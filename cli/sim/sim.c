// SPDX-License-Identifier: Apache-2.0
// quern sim -- PROGRAM: runs a HIP program on the simulated GPU, which then stands where the
// system's HIP library would.
#include "simulator.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *arch, *checks, *mfma, *report, *trace, *trace_file, *timeline, *clock_mode,
    *chip;
static int64_t num_devices, errorcode;
static bool prints_environment;

enum { MAX_EXITCODE = 255 };

static const cli_option options[] = {
    CLI_SIM_DEVICE_OPTIONS(arch, num_devices),
    {.name = "--check",
     .kind = CLI_TEXT,
     .value = "LIST",
     .to = &checks,
     .help = "what to look for, as in QUERN_SIM's check= (default: all)"},
    {.name = "--mfma",
     .kind = CLI_CHOICE,
     .value = "exact|fast",
     .to = &mfma,
     .help = "matrix instructions round as the chip does, or as f32 (default: exact)"},
    CLI_SIM_CLOCK_OPTION(clock_mode, "model time: of some workgroups alone, of some, of all"),
    {.name = "--chip",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &chip,
     .help = "a chip file, for a chip that differs from a built-in one"},
    {.name = "--trace",
     .kind = CLI_TEXT,
     .value = "KERNEL[:WAVE]",
     .to = &trace,
     .help = "print what each instruction of a wave does (default: wave 0; *: all)"},
    {.name = "--trace-file",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &trace_file,
     .help = "where the trace goes (default: standard error)"},
    {.name = "--timeline",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &timeline,
     .help = "with the clock on, write waves and their waits to FILE, for Perfetto"},
    {.name = "--json",
     .kind = CLI_TEXT,
     .value = "FILE",
     .to = &report,
     .help = "append each report to FILE as a line of JSON"},
    {.name = "--error-exitcode",
     .kind = CLI_INT,
     .value = "N",
     .to = &errorcode,
     .min = 1,
     .max = MAX_EXITCODE,
     .help = "exit status if anything was reported (default: the program's own)"},
    {.name = "--env",
     .kind = CLI_FLAG,
     .to = &prints_environment,
     .help = "print the environment that the program would get, and run nothing"},
    {0}};

/** Adds an option whose value is a file; does nothing with null. */
static char *add_file(char *text, const char *key, const char *file) {
    if (!file)
        return text;
    char *path = cli_sim_path(file);
    text = cli_sim_option(text, key, path);
    free(path);
    return text;
}

/** Returns QUERN_SIM's text: all checks, then the environment's options, then this command's; the
 *  last value of an option counts. */
static char *make_options(void) {
    const char *given = getenv("QUERN_SIM");
    char *text = given && *given ? cli_text("check=all;%s", given) : cli_text("check=all");
    text = cli_sim_devices(text, arch, num_devices);
    if (checks)
        text = cli_sim_option(text, "check", checks);
    if (mfma)
        text = cli_sim_option(text, "mfma", mfma);
    if (clock_mode)
        text = cli_sim_option(text, "clock", clock_mode);
    text = add_file(text, "chip", chip);
    if (trace)
        text = cli_sim_option(text, "trace", trace);
    text = add_file(text, "trace_file", trace_file);
    text = add_file(text, "timeline", timeline);
    text = add_file(text, "report", report);
    if (errorcode) {
        char *number = cli_text("%lld", (long long)errorcode);
        text = cli_sim_option(text, "errorcode", number);
        free(number);
    }
    return text;
}

/** Becomes the program. Returns only if that fails, with the exit status. */
static int execute(int count, char **arguments, const char *text, const char *paths) {
    char **argv = cli_sim_arguments(count, arguments);
    cli_set_env("LD_LIBRARY_PATH", paths);
    cli_set_env("QUERN_SIM", text);
    execvp(argv[0], argv);
    const int error = errno;
    free(argv);
    return cli_sim_no_program("sim", arguments[0], error);
}

static int print_environment(const char *folder, const char *text, const char *paths) {
    return cli_finish(
        "sim", cli_print_json(cli_json_pack("{s:o, s:{s:o, s:o}}", "folder", cli_json_text(folder),
                                            "environment", "LD_LIBRARY_PATH", cli_json_text(paths),
                                            "QUERN_SIM", cli_json_text(text))));
}

static int run(int count, char **arguments) {
    if (count == 0 && !prints_environment)
        return cli_finish("sim", cli_fail(QN_E_INVALID, "found no PROGRAM to run, needs "
                                                        "PROGRAM [ARGUMENT...]"));
    char *folder = cli_sim_folder();
    if (!folder)
        return cli_finish("sim", QN_E_UNSUPPORTED);
    char *text = make_options(), *paths = cli_sim_search_path(folder);
    const int status = !cli_sim_accepts("sim", folder, text) ? CLI_BAD_INPUT
                       : prints_environment ? print_environment(folder, text, paths)
                                            : execute(count, arguments, text, paths);
    free(paths);
    free(text);
    free(folder);
    return status;
}

const cli_command cli_sim = {
    .name = "sim",
    .arguments = "PROGRAM [ARGUMENT...]",
    .summary = "Run a HIP program on the simulated GPU",
    .details =
        "The simulated GPU's folder is put first in LD_LIBRARY_PATH, so that PROGRAM finds\n"
        "its libamdhip64.so there. Faults of PROGRAM's kernels are printed to standard\n"
        "error. docs/simulator.md describes these faults, and QUERN_SIM, which is passed\n"
        "on; docs/clock.md describes --clock and --chip. Put -- before a program that has\n"
        "options of its own. The exit status is the program's, unless anything was reported\n"
        "and --error-exitcode gives another.",
    .options = options,
    .max_arguments = INT_MAX,
    .run = run};
