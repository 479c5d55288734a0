// SPDX-License-Identifier: Apache-2.0
// Chip files: the one that the model amounts to, and the one that a card's results make.
#include "../sim/simulator.h"
#include "probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the model's

/** Opens a library; null without an error if there is none. */
static qn_status open_library(void **out, const char *path, int flags) {
    errno = 0;
    *out = dlopen(path, flags | RTLD_NOW | RTLD_LOCAL);
    const int error = errno;
    const char *why = *out ? nullptr : dlerror(); // null, too, where RTLD_NOLOAD finds nothing
    if (!*out && (error == ENOMEM || (why && strstr(why, "memory"))))
        return cli_fail(QN_E_MEMORY, "%s: out of memory", path);
    return QN_OK;
}

/** Opens the simulated GPU: the one that is open already, else the one beside this program. */
static qn_status open_simulator(void **out) {
    CLI_TRY(open_library(out, "libquernsim.so.0", RTLD_NOLOAD));
    char *folder = *out ? nullptr : cli_sim_folder();
    if (!folder)
        return QN_OK;
    char *path = cli_text("%s/libamdhip64.so", folder);
    const qn_status st = open_library(out, path, 0);
    free(path);
    free(folder);
    return st;
}

qn_status probe_chip_load(probe_chip *out, const char *arch) {
    typedef int (*ask_fn)(const char *arch, char *text, size_t bytes);
    enum { ROOM = 4096 }; // as quernsim_chip asks for
    void *library;
    CLI_TRY(open_simulator(&library));
    *out = (probe_chip){.text = cli_alloc(ROOM)};
    const ask_fn ask = library ? (ask_fn)dlsym(library, "quernsim_chip") : nullptr;
    const int told = ask ? ask(arch, out->text, ROOM) : 0;
    if (told <= 0)
        probe_chip_unload(out);
    return told < 0 ? cli_fail(QN_E_MEMORY, "out of memory for the model of %s", arch) : QN_OK;
}

void probe_chip_unload(probe_chip *chip) {
    free(chip->text);
    *chip = (probe_chip){0};
}

double probe_chip_get(const probe_chip *chip, const char *entry) {
    const size_t length = strlen(entry);
    for (const char *line = chip->text; line && *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, entry, length) == 0 && line[length] == ' ')
            return strtod(line + length + 1, nullptr);
    return NAN;
}

// ---- a card's

constexpr double MOST_TIMES = 10; // off the model: from there on a value counts as an error

/** Returns whether a value may stand in the file: one far from the model's would rather be a
 *  probe's  fault than the card's, and may lie outside what a chip file accepts. */
static bool is_likely(double value, double model) {
    return value >= model / MOST_TIMES && value <= model * MOST_TIMES;
}

static void write_result(FILE *to, const probe_chip *chip, const probe_result *r) {
    const double model = r->info->entry ? probe_chip_get(chip, r->info->entry) : NAN;
    const bool is_entry = r->info->entry && is_likely(r->entry_value, model);
    if (*r->reason)
        fprintf(to, "# %s: %s", r->info->name, r->reason);
    else if (is_entry)
        fprintf(to, "%s %.0f # %s: %.2f %s", r->info->entry, fmax(1, round(r->entry_value)),
                r->info->name, r->value, r->info->unit);
    else
        fprintf(to, "# %s: %.2f %s", r->info->name, r->value, r->info->unit);
    if (!*r->reason && isfinite(r->model))
        fprintf(to, "; model %.2f", r->model);
    if (!*r->reason && r->info->entry && !is_entry)
        fprintf(to, "; %s stays the model's, this being %.0f times off or more", r->info->entry,
                MOST_TIMES);
    fprintf(to, *r->detail ? "; %s\n" : "%s\n", r->detail);
}

char *probe_file_text(const qn_device_info *device, const probe_chip *chip,
                      const probe_result *results, int count) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *to = cli_stream(&text, &bytes);
    const double xccs = probe_chip_get(chip, "num_xccs");
    fprintf(to, "# What quern %s's probes %s on %s: %s, driver %s.\n", qn_version(),
            device->is_modelled ? "gave" : "measured", device->spec, device->name, device->driver);
    fprintf(to, "# For chip= (docs/clock.md); docs/probe.md says what each probe does.\nbase %s\n",
            device->arch);
    if (isfinite(xccs) && fmod(device->num_compute_units, xccs) != 0)
        fprintf(to, "# ");
    fprintf(to, "compute_units %d\nclock_khz %d\n", device->num_compute_units, device->clock_khz);
    for (int i = 0; i < count; i++)
        write_result(to, chip, &results[i]);
    fclose(to);
    return text;
}
