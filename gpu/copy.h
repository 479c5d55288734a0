// SPDX-License-Identifier: Apache-2.0
// Buffer descriptors, copies from memory to LDS that bypass registers, and the waits that such
// copies need (gfx9).
//
// A buffer access reads base + offset + soffset. The hardware compares only `offset`, the lane's
// own part, with the descriptor's size: a lane whose offset lies beyond the size reads zero, and
// its copy to LDS writes zero. Documents disagree on whether soffset counts as well, so offset +
// soffset must never pass the end of the memory. Sources: LLVM AMDGPU usage (raw buffer
// intrinsics), manual "CDNA3" 9.1.5.
#ifndef QD_COPY_H
#define QD_COPY_H

#include "gpu.h"

/** An offset that lies beyond every descriptor that qd_buffer makes. */
constexpr uint32_t QD_OUTSIDE = 0x80000000;

/** Returns the descriptor of `bytes` <= QD_OUTSIDE bytes of memory at p, as untyped dwords without
 *  swizzle; p and bytes are uniform. */
QD_INLINE __amdgpu_buffer_rsrc_t qd_buffer(const void *p, uint32_t bytes) {
    return __builtin_amdgcn_make_buffer_rsrc((void *)p, 0, (int)bytes, 0x00027000);
}

QD_INLINE uint32_t qd_buffer_load(__amdgpu_buffer_rsrc_t from, uint32_t offset, uint32_t soffset) {
    return __builtin_amdgcn_raw_buffer_load_b32(from, (int)offset, (int)soffset, 0);
}
QD_INLINE qd_u32x2 qd_buffer_load2(__amdgpu_buffer_rsrc_t from, uint32_t offset, uint32_t soffset) {
    return __builtin_amdgcn_raw_buffer_load_b64(from, (int)offset, (int)soffset, 0);
}
QD_INLINE qd_u32x4 qd_buffer_load4(__amdgpu_buffer_rsrc_t from, uint32_t offset, uint32_t soffset) {
    return __builtin_amdgcn_raw_buffer_load_b128(from, (int)offset, (int)soffset, 0);
}
/** Loads 16 bytes that are read only once, so that caches need not keep them. */
QD_INLINE qd_u32x4 qd_buffer_stream4(__amdgpu_buffer_rsrc_t from, uint32_t offset,
                                     uint32_t soffset) {
    constexpr int nontemporal = 2;
    return __builtin_amdgcn_raw_buffer_load_b128(from, (int)offset, (int)soffset, nontemporal);
}
/** The same of 8 bytes. */
QD_INLINE qd_u32x2 qd_buffer_stream2(__amdgpu_buffer_rsrc_t from, uint32_t offset,
                                     uint32_t soffset) {
    constexpr int nontemporal = 2;
    return __builtin_amdgcn_raw_buffer_load_b64(from, (int)offset, (int)soffset, nontemporal);
}

#if defined(__GFX9__)
/** Copies four bytes a lane to LDS: lane i's bytes go to `to` + 4 i; `to` is uniform. The copy is
 *  complete when vmcnt says so. */
QD_INLINE void qd_copy_to_lds(QD_LDS void *to, __amdgpu_buffer_rsrc_t from, uint32_t offset,
                              uint32_t soffset) {
    __builtin_amdgcn_raw_ptr_buffer_load_lds(from, to, 4, (int)offset, (int)soffset, 0, 0);
}

/** Waits until at most `vm` memory reads or copies (0..63; reads end in order) and no LDS accesses
 *  are under way. QD_WAIT is a macro, since the instruction takes a constant. It must stand before
 *  the barrier that follows a copy to LDS: clang 22 puts its own wait behind the barrier, or
 *  nowhere. */
#define QD_WAIT(vm) __builtin_amdgcn_s_waitcnt(0x0070 | ((vm) & 15) | ((vm) >> 4) << 14)

/** Lets the waves of a workgroup meet while copies to LDS are under way: before qd_barrier clang 22
 *  waits for all of them. A QD_WAIT for what the others are to see must stand before it. */
QD_INLINE void qd_meet(void) {
    asm volatile("" ::: "memory");
    __builtin_amdgcn_s_barrier();
    asm volatile("" ::: "memory");
}
#endif

#endif
