// SPDX-License-Identifier: Apache-2.0
// The kernels for Hopper, as far as no such card is needed: which problems they take, by which
// words they refuse the others, and that they are the choice. quern check runs them on a card.
#include "../../../runtime/testing.h"
#include "../../shared/op_test.h"
#include "../attention.h"
#include "attention_wgmma_abi.h"

static alignas(16) uint8_t memory[64];

/** What the choice sees of an H200. */
static qn_device h200(void) {
    qn_device chip = {.target = qni_target_find("sm_90a", 6)};
    chip.features = chip.target->features;
    chip.info.num_compute_units = 132;
    return chip;
}

/** A FLUX-shaped call: dense, bf16, 24 heads of 128, all keys seen. */
static qni_attention_problem dense(uint32_t head_dim) {
    const int64_t token = 24 * (int64_t)head_dim, block = 4608 * token;
    const qk_attention_rows rows = {memory, block, token, head_dim};
    return (qni_attention_problem){.args = {.q = rows,
                                            .k = rows,
                                            .v = rows,
                                            .o = memory,
                                            .o_batch = block,
                                            .o_token = token,
                                            .o_head = head_dim,
                                            .requests = 1,
                                            .qo_len = 4608,
                                            .kv_len = 4608,
                                            .kv_chunk = INT32_MAX,
                                            .num_kv_heads = 24,
                                            .group = 1,
                                            .head_dim_qk = head_dim,
                                            .head_dim_vo = head_dim,
                                            .left = INT32_MAX,
                                            .right = INT32_MAX,
                                            .scale = 0.1f,
                                            .v_scale = 1},
                                   .dtype = QNI_BF16,
                                   .dtype_kv = QNI_BF16,
                                   .dtype_o = QNI_BF16,
                                   .kv_blocks = 1,
                                   .kv_tokens = 4608,
                                   .q_tokens = 4608,
                                   .max_rows = 4608,
                                   .has_more_rows = true};
}

/** A decoding step: a token for each of eight caches of bf16 pages, 32 heads on 8. */
static qni_attention_problem paged(uint32_t head_dim) {
    static const qk_attention_schedule plan = {.num_requests = 8};
    static const int32_t pages[1] = {};
    qni_attention_problem p = dense(head_dim);
    const int64_t d = head_dim;
    p.plan = &plan;
    p.args.q = (qk_attention_rows){memory, 0, 32 * d, d};
    p.args.k = p.args.v = (qk_attention_rows){memory, 16 * 8 * d, 8 * d, d};
    p.args.kv_indices = pages;
    p.kv_blocks = 2048;
    p.kv_tokens = 16;
    p.args.page_size = 16;
    p.args.num_kv_heads = 8;
    p.args.group = 4;
    p.max_rows = 4;
    p.has_few_rows = true, p.has_more_rows = false;
    return p;
}

/** A batch of prompts by a plan: ragged bf16, 32 heads on 8. */
static qni_attention_problem ragged(uint32_t head_dim) {
    static const qk_attention_schedule plan = {
        .num_requests = 3, .num_tiles = 40, .tile_rows = 192};
    qni_attention_problem p = dense(head_dim);
    const int64_t d = head_dim;
    p.plan = &plan;
    p.args.q.block = p.args.k.block = p.args.v.block = p.args.o_batch = 0;
    p.args.q.token = p.args.o_token = 32 * d;
    p.args.k.token = p.args.v.token = 8 * d;
    p.args.num_kv_heads = 8;
    p.args.group = 4;
    p.q_tokens = p.kv_tokens = 9000;
    p.kv_blocks = 1;
    return p;
}

static qni_attention_problem ragged_in_pages(int page_size) {
    static const int32_t pages[1] = {};
    qni_attention_problem p = ragged(128);
    p.args.kv_indices = pages;
    p.kv_blocks = 600;
    p.kv_tokens = page_size;
    p.args.page_size = (uint32_t)page_size;
    p.args.k.block = p.args.v.block = page_size * p.args.k.token;
    return p;
}

static const qni_variant *named(const char *name) {
    const qni_variant *found = qni_variant_find(&qni_op_attention, name, strlen(name));
    assert_non_null(found);
    return found;
}

static const char *cheapest(const qni_attention_problem *p) {
    const qn_device chip = h200();
    const char *best = "none";
    double least = INFINITY;
    for (int v = 0; v < qni_op_attention.num_variants; v++) {
        const qni_variant *variant = &qni_op_attention.variants[v];
        if (!variant->cost || !qni_variant_fits(variant, &chip, p, nullptr) ||
            variant->cost(variant, &chip, p) >= least)
            continue;
        least = variant->cost(variant, &chip, p);
        best = variant->name;
    }
    return best;
}

static void test_choice(void **) {
    for (uint32_t head_dim = 8; head_dim <= 128; head_dim += 8) {
        qni_attention_problem p = dense(head_dim);
        assert_string_equal(cheapest(&p), head_dim <= 64 ? "attention.gpu_wgmma_64_bf16"
                                                         : "attention.gpu_wgmma_128_bf16");
        p.dtype = p.dtype_kv = p.dtype_o = QNI_F16;
        assert_string_equal(cheapest(&p), head_dim <= 64 ? "attention.gpu_wgmma_64_f16"
                                                         : "attention.gpu_wgmma_128_f16");
    }
}

// ---- shares of tiles

/** Walks a workgroup's share. Counts in taken[] how often each tile's keys are taken, and asserts
 *  that who goes on with a tile finds it begun. */
static void walk_share(const qk_wgmma_shares *s, uint32_t group, uint8_t *taken) {
    qk_wgmma_part part, begun;
    uint32_t done = 0;
    for (; qk_wgmma_find_part(s, group, done, &part); done += part.end - part.first) {
        assert_true(part.tile < s->tiles && part.first < part.end && part.end <= s->steps);
        for (uint32_t step = part.first; step < part.end; step++)
            taken[part.tile * s->steps + step]++;
        if (part.first > 0)
            assert_true(done == 0 && part.end == s->steps);
        if (part.end == s->steps)
            continue;
        assert_true(group > 0 && qk_wgmma_find_part(s, group - 1, 0, &begun));
        assert_true(begun.tile == part.tile && begun.first == part.end);
        assert_true(done + 1 >= begun.end - begun.first); // by then it has been left
    }
    const uint32_t all = s->tiles * s->steps;
    assert_in_range(done, all / s->groups, (all + s->groups - 1) / s->groups);
}

static void test_shares(void **) {
    static const uint32_t groups[] = {1, 2, 3, 7, 78, 132, 144};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (uint32_t tiles = groups[g]; tiles < 3 * groups[g] + 5; tiles += 1 + tiles / 40)
            for (uint32_t steps = 1; steps < 60; steps += 1 + steps / 3) {
                const qk_wgmma_shares s = {tiles, steps, groups[g]};
                uint8_t *taken = calloc(tiles, steps);
                assert_non_null(taken);
                for (uint32_t group = 0; group < s.groups; group++)
                    walk_share(&s, group, taken);
                for (uint32_t i = 0; i < tiles * steps; i++)
                    assert_int_equal(taken[i], 1);
                free(taken);
            }
}

/** FLUX's tiles: 4 rounds and 48 more. Shares' tiles of a round lie side by side. */
static void test_share_places(void **) {
    const qk_wgmma_shares s = {576, 58, 132};
    qk_wgmma_part part;
    for (uint32_t group = 0; group < s.groups - 1; group++) {
        assert_true(qk_wgmma_find_part(&s, group, 0, &part));
        const uint32_t begun = part.first ? part.end - part.first : 0;
        for (uint32_t round = 0; round < 4; round++) {
            assert_true(qk_wgmma_find_part(&s, group, begun + round * s.steps, &part));
            assert_int_equal(part.tile, round * s.groups + s.groups - 1 - group);
        }
    }
}

static void test_states_bytes(void **) {
    const int64_t most = 144 * 3, flux = qni_attention_states_bytes(24, 4608, 4608, 128);
    assert_int_equal(flux, most * ((64 + 4) * 4 * 128 + 8));
    assert_int_equal(qni_attention_states_bytes(24, 4608, 4608, 64),
                     most * ((32 + 4) * 4 * 128 + 8));
    assert_int_equal(qni_attention_states_bytes(24, 4608, 4608, 136), 0);
    assert_int_equal(qni_attention_states_bytes(24, 4608, 560, 128), 0);
    assert_int_equal(qni_attention_states_bytes(24, 4608, 561, 128), flux);
    assert_int_equal(qni_attention_states_bytes(1, 192, 4608, 128), 0);
    assert_int_equal(qni_attention_states_bytes(INT32_MAX, INT32_MAX, INT32_MAX, 128), 0);
}

static void test_decode_choice(void **) {
    const struct {
        uint32_t head_dim;
        const char *bf16, *f16;
    } cases[] = {{8, "attention.gpu_async_64_bf16", "attention.gpu_async_64_f16"},
                 {64, "attention.gpu_async_64_bf16", "attention.gpu_async_64_f16"},
                 {72, "attention.gpu_async_128_bf16", "attention.gpu_async_128_f16"},
                 {128, "attention.gpu_async_128_bf16", "attention.gpu_async_128_f16"},
                 {136, "attention.gpu_async_256_bf16", "attention.gpu_async_256_f16"},
                 {256, "attention.gpu_async_256_bf16", "attention.gpu_async_256_f16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qni_attention_problem p = paged(cases[i].head_dim);
        assert_string_equal(cheapest(&p), cases[i].bf16);
        p.dtype = p.dtype_kv = p.dtype_o = QNI_F16;
        assert_string_equal(cheapest(&p), cases[i].f16);
    }
}

#define DECODE_TAKEN(change)                                                                       \
    do {                                                                                           \
        qni_attention_problem p = paged(128);                                                      \
        change;                                                                                    \
        assert_string_equal(cheapest(&p), "attention.gpu_async_128_bf16");                         \
    } while (0)

static void test_decode_takes(void **) {
    const float number = 1;
    DECODE_TAKEN(p.args.page_size = 1);
    DECODE_TAKEN(p.args.page_size = 5);
    DECODE_TAKEN(p.args.page_size = 96);
    DECODE_TAKEN(p.args.left = 100);
    DECODE_TAKEN(p.args.right = 0);
    DECODE_TAKEN(p.args.soft_cap = 30);
    DECODE_TAKEN(p.args.scale = -1);
    DECODE_TAKEN(p.args.q_scales = p.args.k_scales = p.args.v_scales = p.args.sinks = &number);
    DECODE_TAKEN(p.dtype_o = QNI_F32);
    DECODE_TAKEN(p.args.kv_len = 0);
}

static void assert_kernel_refuses(const char *name, const qni_attention_problem *p,
                                  const char *words) {
    const qn_device chip = h200();
    const qni_variant *kernel = named(name);
    qni_reason why = {""};
    assert_false(kernel->supports(kernel, &chip, p, &why));
    if (!strstr(why.text, words))
        fail_msg("\"%s\" lacks \"%s\"", why.text, words);
}

#define REFUSED_BY(kernel, problem, change, words)                                                 \
    do {                                                                                           \
        qni_attention_problem p = problem;                                                         \
        change;                                                                                    \
        assert_kernel_refuses("attention." kernel, &p, words);                                     \
    } while (0)
#define REFUSED(change, words) REFUSED_BY("gpu_wgmma_128_bf16", dense(128), change, words)
#define DECODE_REFUSED(change, words) REFUSED_BY("gpu_async_128_bf16", paged(128), change, words)

static void test_refusals(void **) {
    const qk_attention_schedule plan = {};
    const float number = 1;
    REFUSED(p.dtype_kv = QNI_E4M3FN, "q is bf16, k and v e4m3fn; taken: bf16");
    REFUSED(p.dtype_o = QNI_F32, "o is f32; taken: bf16");
    REFUSED(p.args.has_dropout = 1, "has dropout");
    REFUSED(p.args.pos_encoding = QK_POS_ALIBI, "has a position encoding");
    REFUSED(p.args.mask_kind = QK_MASK_BOOL, "has a mask");
    REFUSED(p.args.custom_mask = memory, "has a custom mask");
    REFUSED(p.args.soft_cap = 30, "has a soft cap");
    REFUSED(p.args.q_scales = &number, "scales of heads");
    REFUSED(p.args.left = 100, "a window's left bound");
    REFUSED(p.args.scale = -1, "a scale that is not positive");
    REFUSED(p.args.scale = NAN, "a scale that is not positive");
    REFUSED(p.plan = &plan, "requests have lengths of their own");
    REFUSED(p.args.kv_chunk = 512, "keys are cut into chunks");
    REFUSED(p.args.k.data = memory + 8, "k is not aligned to 16 bytes");
    REFUSED(p.args.v.token += 4, "of v is 6152 bytes, needs a multiple of 16");
    REFUSED(p.args.kv_len = 0, "k has 0 in dimension 2");
    REFUSED(p = dense(64), "head_dim is 64; taken: above 64, up to 128");
    REFUSED(p = dense(136), "head_dim is 136");
    REFUSED(p.args.head_dim_vo = 124, "head_dim=128, v's 124; taken: multiples of 8");
}

static void test_decode_refusals(void **) {
    DECODE_REFUSED(p.has_more_rows = true, "a request has more than 16 rows");
    DECODE_REFUSED(p.dtype_kv = QNI_E4M3FN, "k and v are e4m3fn; taken: q's type");
    DECODE_REFUSED(p.dtype = p.dtype_kv = QNI_F16,
                   "q is f16; taken: what is computed with as bf16");
    DECODE_REFUSED(p.args.has_dropout = 1, "dropout_p is not 0");
    DECODE_REFUSED(p.args.pos_encoding = QK_POS_ALIBI, "has a position encoding");
    DECODE_REFUSED(p.args.mask_kind = QK_MASK_F32, "has a mask");
    DECODE_REFUSED(p.args.custom_mask = memory, "has a custom mask");
    DECODE_REFUSED(p.args.q.token += 4, "a row of q, k, v or o does not begin at a multiple of 16");
    DECODE_REFUSED(p.args.k.head += 4, "a row of q, k, v or o does not begin at a multiple of 16");
    DECODE_REFUSED(p.args.v.data = memory + 2, "a row of q, k, v or o does not begin");
    DECODE_REFUSED(p.kv_blocks = INT32_MAX, "k reaches over 35184372");
    DECODE_REFUSED(p.args.v.token = (int64_t)1 << 32, "v reaches over");
    DECODE_REFUSED(p.args.head_dim_qk = 60, "head_dim=60; taken: multiples of 8");
    DECODE_REFUSED(p.args.head_dim_qk = 192, "head_dim is 192; taken: above 64, up to 128");
    DECODE_REFUSED(p.args.head_dim_qk = p.args.head_dim_vo = 64, "taken: above 64, up to 128");
}

static void assert_batch_takes(const char *name, const qni_attention_problem *p) {
    const qn_device chip = h200();
    const qni_variant *kernel = named(name);
    qni_reason why = {""};
    if (!kernel->supports(kernel, &chip, p, &why))
        fail_msg("%s: %s", name, why.text);
}

/** Changes a batch of pages of 16, and asserts that the kernel takes it. */
#define BATCH_TAKEN(change)                                                                        \
    do {                                                                                           \
        qni_attention_problem p = ragged_in_pages(16);                                             \
        change;                                                                                    \
        assert_batch_takes("attention.gpu_batch_128_bf16", &p);                                    \
    } while (0)

static void test_batch_takes(void **) {
    const float number = 1;
    BATCH_TAKEN();
    BATCH_TAKEN(p = ragged(128));
    BATCH_TAKEN(p = ragged(72));
    BATCH_TAKEN(p = ragged_in_pages(1));
    BATCH_TAKEN(p = ragged_in_pages(48));
    BATCH_TAKEN(p.args.left = 100);
    BATCH_TAKEN(p.args.right = 0);
    BATCH_TAKEN(p.args.soft_cap = 30);
    BATCH_TAKEN(p.args.v_scales = p.args.sinks = &number);
    BATCH_TAKEN(p.args.group = 3);
}

/** By both head dims, as a plan's tiles go by that of v. */
static void test_batch_head_dims(void **) {
    static const struct {
        uint32_t qk, vo;
        const char *name;
    } cases[] = {{64, 64, "64_bf16"},    {128, 128, "128_bf16"}, {96, 128, "128_bf16"},
                 {192, 128, "192_bf16"}, {136, 64, "192_bf16"},  {192, 192, "256_bf16"},
                 {256, 256, "256_bf16"}};
    static const qk_attention_schedule plan = {
        .num_requests = 3, .num_tiles = 60, .tile_rows = 128};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qni_attention_problem p = ragged(cases[i].qk);
        char name[64];
        p.args.head_dim_vo = cases[i].vo;
        p.plan = cases[i].vo > 128 ? &plan : p.plan;
        snprintf(name, sizeof name, "attention.gpu_batch_%s", cases[i].name);
        assert_batch_takes(name, &p);
    }
}

#define BATCH_REFUSED(change, words)                                                               \
    REFUSED_BY("gpu_batch_128_bf16", ragged_in_pages(16), change, words)

static void test_batch_refusals(void **) {
    static const qk_attention_schedule huge = {.num_requests = 3};
    const float number = 1;
    BATCH_REFUSED(p.has_few_rows = true, "a request has 16 rows or fewer");
    BATCH_REFUSED(p.plan = &huge, "the plan lists no tiles");
    BATCH_REFUSED(p.dtype_kv = QNI_E4M3FN, "k and v are e4m3fn; taken: q's type");
    BATCH_REFUSED(p.dtype_o = QNI_F32, "o is f32; taken: bf16");
    BATCH_REFUSED(p.args.has_dropout = 1, "dropout_p is not 0");
    BATCH_REFUSED(p.args.pos_encoding = QK_POS_ALIBI, "has a position encoding");
    BATCH_REFUSED(p.args.mask_kind = QK_MASK_BOOL, "has a mask");
    BATCH_REFUSED(p.args.custom_mask = memory, "has a custom mask");
    BATCH_REFUSED(p.args.k_scales = &number, "scales of heads");
    BATCH_REFUSED(p.args.scale = -1, "a scale that is not positive");
    BATCH_REFUSED(p.args.q.data = memory + 8, "does not begin at a multiple of 16");
    BATCH_REFUSED(p.args.head_dim_vo = 124, "v's head_dim=124");
    BATCH_REFUSED(p.kv_blocks = INT32_MAX, "k reaches over");
    REFUSED_BY("gpu_batch_128_bf16", ragged(128), p.kv_tokens = 0, "k has 0 in dimension 2");
    REFUSED_BY("gpu_batch_256_bf16", ragged(256), p.args.head_dim_vo = 128, "taken: above 128");
    REFUSED_BY("gpu_batch_192_bf16", ragged(192), (void)p, "v's head_dim is 192; taken: up to 128");
}

static void test_batch_choice(void **) {
    const qni_attention_problem p = ragged(128), q = ragged_in_pages(16);
    assert_string_equal(cheapest(&p), "attention.gpu_batch_128_bf16");
    assert_string_equal(cheapest(&q), "attention.gpu_batch_128_bf16");
}

/** Of short dense requests a tile of several heads wastes less. */
static void test_dense_choice(void **) {
    qni_attention_problem p = dense(128);
    p.args.num_kv_heads = 8;
    p.args.group = 4;
    p.args.qo_len = p.args.kv_len = 2048;
    assert_string_equal(cheapest(&p), "attention.gpu_wgmma_128_bf16");
    p.args.qo_len = p.args.kv_len = 77;
    assert_string_equal(cheapest(&p), "attention.gpu_batch_128_bf16");
    p.args.left = 20;
    assert_string_equal(cheapest(&p), "attention.gpu_batch_128_bf16");
}

// ---- FP8

/** Beside queries of bf16, of f16 and of FP8, which computes with bf16. */
static void assert_choices_of_fp8(qni_attention_problem p, const char *stem) {
    static const struct {
        qni_dtype q, o;
        const char *type;
    } cases[] = {{QNI_BF16, QNI_BF16, "bf16"},
                 {QNI_F16, QNI_F16, "f16"},
                 {QNI_E4M3FN, QNI_BF16, "bf16"},
                 {QNI_E5M2, QNI_BF16, "bf16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        p.dtype = cases[i].q, p.dtype_kv = QNI_E4M3FN, p.dtype_o = cases[i].o;
        snprintf(name, sizeof name, "attention.%s_%s_fp8", stem, cases[i].type);
        assert_string_equal(cheapest(&p), name);
    }
}

static void test_fp8_choice(void **) {
    for (int page_size = 1; page_size <= 48; page_size += 15)
        assert_choices_of_fp8(ragged_in_pages(page_size), "gpu_batch_128");
    assert_choices_of_fp8(ragged(128), "gpu_batch_128");
    assert_choices_of_fp8(ragged(80), "gpu_batch_128");
    assert_choices_of_fp8(ragged(64), "gpu_batch_64");
    assert_choices_of_fp8(dense(128), "gpu_batch_128");
    assert_choices_of_fp8(dense(144), "gpu_batch_256");
    assert_choices_of_fp8(dense(16), "gpu_batch_64");
    assert_choices_of_fp8(paged(64), "gpu_async_64");
    assert_choices_of_fp8(paged(80), "gpu_async_128");
    assert_choices_of_fp8(paged(128), "gpu_async_128");
    assert_choices_of_fp8(paged(256), "gpu_async_256");
}

/** Codes are copied 16 at a time; other FP8 goes to the kernels of other chips. */
#define FP8_REFUSED(kernel, problem, change, words)                                                \
    REFUSED_BY(kernel "_fp8", problem, p.dtype_kv = QNI_E4M3FN; change, words)

static void test_fp8_refusals(void **) {
    FP8_REFUSED("gpu_async_128_bf16", paged(128), p.dtype_kv = QNI_BF16, "taken: FP8");
    FP8_REFUSED("gpu_async_128_bf16", paged(128), p.dtype_kv = QNI_E5M2, "e5m2; taken: e4m3fn");
    FP8_REFUSED("gpu_async_128_bf16", paged(128), p.dtype = QNI_F16, "q is f16");
    FP8_REFUSED("gpu_async_128_bf16", paged(72), (void)p, "head_dim=72, v's 72; taken of FP8: mul");
    FP8_REFUSED("gpu_async_128_bf16", paged(128), p.args.k.token += 8,
                "a row of k or v does not begin at a multiple of 16 bytes");
    FP8_REFUSED("gpu_async_128_bf16", paged(128), p.args.v.data = memory + 8,
                "a row of k or v does not begin at a multiple of 16 bytes");
    FP8_REFUSED("gpu_batch_128_bf16", ragged(128), p.dtype_kv = QNI_E5M2, "e5m2; taken: e4m3fn");
    FP8_REFUSED("gpu_batch_128_bf16", ragged(72), (void)p, "taken of FP8: multiples of 16");
    FP8_REFUSED("gpu_batch_128_bf16", ragged(128), p.args.k.head += 8, "a row of k or v");
    FP8_REFUSED("gpu_batch_128_bf16", ragged(128), p.dtype_o = QNI_F16, "o is f16; taken: bf16");
    FP8_REFUSED("gpu_batch_128_f16", ragged(128), p.dtype = QNI_F16, "o is bf16; taken: f16");
    FP8_REFUSED("gpu_batch_128_bf16", ragged(128), p.args.v.token = (int64_t)1 << 32,
                "v reaches over");
}

/** A step of decoding, a prompt and a dense one. */
static void try_invariance(void *) {
    static const int32_t ends[] = {0, 1};
    const qn_attention_plan_args a = {.struct_size = sizeof a,
                                      .batches = 1,
                                      .qo_indptr = ends,
                                      .kv_indptr = ends,
                                      .num_qo_heads = 4,
                                      .num_kv_heads = 1,
                                      .head_dim_vo = 128};
    alignas(8) uint8_t plan[1024];
    int64_t bytes = sizeof plan, workspace_bytes;
    qni_attention_problem p = ragged_in_pages(16), q = p, r = dense(128);
    CHILD_CHECK(qn_attention_plan(plan, &bytes, &workspace_bytes, &a) == QN_OK);
    p.plan = (const qk_attention_schedule *)plan;
    p.has_few_rows = true, p.has_more_rows = false;
    CHILD_CHECK(p.plan->num_tiles == 1);
    CHILD_CHECK(strcmp(cheapest(&p), "attention.gpu_batch_128_bf16") == 0);
    CHILD_CHECK(strcmp(cheapest(&q), "attention.gpu_batch_128_bf16") == 0);
    CHILD_CHECK(strcmp(cheapest(&r), "attention.gpu_batch_128_bf16") == 0);
}

/** One kernel takes requests of all lengths then. */
static void test_invariance(void **) {
    child_run(try_invariance, nullptr, (const char *[]){"QUERN_BATCH_INVARIANT=1", nullptr});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        // First, as a process reads its environment once.
        cmocka_unit_test(test_invariance),      cmocka_unit_test(test_batch_takes),
        cmocka_unit_test(test_batch_head_dims), cmocka_unit_test(test_batch_refusals),
        cmocka_unit_test(test_batch_choice),    cmocka_unit_test(test_dense_choice),
        cmocka_unit_test(test_choice),          cmocka_unit_test(test_shares),
        cmocka_unit_test(test_share_places),    cmocka_unit_test(test_states_bytes),
        cmocka_unit_test(test_decode_choice),   cmocka_unit_test(test_decode_takes),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_decode_refusals),
        cmocka_unit_test(test_fp8_choice),      cmocka_unit_test(test_fp8_refusals),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
