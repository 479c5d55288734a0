// SPDX-License-Identifier: Apache-2.0
// Images that the build did not make: compiled when first needed, kept in the disk cache.
#ifndef QNI_JIT_H
#define QNI_JIT_H

#include "../runtime.h"

/** Judges an image: returns QN_OK if the image is what its user needs. */
typedef qn_status (*qni_jit_judge)(void *context, const void *data, size_t bytes);

/** Gets an image from the cache, or compiles it with clang.
 *
 *  id       the image's recipe
 *  defines  further -D flags; null or "": none
 *  judge    an image that the judge refuses is neither taken from the cache nor put there; null:
 *           every image is good
 *  data     written: the image, which the caller frees
 *  Errors:  QN_E_NOT_FOUND (no such image; no clang), QN_E_UNSUPPORTED (QUERN_NO_JIT), QN_E_IO (no
 *           room for the sources; clang took longer than QUERN_JIT_TIMEOUT), QN_E_DEVICE (clang
 *           failed; the message has its output), and the judge's. */
qn_status qni_jit_get(const char *id, const char *defines, const qni_target *target,
                      qni_jit_judge judge, void *context, void **data, size_t *bytes);

#endif
