// SPDX-License-Identifier: Apache-2.0
// Decoded instructions, which exec/ executes and which check/ and look/ examine. Names follow the
// ISA manuals.
#ifndef SIM_INST_H
#define SIM_INST_H

#include "../chip/chip.h"
#include "traits.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sim_wave sim_wave;
typedef struct sim_inst sim_inst;
typedef void (*sim_exec_fn)(sim_wave *w, const sim_inst *inst);

typedef enum sim_operand_kind {
    SIM_OP_NONE,
    SIM_OP_VGPR,    // reg: 0..255 v, 256..511 a (AccVGPR)
    SIM_OP_SGPR,    // reg: index into sim_wave.s (vcc 106, m0 124, exec 126, ttmp 108..123)
    SIM_OP_IMM,     // value: inline constant or literal, as the 32-bit pattern the operand's type
                    // reads; value64 for 64-bit operands
    SIM_OP_SPECIAL, // reg: sim_special
} sim_operand_kind;

typedef enum sim_special {
    SIM_SRC_SCC,
    SIM_SRC_VCCZ,
    SIM_SRC_EXECZ,
    SIM_SRC_SHARED_BASE,
    SIM_SRC_SHARED_LIMIT,
    SIM_SRC_PRIVATE_BASE,
    SIM_SRC_PRIVATE_LIMIT,
    SIM_SRC_NULL,
} sim_special;

enum { // sim_operand.mods
    SIM_NEG = 1,
    SIM_ABS = 2,
    SIM_SEXT = 4
};

enum { SIM_LOW_HALF = 1, SIM_HIGH_HALF = 2 }; // sim_operand.half

typedef struct sim_operand {
    uint8_t kind;  // sim_operand_kind
    uint8_t count; // dwords
    uint8_t mods;
    uint8_t sdwa_sel; // 0..3 BYTE_n, 4 WORD_0, 5 WORD_1, 6 DWORD
    char type;        // letter of sim_opcode.types
    uint8_t half;     // 0 the whole register, SIM_LOW_HALF, SIM_HIGH_HALF
    uint16_t reg;
    uint32_t value;
    uint64_t value64;
} sim_operand;

enum { // sim_inst.flags
    SIM_CLAMP = 1 << 0,
    SIM_OFFEN = 1 << 1,
    SIM_IDXEN = 1 << 2,
    SIM_LDS = 1 << 3, // the load goes to LDS
    SIM_GLC = 1 << 4, // atomics: return the old value (sc0, glc, th:TH_ATOMIC_RETURN)
    SIM_DPP = 1 << 5,
    SIM_SDWA = 1 << 6,
    SIM_DPP_BOUND_CTRL = 1 << 7,
    SIM_HAS_SADDR = 1 << 8,
    SIM_VCC_IMPLICIT = 1 << 9,
    SIM_DPP8 = 1 << 10,     // the lanes are in dpp8
    SIM_DPP_FI = 1 << 11,   // inactive lanes are read like active ones
    SIM_SCOPED = 1 << 12,   // sc1, or scope: of more than a compute unit
    SIM_STREAMED = 1 << 13, // nt, slc: the line is not needed again
};

/** Says whether MODE.FP16_OVFL limits an instruction's results. */
typedef enum sim_overflow : uint8_t {
    SIM_NO_HALF,      // no: results are not f16
    SIM_HALF,         // yes, unless a source is infinite
    SIM_HALF_OF_POLE, // yes, unless a source is infinite, or the divisor or only source is 0
} sim_overflow;

struct sim_inst {
    sim_exec_fn exec; // never null once published
    const struct sim_opcode *opcode;
    uint64_t pc;    // guest address
    uint32_t bytes; // encoded length
    uint32_t flags;
    sim_operand dst[2];
    sim_operand src[5];
    uint8_t num_dst, num_src;
    uint8_t omod;                              // 0 none, 1 *2, 2 *4, 3 /2
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi; // bit i: source i (op_sel bit 3: destination)
    uint8_t cbsz, abid, blgp;
    uint8_t sdwa_dst_sel, sdwa_dst_unused; // 0 pad, 1 sext, 2 preserve
    uint8_t byte_sel;                      // 8-bit float conversions of gfx12
    uint16_t dpp_ctrl;
    uint32_t dpp8; // three bits for each lane of eight
    uint8_t dpp_row_mask, dpp_bank_mask;
    uint8_t dpp_lane[SIM_LANES]; // the lane that each lane reads; 0 if it reads none
    uint64_t dpp_exists;         // lanes that read a lane
    uint64_t dpp_writes;         // lanes that the masks leave on
    bool dpp_in_rows;            // lanes read their own row of sixteen, all rows in one way
    int32_t offset;   // memory: immediate offset (DS: offset0); branches: target is `target`
    int32_t offset1;  // DS: second offset
    uint64_t target;  // branches: guest address
    uint32_t imm;     // SOPP, SOPK: the 16 bits of the encoding; v_bitop3: the truth table
    uint32_t word[4]; // the encoding, little-endian words
    bool plain;       // VALU: no modifiers at all, so that operands may be used in place
    bool light;       // VALU: no modifiers but signs of f32 sources and DPP within rows, not plain
    bool is_float;    // VALU: some operand is a float, so that MODE matters
    sim_overflow overflow; // VALU
    /** The first half of a dual instruction saves its destination, which the second half reads. */
    bool saves_row;
    sim_inst *second;  // of a dual instruction: its second half, owned by this one; else null
    sim_traits traits; // last: executing reads the fields above in few cache lines
};

/** A row of an opcode table: a mnemonic without encoding suffix, the function that executes it, how
 *  well its meaning is known, and its traits. */
typedef struct sim_opcode {
    const char *mnemonic; // "v_add_f32"
    sim_exec_fn exec;
    uint32_t archs; // bit i: sim_arch i
    sim_class klass;
    // 'm' measured on silicon by a published source, 'i' ISA text, 'l' LLVM, '?' inferred
    char known;
    // Operand types in the order of the text, one letter each, destinations before the colon
    // ("f:ff"). They say how constants and modifiers are read:
    //   i b32, f f32, h f16, w b16, q b64 or u64, Q i64, d f64, F two f32, H two f16, W two b16, t
    //   the words of a hint, m lane mask, r a destination that is there only with SIM_GLC
    //   (atomics); destinations only: k b16 and x f16 that keep the register's other half. A last
    //   "+": the first destination is the last source too. No colon: one destination. Null: all i.
    const char *types;
    // traits (isa/traits.h), which a row names if they differ from those of its class
    uint64_t is; // SIM_ bits of a row
    sim_unit unit;
    sim_kind_of_access access;
    sim_addressing addressing;
    sim_flow flow;
    sim_logic logic;
    sim_wait_for waits;
    sim_matrix matrix;
} sim_opcode;

/** Makes a row of its first six columns, in order, and of others such as ".flow =
 *  SIM_FLOW_SELECT". */
#define SIM_ROW(name_, function_, chips_, class_, known_, types_, ...)                             \
    {.mnemonic = name_,                                                                            \
     .exec = function_,                                                                            \
     .archs = chips_,                                                                              \
     .klass = class_,                                                                              \
     .known = known_,                                                                              \
     .types = types_ __VA_OPT__(, ) __VA_ARGS__},

/** The opcodes of one family, as built for one host instruction set (SIM_ISA). isa/opcodes.c lists
 *  these tables. */
typedef struct sim_opcode_table {
    const sim_opcode *opcodes;
    size_t count;
} sim_opcode_table;

#define SIM_CONCAT_(a, b) a##_##b
#define SIM_CONCAT(a, b) SIM_CONCAT_(a, b)
/** Makes the non-static names of exec/, which is built once for each host instruction set. */
#define SIM_NAME(name) SIM_CONCAT(name, SIM_ISA)

#endif
