// SPDX-License-Identifier: Apache-2.0
// From a code object's bytes to instructions: decoded once, when one is first needed, each bound to
// a function of exec/. And back to text.
#ifndef SIM_DECODE_H
#define SIM_DECODE_H

#include "../chip/chip.h"
#include "inst.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct sim_kernel;

/** An object's executable segment. `slots` has one entry for each dword: the decoded instruction
 * that starts there, or null until one is needed. The owner zeroes it, and calls sim_text_deinit in
 * the end. */
typedef struct sim_text {
    const sim_chip *chip;
    const uint8_t *bytes; // host copy that nobody writes
    uint64_t start, size; // guest address, bytes
    _Atomic(const sim_inst *) *slots;
} sim_text;

/** Frees the decoded instructions and the slot array. */
void sim_text_deinit(sim_text *text);

/** Decodes and binds the instruction at pc and publishes it in the text's slot; null after raising
 * a fault. */
const sim_inst *sim_inst_at(sim_wave *w, uint64_t pc);

/** The instruction at pc, decoded before or now. What the wave loop calls. */
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

/** Decodes one instruction of `size` bytes at most, without a wave. Returns false and says why in
 * `error`. */
bool sim_decode(const sim_chip *chip, const uint8_t *bytes, uint64_t size, uint64_t pc,
                sim_inst *out, char error[256]);
enum { SIM_INST_TEXT_BYTES = 512 };
/** The instruction at pc as LLVM prints it, mnemonic and operands with single spaces:
 *  "v_add_u32_e32 v1, v0, v2". False, and an empty text, if there is none. It disassembles anew
 *  each time, under a lock: not for every executed instruction. */
bool sim_inst_text(const sim_text *text, bool wave64, uint64_t pc, char out[SIM_INST_TEXT_BYTES]);
/** How the meanings of the instructions are known that a kernel can reach: the weakest
 *  sim_opcode.known of them; 0 if some of them is not executed. `names` gets the mnemonics known no
 *  better, as many as fit. */
char sim_kernel_evidence(const sim_text *text, const struct sim_kernel *kernel, char *names,
                         size_t bytes);
/** Frees what a decoded instruction owns. */
void sim_inst_deinit(sim_inst *inst);

/** Ends the disassembler's process; the next instruction starts another one. */
void sim_disassemble_shutdown(void);
/** Around fork, so that no thread is within the disassembler: prepare before, done after in both
 *  processes. */
void sim_decode_fork_prepare(void);
void sim_decode_fork_done(void);

#endif
