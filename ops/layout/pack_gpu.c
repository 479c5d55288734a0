// SPDX-License-Identifier: Apache-2.0
// Packs truth values into bits.
//
// Needs     nothing beyond vector instructions
// Tile      a lane packs one byte, which coalesces: lanes read neighbouring runs of 8 and write
//           neighbouring bytes
// Launch    starts: one wave, which sums up the segments' bytes; bytes: 256 threads, grid = bytes x
//           segments. Workgroups step through what is left
// LDS       none
// Edges     a segment's last byte has zeros for values that are not there
// Source    numpy.packbits; FlashInfer's segment_packbits
#include "gpu.h"
#include "pack_abi.h"

QD_INLINE uint32_t bytes_of(const qk_pack_args *g, uint32_t segment) {
    return ((uint32_t)(g->indptr[segment + 1] - g->indptr[segment]) + 7) / 8;
}

/** Computes where each segment's bytes begin. */
QD_KERNEL(QD_WAVE) qk_pack_starts(const qk_pack_args g) {
    uint32_t before = 0;
    if (qd_lane() == 0)
        g.indptr_out[0] = 0;
    for (uint32_t base = 0; base < g.segments; base += QD_WAVE) {
        const uint32_t segment = base + qd_lane();
        const uint32_t end = before + qd_scan_sum(segment < g.segments ? bytes_of(&g, segment) : 0);
        if (segment < g.segments)
            g.indptr_out[segment + 1] = (int32_t)end;
        before = qd_read_lane(end, QD_WAVE - 1);
    }
}

QD_INLINE void pack_segment(const qk_pack_args *g, const uint8_t *x, int64_t count, uint8_t *out) {
    const int64_t step = (int64_t)__gpu_num_blocks(0) * QK_PACK_THREADS;
    for (int64_t b = (int64_t)qd_block() * QK_PACK_THREADS + qd_thread(); b * 8 < count;
         b += step) {
        uint32_t bits = 0;
        QD_UNROLL for (int i = 0; i < 8; i++) {
            const uint32_t bit = b * 8 + i < count && x[b * 8 + i] != 0;
            bits |= bit << (g->is_little ? i : 7 - i);
        }
        out[b] = (uint8_t)bits;
    }
}

QD_KERNEL(QK_PACK_THREADS) qk_pack_bytes(const qk_pack_args g) {
    if (!g.indptr) {
        pack_segment(&g, g.x, g.count, g.out);
        return;
    }
    for (uint32_t s = __gpu_block_id(1); s < g.segments; s += __gpu_num_blocks(1))
        pack_segment(&g, g.x + g.indptr[s], g.indptr[s + 1] - g.indptr[s], g.out + g.indptr_out[s]);
}
