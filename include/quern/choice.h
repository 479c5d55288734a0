// SPDX-License-Identifier: Apache-2.0
// Which kernels calls may take.
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

#ifdef __cplusplus
}
#endif
#endif
