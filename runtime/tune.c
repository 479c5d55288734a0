// SPDX-License-Identifier: Apache-2.0
// The table of measured choices, quern's own or the one that QUERN_TUNE names: read once, looked up
// by each call, listed.
#include "tune.h"

#include <quern/tune.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] = "quern tune 1";
constexpr int64_t max_file_bytes = INT64_C(1) << 24;

/** The lines of one op and device. */
typedef struct bucket {
    const qni_op *op;
    const char *device;
    int first, last; // indices into the table's lines
} bucket;

typedef struct table {
    qni_tune_line *lines;
    int num_lines;
    bucket *buckets;
    int num_buckets;
} table;

// ---- the file

static const char shipped_name[] = "shipped.tune", shipped[] = {
#embed "shipped.tune"
};

typedef struct file {
    const char *path; // shipped_name: quern's own table
    const char *text;
    char *read; // what the caller frees
    size_t bytes;
} file;

static qn_status fail_file(const char *path, const char *why) {
    return QN_FAIL(QN_E_IO, "tune: %s: %s", path, why);
}

static qn_status read_open_file(int fd, file *f) {
    struct stat s;
    if (fstat(fd, &s) != 0)
        return fail_file(f->path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return fail_file(f->path, "it is not a file");
    if (s.st_size > max_file_bytes)
        return QN_FAIL(QN_E_IO, "tune: %s: it has %ld bytes; accepted: up to %ld", f->path,
                       (long)s.st_size, (long)max_file_bytes);
    f->text = f->read = malloc((size_t)s.st_size + 1);
    if (!f->read)
        return QN_FAIL(QN_E_MEMORY, "tune: out of memory for %s", f->path);
    while (f->bytes < (size_t)s.st_size) {
        const ssize_t n = read(fd, f->read + f->bytes, (size_t)s.st_size - f->bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_file(f->path, strerror(errno));
        if (n == 0)
            break;
        f->bytes += (size_t)n;
    }
    return QN_OK;
}

/** Reads a file. The caller frees f->read, also after an error. O_NONBLOCK is for a pipe, whose
 *  writer the call would wait for. */
static qn_status read_file(file *f) {
    if (f->path == shipped_name) {
        f->text = shipped;
        f->bytes = sizeof shipped;
        return QN_OK;
    }
    const int fd = open(f->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return fail_file(f->path, strerror(errno));
    const qn_status st = read_open_file(fd, f);
    close(fd);
    return st;
}

// ---- its lines

/** A walk through a file. */
typedef struct walk {
    const file *file;
    size_t at;
    int number;      // of the line read last
    qn_tune_fn each; // null: the first fault ends the walk with an error
    void *context;
} walk;

static bool next_line(walk *w, const char **text, size_t *length) {
    if (w->at >= w->file->bytes)
        return false;
    *text = w->file->text + w->at;
    const char *end = memchr(*text, '\n', w->file->bytes - w->at);
    *length = end ? (size_t)(end - *text) : w->file->bytes - w->at;
    w->at += *length + 1;
    w->number++;
    return true;
}

static qn_status report_fault(const walk *w, const char *fault) {
    if (!w->each)
        return QN_FAIL(QN_E_INVALID, "tune: %s:%d: %s", w->file->path, w->number, fault);
    w->each(w->context, &(qn_tune_entry){.line = w->number,
                                         .fault = fault,
                                         .op = "",
                                         .device = "",
                                         .problem = "",
                                         .kernel = "",
                                         .comment = ""});
    return QN_OK;
}

static void report_line(const walk *w, const qni_tune_line *line, const char *comment,
                        size_t comment_length) {
    char problem[1024], text[QNI_TUNE_MAX_BYTES + 1];
    if (!w->each)
        return;
    snprintf(text, sizeof text, "%.*s", (int)comment_length, comment);
    w->each(w->context,
            &(qn_tune_entry){.line = w->number,
                             .op = line->op->name,
                             .device = line->device,
                             .problem = qni_tune_line_text(line, problem, sizeof problem),
                             .kernel = line->variant->name,
                             .comment = text});
}

/** Keeps a line, which some problem must be able to reach. */
static bool add_line(table *t, const qni_tune_line *line, qni_tune_fault *fault) {
    for (int i = 0; i < t->num_lines; i++)
        if (qni_tune_line_covers(&t->lines[i], line)) {
            snprintf(fault->text, sizeof fault->text,
                     "no problem gets here: line %d takes all that this line is for",
                     t->lines[i].number);
            return false;
        }
    t->lines[t->num_lines++] = *line;
    return true;
}

static qn_status take_line(walk *w, table *t, const char *text, size_t length) {
    qni_tune_line line;
    qni_tune_fault fault = {""};
    const char *comment = "";
    qni_tune_kind kind = qni_tune_line_read(text, length, &line, &comment, &fault);
    line.number = w->number;
    if (kind != QNI_TUNE_REFUSED && w->at > w->file->bytes) {
        snprintf(fault.text, sizeof fault.text, "the file ends within this line");
        kind = QNI_TUNE_REFUSED;
    }
    if (kind == QNI_TUNE_CHOICE && !add_line(t, &line, &fault))
        kind = QNI_TUNE_REFUSED;
    if (kind == QNI_TUNE_REFUSED)
        return report_fault(w, fault.text);
    if (kind == QNI_TUNE_CHOICE)
        report_line(w, &line, comment, (size_t)(text + length - comment));
    return QN_OK;
}

static qn_status take_header(walk *w, bool *is_good) {
    const char *text = "";
    size_t length = 0;
    char fault[256];
    next_line(w, &text, &length);
    w->number = 1; // also for an empty file
    *is_good = length == strlen(header) && memcmp(text, header, length) == 0;
    if (*is_good)
        return QN_OK;
    size_t shown = 0;
    while (shown < length && shown < 64 && text[shown] >= ' ' && text[shown] <= '~')
        shown++;
    snprintf(fault, sizeof fault, "the first line is \"%.*s\"; accepted: %s", (int)shown, text,
             header);
    return report_fault(w, fault);
}

static int count_lines(const file *f) {
    int count = 1;
    for (size_t i = 0; i < f->bytes; i++)
        count += f->text[i] == '\n';
    return count;
}

static qn_status walk_lines(walk *w, table *t) {
    const char *text;
    size_t length;
    bool is_good;
    const qn_status st = take_header(w, &is_good);
    if (st != QN_OK || !is_good)
        return st;
    while (next_line(w, &text, &length)) {
        if (t->num_lines == QNI_TUNE_MAX_LINES)
            return report_fault(w, "the table is full; accepted: 10000 lines that choose");
        QN_TRY(take_line(w, t, text, length));
    }
    return QN_OK;
}
static_assert(QNI_TUNE_MAX_LINES == 10000, "as the message says");

/** Reads a table. The caller frees its lines, also after an error. */
static qn_status read_table(const char *path, qn_tune_fn each, void *context, table *t) {
    file f = {.path = path};
    walk w = {.file = &f, .each = each, .context = context};
    qn_status st;
    QN_TRY_OUT(read_file(&f));
    const int lines = count_lines(&f);
    t->lines =
        calloc((size_t)(lines < QNI_TUNE_MAX_LINES ? lines : QNI_TUNE_MAX_LINES), sizeof *t->lines);
    if (t->lines)
        st = walk_lines(&w, t);
    else
        st = QN_FAIL(QN_E_MEMORY, "tune: out of memory for %s", path);
out:
    free(f.read);
    return st;
}

// ---- the table that calls follow

static table used;
static qn_status used_status;
static char used_error[1024];
static pthread_once_t used_once = PTHREAD_ONCE_INIT;

static bucket *find_bucket(const table *t, const qni_op *op, const char *device) {
    for (int i = 0; i < t->num_buckets; i++)
        if (t->buckets[i].op == op && strcmp(t->buckets[i].device, device) == 0)
            return &t->buckets[i];
    return nullptr;
}

/** Links the lines of each op and device. */
static qn_status sort_lines(table *t) {
    t->buckets = calloc((size_t)t->num_lines + 1, sizeof *t->buckets);
    if (!t->buckets)
        return QN_FAIL(QN_E_MEMORY, "tune: out of memory for %d lines", t->num_lines);
    for (int i = 0; i < t->num_lines; i++) {
        const qni_tune_line *line = &t->lines[i];
        bucket *b = find_bucket(t, line->op, line->device);
        if (b)
            t->lines[b->last].next = i;
        else
            *(b = &t->buckets[t->num_buckets++]) = (bucket){line->op, line->device, i, i};
        b->last = i;
    }
    return QN_OK;
}

static void load(void) {
    const char *path = qni_tune_file();
    if (!path)
        return;
    used_status = read_table(path, nullptr, nullptr, &used);
    if (used_status == QN_OK)
        used_status = sort_lines(&used);
    if (used_status == QN_OK)
        return;
    snprintf(used_error, sizeof used_error, "%s", qn_last_error());
    free(used.lines);
    used = (table){};
}

qn_status qni_tune_check(void) {
    pthread_once(&used_once, load);
    return used_status == QN_OK ? QN_OK
                                : QN_FAIL(used_status, "environment: QUERN_TUNE: %s", used_error);
}

const char *qni_tune_file(void) {
    const char *named = qni_env_get()->tune;
    if (!*named)
        return shipped_name;
    return strcmp(named, "none") != 0 ? named : nullptr;
}

static void get_values(const qni_op *op, const qn_device *device, const void *problem,
                       int64_t values[QNI_TUNE_MAX_VALUES]) {
    values[0] = device->info.num_compute_units;
    op->describe(problem, values + 1);
}

static bool matches(const qni_tune_line *line, const int64_t *values) {
    for (int i = 0; i < line->num_ranges; i++) {
        const qni_tune_range *range = &line->ranges[i];
        if (values[range->value] < range->low || values[range->value] > range->high)
            return false;
    }
    return true;
}

qni_tuned qni_tune_find(const qni_op *op, const qn_device *device, const void *problem) {
    int64_t values[QNI_TUNE_MAX_VALUES];
    qni_tuned found = {};
    pthread_once(&used_once, load);
    const bucket *b = find_bucket(&used, op, device->info.arch);
    if (!b)
        return found;
    found.has_lines = true;
    get_values(op, device, problem, values);
    for (int i = b->first; !found.all; i = used.lines[i].next) {
        const qni_tune_line *line = &used.lines[i];
        const bool is_wanted = !line->is_of_batch || !found.batch;
        if (is_wanted && matches(line, values))
            *(line->is_of_batch ? &found.batch : &found.all) = line;
        if (i == b->last)
            break;
    }
    return found;
}

/** Writes the values of the problem's keys to buf, where those of the batch or the others may be
 *  left out. */
static const char *describe(const qni_op *op, const qn_device *device, const void *problem,
                            bool takes_batch, bool takes_rest, char *buf, size_t room) {
    int64_t values[QNI_TUNE_MAX_VALUES];
    qni_tune_line line = {.op = op};
    get_values(op, device, problem, values);
    for (int i = 0; i == 0 || op->keys[i - 1].name; i++) {
        const bool is_of_batch = i > 0 && op->keys[i - 1].is_of_batch;
        if (is_of_batch ? takes_batch : takes_rest)
            line.ranges[line.num_ranges++] = (qni_tune_range){i, values[i], values[i]};
    }
    return qni_tune_line_text(&line, buf, room);
}

const char *qni_tune_describe(const qni_op *op, const qn_device *device, const void *problem,
                              char *buf, size_t room) {
    return describe(op, device, problem, true, true, buf, room);
}

const char *qni_tune_describe_part(const qni_op *op, const qn_device *device, const void *problem,
                                   bool is_of_batch, char *buf, size_t room) {
    return describe(op, device, problem, is_of_batch, !is_of_batch, buf, room);
}

// ---- the user's view

qn_status qn_tune_path(char *buf, size_t room) {
    const char *path = qni_tune_file();
    if (!buf)
        return QN_FAIL(QN_E_INVALID, "tune_path: buf is null");
    if (qni_env_get()->lacks_memory)
        return QN_FAIL(QN_E_MEMORY, "tune: out of memory");
    if (!path)
        return QN_FAIL(QN_E_NOT_FOUND, "tune: QUERN_TUNE is none");
    if (path == shipped_name)
        return QN_FAIL(QN_E_NOT_FOUND, "tune: QUERN_TUNE is not set: calls go by quern's own "
                                       "table, which is no file");
    if (strlen(path) >= room)
        return QN_FAIL(QN_E_INVALID, "tune_path: room is %zu, %zu are needed", room,
                       strlen(path) + 1);
    memcpy(buf, path, strlen(path) + 1);
    return QN_OK;
}

qn_status qn_tune_list(const char *path, qn_tune_fn each, void *context) {
    table t = {};
    if (!each)
        return QN_FAIL(QN_E_INVALID, "tune_list: each is null");
    if (!path && !(path = qni_tune_file()))
        return QN_FAIL(QN_E_NOT_FOUND, "tune: QUERN_TUNE is none");
    const qn_status st = read_table(path, each, context, &t);
    free(t.lines);
    return st;
}
