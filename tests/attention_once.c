// SPDX-License-Identifier: Apache-2.0
// attention_once DEVICE TOKENS HEAD_DIM: attention of one head over itself, nothing masked, once; for profiles.
#include <quern/quern.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(void) {
    fprintf(stderr, "attention_once: %s\n", qn_last_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return fprintf(stderr, "usage: attention_once DEVICE TOKENS HEAD_DIM\n"), 2;
    int64_t shape[] = {1, atol(argv[2]), 1, atol(argv[3])};
    const int64_t count = shape[1] * shape[3];
    qn_device *device;
    qn_stream *stream;
    DLTensor tensors[4],
        host = {.device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = shape};
    uint16_t *values = malloc((size_t)count * sizeof *values);
    if (!values || qn_device_open(&device, argv[1]) || qn_stream_create(&stream, device))
        return fail();
    for (int64_t i = 0; i < count; i++)
        values[i] = (uint16_t)(0x3E00 + i * 40503 % 0x180); // 0.125 to 1
    host.data = values;
    for (int i = 0; i < 4; i++) {
        tensors[i] = host;
        tensors[i].device = qn_device_id(device);
        if (qn_malloc(device, &tensors[i].data, count * 2) || qn_copy(stream, &tensors[i], &host))
            return fail();
    }
    const qn_attention_args args = {.struct_size = sizeof args,
                                    .o = &tensors[0],
                                    .q = &tensors[1],
                                    .k = &tensors[2],
                                    .v = &tensors[3]};
    if (qn_attention(stream, &args) || qn_stream_sync(stream))
        return fail();
    for (int i = 0; i < 4; i++)
        qn_free(device, tensors[i].data);
    qn_stream_destroy(stream);
    qn_device_close(device);
    free(values);
    return 0;
}
