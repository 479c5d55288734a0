// SPDX-License-Identifier: Apache-2.0
// Moves runs of eight elements between memory and f32 registers, for kernels that go along rows.
//
// A lane moves 16 bytes of f16 or bf16 at a time, or 32 bytes of f32. Results are rounded once, to
// nearest, ties to even.
#ifndef QD_ELEMENTS_H
#define QD_ELEMENTS_H

#include "fp8.h"
#include "gpu.h"

enum { QD_F32, QD_F16, QD_BF16 }; // in the order of qni_dtype
enum { QD_RUN = 8 };              // elements of a run

typedef __bf16 qd_bf16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 qd_f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 qd_f16x8 __attribute__((ext_vector_type(8)));

QD_INLINE uint32_t qd_element_bytes(int dtype) {
    return dtype == QD_F32 ? 4 : 2;
}

/** Returns the address of element i of an array. */
QD_INLINE const void *qd_at(int dtype, const void *p, int64_t i) {
    return (const char *)p + i * qd_element_bytes(dtype);
}

QD_INLINE float qd_load1(int dtype, const void *p) {
    return dtype == QD_F32   ? *(const float *)p
           : dtype == QD_F16 ? (float)*(const _Float16 *)p
                             : qd_as_f32((uint32_t)*(const uint16_t *)p << 16);
}

QD_INLINE void qd_store1(int dtype, void *p, float v) {
    if (dtype == QD_F32)
        *(float *)p = v;
    else if (dtype == QD_F16)
        *(_Float16 *)p = (_Float16)v;
    else
        *(__bf16 *)p = (__bf16)v;
}

/** Returns the eight bf16 in 16 bytes as f32. */
QD_INLINE qd_f32x8 qd_from_bf16(qd_u32x4 w) {
    qd_f32x8 v;
    QD_UNROLL for (int i = 0; i < 4; i++) {
        v[2 * i] = qd_as_f32(w[i] << 16);
        v[2 * i + 1] = qd_as_f32(w[i] & 0xFFFF0000);
    }
    return v;
}

/** Returns a run of f16 or bf16, whose bits are w, as f32. */
QD_INLINE qd_f32x8 qd_from_16(int dtype, qd_u32x4 w) {
    return dtype == QD_BF16 ? qd_from_bf16(w)
                            : __builtin_convertvector(__builtin_bit_cast(qd_f16x8, w), qd_f32x8);
}

/** Returns what qd_from_16 does, by other instructions for each `time`. Compilers (PTX passes
 *  through two) therefore convert again at a second use, and do not keep the values of the first
 *  use, which take twice the registers of the bits. */
QD_INLINE qd_f32x8 qd_from_16_again(int dtype, qd_u32x4 w, int time) {
#if defined(__NVPTX__)
    qd_f32x8 v;
    QD_UNROLL for (int i = 0; i < 4; i++) {
        if (dtype == QD_BF16) { // two bytes of zeros, from either place, and one half's two bytes
            v[2 * i] = qd_as_f32(__nvvm_prmt(w[i], 0, time == 1 ? 0x1044 : 0x1055));
            v[2 * i + 1] = qd_as_f32(__nvvm_prmt(w[i], 0, time == 1 ? 0x3244 : 0x3255));
        } else {
            const uint32_t swapped = __nvvm_prmt(w[i], 0, 0x1032);
            v[2 * i] = (float)__builtin_bit_cast(_Float16, (uint16_t)(swapped >> 16));
            v[2 * i + 1] = (float)__builtin_bit_cast(_Float16, (uint16_t)swapped);
        }
    }
    return v;
#else
    (void)time;
    return qd_from_16(dtype, qd_opaque4(w));
#endif
}

QD_INLINE qd_u32x4 qd_to_16(int dtype, qd_f32x8 v) {
    return dtype == QD_BF16 ? __builtin_bit_cast(qd_u32x4, __builtin_convertvector(v, qd_bf16x8))
                            : __builtin_bit_cast(qd_u32x4, __builtin_convertvector(v, qd_f16x8));
}

/** Loads a whole run that begins at a multiple of 16 bytes. */
QD_INLINE qd_f32x8 qd_load8(int dtype, const void *p) {
    if (dtype == QD_F32) {
        const qd_f32x4 low = ((const qd_f32x4 *)p)[0], high = ((const qd_f32x4 *)p)[1];
        return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    return qd_from_16(dtype, *(const qd_u32x4 *)p);
}

QD_INLINE void qd_store8(int dtype, void *p, qd_f32x8 v) {
    if (dtype == QD_F32) {
        ((qd_f32x4 *)p)[0] = v.lo;
        ((qd_f32x4 *)p)[1] = v.hi;
    } else {
        *(qd_u32x4 *)p = qd_to_16(dtype, v);
    }
}

/** Stores a run as qd_store8 does, if `is_in`. */
QD_INLINE void qd_store8_if(bool is_in, int dtype, void *p, qd_f32x8 v) {
    const qd_f32x4 low = v.lo, high = v.hi; // clang 22 casts v itself where v.hi is to be cast
    if (dtype == QD_F32) {
        qd_store4_if(is_in, (qd_u32x4 *)p, __builtin_bit_cast(qd_u32x4, low));
        qd_store4_if(is_in, (qd_u32x4 *)p + 1, __builtin_bit_cast(qd_u32x4, high));
    } else {
        qd_store4_if(is_in, p, qd_to_16(dtype, v));
    }
}

/** Loads the first `count` elements of a run, at any element's address; the others are zero. */
QD_INLINE qd_f32x8 qd_load_part(int dtype, const void *p, uint32_t count) {
    qd_f32x8 v = 0;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < count)
            v[i] = qd_load1(dtype, qd_at(dtype, p, i));
    return v;
}

QD_INLINE void qd_store_part(int dtype, void *p, uint32_t count, qd_f32x8 v) {
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < count)
            qd_store1(dtype, (void *)qd_at(dtype, p, i), v[i]);
}

/** Returns v as it would be after a store to memory of the dtype and a load. */
QD_INLINE qd_f32x8 qd_rounded(int dtype, qd_f32x8 v) {
    return dtype == QD_F32 ? v : qd_from_16(dtype, qd_to_16(dtype, v));
}

/** Returns the FP8 codes of eight values, the first in the low byte. Values saturate; a NaN becomes
 *  the kind's NaN. */
QD_INLINE qd_u32x2 qd_encode8(int kind, qd_f32x8 v) {
    qd_u32x2 codes = 0, nans = 0;
    if (qd_fp8_is_native(kind)) {
        const float x[QD_RUN] = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
        codes = (qd_u32x2){qd_fp8_encode4(kind, x), qd_fp8_encode4(kind, x + 4)};
#if !QD_FP8_PTX // PTX's conversion makes the NaN code itself
        QD_UNROLL for (int i = 0; i < QD_RUN; i++)
            nans[i / 4] |= v[i] != v[i] ? 0xFFu << (i % 4 * 8) : 0;
#endif
    } else {
        // The loop encodes the first element and rotates v, so that the long code stands once.
        QD_NO_UNROLL for (int i = 0; i < QD_RUN; i++) {
            const uint32_t code = qd_fp8_encode(kind, v[0]);
            codes = (qd_u32x2){codes.x >> 8 | codes.y << 24, codes.y >> 8 | code << 24};
            v = __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 0);
        }
    }
    return (codes & ~nans) | (nans & qd_fp8_nan_code(kind) * 0x01010101u);
}

#endif
