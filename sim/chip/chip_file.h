// SPDX-License-Identifier: Apache-2.0
// Chip files, by which a simulated chip differs from the built-in one (chip_file.c).
#ifndef SIM_CHIP_FILE_H
#define SIM_CHIP_FILE_H

#include "timing.h"

#include <stddef.h>
#include <stdio.h>

typedef struct sim_chip_file {
    sim_chip chip; // chip.timing is &timing
    sim_timing timing;
} sim_chip_file;

/** Reads a chip file. On failure returns false and says in `error` which line is wrong, what was
 *  found and what is accepted. */
bool sim_chip_file_read(sim_chip_file *out, const char *path, char *error, size_t error_bytes);
/** Writes a chip of which time is modelled as a chip file with all entries. */
void sim_chip_file_write(FILE *to, const sim_chip *chip);

#endif
