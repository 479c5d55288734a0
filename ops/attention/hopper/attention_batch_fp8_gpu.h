// SPDX-License-Identifier: Apache-2.0
// Attention of batches on Hopper: the waves that load codes of e4m3fn and put 16 bits into LDS.
//
// attention_batch_gpu.h includes this; the copies of codes take the place of its copies of pages.
// Each wave has keys of its own in every tile. A lane converts the codes that it has copied itself,
// so that no other lane is waited for; the copies of the next tile are under way meanwhile.
#ifndef QK_ATTENTION_BATCH_FP8_GPU_H
#define QK_ATTENTION_BATCH_FP8_GPU_H

#include "attention_batch_gpu.h"
#include "attention_query_gpu.h"

/** Keys that a wave copies at once: four lanes 64 columns of one, the next four those of the next
 *  key, so that eight lanes that store halves of 16 columns touch all banks. */
enum { LINES = QD_WAVE / 4 / BOXES, CODES_BYTES = OWN * QK_D };
static_assert(OWN % LINES == 0 && QK_DIM_QK == QK_D);

QD_INLINE uint32_t line_of_lane(void) {
    return qd_lane() / 4 % 2 + qd_lane() / 8 / BOXES * 2;
}
QD_INLINE uint32_t box_of_lane(void) {
    return qd_lane() / 8 % BOXES;
}

/** Codes of the wave's keys that are under way, and what becomes of them: where they go when that
 *  place is empty, and which barrier hears of it. full 0: there are none. */
typedef struct landing {
    uint32_t from, to, full, empty, parity;
} landing;

/** Starts the copies of the wave's keys of a tile; past the end and past head_dim they are
 *  zeros. */
QD_INLINE void copy_codes(const qk_attention_rows *rows, uint32_t head_dim, uint32_t to,
                          uint32_t kv_head, place own) {
    const uint32_t piece = box_of_lane() * 4 + qd_lane() % 4;
    const uint32_t own_at = (uint32_t)own.page * (uint32_t)(rows->block / 16) +
                            own.key * (uint32_t)(rows->token / 16) +
                            kv_head * (uint32_t)(rows->head / 16);
    const uint32_t from = own.page < 0 ? UINT32_MAX : own_at;
    QD_NO_UNROLL for (uint32_t i = 0; i < OWN; i += LINES) {
        const uint32_t at = qd_from_lane(from, i + line_of_lane());
        const bool is_in = at != UINT32_MAX && piece * 16 < head_dim;
        const char *data = (const char *)rows->data + (uint64_t)(is_in ? at + piece : 0) * 16;
        qd_copy16(to + i * QK_D + qd_lane() * 16, data, is_in);
    }
    qd_copy_commit();
}

/** Converts the codes that this lane has copied. */
QD_INLINE void convert_codes(uint32_t from, uint32_t to) {
    const uint32_t first = wave_of_loader() * OWN + line_of_lane(), piece = qd_lane() % 4 * 2;
    QD_UNROLL for (uint32_t i = 0; i < OWN; i += LINES) {
        const uint32_t row = first + i, line = to + box_of_lane() * K_BOX_BYTES + row * 128;
        const qd_u32x4 codes =
            *(const QD_LDS qd_u32x4 *)(uintptr_t)(from + i * QK_D + qd_lane() * 16);
        QD_UNROLL for (uint32_t half = 0; half < 2; half++) {
            uint32_t x[4];
            qd_widen4_e4m3fn(IS_F16, false, codes[2 * half], x);
            qd_widen4_e4m3fn(IS_F16, false, codes[2 * half + 1], x + 2);
            *(QD_LDS qd_u32x4 *)(uintptr_t)(line + ((piece + half) ^ row % 8) * 16) =
                (qd_u32x4){x[0], x[1], x[2], x[3]};
        }
    }
}

/** Waits for the codes that are under way, of the last commit if `is_last`, else of the one before
 *  it, and converts them. */
QD_INLINE void land(landing *codes, bool is_last) {
    if (is_last)
        qd_copy_wait();
    else
        qd_copy_wait_before_last();
    if (codes->full) {
        qd_mbarrier_wait(codes->empty, codes->parity);
        convert_codes(codes->from, codes->to);
        qd_async_fence();
        qd_wave_barrier();
        if (qd_lane() == 0)
            qd_mbarrier_arrive(codes->full);
    }
    codes->full = 0;
}

/** Starts copying a tile of keys, or of values, and converts what was copied before it. */
QD_INLINE void take_tile(const loader *l, landing *codes, qd_ring *ring, bool are_values,
                         uint32_t kv_head, place own) {
    const qk_attention_args *g = &l->args->common;
    const uint32_t stage = are_values ? V_AT + ring->at * STAGE_BYTES : K_AT + ring->at * K_BYTES;
    const uint32_t slots = l->base + CODES_AT + wave_of_loader() * 2 * CODES_BYTES;
    const landing next = {.from = codes->from == slots ? slots + CODES_BYTES : slots,
                          .to = l->base + stage,
                          .full = l->base + (are_values ? V_FULL_AT : K_FULL_AT) + 8 * ring->at,
                          .empty = l->base + (are_values ? V_EMPTY_AT : K_EMPTY_AT) + 8 * ring->at,
                          .parity = ring->parity};
    copy_codes(are_values ? &g->v : &g->k, are_values ? g->head_dim_vo : g->head_dim_qk, next.from,
               kv_head, own);
    land(codes, false);
    *codes = next;
    qd_ring_advance(ring, STAGES);
}

/** Converts the rows of a team's q that the request has; the others stay what they are. */
QD_INLINE void convert_queries_of(const loader *l, uint32_t team, const QD_LDS tile *t) {
    enum { PIECES = QK_D / 8 };
    const qk_attention_args *g = &l->args->common;
    const uint32_t thread = qd_thread() % QD_TEAM, piece = thread % PIECES;
    const uint32_t shift = l->args->pack_shift, first = t->row + QK_ATTENTION_TEAM * team;
    const uint32_t to = l->base + team * Q_BYTES + piece / 8 * Q_BOX_BYTES;
    qd_mbarrier_wait(l->base + Q_EMPTY_AT + 8 * team, l->round % 2 ^ 1);
    QD_NO_UNROLL for (uint32_t r = thread / PIECES; r < QK_ATTENTION_TEAM; r += QD_TEAM / PIECES) {
        const uint32_t row = first + r, query = row >> shift;
        const row_place place = {.request = t->index,
                                 .head = t->head + (row - (query << shift)),
                                 .token = (int64_t)t->token + query};
        if (row < t->rows)
            put_codes(to + r * 128 + (piece % 8 ^ r % 8) * 16, g->dtype_q,
                      (const char *)g->q.data + q_offset(g, &place) + piece * 8,
                      piece * 8 < g->head_dim_qk);
    }
    qd_async_fence();
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(l->base + Q_FULL_AT + 8 * team);
}

/** Begins the teams' round. */
QD_INLINE void bring_queries(const loader *l, const QD_LDS tile *t) {
    if (are_codes(&l->args->common)) QD_NO_UNROLL
        for (uint32_t team = 0; team < TEAMS; team++)
            convert_queries_of(l, team, t);
    else if (qd_thread() == TEAMS * QD_TEAM)
        load_queries(l, t);
    qd_wave_barrier();
}

/** Copies and converts a tile's keys and values. The places of keys are asked for a tile ahead. */
QD_INLINE void copy_tile(loader *l, const QD_LDS tile *t, qd_ring *k, qd_ring *v) {
    const uint32_t kv_head = t->kv_head, begin = t->keys.begin;
    uint32_t at = t->rows > 0 ? t->keys.end : begin;
    place values = {-1, 0}, next = {-1, 0};
    landing codes = {};
    if (at > begin) {
        values = find_place(l, t, at - 1);
        next = find_place(l, t, qd_max(at, 2) - 2);
        take_tile(l, &codes, k, false, kv_head, values);
    }
    bring_queries(l, t);
    QD_NO_UNROLL for (; at > begin; at--) {
        const place keys = next;
        next = find_place(l, t, qd_max(at, 3) - 3);
        if (at - 1 > begin)
            take_tile(l, &codes, k, false, kv_head, keys);
        take_tile(l, &codes, v, true, kv_head, values);
        values = keys;
    }
    land(&codes, true);
}

#endif
