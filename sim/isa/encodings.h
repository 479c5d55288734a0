// SPDX-License-Identifier: Apache-2.0
// The encodings of all targets, for tests and fuzzers that make words of them. Source: "CDNA3",
// "RDNA3" and "RDNA4" ISA, microcode formats.
#ifndef SIM_ENCODINGS_H
#define SIM_ENCODINGS_H

#include <stdint.h>

enum { GFX9 = 1, GFX11 = 2, GFX12 = 4, RDNA = GFX11 | GFX12, ALL = GFX9 | RDNA };

typedef struct encoding {
    unsigned family;
    uint32_t base;     // the bits that name it
    unsigned shift;    // where the opcode lies
    unsigned count;    // of opcodes
    uint32_t operands; // bits of the first word that are neither
} encoding;

static const encoding encodings[] = {
    {ALL, 0x80000000, 23, 128, 0x7fffff},  // SOP2
    {ALL, 0xb0000000, 23, 32, 0x7fffff},   // SOPK
    {ALL, 0xbe800000, 8, 256, 0x7f00ff},   // SOP1
    {ALL, 0xbf000000, 16, 128, 0xffff},    // SOPC
    {ALL, 0xbf800000, 16, 128, 0xffff},    // SOPP
    {GFX9, 0xc0000000, 18, 256, 0x3ffff},  // SMEM
    {ALL, 0x00000000, 25, 62, 0x1ffffff},  // VOP2
    {ALL, 0x7e000000, 9, 256, 0x1fe01ff},  // VOP1
    {ALL, 0x7c000000, 17, 256, 0x1ffff},   // VOPC
    {GFX9, 0xd0000000, 16, 1024, 0xffff},  // VOP3, VOP3P
    {GFX9, 0xd8000000, 17, 256, 0x1ffff},  // DS
    {GFX9, 0xdc000000, 18, 128, 0x3ffff},  // FLAT, GLOBAL, SCRATCH
    {GFX9, 0xe0000000, 18, 128, 0x3ffff},  // MUBUF
    {GFX9, 0xe8000000, 15, 16, 0x7fff},    // MTBUF
    {GFX11, 0xe8000000, 15, 16, 0x7fff},   // MTBUF
    {RDNA, 0xce000000, 20, 16, 0xfffff},   // LDSDIR
    {GFX11, 0xf4000000, 18, 256, 0x3ffff}, // SMEM
    {GFX12, 0xf4000000, 13, 64, 0x3e1fff}, {RDNA, 0xd4000000, 16, 1024, 0xffff}, // VOP3
    {RDNA, 0xcc000000, 16, 128, 0xffff},                                         // VOP3P
    {RDNA, 0xd8000000, 18, 256, 0x3ffff},                                        // DS
    {GFX11, 0xdc000000, 18, 128, 0x3ffff}, // FLAT, GLOBAL, SCRATCH
    {GFX11, 0xe0000000, 18, 256, 0x3ffff}, // MUBUF
    {GFX12, 0xec000000, 14, 128, 0x7f},    // VFLAT, VSCRATCH, VGLOBAL
    {GFX12, 0xed000000, 14, 128, 0x7f},    {GFX12, 0xee000000, 14, 128, 0x7f},
    {GFX12, 0xc4000000, 14, 256, 0x7f},   // VBUFFER
    {RDNA, 0xc8000000, 17, 512, 0x1ffff}, // VOPD: both opcodes
};

#endif
