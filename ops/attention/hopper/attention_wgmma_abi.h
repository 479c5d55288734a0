// SPDX-License-Identifier: Apache-2.0
// What attention's kernel for Hopper shares with its launch code.
#ifndef QK_ATTENTION_WGMMA_ABI_H
#define QK_ATTENTION_WGMMA_ABI_H

#include "../../shared/tensor_map_abi.h"
#include "../attention_abi.h"

enum {
    QK_WGMMA_TEAMS = 3, // that multiply; each has 64 queries of a tile
    QK_WGMMA_ROWS = 64 * QK_WGMMA_TEAMS,
    QK_WGMMA_BOX = 64, // columns of a box, 128 bytes
    QK_WGMMA_THREADS = (QK_WGMMA_TEAMS + 1) * 128,
    QK_WGMMA_MOST_GROUPS = 144 // multiprocessors of the largest Hopper
};

/** The keys of a tile, for head dims up to `columns`: as many as a thread has registers for. */
#define QK_WGMMA_KEYS(columns) ((columns) == 64 ? 128 : 80)

/** What a team leaves of rows whose keys another workgroup goes on with: a thread's sums of o, its
 *  two rows' tops and sums. */
#define QK_WGMMA_STATE_FLOATS(columns) ((columns) / 2 + 4)

/** Tiles of queries that all see the same `steps` tiles of keys, in equal shares for `groups`
 *  workgroups, of which there are no more than tiles. Where a share ends within a tile of queries,
 *  the next share's owner begins that tile: it takes the tile's last keys first of all it does, and
 *  leaves its state to the other, which takes the first keys last of all. So nobody waits for long,
 *  and a row's keys come in one order wherever shares end. tiles * steps is below 2^31. */
typedef struct qk_wgmma_shares {
    uint32_t tiles, steps, groups;
} qk_wgmma_shares;

/** A part of a tile of queries: tiles of keys first .. end - 1, from the last to the first. */
typedef struct qk_wgmma_part {
    uint32_t tile, first, end;
} qk_wgmma_part;

/** Where share b begins, of all tiles' keys in a row. */
QK_INLINE uint32_t qk_wgmma_share_begin(const qk_wgmma_shares *s, uint32_t b) {
    const uint32_t all = s->tiles * s->steps, more = all % s->groups;
    return b * (all / s->groups) + (b < more ? b : more);
}

/** Numbers the tile that is `place` in the row of tiles and begins in share b. What runs at a time
 *  has numbers side by side, so that it shares keys in L2: each share's first tile, each share's
 *  second tile and so on. */
QK_INLINE uint32_t qk_wgmma_number(const qk_wgmma_shares *s, uint32_t b, uint32_t place) {
    const uint32_t first = qk_attention_div_up(qk_wgmma_share_begin(s, b), s->steps);
    const uint32_t round = place - first, rounds = s->tiles / s->groups; // rounds that all have
    return round * s->groups + (round < rounds ? b : first - b * rounds);
}

/** Finds what a workgroup does after `done` of its share's tiles of keys; false: nothing. Shares
 *  belong to workgroups from the last to the first, so that who goes on with a tile starts after
 *  who began it. */
QK_INLINE bool qk_wgmma_find_part(const qk_wgmma_shares *s, uint32_t group, uint32_t done,
                                  qk_wgmma_part *part) {
    const uint32_t b = s->groups - 1 - group, end = qk_wgmma_share_begin(s, b + 1);
    const uint32_t at = qk_wgmma_share_begin(s, b) + done, first = at % s->steps;
    if (at >= end)
        return false;
    *part = (qk_wgmma_part){.tile = qk_wgmma_number(s, first ? b - 1 : b, at / s->steps),
                            .first = first,
                            .end = end - at < s->steps - first ? first + (end - at) : s->steps};
    return true;
}

/** Maps of [requests, tokens, heads, head_dim] with boxes of QK_WGMMA_BOX columns: 64 queries, or
 *  a tile's keys. */
typedef struct qk_attention_wgmma_args {
    qk_tensor_map maps[4]; // of q, k, v and o
    qk_attention_args common;
    // Shares end within tiles if there is room for states, of each workgroup and team: a thread's
    // floats in fours, of all threads in turn.
    float *states;       // null: none
    uint64_t *are_there; // of each workgroup and team: `launch` if its state is there; then zero
    uint64_t launch;     // a number that no other launch has
} qk_attention_wgmma_args;

#endif
