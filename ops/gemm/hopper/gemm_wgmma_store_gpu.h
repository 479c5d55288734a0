// SPDX-License-Identifier: Apache-2.0
// How the gemm kernels for Hopper's tensor cores bring a tile's sums to d: what acts on them first,
// then boxes by the copy engine, of bf16 or codes, or rows by lanes. gemm_wgmma_pairs_gpu.h has
// what becomes of pairs of columns.
#ifndef QK_GEMM_WGMMA_STORE_GPU_H
#define QK_GEMM_WGMMA_STORE_GPU_H

#include "gemm_wgmma_pairs_gpu.h"

// ---- epilogues: what acts on the sums before they are stored

/** The address of element `at` of bias or gate. */
QD_INLINE const void *at_vector(const void *data, uint8_t type, int64_t at) {
    return (const char *)data + at * (type == QK_F32 ? 4 : 2);
}
/** The element at which a row's gates begin. */
QD_INLINE int64_t start_of_gate(const qk_gemm_args *g, uint32_t row) {
    return qd_min(row, g->m - 1) / g->gate_rows * g->gate_batch;
}

/** Asks for what a tile's epilogue reads, so that it has come when the sums are ready. */
QD_INLINE void expect_epilogue(const qk_gemm_wgmma_args *p, uint32_t team, const target *to) {
    const qk_gemm_args *g = &p->g;
    constexpr uint32_t rows = 64 * CHUNKS, lines = BN < 64 ? 1 : BN / 64; // of 64 columns, in a row
    const uint32_t thread = qd_thread() % QD_TEAM, first = to->row + team * rows;
    const uint32_t column = to->n + thread * 32; // whose values are at most a line
    if (thread * 32 < BN && column < g->n) {
        if (g->bias)
            qd_prefetch(at_vector(g->bias, g->type_bias, column));
        if (g->gate)
            qd_prefetch(at_vector(g->gate, g->type_gate, start_of_gate(g, first) + column));
    }
    if (p->has_map_d && g->c) QD_NO_UNROLL
        for (uint32_t i = thread; i < rows * lines; i += QD_TEAM) {
            const uint32_t row = first + i / lines, x = to->n + i % lines * 64;
            if (row < g->m && x < g->n)
                qd_prefetch((const __bf16 *)g->c + row * g->c_row + x);
        }
}

/** Two neighbouring columns of bias or gate. */
QD_INLINE qd_f32x2 load_pair(const void *row, uint8_t type, uint32_t column) {
    if (type == QK_F32)
        return *(const qd_f32x2 *)((const float *)row + column);
    return qd_unpack_bf16(*(const uint32_t *)((const __bf16 *)row + column));
}

enum { VECTOR_BYTES = BN * 4 };
static_assert(!HAS_STEPS || (1 + CHUNKS) * VECTOR_BYTES <= TEAM_D_BYTES,
              "the vectors are more than d's place");

/** Brings the tile's columns of bias, and then of each chunk's gate, to LDS at `region`, as f32.
 *  Columns past the last get the last pair's. */
QD_INLINE void fetch_vectors(const qk_gemm_args *g, uint32_t region, uint32_t team,
                             const target *to) {
    const uint32_t thread = qd_thread() % QD_TEAM, column = qd_min(to->n + 2 * thread, g->n - 2);
    const uint32_t at = region + 8 * thread;
    qd_f32x2 bias = 0, gate[CHUNKS] = {};
    if (2 * thread < BN) {
        if (g->bias)
            bias = load_pair(g->bias, g->type_bias, column);
        if (g->gate) QD_UNROLL
            for (uint32_t c = 0; c < CHUNKS; c++)
                gate[c] = load_pair(at_vector(g->gate, g->type_gate,
                                              start_of_gate(g, to->row + (team * CHUNKS + c) * 64)),
                                    g->type_gate, column);
    }
    wait_for_stores(team);
    if (2 * thread < BN) {
        *(QD_LDS qd_f32x2 *)(uintptr_t)at = bias;
        QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++)
            *(QD_LDS qd_f32x2 *)(uintptr_t)(at + (1 + c) * VECTOR_BYTES) = gate[c];
    }
    qd_team_barrier(1 + team, QD_TEAM);
}

/** A thread's two rows of c: words of two columns, from the thread's first column on. */
typedef struct rows_of_c {
    const __bf16 *upper, *lower;
    uint32_t last; // column
} rows_of_c;

enum { RUN = BN < 64 ? BN / 8 : 8 }; // groups of eight columns whose words of c are loaded together
QD_INLINE void load_run(const rows_of_c *c, uint32_t column, uint32_t words[2 * RUN]) {
    QD_UNROLL for (uint32_t i = 0; i < RUN; i++) {
        words[2 * i] = *(const uint32_t *)(c->upper + qd_min(column + 8 * i, c->last));
        words[2 * i + 1] = *(const uint32_t *)(c->lower + qd_min(column + 8 * i, c->last));
    }
}

/** Does the steps for a run of a chunk's sums. */
QD_INLINE void finish_run(const qk_gemm_args *g, uint32_t bias, uint32_t gate, float *s,
                          const uint32_t words[2 * RUN]) {
    QD_UNROLL for (uint32_t i = 0; i < 4 * RUN; i++)
        if (g->bias)
            s[i] += qd_lds_f32(bias + i / 4 * 32 + i % 2 * 4);
    if (g->activation == QK_GELU_TANH) QD_UNROLL
        for (uint32_t i = 0; i < 4 * RUN; i++)
            s[i] = qd_gelu_tanh(s[i]);
    if (g->gate) QD_UNROLL
        for (uint32_t i = 0; i < 4 * RUN; i++)
            s[i] *= qd_lds_f32(gate + i / 4 * 32 + i % 2 * 4);
    if (g->c) QD_UNROLL
        for (uint32_t i = 0; i < 4 * RUN; i++)
            s[i] += qd_unpack_bf16(words[i / 2])[i % 2];
}

/** Does the steps for a chunk's sums: of the 64 rows from `row` on, which share a row of gate. */
QD_INLINE void finish(const qk_gemm_args *g, uint32_t bias, uint32_t gate, uint32_t row, uint32_t n,
                      float sum[SUMS]) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = thread % 32, pair = lane % 4 * 2;
    const uint32_t own = row + thread / 32 * 16 + lane / 4, column = n + pair;
    const rows_of_c c = {(const __bf16 *)g->c + qd_min(own, g->m - 1) * g->c_row,
                         (const __bf16 *)g->c + qd_min(own + 8, g->m - 1) * g->c_row,
                         g->n - 8 + pair};
    uint32_t words[2][2 * RUN] = {};
    if (g->c)
        load_run(&c, column, words[0]);
    QD_UNROLL for (uint32_t i = 0; i < GROUPS; i += RUN) {
        if (g->c && i + RUN < GROUPS)
            load_run(&c, column + 8 * (i + RUN), words[(i / RUN + 1) % 2]);
        finish_run(g, bias + 4 * (8 * i + pair), gate + 4 * (8 * i + pair), &sum[4 * i],
                   words[i / RUN % 2]);
    }
}

/** Does the steps for a team's sums that go to d in boxes. */
QD_INLINE void finish_tile(const qk_gemm_args *g, uint32_t region, uint32_t team, const target *to,
                           float sum[CHUNKS][SUMS]) {
    fetch_vectors(g, region, team, to);
    QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t chunk = team * CHUNKS + c;
        finish(g, region, region + (1 + c) * VECTOR_BYTES, to->row + 64 * chunk, to->n, sum[c]);
    }
    qd_team_barrier(1 + team, QD_TEAM); // the vectors' place is d's
}

// ---- from sums to d

/** Puts columns x to x + PASS - 1 of a chunk's sums into LDS at `region`, as boxes. */
QD_INLINE void put_pass(uint32_t region, const float *sum) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = thread % 32;
    const uint32_t own = thread / 32 * 16 + lane % 16;
    QD_UNROLL for (uint32_t g = 0; g < PASS / 8; g += 2) {
        const uint32_t box = region + g * 8 / BOX * BOX_BYTES;
        const uint32_t piece = (g % (BOX / 8) + lane / 16) ^ (BOX == 64 ? own % 8 : 0);
        const float *s = &sum[4 * g];
        qd_store_tiles(box + own * BOX * 2 + piece * 16, qd_pack_bf16(s[0], s[1]),
                       qd_pack_bf16(s[2], s[3]), qd_pack_bf16(s[4], s[5]),
                       qd_pack_bf16(s[6], s[7]));
    }
}

QD_INLINE void store_box(uint64_t map, uint32_t from, uint32_t x, uint32_t y, uint32_t slab) {
    if (HAS_SLABS)
        qd_tensor_store3(map, from, x, y, slab);
    else
        qd_tensor_store2(map, from, x, y);
}

/** Stores such boxes; one thread. */
QD_INLINE void store_pass(uint64_t maps, uint32_t region, uint32_t row, uint32_t n, uint32_t slab) {
    QD_UNROLL for (uint32_t i = 0; i < PASS; i += BOX)
        store_box(maps + offsetof(qk_gemm_wgmma_args, d), region + i / BOX * BOX_BYTES, n + i, row,
                  slab);
}

/** Stores a team's sums in boxes, all chunks at once if their places suffice. */
QD_INLINE void store_boxes(uint64_t maps, uint32_t region, uint32_t team, const target *to,
                           uint32_t slab, const float sum[CHUNKS][SUMS]) {
    constexpr uint32_t at_once = REGIONS;
    const uint32_t row = to->row + team * CHUNKS * 64;
    QD_UNROLL for (uint32_t first = 0; first < CHUNKS; first += at_once) QD_UNROLL
        for (uint32_t x = 0; x < BN; x += PASS) {
            wait_for_stores(team);
            QD_UNROLL for (uint32_t c = 0; c < at_once; c++)
                put_pass(region + c * 64 * PASS * 2, &sum[first + c][x / 2]);
            qd_async_fence();
            qd_team_barrier(1 + team, QD_TEAM);
            if (qd_thread() % QD_TEAM == 0) QD_UNROLL
                for (uint32_t c = 0; c < at_once; c++)
                    store_pass(maps, region + c * 64 * PASS * 2, row + (first + c) * 64, to->n + x,
                               slab);
        }
}

// ---- from sums to codes and their scales, by quantize's formulas (gpu/scale.h)

static_assert(!HAS_CODES || (BN == 128 && REGIONS == CHUNKS), "a tile's row is a group of columns");

/** Returns the largest magnitude in a row of a chunk, of which four neighbouring lanes have pairs
 *  of columns: s[0] and s[1] and those of every fourth two. */
QD_INLINE float top_of_row(const float *s) {
    float top = 0;
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i += 4)
        top =
            __builtin_fmaxf(top, __builtin_fmaxf(__builtin_fabsf(s[i]), __builtin_fabsf(s[i + 1])));
    uint32_t bits = qd_as_u32(top);
    bits = qd_max(bits, qd_swap_lanes(bits, 1));
    return qd_as_f32(qd_max(bits, qd_swap_lanes(bits, 2)));
}

/** Puts a row's codes into LDS at `to`, the row's 128 bytes, whose pieces of 16 the copy engine
 *  expects exchanged by `turn`; s is as in top_of_row. Returns the row's scale. */
QD_INLINE float put_codes(const qk_gemm_scaling *scaling, uint32_t to, uint32_t turn,
                          const float *s) {
    const float most = qd_fp8_max(QD_E4M3FN);
    const float scale = scaling->found ? qd_scale_of(qd_as_u32(top_of_row(s)), scaling->eps, most)
                                       : *scaling->given;
    const float inverse = 1.0f / scale;
    QD_UNROLL for (uint32_t g = 0; g < GROUPS; g++)
        *(QD_LDS uint16_t *)(uintptr_t)(to + (g / 2 ^ turn) * 16 + g % 2 * 8) =
            (uint16_t)qd_fp8_encode2(QD_E4M3FN, s[4 * g] * inverse, s[4 * g + 1] * inverse);
    return scale;
}

/** Stores a team's sums as codes, and their scales. */
QD_INLINE void store_codes(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t region,
                           uint32_t team, const target *to, const float sum[CHUNKS][SUMS]) {
    const uint32_t lane = qd_lane(), own = qd_thread() % QD_TEAM / 32 * 16 + lane / 4;
    const uint32_t first = to->row + team * CHUNKS * 64;
    float *scales = p->scaling.found + to->n / 128 * p->scaling.nb;
    QD_UNROLL for (uint32_t i = 0; i < 2 * CHUNKS; i++) { // a thread's rows: own, and 8 below it
        const uint32_t at = i / 2 * 64 + own + i % 2 * 8;
        const float scale = put_codes(&p->scaling, region + at * 128 + lane % 4 * 2, own % 8,
                                      &sum[i / 2][i % 2 * 2]);
        if (p->scaling.found && lane % 4 == 0 && first + at < p->g.m)
            scales[(first + at) * p->scaling.row] = scale;
    }
    qd_async_fence();
    qd_team_barrier(1 + team, QD_TEAM);
    if (qd_thread() % QD_TEAM == 0) QD_UNROLL
        for (uint32_t c = 0; c < CHUNKS; c++)
            qd_tensor_store2(maps + offsetof(qk_gemm_wgmma_args, d), region + c * 64 * 128, to->n,
                             first + c * 64);
}

// ---- by lanes

/** Stores columns x to x + PART - 1 of a chunk by lanes, four columns each: any d, c added, only
 *  rows that are to be written. Pieces of 16 bytes in LDS are exchanged by row, so that banks
 *  differ. */
enum { PART = TEAM_D_BYTES / (64 * 4), PIECES = PART / 4, TURNS = PIECES < 8 ? PIECES : 8 };
QD_INLINE void store_part(const qk_gemm_args *g, uint32_t region, uint32_t team, const place *at,
                          uint32_t row, uint32_t x, const float *sum) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = thread % 32;
    const uint32_t own = thread / 32 * 16 + lane / 4;
    QD_UNROLL for (uint32_t i = 0; i < PART / 8; i++) {
        const float *s = &sum[x / 2 + 4 * i];
        const uint32_t piece = (2 * i + lane % 4 / 2) ^ own % TURNS;
        const uint32_t to = region + own * PART * 4 + piece * 16 + lane % 2 * 8;
        *(QD_LDS qd_f32x2 *)(uintptr_t)to = (qd_f32x2){s[0], s[1]};
        *(QD_LDS qd_f32x2 *)(uintptr_t)(to + 8 * PART * 4) = (qd_f32x2){s[2], s[3]};
    }
    qd_team_barrier(1 + team, QD_TEAM);
    QD_NO_UNROLL for (uint32_t i = thread; i < 64 * PIECES; i += QD_TEAM) {
        const uint32_t r = i / PIECES, piece = i % PIECES;
        const uint32_t from = region + r * PART * 4 + (piece ^ r % TURNS) * 16;
        const uint32_t column = at->n + x + piece * 4;
        qd_f32x4 values = *(const QD_LDS qd_f32x4 *)(uintptr_t)from;
        if (HAS_STEPS && g->has_epilogue)
            values = qk_gemm_finish4(g, row + r, column, values);
        if (column < g->n)
            qk_gemm_store4(g, &at->tile, row + r, column, values);
    }
    qd_team_barrier(1 + team, QD_TEAM);
}

/** Stores a chunk's sums by lanes. */
QD_INLINE void store_chunk(const qk_gemm_wgmma_args *p, uint32_t region, uint32_t team, place at,
                           uint32_t chunk, const float sum[SUMS]) {
    wait_for_stores(team);
    QD_UNROLL for (uint32_t x = 0; x < BN; x += PART)
        store_part(&p->g, region, team, &at, at.tile.row + 64 * chunk, x, sum);
}

/** Stores a team's sums of a tile, at whose place the ring is. Stores of boxes run on while the
 *  next tile begins. */
QD_INLINE void store(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base, const qd_ring *r,
                     uint32_t team, const target *to, float sum[CHUNKS][SUMS]) {
    if (HAS_PAIRS) {
        store_pairs(p, maps, base, r, team, to, sum[0]);
        return;
    }
    // From an address that it knows, clang computes others before the product's loop, where ptxas
    // may then spill sums.
    const uint32_t region = (IS_TIGHT ? base : qd_opaque(base)) + team * TEAM_D_BYTES;
    if (HAS_CODES || (HAS_STEPS && p->has_steps && p->has_map_d))
        finish_tile(&p->g, region, team, to, sum);
    if (HAS_CODES) {
        store_codes(p, maps, region, team, to, sum);
        return;
    }
    const uint32_t mine = ((1u << CHUNKS) - 1) << team * CHUNKS;
    if (!HAS_LANES || (IS_DENSE ? p->has_map_d : (to->boxes & mine) == mine)) {
        store_boxes(maps, region, team, to, slab_of_target(&p->g, base, r, to), sum);
        return;
    }
    QD_UNROLL for (uint32_t c = 0; c < CHUNKS; c++)
        if (to->others >> (team * CHUNKS + c) & 1)
            store_chunk(p, region, team, place_of(&p->g, base, r, to), team * CHUNKS + c, sum[c]);
}

#endif
