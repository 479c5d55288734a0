// SPDX-License-Identifier: Apache-2.0
// The gemm kernel with run-time bounds: any shape, strides, grouping and mix of types, on every
// target.
//
// Needs     a matrix core: bf16, or with -DQK_FP8 the target's own kind of FP8 (gfx942, gfx950,
//           gfx12)
// Tile      64 x 64 x 128; 4 waves as 2 x 2, each 32 x 32 = 2 x 2 tiles of gpu/mma.h
// Launch    4 waves; grid = tiles_m * tiles_n (* groups when masked), n fastest
// LDS       18 KiB: a's and b's tile of 128 k as FP8, 64 k as bf16, each row padded by eight
//           elements; so that several workgroups share a compute unit, and one loads while another
//           multiplies. QK_FULL: 24 KiB more
// QK_FULL   all forms of gemm_full_gpu.h. For d of FP8 a workgroup multiplies two or four tiles of
//           64 columns, one after the other, which make 128 columns of d: a group of quantize's
// QK_MIXED  with QK_FULL: operands of any type (gemm_any_types_gpu.h), scales of any type and form
//           of either; exponents become f32 where they are read, and 2^-127 a subnormal one
// Edges     rows and k past the end are zero in LDS and never read from memory; c, bias and gate
//           are read only if given
// FP8       without QK_FP8, and where a kind is not the target's, elements become bf16 on the way
//           to LDS; gfx942 with QK_FP8 takes e4m3fn as e4m3fnuz of half the value, which the scale
//           makes good
//           On gfx950 one product has all 128 k of a stage (cdna_fp8.h)
// Sum       an f32 partial for each 128 of k, scaled, added to the f32 sum; without scales: by 1
#include "fp8.h"
#include "gemm_full_gpu.h"
#include "mma.h"
#ifdef QK_FP8
#include "mma/cdna_fp8.h" // nothing on other targets
#endif
#ifdef QK_MIXED
#include "gemm_any_types_gpu.h"
#endif

enum { TILE = 64, BLOCK_K = 128, WAVES = 4, WAVE_TILES = 2, CHUNK = 8 };
enum { THREADS = WAVES * QD_WAVE };
#ifdef QK_FP8
enum { ELEMENT_BYTES = 1 };
typedef qd_u32x2 chunk; // CHUNK elements as they lie in LDS
#ifdef QD_MMA16_K_LONG
enum { MMA_K = QD_MMA16_K_LONG };
typedef qd_mma16_long fragment;
#define MMA(how, x, y, d) ((void)(how), qd_mma16_fp8_long(x, y, d))
#define READ qd_mma16_read_long
#define FIRST_K qd_mma16_k_long
#else
enum { MMA_K = QD_MMA16_K };
typedef qd_mma16_codes fragment;
#define MMA(how, x, y, d) ((void)(how), qd_mma16_fp8(x, y, d))
#define READ qd_mma16_read_fp8
#define FIRST_K qd_mma16_k_fp8
#endif
#else
enum { MMA_K = QD_MMA16_K };
enum { ELEMENT_BYTES = 2 };
typedef qd_u32x4 chunk;
typedef qd_mma16_operand fragment;
#define MMA(how, x, y, d) qd_mma16((how) == QK_BY_F16, x, y, d)
#define READ qd_mma16_read
#define FIRST_K qd_mma16_k
#endif
enum { STAGE_K = BLOCK_K / ELEMENT_BYTES, ROW_BYTES = STAGE_K * ELEMENT_BYTES + sizeof(chunk) };

[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_a[TILE * ROW_BYTES]
    __attribute__((aligned(16)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t lds_b[TILE * ROW_BYTES]
    __attribute__((aligned(16)));

/** A matrix of rows and k, from which tiles are taken. */
typedef struct operand {
    const uint8_t *base;
    int64_t row_bytes, k_bytes; // strides; unused when packed
    uint32_t rows, k;           // what lies beyond reads as zero
    uint32_t packed_k;          // 0: not packed
    int type;
} operand;

#ifndef QK_MIXED
QD_INLINE uint32_t element_bytes(int type) {
    return type == QK_BF16 ? 2 : 1;
}

/** Loads eight elements of consecutive k at p, of which `count` exist; the others are zero. */
QD_INLINE qd_u32x4 load_eight(const uint8_t *p, int64_t step, uint32_t count, uint32_t size) {
    if (step == size && count >= CHUNK && (uintptr_t)p % (CHUNK * size) == 0) {
        if (size == 2)
            return *(const qd_u32x4 *)p;
        qd_u32x2 bytes = *(const qd_u32x2 *)p;
        return (qd_u32x4){bytes.x, bytes.y, 0, 0};
    }
    qd_u32x4 out = 0;
    QD_UNROLL for (uint32_t i = 0; i < CHUNK; i++) {
        if (i >= count)
            continue;
        const uint8_t *element = p + i * step;
        const uint32_t bits = size == 1 ? *element : *(const uint16_t *)element;
        out[i * size / 4] |= bits << (i * size % 4 * 8);
    }
    return out;
}

/** Returns FP8 codes as the LDS tile holds them. */
QD_INLINE chunk convert_fp8(qd_u32x2 codes, int type) {
#ifndef QK_FP8
    const uint32_t in[2] = {codes.x, codes.y};
    uint32_t out[4];
    qd_fp8_to_bf16(type == QK_E4M3FN ? QD_E4M3FN : QD_E4M3FNUZ, in, out);
    return (chunk){out[0], out[1], out[2], out[3]};
#else
    if (QD_FP8_USUAL != QD_E4M3FNUZ || type == QK_E4M3FNUZ)
        return codes;
    return (chunk){qd_fp8_fnuz_from_fn(codes.x), qd_fp8_fnuz_from_fn(codes.y)};
#endif
}

/** Loads elements k..k+7 of a row and converts them. */
QD_INLINE chunk fetch(const operand *x, uint32_t row, uint32_t k) {
    if (row >= x->rows || k >= x->k)
        return 0;
    const uint32_t count = x->k - k;
#ifndef QK_FP8
    if (x->type == QK_BF16)
        return load_eight(x->base + row * x->row_bytes + k * x->k_bytes, x->k_bytes, count, 2);
#endif
    const uint8_t *p = x->packed_k ? x->base + qk_gemm_packed_offset(row, k, x->packed_k)
                                   : x->base + row * x->row_bytes + k * x->k_bytes;
    qd_u32x4 codes = load_eight(p, x->packed_k ? 1 : x->k_bytes, count, 1);
    return convert_fp8(codes.xy, x->type);
}

QD_INLINE void put(QD_LDS uint8_t *to, const operand *x, uint32_t row, uint32_t k, int) {
    *(QD_LDS chunk *)to = fetch(x, row, k);
}
#else
/** Puts elements k..k+7 of a row into LDS at `to`, in the form that `how` says. */
QD_INLINE void put(QD_LDS uint8_t *to, const operand *x, uint32_t row, uint32_t k, int how) {
    qd_u32x8 raw = 0;
    if (row < x->rows && k < x->k) {
        const uint32_t count = x->k - k, size = element_bytes(x->type);
        const uint8_t *p = x->packed_k ? x->base + qk_gemm_packed_offset(row, k, x->packed_k)
                                       : x->base + row * x->row_bytes + k * x->k_bytes;
        const int64_t step = x->packed_k ? 1 : x->k_bytes;
        raw = size == 4   ? load_any(p, step, count, 4)
              : size == 2 ? load_any(p, step, count, 2)
                          : load_any(p, step, count, 1);
    }
    put_elements(to, x->type, raw, how);
}
#endif

/** Returns the k of a stage. */
QD_INLINE uint32_t stage_k(int how) {
    return how == QK_BY_PARTS ? STAGE_K / 2 : STAGE_K;
}

/** Copies a stage's rows and k, from `row` and k on, to LDS. Neighbouring lanes take neighbours
 *  along the contiguous dimension. */
QD_INLINE void stage(QD_LDS uint8_t *lds, const operand *x, uint32_t row, uint32_t k, int how) {
    const uint32_t per_row = stage_k(how) / CHUNK, shift = (uint32_t)__builtin_ctz(per_row);
    const bool by_rows = !x->packed_k && x->k_bytes > 4;
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < TILE * per_row; i += THREADS) {
        const uint32_t r = by_rows || x->packed_k ? i % TILE : i >> shift;
        const uint32_t c = by_rows || x->packed_k ? i / TILE : i & (per_row - 1);
        put(lds + r * ROW_BYTES + c * sizeof(chunk), x, row + r, k + c * CHUNK, how);
    }
}

QD_INLINE fragment load_fragment(const QD_LDS uint8_t *lds, uint32_t row, uint32_t k) {
    return READ(lds + row * ROW_BYTES + k * ELEMENT_BYTES, ROW_BYTES);
}

/** Adds the product of what is in LDS to this wave's 2 x 2 tiles: MMA_K elements, of b from
 *  `of_b` and of a from `of_a` on. */
QD_INLINE void multiply_at(qd_mma16_acc part[WAVE_TILES][WAVE_TILES], uint32_t wave_n,
                           uint32_t wave_m, uint32_t of_b, uint32_t of_a, int how) {
    const uint32_t row = qd_mma16_column(qd_lane(), 0), k0 = FIRST_K(qd_lane());
    fragment x[WAVE_TILES], y[WAVE_TILES];
    QD_UNROLL for (int i = 0; i < WAVE_TILES; i++) {
        x[i] = load_fragment(lds_b, wave_n + 16 * i + row, k0 + of_b);
        y[i] = load_fragment(lds_a, wave_m + 16 * i + row, k0 + of_a);
    }
    QD_UNROLL for (int i = 0; i < WAVE_TILES; i++) QD_UNROLL
        for (int j = 0; j < WAVE_TILES; j++)
            part[i][j] = MMA(how, x[i], y[j], part[i][j]);
}

/** Adds the product of what is in LDS to this wave's 2 x 2 tiles. */
QD_INLINE void multiply_stage(qd_mma16_acc part[WAVE_TILES][WAVE_TILES], uint32_t wave_n,
                              uint32_t wave_m, int how) {
    QD_UNROLL_BY(2)
    for (uint32_t k = 0; k < STAGE_K; k += MMA_K)
        multiply_at(part, wave_n, wave_m, k, k, how);
}

/** The same, of rows' parts: high high, high low, low high. */
QD_INLINE void multiply_parts(qd_mma16_acc part[WAVE_TILES][WAVE_TILES], uint32_t wave_n,
                              uint32_t wave_m) {
    constexpr uint32_t half = STAGE_K / 2;
    QD_NO_UNROLL for (uint32_t i = 0; i < 3; i++) QD_UNROLL
        for (uint32_t k = 0; k < half; k += MMA_K)
            multiply_at(part, wave_n, wave_m, i / 2 * half + k, i % 2 * half + k, QK_BY_BF16);
}

QD_INLINE void multiply(qd_mma16_acc part[WAVE_TILES][WAVE_TILES], uint32_t wave_n, uint32_t wave_m,
                        int how) {
    if (how == QK_BY_PARTS)
        multiply_parts(part, wave_n, wave_m);
    else if (how == QK_BY_F16)
        multiply_stage(part, wave_n, wave_m, QK_BY_F16);
    else
        multiply_stage(part, wave_n, wave_m, QK_BY_BF16);
}

#ifndef QK_MIXED
typedef qk_gemm_args product;

QD_INLINE const qk_gemm_args *args_of(const product *g) {
    return g;
}
QD_INLINE int how_of(const product *) {
    return QK_BY_BF16;
}

/** Returns the product of both scales for a row of a and the n-block of 128 that holds n. */
QD_INLINE float scale_of(const qk_gemm_args *g, uint32_t group, uint32_t m, uint32_t n,
                         uint32_t kb) {
    if (!g->scale_a || m >= g->m)
        return 1.0f;
    const float a = g->scale_a[group * g->scale_a_group + m * g->scale_a_row + kb * g->scale_a_kb];
    float b = g->scale_b[group * g->scale_b_group + n / 128 * g->scale_b_nb + kb];
#ifdef QK_FP8
    if (QD_FP8_USUAL == QD_E4M3FNUZ)
        b *= (g->type_a == QK_E4M3FN ? 2.0f : 1.0f) * (g->type_b == QK_E4M3FN ? 2.0f : 1.0f);
#endif
    return a * b;
}

/** Adds a K-block's partial sums, scaled, to the sums. */
QD_INLINE void add_scaled(const product *g, const qk_gemm_tile *tile, uint32_t n0, uint32_t kb,
                          uint32_t lane, uint32_t, uint32_t wave_m,
                          const qd_mma16_acc part[WAVE_TILES][WAVE_TILES],
                          qd_mma16_acc acc[WAVE_TILES][WAVE_TILES]) {
    QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) {
        float scale[QD_MMA16_OWN];
        QD_UNROLL for (uint32_t own = 0; own < QD_MMA16_OWN; own++) {
            const uint32_t m = tile->row + wave_m + 16 * j + qd_mma16_column(lane, own);
            scale[own] = scale_of(g, tile->group, m, n0, kb);
        }
        const qd_mma16_acc scales = qd_mma16_spread(scale);
        QD_UNROLL for (int i = 0; i < WAVE_TILES; i++)
            acc[i][j] = __builtin_elementwise_fma(part[i][j], scales, acc[i][j]);
    }
}
#else
typedef qk_gemm_mixed_args product;

QD_INLINE const qk_gemm_args *args_of(const product *x) {
    return &x->f.g;
}
QD_INLINE int how_of(const product *x) {
    return x->how;
}

/** Returns the scale of K-block kb, where that of block 0 is element `at`. */
QD_INLINE float scale_at(const float *scales, int type, int64_t at, uint32_t kb,
                         int64_t kb_stride) {
    const uint32_t shift = type == QK_I32 ? 2 : 0; // a word has the exponents of four K-blocks
    const int64_t i = at + (kb >> shift) * kb_stride;
    if (type == QK_F32)
        return scales[i];
    const uint32_t e = ((const uint8_t *)scales)[(i << shift) + (kb & ((1u << shift) - 1))];
    return qd_as_f32(e == 0 ? 0x00400000 : e == 255 ? 0x7FC00000 : e << 23);
}

/** Returns a's scales of a 16 x 16 tile from row m on. */
QD_INLINE qd_mma16_acc scales_a(const product *x, uint32_t group, uint32_t m, uint32_t kb,
                                uint32_t lane) {
    const qk_gemm_args *g = &x->f.g;
    float scale[QD_MMA16_OWN];
    QD_UNROLL for (uint32_t own = 0; own < QD_MMA16_OWN; own++) {
        const uint32_t row = m + qd_mma16_column(lane, own);
        const int64_t at = group * g->scale_a_group + row * g->scale_a_row;
        scale[own] = g->scale_a && row < g->m
                         ? scale_at(g->scale_a, x->type_scale_a, at, kb, g->scale_a_kb)
                         : 1.0f;
    }
    return qd_mma16_spread(scale);
}

/** Returns b's scales of a 16 x 16 tile from column n on. */
QD_INLINE qd_mma16_acc scales_b(const product *x, uint32_t group, uint32_t n, uint32_t kb,
                                uint32_t lane) {
    const qk_gemm_args *g = &x->f.g;
    qd_mma16_acc scales;
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA16_ACC; e++) {
        const uint32_t column = n + qd_mma16_row(lane, e);
        const uint32_t nb = x->scale_b_columns == 1 ? column : column / 128;
        const int64_t at = group * g->scale_b_group + nb * g->scale_b_nb;
        scales[e] = g->scale_b && column < g->n
                        ? scale_at(g->scale_b, x->type_scale_b, at, kb, x->scale_b_kb)
                        : 1.0f;
    }
    return scales;
}

/** Adds a K-block's partial sums, scaled, to the sums. */
QD_INLINE void add_scaled(const product *x, const qk_gemm_tile *tile, uint32_t n0, uint32_t kb,
                          uint32_t lane, uint32_t wave_n, uint32_t wave_m,
                          const qd_mma16_acc part[WAVE_TILES][WAVE_TILES],
                          qd_mma16_acc acc[WAVE_TILES][WAVE_TILES]) {
    const product y = *(const product *)qd_reread(x); // the loop does not keep what this needs
    qd_mma16_acc a[WAVE_TILES];
    QD_UNROLL for (int j = 0; j < WAVE_TILES; j++)
        a[j] = scales_a(&y, tile->group, tile->row + wave_m + 16 * j, kb, lane);
    QD_UNROLL for (int i = 0; i < WAVE_TILES; i++) {
        const qd_mma16_acc b = scales_b(&y, tile->group, n0 + wave_n + 16 * i, kb, lane);
        QD_UNROLL for (int j = 0; j < WAVE_TILES; j++)
            acc[i][j] = __builtin_elementwise_fma(part[i][j], a[j] * b, acc[i][j]);
    }
}
#endif

QD_INLINE operand operand_a(const qk_gemm_args *g, const qk_gemm_tile *tile) {
    const int size = (int)element_bytes(g->type_a);
    return (operand){.base = (const uint8_t *)g->a + tile->group * g->a_group * size,
                     .row_bytes = g->a_row * size,
                     .k_bytes = g->a_k * size,
                     .rows = tile->end,
                     .k = g->k,
                     .type = g->type_a};
}

QD_INLINE operand operand_b(const qk_gemm_args *g, const qk_gemm_tile *tile) {
    const int size = (int)element_bytes(g->type_b);
    return (operand){.base = (const uint8_t *)g->b + tile->group * g->b_group * size,
                     .row_bytes = g->b_n * size,
                     .k_bytes = g->b_k * size,
                     .rows = g->n,
                     .k = g->k,
                     .packed_k = g->is_packed ? g->packed_k : 0,
                     .type = g->type_b};
}

#ifndef QK_MIXED
/** Copies a stage of both operands to LDS. */
QD_INLINE void stage_both(const product *, const qk_gemm_tile *tile, const operand *a,
                          const operand *b, uint32_t n0, uint32_t k, int how) {
    stage(lds_a, a, tile->row, k, how);
    stage(lds_b, b, n0, k, how);
}
#else
/** The same, by arguments that are read anew, so that the rest of the loop over k has room. */
QD_INLINE void stage_both(const product *x, const qk_gemm_tile *tile, const operand *,
                          const operand *, uint32_t n0, uint32_t k, int how) {
    const product y = *(const product *)qd_reread(x);
    const operand of_a = operand_a(&y.f.g, tile);
    stage(lds_a, &of_a, tile->row, k, how);
    const product z = *(const product *)qd_reread(x);
    const operand of_b = operand_b(&z.f.g, tile);
    stage(lds_b, &of_b, n0, k, how);
}
#endif

/** Adds this wave's product in the tile of 64 columns from n0 on: sums of tiles, i along n. */
QD_INLINE void add_products(const product *x, const qk_gemm_tile *tile, const operand *a,
                            const operand *b, uint32_t n0, uint32_t lane, uint32_t wave_n,
                            uint32_t wave_m, qd_mma16_acc acc[WAVE_TILES][WAVE_TILES]) {
    const qk_gemm_args *g = args_of(x);
    const int how = how_of(x);
    for (uint32_t k = 0; k < g->k; k += BLOCK_K) {
        qd_mma16_acc part[WAVE_TILES][WAVE_TILES] = {};
        for (uint32_t at = k; at < qd_min(k + BLOCK_K, g->k); at += stage_k(how)) {
            qd_barrier();
            stage_both(x, tile, a, b, n0, at, how);
            qd_barrier();
            multiply(part, wave_n, wave_m, how);
        }
        add_scaled(x, tile, n0, k / BLOCK_K, lane, wave_n, wave_m, part, acc);
    }
}

#ifndef QK_FULL
QD_INLINE void store(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t m, uint32_t n,
                     float value) {
    bool is_zero;
    if (n >= g->n || !qk_gemm_writes_row(g, tile, m, &is_zero))
        return;
    if (g->has_epilogue)
        value = qk_gemm_finish(g, m, n, value);
    qk_gemm_store(g, tile, m, n, is_zero ? 0 : value);
}

QD_KERNEL(THREADS) qk_gemm_any(const qk_gemm_args g) {
    qk_gemm_tile tile;
    if (!qk_gemm_find_tile(&g, qd_block() / g.tiles_n, TILE, &tile))
        return;
    const uint32_t n0 = qd_block() % g.tiles_n * TILE, lane = qd_lane();
    const uint32_t wave_n = qd_wave() % 2 * 32, wave_m = qd_wave() / 2 * 32;
    operand a = operand_a(&g, &tile), b = operand_b(&g, &tile);
    qd_mma16_acc acc[WAVE_TILES][WAVE_TILES] = {};
    add_products(&g, &tile, &a, &b, n0, lane, wave_n, wave_m, acc);
    QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) QD_UNROLL
        for (int i = 0; i < WAVE_TILES; i++) QD_UNROLL
            for (uint32_t e = 0; e < QD_MMA16_ACC; e++) {
                const uint32_t column = qd_mma16_column(lane, e / (QD_MMA16_ACC / QD_MMA16_OWN));
                store(&g, &tile, tile.row + wave_m + 16 * j + column,
                      n0 + wave_n + 16 * i + qd_mma16_row(lane, e), acc[i][j][e]);
            }
}
#else
// ---- the full form: d of FP8 goes through LDS as f32, 128 columns at a time

// The results of all tiles of 64 columns but the last, which lie where a and b lay.
[[clang::loader_uninitialized]] static QD_LDS float lds_d[TILE * 96];

/** Returns the place in LDS of a column of d, of the workgroup's 128. */
QD_INLINE QD_LDS float *result_at(uint32_t row, uint32_t column, uint32_t ratio) {
    const uint32_t width = TILE / ratio, i = column / width, in = column % width;
    if (i < 2 * ratio - 1)
        return lds_d + (i * TILE + row) * width + in;
    QD_LDS uint8_t *half = row < TILE / 2 ? lds_a : lds_b;
    return (QD_LDS float *)half + row % (TILE / 2) * width + in;
}
static_assert(TILE / 2 * TILE * sizeof(float) <= sizeof lds_a);

/** Puts a result where it belongs: into d or, as d's first column of the workgroup is d0, LDS. */
QD_INLINE void put_result(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                          uint32_t column, uint32_t d0, uint32_t ratio, float value) {
    bool is_zero;
    if (qk_gemm_has_codes(g))
        *result_at(row - tile->row, column - d0, ratio) = value;
    else if (column < g->n / ratio && qk_gemm_writes_row(g, tile, row, &is_zero))
        qk_gemm_store_element(g, tile, row, column, is_zero ? 0 : value);
}

/** Ends a 16 x 16 tile whose first row and column are m and n. */
QD_INLINE void end_tile(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t m, uint32_t n,
                        uint32_t d0, uint32_t ratio, qd_mma16_acc x) {
    const uint32_t lane = qd_lane();
    if (g->bias) QD_UNROLL
        for (uint32_t e = 0; e < QD_MMA16_ACC; e++)
            x[e] += qk_gemm_vector_at(g->bias, g->type_bias,
                                      qd_min(n + qd_mma16_row(lane, e), g->n - 1));
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA16_ACC; e += ratio) {
        const uint32_t row = m + qd_mma16_column(lane, e / (QD_MMA16_ACC / QD_MMA16_OWN));
        const uint32_t column =
            ratio == 2 ? n / 2 + qd_mma16_pair_of(lane, e) : n + qd_mma16_row(lane, e);
        float value = x[e];
        if (ratio == 2) {
            const qd_f32x2 pair = qd_mma16_pair(x, e);
            value = qd_silu(pair.x) * pair.y;
        } else if (g->activation == QK_GELU_TANH) {
            value = qd_gelu_tanh(value);
        }
        if (g->gate)
            value *= qk_gemm_gate(g, qd_min(row, g->m - 1), qd_min(column, g->n / ratio - 1));
        put_result(g, tile, row, column, d0, ratio, value);
    }
}

#ifndef QK_MIXED
typedef qk_gemm_full_args arguments;

QD_INLINE const qk_gemm_full_args *full_of(const arguments *f) {
    return f;
}
QD_INLINE product product_of(const arguments *f) {
    return f->g;
}
#else
typedef qk_gemm_mixed_args arguments;

QD_INLINE const qk_gemm_full_args *full_of(const arguments *x) {
    return &x->f;
}
QD_INLINE product product_of(const arguments *x) {
    return *x;
}
#endif

/** Adds the products of a tile whose first column is n, by arguments that are read anew, so that
 *  what the turns of run_tiles keep leaves room for the loop over k. */
QD_INLINE void add_anew(const arguments *all, const qk_gemm_tile *tile, uint32_t n, uint32_t wave_n,
                        uint32_t wave_m, qd_mma16_acc acc[WAVE_TILES][WAVE_TILES]) {
    const product x = product_of((const arguments *)qd_reread(all));
    const operand a = operand_a(args_of(&x), tile), b = operand_b(args_of(&x), tile);
    add_products(&x, tile, &a, &b, n, qd_lane(), wave_n, wave_m, acc);
}

/** Computes `tiles` tiles of 64 columns of the product, side by side from n0 on. */
QD_INLINE void run_tiles(const arguments *all, const qk_gemm_tile *tile, uint32_t n0,
                         uint32_t tiles) {
    const qk_gemm_full_args *f = full_of(all);
    const uint32_t wave_n = qd_wave() % 2 * 32, wave_m = qd_wave() / 2 * 32;
    QD_NO_UNROLL for (uint32_t t = 0; t < tiles; t++) {
        const uint32_t n = n0 + t * TILE;
        qd_mma16_acc acc[WAVE_TILES][WAVE_TILES] = {};
        if (n < f->g.n) // scale_b has no blocks past b's rows
            add_anew(all, tile, n, wave_n, wave_m, acc);
        const qk_gemm_args g = qk_gemm_reread(f, tile).g;
        if (t + 1 == tiles)
            qd_barrier(); // no wave reads a and b any more
        QK_GEMM_EACH_RATIO(&g, {
            QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) QD_UNROLL
                for (int i = 0; i < WAVE_TILES; i++)
                    end_tile(&g, tile, tile->row + wave_m + 16 * j, n + wave_n + 16 * i, n0 / ratio,
                             ratio, acc[i][j]);
        })
    }
}

/** Quantises what lies in LDS; 16 lanes take a row. */
QD_INLINE void quantize(const qk_gemm_full_args *f, const qk_gemm_tile *tile, uint32_t d0,
                        uint32_t ratio) {
    const uint32_t column = qd_thread() % QD_ROW * QD_RUN;
    qd_barrier();
    QD_NO_UNROLL for (uint32_t r = qd_thread() / QD_ROW; r < TILE; r += THREADS / QD_ROW) {
        qd_f32x8 v;
        QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
            v[i] = *result_at(r, column + i, ratio);
        qk_gemm_quantize8(&f->g, &f->scaling, tile, tile->row + r, d0 + column, f->g.n / ratio, v);
    }
}

QD_KERNEL(THREADS) qk_gemm_any(const arguments all) {
    const qk_gemm_full_args *f = full_of(&all);
    qk_gemm_tile tile;
    if (!qk_gemm_find_tile(&f->g, qd_block() / f->g.tiles_n, TILE, &tile))
        return;
    const bool has_codes = qk_gemm_has_codes(&f->g);
    const uint32_t tiles = !has_codes ? 1 : f->g.activation == QK_SILU_AND_MUL ? 4 : 2;
    const uint32_t n0 = qd_block() % f->g.tiles_n * tiles * TILE;
    run_tiles(&all, &tile, n0, tiles);
    if (has_codes) {
        const qk_gemm_full_args again = *(const qk_gemm_full_args *)qd_reread(f);
        QK_GEMM_EACH_RATIO(&again.g, { quantize(&again, &tile, n0 / ratio, ratio); })
    }
}
#endif
