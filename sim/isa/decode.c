// SPDX-License-Identifier: Apache-2.0
// Decoding: LLVM's disassembler turns bytes into text, the parser turns text into a bound instruction, and the
// text segment's slot keeps it. Each instruction is decoded once, when a wave first reaches it.
#include "isa.h"

#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One disassembler a chip and wave size, made when first needed. LLVM's contexts are not thread-safe.
static LLVMDisasmContextRef contexts[SIM_NUM_ARCHS][2];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static LLVMDisasmContextRef make_context(const sim_chip *chip, bool wave64) {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    const char *features = chip->gfx_major == 9 ? ""
                           : wave64             ? "+real-true16,+wavefrontsize64"
                                                : "+real-true16";
    return LLVMCreateDisasmCPUFeatures("amdgcn--amdhsa", chip->name, features, nullptr, 0, nullptr,
                                       nullptr);
}

static size_t disassemble(const sim_chip *chip, bool wave64, const uint8_t *bytes, uint64_t size,
                          uint64_t pc, char text[SIM_TEXT_BYTES]) {
    size_t length = 0;
    pthread_mutex_lock(&contexts_lock);
    LLVMDisasmContextRef *context = &contexts[chip->arch][wave64];
    if (!*context) {
        *context = make_context(chip, wave64);
    }
    if (*context) {
        uint8_t copy[24] = {}; // padded: LLVM 22 crashes on a literal that is cut short
        memcpy(copy, bytes, size < sizeof copy ? size : sizeof copy);
        length = LLVMDisasmInstruction(*context, copy, sizeof copy, pc, text, SIM_TEXT_BYTES);
    }
    pthread_mutex_unlock(&contexts_lock);
    return length;
}

void sim_decode_fork_prepare(void) {
    pthread_mutex_lock(&contexts_lock);
}

void sim_decode_fork_done(void) {
    pthread_mutex_unlock(&contexts_lock);
}

bool sim_decode_wave(const sim_chip *chip, bool wave64, const uint8_t *bytes, uint64_t size,
                     uint64_t pc, sim_inst *out, char error[SIM_ERROR_BYTES]) {
    char text[SIM_TEXT_BYTES];
    *out = (sim_inst){.pc = pc};
    memcpy(out->word, bytes, size < sizeof out->word ? size : sizeof out->word);
    size_t length =
        sim_is_refused(chip, out->word) ? 0 : disassemble(chip, wave64, bytes, size, pc, text);
    if (!length || length > sizeof out->word || length > size) {
        snprintf(error, SIM_ERROR_BYTES, "no %s instruction: %08x %08x at %#llx", chip->name,
                 out->word[0], out->word[1], (unsigned long long)pc);
        return false;
    }
    out->bytes = (uint32_t)length;
    char why[SIM_ERROR_BYTES];
    bool dual = strstr(text, " :: ");
    if (!(dual ? sim_parse_dual : sim_parse)(text, chip->arch, out, why)) {
        snprintf(error, SIM_ERROR_BYTES, "%.160s (%s, bytes %08x %08x, at %#llx)", why, chip->name,
                 out->word[0], out->word[1], (unsigned long long)pc);
        return false;
    }
    return true;
}

bool sim_decode(const sim_chip *chip, const uint8_t *bytes, uint64_t size, uint64_t pc,
                sim_inst *out, char error[SIM_ERROR_BYTES]) {
    return sim_decode_wave(chip, chip->wave_size == 64, bytes, size, pc, out, error);
}

/** Single spaces in place of LLVM's tabs, none at the ends. */
static void tidy(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool is_space = *from == ' ' || *from == '\t';
        if (!is_space || (to > text && to[-1] != ' ')) {
            *to++ = is_space ? ' ' : *from;
        }
    }
    to -= to > text && to[-1] == ' ';
    *to = 0;
}

bool sim_inst_text(const sim_text *text, bool wave64, uint64_t pc, char out[SIM_INST_TEXT_BYTES]) {
    uint64_t offset = pc - text->start;
    uint32_t word[4] = {};
    *out = 0;
    if (offset >= text->size || (offset & 3)) {
        return false;
    }
    uint64_t left = text->size - offset;
    memcpy(word, text->bytes + offset, left < sizeof word ? left : sizeof word);
    if (sim_is_refused(text->chip, word) ||
        !disassemble(text->chip, wave64, text->bytes + offset, left, pc, out)) {
        *out = 0;
        return false;
    }
    tidy(out);
    return true;
}

void sim_inst_deinit(sim_inst *inst) {
    free(inst->second);
    inst->second = nullptr;
}

static void inst_free(const sim_inst *inst) {
    if (inst) {
        free(inst->second);
        free((void *)(uintptr_t)inst);
    }
}

/** Publishes `inst`, or frees it and returns the one that another thread published first. */
static const sim_inst *publish(_Atomic(const sim_inst *) *slot, sim_inst *inst) {
    const sim_inst *expected = nullptr;
    if (atomic_compare_exchange_strong(slot, &expected, inst)) {
        return inst;
    }
    inst_free(inst);
    return expected;
}

const sim_inst *sim_inst_at(sim_wave *w, uint64_t pc) {
    const sim_text *text = w->group->dispatch->text;
    uint64_t offset = pc - text->start;
    if (offset >= text->size || (offset & 3)) {
        sim_fault_report(w, nullptr, -1, SIM_FAULT_OUTSIDE, nullptr,
                         "the program counter left the code: %#llx is outside %#llx+%#llx",
                         (unsigned long long)pc, (unsigned long long)text->start,
                         (unsigned long long)text->size);
        return nullptr;
    }
    char error[SIM_ERROR_BYTES] = "out of memory";
    sim_inst *inst = malloc(sizeof *inst);
    if (!inst || !sim_decode_wave(text->chip, !w->wave32, text->bytes + offset, text->size - offset,
                                  pc, inst, error)) {
        sim_fault_report(w, nullptr, -1, SIM_FAULT_INSTRUCTION, nullptr, "%s", error);
        free(inst);
        return nullptr;
    }
    return publish(&text->slots[offset >> 2], inst);
}

void sim_text_deinit(sim_text *text) {
    for (uint64_t i = 0; text->slots && i < text->size / 4; i++) {
        inst_free(atomic_load(&text->slots[i]));
    }
    free((void *)text->slots);
    *text = (sim_text){};
}
