// SPDX-License-Identifier: Apache-2.0
// MLA's kernels for Hopper, as far as no such card is needed: which problems they take, by which
// words they refuse the others, and that they are the choice. quern check runs them on a card.
#include "../../shared/op_test.h"
#include "../mla.h"

static alignas(16) uint8_t memory[64];

/** What the choice sees of an H200. */
static qn_device h200(void) {
    qn_device chip = {.target = qni_target_find("sm_90a", 6)};
    chip.features = chip.target->features;
    chip.info.num_compute_units = 132;
    return chip;
}

/** A decoding step of DeepSeek's: 128 heads, one cache of bf16 in pages of 64. */
static qni_attention_problem decode(void) {
    static const qk_attention_schedule plan = {.num_requests = 64, .q_tile = 128};
    static const int32_t pages[1] = {};
    const qk_attention_rows q = {memory, 0, 128 * 576, 576}, cache = {memory, 64 * 576, 576, 0};
    return (qni_attention_problem){.args = {.q = q,
                                            .k = cache,
                                            .v = cache,
                                            .o = memory,
                                            .o_token = 128 * 512,
                                            .o_head = 512,
                                            .kv_indices = pages,
                                            .num_kv_heads = 1,
                                            .group = 128,
                                            .head_dim_qk = 576,
                                            .head_dim_vo = 512,
                                            .page_size = 64,
                                            .left = INT32_MAX,
                                            .right = INT32_MAX,
                                            .scale = 0.1f,
                                            .v_scale = 1},
                                   .tail = {.q = q, .k = cache, .dim = 64},
                                   .plan = &plan,
                                   .dtype = QNI_BF16,
                                   .dtype_kv = QNI_BF16,
                                   .dtype_o = QNI_BF16,
                                   .kv_blocks = 4096,
                                   .kv_tokens = 64,
                                   .max_rows = 128,
                                   .has_more_rows = true};
}

static const char *cheapest(const qni_attention_problem *p) {
    const qn_device chip = h200();
    const qni_variant *found = nullptr;
    assert_int_equal(qni_choose(&qni_op_mla, &chip, p, &found), QN_OK);
    return found->name;
}

#define TAKEN(change, name)                                                                        \
    do {                                                                                           \
        qni_attention_problem p = decode();                                                        \
        change;                                                                                    \
        assert_string_equal(cheapest(&p), name);                                                   \
    } while (0)

static void test_choice(void **) {
    const float number = 1;
    TAKEN((void)p, "mla.gpu_wgmma_bf16");
    TAKEN(p.dtype = p.dtype_kv = p.dtype_o = QNI_F16, "mla.gpu_wgmma_f16");
    TAKEN(p.dtype_kv = QNI_E4M3FN, "mla.gpu_wgmma_bf16_fp8");
    TAKEN(p.dtype_o = QNI_F32, "mla.gpu_wgmma_bf16");
    TAKEN(p.args.page_size = 1, "mla.gpu_wgmma_bf16");
    TAKEN(p.args.group = 1, "mla.gpu_wgmma_bf16");
    TAKEN(p.args.right = 0, "mla.gpu_wgmma_bf16");
    TAKEN(p.args.q_scales = p.args.k_scales = p.args.v_scales = &number, "mla.gpu_wgmma_bf16");
    TAKEN(p.dtype = p.dtype_kv = QNI_F32, "mla.gpu_any");
}

static void assert_kernel_refuses(const char *name, const qni_attention_problem *p,
                                  const char *words) {
    const qn_device chip = h200();
    const qni_variant *kernel = qni_variant_find(&qni_op_mla, name, strlen(name));
    qni_reason why = {""};
    assert_non_null(kernel);
    assert_false(kernel->supports(kernel, &chip, p, &why));
    if (!strstr(why.text, words))
        fail_msg("\"%s\" lacks \"%s\"", why.text, words);
}

#define REFUSED_BY(kernel, change, words)                                                          \
    do {                                                                                           \
        qni_attention_problem p = decode();                                                        \
        change;                                                                                    \
        assert_kernel_refuses("mla." kernel, &p, words);                                           \
    } while (0)
#define REFUSED(change, words) REFUSED_BY("gpu_wgmma_bf16", change, words)
#define FP8_REFUSED(change, words) REFUSED_BY("gpu_wgmma_bf16_fp8", change, words)

static void test_refusals(void **) {
    REFUSED(p.dtype = p.dtype_kv = QNI_F16, "q is f16; taken: what is computed with as bf16");
    REFUSED(p.dtype = QNI_E4M3FN, "q is e4m3fn; taken: f16, bf16");
    REFUSED(p.dtype_kv = QNI_E4M3FN, "k and v are e4m3fn; taken: q's type");
    REFUSED(p.args.head_dim_vo = 256, "dim is 256, rope_dim 64; taken: 512, 64");
    REFUSED(p.tail.dim = 32, "dim is 512, rope_dim 32; taken: 512, 64");
    REFUSED(p.tail.dim = 60, "rope_dim is 60; taken: multiples of 8");
    REFUSED(p.tail.k.token += 4, "a row of q, k, v or o does not begin at a multiple of 16");
    REFUSED(p.args.k.data = memory + 2, "a row of q, k, v or o does not begin at a multiple of 16");
    REFUSED(p.args.o_head += 4, "a row of q, k, v or o does not begin at a multiple of 16");
    REFUSED(p.kv_blocks = INT32_MAX, "ckv reaches over 79164837");
    REFUSED(p.tail.k.token = (int64_t)1 << 32, "kpe reaches over");
}

static void test_fp8_refusals(void **) {
    FP8_REFUSED((void)p, "k and v are bf16; taken: FP8");
    FP8_REFUSED(p.dtype_kv = QNI_E5M2, "ckv and kpe are e5m2; taken: e4m3fn");
    FP8_REFUSED((p.dtype_kv = QNI_E4M3FN, p.dtype = QNI_F16), "q is f16");
    FP8_REFUSED((p.dtype_kv = QNI_E4M3FN, p.args.k.token = 584),
                "a row of ckv or kpe does not begin at a multiple of 16 bytes");
    FP8_REFUSED((p.dtype_kv = QNI_E4M3FN, p.tail.k.data = memory + 8),
                "a row of ckv or kpe does not begin at a multiple of 16 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_fp8_refusals)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
