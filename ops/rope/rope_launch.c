// SPDX-License-Identifier: Apache-2.0
// Computes frequencies as integers, and launches the kernels of rope_gpu.c and rope_any_gpu.c.
#include "../shared/round.h"
#include "rope.h"
#include "rope_abi.h"

#include <string.h>

static_assert((int)QNI_ROPE_PARTS == (int)QK_ROPE_PARTS &&
              (int)QNI_ROPE_MAX_PAIRS == (int)QK_ROPE_MAX_PAIRS &&
              (int)QNI_ROPE_BY_TOKEN == (int)QK_ROPE_BY_TOKEN);

enum { RUN = 8, SLOT = 16, THREADS = 256 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through the other items

// ---- frequencies

/** Returns a pair's turns a position, without whole turns. It is a long double, as 2^31 positions
 *  multiply its error. */
static long double turns_of(const qni_rope_law *law, int64_t pair, int64_t rotary_dim) {
    const long double tau = 6.28318530717958647692528676655900577L, theta = (long double)law->theta;
    const long double f = powl(theta, -2.0L * (long double)pair / (long double)rotary_dim);
    const long double scaled = f / (long double)law->scale;
    if (law->high_freq_factor == 0)
        return scaled / tau;
    const long double low = (long double)law->low_freq_factor,
                      span = (long double)law->high_freq_factor - low;
    const long double smooth = f * (long double)law->old_context_len / (tau * span) - low / span;
    const long double s = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
    return (s * f + (1 - s) * scaled) / tau;
}

static void find_turns(const qni_rope_law *law, int64_t rotary_dim, uint64_t *turns) {
    for (int64_t d = 0; d < rotary_dim / 2; d++) {
        const long double t = turns_of(law, d, rotary_dim);
        turns[d] = (uint64_t)((t - floorl(t)) * 0x1p64L);
    }
}

/** The last result is kept: a model asks for equal frequencies at every layer, and computing powers
 *  takes longer than a launch. */
void qni_rope_turns(const qni_rope_law *law, int64_t rotary_dim, uint64_t *turns) {
    static thread_local struct {
        qni_rope_law law;
        int64_t rotary_dim;
        uint64_t turns[QNI_ROPE_MAX_PAIRS];
    } last;
    const qni_rope_law *l = &last.law;
    const bool is_known =
        last.rotary_dim == rotary_dim && l->old_context_len == law->old_context_len &&
        memcmp(&l->theta, &law->theta, sizeof l->theta) == 0 &&
        memcmp(&l->scale, &law->scale, sizeof l->scale) == 0 &&
        memcmp(&l->low_freq_factor, &law->low_freq_factor, sizeof l->low_freq_factor) == 0 &&
        memcmp(&l->high_freq_factor, &law->high_freq_factor, sizeof l->high_freq_factor) == 0;
    if (!is_known) {
        find_turns(law, rotary_dim, last.turns);
        last.law = *law;
        last.rotary_dim = rotary_dim;
    }
    memcpy(turns, last.turns, (size_t)(rotary_dim / 2) * sizeof *turns);
}

// ---- what kernels take

static int64_t heads_of(const qni_rope_problem *p, int first, int end) {
    int64_t heads = 0;
    for (int i = first; i < end; i++)
        heads += p->parts[i].heads;
    return heads;
}

bool qni_rope_gpu_any_supports(const qni_variant *, const qn_device *device, const void *problem,
                               qni_reason *why) {
    (void)device;
    const qni_rope_problem *p = problem;
    constexpr int64_t most = 1 << 30;
    if (p->n >= most || heads_of(p, 0, QNI_ROPE_PARTS) >= most || p->segments >= most)
        return qni_no(why, "%ld tokens; fewer than 2^30 tokens and heads are accepted", (long)p->n);
    for (int i = 0; i < QNI_ROPE_PARTS; i++)
        if (p->parts[i].width >= most)
            return qni_no(why, "heads of %ld; fewer than 2^30 are accepted",
                          (long)p->parts[i].width);
    return true;
}

static bool is_aligned(const void *data, uintptr_t bytes, int64_t a, int64_t b, int64_t c) {
    return (uintptr_t)data % bytes == 0 && a % RUN == 0 && b % RUN == 0 && c % RUN == 0;
}

static bool has_whole_slots(const qni_rope_problem *p, const qni_rope_rows *r, int64_t wave,
                            qni_reason *why) {
    const uintptr_t out = qni_is_fp8(p->dtype_out) ? RUN : 16;
    if (r->heads == 0)
        return true;
    if (r->width % SLOT != 0 || r->width > wave * SLOT)
        return qni_no(why, "heads of %ld, not a multiple of 16 up to %ld", (long)r->width,
                      (long)wave * SLOT);
    if (is_aligned(r->in, 16, r->in_batch, r->in_token, r->in_head) &&
        is_aligned(r->out, out, r->out_batch, r->out_token, r->out_head) &&
        is_aligned(r->weight, 16, 0, 0, 0))
        return true;
    return qni_no(why, "a tensor does not begin, or its rows do not, at a multiple of 16 bytes");
}

/** Returns the flags of the kernel for a problem. */
static uint32_t flags_of(const qni_rope_problem *p) {
    return qni_is_fp8(p->dtype_out)      ? QNI_ROPE_QUANT
           : p->parts[QNI_ROPE_Q].weight ? QNI_ROPE_NORM
                                         : 0;
}

static bool is_made_for(const qni_variant *variant, const qni_rope_problem *p, qni_reason *why) {
    static const char *const words[] = {"heads as they are", "heads with RMSNorm", "FP8 results"};
    if (flags_of(p) == variant->config.flags)
        return true;
    return qni_no(why, "is for %s, this has %s", words[variant->config.flags], words[flags_of(p)]);
}

bool qni_rope_gpu_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_rope_problem *p = problem;
    const int64_t wave = device->target->wave_size, width = p->parts[QNI_ROPE_Q].width;
    if (p->rotary_dim % SLOT != 0)
        return qni_no(why, "rotary_dim=%ld is no multiple of 16", (long)p->rotary_dim);
    if (p->parts[QNI_ROPE_Q].weight && (width & (width - 1)) != 0)
        return qni_no(why, "RMSNorm of heads of %ld, no power of two", (long)width);
    if (p->angles != QNI_ROPE_BY_FREQUENCY && (!is_aligned(p->cos, 16, p->table_row, 0, 0) ||
                                               !is_aligned(p->sin, 16, p->table_row, 0, 0)))
        return qni_no(why, "the tables' rows do not begin at a multiple of 16 bytes");
    for (int i = 0; i < QNI_ROPE_PARTS; i++)
        if (!has_whole_slots(p, &p->parts[i], wave, why))
            return false;
    return qni_rope_gpu_any_supports(variant, device, problem, why) && is_made_for(variant, p, why);
}

// ---- launch

static qk_rope_rows make_rows(const qni_rope_rows *r) {
    return (qk_rope_rows){.in = r->in,
                          .out = r->out,
                          .weight = r->weight,
                          .in_batch = r->in_batch,
                          .in_token = r->in_token,
                          .in_head = r->in_head,
                          .out_batch = r->out_batch,
                          .out_token = r->out_token,
                          .out_head = r->out_head,
                          .heads = (uint32_t)r->heads,
                          .width = (uint32_t)r->width,
                          .scale = r->scale,
                          .is_paged = r->is_paged};
}

static void make_args(const qni_rope_problem *p, qk_rope_args *args) {
    const bool is_quant = qni_is_fp8(p->dtype_out);
    *args = (qk_rope_args){.pages = p->pages,
                           .pos_ids = p->pos_ids,
                           .indptr = p->indptr,
                           .offsets = p->offsets,
                           .cos = p->cos,
                           .sin = p->sin,
                           .table_row = p->table_row,
                           .table_step = (uint32_t)p->table_step,
                           .table_dtype = (uint32_t)p->dtype_table,
                           .angles = p->angles,
                           .n = (uint32_t)p->n,
                           .inner = (uint32_t)p->inner,
                           .batches = (uint32_t)p->segments,
                           .rotary_dim = (uint32_t)p->rotary_dim,
                           .is_interleaved = p->is_interleaved,
                           .is_quant = is_quant,
                           .kind = is_quant ? (uint32_t)qni_fp8_of(p->dtype_out) : 0,
                           .chunks = 1,
                           .eps = p->eps};
    for (int i = 0; i < QNI_ROPE_PARTS; i++)
        args->parts[i] = make_rows(&p->parts[i]);
    if (p->angles == QNI_ROPE_BY_FREQUENCY)
        qni_rope_turns(&p->law, p->rotary_dim, args->turns);
}

static qn_status launch(qn_stream *stream, const qni_kernel_ref *kernel, const qk_rope_args *args,
                        int64_t waves) {
    const int64_t a_group = THREADS / stream->device->target->wave_size;
    const int64_t groups = (waves + a_group - 1) / a_group;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, kernel, grid, THREADS, args, sizeof *args);
}

/** Returns how many waves share a token. If tokens are many, a wave takes a whole token and
 *  computes its angles once; if they are few, heads of q, and heads of k, are spread over as many
 *  waves as run at a time. */
static int64_t choose_chunks(const qn_device *device, const qni_rope_problem *p) {
    const int64_t q = p->parts[QNI_ROPE_Q].heads, k = p->parts[QNI_ROPE_K].heads;
    const int64_t slots = p->parts[QNI_ROPE_Q].width / SLOT;
    const int64_t most = qni_pieces(q > k ? q : k, device->target->wave_size / slots);
    const int64_t waves = qni_target_is_ptx(device->target) ? 16 : 32; // of a compute unit
    const int64_t wanted = waves * device->info.num_compute_units / p->n;
    return wanted < 1 || most < 1 ? 1 : wanted < most ? wanted : most;
}

qn_status qni_rope_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_rope_problem *p = problem;
    const bool has_values = variant->config.flags == QNI_ROPE_QUANT; // values get a wave, too
    qk_rope_args args;
    make_args(p, &args);
    args.chunks = (uint32_t)choose_chunks(stream->device, p);
    return launch(stream, &variant->config.kernel[p->dtype], &args,
                  p->n * args.chunks * (1 + has_values));
}

qn_status qni_rope_gpu_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_rope_problem *p = problem;
    qk_rope_args args;
    make_args(p, &args);
    return launch(stream, &variant->config.kernel[p->dtype], &args,
                  p->n * heads_of(p, 0, QNI_ROPE_PARTS));
}
