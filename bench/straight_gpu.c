// SPDX-License-Identifier: Apache-2.0
// The kernel of sim_load: all steps of straight.h, unrolled.
#include "straight.h"

__attribute__((amdgpu_kernel)) void straight(__attribute__((address_space(1))) uint32_t *out) {
    uint32_t lane = __builtin_amdgcn_workitem_id_x(), x = lane, y = 1;
#pragma clang loop unroll(full)
    for (uint32_t i = 0; i < STRAIGHT_STEPS; i++)
        x = straight_step(x, &y, i);
    out[lane] = x;
}
