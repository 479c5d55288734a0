// SPDX-License-Identifier: Apache-2.0
// Parts of the kvcache family's check.
#ifndef QNI_KVCACHE_CHECK_H
#define QNI_KVCACHE_CHECK_H

#include "../../check/check.h"

/** Tries what is read of caches: gather_check.c. */
qn_status qni_kvcache_try_gather(qni_trial_run *run);

/** Tries tokens that are quantised by groups: groups_check.c. */
qn_status qni_kvcache_try_groups(qni_trial_run *run);

/** Tries what tokens write in batches of several sizes: kvcache_batches_check.c. */
qn_status qni_kvcache_try_batches(qni_trial_run *run);

#endif
