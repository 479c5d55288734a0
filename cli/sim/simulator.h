// SPDX-License-Identifier: Apache-2.0
// Runs a program on the simulated GPU: the GPU's folder and options, the program's environment.
#ifndef CLI_SIMULATOR_H
#define CLI_SIMULATOR_H

#include "../cli.h"

enum { CLI_MAX_DEVICES = 16 };

/** The exit statuses of a shell for a program that it cannot run, that it cannot find, and that a
 *  signal killed. */
enum { CLI_CANNOT_RUN = 126, CLI_NO_PROGRAM = 127, CLI_KILLED = 128 };

/** A command's options for the devices that exist, a text and a number, which cli_sim_devices
 *  takes. */
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

/** A command's option for the mode of the clock, a text, which cli_sim_clock takes. */
#define CLI_SIM_CLOCK_OPTION(mode, about)                                                          \
    {.name = "--clock",                                                                            \
     .kind = CLI_CHOICE,                                                                           \
     .value = "sample|on|xcd|full",                                                                \
     .to = &(mode),                                                                                \
     .help = about}

/** Returns the folder that holds links to the simulated GPU under the system library's names: an
 *  installation's, or the build's. The caller frees it. Returns null, with the message stored, if
 *  there is neither. */
char *cli_sim_folder(void);
/** Returns QUERN_SIM's text with one more "key=value", and frees the old text. */
char *cli_sim_option(char *text, const char *key, const char *value);
/** Adds `devices` (0: one) of each of `archs` (null: gfx942) to QUERN_SIM's text, as cli_sim_option
 *  does, if either is given. */
char *cli_sim_devices(char *text, const char *archs, int64_t devices);
/** Returns a file name that the program will find, whatever folder it goes to; the caller frees
 *  it. */
char *cli_sim_path(const char *path);
/** Lets the simulated GPU read the options, so that a mistake is found before the program runs.
 *  Returns false after the simulated GPU has printed its complaint. */
bool cli_sim_accepts(const char *command, const char *folder, const char *options);
/** Returns LD_LIBRARY_PATH for the program; the caller frees it. */
char *cli_sim_search_path(const char *folder);
/** Sets a variable of the environment. */
void cli_set_env(const char *name, const char *value);
/** Returns a program's arguments with the null that ends them; the caller frees the list. */
char **cli_sim_arguments(int count, char **arguments);
/** Prints why a program cannot be run, by errno's number; returns the exit status that a shell
 *  gives. */
int cli_sim_no_program(const char *command, const char *program, int error);

#endif
