// SPDX-License-Identifier: Apache-2.0
// The images that the build embeds, each compressed by zstd on its own.
#include "../runtime.h"
#include "image.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

const qni_image *qni_image_find(const char *id, const char *target) {
    for (const qni_image *image = qni_images; image->id; image++)
        if (strcmp(image->id, id) == 0 && strcmp(image->target, target) == 0)
            return image;
    return nullptr;
}

qn_status qni_image_unpack(const qni_image *image, void **data, size_t *bytes) {
    const unsigned long long size = ZSTD_getFrameContentSize(image->packed, image->packed_bytes);
    const bool is_ptx = strncmp(image->target, "sm_", 3) == 0;
    char *out = calloc(1, size + is_ptx);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    qn_status st = QN_OK;
    if (!out || !context)
        st = QN_FAIL(QN_E_MEMORY, "image %s: out of memory for %llu bytes", image->id, size);
    else if (ZSTD_decompressDCtx(context, out, size, image->packed, image->packed_bytes) != size)
        st = QN_FAIL(QN_E_IO, "image %s for %s is damaged", image->id, image->target);
    ZSTD_freeDCtx(context);
    if (st != QN_OK) {
        free(out);
        return st;
    }
    *data = out;
    *bytes = size + is_ptx;
    return QN_OK;
}
