// SPDX-License-Identifier: Apache-2.0
// The picture of attention's speed over the length of prompts, with one line for each side.
#ifndef CLI_ATTENTION_PLOT_H
#define CLI_ATTENTION_PLOT_H

#include "limits.h"

typedef enum attention_kind { ATTENTION_WHOLE, ATTENTION_CAUSAL, ATTENTION_DECODE } attention_kind;

/** How fast one side is on one problem. */
typedef struct attention_speed {
    const char *side; // "quern", "flash"
    attention_kind kind;
    int64_t seq;     // of a prompt
    double a_second; // operations a second; for a decode, bytes of the cache a second
} attention_speed;

/** Draws whole and causal prompts apart, then bars of the decode, with the device's limits, as far
 *  as they are known. The caller frees the text. */
char *attention_draw(const qn_device_info *device, const cli_limits *limits,
                     const attention_speed *speeds, int count);

#endif
