// SPDX-License-Identifier: Apache-2.0
// quern help [COMMAND]: prints the text of --help, or the whole command line as JSON.
#include "cli.h"

#include <string.h>

static bool as_json;

static const cli_option options[] = {
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "commands and options as JSON"},
    {0}};

static json_t *command_json(const cli_command *command) {
    json_t *list = json_array();
    for (const cli_option *o = command->options; o->name; o++)
        cli_json_add(list, cli_json_pack("{s:s, s:s?, s:s}", "name", o->name, "value", o->value,
                                         "help", o->help));
    return cli_json_pack("{s:s, s:s, s:s, s:o}", "name", command->name, "arguments",
                         command->arguments, "summary", command->summary, "options", list);
}

static qn_status print_json(const cli_command *only) {
    json_t *list = json_array();
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (!only || *c == only)
            cli_json_add(list, command_json(*c));
    return cli_print_json(cli_json_pack("{s:s, s:o}", "version", qn_version(), "commands", list));
}

static int run(int count, char **arguments) {
    const cli_command *command = count ? cli_command_find(arguments[0]) : nullptr;
    char guess[CLI_GUESS_ROOM];
    if (count && !command)
        return cli_finish("help",
                          cli_fail(QN_E_INVALID, "unknown command '%s' (quern help lists them)%s",
                                   arguments[0],
                                   cli_guess(arguments[0], strlen(arguments[0]),
                                             cli_command_names(), guess, sizeof guess)));
    if (as_json)
        return cli_finish("help", print_json(command));
    if (command)
        cli_help_command(stdout, command);
    else
        cli_help_all(stdout);
    return cli_finish("help", cli_flush());
}

const cli_command cli_help = {.name = "help",
                              .arguments = "[COMMAND]",
                              .summary = "Describe the command line, or one command",
                              .options = options,
                              .max_arguments = 1,
                              .run = run};
