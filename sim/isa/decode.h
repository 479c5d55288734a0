// SPDX-License-Identifier: Apache-2.0
// Decodes the bytes of a code object to instructions, and prints instructions as text. An
// instruction is decoded once, when it is first needed, and bound to a function of exec/.
#ifndef SIM_DECODE_H
#define SIM_DECODE_H

#include "../chip/chip.h"
#include "inst.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct sim_kernel;

/** An object's executable segment. `slots` has an entry for each dword: the decoded instruction
 *  that starts there, or null until it is needed. The owner zeroes the slots, and calls
 *  sim_text_deinit in the end. */
typedef struct sim_text {
    const sim_chip *chip;
    const uint8_t *bytes; // host copy that nobody writes
    uint64_t start, size; // guest address, bytes
    _Atomic(const sim_inst *) *slots;
} sim_text;

/** Frees the decoded instructions and the slot array. */
void sim_text_deinit(sim_text *text);

/** Decodes and binds the instruction at pc, publishes it in the text's slot and returns it. If that
 *  fails, raises a fault and returns null. */
const sim_inst *sim_inst_at(sim_wave *w, uint64_t pc);

/** Returns the instruction at pc, decoded before or now; null after a fault. The wave loop calls
 *  this. */
static inline const sim_inst *sim_fetch(sim_wave *w, const sim_text *text, uint64_t pc) {
    const uint64_t offset = pc - text->start;
    if (offset < text->size && !(offset & 3)) {
        const sim_inst *inst =
            atomic_load_explicit(&text->slots[offset >> 2], memory_order_acquire);
        if (inst)
            return inst;
    }
    return sim_inst_at(w, pc);
}

/** Decodes one instruction of at most `size` bytes, without a wave. Returns false if that fails,
 *  and says why in `error`. */
bool sim_decode(const sim_chip *chip, const uint8_t *bytes, uint64_t size, uint64_t pc,
                sim_inst *out, char error[256]);
/** Returns an instruction's name for messages, without the encoding's suffix; "?" for null. To tell
 *  instructions apart, use inst->traits. */
const char *sim_mnemonic(const sim_inst *inst);
enum { SIM_INST_TEXT_BYTES = 512 };
/** Writes the instruction at pc as LLVM prints it, with single spaces: "v_add_u32_e32 v1, v0, v2".
 *  Returns its bytes; 0, and writes an empty text, if there is no instruction. Each call
 *  disassembles under a lock, so this is not for every executed instruction. */
uint32_t sim_inst_text(const sim_text *text, bool wave64, uint64_t pc,
                       char out[SIM_INST_TEXT_BYTES]);
/** Tells how well the instructions that a kernel can reach are known: returns the weakest
 *  sim_opcode.known among them, or 0 if one of them is not implemented. Writes to `names` the
 *  mnemonics of the instructions that are known no better, as many as fit. */
char sim_kernel_evidence(const sim_text *text, const struct sim_kernel *kernel, char *names,
                         size_t bytes);
/** Frees the memory that a decoded instruction owns. */
void sim_inst_deinit(sim_inst *inst);

/** Ends the disassembler's process; the next instruction starts another one. */
void sim_disassemble_shutdown(void);
/** Called around fork, prepare before it and done after it in both processes, so that no thread is
 *  within the disassembler during the fork. */
void sim_decode_fork_prepare(void);
void sim_decode_fork_done(void);

#endif
