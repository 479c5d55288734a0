// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of the code-object reader share.
#ifndef SIM_READER_H
#define SIM_READER_H

#include "../chip/chip.h"
#include "elf.h"
#include "object.h"

#include <stddef.h>
#include <stdint.h>

/** Where the message about a bad code object goes. */
typedef struct sim_complaint {
    char *text;
    size_t bytes;
    bool is_no_memory; // nothing is wrong with the object
} sim_complaint;

/** Stores the message. Always returns false. */
[[gnu::format(printf, 2, 3)]] bool sim_complain(sim_complaint *c, const char *format, ...);
/** Stores the message that memory ran out. Always returns false. */
bool sim_complain_no_memory(sim_complaint *c);

/** A copy of a code object's file, if the file has tables of source lines. (source.c) */
typedef struct sim_sources {
    uint8_t *image; // null: the file has no such tables, or memory ran out
    size_t bytes;
} sim_sources;

void sim_sources_keep(sim_sources *sources, const sim_elf *elf);
void sim_sources_deinit(sim_sources *sources);
/** Finds the source of the instruction at an address, which is the file's own. */
bool sim_sources_find(const sim_sources *sources, uint64_t address, sim_source *out);

/** A printf format. Kernels name a format by a number, which is its hash. */
typedef struct sim_format {
    uint64_t id;
    char *text;
} sim_format;

typedef struct sim_formats {
    sim_format *list;
    size_t count;
} sim_formats;

void sim_formats_deinit(sim_formats *formats);

/** Reads the AMDGPU metadata note, which is MessagePack. The note names kernels by ".symbol" and
 *  tells more of them; kernels that it does not name keep what their descriptors said. The note's
 *  printf formats are added to `formats`. (metadata.c) */
bool sim_metadata_read(sim_kernel *kernels, size_t num_kernels, sim_formats *formats,
                       const void *note, size_t bytes, sim_complaint *c);

enum { // sizes in bundles' headers
    SIM_BUNDLE_HEADER_BYTES = 32,
    SIM_BUNDLE_MAX_ENTRIES = 4096,
    SIM_COMPRESSED_HEADER_BYTES = 32,
};

/** Returns whether image begins like an offload bundle. (bundle.c) */
bool sim_bundle_is(const void *image, size_t bytes);
/** Finds a bundle's entry for a chip. Returns a status as sim_object_load does. */
sim_object_status sim_bundle_find(const sim_chip *chip, const void *image, size_t bytes,
                                  const void **entry, size_t *entry_bytes, sim_complaint *c);

/** Returns whether image begins like a compressed bundle. (compress.c) */
bool sim_compressed_is(const void *image, size_t bytes);
/** Returns the bytes that a compressed bundle covers, by its header; 0 if the header does not
 *  say. */
size_t sim_compressed_extent(const uint8_t header[SIM_COMPRESSED_HEADER_BYTES]);
/** Expands a compressed bundle into memory that the caller frees. Returns a status as
 *  sim_object_load does. */
sim_object_status sim_compressed_expand(const void *image, size_t bytes, void **out,
                                        size_t *out_bytes, sim_complaint *c);

#endif
