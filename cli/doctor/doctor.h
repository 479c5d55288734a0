// SPDX-License-Identifier: Apache-2.0
// quern doctor's findings, and what looks for them.
#ifndef DOCTOR_H
#define DOCTOR_H

#include "../cli.h"

/** What a finding means for whoever reads it. */
typedef enum doctor_level {
    DOCTOR_FACT,    // as it should be
    DOCTOR_NOTE,    // may be wanted; costs speed or hides something
    DOCTOR_TROUBLE, // a card or quern does not work as it could
} doctor_level;

/** The report as it grows, and where it looks. */
typedef struct doctor {
    const char *root; // in front of /sys, /dev, /proc and /etc; "" for this system
    json_t *findings; // [{"id", "level", "subject", "found", "remedy"}]
    json_t *kernels;  // [{"device", "op", "tuned", "general", "missing"}]: names of kernels
    int num_troubles;
    int num_amd, num_nvidia; // cards on the PCI bus
} doctor;

/** Adds a finding.
 *  id      names the kind of finding, for programs and docs/troubleshooting.md
 *  subject what was looked at: "/dev/kfd"
 *  remedy  the command or step that mends it; "" for a fact */
void doctor_add(doctor *d, doctor_level level, const char *id, const char *subject,
                const char *remedy, const char *format, ...) __attribute__((format(printf, 6, 7)));
/** Writes root and path to buf, and returns buf. */
const char *doctor_path(const doctor *d, const char *path, char *buf, size_t room);
/** Reads the first line of a file, without its end. Returns false if the file cannot be read. */
bool doctor_line(const doctor *d, const char *path, char *line, size_t room);

void doctor_cards(doctor *d); // cards.c: on the bus, drivers, device nodes and their permissions
void doctor_container(doctor *d); // container.c: shared memory, locked memory
void doctor_switches(doctor *d);  // switches.c: environment variables that hurt
void doctor_drivers(doctor *d);   // software.c: driver libraries; quern's devices
void doctor_python(doctor *d);    // software.c: PyTorch's wheel, and whether it fits the cards
void doctor_jit(doctor *d);       // software.c: clang and the cache
/** kernels.c: tells which kernels the device has that spec names; null: the CPU and each card.
 *  Errors: the device of spec cannot be opened. */
qn_status doctor_kernels(doctor *d, const char *spec);
/** Prints the kernels by device and op, if any device was looked at. */
void doctor_print_kernels(const doctor *d);

#endif
