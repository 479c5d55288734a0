// SPDX-License-Identifier: Apache-2.0
// What quern sim and quern profile share: the simulated GPU's folder and options, the program's
// environment.
#include "simulator.h"

#include "../file.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *cli_sim_folder(void) {
    char self[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    static const char *const places[] = {"../" QUERN_LIBDIR "/quern/sim", "quern-sim-links"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *folder = cli_text("%s/%s", self, places[i]);
        char *library = cli_text("%s/libamdhip64.so", folder);
        const bool found = access(library, R_OK) == 0;
        free(library);
        char *whole = found ? cli_real_path(folder) : nullptr;
        free(folder);
        if (whole)
            return whole;
    }
    cli_fail(QN_E_UNSUPPORTED, "no simulated GPU in %s/%s: this build is without it", self,
             places[0]);
    return nullptr;
}

char *cli_sim_option(char *text, const char *key, const char *value) {
    char *longer = cli_text("%s%s%s=%s", text, *text ? ";" : "", key, value);
    free(text);
    return longer;
}

char *cli_sim_devices(char *text, const char *archs, int64_t devices) {
    for (int64_t i = 0; (archs || devices) && i < (devices ? devices : 1); i++)
        text = cli_sim_option(text, "arch", archs ? archs : "gfx942");
    return text;
}

char *cli_sim_path(const char *path) {
    char *folder = *path == '/' ? nullptr : cli_real_path(".");
    char *whole = folder ? cli_text("%s/%s", folder, path) : cli_text("%s", path);
    free(folder);
    return whole;
}

bool cli_sim_accepts(const char *command, const char *folder, const char *options) {
    char *path = cli_text("%s/libamdhip64.so", folder);
    errno = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library && errno == ENOMEM)
        cli_out_of_memory();
    free(path);
    if (!library) {
        fprintf(stderr, "quern %s: %s\n", command, dlerror());
        return false;
    }
    int (*configure)(const char *) = (int (*)(const char *))dlsym(library, "quernsim_configure");
    unsetenv("QUERN_SIM"); // its text is part of the options that are tried
    errno = 0;
    const bool is_accepted = configure && configure(options) == 0;
    if (!is_accepted && errno == ENOMEM) // then there may be no complaint either
        cli_out_of_memory();
    return is_accepted;
}

char *cli_sim_search_path(const char *folder) {
    const char *before = getenv("LD_LIBRARY_PATH");
    return cli_text("%s%s%s", folder, before && *before ? ":" : "", before ? before : "");
}

void cli_set_env(const char *name, const char *value) {
    if (setenv(name, value, 1) != 0)
        cli_out_of_memory();
}

char **cli_sim_arguments(int count, char **arguments) {
    char **list = cli_alloc(((size_t)count + 1) * sizeof *list); // all null
    memcpy(list, arguments, (size_t)count * sizeof *list);
    return list;
}

int cli_sim_no_program(const char *command, const char *program, int error) {
    cli_finish(command, cli_fail(QN_E_IO, "%s: %s", program, strerror(error)));
    return error == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN;
}
