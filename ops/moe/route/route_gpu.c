// SPDX-License-Identifier: Apache-2.0
// Chooses each token's experts: scores, groups, and the best one after the other.
//
// Needs     nothing beyond vector instructions
// Tile      16 lanes have a token; lane i has experts i, i + 16, …, on every target, so that sums
//           have one order
// Launch    16 threads a token, 64 to 256; workgroups step through the tokens that are left
// LDS       32 KiB: a logit, then a key for each expert of each token, which only the expert's own
//           lane touches
// Edges     up to 2048 experts; lanes of tokens past the end compute the last token's and store
//           nothing
// Source    grouped_topk and topk_softmax of the serving engines
#include "../moe_abi.h"
#include "elements.h"
#include "reduce.h"

[[clang::loader_uninitialized]] static QD_LDS uint32_t lds[QK_MOE_ROUTE_WORDS];

enum {
    HELD_GROUPS = QK_MOE_MAX_GROUPS / QD_ROW, // keys of groups that a lane has
    AHEAD = 8                                 // loads of a lane that are under way at once
};

/** A token, and what its lanes know of it. */
typedef struct token {
    const qk_moe_route_args *g;
    const void *logits;
    QD_LDS uint32_t *keys;
    uint32_t lane; // of 16
    float top, sum;
} token;

QD_INLINE float load(uint32_t dtype, const void *p, uint32_t i) {
    return dtype == QD_F32   ? qd_load1(QD_F32, qd_at(QD_F32, p, i))
           : dtype == QD_F16 ? qd_load1(QD_F16, qd_at(QD_F16, p, i))
                             : qd_load1(QD_BF16, qd_at(QD_BF16, p, i));
}

/** Loads the lane's next AHEAD elements, from e on; what lies past the end is element e again. */
QD_INLINE void load_ahead(const token *t, uint32_t dtype, const void *p, uint32_t e,
                          float x[AHEAD]) {
    QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++) {
        const uint32_t at = e + j * QD_ROW;
        x[j] = load(dtype, p, at < t->g->experts ? at : e);
    }
}

/** Brings the token's logits to where its keys will be. */
QD_INLINE void bring_logits(const token *t) {
    const qk_moe_route_args *g = t->g;
    for (uint32_t e = t->lane; e < g->experts; e += AHEAD * QD_ROW) {
        float x[AHEAD];
        load_ahead(t, g->dtype, t->logits, e, x);
        QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++)
            if (e + j * QD_ROW < g->experts)
                t->keys[e + j * QD_ROW] = qd_as_u32(x[j]);
    }
}
QD_INLINE float logit(const token *t, uint32_t e) {
    return qd_as_f32(t->keys[e]);
}

QD_INLINE float score_of(const token *t, float x) {
    return t->g->is_sigmoid ? qk_moe_sigmoid(x) : qk_moe_exp(x - t->top) / t->sum;
}

/** Finds the largest logit and the sum of exponentials for a softmax. */
QD_INLINE void find_sum(token *t) {
    const qk_moe_route_args *g = t->g;
    float top = -__builtin_inff(), sum = 0;
    for (uint32_t e = t->lane; e < g->experts; e += QD_ROW) {
        const float x = logit(t, e);
        top = x > top ? x : top;
    }
    const uint32_t key = qd_row_max(qk_moe_key(top));
    t->top = qk_moe_score_of(key);
    for (uint32_t e = t->lane; e < g->experts; e += QD_ROW)
        sum += qk_moe_exp(logit(t, e) - t->top);
    t->sum = qd_row_sum(sum);
}

/** Makes keys of logits. */
QD_INLINE void find_keys(token *t) {
    const qk_moe_route_args *g = t->g;
    bring_logits(t);
    if (!g->is_sigmoid)
        find_sum(t);
    for (uint32_t e = t->lane; e < g->experts; e += AHEAD * QD_ROW) {
        float bias[AHEAD] = {};
        if (g->bias)
            load_ahead(t, g->bias_dtype, g->bias, e, bias);
        QD_UNROLL for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t at = e + j * QD_ROW;
            if (at >= g->experts)
                break;
            const float s = score_of(t, logit(t, at));
            t->keys[at] = qk_moe_key(g->bias ? s + bias[j] : s);
        }
    }
}

/** Returns the first expert of a group that is this lane's; the lane's next is 16 further. */
QD_INLINE uint32_t first_of(const token *t, uint32_t begin) {
    return begin + ((t->lane - begin) & (QD_ROW - 1));
}

/** Returns the key of a group's score, in all lanes. */
QD_INLINE uint32_t group_key(const token *t, uint32_t begin, uint32_t end) {
    uint32_t first = 0, second = 0;
    for (uint32_t e = first_of(t, begin); e < end; e += QD_ROW) {
        const uint32_t key = t->keys[e];
        second = qd_max(second, qd_min(first, key));
        first = qd_max(first, key);
    }
#define MERGE(step)                                                                                \
    {                                                                                              \
        const uint32_t a = QD_ROW_PARTNER(first, step), b = QD_ROW_PARTNER(second, step);          \
        second = qd_max(qd_max(second, b), qd_min(first, a));                                      \
        first = qd_max(first, a);                                                                  \
    }
    MERGE(8)
    MERGE(4) MERGE(2) MERGE(1) return qk_moe_group_key(t->g->bias != nullptr, first, second);
}

/** Returns the index of the row's largest key, the lowest of equal ones. A lane gives its best. */
QD_INLINE uint32_t best_of(uint32_t key, uint32_t index) {
    const uint32_t top = qd_row_max(key);
    return ~qd_row_max(key == top ? ~index : 0);
}

/** Makes 0 of the keys of experts whose groups are not taken. Lane i has the keys of groups i,
 *  i + 16, … . */
QD_INLINE void drop_groups(const token *t) {
    const qk_moe_route_args *g = t->g;
    const uint32_t size = g->experts / g->groups;
    uint32_t held[HELD_GROUPS] = {};
    for (uint32_t i = 0; i < g->groups; i++) {
        const uint32_t key = group_key(t, i * size, (i + 1) * size);
        QD_UNROLL for (uint32_t h = 0; h < HELD_GROUPS; h++)
            held[h] = i == h * QD_ROW + t->lane ? key : held[h];
    }
    uint64_t taken = 0;
    for (uint32_t i = 0; i < g->topk_groups; i++) {
        uint32_t key = 0, index = t->lane;
        QD_UNROLL for (uint32_t h = 0; h < HELD_GROUPS; h++) {
            index = held[h] > key ? h * QD_ROW + t->lane : index;
            key = qd_max(key, held[h]);
        }
        const uint32_t best = best_of(key, index);
        taken |= UINT64_C(1) << best;
        QD_UNROLL for (uint32_t h = 0; h < HELD_GROUPS; h++)
            held[h] = best == h * QD_ROW + t->lane ? 0 : held[h];
    }
    for (uint32_t i = 0; i < g->groups; i++)
        for (uint32_t e = first_of(t, i * size); !(taken >> i & 1) && e < (i + 1) * size;
             e += QD_ROW)
            t->keys[e] = 0;
}

/** Returns the best expert that is left, and takes it away. */
QD_INLINE uint32_t take_best(const token *t) {
    uint32_t key = 0, index = t->lane;
    for (uint32_t e = t->lane; e < t->g->experts; e += QD_ROW) {
        index = t->keys[e] > key ? e : index;
        key = qd_max(key, t->keys[e]);
    }
    const uint32_t best = best_of(key, index);
    if (best % QD_ROW == t->lane)
        t->keys[best] = 0;
    return best;
}

/** Writes the experts and their weights; lane i writes columns i, i + 16, … . */
QD_INLINE void write_experts(const token *t, bool is_in, float *weights, int32_t *ids) {
    const qk_moe_route_args *g = t->g;
    float sum = 0;
    for (uint32_t j = 0; j < g->top_k; j++) {
        const uint32_t best = take_best(t);
        const float s = score_of(t, load(g->dtype, t->logits, best));
        sum += s;
        if (is_in && j % QD_ROW == t->lane) {
            ids[j] = (int32_t)best;
            weights[j] = s;
        }
    }
    const float all = g->renormalizes ? sum + qk_moe_tiny_sum : 1.0f;
    for (uint32_t j = t->lane; is_in && j < g->top_k + g->shared; j += QD_ROW) {
        if (j < g->top_k) {
            weights[j] = weights[j] / all * g->scaling;
            continue;
        }
        ids[j] = (int32_t)(g->experts + j - g->top_k);
        weights[j] = g->shared_weight;
    }
}

static_assert(QD_ROW * QK_MOE_ROUTE_TOKENS == 256);
QD_KERNEL_UP_TO(256, qk_moe_route)(const qk_moe_route_args g) {
    qd_begin();
    const uint32_t tokens = __gpu_num_threads(0) / QD_ROW, row = qd_thread() / QD_ROW;
    for (uint32_t first = qd_block() * tokens; first < g.tokens;
         first += __gpu_num_blocks(0) * tokens) {
        const bool is_in = first + row < g.tokens;
        const int64_t i = is_in ? first + row : g.tokens - 1;
        token t = {.g = &g,
                   .logits = (const char *)g.logits +
                             i * g.logits_row * (int64_t)qd_element_bytes((int)g.dtype),
                   .keys = lds + row * g.experts,
                   .lane = qd_thread() % QD_ROW};
        find_keys(&t);
        if (g.topk_groups < g.groups)
            drop_groups(&t);
        write_experts(&t, is_in, g.weights + i * g.weights_row, g.ids + i * g.ids_row);
    }
}
