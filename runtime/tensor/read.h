// SPDX-License-Identifier: Apache-2.0
// The tensors of a public function's call: stated, looked at once, and read.
//
// A function states in one initialiser what a tensor must be, and reads the tensor: the statement
// then holds the tensor's data, dtype, sizes and strides, or the call has failed with a message
// that names the tensor. The function itself compares what one tensor says about the next. In the
// end qni_check_apart compares where tensors lie.
#ifndef QNI_READ_H
#define QNI_READ_H

#include "../runtime.h"

enum { QNI_MAX_DIMS = 8 };

/** Who asks: the function's name, for messages, and its stream. */
typedef struct qni_call {
    const char *op;
    const qn_stream *stream;
} qni_call;

typedef struct qni_tensor {
    // What it must be.
    const char *name;
    const DLTensor *t;
    int ndim;
    uint32_t dtypes;               // a set of them; 0 without `like`: any
    const struct qni_tensor *like; // read before: its dtype is accepted as well
    const int64_t *shape;          // of ndim sizes; below 0: any; null: all; read: null
    int align;                     // bytes; 0: an element's
    bool may_be_null;
    bool may_be_on_host;             // on the CPU, whatever the stream's device is
    bool has_rows;                   // the last dimension's elements are neighbours
    bool is_written;                 // no two indices name one element; it meets no other tensor
    const struct qni_tensor *may_be; // but this one, in place; null: none
    // What it is.
    void *data; // null: it is not there, or empty
    qni_dtype dtype;
    const int64_t *size;
    int64_t stride[QNI_MAX_DIMS]; // a contiguous tensor's, where it leads to no element
    uintptr_t begin, end;         // what its elements lie within
} qni_tensor;

/** Returns whether a tensor is on the CPU. */
bool qni_is_on_host(const DLTensor *t);
/** Reads the tensors one after the other, each in the order of the members above. */
qn_status qni_read_tensors(const qni_call *call, qni_tensor *tensors, int count);
/** Checks that each tensor that is written shares no byte with any other of the tensors, which have
 *  been read or are null. Side-by-side slices of one tensor pass, and so does what a tensor may
 *  be. */
qn_status qni_check_apart(const qni_call *call, const qni_tensor *tensors, int count);

/** States a contiguous vector of *count i32; a null count accepts any length. */
static inline qni_tensor qni_indices(const char *name, const DLTensor *t, const int64_t *count) {
    return (qni_tensor){name, t, 1, qni_of_i32, .shape = count, .has_rows = true};
}
/** States one f32 that results are divided by. qni_validate_scale looks at its value. */
static inline qni_tensor qni_given_scale(const char *name, const DLTensor *t) {
    static const int64_t one = 1;
    return (qni_tensor){name, t, 1, qni_of_f32, .shape = &one};
}

#endif
