// SPDX-License-Identifier: Apache-2.0
// Chip files: a chip that differs from a simulated one by what the lines say.
//
//     base gfx942          # first; which chip the others differ from
//     compute_units 80
//     limit_w 500          # any name of timing.def
//
// A name may stand once. '#' begins a comment.
#include "chip_file.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *name;
    size_t offset; // of a uint32_t in sim_chip_file
    uint32_t least, most;
} entry;

#define OF_CHIP(name, least, most) {#name, offsetof(sim_chip_file, chip.name), least, most}

static const entry entries[] = {
    OF_CHIP(compute_units, 1, 1024),
    OF_CHIP(clock_khz, 1000, 100000000),
    OF_CHIP(num_xccs, 1, 64),
    OF_CHIP(l2_bytes, 1024, 1 << 30),
#define SIM_TIMING(name, least, most, unit)                                                        \
    {#name, offsetof(sim_chip_file, timing.name), least, most},
#include "timing.def"
#undef SIM_TIMING
};
enum { NUM_ENTRIES = sizeof entries / sizeof *entries };

typedef struct reader {
    sim_chip_file *out;
    bool has_base, is_there[NUM_ENTRIES];
    const char *path;
    unsigned line;
    char *error;
    size_t error_bytes;
} reader;

[[gnu::format(printf, 2, 3)]] static bool complain(reader *r, const char *format, ...) {
    const int used = r->line ? snprintf(r->error, r->error_bytes, "%s:%u: ", r->path, r->line)
                             : snprintf(r->error, r->error_bytes, "%s: ", r->path);
    va_list args;
    va_start(args, format);
    if (used > 0 && (size_t)used < r->error_bytes)
        vsnprintf(r->error + used, r->error_bytes - (size_t)used, format, args);
    va_end(args);
    return false;
}

static bool read_base(reader *r, const char *value) {
    const sim_chip *chip = sim_chip_by_name(value);
    if (r->has_base)
        return complain(r, "base stands a second time");
    if (!chip || !chip->timing)
        return complain(r, "base is %s; accepted: a chip of which time is modelled, as of gfx942",
                        value);
    r->out->chip = *chip;
    r->out->timing = *chip->timing;
    return r->has_base = true;
}

static bool read_entry(reader *r, const char *name, const char *value) {
    size_t i = 0;
    while (i < NUM_ENTRIES && strcmp(entries[i].name, name) != 0)
        i++;
    if (i == NUM_ENTRIES)
        return complain(r, "no entry is named %s", name);
    if (!r->has_base)
        return complain(r, "%s stands before base", name);
    if (r->is_there[i])
        return complain(r, "%s stands a second time", name);
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, 10);
    const bool is_number = *value >= '0' && *value <= '9' && !*end && !errno;
    if (!is_number || number < entries[i].least || number > entries[i].most)
        return complain(r, "%s is %s; accepted: %u to %u", name, value, entries[i].least,
                        entries[i].most);
    *(uint32_t *)((char *)r->out + entries[i].offset) = (uint32_t)number;
    return r->is_there[i] = true;
}

static bool read_line(reader *r, char *text) {
    text[strcspn(text, "#\n")] = 0;
    char *rest = text;
    const char *words[3] = {};
    for (size_t i = 0; i < 3; i++)
        words[i] = strtok_r(rest, " \t\r", &rest);
    if (!words[0])
        return true;
    if (!words[1] || words[2])
        return complain(r, "not of the form NAME VALUE");
    return strcmp(words[0], "base") == 0 ? read_base(r, words[1])
                                         : read_entry(r, words[0], words[1]);
}

/** Checks what the entries must be together. */
static bool check(reader *r) {
    const sim_chip *chip = &r->out->chip;
    r->line = 0;
    if (!r->has_base)
        return complain(r, "base is missing: a line \"base gfx942\"");
    if (chip->compute_units % chip->num_xccs)
        return complain(r, "compute_units is %u; accepted: a multiple of num_xccs, %u",
                        chip->compute_units, chip->num_xccs);
    if (r->out->timing.limit_w <= r->out->timing.static_w)
        return complain(r, "limit_w is %u; accepted: more than static_w, %u",
                        r->out->timing.limit_w, r->out->timing.static_w);
    return true;
}

static bool read_lines(reader *r, FILE *file) {
    char *text = nullptr;
    size_t room = 0;
    bool ok = true;
    ssize_t length;
    while (ok && (length = getline(&text, &room, file)) >= 0) {
        r->line++;
        ok = strlen(text) == (size_t)length ? read_line(r, text)
                                            : complain(r, "a byte of zero is in the line");
    }
    const int error = errno;
    free(text);
    if (ok && !feof(file))
        return r->line = 0, complain(r, "cannot be read: %s", strerror(error));
    return ok;
}

bool sim_chip_file_read(sim_chip_file *out, const char *path, char *error, size_t error_bytes) {
    reader r = {.out = out, .path = path, .error = error, .error_bytes = error_bytes};
    FILE *file = fopen(path, "re");
    if (!file)
        return complain(&r, "%s", strerror(errno));
    const bool ok = read_lines(&r, file) && check(&r);
    fclose(file);
    out->chip.timing = &out->timing;
    return ok;
}

void sim_chip_file_write(FILE *to, const sim_chip *chip) {
    const sim_chip_file file = {.chip = *chip, .timing = *chip->timing};
    fprintf(to, "base %s\n", chip->name);
    for (size_t i = 0; i < NUM_ENTRIES; i++)
        fprintf(to, "%s %u\n", entries[i].name,
                *(const uint32_t *)((const char *)&file + entries[i].offset));
}
