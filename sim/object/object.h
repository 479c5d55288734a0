// SPDX-License-Identifier: Apache-2.0
// Code objects: their kernels, global variables and source lines (object.c).
#ifndef SIM_OBJECT_H
#define SIM_OBJECT_H

#include "../chip/chip.h"
#include "../memory.h"

#include <stddef.h>
#include <stdint.h>

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

typedef struct sim_text sim_text; // isa/decode.h
sim_text *sim_object_text(sim_object *object);

#endif
