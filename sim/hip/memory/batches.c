// SPDX-License-Identifier: Apache-2.0
// Several copies by one call. A stream makes them one behind another.
#include "arrays.h"

constexpr size_t NO_COPY = SIZE_MAX; // no one copy is at fault

enum { ORDER_STREAM = 1, ORDER_NOW = 2, ORDER_ANY = 3 };

/** Where the copies' sources may be read: ORDER_NOW asks the call to wait until they have been. */
static bool is_order(int order) {
    return order >= ORDER_STREAM && order <= ORDER_ANY;
}

static bool are_flags(unsigned flags) {
    enum { OVERLAP = 1 }; // with kernels: a wish
    return (flags & ~(unsigned)OVERLAP) == 0;
}

/** Checks attributes: attribute i is that of the copies from starts[i] on, the first from 0. */
static bool are_good(const hipMemcpyAttributes *attributes, const size_t *starts, size_t num,
                     size_t count) {
    if (!num)
        return true;
    if (!attributes || !starts || starts[0] != 0)
        return false;
    for (size_t i = 0; i < num; i++)
        if (!is_order(attributes[i].srcAccessOrder) || !are_flags(attributes[i].flags) ||
            starts[i] >= count || (i && starts[i] <= starts[i - 1])) {
            return false;
        }
    return true;
}

static hipError_t failed(size_t *out, size_t index, hipError_t error) {
    if (out)
        *out = index;
    return sim_hip_result(error);
}

/** Copies sizes[i] bytes from srcs[i] to dsts[i] for each i, in the stream's order. Where they lie
 *  is seen by their addresses; hints are checked and change nothing. *fail_index, which may be
 *  null, gets the index of the copy that is refused, SIZE_MAX if it is none; the copies before it
 *  are made. */
hipError_t hipMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes, size_t count,
                               hipMemcpyAttributes *attributes, size_t *starts, size_t num,
                               size_t *fail_index, hipStream_t stream) {
    SIM_HIP_START();
    if (!dsts || !srcs || !sizes || !count || !are_good(attributes, starts, num, count))
        return failed(fail_index, NO_COPY, hipErrorInvalidValue);
    if (!sim_hip_stream(stream))
        return failed(fail_index, NO_COPY, hipErrorContextIsDestroyed);
    for (size_t i = 0, a = 0; i < count; i++) {
        while (a + 1 < num && starts[a + 1] <= i)
            a++;
        const bool waits = num && attributes[a].srcAccessOrder == ORDER_NOW;
        hipError_t error =
            sim_hip_copy(dsts[i], srcs[i], sizes[i], hipMemcpyDefault, stream, !waits);
        if (error != hipSuccess)
            return failed(fail_index, i, error);
    }
    return hipSuccess;
}

// ---- volumes

enum { OPERAND_POINTER = 1, OPERAND_ARRAY = 2 };

/** A side of a copy as hipMemcpy3D knows it. */
typedef struct operand {
    hipArray_t array;
    hipPos pos;
    hipPitchedPtr ptr;
} operand;

/** Reads a side whose elements have a size. A row's length and a layer's height of 0 are those of
 *  the copy. */
static hipError_t read_operand(operand *out, const hipMemcpy3DOperand *o, hipExtent extent,
                               size_t element) {
    *out = (operand){};
    if (o->type == OPERAND_ARRAY) {
        out->array = o->array.array;
        out->pos = (hipPos){o->array.offset.x, o->array.offset.y, o->array.offset.z};
        return out->array ? hipSuccess : hipErrorInvalidHandle;
    }
    const size_t length = o->ptr.rowLength ? o->ptr.rowLength : extent.width;
    const size_t height = o->ptr.layerHeight ? o->ptr.layerHeight : extent.height;
    size_t pitch;
    if (o->type != OPERAND_POINTER || !o->ptr.ptr || length < extent.width ||
        height < extent.height || __builtin_mul_overflow(length, element, &pitch)) {
        return hipErrorInvalidValue;
    }
    out->ptr = (hipPitchedPtr){o->ptr.ptr, pitch, pitch, height};
    return hipSuccess;
}

/** Finds the size of an element: that of an array that takes part, else a byte. */
static hipError_t find_element(size_t *out, const hipMemcpy3DBatchOp *op) {
    const hipMemcpy3DOperand *sides[] = {&op->src, &op->dst};
    *out = 1;
    for (size_t i = 0; i < 2; i++) {
        struct hipArray array;
        if (sides[i]->type != OPERAND_ARRAY)
            continue;
        if (!sides[i]->array.array || !sim_array_read(&array, sides[i]->array.array))
            return hipErrorInvalidHandle;
        *out = array.element;
    }
    return hipSuccess;
}

static hipError_t copy_volume(const hipMemcpy3DBatchOp *op, hipStream_t stream) {
    size_t element;
    operand from, to;
    sim_box box;
    if (!is_order(op->srcAccessOrder) || !are_flags(op->flags))
        return hipErrorInvalidValue;
    hipError_t error = find_element(&element, op);
    if (error == hipSuccess)
        error = read_operand(&from, &op->src, op->extent, element);
    if (error == hipSuccess)
        error = read_operand(&to, &op->dst, op->extent, element);
    if (error != hipSuccess)
        return error;
    const hipMemcpy3DParms copy = {.srcArray = from.array,
                                   .srcPos = from.pos,
                                   .srcPtr = from.ptr,
                                   .dstArray = to.array,
                                   .dstPos = to.pos,
                                   .dstPtr = to.ptr,
                                   .extent = op->extent,
                                   .kind = hipMemcpyDefault};
    error = sim_hip_volume(&box, &copy);
    const bool waits = op->srcAccessOrder == ORDER_NOW;
    return error == hipSuccess ? sim_hip_box(&box, hipMemcpyDefault, stream, !waits) : error;
}

/** The same for volumes of memory or arrays, whose extents and row lengths count elements of the
 *  array that takes part, else bytes. */
hipError_t hipMemcpy3DBatchAsync(size_t count, hipMemcpy3DBatchOp *ops, size_t *fail_index,
                                 unsigned long long flags, hipStream_t stream) {
    SIM_HIP_START();
    if (!count || !ops || flags)
        return failed(fail_index, NO_COPY, hipErrorInvalidValue);
    if (!sim_hip_stream(stream))
        return failed(fail_index, NO_COPY, hipErrorContextIsDestroyed);
    for (size_t i = 0; i < count; i++) {
        hipError_t error = copy_volume(&ops[i], stream);
        if (error != hipSuccess)
            return failed(fail_index, i, error);
    }
    return hipSuccess;
}
