// SPDX-License-Identifier: Apache-2.0
// Sums of absolute differences, and the average of bytes. Source: "CDNA3" and "RDNA4" ISA, VOP3.
#include "vector.h"

// ---- of each lane's fields

static u32x16 absolute_difference(u32x16 a, u32x16 b) {
    return __builtin_elementwise_max(a, b) - __builtin_elementwise_min(a, b);
}

static u32x16 v_sad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return absolute_difference(a, b) + c;
}

static u32x16 v_sad_u8(u32x16 a, u32x16 b, u32x16 c) {
    for (unsigned shift = 0; shift < 32; shift += 8)
        c += absolute_difference(a >> shift & 0xff, b >> shift & 0xff);
    return c;
}

static u32x16 v_sad_hi_u8(u32x16 a, u32x16 b, u32x16 c) {
    return (v_sad_u8(a, b, (u32x16){}) << 16) + c;
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

// ---- against a reference, and over four windows, each a byte further

/** With `masked`, bytes of b that are 0 do not count. */
static uint32_t differences(uint32_t a, uint32_t b, bool masked) {
    uint32_t sum = 0;
    for (unsigned shift = 0; shift < 32; shift += 8) {
        const uint32_t x = a >> shift & 255, y = b >> shift & 255;
        sum += masked && !y ? 0 : x > y ? x - y : y - x;
    }
    return sum;
}

static u32x16 v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    for (unsigned i = 0; i < 16; i++)
        c[i] += differences(a[i], b[i], true);
    return c;
}

static u32x16 saturated_v_msad_u8(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_msad_u8(a, b, (u32x16){}), c);
}

/** Four windows of the first source to 16-bit sums, added to those of the third source. */
SIM_INLINE u64x8 windows(u64x8 a, u64x8 b, u64x8 c, bool masked, bool saturate) {
    u64x8 out = {};
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned n = 0; n < 4; n++) {
            uint64_t sum = differences((uint32_t)(a[i] >> 8 * n), (uint32_t)b[i], masked);
            sum += c[i] >> 16 * n & 0xffff;
            out[i] |= (saturate && sum > 0xffff ? 0xffff : sum & 0xffff) << 16 * n;
        }
    }
    return out;
}

#define WINDOWS(name, masked)                                                                      \
    static u64x8 wrapped_##name(u64x8 a, u64x8 b, u64x8 c) {                                       \
        return windows(a, b, c, masked, false);                                                    \
    }                                                                                              \
    static u64x8 saturated_##name(u64x8 a, u64x8 b, u64x8 c) {                                     \
        return windows(a, b, c, masked, true);                                                     \
    }                                                                                              \
    static void exec_##name(sim_wave *w, const sim_inst *inst) {                                   \
        run64(w, inst, 3, "q:qiq", inst->flags & SIM_CLAMP ? saturated_##name : wrapped_##name);   \
    }
WINDOWS(v_qsad_pk_u16_u8, false)
WINDOWS(v_mqsad_pk_u16_u8, true)

/** Four windows of the first source to four 32-bit sums. */
static void exec_v_mqsad_u32_u8(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][2 * SIM_LANES], result[4][SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const sim_operand *c = &inst->src[2];
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t window = a[lane] | (uint64_t)a[SIM_LANES + lane] << 32;
        for (unsigned n = 0; n < 4; n++) {
            const uint32_t sum = c->kind == SIM_OP_VGPR ? w->v[c->reg + n][lane] : n ? 0 : c->value;
            const uint32_t more = differences((uint32_t)(window >> 8 * n), b[lane], true);
            const bool limit = (inst->flags & SIM_CLAMP) && sum + more < sum;
            result[n][lane] = limit ? UINT32_MAX : sum + more;
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
