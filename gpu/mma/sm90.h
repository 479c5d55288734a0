// SPDX-License-Identifier: Apache-2.0
// NVIDIA's tensor cores by the instructions of Hopper (wgmma, sm_90a), for kernels of its own.
//
// A team, four waves from a multiple of four on (NVIDIA: a warpgroup), computes d[64, N] from
// a[64, k] and b[N, k], both in LDS, 32 bytes of k an instruction. It starts products and waits for
// them later. Operands are tiles of rows of 128 bytes with the 128-byte swizzle, as a tensor map of
// that swizzle writes them, at multiples of 1024 bytes. Thread t of the team holds of each group g
// of eight columns d[r, c], d[r, c + 1], d[r + 8, c], d[r + 8, c + 1] in elements 4 g to 4 g + 3:
// r = 16 (t / 32) + t % 32 / 4, c = 8 g + 2 (t % 4).
//
// What compilers need, by measurement:
//   * A team's number comes through qd_wave_uniform. Descriptors then live in uniform registers.
//   * Sums under way must not meet in a PHI. A loop over them that may run zero times, or an if
//     around a product, makes clang copy them, and ptxas waits after each product (C7514, C7515,
//     C7517). Write do-while, or wait for all in each turn.
// Source: PTX ISA 8.0, wgmma.
#ifndef QD_MMA_SM90_H
#define QD_MMA_SM90_H

#include "../gpu.h"

enum { QD_TEAM = 128 }; // threads

/** Returns x, which is equal in the wave, so that the assembler knows it. */
QD_INLINE uint32_t qd_wave_uniform(uint32_t x) {
    return (uint32_t)__nvvm_shfl_sync_idx_i32(0xFFFFFFFF, (int)x, 0, 31);
}

/** Returns lane `from`'s x; all lanes take part, and each has a `from` of its own. */
QD_INLINE uint32_t qd_from_lane(uint32_t x, uint32_t from) {
    return (uint32_t)__nvvm_shfl_sync_idx_i32(0xFFFFFFFF, (int)x, (int)from, 31);
}
QD_INLINE int64_t qd_from_lane2(int64_t x, uint32_t from) {
    const uint64_t bits = (uint64_t)x, high = qd_from_lane((uint32_t)(bits >> 32), from);
    return (int64_t)(high << 32 | qd_from_lane((uint32_t)bits, from));
}

/** Returns whether x holds in any lane of the wave. */
QD_INLINE bool qd_wave_any(bool x) {
    return __nvvm_vote_any_sync(0xFFFFFFFF, x);
}

// ---- registers: what a thread of the team may use from here on; each role once, at its start

#define QD_REGISTERS_LESS(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n))
#define QD_REGISTERS_MORE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n))

// ---- operands

/** The descriptor of a tile; 32 bytes of k further is 2 more, `bytes` further bytes / 16 more. */
QD_INLINE uint64_t qd_wgmma_tile(uint32_t at) {
    constexpr uint64_t eight_rows = 1024 / 16, swizzle_128 = 1;
    return (uint64_t)(at >> 4) | 1ull << 16 | eight_rows << 32 | swizzle_128 << 62;
}

/** The descriptor of a tile whose rows are k: b[k, N], in boxes of 64 columns that lie `box` bytes
 *  apart; 16 rows of k further is 2048 / 16 more. */
QD_INLINE uint64_t qd_wgmma_tile_across(uint32_t at, uint32_t box) {
    constexpr uint64_t eight_rows = 1024 / 16, swizzle_128 = 1;
    return (uint64_t)(at >> 4) | (uint64_t)(box >> 4) << 16 | eight_rows << 32 | swizzle_128 << 62;
}

/** As qd_wgmma_tile_across, of one box of 32 columns with the 64-byte swizzle; 16 rows of k further
 *  is 1024 / 16 more. */
QD_INLINE uint64_t qd_wgmma_tile_across_32(uint32_t at) {
    constexpr uint64_t eight_rows = 512 / 16, swizzle_64 = 2;
    return (uint64_t)(at >> 4) | 1ull << 16 | eight_rows << 32 | swizzle_64 << 62;
}

// A thread's N / 2 sums are so many operands of one statement: their names, and the C operands.
#define QD_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define QD_NAMES_32 QD_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QD_NAMES_40 QD_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define QD_NAMES_64                                                                                \
    QD_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51" \
                ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QD_NAMES_96                                                                                \
    QD_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83" \
                ",%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define QD_NAMES_128                                                                               \
    QD_NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"     \
                ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define QD_SUMS_8(d, i)                                                                            \
    "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3]), "+f"((d)[i + 4]),          \
        "+f"((d)[i + 5]), "+f"((d)[i + 6]), "+f"((d)[i + 7])
#define QD_SUMS_16(d, i) QD_SUMS_8(d, i), QD_SUMS_8(d, i + 8)
#define QD_SUMS_32(d, i) QD_SUMS_16(d, i), QD_SUMS_16(d, i + 16)
#define QD_SUMS_40(d, i) QD_SUMS_32(d, i), QD_SUMS_8(d, i + 32)
#define QD_SUMS_64(d, i) QD_SUMS_32(d, i), QD_SUMS_32(d, i + 32)
#define QD_SUMS_96(d, i) QD_SUMS_64(d, i), QD_SUMS_32(d, i + 64)
#define QD_SUMS_128(d, i) QD_SUMS_64(d, i), QD_SUMS_64(d, i + 64)

// ---- products: begin, start some, commit them as one, wait

QD_INLINE void qd_wgmma_begin(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
QD_INLINE void qd_wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/** Starts the instruction `kind`, such as "m64n128k32.f32.e4m3.e4m3", with sums = N / 2, a number;
 *  adds to d if `keep`, a constant, else sets d without reading it. `last` are the instruction's
 *  last operands: "1, 1", and for 16-bit kinds ", 0, 0" more. */
#define QD_WGMMA(kind, last, sums, keep, d, a, b) QD_WGMMA_(kind, last, sums, keep, d, a, b)
#define QD_WGMMA_(kind, last, sums, keep, d, a, b)                                                 \
    asm volatile("{.reg .pred keep; setp.ne.b32 keep, " #keep ", 0;\n\t"                           \
                 "wgmma.mma_async.sync.aligned." kind " {" QD_NAMES_##sums                         \
                 "}, %[a_], %[b_], keep, " last ";}"                                               \
                 : QD_SUMS_##sums(d, 0)                                                            \
                 : [a_] "l"(a), [b_] "l"(b)                                                        \
                 : "memory")

/** Starts an instruction whose a is in registers: the pairs (r, c), (r + 8, c), (r, c + 8) and
 *  (r + 8, c + 8) of 16 columns, which is how a team's sums lie, packed. Adds to d. */
#define QD_WGMMA_A(kind, last, sums, d, a, b) QD_WGMMA_A_(kind, last, sums, d, a, b)
#define QD_WGMMA_A_(kind, last, sums, d, a, b)                                                     \
    asm volatile(                                                                                  \
        "{.reg .pred keep; setp.ne.b32 keep, 1, 0;\n\t"                                            \
        "wgmma.mma_async.sync.aligned." kind " {" QD_NAMES_##sums                                  \
        "}, {%[a0_], %[a1_], %[a2_], %[a3_]}, %[b_], keep, " last ";}"                             \
        : QD_SUMS_##sums(d, 0)                                                                     \
        : [a0_] "r"((a)[0]), [a1_] "r"((a)[1]), [a2_] "r"((a)[2]), [a3_] "r"((a)[3]), [b_] "l"(b)  \
        : "memory")

/** Waits for all committed products, and ties their sums to the wait. */
#define QD_WGMMA_WAIT(sums, d) QD_WGMMA_WAIT_(sums, d)
#define QD_WGMMA_WAIT_(sums, d)                                                                    \
    asm volatile("wgmma.wait_group.sync.aligned 0;" : QD_SUMS_##sums(d, 0)::"memory")

/** Waits until one commit at most is under way, and ties the sums of those before to the wait. */
#define QD_WGMMA_WAIT_BEFORE_LAST(sums, d) QD_WGMMA_WAIT_BEFORE_LAST_(sums, d)
#define QD_WGMMA_WAIT_BEFORE_LAST_(sums, d)                                                        \
    asm volatile("wgmma.wait_group.sync.aligned 1;" : QD_SUMS_##sums(d, 0)::"memory")
/** Keeps clang from moving what is computed from the sums, or they themselves, past this place. */
#define QD_WGMMA_HOLD(sums, d) QD_WGMMA_HOLD_(sums, d)
#define QD_WGMMA_HOLD_(sums, d) asm volatile("" : QD_SUMS_##sums(d, 0))

/** Waits until one commit at most is under way; names no sums, which may still change. */
QD_INLINE void qd_wgmma_wait_before_last(void) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// ---- results

QD_INLINE uint32_t qd_pack_bf16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
QD_INLINE uint32_t qd_pack_f16(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
/** Returns the two values of a pair, the low one first. */
QD_INLINE qd_f32x2 qd_unpack_bf16(uint32_t pair) {
    return (qd_f32x2){qd_as_f32(pair << 16), qd_as_f32(pair & 0xFFFF0000)};
}
/** Stores four 8 x 8 tiles of 16-bit values, of each of which this thread has two in a word, to the
 *  rows whose addresses the lanes give: lane 8 i + r row r of tile i. */
QD_INLINE void qd_store_tiles(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

#endif
