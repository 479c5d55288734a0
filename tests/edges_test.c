// SPDX-License-Identifier: Apache-2.0
// Edges of shapes that the public functions handle, on every device that can be opened: no rows at
// all, dimensions of 1 with meaningless strides, tensors that begin anywhere in their memory.
// Results must be exact.
#include <quern/quern.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const specs[] = {"cpu",         "sim:gfx942", "sim:gfx950", "sim:gfx1151",
                                    "sim:gfx1201", "cuda:0",     "hip:0"};
enum { MAX_DIMS = 4, ROOM = 1024, BEFORE = 20 }; // bytes of a box; bytes before its first element

static qn_device *device;
static qn_stream *stream;

/** A tensor on the device, whose content is compared with a copy on the host. */
typedef struct box {
    DLTensor t;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
    uint8_t host[ROOM];
} box;

static const DLDataType f32 = {kDLFloat, 32, 1}, bf16 = {kDLBfloat, 16, 1}, i32 = {kDLInt, 32, 1},
                        u8 = {kDLUInt, 8, 1}, fp8 = {kDLFloat8_e4m3fn, 8, 1};

/** Copies all of the box's memory, either way. */
static void move_all(box *b, bool to_device) {
    int64_t bytes = ROOM;
    DLTensor host = {
        .data = b->host, .device = {kDLCPU, 0}, .ndim = 1, .dtype = u8, .shape = &bytes};
    DLTensor there = host;
    there.data = b->t.data;
    there.device = qn_device_id(device);
    const qn_status st =
        to_device ? qn_copy(stream, &there, &host) : qn_copy(stream, &host, &there);
    if (st != QN_OK || qn_stream_sync(stream) != QN_OK)
        fail_msg("%s", qn_last_error());
}

/** Makes a tensor of poison. */
static void make(box *b, DLDataType dtype, int ndim, const int64_t *shape, const int64_t *strides) {
    memset(b, 0, sizeof *b);
    memset(b->host, 0xFF, ROOM);
    memcpy(b->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(b->strides, strides, (size_t)ndim * sizeof *strides);
    b->t = (DLTensor){.device = qn_device_id(device),
                      .ndim = ndim,
                      .dtype = dtype,
                      .shape = b->shape,
                      .strides = b->strides,
                      .byte_offset = BEFORE};
    if (qn_malloc(device, &b->t.data, ROOM) != QN_OK)
        fail_msg("%s", qn_last_error());
}
#define LIST(...)                                                                                  \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static void put_f32(box *b, int count, float v) {
    for (int i = 0; i < count; i++)
        memcpy(b->host + BEFORE + 4 * i, &v, sizeof v);
}
static void put_bf16(box *b, int count, float v) {
    const uint16_t bits = (uint16_t)(__builtin_bit_cast(uint32_t, v) >> 16);
    for (int i = 0; i < count; i++)
        memcpy(b->host + BEFORE + 2 * i, &bits, sizeof bits);
}
static void put_i32(box *b, int at, int32_t v) {
    memcpy(b->host + BEFORE + 4 * at, &v, sizeof v);
}

/** Fetches a box, which must equal the host's copy byte by byte, and frees it. */
static void check(box *b) {
    box got = *b;
    move_all(&got, false);
    assert_memory_equal(got.host, b->host, ROOM);
    qn_free(device, b->t.data);
}

static void run(qn_status st) {
    // make TARGETS=… builds images for some targets only, and a test may have no compiler.
    if (st != QN_OK && strstr(qn_last_error(), "image: no "))
        skip();
    if (st != QN_OK)
        fail_msg("%s", qn_last_error());
}

static box x, y, w, out, scale, places;

/** Dimensions of 1 may have any stride. */
static void test_norm(void) {
    make(&x, bf16, 2, LIST(1, 8), LIST(3, 1));
    make(&w, bf16, 1, LIST(8), LIST(1));
    make(&out, bf16, 2, LIST(1, 8), LIST(-5, 1));
    put_bf16(&x, 8, 2);
    put_bf16(&w, 8, 1.5f);
    move_all(&x, true), move_all(&w, true), move_all(&out, true);
    run(qn_rmsnorm(stream, &out.t, &x.t, &w.t, 0));
    put_bf16(&out, 8, 1.5f);
    check(&x), check(&w), check(&out);
}

static void test_activation(void) {
    make(&x, f32, 3, LIST(1, 1, 16), LIST(7, 3, 1));
    make(&out, f32, 3, LIST(1, 1, 8), LIST(1, 1, 1));
    put_f32(&x, 16, 0);
    move_all(&x, true), move_all(&out, true);
    run(qn_silu_and_mul(stream, &out.t, &x.t));
    put_f32(&out, 8, 0);
    check(&x), check(&out);
}

/** Position 0 turns nothing. */
static void test_rope(void) {
    make(&x, bf16, 3, LIST(1, 1, 32), LIST(11, 5, 1));
    make(&out, bf16, 3, LIST(1, 1, 32), LIST(2, 3, 1));
    make(&places, i32, 1, LIST(1), LIST(9));
    put_bf16(&x, 32, -3);
    put_i32(&places, 0, 0);
    move_all(&x, true), move_all(&out, true), move_all(&places, true);
    run(qn_apply_rope_pos_ids(stream, &out.t, nullptr, &x.t, nullptr, &places.t, nullptr));
    put_bf16(&out, 32, -3);
    check(&x), check(&out), check(&places);
}

static void test_append(void) {
    make(&x, fp8, 3, LIST(1, 1, 24), LIST(1, 50, 1));
    make(&y, fp8, 3, LIST(1, 1, 24), LIST(3, 7, 1));
    make(&out, fp8, 4, LIST(1, 1, 1, 24), LIST(5, 3, 2, 1));
    make(&w, fp8, 4, LIST(1, 1, 1, 24), LIST(1, 2, 3, 1));
    make(&places, i32, 1, LIST(1), LIST(4));
    memset(x.host + BEFORE, 0x31, 24), memset(y.host + BEFORE, 0x42, 24);
    put_i32(&places, 0, 0);
    box *all[] = {&x, &y, &out, &w, &places};
    for (int i = 0; i < 5; i++)
        move_all(all[i], true);
    run(qn_reshape_and_cache(
        stream, &(qn_reshape_and_cache_args){.struct_size = sizeof(qn_reshape_and_cache_args),
                                             .k_cache = &out.t,
                                             .v_cache = &w.t,
                                             .key = &x.t,
                                             .value = &y.t,
                                             .slot_mapping = &places.t}));
    memset(out.host + BEFORE, 0x31, 24), memset(w.host + BEFORE, 0x42, 24);
    for (int i = 0; i < 5; i++)
        check(all[i]);
}

static void test_quantize(void) {
    make(&x, bf16, 2, LIST(1, 128), LIST(1, 1));
    make(&out, fp8, 2, LIST(1, 128), LIST(9, 1));
    make(&scale, f32, 2, LIST(1, 1), LIST(6, 4));
    put_bf16(&x, 128, 448);
    move_all(&x, true), move_all(&out, true), move_all(&scale, true);
    run(qn_quantize_groups(stream, &out.t, &scale.t, &x.t, 128, 0, 1e-4f));
    memset(out.host + BEFORE, 0x7E, 128);
    put_f32(&scale, 1, 1);
    check(&x), check(&out), check(&scale);
}

static void test_scales(void) {
    make(&x, f32, 3, LIST(1, 1, 3), LIST(2, 9, 1));
    make(&out, i32, 3, LIST(1, 1, 1), LIST(7, 5, 3));
    put_f32(&x, 3, 1);
    move_all(&x, true), move_all(&out, true);
    run(qn_transform_scales(stream, &out.t, &x.t, nullptr, 1, 0, 0));
    put_i32(&out, 0, 0x7F7F7F);
    check(&x), check(&out);
}

static void test_pack(void) {
    make(&x, u8, 1, LIST(9), LIST(1));
    make(&out, u8, 1, LIST(2), LIST(1));
    memset(x.host + BEFORE, 1, 9);
    move_all(&x, true), move_all(&out, true);
    run(qn_packbits(stream, &out.t, &x.t, QN_BITS_BIG));
    out.host[BEFORE] = 0xFF, out.host[BEFORE + 1] = 0x80;
    check(&x), check(&out);
}

/** Makes a tensor without rows and without memory. */
static void make_none(box *b, DLDataType dtype, int ndim, const int64_t *shape) {
    memset(b, 0, sizeof *b);
    memcpy(b->shape, shape, (size_t)ndim * sizeof *shape);
    b->t =
        (DLTensor){.device = qn_device_id(device), .ndim = ndim, .dtype = dtype, .shape = b->shape};
}

/** Calls without rows, tokens or values do nothing, and are no error. */
static void test_nothing(void) {
    make_none(&x, bf16, 2, LIST(0, 8));
    make_none(&y, bf16, 2, LIST(0, 8));
    make(&w, bf16, 1, LIST(8), LIST(1));
    run(qn_rmsnorm(stream, &y.t, &x.t, &w.t, 0));
    run(qn_fused_add_rmsnorm(stream, &y.t, &x.t, &w.t, 0));
    make_none(&out, bf16, 2, LIST(0, 4));
    run(qn_silu_and_mul(stream, &out.t, &x.t));
    make_none(&out, fp8, 2, LIST(0, 8));
    make_none(&scale, f32, 2, LIST(0, 1));
    run(qn_quantize_groups(stream, &out.t, &scale.t, &x.t, 8, 0, 1e-4f));
    run(qn_quantize_fp8(stream, &out.t, &scale.t, &x.t, 1, 128, 1e-4f));
    make_none(&out, i32, 2, LIST(0, 1));
    run(qn_transform_scales(stream, &out.t, &scale.t, nullptr, 1, 0, 0));
    make_none(&places, i32, 1, LIST(0));
    make_none(&x, bf16, 3, LIST(0, 2, 16));
    make_none(&y, bf16, 3, LIST(0, 2, 16));
    run(qn_apply_rope_pos_ids(stream, &y.t, nullptr, &x.t, nullptr, &places.t, nullptr));
    make_none(&x, u8, 1, LIST(0));
    make_none(&y, u8, 1, LIST(0));
    run(qn_packbits(stream, &y.t, &x.t, QN_BITS_LITTLE));
    qn_free(device, w.t.data);
}

static int open_device(void **state) {
    const char *spec = *state;
    if (qn_device_open(&device, spec) == QN_OK)
        return qn_stream_create(&stream, device) != QN_OK;
    print_message("%s\n", qn_last_error());
    return 0;
}

static int close_device(void **) {
    qn_stream_destroy(stream);
    qn_device_close(device);
    stream = nullptr;
    device = nullptr;
    return 0;
}

static void test_device(void **) {
    if (!device)
        skip();
    test_norm();
    test_activation();
    test_rope();
    test_append();
    test_quantize();
    test_scales();
    test_pack();
    test_nothing();
}

int main(void) {
    enum { COUNT = sizeof specs / sizeof *specs };
    struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = specs[i],
                                       .test_func = test_device,
                                       .setup_func = open_device,
                                       .teardown_func = close_device,
                                       .initial_state = (void *)(uintptr_t)specs[i]};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
