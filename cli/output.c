// SPDX-License-Identifier: Apache-2.0
// Tables for people, the progress bar, and memory for all of them.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_ending; // for lack of memory

void cli_out_of_memory(void) {
    is_ending = true;
    fputs("quern: out of memory\n", stderr);
    exit(CLI_BAD_INPUT);
}

/** Where a stream of cli_stream writes. */
typedef struct target {
    char **text;
    size_t *bytes, room;
} target;

static ssize_t add_text(void *cookie, const char *data, size_t bytes) {
    target *t = cookie;
    if (is_ending)
        return 0; // exit() flushes all streams, and nobody reads this text any more
    while (t->room - *t->bytes <= bytes)
        t->room *= 2;
    char *larger = realloc(*t->text, t->room);
    if (!larger)
        cli_out_of_memory();
    *t->text = larger;
    memcpy(larger + *t->bytes, data, bytes);
    *t->bytes += bytes;
    larger[*t->bytes] = 0;
    return (ssize_t)bytes;
}

static int free_target(void *cookie) {
    free(cookie);
    return 0;
}

FILE *cli_stream(char **text, size_t *bytes) {
    constexpr size_t room = 4096;
    target *t = cli_alloc(sizeof *t);
    *text = cli_alloc(room);
    *bytes = 0;
    *t = (target){text, bytes, room};
    FILE *to =
        fopencookie(t, "w", (cookie_io_functions_t){.write = add_text, .close = free_target});
    if (!to)
        cli_out_of_memory();
    return to;
}

void *cli_alloc(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        cli_out_of_memory();
    return memory;
}

static char *text_of(const char *format, va_list args) {
    char *text = nullptr;
    if (vasprintf(&text, format, args) < 0)
        cli_out_of_memory();
    return text;
}

char *cli_text(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = text_of(format, args);
    va_end(args);
    return text;
}

qn_status cli_flush(void) {
    if (fflush(stdout) != 0 || ferror(stdout))
        return cli_fail(QN_E_IO, "cannot write to standard output: %s", strerror(errno));
    return QN_OK;
}

qn_status cli_print(const char *text) {
    fputs(text, stdout);
    return cli_flush();
}

const char *cli_bytes_text(int64_t bytes, char *buf, size_t room) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(buf, room, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buf;
}

const char *cli_time_text(int64_t ns, char *buf, size_t room) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    if (ns < 0) {
        snprintf(buf, room, "-");
        return buf;
    }
    double value = (double)ns;
    int unit = 0;
    for (; value >= 1000 && unit < 3; unit++)
        value /= 1000;
    snprintf(buf, room, "%.*f %s",
             value < 10 && unit    ? 2
             : value < 100 && unit ? 1
                                   : 0,
             value, units[unit]);
    return buf;
}

/** Returns whether text begins with a control character: one of one byte, or U+0080 to U+009F in
 *  UTF-8. */
static bool is_control(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    return *c < ' ' || *c == 0x7F || (c[0] == 0xC2 && c[1] < 0xA0);
}

void cli_write_xml(FILE *to, const char *text) {
    for (; *text; text++) {
        const bool is_strange = is_control(text);
        fputs(is_strange     ? "\uFFFD"
              : *text == '<' ? "&lt;"
              : *text == '>' ? "&gt;"
              : *text == '&' ? "&amp;"
                             : (const char[]){*text, '\0'},
              to);
        text += is_strange && (unsigned char)*text == 0xC2;
    }
}

void cli_write_plain(FILE *to, const char *text) {
    for (; *text; text++) {
        const bool is_strange = is_control(text),
                   is_long = is_strange && (unsigned char)*text == 0xC2;
        if (is_strange)
            fprintf(to, "\\u%04x", (unsigned char)text[is_long]);
        else
            fputc(*text, to);
        text += is_long;
    }
}

// ---- tables

static void table_append(cli_table *table, char *text) {
    if (table->num_cells == table->room) {
        table->room = table->room ? 2 * table->room : 64;
        table->cells = reallocarray(table->cells, (size_t)table->room, sizeof *table->cells);
        if (!table->cells)
            cli_out_of_memory();
    }
    table->cells[table->num_cells++] = text;
}

void cli_table_init(cli_table *table, int num_columns, const char *const *titles) {
    *table = (cli_table){.num_columns = num_columns};
    for (int i = 0; i < num_columns; i++)
        table_append(table, cli_text("%s", titles[i]));
}

void cli_table_add(cli_table *table, const char *format, ...) {
    va_list args;
    va_start(args, format);
    table_append(table, text_of(format, args));
    va_end(args);
}

/** Returns the columns of a text on a terminal; UTF-8 continuation bytes take none. */
static int display_width(const char *text) {
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

void cli_table_free(cli_table *table) {
    for (int i = 0; i < table->num_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (cli_table){0};
}

void cli_table_print(cli_table *table, FILE *to) {
    const int columns = table->num_columns;
    int *width = cli_alloc((size_t)columns * sizeof *width);
    for (int i = 0; i < table->num_cells; i++) {
        const int w = display_width(table->cells[i]);
        width[i % columns] = w > width[i % columns] ? w : width[i % columns];
    }
    for (int i = 0; i < table->num_cells; i++) {
        const bool is_last = i % columns == columns - 1;
        const int padding = is_last ? 0 : width[i % columns] - display_width(table->cells[i]) + 2;
        fprintf(to, "%s%*s%s", table->cells[i], padding, "", is_last ? "\n" : "");
    }
    free(width);
    cli_table_free(table);
}

// ---- progress

static struct {
    const char *label;
    int64_t total, done;
    double begun, shown; // seconds
    bool is_terminal, is_drawn;
} bar;

int64_t cli_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1'000'000'000) + t.tv_nsec;
}

static double now(void) {
    return 1e-9 * (double)cli_now_ns();
}

void cli_progress_begin(const char *label, int64_t total) {
    bar = (typeof(bar)){.label = label, .total = total, .is_terminal = isatty(STDERR_FILENO) == 1};
    bar.begun = now();
}

static void progress_draw(double elapsed) {
    constexpr int WIDTH = 30;
    const double part = bar.total > 0 ? (double)bar.done / (double)bar.total : 1;
    const int filled = (int)(part * WIDTH);
    const double left = part > 0 ? elapsed / part - elapsed : 0;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f %%, %.0f s left \033[K", bar.label, filled,
            "##############################", WIDTH - filled, "", 100 * part, left);
    bar.is_drawn = true;
}

void cli_progress_add(int64_t done) {
    bar.done += done;
    if (!bar.is_terminal)
        return;
    const double t = now();
    if (t - bar.begun < 2 || t - bar.shown < 0.1)
        return;
    bar.shown = t;
    progress_draw(t - bar.begun);
}

void cli_progress_end(void) {
    if (bar.is_drawn)
        fputs("\r\033[K", stderr);
    bar.is_drawn = false;
}
