// SPDX-License-Identifier: Apache-2.0
// Scalar sums, products, minima and maxima of integers. The functions set SCC if the ISA says so.
// Source: "CDNA3" and "RDNA4" ISA, SOP1, SOP2, SOPK.
#include "scalar.h"

// ---- sums

static uint32_t s_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a + b < a;
    return a + b;
}

static uint32_t s_sub_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = b > a;
    return a - b;
}

static uint32_t s_addc_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint64_t sum = (uint64_t)a + b + w->scc;
    w->scc = sum >> 32 != 0;
    return (uint32_t)sum;
}

static uint32_t s_subb_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint64_t difference = (uint64_t)a - b - w->scc;
    w->scc = difference >> 32 != 0;
    return (uint32_t)difference;
}

static uint32_t s_add_i32(sim_wave *w, uint32_t a, uint32_t b) {
    int32_t sum;
    w->scc = __builtin_add_overflow((int32_t)a, (int32_t)b, &sum);
    return (uint32_t)sum;
}

static uint32_t s_sub_i32(sim_wave *w, uint32_t a, uint32_t b) {
    int32_t difference;
    w->scc = __builtin_sub_overflow((int32_t)a, (int32_t)b, &difference);
    return (uint32_t)difference;
}

static uint32_t shift_add(sim_wave *w, uint32_t a, uint32_t b, unsigned shift) {
    const uint64_t sum = ((uint64_t)a << shift) + b;
    w->scc = sum >> 32 != 0;
    return (uint32_t)sum;
}

static uint32_t s_lshl1_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 1);
}
static uint32_t s_lshl2_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 2);
}
static uint32_t s_lshl3_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 3);
}
static uint32_t s_lshl4_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 4);
}

static uint32_t s_absdiff_i32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t difference = a - b;
    return flag(w, (int32_t)difference < 0 ? 0 - difference : difference);
}

static uint32_t s_abs_i32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, (int32_t)a < 0 ? 0 - a : a);
}

static uint64_t s_add_nc_u64(sim_wave *, uint64_t a, uint64_t b) {
    return a + b;
}
static uint64_t s_sub_nc_u64(sim_wave *, uint64_t a, uint64_t b) {
    return a - b;
}

// ---- products

static uint32_t s_mul_i32(sim_wave *, uint32_t a, uint32_t b) {
    return a * b;
}
static uint32_t s_mul_hi_u32(sim_wave *, uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}
static uint32_t s_mul_hi_i32(sim_wave *, uint32_t a, uint32_t b) {
    return (uint32_t)((int64_t)(int32_t)a * (int32_t)b >> 32);
}

static uint64_t s_mul_u64(sim_wave *, uint64_t a, uint64_t b) {
    return a * b;
}

// ---- minima and maxima

static uint32_t s_min_i32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = (int32_t)a < (int32_t)b;
    return w->scc ? a : b;
}

static uint32_t s_min_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a < b;
    return w->scc ? a : b;
}

/** Returns the maximum. Of equal operands the first is the maximum, which sets SCC, but not the
 *  minimum. */
static uint32_t s_max_i32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = (int32_t)a >= (int32_t)b;
    return w->scc ? a : b;
}

static uint32_t s_max_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a >= b;
    return w->scc ? a : b;
}

// ---- with a constant

static void exec_s_addk_i32(sim_wave *w, const sim_inst *inst) {
    uint32_t *dst = &w->s[inst->dst[0].reg];
    *dst = s_add_i32(w, *dst, (uint32_t)(int16_t)inst->imm);
}

static void exec_s_mulk_i32(sim_wave *w, const sim_inst *inst) {
    w->s[inst->dst[0].reg] *= (uint32_t)(int16_t)inst->imm;
}

// clang-format off
#define INTEGERS(X) \
    X(s_add_u32, "i:ii") X(s_sub_u32, "i:ii") X(s_addc_u32, "i:ii") X(s_subb_u32, "i:ii") X(s_add_i32, "i:ii") \
    X(s_sub_i32, "i:ii") X(s_lshl1_add_u32, "i:ii") X(s_lshl2_add_u32, "i:ii") X(s_lshl3_add_u32, "i:ii") \
    X(s_lshl4_add_u32, "i:ii") X(s_absdiff_i32, "i:ii") X(s_abs_i32, "i:ii") X(s_mul_i32, "i:ii", KEEPS) \
    X(s_mul_hi_u32, "i:ii", KEEPS) X(s_mul_hi_i32, "i:ii", KEEPS) X(s_min_i32, "i:ii") X(s_min_u32, "i:ii") \
    X(s_max_i32, "i:ii") X(s_max_u32, "i:ii")
#define WIDE(X) X(s_add_nc_u64) X(s_sub_nc_u64) X(s_mul_u64)
#define LINE_WIDE(name) SALU_ROW(name, GFX12, "q:qq", KEEPS)

INTEGERS(SALU_WRAP32)
WIDE(SALU_WRAP64)

static const sim_opcode opcodes[] = {
    INTEGERS(SALU_LINE) WIDE(LINE_WIDE) SALU_LINE(s_addk_i32, "i:i") SALU_LINE(s_mulk_i32, "i:i", KEEPS)
    // RDNA4's names
    SALU_ALIAS(s_add_co_u32, s_add_u32, GFX12, "i:ii") SALU_ALIAS(s_sub_co_u32, s_sub_u32, GFX12, "i:ii")
    SALU_ALIAS(s_add_co_i32, s_add_i32, GFX12, "i:ii") SALU_ALIAS(s_sub_co_i32, s_sub_i32, GFX12, "i:ii")
    SALU_ALIAS(s_add_co_ci_u32, s_addc_u32, GFX12, "i:ii") SALU_ALIAS(s_sub_co_ci_u32, s_subb_u32, GFX12, "i:ii")
    SALU_ALIAS(s_addk_co_i32, s_addk_i32, GFX12, "i:i")};
// clang-format on
SIM_TABLE(sim_ops_salu_integer, opcodes);
