// SPDX-License-Identifier: Apache-2.0
// The checker's records, which it keeps beside the registers and LDS of a running workgroup.
//
// The checker does not change what a right kernel computes, but it holds back results that a kernel
// uses too early (waits.c). run.c is the run loop that sim_wave_run takes when a check is on.
// Before each instruction, waits.c and registers.c look at its operands. exec/ calls lds.c and
// race.c when it has computed the instruction's addresses in LDS and memory. sim_traits says of
// each decoded instruction what there is to look at.
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../object/object.h"
#include "../options.h"
#include "../wave.h"

/** The checks that need the run loop of this folder. */
enum { SIM_CHECK_SHADOW = SIM_CHECK_WAIT | SIM_CHECK_UNINIT | SIM_CHECK_RACE | SIM_CHECK_ALIGN };

// Registers by number: 0..511 vector registers as in sim_wave.v, then sim_wave.s, then SCC.
enum {
    SIM_REG_SCALAR = 512,
    SIM_REG_EXEC = SIM_REG_SCALAR + 126,
    SIM_REG_SCC = SIM_REG_SCALAR + 128,
    SIM_NUM_REGS,
    SIM_REG_WORDS =
        SIM_NUM_REGS / 64 + 2 // words of a bitmap; one more than needed, for reads across words
};

/** A result on its way: operation `seq` of its stream will write some lanes of a register. */
typedef struct sim_result {
    uint64_t seq, lanes;
    uint32_t pc; // the instruction's offset from the kernel's entry
    uint8_t stream;
} sim_result;

enum {               // sim_past.at: what an instruction left unfinished with a register
    SIM_DEED_VECTOR, // a vector instruction wrote it
    SIM_DEED_MATRIX, // a matrix instruction wrote it
    SIM_DEED_C,      // a matrix instruction took it as C
    SIM_DEED_STORE,  // a store has it as data
    SIM_DEED_SCALAR, // a scalar instruction wrote it
    SIM_NUM_DEEDS
};

/** The last instruction that did each deed to each register, timed in wait states of gfx9
 *  (hazards.c). */
struct sim_past {
    uint32_t clock;
    uint32_t unit_free;                              // when the next matrix instruction can begin
    uint32_t open_until[SIM_NUM_REGS];               // from then on no deed matters any more
    uint32_t at[SIM_NUM_DEEDS][SIM_NUM_REGS];        // time of the deed; 0: there was none
    const sim_inst *by[SIM_NUM_DEEDS][SIM_NUM_REGS]; // valid where `at` is not 0
};

/** A wave's load of memory that was never written: one dword of one instruction, as it last ran. */
typedef struct sim_unwritten {
    uint64_t pc, lanes;
    uint64_t address[SIM_LANES]; // valid for lanes in `lanes`
    uint32_t dword, bytes;
    bool is_told; // a use of the loaded value has been reported
} sim_unwritten;
enum { SIM_MAX_UNWRITTEN = 128 };

/** The checker's record of a wave. A register whose bits in `pending` and `undefined` are clear
 *  holds its right value. */
struct sim_shadow {
    /** Counts barriers, from 1. Accesses of two waves in one epoch may happen in any order. */
    uint32_t epoch;
    uint64_t issued[SIM_NUM_STREAMS]; // memory operations so far
    uint64_t done[SIM_NUM_STREAMS];   // how many of them a wait has proven complete
    uint64_t done_at_barrier[SIM_NUM_STREAMS];
    uint32_t released,
        acquired;    // times of races on global memory: the last release, the latest known
    bool has_stored; // the wave has stored to memory and not waited since
    uint64_t pending[SIM_REG_WORDS], undefined[SIM_REG_WORDS];
    sim_result results[SIM_NUM_REGS]; // valid where pending or late
    uint64_t late[SIM_REG_WORDS];     // registers that are stale, as they were used too early
    uint32_t num_late;
    uint32_t kept[512][SIM_LANES],
        kept_scalars[128]; // where pending, the value before; where late, the result
    uint64_t undefined_lanes[SIM_NUM_REGS]; // valid where undefined
    uint16_t origin[SIM_NUM_REGS]; // hole.origin of what was never written; valid where undefined
    sim_unwritten unwritten[SIM_MAX_UNWRITTEN];
    unsigned num_unwritten;
    unsigned lds_parts, memory_parts; // accesses of the instruction so far: some make several
    struct sim_past past;
};

/** The checker's record of bytes of one word of LDS that had the same accesses so far. A word is
 *  one cell, until an access touches some bytes of a cell alone: then each part is a cell. */
typedef struct sim_cell {
    uint32_t write_pc, read_pc; // offsets from the kernel's entry
    uint32_t write_epoch, read_epoch;
    uint32_t write_seq;     // number of the write in the writer's stream
    uint32_t kept;          // the word before the write; if late, what was written
    uint8_t writer, reader; // waves
    uint8_t write_stream : 2, several_readers : 1, several_writers : 1, atomic : 1;
    uint8_t written : 1, late : 1; // late: stale, as it was used too early
    uint8_t away;                  // bit i: byte i belongs to another cell of the word
    uint8_t holes; // in a word's first cell; bit i: byte i comes from memory that was never written
    uint16_t origin; // the load that holes come from; valid where there are holes
} sim_cell;
static_assert(sizeof(sim_cell) == 32);

/** Lanes whose value was never written, and its origin: the number of a register, or, from
 *  SIM_NUM_REGS on, one of SIM_MAX_UNWRITTEN loads of each wave. */
typedef struct hole {
    uint64_t lanes;
    unsigned origin;
} hole;

/** The holes in the dwords that an access moves. */
enum { SIM_MAX_DWORDS = 16 };
typedef struct sim_holes {
    unsigned count;
    hole dword[SIM_MAX_DWORDS];
} sim_holes;

/** One wave's access to 64 bytes of global memory (race.c). */
typedef struct sim_race_record {
    uint64_t bytes; // bit i: byte i is accessed; 0: the record is unused
    uint32_t wave;  // number in the launch
    uint32_t epoch; // barriers that the wave had passed
    uint32_t stamp; // time of the wave's last release, not counting this access
    uint32_t where; // dword of the code, and the kind of access
} sim_race_record;

enum { SIM_MAX_DOUBTS = 16 };

/** Accesses of an instruction that can only be judged after it ran. */
struct sim_race_later {
    bool is_locked; // the instruction synchronises
    uint32_t num_doubts;
    struct {               // a store clashes, unless it stores the value that was there
        const uint8_t *at; // the 64 bytes
        uint64_t address;  // guest address
        uint64_t bytes;    // bytes that clash
        int lane;
        uint8_t before[64];
        sim_race_record mine, other;
    } doubts[SIM_MAX_DOUBTS];
};

enum { SIM_MAX_LDS_DOUBTS = 1024 }; // no instruction writes more bytes to LDS

/** A write of LDS over another wave's write in one epoch. It is no race if both write one value,
 *  which is known only after the instruction. */
typedef struct sim_lds_doubt {
    uint32_t offset, value; // of the word, before the write
    uint32_t write_pc;      // of the other write
    uint8_t writer;         // the other wave
    uint8_t bytes;          // bit i: byte i of the word
    int8_t lane;
} sim_lds_doubt;

/** The checker's record of a workgroup. */
struct sim_group_shadow {
    uint32_t num_late; // number of late cells
    uint32_t acquired; // the latest release known to a wave that came to a barrier
    uint64_t lds_sync; // the last atomic on LDS: time above wave
    bool has_later;
    struct sim_race_later later;
    sim_cell *cells; // of each word, that of byte 0: dispatch->lds_bytes / 4, rounded up
    sim_cell *parts; // of each word, those that begin at bytes 1 to 3, where there are such cells
    bool has_holes;  // some cell has had holes
    sim_holes dma;   // holes of the load that goes to LDS
    uint32_t num_doubts;
    sim_lds_doubt doubts[SIM_MAX_LDS_DOUBTS];
};

/** Finds faults of waits and of undefined registers, before an instruction runs. Returns false if
 *  the launch is being stopped. */
bool sim_check_registers(sim_wave *w, const sim_inst *inst);
/** Judges the writes of LDS in doubt, after their instruction ran. */
void sim_check_doubts(sim_wave *w, const sim_inst *inst);

/** Notes that a wave comes to a barrier. */
void sim_race_barrier(sim_wave *w);
/** Notes an atomic on LDS, which orders the waves of its workgroup. */
void sim_race_lds_atomic(sim_wave *w);
/** Judges the accesses in sim_race_later, after their instruction ran. */
void sim_race_after(sim_wave *w, const sim_inst *inst);

static inline uint32_t sim_check_offset(const sim_wave *w, uint64_t pc) {
    return (uint32_t)(pc - w->group->dispatch->kernel->entry);
}

/** Returns the address of an offset from sim_check_offset. The offset is signed, as a function that
 *  the kernel calls may lie before the kernel. */
static inline uint64_t sim_check_pc(const sim_wave *w, uint32_t offset) {
    return w->group->dispatch->kernel->entry + (uint64_t)(int64_t)(int32_t)offset;
}

// ---- registers of operands (waits.c)

/** Consecutive registers. */
typedef struct span {
    unsigned first, count;
} span;

static inline span span_of(const sim_operand *op) {
    switch (op->kind) {
    case SIM_OP_VGPR:
        return (span){op->reg, op->count};
    case SIM_OP_SGPR:
        return (span){SIM_REG_SCALAR + op->reg, op->count};
    default:
        return (span){};
    }
}

/** Returns the bits that a map has for the registers of a span; bit 0 is the span's first register.
 *  A span has at most 32 registers. */
static inline uint64_t bits_of(const uint64_t *map, span s) {
    const unsigned shift = s.first & 63;
    uint64_t bits = map[s.first >> 6] >> shift;
    if (shift + s.count > 64)
        bits |= map[(s.first >> 6) + 1] << (64 - shift);
    return bits & ((UINT64_C(1) << s.count) - 1);
}

static inline void set_bit(uint64_t *map, unsigned reg, bool on) {
    const uint64_t bit = UINT64_C(1) << reg % 64;
    map[reg / 64] = on ? map[reg / 64] | bit : map[reg / 64] & ~bit;
}

static inline hole undefined_reg(const struct sim_shadow *s, unsigned reg) {
    const bool is_set = s->undefined[reg / 64] >> reg % 64 & 1;
    return (hole){is_set ? s->undefined_lanes[reg] : 0, s->origin[reg]};
}

static inline void write_lanes(struct sim_shadow *s, unsigned reg, uint64_t lanes, hole h) {
    uint64_t now = undefined_reg(s, reg).lanes & ~lanes;
    if (h.lanes & lanes) {
        s->origin[reg] = (uint16_t)h.origin;
        now |= h.lanes & lanes;
    }
    s->undefined_lanes[reg] = now;
    set_bit(s->undefined, reg, now);
}

const char *sim_reg_name(unsigned reg, char text[16]);
/** Returns the lanes of an operand that an instruction reads or writes. */
uint64_t sim_lanes_of(const sim_wave *w, const sim_inst *inst, const sim_operand *op);
/** Returns the first of the lanes, or -1 if there is none; 0 also for all lanes of a scalar. */
int sim_first_lane(uint64_t lanes);
/** Returns whether an active lane's flat address lies in an aperture. */
bool sim_reaches(const sim_wave *w, const sim_inst *inst, uint64_t aperture);

// ---- memory that was never written (unwritten.c)

/** Follows unwritten memory through an access to memory, before the access; arguments are those of
 *  sim_check_memory. */
void sim_unwritten_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address, uint64_t mask,
                          uint32_t bytes);
/** Follows unwritten memory through an access to LDS, before the access; arguments are those of
 *  sim_check_lds. */
void sim_unwritten_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                       uint64_t mask, uint32_t bytes);
/** Reports that `use` depends on an origin that was never written, unless that origin has been
 *  reported before. Returns what sim_fault_report returns. */
bool sim_report_unwritten(sim_wave *w, const sim_inst *inst, hole h, int lane, const char *use);

// ---- races on memory (race.c)

/** Finds races of an access to memory, before the access; arguments are those of
 *  sim_check_memory. */
void sim_race_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                     uint8_t *const *host, uint64_t mask, uint32_t bytes);

// ---- wait states (hazards.c)

void sim_hazards_begin(sim_wave *w);
/** Reports an instruction before which wait states are missing, and counts the instruction. */
void sim_check_hazards(sim_wave *w, const sim_inst *inst);

// ---- results on their way (waits.c, lds.c)

/** Reports operands whose result has not arrived yet, and makes them stale. Returns false if the
 *  launch is being stopped. */
bool sim_check_waits(sim_wave *w, const sim_inst *inst);
/** Numbers a memory operation before it runs, and keeps the values that its result will
 *  overwrite. */
void sim_check_issue(sim_wave *w, const sim_inst *inst);
/** Handles a wait: operations that it proves complete have arrived, and results that were held back
 *  are written. */
void sim_check_arrivals(sim_wave *w, const sim_traits *wait);
/** Writes to LDS what was held back of a wave's writes, as far as it has arrived. */
void sim_check_arrivals_in_lds(sim_wave *w);

#endif
