// SPDX-License-Identifier: Apache-2.0
// Lines over a doubling axis, in pictures that need nothing else: what bench draws speed over
// length with.
#ifndef CLI_SVG_LINES_H
#define CLI_SVG_LINES_H

#include <stdio.h>

enum { SVG_MAX_LINES = 8, SVG_MAX_POINTS = 32, SVG_LINES_HEIGHT = 300 };

typedef struct svg_line {
    const char *name, *color;
    bool is_dashed;
    double x[SVG_MAX_POINTS], y[SVG_MAX_POINTS]; // x > 0, in order; y >= 0
    int count;
} svg_line;

typedef struct svg_lines {
    const char *title, *x_name, *y_name;
    double most; // y at the top at least, so that two plots can have one scale
    svg_line lines[SVG_MAX_LINES];
    int count;
} svg_lines;

/** The line of this name, which is begun in this color if there is none; null if there are
 *  SVG_MAX_LINES. */
svg_line *svg_lines_find(svg_lines *plot, const char *name, const char *color);
/** Puts a point where its x belongs. Null is no line: nothing happens. Nor does it past
 *  SVG_MAX_POINTS. */
void svg_line_add(svg_line *line, double x, double y);
/** Axes, lines and their names, SVG_LINES_HEIGHT high. */
void svg_lines_draw(FILE *to, const svg_lines *plot, int top);

#endif
