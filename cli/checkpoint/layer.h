// SPDX-License-Identifier: Apache-2.0
// One linear layer of a checkpoint: its weight in FP8, its input, and its right product.
#ifndef CLI_LAYER_H
#define CLI_LAYER_H

#include "../number.h"
#include "checkpoint.h"

enum { LAYER_BLOCK = 128 };

/** The activations: rows of bf16, f16 or f32. */
typedef struct layer_input {
    const void *data; // [m, k], aligned
    DLDataType dtype;
    int64_t m, k;
} layer_input;

typedef struct layer {
    const char *name; // "X.weight"
    int64_t n, k;
    DLDataType kind;   // e4m3fn or e4m3fnuz
    uint8_t *q;        // [n, k]
    float *scale;      // [ceil(n/128), ceil(k/128)]
    const void *exact; // [n, k], the weight before quantisation; null: not known
    DLDataType exact_dtype;
} layer;

/** Loads tensor `name`: an FP8 weight with its scales, or a floating-point weight, which is
 *  quantised on the CPU as quern quantize does. `original` (may be null) is the checkpoint before
 *  quantisation. Errors: QN_E_NOT_FOUND, QN_E_INVALID. */
qn_status layer_open(layer *out, const ckpt *c, const ckpt *original, const char *name);
void layer_close(layer *l);

/** The layer's product on the device. */
typedef struct layer_product {
    float *d; // [m, n]
    const char *kernel;
    int64_t time_ns; // median; -1: no clock
    uint8_t *q;      // [m, k] the activations in FP8
    float *scale;    // [m, ceil(k/128)]
} layer_product;

/** Quantises the input on the device, packs the weight there, multiplies, and fetches the result.
 *  If the device has a clock, times `runs` products after one that is not timed. */
qn_status layer_run(layer_product *out, const layer *l, const layer_input *x, cli_device *device,
                    DLDataType out_dtype, int runs);
void layer_product_free(layer_product *p);

// ---- the right product (reference.c)

/** Sums in double precision, for whole rows and columns of elements: for all of them up to a
 *  thousand million products, else for a seeded sample, which includes the first, the last and the
 *  tiles' edges. */
typedef struct layer_reference {
    int64_t m, n, k;
    bool *has_row, *has_col;
    double *exact; // [m, n] of the values before quantisation; null if the weight's are not known
    double *quantised; // [m, n] of the quantised values
    double *magnitude; // [m, n] sum of |a| |b|, for the tolerance
} layer_reference;

/** Makes the reference; q and scale are the quantised activations, as in layer_product. */
void layer_reference_make(layer_reference *out, const layer *l, const layer_input *x,
                          const uint8_t *q, const float *scale, uint64_t seed);
void layer_reference_free(layer_reference *r);

typedef struct layer_error {
    double exact_diff;     // 1 - 2<x,y>/(<x,x>+<y,y>) to the unquantised product; NaN if not known
    double quantised_diff; // that difference to the quantised product
    double worst;          // largest quotient of error to the quantised product and tolerance
    int64_t worst_row, worst_col, compared;
} layer_error;

/** Compares d with the reference. Tolerance: u_out |ref| + 2 k u_acc (|A| |B|) + tiny_out, u_acc =
 *  2^-24. */
void layer_compare(layer_error *out, const layer_reference *r, const float *d, DLDataType dtype);

#endif
