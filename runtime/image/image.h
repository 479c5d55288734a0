// SPDX-License-Identifier: Apache-2.0
// The images, recipes and sources that the build embeds (cmake/kernels.cmake writes the tables).
#ifndef QNI_IMAGE_H
#define QNI_IMAGE_H

#include <quern/core.h>

#include <stddef.h>

/** A code object for one target, compressed by zstd; the table ends with a null id. Images of one
 *  source are much alike: all but the first are packed as differences from another, the base. */
typedef struct qni_image {
    const char *id, *target;
    const unsigned char *packed;
    size_t packed_bytes;
    struct {
        const char *id, *target; // the id is empty without a base
    } base;
} qni_image;

/** How an image is compiled. `source` is a path in the tree; `defines` are -D flags, separated by
 *  blanks, of which "-DN=1,gfx9=2" is -DN=2 on targets whose names begin with gfx9, and -DN=1 on
 *  others. `sgpr_spills` says how many SGPRs the image's kernels may spill: with "gfx9=24 gfx12=2"
 *  24 on targets whose names begin with gfx9, 2 on gfx12, and none on others. */
typedef struct qni_image_recipe {
    const char *id, *source, *defines, *sgpr_spills;
} qni_image_recipe;

/** A device source file: its path in the tree and its text. */
typedef struct qni_image_source {
    const char *path, *text;
} qni_image_source;

extern const qni_image qni_images[];
extern const qni_image_recipe qni_image_recipes[];
extern const qni_image_source qni_image_sources[];
extern const char *const qni_device_flags[]; // for every target; AMD's or PTX's flags follow
extern const char *const qni_amd_flags[], *const qni_ptx_flags[];

/** Returns the image of that id which was built for the target of that name; null if there is
 *  none. */
const qni_image *qni_image_find(const char *id, const char *target);

/** Unpacks an image into memory that the caller frees. A zero that `bytes` counts ends PTX, as the
 *  driver takes a C string. Errors: QN_E_MEMORY, QN_E_IO (the library's file is damaged). */
qn_status qni_image_unpack(const qni_image *image, void **data, size_t *bytes);

#endif
