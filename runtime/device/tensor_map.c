// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what NVIDIA's copy engine can reach, told before the driver refuses it by a number.
//
// Sources: CUDA driver API, cuTensorMapEncodeTiled.
#include "../runtime.h"

enum { ALIGN = 16, MOST_BOX = 256 };
constexpr int64_t most_size = INT64_C(1) << 32, most_stride_bytes = INT64_C(1) << 40;

static bool fits_box(const qni_tensor_map *map, int i, qni_reason *why) {
    if (map->box[i] >= 1 && map->box[i] <= MOST_BOX)
        return true;
    return qni_no(why, "a box of %s has %u in dimension %d, takes 1 to %d", map->name, map->box[i],
                  i, MOST_BOX);
}

static bool fits_row(const qni_tensor_map *map, qni_reason *why) {
    const int64_t bytes = map->box[0] * qni_dtype_bytes(map->dtype);
    if (bytes % ALIGN != 0)
        return qni_no(why, "a row of a box of %s has %ld bytes, needs a multiple of %d", map->name,
                      (long)bytes, ALIGN);
    if (map->swizzle_bytes && bytes > map->swizzle_bytes)
        return qni_no(why, "a row of a box of %s has %ld bytes, the swizzle %u", map->name,
                      (long)bytes, map->swizzle_bytes);
    return true;
}

/** A dimension of one element may carry any stride: nobody steps along it. */
static bool fits_stride(const qni_tensor_map *map, int i, qni_reason *why) {
    if (map->size[i] == 1)
        return true;
    if (map->stride[i] <= 0 || map->stride[i] >= most_stride_bytes)
        return qni_no(why, "stride %ld of %s is not within 1 to 2^40 bytes", (long)map->stride[i],
                      map->name);
    const int64_t bytes = map->stride[i] * qni_dtype_bytes(map->dtype);
    if (bytes % ALIGN == 0 && bytes < most_stride_bytes)
        return true;
    return qni_no(why, "stride %ld of %s is %ld bytes, needs a multiple of %d below 2^40",
                  (long)map->stride[i], map->name, (long)bytes, ALIGN);
}

static bool fits_size(const qni_tensor_map *map, int i, qni_reason *why) {
    if (map->size[i] >= 1 && map->size[i] <= most_size)
        return true;
    return qni_no(why, "%s has %ld in dimension %d, takes 1 to 2^32", map->name, (long)map->size[i],
                  i);
}

bool qni_tensor_map_fits(const qni_tensor_map *map, qni_reason *why) {
    if ((uintptr_t)map->data % ALIGN != 0)
        return qni_no(why, "%s is not aligned to %d bytes", map->name, ALIGN);
    for (int i = 0; i < map->rank; i++)
        if (!fits_size(map, i, why) || !fits_box(map, i, why) ||
            (i > 0 && !fits_stride(map, i, why)))
            return false;
    return fits_row(map, why);
}

qn_status qni_tensor_map_encode(const qn_device *device, const qni_tensor_map *map, void *out) {
    qni_reason why;
    if (!device->backend->tensor_map_encode)
        return QN_FAIL(QN_E_UNSUPPORTED, "tensor map of %s: %s has no copies of boxes", map->name,
                       device->info.spec);
    if (!qni_tensor_map_fits(map, &why))
        return QN_FAIL(QN_E_UNSUPPORTED, "tensor map: %s", why.text);
    return device->backend->tensor_map_encode(device, map, out);
}
