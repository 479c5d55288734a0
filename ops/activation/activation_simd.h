// SPDX-License-Identifier: Apache-2.0
// Gated activations with vectors of QN_LANES f32: included by activation_cpu.c, activation_avx2.c, activation_avx512.c.
//
// Plain rows are written past the caches where they are large and whole cache lines of them are; rows that become FP8 go
// through a scratch row of f32.
#ifndef QNI_ACTIVATION_SIMD_H
#define QNI_ACTIVATION_SIMD_H

#include "../simd.h"
#include "activation.h"

#include <stdatomic.h>

constexpr float log2_e = 0x1.715476p+0f;

/** x Phi(x), as gpu/elementary.h explains. */
QN_INLINE f32v gelu(f32v x) {
    static const float p[] = {0x1.1df1c6p-3f,  0x1.1e70c2p-3f,  0x1.eac9bep-4f,
                              0x1.b057c6p-4f,  -0x1.7c4f7cp-6f, 0x1.46496cp-3f,
                              -0x1.05fab0p-2f, 0x1.26f9bap-3f,  -0x1.ddb924p-6f};
    const f32v a = (f32v)((u32v)x & 0x7FFFFFFF), t = 1.0f / fma_of(a, all_of(0.35f), all_of(1));
    const f32v below = polynomial_of(t, p, 9) * t * exp2_of(a * a * (-log2_e / 2));
    return x * select_of(x < 0.0f, below, 1.0f - below);
}

QN_INLINE f32v activated(qn_activation function, f32v x) {
    if (function == QN_GELU)
        return gelu(x);
    const f32v y = function == QN_SILU
                       ? x * -log2_e
                       : x * fma_of(x * x, all_of(-0x1.a5a7dp-4f), all_of(-0x1.26aec2p+1f));
    return x / (1.0f + exp2_of(y));
}

/** `limited`: the problem has a limit. */
QN_INLINE f32v result(qn_activation function, bool limited, f32v gate, f32v up, float limit) {
    const f32v most = all_of(limit), least = -most;
    if (limited) { // a NaN stays
        gate = select_of(gate > most, most, gate);
        up = select_of(up > most, most, select_of(up < least, least, up));
    }
    return activated(function, gate) * up;
}

/** Stores a cache line past the caches, which `to` must be the beginning of. */
QN_INLINE void stream_line(void *to, const void *line) {
    typedef uint64_t words __attribute__((vector_size(4 * QN_LANES)));
    for (int i = 0; i < 64; i += (int)sizeof(words)) {
        words w;
        memcpy(&w, (const char *)line + i, sizeof w);
        __builtin_nontemporal_store(w, (words *)((char *)to + i));
    }
}

/** Elements first .. of a row, in whole cache lines; gives where it ends. */
QN_INLINE int64_t stream_row(qni_dtype dtype, qn_activation function, bool limited,
                             const char *gate, const char *up, char *out, int64_t h, float limit) {
    const int64_t size = dtype == QNI_F32 ? 4 : 2, line = 64 / size;
    constexpr int64_t ahead =
        1024; // bytes: what the hardware's own prefetching leaves out between rows
    int64_t i = 0;
    for (; i + line <= h; i += line) {
        alignas(64) char buffer[64];
        __builtin_prefetch(gate + i * size + ahead);
        __builtin_prefetch(up + i * size + ahead);
        for (int64_t k = 0; k < line; k += QN_LANES)
            store(
                dtype, buffer, k,
                result(function, limited, load(dtype, gate, i + k), load(dtype, up, i + k), limit));
        stream_line(out + i * size, buffer);
    }
    return i;
}

/** Elements i .. of a row, to `out` of dtype `to`. */
QN_INLINE void write_row(qni_dtype dtype, qni_dtype to, qn_activation function, bool limited,
                         const char *gate, const char *up, void *out, int64_t i, int64_t h,
                         float limit) {
    for (; i + QN_LANES <= h; i += QN_LANES)
        store(to, out, i,
              result(function, limited, load(dtype, gate, i), load(dtype, up, i), limit));
    if (i < h)
        store_some(to, out, i, h - i,
                   result(function, limited, load_some(dtype, gate, i, h - i),
                          load_some(dtype, up, i, h - i), limit));
}

static inline void quantize_row(const qni_activation_problem *p, int64_t r, const float *y) {
    const qni_fp8 kind = qni_fp8_of(p->dtype_out);
    const int64_t group = p->quant == QNI_ACTIVATION_PER_GROUP ? QNI_ACTIVATION_GROUP : p->h;
    uint8_t *out = (uint8_t *)p->out.data + qni_activation_at(p, &p->out, r);
    float *scale = p->scale + r * p->scale_row;
    for (int64_t i = 0; i < p->h; i += group) {
        const int64_t end = i + group < p->h ? i + group : p->h;
        if (p->quant != QNI_ACTIVATION_STATIC) {
            const float amax = amax_of(y + i, end - i);
            scale[i / group] =
                (amax > p->scale_eps ? amax : p->scale_eps) / qni_fp8_format_of(kind).max;
        }
        const float inverse =
            1.0f / (p->quant == QNI_ACTIVATION_STATIC ? *p->scale : scale[i / group]);
        for (int64_t k = i; k < end; k++)
            out[k] = qni_fp8_encode(kind, y[k] * inverse);
    }
}

/** Results that no cache holds until they are read again are written past the caches. */
constexpr int64_t large_bytes = 4 << 20;

QN_INLINE void activate_rows(qni_dtype dtype, qn_activation function, bool limited,
                             const qni_activation_problem *p, int64_t first, int64_t last,
                             float *scratch) {
    const int64_t size = dtype == QNI_F32 ? 4 : 2;
    const bool is_large = p->rows * p->h * size >= large_bytes;
    for (int64_t r = first; r < last; r++) {
        const char *gate = (const char *)p->x.data + qni_activation_at(p, &p->x, r) * size;
        const char *up = gate + p->h * size;
        char *out = (char *)p->out.data + qni_activation_at(p, &p->out, r) * size;
        if (p->quant != QNI_ACTIVATION_PLAIN) {
            write_row(dtype, QNI_F32, function, limited, gate, up, scratch, 0, p->h, p->limit);
            quantize_row(p, r, scratch);
            continue;
        }
        int64_t done = 0;
        if (is_large && (uintptr_t)out % 64 == 0)
            done = stream_row(dtype, function, limited, gate, up, out, p->h, p->limit);
        write_row(dtype, dtype, function, limited, gate, up, out, done, p->h, p->limit);
    }
    atomic_thread_fence(
        memory_order_seq_cst); // stores past the caches are seen before the call ends
}

/** A copy of the code for each function, and for plain SiLU, which most models have, one without limits. */
QN_INLINE void activate_rows_of(qni_dtype dtype, const qni_activation_problem *p, int64_t first,
                                int64_t last, float *scratch) {
    if (p->function == QN_GELU)
        activate_rows(dtype, QN_GELU, true, p, first, last, scratch);
    else if (p->function == QN_GELU_TANH)
        activate_rows(dtype, QN_GELU_TANH, true, p, first, last, scratch);
    else if (p->limit < HUGE_VALF)
        activate_rows(dtype, QN_SILU, true, p, first, last, scratch);
    else
        activate_rows(dtype, QN_SILU, false, p, first, last, scratch);
}

/** Rows first .. last - 1. */
static void activation_rows(const qni_activation_problem *p, int64_t first, int64_t last,
                            float *scratch) {
    if (p->dtype == QNI_F32)
        activate_rows_of(QNI_F32, p, first, last, scratch);
    else if (p->dtype == QNI_F16)
        activate_rows_of(QNI_F16, p, first, last, scratch);
    else
        activate_rows_of(QNI_BF16, p, first, last, scratch);
}

#endif
