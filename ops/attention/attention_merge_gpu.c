// SPDX-License-Identifier: Apache-2.0
// Merges a split request's chunks into o and lse, and states that the caller has; and writes
// dropout's mask and random numbers.
//
// Needs     nothing beyond vector instructions
// Tile      a wave a row: lanes go along v's elements; chunks and states in order, so that the same
//           bits come out always
// Launch    256 threads, for chunks perhaps 128; workgroups step through what is left. If they are
//           several times as many as merges, several share each
// Source    FlashInfer's merge_states; AOTriton's debug_simulate_encoded_softmax,
//           debug_fill_dropout_rng
#include "attention_any_abi.h"
#include "attention_split_gpu.h"
#include "code.h"

enum { THREADS = 256, WAVES = THREADS / QD_WAVE };

// ---- merging chunks

static void code_end(void);

QD_KERNEL_WITHIN(THREADS, 80, qk_attention_merge)(const qk_attention_args g) {
    qd_begin();
    QD_ASK_FOR_CODE(code_end);
    const uint32_t count = qk_attention_count_merges(&g) * g.num_kv_heads;
    const uint32_t parts = qd_max(__gpu_num_blocks(0) / qd_max(count, 1), 1);
    // Where all requests are taken, as nearly always, none is loaded to find that out.
    const bool takes_all = g.least_rows == 0 && g.most_rows == UINT32_MAX;
    for (uint32_t id = qd_block(); id < count * parts; id += __gpu_num_blocks(0)) {
        const uint32_t merge = id / parts;
        const qk_attention_work work = qk_attention_find_merge(&g, merge / g.num_kv_heads);
        if (__builtin_expect(takes_all, true) || qk_attention_takes(&g, work.request))
            merge_work(&g, &work, merge % g.num_kv_heads, id - merge * parts, parts);
    }
}

QD_CODE_END(code_end)

// ---- merging the caller's states

/** Returns the base-2 log-sum-exp of a state. */
QD_INLINE float state_lse(const qk_merge_args *g, uint32_t n, uint32_t i, uint32_t head) {
    const uint32_t which = g->v[1] ? i : 0, step = g->v[1] ? 0 : i;
    return g->s[which][n * g->s_token[which] + step * g->s_state + head * g->s_head[which]] /
           g->lse_unit;
}

QD_INLINE float state_value(const qk_merge_args *g, uint32_t n, uint32_t i, uint32_t head,
                            uint32_t d) {
    const uint32_t which = g->v[1] ? i : 0, step = g->v[1] ? 0 : i;
    const int64_t at = n * g->v_token[which] + step * g->v_state + head * g->v_head[which] + d;
    return qd_load1((int)g->dtype, element_at(g->dtype, g->v[which], at));
}

QD_INLINE void merge_states(const qk_merge_args *g, uint32_t n, uint32_t head) {
    float max = -__builtin_inff(), sum = 0;
    for (uint32_t i = 0; i < g->states; i++) {
        const float s = state_lse(g, n, i, head);
        max = s > max || s != s ? s : max;
    }
    for (uint32_t i = 0; max != -__builtin_inff() && i < g->states; i++)
        sum += qd_exp2(state_lse(g, n, i, head) - max);
    for (uint32_t d = qd_lane(); d < g->head_dim; d += QD_WAVE) {
        float acc = 0;
        for (uint32_t i = 0; sum != 0 && i < g->states; i++) {
            const float s = state_lse(g, n, i, head);
            if (s != -__builtin_inff()) // a state of -infinity may have any value
                acc = __builtin_fmaf(qd_exp2(s - max), state_value(g, n, i, head, d), acc);
        }
        const int64_t at = n * g->o_token + head * g->o_head + d;
        qd_store1((int)g->dtype, (void *)element_at(g->dtype, g->o, at), sum != 0 ? acc / sum : 0);
    }
    // If the op works in place, all lanes read s before one of them writes it, as a wave's lanes go
    // together.
    if (qd_lane() == 0)
        g->lse[n * g->lse_token + head * g->lse_head] =
            sum != 0 ? (max + qd_log2(sum)) * g->lse_unit : -__builtin_inff();
}

QD_KERNEL(THREADS) qk_merge_states(const qk_merge_args g) {
    for (uint32_t row = qd_block() * WAVES + qd_wave(); row < g.n * g.heads;
         row += __gpu_num_blocks(0) * WAVES)
        merge_states(&g, row / g.heads, row % g.heads);
}

// ---- dropout

QD_INLINE void store_random(const qk_dropout_args *g, int64_t at, uint32_t word) {
    if (g->what == QK_DROPOUT_WORDS)
        ((uint32_t *)g->r)[at] = word;
    else if (g->what == QK_DROPOUT_UNIFORM)
        ((float *)g->r)[at] = qk_philox_uniform(word);
    else
        qd_store1((int)g->dtype, (void *)element_at(g->dtype, g->r, at),
                  (int32_t)word > g->common.dropout_threshold ? 0.5f : -0.5f);
}

/** Fills r. A thread takes four keys, for which Philox draws once. */
QD_KERNEL(THREADS) qk_attention_dropout(const qk_dropout_args g) {
    const uint64_t quads = g.common.dropout_quads, count = g.rows * quads;
    const uint32_t heads = g.common.num_kv_heads, queries = g.common.dropout_queries;
    for (uint64_t i = (uint64_t)qd_block() * THREADS + qd_thread(); i < count;
         i += (uint64_t)__gpu_num_blocks(0) * THREADS) {
        const uint32_t row = (uint32_t)(i / quads), key = 4 * (uint32_t)(i % quads);
        const int64_t at = row / queries / heads * g.r_batch + row / queries % heads * g.r_head +
                           row % queries * g.r_query + key;
        uint32_t words[4];
        qk_philox(g.common.dropout_seed, g.common.dropout_offset + i, words);
        QD_UNROLL for (uint32_t k = 0; k < 4; k++)
            if (key + k < g.keys)
                store_random(&g, at + k, words[k]);
    }
}
