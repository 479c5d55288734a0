// SPDX-License-Identifier: Apache-2.0
// What the fuzzers of ops share: numbers and tensors made from the input's bytes; memory of exactly
// the bytes that a tensor's shape and strides name, so that AddressSanitizer sees every access
// outside; and the check of what a call may have changed.
//
// A fuzzer sets an array of tensors to a valid problem, lets the bytes change some
// (change_tensors), gives the tensors memory (give_memories), calls the function, and checks the
// outcome (check_call).
#ifndef FUZZ_TENSORS_H
#define FUZZ_TENSORS_H

#include "../../runtime/runtime.h"
#include "fuzz_input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv); // defined here; each fuzzer defines the next
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_NDIM = 8, MAX_BYTES = 1 << 16, MAX_ELEMENTS = 1 << 18 };

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1},
                        i32 = {kDLInt, 32, 1}, i8 = {kDLInt, 8, 1}, i64 = {kDLInt, 64, 1},
                        u8 = {kDLUInt, 8, 1}, boolean = {kDLBool, 8, 1};

static qn_stream *stream;
static uint64_t cpu_features;

/** Opens the CPU, with QUERN_VALIDATE, since index tensors' contents come from the input's bytes,
 *  too. */
int LLVMFuzzerInitialize(int *, char ***) {
    qn_device *cpu = nullptr;
    setenv("QUERN_VALIDATE", "1", 1);
    setenv("QUERN_NUM_THREADS", "1", 1);
    if (qn_device_open(&cpu, "cpu") != QN_OK || qn_stream_create(&stream, cpu) != QN_OK)
        abort();
    cpu_features = cpu->features;
    return 0;
}

// ---- what the bytes say

/** Takes a number that code may get wrong, or any number. */
static inline int64_t take_wild(input *in) {
    static const int64_t wild[] = {0,
                                   1,
                                   2,
                                   -1,
                                   3,
                                   7,
                                   16,
                                   64,
                                   255,
                                   256,
                                   257,
                                   INT32_MAX,
                                   INT32_MIN,
                                   1ll << 31,
                                   -8,
                                   1ll << 32,
                                   1ll << 40,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX / 2,
                                   INT64_MIN / 4};
    const uint32_t which = take(in, 2 * sizeof wild / sizeof *wild);
    int64_t value = 0;
    if (which < sizeof wild / sizeof *wild)
        return wild[which];
    for (int i = 0; i < 3; i++)
        value = value * 256 + take(in, 256);
    return value;
}

/** Takes the right number, or now and then a neighbour of it, or any number. */
static inline int64_t take_mostly(input *in, int64_t right) {
    const uint32_t which = take(in, 64);
    return which == 63 ? take_wild(in) : which == 62 ? right + 1 : which == 61 ? right - 1 : right;
}

static inline float take_float(input *in) {
    static const float wild[] = {0,
                                 1,
                                 -1,
                                 0.5f,
                                 2,
                                 1e-45f,
                                 1e-38f,
                                 3e38f,
                                 -3e38f,
                                 1e30f,
                                 0x1p-126f,
                                 30,
                                 __builtin_inff(),
                                 -__builtin_inff(),
                                 __builtin_nanf("")};
    return TAKE_ONE(in, wild);
}

static inline DLDataType take_dtype(input *in) {
    static const DLDataType types[] = {{kDLFloat, 32, 1},
                                       {kDLFloat, 16, 1},
                                       {kDLBfloat, 16, 1},
                                       {kDLFloat8_e4m3fn, 8, 1},
                                       {kDLFloat8_e4m3fnuz, 8, 1},
                                       {kDLFloat8_e5m2, 8, 1},
                                       {kDLFloat8_e5m2fnuz, 8, 1},
                                       {kDLInt, 32, 1},
                                       {kDLInt, 8, 1},
                                       {kDLInt, 64, 1},
                                       {kDLUInt, 8, 1},
                                       {kDLFloat8_e8m0fnu, 8, 1},
                                       {kDLBool, 8, 1},
                                       {kDLFloat, 64, 1},
                                       {kDLFloat4_e2m1fn, 4, 2},
                                       {kDLFloat, 16, 2},
                                       {255, 255, 65535},
                                       {kDLFloat, 0, 0}};
    return TAKE_ONE(in, types);
}

/** Takes a dtype that most ops compute with. */
static inline DLDataType take_float_dtype(input *in) {
    const DLDataType types[] = {bf16, f16, f32};
    return TAKE_ONE(in, types);
}

static inline DLDataType take_fp8_dtype(input *in) {
    static const DLDataType types[] = {{kDLFloat8_e4m3fn, 8, 1},
                                       {kDLFloat8_e4m3fnuz, 8, 1},
                                       {kDLFloat8_e5m2, 8, 1},
                                       {kDLFloat8_e5m2fnuz, 8, 1}};
    return TAKE_ONE(in, types);
}

/** Takes a size where kernels change what they do. */
static inline int64_t take_size(input *in) {
    static const int16_t sizes[] = {1,  2,  3,   4,   8,   15,  16,  17,  32,
                                    48, 64, 100, 127, 128, 129, 200, 256, 260};
    return TAKE_ONE(in, sizes);
}

/** Chooses the kernels of a CPU of fewer instructions, or of this one. */
static inline void take_cpu(input *in) {
    const uint64_t left_out[] = {0, QNI_F(AVX512_BF16), QNI_F(AVX512_BF16) | QNI_F(AVX512),
                                 QNI_F(AVX512_BF16) | QNI_F(AVX512) | QNI_F(AVX2)};
    stream->device->features = cpu_features & ~TAKE_ONE(in, left_out);
}

// ---- tensors

/** A tensor; its memory is made last, when its shape is known. */
typedef struct tensor {
    DLTensor t;
    int64_t shape[MAX_NDIM], strides[MAX_NDIM];
    int64_t *given_shape, *given_strides; // the arrays of ndim entries that the callee sees
    uint8_t *memory, *copy;
    int64_t bytes;
    struct tensor *home;   // the tensor in whose memory this one lies
    struct tensor *source; // an input whose memory this output may be
    bool is_there, is_written;
    bool is_given; // the call takes it
} tensor;

static inline void set_tensor(tensor *x, DLDataType dtype, int ndim, const int64_t *shape) {
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        x->shape[i] = shape[i];
        x->strides[i] = stride;
        stride *= shape[i];
    }
    x->t = (DLTensor){.device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = dtype,
                      .shape = x->shape,
                      .strides = x->strides};
    x->is_there = true;
}
#define SET(x, dtype, ...)                                                                         \
    set_tensor(x, dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                       \
               (int64_t[]){__VA_ARGS__})
#define SET_WRITTEN(x, dtype, ...) (SET(x, dtype, __VA_ARGS__), (void)((x)->is_written = true))

/** Returns what a call is given for the tensor. */
static inline DLTensor *given(tensor *x) {
    x->is_given = x->is_there;
    return x->is_there ? &x->t : nullptr;
}

/** Sets strides for an order of dimensions: the last dimension's elements lie side by side, and
 *  there is a gap behind those of `at`. */
static inline void spread(tensor *x, const int *order, int at, int64_t gap) {
    int64_t step = 1;
    for (int i = x->t.ndim - 1; i >= 0; i--) {
        const int64_t size = x->shape[order[i]];
        x->strides[order[i]] = step + (i == at ? gap : 0);
        step = size > 0 && size < MAX_BYTES ? x->strides[order[i]] * size : x->strides[order[i]];
        step = step < MAX_BYTES ? step : MAX_BYTES;
    }
}

static inline void change_layout(tensor *x, input *in) {
    const int n = x->t.ndim;
    int order[MAX_NDIM];
    if (n < 1 || n > MAX_NDIM)
        return;
    for (int i = 0; i < n; i++)
        order[i] = i;
    const int a = (int)take(in, (uint32_t)n), b = (int)take(in, (uint32_t)n);
    const bool swaps = take(in, 4) == 3;
    order[a] = swaps ? b : a, order[b] = swaps ? a : b;
    spread(x, order, n > 1 ? (int)take(in, (uint32_t)n - 1) : 0, take(in, 20));
}

static inline void change_tensor(tensor *x, input *in) {
    const int32_t n = x->t.ndim;
    const uint32_t i = take(in, n > 0 && n <= MAX_NDIM ? (uint32_t)n : MAX_NDIM);
    switch (take(in, 14)) {
    case 0:
        x->is_there = !x->is_there;
        break;
    case 1:
        x->shape[i] = take_wild(in);
        break;
    case 2:
        x->strides[i] = take_wild(in);
        break;
    case 3:
        x->t.dtype = take_dtype(in);
        break;
    case 4:
        x->t.strides = nullptr;
        break;
    case 5:
        x->t.ndim = (int32_t)take_wild(in);
        break;
    case 6:
        x->t.device = (DLDevice){(DLDeviceType)take(in, 16), (int32_t)take(in, 2)};
        break;
    case 7:
        x->t.shape = nullptr;
        break;
    case 8:
        x->strides[i] = take_bool(in) || x->strides[i] < 0 ? 0 : -x->strides[i];
        break;
    case 9:
    case 10:
        change_layout(x, in);
        break;
    case 11:
        x->shape[i] ^= 1; // one more or one less
        break;
    default:
        x->shape[i] = take(in, 8);
    }
}

static inline void change_tensors(tensor *tensors, uint32_t count, input *in) {
    for (uint32_t i = take(in, 8); i > 4; i--)
        change_tensor(&tensors[take(in, count)], in);
}

// ---- the tensors' memory

static inline int64_t bytes_of_element(const DLTensor *t) {
    return (t->dtype.bits * t->dtype.lanes + 7) / 8;
}

/** Clamps a value to a bound that is still far more than there is room for, and that can be
 *  multiplied. */
static inline __int128 clamp(__int128 value) {
    constexpr __int128 most = 1ll << 40;
    return value > most ? most : value < -most ? -most : value;
}

/** Finds the bytes from the first element down to the lowest, and up behind the highest one.
 *  Returns false if they are more than there is room for. */
static inline bool get_reach(const DLTensor *t, int64_t *low, int64_t *high) {
    const int64_t size = bytes_of_element(t);
    __int128 down = 0, up = size, stride = 1, elements = 1;
    bool is_empty = t->ndim < 0 || t->ndim > MAX_NDIM || (t->ndim > 0 && !t->shape);
    for (int i = is_empty ? -1 : t->ndim - 1; i >= 0; i--) {
        is_empty |= t->shape[i] <= 0;
        const __int128 far =
            clamp(t->strides ? t->strides[i] : stride) * clamp((__int128)t->shape[i] - 1) * size;
        *(far < 0 ? &down : &up) += far;
        stride = clamp(stride * clamp(t->shape[i]));
        elements = clamp(elements * clamp(t->shape[i]));
    }
    *low = (int64_t)down, *high = (int64_t)up;
    if (is_empty)
        *low = *high = 0;
    return is_empty || (elements <= MAX_ELEMENTS && up - down <= MAX_BYTES && down >= -MAX_BYTES &&
                        up <= MAX_BYTES);
}

/** Copies `count` entries and no more, so that reading past them is seen. Entries are zeros if
 *  `from` is null. */
static inline int64_t *copy_of(const int64_t *from, int32_t count) {
    int64_t *to = calloc(count > 0 && count <= 64 ? (size_t)count : 0, sizeof *to);
    if (!to)
        abort();
    if (count > 0 && count <= MAX_NDIM)
        memcpy(to, from, (size_t)count * sizeof *to);
    return to;
}

/** Gives a tensor memory of exactly its reach, with any bytes; none if it reaches too far, which
 *  the call must refuse. */
static inline void give_memory(tensor *x, input *in) {
    int64_t low, high;
    if (!x->is_there)
        return;
    if (get_reach(&x->t, &low, &high)) {
        const int64_t shift = take(in, 64) == 63; // not aligned
        uint32_t random = take(in, 256);
        x->bytes = high - low + shift;
        x->memory = malloc((size_t)x->bytes);
        x->copy = malloc((size_t)x->bytes);
        if (!x->memory || !x->copy)
            abort();
        for (int64_t i = 0; i < x->bytes; i++) {
            random = random * 1664525 + 1013904223;
            x->memory[i] = (uint8_t)(random >> 24);
        }
        memcpy(x->copy, x->memory, (size_t)x->bytes);
        x->home = x;
        x->t.byte_offset = take(in, 4) == 3 ? 64 : 0;
        x->t.data = (void *)((uintptr_t)x->memory + (uintptr_t)(shift - low) - x->t.byte_offset);
    }
    if (x->t.shape)
        x->t.shape = x->given_shape = copy_of(x->shape, x->t.ndim);
    if (x->t.strides)
        x->t.strides = x->given_strides = copy_of(x->strides, x->t.ndim);
}

/** Lays x upon y, x's lowest byte `shift` behind y's, if there is room. */
static inline void lay_upon(tensor *x, tensor *y, int64_t shift) {
    if (x == y || x->home != x || y->home != y || x->bytes + shift > y->bytes)
        return;
    x->t.data = (void *)((uintptr_t)x->t.data - (uintptr_t)x->memory + (uintptr_t)y->memory +
                         (uintptr_t)shift);
    x->home = y;
}

/** Gives all tensors memory; sometimes one lies upon another. */
static inline void give_memories(tensor *tensors, uint32_t count, input *in) {
    for (uint32_t i = 0; i < count; i++)
        give_memory(&tensors[i], in);
    const uint32_t how = take(in, 32);
    tensor *x = &tensors[take(in, count)];
    if (how >= 28)
        lay_upon(x, &tensors[take(in, count)], how % 2 ? take(in, 256) : 0);
    for (uint32_t i = 0; how < 8 && i < count; i++) // in place
        if (tensors[i].source)
            lay_upon(&tensors[i], tensors[i].source, 0);
}

/** Writes one element of a vector, if the element exists, for numbers that an op checks before it
 *  runs. */
static inline void put(tensor *x, int64_t i, const void *value, int64_t bytes) {
    const int64_t stride = x->t.strides ? x->strides[0] : 1;
    if (x->home != x || x->t.ndim != 1 || !x->t.shape || i >= x->shape[0] ||
        bytes_of_element(&x->t) != bytes)
        return;
    const uintptr_t at = (uintptr_t)qni_data(&x->t) + (uintptr_t)(i * stride * bytes);
    memcpy((void *)at, value, (size_t)bytes);
    memcpy(x->copy + (at - (uintptr_t)x->memory), value, (size_t)bytes);
}

static inline void put_i32(tensor *x, int64_t i, int64_t value) {
    put(x, i, &(int32_t){(int32_t)value}, sizeof(int32_t));
}

/** Writes a scale that results can be divided by, mostly. */
static inline void put_scale(tensor *x, input *in) {
    const float scale = take(in, 8) == 7 ? take_float(in) : 0.25f;
    put(x, 0, &scale, sizeof scale);
}

/** Makes numbers of a tensor's bytes, so that not every row has a NaN: clears an exponent's top; if
 *  is_probs, the sign as well, so that all are from 0 to below 2. */
static inline void calm(tensor *x, bool is_probs) {
    const int64_t size = bytes_of_element(&x->t);
    for (int64_t i = size - 1; x->home == x && size > 0 && i < x->bytes; i += size)
        x->copy[i] = x->memory[i] &= is_probs ? 0x3F : 0xBF;
}

static inline void free_tensors(tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        free(tensors[i].memory);
        free(tensors[i].copy);
        free(tensors[i].given_shape);
        free(tensors[i].given_strides);
    }
}

// ---- after the call

[[noreturn]] static inline void fail(const char *op, const char *what, ptrdiff_t which) {
    fprintf(stderr, "%s: %s (%td); last error: %s\n", op, what, which, qn_last_error());
    abort();
}

/** Marks the bytes of dimension `dim` and the dimensions behind it, from the element at `at`
 *  on. */
static inline void mark(const DLTensor *t, int dim, uint8_t *at, uint8_t bit) {
    const int64_t size = bytes_of_element(t);
    if (dim == t->ndim) {
        for (int64_t i = 0; i < size; i++)
            at[i] |= bit;
        return;
    }
    for (int64_t i = 0; i < t->shape[dim]; i++)
        mark(t, dim + 1, at + i * qni_stride(t, dim) * size, bit);
}

static inline bool is_in_place(const tensor *x, const tensor *out) {
    return out->is_given && out->source == x && out->home == x->home && out->home &&
           qni_is_same_memory(&out->t, &x->t);
}

/** Checks what has changed in `home` after a call that succeeded: only elements of outputs may
 *  have, and none of a tensor that is read. */
static inline void check_memory(const char *op, const tensor *home, const tensor *tensors,
                                uint32_t count) {
    static uint8_t marks[MAX_BYTES + 1];
    enum { READ = 0x80 };
    if (!home->memory || memcmp(home->memory, home->copy, (size_t)home->bytes) == 0)
        return;
    memset(marks, 0, (size_t)home->bytes);
    uint8_t written = 1;
    for (uint32_t i = 0; i < count; i++) {
        const tensor *x = &tensors[i];
        bool is_result = false;
        for (uint32_t k = 0; k < count; k++)
            is_result |= is_in_place(x, &tensors[k]);
        if (!x->is_given || x->home != home || is_result || qni_is_empty(&x->t))
            continue;
        const ptrdiff_t begin = (uint8_t *)qni_data(&x->t) - home->memory;
        mark(&x->t, 0, marks + begin, x->is_written ? written : READ);
        written = (uint8_t)(x->is_written ? written << 1 : written);
    }
    for (int64_t i = 0; i < home->bytes; i++)
        if (home->memory[i] != home->copy[i] &&
            (marks[i] == 0 || marks[i] == READ || (marks[i] & (marks[i] - 1))))
            fail(op, "a byte was written that is not one output's alone, in tensor",
                 home - tensors);
}

/** Checks that the call succeeded, or failed with a message that begins with the call's name, and
 *  wrote nothing. */
static inline void check_call(const char *op, qn_status st, const tensor *tensors, uint32_t count) {
    const char *said = qn_last_error();
    const size_t length = strlen(op);
    if (st != QN_OK && (strncmp(said, op, length) != 0 || strncmp(said + length, ": ", 2) != 0))
        fail(op, "the message does not begin with the op's name", st);
    for (uint32_t i = 0; i < count; i++) {
        const tensor *x = &tensors[i];
        if (st == QN_OK)
            check_memory(op, x, tensors, count);
        else if (x->memory && memcmp(x->memory, x->copy, (size_t)x->bytes) != 0)
            fail(op, "refused, and wrote all the same, to tensor", i);
    }
}

#endif
