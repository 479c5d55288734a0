// SPDX-License-Identifier: Apache-2.0
// What the kernels that lay out scales and their launch code share, and how four scales move, for
// host and device.
#ifndef QK_SCALES_ABI_H
#define QK_SCALES_ABI_H

#include <stdint.h>

enum { QK_SCALES_THREADS = 256 };

/** Scales along k come in quads: four f32, or the four bytes of a word. Strides are in f32 or
 *  words. */
typedef struct qk_scales_args {
    const uint32_t *in; // [groups, ceil(rows / block_rows), cols] f32, or [.., quads] words
    uint32_t *out;      // [groups, rows, cols] f32, or [.., quads] words
    int64_t in_group, in_row, in_col, out_group, out_row, out_col;
    const int32_t *ends; // [num_ends] where each group's rows end; null: all rows count
    uint32_t groups, rows, cols, quads, block_rows;
    uint32_t num_ends, alignment; // a group of `ends` begins at a multiple of `alignment`
    uint32_t is_packed_in, is_packed_out, rounds;
} qk_scales_args;

/** One dimension of scales, split along k into groups. A group's last word has zeros where the
 *  group has no scale. */
typedef struct qk_k_scales_args {
    const uint32_t *in; // [scales, rows] f32
    uint32_t *out;      // [words, rows]
    int64_t in_scale, in_row, out_word, out_row;
    const int32_t *layout; // [groups] each group's k, or where the group ends
    uint32_t scales, words, rows, groups;
    uint32_t gran_k, alignment; // k that share a scale; by ends, a group begins at a multiple of
                                // alignment
    uint32_t is_by_ends, rounds;
} qk_k_scales_args;

typedef struct qk_quad {
    uint32_t bits[4]; // of f32
} qk_quad;

/** Returns the bits of the least power of two that is not below a magnitude, held to the exponents
 *  1 .. 254. */
static inline uint32_t qk_scale_up(uint32_t bits) {
    const uint32_t e = (bits >> 23 & 0xFF) + ((bits & 0x7FFFFF) != 0);
    return (e < 1 ? 1 : e > 254 ? 254 : e) << 23;
}

static inline uint32_t qk_quad_pack(qk_quad q) {
    return (q.bits[0] >> 23 & 0xFF) | (q.bits[1] >> 23 & 0xFF) << 8 |
           (q.bits[2] >> 23 & 0xFF) << 16 | (q.bits[3] >> 23 & 0xFF) << 24;
}

static inline qk_quad qk_quad_unpack(uint32_t word) {
    return (qk_quad){{(word & 0xFF) << 23, (word >> 8 & 0xFF) << 23, (word >> 16 & 0xFF) << 23,
                      (word >> 24) << 23}};
}

/** Loads `count` f32 from p on; the rest of the four are 0, even if `rounds` asks for powers of
 *  two. */
static inline qk_quad qk_quad_load(const uint32_t *p, int64_t stride, uint32_t count,
                                   uint32_t rounds) {
    qk_quad q;
    for (uint32_t i = 0; i < 4; i++) {
        q.bits[i] = i < count ? p[i * stride] : 0;
        if (rounds && i < count)
            q.bits[i] = qk_scale_up(q.bits[i]);
    }
    return q;
}

/** Returns whether a row lies between the begin and the end of some group. Ends must never
 *  fall. */
static inline int qk_is_row_of_group(const int32_t *ends, uint32_t count, uint32_t alignment,
                                     uint32_t row) {
    uint32_t low = 0, high = count; // the first group that ends behind the row
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ends[middle] > (int32_t)row)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == count)
        return 0;
    const uint32_t before = low ? (uint32_t)ends[low - 1] : 0;
    return row >= (before + alignment - 1) / alignment * alignment;
}

static inline void qk_move_quad(const qk_scales_args *g, uint32_t group, uint32_t quad,
                                uint32_t row) {
    const uint32_t left = g->cols - 4 * quad, count = left < 4 ? left : 4;
    const uint32_t *in = g->in + group * g->in_group + row / g->block_rows * g->in_row;
    uint32_t *out = g->out + group * g->out_group + row * g->out_row;
    if (g->ends && !qk_is_row_of_group(g->ends, g->num_ends, g->alignment, row))
        return;
    const qk_quad q = g->is_packed_in
                          ? qk_quad_unpack(in[quad * g->in_col])
                          : qk_quad_load(in + 4 * (quad * g->in_col), g->in_col, count, g->rounds);
    if (g->is_packed_out)
        out[quad * g->out_col] = qk_quad_pack(q);
    for (uint32_t i = 0; i < 4 && !g->is_packed_out; i++)
        if (i < count)
            out[(4 * quad + i) * g->out_col] = q.bits[i];
}

/** The scales of a word along k: the first scale, and how many. */
typedef struct qk_k_word {
    uint32_t first, count;
} qk_k_word;

static inline qk_k_word qk_find_k_word(const qk_k_scales_args *g, uint32_t word) {
    uint32_t first = 0, first_word = 0, begin = 0;
    for (uint32_t i = 0; i < g->groups; i++) {
        const uint32_t end = (uint32_t)g->layout[i] + (g->is_by_ends ? 0 : begin);
        const uint32_t k = end > begin ? end - begin : 0;
        const uint32_t scales = k / g->gran_k + (k % g->gran_k != 0), words = (scales + 3) / 4;
        if (word < first_word + words) {
            const uint32_t at = 4 * (word - first_word);
            return (qk_k_word){first + at, scales - at < 4 ? scales - at : 4};
        }
        first += scales;
        first_word += words;
        begin = g->is_by_ends ? (end + g->alignment - 1) / g->alignment * g->alignment : end;
    }
    return (qk_k_word){g->scales, 0};
}

static inline void qk_move_k_quad(const qk_k_scales_args *g, qk_k_word w, uint32_t word,
                                  uint32_t row) {
    const uint32_t left = w.first < g->scales ? g->scales - w.first : 0;
    const uint32_t count = w.count < left ? w.count : left;
    const uint32_t *in = g->in;
    if (count > 0) // behind the last scale there may be no address
        in += w.first * g->in_scale + row * g->in_row;
    const qk_quad q = qk_quad_load(in, g->in_scale, count, g->rounds);
    g->out[word * g->out_word + row * g->out_row] = qk_quad_pack(q);
}

#endif
