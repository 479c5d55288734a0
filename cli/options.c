// SPDX-License-Identifier: Apache-2.0
// Reads a subcommand's arguments by its table of options, and prints the help made from that table.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const cli_option *option_find(const cli_command *command, const char *name, size_t length) {
    for (const cli_option *o = command->options; o->name; o++)
        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0)
            return o;
    return nullptr;
}

static qn_status fail_unknown(const cli_command *command, const char *name, int length) {
    char accepted[1024] = "--help";
    for (const cli_option *o = command->options; o->name; o++) {
        const size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, ", %s", o->name);
    }
    char guess[CLI_GUESS_ROOM];
    return cli_fail(QN_E_INVALID, "unknown option %.*s (accepted: %s)%s", length, name, accepted,
                    cli_guess(name, (size_t)length, accepted, guess, sizeof guess));
}

static qn_status set_int(const cli_option *o, const char *text) {
    char *end = nullptr;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < o->min || value > o->max)
        return cli_fail(QN_E_INVALID,
                        "option %s: found '%s', accepted: a whole number from %lld to %lld",
                        o->name, text, (long long)o->min, (long long)o->max);
    *(int64_t *)o->to = value;
    return QN_OK;
}

static qn_status set_choice(const cli_option *o, const char *text) {
    const size_t length = strlen(text);
    for (const char *choice = o->value; choice;) {
        const char *end = strchrnul(choice, '|');
        if ((size_t)(end - choice) == length && memcmp(choice, text, length) == 0) {
            *(const char **)o->to = text;
            return QN_OK;
        }
        choice = *end ? end + 1 : nullptr;
    }
    char guess[CLI_GUESS_ROOM];
    return cli_fail(QN_E_INVALID, "option %s: found '%s', accepted: %s%s", o->name, text, o->value,
                    cli_guess(text, length, o->value, guess, sizeof guess));
}

static qn_status set_list(const cli_option *o, const char *text) {
    cli_list *list = o->to;
    if (list->count == CLI_LIST_MAX)
        return cli_fail(QN_E_INVALID, "option %s: given more than %d times", o->name, CLI_LIST_MAX);
    list->items[list->count++] = text;
    return QN_OK;
}

static qn_status option_set(const cli_option *o, const char *text) {
    if (!*text)
        return cli_fail(QN_E_INVALID, "option %s: found nothing, needs a value: %s", o->name,
                        o->value);
    switch (o->kind) {
    case CLI_INT:
        return set_int(o, text);
    case CLI_CHOICE:
        return set_choice(o, text);
    case CLI_LIST:
        return set_list(o, text);
    case CLI_TEXT:
        *(const char **)o->to = text;
        return QN_OK;
    case CLI_FLAG:
        break;
    }
    return cli_fail(QN_E_INVALID, "option %s takes no value; found '%s'", o->name, text);
}

/** Which of a command's options have been given, by the option's place in the table. */
typedef struct given {
    bool at[64];
} given;

/** Notes that an option was given. Only lists may be given again; with other options it would be
 *  unclear which one counts. */
static qn_status note_given(given *seen, const cli_command *command, const cli_option *o) {
    bool *mark = &seen->at[o - command->options];
    if (*mark && o->kind != CLI_LIST)
        return cli_fail(QN_E_INVALID, "option %s: given twice, accepted: once", o->name);
    *mark = true;
    return QN_OK;
}

/** Reads the option at argv[*i], and its value, which may be the next argument. */
static qn_status option_read(given *seen, const cli_command *command, int argc, char **argv,
                             int *i) {
    const char *text = strcmp(argv[*i], "-v") ? argv[*i] : "--verbose";
    const char *equals = strchrnul(text, '=');
    const cli_option *o = option_find(command, text, (size_t)(equals - text));
    if (!o)
        return fail_unknown(command, text, (int)(equals - text));
    const qn_status st = note_given(seen, command, o);
    if (st != QN_OK)
        return st;
    if (o->kind == CLI_FLAG && !*equals) {
        *(bool *)o->to = true;
        return QN_OK;
    }
    if (*equals)
        return option_set(o, equals + 1);
    if (++*i == argc)
        return cli_fail(QN_E_INVALID, "option %s needs a value: %s", o->name, o->value);
    return option_set(o, argv[*i]);
}

static qn_status check_count(const cli_command *command, int count, char **argv) {
    if (count < command->min_arguments)
        return cli_fail(QN_E_INVALID, "found %d argument%s, needs %s (quern %s --help)", count,
                        count == 1 ? "" : "s", command->arguments, command->name);
    if (count > command->max_arguments)
        return cli_fail(QN_E_INVALID, "unexpected argument '%s' (accepted: %s)",
                        argv[command->max_arguments],
                        *command->arguments ? command->arguments : "options only");
    return QN_OK;
}

qn_status cli_options_parse(const cli_command *command, int argc, char **argv, int *count,
                            bool *wants_help) {
    int found = 0;
    bool options_end = false;
    given seen = {0};
    *wants_help = false;
    for (int i = 0; i < argc; i++) {
        if (options_end || argv[i][0] != '-' || !argv[i][1]) {
            argv[found++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *wants_help = true;
            return QN_OK;
        } else {
            const qn_status st = option_read(&seen, command, argc, argv, &i);
            if (st != QN_OK)
                return st;
        }
    }
    *count = found;
    return check_count(command, found, argv);
}

void cli_help_command(FILE *to, const cli_command *command) {
    fprintf(to, "Usage: quern %s [OPTION...]%s%s\n\n%s.\n", command->name,
            *command->arguments ? " " : "", command->arguments, command->summary);
    if (command->details)
        fprintf(to, "\n%s\n", command->details);
    fputs("\nOptions:\n", to);
    for (const cli_option *o = command->options; o->name; o++) {
        char left[80];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        fprintf(to, strlen(left) <= 24 ? "  %-24s  %s\n" : "  %s\n                            %s\n",
                left, o->help);
    }
    fputs("  --help                    show this\n", to);
}

void cli_help_all(FILE *to) {
    fputs("Usage: quern COMMAND [OPTION...] [ARGUMENT...]\n\n"
          "Kernels for AMD and NVIDIA GPUs and the CPU: what runs here, whether it is right, and "
          "how fast.\n\n"
          "Commands:\n",
          to);
    for (const cli_command *const *c = cli_commands; *c; c++)
        fprintf(to, "  %-10s  %s\n", (*c)->name, (*c)->summary);
    fputs("\nOptions:\n"
          "  --help      show this; quern COMMAND --help describes a command\n"
          "  --version   show the version\n\n"
          "Exit status: 0 done, 1 a check failed, 2 wrong usage or bad input.\n",
          to);
}
