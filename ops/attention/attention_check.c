// SPDX-License-Identifier: Apache-2.0
// The check problems of the attention family: every storage, mask and dtype, and the published edge
// vectors.
#include "attention_case.h"

#include <stdlib.h>
#include <string.h>

#define DENSE .storage = QNI_CASE_DENSE
#define RAGGED .storage = QNI_CASE_RAGGED
#define PAGED .storage = QNI_CASE_PAGED
#define PADDED .storage = QNI_CASE_PADDED
#define HEADS(q, k, d) .qo_heads = q, .kv_heads = k, .dim = d
#define ALL_OF(dtype_name) .dtype = dtype_name, .dtype_kv = dtype_name, .dtype_o = dtype_name
#define TYPES(a, b, c) .dtype = a, .dtype_kv = b, .dtype_o = c
#define BF16 ALL_OF(QNI_BF16)
#define F16 ALL_OF(QNI_F16)
#define QUICK .is_quick = true
#define RAMPS .values = QNI_CASE_RAMPS, .has_lse = true

// clang-format off: a case a line
/** Each query sees its own key alone, with scores near the least finite number. */
#define SOLE_KEYS(d, types) \
    {DENSE, 1, {8}, {8}, HEADS(2, 1, d), types, .values = QNI_CASE_LOW, .has_left = true, .is_causal = true, .has_lse = true}

#define BF16_FP8 TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16)
#define F16_FP8 TYPES(QNI_F16, QNI_E4M3FN, QNI_F16)
#define ALL_FP8(o) TYPES(QNI_E4M3FN, QNI_E4M3FN, o)

static const qni_attention_spec specs[] = {
    // Dense: head dims, layouts, tiles and their edges.
    {DENSE, 2, {17}, {33}, HEADS(2, 2, 64), BF16, .has_lse = true, QUICK},
    {DENSE, 1, {64}, {64}, HEADS(4, 2, 72), F16, .is_hnd = true, .is_causal = true},
    {DENSE, 1, {65}, {65}, HEADS(1, 1, 80), BF16, .is_causal = true, .has_lse = true},
    {DENSE, 1, {40}, {63}, HEADS(2, 1, 96), F16, .is_swapped = true, QUICK},
    {DENSE, 1, {31}, {70}, HEADS(3, 3, 112), BF16, .is_hnd = true, .is_swapped = true},
    {DENSE, 1, {130}, {130}, HEADS(2, 1, 128), BF16, .is_causal = true, .has_lse = true, QUICK},
    {DENSE, 1, {129}, {200}, HEADS(2, 2, 128), F16, .is_hnd = true, .is_causal = true},
    {DENSE, 1, {20}, {40}, HEADS(2, 2, 160), BF16, .gap = 8},
    {DENSE, 1, {33}, {47}, HEADS(2, 1, 256), F16, .is_causal = true, QUICK},
    {DENSE, 1, {34}, {50}, HEADS(2, 2, 192), .dim_vo = 128, BF16, .is_causal = true, .has_lse = true, QUICK},
    {DENSE, 1, {5}, {9}, HEADS(2, 1, 33), ALL_OF(QNI_F32), .gap = 3, .offset = 1, .has_lse = true, QUICK},
    {DENSE, 1, {3}, {5}, HEADS(1, 1, 1), ALL_OF(QNI_F32)},
    {DENSE, 1, {4}, {6}, HEADS(1, 1, 512), BF16, .dim_vo = 7},
    {DENSE, 1, {3}, {5}, HEADS(1, 1, 300), BF16, .dim_vo = 450},
    {DENSE, 2, {40}, {40}, HEADS(2, 2, 64), ALL_OF(QNI_F32), .is_causal = true, .has_lse = true},
    {DENSE, 1, {260}, {70}, HEADS(2, 2, 64), BF16, .is_hnd = true, .has_lse = true},
    {DENSE, 1, {300}, {300}, HEADS(1, 1, 64), F16, .is_causal = true, .is_top_left = true},
    // Types.
    {DENSE, 1, {6}, {30}, HEADS(4, 2, 64), TYPES(QNI_F32, QNI_BF16, QNI_F16), .has_scales = true},
    {DENSE, 1, {7}, {66}, HEADS(4, 1, 128), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .has_scales = true, QUICK},
    {DENSE, 1, {7}, {66}, HEADS(4, 1, 128), TYPES(QNI_F16, QNI_E4M3FNUZ, QNI_F32), .has_scales = true, QUICK},
    {DENSE, 1, {7}, {40}, HEADS(2, 1, 64), TYPES(QNI_F16, QNI_E5M2, QNI_F16)},
    {DENSE, 1, {7}, {40}, HEADS(2, 1, 64), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_BF16), .has_scales = true},
    {DENSE, 1, {7}, {40}, HEADS(2, 1, 80), TYPES(QNI_E5M2FNUZ, QNI_E5M2FNUZ, QNI_F16), .is_causal = true},
    // FP8 caches: every kind beside both of q's types, edges of tiles and heads, storages, splits,
    // masks.
    {DENSE, 1, {65}, {65}, HEADS(1, 1, 80), TYPES(QNI_F16, QNI_E4M3FN, QNI_F16), .is_causal = true, .has_lse = true},
    {DENSE, 1, {64}, {64}, HEADS(4, 2, 72), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .is_hnd = true,
     .has_scales = true, QUICK},
    {DENSE, 1, {40}, {63}, HEADS(2, 1, 96), TYPES(QNI_BF16, QNI_E5M2, QNI_F32), .is_swapped = true, .has_lse = true},
    {DENSE, 1, {20}, {40}, HEADS(2, 2, 160), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .gap = 8},
    {DENSE, 1, {20}, {40}, HEADS(2, 2, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .gap = 4},
    {DENSE, 1, {34}, {50}, HEADS(2, 2, 192), .dim_vo = 128, TYPES(QNI_F16, QNI_E5M2FNUZ, QNI_F16), .is_causal = true,
     .has_scales = true},
    {DENSE, 1, {130}, {130}, HEADS(2, 1, 128), TYPES(QNI_BF16, QNI_E5M2FNUZ, QNI_BF16), .is_causal = true,
     .has_lse = true},
    {RAGGED, 3, {5, 0, 70}, {9, 4, 80}, HEADS(4, 2, 64), TYPES(QNI_BF16, QNI_E5M2, QNI_BF16), .is_causal = true,
     .has_scales = true, .has_lse = true},
    {PADDED, 2, {1}, {70, 5}, HEADS(8, 2, 112), TYPES(QNI_F16, QNI_E5M2, QNI_F16), .is_hnd = true},
    {PAGED, 3, {3, 17, 0}, {23, 40, 10}, HEADS(4, 1, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 5,
     .is_hnd = true, .is_causal = true, .has_scales = true, QUICK},
    {DENSE, 1, {1}, {70}, HEADS(4, 2, 128), TYPES(QNI_F16, QNI_E4M3FN, QNI_F16), .has_lse = true},
    {PAGED, 2, {1, 3}, {150, 40}, HEADS(4, 2, 64), TYPES(QNI_F16, QNI_E4M3FNUZ, QNI_F16), .page = 16, .chunk = 32,
     .splits = 2, .has_sinks = true, .has_scales = true, .has_lse = true},
    {DENSE, 1, {40}, {90}, HEADS(2, 1, 128), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .chunk = 33, .is_causal = true,
     .has_scales = true, .has_lse = true},
    {DENSE, 2, {12}, {70}, HEADS(2, 1, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .mask_kind = QK_MASK_F32,
     .has_left = true, .left = 20, .has_lse = true},
    {DENSE, 1, {12}, {40}, HEADS(12, 4, 64), TYPES(QNI_F16, QNI_E4M3FN, QNI_F16), .pos = QN_POS_ALIBI,
     .is_causal = true},
    {DENSE, 1, {9}, {250}, HEADS(1, 1, 128), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .values = QNI_CASE_PEAKS,
     .has_lse = true},
    {DENSE, 1, {8}, {8}, HEADS(2, 1, 128), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .values = QNI_CASE_LOW,
     .has_left = true, .is_causal = true},
    {DENSE, 1, {20}, {40}, HEADS(4, 2, 64), BF16, .has_scales = true, .has_negative_scales = true, .has_lse = true,
     QUICK},
    {PAGED, 2, {1, 2}, {70, 33}, HEADS(4, 2, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 16,
     .has_scales = true, .has_negative_scales = true},
    // FP8 queries.
    {PAGED, 2, {1, 2}, {70, 33}, HEADS(8, 2, 128), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ, QNI_BF16), .page = 16,
     .has_scales = true, .has_lse = true},
    {DENSE, 1, {65}, {65}, HEADS(1, 1, 80), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_F16), .is_causal = true,
     .has_scales = true, .has_lse = true, QUICK},
    {RAGGED, 2, {33, 8}, {20, 40}, HEADS(2, 1, 192), .dim_vo = 128, TYPES(QNI_E5M2, QNI_E4M3FN, QNI_F32),
     .is_causal = true},
    {DENSE, 1, {40}, {40}, HEADS(2, 1, 64), TYPES(QNI_E4M3FN, QNI_BF16, QNI_BF16)},
    // FP8 caches of the target's own kind in prompts.
    {PAGED, 3, {70, 33, 1}, {83, 40, 10}, HEADS(4, 2, 128), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16,
     .is_causal = true, .has_lse = true, QUICK},
    {PAGED, 2, {20, 37}, {150, 97}, HEADS(2, 1, 128), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 16,
     .has_lse = true, QUICK},
    {RAGGED, 2, {33, 21}, {97, 64}, HEADS(2, 1, 64), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .has_sinks = true, QUICK},
    {PADDED, 2, {130}, {129, 77}, HEADS(1, 1, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .is_causal = true,
     .has_left = true, .left = 40, .has_lse = true, QUICK},
    {DENSE, 1, {40}, {90}, HEADS(2, 1, 128), TYPES(QNI_E4M3FNUZ, QNI_E4M3FNUZ, QNI_BF16), .chunk = 48,
     .has_scales = true, .has_negative_scales = true, .has_lse = true},
    {DENSE, 1, {20}, {40}, HEADS(4, 2, 64), F16, .is_causal = true, .has_scales = true, .has_negative_scales = true},
    {PAGED, 1, {130}, {300}, HEADS(2, 1, 64), TYPES(QNI_E4M3FN, QNI_E4M3FN, QNI_BF16), .page = 32, .is_hnd = true},
    // Ragged, padded.
    {RAGGED, 3, {5, 0, 70}, {9, 4, 80}, HEADS(4, 2, 64), BF16, .is_causal = true, .has_lse = true, QUICK},
    {RAGGED, 3, {1, 30, 3}, {100, 30, 0}, HEADS(2, 2, 128), F16, .is_hnd = true, .has_lse = true},
    {RAGGED, 2, {33, 8}, {20, 8}, HEADS(2, 1, 192), .dim_vo = 128, BF16, .is_causal = true},
    {PADDED, 3, {4}, {33, 0, 20}, HEADS(4, 4, 64), BF16, .is_causal = true, .has_lse = true, QUICK},
    {PADDED, 2, {1}, {70, 5}, HEADS(8, 2, 128), F16, .is_hnd = true},
    // Paged: page sizes, layouts, decode and append; NaNs in all unused slots, a shared page.
    {PAGED, 3, {1, 1, 1}, {70, 33, 1}, HEADS(8, 2, 128), BF16, .page = 16, .has_lse = true, QUICK},
    {PAGED, 3, {1, 1, 1}, {21, 0, 9}, HEADS(4, 4, 64), F16, .page = 1, .has_lse = true},
    {PAGED, 3, {3, 17, 0}, {23, 40, 10}, HEADS(4, 1, 64), BF16, .page = 5, .is_hnd = true, .is_causal = true, QUICK},
    {PAGED, 2, {9, 1}, {200, 130}, HEADS(2, 1, 128), BF16, .page = 1024, .is_causal = true},
    {PAGED, 2, {1, 2}, {300, 77}, HEADS(8, 1, 128), TYPES(QNI_BF16, QNI_E4M3FNUZ, QNI_BF16), .page = 16,
     .is_hnd = true, .has_scales = true, .has_lse = true},
    {PAGED, 2, {1, 2}, {70, 77}, HEADS(4, 1, 256), TYPES(QNI_F16, QNI_E4M3FN, QNI_F16), .page = 8, .gap = 16},
    // Few rows of every count, with head dims of every rest.
    {DENSE, 1, {1}, {203}, HEADS(1, 1, 80), BF16, .has_lse = true, QUICK},
    {PAGED, 2, {1, 1}, {200, 97}, HEADS(2, 1, 112), BF16, .page = 16, .is_hnd = true, QUICK},
    {DENSE, 1, {3}, {100}, HEADS(1, 1, 72), F16, .is_causal = true, .has_lse = true},
    {DENSE, 1, {1}, {203}, HEADS(5, 1, 112), F16, .has_lse = true, QUICK},
    {DENSE, 1, {2}, {203}, HEADS(3, 1, 80), ALL_OF(QNI_F32), .is_causal = true, .has_lse = true, QUICK},
    {DENSE, 1, {1}, {193}, HEADS(7, 1, 64), BF16, .has_lse = true, QUICK},
    {DENSE, 1, {2}, {203}, HEADS(4, 1, 128), BF16, .is_causal = true, .has_lse = true},
    // Split keys: fixed chunks, shared by fewer work items, with sinks.
    {PAGED, 2, {1, 3}, {150, 40}, HEADS(4, 2, 64), BF16, .page = 16, .chunk = 32, .is_causal = true, .has_lse = true,
     QUICK},
    {PAGED, 2, {1, 3}, {150, 40}, HEADS(4, 2, 64), BF16, .page = 16, .chunk = 32, .splits = 2, .has_sinks = true,
     .has_lse = true},
    {DENSE, 1, {2}, {600}, HEADS(2, 1, 64), F16, .has_lse = true, .is_natural = true, QUICK},
    {DENSE, 1, {40}, {90}, HEADS(2, 1, 64), BF16, .chunk = 33, .is_causal = true, .has_scales = true, .has_lse = true},
    {DENSE, 1, {3}, {100}, HEADS(2, 2, 64), BF16, .chunk = 10, .splits = 7, .has_left = true, .left = 12,
     .has_lse = true},
    // Masks.
    {DENSE, 1, {20}, {50}, HEADS(2, 2, 64), BF16, .has_left = true, .left = 0, .is_causal = true, .has_lse = true,
     QUICK},
    {DENSE, 1, {20}, {50}, HEADS(2, 2, 64), BF16, .has_left = true, .left = 7, .is_causal = true, QUICK},
    {DENSE, 1, {150}, {150}, HEADS(1, 1, 64), F16, .has_left = true, .left = 20, .is_causal = true},
    {DENSE, 1, {30}, {40}, HEADS(1, 1, 64), F16, .has_left = true, .left = 1000, .has_right = true, .right = 3},
    {DENSE, 1, {50}, {20}, HEADS(2, 1, 64), BF16, .is_causal = true, .is_top_left = true, .has_lse = true},
    {DENSE, 1, {20}, {50}, HEADS(2, 1, 64), BF16, .is_causal = true, .is_top_left = true, QUICK},
    // Rows without keys.
    {DENSE, 1, {80}, {30}, HEADS(2, 1, 64), BF16, .is_causal = true, .has_lse = true, QUICK},
    {RAGGED, 2, {9, 20}, {21, 30}, HEADS(2, 1, 64), BF16, .has_custom_mask = true, .has_lse = true, QUICK},
    // Without a plan.
    {DENSE, 2, {9}, {21}, HEADS(2, 1, 64), BF16, .has_custom_mask = true, .has_lse = true},
    {DENSE, 1, {9}, {21}, HEADS(2, 1, 64), BF16, .has_custom_mask = true, .is_mask_zero = true, .is_causal = true,
     .has_lse = true},
    {DENSE, 2, {12}, {70}, HEADS(2, 1, 64), BF16, .mask_kind = QK_MASK_BOOL, .has_lse = true, QUICK},
    {DENSE, 2, {12}, {70}, HEADS(2, 1, 64), BF16, .mask_kind = QK_MASK_BOOL, .is_mask_broadcast = true},
    {DENSE, 2, {12}, {33}, HEADS(2, 1, 64), BF16, .mask_kind = QK_MASK_F32, .is_mask_broadcast = true, .is_hnd = true,
     QUICK},
    {DENSE, 1, {12}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_F16, .has_lse = true},
    {DENSE, 1, {12}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_BF16},
    {DENSE, 1, {5}, {33}, HEADS(2, 2, 64), F16, .mask_kind = QK_MASK_F32, .is_mask_zero = true, .has_lse = true},
    // Scores.
    {DENSE, 1, {12}, {40}, HEADS(12, 4, 64), BF16, .pos = QN_POS_ALIBI, .is_causal = true, .has_lse = true, QUICK},
    {RAGGED, 2, {7, 3}, {40, 9}, HEADS(2, 1, 64), F16, .pos = QN_POS_ROPE_LLAMA, .is_causal = true, .has_lse = true,
     QUICK},
    {PAGED, 2, {1, 3}, {40, 9}, HEADS(2, 1, 128), BF16, .page = 4, .pos = QN_POS_ROPE_LLAMA},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), BF16, .cap = 30, .is_causal = true, .has_lse = true, QUICK},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), BF16, .cap = 1e-3f},
    {DENSE, 1, {12}, {40}, HEADS(4, 2, 64), BF16, .has_sinks = true, .has_lse = true, .is_natural = true, QUICK},
    {DENSE, 1, {30}, {10}, HEADS(4, 2, 64), BF16, .has_sinks = true, .is_causal = true, .has_lse = true},
    {DENSE, 2, {12}, {43}, HEADS(4, 2, 64), BF16, .dropout = 0.5f, .has_lse = true, QUICK},
    {RAGGED, 2, {7, 3}, {40, 9}, HEADS(2, 1, 64), F16, .dropout = 0.1f, .is_causal = true},
    {DENSE, 1, {40}, {90}, HEADS(2, 1, 72), F16, .dropout = 0.3f, .chunk = 33, .is_causal = true, .has_lse = true, QUICK},
    {PAGED, 2, {3, 37}, {130, 77}, HEADS(4, 2, 136), BF16, .page = 16, .dropout = 0.999f, .has_sinks = true},
    {DENSE, 2, {21}, {150}, HEADS(2, 1, 64), BF16, .dropout = 0.2f, .mask_kind = QK_MASK_F32, .cap = 30, .has_lse = true},
    {DENSE, 1, {12}, {40}, HEADS(2, 1, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .dropout = 0.5f},
    // Scores near the least finite number.
    {DENSE, 1, {1}, {1}, HEADS(2, 1, 128), BF16, .values = QNI_CASE_LOW, .has_lse = true, QUICK},
    SOLE_KEYS(128, F16),
    SOLE_KEYS(64, F16),
    SOLE_KEYS(96, F16),
    SOLE_KEYS(64, BF16),
    SOLE_KEYS(256, TYPES(QNI_F16, QNI_F16, QNI_F32)),
    {DENSE, 1, {30}, {70}, HEADS(2, 1, 64), BF16, .values = QNI_CASE_PEAKS, .has_lse = true, QUICK},
    // Maxima that rise far from one tile of keys to the next.
    {DENSE, 1, {9}, {500}, HEADS(1, 1, 64), BF16, .values = QNI_CASE_PEAKS, .has_lse = true, QUICK},
    {DENSE, 1, {9}, {250}, HEADS(1, 1, 128), F16, .values = QNI_CASE_PEAKS, .has_lse = true},
    // All weight on the first and last keys that are seen: bounds, windows, pages, chunks.
    {DENSE, 1, {3}, {333}, HEADS(2, 1, 64), BF16, RAMPS, QUICK},
    {DENSE, 1, {40}, {321}, HEADS(2, 1, 64), BF16, RAMPS, .is_causal = true, QUICK},
    {DENSE, 1, {70}, {340}, HEADS(2, 1, 128), F16, RAMPS, .is_causal = true, .has_left = true, .left = 100, QUICK},
    {DENSE, 1, {33}, {310}, HEADS(2, 1, 128), F16, RAMPS, .has_left = true, .left = 64, .has_right = true, .right = 37},
    {DENSE, 1, {70}, {320}, HEADS(2, 1, 64), BF16, RAMPS, .is_causal = true, .is_top_left = true, .has_left = true,
     .left = 9},
    {DENSE, 1, {2}, {400}, HEADS(2, 2, 33), ALL_OF(QNI_F32), RAMPS, .is_causal = true, .has_left = true, .left = 270,
     QUICK},
    {PADDED, 3, {2}, {310, 64, 129}, HEADS(2, 1, 64), F16, RAMPS, .is_causal = true},
    {PAGED, 3, {1, 2, 1}, {331, 304, 5}, HEADS(4, 2, 64), BF16, .page = 16, RAMPS, .is_causal = true, QUICK},
    {PAGED, 3, {1, 20, 1}, {320, 305, 17}, HEADS(2, 1, 128), F16, .page = 7, RAMPS, .is_causal = true},
    {PAGED, 2, {1, 30}, {310, 301}, HEADS(2, 1, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .page = 16, RAMPS, QUICK},
    {PAGED, 2, {1, 30}, {310, 301}, HEADS(2, 1, 64), TYPES(QNI_F16, QNI_E4M3FNUZ, QNI_F16), .page = 8, RAMPS,
     .has_left = true, .left = 40},
    {PAGED, 1, {3}, {700}, HEADS(2, 1, 64), BF16, .page = 16, .chunk = 96, .splits = 3, RAMPS, .is_causal = true},
    // Several tiles of rows, with bounds inside the first one's and the last one's keys.
    {DENSE, 2, {200}, {310}, HEADS(4, 2, 128), BF16, RAMPS, .is_causal = true},
    {DENSE, 1, {194}, {250}, HEADS(3, 1, 128), BF16, RAMPS, .is_hnd = true},
    {DENSE, 1, {390}, {170}, HEADS(2, 1, 96), BF16, .is_causal = true, .has_sinks = true, .has_lse = true},
    {DENSE, 1, {210}, {320}, HEADS(2, 1, 128), BF16, RAMPS, .is_causal = true, .is_top_left = true},
    {DENSE, 2, {400}, {161}, HEADS(2, 2, 72), BF16, .has_right = true, .right = 40, .has_lse = true, .is_natural = true},
    {DENSE, 1, {9}, {500}, HEADS(1, 1, 128), BF16, .values = QNI_CASE_PEAKS, .has_lse = true},
    // Few rows: pages of sizes that copies of boxes take, ragged and padded keys, chunks that begin
    // inside a box.
    {PAGED, 3, {1, 2, 1}, {331, 70, 5}, HEADS(8, 1, 128), BF16, .page = 32, RAMPS, .is_causal = true},
    {PAGED, 2, {1, 1}, {200, 130}, HEADS(4, 2, 128), F16, .page = 128, RAMPS, .has_left = true, .left = 70},
    {PAGED, 2, {2, 1}, {140, 97}, HEADS(4, 2, 96), BF16, .page = 8, .chunk = 50, .has_sinks = true, .has_lse = true},
    {RAGGED, 3, {1, 2, 1}, {150, 66, 31}, HEADS(4, 2, 64), F16, RAMPS, .is_causal = true},
    {PADDED, 2, {1}, {200, 65}, HEADS(8, 2, 128), BF16, .chunk = 96, .has_lse = true},
    {PAGED, 3, {1, 3, 1}, {290, 70, 3}, HEADS(4, 1, 256), BF16, .page = 24, .is_causal = true, .has_lse = true},
    {PAGED, 2, {1, 2}, {270, 33}, HEADS(4, 2, 128), BF16, .page = 5, .cap = 30, .has_scales = true,
     .has_negative_scales = true, .has_lse = true},
    // Prompts of more than one length, in each storage: tiles of 192 and 128 rows, of several heads
    {RAGGED, 3, {70, 33, 9}, {150, 33, 100}, HEADS(4, 1, 64), BF16, RAMPS, .is_causal = true, QUICK},
    {RAGGED, 2, {100, 40}, {100, 170}, HEADS(6, 1, 128), F16, .is_causal = true, .has_lse = true},
    {RAGGED, 3, {200, 20, 30}, {130, 0, 7}, HEADS(3, 1, 72), BF16, .has_lse = true},
    {RAGGED, 2, {130, 20}, {190, 100}, HEADS(2, 1, 128), F16, .cap = 30, .is_causal = true, .has_left = true, .left = 90,
     .has_lse = true},
    {PAGED, 2, {60, 25}, {170, 90}, HEADS(8, 2, 128), BF16, .page = 64, RAMPS, .is_causal = true, QUICK},
    {PAGED, 2, {40, 20}, {100, 81}, HEADS(2, 1, 80), F16, .page = 1, .is_hnd = true, .is_causal = true, .has_lse = true},
    {PAGED, 2, {20, 40}, {330, 90}, HEADS(4, 1, 64), BF16, .page = 16, .chunk = 96, .is_causal = true, .has_sinks = true,
     .has_lse = true},
    {PAGED, 2, {70, 20}, {300, 100}, HEADS(4, 2, 64), F16, .page = 32, RAMPS, .is_causal = true, .has_left = true,
     .left = 40},
    {PADDED, 2, {70}, {150, 40}, HEADS(4, 2, 96), BF16, .is_causal = true, .has_lse = true},
    {RAGGED, 2, {140, 20}, {190, 100}, HEADS(2, 1, 256), BF16, RAMPS, .is_causal = true, QUICK},
    {PAGED, 2, {70, 20}, {170, 100}, HEADS(4, 1, 256), F16, .page = 16, .is_causal = true, .has_sinks = true,
     .has_lse = true},
    {PADDED, 2, {40}, {150, 90}, HEADS(4, 1, 192), BF16, .chunk = 64, .has_left = true, .left = 70, .has_lse = true},
    {RAGGED, 2, {200, 20}, {210, 100}, HEADS(2, 2, 192), .dim_vo = 128, BF16, .is_causal = true, .has_lse = true},
    {PAGED, 2, {100, 30}, {170, 90}, HEADS(2, 1, 160), .dim_vo = 96, F16, .page = 8, .chunk = 50, .is_causal = true},
    {DENSE, 2, {140}, {170}, HEADS(2, 1, 256), BF16, .is_hnd = true, .is_causal = true, .has_lse = true},
    {DENSE, 1, {200}, {90}, HEADS(2, 1, 192), .dim_vo = 128, F16, .gap = 8, .has_lse = true},
    {DENSE, 1, {20}, {2200}, HEADS(2, 1, 64), BF16, .is_causal = true, .has_lse = true},
    {DENSE, 1, {70}, {70}, HEADS(2, 1, 128), F16, .values = QNI_CASE_LOW, .has_left = true, .is_causal = true, .has_lse = true},
    {DENSE, 1, {20}, {20}, HEADS(4, 1, 64), F16, .values = QNI_CASE_LOW, .has_left = true, .is_causal = true, .has_lse = true},
    {DENSE, 1, {80}, {170}, HEADS(2, 1, 128), F16, .values = QNI_CASE_PEAKS, .is_causal = true, .has_lse = true},
    // FP8 caches: few rows, in each storage, with tiles of up to 128 keys; queries of FP8.
    {PAGED, 3, {1, 2, 1}, {331, 70, 5}, HEADS(8, 1, 128), BF16_FP8, .page = 16, RAMPS, .is_causal = true, QUICK},
    {PAGED, 2, {1, 1}, {700, 530}, HEADS(4, 2, 64), F16_FP8, .page = 32, RAMPS, .has_left = true, .left = 70, QUICK},
    {PAGED, 3, {1, 3, 1}, {290, 70, 3}, HEADS(4, 1, 256), BF16_FP8, .page = 24, .is_causal = true, .has_lse = true,
     QUICK},
    {PAGED, 2, {1, 2}, {300, 133}, HEADS(4, 2, 192), .dim_vo = 128, F16_FP8, .page = 5, .is_hnd = true, .has_lse = true},
    {PAGED, 2, {2, 1}, {340, 97}, HEADS(4, 2, 96), BF16_FP8, .page = 8, .chunk = 50, .has_sinks = true, .has_lse = true},
    {PAGED, 2, {1, 2}, {270, 33}, HEADS(4, 2, 128), F16_FP8, .page = 1, .cap = 30, .has_scales = true,
     .has_negative_scales = true, .has_lse = true},
    {RAGGED, 3, {1, 2, 1}, {350, 66, 131}, HEADS(4, 2, 64), BF16_FP8, RAMPS, .is_causal = true},
    {PADDED, 2, {1}, {500, 65}, HEADS(8, 2, 128), F16_FP8, .chunk = 96, .has_lse = true},
    {DENSE, 1, {9}, {500}, HEADS(1, 1, 64), F16_FP8, .values = QNI_CASE_PEAKS, .has_lse = true},
    {DENSE, 1, {3}, {390}, HEADS(2, 1, 80), F16_FP8, .hidden = 40, .has_left = true, .left = 20, .has_lse = true},
    {PAGED, 2, {1, 2}, {270, 140}, HEADS(8, 2, 128), ALL_FP8(QNI_BF16), .page = 16, .has_scales = true, .has_lse = true, QUICK},
    {DENSE, 1, {2}, {203}, HEADS(3, 1, 80), TYPES(QNI_E5M2, QNI_E4M3FN, QNI_F32), .is_causal = true, .has_lse = true},
    {RAGGED, 2, {1, 3}, {203, 66}, HEADS(4, 1, 256), ALL_FP8(QNI_F16), .is_causal = true},
    // FP8 caches: prompts, in each storage; queries of FP8.
    {RAGGED, 3, {70, 33, 9}, {350, 33, 100}, HEADS(4, 1, 64), BF16_FP8, RAMPS, .is_causal = true, QUICK},
    {RAGGED, 2, {100, 40}, {100, 370}, HEADS(6, 1, 128), F16_FP8, .is_causal = true, .has_lse = true, QUICK},
    {RAGGED, 3, {200, 20, 30}, {130, 0, 7}, HEADS(3, 1, 80), BF16_FP8, .has_lse = true},
    {RAGGED, 2, {130, 20}, {290, 100}, HEADS(2, 1, 128), F16_FP8, .cap = 30, .is_causal = true, .has_left = true,
     .left = 90, .has_lse = true},
    {PAGED, 2, {60, 25}, {370, 90}, HEADS(8, 2, 128), BF16_FP8, .page = 64, RAMPS, .is_causal = true, QUICK},
    {PAGED, 2, {40, 20}, {200, 81}, HEADS(2, 1, 96), F16_FP8, .page = 1, .is_hnd = true, .is_causal = true, .has_lse = true},
    {PAGED, 2, {20, 40}, {330, 90}, HEADS(4, 1, 64), BF16_FP8, .page = 16, .chunk = 96, .is_causal = true,
     .has_sinks = true, .has_lse = true},
    {PAGED, 2, {100, 30}, {170, 90}, HEADS(2, 1, 112), .dim_vo = 48, F16_FP8, .page = 8, .chunk = 50, .is_causal = true},
    {PAGED, 2, {70, 20}, {370, 100}, HEADS(4, 1, 256), F16_FP8, .page = 16, .is_causal = true,
     .has_sinks = true, .has_lse = true},
    {RAGGED, 2, {140, 20}, {290, 100}, HEADS(2, 1, 192), BF16_FP8, RAMPS, .is_causal = true,
     QUICK},
    {RAGGED, 2, {140, 20}, {190, 100}, HEADS(2, 2, 256), ALL_FP8(QNI_BF16), .has_lse = true},
    {PADDED, 2, {70}, {250, 40}, HEADS(4, 2, 112), BF16_FP8, .is_causal = true, .has_lse = true},
    {DENSE, 2, {200}, {310}, HEADS(4, 2, 128), BF16_FP8, RAMPS, .is_causal = true},
    {DENSE, 1, {194}, {450}, HEADS(3, 1, 128), F16_FP8, RAMPS, .is_hnd = true},
    {DENSE, 1, {20}, {1200}, HEADS(2, 1, 64), F16_FP8, .is_causal = true, .has_lse = true},
    {RAGGED, 2, {100, 40}, {100, 370}, HEADS(6, 1, 128), ALL_FP8(QNI_BF16), .is_causal = true, .has_lse = true, QUICK},
    {PAGED, 2, {210, 25}, {370, 90}, HEADS(8, 2, 64), ALL_FP8(QNI_BF16), .page = 16, RAMPS, .is_causal = true},
    {DENSE, 1, {194}, {250}, HEADS(3, 1, 80), TYPES(QNI_E5M2, QNI_E4M3FN, QNI_BF16), .has_lse = true},
    // Keys in one chunk.
    {PAGED, 2, {1, 2}, {700, 530}, HEADS(2, 1, 64), BF16, .page = 16, .chunk = -1, RAMPS, .is_causal = true},
    {RAGGED, 2, {33, 3}, {350, 300}, HEADS(2, 1, 256), F16, RAMPS, .is_causal = true},
    {RAGGED, 2, {9, 20}, {310, 30}, HEADS(2, 1, 64), BF16, RAMPS, .has_custom_mask = true},
    // The first rows see only the last key of a tile of keys: key 127.
    {DENSE, 1, {40}, {320}, HEADS(2, 1, 64), BF16, RAMPS, .is_causal = true, .has_left = true, .left = 153},
    {DENSE, 1, {3}, {320}, HEADS(2, 1, 64), BF16, RAMPS, .is_causal = true, .has_left = true, .left = 190},
    // NaNs in keys that windows, causality or masks hide, beside keys of these tiles that are seen.
    {DENSE, 1, {3}, {90}, HEADS(2, 1, 64), BF16, .hidden = 40, .has_left = true, .left = 20, .has_lse = true, QUICK},
    {PAGED, 2, {30, 2}, {90, 80}, HEADS(2, 1, 128), F16, .page = 16, .hidden = 21, .has_left = true, .left = 9,
     .is_causal = true, .has_lse = true},
    {DENSE, 2, {20}, {50}, HEADS(2, 1, 64), BF16, .hidden = 19, .mask_kind = QK_MASK_BOOL, .has_lse = true, QUICK},
    {DENSE, 2, {20}, {50}, HEADS(2, 1, 64), F16, .hidden = 19, .mask_kind = QK_MASK_F32, .has_lse = true},
    {DENSE, 1, {3}, {50}, HEADS(2, 1, 33), ALL_OF(QNI_F32), .hidden = 33, .mask_kind = QK_MASK_F32, .has_lse = true},
    {RAGGED, 2, {9, 20}, {50, 30}, HEADS(2, 1, 64), TYPES(QNI_BF16, QNI_E4M3FN, QNI_BF16), .hidden = 17,
     .has_custom_mask = true, .has_lse = true},
    // The ends of each chunk: a window's bound goes through every key of two chunks.
    {DENSE, 1, {130}, {360}, HEADS(2, 1, 64), BF16, .chunk = 64, RAMPS, .is_causal = true, .has_left = true, .left = 3},
};
// clang-format on

static qn_status try_spec(qni_trial_run *run, const qni_attention_spec *spec) {
    qni_attention_case *c = calloc(1, sizeof *c);
    qn_status st;
    if (!c)
        return QN_FAIL(QN_E_MEMORY, "check: out of memory");
    QN_TRY_OUT(qni_attention_case_create(c, qni_trial_stream(run), spec,
                                         qni_trial_seed(run) + (uint64_t)(spec - specs)));
    const qni_trial_problem problem = {.op = &qni_op_attention,
                                       .text = c->text,
                                       .problem = &c->problem,
                                       .context = &(qni_areas){c->areas, QNI_CASE_AREAS},
                                       .reset = qni_areas_reset,
                                       .compare = qni_areas_compare,
                                       .outputs = c->outputs,
                                       .num_outputs = 1 + spec->has_lse,
                                       .call = qni_attention_call(&c->problem)};
    QN_TRY_OUT(qni_trial_problem_run(run, &problem));
out:
    qni_attention_case_destroy(c);
    free(c);
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    qn_status st = QN_OK;
    if (op == &qni_op_merge_states)
        return qni_merge_try(run);
    if (op == &qni_op_attention_dropout)
        return qni_dropout_try(run);
    for (size_t i = 0; st == QN_OK && i < sizeof specs / sizeof *specs; i++)
        if (!qni_trial_is_quick(run) || specs[i].is_quick)
            st = try_spec(run, &specs[i]);
    return st == QN_OK ? qni_attention_try_batches(run) : st;
}

static const qni_op *const ops[] = {&qni_op_attention, &qni_op_merge_states,
                                    &qni_op_attention_dropout, nullptr};
const qni_family qni_family_attention = {"attention", ops, try_op};
