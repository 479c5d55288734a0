// SPDX-License-Identifier: Apache-2.0
// Stores to a buffer (copy.h): lanes whose offset lies beyond its size store nothing, so that no
// branch is needed, and the compiler knows how many stores are under way.
#ifndef QD_BUFFER_STORE_H
#define QD_BUFFER_STORE_H

#include "copy.h"

QD_INLINE void qd_buffer_store4(__amdgpu_buffer_rsrc_t to, uint32_t offset, qd_u32x4 v) {
    __builtin_amdgcn_raw_buffer_store_b128(v, to, (int)offset, 0, 0);
}
QD_INLINE void qd_buffer_store2(__amdgpu_buffer_rsrc_t to, uint32_t offset, qd_u32x2 v) {
    __builtin_amdgcn_raw_buffer_store_b64(v, to, (int)offset, 0, 0);
}

#endif
