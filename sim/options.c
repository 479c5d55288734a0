// SPDX-License-Identifier: Apache-2.0
// The options of the simulated GPU, as QUERN_SIM and quernsim_configure give them.
#include "options.h"

#include "chip/chip.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** The options that values are read into, and where a complaint goes. */
typedef struct reader {
    sim_options options;
    char *error;
    size_t error_bytes;
} reader;

typedef struct key {
    const char *name;
    bool (*read)(reader *r, const char *value);
} key;

[[gnu::format(printf, 2, 3)]] static bool complain(reader *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(r->error, r->error_bytes, format, args);
    va_end(args);
    return false;
}

static bool complain_arch(reader *r, const char *name, const char *why) {
    char accepted[128] = "";
    for (int i = 0; i < SIM_NUM_ARCHS; i++) {
        const sim_chip *chip = sim_chip_by_arch((sim_arch)i);
        const size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, "%s%s", used ? ", " : "", chip->name);
    }
    return complain(r, "arch=%s: %s; accepted: %s", name, why, accepted);
}

static bool read_one_arch(reader *r, const char *name) {
    const sim_chip *chip = sim_chip_by_name(name);
    if (!chip)
        return complain_arch(r, name, "no such chip");
    if (r->options.num_archs == SIM_MAX_DEVICES) {
        return complain(r, "arch=%s: device %d; accepted: at most %d devices", name,
                        SIM_MAX_DEVICES + 1, SIM_MAX_DEVICES);
    }
    r->options.archs[r->options.num_archs++] = chip->arch;
    return true;
}

static bool read_one_check(reader *r, const char *name) {
    static const struct {
        const char *name;
        uint32_t bits;
    } checks[] = {{"none", 0},
                  {"bounds", SIM_CHECK_BOUNDS},
                  {"barrier", SIM_CHECK_BARRIER},
                  {"wait", SIM_CHECK_WAIT},
                  {"uninit", SIM_CHECK_UNINIT},
                  {"race", SIM_CHECK_RACE},
                  {"align", SIM_CHECK_ALIGN},
                  {"all", SIM_CHECK_ALL}};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (strcmp(name, checks[i].name) == 0) {
            r->options.check = checks[i].bits ? r->options.check | checks[i].bits : 0;
            return true;
        }
    }
    return complain(r,
                    "check=%s: no such check; accepted: none, bounds, barrier, wait, uninit, race, "
                    "align, all",
                    name);
}

/** Calls read for each name of a comma list; an empty name is an error of read's. */
static bool read_list(reader *r, const char *value, bool (*read)(reader *, const char *)) {
    for (;;) {
        const size_t length = strcspn(value, ",");
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)length, value);
        if (!read(r, name))
            return false;
        if (!value[length])
            return true;
        value += length + 1;
    }
}

static bool read_arch(reader *r, const char *value) {
    return read_list(r, value, read_one_arch);
}

static bool read_check(reader *r, const char *value) {
    r->options.check = 0;
    return read_list(r, value, read_one_check);
}

static bool read_mfma(reader *r, const char *value) {
    r->options.fast_matrix = strcmp(value, "fast") == 0;
    return r->options.fast_matrix || strcmp(value, "exact") == 0 ||
           complain(r, "mfma=%s: no such mode; accepted: exact, fast", value);
}

static const char *const exec_builds[SIM_NUM_EXECS] = {"best", "baseline", "avx2", "avx512"};

static bool complain_exec(reader *r, const char *value, const char *why) {
    char accepted[64] = "best";
    for (sim_exec_build i = SIM_EXEC_BASELINE; i < SIM_NUM_EXECS; i++) {
        const size_t used = strlen(accepted);
        if (!sim_exec_lacks(i))
            snprintf(accepted + used, sizeof accepted - used, ", %s", exec_builds[i]);
    }
    return complain(r, "exec=%s: %s; accepted: %s", value, why, accepted);
}

static bool read_exec(reader *r, const char *value) {
    const char *why = "no such build";
    for (sim_exec_build i = SIM_EXEC_BEST; i < SIM_NUM_EXECS; i++) {
        if (strcmp(value, exec_builds[i]) == 0) {
            r->options.exec = i;
            why = sim_exec_lacks(i);
        }
    }
    return !why || complain_exec(r, value, why);
}

static bool read_clock(reader *r, const char *value) {
    static const char *const modes[] = {"off", "on", "full", "sample", "xcd"};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(value, modes[i]) == 0) {
            r->options.clock = (sim_clock_mode)i;
            return true;
        }
    }
    return complain(r, "clock=%s: no such mode; accepted: off, on, full, sample, xcd", value);
}

static bool read_overread(reader *r, const char *value) {
    r->options.passes_overreads = strcmp(value, "report") == 0;
    return r->options.passes_overreads || strcmp(value, "fail") == 0 ||
           complain(r, "overread=%s: no such choice; accepted: fail, report", value);
}

static bool read_number(const char *value, uint64_t max, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    *out = number;
    return *value >= '0' && *value <= '9' && !*end && !errno && number <= max;
}

static bool read_threads(reader *r, const char *value) {
    uint64_t number;
    if (!read_number(value, 1024, &number) || number == 0)
        return complain(r, "threads=%s: accepted: 1 to 1024", value);
    r->options.threads = (uint32_t)number;
    return true;
}

static bool read_turn(reader *r, const char *value) {
    uint64_t number;
    if (!read_number(value, UINT32_MAX, &number) || number == 0) {
        return complain(r,
                        "turn=%s: accepted: instructions of a wave until the next one's turn, "
                        "1 to 4294967295",
                        value);
    }
    r->options.turn = (uint32_t)number;
    return true;
}

static bool read_limit(reader *r, const char *value) {
    return read_number(value, UINT64_MAX, &r->options.limit) ||
           complain(r, "limit=%s: accepted: instructions a wave may execute, 0 for any number",
                    value);
}

static bool read_faults(reader *r, const char *value) {
    uint64_t number;
    if (!read_number(value, 10000, &number) || number == 0)
        return complain(r, "faults=%s: accepted: 1 to 10000", value);
    r->options.faults = (uint32_t)number;
    return true;
}

/** Reads KERNEL or KERNEL:WAVE, where WAVE is a number or '*'. */
static bool read_trace(reader *r, const char *value) {
    sim_look_options *look = &r->options.look;
    const char *colon = strrchr(value, ':');
    const size_t length = colon ? (size_t)(colon - value) : strlen(value);
    const bool is_all = colon && strcmp(colon, ":*") == 0;
    uint64_t wave = is_all ? SIM_ALL_WAVES : 0;
    if (colon && !is_all && !read_number(colon + 1, SIM_ALL_WAVES - 1, &wave)) {
        return complain(r, "trace=%s: after the colon accepted: a wave's number, or * for all",
                        value);
    }
    if (length == 0 || length >= sizeof look->trace) {
        return complain(r,
                        "trace=%s: accepted: KERNEL[:WAVE], a kernel's name or pattern of 1 to "
                        "%zu letters",
                        value, sizeof look->trace - 1);
    }
    snprintf(look->trace, sizeof look->trace, "%.*s", (int)length, value);
    look->trace_wave = wave;
    return true;
}

static bool read_path(reader *r, const char *key, const char *value, char path[SIM_PATH_BYTES]) {
    if (!*value || strlen(value) >= SIM_PATH_BYTES) {
        return complain(r, "%s=%s: accepted: a file's name of 1 to %d letters", key, value,
                        SIM_PATH_BYTES - 1);
    }
    strcpy(path, value);
    return true;
}

static bool read_trace_file(reader *r, const char *value) {
    return read_path(r, "trace_file", value, r->options.look.trace_file);
}

static bool read_profile(reader *r, const char *value) {
    return read_path(r, "profile", value, r->options.look.profile);
}

static bool read_timeline(reader *r, const char *value) {
    return read_path(r, "timeline", value, r->options.look.timeline);
}

static bool read_report(reader *r, const char *value) {
    return read_path(r, "report", value, r->options.report);
}

static bool read_chip(reader *r, const char *value) {
    return read_path(r, "chip", value, r->options.chip);
}

static bool read_errorcode(reader *r, const char *value) {
    uint64_t number;
    if (!read_number(value, 255, &number))
        return complain(r, "errorcode=%s: accepted: 0 to 255", value);
    r->options.errorcode = (uint32_t)number;
    return true;
}

static const key keys[] = {{"arch", read_arch},        {"chip", read_chip},
                           {"check", read_check},      {"mfma", read_mfma},
                           {"exec", read_exec},        {"clock", read_clock},
                           {"threads", read_threads},  {"limit", read_limit},
                           {"trace", read_trace},      {"trace_file", read_trace_file},
                           {"profile", read_profile},  {"faults", read_faults},
                           {"report", read_report},    {"errorcode", read_errorcode},
                           {"turn", read_turn},        {"overread", read_overread},
                           {"timeline", read_timeline}};

/** Reads one "key=value". */
static bool read_item(reader *r, char *item) {
    char *value = strchr(item, '=');
    if (!value)
        return complain(r, "'%s' is not of the form key=value", item);
    *value++ = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(item, keys[i].name) == 0)
            return keys[i].read(r, value);
    return complain(
        r,
        "unknown key '%s'; accepted: arch, chip, check, mfma, exec, clock, threads, turn, "
        "limit, faults, report, errorcode, overread, trace, trace_file, profile, timeline",
        item);
}

/** Checks that there is modelled time for a timeline to show. */
static bool has_time(reader *r) {
    const char *path = r->options.look.timeline;
    return !*path || r->options.clock != SIM_CLOCK_OFF ||
           complain(r, "timeline=%s: no time is modelled; accepted with clock=on, full or sample",
                    path);
}

bool sim_options_parse(sim_options *options, const char *text, char *error, size_t error_bytes) {
    reader r = {*options, error, error_bytes};
    char *copy = strdup(text);
    if (!copy)
        return complain(&r, SIM_OPTIONS_NO_MEMORY);
    char *rest = copy;
    bool ok = true;
    for (char *item; ok && (item = strsep(&rest, ";"));)
        ok = !*item || read_item(&r, item);
    free(copy);
    ok = ok && has_time(&r);
    if (ok)
        *options = r.options;
    return ok;
}

char *sim_option_file(const char *path, bool is_child) {
    const char *mark = strstr(path, "%p");
    char *name = nullptr;
    const int length =
        mark ? asprintf(&name, "%.*s%ld%s", (int)(mark - path), path, (long)getpid(), mark + 2)
        : is_child ? asprintf(&name, "%s.%ld", path, (long)getpid())
                   : asprintf(&name, "%s", path);
    return length < 0 ? nullptr : name;
}
