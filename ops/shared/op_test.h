// SPDX-License-Identifier: Apache-2.0
// For the families' tests: tensors on the CPU that hold their shape and memory, and a check of what
// a refusal says.
#ifndef QNI_OP_TEST_H
#define QNI_OP_TEST_H

#include "elements.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_DIMS = 4, ROOM = 1 << 16 };

/** A tensor on the CPU, with its shape and memory. */
typedef struct box {
    DLTensor t;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
    alignas(64) uint8_t data[ROOM];
} box;

static qn_device *cpu;
static qn_stream *stream;

static inline int open_cpu(void **) {
    return qn_device_open(&cpu, "cpu") != QN_OK || qn_stream_create(&stream, cpu) != QN_OK;
}
static inline int close_cpu(void **) {
    qn_stream_destroy(stream);
    qn_device_close(cpu);
    return 0;
}

/** Makes b a contiguous tensor of poison, 0xFF in every byte; the sizes in shape end with -1. */
static inline DLTensor *make(box *b, qni_dtype dtype, const int64_t *shape) {
    int ndim = 0;
    memset(b, 0xFF, sizeof *b);
    for (; shape[ndim] >= 0; ndim++)
        b->shape[ndim] = shape[ndim];
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        b->strides[i] = stride;
        stride *= shape[i];
    }
    b->t = (DLTensor){.data = b->data,
                      .device = qn_device_id(cpu),
                      .ndim = ndim,
                      .dtype = qni_dl_dtype(dtype),
                      .shape = b->shape,
                      .strides = b->strides};
    assert_true(qni_numel(&b->t) * qni_dtype_bytes(dtype) <= ROOM);
    return &b->t;
}
#define MAKE(box, dtype, ...) make(box, dtype, (const int64_t[]){__VA_ARGS__, -1})

/** Makes box a vector of int32 with these values. */
#define INDICES(box, ...)                                                                          \
    do {                                                                                           \
        const int32_t values[] = {__VA_ARGS__};                                                    \
        MAKE(box, QNI_I32, sizeof values / sizeof *values);                                        \
        memcpy((box)->data, values, sizeof values);                                                \
    } while (0)

/** Writes v to every element. A tensor of integers, made to be refused, stays as it is. */
static inline void fill(box *b, double v) {
    const qni_dtype dtype = qni_dtype_of(&b->t);
    if (!qni_is_float16_or_32(dtype) && !qni_is_fp8(dtype))
        return;
    for (int64_t i = 0; i < qni_numel(&b->t); i++)
        qni_put(dtype, b->data, i, v);
}

static inline double at(const box *b, int64_t i) {
    return qni_get(qni_dtype_of(&b->t), b->data, i);
}

/** Asserts that the last call failed with the status `want` and a message that has these words. */
static inline void assert_refused(qn_status st, qn_status want, const char *words) {
    if (st != want || !strstr(qn_last_error(), words))
        fail_msg("status %d, want %d with \"%s\": %s", st, want, words, qn_last_error());
}

#endif
