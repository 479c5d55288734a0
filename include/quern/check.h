// SPDX-License-Identifier: Apache-2.0
// Self-check: runs every kernel of every op on any device and compares it with the op's definition.
#ifndef QUERN_CHECK_H
#define QUERN_CHECK_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of one kernel on one problem. Its strings live as long as the callback runs. */
typedef struct qn_check_result {
    const char *op;      /**< "gemm" */
    const char *kernel;  /**< "gemm.fp8_mfma_128x128" */
    const char *problem; /**< "m=1 n=129 k=129 e4m3fn->bf16" */
    const char *reason;  /**< why the kernel cannot run this problem here; null: it ran */
    const char *detail;  /**< the worst element, or the error; "" if all is well */
    double error;        /**< largest quotient of error and tolerance; above 1 the kernel fails */
    int64_t time_ns;   /**< fastest of the timed runs; -1: not timed, or the device has no clock */
    int32_t passed;    /**< 1 if the kernel ran and agreed with its reference */
    int32_t is_choice; /**< 1 if a plain call would use this kernel */
    /** On simulated GPUs, how well the meaning of the kernel's instructions is known: the weakest
     *  evidence ("measured", "ISA text", "LLVM" or "inferred"), a colon, and the instructions that
     *  rest on it. Null on other devices, or if qn_check_options.evidence is 0. */
    const char *evidence;
} qn_check_result;

typedef struct qn_check_options {
    size_t struct_size; /**< sizeof(qn_check_options) */
    uint64_t seed;      /**< seed of the random inputs */
    int32_t quick;      /**< 1: only a few small problems of each op */
    int32_t timed_runs; /**< how often each kernel is timed; 0: no timing */
    int32_t evidence;   /**< 1: fill in qn_check_result.evidence on simulated GPUs */
} qn_check_options;

typedef void (*qn_check_fn)(void *context, const qn_check_result *result);

/** Runs every kernel of op on the op's fixed list of problems, and reports each result.
 *
 *  op       name of an op; null: all ops
 *  options  null: all members zero, so seed 0, all problems, no timing
 *  report   called from this thread, once for each kernel and problem
 *  Errors:  QN_E_MISMATCH (a kernel that ran disagreed with its reference; the remaining kernels
 *           have run nevertheless), QN_E_NOT_FOUND (no such op), QN_E_INVALID (null), QN_E_MEMORY,
 *           QN_E_DEVICE. */
QN_API qn_status qn_check(qn_device *device, const char *op, const qn_check_options *options,
                          qn_check_fn report, void *context);

/** Returns the names of all ops, as an array that ends with null. */
QN_API const char *const *qn_op_names(void);

#ifdef __cplusplus
}
#endif
#endif
