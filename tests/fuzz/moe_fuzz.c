// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: mixtures of experts on the CPU: routing, sorting, rows, activations, sums, the
// layer. The bytes choose a function, make a small valid problem for it, then change what they like
// of it: any field of any tensor, any number, ids and maps.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])
#define CALL(name, ...) check_call(#name, qn_##name(stream, __VA_ARGS__), t, COUNT)

static size_t take_struct_size(input *in, size_t right) {
    return (size_t)take_mostly(in, (int64_t)right);
}

/** Takes 0, or now and then any number. */
static float take_number(input *in) {
    return take(in, 8) == 7 ? take_float(in) : 0;
}

/** Writes the elements of an i32 tensor, 1-D or 2-D as it was made: mostly -1 to below - 1. */
static void put_indices(tensor *x, int64_t below, input *in) {
    int64_t low, high;
    const bool is_1d = x->t.ndim == 1;
    if (x->home != x || !x->t.shape || x->t.dtype.code != kDLInt || x->t.dtype.bits != 32 ||
        x->t.dtype.lanes != 1 || (!is_1d && x->t.ndim != 2) || !get_reach(&x->t, &low, &high) ||
        high == low)
        return;
    const int64_t rows = is_1d ? 1 : x->shape[0], columns = is_1d ? x->shape[0] : x->shape[1];
    const int64_t row = is_1d ? 0 : x->t.strides ? x->strides[0] : columns;
    const int64_t column = x->t.strides ? x->strides[is_1d ? 0 : 1] : 1;
    for (int64_t i = 0; i < rows * columns; i++) {
        const int32_t value = (int32_t)take_mostly(in, (int64_t)take(in, (uint32_t)below + 1) - 1);
        const uintptr_t at = (uintptr_t)qni_data(&x->t) +
                             (uintptr_t)((i / columns * row + i % columns * column) * 4);
        memcpy((void *)at, &value, sizeof value);
        memcpy(x->copy + (at - (uintptr_t)x->memory), &value, sizeof value);
    }
}

static void fuzz_route(input *in) {
    enum { WEIGHTS, IDS, LOGITS, BIAS, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 5), groups = 1 + take(in, 4), experts = groups * take_size(in);
    const int64_t top_k = 1 + take(in, 9), shared = take(in, 8) == 7;
    SET_WRITTEN(&t[WEIGHTS], f32, n, top_k + shared);
    SET_WRITTEN(&t[IDS], i32, n, top_k + shared);
    SET(&t[LOGITS], take_float_dtype(in), n, experts);
    SET(&t[BIAS], take_float_dtype(in), experts);
    t[BIAS].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    if (take(in, 8) != 7)
        calm(&t[LOGITS], false);
    const qn_moe_route_args args = {.struct_size = take_struct_size(in, sizeof args),
                                    .weights = T(WEIGHTS),
                                    .ids = T(IDS),
                                    .logits = T(LOGITS),
                                    .bias = T(BIAS),
                                    .scoring = (qn_moe_scoring)take_mostly(in, take(in, 2)),
                                    .groups = take_mostly(in, groups),
                                    .topk_groups = take_mostly(in, take(in, 3)),
                                    .renormalize = (int32_t)take_mostly(in, take(in, 2)),
                                    .scaling = take_number(in),
                                    .shared_experts = take_mostly(in, shared),
                                    .shared_weight = take_number(in)};
    CALL(moe_route, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

static void fuzz_sort(input *in) {
    enum { ENDS, ROW_OF_PAIR, PAIR_OF_ROW, EXPERT_OF_ROW, EXPERT_OF_BLOCK, NUM_ROWS, IDS, MAP };
    enum { COUNT = MAP + 1 };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 9), top_k = take(in, 5), experts = 1 + take(in, 12);
    const int64_t alignment = 1 + take(in, 20), mapped = take(in, 20);
    const int64_t rows = qn_moe_sort_rows(n * top_k, experts, alignment) + take(in, 40);
    SET_WRITTEN(&t[ENDS], i32, experts);
    SET_WRITTEN(&t[ROW_OF_PAIR], i32, n, top_k);
    SET_WRITTEN(&t[PAIR_OF_ROW], i32, rows);
    SET_WRITTEN(&t[EXPERT_OF_ROW], i32, rows);
    SET_WRITTEN(&t[EXPERT_OF_BLOCK], i32, rows / alignment);
    SET_WRITTEN(&t[NUM_ROWS], i32, 1);
    SET(&t[IDS], i32, n, top_k);
    SET(&t[MAP], i32, mapped);
    for (int i = ROW_OF_PAIR; i <= NUM_ROWS; i++)
        t[i].is_there = take(in, 4) != 3;
    t[MAP].is_there = take(in, 4) == 3;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_indices(&t[IDS], t[MAP].is_there ? mapped : experts, in);
    put_indices(&t[MAP], experts, in);
    const qn_moe_sort_args args = {.struct_size = take_struct_size(in, sizeof args),
                                   .ids = T(IDS),
                                   .expert_map = T(MAP),
                                   .experts = take_mostly(in, experts),
                                   .alignment = take_mostly(in, alignment),
                                   .ends = T(ENDS),
                                   .row_of_pair = T(ROW_OF_PAIR),
                                   .pair_of_row = T(PAIR_OF_ROW),
                                   .expert_of_row = T(EXPERT_OF_ROW),
                                   .expert_of_block = T(EXPERT_OF_BLOCK),
                                   .num_rows = T(NUM_ROWS)};
    CALL(moe_sort, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

static void fuzz_permute(input *in) {
    enum { OUT, SCALE_OUT, X, SCALE, PAIRS, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 6), rows = take(in, 12), h = take_size(in), groups = take(in, 4);
    const int64_t top_k = 1 + take(in, 4);
    const DLDataType dtype = take_bool(in) ? take_fp8_dtype(in) : take_float_dtype(in);
    SET_WRITTEN(&t[OUT], dtype, rows, h);
    SET_WRITTEN(&t[SCALE_OUT], f32, rows, groups);
    SET(&t[X], dtype, n, h);
    SET(&t[SCALE], f32, n, groups);
    SET(&t[PAIRS], i32, rows);
    t[SCALE].is_there = t[SCALE_OUT].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_indices(&t[PAIRS], n * top_k + 1, in);
    CALL(moe_permute, T(OUT), T(SCALE_OUT), T(X), T(SCALE), T(PAIRS), take_mostly(in, top_k));
    free_tensors(t, COUNT);
}

static void fuzz_activate(input *in) {
    enum { OUT, SCALE, X, EXPERTS, COUNT };
    tensor t[COUNT] = {};
    const int64_t rows = take(in, 6), h = take_size(in);
    const DLDataType dtype = take_float_dtype(in);
    const bool is_quant = take_bool(in);
    SET_WRITTEN(&t[OUT], is_quant ? take_fp8_dtype(in) : dtype, rows, h);
    SET_WRITTEN(&t[SCALE], f32, rows, (h + 127) / 128);
    SET(&t[X], dtype, rows, 2 * h);
    SET(&t[EXPERTS], i32, rows);
    t[SCALE].is_there = is_quant, t[EXPERTS].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    const qn_moe_activate_args args = {.struct_size = take_struct_size(in, sizeof args),
                                       .out = T(OUT),
                                       .scale = T(SCALE),
                                       .x = T(X),
                                       .expert_of_row = T(EXPERTS),
                                       .function = (qn_moe_function)take_mostly(in, take(in, 4)),
                                       .limit = take_number(in),
                                       .alpha = take_number(in),
                                       .is_interleaved = (int32_t)take_mostly(in, take(in, 2)),
                                       .scale_eps = take_number(in)};
    CALL(moe_activate, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

static void fuzz_sum(input *in) {
    enum { OUT, X, WEIGHTS, ROWS, ADDEND, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 6), top_k = take(in, 5), h = take_size(in);
    const bool has_rows = take_bool(in);
    const int64_t rows = has_rows ? take(in, 12) : n * top_k;
    const DLDataType out = take_float_dtype(in);
    SET_WRITTEN(&t[OUT], out, n, h);
    SET(&t[X], take_float_dtype(in), rows, h);
    SET(&t[WEIGHTS], f32, n, top_k);
    SET(&t[ROWS], i32, n, top_k);
    SET(&t[ADDEND], out, n, h);
    t[WEIGHTS].is_there = take_bool(in), t[ROWS].is_there = has_rows;
    t[ADDEND].is_there = take_bool(in), t[OUT].source = &t[ADDEND];
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_indices(&t[ROWS], rows, in);
    CALL(moe_sum, T(OUT), T(X), T(WEIGHTS), T(ROWS), T(ADDEND));
    free_tensors(t, COUNT);
}

static void fuzz_fused(input *in) {
    enum { OUT, WORKSPACE, X, X_SCALE, W1, W2, W1_SCALE, W2_SCALE, BIAS1, BIAS2, WEIGHTS, IDS };
    enum { MAP = IDS + 1, ADDEND, COUNT };
    tensor t[COUNT] = {};
    const int64_t n = take(in, 4), top_k = take(in, 3), experts = 1 + take(in, 3);
    const int64_t h = 1 + take(in, 40), inner = 1 + take(in, 40), mapped = 1 + take(in, 4);
    const DLDataType out = take_float_dtype(in), w = take_bool(in) ? take_fp8_dtype(in) : bf16;
    const DLDataType x = take(in, 4) == 3 ? take_fp8_dtype(in) : take_bool(in) ? f16 : bf16;
    SET_WRITTEN(&t[OUT], out, n, h);
    SET_WRITTEN(&t[WORKSPACE], u8,
                take_mostly(in, qn_fused_moe_workspace(n, top_k, h, inner, experts)));
    SET(&t[X], x, n, h);
    SET(&t[X_SCALE], f32, n, 1);
    SET(&t[W1], w, experts, 2 * inner, h);
    SET(&t[W2], take_bool(in) ? w : bf16, experts, h, inner);
    SET(&t[W1_SCALE], f32, experts, 1, 1);
    SET(&t[W2_SCALE], f32, experts);
    SET(&t[BIAS1], take_bool(in) ? bf16 : f32, experts, 2 * inner);
    SET(&t[BIAS2], f32, experts, h);
    SET(&t[WEIGHTS], f32, n, top_k);
    SET(&t[IDS], i32, n, top_k);
    SET(&t[MAP], i32, mapped);
    SET(&t[ADDEND], out, n, h);
    for (int i = W1_SCALE; i <= BIAS2; i++)
        t[i].is_there = take_bool(in);
    t[X_SCALE].is_there = x.code != kDLFloat && x.code != kDLBfloat;
    t[MAP].is_there = take(in, 4) == 3, t[ADDEND].is_there = take_bool(in);
    t[OUT].source = &t[ADDEND];
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_indices(&t[IDS], t[MAP].is_there ? mapped : experts, in);
    put_indices(&t[MAP], experts, in);
    const qn_fused_moe_args args = {.struct_size = take_struct_size(in, sizeof args),
                                    .out = T(OUT),
                                    .x = T(X),
                                    .x_scale = T(X_SCALE),
                                    .w1 = T(W1),
                                    .w2 = T(W2),
                                    .w1_scale = T(W1_SCALE),
                                    .w2_scale = T(W2_SCALE),
                                    .bias1 = T(BIAS1),
                                    .bias2 = T(BIAS2),
                                    .weights = T(WEIGHTS),
                                    .ids = T(IDS),
                                    .expert_map = T(MAP),
                                    .addend = T(ADDEND),
                                    .workspace = T(WORKSPACE),
                                    .function = (qn_moe_function)take_mostly(in, take(in, 4)),
                                    .limit = take_number(in),
                                    .alpha = take_number(in),
                                    .is_interleaved = (int32_t)take_mostly(in, take(in, 2)),
                                    .w_is_packed = (int32_t)take_mostly(in, 0),
                                    .inner = take_mostly(in, 0)};
    CALL(fused_moe, take(in, 64) == 63 ? nullptr : &args);
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const functions[])(input *) = {fuzz_route,    fuzz_sort, fuzz_permute,
                                                 fuzz_activate, fuzz_sum,  fuzz_fused};
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, functions)(&in);
    return 0;
}
