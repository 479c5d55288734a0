// SPDX-License-Identifier: Apache-2.0
// Parses what follows the operands in disassembled text: DPP, SDWA, offsets, cache policies, bits
// of the encoding.
#include "parse.h"

static bool parse_dpp(sim_parser *p) {
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
    if (sim_accept_list(p, "quad_perm", 2, &perm)) {
        out->dpp_ctrl = (uint16_t)perm;
        return true;
    }
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        if (sim_accept_value(p, shifts[i].name, &n)) {
            out->dpp_ctrl = (uint16_t)(shifts[i].code + n);
            return n >= 0 && n < 16;
        }
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (sim_accept(p, fixed[i].name)) {
            out->dpp_ctrl = fixed[i].code;
            return true;
        }
    }
    return false;
}

static bool parse_dpp_mask(sim_parser *p) {
    int64_t n;
    if (sim_accept_value(p, "row_mask", &n))
        p->out->dpp_row_mask = (uint8_t)n;
    else if (sim_accept_value(p, "bank_mask", &n))
        p->out->dpp_bank_mask = (uint8_t)n;
    else if (sim_accept_value(p, "bound_ctrl", &n))
        p->out->flags |= SIM_DPP_BOUND_CTRL;
    else
        return false;
    return true;
}

/** Parses RDNA's DPP controls: any lane of each eight, and reads of inactive lanes. */
static bool parse_rdna_dpp(sim_parser *p) {
    int64_t n;
    if (sim_accept_list(p, "dpp8", 3, &p->out->dpp8))
        p->out->flags |= SIM_DPP8;
    else if (sim_accept_value(p, "fi", &n))
        p->out->flags |= SIM_DPP_FI;
    else
        return false;
    return true;
}

/** Accepts "BYTE_0" .. "DWORD" as the number of sim_operand.sdwa_sel. */
static bool accept_sel(sim_parser *p, const char *name, uint8_t *out) {
    static const char *const sels[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                       "WORD_0", "WORD_1", "DWORD"};
    const char *start = p->at;
    if (sim_accept(p, name)) {
        for (uint8_t i = 0; i < 7; i++) {
            if (sim_accept_word(p, sels[i])) {
                *out = i;
                return true;
            }
        }
    }
    p->at = start;
    return false;
}

static bool parse_sdwa(sim_parser *p) {
    sim_inst *out = p->out;
    const unsigned first = sim_count_destinations(out->opcode->types);
    if (accept_sel(p, "dst_sel:", &out->sdwa_dst_sel) ||
        (first < 7 && accept_sel(p, "src0_sel:", &p->operands[first].sdwa_sel)) ||
        (first < 6 && accept_sel(p, "src1_sel:", &p->operands[first + 1].sdwa_sel))) {
        return true;
    }
    static const char *const unused[] = {"dst_unused:UNUSED_PAD", "dst_unused:UNUSED_SEXT",
                                         "dst_unused:UNUSED_PRESERVE"};
    for (uint8_t i = 0; i < 3; i++) {
        if (sim_accept_word(p, unused[i])) {
            out->sdwa_dst_unused = i;
            return true;
        }
    }
    return false;
}

/** Parses gfx12's temporal hints and scopes, "th:TH_ATOMIC_RETURN scope:SCOPE_DEV". Memory is one
 *  and coherent, so only the return of an atomic's old value matters; the checker looks at
 *  scopes. */
static bool parse_temporal_hint(sim_parser *p) {
    const size_t n = strspn(p->at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_:thscope");
    if (strncmp(p->at, "th:TH_", 6) && strncmp(p->at, "scope:SCOPE_", 12))
        return false;
    const bool is_return = n > 7 && !memcmp(p->at + n - 7, "_RETURN", 7);
    p->out->flags |= is_return ? SIM_GLC : 0;
    const bool is_scope = *p->at == 's' && strncmp(p->at, "scope:SCOPE_CU", 14);
    p->out->flags |= is_scope ? SIM_SCOPED : 0;
    p->at += n;
    return !sim_is_name(*p->at);
}

static bool parse_memory_modifier(sim_parser *p) {
    static const struct {
        const char *word;
        uint32_t flag;
    } words[] = {{"offen", SIM_OFFEN}, {"idxen", SIM_IDXEN},
                 {"lds", SIM_LDS},     {"sc0", SIM_GLC},
                 {"glc", SIM_GLC},     {"sc1", SIM_SCOPED},
                 {"nt", SIM_STREAMED}, {"slc", SIM_STREAMED},
                 {"dlc", 0},           {"scc", 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (sim_accept_word(p, words[i].word)) {
            p->out->flags |= words[i].flag;
            return true;
        }
    }
    int64_t n;
    if (sim_accept(p, "format:")) { // its number is read from the encoding
        p->at += strcspn(p->at, " ");
    } else if (sim_accept_value(p, "offset", &n) || sim_accept_value(p, "offset0", &n)) {
        p->out->offset = (int32_t)n;
    } else if (sim_accept_value(p, "offset1", &n)) {
        p->out->offset1 = (int32_t)n;
    } else if (sim_accept(p, "offset:swizzle(")) { // its fields are the 16 bits of the encoding
        const char *end = strchr(p->at, ')');
        p->at = end ? end + 1 : p->at;
        p->out->offset = (int32_t)(p->out->word[0] & 0xffff);
        return end;
    } else {
        return false;
    }
    return true;
}

static bool parse_valu_modifier(sim_parser *p) {
    sim_inst *out = p->out;
    uint32_t bits;
    int64_t table;
    if (sim_accept_word(p, "clamp")) {
        out->flags |= SIM_CLAMP;
    } else if (sim_accept(p, "mul:2")) {
        out->omod = 1;
    } else if (sim_accept(p, "mul:4")) {
        out->omod = 2;
    } else if (sim_accept(p, "div:2")) {
        out->omod = 3;
    } else if (sim_accept_list(p, "op_sel", 1, &bits)) {
        // VOP3 (not VOP3P) prints the destination's bit right after the sources'; it is bit 3.
        bool is_vop3 = out->word[0] >> 26 == 0x34 && out->word[0] >> 23 != 0x1a7;
        is_vop3 |= out->word[0] >> 26 == 0x35;
        out->op_sel = is_vop3 ? out->word[0] >> 11 & 15 : (uint8_t)bits;
    } else if (sim_accept_list(p, "op_sel_hi", 1, &bits)) {
        out->op_sel_hi = (uint8_t)bits;
    } else if (sim_accept_list(p, "neg_lo", 1, &bits) || sim_accept_list(p, "neg", 1, &bits)) {
        out->neg_lo = (uint8_t)bits;
    } else if (sim_accept_list(p, "neg_hi", 1, &bits)) {
        out->neg_hi = (uint8_t)bits;
    } else if (sim_accept_value(p, "bitop3", &table)) {
        out->imm = (uint32_t)table;
    } else if (sim_accept_value(p, "byte_sel", &table)) {
        out->byte_sel = (uint8_t)(table & 3);
    } else {
        return false;
    }
    return true;
}

static bool parse_matrix_modifier(sim_parser *p) {
    int64_t n;
    if (sim_accept_value(p, "cbsz", &n))
        p->out->cbsz = (uint8_t)n;
    else if (sim_accept_value(p, "abid", &n) || sim_accept_value(p, "index_key", &n))
        p->out->abid = (uint8_t)n;
    else if (sim_accept_value(p, "blgp", &n))
        p->out->blgp = (uint8_t)n;
    else
        return false;
    return true;
}

/** Parses what LDS-direct loads wait for; they need not wait, as everything has arrived
 *  already. */
static bool parse_wait(sim_parser *p) {
    int64_t n;
    return sim_accept_value(p, "wait_vdst", &n) || sim_accept_value(p, "wait_va_vdst", &n) ||
           sim_accept_value(p, "wait_vm_vsrc", &n);
}

bool sim_parse_modifier(sim_parser *p) {
    if (parse_wait(p) || parse_memory_modifier(p) || parse_temporal_hint(p) ||
        parse_valu_modifier(p) || parse_matrix_modifier(p) || parse_dpp_mask(p) ||
        parse_rdna_dpp(p)) {
        return true;
    }
    if (p->out->flags & SIM_SDWA)
        return parse_sdwa(p);
    const bool is_dpp = parse_dpp(p);
    p->out->flags |= is_dpp ? SIM_DPP : 0;
    return is_dpp;
}
