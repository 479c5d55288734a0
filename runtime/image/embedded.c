// SPDX-License-Identifier: Apache-2.0
// The images that the build embeds, compressed by zstd: the first of each source whole, others as
// differences from it.
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

/** Unpacks a frame, given what it is a difference from. Returns whether the frame is sound. */
static bool unpack_frame(ZSTD_DCtx *context, const qni_image *image, void *out, size_t bytes,
                         const void *base, size_t base_bytes) {
    return !ZSTD_isError(ZSTD_DCtx_refPrefix(context, base, base_bytes)) &&
           ZSTD_decompressDCtx(context, out, bytes, image->packed, image->packed_bytes) == bytes;
}

/** Unpacks an image, as its file was, into memory that the caller frees, with a zero behind it. */
static qn_status unpack(const qni_image *image, void **data, size_t *bytes) {
    void *base = nullptr;
    size_t base_bytes = 0;
    if (*image->base.id) { // the chain ends: a base stands before its image in the table
        const qni_image *from = qni_image_find(image->base.id, image->base.target);
        const qn_status st = unpack(from, &base, &base_bytes);
        if (st != QN_OK)
            return st;
    }
    const unsigned long long size = ZSTD_getFrameContentSize(image->packed, image->packed_bytes);
    char *out = calloc(1, size + 1);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    qn_status st = QN_OK;
    if (!out || !context)
        st = QN_FAIL(QN_E_MEMORY, "image %s: out of memory for %llu bytes", image->id, size);
    else if (!unpack_frame(context, image, out, size, base, base_bytes))
        st = QN_FAIL(QN_E_IO, "image %s for %s is damaged", image->id, image->target);
    ZSTD_freeDCtx(context);
    free(base);
    if (st != QN_OK) {
        free(out);
        return st;
    }
    *data = out;
    *bytes = size;
    return QN_OK;
}

qn_status qni_image_unpack(const qni_image *image, void **data, size_t *bytes) {
    const bool is_ptx = strncmp(image->target, "sm_", 3) == 0;
    const qn_status st = unpack(image, data, bytes);
    if (st == QN_OK && is_ptx)
        ++*bytes;
    return st;
}
