// SPDX-License-Identifier: Apache-2.0
// Quantises a row of numbers to FP8 on a device and prints how far off the result is. Run it, with
// quern installed:
//   cc -std=c11 hello.c $(pkg-config --cflags --libs quern) -lm -o hello && ./hello sim:gfx942
#include <quern/quern.h>

#include <math.h>
#include <stdio.h>

#define TRY(call)                                                                                  \
    if ((call) != QN_OK)                                                                           \
    return fprintf(stderr, "%s\n", qn_last_error()), 1

int main(int argc, char **argv) {
    qn_device *device;
    qn_stream *stream;
    TRY(qn_device_open(&device, argc > 1 ? argv[1] : "auto"));
    TRY(qn_stream_create(&stream, device));

    float x[128], worst = 0, largest = 0;
    for (int i = 0; i < 128; i++)
        x[i] = sinf((float)i);
    int64_t row[] = {1, 128}, one[] = {1, 1};
    const DLDataType f32 = {kDLFloat, 32, 1}, fp8 = {kDLFloat8_e4m3fn, 8, 1};
    const DLDevice here = qn_device_id(device), cpu = {kDLCPU, 0};
    DLTensor host = {x, cpu, 2, f32, row, NULL, 0};
    DLTensor d = {NULL, here, 2, f32, row, NULL, 0}, q = {NULL, here, 2, fp8, row, NULL, 0};
    DLTensor scale = {NULL, here, 2, f32, one, NULL, 0};
    TRY(qn_malloc(device, &d.data, sizeof x));
    TRY(qn_malloc(device, &q.data, 128));
    TRY(qn_malloc(device, &scale.data, sizeof(float)));

    TRY(qn_copy(stream, &d, &host)); // to the device, to FP8, back, home
    TRY(qn_quantize_fp8(stream, &q, &scale, &d, 1, 128, 1e-4f));
    TRY(qn_dequantize_fp8(stream, &d, &q, &scale, 1, 128));
    TRY(qn_copy(stream, &host, &d));
    for (int i = 0; i < 128; i++) {
        worst = fmaxf(worst, fabsf(x[i] - sinf((float)i)));
        largest = fmaxf(largest, fabsf(x[i]));
    }
    printf("quern %s: off by %g at most, of %g\n", qn_version(), (double)worst, (double)largest);
    qn_free(device, d.data);
    qn_free(device, q.data);
    qn_free(device, scale.data);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return worst <= largest / 16 ? 0 : 1; // e4m3 has 4 bits of significand: 2^-4 of the value
}
