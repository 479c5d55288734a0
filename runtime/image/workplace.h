// SPDX-License-Identifier: Apache-2.0
// The private folder in which the JIT compiles.
#ifndef QNI_WORKPLACE_H
#define QNI_WORKPLACE_H

#include "../runtime.h"

typedef struct qni_workplace {
    char path[400];
    int lock; // says that a living process works there
} qni_workplace;

/** Makes a folder that only this user can enter, in TMPDIR, else in /dev/shm; first removes what
 *  killed processes left there. Errors: QN_E_IO. */
qn_status qni_workplace_make(qni_workplace *out);
/** Removes it with all that is in it. */
void qni_workplace_remove(qni_workplace *place);

#endif
