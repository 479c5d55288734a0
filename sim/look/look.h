// SPDX-License-Identifier: Apache-2.0
// Those who follow the instructions of a kernel while it runs: the trace, the counters of a
// profile, and whatever else wants to know what each instruction did. A clock would be one more
// line in look.c's table.
//
// An observer is told of each dispatch; where that is of interest, of each of its workgroups, for
// which it is given memory of its own, and after each instruction of the facts about it. A
// workgroup runs on one host thread, several workgroups of a dispatch run at once: only an
// observer's group memory needs no lock.
#ifndef SIM_LOOK_H
#define SIM_LOOK_H

#include "../chip/chip.h"
#include "../isa/inst.h"
#include "../options.h"
#include "../wave.h"

enum { SIM_MAX_TOUCH = 16 }; // bytes of a lane in one access

/** What the lanes of a wave touch in one access. */
typedef struct sim_touch {
    uint64_t mask;               // lanes that touch something; the rest is valid for these
    uint64_t address[SIM_LANES]; // guest address; in scratch and LDS: from their beginning
    uint8_t bytes[SIM_LANES];    // from address on, at most SIM_MAX_TOUCH
} sim_touch;

enum { SIM_MAX_LDS_TOUCHES = 2 }; // instructions with two offsets make two accesses

/** One executed instruction. */
typedef struct sim_facts {
    const sim_inst *inst;
    uint64_t exec;  // when it was issued
    bool is_issued; // false: VSKIP left it out
    uint8_t num_lds;
    uint32_t scalar_bytes; // 0: no scalar access
    uint64_t scalar_address;
    sim_touch memory, scratch, lds[SIM_MAX_LDS_TOUCHES];
} sim_facts;

/** Multiplications and additions of a matrix instruction; 0 for any other. (kind.c) */
uint64_t sim_matrix_ops(const sim_inst *inst);

typedef struct sim_observer {
    /** A dispatch is about to run; what this gives goes to the other functions. Null: it is of no
     *  interest. */
    void *(*begin_dispatch)(const sim_dispatch *d);
    /** Bytes that a workgroup needs, zeroed by the caller; 0: it is of no interest. */
    size_t (*group_bytes)(const void *of_dispatch, const sim_workgroup *group);
    void (*begin_group)(void *of_dispatch, void *of_group, const sim_workgroup *group);
    /** After an instruction of a wave ran, without fault or with one. */
    void (*step)(void *of_group, const sim_wave *w, const sim_facts *facts);
    void (*end_group)(void *of_dispatch, void *of_group, const sim_workgroup *group);
    void (*end_dispatch)(void *of_dispatch, const sim_dispatch *d);
} sim_observer;

extern const sim_observer sim_tracer, sim_profiler;

/** Each turns itself on or off as the options say, from the next dispatch on; false: `error` says
 *  why not. */
bool sim_trace_configure(const sim_look_options *options, char *error, size_t error_bytes);
bool sim_profile_configure(const sim_look_options *options, char *error, size_t error_bytes);
void sim_trace_finish(void);
void sim_trace_fork_prepare(void);
void sim_trace_fork_parent(void);
void sim_trace_fork_child(void);
void sim_profile_finish(void);
void sim_profile_fork_prepare(void);
void sim_profile_fork_parent(void);
void sim_profile_fork_child(void);

#endif
