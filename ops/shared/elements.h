// SPDX-License-Identifier: Apache-2.0
// Reads and writes single elements of any dtype in host memory; for definitions and checks.
#ifndef QNI_ELEMENTS_H
#define QNI_ELEMENTS_H

#include "../../runtime/runtime.h"
#include "fp8.h"

#include <math.h>

static_assert(QNI_E4M3FNUZ - QNI_E4M3FN == QNI_FP8_E4M3FNUZ &&
              QNI_E5M2 - QNI_E4M3FN == QNI_FP8_E5M2 &&
              QNI_E5M2FNUZ - QNI_E4M3FN == QNI_FP8_E5M2FNUZ);

static inline bool qni_is_float16_or_32(qni_dtype dtype) {
    return dtype == QNI_F32 || dtype == QNI_F16 || dtype == QNI_BF16;
}
static inline bool qni_is_fp8(qni_dtype dtype) {
    return dtype >= QNI_E4M3FN && dtype <= QNI_E5M2FNUZ;
}
static inline qni_fp8 qni_fp8_of(qni_dtype dtype) {
    return (qni_fp8)(dtype - QNI_E4M3FN);
}

/** Returns the e4m3 kind that most kernels for the device take: QD_FP8_USUAL of gpu/fp8.h. */
static inline qni_dtype qni_usual_e4m3(const qn_device *device) {
    return device->features & QNI_F(MFMA_FP8_FNUZ) ? QNI_E4M3FNUZ : QNI_E4M3FN;
}

static inline bool qni_is_integer(qni_dtype dtype) {
    return dtype == QNI_U8 || dtype == QNI_I8 || dtype == QNI_I32;
}

/** Returns what an exponent of e8m0fnu stands for: 2^(e - 127). 255 is NaN. */
static inline float qni_e8m0_decode(uint8_t e) {
    const uint32_t subnormal = 0x00400000, nan = 0x7FC00000;
    return __builtin_bit_cast(float, e == 0 ? subnormal : e == 255 ? nan : (uint32_t)e << 23);
}

/** Returns element i of an f32, f16, bf16, FP8, e8m0fnu, u8, i8 or i32 array. */
static inline double qni_get(qni_dtype dtype, const void *p, int64_t i) {
    if (dtype == QNI_U8)
        return ((const uint8_t *)p)[i];
    if (dtype == QNI_I8)
        return ((const int8_t *)p)[i];
    if (dtype == QNI_I32)
        return ((const int32_t *)p)[i];
    if (dtype == QNI_F32)
        return (double)((const float *)p)[i];
    if (dtype == QNI_F16)
        return (double)((const _Float16 *)p)[i];
    if (dtype == QNI_BF16)
        return (double)__builtin_bit_cast(float, (uint32_t)((const uint16_t *)p)[i] << 16);
    if (dtype == QNI_E8M0FNU)
        return (double)qni_e8m0_decode(((const uint8_t *)p)[i]);
    return (double)qni_fp8_decode(qni_fp8_of(dtype), ((const uint8_t *)p)[i]);
}

/** Returns 2^power, for a power from -1022 to 1023. */
static inline double qni_power_of_two(int power) {
    return __builtin_bit_cast(double, (uint64_t)(power + 1023) << 52);
}

/** Returns the distance between two neighbouring values of the dtype around v. For v below the
 *  smallest normal value it is the distance between denormals. */
static inline double qni_spacing(qni_dtype dtype, double v) {
    int digits = 24, smallest = -149;
    if (qni_is_integer(dtype))
        return 1;
    if (dtype == QNI_F16) {
        digits = 11, smallest = -24;
    } else if (dtype == QNI_BF16) {
        digits = 8, smallest = -133;
    } else if (qni_is_fp8(dtype)) {
        const qni_fp8_format f = qni_fp8_format_of(qni_fp8_of(dtype));
        digits = f.mantissa_bits + 1, smallest = 1 - f.bias - f.mantissa_bits;
    }
    const uint64_t bits = __builtin_bit_cast(uint64_t, v);
    const int power = (int)(bits >> 52 & 0x7FF) - 1022; // as frexp's; that of 0 is below any other
    return qni_power_of_two(power - digits < smallest ? smallest : power - digits);
}

/** Returns the dtype's largest finite value. */
static inline double qni_max(qni_dtype dtype) {
    return qni_is_fp8(dtype)   ? (double)qni_fp8_format_of(qni_fp8_of(dtype)).max
           : dtype == QNI_F16  ? 65504
           : dtype == QNI_BF16 ? 0x1.FEp127
           : dtype == QNI_U8   ? 255
           : dtype == QNI_I8   ? 127
           : dtype == QNI_I32  ? INT32_MAX
                               : (double)__FLT_MAX__;
}

/** Returns v rounded once to the dtype, to nearest, ties to even. Beyond the dtype's range FP8
 *  saturates, and other dtypes become infinity. */
static inline double qni_round_to(qni_dtype dtype, double v) {
    const double most = qni_max(dtype);
    if (v == 0 || isnan(v))
        return v;
    if (isfinite(v)) {
        const double step = qni_spacing(dtype, v);
        v = rint(v / step) * step;
    }
    if (fabs(v) <= most)
        return v;
    return copysign(qni_is_fp8(dtype) ? most : HUGE_VAL, v);
}

/** Stores v, rounded once, as element i of an f32, f16, bf16, FP8 or i8 array; i8 saturates and
 *  takes no NaN. */
static inline void qni_put(qni_dtype dtype, void *p, int64_t i, double v) {
    const float rounded = (float)qni_round_to(dtype, v);
    if (dtype == QNI_F32)
        ((float *)p)[i] = rounded;
    else if (dtype == QNI_F16)
        ((_Float16 *)p)[i] = (_Float16)rounded;
    else if (dtype == QNI_BF16)
        ((uint16_t *)p)[i] =
            isnan(v) ? 0x7FC0 : (uint16_t)(__builtin_bit_cast(uint32_t, rounded) >> 16);
    else if (dtype == QNI_I8)
        ((int8_t *)p)[i] = (int8_t)(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
    else
        ((uint8_t *)p)[i] = qni_fp8_encode(qni_fp8_of(dtype), rounded);
}

#endif
