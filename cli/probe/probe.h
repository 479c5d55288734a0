// SPDX-License-Identifier: Apache-2.0
// What quern probe's files share: results, and the chip that they are compared with.
#ifndef CLI_PROBE_H
#define CLI_PROBE_H

#include "../cli.h"

/** A probe's result, with texts of its own. */
typedef struct probe_result {
    const qn_probe_info *info;
    double value, model, entry_value;
    char detail[256], reason[128]; // "": none
} probe_result;

/** The entries of the chip file that the model of an architecture amounts to. */
typedef struct probe_chip {
    char *text; // null: no model is known
} probe_chip;

/** Asks the simulated GPU for the chip of an architecture: the one that chip= of QUERN_SIM names,
 *  or its own. Without a simulated GPU, or a model, there is none. Errors: QN_E_MEMORY. */
qn_status probe_chip_load(probe_chip *out, const char *arch);
void probe_chip_unload(probe_chip *chip);
/** Returns an entry; NaN if there is none. */
double probe_chip_get(const probe_chip *chip, const char *entry);

/** Returns a chip file of what was measured: entries, and facts as comments. The caller frees it.
 *  */
char *probe_file_text(const qn_device_info *device, const probe_chip *chip,
                      const probe_result *results, int count);

#endif
