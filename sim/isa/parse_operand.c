// SPDX-License-Identifier: Apache-2.0
// Parses an operand of disassembled text: a register, a range of them, a number, with its signs and
// halves.
#include "parse.h"

typedef struct named_operand {
    const char *name;
    uint8_t kind, count;
    uint16_t reg;
} named_operand;

static const named_operand named_operands[] = {
    {"vcc", SIM_OP_SGPR, 2, 106},
    {"vcc_lo", SIM_OP_SGPR, 1, 106},
    {"vcc_hi", SIM_OP_SGPR, 1, 107},
    {"exec", SIM_OP_SGPR, 2, 126},
    {"exec_lo", SIM_OP_SGPR, 1, 126},
    {"exec_hi", SIM_OP_SGPR, 1, 127},
    {"m0", SIM_OP_SGPR, 1, 124},
    {"flat_scratch", SIM_OP_SGPR, 2, 102}, // gfx9 keeps these two in the last SGPRs
    {"flat_scratch_lo", SIM_OP_SGPR, 1, 102},
    {"flat_scratch_hi", SIM_OP_SGPR, 1, 103},
    {"xnack_mask", SIM_OP_SGPR, 2, 104},
    {"xnack_mask_lo", SIM_OP_SGPR, 1, 104},
    {"xnack_mask_hi", SIM_OP_SGPR, 1, 105},
    {"off", SIM_OP_NONE, 0, 0},
    {"null", SIM_OP_SPECIAL, 1, SIM_SRC_NULL},
    {"src_scc", SIM_OP_SPECIAL, 1, SIM_SRC_SCC},
    {"scc", SIM_OP_SPECIAL, 1, SIM_SRC_SCC},
    {"src_vccz", SIM_OP_SPECIAL, 1, SIM_SRC_VCCZ},
    {"src_execz", SIM_OP_SPECIAL, 1, SIM_SRC_EXECZ},
    {"src_shared_base", SIM_OP_SPECIAL, 2, SIM_SRC_SHARED_BASE},
    {"src_shared_limit", SIM_OP_SPECIAL, 2, SIM_SRC_SHARED_LIMIT},
    {"src_private_base", SIM_OP_SPECIAL, 2, SIM_SRC_PRIVATE_BASE},
    {"src_private_limit", SIM_OP_SPECIAL, 2, SIM_SRC_PRIVATE_LIMIT},
};

static bool parse_named(sim_parser *p, sim_operand *op) {
    for (size_t i = 0; i < sizeof named_operands / sizeof *named_operands; i++) {
        if (sim_accept_word(p, named_operands[i].name)) {
            op->kind = named_operands[i].kind;
            op->count = named_operands[i].count;
            op->reg = named_operands[i].reg;
            return true;
        }
    }
    return false;
}

/** Parses "5" or "[4:7]" after a register letter, and checks it against the register file's
 *  size. */
static bool parse_range(sim_parser *p, sim_operand *op, unsigned base, unsigned size) {
    int64_t first, last;
    if (sim_accept(p, "[")) {
        if (!sim_parse_integer(p, &first) || !sim_accept(p, ":") || !sim_parse_integer(p, &last) ||
            !sim_accept(p, "]")) {
            return false;
        }
    } else if (!sim_parse_integer(p, &first)) {
        return false;
    } else {
        last = first;
    }
    if (first < 0 || last < first || last >= size || last - first >= 32)
        return false;
    op->reg = (uint16_t)(base + (unsigned)first);
    op->count = (uint8_t)(last - first + 1);
    return true;
}

/** Parses true16's halves of a register, "v1.l" and "v1.h". Only 16-bit operands can be halves. */
static bool parse_half(sim_parser *p, sim_operand *op) {
    const bool high = p->at[0] == '.' && p->at[1] == 'h';
    if (op->kind != SIM_OP_VGPR || p->at[0] != '.' || (!high && p->at[1] != 'l'))
        return true;
    p->at += 2;
    op->half = high ? SIM_HIGH_HALF : SIM_LOW_HALF;
    return op->count == 1 && strchr("hwkx", op->type);
}

static bool parse_register(sim_parser *p, sim_operand *op) {
    static const struct {
        const char *prefix;
        uint8_t kind;
        uint16_t base, size;
    } files[] = {{"ttmp", SIM_OP_SGPR, 108, 16},
                 {"v", SIM_OP_VGPR, 0, 256},
                 {"a", SIM_OP_VGPR, 256, 256},
                 {"s", SIM_OP_SGPR, 0, 106}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const size_t n = strlen(files[i].prefix);
        const char next = strncmp(p->at, files[i].prefix, n) ? '\0' : p->at[n];
        if (isdigit((unsigned char)next) || next == '[') {
            p->at += n;
            op->kind = files[i].kind;
            return parse_range(p, op, files[i].base, files[i].size) && parse_half(p, op);
        }
    }
    return false;
}

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint32_t half_bits(double value) {
    _Float16 half = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}

/** Sets a float constant. It means the pattern of a float operand's own width, with zeros above;
 *  for packed integers it means that of f32. So LLVM's operand types have it ("the actual HW
 *  behavior is"), and tinygrad's test of v_pk_add_u16 on RDNA3. */
static void set_float(sim_operand *op, double value, char type, uint64_t is) {
    const bool is_bf16 = (type == 'w' || type == 'W') && (is & SIM_IS_BF16);
    const bool is_half = strchr("hwH", type) && !is_bf16;
    op->value = is_half ? half_bits(value) : float_bits((float)value) >> (is_bf16 ? 16 : 0);
    op->value64 = type == 'F' ? op->value : double_bits(value);
}

/** Sets an integer. Inline integers extend their sign; a literal, which is always printed in
 *  hexadecimal, extends as its type says. */
static void set_integer(sim_operand *op, int64_t value, bool literal, char type) {
    op->value = (uint32_t)value;
    op->value64 = (uint64_t)value;
    if (type == 'F')
        op->value64 = op->value;
    else if (literal && type == 'd')
        op->value64 = (uint64_t)op->value << 32;
    else if (literal && type == 'Q')
        op->value64 = (uint64_t)(int32_t)op->value;
}

/** Parses a constant; "lit(1)" is encoded as a literal although it need not be. */
static bool parse_number(sim_parser *p, sim_operand *op, char type) {
    if (sim_accept(p, "lit("))
        return parse_number(p, op, type) && sim_accept(p, ")");
    const char *digits = p->at + (*p->at == '-');
    if (!isdigit((unsigned char)*digits))
        return false;
    const bool literal = digits[0] == '0' && digits[1] == 'x';
    const size_t n = strspn(digits, "0123456789");
    op->kind = SIM_OP_IMM;
    op->count = 1;
    if (!literal && (digits[n] == '.' || digits[n] == 'e')) {
        char *end;
        set_float(op, strtod(p->at, &end), type, p->out->opcode->is);
        p->at = end;
        return true;
    }
    int64_t value;
    if (!sim_parse_integer(p, &value))
        return false;
    set_integer(op, value, literal, type);
    return true;
}

/** Skips a call such as "hwreg(HW_REG_MODE, 2, 3)" as a whole. */
static bool skip_call(sim_parser *p) {
    static const char *const names[] = {"vmcnt(", "expcnt(",  "lgkmcnt(",
                                        "hwreg(", "sendmsg(", "gpr_idx("};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *end = strchr(p->at, ')');
        if (end && sim_accept(p, names[i])) {
            p->at = end + 1;
            sim_skip_spaces(p);
            return true;
        }
    }
    return false;
}

/** Parses "vmcnt(0) lgkmcnt(0)", which the encoding's 16 bits say in numbers. */
static bool parse_calls(sim_parser *p, sim_operand *op) {
    const char *start = p->at;
    while (skip_call(p)) {
    }
    op->kind = SIM_OP_IMM;
    op->count = 1;
    op->value = p->out->word[0] & 0xffff;
    op->value64 = op->value;
    return p->at != start;
}

/** Skips a hint or a wait in words as a whole, as it changes no result. */
static bool skip_hint(sim_parser *p) {
    p->at += strlen(p->at);
    return true;
}

bool sim_parse_operand(sim_parser *p, char type) {
    sim_operand op = {.sdwa_sel = 6, .type = type};
    const char *close = nullptr;
    if (type == 't')
        return skip_hint(p);
    if (parse_calls(p, &op) || parse_number(p, &op, type)) {
        p->operands[p->num_operands++] = op;
        return true;
    }
    if (sim_accept(p, "-") || sim_accept(p, "neg(")) {
        op.mods |= SIM_NEG;
        close = p->at[-1] == '(' ? ")" : nullptr;
    }
    const char *inner = sim_accept(p, "|") ? "|" : nullptr;
    op.mods |= inner ? SIM_ABS : 0;
    if (sim_accept(p, "sext(")) {
        op.mods |= SIM_SEXT;
        inner = ")";
    }
    if (!parse_named(p, &op) && !parse_register(p, &op) && !parse_number(p, &op, type))
        return false;
    p->operands[p->num_operands++] = op;
    return (!inner || sim_accept(p, inner)) && (!close || sim_accept(p, close));
}
