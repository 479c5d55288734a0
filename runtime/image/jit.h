// SPDX-License-Identifier: Apache-2.0
// Images that the build did not make: compiled when first needed, kept in the disk cache.
#ifndef QNI_JIT_H
#define QNI_JIT_H

#include "../runtime.h"

/** Whether an image is what its user needs. */
typedef qn_status (*qni_jit_judge)(void *context, const void *data, size_t bytes);

/** The image `id` for the target, with further -D flags (null or "": none): from the cache or from
 *  clang. What the judge (null: none) refuses is neither taken from the cache nor put there. The
 *  caller frees *data. Errors: QN_E_NOT_FOUND (no such image; no clang), QN_E_UNSUPPORTED
 *  (QUERN_NO_JIT), QN_E_IO (no room for the sources; clang took longer than QUERN_JIT_TIMEOUT),
 *  QN_E_DEVICE (clang failed; its words are in the message), and the judge's. */
qn_status qni_jit_get(const char *id, const char *defines, const qni_target *target,
                      qni_jit_judge judge, void *context, void **data, size_t *bytes);

#endif
