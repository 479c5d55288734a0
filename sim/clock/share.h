// SPDX-License-Identifier: Apache-2.0
// How many of an XCD's lines others read as well (share.c).
#ifndef SIM_SHARE_H
#define SIM_SHARE_H

#include "sample.h"

/** Returns how many of 1024 lines that the first XCD reads are its own to fetch from memory: of a
 *  line that n XCDs read, one n-th is. Without memory, 1024. Called before the dispatch's
 *  workgroups run. */
uint32_t sim_own_share(sim_dispatch *d, const sim_sample *sample);

#endif
