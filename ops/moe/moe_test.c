// SPDX-License-Identifier: Apache-2.0
// Sorting, permutation and sums: what the functions refuse, and a small layer by hand.
// families_test shows that kernels agree with the definitions.
#include "../shared/op_test.h"
#include "moe.h"

enum { TOKENS = 3, TOP_K = 2, EXPERTS = 3, ALIGNMENT = 4, ROWS = 12, N = 8 };

static box ids, map, ends, row_of_pair, pair_of_row, expert_of_row, expert_of_block, num_rows;
static box x, scale, out, scale_out, weights, addend;
static qn_moe_sort_args args;

static void make_sort(void) {
    INDICES(&ids, 2, 0, -1, 2, 0, 2);
    ids.t.ndim = 2, ids.shape[0] = TOKENS, ids.shape[1] = TOP_K;
    ids.strides[0] = TOP_K, ids.strides[1] = 1;
    INDICES(&map, 1, -1, 0, 2);
    MAKE(&ends, QNI_I32, EXPERTS);
    MAKE(&row_of_pair, QNI_I32, TOKENS, TOP_K);
    MAKE(&pair_of_row, QNI_I32, ROWS);
    MAKE(&expert_of_row, QNI_I32, ROWS);
    MAKE(&expert_of_block, QNI_I32, ROWS / ALIGNMENT);
    MAKE(&num_rows, QNI_I32, 1);
    args = (qn_moe_sort_args){.struct_size = sizeof args,
                              .ids = &ids.t,
                              .experts = EXPERTS,
                              .alignment = ALIGNMENT,
                              .ends = &ends.t,
                              .row_of_pair = &row_of_pair.t,
                              .pair_of_row = &pair_of_row.t,
                              .expert_of_row = &expert_of_row.t,
                              .expert_of_block = &expert_of_block.t,
                              .num_rows = &num_rows.t};
}

static qn_status sort(void) {
    return qn_moe_sort(stream, &args);
}

static void assert_indices(const box *b, const int32_t *want, int count) {
    for (int i = 0; i < count; i++)
        assert_int_equal(((const int32_t *)b->data)[i], want[i]);
}
#define ASSERT_INDICES(box, ...)                                                                   \
    assert_indices(box, (const int32_t[]){__VA_ARGS__},                                            \
                   (int)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static void test_sort(void **) {
    make_sort();
    assert_int_equal(sort(), QN_OK);
    ASSERT_INDICES(&ends, 2, 4, 7);
    ASSERT_INDICES(&row_of_pair, 4, 0, -1, 5, 1, 6);
    ASSERT_INDICES(&pair_of_row, 1, 4, 6, 6, 0, 3, 5, 6, 6, 6, 6, 6);
    ASSERT_INDICES(&expert_of_row, 0, 0, -1, -1, 2, 2, 2, -1, -1, -1, -1, -1);
    ASSERT_INDICES(&expert_of_block, 0, 2, -1);
    ASSERT_INDICES(&num_rows, 8);
}

/** Experts that are elsewhere have no rows here. */
static void test_map(void **) {
    make_sort();
    args.expert_map = &map.t;
    INDICES(&map, 1, 0, -1);
    assert_int_equal(sort(), QN_OK);
    ASSERT_INDICES(&ends, 0, 2, 4);
    ASSERT_INDICES(&row_of_pair, -1, 0, -1, -1, 1, -1);
}

static void refused(qn_status status, const char *words) {
    assert_refused(sort(), status, words);
    assert_int_equal(*(int32_t *)ends.data, -1);
    assert_int_equal(*(int32_t *)row_of_pair.data, -1);
    assert_int_equal(*(int32_t *)pair_of_row.data, -1);
    make_sort();
}

static void test_sort_refusals(void **) {
    make_sort();
    args.struct_size = 1, refused(QN_E_INVALID, "moe_sort: args");
    args.ids = nullptr, refused(QN_E_INVALID, "moe_sort: ids is null");
    args.ends = nullptr, refused(QN_E_INVALID, "moe_sort: ends is null");
    args.experts = 0, refused(QN_E_INVALID, "experts is 0; accepted: 1 to 2^31 - 1");
    args.alignment = -1, refused(QN_E_INVALID, "alignment is -1; accepted: 1 to 2^20");
    args.alignment = 5, refused(QN_E_INVALID, "expert_of_block has shape [3]");
    MAKE(&pair_of_row, QNI_I32, ROWS - 1), args.expert_of_row = nullptr;
    args.expert_of_block = nullptr,
    refused(QN_E_INVALID, "there are 11 rows; accepted: at least 12");
    MAKE(&expert_of_row, QNI_I32, ROWS + 1), refused(QN_E_INVALID, "expert_of_row has shape [13]");
    MAKE(&expert_of_block, QNI_I32, 2), args.expert_of_row = args.pair_of_row = nullptr,
                                        refused(QN_E_INVALID, "there are 8 rows");
    ids.t.dtype = qni_dl_dtype(QNI_I64), refused(QN_E_UNSUPPORTED, "ids has dtype i64");
    ends.t.data = num_rows.data, num_rows.shape[0] = 1;
    assert_refused(sort(), QN_E_INVALID, "overlap");
    make_sort();
    ((int32_t *)ids.data)[4] = 3;
    refused(QN_E_INVALID, "moe_sort: ids[4] is 3; accepted: -1 to 2");
    ((int32_t *)ids.data)[1] = -2, refused(QN_E_INVALID, "moe_sort: ids[1] is -2");
    args.expert_map = &map.t, ((int32_t *)map.data)[3] = 3;
    refused(QN_E_INVALID, "moe_sort: expert_map[3] is 3; accepted: -1 to 2");
}

static void test_rows(void **) {
    assert_int_equal(qn_moe_sort_rows(6, 3, 4), 12); // 3 experts of 1, 1 and 4
    assert_int_equal(qn_moe_sort_rows(2, 99, 0), 256);
    assert_int_equal(qn_moe_sort_rows(100, 7, 1), 100);
    assert_int_equal(qn_moe_sort_rows(0, 7, 16), 0);
    assert_int_equal(qn_moe_sort_rows(-1, 7, 16), -1);
    assert_int_equal(qn_moe_sort_rows(INT64_MAX, 7, 16), -1);
}

static void make_rows(void) {
    make_sort();
    assert_int_equal(sort(), QN_OK);
    MAKE(&x, QNI_F32, TOKENS, N);
    MAKE(&scale, QNI_F32, TOKENS, 1);
    MAKE(&out, QNI_F32, ROWS, N);
    MAKE(&scale_out, QNI_F32, ROWS, 1);
    for (int i = 0; i < TOKENS * N; i++)
        qni_put(QNI_F32, x.data, i, i);
    for (int i = 0; i < TOKENS; i++)
        qni_put(QNI_F32, scale.data, i, i + 0.5);
}

static qn_status permute(void) {
    return qn_moe_permute(stream, &out.t, &scale_out.t, &x.t, &scale.t, &pair_of_row.t, TOP_K);
}

static void test_permute(void **) {
    make_rows();
    assert_int_equal(permute(), QN_OK);
    for (int row = 0; row < ROWS; row++) {
        const int pair = ((const int32_t *)pair_of_row.data)[row], token = pair / TOP_K;
        const bool is_real = pair < TOKENS * TOP_K;
        assert_true(is_real ? at(&out, row * N + 1) == token * N + 1 : isnan(at(&out, row * N)));
        assert_true(is_real ? at(&scale_out, row) == token + 0.5 : isnan(at(&scale_out, row)));
    }
    make_rows();
    assert_refused(qn_moe_permute(stream, &out.t, nullptr, &x.t, &scale.t, &pair_of_row.t, TOP_K),
                   QN_E_INVALID, "moe_permute: scale_out is null and scale is not");
    assert_refused(qn_moe_permute(stream, &out.t, nullptr, &x.t, nullptr, &pair_of_row.t, 0),
                   QN_E_INVALID, "moe_permute: top_k is 0; accepted: 1 to 2^31 - 1");
    MAKE(&out, QNI_F32, ROWS - 1, N);
    assert_refused(permute(), QN_E_INVALID, "moe_permute: out has shape [11, 8]");
    MAKE(&out, QNI_BF16, ROWS, N);
    assert_refused(permute(), QN_E_UNSUPPORTED, "moe_permute: out has dtype bf16");
}

static qn_status sum(void) {
    return qn_moe_sum(stream, &out.t, &x.t, &weights.t, &row_of_pair.t, &addend.t);
}

static void make_sum(void) {
    make_rows();
    MAKE(&x, QNI_F16, ROWS, N);
    for (int i = 0; i < ROWS * N; i++)
        qni_put(QNI_F16, x.data, i, i / N);
    MAKE(&weights, QNI_F32, TOKENS, TOP_K);
    MAKE(&addend, QNI_BF16, TOKENS, N);
    MAKE(&out, QNI_BF16, TOKENS, N);
    fill(&addend, 100);
    for (int i = 0; i < TOKENS * TOP_K; i++)
        qni_put(QNI_F32, weights.data, i, i + 1);
}

static void test_sum(void **) {
    make_sum();
    assert_int_equal(sum(), QN_OK); // rows 4, 0; none, 5; 1, 6
    assert_true(at(&out, 0) == 104 && at(&out, N) == 120 && at(&out, 2 * N) == 141);
    out.t.data = addend.data; // in place
    assert_int_equal(sum(), QN_OK);
    assert_true(at(&addend, 2 * N + 1) == 141);
    make_sum();
    MAKE(&x, QNI_F16, TOKENS * TOP_K, N);
    fill(&x, 2);
    assert_int_equal(qn_moe_sum(stream, &out.t, &x.t, nullptr, nullptr, nullptr), QN_OK);
    assert_true(at(&out, 5) == 4);
    MAKE(&x, QNI_F16, TOKENS * TOP_K + 1, N);
    assert_refused(qn_moe_sum(stream, &out.t, &x.t, nullptr, nullptr, nullptr), QN_E_INVALID,
                   "moe_sum: x has 7 rows; accepted without row_of_pair: 3 tokens times");
    make_sum();
    ((int32_t *)row_of_pair.data)[3] = ROWS;
    assert_refused(sum(), QN_E_INVALID, "moe_sum: row_of_pair[3] is 12; accepted: -1 to 11");
    MAKE(&row_of_pair, QNI_I32, TOKENS, TOP_K + 1);
    assert_refused(sum(), QN_E_INVALID, "moe_sum: row_of_pair has shape [3, 3]");
    assert_int_equal(out.data[0], 0xFF);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort),          cmocka_unit_test(test_map),
        cmocka_unit_test(test_sort_refusals), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_permute),       cmocka_unit_test(test_sum),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
