// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the values of gradients, on the CPU and on simulated GPUs. The bytes make a
// small problem of attention's, a norm's or an activation's backward pass, with tensors between
// NaNs, as `quern check` makes them. Each kernel that takes it must agree with the definition
// within its bound, leave all other bytes alone, and give equal bits in two runs.
//
// Kernels are compiled before the first input, or come from the JIT's cache. Many images would take
// long: problems of f16 are left to the kernels without matrix cores.
//
// Fuzzes: libquern
// Needs: quernsim
#include "../../ops/activation_backward/activation_backward.h"
#include "../../ops/activation_backward/activation_backward_check.h"
#include "../../ops/attention_backward/attention_backward.h"
#include "../../ops/attention_backward/attention_backward_check.h"
#include "../../ops/norm_backward/norm_backward.h"
#include "../../ops/norm_backward/norm_backward_check.h"
#include "fuzz_input.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const specs[] = {"cpu", "sim:gfx942", "sim:gfx1151"};
enum { NUM_DEVICES = sizeof specs / sizeof *specs };
static qn_device *devices[NUM_DEVICES];

// ---- problems

static int32_t take_below(input *in, uint32_t below) {
    return (int32_t)take(in, below);
}

/** Takes elements between rows, or before them, mostly of whole runs of eight. */
static int32_t take_gap(input *in) {
    static const int8_t gaps[] = {0, 0, 0, 8, 16, 1, 3};
    return TAKE_ONE(in, gaps);
}

static uint64_t take_seed(input *in) {
    const uint64_t high = take(in, 256);
    return high << 8 | take(in, 256);
}

/** Takes a length, seldom one of more than a wave's columns. */
static int32_t take_length(input *in) {
    return take(in, 8) == 7 ? 16 + take_below(in, 56) : take_below(in, 18);
}

static int32_t take_head_dim(input *in, qni_dtype dtype) {
    static const int16_t dims[] = {64, 8, 16, 24, 40, 72, 96, 128, 1, 7, 33, 130};
    const int32_t dim = TAKE_ONE(in, dims);
    return dtype == QNI_F16 ? dim | 1 : dim; // no matrix kernel takes odd ones
}

static void take_sizes(input *in, qni_attention_spec *s) {
    static const qni_dtype types[] = {QNI_BF16, QNI_BF16, QNI_BF16, QNI_F16, QNI_F32};
    s->storage = take(in, 4) ? QNI_CASE_DENSE : take_bool(in) ? QNI_CASE_RAGGED : QNI_CASE_PADDED;
    s->batches = 1 + take_below(in, 2);
    for (int i = 0; i < QNI_CASE_LENGTHS; i++) {
        s->qo[i] = take_length(in);
        s->kv[i] = take_length(in);
    }
    s->kv_heads = 1 + take_below(in, 2);
    s->qo_heads = s->kv_heads == 1 ? 1 + take_below(in, 2) : 2;
    s->dtype = TAKE_ONE(in, types);
    s->dtype_kv = take(in, 8) ? s->dtype : QNI_F32;
    s->dtype_o = take(in, 8) ? s->dtype : QNI_F32;
    s->dim = take_head_dim(in, s->dtype);
    s->dim_vo = take(in, 4) ? 0 : take_head_dim(in, s->dtype);
}

static void take_layout(input *in, qni_attention_spec *s) {
    s->is_hnd = take_bool(in);
    s->is_swapped = take(in, 4) == 3;
    s->gap = take_gap(in);
    s->offset = take_gap(in);
    s->block_gap = take_gap(in) * 64;
    s->is_natural = take_bool(in);
    s->has_lse = true;
}

/** Takes bounds, and masks where lengths are equal. */
static void take_masks(input *in, qni_attention_spec *s) {
    s->is_causal = take_bool(in);
    s->is_top_left = take(in, 4) == 3;
    s->has_left = take(in, 4) == 3;
    s->left = take_below(in, 40);
    s->has_right = take(in, 4) == 3;
    s->right = take_below(in, 40);
    if (s->storage != QNI_CASE_DENSE)
        return;
    s->mask_kind = take(in, 4) == 3 ? QK_MASK_BOOL + take_below(in, 4) : QK_MASK_NONE;
    s->is_causal &= !s->mask_kind; // calls take one of them
    s->is_mask_broadcast = take_bool(in);
    s->has_custom_mask = !s->mask_kind && take(in, 8) == 7;
    s->is_mask_zero = take(in, 16) == 15;
}

static void take_scores(input *in, qni_attention_spec *s) {
    s->has_sinks = take(in, 4) == 3;
    s->has_scales = take(in, 4) == 3;
    s->has_negative_scales = take_bool(in);
    s->cap = take(in, 4) == 3 ? 3 : 0;
    s->dropout = take(in, 4) == 3 ? 0.25f : 0;
    s->pos = s->cap == 0 && take(in, 8) == 7 ? QN_POS_ALIBI : QN_POS_NONE;
    s->values = take(in, 8) == 7 ? QNI_CASE_PEAKS : QNI_CASE_NORMAL;
}

static qn_status try_attention(qni_trial_run *run, input *in) {
    qni_attention_spec s = {};
    const uint64_t seed = take_seed(in);
    take_sizes(in, &s);
    take_layout(in, &s);
    take_masks(in, &s);
    take_scores(in, &s);
    return qni_backward_check(run, &s, seed);
}

static qn_status try_norm(qni_trial_run *run, input *in) {
    static const int16_t widths[] = {64, 1, 7, 8, 40, 111, 256, 520, 2056};
    const uint64_t seed = take_seed(in);
    const qni_norm_backward_shape shape = {.batches = 1 + take_below(in, 3),
                                           .inner = 1 + take_below(in, 12),
                                           .h = TAKE_ONE(in, widths),
                                           .gap = take_gap(in),
                                           .offset = take_gap(in),
                                           .has_no_eps = take_bool(in)};
    qni_norm_backward_form form = {.name = "fuzzed",
                                   .subtracts_mean = take_bool(in),
                                   .has_sum = take_bool(in),
                                   .has_no_weight = take(in, 4) == 3,
                                   .weight_plus = (float)take(in, 2),
                                   .has_f32 = take_bool(in),
                                   .has_batches = take_bool(in),
                                   .has_d_gated = take(in, 4) == 3,
                                   .has_dgate = take(in, 4) == 3};
    form.has_dweight = !form.has_no_weight && take_bool(in);
    form.has_dbeta = form.subtracts_mean && take_bool(in);
    const qni_dtype dtype = (qni_dtype)take(in, 3), weight = take_bool(in) ? dtype : QNI_F32;
    return qni_norm_backward_check(run, &form, &shape, dtype, weight, seed);
}

static qn_status try_activation(qni_trial_run *run, input *in) {
    static const int16_t widths[] = {64, 1, 7, 8, 111, 136, 1032};
    const uint64_t seed = take_seed(in);
    const qni_activation_backward_shape shape = {.batches = 1 + take_below(in, 3),
                                                 .inner = 1 + take_below(in, 12),
                                                 .h = TAKE_ONE(in, widths),
                                                 .gap = take_gap(in),
                                                 .offset = take_gap(in)};
    const qni_dtype dtype = (qni_dtype)take(in, 3);
    const qn_activation function = (qn_activation)take(in, 3);
    const float limit = take_bool(in) ? 1.5f : HUGE_VALF;
    return qni_activation_backward_check(run, &shape, dtype, function, limit, seed);
}

// ---- runs

static input now; // what is left of the bytes

static qn_status try_input(qni_trial_run *run, const qni_op *) {
    static qn_status (*const families[])(qni_trial_run *, input *) = {try_attention, try_norm,
                                                                      try_activation};
    return TAKE_ONE(&now, families)(run, &now);
}

/** Tries what has every kernel that the bytes may ask for compiled. */
static qn_status try_every_image(qni_trial_run *run, const qni_op *) {
    static const qni_attention_spec attention = {.batches = 1,
                                                 .qo = {9},
                                                 .kv = {9},
                                                 .qo_heads = 1,
                                                 .kv_heads = 1,
                                                 .dtype = QNI_BF16,
                                                 .dtype_kv = QNI_BF16,
                                                 .dtype_o = QNI_BF16,
                                                 .dim = 64,
                                                 .has_lse = true};
    qni_attention_spec wide = attention;
    wide.dim = 128;
    QN_TRY(qni_backward_check(run, &attention, 0));
    QN_TRY(qni_backward_check(run, &wide, 0));
    QN_TRY(try_norm(run, &(input){}));
    return try_activation(run, &(input){});
}

static void fail_if_wrong(void *, const qn_check_result *r) {
    if (r->reason || r->passed)
        return;
    fprintf(stderr, "%s, %s: error / tolerance %g; %s\n", r->kernel, r->problem, r->error,
            r->detail);
    abort();
}

static void try_on(qn_device *device, qn_status (*try)(qni_trial_run *, const qni_op *)) {
    static const qni_op *const ops[] = {&qni_op_attention_backward, nullptr};
    const qni_family family = {"gradients", ops, try};
    if (qni_trial_families((const qni_family *const[]){&family, nullptr}, device, nullptr, nullptr,
                           fail_if_wrong, nullptr) == QN_OK)
        return;
    fprintf(stderr, "%s\n", qn_last_error());
    abort();
}

int LLVMFuzzerInitialize(int *, char ***) {
    setenv("QUERN_NUM_THREADS", "1", 1);
    for (int i = 0; i < NUM_DEVICES; i++) {
        if (qn_device_open(&devices[i], specs[i]) != QN_OK)
            abort();
        try_on(devices[i], try_every_image);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    now = (input){data, data + size};
    try_on(TAKE_ONE(&now, devices), try_input);
    return 0;
}
