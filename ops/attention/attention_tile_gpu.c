// SPDX-License-Identifier: Apache-2.0
// Attention on the matrix cores of CDNA, RDNA and NVIDIA: any mask, window and layout of f16 and
// bf16, and of FP8 caches.
//
// Needs     wave matrix instructions of 16-bit kinds; k and v of q's kind, or with QK_FP8 of any
//           FP8 kind and no dropout, then in the image of bf16 q of e4m3fn, e5m2 or the target's
//           usual kind as well; head dims that are multiples of 8, at most QK_D; rows that begin at
//           multiples of eight elements, 16 bytes or of FP8 8
// Tile      QK_TILE keys by the rows of 256 threads' waves, of which each, or QK_SLICES of them
//           together, own QD_MMA_COLUMNS: 128 rows, of QK_D = 256 fewer where there are slices
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer
// LDS       a tile of k, keys as rows, and one of v, transposed. Lanes that read and threads that
//           transpose touch all banks, since 16-byte pieces change places: attention_kv_gpu.h
// Registers q and o of the wave's rows; scores and weights of a tile; half of the next tile, on its
// way
// Edges     keys past the end repeat the last one and are hidden; elements past a head's end are
//           zeros; a tile that none of the wave's rows sees is skipped, and only one that not all
//           see pays for hiding some
// Schedule  put k into LDS, ask for v, meet; scores, maxima, weights; put v into LDS, ask for the
//           next k, meet; o. A row's sum and o are scaled anew only when its maximum has risen by
//           more than RISE: weights stay below 2^(RISE + HEADROOM), and each row decides for
//           itself, so that bits do not depend on its neighbours
#include "attention_dropout_gpu.h"
#include "attention_kv_gpu.h"
#include "attention_store_gpu.h"

// ---- scores

QD_INLINE void multiply_keys(const wave *w, qd_mma_acc s[S_TILES]) {
    const uint32_t line = D > 128 || QD_MMA_OWN > 1 ? qd_opaque(qd_mma_line()) : qd_mma_line();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const uint32_t key = t * QD_MMA_ROWS + line;
        s[t] = 0;
        QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)k_at(key, i))
            s[t] = qd_mma(QK_F16, QD_MMA_READ(c, PIECE), w->q[c], s[t]);
#undef PIECE
        }
    }
}

// ---- weights and sums

QD_INLINE void multiply_values(wave *w, const qd_mma_operand p[FRAGMENTS][QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        const uint32_t d = my_column() + n * QD_MMA_ROWS + qd_mma_line();
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)v_at(d, (i) * 16))
            w->o[n] = qd_mma(QK_F16, QD_MMA_READ(f, PIECE), p[f], w->o[n]);
#undef PIECE
        }
    }
}

/** Turns the tile of k in LDS into weights. */
QD_INLINE void take_keys(const part *p, wave *w, uint32_t begin,
                         qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    // Asked for early, as no scalar register is left to keep it in.
    const bool drops = !QK_FP8 && reread(p->args)->has_dropout;
    qd_mma_acc s[S_TILES];
    multiply_keys(w, s);
    if (p->transforms)
        transform_all(p, w, begin, s);
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, s);
    packed rows[QD_MMA_OWN];
    weigh_rows(w, s, p->transforms, rows);
    if (drops)
        drop_weights(p, w, begin, rows);
    make_operands(rows, weights);
}

// ---- the kernel

/** Adds the tiles of a chunk's keys that rows row_begin to row_end - 1 see. */
QD_INLINE void take_chunk(const part *p, carrier *c, wave *w, uint32_t row_begin,
                          uint32_t row_end) {
    const uint32_t end = end_key(p, row_end - 1);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    if (tile < end)
        fetch(p, c, false, tile);
    for (; tile < end; tile += TILE) {
        const bool is_seen = tile < w->any_end && tile + TILE > w->any_first;
        qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
        land(p, c, false);
        fetch(p, c, true, tile);
        qd_barrier();
        if (is_seen)
            take_keys(p, w, tile, weights);
        land(p, c, true);
        if (tile + TILE < end)
            fetch(p, c, false, tile + TILE);
        qd_barrier();
        if (is_seen)
            multiply_values(w, weights);
    }
    qd_barrier(); // all waves must have read this tile of v before the next is written
}

QD_INLINE void take_rows(const part *p, carrier *c, uint32_t row_begin) {
    wave w;
    begin_rows(p, &w, row_begin + qd_wave() / SLICES * QD_MMA_COLUMNS);
    take_chunk(p, c, &w, row_begin, qd_min(row_begin + ROWS, p->row_end));
    store_rows(p, &w);
}

/** Computes one workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    part p = make_part(args, work, kv_head);
    carrier c = make_carrier(&p, reread(args));
    clear_keys(&c);
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS)
            take_rows(&p, &c, row);
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

QD_WAVES_PER_EU(QK_MIN_WAVES, QK_MAX_WAVES)
QD_KERNEL(THREADS) qk_attention_tile(qk_attention_args args) {
    const uint32_t heads = args.num_kv_heads, parts = qk_attention_count(&args) * heads;
    for (uint32_t id = qd_block(); id < parts; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(reread(&args), id / heads));
        if (qk_attention_takes(reread(&args), work.request))
            take_work(&args, &work, id % heads);
    }
}
