// SPDX-License-Identifier: Apache-2.0
// The definition of the sum over a token's experts, in f32, an element at a time.
#include "../moe.h"

float qni_moe_sum_ref(const qni_moe_sum_problem *p, int64_t token, int64_t i) {
    float sum = 0;
    for (int64_t j = 0; j < p->top_k; j++) {
        const int64_t row = qni_moe_row_of(p, token, j);
        const float weight = p->weights ? p->weights[token * p->weights_row + j] : 1;
        if (row >= 0)
            sum = fmaf(weight, (float)qni_get(p->dtype, p->x, row * p->x_row + i), sum);
    }
    return p->addend ? sum + (float)qni_get(p->dtype_out, p->addend, token * p->addend_row + i)
                     : sum;
}
