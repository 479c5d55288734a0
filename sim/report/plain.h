// SPDX-License-Identifier: Apache-2.0
// Prints text from code objects, which may hold any bytes.
#ifndef SIM_PLAIN_H
#define SIM_PLAIN_H

#include <stdio.h>

/** Writes text for people. UTF-8 is written unchanged. Control characters, which may move a
 *  terminal's cursor or forge lines, and bytes that are no UTF-8 are written as \xNN. */
void sim_print_plain(FILE *out, const char *text);

/** Writes text as a JSON string. Bytes that are no UTF-8 are written as if they were Latin-1, so
 *  that the output is JSON. */
void sim_print_json(FILE *out, const char *text);

#endif
