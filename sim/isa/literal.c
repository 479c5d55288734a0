// SPDX-License-Identifier: Apache-2.0
// Multiply-adds of halves with a literal: v_fmamk_f16 and v_fmaak_f16 of gfx11 and gfx12,
// v_madmk_f16 and v_madak_f16 of gfx9. LLVM 22's disassembler knows their opcodes but not their
// literal, and crashes; so their text is made here. Source: "CDNA3", "RDNA3" and "RDNA4" ISA, VOP2
// and the table of scalar operands.
#include "isa.h"

#include <stdio.h>

enum { LITERAL = 255, FIRST_VGPR = 256 };

/** Prints an operand of 32 bits by its number in the 9-bit field; on RDNA it is half of a register
 *  (true16). */
static bool print_source(uint32_t field, bool is_rdna, uint32_t literal, char out[24]) {
    static const char *const floats[] = {"0.5",  "-0.5", "1.0",  "-1.0",      "2.0",
                                         "-2.0", "4.0",  "-4.0", "0.15915494"};
    const char *half = !is_rdna ? "" : field & 128 ? ".h" : ".l";
    if (field >= FIRST_VGPR) {
        snprintf(out, 24, "v%u%s", is_rdna ? field & 127 : field & 255, half);
    } else if (field < 106) {
        snprintf(out, 24, "s%u", field);
    } else if (field < 108) {
        snprintf(out, 24, "vcc_%s", field == 106 ? "lo" : "hi");
    } else if (field < 124) {
        snprintf(out, 24, "ttmp%u", field - 108);
    } else if (field < 126) { // the two changed places on gfx11
        snprintf(out, 24, "%s", (field == 124) == is_rdna ? "null" : "m0");
        return is_rdna || field == 124;
    } else if (field < 128) {
        snprintf(out, 24, "exec_%s", field == 126 ? "lo" : "hi");
    } else if (field <= 208) {
        snprintf(out, 24, "%d", field <= 192 ? (int)field - 128 : 192 - (int)field);
    } else if (field >= 240 && field < 249) {
        snprintf(out, 24, "%s", floats[field - 240]);
    } else {
        snprintf(out, 24, "0x%x", literal);
        return field == LITERAL;
    }
    return true;
}

bool sim_is_half_literal(const sim_chip *chip, uint32_t word) {
    uint32_t opcode = word >> 25; // of VOP2, whose top bit is 0
    return chip->gfx_major == 9 ? opcode == 0x24 || opcode == 0x25
                                : opcode == 0x37 || opcode == 0x38;
}

size_t sim_print_half_literal(const sim_chip *chip, const uint32_t word[2],
                              char text[SIM_TEXT_BYTES]) {
    const bool is_rdna = chip->gfx_major > 9, adds = word[0] >> 25 == (is_rdna ? 0x38 : 0x25);
    char a[24], b[24], d[24], k[24];
    if (!print_source(word[0] & 511, is_rdna, word[1], a) ||
        !print_source(FIRST_VGPR | (word[0] >> 9 & 255), is_rdna, word[1], b) ||
        !print_source(FIRST_VGPR | (word[0] >> 17 & 255), is_rdna, word[1], d) ||
        !print_source(LITERAL, is_rdna, word[1], k)) {
        return 0;
    }
    snprintf(text, SIM_TEXT_BYTES, "v_%s%sk_f16 %s, %s, %s, %s", is_rdna ? "fma" : "mad",
             adds ? "a" : "m", d, a, adds ? b : k, adds ? k : b);
    return 8;
}
