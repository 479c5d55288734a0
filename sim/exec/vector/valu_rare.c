// SPDX-License-Identifier: Apache-2.0
// Vector instructions for pictures that compute code may use too: cube maps, lighting, sums of
// absolute differences over four windows. Source: "CDNA3" and "RDNA4" ISA, VOP3.
#include "../numbers.h"
#include "vector.h"

// ---- cube maps: the face that a direction (x, y, z) looks at, and where on it

static u32x16 is_z_major(f32x16 x, f32x16 y, f32x16 z) {
    f32x16 a = __builtin_elementwise_abs(z);
    return (u32x16)((a >= __builtin_elementwise_abs(x)) & (a >= __builtin_elementwise_abs(y)));
}

static u32x16 is_y_major(f32x16 x, f32x16 y) {
    return (u32x16)(__builtin_elementwise_abs(y) >= __builtin_elementwise_abs(x));
}

/** By the major axis. */
static f32x16 by_axis(f32x16 x, f32x16 y, f32x16 z, f32x16 if_x, f32x16 if_y, f32x16 if_z) {
    return choose(is_z_major(x, y, z), if_z, choose(is_y_major(x, y), if_y, if_x));
}

/** `value`, negated in the lanes where `axis` is below 0. */
static f32x16 negated_if(f32x16 axis, f32x16 value) {
    return choose((u32x16)(axis < 0), -value, value);
}

static f32x16 v_cubeid_f32(f32x16 x, f32x16 y, f32x16 z) {
    f32x16 zero = {}, one = zero + 1;
    f32x16 id_x = choose((u32x16)(x < 0), one, zero);
    f32x16 id_y = choose((u32x16)(y < 0), one, zero) + 2;
    f32x16 id_z = choose((u32x16)(z < 0), one, zero) + 4;
    return by_axis(x, y, z, id_x, id_y, id_z);
}

static f32x16 v_cubesc_f32(f32x16 x, f32x16 y, f32x16 z) {
    return by_axis(x, y, z, negated_if(x, -z), x, negated_if(z, x));
}

static f32x16 v_cubetc_f32(f32x16 x, f32x16 y, f32x16 z) {
    return by_axis(x, y, z, -y, negated_if(y, z), -y);
}

static f32x16 v_cubema_f32(f32x16 x, f32x16 y, f32x16 z) {
    return by_axis(x, y, z, x * 2, y * 2, z * 2);
}

// ---- lighting

static f32x16 v_mullit_f32(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 least = (f32x16){} - 0x1.fffffep127f;
    u32x16 dark = (u32x16)((b == least) | (b == -__builtin_inff()) | (c <= 0));
    return choose(dark | is_nan(b) | is_nan(c), least, product_of(a, b));
}

// ---- sums of absolute differences

/** v_msad_u8: bytes of `reference` that are 0 do not count. */
static uint32_t masked_difference(uint32_t a, uint32_t reference, uint32_t sum) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
        const uint32_t x = a >> shift & 255, y = reference >> shift & 255;
        sum += !y ? 0 : x > y ? x - y : y - x;
    }
    return sum;
}

/** Four windows of the first source, each a byte further, to four 32-bit sums. */
static void exec_v_mqsad_u32_u8(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][2 * SIM_LANES], result[4][SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const sim_operand *c = &inst->src[2];
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint64_t window = a[lane] | (uint64_t)a[SIM_LANES + lane] << 32;
        for (unsigned n = 0; n < 4; n++) {
            const uint32_t sum = c->kind == SIM_OP_VGPR ? w->v[c->reg + n][lane] : n ? 0 : c->value;
            const uint32_t more = masked_difference((uint32_t)(window >> 8 * n), b[lane], 0);
            const bool limit = (inst->flags & SIM_CLAMP) && sum + more < sum;
            result[n][lane] = limit ? UINT32_MAX : sum + more;
        }
    }
    for (unsigned n = 0; n < 4; n++)
        store_masked(w->v[inst->dst[0].reg + n], result[n], w->exec);
}

// clang-format off
#define LIST(X) \
    X(3, f32, v_cubeid_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_cubesc_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_cubetc_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_cubema_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_mullit_f32, "f:fff", GFX11P, 'i') \
    X(OWN, u32, v_mqsad_u32_u8, "i:qii", ALL, 'i', SIM_SATURATES)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_rare, opcodes);
