// SPDX-License-Identifier: Apache-2.0
// Words that LLVM 22's disassembler crashes on instead of refusing them, found by fuzzing. A
// hostile code object must not take the host down, so they are refused before LLVM sees them. Field
// positions: "CDNA3" ISA, encodings.
#include "isa.h"

static uint32_t field(uint32_t word, unsigned low, unsigned bits) {
    return word >> low & ((1u << bits) - 1);
}

enum { LITERAL = 255, SDWA = 249, FIRST_VGPR = 256 };

/** Returns whether a source is a literal, which gfx9's 8-byte encodings cannot have. */
static bool has_literal_source(uint32_t word) {
    return field(word, 0, 9) == LITERAL || field(word, 9, 9) == LITERAL ||
           field(word, 18, 9) == LITERAL;
}

/** Returns whether an f8f6f4 matrix instruction is bad: formats must be 0 to 4, sources in vector
 *  registers. */
static bool is_bad_f8f6f4(const uint32_t *word) {
    const uint32_t opcode = word[0] >> 16;
    if (opcode != 0xd3ad && opcode != 0xd3ae)
        return false;
    return field(word[0], 8, 3) > 4 || field(word[1], 29, 3) > 4 ||
           field(word[1], 0, 9) < FIRST_VGPR || field(word[1], 9, 9) < FIRST_VGPR;
}

/** Returns whether a destination is a literal. Some instructions encode a scalar destination in the
 *  8 bits of a vector register, where 255 is a literal. */
static bool is_literal_destination(uint32_t word) {
    enum { READFIRSTLANE = 0x142, READLANE = 0x289 };
    const uint32_t opcode = field(word, 16, 10);
    const bool is_scalar = opcode < 0x100 || opcode == READFIRSTLANE || opcode == READLANE;
    return is_scalar && field(word, 0, 8) == LITERAL;
}

static bool is_bad_vop3(const uint32_t *word) {
    const bool is_scaled = word[0] >> 16 == 0xd3ac; // a prefix of two words
    return has_literal_source(word[1]) || is_literal_destination(word[0]) || is_bad_f8f6f4(word) ||
           (is_scaled && (has_literal_source(word[3]) || is_bad_f8f6f4(word + 2)));
}

/** Returns whether an SDWA word of VOP1, VOP2 or VOPC is bad: reserved selections, or literals as
 *  scalar sources. */
static bool is_bad_sdwa(const uint32_t *word) {
    const bool is_vopc = word[0] >> 25 == 0x3e, is_vop1 = word[0] >> 25 == 0x3f;
    const uint32_t sdwa = word[1];
    const bool bad_dst = !is_vopc && (field(sdwa, 8, 3) == 7 || field(sdwa, 11, 2) == 3);
    const bool bad_src = field(sdwa, 16, 3) == 7 || (!is_vop1 && field(sdwa, 24, 3) == 7);
    const bool literal = (field(sdwa, 23, 1) && field(sdwa, 0, 8) == LITERAL) ||
                         (field(sdwa, 31, 1) && field(word[0], 9, 8) == LITERAL);
    return bad_dst || bad_src || literal;
}

/** Returns whether the word is one of gfx12's barrier instructions of SOP1, with a literal. */
static bool is_bad_barrier(uint32_t word) {
    const uint32_t opcode = field(word, 8, 8);
    return word >> 23 == 0x17d && opcode >= 0x4e && opcode <= 0x54 && field(word, 0, 8) == LITERAL;
}

bool sim_is_refused(const sim_chip *chip, const uint32_t word[4]) {
    const uint32_t top = word[0] >> 26;
    if (chip->gfx_major != 9)
        return chip->gfx_major == 12 && is_bad_barrier(word[0]);
    if (top == 0x34) // VOP3, VOP3P
        return is_bad_vop3(word);
    if (top == 0x38 || top == 0x3a) // MUBUF, MTBUF: soffset
        return word[1] >> 24 == LITERAL;
    return !(word[0] >> 31) && field(word[0], 0, 9) == SDWA && is_bad_sdwa(word);
}
