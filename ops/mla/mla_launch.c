// SPDX-License-Identifier: Apache-2.0
// Launches MLA's kernels on matrix cores, which take what attention's do but no queries of FP8, and
// the kernel for caches with scales of groups.
#include "mla.h"
#include "mla_abi.h"

#include <string.h>

static bool has_groups(const void *problem) {
    return ((const qni_attention_problem *)problem)->groups.data;
}

static bool is_short(int64_t stride) {
    return stride >= 0 && stride <= UINT32_MAX / 2;
}

/** Returns whether pages and tokens of the cache lie so near each other that 32 bits count their
 *  bytes, and whether codes of ckv are whole runs of 16. */
static bool takes_places(const qni_attention_problem *p, qni_reason *why) {
    const qk_attention_rows *k = &p->args.k, *tail = &p->tail.k;
    constexpr int64_t wide = 16;
    if (!is_short(k->block) || !is_short(k->token) || !is_short(tail->block) ||
        !is_short(tail->token))
        return qni_no(why, "pages or tokens lie 2^31 elements or more apart, or backwards");
    if (qni_is_fp8(p->dtype_kv) &&
        ((uintptr_t)k->data % wide != 0 || k->block % wide != 0 || k->token % wide != 0))
        return qni_no(why, "a row of ckv does not begin at a multiple of 16 bytes");
    return true;
}

bool qni_mla_tile_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (qni_is_fp8(p->dtype))
        return qni_no(why, "q is %s; taken: f16, bf16", qni_dtype_name(p->dtype));
    if (has_groups(p))
        return qni_no(why, "the cache has scales of groups; taken: none");
    if (p->tail.dim % 8 != 0)
        return qni_no(why, "rope_dim is %u; taken: multiples of 8", p->tail.dim);
    return qni_attention_plain_supports(variant, device, problem, why);
}

/** Returns whether CDNA's own kernels take the problem, but for its rows. */
static bool takes_full_size(const qni_variant *variant, const qn_device *device,
                            const qni_attention_problem *p, qni_reason *why) {
    const qni_dtype q = p->dtype, kv = p->dtype_kv, codes = qni_usual_e4m3(device);
    if (has_groups(p))
        return qni_no(why, "the cache has scales of groups; taken: none");
    if (q != QNI_BF16 && q != codes)
        return qni_no(why, "q is %s; taken: bf16, %s", qni_dtype_name(q), qni_dtype_name(codes));
    if (!qni_attention_plain_supports(variant, device, p, why))
        return false;
    if (qni_is_fp8(kv) && kv != codes)
        return qni_no(why, "the cache is %s; taken: bf16, %s", qni_dtype_name(kv),
                      qni_dtype_name(codes));
    if (p->args.head_dim_vo != 512 || p->tail.dim != 64)
        return qni_no(why, "dim is %u, rope_dim %u; taken: 512, 64", p->args.head_dim_vo,
                      p->tail.dim);
    return takes_places(p, why);
}

bool qni_mla_few_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                          qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (!takes_full_size(variant, device, p, why))
        return false;
    if (p->has_more_rows)
        return qni_no(why, "a request has more than %d rows", QK_ATTENTION_FEW_ROWS);
    return !qni_env_get()->batch_invariant || qni_no(why, "QUERN_BATCH_INVARIANT is 1");
}

bool qni_mla_many_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    return takes_full_size(variant, device, problem, why);
}

/** Returns the cost in the tile kernels' unit, whose matrix cores wait most of the time. */
double qni_mla_many_cost(const qni_variant *variant, const qn_device *, const void *) {
    constexpr double faster = 6;
    return variant->config.rows * variant->config.columns / faster;
}

/** Takes queries that are codes as the cache is: their products need no conversion. */
bool qni_mla_codes_supports(const qni_variant *variant, const qn_device *device,
                            const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (!qni_is_fp8(p->dtype))
        return qni_no(why, "q is %s; taken: %s", qni_dtype_name(p->dtype),
                      qni_dtype_name(qni_usual_e4m3(device)));
    return takes_full_size(variant, device, problem, why);
}

double qni_mla_codes_cost(const qni_variant *variant, const qn_device *device,
                          const void *problem) {
    constexpr double faster = 2;
    return qni_mla_many_cost(variant, device, problem) / faster;
}

qn_status qni_mla_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_mla_args args = {.common = p->args, .tail = p->tail};
    return qni_attention_launch(variant, stream, p, &args.common, sizeof args);
}

qn_status qni_mla_many(const qni_variant *variant, qn_stream *stream, const void *problem) {
    enum { THREADS = 512 };
    const qni_attention_problem *p = problem;
    const qk_mla_args args = {.common = p->args, .tail = p->tail};
    return qni_attention_launch_of(variant, stream, p, THREADS, &args.common, sizeof args);
}

bool qni_mla_any_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                          qni_reason *why) {
    if (has_groups(problem))
        return qni_no(why, "the cache has scales of groups; taken: none");
    return qni_attention_any_supports(variant, device, problem, why);
}

bool qni_mla_groups_supports(const qni_variant *variant, const qn_device *device,
                             const void *problem, qni_reason *why) {
    if (!has_groups(problem))
        return qni_no(why, "the cache has no scales of groups");
    return qni_attention_any_supports(variant, device, problem, why);
}

qn_status qni_mla_groups(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_groups_args args = {
        .any = {.common = p->args,
                .tail = p->tail,
                .is_wide = qni_attention_is_wide(&p->tail.k, p->tail.dim)}, // codes have no runs
        .scales = p->groups,
        .dtype_tail = (uint32_t)p->dtype_tail};
    args.any.common.q_tile = variant->config.rows;
    memcpy(args.any.turns, p->turns, sizeof args.any.turns);
    return qni_attention_launch(variant, stream, p, &args.any.common, sizeof args);
}
