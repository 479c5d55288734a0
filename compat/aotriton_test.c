// SPDX-License-Identifier: Apache-2.0
// AOTriton's dense call on the CPU and on simulated GPUs. It must give the bits of qn_attention, be
// within f32's rounding of softmax, and drop weights by the mask of the debug calls. Refusals must
// have the right words.
#include "aotriton_test.h"

#include <quern/attention.h>

#include <sys/wait.h>
#include <unistd.h>

static void check_dense(problem *c, const box *keep) {
    ok(call_dense(c));
    fetch(c->out), fetch(c->lse);
    for (int64_t b = 0; b < c->q->shape[0]; b++)
        check_sequence(
            c, &(place){.batch = b, .n = c->q->shape[2], .m = c->k->shape[2], .index = b}, keep);
}

static void test_definition(void **) {
    problem c = make_problem(f32, 7, 19, 64, false);
    check_dense(&c, nullptr);
    c.is_causal = true;
    check_dense(&c, nullptr);
    c = make_problem(f32, 5, 9, 40, true);
    c.b = randomize(MAKE(f32, 1, 4, 1, 9)); // for all batches and queries
    c.b->shape[0] = 2, c.b->shape[2] = 5;
    c.b->strides[0] = c.b->strides[2] = 0;
    check_dense(&c, nullptr);
    box *whole = c.out;
    c.out = MAKE(f32, 2, 5, 4, 40);
    exchange(c.out, 1, 2);
    c.b->shape[0] = c.b->shape[2] = 1;
    ok(call_dense(&c));
    assert_same_bytes(c.out, whole);
    free_boxes();
}

/** Queries that see no key give zeros and minus infinity, where AOTriton stores plus infinity.
 *  Calls without keys, and without queries. */
static void test_nothing_to_see(void **) {
    problem c = make_problem(f32, 3, 5, 64, false);
    c.b = MAKE(f32, 2, 4, 3, 5);
    for (int64_t i = 0; i < 2 * 4 * 3 * 5; i++)
        put(c.b, i, -HUGE_VALF);
    send(c.b);
    check_dense(&c, nullptr);
    c.b = nullptr;
    c.k->shape[2] = c.v->shape[2] = 0;
    check_dense(&c, nullptr);
    c.q->shape[2] = c.out->shape[2] = 0;
    c.lse->shape[1] = 0;
    ok(call_dense(&c));
    free_boxes();
}

/** Bits equal those of qn_attention, in every dtype and either order of memory. */
static void test_bits(void **) {
    static const DLDataType dtypes[] = {f32, f16, bf16};
    for (int i = 0; i < 12; i++) {
        problem c = make_problem(dtypes[i % 3], 17, 33, 64, i & 1);
        box *out = MAKE(dtypes[i % 3], 2, i & 1 ? 17 : 4, i & 1 ? 4 : 17, 64),
            *lse = MAKE(f32, 2, 4, 17);
        if (i & 1)
            exchange(out, 1, 2);
        c.is_causal = i & 2;
        c.b = i & 4 && !c.is_causal ? randomize(MAKE(dtypes[i % 3], 2, 4, 17, 33)) : nullptr;
        ok(call_dense(&c));
        ok(qn_attention(stream, &(qn_attention_args){.struct_size = sizeof(qn_attention_args),
                                                     .o = &out->t,
                                                     .lse = &lse->t,
                                                     .q = &c.q->t,
                                                     .k = &c.k->t,
                                                     .v = &c.v->t,
                                                     .layout = QN_HND,
                                                     .is_causal = c.is_causal,
                                                     .is_top_left = 1,
                                                     .mask = tensor(c.b),
                                                     .sm_scale = c.scale,
                                                     .lse_base = QN_LSE_BASE_E}));
        assert_same_bytes(c.out, out);
        assert_same_bytes(c.lse, lse);
        free_boxes();
    }
}

/** Few queries and many keys are cut into chunks, which need a workspace of exactly the size that
 *  the call tells. */
static void test_workspace(void **) {
    problem c = make_problem(f32, 2, 300, 64, false);
    int64_t bytes;
    ok(qn_aotriton_attn_fwd_workspace_bytes(&bytes, &c.q->t, &c.k->t, &c.v->t));
    assert_true(bytes > 0);
    char words[128];
    snprintf(words, sizeof words, "ext has no workspace, needs one of %ld bytes", (long)bytes);
    assert_refused(call_dense(&c), QN_E_INVALID, words);
    c.workspace = MAKE(u8, bytes - 1);
    snprintf(words, sizeof words, "aotriton_attn_fwd: workspace has %ld bytes, needs %ld",
             (long)bytes - 1, (long)bytes);
    assert_refused(call_dense(&c), QN_E_INVALID, words);
    fetch(c.out);
    assert_int_equal(*element(c.out, 0), 0xFF);
    c.workspace = MAKE(u8, bytes);
    check_dense(&c, nullptr);
    fetch(c.workspace); // checks its guards
    c.workspace->t.byte_offset += 8;
    c.workspace->shape[0] -= 8;
    assert_refused(call_dense(&c), QN_E_INVALID, "needs a multiple of 16 bytes");
    c.workspace->t.byte_offset -= 8;
    c.workspace->t.dtype = i32;
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: workspace has dtype i32; accepted: u8");
    assert_refused(qn_aotriton_attn_fwd_workspace_bytes(nullptr, &c.q->t, &c.q->t, &c.q->t),
                   QN_E_INVALID, "aotriton_attn_fwd_workspace_bytes: attention: bytes is null");
    free_boxes();
}

// ---- dropout

static void test_dropout(void **) {
    const uint64_t seed = (UINT64_C(1) << 63) + 9, offset = (UINT64_C(1) << 33) + 5;
    uint64_t offset1 = offset + 3;
    int64_t one = 1;
    const DLTensor host = {
        .data = &offset1, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = &one};
    problem c = make_problem(f32, 5, 37, 64, false);
    c.p = 0.25f, c.offset2 = -3, c.offset1 = &host;
    c.seed = &number(u64, seed)->t;
    c.seed_out = number(u64, 0), c.offset_out = number(i64, 0);
    box *mask = MAKE(f32, 2, 4, 5, 37), *words = MAKE(i32, 2, 4, 5, 37),
        *uniform = MAKE(f32, 2, 4, 5, 37);
    ok(qn_aotriton_debug_simulate_encoded_softmax(&mask->t, c.p, c.seed, &host, (uint64_t)-3,
                                                  stream));
    ok(qn_aotriton_debug_fill_dropout_rng(&words->t, seed, offset, stream));
    offset1 -= 3;
    ok(qn_aotriton_debug_fill_dropout_rng_tensor(&uniform->t, c.seed, &host, stream));
    offset1 += 3;
    fetch(mask), fetch(words), fetch(uniform);
    const int32_t threshold = (int32_t)((0.25 - 0.5) * 0xFFFFFFFFp0);
    for (int64_t i = 0; i < 2 * 4 * 5 * 37; i++) {
        int32_t word;
        float kept, number;
        memcpy(&word, element(words, i), 4), memcpy(&kept, element(mask, i), 4);
        memcpy(&number, element(uniform, i), 4);
        assert_true(kept == (word > threshold ? 0.5f : -0.5f));
        assert_true(number == (float)word * 2.32830658e-10f + 0.5f);
    }
    check_dense(&c, mask);
    assert_true(number_in(c.seed_out) == seed && number_in(c.offset_out) == offset);
    c.p = 0; // without dropout seeds do not matter
    put(c.seed_out, 0, 1), send(c.seed_out);
    check_dense(&c, nullptr);
    assert_true(number_in(c.seed_out) != seed);
    free_boxes();
}

/** The words for counter and key 0 are those that Philox's authors publish; absent numbers are
 *  0. */
static void test_words(void **) {
    static const uint32_t want[] = {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8};
    box *r = MAKE(i32, 1, 1, 1, 4);
    ok(qn_aotriton_debug_fill_dropout_rng_tensor(&r->t, nullptr, nullptr, stream));
    fetch(r);
    assert_memory_equal(element(r, 0), want, sizeof want);
    r->t.dtype = i64, r->shape[3] = 2;
    assert_refused(qn_aotriton_debug_fill_dropout_rng(&r->t, 0, 0, stream), QN_E_UNSUPPORTED,
                   "aotriton_debug_fill_dropout_rng: attention_dropout_rng: r has dtype i64; "
                   "accepted: f32, i32");
    assert_refused(
        qn_aotriton_debug_simulate_encoded_softmax(&r->t, 0.5f, nullptr, nullptr, 0, stream),
        QN_E_UNSUPPORTED, "r has dtype i64; accepted: f32, f16, bf16");
    assert_refused(
        qn_aotriton_debug_simulate_encoded_softmax(&r->t, 0.5f, nullptr, nullptr, 0, nullptr),
        QN_E_INVALID, "aotriton_debug_simulate_encoded_softmax: stream is null");
    assert_refused(qn_aotriton_debug_fill_dropout_rng_tensor(&r->t, nullptr, &r->t, stream),
                   QN_E_INVALID, "philox_offset has 4 dimensions, needs 1");
    free_boxes();
}

// ---- what is refused

static void test_refusals(void **) {
    problem c = make_problem(f16, 4, 6, 64, false), good = c;
    c.b = randomize(MAKE(f16, 2, 4, 4, 6)), c.is_causal = true;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: b and is_causal are both given; accepted: one of them");
    c.is_causal = false, c.b->shape[3] = 5;
    assert_refused(call_dense(&c), QN_E_INVALID, "its dimension 3 needs to be 1 or 6");
    c.b->shape[3] = 6, c.b->t.dtype = i32;
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: b has dtype i32; accepted: f32, f16, bf16");
    c.b->t.dtype = f16, c.b->t.byte_offset += 1;
    assert_refused(call_dense(&c), QN_E_INVALID, "aotriton_attn_fwd: b begins at ");
    c = good, c.encoded = c.q;
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: encoded_softmax is given, and must be absent");
    c = good, c.scale = 0;
    assert_refused(call_dense(&c), QN_E_INVALID, "sm_scale is 0; accepted: any finite number");
    c.scale = NAN;
    assert_refused(call_dense(&c), QN_E_INVALID, "sm_scale is nan");
    c = good, c.p = 1;
    assert_refused(call_dense(&c), QN_E_INVALID, "dropout_p is 1; accepted: 0 to below 1");
    c.p = 0.5f, c.seed = &MAKE(i64, 2)->t;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: philox_seed has shape [2], needs [1]");
    c.seed = nullptr, c.offset_out = MAKE(i32, 1);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "philox_offset_output has dtype i32; accepted: i64, u64");
    c = good, c.q = nullptr;
    assert_refused(call_dense(&c), QN_E_INVALID, "aotriton_attn_fwd: q is null");
    c = good, c.v = MAKE(i32, 2, 2, 6, 64);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: v has dtype i32, needs k's, f16");
    c.v = MAKE(f32, 2, 2, 6, 64);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED,
                   "aotriton_attn_fwd: v has dtype f32, needs k's, f16");
    c.v = MAKE(f16, 2, 2, 5, 64);
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: v has shape [2, 2, 5, 64], needs [2, 2, 6, any]");
    c = good, c.k = MAKE(f16, 2, 2, 6, 32);
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: k has shape [2, 2, 6, 32], needs [2, any, any, 64]");
    c = good, c.lse = MAKE(f32, 4, 4);
    assert_refused(call_dense(&c), QN_E_INVALID, "softmax_lse has shape [4, 4], needs [8, 4]");
    c.lse = MAKE(f16, 8, 4);
    assert_refused(call_dense(&c), QN_E_UNSUPPORTED, "softmax_lse has dtype f16; accepted: f32");
    c = good, c.out = MAKE(f16, 2, 4, 4, 32);
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "out has shape [2, 4, 4, 32], needs [2, 4, 4, 64]");
    c = good, c.out = MAKE(f16, 2, 4, 4, 64), c.out->strides[3] = 2;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: out has stride 2 in its last dimension, needs 1");
    c = good, c.lse = MAKE(f32, 8, 4), c.lse->strides[1] = 0;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "aotriton_attn_fwd: softmax_lse has stride 0 in dimension 1, needs at least 1");
    fetch(good.out), fetch(good.lse);
    assert_int_equal(*element(good.out, 0), 0xFF);
    assert_int_equal(*element(good.lse, 0), 0xFF);
    free_boxes();
}

/** Refuses dropout's numbers where they cannot lie, and views of more dimensions than there are
 *  sizes. */
static void test_misplaced(void **) {
    problem c = make_problem(f16, 4, 6, 64, false), good = c;
    DLTensor over = number(i64, 7)->t;
    over.data = c.out->t.data, over.byte_offset = c.out->t.byte_offset;
    c.p = 0.5f, c.seed = &over;
    assert_refused(call_dense(&c), QN_E_INVALID, "out overlaps philox_seed");
    c = good, c.p = 0.5f, c.seed_out = number(u64, 0), c.offset_out = c.seed_out;
    assert_refused(call_dense(&c), QN_E_INVALID,
                   "philox_offset_output overlaps philox_seed_output");
    box in_q = *c.seed_out;
    in_q.t.data = c.q->t.data, in_q.t.byte_offset = c.q->t.byte_offset;
    c.offset_out = &in_q;
    assert_refused(call_dense(&c), QN_E_INVALID, "philox_offset_output overlaps q");
    c = good, c.p = 0.5f, c.seed_out = number(u64, 0);
    c.seed_out->t.device = (DLDevice){kDLCPU, 1}; // found out before anything is written
    assert_refused(call_dense(&c), QN_E_INVALID, "philox_seed_output is on DLPack device (1, 1)");
    fetch(c.out);
    assert_int_equal(*element(c.out, 0), 0xFF);
    c = good, c.lse->t.ndim = 1000000;
    assert_refused(call_dense(&c), QN_E_INVALID, "softmax_lse has 1000000 dimensions, needs 2");
    c.lse = nullptr, c.b = MAKE(f16, 2, 4, 4, 6), c.b->t.ndim = -1;
    assert_refused(call_dense(&c), QN_E_INVALID, "b has -1 dimensions, needs 4");
    free_boxes();
}

/** Refuses errors that are no tensor's; tensors without data count as absent. */
static void test_absent(void **) {
    problem c = make_problem(f16, 4, 6, 64, false);
    DLTensor nothing = {.device = qn_device_id(device), .ndim = 4, .dtype = f16};
    const qn_aotriton_ext wrong = {.struct_size = 3};
    nothing.shape = c.q->shape;
    ok(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, &nothing, 1, &nothing, &c.out->t, 0.5f,
                            &nothing, &nothing, 0, &nothing, &nothing, &nothing, 1, &nothing,
                            stream, nullptr));
    assert_refused(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, nullptr, 1, nullptr, &c.out->t,
                                        0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0,
                                        nullptr, stream, &wrong),
                   QN_E_INVALID, "ext.struct_size is 3; set it to sizeof(qn_aotriton_ext)");
    assert_refused(qn_aotriton_attn_fwd(&c.q->t, &c.k->t, &c.v->t, nullptr, 1, nullptr, &c.out->t,
                                        0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0,
                                        nullptr, nullptr, nullptr),
                   QN_E_INVALID, "aotriton_attn_fwd: stream is null");
    c.k->t.device = (DLDevice){kDLVulkan, 3};
    assert_refused(call_dense(&c), QN_E_INVALID, "k is on DLPack device (7, 3)");
    free_boxes();
}

// ---- check_gpu

static void test_check_gpu(void **) {
    ok(qn_aotriton_check_gpu(stream));
    assert_refused(qn_aotriton_check_gpu(nullptr), QN_E_INVALID,
                   "aotriton_check_gpu: stream is null");
}

/** Runs in a process where no kernel of the CPU may be chosen. Returns 0 if check_gpu says so. */
static int check_without_kernels(void) {
    setenv("QUERN_DISABLE", "cpu", 1);
    if (qn_device_open(&device, "cpu") == QN_OK && qn_stream_create(&stream, device) == QN_OK &&
        qn_aotriton_check_gpu(stream) == QN_E_UNSUPPORTED &&
        strstr(qn_last_error(), "aotriton_check_gpu: attention: no kernel"))
        return 0;
    fprintf(stderr, "%s\n", qn_last_error());
    return 1;
}

/** Must run before the library's first use here, as the library reads the environment once. */
static void test_no_kernel(void **) {
    int state = -1;
    const pid_t child = fork();
    if (child == 0)
        _exit(check_without_kernels());
    assert_true(child > 0 && waitpid(child, &state, 0) == child);
    assert_int_equal(state, 0);
}

int main(void) {
    static const struct CMUnitTest first[] = {cmocka_unit_test(test_no_kernel)};
    static const device_test each[] = {{"definition", test_definition},
                                       {"nothing_to_see", test_nothing_to_see},
                                       {"bits", test_bits},
                                       {"workspace", test_workspace},
                                       {"dropout", test_dropout},
                                       {"words", test_words},
                                       {"refusals", test_refusals},
                                       {"misplaced", test_misplaced},
                                       {"absent", test_absent},
                                       {"check_gpu", test_check_gpu}};
    return cmocka_run_group_tests(first, nullptr, nullptr) + RUN_ON_EACH_DEVICE(each);
}
