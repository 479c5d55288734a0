// SPDX-License-Identifier: Apache-2.0
// The problems that quern tune tries: from --shapes, or from a model's layers.
#include "tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const tune_op_names[TUNE_OPS + 1] = {"gemm",       "attention", "mla",  "norm",
                                                 "activation", "quantize",  nullptr};

/** How --shapes gives an op's sizes. */
static const struct {
    int count;
    const char *what;
} forms[TUNE_OPS] = {{2, "rows and columns of a weight, as 4096x7168"},
                     {3, "query heads, key heads and head_dim, as 32x8x128"},
                     {1, "query heads, as 16"},
                     {1, "elements of a row, as 7168"},
                     {1, "elements of a row, as 7168"},
                     {1, "elements of a row, as 7168"}};

static const DLDataType bf16 = {kDLBfloat, 16, 1}, e4m3fn = {kDLFloat8_e4m3fn, 8, 1},
                        e4m3fnuz = {kDLFloat8_e4m3fnuz, 8, 1};

enum { MAX_SIZE = 1 << 20 };

// ---- adding

static tune_problem *add(tune_problems *p, tune_op op) {
    if (p->count == TUNE_MAX_PROBLEMS)
        return nullptr;
    tune_problem *added = &p->list[p->count++];
    *added = (tune_problem){.op = op, .group = p->num_groups};
    return added;
}

static qn_status fail_count(void) {
    return cli_fail(QN_E_INVALID, "more than %d problems", TUNE_MAX_PROBLEMS);
}

static bool has_gemm(const tune_problems *p, int64_t n, int64_t k, DLDataType dtype) {
    for (int i = 0; i < p->count; i++) {
        const gemm_shape *s = &p->list[i].gemm;
        if (p->list[i].op == TUNE_GEMM && s->n == n && s->k == k && s->dtype.code == dtype.code)
            return true;
    }
    return false;
}

qn_status tune_add_gemm(tune_problems *p, int64_t n, int64_t k, DLDataType dtype) {
    if (has_gemm(p, n, k, dtype))
        return QN_OK;
    for (int i = 0; i < p->num_tokens; i++) {
        tune_problem *to = add(p, TUNE_GEMM);
        if (!to)
            return fail_count();
        to->gemm = (gemm_shape){p->tokens[i], n, k, dtype};
        gemm_call_text(&to->gemm, to->text, sizeof to->text);
    }
    p->num_groups++;
    return QN_OK;
}

qn_status tune_add_attention(tune_problems *p, const tune_heads *h) {
    enum { BATCH = 8 };
    for (int i = 0; i < 2 * p->num_seq; i++) {
        const int64_t length = p->seq[i / 2];
        tune_problem *to = add(p, TUNE_ATTENTION);
        if (!to)
            return fail_count();
        to->attention =
            i % 2 ? (attention_shape){BATCH, h->qo_heads, h->kv_heads, h->dim, 1, length, false}
                  : (attention_shape){1, h->qo_heads, h->kv_heads, h->dim, length, length, true};
        attention_call_text(&to->attention, to->text, sizeof to->text);
    }
    p->num_groups++;
    return QN_OK;
}

qn_status tune_add_mla(tune_problems *p, int64_t heads) {
    enum { BATCH = 8 };
    for (int i = 0; i < p->num_seq; i++) {
        tune_problem *to = add(p, TUNE_MLA);
        if (!to)
            return fail_count();
        to->mla = (mla_shape){.batch = BATCH, .heads = heads, .kv_len = p->seq[i]};
        mla_call_text(&to->mla, to->text, sizeof to->text);
    }
    p->num_groups++;
    return QN_OK;
}

qn_status tune_add_rows(tune_problems *p, tune_op family, const char *name, int64_t dim) {
    int number = 0;
    char text[64];
    while (strcmp(rows_name(number), name) != 0)
        number++;
    for (int i = 0; i < p->num_tokens; i++) {
        tune_problem *to = add(p, family);
        if (!to)
            return fail_count();
        to->rows.number = number;
        to->rows.shape = (rows_shape){p->tokens[i], dim};
        rows_call_text(to->rows.shape, text, sizeof text);
        snprintf(to->text, sizeof to->text, "%s %s", name, text);
    }
    p->num_groups++;
    return QN_OK;
}

qn_status tune_add_quantize(tune_problems *p, int64_t dim) {
    for (int i = 0; i < p->num_tokens; i++) {
        tune_problem *to = add(p, TUNE_QUANTIZE);
        if (!to)
            return fail_count();
        to->quantize.shape = (rows_shape){p->tokens[i], dim};
        to->quantize.block_rows = 1;
        quantize_call_text(to->quantize.shape, 1, to->text, sizeof to->text);
    }
    p->num_groups++;
    return QN_OK;
}

/** Adds all row ops of a family. */
static qn_status add_family(tune_problems *p, tune_op family, int64_t dim) {
    for (int i = 0; i < rows_count(); i++)
        if (strcmp(rows_family(i), tune_op_names[family]) == 0)
            CLI_TRY(tune_add_rows(p, family, rows_name(i), dim));
    return QN_OK;
}

int64_t tune_least_tokens(const tune_problems *p, int problem, const char **name) {
    const tune_problem *of = &p->list[problem];
    const bool has_tokens = of->op != TUNE_ATTENTION && of->op != TUNE_MLA;
    const int64_t tokens = of->op == TUNE_GEMM       ? of->gemm.m
                           : of->op == TUNE_QUANTIZE ? of->quantize.shape.rows
                                                     : of->rows.shape.rows;
    int64_t least = 1;
    *name = of->op == TUNE_GEMM ? "m" : "rows";
    for (int i = 0; i < p->num_tokens && has_tokens; i++)
        if (p->tokens[i] < tokens && p->tokens[i] >= least)
            least = p->tokens[i] + 1;
    return p->has_ranges && has_tokens && least < tokens ? least : 0;
}

// ---- lists

/** Reads a number up to one of the ends, and moves *at behind it. */
static bool read_number(const char **at, const char *ends, int64_t *number) {
    char *end;
    errno = 0;
    *number = strtoll(*at, &end, 10);
    if (end == *at || errno || *number < 1 || *number > MAX_SIZE || (*end && !strchr(ends, *end)))
        return false;
    *at = end;
    return true;
}

static qn_status read_list(const char *option, const char *list, int64_t *to, int *count) {
    const char *at = list;
    for (*count = 0;; at++) {
        if (*count == TUNE_MAX_LIST)
            return cli_fail(QN_E_INVALID, "option %s: more than %d numbers", option, TUNE_MAX_LIST);
        if (!read_number(&at, ",", &to[*count]))
            return cli_fail(QN_E_INVALID,
                            "option %s: found '%s', accepted: numbers from 1 to %d, as 1,16",
                            option, list, MAX_SIZE);
        for (int i = 0; i < *count; i++)
            if (to[i] == to[*count])
                return cli_fail(QN_E_INVALID, "option %s: %lld stands twice", option,
                                (long long)to[i]);
        ++*count;
        if (!*at)
            return QN_OK;
    }
}

/** Reads a shape such as 4096x7168 and moves *at behind it. */
static bool read_shape(const char **at, int64_t *sizes, int count) {
    for (int i = 0; i < count; i++) {
        const bool is_last = i == count - 1;
        if (!read_number(at, is_last ? "," : "x", &sizes[i]) || (!is_last && *(*at)++ != 'x'))
            return false;
    }
    return true;
}

static qn_status add_shape(tune_problems *p, const int64_t *s, tune_op op, DLDataType dtype) {
    switch (op) {
    case TUNE_GEMM:
        return tune_add_gemm(p, s[0], s[1], dtype);
    case TUNE_ATTENTION:
        return s[0] % s[1] == 0
                   ? tune_add_attention(p, &(tune_heads){s[0], s[1], s[2]})
                   : cli_fail(QN_E_INVALID,
                              "option --shapes: found %lld query heads for %lld key heads, "
                              "accepted: a multiple",
                              (long long)s[0], (long long)s[1]);
    case TUNE_MLA:
        return tune_add_mla(p, s[0]);
    case TUNE_NORM:
    case TUNE_ACTIVATION:
        return add_family(p, op, s[0]);
    case TUNE_QUANTIZE:
        return tune_add_quantize(p, s[0]);
    case TUNE_OPS:
        break;
    }
    __builtin_unreachable();
}

static qn_status add_shapes(tune_problems *p, const char *shapes, tune_op op, DLDataType dtype) {
    const char *at = shapes;
    for (;; at++) {
        int64_t sizes[3];
        if (!read_shape(&at, sizes, forms[op].count))
            return cli_fail(QN_E_INVALID,
                            "option --shapes: found '%s', accepted: %s, and more behind commas",
                            shapes, forms[op].what);
        CLI_TRY(add_shape(p, sizes, op, dtype));
        if (!*at)
            return QN_OK;
    }
}

// ---- the command's problems

/** Returns the FP8 in which activations are fastest: the one that the device packs weights to. */
static DLDataType usual_fp8(const cli_device *device) {
    int64_t shape[] = {128, 128}, packed[3];
    const DLTensor b = {
        .device = qn_device_id(device->device), .ndim = 2, .dtype = e4m3fn, .shape = shape};
    DLDataType dtype = e4m3fn;
    return qn_gemm_packed_shape(device->device, &b, packed, &dtype) == QN_OK ? dtype : e4m3fn;
}

static DLDataType dtype_of(const char *name, DLDataType fp8) {
    return strcmp(name, "bf16") == 0       ? bf16
           : strcmp(name, "e4m3fn") == 0   ? e4m3fn
           : strcmp(name, "e4m3fnuz") == 0 ? e4m3fnuz
                                           : fp8;
}

/** Checks that the ops make use of what is given. */
static qn_status check_used(const tune_options *o, unsigned ops) {
    const unsigned gemm = 1U << TUNE_GEMM, heads = 1U << TUNE_ATTENTION | 1U << TUNE_MLA;
    const struct {
        const char *option;
        bool is_given;
        unsigned ops;
    } uses[] = {{"--tokens", o->tokens, ~heads},
                {"--ranges", o->has_ranges, ~heads},
                {"--seq", o->seq, heads},
                {"--dtype", o->dtype && !o->model, gemm}};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i].is_given && !(ops & uses[i].ops))
            return cli_fail(QN_E_INVALID, "option %s: found no op that it is for (accepted: %s)",
                            uses[i].option,
                            uses[i].ops == heads  ? "with attention or mla"
                            : uses[i].ops == gemm ? "with gemm"
                                                  : "with gemm or row ops");
    return QN_OK;
}

static qn_status check_what(const tune_options *o, unsigned ops) {
    if (o->model && o->shapes)
        return cli_fail(QN_E_INVALID, "options --model and --shapes: one of them is accepted");
    if (!o->model && !o->shapes)
        return cli_fail(QN_E_INVALID, "no problems are given (accepted: --shapes or --model)");
    if (o->shapes && __builtin_popcount(ops) != 1)
        return cli_fail(QN_E_INVALID, "option --shapes: takes one op, found %d",
                        __builtin_popcount(ops));
    if (o->shapes && o->tp)
        return cli_fail(QN_E_INVALID, "option --tp: goes with --model, not with --shapes");
    return check_used(o, ops);
}

qn_status tune_problems_make(tune_problems *out, const tune_options *o, unsigned ops,
                             const cli_device *device) {
    const DLDataType fp8 = usual_fp8(device), dtype = dtype_of(o->dtype ? o->dtype : "fp8", fp8);
    *out = (tune_problems){.list = cli_alloc(TUNE_MAX_PROBLEMS * sizeof *out->list)};
    out->has_ranges = o->has_ranges;
    CLI_TRY(check_what(o, ops));
    CLI_TRY(read_list("--tokens", o->tokens ? o->tokens : "1,16,64,512", out->tokens,
                      &out->num_tokens));
    CLI_TRY(read_list("--seq", o->seq ? o->seq : "1024", out->seq, &out->num_seq));
    return o->model ? tune_add_model(out, o, ops, fp8, o->dtype ? &dtype : nullptr)
                    : add_shapes(out, o->shapes, (tune_op)__builtin_ctz(ops), dtype);
}
