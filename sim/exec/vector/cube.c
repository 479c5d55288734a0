// SPDX-License-Identifier: Apache-2.0
// Cube maps: the face that a direction (x, y, z) points at, and the place on it. Source: "CDNA3"
// ISA, VOP3.
#include "../numbers.h"
#include "vector.h"

static u32x16 is_z_major(f32x16 x, f32x16 y, f32x16 z) {
    f32x16 a = __builtin_elementwise_abs(z);
    return (u32x16)((a >= __builtin_elementwise_abs(x)) & (a >= __builtin_elementwise_abs(y)));
}

static u32x16 is_y_major(f32x16 x, f32x16 y) {
    return (u32x16)(__builtin_elementwise_abs(y) >= __builtin_elementwise_abs(x));
}

/** Chooses one of three values by the major axis. */
static f32x16 by_axis(f32x16 x, f32x16 y, f32x16 z, f32x16 if_x, f32x16 if_y, f32x16 if_z) {
    return choose(is_z_major(x, y, z), if_z, choose(is_y_major(x, y), if_y, if_x));
}

/** Returns `value`, negated in the lanes whose `axis` is below 0. */
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

// clang-format off
#define LIST(X) \
    X(L3, f32, v_cubeid_f32, "f:fff", ALL, 'i') \
    X(L3, f32, v_cubesc_f32, "f:fff", ALL, 'i') \
    X(L3, f32, v_cubetc_f32, "f:fff", ALL, 'i') \
    X(L3, f32, v_cubema_f32, "f:fff", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_cube, opcodes);
