// SPDX-License-Identifier: Apache-2.0
// Faults: what a kernel did wrong, as records that are kept while it runs (fault.c) and told as
// text or JSON when it has ended (report.c).
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../memory.h"

#include <stdatomic.h>
#include <stdint.h>

struct sim_dispatch;

// X(id, name in reports). OVERREAD fails no launch. Those up to BARRIER let a launch go on that has
// any check on; the others stop it.
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

/** What a fault is about beyond its instruction; all of it may be left out. */
typedef struct sim_fault_about {
    sim_space space; // of the address; NONE: there is none
    bool is_store;
    uint32_t bytes;
    uint64_t address;  // LDS, scratch: the offset
    uint64_t other_pc; // the instruction that it clashes with, or whose result is missing; 0: none
} sim_fault_about;

/** Where an instruction is. */
typedef struct sim_place {
    const char *function; // the kernel's name, or that of the function it calls
    int64_t offset; // from its first instruction; negative in an unknown function before the kernel
} sim_place;

sim_place sim_place_of(const struct sim_dispatch *d, uint64_t pc);
enum { SIM_PLACE_BYTES = 96 };
/** The same as "function+0x2c", a long name cut. */
void sim_place_text(const struct sim_dispatch *d, uint64_t pc, char text[SIM_PLACE_BYTES]);

enum { SIM_MESSAGE_BYTES = 384, SIM_DEFAULT_FAULTS = 20 };

typedef struct sim_fault {
    sim_fault_kind kind;
    char message[SIM_MESSAGE_BYTES]; // what is wrong, in one line
    uint64_t pc;
    bool has_place; // the wave and what follows; false: the launch as a whole
    uint64_t flat_group;
    uint32_t group[3], wave, work_item[3];
    int lane; // -1: no lane in particular
    sim_fault_about about;
    sim_region region; // nearest to the address in memory; size 0: none is near
    uint64_t count;    // how often it was met
    uint64_t order;    // within its workgroup
} sim_fault;

/** The faults of a launch, one for each pair of instruction and kind: of several the one of the
 *  lowest workgroup is kept, so that the list does not depend on which host thread was first. All
 *  zero: none, and SIM_DEFAULT_FAULTS. */
typedef struct sim_faults {
    sim_fault *list;
    uint32_t room, max; // as many different ones stop the launch; 0: SIM_DEFAULT_FAULTS
    _Atomic uint32_t count;
    _Atomic uint32_t num_passed; // of them, those that fail no launch
    uint64_t num_met;
    atomic_bool is_locked;
    bool are_too_many;
    bool are_lost; // there was no memory for one; the launch stops
} sim_faults;

/** Records a fault of a wave at `inst` (null: at its pc); `lane` -1 if no lane in particular,
 *  `about` null if there is nothing more to say. True: the wave can go on, as if the message had
 *  not been. False: the launch is being stopped, and the wave is FAULTED. The message is one line
 *  without a full stop. */
[[gnu::format(printf, 6, 7)]] bool sim_fault_report(sim_wave *w, const sim_inst *inst, int lane,
                                                    sim_fault_kind kind,
                                                    const sim_fault_about *about,
                                                    const char *format, ...);
/** Records SIM_FAULT_UNSUPPORTED and stops the launch. */
[[gnu::format(printf, 4, 5)]] void sim_fault_raise(sim_wave *w, const sim_inst *inst, int lane,
                                                   const char *format, ...);
/** Records the fault of an access that sim_memory_host refused. True: the wave can go on; the load
 *  gives 0, the store is dropped. */
bool sim_memory_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                      bool is_store);
/** Records a store to instructions, as sim_memory_fault; it is dropped. */
bool sim_code_fault(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes);
/** Records that lanes of `mask` access `bytes` at an offset beyond the workgroup's LDS. False as
 *  sim_fault_report: the loads give 0 and the stores are dropped in any case. */
bool sim_lds_fault(sim_wave *w, const sim_inst *inst, uint64_t mask,
                   const uint64_t offset[SIM_LANES], uint32_t bytes);
/** Records a fault of no wave in particular and stops the launch. */
[[gnu::format(printf, 3, 4)]] void sim_fault_stop(struct sim_dispatch *d, sim_fault_kind kind,
                                                  const char *format, ...);
/** How many there are that fail the launch, so far. */
static inline uint32_t sim_faults_failing(const sim_faults *faults) {
    const uint32_t passed = atomic_load_explicit(&faults->num_passed, memory_order_relaxed);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    return count > passed ? count - passed : 0;
}
/** Puts the faults in the order in which the lowest workgroup that met each did so. Once nothing
 *  runs. */
void sim_faults_sort(sim_faults *faults);
void sim_faults_deinit(sim_faults *faults);
const char *sim_fault_name(sim_fault_kind kind);

/** All reports of a launch as text for people: from malloc, null without memory; "" if there are
 *  none. (report.c) */
char *sim_faults_text(const struct sim_dispatch *d);
/** The same for programs, one JSON object a line; docs/simulator.md names the fields.
 *  (report_json.c) */
char *sim_faults_json(const struct sim_dispatch *d);

#endif
