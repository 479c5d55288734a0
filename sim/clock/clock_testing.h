// SPDX-License-Identifier: Apache-2.0
// For the tests of the clock: how long small programs take.
#ifndef SIM_CLOCK_TESTING_H
#define SIM_CLOCK_TESTING_H

#include "../chip/timing.h"
#include "../look/look_testing.h"
#include "clock.h"

#include <math.h>

constexpr unsigned REPEATS = 8;
enum { SOURCE_BYTES = 1 << 14 };
static const sim_timing *timing; // of one_wave's chip
static test_launch one_wave = {.groups = 1, .lds_bytes = 4096};

/** Makes the tests run on a chip, in waves of its size. */
static inline void use(const char *arch) {
    const sim_chip *chip = sim_chip_by_name(arch);
    one_wave.arch = arch;
    one_wave.threads = chip->wave_size;
    timing = chip->timing;
}

/** Runs a program on a device's clock, and returns what the clock says. */
static inline sim_clock_result run_on(sim_clock *clock, sim_clock_mode mode,
                                      const test_launch *launch, const char *source) {
    sim_clock_result timed = {};
    test_launch timed_launch = *launch;
    timed_launch.clock = clock;
    timed_launch.clock_mode = mode;
    timed_launch.timed = &timed;
    run_program(&timed_launch, source);
    return timed;
}

static inline sim_clock_result run_in(sim_clock_mode mode, const test_launch *launch,
                                      const char *source) {
    sim_clock clock;
    sim_clock_init(&clock);
    const sim_clock_result timed = run_on(&clock, mode, launch, source);
    sim_clock_deinit(&clock);
    return timed;
}

static inline sim_clock_result run_new(const test_launch *launch, const char *source) {
    return run_in(SIM_CLOCK_FULL, launch, source);
}

/** Writes a program that runs `before` once and then, `loops` times, `body` `repeats` times. */
static inline void write_loop(char source[SOURCE_BYTES], const char *before, const char *body,
                              unsigned repeats, unsigned loops) {
    const int n = snprintf(source, SOURCE_BYTES,
                           "%s\n s_movk_i32 s20, %u\nloop:\n .rept %u\n %s\n .endr\n"
                           " s_sub_u32 s20, s20, 1\n s_cmp_lg_u32 s20, 0\n"
                           " s_cbranch_scc1 loop\n s_endpgm\n",
                           before, loops, repeats, body);
    assert_true(n > 0 && n < SOURCE_BYTES);
}

/** Returns the cycles of ten turns of a loop. `is_warm`: the memory-side cache holds what an
 *  earlier launch has read. */
static inline double ten_turns(const char *before, const char *body, unsigned repeats,
                               bool is_warm) {
    static char source[SOURCE_BYTES];
    double cycles[2];
    for (unsigned more = 0; more < 2; more++) {
        sim_clock clock;
        sim_clock_init(&clock);
        write_loop(source, before, body, repeats, more ? 20 : 10);
        if (is_warm)
            run_on(&clock, SIM_CLOCK_FULL, &one_wave, source);
        cycles[more] = (double)run_on(&clock, SIM_CLOCK_FULL, &one_wave, source).cycles;
        sim_clock_deinit(&clock);
    }
    return cycles[1] - cycles[0];
}

/** Returns the cycles of one `body` in a wave: of those by which a loop of twice as many is
 *  longer. */
static inline double cycles_of(const char *before, const char *body, bool is_warm) {
    return (ten_turns(before, body, 2 * REPEATS, is_warm) -
            ten_turns(before, body, REPEATS, is_warm)) /
           (10.0 * REPEATS);
}

static inline void expect_cycles(const char *name, double found, double expected) {
    if (fabs(found - expected) > 0.02 * expected)
        fail_msg("%s: %.2f cycles; expected %.2f", name, found, expected);
}

#endif
