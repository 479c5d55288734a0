// SPDX-License-Identifier: Apache-2.0
// quern cache: shows where JIT-compiled kernels are kept and which there are, checks them, makes
// them ahead, and removes them.
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static bool as_json;
static const char *spec, *op; // of fill

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &spec,
     .help = "fill: hip:0, cuda:0, sim:gfx942 ...: see quern devices (default: auto)"},
    {.name = "--op",
     .value = "OP",
     .kind = CLI_TEXT,
     .to = &op,
     .help = "fill: kernels of this op alone"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {0}};

static void collect(void *context, const qn_cache_entry *e) {
    cli_json_add(context, cli_json_pack("{s:o, s:I, s:I, s:b, s:s?}", "name",
                                        cli_json_text(e->name), "bytes", (json_int_t)e->bytes,
                                        "modified_unix", (json_int_t)e->modified_unix, "sound",
                                        !e->problem, "problem", e->problem));
}

static void print_entries(const json_t *entries) {
    cli_table table;
    cli_table_init(&table, 4, (const char *const[]){"entry", "size", "written", "state"});
    size_t i;
    json_t *e;
    json_array_foreach(entries, i, e) {
        char size[32], when[32];
        time_t t = json_integer_value(json_object_get(e, "modified_unix"));
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime(&t));
        const char *problem = json_string_value(json_object_get(e, "problem"));
        cli_table_add(&table, "%s", json_string_value(json_object_get(e, "name")));
        cli_table_add(
            &table, "%s",
            cli_bytes_text(json_integer_value(json_object_get(e, "bytes")), size, sizeof size));
        cli_table_add(&table, "%s", when);
        cli_table_add(&table, "%s", problem ? problem : "sound");
    }
    cli_table_print(&table, stdout);
}

/** Carries out list and verify, which walk alike; verify fails if an entry is damaged. */
static qn_status show(bool is_verify) {
    json_t *entries = json_array();
    qn_status st = qn_cache_list(collect, entries);
    if (st != QN_OK) {
        json_decref(entries);
        return cli_fail_lib(st, "cache");
    }
    size_t count = json_array_size(entries), damaged = 0;
    for (size_t i = 0; i < count; i++)
        damaged += json_is_false(json_object_get(json_array_get(entries, i), "sound"));
    if (!as_json && !is_verify)
        print_entries(entries);
    else if (!as_json)
        printf("%zu entries, %zu damaged\n", count, damaged);
    st = as_json ? cli_print_json(cli_json_pack("{s:O, s:I}", "entries", entries, "damaged",
                                                (json_int_t)damaged))
                 : cli_flush();
    json_decref(entries);
    if (st == QN_OK && is_verify && damaged)
        st = cli_fail(QN_E_MISMATCH,
                      "%zu of %zu entries are damaged; each is rebuilt when it is next "
                      "needed, quern cache list shows why",
                      damaged, count);
    return st;
}

static qn_status print_path(void) {
    char path[4096];
    const qn_status st = qn_cache_path(path, sizeof path);
    if (st != QN_OK)
        return cli_fail_lib(st, "cache");
    if (as_json)
        return cli_print_json(cli_json_pack("{s:o}", "path", cli_json_text(path)));
    puts(path);
    return cli_flush();
}

static qn_status clear(void) {
    int64_t removed = 0;
    const qn_status st = qn_cache_clear(&removed);
    if (st != QN_OK)
        return cli_fail_lib(st, "cache");
    if (as_json)
        return cli_print_json(cli_json_pack("{s:I}", "removed", (json_int_t)removed));
    printf("%" PRId64 " entries removed\n", removed);
    return cli_flush();
}

/** What fill has made so far. */
typedef struct filling {
    json_t *kernels;
    int ready, failed;
    char first_error[240]; // why the first kernel cannot be had
} filling;

static void note_kernel(void *context, const qn_cache_fill_result *r) {
    filling *f = context;
    f->ready += !r->error;
    if (r->error && f->failed++ == 0)
        snprintf(f->first_error, sizeof f->first_error, "%s", r->error);
    cli_json_add(f->kernels,
                 cli_json_pack("{s:s, s:s, s:I, s:s?}", "op", r->op, "kernel", r->kernel, "load_ns",
                               (json_int_t)r->ns, "error", r->error));
    if (as_json)
        return;
    printf("%-40s %9.3f s%s%s\n", r->kernel, (double)r->ns / 1e9, r->error ? "  " : "",
           r->error ? r->error : "");
    fflush(stdout); // a kernel may take seconds
}

static qn_status fill(void) {
    cli_device device;
    filling f = {};
    CLI_TRY(cli_device_open(&device, spec));
    f.kernels = json_array();
    qn_status st = qn_cache_fill(device.device, op, note_kernel, &f);
    const int made = f.ready + f.failed;
    if (made == 0 && st != QN_OK)
        st = cli_fail_lib(st, "cache fill");
    else if (as_json)
        st = cli_print_json(cli_json_pack("{s:s, s:O, s:i, s:i}", "device", device.info.spec,
                                          "kernels", f.kernels, "ready", f.ready, "failed",
                                          f.failed));
    else
        st = (printf("%d kernels of %s are ready\n", f.ready, device.info.spec), cli_flush());
    if (st == QN_OK && f.failed)
        st = cli_fail(QN_E_MISMATCH, "%d of %d kernels cannot be had; the first: %s", f.failed,
                      made, f.first_error);
    json_decref(f.kernels);
    cli_device_close(&device);
    return st;
}

static qn_status fail_action(const char *action) {
    static const char accepted[] = "path, list, verify, fill, clear";
    char guess[CLI_GUESS_ROOM];
    return cli_fail(QN_E_INVALID, "unknown action '%s' (accepted: %s)%s", action, accepted,
                    cli_guess(action, strlen(action), accepted, guess, sizeof guess));
}

static int run(int, char **arguments) {
    const char *action = arguments[0];
    const bool is_fill = strcmp(action, "fill") == 0;
    qn_status st;
    if (!is_fill && (spec || op))
        st = cli_fail(QN_E_INVALID, "%s goes with fill alone", spec ? "--device" : "--op");
    else if (is_fill)
        st = fill();
    else if (strcmp(action, "path") == 0)
        st = print_path();
    else if (strcmp(action, "list") == 0 || strcmp(action, "verify") == 0)
        st = show(*action == 'v');
    else if (strcmp(action, "clear") == 0)
        st = clear();
    else
        st = fail_action(action);
    return cli_finish("cache", st);
}

const cli_command cli_cache = {
    .name = "cache",
    .arguments = "path|list|verify|fill|clear",
    .summary = "Show, check, fill or empty the cache of compiled kernels",
    .details =
        "path prints the cache's folder (QUERN_CACHE_DIR sets it), list shows every entry,\n"
        "verify exits 1 if an entry is damaged, clear removes all entries. fill loads every\n"
        "kernel of a GPU, so that first calls compile nothing; on NVIDIA's GPUs the driver\n"
        "compiles, into its own cache.",
    .options = options,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run};
