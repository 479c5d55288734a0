// SPDX-License-Identifier: Apache-2.0
// What rope's functions refuse, the edge vectors of the family, and far strides. families_test
// shows that kernels agree with the definition.
#include "../shared/op_test.h"
#include "rope.h"

#include <sys/mman.h>

static void fill_waves(box *b) {
    const qni_dtype dtype = qni_dtype_of(&b->t);
    for (int64_t i = 0; i < qni_numel(&b->t); i++)
        qni_put(dtype, b->data, i, sin((double)i * 0.7) * 2);
}

static box q, k, q_out, k_out, pos, indptr, offsets, cache, sine, weight;

static void make_all(qni_dtype dtype, int64_t n, int64_t heads, int64_t dim) {
    MAKE(&q, dtype, n, heads, dim);
    MAKE(&k, dtype, n, 1, dim);
    MAKE(&q_out, dtype, n, heads, dim);
    MAKE(&k_out, dtype, n, 1, dim);
    MAKE(&pos, QNI_I32, n);
    memset(pos.data, 0, sizeof pos.data);
    MAKE(&cache, QNI_F32, 4, dim);
    fill_waves(&q);
    fill_waves(&k);
    fill_waves(&cache);
}

static qn_status by_pos(const qn_rope_options *options) {
    return qn_apply_rope_pos_ids(stream, &q_out.t, &k_out.t, &q.t, &k.t, &pos.t, options);
}
static qn_status by_segments(void) {
    return qn_apply_rope(stream, &q_out.t, &k_out.t, &q.t, &k.t, &indptr.t, &offsets.t, nullptr);
}
static qn_status by_cache(void) {
    return qn_apply_rope_with_cos_sin_cache(stream, &q_out.t, &k_out.t, &q.t, &k.t, &cache.t,
                                            &pos.t, 0);
}

static void test_refusals(void **) {
    make_all(QNI_F16, 3, 2, 8);
    assert_refused(qn_apply_rope_pos_ids(nullptr, &q_out.t, &k_out.t, &q.t, &k.t, &pos.t, nullptr),
                   QN_E_INVALID, "stream is null");
    assert_refused(qn_apply_rope_pos_ids(stream, &q_out.t, nullptr, &q.t, &k.t, &pos.t, nullptr),
                   QN_E_INVALID, "apply_rope_pos_ids: k_out is null");
    assert_refused(
        qn_apply_rope_pos_ids(stream, &q_out.t, &k_out.t, &q.t, nullptr, &pos.t, nullptr),
        QN_E_INVALID, "k is null");
    MAKE(&pos, QNI_I64, 3);
    assert_refused(by_pos(nullptr), QN_E_UNSUPPORTED, "pos_ids has dtype i64; accepted: i32");
    MAKE(&pos, QNI_I32, 2);
    assert_refused(by_pos(nullptr), QN_E_INVALID, "pos_ids has shape [2], needs [3]");
    make_all(QNI_F16, 3, 2, 8);
    k.shape[2] = 6;
    assert_refused(by_pos(nullptr), QN_E_INVALID, "k has shape [3, 1, 6], needs [3, any, 8]");
    make_all(QNI_F16, 3, 2, 8);
    MAKE(&k, QNI_BF16, 3, 1, 8);
    assert_refused(by_pos(nullptr), QN_E_UNSUPPORTED, "k has dtype bf16, needs q's, f16");
    make_all(QNI_F16, 3, 2, 8);
    q_out.strides[1] = 4;
    assert_refused(by_pos(nullptr), QN_E_INVALID, "q_out has stride 4 in dimension 1");
    make_all(QNI_E4M3FN, 3, 2, 8);
    assert_refused(by_pos(nullptr), QN_E_UNSUPPORTED, "q has dtype e4m3fn; accepted: f32");
    make_all(QNI_F16, 3, 2, 7);
    assert_refused(by_pos(nullptr), QN_E_INVALID, "rotary_dim is 7; accepted: even");
    make_all(QNI_F16, 3, 2, 8);
    MAKE(&cache, QNI_F32, 4, 10);
    assert_refused(by_cache(), QN_E_INVALID, "cos_sin_cache has rows of 10");
    for (int i = 0; i < 96; i++)
        assert_int_equal(q_out.data[i], 0xFF); // nothing was written
}

static void test_options(void **) {
    make_all(QNI_F32, 3, 2, 8);
    qn_rope_options o = {.rotary_dim = 4};
    assert_refused(by_pos(&o), QN_E_INVALID, "options.struct_size is 0");
    o = (qn_rope_options){.struct_size = sizeof o, .rotary_dim = 10};
    assert_refused(by_pos(&o), QN_E_INVALID,
                   "rotary_dim is 10; accepted: even, from 2 to head_dim, 8");
    o = (qn_rope_options){.struct_size = sizeof o, .rope_theta = -1};
    assert_refused(by_pos(&o), QN_E_INVALID, "rope_theta is -1");
    o = (qn_rope_options){.struct_size = sizeof o, .rope_scale = __builtin_nanf("")};
    assert_refused(by_pos(&o), QN_E_INVALID, "rope_scale is nan");
    o = (qn_rope_options){.struct_size = sizeof o, .high_freq_factor = 4};
    assert_refused(by_pos(&o), QN_E_INVALID, "only Llama 3.1");
    o = (qn_rope_options){.struct_size = sizeof o, .high_freq_factor = 0.5f};
    assert_refused(
        qn_apply_llama31_rope_pos_ids(stream, &q_out.t, &k_out.t, &q.t, &k.t, &pos.t, &o),
        QN_E_INVALID, "low_freq_factor is 1 and high_freq_factor 0.5");
}

static void test_validation(void **) {
    make_all(QNI_F32, 3, 2, 8);
    INDICES(&pos, 0, 4, 1);
    assert_refused(by_cache(), QN_E_INVALID, "positions[1] is 4; accepted: 0 to 3");
    INDICES(&pos, 0, 1, -1);
    assert_refused(by_cache(), QN_E_INVALID, "positions[2] is -1");
    INDICES(&indptr, 0, 2, 1);
    INDICES(&offsets, 0, 0);
    assert_refused(by_segments(), QN_E_INVALID, "indptr[2] is 1; accepted: 2 to 3");
    INDICES(&indptr, 0, 2, 4);
    assert_refused(by_segments(), QN_E_INVALID, "indptr[2] is 4; accepted: 2 to 3");
    INDICES(&offsets, 0, 0, 0);
    assert_refused(by_segments(), QN_E_INVALID, "offsets has shape [3], needs [2]");
    for (int i = 0; i < 96; i++)
        assert_int_equal(q_out.data[i], 0xFF);
}

static void test_overlap(void **) {
    make_all(QNI_F32, 3, 2, 8);
    q_out.t.data = q.data + 4;
    assert_refused(by_pos(nullptr), QN_E_INVALID, "q_out overlaps q");
    q_out.t.data = k.data;
    assert_refused(by_pos(nullptr), QN_E_INVALID, "q_out overlaps k");
    q_out.t.data = k_out.data;
    assert_refused(by_pos(nullptr), QN_E_INVALID, "k_out overlaps q_out");
    // q and k are parts of a packed tensor, [n, 3 heads, 8], and are rotated in place.
    make_all(QNI_F32, 3, 2, 8);
    q.strides[0] = k.strides[0] = 24;
    k.t.data = q.data + 16 * sizeof(float);
    fill_waves(&q);
    INDICES(&pos, 1, 2, 3);
    assert_int_equal(qn_apply_rope_pos_ids(stream, &q.t, &k.t, &q.t, &k.t, &pos.t, nullptr), QN_OK);
}

static void test_empty(void **) {
    make_all(QNI_F16, 0, 2, 8);
    q.t.data = k.t.data = q_out.t.data = k_out.t.data = pos.t.data = nullptr;
    assert_int_equal(by_pos(nullptr), QN_OK);
    make_all(QNI_F16, 3, 2, 8);
    INDICES(&indptr, 0);
    MAKE(&offsets, QNI_I32, 0);
    assert_int_equal(by_segments(), QN_OK);
    assert_int_equal(q_out.data[0], 0xFF); // no token is in a segment
    assert_int_equal(
        qn_apply_rope_pos_ids(stream, &q_out.t, nullptr, &q.t, nullptr, &pos.t, nullptr), QN_OK);
}

/** Position 0 changes nothing. At 2^20 the result is within 1e-3 of the formula, and within the
 *  computed bound, for both layouts and for a part of the head. */
static void check_angles(int64_t rotary_dim, int interleave) {
    enum { N = 4, D = 128 };
    static const double positions[N] = {0, 1, 1 << 20, (1 << 20) + 12345};
    const qn_rope_options o = {
        .struct_size = sizeof o, .rotary_dim = rotary_dim, .interleave = interleave};
    make_all(QNI_F32, N, 1, D);
    INDICES(&pos, 0, 1, 1 << 20, (1 << 20) + 12345);
    assert_int_equal(by_pos(&o), QN_OK);
    for (int64_t t = 0; t < N; t++)
        for (int64_t i = 0; i < D; i++) {
            const int64_t half = rotary_dim / 2, d = interleave ? i / 2 : i % half;
            const int64_t first = t * D + (interleave ? 2 * d : d);
            const int64_t second = first + (interleave ? 1 : half);
            const double a = positions[t] * pow(1e4, -2.0 * (double)d / (double)rotary_dim);
            const bool is_first = t * D + i == first;
            const double want = i >= rotary_dim ? at(&q, t * D + i)
                                : is_first      ? at(&q, first) * cos(a) - at(&q, second) * sin(a)
                                                : at(&q, second) * cos(a) + at(&q, first) * sin(a);
            const double allowed = i >= rotary_dim || t == 0 ? 0 : 4 * qni_rope_angle_error;
            assert_true(fabs(at(&q_out, t * D + i) - want) <= allowed);
        }
}

static void test_angles(void **) {
    check_angles(128, 0);
    check_angles(128, 1);
    check_angles(32, 0);
    check_angles(32, 1);
}

/** The middle frequencies of Llama 3.1, which lie between plain and scaled ones, agree with the
 *  formula of Llama's own code. */
static void test_llama31(void **) {
    constexpr int64_t D = 128;
    constexpr double position = 5000;
    const double factor = 8, low = 1, high = 4, old = 8192;
    make_all(QNI_F32, 1, 1, D);
    INDICES(&pos, 5000);
    assert_int_equal(
        qn_apply_llama31_rope_pos_ids(stream, &q_out.t, &k_out.t, &q.t, &k.t, &pos.t, nullptr),
        QN_OK);
    for (int64_t d = 0; d < D / 2; d++) {
        double f = pow(5e5, -2.0 * (double)d / (double)D);
        const double wavelength = 2 * acos(-1) / f,
                     smooth = (old / wavelength - low) / (high - low);
        if (wavelength > old / low)
            f /= factor;
        else if (wavelength >= old / high)
            f = (1 - smooth) * f / factor + smooth * f;
        const double want = at(&q, d) * cos(position * f) - at(&q, d + D / 2) * sin(position * f);
        assert_true(fabs(at(&q_out, d) - want) < 4 * qni_rope_angle_error);
    }
}

/** A token's bits depend neither on how many tokens there are nor on how its position is given. */
static void test_batch(void **) {
    enum { D = 64 };
    uint16_t alone[D];
    make_all(QNI_BF16, 1, 1, D);
    INDICES(&pos, 77);
    assert_int_equal(by_pos(nullptr), QN_OK);
    memcpy(alone, q_out.data, sizeof alone);
    make_all(QNI_BF16, 5, 3, D);
    for (int i = 0; i < 15; i++)
        memmove(q.data + (size_t)i * sizeof alone, q.data, sizeof alone);
    INDICES(&indptr, 0, 2, 5);
    INDICES(&offsets, 77, 75);
    assert_int_equal(by_segments(), QN_OK);
    assert_memory_equal(alone, q_out.data, sizeof alone);                     // token 0
    assert_memory_equal(alone, q_out.data + 14 * sizeof alone, sizeof alone); // token 4
    assert_memory_not_equal(alone, q_out.data + 6 * sizeof alone, sizeof alone);
}

/** The norm comes before rotation; tables with a row for each token serve both batches. */
static void test_norm(void **) {
    enum { D = 4 };
    MAKE(&q, QNI_F32, 2, 1, 1, D);
    MAKE(&q_out, QNI_F32, 2, 1, 1, D);
    MAKE(&weight, QNI_F32, D);
    MAKE(&cache, QNI_F32, 1, D);
    MAKE(&sine, QNI_F32, 1, D);
    for (int i = 0; i < D; i++) {
        ((float *)weight.data)[i] = 2;
        ((float *)cache.data)[i] = 0;
        ((float *)sine.data)[i] = 1;
        ((float *)q.data)[i] = i < 2 ? 3 : -3;
        ((float *)q.data)[D + i] = i % 2 ? 5 : -5;
    }
    qn_qk_rmsnorm_rope_args a = {.struct_size = sizeof a,
                                 .q_out = &q_out.t,
                                 .q = &q.t,
                                 .q_weight = &weight.t,
                                 .cos = &cache.t,
                                 .sin = &sine.t};
    assert_int_equal(qn_qk_rmsnorm_rope(stream, &a), QN_OK);
    static const double want[2 * D] = {2, 2, 2, 2, 2, -2, -2, 2}; // (x0, x1) -> (-x1, x0), times 2
    for (int i = 0; i < 2 * D; i++)
        assert_true(at(&q_out, i) == want[i]);
    a.k_weight = &weight.t;
    assert_refused(qn_qk_rmsnorm_rope(stream, &a), QN_E_INVALID, "k_weight is given without k");
    a.k_weight = nullptr;
    a.eps = -1;
    assert_refused(qn_qk_rmsnorm_rope(stream, &a), QN_E_INVALID, "eps is -1");
    a.eps = 0;
    sine.shape[1] = 2;
    assert_refused(qn_qk_rmsnorm_rope(stream, &a), QN_E_INVALID, "sin has not the dtype");
    a.struct_size = 8;
    assert_refused(qn_qk_rmsnorm_rope(stream, &a), QN_E_INVALID, "struct_size is 8");
}

/** Rotation by a quarter turn, scales, saturation, k without heads; then all of this into
 *  caches. */
static void test_quantize(void **) {
    enum { R = 2, NOPE = 2, PAGE = 2 };
    box q_nope, k_nope, v, q_nope_out, k_nope_out, k_cache, v_cache, batch, at_pos, pages, page_ptr;
    MAKE(&q, QNI_BF16, 1, 1, R);
    MAKE(&k, QNI_BF16, 1, R);
    MAKE(&q_nope, QNI_BF16, 1, 1, NOPE);
    MAKE(&k_nope, QNI_BF16, 1, NOPE);
    MAKE(&q_out, QNI_E4M3FN, 1, 1, R);
    MAKE(&k_out, QNI_E4M3FN, 1, R);
    MAKE(&q_nope_out, QNI_E4M3FN, 1, 1, NOPE);
    MAKE(&k_nope_out, QNI_E4M3FN, 1, NOPE);
    MAKE(&cache, QNI_F32, 1, R);
    ((float *)cache.data)[0] = 0;
    ((float *)cache.data)[1] = 1;
    INDICES(&pos, 0);
    for (int i = 0; i < 2; i++) {
        qni_put(QNI_BF16, q.data, i, i + 1);
        qni_put(QNI_BF16, k.data, i, 10 * (i + 1));
        qni_put(QNI_BF16, q_nope.data, i, 1000);
        qni_put(QNI_BF16, k_nope.data, i, 3);
    }
    qn_rope_quantize_args a = {.struct_size = sizeof a,
                               .q_rope_out = &q_out.t,
                               .k_rope_out = &k_out.t,
                               .q_nope_out = &q_nope_out.t,
                               .k_nope_out = &k_nope_out.t,
                               .q_rope = &q.t,
                               .k_rope = &k.t,
                               .q_nope = &q_nope.t,
                               .k_nope = &k_nope.t,
                               .cos_sin_cache = &cache.t,
                               .pos_ids = &pos.t,
                               .quant_scale_q = 4};
    assert_int_equal(qn_rope_quantize_fp8(stream, &a), QN_OK);
    assert_true(at(&q_out, 0) == -8 && at(&q_out, 1) == 4);   // (-2, 1) * 4
    assert_true(at(&k_out, 0) == -20 && at(&k_out, 1) == 10); // its scale is 1
    assert_true(at(&q_nope_out, 0) == 448 && at(&k_nope_out, 1) == 3);
    a.quant_scale_kv = -1;
    assert_refused(qn_rope_quantize_fp8(stream, &a), QN_E_INVALID, "quant_scale_kv is -1");
    a.quant_scale_kv = 0;
    k_nope_out.t.dtype = qni_dl_dtype(QNI_E5M2);
    assert_refused(qn_rope_quantize_fp8(stream, &a), QN_E_UNSUPPORTED,
                   "k_nope_out has dtype e5m2; accepted: an FP8 kind, all alike");

    MAKE(&k, QNI_BF16, 1, 1, R);
    MAKE(&k_nope, QNI_BF16, 1, 1, NOPE);
    MAKE(&v, QNI_BF16, 1, 1, 3);
    MAKE(&k_cache, QNI_E4M3FN, 1, PAGE, 1, R + NOPE);
    MAKE(&v_cache, QNI_E4M3FN, 1, PAGE, 1, 3);
    INDICES(&batch, 0);
    INDICES(&at_pos, 1);
    INDICES(&pages, 0);
    INDICES(&page_ptr, 0, 1);
    for (int i = 0; i < 3; i++) {
        qni_put(QNI_BF16, k.data, i, 10 * (i + 1));
        qni_put(QNI_BF16, k_nope.data, i, 3 + i);
        qni_put(QNI_BF16, v.data, i, -i);
    }
    qn_rope_quantize_append_args b = {.struct_size = sizeof b,
                                      .q_rope_out = &q_out.t,
                                      .k_cache = &k_cache.t,
                                      .v_cache = &v_cache.t,
                                      .q_rope = &q.t,
                                      .k_rope = &k.t,
                                      .k_nope = &k_nope.t,
                                      .v = &v.t,
                                      .cos_sin_cache = &cache.t,
                                      .pos_ids = &pos.t,
                                      .batch_indices = &batch.t,
                                      .positions = &at_pos.t,
                                      .kv_indices = &pages.t,
                                      .kv_indptr = &page_ptr.t,
                                      .quant_scale_kv = 0.5f};
    assert_int_equal(qn_rope_quantize_fp8_append_paged_kv_cache(stream, &b), QN_OK);
    static const double keys[] = {-10, 5, 1.5, 2};
    for (int i = 0; i < R + NOPE; i++)
        assert_true(at(&k_cache, 4 + i) == keys[i] && k_cache.data[i] == 0xFF);
    assert_true(at(&v_cache, 5) == -1 && v_cache.data[2] == 0xFF);
    INDICES(&at_pos, 2);
    assert_refused(qn_rope_quantize_fp8_append_paged_kv_cache(stream, &b), QN_E_INVALID,
                   "positions[0] is 2");
    at_pos.t.shape = nullptr;
    assert_refused(qn_rope_quantize_fp8_append_paged_kv_cache(stream, &b), QN_E_INVALID,
                   "positions has a null shape");
    b.v = nullptr;
    assert_refused(qn_rope_quantize_fp8_append_paged_kv_cache(stream, &b), QN_E_INVALID,
                   "accepted: k_cache and v_cache with v");
}

/** Rows lie more than 2^31 elements apart, in address space of which only the rows take memory. */
static void test_far_rows(void **) {
    enum { D = 16 };
    const int64_t stride = (INT64_C(1) << 31) + 24;
    const size_t bytes = (size_t)(stride + D) * sizeof(uint16_t);
    uint16_t *far = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED)
        skip();
    make_all(QNI_F16, 2, 1, D);
    INDICES(&pos, 3, 3);
    memcpy(far, q.data, D * sizeof *far);
    memcpy(far + stride, q.data, D * sizeof *far);
    q.t.data = far;
    q.strides[0] = stride;
    assert_int_equal(by_pos(nullptr), QN_OK);
    assert_memory_equal(q_out.data, q_out.data + D * sizeof *far, D * sizeof *far);
    assert_int_equal(qn_apply_rope_pos_ids(stream, &q.t, nullptr, &q.t, nullptr, &pos.t, nullptr),
                     QN_OK);
    assert_memory_equal(far + stride, q_out.data, D * sizeof *far);
    munmap(far, bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_options),
        cmocka_unit_test(test_validation), cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_empty),      cmocka_unit_test(test_angles),
        cmocka_unit_test(test_llama31),    cmocka_unit_test(test_batch),
        cmocka_unit_test(test_norm),       cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_far_rows),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
