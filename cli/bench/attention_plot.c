// SPDX-License-Identifier: Apache-2.0
// The picture of attention's speed over the length of prompts.
#include "attention_plot.h"

#include "../draw/svg.h"
#include "../draw/svg_lines.h"

#include <stdlib.h>
#include <string.h>

enum { TOP = 56, GAP = 16 };
static const svg_frame header = {430, 0}, bars = {100, 600};
static const char limit_color[] = "#777777";

typedef struct picture {
    FILE *to;
    const qn_device_info *device;
    const cli_limits *limits;
    const attention_speed *speeds;
    int count;
    int top; // where the next part goes
} picture;

/** Returns a side's color. Sides get colors in the order in which they come, and keep them. */
static const char *color_of(const picture *p, const char *side) {
    static const char *const colors[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377"};
    const size_t num_colors = sizeof colors / sizeof *colors;
    size_t before = 0;
    for (int i = 0; i < p->count && strcmp(p->speeds[i].side, side) != 0; i++) {
        bool is_new = true;
        for (int k = 0; k < i; k++)
            is_new &= strcmp(p->speeds[k].side, p->speeds[i].side) != 0;
        before += is_new;
    }
    return colors[before % num_colors];
}

static double most_of(const picture *p, bool is_decode) {
    double most = 0;
    for (int i = 0; i < p->count; i++)
        if ((p->speeds[i].kind == ATTENTION_DECODE) == is_decode && p->speeds[i].a_second > most)
            most = p->speeds[i].a_second;
    const double limit = is_decode ? p->limits->read_bytes : p->limits->bf16_flops;
    return limit > most ? limit : most;
}

/** Draws the device's limit, from the first to the last length. */
static void add_limit(svg_lines *plot, double limit) {
    if (!(limit > 0) || !plot->count)
        return;
    const svg_line *first = &plot->lines[0];
    svg_line *line = svg_lines_find(plot, "limit", limit_color);
    if (!line)
        return;
    line->is_dashed = true;
    svg_line_add(line, first->x[0], limit);
    svg_line_add(line, first->x[first->count - 1], limit);
}

static void draw_prompts(picture *p, attention_kind kind, const char *title) {
    const cli_unit unit = cli_flops_unit(p->device);
    svg_lines plot = {.title = title,
                      .x_name = "length of the prompt",
                      .y_name = unit.name,
                      .most = most_of(p, false) / unit.a_second};
    for (int i = 0; i < p->count; i++)
        if (p->speeds[i].kind == kind)
            svg_line_add(svg_lines_find(&plot, p->speeds[i].side, color_of(p, p->speeds[i].side)),
                         (double)p->speeds[i].seq, p->speeds[i].a_second / unit.a_second);
    add_limit(&plot, p->limits->bf16_flops / unit.a_second);
    svg_lines_draw(p->to, &plot, p->top);
    p->top += SVG_LINES_HEIGHT + GAP;
}

static void draw_bar(picture *p, const char *side, double bytes, double most, const char *color) {
    char value[32];
    snprintf(value, sizeof value, "%.1f GB/s", bytes * 1e-9);
    svg_bar(p->to, &bars, p->top, side, bytes / most, color, value);
    p->top += SVG_STEP;
}

static void draw_decode(picture *p) {
    const double most = most_of(p, true);
    svg_title(p->to, &bars, p->top, "decode",
              "a token for each of eight caches of 4096 keys, 32 heads on 8: keys and values read");
    p->top += SVG_STEP;
    for (int i = 0; i < p->count; i++)
        if (p->speeds[i].kind == ATTENTION_DECODE)
            draw_bar(p, p->speeds[i].side, p->speeds[i].a_second, most,
                     color_of(p, p->speeds[i].side));
    if (p->limits->read_bytes > 0)
        draw_bar(p, "limit", p->limits->read_bytes, most, limit_color);
}

char *attention_draw(const qn_device_info *device, const cli_limits *limits,
                     const attention_speed *speeds, int count) {
    char *body = nullptr;
    size_t size = 0;
    FILE *to = cli_stream(&body, &size);
    picture p = {to, device, limits, speeds, count, TOP};
    char *how = cli_text("attention of bf16, heads of 128, %s times", cli_times(device)),
         *from = cli_text("limits: %s", limits->source);
    svg_title(to, &header, 8, device->name, how);
    svg_title(to, &header, 8 + SVG_STEP, "", from);
    free(how);
    free(from);
    draw_prompts(&p, ATTENTION_WHOLE, "prompts of 24 heads, whole");
    draw_prompts(&p, ATTENTION_CAUSAL, "prompts of 24 heads, causal");
    draw_decode(&p);
    fclose(to);
    char *text = svg_whole(p.top + GAP, body);
    free(body);
    return text;
}
