// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: matrix multiplication on the CPU (dense, in batches, grouped by index, by ends
// and masked; all types, packed FP8, scales of f32 and exponents) and the packing of weights. The
// bytes make a small valid problem, then change what they like of it: any field of any tensor, any
// scalar, the groups' layout.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

enum {
    D,
    PACKED,
    PACKED_SCALE,
    SCALE_D,
    A,
    B,
    C,
    SCALE_A,
    SCALE_B,
    LAYOUT,
    BIAS,
    GATE,
    GIVEN_SCALE_D,
    COUNT
};

typedef struct gemm_sizes {
    int64_t m, n, k, groups; // dense: of batches; 0: it has none
    qn_gemm_grouping grouping;
    qn_gemm_activation activation;
    bool is_fp8, is_packed;
} gemm_sizes;

static int64_t blocks_of(int64_t size) {
    return (size + 127) / 128;
}

static gemm_sizes take_sizes(input *in) {
    static const int16_t ms[] = {0, 1, 2, 3, 4, 5, 8, 15, 17, 33, 128, 130};
    static const int16_t ns[] = {1, 2, 3, 16, 17, 31, 32, 64, 65, 100, 128, 130};
    static const int16_t ks[] = {128, 0, 1, 8, 31, 32, 64, 127, 129, 256, 260};
    gemm_sizes s = {.m = TAKE_ONE(in, ms),
                    .n = TAKE_ONE(in, ns),
                    .k = TAKE_ONE(in, ks),
                    .groups = take(in, 4),
                    .grouping = (qn_gemm_grouping)take(in, 4),
                    .is_fp8 = take_bool(in)};
    s.is_packed = s.is_fp8 && take_bool(in);
    if (s.grouping == QN_GEMM_DENSE && take_bool(in))
        s.groups = 0;
    s.activation = (qn_gemm_activation)take(in, 3);
    return s;
}

static int64_t columns_of(const gemm_sizes *s) {
    return s->activation == QN_GEMM_SILU_AND_MUL ? s->n / 2 : s->n;
}

/** Returns whether a and d have a slab of rows for each group, or for each batch. */
static bool has_slabs(const gemm_sizes *s) {
    return s->grouping == QN_GEMM_GROUPED_MASKED || s->grouping == QN_GEMM_DENSE;
}

/** Returns the groups of b or bias, of which one may stand for all batches. */
static int64_t groups_of(const gemm_sizes *s, input *in) {
    return s->grouping == QN_GEMM_DENSE && s->groups && take_bool(in) ? 1 : s->groups;
}

/** Sets a matrix of rows by columns, with groups if the form has them, and column-major now and
 *  then if that is allowed. */
static void set_matrix(tensor *x, DLDataType dtype, int64_t groups, int64_t rows, int64_t columns,
                       bool is_turned) {
    const int64_t shape[] = {groups, rows, columns};
    const int ndim = groups ? 3 : 2;
    set_tensor(x, dtype, ndim, shape + 3 - ndim);
    if (is_turned)
        x->strides[ndim - 2] = 1, x->strides[ndim - 1] = rows > 0 ? rows : 1;
}

/** Sets the scales of an operand: by K-blocks of rows or of blocks of them, of either alone, one,
 *  or none. */
static void set_scales(tensor *x, int64_t groups, int64_t rows, int64_t blocks, int64_t k,
                       bool is_turned, bool may_differ, input *in) {
    static const DLDataType types[] = {
        {kDLFloat, 32, 1}, {kDLFloat, 32, 1}, {kDLFloat8_e8m0fnu, 8, 1}, {kDLInt, 32, 1}};
    const uint32_t form = may_differ ? take(in, 16) : 0;
    const DLDataType type = may_differ ? TAKE_ONE(in, types) : f32;
    const bool has_words = type.code == kDLInt;
    set_matrix(x, type, form & 4 ? (groups ? 1 : 0) : groups,
               form & 1   ? rows
               : form & 2 ? 1
                          : blocks,
               has_words  ? (k + 3) / 4
               : form & 8 ? 1
                          : k,
               is_turned);
    if (form & 8 && !has_words && take_bool(in))
        x->t.ndim--;
}

/** Sets bias, and gate, which dense products take. */
static void set_epilogue(tensor *t, const gemm_sizes *s, input *in) {
    const bool is_dense = s->grouping == QN_GEMM_DENSE && !s->groups;
    const int64_t batches = s->m % 3 == 0 ? 3 : 1, shape[] = {batches, columns_of(s)},
                  biases[] = {groups_of(s, in), s->n};
    const uint32_t given = take(in, 8);
    const int ndim = given & 4 ? 2 : 1;
    set_tensor(&t[BIAS], given & 4 ? f32 : bf16, is_dense ? 1 : 2, biases + is_dense);
    set_tensor(&t[GATE], given & 4 ? bf16 : f32, ndim, shape + 2 - ndim);
    t[BIAS].is_there = given & 1;
    t[GATE].is_there = given & 2 && is_dense;
}

/** Sets the scales of d: one of the two if d is FP8. */
static void set_scales_d(tensor *t, const gemm_sizes *s, int64_t slabs, bool is_fp8, input *in) {
    const bool is_given = take_bool(in);
    set_matrix(&t[SCALE_D], f32, slabs, s->m, blocks_of(columns_of(s)), take_bool(in));
    SET(&t[GIVEN_SCALE_D], f32, 1);
    t[SCALE_D].is_there = is_fp8 && !is_given;
    t[GIVEN_SCALE_D].is_there = is_fp8 && is_given;
    t[SCALE_D].is_written = true;
}

static void set_problem(tensor *t, const gemm_sizes *s, input *in) {
    static const DLDataType e4m3[] = {{kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e4m3fnuz, 8, 1}};
    static const DLDataType kinds[] = {{kDLBfloat, 16, 1},       {kDLFloat, 16, 1},
                                       {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e4m3fnuz, 8, 1},
                                       {kDLFloat8_e5m2, 8, 1},   {kDLFloat8_e5m2fnuz, 8, 1}};
    static const DLDataType all[] = {{kDLBfloat, 16, 1},       {kDLFloat, 16, 1},
                                     {kDLFloat, 32, 1},        {kDLInt, 8, 1},
                                     {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e4m3fnuz, 8, 1},
                                     {kDLFloat8_e5m2, 8, 1},   {kDLFloat8_e5m2fnuz, 8, 1}};
    const bool is_dense = s->grouping == QN_GEMM_DENSE;
    const int64_t slabs = has_slabs(s) ? s->groups : 0, groups = groups_of(s, in);
    const DLDataType a = s->is_fp8 && take(in, 4) ? TAKE_ONE(in, e4m3) : TAKE_ONE(in, all),
                     b = s->is_fp8 ? TAKE_ONE(in, e4m3) : TAKE_ONE(in, all),
                     d = is_dense && take_bool(in) ? f32 : TAKE_ONE(in, kinds);
    const uint32_t turned = take(in, 8);
    set_matrix(&t[D], d, slabs, s->m, columns_of(s), false);
    set_matrix(&t[A], a, slabs, s->m, s->k, turned & 1);
    set_matrix(&t[B], b, groups, s->n, s->k, turned & 2 && !s->is_packed);
    set_scales(&t[SCALE_A], slabs, s->m, s->m, blocks_of(s->k), turned & 4, !s->is_packed, in);
    set_scales(&t[SCALE_B], groups, s->n, blocks_of(s->n), blocks_of(s->k), false, !s->is_packed,
               in);
    set_matrix(&t[PACKED_SCALE], f32, groups, blocks_of(s->n), blocks_of(s->k), false);
    set_matrix(&t[C], d, slabs, s->m, columns_of(s), false);
    SET(&t[LAYOUT], i32, s->grouping == QN_GEMM_GROUPED_INDEX ? s->m : s->groups);
    t[SCALE_A].is_there = s->is_fp8 || take_bool(in);
    t[SCALE_B].is_there = s->is_fp8 || take_bool(in);
    t[C].is_there = is_dense && d.bits > 8 && take_bool(in);
    t[LAYOUT].is_there = !is_dense;
    t[D].source = &t[C];
    t[D].is_written = true;
    set_epilogue(t, s, in);
    set_scales_d(t, s, slabs, d.bits == 8, in);
}

/** Sets the shape of packed weights, which have memory before they are packed. */
static void set_packed(tensor *t, input *in) {
    int64_t shape[3];
    DLDataType dtype;
    const qn_status st = qn_gemm_packed_shape(stream->device, given(&t[B]), shape, &dtype);
    check_call("gemm_packed_shape", st, t, COUNT);
    if (st != QN_OK)
        return;
    set_tensor(&t[PACKED], dtype, 3, shape);
    if (take(in, 32) == 31)
        change_tensor(&t[PACKED], in);
}

static void put_layout(tensor *x, const gemm_sizes *s, int64_t alignment, input *in) {
    int64_t end = 0;
    for (int64_t i = 0; x->t.ndim == 1 && i < x->shape[0] && i < 256; i++) {
        int64_t value = 0;
        if (s->grouping == QN_GEMM_GROUPED_INDEX) {
            value = i % 128 == 0 && s->groups ? take(in, (uint32_t)s->groups) : end;
            end = value;
        } else if (s->grouping == QN_GEMM_GROUPED_MASKED) {
            value = take(in, (uint32_t)s->m + 1);
        } else {
            const int64_t start = (end + alignment - 1) / alignment * alignment;
            value = end = start <= s->m ? start + take(in, (uint32_t)(s->m - start) + 1) : end;
        }
        put_i32(x, i, i < 4 || i > 126 ? take_mostly(in, value) : value);
    }
}

static void change_args(qn_gemm_args *a, input *in) {
    const uint32_t which = take(in, 7);
    int32_t *const ints[] = {&a->b_is_packed, &a->m_alignment, &a->zero_padding};
    if (which < 3)
        *ints[which] = (int32_t)take_wild(in);
    else if (which == 3)
        a->expected_m = take_wild(in);
    else if (which == 4)
        a->struct_size = (size_t)take_wild(in);
    else if (which == 5)
        a->activation = (qn_gemm_activation)take_wild(in);
    else
        a->scale_d_eps = (float)take_wild(in);
}

static void call(tensor *t, const gemm_sizes *s, const qn_gemm_args *a, input *in) {
    const uint32_t other = take(in, 64);
    const qn_gemm_grouping grouping = other == 63 ? (qn_gemm_grouping)take(in, 256) : s->grouping;
    if (s->grouping == QN_GEMM_DENSE)
        check_call("gemm", qn_gemm(stream, a), t, COUNT);
    else if (s->grouping == QN_GEMM_GROUPED_MASKED)
        check_call("gemm_grouped_masked", qn_gemm_grouped_masked(stream, a), t, COUNT);
    else
        check_call("gemm_grouped_contiguous", qn_gemm_grouped_contiguous(stream, a, grouping), t,
                   COUNT);
}

static void fuzz_gemm(input *in) {
    static const int16_t alignments[] = {0, 1, 2, 3, 16, 128, 129};
    tensor t[COUNT] = {};
    const gemm_sizes s = take_sizes(in);
    set_problem(t, &s, in);
    if (s.is_packed) { // any bytes are valid weights
        set_packed(t, in);
        t[B] = t[PACKED];
        t[B].t.shape = t[B].shape, t[B].t.strides = t[B].strides;
        t[PACKED] = (tensor){};
    }
    const bool is_ends = s.grouping == QN_GEMM_GROUPED_ENDS;
    t[PACKED_SCALE].is_there = false;
    qn_gemm_args a = {.struct_size = sizeof a,
                      .expected_m = s.grouping == QN_GEMM_GROUPED_MASKED ? 1 + take(in, 64) : 0,
                      .b_is_packed = s.is_packed,
                      .m_alignment = is_ends ? TAKE_ONE(in, alignments) : 0,
                      .zero_padding = is_ends && take_bool(in),
                      .activation = s.activation};
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_layout(&t[LAYOUT], &s, a.m_alignment ? a.m_alignment : 128, in);
    for (uint32_t i = take(in, 8); i > 6; i--)
        change_args(&a, in);
    a.d = given(&t[D]), a.a = given(&t[A]), a.b = given(&t[B]), a.c = given(&t[C]);
    a.scale_a = given(&t[SCALE_A]), a.scale_b = given(&t[SCALE_B]);
    a.group_layout = given(&t[LAYOUT]);
    a.bias = given(&t[BIAS]), a.gate = given(&t[GATE]);
    a.scale_d = given(&t[SCALE_D]), a.given_scale_d = given(&t[GIVEN_SCALE_D]);
    call(t, &s, take(in, 128) == 127 ? nullptr : &a, in);
    free_tensors(t, COUNT);
}

static void fuzz_pack(input *in) {
    tensor t[COUNT] = {};
    gemm_sizes s = take_sizes(in);
    s.is_fp8 = true, s.is_packed = false;
    set_problem(t, &s, in);
    for (int i = 0; i < COUNT; i++)
        t[i].is_there &= i == B || i == SCALE_B || i == PACKED_SCALE;
    change_tensors(t, COUNT, in);
    set_packed(t, in);
    t[PACKED].is_written = t[PACKED_SCALE].is_written = true;
    give_memories(t, COUNT, in);
    check_call("gemm_pack",
               qn_gemm_pack(stream, given(&t[PACKED]), given(&t[PACKED_SCALE]), given(&t[B]),
                            given(&t[SCALE_B])),
               t, COUNT);
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, data + size};
    take_cpu(&in);
    if (take(&in, 4) == 3)
        fuzz_pack(&in);
    else
        fuzz_gemm(&in);
    return 0;
}
