// SPDX-License-Identifier: Apache-2.0
// quern probe: measures what the model of a simulated GPU's time has to know, and writes a chip
// file.
#include "probe.h"

#include "../file.h"
#include "../sim/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *spec, *only, *out;
    int64_t runs;
    bool lists, force, as_json;
} o;

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &o.spec,
     .help = "where to run (default: auto)"},
    {.name = "--only",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.only,
     .help = "names of probes, separated by commas (default: all)"},
    {.name = "--runs",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.runs,
     .min = 1,
     .max = 99,
     .help = "runs of each, whose median counts (default: 9; modelled: 1)"},
    {.name = "--out",
     .value = "FILE",
     .kind = CLI_TEXT,
     .to = &o.out,
     .help = "write a chip file, which chip= of QUERN_SIM takes"},
    {.name = "--force", .kind = CLI_FLAG, .to = &o.force, .help = "replace FILE if it exists"},
    {.name = "--list",
     .kind = CLI_FLAG,
     .to = &o.lists,
     .help = "list the probes, and measure nothing"},
    {.name = "--json", .kind = CLI_FLAG, .to = &o.as_json, .help = "print JSON"},
    {0}};

typedef struct job {
    cli_device device;
    probe_chip chip;
    const qn_probe_info **wanted;
    probe_result *results;
    int num_wanted, count;
} job;

// ---- which

/** Returns the names of all probes, parted by commas; the caller frees the text. */
static char *names(const qn_probe_info *infos, int count) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *to = cli_stream(&text, &bytes);
    for (int i = 0; i < count; i++)
        fprintf(to, "%s%s", i ? ", " : "", infos[i].name);
    fclose(to);
    return text;
}

static qn_status fail_name(const char *word, const qn_probe_info *infos, int count) {
    char guess[CLI_GUESS_ROOM], *accepted = names(infos, count);
    const qn_status st =
        cli_fail(QN_E_INVALID, "option --only: no probe is named '%s' (accepted: %s)%s", word,
                 accepted, cli_guess(word, strlen(word), accepted, guess, sizeof guess));
    free(accepted);
    return st;
}

/** Finds the probes that --only names; each once, in the order in which they run. */
static qn_status choose(job *j) {
    int32_t count;
    const qn_probe_info *infos = qn_probe_infos(&count);
    bool *is_wanted = cli_alloc((size_t)count * sizeof *is_wanted);
    char *list = cli_text("%s", o.only ? o.only : ""), *rest = list;
    qn_status st = QN_OK;
    j->wanted = cli_alloc((size_t)count * sizeof(void *));
    j->results = cli_alloc((size_t)count * sizeof *j->results);
    for (const char *word; st == QN_OK && o.only && (word = strsep(&rest, ","));) {
        int i = 0;
        while (i < count && strcmp(infos[i].name, word) != 0)
            i++;
        if (i < count)
            is_wanted[i] = true;
        else
            st = fail_name(word, infos, count);
    }
    for (int i = 0; i < count; i++)
        if (!o.only || is_wanted[i])
            j->wanted[j->num_wanted++] = &infos[i];
    free(list);
    free(is_wanted);
    return st;
}

static qn_status print_list(const job *j) {
    cli_table table;
    cli_table_init(&table, 4,
                   (const char *const[]){"probe", "unit", "chip file", "what it measures"});
    for (int i = 0; i < j->num_wanted; i++) {
        cli_table_add(&table, "%s", j->wanted[i]->name);
        cli_table_add(&table, "%s", j->wanted[i]->unit);
        cli_table_add(&table, "%s", j->wanted[i]->entry ? j->wanted[i]->entry : "-");
        cli_table_add(&table, "%s", j->wanted[i]->about);
    }
    cli_table_print(&table, stdout);
    return cli_flush();
}

// ---- measuring

static double given(void *context, const char *entry) {
    return probe_chip_get(&((const job *)context)->chip, entry);
}

static void keep(void *context, const qn_probe_result *result) {
    job *j = context;
    probe_result *to = &j->results[j->count++];
    *to = (probe_result){.info = result->info,
                         .value = result->value,
                         .model = result->model,
                         .entry_value = result->entry_value};
    snprintf(to->detail, sizeof to->detail, "%s", result->detail);
    snprintf(to->reason, sizeof to->reason, "%s", result->reason ? result->reason : "");
}

static qn_status measure(job *j) {
    const qn_probe_options how = {
        .struct_size = sizeof how, .given = given, .runs = (int32_t)o.runs};
    qn_status st = QN_OK;
    cli_progress_begin("probing", j->num_wanted);
    for (int i = 0; st == QN_OK && i < j->num_wanted; i++) {
        st = qn_probe(j->device.device, j->wanted[i]->name, &how, keep, j);
        st = st == QN_OK ? cli_check_signals() : cli_fail_lib(st, j->wanted[i]->name);
        cli_progress_add(1);
    }
    cli_progress_end();
    return st;
}

// ---- output

static void add_number(cli_table *table, double value, const char *format) {
    if (isfinite(value))
        cli_table_add(table, format, value);
    else
        cli_table_add(table, "-");
}

static void print_table(const job *j) {
    const qn_device_info *info = &j->device.info;
    cli_table table;
    printf("%s: %s, %s\n", info->spec, info->name, cli_times(info));
    cli_table_init(&table, 6,
                   (const char *const[]){"probe", "value", "unit", "model", "ratio", "chip file"});
    for (int i = 0; i < j->count; i++) {
        const probe_result *r = &j->results[i];
        cli_table_add(&table, "%s", r->info->name);
        add_number(&table, r->value, "%.2f");
        cli_table_add(&table, "%s", *r->reason ? r->reason : r->info->unit);
        add_number(&table, r->model, "%.2f");
        add_number(&table, r->value / r->model, "%.3f");
        if (r->info->entry && isfinite(r->entry_value))
            cli_table_add(&table, "%s %.1f", r->info->entry, r->entry_value);
        else
            cli_table_add(&table, "%s", r->info->entry ? r->info->entry : "");
    }
    cli_table_print(&table, stdout);
}

static json_t *result_json(const probe_result *r) {
    return cli_json_pack("{s:s, s:s, s:o, s:o, s:s?, s:o, s:s, s:s}", "probe", r->info->name,
                         "unit", r->info->unit, "value", cli_json_number(r->value), "model",
                         cli_json_number(r->model), "entry", r->info->entry, "entry_value",
                         cli_json_number(r->entry_value), "detail", r->detail, "reason", r->reason);
}

static qn_status print_results(const job *j) {
    if (!o.as_json) {
        print_table(j);
        return cli_flush();
    }
    json_t *list = cli_json_pack("[]");
    for (int i = 0; i < j->count; i++)
        cli_json_add(list, result_json(&j->results[i]));
    return cli_print_json(
        cli_json_pack("{s:o, s:o}", "device", cli_device_json(&j->device.info), "results", list));
}

static qn_status start_file(cli_output *out, const job *j) {
    char *text = probe_file_text(&j->device.info, &j->chip, j->results, j->count);
    const qn_status st = cli_output_text(out, o.out, text, o.force);
    free(text);
    return st;
}

static qn_status probe_device(job *j) {
    cli_output file = {0};
    qn_status st;
    CLI_TRY_OUT(cli_output_check(o.out, o.force));
    cli_clock_start("on", nullptr); // probes read what kernels write
    CLI_TRY_OUT(cli_device_open(&j->device, o.spec));
    CLI_TRY_OUT(probe_chip_load(&j->chip, j->device.info.arch));
    CLI_TRY_OUT(measure(j));
    if (o.out)
        CLI_TRY_OUT(start_file(&file, j));
    CLI_TRY_OUT(print_results(j));
    if (o.out)
        CLI_TRY_OUT(cli_output_commit(&file));
out:
    cli_output_discard(&file);
    probe_chip_unload(&j->chip);
    cli_device_close(&j->device);
    return st;
}

static int run(int, char **) {
    job j = {0};
    qn_status st = choose(&j);
    if (st == QN_OK)
        st = o.lists ? print_list(&j) : probe_device(&j);
    free(j.wanted);
    free(j.results);
    return cli_finish("probe", st);
}

const cli_command cli_probe = {
    .name = "probe",
    .arguments = "",
    .summary = "Measure what the model of a card's time has to know",
    .details =
        "Small kernels measure latencies, rates, what issues beside what, LDS's banks and\n"
        "launches, of gfx942 and gfx950. Each value stands beside what the model of the\n"
        "simulated GPU gives for it (docs/clock.md). --out writes the values as a chip file,\n"
        "which chip= of QUERN_SIM takes in place of the model's own, with the facts that have\n"
        "no entry there as comments. docs/probe.md says what each probe does, and where to\n"
        "send the file.",
    .options = options,
    .run = run};
