// SPDX-License-Identifier: Apache-2.0
// Buffer descriptors, copies from memory to LDS that bypass registers, and the waits they need
// (gfx9).
//
// A buffer access reads base + offset + soffset. Only `offset`, the lane's own part, is held
// against the descriptor's size: a lane whose offset lies beyond reads zero, and a copy to LDS
// writes zero. Whether soffset counts too differs between documents, so offset + soffset must never
// pass the end of what is real. Sources: LLVM AMDGPU usage (raw buffer intrinsics), manual "CDNA3"
// 9.1.5.
#ifndef QD_COPY_H
#define QD_COPY_H

#include "gpu.h"

/** A lane's offset that is beyond every descriptor made here: sizes stay below it. */
constexpr uint32_t QD_OUTSIDE = 0x80000000;

/** `bytes` of memory at p, uniform; bytes <= QD_OUTSIDE. Untyped dwords, no swizzle. */
QD_INLINE __amdgpu_buffer_rsrc_t qd_buffer(const void *p, uint32_t bytes) {
    return __builtin_amdgcn_make_buffer_rsrc((void *)p, 0, (int)bytes, 0x00027000);
}

QD_INLINE uint32_t qd_buffer_load(__amdgpu_buffer_rsrc_t from, uint32_t offset, uint32_t soffset) {
    return __builtin_amdgcn_raw_buffer_load_b32(from, (int)offset, (int)soffset, 0);
}
QD_INLINE qd_u32x4 qd_buffer_load4(__amdgpu_buffer_rsrc_t from, uint32_t offset, uint32_t soffset) {
    return __builtin_amdgcn_raw_buffer_load_b128(from, (int)offset, (int)soffset, 0);
}
/** The same for what is read once: caches need not keep it. */
QD_INLINE qd_u32x4 qd_buffer_stream4(__amdgpu_buffer_rsrc_t from, uint32_t offset,
                                     uint32_t soffset) {
    constexpr int nontemporal = 2;
    return __builtin_amdgcn_raw_buffer_load_b128(from, (int)offset, (int)soffset, nontemporal);
}

#if defined(__GFX9__)
/** Four bytes a lane to LDS: lane i's go to `to` + 4 i, `to` uniform. Done when vmcnt says so. */
QD_INLINE void qd_copy_to_lds(QD_LDS void *to, __amdgpu_buffer_rsrc_t from, uint32_t offset,
                              uint32_t soffset) {
    __builtin_amdgcn_raw_ptr_buffer_load_lds(from, to, 4, (int)offset, (int)soffset, 0, 0);
}

/** Waits until at most `vm` memory reads or copies (0..63; reads end in order) and no LDS accesses
 *  are under way. A macro, since the instruction takes a constant. clang 22's own wait after a copy
 *  to LDS stands behind the barrier, or nowhere: put this before the barrier. */
#define QD_WAIT(vm) __builtin_amdgcn_s_waitcnt(0x0070 | ((vm) & 15) | ((vm) >> 4) << 14)
#endif

/** Nothing is scheduled across this. */
#define QD_PIN() __builtin_amdgcn_sched_barrier(0)

#endif
