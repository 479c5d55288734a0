// SPDX-License-Identifier: Apache-2.0
// Sums of absolute differences, and the average of bytes. Source: "CDNA3" and "RDNA4" ISA, VOP3.
#include "vector.h"

// ---- of each lane's fields

static u32x16 absolute_difference(u32x16 a, u32x16 b) {
    return __builtin_elementwise_max(a, b) - __builtin_elementwise_min(a, b);
}

/** Sums the differences of four bytes. With `masked`, bytes of the reference b that are 0 do not
 *  count. */
static u32x16 differences(u32x16 a, u32x16 b, bool masked) {
    u32x16 sum = {};
    for (unsigned shift = 0; shift < 32; shift += 8) {
        u32x16 x = a >> shift & 0xff, y = b >> shift & 0xff;
        u32x16 difference = absolute_difference(x, y);
        sum += masked ? difference & (u32x16)(y != 0) : difference;
    }
    return sum;
}

static u32x16 v_sad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return absolute_difference(a, b) + c;
}

static u32x16 v_sad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return differences(a, b, false) + c;
}

static u32x16 v_sad_hi_u8(u32x16 a, u32x16 b, u32x16 c) {
    return (v_sad_u8(a, b, (u32x16){}) << 16) + c;
}
static u32x16 v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return differences(a, b, true) + c;
}
static u32x16 v_sad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return absolute_difference(a & 0xffff, b & 0xffff) + absolute_difference(a >> 16, b >> 16) + c;
}

// The differences alone fit, so only adding the third source can overflow.
static u32x16 saturated_v_sad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u32(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u8(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_msad_u8(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_hi_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_hi_u8(a, b, (u32x16){}), c);
}
static u32x16 saturated_v_sad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_sad_u16(a, b, (u32x16){}), c);
}

static u32x16 v_lerp_u8(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 out = {};
    for (unsigned shift = 0; shift < 32; shift += 8) {
        u32x16 sum = (a >> shift & 0xff) + (b >> shift & 0xff) + (c >> shift & 1);
        out |= (sum >> 1) << shift;
    }
    return out;
}

// ---- over four windows of the first source, each a byte further

SIM_INLINE u32x16 window(const uint32_t *rows, unsigned n) {
    u32x16 low = load16(rows), high = load16(rows + SIM_LANES);
    return n ? low >> 8 * n | high << (32 - 8 * n) : low;
}

/** Adds sums of 16 bits to those of the third source. */
static void add_windows16(sim_wave *w, const sim_inst *inst, bool masked) {
    _Alignas(64) uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row64(w, inst, 2, tmp[2]);
    const u32x16 most = (u32x16){} + (inst->flags & SIM_CLAMP ? 0xffff : UINT32_MAX);
    COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 sums[4];
        for (unsigned n = 0; n < 4; n++) {
            u32x16 before = load16(c + n / 2 * SIM_LANES + k) >> n % 2 * 16 & 0xffff;
            u32x16 sum = differences(window(a + k, n), load16(b + k), masked) + before;
            sums[n] = __builtin_elementwise_min(sum, most) & 0xffff;
        }
        store16(result + k, sums[0] | sums[1] << 16);
        store16(result + SIM_LANES + k, sums[2] | sums[3] << 16);
    }
    sim_finish64(w, inst, result);
}

static void exec_v_qsad_pk_u16_u8(sim_wave *w, const sim_inst *inst) {
    add_windows16(w, inst, false);
}
static void exec_v_mqsad_pk_u16_u8(sim_wave *w, const sim_inst *inst) {
    add_windows16(w, inst, true);
}

/** Makes four sums of 32 bits. A constant third source is added to the first sum. */
static void exec_v_mqsad_u32_u8(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[2][2 * SIM_LANES], result[4][SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const sim_operand *c = &inst->src[2];
    for (unsigned n = 0; n < 4; n++) {
        COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16) {
            u32x16 sum = c->kind == SIM_OP_VGPR ? load16(w->v[c->reg + n] + k)
                                                : (u32x16){} + (n ? 0 : c->value);
            u32x16 more = differences(window(a + k, n), load16(b + k), true);
            store16(result[n] + k, inst->flags & SIM_CLAMP
                                       ? __builtin_elementwise_add_sat(sum, more)
                                       : sum + more);
        }
    }
    for (unsigned n = 0; n < 4; n++)
        store_masked(w->v[inst->dst[0].reg + n], result[n], w->exec);
}

// clang-format off
#define LIST(X) \
    X(S3, u32, v_sad_u8, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_hi_u8, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_u16, "i:iii", ALL, 'i') \
    X(S3, u32, v_sad_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_lerp_u8, "i:iii", ALL, 'i') \
    X(S3, u32, v_msad_u8, "i:iii", ALL, 'i') \
    X(OWN, u64, v_qsad_pk_u16_u8, "q:qiq", ALL, 'i', SIM_SATURATES) \
    X(OWN, u64, v_mqsad_pk_u16_u8, "q:qiq", ALL, 'i', SIM_SATURATES) \
    X(OWN, u32, v_mqsad_u32_u8, "i:qii", ALL, 'i', SIM_SATURATES)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_sad, opcodes);
