// SPDX-License-Identifier: Apache-2.0
// What hostcall.c and printf.c share.
#ifndef SIM_HIP_HOSTCALL_H
#define SIM_HIP_HOSTCALL_H

#include <stddef.h>
#include <stdint.h>

/** Prints a message of device code; gives the number of characters, or -1. (printf.c) */
int sim_device_printf(const uint64_t *words, size_t count);
/** The same where the format is known, or null for one that the words begin with. */
int sim_device_print(bool to_stderr, const char *format, const uint64_t *words, size_t count);

#endif
