// SPDX-License-Identifier: Apache-2.0
// Scalar compares and tests of a bit, which set SCC: SOPC, SOPK. Source: "CDNA3" ISA, scalar ALU
// instructions.
#include "../exec.h"

static bool s_cmp_eq_u32(uint32_t a, uint32_t b) {
    return a == b;
}
static bool s_cmp_lg_u32(uint32_t a, uint32_t b) {
    return a != b;
}
static bool s_cmp_gt_u32(uint32_t a, uint32_t b) {
    return a > b;
}
static bool s_cmp_ge_u32(uint32_t a, uint32_t b) {
    return a >= b;
}
static bool s_cmp_lt_u32(uint32_t a, uint32_t b) {
    return a < b;
}
static bool s_cmp_le_u32(uint32_t a, uint32_t b) {
    return a <= b;
}
static bool s_cmp_eq_i32(uint32_t a, uint32_t b) {
    return a == b;
}
static bool s_cmp_lg_i32(uint32_t a, uint32_t b) {
    return a != b;
}
static bool s_cmp_gt_i32(uint32_t a, uint32_t b) {
    return (int32_t)a > (int32_t)b;
}
static bool s_cmp_ge_i32(uint32_t a, uint32_t b) {
    return (int32_t)a >= (int32_t)b;
}
static bool s_cmp_lt_i32(uint32_t a, uint32_t b) {
    return (int32_t)a < (int32_t)b;
}
static bool s_cmp_le_i32(uint32_t a, uint32_t b) {
    return (int32_t)a <= (int32_t)b;
}
static bool s_bitcmp0_b32(uint32_t a, uint32_t b) {
    return !(a >> (b & 31) & 1);
}
static bool s_bitcmp1_b32(uint32_t a, uint32_t b) {
    return a >> (b & 31) & 1;
}
static bool s_cmp_eq_u64(uint64_t a, uint64_t b) {
    return a == b;
}
static bool s_cmp_lg_u64(uint64_t a, uint64_t b) {
    return a != b;
}
static bool s_bitcmp0_b64(uint64_t a, uint64_t b) {
    return !(a >> (b & 63) & 1);
}
static bool s_bitcmp1_b64(uint64_t a, uint64_t b) {
    return a >> (b & 63) & 1;
}

// ---- tables: X(name, operand types)
// clang-format off

#define COMPARES32(X) \
    X(s_cmp_eq_u32) X(s_cmp_lg_u32) X(s_cmp_gt_u32) X(s_cmp_ge_u32) X(s_cmp_lt_u32) X(s_cmp_le_u32) \
    X(s_cmp_eq_i32) X(s_cmp_lg_i32) X(s_cmp_gt_i32) X(s_cmp_ge_i32) X(s_cmp_lt_i32) X(s_cmp_le_i32) \
    X(s_bitcmp0_b32) X(s_bitcmp1_b32)

#define COMPARES64(X) \
    X(s_cmp_eq_u64, ":qq") X(s_cmp_lg_u64, ":qq") X(s_bitcmp0_b64, ":qi") X(s_bitcmp1_b64, ":qi")

// SOPK compares: the name, the compare, and the constant's type.
#define COMPARES16(X) \
    X(s_cmpk_eq_i32, s_cmp_eq_i32, int16_t) X(s_cmpk_lg_i32, s_cmp_lg_i32, int16_t) \
    X(s_cmpk_gt_i32, s_cmp_gt_i32, int16_t) X(s_cmpk_ge_i32, s_cmp_ge_i32, int16_t) \
    X(s_cmpk_lt_i32, s_cmp_lt_i32, int16_t) X(s_cmpk_le_i32, s_cmp_le_i32, int16_t) \
    X(s_cmpk_eq_u32, s_cmp_eq_u32, uint16_t) X(s_cmpk_lg_u32, s_cmp_lg_u32, uint16_t) \
    X(s_cmpk_gt_u32, s_cmp_gt_u32, uint16_t) X(s_cmpk_ge_u32, s_cmp_ge_u32, uint16_t) \
    X(s_cmpk_lt_u32, s_cmp_lt_u32, uint16_t) X(s_cmpk_le_u32, s_cmp_le_u32, uint16_t)

#define WRAP_COMPARE32(name) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        w->scc = name(sim_read32(w, &inst->src[0]), sim_read32(w, &inst->src[1])); \
    }
#define WRAP_COMPARE64(name, types) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        w->scc = name(sim_read64(w, &inst->src[0]), sim_read64(w, &inst->src[1])); \
    }
#define WRAP_COMPARE16(name, compare, constant) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        w->scc = compare(sim_read32(w, &inst->src[0]), (uint32_t)(constant)inst->imm); \
    }

COMPARES32(WRAP_COMPARE32)
COMPARES64(WRAP_COMPARE64)
COMPARES16(WRAP_COMPARE16)

#define LINE(name, types) SIM_ROW(#name, exec_##name, ALL, SIM_SALU, 'i', types)
#define LINE_COMPARE(name) LINE(name, ":ii")
#define LINE_COMPARE16(name, compare, constant) LINE(name, ":ii")

static const sim_opcode opcodes[] = {
    COMPARES32(LINE_COMPARE) COMPARES64(LINE) COMPARES16(LINE_COMPARE16)};

// clang-format on
SIM_TABLE(sim_ops_compare, opcodes);
