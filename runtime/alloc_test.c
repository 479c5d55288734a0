// SPDX-License-Identifier: Apache-2.0
// Memory that runs out: the n-th allocation fails, for every n, and each call gives an error and
// leaks nothing.
#include "../tests/failing_malloc.h"
#include "image/jit.h"
#include "image/object.h"
#include "testing.h"

#include <quern/attention.h>
#include <quern/cache.h>
#include <quern/compat/aotriton.h>
#include <quern/tune.h>

#if IS_MALLOC_TAKEN

int main(void) {
    return 77; // the sanitizer has replaced malloc already
}

#else

/** Runs body again and again, failing its first allocation, its second, … until it needs no more
 *  than were granted. body may do without the memory (a cache is a convenience), or give an error
 *  that says what is wrong. */
static void fail_each(qn_status (*body)(void)) {
    bool has_failed = true;
    int64_t n = 0;
    assert_int_equal(body(), QN_OK); // makes what a process makes once
    for (; has_failed; n++) {
        num_alive = 0;
        left = n;
        is_counting = true;
        const qn_status st = body();
        is_counting = false;
        has_failed = left < 0;
        if (st != QN_OK && (!has_failed || (st != QN_E_MEMORY && st != QN_E_IO)))
            fail_msg("allocation %ld failed and gave %s: %s", (long)n, qn_status_name(st),
                     qn_last_error());
        if (num_alive != 0)
            fail_msg("allocation %ld failed and %ld blocks leaked", (long)n, (long)num_alive);
    }
    assert_true(n > 1); // at least one allocation was made to fail
}

static qn_status use_cpu(void) {
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    qn_event *event = nullptr;
    void *memory = nullptr;
    qn_status st;
    QN_TRY_OUT(qn_device_open(&device, "cpu"));
    QN_TRY_OUT(qn_stream_create(&stream, device));
    QN_TRY_OUT(qn_event_create(&event, device));
    QN_TRY_OUT(qn_event_record(event, stream));
    QN_TRY_OUT(qn_malloc(device, &memory, 1000));
out:
    qn_free(device, memory);
    qn_event_destroy(event);
    qn_stream_destroy(stream);
    qn_device_close(device);
    return st;
}

static void test_cpu(void **) {
    fail_each(use_cpu);
}

/** AOTriton's ragged call keeps lengths and a plan in host memory: there are two sequences of a
 *  query and a key. */
static qn_status attend_to_sequences(void) {
    static float q[16], out[16];
    static int32_t begins[] = {0, 1, 2};
    static int64_t shape[] = {1, 1, 2, 8}, entries = 3;
    const DLTensor cu = {.data = begins,
                         .device = {kDLCPU, 0},
                         .ndim = 1,
                         .dtype = {kDLInt, 32, 1},
                         .shape = &entries};
    const DLTensor x = {
        .data = q, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    DLTensor o = x;
    o.data = out;
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    int64_t bytes;
    qn_status st;
    QN_TRY_OUT(qn_device_open(&device, "cpu"));
    QN_TRY_OUT(qn_stream_create(&stream, device));
    QN_TRY_OUT(qn_aotriton_check_gpu(stream));
    QN_TRY_OUT(
        qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(stream, &bytes, &x, &x, &x, &cu, &cu));
    QN_TRY_OUT(qn_aotriton_attn_fwd_compact_varlen(&x, &x, &x, nullptr, &cu, &cu, 1, 1, 1, nullptr,
                                                   &o, 0, nullptr, nullptr, 0, nullptr, nullptr,
                                                   nullptr, 0, nullptr, stream, nullptr));
out:
    qn_stream_destroy(stream);
    qn_device_close(device);
    return st;
}

static void test_sequences(void **) {
    fail_each(attend_to_sequences);
}

static void ignore(void *, const qn_tune_entry *) {}

static const char *table;

static qn_status list_table(void) {
    return qn_tune_list(table, ignore, nullptr);
}

static void test_table(void **) {
    char folder[64], path[80];
    make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/tune", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs("quern tune 1\ngemm gfx942 -> gemm.any\n", f);
    assert_int_equal(fclose(f), 0);
    table = path;
    fail_each(list_table);
    remove_folder(folder);
}

static qn_status judge_code(void) {
    static const uint8_t code[] = {0, 0, 0x8a, 0xbf, 0, 0, 0x81, 0xbf};
    bool is_good;
    size_t at;
    return qni_waits_check(code, sizeof code, &is_good, &at);
}

static void test_waits(void **) {
    fail_each(judge_code);
}

static qn_status get_image(void) {
    void *data = nullptr;
    size_t bytes;
    const qn_status st = qni_jit_get("gemm_pack", nullptr, qni_target_find("gfx942", 6), nullptr,
                                     nullptr, &data, &bytes);
    free(data);
    return st;
}

static void test_jit_in_child(void *) {
    fail_each(get_image);
}

static void test_jit(void **) {
    char folder[64], variable[128];
    make_folder(folder, sizeof folder);
    snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s", folder);
    const char *const env[] = {variable, nullptr};
    child_run(test_jit_in_child, nullptr, env); // from the cache
    assert_int_equal(chmod(folder, 0777), 0);
    child_run(test_jit_in_child, nullptr, env); // from clang, as the cache's folder is not trusted
                                                // now
    remove_folder(folder);
}

static qn_stream *attention_stream;

/** Plans one request of one page, and runs it. */
static qn_status attend(void) {
    static const int32_t indptr[] = {0, 1}, last[] = {1};
    static float data[4][8];
    static int32_t page;
    int64_t shape[] = {1, 1, 1, 8}, plan_bytes, workspace_bytes;
    alignas(8) uint8_t plan[512];
    DLTensor q = {.data = data[0],
                  .device = {kDLCPU, 0},
                  .ndim = 3,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = shape},
             k = q, v = q, o = q, indices = q;
    q.shape = o.shape = shape + 1;
    k.data = data[1], v.data = data[2], o.data = data[3], indices.data = &page;
    k.ndim = v.ndim = 4, indices.ndim = 1;
    indices.dtype = (DLDataType){kDLInt, 32, 1};
    const qn_attention_plan_args plan_args = {.struct_size = sizeof plan_args,
                                              .batches = 1,
                                              .qo_indptr = indptr,
                                              .kv_indptr = indptr,
                                              .kv_last_page_len = last,
                                              .page_size = 1,
                                              .num_qo_heads = 1,
                                              .num_kv_heads = 1,
                                              .head_dim_vo = 8};
    plan_bytes = sizeof plan;
    QN_TRY(qn_attention_plan(plan, &plan_bytes, &workspace_bytes, &plan_args));
    const qn_attention_args args = {.struct_size = sizeof args,
                                    .o = &o,
                                    .q = &q,
                                    .k = &k,
                                    .v = &v,
                                    .kv_indices = &indices,
                                    .plan = plan,
                                    .plan_bytes = plan_bytes};
    return qn_attention(attention_stream, &args);
}

/** Neither a plan nor a call allocates on the CPU, where index tensors are read in place. */
static void test_attention_in_child(void *) {
    qn_device *device = nullptr;
    assert_int_equal(qn_device_open(&device, "cpu"), QN_OK);
    assert_int_equal(qn_stream_create(&attention_stream, device), QN_OK);
    assert_int_equal(attend(), QN_OK);
    left = 1000;
    is_counting = true;
    const qn_status st = attend();
    is_counting = false;
    assert_int_equal(st, QN_OK);
    assert_int_equal(left, 1000);
    qn_stream_destroy(attention_stream);
    qn_device_close(device);
}

static void test_attention(void **) {
    const char *const validated[] = {"QUERN_VALIDATE=1", nullptr}, *const plain[] = {nullptr};
    child_run(test_attention_in_child, nullptr, plain);
    child_run(test_attention_in_child, nullptr, validated);
}

/** A GPU's index tensors are copied to be read. The simulated GPU allocates on threads of its own;
 *  only that copy fails. */
static void test_indices(void **) {
    static const int32_t indices[] = {0, 9, 5};
    qn_device *device = nullptr;
    qn_stream *stream = nullptr;
    void *there = nullptr;
    if (qn_device_open(&device, "sim:gfx942") != QN_OK)
        skip();
    assert_int_equal(qn_stream_create(&stream, device), QN_OK);
    assert_int_equal(qn_malloc(device, &there, sizeof indices), QN_OK);
    assert_int_equal(
        device->backend->copy(stream, there, indices, sizeof indices, QNI_COPY_TO_DEVICE), QN_OK);
    assert_int_equal(qni_validate_range(stream, "test", "indices", there, 3, 0, 10), QN_OK);
    left = 0;
    is_counting = true;
    const qn_status st = qni_validate_range(stream, "test", "indices", there, 3, 0, 10);
    is_counting = false;
    assert_int_equal(st, QN_E_MEMORY);
    assert_string_equal(qn_last_error(), "test: no memory for 12 bytes of indices");
    qn_free(device, there);
    qn_stream_destroy(stream);
    qn_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jit), // first: children must not inherit a read environment
        cmocka_unit_test(test_attention), cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_waits),
        cmocka_unit_test(test_indices),   cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

#endif
