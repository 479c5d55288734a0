// SPDX-License-Identifier: Apache-2.0
// Printing for device code; hostcall.c calls what printf.c defines.
#ifndef SIM_HIP_HOSTCALL_H
#define SIM_HIP_HOSTCALL_H

#include <stddef.h>
#include <stdint.h>

/** Prints a message of device code. Returns the number of characters, or -1. (printf.c) */
int sim_device_printf(const uint64_t *words, size_t count);
/** Prints the arguments `words` by a format; a null format stands for one with which the words
 *  begin. Returns the number of characters, or -1. */
int sim_device_print(bool to_stderr, const char *format, const uint64_t *words, size_t count);

#endif
