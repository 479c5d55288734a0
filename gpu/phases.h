// SPDX-License-Identifier: Apache-2.0
// For kernels of CDNA that say where each instruction stands: single matrix instructions, values
// that stay on their side of a point, barriers that wait for nothing.
#ifndef QD_PHASES_H
#define QD_PHASES_H

#include "copy.h"
#include "halves.h"
#include "mma.h"

// An operand of qd_mma, 16 k, is used up in QD_MMA_STEPS instructions.
#if defined(__gfx950__)
enum { QD_MMA_STEPS = 1 };
#else
enum { QD_MMA_STEPS = 2 };
#endif

/** Returns d + x y^T over the operands' k of a step: all, or the lower or the upper half of each
 *  lane's bytes. It is one instruction. */
QD_INLINE qd_f32x16 qd_mma_step(bool is_f16, uint32_t step, qd_u32x4 x, qd_u32x4 y, qd_f32x16 d) {
#if defined(__gfx950__)
    typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
    (void)step;
    return is_f16
               ? __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(qd_f16x8, x),
                                                        __builtin_bit_cast(qd_f16x8, y), d, 0, 0, 0)
               : __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(bf16x8, x),
                                                         __builtin_bit_cast(bf16x8, y), d, 0, 0, 0);
#else
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y);
        return step ? __builtin_amdgcn_mfma_f32_32x32x8f16(a.hi, b.hi, d, 0, 0, 0)
                    : __builtin_amdgcn_mfma_f32_32x32x8f16(a.lo, b.lo, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y);
    return step ? __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.hi, b.hi, d, 0, 0, 0)
                : __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.lo, b.lo, d, 0, 0, 0);
#endif
}

/** Rounds two numbers, which are not NaNs, to 16 bits: as qd_round2, but where the target has an
 *  instruction for bf16, by that, to nearest even. */
QD_INLINE uint32_t qd_round2_fast(bool is_f16, float a, float b) {
#if defined(__gfx950__)
    typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));
    if (!is_f16)
        return __builtin_bit_cast(uint32_t, (bf16x2){(__bf16)a, (__bf16)b});
#endif
    return qd_round2(is_f16, a, b);
}

// What a lane copies to LDS at once, in bytes.
#if defined(__gfx950__)
enum { QD_WIDE_COPY = 16 };
#else
enum { QD_WIDE_COPY = 4 };
#endif

/** As qd_copy_to_lds, with QD_WIDE_COPY bytes a lane. The wide copy is hidden from the compiler,
 *  which would else wait for it before each read of the same array: QD_WAIT alone waits for it. */
QD_INLINE void qd_copy_wide(QD_LDS void *to, __amdgpu_buffer_rsrc_t from, uint32_t offset) {
#if defined(__gfx950__)
    asm volatile("s_nop 0\n\tbuffer_load_dwordx4 %1, %2, 0 offen lds"
                 :
                 : "{m0}"((uint32_t)(uintptr_t)to), "v"(offset), "s"(from)
                 : "memory");
#else
    qd_copy_to_lds(to, from, offset, 0);
#endif
}

#if defined(__gfx950__)
#define QD_READS_TRANSPOSED 1
/** Reads 8 bytes a lane from LDS and transposes, of each 16 lanes, four rows of 16 elements of 16
 *  bits: lane i brings elements 4 (i % 4) on of row i / 4, and receives element i of all rows. */
QD_INLINE qd_u32x2 qd_read_transposed(const QD_LDS void *at) {
    typedef short i16x4 __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(qd_u32x2,
                              __builtin_amdgcn_ds_read_tr16_b64_v4i16((QD_LDS i16x4 *)at));
}
#else
#define QD_READS_TRANSPOSED 0
#endif

/** Keeps what a variable's value is computed from before this point, and what uses it behind. The
 *  compiler moves what is computed, and not used yet, over branches and barriers. */
#define QD_ANCHOR(x) asm volatile("" : "+v"(x))

/** Returns whether x holds, which it rarely does: what is done then stands behind the rest. */
#define QD_RARELY(x) __builtin_expect(!!(x), 0)

/** As qd_meet, and keeps every instruction on its side. */
QD_INLINE void qd_meet_pinned(void) {
    qd_pin();
    __builtin_amdgcn_s_barrier();
    qd_pin();
}

/** Returns x, which is the same in all lanes, as a scalar of which the compiler knows nothing else:
 *  clang 22 computes differences that stop at 0 in vector registers. */
QD_INLINE uint32_t qd_scalar(uint32_t x) {
    asm("" : "+s"(x));
    return x;
}

/** Loads into a scalar register a number that is the same in all lanes, and that nobody writes
 *  while the kernel runs. */
QD_INLINE int32_t qd_const_i32(const int32_t *p) {
    return *(const __attribute__((address_space(4))) int32_t *)(uintptr_t)p;
}

#endif
