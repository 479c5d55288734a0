// SPDX-License-Identifier: Apache-2.0
// The definition of routing, in f32, an expert at a time. route_test.c compares its scores with
// double precision.
#include "../moe.h"

/** Returns the sum of exp(logits - top), by partial sums that are added in pairs. */
static float exp_sum(const qni_moe_route_problem *p, int64_t token, float top) {
    float sums[QK_MOE_SUMS] = {};
    for (int64_t e = 0; e < p->experts; e++)
        sums[e % QK_MOE_SUMS] +=
            qk_moe_exp((float)qni_get(p->dtype, p->logits, token * p->logits_row + e) - top);
    for (int step = QK_MOE_SUMS / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            sums[i] += sums[i + step];
    return sums[0];
}

static void find_scores(const qni_moe_route_problem *p, int64_t token, float *scores) {
    float top = -HUGE_VALF, sum = 1;
    for (int64_t e = 0; e < p->experts; e++) {
        scores[e] = (float)qni_get(p->dtype, p->logits, token * p->logits_row + e);
        top = scores[e] > top ? scores[e] : top;
    }
    if (!p->is_sigmoid)
        sum = exp_sum(p, token, top);
    for (int64_t e = 0; e < p->experts; e++)
        scores[e] = p->is_sigmoid ? qk_moe_sigmoid(scores[e]) : qk_moe_exp(scores[e] - top) / sum;
}

/** Returns the index of the largest key, the lowest of equal ones. */
static int64_t best_of(const uint32_t *keys, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = keys[i] > keys[best] ? i : best;
    return best;
}

/** Makes 0 of the keys of experts whose groups are not taken. */
static void drop_groups(const qni_moe_route_problem *p, uint32_t *keys) {
    const int64_t size = p->experts / p->groups;
    uint32_t groups[QK_MOE_MAX_GROUPS];
    for (int64_t g = 0; g < p->groups; g++) {
        uint32_t first = 0, second = 0;
        for (int64_t e = g * size; e < (g + 1) * size; e++) {
            second = keys[e] > first ? first : keys[e] > second ? keys[e] : second;
            first = keys[e] > first ? keys[e] : first;
        }
        groups[g] = qk_moe_group_key(p->bias != nullptr, first, second);
    }
    for (int64_t i = 0; i < p->topk_groups; i++)
        groups[best_of(groups, p->groups)] = 0;
    for (int64_t e = 0; e < p->experts; e++)
        keys[e] = groups[e / size] == 0 ? keys[e] : 0;
}

void qni_moe_route_ref(const qni_moe_route_problem *p, int64_t token, float *scores,
                       uint32_t *keys) {
    float *weights = p->weights + token * p->weights_row, sum = 0;
    int32_t *ids = p->ids + token * p->ids_row;
    find_scores(p, token, scores);
    for (int64_t e = 0; e < p->experts; e++)
        keys[e] =
            qk_moe_key(p->bias ? scores[e] + (float)qni_get(p->dtype_bias, p->bias, e) : scores[e]);
    if (p->topk_groups < p->groups)
        drop_groups(p, keys);
    for (int64_t j = 0; j < p->top_k; j++) {
        const int64_t e = best_of(keys, p->experts);
        keys[e] = 0;
        ids[j] = (int32_t)e;
        weights[j] = scores[e];
        sum += scores[e];
    }
    for (int64_t j = 0; j < p->top_k; j++)
        weights[j] = weights[j] / (p->renormalizes ? sum + qk_moe_tiny_sum : 1) * p->scaling;
    for (int64_t j = 0; j < p->shared; j++) {
        ids[p->top_k + j] = (int32_t)(p->experts + j);
        weights[p->top_k + j] = p->shared_weight;
    }
}
