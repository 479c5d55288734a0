// SPDX-License-Identifier: Apache-2.0
// Modelled time in a profile's page: the main figures, where the SIMDs' cycles went, and what the
// levels of memory were asked for.
#include "../sim/clock.h"
#include "page.h"

#include <math.h>
#include <string.h>

// ---- the main figures

static void write_tile(const page *p, const char *title, const char *value, const char *about) {
    fprintf(p->to, "<div><dt>%s</dt><dd>%s</dd><dd>%s</dd></div>\n", title, value, about);
}

static void write_time(const page *p) {
    char time[32], free_time[32], about[96];
    const int64_t launches = page_integer(p->kernel, "launches");
    const int64_t each = page_integer(p->clock, "ns") / (launches ? launches : 1);
    const int64_t unlimited = page_integer(p->clock, "unlimited_ns") / (launches ? launches : 1);
    snprintf(about, sizeof about, "a launch, modelled; %s without the power limit",
             cli_time_text(unlimited, free_time, sizeof free_time));
    write_tile(p, "Modelled time", cli_time_text(each, time, sizeof time), about);
}

/** Writes how long launches took on streams that share the chip, if they did. */
static void write_elapsed(const page *p) {
    const int64_t launches = page_integer(p->clock, "elapsed_launches");
    const int64_t all = page_integer(p->clock, "elapsed_ns");
    const int64_t shared = page_integer(p->clock, "shared_ns");
    char time[32], about[96];
    if (!shared)
        return;
    snprintf(about, sizeof about, "a launch; %.1f %% of it beside other launches",
             profile_percent(shared, all));
    write_tile(p, "From start to end", cli_time_text(all / launches, time, sizeof time), about);
}

static void write_clock(const page *p) {
    char value[32], about[96];
    snprintf(value, sizeof value, "%lld MHz", (long long)page_integer(p->clock, "mhz"));
    snprintf(about, sizeof about, "of %lld MHz at most; the board draws %lld W",
             (long long)page_integer(p->chip, "mhz"), (long long)page_integer(p->clock, "watts"));
    write_tile(p, "Clock", value, about);
}

static void write_work(const page *p) {
    const page_work w = page_work_of(p);
    char value[48], rate[32], about[96];
    const double each = p->ns > 0 ? w.operations / p->ns : 0;
    snprintf(value, sizeof value, "%sop/s", page_rate(each * 1e9, rate, sizeof rate));
    snprintf(about, sizeof about, "%.1f %% of the peak of its %s",
             w.peak > 0 ? 100 * each / w.peak : 0, w.name);
    write_tile(p, "Throughput", value, about);
}

static void write_memory_rate(const page *p) {
    char value[48], rate[32], about[96];
    const double each = p->ns > 0 ? page_level_bytes(p, &page_levels[0]) / p->ns : 0;
    snprintf(value, sizeof value, "%sB/s", page_rate(each * 1e9, rate, sizeof rate));
    snprintf(about, sizeof about, "%.1f %% of what memory gives",
             100 * each / page_level_peak(p, &page_levels[0]));
    write_tile(p, "Memory", value, about);
}

static void write_waves(const page *p) {
    const json_t *o = json_object_get(p->kernel, "occupancy");
    char value[32], about[96];
    snprintf(value, sizeof value, "%.2f", profile_waves(p->kernel));
    snprintf(about, sizeof about, "on average; room for %.0f, limited by %s",
             page_number(o, "waves") / page_number(p->chip, "simds"),
             json_string_value(json_object_get(o, "limit")));
    write_tile(p, "Waves a SIMD", value, about);
}

static void write_busy(const page *p) {
    const json_t *cycles = json_object_get(p->clock, "simd_cycles");
    const int64_t all = profile_cycles(p->clock);
    const char *name;
    json_t *value;
    int64_t issued = 0;
    char text[32], about[96];
    json_object_foreach((json_t *)(uintptr_t)cycles, name, value) issued +=
        strncmp(name, "issued", 6) == 0 ? json_integer_value(value) : 0;
    snprintf(text, sizeof text, "%.1f %%", profile_percent(issued, all));
    snprintf(about, sizeof about, "of cycles; %.1f %% waiting, %.1f %% without a wave",
             profile_percent(profile_busy_cycles(p->clock) - issued, all),
             profile_percent(page_integer(cycles, "idle"), all));
    write_tile(p, "SIMDs issue in", text, about);
}

void page_tiles(const page *p) {
    fputs("<dl class=tiles>\n", p->to);
    write_time(p);
    write_elapsed(p);
    write_clock(p);
    write_work(p);
    write_memory_rate(p);
    write_waves(p);
    write_busy(p);
    fputs("</dl>\n", p->to);
}

// ---- the SIMDs' cycles

/** Returns what a way to spend a cycle means. */
static const char *about_spent(const char *name) {
    static const struct {
        const char *name, *about;
    } known[] = {
        {"issued_matrix", "a matrix instruction issues"},
        {"issued_valu", "a vector instruction issues"},
        {"issued_vmem", "a vector memory instruction issues"},
        {"issued_lds", "an LDS instruction issues"},
        {"issued_scalar", "a scalar instruction issues"},
        {"issued_other", "a branch, message or the like issues"},
        {"wait_matrix", "the matrix unit is busy"},
        {"wait_valu", "the lanes are busy"},
        {"wait_vmem", "s_waitcnt for vector memory"},
        {"wait_lds", "s_waitcnt for LDS or scalar memory"},
        {"wait_queue", "LDS or vector memory takes no more instructions"},
        {"wait_barrier", "other waves have not come to the barrier"},
        {"wait_fetch", "the instruction is not there yet, or a branch was taken"},
        {"wait_wave", "each wave issues once a visit; s_nop, s_sleep"},
        {"idle", "no wave is there"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].about;
    return "";
}

void page_stalls(const page *p) {
    cli_spent spent[CLI_SPENT];
    const int count = cli_clock_spent(spent, p->clock);
    fputs("<figure class=\"card stalls\"><h3>Where the SIMDs' cycles went <small>modelled, of the "
          "compute units that ran</small></h3>\n<div class=stack aria-hidden=true>",
          p->to);
    for (int i = 0; i < count; i++)
        fprintf(p->to, "<i class=k-%s style=\"width:%.3f%%\"></i>", spent[i].name,
                spent[i].percent);
    fputs("</div>\n<dl class=rows>\n", p->to);
    for (int i = 0; i < count; i++)
        fprintf(p->to,
                "<dt class=k-%s title=\"%s\">%s</dt><dd><div class=bar><i class=k-%s "
                "style=\"width:%.3f%%\"></i></div></dd><dd class=value>%.1f %%</dd>\n",
                spent[i].name, about_spent(spent[i].name), spent[i].name, spent[i].name,
                100 * spent[i].percent / spent[0].percent, spent[i].percent);
    fputs("</dl></figure>\n", p->to);
}

// ---- levels of memory

static void write_level(const page *p, const page_level *level) {
    const double bytes = page_level_bytes(p, level), peak = page_level_peak(p, level);
    const double each = p->ns > 0 ? bytes / p->ns : 0;
    char size[32], rate[32], most[32], hits[32] = "-";
    if (level->hits && page_integer(p->memory, level->lines))
        snprintf(hits, sizeof hits, "%.1f %%",
                 profile_percent(page_integer(p->memory, level->hits),
                                 page_integer(p->memory, level->lines)));
    fprintf(p->to,
            "<tr class=%s><td>%s</td><td class=n>%s</td><td class=n>%s</td><td class=n>%sB/s</td>"
            "<td class=of><div class=bar><i style=\"width:%.2f%%\"></i></div></td>"
            "<td class=n>%.1f %% of %sB/s</td></tr>\n",
            level->class, level->name, cli_bytes_text((int64_t)bytes, size, sizeof size), hits,
            page_rate(each * 1e9, rate, sizeof rate), fmin(100, 100 * each / peak),
            100 * each / peak, page_rate(peak * 1e9, most, sizeof most));
}

void page_memory(const page *p) {
    fprintf(
        p->to,
        "<section class=\"card wide\"><h3>Memory, level by level <small>modelled, from %lld of "
        "%lld workgroups</small></h3>\n<table class=levels><thead><tr><th>Level</th><th class=n>"
        "Asked for</th><th class=n>Hits</th><th class=n>Rate</th><th colspan=2>Of the level's "
        "peak at this clock</th></tr></thead><tbody>\n",
        (long long)page_integer(p->clock, "workgroups_run"),
        (long long)page_integer(p->clock, "workgroups"));
    for (int i = PAGE_LEVELS; i-- > 0;)
        write_level(p, &page_levels[i]);
    fputs("</tbody></table></section>\n", p->to);
}
