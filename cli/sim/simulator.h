// SPDX-License-Identifier: Apache-2.0
// Running a program on the simulated GPU: its folder, its options, the program's environment.
#ifndef CLI_SIMULATOR_H
#define CLI_SIMULATOR_H

#include "../cli.h"

enum { CLI_MAX_DEVICES = 16 };

/** What a shell says of a program that it cannot run, or cannot find. */
enum { CLI_CANNOT_RUN = 126, CLI_NO_PROGRAM = 127, CLI_KILLED = 128 };

/** A command's options for which devices there are: a text and a number, for cli_sim_devices. */
#define CLI_SIM_DEVICE_OPTIONS(arch, devices)                                                      \
    {.name = "--arch",                                                                             \
     .kind = CLI_TEXT,                                                                             \
     .value = "ARCH",                                                                              \
     .to = &(arch),                                                                                \
     .help = "gfx90a, gfx942, gfx950, gfx1151, gfx1201, or several (default: gfx942)"},            \
        {.name = "--devices",                                                                      \
         .kind = CLI_INT,                                                                          \
         .value = "N",                                                                             \
         .to = &(devices),                                                                         \
         .min = 1,                                                                                 \
         .max = CLI_MAX_DEVICES,                                                                   \
         .help = "how many of each (default: 1)"}

/** The folder that holds links to the simulated GPU under the system library's names: an
 *  installation's, or the build's; the caller frees it. Null, with the message stored, if neither
 *  is there. */
char *cli_sim_folder(void);
/** QUERN_SIM's text with one more "key=value"; frees what it replaces. */
char *cli_sim_option(char *text, const char *key, const char *value);
/** The same for `devices` (0: one) of each of `archs` (null: gfx942), if either is given. */
char *cli_sim_devices(char *text, const char *archs, int64_t devices);
/** A file name as the program will find it, whatever folder it goes to; the caller frees it. */
char *cli_sim_path(const char *path);
/** Has the simulated GPU read the options, so that a mistake is found before the program runs. It
 *  prints its complaint itself. */
bool cli_sim_accepts(const char *command, const char *folder, const char *options);
/** LD_LIBRARY_PATH for the program; the caller frees it. */
char *cli_sim_search_path(const char *folder);
/** Sets a variable of the environment. */
void cli_set_env(const char *name, const char *value);
/** A program's arguments with the null that ends them; the caller frees the list. */
char **cli_sim_arguments(int count, char **arguments);
/** Prints why a program cannot be run, by errno's number; gives the exit status that a shell
 *  would. */
int cli_sim_no_program(const char *command, const char *program, int error);

#endif
