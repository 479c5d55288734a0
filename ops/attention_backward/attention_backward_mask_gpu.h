// SPDX-License-Identifier: Apache-2.0
// The gradient of an additive mask on matrix cores: a kernel of attention_backward_tile_gpu.c,
// which includes this header once it has all that the kernel shares with the one of queries.
//
// A workgroup has a tile of dmask: QK_TILE keys for each of its columns, which are queries. It goes
// through all requests and heads that share these elements, in their order, and sums the gradients
// of their scores in registers; so there is one store for each element. For masks that differ from
// query to query and from key to key; qk_backward_mask_any has the others.
#ifndef QK_ATTENTION_BACKWARD_MASK_GPU_H
#define QK_ATTENTION_BACKWARD_MASK_GPU_H

/** A tile of dmask. */
typedef struct mask_tile {
    uint32_t batch, head, query, key; // of the mask; the first query and key
} mask_tile;

typedef struct mask_sums {
    qd_mma_acc of[GROUPS][S_TILES];
} mask_sums;

/** Adds a group's gradients to the first of the sums, which then becomes the last, so that the long
 *  code stands in the kernel only once. */
QD_INLINE void add_mask_group(const part *p, const wave *w, const tile *at, uint32_t group,
                              mask_sums *sums) {
    qd_mma_acc s[S_TILES], dp[S_TILES];
    multiply_rows(w, 0, first_rows, group, s);
    multiply_rows(w, 1, second_rows, group, dp);
    transform_all(p, w, at, group, true, s, dp);
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const qd_mma_acc sum = sums->of[0][t] + dp[t];
        QD_UNROLL for (uint32_t i = 1; i < GROUPS; i++)
            sums->of[i - 1][t] = sums->of[i][t];
        sums->of[GROUPS - 1][t] = sum;
    }
}

/** Adds the gradients of a request's head. All waves take part. */
QD_INLINE void add_mask_head(const part *p, const mask_tile *of, mask_sums *sums) {
    const uint32_t kv_head = p->kv_head;
    const source k = make_source(p, 0, kv_head), v = make_source(p, 1, kv_head);
    const tile at = {.begin = of->key, .head = p->head};
    wave w;
    carrier c;
    begin_columns(p, &w, p->begin + qd_wave() * QD_MMA_COLUMNS, true);
    fetch(p, &c, 0, &k, of->key);
    qd_barrier(); // all waves are done with the head before
    land_as_rows(p, &c, 0);
    fetch(p, &c, 1, &v, of->key);
    land_as_rows(p, &c, 1);
    qd_barrier();
    if (at.begin < w.any_end && at.begin + TILE > w.any_first) QD_NO_UNROLL
        for (uint32_t i = 0; i < GROUPS; i++)
            add_mask_group(p, &w, &at, i, sums);
}

QD_INLINE void store_mask_as(int dtype, const qk_mask_gradient *m, const mask_tile *of,
                             mask_sums *sums) {
    const uint32_t column = of->query + qd_wave() * QD_MMA_COLUMNS;
    char *to = (char *)m->data + ((m->batches > 1 ? of->batch * m->batch : 0) +
                                  (m->heads > 1 ? of->head * m->head : 0)) *
                                     qd_element_bytes(dtype);
    QD_NO_UNROLL for (uint32_t i = 0; i < GROUPS; i++) {
        QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
            QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
                const uint32_t query = column + qd_mma_column(qd_mma_own(e));
                const uint32_t key =
                    of->key + i * GROUP + t * QD_MMA_ROWS + qd_mma_row(qd_mma_part(), e);
                const int64_t place = query * m->query + key * m->key;
                if (query < m->queries && key < m->keys)
                    qd_store1(dtype, to + place * qd_element_bytes(dtype), sums->of[0][t][e]);
            }
            QD_UNROLL for (uint32_t j = 1; j < GROUPS; j++)
                sums->of[j - 1][t] = sums->of[j][t];
        }
    }
}

QD_INLINE void store_mask(const qk_backward_args *args, const mask_tile *of, mask_sums *sums) {
    const qk_backward_args *b = again(args);
    if (b->dtype_dmask == QD_F32)
        store_mask_as(QD_F32, &b->dmask, of, sums);
    else if (b->dtype_dmask == QD_F16)
        store_mask_as(QD_F16, &b->dmask, of, sums);
    else
        store_mask_as(QD_BF16, &b->dmask, of, sums);
}

/** Computes a tile. Rows of a request that has fewer queries or keys add nothing. */
QD_INLINE void run_mask_tile(const qk_backward_args *args, const mask_tile *of) {
    const qk_attention_args *g = &again(args)->common;
    const qk_mask_gradient *m = &again(args)->dmask;
    const uint32_t requests = m->batches > 1 ? of->batch + 1 : qk_attention_num_requests(g);
    const uint32_t heads = m->heads > 1 ? of->head + 1 : g->num_kv_heads * g->group;
    mask_sums sums = {};
    for (uint32_t index = of->batch; index < requests; index++)
        for (uint32_t head = of->head; head < heads; head++) {
            const part p = part_of(args, index, head, of->query);
            if (p.begin < p.columns && of->key < p.rows)
                add_mask_head(&p, of, &sums);
        }
    store_mask(args, of, &sums);
}

QD_WAVES_PER_EU((QK_MIN_WAVES + 1) / 2, QK_MAX_WAVES)
QD_KERNEL(THREADS) qk_backward_tile_mask(const qk_backward_args args) {
    const qk_mask_gradient *m = &args.dmask;
    const uint32_t tiles = qd_div_up(m->keys, TILE), blocks = qd_div_up(m->queries, COLUMNS);
    const uint32_t count = m->batches * m->heads * blocks * tiles;
    const part any = part_of(&args, 0, 0, 0);
    clear_rest(&any);
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const uint32_t place = id / tiles / blocks;
        const mask_tile of = {.batch = place / m->heads,
                              .head = place % m->heads,
                              .query = id / tiles % blocks * COLUMNS,
                              .key = id % tiles * TILE};
        run_mask_tile(&args, &of);
    }
}

#endif
