// SPDX-License-Identifier: Apache-2.0
// Sampling's kernels for clusters, as far as no such card is needed: when they are the choice, and
// by which words they refuse problems. quern check runs them on a card.
#include "../../shared/op_test.h"
#include "../sampling.h"

/** What the choice sees of an H200. */
static qn_device h200(void) {
    qn_device chip = {.target = qni_target_find("sm_90a", 6)};
    chip.features = chip.target->features;
    chip.info.num_compute_units = 132;
    return chip;
}

/** Softmax of a row of Llama's vocabulary. */
static qni_sampling_problem softmax(void) {
    return (qni_sampling_problem){.what = QK_SAMPLING_SOFTMAX,
                                  .rows = {.what = QK_SAMPLING_SOFTMAX,
                                           .temperature = 1,
                                           .top_p = 1,
                                           .top_k = 128256,
                                           .batch = 1,
                                           .rows = 1,
                                           .vocab = 128256,
                                           .dtype = QNI_F32,
                                           .is_logits = true}};
}

#define TAKEN(change, kernel)                                                                      \
    do {                                                                                           \
        qni_sampling_problem p = softmax();                                                        \
        const qn_device chip = h200();                                                             \
        const qni_variant *found = nullptr;                                                        \
        change;                                                                                    \
        assert_int_equal(qni_choose(&qni_op_sampling, &chip, &p, &found), QN_OK);                  \
        assert_string_equal(found->name, "sampling." kernel);                                      \
    } while (0)
#define TOKENS p.what = p.rows.what = QK_SAMPLING_TOKENS

/** The faster of the kernels, as measured: docs/performance_h200.md. */
static void test_choice(void **) {
    TAKEN((void)p, "gpu_cluster");
    TAKEN(p.rows.batch = 256, "gpu_cluster");
    TAKEN((TOKENS, p.rows.top_k = 50), "gpu_cluster");
    TAKEN((TOKENS, p.rows.top_p = 0.9f, p.rows.batch = 16), "gpu_cluster");
    TAKEN((TOKENS, p.rows.top_p = 0.9f, p.rows.batch = 64), "gpu");
    TAKEN((TOKENS, p.rows.top_k = 50, p.rows.batch = 256), "gpu");
    TAKEN((p.rows.vocab = 32000, p.rows.top_k = 32000, p.rows.batch = 256), "gpu");
    TAKEN(p.rows.vocab = p.rows.top_k = 201088, "gpu_cluster_wide");
    TAKEN((p.rows.vocab = p.rows.top_k = 201088, p.rows.dtype = QNI_BF16), "gpu_cluster");
    TAKEN((p.rows.vocab = p.rows.top_k = 201088, p.rows.batch = 256), "gpu");
    TAKEN(p.rows.vocab = p.rows.top_k = 262145, "gpu");
    TAKEN(p.what = QK_SAMPLING_CHAIN, "gpu");
    TAKEN(p.what = QK_SAMPLING_PENALTIES, "gpu");
}

#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        qni_sampling_problem p = softmax();                                                        \
        const qn_device chip = h200();                                                             \
        const char *const name = "sampling.gpu_cluster";                                           \
        const qni_variant *kernel = qni_variant_find(&qni_op_sampling, name, strlen(name));        \
        qni_reason why = {""};                                                                     \
        change;                                                                                    \
        assert_non_null(kernel);                                                                   \
        assert_false(kernel->supports(kernel, &chip, &p, &why));                                   \
        if (!strstr(why.text, words))                                                              \
            fail_msg("\"%s\" lacks \"%s\"", why.text, words);                                      \
    } while (0)

static void test_refusals(void **) {
    REFUSED(p.what = QK_SAMPLING_CHAIN, "speculative sampling and penalties are not taken");
    REFUSED(p.what = QK_SAMPLING_PENALTIES, "speculative sampling and penalties are not taken");
    REFUSED(p.rows.vocab = 131073,
            "vocab is 131073, 65568 bytes for each of 8 workgroups; taken: 65536");
    REFUSED((p.rows.vocab = 262145, p.rows.dtype = QNI_F16),
            "vocab is 262145, 65552 bytes for each of 8 workgroups; taken: 65536");
    REFUSED(p.rows.batch = (1 << 27) + 1, "134217729 rows; taken: up to 134217728");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
