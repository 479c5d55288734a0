// SPDX-License-Identifier: Apache-2.0
// Lines over a doubling axis, in pictures that need nothing else. bench draws speed over length
// with them.
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
    double most; // the least y of the top edge, so that two plots can share a scale
    svg_line lines[SVG_MAX_LINES];
    int count;
} svg_lines;

/** Returns the line of this name, or begins one in this color; null if there are SVG_MAX_LINES
 *  already. */
svg_line *svg_lines_find(svg_lines *plot, const char *name, const char *color);
/** Inserts a point where its x belongs. Does nothing if line is null, or has SVG_MAX_POINTS
 *  already. */
void svg_line_add(svg_line *line, double x, double y);
/** Draws axes, lines and their names; the picture is SVG_LINES_HEIGHT high. */
void svg_lines_draw(FILE *to, const svg_lines *plot, int top);

#endif
