// SPDX-License-Identifier: Apache-2.0
// exp2, log2, reciprocal and the activation functions of transformers, in f32.
//
// activation_check.c holds all devices to these relative errors, with u = 2^-24:
//   qd_exp2, qd_rcp   4u and 2u (the targets' own instructions; results below 2^-126 may become 0)
//   qd_log2           4u of it or 2u, whichever is more
//   logistic forms    f = x / (1 + e), e = exp(-s): 8u + (4 + k|s|) u e/(1 + e),
//                     k = 2 (SiLU), 6 (GELU's tanh form)
//   qd_gelu           24u + 2 x^2 u, even where erf would lose all digits; the error of exp's
//                     argument grows with x^2
// Sources: PTX ISA, ex2.approx, lg2.approx and rcp.approx; instruction set manuals, v_exp_f32,
// v_log_f32 and v_rcp_f32.
#ifndef QD_ELEMENTARY_H
#define QD_ELEMENTARY_H

#include "gpu.h"

/** Returns 2^x; infinity above f32's range, 0 below. */
QD_INLINE float qd_exp2(float x) {
#if defined(__NVPTX__)
    return __nvvm_ex2_approx_f(x);
#else
    return __builtin_amdgcn_exp2f(x);
#endif
}

/** As qd_exp2, but on NVIDIA results below 2^-126 are 0: some instructions less. */
QD_INLINE float qd_exp2_flushed(float x) {
#if defined(__NVPTX__)
    return __nvvm_ex2_approx_ftz_f(x);
#else
    return qd_exp2(x);
#endif
}

/** Returns the base-2 logarithm of x. */
QD_INLINE float qd_log2(float x) {
#if defined(__NVPTX__)
    return __nvvm_lg2_approx_f(x);
#else
    return __builtin_amdgcn_logf(x);
#endif
}

/** Returns 1 / x; 0 for infinity. */
QD_INLINE float qd_rcp(float x) {
#if defined(__NVPTX__)
    return __nvvm_rcp_approx_ftz_f(x);
#else
    return __builtin_amdgcn_rcpf(x);
#endif
}

/** Returns x / (1 + exp(-x)). */
QD_INLINE float qd_silu(float x) {
    return x * qd_rcp(1.0f + qd_exp2_flushed(x * -0x1.715476p+0f)); // log2(e)
}

/** Returns x/2 (1 + tanh(y)) = x / (1 + exp(-2y)), with y = sqrt(2/pi) (x + 0.044715 x^3). */
QD_INLINE float qd_gelu_tanh(float x) {
    const float y = x * __builtin_fmaf(x * x, -0x1.a5a7dp-4f, -0x1.26aec2p+1f); // -2y log2(e)
    return x * qd_rcp(1.0f + qd_exp2_flushed(y));
}

/** Returns x/2 (1 + erf(x / sqrt(2))) = x Phi(x). With a = |x| and t = 1 / (1 + 0.35 a), the
 *  smaller of Phi(x) and Phi(-x) is
 *
 *    Phi(-a) = exp(-a^2/2) t P(t)
 *
 *  where P is the minimax polynomial for a in [0, 14.5], with a relative error of 2^-24.9. */
QD_INLINE float qd_gelu(float x) {
    const float p[] = {0x1.1df1c6p-3f,  0x1.1e70c2p-3f,  0x1.eac9bep-4f,
                       0x1.b057c6p-4f,  -0x1.7c4f7cp-6f, 0x1.46496cp-3f,
                       -0x1.05fab0p-2f, 0x1.26f9bap-3f,  -0x1.ddb924p-6f};
    const float a = __builtin_fabsf(x), t = qd_rcp(__builtin_fmaf(a, 0.35f, 1.0f));
    float sum = p[8];
    QD_UNROLL for (int i = 7; i >= 0; i--)
        sum = __builtin_fmaf(sum, t, p[i]);
    const float below = sum * t * qd_exp2(a * a * -0x1.715476p-1f);
    return x * (x < 0 ? below : 1.0f - below);
}

#endif
