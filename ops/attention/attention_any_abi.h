// SPDX-License-Identifier: Apache-2.0
// What attention's any-shape kernel, its merging kernels and their launch code share beyond
// attention_abi.h; the rotation of RoPE; and rows in two parts, as latent attention has them.
#ifndef QK_ATTENTION_ANY_ABI_H
#define QK_ATTENTION_ANY_ABI_H

#include "attention_abi.h"

enum {
    QK_ATTENTION_MAX_TAIL = 64,
    QK_ATTENTION_MAX_ROW = QK_ATTENTION_MAX_HEAD_DIM + QK_ATTENTION_MAX_TAIL // of q and k
};

/** Where the last `dim` of the head_dim_qk elements of each row of q and k lie, if they lie apart
 *  from the others. */
typedef struct qk_attention_tail {
    qk_attention_rows q, k;
    uint32_t dim, unused;
} qk_attention_tail;

typedef struct qk_attention_any_args {
    qk_attention_args common;
    qk_attention_tail tail;
    uint32_t is_wide, unused; // k: runs of eight elements, all aligned to their size
    uint64_t
        turns[QK_ATTENTION_MAX_HEAD_DIM / 2]; // each pair's turns a position, in units of 2^-64
} qk_attention_any_args;

/** The arguments of merging; the fields are those of qni_merge_problem. */
typedef struct qk_merge_args {
    const void *v[2];
    const float *s[2];
    int64_t v_token[2], v_state, v_head[2], s_token[2], s_state, s_head[2];
    void *o;
    float *lse;
    int64_t o_token, o_head, lse_token, lse_head;
    uint32_t n, heads, head_dim, states;
    uint32_t dtype;
    float lse_unit;
} qk_merge_args;

/** What is written for each weight: whether it is kept, its random word by Philox (i32), or its
 *  random number (f32). */
enum { QK_DROPOUT_MASK, QK_DROPOUT_WORDS, QK_DROPOUT_UNIFORM };

typedef struct qk_dropout_args {
    qk_attention_args common; // in use: dropout's fields, num_kv_heads, and group, which is 1
    void *r;
    int64_t r_batch, r_head, r_query;
    uint32_t rows, keys, dtype, what; // rows: batches * heads * queries
} qk_dropout_args;

/** Computes cosine and sine of an angle, where 2^32 is a full turn. Taylor series over an eighth of
 *  a turn to either side are off by less than 2^-21 (rope_ref.c has the bound). */
QK_INLINE void qk_cos_sin(uint32_t angle, float *cosine, float *sine) {
    const uint32_t quadrant = (angle + 0x20000000u) >> 30;
    const float y = (float)(int32_t)(angle - (quadrant << 30)) * 0x1.921FB6p-30f; // 2 pi / 2^32
    const float z = y * y;
    float s = z * 0x1.71DE3Ap-19f + -0x1.A01A02p-13f; // 1 / 9!, -1 / 7!
    s = z * s + 0x1.111112p-7f;                       // 1 / 5!
    s = z * s + -0x1.555556p-3f;                      // -1 / 3!
    s = y * z * s + y;
    float c = z * 0x1.A01A02p-16f + -0x1.6C16C2p-10f; // 1 / 8!, -1 / 6!
    c = z * c + 0x1.555556p-5f;                       // 1 / 4!
    c = z * c + -0.5f;
    c = z * c + 1.0f;
    const float first = quadrant & 1 ? s : c, second = quadrant & 1 ? c : s;
    *cosine = (quadrant + 1) & 2 ? -first : first;
    *sine = quadrant & 2 ? -second : second;
}

#endif
