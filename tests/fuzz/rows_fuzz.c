// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: normalisation, gated activations, their gradients, and rotary embedding on the
// CPU. The bytes choose a function, make a small valid problem for it, then change what they like
// of it: any field of any tensor, any scalar, index tensors.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])
#define CALL(name, ...) check_call(#name, qn_##name(stream, __VA_ARGS__), t, COUNT)

static float take_eps(input *in) {
    return take(in, 8) == 7 ? take_float(in) : 1e-6f;
}

// ---- normalisation

enum {
    NORM_OUT,
    NORM_SCALE_OUT,
    NORM_RESIDUAL,
    NORM_X,
    NORM_WEIGHT,
    NORM_BETA,
    NORM_GATE,
    NORM_SCALE,
    NORM_COUNT
};

typedef enum norm_kind { NORM_PLAIN, NORM_QUANTISED, NORM_MODULATED } norm_kind;

/** Sets tensors for any norm; those that a function does not take are not used. */
static void set_norm(tensor *t, norm_kind kind, input *in) {
    const DLDataType dtype = take_float_dtype(in), weights = take_bool(in) ? dtype : f32;
    const int64_t n = take(in, 6), heads = 1 + take(in, 3), h = take_size(in);
    const bool has_heads = kind == NORM_MODULATED || take(in, 4) == 3, is_token = take_bool(in);
    const int64_t last = is_token ? heads : (h + 127) / 128;
    const DLDataType out = kind == NORM_QUANTISED ? take_fp8_dtype(in) : dtype;
    const int64_t x[] = {n, heads, h}, rows[] = {n, h}, scale[] = {n, heads, (h + 127) / 128};
    const int ndim = has_heads ? 3 : 2;
    for (int i = NORM_OUT; i <= NORM_X; i++)
        set_tensor(&t[i], i == NORM_OUT ? out : dtype, ndim, has_heads ? x : rows);
    if (has_heads)
        set_tensor(&t[NORM_SCALE_OUT], f32, is_token ? 2 : 3, scale);
    else
        set_tensor(&t[NORM_SCALE_OUT], f32, is_token ? 1 : 2, (const int64_t[]){n, last});
    for (int i = NORM_WEIGHT; i <= NORM_GATE; i++)
        set_tensor(&t[i], weights, kind == NORM_MODULATED ? 2 : 1,
                   kind == NORM_MODULATED ? rows : rows + 1);
    SET(&t[NORM_SCALE], f32, 1);
    for (int i = NORM_OUT; i <= NORM_RESIDUAL; i++)
        t[i].is_written = true;
    t[NORM_RESIDUAL].is_there = take_bool(in);
    t[NORM_BETA].is_there = kind == NORM_MODULATED || take_bool(in);
    t[NORM_OUT].source = &t[NORM_X];
    change_tensors(t, NORM_COUNT, in);
    give_memories(t, NORM_COUNT, in);
    put_scale(&t[NORM_SCALE], in);
}

static void fuzz_norm(input *in) {
    enum { OUT, SCALE_OUT, RESIDUAL, X, WEIGHT, BETA, GATE, SCALE, COUNT };
    static_assert(COUNT == NORM_COUNT);
    tensor t[COUNT] = {};
    const uint32_t which = take(in, 11);
    const float eps = take_eps(in), scale_eps = take_eps(in);
    set_norm(t, which < 5 ? NORM_PLAIN : which < 9 ? NORM_QUANTISED : NORM_MODULATED, in);
    switch (which) {
    case 0:
        CALL(rmsnorm, T(OUT), T(X), T(WEIGHT), eps);
        break;
    case 1:
        CALL(gemma_rmsnorm, T(OUT), T(X), T(WEIGHT), eps);
        break;
    case 2:
        CALL(fused_add_rmsnorm, T(OUT), T(RESIDUAL), T(WEIGHT), eps);
        break;
    case 3:
        CALL(gemma_fused_add_rmsnorm, T(OUT), T(RESIDUAL), T(WEIGHT), eps);
        break;
    case 4:
        CALL(layernorm, T(OUT), T(X), T(WEIGHT), T(BETA), eps);
        break;
    case 5:
        CALL(rmsnorm_quant, T(OUT), T(X), T(WEIGHT), T(SCALE), eps);
        break;
    case 6:
        CALL(fused_add_rmsnorm_quant, T(OUT), T(X), T(RESIDUAL), T(WEIGHT), T(SCALE), eps);
        break;
    case 7:
        CALL(layernorm_quant, T(OUT), T(X), T(WEIGHT), T(BETA), T(SCALE), eps);
        break;
    case 8:
        CALL(rmsnorm_dynamic_quant, T(OUT), T(SCALE_OUT), T(X), T(RESIDUAL), T(WEIGHT), eps,
             scale_eps);
        break;
    case 9:
        CALL(adaptive_layernorm, T(OUT), T(X), T(WEIGHT), T(BETA), eps);
        break;
    default:
        CALL(gated_residual_layernorm, T(OUT), T(X), T(RESIDUAL), T(GATE), T(WEIGHT), T(BETA), eps);
    }
    free_tensors(t, COUNT);
}

enum { DX, D_GATED, DWEIGHT, DBETA, DGATE, WORKSPACE, D_OUT, X, D_SUM, GATED, WEIGHT, GATE };
enum { BACKWARD_COUNT = GATE + 1 };

static void connect_backward(qn_norm_backward_args *a, tensor *t, input *in) {
    give_memories(t, BACKWARD_COUNT, in);
    a->dx = T(DX), a->dweight = T(DWEIGHT), a->dbeta = T(DBETA), a->workspace = T(WORKSPACE);
    a->d_out = T(D_OUT), a->x = T(X), a->d_sum = T(D_SUM), a->weight = T(WEIGHT);
    a->d_gated = T(D_GATED), a->dgate = T(DGATE), a->gate = T(GATE), a->gated = T(GATED);
}

/** Makes the workspace as large as the call says, most of the time. */
static void size_workspace(qn_norm_backward_args a, tensor *t, input *in) {
    int64_t bytes;
    tensor measured[BACKWARD_COUNT];
    memcpy(measured, t, sizeof measured);
    connect_backward(&a, measured, &(input){});
    const bool is_known = qn_norm_backward_workspace_bytes(&bytes, stream, &a) == QN_OK;
    free_tensors(measured, BACKWARD_COUNT);
    SET(&t[WORKSPACE], u8, is_known && bytes <= MAX_BYTES ? bytes - (take(in, 16) == 15) : 0);
}

/** Sets a row of weights, or one for each batch, of x's shape [batch, n, h]. */
static void set_weights(tensor *t, DLDataType dtype, const int64_t *shape, bool has_batches) {
    const int64_t rows[] = {shape[0], shape[2]};
    set_tensor(t, dtype, has_batches ? 2 : 1, has_batches ? rows : rows + 1);
}

static void fuzz_norm_backward(input *in) {
    enum { COUNT = BACKWARD_COUNT };
    tensor t[COUNT] = {};
    const DLDataType dtype = take_float_dtype(in), weights = take_bool(in) ? dtype : f32;
    const int64_t shape[] = {take(in, 6), 1 + take(in, 3), take_size(in)};
    const bool has_batches = take_bool(in), has_heads = has_batches || take(in, 4) == 3;
    for (int i = DX; i < COUNT; i++) {
        if (i >= WEIGHT || (i >= DWEIGHT && i <= DGATE))
            set_weights(&t[i], weights, shape, has_batches);
        else if (has_heads)
            set_tensor(&t[i], dtype, 3, shape);
        else
            SET(&t[i], dtype, shape[0], shape[2]);
        t[i].is_written = i <= WORKSPACE;
    }
    qn_norm_backward_args a = {.struct_size = sizeof a,
                               .eps = take_eps(in),
                               .subtracts_mean = take_bool(in),
                               .adds_one = (int32_t)take_mostly(in, take_bool(in))};
    t[DWEIGHT].is_there = take_bool(in);
    t[DBETA].is_there = a.subtracts_mean ? take_bool(in) : take(in, 16) == 15;
    t[D_SUM].is_there = take_bool(in);
    t[GATE].is_there = t[D_GATED].is_there = take_bool(in);
    t[GATED].is_there = t[DGATE].is_there = take_bool(in);
    if (take(in, 32) == 31)
        t[GATE].is_there = t[GATED].is_there = take_bool(in);
    t[WEIGHT].is_there = t[DWEIGHT].is_there || take_bool(in);
    if (take(in, 64) == 63)
        a.struct_size = (size_t)take_wild(in);
    size_workspace(a, t, in);
    change_tensors(t, COUNT, in);
    connect_backward(&a, t, in);
    CALL(norm_backward, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

// ---- activations

static void fuzz_activation_backward(input *in) {
    enum { DX, D_OUT, X, COUNT };
    tensor t[COUNT] = {};
    const uint32_t ndim = 1 + take(in, take_bool(in) ? 4 : 8), rows = ndim - 1;
    const DLDataType dtype = take_float_dtype(in);
    const qn_activation function = (qn_activation)(take(in, 16) < 15 ? take(in, 3) : take(in, 256));
    int64_t shape[MAX_NDIM] = {};
    for (uint32_t i = 0; i < rows; i++)
        shape[i] = 1 + take(in, ndim > 4 ? 2 : 5);
    shape[rows] = take_size(in);
    set_tensor(&t[D_OUT], dtype, (int)ndim, shape);
    shape[rows] *= 2;
    set_tensor(&t[X], dtype, (int)ndim, shape);
    set_tensor(&t[DX], dtype, (int)ndim, shape);
    t[DX].is_written = true;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    CALL(activation_backward, T(DX), T(D_OUT), T(X), function, take_bool(in) ? take_float(in) : 0);
    free_tensors(t, COUNT);
}

static void fuzz_activation(input *in) {
    enum { OUT, SCALE_OUT, X, SCALE, COUNT };
    tensor t[COUNT] = {};
    const uint32_t which = take(in, 6), ndim = 1 + take(in, take_bool(in) ? 4 : 8), rows = ndim - 1;
    const DLDataType dtype = take_float_dtype(in), fp8 = take_fp8_dtype(in);
    const qn_activation function = (qn_activation)(take(in, 16) < 15 ? take(in, 3) : take(in, 256));
    const float limit = take_bool(in) ? take_float(in) : 0;
    int64_t shape[MAX_NDIM] = {};
    for (uint32_t i = 0; i < rows; i++)
        shape[i] = 1 + take(in, ndim > 4 ? 2 : 5);
    shape[rows] = 2 * take_size(in);
    set_tensor(&t[X], dtype, (int)ndim, shape);
    shape[rows] /= 2;
    set_tensor(&t[OUT], which < 4 ? dtype : fp8, (int)ndim, shape);
    shape[rows] = (shape[rows] + 127) / 128;
    set_tensor(&t[SCALE_OUT], f32, (int)(take_bool(in) ? rows : ndim), shape);
    SET(&t[SCALE], f32, 1);
    t[OUT].is_written = t[SCALE_OUT].is_written = true;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_scale(&t[SCALE], in);
    const float scale_eps = take_eps(in);
    switch (which) {
    case 0:
        CALL(silu_and_mul, T(OUT), T(X));
        break;
    case 1:
        CALL(gelu_and_mul, T(OUT), T(X));
        break;
    case 2:
        CALL(gelu_tanh_and_mul, T(OUT), T(X));
        break;
    case 3:
        CALL(act_and_mul, T(OUT), T(X), function, limit);
        break;
    case 4:
        CALL(act_and_mul_quant, T(OUT), T(X), T(SCALE), function, limit);
        break;
    default:
        CALL(act_and_mul_dynamic_quant, T(OUT), T(SCALE_OUT), T(X), function, limit, scale_eps);
    }
    free_tensors(t, COUNT);
}

// ---- rotary embedding

static qn_rope_options take_options(input *in, int64_t dim, bool is_llama31) {
    qn_rope_options o = {.struct_size = sizeof o, .interleave = take_bool(in)};
    o.rotary_dim = take_bool(in) ? dim / 2 : 0;
    if (is_llama31 && take_bool(in))
        o.low_freq_factor = 1, o.high_freq_factor = 4, o.old_context_len = take(in, 256);
    float *const floats[] = {&o.rope_scale, &o.rope_theta, &o.low_freq_factor, &o.high_freq_factor};
    for (uint32_t i = take(in, 8); i > 5; i--) {
        const uint32_t which = take(in, 8);
        if (which < 4)
            *floats[which] = take_float(in);
        else if (which == 4)
            o.rotary_dim = take_wild(in);
        else if (which == 5)
            o.old_context_len = take_wild(in);
        else if (which == 6)
            o.interleave = (int32_t)take_wild(in);
        else
            o.struct_size = take_bool(in) ? take(in, 64) : (size_t)take_wild(in);
    }
    return o;
}

/** Writes an indptr that rises to n at its end, or not. */
static void put_indptr(tensor *x, int64_t count, int64_t n, input *in) {
    for (int64_t i = 0, sum = 0; i < count; i++) {
        put_i32(x, i, take_mostly(in, sum));
        sum = sum + take(in, 4) < n ? sum + 1 : n;
    }
}

static void put_positions(tensor *x, int64_t count, uint32_t below, input *in) {
    for (int64_t i = 0; i < count; i++)
        put_i32(x, i, take_mostly(in, take(in, below)));
}

static void fuzz_rope(input *in) {
    enum { Q_OUT, K_OUT, Q, K, INDPTR, OFFSETS, POSITIONS, CACHE, COUNT };
    enum { TABLE = 9 };
    tensor t[COUNT] = {};
    const uint32_t which = take(in, 5);
    const DLDataType dtype = take_float_dtype(in);
    const int64_t n = take(in, 6), heads = 1 + take(in, 3), kv_heads = 1 + take(in, 2),
                  dim = (take_size(in) + 1) / 2 * 2, segments = take(in, 4),
                  rotary_dim = take_bool(in) ? dim : dim / 4 * 2;
    for (int i = Q_OUT; i <= K; i++)
        SET(&t[i], dtype, n, i == Q || i == Q_OUT ? heads : kv_heads, dim);
    SET(&t[INDPTR], i32, segments + 1);
    SET(&t[OFFSETS], i32, segments);
    SET(&t[POSITIONS], i32, n);
    SET(&t[CACHE], f32, TABLE, rotary_dim);
    t[Q_OUT].is_written = t[K_OUT].is_written = true;
    t[K].is_there = t[K_OUT].is_there = take(in, 4);
    t[Q_OUT].source = &t[Q], t[K_OUT].source = &t[K];
    const bool has_options = take(in, 4);
    const qn_rope_options given_options = take_options(in, dim, which % 2),
                          *options = has_options ? &given_options : nullptr;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_indptr(&t[INDPTR], segments + 1, n, in);
    put_positions(&t[OFFSETS], segments, 256, in);
    put_positions(&t[POSITIONS], n, TABLE, in);
    switch (which) {
    case 0:
        CALL(apply_rope, T(Q_OUT), T(K_OUT), T(Q), T(K), T(INDPTR), T(OFFSETS), options);
        break;
    case 1:
        CALL(apply_llama31_rope, T(Q_OUT), T(K_OUT), T(Q), T(K), T(INDPTR), T(OFFSETS), options);
        break;
    case 2:
        CALL(apply_rope_pos_ids, T(Q_OUT), T(K_OUT), T(Q), T(K), T(POSITIONS), options);
        break;
    case 3:
        CALL(apply_llama31_rope_pos_ids, T(Q_OUT), T(K_OUT), T(Q), T(K), T(POSITIONS), options);
        break;
    default:
        CALL(apply_rope_with_cos_sin_cache, T(Q_OUT), T(K_OUT), T(Q), T(K), T(CACHE), T(POSITIONS),
             take_bool(in));
    }
    free_tensors(t, COUNT);
}

static void fuzz_norm_rope(input *in) {
    enum { Q_OUT, K_OUT, Q, K, Q_WEIGHT, K_WEIGHT, COS, SIN, COUNT };
    tensor t[COUNT] = {};
    const DLDataType dtype = take_float_dtype(in), table = take_bool(in) ? f32 : dtype;
    const int64_t batch = take(in, 3), n = take(in, 5), dim = (take_size(in) + 1) / 2 * 2,
                  rotary_dim = take_bool(in) ? dim : dim / 4 * 2;
    const bool has_batches = take_bool(in), has_norm = take_bool(in);
    for (int i = Q_OUT; i <= K; i++) {
        const int64_t shape[] = {batch, n, 1 + (i == Q || i == Q_OUT), dim};
        set_tensor(&t[i], dtype, has_batches ? 4 : 3, shape + !has_batches);
    }
    SET(&t[Q_WEIGHT], dtype, dim);
    SET(&t[K_WEIGHT], dtype, dim);
    for (int i = COS; i <= SIN; i++)
        SET(&t[i], table, n, rotary_dim);
    if (take_bool(in))
        t[COS].shape[1] = t[SIN].shape[1] = rotary_dim / 2;
    t[Q_OUT].is_written = t[K_OUT].is_written = true;
    t[Q_OUT].source = &t[Q], t[K_OUT].source = &t[K];
    t[K].is_there = t[K_OUT].is_there = take(in, 4);
    t[Q_WEIGHT].is_there = has_norm;
    t[K_WEIGHT].is_there = has_norm && t[K].is_there;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    qn_qk_rmsnorm_rope_args a = {.struct_size = sizeof a,
                                 .q_out = T(Q_OUT),
                                 .k_out = T(K_OUT),
                                 .q = T(Q),
                                 .k = T(K),
                                 .q_weight = T(Q_WEIGHT),
                                 .k_weight = T(K_WEIGHT),
                                 .cos = T(COS),
                                 .sin = T(SIN),
                                 .rotary_dim = take(in, 8) == 7 ? take_wild(in) : rotary_dim,
                                 .eps = take_eps(in),
                                 .interleave = take_bool(in)};
    if (take(in, 16) == 15)
        a.struct_size = (size_t)take_wild(in);
    CALL(qk_rmsnorm_rope, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

static void fuzz_rope_quantize(input *in) {
    enum { OUT, IN = 4, CACHE = 8, POSITIONS, COUNT }; // q_rope, k_rope, q_nope, k_nope of each
    enum { TABLE = 9 };
    tensor t[COUNT] = {};
    const DLDataType dtype = take_float_dtype(in), fp8 = take_fp8_dtype(in);
    const int64_t n = take(in, 6), heads = 1 + take(in, 3), dim = (take_size(in) + 1) / 2 * 2,
                  nope = take_size(in);
    const bool is_latent = take_bool(in);
    for (int i = 0; i < 4; i++)
        for (int k = OUT; k <= IN; k += IN) {
            const int64_t width = i < 2 ? dim : nope, many[] = {n, heads, width};
            const int64_t one[] = {n, width};
            const bool has_heads = i % 2 == 0 || !is_latent;
            set_tensor(&t[k + i], k == OUT ? fp8 : dtype, has_heads ? 3 : 2,
                       has_heads ? many : one);
            t[k + i].is_written = k == OUT;
        }
    SET(&t[CACHE], f32, TABLE, dim);
    SET(&t[POSITIONS], i32, n);
    for (int i = 2; i < 4; i++)
        t[OUT + i].is_there = t[IN + i].is_there = take(in, 4);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_positions(&t[POSITIONS], n, TABLE, in);
    qn_rope_quantize_args a = {.struct_size = sizeof a,
                               .q_rope_out = T(OUT),
                               .k_rope_out = T(OUT + 1),
                               .q_nope_out = T(OUT + 2),
                               .k_nope_out = T(OUT + 3),
                               .q_rope = T(IN),
                               .k_rope = T(IN + 1),
                               .q_nope = T(IN + 2),
                               .k_nope = T(IN + 3),
                               .cos_sin_cache = T(CACHE),
                               .pos_ids = T(POSITIONS),
                               .quant_scale_q = take_bool(in) ? take_float(in) : 0,
                               .quant_scale_kv = take_bool(in) ? take_float(in) : 0,
                               .interleave = take_bool(in)};
    if (take(in, 16) == 15)
        a.struct_size = (size_t)take_wild(in);
    CALL(rope_quantize_fp8, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const families[])(input *) = {
        fuzz_norm,          fuzz_activation,         fuzz_rope, fuzz_norm_rope, fuzz_rope_quantize,
        fuzz_norm_backward, fuzz_activation_backward};
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, families)(&in);
    return 0;
}
