// SPDX-License-Identifier: Apache-2.0
// The clang that the JIT runs: which one, and running it.
#ifndef QNI_COMPILER_H
#define QNI_COMPILER_H

#include "../runtime.h"

typedef struct qni_compiler {
    char path[512];
    char identity
        [1024]; // its --version, the file's real path, size and time: part of the cache's key
} qni_compiler;

/** The first clang of a good version, looked for once in a process: QUERN_CLANG alone if it is set,
 *  else PATH, else ROCm's. Errors: QN_E_NOT_FOUND, saying what was looked at and how to mend it. */
qn_status qni_compiler_find(const qni_compiler **out);

/** Runs a program with that argument vector (argv[0] is its path), stdin empty, and waits. tmp_dir
 *  (null: the environment is as it is) becomes its TMPDIR, and what would change clang's output is
 *  kept from it. What it prints on stdout and stderr goes to output, cut to room. *exit_code is 128
 *  + n if signal n ended it. Errors: QN_E_IO (it could not be started or waited for; or took longer
 *  than limit_s seconds, and was killed with all that it had started), QN_E_MEMORY. */
qn_status qni_spawn(char *const *argv, const char *tmp_dir, int limit_s, char *output, size_t room,
                    int *exit_code);

#endif
