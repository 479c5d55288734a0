// SPDX-License-Identifier: Apache-2.0
// What the code-object reader's files share.
#ifndef SIM_READER_H
#define SIM_READER_H

#include "../chip/chip.h"
#include "elf.h"
#include "object.h"

#include <stddef.h>
#include <stdint.h>

/** Where a complaint about a code object goes. */
typedef struct sim_complaint {
    char *text;
    size_t bytes;
    bool is_no_memory; // nothing is wrong with the object
} sim_complaint;

/** Stores the message; always false. */
[[gnu::format(printf, 2, 3)]] bool sim_complain(sim_complaint *c, const char *format, ...);
/** The same where memory ran out. */
bool sim_complain_no_memory(sim_complaint *c);

/** A copy of a code object's file, if it tells of source lines. (source.c) */
typedef struct sim_sources {
    uint8_t *image; // null: it does not, or there was no memory
    size_t bytes;
} sim_sources;

void sim_sources_keep(sim_sources *sources, const sim_elf *elf);
void sim_sources_deinit(sim_sources *sources);
/** The source of the instruction at an address as in the file. */
bool sim_sources_find(const sim_sources *sources, uint64_t address, sim_source *out);

/** A format of printf; kernels name it by a number, which is its hash. */
typedef struct sim_format {
    uint64_t id;
    char *text;
} sim_format;

typedef struct sim_formats {
    sim_format *list;
    size_t count;
} sim_formats;

void sim_formats_deinit(sim_formats *formats);

/** Reads the AMDGPU metadata note (MessagePack) into the kernels whose ".symbol" it names, and adds
 *  its formats. Kernels that it does not name keep what their descriptors said. (metadata.c) */
bool sim_metadata_read(sim_kernel *kernels, size_t num_kernels, sim_formats *formats,
                       const void *note, size_t bytes, sim_complaint *c);

enum { // of bundles' headers
    SIM_BUNDLE_HEADER_BYTES = 32,
    SIM_BUNDLE_MAX_ENTRIES = 4096,
    SIM_COMPRESSED_HEADER_BYTES = 32,
};

/** Whether image begins like an offload bundle. (bundle.c) */
bool sim_bundle_is(const void *image, size_t bytes);
/** The entry for a chip. Status as sim_object_load's. */
sim_object_status sim_bundle_find(const sim_chip *chip, const void *image, size_t bytes,
                                  const void **entry, size_t *entry_bytes, sim_complaint *c);

/** Whether image begins like a compressed bundle. (compress.c) */
bool sim_compressed_is(const void *image, size_t bytes);
/** Bytes that a compressed bundle covers, by its first ones; 0 if they do not say. */
size_t sim_compressed_extent(const uint8_t header[SIM_COMPRESSED_HEADER_BYTES]);
/** The bundle inside, in memory that the caller frees. Status as sim_object_load's. */
sim_object_status sim_compressed_expand(const void *image, size_t bytes, void **out,
                                        size_t *out_bytes, sim_complaint *c);

#endif
