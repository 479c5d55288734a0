// SPDX-License-Identifier: Apache-2.0
// Which kernels a device has, and which calls may take.
#ifndef QUERN_CHOICE_H
#define QUERN_CHOICE_H

#include <quern/core.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Says whether this thread's calls may take slow kernels; at first they may. Returns what was
 *  allowed before.
 *
 *  A slow kernel is an OP.gpu_any, or attention's gpu_any_128 and gpu_any_512: GPUs use it for
 *  problems that no other kernel of the op takes, and it works without matrix cores or on one
 *  element at a time. When slow kernels are not allowed, a call that needs one returns
 *  QN_E_UNSUPPORTED, with the reasons in its message, and writes nothing; a kernel that QUERN_FORCE
 *  names runs nevertheless. */
QN_API bool qn_allow_slow_kernels(bool is_allowed);

/** A kernel of an op. Its strings live as long as the callback runs. */
typedef struct qn_kernel {
    const char *op;     /**< "gemm" */
    const char *name;   /**< "gemm.fp8_decode" */
    const char *reason; /**< why the device can run it for no problem; null: it can for some */
    bool is_general; /**< takes what the op's faster kernels do not: on GPUs one with "any" in its
                          name; on the CPU one that needs no extension of the instruction set */
} qn_kernel;

typedef void (*qn_kernel_fn)(void *context, const qn_kernel *kernel);

/** Reports the kernels that were written for the device's kind, the CPU or GPUs, in the order of
 *  their op's table, and of each whether the device has the instructions that it needs and
 *  QUERN_DISABLE allows it.
 *
 *  op       name of an op; null: all ops
 *  each     called from this thread, once for each kernel
 *  Errors:  QN_E_NOT_FOUND (no such op), QN_E_INVALID (null device or each). */
QN_API qn_status qn_kernel_list(const qn_device *device, const char *op, qn_kernel_fn each,
                                void *context);

#ifdef __cplusplus
}
#endif
#endif
