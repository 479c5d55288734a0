// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, tile by tile: included by the files that compile it for their instructions.
//
// Lanes are rows (queries), so that a row's maximum and sum need no exchange between lanes. A tile
// has ROWS rows and KEYS keys. Operands are repacked into cells: an f32, or with QN_BF16 a pair of
// bf16 that vdpbf16ps multiplies.
//
//   q[c][row]   cell c of a row: elements c, or 2c and 2c + 1
//   k[key][c]   cell c of a key
//   s[key][row] scores, then weights                                   v[key or pair of keys][d]
//   o[d][row]   sums of weighted values
//
// Both products multiply a vector of rows by one cell: s += q[c] * k[key][c], o += p[key] *
// v[key][d]. With 16 lanes there are 32 registers, and a cell of k or v multiplies VECTORS vectors
// of rows; with fewer lanes attention_narrow_simd.h has the products. What is beyond the last key,
// head_dim or row is zero in q, k and v; a row that does not see a key has the score -infinity. So
// a row's bits depend on nothing but its own keys, taken from the chunk's begin in tiles of KEYS.
#ifndef QNI_ATTENTION_SIMD_H
#define QNI_ATTENTION_SIMD_H

#include "../../shared/round.h"
#include "../../shared/simd.h"
#include "attention_cpu.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#if QN_LANES == 16
enum {
    VECTORS = 4, // of rows; also cells of k or v that are taken together: 16 sums in registers
    ROWS = VECTORS * QN_LANES,
    KEYS = 64,
    PADDED = 8,      // keys are packed with zeros up to a multiple of this: so many are computed
                     // together
    WIDTH = VECTORS, // elements of v are padded to a multiple of this
};
#else
enum {
    STEP = 6,            // keys, or rows
    SIDE = 2 * QN_LANES, // rows, or elements of v: 12 sums in registers
    ROWS = 96,           // of whole steps and sides
    KEYS = 96,
    PADDED = 24, // also a multiple of what decoding takes
    WIDTH = SIDE
};
#endif
enum { MAX_DIM = QK_ATTENTION_MAX_HEAD_DIM, MAX_ROW = QK_ATTENTION_MAX_ROW };

#ifdef QN_BF16
enum { PAIR = 2 };
typedef uint32_t cell;
#else
enum { PAIR = 1 };
typedef float cell;
#endif

typedef struct tile {
    alignas(64) cell q[MAX_ROW / PAIR * ROWS];
    alignas(64) cell k[MAX_ROW / PAIR * KEYS];
    alignas(64) cell v[KEYS / PAIR * MAX_DIM];
    alignas(64) float s[KEYS * ROWS];
    alignas(64) float o[MAX_DIM * ROWS];
    alignas(64) float max[ROWS], sum[ROWS], scale[ROWS], slope[ROWS], shrink[ROWS];
    alignas(64) int32_t first[ROWS], end[ROWS];
    alignas(64) qni_attention_row rows[ROWS];
    const qni_attention_problem *p;
    const qk_attention_request *request;
    uint32_t index, kv_head; // of the request
    int64_t count;           // rows in use
    int32_t limit;           // end of the chunk
    int64_t element_bytes;   // of k and v
    int64_t cells, width;    // of a row of q and k; of v, padded to fill a step
    int64_t head;            // elements of q and k in front of the tail
    bool has_extras;         // scores are more than scaled products
    bool decodes;            // attention_decode_simd.h computes the request
} tile;

// ---- arithmetic

/** Returns acc + a * b, where all lanes multiply by the one cell b. */
QN_INLINE f32v meet(f32v acc, f32v a, const cell *b) {
#ifdef QN_BF16
    return (f32v)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)_mm512_set1_epi32((int)*b));
#else
    return fma_of(a, all_of(*b), acc);
#endif
}

/** Returns the larger; b if one is a NaN. */
QN_INLINE f32v top_of(f32v a, f32v b) {
#if defined(__AVX512F__) && QN_LANES == 16
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__) && QN_LANES == 8
    return _mm256_max_ps(a, b);
#else
    return select_of(a > b, a, b);
#endif
}

/** Returns 2^x for x up to 127; 2^0 is 1, 2^-infinity is 0, and a NaN stays a NaN. The polynomial
 *  is minimax under these conditions; its relative error is 2^-23.1, for weights that become bf16
 *  2^-18.4. */
QN_INLINE f32v weight_of(f32v x) {
#ifdef QN_BF16
    static const float c[] = {1, 0x1.62e12cp-1f, 0x1.ec0378p-3f, 0x1.c9fc48p-5f, 0x1.3a02d2p-7f};
#else
    static const float c[] = {
        1, 0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f, 0x1.5bba16p-10f};
#endif
    constexpr int count = sizeof c / sizeof *c;
#if defined(__AVX512F__) && QN_LANES == 16
    const f32v n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const f32v r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_scalef_ps(polynomial_of(r, c, count), n);
#else
    // Adding 1.5 * 2^23 rounds to an integer, which stands in the low bits of the sum with the
    // exponent's bias. Results below 2^-126 are 0.
    const f32v bounded = top_of(all_of(-126), x), magic = all_of(0x1.8p23f + 127);
    const f32v sum = bounded + magic, power = (f32v)((u32v)sum << 23);
    const f32v y = polynomial_of(bounded - (sum - magic), c, count) * power;
    return (f32v)((u32v)y & ~(u32v)(x < -126.0f));
#endif
}

QN_INLINE f32v at(const float *p) {
    return *(const f32v *)p;
}
QN_INLINE void put(float *p, f32v v) {
    *(f32v *)p = v;
}

// ---- packing

/** Returns QN_LANES FP8 codes as f32. */
QN_INLINE f32v decode(qni_dtype dtype, const uint8_t *codes) {
    const qni_fp8_format f = qni_fp8_format_of(qni_fp8_of(dtype));
    uint8_t bytes __attribute__((vector_size(QN_LANES)));
    memcpy(&bytes, codes, sizeof bytes);
    const u32v code = __builtin_convertvector(bytes, u32v), magnitude = code & 0x7F;
    const f32v power = all_of(__builtin_bit_cast(float, (uint32_t)(254 - f.bias) << 23));
    f32v x = (f32v)(magnitude << (23 - f.mantissa_bits)) * power;
    if (dtype == QNI_E5M2)
        x = select_of((i32v)(magnitude == 0x7C), all_of(__builtin_inff()), x);
    const i32v is_nan =
        f.is_fnuz ? (i32v)(code == 0x80) : (i32v)(magnitude > (dtype == QNI_E5M2 ? 0x7Cu : 0x7Eu));
    x = select_of(is_nan, all_of(__builtin_nanf("")), x);
    return (f32v)((u32v)x | (code & 0x80) << 24);
}

QN_INLINE f32v load_kv(qni_dtype dtype, const void *p, int64_t i) {
    return qni_is_fp8(dtype) ? decode(dtype, (const uint8_t *)p + i) : load(dtype, p, i);
}

QN_INLINE void load_row_of(qni_dtype dtype, const void *p, int64_t from, int64_t dim, int64_t room,
                           float *out) {
    int64_t d = 0;
    for (; d + QN_LANES <= dim; d += QN_LANES)
        put(out + d, load_kv(dtype, p, from + d));
    for (; d < dim; d++)
        out[d] = (float)qni_get(dtype, p, from + d);
    memset(out + d, 0, (size_t)(room - d) * sizeof *out);
}

/** Loads `dim` elements of a row as f32, and zeros after them up to `room`. */
static void load_row(qni_dtype dtype, const void *p, int64_t from, int64_t dim, int64_t room,
                     float *out) {
    if (dtype == QNI_BF16)
        load_row_of(QNI_BF16, p, from, dim, room, out);
    else if (dtype == QNI_F16)
        load_row_of(QNI_F16, p, from, dim, room, out);
    else if (dtype == QNI_F32)
        load_row_of(QNI_F32, p, from, dim, room, out);
    else
        load_row_of(dtype, p, from, dim, room, out);
}

/** Rotates a head at a position: RoPE. */
static void rotate(const tile *t, float *x, int64_t position) {
    const int64_t half = t->p->args.head_dim_qk / 2;
    for (int64_t d = 0; t->p->args.pos_encoding == QK_POS_ROPE && d < half; d++) {
        float c, s;
        qk_cos_sin((uint32_t)((uint64_t)position * t->p->turns[d] >> 32), &c, &s);
        const float x0 = x[d], x1 = x[d + half];
        x[d] = x0 * c - x1 * s;
        x[d + half] = x1 * c + x0 * s;
    }
}

/** Writes a row's elements as cells. */
QN_INLINE void to_cells(const float *x, int64_t cells, cell *out, int64_t step) {
    for (int64_t c = 0; c < cells; c++) {
#ifdef QN_BF16
        const uint32_t low = __builtin_bit_cast(uint32_t, x[2 * c]) >> 16;
        out[c * step] = low | (__builtin_bit_cast(uint32_t, x[2 * c + 1]) & 0xFFFF0000);
#else
        out[c * step] = x[c];
#endif
    }
}

/** Loads a row's tail behind its head, and zeros after it up to `room`. Heads may end anywhere, so
 *  vectors are stored elsewhere first. */
static void load_tail(const tile *t, qni_dtype dtype, const qk_attention_rows *rows, int64_t from,
                      int64_t room, float *out) {
    const int64_t dim = t->p->tail.dim;
    alignas(64) float x[QK_ATTENTION_MAX_TAIL];
    load_row(dtype, rows->data, from, dim, qni_round_up(dim, QN_LANES), x);
    memcpy(out + t->head, x, (size_t)dim * sizeof *x);
    memset(out + t->head + dim, 0, (size_t)(room - t->head - dim) * sizeof *x);
}

/** Loads row r of q, rotated if the problem asks, and zeros after it up to `room`. */
static void load_q(const tile *t, int64_t r, int64_t room, float *out) {
    const qk_attention_rows *q = &t->p->args.q, *tail = &t->p->tail.q;
    const qni_dtype dtype = t->p->dtype;
    const int64_t offset = (int64_t)t->request->kv_len - t->request->qo_len;
    load_row(dtype, q->data, qni_attention_q_offset(q, &t->rows[r]), t->head, room, out);
    if (t->p->tail.dim > 0)
        load_tail(t, dtype, tail, qni_attention_q_offset(tail, &t->rows[r]), room, out);
    rotate(t, out, offset + t->rows[r].query);
}

static void pack_q(tile *t) {
    alignas(64) float x[MAX_ROW];
    memset(t->q, 0, (size_t)(t->cells * ROWS) * sizeof *t->q);
    for (int64_t r = 0; r < t->count; r++) {
        load_q(t, r, qni_round_up(t->cells * PAIR, QN_LANES), x);
        to_cells(x, t->cells, t->q + r, ROWS);
    }
}

/** Returns where a key's row begins, or its tail. */
QN_INLINE int64_t key_offset(const tile *t, const qk_attention_rows *rows, uint32_t key) {
    return qk_attention_key(&t->p->args, rows, t->request, t->index, key) + t->kv_head * rows->head;
}

/** Multiplies the elements of a key in front of its tail, or of its value, by their groups' scales,
 *  if there are such. */
static void scale_groups(const tile *t, uint32_t key, int64_t dim, float *x) {
    const qk_attention_rows *rows = &t->p->groups;
    if (!rows->data)
        return;
    const float *scales = (const float *)rows->data + key_offset(t, rows, key);
    for (int64_t d = 0; d < dim; d++)
        x[d] *= scales[d / QK_ATTENTION_GROUP];
}

/** Loads a key as load_q does a row of q. */
static void load_key(const tile *t, uint32_t key, int64_t room, float *out) {
    const qk_attention_rows *k = &t->p->args.k, *tail = &t->p->tail.k;
    const qni_dtype dtype = t->p->dtype_kv;
    load_row(dtype, k->data, key_offset(t, k, key), t->head, room, out);
    scale_groups(t, key, t->head, out);
    if (t->p->tail.dim > 0)
        load_tail(t, t->p->dtype_tail, tail, key_offset(t, tail, key), room, out);
    rotate(t, out, key);
}

#ifdef QN_BF16
/** Copies a key as it lies in memory. */
static void copy_key(const tile *t, uint32_t key, cell *out) {
    const qk_attention_rows *k = &t->p->args.k, *tail = &t->p->tail.k;
    memcpy(out, (const uint16_t *)k->data + key_offset(t, k, key), (size_t)t->head * 2);
    if (t->p->tail.dim > 0)
        memcpy((uint16_t *)out + t->head, (const uint16_t *)tail->data + key_offset(t, tail, key),
               t->p->tail.dim * sizeof(uint16_t));
}
#endif

static void pack_k(tile *t, uint32_t first, int64_t keys) {
    alignas(64) float x[MAX_ROW];
    for (int64_t j = 0; j < keys; j++) {
        const uint32_t key = first + (uint32_t)j;
        cell *to = t->k + j * t->cells;
#ifdef QN_BF16
        if (t->p->dtype_kv == QNI_BF16 && t->p->args.head_dim_qk == t->cells * PAIR) {
            copy_key(t, key, to);
            continue;
        }
#endif
#ifndef QN_BF16
        if (t->cells % QN_LANES == 0) {
            load_key(t, key, t->cells, to);
            continue;
        }
#endif
        load_key(t, key, qni_round_up(t->cells * PAIR, QN_LANES), x);
        to_cells(x, t->cells, to, 1);
    }
    const int64_t rest = qni_round_up(keys, PADDED);
    memset(t->k + keys * t->cells, 0, (size_t)((rest - keys) * t->cells) * sizeof *t->k);
}

/** Writes the values of a key into row j of v. */
static void pack_value(tile *t, int64_t j, const float *x) {
#ifdef QN_BF16
    uint32_t *to = t->v + j / 2 * t->width;
    for (int64_t d = 0; d < t->width; d++) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, x[d]);
        to[d] = j % 2 ? to[d] | (bits & 0xFFFF0000) : bits >> 16;
    }
#else
#if QN_LANES < 16
    for (int64_t d = 0; !t->decodes && d < t->width; d += SIDE)
        memcpy(t->v + d * KEYS + j * SIDE, x + d, SIDE * sizeof *x);
    if (!t->decodes)
        return;
#endif
    memcpy(t->v + j * t->width, x, (size_t)t->width * sizeof *x);
#endif
}

#ifdef QN_BF16
/** Writes two keys' values of bf16 as pairs. */
static void pack_two(tile *t, int64_t j, const uint16_t *a, const uint16_t *b) {
    uint32_t *to = t->v + j / 2 * t->width;
    int64_t d = 0;
    for (; d + QN_LANES <= t->width; d += QN_LANES) {
        u16v low, high;
        memcpy(&low, a + d, sizeof low);
        memcpy(&high, b + d, sizeof high);
        const u32v pairs = __builtin_convertvector(low, u32v) | __builtin_convertvector(high, u32v)
                                                                    << 16;
        memcpy(to + d, &pairs, sizeof pairs);
    }
    for (; d < t->width; d++)
        to[d] = a[d] | (uint32_t)b[d] << 16;
}
#endif

static void pack_v(tile *t, uint32_t first, int64_t keys) {
    const qk_attention_args *g = &t->p->args;
    const int64_t dim = g->head_dim_vo, head = t->kv_head * g->v.head;
    // If each row of v begins at a multiple of a vector, values are loaded into their place without
    // a copy.
    const bool is_whole = PAIR == 1 && (t->decodes || QN_LANES == 16) && t->width % QN_LANES == 0;
    alignas(64) float x[MAX_DIM];
    int64_t j = 0;
#ifdef QN_BF16
    for (; t->p->dtype_kv == QNI_BF16 && dim == t->width && j + 2 <= keys; j += 2) {
        const uint32_t key = first + (uint32_t)j;
        const uint16_t *v = g->v.data;
        pack_two(t, j, v + qk_attention_key(g, &g->v, t->request, t->index, key) + head,
                 v + qk_attention_key(g, &g->v, t->request, t->index, key + 1) + head);
    }
#endif
    for (; j < qni_round_up(keys, PAIR); j++) {
        float *to = is_whole ? (float *)t->v + j * t->width : x;
        if (j < keys) {
            const uint32_t key = first + (uint32_t)j;
            load_row(t->p->dtype_kv, g->v.data,
                     qk_attention_key(g, &g->v, t->request, t->index, key) + head, dim, t->width,
                     to);
            scale_groups(t, key, dim, to);
        } else {
            memset(x, 0, sizeof x);
        }
        if (!is_whole)
            pack_value(t, j, x);
    }
}

// ---- scores

/** Fetches the row of a later key. Calls must be spread over the arithmetic: all at once the loads
 *  would wait for each other, and memory would idle afterwards. */
QN_INLINE void fetch(const tile *t, const qk_attention_rows *rows, uint32_t key, int64_t dim) {
    if (key >= (uint32_t)t->request->kv_len)
        return;
    const int64_t size = t->element_bytes;
    const int64_t from = key_offset(t, rows, key);
    for (int64_t i = 0; i < dim * size; i += 64)
        __builtin_prefetch((const char *)rows->data + from * size + i);
}

/** Returns one vector of scores with ALiBi, soft cap and masks added, for weights 2^x. */
static f32v add_extras(const tile *t, f32v x, uint32_t key, int64_t row) {
    const qk_attention_args *g = &t->p->args;
    if (g->pos_encoding == QK_POS_ALIBI) {
        const int64_t offset = (int64_t)t->request->kv_len - t->request->qo_len;
        f32v distance;
        for (int i = 0; i < QN_LANES; i++)
            distance[i] = (float)((int64_t)key - t->rows[row + i].query - offset);
        x += at(t->slope + row) * distance;
    }
    if (g->soft_cap > 0) { // c tanh(x / c)
        const f32v twice = x * (2 * QNI_LOG2_E / g->soft_cap);
        const f32v e = weight_of(select_of(twice > 127.0f, all_of(127), twice));
        x = g->soft_cap - 2 * g->soft_cap / (1 + e);
    }
    for (int i = 0; (g->mask_kind || g->custom_mask) && i < QN_LANES; i++) {
        if (row + i >= t->count)
            break;
        const float added = qni_attention_mask(g, &t->rows[row + i], key);
        x[i] = added > -__builtin_inff() || added != added ? x[i] + added : added; // x may be a NaN
    }
    return x * QNI_LOG2_E;
}

/** Returns x, but -infinity for rows that do not see the key. */
QN_INLINE f32v hide_key(const tile *t, f32v x, int32_t key, int64_t row) {
    if (key >= t->limit)
        return all_of(-__builtin_inff());
    return select_of((*(const i32v *)(t->first + row) <= key) &
                         (*(const i32v *)(t->end + row) > key),
                     x, all_of(-__builtin_inff()));
}

#if QN_LANES == 16
/** Computes the scores of VECTORS keys from j on, for `vectors` vectors of rows, into s, and their
 *  maximum into max. */
QN_INLINE void score_keys(tile *t, int vectors, uint32_t first, int64_t j, bool is_edge,
                          f32v *max) {
    f32v acc[VECTORS][VECTORS] = {};
    const cell *k = t->k + j * t->cells;
    for (uint32_t i = 0; i < VECTORS; i++) {
        fetch(t, &t->p->args.k, first + KEYS + (uint32_t)j + i, t->head);
        fetch(t, &t->p->args.v, first + KEYS + (uint32_t)j + i, t->p->args.head_dim_vo);
    }
    for (int64_t c = 0; c < t->cells; c++) {
        f32v q[VECTORS];
        for (int v = 0; v < vectors; v++)
            q[v] = *(const f32v *)(t->q + c * ROWS + v * QN_LANES);
        for (int i = 0; i < VECTORS; i++)
            for (int v = 0; v < vectors; v++)
                acc[i][v] = meet(acc[i][v], q[v], k + i * t->cells + c);
    }
    for (int i = 0; i < VECTORS; i++)
        for (int v = 0; v < vectors; v++) {
            const int64_t row = v * QN_LANES;
            const int32_t key = (int32_t)(first + (uint32_t)j + (uint32_t)i);
            f32v x = acc[i][v] * at(t->scale + row);
            if (t->has_extras)
                x = add_extras(t, x, (uint32_t)key, row);
            if (is_edge)
                x = hide_key(t, x, key, row);
            put(t->s + (j + i) * ROWS + row, x);
            max[v] = top_of(x, max[v]); // the second where one is a NaN
        }
}

#endif

// ---- weights

#ifdef QN_BF16
/** Writes the weights of keys j and j + 1 as pairs, in place of the scores of key j / 2. */
QN_INLINE void put_weights(tile *t, int64_t j, int64_t row, f32v even, f32v odd) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    *(__m512i *)(t->s + j / 2 * ROWS + row) = _mm512_permutexvar_epi16(order, both);
}
#endif

/** Returns what dropout leaves of a vector of weights. */
static f32v drop_out(const tile *t, f32v weight, uint32_t key, int64_t row) {
    const qk_attention_args *g = &t->p->args;
    for (int i = 0; i < QN_LANES && row + i < t->count; i++)
        weight[i] =
            qni_attention_keeps(g, &t->rows[row + i], key) ? weight[i] * g->dropout_scale : 0;
    return weight;
}

/** Turns scores into weights 2^(x - max) in place and adds them to the rows' sums. Returns the
 *  factor for what the rows had before. */
QN_INLINE f32v weigh(tile *t, int64_t row, uint32_t first, int64_t keys, f32v max) {
    const f32v old = at(t->max + row);
    const f32v top = top_of(old, max);
    const f32v safe =
        select_of(top > -__builtin_inff(), top, all_of(0)); // -infinity minus itself would be a NaN
    const f32v shrink = weight_of(old - safe);
    f32v sum = at(t->sum + row) * shrink;
    for (int64_t j = 0; j < keys; j += 2) {
        float *s = t->s + j * ROWS + row;
        f32v even = weight_of(at(s) - safe), odd = weight_of(at(s + ROWS) - safe);
        sum += even;
        sum += odd;
        if (t->p->args.has_dropout) {
            even = drop_out(t, even, first + (uint32_t)j, row);
            odd = drop_out(t, odd, first + (uint32_t)j + 1, row);
        }
#ifdef QN_BF16
        put_weights(t, j, row, even, odd);
#else
        put(s, even);
        put(s + ROWS, odd);
#endif
    }
    put(t->max + row, top);
    put(t->sum + row, sum);
    return shrink;
}

// ---- values

#if QN_LANES == 16
/** Adds values: o = o * shrink + weights * values, for VECTORS elements from d on. */
QN_INLINE void add_values(tile *t, int vectors, int64_t d, int64_t keys, const f32v *shrink) {
    f32v acc[VECTORS][VECTORS];
    for (int i = 0; i < VECTORS; i++)
        for (int v = 0; v < vectors; v++)
            acc[i][v] = at(t->o + (d + i) * ROWS + v * QN_LANES) * shrink[v];
    for (int64_t j = 0; j < keys / PAIR; j++) {
        f32v p[VECTORS];
        for (int v = 0; v < vectors; v++)
            p[v] = at(t->s + j * ROWS + v * QN_LANES);
        for (int i = 0; i < VECTORS; i++)
            for (int v = 0; v < vectors; v++)
                acc[i][v] = meet(acc[i][v], p[v], t->v + j * t->width + d + i);
    }
    for (int i = 0; i < VECTORS; i++)
        for (int v = 0; v < vectors; v++)
            put(t->o + (d + i) * ROWS + v * QN_LANES, acc[i][v]);
}

/** Adds one tile of keys. */
QN_INLINE void add_keys(tile *t, int vectors, uint32_t first, int64_t keys, bool is_edge) {
    f32v max[VECTORS], shrink[VECTORS];
    const int64_t scored = qni_round_up(keys, VECTORS);
    for (int v = 0; v < vectors; v++)
        max[v] = all_of(-__builtin_inff());
    if (is_edge)
        for (int64_t j = 0; j < scored; j += VECTORS)
            score_keys(t, vectors, first, j, true, max);
    else
        for (int64_t j = 0; j < scored; j += VECTORS)
            score_keys(t, vectors, first, j, false, max);
    for (int v = 0; v < vectors; v++)
        shrink[v] = weigh(t, v * QN_LANES, first, qni_round_up(keys, 2), max[v]);
    for (int64_t d = 0; d < t->width; d += VECTORS)
        add_values(t, vectors, d, qni_round_up(keys, PAIR), shrink);
}

static void add_keys_of(tile *t, uint32_t first, int64_t keys, bool is_edge) {
    if (t->count <= QN_LANES)
        add_keys(t, 1, first, keys, is_edge);
    else if (t->count <= 2 * QN_LANES)
        add_keys(t, 2, first, keys, is_edge);
    else
        add_keys(t, VECTORS, first, keys, is_edge);
}
#else
#include "attention_narrow_simd.h"
#endif

// ---- rows

/** Rows, and the keys that they see: from the first that any row sees, to the last; and those that
 *  all rows see. */
typedef struct range {
    uint32_t first, end, all_first, all_end;
} range;

static range set_rows(tile *t, uint32_t row) {
    const qk_attention_args *g = &t->p->args;
    range seen = {.first = UINT32_MAX, .all_end = UINT32_MAX};
    memset(t->first, 0, sizeof t->first);
    memset(t->end, 0, sizeof t->end);
    memset(t->scale, 0, sizeof t->scale);
    for (int64_t i = 0; i < t->count; i++) {
        const uint32_t at_row = row + (uint32_t)i, query = at_row / g->group;
        const uint32_t head = t->kv_head * g->group + at_row % g->group;
        const uint32_t first = qk_attention_first_key(g, t->request, query);
        const uint32_t end = qk_attention_end_key(g, t->request, query);
        t->rows[i] = (qni_attention_row){*t->request, t->index, query, head};
        t->first[i] = (int32_t)first, t->end[i] = (int32_t)end;
        t->scale[i] = qni_attention_scale(g, &t->rows[i]) * (t->has_extras ? 1.0f : QNI_LOG2_E);
        t->slope[i] = g->pos_encoding == QK_POS_ALIBI ? qni_attention_slope(g, head) : 0;
        seen.first = first < seen.first ? first : seen.first;
        seen.end = end > seen.end ? end : seen.end;
        seen.all_first = first > seen.all_first ? first : seen.all_first;
        seen.all_end = end < seen.all_end ? end : seen.all_end;
    }
    return seen;
}

#if QN_LANES == 16
static void finish_rows(tile *t, uint32_t row, uint32_t chunk) {
    const int64_t dim = t->p->args.head_dim_vo;
    alignas(64) float x[MAX_DIM];
    for (int64_t i = 0; i < t->count; i++) {
        for (int64_t d = 0; d < dim; d++)
            x[d] = t->o[d * ROWS + i];
        qni_attention_finish(t->p, &t->rows[i], row + (uint32_t)i, chunk, t->max[i], t->sum[i], x);
    }
}

#endif

static void run_chunk(tile *t, uint32_t row, range seen, uint32_t begin, uint32_t end) {
    uint32_t key = begin; // skips whole tiles up to the first key that is seen
    if (seen.first > begin)
        key += (seen.first - begin) / KEYS * KEYS;
    memset(t->o, 0, (size_t)(t->width * ROWS) * sizeof *t->o);
    memset(t->sum, 0, sizeof t->sum);
    for (int i = 0; i < ROWS; i++)
        t->max[i] = -__builtin_inff();
    const uint32_t stop = end < seen.end ? end : seen.end;
    t->limit = (int32_t)end;
    for (; key < stop; key += KEYS) {
        const int64_t keys = end - key < KEYS ? end - key : KEYS;
        const bool is_edge = key < seen.all_first || key + KEYS > seen.all_end || keys < KEYS;
        pack_k(t, key, keys);
        pack_v(t, key, keys);
        add_keys_of(t, key, keys, is_edge);
    }
    finish_rows(t, row, begin);
}

#endif
