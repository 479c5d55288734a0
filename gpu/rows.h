// SPDX-License-Identifier: Apache-2.0
// Parts of kernels that go along rows: stores that end with the row, and arguments all at once.
#ifndef QD_ROWS_H
#define QD_ROWS_H

#include "gpu.h"
#if defined(__GFX9__)
#include "buffer_store.h"
#endif

// QD_LOOP_WAVES: room for three waves a SIMD on CDNA, in 168 registers each, for a kernel that
// keeps weights from row to row; nothing elsewhere.
#if defined(__GFX9__)
#define QD_LOOP_WAVES QD_WAVES_PER_EU(3)
#else
#define QD_LOOP_WAVES
#endif

/** Stores 16 bytes at `offset` of a row of `bytes` bytes at p; nothing if they lie past its end. p
 *  and bytes are uniform. No branch is needed, so that stores and loads around overlap. */
QD_INLINE void qd_row_store4(void *p, uint32_t bytes, uint32_t offset, qd_u32x4 v) {
#if defined(__GFX9__)
    qd_buffer_store4(qd_buffer(p, bytes), offset, v);
#else
    qd_store4_if(offset < bytes, (qd_u32x4 *)((char *)p + offset), v);
#endif
}
/** Stores 8 bytes as qd_row_store4 stores 16. */
QD_INLINE void qd_row_store2(void *p, uint32_t bytes, uint32_t offset, qd_u32x2 v) {
#if defined(__GFX9__)
    qd_buffer_store2(qd_buffer(p, bytes), offset, v);
#else
    qd_store2_if(offset < bytes, (qd_u32x2 *)((char *)p + offset), v);
#endif
}

/** Asks for all cache lines of a kernel's arguments at once. On AMD a wave otherwise waits for one
 *  line before it asks for the next, for half a microsecond each. */
QD_INLINE void qd_ask([[maybe_unused]] const void *args, [[maybe_unused]] uint32_t bytes) {
#if !defined(__NVPTX__)
    constexpr uint32_t line = 64;
    QD_UNROLL for (uint32_t at = 0; at < bytes; at += line)
        asm volatile("" ::"s"(*(const qd_half *)((const char *)args + at)));
#endif
}

#endif
