// SPDX-License-Identifier: Apache-2.0
// What QUERN_SIM and quernsim_configure can say (options.c).
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

#include "chip/chip.h"

#include <stddef.h>
#include <stdint.h>

enum { // sim_options.check, sim_dispatch.check. Bounds are always checked.
    SIM_CHECK_BOUNDS = 1 << 0,
    SIM_CHECK_BARRIER =
        1 << 1,                // waves of a workgroup that meet at different s_barrier instructions
    SIM_CHECK_WAIT = 1 << 2,   // a result used before its s_waitcnt
    SIM_CHECK_UNINIT = 1 << 3, // LDS and registers read that were never written
    SIM_CHECK_RACE = 1 << 4,   // waves that touch the same LDS with no barrier between
    SIM_CHECK_ALIGN = 1 << 5,  // addresses that the hardware rounds down or splits
    SIM_CHECK_ALL = (1 << 6) - 1,
};
enum { SIM_MAX_DEVICES = 16, SIM_PATTERN_BYTES = 256, SIM_PATH_BYTES = 1024 };
constexpr uint64_t SIM_ALL_WAVES = UINT64_MAX;

/** Who follows the instructions of kernels, and where it writes (look/). */
typedef struct sim_look_options {
    char trace[SIM_PATTERN_BYTES];   // kernels by name, as fnmatch has it; empty: none is traced
    uint64_t trace_wave;             // of a launch, counted over its workgroups; or SIM_ALL_WAVES
    char trace_file[SIM_PATH_BYTES]; // empty: standard error
    char profile[SIM_PATH_BYTES];    // empty: nothing is counted
} sim_look_options;

/** The builds of exec/, one for each host instruction set. */
typedef enum sim_exec_build { SIM_EXEC_BEST, SIM_EXEC_BASELINE, SIM_EXEC_AVX512 } sim_exec_build;

/** Whether this processor runs the build for AVX-512 (all of x86-64-v4). */
bool sim_exec_has_avx512(void);
/** Which build instructions are executed with that are decoded from now on; BEST: the best that the
 *  processor has. False, and nothing has changed, where others have been decoded with another
 *  build. (isa/opcodes.c) */
bool sim_exec_choose(sim_exec_build build);

enum { SIM_DEFAULT_TURN = 16 };

/** What QUERN_SIM and quernsim_configure say. */
typedef struct sim_options {
    sim_arch archs[SIM_MAX_DEVICES]; // of the devices, in order
    uint32_t num_archs;
    uint32_t check;   // SIM_CHECK_ bits
    bool fast_matrix; // matrix instructions in plain f32 arithmetic, not by the chip's rules
    sim_exec_build exec;
    bool passes_overreads; // loads past an allocation's end, in its last page, fail no launch
    uint32_t threads;      // host threads that run workgroups; 0: every core
    uint32_t turn;   // instructions of a wave until its workgroup's next wave; 0: SIM_DEFAULT_TURN
    uint64_t limit;  // instructions a wave may execute; 0: any number
    uint32_t faults; // different ones that stop a launch; 0: SIM_DEFAULT_FAULTS
    uint32_t errorcode;          // exit status of a process with faults; 0: its own
    char report[SIM_PATH_BYTES]; // file that faults are appended to as JSON; "": none
    sim_look_options look;
} sim_options;

/** What sim_options_parse says where memory runs out. */
#define SIM_OPTIONS_NO_MEMORY "out of memory"

/** Reads "arch=gfx942,gfx1151;check=none;threads=2" over what *options holds; archs are added.
 *  On failure *options is as it was and `error` says what was found and what is accepted. */
bool sim_options_parse(sim_options *options, const char *text, char *error, size_t error_bytes);

#endif
