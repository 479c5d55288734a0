// SPDX-License-Identifier: Apache-2.0
// What kvcache's functions refuse and leave alone. families_test shows that kernels agree with the
// definition, on every page size and layout.
#include "../../runtime/testing.h"
#include "../shared/op_test.h"
#include "kvcache.h"

enum { N = 4, HEADS = 2, DIM = 4, PAGES = 3, PAGE = 2 };

static box key, value, k_cache, v_cache, batch, pos, indices, indptr, last, slots, k_scale, v_scale;

static void make_all(qni_dtype dtype, qni_dtype cache) {
    MAKE(&key, dtype, N, HEADS, DIM);
    MAKE(&value, dtype, N, HEADS, DIM);
    MAKE(&k_cache, cache, PAGES, PAGE, HEADS, DIM);
    MAKE(&v_cache, cache, PAGES, PAGE, HEADS, DIM);
    for (int i = 0; i < N * HEADS * DIM; i++) {
        qni_put(dtype, key.data, i, i + 1);
        qni_put(dtype, value.data, i, -i - 1);
    }
    // Sequence 0 has pages 2 and 0 with three tokens, sequence 1 page 1 with two.
    INDICES(&batch, 0, 1, 0, -1);
    INDICES(&pos, 2, 1, 0, 99);
    INDICES(&indices, 2, 0, 1);
    INDICES(&indptr, 0, 2, 3);
    INDICES(&last, 1, 2);
    INDICES(&slots, 0, 3, 4, -1);
    MAKE(&k_scale, QNI_F32, 1);
    MAKE(&v_scale, QNI_F32, 1);
    *(float *)k_scale.data = 2;
    *(float *)v_scale.data = 0.001f;
    key.t.strides = k_cache.t.strides = pos.t.strides = nullptr; // contiguous all the same
}

static qn_status append(qn_kv_layout layout) {
    const qn_append_paged_kv_cache_args args = {.struct_size = sizeof args,
                                                .k_cache = &k_cache.t,
                                                .v_cache = &v_cache.t,
                                                .append_key = &key.t,
                                                .append_value = &value.t,
                                                .batch_indices = &batch.t,
                                                .positions = &pos.t,
                                                .kv_indices = &indices.t,
                                                .kv_indptr = &indptr.t,
                                                .kv_last_page_len = &last.t,
                                                .kv_layout = layout};
    return qn_append_paged_kv_cache(stream, &args);
}

static qn_status by_slots(bool quantizes) {
    const qn_reshape_and_cache_args args = {.struct_size = sizeof args,
                                            .k_cache = &k_cache.t,
                                            .v_cache = &v_cache.t,
                                            .key = &key.t,
                                            .value = &value.t,
                                            .slot_mapping = &slots.t,
                                            .k_scale = quantizes ? &k_scale.t : nullptr,
                                            .v_scale = quantizes ? &v_scale.t : nullptr};
    return qn_reshape_and_cache(stream, &args);
}

/** Checks that slot `slot` of both caches holds token `token`, or poison if that is below 0. */
static void assert_slot(int slot, int token) {
    for (int i = 0; i < HEADS * DIM; i++) {
        const uint16_t k = ((uint16_t *)k_cache.data)[slot * HEADS * DIM + i];
        const uint16_t v = ((uint16_t *)v_cache.data)[slot * HEADS * DIM + i];
        assert_int_equal(k, token < 0 ? 0xFFFF : ((uint16_t *)key.data)[token * HEADS * DIM + i]);
        assert_int_equal(v, token < 0 ? 0xFFFF : ((uint16_t *)value.data)[token * HEADS * DIM + i]);
    }
}

static void test_append(void **) {
    static const int tokens[PAGES * PAGE] = {0, -1, -1, 1, 2, -1}; // of slots
    make_all(QNI_F16, QNI_F16);
    assert_int_equal(append(QN_NHD), QN_OK);
    for (int slot = 0; slot < PAGES * PAGE; slot++)
        assert_slot(slot, tokens[slot]);
    make_all(QNI_BF16, QNI_BF16);
    assert_int_equal(by_slots(false), QN_OK);
    for (int slot = 0; slot < PAGES * PAGE; slot++)
        assert_slot(slot, slot == 0 ? 0 : slot == 3 ? 1 : slot == 4 ? 2 : -1);
}

/** HND: a head's slots lie together. */
static void test_hnd(void **) {
    make_all(QNI_F16, QNI_F16); // PAGE == HEADS: the shape is the same
    assert_int_equal(append(QN_HND), QN_OK);
    const uint16_t *k = (const uint16_t *)k_cache.data, *from = (const uint16_t *)key.data;
    // Token 1: page 1, place 1; head 1.
    const int64_t at = (1 * HEADS + 1) * PAGE * DIM + 1 * DIM;
    assert_memory_equal(k + at, from + (1 * HEADS + 1) * DIM, DIM * sizeof *k);
    assert_int_equal(k[at - DIM], 0xFFFF);
}

static void test_quantize(void **) {
    make_all(QNI_BF16, QNI_E4M3FN);
    assert_int_equal(by_slots(true), QN_OK);
    assert_true(qni_get(QNI_E4M3FN, k_cache.data, 1) == 1);    // 2 / 2
    assert_true(qni_get(QNI_E4M3FN, v_cache.data, 7) == -448); // -8 / 0.001 saturates
    assert_int_equal(k_cache.data[HEADS * DIM], 0xFF);         // slot 1
}

static void test_latent(void **) {
    make_all(QNI_F16, QNI_F16);
    MAKE(&key, QNI_F16, N, 5);
    MAKE(&value, QNI_F16, N, 3);
    MAKE(&k_cache, QNI_F16, PAGES, PAGE, 5);
    MAKE(&v_cache, QNI_F16, PAGES, PAGE, 3);
    for (int i = 0; i < N * 5; i++)
        qni_put(QNI_F16, key.data, i, i);
    const qn_append_paged_mla_kv_cache_args args = {.struct_size = sizeof args,
                                                    .ckv_cache = &k_cache.t,
                                                    .kpe_cache = &v_cache.t,
                                                    .append_ckv = &key.t,
                                                    .append_kpe = &value.t,
                                                    .batch_indices = &batch.t,
                                                    .positions = &pos.t,
                                                    .kv_indices = &indices.t,
                                                    .kv_indptr = &indptr.t};
    assert_int_equal(qn_append_paged_mla_kv_cache(stream, &args), QN_OK);
    assert_memory_equal(k_cache.data + 3 * 10, key.data + 10, 10); // token 1 in slot 3
    assert_int_equal(k_cache.data[2 * 10], 0xFF);
}

static qn_status concat(bool quantizes) {
    return qn_concat_and_cache_mla(stream, &k_cache.t, &key.t, &value.t, &slots.t,
                                   quantizes ? &k_scale.t : nullptr);
}

/** One cache holds both parts of a token, with gaps between its pages; parts are copied and
 *  converted to FP8. */
static void test_concatenated(void **) {
    make_all(QNI_F16, QNI_F16);
    MAKE(&key, QNI_F16, N, 5);
    MAKE(&value, QNI_F16, N, 3);
    MAKE(&k_cache, QNI_F16, PAGES, PAGE, 8);
    static int64_t apart[] = {21, 10, 1};
    k_cache.t.strides = apart;
    for (int i = 0; i < N * 5; i++)
        qni_put(QNI_F16, key.data, i, i);
    for (int i = 0; i < N * 3; i++)
        qni_put(QNI_F16, value.data, i, -i);
    assert_int_equal(concat(false), QN_OK);
    const uint8_t *slot = k_cache.data + 2 * (21 + 10); // slot 3: page 1, place 1; token 1
    assert_memory_equal(slot, key.data + 10, 10);
    assert_memory_equal(slot + 10, value.data + 6, 6);
    assert_int_equal(slot[16], 0xFF);
    MAKE(&k_cache, QNI_E4M3FN, PAGES, PAGE, 8);
    assert_int_equal(concat(true), QN_OK);
    assert_true(qni_get(QNI_E4M3FN, k_cache.data, 3 * 8 + 2) == 3.5);    // 7 / 2
    assert_true(qni_get(QNI_E4M3FN, k_cache.data, 3 * 8 + 5 + 1) == -2); // -4 / 2
    assert_int_equal(k_cache.data[8], 0xFF);                             // slot 1
    MAKE(&k_cache, QNI_F16, PAGES, PAGE, 9);
    assert_refused(concat(false), QN_E_INVALID,
                   "kv_cache has shape [3, 2, 9], needs [any, any, 8]");
    MAKE(&k_cache, QNI_F16, PAGES, PAGE, 8);
    k_cache.t.strides = (int64_t[]){16, 7, 1};
    assert_refused(concat(false), QN_E_INVALID, "kv_cache has stride 7 in dimension 1");
    k_cache.t.strides = nullptr;
    key.t.data = k_cache.data + 64;
    assert_refused(concat(false), QN_E_INVALID, "kv_cache overlaps kv_c");
    assert_int_equal(k_cache.data[0], 0xFF);
}

static box codes, group_scales, rope;

static qn_status cache_groups(void) {
    const qn_quantize_and_cache_mla_args args = {.struct_size = sizeof args,
                                                 .ckv_cache = &codes.t,
                                                 .scale_cache = &group_scales.t,
                                                 .kpe_cache = &rope.t,
                                                 .kv_c = &key.t,
                                                 .k_pe = &value.t,
                                                 .slot_mapping = &slots.t};
    return qn_quantize_and_cache_mla(stream, &args);
}

/** Makes tokens of 130 + 3 elements: token t's first group has t + 1 as its largest, its second one
 *  is zeros. */
static void make_groups(void) {
    make_all(QNI_F16, QNI_F16);
    MAKE(&key, QNI_F16, N, 130);
    MAKE(&value, QNI_F16, N, 3);
    MAKE(&codes, QNI_E4M3FN, PAGES, PAGE, 130);
    MAKE(&group_scales, QNI_F32, PAGES, PAGE, 2);
    MAKE(&rope, QNI_F16, PAGES, PAGE, 3);
    for (int t = 0; t < N; t++) {
        for (int i = 0; i < 130; i++)
            qni_put(QNI_F16, key.data, t * 130 + i, i >= 128 ? 0 : i == 77 ? -t - 1 : 0.5);
        for (int i = 0; i < 3; i++)
            qni_put(QNI_F16, value.data, t * 3 + i, 10 * t + i);
    }
}

static void test_groups(void **) {
    make_groups();
    assert_int_equal(cache_groups(), QN_OK); // tokens 0 to 3 go to slots 0, 3, 4 and nowhere
    const float scale = 2.0f / 448;          // of token 1, in slot 3
    assert_true(qni_get(QNI_F32, group_scales.data, 3 * 2) == (double)scale);
    assert_true(qni_get(QNI_F32, group_scales.data, 3 * 2 + 1) == (double)(1e-10f / 448));
    assert_true(qni_get(QNI_E4M3FN, codes.data, 3 * 130 + 77) == -448);
    assert_true(qni_get(QNI_E4M3FN, codes.data, 3 * 130) == 112); // 0.5 / 2 * 448
    assert_true(qni_get(QNI_E4M3FN, codes.data, 3 * 130 + 129) == 0);
    assert_true(qni_get(QNI_F16, rope.data, 3 * 3 + 2) == 12);
    assert_int_equal(codes.data[130], 0xFF); // slot 1
    assert_int_equal(rope.data[3 * 2], 0xFF);
    key.shape[0] = value.shape[0] = slots.shape[0] = 0;
    assert_int_equal(cache_groups(), QN_OK);
}

static void test_groups_refuse(void **) {
    make_groups();
    MAKE(&codes, QNI_F16, PAGES, PAGE, 130);
    assert_refused(cache_groups(), QN_E_UNSUPPORTED, "ckv_cache has dtype f16; accepted: FP8");
    make_groups();
    MAKE(&group_scales, QNI_F32, PAGES, PAGE, 1);
    assert_refused(cache_groups(), QN_E_INVALID,
                   "scale_cache has shape [3, 2, 1], needs [any, any, 2]");
    MAKE(&group_scales, QNI_F16, PAGES, PAGE, 2);
    assert_refused(cache_groups(), QN_E_UNSUPPORTED, "scale_cache has dtype f16; accepted: f32");
    make_groups();
    MAKE(&rope, QNI_BF16, PAGES, PAGE, 3);
    assert_refused(cache_groups(), QN_E_UNSUPPORTED, "kpe_cache has dtype bf16; accepted: f16");
    MAKE(&rope, QNI_F16, PAGES, PAGE + 1, 3);
    assert_refused(cache_groups(), QN_E_INVALID,
                   "kpe_cache has 3 pages of 3, ckv_cache 3 of 2; both need the same");
    make_groups();
    MAKE(&value, QNI_F32, N, 3);
    assert_refused(cache_groups(), QN_E_UNSUPPORTED, "k_pe has dtype f32; accepted: f16");
    make_groups();
    *(int32_t *)slots.data = PAGES * PAGE;
    assert_refused(cache_groups(), QN_E_INVALID, "slot_mapping[0] is 6");
    make_groups();
    rope.t.data = codes.data;
    assert_refused(cache_groups(), QN_E_INVALID, "overlaps");
    assert_int_equal(codes.data[0], 0xFF); // nothing was written
}

static qn_status gather(const DLTensor *slot_mapping, const DLTensor *scale) {
    const qn_gather_paged_mla_kv_cache_args args = {
        .struct_size = sizeof args,
        .out = &key.t,
        .cache = &k_cache.t,
        .scale = scale,
        .slot_mapping = slot_mapping,
        .batch_indices = slot_mapping ? nullptr : &batch.t,
        .positions = slot_mapping ? nullptr : &pos.t,
        .kv_indices = slot_mapping ? nullptr : &indices.t,
        .kv_indptr = slot_mapping ? nullptr : &indptr.t,
        .kv_last_page_len = slot_mapping ? nullptr : &last.t};
    return qn_gather_paged_mla_kv_cache(stream, &args);
}

static void make_gathered(qni_dtype cache, qni_dtype out) {
    make_all(QNI_F16, QNI_F16);
    MAKE(&k_cache, cache, PAGES, PAGE, 8);
    MAKE(&key, out, N, 8);
    for (int i = 0; i < PAGES * PAGE * 8; i++)
        qni_put(cache, k_cache.data, i, i);
}

/** Reads what lies in slots, and in sequences' places; rows of tokens that are nowhere are left. */
static void test_gathered(void **) {
    static const int slots_of[N] = {0, 3, 4, -1}; // by slot_mapping as by pages
    for (int by_pages = 0; by_pages < 2; by_pages++) {
        make_gathered(QNI_F16, QNI_F16);
        assert_int_equal(gather(by_pages ? nullptr : &slots.t, nullptr), QN_OK);
        for (int t = 0; t < N; t++)
            if (slots_of[t] < 0)
                assert_int_equal(key.data[t * 16], 0xFF);
            else
                assert_memory_equal(key.data + t * 16, k_cache.data + slots_of[t] * 16, 16);
    }
    make_gathered(QNI_E4M3FN, QNI_F32);
    assert_int_equal(gather(&slots.t, &k_scale.t), QN_OK);
    assert_true(qni_get(QNI_F32, key.data, 8) == 48); // slot 3 begins with 24
    key.shape[0] = slots.shape[0] = 0;
    assert_int_equal(gather(&slots.t, &k_scale.t), QN_OK);
}

/** Reads codes with scales of groups back. */
static void test_gathered_groups(void **) {
    make_groups();
    assert_int_equal(cache_groups(), QN_OK);
    MAKE(&key, QNI_F32, N, 130);
    qn_gather_paged_mla_kv_cache_args args = {.struct_size = sizeof args,
                                              .out = &key.t,
                                              .cache = &codes.t,
                                              .scales = &group_scales.t,
                                              .slot_mapping = &slots.t};
    assert_int_equal(qn_gather_paged_mla_kv_cache(stream, &args), QN_OK);
    assert_true(fabs(qni_get(QNI_F32, key.data, 130 + 77) + 2) < 1e-6);
    assert_true(fabs(qni_get(QNI_F32, key.data, 2 * 130) - 0.5) < 0.04); // of a token of 3
    assert_true(qni_get(QNI_F32, key.data, 129) == 0);
    args.scale = &k_scale.t;
    assert_refused(qn_gather_paged_mla_kv_cache(stream, &args), QN_E_INVALID,
                   "scale is given beside scales; accepted: one of them");
    args.scale = nullptr, group_scales.shape[2] = 1;
    assert_refused(qn_gather_paged_mla_kv_cache(stream, &args), QN_E_INVALID,
                   "scales has shape [3, 2, 1], needs [3, 2, 2]");
    MAKE(&codes, QNI_F16, PAGES, PAGE, 130);
    MAKE(&group_scales, QNI_F32, PAGES, PAGE, 2);
    assert_refused(qn_gather_paged_mla_kv_cache(stream, &args), QN_E_UNSUPPORTED,
                   "cache has dtype f16; accepted with scales: FP8");
}

static void test_gather_refuses(void **) {
    make_gathered(QNI_F16, QNI_BF16);
    assert_refused(gather(&slots.t, nullptr), QN_E_UNSUPPORTED,
                   "out has dtype bf16; accepted: f16");
    assert_refused(gather(&slots.t, &k_scale.t), QN_E_UNSUPPORTED,
                   "cache has dtype f16; accepted with scale: FP8");
    make_gathered(QNI_E4M3FN, QNI_E4M3FN);
    assert_refused(gather(&slots.t, &k_scale.t), QN_E_UNSUPPORTED,
                   "out has dtype e4m3fn; accepted: f32, f16, bf16");
    key.shape[1] = 7;
    assert_refused(gather(&slots.t, nullptr), QN_E_INVALID, "out has shape [4, 7], needs [any, 8]");
    make_gathered(QNI_F16, QNI_F16);
    *(int32_t *)slots.data = PAGES * PAGE;
    assert_refused(gather(&slots.t, nullptr), QN_E_INVALID, "slot_mapping[0] is 6");
    *(int32_t *)pos.data = 4;
    assert_refused(gather(nullptr, nullptr), QN_E_INVALID, "positions[0] is 4; accepted: 0 to");
    key.t.data = k_cache.data;
    *(int32_t *)slots.data = 0;
    assert_refused(gather(&slots.t, nullptr), QN_E_INVALID, "overlaps");
    const qn_gather_paged_mla_kv_cache_args both = {.struct_size = sizeof both,
                                                    .out = &key.t,
                                                    .cache = &k_cache.t,
                                                    .slot_mapping = &slots.t,
                                                    .kv_indptr = &indptr.t};
    assert_refused(qn_gather_paged_mla_kv_cache(stream, &both), QN_E_INVALID,
                   "kv_indptr is given beside slot_mapping; accepted: null");
}

/** Sequences of 2, 0 and 1 pages. */
static void test_seq_lens(void **) {
    box lens;
    MAKE(&lens, QNI_I32, 3);
    INDICES(&indptr, 0, 2, 2, 3);
    INDICES(&last, 3, 0, 16);
    assert_int_equal(qn_get_seq_lens(stream, &lens.t, &indptr.t, &last.t, 16), QN_OK);
    static const int32_t want[] = {19, 0, 16};
    assert_memory_equal(lens.data, want, sizeof want);
    assert_refused(qn_get_seq_lens(stream, &lens.t, &indptr.t, &last.t, 0), QN_E_INVALID,
                   "page_size is 0");
    INDICES(&indptr, 0, 2, 1, 3);
    assert_refused(qn_get_seq_lens(stream, &lens.t, &indptr.t, &last.t, 16), QN_E_INVALID,
                   "kv_indptr[2] is 1");
    INDICES(&indptr, 0, 3, 3, 3); // more than 31 bits can count
    INDICES(&last, 5, INT32_MIN, INT32_MAX);
    assert_int_equal(qn_get_seq_lens(stream, &lens.t, &indptr.t, &last.t, INT32_MAX), QN_OK);
    static const int32_t wrapped[] = {3, INT32_MIN, INT32_MAX};
    assert_memory_equal(lens.data, wrapped, sizeof wrapped);
    INDICES(&indptr, 0, 2, 3);
    assert_refused(qn_get_seq_lens(stream, &lens.t, &indptr.t, &last.t, 16), QN_E_INVALID,
                   "kv_indptr has shape [3], needs [4]");
}

static void test_positions(void **) {
    box lens;
    MAKE(&batch, QNI_I32, 6);
    MAKE(&pos, QNI_I32, 6);
    INDICES(&indptr, 0, 3, 3, 5);
    INDICES(&lens, 10, 4, 2);
    assert_int_equal(qn_get_batch_indices_positions(stream, &batch.t, &pos.t, &indptr.t, &lens.t),
                     QN_OK);
    static const int32_t batches[] = {0, 0, 0, 2, 2, -1}, positions[] = {7, 8, 9, 0, 1, 0};
    assert_memory_equal(batch.data, batches, sizeof batches);
    assert_memory_equal(pos.data, positions, sizeof positions);
    INDICES(&lens, INT32_MIN, 0, 0); // before the first number
    assert_int_equal(qn_get_batch_indices_positions(stream, &batch.t, &pos.t, &indptr.t, &lens.t),
                     QN_OK);
    assert_int_equal(((int32_t *)pos.data)[0], INT32_MAX - 2);
    INDICES(&lens, 10, 4);
    assert_refused(qn_get_batch_indices_positions(stream, &batch.t, &pos.t, &indptr.t, &lens.t),
                   QN_E_INVALID, "seq_lens has shape [2], needs [3]");
}

static void test_refusals(void **) {
    make_all(QNI_F16, QNI_F16);
    MAKE(&pos, QNI_I64, N);
    assert_refused(append(QN_NHD), QN_E_UNSUPPORTED, "positions has dtype i64; accepted: i32");
    make_all(QNI_F16, QNI_BF16);
    assert_refused(append(QN_NHD), QN_E_UNSUPPORTED, "k_cache has dtype bf16, needs f16");
    assert_refused(by_slots(true), QN_E_UNSUPPORTED, "k_cache has dtype bf16, needs an FP8 kind");
    make_all(QNI_F16, QNI_F16);
    assert_refused(append(7), QN_E_INVALID, "kv_layout is 7");
    MAKE(&v_cache, QNI_F16, PAGES, PAGE, HEADS + 1, DIM);
    assert_refused(append(QN_NHD), QN_E_INVALID, "v_cache has shape");
    MAKE(&v_cache, QNI_F16, PAGES + 1, PAGE, HEADS, DIM);
    assert_refused(append(QN_NHD), QN_E_INVALID, "both need the same");
    make_all(QNI_F16, QNI_F16);
    v_cache.t.data = k_cache.data;
    assert_refused(append(QN_NHD), QN_E_INVALID, "v_cache overlaps k_cache");
    make_all(QNI_F16, QNI_F16);
    key.t.data = k_cache.data;
    assert_refused(append(QN_NHD), QN_E_INVALID, "k_cache overlaps append_key");
    make_all(QNI_F16, QNI_F16);
    last.t.data = k_cache.data;
    INDICES(&indptr, 0, 0, 0);
    memset(k_cache.data, 0, 2 * sizeof(int32_t)); // the lengths for that call
    INDICES(&batch, -1, -1, -1, -1);
    assert_refused(append(QN_NHD), QN_E_INVALID, "k_cache overlaps kv_last_page_len");
    make_all(QNI_F16, QNI_F16);
    pos.t.shape = nullptr; // looked at only once it is known to be there
    assert_refused(append(QN_NHD), QN_E_INVALID, "positions has a null shape");
    make_all(QNI_F16, QNI_F16);
    assert_refused(qn_append_paged_kv_cache(stream, nullptr), QN_E_INVALID, "args is null");
}

/** Tensors that begin within an element, by their address or their offset. */
static void test_misaligned(void **) {
    make_all(QNI_F16, QNI_F16);
    k_cache.t.data = k_cache.data + 1;
    assert_refused(append(QN_NHD), QN_E_INVALID, "k_cache begins at");
    make_all(QNI_F32, QNI_F32);
    v_cache.t.byte_offset = 2;
    assert_refused(append(QN_HND), QN_E_INVALID, "needs a multiple of its 4-byte elements");
    assert_refused(by_slots(false), QN_E_INVALID, "v_cache begins at");
    make_all(QNI_BF16, QNI_BF16);
    value.t.byte_offset = 3;
    assert_refused(by_slots(false), QN_E_INVALID, "value begins at");
    for (int slot = 0; slot < PAGES * PAGE; slot++)
        assert_slot(slot, -1); // nothing was written
    make_all(QNI_F16, QNI_F16);
    k_cache.t.byte_offset = 2; // odd, but at an element
    assert_int_equal(append(QN_NHD), QN_OK);
}

static void test_validation(void **) {
    make_all(QNI_F16, QNI_F16);
    INDICES(&batch, 0, 2, 0, -1);
    assert_refused(append(QN_NHD), QN_E_INVALID, "batch_indices[1] is 2; accepted: below 2");
    make_all(QNI_F16, QNI_F16);
    INDICES(&pos, 4, 1, 0, 0);
    assert_refused(append(QN_NHD), QN_E_INVALID, "positions[0] is 4; accepted: 0 to 3");
    INDICES(&pos, 2, -1, 0, 0);
    assert_refused(append(QN_NHD), QN_E_INVALID, "positions[1] is -1; accepted: 0 to 1");
    make_all(QNI_F16, QNI_F16);
    INDICES(&indices, 2, 3, 1);
    assert_refused(append(QN_NHD), QN_E_INVALID, "kv_indices[1] is 3; accepted: 0 to 2");
    INDICES(&indices, -1, 0, 1);
    assert_refused(append(QN_HND), QN_E_INVALID, "kv_indices[0] is -1; accepted: 0 to 2");
    make_all(QNI_F16, QNI_F16);
    INDICES(&indptr, 0, 2, 1);
    assert_refused(append(QN_NHD), QN_E_INVALID, "kv_indptr[2] is 1; accepted: 2 to 3");
    make_all(QNI_F16, QNI_F16);
    INDICES(&slots, 0, 6, 0, 0);
    assert_refused(by_slots(false), QN_E_INVALID, "slot_mapping[1] is 6");
    for (int slot = 0; slot < PAGES * PAGE; slot++)
        assert_slot(slot, -1); // nothing was written
}

/** Contents that no token of the call needs are checked only with QUERN_VALIDATE=1. */
static void test_contents_at_rest(void **) {
    make_all(QNI_F16, QNI_F16);
    INDICES(&pos, 3, 1, 0, 0); // the second page holds one token
    assert_int_equal(append(QN_NHD), QN_OK);
    INDICES(&pos, 0, 1, 1, 0);
    INDICES(&indices, 2, 99, 1);
    INDICES(&last, 3, 1);
    assert_int_equal(append(QN_NHD), QN_OK);
}

static void validate_in_child(void *) {
    CHILD_CHECK(open_cpu(nullptr) == 0);
    make_all(QNI_F16, QNI_F16);
    INDICES(&pos, 3, 1, 0, 0);
    CHILD_CHECK(append(QN_NHD) == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), "positions[0] is 3; accepted: 0 to 2"));
    INDICES(&pos, 0, 1, 1, 0);
    INDICES(&indices, 2, 99, 1);
    CHILD_CHECK(append(QN_NHD) == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), "kv_indices[1] is 99; accepted: 0 to 2"));
    make_all(QNI_F16, QNI_F16);
    INDICES(&last, 3, 1);
    CHILD_CHECK(append(QN_NHD) == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), "kv_last_page_len[0] is 3"));
    make_all(QNI_F16, QNI_E5M2);
    *(float *)v_scale.data = 0;
    CHILD_CHECK(by_slots(true) == QN_E_INVALID);
    CHILD_CHECK(strstr(qn_last_error(), "v_scale is 0; accepted: above 0, finite"));
    close_cpu(nullptr);
}

static void test_all_validated(void **) {
    const char *const env[] = {"QUERN_VALIDATE=1", nullptr};
    child_run(validate_in_child, nullptr, env);
}

static void test_empty(void **) {
    make_all(QNI_F16, QNI_F16);
    key.shape[0] = value.shape[0] = batch.shape[0] = pos.shape[0] = slots.shape[0] = 0;
    key.t.data = value.t.data = batch.t.data = pos.t.data = slots.t.data = nullptr;
    assert_int_equal(append(QN_NHD), QN_OK);
    assert_int_equal(by_slots(false), QN_OK);
    assert_int_equal(k_cache.data[0], 0xFF);
}

int main(void) {
    // First: a child must not inherit an environment that has been read.
    const struct CMUnitTest validated[] = {cmocka_unit_test(test_all_validated)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),           cmocka_unit_test(test_hnd),
        cmocka_unit_test(test_contents_at_rest), cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_latent),           cmocka_unit_test(test_positions),
        cmocka_unit_test(test_concatenated),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_refuse),    cmocka_unit_test(test_gathered_groups),
        cmocka_unit_test(test_gathered),         cmocka_unit_test(test_gather_refuses),
        cmocka_unit_test(test_seq_lens),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_validation),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_misaligned),
    };
    return cmocka_run_group_tests(validated, nullptr, nullptr) +
           cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
