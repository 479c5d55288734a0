// SPDX-License-Identifier: Apache-2.0
// quern bench: how fast ops are on a device, beside a copy of as many bytes and beside the device's limits;
// with --peer, bench/peers.py times the library beside another in one process.
#include "file.h"
#include "measure.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *spec, *peer, *python = "python3", *plot_path, *m_list = "1,16,64,512";
static int64_t runs = 20, n = 4096, k = 7168;
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
    {.name = "--plot",
     .value = "FILE.svg",
     .kind = CLI_TEXT,
     .to = &plot_path,
     .help = "draw the figures beside their limits"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace FILE.svg if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {0}};

enum { MAX_RESULTS = 64 };

typedef struct job {
    cli_device device;
    cli_limits limits;
    measurement results[MAX_RESULTS];
    int count;
    int64_t m[MAX_RESULTS - 2];
    int num_m;
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
    return r->copy_ns ? "memcpy" : r->bound ? r->bound : "-";
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
    return json_pack("{s:o, s:I, s:{s:f, s:f, s:s}, s:o}", "device",
                     cli_device_json(&j->device.info), "runs", (json_int_t)runs, "limits",
                     "gflop_per_s", j->limits.flops * 1e-9, "read_gb_per_s",
                     j->limits.read_bytes * 1e-9, "source", j->limits.source, "results", list);
}

// ---- plot

/** One line a measurement: a bar as long as its share of the limit, which is the full width. */
static void draw_bar(FILE *to, const measurement *r, int top) {
    constexpr double full = 360;
    double length = full * (share(r) < 1.1 ? share(r) : 1.1);
    fprintf(to, "<text x='330' y='%d' text-anchor='end'>%s ", top + 14, r->op);
    cli_write_xml(to, r->problem);
    fprintf(to, "</text>\n<rect x='340' y='%d' width='%.1f' height='18' fill='#4477aa'/>\n", top,
            length);
    fprintf(to, "<text x='%.1f' y='%d'>", 346 + (length > full ? length : full), top + 14);
    if (r->flops > 0)
        fprintf(to, "%.1f GFLOP/s", gigaflops(r));
    else
        fprintf(to, "%.1f GB/s", gigabytes(r));
    fprintf(to, ", %.0f %% (%s)</text>\n", 100 * share(r), share_of(r));
}

static char *draw(const job *j) {
    char *text = nullptr;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        cli_out_of_memory();
    int height = 60 + 28 * j->count;
    fprintf(
        to,
        "<svg xmlns='http://www.w3.org/2000/svg' width='1000' height='%d' font-family='sans-serif' "
        "font-size='13'>\n<rect width='100%%' height='100%%' fill='white'/>\n<text x='340' y='22'>",
        height);
    cli_write_xml(to, j->device.info.name);
    fprintf(to, ", %s times: share of the limit (line: 100 %%)</text>\n",
            cli_times(&j->device.info));
    for (int i = 0; i < j->count; i++)
        draw_bar(to, &j->results[i], 40 + 28 * i);
    fprintf(to, "<line x1='700' x2='700' y1='32' y2='%d' stroke='#bb5566'/>\n</svg>\n",
            height - 12);
    if (fclose(to) != 0)
        cli_out_of_memory();
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
        return cli_fail(QN_E_INVALID, "option --plot does not go with --peer");
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

static qn_status parse_m(job *j) {
    const char *at = m_list;
    for (;;) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno || value < 1 || value > 1 << 20 || (*end && *end != ','))
            return cli_fail(QN_E_INVALID,
                            "option --m: found '%s', accepted: numbers from 1 to %d, as 1,16",
                            m_list, 1 << 20);
        if (j->num_m == MAX_RESULTS - 2)
            return cli_fail(QN_E_INVALID, "option --m: more than %d numbers", MAX_RESULTS - 2);
        j->m[j->num_m++] = value;
        if (!*end)
            return QN_OK;
        at = end + 1;
    }
}

static qn_status wants(int count, char **ops, bool *quantize, bool *gemm) {
    *quantize = *gemm = count == 0;
    for (int i = 0; i < count; i++)
        if (strcmp(ops[i], "quantize") == 0)
            *quantize = true;
        else if (strcmp(ops[i], "gemm") == 0)
            *gemm = true;
        else
            return cli_fail(QN_E_INVALID, "unknown op '%s' (accepted: quantize, gemm)", ops[i]);
    return QN_OK;
}

static qn_status measure_all(job *j, bool quantize, bool gemm) {
    qn_status st = QN_OK;
    int problems = (quantize ? 2 : 0) + (gemm ? j->num_m : 0);
    cli_progress_begin("measuring", problems * (runs + 2));
    for (int64_t rows = 1; quantize && st == QN_OK && rows <= 128; rows += 127)
        st = measure_quantize(&j->results[j->count++], &j->device, 8192, 4096, rows, (int)runs);
    for (int i = 0; gemm && st == QN_OK && i < j->num_m; i++)
        st =
            measure_gemm(&j->results[j->count++], &j->device, &j->limits, j->m[i], n, k, (int)runs);
    cli_progress_end();
    return st == QN_OK ? st : cli_fail_lib(st, j->results[j->count - 1].problem);
}

static qn_status measure_device(job *j, int count, char **ops) {
    bool quantize, gemm;
    qn_status st;
    CLI_TRY(wants(count, ops, &quantize, &gemm));
    CLI_TRY(cli_output_check(plot_path, force));
    CLI_TRY(cli_device_open(&j->device, spec));
    if (!j->device.info.has_clock)
        CLI_TRY(cli_fail(QN_E_UNSUPPORTED, "device %s has no clock, so there is nothing to measure",
                         j->device.info.spec));
    cli_limits_get(&j->limits, &j->device.info);
    CLI_TRY(measure_all(j, quantize, gemm));
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
    qn_status st = parse_m(&j);
    if (st == QN_OK && peer && (count > 1 || (count && strcmp(arguments[0], "gemm") != 0)))
        st = cli_fail(QN_E_INVALID, "option --peer: found op '%s', accepted: gemm",
                      arguments[count - 1]);
    if (st == QN_OK)
        st = peer ? run_peer() : measure_device(&j, count, arguments);
    return cli_finish("bench", st);
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "[quantize] [gemm]",
    .summary = "Measure ops beside memcpy, limits and peers",
    .details = "quantize turns 64 MiB of bf16 into FP8, its runs alternating with copies that\n"
               "move as many bytes; gemm multiplies FP8 activations with packed FP8 weights,\n"
               "going round eight matrices so that none stays in a cache. 'of the limit' is\n"
               "the speed beside the copy's, or beside what arithmetic or memory would allow:\n"
               "measured on the CPU by loops that do nothing else, from data sheets for GPUs.\n"
               "QUERN_NUM_THREADS sets the CPU's threads.",
    .options = options,
    .max_arguments = 2,
    .run = run};
