// SPDX-License-Identifier: Apache-2.0
// Bar plots as pictures that need nothing else. profile and bench draw with them.
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stdio.h>

enum { SVG_WIDTH = 1000, SVG_BAR = 16, SVG_STEP = 22 };

/** Where bars lie: names end at the left of `left`; a bar of length 1 is `full` wide. */
typedef struct svg_frame {
    int left;
    double full;
} svg_frame;

/** Draws a bar with its name at the left and its value at the right. */
void svg_bar(FILE *to, const svg_frame *frame, int top, const char *name, double length,
             const char *color, const char *value);
/** Draws a bold title, and more about it in gray where bars begin. */
void svg_title(FILE *to, const svg_frame *frame, int top, const char *title, const char *rest);
/** Returns the whole file around what was drawn; the caller frees it. */
char *svg_whole(int height, const char *body);

#endif
