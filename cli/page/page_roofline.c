// SPDX-License-Identifier: Apache-2.0
// The roofline of a kernel: how fast it computes over how much it computes for each byte, beside
// what the chip's units and each level of memory allow at the kernel's clock.
#include "page.h"

#include <math.h>

static constexpr double left = 58, right = 12, top = 14, bottom = 40, width = 640, height = 380;
enum { LEVELS = 3 }; // of page_levels: LDS and L1 lie too near to the second level

/** The plot's edges as powers of ten: operations for a byte, operations a nanosecond. */
typedef struct plot {
    const page *p;
    page_work work;
    double speed; // of the kernel
    double low_x, high_x, low_y, high_y;
} plot;

static double place_x(const plot *plot, double x) {
    return left + (width - left - right) * (log10(x) - plot->low_x) / (plot->high_x - plot->low_x);
}

static double place_y(const plot *plot, double y) {
    return height - bottom -
           (height - top - bottom) * (log10(y) - plot->low_y) / (plot->high_y - plot->low_y);
}

/** Returns the operations for each byte of a level; 0 if it was asked for none. */
static double intensity(const plot *plot, int level) {
    const double bytes = page_level_bytes(plot->p, &page_levels[level]);
    return bytes > 0 ? plot->work.operations / bytes : 0;
}

/** Makes the plot as wide as the points and the roofs' corners ask for. */
static plot plot_of(const page *p) {
    plot plot = {.p = p, .work = page_work_of(p)};
    plot.speed = plot.work.operations / p->ns;
    const double most = fmax(plot.work.peak, plot.work.vector_peak);
    double low = plot.work.peak / page_level_peak(p, &page_levels[LEVELS - 1]);
    double high = most / page_level_peak(p, &page_levels[0]);
    for (int i = 0; i < LEVELS; i++) {
        const double x = intensity(&plot, i);
        low = x > 0 ? fmin(low, x) : low;
        high = fmax(high, x);
    }
    plot.low_x = floor(log10(low) - 0.3);
    plot.high_x = ceil(log10(high) + 0.3);
    plot.high_y = ceil(log10(most) + 0.05);
    plot.low_y = fmin(floor(log10(plot.speed) - 0.2), plot.high_y - 4);
    return plot;
}

// ---- parts

static void draw_grid(const plot *plot) {
    FILE *to = plot->p->to;
    char text[32];
    for (double e = plot->low_x; e <= plot->high_x; e++) {
        const double x = place_x(plot, pow(10, e));
        fprintf(to, "<line class=grid x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", x, x, top,
                height - bottom);
        fprintf(to, "<text x=%.1f y=%.1f text-anchor=middle>%g</text>\n", x, height - bottom + 16,
                pow(10, e));
    }
    for (double e = plot->low_y; e <= plot->high_y; e++) {
        const double y = place_y(plot, pow(10, e));
        fprintf(to, "<line class=grid x1=%.1f x2=%.1f y1=%.1f y2=%.1f />", left, width - right, y,
                y);
        snprintf(text, sizeof text, "%.0f %s", pow(10, fmod(e + 15, 3)),
                 (const char *const[]){"", "k", "M", "G", "T", "P", "E"}[(int)floor((e + 9) / 3)]);
        fprintf(to, "<text x=%.1f y=%.1f text-anchor=end>%s</text>\n", left - 8, y + 4, text);
    }
    fprintf(to, "<text x=%.1f y=%.1f text-anchor=middle>%s for each byte of a level</text>\n",
            (left + width) / 2, height - 6, plot->work.name);
}

/** Draws what a level allows: bytes a nanosecond times operations for each of them. */
static void draw_roof(const plot *plot, int level) {
    const page_level *l = &page_levels[level];
    const double rate = page_level_peak(plot->p, l);
    const double first = fmax(pow(10, plot->low_x), pow(10, plot->low_y) / rate);
    const double corner = fmax(first, plot->work.peak / rate);
    const double x = place_x(plot, first), y = place_y(plot, first * rate);
    const double x2 = place_x(plot, corner), y2 = place_y(plot, corner * rate);
    const double turn = atan2(y2 - y, x2 - x) * 180 / M_PI;
    char text[32];
    fprintf(
        plot->p->to,
        "<g class=%s><line class=roof x1=%.1f y1=%.1f x2=%.1f y2=%.1f data-rate=%.1f />"
        "<text class=level transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s %sB/s</text></g>\n",
        l->class, x, y, x2, y2, rate, x + 10, y - 6 + 10 * (y2 - y) / fmax(1, x2 - x), turn,
        l->name, page_rate(rate * 1e9, text, sizeof text));
}

/** Draws a line at what units allow. */
static void draw_peak(const plot *plot, const char *class, const char *name, double peak) {
    const double from = peak / page_level_peak(plot->p, &page_levels[LEVELS - 1]);
    const double x = place_x(plot, fmax(from, pow(10, plot->low_x))), y = place_y(plot, peak);
    char text[32];
    fprintf(plot->p->to,
            "<line class=\"peak%s\" x1=%.1f x2=%.1f y1=%.1f y2=%.1f data-peak=%.1f />"
            "<text class=peak x=%.1f y=%.1f text-anchor=end>%s, %sop/s at %lld MHz</text>\n",
            class, x, width - right, y, y, peak, width - right - 4, y - 6, name,
            page_rate(peak * 1e9, text, sizeof text),
            (long long)page_integer(plot->p->clock, "mhz"));
}

/** Draws the kernel: a point for each level, at one speed. */
static void draw_points(const plot *plot) {
    const double y = place_y(plot, plot->speed);
    double first = width, last = 0;
    char text[32];
    for (int i = 0; i < LEVELS; i++) {
        const double at = intensity(plot, i), x = at > 0 ? place_x(plot, at) : 0;
        first = at > 0 ? fmin(first, x) : first;
        last = fmax(last, x);
    }
    fprintf(plot->p->to, "<line class=reach x1=%.1f x2=%.1f y1=%.1f y2=%.1f />\n", first, last, y,
            y);
    for (int i = 0; i < LEVELS; i++) {
        const double at = intensity(plot, i);
        if (at > 0)
            fprintf(plot->p->to,
                    "<g class=%s><circle class=point r=6.5 cx=%.1f cy=%.1f data-x=%.6g data-y=%.6g>"
                    "<title>%s: %.3g operations a byte</title></circle></g>\n",
                    page_levels[i].class, place_x(plot, at), y, at, plot->speed,
                    page_levels[i].name, at);
    }
    fprintf(plot->p->to, "<text class=value x=%.1f y=%.1f text-anchor=middle>%sop/s</text>\n",
            fmin(fmax((first + last) / 2, left + 40), width - right - 40), y + 22,
            page_rate(plot->speed * 1e9, text, sizeof text));
}

void page_roofline(const page *p) {
    const page_work work = page_work_of(p);
    fputs("<figure class=\"card roofline\"><h3>Roofline <small>modelled, at the kernel's clock"
          "</small></h3>\n",
          p->to);
    if (work.operations > 0 && p->ns > 0) {
        const plot plot = plot_of(p);
        fprintf(p->to, "<svg viewBox=\"0 0 %.0f %.0f\" role=img aria-label=roofline>\n", width,
                height);
        draw_grid(&plot);
        for (int i = 0; i < LEVELS; i++)
            draw_roof(&plot, i);
        if (work.peak > work.vector_peak)
            draw_peak(&plot, "", "matrix peak of its instructions", work.peak);
        draw_peak(&plot, work.peak > work.vector_peak ? " vector" : "", "vector peak",
                  work.vector_peak);
        draw_points(&plot);
        fputs(
            "</svg>\n<p class=dim>A point for each level, by the bytes that the level was asked for. "
            "A point near its level's line is limited by that level.</p>",
            p->to);
    } else {
        fputs("<p class=dim>It computes nothing that is counted.</p>", p->to);
    }
    fputs("</figure>\n", p->to);
}
