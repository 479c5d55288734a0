// SPDX-License-Identifier: Apache-2.0
// What the simulated GPU's parts share: decoded instructions, wave state, memory, dispatch, faults.
//
// object.c reads a code object; isa/ decodes its instructions once, lazily, each bound to a
// function of exec/; dispatch.c runs workgroups on host threads, wave.c the instructions of a wave;
// memory.c is the guest's address space; hip/ puts the HIP API on top. Names follow the ISA
// manuals.
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_LANES = 64 };

// ---- targets (chip/chip.c)

typedef enum sim_arch {
    SIM_GFX90A,
    SIM_GFX942,
    SIM_GFX950,
    SIM_GFX1151,
    SIM_GFX1201,
    SIM_GFX11_GENERIC,
    SIM_GFX12_GENERIC,
    SIM_NUM_ARCHS
} sim_arch;

typedef struct sim_chip {
    sim_arch arch;
    const char *name;      // "gfx942"
    const char *gcn_name;  // "gfx942:sramecc+:xnack-"
    const char *marketing; // "AMD Instinct MI300X (simulated)"
    uint32_t elf_mach;     // low byte of e_flags
    uint32_t compute_units, wave_size, lds_bytes, max_waves_per_simd, clock_khz;
    uint64_t memory_bytes;
    uint32_t gfx_major, gfx_minor; // 9.4, 11.5, 12.0: the compute capability
    uint32_t generic_mach;         // of the generic target whose objects run as well; 0: none
    uint32_t memory_clock_khz, memory_bus_bits, l2_bytes, num_xccs, pci_chip;
    uint32_t simds;                              // of a compute unit
    uint32_t vgprs, vgpr_granule;                // of a SIMD, for each lane of a wave of wave_size
    uint32_t sgprs, sgpr_granule;                // of a SIMD; 0: they never limit
    uint32_t lds_granule, lds_banks, max_groups; // of a compute unit
    uint32_t line_bytes;                         // of the vector cache nearest to the unit
} sim_chip;

const sim_chip *sim_chip_by_name(const char *name); // null if there is none
const sim_chip *sim_chip_by_arch(sim_arch arch);
const char *sim_chip_mach_name(uint32_t elf_mach); // null if unknown

struct sim_kernel;

typedef enum sim_limit { // what keeps more workgroups from a compute unit
    SIM_LIMIT_WAVES,     // wave slots
    SIM_LIMIT_VGPRS,
    SIM_LIMIT_SGPRS,
    SIM_LIMIT_LDS,
    SIM_LIMIT_GROUPS, // workgroup slots
    SIM_NUM_LIMITS
} sim_limit;

/** How many workgroups a compute unit holds, by each limit alone (UINT32_MAX: it does not
 *  limit). */
typedef struct sim_occupancy {
    uint32_t groups, by[SIM_NUM_LIMITS];
    sim_limit limit; // the lowest, of equals the first
} sim_occupancy;
/** Of workgroups of `threads` work-items that use lds_bytes. */
sim_occupancy sim_find_occupancy(const sim_chip *chip, const struct sim_kernel *kernel,
                                 uint32_t threads, uint32_t lds_bytes);

// ---- options (options.c)

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

// ---- decoded instructions (isa/)

typedef struct sim_wave sim_wave;
typedef struct sim_inst sim_inst;
typedef void (*sim_exec_fn)(sim_wave *w, const sim_inst *inst);

typedef enum sim_operand_kind {
    SIM_OP_NONE,
    SIM_OP_VGPR,    // reg: 0..255 v, 256..511 a (AccVGPR)
    SIM_OP_SGPR,    // reg: index into sim_wave.s (vcc 106, m0 124, exec 126, ttmp 108..123)
    SIM_OP_IMM,     // value: inline constant or literal, as the 32-bit pattern the operand's type
                    // reads; value64 for 64-bit operands
    SIM_OP_SPECIAL, // reg: sim_special
} sim_operand_kind;

typedef enum sim_special {
    SIM_SRC_SCC,
    SIM_SRC_VCCZ,
    SIM_SRC_EXECZ,
    SIM_SRC_SHARED_BASE,
    SIM_SRC_SHARED_LIMIT,
    SIM_SRC_PRIVATE_BASE,
    SIM_SRC_PRIVATE_LIMIT,
    SIM_SRC_NULL,
} sim_special;

enum { // sim_operand.mods
    SIM_NEG = 1,
    SIM_ABS = 2,
    SIM_SEXT = 4
};

enum { SIM_LOW_HALF = 1, SIM_HIGH_HALF = 2 }; // sim_operand.half

typedef struct sim_operand {
    uint8_t kind;  // sim_operand_kind
    uint8_t count; // dwords
    uint8_t mods;
    uint8_t sdwa_sel; // 0..3 BYTE_n, 4 WORD_0, 5 WORD_1, 6 DWORD
    char type;        // letter of sim_opcode.types
    uint8_t half;     // 0 the whole register, SIM_LOW_HALF, SIM_HIGH_HALF
    uint16_t reg;
    uint32_t value;
    uint64_t value64;
} sim_operand;

enum { // sim_inst.flags
    SIM_CLAMP = 1 << 0,
    SIM_OFFEN = 1 << 1,
    SIM_IDXEN = 1 << 2,
    SIM_LDS = 1 << 3, // the load goes to LDS
    SIM_GLC = 1 << 4, // atomics: return the old value (sc0, glc, th:TH_ATOMIC_RETURN)
    SIM_DPP = 1 << 5,
    SIM_SDWA = 1 << 6,
    SIM_DPP_BOUND_CTRL = 1 << 7,
    SIM_HAS_SADDR = 1 << 8,
    SIM_VCC_IMPLICIT = 1 << 9,
    SIM_DPP8 = 1 << 10,     // the lanes are in dpp8
    SIM_DPP_FI = 1 << 11,   // inactive lanes are read like active ones
    SIM_SCOPED = 1 << 12,   // sc1, or scope: of more than a compute unit
    SIM_STREAMED = 1 << 13, // nt, slc: the line is not needed again
};

enum { // sim_effects.stream: memory operations that complete in order, SMEM's in any order
    SIM_STREAM_LOAD,  // vmcnt, loadcnt
    SIM_STREAM_STORE, // vscnt, storecnt; gfx9 counts stores with loads
    SIM_STREAM_LDS,   // lgkmcnt, dscnt
    SIM_STREAM_SMEM,  // lgkmcnt, kmcnt
    SIM_NUM_STREAMS
};

enum { // sim_effects.access
    SIM_ACCESS_NONE,
    SIM_ACCESS_LOAD,
    SIM_ACCESS_STORE,
    SIM_ACCESS_ATOMIC,
    SIM_ACCESS_DMA, // a load that goes to LDS
};

enum {                 // sim_effects.scope
    SIM_SCOPE_NONE,    // plain data
    SIM_SCOPE_UNKNOWN, // a store of a chip whose stores have none
    SIM_SCOPE_SOME,    // meant for others to see while the kernel runs
};

enum {              // sim_effects.flow: which of a result's lanes depend on which of the sources'
    SIM_FLOW_LANES, // each on its own
    SIM_FLOW_SELECT,
    SIM_FLOW_READ_LANE,
    SIM_FLOW_WRITE_LANE,
    SIM_FLOW_SWAP,
    SIM_FLOW_CROSS, // on any
    SIM_FLOW_MATRIX,
};
enum { SIM_LEFT_ANY = 255 };

typedef enum sim_kind { // what an instruction is to those who count or time it (look/kind.c)
#define SIM_KIND(id) SIM_KIND_##id,
#include "look/kinds.def"
#undef SIM_KIND
    SIM_NUM_KINDS
} sim_kind;

/** What an instruction of gfx9 has to do with wait states (check/hazards.c). */
typedef struct sim_hazard {
    uint8_t states; // that it counts for; 0: the chip is no gfx9
    uint8_t matrix; // which unit a matrix instruction takes; 0: it is none
    uint8_t passes; // of a matrix instruction
    uint16_t traits;
} sim_hazard;

/** What the checker looks at, by sim_find_effects (check/effects.c). */
typedef struct sim_effects {
    sim_hazard hazard;
    uint8_t access, flow, scope;
    uint8_t stream; // SIM_NUM_STREAMS: none
    bool is_wait;
    bool signals, is_barrier;      // it tells of its coming to a barrier; it goes on behind one
    bool is_indexed;               // M0 says which register it writes
    uint8_t left[SIM_NUM_STREAMS]; // operations that a wait lets be incomplete, or SIM_LEFT_ANY
} sim_effects;

/** Whether MODE.FP16_OVFL limits an instruction's results. */
typedef enum sim_overflow : uint8_t {
    SIM_NO_HALF,      // they are no f16
    SIM_HALF,         // infinite only if a source is
    SIM_HALF_OF_POLE, // or if the divisor, or the only source, is 0
} sim_overflow;

struct sim_inst {
    sim_exec_fn exec; // never null once published
    const struct sim_opcode *opcode;
    uint64_t pc;    // guest address
    uint32_t bytes; // encoded length
    uint32_t flags;
    sim_operand dst[2];
    sim_operand src[5];
    uint8_t num_dst, num_src;
    uint8_t omod;                              // 0 none, 1 *2, 2 *4, 3 /2
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi; // bit i: source i (op_sel bit 3: destination)
    uint8_t cbsz, abid, blgp;
    uint8_t sdwa_dst_sel, sdwa_dst_unused; // 0 pad, 1 sext, 2 preserve
    uint8_t byte_sel;                      // 8-bit float conversions of gfx12
    uint16_t dpp_ctrl;
    uint32_t dpp8; // three bits for each lane of eight
    uint8_t dpp_row_mask, dpp_bank_mask;
    uint8_t dpp_lane[SIM_LANES]; // the lane that each lane reads, 0 where there is none
    uint64_t dpp_exists;         // lanes that read one
    uint64_t dpp_writes;         // lanes that the masks leave on
    bool dpp_in_rows;            // each row of sixteen lanes reads itself, all in the same way
    int32_t offset;   // memory: immediate offset (DS: offset0); branches: target is `target`
    int32_t offset1;  // DS: second offset
    uint64_t target;  // branches: guest address
    uint32_t imm;     // SOPP, SOPK: the 16 bits of the encoding; v_bitop3: the truth table
    uint32_t word[4]; // the encoding, little-endian words
    bool plain;       // VALU: no modifiers at all, so that operands may be used in place
    bool light;       // VALU: no modifiers but signs of f32 sources and DPP within rows, not plain
    bool is_float;    // VALU: some operand is a float, so that MODE matters
    sim_overflow overflow; // VALU
    /** The first half of a dual instruction whose result the second one's sources hide. */
    bool saves_row;
    sim_inst *second; // of a dual instruction: its second half, owned by this one; else null
    sim_effects effects;
    uint8_t kind; // sim_kind
};

/** One line of an opcode table: mnemonic without encoding suffix, its function, how its meaning is
 * known. */
typedef struct sim_opcode {
    const char *mnemonic; // "v_add_f32"
    sim_exec_fn exec;
    uint32_t archs; // bit i: sim_arch i
    uint8_t klass;  // sim_class, for counters
    // 'm' measured on silicon by a published source, 'i' ISA text, 'l' LLVM, '?' inferred
    char known;
    // Operand types in the order of the text, one letter each, destinations before the colon
    // ("f:ff"). They say how constants and modifiers are read:
    //   i b32, f f32, h f16, w b16, q b64 or u64, Q i64, d f64, F two f32, H two f16, W two b16, t
    //   the words of a hint, m lane mask, r a destination that is there only with SIM_GLC
    //   (atomics); destinations only: k b16 and x f16 that keep the register's other half. A last
    //   "+": the first destination is the last source too. No colon: one destination. Null: all i.
    const char *types;
} sim_opcode;

/** The opcodes of one family, as built for one host instruction set (SIM_ISA). Listed in
 * isa/opcodes.c. */
typedef struct sim_opcode_table {
    const sim_opcode *opcodes;
    size_t count;
} sim_opcode_table;

#define SIM_CONCAT_(a, b) a##_##b
#define SIM_CONCAT(a, b) SIM_CONCAT_(a, b)
/** What a non-static name of exec/ becomes, which is built once for each host instruction set. */
#define SIM_NAME(name) SIM_CONCAT(name, SIM_ISA)

typedef enum sim_class {
    SIM_SALU,
    SIM_SMEM,
    SIM_VALU,
    SIM_MFMA,
    SIM_LDS_OP,
    SIM_VMEM,
    SIM_FLOW
} sim_class;

// ---- code objects (object.c)

typedef enum sim_hidden { // hidden arguments, by the compiler's names
    SIM_HIDDEN_BLOCK_COUNT_X,
    SIM_HIDDEN_BLOCK_COUNT_Y,
    SIM_HIDDEN_BLOCK_COUNT_Z,
    SIM_HIDDEN_GROUP_SIZE_X,
    SIM_HIDDEN_GROUP_SIZE_Y,
    SIM_HIDDEN_GROUP_SIZE_Z,
    SIM_HIDDEN_REMAINDER_X,
    SIM_HIDDEN_REMAINDER_Y,
    SIM_HIDDEN_REMAINDER_Z,
    SIM_HIDDEN_GLOBAL_OFFSET_X,
    SIM_HIDDEN_GLOBAL_OFFSET_Y,
    SIM_HIDDEN_GLOBAL_OFFSET_Z,
    SIM_HIDDEN_GRID_DIMS,
    SIM_HIDDEN_DYNAMIC_LDS_SIZE,
    SIM_HIDDEN_PRIVATE_BASE,
    SIM_HIDDEN_SHARED_BASE,
    SIM_HIDDEN_HOSTCALL_BUFFER,
    SIM_HIDDEN_PRINTF_BUFFER,
    SIM_HIDDEN_HEAP,
    SIM_HIDDEN_UNSERVED, // queues, completion actions: given as null
    SIM_NUM_HIDDEN
} sim_hidden;

/** One argument of a kernel, explicit ones first. */
typedef struct sim_arg {
    uint32_t offset, bytes; // in the kernarg segment
    int16_t hidden;         // sim_hidden, or -1 for an explicit argument
} sim_arg;

typedef struct sim_kernel {
    char *name;
    uint64_t entry;      // guest address of the first instruction
    uint64_t descriptor; // guest address
    uint32_t lds_bytes, scratch_bytes, kernarg_bytes, max_threads;
    uint32_t num_vgprs, num_agprs, num_sgprs; // from the metadata
    uint32_t rsrc1, rsrc2, rsrc3;
    uint16_t properties, preload;
    bool wave32, uses_dynamic_stack;
    sim_arg *args;
    uint32_t num_args, num_explicit_args;
} sim_kernel;

// ---- guest memory (memory.c)

typedef struct sim_memory sim_memory; // a guest address space, shared by the devices of a process

typedef enum sim_region_kind {
    SIM_REGION_DEVICE, // hipMalloc
    SIM_REGION_HOST,   // hipHostMalloc: the guest address is the host's
    SIM_REGION_CODE,   // a code object's image
    SIM_REGION_KERNARG,
    SIM_REGION_REGISTERED, // hipHostRegister: the program's own memory, at any address
} sim_region_kind;

/** Which of its bytes have been written (written.c). */
typedef struct sim_written sim_written;

/** An allocation. Between two of them lies at least one unmapped guard page. */
typedef struct sim_region {
    uint64_t base;          // guest address, 256-byte aligned
    _Atomic uint64_t bytes; // 0 once freed, which may be while waves look
    uint8_t *host;          // of a freed one: null once nobody can use it any more
    uint64_t size;          // as allocated, kept for reports after it was freed
    uint32_t device;
    sim_region_kind kind;
    uint32_t flags;                  // what sim_memory_tag was given
    uint64_t code_start, code_bytes; // guest address of its instructions; 0 bytes: it has none
    uint64_t mapped;         // host memory behind `host`, to the end of a page; 0: just the bytes
    sim_written *written;    // null: all of it counts as written
    struct sim_region *next; // of the freed ones whose host memory is still there
} sim_region;

sim_written *sim_written_create(uint64_t bytes);
/** All counts as written from now on. */
void sim_written_end(sim_written *written);
/** Whether it is written as a whole. */
bool sim_region_is_written(const sim_region *region);
/** How many bytes of a range have been written. For a thread within sim_memory_enter, as what
 *  follows. */
uint64_t sim_region_num_written(const sim_region *region, uint64_t offset, uint64_t bytes);
void sim_region_note_write(const sim_region *region, uint64_t offset, uint64_t bytes);
/** What is copied is as written as where it comes from; `from` null: the program's own memory,
 *  which is. */
void sim_region_note_copy(const sim_region *to, uint64_t to_offset, const sim_region *from,
                          uint64_t from_offset, uint64_t bytes);

sim_memory *sim_memory_create(void);
void sim_memory_destroy(sim_memory *memory);
/** Between enter and leave nothing is taken back, so host addresses stay good. Not for long waits
 *  of the thread that frees. A dispatch and every host copy hold it. */
void sim_memory_enter(sim_memory *memory);
void sim_memory_leave(sim_memory *memory);
/** Around fork: prepare takes the lock, so that the child's copy is whole; parent gives it back,
 *  child makes all locks anew. */
void sim_memory_fork_prepare(sim_memory *memory);
void sim_memory_fork_parent(sim_memory *memory);
void sim_memory_fork_child(sim_memory *memory);
/** New memory, zero-filled, 256-byte aligned; null if the host or the address space has no more. */
const sim_region *sim_memory_alloc(sim_memory *memory, uint64_t bytes, sim_region_kind kind,
                                   uint32_t device);
/** Ends the allocation that begins at addr; false if there is none. Its host memory is given back
 *  when the last of those within sim_memory_enter has left: nobody waits, so a kernel that waits
 *  for the caller does no harm. */
bool sim_memory_retire(sim_memory *memory, uint64_t addr);
/** The same, but waits for those within sim_memory_enter where very much memory is due to be given
 *  back. */
bool sim_memory_free(sim_memory *memory, uint64_t addr);
/** Keeps the flags that the allocation at addr was made with. Before its address is given out. */
void sim_memory_tag(sim_memory *memory, uint64_t addr, uint32_t flags);
/** Keeps where the instructions of a code object's image lie. */
void sim_memory_tag_code(sim_memory *memory, uint64_t addr, uint64_t start, uint64_t bytes);
/** Whether device memory allocated from now on may be read to the end of its last 64 KiB, as a
 *  driver maps it. */
void sim_memory_keep_pages(sim_memory *memory, bool on);
/** Whether device memory allocated from now on is unwritten at first. Off: all memory counts as
 *  written, for good. */
void sim_memory_note_writes(sim_memory *memory, bool on);
/** The host has written a range, which lies in one allocation. */
void sim_memory_wrote(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** The same by a copy from anywhere. */
void sim_memory_copied(const sim_memory *memory, uint64_t to, uint64_t from, uint64_t bytes);
/** Host address of bytes that begin in an allocation's pages, though they may lie behind it; null
 *  if there are none. */
void *sim_memory_page_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);
/** Lets the guest see the program's own memory, at its own address. False without memory, or, with
 *  *is_known set, if the guest sees a part of it already. */
bool sim_memory_register(sim_memory *memory, void *host, uint64_t bytes, uint32_t device,
                         bool *is_known);
/** Takes back what was registered from `host` on; false if nothing was. Waits for running
 *  dispatches. */
bool sim_memory_unregister(sim_memory *memory, void *host);
/** Frees every allocation of a kind on a device. */
void sim_memory_free_all(sim_memory *memory, sim_region_kind kind, uint32_t device);
/** The live allocation that holds addr, or null. */
const sim_region *sim_memory_find(const sim_memory *memory, uint64_t addr);
/** Whether addr is in the range of device allocations, live or not, where the host maps nothing. */
bool sim_memory_is_guest(uint64_t addr);
/** The allocation within a page of addr that is nearest to it, live or freed; false if there is
 *  none. */
bool sim_memory_nearest(sim_memory *memory, uint64_t addr, sim_region *out);
/** Whether addr lies in an allocation that was freed. For a thread within sim_memory_enter. */
bool sim_memory_was_freed(const sim_memory *memory, uint64_t addr);
/** Says where `bytes` at addr lie: "12 bytes past the end of a 4096-byte allocation at
 *  0x400000010000". A region of size 0 stands for none. */
void sim_region_describe(const sim_region *region, uint64_t addr, uint64_t bytes, char *text,
                         size_t text_bytes);
/** Live bytes of hipMalloc's kind on a device. */
uint64_t sim_memory_used(sim_memory *memory, uint32_t device);
/** Host address of `bytes` of guest memory at `addr`, or null if any byte is outside a live
 * allocation. */
void *sim_memory_host(const sim_memory *memory, uint64_t addr, uint64_t bytes);

// ---- code objects (object.c)

typedef struct sim_object
    sim_object; // its image in guest memory, kernels, symbols, decoded instructions

typedef enum sim_object_status {
    SIM_OBJECT_OK,
    SIM_OBJECT_INVALID,    // not a code object, or a damaged one
    SIM_OBJECT_WRONG_ARCH, // for another chip
    SIM_OBJECT_NO_MEMORY,
} sim_object_status;

/** Loads an ELF code object, or the fitting entry of an offload bundle, into guest memory.
 *  image is only read during the call; error gets a message unless the status is OK. */
sim_object_status sim_object_load(sim_object **out, sim_memory *memory, const sim_chip *chip,
                                  uint32_t device, const void *image, size_t bytes, char *error,
                                  size_t error_bytes);
/** Bytes that a code object or bundle in memory covers, read from its headers; 0: it is neither. */
size_t sim_object_extent(const void *image);
void sim_object_unload(sim_object *object);
const sim_kernel *sim_object_kernel(const sim_object *object, const char *name);
size_t sim_object_num_kernels(const sim_object *object);
/** Guest address and size of a global variable; false if there is none of that name. */
bool sim_object_global(const sim_object *object, const char *name, uint64_t *addr, uint64_t *bytes);
/** A format of printf that the kernels name by its number; null if there is none. */
const char *sim_object_format(const sim_object *object, uint64_t id);

/** What an instruction was compiled from. */
typedef struct sim_source {
    char file[512];
    uint32_t line, column; // column 0: not known
    char
        function[256]; // that the instruction is part of, as the symbol table has it; "": not known
} sim_source;

/** The source of the instruction at pc; false unless the object has DWARF line tables that know
 *  it. */
bool sim_object_source(const sim_object *object, uint64_t pc, sim_source *out);
/** The function whose symbol covers pc, and where it begins; null if there is none, as in stripped
 *  objects. */
const char *sim_object_function(const sim_object *object, uint64_t pc, uint64_t *start);
/** The last global variable that begins at or before a guest address in an object's image, or close
 *  behind it; null if there is none. */
const char *sim_object_variable(const sim_object *object, uint64_t addr, uint64_t *start,
                                uint64_t *bytes);

/** An object's executable segment. `slots` has one entry for each dword: the decoded instruction
 * that starts there, or null until one is needed. The owner zeroes it, and calls sim_text_deinit in
 * the end. */
typedef struct sim_text {
    const sim_chip *chip;
    const uint8_t *bytes; // host copy that nobody writes
    uint64_t start, size; // guest address, bytes
    _Atomic(const sim_inst *) *slots;
} sim_text;

sim_text *sim_object_text(sim_object *object);
/** Frees the decoded instructions and the slot array. */
void sim_text_deinit(sim_text *text);

// ---- faults (fault.c, report.c)

#include "report/fault.h"

// ---- waves and workgroups (wave.c, dispatch.c)

enum { // sim_wave.mode, gfx9 layout of HW_REG_MODE
    SIM_MODE_ROUND_F32 = 3 << 0,
    SIM_MODE_ROUND_F16_F64 = 3 << 2,
    SIM_MODE_DENORM_F32 = 3 << 4, // bit 0: keep denormal inputs, bit 1: keep denormal results
    SIM_MODE_DENORM_F16_F64 = 3 << 6,
    SIM_MODE_FLOAT = 0xff,       // the four fields above
    SIM_MODE_FLOAT_PLAIN = 0xf0, // round to nearest even, keep all denormals
    SIM_MODE_DX10_CLAMP = 1 << 8,
    SIM_MODE_IEEE = 1 << 9,
    SIM_MODE_FP16_OVFL = 1 << 23,
    SIM_MODE_GPR_IDX_EN = 1 << 27,
    SIM_MODE_VSKIP = 1 << 28,
    SIM_MODE_SPECIAL = SIM_MODE_GPR_IDX_EN | SIM_MODE_VSKIP, // of gfx9
    SIM_MODE_GFX12 = SIM_MODE_DX10_CLAMP | SIM_MODE_IEEE, // what gfx12 has no bits for, always on
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
    uint64_t pc; // of the next instruction; exec functions of branches write it
    uint32_t scc;
    uint32_t mode; // MODE register, SIM_MODE_ bits; dispatch fills it by sim_mode_of_rsrc1
    sim_wave_state state;
    bool wave32;                     // 32 lanes: the upper half of EXEC is 0
    bool fast_matrix;                // sim_dispatch.fast_matrix
    uint32_t num_signals, num_waits; // at gfx12's split barriers
    uint32_t num_barriers;           // for their check: how many, and the last one
    uint64_t barrier_pc;
    uint32_t index;                     // in the workgroup
    uint64_t shared_base, private_base; // flat apertures
    uint8_t *scratch;                   // SIM_LANES * scratch_bytes, lane-major
    uint32_t scratch_bytes;             // of one lane
    sim_workgroup *group;
    struct sim_shadow *shadow; // the checker's; null: nothing is checked
    struct sim_look *look;     // the workgroup's; null: nobody follows the wave
    const sim_region *region;  // of the last access: sim_wave_host looks here first; never null
    uint64_t num_executed;
    uint64_t num_after_fault; // of them, since the launch has a fault
    uint64_t counters[8];     // executed instructions by sim_class
};

// The anonymous struct above must lie over s[] exactly as the ISA numbers it.
static_assert(offsetof(sim_wave, vcc) - offsetof(sim_wave, s) == 106 * 4);
static_assert(offsetof(sim_wave, m0) - offsetof(sim_wave, s) == 124 * 4);
static_assert(offsetof(sim_wave, exec) - offsetof(sim_wave, s) == 126 * 4);

enum { SIM_MAX_OBSERVERS = 2 };

typedef struct sim_dispatch {
    const sim_chip *chip;
    sim_memory *memory;
    const sim_kernel *kernel;
    sim_object *object;
    sim_text *text;        // of the object
    uint32_t grid[3];      // workgroups
    uint32_t block[3];     // work-items of a workgroup
    uint32_t lds_bytes;    // static and dynamic
    uint64_t kernarg;      // guest address
    uint64_t packet;       // guest address of the dispatch packet; 0: none
    uint64_t id;           // counts a device's dispatches
    uint32_t check;        // SIM_CHECK_ bits
    bool fast_matrix;      // matrix instructions in plain f32 arithmetic, not by the chip's rules
    bool passes_overreads; // of the pages of an allocation: they are reported, and fail nothing
    uint32_t turn;         // as in sim_options
    uint64_t limit;        // instructions a wave may execute; 0: any number
    _Atomic uint64_t counters[8]; // executed wave instructions by sim_class
    atomic_bool stop;
    sim_faults faults;               // sim_faults_deinit frees them
    atomic_uint_fast64_t next_group; // the next workgroup to start, by flat id
    uint32_t device;
    bool is_observed;                  // some of the following is not null
    void *observed[SIM_MAX_OBSERVERS]; // what each observer keeps of this dispatch
    struct sim_race *race; // the checker's memory of global memory; null: races are not checked
} sim_dispatch;

/** Lanes of a wave: the kernel's choice on RDNA. */
static inline uint32_t sim_wave_size(const sim_dispatch *d) {
    return d->kernel->wave32 && d->chip->gfx_major > 9 ? 32 : 64;
}

/** True once every wave of the group, unless it has ended, has signalled for the barrier that `w`
 *  waits at. One instruction that signals and waits (s_barrier) counts nothing: it is complete when
 *  no wave runs. */
bool sim_barrier_is_complete(const sim_wave *w);

/** Runs a dispatch to its end, or until it is stopped, the calling thread and idle pool threads
 *  working on it. False: dispatch->faults has what it did wrong, in order, or it was stopped from
 *  outside, through `stop`. */
bool sim_dispatch_run(sim_dispatch *dispatch);
/** Where the flat apertures lie: outside every allocation; their upper halves select them. */
constexpr uint64_t SIM_SHARED_APERTURE = UINT64_C(1) << 48;
constexpr uint64_t SIM_PRIVATE_APERTURE = UINT64_C(2) << 48;
/** Where gfx90a is told that scratch memory lies: the base of the private segment buffer and of
 *  FLAT_SCRATCH. No host maps it, and it fits the 48 bits of a buffer's base. */
constexpr uint64_t SIM_SCRATCH_BASE = UINT64_C(1) << 47;

/** True for the descriptor that a wave of gfx90a was given for its scratch memory (dispatch.c). */
static inline bool sim_is_scratch_buffer(const uint32_t descriptor[4]) {
    return descriptor[1] >> 31 && (descriptor[3] >> 23 & 1) &&
           (descriptor[1] & 0xffff) == SIM_SCRATCH_BASE >> 32;
}

/** Bytes from SIM_SCRATCH_BASE to a wave's scratch: the "private segment wave offset" of gfx90a. */
static inline uint32_t sim_scratch_offset(const sim_wave *w) {
    return w->index * SIM_LANES * w->scratch_bytes;
}

/** Scratch bytes that each lane of a kernel gets. */
uint32_t sim_kernel_scratch(const sim_kernel *kernel);
/** How many host threads run workgroups of one dispatch, 0 for one a core. No dispatch may be
 *  running. */
void sim_pool_configure(uint32_t threads);
/** Joins the pool's threads and gives its memory back; it starts anew when next used. */
void sim_pool_shutdown(void);
/** Around fork, as sim_memory_fork_prepare; in the child the pool's threads are not there any
 *  more. */
void sim_pool_fork_prepare(void);
void sim_pool_fork_parent(void);
void sim_pool_fork_child(void);

/** sim_memory_host for a wave's own accesses: quick where they stay within one allocation. */
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
/** Whether bytes that a wave has just resolved lie in instructions. */
static inline bool sim_hits_code(const sim_wave *w, uint64_t addr, uint64_t bytes) {
    const sim_region *r = w->region;
    return r->kind == SIM_REGION_CODE && addr < r->code_start + r->code_bytes &&
           addr + bytes > r->code_start;
}
/** The same, and reports what is wrong with the access; null then, unless it may pass (fault.c).
 *  *goes_on: as sim_fault_report. */
void *sim_reach(sim_wave *w, const sim_inst *inst, int lane, uint64_t addr, uint64_t bytes,
                bool is_store, bool *goes_on);
/** What such a bit makes of a copy of an instruction; false if it is left out. */
bool sim_is_issued(const sim_wave *w, sim_inst *copy);
/** Runs an instruction while a bit of SIM_MODE_SPECIAL is on (modes.c). */
void sim_exec_special(sim_wave *w, const sim_inst *inst);

/** Runs one wave until it ends, faults, waits at a barrier or has used up its slice (then it is
 * still SIM_RUNNING, and the other waves of its workgroup have their turn). */
void sim_wave_run(sim_wave *w);
/** The same for at most `slice` instructions, without checks; how many there were. */
uint32_t sim_wave_slice(sim_wave *w, uint32_t slice);

// ---- those who follow a kernel's instructions (look/). Nobody does where sim_wave.look is null.

/** Turns on who the options name, and makes their files. False: `error` says why not, and nothing
 *  has changed. */
bool sim_look_configure(const sim_look_options *options, char *error, size_t error_bytes);
/** Asks each observer whether a dispatch is of interest; around its run. */
void sim_look_begin_dispatch(sim_dispatch *d);
void sim_look_end_dispatch(sim_dispatch *d);
/** Around a workgroup that has its first registers; false without memory. */
bool sim_look_begin(sim_workgroup *group);
void sim_look_end(sim_workgroup *group);
/** sim_wave_run's loop for a wave that is followed, checked or not. */
uint32_t sim_look_run(sim_wave *w, uint32_t slice);
/** Facts that only execution knows, as it meets them: exec/ tells what an instruction touches in
 *  memory, in a lane's scratch, in LDS, and by a scalar access. An instruction may tell of parts of
 *  one access in turn. */
void sim_look_memory(sim_wave *w, const uint64_t address[SIM_LANES], uint64_t mask, uint32_t bytes);
void sim_look_memory_lane(sim_wave *w, int lane, uint64_t address, uint32_t bytes);
void sim_look_scratch_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds_lane(sim_wave *w, int lane, uint64_t offset, uint32_t bytes);
void sim_look_lds(sim_wave *w, uint8_t *const lane_address[SIM_LANES], uint64_t mask,
                  uint32_t bytes);
void sim_look_scalar(sim_wave *w, uint64_t address, uint32_t bytes);
/** Fills inst->kind, a step of decoding. */
void sim_find_kind(sim_inst *inst);
/** The process ends: files are written. A child after fork counts for itself. */
void sim_look_finish(void);
void sim_look_fork_prepare(void);
void sim_look_fork_parent(void);
void sim_look_fork_child(void);

// ---- the checker (check/). It is off where sim_wave.shadow is null.

/** Fills inst->effects, the last step of decoding. */
void sim_find_effects(sim_inst *inst, sim_arch arch);
/** Bytes of a worker that a workgroup of `num_waves` needs; 0 if `check` needs none. */
size_t sim_check_bytes(uint32_t check, size_t num_waves, size_t lds_bytes);
/** Lays out `memory` for a workgroup whose waves have their first registers; null: no checking. */
void sim_check_begin(sim_workgroup *group, void *memory);
/** sim_wave_run's loop, with checks: at most `slice` instructions; how many there were. */
uint32_t sim_check_run(sim_wave *w, uint32_t slice);
/** Lanes of `mask` access `bytes` of LDS each, at lane_address. Called by exec/ before it does
 *  so. */
void sim_check_lds(sim_wave *w, const sim_inst *inst, uint8_t *const lane_address[SIM_LANES],
                   uint64_t mask, uint32_t bytes);

/** Lanes of `mask` access `bytes` of memory each, at address in the guest, host here. Before it
 *  happens. */
void sim_check_memory(sim_wave *w, const sim_inst *inst, const uint64_t *address,
                      uint8_t *const *host, uint64_t mask, uint32_t bytes);
/** A wave has come to a barrier that it waits at; it has signalled (gfx12). If SIM_CHECK_BARRIER is
 *  on. */
void sim_check_barrier(sim_wave *w, const sim_inst *inst);
void sim_check_signal(sim_wave *w, const sim_inst *inst);
/** Around a dispatch: makes what is remembered of global memory, if its checks need that. False
 *  without memory. */
bool sim_race_open(sim_dispatch *d);
void sim_race_close(sim_dispatch *d);

/** Decodes and binds the instruction at pc and publishes it in the text's slot; null after raising
 * a fault. */
const sim_inst *sim_inst_at(sim_wave *w, uint64_t pc);

/** The instruction at pc, decoded before or now. What the wave loop calls. */
static inline const sim_inst *sim_fetch(sim_wave *w, const sim_text *text, uint64_t pc) {
    const uint64_t offset = pc - text->start;
    if (offset < text->size && !(offset & 3)) {
        const sim_inst *inst =
            atomic_load_explicit(&text->slots[offset >> 2], memory_order_acquire);
        if (inst)
            return inst;
    }
    return sim_inst_at(w, pc);
}

/** Decodes one instruction of `size` bytes at most, without a wave. Returns false and says why in
 * `error`. */
bool sim_decode(const sim_chip *chip, const uint8_t *bytes, uint64_t size, uint64_t pc,
                sim_inst *out, char error[256]);
enum { SIM_INST_TEXT_BYTES = 512 };
/** The instruction at pc as LLVM prints it, mnemonic and operands with single spaces:
 *  "v_add_u32_e32 v1, v0, v2". False, and an empty text, if there is none. It disassembles anew
 *  each time, under a lock: not for every executed instruction. */
bool sim_inst_text(const sim_text *text, bool wave64, uint64_t pc, char out[SIM_INST_TEXT_BYTES]);
/** How the meanings of the instructions are known that a kernel can reach: the weakest
 *  sim_opcode.known of them; 0 if some of them is not executed. `names` gets the mnemonics known no
 *  better, as many as fit. */
char sim_kernel_evidence(const sim_text *text, const sim_kernel *kernel, char *names, size_t bytes);
/** Frees what a decoded instruction owns. */
void sim_inst_deinit(sim_inst *inst);

/** Ends the disassembler's process; the next instruction starts another one. */
void sim_disassemble_shutdown(void);
/** Around fork, so that no thread is within the disassembler: prepare before, done after in both
 *  processes. */
void sim_decode_fork_prepare(void);
void sim_decode_fork_done(void);

#endif
