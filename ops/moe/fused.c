// SPDX-License-Identifier: Apache-2.0
// qn_fused_moe: a layer of experts out of the public functions of its parts, whose tensors between
// them lie in the workspace.
#include "../../runtime/tensor/read.h"
#include "../gemm/gemm.h"
#include "../shared/round.h"
#include "moe.h"

#include <quern/quantize.h>

static const char op[] = "fused_moe";
constexpr float quant_eps = 1e-10f;
constexpr int64_t slot_alignment = 256;

/** What lies in the workspace. Scales have rows side by side, as grouped products read them
 *  best. */
enum {
    ENDS,
    ROW_OF_PAIR,
    PAIR_OF_ROW,
    EXPERT_OF_ROW,
    QUANTIZED, // x as codes
    QUANTIZED_SCALE,
    ROWS, // x by pairs
    ROWS_SCALE,
    GATE_UP, // the first product
    HIDDEN,  // the activation's results
    HIDDEN_SCALE,
    MADE, // the second product
    NUM_SLOTS
};

typedef struct slot {
    DLTensor t; // ndim 0: it is not needed
    int64_t shape[2], strides[2];
} slot;

/** The layer's sizes and types. */
typedef struct layer {
    const qn_fused_moe_args *args;
    int64_t tokens, top_k, pairs, hidden, inner, experts;
    qni_dtype x, between; // of what is not quantised between the products
    bool has_epilogue;    // the first product acts
    slot slots[NUM_SLOTS];
    int64_t bytes;
} layer;

// ---- the workspace

enum { VECTOR = -1 }; // in place of columns

/** Adds a slot of rows x columns; `by_columns`: rows lie side by side. Data are offsets for now. */
static void add(layer *l, int which, qni_dtype dtype, int64_t rows, int64_t columns,
                bool by_columns) {
    slot *s = &l->slots[which];
    const int64_t padded = by_columns ? qni_round_up(rows, 4) : rows; // columns begin at 16 bytes
    const bool is_vector = columns == VECTOR;
    s->shape[0] = rows, s->shape[1] = columns;
    s->strides[0] = by_columns || is_vector ? 1 : columns;
    s->strides[1] = by_columns ? padded : 1;
    s->t = (DLTensor){
        .ndim = is_vector ? 1 : 2, .dtype = qni_dl_dtype(dtype), .byte_offset = (uint64_t)l->bytes};
    l->bytes +=
        qni_round_up(padded * (is_vector ? 1 : columns) * qni_dtype_bytes(dtype), slot_alignment);
}

static int64_t groups_of(int64_t columns) {
    return (columns + QNI_MOE_GROUP - 1) / QNI_MOE_GROUP;
}

static void add_slots(layer *l) {
    const qn_fused_moe_args *a = l->args;
    const qni_dtype w1 = qni_dtype_of(a->w1), w2 = qni_dtype_of(a->w2);
    const bool quantizes = qni_is_fp8(w1) && !qni_is_fp8(l->x);
    const qni_dtype rows = quantizes ? w1 : l->x, hidden = qni_is_fp8(w2) ? w2 : l->between;
    add(l, ENDS, QNI_I32, l->experts, VECTOR, false);
    add(l, ROW_OF_PAIR, QNI_I32, l->tokens, l->top_k, false);
    add(l, PAIR_OF_ROW, QNI_I32, l->pairs, VECTOR, false);
    add(l, EXPERT_OF_ROW, QNI_I32, l->pairs, VECTOR, false);
    if (quantizes) {
        add(l, QUANTIZED, rows, l->tokens, l->hidden, false);
        add(l, QUANTIZED_SCALE, QNI_F32, l->tokens, groups_of(l->hidden), true);
    }
    add(l, ROWS, rows, l->pairs, l->hidden, false);
    if (quantizes || a->x_scale)
        add(l, ROWS_SCALE, QNI_F32, l->pairs,
            a->x_scale ? a->x_scale->shape[1] : groups_of(l->hidden), true);
    if (!l->has_epilogue)
        add(l, GATE_UP, l->between, l->pairs, 2 * l->inner, false);
    add(l, HIDDEN, hidden, l->pairs, l->inner, false);
    if (qni_is_fp8(hidden))
        add(l, HIDDEN_SCALE, QNI_F32, l->pairs, groups_of(l->inner), true);
    add(l, MADE, l->between, l->pairs, l->hidden, false);
}

/** Gives slots their place in the workspace. */
static void place_slots(layer *l) {
    const DLTensor *workspace = l->args->workspace;
    const uintptr_t given = (uintptr_t)qni_data(workspace);
    const uintptr_t begin = (given + slot_alignment - 1) / slot_alignment * slot_alignment;
    for (int i = 0; i < NUM_SLOTS; i++) {
        slot *s = &l->slots[i];
        s->t.data = (char *)begin + s->t.byte_offset - slot_alignment;
        s->t.byte_offset = 0;
        s->t.device = workspace->device;
        s->t.shape = s->shape;
        s->t.strides = s->strides;
    }
}

/** Returns a slot's tensor; null: the layer needs none. */
static DLTensor *at(layer *l, int which) {
    return l->slots[which].t.ndim ? &l->slots[which].t : nullptr;
}

int64_t qn_fused_moe_workspace(int64_t tokens, int64_t top_k, int64_t hidden, int64_t inner,
                               int64_t experts) {
    // Bytes of an expert, of a token, and of a pair, with scales, of elements of up to 2 bytes.
    const double token = (double)hidden + 4 * (double)groups_of(hidden);
    const double of_rows = 2 * (double)hidden + 4 * (double)groups_of(hidden);
    const double of_hidden = 6 * (double)inner + 4 * (double)groups_of(inner);
    const double pair = 12 + of_rows + of_hidden + 2 * (double)hidden;
    const double padding = 16 * (double)(2 * groups_of(hidden) + groups_of(inner)); // of scales
    if (tokens < 0 || top_k < 0 || hidden < 0 || inner < 0 || experts < 0)
        return -1;
    const double bytes = 4 * (double)experts + (double)tokens * token +
                         (double)tokens * (double)top_k * pair + padding +
                         (NUM_SLOTS + 1) * (double)slot_alignment;
    // Doubles hold such sums exactly up to 2^53, and beyond that no memory is as large.
    return bytes < 0x1p53 ? (int64_t)bytes : -1;
}

// ---- arguments

static qn_status check_numbers(const qn_fused_moe_args *a) {
    QN_TRY(qni_moe_check_function(op, a->function, a->limit, a->alpha, a->is_interleaved));
    if (a->w_is_packed != 0 && a->w_is_packed != 1)
        return QN_FAIL(QN_E_INVALID, "%s: w_is_packed is %d; accepted: 0, 1", op, a->w_is_packed);
    if (a->w_is_packed ? a->inner < 1 || a->inner > INT32_MAX : a->inner != 0)
        return QN_FAIL(QN_E_INVALID, "%s: inner is %ld; accepted: %s", op, (long)a->inner,
                       a->w_is_packed ? "1 to 2^31 - 1, with packed weights"
                                      : "0, as weights are not packed");
    return QN_OK;
}

/** Checks a tensor's dimensions, and its dtype if `dtypes` are not 0. */
static qn_status check_form(const char *name, const DLTensor *t, int ndim, uint32_t dtypes) {
    char names[128];
    QN_TRY(qni_check_sizes(op, name, t, ndim));
    const qni_dtype dtype = qni_dtype_of(t);
    if (dtypes && (dtype == QNI_DTYPE_NONE || !(dtypes >> dtype & 1)))
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: %s has dtype %s; accepted: %s", op, name,
                       qni_dtype_text(t), qni_dtypes_text(dtypes, names, sizeof names));
    return QN_OK;
}

static qn_status check_weights(const qn_fused_moe_args *a, layer *l) {
    constexpr uint32_t of_weights = qni_of_floats | qni_of_fp8 | 1u << QNI_I8;
    QN_TRY(check_form("w1", a->w1, 3, of_weights));
    QN_TRY(check_form("w2", a->w2, 3, of_weights));
    l->experts = a->w1->shape[0];
    l->inner = a->w_is_packed ? a->inner : a->w2->shape[2];
    if (a->w2->shape[0] != l->experts || l->experts < 1)
        return QN_FAIL(QN_E_INVALID, "%s: w1 has %ld experts and w2 %ld; needs as many, 1 or more",
                       op, (long)l->experts, (long)a->w2->shape[0]);
    if (a->w_is_packed)
        return QN_OK;
    QN_TRY(qni_check_shape(op, "w1", a->w1, 3,
                           (const int64_t[]){l->experts, 2 * l->inner, l->hidden}));
    return qni_check_shape(op, "w2", a->w2, 3, (const int64_t[]){l->experts, l->hidden, l->inner});
}

/** Returns whether the first product acts on its results: SiLU-and-multiply of pairs side by side.
 *  A scale of pairs is of 256 columns. Of a GPU's kernels only Hopper's for plain weights have a
 *  tile for it: the kernel for any shape is slower than product and activation apart. */
static bool has_epilogue(const qn_fused_moe_args *a, const qn_device *device) {
    const bool has_tile = !a->w_is_packed && qni_has(device, QNI_F(WGMMA));
    const bool is_too_wide =
        qni_is_fp8(qni_dtype_of(a->w2)) && qni_has(device, QNI_F(GPU)) && !has_tile;
    return a->is_interleaved && a->function == QN_MOE_SILU &&
           !(a->limit > 0 && a->limit < HUGE_VALF) && !is_too_wide;
}

/** Finds the layer's sizes, and what its workspace holds. */
static qn_status make_layer(const qn_fused_moe_args *a, const qn_device *device, layer *l) {
    constexpr uint32_t of_x = 1u << QNI_F16 | 1u << QNI_BF16 | qni_of_fp8;
    *l = (layer){.args = a, .bytes = slot_alignment}; // the first slot begins at a multiple
    QN_TRY(check_numbers(a));
    QN_TRY(check_form("x", a->x, 2, of_x));
    QN_TRY(check_form("ids", a->ids, 2, qni_of_i32));
    l->x = qni_dtype_of(a->x);
    l->tokens = a->x->shape[0], l->hidden = a->x->shape[1];
    QN_TRY(check_weights(a, l));
    QN_TRY(qni_check_shape(op, "ids", a->ids, 2, (const int64_t[]){l->tokens, -1}));
    l->top_k = a->ids->shape[1];
    if (l->top_k < 1)
        return QN_FAIL(QN_E_INVALID, "%s: ids have 0 columns; accepted: 1 or more", op);
    l->pairs = l->tokens * l->top_k;
    l->between = qni_is_fp8(l->x) ? QNI_BF16 : l->x;
    l->has_epilogue = has_epilogue(a, device);
    if (l->pairs >= INT32_MAX || l->hidden >= INT32_MAX || l->inner >= INT32_MAX / 2)
        return QN_FAIL(QN_E_UNSUPPORTED,
                       "%s: ids and x are of %ld pairs and %ld columns; accepted: fewer than 2^31",
                       op, (long)l->pairs, (long)l->hidden);
    if (!a->x_scale != !qni_is_fp8(l->x))
        return QN_FAIL(QN_E_INVALID, "%s: x_scale is %s; needed with x of FP8, and no other", op,
                       a->x_scale ? "given" : "null");
    if (a->x_scale)
        QN_TRY(check_form("x_scale", a->x_scale, 2, qni_of_f32));
    if (a->x_scale && a->x_scale->shape[1] != 1 && a->x_scale->shape[1] != groups_of(l->hidden))
        return QN_FAIL(QN_E_INVALID, "%s: x_scale has %ld columns; accepted: 1, %ld", op,
                       (long)a->x_scale->shape[1], (long)groups_of(l->hidden));
    if (qn_fused_moe_workspace(l->tokens, l->top_k, l->hidden, l->inner, l->experts) < 0)
        return QN_FAIL(
            QN_E_INVALID,
            "%s: x, ids and w2 of %ld tokens, %ld experts each, %ld and %ld columns need "
            "a workspace of 2^53 bytes or more",
            op, (long)l->tokens, (long)l->top_k, (long)l->hidden, (long)l->inner);
    add_slots(l);
    return QN_OK;
}

enum { T_OUT, T_X, T_X_SCALE, T_W1, T_W2, T_W1_SCALE, T_W2_SCALE, T_BIAS1, T_BIAS2 };
enum { T_WEIGHTS = T_BIAS2 + 1, T_IDS, T_MAP, T_ADDEND, T_WORKSPACE, NUM_TENSORS };

/** States a tensor of any strides. */
static qni_tensor any(const char *name, const DLTensor *t, int ndim, const int64_t *shape) {
    return (qni_tensor){.name = name, .t = t, .ndim = ndim, .shape = shape, .may_be_null = true};
}

/** Returns how many dimensions a scale of weights has; where it cannot have so many, 3, which it is
 *  then told to need. */
static int scale_ndim(const DLTensor *scale) {
    return scale && scale->ndim >= 1 && scale->ndim <= 3 ? scale->ndim : 3;
}

/** Reads the tensors whose rules are this function's own; products read those of weights again. */
static qn_status read_tensors(const qni_call *call, const layer *l, qni_tensor t[NUM_TENSORS]) {
    const qn_fused_moe_args *a = l->args;
    const int64_t outer[2] = {l->tokens, l->hidden}, pairs[2] = {l->tokens, l->top_k};
    const int64_t scales[2] = {l->tokens, -1};
    t[T_OUT] = any("out", a->out, 2, outer);
    t[T_X] = any("x", a->x, 2, outer);
    t[T_X_SCALE] = any("x_scale", a->x_scale, 2, scales);
    t[T_W1] = any("w1", a->w1, 3, nullptr);
    t[T_W2] = any("w2", a->w2, 3, nullptr);
    t[T_W1_SCALE] = any("w1_scale", a->w1_scale, scale_ndim(a->w1_scale), nullptr);
    t[T_W2_SCALE] = any("w2_scale", a->w2_scale, scale_ndim(a->w2_scale), nullptr);
    t[T_BIAS1] = any("bias1", a->bias1, 2, nullptr);
    t[T_BIAS2] = any("bias2", a->bias2, 2, nullptr);
    t[T_WEIGHTS] = any("weights", a->weights, 2, pairs);
    t[T_IDS] = any("ids", a->ids, 2, pairs);
    t[T_MAP] = any("expert_map", a->expert_map, 1, nullptr);
    t[T_ADDEND] = any("addend", a->addend, 2, outer);
    t[T_WORKSPACE] = any("workspace", a->workspace, 1, nullptr);
    t[T_OUT].may_be_null = t[T_WEIGHTS].may_be_null = t[T_WORKSPACE].may_be_null = false;
    t[T_OUT].dtypes = qni_of_floats, t[T_WEIGHTS].dtypes = qni_of_f32;
    t[T_MAP].dtypes = qni_of_i32, t[T_ADDEND].like = &t[T_OUT];
    t[T_WORKSPACE].dtypes = 1u << QNI_U8;
    t[T_OUT].has_rows = t[T_X].has_rows = t[T_WEIGHTS].has_rows = t[T_IDS].has_rows = true;
    t[T_MAP].has_rows = t[T_ADDEND].has_rows = t[T_WORKSPACE].has_rows = true;
    t[T_OUT].is_written = t[T_WORKSPACE].is_written = true, t[T_OUT].may_be = &t[T_ADDEND];
    QN_TRY(qni_read_tensors(call, t, NUM_TENSORS));
    if (t[T_WORKSPACE].size[0] < l->bytes)
        return QN_FAIL(QN_E_INVALID, "%s: workspace has %ld bytes; accepted: at least %ld", op,
                       (long)t[T_WORKSPACE].size[0], (long)l->bytes);
    return qni_check_apart(call, t, NUM_TENSORS);
}

// ---- the steps

static qn_gemm_args first_product(layer *l) {
    const qn_fused_moe_args *a = l->args;
    return (qn_gemm_args){.struct_size = sizeof(qn_gemm_args),
                          .d = at(l, l->has_epilogue ? HIDDEN : GATE_UP),
                          .a = at(l, ROWS),
                          .b = a->w1,
                          .scale_a = at(l, ROWS_SCALE),
                          .scale_b = a->w1_scale,
                          .group_layout = at(l, ENDS),
                          .b_is_packed = a->w_is_packed,
                          .m_alignment = 1,
                          .bias = a->bias1,
                          .activation =
                              l->has_epilogue ? QN_GEMM_SILU_AND_MUL : QN_GEMM_NO_ACTIVATION,
                          .scale_d = l->has_epilogue ? at(l, HIDDEN_SCALE) : nullptr,
                          .scale_d_eps = l->has_epilogue && at(l, HIDDEN_SCALE) ? quant_eps : 0};
}

static qn_gemm_args second_product(layer *l) {
    const qn_fused_moe_args *a = l->args;
    return (qn_gemm_args){.struct_size = sizeof(qn_gemm_args),
                          .d = at(l, MADE),
                          .a = at(l, HIDDEN),
                          .b = a->w2,
                          .scale_a = at(l, HIDDEN_SCALE),
                          .scale_b = a->w2_scale,
                          .group_layout = at(l, ENDS),
                          .b_is_packed = a->w_is_packed,
                          .m_alignment = 1,
                          .bias = a->bias2};
}

/** Checks the products' arguments before anything is written. */
static qn_status check_products(qn_stream *stream, layer *l, qni_gemm_problem products[2]) {
    const qn_gemm_args first = first_product(l), second = second_product(l);
    QN_TRY(qni_gemm_problem_set(&products[0], stream, "fused_moe: product of w1, w1_scale, bias1",
                                &first, QN_GEMM_GROUPED_ENDS));
    return qni_gemm_problem_set(&products[1], stream, "fused_moe: product of w2, w2_scale, bias2",
                                &second, QN_GEMM_GROUPED_ENDS);
}

static qn_status sort_pairs(qn_stream *stream, layer *l) {
    return qn_moe_sort(stream, &(qn_moe_sort_args){.struct_size = sizeof(qn_moe_sort_args),
                                                   .ids = l->args->ids,
                                                   .expert_map = l->args->expert_map,
                                                   .experts = l->experts,
                                                   .alignment = 1,
                                                   .ends = at(l, ENDS),
                                                   .row_of_pair = at(l, ROW_OF_PAIR),
                                                   .pair_of_row = at(l, PAIR_OF_ROW),
                                                   .expert_of_row = at(l, EXPERT_OF_ROW)});
}

/** Brings tokens to the rows of their experts. Tokens are quantised first, as they are fewer. */
static qn_status gather(qn_stream *stream, layer *l) {
    const qn_fused_moe_args *a = l->args;
    DLTensor *const codes = at(l, QUANTIZED), *const scales = at(l, QUANTIZED_SCALE);
    if (codes)
        QN_TRY(qn_quantize_groups(stream, codes, scales, a->x, QNI_MOE_GROUP, 0, quant_eps));
    return qn_moe_permute(stream, at(l, ROWS), at(l, ROWS_SCALE), codes ? codes : a->x,
                          codes ? scales : a->x_scale, at(l, PAIR_OF_ROW), l->top_k);
}

static qn_status activate(qn_stream *stream, layer *l) {
    const qn_fused_moe_args *a = l->args;
    if (l->has_epilogue)
        return QN_OK;
    return qn_moe_activate(stream,
                           &(qn_moe_activate_args){.struct_size = sizeof(qn_moe_activate_args),
                                                   .out = at(l, HIDDEN),
                                                   .scale = at(l, HIDDEN_SCALE),
                                                   .x = at(l, GATE_UP),
                                                   .expert_of_row = at(l, EXPERT_OF_ROW),
                                                   .function = a->function,
                                                   .limit = a->limit,
                                                   .alpha = a->alpha,
                                                   .is_interleaved = a->is_interleaved,
                                                   .scale_eps = quant_eps});
}

static qk_moe_few_weights few_weights(const qni_gemm_problem *product) {
    return (qk_moe_few_weights){.codes = product->b,
                                .scale = product->scale_b,
                                .group = product->b_group,
                                .scale_group = product->scale_b_group,
                                .scale_nb = product->scale_b_nb,
                                .packed_k = (uint32_t)product->packed_k};
}

/** Returns whether the layer is of the form that op "moe_few" takes, and states its problem. */
static bool few_problem(layer *l, const qni_tensor t[NUM_TENSORS], const qni_gemm_problem *first,
                        const qni_gemm_problem *second, qni_moe_few_problem *p) {
    const qn_fused_moe_args *a = l->args;
    const bool has_limit = a->limit > 0 && a->limit < HUGE_VALF;
    *p = (qni_moe_few_problem){.dtype = l->x,
                               .dtype_w1 = first->dtype_b,
                               .dtype_w2 = second->dtype_b,
                               .dtype_out = qni_dtype_of(a->out),
                               .x = t[T_X].data,
                               .addend = t[T_ADDEND].data,
                               .out = t[T_OUT].data,
                               .weights = t[T_WEIGHTS].data,
                               .ids = t[T_IDS].data,
                               .expert_map = t[T_MAP].data,
                               .w1 = few_weights(first),
                               .w2 = few_weights(second),
                               .x_row = t[T_X].stride[0],
                               .addend_row = t[T_ADDEND].stride[0],
                               .out_row = t[T_OUT].stride[0],
                               .weights_row = t[T_WEIGHTS].stride[0],
                               .ids_row = t[T_IDS].stride[0],
                               .tokens = l->tokens,
                               .top_k = l->top_k,
                               .hidden = l->hidden,
                               .inner = l->inner,
                               .experts = l->experts,
                               .mapped = t[T_MAP].data ? t[T_MAP].size[0] : 0,
                               .eps = quant_eps};
    if (!at(l, GATE_UP) || !at(l, ROWS_SCALE) || !at(l, HIDDEN_SCALE))
        return false;
    p->between = at(l, GATE_UP)->data;
    return a->w_is_packed && a->function == QN_MOE_SILU && !has_limit && !a->is_interleaved &&
           !a->bias1 && !a->bias2 && qni_gemm_has_block_scales(first) &&
           qni_gemm_has_block_scales(second);
}

static qn_status run_parts(qn_stream *stream, layer *l) {
    const qn_fused_moe_args *a = l->args;
    const qn_gemm_args first = first_product(l), second = second_product(l);
    QN_TRY(sort_pairs(stream, l));
    QN_TRY(gather(stream, l));
    QN_TRY(qn_gemm_grouped_contiguous(stream, &first, QN_GEMM_GROUPED_ENDS));
    QN_TRY(activate(stream, l));
    QN_TRY(qn_gemm_grouped_contiguous(stream, &second, QN_GEMM_GROUPED_ENDS));
    return qn_moe_sum(stream, a->out, at(l, MADE), a->weights, at(l, ROW_OF_PAIR), a->addend);
}

static qn_status run_layer(qn_stream *stream, layer *l, const qni_tensor t[NUM_TENSORS],
                           const qni_gemm_problem products[2]) {
    qni_moe_few_problem few;
    if (few_problem(l, t, &products[0], &products[1], &few) &&
        qni_find_cheapest(&qni_op_moe_few, stream->device, &few) >= 0)
        return qni_run(&qni_op_moe_few, stream, &few);
    return run_parts(stream, l);
}

/** Checks ids and the map before anything is written, as qn_moe_sort would: its messages name
 *  it. */
static qn_status validate(qn_stream *stream, const layer *l, const qni_tensor t[NUM_TENSORS]) {
    const int64_t mapped = l->args->expert_map ? t[T_MAP].size[0] : l->experts;
    const int32_t *ids = t[T_IDS].data;
    if (!qni_validates_indices(stream))
        return QN_OK;
    const int64_t row = t[T_IDS].stride[0];
    const bool is_dense = row == l->top_k;
    for (int64_t i = 0; i < (is_dense ? 1 : l->tokens); i++)
        QN_TRY(qni_validate_range(stream, op, "ids", ids + i * row, is_dense ? l->pairs : l->top_k,
                                  -1, mapped));
    return l->args->expert_map
               ? qni_validate_range(stream, op, "expert_map", t[T_MAP].data, mapped, -1, l->experts)
               : QN_OK;
}

qn_status qn_fused_moe(qn_stream *stream, const qn_fused_moe_args *args) {
    const qni_call call = {op, stream};
    qni_tensor t[NUM_TENSORS] = {};
    qni_gemm_problem products[2];
    layer l;
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    QN_TRY(QNI_CHECK_STRUCT(op, "args", qn_fused_moe_args, args));
    QN_TRY(make_layer(args, stream->device, &l));
    QN_TRY(read_tensors(&call, &l, t));
    if (l.tokens == 0 || l.hidden == 0)
        return QN_OK;
    place_slots(&l);
    QN_TRY(check_products(stream, &l, products));
    QN_TRY(validate(stream, &l, t));
    return run_layer(stream, &l, t, products);
}
