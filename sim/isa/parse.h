// SPDX-License-Identifier: Apache-2.0
// Declarations that the parsers of disassembled text share: the parser's state, and tokens.
#ifndef SIM_PARSE_H
#define SIM_PARSE_H

#include "isa.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_parser {
    const char *at; // the rest of the text
    sim_inst *out;
    sim_operand operands[7]; // in the order of the text
    unsigned num_operands;
    sim_arch arch;
} sim_parser;

// ---- tokens

static inline void sim_skip_spaces(sim_parser *p) {
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

static inline bool sim_accept(sim_parser *p, const char *token) {
    const size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0)
        return false;
    p->at += n;
    return true;
}

static inline bool sim_is_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/** Takes a whole word, such as "offen", but not the beginning of a longer word. */
static inline bool sim_accept_word(sim_parser *p, const char *word) {
    const size_t n = strlen(word);
    if (strncmp(p->at, word, n) != 0 || sim_is_name(p->at[n]) || p->at[n] == ':' || p->at[n] == '(')
        return false;
    p->at += n;
    return true;
}

static inline bool sim_parse_integer(sim_parser *p, int64_t *out) {
    char *end;
    const bool negative = *p->at == '-';
    const char *digits = p->at + negative;
    if (!isdigit((unsigned char)*digits))
        return false;
    const uint64_t value = strtoull(digits, &end, 0);
    *out = (int64_t)(negative ? 0 - value : value);
    p->at = end;
    return true;
}

/** Takes "name:5", and sets *out to 5. */
static inline bool sim_accept_value(sim_parser *p, const char *name, int64_t *out) {
    const char *start = p->at;
    if (sim_accept(p, name) && sim_accept(p, ":") && sim_parse_integer(p, out))
        return true;
    p->at = start;
    return false;
}

/** Takes "name:[1,0,1]" and sets *out to its elements: element i is the `bits` bits from bit
 *  i * bits on. */
static inline bool sim_accept_list(sim_parser *p, const char *name, unsigned bits, uint32_t *out) {
    const char *start = p->at;
    uint32_t value = 0;
    if (sim_accept(p, name) && sim_accept(p, ":[")) {
        for (unsigned shift = 0; shift + bits <= 32; shift += bits) {
            int64_t element;
            if (!sim_parse_integer(p, &element))
                break;
            value |= (uint32_t)element << shift;
            if (sim_accept(p, "]")) {
                *out = value;
                return true;
            }
            if (!sim_accept(p, ","))
                break;
        }
    }
    p->at = start;
    return false;
}

/** Returns the number of operands before the first source in the text: one, unless a colon in
 *  `types` says otherwise. */
static inline unsigned sim_count_destinations(const char *types) {
    const char *colon = types ? strchr(types, ':') : nullptr;
    return colon ? (unsigned)(colon - types) : 1;
}

/** Takes an operand, whose type is a letter of sim_opcode.types. (parse_operand.c) */
bool sim_parse_operand(sim_parser *p, char type);
/** Takes one of the modifiers that follow the operands. (parse_modifier.c) */
bool sim_parse_modifier(sim_parser *p);

#endif
