// SPDX-License-Identifier: Apache-2.0
// Lines over a doubling axis, in pictures that need nothing else.
#include "svg_lines.h"

#include "../cli.h"

#include <math.h>
#include <string.h>

// The plot's area in pixels, and the least distance of labels below it.
static constexpr int left = 70, width = 740, above = 30, height = 220, label = 46;

/** The values at the edges of the plot. */
typedef struct range {
    double first, last; // of the x axis
    double most, step;  // of the y axis: the top, and the distance of two labels
    int top;            // of the plot's area
} range;

svg_line *svg_lines_find(svg_lines *plot, const char *name, const char *color) {
    for (int i = 0; i < plot->count; i++)
        if (strcmp(plot->lines[i].name, name) == 0)
            return &plot->lines[i];
    if (plot->count == SVG_MAX_LINES)
        return nullptr;
    svg_line *line = &plot->lines[plot->count++];
    *line = (svg_line){.name = name, .color = color};
    return line;
}

void svg_line_add(svg_line *line, double x, double y) {
    if (!line || line->count == SVG_MAX_POINTS)
        return;
    int at = line->count++;
    for (; at > 0 && line->x[at - 1] > x; at--) {
        line->x[at] = line->x[at - 1];
        line->y[at] = line->y[at - 1];
    }
    line->x[at] = x;
    line->y[at] = y;
}

// ---- places

/** Returns the smallest of 1, 2 and 5 times a power of ten that reaches `most` in five steps. */
static double step_for(double most) {
    const double power = pow(10, floor(log10(most / 5)));
    for (int factor = 1; factor < 10; factor = factor == 2 ? 5 : 2 * factor)
        if (5 * factor * power >= most)
            return factor * power;
    return 10 * power;
}

static range range_of(const svg_lines *plot, int top) {
    range r = {.first = INFINITY, .top = top + above, .most = plot->most};
    for (int i = 0; i < plot->count; i++)
        for (int k = 0; k < plot->lines[i].count; k++) {
            r.first = fmin(r.first, plot->lines[i].x[k]);
            r.last = fmax(r.last, plot->lines[i].x[k]);
            r.most = fmax(r.most, plot->lines[i].y[k]);
        }
    r.step = step_for(r.most > 0 ? r.most : 1);
    r.most = ceil(r.most / r.step) * r.step;
    return r;
}

static double place_x(const range *r, double x) {
    return r->last > r->first ? left + width * log2(x / r->first) / log2(r->last / r->first)
                              : left + width / 2.0;
}

static double place_y(const range *r, double y) {
    return r->top + height - (r->most > 0 ? height * y / r->most : 0);
}

// ---- parts

static void draw_y(FILE *to, const range *r) {
    for (int i = 0; i * r->step <= r->most * 1.001; i++) {
        const double y = place_y(r, i * r->step);
        fprintf(to, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#dddddd'/>\n", left,
                left + width, y, y);
        fprintf(to, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", left - 8, y + 4,
                i * r->step);
    }
}

/** Draws a label below each x of the line, unless it would cover the label before. */
static void draw_x(FILE *to, const range *r, const svg_line *line) {
    double before = -label;
    for (int i = 0; i < line->count; i++) {
        const double x = place_x(r, line->x[i]);
        if (x - before < label)
            continue;
        fprintf(to, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", x,
                r->top + height + 18, line->x[i]);
        before = x;
    }
}

static void draw_line(FILE *to, const range *r, const svg_line *line) {
    fprintf(to, "<polyline fill='none' stroke-width='2' stroke='%s'%s points='", line->color,
            line->is_dashed ? " stroke-dasharray='6 4'" : "");
    for (int i = 0; i < line->count; i++)
        fprintf(to, "%.1f,%.1f ", place_x(r, line->x[i]), place_y(r, line->y[i]));
    fputs("'/>\n", to);
    for (int i = 0; i < line->count && !line->is_dashed; i++)
        fprintf(
            to, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'><title>%g: %.4g</title></circle>\n",
            place_x(r, line->x[i]), place_y(r, line->y[i]), line->color, line->x[i], line->y[i]);
}

static void draw_name(FILE *to, const svg_line *line, int y) {
    const int x = left + width + 20;
    fprintf(to, "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke-width='2' stroke='%s'%s/>\n", x,
            x + 24, y - 4, y - 4, line->color, line->is_dashed ? " stroke-dasharray='6 4'" : "");
    fprintf(to, "<text x='%d' y='%d'>", x + 32, y);
    cli_write_xml(to, line->name);
    fputs("</text>\n", to);
}

static void draw_text(FILE *to, int x, int y, const char *form, const char *text) {
    fprintf(to, "<text x='%d' y='%d' %s>", x, y, form);
    cli_write_xml(to, text);
    fputs("</text>\n", to);
}

void svg_lines_draw(FILE *to, const svg_lines *plot, int top) {
    const range r = range_of(plot, top);
    draw_text(to, left, top + 16, "font-weight='bold'", plot->title);
    draw_text(to, left - 8, top + 16, "text-anchor='end' fill='#555555'", plot->y_name);
    draw_text(to, left + width / 2, r.top + height + 36, "text-anchor='middle' fill='#555555'",
              plot->x_name);
    draw_y(to, &r);
    const svg_line *longest = &plot->lines[0];
    for (int i = 1; i < plot->count; i++)
        longest = plot->lines[i].count > longest->count ? &plot->lines[i] : longest;
    if (plot->count)
        draw_x(to, &r, longest);
    for (int i = 0; i < plot->count; i++) {
        draw_line(to, &r, &plot->lines[i]);
        draw_name(to, &plot->lines[i], r.top + 12 + i * 20);
    }
}
