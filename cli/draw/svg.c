// SPDX-License-Identifier: Apache-2.0
// Bar plots as pictures that need nothing else.
#include "svg.h"

#include "../cli.h"

void svg_bar(FILE *to, const svg_frame *frame, int top, const char *name, double length,
             const char *color, const char *value) {
    fprintf(to, "<text x='%d' y='%d' text-anchor='end'>", frame->left - 8, top + 13);
    cli_write_xml(to, name);
    fprintf(to, "</text>\n<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/>\n", frame->left,
            top, frame->full * length, SVG_BAR, color);
    fprintf(to, "<text x='%d' y='%d'>", frame->left + 6 + (int)(frame->full * length), top + 13);
    cli_write_xml(to, value);
    fputs("</text>\n", to);
}

void svg_title(FILE *to, const svg_frame *frame, int top, const char *title, const char *rest) {
    fprintf(to, "<text x='%d' y='%d' font-weight='bold'>", 16, top + 13);
    cli_write_xml(to, title);
    fputs("</text>\n", to);
    fprintf(to, "<text x='%d' y='%d' fill='#555555'>", frame->left, top + 13);
    cli_write_xml(to, rest);
    fputs("</text>\n", to);
}

char *svg_whole(int height, const char *body) {
    return cli_text("<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
                    "font-family='sans-serif' font-size='13'>\n"
                    "<rect width='100%%' height='100%%' fill='white'/>\n%s</svg>\n",
                    SVG_WIDTH, height, body);
}
