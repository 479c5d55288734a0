// SPDX-License-Identifier: Apache-2.0
// Attention over sequences of different lengths through AOTriton's call, on any device. All keys
// are alike, so each query must get the mean of its own sequence's values. Run it, with quern
// installed:
//   cc -std=c11 aotriton_varlen.c $(pkg-config --cflags --libs quern) -lm -o aotriton_varlen &&
//   ./aotriton_varlen
#include <quern/compat/aotriton.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 2, TOKENS = 12, DIM = 64, SEQUENCES = 3 };

static void check(qn_status status) {
    if (status != QN_OK) {
        fprintf(stderr, "%s\n", qn_last_error());
        exit(1);
    }
}

/** Sends numbers to device memory, as a tensor [1, HEADS, TOKENS, DIM] of f32. */
static DLTensor send(qn_stream *stream, float *numbers) {
    static int64_t shape[] = {1, HEADS, TOKENS, DIM};
    DLTensor host = {numbers, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0}, t = host;
    t.device = qn_device_id(qn_stream_device(stream));
    check(qn_malloc(qn_stream_device(stream), &t.data,
                    (int64_t)sizeof(float) * HEADS * TOKENS * DIM));
    check(qn_copy(stream, &t, &host));
    return t;
}

static double mean_of_values(int token, const int32_t *begins) {
    int s = 0;
    while (begins[s + 1] <= token)
        s++;
    return (begins[s] + begins[s + 1] - 1) / 2.0; // value j is j
}

int main(int argc, char **argv) {
    static float zeros[HEADS * TOKENS * DIM], values[HEADS * TOKENS * DIM];
    qn_device *device;
    qn_stream *stream;
    check(qn_device_open(&device, argc > 1 ? argv[1] : "auto"));
    check(qn_stream_create(&stream, device));
    check(qn_aotriton_check_gpu(stream));
    for (int i = 0; i < HEADS * TOKENS * DIM; i++)
        values[i] = (float)(i / DIM % TOKENS);
    DLTensor q = send(stream, zeros), k = send(stream, zeros), v = send(stream, values),
             out = send(stream, zeros);

    // Where sequences of 3, 4 and 5 tokens begin. On the host these numbers are read at once; they
    // may also lie on the device.
    int32_t begins[SEQUENCES + 1] = {0, 3, 7, TOKENS};
    int64_t entries = SEQUENCES + 1, bytes;
    DLTensor cu_seqlens = {begins, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &entries, NULL, 0};
    check(qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(stream, &bytes, &q, &k, &v,
                                                              &cu_seqlens, &cu_seqlens));
    DLTensor workspace = {NULL, qn_device_id(device), 1, {kDLUInt, 8, 1}, &bytes, NULL, 0};
    check(qn_malloc(device, &workspace.data, bytes));
    qn_aotriton_ext ext = {sizeof ext, &workspace};
    check(qn_aotriton_attn_fwd_compact_varlen(&q, &k, &v, NULL, &cu_seqlens, &cu_seqlens, 5, 5,
                                              0.125f, NULL, &out, 0, NULL, NULL, 0, NULL, NULL,
                                              NULL, 0, NULL, stream, &ext));

    static float got[HEADS * TOKENS * DIM];
    DLTensor host = out;
    host.data = got, host.device = (DLDevice){kDLCPU, 0};
    check(qn_copy(stream, &host, &out));
    double worst = 0;
    for (int i = 0; i < HEADS * TOKENS * DIM; i++)
        worst = fmax(worst, fabs(got[i] - mean_of_values(i / DIM % TOKENS, begins)));
    printf("attention over %d sequences by %s: off by %.2g at most\n", SEQUENCES, qn_last_kernel(),
           worst);

    DLTensor *tensors[] = {&q, &k, &v, &out, &workspace};
    for (int i = 0; i < 5; i++)
        qn_free(device, tensors[i]->data);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return worst > 1e-5;
}
