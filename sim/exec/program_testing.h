// SPDX-License-Identifier: Apache-2.0
// For tests with a program of their own: assembled by LLVM, run in a wave of 32 lanes.
#ifndef SIM_PROGRAM_TESTING_H
#define SIM_PROGRAM_TESTING_H

#include "exec_testing.h"

enum { ROUNDS = 200 };

/** One assembled program and a wave of 32 lanes to run it. */
typedef struct program {
    const char *chip;
    uint8_t *text;
    size_t size;
    test_wave *t;
} program;

static inline program start(const char *chip, const char *source) {
    program p = {.chip = chip};
    p.text = assemble(chip, source, &p.size);
    p.t = make_wave(chip);
    p.t->kernel.wave32 = p.t->wave.wave32 = true;
    return p;
}

static inline void stop(program *p) {
    free(p->text);
    free(p->t);
}

/** Runs the instructions in their order in memory. */
static inline void run(program *p) {
    for (size_t at = 0; at < p->size;) {
        sim_inst inst = decode_at(p->chip, p->text, p->size, at);
        inst.exec(&p->t->wave, &inst);
        at += inst.bytes;
        sim_inst_deinit(&inst);
    }
}

#endif
