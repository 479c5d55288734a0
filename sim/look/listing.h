// SPDX-License-Identifier: Apache-2.0
// A kernel's code as text, with the source lines that it comes from, for the profile (listing.c).
#ifndef SIM_LISTING_H
#define SIM_LISTING_H

#include "../clock/result.h"
#include "../wave.h"

#include <stdio.h>

/** An instruction of a listing. */
typedef struct sim_listed {
    char *text;     // as LLVM prints it; null: not listed
    char *function; // that has it; null: the kernel, or not known
    char *file;     // null: the object has no line for it
    uint32_t line;
} sim_listed;

typedef struct sim_listing {
    sim_listed *insts; // by (pc - start of the code) / 4
    uint64_t num_insts;
} sim_listing;

/** Adds the instructions that a dispatch ran at modelled time, and with them all of the functions
 *  that have them. Returns false if memory runs out. */
bool sim_listing_add(sim_listing *listing, const sim_dispatch *d);
void sim_listing_deinit(sim_listing *listing);
/** Writes the instructions as elements of a JSON array, in the order of the code, with what they
 *  cost. */
void sim_listing_write(FILE *out, const sim_listing *listing, const sim_clock_result *timed);

#endif
