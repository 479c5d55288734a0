// SPDX-License-Identifier: Apache-2.0
// The gemm family's check problems, for every device: `quern check` and the tests run them.
#include "gemm_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FN QNI_E4M3FN
#define FNUZ QNI_E4M3FNUZ
#define BF QNI_BF16
#define F32 QNI_F32
#define F16 QNI_F16
#define E5M2 QNI_E5M2
#define E5Z QNI_E5M2FNUZ
#define I8 QNI_I8
#define GIVEN .has_given_scale = true
#define DENSE(M, N, K, A, B, D, ...)                                                               \
    {.m = M, .n = N, .k = K, .dtype_a = A, .dtype_b = B, .dtype_d = D, __VA_ARGS__}
// What FLUX adds to its products: bias; bias and GELU; gate and residual.
#define BIAS .has_bias = true
#define GELU .has_bias = true, .activation = QN_GEMM_GELU_TANH
#define SILU .activation = QN_GEMM_SILU_AND_MUL // Llama's and experts' first product
#define GATE(BATCHES) .gate_batches = BATCHES, .adds_c = true
// Layouts as BLAS names them.
#define NN .b_transposed = true
#define TT .a_transposed = true
#define TN TT, NN
#define TURNS .takes_turns = true
// Batches, and one b for all of them.
#define BATCHES(COUNT) .groups = COUNT
#define SHARED(COUNT) .groups = COUNT, .shares_b = true
#define WORDS(A, B) SCALES(A, B), .exponents_a = QNI_WORDS, .exponents_b = QNI_WORDS
#define EXPONENTS(A, B) SCALES(A, B), .exponents_a = QNI_EXPONENTS, .exponents_b = QNI_EXPONENTS
#define SCALES(A, B) .scales_a = QNI_SCALES_##A, .scales_b = QNI_SCALES_##B
#define GROUPED(FORM, GROUPS, M, N, K, A, B, ...)                                                  \
    GROUPED_D(FORM, GROUPS, M, N, K, A, B, BF, __VA_ARGS__)
#define GROUPED_D(FORM, GROUPS, M, N, K, A, B, D, ...)                                             \
    {.grouping = QN_GEMM_GROUPED_##FORM,                                                           \
     .groups = GROUPS,                                                                             \
     .m = M,                                                                                       \
     .n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = A,                                                                                 \
     .dtype_b = B,                                                                                 \
     .dtype_d = D,                                                                                 \
     __VA_ARGS__}

// clang-format off
/** A few problems of each sort, which a quick check runs. */
static const qni_gemm_spec quick_specs[] = {
    DENSE(1, 129, 129, FN, FN, BF),
    DENSE(65, 130, 260, FN, FN, BF, .is_packed = true),
    DENSE(17, 64, 128, FN, FNUZ, F32, .fill = QNI_FILL_POWERS, .adds_c = true),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NAN),
    DENSE(33, 100, 200, BF, BF, BF, .is_strided = true),
    DENSE(3, 5, 0, FN, FN, BF, .adds_c = true),
    DENSE(36, 70, 20, BF, BF, F32, GELU, .is_strided = true),
    DENSE(36, 70, 140, FN, FN, BF, GELU, GATE(3), .is_packed = true),
    DENSE(36, 70, 140, FN, FN, BF, SILU, .is_packed = true),
    DENSE(34, 70, 70, BF, BF, BF, TN), // eights of rows pass the end, and 70 of k are left
    DENSE(20, 300, 140, FN, FN, FN, BIAS, .is_packed = true),
    DENSE(33, 140, 260, FN, FN, F32, SCALES(ONE, ONE)),
    DENSE(33, 140, 260, FN, FN, BF, SCALES(ROWS, ROWS), BIAS),
    DENSE(33, 140, 260, FN, FNUZ, F32, SCALES(BLOCKS, LINES)),
    DENSE(33, 66, 130, F16, F16, F16),
    DENSE(33, 66, 130, F32, F32, F32),
    DENSE(17, 66, 130, BF, I8, BF, SCALES(NONE, ROWS)),
    DENSE(17, 66, 130, F16, FN, F32, .is_packed = true),
    GROUPED(INDEX, 3, 0, 40, 136, FN, FN),
    GROUPED(ENDS, 3, 0, 40, 136, FN, FN, .zero_padding = true),
    GROUPED(MASKED, 4, 9, 40, 136, FN, FN),
    DENSE(68, 272, 144, FN, FN, BF, SILU, BIAS),
    GROUPED(ENDS, 3, 0, 138, 136, BF, BF, SILU, BIAS, .zero_padding = true),
    GROUPED_D(MASKED, 4, 70, 256, 144, FN, FN, FN, SILU),
    DENSE(9, 40, 136, FN, FN, BF, BATCHES(3), .is_packed = true),
    DENSE(9, 40, 136, BF, BF, F32, BATCHES(3), .adds_c = true),
    DENSE(9, 140, 700, FN, FN, F32, WORDS(LINES, LINES)),
};

static const qni_gemm_spec full_specs[] = {
    // Edges of the tiles, one dimension at a time.
    DENSE(1, 1, 1, FN, FN, BF), DENSE(1, 256, 512, FN, FN, BF, .is_packed = true),
    DENSE(2, 63, 127, FN, FN, F32), DENSE(5, 65, 128, FN, FN, BF, .is_packed = true),
    DENSE(16, 127, 129, FN, FN, BF, .is_packed = true), DENSE(31, 128, 255, FN, FN, F32),
    DENSE(64, 257, 384, FN, FN, BF, .is_packed = true), DENSE(127, 129, 257, FN, FN, BF),
    DENSE(128, 128, 256, FN, FN, BF, .is_packed = true), DENSE(129, 192, 130, FN, FN, F32),
    DENSE(257, 64, 131, FN, FN, BF, .is_packed = true), DENSE(300, 320, 160, FN, FN, BF),
    // Scales: of each form in a with each in b, none, and where a dimension of one block or row
    // makes two forms one.
    DENSE(34, 140, 260, FN, FN, F32, SCALES(ONE, ROWS)), DENSE(34, 140, 260, FNUZ, FN, F32, SCALES(ROWS, ONE), .is_strided = true),
    DENSE(34, 140, 260, FN, FN, BF, SCALES(ROWS, BLOCKS)), DENSE(34, 140, 260, FN, FN, F32, SCALES(BLOCKS, ROWS), .b_transposed = true),
    DENSE(34, 140, 260, FN, FN, F32, SCALES(BLOCKS, ONE)), DENSE(34, 140, 260, FN, FN, F32, SCALES(ONE, BLOCKS), .a_transposed = true),
    DENSE(34, 140, 260, FNUZ, FNUZ, F32, SCALES(ONE, LINES), .is_strided = true), DENSE(34, 140, 260, FN, FN, BF, SCALES(ROWS, LINES), .has_scale_columns = true),
    DENSE(34, 140, 260, FN, FN, F32, SCALES(NONE, NONE)), DENSE(34, 140, 260, FNUZ, FNUZ, BF, SCALES(NONE, NONE), .fill = QNI_FILL_POWERS),
    DENSE(34, 140, 260, FN, FN, F32, SCALES(NONE, LINES)), DENSE(34, 140, 260, FN, FNUZ, F32, SCALES(LINES, NONE)), DENSE(34, 140, 260, FN, FN, F32, SCALES(NONE, BLOCKS)),
    DENSE(34, 140, 260, FN, FN, F32, SCALES(LINES, LINES), .fill = QNI_FILL_POWERS), DENSE(34, 140, 260, FN, FN, F32, SCALES(ROWS, ROWS), .fill = QNI_FILL_POWERS, .adds_c = true),
    DENSE(34, 140, 260, BF, BF, BF, SCALES(NONE, ROWS)), DENSE(34, 140, 260, BF, BF, F32, SCALES(LINES, LINES)), DENSE(34, 140, 260, BF, BF, F32, SCALES(ONE, NONE)),
    DENSE(34, 140, 260, FN, FN, BF, SCALES(ROWS, BLOCKS), .is_packed = true), DENSE(3, 140, 260, FNUZ, FNUZ, F32, SCALES(ONE, BLOCKS), .is_packed = true), DENSE(3, 140, 260, FN, FN, F32, SCALES(NONE, BLOCKS), .is_packed = true),
    DENSE(1, 1, 260, FN, FN, F32, SCALES(LINES, LINES)), DENSE(1, 140, 128, FN, FN, F32, SCALES(ROWS, ROWS)), DENSE(34, 1, 100, FN, FN, F32, SCALES(ROWS, LINES)), DENSE(34, 100, 100, FN, FN, F32, SCALES(ONE, ONE)),
    DENSE(33, 66, 20, FN, FN, BF, SCALES(ROWS, ROWS), GELU, GATE(3)), DENSE(33, 266, 20, FN, FN, F32, SCALES(ONE, ONE), SILU, BIAS), DENSE(33, 266, 140, FN, FN, FN, SCALES(ROWS, ROWS), BIAS),
    DENSE(33, 66, 140, FN, FN, BF, SCALES(LINES, LINES), .fill = QNI_FILL_NAN), DENSE(33, 66, 140, FN, FN, BF, SCALES(ROWS, ROWS), .fill = QNI_FILL_NAN), DENSE(36, 75, 0, FN, FN, F32, SCALES(ROWS, LINES), GELU, GATE(4)),
    DENSE(2, 1100, 140, FN, FN, F32, SCALES(LINES, LINES)), DENSE(3, 20, 4364, FN, FN, F32, SCALES(LINES, LINES)), DENSE(1100, 6, 140, FN, FN, F32, SCALES(ROWS, ROWS)),
    GROUPED(INDEX, 3, 0, 140, 136, FN, FN, SCALES(ROWS, ROWS)), GROUPED(INDEX, 3, 0, 140, 136, FN, FN, SCALES(ONE, GROUPS)), GROUPED(ENDS, 3, 0, 140, 136, FN, FN, SCALES(LINES, LINES), .zero_padding = true),
    GROUPED(ENDS, 3, 0, 140, 136, FN, FNUZ, SCALES(ROWS, GROUPS), .m_alignment = 16), GROUPED(MASKED, 4, 9, 140, 136, FN, FN, SCALES(ROWS, ROWS), .is_strided = true),
    GROUPED(MASKED, 4, 9, 140, 136, FN, FN, SCALES(GROUPS, GROUPS)), GROUPED(MASKED, 4, 9, 140, 136, FN, FN, SCALES(BLOCKS, LINES)), GROUPED(MASKED, 4, 9, 140, 136, FN, FN, SCALES(ONE, ONE)), GROUPED(MASKED, 4, 9, 140, 136, FN, FN, SCALES(NONE, NONE)),
    GROUPED(MASKED, 67, 3, 6, 140, FN, FN, SCALES(GROUPS, ROWS), .rows = QNI_ROWS_FEW), GROUPED_D(MASKED, 4, 9, 264, 20, FN, FN, FN, SILU, SCALES(ROWS, ROWS)),
    // Exponents: bytes of each form, words, and either beside f32 or none; 2^-127, which is
    // subnormal; NaN.
    DENSE(34, 140, 260, FN, FN, F32, EXPONENTS(BLOCKS, BLOCKS)), DENSE(34, 140, 260, FNUZ, FN, F32, EXPONENTS(ROWS, LINES), .is_strided = true), DENSE(34, 140, 260, FN, FN, BF, EXPONENTS(ONE, ROWS), BIAS),
    DENSE(34, 140, 1160, FN, FN, BF, WORDS(BLOCKS, BLOCKS), .is_strided = true), DENSE(34, 140, 260, FN, FN, F32, WORDS(LINES, LINES), .fill = QNI_FILL_POWERS), DENSE(3, 140, 700, FN, FN, F32, SCALES(LINES, BLOCKS), .exponents_a = QNI_WORDS, .is_packed = true),
    DENSE(34, 140, 260, FN, FN, F32, SCALES(LINES, ROWS), .exponents_b = QNI_EXPONENTS), DENSE(17, 66, 130, BF, FN, BF, SCALES(NONE, LINES), .exponents_b = QNI_WORDS), DENSE(17, 66, 520, F16, FN, F16, EXPONENTS(ONE, LINES)), DENSE(17, 66, 520, F32, I8, F32, WORDS(LINES, LINES)),
    DENSE(33, 66, 130, FN, FN, F32, EXPONENTS(BLOCKS, BLOCKS), .fill = QNI_FILL_LARGE), DENSE(33, 66, 520, FN, FN, F32, WORDS(LINES, LINES), .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, FN, FN, F32, EXPONENTS(ROWS, ROWS), .fill = QNI_FILL_NAN), DENSE(33, 66, 520, FN, FN, BF, WORDS(LINES, LINES), .fill = QNI_FILL_NAN),
    DENSE(33, 66, 0, FN, FN, F32, EXPONENTS(ROWS, ROWS), BIAS), DENSE(3, 20, 4364, FN, FN, F32, WORDS(LINES, LINES)), GROUPED(INDEX, 3, 0, 140, 136, FN, FN, WORDS(LINES, LINES)), GROUPED(ENDS, 3, 0, 140, 136, FN, FN, EXPONENTS(ROWS, GROUPS), .m_alignment = 16),
    GROUPED(MASKED, 4, 9, 140, 700, FN, FN, WORDS(LINES, BLOCKS)), GROUPED_D(MASKED, 4, 9, 264, 20, FN, FN, FN, SILU, WORDS(LINES, LINES)),
    // Batches: with a b of their own; with one b, whose rows are those of one matrix or not; of one
    // row.
    DENSE(40, 130, 260, FNUZ, FNUZ, BF, BATCHES(3), .is_packed = true), DENSE(70, 72, 144, FN, FN, BF, SHARED(3), .is_packed = true, TURNS), DENSE(130, 140, 412, FNUZ, FNUZ, F32, BATCHES(2), .is_packed = true), DENSE(9, 40, 136, FN, FN, BF, BATCHES(1), .is_packed = true),
    DENSE(140, 136, 272, FN, FN, BF, BATCHES(3)), DENSE(140, 136, 136, BF, BF, F32, BATCHES(3), TURNS), DENSE(200, 264, 72, BF, BF, BF, BATCHES(3)), DENSE(5, 72, 72, BF, BF, BF, BATCHES(3), TURNS, NN, .fill = QNI_FILL_NAN), DENSE(3, 6, 140, FN, FN, BF, BATCHES(67)),
    DENSE(20, 136, 72, BF, BF, BF, SHARED(3)), DENSE(20, 72, 144, FN, FN, BF, SHARED(3), .is_strided = true), DENSE(20, 1, 72, BF, BF, BF, SHARED(3), TURNS), DENSE(1, 75, 150, BF, I8, BF, SHARED(5), SCALES(NONE, ROWS), .is_strided = true), DENSE(1, 75, 150, F16, F16, F16, BATCHES(5), TT),
    DENSE(1, 140, 700, FN, FN, FN, SHARED(3), WORDS(LINES, LINES), BIAS, .shares_bias = true), DENSE(20, 75, 40, BF, BF, BF, SHARED(3), .c_is_d = true), DENSE(36, 75, 150, FN, FN, BF, BATCHES(3), .c_is_d = true, .is_strided = true), DENSE(40, 130, 260, FNUZ, FNUZ, F16, BATCHES(2), .adds_c = true, .is_packed = true),
    DENSE(9, 264, 20, FN, FN, FN, BATCHES(3), SILU, BIAS, .is_packed = true), DENSE(33, 140, 20, BF, BF, FN, BATCHES(2), BIAS, .shares_bias = true, GIVEN), DENSE(9, 75, 20, F32, F32, F32, BATCHES(3), GELU), DENSE(9, 140, 260, FN, FN, F32, BATCHES(3), SCALES(ROWS, ROWS)), DENSE(9, 75, 0, BF, BF, F32, BATCHES(3), BIAS, .adds_c = true),
    // Encodings.
    DENSE(34, 70, 140, FNUZ, FNUZ, BF), DENSE(34, 70, 140, FN, FNUZ, BF),
    DENSE(34, 70, 140, FNUZ, FN, F32), DENSE(34, 70, 140, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(34, 70, 140, FNUZ, FN, BF, .is_packed = true), DENSE(34, 70, 140, FN, FNUZ, BF, .is_packed = true),
    // Packed weights for matrix cores of the FNUZ kinds: whole, odd and broken K-blocks, edges of
    // rows.
    DENSE(1, 130, 512, FNUZ, FNUZ, BF, .is_packed = true), DENSE(127, 128, 256, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(129, 257, 640, FNUZ, FNUZ, F32, .is_packed = true), DENSE(257, 129, 1024, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(255, 60, 780, FNUZ, FNUZ, BF, .is_packed = true, .is_strided = true), DENSE(70, 140, 388, FNUZ, FNUZ, F32, .is_packed = true, .adds_c = true),
    DENSE(300, 130, 772, FN, FN, BF, .is_packed = true, .is_strided = true), DENSE(33, 66, 516, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true),
    DENSE(33, 66, 516, FN, FN, BF, .fill = QNI_FILL_ANY, .is_packed = true),
    GROUPED(INDEX, 5, 0, 130, 384, FNUZ, FNUZ, .is_packed = true), GROUPED(ENDS, 5, 0, 130, 516, FNUZ, FNUZ, .is_packed = true, .zero_padding = true),
    GROUPED(MASKED, 4, 140, 130, 768, FNUZ, FNUZ, .is_packed = true), GROUPED(MASKED, 4, 140, 72, 516, FN, FN, .is_packed = true),
    // The same as checkpoints hold them.
    DENSE(1, 130, 512, FNUZ, FNUZ, BF), DENSE(127, 128, 256, FNUZ, FNUZ, BF), DENSE(129, 257, 640, FNUZ, FNUZ, F32),
    DENSE(255, 60, 780, FNUZ, FNUZ, BF, .is_strided = true), DENSE(70, 140, 388, FN, FN, F32, .adds_c = true),
    DENSE(33, 66, 516, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN), DENSE(33, 66, 516, FN, FN, BF, .fill = QNI_FILL_ANY),
    DENSE(70, 522, 264, FNUZ, FNUZ, FNUZ, SILU, BIAS), DENSE(70, 140, 516, FNUZ, FNUZ, F16, GELU, GATE(2)),
    GROUPED(INDEX, 5, 0, 130, 384, FNUZ, FNUZ), GROUPED(ENDS, 5, 0, 130, 516, FNUZ, FNUZ, .zero_padding = true),
    GROUPED(MASKED, 4, 140, 130, 768, FNUZ, FNUZ), GROUPED(MASKED, 4, 140, 72, 516, FN, FN),
    // The same with scales that do not differ along k.
    DENSE(65, 130, 516, FNUZ, FNUZ, BF, SCALES(ROWS, ROWS)), DENSE(257, 225, 396, FNUZ, FNUZ, F32, SCALES(ONE, ONE), .is_strided = true, .adds_c = true),
    DENSE(33, 260, 260, FNUZ, FNUZ, BF, SCALES(ONE, ROWS), SILU, BIAS), DENSE(33, 66, 132, FNUZ, FNUZ, F32, SCALES(ROWS, ONE), .fill = QNI_FILL_NAN),
    GROUPED(ENDS, 5, 0, 130, 516, FNUZ, FNUZ, SCALES(ROWS, GROUPS)), GROUPED(MASKED, 4, 70, 130, 260, FNUZ, FNUZ, SCALES(ROWS, ROWS)),
    // Layouts.
    DENSE(37, 75, 150, FN, FN, BF, .b_transposed = true), DENSE(37, 75, 150, FN, FN, BF, .a_transposed = true),
    DENSE(37, 75, 150, FN, FN, BF, .a_transposed = true, .b_transposed = true),
    DENSE(37, 75, 150, FN, FN, BF, .is_strided = true),
    DENSE(37, 75, 150, FN, FN, F32, .is_strided = true, .is_packed = true, .adds_c = true),
    DENSE(37, 75, 150, FN, FN, BF, .is_strided = true, .a_transposed = true, .b_transposed = true),
    DENSE(1, 75, 150, FN, FN, BF, .a_transposed = true), DENSE(37, 1, 150, FN, FN, BF, .b_transposed = true),
    // Adding c.
    DENSE(37, 75, 150, FN, FN, BF, .adds_c = true), DENSE(37, 75, 150, FN, FN, BF, .c_is_d = true),
    DENSE(37, 75, 150, FN, FN, F32, .c_is_d = true, .is_strided = true),
    DENSE(37, 75, 0, FN, FN, F32), DENSE(37, 75, 0, FN, FN, BF, .c_is_d = true), DENSE(9, 75, 0, BF, BF, BF),
    // Epilogues. GELU shows most in f32 where k is small, for then the bound is tight.
    DENSE(37, 75, 20, FN, FN, BF, BIAS), DENSE(37, 75, 150, BF, BF, BF, BIAS, .has_f32_vectors = true, .is_strided = true),
    DENSE(37, 75, 5, BF, BF, F32, GELU), DENSE(37, 75, 40, FN, FN, F32, GELU, .is_packed = true), DENSE(37, 75, 9, BF, BF, BF, .activation = QN_GEMM_GELU_TANH),
    DENSE(36, 75, 20, FN, FN, BF, GATE(1)), DENSE(36, 75, 20, FN, FN, F32, .gate_batches = 36),
    DENSE(36, 75, 150, FN, FN, BF, BIAS, .gate_batches = 4, .c_is_d = true, .has_f32_vectors = true, .is_strided = true),
    DENSE(36, 75, 0, BF, BF, F32, GELU, GATE(4)), DENSE(36, 75, 0, FN, FN, F32, GELU, GATE(2), .is_packed = true, .is_strided = true),
    DENSE(33, 66, 140, FN, FN, F32, BIAS, GATE(3), .fill = QNI_FILL_POWERS, .is_packed = true), DENSE(33, 66, 140, BF, BF, BF, BIAS, GATE(3), .fill = QNI_FILL_POWERS),
    DENSE(33, 66, 20, FN, FN, BF, GELU, GATE(3), .fill = QNI_FILL_NAN, .is_packed = true), DENSE(33, 66, 20, BF, BF, BF, GELU, GATE(1), .fill = QNI_FILL_NAN),
    DENSE(1, 129, 20, FN, FN, BF, GELU, .is_packed = true), DENSE(40, 130, 132, FNUZ, FNUZ, F32, GELU, GATE(2), .is_packed = true),
    DENSE(150, 256, 20, FNUZ, FNUZ, BF, GELU, .is_packed = true), DENSE(300, 130, 20, FNUZ, FNUZ, BF, BIAS, GATE(2), .is_packed = true),
    DENSE(270, 136, 20, FN, FN, BF, GELU, GATE(3), .is_packed = true, .is_strided = true), DENSE(68, 136, 136, BF, BF, BF, GELU, GATE(2)), DENSE(68, 136, 272, FN, FN, BF, GELU, GATE(2)),
    DENSE(37, 74, 5, BF, BF, F32, SILU), DENSE(9, 2, 8, BF, BF, BF, SILU, BIAS, GATE(3)), DENSE(36, 70, 0, FN, FN, F32, SILU, BIAS, GATE(2), .is_packed = true),
    DENSE(36, 134, 20, FNUZ, FNUZ, BF, SILU, BIAS, GATE(3), .is_packed = true, .is_strided = true), DENSE(70, 256, 20, FN, FN, BF, SILU, .is_packed = true),
    DENSE(300, 258, 20, FNUZ, FNUZ, BF, SILU, BIAS, .c_is_d = true, .is_packed = true), DENSE(260, 128, 20, FNUZ, FNUZ, F32, SILU, .is_packed = true),
    DENSE(33, 66, 20, BF, BF, BF, SILU, BIAS, GATE(1), .fill = QNI_FILL_NAN, .has_f32_vectors = true), DENSE(33, 66, 20, FN, FN, F32, SILU, .fill = QNI_FILL_NAN, .is_packed = true),
    // d of f16 and of FP8. Groups of 128 columns are wider than most tiles, and with SiLU than all.
    DENSE(37, 75, 20, BF, BF, F16, BIAS, .adds_c = true), DENSE(70, 256, 20, FNUZ, FNUZ, F16, GELU, .is_packed = true), DENSE(40, 132, 20, FN, FN, F16, SILU, .c_is_d = true, .is_packed = true),
    DENSE(70, 256, 20, FN, FN, F16, SILU, .is_packed = true), DENSE(33, 66, 140, FN, FN, F16, .fill = QNI_FILL_NAN, .is_packed = true, .is_strided = true),
    DENSE(70, 256, 20, FNUZ, FNUZ, FNUZ, .is_packed = true), DENSE(200, 130, 20, FNUZ, FNUZ, E5M2, BIAS, .is_packed = true, .is_strided = true),
    DENSE(33, 300, 20, BF, BF, FN, GELU, .gate_batches = 3), DENSE(70, 522, 20, FN, FN, FN, SILU, BIAS, .is_packed = true), DENSE(9, 258, 5, BF, BF, QNI_E5M2FNUZ, SILU),
    DENSE(33, 140, 20, FN, FN, FNUZ, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(5, 140, 0, FNUZ, FNUZ, FNUZ, BIAS, .is_packed = true),
    DENSE(70, 150, 20, FNUZ, FNUZ, FNUZ, GIVEN, .is_packed = true), DENSE(5, 140, 20, FN, FN, FN, SILU, GIVEN, .is_packed = true), DENSE(37, 75, 20, BF, BF, FN, GIVEN, .is_strided = true),
    // Groups, as experts have them.
    GROUPED_D(INDEX, 3, 0, 40, 20, FN, FN, BF, GELU), GROUPED_D(ENDS, 5, 0, 264, 20, FN, FN, FN, SILU, .m_alignment = 16, .zero_padding = true),
    GROUPED_D(MASKED, 4, 9, 264, 20, FN, FN, FN, SILU, BIAS, .is_packed = true), GROUPED_D(MASKED, 3, 33, 140, 20, BF, BF, FN, BIAS, .is_strided = true),
    GROUPED_D(INDEX, 3, 0, 136, 20, FNUZ, FNUZ, FNUZ, BIAS, .is_packed = true), GROUPED_D(ENDS, 5, 0, 140, 20, FNUZ, FNUZ, BF, SILU, BIAS, .is_packed = true, .zero_padding = true),
    GROUPED_D(ENDS, 3, 0, 70, 20, FNUZ, FNUZ, F16, BIAS, .has_f32_vectors = true, .is_packed = true), GROUPED_D(MASKED, 3, 20, 130, 20, FNUZ, FNUZ, FNUZ, .is_packed = true, GIVEN),
    // What the matrices hold.
    DENSE(33, 66, 400, FN, FN, F32, .fill = QNI_FILL_POWERS), DENSE(33, 66, 400, FN, FN, BF, .fill = QNI_FILL_POWERS, .is_packed = true),
    DENSE(33, 66, 400, BF, BF, F32, .fill = QNI_FILL_POWERS, .adds_c = true), DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_EQUAL),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_LARGE),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_TINY),
    DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_TINY),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_NAN),
    DENSE(33, 66, 130, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(33, 66, 130, BF, BF, BF, .fill = QNI_FILL_NAN),
    DENSE(33, 66, 600, FN, FN, BF, .fill = QNI_FILL_SPARSE), DENSE(33, 66, 600, FN, FN, F32, .fill = QNI_FILL_SPARSE, .is_packed = true),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NEGATIVE_ZERO), DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NEGATIVE_ZERO, .is_packed = true),
    DENSE(33, 66, 130, FN, FN, F32, .fill = QNI_FILL_ANY, .is_packed = true), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_ANY),
    DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_ANY),
    // One row, for which kernels have special ways.
    DENSE(1, 66, 300, FN, FN, F32, .fill = QNI_FILL_ANY, .is_packed = true), DENSE(1, 66, 300, FNUZ, FNUZ, F32, .fill = QNI_FILL_ANY, .is_packed = true),
    DENSE(1, 66, 300, FN, FN, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(1, 66, 300, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true),
    DENSE(1, 66, 300, FN, FNUZ, F32, .fill = QNI_FILL_POWERS, .is_packed = true), DENSE(1, 66, 300, FNUZ, FN, F32, .fill = QNI_FILL_TINY, .is_packed = true),
    // bf16.
    DENSE(1, 129, 300, BF, BF, BF), DENSE(65, 130, 257, BF, BF, F32), DENSE(130, 260, 130, BF, BF, BF, .adds_c = true),
    DENSE(37, 75, 150, BF, BF, BF, .b_transposed = true), DENSE(37, 75, 150, BF, BF, BF, .a_transposed = true),
    DENSE(37, 75, 150, BF, BF, F32, .a_transposed = true, .b_transposed = true, .is_strided = true),
    // f16, f32, i8 and mixes; try_types has each type beside each other one.
    DENSE(1, 129, 300, F16, F16, F32), DENSE(65, 130, 257, F16, F16, BF, .adds_c = true), DENSE(1, 129, 300, F32, F32, F32), DENSE(65, 130, 257, F32, F32, BF, .adds_c = true),
    DENSE(37, 75, 150, F16, F16, F16, NN, .is_strided = true), DENSE(37, 75, 150, F32, F32, F32, TT), DENSE(37, 75, 150, F32, F32, F32, TN, .is_strided = true), DENSE(37, 75, 150, I8, I8, F32, NN),
    DENSE(1, 1, 1, F32, F32, F32), DENSE(1, 1, 1, F16, BF, F32), DENSE(5, 7, 31, F32, I8, F32), DENSE(64, 64, 32, F32, F32, F32), DENSE(65, 63, 33, F32, F16, BF), DENSE(128, 64, 64, F16, F16, F16),
    DENSE(34, 140, 260, F16, F16, F16, SCALES(ROWS, ROWS)), DENSE(34, 140, 260, F32, F32, F32, SCALES(LINES, LINES)), DENSE(34, 140, 260, I8, I8, BF, SCALES(ROWS, ROWS)), DENSE(34, 140, 260, F16, I8, F16, SCALES(NONE, ROWS), BIAS),
    DENSE(34, 140, 260, I8, FN, F32, SCALES(ONE, BLOCKS)), DENSE(34, 140, 260, F32, E5M2, F32, SCALES(NONE, LINES)), DENSE(34, 140, 260, BF, FN, BF, SCALES(ONE, BLOCKS)), DENSE(34, 140, 260, BF, FNUZ, F32, SCALES(LINES, BLOCKS)),
    DENSE(33, 66, 400, F16, F16, F32, .fill = QNI_FILL_POWERS, .adds_c = true), DENSE(33, 66, 400, F32, F32, F32, .fill = QNI_FILL_POWERS, .adds_c = true), DENSE(33, 66, 400, I8, I8, F32, .fill = QNI_FILL_POWERS), DENSE(33, 66, 400, F32, BF, F32, .fill = QNI_FILL_POWERS), DENSE(33, 66, 400, F16, BF, F32, .fill = QNI_FILL_POWERS),
    DENSE(33, 66, 130, F16, F16, F32, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, F32, F32, F32, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, F16, F32, F32, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, F16, BF, F32, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, E5Z, F16, F32, .fill = QNI_FILL_TINY),
    DENSE(33, 66, 130, F16, F16, F32, .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, F32, F32, F32, .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, I8, I8, F32, .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, F16, E5M2, F16, .fill = QNI_FILL_LARGE),
    DENSE(33, 66, 130, F16, F16, F32, .fill = QNI_FILL_ANY), DENSE(33, 66, 130, F32, F32, F32, .fill = QNI_FILL_ANY), DENSE(33, 66, 130, F32, BF, F32, .fill = QNI_FILL_ANY), DENSE(33, 66, 130, I8, E5M2, F32, .fill = QNI_FILL_ANY), DENSE(33, 66, 130, E5Z, F16, F32, .fill = QNI_FILL_ANY),
    DENSE(33, 66, 130, F16, F16, F16, .fill = QNI_FILL_NAN), DENSE(33, 66, 130, F32, F32, F32, .fill = QNI_FILL_NAN), DENSE(33, 66, 130, F32, I8, BF, .fill = QNI_FILL_NAN), DENSE(33, 66, 130, E5M2, F16, F32, .fill = QNI_FILL_NAN), DENSE(33, 66, 130, E5Z, E5M2, F32, .fill = QNI_FILL_NAN),
    DENSE(33, 66, 130, F16, F16, F16, .fill = QNI_FILL_INFINITE), DENSE(33, 66, 130, F32, F32, F32, .fill = QNI_FILL_INFINITE), DENSE(33, 66, 130, F32, F16, BF, .fill = QNI_FILL_INFINITE), DENSE(33, 66, 130, BF, F32, F32, .fill = QNI_FILL_INFINITE),
    DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_INFINITE), DENSE(33, 66, 130, E5M2, E5M2, F32, SCALES(NONE, NONE), .fill = QNI_FILL_INFINITE), DENSE(33, 66, 130, I8, F32, F32, .fill = QNI_FILL_INFINITE),
    DENSE(36, 70, 20, F16, F16, F16, GELU, GATE(3)), DENSE(36, 70, 20, F32, F32, F32, SILU, BIAS, .has_f32_vectors = true), DENSE(36, 270, 20, F16, I8, FN, SILU), DENSE(33, 140, 140, F32, FN, FN, BIAS, GIVEN), DENSE(36, 75, 0, F16, F32, F32, GELU, GATE(4)),
    DENSE(5, 70, 260, F16, FN, F16, .is_packed = true), DENSE(1, 70, 260, BF, FN, BF, .is_packed = true), DENSE(1, 70, 260, F32, FNUZ, F32, .is_packed = true), DENSE(70, 140, 260, I8, FN, F32, .is_packed = true), DENSE(3, 70, 260, BF, FNUZ, F32, SCALES(ROWS, BLOCKS), .is_packed = true), DENSE(33, 66, 516, BF, FN, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(2, 66, 516, F32, FN, F32, .fill = QNI_FILL_ANY, .is_packed = true),
    DENSE(2, 1100, 70, F16, F16, F16), DENSE(3, 20, 4364, F32, F32, F32), DENSE(3, 20, 4364, F16, I8, F32), DENSE(1100, 6, 70, F32, F16, F32),
    GROUPED_D(INDEX, 4, 0, 40, 136, F16, F16, F16), GROUPED_D(INDEX, 4, 0, 40, 136, BF, I8, BF, SCALES(NONE, ROWS)), GROUPED_D(ENDS, 4, 0, 40, 136, F32, F32, BF, .zero_padding = true, .m_alignment = 16), GROUPED_D(MASKED, 4, 9, 40, 136, F16, FN, F16, .is_packed = true),
    GROUPED_D(MASKED, 4, 9, 40, 136, F32, BF, BF, .is_strided = true), GROUPED_D(MASKED, 4, 9, 264, 20, F16, F16, FN, SILU, BIAS), GROUPED_D(MASKED, 67, 3, 6, 140, I8, I8, BF, SCALES(GROUPS, ROWS), .rows = QNI_ROWS_FEW),
    // Groups.
    GROUPED(INDEX, 7, 0, 72, 144, FN, FN), GROUPED(INDEX, 7, 0, 72, 144, FN, FN, .is_packed = true),
    GROUPED(INDEX, 4, 0, 72, 144, FN, FN, .rows = QNI_ROWS_NONE), GROUPED(INDEX, 1, 0, 72, 144, FNUZ, FN),
    GROUPED(INDEX, 6, 0, 33, 70, BF, BF), GROUPED(INDEX, 6, 0, 33, 70, FN, FN, .is_strided = true, .b_transposed = true),
    GROUPED(INDEX, 6, 0, 33, 70, FN, FN, .fill = QNI_FILL_NAN),
    GROUPED(ENDS, 7, 0, 72, 144, FN, FN), GROUPED(ENDS, 7, 0, 72, 144, FN, FN, .is_packed = true, .zero_padding = true),
    GROUPED(ENDS, 7, 0, 72, 144, FN, FN, .m_alignment = 16, .zero_padding = true), GROUPED(ENDS, 7, 0, 33, 70, BF, BF, .m_alignment = 1),
    GROUPED(ENDS, 4, 0, 72, 144, FN, FN, .rows = QNI_ROWS_NONE, .zero_padding = true),
    GROUPED(ENDS, 6, 0, 33, 70, FN, FN, .is_strided = true, .zero_padding = true),
    GROUPED(MASKED, 5, 70, 72, 144, FN, FN), GROUPED(MASKED, 5, 70, 72, 144, FN, FN, .is_packed = true, .expected_m = 1),
    GROUPED(MASKED, 5, 130, 40, 130, FN, FNUZ, .expected_m = 1000000), GROUPED(MASKED, 3, 33, 40, 130, BF, BF),
    GROUPED(MASKED, 4, 70, 40, 130, FN, FN, .rows = QNI_ROWS_NONE), GROUPED(MASKED, 4, 70, 40, 130, FN, FN, .rows = QNI_ROWS_FULL),
    GROUPED(MASKED, 5, 33, 40, 130, FN, FN, .is_strided = true, .a_transposed = true),
    // What Hopper's copy engine takes: rows of whole 16 bytes; several tiles and a part of one.
    DENSE(300, 200, 272, FN, FN, BF), DENSE(260, 136, 512, FN, FN, BF, .has_scale_columns = true),
    DENSE(4, 520, 1024, FN, FN, BF, .has_scale_columns = true), DENSE(64, 136, 1536, FN, FN, F32, .has_scale_columns = true),
    DENSE(268, 72, 528, FN, FN, F32, .adds_c = true), DENSE(140, 72, 512, FN, FN, BF, .has_scale_columns = true, .c_is_d = true),
    DENSE(68, 75, 512, FN, FN, BF, .has_scale_columns = true, .fill = QNI_FILL_NAN), DENSE(68, 200, 512, FN, FN, BF, .fill = QNI_FILL_POWERS),
    DENSE(68, 72, 512, FN, FN, F32, .fill = QNI_FILL_LARGE), DENSE(68, 72, 512, FN, FN, F32, .fill = QNI_FILL_TINY), DENSE(1, 264, 528, FN, FN, BF),
    DENSE(300, 200, 200, BF, BF, BF), DENSE(268, 136, 264, BF, BF, F32, .adds_c = true), DENSE(1, 264, 520, BF, BF, BF),
    DENSE(68, 75, 136, BF, BF, BF, .fill = QNI_FILL_NAN), DENSE(68, 136, 136, BF, BF, F32, .fill = QNI_FILL_POWERS), DENSE(68, 72, 136, BF, BF, F32, .fill = QNI_FILL_TINY),
    // Epilogues there: pairs of columns, and whole boxes of rows in a batch of gate.
    DENSE(300, 200, 72, BF, BF, BF, GELU, GATE(1)), DENSE(268, 200, 144, FN, FN, BF, GELU, GATE(1), .has_f32_vectors = true), DENSE(1, 264, 520, BF, BF, BF, GELU),
    DENSE(256, 136, 72, BF, BF, BF, BIAS, .gate_batches = 4, .c_is_d = true, .has_f32_vectors = true), DENSE(256, 136, 144, FN, FN, BF, BIAS, .gate_batches = 2),
    DENSE(68, 200, 136, BF, BF, BF, BIAS, GATE(1), .fill = QNI_FILL_POWERS), DENSE(68, 136, 144, FN, FN, BF, BIAS, GATE(1), .fill = QNI_FILL_POWERS),
    DENSE(68, 136, 144, FN, FN, BF, GELU, GATE(1), .fill = QNI_FILL_NAN), DENSE(268, 520, 136, BF, BF, BF, .adds_c = true), DENSE(68, 136, 144, FN, FN, F32, GELU, GATE(1)),
    // d of e4m3fn there: a tile's columns are a group.
    DENSE(300, 256, 272, FN, FN, FN), DENSE(268, 384, 512, FN, FN, FN, GELU, .has_scale_columns = true, .has_f32_vectors = true), DENSE(1, 128, 144, FN, FN, FN, BIAS),
    DENSE(68, 128, 144, FN, FN, FN, GELU, .fill = QNI_FILL_NAN), DENSE(68, 128, 512, FN, FN, FN, .fill = QNI_FILL_TINY), DENSE(200, 256, 144, FN, FN, FN, BIAS, GIVEN),
    GROUPED(INDEX, 7, 0, 136, 272, FN, FN), GROUPED(INDEX, 7, 0, 136, 512, FN, FN, .has_scale_columns = true), GROUPED(INDEX, 7, 0, 136, 136, BF, BF),
    GROUPED(ENDS, 7, 0, 136, 272, FN, FN, .zero_padding = true), GROUPED(ENDS, 7, 0, 136, 512, FN, FN, .m_alignment = 16, .has_scale_columns = true),
    GROUPED(ENDS, 7, 0, 136, 512, FN, FN, .m_alignment = 1, .has_scale_columns = true), GROUPED(ENDS, 7, 0, 136, 136, BF, BF, TN, .m_alignment = 1),
    GROUPED(ENDS, 7, 0, 136, 136, BF, BF, .m_alignment = 16, .zero_padding = true), GROUPED(ENDS, 67, 0, 8, 144, FN, FN, .rows = QNI_ROWS_FEW, .m_alignment = 4),
    GROUPED(MASKED, 5, 140, 136, 272, FN, FN), GROUPED(MASKED, 5, 140, 136, 512, FN, FN, .has_scale_columns = true),
    GROUPED(MASKED, 5, 140, 136, 136, BF, BF), GROUPED(MASKED, 67, 4, 8, 144, FN, FN, .rows = QNI_ROWS_FEW), GROUPED(MASKED, 3, 330, 72, 144, FN, FN, .rows = QNI_ROWS_FULL),
    // bf16 in other layouts there: tiles and parts of them, whole and broken K-blocks.
    DENSE(300, 200, 200, BF, BF, BF, NN), DENSE(304, 200, 200, BF, BF, BF, TN), DENSE(304, 264, 136, BF, BF, BF, TT), DENSE(1, 520, 328, BF, BF, BF, NN),
    DENSE(8, 40, 72, BF, BF, F32, TN), DENSE(68, 75, 136, BF, BF, BF, .a_transposed = true), DENSE(72, 136, 8, BF, BF, BF, TN), DENSE(268, 136, 320, BF, BF, F32, NN, .adds_c = true),
    DENSE(272, 520, 136, BF, BF, BF, TN, .adds_c = true), DENSE(72, 264, 520, BF, BF, F32, TT), DENSE(72, 136, 136, BF, BF, F32, TN, .fill = QNI_FILL_POWERS),
    DENSE(72, 136, 136, BF, BF, BF, NN, .fill = QNI_FILL_NAN), DENSE(72, 136, 136, BF, BF, BF, TT, .fill = QNI_FILL_NAN), DENSE(72, 72, 136, BF, BF, F32, TN, .fill = QNI_FILL_TINY),
    DENSE(296, 200, 72, BF, BF, BF, NN, GELU, GATE(1)), DENSE(256, 136, 72, BF, BF, BF, TN, BIAS, .gate_batches = 4, .c_is_d = true, .has_f32_vectors = true), DENSE(136, 264, 72, BF, BF, F32, TT, GELU),
    GROUPED(INDEX, 7, 0, 136, 136, BF, BF, NN), GROUPED(INDEX, 7, 0, 136, 72, BF, BF, TN), GROUPED(ENDS, 7, 0, 136, 136, BF, BF, NN, .m_alignment = 16, .zero_padding = true),
    GROUPED(ENDS, 7, 0, 264, 200, BF, BF, TT, .m_alignment = 16), GROUPED(MASKED, 5, 140, 136, 136, BF, BF, NN), GROUPED(MASKED, 5, 144, 136, 72, BF, BF, TN),
    GROUPED(MASKED, 5, 144, 136, 136, BF, BF, TT, .fill = QNI_FILL_NAN), GROUPED(MASKED, 67, 4, 8, 144, BF, BF, NN, .rows = QNI_ROWS_FEW),
    DENSE(3, 5, 140, BF, BF, F32, TN), DENSE(3, 5, 140, BF, BF, F32, NN), // rows shorter than runs
    // CDNA's tiles of 256 rows: the eight rows that pass the end in whole K-blocks, f16, the ends.
    DENSE(300, 140, 192, BF, BF, BF, TN), DENSE(300, 140, 192, F16, F16, F16, NN), DENSE(300, 140, 192, F16, F16, F32, TT), DENSE(258, 130, 256, F16, F16, F16, TN, .adds_c = true),
    DENSE(300, 500, 320, F16, F16, F16), DENSE(270, 460, 136, BF, BF, BF, SILU, BIAS), DENSE(270, 460, 136, F16, F16, F32, GELU, GATE(1)), DENSE(270, 460, 136, BF, BF, F16, TN, SILU, BIAS),
    DENSE(66, 70, 200, F16, F16, BF, TN), DENSE(72, 136, 8, F16, F16, F16, TN), DENSE(66, 70, 200, F16, F16, BF, TT), DENSE(72, 136, 8, F16, F16, F16, TT), DENSE(66, 70, 200, F16, F16, BF, NN),
    DENSE(300, 260, 200, F16, F16, F16, TT), DENSE(300, 260, 200, F16, F16, F16, TN), DENSE(300, 260, 200, F16, F16, F16, NN),
    GROUPED(ENDS, 7, 0, 460, 136, BF, BF, .m_alignment = 16, .zero_padding = true), GROUPED(MASKED, 3, 300, 460, 136, F16, F16, .rows = QNI_ROWS_FULL), GROUPED(MASKED, 3, 300, 260, 192, F16, F16, TN, .rows = QNI_ROWS_FULL),
    // Groups whose lines take turns, as the heads of MLA's absorbed products; a NaN in one of them
    // must not reach its neighbours' edges.
    GROUPED(MASKED, 5, 140, 136, 136, BF, BF, TURNS), GROUPED(MASKED, 5, 140, 264, 72, BF, BF, TURNS, .rows = QNI_ROWS_FULL), GROUPED(MASKED, 3, 200, 520, 200, BF, BF, TURNS, NN, .rows = QNI_ROWS_FULL),
    GROUPED(MASKED, 5, 144, 136, 136, BF, BF, TURNS, TN), GROUPED(MASKED, 5, 140, 72, 72, BF, BF, TURNS, .fill = QNI_FILL_NAN), GROUPED(MASKED, 5, 140, 72, 72, BF, BF, TURNS, NN, .fill = QNI_FILL_NAN, .rows = QNI_ROWS_FULL),
    GROUPED(MASKED, 67, 4, 8, 144, BF, BF, TURNS, .rows = QNI_ROWS_FEW), GROUPED(INDEX, 7, 0, 136, 136, BF, BF, TURNS),
    GROUPED(MASKED, 5, 140, 136, 272, FN, FN, TURNS), GROUPED(MASKED, 3, 330, 72, 512, FN, FN, TURNS, .has_scale_columns = true, .rows = QNI_ROWS_FULL), GROUPED(ENDS, 7, 0, 136, 272, FN, FN, TURNS, .m_alignment = 16),
    // SiLU-and-multiply there: boxes of each width, and parts of tiles; by lanes, d of f32 or of
    // odd rows, with gate and c; codes of two tiles side by side.
    DENSE(300, 400, 72, BF, BF, BF, SILU), DENSE(268, 528, 144, FN, FN, BF, SILU, BIAS), DENSE(1, 264, 520, BF, BF, F16, SILU, BIAS, .has_f32_vectors = true),
    DENSE(200, 272, 512, FN, FN, F16, SILU, .has_scale_columns = true), DENSE(68, 200, 136, BF, BF, F32, SILU, BIAS, GATE(2)), DENSE(72, 138, 144, FN, FN, BF, SILU, BIAS, .c_is_d = true),
    DENSE(68, 144, 136, BF, BF, BF, SILU, BIAS, .fill = QNI_FILL_NAN), DENSE(68, 144, 144, FN, FN, F32, SILU, .fill = QNI_FILL_NAN), DENSE(4, 1040, 144, FN, FN, BF, SILU, GATE(2)),
    DENSE(300, 512, 144, FN, FN, FN, SILU, BIAS), DENSE(68, 256, 512, FN, FN, FN, SILU, .has_scale_columns = true, .fill = QNI_FILL_NAN), DENSE(1, 768, 144, FN, FN, FN, SILU, BIAS, GIVEN),
    GROUPED(INDEX, 7, 0, 272, 144, FN, FN, SILU, BIAS), GROUPED(INDEX, 7, 0, 400, 136, BF, BF, SILU), GROUPED_D(ENDS, 7, 0, 272, 144, FN, FN, F16, SILU, BIAS, .m_alignment = 16, .zero_padding = true),
    GROUPED(ENDS, 7, 0, 138, 136, BF, BF, SILU, BIAS, .m_alignment = 16, .zero_padding = true), GROUPED(MASKED, 5, 140, 528, 512, FN, FN, SILU, .has_scale_columns = true), GROUPED_D(MASKED, 5, 140, 272, 136, BF, BF, F16, SILU, BIAS),
    GROUPED(MASKED, 67, 4, 16, 144, FN, FN, SILU, BIAS, .rows = QNI_ROWS_FEW), GROUPED(MASKED, 3, 200, 144, 136, BF, BF, SILU, .fill = QNI_FILL_NAN, .rows = QNI_ROWS_FULL),
    GROUPED_D(INDEX, 7, 0, 512, 144, FN, FN, FN, SILU, BIAS), GROUPED_D(ENDS, 7, 0, 256, 512, FN, FN, FN, SILU, .m_alignment = 16, .zero_padding = true, .has_scale_columns = true),
    GROUPED_D(MASKED, 5, 140, 512, 144, FN, FN, FN, SILU, BIAS), GROUPED_D(MASKED, 5, 140, 256, 144, FN, FN, FN, SILU, GIVEN),
    // Places far along each dimension: the ninth block of n, rows past 1024, more than 32 K-blocks,
    // more groups than lanes.
    DENSE(2, 1100, 140, FN, FN, BF), DENSE(2, 1100, 140, FN, FN, BF, .is_packed = true, .adds_c = true),
    DENSE(3, 1100, 256, FNUZ, FNUZ, F32, .is_packed = true), DENSE(2, 1100, 140, FN, FN, BF, .b_transposed = true),
    DENSE(2, 1100, 70, BF, BF, BF), DENSE(2, 1100, 70, BF, BF, F32, .b_transposed = true, .adds_c = true),
    DENSE(3, 20, 4364, FN, FN, BF), DENSE(3, 20, 4364, FN, FN, F32, .is_packed = true), DENSE(3, 20, 4364, FNUZ, FNUZ, BF, .is_packed = true, .is_strided = true),
    DENSE(3, 20, 4364, FN, FN, BF, .is_strided = true, .a_transposed = true, .b_transposed = true), DENSE(3, 20, 4364, BF, BF, BF),
    DENSE(1100, 6, 140, FN, FN, BF), DENSE(1100, 6, 140, FN, FN, F32, .is_packed = true, .adds_c = true),
    DENSE(1100, 6, 256, FNUZ, FNUZ, BF, .is_packed = true), DENSE(1100, 6, 140, FN, FN, BF, .a_transposed = true),
    DENSE(1100, 6, 8, BF, BF, BF, BIAS, GATE(1100)), DENSE(2, 1100, 8, BF, BF, BF, GELU, GATE(2)), DENSE(2, 1100, 20, FNUZ, FNUZ, F32, BIAS, GATE(2), .is_packed = true),
    DENSE(1100, 6, 70, BF, BF, BF, .adds_c = true), DENSE(1100, 6, 70, BF, BF, F32, .a_transposed = true),
    GROUPED(INDEX, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW), GROUPED(INDEX, 67, 0, 6, 140, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true),
    GROUPED(ENDS, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .m_alignment = 4), GROUPED(ENDS, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .is_packed = true, .m_alignment = 4),
    GROUPED(ENDS, 67, 0, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true, .m_alignment = 16, .zero_padding = true), GROUPED(ENDS, 67, 0, 6, 70, BF, BF, .rows = QNI_ROWS_FEW, .m_alignment = 4),
    GROUPED(MASKED, 67, 3, 6, 140, FN, FN, .rows = QNI_ROWS_FEW), GROUPED(MASKED, 67, 3, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .is_packed = true),
    GROUPED(MASKED, 67, 3, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true), GROUPED(MASKED, 2, 1030, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FULL, .is_packed = true),
    GROUPED(MASKED, 67, 3, 6, 70, BF, BF, .rows = QNI_ROWS_FEW),
};
// clang-format on

// ---- gemm

static qn_status reset_case(void *context, [[maybe_unused]] qn_stream *stream) {
    return qni_gemm_case_reset(context);
}

static qn_status compare_case(void *context, [[maybe_unused]] qn_stream *stream, double *error,
                              char *detail, size_t room) {
    return qni_gemm_case_compare(context, error, detail, room);
}

static qn_status try_spec(qni_trial_run *run, const qni_gemm_spec *spec) {
    qni_gemm_case c;
    qn_status st = qni_gemm_case_create(&c, qni_trial_stream(run), spec, qni_trial_seed(run));
    const DLTensor *outputs[] = {&c.d.t, &c.scale_d.t};
    const qni_trial_problem problem = {.op = &qni_op_gemm,
                                       .text = c.text,
                                       .problem = &c.problem,
                                       .context = &c,
                                       .reset = reset_case,
                                       .compare = compare_case,
                                       .outputs = outputs,
                                       .num_outputs = c.scale_d.area.owner ? 2 : 1};
    if (st == QN_OK)
        st = qni_trial_problem_run(run, &problem);
    qni_gemm_case_destroy(&c);
    return st;
}

/** Tries each type of a beside each of b. */
static qn_status try_types(qni_trial_run *run) {
    static const qni_dtype types[] = {F32, F16, BF, FN, FNUZ, E5M2, E5Z, I8},
                           results[] = {F32, BF, F16};
    constexpr int count = sizeof types / sizeof *types;
    qn_status st = QN_OK;
    for (int i = 0; i < count * count && st == QN_OK; i++)
        st = try_spec(run, &(qni_gemm_spec){.m = 18 + i % 3,
                                            .n = 66,
                                            .k = 136 + i % 2,
                                            .dtype_a = types[i / count],
                                            .dtype_b = types[i % count],
                                            .dtype_d = results[i % 3],
                                            .scales_a = QNI_SCALES_NONE,
                                            .scales_b = i % 5 ? QNI_SCALES_ROWS : QNI_SCALES_NONE,
                                            .a_transposed = i % 7 == 3,
                                            .b_transposed = i % 4 == 1});
    return st;
}

static qn_status try_gemm(qni_trial_run *run) {
    qn_status st = QN_OK;
    for (size_t i = 0; i < sizeof quick_specs / sizeof *quick_specs && st == QN_OK; i++)
        st = try_spec(run, &quick_specs[i]);
    if (st == QN_OK)
        st = qni_gemm_try_batches(run);
    if (qni_trial_is_quick(run))
        return st;
    if (st == QN_OK)
        st = try_types(run);
    for (size_t i = 0; i < sizeof full_specs / sizeof *full_specs && st == QN_OK; i++)
        st = try_spec(run, &full_specs[i]);
    return st;
}

// ---- gemm_pack: byte for byte

enum { WEIGHTS, SCALES, PACKED, PACKED_SCALES, NUM_AREAS };

typedef struct pack_case {
    char text[96];
    qni_gemm_pack_problem problem; // pointers into device memory
    qni_area areas[NUM_AREAS];
} pack_case;

static void pack_case_init(pack_case *c, const qn_device *device, qni_dtype dtype, int64_t groups,
                           int64_t n, int64_t k) {
    const int64_t nb = qni_pieces(n, 128), kb = qni_pieces(k, 128);
    int64_t tile_n, tile_k;
    qni_gemm_pack_tiles(device, &tile_n, &tile_k);
    *c = (pack_case){.problem = {.dtype_in = dtype,
                                 .dtype_out = qni_gemm_pack_dtype(device, dtype),
                                 .groups = groups,
                                 .n = n,
                                 .k = k,
                                 .packed_n = qni_round_up(n, tile_n),
                                 .packed_k = qni_round_up(k, tile_k),
                                 .b_group = n * (k + 3),
                                 .b_n = k + 3,
                                 .scale_b_group = nb * kb,
                                 .scale_b_nb = kb}};
    snprintf(c->text, sizeof c->text, "groups=%ld n=%ld k=%ld %s -> %s", (long)groups, (long)n,
             (long)k, qni_dtype_name(dtype), qni_dtype_name(c->problem.dtype_out));
}

static qn_status create_pack_areas(pack_case *c, qn_device *device) {
    qni_gemm_pack_problem *p = &c->problem;
    const int64_t scales = p->groups * p->scale_b_group;
    qni_area *a = c->areas;
    QN_TRY(qni_area_create(&a[WEIGHTS], "b", device, QNI_U8, p->groups * p->b_group, 0));
    QN_TRY(qni_area_create(&a[SCALES], "scale_b", device, QNI_F32, scales, 0));
    QN_TRY(qni_area_create(&a[PACKED], "packed", device, QNI_U8,
                           p->groups * p->packed_n * p->packed_k, 0));
    QN_TRY(qni_area_create(&a[PACKED_SCALES], "packed_scale", device, QNI_F32, scales, 0));
    p->b = qni_area_device(&a[WEIGHTS]);
    p->scale_b = qni_area_device(&a[SCALES]);
    p->packed = qni_area_device(&a[PACKED]);
    p->packed_scale = qni_area_device(&a[PACKED_SCALES]);
    return QN_OK;
}

/** Fills the areas with every code there is, NaN and negative zero among them, and with scales that
 *  differ. */
static void fill_pack_areas(pack_case *c) {
    const float factor = c->problem.dtype_in == c->problem.dtype_out ? 1 : 2;
    uint8_t *b = qni_area_host(&c->areas[WEIGHTS]);
    float *scale = qni_area_host(&c->areas[SCALES]);
    for (int64_t i = 0; i < c->areas[WEIGHTS].count; i++)
        b[i] = (uint8_t)(i * 37 + i / 256);
    for (int64_t i = 0; i < c->areas[SCALES].count; i++) {
        scale[i] = (float)(i + 1) * 0.37f;
        qni_area_expect(&c->areas[PACKED_SCALES], i, (double)(scale[i] * factor), 0);
    }
}

/** Expects each byte in its place, and zeros where the tiles reach past the weights. */
static void expect_packed(pack_case *c, const qn_device *device) {
    const qni_gemm_pack_problem *p = &c->problem;
    const uint8_t *b = qni_area_host(&c->areas[WEIGHTS]);
    qni_area *packed = &c->areas[PACKED];
    for (int64_t i = 0; i < packed->count; i++)
        qni_area_expect(packed, i, 0, 0);
    for (int64_t i = 0; i < p->groups * p->n * p->k; i++) {
        const int64_t g = i / (p->n * p->k), n = i / p->k % p->n, k = i % p->k;
        const int64_t at = qni_gemm_packed_offset(device, p->packed_k, n, k);
        const uint8_t byte = b[g * p->b_group + n * p->b_n + k];
        qni_area_expect(packed, g * p->packed_n * p->packed_k + at,
                        qni_gemm_pack_byte(p->dtype_in, p->dtype_out, byte), 0);
    }
}

static qn_status try_pack_size(qni_trial_run *run, qni_dtype dtype, int64_t groups, int64_t n,
                               int64_t k) {
    qn_device *device = qn_stream_device(qni_trial_stream(run));
    pack_case c;
    qn_status st;
    pack_case_init(&c, device, dtype, groups, n, k);
    QN_TRY_OUT(create_pack_areas(&c, device));
    fill_pack_areas(&c);
    expect_packed(&c, device);
    QN_TRY_OUT(qni_areas_try(run, &qni_op_gemm_pack, &c.problem, c.text, c.areas, NUM_AREAS));
out:
    qni_areas_destroy(c.areas, NUM_AREAS);
    return st;
}

static qn_status try_pack(qni_trial_run *run) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {2, 130, 260}, {1, 64, 128},  {1, 65, 127},
                                       {3, 257, 384}, {1, 1100, 40}, {1, 20, 4364}, {67, 6, 20}};
    const int count = qni_trial_is_quick(run) ? 2 : (int)(sizeof sizes / sizeof *sizes);
    const qn_status st = QN_OK;
    for (int i = 0; i < count && st == QN_OK; i++) {
        QN_TRY(try_pack_size(run, QNI_E4M3FN, sizes[i][0], sizes[i][1], sizes[i][2]));
        QN_TRY(try_pack_size(run, QNI_E4M3FNUZ, sizes[i][0], sizes[i][1], sizes[i][2]));
    }
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    return op == &qni_op_gemm ? try_gemm(run) : try_pack(run);
}

static const qni_op *const ops[] = {&qni_op_gemm, &qni_op_gemm_pack, nullptr};
const qni_family qni_family_gemm = {"gemm", ops, try_op};
