// SPDX-License-Identifier: Apache-2.0
// quern bench: how fast ops are on a device, beside a copy of as many bytes and beside the device's limits;
// with --peer, bench/peers.py times the library beside another in one process.
#include "file.h"
#include "measure.h"
#include "rows.h"
#include "svg.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *spec, *peer, *python = "python3", *plot_path, *m_list = "1,16,64,512",
                                *seq_list = "1024";
static int64_t runs = 20, n = 4096, k = 7168;
static rows_shape shape;
static bool as_json, force;

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &spec,
     .help = "where to run (default: auto)"},
    {.name = "--runs",
     .value = "N",
     .kind = CLI_INT,
     .to = &runs,
     .min = 1,
     .max = 100000,
     .help = "timed runs, of which the median counts (default: 20)"},
    {.name = "--m",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &m_list,
     .help = "gemm: rows of activations (default: 1,16,64,512)"},
    {.name = "--n",
     .value = "N",
     .kind = CLI_INT,
     .to = &n,
     .min = 1,
     .max = 1 << 20,
     .help = "gemm: rows of the weight (default: 4096)"},
    {.name = "--k",
     .value = "K",
     .kind = CLI_INT,
     .to = &k,
     .min = 1,
     .max = 1 << 20,
     .help = "gemm: length of the sums (default: 7168)"},
    {.name = "--seq",
     .value = "LIST",
     .kind = CLI_TEXT,
     .to = &seq_list,
     .help = "attention: lengths of prompts (default: 1024)"},
    {.name = "--rows",
     .value = "N",
     .kind = CLI_INT,
     .to = &shape.rows,
     .min = 1,
     .max = 1 << 24,
     .help = "row ops: rows (default: 4096 on the CPU, 16384 on GPUs)"},
    {.name = "--dim",
     .value = "N",
     .kind = CLI_INT,
     .to = &shape.dim,
     .min = 1,
     .max = 1 << 20,
     .help = "row ops: elements of a row (default: 7168 on the CPU, 8192 on GPUs)"},
    {.name = "--peer",
     .value = "torch",
     .kind = CLI_CHOICE,
     .to = &peer,
     .help = "gemm on the CPU beside PyTorch, taking turns in one process"},
    {.name = "--python",
     .value = "PROGRAM",
     .kind = CLI_TEXT,
     .to = &python,
     .help = "a Python that has the peer (default: python3)"},
    {.name = "--svg",
     .value = "FILE.svg",
     .kind = CLI_TEXT,
     .to = &plot_path,
     .help = "draw the figures beside their limits"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace FILE.svg if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {0}};

enum { MAX_RESULTS = 64, MAX_LEFT_OUT = 32, MAX_NUMBERS = 32 };

/** An op that nobody asked for by name and that the device has no kernel for. */
typedef struct left_out {
    const char *op;
    char why[400];
} left_out;

typedef struct job {
    cli_device device;
    cli_limits limits;
    measurement results[MAX_RESULTS];
    int count;
    left_out left_out[MAX_LEFT_OUT];
    int num_left_out;
    int64_t m[MAX_NUMBERS], seq[MAX_NUMBERS];
    int num_m, num_seq;
} job;

// ---- figures

static double gigabytes(const measurement *r) {
    return r->bytes / (double)r->median_ns;
}
static double gigaflops(const measurement *r) {
    return r->flops / (double)r->median_ns;
}

/** Speed beside the best possible: the copy's, or the limit's; 0 if there is nothing to compare with. */
static double share(const measurement *r) {
    return r->copy_ns ? (double)r->copy_ns / (double)r->median_ns
                      : r->limit_ns / (double)r->median_ns;
}

static const char *share_of(const measurement *r) {
    return r->copy_ns ? "copy" : r->bound ? r->bound : "-";
}

static void print_table(const job *j) {
    printf("%s: %s, %s times; limits %s\n", j->device.info.spec, j->device.info.name,
           cli_times(&j->device.info), j->limits.source);
    cli_table table;
    cli_table_init(&table, 7,
                   (const char *const[]){"op", "problem", "kernel", "median", "GB/s", "GFLOP/s",
                                         "of the limit"});
    for (int i = 0; i < j->count; i++) {
        const measurement *r = &j->results[i];
        char time[32];
        cli_table_add(&table, "%s", r->op);
        cli_table_add(&table, "%s", r->problem);
        cli_table_add(&table, "%s", r->kernel);
        cli_table_add(&table, "%s", cli_time_text(r->median_ns, time, sizeof time));
        cli_table_add(&table, "%.2f", gigabytes(r));
        cli_table_add(&table, r->flops > 0 ? "%.1f" : "-", gigaflops(r));
        cli_table_add(&table, share(r) > 0 ? "%.0f %% (%s)" : "-", 100 * share(r), share_of(r));
    }
    cli_table_print(&table, stdout);
    for (int i = 0; i < j->num_left_out; i++)
        printf("left out: %s\n", j->left_out[i].why); // which names the op
}

static json_t *left_out_json(const job *j) {
    json_t *list = json_array();
    for (int i = 0; i < j->num_left_out; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "op", j->left_out[i].op, "why", j->left_out[i].why));
    return list;
}

static json_t *report_json(const job *j) {
    json_t *list = json_array();
    for (int i = 0; i < j->count; i++) {
        const measurement *r = &j->results[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:s}", "op", r->op,
                      "problem", r->problem, "kernel", r->kernel, "median_ns",
                      (json_int_t)r->median_ns, "fastest_ns", (json_int_t)r->fastest_ns, "bytes",
                      (json_int_t)r->bytes, "flops", (json_int_t)r->flops, "gb_per_s", gigabytes(r),
                      "gflop_per_s", gigaflops(r), "copy_median_ns", (json_int_t)r->copy_ns,
                      "share_of_limit", share(r), "limit", share_of(r)));
    }
    return json_pack("{s:o, s:I, s:{s:f, s:f, s:s}, s:o, s:o}", "device",
                     cli_device_json(&j->device.info), "runs", (json_int_t)runs, "limits",
                     "gflop_per_s", j->limits.flops * 1e-9, "read_gb_per_s",
                     j->limits.read_bytes * 1e-9, "source", j->limits.source, "results", list,
                     "left_out", left_out_json(j));
}

// ---- plot

enum { TOP = 34 };
static const svg_frame frame = {430, 300}; // a bar as long as its share of the limit

static void draw_one(FILE *to, const measurement *r, int top) {
    char *name = cli_text("%s %s", r->op, r->problem);
    char *value =
        r->flops > 0
            ? cli_text("%.1f GFLOP/s, %.0f %% (%s)", gigaflops(r), 100 * share(r), share_of(r))
            : cli_text("%.1f GB/s, %.0f %% (%s)", gigabytes(r), 100 * share(r), share_of(r));
    svg_bar(to, &frame, top, name, share(r) < 1.1 ? share(r) : 1.1, "#4477aa", value);
    free(name);
    free(value);
}

static char *draw(const job *j) {
    char *body = nullptr;
    size_t size = 0;
    FILE *to = open_memstream(&body, &size);
    if (!to)
        cli_out_of_memory();
    const int end = TOP + j->count * SVG_STEP, full = frame.left + (int)frame.full;
    char *rest =
        cli_text("%s times: share of the limit (line: 100 %%)", cli_times(&j->device.info));
    svg_title(to, &frame, 8, j->device.info.name, rest);
    free(rest);
    for (int i = 0; i < j->count; i++)
        draw_one(to, &j->results[i], TOP + i * SVG_STEP);
    fprintf(to, "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='#bb5566'/>\n", full, full, TOP - 4,
            end);
    if (fclose(to) != 0)
        cli_out_of_memory();
    char *text = svg_whole(end + 12, body);
    free(body);
    return text;
}

static qn_status write_plot(const job *j) {
    char *text = draw(j);
    qn_status st = cli_write_text(plot_path, text, force);
    free(text);
    return st;
}

// ---- the peer

/** bench/peers.py as installed, or of the tree that this build folder lies in. */
static char *find_script(void) {
    static const char *const places[] = {"../share/quern/peers.py", "../../bench/peers.py"};
    char program[4096] = "";
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return nullptr;
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = cli_path(program, places[i]);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return nullptr;
}

/** Starts Python with an argument vector, and waits. */
static qn_status run_script(const char *script, const char *library) {
    char number[4][24];
    snprintf(number[0], sizeof *number, "%" PRId64, n);
    snprintf(number[1], sizeof *number, "%" PRId64, k);
    snprintf(number[2], sizeof *number, "%" PRId64, runs);
    const char *args[] = {python,
                          script,
                          "--library",
                          library,
                          "--m",
                          m_list,
                          "--n",
                          number[0],
                          "--k",
                          number[1],
                          "--runs",
                          number[2],
                          as_json ? "--json" : nullptr,
                          "-",
                          nullptr};
    pid_t child;
    int failed = posix_spawnp(&child, python, nullptr, nullptr, (char *const *)args, environ),
        status;
    if (failed)
        return cli_fail(QN_E_NOT_FOUND, "option --python: %s: %s", python, strerror(failed));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return cli_fail(QN_E_IO, "%s: %s", script, strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? QN_OK
               : cli_fail(QN_E_IO, "%s: ended with status %d; does %s have %s and numpy?", script,
                          WIFEXITED(status) ? WEXITSTATUS(status) : -1, python, peer);
}

static qn_status run_peer(void) {
    if (spec && strcmp(spec, "cpu") != 0)
        return cli_fail(QN_E_INVALID, "option --peer: found device %s, accepted: cpu", spec);
    if (plot_path)
        return cli_fail(QN_E_INVALID, "option --svg does not go with --peer");
    char *script = find_script();
    Dl_info library;
    if (!script || !dladdr((void *)qn_version, &library)) {
        free(script);
        return cli_fail(QN_E_NOT_FOUND, "option --peer: no peers.py beside the installed command");
    }
    fflush(stdout);
    qn_status st = run_script(script, library.dli_fname);
    free(script);
    return st;
}

// ---- the command

/** Numbers with commas between. */
static qn_status parse_numbers(const char *option, const char *list, int64_t *to, int *count) {
    const char *at = list;
    for (;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
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

/** Whether one of the command's words, if there are any, names the op or its family. */
static bool is_wanted(int count, char **words, const char *op, const char *family) {
    for (int i = 0; i < count; i++)
        if (strcmp(words[i], op) == 0 || strcmp(words[i], family) == 0)
            return true;
    return count == 0;
}

static qn_status check_word(const char *word) {
    char accepted[512] = "quantize, gemm, attention";
    if (strcmp(word, "quantize") == 0 || strcmp(word, "gemm") == 0 ||
        strcmp(word, "attention") == 0)
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
    return cli_fail(QN_E_INVALID, "unknown op '%s' (accepted: %s)", word, accepted);
}

static int count_problems(const job *j, int count, char **words) {
    int problems = 0;
    for (int i = 0; i < rows_count(); i++)
        problems += is_wanted(count, words, rows_name(i), rows_family(i));
    problems += is_wanted(count, words, "quantize", "") ? 2 : 0;
    problems += is_wanted(count, words, "attention", "") ? 2 * j->num_seq + 1 : 0;
    return problems + (is_wanted(count, words, "gemm", "") ? j->num_m : 0);
}

/** Takes the last result. Where it failed because the device has no kernel for the op, and nobody asked for the op, it
 *  is left out, and the bench goes on. */
static qn_status take(job *j, const char *op, bool is_named, qn_status st) {
    if (st != QN_E_UNSUPPORTED || is_named || j->num_left_out == MAX_LEFT_OUT)
        return st;
    left_out *to = &j->left_out[j->num_left_out++];
    j->count--;
    to->op = op;
    snprintf(to->why, sizeof to->why, "%s", qn_last_error());
    return QN_OK;
}

static qn_status measure_quantizes(job *j, bool is_named) {
    const int before = j->num_left_out;
    qn_status st = QN_OK;
    for (int64_t rows = 1; st == QN_OK && j->num_left_out == before && rows <= 128; rows += 127)
        st = take(
            j, "quantize", is_named,
            measure_quantize(&j->results[j->count++], &j->device, 8192, 4096, rows, (int)runs));
    return st;
}

static qn_status measure_gemms(job *j, bool is_named) {
    const int before = j->num_left_out;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && j->num_left_out == before && i < j->num_m; i++)
        st = take(j, "gemm", is_named,
                  measure_gemm(&j->results[j->count++], &j->device, &j->limits, j->m[i], n, k,
                               (int)runs));
    return st;
}

/** Prompts of 24 heads, whole and causal, as in image and language models; then a token each for eight caches. */
static qn_status measure_attentions(job *j, bool is_named) {
    const int before = j->num_left_out;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && j->num_left_out == before && i <= 2 * j->num_seq; i++) {
        const int64_t length = i < 2 * j->num_seq ? j->seq[i / 2] : 4096;
        const attention_shape prompt = {1, 24, 24, 128, length, length, i % 2},
                              decode = {8, 32, 8, 128, 1, length, false};
        st = take(j, "attention", is_named,
                  measure_attention(&j->results[j->count++], &j->device, &j->limits,
                                    i < 2 * j->num_seq ? &prompt : &decode, (int)runs));
    }
    return st;
}

static qn_status measure_all(job *j, int count, char **words) {
    qn_status st = QN_OK;
    const int problems = count_problems(j, count, words);
    if (problems > MAX_RESULTS)
        return cli_fail(QN_E_INVALID, "%d problems; at most %d are accepted", problems,
                        MAX_RESULTS);
    cli_progress_begin("measuring", problems * (runs + 2));
    for (int i = 0; st == QN_OK && i < rows_count(); i++)
        if (is_wanted(count, words, rows_name(i), rows_family(i)))
            st = take(j, rows_name(i), count > 0,
                      measure_rows(&j->results[j->count++], &j->device, i, shape, (int)runs));
    if (st == QN_OK && is_wanted(count, words, "quantize", ""))
        st = measure_quantizes(j, count > 0);
    if (st == QN_OK && is_wanted(count, words, "gemm", ""))
        st = measure_gemms(j, count > 0);
    if (st == QN_OK && is_wanted(count, words, "attention", ""))
        st = measure_attentions(j, count > 0);
    cli_progress_end();
    return st == QN_OK ? st : cli_fail_lib(st, j->results[j->count - 1].problem);
}

static qn_status measure_device(job *j, int count, char **ops) {
    qn_status st = QN_OK;
    for (int i = 0; i < count; i++)
        CLI_TRY(check_word(ops[i]));
    CLI_TRY(cli_output_check(plot_path, force));
    CLI_TRY(cli_device_open(&j->device, spec));
    if (!j->device.info.has_clock)
        CLI_TRY(cli_fail(QN_E_UNSUPPORTED, "device %s has no clock, so there is nothing to measure",
                         j->device.info.spec));
    cli_limits_get(&j->limits, &j->device.info);
    CLI_TRY(measure_all(j, count, ops));
    if (plot_path)
        CLI_TRY(write_plot(j));
    if (as_json) {
        CLI_TRY(cli_print_json(report_json(j)));
    } else {
        print_table(j);
        CLI_TRY(cli_flush());
    }
out:
    cli_device_close(&j->device);
    return st;
}

static int run(int count, char **arguments) {
    static job j;
    qn_status st = parse_numbers("--m", m_list, j.m, &j.num_m);
    if (st == QN_OK)
        st = parse_numbers("--seq", seq_list, j.seq, &j.num_seq);
    if (st == QN_OK && peer && (count > 1 || (count && strcmp(arguments[0], "gemm") != 0)))
        st = cli_fail(QN_E_INVALID, "option --peer: found op '%s', accepted: gemm",
                      arguments[count - 1]);
    if (st == QN_OK)
        st = peer ? run_peer() : measure_device(&j, count, arguments);
    return cli_finish("bench", st);
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "[OP...]",
    .summary = "Measure ops beside a copy, limits and peers",
    .details =
        "OP is attention, gemm, quantize, a family of row ops (norm, activation, rope) or one row "
        "op "
        "by name;\n"
        "without any, all are measured, save those that the device has no kernel for, which\n"
        "are named below the table. Row ops take bf16 rows of memory; they and\n"
        "quantize, which turns 64 MiB of bf16 into FP8, take turns with copies that move\n"
        "as many bytes. gemm multiplies FP8 activations with packed FP8 weights, going\n"
        "round eight matrices so that none stays in a cache. attention is of bf16: prompts of\n"
        "24 heads of 128, whole and causal, and a token for each of eight caches of 4096 keys\n"
        "(32 heads, 8 of them in the cache); its GB/s are of q, k, v and o. 'of the limit' is\n"
        "the speed beside the copy's, or beside what arithmetic or memory would allow:\n"
        "measured on the CPU by loops that do nothing else, from data sheets for GPUs.\n"
        "The copy is the library's own: on the CPU on all threads, past the caches.\n"
        "QUERN_NUM_THREADS sets the CPU's threads.",
    .options = options,
    .max_arguments = 64,
    .run = run};
