// SPDX-License-Identifier: Apache-2.0
// The images, recipes and sources that the build embeds (cmake/kernels.cmake writes the tables).
#ifndef QNI_IMAGE_H
#define QNI_IMAGE_H

#include <stddef.h>

/** A code object for one target; the table ends with a null id. */
typedef struct qni_image {
    const char *id, *target;
    const unsigned char *data;
    size_t bytes;
} qni_image;

/** How an image is compiled: its source and its own -D flags, separated by blanks. And how many
 *  SGPRs its kernels may spill: "gfx9=24 gfx12=2" on targets whose names begin so, on others
 *  none. */
typedef struct qni_image_recipe {
    const char *id, *source, *defines, *sgpr_spills;
} qni_image_recipe;

/** A device source file as text, by its path in the tree. */
typedef struct qni_image_source {
    const char *path, *text;
} qni_image_source;

extern const qni_image qni_images[];
extern const qni_image_recipe qni_image_recipes[];
extern const qni_image_source qni_image_sources[];
extern const char *const qni_device_flags[]; // of every target; then AMD's, or those that give PTX
extern const char *const qni_amd_flags[], *const qni_ptx_flags[];

#endif
