// SPDX-License-Identifier: Apache-2.0
// Modelled time: turns the simulated GPU's clock on, and asks it where time went.
#include "clock.h"

#include "simulator.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void cli_clock_start(const char *usual, const char *mode) {
    const char *given = getenv("QUERN_SIM");
    char *text =
        cli_text("clock=%s;%s", usual, given ? given : ""); // an option's last value counts
    if (mode)
        text = cli_sim_option(text, "clock", mode);
    cli_set_env("QUERN_SIM", text);
    free(text);
}

json_t *cli_clock_take(void) {
    typedef int (*ask_fn)(int device, char *json, size_t bytes);
    static char text[2048]; // as quernsim_clock asks for
    // The library that is open already, wherever it lies.
    void *library = dlopen("libquernsim.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const ask_fn ask = library ? (ask_fn)dlsym(library, "quernsim_clock") : nullptr;
    const bool is_told = ask && ask(-1, text, sizeof text);
    json_t *clock = is_told ? json_loads(text, 0, nullptr) : nullptr;
    if (library)
        dlclose(library);
    if (is_told && !clock)
        cli_out_of_memory();
    return clock;
}

// ---- shares

static int by_share(const void *a, const void *b) {
    const double x = ((const cli_spent *)a)->percent, y = ((const cli_spent *)b)->percent;
    return (x < y) - (x > y);
}

int cli_clock_spent(cli_spent out[CLI_SPENT], const json_t *clock) {
    json_t *cycles = json_object_get(clock, "simd_cycles"), *value;
    const char *name;
    double all = 0;
    int count = 0;
    json_object_foreach(cycles, name, value) all += (double)json_integer_value(value);
    json_object_foreach(cycles, name, value) {
        if (json_integer_value(value) > 0 && count < CLI_SPENT)
            out[count++] = (cli_spent){name, 100 * (double)json_integer_value(value) / all};
    }
    qsort(out, (size_t)count, sizeof *out, by_share);
    return count;
}

const char *cli_clock_text(const json_t *clock, int shares, char *buf, size_t room) {
    cli_spent spent[CLI_SPENT];
    const int count = cli_clock_spent(spent, clock);
    snprintf(buf, room, "-");
    for (int i = 0; i < count && i < shares && spent[i].percent >= 0.5; i++) {
        const size_t used = i ? strlen(buf) : 0;
        snprintf(buf + used, room - used, "%s%s %.0f %%", i ? ", " : "", spent[i].name,
                 spent[i].percent);
    }
    return buf;
}
