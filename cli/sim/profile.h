// SPDX-License-Identifier: Apache-2.0
// What the files of quern profile share: what the simulated GPU counted, in words and as a picture.
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "../cli.h"
#include "../file.h"

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

// ---- profile_collect.c

/** Collects the counters of all files in the folder; *processes counts the processes that used the
 *  simulated GPU. */
json_t *profile_collect(const char *folder, int *processes);
/** Maps a process's file. Returns false if the file cannot be read; ends the command if that is
 *  for want of memory. */
bool profile_map(cli_map *map, const char *path);
/** Adds every number of an object to that of the same name in another, at any depth. */
void profile_add_numbers(json_t *to, const json_t *from);

/** Returns an HTML page of all kernels and the program's arguments; the caller frees it. */
char *profile_page(const json_t *kernels, int count, char **arguments);

/** How the names of processes' timelines end. */
#define PROFILE_TIMELINE ".timeline"
/** Returns the timelines of all processes in the folder as one, which the caller frees.
 *  (profile_timeline.c) */
char *profile_timeline(const char *folder);

// ---- profile_code.c

/** Adds the member "lines" to the modelled time of a kernel whose instructions have source lines:
 *  what each line cost, the dearest first. */
void profile_add_lines(json_t *kernel);
/** Returns all cycles of an instruction, a line or a clock. */
int64_t profile_cycles(const json_t *of);
/** Returns the cycles during which SIMDs had waves. */
int64_t profile_busy_cycles(const json_t *clock);
/** Returns the elements of `items` that cost cycles, the dearest first, and their number; the
 *  caller frees the list. */
const json_t **profile_dearest(const json_t *items, size_t *count);
/** Writes an instruction's place, "+0x002c" behind the kernel's first one, to buf and returns
 *  buf. */
const char *profile_place(const json_t *kernel, const json_t *instruction, char *buf, size_t room);
/** Returns the waves that a SIMD had on average. */
double profile_waves(const json_t *kernel);

/** Prints every kernel's counters for people. (profile_text.c) */
void profile_print(FILE *to, const json_t *kernels);
/** Draws a picture of every kernel: instruction mix, bytes, occupancy, where modelled time went if
 *  there is any. The caller frees it.
 *  (profile_svg.c) */
char *profile_draw(const json_t *kernels);

#endif
