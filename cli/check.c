// SPDX-License-Identifier: Apache-2.0
// quern check: shows which kernels run on a device, why others do not, and whether each agrees with
// its op's definition. --report keeps all of this in a file to send.
#include "file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const char *spec, *report_path;
static int64_t seed = 1;
static bool as_json, quick, force, verbose;

static const cli_option options[] = {
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_TEXT,
     .to = &spec,
     .help = "cpu, hip:0, cuda:0, sim:gfx942 ...: see quern devices (default: auto)"},
    {.name = "--quick", .kind = CLI_FLAG, .to = &quick, .help = "a few small problems of each op"},
    {.name = "--seed",
     .value = "N",
     .kind = CLI_INT,
     .to = &seed,
     .min = 0,
     .max = INT64_MAX,
     .help = "seed of the random inputs (default: 1)"},
    {.name = "--report",
     .value = "FILE.json",
     .kind = CLI_TEXT,
     .to = &report_path,
     .help = "write device, host, versions, and each result with its time"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace the report if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print the report as JSON"},
    {.name = "--verbose",
     .kind = CLI_FLAG,
     .to = &verbose,
     .help = "-v: on a simulated device, from where instructions are known"},
    {0}};

/** What all problems together tell of one kernel. */
typedef struct kernel_row {
    char *op, *kernel, *reason; // reason: of the last problem that it could not run
    char *evidence;             // null: nothing is known
    int64_t ran, passed, chosen, refused;
    double worst; // error over tolerance
    int64_t fastest_ns;
} kernel_row;

typedef struct summary {
    json_t *results;
    kernel_row *rows;
    int count;
    int64_t failed;
    char first_failure[512];
    char *error; // what ended the checks early; null: they ran to the end
} summary;

static kernel_row *row_of(summary *s, const qn_check_result *r) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->rows[i].kernel, r->kernel) == 0)
            return &s->rows[i];
    s->rows = reallocarray(s->rows, (size_t)s->count + 1, sizeof *s->rows);
    if (!s->rows)
        cli_out_of_memory();
    s->rows[s->count] = (kernel_row){
        .op = cli_text("%s", r->op), .kernel = cli_text("%s", r->kernel), .fastest_ns = -1};
    return &s->rows[s->count++];
}

static json_t *result_json(const qn_check_result *r) {
    return cli_json_pack(
        "{s:s, s:s, s:s, s:s?, s:b, s:b, s:b, s:o, s:I, s:s, s:s*}", "op", r->op, "kernel",
        r->kernel, "problem", r->problem, "reason", r->reason, "ran", !r->reason, "passed",
        r->passed, "is_choice", r->is_choice, "error_over_tolerance",
        r->reason ? json_null() : cli_json_number(r->error), "time_ns", (json_int_t)r->time_ns,
        "detail", r->detail ? r->detail : "", "evidence", r->evidence);
}

/** Returns how weak a text of evidence is, from 0 for the strongest kind on; -1 if there is
 *  none. */
static int weakness(const char *evidence) {
    static const char *const kinds[] = {"measured", "ISA text", "LLVM", "inferred"};
    for (int i = 0; evidence && i < 4; i++)
        if (strncmp(evidence, kinds[i], strlen(kinds[i])) == 0)
            return i;
    return -1;
}

static void note_run(summary *s, kernel_row *row, const qn_check_result *r) {
    row->ran++;
    if (weakness(r->evidence) > weakness(row->evidence)) {
        free(row->evidence);
        row->evidence = cli_text("%s", r->evidence);
    }
    row->passed += r->passed;
    row->chosen += r->is_choice;
    const double error = isnan(r->error) ? INFINITY : r->error;
    if (error > row->worst)
        row->worst = error;
    if (r->time_ns >= 0 && (row->fastest_ns < 0 || r->time_ns < row->fastest_ns))
        row->fastest_ns = r->time_ns;
    if (!r->passed && !s->failed++)
        snprintf(s->first_failure, sizeof s->first_failure, "%s on %s: %s", r->kernel, r->problem,
                 r->detail);
}

static void note(void *context, const qn_check_result *r) {
    summary *s = context;
    cli_json_add(s->results, result_json(r));
    cli_progress_add(0); // an op takes long, so this keeps the bar's clock going
    kernel_row *row = row_of(s, r);
    if (!r->reason) {
        note_run(s, row, r);
        return;
    }
    row->refused++;
    free(row->reason);
    row->reason = cli_text("%s", r->reason);
}

// ---- what a report says of the machine

/** Reads the value of the first line "key : value" or "key=value" of a file; "" if there is
 *  none. */
static void read_key(const char *path, const char *key, char *value, size_t room) {
    char line[512];
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOMEM)
        cli_out_of_memory();
    *value = '\0';
    while (file && fgets(line, sizeof line, file)) {
        const size_t length = strlen(key);
        if (strncmp(line, key, length) != 0)
            continue;
        char *from = line + length + strspn(line + length, " \t:=\"");
        from[strcspn(from, "\"\n")] = '\0';
        snprintf(value, room, "%s", from);
        break;
    }
    if (file)
        fclose(file);
}

static json_t *host_json(void) {
    struct utsname u;
    char cpu[256], system[256];
    uname(&u);
    read_key("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    read_key("/etc/os-release", "PRETTY_NAME", system, sizeof system);
    const int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return cli_json_pack("{s:o, s:s, s:s, s:o, s:I, s:I}", "system", cli_json_text(system),
                         "kernel", u.release, "machine", u.machine, "cpu", cli_json_text(cpu),
                         "cpus", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                         (json_int_t)memory);
}

static json_t *report_json(const summary *s, const cli_device *device) {
    char date[32];
    time_t now = time(nullptr);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int64_t ran = 0;
    for (int i = 0; i < s->count; i++)
        ran += s->rows[i].ran;
    return cli_json_pack(
        "{s:{s:s, s:s, s:s}, s:s, s:o, s:o, s:I, s:b, s:o, s:O, s:{s:I, s:I}}", "versions", "quern",
        qn_version(), "headers", QN_VERSION, "compiler", __VERSION__, "date", date, "host",
        host_json(), "device", cli_device_json(&device->info), "seed", (json_int_t)seed, "quick",
        quick, "error", s->error ? cli_json_text(s->error) : json_null(), "results", s->results,
        "summary", "ran", (json_int_t)ran, "failed", (json_int_t)s->failed);
}

static qn_status write_report(const summary *s, const cli_device *device) {
    json_t *report = report_json(s, device);
    char *text = cli_json_dump(report, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(report);
    const qn_status st = cli_write_text(report_path, text, force);
    free(text);
    return st;
}

// ---- output

static void print_table(const summary *s, const cli_device *device) {
    const bool is_modelled = device->info.is_modelled && device->info.has_clock;
    char time[32];
    printf("%s: %s, %s\n", device->info.spec, device->info.name, device->info.driver);
    cli_table table;
    cli_table_init(&table, 6,
                   (const char *const[]){"kernel", "agrees", "chosen", "error/tol",
                                         is_modelled ? "modelled" : "fastest", "why not"});
    for (int i = 0; i < s->count; i++) {
        const kernel_row *r = &s->rows[i];
        cli_table_add(&table, "%s", r->kernel);
        cli_table_add(&table, "%" PRId64 "/%" PRId64, r->passed, r->ran);
        cli_table_add(&table, "%" PRId64, r->chosen);
        cli_table_add(&table, r->ran ? "%.3f" : "-", r->worst);
        cli_table_add(&table, "%s", cli_time_text(r->fastest_ns, time, sizeof time));
        if (r->refused)
            cli_table_add(&table, "%" PRId64 " problems: %s", r->refused, r->reason);
        else
            cli_table_add(&table, "%s", "");
    }
    cli_table_print(&table, stdout);
}

/** Prints the least known instructions of each kernel, and from where they are known. */
static void print_evidence(const summary *s) {
    bool any = false;
    for (int i = 0; i < s->count; i++) {
        if (!s->rows[i].evidence)
            continue;
        if (!any)
            printf("\nHow the simulated GPU knows the instructions that it knows least:\n");
        any = true;
        printf("  %s: %s\n", s->rows[i].kernel, s->rows[i].evidence);
    }
}

static qn_status check_ops(int count, char **ops) {
    for (int i = 0; i < count; i++) {
        char known[1024] = "", guess[CLI_GUESS_ROOM];
        bool found = false;
        for (const char *const *op = qn_op_names(); *op; op++) {
            const size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", *op);
            found = found || strcmp(*op, ops[i]) == 0;
        }
        if (!found)
            return cli_fail(QN_E_INVALID, "unknown op '%s' (accepted: %s)%s", ops[i], known,
                            cli_guess(ops[i], strlen(ops[i]), known, guess, sizeof guess));
    }
    return QN_OK;
}

/** Checks one op. Returns false if the device failed: nothing more can be learnt from it. */
static bool run_op(summary *s, cli_device *device, const char *op) {
    qn_check_options check = {.struct_size = sizeof check,
                              .seed = (uint64_t)seed,
                              .quick = quick,
                              .timed_runs = report_path || as_json ? 3 : 1,
                              .evidence = verbose};
    const qn_status st = qn_check(device->device, op, &check, note, s);
    if (st == QN_OK || st == QN_E_MISMATCH)
        return true;
    s->error = cli_text("%s", qn_last_error());
    return false;
}

/** Checks the named ops, or all. A disagreement is noted, and the next op is checked; a device that
 *  fails ends the checks, and the results until then are shown. */
static void run_checks(summary *s, cli_device *device, int count, char **named) {
    const char *const *ops = count ? (const char *const *)named : qn_op_names();
    if (ops == qn_op_names())
        for (count = 0; ops[count];)
            count++;
    cli_progress_begin("checking", count);
    for (int i = 0; i < count && run_op(s, device, ops[i]); i++)
        cli_progress_add(1);
    cli_progress_end();
}

static qn_status show(const summary *s, const cli_device *device) {
    qn_status st = QN_OK;
    if (as_json)
        st = cli_print_json(report_json(s, device));
    else
        print_table(s, device);
    if (!as_json && verbose)
        print_evidence(s);
    if (st == QN_OK && report_path)
        st = write_report(s, device);
    if (st == QN_OK)
        st = cli_flush();
    if (st == QN_OK && s->failed)
        st = cli_fail(QN_E_MISMATCH, "%" PRId64 " runs disagree with the definition; the first: %s",
                      s->failed, s->first_failure);
    if (st == QN_OK && s->error)
        st = cli_fail(QN_E_MISMATCH, "ended early: %s", s->error);
    return st;
}

static int run(int count, char **arguments) {
    summary s = {.results = json_array()};
    cli_device device = {0};
    qn_status st;
    CLI_TRY_OUT(check_ops(count, arguments));
    CLI_TRY_OUT(cli_output_check(report_path, force));
    CLI_TRY_OUT(cli_device_open(&device, spec));
    run_checks(&s, &device, count, arguments);
    CLI_TRY_OUT(show(&s, &device));
out:
    cli_device_close(&device);
    json_decref(s.results);
    for (int i = 0; i < s.count; i++) {
        free(s.rows[i].op);
        free(s.rows[i].kernel);
        free(s.rows[i].reason);
        free(s.rows[i].evidence);
    }
    free(s.rows);
    free(s.error);
    return cli_finish("check", st);
}

const cli_command cli_check = {
    .name = "check",
    .arguments = "[OP...]",
    .summary = "Compare every kernel of a device with the ops' definitions",
    .details =
        "Runs every kernel of the named ops (default: all ops) on a fixed list of problems.\n"
        "An op's name is the part of a kernel's name before the dot: attention, gemm, norm\n"
        "and so on. Shows for each kernel on how many problems it agreed, on how many a\n"
        "plain call would choose it, its largest error over the tolerance, its fastest\n"
        "time, and why it could not run the other problems. The exit status is 0 only if\n"
        "all kernels agree. A --report holds what quern devices and this table show,\n"
        "problem by problem, with the host's processor, operating system and kernel, and\n"
        "nothing else. With --verbose, simulated devices say from where they know each kernel's instructions:\n"
        "measured on silicon by a published source, the ISA documents, LLVM's definitions,\n"
        "or inferred; with the names of the instructions known least.",
    .options = options,
    .max_arguments = 64,
    .run = run};
