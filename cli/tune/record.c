// SPDX-License-Identifier: Apache-2.0
// The file of quern tune: a table of measured choices, whose comments keep all that was measured,
// so that a second run of the command goes on where the first one ended.
#include "../file.h"
#include "tune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- writing

static void put_kernel(FILE *to, const tune_kernel *k) {
    fprintf(to, "# %s", k->name);
    if (*k->refused)
        fprintf(to, " refused, bits %" PRIu32 ": %s\n", k->bits, k->refused);
    else
        fprintf(to,
                " %" PRId64 ".%03" PRId64 " us +- %" PRId64 ".%03" PRId64 ", bits %" PRIu32 "\n",
                k->ns / 1000, k->ns % 1000, k->noise_ns / 1000, k->noise_ns % 1000, k->bits);
}

/** Writes the words of a problem's batch, perhaps with a range of tokens: "m=17..64" for "m=64". */
static void put_batch(FILE *to, const tune_file *f, const tune_problems *p, int problem) {
    char words[sizeof f->records->batch + 1], key[16];
    const char *name;
    const int64_t least = tune_least_tokens(p, problem, &name);
    snprintf(words, sizeof words, " %s", f->records[problem].batch);
    snprintf(key, sizeof key, " %s=", name);
    const char *at = least ? strstr(words, key) : nullptr;
    if (at)
        fprintf(to, "%.*s%s%" PRId64 "..%s", (int)(at - words), words, key, least,
                at + strlen(key));
    else
        fputs(words, to);
}

/** Writes the lines that end with a problem and choose another kernel than costs do: that of its
 *  batch, and that of all batches behind the last of them. */
static void put_choice(FILE *to, const tune_file *f, const tune_problems *p, const char *arch,
                       int problem) {
    const tune_record *r = &f->records[problem];
    const char *all = tune_choose_for_all(f, p, problem);
    bool for_all;
    const int chosen = tune_choose(f, p, problem, &for_all);
    const tune_kernel *usual = &r->kernels[0], *k = &r->kernels[chosen];
    if (!for_all && chosen && tune_is_last(f, problem, false)) {
        fprintf(to, "%s %s %s", r->op, arch, r->problem);
        put_batch(to, f, p, problem);
        fprintf(
            to, " -> %s # %" PRId64 ".%03" PRId64 " us, by costs %s %" PRId64 ".%03" PRId64 " us\n",
            k->name, k->ns / 1000, k->ns % 1000, usual->name, usual->ns / 1000, usual->ns % 1000);
    }
    if (all && tune_is_last(f, problem, true))
        fprintf(to, "%s %s %s -> %s # faster than the choice by costs at every size above\n", r->op,
                arch, r->problem, all);
}

static void put_record(FILE *to, const tune_file *f, const tune_problems *p, const char *arch,
                       int problem) {
    const tune_record *r = &f->records[problem];
    fprintf(to, "#\n# problem %d of %d: %s; %s\n", problem + 1, p->count, p->list[problem].text,
            r->date);
    if (!*r->op) {
        fprintf(to, "# cannot run: %s\n", r->why);
        return;
    }
    fprintf(to, "# is %s %s | %s\n", r->op, r->problem, r->batch);
    for (int i = 0; i < r->num_kernels; i++)
        put_kernel(to, &r->kernels[i]);
    put_choice(to, f, p, arch, problem);
}

char *tune_file_text(const tune_file *f, const tune_problems *p, const char *arch) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *to = cli_stream(&text, &bytes);
    fprintf(to,
            "quern tune 1\n# quern tune wrote this table and goes on with it (docs/tune.md).\n"
            "# command: %s\n# device: %s\n# library: %s\n",
            f->command, f->device, f->library);
    for (int i = 0; i < f->count; i++)
        put_record(to, f, p, arch, i);
    fclose(to);
    return text;
}

// ---- reading

/** A walk through the lines of a file that tune_file_text may have written. */
typedef struct reader {
    const char *path;
    char *at;     // the next line
    char *line;   // this line
    int number;   // of this line
    bool is_over; // there is no next line
} reader;

static void next_line(reader *r) {
    char *end = strchr(r->at, '\n');
    r->number++;
    r->line = r->at;
    r->is_over = !end;
    if (end) {
        *end = '\0';
        r->at = end + 1;
    }
}

static qn_status fail_line(const reader *r) {
    return cli_fail(QN_E_INVALID,
                    "%s:%d: found '%.60s', which quern tune did not write (accepted: another "
                    "--output, or --force, which replaces the file)",
                    r->path, r->number, r->line);
}

/** Checks the line "# what: text", whose text must be this run's. */
static qn_status check_same(reader *r, const char *what, const char *wanted) {
    next_line(r);
    const size_t n = strlen(what);
    if (strncmp(r->line, "# ", 2) != 0 || strncmp(r->line + 2, what, n) != 0 ||
        strncmp(r->line + 2 + n, ": ", 2) != 0)
        return fail_line(r);
    if (strcmp(r->line + n + 4, wanted) == 0)
        return QN_OK;
    return cli_fail(QN_E_INVALID,
                    "%s:%d: its %s is '%s', this run's is '%s' (accepted: another --output, or "
                    "--force, which replaces the file)",
                    r->path, r->number, what, r->line + n + 4, wanted);
}

/** Moves *at behind a text that must come next, and returns whether it did. */
static bool skip(char **at, const char *text) {
    const size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

/** Copies what comes before `end`, and moves *at behind it. */
static bool take(char **at, const char *end, char *to, size_t room) {
    char *found = *end ? strstr(*at, end) : *at + strlen(*at);
    if (!found || (size_t)(found - *at) >= room)
        return false;
    memcpy(to, *at, (size_t)(found - *at));
    to[found - *at] = '\0';
    *at = found + strlen(end);
    return true;
}

/** Reads "12.345", microseconds, as nanoseconds. */
static bool take_us(char **at, const char *end, int64_t *ns) {
    char text[32], *dot;
    if (!take(at, end, text, sizeof text) || !(dot = strchr(text, '.')) || strlen(dot) != 4)
        return false;
    *ns = strtoll(text, nullptr, 10) * 1000 + strtoll(dot + 1, nullptr, 10);
    return true;
}

static bool read_kernel(char *line, tune_kernel *k) {
    char *at = line, bits[16];
    *k = (tune_kernel){0};
    if (!skip(&at, "# ") || !take(&at, " ", k->name, sizeof k->name))
        return false;
    const bool is_refused = skip(&at, "refused, bits ");
    if (is_refused
            ? !take(&at, ": ", bits, sizeof bits) || !take(&at, "", k->refused, sizeof k->refused)
            : !take_us(&at, " us +- ", &k->ns) || !take_us(&at, ", bits ", &k->noise_ns) ||
                  !take(&at, "", bits, sizeof bits))
        return false;
    k->bits = (uint32_t)strtoul(bits, nullptr, 10);
    return true;
}

/** Reads the record whose first line, of a problem, is r's. Stops at a line that is not its. */
static bool read_record(reader *r, const tune_problems *p, int problem, tune_record *out) {
    char head[160], *at = r->line;
    snprintf(head, sizeof head, "# problem %d of %d: %s; ", problem + 1, p->count,
             p->list[problem].text);
    if (!skip(&at, head) || !take(&at, "", out->date, sizeof out->date))
        return false;
    next_line(r);
    at = r->line;
    if (skip(&at, "# cannot run: ")) {
        const bool is_good = take(&at, "", out->why, sizeof out->why);
        next_line(r);
        return is_good;
    }
    if (!skip(&at, "# is ") || !take(&at, " ", out->op, sizeof out->op) ||
        !take(&at, " | ", out->problem, sizeof out->problem) ||
        !take(&at, "", out->batch, sizeof out->batch) ||
        strcmp(out->op, tune_op_names[p->list[problem].op]) != 0)
        return false;
    for (next_line(r); !r->is_over && strncmp(r->line, "# ", 2) == 0; next_line(r))
        if (out->num_kernels == TUNE_MAX_KERNELS ||
            !read_kernel(r->line, &out->kernels[out->num_kernels++]))
            return false;
    while (!r->is_over && *r->line && *r->line != '#') // choices, which follow from the figures
        next_line(r);
    return out->num_kernels > 0;
}

static qn_status read_records(tune_file *f, reader *r, const tune_problems *p) {
    for (next_line(r); !r->is_over; f->count++) {
        tune_record *to = &f->records[f->count];
        if (f->count == p->count || strcmp(r->line, "#") != 0)
            return fail_line(r);
        next_line(r);
        *to = (tune_record){0};
        if (!read_record(r, p, f->count, to))
            return fail_line(r);
    }
    return *r->line ? fail_line(r) : QN_OK;
}

static qn_status read_text(tune_file *f, char *text, const tune_problems *p) {
    reader r = {.path = f->path, .at = text};
    for (int i = 0; i < 2; i++) {
        next_line(&r);
        if (strncmp(r.line, i ? "# quern tune wrote" : "quern tune 1", i ? 18 : 13) != 0)
            return fail_line(&r);
    }
    CLI_TRY(check_same(&r, "command", f->command));
    CLI_TRY(check_same(&r, "device", f->device));
    CLI_TRY(check_same(&r, "library", f->library));
    return read_records(f, &r, p);
}

/** Reads the whole file; *text becomes null if there is none. */
static qn_status read_all(const char *path, char **text) {
    constexpr size_t most = 1 << 24; // what the library takes
    FILE *file = cli_is_folder(path) ? nullptr : fopen(path, "re");
    *text = nullptr;
    if (cli_is_folder(path))
        return cli_fail(QN_E_INVALID, "%s: is a folder, a file is to be written there", path);
    if (!file)
        return errno == ENOENT ? QN_OK : cli_fail_path(path, "cannot be read");
    *text = cli_alloc(most + 1);
    const size_t bytes = fread(*text, 1, most + 1, file);
    const bool is_bad = ferror(file) || bytes > most;
    fclose(file);
    if (is_bad || strlen(*text) != bytes) // a byte of zero ends the text early
        return cli_fail(QN_E_INVALID, "%s: is no table of quern tune", path);
    return QN_OK;
}

static void note_fault(void *context, const qn_tune_entry *e) {
    if (e->fault)
        *(bool *)context = true;
}

/** Checks that the text follows from its own figures, and that calls could go by it. */
static qn_status check_text(const tune_file *f, const char *text, const char *again) {
    bool has_fault = false;
    const qn_status st = qn_tune_list(f->path, note_fault, &has_fault);
    if (st != QN_OK)
        return cli_fail_lib(st, f->path);
    if (!has_fault && strcmp(text, again) == 0)
        return QN_OK;
    return cli_fail(QN_E_INVALID,
                    "%s: was changed after quern tune wrote it (accepted: another --output, or "
                    "--force, which replaces the file)",
                    f->path);
}

qn_status tune_file_read(tune_file *f, const tune_problems *p, const char *arch) {
    char *text, *copy = nullptr, *again = nullptr;
    qn_status st = read_all(f->path, &text);
    if (st != QN_OK || !text)
        goto out;
    copy = cli_text("%s", text);
    CLI_TRY_OUT(read_text(f, copy, p));
    again = tune_file_text(f, p, arch);
    st = check_text(f, text, again);
out:
    free(text);
    free(copy);
    free(again);
    return st;
}

void tune_file_free(tune_file *f) {
    free(f->path);
    free(f->command);
    free(f->device);
    free(f->library);
    free(f->records);
    *f = (tune_file){0};
}
