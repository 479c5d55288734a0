// SPDX-License-Identifier: Apache-2.0
// A profile as a picture: for each kernel one bar of its instructions by class, bars of the bytes
// that it moves, how many waves fit on a compute unit by each limit, and where modelled time went.
#include "../draw/svg.h"
#include "clock.h"
#include "profile.h"

#include <stdlib.h>
#include <string.h>

enum { LEFT = 190, BAR = SVG_BAR, STEP = SVG_STEP, GAP = 30 };
static constexpr double full = 640;
static const svg_frame frame = {LEFT, full};

// ---- instructions

/** Draws the classes side by side in one bar, and what each color means below the bar. */
static int draw_mix(FILE *to, const json_t *k, int top) {
    profile_class classes[PROFILE_CLASSES];
    const int64_t all = profile_counter_of(k, "SQ_INSTS", "insts");
    double at = LEFT;
    int shown = 0;
    char rest[64];
    snprintf(rest, sizeof rest, "%lld instructions of waves", (long long)all);
    svg_title(to, &frame, top, "instructions", rest);
    profile_classes(classes, k);
    for (int i = 0; i < PROFILE_CLASSES; i++) {
        double width = all ? full * (double)classes[i].count / (double)all : 0;
        if (classes[i].count) {
            const int column = shown % 4, row = shown / 4;
            fprintf(to, "<rect x='%.1f' y='%d' width='%.1f' height='%d' fill='%s'/>\n", at,
                    top + STEP, width, BAR, classes[i].color);
            fprintf(to, "<rect x='%d' y='%d' width='12' height='12' fill='%s'/>\n",
                    LEFT + 190 * column, top + (2 + row) * STEP + 2, classes[i].color);
            fprintf(to, "<text x='%d' y='%d'>%s %.1f %%</text>\n", LEFT + 190 * column + 18,
                    top + (2 + row) * STEP + 13, classes[i].name,
                    profile_percent(classes[i].count, all));
            shown++;
        }
        at += width;
    }
    return top + (2 + (shown + 3) / 4) * STEP;
}

// ---- bytes

typedef struct amount {
    const char *name, *color;
    int64_t bytes;
} amount;

static int draw_bytes(FILE *to, const json_t *k, int top) {
    const amount amounts[] = {
        {"loaded", "#4477aa", profile_counter(k, "memory_load_bytes")},
        {"stored", "#4477aa", profile_counter(k, "memory_store_bytes")},
        {"atomic", "#4477aa", profile_counter(k, "memory_atomic_bytes")},
        {"lines, instructions", "#ee6677", profile_counter(k, "memory_line_bytes")},
        {"lines, workgroups", "#ee6677",
         profile_counter(k, "group_load_bytes") + profile_counter(k, "group_store_bytes")},
        {"lines, launches", "#ee6677",
         profile_counter(k, "launch_load_bytes") + profile_counter(k, "launch_store_bytes")},
        {"scalar", "#228833", profile_counter(k, "scalar_bytes")},
        {"scratch", "#ccbb44",
         profile_counter(k, "scratch_load_bytes") + profile_counter(k, "scratch_store_bytes")},
        {"LDS", "#aa3377",
         profile_counter(k, "lds_load_bytes") + profile_counter(k, "lds_store_bytes") +
             profile_counter(k, "lds_atomic_bytes") + profile_counter(k, "lds_dma_bytes")}};
    int64_t most = 1;
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        most = amounts[i].bytes > most ? amounts[i].bytes : most;
    svg_title(to, &frame, top, "bytes",
              "as lanes want them, and the cache lines that each instruction, workgroup and "
              "launch touches");
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
        char value[32];
        if (amounts[i].bytes) {
            top += STEP;
            svg_bar(to, &frame, top, amounts[i].name, (double)amounts[i].bytes / (double)most,
                    amounts[i].color, cli_bytes_text(amounts[i].bytes, value, sizeof value));
        }
    }
    return top + STEP;
}

// ---- occupancy

/** Returns the waves of a kernel's own workgroup, from the computed occupancy. */
static double waves_of(const json_t *o, int64_t groups) {
    const int64_t own = json_integer_value(json_object_get(o, "workgroups"));
    const int64_t waves = json_integer_value(json_object_get(o, "waves"));
    return own ? (double)groups * (double)waves / (double)own : 0;
}

static int draw_occupancy(FILE *to, const json_t *k, int top) {
    const json_t *o = json_object_get(k, "occupancy");
    const char *limit = json_string_value(json_object_get(o, "limit")), *name;
    const double most = (double)json_integer_value(json_object_get(o, "max_waves"));
    json_t *groups;
    char text[96];
    snprintf(text, sizeof text, "waves that fit on a compute unit, by each limit alone");
    svg_title(to, &frame, top, "occupancy", text);
    json_object_foreach(json_object_get(o, "workgroups_by"), name, groups) {
        const double waves = waves_of(o, json_integer_value(groups));
        const bool is_limit = strncmp(limit, name, strlen(name)) == 0;
        top += STEP;
        snprintf(text, sizeof text, "%.0f%s", waves, is_limit ? ": the limit" : "");
        svg_bar(to, &frame, top, name, waves < most ? waves / most : 1,
                is_limit ? "#ee6677" : "#66ccee", text);
    }
    return top + STEP;
}

// ---- modelled time

/** Draws where the cycles of the SIMDs went, if time was modelled. */
static int draw_clock(FILE *to, const json_t *k, int top) {
    cli_spent spent[CLI_SPENT];
    char text[96];
    const json_t *clock = json_object_get(k, "clock");
    const int count = cli_clock_spent(spent, clock);
    if (!clock)
        return top;
    snprintf(text, sizeof text, "modelled: %lld ns in all launches",
             json_integer_value(json_object_get(clock, "ns")));
    svg_title(to, &frame, top, "SIMD cycles", text);
    for (int i = 0; i < count; i++) {
        const bool is_work = strncmp(spent[i].name, "issued", 6) == 0;
        top += STEP;
        snprintf(text, sizeof text, "%.1f %%", spent[i].percent);
        svg_bar(to, &frame, top, spent[i].name, spent[i].percent / 100,
                is_work ? "#4477aa" : "#ee6677", text);
    }
    return top + STEP;
}

// ---- all

/** Draws a kernel's name, shortened if need be: names of C++ kernels can be longer than the picture
 *  is wide. */
static void draw_name(FILE *to, const char *name, int top) {
    enum { SHOWN = 100 };
    char *shown = cli_text("%.*s%s", SHOWN, name, strlen(name) > SHOWN ? "..." : "");
    fprintf(to, "<text x='16' y='%d' font-size='17'>", top + 16);
    cli_write_xml(to, shown);
    fputs("</text>\n", to);
    free(shown);
}

static int draw_kernel(FILE *to, const json_t *k, int top) {
    draw_name(to, json_string_value(json_object_get(k, "name")), top);
    fprintf(to,
            "<text x='%d' y='%d' fill='#555555'>%s, device %lld; launches: %lld; workgroups: %lld; "
            "VGPRs: %lld</text>\n",
            LEFT, top + STEP + 13, json_string_value(json_object_get(k, "arch")),
            json_integer_value(json_object_get(k, "device")),
            json_integer_value(json_object_get(k, "launches")),
            json_integer_value(json_object_get(k, "workgroups")),
            json_integer_value(json_object_get(k, "vgprs")));
    top = draw_mix(to, k, top + 2 * STEP + 6);
    top = draw_bytes(to, k, top + 6);
    top = draw_occupancy(to, k, top + 6);
    return draw_clock(to, k, top + 6) + GAP;
}

char *profile_draw(const json_t *kernels) {
    char *body = nullptr;
    size_t bytes = 0, i;
    json_t *k;
    int height = GAP / 2;
    FILE *to = cli_stream(&body, &bytes);
    json_array_foreach((json_t *)(uintptr_t)kernels, i, k) height = draw_kernel(to, k, height);
    fclose(to);
    char *text = svg_whole(height, body);
    free(body);
    return text;
}
