// SPDX-License-Identifier: Apache-2.0
// Host side of the family's GPU kernels: which problems each takes, its arguments, its grid.
#include "gemm.h"
#include "gemm_gpu.h"

static bool is_fp8(qni_dtype dtype) {
    return dtype == QNI_E4M3FN || dtype == QNI_E4M3FNUZ;
}

static uint8_t kernel_type(qni_dtype dtype) {
    switch (dtype) {
    case QNI_E4M3FN:
        return QK_E4M3FN;
    case QNI_E4M3FNUZ:
        return QK_E4M3FNUZ;
    case QNI_BF16:
        return QK_BF16;
    default:
        return QK_F32;
    }
}

const qni_gemm_kernel qni_gemm_kernels[QNI_NUM_GEMM_KERNELS] = {
    [QNI_GEMM_ANY] = {{.image = "gemm_any", .entry = "qk_gemm_any"}, 64, 64, 4},
    [QNI_GEMM_ANY_FP8] = {{.image = "gemm_any_fp8", .entry = "qk_gemm_any"}, 64, 64, 4},
    [QNI_GEMM_DECODE] = {{.image = "gemm_decode", .entry = "qk_gemm_decode"}, 32, 32, 8},
    [QNI_GEMM_FP8_128] =
        {{.image = "gemm_fp8_128x128", .entry = "qk_gemm_fp8", .uses_lds_dma = true}, 128, 128, 4},
    [QNI_GEMM_FP8_256] =
        {{.image = "gemm_fp8_256x128", .entry = "qk_gemm_fp8", .uses_lds_dma = true}, 256, 128, 4},
    [QNI_GEMM_FP8_FN] = {{.image = "gemm_fp8_fn_128x128", .entry = "qk_gemm_fp8"}, 128, 128, 4},
};

enum { MAX_THREADS = 512 }; // of any kernel here

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/** Tiles of `rows` rows that the grid must offer; each group may end with a part of one. */
static int64_t count_row_tiles(const qni_gemm_problem *p, int64_t rows) {
    return div_up(p->m, rows) + (p->grouping == QN_GEMM_GROUPED_ENDS ? p->groups : 0);
}

static int64_t count_workgroups(const qni_gemm_problem *p, int64_t rows, int64_t columns) {
    int64_t slabs = p->grouping == QN_GEMM_GROUPED_MASKED ? p->groups : 1;
    return count_row_tiles(p, rows) * div_up(p->n, columns) * slabs;
}

/** Kernels count rows, columns and k in 32 bits, and a grid has fewer than 2^32 threads. */
static bool fits_grid(const qni_gemm_problem *p, const qni_gemm_kernel *kernel, qni_reason *why) {
    if (p->m > INT32_MAX || p->n > INT32_MAX - 128 || p->k > INT32_MAX - 128)
        return qni_no(why, "m=%ld n=%ld k=%ld: needs dimensions below 2^31", (long)p->m, (long)p->n,
                      (long)p->k);
    int64_t workgroups = count_workgroups(p, kernel->rows, kernel->columns);
    if (workgroups > UINT32_MAX / MAX_THREADS)
        return qni_no(why, "%ld workgroups, a grid holds %u", (long)workgroups,
                      UINT32_MAX / MAX_THREADS);
    return true;
}

static qk_gemm_args kernel_args(const qni_gemm_problem *p, int64_t rows, int64_t columns) {
    bool is_masked = p->grouping == QN_GEMM_GROUPED_MASKED;
    bool is_scaled = is_fp8(p->dtype_a);
    return (qk_gemm_args){
        .d = p->d,
        .a = p->a,
        .b = p->b,
        .c = p->c,
        .scale_a = is_scaled ? p->scale_a : nullptr,
        .scale_b = is_scaled ? p->scale_b : nullptr,
        .layout = p->layout,
        .d_group = is_masked ? p->d_group : 0,
        .d_row = p->d_row,
        .c_row = p->c_row,
        .a_group = is_masked ? p->a_group : 0,
        .a_row = p->a_row,
        .a_k = p->a_k,
        .b_group = p->is_packed ? p->packed_n * p->packed_k : p->b_group,
        .b_n = p->b_n,
        .b_k = p->b_k,
        .scale_a_group = is_masked ? p->scale_a_group : 0,
        .scale_a_row = p->scale_a_row,
        .scale_a_kb = p->scale_a_kb,
        .scale_b_group = p->scale_b_group,
        .scale_b_nb = p->scale_b_nb,
        .m = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .groups = (uint32_t)p->groups,
        .m_alignment = (uint32_t)(p->m_alignment < p->m ? p->m_alignment : p->m),
        .tiles_m = (uint32_t)count_row_tiles(p, rows),
        .tiles_n = (uint32_t)div_up(p->n, columns),
        .packed_k = (uint32_t)p->packed_k,
        .grouping = (uint8_t)p->grouping,
        .type_a = kernel_type(p->dtype_a),
        .type_b = kernel_type(p->dtype_b),
        .type_d = kernel_type(p->dtype_d),
        .is_packed = p->is_packed,
        .zero_padding = p->zero_padding,
    };
}

qn_status qni_gemm_launch(qn_stream *stream, const qni_gemm_kernel *kernel,
                          const qni_gemm_problem *p) {
    qk_gemm_args args = kernel_args(p, kernel->rows, kernel->columns);
    const uint32_t grid[3] = {(uint32_t)count_workgroups(p, kernel->rows, kernel->columns), 1, 1};
    uint32_t threads = kernel->waves * (uint32_t)stream->device->info.wave_size;
    return qni_launch(stream, &kernel->ref, grid, threads, &args, sizeof args);
}

// ---- gemm.any: run-time bounds, any shape

bool qni_gemm_any_supports(const qn_device *device, const void *problem, qni_reason *why) {
    (void)device;
    return fits_grid(problem, &qni_gemm_kernels[QNI_GEMM_ANY], why);
}

/** Whether the device's own FP8 matrix cores can take both operands; else they become bf16. */
static bool fits_fp8_cores(const qn_device *device, const qni_gemm_problem *p) {
    if (!is_fp8(p->dtype_a))
        return false;
    if (qni_has(device, QNI_F(MFMA_FP8_FNUZ)))
        return true; // e4m3fn is repaired on the way
    bool is_ocp = device->features & (QNI_F(MFMA_FP8_OCP) | QNI_F(WMMA_GFX12));
    return is_ocp && p->dtype_a == QNI_E4M3FN && p->dtype_b == QNI_E4M3FN;
}

qn_status qni_gemm_any(qn_stream *stream, const void *problem) {
    bool is_fp8 = fits_fp8_cores(stream->device, problem);
    return qni_gemm_launch(stream, &qni_gemm_kernels[is_fp8 ? QNI_GEMM_ANY_FP8 : QNI_GEMM_ANY],
                           problem);
}

// ---- gemm.fp8_decode, gemm.fp8_mfma*: packed weights on gfx942

/** The kind of FP8 that CDNA's matrix cores take. */
static qni_dtype core_dtype(const qn_device *device) {
    if (qni_has(device, QNI_F(MFMA_FP8_FNUZ)))
        return QNI_E4M3FNUZ;
    return qni_has(device, QNI_F(MFMA_FP8_OCP)) ? QNI_E4M3FN : QNI_DTYPE_NONE;
}

static bool is_core_dtype(const qn_device *device, const char *name, qni_dtype dtype,
                          qni_reason *why) {
    if (core_dtype(device) == QNI_DTYPE_NONE)
        return qni_no(why, "the device has no FP8 matrix cores of CDNA");
    if (dtype == core_dtype(device))
        return true;
    return qni_no(why, "%s is %s, the matrix cores take %s", name, qni_dtype_name(dtype),
                  qni_dtype_name(core_dtype(device)));
}

/** What every kernel for packed weights needs: offsets within a tile in 31 bits, a in dwords. */
static bool fits_packed(const qn_device *device, const qni_gemm_problem *p,
                        const qni_gemm_kernel *kernel, qni_reason *why) {
    int64_t kb = div_up(p->k, 128);
    if (!is_fp8(p->dtype_a) || !p->is_packed)
        return qni_no(why, "b is not packed (qn_gemm_pack)");
    if (!is_core_dtype(device, "b", p->dtype_b, why))
        return false;
    if (p->a_k != 1)
        return qni_no(why, "k is not contiguous in a");
    if ((uintptr_t)p->a % 4 != 0 || p->a_row % 4 != 0 || p->a_group % 4 != 0)
        return qni_no(why, "a's rows are not 4-byte aligned");
    if (p->a_row > INT32_MAX / kernel->rows || p->k > INT32_MAX / 256)
        return qni_no(why, "k=%ld, row stride %ld: a tile of a or b passes 2 GiB", (long)p->k,
                      (long)p->a_row);
    if ((p->scale_a_row * kernel->rows + p->scale_a_kb * kb) > INT32_MAX / 4)
        return qni_no(why, "scale_a's strides %ld, %ld: a tile passes 2 GiB", (long)p->scale_a_row,
                      (long)p->scale_a_kb);
    return fits_grid(p, kernel, why);
}

/** Rows that a group is likely to have. */
static int64_t likely_rows(const qni_gemm_problem *p) {
    if (p->grouping == QN_GEMM_GROUPED_MASKED)
        return p->expected_m < p->m ? p->expected_m : p->m;
    return div_up(p->m, p->groups);
}

/** Whether tiles of 256 x 128, which do more for each byte they read, keep every compute unit busy twice. */
static bool is_large(const qn_device *device, const qni_gemm_problem *p) {
    return p->grouping != QN_GEMM_GROUPED_INDEX && likely_rows(p) > 128 &&
           count_workgroups(p, 256, 128) >= 2 * device->info.num_compute_units;
}

bool qni_gemm_decode_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (likely_rows(p) > 2 * qni_gemm_kernels[QNI_GEMM_DECODE].rows)
        return qni_no(why, "about %ld rows a group: weights would be read more than twice",
                      (long)likely_rows(p));
    if (p->dtype_a != QNI_E4M3FN && !is_core_dtype(device, "a", p->dtype_a, why))
        return false;
    return fits_packed(device, p, &qni_gemm_kernels[QNI_GEMM_DECODE], why);
}

qn_status qni_gemm_decode(qn_stream *stream, const void *problem) {
    return qni_gemm_launch(stream, &qni_gemm_kernels[QNI_GEMM_DECODE], problem);
}

bool qni_gemm_fp8_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (!is_core_dtype(device, "a", p->dtype_a, why) ||
        !fits_packed(device, p, &qni_gemm_kernels[QNI_GEMM_FP8_128], why))
        return false;
    if (is_large(device, p))
        return qni_no(why, "large enough for the tile of 256 x 128");
    return true;
}

bool qni_gemm_fp8_large_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->grouping == QN_GEMM_GROUPED_INDEX)
        return qni_no(why, "groups begin at multiples of 128 rows, the tile has 256");
    return is_core_dtype(device, "a", p->dtype_a, why) &&
           fits_packed(device, p, &qni_gemm_kernels[QNI_GEMM_FP8_256], why);
}

bool qni_gemm_fp8_fn_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_gemm_problem *p = problem;
    if (p->dtype_a != QNI_E4M3FN)
        return qni_no(why, "a is %s, takes e4m3fn", qni_dtype_name(p->dtype_a));
    return fits_packed(device, p, &qni_gemm_kernels[QNI_GEMM_FP8_FN], why);
}

qn_status qni_gemm_fp8(qn_stream *stream, const void *problem) {
    return qni_gemm_launch(stream, &qni_gemm_kernels[QNI_GEMM_FP8_128], problem);
}

qn_status qni_gemm_fp8_large(qn_stream *stream, const void *problem) {
    return qni_gemm_launch(stream, &qni_gemm_kernels[QNI_GEMM_FP8_256], problem);
}

qn_status qni_gemm_fp8_fn(qn_stream *stream, const void *problem) {
    return qni_gemm_launch(stream, &qni_gemm_kernels[QNI_GEMM_FP8_FN], problem);
}

// ---- gemm_pack.gpu

static int64_t count_pack_blocks(const qni_gemm_pack_problem *p) {
    return p->groups * (p->packed_n / QK_PACK_ROWS) * (p->packed_k / QK_PACK_K);
}

bool qni_gemm_pack_gpu_supports(const qn_device *device, const void *problem, qni_reason *why) {
    (void)device;
    const qni_gemm_pack_problem *p = problem;
    if (p->packed_n > INT32_MAX || p->packed_k > INT32_MAX / QK_PACK_ROWS)
        return qni_no(why, "n=%ld k=%ld: needs n below 2^31, k below 2^26", (long)p->n, (long)p->k);
    if (count_pack_blocks(p) > UINT32_MAX / 256)
        return qni_no(why, "%ld workgroups, a grid holds %u", (long)count_pack_blocks(p),
                      UINT32_MAX / 256);
    return true;
}

qn_status qni_gemm_pack_gpu(qn_stream *stream, const void *problem) {
    static const qni_kernel_ref kernel = {.image = "gemm_pack", .entry = "qk_gemm_pack"};
    const qni_gemm_pack_problem *p = problem;
    qk_gemm_pack_args args = {
        .packed = p->packed,
        .packed_scale = p->packed_scale,
        .b = p->b,
        .scale_b = p->scale_b,
        .b_group = p->b_group,
        .b_n = p->b_n,
        .scale_b_group = p->scale_b_group,
        .scale_b_nb = p->scale_b_nb,
        .groups = (uint32_t)p->groups,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .packed_n = (uint32_t)p->packed_n,
        .packed_k = (uint32_t)p->packed_k,
        .fn_to_fnuz = p->dtype_in != p->dtype_out,
    };
    const uint32_t grid[3] = {(uint32_t)count_pack_blocks(p), 1, 1};
    return qni_launch(stream, &kernel, grid, 256, &args, sizeof args);
}
