// SPDX-License-Identifier: Apache-2.0
// Which kernels calls may take.
#ifndef QUERN_CHOICE_H
#define QUERN_CHOICE_H

#include <quern/core.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whether this thread's calls may take kernels that are far slower than others of their op:
 *  OP.gpu_any, which GPUs have for what no other kernel takes, without matrix cores or an element
 *  at a time. At first they may.
 *
 *  Without, such a call is QN_E_UNSUPPORTED, with the reasons in its message, and writes nothing;
 *  what QUERN_FORCE names runs all the same. Gives what held before. */
QN_API bool qn_allow_slow_kernels(bool is_allowed);

#ifdef __cplusplus
}
#endif
#endif
