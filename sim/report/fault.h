// SPDX-License-Identifier: Apache-2.0
// Faults: records of what a kernel did wrong. They are kept while the kernel runs (fault.c), and
// reported as text or JSON when it has ended (report.c).
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../memory.h"

#include <stdatomic.h>
#include <stdint.h>

struct sim_dispatch;

// X(id, name in reports). An OVERREAD fails no launch. If any check is on, a launch goes on after
// faults from OVERREAD to BARRIER in this list; the other faults stop it.
#define SIM_FAULT_KINDS(X)                                                                         \
    X(OVERREAD, "over-read")                                                                       \
    X(BOUNDS, "out-of-bounds")                                                                     \
    X(FREED, "use-after-free")                                                                     \
    X(SCRATCH, "scratch-out-of-bounds")                                                            \
    X(LDS, "lds-out-of-bounds")                                                                    \
    X(CODE, "code-overwritten")                                                                    \
    X(WAIT, "missing-wait")                                                                        \
    X(UNINIT, "uninitialised")                                                                     \
    X(RACE, "race")                                                                                \
    X(ALIGN, "misaligned")                                                                         \
    X(BARRIER, "divergent-barrier")                                                                \
    X(DEADLOCK, "deadlock")                                                                        \
    X(INSTRUCTION, "unknown-instruction")                                                          \
    X(OUTSIDE, "outside-code")                                                                     \
    X(TRAP, "trap")                                                                                \
    X(LIMIT, "limit")                                                                              \
    X(UNSUPPORTED, "unsupported")                                                                  \
    X(RESOURCES, "resources")

typedef enum sim_fault_kind {
#define SIM_FAULT_ENUM(id, name) SIM_FAULT_##id,
    SIM_FAULT_KINDS(SIM_FAULT_ENUM)
#undef SIM_FAULT_ENUM
        SIM_NUM_FAULTS
} sim_fault_kind;

typedef enum sim_space {
    SIM_SPACE_NONE,
    SIM_SPACE_MEMORY,
    SIM_SPACE_LDS,
    SIM_SPACE_SCRATCH
} sim_space;

/** What a fault is about besides its instruction; every member may be zero. */
typedef struct sim_fault_about {
    sim_space space; // space of the address; NONE: there is no address
    bool is_store;
    uint32_t bytes;
    uint64_t address;  // in LDS and scratch, the offset
    uint64_t other_pc; // instruction that clashes, or whose result is missing; 0: none
} sim_fault_about;

/** The place of an instruction in the source's functions. */
typedef struct sim_place {
    const char *function; // the kernel, or a function that the kernel calls
    int64_t offset; // bytes from the function's begin; below 0 in unknown code before the kernel
} sim_place;

sim_place sim_place_of(const struct sim_dispatch *d, uint64_t pc);
enum { SIM_PLACE_BYTES = 96 };
/** Writes the place of an instruction as "function+0x2c"; a long name is cut. */
void sim_place_text(const struct sim_dispatch *d, uint64_t pc, char text[SIM_PLACE_BYTES]);

enum { SIM_MESSAGE_BYTES = 384, SIM_DEFAULT_FAULTS = 20 };

typedef struct sim_fault {
    sim_fault_kind kind;
    char message[SIM_MESSAGE_BYTES]; // what is wrong, in one line
    uint64_t pc;
    bool has_place; // true: the members from flat_group to lane are known; false: the whole launch
    uint64_t flat_group;
    uint32_t group[3], wave, work_item[3];
    int lane; // -1: no lane in particular
    sim_fault_about about;
    sim_region region; // allocation nearest to the address; size 0: none is near
    uint64_t count;    // how often the fault was met
    uint64_t order;    // among the faults of its workgroup
} sim_fault;

/** The faults of a launch, one for each pair of instruction and kind. If several workgroups meet a
 *  fault, the lowest workgroup's record is kept, so that the list does not depend on which host
 *  thread was first. A zeroed struct has no faults. */
typedef struct sim_faults {
    sim_fault *list;
    uint32_t room, max; // `max` different faults stop the launch; 0: SIM_DEFAULT_FAULTS
    _Atomic uint32_t count;
    _Atomic uint32_t num_passed; // how many of the `count` faults fail no launch
    uint64_t num_met;
    atomic_bool is_locked;
    bool are_too_many;
    bool are_lost; // memory ran out for a fault; the launch stops
} sim_faults;

/** Records a fault of a wave.
 *
 *  inst     the faulting instruction; null: the one at the wave's pc
 *  lane     -1: no lane in particular
 *  about    null: nothing more to say
 *  format   message, one line without a full stop
 *  Returns  true if the wave can go on as if nothing had happened; false if the launch is being
 *           stopped, and the wave is SIM_FAULTED. */
[[gnu::format(printf, 6, 7)]] bool sim_fault_report(sim_wave *w, const sim_inst *inst, int lane,
                                                    sim_fault_kind kind,
                                                    const sim_fault_about *about,
                                                    const char *format, ...);
/** Records SIM_FAULT_UNSUPPORTED and stops the launch. */
[[gnu::format(printf, 4, 5)]] void sim_fault_raise(sim_wave *w, const sim_inst *inst, int lane,
                                                   const char *format, ...);
/** Records the fault of an access that sim_memory_host refused. Returns true if the wave can go on:
 *  a load then gives 0, and a store is dropped. */
bool sim_memory_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                      bool is_store);
/** Records a store to instructions. Returns true if the wave can go on; the store is dropped. */
bool sim_code_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes);
/** Records that the lanes of `mask` access `bytes` at offsets beyond the workgroup's LDS, unless no
 *  check is on. Returns what sim_fault_report returns. Loads give 0 and stores are dropped in any
 *  case. */
bool sim_lds_fault(sim_wave *w, const sim_inst *inst, uint64_t mask,
                   const uint64_t offset[SIM_LANES], uint32_t bytes);
/** Records a fault of no wave in particular and stops the launch. */
[[gnu::format(printf, 3, 4)]] void sim_fault_stop(struct sim_dispatch *d, sim_fault_kind kind,
                                                  const char *format, ...);
/** Returns how many faults so far fail the launch. */
static inline uint32_t sim_faults_failing(const sim_faults *faults) {
    const uint32_t passed = atomic_load_explicit(&faults->num_passed, memory_order_relaxed);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    return count > passed ? count - passed : 0;
}
/** Sorts the faults: by the lowest workgroup that met each fault, then by the order in which that
 *  workgroup met them. Called when nothing runs. */
void sim_faults_sort(sim_faults *faults);
void sim_faults_deinit(sim_faults *faults);
const char *sim_fault_name(sim_fault_kind kind);

/** Returns all reports of a launch as text for people, in memory that the caller frees. Returns
 *  null if memory runs out, "" if there is nothing to report. (report.c) */
char *sim_faults_text(const struct sim_dispatch *d);
/** Returns all reports of a launch for programs, as sim_faults_text does for people: one JSON
 *  object a line, whose fields docs/simulator.md names. (report_json.c) */
char *sim_faults_json(const struct sim_dispatch *d);

#endif
