// SPDX-License-Identifier: Apache-2.0
// How long an image in the program's memory is. HIP's calls get a bare pointer, so its headers must say; they may be
// damaged, and lead anywhere. They are read by the kernel, which gives an error where a load would end the process.
#include "object.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/** Copies bytes from an address of this process; false if they are not all there. */
static bool peek(void *out, const void *image, uint64_t offset, size_t bytes) {
    uint64_t at = (uintptr_t)image + offset;
    if (at < offset || at + bytes < at) {
        return false;
    }
    struct iovec to = {out, bytes}, from = {(void *)(uintptr_t)at, bytes};
    ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) { // a sandbox's choice: trust the headers
        memcpy(out, (const void *)(uintptr_t)at, bytes);
        return true;
    }
    return got == (ssize_t)bytes;
}

/** Whether the last byte of each page of a range can be read. */
static bool is_readable(const void *image, uint64_t bytes) {
    enum { PAGE = 4096 };
    uint8_t byte;
    uint64_t first = PAGE - (uintptr_t)image % PAGE - 1;
    for (uint64_t at = first; at < bytes; at += PAGE) {
        if (!peek(&byte, image, at, 1)) {
            return false;
        }
    }
    return peek(&byte, image, bytes - 1, 1);
}

static uint64_t max(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/** The end of a part, UINT64_MAX if there can be none. */
static uint64_t end_of(uint64_t offset, uint64_t bytes) {
    return offset + bytes < offset ? UINT64_MAX : offset + bytes;
}

/** 0: not all of its tables are there. */
static uint64_t elf_extent(const void *image) {
    Elf64_Ehdr h;
    if (!peek(&h, image, 0, sizeof h)) {
        return 0;
    }
    uint64_t extent = end_of(h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr));
    for (uint32_t i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        if (!peek(&p, image, h.e_phoff + i * sizeof p, sizeof p)) {
            return 0;
        }
        extent = max(extent, end_of(p.p_offset, p.p_filesz));
    }
    for (uint32_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        if (!peek(&s, image, h.e_shoff + i * sizeof s, sizeof s)) {
            return 0;
        }
        extent = max(extent, s.sh_type == SHT_NOBITS ? 0 : end_of(s.sh_offset, s.sh_size));
    }
    return max(extent, sizeof h);
}

static uint64_t bundle_extent(const void *image) {
    uint64_t count, at = SIM_BUNDLE_HEADER_BYTES, extent = at;
    if (!peek(&count, image, at - sizeof count, sizeof count)) {
        return 0;
    }
    for (uint64_t i = 0; i < count && i < SIM_BUNDLE_MAX_ENTRIES; i++) {
        uint64_t entry[3]; // offset, size, length of the id behind it
        if (!peek(entry, image, at, sizeof entry)) {
            return 0;
        }
        at = end_of(at + sizeof entry, entry[2]);
        extent = max(extent, max(at, end_of(entry[0], entry[1])));
    }
    return extent;
}

static uint64_t compressed_extent(const void *image) {
    uint8_t header[SIM_COMPRESSED_HEADER_BYTES];
    return peek(header, image, 0, sizeof header) ? sim_compressed_extent(header) : 0;
}

size_t sim_object_extent(const void *image) {
    char magic[SIM_BUNDLE_HEADER_BYTES] = {};
    if (!peek(magic, image, 0, SELFMAG)) {
        return 0;
    }
    uint64_t extent = 0;
    if (!memcmp(magic, ELFMAG, SELFMAG)) {
        extent = elf_extent(image);
    } else if (sim_compressed_is(magic, SELFMAG)) {
        extent = compressed_extent(image);
    } else if (peek(magic, image, 0, sizeof magic) && sim_bundle_is(magic, sizeof magic)) {
        extent = bundle_extent(image);
    }
    return extent && is_readable(image, extent) ? extent : 0;
}
