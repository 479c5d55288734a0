// SPDX-License-Identifier: Apache-2.0
// Tests of sampling's public functions on the CPU: what each edge gives, how often tokens come, how
// exact probabilities are, and what is refused. `quern check` compares kernels with the definition.
#include "../shared/op_test.h"
#include "sampling.h"

static box x, out, valid, first, second, third, ints, seeds;

static void put_floats(box *b, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        qni_put(qni_dtype_of(&b->t), b->data, i, (double)values[i]);
}
/** Makes box a tensor of f32 of this shape, {rows, columns}, with these values. */
#define FLOATS(box, rows, columns, ...)                                                            \
    do {                                                                                           \
        const float values[] = {__VA_ARGS__};                                                      \
        MAKE(box, QNI_F32, rows, columns);                                                         \
        put_floats(box, values, sizeof values / sizeof *values);                                   \
    } while (0)
#define VECTOR(box, ...)                                                                           \
    do {                                                                                           \
        const float values[] = {__VA_ARGS__};                                                      \
        MAKE(box, QNI_F32, sizeof values / sizeof *values);                                        \
        put_floats(box, values, sizeof values / sizeof *values);                                   \
    } while (0)

static const int32_t *tokens(void) {
    return (const int32_t *)out.data;
}
static const float *floats(void) {
    return (const float *)out.data;
}

static qn_sample_args args_of(int64_t batch) {
    MAKE(&out, QNI_I32, batch);
    MAKE(&valid, QNI_BOOL, batch);
    return (qn_sample_args){
        .struct_size = sizeof(qn_sample_args), .out = &out.t, .valid = &valid.t, .seed = 42};
}

static void assert_untouched(void) {
    for (int i = 0; i < 64; i++)
        assert_int_equal(out.data[i], 0xFF);
}

// ---- tokens

/** The published edges: a one-hot row, ties, everything kept, a row of zeros. */
static void test_edges(void **) {
    FLOATS(&x, 4, 4, 0, 0, 1, 0, /**/ 0, 0, 0, 0, /**/ 0.1f, NAN, 0.2f, 0, /**/ 0.5f, 0, -1, 0.5f);
    qn_sample_args a = args_of(4);
    a.probs = &x.t;
    assert_int_equal(qn_sample(stream, &a), QN_OK);
    assert_int_equal(tokens()[0], 2);
    for (int b = 0; b < 4; b++) {
        assert_int_equal(valid.data[b], b == 0);
        assert_true(b == 0 || tokens()[b] == 0);
    }
    MAKE(&out, QNI_F32, 4, 4);
    assert_int_equal(qn_top_k_renorm_probs(stream, &out.t, &x.t, nullptr, 1), QN_OK);
    assert_true(floats()[2] == 1 && floats()[0] == 0 && floats()[4] == 0);
    assert_true(isnan(floats()[8]) && isnan(floats()[12]));
}

/** Elements that equal the last kept one are kept. */
static void test_ties(void **) {
    FLOATS(&x, 2, 6, 0.25f, 0.125f, 0.25f, 0.125f, 0.125f, 0.125f, /**/ 0.3f, 0.1f, 0.2f, 0.1f,
           0.2f, 0.1f);
    MAKE(&out, QNI_F32, 2, 6);
    assert_int_equal(qn_top_k_renorm_probs(stream, &out.t, &x.t, nullptr, 3), QN_OK);
    assert_memory_equal(out.data, x.data, 6 * sizeof(float)); // the third is one of four equals
    assert_int_equal(qn_top_p_renorm_probs(stream, &out.t, &x.t, nullptr, 0.5f), QN_OK);
    assert_true(floats()[0] == 0.5f && floats()[2] == 0.5f && floats()[1] == 0);
    assert_true(floats()[6] > 0 && floats()[8] > 0 && floats()[10] > 0 && floats()[7] == 0);
    assert_int_equal(qn_top_p_renorm_probs(stream, &out.t, &x.t, nullptr, 1), QN_OK);
    assert_memory_equal(out.data, x.data, 12 * sizeof(float));
    assert_int_equal(qn_top_k_renorm_probs(stream, &out.t, &x.t, nullptr, 6), QN_OK);
    assert_memory_equal(out.data, x.data, 12 * sizeof(float));
}

static void test_mask(void **) {
    FLOATS(&x, 1, 5, 1, -2, 3, 3, -0.0f);
    MAKE(&out, QNI_F32, 1, 5);
    assert_int_equal(qn_top_k_mask_logits(stream, &out.t, &x.t, nullptr, 3), QN_OK);
    assert_true(floats()[0] == 1 && floats()[2] == 3 && floats()[3] == 3);
    assert_true(floats()[1] == -HUGE_VALF && floats()[4] == -HUGE_VALF);
}

static void test_greedy(void **) {
    FLOATS(&x, 4, 3, 1, 5, 5, /**/ -1, NAN, 2, /**/ -HUGE_VALF, -HUGE_VALF, -HUGE_VALF, /**/ -3, -7,
           HUGE_VALF);
    args_of(4);
    assert_int_equal(qn_sample_greedy(stream, &out.t, &valid.t, &x.t), QN_OK);
    const int32_t want[] = {1, 0, 0, 2};
    assert_memory_equal(out.data, want, sizeof want);
    assert_true(valid.data[0] && !valid.data[1] && !valid.data[2] && valid.data[3]);
}

/** In the order top_k_first, top_p counts among what top_k keeps: 0.4 of 0.7 is 0.57. */
static void test_orders(void **) {
    constexpr int draws = 200;
    bool seen[2][4] = {};
    for (int order = QN_TOP_K_FIRST; order <= QN_JOINT; order++)
        for (int i = 0; i < draws; i++) {
            FLOATS(&x, 1, 4, 0.3f, 0.4f, 0.2f, 0.1f);
            qn_sample_args a = args_of(1);
            a.probs = &x.t;
            a.top_k = 2;
            a.top_p = 0.5f;
            a.order = (qn_filter_order)order;
            a.offset = i;
            assert_int_equal(qn_sample(stream, &a), QN_OK);
            seen[order][tokens()[0]] = true;
        }
    assert_true(seen[0][1] && !seen[0][0] && !seen[0][2] && !seen[0][3]);
    assert_true(seen[1][1] && seen[1][0] && !seen[1][2] && !seen[1][3]);
}

/** Tokens come as often as they weigh, and those that are filtered out never do: the number of a
 *  token of probability p among n draws is off by at most 6 standard deviations. */
static void test_frequencies(void **) {
    constexpr int draws = 8000, vocab = 5;
    static int32_t rows[draws];
    const double weights[] = {exp(0.5 / 0.5), exp(1.0 / 0.5), 0, exp(0.0), 0}; // min_p drops two
    double sum = 0;
    int count[vocab] = {};
    FLOATS(&x, 1, vocab, 0.5f, 1, -4, 0, -3);
    qn_sample_args a = args_of(draws);
    MAKE(&ints, QNI_I32, draws);
    memcpy(ints.data, rows, sizeof rows);
    a.logits = &x.t;
    a.indices = &ints.t;
    a.temperature = 0.5f;
    a.min_p = 0.05f;
    assert_int_equal(qn_sample(stream, &a), QN_OK);
    for (int i = 0; i < draws; i++)
        count[tokens()[i]]++;
    for (int i = 0; i < vocab; i++)
        sum += weights[i];
    for (int i = 0; i < vocab; i++) {
        const double p = weights[i] / sum;
        assert_true(fabs(count[i] - p * draws) <= 6 * sqrt(p * (1 - p) * draws));
    }
}

/** With a seed for each row, a row's token does not depend on its place in the batch; with one seed
 *  rows draw different numbers. */
static void test_seeds(void **) {
    constexpr int rows = 6, vocab = 500;
    int32_t together[rows];
    MAKE(&x, QNI_F32, rows, vocab);
    fill(&x, 1);
    MAKE(&seeds, QNI_I64, rows);
    for (int b = 0; b < rows; b++)
        ((int64_t *)seeds.data)[b] = b * 77;
    qn_sample_args a = args_of(rows);
    a.logits = &x.t;
    a.seeds = &seeds.t;
    assert_int_equal(qn_sample(stream, &a), QN_OK);
    memcpy(together, tokens(), sizeof together);
    for (int b = 0; b < rows; b++) {
        MAKE(&x, QNI_F32, 1, vocab);
        fill(&x, 1);
        a = args_of(1);
        a.logits = &x.t;
        a.seed = b * 77;
        assert_int_equal(qn_sample(stream, &a), QN_OK);
        assert_int_equal(tokens()[0], together[b]);
    }
    MAKE(&x, QNI_F32, 2, vocab);
    fill(&x, 1);
    a = args_of(2);
    a.logits = &x.t;
    assert_int_equal(qn_sample(stream, &a), QN_OK);
    assert_int_not_equal(tokens()[0], tokens()[1]);
}

/** Words are those of the published generator, and a draw is the upper half of a product. */
static void test_draws(void **) {
    const qk_sampling_random r = {.seed = 7, .offset = 1ULL << 32 | 5};
    uint32_t words[4], again[4];
    qk_philox_of(0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, words);
    const uint32_t known[] = {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}; // Random123's
    assert_memory_equal(words, known, sizeof known);
    qk_random_words(&r, 3, 2, words);
    qk_philox_of(7, 3, (1ULL << 32 | 5) + 2, again);
    assert_memory_equal(words, again, sizeof words);
    const uint64_t a = 0xFEDCBA9876543210, b = 0xF0E1D2C3B4A59687;
    assert_true(qk_high_product(a, b) == (uint64_t)((unsigned __int128)a * b >> 64));
    assert_true(qk_draw(&r, 0, 0, 1) == 0);
    for (uint64_t total = 1; total < 1ULL << 62; total = total * 7 + 3)
        assert_true(qk_share(total, 0.75f) == ((uint64_t)((unsigned __int128)total * 3 / 4) ?: 1));
}

// ---- numbers

/** The exponential is off by at most 2^-22, and the top's is 1. */
static void test_exponential(void **) {
    double worst = 0;
    for (int i = 0; i <= 1 << 20; i++) {
        const float y = -100.0f * (float)i / (1 << 20);
        const double error = fabs((double)qk_exp2(y) / exp2((double)y) - 1);
        worst = error > worst ? error : worst;
    }
    if (!(worst <= 0x1p-22))
        fail_msg("off by 2^%g", log2(worst));
    assert_true(qk_exp2(0) == 1 && qk_exp2(-100.5f) == 0 && qk_exp2(-HUGE_VALF) == 0);
}

/** Each probability is off by its exponential's error, which grows with the argument's, and by
 *  three roundings; what each weight loses behind its last digit changes the sum by 2^-40. */
static void test_softmax(void **) {
    constexpr int vocab = 1000;
    const double u = 0x1p-24, temperature = 0.3;
    MAKE(&x, QNI_F32, 1, vocab);
    for (int i = 0; i < vocab; i++)
        qni_put(QNI_F32, x.data, i, 5 * sin(i));
    MAKE(&out, QNI_F32, 1, vocab);
    assert_int_equal(qn_softmax(stream, &out.t, &x.t, nullptr, (float)temperature), QN_OK);
    double most = -HUGE_VAL, sum = 0, worst = 0;
    for (int i = 0; i < vocab; i++)
        most = fmax(most, at(&x, i));
    for (int i = 0; i < vocab; i++)
        sum += exp((at(&x, i) - most) / (double)(float)temperature);
    for (int i = 0; i < vocab; i++) {
        const double y = (at(&x, i) - most) / (double)(float)temperature, want = exp(y) / sum;
        const double bound = 0x1p-22 + 4 * fabs(y) * u + 3 * u + vocab * 0x1p-40;
        worst = fmax(worst, fabs((double)floats()[i] / want - 1) / bound);
    }
    assert_true(worst <= 1);
    FLOATS(&x, 4, 2, -HUGE_VALF, -HUGE_VALF, /**/ 0, NAN, /**/ HUGE_VALF, 1, /**/ 3, -HUGE_VALF);
    MAKE(&out, QNI_F32, 4, 2);
    assert_int_equal(qn_softmax(stream, &out.t, &x.t, nullptr, 1), QN_OK);
    assert_true(floats()[0] == 0 && isnan(floats()[2]) && isnan(floats()[3]));
    assert_true(floats()[4] == 1 && floats()[5] == 0 && floats()[6] == 1 && floats()[7] == 0);
}

static void test_penalties(void **) {
    FLOATS(&x, 1, 5, 2, -2, 2, 2, -1);
    MAKE(&ints, QNI_I32, 1, 5);
    memcpy(ints.data, (const int32_t[]){0, 3, 1, 0, 0}, 5 * sizeof(int32_t));
    MAKE(&valid, QNI_BOOL, 1, 5);
    memcpy(valid.data, (const uint8_t[]){0, 0, 0, 1, 1}, 5);
    qn_penalties_args a = {.struct_size = sizeof a,
                           .out = &x.t,
                           .logits = &x.t,
                           .counts = &ints.t,
                           .in_prompt = &valid.t,
                           .repetition = 2,
                           .presence = 0.5f,
                           .frequency = 0.25f};
    assert_int_equal(qn_apply_penalties(stream, &a), QN_OK);
    const float want[] = {2, -4 - 0.75f - 0.5f, 1 - 0.25f - 0.5f, 1, -2};
    assert_memory_equal(x.data, want, sizeof want);
}

// ---- speculative sampling

/** Runs a chain of 2 tokens of a vocabulary of 3. */
static qn_status run_chain(const float *draft, const float *target, int64_t offset) {
    MAKE(&x, QNI_F32, 1, 2, 3);
    MAKE(&first, QNI_F32, 1, 3, 3);
    put_floats(&x, draft, 6);
    put_floats(&first, target, 9);
    MAKE(&ints, QNI_I32, 1, 2);
    memcpy(ints.data, (const int32_t[]){1, 0}, 8);
    MAKE(&out, QNI_I32, 1, 3);
    INDICES(&second, 10);
    INDICES(&third, 20);
    return qn_chain_speculative_sampling(
        stream, &(qn_chain_speculative_sampling_args){
                    .struct_size = sizeof(qn_chain_speculative_sampling_args),
                    .out = &out.t,
                    .accepted = &second.t,
                    .sent = &third.t,
                    .draft_probs = &x.t,
                    .draft_ids = &ints.t,
                    .target_probs = &first.t,
                    .seed = 9,
                    .offset = offset});
}

/** Equal distributions accept all drafts; a target of 0 rejects, and the token is what the target
 *  has more; a later draft counts as accepted none the less. */
static void test_chain(void **) {
    const float same[] = {0.2f, 0.3f, 0.5f, 0.2f, 0.3f, 0.5f, 0, 1, 0};
    const float zero[] = {0.5f, 0, 0.5f, 0.2f, 0.3f, 0.5f, 0, 1, 0};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(run_chain(same, same, i), QN_OK);
        assert_true(tokens()[0] == 1 && tokens()[1] == 0 && tokens()[2] == 1);
        assert_true(((int32_t *)second.data)[0] == 12 && ((int32_t *)third.data)[0] == 22);
        assert_int_equal(run_chain(same, zero, i), QN_OK);
        assert_true(tokens()[0] == 0 && tokens()[1] == -1 && tokens()[2] == -1);
        assert_true(((int32_t *)second.data)[0] == 11 && ((int32_t *)third.data)[0] == 20);
    }
}

/** The first token that goes out is distributed as the target says. */
static void test_chain_frequencies(void **) {
    constexpr int draws = 4000;
    const float draft[] = {0, 1, 0, 1, 0, 0};
    const float target[] = {0.2f, 0.5f, 0.3f, 0.2f, 0.3f, 0.5f, 0, 1, 0};
    int count[3] = {};
    for (int i = 0; i < draws; i++) {
        assert_int_equal(run_chain(draft, target, 3 * i), QN_OK);
        count[tokens()[0]]++;
    }
    for (int k = 0; k < 3; k++) {
        const double p = (double)target[k];
        assert_true(fabs(count[k] - p * draws) <= 6 * sqrt(p * (1 - p) * draws));
    }
}

// ---- refusals

static void test_refusals(void **) {
    qn_sample_args a = args_of(2);
    FLOATS(&x, 2, 3, 1, 2, 3, 4, 5, 6);
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "logits and probs are null");
    a.probs = a.logits = &x.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "logits and probs are given");
    a.logits = nullptr;
    a.temperature = 0.5f;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "temperature is given with probs");
    a = args_of(2);
    a.logits = &x.t;
    a.top_k = -1;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "top_k is -1; accepted: 1 or more");
    a.top_k = 0, a.top_p = 1.5f;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "top_p is 1.5; accepted: above 0, up to 1");
    a.top_p = NAN;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "top_p is nan");
    a.top_p = 0, a.min_p = -0.25f;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "min_p is -0.25; accepted: 0 to 1");
    a.min_p = 0, a.temperature = -1;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "temperature is -1");
    a.temperature = 0, a.order = (qn_filter_order)7;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "order is 7");
    a.order = QN_JOINT;
    MAKE(&seeds, QNI_I64, 3);
    a.seeds = &seeds.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "seeds has shape [3], needs [2]");
    MAKE(&seeds, QNI_I32, 2);
    assert_refused(qn_sample(stream, &a), QN_E_UNSUPPORTED, "seeds has dtype i32; accepted: i64");
    seeds.t.shape = nullptr;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "seeds has a null shape");
    a.seeds = nullptr, a.indices = &seeds.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "indices has a null shape");
    a.indices = nullptr, a.out = &x.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "out has 2 dimensions, needs 1");
    a.out = &out.t, a.struct_size = 8;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "struct_size");
    assert_untouched();
}

/** The values of vectors are looked at before anything is written. */
static void test_contents(void **) {
    FLOATS(&x, 2, 3, 1, 2, 3, 4, 5, 6);
    qn_sample_args a = args_of(2);
    a.logits = &x.t;
    VECTOR(&first, 0.5f, 0);
    a.top_ps = &first.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "top_ps[1] is 0; accepted: above 0");
    a.top_ps = nullptr, a.min_ps = a.temperatures = &first.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "temperatures[1] is 0");
    a.min_ps = a.temperatures = nullptr;
    INDICES(&ints, 1, 0);
    a.top_ks = &ints.t;
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "top_ks[1] is 0; accepted: 1 to");
    a.top_ks = nullptr, a.indices = &ints.t;
    INDICES(&ints, 1, 2);
    assert_refused(qn_sample(stream, &a), QN_E_INVALID, "indices[1] is 2; accepted: 0 to 1");
    assert_untouched();
    const float half[] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    assert_int_equal(run_chain(half, half, 0), QN_OK);
    ((int32_t *)ints.data)[1] = 3;
    assert_refused(
        qn_chain_speculative_sampling(stream,
                                      &(qn_chain_speculative_sampling_args){
                                          .struct_size = sizeof(qn_chain_speculative_sampling_args),
                                          .out = &out.t,
                                          .draft_probs = &x.t,
                                          .draft_ids = &ints.t,
                                          .target_probs = &first.t}),
        QN_E_INVALID, "draft_ids[1] is 3; accepted: 0 to 2");
}

static void test_matrix_refusals(void **) {
    MAKE(&x, QNI_BF16, 2, 8);
    MAKE(&out, QNI_BF16, 2, 8);
    assert_refused(qn_softmax(stream, &out.t, &x.t, nullptr, 1), QN_E_UNSUPPORTED,
                   "softmax: probs has dtype bf16; accepted: f32");
    assert_refused(qn_top_k_mask_logits(stream, &out.t, &x.t, nullptr, 0), QN_E_INVALID,
                   "top_k_mask_logits: top_k is 0");
    assert_refused(qn_top_p_renorm_probs(stream, &x.t, &x.t, nullptr, 0.5f), QN_E_INVALID,
                   "top_p_renorm_probs: out overlaps probs");
    assert_refused(qn_top_p_renorm_probs(stream, &out.t, &x.t, nullptr, 0), QN_E_INVALID,
                   "top_p is 0");
    assert_untouched();
    MAKE(&out, QNI_F32, 2, 7);
    assert_refused(qn_softmax(stream, &out.t, &x.t, nullptr, 1), QN_E_INVALID,
                   "probs has shape [2, 7], needs [2, 8]");
    MAKE(&out, QNI_F32, 2, 8);
    assert_refused(qn_softmax(stream, &out.t, &x.t, nullptr, 0), QN_E_INVALID, "temperature is 0");
    qn_penalties_args a = {.struct_size = sizeof a, .out = &x.t, .logits = &x.t, .repetition = -2};
    assert_refused(qn_apply_penalties(stream, &a), QN_E_INVALID, "repetition is -2");
    a.repetition = 1, a.presence = NAN;
    assert_refused(qn_apply_penalties(stream, &a), QN_E_INVALID, "presence is nan");
    assert_untouched();
}

static void test_empty(void **) {
    MAKE(&x, QNI_F32, 0, 8);
    MAKE(&out, QNI_F32, 0, 8);
    x.t.data = out.t.data = nullptr;
    assert_int_equal(qn_softmax(stream, &out.t, &x.t, nullptr, 1), QN_OK);
    MAKE(&x, QNI_F32, 2, 0);
    MAKE(&out, QNI_F32, 2, 0);
    assert_refused(qn_softmax(stream, &out.t, &x.t, nullptr, 1), QN_E_INVALID,
                   "logits has rows of 0 elements; accepted: 1 to 4194304");
    MAKE(&x, QNI_F32, 0, 8);
    qn_sample_args a = args_of(0);
    a.logits = &x.t;
    assert_int_equal(qn_sample(stream, &a), QN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_exponential),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_chain_frequencies),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_matrix_refusals),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
