// SPDX-License-Identifier: Apache-2.0
// How well a kernel's behaviour is known: the weakest source among the instructions that the kernel
// can reach, found by following its code from the entry over every branch. Functions that it calls
// through a register are not followed.
#include "../object/object.h"
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 32 };

typedef struct walk {
    const sim_text *text;
    bool wave64;
    bool *seen;      // of each dword
    uint64_t *stack; // offsets still to be followed; each dword is pushed once at most
    size_t depth;
    char weakest;
    const char *names[MAX_NAMES]; // mnemonics that are known no better than the weakest
    unsigned num_names;
} walk;

/** Returns the rank of a source, the strongest first: measured, ISA text, LLVM, inferred. */
static int rank(char known) {
    static const char order[] = "mil?";
    return known ? (int)(strchr(order, known) - order) : -1;
}

static void note(walk *s, const sim_inst *inst) {
    const sim_opcode *opcode = inst->opcode;
    const char known = inst->traits.known;
    if (rank(known) < rank(s->weakest))
        return;
    if (known != s->weakest) {
        s->weakest = known;
        s->num_names = 0;
    }
    for (unsigned i = 0; i < s->num_names; i++)
        if (!strcmp(s->names[i], opcode->mnemonic))
            return;
    if (s->num_names < MAX_NAMES)
        s->names[s->num_names++] = opcode->mnemonic;
}

static void push(walk *s, uint64_t offset) {
    if (offset < s->text->size && !(offset & 3) && !s->seen[offset >> 2]) {
        s->seen[offset >> 2] = true;
        s->stack[s->depth++] = offset;
    }
}

/** Looks at one instruction. Returns false if nothing executes it. *ends says whether the flow ends
 *  with it. */
static bool look(walk *s, const sim_line *line, uint64_t offset, bool *ends) {
    char ignored[SIM_ERROR_BYTES];
    sim_inst inst;
    if (!sim_decode_line(s->text->chip, line, s->text->bytes + offset, s->text->start + offset,
                         &inst, ignored)) {
        return false;
    }
    note(s, &inst);
    if (inst.second)
        note(s, inst.second);
    if (inst.traits.is & SIM_JUMPS)
        push(s, inst.target - s->text->start);
    *ends = inst.traits.is & SIM_ENDS_FLOW;
    sim_inst_deinit(&inst);
    return true;
}

/** Walks instructions in a row, up to one that was seen before or that ends the flow. */
static bool walk_run(walk *s, uint64_t offset) {
    sim_line lines[SIM_MAX_LISTING];
    char ignored[SIM_ERROR_BYTES];
    unsigned count =
        sim_disassemble(s->text->chip, s->wave64, s->text->bytes + offset, s->text->size - offset,
                        s->text->start + offset, SIM_MAX_LISTING, lines, ignored);
    bool ends = false;
    for (unsigned i = 0; i < count && !ends; offset += lines[i++].bytes) {
        if (i && s->seen[offset >> 2])
            return true;
        s->seen[offset >> 2] = true;
        if (!look(s, &lines[i], offset, &ends))
            return false;
    }
    if (!ends)
        push(s, offset);
    return count;
}

static void print_names(const walk *s, char *names, size_t bytes) {
    size_t at = 0;
    names[0] = 0;
    for (unsigned i = 0; i < s->num_names && at < bytes; i++) {
        const int n = snprintf(names + at, bytes - at, "%s%s", i ? " " : "", s->names[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

char sim_kernel_evidence(const sim_text *text, const sim_kernel *kernel, char *names,
                         size_t bytes) {
    walk s = {.text = text,
              .wave64 = !(kernel->wave32 && text->chip->gfx_major > 9),
              .seen = calloc(text->size / 4 + 1, sizeof *s.seen),
              .stack = calloc(text->size / 4 + 1, sizeof *s.stack)};
    bool ok = s.seen && s.stack;
    if (ok)
        push(&s, kernel->entry - text->start);
    while (ok && s.depth)
        ok = walk_run(&s, s.stack[--s.depth]);
    print_names(&s, names, bytes);
    free(s.seen);
    free(s.stack);
    return ok ? s.weakest : 0;
}
