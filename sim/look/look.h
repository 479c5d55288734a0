// SPDX-License-Identifier: Apache-2.0
// Observers follow the instructions of a kernel while it runs: the trace, and the counters of a
// profile. look.c has a table of them; a clock would be one more line there.
//
// An observer learns of each dispatch. If a dispatch is of interest, the observer learns of each of
// its workgroups, gets memory of its own for the workgroup, and learns the facts about each
// executed instruction. A workgroup runs on one host thread, but several workgroups of a dispatch
// run at once, so only the memory for a workgroup needs no lock.
#ifndef SIM_LOOK_H
#define SIM_LOOK_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../options.h"
#include "../wave.h"

enum { SIM_MAX_TOUCH = 16 }; // bytes of a lane in one access

/** The bytes that the lanes of a wave touch in one access. */
typedef struct sim_touch {
    uint64_t mask;               // lanes that touch something; address and bytes are valid for them
    uint64_t address[SIM_LANES]; // guest address; in scratch and LDS, the offset
    uint8_t bytes[SIM_LANES];    // number of bytes from address on, at most SIM_MAX_TOUCH
} sim_touch;

enum { SIM_MAX_LDS_TOUCHES = 2 }; // instructions with two offsets make two accesses

/** The facts about one executed instruction. */
typedef struct sim_facts {
    const sim_inst *inst;
    uint64_t exec;  // EXEC when the instruction was issued
    bool is_issued; // false: VSKIP left it out
    uint8_t num_lds;
    uint32_t scalar_bytes; // 0: no scalar access
    uint64_t scalar_address;
    sim_touch memory, scratch, lds[SIM_MAX_LDS_TOUCHES];
} sim_facts;

typedef struct sim_observer {
    /** Called before a dispatch runs. Returns what the other functions get as of_dispatch; null if
     *  the dispatch is of no interest. */
    void *(*begin_dispatch)(const sim_dispatch *d);
    /** Returns the bytes of memory that the observer needs for a workgroup, which the caller
     *  zeroes; 0 if the workgroup is of no interest. */
    size_t (*group_bytes)(const void *of_dispatch, const sim_workgroup *group);
    void (*begin_group)(void *of_dispatch, void *of_group, const sim_workgroup *group);
    /** Called after an instruction of a wave ran, even if it faulted. */
    void (*step)(void *of_group, const sim_wave *w, const sim_facts *facts);
    void (*end_group)(void *of_dispatch, void *of_group, const sim_workgroup *group);
    void (*end_dispatch)(void *of_dispatch, sim_dispatch *d);
} sim_observer;

extern const sim_observer sim_tracer, sim_profiler, sim_timer; // sim_timer: clock/clock.c

/** Turn an observer on or off as the options say, from the next dispatch on. They return false if
 *  that fails, and `error` says why. */
bool sim_trace_configure(const sim_look_options *options, char *error, size_t error_bytes);
bool sim_profile_configure(const sim_look_options *options, char *error, size_t error_bytes);
void sim_trace_finish(void);
void sim_trace_fork_prepare(void);
void sim_trace_fork_parent(void);
void sim_trace_fork_child(void);
void sim_profile_finish(void);
/** It is known when a launch ran. */
void sim_profile_show(const sim_shown *shown, const sim_span *span);
void sim_profile_fork_prepare(void);
void sim_profile_fork_parent(void);
void sim_profile_fork_child(void);

#endif
