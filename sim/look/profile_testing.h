// SPDX-License-Identifier: Apache-2.0
// For the tests of the profile: makes a program's profile and finds numbers in it.
#ifndef SIM_PROFILE_TESTING_H
#define SIM_PROFILE_TESTING_H

#include "look_testing.h"

/** Starts a profile in a new file. */
static inline void begin_profile(char path[64]) {
    sim_look_options options = {};
    make_path(path);
    strcpy(options.profile, path);
    configure(&options);
}

/** Ends the profile. Returns its JSON, which the caller frees. */
static inline char *end_profile(const char *path) {
    sim_look_finish();
    char *json = read_file(path);
    unlink(path);
    return json;
}

/** Runs a program. Returns its profile as JSON, which the caller frees. */
static inline char *profile(const test_launch *launch, const char *source) {
    char path[64];
    begin_profile(path);
    run_program(launch, source);
    return end_profile(path);
}

/** Returns the first number of that name behind `from`. */
static inline uint64_t number(const char *from, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = from ? strstr(from, key) : nullptr;
    if (!at)
        fail_msg("no %s in %.2000s", name, from ? from : "nothing");
    return strtoull(at + strlen(key), nullptr, 10);
}

static inline void expect(const char *what, const char *json, const char *name, uint64_t wanted) {
    const uint64_t got = number(json, name);
    if (got != wanted) {
        fail_msg("%s: %s is %llu, wanted %llu", what, name, (unsigned long long)got,
                 (unsigned long long)wanted);
    }
}

static const char *const archs[] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};
enum { NUM_ARCHS = sizeof archs / sizeof *archs };

static inline bool is_rdna(const char *arch) {
    return strncmp(arch, "gfx1", 4) == 0 && arch[4] != 0;
}

static inline bool is_gfx12(const char *arch) {
    return strncmp(arch, "gfx12", 5) == 0;
}

static inline uint32_t lanes_of(const char *arch) {
    return is_rdna(arch) ? 32 : 64;
}

#endif
