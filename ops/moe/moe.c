// SPDX-License-Identifier: Apache-2.0
// The ops of the moe family: their kernels, and how tables of measured choices tell problems apart.
#include "moe.h"

#include "../shared/variants.h"

#define QN_TABLE_OF_moe_route 0,
static const qni_variant route_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_route

#define QN_TABLE_OF_moe_sort 0,
static const qni_variant sort_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_sort

#define QN_TABLE_OF_moe_permute 0,
static const qni_variant permute_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_permute

#define QN_TABLE_OF_moe_activate 0,
static const qni_variant activate_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_activate

#define QN_TABLE_OF_moe_sum 0,
static const qni_variant sum_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_sum

#define QN_TABLE_OF_moe_few 0,
static const qni_variant few_variants[] = {
#include "variants.def"
};
#undef QN_TABLE_OF_moe_few

static const char *const scoring_words[] = {"softmax", "sigmoid", nullptr};
static const qni_key route_keys[] = {{.name = "experts"},
                                     {.name = "top_k"},
                                     {.name = "groups"},
                                     {.name = "logits", .words = qni_dtype_words},
                                     {.name = "scoring", .words = scoring_words},
                                     {.name = "bias", .words = qni_no_yes_words},
                                     {.name = "tokens", .is_of_batch = true},
                                     {}};

static void describe_route(const void *problem, int64_t *values) {
    const qni_moe_route_problem *p = problem;
    QN_SET_VALUES(route_keys, values, p->experts, p->top_k, p->groups, p->dtype, p->is_sigmoid,
                  p->bias != nullptr, p->tokens);
}

const qni_op qni_op_moe_route = QN_OP("moe_route", route_variants, route_keys, describe_route);

static const qni_key sort_keys[] = {
    {.name = "experts"}, {.name = "alignment"}, {.name = "pairs", .is_of_batch = true}, {}};

static void describe_sort(const void *problem, int64_t *values) {
    const qni_moe_sort_problem *p = problem;
    QN_SET_VALUES(sort_keys, values, p->experts, p->alignment, p->pairs);
}

static const qni_key permute_keys[] = {
    {.name = "n"},      {.name = "x", .words = qni_dtype_words}, {.name = "top_k"},
    {.name = "groups"}, {.name = "rows", .is_of_batch = true},   {}};

static void describe_permute(const void *problem, int64_t *values) {
    const qni_moe_permute_problem *p = problem;
    QN_SET_VALUES(permute_keys, values, p->n, p->dtype, p->top_k, p->groups, p->rows);
}

static const char *const function_words[] = {"silu", "gelu", "gelu_tanh", "swiglu", nullptr};
static const qni_key activate_keys[] = {{.name = "h"},
                                        {.name = "x", .words = qni_dtype_words},
                                        {.name = "out", .words = qni_dtype_words},
                                        {.name = "function", .words = function_words},
                                        {.name = "interleaved", .words = qni_no_yes_words},
                                        {.name = "rows", .is_of_batch = true},
                                        {}};

static void describe_activate(const void *problem, int64_t *values) {
    const qni_moe_activate_problem *p = problem;
    QN_SET_VALUES(activate_keys, values, p->h, p->dtype, p->dtype_out, p->function,
                  p->is_interleaved, p->rows);
}

static const qni_key sum_keys[] = {{.name = "n"},
                                   {.name = "x", .words = qni_dtype_words},
                                   {.name = "out", .words = qni_dtype_words},
                                   {.name = "top_k"},
                                   {.name = "tokens", .is_of_batch = true},
                                   {}};

static void describe_sum(const void *problem, int64_t *values) {
    const qni_moe_sum_problem *p = problem;
    QN_SET_VALUES(sum_keys, values, p->n, p->dtype, p->dtype_out, p->top_k, p->tokens);
}

const qni_op qni_op_moe_sort = QN_OP("moe_sort", sort_variants, sort_keys, describe_sort);
const qni_op qni_op_moe_permute =
    QN_OP("moe_permute", permute_variants, permute_keys, describe_permute);
const qni_op qni_op_moe_activate =
    QN_OP("moe_activate", activate_variants, activate_keys, describe_activate);
const qni_op qni_op_moe_sum = QN_OP("moe_sum", sum_variants, sum_keys, describe_sum);

static const qni_key few_keys[] = {{.name = "hidden"},
                                   {.name = "inner"},
                                   {.name = "top_k"},
                                   {.name = "out", .words = qni_dtype_words},
                                   {.name = "tokens", .is_of_batch = true},
                                   {}};

static void describe_few(const void *problem, int64_t *values) {
    const qni_moe_few_problem *p = problem;
    QN_SET_VALUES(few_keys, values, p->hidden, p->inner, p->top_k, p->dtype_out, p->tokens);
}

const qni_op qni_op_moe_few = QN_OP("moe_few", few_variants, few_keys, describe_few);
