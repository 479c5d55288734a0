// SPDX-License-Identifier: Apache-2.0
// The cases of FlashInfer's grids of attention: a line is one of FlashInfer's calls; its axes are
// those of FlashInfer's tests, with storage and masks beyond them. From the axes' values the
// functions below make the spec of a case and its cost.
#ifndef QNI_ATTENTION_GRID_H
#define QNI_ATTENTION_GRID_H

#include "../shared/covering.h"
#include "attention_case.h"

// ---- values of the axes, cheapest first

/** FlashInfer's sizes, and the sizes that simulated GPUs take in their place. heads: of q, of k and
 *  v. */
typedef struct sizes {
    int32_t batch[4], kv[4], qo[5], heads[3][2];
    double most; // products in a case
} sizes;
static const sizes upstream = {
    {1, 12, 17, 128}, {54, 97, 512, 2048}, {1, 17, 37, 127, 577}, {{4, 4}, {32, 8}, {32, 4}}, 4e7};
static const sizes reduced = {
    {1, 12, 17, 32}, {54, 97, 128, 320}, {1, 17, 37, 127, 129}, {{1, 1}, {8, 2}, {8, 1}}, 2e6};

static const int32_t pages[] = {16, 5, 1};
static const int32_t dims[][2] = {{64, 64},   {72, 72},   {80, 80},   {96, 96},  {112, 112},
                                  {128, 128}, {160, 160}, {192, 128}, {256, 256}};

/** How rows lie in memory: side by side; at multiples of 16 bytes; heads and tokens exchanged;
 *  anywhere. */
typedef enum memory { PACKED, GAPS, SWAPPED, ODD } memory;

/** Kinds of FP8 that depend on the target; they stand beside qni_dtype's. */
enum { E4M3 = -1, E5M2 = -2 };
static const struct {
    int q, kv, o;
    bool has_scales;
} types[] = {{QNI_F16, QNI_F16, QNI_F16, false},  {QNI_BF16, QNI_BF16, QNI_BF16, false},
             {QNI_F16, E4M3, QNI_F16, true},      {QNI_BF16, E5M2, QNI_BF16, false},
             {QNI_BF16, QNI_BF16, QNI_F32, true}, {E4M3, E4M3, QNI_BF16, true}};

/** What hides keys. From BOOLEAN on it is a tensor, and storage is dense. */
typedef enum hiding {
    NOTHING,
    CAUSAL,
    WINDOW,
    CAUSAL_WINDOW,
    PACKED_MASK,
    TOP_LEFT,
    BOOLEAN,
    BOOLEAN_OF_ALL,
    ADDED_F32,
    ADDED_F16,
    ADDED_BF16,
    HIDINGS
} hiding;
enum { BATCH_HIDINGS = BOOLEAN, PADDED_HIDINGS = BOOLEAN + 1, DECODE_HIDINGS = TOP_LEFT };

typedef enum split { DEFAULT_SPLIT, FIXED_SPLIT, NO_SPLIT } split;

typedef enum axis {
    BATCH,
    KV,
    QO,
    PAGE,
    HEADS,
    DIM,
    LAYOUT,
    MEMORY,
    TYPES,
    HIDING,
    POSITION,
    CAP,
    SINKS,
    LSE,
    SPLIT,
    AXES
} axis;

/** One of FlashInfer's calls: how many values each of its axes has. */
typedef struct line {
    const char *name;
    qni_case_storage storage;
    int sizes[AXES];
} line;
#define REST(hidings) 3, 9, 2, 4, 6, hidings, 3, 2, 2, 2, 3
static const line lines[] = {
    {"single decode", QNI_CASE_DENSE, {1, 4, 1, 1, REST(DECODE_HIDINGS)}},
    {"single prefill", QNI_CASE_DENSE, {1, 4, 5, 1, REST(HIDINGS)}},
    {"padded batch", QNI_CASE_PADDED, {3, 4, 5, 1, REST(PADDED_HIDINGS)}},
    {"batch decode, paged", QNI_CASE_PAGED, {4, 4, 1, 3, REST(DECODE_HIDINGS)}},
    {"batch prefill, paged", QNI_CASE_PAGED, {4, 4, 5, 3, REST(BATCH_HIDINGS)}},
    {"batch prefill, ragged", QNI_CASE_RAGGED, {4, 4, 5, 1, REST(BATCH_HIDINGS)}}};
enum { LINES = sizeof lines / sizeof *lines };

/** Returns whether two values may be in one case: ALiBi and a soft cap exclude each other. */
static inline bool can_meet(int i, int a, int j, int b) {
    if (i == CAP && j == POSITION)
        return can_meet(j, b, i, a);
    return !(i == POSITION && j == CAP && a == QN_POS_ALIBI && b == 1);
}

// ---- a case

/** What a case is made for. */
typedef struct place {
    const line *line;
    const sizes *sizes;
    bool is_fnuz;
} place;

static inline qni_dtype dtype_of(const place *p, int dtype) {
    return dtype == E4M3   ? (p->is_fnuz ? QNI_E4M3FNUZ : QNI_E4M3FN)
           : dtype == E5M2 ? (p->is_fnuz ? QNI_E5M2FNUZ : QNI_E5M2)
                           : (qni_dtype)dtype;
}

static inline void set_hiding(qni_attention_spec *s, hiding h) {
    static const int32_t kinds[HIDINGS] = {[BOOLEAN] = QK_MASK_BOOL,
                                           [BOOLEAN_OF_ALL] = QK_MASK_BOOL,
                                           [ADDED_F32] = QK_MASK_F32,
                                           [ADDED_F16] = QK_MASK_F16,
                                           [ADDED_BF16] = QK_MASK_BF16};
    s->is_causal = h == CAUSAL || h == CAUSAL_WINDOW || h == TOP_LEFT;
    s->is_top_left = h == TOP_LEFT;
    s->has_left = h == WINDOW || h == CAUSAL_WINDOW;
    s->left = s->has_left ? 43 : 0;
    s->has_custom_mask = h == PACKED_MASK;
    s->mask_kind = kinds[h];
    s->is_mask_broadcast = h == BOOLEAN_OF_ALL;
}

static inline void set_memory(qni_attention_spec *s, memory m) {
    s->is_swapped = m == SWAPPED;
    s->gap = m == GAPS ? 16 : m == ODD ? 3 : 0;
    s->block_gap = m == GAPS ? 64 : m == ODD ? 5 : 0;
    s->offset = m == ODD;
}

static inline qni_attention_spec make_spec(const place *p, const int *v) {
    const sizes *z = p->sizes;
    const int32_t qo = z->qo[v[QO]], kv = z->kv[v[KV]], *dim = dims[v[DIM]];
    qni_attention_spec s = {.storage = p->line->storage,
                            .batches = z->batch[v[BATCH]],
                            .qo = {qo, qo / 4 + 1, 1},
                            .kv = {kv, kv / 4 + 1, kv / 16 + 1},
                            .qo_heads = z->heads[v[HEADS]][0],
                            .kv_heads = z->heads[v[HEADS]][1],
                            .dim = dim[0],
                            .dim_vo = dim[1] == dim[0] ? 0 : dim[1],
                            .dtype = dtype_of(p, types[v[TYPES]].q),
                            .dtype_kv = dtype_of(p, types[v[TYPES]].kv),
                            .dtype_o = dtype_of(p, types[v[TYPES]].o),
                            .has_scales = types[v[TYPES]].has_scales,
                            .page = p->line->storage == QNI_CASE_PAGED ? pages[v[PAGE]] : 0,
                            .is_hnd = v[LAYOUT],
                            .pos = v[POSITION],
                            .cap = v[CAP] ? 8 : 0,
                            .has_sinks = v[SINKS],
                            .has_lse = v[LSE],
                            .chunk = v[SPLIT] == FIXED_SPLIT ? kv / 3 | 1
                                     : v[SPLIT] == NO_SPLIT  ? -1
                                                             : 0};
    set_hiding(&s, (hiding)v[HIDING]);
    set_memory(&s, (memory)v[MEMORY]);
    return s;
}

/** Returns how many products all requests take, with what it takes to fill keys and values. The
 *  third's and the second's lengths come again in turn. */
static inline double cost(const void *context, const int *v) {
    const place *p = context;
    const qni_attention_spec s = make_spec(p, v);
    const bool has_one_qo = s.storage == QNI_CASE_DENSE || s.storage == QNI_CASE_PADDED;
    const int32_t width = s.dim + (s.dim_vo ? s.dim_vo : s.dim);
    constexpr double filling = 16; // as products
    double sum = 0;
    for (int b = 0; b < s.batches; b++) {
        const int i = b < QNI_CASE_LENGTHS ? b : 1 + b % (QNI_CASE_LENGTHS - 1);
        const double qo = s.qo[has_one_qo ? 0 : i], kv = s.kv[s.storage == QNI_CASE_DENSE ? 0 : i];
        sum += qo * kv * s.qo_heads + kv * s.kv_heads * filling;
    }
    return sum * width;
}

static inline qni_axes axes_of(const place *p) {
    qni_axes axes = {
        .count = AXES, .can_meet = can_meet, .cost = cost, .context = p, .most = p->sizes->most};
    memcpy(axes.sizes, p->line->sizes, sizeof p->line->sizes);
    return axes;
}

#endif
