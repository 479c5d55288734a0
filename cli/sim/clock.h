// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's clock, for the commands that show modelled time (clock.c).
#ifndef CLI_SIM_CLOCK_H
#define CLI_SIM_CLOCK_H

#include "../cli.h"

/** Turns on the clock of the simulated devices that this process will open: in the mode, or with
 *  null in the one that QUERN_SIM asks for, else in the usual one. "sample" and "xcd" leave results
 *  incomplete. */
void cli_clock_start(const char *usual, const char *mode);
/** Returns what the simulated devices' launches since the last call took, as a profile's member
 *  "clock" has it, with a reference for the caller; null without a simulated device whose time is
 *  modelled. */
json_t *cli_clock_take(void);

typedef struct cli_spent {
    const char *name; // "wait_vmem"
    double percent;   // of the cycles of the SIMDs that ran
} cli_spent;

enum { CLI_SPENT = 32 }; // ways to spend a cycle, at most
/** Writes where the cycles of the SIMDs went, the largest share first. Returns how many have a
 *  share. The names live as long as `clock`. */
int cli_clock_spent(cli_spent out[CLI_SPENT], const json_t *clock);
/** Writes the largest shares of one percent and more, "wait_vmem 41 %, idle 30 %", to buf and
 *  returns buf. */
const char *cli_clock_text(const json_t *clock, int shares, char *buf, size_t room);

#endif
