// SPDX-License-Identifier: Apache-2.0
// The time of instructions: loops that repeat a line of bodies_abi.def.
//
// Needs     s_memtime and s_memrealtime; instructions of the line
// Launch    any number of waves up to 8; waves from g.first_other on repeat another line, so that
//           two waves of a SIMD share it
// LDS       32 KiB, of zeros
// Registers those that bodies_abi.def names
// Source    the method of sim/clock/clock_test.c: of two loops one repeats the line twice as often,
//           so that what a turn of the loop itself takes drops out of the difference
#include "measure.h"
#include "probe_abi.h"

// Moments are taken beside the loop, and the last one when all that the loop asked for is there and
// matrix instructions are done.
#define QK_LOOP(repeats, before, body)                                                             \
    asm volatile(                                                                                  \
        "s_mov_b64 s[20:21], exec\n" before "s_mov_b32 s24, %[loops]\n"                            \
        "s_memtime %[cycles]\n s_memrealtime %[ticks]\n s_waitcnt lgkmcnt(0)\n"                    \
        "1: .rept " repeats "\n" body ".endr\n"                                                    \
        "s_sub_u32 s24, s24, 1\n s_cmp_lg_u32 s24, 0\n s_cbranch_scc1 1b\n"                        \
        "s_mov_b64 exec, s[20:21]\n s_waitcnt vmcnt(0) lgkmcnt(0)\n s_nop 15\n s_nop 4\n"          \
        "s_memtime %[end_cycles]\n s_memrealtime %[end_ticks]\n s_waitcnt lgkmcnt(0)\n"            \
        : [cycles] "=&s"(at[0].cycles), [ticks] "=&s"(at[0].ticks),                                \
          [end_cycles] "=&s"(at[1].cycles), [end_ticks] "=&s"(at[1].ticks)                         \
        : [lane] "v"(qd_lane()), [lds] "v"(lds), [bytes] "s"(g->bytes), [loops] "s"(loops)         \
        : QK_VECTORS, QK_ACCUMULATORS, QK_SCALARS, "scc", "vcc", "memory")
#define QK_TEN(x, n)                                                                               \
    x #n "0", x #n "1", x #n "2", x #n "3", x #n "4", x #n "5", x #n "6", x #n "7", x #n "8",      \
        x #n "9"
#define QK_VECTORS                                                                                 \
    "v32", "v33", "v34", "v35", "v36", "v37", "v38", "v39", QK_TEN("v", 4), QK_TEN("v", 5),        \
        QK_TEN("v", 6), QK_TEN("v", 7), QK_TEN("v", 8), "v90", "v91", "v92", "v93", "v94", "v95"
#define QK_ACCUMULATORS                                                                            \
    "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", QK_TEN("a", 1), QK_TEN("a", 2),    \
        "a30", "a31"
#define QK_SCALARS QK_TEN("s", 2), "s30", "s31"

/** The two loops; 8 and 16 are QK_REPEATS and twice as many. */
#define QK_CASE(name, before, body)                                                                \
    case QK_BODY_##name:                                                                           \
        if (is_longer)                                                                             \
            QK_LOOP("16", before, body);                                                           \
        else                                                                                       \
            QK_LOOP("8", before, body);                                                            \
        break;

QD_INLINE void run_loop(qk_moment at[2], const QD_LDS qd_u32x4 *lds, const qk_issue_args *g,
                        uint32_t body, uint32_t loops, bool is_longer) {
    switch (body) {
#define QK_BODY QK_CASE
#if QD_IS_CDNA4
#define QK_BODY_CDNA3(name, before, body)
#define QK_BODY_CDNA4 QK_CASE
#else
#define QK_BODY_CDNA3 QK_CASE
#define QK_BODY_CDNA4(name, before, body)
#endif
#include "bodies_abi.def"
    default:
        break;
    }
}

QD_KERNEL_UP_TO(512, qk_probe_issue)(const qk_issue_args g) {
    [[clang::loader_uninitialized]] static QD_LDS qd_u32x4 lds[QK_LDS_BYTES / 16];
    for (uint32_t i = qd_thread(); i < QK_LDS_BYTES / 16; i += __gpu_num_threads(0))
        lds[i] = (qd_u32x4)0;
    if (g.on_one_simd && qd_wave() % QK_SIMDS)
        return;
    const bool is_other = qd_wave() >= g.first_other;
    const uint32_t body = is_other ? g.other : g.body;
    const uint32_t loops = is_other ? g.other_loops : g.loops;
    qk_moment at[4] = {};
    QD_NO_UNROLL for (uint32_t turn = 0; turn < g.turns; turn++) {
        qd_barrier();
        run_loop(at, lds, &g, body, loops, false);
        qd_barrier();
        run_loop(at + 2, lds, &g, body, loops, true);
    }
    if (qd_block() == 0 && qd_lane() == 0) QD_UNROLL
        for (int i = 0; i < 4; i++)
            g.out[4 * qd_wave() + i] = at[i];
}
