// SPDX-License-Identifier: Apache-2.0
// From disassembled text to a decoded instruction. Every token must be understood; one that is not
// is an error, so that no modifier is ever dropped silently.
#include "parse.h"

#include <stdio.h>

/** Finds the opcode; the encoding's suffix only says which modifiers follow. */
static bool parse_mnemonic(sim_parser *p) {
    static const struct {
        const char *suffix;
        uint32_t flags;
    } suffixes[] = {
        {"_e64_dpp", SIM_DPP}, {"_e32", 0}, {"_e64", 0}, {"_dpp", SIM_DPP}, {"_sdwa", SIM_SDWA}};
    size_t length = strcspn(p->at, " \t"), stem = length;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n = strlen(suffixes[i].suffix);
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
    for (unsigned i = 0; types && *types; types++)
        if (*types != ':' && i++ == index)
            return *types;
    return 'i';
}

static bool parse_operands(sim_parser *p) {
    sim_skip_spaces(p);
    if (!*p->at || sim_parse_modifier(p)) // "buffer_wbl2 sc1" has no operands
        return true;
    do {
        sim_skip_spaces(p);
        if (p->num_operands == sizeof p->operands / sizeof *p->operands ||
            !sim_parse_operand(p, type_of(p->out->opcode, p->num_operands))) {
            return false;
        }
    } while (sim_accept(p, ","));
    return true;
}

static bool parse_modifiers(sim_parser *p) {
    for (sim_skip_spaces(p); *p->at; sim_skip_spaces(p))
        if (!sim_parse_modifier(p))
            return false;
    return true;
}

/** Turns halves into VOP3's op_sel: bits 0 to 2 are the sources', bit 3 the destination's, whose
 *  other half stays. */
static void place_halves(sim_inst *out) {
    for (unsigned i = 0; i < out->num_src && i < 3; i++)
        out->op_sel |= out->src[i].half == SIM_HIGH_HALF ? (uint8_t)(1 << i) : 0;
    if (out->num_dst && out->dst[0].half) {
        out->op_sel |= out->dst[0].half == SIM_HIGH_HALF ? 8 : 0;
        out->dst[0].type = out->dst[0].type == 'h' || out->dst[0].type == 'x' ? 'x' : 'k';
    }
}

/** Moves operands from the order of the text to destinations and sources. */
static bool place_operands(sim_parser *p) {
    sim_inst *out = p->out;
    const char *types = out->opcode->types ? out->opcode->types : "i:";
    unsigned num_dst = sim_count_destinations(types);
    if (types[0] == 'r' && !(out->flags & SIM_GLC))
        num_dst = 0;
    if (out->opcode->klass == SIM_VMEM && (out->flags & SIM_LDS))
        num_dst = 0; // the data go to LDS, so the text names no destination
    const unsigned num_src = p->num_operands - num_dst;
    if (num_dst > p->num_operands || num_dst > 2 || num_src > sizeof out->src / sizeof *out->src)
        return false;
    memcpy(out->dst, p->operands, num_dst * sizeof *out->dst);
    memcpy(out->src, p->operands + num_dst, num_src * sizeof *out->src);
    out->num_dst = (uint8_t)num_dst;
    out->num_src = (uint8_t)num_src;
    if (types[strlen(types) - 1] == '+') { // the destination is the last source too
        if (num_src == sizeof out->src / sizeof *out->src || !num_dst)
            return false;
        out->src[out->num_src] = out->dst[0];
        out->src[out->num_src++].type = types[0];
    }
    place_halves(out);
    return true;
}

/** Returns whether there are no modifiers but signs and DPP. */
static bool is_nearly_plain(const sim_inst *inst) {
    return !inst->omod && !inst->op_sel && !inst->neg_lo && !inst->neg_hi &&
           !(inst->flags & (SIM_CLAMP | SIM_SDWA)) && inst->dst[0].type != 'k' &&
           inst->dst[0].type != 'x';
}

static bool is_plain(const sim_inst *inst) {
    const uint8_t mods = inst->src[0].mods | inst->src[1].mods | inst->src[2].mods;
    return !mods && !(inst->flags & SIM_DPP) && is_nearly_plain(inst);
}

static bool is_light(const sim_inst *inst) {
    for (unsigned i = 0; i < 3; i++)
        if (inst->src[i].mods && inst->src[i].type != 'f')
            return false;
    return inst->dpp_in_rows && !is_plain(inst) && is_nearly_plain(inst);
}

/** Sets the defaults that the text leaves out. */
static void set_defaults(sim_inst *out) {
    const uint64_t is = out->opcode->is;
    out->op_sel_hi = is & (SIM_IS_PACKED | SIM_IS_DOT) ? 7 : 0;
    out->sdwa_dst_sel = 6;
    out->imm = is & SIM_HAS_TABLE ? 0 : out->word[0] & 0xffff;
    out->target = out->pc + 4 + (uint64_t)((int64_t)(int16_t)out->imm * 4);
}

/** Returns whether clamp acts; false if it would be dropped. */
static bool is_clamp_known(const sim_inst *inst) {
    const char *types = inst->opcode->types;
    const bool is_float = types && strpbrk(types, "fhxdFH");
    return !(inst->flags & SIM_CLAMP) || is_float || (inst->opcode->is & SIM_SATURATES);
}

/** Returns what MODE.FP16_OVFL does to an infinite result. A division by zero keeps its infinity
 *  (LLVM's AMDGPU usage), but not on gfx1201, as AMD measured there. */
static sim_overflow overflow_of(const sim_opcode *opcode, sim_arch arch) {
    const bool is_gfx12 = arch == SIM_GFX1201 || arch == SIM_GFX12_GENERIC;
    const bool is_half =
        opcode->klass != SIM_SALU && opcode->types && strchr("hxH", opcode->types[0]);
    if (!is_half)
        return opcode->is & SIM_MIXES_HALVES ? SIM_HALF : SIM_NO_HALF;
    return opcode->is & SIM_HAS_POLE && !is_gfx12 ? SIM_HALF_OF_POLE : SIM_HALF;
}

bool sim_parse(const char *text, sim_arch arch, sim_inst *out, char error[SIM_ERROR_BYTES]) {
    text += strspn(text, " \t");
    sim_parser p = {.at = text, .out = out, .arch = arch};
    for (size_t i = 0; i < sizeof p.operands / sizeof *p.operands; i++)
        p.operands[i].sdwa_sel = 6;
    sim_skip_spaces(&p);
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
    out->overflow = overflow_of(out->opcode, arch);
    out->exec = out->opcode->exec;
    sim_find_traits(out, arch);
    return true;
}
