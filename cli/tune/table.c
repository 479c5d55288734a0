// SPDX-License-Identifier: Apache-2.0
// quern tune path, list and verify: show where the table of measured choices is and what it says,
// and check it; or another such table.
#include "tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char own[] = "shipped.tune"; // as the library's messages call quern's own table

static void collect(void *context, const qn_tune_entry *e) {
    cli_json_add(context,
                 cli_json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "line", (json_int_t)e->line,
                               "op", cli_json_text(e->op), "device", cli_json_text(e->device),
                               "problem", cli_json_text(e->problem), "kernel",
                               cli_json_text(e->kernel), "comment", cli_json_text(e->comment),
                               "fault", e->fault ? cli_json_text(e->fault) : json_null()));
}

static const char *text_of(const json_t *entry, const char *name) {
    return json_string_value(json_object_get(entry, name));
}

static void print_entries(const json_t *entries) {
    static const char *const columns[] = {"op", "device", "problem", "kernel"};
    cli_table table;
    cli_table_init(&table, 6,
                   (const char *const[]){"line", "op", "device", "problem", "kernel", "comment"});
    size_t i;
    json_t *e;
    json_array_foreach(entries, i, e) {
        const char *fault = text_of(e, "fault");
        cli_table_add(&table, "%" JSON_INTEGER_FORMAT,
                      json_integer_value(json_object_get(e, "line")));
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            cli_table_add(&table, "%s", text_of(e, columns[c]));
        cli_table_add(&table, "%s%s", fault ? "refused: " : "",
                      fault ? fault : text_of(e, "comment"));
    }
    cli_table_print(&table, stdout);
}

/** Returns how many lines are refused; *first is the first of them. */
static size_t count_refused(const json_t *entries, const json_t **first) {
    size_t i, count = 0;
    json_t *e;
    json_array_foreach(entries, i, e) {
        if (text_of(e, "fault") && count++ == 0)
            *first = e;
    }
    return count;
}

/** Carries out list and verify, which walk alike; verify fails if a line is refused. */
static qn_status show(const char *path, const json_t *entries, bool is_verify, bool as_json) {
    const json_t *first = nullptr;
    const size_t count = json_array_size(entries), refused = count_refused(entries, &first);
    if (!as_json && !is_verify)
        print_entries(entries);
    else if (!as_json)
        printf("%zu lines, %zu refused\n", count, refused);
    const qn_status st =
        as_json ? cli_print_json(cli_json_pack("{s:o, s:O, s:I}", "path", cli_json_text(path),
                                               "lines", entries, "refused", (json_int_t)refused))
                : cli_flush();
    if (st != QN_OK || !is_verify || !first)
        return st;
    return cli_fail(QN_E_MISMATCH, "%zu of %zu lines are refused; %s:%" JSON_INTEGER_FORMAT ": %s",
                    refused, count, path, json_integer_value(json_object_get(first, "line")),
                    text_of(first, "fault"));
}

/** Reads the table of a path; null: quern's own. */
static qn_status read_and_show(const char *path, bool is_verify, bool as_json) {
    json_t *entries = json_array();
    qn_status st = qn_tune_list(path, collect, entries);
    st = st == QN_OK ? show(path ? path : own, entries, is_verify, as_json)
                     : cli_fail_lib(st, "table");
    json_decref(entries);
    return st;
}

static qn_status print_path(const char *path, bool as_json) {
    if (as_json)
        return cli_print_json(cli_json_pack("{s:o}", "path", cli_json_text(path)));
    puts(path);
    return cli_flush();
}

qn_status tune_table(int count, char **words, bool as_json) {
    const char *action = words[0], *file = count > 1 ? words[1] : nullptr;
    const bool is_path = strcmp(action, "path") == 0, is_verify = strcmp(action, "verify") == 0;
    const char *set = getenv("QUERN_TUNE");
    char used[4096];
    if (is_path && file)
        return cli_fail(QN_E_INVALID, "path takes no FILE, '%s' was given", file);
    if (count > 2)
        return cli_fail(QN_E_INVALID, "unexpected argument '%s' (accepted: %s [FILE])", words[2],
                        action);
    const bool is_own = !file && !is_path && !(set && *set);
    if (!file && !is_own) {
        const qn_status st = qn_tune_path(used, sizeof used);
        if (st != QN_OK)
            return cli_fail_lib(st, "table");
    }
    return is_path ? print_path(used, as_json)
                   : read_and_show(is_own ? nullptr
                                   : file ? file
                                          : used,
                                   is_verify, as_json);
}
