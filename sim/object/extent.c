// SPDX-License-Identifier: Apache-2.0
// Finds how long an image in the program's memory is. HIP's calls get a bare pointer, so the
// image's headers must say. The headers may be damaged and lead anywhere, so the operating system
// reads them: it gives an error where a load would end the process.
#include "object.h"
#include "reader.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/** Copies bytes from an address of this process. Returns false if not all of them can be read. */
static bool peek(void *out, const void *image, uint64_t offset, size_t bytes) {
    const uint64_t at = (uintptr_t)image + offset;
    if (at < offset || at + bytes < at)
        return false;
    struct iovec to = {out, bytes}, from = {(void *)(uintptr_t)at, bytes};
    const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) { // a sandbox's choice: trust the headers
        memcpy(out, (const void *)(uintptr_t)at, bytes);
        return true;
    }
    return got == (ssize_t)bytes;
}

/** Returns whether the last byte of each page of a range can be read. */
static bool is_readable(const void *image, uint64_t bytes) {
    enum { PAGE = 4096 };
    uint8_t byte;
    const uint64_t first = PAGE - (uintptr_t)image % PAGE - 1;
    for (uint64_t at = first; at < bytes; at += PAGE)
        if (!peek(&byte, image, at, 1))
            return false;
    return peek(&byte, image, bytes - 1, 1);
}

static uint64_t max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/** Returns the end of a part; UINT64_MAX if it overflows. */
static uint64_t end_of(uint64_t offset, uint64_t bytes) {
    return offset + bytes < offset ? UINT64_MAX : offset + bytes;
}

/** Returns the length of an ELF file; 0 if not all of its tables can be read. */
static uint64_t elf_extent(const void *image) {
    Elf64_Ehdr h;
    if (!peek(&h, image, 0, sizeof h))
        return 0;
    uint64_t extent = end_of(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr));
    for (uint32_t i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        if (!peek(&p, image, h.e_phoff + i * sizeof p, sizeof p))
            return 0;
        extent = max(extent, end_of(p.p_offset, p.p_filesz));
    }
    for (uint32_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        if (!peek(&s, image, h.e_shoff + i * sizeof s, sizeof s))
            return 0;
        extent = max(extent, s.sh_type == SHT_NOBITS ? 0 : end_of(s.sh_offset, s.sh_size));
    }
    return max(extent, sizeof h);
}

static uint64_t bundle_extent(const void *image) {
    uint64_t count, at = SIM_BUNDLE_HEADER_BYTES, extent = at;
    if (!peek(&count, image, at - sizeof count, sizeof count))
        return 0;
    for (uint64_t i = 0; i < count && i < SIM_BUNDLE_MAX_ENTRIES; i++) {
        uint64_t entry[3]; // offset, size, length of the id behind it
        if (!peek(entry, image, at, sizeof entry))
            return 0;
        at = end_of(at + sizeof entry, entry[2]);
        extent = max(extent, max(at, end_of(entry[0], entry[1])));
    }
    return extent;
}

/** Returns where a zstd frame's blocks begin, and whether a checksum follows them; 0: it is no
 *  frame. Source: RFC 8878, 3.1.1.1. */
static uint64_t frame_blocks(const void *image, uint64_t at, bool *has_checksum) {
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd}, id_bytes[4] = {0, 1, 2, 4};
    uint8_t header[5];
    if (!peek(header, image, at, sizeof header) || memcmp(header, magic, sizeof magic) != 0)
        return 0;
    const uint8_t descriptor = header[4];
    const bool is_single = descriptor >> 5 & 1;
    const uint64_t size_bytes = descriptor >> 6 ? UINT64_C(1) << (descriptor >> 6) : is_single;
    *has_checksum = descriptor >> 2 & 1;
    return at + sizeof header + !is_single + id_bytes[descriptor & 3] + size_bytes;
}

/** Returns the end of a zstd frame. Each block says how long it is, and the last one says that it
 *  is the last. */
static uint64_t frame_end(const void *image, uint64_t at) {
    enum { LAST = 1, REPEATED = 1, BLOCK_BYTES = 3, CHECKSUM_BYTES = 4, MAX_BLOCKS = 1 << 16 };
    bool has_checksum;
    uint32_t block = 0;
    at = frame_blocks(image, at, &has_checksum);
    for (uint32_t i = 0; at && !(block & LAST); i++) {
        block = 0;
        if (i == MAX_BLOCKS || !peek(&block, image, at, BLOCK_BYTES))
            return 0;
        at += BLOCK_BYTES + ((block >> 1 & 3) == REPEATED ? 1 : block >> 3);
    }
    return at && has_checksum ? at + CHECKSUM_BYTES : at;
}

/** Returns the length of a compressed bundle. The first version's header does not have it, so the
 *  contents must say it, if zstd made them. */
static uint64_t compressed_extent(const void *image) {
    enum { VERSION = 4, METHOD = 6, HEADER_1_BYTES = 20, ZSTD = 1 };
    uint8_t header[SIM_COMPRESSED_HEADER_BYTES];
    if (!peek(header, image, 0, sizeof header))
        return 0;
    const bool is_first = header[VERSION] == 1 && header[VERSION + 1] == 0;
    const bool is_zstd = header[METHOD] == ZSTD && header[METHOD + 1] == 0;
    return is_first && is_zstd ? frame_end(image, HEADER_1_BYTES) : sim_compressed_extent(header);
}

size_t sim_object_extent(const void *image) {
    char magic[SIM_BUNDLE_HEADER_BYTES] = {};
    if (!peek(magic, image, 0, SELFMAG))
        return 0;
    uint64_t extent = 0;
    if (!memcmp(magic, ELFMAG, SELFMAG))
        extent = elf_extent(image);
    else if (sim_compressed_is(magic, SELFMAG))
        extent = compressed_extent(image);
    else if (peek(magic, image, 0, sizeof magic) && sim_bundle_is(magic, sizeof magic))
        extent = bundle_extent(image);
    return extent && is_readable(image, extent) ? extent : 0;
}
