// SPDX-License-Identifier: Apache-2.0
// A linear layer in FP8: quantises weights and activations on a device, multiplies, compares with
// double precision. Run it, with quern installed:
//   cc -std=c11 quantize_linear.c $(pkg-config --cflags --libs quern) -o quantize_linear &&
//   ./quantize_linear
#include <quern/quern.h>

#include <stdio.h>
#include <stdlib.h>

enum { M = 16, N = 256, K = 512 };

static void check(qn_status status) {
    if (status != QN_OK) {
        fprintf(stderr, "%s\n", qn_last_error());
        exit(1);
    }
}

/** Makes a matrix in device memory; shape must live as long as the matrix. */
static DLTensor matrix(qn_device *device, uint8_t code, uint8_t bits, int64_t shape[2]) {
    DLTensor t = {NULL, qn_device_id(device), 2, {code, bits, 1}, shape, NULL, 0};
    check(qn_malloc(device, &t.data, shape[0] * shape[1] * bits / 8));
    return t;
}

/** Sends f32 numbers to the device and quantises them there. */
static void quantize(qn_stream *stream, DLTensor *q, DLTensor *scale, float *x,
                     int64_t block_rows) {
    DLTensor host = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, q->shape, NULL, 0};
    DLTensor there = matrix(qn_stream_device(stream), kDLFloat, 32, q->shape);
    check(qn_copy(stream, &there, &host));
    check(qn_quantize_fp8(stream, q, scale, &there, block_rows, 128, 1e-4f));
    check(qn_stream_sync(stream));
    qn_free(qn_stream_device(stream), there.data);
}

/** Returns DeepGEMM's measure of how unlike two results are: 1 - 2<x,y> / (<x,x> + <y,y>). */
static double difference(const float *d, const float *a, const float *w) {
    double xy = 0, xx = 0, yy = 0;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double y = 0, x = d[m * N + n];
            for (int k = 0; k < K; k++)
                y += (double)a[m * K + k] * w[n * K + k];
            xy += x * y, xx += x * x, yy += y * y;
        }
    return 1 - 2 * xy / (xx + yy);
}

int main(int argc, char **argv) {
    qn_device *device;
    qn_stream *stream;
    check(qn_device_open(&device, argc > 1 ? argv[1] : "auto"));
    check(qn_stream_create(&stream, device));

    static float a[M * K], w[N * K], d[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < N * K; i++)
        w[i] = (float)rand() / (float)RAND_MAX - 0.5f;

    int64_t mk[] = {M, K}, nk[] = {N, K}, mn[] = {M, N}; // scales: one for each block
    int64_t blocks_a[] = {M, K / 128}, blocks_w[] = {N / 128, K / 128};
    DLTensor qa = matrix(device, kDLFloat8_e4m3fn, 8, mk),
             sa = matrix(device, kDLFloat, 32, blocks_a);
    DLTensor qw = matrix(device, kDLFloat8_e4m3fn, 8, nk),
             sw = matrix(device, kDLFloat, 32, blocks_w);
    DLTensor out = matrix(device, kDLFloat, 32, mn);
    quantize(stream, &qa, &sa, a, 1);   // activations: 1 x 128
    quantize(stream, &qw, &sw, w, 128); // weights: 128 x 128
    qn_gemm_args args = {.struct_size = sizeof args, .d = &out, .a = &qa, .b = &qw};
    args.scale_a = &sa, args.scale_b = &sw;
    check(qn_gemm(stream, &args));
    DLTensor home = {d, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, mn, NULL, 0};
    check(qn_copy(stream, &home, &out));

    const double diff = difference(d, a, w);
    printf("[%d, %d] x [%d, %d]^T by %s: differs by %.2g\n", M, K, N, K, qn_last_kernel(), diff);
    DLTensor *all[] = {&qa, &sa, &qw, &sw, &out};
    for (int i = 0; i < 5; i++)
        qn_free(device, all[i]->data);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return diff < 1e-3 ? 0 : 1;
}
