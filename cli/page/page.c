// SPDX-License-Identifier: Apache-2.0
// A profile as an HTML page that needs nothing else: no network, and its script only to filter and
// to sort.
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] = {
#embed "page.css" suffix(, 0)
};
static const char script[] = {
#embed "page.js" suffix(, 0)
};

// ---- what the parts share

const page_level page_levels[PAGE_LEVELS] = {
    {"HBM", "hbm", "hbm", "hbm_lines", nullptr, true},
    {"memory-side cache", "fabric", "fabric", "fabric_lines", "mall_hits", false},
    {"L2", "l2", "l2", "l2_lines", "l2_hits", false},
    {"L1", "l1", "l1", "l1_lines", "l1_hits", false},
    {"LDS", "lds-level", "lds", nullptr, nullptr, false},
};

int64_t page_integer(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

double page_number(const json_t *object, const char *name) {
    return (double)page_integer(object, name);
}

void page_text(FILE *to, const char *text) {
    for (const char *quote; (quote = strchr(text, '"')); text = quote + 1) {
        char *before = cli_text("%.*s", (int)(quote - text), text);
        cli_write_xml(to, before);
        fputs("&quot;", to);
        free(before);
    }
    cli_write_xml(to, text);
}

const char *page_rate(double value, char *buf, size_t room) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int at = 0;
    for (; value >= 999.5 && at < 5; at++)
        value /= 1000;
    snprintf(buf, room, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, prefixes[at]);
    return buf;
}

double page_level_bytes(const page *p, const page_level *level) {
    const double bytes = level->lines ? page_number(p->memory, level->lines) * (int)PAGE_LINE
                                      : page_number(p->memory, "lds_bytes");
    return bytes * p->scale;
}

double page_level_peak(const page *p, const page_level *level) {
    const double peak = page_number(json_object_get(p->chip, "mb_per_s"), level->peak) / 1000;
    return level->has_own_clock ? peak : peak * p->rate;
}

page_work page_work_of(const page *p) {
    const double simds = page_number(p->chip, "compute_units") * page_number(p->chip, "simds");
    const double busy = page_number(p->clock, "matrix_cycles");
    const double counted = page_number(p->kernel, "workgroups");
    const double all = counted > 0 ? page_number(p->clock, "workgroups") / counted : 1;
    page_work w = {.name = "vector operations",
                   .operations = all * (double)profile_counter(p->kernel, "valu_active_lanes"),
                   .vector_peak = page_number(p->chip, "lane_mops_per_s") / 1000 * p->rate};
    w.peak = w.vector_peak;
    if (busy > 0) {
        w.name = "matrix operations";
        w.operations = all * (double)profile_counter(p->kernel, "matrix_ops");
        w.peak = page_number(p->clock, "matrix_ops") / busy * simds * page_number(p->clock, "mhz") /
                 1000;
    }
    return w;
}

static page page_of(FILE *to, const json_t *kernel, int number) {
    const json_t *clock = json_object_get(kernel, "clock");
    page p = {.to = to,
              .number = number,
              .kernel = kernel,
              .clock = clock,
              .chip = json_object_get(kernel, "chip"),
              .memory = json_object_get(clock, "memory"),
              .ns = page_number(clock, "ns"),
              .scale = 1,
              .rate = 1};
    const double run = page_number(clock, "workgroups_run"), mhz = page_number(p.chip, "mhz");
    if (run > 0)
        p.scale = page_number(clock, "workgroups") / run;
    if (clock && mhz > 0)
        p.rate = page_number(clock, "mhz") / mhz;
    return p;
}

// ---- a kernel

static void write_title(const page *p) {
    const json_t *block = json_object_get(p->kernel, "block");
    const json_t *failed = json_object_get(p->kernel, "failed_launches");
    fputs("<header><h2>", p->to);
    page_text(p->to, json_string_value(json_object_get(p->kernel, "name")));
    fprintf(p->to,
            "</h2>\n<p class=dim>%s, device %lld; launches: %lld; workgroups: %lld of "
            "%lld&times;%lld&times;%lld, waves of %lld",
            json_string_value(json_object_get(p->kernel, "arch")),
            (long long)page_integer(p->kernel, "device"),
            (long long)page_integer(p->kernel, "launches"),
            (long long)page_integer(p->clock ? p->clock : p->kernel, "workgroups"),
            json_integer_value(json_array_get(block, 0)),
            json_integer_value(json_array_get(block, 1)),
            json_integer_value(json_array_get(block, 2)),
            (long long)page_integer(p->kernel, "wave_size"));
    if (json_integer_value(failed))
        fprintf(p->to, "; <strong>launches that failed: %lld</strong>", json_integer_value(failed));
    fputs("</p></header>\n", p->to);
}

static void write_kernel(const page *p) {
    fprintf(p->to, "<section class=kernel id=kernel-%d>\n", p->number);
    write_title(p);
    if (p->clock) {
        page_tiles(p);
        fputs("<div class=pair>\n", p->to);
        page_roofline(p);
        page_stalls(p);
        fputs("</div>\n", p->to);
        page_memory(p);
    } else {
        fputs("<p class=card>No time is modelled: <code>--clock on</code> models it.</p>\n", p->to);
    }
    fputs("<div class=pair>\n", p->to);
    page_mix(p);
    page_occupancy(p);
    fputs("</div>\n", p->to);
    if (p->clock) {
        page_lines(p);
        page_instructions(p);
    }
    fputs("</section>\n", p->to);
}

// ---- all

/** Writes a row of the table of kernels. */
static void write_row(const page *p, double all_ns) {
    char time[32];
    const double share = all_ns > 0 ? 100 * p->ns / all_ns : 0;
    fprintf(p->to, "<tr><td><a class=code href=\"#kernel-%d\">", p->number);
    page_text(p->to, json_string_value(json_object_get(p->kernel, "name")));
    fprintf(p->to, "</a></td><td class=n>%lld</td>",
            (long long)page_integer(p->kernel, "launches"));
    if (p->clock)
        fprintf(p->to,
                "<td class=n>%s</td><td class=of><div class=bar><i class=k-share "
                "style=\"width:%.2f%%\"></i></div></td><td class=n>%.1f %%</td>",
                cli_time_text((int64_t)p->ns, time, sizeof time), share, share);
    else
        fputs("<td class=n>-</td><td></td><td></td>", p->to);
    fputs("</tr>\n", p->to);
}

static void write_overview(FILE *to, const page *pages, int count) {
    double all = 0;
    for (int i = 0; i < count; i++)
        all += pages[i].ns;
    fputs("<section class=\"card wide\">\n<table class=overview><thead><tr><th>Kernel</th><th "
          "class=n>Launches</th><th class=n>Modelled time</th><th colspan=2>Share</th></tr></thead>"
          "<tbody>\n",
          to);
    for (int i = 0; i < count; i++)
        write_row(&pages[i], all);
    fputs("</tbody></table></section>\n", to);
}

static void write_head(FILE *to, int count, char **arguments) {
    fputs("<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
          "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src "
          "'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>quern profile: ",
          to);
    page_text(to, arguments[0]);
    fprintf(
        to,
        "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header><h1>quern profile</h1>\n<p><code>",
        style);
    for (int i = 0; i < count; i++) {
        fputs(i ? " " : "", to);
        page_text(to, arguments[i]);
    }
    fputs("</code></p>\n<p><span class=badge>simulated GPU</span> <span class=dim>Times, rates and "
          "cycles are modelled; no card was measured.</span></p></header>\n<main>\n",
          to);
}

static int by_time(const void *a, const void *b) {
    const page *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? 1 : -1) : x->number - y->number;
}

/** Returns the kernels, the dearest first; the caller frees the list. */
static page *order(FILE *to, const json_t *kernels, int count) {
    page *pages = cli_alloc((size_t)count * sizeof *pages);
    for (int i = 0; i < count; i++)
        pages[i] = page_of(to, json_array_get(kernels, (size_t)i), i);
    qsort(pages, (size_t)count, sizeof *pages, by_time);
    for (int i = 0; i < count; i++)
        pages[i].rank = i;
    return pages;
}

char *profile_page(const json_t *kernels, int count, char **arguments) {
    const int num_kernels = (int)json_array_size(kernels);
    char *text = nullptr;
    size_t bytes;
    FILE *to = cli_stream(&text, &bytes);
    page *pages = order(to, kernels, num_kernels);
    write_head(to, count, arguments);
    if (num_kernels == 0)
        fputs("<p class=card>No kernel ran.</p>\n", to);
    if (num_kernels > 1)
        write_overview(to, pages, num_kernels);
    page_streams(to, pages, num_kernels);
    for (int i = 0; i < num_kernels; i++)
        write_kernel(&pages[i]);
    fprintf(to, "<footer>quern %s</footer>\n</main>\n<script>\n%s</script>\n</body>\n</html>\n",
            qn_version(), script);
    free(pages);
    fclose(to);
    return text;
}
