// SPDX-License-Identifier: Apache-2.0
// Arrays: made, described, freed. Kernels reach arrays through images alone, which are not
// executed, so that here they are for copies.
#include "arrays.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what handles stand for

// ---- elements

/** Returns the bits of a channel; 0 for an unknown format. */
static unsigned bits_of(hipArray_Format format) {
    switch (format) {
    case HIP_AD_FORMAT_UNSIGNED_INT8:
    case HIP_AD_FORMAT_SIGNED_INT8:
        return 8;
    case HIP_AD_FORMAT_UNSIGNED_INT16:
    case HIP_AD_FORMAT_SIGNED_INT16:
    case HIP_AD_FORMAT_HALF:
        return 16;
    case HIP_AD_FORMAT_UNSIGNED_INT32:
    case HIP_AD_FORMAT_SIGNED_INT32:
    case HIP_AD_FORMAT_FLOAT:
        return 32;
    }
    return 0;
}

enum { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT };

/** Finds the format of channels of one width. Returns false if there is none. */
static bool format_of(const hipChannelFormatDesc *d, hipArray_Format *format, unsigned *channels) {
    static const struct {
        int bits, kind;
        hipArray_Format format;
    } known[] = {{8, KIND_SIGNED, HIP_AD_FORMAT_SIGNED_INT8},
                 {8, KIND_UNSIGNED, HIP_AD_FORMAT_UNSIGNED_INT8},
                 {16, KIND_SIGNED, HIP_AD_FORMAT_SIGNED_INT16},
                 {16, KIND_UNSIGNED, HIP_AD_FORMAT_UNSIGNED_INT16},
                 {16, KIND_FLOAT, HIP_AD_FORMAT_HALF},
                 {32, KIND_SIGNED, HIP_AD_FORMAT_SIGNED_INT32},
                 {32, KIND_UNSIGNED, HIP_AD_FORMAT_UNSIGNED_INT32},
                 {32, KIND_FLOAT, HIP_AD_FORMAT_FLOAT}};
    *channels = (d->x != 0) + (d->y != 0) + (d->z != 0) + (d->w != 0);
    const bool alike = (!d->y || d->y == d->x) && (!d->z || (d->z == d->x && d->y)) &&
                       (!d->w || (d->w == d->x && d->z));
    for (size_t i = 0; alike && i < sizeof known / sizeof *known; i++) {
        if (known[i].bits == d->x && known[i].kind == d->f) {
            *format = known[i].format;
            return true;
        }
    }
    return false;
}

static void describe(hipChannelFormatDesc *out, const HIP_ARRAY3D_DESCRIPTOR *d) {
    const int bits = (int)bits_of(d->Format);
    const unsigned n = d->NumChannels;
    const bool is_float = d->Format == HIP_AD_FORMAT_HALF || d->Format == HIP_AD_FORMAT_FLOAT;
    const bool is_signed = d->Format & 8;
    *out = (hipChannelFormatDesc){bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0,
                                  is_float    ? KIND_FLOAT
                                  : is_signed ? KIND_SIGNED
                                              : KIND_UNSIGNED};
}

hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w, int kind) {
    return (hipChannelFormatDesc){x, y, z, w, kind};
}

// ---- made and freed

static size_t or_one(size_t count) {
    return count ? count : 1;
}

/** Computes the bytes of an array's row and of all of it. Returns false if they overflow. */
static bool measure(const HIP_ARRAY3D_DESCRIPTOR *d, size_t element, size_t *pitch, size_t *bytes) {
    return !__builtin_mul_overflow(d->Width, element, pitch) &&
           !__builtin_mul_overflow(*pitch, or_one(d->Height), bytes) &&
           !__builtin_mul_overflow(*bytes, or_one(d->Depth), bytes);
}

static hipError_t create(hipArray_t *out, const HIP_ARRAY3D_DESCRIPTOR *d) {
    enum { KNOWN_FLAGS = 0xf }; // layered, surface, cube map, gather
    const unsigned bits = bits_of(d->Format), n = d->NumChannels;
    if (!d->Width || (d->Depth && !d->Height) || !bits || (n != 1 && n != 2 && n != 4) ||
        d->Flags & ~(unsigned)KNOWN_FLAGS) {
        return hipErrorInvalidValue;
    }
    struct hipArray *a = calloc(1, sizeof *a);
    if (!a)
        return hipErrorOutOfMemory;
    *a = (struct hipArray){.desc = *d, .element = bits / 8 * n};
    size_t bytes;
    hipError_t error =
        measure(d, a->element, &a->pitch, &bytes) ? hipSuccess : hipErrorInvalidValue;
    error = error == hipSuccess ? sim_hip_alloc(sim_hip_device(), (void **)&a->data, bytes) : error;
    if (error == hipSuccess && !sim_handle_add(SIM_HANDLE_ARRAY, a)) {
        sim_memory_free(sim_hip.memory, (uintptr_t)a->data);
        error = hipErrorOutOfMemory;
    }
    if (error != hipSuccess)
        free(a);
    else
        *out = a;
    return error;
}

hipError_t hipArray3DCreate(hipArray_t *out, const HIP_ARRAY3D_DESCRIPTOR *desc) {
    SIM_HIP_START_UNCAPTURED();
    return sim_hip_result(out && desc ? create(out, desc) : hipErrorInvalidValue);
}

hipError_t hipArrayCreate(hipArray_t *out, const HIP_ARRAY_DESCRIPTOR *desc) {
    SIM_HIP_START_UNCAPTURED();
    if (!out || !desc)
        return sim_hip_result(hipErrorInvalidValue);
    const HIP_ARRAY3D_DESCRIPTOR d = {desc->Width,  desc->Height,      0,
                                      desc->Format, desc->NumChannels, 0};
    return sim_hip_result(create(out, &d));
}

hipError_t hipMalloc3DArray(hipArray_t *out, const hipChannelFormatDesc *desc, hipExtent extent,
                            unsigned flags) {
    SIM_HIP_START_UNCAPTURED();
    HIP_ARRAY3D_DESCRIPTOR d = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    if (!out || !desc || !format_of(desc, &d.Format, &d.NumChannels))
        return sim_hip_result(hipErrorInvalidValue);
    return sim_hip_result(create(out, &d));
}

hipError_t hipMallocArray(hipArray_t *out, const hipChannelFormatDesc *desc, size_t width,
                          size_t height, unsigned flags) {
    return hipMalloc3DArray(out, desc, (hipExtent){width, height, 0}, flags);
}

hipError_t hipArrayDestroy(hipArray_t array) {
    SIM_HIP_START_UNCAPTURED();
    if (!array)
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    const bool is_there = sim_handle_remove(SIM_HANDLE_ARRAY, array);
    pthread_mutex_unlock(&lock);
    if (!is_there)
        return sim_hip_result(hipErrorContextIsDestroyed); // as AMD's runtime has it
    hipError_t error = hipFree(array->data);
    free(array);
    return error;
}

hipError_t hipFreeArray(hipArray_t array) {
    return hipArrayDestroy(array);
}

void sim_arrays_free_all(void) {
    for (hipArray_t array; (array = sim_handle_take(SIM_HANDLE_ARRAY));)
        free(array);
}

// ---- what an array is

bool sim_array_read(struct hipArray *out, hipArray_const_t array) {
    pthread_mutex_lock(&lock);
    const bool is_array = array && sim_handle_is(SIM_HANDLE_ARRAY, array);
    if (is_array)
        *out = *array;
    pthread_mutex_unlock(&lock);
    return is_array;
}

hipError_t hipArray3DGetDescriptor(HIP_ARRAY3D_DESCRIPTOR *desc, hipArray_t array) {
    SIM_HIP_START();
    struct hipArray a;
    if (!desc || !sim_array_read(&a, array))
        return sim_hip_result(desc ? hipErrorInvalidHandle : hipErrorInvalidValue);
    *desc = a.desc;
    return hipSuccess;
}

hipError_t hipArrayGetDescriptor(HIP_ARRAY_DESCRIPTOR *desc, hipArray_t array) {
    HIP_ARRAY3D_DESCRIPTOR d;
    hipError_t error = hipArray3DGetDescriptor(desc ? &d : nullptr, array);
    if (error == hipSuccess)
        *desc = (HIP_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
    return error;
}

hipError_t hipArrayGetInfo(hipChannelFormatDesc *desc, hipExtent *extent, unsigned *flags,
                           hipArray_t array) {
    HIP_ARRAY3D_DESCRIPTOR d;
    hipError_t error = hipArray3DGetDescriptor(&d, array);
    if (error != hipSuccess)
        return error;
    if (desc)
        describe(desc, &d);
    if (extent)
        *extent = (hipExtent){d.Width, d.Height, d.Depth};
    if (flags)
        *flags = d.Flags;
    return hipSuccess;
}

hipError_t hipGetChannelDesc(hipChannelFormatDesc *desc, hipArray_const_t array) {
    HIP_ARRAY3D_DESCRIPTOR d;
    hipError_t error = hipArray3DGetDescriptor(desc ? &d : nullptr, (hipArray_t)array);
    if (error == hipSuccess)
        describe(desc, &d);
    return error;
}

/** Returns whether `count` from `at` on lie in `all`. */
static bool lies_in(size_t at, size_t count, size_t all) {
    return at <= all && count <= all - at;
}

hipError_t sim_array_side(sim_side *out, hipArray_const_t array, hipPos pos, hipExtent extent) {
    struct hipArray a;
    if (!sim_array_read(&a, array))
        return array ? hipErrorInvalidHandle : hipErrorInvalidValue;
    if (!lies_in(pos.x, extent.width, a.pitch) ||
        !lies_in(pos.y, extent.height, or_one(a.desc.Height)) ||
        !lies_in(pos.z, extent.depth, or_one(a.desc.Depth))) {
        return hipErrorInvalidValue;
    }
    const size_t slice = a.pitch * or_one(a.desc.Height);
    *out = (sim_side){a.data + pos.z * slice + pos.y * a.pitch + pos.x, a.pitch, slice};
    return hipSuccess;
}

hipError_t sim_array_at(uint8_t **out, hipArray_const_t array, size_t x, size_t y) {
    sim_side side;
    hipError_t error = sim_array_side(&side, array, (hipPos){x, y, 0}, (hipExtent){1, 1, 1});
    if (error == hipSuccess)
        *out = side.base;
    return error;
}
