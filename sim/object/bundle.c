// SPDX-License-Identifier: Apache-2.0
// Offload bundles: one file with a code object for each target, as hipcc and `clang --offload`
// write them.
//
// Layout (clang's ClangOffloadBundler documentation): 24 bytes of magic, u64 number of entries,
// then for each u64 offset, u64 size, u64 length of its id, the id
// ("hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-").
#include "object.h"
#include "reader.h"

#include <string.h>

static const char magic[] = "__CLANG_OFFLOAD_BUNDLE__";
enum { MAGIC_BYTES = sizeof magic - 1 };
static_assert(MAGIC_BYTES + 8 == SIM_BUNDLE_HEADER_BYTES);

/** Returns whether the image is a bundle. Reads no byte past the first that differs, as an image
 *  may come without its size, and be shorter. */
bool sim_bundle_is(const void *image, size_t bytes) {
    return bytes >= SIM_BUNDLE_HEADER_BYTES && strncmp(image, magic, MAGIC_BYTES) == 0;
}

typedef struct entry {
    uint64_t offset, size, id_bytes;
    const char *id;
} entry;

/** Reads the entry at *at and moves past it. Returns false if the image ends first. */
static bool read_entry(const uint8_t *image, size_t bytes, size_t *at, entry *out) {
    if (bytes - *at < 24)
        return false;
    memcpy(out, image + *at, 24);
    *at += 24;
    if (out->id_bytes > bytes - *at)
        return false;
    out->id = (const char *)image + *at;
    *at += out->id_bytes;
    return true;
}

/** Returns whether the chip has all features of a list: ":sramecc+:xnack-". What the list leaves
 *  out may be either way. */
static bool has_features(const sim_chip *chip, const char *list, size_t bytes) {
    const char *own = strchr(chip->gcn_name, ':');
    for (size_t at = 0, end; at < bytes; at = end) {
        for (end = at + 1; end < bytes && list[end] != ':';)
            end++;
        const void *found = own ? memmem(own, strlen(own), list + at, end - at) : nullptr;
        if (!found || (list[end - 1] != '+' && list[end - 1] != '-'))
            return false;
    }
    return true;
}

/** Returns whether an id's last part names the target, with features that the chip has:
 *  "…--gfx942:xnack-". */
static bool id_fits(const entry *e, const sim_chip *chip, const char *name) {
    const size_t length = strlen(name);
    for (uint64_t i = 0; i + length <= e->id_bytes; i++) {
        const bool begins = i > 0 && e->id[i - 1] == '-';
        const bool ends = i + length == e->id_bytes || e->id[i + length] == ':';
        if (begins && ends && memcmp(e->id + i, name, length) == 0)
            return has_features(chip, e->id + i + length, e->id_bytes - i - length);
    }
    return false;
}

sim_object_status sim_bundle_find(const sim_chip *chip, const void *image, size_t bytes,
                                  const void **out, size_t *out_bytes, sim_complaint *c) {
    uint64_t count;
    memcpy(&count, (const uint8_t *)image + MAGIC_BYTES, sizeof count);
    const char *generic = sim_chip_mach_name(chip->generic_mach);
    size_t at = SIM_BUNDLE_HEADER_BYTES;
    *out = nullptr;
    for (uint64_t i = 0; i < count && i < SIM_BUNDLE_MAX_ENTRIES; i++) {
        entry e;
        if (!read_entry(image, bytes, &at, &e) || e.offset > bytes || e.size > bytes - e.offset) {
            sim_complain(c, "entry %llu of %llu lies outside the offload bundle of %zu bytes",
                         (unsigned long long)i, (unsigned long long)count, bytes);
            return SIM_OBJECT_INVALID;
        }
        const bool exact = id_fits(&e, chip, chip->name);
        if (exact || (!*out && generic && id_fits(&e, chip, generic))) {
            *out = (const uint8_t *)image + e.offset;
            *out_bytes = e.size;
        }
        if (exact)
            break;
    }
    if (!*out) {
        sim_complain(c, "none of the offload bundle's %llu entries is for %s",
                     (unsigned long long)count, chip->gcn_name);
        return SIM_OBJECT_WRONG_ARCH;
    }
    return SIM_OBJECT_OK;
}
