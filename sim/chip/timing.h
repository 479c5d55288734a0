// SPDX-License-Identifier: Apache-2.0
// The numbers from which the clock (clock/) models a chip's time.
#ifndef SIM_TIMING_H
#define SIM_TIMING_H

#include "chip.h"

typedef struct sim_timing {
#define SIM_TIMING(name, least, most, unit) uint32_t name;
#include "timing.def"
#undef SIM_TIMING
} sim_timing;

extern const sim_timing sim_gfx90a_timing, sim_gfx942_timing, sim_gfx950_timing, sim_gfx1151_timing,
    sim_gfx1201_timing;

#endif
