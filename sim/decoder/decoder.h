// SPDX-License-Identifier: Apache-2.0
// The disassembler, which runs in a process of its own: what the library's end and the program's
// end share.
//
// LLVM's disassembler crashes on some words that are no instructions, and what it does before it
// crashes is undefined. A code object can hold any words, so the process that loads it must not run
// them through LLVM. quern-decoder does that. It has the socket as its standard input and one page
// of memory, shared with the library, as its standard output; a byte in either direction says "your
// turn". What it has disassembled stays readable if it then crashes.
#ifndef SIM_DECODER_H
#define SIM_DECODER_H

#include "../isa/isa.h"

enum { SIM_DECODER_PADDING = 24 }; // LLVM 22 reads past a literal that is cut short

/** A request, and as much of the answer as there is. */
typedef struct sim_decoder_page {
    uint32_t arch; // sim_arch
    uint32_t wave64;
    uint32_t wanted; // instructions, at most SIM_MAX_LISTING
    uint32_t size;   // of the code
    uint64_t pc;
    uint8_t code[SIM_MAX_LISTING * SIM_MAX_INST_BYTES + SIM_DECODER_PADDING];
    _Atomic uint32_t count; // of lines below; each is complete before it is counted
    sim_line lines[SIM_MAX_LISTING];
} sim_decoder_page;

#endif
