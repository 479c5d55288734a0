// SPDX-License-Identifier: Apache-2.0
// attention_once DEVICE TYPE QUERIES KEYS HEADS KV_HEADS HEAD_DIM: runs one request without masks
// once, for profiles. TYPE is that of k and v: bf16, or e4m3fn, e4m3fnuz or e5m2 with scales; q and
// o are bf16.
#include <quern/quern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kind {
    const char *name;
    DLDataType dtype;
    unsigned first, count; // codes of magnitudes about 1, which tensors are filled with
} kind;

static const kind kinds[] = {{"bf16", {kDLBfloat, 16, 1}, 0x3E00, 0x180},
                             {"e4m3fn", {kDLFloat8_e4m3fn, 8, 1}, 0x20, 0x18},
                             {"e4m3fnuz", {kDLFloat8_e4m3fnuz, 8, 1}, 0x28, 0x18},
                             {"e5m2", {kDLFloat8_e5m2, 8, 1}, 0x30, 0x0C}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int fail(void) {
    fprintf(stderr, "attention_once: %s\n", qn_last_error());
    return 1;
}

static const kind f32 = {"f32", {kDLFloat, 32, 1}, 0x3F800000, 1}; // ones

/** Makes a filled tensor [1, tokens, heads, head_dim], whose memory lasts as long as the
 *  process. */
static int make(DLTensor *t, qn_stream *stream, qn_device *device, const kind *k,
                int64_t shape[4]) {
    const int64_t count = shape[1] * shape[2] * shape[3], bytes = count * k->dtype.bits / 8;
    uint8_t *values = malloc((size_t)bytes);
    DLTensor host = {
        .data = values, .device = {kDLCPU, 0}, .ndim = 4, .dtype = k->dtype, .shape = shape};
    for (int64_t i = 0; values && i < count; i++) {
        const unsigned code = k->first + (unsigned)(i * 40503 % k->count);
        memcpy(values + i * k->dtype.bits / 8, &code, k->dtype.bits / 8); // the low bytes
    }
    *t = host;
    t->device = qn_device_id(device);
    const int failed = !values || qn_malloc(device, &t->data, bytes) || qn_copy(stream, t, &host);
    free(values);
    return failed;
}

int main(int argc, char **argv) {
    const kind *kv = kinds;
    if (argc != 8)
        return fprintf(stderr, "usage: attention_once DEVICE TYPE QUERIES KEYS HEADS KV_HEADS "
                               "HEAD_DIM\n"),
               2;
    while (kv < kinds + KINDS && strcmp(kv->name, argv[2]))
        kv++;
    if (kv == kinds + KINDS)
        return fprintf(stderr, "attention_once: no type '%s'\n", argv[2]), 2;
    int64_t q_shape[] = {1, atol(argv[3]), atol(argv[5]), atol(argv[7])};
    int64_t kv_shape[] = {1, atol(argv[4]), atol(argv[6]), atol(argv[7])}, bytes;
    int64_t scales_shape[] = {1, 1, kv_shape[2], 1};
    qn_device *device;
    qn_stream *stream;
    DLTensor o, q, k, v, scales, workspace;
    if (qn_device_open(&device, argv[1]) || qn_stream_create(&stream, device) ||
        make(&o, stream, device, kinds, q_shape) || make(&q, stream, device, kinds, q_shape) ||
        make(&k, stream, device, kv, kv_shape) || make(&v, stream, device, kv, kv_shape) ||
        make(&scales, stream, device, &f32, scales_shape))
        return fail();
    scales.ndim = 1;
    scales.shape = &scales_shape[2];
    qn_attention_args args = {.struct_size = sizeof args, .o = &o, .q = &q, .k = &k, .v = &v};
    args.k_scales = args.v_scales = kv == kinds ? NULL : &scales;
    if (qn_attention_workspace_bytes(&bytes, &args))
        return fail();
    workspace =
        (DLTensor){.device = o.device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &bytes};
    if (bytes && qn_malloc(device, &workspace.data, bytes))
        return fail();
    args.workspace = bytes ? &workspace : NULL;
    return qn_attention(stream, &args) || qn_stream_sync(stream) ? fail() : 0;
}
