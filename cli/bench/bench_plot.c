// SPDX-License-Identifier: Apache-2.0
// bench's figures as a picture.
#include "../draw/svg.h"
#include "attention_plot.h"
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { TOP = 34 };
static const svg_frame frame = {430, 300}; // a bar as long as its share of the limit

static bool is_decode(const measurement *r) {
    return r->attention.qo_len == 1 && r->attention.kv_len > 1;
}

static char *value_of(const bench_report *b, const measurement *r) {
    const cli_unit unit = cli_flops_unit(&b->device.info);
    char *speed = r->flops > 0 && !is_decode(r)
                      ? cli_text("%.*f %s", unit.digits,
                                 r->flops / (double)r->median_ns * 1e9 / unit.a_second, unit.name)
                      : cli_text("%.1f GB/s", bench_gigabytes(r));
    char *value = bench_share(r) > 0
                      ? cli_text("%s, %.0f %% (%s)", speed, 100 * bench_share(r), bench_share_of(r))
                      : cli_text("%s", speed);
    free(speed);
    return value;
}

static void draw_one(FILE *to, const bench_report *b, const measurement *r, int top) {
    char *name = cli_text("%s %s", r->op, r->problem), *value = value_of(b, r);
    const double share = bench_share(r);
    svg_bar(to, &frame, top, name, share < 1.1 ? share : 1.1, "#4477aa", value);
    free(name);
    free(value);
}

static char *draw_bars(const bench_report *b) {
    char *body = nullptr;
    size_t size = 0;
    FILE *to = cli_stream(&body, &size);
    const int end = TOP + b->count * SVG_STEP, full = frame.left + (int)frame.full;
    char *rest =
        cli_text("%s times: share of the limit (line: 100 %%)", cli_times(&b->device.info));
    svg_title(to, &frame, 8, b->device.info.name, rest);
    free(rest);
    for (int i = 0; i < b->count; i++)
        draw_one(to, b, &b->results[i], TOP + i * SVG_STEP);
    fprintf(to, "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='#bb5566'/>\n", full, full, TOP - 4,
            end);
    fclose(to);
    char *text = svg_whole(end + 12, body);
    free(body);
    return text;
}

// ---- lines

/** Returns whether all results are attention, with prompts of several lengths. */
static bool has_lengths(const bench_report *b) {
    bool differ = false;
    for (int i = 0; i < b->count; i++) {
        const measurement *r = &b->results[i];
        if (strcmp(r->op, "attention") != 0)
            return false;
        differ |= !is_decode(r) && r->attention.qo_len != b->results[0].attention.qo_len;
    }
    return differ;
}

static char *draw_lines(const bench_report *b) {
    attention_speed speeds[MAX_RESULTS];
    for (int i = 0; i < b->count; i++) {
        const measurement *r = &b->results[i];
        const double amount = is_decode(r) ? r->bytes : r->flops;
        speeds[i] = (attention_speed){.side = "quern",
                                      .kind = is_decode(r)             ? ATTENTION_DECODE
                                              : r->attention.is_causal ? ATTENTION_CAUSAL
                                                                       : ATTENTION_WHOLE,
                                      .seq = r->attention.qo_len,
                                      .a_second = amount / (double)r->median_ns * 1e9};
    }
    return attention_draw(&b->device.info, &b->limits, speeds, b->count);
}

char *bench_draw(const bench_report *report) {
    return has_lengths(report) ? draw_lines(report) : draw_bars(report);
}
