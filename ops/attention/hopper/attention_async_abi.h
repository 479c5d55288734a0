// SPDX-License-Identifier: Apache-2.0
// What attention's kernel for requests of few rows on Hopper shares with its launch code.
#ifndef QK_ATTENTION_ASYNC_ABI_H
#define QK_ATTENTION_ASYNC_ABI_H

#include "../attention_abi.h"

enum {
    QK_ASYNC_WAVES = 4,                          // that compute
    QK_ASYNC_THREADS = (QK_ASYNC_WAVES + 1) * 32 // one plans
};

/** The workgroups that share a multiprocessor, for head dims up to `columns`. */
#define QK_ASYNC_WORKGROUPS(columns) ((columns) <= 128 ? 2 : 1)

#endif
