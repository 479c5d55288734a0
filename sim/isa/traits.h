// SPDX-License-Identifier: Apache-2.0
// What an instruction is beside what it computes: the columns of an opcode's row, and the record of
// a decoded instruction that traits.c fills from them. The checker, the profiler and whoever times
// instructions read this record; nobody else looks at a mnemonic's text.
#ifndef SIM_TRAITS_H
#define SIM_TRAITS_H

#include <stdint.h>

typedef enum sim_class : uint8_t { // how the encoding groups them
    SIM_SALU,
    SIM_SMEM,
    SIM_VALU,
    SIM_MFMA,
    SIM_LDS_OP,
    SIM_VMEM,
    SIM_FLOW
} sim_class;

typedef enum sim_unit : uint8_t { // what executes it
    SIM_UNIT_BY_CLASS,            // in a row alone; of SIM_FLOW: SIM_UNIT_NONE
    SIM_UNIT_NONE,                // the wave's instruction buffer does
    SIM_UNIT_SALU,
    SIM_UNIT_SMEM,
    SIM_UNIT_BRANCH,
    SIM_UNIT_MESSAGE, // s_sendmsg and s_endpgm
    SIM_UNIT_VALU,
    SIM_UNIT_TRANS, // the vector unit's slower part: exp, rcp, sin, ...
    SIM_UNIT_MATRIX,
    SIM_UNIT_LDS,
    SIM_UNIT_VMEM,
    SIM_UNIT_CACHE, // cache control: write back, invalidate
} sim_unit;

typedef enum sim_kind : uint8_t { // what those who count instructions tell apart
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

typedef enum sim_addressing : uint8_t { // of vector memory
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
    SIM_SCOPE_UNKNOWN, // a store of a chip whose stores have none
    SIM_SCOPE_SOME,    // meant for others to see while the kernel runs
} sim_scope;

typedef enum sim_flow : uint8_t { // which of a result's lanes depend on which of the sources'
    SIM_FLOW_BY_CLASS,            // in a row alone
    SIM_FLOW_LANES,               // each on its own
    SIM_FLOW_SELECT,              // on the source that a mask, or SCC, chooses
    SIM_FLOW_READ_LANE,
    SIM_FLOW_WRITE_LANE,
    SIM_FLOW_SWAP,      // destination and source change places, lane by lane
    SIM_FLOW_SWAP_ROWS, // and lanes do
    SIM_FLOW_CROSS,     // on any
    SIM_FLOW_MATRIX,
} sim_flow;

typedef enum sim_logic : uint8_t { // of a scalar instruction that works bit by bit
    SIM_LOGIC_NONE,
    SIM_LOGIC_ANY, // a bit of the result depends on those of both sources
    SIM_LOGIC_AND, // or one source may decide it
    SIM_LOGIC_OR,
    SIM_LOGIC_AND_NOT1, // of the inverted second source
    SIM_LOGIC_OR_NOT1,
    SIM_LOGIC_AND_NOT0,
    SIM_LOGIC_OR_NOT0,
} sim_logic;

typedef enum sim_wait_for : uint8_t { // which counters an instruction waits for
    SIM_WAIT_NOTHING,                 // it is no wait
    SIM_WAIT_OTHER,                   // for what is done once it is issued here: exports, the ALU
    SIM_WAIT_FIELDS,                  // s_waitcnt: the chip's fields
    SIM_WAIT_IDLE,                    // all
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
    uint8_t passes;  // of four cycles. In a row: with the narrowest inputs that it takes
    sim_kind inputs; // SIM_KIND_MATRIX_F6F4 in a row: cbsz and blgp name them
    uint16_t k;      // of the dense product
} sim_matrix;

/** sim_traits.is: a row's. */
enum : uint64_t {
    SIM_SATURATES = 1u << 0,       // its integers, with clamp
    SIM_IS_PACKED = 1u << 1,       // pairs; compilers leave a half of them unused
    SIM_IS_DOT = 1u << 2,          // a dot product
    SIM_COPIES_PAIR = 1u << 3,     // two registers, of which compilers leave one unused
    SIM_IS_BF16 = 1u << 4,         // the sources of its types w and W
    SIM_HAS_POLE = 1u << 5,        // it is infinite where the divisor, or the only source, is 0
    SIM_MIXES_HALVES = 1u << 6,    // f32 and f16 sources
    SIM_HAS_TABLE = 1u << 7,       // its truth table is a modifier, left out of the text if 0
    SIM_IS_LOW_FIRST = 1u << 8,    // the low half of the result depends on low halves alone
    SIM_READS_LANE = 1u << 9,      // to a scalar
    SIM_WRITES_LANE = 1u << 10,    // from a scalar
    SIM_NAMES_LANE = 1u << 11,     // by its second source
    SIM_IS_DIV_FMAS = 1u << 12,    // which reads VCC without saying so
    SIM_WRITES_EXEC = 1u << 13,    // without saying so
    SIM_MOVES_ACC = 1u << 14,      // to or from an AccVGPR
    SIM_READS_M0 = 1u << 15,       // without saying so, at once
    SIM_IS_CALL = 1u << 16,        // or a return: to an address in registers, or with one written
    SIM_INDEXES_SRC = 1u << 17,    // M0 says which register is the source
    SIM_INDEXES_DST = 1u << 18,    // or the destination
    SIM_INDEXES_BOTH = 1u << 19,   // each by ten bits of its own
    SIM_KEEPS_SCC = 1u << 20,      // a scalar instruction that leaves SCC alone
    SIM_BY_SCC = 1u << 21,         // a branch that SCC decides
    SIM_BY_VCC = 1u << 22,         // or VCC
    SIM_JUMPS = 1u << 23,          // perhaps: to sim_inst.target
    SIM_ENDS_FLOW = 1u << 24,      // what stands behind it does not follow
    SIM_IS_BARRIER = 1u << 25,     // or a part of one
    SIM_SIGNALS = 1u << 26,        // it tells of its coming to a barrier
    SIM_AWAITS = 1u << 27,         // it goes on behind a barrier
    SIM_IS_D16 = 1u << 28,         // memory: to or from halves of registers
    SIM_IS_BLOCK = 1u << 29,       // a dword for each bit of M0
    SIM_HAS_FORMAT = 1u << 30,     // memory: it converts, as a format says
    SIM_TRANSPOSES = 1u << 31,     // a load whose lanes change places
    SIM_SWAPS = UINT64_C(1) << 32, // an atomic on memory that leaves nothing of what was there
    SIM_COMPARES = UINT64_C(1) << 33,  // an atomic on memory: compare and swap
    SIM_IS_SPARSE = UINT64_C(1) << 34, // a matrix instruction whose sum is the fourth source
    SIM_IS_NOP = UINT64_C(1) << 35,    // it stands for as many wait states as its constant says
    // what only the encoding says
    SIM_RETURNS = UINT64_C(1) << 40,       // an atomic that gives back what was there
    SIM_IS_WAIT = UINT64_C(1) << 41,       // for memory operations
    SIM_WRITES_PART = UINT64_C(1) << 42,   // of its register, by SDWA
    SIM_IS_LATE_STORE = UINT64_C(1) << 43, // its data are read some time after it was issued
};

/** A decoded instruction's. */
typedef struct sim_traits {
    uint64_t is; // SIM_ bits above
    sim_class klass;
    sim_unit unit;
    sim_kind kind;
    sim_kind_of_access access;
    sim_addressing addressing;
    uint8_t stream; // which counts it; SIM_NUM_STREAMS: none
    sim_scope scope;
    sim_flow flow;
    sim_logic logic;
    char known;                    // as sim_opcode.known
    uint8_t wait_states;           // of gfx9, that it counts for; 0: the chip is no gfx9
    uint8_t left[SIM_NUM_STREAMS]; // operations that a wait lets be incomplete, or SIM_LEFT_ANY
    sim_matrix matrix;
} sim_traits;

static inline bool sim_is_buffer(const sim_traits *t) {
    return t->addressing == SIM_BUFFER || t->addressing == SIM_TYPED_BUFFER;
}

/** Multiplications and additions; 0 of what is no matrix instruction. */
static inline uint64_t sim_matrix_ops(const sim_matrix *x) {
    return UINT64_C(2) * x->m * x->n * x->k * x->blocks;
}

#endif
