// SPDX-License-Identifier: Apache-2.0
// What code objects and bundles hold: kernels in a row, entries of any kind.
#ifndef SIM_OBJECT_ENTRIES_H
#define SIM_OBJECT_ENTRIES_H

#include "object.h"

/** Returns one of an object's kernels, in the order of their names. */
const sim_kernel *sim_object_kernel_at(const sim_object *object, size_t index);
/** Returns the name of one of an object's variables; null behind the last one. */
const char *sim_object_global_at(const sim_object *object, size_t index);
/** Finds the entry for a chip in an offload bundle that is not compressed, of whatever the entry
 *  is. Returns null if it is no bundle, or has none. */
const void *sim_object_entry(const sim_chip *chip, const void *image, size_t bytes,
                             size_t *out_bytes);

#endif
