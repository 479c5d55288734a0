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
//           multiplies
// Edges     rows and k past the end are zero in LDS and never read from memory; c, bias and gate
//           are read only if given
// FP8       without QK_FP8, and where a kind is not the target's, elements become bf16 on the way
//           to LDS; gfx942 with QK_FP8 takes e4m3fn as e4m3fnuz of half the value, which the scale
//           makes good
// Sum       an f32 partial for each 128 of k, scaled, added to the f32 sum; bf16 operands: scale 1
#include "fp8.h"
#include "gemm_full_gpu.h"
#include "mma.h"

enum { TILE = 64, BLOCK_K = 128, WAVES = 4, WAVE_TILES = 2, CHUNK = 8 };
enum { THREADS = WAVES * QD_WAVE };
#ifdef QK_FP8
enum { ELEMENT_BYTES = 1 };
typedef qd_u32x2 chunk; // CHUNK elements as they lie in LDS
typedef qd_mma16_codes fragment;
#define MMA qd_mma16_fp8
#define READ qd_mma16_read_fp8
#define FIRST_K qd_mma16_k_fp8
#else
enum { ELEMENT_BYTES = 2 };
typedef qd_u32x4 chunk;
typedef qd_mma16_operand fragment;
#define MMA qd_mma16_bf16
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

/** Copies rows row..row+63, k..k+STAGE_K-1 to LDS. Neighbouring lanes take neighbours along the
 *  contiguous dimension. */
QD_INLINE void stage(QD_LDS uint8_t *lds, const operand *x, uint32_t row, uint32_t k) {
    constexpr uint32_t per_row = STAGE_K / CHUNK;
    const bool by_rows = !x->packed_k && x->k_bytes > 2;
    QD_NO_UNROLL for (uint32_t i = qd_thread(); i < TILE * per_row; i += THREADS) {
        const uint32_t r = by_rows || x->packed_k ? i % TILE : i / per_row;
        const uint32_t c = by_rows || x->packed_k ? i / TILE : i % per_row;
        *(QD_LDS chunk *)(lds + r * ROW_BYTES + c * sizeof(chunk)) =
            fetch(x, row + r, k + c * CHUNK);
    }
}

QD_INLINE fragment load_fragment(const QD_LDS uint8_t *lds, uint32_t row, uint32_t k) {
    return READ(lds + row * ROW_BYTES + k * ELEMENT_BYTES, ROW_BYTES);
}

/** Adds the product of what is in LDS to this wave's 2 x 2 tiles. */
QD_INLINE void multiply(qd_mma16_acc part[WAVE_TILES][WAVE_TILES], uint32_t wave_n,
                        uint32_t wave_m) {
    const uint32_t row = qd_mma16_column(qd_lane(), 0), k0 = FIRST_K(qd_lane());
    QD_UNROLL_BY(2) for (uint32_t k = 0; k < STAGE_K; k += QD_MMA16_K) {
        fragment x[WAVE_TILES], y[WAVE_TILES];
        QD_UNROLL for (int i = 0; i < WAVE_TILES; i++) {
            x[i] = load_fragment(lds_b, wave_n + 16 * i + row, k0 + k);
            y[i] = load_fragment(lds_a, wave_m + 16 * i + row, k0 + k);
        }
        QD_UNROLL for (int i = 0; i < WAVE_TILES; i++) QD_UNROLL
            for (int j = 0; j < WAVE_TILES; j++)
                part[i][j] = MMA(x[i], y[j], part[i][j]);
    }
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

QD_INLINE void store(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t m, uint32_t n,
                     float value) {
    bool is_zero;
    if (n >= g->n || !qk_gemm_writes_row(g, tile, m, &is_zero))
        return;
    if (g->has_epilogue)
        value = qk_gemm_finish(g, m, n, value);
    qk_gemm_store(g, tile, m, n, is_zero ? 0 : value);
}

/** Stores a lane's part of a 16 x 16 tile whose first row and column are m and n. */
QD_INLINE void store_tile(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t m, uint32_t n,
                          uint32_t lane, qd_mma16_acc values) {
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA16_ACC; e++) {
        const uint32_t column = qd_mma16_column(lane, e / (QD_MMA16_ACC / QD_MMA16_OWN));
        store(g, tile, m + column, n + qd_mma16_row(lane, e), values[e]);
    }
}

#ifdef QK_FULL
/** Stores the columns of d that are pairs of the tile's columns. */
QD_INLINE void store_pairs(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t m, uint32_t n,
                           uint32_t lane, qd_mma16_acc x) {
    const uint32_t columns = g->n / 2;
    if (g->bias) QD_UNROLL
        for (uint32_t e = 0; e < QD_MMA16_ACC; e++)
            x[e] += qk_gemm_vector_at(g->bias, g->type_bias,
                                      qd_min(n + qd_mma16_row(lane, e), g->n - 1));
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA16_ACC; e += 2) {
        const uint32_t row = m + qd_mma16_column(lane, e / (QD_MMA16_ACC / QD_MMA16_OWN));
        const uint32_t column = n / 2 + qd_mma16_pair_of(lane, e);
        const qd_f32x2 pair = qd_mma16_pair(x, e);
        float value = qd_silu(pair.x) * pair.y;
        bool is_zero;
        if (column >= columns || !qk_gemm_writes_row(g, tile, row, &is_zero))
            continue;
        if (g->gate)
            value *= qk_gemm_gate(g, row, column);
        qk_gemm_store(g, tile, row, column, is_zero ? 0 : value);
    }
}
#endif

QD_INLINE operand operand_a(const qk_gemm_args *g, const qk_gemm_tile *tile) {
    const int size = g->type_a == QK_BF16 ? 2 : 1;
    return (operand){.base = (const uint8_t *)g->a + tile->group * g->a_group * size,
                     .row_bytes = g->a_row * size,
                     .k_bytes = g->a_k * size,
                     .rows = tile->end,
                     .k = g->k,
                     .type = g->type_a};
}

QD_INLINE operand operand_b(const qk_gemm_args *g, const qk_gemm_tile *tile) {
    const int size = g->type_b == QK_BF16 ? 2 : 1;
    return (operand){.base = (const uint8_t *)g->b + tile->group * g->b_group * size,
                     .row_bytes = g->b_n * size,
                     .k_bytes = g->b_k * size,
                     .rows = g->n,
                     .k = g->k,
                     .packed_k = g->is_packed ? g->packed_k : 0,
                     .type = g->type_b};
}

QD_KERNEL(THREADS) qk_gemm_any(const qk_gemm_args g) {
    qk_gemm_tile tile;
    if (!qk_gemm_find_tile(&g, qd_block() / g.tiles_n, TILE, &tile))
        return;
    const uint32_t n0 = qd_block() % g.tiles_n * TILE, lane = qd_lane();
    const uint32_t wave_n = qd_wave() % 2 * 32, wave_m = qd_wave() / 2 * 32;
    operand a = operand_a(&g, &tile), b = operand_b(&g, &tile);
    qd_mma16_acc acc[WAVE_TILES][WAVE_TILES] = {};
    for (uint32_t k = 0; k < g.k; k += BLOCK_K) {
        qd_mma16_acc part[WAVE_TILES][WAVE_TILES] = {};
        for (uint32_t at = k; at < qd_min(k + BLOCK_K, g.k); at += STAGE_K) {
            qd_barrier();
            stage(lds_a, &a, tile.row, at);
            stage(lds_b, &b, n0, at);
            qd_barrier();
            multiply(part, wave_n, wave_m);
        }
        QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) {
            float scale[QD_MMA16_OWN];
            QD_UNROLL for (uint32_t own = 0; own < QD_MMA16_OWN; own++) {
                const uint32_t m = tile.row + wave_m + 16 * j + qd_mma16_column(lane, own);
                scale[own] = scale_of(&g, tile.group, m, n0, k / BLOCK_K);
            }
            const qd_mma16_acc scales = qd_mma16_spread(scale);
            QD_UNROLL for (int i = 0; i < WAVE_TILES; i++)
                acc[i][j] = __builtin_elementwise_fma(part[i][j], scales, acc[i][j]);
        }
    }
#ifdef QK_FULL
    const qk_gemm_args again = *(const qk_gemm_args *)qd_reread(&g);
    QK_GEMM_EACH_RATIO(&again, {
        QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) QD_UNROLL
            for (int i = 0; i < WAVE_TILES; i++)
                (ratio == 2 ? store_pairs : store_tile)(&again, &tile, tile.row + wave_m + 16 * j,
                                                        n0 + wave_n + 16 * i, lane, acc[i][j]);
    })
#else
    QD_UNROLL for (int j = 0; j < WAVE_TILES; j++) QD_UNROLL
        for (int i = 0; i < WAVE_TILES; i++)
            store_tile(&g, &tile, tile.row + wave_m + 16 * j, n0 + wave_n + 16 * i, lane,
                       acc[i][j]);
#endif
}
