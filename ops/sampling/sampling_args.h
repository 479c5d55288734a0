// SPDX-License-Identifier: Apache-2.0
// How the sampling family's public functions read what they have in common.
#ifndef QNI_SAMPLING_ARGS_H
#define QNI_SAMPLING_ARGS_H

#include "../../runtime/tensor/read.h"
#include "sampling.h"

constexpr uint32_t qni_sampling_of_flags = 1u << QNI_U8 | 1u << QNI_BOOL;

/** One number for all rows, or a vector with one for each. */
typedef struct qni_sampling_numbers {
    const char *name, *vector_name;
    const DLTensor *vector; // null: `value` counts
    float value, least, most;
} qni_sampling_numbers;

/** Checks the vocabulary, x's last dimension, and that 31 bits can count the rows. */
qn_status qni_sampling_check_vocab(const qni_call *call, const qni_tensor *x);
/** Checks the value, reads the vector and sets *out to its numbers. */
qn_status qni_sampling_read_numbers(const qni_call *call, qn_stream *stream,
                                    const qni_sampling_numbers *numbers, int64_t batch,
                                    qni_tensor *t, const float **out);
/** Reads seeds and offsets to t[0] and t[1]. */
qn_status qni_sampling_read_random(const qni_call *call, const DLTensor *seeds,
                                   const DLTensor *offsets, int64_t seed, int64_t offset,
                                   int64_t batch, qni_tensor *t, qk_sampling_random *out);

#endif
