// SPDX-License-Identifier: Apache-2.0
// The disassembler runs in a process of its own. This header has what the library and that process
// share.
//
// LLVM's disassembler crashes on some words that are no instructions, and its behaviour before the
// crash is undefined. A code object can hold any words, so the process that loads it must not hand
// them to LLVM. quern-decoder does that in the library's place. Its standard input is a socket; its
// standard output is one page of memory, shared with the library. A byte in either direction says
// "your turn". If quern-decoder crashes, the lines that it has disassembled stay readable.
#ifndef SIM_DECODER_H
#define SIM_DECODER_H

#include "../isa/isa.h"

enum { SIM_DECODER_PADDING = 24 }; // LLVM 22 reads past a literal that is cut short

/** A request, and the answer as far as it has come. */
typedef struct sim_decoder_page {
    uint32_t arch; // sim_arch
    uint32_t wave64;
    uint32_t wanted; // instructions, at most SIM_MAX_LISTING
    uint32_t size;   // bytes of code
    uint64_t pc;
    uint8_t code[SIM_MAX_LISTING * SIM_MAX_INST_BYTES + SIM_DECODER_PADDING];
    _Atomic uint32_t count; // number of complete lines; a line is counted when it is complete
    sim_line lines[SIM_MAX_LISTING];
} sim_decoder_page;

#endif
