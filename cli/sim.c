// SPDX-License-Identifier: Apache-2.0
// quern sim -- PROGRAM: runs a HIP program on the simulated GPU, which then stands where the system's HIP library would.
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *arch, *checks, *mfma, *report;
static int64_t num_devices, errorcode;
static bool prints_environment;

enum { MAX_DEVICES = 16, MAX_EXITCODE = 255 };

static const cli_option options[] = {
    {.name = "--arch",
     .kind = CLI_TEXT,
     .value = "ARCH",
     .to = &arch,
     .help = "gfx90a, gfx942, gfx950, gfx1151, gfx1201, or several (default: gfx942)"},
    {.name = "--devices",
     .kind = CLI_INT,
     .value = "N",
     .to = &num_devices,
     .min = 1,
     .max = MAX_DEVICES,
     .help = "how many of each (default: 1)"},
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

/** The folder that holds links to the simulated GPU under the system library's names: an installation's, or
 *  the build's. Null, with the message stored, if neither is there. */
static char *find_links(void) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    static const char *const places[] = {"../" QUERN_LIBDIR "/quern/sim", "quern-sim-links"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *folder = cli_text("%s/%s", self, places[i]);
        char *library = cli_text("%s/libamdhip64.so", folder);
        bool found = access(library, R_OK) == 0;
        free(library);
        char *whole = found ? realpath(folder, nullptr) : nullptr;
        free(folder);
        if (whole)
            return whole;
    }
    cli_fail(QN_E_UNSUPPORTED, "no simulated GPU in %s/%s: this build is without it", self,
             places[0]);
    return nullptr;
}

/** The text with one more "key=value"; frees what it replaces. */
static char *add_option(char *text, const char *key, const char *value) {
    char *longer = cli_text("%s%s%s=%s", text, *text ? ";" : "", key, value);
    free(text);
    return longer;
}

/** A file name as the program will find it, whatever folder it goes to. */
static char *whole_path(const char *path) {
    char *folder = *path == '/' ? nullptr : getcwd(nullptr, 0);
    char *whole = folder ? cli_text("%s/%s", folder, path) : cli_text("%s", path);
    free(folder);
    return whole;
}

/** QUERN_SIM's text: all checks, then what the environment has, then this command's options; the last word counts. */
static char *make_options(void) {
    const char *given = getenv("QUERN_SIM");
    char *text = given && *given ? cli_text("check=all;%s", given) : cli_text("check=all");
    for (int64_t i = 0; (arch || num_devices) && i < (num_devices ? num_devices : 1); i++)
        text = add_option(text, "arch", arch ? arch : "gfx942");
    if (checks)
        text = add_option(text, "check", checks);
    if (mfma)
        text = add_option(text, "mfma", mfma);
    if (report) {
        char *path = whole_path(report);
        text = add_option(text, "report", path);
        free(path);
    }
    if (errorcode) {
        char *number = cli_text("%lld", (long long)errorcode);
        text = add_option(text, "errorcode", number);
        free(number);
    }
    return text;
}

/** Has the simulated GPU read the options, so that a mistake is found before the program runs. It prints its
 *  complaint itself. */
static bool accepts(const char *folder, const char *text) {
    char *path = cli_text("%s/libamdhip64.so", folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!library) {
        fprintf(stderr, "quern sim: %s\n", dlerror());
        return false;
    }
    int (*configure)(const char *) = (int (*)(const char *))dlsym(library, "quernsim_configure");
    unsetenv("QUERN_SIM"); // its text is part of what is tried
    return configure && configure(text) == 0;
}

static qn_status execute(int count, char **arguments, const char *text, const char *paths) {
    char **argv = cli_alloc(((size_t)count + 1) * sizeof *argv);
    memcpy(argv, arguments, (size_t)count * sizeof *argv);
    setenv("LD_LIBRARY_PATH", paths, 1);
    if (*text)
        setenv("QUERN_SIM", text, 1);
    execvp(argv[0], argv);
    free(argv);
    return cli_fail(QN_E_IO, "%s: %s", arguments[0], strerror(errno));
}

static int run(int count, char **arguments) {
    if (count == 0 && !prints_environment)
        return cli_finish("sim", cli_fail(QN_E_INVALID, "found no PROGRAM to run, needs "
                                                        "PROGRAM [ARGUMENT...]"));
    char *folder = find_links();
    if (!folder)
        return cli_finish("sim", QN_E_UNSUPPORTED);
    char *text = make_options();
    if (!accepts(folder, text)) {
        free(text);
        free(folder);
        return CLI_BAD_INPUT;
    }
    const char *before = getenv("LD_LIBRARY_PATH");
    char *paths = cli_text("%s%s%s", folder, before && *before ? ":" : "", before ? before : "");
    qn_status st =
        prints_environment
            ? cli_print_json(json_pack("{s:s, s:{s:s, s:s}}", "folder", folder, "environment",
                                       "LD_LIBRARY_PATH", paths, "QUERN_SIM", text))
            : execute(count, arguments, text, paths);
    free(paths);
    free(text);
    free(folder);
    return cli_finish("sim", st);
}

const cli_command cli_sim = {
    .name = "sim",
    .arguments = "PROGRAM [ARGUMENT...]",
    .summary = "Run a HIP program on the simulated GPU",
    .details =
        "PROGRAM finds the simulated GPU where it looks for libamdhip64.so: its folder is put\n"
        "first in LD_LIBRARY_PATH. Faults of its kernels are printed to standard error.\n"
        "docs/simulator.md describes them, and QUERN_SIM, which is passed on. Put -- before\n"
        "a program that has options of its own. The exit status is the program's, unless\n"
        "--error-exitcode gives one for when anything was reported.",
    .options = options,
    .max_arguments = INT_MAX,
    .run = run};
