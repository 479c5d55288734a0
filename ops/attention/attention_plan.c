// SPDX-License-Identifier: Apache-2.0
// Plans: cuts requests into work items, on the host, from lengths alone.
//
// A request's keys are cut by its own lengths, so that its bits do not depend on the batch. Up to
// 16 queries have chunks of 256 keys: that makes 4 KiB of partial results for each 128 KiB of cache
// read (head_dim 128, bf16, group 4), and one request of 4096 keys and 8 kv heads still makes 128
// work items. Latent attention, whose rows are four times as wide, has chunks of 512 keys. Up to
// 256 queries have chunks of 2048 keys; more queries make enough tiles without chunks. If there
// would be more than 64 chunks, they are longer: 64 make enough work items, and partial results
// then no longer grow with the keys.
//
// With QUERN_BATCH_INVARIANT=1 keys are not cut: a query's bits must not depend on how many other
// queries its request has, and chunks short enough for a single token would give a prompt more
// partial results than there is memory for.
#include "attention.h"

#include <stdlib.h>
#include <string.h>

constexpr int64_t max_rows = 1 << 30, max_chunks = 64;
// More tiles are not listed: 2^24 have more rows than there is memory for.
constexpr int64_t max_tiles = 1 << 24;
// A bound on masks and on the workspace: sums of two such numbers do not overflow.
constexpr int64_t max_bytes = (int64_t)1 << 60;

int32_t qni_attention_default_chunk(int64_t qo_len, int64_t kv_len) {
    const int64_t step = qo_len <= 16 ? 256 : qo_len <= 256 ? 2048 : INT32_MAX;
    const int64_t steps = (kv_len + step * max_chunks - 1) / (step * max_chunks);
    return kv_len <= step || qni_env_get()->batch_invariant ? INT32_MAX : (int32_t)(steps * step);
}

/** The lengths of request b. */
typedef struct lengths {
    int64_t qo_begin, qo_len, kv_begin, kv_len;
} lengths;

#define FAIL(...) QN_FAIL(QN_E_INVALID, "attention_plan: " __VA_ARGS__)

static qn_status check_count(const char *name, int64_t count) {
    if (count < 0 || count > INT32_MAX)
        return FAIL("%s is %ld; accepted: 0 to 2^31 - 1", name, (long)count);
    return QN_OK;
}

static qn_status check_indptr(const char *name, const int32_t *indptr, int64_t batches) {
    for (int64_t b = 0; b <= batches; b++)
        if (indptr[b] < (b ? indptr[b - 1] : 0))
            return FAIL("%s[%ld] is %d; accepted: %d or more", name, (long)b, indptr[b],
                        b ? indptr[b - 1] : 0);
    return QN_OK;
}

static qn_status check_last_pages(const qn_attention_plan_args *a) {
    for (int64_t b = 0; b < a->batches; b++) {
        const int32_t pages = a->kv_indptr[b + 1] - a->kv_indptr[b], last = a->kv_last_page_len[b];
        if (pages > 0 && (last < 1 || last > a->page_size))
            return FAIL("kv_last_page_len[%ld] is %d; accepted where a request has pages: 1 to "
                        "page_size %ld",
                        (long)b, last, (long)a->page_size);
        if ((pages - 1) * a->page_size + last > INT32_MAX)
            return FAIL("request %ld has %d pages of %ld; fewer than 2^31 keys are accepted",
                        (long)b, pages, (long)a->page_size);
    }
    return QN_OK;
}

static qn_status check_kv(const qn_attention_plan_args *a) {
    if (a->page_size < 0 || a->page_size > INT32_MAX)
        return FAIL("page_size is %ld; accepted: 1 to 2^31 - 1, or 0 without pages",
                    (long)a->page_size);
    if (a->kv_indptr && a->kv_lens)
        return FAIL("kv_indptr and kv_lens are both given; kv_lens is for dense k and v");
    if (a->page_size && (!a->kv_indptr || !a->kv_last_page_len))
        return FAIL("%s is null; page_size %ld needs it",
                    a->kv_indptr ? "kv_last_page_len" : "kv_indptr", (long)a->page_size);
    if (a->kv_indptr)
        QN_TRY(check_indptr("kv_indptr", a->kv_indptr, a->batches));
    if (a->page_size)
        QN_TRY(check_last_pages(a));
    for (int64_t b = 0; a->kv_lens && b < a->batches; b++)
        if (a->kv_lens[b] < 0)
            return FAIL("kv_lens[%ld] is %d; accepted: 0 or more", (long)b, a->kv_lens[b]);
    return QN_OK;
}

static qn_status check_heads(const qn_attention_plan_args *a) {
    if (a->num_qo_heads > INT32_MAX)
        return FAIL("num_qo_heads is %ld; accepted: below 2^31", (long)a->num_qo_heads);
    if (a->num_qo_heads < 1 || a->num_kv_heads < 1 || a->num_qo_heads % a->num_kv_heads != 0)
        return FAIL("num_qo_heads %ld is no multiple of num_kv_heads %ld", (long)a->num_qo_heads,
                    (long)a->num_kv_heads);
    if (a->head_dim_vo < 1 || a->head_dim_vo > QK_ATTENTION_MAX_HEAD_DIM)
        return FAIL("head_dim_vo is %ld; accepted: 1 to %d", (long)a->head_dim_vo,
                    QK_ATTENTION_MAX_HEAD_DIM);
    return QN_OK;
}

static qn_status check_args(const int64_t *plan_bytes, const int64_t *workspace_bytes,
                            const qn_attention_plan_args *a) {
    if (!plan_bytes || !workspace_bytes)
        return FAIL("%s is null", plan_bytes ? "workspace_bytes" : "plan_bytes");
    QN_TRY(QNI_CHECK_STRUCT("attention_plan", "args", qn_attention_plan_args, a));
    QN_TRY(check_count("batches", a->batches));
    if (a->q_tile != 0 && a->q_tile != 16 && a->q_tile != 64 && a->q_tile != 128 &&
        a->q_tile != QK_ATTENTION_MAX_TILE)
        return FAIL("q_tile is %ld; accepted: 16, 64, 128, 256 or 0", (long)a->q_tile);
    QN_TRY(check_count("qo_len", a->qo_len));
    QN_TRY(check_count("kv_len", a->kv_len));
    QN_TRY(check_count("num_compute_units", a->num_compute_units));
    QN_TRY(check_count("max_qo_len", a->max_qo_len));
    QN_TRY(check_count("max_kv_len", a->max_kv_len));
    if (a->kv_chunk > INT32_MAX)
        return FAIL("kv_chunk is %ld; accepted: below 2^31", (long)a->kv_chunk);
    QN_TRY(check_heads(a));
    if (a->qo_indptr)
        QN_TRY(check_indptr("qo_indptr", a->qo_indptr, a->batches));
    return check_kv(a);
}

static lengths lengths_of(const qn_attention_plan_args *a, int64_t b) {
    lengths l = {.qo_len = a->qo_len, .kv_len = a->kv_lens ? a->kv_lens[b] : a->kv_len};
    if (a->qo_indptr)
        l.qo_begin = a->qo_indptr[b], l.qo_len = a->qo_indptr[b + 1] - a->qo_indptr[b];
    if (a->kv_indptr)
        l.kv_begin = a->kv_indptr[b], l.kv_len = a->kv_indptr[b + 1] - a->kv_indptr[b];
    if (a->page_size && l.kv_len > 0)
        l.kv_len = (l.kv_len - 1) * a->page_size + a->kv_last_page_len[b];
    return l;
}

/** Returns whether rows are those of latent attention, which all heads share and which are wide. */
static bool is_latent(const qn_attention_plan_args *a) {
    return a->head_dim_vo > 256 && a->num_kv_heads == 1;
}

static int32_t default_chunk(const qn_attention_plan_args *a, const lengths *l) {
    constexpr int32_t wide = 512;
    const int32_t chunk = qni_attention_default_chunk(l->qo_len, l->kv_len);
    if (!is_latent(a) || chunk >= wide)
        return chunk;
    return l->kv_len <= wide ? INT32_MAX : wide;
}

static qk_attention_request make_request(const qn_attention_plan_args *a, int64_t b) {
    const lengths l = lengths_of(a, b);
    const int32_t chunk = a->kv_chunk > 0   ? (int32_t)a->kv_chunk
                          : a->kv_chunk < 0 ? INT32_MAX
                                            : default_chunk(a, &l);
    return (qk_attention_request){.qo_begin = (int32_t)l.qo_begin,
                                  .qo_len = (int32_t)l.qo_len,
                                  .kv_begin = (int32_t)l.kv_begin,
                                  .kv_len = (int32_t)l.kv_len,
                                  .kv_chunk = chunk,
                                  .partial_begin = -1};
}

static int64_t mask_bytes_of(const qk_attention_request *r) {
    return ((int64_t)r->qo_len * r->kv_len + 7) / 8;
}

/** Returns how many work items a tile of the request becomes. */
static int64_t splits_of(const qn_attention_plan_args *a, const qk_attention_request *r) {
    const int64_t chunks = qk_attention_chunks(r);
    return a->max_kv_splits > 0 && a->max_kv_splits < chunks ? a->max_kv_splits : chunks;
}

static int64_t group_of(const qn_attention_plan_args *a) {
    return a->num_qo_heads / a->num_kv_heads;
}

static int64_t tiles_of(const qn_attention_plan_args *a, const qk_attention_request *r,
                        int64_t tile) {
    return (r->qo_len * group_of(a) + tile - 1) / tile;
}

// ---- tiles of attention_batch_gpu.c

/** Requests of few rows have other kernels, unless their bits must be those of longer ones. */
static bool has_tiles(const qn_attention_plan_args *a, const qk_attention_request *r) {
    return r->qo_len * group_of(a) > QK_ATTENTION_FEW_ROWS || qni_env_get()->batch_invariant;
}

static int64_t pack_of(const qn_attention_plan_args *a) {
    return qk_attention_pack((uint32_t)group_of(a));
}

/** Returns how many tiles of rows, each with every chunk, a request has. */
static int64_t row_tiles_of(const qn_attention_plan_args *a, const qk_attention_schedule *s,
                            const qk_attention_request *r) {
    return has_tiles(a, r) ? (r->qo_len * pack_of(a) + s->tile_rows - 1) / s->tile_rows : 0;
}

/** Returns the keys of a chunk that a causal request's queries below query_end see. */
static uint32_t keys_of(const qk_attention_request *r, int64_t query_end, int64_t kv_begin) {
    const int64_t end = (int64_t)r->kv_len - r->qo_len + query_end, room = r->kv_chunk;
    const int64_t keys = (end < r->kv_len ? end : r->kv_len) - kv_begin;
    return (uint32_t)(keys < 0 ? 0 : keys < room ? keys : room);
}

static qk_attention_batch_tile *put_tiles(qk_attention_batch_tile *out,
                                          const qn_attention_plan_args *a,
                                          const qk_attention_schedule *s, uint32_t b) {
    const qk_attention_request *r = &qk_attention_requests(s)[b];
    const int64_t tiles = row_tiles_of(a, s, r), chunks = qk_attention_chunks(r);
    for (int64_t i = 0; i < tiles * chunks; i++) {
        const int64_t row = i / chunks * s->tile_rows, kv_begin = i % chunks * r->kv_chunk;
        const int64_t query_end = (row + s->tile_rows + pack_of(a) - 1) / pack_of(a);
        *out++ = (qk_attention_batch_tile){b, (uint32_t)row, (uint32_t)kv_begin,
                                           keys_of(r, query_end, kv_begin)};
    }
    return out;
}

static int compare(uint32_t a, uint32_t b) {
    return (a > b) - (a < b);
}

/** Orders tiles, those with most keys first; equal ones so that they share keys in cache. */
static int compare_tiles(const void *left, const void *right) {
    const qk_attention_batch_tile *a = left, *b = right;
    const int keys = compare(b->keys, a->keys), request = compare(a->request, b->request);
    const int chunk = compare(a->kv_begin, b->kv_begin);
    return keys ? keys : request ? request : chunk ? chunk : compare(a->row, b->row);
}

static void fill_tiles(qk_attention_schedule *s, const qn_attention_plan_args *a) {
    qk_attention_batch_tile *const tiles =
        (qk_attention_batch_tile *)((qk_attention_work *)((qk_attention_request *)(s + 1) +
                                                          s->num_requests) +
                                    s->num_works + s->num_merges);
    qk_attention_batch_tile *end = tiles;
    for (uint32_t b = 0; s->num_tiles > 0 && b < s->num_requests; b++)
        end = put_tiles(end, a, s, b);
    qsort(tiles, s->num_tiles, sizeof *tiles, compare_tiles);
}

// ---- the plan

/** Returns how many work items fill the device. Those of latent attention, whose rows are wide, do
 *  so if half of the units get one: their keys take as long for 64 rows as for 128. */
static int64_t enough_works(const qn_attention_plan_args *a) {
    return is_latent(a) ? a->num_compute_units / 2 : a->num_compute_units;
}

/** Returns the largest tile that still fills the device and that the longest request fills by more
 *  than half. */
static int64_t choose_tile(const qn_attention_plan_args *a, int64_t longest) {
    const int64_t enough = enough_works(a);
    if (a->q_tile)
        return a->q_tile;
    if (longest <= 16)
        return 16;
    for (int64_t tile = QK_ATTENTION_MAX_TILE; tile > 64; tile /= 2) {
        int64_t works = 0;
        for (int64_t b = 0; b < a->batches; b++) {
            const qk_attention_request r = make_request(a, b);
            const int64_t items = tiles_of(a, &r, tile) * splits_of(a, &r);
            works += items < enough ? items * a->num_kv_heads : items;
            if (works >= enough)
                break;
        }
        if (longest > tile / 2 && works >= enough)
            return tile;
    }
    return 64;
}

/** Checks what the caller says of all requests, and finds the longest of their lengths. */
static qn_status measure_lengths(const qn_attention_plan_args *a, qk_attention_schedule *s) {
    int64_t longest = 0;
    *s = (qk_attention_schedule){.magic = QK_ATTENTION_MAGIC,
                                 .num_requests = (uint32_t)a->batches,
                                 .num_qo_heads = (int32_t)a->num_qo_heads,
                                 .num_kv_heads = (int32_t)a->num_kv_heads,
                                 .head_dim_vo = (int32_t)a->head_dim_vo,
                                 .page_size = (int32_t)a->page_size,
                                 .max_qo_len = (int32_t)a->max_qo_len,
                                 .max_kv_len = (int32_t)a->max_kv_len,
                                 .is_dense_q = !a->qo_indptr,
                                 .is_dense_kv = !a->kv_indptr,
                                 .is_for_graph = a->is_for_graph != 0,
                                 .qo_end = a->qo_indptr ? a->qo_indptr[a->batches] : a->qo_len,
                                 .kv_end = a->kv_indptr ? a->kv_indptr[a->batches] : 0};
    for (int64_t b = 0; b < a->batches; b++) {
        const qk_attention_request r = make_request(a, b);
        const int64_t rows = r.qo_len * group_of(a);
        longest = rows > longest ? rows : longest;
        s->max_qo_len = r.qo_len > s->max_qo_len ? r.qo_len : s->max_qo_len;
        s->max_kv_len = r.kv_len > s->max_kv_len ? r.kv_len : s->max_kv_len;
        if (!a->kv_indptr && r.kv_len > s->kv_end)
            s->kv_end = r.kv_len;
    }
    if (longest >= max_rows)
        return FAIL("%ld rows of queries and heads in a request; fewer than 2^30 are accepted",
                    (long)longest);
    s->q_tile = (int32_t)choose_tile(a, longest);
    s->tile_rows = qk_attention_tile_rows((uint32_t)a->head_dim_vo);
    return QN_OK;
}

static int64_t bytes_of(const qk_attention_schedule *s) {
    return (int64_t)sizeof *s + (int64_t)s->num_requests * (int64_t)sizeof(qk_attention_request) +
           ((int64_t)s->num_works + s->num_merges) * (int64_t)sizeof(qk_attention_work) +
           (int64_t)s->num_tiles * (int64_t)sizeof(qk_attention_batch_tile);
}

/** Computes the plan's header: every size. */
static qn_status measure(const qn_attention_plan_args *a, qk_attention_schedule *s) {
    int64_t works = 0, merges = 0, row_tiles = 0;
    QN_TRY(measure_lengths(a, s));
    for (int64_t b = 0; b < a->batches; b++) {
        const qk_attention_request r = make_request(a, b);
        const int64_t tiles = tiles_of(a, &r, s->q_tile), chunks = qk_attention_chunks(&r);
        works += tiles * splits_of(a, &r);
        merges += chunks > 1 ? tiles : 0;
        row_tiles += row_tiles_of(a, s, &r) * chunks;
        s->has_odd_chunks |= chunks > 1 && r.kv_chunk % QK_ATTENTION_CHUNK_UNIT != 0;
        s->workspace_rows += chunks > 1 ? chunks * r.qo_len * group_of(a) : 0;
        s->mask_bytes += mask_bytes_of(&r);
        if (works > max_rows / a->num_kv_heads || s->workspace_rows > max_bytes ||
            s->mask_bytes > max_bytes)
            return FAIL("%ld work items for each of %ld kv heads, %ld rows of workspace, %ld bytes "
                        "of mask at request %ld; accepted: 2^30 work items, 2^60 rows and bytes",
                        (long)works, (long)a->num_kv_heads, (long)s->workspace_rows,
                        (long)s->mask_bytes, (long)b);
    }
    s->num_works = (uint32_t)works;
    s->num_merges = (uint32_t)merges;
    if (row_tiles > max_tiles || row_tiles > max_rows / a->num_qo_heads)
        row_tiles = s->tile_rows = 0;
    s->num_tiles = (uint32_t)row_tiles;
    s->bytes = bytes_of(s);
    return QN_OK;
}

/** Writes the work items of a request's tile; they share its chunks evenly. */
static qk_attention_work *put_works(qk_attention_work *out, const qk_attention_request *r,
                                    const qk_attention_work *rows, int64_t splits) {
    const int64_t chunks = qk_attention_chunks(r);
    for (int64_t i = 0; i < splits; i++) {
        const int64_t end = (i + 1) * chunks / splits * r->kv_chunk;
        *out = *rows;
        out->kv_begin = (uint32_t)(i * chunks / splits * r->kv_chunk);
        out->kv_end = (uint32_t)(end < r->kv_len ? end : r->kv_len);
        out++;
    }
    return out;
}

/** Fills the plan. Requests come in order; each request's last rows come first, which take longest
 *  if it is causal. */
static void fill(qk_attention_schedule *s, const qn_attention_plan_args *a) {
    qk_attention_request *requests = (qk_attention_request *)(s + 1);
    qk_attention_work *work = (qk_attention_work *)(requests + s->num_requests);
    qk_attention_work *merge = work + s->num_works;
    int64_t mask_begin = 0, partial_begin = 0;
    for (uint32_t b = 0; b < s->num_requests; b++) {
        qk_attention_request r = make_request(a, b);
        const int64_t rows = r.qo_len * group_of(a), chunks = qk_attention_chunks(&r);
        r.mask_begin = mask_begin;
        mask_begin += mask_bytes_of(&r);
        if (chunks > 1) {
            r.partial_begin = partial_begin;
            partial_begin += chunks * rows;
        }
        requests[b] = r;
        for (int64_t tile = tiles_of(a, &r, s->q_tile) - 1; tile >= 0; tile--) {
            const int64_t begin = tile * s->q_tile, end = begin + s->q_tile;
            const qk_attention_work w = {.request = b,
                                         .row_begin = (uint32_t)begin,
                                         .row_end = (uint32_t)(end < rows ? end : rows)};
            work = put_works(work, &r, &w, splits_of(a, &r));
            if (chunks > 1)
                *merge++ = w;
        }
    }
}

qn_status qn_attention_plan(void *plan, int64_t *plan_bytes, int64_t *workspace_bytes,
                            const qn_attention_plan_args *args) {
    qk_attention_schedule s;
    QN_TRY(check_args(plan_bytes, workspace_bytes, args));
    QN_TRY(measure(args, &s));
    const int64_t needed =
        qni_attention_workspace_bytes(s.workspace_rows, args->num_kv_heads, args->head_dim_vo);
    if (needed == INT64_MAX)
        return FAIL("%ld rows of workspace, more bytes than 63 bits can count",
                    (long)s.workspace_rows);
    if (plan && *plan_bytes < s.bytes)
        return FAIL("plan has room for %ld bytes, needs %ld", (long)*plan_bytes, (long)s.bytes);
    if (plan && (uintptr_t)plan % alignof(qk_attention_schedule) != 0)
        return FAIL("plan is at %p, needs a multiple of %zu", plan, alignof(qk_attention_schedule));
    if (plan) {
        memcpy(plan, &s, sizeof s);
        fill(plan, args);
        fill_tiles(plan, args);
    }
    *plan_bytes = s.bytes;
    *workspace_bytes = needed;
    return QN_OK;
}

// ---- plans that come back

/** Returns whether nothing in the header is negative and no sum of its numbers overflows. */
static bool is_header_sound(const qk_attention_schedule *s) {
    const bool is_counted = s->num_kv_heads >= 1 && s->num_qo_heads >= 1 &&
                            s->num_qo_heads % s->num_kv_heads == 0 && s->page_size >= 0 &&
                            s->max_qo_len >= 0 && s->max_kv_len >= 0 && s->qo_end >= 0 &&
                            s->kv_end >= 0 && s->mask_bytes >= 0 && s->workspace_rows >= 0;
    return is_counted && s->head_dim_vo >= 1 && s->head_dim_vo <= QK_ATTENTION_MAX_HEAD_DIM &&
           s->q_tile >= 1 && s->q_tile <= QK_ATTENTION_MAX_TILE && s->mask_bytes <= max_bytes &&
           s->num_works <= max_rows / s->num_kv_heads &&
           s->num_merges <= max_rows / s->num_kv_heads &&
           s->num_tiles <= max_rows / s->num_qo_heads &&
           (s->tile_rows == qk_attention_tile_rows((uint32_t)s->head_dim_vo) ||
            (s->tile_rows == 0 && s->num_tiles == 0)) &&
           qni_attention_workspace_bytes(s->workspace_rows, s->num_kv_heads, s->head_dim_vo) <
               INT64_MAX;
}

/** Returns whether a request stays within the tensors that the header promises. */
static bool is_request_sound(const qk_attention_schedule *s, const qk_attention_request *r) {
    const int64_t group = s->num_qo_heads / s->num_kv_heads, rows = r->qo_len * group;
    if (r->qo_len < 0 || r->kv_len < 0 || r->qo_begin < 0 || r->kv_begin < 0 || r->kv_chunk < 1 ||
        r->qo_len > s->max_qo_len || r->kv_len > s->max_kv_len || rows >= max_rows)
        return false;
    const int64_t places =
        s->page_size ? ((int64_t)r->kv_len + s->page_size - 1) / s->page_size : r->kv_len;
    const int64_t chunks = qk_attention_chunks(r);
    return (int64_t)r->qo_begin + r->qo_len <= s->qo_end && r->kv_begin + places <= s->kv_end &&
           r->mask_begin >= 0 && r->mask_begin <= s->mask_bytes - mask_bytes_of(r) &&
           (chunks == 1) == (r->partial_begin < 0) &&
           (chunks == 1 || r->partial_begin <= s->workspace_rows - chunks * rows);
}

/** Returns whether a work item has rows of its request and whole chunks of its keys. The keys of a
 *  merge are not looked at. */
static bool is_work_sound(const qk_attention_schedule *s, const qk_attention_work *w,
                          bool is_merge) {
    if (w->request >= s->num_requests)
        return false;
    const qk_attention_request *r = &qk_attention_requests(s)[w->request];
    const uint32_t rows = (uint32_t)r->qo_len * (uint32_t)(s->num_qo_heads / s->num_kv_heads);
    if (w->row_begin >= w->row_end || w->row_end > rows ||
        w->row_end - w->row_begin > QK_ATTENTION_MAX_TILE)
        return false;
    if (is_merge)
        return qk_attention_chunks(r) > 1;
    return w->kv_end <= (uint32_t)r->kv_len && w->kv_begin % (uint32_t)r->kv_chunk == 0 &&
           (w->kv_begin < w->kv_end || (r->kv_len == 0 && w->kv_begin == 0));
}

/** Returns whether a tile has rows of its request, and a chunk of its keys. */
static bool is_tile_sound(const qk_attention_schedule *s, const qk_attention_batch_tile *t) {
    const uint32_t pack = qk_attention_pack((uint32_t)(s->num_qo_heads / s->num_kv_heads));
    if (t->request >= s->num_requests)
        return false;
    const qk_attention_request *r = &qk_attention_requests(s)[t->request];
    return t->row < (uint32_t)r->qo_len * pack && t->kv_begin % (uint32_t)r->kv_chunk == 0 &&
           t->kv_begin / (uint32_t)r->kv_chunk < qk_attention_chunks(r);
}

const char *qni_attention_check_plan(const void *plan, int64_t plan_bytes, bool is_thorough) {
    const qk_attention_schedule *s = plan;
    if ((uintptr_t)plan % alignof(qk_attention_schedule) != 0)
        return "is not aligned to 8 bytes";
    if (plan_bytes < (int64_t)sizeof *s || s->magic != QK_ATTENTION_MAGIC)
        return "was not made by qn_attention_plan";
    const int64_t bytes = bytes_of(s);
    if (s->bytes != bytes || plan_bytes < bytes || !is_header_sound(s))
        return "is damaged: its header";
    for (uint32_t b = 0; is_thorough && b < s->num_requests; b++)
        if (!is_request_sound(s, &qk_attention_requests(s)[b]))
            return "is damaged: a request";
    for (uint32_t i = 0; is_thorough && i < s->num_works + s->num_merges; i++)
        if (!is_work_sound(s, &qk_attention_works(s)[i], i >= s->num_works))
            return "is damaged: a work item";
    for (uint32_t i = 0; is_thorough && i < s->num_tiles; i++)
        if (!is_tile_sound(s, &qk_attention_batch_tiles(s)[i]))
            return "is damaged: a tile";
    return nullptr;
}
