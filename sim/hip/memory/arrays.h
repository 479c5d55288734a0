// SPDX-License-Identifier: Apache-2.0
// Arrays: grids of elements in device memory. Here their layout is plain: rows, in slices.
#ifndef SIM_HIP_ARRAYS_H
#define SIM_HIP_ARRAYS_H

#include "../runtime.h"

struct hipArray {
    HIP_ARRAY3D_DESCRIPTOR desc; // elements; Height and Depth are 0 where the array lacks them
    size_t element;              // bytes
    size_t pitch;                // bytes
    uint8_t *data;               // guest memory
};

/** A side of a copy: where it begins, and how far its rows and slices lie apart, in bytes. */
typedef struct sim_side {
    uint8_t *base;
    size_t pitch, slice;
} sim_side;

/** Copies what an array is, which another thread may free. Returns false if the handle is no
 *  array's. */
bool sim_array_read(struct hipArray *out, hipArray_const_t array);
/** Finds where bytes begin in an array that go on to its end. Errors as for sim_array_side. */
hipError_t sim_array_at(uint8_t **out, hipArray_const_t array, size_t x, size_t y);
/** Finds a part of an array, whose width and x are in bytes. Errors: hipErrorInvalidHandle if it is
 *  no array, hipErrorInvalidValue if the part does not lie in it. */
hipError_t sim_array_side(sim_side *out, hipArray_const_t array, hipPos pos, hipExtent extent);
/** Frees the arrays that the program has left. */
void sim_arrays_free_all(void);

#endif
