// SPDX-License-Identifier: Apache-2.0
// What kind of instruction one is. Worked out once, from the mnemonic, after sim_find_effects.
#include "hooks.h"
#include "look.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool begins(const char *text, const char *part) {
    return !strncmp(text, part, strlen(part));
}

/** What follows the shape in "v_mfma_f32_16x16x32_fp8_fp8": the types of A and B. */
static const char *after_shape(const char *name) {
    for (const char *c = name; *c; c++)
        if (*c == 'x' && isdigit((unsigned char)c[1]) && isdigit((unsigned char)c[-1]))
            name = c + 1 + strspn(c + 1, "0123456789");
    return name;
}

uint64_t sim_matrix_ops(const sim_inst *inst) {
    const char *shape = inst->opcode->mnemonic, *end = after_shape(shape);
    unsigned m, n, k;
    if (inst->kind < SIM_KIND_MATRIX_I8 || inst->kind > SIM_KIND_MATRIX_F64)
        return 0;
    for (shape = end; isdigit((unsigned char)shape[-1]) || shape[-1] == 'x'; shape--) {
    }
    if (sscanf(shape, "%ux%ux%u", &m, &n, &k) != 3)
        return 0;
    const bool is_wide = strstr(inst->opcode->mnemonic, "mfma_f64");
    bool is_narrow = strstr(inst->opcode->mnemonic, "wmma"); // one block, whatever its registers
    const uint64_t outputs = (uint64_t)inst->dst[0].count * SIM_LANES / (is_wide ? 2 : 1);
    return 2 * k * (is_narrow ? (uint64_t)m * n : outputs); // blocks of m by n
}

/** The form that takes 8-, 6- and 4-bit floats runs at the rate of the widest of them. */
static uint8_t kind_of_f8f6f4(const sim_inst *inst) {
    enum { FIRST_NARROW = 2 }; // of the formats: fp8, bf8, fp6, bf6, fp4
    const bool is_wide = inst->cbsz < FIRST_NARROW || inst->blgp < FIRST_NARROW;
    return is_wide ? SIM_KIND_MATRIX_F8 : SIM_KIND_MATRIX_F6F4;
}

static uint8_t kind_of_matrix(const sim_inst *inst) {
    static const struct {
        const char *type;
        uint8_t kind;
    } types[] = {{"xf32", SIM_KIND_MATRIX_XF32}, {"bf16", SIM_KIND_MATRIX_BF16},
                 {"f16", SIM_KIND_MATRIX_F16},   {"f32", SIM_KIND_MATRIX_F32},
                 {"f64", SIM_KIND_MATRIX_F64},   {"fp8", SIM_KIND_MATRIX_F8},
                 {"bf8", SIM_KIND_MATRIX_F8}};
    const char *inputs = after_shape(inst->opcode->mnemonic);
    if (strstr(inputs, "f8f6f4"))
        return kind_of_f8f6f4(inst);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strstr(inputs, types[i].type))
            return types[i].kind;
    return SIM_KIND_MATRIX_I8;
}

static uint8_t kind_of_vmem(const sim_inst *inst) {
    switch (inst->effects.access) {
    case SIM_ACCESS_STORE:
        return SIM_KIND_STORE;
    case SIM_ACCESS_ATOMIC:
        return inst->num_dst || (inst->flags & SIM_GLC) ? SIM_KIND_ATOMIC_RETURN : SIM_KIND_ATOMIC;
    case SIM_ACCESS_NONE:
        return SIM_KIND_CACHE;
    default:
        return SIM_KIND_LOAD;
    }
}

static uint8_t kind_of_flow(const char *name) {
    static const struct {
        const char *begin;
        uint8_t kind;
    } begins_with[] = {{"s_branch", SIM_KIND_BRANCH},    {"s_cbranch", SIM_KIND_BRANCH},
                       {"s_setpc", SIM_KIND_BRANCH},     {"s_swappc", SIM_KIND_BRANCH},
                       {"s_call", SIM_KIND_BRANCH},      {"s_sendmsg", SIM_KIND_MESSAGE},
                       {"s_endpgm", SIM_KIND_MESSAGE},   {"s_barrier", SIM_KIND_BARRIER},
                       {"s_wait", SIM_KIND_WAIT},        {"s_getpc", SIM_KIND_SALU},
                       {"s_getreg", SIM_KIND_SALU},      {"s_setreg", SIM_KIND_SALU},
                       {"s_prefetch", SIM_KIND_SMEM},    {"s_buffer_prefetch", SIM_KIND_SMEM},
                       {"buffer_", SIM_KIND_CACHE},      {"global_", SIM_KIND_CACHE},
                       {"s_icache_inv", SIM_KIND_CACHE}, {"s_gl1_inv", SIM_KIND_CACHE}};
    for (size_t i = 0; i < sizeof begins_with / sizeof *begins_with; i++)
        if (begins(name, begins_with[i].begin))
            return begins_with[i].kind;
    return SIM_KIND_INTERNAL;
}

void sim_find_kind(sim_inst *inst) {
    switch ((sim_class)inst->opcode->klass) {
    case SIM_SALU:
        inst->kind = SIM_KIND_SALU;
        break;
    case SIM_SMEM:
        inst->kind = SIM_KIND_SMEM;
        break;
    case SIM_VALU:
        inst->kind = SIM_KIND_VALU;
        break;
    case SIM_MFMA:
        inst->kind = kind_of_matrix(inst);
        break;
    case SIM_LDS_OP:
        inst->kind = SIM_KIND_LDS;
        break;
    case SIM_VMEM:
        inst->kind = kind_of_vmem(inst);
        break;
    case SIM_FLOW:
        inst->kind = kind_of_flow(inst->opcode->mnemonic);
        break;
    }
}
