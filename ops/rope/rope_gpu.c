// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of q and k together, in one pass over memory: plain, after RMSNorm of each head,
// or to FP8.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane has a slot of 16 elements of a head, two runs of 8: pairs 8c .. 8c + 7, or 16
//           elements that do not turn. Neighbouring lanes have a head's slots, so that loads are of
//           whole cache lines; a wave has as many heads at a time as fit. A lane finds its angles
//           once for all its heads of a token
// Launch    256 threads; `chunks` waves share a token where there are few; waves step through the
//           tokens left
// LDS       none: lanes that share a head (RMSNorm) exchange values within the wave
// Edges     widths, rotary dimension and strides are multiples of 16, 16 and 8 elements, everything
//           is aligned to 16 bytes, a head has no more slots than a wave has lanes; else
//           rope_any_gpu.c
// Memory    the loads of two heads a lane are under way before the first is used
// Source    arXiv:2104.09864 (RoPE), arXiv:1910.07467 (RMSNorm), FlashInfer's rope functions
#include "rope_row_gpu.h"

enum { SLOT = 2 * QD_RUN, MAX_HELD = 2 };

/** Compile-time facts of a kernel. */
typedef struct mode {
    int dtype, held; // heads that a lane holds at a time
    bool has_norm;   // RMSNorm of each head first
    bool is_quant;   // out is FP8; there may be a cache, and parts that do not turn
} mode;

/** Two runs as they were loaded; f32 takes all four registers, other dtypes two. */
typedef struct slot {
    qd_u32x4 raw[4];
} slot;

/** A lane's place in the heads of a part, and its share of a token. */
typedef struct lane {
    uint32_t c, group,
        groups; // slot of the head; which of the wave's heads; how many it has at a time
    uint32_t first, second; // elements where its runs begin
    bool turns;
    qd_f32x8 cosine, sine; // of its pairs
} lane;

QD_INLINE qd_f32x8 run_of(mode m, const slot *s, int i) {
    if (m.dtype != QD_F32)
        return qd_from_16(m.dtype, s->raw[i]);
    const qd_f32x4 low = __builtin_bit_cast(qd_f32x4, s->raw[2 * i]);
    const qd_f32x4 high = __builtin_bit_cast(qd_f32x4, s->raw[2 * i + 1]);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

QD_INLINE slot load_slot(mode m, bool is_in, const void *p, const lane *l) {
    const void *at[2] = {qd_at(m.dtype, p, l->first), qd_at(m.dtype, p, l->second)};
    slot s;
    QD_UNROLL for (int i = 0; i < 2; i++) {
        if (m.dtype == QD_F32) {
            s.raw[2 * i] = qd_stream_load4_if(is_in, at[i]);
            s.raw[2 * i + 1] = qd_stream_load4_if(is_in, (const qd_u32x4 *)at[i] + 1);
        } else {
            s.raw[i] = qd_stream_load4_if(is_in, at[i]);
        }
    }
    return s;
}

QD_INLINE lane find_lane(uint32_t width, uint32_t rotary_dim, bool is_interleaved) {
    const uint32_t slots = width / SLOT, turning = rotary_dim / SLOT;
    lane l = {.groups = QD_WAVE / slots};
    l.group = qd_lane() / slots;
    l.c = qd_lane() - l.group * slots;
    l.turns = l.c < turning;
    const bool is_split = l.turns && !is_interleaved;
    l.first = l.c * (is_split ? QD_RUN : SLOT);
    l.second = l.first + (is_split ? rotary_dim / 2 : QD_RUN);
    return l;
}

// ---- angles

QD_INLINE qd_f32x8 load_table(const qk_rope_args *g, const void *table, int64_t row, uint32_t c) {
    const int dtype = (int)g->table_dtype;
    const void *p = qd_at(dtype, table, row + (int64_t)c * QD_RUN * g->table_step);
    const qd_f32x8 low = dtype == QD_F32    ? qd_load8(QD_F32, p)
                         : dtype == QD_BF16 ? qd_load8(QD_BF16, p)
                                            : qd_load8(QD_F16, p);
    if (g->table_step == 1)
        return low;
    p = qd_at(dtype, p, QD_RUN);
    const qd_f32x8 high = dtype == QD_F32    ? qd_load8(QD_F32, p)
                          : dtype == QD_BF16 ? qd_load8(QD_BF16, p)
                                             : qd_load8(QD_F16, p);
    return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
}

/** Computes the cosines and sines of a lane's pairs for token t. Returns false if the token is in
 *  no segment. */
QD_INLINE bool find_angles(const qk_rope_args *g, uint32_t t, lane *l) {
    bool is_there = true;
    const int64_t position = g->angles == QK_ROPE_BY_TOKEN ? 0 : position_of(g, t, &is_there);
    if (!l->turns || !is_there)
        return is_there;
    if (g->angles != QK_ROPE_BY_FREQUENCY) {
        const int64_t row = table_row(g, t, position);
        l->cosine = load_table(g, g->cos, row, l->c);
        l->sine = load_table(g, g->sin, row, l->c);
        return true;
    }
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        float c, s;
        cos_sin(angle_of(g->turns[l->c * QD_RUN + i], position), &c, &s);
        l->cosine[i] = c;
        l->sine[i] = s;
    }
    return true;
}

// ---- heads

/** Norms the slot's runs by the head's root and weight, if there is a weight. */
QD_INLINE void norm(mode m, const qk_rope_args *g, const lane *l, const void *weight,
                    uint32_t slots, qd_f32x8 x[2]) {
    const qd_f32x8 square = __builtin_elementwise_fma(x[0], x[0], x[1] * x[1]);
    float sum = 0;
    QD_UNROLL for (int i = 0; i < QD_RUN; i++)
        sum += square[i];
    const float root = qd_inverse_root(add_lanes(sum, slots) / (float)(slots * SLOT) + g->eps);
    x[0] *= root * qd_load8(m.dtype, qd_at(m.dtype, weight, l->first));
    x[1] *= root * qd_load8(m.dtype, qd_at(m.dtype, weight, l->second));
}

/** Turns the slot's pairs: elements i of the two runs, or neighbours. */
QD_INLINE void turn(const qk_rope_args *g, const lane *l, qd_f32x8 x[2]) {
    const qd_f32x8 a = x[0], b = x[1];
    if (!g->is_interleaved) {
        x[0] = a * l->cosine - b * l->sine;
        x[1] = b * l->cosine + a * l->sine;
        return;
    }
    const qd_f32x8 even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    const qd_f32x8 odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    const qd_f32x8 low = even * l->cosine - odd * l->sine;
    const qd_f32x8 high = odd * l->cosine + even * l->sine;
    x[0] = __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
    x[1] = __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
}

QD_INLINE void store_plain(mode m, bool is_in, void *p, const lane *l, const qd_f32x8 x[2]) {
    qd_store8_if(is_in, m.dtype, (void *)qd_at(m.dtype, p, l->first), x[0]);
    qd_store8_if(is_in, m.dtype, (void *)qd_at(m.dtype, p, l->second), x[1]);
}

QD_INLINE void store_codes(const qk_rope_args *g, bool is_in, void *p, const lane *l, float scale,
                           const qd_f32x8 x[2]) {
    const uint32_t at[2] = {l->first, l->second};
    QD_UNROLL for (int i = 0; i < 2; i++) {
        const qd_f32x8 y = x[i] * scale;
        qd_store2_if(is_in, (qd_u32x2 *)((uint8_t *)p + at[i]),
                     g->kind == QD_FP8_USUAL ? qd_encode8(QD_FP8_USUAL, y)
                                             : qd_encode8((int)g->kind, y));
    }
}

/** Stores the bits as they were loaded, those of NaNs too. */
QD_INLINE void store_raw(bool is_in, void *p, const lane *l, const slot *s) {
    qd_store4_if(is_in, (qd_u32x4 *)((uint16_t *)p + l->first), s->raw[0]);
    qd_store4_if(is_in, (qd_u32x4 *)((uint16_t *)p + l->second), s->raw[1]);
}

QD_INLINE void do_slot(mode m, const qk_rope_args *g, const qk_rope_rows *r, const lane *l,
                       const slot *s, bool is_in, void *out) {
    qd_f32x8 x[2] = {run_of(m, s, 0), run_of(m, s, 1)};
    if (m.has_norm)
        norm(m, g, l, r->weight, r->width / SLOT, x);
    if (l->turns)
        turn(g, l, x);
    if (m.is_quant)
        store_codes(g, is_in, out, l, r->scale, x);
    else if (m.dtype != QD_F32 && !l->turns && !m.has_norm)
        store_raw(is_in, out, l, s);
    else
        store_plain(m, is_in, out, l, x);
}

/** Turns a wave's heads of q or k of one token: groups chunk, chunk + chunks, … of as many heads as
 *  the wave has at a time. Loads of several groups are under way before the first is used. */
QD_INLINE void turn_heads(mode m, const qk_rope_args *g, const qk_rope_rows *r, uint32_t t,
                          uint32_t chunk, const lane *l) {
    const int64_t out_begin = out_offset(g, r, t);
    const void *in = qd_at(m.dtype, r->in, in_offset(g, r, t));
    const uint32_t size = m.is_quant ? 1 : qd_element_bytes(m.dtype);
    char *out = (char *)r->out + out_begin * size;
    const uint32_t step = l->groups * g->chunks;
    const bool is_there = l->group < l->groups && out_begin >= 0;
    // `head` is equal in all lanes, because the norm needs them together.
    for (uint32_t head = chunk * l->groups; head < r->heads; head += step * (uint32_t)m.held) {
        slot s[MAX_HELD];
        QD_UNROLL for (int i = 0; i < m.held; i++) {
            const uint32_t mine = head + (uint32_t)i * step + l->group;
            s[i] =
                load_slot(m, is_there && mine < r->heads, qd_at(m.dtype, in, mine * r->in_head), l);
        }
        QD_UNROLL for (int i = 0; i < m.held; i++) {
            const uint32_t mine = head + (uint32_t)i * step + l->group;
            do_slot(m, g, r, l, &s[i], is_there && mine < r->heads,
                    out + mine * r->out_head * size);
        }
    }
}

/** Turns a wave's heads of q and k of one token. */
QD_INLINE void turn_token(mode m, const qk_rope_args *g, uint32_t t, uint32_t chunk) {
    lane l = find_lane(g->parts[QK_ROPE_Q].width, g->rotary_dim, g->is_interleaved);
    if (!find_angles(g, t, &l))
        return;
    QD_NO_UNROLL for (int part = QK_ROPE_Q; part <= QK_ROPE_K; part++)
        if (g->parts[part].heads)
            turn_heads(m, g, &g->parts[part], t, chunk, &l);
}

/** Scales a wave's heads of a part that does not turn. */
QD_INLINE void scale_token(mode m, const qk_rope_args *g, const qk_rope_rows *r, uint32_t t,
                           uint32_t chunk) {
    const lane l = find_lane(r->width, 0, false);
    const int64_t in = in_offset(g, r, t), out = out_offset(g, r, t);
    if (out < 0 || l.group >= l.groups)
        return;
    for (uint32_t head = chunk * l.groups + l.group; head < r->heads;
         head += l.groups * g->chunks) {
        const slot s = load_slot(m, true, qd_at(m.dtype, r->in, in + head * r->in_head), &l);
        const qd_f32x8 x[2] = {run_of(m, &s, 0), run_of(m, &s, 1)};
        store_codes(g, true, (uint8_t *)r->out + out + head * r->out_head, &l, r->scale, x);
    }
}

/** Lets waves take chunks of tokens. Chunks that are only scaled come after all chunks that
 *  turn. */
QD_INLINE void rope(mode m, const qk_rope_args *g) {
    qd_begin();
    const uint32_t waves = 256 / QD_WAVE, turning = g->n * g->chunks;
    const uint32_t units = m.is_quant ? 2 * turning : turning;
    for (uint32_t u = qd_block() * waves + qd_wave(); u < units; u += __gpu_num_blocks(0) * waves) {
        const uint32_t of_kind = u < turning ? u : u - turning;
        const uint32_t t = of_kind / g->chunks, chunk = of_kind % g->chunks;
        if (u < turning) {
            turn_token(m, g, t, chunk);
            continue;
        }
        QD_NO_UNROLL for (int part = QK_ROPE_Q_NOPE; part < QK_ROPE_PARTS; part++)
            if (g->parts[part].heads)
                scale_token(m, g, &g->parts[part], t, chunk);
    }
}

// The kernels: qk_rope_DTYPE, qk_rope_norm_DTYPE, qk_rope_quant_DTYPE.
#define KERNEL(head, ...)                                                                          \
    head(const qk_rope_args g) {                                                                   \
        rope((mode){__VA_ARGS__}, &g);                                                             \
    }
#define OF_DTYPE(name, dtype)                                                                      \
    KERNEL(QD_KERNEL_WITHIN(256, 80, qk_rope_##name), dtype, 2, false, false)                      \
    KERNEL(QD_KERNEL(256) qk_rope_norm_##name, dtype, 2, true, false)                              \
    KERNEL(QD_KERNEL(256) qk_rope_quant_##name, dtype, 1, false, true)
OF_DTYPE(f32, QD_F32)
OF_DTYPE(f16, QD_F16)
OF_DTYPE(bf16, QD_BF16)
