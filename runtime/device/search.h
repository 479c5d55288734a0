// SPDX-License-Identifier: Apache-2.0
// Where a GPU's driver library is looked for.
#ifndef QNI_SEARCH_H
#define QNI_SEARCH_H

#include <quern/core.h>

/** Folders that may hold a driver: what names them, and what lies in front of the library's
 *  name. */
typedef struct qni_folder {
    const char *where;   // "ROCM_PATH"
    const char *base;    // a folder; empty: the variable is not set
    const char *pattern; // behind the base, for glob
} qni_folder;

typedef struct qni_search {
    const char *kind;          // "hip"
    const char *variable;      // "QUERN_HIP_LIBRARY", which names the one library to take
    const char *chosen;        // that variable's value; empty: not set
    const char *const *names;  // of the library, the best first; a null ends them
    const qni_folder *folders; // a null `where` ends them
    const char *remedy;        // "install ROCm"
} qni_search;

enum { QNI_PATH_BYTES = 512 };

/** Finds the driver and loads its library: the one that the variable names, else one that the
 *  process has already, else the first in the folders, else one in the loader's path.
 *
 *  A library that is there and cannot be loaded ends the search: half of an installation is to be
 *  mended, not passed over. Errors: QN_E_NOT_FOUND, QN_E_MEMORY. */
qn_status qni_search_open(const qni_search *search, void **handle, char path[QNI_PATH_BYTES]);

/** Calls `visit` for each place in the order of the search, with what is there. */
void qni_search_list(const qni_search *search,
                     void (*visit)(void *context, const qn_driver_place *place), void *context);

/** How hip.c and cuda.c find their drivers. */
const qni_search *qni_hip_search(void);
const qni_search *qni_cuda_search(void);

/** Finds the folder of the file that this code was loaded from. Returns false if it is not
 *  known. */
bool qni_own_folder(char *folder, size_t room);

#endif
