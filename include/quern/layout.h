// SPDX-License-Identifier: Apache-2.0
// Layouts: scales of quantised tensors as other libraries' GEMMs take them; truth values packed
// into bits.
#ifndef QUERN_LAYOUT_H
#define QUERN_LAYOUT_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns `count` elements rounded up to whole pieces of 16 bytes, in elements; -1 if
 *  element_bytes is not 1, 2, 4, 8 or 16. Source: DeepGEMM's get_tma_aligned_size. */
QN_API int64_t qn_tma_aligned_size(int64_t count, int64_t element_bytes);

/** Copies scales to another layout: transposed, broadcast to rows, rounded to powers of two, packed
 *  as UE8M0 or unpacked.
 *
 *  out          f32 [mn, sk] or [groups, mn, sk], written; any strides that keep elements apart.
 *               MN-major with aligned columns is strides (.., 1, qn_tma_aligned_size(mn, 4)).
 *               Or i32 [.., ceil(sk / 4)], written: UE8M0 with scale 4 i + j in byte j of word i,
 *               and 0 in bytes that belong to no scale
 *  scale        f32 [.., ceil(mn / block_rows), sk], or UE8M0 as i32 [.., ceil(sk / 4)]; any
 *               strides
 *  ends         null; or, for out and scale of 2 dimensions, i32 [n] on the device, never falling:
 *               group i's rows end at ends[i]. They begin at ends[i - 1] rounded up to a multiple
 *               of m_alignment, group 0's at 0. Rows of no group are left alone
 *  block_rows   rows of out for each row of scale
 *  m_alignment  0 means 128
 *  round_scale  1: f32 scales are first rounded up to powers of two: the exponent field, plus one
 *               if any bit of the fraction is set, kept within 1 .. 254. 0: f32 scales are not
 *               rounded, and packing takes the exponent field
 *  Types:       equal bits on every device; f32 to f32 keeps every bit. Byte 0 is unpacked as 0,
 *               255 as infinity
 *  Edge:        an empty out is a no-op.
 *  Overlap:     out overlaps no other tensor.
 *  Async:       queued on stream. The values of ends are checked first: on the CPU always, on GPUs
 *               only with QUERN_VALIDATE=1, which reads them back. On GPUs without QUERN_VALIDATE=1
 *               wrong ends may make the GPU read and write stray memory.
 *  Errors:      QN_E_INVALID (null, shape, stride, overlap, a number out of range),
 *               QN_E_UNSUPPORTED (dtype; 2^31 - 1 rows, columns or groups).
 *  Source:      DeepGEMM's get_mn_major_tma_aligned_tensor,
 *               get_mn_major_tma_aligned_packed_ue8m0_tensor, ceil_to_ue8m0, pack_ue8m0_to_int and
 *               unpack_ue8m0_from_int. */
QN_API qn_status qn_transform_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                                     const DLTensor *ends, int64_t block_rows, int64_t m_alignment,
                                     int32_t round_scale);

/** Packs scales as UE8M0 where k is split into groups: each group begins at a word of its own.
 *
 *  out           [words, mn] i32, written; words that belong to no group are 0
 *  scale         [sk, mn] f32: ceil(k of group 0 / gran_k) scales of group 0, then those of group
 *                1, and so on
 *  group_layout  [groups] i32, on the device. by_ends 0: each group's number of k. by_ends 1: where
 *                each group ends; it begins where the group before ends, rounded up to a multiple
 *                of k_alignment
 *  gran_k        number of k that share a scale
 *  k_alignment   0 means 128
 *  All else as in qn_transform_scales, whose ends are checked as group_layout is here.
 *  Source:       DeepGEMM's get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor. */
QN_API qn_status qn_pack_k_grouped_scales(qn_stream *stream, DLTensor *out, const DLTensor *scale,
                                          const DLTensor *group_layout, int64_t gran_k,
                                          int64_t k_alignment, int32_t by_ends,
                                          int32_t round_scale);

typedef enum qn_bit_order { QN_BITS_BIG = 0, QN_BITS_LITTLE = 1 } qn_bit_order;

/** Packs truth values into bits, eight to a byte, as numpy.packbits does.
 *
 *  out      [ceil(n / 8)]  u8, contiguous, written; bits of the last byte behind value n - 1 are 0
 *  x        [n]  bool or u8, contiguous; a value that is not 0 is true
 *  order    QN_BITS_BIG: the first value in the highest bit; QN_BITS_LITTLE: in the lowest bit
 *  Edge:    n == 0 is a no-op.
 *  Overlap: the tensors do not overlap.
 *  Async:   queued on stream.
 *  Errors:  QN_E_INVALID (null, shape, stride, overlap, order), QN_E_UNSUPPORTED (dtype). */
QN_API qn_status qn_packbits(qn_stream *stream, DLTensor *out, const DLTensor *x,
                             qn_bit_order order);
/** Packs truth values of segments into bits. Each segment begins at a byte of its own; an empty
 *  segment takes no byte.
 *
 *  out         [at least floor(n / 8) + segments]  u8; the first indptr_out[segments] bytes are
 *              written
 *  indptr_out  [segments + 1]  i32, written: segment i's bytes are out[b], with
 *              indptr_out[i] <= b < indptr_out[i + 1]
 *  indptr      [segments + 1]  i32, on the device: segment i's values are x[j], with
 *              indptr[i] <= j < indptr[i + 1]; never falls, lies within 0 and n; not checked
 *  All else as in qn_packbits.
 *  Source:     FlashInfer's segment_packbits. */
QN_API qn_status qn_segment_packbits(qn_stream *stream, DLTensor *out, DLTensor *indptr_out,
                                     const DLTensor *x, const DLTensor *indptr, qn_bit_order order);

#ifdef __cplusplus
}
#endif

#endif
