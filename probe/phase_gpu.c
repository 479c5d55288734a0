// SPDX-License-Identifier: Apache-2.0
// The cycles that LDS takes for patterns of addresses.
//
// Launch    256 threads: a wave on each SIMD, since the banks are faster than the port of two SIMDs
// LDS       32 KiB
#include "measure.h"
#include "probe_abi.h"

#define QK_MANY(text)                                                                              \
    asm volatile(".rept 16\n" text "\n .endr\n s_waitcnt lgkmcnt(0)\n"                             \
                 :                                                                                 \
                 : [at] "v"(at)                                                                    \
                 : "v32", "v33", "v34", "v35", "memory")

QD_INLINE void access_lds(uint32_t access, uint32_t at) {
    switch (access) {
    case QK_READ_B32:
        QK_MANY("ds_read_b32 v32, %[at]");
        break;
    case QK_READ_B64:
        QK_MANY("ds_read_b64 v[32:33], %[at]");
        break;
    case QK_READ_B128:
        QK_MANY("ds_read_b128 v[32:35], %[at]");
        break;
    case QK_WRITE_B32:
        QK_MANY("ds_write_b32 %[at], v32");
        break;
    case QK_WRITE_B64:
        QK_MANY("ds_write_b64 %[at], v[32:33]");
        break;
    default:
        QK_MANY("ds_write_b128 %[at], v[32:35]");
        break;
    }
}

QD_KERNEL(256) qk_probe_phase(const qk_phase_args g) {
    [[clang::loader_uninitialized]] static QD_LDS uint32_t lds[QK_LDS_BYTES / 4];
    for (uint32_t i = qd_thread(); i < QK_LDS_BYTES / 4; i += 256)
        lds[i] = 0;
    const uint32_t base = (uint32_t)(uintptr_t)lds;
    QD_NO_UNROLL for (uint32_t p = 0; p < g.patterns; p++) {
        const uint32_t at = qd_opaque(base + g.address[p * QK_PHASE_LANES + qd_lane()]);
        uint64_t begin = 0, end = 0;
        QD_NO_UNROLL for (int turn = 0; turn < 2; turn++) { // the first fetches the instructions
            qd_barrier();
            begin = qd_cycles();
            access_lds(g.access, at);
            qd_barrier(); // waves do not get equal shares
            end = qd_cycles();
        }
        if (qd_thread() == 0)
            g.out[p] = (uint32_t)(end - begin);
    }
}
