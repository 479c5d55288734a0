// SPDX-License-Identifier: Apache-2.0
// The backward pass's kernels for Hopper, as far as no such card is needed: which problems they
// take, by which words they refuse the others, that they are the choice, and where blocks of
// queries lie in the workspace. quern check runs them on a card.
#include "../../../runtime/testing.h"
#include "../../shared/op_test.h"
#include "../attention_backward.h"
#include "backward_wgmma_abi.h"

static alignas(16) uint8_t memory[64];

/** What the choice sees of an H200. */
static qn_device h200(void) {
    qn_device chip = {.target = qni_target_find("sm_90a", 6)};
    chip.features = chip.target->features;
    chip.info.num_compute_units = 132;
    return chip;
}

/** A FLUX-shaped call: dense, bf16, 24 heads of 128, all keys seen. */
static qni_backward_problem dense(uint32_t head_dim) {
    const int64_t token = 24 * (int64_t)head_dim, block = 4608 * token;
    const qk_attention_rows rows = {memory, block, token, head_dim};
    qni_backward_problem p = {.forward = {.dtype = QNI_BF16,
                                          .dtype_kv = QNI_BF16,
                                          .dtype_o = QNI_BF16,
                                          .kv_blocks = 1,
                                          .kv_tokens = 4608,
                                          .q_tokens = 4608},
                              .dtype_dq = QNI_BF16,
                              .dtype_dk = QNI_F32,
                              .dtype_dv = QNI_BF16,
                              .requests = 1};
    p.args = (qk_backward_args){.d_o = rows,
                                .dq = rows,
                                .dk = rows,
                                .dv = rows,
                                .block_tokens = 4608,
                                .max_qo = 4608,
                                .max_kv = 4608};
    p.args.common = (qk_attention_args){.q = rows,
                                        .k = rows,
                                        .v = rows,
                                        .o = memory,
                                        .o_batch = block,
                                        .o_token = token,
                                        .o_head = head_dim,
                                        .requests = 1,
                                        .qo_len = 4608,
                                        .kv_len = 4608,
                                        .num_kv_heads = 24,
                                        .group = 1,
                                        .head_dim_qk = head_dim,
                                        .head_dim_vo = head_dim,
                                        .left = INT32_MAX,
                                        .right = 0,
                                        .scale = 0.1f,
                                        .v_scale = 1};
    return p;
}

/** Three ragged requests of 9000 tokens together, 32 heads on 8. */
static qni_backward_problem ragged(uint32_t head_dim) {
    static const qk_attention_schedule plan = {.num_requests = 3};
    qni_backward_problem p = dense(head_dim);
    const int64_t d = head_dim;
    const qk_attention_rows q = {memory, 0, 32 * d, d}, k = {memory, 0, 8 * d, d};
    qk_attention_args *g = &p.args.common;
    p.forward.plan = &plan;
    p.forward.q_tokens = p.forward.kv_tokens = 9000;
    p.requests = 3;
    p.args.block_tokens = 0;
    g->q = p.args.d_o = p.args.dq = q;
    g->k = g->v = p.args.dk = p.args.dv = k;
    g->o_batch = 0, g->o_token = 32 * d;
    g->num_kv_heads = 8, g->group = 4;
    return p;
}

static const qni_variant *named(const char *name) {
    const qni_variant *found = qni_variant_find(&qni_op_attention_backward, name, strlen(name));
    assert_non_null(found);
    return found;
}

/** Asserts that a kernel on wgmma is the choice; null: that none fits. */
static void assert_choice(const qni_backward_problem *p, const char *name) {
    const qn_device chip = h200();
    const int found = qni_find_cheapest(&qni_op_attention_backward, &chip, p);
    assert_true(found >= 0);
    const char *const chosen = qni_op_attention_backward.variants[found].name;
    if (name)
        assert_string_equal(chosen, name);
    else
        assert_null(strstr(chosen, "wgmma"));
}

static void test_choice(void **) {
    for (uint32_t head_dim = 8; head_dim <= 136; head_dim += 4) {
        qni_backward_problem problems[] = {dense(head_dim), ragged(head_dim)};
        for (int i = 0; i < 2; i++) {
            qni_backward_problem *const p = &problems[i];
            const bool is_taken = head_dim % 8 == 0 && head_dim <= 128;
            assert_choice(p, !is_taken        ? nullptr
                             : head_dim <= 64 ? "attention_backward.gpu_wgmma_64_bf16"
                                              : "attention_backward.gpu_wgmma_128_bf16");
            p->forward.dtype = p->forward.dtype_kv = p->forward.dtype_o = QNI_F16;
            assert_choice(p, !is_taken        ? nullptr
                             : head_dim <= 64 ? "attention_backward.gpu_wgmma_64_f16"
                                              : "attention_backward.gpu_wgmma_128_f16");
        }
    }
}

/** Asserts that a kernel refuses a problem, after a change, by words that begin so. */
#define REFUSED(kernel, problem, change, words)                                                    \
    do {                                                                                           \
        const qn_device chip = h200();                                                             \
        qni_backward_problem p = problem;                                                          \
        qni_reason why = {};                                                                       \
        assert_true(qni_variant_fits(named("attention_backward." kernel), &chip, &p, &why));       \
        change;                                                                                    \
        assert_false(qni_variant_fits(named("attention_backward." kernel), &chip, &p, &why));      \
        if (!strstr(why.text, words))                                                              \
            fail_msg("%s, not %s", why.text, words);                                               \
    } while (0)

static void test_refusals(void **) {
#define G p.args.common
    static const float numbers[1] = {1};
    static float sinks[1];
    static const uint8_t bits[1] = {};
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.forward.dtype = QNI_F16, "q is f16");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.forward.dtype_kv = QNI_F32, "k and v f32");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.forward.dtype_o = QNI_F32, "o f32; taken: bf16");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.has_dropout = 1, "dropout");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.pos_encoding = QK_POS_ALIBI, "a position");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.mask_kind = QK_MASK_BOOL, "a mask");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.custom_mask = bits, "a custom mask");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.soft_cap = 1, "a soft cap");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.q_scales = numbers, "scales of heads of q");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.k_scales = numbers, "scales of heads of q or k");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.v_scales = numbers, "scales of v");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.v_scale = 2, "scales of v");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.scale = -0.1f, "a scale that is not positive");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.scale = NAN, "a scale that is not positive");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.left = 100, "a window's left bound");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.args.dsinks = sinks, "a gradient of sinks");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.head_dim_vo = 136, "v's 136");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.head_dim_qk = G.head_dim_vo = 64, "above 64");
    REFUSED("gpu_wgmma_64_bf16", dense(64), G.head_dim_vo = 72, "up to 64");
    REFUSED("gpu_wgmma_64_bf16", dense(64), G.head_dim_qk = 60, "multiples of 8");
    REFUSED("gpu_wgmma_64_bf16", dense(64), G.o_token += 4, "a row of o or d_o");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.args.d_o.head += 4, "a row of o or d_o");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.args.dq.token++, "a row of dq");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.args.dk.data = memory + 4, "a row of dk");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.args.dv.head++, "a row of dv");
    REFUSED("gpu_wgmma_128_bf16", dense(128), G.k.token += 4, "k");
    REFUSED("gpu_wgmma_128_bf16", dense(128), p.requests = 1 << 20, "fewer than 2^31");
#undef G
}

/** Blocks of ragged requests, wherever these begin, are apart, and fewer than the workspace has. */
static void test_blocks(void **) {
    for (uint32_t queries = 64; queries <= 128; queries += 64)
        for (uint32_t length = 1; length < 400; length += 13) {
            qk_backward_wgmma_args args = {};
            uint32_t end = 0, begin = 1;
            for (uint32_t request = 0; request < 9; request++) {
                const uint32_t own = (length * (request + 1)) % 300;
                const qk_attention_request r = {.qo_begin = (int32_t)begin, .qo_len = (int32_t)own};
                const uint32_t first = qk_backward_first_block(&args, &r, request, queries);
                assert_true(first >= end);
                end = first + (own + queries - 1) / queries;
                begin += own;
                assert_true(end <= begin / queries + request + 1);
            }
        }
    const qk_backward_wgmma_args args = {.block_step = 5};
    const qk_attention_request dense_request = {.qo_begin = 0, .qo_len = 300};
    assert_int_equal(qk_backward_first_block(&args, &dense_request, 3, 64), 15);
}

/** A row of q takes its sums and two numbers, a block a count. */
static void test_workspace(void **) {
    const qn_device chip = h200(), other = {};
    qni_backward_problem p = dense(128);
    const int64_t bytes = qni_backward_wgmma_bytes(&p, &chip);
    assert_int_equal(bytes, 24 * (4608 * 130 * 4 + 72 * 8));
    p = dense(64);
    assert_int_equal(qni_backward_wgmma_bytes(&p, &chip), 24 * (4608 * 66 * 4 + 36 * 8));
    p = ragged(128);
    assert_int_equal(qni_backward_wgmma_bytes(&p, &chip),
                     32 * (9000 / 64 + 3) * (64 * 130 * 4 + 8));
    assert_int_equal(qni_backward_wgmma_bytes(&p, &other), 0);
    p.forward.dtype = QNI_F32;
    assert_int_equal(qni_backward_wgmma_bytes(&p, &chip), 0);
    p = dense(136);
    assert_int_equal(qni_backward_wgmma_bytes(&p, &chip), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_workspace),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
