// SPDX-License-Identifier: Apache-2.0
// Images that the build did not make: compiled when first needed, kept in the disk cache.
#ifndef QNI_JIT_H
#define QNI_JIT_H

#include "runtime.h"

/** The image `id` for the target, with further -D flags (null or "": none): from the cache or from clang. The
 *  caller frees *data. Errors: QN_E_NOT_FOUND (no such image; no clang), QN_E_UNSUPPORTED (QUERN_NO_JIT),
 *  QN_E_IO (no room for the sources), QN_E_DEVICE (clang failed; its words are in the message). */
qn_status qni_jit_get(const char *id, const char *defines, const qni_target *target, void **data,
                      size_t *bytes);

#endif
