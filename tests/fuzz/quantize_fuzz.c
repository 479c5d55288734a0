// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: quantisation by blocks, groups and tensors, its inverse, conversion between
// encodings, the layouts of scales and packed bits, on the CPU. The bytes choose a function, make a
// small valid problem for it, then change what they like of it: any field of any tensor, any
// scalar, index tensors.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])
#define CALL(name, ...) check_call(#name, qn_##name(stream, __VA_ARGS__), t, COUNT)

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static float take_eps(input *in) {
    return take(in, 8) == 7 ? take_float(in) : 1e-4f;
}

// ---- blocks

static void fuzz_blocks(input *in) {
    enum { Q, SCALE, X, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take_size(in) - take(in, 2), cols = take_size(in),
                  block = take_bool(in) ? 128 : 1;
    const bool is_inverse = take_bool(in);
    SET(&t[Q], take_fp8_dtype(in), rows, cols);
    SET(&t[SCALE], f32, ceil_div(rows, block), ceil_div(cols, 128));
    SET(&t[X], take_float_dtype(in), rows, cols);
    t[is_inverse ? X : Q].is_written = true;
    t[SCALE].is_written = !is_inverse;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    const int64_t block_rows = take_mostly(in, block), block_cols = take_mostly(in, 128);
    if (is_inverse)
        CALL(dequantize_fp8, T(X), T(Q), T(SCALE), block_rows, block_cols);
    else
        CALL(quantize_fp8, T(Q), T(SCALE), T(X), block_rows, block_cols, take_eps(in));
    free_tensors(t, COUNT);
}

// ---- rows and tensors

static void fuzz_rows(input *in) {
    enum { Q, SCALE, WORKSPACE, X, GIVEN, COUNT };
    static const int16_t sizes[] = {0, 8, 16, 32, 64, 128, 5, 33};
    tensor t[COUNT] = {};
    const uint32_t which = take(in, 4);
    const int64_t rows = take(in, 8), cols = take_size(in), group = TAKE_ONE(in, sizes),
                  groups = group ? ceil_div(cols, group) : 1;
    const DLDataType q = take_bool(in) ? take_fp8_dtype(in) : i8;
    const bool is_packed = take_bool(in);
    SET(&t[Q], q, rows, cols);
    if (which == 3)
        SET(&t[SCALE], f32, 1);
    else
        SET(&t[SCALE], is_packed ? i32 : f32, rows, is_packed ? ceil_div(groups, 4) : groups);
    SET(&t[WORKSPACE], u8, qn_quantize_tensor_workspace());
    SET(&t[X], take_float_dtype(in), rows, cols);
    SET(&t[GIVEN], f32, 1);
    for (int i = Q; i <= WORKSPACE; i++)
        t[i].is_written = true;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_scale(&t[GIVEN], in);
    const int64_t group_given = take_mostly(in, group);
    const int32_t rounds = (int32_t)take_mostly(in, take(in, 2));
    const float eps = take_eps(in);
    if (which < 2)
        CALL(quantize_groups, T(Q), T(SCALE), T(X), group_given, rounds, eps);
    else if (which == 2)
        CALL(quantize_static, T(Q), T(X), T(GIVEN));
    else
        CALL(quantize_tensor, T(Q), T(SCALE), T(X), T(WORKSPACE), eps);
    free_tensors(t, COUNT);
}

// ---- conversion

static void fuzz_convert(input *in) {
    enum { Q_OUT, SCALE_OUT, Q, SCALE, COUNT };
    static const DLDataType fn = {kDLFloat8_e4m3fn, 8, 1}, fnuz = {kDLFloat8_e4m3fnuz, 8, 1};
    tensor t[COUNT] = {};
    const bool to_fnuz = take_bool(in);
    const int64_t rows = take_size(in) - take(in, 2), cols = take_size(in),
                  block = take_bool(in) ? 128 : 1;
    SET(&t[Q_OUT], to_fnuz ? fnuz : fn, rows, cols);
    SET(&t[Q], to_fnuz ? fn : fnuz, rows, cols);
    SET(&t[SCALE_OUT], f32, ceil_div(rows, block), ceil_div(cols, 128));
    SET(&t[SCALE], f32, ceil_div(rows, block), ceil_div(cols, 128));
    t[Q_OUT].is_written = t[SCALE_OUT].is_written = true;
    t[Q_OUT].source = &t[Q], t[SCALE_OUT].source = &t[SCALE];
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    for (int64_t i = 0; t[SCALE].home == &t[SCALE] && take_bool(in) && i < t[SCALE].bytes; i++)
        t[SCALE].memory[i] = t[SCALE].copy[i] = i % 4 == 3 ? 0x3F : (uint8_t)i; // about 0.5
    qn_convert_report report = {.struct_size = sizeof report};
    if (take(in, 16) == 15)
        report.struct_size = (size_t)take_wild(in);
    const int32_t allows = (int32_t)take_mostly(in, take(in, 2));
    CALL(convert_fp8, T(Q_OUT), T(SCALE_OUT), T(Q), T(SCALE), allows,
         take_bool(in) ? &report : nullptr);
    free_tensors(t, COUNT);
}

// ---- layouts of scales

/** Sets scales of [mn, sk] or [groups, mn, sk]. */
static void set_scales(tensor *x, bool is_packed, int64_t groups, int64_t rows, int64_t cols) {
    const int64_t shape[] = {groups, rows, is_packed ? ceil_div(cols, 4) : cols};
    set_tensor(x, is_packed ? i32 : f32, groups ? 3 : 2, shape + !groups);
}

static void fuzz_transform(input *in) {
    enum { OUT, SCALE, ENDS, COUNT };
    static const int16_t alignments[] = {0, 1, 2, 3, 16, 128};
    tensor t[COUNT] = {};
    const int64_t groups = take(in, 4), rows = take_size(in), cols = take(in, 20),
                  block_rows = take_bool(in) ? 1 : 1 + take(in, 130),
                  alignment = TAKE_ONE(in, alignments), step = alignment ? alignment : 128;
    set_scales(&t[OUT], take_bool(in), groups, rows, cols);
    set_scales(&t[SCALE], take_bool(in), groups, ceil_div(rows, block_rows), cols);
    SET(&t[ENDS], i32, take(in, 5));
    t[OUT].is_written = true;
    t[ENDS].is_there = !groups && take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    for (int64_t i = 0, end = 0; i < t[ENDS].shape[0] && i < 8; i++) {
        const int64_t start = ceil_div(end, step) * step;
        end = start < rows ? start + take(in, (uint32_t)(rows - start) + 1) : end;
        put_i32(&t[ENDS], i, take_mostly(in, end));
    }
    const int64_t block_given = take_mostly(in, block_rows), align = take_mostly(in, alignment);
    CALL(transform_scales, T(OUT), T(SCALE), T(ENDS), block_given, align,
         (int32_t)take_mostly(in, take(in, 2)));
    free_tensors(t, COUNT);
}

static void fuzz_k_grouped(input *in) {
    enum { OUT, SCALE, LAYOUT, COUNT };
    tensor t[COUNT] = {};
    const int64_t groups = take(in, 5), mn = take_size(in), gran = take_bool(in) ? 128 : 32,
                  alignment = take_bool(in) ? 0 : 64, step = alignment ? alignment : 128;
    const bool by_ends = take_bool(in);
    int64_t layout[5] = {}, scales = 0, words = 0;
    for (int64_t i = 0, end = 0; i < groups; i++) {
        const int64_t k = 4 * (int64_t)take(in, 256), begin = ceil_div(end, step) * step;
        end = by_ends ? begin + k : end;
        layout[i] = by_ends ? end : k;
        scales += ceil_div(k, gran), words += ceil_div(ceil_div(k, gran), 4);
    }
    SET_WRITTEN(&t[OUT], i32, words + take(in, 2), mn);
    SET(&t[SCALE], f32, scales + take(in, 2), mn);
    SET(&t[LAYOUT], i32, groups);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    for (int64_t i = 0; i < groups; i++)
        put_i32(&t[LAYOUT], i, take_mostly(in, layout[i]));
    const int64_t gran_given = take_mostly(in, gran), align = take_mostly(in, alignment);
    const int32_t ends_given = (int32_t)take_mostly(in, by_ends);
    CALL(pack_k_grouped_scales, T(OUT), T(SCALE), T(LAYOUT), gran_given, align, ends_given,
         (int32_t)take_mostly(in, take(in, 2)));
    free_tensors(t, COUNT);
}

// ---- bits

static void fuzz_bits(input *in) {
    enum { OUT, INDPTR_OUT, X, INDPTR, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 4) ? take_size(in) : take(in, 40), segments = take(in, 6);
    const bool has_segments = take_bool(in);
    SET_WRITTEN(&t[OUT], u8, has_segments ? n / 8 + segments : ceil_div(n, 8));
    SET_WRITTEN(&t[INDPTR_OUT], i32, segments + 1);
    SET(&t[X], take_bool(in) ? u8 : boolean, n);
    SET(&t[INDPTR], i32, segments + 1);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    // The contents of indptr are not checked by the op, so all its entries rise, to at most the
    // number of values.
    const int64_t count = t[INDPTR].bytes / 4, n_given = t[X].shape[0],
                  values = n_given >= 0 && n_given <= t[X].bytes ? n_given : 0;
    if (t[INDPTR].home != &t[INDPTR] && t[INDPTR].home)
        t[INDPTR].is_there = false;
    for (int64_t i = 0, sum = 0; i < count && t[INDPTR].home; i++) {
        put_i32(&t[INDPTR], i, sum);
        const int64_t next = sum + take(in, 1 + (uint32_t)(2 * values / count));
        sum = next < values ? next : values;
    }
    const qn_bit_order order = (qn_bit_order)take_mostly(in, take(in, 2));
    if (has_segments)
        CALL(segment_packbits, T(OUT), T(INDPTR_OUT), T(X), T(INDPTR), order);
    else
        CALL(packbits, T(OUT), T(X), order);
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const families[])(input *) = {
        fuzz_blocks, fuzz_rows, fuzz_convert, fuzz_transform, fuzz_k_grouped, fuzz_bits,
    };
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, families)(&in);
    return 0;
}
