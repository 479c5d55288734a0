// SPDX-License-Identifier: Apache-2.0
// Self-check: every kernel of every op against the op's definition, on any device.
#ifndef QUERN_CHECK_H
#define QUERN_CHECK_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One kernel on one problem. Strings live as long as the callback. */
typedef struct qn_check_result {
    const char *op;      /**< "gemm" */
    const char *kernel;  /**< "gemm.fp8_mfma_128x128" */
    const char *problem; /**< "m=1 n=129 k=129 e4m3fn->bf16" */
    const char *reason;  /**< why the kernel cannot run this problem here; null: it ran */
    const char *detail;  /**< the worst element, or the error; "" if all is well */
    double error;        /**< largest error over tolerance; > 1 fails */
    int64_t time_ns;   /**< fastest of the timed runs; -1: not timed, or the device has no clock */
    int32_t passed;    /**< 1 if it ran and agreed with its reference */
    int32_t is_choice; /**< 1 if this is the kernel that a plain call would use */
    /** How the meaning of the kernel's instructions is known to the simulated GPU, by the weakest
     *  of them: "measured", "ISA text", "LLVM" or "inferred", a colon, and their names; null on
     *  other devices, or if nobody asked. */
    const char *evidence;
} qn_check_result;

typedef struct qn_check_options {
    size_t struct_size; /**< sizeof(qn_check_options) */
    uint64_t seed;      /**< of the random inputs */
    int32_t quick;      /**< 1: a few small problems of each op */
    int32_t timed_runs; /**< 0: no timing */
    int32_t evidence;   /**< 1: results say how instructions are known (simulated devices) */
} qn_check_options;

typedef void (*qn_check_fn)(void *context, const qn_check_result *result);

/** Runs every kernel of op (null: of all ops) on its fixed list of problems and reports each
 *  result.
 *
 *  options  null: all zero, so seed 0, all problems, no timing
 *  report   called from this thread, once for each kernel and problem
 *  Errors:  QN_E_MISMATCH (a kernel that ran did not agree with its reference; the others have run
 *           all the same), QN_E_NOT_FOUND (no such op), QN_E_INVALID (null), QN_E_MEMORY,
 *           QN_E_DEVICE. */
QN_API qn_status qn_check(qn_device *device, const char *op, const qn_check_options *options,
                          qn_check_fn report, void *context);

/** Names of all ops, null-terminated. */
QN_API const char *const *qn_op_names(void);

#ifdef __cplusplus
}
#endif
#endif
