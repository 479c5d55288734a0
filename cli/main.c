// SPDX-License-Identifier: Apache-2.0
// The quern command: finds the subcommand and hands its arguments over.
#include "cli.h"

#include <string.h>

const cli_command *const cli_commands[] = {
    &cli_devices, &cli_doctor,  &cli_check, &cli_quantize, &cli_convert, &cli_gemm, &cli_bench,
    &cli_sim,     &cli_profile, &cli_cache, &cli_tune,     &cli_probe,   &cli_help, nullptr};

const cli_command *cli_command_find(const char *name) {
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return nullptr;
}

const char *cli_command_names(void) {
    static char names[256];
    *names = '\0';
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? " " : "", (*c)->name);
    }
    return names;
}

static int fail_command(const char *name) {
    const bool is_option = *name == '-';
    const char *accepted = is_option ? "--help, --version" : cli_command_names();
    char guess[CLI_GUESS_ROOM];
    fprintf(stderr, "quern: unknown %s '%s' (accepted: %s)%s\n", is_option ? "option" : "command",
            name, accepted, cli_guess(name, strlen(name), accepted, guess, sizeof guess));
    return CLI_BAD_INPUT;
}

static int run_command(const cli_command *command, int argc, char **argv) {
    int count = 0;
    bool wants_help = false;
    const qn_status st = cli_options_parse(command, argc, argv, &count, &wants_help);
    if (st != QN_OK)
        return cli_finish(command->name, st);
    if (!wants_help)
        return command->run(count, argv);
    cli_help_command(stdout, command);
    return cli_finish(command->name, cli_flush());
}

int main(int argc, char **argv) {
    cli_json_begin();
    if (argc < 2) {
        cli_help_all(stderr);
        return CLI_BAD_INPUT;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("quern %s\n", qn_version());
        return cli_finish("--version", cli_flush());
    }
    const char *name =
        strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? "help" : argv[1];
    const cli_command *command = cli_command_find(name);
    return command ? run_command(command, argc - 2, argv + 2) : fail_command(name);
}
