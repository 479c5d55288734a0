// SPDX-License-Identifier: Apache-2.0
// Packed weights: their shape, their layouts, and the public functions that make them.
//
// CPU layout: panels of 64 n x 128 k, 8 KiB each; all K-blocks of a panel's rows follow each other.
// A panel is 128 lines of 64 bytes, and a line holds 16 n x 4 k. A decoder looks a line's bytes up
// in tables of high and low bytes and interleaves the two results. The order of the bytes makes
// that give two registers of bf16 pairs, k next to k + 1, for 16 n in order:
//
//   line 4 * (k / 4) + n / 16;
//   in it byte 16 * (n % 16 / 4) + 8 * (k % 4 / 2) + 2 * (n % 4) + k % 2.
//
// GPU layout: gemm_abi.h.
#include "../../runtime/tensor/read.h"
#include "gemm.h"
#include "gemm_abi.h"

static constexpr int64_t CPU_TILE_N = 64, CPU_TILE_K = 128;
static constexpr int64_t GPU_TILE_N = 128, GPU_TILE_K = 128;

static bool is_on_cpu(const qn_device *device) {
    return device->id.device_type == kDLCPU;
}

void qni_gemm_pack_tiles(const qn_device *device, int64_t *tile_n, int64_t *tile_k) {
    *tile_n = is_on_cpu(device) ? CPU_TILE_N : GPU_TILE_N;
    *tile_k = is_on_cpu(device) ? CPU_TILE_K : GPU_TILE_K;
}

qni_dtype qni_gemm_pack_dtype(const qn_device *device, qni_dtype dtype) {
    return qni_has(device, QNI_F(MFMA_FP8_FNUZ)) ? QNI_E4M3FNUZ : dtype;
}

static int64_t cpu_offset(int64_t packed_k, int64_t n, int64_t k) {
    const int64_t panel = n / CPU_TILE_N * (packed_k / CPU_TILE_K) + k / CPU_TILE_K;
    const int64_t line = k % CPU_TILE_K / 4 * (CPU_TILE_N / 16) + n % CPU_TILE_N / 16;
    const int64_t byte = n % 16 / 4 * 16 + k % 4 / 2 * 8 + n % 4 * 2 + k % 2;
    return panel * CPU_TILE_N * CPU_TILE_K + line * 64 + byte;
}

int64_t qni_gemm_packed_offset(const qn_device *device, int64_t packed_k, int64_t n, int64_t k) {
    return is_on_cpu(device) ? cpu_offset(packed_k, n, k)
                             : qk_gemm_packed_offset((uint32_t)n, (uint32_t)k, (uint32_t)packed_k);
}

uint8_t qni_gemm_pack_byte(qni_dtype dtype_in, qni_dtype dtype_out, uint8_t byte) {
    if (dtype_in == dtype_out)
        return byte;
    // From e4m3fn to e4m3fnuz: equal bits mean half the value, and the scale is doubled; but some
    // codes are NaN in one and a number in the other.
    if ((byte & 0x7F) == 0x7F)
        return 0x80;
    return byte == 0x80 ? 0 : byte;
}

// ---- the CPU kernel

/** Packs 128 k of row n of a group, from k0 on, as qni_gemm_packed_offset says; the offset's
 *  divisions are done once. */
static void pack_run(const qni_gemm_pack_problem *p, int64_t g, int64_t n, int64_t k0) {
    uint8_t *to =
        (uint8_t *)p->packed + g * p->packed_n * p->packed_k + cpu_offset(p->packed_k, n, k0);
    const uint8_t *b = (const uint8_t *)p->b + g * p->b_group + n * p->b_n + k0;
    const int64_t depth = n >= p->n ? 0 : p->k - k0 < CPU_TILE_K ? p->k - k0 : CPU_TILE_K;
    for (int k = 0; k < CPU_TILE_K; k++)
        to[k / 4 * 256 + k % 4 / 2 * 8 + k % 2] =
            k < depth ? qni_gemm_pack_byte(p->dtype_in, p->dtype_out, b[k]) : 0;
}

static void pack_scales(const qni_gemm_pack_problem *p) {
    const int64_t rows = (p->n + 127) / 128, columns = (p->k + 127) / 128;
    const float factor = p->dtype_in == p->dtype_out ? 1 : 2;
    for (int64_t row = 0; row < p->groups * rows; row++)
        for (int64_t kb = 0; kb < columns; kb++)
            p->packed_scale[row * columns + kb] =
                factor *
                p->scale_b[row / rows * p->scale_b_group + row % rows * p->scale_b_nb + kb];
}

/** Packs all panels of one tile of n. */
static void pack_tile(void *context, int64_t i) {
    const qni_gemm_pack_problem *p = context;
    const int64_t tiles = p->packed_n / CPU_TILE_N;
    for (int64_t k0 = 0; k0 < p->packed_k; k0 += CPU_TILE_K)
        for (int64_t n = 0; n < CPU_TILE_N; n++)
            pack_run(p, i / tiles, i % tiles * CPU_TILE_N + n, k0);
}

qn_status qni_gemm_pack_cpu(const qni_variant *, qn_stream *, const void *problem) {
    qni_gemm_pack_problem p = *(const qni_gemm_pack_problem *)problem;
    qni_parallel(p.groups * (p.packed_n / CPU_TILE_N), pack_tile, &p);
    pack_scales(&p);
    return QN_OK;
}

// ---- public functions

static qn_status packed_shape(const qn_device *device, const char *op, const DLTensor *b,
                              int64_t shape[3], qni_dtype *dtype) {
    qni_dtype in = qni_dtype_of(b);
    if (in != QNI_E4M3FN && in != QNI_E4M3FNUZ)
        return QN_FAIL(QN_E_UNSUPPORTED, "%s: b is %s; e4m3fn and e4m3fnuz are packed%s", op,
                       qni_dtype_text(b), in == QNI_BF16 ? ", bf16 needs no packing" : "");
    int64_t tile_n, tile_k, n = b->shape[b->ndim - 2], k = b->shape[b->ndim - 1];
    qni_gemm_pack_tiles(device, &tile_n, &tile_k);
    shape[0] = b->ndim == 3 ? b->shape[0] : 1;
    shape[1] = (n + tile_n - 1) / tile_n * tile_n;
    shape[2] = (k + tile_k - 1) / tile_k * tile_k;
    *dtype = qni_gemm_pack_dtype(device, in);
    const DLTensor packed = {.shape = shape, .ndim = 3, .dtype = qni_dl_dtype(*dtype)};
    return qni_check_sizes(op, "packed b", &packed, 3);
}

qn_status qn_gemm_packed_shape(const qn_device *device, const DLTensor *b, int64_t shape[3],
                               DLDataType *dtype) {
    static const char op[] = "gemm_packed_shape";
    int64_t found[3];
    qni_dtype packed;
    if (!device || !b || !shape || !dtype)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null", op,
                       !device  ? "device"
                       : !b     ? "b"
                       : !shape ? "shape"
                                : "dtype");
    if (b->ndim != 2 && b->ndim != 3)
        return QN_FAIL(QN_E_INVALID, "%s: b has %d dimensions, needs 2 or 3", op, b->ndim);
    QN_TRY(qni_check_sizes(op, "b", b, b->ndim));
    QN_TRY(packed_shape(device, op, b, found, &packed));
    for (int i = 0; i < 3; i++)
        shape[i] = found[i];
    *dtype = qni_dl_dtype(packed);
    return QN_OK;
}

static qn_status fail_strides(const qni_call *call, const qni_tensor *t, const char *needs) {
    char text[256];
    return QN_FAIL(QN_E_INVALID, "%s: %s is %s; needs %s", call->op, t->name,
                   qni_tensor_text(t->t, text, sizeof text), needs);
}

/** Reads the strides of a matrix, or of a stack of matrices, whose last dimension is
 *  contiguous. */
static qn_status read_strides(const qni_call *call, const qni_tensor *t, int64_t *group,
                              int64_t *row) {
    const int last = t->ndim - 1;
    const int64_t rows = t->size[last - 1], columns = t->size[last];
    *row = rows <= 1 ? columns : t->stride[last - 1];
    *group = t->ndim == 3 && t->size[0] > 1 ? t->stride[0] : rows * columns;
    if ((columns > 1 && t->stride[last] != 1) || (columns > 0 && *row < columns) || *group < 0)
        return fail_strides(call, t, "columns contiguous, row stride at least as long");
    return QN_OK;
}

enum { B, SCALE_B, PACKED, PACKED_SCALE, NUM_TENSORS };

static qn_status read_inputs(const qni_call *call, qni_tensor *t, qni_gemm_pack_problem *p) {
    const int rank = t[B].ndim;
    QN_TRY(qni_read_tensors(call, &t[B], 1));
    QN_TRY(read_strides(call, &t[B], &p->b_group, &p->b_n));
    p->groups = rank == 3 ? t[B].size[0] : 1;
    p->n = t[B].size[rank - 2];
    p->k = t[B].size[rank - 1];
    p->dtype_in = t[B].dtype;
    const int64_t shape[] = {p->groups, (p->n + 127) / 128, (p->k + 127) / 128};
    t[SCALE_B].shape = shape + 3 - rank;
    QN_TRY(qni_read_tensors(call, &t[SCALE_B], 1));
    QN_TRY(read_strides(call, &t[SCALE_B], &p->scale_b_group, &p->scale_b_nb));
    p->b = t[B].data;
    p->scale_b = t[SCALE_B].data;
    return QN_OK;
}

static qn_status read_outputs(const qni_call *call, qni_tensor *t, qni_gemm_pack_problem *p) {
    int64_t shape[3];
    QN_TRY(packed_shape(call->stream->device, call->op, t[B].t, shape, &p->dtype_out));
    p->packed_n = shape[1];
    p->packed_k = shape[2];
    t[PACKED].shape = shape;
    t[PACKED].dtypes = 1u << p->dtype_out;
    t[PACKED_SCALE].shape = t[SCALE_B].size;
    QN_TRY(qni_read_tensors(call, &t[PACKED], 2));
    for (int i = PACKED; i <= PACKED_SCALE; i++)
        if (!qni_is_contiguous(t[i].t))
            return fail_strides(call, &t[i], "contiguous elements");
    p->packed = t[PACKED].data;
    p->packed_scale = t[PACKED_SCALE].data;
    return QN_OK;
}

qn_status qn_gemm_pack(qn_stream *stream, DLTensor *packed, DLTensor *packed_scale,
                       const DLTensor *b, const DLTensor *scale_b) {
    const qni_call call = {"gemm_pack", stream};
    const int rank = b && b->ndim == 3 ? 3 : 2;
    qni_gemm_pack_problem p = {};
    qni_tensor t[NUM_TENSORS] = {
        [B] = {.name = "b", .t = b, .ndim = rank},
        [SCALE_B] = {"scale_b", scale_b, rank, .dtypes = qni_of_f32},
        [PACKED] = {.name = "packed", .t = packed, .ndim = 3, .align = 16, .is_written = true},
        [PACKED_SCALE] = {"packed_scale", packed_scale, rank, qni_of_f32, .is_written = true}};
    QN_TRY(read_inputs(&call, t, &p));
    QN_TRY(read_outputs(&call, t, &p));
    QN_TRY(qni_check_apart(&call, t, NUM_TENSORS));
    return p.groups > 0 && p.n > 0 && p.k > 0 ? qni_run(&qni_op_gemm_pack, stream, &p) : QN_OK;
}
