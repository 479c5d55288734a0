// SPDX-License-Identifier: Apache-2.0
// Compressed offload bundles ("CCOB", clang --offload-compress): their header, and the bundle
// inside.
//
// Layout (llvm/lib/Object/OffloadBundle.cpp): magic, u16 version, u16 method (0 zlib, 1 zstd), then
//   version 1   u32 size of the bundle, u64 hash: the file's own size is not in it
//   version 2   u32 size of the file, u32 size of the bundle, u64 hash
//   version 3   u64 size of the file, u64 size of the bundle, u64 hash
#include "object.h"
#include "reader.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

typedef struct header {
    uint16_t version, method;
    size_t bytes;                   // of the header itself
    uint64_t file_bytes, out_bytes; // file_bytes: 0 if unknown
} header;

constexpr uint64_t MAX_OUT_BYTES = UINT64_C(1) << 30;

bool sim_compressed_is(const void *image, size_t bytes) {
    return bytes >= 4 && strncmp(image, "CCOB", 4) == 0;
}

/** Reads the header. Returns false if the image is too short or of an unknown version. */
static bool read_header(const uint8_t *image, size_t bytes, header *h) {
    uint32_t sizes[2];
    *h = (header){0};
    if (bytes < 20)
        return false;
    memcpy(&h->version, image + 4, 2);
    memcpy(&h->method, image + 6, 2);
    memcpy(sizes, image + 8, sizeof sizes);
    if (h->version == 1) {
        h->bytes = 20;
        h->out_bytes = sizes[0];
    } else if (h->version == 2) {
        h->bytes = 24;
        h->file_bytes = sizes[0];
        h->out_bytes = sizes[1];
    } else if (h->version == 3 && bytes >= 32) {
        h->bytes = 32;
        memcpy(&h->file_bytes, image + 8, 8);
        memcpy(&h->out_bytes, image + 16, 8);
    }
    return h->bytes && bytes >= h->bytes;
}

size_t sim_compressed_extent(const uint8_t header_bytes[SIM_COMPRESSED_HEADER_BYTES]) {
    header h;
    return read_header(header_bytes, SIM_COMPRESSED_HEADER_BYTES, &h) && h.file_bytes >= h.bytes
               ? h.file_bytes
               : 0;
}

/** Expands the bundle. Returns whether exactly `out_bytes` came out. */
static bool expand(const header *h, const uint8_t *in, size_t bytes, void *out) {
    if (h->method == 1)
        return ZSTD_decompress(out, h->out_bytes, in, bytes) == h->out_bytes;
    uLongf got = h->out_bytes;
    return uncompress(out, &got, in, bytes) == Z_OK && got == h->out_bytes;
}

sim_object_status sim_compressed_expand(const void *image, size_t bytes, void **out,
                                        size_t *out_bytes, sim_complaint *c) {
    header h;
    if (!read_header(image, bytes, &h) || h.method > 1 || h.out_bytes > MAX_OUT_BYTES ||
        h.file_bytes > bytes || (h.file_bytes && h.file_bytes < h.bytes)) {
        sim_complain(c,
                     "a damaged compressed offload bundle (version %u, method %u); accepted: "
                     "versions 1 to 3, zlib (0) or zstd (1)",
                     h.version, h.method);
        return SIM_OBJECT_INVALID;
    }
    void *room = malloc(h.out_bytes ? h.out_bytes : 1);
    if (!room) {
        sim_complain_no_memory(c);
        return SIM_OBJECT_NO_MEMORY;
    }
    const size_t packed = (h.file_bytes ? h.file_bytes : bytes) - h.bytes;
    if (!expand(&h, (const uint8_t *)image + h.bytes, packed, room)) {
        free(room);
        sim_complain(c, "a damaged compressed offload bundle");
        return SIM_OBJECT_INVALID;
    }
    *out = room;
    *out_bytes = h.out_bytes;
    return SIM_OBJECT_OK;
}
