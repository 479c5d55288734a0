// SPDX-License-Identifier: Apache-2.0
// The clock: how long a launch takes on the chip, modelled.
//
// A launch that is timed runs on the clock's machine (machine.h), which decides at which moment
// each wave executes its next instruction; what the instruction does is exec/'s. If the clock
// samples, the workgroups of one XCD run so, and the others as they always do.
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include "../chip/timing.h"
#include "../wave.h"
#include "tags.h"

#include <pthread.h>

constexpr uint32_t SIM_LINE = 128; // bytes of a line of the caches from the second level on

/** What a device's clock keeps from launch to launch. A device runs one timed launch at a time;
 *  when launches of several streams begin and end is for its schedule to say. */
typedef struct sim_clock {
    pthread_mutex_t lock;
    sim_tags mall; // empty until the first launch
    // The instruction caches, which keep the code of earlier launches: one for each scalar unit.
    sim_tags *code;
    uint32_t num_code;
    uint64_t ns;    // of all launches, as if each began when the one before had ended
    uint64_t ticks; // of earlier launches: when lines of mall arrive is counted from the first one
    sim_clock_result told; // the launches since sim_clock_tell
} sim_clock;

void sim_clock_init(sim_clock *clock);
void sim_clock_deinit(sim_clock *clock);
/** Runs the workgroups of a dispatch that are timed; its `clock` is not null. Adds the time that
 *  the launch takes to the clock's, which it returns, and leaves the result in dispatch->timed. */
uint64_t sim_clock_run(sim_dispatch *d);
/** Returns whether the clock ran that workgroup, so that it must not run again. */
bool sim_clock_has_run(const sim_dispatch *d, uint64_t flat_id);
/** Adds the launches since the last call to *sum. */
void sim_clock_tell(sim_clock *clock, sim_clock_result *sum);
/** Returns the host's clock in nanoseconds. */
uint64_t sim_host_ns(void);
/** Returns what a kernel reads as the core clock, and as the clock of 100 MHz: modelled time if the
 *  dispatch is timed, else the host's. */
uint64_t sim_clock_cycles(const sim_dispatch *d);
uint64_t sim_clock_100mhz(const sim_dispatch *d);

#endif
