// SPDX-License-Identifier: Apache-2.0
// Finds and runs the clang that the JIT uses.
#ifndef QNI_COMPILER_H
#define QNI_COMPILER_H

#include "../runtime.h"

typedef struct qni_compiler {
    char path[512];
    char identity
        [1024]; // its --version, the file's real path, size and time: part of the cache's key
} qni_compiler;

/** Sets *out to the first clang of a good version. If QUERN_CLANG is set, only that clang is looked
 *  at; else those in PATH, then ROCm's. A process looks once. Errors: QN_E_NOT_FOUND, with what was
 *  looked at and what would help. */
qn_status qni_compiler_find(const qni_compiler **out);

/** Runs a program with an empty stdin, and waits for it.
 *
 *  argv       arguments; argv[0] is the program's path
 *  tmp_dir    the program's TMPDIR; variables that would change clang's output are taken from its
 *             environment. null: the environment is left as it is
 *  limit_s    seconds after which the program is killed, with all processes that it started
 *  output     written: what the program prints on stdout and stderr, cut to `room`
 *  exit_code  written: the exit code, or 128 + n if signal n ended the program
 *  Errors:    QN_E_IO (the program could not be started or waited for, or ran too long),
 *             QN_E_MEMORY. */
qn_status qni_spawn(char *const *argv, const char *tmp_dir, int limit_s, char *output, size_t room,
                    int *exit_code);

#endif
