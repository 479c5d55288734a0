// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of sampling: penalties. A lane takes four tokens at a time, and has four
// such groups under way; a row may be shared by several workgroups.
#ifndef QK_SAMPLING_PENALTIES_GPU_H
#define QK_SAMPLING_PENALTIES_GPU_H

#include "sampling_row_gpu.h"

enum { GROUP = QK_PENALTIES_GROUP };

/** A row of logits, what is known of its tokens, and the penalties. */
typedef struct penalized {
    const void *x;
    void *out;
    const int32_t *counts;    // or null
    const uint8_t *in_prompt; // or null
    uint32_t dtype;
    float repetition, presence, frequency;
} penalized;

/** Groups: their logits' bits, in two words if they have 16 bits; how often the tokens were sent;
 *  whether they are in the prompt, a byte each. */
typedef struct groups {
    qd_u32x4 x[IN_FLIGHT], counts[IN_FLIGHT];
    uint32_t in_prompt[IN_FLIGHT];
} groups;

QD_INLINE float penalize(const penalized *r, float x, int32_t count, bool in_prompt) {
    return qk_penalized(x, count, in_prompt, r->repetition, r->presence, r->frequency);
}

QD_INLINE void penalize_one(const penalized *r, uint32_t i) {
    const row x = {.x = r->x, .dtype = r->dtype};
    const int32_t count = r->counts ? r->counts[i] : 0;
    const bool in_prompt = r->in_prompt && r->in_prompt[i];
    store(r->dtype, r->out, i, penalize(r, load(&x, i), count, in_prompt));
}

/** Loads the groups at tokens `at`. */
QD_INLINE void load_groups(bool is_f32, const penalized *r, const uint32_t *at, groups *g) {
    QD_UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        if (is_f32)
            g->x[k] = *(const qd_u32x4 *)((const float *)r->x + at[k]);
        else
            g->x[k].lo = *(const qd_u32x2 *)((const uint16_t *)r->x + at[k]);
    if (r->counts) QD_UNROLL
        for (int k = 0; k < IN_FLIGHT; k++)
            g->counts[k] = *(const qd_u32x4 *)(r->counts + at[k]);
    if (r->in_prompt) QD_UNROLL
        for (int k = 0; k < IN_FLIGHT; k++)
            g->in_prompt[k] = *(const uint32_t *)(r->in_prompt + at[k]);
    QD_UNROLL for (int k = 0; k < IN_FLIGHT; k++) { // as in walk_vectors
        g->x[k] = qd_opaque4(g->x[k]);
        g->counts[k] = qd_opaque4(g->counts[k]);
        g->in_prompt[k] = qd_opaque(g->in_prompt[k]);
    }
    QD_UNROLL for (int k = 0; k < IN_FLIGHT; k++)
        g->x[0][0] =
            qd_after(g->x[k][1] ^ g->counts[k][0] ^ g->in_prompt[k], qd_opaque(g->x[0][0]));
}

QD_INLINE void penalize_group(bool is_f32, const penalized *r, uint32_t i, qd_u32x4 bits,
                              qd_u32x4 counts, uint32_t in_prompt) {
    qd_f32x4 x;
    if (is_f32)
        x = __builtin_bit_cast(qd_f32x4, bits);
    else
        x = r->dtype == QD_BF16 ? qd_from_16(QD_BF16, bits).lo : qd_from_16(QD_F16, bits).lo;
    QD_UNROLL for (int k = 0; k < GROUP; k++)
        x[k] = penalize(r, x[k], (int32_t)counts[k], in_prompt >> 8 * k & 0xFF);
    store4(r->dtype, r->out, i, x);
}

QD_INLINE void penalize_groups(bool is_f32, const penalized *r, uint32_t first, uint32_t count,
                               uint32_t lane, uint32_t lanes) {
    QD_NO_UNROLL for (uint32_t v = lane; v < count; v += IN_FLIGHT * lanes) {
        groups g = {};
        uint32_t at[IN_FLIGHT];
        QD_UNROLL for (uint32_t k = 0; k < IN_FLIGHT; k++)
            at[k] = first + GROUP * qd_min(v + k * lanes, count - 1);
        load_groups(is_f32, r, at, &g);
        QD_UNROLL for (uint32_t k = 0; k < IN_FLIGHT; k++)
            if (v + k * lanes < count)
                penalize_group(is_f32, r, at[k], g.x[k], g.counts[k], g.in_prompt[k]);
    }
}

/** Returns whether all tensors' groups from token `first` on lie at multiples of their size. */
QD_INLINE bool has_groups(const penalized *r, uint32_t first) {
    const uintptr_t bytes = qd_element_bytes((int)r->dtype);
    const uintptr_t x = (uintptr_t)r->x + first * bytes, out = (uintptr_t)r->out + first * bytes;
    const uintptr_t counts = (uintptr_t)r->counts + first * (r->counts ? 4 : 0);
    const uintptr_t in_prompt = (uintptr_t)r->in_prompt + (r->in_prompt ? first : 0);
    return (x | out) % (GROUP * bytes) == 0 && counts % (GROUP * 4) == 0 && in_prompt % GROUP == 0;
}

/** Applies the penalties to a row; lanes are those of all workgroups that share it. */
QD_INLINE void penalize_row(const penalized *r, uint32_t vocab, uint32_t lane, uint32_t lanes) {
    const uint32_t bytes = qd_element_bytes((int)r->dtype);
    const uint32_t head = qd_min(vocab, (uint32_t)(-(uintptr_t)r->x % (GROUP * bytes)) / bytes);
    const uint32_t count = has_groups(r, head) ? (vocab - head) / GROUP : 0;
    const uint32_t inside = count * GROUP;
    for (uint32_t i = lane; i < vocab - inside; i += lanes)
        penalize_one(r, i + (i < head ? 0 : inside));
    if (r->dtype == QD_F32)
        penalize_groups(true, r, head, count, lane, lanes);
    else
        penalize_groups(false, r, head, count, lane, lanes);
}

QD_INLINE penalized penalized_of(const qk_penalty_args *g, uint32_t b) {
    const uint32_t bytes = qd_element_bytes((int)g->dtype);
    return (penalized){
        .x = (const char *)g->x + b * g->x_row * bytes,
        .out = (char *)g->out + b * g->out_row * bytes,
        .counts = g->counts ? g->counts + b * g->counts_row : nullptr,
        .in_prompt = g->in_prompt ? g->in_prompt + b * g->prompt_row : nullptr,
        .dtype = g->dtype,
        .repetition = g->repetitions ? g->repetitions[b] : g->repetition,
        .presence = g->presences ? g->presences[b] : g->presence,
        .frequency = g->frequencies ? g->frequencies[b] : g->frequency,
    };
}

#endif
