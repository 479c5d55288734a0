// SPDX-License-Identifier: Apache-2.0
// quern bench: shows how fast ops are on a device, beside a copy of as many bytes and beside the
// device's limits.
#include "bench.h"

#include "../file.h"
#include "../sim/simulator.h"
#include "timing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 24 };
static bench_options o = {.python = "python3",
                          .m_list = "1,16,64,512",
                          .seq_list = "1024",
                          .n = 4096,
                          .k = 7168,
                          .heads = HEADS};

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &o.spec,
     .help = "where to run (default: auto)"},
    {.name = "--runs",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.runs,
     .min = 1,
     .max = 100000,
     .help = "timed runs, of which the median counts (default: 20; 1 of modelled time)"},
    CLI_SIM_CLOCK_OPTION(o.clock, "simulated devices: which workgroups run (default: sample)"),
    {.name = "--m",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.m_list,
     .help = "gemm: rows of activations (default: 1,16,64,512)"},
    {.name = "--n",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.n,
     .min = 1,
     .max = 1 << 20,
     .help = "gemm: rows of the weight (default: 4096)"},
    {.name = "--k",
     .value = "K",
     .kind = CLI_INT,
     .to = &o.k,
     .min = 1,
     .max = 1 << 20,
     .help = "gemm: length of the sums (default: 7168)"},
    {.name = "--seq",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &o.seq_list,
     .help = "attention: lengths of prompts (default: 1024)"},
    {.name = "--heads",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.heads,
     .min = 1,
     .max = 1024,
     .help = "attention: heads of prompts (default: 24)"},
    {.name = "--prompts",
     .value = "whole|causal",
     .kind = CLI_TEXT,
     .to = &o.prompts,
     .help = "attention: these prompts alone (default: both, and a decode)"},
    {.name = "--rows",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.shape.rows,
     .min = 1,
     .max = 1 << 24,
     .help = "row ops: rows (default: 4096 on the CPU, 16384 on GPUs)"},
    {.name = "--dim",
     .value = "N",
     .kind = CLI_INT,
     .to = &o.shape.dim,
     .min = 1,
     .max = 1 << 20,
     .help = "row ops: elements of a row (default: 7168 on the CPU, 8192 on GPUs)"},
    {.name = "--peer",
     .value = "torch",
     .kind = CLI_CHOICE,
     .to = &o.peer,
     .help = "beside PyTorch in one process: gemm on the CPU, attention anywhere"},
    {.name = "--python",
     .value = "PROGRAM",
     .kind = CLI_TEXT,
     .to = &o.python,
     .help = "a Python that has the peer (default: python3)"},
    {.name = "--svg",
     .value = "FILE.svg",
     .kind = CLI_TEXT,
     .to = &o.plot_path,
     .help = "draw the figures beside limits; attention over --seq as lines"},
    {.name = "--force", .kind = CLI_FLAG, .to = &o.force, .help = "replace FILE.svg if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &o.as_json, .help = "print JSON"},
    {0}};

enum { MAX_NUMBERS = 32, RUNS = 20 };

typedef struct job {
    bench_report report;
    int64_t m[MAX_NUMBERS], seq[MAX_NUMBERS];
    int num_m, num_seq;
} job;

// ---- figures

double bench_gigabytes(const measurement *r) {
    return r->bytes / (double)r->median_ns;
}
static double gigaflops(const measurement *r) {
    return r->flops / (double)r->median_ns;
}

double bench_share(const measurement *r) {
    return r->copy_ns ? (double)r->copy_ns / (double)r->median_ns
                      : r->limit_ns / (double)r->median_ns;
}

const char *bench_share_of(const measurement *r) {
    return r->copy_ns ? "copy" : r->bound ? r->bound : "-";
}

/** Adds where modelled time went, in the last column of a simulated device's table. */
static void add_clock(cli_table *table, const measurement *r) {
    enum { SHARES = 3 };
    char text[128];
    cli_table_add(table, "%s", cli_clock_text(r->clock, SHARES, text, sizeof text));
}

static void print_table(const bench_report *b) {
    const bool is_modelled = b->device.info.is_modelled;
    printf("%s: %s, %s times; limits %s\n", b->device.info.spec, b->device.info.name,
           cli_times(&b->device.info), b->limits.source);
    const cli_unit unit = cli_flops_unit(&b->device.info);
    cli_table table;
    cli_table_init(&table, is_modelled ? 8 : 7,
                   (const char *const[]){"op", "problem", "kernel",
                                         is_modelled ? "modelled" : "median", "GB/s", unit.name,
                                         "of the limit", "SIMD cycles"});
    for (int i = 0; i < b->count; i++) {
        const measurement *r = &b->results[i];
        char time[32];
        cli_table_add(&table, "%s", r->op);
        cli_table_add(&table, "%s", r->problem);
        cli_table_add(&table, "%s", r->kernel);
        cli_table_add(&table, "%s", cli_time_text(r->median_ns, time, sizeof time));
        cli_table_add(&table, "%.2f", bench_gigabytes(r));
        cli_table_add(&table, r->flops > 0 ? "%.*f" : "-", unit.digits,
                      gigaflops(r) * 1e9 / unit.a_second);
        cli_table_add(&table, bench_share(r) > 0 ? "%.0f %% (%s)" : "-", 100 * bench_share(r),
                      bench_share_of(r));
        if (is_modelled)
            add_clock(&table, r);
    }
    cli_table_print(&table, stdout);
    for (int i = 0; i < b->num_left_out; i++)
        printf("left out: %s\n", b->left_out[i].why); // the text names the op
}

static json_t *left_out_json(const bench_report *b) {
    json_t *list = json_array();
    for (int i = 0; i < b->num_left_out; i++)
        cli_json_add(
            list, cli_json_pack("{s:s, s:s}", "op", b->left_out[i].op, "why", b->left_out[i].why));
    return list;
}

static json_t *report_json(const bench_report *b) {
    json_t *list = json_array();
    for (int i = 0; i < b->count; i++) {
        const measurement *r = &b->results[i];
        cli_json_add(
            list, cli_json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:s,"
                                " s:O?}",
                                "op", r->op, "problem", r->problem, "kernel", r->kernel, "times",
                                cli_times(&b->device.info), "median_ns", (json_int_t)r->median_ns,
                                "fastest_ns", (json_int_t)r->fastest_ns, "bytes",
                                (json_int_t)r->bytes, "flops", (json_int_t)r->flops, "gb_per_s",
                                bench_gigabytes(r), "gflop_per_s", gigaflops(r), "copy_median_ns",
                                (json_int_t)r->copy_ns, "share_of_limit", bench_share(r), "limit",
                                bench_share_of(r), "clock", r->clock));
    }
    return cli_json_pack("{s:o, s:I, s:{s:f, s:f, s:s}, s:o, s:o}", "device",
                         cli_device_json(&b->device.info), "runs", (json_int_t)o.runs, "limits",
                         "gflop_per_s", b->limits.flops * 1e-9, "read_gb_per_s",
                         b->limits.read_bytes * 1e-9, "source", b->limits.source, "results", list,
                         "left_out", left_out_json(b));
}

// ---- the command

/** Reads numbers with commas between. */
static qn_status parse_numbers(const char *option, const char *list, int64_t *to, int *count) {
    const char *at = list;
    for (;;) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 1 || value > 1 << 20 || (*end && *end != ','))
            return cli_fail(QN_E_INVALID,
                            "option %s: found '%s', accepted: numbers from 1 to %d, as 1,16",
                            option, list, 1 << 20);
        if (*count == MAX_NUMBERS)
            return cli_fail(QN_E_INVALID, "option %s: more than %d numbers", option, MAX_NUMBERS);
        to[(*count)++] = value;
        if (!*end)
            return QN_OK;
        at = end + 1;
    }
}

/** Returns whether one of the command's words names the op or its family; true without words. */
static bool is_wanted(int count, char **words, const char *op, const char *family) {
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], op) == 0 || strcmp(words[i], family) == 0)
            return true;
    return count == 0;
}

/** Returns whether the backward pass is asked for by name; on GPUs it is slow. */
static bool is_backward_wanted(int count, char **words) {
    return count > 0 && is_wanted(count, words, "attention_backward", "");
}

static qn_status check_word(const char *word) {
    static const char *const others[] = {"quantize", "gemm", "attention", "attention_backward",
                                         "mla"};
    char accepted[512] = "quantize, gemm, attention, attention_backward, mla";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i]) == 0)
            return QN_OK;
    for (int i = 0; i < rows_count(); i++) {
        const char *names[] = {rows_family(i), rows_name(i)};
        const bool is_first = i == 0 || strcmp(names[0], rows_family(i - 1)) != 0;
        for (int which = !is_first; which < 2; which++) {
            const size_t used = strlen(accepted);
            if (strcmp(word, names[which]) == 0)
                return QN_OK;
            snprintf(accepted + used, sizeof accepted - used, ", %s", names[which]);
        }
    }
    char guess[CLI_GUESS_ROOM];
    return cli_fail(QN_E_INVALID, "unknown op '%s' (accepted: %s)%s", word, accepted,
                    cli_guess(word, strlen(word), accepted, guess, sizeof guess));
}

static int count_problems(const job *j, int count, char **words) {
    int problems = 0;
    for (int i = 0; i < rows_count(); i++)
        problems += is_wanted(count, words, rows_name(i), rows_family(i));
    problems += is_wanted(count, words, "quantize", "") ? 2 : 0;
    const int prompts = o.prompts ? j->num_seq : 2 * j->num_seq + 1;
    problems += is_wanted(count, words, "attention", "") ? prompts : 0;
    problems += is_backward_wanted(count, words) ? (o.prompts ? 1 : 2) * j->num_seq : 0;
    problems += is_wanted(count, words, "mla", "") ? 2 : 0;
    return problems + (is_wanted(count, words, "gemm", "") ? j->num_m : 0);
}

/** Takes the last result. If the op failed because the device has no kernel for it, and nobody
 *  asked for the op by name, it is left out, and the bench goes on. */
static qn_status take(job *j, const char *op, bool is_named, qn_status st) {
    if (st != QN_E_UNSUPPORTED || is_named || j->report.num_left_out == MAX_LEFT_OUT)
        return st;
    left_out *to = &j->report.left_out[j->report.num_left_out++];
    json_decref(j->report.results[--j->report.count].clock);
    to->op = op;
    snprintf(to->why, sizeof to->why, "%s", qn_last_error());
    return QN_OK;
}

static qn_status measure_quantizes(job *j, bool is_named) {
    const int before = j->report.num_left_out;
    qn_status st = QN_OK;
    for (int64_t rows = 1; st == QN_OK && j->report.num_left_out == before && rows <= 128;
         rows += 127)
        st = take(j, "quantize", is_named,
                  measure_quantize(&j->report.results[j->report.count++], &j->report.device, 8192,
                                   4096, rows, (int)o.runs));
    return st;
}

static qn_status measure_gemms(job *j, bool is_named) {
    const int before = j->report.num_left_out;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && j->report.num_left_out == before && i < j->num_m; i++)
        st = take(j, "gemm", is_named,
                  measure_gemm(&j->report.results[j->report.count++], &j->report.device,
                               &j->report.limits, j->m[i], o.n, o.k, (int)o.runs));
    return st;
}

/** Measures prompts, whole and causal, as in image and language models; then a token
 *  for each of eight caches. */
static qn_status measure_attentions(job *j, bool is_named) {
    const int before = j->report.num_left_out;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && j->report.num_left_out == before && i <= 2 * j->num_seq; i++) {
        if (o.prompts && (i == 2 * j->num_seq || i % 2 != (strcmp(o.prompts, "causal") == 0)))
            continue;
        const int64_t length = i < 2 * j->num_seq ? j->seq[i / 2] : 4096;
        const attention_shape prompt = {1, o.heads, o.heads, 128, length, length, i % 2},
                              decode = {8, 32, 8, 128, 1, length, false};
        st = take(j, "attention", is_named,
                  measure_attention(&j->report.results[j->report.count++], &j->report.device,
                                    &j->report.limits, i < 2 * j->num_seq ? &prompt : &decode,
                                    (int)o.runs));
    }
    return st;
}

/** Measures the backward pass of the same prompts. */
static qn_status measure_backwards(job *j) {
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < 2 * j->num_seq; i++) {
        const int64_t length = j->seq[i / 2];
        const attention_shape prompt = {1, o.heads, o.heads, 128, length, length, i % 2};
        if (!o.prompts || i % 2 == (strcmp(o.prompts, "causal") == 0))
            st = take(j, "attention_backward", true,
                      measure_attention_backward(&j->report.results[j->report.count++],
                                                 &j->report.device, &j->report.limits, &prompt,
                                                 (int)o.runs));
    }
    return st;
}

static qn_status measure_mlas(job *j, bool is_named) {
    const int before = j->report.num_left_out;
    qn_status st = QN_OK;
    for (int is_fp8 = 0; st == QN_OK && j->report.num_left_out == before && is_fp8 < 2; is_fp8++)
        st = take(j, "mla", is_named,
                  measure_mla(&j->report.results[j->report.count++], &j->report.device,
                              &j->report.limits, is_fp8, (int)o.runs));
    return st;
}

static qn_status measure_all(job *j, int count, char **words) {
    qn_status st = QN_OK;
    const int problems = count_problems(j, count, words);
    if (problems > MAX_RESULTS)
        return cli_fail(QN_E_INVALID, "%d problems; at most %d are accepted", problems,
                        MAX_RESULTS);
    cli_progress_begin("measuring", problems * (o.runs + timing_warm_up(&j->report.device)));
    for (int i = 0; st == QN_OK && i < rows_count(); i++)
        if (is_wanted(count, words, rows_name(i), rows_family(i)))
            st = take(j, rows_name(i), count > 0,
                      measure_rows(&j->report.results[j->report.count++], &j->report.device, i,
                                   o.shape, (int)o.runs));
    if (st == QN_OK && is_wanted(count, words, "quantize", ""))
        st = measure_quantizes(j, count > 0);
    if (st == QN_OK && is_wanted(count, words, "gemm", ""))
        st = measure_gemms(j, count > 0);
    if (st == QN_OK && is_wanted(count, words, "attention", ""))
        st = measure_attentions(j, count > 0);
    if (st == QN_OK && is_backward_wanted(count, words))
        st = measure_backwards(j);
    if (st == QN_OK && is_wanted(count, words, "mla", ""))
        st = measure_mlas(j, count > 0);
    cli_progress_end();
    return st == QN_OK ? st : cli_fail_lib(st, j->report.results[j->report.count - 1].problem);
}

static qn_status start_plot(cli_output *plot, const bench_report *report) {
    char *text = bench_draw(report);
    const qn_status st = cli_output_text(plot, o.plot_path, text, o.force);
    free(text);
    return st;
}

static qn_status print_report(const bench_report *report) {
    if (o.as_json)
        return cli_print_json(report_json(report));
    print_table(report);
    return cli_flush();
}

/** Checks that the device's times mean something. */
static qn_status check_clock(const qn_device_info *info) {
    if (o.clock && !info->is_modelled)
        return cli_fail(QN_E_INVALID,
                        "option --clock: device %s has times that are measured, accepted: a "
                        "simulated device",
                        info->spec);
    if (info->has_clock)
        return QN_OK;
    return cli_fail(QN_E_UNSUPPORTED, "device %s has no clock, so there is nothing to measure%s",
                    info->spec,
                    !info->is_modelled              ? ""
                    : strstr(info->arch, "generic") ? ": no time is modelled of generic chips"
                                                    : ": QUERN_SIM has clock=off");
}

/** Opens the device. Times of a simulated one are modelled. */
static qn_status open_device(job *j) {
    qn_device_info *info = &j->report.device.info;
    cli_clock_start("sample", o.clock);
    CLI_TRY(cli_device_open(&j->report.device, o.spec));
    CLI_TRY(check_clock(info));
    o.runs = o.runs ? o.runs : info->is_modelled ? 1 : RUNS;
    cli_limits_get(&j->report.limits, info);
    return QN_OK;
}

static qn_status measure_device(job *j, int count, char **ops) {
    cli_output plot = {0};
    qn_status st = QN_OK;
    for (int i = 0; i < count; i++)
        CLI_TRY_OUT(check_word(ops[i]));
    CLI_TRY_OUT(cli_output_check(o.plot_path, o.force));
    CLI_TRY_OUT(open_device(j));
    CLI_TRY_OUT(measure_all(j, count, ops));
    if (o.plot_path)
        CLI_TRY_OUT(start_plot(&plot, &j->report));
    CLI_TRY_OUT(print_report(&j->report));
    if (o.plot_path)
        CLI_TRY_OUT(cli_output_commit(&plot));
out:
    for (int i = 0; i < j->report.count; i++)
        json_decref(j->report.results[i].clock);
    cli_output_discard(&plot);
    cli_device_close(&j->report.device);
    return st;
}

/** Checks the options that change what attention's prompts are, which figures and peers do not
 *  follow. */
static qn_status check_prompts(void) {
    const bool is_changed = o.prompts || o.heads != HEADS;
    if (o.prompts && strcmp(o.prompts, "whole") != 0 && strcmp(o.prompts, "causal") != 0)
        return cli_fail(QN_E_INVALID, "option --prompts: found '%s', accepted: whole, causal",
                        o.prompts);
    if (is_changed && (o.peer || o.plot_path))
        return cli_fail(QN_E_INVALID,
                        "option %s: found with %s, accepted: without --peer and --svg",
                        o.prompts ? "--prompts" : "--heads", o.peer ? "--peer" : "--svg");
    return QN_OK;
}

static int run(int count, char **arguments) {
    static job j;
    qn_status st = parse_numbers("--m", o.m_list, j.m, &j.num_m);
    if (st == QN_OK)
        st = parse_numbers("--seq", o.seq_list, j.seq, &j.num_seq);
    if (st == QN_OK)
        st = check_prompts();
    o.runs = o.runs || !o.peer ? o.runs : RUNS;
    const bool is_attention = count && strcmp(arguments[0], "attention") == 0;
    if (st == QN_OK && o.peer &&
        (count > 1 || (count && !is_attention && strcmp(arguments[0], "gemm") != 0)))
        st =
            cli_fail(QN_E_INVALID, "option --peer: found op '%s', accepted: one of gemm, attention",
                     arguments[count - 1]);
    if (st == QN_OK && o.peer && o.clock)
        st = cli_fail(QN_E_INVALID, "option --clock: not accepted with --peer, which measures");
    if (st == QN_OK)
        st = o.peer ? bench_run_peer(&o, is_attention) : measure_device(&j, count, arguments);
    return cli_finish("bench", st);
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "[OP...]",
    .summary = "Measure ops beside a copy, limits and peers",
    .details =
        "OP is attention, attention_backward, mla, gemm, quantize, a family of row ops (norm,\n"
        "norm_backward, activation, activation_backward, rope) or one row op by name\n"
        "(rmsnorm, ...). Without OP all ops are measured; those that the device has no kernel\n"
        "for are named below the table. Row ops work on bf16, and quantize turns 64 MiB of\n"
        "bf16 into FP8; they take turns with copies that move as many bytes. gemm multiplies\n"
        "FP8 activations with packed FP8 weights, going round eight matrices so that none\n"
        "stays in a cache. attention works on bf16: prompts of 24 heads of 128, whole and\n"
        "causal, and a token for each of eight caches of 4096 keys (32 heads, 8 of them in\n"
        "the cache); its GB/s count q, k, v and o.\n"
        "attention_backward has the gradients of these prompts, if it is named. mla takes a\n"
        "token of 16 heads for each of eight caches of 4096 keys of 512 + 64 elements, of\n"
        "bf16 and of e4m3fn. 'of the limit' is the op's speed beside the copy's, or beside\n"
        "what arithmetic or memory would allow. Loops that do nothing else measure this\n"
        "limit on the CPU; for GPUs it is from data sheets. The copy is the library's own:\n"
        "on the CPU it takes all threads and goes past the caches. On a simulated GPU times\n"
        "are modelled, not measured (docs/clock.md), memory's limit stands in for the copy,\n"
        "and the last column has the largest shares of the SIMDs' cycles. With --peer the command\n"
        "measures gemm (also without OP) beside PyTorch's product in bf16, or attention\n"
        "beside each of the backends of PyTorch's scaled_dot_product_attention: prompts as\n"
        "arithmetic, the decode as bytes of the cache. On GPUs attention's calls are\n"
        "replayed in a graph. QUERN_NUM_THREADS sets the CPU's threads.",
    .options = options,
    .max_arguments = 64,
    .run = run};
