// SPDX-License-Identifier: Apache-2.0
// A launch while it runs: its dispatch, the state of its workgroups and waves, and the memory that
// a wave may touch. dispatch.c runs workgroups on host threads; wave.c runs a wave's instructions.
// Names follow the ISA manuals.
#ifndef SIM_WAVE_H
#define SIM_WAVE_H

#include "chip/chip.h"
#include "clock/result.h"
#include "isa/inst.h"
#include "memory.h"
#include "object/object.h"
#include "report/fault.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { // sim_wave.mode, gfx9 layout of HW_REG_MODE
    SIM_MODE_ROUND_F32 = 3 << 0,
    SIM_MODE_ROUND_F16_F64 = 3 << 2,
    SIM_MODE_DENORM_F32 = 3 << 4, // bit 0: keep denormal inputs, bit 1: keep denormal results
    SIM_MODE_DENORM_F16_F64 = 3 << 6,
    SIM_MODE_FLOAT = 0xff,       // the two rounding and the two denormal fields
    SIM_MODE_FLOAT_PLAIN = 0xf0, // round to nearest even, keep all denormals
    SIM_MODE_DX10_CLAMP = 1 << 8,
    SIM_MODE_IEEE = 1 << 9,
    SIM_MODE_FP16_OVFL = 1 << 23,
    SIM_MODE_GPR_IDX_EN = 1 << 27,
    SIM_MODE_VSKIP = 1 << 28,
    SIM_MODE_SPECIAL = SIM_MODE_GPR_IDX_EN | SIM_MODE_VSKIP, // only gfx9 has these
    SIM_MODE_GFX12 = SIM_MODE_DX10_CLAMP | SIM_MODE_IEEE, // always on in gfx12, which has no bits
};

static inline uint32_t sim_mode_of_rsrc1(uint32_t rsrc1) {
    return (rsrc1 >> 12 & SIM_MODE_FLOAT) | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9 |
           (rsrc1 >> 26 & 1) << 23;
}

typedef enum sim_wave_state { SIM_RUNNING, SIM_AT_BARRIER, SIM_ENDED, SIM_FAULTED } sim_wave_state;

typedef struct sim_workgroup {
    struct sim_dispatch *dispatch;
    uint32_t id[3];
    uint64_t flat_id;
    uint32_t num_waves;
    uint8_t *lds; // dispatch->lds_bytes, 64-byte aligned
    sim_wave *waves;
    struct sim_group_shadow *shadow; // null: nothing is checked
    struct sim_look *look;           // null: nobody follows
} sim_workgroup;

struct sim_wave {
    // 512 vector registers: 0..255 ArchVGPRs, 256..511 AccVGPRs. A row is one register of all
    // lanes.
    _Alignas(64) uint32_t v[512][SIM_LANES];
    union {
        uint32_t s[128]; // 0..105 SGPRs, 106-107 VCC, 108..123 TTMPs, 124 M0, 126-127 EXEC
        struct {
            uint32_t sgpr_[106];
            uint64_t vcc;
            uint32_t ttmp[16];
            uint32_t m0, s125_;
            uint64_t exec;
        };
    };
    uint64_t pc; // address of the next instruction; exec functions of branches write it
    uint32_t scc;
    uint32_t mode; // MODE register, SIM_MODE_ bits; dispatch fills it by sim_mode_of_rsrc1
    sim_wave_state state;
    bool wave32;                        // 32 lanes: the upper half of EXEC is 0
    bool fast_matrix;                   // sim_dispatch.fast_matrix
    uint32_t num_signals, num_waits;    // at gfx12's split barriers
    uint32_t num_barriers;              // for the check of barriers: how many the wave has met
    uint64_t barrier_pc;                // the last barrier that the wave has met
    uint32_t index;                     // in the workgroup
    uint64_t shared_base, private_base; // flat apertures
    uint8_t *scratch;                   // SIM_LANES * scratch_bytes, lane-major
    uint32_t scratch_bytes;             // of one lane
    sim_workgroup *group;
    struct sim_shadow *shadow; // the checker's; null: nothing is checked
    struct sim_look *look;     // the workgroup's; null: nobody follows the wave
    const sim_region *region;  // of the last access; sim_wave_host looks here first; never null
    uint64_t num_executed;
    uint64_t num_after_fault; // instructions executed since the launch has a fault
    uint64_t counters[8];     // executed instructions by sim_class
};

// The anonymous struct above must lie over s[] exactly as the ISA numbers it.
static_assert(offsetof(sim_wave, vcc) - offsetof(sim_wave, s) == 106 * 4);
static_assert(offsetof(sim_wave, m0) - offsetof(sim_wave, s) == 124 * 4);
static_assert(offsetof(sim_wave, exec) - offsetof(sim_wave, s) == 126 * 4);

enum { SIM_MAX_OBSERVERS = 3 };
enum { SIM_MAX_GROUP_WAVES = 32 }; // 1024 work-items in waves of 32 lanes

typedef struct sim_dispatch {
    const sim_chip *chip;
    sim_memory *memory;
    const sim_kernel *kernel;
    sim_object *object;
    sim_text *text;        // the object's instructions
    uint32_t grid[3];      // workgroups
    uint32_t block[3];     // work-items of a workgroup
    uint32_t lds_bytes;    // static and dynamic
    uint64_t kernarg;      // guest address
    uint64_t packet;       // guest address of the dispatch packet; 0: none
    uint64_t id;           // number among the device's dispatches
    uint32_t check;        // SIM_CHECK_ bits
    bool fast_matrix;      // matrix instructions in plain f32 arithmetic, not by the chip's rules
    bool is_cooperative;   // workgroups wait for each other: all run at a time, on one thread
    bool passes_overreads; // reads behind an allocation, in its pages, are reported but may pass
    uint32_t turn;         // as in sim_options
    uint64_t limit;        // instructions that a wave may execute; 0: any number
    _Atomic uint64_t counters[8]; // executed wave instructions by sim_class
    atomic_bool stop;
    sim_faults faults;               // sim_faults_deinit frees them
    atomic_uint_fast64_t next_group; // the next workgroup to start, by flat id
    uint32_t device;
    bool is_observed;                  // some element of `observed` is not null
    void *observed[SIM_MAX_OBSERVERS]; // what each observer keeps of this dispatch; may be null
    struct sim_clock *clock;           // the device's; null: no time is modelled
    sim_clock_mode clock_mode;         // which workgroups are timed, if there is a clock
    struct sim_machine *machine;       // the clock's, while it runs the dispatch
    bool is_rehearsal;                 // what runs now will run again: only the clock follows
    const struct sim_facts *rehearsed;
    sim_clock_result timed; // afterwards
    sim_shown shown;        // the stream is the caller's to set; shown or hidden by the caller, if:
    bool wants_demand;      // the caller wants to know what the launch asks for, if it is timed
    struct sim_demand *demand; // afterwards; the caller frees it; null: memory ran out
    struct sim_race *race;     // the checker's memory of global memory; null: races are not checked
} sim_dispatch;

/** Returns the number of lanes in a wave, which on RDNA is the kernel's choice. */
static inline uint32_t sim_wave_size(const sim_dispatch *d) {
    return d->kernel->wave32 && d->chip->gfx_major > 9 ? 32 : 64;
}

/** Returns whether every wave of the group, unless it has ended, has signalled for the barrier at
 *  which `w` waits. s_barrier, which signals and waits in one instruction, counts no signals: such
 *  a barrier is complete when no wave runs. */
bool sim_barrier_is_complete(const sim_wave *w);

/** Runs a dispatch on the calling thread and idle threads of the pool, to its end or until it is
 *  stopped. Returns false if the dispatch did wrong, which dispatch->faults tells in order, or if
 *  it was stopped from outside, through `stop`. */
bool sim_dispatch_run(sim_dispatch *dispatch);
/** Addresses of the flat apertures, which lie outside every allocation. The upper half of an
 *  address selects the aperture. */
constexpr uint64_t SIM_SHARED_APERTURE = UINT64_C(1) << 48;
constexpr uint64_t SIM_PRIVATE_APERTURE = UINT64_C(2) << 48;
/** The address of scratch memory as waves of gfx90a get it: the base of the private segment buffer
 *  and of FLAT_SCRATCH. No host maps this address, and it fits the 48 bits of a buffer's base. */
constexpr uint64_t SIM_SCRATCH_BASE = UINT64_C(1) << 47;

/** Returns whether this is the descriptor that a wave of gfx90a gets for its scratch memory
 *  (dispatch.c). */
static inline bool sim_is_scratch_buffer(const uint32_t descriptor[4]) {
    return descriptor[1] >> 31 && (descriptor[3] >> 23 & 1) &&
           (descriptor[1] & 0xffff) == SIM_SCRATCH_BASE >> 32;
}

/** Returns the bytes from SIM_SCRATCH_BASE to a wave's scratch: gfx90a's "private segment wave
 *  offset". */
static inline uint32_t sim_scratch_offset(const sim_wave *w) {
    return w->index * SIM_LANES * w->scratch_bytes;
}

/** Returns the scratch bytes that each lane of a kernel gets. */
uint32_t sim_kernel_scratch(const sim_kernel *kernel);

/** Returns what sim_memory_host does, for a wave's own accesses: quickly while they stay within one
 *  allocation. */
static inline void *sim_wave_host(sim_wave *w, uint64_t addr, uint64_t bytes) {
    const sim_region *region = w->region;
    const uint64_t offset = addr - region->base;
    if (offset < region->bytes && bytes <= region->bytes - offset)
        return region->host + offset;
    void *host = sim_memory_host(w->group->dispatch->memory, addr, bytes);
    if (host)
        w->region = sim_memory_find(w->group->dispatch->memory, addr);
    return host;
}
/** Returns whether bytes that sim_wave_host has just resolved for the wave lie in instructions. */
static inline bool sim_hits_code(const sim_wave *w, uint64_t addr, uint64_t bytes) {
    const sim_region *r = w->region;
    return r->kind == SIM_REGION_CODE && addr < r->code_start + r->code_bytes &&
           addr + bytes > r->code_start;
}
/** Resolves an access as sim_wave_host does, and reports a wrong one (fault.c). Returns null for a
 *  wrong access, unless the access may pass; *goes_on is then what sim_fault_report returned. */
void *sim_reach(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                bool is_store, bool *goes_on);
/** Changes a copy of an instruction as the set bits of SIM_MODE_SPECIAL demand. Returns false if
 *  the wave must skip the instruction. */
bool sim_is_issued(const sim_wave *w, sim_inst *copy);
/** Runs an instruction while a bit of SIM_MODE_SPECIAL is on (modes.c). */
void sim_exec_special(sim_wave *w, const sim_inst *inst);

/** Runs one wave until it ends, faults, waits at a barrier or has used up its slice. In the last
 *  case the wave is still SIM_RUNNING, and the next wave of its workgroup has its turn. */
void sim_wave_run(sim_wave *w);
/** Runs at most `slice` instructions of a wave, with the dispatch's checks and observers. */
void sim_wave_step(sim_wave *w, uint32_t slice);
/** Runs at most `slice` instructions of a wave as sim_wave_run does, without checks. Returns how
 *  many it ran. */
uint32_t sim_wave_slice(sim_wave *w, uint32_t slice);

#endif
