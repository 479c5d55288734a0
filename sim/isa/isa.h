// SPDX-License-Identifier: Apache-2.0
// Declarations that the decoder's files share: look-up of opcodes, and the parser of disassembled
// text.
#ifndef SIM_ISA_H
#define SIM_ISA_H

#include "../chip/chip.h"
#include "../options.h"
#include "decode.h"
#include "inst.h"

enum {
    SIM_TEXT_BYTES = SIM_INST_TEXT_BYTES,
    SIM_ERROR_BYTES = 256,
    SIM_MAX_INST_BYTES = 16,
    SIM_MAX_LISTING = 64, // instructions disassembled at once
};

/** An instruction as text, and the bytes of its encoding. */
typedef struct sim_line {
    uint32_t bytes;
    char text[SIM_TEXT_BYTES];
} sim_line;

/** Disassembles up to `wanted` (at most SIM_MAX_LISTING) instructions from `code` on, by LLVM in
 *  another process (decoder/). Returns the number of lines, which is smaller if a word is no
 *  instruction or the flow ends. If it is 0, `error` says why. */
unsigned sim_disassemble(const sim_chip *chip, bool wave64, const uint8_t *code, uint64_t size,
                         uint64_t pc, unsigned wanted, sim_line *lines,
                         char error[SIM_ERROR_BYTES]);

/** The beginning of a decoder's message if memory ran out. */
#define SIM_OUT_OF_MEMORY "out of memory"

/** Returns whether opcodes can be looked up; false if memory ran out. */
bool sim_opcodes_are_ready(void);

/** Returns the opcode of a mnemonic, without encoding suffix, on `arch`, from the tables that
 *  sim_exec_choose chose; null if the opcode is not implemented. */
const sim_opcode *sim_opcode_find(const char *mnemonic, size_t length, sim_arch arch);

/** Returns an opcode's row in the tables of a build, or the opcode itself if that build is not
 *  there. Tests compare the builds. */
const sim_opcode *sim_opcode_of(const sim_opcode *opcode, sim_exec_build build);

/** Returns an opcode's row in the tables that any x86-64-v2 host can run. */
static inline const sim_opcode *sim_opcode_portable(const sim_opcode *opcode) {
    return sim_opcode_of(opcode, SIM_EXEC_BASELINE);
}

/** Fills in inst->traits, as the last step of decoding. */
void sim_find_traits(sim_inst *inst, sim_arch arch);

/** Fills in dpp_lane, dpp_exists and dpp_writes from DPP's control and masks. */
void sim_prepare_dpp(sim_inst *inst);

/** Parses RDNA's dual instructions (VOPD), "v_dual_... :: v_dual_...", as sim_parse does others. */
bool sim_parse_dual(const char *text, sim_arch arch, sim_inst *out, char error[SIM_ERROR_BYTES]);

/** Returns whether a word is a 16-bit multiply-add with a literal, which LLVM cannot print. */
bool sim_is_half_literal(const sim_chip *chip, uint32_t word);
/** Writes the text of a 16-bit multiply-add with a literal, as LLVM would print it. Returns the
 *  instruction's bytes, or 0 if an operand is invalid. */
size_t sim_print_half_literal(const sim_chip *chip, const uint32_t word[2],
                              char text[SIM_TEXT_BYTES]);

/** Returns whether an encoding must not reach LLVM. */
bool sim_is_refused(const sim_chip *chip, const uint32_t word[4]);

/** Decodes one instruction as sim_decode does, for waves of 64 or of 32 lanes. In waves of 32, lane
 *  masks are single registers, not pairs, and matrices lie in other registers. */
bool sim_decode_wave(const sim_chip *chip, bool wave64, const uint8_t *bytes, uint64_t size,
                     uint64_t pc, sim_inst *out, char error[SIM_ERROR_BYTES]);

/** Parses a line of disassembly, whose encoding is `bytes`, at pc. Returns false, with a message,
 *  if the instruction is not implemented. */
bool sim_decode_line(const sim_chip *chip, const sim_line *line, const uint8_t *bytes, uint64_t pc,
                     sim_inst *out, char error[SIM_ERROR_BYTES]);

/** Fills `out` from disassembled text. `out` comes with pc, bytes and word set, all else zero. */
bool sim_parse(const char *text, sim_arch arch, sim_inst *out, char error[SIM_ERROR_BYTES]);

#endif
