// SPDX-License-Identifier: Apache-2.0
// The options that QUERN_SIM and quernsim_configure can give (options.c).
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

#include "chip/chip.h"
#include "clock/result.h"

#include <stddef.h>
#include <stdint.h>

enum { // bits of sim_options.check and sim_dispatch.check; memory's bounds are always checked
    SIM_CHECK_BOUNDS = 1 << 0,
    SIM_CHECK_BARRIER =
        1 << 1,                // waves of a workgroup that meet at different s_barrier instructions
    SIM_CHECK_WAIT = 1 << 2,   // a result used before its s_waitcnt
    SIM_CHECK_UNINIT = 1 << 3, // reads of LDS and registers that were never written
    SIM_CHECK_RACE = 1 << 4,   // waves that touch one place with no barrier between
    SIM_CHECK_ALIGN = 1 << 5,  // addresses that the hardware rounds down or splits
    SIM_CHECK_ALL = (1 << 6) - 1,
};
enum { SIM_MAX_DEVICES = 16, SIM_PATTERN_BYTES = 256, SIM_PATH_BYTES = 1024 };
constexpr uint64_t SIM_ALL_WAVES = UINT64_MAX;

/** Options of the observers, which follow the instructions of kernels (look/). */
typedef struct sim_look_options {
    char trace[SIM_PATTERN_BYTES];   // names of traced kernels, a pattern of fnmatch; empty: none
    uint64_t trace_wave;             // wave of a launch, over all workgroups; or SIM_ALL_WAVES
    char trace_file[SIM_PATH_BYTES]; // file of the trace; empty: standard error
    char profile[SIM_PATH_BYTES];    // file of the counters; empty: nothing is counted
    char timeline[SIM_PATH_BYTES];   // file of modelled waves; empty: none
} sim_look_options;

/** The builds of exec/, one for each host instruction set, from the least demanding to the best. */
typedef enum sim_exec_build {
    SIM_EXEC_BEST, // of those that are built, the last one that the processor can run
    SIM_EXEC_BASELINE,
    SIM_EXEC_AVX2,
    SIM_EXEC_AVX512,
    SIM_NUM_EXECS
} sim_exec_build;

/** Returns null if the library has that build and this processor can run it, else what is lacking.
 *  AVX2 needs all of x86-64-v3, AVX512 all of x86-64-v4. */
const char *sim_exec_lacks(sim_exec_build build);
/** Chooses the build of exec/ that instructions decoded from now on use. Returns false and changes
 *  nothing if instructions have been decoded for another build. (isa/opcodes.c) */
bool sim_exec_choose(sim_exec_build build);

enum { SIM_DEFAULT_TURN = 16 };

/** The options of the simulated GPU. */
typedef struct sim_options {
    sim_arch archs[SIM_MAX_DEVICES]; // architectures of the devices, in order
    uint32_t num_archs;
    uint32_t check;   // SIM_CHECK_ bits
    bool fast_matrix; // matrix instructions in plain f32 arithmetic, not by the chip's rules
    sim_exec_build exec;
    bool passes_overreads; // loads past an allocation's end, in its last page, fail no launch
    sim_clock_mode clock;
    uint32_t threads; // host threads that run workgroups; 0: every core
    uint32_t turn;    // instructions of a wave until the workgroup's next wave; 0: SIM_DEFAULT_TURN
    uint64_t limit;   // instructions that a wave may execute; 0: any number
    uint32_t faults;  // different faults that stop a launch; 0: SIM_DEFAULT_FAULTS
    uint32_t errorcode;          // exit status of a process with faults; 0: the process's own
    char chip[SIM_PATH_BYTES];   // chip file, in place of the built-in chip of its base; "": none
    char report[SIM_PATH_BYTES]; // file to which faults are appended as JSON; "": none
    sim_look_options look;
} sim_options;

/** Returns the file's name that an option gives, with %p replaced by the process's number; without
 *  %p a child of fork gets a name of its own. The caller frees it; null if memory runs out. */
char *sim_option_file(const char *path, bool is_child);

/** The message of sim_options_parse if memory runs out. */
#define SIM_OPTIONS_NO_MEMORY "out of memory"

/** Reads "arch=gfx942,gfx1151;check=none;threads=2" into *options. Options that the text does not
 *  name keep their values, and architectures are added to those in *options. On failure returns
 *  false, changes nothing, and says in `error` what was found and what is accepted. */
bool sim_options_parse(sim_options *options, const char *text, char *error, size_t error_bytes);

#endif
