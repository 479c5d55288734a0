// SPDX-License-Identifier: Apache-2.0
// The traits of instructions, which say everything about an instruction but what it computes: the
// columns of an opcode's row in a table, and the record of a decoded instruction, which traits.c
// fills in from the row. The checker, the profiler and models of time read this record, so that
// nobody has to look at a mnemonic's text.
#ifndef SIM_TRAITS_H
#define SIM_TRAITS_H

#include <stdint.h>

typedef enum sim_class : uint8_t { // the encoding's groups of instructions
    SIM_SALU,
    SIM_SMEM,
    SIM_VALU,
    SIM_MFMA,
    SIM_LDS_OP,
    SIM_VMEM,
    SIM_FLOW
} sim_class;

typedef enum sim_unit : uint8_t { // the unit that executes an instruction
    SIM_UNIT_BY_CLASS,            // only in rows: the unit of the class; for SIM_FLOW none
    SIM_UNIT_NONE,                // the wave's instruction buffer executes it
    SIM_UNIT_SALU,
    SIM_UNIT_SMEM,
    SIM_UNIT_BRANCH,
    SIM_UNIT_MESSAGE, // s_sendmsg and s_endpgm
    SIM_UNIT_VALU,
    SIM_UNIT_TRANS, // the vector unit's slower part: exp, rcp, sin, ...
    SIM_UNIT_MATRIX,
    SIM_UNIT_LDS,
    SIM_UNIT_VMEM,
    SIM_UNIT_CACHE, // write-backs and invalidations of caches
} sim_unit;

typedef enum sim_kind : uint8_t { // kinds that are counted apart
#define SIM_KIND(id) SIM_KIND_##id,
#include "kinds.def"
#undef SIM_KIND
    SIM_NUM_KINDS
} sim_kind;

typedef enum sim_kind_of_access : uint8_t {
    SIM_ACCESS_NONE,
    SIM_ACCESS_LOAD,
    SIM_ACCESS_STORE,
    SIM_ACCESS_ATOMIC,
    SIM_ACCESS_DMA, // a load that goes to LDS
} sim_kind_of_access;

typedef enum sim_addressing : uint8_t { // how vector memory is addressed
    SIM_NO_ADDRESS,
    SIM_BUFFER,
    SIM_TYPED_BUFFER, // a buffer whose format stands in the encoding
    SIM_GLOBAL,
    SIM_FLAT,
    SIM_SCRATCH,
} sim_addressing;

enum { // sim_traits.stream: memory operations that complete in order, SMEM's in any order
    SIM_STREAM_LOAD,  // vmcnt, loadcnt
    SIM_STREAM_STORE, // vscnt, storecnt; gfx9 counts stores with loads
    SIM_STREAM_LDS,   // lgkmcnt, dscnt
    SIM_STREAM_SMEM,  // lgkmcnt, kmcnt
    SIM_NUM_STREAMS
};

typedef enum sim_scope : uint8_t {
    SIM_SCOPE_NONE,    // plain data
    SIM_SCOPE_UNKNOWN, // a store of a chip whose stores have no scope
    SIM_SCOPE_SOME,    // data that other waves may see while the kernel runs
} sim_scope;

typedef enum sim_flow : uint8_t { // the lanes of sources on which a lane of the result depends
    SIM_FLOW_BY_CLASS,            // only in rows: the usual flow of the class
    SIM_FLOW_LANES,               // this lane of each source
    SIM_FLOW_SELECT,              // this lane of the source that a mask, or SCC, chooses
    SIM_FLOW_READ_LANE,
    SIM_FLOW_WRITE_LANE,
    SIM_FLOW_SWAP,      // destination and source change places, lane by lane
    SIM_FLOW_SWAP_ROWS, // destination and source change places, and lanes do, too
    SIM_FLOW_CROSS,     // any lanes
    SIM_FLOW_MATRIX,
} sim_flow;

typedef enum sim_logic : uint8_t { // how a scalar instruction works that works bit by bit
    SIM_LOGIC_NONE,
    SIM_LOGIC_ANY,      // a bit of the result depends on the bits of both sources
    SIM_LOGIC_AND,      // a 0 in one source decides the bit
    SIM_LOGIC_OR,       // a 1 in one source decides the bit
    SIM_LOGIC_AND_NOT1, // AND or OR with the second source inverted
    SIM_LOGIC_OR_NOT1,
    SIM_LOGIC_AND_NOT0, // AND or OR with the first source inverted
    SIM_LOGIC_OR_NOT0,
} sim_logic;

typedef enum sim_wait_for : uint8_t { // the counters that an instruction waits for
    SIM_WAIT_NOTHING,                 // it is no wait
    SIM_WAIT_OTHER,                   // operations that here are done when issued: exports, the ALU
    SIM_WAIT_FIELDS,                  // s_waitcnt: the counters in the chip's fields
    SIM_WAIT_IDLE,                    // all counters
    SIM_WAIT_LOADS,
    SIM_WAIT_STORES,
    SIM_WAIT_LDS,
    SIM_WAIT_SMEM,
    SIM_WAIT_LDS_SMEM,
    SIM_WAIT_LOADS_LDS,
    SIM_WAIT_STORES_LDS,
} sim_wait_for;
enum { SIM_LEFT_ANY = 255 };

typedef enum sim_matrix_unit : uint8_t {
    SIM_MATRIX_NONE,
    SIM_MATRIX_XDL,
    SIM_MATRIX_F32, // with wait states of its own
    SIM_MATRIX_F64,
} sim_matrix_unit;

/** A matrix instruction: D = A B + C for each block, A [m][k], B [k][n], C and D [m][n]. */
typedef struct sim_matrix {
    uint8_t m, n, blocks;
    sim_matrix_unit unit;
    uint8_t passes;  // passes of four cycles; in rows, with the narrowest inputs that it takes
    sim_kind inputs; // SIM_KIND_MATRIX_F6F4 in rows: cbsz and blgp name the inputs
    uint16_t k;      // k of the dense product
} sim_matrix;

/** Bits of sim_traits.is. The bits up to SIM_SETS_PRIORITY stand in rows as well. */
enum : uint64_t {
    SIM_SATURATES = 1u << 0,       // with clamp, integer results saturate
    SIM_IS_PACKED = 1u << 1,       // works on pairs; compilers may leave one half unused
    SIM_IS_DOT = 1u << 2,          // a dot product
    SIM_COPIES_PAIR = 1u << 3,     // copies two registers; compilers may leave one unused
    SIM_IS_BF16 = 1u << 4,         // sources of types w and W are bf16
    SIM_HAS_POLE = 1u << 5,        // infinite where the divisor, or the only source, is 0
    SIM_MIXES_HALVES = 1u << 6,    // has f32 and f16 sources
    SIM_HAS_TABLE = 1u << 7,       // has a truth table as a modifier; the text omits one of 0
    SIM_IS_LOW_FIRST = 1u << 8,    // the result's low half depends only on low halves
    SIM_READS_LANE = 1u << 9,      // reads one lane to a scalar
    SIM_WRITES_LANE = 1u << 10,    // writes a scalar to one lane
    SIM_NAMES_LANE = 1u << 11,     // the second source is the lane's number
    SIM_IS_DIV_FMAS = 1u << 12,    // v_div_fmas, which reads VCC without naming it
    SIM_WRITES_EXEC = 1u << 13,    // writes EXEC without naming it
    SIM_MOVES_ACC = 1u << 14,      // copies to or from an AccVGPR
    SIM_READS_M0 = 1u << 15,       // reads M0 without naming it, at once
    SIM_IS_CALL = 1u << 16,        // a call or return: jumps to or writes an address in registers
    SIM_INDEXES_SRC = 1u << 17,    // M0 says which register is the source
    SIM_INDEXES_DST = 1u << 18,    // M0 says which register is the destination
    SIM_INDEXES_BOTH = 1u << 19,   // M0 says both, each by ten bits of its own
    SIM_KEEPS_SCC = 1u << 20,      // a scalar instruction that does not write SCC
    SIM_BY_SCC = 1u << 21,         // a branch that SCC decides
    SIM_BY_VCC = 1u << 22,         // a branch that VCC decides
    SIM_JUMPS = 1u << 23,          // may jump to sim_inst.target
    SIM_ENDS_FLOW = 1u << 24,      // the code behind it is not executed next
    SIM_IS_BARRIER = 1u << 25,     // a barrier, or a part of one
    SIM_SIGNALS = 1u << 26,        // signals for a barrier
    SIM_AWAITS = 1u << 27,         // waits at a barrier
    SIM_IS_D16 = 1u << 28,         // memory: loads or stores halves of registers
    SIM_IS_BLOCK = 1u << 29,       // memory: a dword for each bit of M0
    SIM_HAS_FORMAT = 1u << 30,     // memory: converts by a format
    SIM_TRANSPOSES = 1u << 31,     // a load whose lanes change places
    SIM_SWAPS = UINT64_C(1) << 32, // an atomic on memory that overwrites all of the old value
    SIM_COMPARES = UINT64_C(1) << 33,  // an atomic on memory: compare and swap
    SIM_IS_SPARSE = UINT64_C(1) << 34, // a matrix instruction whose sum is the fourth source
    SIM_IS_NOP = UINT64_C(1) << 35,    // counts for as many wait states as its constant says
    SIM_SLEEPS = UINT64_C(1) << 36, // the wave does nothing for as many units as its constant says
    SIM_SETS_PRIORITY = UINT64_C(1) << 37, // the constant's two low bits: 3 goes first
    // bits that only the encoding tells
    SIM_RETURNS = UINT64_C(1) << 40,       // an atomic that returns the old value
    SIM_IS_WAIT = UINT64_C(1) << 41,       // waits for memory operations
    SIM_WRITES_PART = UINT64_C(1) << 42,   // writes a part of its register, by SDWA
    SIM_IS_LATE_STORE = UINT64_C(1) << 43, // reads its data some time after it was issued
};

/** The traits of a decoded instruction. */
typedef struct sim_traits {
    uint64_t is; // SIM_ bits from SIM_SATURATES on
    sim_class klass;
    sim_unit unit;
    sim_kind kind;
    sim_kind_of_access access;
    sim_addressing addressing;
    uint8_t stream; // stream that counts it; SIM_NUM_STREAMS: none
    sim_scope scope;
    sim_flow flow;
    sim_logic logic;
    char known;                    // as sim_opcode.known
    uint8_t wait_states;           // wait states of gfx9 that it counts for; 0: another chip
    uint8_t left[SIM_NUM_STREAMS]; // operations that a wait lets be incomplete, or SIM_LEFT_ANY
    sim_matrix matrix;
} sim_traits;

static inline bool sim_is_buffer(const sim_traits *t) {
    return t->addressing == SIM_BUFFER || t->addressing == SIM_TYPED_BUFFER;
}

/** Returns the number of multiplications and additions; 0 if it is no matrix instruction. */
static inline uint64_t sim_matrix_ops(const sim_matrix *x) {
    return UINT64_C(2) * x->m * x->n * x->k * x->blocks;
}

#endif
