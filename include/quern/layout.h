// SPDX-License-Identifier: Apache-2.0
// Layouts: scales of quantised tensors as other libraries' GEMMs take them; truth values packed
// into bits.
#ifndef QUERN_LAYOUT_H
#define QUERN_LAYOUT_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** `count` rounded up to whole pieces of 16 bytes; -1 if element_bytes is not 1, 2, 4, 8 or 16.
 *  Source: DeepGEMM's get_tma_aligned_size. */
QN_API int64_t qn_tma_aligned_size(int64_t count, int64_t element_bytes);

/** Lays scales out anew: transposed, broadcast to rows, rounded to powers of two, packed as UE8M0
 *  or unpacked.
 *
 *  out          [mn, sk] or [groups, mn, sk] f32; or i32 [.., ceil(sk / 4)]: UE8M0, scale 4 i + j
 *               in byte j of word i, bytes that no scale has are 0. Written; any strides that keep
 *               elements apart: MN-major with aligned columns is strides (.., 1,
 *               qn_tma_aligned_size(mn, 4))
 *  scale        [.., ceil(mn / block_rows), sk] f32, or i32 [.., ceil(sk / 4)]; any strides
 *  ends         null; or i32 [n], on the device, out and scale of 2 dimensions: group i's rows end
 *               at ends[i], and begin where the one before ended, rounded up to a multiple of
 *               m_alignment. Other rows are left alone. Ends never fall
 *  block_rows   rows of out for each row of scale
 *  m_alignment  0 means 128
 *  round_scale  1: f32 scales are first rounded up to powers of two: the exponent field, plus one
 *               if any bit of the fraction is set, kept within 1 .. 254. 0: as they are; packing
 *               takes the exponent field
 *  Types:       the same bits on every device; f32 to f32 keeps every bit. Byte 0 is unpacked as 0,
 *               255 as infinity
 *  Edge:        an empty out is a no-op. out overlaps nothing else.
 *  Async:       queued on stream. What ends hold is checked first: on the CPU always, on GPUs with
 *               QUERN_VALIDATE=1, which reads them back; without it a GPU may read and write stray
 *               memory.
 *  Errors:      QN_E_INVALID (null, shape, stride, overlap, a number out of range),
 *               QN_E_UNSUPPORTED (dtype; 2^31 - 1 rows, columns or groups).
 *  Source:      DeepGEMM's get_mn_major_tma_aligned_tensor,
 *               get_mn_major_tma_aligned_packed_ue8m0_tensor, ceil_to_ue8m0, pack_ue8m0_to_int and
 *               unpack_ue8m0_from_int. */
QN_API qn_status qn_transform_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                                     const DLTensor *ends, int64_t block_rows, int64_t m_alignment,
                                     int32_t round_scale);

/** Packs scales that lie along k in groups: each group begins at a word of its own.
 *
 *  out           [words, mn] i32, written; words that no group has are 0
 *  scale         [sk, mn] f32: ceil(k of the group / gran_k) scales a group, one group behind the
 *                other
 *  group_layout  [groups] i32, on the device: each group's k; by_ends 1: where it ends, beginning
 *                where the one before ended, rounded up to a multiple of k_alignment (0 means 128)
 *  gran_k        k of a scale
 *  round_scale, types, edge, async, errors: as above; group_layout is checked as ends are.
 *  Source:       DeepGEMM's get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor. */
QN_API qn_status qn_pack_k_grouped_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                                          const DLTensor *group_layout, int64_t gran_k,
                                          int64_t k_alignment, int32_t by_ends,
                                          int32_t round_scale);

typedef enum qn_bit_order { QN_BITS_BIG = 0, QN_BITS_LITTLE = 1 } qn_bit_order;

/** Packs truth values into bits, eight to a byte, as numpy.packbits does.
 *
 *  out     [ceil(n / 8)]  u8, written; bits of values that are not there are 0
 *  x       [n]  bool or u8; what is not 0 is true
 *  order   QN_BITS_BIG: the first value in the highest bit; QN_BITS_LITTLE: in the lowest
 *  Edge:   n == 0 is a no-op. Tensors do not overlap, and are contiguous.
 *  Async:  queued on stream.
 *  Errors: QN_E_INVALID (null, shape, stride, overlap, order), QN_E_UNSUPPORTED (dtype). */
QN_API qn_status qn_packbits(qn_stream *stream, DLTensor *out, const DLTensor *x,
                             qn_bit_order order);
/** The same for segments, each of which begins at a byte of its own; an empty one has none.
 *
 *  out         [at least floor(n / 8) + segments]  u8; the first indptr_out[segments] bytes are
 *              written
 *  indptr_out  [segments + 1]  i32, written: segment i's bytes are out[indptr_out[i] ..
 *              indptr_out[i + 1] - 1]
 *  indptr      [segments + 1]  i32, on the device: segment i's values are x[indptr[i] ..
 *              indptr[i + 1] - 1]; rising, from 0 or more to n or less; not checked
 *  All else as qn_packbits.
 *  Source:     FlashInfer's segment_packbits. */
QN_API qn_status qn_segment_packbits(qn_stream *stream, DLTensor *out, DLTensor *indptr_out,
                                     const DLTensor *x, const DLTensor *indptr, qn_bit_order order);

#ifdef __cplusplus
}
#endif

#endif
