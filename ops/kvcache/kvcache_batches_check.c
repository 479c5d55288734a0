// SPDX-License-Identifier: Apache-2.0
// Checks that what a token writes to its cache does not depend on the rest of its batch, for each
// kernel, copied and as FP8.
#include "../../check/batches.h"
#include "kvcache.h"
#include "kvcache_check.h"

typedef struct form {
    int64_t heads, width;
    bool is_quant;
} form;
static const form forms[] = {{8, 128, true}, {1, 576, true}, {3, 33, true}, {2, 64, false}};
enum { PAGE = 16, SLOTS_FOR = 8192 }; // more tokens than any batch has
enum { KEY, VALUE, K_CACHE, V_CACHE, SCALE, SLOTS, NUM_TENSORS };

/** Makes a batch. context is the problem without pointers and tokens. Slots count from 0, so that
 *  row t of a cache is token t's. */
static const void *make_batch(void *context, void *const *data, int64_t rows) {
    qni_kvcache_problem *p = context;
    p->n = rows;
    for (int i = 0; i < 2; i++) {
        p->parts[i].in = data[KEY + i];
        p->parts[i].out = data[K_CACHE + i];
        p->parts[i].scale = data[SCALE];
    }
    p->pages = (qk_pages){.slots = data[SLOTS], .page_size = PAGE};
    return p;
}

static qn_status try_form(qni_trial_run *run, const form *f, qni_dtype dtype) {
    const qni_dtype fp8 = qni_usual_e4m3(qn_stream_device(qni_trial_stream(run)));
    const qni_dtype out = f->is_quant ? fp8 : dtype;
    const int64_t row = f->heads * f->width;
    const qni_cache_rows part = {.in_token = row,
                                 .in_head = f->width,
                                 .out_page = PAGE * row,
                                 .out_place = row,
                                 .out_head = f->width,
                                 .heads = f->heads,
                                 .width = f->width};
    qni_kvcache_problem p = {.dtype = dtype, .dtype_out = out, .parts = {part, part}};
    const qni_batch_tensor tensors[NUM_TENSORS] = {
        [KEY] = {.name = "key", .dtype = dtype, .width = row},
        [VALUE] = {.name = "value", .dtype = dtype, .width = row},
        [K_CACHE] = {.name = "k_cache", .dtype = out, .width = row, .is_written = true},
        [V_CACHE] = {.name = "v_cache", .dtype = out, .width = row, .is_written = true},
        [SCALE] = {.name = "scale", .dtype = QNI_F32, .width = f->is_quant, .is_common = true},
        [SLOTS] = {.name = "slots", .dtype = QNI_I32, .width = SLOTS_FOR, .is_common = true}};
    char text[80];
    snprintf(text, sizeof text, "%ld heads of %ld %s->%s", (long)f->heads, (long)f->width,
             qni_dtype_name(dtype), qni_dtype_name(out));
    return qni_trial_row_batches(
        run, &(qni_row_op){&qni_op_kvcache, text, tensors, NUM_TENSORS, make_batch, &p});
}

qn_status qni_kvcache_try_batches(qni_trial_run *run) {
    const int thinning = qni_trial_is_quick(run) ? 5 : 1;
    int turn = 0;
    qn_status st = QN_OK;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int dtype = QNI_F32; st == QN_OK && dtype <= QNI_BF16; dtype++)
            if (++turn % thinning == 0)
                st = try_form(run, &forms[f], (qni_dtype)dtype);
    return st;
}
