// SPDX-License-Identifier: Apache-2.0
// Gated activations in one pass over memory: out = f(gate) * up, plain or to FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 4 runs of 8 elements (f32, ahead: 2) of gate and of up; run c of a tile
//           belongs to lane c % lanes, so that every load is of whole cache lines, and 16
//           neighbouring lanes hold the 128 elements of a group
// Launch    tiles: 256 threads, 2^lanes_log2 lanes along a row and the others on the rows below;
//           grid = rows x tiles of a row. token: whole waves, up to 512 threads, a row a workgroup.
//           Workgroups step through the rows that are left. ahead: 8 workgroups a compute unit,
//           each of which loads its next row before it computes; CDNA's few waves otherwise load in
//           turn with their arithmetic, 187 us in place of 171 for 8192 rows of 14336, modelled.
//           An H200 reads faster without: 98 % of a copy's speed, not 91
// LDS       token: 512 bytes, largest magnitudes of 16 lanes, twice
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else activation_any_gpu.c.
//           Lanes past the row's end load its last run again, so that no branch stands between
//           loads, and store nothing
// Source    FlashInfer's activation functions
#include "activation_row_gpu.h"
#include "narrow.h"

enum { MAX_RUNS = 4 };
QD_SHARED(lds);

/** Compile-time facts of a kernel. */
typedef struct mode {
    int dtype, runs;
    bool is_token; // a row a workgroup: scales of rows can be found
    bool is_ahead; // a row is loaded while the one before is computed
} mode;

/** A lane's part of a row. 16-bit elements stay as they are until they are used, which takes half
 *  the registers. */
typedef struct kept {
    qd_u32x4 gate[MAX_RUNS], up[MAX_RUNS];
    qd_f32x8 wide_gate[MAX_RUNS], wide_up[MAX_RUNS];
} kept;

#define EACH_RUN QD_UNROLL for (int i = 0; i < m.runs; i++)

/** The lane's i-th run of the row, and whether the row has that run. */
typedef struct place {
    uint32_t first, step, count;
} place;
#define RUN(i) (at->first + (uint32_t)(i) * at->step)

QD_INLINE void load_kept(mode m, const row *r, const place *at, kept *k) {
    const uint32_t last = at->count - 1;
    if (m.dtype == QD_F32) {
        EACH_RUN {
            const int64_t c = (int64_t)qd_min(RUN(i), last) * QD_RUN;
            k->wide_gate[i] = qd_load8(QD_F32, qd_at(QD_F32, r->gate, c));
            k->wide_up[i] = qd_load8(QD_F32, qd_at(QD_F32, r->up, c));
        }
        return;
    }
    EACH_RUN k->gate[i] = qd_stream_load4((const qd_u32x4 *)r->gate + qd_min(RUN(i), last));
    EACH_RUN k->up[i] = qd_stream_load4((const qd_u32x4 *)r->up + qd_min(RUN(i), last));
}

QD_INLINE void load_row(mode m, const qk_activation_args *g, uint32_t index, const place *at,
                        kept *k) {
    const row r = find_row(m.dtype, g, index);
    load_kept(m, &r, at, k);
}

QD_INLINE void find_results(mode m, const qk_activation_args *g, const kept *k,
                            qd_f32x8 y[MAX_RUNS]) {
    if (m.dtype == QD_F32) {
        EACH_FUNCTION(g, EACH_RUN y[i] =
                             activated(function, limited, g, k->wide_gate[i], k->wide_up[i]);)
    } else {
        EACH_FUNCTION(g, EACH_RUN y[i] =
                             activated(function, limited, g, qd_from_16(m.dtype, k->gate[i]),
                                       qd_from_16(m.dtype, k->up[i]));)
    }
}

/** Returns the factor that quantises all of a lane's results. */
QD_INLINE float common_inverse(mode m, int kind, const qk_activation_args *g, const row *r,
                               const place *at, qd_shared *shared, const qd_f32x8 y[MAX_RUNS]) {
    if (!m.is_token)
        return 1.0f / *g->scale; // STATIC
    uint32_t top = 0;
    EACH_RUN top = qd_max(top, RUN(i) < at->count ? qd_run_top(y[i]) : 0);
    const float scale = qd_scale_of(qd_workgroup_max(shared, top), g->scale_eps, qd_fp8_max(kind));
    if (qd_thread() == 0)
        *r->scale = scale;
    return 1.0f / scale;
}

/** Returns the scale of the group that 16 lanes hold, of which this lane has run i. */
QD_INLINE float group_scale(int kind, const qk_activation_args *g, qd_f32x8 y, bool is_in) {
    const float amax = qd_as_f32(qd_row_max(is_in ? qd_run_top(y) : 0));
    return (amax > g->scale_eps ? amax : g->scale_eps) * (1.0f / qd_fp8_max(kind));
}

QD_INLINE void write_codes(mode m, int kind, const qk_activation_args *g, const row *r,
                           const place *at, qd_shared *shared, const qd_f32x8 y[MAX_RUNS]) {
    const bool is_group = !m.is_token && g->quant == QK_ACTIVATION_PER_GROUP;
    float inverse = is_group ? 0 : common_inverse(m, kind, g, r, at, shared, y);
    EACH_RUN {
        const uint32_t c = RUN(i);
        if (is_group) {
            const float scale = group_scale(kind, g, y[i], c < at->count);
            if (c % QD_ROW == 0 && c < at->count)
                r->scale[c / QD_ROW] = scale;
            inverse = qd_rcp(scale);
        }
        const qd_u32x2 codes =
            is_group ? qd_encode8_bounded(kind, y[i] * inverse) : qd_encode8(kind, y[i] * inverse);
        if (c < at->count)
            ((qd_u32x2 *)r->out)[c] = codes;
    }
}

/** Writes a run of results. Their NaNs come from x, which is of the dtype. */
QD_INLINE void write_run(int dtype, const row *r, uint32_t run, qd_f32x8 y) {
    if (dtype == QD_F32)
        qd_store8(QD_F32, (qd_f32x8 *)r->out + run, y);
    else
        ((qd_u32x4 *)r->out)[run] = qd_short_to_16(dtype, y);
}

QD_INLINE void activate_row(mode m, const qk_activation_args *g, uint32_t index, const place *at,
                            const kept *k, qd_shared *shared) {
    const row r = find_row(m.dtype, g, index);
    qd_f32x8 y[MAX_RUNS];
    find_results(m, g, k, y);
    if (!m.is_token && g->quant == QK_ACTIVATION_PLAIN) {
        EACH_RUN if (RUN(i) < at->count) write_run(m.dtype, &r, RUN(i), y[i]);
    } else if (g->kind == QD_FP8_USUAL) { // this copy of the code knows the kind when it is
                                          // compiled
        write_codes(m, QD_FP8_USUAL, g, &r, at, shared, y);
    } else {
        write_codes(m, (int)g->kind, g, &r, at, shared, y);
    }
}

QD_INLINE void activate(mode m, const qk_activation_args *g) {
    qd_begin();
    const uint32_t threads = __gpu_num_threads(0), lanes = 1u << g->lanes_log2;
    const uint32_t below = m.is_token ? 1 : threads >> g->lanes_log2;
    const uint32_t mine = m.is_token ? 0 : qd_thread() >> g->lanes_log2;
    const uint32_t step = m.is_token ? threads : lanes;
    const uint32_t lane = m.is_token ? qd_thread() : qd_thread() & (lanes - 1);
    const place at = {__gpu_block_id(1) * step * (uint32_t)m.runs + lane, step, g->h / QD_RUN};
    qd_shared shared = {lds, 0};
    const uint32_t last = g->rows - 1, stride = __gpu_num_blocks(0) * below;
    kept next;
    if (m.is_ahead)
        load_row(m, g, qd_min(qd_block() * below + mine, last), &at, &next);
    for (uint32_t r = qd_block() * below; r < g->rows; r += stride) {
        // Lanes past the last row stay, as their wave finds its scales together.
        place here = at;
        here.first = r + mine < g->rows ? at.first : at.count;
        if (!m.is_ahead)
            load_row(m, g, qd_min(r + mine, last), &here, &next);
        const kept k = next;
        if (m.is_ahead && r + stride < g->rows)
            load_row(m, g, qd_min(r + stride + mine, last), &at, &next);
        activate_row(m, g, qd_min(r + mine, last), &here, &k, &shared);
    }
}

// The kernels: qk_activation_DTYPE; _ahead_DTYPE; _short_DTYPE for few elements, whose latency
// counts; _token_DTYPE.
#define KERNEL(entry, ...)                                                                         \
    entry(const qk_activation_args g) {                                                            \
        activate((mode){__VA_ARGS__}, &g);                                                         \
    }
#define KERNELS(name, dtype, runs)                                                                 \
    KERNEL(QD_KERNEL(256) qk_activation_##name, dtype, runs)                                       \
    KERNEL(QD_KERNEL(256) qk_activation_ahead_##name, dtype, 2, .is_ahead = true)                  \
    KERNEL(QD_KERNEL(256) qk_activation_short_##name, dtype, 1)                                    \
    KERNEL(QD_KERNEL_UP_TO(512, qk_activation_token_##name), dtype, runs, .is_token = true)
KERNELS(f32, QD_F32, 2)
KERNELS(f16, QD_F16, 4)
KERNELS(bf16, QD_BF16, 4)
