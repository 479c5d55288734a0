// SPDX-License-Identifier: Apache-2.0
// Decoding: LLVM's disassembler turns bytes into text, the parser turns text into a bound
// instruction, and the text segment's slot keeps it. Each instruction is decoded once, when a wave
// first reaches it or one shortly before.
#include "../report/fault.h"
#include "../wave.h"
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sim_decode_line(const sim_chip *chip, const sim_line *line, const uint8_t *bytes, uint64_t pc,
                     sim_inst *out, char error[SIM_ERROR_BYTES]) {
    char why[SIM_ERROR_BYTES] = SIM_OUT_OF_MEMORY;
    const bool dual = strstr(line->text, " :: ");
    *out = (sim_inst){.pc = pc, .bytes = line->bytes};
    memcpy(out->word, bytes, line->bytes);
    if (!sim_opcodes_are_ready() ||
        !(dual ? sim_parse_dual : sim_parse)(line->text, chip->arch, out, why)) {
        char words[4 * 9 + 1] = "";
        for (unsigned i = 0; i < line->bytes / 4; i++)
            snprintf(words + 9 * i, sizeof words - 9 * i, " %08x", out->word[i]);
        snprintf(error, SIM_ERROR_BYTES, "%.160s (%s, bytes%s, at %#llx)", why, chip->name, words,
                 (unsigned long long)pc);
        return false;
    }
    return true;
}

/** Makes a complaint of `why` and the bytes that cannot be disassembled. */
static void complain(const uint8_t *bytes, uint64_t size, uint64_t pc, const char *why,
                     char error[SIM_ERROR_BYTES]) {
    uint32_t word[2] = {};
    memcpy(word, bytes, size < sizeof word ? size : sizeof word);
    snprintf(error, SIM_ERROR_BYTES, "%.180s: %08x %08x at %#llx", why, word[0], word[1],
             (unsigned long long)pc);
}

static unsigned disassemble(const sim_chip *chip, bool wave64, const uint8_t *bytes, uint64_t size,
                            uint64_t pc, unsigned wanted, sim_line *lines,
                            char error[SIM_ERROR_BYTES]) {
    char why[SIM_ERROR_BYTES];
    const unsigned count = sim_disassemble(chip, wave64, bytes, size, pc, wanted, lines, why);
    if (!count)
        complain(bytes, size, pc, why, error);
    return count;
}

bool sim_decode_wave(const sim_chip *chip, bool wave64, const uint8_t *bytes, uint64_t size,
                     uint64_t pc, sim_inst *out, char error[SIM_ERROR_BYTES]) {
    sim_line line;
    *out = (sim_inst){.pc = pc};
    return disassemble(chip, wave64, bytes, size, pc, 1, &line, error) &&
           sim_decode_line(chip, &line, bytes, pc, out, error);
}

bool sim_decode(const sim_chip *chip, const uint8_t *bytes, uint64_t size, uint64_t pc,
                sim_inst *out, char error[SIM_ERROR_BYTES]) {
    return sim_decode_wave(chip, chip->wave_size == 64, bytes, size, pc, out, error);
}

/** Replaces LLVM's tabs by single spaces, and removes those at the ends. */
static void tidy(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        const bool is_space = *from == ' ' || *from == '\t';
        if (!is_space || (to > text && to[-1] != ' '))
            *to++ = is_space ? ' ' : *from;
    }
    to -= to > text && to[-1] == ' ';
    *to = 0;
}

uint32_t sim_inst_text(const sim_text *text, bool wave64, uint64_t pc,
                       char out[SIM_INST_TEXT_BYTES]) {
    const uint64_t offset = pc - text->start;
    *out = 0;
    if (offset >= text->size || (offset & 3))
        return 0;
    sim_line line;
    char error[SIM_ERROR_BYTES];
    if (!sim_disassemble(text->chip, wave64, text->bytes + offset, text->size - offset, pc, 1,
                         &line, error)) {
        return 0;
    }
    strcpy(out, line.text);
    tidy(out);
    return line.bytes;
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
    if (atomic_compare_exchange_strong(slot, &expected, inst))
        return inst;
    inst_free(inst);
    return expected;
}

/** Binds and publishes a line's instruction. Returns null, with a message, if it cannot be
 *  bound. */
static const sim_inst *publish_line(const sim_text *text, const sim_line *line, uint64_t offset,
                                    char error[SIM_ERROR_BYTES]) {
    sim_inst *inst = malloc(sizeof *inst);
    if (!inst) {
        snprintf(error, SIM_ERROR_BYTES, SIM_OUT_OF_MEMORY);
        return nullptr;
    }
    if (!sim_decode_line(text->chip, line, text->bytes + offset, text->start + offset, inst,
                         error)) {
        free(inst);
        return nullptr;
    }
    return publish(&text->slots[offset >> 2], inst);
}

/** Decodes the instruction at `offset` and those behind it, as asking for one costs as much as
 *  asking for twenty. Returns the first one, or null with a message. */
static const sim_inst *decode_ahead(const sim_text *text, bool wave64, uint64_t offset,
                                    char error[SIM_ERROR_BYTES]) {
    sim_line lines[SIM_MAX_LISTING];
    const unsigned count =
        disassemble(text->chip, wave64, text->bytes + offset, text->size - offset,
                    text->start + offset, SIM_MAX_LISTING, lines, error);
    const sim_inst *first = count ? publish_line(text, &lines[0], offset, error) : nullptr;
    for (unsigned i = 1; first && i < count; i++) {
        char ignored[SIM_ERROR_BYTES];
        offset += lines[i - 1].bytes;
        if (!atomic_load(&text->slots[offset >> 2]))
            publish_line(text, &lines[i], offset, ignored);
    }
    return first;
}

const sim_inst *sim_inst_at(sim_wave *w, uint64_t pc) {
    const sim_text *text = w->group->dispatch->text;
    const uint64_t offset = pc - text->start;
    if (offset >= text->size || (offset & 3)) {
        sim_fault_report(w, nullptr, -1, SIM_FAULT_OUTSIDE, nullptr,
                         "the program counter left the code: %#llx is outside %#llx+%#llx",
                         (unsigned long long)pc, (unsigned long long)text->start,
                         (unsigned long long)text->size);
        return nullptr;
    }
    char error[SIM_ERROR_BYTES];
    const sim_inst *inst = decode_ahead(text, !w->wave32, offset, error);
    if (!inst) {
        const bool no_memory = !strncmp(error, SIM_OUT_OF_MEMORY, sizeof SIM_OUT_OF_MEMORY - 1);
        sim_fault_report(w, nullptr, -1, no_memory ? SIM_FAULT_RESOURCES : SIM_FAULT_INSTRUCTION,
                         nullptr, "%s", error);
    }
    return inst;
}

void sim_text_deinit(sim_text *text) {
    for (uint64_t i = 0; text->slots && i < text->size / 4; i++)
        inst_free(atomic_load(&text->slots[i]));
    free((void *)text->slots);
    *text = (sim_text){};
}
