// SPDX-License-Identifier: Apache-2.0
// The table of measured choices: which kernel runs for which problem on which device. It is the
// file that QUERN_TUNE names; without QUERN_TUNE the table that quern ships. docs/runtime.md has
// its format.
#ifndef QUERN_TUNE_H
#define QUERN_TUNE_H

#include <quern/core.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A line of the table that chooses a kernel, or that is refused. Strings live as long as the
 *  callback. */
typedef struct qn_tune_entry {
    int64_t line;        /**< its number in the file, from 1 */
    const char *fault;   /**< why the line is refused, then all others are ""; null: it is sound */
    const char *op;      /**< "gemm" */
    const char *device;  /**< "gfx942", as qn_device_info.arch */
    const char *problem; /**< "n=4096 k=7168 m=1..64"; "": every problem of the op */
    const char *kernel;  /**< "gemm.fp8_decode" */
    const char *comment; /**< what stands behind #; "": nothing */
} qn_tune_entry;

typedef void (*qn_tune_fn)(void *context, const qn_tune_entry *entry);

/** Writes the path of the table that calls go by, which is the value of QUERN_TUNE, to buf. Errors:
 *  QN_E_INVALID (buf is null, room is too small), QN_E_NOT_FOUND (QUERN_TUNE is not set, so that
 *  calls go by quern's own table, which is no file; or it is none). */
QN_API qn_status qn_tune_path(char *buf, size_t room);
/** Reads a table, whether calls go by it or not, and reports each of its lines in order, but no
 *  blank lines and comments. Calls can go by a table of which no line has a fault.
 *
 *  path    the file; null: the table that calls go by
 *  Errors: QN_E_INVALID (each is null), QN_E_NOT_FOUND (path is null, and QUERN_TUNE is none),
 *          QN_E_IO (the file cannot be read), QN_E_MEMORY. */
QN_API qn_status qn_tune_list(const char *path, qn_tune_fn each, void *context);

// ---- what a tuner needs: which kernels a call may take, and a call by each of them

/** A kernel that can run a problem. */
typedef struct qn_tune_kernel {
    const char *name; /**< "gemm.fp8_decode" */
    uint32_t bits;    /**< an op's kernels that share a number other than 0 give a row equal bits */
} qn_tune_kernel;

/** A problem for which a call chooses a kernel. Strings live as long as the callback. */
typedef struct qn_tune_choice {
    const char *op;                /**< "gemm" */
    const char *device;            /**< "gfx942", as qn_device_info.arch */
    const char *problem;           /**< in a line's words: "units=304 n=4096 k=7168" */
    const char *batch;             /**< the words that are the batch's: "m=8"; may be "" */
    const qn_tune_kernel *kernels; /**< all that can run it, the cheapest first */
    int num_kernels;               /**< may be 0 */
} qn_tune_choice;

/** Returns whether the call goes on; if not, it fails with QN_E_UNSUPPORTED before it runs. */
typedef bool (*qn_tune_choice_fn)(void *context, const qn_tune_choice *choice);

/** Has the choices of this thread's calls reported from now on; null: no longer. */
QN_API void qn_tune_watch(qn_tune_choice_fn each, void *context);
/** Makes this thread's calls of the kernel's op run the kernel, or fail with QN_E_UNSUPPORTED; such
 *  calls are not reported, and neither QUERN_FORCE nor a table acts on them. A thread has one such
 *  kernel; null: none. Errors: QN_E_NOT_FOUND (there is no such kernel). */
QN_API qn_status qn_tune_force(const char *kernel);

#ifdef __cplusplus
}
#endif
#endif
