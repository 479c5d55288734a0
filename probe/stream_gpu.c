// SPDX-License-Identifier: Apache-2.0
// The rate of memory: workgroups read or write pieces of 8 KiB, each of a wave.
//
// A wave takes the workgroup's next piece when it is done with one. If each had its own, some would
// run ahead, and the last ones could not keep the memory busy.
//
// Launch    1024 threads; a multiple of g.xcds workgroups
// LDS       4 bytes
// Edges     pieces go round in the workgroup's memory, whose size is a power of two, and begin
//           elsewhere in each, so that workgroups do not meet in a channel
#include "measure.h"
#include "probe_abi.h"

enum { DEPTH = QK_PIECE_BYTES / (QD_WAVE * 16) };

/** Returns the number of the wave's next piece. */
QD_INLINE uint32_t take_piece(QD_LDS uint32_t *taken) {
    uint32_t piece = 0;
    if (qd_lane() == 0)
        piece = __scoped_atomic_fetch_add(taken, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    return qd_uniform(piece);
}

/** Returns the workgroup's number, counted XCD by XCD. */
QD_INLINE uint32_t number_of(const qk_stream_args *g) {
    return qd_block() % g->xcds * (__gpu_num_blocks(0) / g->xcds) + qd_block() / g->xcds;
}

/** Returns where the lane's first 16 bytes of a piece are; the next ones are a wave's width away.
 *  */
QD_INLINE qd_u32x4 *place_of(const qk_stream_args *g, uint32_t number, uint32_t piece) {
    const uint32_t at = (piece + 5 * number) * QK_PIECE_BYTES & g->mask;
    return (qd_u32x4 *)(g->bytes + (number * g->stride + at)) + qd_lane();
}

QD_KERNEL(QK_STREAM_THREADS) qk_probe_stream(const qk_stream_args g) {
    [[clang::loader_uninitialized]] static QD_LDS uint32_t taken;
    const uint32_t number = number_of(&g);
    qd_u32x4 sum = 0;
    if (qd_thread() == 0)
        taken = 0;
    qd_barrier();
    const qk_moment begin = {qd_cycles(), qd_ticks()};
    QD_NO_UNROLL for (uint32_t i = take_piece(&taken); i < g.pieces; i = take_piece(&taken)) {
        qd_u32x4 *p = place_of(&g, number, i), v[DEPTH];
        if (g.writes) {
            QD_UNROLL for (int k = 0; k < DEPTH; k++)
                p[k * QD_WAVE] = (qd_u32x4)i;
            continue;
        }
        QD_UNROLL for (int k = 0; k < DEPTH; k++)
            v[k] = p[k * QD_WAVE];
        QD_UNROLL for (int k = 0; k < DEPTH; k++)
            sum |= v[k];
    }
    const qk_moment end = {qd_cycles(), qd_ticks()};
    if (qd_block() == 0 && qd_thread() == 0) {
        g.out[0] = begin;
        g.out[1] = end;
    }
    if (!g.writes && sum.x == ~0u) // what is read has no such words
        *(qd_u32x4 *)g.bytes = sum;
}
