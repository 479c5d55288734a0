// SPDX-License-Identifier: Apache-2.0
// For tests of calls on any device: tensors between guards, random numbers in them, and the words
// of refusals.
#ifndef QNI_COMPAT_TEST_H
#define QNI_COMPAT_TEST_H

#include <quern/core.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_DIMS = 4, GUARD = 64, MAX_BOXES = 32 };

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1},
                        i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1}, u64 = {kDLUInt, 64, 1},
                        u8 = {kDLUInt, 8, 1};

static qn_device *device;
static qn_stream *stream;
static uint64_t random_state;

/** A tensor on the device between guards, and a copy of its memory on the host. At first all bytes
 *  are 0xFF, which makes NaNs. */
typedef struct box {
    DLTensor t;
    int64_t shape[MAX_DIMS], strides[MAX_DIMS];
    int64_t bytes; // with guards
    uint8_t *host;
} box;

static box boxes[MAX_BOXES];
static int num_boxes;

static inline void ok(qn_status st) {
    if (st != QN_OK)
        fail_msg("%s", qn_last_error());
}

/** Copies the box's memory, guards and all. */
static inline void move_box(box *b, bool to_device) {
    DLTensor host = {
        .data = b->host, .device = {kDLCPU, 0}, .ndim = 1, .dtype = u8, .shape = &b->bytes};
    DLTensor there = host;
    there.data = b->t.data;
    there.device = qn_device_id(device);
    ok(to_device ? qn_copy(stream, &there, &host) : qn_copy(stream, &host, &there));
}
static inline void send(box *b) {
    move_box(b, true);
}

/** Copies the device's memory to the host and checks that the guards are as they were. */
static inline void fetch(box *b) {
    move_box(b, false);
    for (int i = 0; i < GUARD; i++)
        if (b->host[i] != 0xFF || b->host[b->bytes - 1 - i] != 0xFF)
            fail_msg("a byte beside the tensor was written");
}

static inline box *make(DLDataType dtype, int ndim, const int64_t *shape) {
    assert_true(num_boxes < MAX_BOXES);
    box *b = &boxes[num_boxes++];
    int64_t count = 1;
    *b = (box){.t = {.device = qn_device_id(device),
                     .ndim = ndim,
                     .dtype = dtype,
                     .shape = b->shape,
                     .strides = b->strides,
                     .byte_offset = GUARD}};
    for (int i = ndim - 1; i >= 0; i--) {
        b->shape[i] = shape[i], b->strides[i] = count;
        count *= shape[i];
    }
    b->bytes = count * dtype.bits / 8 + 2 * GUARD;
    b->host = malloc((size_t)b->bytes);
    memset(b->host, 0xFF, (size_t)b->bytes);
    ok(qn_malloc(device, &b->t.data, b->bytes));
    send(b);
    return b;
}
#define MAKE(dtype, ...)                                                                           \
    make(dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static inline void free_boxes(void) {
    while (num_boxes > 0) {
        box *b = &boxes[--num_boxes];
        qn_free(device, b->t.data);
        free(b->host);
    }
}

/** Exchanges two dimensions of the tensor, over the memory that it has. */
static inline void exchange(box *b, int i, int j) {
    const int64_t shape = b->shape[i], stride = b->strides[i];
    b->shape[i] = b->shape[j], b->strides[i] = b->strides[j];
    b->shape[j] = shape, b->strides[j] = stride;
}

static inline uint8_t *element(const box *b, int64_t i) {
    return b->host + GUARD + i * b->t.dtype.bits / 8;
}

static inline void put(box *b, int64_t i, float v) {
    uint8_t *to = element(b, i);
    const _Float16 half = (_Float16)v;
    const uint16_t high = (uint16_t)(__builtin_bit_cast(uint32_t, v) >> 16);
    if (b->t.dtype.bits == 32)
        memcpy(to, &v, 4);
    else
        memcpy(to, b->t.dtype.code == kDLFloat ? (const void *)&half : &high, 2);
}

/** Fills the tensor with numbers near a normal distribution. */
static inline box *randomize(box *b) {
    const int64_t count = (b->bytes - 2 * GUARD) * 8 / b->t.dtype.bits;
    for (int64_t i = 0; i < count; i++) {
        float sum = -2;
        for (int k = 0; k < 4; k++) {
            random_state = random_state * 6364136223846793005 + 1442695040888963407;
            sum += (float)(random_state >> 40) * 0x1p-24f;
        }
        put(b, i, sum * 1.7f);
    }
    send(b);
    return b;
}

/** Returns an f32 tensor's element, by its indices. */
static inline double at(const box *b, int64_t i, int64_t j, int64_t k, int64_t l) {
    const int64_t index[] = {i, j, k, l};
    int64_t offset = 0;
    float v;
    for (int d = 0; d < b->t.ndim; d++)
        offset += index[d] * b->strides[d];
    memcpy(&v, element(b, offset), sizeof v);
    return (double)v;
}

/** Makes a tensor of one number on the device. */
static inline box *number(DLDataType dtype, uint64_t value) {
    box *b = MAKE(dtype, 1);
    memcpy(element(b, 0), &value, sizeof value);
    send(b);
    return b;
}
static inline uint64_t number_in(box *b) {
    uint64_t value;
    fetch(b);
    memcpy(&value, element(b, 0), sizeof value);
    return value;
}

static inline void assert_same_bytes(box *a, box *b) {
    fetch(a), fetch(b);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->host, b->host, (size_t)a->bytes);
}

static inline void assert_refused(qn_status st, qn_status want, const char *words) {
    if (st != want || !strstr(qn_last_error(), words))
        fail_msg("status %d, want %d with \"%s\": %s", st, want, words, qn_last_error());
}

// ---- devices

/** A test that is run on the CPU, on a simulated GPU of 64 lanes a wave and on one of 32. */
typedef struct device_test {
    const char *name;
    void (*run)(void **);
} device_test;

/** A test on one of these devices. */
typedef struct placed_test {
    const device_test *test;
    const char *spec;
    char name[64];
} placed_test;

static inline int open_device(void **state) {
    const placed_test *placed = *state;
    random_state = 1;
    if (qn_device_open(&device, placed->spec) == QN_OK)
        return qn_stream_create(&stream, device) != QN_OK;
    print_message("%s\n", qn_last_error()); // built without the simulator
    device = nullptr;
    return 0;
}

static inline void run_placed(void **state) {
    const placed_test *placed = *state;
    if (!device)
        skip();
    placed->test->run(state);
}

static inline int close_device(void **) {
    free_boxes();
    qn_stream_destroy(stream);
    qn_device_close(device);
    stream = nullptr, device = nullptr;
    return 0;
}

/** Runs the tests on each device. Returns how many failed. */
static inline int run_on_each_device(const device_test *each, int count) {
    static const char *const specs[] = {"cpu", "sim:gfx942", "sim:gfx1151"};
    enum { SPECS = sizeof specs / sizeof *specs, MOST = 16 };
    static placed_test placed[SPECS * MOST];
    struct CMUnitTest tests[SPECS * MOST];
    assert_true(count <= MOST);
    for (int i = 0; i < SPECS * count; i++) {
        placed[i] = (placed_test){&each[i % count], specs[i / count], {}};
        snprintf(placed[i].name, sizeof placed[i].name, "%s on %s", placed[i].test->name,
                 placed[i].spec);
        tests[i] = (struct CMUnitTest){.name = placed[i].name,
                                       .test_func = run_placed,
                                       .setup_func = open_device,
                                       .teardown_func = close_device,
                                       .initial_state = &placed[i]};
    }
    return _cmocka_run_group_tests("devices", tests, (size_t)(SPECS * count), nullptr, nullptr);
}
#define RUN_ON_EACH_DEVICE(each) run_on_each_device((each), sizeof(each) / sizeof *(each))

#endif
