// SPDX-License-Identifier: Apache-2.0
// quern tune: measures which kernels are fastest and writes a table of measured choices; or shows
// and checks such a table.
#include "tune.h"

#include "../bench/timing.h"
#include "../file.h"
#include "../sim/simulator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tune_options o;

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &o.spec,
     .help = "where to run (default: auto)"},
    {.name = "--shapes",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.shapes,
     .help = "sizes; gemm: 4096x7168, attention: 32x8x128, mla: 16, row ops: 7168"},
    {.name = "--model",
     .value = "CONFIG.json",
     .kind = CLI_TEXT,
     .to = &o.model,
     .help = "a model's layers, in place of shapes"},
    {.name = "--tp",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.tp,
     .min = 1,
     .max = 1024,
     .help = "processes that share each layer of the model (default: 1)"},
    {.name = "--tokens",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.tokens,
     .help = "gemm and row ops: rows of activations (default: 1,16,64,512)"},
    {.name = "--ranges",
     .kind = CLI_FLAG,
     .to = &o.has_ranges,
     .help = "lines hold for fewer tokens as well, down to the next number measured"},
    {.name = "--seq",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.seq,
     .help = "attention, mla: lengths of prompts and caches (default: 1024)"},
    {.name = "--dtype",
     .value = "fp8|e4m3fn|e4m3fnuz|bf16",
     .kind = CLI_CHOICE,
     .to = &o.dtype,
     .help = "gemm: what is multiplied (default: as the model, else fp8)"},
    {.name = "--output",
     .value = "FILE",
     .kind = CLI_TEXT,
     .to = &o.output,
     .help = "the table (default: what QUERN_TUNE names, else quern.tune)"},
    {.name = "--force", .kind = CLI_FLAG, .to = &o.force, .help = "replace FILE if it exists"},
    {.name = "--rounds",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.rounds,
     .min = 3,
     .max = 10000,
     .help = "turns of each kernel, of which the median counts (default: 21)"},
    {.name = "--kernels",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.kernels,
     .min = 1,
     .max = TUNE_MAX_KERNELS,
     .help = "try only the N kernels of least cost (default: all)"},
    CLI_SIM_CLOCK_OPTION(o.clock, "simulated devices: which workgroups run (default: on)"),
    {.name = "--dry-run",
     .kind = CLI_FLAG,
     .to = &o.is_dry,
     .help = "list problems and kernels, and measure nothing"},
    {.name = "--json", .kind = CLI_FLAG, .to = &o.as_json, .help = "print JSON"},
    {0}};

/** A run of the command. */
typedef struct job {
    cli_device device;
    tune_problems problems;
    tune_file file;
    int begun_with; // records that an earlier run made
} job;

static const char *arch_of(const job *j) {
    return j->device.info.arch;
}

// ---- what identifies a run

/** Makes a text fit for a comment: what the table refuses there becomes '?'. */
static char *clean(char *text) {
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7F)
            *c = '?';
    return text;
}

static bool is_given(const cli_option *p) {
    return p->kind == CLI_FLAG  ? *(bool *)p->to
           : p->kind == CLI_INT ? *(int64_t *)p->to != 0
                                : *(const char **)p->to != nullptr;
}

/** Writes an option that is given, if the table depends on it. */
static void put_option(FILE *to, const cli_option *p) {
    const bool is_for_output =
        p->to == &o.output || p->to == &o.force || p->to == &o.is_dry || p->to == &o.as_json;
    if (is_for_output || !is_given(p))
        return;
    fprintf(to, " %s", p->name);
    if (p->kind == CLI_INT)
        fprintf(to, " %" PRId64, *(int64_t *)p->to);
    else if (p->kind != CLI_FLAG)
        fprintf(to, " %s", *(const char **)p->to);
}

/** Variables on which the table depends as well. */
static const char *const variables[] = {"QUERN_DISABLE", "QUERN_BATCH_INVARIANT", "QUERN_SIM"};

/** Returns the command that makes the same table, whatever the order of its options was. */
static char *command_text(unsigned ops) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *to = cli_stream(&text, &bytes);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value)
            fprintf(to, "%s=%s ", variables[i], value);
    }
    fputs("quern tune", to);
    for (int i = 0; i < TUNE_OPS; i++)
        if (ops & 1U << i)
            fprintf(to, " %s", tune_op_names[i]);
    for (const cli_option *p = options; p->name; p++)
        put_option(to, p);
    fclose(to);
    return clean(text);
}

static qn_status identify(job *j) {
    enum { MAX_COMMAND = 1000 }; // a line of the table holds 1024 bytes
    const qn_device_info *info = &j->device.info;
    j->file.device = clean(cli_text("%s, %d compute units, %s, %s times", info->arch,
                                    info->num_compute_units, info->name, cli_times(info)));
    j->file.library = cli_text("quern %s", qn_version());
    if (strlen(j->file.command) > MAX_COMMAND)
        return cli_fail(QN_E_INVALID,
                        "the command, with its variables, has %zu bytes (accepted: up to %d)",
                        strlen(j->file.command), MAX_COMMAND);
    return QN_OK;
}

// ---- measuring

/** Ends the run where a signal came or the library failed. */
static qn_status end_early(const job *j, qn_status st, const tune_problem *problem) {
    if (cli_check_signals() == QN_OK)
        return cli_fail_lib(st, problem->text);
    if (o.is_dry)
        return QN_E_IO;
    return cli_fail(QN_E_IO,
                    "interrupted with %d of %d problems measured; the same command goes on with %s",
                    j->file.count, j->problems.count, j->file.path);
}

static qn_status write_file(const job *j) {
    char *text = tune_file_text(&j->file, &j->problems, arch_of(j));
    const qn_status st = cli_write_text(j->file.path, text, true);
    free(text);
    return st;
}

static qn_status measure(job *j) {
    const tune_trying how = {
        .rounds = (int)o.rounds,
        .kernels = o.kernels ? (int)o.kernels : TUNE_MAX_KERNELS,
        .is_dry = o.is_dry,
        .is_sample = o.clock && (strcmp(o.clock, "sample") == 0 || strcmp(o.clock, "xcd") == 0)};
    qn_status st = QN_OK;
    cli_catch_signals();
    cli_progress_begin("tuning", TUNE_STEPS * (j->problems.count - j->file.count));
    while (st == QN_OK && j->file.count < j->problems.count) {
        const tune_problem *problem = &j->problems.list[j->file.count];
        tune_record *r = &j->file.records[j->file.count];
        st = tune_try(r, &j->device, problem, &how);
        if (st != QN_OK || cli_check_signals() != QN_OK) {
            st = end_early(j, st, problem);
            break;
        }
        clean(r->why);
        for (int i = 0; i < r->num_kernels; i++)
            clean(r->kernels[i].refused);
        j->file.count++;
        st = o.is_dry ? QN_OK : write_file(j);
        if (st != QN_OK) {
            j->file.count--;
            st = cli_check_signals() == QN_OK ? st : end_early(j, st, problem);
        }
    }
    cli_progress_end();
    return st;
}

// ---- results

static void add_time(cli_table *table, const tune_kernel *k) {
    char text[32];
    cli_table_add(table, "%s", k->ns ? cli_time_text(k->ns, text, sizeof text) : "-");
}

static void print_results(const job *j) {
    cli_table table;
    cli_table_init(&table, 6,
                   (const char *const[]){"op", "problem", "by costs", cli_times(&j->device.info),
                                         "chosen", cli_times(&j->device.info)});
    int changed = 0;
    for (int i = 0; i < j->file.count; i++) {
        const tune_record *r = &j->file.records[i];
        bool for_all;
        const int chosen = tune_choose(&j->file, &j->problems, i, &for_all);
        if (!*r->op)
            continue;
        changed += chosen != 0;
        cli_table_add(&table, "%s", r->op);
        cli_table_add(&table, "%s", j->problems.list[i].text);
        cli_table_add(&table, "%s", r->kernels[0].name);
        add_time(&table, &r->kernels[0]);
        cli_table_add(&table, "%s", chosen ? r->kernels[chosen].name : "the same");
        add_time(&table, &r->kernels[chosen]);
    }
    cli_table_print(&table, stdout);
    for (int i = 0; i < j->file.count; i++) {
        const tune_record *r = &j->file.records[i];
        if (!*r->op)
            printf("left out: %s: %s\n", j->problems.list[i].text, r->why);
        for (int k = 0; k < r->num_kernels; k++)
            if (*r->kernels[k].refused && strcmp(r->kernels[k].refused, TUNE_NOT_TRIED) != 0)
                printf("refused: %s: %s: %s\n", j->problems.list[i].text, r->kernels[k].name,
                       r->kernels[k].refused);
    }
    printf("%s: %d problems, %d measured before; %d of them get another kernel than by costs\n",
           j->file.path, j->problems.count, j->begun_with, changed);
}

static void print_kernels(const job *j) {
    for (int i = 0; i < j->file.count; i++) {
        const tune_record *r = &j->file.records[i];
        printf("%s: %s\n", tune_op_names[j->problems.list[i].op], j->problems.list[i].text);
        for (int k = 0; k < r->num_kernels; k++)
            printf("  %s%s\n", r->kernels[k].name, k ? "" : " (by costs)");
        if (!*r->op)
            printf("  left out: %s\n", r->why);
    }
}

static json_t *kernel_json(const tune_kernel *k) {
    return cli_json_pack("{s:s, s:I, s:I, s:o}", "kernel", k->name, "ns", (json_int_t)k->ns,
                         "noise_ns", (json_int_t)k->noise_ns, "refused",
                         *k->refused ? cli_json_text(k->refused) : json_null());
}

static json_t *record_json(const job *j, int i) {
    const tune_record *r = &j->file.records[i];
    json_t *kernels = json_array();
    bool for_all = false;
    const int chosen = o.is_dry ? 0 : tune_choose(&j->file, &j->problems, i, &for_all);
    for (int k = 0; k < r->num_kernels; k++)
        cli_json_add(kernels, kernel_json(&r->kernels[k]));
    return cli_json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:b}", "op", tune_op_names[j->problems.list[i].op],
        "problem", j->problems.list[i].text, "line", r->problem, "batch", r->batch, "kernels",
        kernels, "chosen", r->num_kernels ? cli_json_text(r->kernels[chosen].name) : json_null(),
        "left_out", *r->op ? json_null() : cli_json_text(r->why), "for_all_batches", for_all);
}

static json_t *report_json(const job *j) {
    json_t *list = json_array();
    for (int i = 0; i < j->file.count; i++)
        cli_json_add(list, record_json(j, i));
    return cli_json_pack("{s:o, s:o, s:o, s:i, s:o}", "device", cli_device_json(&j->device.info),
                         "command", cli_json_text(j->file.command), "file",
                         o.is_dry ? json_null() : cli_json_text(j->file.path), "measured_before",
                         j->begun_with, "problems", list);
}

static qn_status print_report(const job *j) {
    if (o.as_json)
        return cli_print_json(report_json(j));
    if (o.is_dry)
        print_kernels(j);
    else
        print_results(j);
    return cli_flush();
}

// ---- the command

/** Opens the device, without what a user forces or has tuned: the table says what is better than
 *  the choice by costs. */
static qn_status open_device(job *j) {
    const char *forced = getenv("QUERN_FORCE");
    if (forced && *forced)
        return cli_fail(QN_E_INVALID, "QUERN_FORCE is set, so that nothing is left to choose "
                                      "(accepted: without it)");
    cli_set_env("QUERN_TUNE", "none");
    cli_clock_start("on", o.clock ? o.clock : "on");
    CLI_TRY(cli_device_open(&j->device, o.spec));
    const qn_device_info *info = &j->device.info;
    if (o.clock && !info->is_modelled)
        return cli_fail(QN_E_INVALID,
                        "option --clock: device %s has times that are measured, accepted: a "
                        "simulated device",
                        info->spec);
    if (o.rounds && info->is_modelled)
        return cli_fail(QN_E_INVALID,
                        "option --rounds: device %s has times that are modelled, which do not "
                        "scatter",
                        info->spec);
    if (!info->has_clock && !o.is_dry)
        return cli_fail(QN_E_UNSUPPORTED,
                        "device %s has no clock, so there is nothing to measure: no time is "
                        "modelled of generic chips",
                        info->spec);
    return QN_OK;
}

static char *find_path(void) {
    const char *used = getenv("QUERN_TUNE");
    const bool is_file = used && *used && strcmp(used, "none") != 0;
    return cli_text("%s", o.output ? o.output : is_file ? used : "quern.tune");
}

static qn_status tune(job *j, unsigned ops) {
    j->file.command = command_text(ops); // before open_device changes the environment
    CLI_TRY(open_device(j));
    CLI_TRY(tune_problems_make(&j->problems, &o, ops, &j->device));
    CLI_TRY(identify(j));
    o.rounds = o.rounds ? o.rounds : 21;
    j->file.records = cli_alloc((size_t)j->problems.count * sizeof *j->file.records);
    if (!o.is_dry) {
        CLI_TRY(cli_output_check(j->file.path, true));
        if (!o.force)
            CLI_TRY(tune_file_read(&j->file, &j->problems, arch_of(j)));
    }
    j->begun_with = j->file.count;
    CLI_TRY(measure(j));
    return print_report(j);
}

static qn_status run_tune(unsigned ops) {
    job j = {.file.path = find_path()};
    const qn_status st = tune(&j, ops);
    free(j.problems.list);
    tune_file_free(&j.file);
    cli_device_close(&j.device);
    return st;
}

static const char *const actions[] = {"path", "list", "verify"};

static bool is_action(const char *word) {
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(word, actions[i]) == 0)
            return true;
    return false;
}

/** Reads the ops as bits; no words: all ops. */
static qn_status read_ops(int count, char **words, unsigned *ops) {
    static const char accepted[] =
        "path, list, verify, gemm, attention, mla, norm, activation, quantize";
    char guess[CLI_GUESS_ROOM];
    *ops = count ? 0 : (1U << TUNE_OPS) - 1;
    for (int i = 0; i < count; i++) {
        int op = 0;
        while (tune_op_names[op] && strcmp(tune_op_names[op], words[i]) != 0)
            op++;
        if (op == TUNE_OPS)
            return cli_fail(QN_E_INVALID, "unknown word '%s' (accepted: %s)%s", words[i], accepted,
                            cli_guess(words[i], strlen(words[i]), accepted, guess, sizeof guess));
        *ops |= 1U << op;
    }
    return QN_OK;
}

/** Carries out path, list or verify, which measure nothing. */
static qn_status act(int count, char **arguments) {
    for (const cli_option *p = options; p->name; p++)
        if (p->to != &o.as_json && is_given(p))
            return cli_fail(QN_E_INVALID, "option %s: not accepted with %s, which measures nothing",
                            p->name, arguments[0]);
    return tune_table(count, arguments, o.as_json);
}

static int run(int count, char **arguments) {
    if (count && is_action(arguments[0]))
        return cli_finish("tune", act(count, arguments));
    unsigned ops;
    const qn_status st = read_ops(count, arguments, &ops);
    return cli_finish("tune", st == QN_OK ? run_tune(ops) : st);
}

const cli_command cli_tune = {
    .name = "tune",
    .arguments = "[OP...] or path, list [FILE], verify [FILE]",
    .summary = "Measure which kernels are fastest, or show the table",
    .details =
        "Runs every kernel that can compute a problem, compares its result with that of the\n"
        "kernel that runs by costs, times both in turns, and writes FILE: a table of measured\n"
        "choices, by which programs go once QUERN_TUNE names it. A kernel gets a line if it is\n"
        "faster by more than the times scatter. OP is gemm, attention, mla, norm, activation or\n"
        "quantize; without OP all ops of --model are tuned. FILE is written after each problem:\n"
        "the same command goes on with what an interrupted one has measured. docs/tune.md has\n"
        "examples.\n"
        "path prints the path of the table that QUERN_TUNE names, list shows every line of the\n"
        "table, verify exits 1 if a line would be refused. Without QUERN_TUNE the table is\n"
        "quern's own. With FILE, list and verify take FILE's table.",
    .options = options,
    .max_arguments = 64,
    .run = run};
