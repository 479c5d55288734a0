// SPDX-License-Identifier: Apache-2.0
// What the files of quern profile share: what the simulated GPU counted, in words and as a picture.
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "../cli.h"

/** Returns a member of a kernel's counters; 0 if the chip has no such counter. */
int64_t profile_counter(const json_t *kernel, const char *name);
/** Returns a counter that has another name on RDNA; 0 if the chip has neither. */
int64_t profile_counter_of(const json_t *kernel, const char *cdna, const char *rdna);
/** Returns part of `whole` in percent; NaN if whole is 0. */
double profile_percent(int64_t part, int64_t whole);

/** One class of instructions as the picture shows it. The classes together are all
 *  instructions. */
typedef struct profile_class {
    const char *name, *color;
    int64_t count;
} profile_class;
enum { PROFILE_CLASSES = 8 };
void profile_classes(profile_class out[PROFILE_CLASSES], const json_t *kernel);

/** Prints every kernel's counters for people. (profile_text.c) */
void profile_print(FILE *to, const json_t *kernels);
/** Draws a picture of every kernel: instruction mix, bytes, occupancy, where modelled time went if
 *  there is any. The caller frees it.
 *  (profile_svg.c) */
char *profile_draw(const json_t *kernels);

#endif
