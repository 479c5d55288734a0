// SPDX-License-Identifier: Apache-2.0
// Streams in a profile's page: a row for each, with its launches over modelled time.
#include "page.h"

#include <stdlib.h>

enum { MAX_DRAWN = 2000, MAX_ROWS = 32, WIDTH = 1000, LEFT = 90, ROW = 22, BAR = 16 };

/** A launch. */
typedef struct bar {
    int64_t process, device, stream, start, end;
    const page *kernel;
} bar;

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int by_start(const void *a, const void *b) {
    const bar *x = a, *y = b;
    int order = compare(x->process, y->process);
    order = order ? order : compare(x->device, y->device);
    order = order ? order : compare(x->start, y->start);
    return order ? order : compare(x->stream, y->stream);
}

static const json_t *launches_of(const page *p) {
    return json_object_get(p->clock, "timestamps");
}

/** Returns all launches whose times are known, by process, device and start; the caller frees
 *  them. */
static bar *collect(const page *pages, int count, size_t *num_bars) {
    size_t all = 0, i;
    json_t *launch;
    for (int k = 0; k < count; k++)
        all += json_array_size(launches_of(&pages[k]));
    bar *bars = cli_alloc((all + 1) * sizeof *bars);
    *num_bars = 0;
    for (int k = 0; k < count; k++)
        json_array_foreach((json_t *)(uintptr_t)launches_of(&pages[k]), i, launch)
            bars[(*num_bars)++] =
                (bar){page_integer(launch, "process"), page_integer(pages[k].kernel, "device"),
                      page_integer(launch, "stream"),  page_integer(launch, "start_ns"),
                      page_integer(launch, "end_ns"),  &pages[k]};
    qsort(bars, *num_bars, sizeof *bars, by_start);
    return bars;
}

/** A device's launches, and its streams in order. */
typedef struct chart {
    FILE *to;
    const bar *bars;
    size_t count;
    int64_t streams[MAX_ROWS], first, last; // nanoseconds
    int rows;
} chart;

/** Returns the row of a stream, or how many there are. */
static int row_of(const chart *c, int64_t stream) {
    int row = 0;
    while (row < c->rows && c->streams[row] != stream)
        row++;
    return row;
}

static void add_stream(chart *c, int64_t stream) {
    if (row_of(c, stream) < c->rows || c->rows == MAX_ROWS)
        return;
    int row = c->rows++;
    for (; row && c->streams[row - 1] > stream; row--)
        c->streams[row] = c->streams[row - 1];
    c->streams[row] = stream;
}

/** Returns the chart of the first launches, which are of one device. */
static chart chart_of(FILE *to, const bar *bars, size_t count) {
    chart c = {.to = to, .bars = bars, .first = bars->start};
    for (; c.count < count && bars[c.count].process == bars->process &&
           bars[c.count].device == bars->device;
         c.count++) {
        add_stream(&c, bars[c.count].stream);
        c.last = bars[c.count].end > c.last ? bars[c.count].end : c.last;
    }
    return c;
}

static void draw_bar(const chart *c, const bar *b) {
    const double per_ns =
        (double)(WIDTH - LEFT) / (double)(c->last > c->first ? c->last - c->first : 1);
    const int row = row_of(c, b->stream);
    char from[32], took[32];
    if (row == c->rows)
        return;
    fprintf(c->to,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" style=\"fill:hsl(%d 60%% "
            "50%%)\" data-stream=\"%lld\" data-start=\"%lld\" data-end=\"%lld\"><title>",
            (double)LEFT + per_ns * (double)(b->start - c->first), row * ROW,
            per_ns * (double)(b->end - b->start), BAR, b->kernel->rank * 137 % 360,
            (long long)b->stream, (long long)b->start, (long long)b->end);
    page_text(c->to, json_string_value(json_object_get(b->kernel->kernel, "name")));
    fprintf(c->to, ": at %s, takes %s</title></rect>\n", cli_time_text(b->start, from, sizeof from),
            cli_time_text(b->end - b->start, took, sizeof took));
}

static void draw(const chart *c) {
    const int bottom = c->rows * ROW + BAR - 4;
    char begin[32], end[32];
    fprintf(c->to, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"launches by stream\">\n",
            WIDTH, (c->rows + 1) * ROW);
    for (int i = 0; i < c->rows; i++)
        fprintf(c->to, "<text x=\"0\" y=\"%d\">stream %lld</text>\n", i * ROW + BAR - 4,
                (long long)c->streams[i]);
    for (size_t i = 0; i < c->count && i < MAX_DRAWN; i++)
        draw_bar(c, &c->bars[i]);
    fprintf(c->to,
            "<text x=\"%d\" y=\"%d\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=end>%s</text>"
            "\n</svg>\n",
            LEFT, bottom, cli_time_text(c->first, begin, sizeof begin), WIDTH, bottom,
            cli_time_text(c->last, end, sizeof end));
}

static void write_chart(const chart *c) {
    fprintf(c->to, "<figure class=\"card streams\"><h3>Streams <small>modelled, device %lld",
            (long long)c->bars->device);
    if (c->bars->process)
        fprintf(c->to, ", process %lld", (long long)c->bars->process);
    if (c->count > MAX_DRAWN)
        fprintf(c->to, "; the first %d launches of %zu", MAX_DRAWN, c->count);
    if (c->rows == MAX_ROWS)
        fprintf(c->to, "; %d streams at most", MAX_ROWS);
    fputs("</small></h3>\n", c->to);
    draw(c);
    fputs("</figure>\n", c->to);
}

void page_streams(FILE *to, const page *pages, int count) {
    size_t num_bars, at = 0;
    bar *bars = collect(pages, count, &num_bars);
    while (at < num_bars) {
        const chart c = chart_of(to, bars + at, num_bars - at);
        if (c.rows > 1)
            write_chart(&c);
        at += c.count;
    }
    free(bars);
}
