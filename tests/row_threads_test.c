// SPDX-License-Identifier: Apache-2.0
// Row ops give equal bits whatever QUERN_NUM_THREADS is: for each number of threads a child runs
// all of them, by the kernels that plain calls take and by those of processors without AVX-512, and
// the results' hashes are compared.
#define XXH_INLINE_ALL // first: the library does not export its own
#include "../runtime/testing.h"

#include <quern/quern.h>

#include <sys/mman.h>
#include <xxhash.h>

enum { ROWS = 301, H = 1000, HEADS = 8, DIM = 120, PAGE = 16, MAX_DIMS = 3 }; // tasks end unevenly
enum { BOX_BYTES = ROWS * 2 * H * 4 };

/** A contiguous tensor on the CPU. */
typedef struct box {
    DLTensor t;
    int64_t shape[MAX_DIMS];
    alignas(64) uint8_t data[BOX_BYTES];
} box;
static box x, y, out, scale, w, places;
static qn_stream *stream;

static const DLDataType f32 = {kDLFloat, 32, 1}, bf16 = {kDLBfloat, 16, 1}, i32 = {kDLInt, 32, 1},
                        fp8 = {kDLFloat8_e4m3fn, 8, 1};

/** Makes a tensor of zeros; a dimension of 0 ends the shape. */
static DLTensor *make(box *b, DLDataType dtype, int64_t d0, int64_t d1, int64_t d2) {
    memset(b, 0, sizeof *b);
    b->shape[0] = d0, b->shape[1] = d1, b->shape[2] = d2;
    b->t = (DLTensor){.data = b->data,
                      .device = {kDLCPU, 0},
                      .ndim = d1 == 0   ? 1
                              : d2 == 0 ? 2
                                        : 3,
                      .dtype = dtype,
                      .shape = b->shape};
    return &b->t;
}

/** Makes a tensor of bf16 from 0.5 up to 2, of either sign. */
static DLTensor *make_values(box *b, int64_t d0, int64_t d1, int64_t d2) {
    uint32_t random = 1;
    make(b, bf16, d0, d1, d2);
    for (size_t i = 0; i < BOX_BYTES / 2; i++) {
        random = random * 1664525 + 1013904223;
        ((uint16_t *)b->data)[i] = (uint16_t)(0x3F00 + (random >> 24) + (random & 0x800000) / 256);
    }
    return &b->t;
}

static DLTensor *make_scale(void) {
    make(&scale, f32, 1, 0, 0);
    *(float *)scale.data = 0.01f;
    return &scale.t;
}

// ---- the calls: results are in out, x, y, scale and places

static qn_status layernorm(void) {
    make(&out, bf16, ROWS, H, 0);
    return qn_layernorm(stream, &out.t, make_values(&x, ROWS, H, 0), make_values(&w, H, 0, 0),
                        nullptr, 1e-6f);
}
static qn_status add_rmsnorm(void) {
    return qn_fused_add_rmsnorm(stream, make_values(&x, ROWS, H, 0), make_values(&y, ROWS, H, 0),
                                make_values(&w, H, 0, 0), 1e-6f);
}
static qn_status rmsnorm_quant(void) {
    return qn_rmsnorm_quant(stream, make(&out, fp8, ROWS, H, 0), make_values(&x, ROWS, H, 0),
                            make_values(&w, H, 0, 0), make_scale(), 1e-6f);
}
static qn_status rmsnorm_dynamic(int64_t scales) {
    return qn_rmsnorm_dynamic_quant(stream, make(&out, fp8, ROWS, H, 0),
                                    make(&scale, f32, ROWS, scales, 0), make_values(&x, ROWS, H, 0),
                                    nullptr, make_values(&w, H, 0, 0), 1e-6f, 1e-4f);
}
static qn_status rmsnorm_token_quant(void) {
    return rmsnorm_dynamic(0);
}
static qn_status rmsnorm_group_quant(void) {
    return rmsnorm_dynamic((H + 127) / 128);
}
static qn_status layernorm_backward(void) {
    static uint8_t room[ROWS * 2 * H * 4];
    int64_t bytes = sizeof room;
    DLTensor workspace = {
        .data = room, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &bytes};
    return qn_norm_backward(stream,
                            &(qn_norm_backward_args){.struct_size = sizeof(qn_norm_backward_args),
                                                     .dx = make(&out, bf16, ROWS, H, 0),
                                                     .dweight = make(&scale, f32, H, 0, 0),
                                                     .dbeta = make(&places, f32, H, 0, 0),
                                                     .d_out = make_values(&x, ROWS, H, 0),
                                                     .x = make_values(&y, ROWS, H, 0),
                                                     .weight = make_values(&w, H, 0, 0),
                                                     .workspace = &workspace,
                                                     .subtracts_mean = 1});
}
static qn_status silu_backward(void) {
    return qn_activation_backward(stream, make(&out, bf16, ROWS, 2 * H, 0),
                                  make_values(&y, ROWS, H, 0), make_values(&x, ROWS, 2 * H, 0),
                                  QN_SILU, 0);
}
static qn_status gelu(void) {
    return qn_gelu_and_mul(stream, make(&out, bf16, ROWS, H, 0), make_values(&x, ROWS, 2 * H, 0));
}
static qn_status silu_group_quant(void) {
    return qn_act_and_mul_dynamic_quant(stream, make(&out, fp8, ROWS, H, 0),
                                        make(&scale, f32, ROWS, (H + 127) / 128, 0),
                                        make_values(&x, ROWS, 2 * H, 0), QN_SILU, 0, 1e-4f);
}
static void number_places(void) {
    make(&places, i32, ROWS, 0, 0);
    for (int i = 0; i < ROWS; i++)
        ((int32_t *)places.data)[i] = i;
}
static qn_status rope(void) {
    number_places();
    return qn_apply_rope_pos_ids(stream, make(&out, bf16, ROWS, HEADS, DIM), nullptr,
                                 make_values(&x, ROWS, HEADS, DIM), nullptr, &places.t, nullptr);
}
static qn_status quantize_blocks(void) {
    const int64_t rows = (ROWS + 127) / 128, cols = (H + 127) / 128;
    return qn_quantize_fp8(stream, make(&out, fp8, ROWS, H, 0), make(&scale, f32, rows, cols, 0),
                           make_values(&x, ROWS, H, 0), 128, 128, 1e-4f);
}
static qn_status quantize_groups(void) {
    return qn_quantize_groups(stream, make(&out, fp8, ROWS, H, 0),
                              make(&scale, f32, ROWS, (H + 63) / 64, 0),
                              make_values(&x, ROWS, H, 0), 64, 0, 1e-4f);
}
static qn_status quantize_tensor(void) {
    static uint8_t room[1 << 16];
    int64_t bytes = qn_quantize_tensor_workspace();
    DLTensor workspace = {
        .data = room, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &bytes};
    CHILD_CHECK(bytes <= (int64_t)sizeof room);
    return qn_quantize_tensor(stream, make(&out, fp8, ROWS, H, 0), make_scale(),
                              make_values(&x, ROWS, H, 0), &workspace, 1e-4f);
}
static qn_status concat_mla(void) {
    number_places();
    return qn_concat_and_cache_mla(stream, make(&out, fp8, (ROWS + PAGE - 1) / PAGE, PAGE, 576),
                                   make_values(&x, ROWS, 512, 0), make_values(&y, ROWS, 64, 0),
                                   &places.t, make_scale());
}

enum { EXPERTS = 40, TOP_K = 7, TOKENS = ROWS / TOP_K };
static qn_status moe_route(void) {
    return qn_moe_route(stream, &(qn_moe_route_args){.struct_size = sizeof(qn_moe_route_args),
                                                     .weights = make(&out, f32, ROWS, TOP_K, 0),
                                                     .ids = make(&places, i32, ROWS, TOP_K, 0),
                                                     .logits = make_values(&x, ROWS, EXPERTS, 0)});
}
static qn_status moe_permute(void) {
    number_places();
    return qn_moe_permute(stream, make(&out, bf16, ROWS, H, 0), nullptr,
                          make_values(&x, TOKENS, H, 0), nullptr, &places.t, TOP_K);
}
static qn_status moe_activate(void) {
    return qn_moe_activate(
        stream, &(qn_moe_activate_args){.struct_size = sizeof(qn_moe_activate_args),
                                        .out = make(&out, fp8, ROWS, H, 0),
                                        .scale = make(&scale, f32, ROWS, (H + 127) / 128, 0),
                                        .x = make_values(&x, ROWS, 2 * H, 0),
                                        .function = QN_MOE_SWIGLU});
}
static qn_status moe_sum(void) {
    return qn_moe_sum(stream, make(&out, bf16, TOKENS, H, 0), make_values(&x, TOKENS * TOP_K, H, 0),
                      nullptr, nullptr, nullptr);
}

static const struct {
    const char *name;
    qn_status (*call)(void);
} calls[] = {
    {"layernorm", layernorm},
    {"fused_add_rmsnorm", add_rmsnorm},
    {"rmsnorm_quant", rmsnorm_quant},
    {"rmsnorm_dynamic_quant per token", rmsnorm_token_quant},
    {"rmsnorm_dynamic_quant per group", rmsnorm_group_quant},
    {"norm_backward", layernorm_backward},
    {"activation_backward", silu_backward},
    {"gelu_and_mul", gelu},
    {"act_and_mul_dynamic_quant per group", silu_group_quant},
    {"apply_rope_pos_ids", rope},
    {"quantize_fp8", quantize_blocks},
    {"quantize_groups", quantize_groups},
    {"quantize_tensor", quantize_tensor},
    {"concat_and_cache_mla to FP8", concat_mla},
    {"moe_route", moe_route},
    {"moe_permute", moe_permute},
    {"moe_activate", moe_activate},
    {"moe_sum", moe_sum},
};
enum { NUM_CALLS = sizeof calls / sizeof *calls };

/** Runs in a child, and writes the hash of each call's results to memory shared with the
 *  parent. */
static void hash_all(void *context) {
    box *const results[] = {&out, &x, &y, &scale, &places};
    uint64_t *hashes = context;
    qn_device *device;
    CHILD_CHECK(qn_device_open(&device, "cpu") == QN_OK);
    CHILD_CHECK(qn_stream_create(&stream, device) == QN_OK);
    for (int i = 0; i < NUM_CALLS; i++) {
        CHILD_CHECK(calls[i].call() == QN_OK);
        CHILD_CHECK(qn_stream_sync(stream) == QN_OK);
        for (size_t k = 0; k < sizeof results / sizeof *results; k++)
            hashes[i] = XXH3_64bits_withSeed(results[k]->data, BOX_BYTES, hashes[i]);
    }
}

static void compare_threads(const char *env) {
    static const char *const threads[] = {"QUERN_NUM_THREADS=1", "QUERN_NUM_THREADS=2",
                                          "QUERN_NUM_THREADS=3", "QUERN_NUM_THREADS=7"};
    enum { NUM = sizeof threads / sizeof *threads };
    uint64_t (*hashes)[NUM_CALLS] = mmap(nullptr, NUM * sizeof *hashes, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(hashes != MAP_FAILED);
    for (int t = 0; t < NUM; t++) {
        child_run(hash_all, hashes[t], (const char *[]){threads[t], env, nullptr});
        for (int i = 0; i < NUM_CALLS; i++)
            if (hashes[t][i] != hashes[0][i])
                fail_msg("%s: other bits with %s than with 1 thread", calls[i].name, threads[t]);
    }
    munmap(hashes, NUM * sizeof *hashes);
}

static void test_usual_kernels(void **) {
    compare_threads(nullptr);
}

static void test_without_avx512(void **) {
    compare_threads("QUERN_DISABLE=norm.cpu_avx512bf16,norm.cpu_avx512,rope.cpu_avx512bf16,"
                    "rope.cpu_avx512,activation.cpu_avx512bf16,activation.cpu_avx512,"
                    "quantize.cpu_avx512,quantize_rows.cpu_avx512,moe_route.cpu_avx512,"
                    "moe_activate.cpu_avx512,moe_sum.cpu_avx512");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_usual_kernels),
                                       cmocka_unit_test(test_without_avx512)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
