// SPDX-License-Identifier: Apache-2.0
// The private folder in which the JIT compiles.
#ifndef QNI_WORKPLACE_H
#define QNI_WORKPLACE_H

#include "../runtime.h"

typedef struct qni_workplace {
    char path[400];
    int lock; // held while a living process works in the folder
} qni_workplace;

/** Makes a folder that only this user can enter, in TMPDIR or, if that fails, in /dev/shm. Folders
 *  that killed processes left are removed first. Errors: QN_E_IO. */
qn_status qni_workplace_make(qni_workplace *out);
/** Removes the folder and everything in it. */
void qni_workplace_remove(qni_workplace *place);

#endif
