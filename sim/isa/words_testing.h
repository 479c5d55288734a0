// SPDX-License-Identifier: Apache-2.0
// For the tests that try every opcode of every encoding: random words, and words with as few bits
// as can be.
#ifndef SIM_WORDS_TESTING_H
#define SIM_WORDS_TESTING_H

#include "../exec/exec_testing.h"
#include "encodings.h"

/** From this attempt on words have no bits that need not be there. */
enum { CLEAN_WORDS = 40 };

/** Makes words with as few bits as possible: for VOP3P, op_sel_hi as assemblers write it; for
 *  MUBUF, lds. */
static inline void make_clean_words(unsigned attempt, uint32_t word[4]) {
    word[0] |= (attempt & 1 ? 0x4000 : 0) | (attempt & 8 ? 0x10000 : 0);
    word[1] = (attempt & 2 ? 0x04020100 : 0x00020100) | (attempt & 4 ? 0x18000000 : 0);
    word[2] = word[3] = 0;
}

/** Some instructions take only scalar operands, some only vectors, some only even registers or
 *  cleared flags. */
static inline void make_words(const encoding *e, unsigned opcode, unsigned attempt,
                              uint32_t word[4]) {
    uint32_t operands = (uint32_t)next_random() & e->operands;
    operands &= attempt & 16 ? 0xfffe00fe : attempt & 8 ? 0xffff7fff : 0xffffffff;
    word[0] = e->base | opcode << e->shift | operands;
    word[1] = (uint32_t)next_random();
    word[2] = (uint32_t)next_random();
    word[3] = (uint32_t)next_random();
    if (attempt >= CLEAN_WORDS) {
        word[0] = e->base | opcode << e->shift;
        make_clean_words(attempt, word);
        return;
    }
    if (attempt >= CLEAN_WORDS / 2)
        word[1] = 0x04020100u + ((attempt & 7) << 1);
    else if (attempt & 2)
        word[1] = (word[1] & 0x00fefefe) | (attempt & 4 ? 0x80000000 : 0);
}

#endif
