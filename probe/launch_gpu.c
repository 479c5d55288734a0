// SPDX-License-Identifier: Apache-2.0
// Workgroups that do nothing, or sleep and say when.
//
// Launch    64 threads, any grid
#include "measure.h"
#include "probe_abi.h"

QD_KERNEL(QD_WAVE) qk_probe_nothing(const qk_launch_args) {}

QD_KERNEL(QD_WAVE) qk_probe_sleep(const qk_launch_args g) {
    const uint64_t begin = qd_cycles();
    QD_NO_UNROLL for (uint32_t i = 0; i < g.naps; i++)
        asm volatile("s_sleep 127");
    if (g.out && qd_lane() == 0) {
        g.out[2 * qd_block()] = begin;
        g.out[2 * qd_block() + 1] = qd_cycles();
    }
}
