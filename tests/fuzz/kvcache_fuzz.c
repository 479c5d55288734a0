// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: writes to paged caches, their index vectors, rotation straight into a cache,
// and copies, on the CPU. The bytes choose a function, make a small valid problem for it, then
// change what they like of it: any field of any tensor, any scalar, index tensors.
//
// Fuzzes: libquern
#include "fuzz_tensors.h"

#include <quern/quern.h>

/** The tensor of the array t that the call is given. */
#define T(i) given(&t[i])
#define CALL(name, ...) check_call(#name, qn_##name(stream, __VA_ARGS__), t, COUNT)

/** Index tensors of a paged cache, from PAGES_BEGIN on in an array of tensors. */
enum { BATCH_INDICES, POSITIONS, INDICES, INDPTR, LAST_PAGE_LEN, NUM_PAGED };

typedef struct cache_sizes {
    int64_t n, heads, dims[2], pages, page_size, batches;
    qn_kv_layout layout;
    DLDataType dtype, fp8;
} cache_sizes;

static cache_sizes take_sizes(input *in) {
    cache_sizes s = {.n = take(in, 9),
                     .heads = 1 + take(in, 3),
                     .dims = {take_size(in)},
                     .pages = 1 + take(in, 6),
                     .page_size = 1 + take(in, 5),
                     .batches = 1 + take(in, 4),
                     .layout = (qn_kv_layout)take(in, 2),
                     .fp8 = take_fp8_dtype(in)};
    s.dims[1] = take_bool(in) ? take_size(in) : s.dims[0];
    s.dtype = take_bool(in) ? s.fp8 : take_float_dtype(in);
    if (take(in, 32) == 31)
        s.layout = (qn_kv_layout)take_wild(in);
    return s;
}

static void set_cache(tensor *x, const cache_sizes *s, DLDataType dtype, int64_t dim) {
    if (s->layout == QN_HND)
        SET(x, dtype, s->pages, s->heads, s->page_size, dim);
    else
        SET(x, dtype, s->pages, s->page_size, s->heads, dim);
    x->is_written = true;
}

static void set_latent_cache(tensor *x, const cache_sizes *s, DLDataType dtype, int64_t dim) {
    SET(x, dtype, s->pages, s->page_size, dim);
    x->is_written = true;
}

static void set_paged(tensor *t, const cache_sizes *s) {
    SET(&t[BATCH_INDICES], i32, s->n);
    SET(&t[POSITIONS], i32, s->n);
    SET(&t[INDICES], i32, s->pages);
    SET(&t[INDPTR], i32, s->batches + 1);
    SET(&t[LAST_PAGE_LEN], i32, s->batches);
}

/** Gives every sequence a page or more, as far as pages last. A token goes to one of the first
 *  places of a sequence. */
static void put_paged(tensor *t, const cache_sizes *s, input *in) {
    const int64_t each = s->pages / s->batches, room = each * s->page_size;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t b = (int64_t)take(in, 5) - 1;
        put_i32(&t[BATCH_INDICES], i, take_mostly(in, room && b < s->batches ? b : -1));
        put_i32(&t[POSITIONS], i, take_mostly(in, room ? take(in, 16) % room : 0));
    }
    for (int64_t i = 0; i < s->pages; i++)
        put_i32(&t[INDICES], i, take_mostly(in, s->pages - 1 - i));
    for (int64_t b = 0; b <= s->batches; b++)
        put_i32(&t[INDPTR], b, take_mostly(in, b * each));
    for (int64_t b = 0; b < s->batches; b++)
        put_i32(&t[LAST_PAGE_LEN], b, take_mostly(in, s->page_size));
}

static size_t take_struct_size(input *in, size_t right) {
    return take(in, 16) == 15 ? (size_t)take_wild(in) : right;
}

// ---- appending

static void fuzz_append(input *in) {
    enum { K_CACHE, V_CACHE, KEY, VALUE, PAGED, COUNT = PAGED + NUM_PAGED };
    tensor t[COUNT] = {};
    const cache_sizes s = take_sizes(in);
    const bool is_latent = take_bool(in);
    for (int i = 0; i < 2; i++)
        if (is_latent) {
            set_latent_cache(&t[K_CACHE + i], &s, s.dtype, s.dims[i]);
            SET(&t[KEY + i], s.dtype, s.n, s.dims[i]);
        } else {
            set_cache(&t[K_CACHE + i], &s, s.dtype, s.dims[i]);
            SET(&t[KEY + i], s.dtype, s.n, s.heads, s.dims[i]);
        }
    set_paged(&t[PAGED], &s);
    t[PAGED + LAST_PAGE_LEN].is_there = take_bool(in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_paged(&t[PAGED], &s, in);
    const qn_append_paged_kv_cache_args heads = {.struct_size = take_struct_size(in, sizeof heads),
                                                 .k_cache = T(K_CACHE),
                                                 .v_cache = T(V_CACHE),
                                                 .append_key = T(KEY),
                                                 .append_value = T(VALUE),
                                                 .batch_indices = T(PAGED + BATCH_INDICES),
                                                 .positions = T(PAGED + POSITIONS),
                                                 .kv_indices = T(PAGED + INDICES),
                                                 .kv_indptr = T(PAGED + INDPTR),
                                                 .kv_last_page_len = T(PAGED + LAST_PAGE_LEN),
                                                 .kv_layout = s.layout};
    const qn_append_paged_mla_kv_cache_args latent = {.struct_size =
                                                          take_struct_size(in, sizeof latent),
                                                      .ckv_cache = T(K_CACHE),
                                                      .kpe_cache = T(V_CACHE),
                                                      .append_ckv = T(KEY),
                                                      .append_kpe = T(VALUE),
                                                      .batch_indices = heads.batch_indices,
                                                      .positions = heads.positions,
                                                      .kv_indices = heads.kv_indices,
                                                      .kv_indptr = heads.kv_indptr,
                                                      .kv_last_page_len = heads.kv_last_page_len};
    const bool is_null = take(in, 64) == 63;
    if (is_latent)
        CALL(append_paged_mla_kv_cache, is_null ? nullptr : &latent);
    else
        CALL(append_paged_kv_cache, is_null ? nullptr : &heads);
    free_tensors(t, COUNT);
}

static void put_slots(tensor *x, const cache_sizes *s, input *in) {
    for (int64_t i = 0; i < s->n; i++)
        put_i32(x, i, take_mostly(in, (int64_t)take(in, 32) % (s->pages * s->page_size + 1) - 1));
}

static void fuzz_reshape(input *in) {
    enum { K_CACHE, V_CACHE, KEY, VALUE, SLOTS, K_SCALE, V_SCALE, COUNT };
    tensor t[COUNT] = {};
    cache_sizes s = take_sizes(in);
    const bool has_scales = take_bool(in);
    if (has_scales)
        s.dtype = take_float_dtype(in);
    for (int i = 0; i < 2; i++) {
        set_cache(&t[K_CACHE + i], &s, has_scales ? s.fp8 : s.dtype, s.dims[i]);
        SET(&t[KEY + i], s.dtype, s.n, s.heads, s.dims[i]);
        SET(&t[K_SCALE + i], f32, 1);
        t[K_SCALE + i].is_there = has_scales;
    }
    SET(&t[SLOTS], i32, s.n);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_slots(&t[SLOTS], &s, in);
    put_scale(&t[K_SCALE], in);
    put_scale(&t[V_SCALE], in);
    const qn_reshape_and_cache_args a = {.struct_size = take_struct_size(in, sizeof a),
                                         .k_cache = T(K_CACHE),
                                         .v_cache = T(V_CACHE),
                                         .key = T(KEY),
                                         .value = T(VALUE),
                                         .slot_mapping = T(SLOTS),
                                         .k_scale = T(K_SCALE),
                                         .v_scale = T(V_SCALE),
                                         .kv_layout = s.layout};
    CALL(reshape_and_cache, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

static void fuzz_concat(input *in) {
    enum { CACHE, KV_C, K_PE, SLOTS, SCALE, COUNT };
    tensor t[COUNT] = {};
    cache_sizes s = take_sizes(in);
    const bool has_scale = take_bool(in);
    if (has_scale)
        s.dtype = take_float_dtype(in);
    set_latent_cache(&t[CACHE], &s, has_scale ? s.fp8 : s.dtype, s.dims[0] + s.dims[1]);
    SET(&t[KV_C], s.dtype, s.n, s.dims[0]);
    SET(&t[K_PE], s.dtype, s.n, s.dims[1]);
    SET(&t[SLOTS], i32, s.n);
    SET(&t[SCALE], f32, 1);
    t[SCALE].is_there = has_scale;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_slots(&t[SLOTS], &s, in);
    put_scale(&t[SCALE], in);
    CALL(concat_and_cache_mla, T(CACHE), T(KV_C), T(K_PE), T(SLOTS), T(SCALE));
    free_tensors(t, COUNT);
}

static void fuzz_groups(input *in) {
    enum { CODES, SCALES, ROPE, KV_C, K_PE, SLOTS, COUNT };
    tensor t[COUNT] = {};
    const cache_sizes s = take_sizes(in);
    const DLDataType dtype = take_float_dtype(in);
    set_latent_cache(&t[CODES], &s, s.fp8, s.dims[0]);
    set_latent_cache(&t[SCALES], &s, f32, (s.dims[0] + 127) / 128);
    set_latent_cache(&t[ROPE], &s, dtype, s.dims[1]);
    SET(&t[KV_C], dtype, s.n, s.dims[0]);
    SET(&t[K_PE], dtype, s.n, s.dims[1]);
    SET(&t[SLOTS], i32, s.n);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_slots(&t[SLOTS], &s, in);
    const qn_quantize_and_cache_mla_args a = {.struct_size = take_struct_size(in, sizeof a),
                                              .ckv_cache = T(CODES),
                                              .scale_cache = T(SCALES),
                                              .kpe_cache = T(ROPE),
                                              .kv_c = T(KV_C),
                                              .k_pe = T(K_PE),
                                              .slot_mapping = T(SLOTS)};
    CALL(quantize_and_cache_mla, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

// ---- reading

static void fuzz_gather(input *in) {
    enum { OUT, CACHE, SCALE, SCALES, SLOTS, PAGED, COUNT = PAGED + NUM_PAGED };
    tensor t[COUNT] = {};
    const cache_sizes s = take_sizes(in);
    const bool has_scale = take_bool(in), by_slot = take_bool(in), by_group = take_bool(in);
    set_latent_cache(&t[CACHE], &s, has_scale ? s.fp8 : s.dtype, s.dims[0]);
    t[CACHE].is_written = false;
    SET_WRITTEN(&t[OUT], has_scale ? take_float_dtype(in) : s.dtype, s.n, s.dims[0]);
    SET(&t[SCALE], f32, 1);
    t[SCALE].is_there = has_scale && !by_group;
    set_latent_cache(&t[SCALES], &s, f32, (s.dims[0] + 127) / 128);
    t[SCALES].is_written = false;
    t[SCALES].is_there = has_scale && by_group;
    SET(&t[SLOTS], i32, s.n);
    set_paged(&t[PAGED], &s);
    for (int i = SLOTS; i < COUNT; i++)
        t[i].is_there = (i == SLOTS) == by_slot;
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_slots(&t[SLOTS], &s, in);
    put_scale(&t[SCALE], in);
    put_paged(&t[PAGED], &s, in);
    const qn_gather_paged_mla_kv_cache_args a = {.struct_size = take_struct_size(in, sizeof a),
                                                 .out = T(OUT),
                                                 .cache = T(CACHE),
                                                 .scale = T(SCALE),
                                                 .scales = T(SCALES),
                                                 .slot_mapping = T(SLOTS),
                                                 .batch_indices = T(PAGED + BATCH_INDICES),
                                                 .positions = T(PAGED + POSITIONS),
                                                 .kv_indices = T(PAGED + INDICES),
                                                 .kv_indptr = T(PAGED + INDPTR),
                                                 .kv_last_page_len = T(PAGED + LAST_PAGE_LEN)};
    CALL(gather_paged_mla_kv_cache, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

// ---- rotated and quantised on the way

enum { Q_ROPE_OUT, Q_NOPE_OUT, K_TO, V_TO, Q_ROPE, K_ROPE, Q_NOPE, K_NOPE, V, CACHE, POS_IDS };
enum { ROPE_PAGED = POS_IDS + 1, NUM_ROPE = ROPE_PAGED + NUM_PAGED, TABLE = 9 };

static void set_rope(tensor *t, const cache_sizes *s, bool is_latent, input *in) {
    const int64_t rope = (s->dims[0] + 1) / 2 * 2, nope = s->dims[1], kv = take_size(in);
    const DLDataType dtype = take_float_dtype(in);
    SET(&t[Q_ROPE], dtype, s->n, s->heads, rope);
    SET(&t[Q_NOPE], dtype, s->n, s->heads, nope);
    SET_WRITTEN(&t[Q_ROPE_OUT], s->fp8, s->n, s->heads, rope);
    SET_WRITTEN(&t[Q_NOPE_OUT], s->fp8, s->n, s->heads, nope);
    SET(&t[CACHE], f32, TABLE, rope);
    SET(&t[POS_IDS], i32, s->n);
    if (is_latent) {
        SET(&t[K_ROPE], dtype, s->n, rope);
        SET(&t[K_NOPE], dtype, s->n, nope);
        set_latent_cache(&t[K_TO], s, s->fp8, nope);
        set_latent_cache(&t[V_TO], s, s->fp8, rope);
    } else {
        SET(&t[K_ROPE], dtype, s->n, s->heads, rope);
        SET(&t[K_NOPE], dtype, s->n, s->heads, nope);
        SET(&t[V], dtype, s->n, s->heads, kv);
        t[K_NOPE].is_there = take(in, 4);
        set_cache(&t[K_TO], s, s->fp8, rope + (t[K_NOPE].is_there ? nope : 0));
        set_cache(&t[V_TO], s, s->fp8, kv);
    }
    t[Q_NOPE].is_there = t[Q_NOPE_OUT].is_there = take_bool(in);
    set_paged(&t[ROPE_PAGED], s);
}

static void fuzz_rope_append(input *in) {
    enum { COUNT = NUM_ROPE };
    tensor t[COUNT] = {};
    const cache_sizes s = take_sizes(in);
    const bool is_latent = take_bool(in);
    set_rope(t, &s, is_latent, in);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    put_paged(&t[ROPE_PAGED], &s, in);
    for (int64_t i = 0; i < s.n; i++)
        put_i32(&t[POS_IDS], i, take_mostly(in, take(in, TABLE)));
    const qn_rope_quantize_append_args a = {.struct_size = take_struct_size(in, sizeof a),
                                            .q_rope_out = T(Q_ROPE_OUT),
                                            .q_nope_out = T(Q_NOPE_OUT),
                                            .k_cache = is_latent ? nullptr : T(K_TO),
                                            .v_cache = is_latent ? nullptr : T(V_TO),
                                            .ckv_cache = is_latent ? T(K_TO) : nullptr,
                                            .kpe_cache = is_latent ? T(V_TO) : nullptr,
                                            .q_rope = T(Q_ROPE),
                                            .k_rope = T(K_ROPE),
                                            .q_nope = T(Q_NOPE),
                                            .k_nope = T(K_NOPE),
                                            .v = T(V),
                                            .cos_sin_cache = T(CACHE),
                                            .pos_ids = T(POS_IDS),
                                            .batch_indices = T(ROPE_PAGED + BATCH_INDICES),
                                            .positions = T(ROPE_PAGED + POSITIONS),
                                            .kv_indices = T(ROPE_PAGED + INDICES),
                                            .kv_indptr = T(ROPE_PAGED + INDPTR),
                                            .quant_scale_q = take_bool(in) ? take_float(in) : 0,
                                            .quant_scale_kv = take_bool(in) ? take_float(in) : 0,
                                            .interleave = take_bool(in),
                                            .kv_layout = s.layout};
    CALL(rope_quantize_fp8_append_paged_kv_cache, take(in, 64) == 63 ? nullptr : &a);
    free_tensors(t, COUNT);
}

// ---- index vectors

static void fuzz_seq_lens(input *in) {
    enum { SEQ_LENS, PAGE_INDPTR, LAST, COUNT };
    tensor t[COUNT] = {};
    const int64_t batches = take(in, 6), page_size = take_mostly(in, 1 + take(in, 64));
    SET_WRITTEN(&t[SEQ_LENS], i32, batches);
    SET(&t[PAGE_INDPTR], i32, batches + 1);
    SET(&t[LAST], i32, batches);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    for (int64_t b = 0, sum = 0; b <= batches; b++, sum += take(in, 5))
        put_i32(&t[PAGE_INDPTR], b, take_mostly(in, sum));
    for (int64_t b = 0; b < batches; b++)
        put_i32(&t[LAST], b, take_mostly(in, 1 + take(in, 64)));
    CALL(get_seq_lens, T(SEQ_LENS), T(PAGE_INDPTR), T(LAST), page_size);
    free_tensors(t, COUNT);
}

static void fuzz_positions(input *in) {
    enum { BATCHES, PLACES, APPEND_INDPTR, SEQ_LENS, COUNT };
    tensor t[COUNT] = {};
    const int64_t batches = take(in, 5), n = take(in, 24);
    SET_WRITTEN(&t[BATCHES], i32, n);
    SET_WRITTEN(&t[PLACES], i32, n);
    SET(&t[APPEND_INDPTR], i32, batches + 1);
    SET(&t[SEQ_LENS], i32, batches);
    change_tensors(t, COUNT, in);
    give_memories(t, COUNT, in);
    for (int64_t b = 0, sum = 0; b <= batches; b++) {
        put_i32(&t[APPEND_INDPTR], b, take_mostly(in, sum));
        sum = sum + take(in, 8) < n ? sum + 1 : n;
    }
    for (int64_t b = 0; b < batches; b++)
        put_i32(&t[SEQ_LENS], b, take_mostly(in, 24 + take(in, 64)));
    CALL(get_batch_indices_positions, T(BATCHES), T(PLACES), T(APPEND_INDPTR), T(SEQ_LENS));
    free_tensors(t, COUNT);
}

// ---- copies

static void fuzz_copy(input *in) {
    enum { DST, SRC, COUNT };
    tensor t[COUNT] = {};
    const DLDataType dtype = take_dtype(in);
    const int ndim = (int)take(in, 6);
    int64_t shape[MAX_NDIM];
    for (int i = 0; i < ndim; i++)
        shape[i] = take(in, 8) == 7 ? take(in, 100) : take(in, 5);
    set_tensor(&t[DST], dtype, ndim, shape);
    set_tensor(&t[SRC], dtype, ndim, shape);
    t[DST].is_written = true;
    change_tensors(t, COUNT, in);
    for (int i = 0; i < COUNT; i++) // kept apart: nothing is promised of a copy over itself
        give_memory(&t[i], in);
    CALL(copy, T(DST), T(SRC));
    free_tensors(t, COUNT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const families[])(input *) = {fuzz_append,   fuzz_reshape,   fuzz_concat,
                                                fuzz_groups,   fuzz_gather,    fuzz_rope_append,
                                                fuzz_seq_lens, fuzz_positions, fuzz_copy};
    input in = {data, data + size};
    take_cpu(&in);
    TAKE_ONE(&in, families)(&in);
    return 0;
}
