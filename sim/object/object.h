// SPDX-License-Identifier: Apache-2.0
// Code objects: their kernels, global variables and source lines (object.c).
#ifndef SIM_OBJECT_H
#define SIM_OBJECT_H

#include "../chip/chip.h"
#include "../memory.h"

#include <stddef.h>
#include <stdint.h>

typedef enum sim_hidden { // hidden arguments; names are the compiler's
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
    SIM_HIDDEN_GRID_SYNC,
    SIM_HIDDEN_UNSERVED, // queues and completion actions, which are null
    SIM_NUM_HIDDEN
} sim_hidden;

/** One argument of a kernel. Explicit arguments come before hidden ones. */
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

typedef struct sim_object
    sim_object; // a code object's image in guest memory, kernels, symbols, decoded instructions

typedef enum sim_object_status {
    SIM_OBJECT_OK,
    SIM_OBJECT_INVALID,    // not a code object, or a damaged one
    SIM_OBJECT_WRONG_ARCH, // for another chip
    SIM_OBJECT_NO_MEMORY,
} sim_object_status;

/** Loads an ELF code object, or the fitting entry of an offload bundle, into guest memory. `image`
 *  may be freed after the call. `error` gets a message unless the status is SIM_OBJECT_OK. */
sim_object_status sim_object_load(sim_object **out, sim_memory *memory, const sim_chip *chip,
                                  uint32_t device, const void *image, size_t bytes, char *error,
                                  size_t error_bytes);
/** Returns the bytes that a code object or bundle in memory covers, by its headers; 0 if the image
 *  is neither. */
size_t sim_object_extent(const void *image);
void sim_object_unload(sim_object *object);
const sim_kernel *sim_object_kernel(const sim_object *object, const char *name);
size_t sim_object_num_kernels(const sim_object *object);
/** Finds the guest address and the size of a global variable. Returns false if no variable has that
 *  name. */
bool sim_object_global(const sim_object *object, const char *name, uint64_t *addr, uint64_t *bytes);
/** Returns the printf format that kernels name by the number `id`, or null if there is none. */
const char *sim_object_format(const sim_object *object, uint64_t id);

/** The source that an instruction was compiled from. */
typedef struct sim_source {
    char file[512];
    uint32_t line, column; // column 0: not known
    char function[256];    // function that has the instruction, by the symbol table; "": not known
    uint64_t end;          // pc behind the last instruction that the tables give with it
} sim_source;

/** Finds the source of the instruction at pc. Returns false unless the object has DWARF line tables
 *  that know the source. */
bool sim_object_source(const sim_object *object, uint64_t pc, sim_source *out);
/** Returns the function whose symbol covers pc, and sets *start to where it begins. Returns null if
 *  there is none, as in stripped objects. */
const char *sim_object_function(const sim_object *object, uint64_t pc, uint64_t *start);
/** Returns the last global variable that begins at or before a guest address, which lies in the
 *  object's image or close behind the image; null if there is none. */
const char *sim_object_variable(const sim_object *object, uint64_t addr, uint64_t *start,
                                uint64_t *bytes);

typedef struct sim_text sim_text; // isa/decode.h
sim_text *sim_object_text(sim_object *object);

#endif
