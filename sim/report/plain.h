// SPDX-License-Identifier: Apache-2.0
// Text from code objects, which may hold any bytes, as it can be shown.
#ifndef SIM_PLAIN_H
#define SIM_PLAIN_H

#include <stdio.h>

/** Writes text for people: UTF-8 as it is; control characters, which may move a terminal's cursor
 *  or forge lines, and bytes that are no UTF-8 as \xNN. */
void sim_print_plain(FILE *out, const char *text);

/** Writes text as a JSON string. A byte that is no part of UTF-8 is written as if it were Latin-1,
 *  so that it stays JSON. */
void sim_print_json(FILE *out, const char *text);

#endif
