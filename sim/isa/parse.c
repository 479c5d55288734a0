// SPDX-License-Identifier: Apache-2.0
// From disassembled text to a decoded instruction. Every token must be understood; one that is not is an error,
// so that no modifier is ever dropped silently.
#include "isa.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const char *at; // the rest of the text
    sim_inst *out;
    sim_operand operands[7]; // in the order of the text
    unsigned num_operands;
    sim_arch arch;
} parser;

// ---- tokens

static void skip_spaces(parser *p) {
    while (*p->at == ' ' || *p->at == '\t') {
        p->at++;
    }
}

static bool accept(parser *p, const char *token) {
    size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0) {
        return false;
    }
    p->at += n;
    return true;
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/** Takes a whole word, such as "offen": not the beginning of a longer one. */
static bool accept_word(parser *p, const char *word) {
    size_t n = strlen(word);
    if (strncmp(p->at, word, n) != 0 || is_name(p->at[n]) || p->at[n] == ':' || p->at[n] == '(') {
        return false;
    }
    p->at += n;
    return true;
}

static bool parse_integer(parser *p, int64_t *out) {
    char *end;
    bool negative = *p->at == '-';
    const char *digits = p->at + negative;
    if (!isdigit((unsigned char)*digits)) {
        return false;
    }
    uint64_t value = strtoull(digits, &end, 0);
    *out = (int64_t)(negative ? 0 - value : value);
    p->at = end;
    return true;
}

/** "name:5" */
static bool accept_value(parser *p, const char *name, int64_t *out) {
    const char *start = p->at;
    if (accept(p, name) && accept(p, ":") && parse_integer(p, out)) {
        return true;
    }
    p->at = start;
    return false;
}

/** "name:[1,0,1]": bit i is element i. Elements take `bits` bits each. */
static bool accept_list(parser *p, const char *name, unsigned bits, uint32_t *out) {
    const char *start = p->at;
    uint32_t value = 0;
    if (accept(p, name) && accept(p, ":[")) {
        for (unsigned shift = 0; shift + bits <= 32; shift += bits) {
            int64_t element;
            if (!parse_integer(p, &element)) {
                break;
            }
            value |= (uint32_t)element << shift;
            if (accept(p, "]")) {
                *out = value;
                return true;
            }
            if (!accept(p, ",")) {
                break;
            }
        }
    }
    p->at = start;
    return false;
}

// ---- operands

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

static bool parse_named(parser *p, sim_operand *op) {
    for (size_t i = 0; i < sizeof named_operands / sizeof *named_operands; i++) {
        if (accept_word(p, named_operands[i].name)) {
            op->kind = named_operands[i].kind;
            op->count = named_operands[i].count;
            op->reg = named_operands[i].reg;
            return true;
        }
    }
    return false;
}

/** "5" or "[4:7]" after a register letter; checks the file's size. */
static bool parse_range(parser *p, sim_operand *op, unsigned base, unsigned size) {
    int64_t first, last;
    if (accept(p, "[")) {
        if (!parse_integer(p, &first) || !accept(p, ":") || !parse_integer(p, &last) ||
            !accept(p, "]")) {
            return false;
        }
    } else if (!parse_integer(p, &first)) {
        return false;
    } else {
        last = first;
    }
    if (first < 0 || last < first || last >= size || last - first >= 32) {
        return false;
    }
    op->reg = (uint16_t)(base + (unsigned)first);
    op->count = (uint8_t)(last - first + 1);
    return true;
}

/** True16: "v1.l" and "v1.h" are the halves of a register. Only 16-bit operands can be halves. */
static bool parse_half(parser *p, sim_operand *op) {
    bool high = p->at[0] == '.' && p->at[1] == 'h';
    if (op->kind != SIM_OP_VGPR || p->at[0] != '.' || (!high && p->at[1] != 'l')) {
        return true;
    }
    p->at += 2;
    op->half = high ? SIM_HIGH_HALF : SIM_LOW_HALF;
    return op->count == 1 && strchr("hwkx", op->type);
}

static bool parse_register(parser *p, sim_operand *op) {
    static const struct {
        const char *prefix;
        uint8_t kind;
        uint16_t base, size;
    } files[] = {{"ttmp", SIM_OP_SGPR, 108, 16},
                 {"v", SIM_OP_VGPR, 0, 256},
                 {"a", SIM_OP_VGPR, 256, 256},
                 {"s", SIM_OP_SGPR, 0, 106}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = strlen(files[i].prefix);
        char next = strncmp(p->at, files[i].prefix, n) ? '\0' : p->at[n];
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

/** A float constant means the pattern of the operand's own width. */
static void set_float(sim_operand *op, double value, char type) {
    bool is_half = type == 'h' || type == 'w' || type == 'H' || type == 'W';
    op->value = is_half ? half_bits(value) : float_bits((float)value);
    op->value64 = type == 'F' ? op->value : double_bits(value);
}

/** Inline integers extend their sign; a literal (always printed in hexadecimal) extends as its type says. */
static void set_integer(sim_operand *op, int64_t value, bool literal, char type) {
    op->value = (uint32_t)value;
    op->value64 = (uint64_t)value;
    if (type == 'F') {
        op->value64 = op->value;
    } else if (literal && type == 'd') {
        op->value64 = (uint64_t)op->value << 32;
    } else if (literal && type == 'Q') {
        op->value64 = (uint64_t)(int32_t)op->value;
    }
}

/** A constant; "lit(1)" is one that is encoded as a literal although it need not be. */
static bool parse_number(parser *p, sim_operand *op, char type) {
    if (accept(p, "lit(")) {
        return parse_number(p, op, type) && accept(p, ")");
    }
    const char *digits = p->at + (*p->at == '-');
    if (!isdigit((unsigned char)*digits)) {
        return false;
    }
    bool literal = digits[0] == '0' && digits[1] == 'x';
    size_t n = strspn(digits, "0123456789");
    op->kind = SIM_OP_IMM;
    op->count = 1;
    if (!literal && (digits[n] == '.' || digits[n] == 'e')) {
        char *end;
        set_float(op, strtod(p->at, &end), type);
        p->at = end;
        return true;
    }
    int64_t value;
    if (!parse_integer(p, &value)) {
        return false;
    }
    set_integer(op, value, literal, type);
    return true;
}

/** "hwreg(HW_REG_MODE, 2, 3)": taken whole. */
static bool skip_call(parser *p) {
    static const char *const names[] = {"vmcnt(", "expcnt(",  "lgkmcnt(",
                                        "hwreg(", "sendmsg(", "gpr_idx("};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *end = strchr(p->at, ')');
        if (end && accept(p, names[i])) {
            p->at = end + 1;
            skip_spaces(p);
            return true;
        }
    }
    return false;
}

/** "vmcnt(0) lgkmcnt(0)": the encoding's 16 bits say the same in numbers. */
static bool parse_calls(parser *p, sim_operand *op) {
    const char *start = p->at;
    while (skip_call(p)) {
    }
    op->kind = SIM_OP_IMM;
    op->count = 1;
    op->value = p->out->word[0] & 0xffff;
    op->value64 = op->value;
    return p->at != start;
}

/** What a hint or a wait says, in words: taken whole, for it changes no result. */
static bool skip_hint(parser *p) {
    p->at += strlen(p->at);
    return true;
}

static bool parse_operand(parser *p, char type) {
    sim_operand op = {.sdwa_sel = 6, .type = type};
    const char *close = nullptr;
    if (type == 't') {
        return skip_hint(p);
    }
    if (parse_calls(p, &op) || parse_number(p, &op, type)) {
        p->operands[p->num_operands++] = op;
        return true;
    }
    if (accept(p, "-") || accept(p, "neg(")) {
        op.mods |= SIM_NEG;
        close = p->at[-1] == '(' ? ")" : nullptr;
    }
    const char *inner = accept(p, "|") ? "|" : nullptr;
    op.mods |= inner ? SIM_ABS : 0;
    if (accept(p, "sext(")) {
        op.mods |= SIM_SEXT;
        inner = ")";
    }
    if (!parse_named(p, &op) && !parse_register(p, &op) && !parse_number(p, &op, type)) {
        return false;
    }
    p->operands[p->num_operands++] = op;
    return (!inner || accept(p, inner)) && (!close || accept(p, close));
}

// ---- modifiers

static bool parse_dpp(parser *p) {
    static const struct {
        const char *name;
        uint16_t code;
    } shifts[] = {{"row_shl", 0x100},   {"row_shr", 0x110},      {"row_ror", 0x120},
                  {"row_share", 0x150}, {"row_newbcast", 0x150}, {"row_xmask", 0x160}},
      fixed[] = {{"wave_shl:1", 0x130},   {"wave_rol:1", 0x134},  {"wave_shr:1", 0x138},
                 {"wave_ror:1", 0x13c},   {"row_mirror", 0x140},  {"row_half_mirror", 0x141},
                 {"row_bcast:15", 0x142}, {"row_bcast:31", 0x143}};
    sim_inst *out = p->out;
    uint32_t perm;
    int64_t n;
    if (accept_list(p, "quad_perm", 2, &perm)) {
        out->dpp_ctrl = (uint16_t)perm;
        return true;
    }
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        if (accept_value(p, shifts[i].name, &n)) {
            out->dpp_ctrl = (uint16_t)(shifts[i].code + n);
            return n >= 0 && n < 16;
        }
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (accept(p, fixed[i].name)) {
            out->dpp_ctrl = fixed[i].code;
            return true;
        }
    }
    return false;
}

static bool parse_dpp_mask(parser *p) {
    int64_t n;
    if (accept_value(p, "row_mask", &n)) {
        p->out->dpp_row_mask = (uint8_t)n;
    } else if (accept_value(p, "bank_mask", &n)) {
        p->out->dpp_bank_mask = (uint8_t)n;
    } else if (accept_value(p, "bound_ctrl", &n)) {
        p->out->flags |= SIM_DPP_BOUND_CTRL;
    } else {
        return false;
    }
    return true;
}

/** RDNA's: any lane of each eight, inactive lanes read as well. */
static bool parse_rdna_dpp(parser *p) {
    int64_t n;
    if (accept_list(p, "dpp8", 3, &p->out->dpp8)) {
        p->out->flags |= SIM_DPP8;
    } else if (accept_value(p, "fi", &n)) {
        p->out->flags |= SIM_DPP_FI;
    } else {
        return false;
    }
    return true;
}

/** "BYTE_0" .. "DWORD" as the number of sim_operand.sdwa_sel. */
static bool accept_sel(parser *p, const char *name, uint8_t *out) {
    static const char *const sels[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                       "WORD_0", "WORD_1", "DWORD"};
    const char *start = p->at;
    if (accept(p, name)) {
        for (uint8_t i = 0; i < 7; i++) {
            if (accept_word(p, sels[i])) {
                *out = i;
                return true;
            }
        }
    }
    p->at = start;
    return false;
}

/** Operands before the first source in the text: one, unless a colon says otherwise. */
static unsigned count_destinations(const char *types) {
    const char *colon = types ? strchr(types, ':') : nullptr;
    return colon ? (unsigned)(colon - types) : 1;
}

static bool parse_sdwa(parser *p) {
    sim_inst *out = p->out;
    unsigned first = count_destinations(out->opcode->types);
    if (accept_sel(p, "dst_sel:", &out->sdwa_dst_sel) ||
        (first < 7 && accept_sel(p, "src0_sel:", &p->operands[first].sdwa_sel)) ||
        (first < 6 && accept_sel(p, "src1_sel:", &p->operands[first + 1].sdwa_sel))) {
        return true;
    }
    static const char *const unused[] = {"dst_unused:UNUSED_PAD", "dst_unused:UNUSED_SEXT",
                                         "dst_unused:UNUSED_PRESERVE"};
    for (uint8_t i = 0; i < 3; i++) {
        if (accept_word(p, unused[i])) {
            out->sdwa_dst_unused = i;
            return true;
        }
    }
    return false;
}

/** gfx12's temporal hints and scopes, "th:TH_ATOMIC_RETURN scope:SCOPE_DEV". Memory is one and coherent, so only
 *  the return of an atomic's old value matters; the checker looks at scopes. */
static bool parse_temporal_hint(parser *p) {
    size_t n = strspn(p->at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_:thscope");
    if (strncmp(p->at, "th:TH_", 6) && strncmp(p->at, "scope:SCOPE_", 12)) {
        return false;
    }
    bool is_return = n > 7 && !memcmp(p->at + n - 7, "_RETURN", 7);
    p->out->flags |= is_return ? SIM_GLC : 0;
    bool is_scope = *p->at == 's' && strncmp(p->at, "scope:SCOPE_CU", 14);
    p->out->flags |= is_scope ? SIM_SCOPED : 0;
    p->at += n;
    return !is_name(*p->at);
}

static bool parse_memory_modifier(parser *p) {
    static const struct {
        const char *word;
        uint32_t flag;
    } words[] = {{"offen", SIM_OFFEN}, {"idxen", SIM_IDXEN},
                 {"lds", SIM_LDS},     {"sc0", SIM_GLC},
                 {"glc", SIM_GLC},     {"sc1", SIM_SCOPED},
                 {"nt", SIM_STREAMED}, {"slc", SIM_STREAMED},
                 {"dlc", 0},           {"scc", 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (accept_word(p, words[i].word)) {
            p->out->flags |= words[i].flag;
            return true;
        }
    }
    int64_t n;
    if (accept(p, "format:")) { // its number is read from the encoding
        p->at += strcspn(p->at, " ");
    } else if (accept_value(p, "offset", &n) || accept_value(p, "offset0", &n)) {
        p->out->offset = (int32_t)n;
    } else if (accept_value(p, "offset1", &n)) {
        p->out->offset1 = (int32_t)n;
    } else if (accept(p, "offset:swizzle(")) { // its fields are the 16 bits of the encoding
        const char *end = strchr(p->at, ')');
        p->at = end ? end + 1 : p->at;
        p->out->offset = (int32_t)(p->out->word[0] & 0xffff);
        return end;
    } else {
        return false;
    }
    return true;
}

static bool parse_valu_modifier(parser *p) {
    sim_inst *out = p->out;
    uint32_t bits;
    int64_t table;
    if (accept_word(p, "clamp")) {
        out->flags |= SIM_CLAMP;
    } else if (accept(p, "mul:2")) {
        out->omod = 1;
    } else if (accept(p, "mul:4")) {
        out->omod = 2;
    } else if (accept(p, "div:2")) {
        out->omod = 3;
    } else if (accept_list(p, "op_sel", 1, &bits)) {
        // VOP3 (not VOP3P) prints the destination's bit right after the sources'; it is bit 3.
        bool is_vop3 = out->word[0] >> 26 == 0x34 && out->word[0] >> 23 != 0x1a7;
        is_vop3 |= out->word[0] >> 26 == 0x35;
        out->op_sel = is_vop3 ? out->word[0] >> 11 & 15 : (uint8_t)bits;
    } else if (accept_list(p, "op_sel_hi", 1, &bits)) {
        out->op_sel_hi = (uint8_t)bits;
    } else if (accept_list(p, "neg_lo", 1, &bits) || accept_list(p, "neg", 1, &bits)) {
        out->neg_lo = (uint8_t)bits;
    } else if (accept_list(p, "neg_hi", 1, &bits)) {
        out->neg_hi = (uint8_t)bits;
    } else if (accept_value(p, "bitop3", &table)) {
        out->imm = (uint32_t)table;
    } else if (accept_value(p, "byte_sel", &table)) {
        out->byte_sel = (uint8_t)(table & 3);
    } else {
        return false;
    }
    return true;
}

static bool parse_matrix_modifier(parser *p) {
    int64_t n;
    if (accept_value(p, "cbsz", &n)) {
        p->out->cbsz = (uint8_t)n;
    } else if (accept_value(p, "abid", &n) || accept_value(p, "index_key", &n)) {
        p->out->abid = (uint8_t)n;
    } else if (accept_value(p, "blgp", &n)) {
        p->out->blgp = (uint8_t)n;
    } else {
        return false;
    }
    return true;
}

/** What LDS-direct loads wait for first: everything is there already. */
static bool parse_wait(parser *p) {
    int64_t n;
    return accept_value(p, "wait_vdst", &n) || accept_value(p, "wait_va_vdst", &n) ||
           accept_value(p, "wait_vm_vsrc", &n);
}

static bool parse_modifier(parser *p) {
    if (parse_wait(p) || parse_memory_modifier(p) || parse_temporal_hint(p) ||
        parse_valu_modifier(p) || parse_matrix_modifier(p) || parse_dpp_mask(p) ||
        parse_rdna_dpp(p)) {
        return true;
    }
    if (p->out->flags & SIM_SDWA) {
        return parse_sdwa(p);
    }
    bool is_dpp = parse_dpp(p);
    p->out->flags |= is_dpp ? SIM_DPP : 0;
    return is_dpp;
}

// ---- the whole line

/** Finds the opcode; the encoding's suffix only says which modifiers follow. */
static bool parse_mnemonic(parser *p) {
    static const struct {
        const char *suffix;
        uint32_t flags;
    } suffixes[] = {
        {"_e64_dpp", SIM_DPP}, {"_e32", 0}, {"_e64", 0}, {"_dpp", SIM_DPP}, {"_sdwa", SIM_SDWA}};
    size_t length = strcspn(p->at, " \t"), stem = length;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(suffixes[i].suffix);
        if (length > n && !memcmp(p->at + length - n, suffixes[i].suffix, n)) {
            p->out->flags |= suffixes[i].flags;
            stem = length - n;
            break;
        }
    }
    p->out->opcode = sim_opcode_find(p->at, stem, p->arch);
    p->at += length;
    return p->out->opcode;
}

static char type_of(const sim_opcode *opcode, unsigned index) {
    const char *types = opcode->types;
    for (unsigned i = 0; types && *types; types++) {
        if (*types != ':' && i++ == index) {
            return *types;
        }
    }
    return 'i';
}

static bool parse_operands(parser *p) {
    skip_spaces(p);
    if (!*p->at || parse_modifier(p)) { // "buffer_wbl2 sc1" has no operands
        return true;
    }
    do {
        skip_spaces(p);
        if (p->num_operands == sizeof p->operands / sizeof *p->operands ||
            !parse_operand(p, type_of(p->out->opcode, p->num_operands))) {
            return false;
        }
    } while (accept(p, ","));
    return true;
}

static bool parse_modifiers(parser *p) {
    for (skip_spaces(p); *p->at; skip_spaces(p)) {
        if (!parse_modifier(p)) {
            return false;
        }
    }
    return true;
}

/** Halves become what VOP3's op_sel says of the same operands: bits 0 to 2 sources, bit 3 the destination, whose other
 *  half stays. */
static void place_halves(sim_inst *out) {
    for (unsigned i = 0; i < out->num_src && i < 3; i++) {
        out->op_sel |= out->src[i].half == SIM_HIGH_HALF ? (uint8_t)(1 << i) : 0;
    }
    if (out->num_dst && out->dst[0].half) {
        out->op_sel |= out->dst[0].half == SIM_HIGH_HALF ? 8 : 0;
        out->dst[0].type = out->dst[0].type == 'h' || out->dst[0].type == 'x' ? 'x' : 'k';
    }
}

/** Moves operands from the order of the text to destinations and sources. */
static bool place_operands(parser *p) {
    sim_inst *out = p->out;
    const char *types = out->opcode->types ? out->opcode->types : "i:";
    unsigned num_dst = count_destinations(types);
    if (types[0] == 'r' && !(out->flags & SIM_GLC)) {
        num_dst = 0;
    }
    if (out->opcode->klass == SIM_VMEM && (out->flags & SIM_LDS)) {
        num_dst = 0; // the data go to LDS, so the text names no destination
    }
    unsigned num_src = p->num_operands - num_dst;
    if (num_dst > p->num_operands || num_dst > 2 || num_src > sizeof out->src / sizeof *out->src) {
        return false;
    }
    memcpy(out->dst, p->operands, num_dst * sizeof *out->dst);
    memcpy(out->src, p->operands + num_dst, num_src * sizeof *out->src);
    out->num_dst = (uint8_t)num_dst;
    out->num_src = (uint8_t)num_src;
    if (types[strlen(types) - 1] == '+') { // the destination is the last source too
        if (num_src == sizeof out->src / sizeof *out->src || !num_dst) {
            return false;
        }
        out->src[out->num_src] = out->dst[0];
        out->src[out->num_src++].type = types[0];
    }
    place_halves(out);
    return true;
}

/** No modifiers, but perhaps signs and DPP. */
static bool is_nearly_plain(const sim_inst *inst) {
    return !inst->omod && !inst->op_sel && !inst->neg_lo && !inst->neg_hi &&
           !(inst->flags & (SIM_CLAMP | SIM_SDWA)) && inst->dst[0].type != 'k' &&
           inst->dst[0].type != 'x';
}

static bool is_plain(const sim_inst *inst) {
    uint8_t mods = inst->src[0].mods | inst->src[1].mods | inst->src[2].mods;
    return !mods && !(inst->flags & SIM_DPP) && is_nearly_plain(inst);
}

static bool is_light(const sim_inst *inst) {
    for (unsigned i = 0; i < 3; i++) {
        if (inst->src[i].mods && inst->src[i].type != 'f') {
            return false;
        }
    }
    return inst->dpp_in_rows && !is_plain(inst) && is_nearly_plain(inst);
}

/** What the text leaves out because it is the default. */
static void set_defaults(sim_inst *out) {
    const char *name = out->opcode->mnemonic;
    bool packed = !strncmp(name, "v_pk_", 5) || !strncmp(name, "v_dot", 5);
    out->op_sel_hi = packed ? 7 : 0;
    out->sdwa_dst_sel = 6;
    bool is_bitop3 = !strncmp(name, "v_bitop3", 8); // its truth table is a modifier, left out if 0
    out->imm = is_bitop3 ? 0 : out->word[0] & 0xffff;
    out->target = out->pc + 4 + (uint64_t)((int64_t)(int16_t)out->imm * 4);
}

/** The integer instructions that saturate with clamp, but for the dot products and matrices, which all do. */
static bool saturates(const char *mnemonic) {
    static const char *const names[] = {
        "v_add_u32",      "v_sub_u32",        "v_subrev_u32",     "v_add_i32",     "v_sub_i32",
        "v_add_nc_u32",   "v_sub_nc_u32",     "v_subrev_nc_u32",  "v_add_nc_i32",  "v_sub_nc_i32",
        "v_add_nc_u16",   "v_sub_nc_u16",     "v_add_u16",        "v_sub_u16",     "v_subrev_u16",
        "v_add_i16",      "v_sub_i16",        "v_pk_add_u16",     "v_pk_sub_u16",  "v_pk_add_i16",
        "v_pk_sub_i16",   "v_mad_u32_u24",    "v_mad_i32_i24",    "v_mad_u32_u16", "v_mad_i32_i16",
        "v_sad_u8",       "v_sad_hi_u8",      "v_sad_u16",        "v_sad_u32",     "v_msad_u8",
        "v_mqsad_u32_u8", "v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8"};
    if (!strncmp(mnemonic, "v_dot", 5) || strstr(mnemonic, "wmma") || strstr(mnemonic, "_co_") ||
        !strncmp(mnemonic, "v_mad_u64", 9) || !strncmp(mnemonic, "v_mad_i64", 9)) {
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(mnemonic, names[i])) {
            return true;
        }
    }
    return false;
}

/** False if clamp would be dropped. */
static bool is_clamp_known(const sim_inst *inst) {
    const char *types = inst->opcode->types;
    bool is_float = types && strpbrk(types, "fhxdFH");
    return !(inst->flags & SIM_CLAMP) || is_float || saturates(inst->opcode->mnemonic);
}

/** What MODE.FP16_OVFL does to an infinite result. A division by zero keeps its infinity (LLVM's AMDGPU usage), but not
 *  on gfx1201, as AMD measured there. */
static sim_overflow overflow_of(const sim_inst *inst, sim_arch arch) {
    static const char *const poles[] = {"v_rcp_f16", "v_rsq_f16", "v_log_f16", "v_div_fixup_f16",
                                        "v_div_fixup_legacy_f16"};
    const char *types = inst->opcode->types, *name = inst->opcode->mnemonic;
    if (!types || !strchr("hxH", types[0]) || !strncmp(name, "s_", 2)) {
        return strncmp(name, "v_fma_mix", 9) ? SIM_NO_HALF : SIM_HALF;
    }
    bool is_gfx12 = arch == SIM_GFX1201 || arch == SIM_GFX12_GENERIC;
    for (size_t i = 0; i < sizeof poles / sizeof *poles && !is_gfx12; i++) {
        if (!strcmp(name, poles[i])) {
            return SIM_HALF_OF_POLE;
        }
    }
    return SIM_HALF;
}

bool sim_parse(const char *text, sim_arch arch, sim_inst *out, char error[SIM_ERROR_BYTES]) {
    text += strspn(text, " \t");
    parser p = {.at = text, .out = out, .arch = arch};
    for (size_t i = 0; i < sizeof p.operands / sizeof *p.operands; i++) {
        p.operands[i].sdwa_sel = 6;
    }
    skip_spaces(&p);
    if (!parse_mnemonic(&p)) {
        snprintf(error, SIM_ERROR_BYTES, "instruction not implemented: %s", text);
        return false;
    }
    set_defaults(out);
    if (!parse_operands(&p) || !parse_modifiers(&p) || !place_operands(&p)) {
        snprintf(error, SIM_ERROR_BYTES, "cannot read '%.40s' of: %s", p.at, text);
        return false;
    }
    if (!is_clamp_known(out)) {
        snprintf(error, SIM_ERROR_BYTES, "clamp is not implemented for integers of: %s", text);
        return false;
    }
    sim_prepare_dpp(out);
    out->plain = is_plain(out);
    out->light = is_light(out);
    const char *types = out->opcode->types;
    out->is_float = types && strpbrk(types, "fhxdFH");
    out->overflow = overflow_of(out, arch);
    out->exec = out->opcode->exec;
    sim_find_effects(out, arch);
    sim_find_kind(out);
    return true;
}
