// SPDX-License-Identifier: Apache-2.0
// quern convert: converts a quantised checkpoint between the two e4m3 encodings.
#include "checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, MAX_CHUNK_BYTES = 32 << 20 };

static const char *to;
static bool as_json, force, allow_rounding;

static const cli_option options[] = {
    {.name = "--to",
     .value = "e4m3fnuz|e4m3fn",
     .kind = CLI_CHOICE,
     .to = &to,
     .help = "the encoding wanted (required)"},
    {.name = "--allow-rounding",
     .kind = CLI_FLAG,
     .to = &allow_rounding,
     .help = "to e4m3fn: round inexact blocks; tells the largest error"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace OUT if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print the report as JSON"},
    {0}};

static const char scale_suffix[] = "_scale_inv";

typedef struct job {
    cli_device cpu;
    const ckpt *c;
    const st_dtype *from, *into;
    int64_t num_converted, inexact_blocks;
    double max_rel_error;
    const char *path; // of the result
    int64_t bytes_out;
    char *report;
} job;

// ---- planning

static const st_tensor *find_scale(const ckpt *c, const st_tensor *weight,
                                   const ckpt_shard **shard) {
    char *name = cli_text("%s%s", weight->name, scale_suffix);
    const st_tensor *scale = ckpt_find(c, name, shard);
    free(name);
    return scale;
}

/** Returns the FP8 weight whose scale a tensor is; null if it is no scale. */
static const st_tensor *find_weight(const job *j, const st_tensor *scale,
                                    const ckpt_shard **shard) {
    const size_t length = strlen(scale->name), suffix = strlen(scale_suffix);
    if (length <= suffix || strcmp(scale->name + length - suffix, scale_suffix) != 0)
        return nullptr;
    char *name = cli_text("%.*s", (int)(length - suffix), scale->name);
    const st_tensor *weight = ckpt_find(j->c, name, shard);
    free(name);
    return weight && weight->dtype == j->from ? weight : nullptr;
}

static qn_status check_pair(const ckpt *c, const ckpt_shard *shard, const st_tensor *weight) {
    const st_tensor *scale = find_scale(c, weight, nullptr);
    if (!scale)
        return cli_fail(QN_E_INVALID, "%s: tensor %s is %s but there is no %s%s", shard->map.path,
                        weight->name, weight->dtype->name, weight->name, scale_suffix);
    char found[256];
    const int64_t rows = (weight->shape[0] + BLOCK - 1) / BLOCK,
                  cols = (weight->shape[1] + BLOCK - 1) / BLOCK;
    if (weight->ndim != 2)
        return cli_fail(QN_E_INVALID, "%s: tensor %s is %s, accepted: two dimensions",
                        shard->map.path, weight->name, st_text(weight, found, sizeof found));
    if (scale->ndim != 2 || scale->shape[0] != rows || scale->shape[1] != cols ||
        strcmp(scale->dtype->name, "F32") != 0)
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s is %s, its weight needs [%" PRId64 ", %" PRId64
                        "] F32: one scale for each block of 128 x 128",
                        shard->map.path, scale->name, st_text(scale, found, sizeof found), rows,
                        cols);
    return QN_OK;
}

static qn_status plan(void *context, const ckpt *c, const ckpt_shard *shard, ckpt_item *item) {
    job *j = context;
    if (item->in->dtype == j->from) {
        item->is_copied = false;
        item->out[0].dtype = j->into;
        j->num_converted++;
        return check_pair(c, shard, item->in);
    }
    if (find_weight(j, item->in, nullptr))
        item->is_copied = false;
    return QN_OK;
}

static json_t *quantization(void *context) {
    job *j = context;
    json_t *config = ckpt_quantization(j->c);
    if (!json_is_object(config)) {
        json_decref(config);
        config = cli_json_pack("{s:s, s:s, s:[i, i]}", "quant_method", "fp8", "activation_scheme",
                               "dynamic", "weight_block_size", BLOCK, BLOCK);
    }
    const bool is_fnuz = strcmp(j->into->name, "F8_E4M3FNUZ") == 0;
    cli_json_set(config, "fmt", json_string(is_fnuz ? "e4m3fnuz" : "e4m3"));
    return config;
}

// ---- writing

/** A weight and its scale, and where their results go in this shard (null: to another shard). */
typedef struct pair {
    const ckpt_shard *weight_shard, *scale_shard;
    const st_tensor *weight, *scale, *weight_out, *scale_out;
    uint8_t *q;    // a part of the weight, converted in place
    float *scales; // its scales
} pair;

/** A part of a weight, in whole blocks save at the weight's edges. */
typedef struct part {
    int64_t row, col, rows, cols;
} part;

static int64_t blocks_of(int64_t elements) {
    return (elements + BLOCK - 1) / BLOCK;
}

/** Copies a part of a matrix in a file, which need not be aligned. */
static void load_part(void *room, const ckpt_shard *shard, const st_tensor *t, const part *k) {
    const int64_t bytes = t->dtype->bits / 8, pitch = t->shape[1];
    const char *from = (const char *)ckpt_data(shard, t) + (k->row * pitch + k->col) * bytes;
    for (int64_t i = 0; i < k->rows; i++)
        memcpy((char *)room + i * k->cols * bytes, from + i * pitch * bytes,
               (size_t)(k->cols * bytes));
}

static qn_status convert_part(job *j, const pair *p, const part *k, const part *blocks) {
    DLDevice cpu = qn_device_id(j->cpu.device);
    int64_t shape[2] = {k->rows, k->cols}, scale_shape[2] = {blocks->rows, blocks->cols};
    load_part(p->q, p->weight_shard, p->weight, k);
    load_part(p->scales, p->scale_shard, p->scale, blocks);
    DLTensor q = {.data = p->q, .device = cpu, .ndim = 2, .dtype = j->from->dl, .shape = shape};
    DLTensor scale = {.data = p->scales,
                      .device = cpu,
                      .ndim = 2,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = scale_shape};
    DLTensor q_out = q;
    q_out.dtype = j->into->dl;
    qn_convert_report report = {.struct_size = sizeof report};
    qn_status st =
        qn_convert_fp8(j->cpu.stream, &q_out, &scale, &q, &scale, allow_rounding, &report);
    j->inexact_blocks += report.inexact_blocks;
    if (report.max_rel_error > j->max_rel_error)
        j->max_rel_error = report.max_rel_error;
    // Blocks that no scale makes exact are counted to the end; finish reports them.
    if (st == QN_OK || (st == QN_E_UNSUPPORTED && report.inexact_blocks > 0))
        return QN_OK;
    return cli_fail_lib(st, p->weight->name);
}

static qn_status write_part(job *j, const pair *p, ckpt_sink *sink, const part *k) {
    const part blocks = {k->row / BLOCK, k->col / BLOCK, blocks_of(k->rows), blocks_of(k->cols)};
    CLI_TRY(convert_part(j, p, k, &blocks));
    if (p->weight_out)
        CLI_TRY(ckpt_put_part(sink, p->weight_out, k->row, k->col, p->q, k->rows, k->cols));
    if (p->scale_out)
        CLI_TRY(ckpt_put_part(sink, p->scale_out, blocks.row, blocks.col, p->scales, blocks.rows,
                              blocks.cols));
    if (p->weight_out)
        ckpt_progress_part(p->weight_shard, p->weight, k->row, k->col, k->rows, k->cols);
    return QN_OK;
}

static qn_status write_pair(job *j, pair *p, ckpt_sink *sink) {
    const int64_t rows = p->weight->shape[0], cols = p->weight->shape[1];
    const ckpt_step step = ckpt_step_of(p->weight, BLOCK, MAX_CHUNK_BYTES);
    p->q = cli_alloc((size_t)(step.rows * step.cols));
    p->scales = cli_alloc((size_t)(blocks_of(step.rows) * blocks_of(step.cols)) * 4);
    qn_status st = QN_OK;
    for (part k = {0}; st == QN_OK && k.row < rows; k.row += step.rows)
        for (k.col = 0; st == QN_OK && k.col < cols; k.col += step.cols) {
            k.rows = rows - k.row < step.rows ? rows - k.row : step.rows;
            k.cols = cols - k.col < step.cols ? cols - k.col : step.cols;
            st = write_part(j, p, sink, &k);
        }
    free(p->q);
    free(p->scales);
    return st;
}

/** Writes a weight or a scale. Each depends on the other and they may lie in different shards, so
 *  each is computed from both in its own shard. The second computation is thrown away but for the
 *  scales. */
static qn_status write(void *context, const ckpt *c, const ckpt_shard *shard, const ckpt_item *item,
                       ckpt_sink *sink) {
    job *j = context;
    pair p = {.weight_shard = shard, .scale_shard = shard};
    if (item->in->dtype == j->from) {
        p.weight = item->in;
        p.weight_out = item->out;
        p.scale = find_scale(c, p.weight, &p.scale_shard);
    } else {
        p.scale = item->in;
        p.scale_out = item->out;
        p.weight = find_weight(j, p.scale, &p.weight_shard);
    }
    const int64_t inexact = j->inexact_blocks;
    const qn_status st = write_pair(j, &p, sink);
    if (!p.weight_out) // count each block once
        j->inexact_blocks = inexact;
    return st;
}

// ---- the command

static qn_status set_direction(job *j) {
    if (!to)
        return cli_fail(QN_E_INVALID, "option --to is missing (accepted: e4m3fnuz, e4m3fn)");
    const bool is_fnuz = strcmp(to, "e4m3fnuz") == 0;
    j->from = st_dtype_find(is_fnuz ? "F8_E4M3" : "F8_E4M3FNUZ");
    j->into = st_dtype_find(is_fnuz ? "F8_E4M3FNUZ" : "F8_E4M3");
    return QN_OK;
}

static qn_status check_any(const job *j) {
    for (int i = 0; i < j->c->num_shards; i++)
        for (int64_t n = 0; n < j->c->shards[i].header.count; n++)
            if (j->c->shards[i].header.tensors[n].dtype == j->from)
                return QN_OK;
    return cli_fail(QN_E_INVALID, "%s: no tensor is %s, so there is nothing to convert to %s",
                    j->c->path, j->from->name, to);
}

static char *report_json(const job *j) {
    return cli_json_lines(cli_json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:f}", "in", cli_json_text(j->c->path), "out",
        cli_json_text(j->path), "to", to, "tensors_converted", (json_int_t)j->num_converted,
        "inexact_blocks", (json_int_t)j->inexact_blocks, "max_rel_error", j->max_rel_error));
}

static char *report_text(const job *j) {
    char *how = j->inexact_blocks
                    ? cli_text("%" PRId64 " blocks rounded, largest relative error %.3g",
                               j->inexact_blocks, j->max_rel_error)
                    : cli_text("exactly");
    char *text = cli_text("%s: %" PRId64 " tensors converted to %s, %s\n", j->path,
                          j->num_converted, to, how);
    free(how);
    return text;
}

/** Refuses a result that would have to be rounded, or makes the report, which is printed once the
 *  result exists. */
static qn_status finish(void *context) {
    job *j = context;
    if (allow_rounding || !j->inexact_blocks) {
        j->report = (as_json ? report_json : report_text)(j);
        return QN_OK;
    }
    return cli_fail(QN_E_UNSUPPORTED,
                    "%s: %" PRId64
                    " blocks of 128 x 128 cannot be %s exactly, with their scale kept or "
                    "halved; accepted: exact blocks, or --allow-rounding",
                    j->c->path, j->inexact_blocks, to);
}

static int run(int, char **arguments) {
    ckpt c = {0};
    job j = {.c = &c, .path = arguments[1]};
    ckpt_rule rule = {&j, plan, write, finish, quantization};
    qn_status st;
    CLI_TRY_OUT(set_direction(&j));
    CLI_TRY_OUT(ckpt_open(&c, arguments[0]));
    CLI_TRY_OUT(check_any(&j));
    CLI_TRY_OUT(cli_device_open(&j.cpu, "cpu"));
    CLI_TRY_OUT(ckpt_rewrite(&c, j.path, force, &rule, &j.bytes_out));
    CLI_TRY_OUT(cli_print(j.report));
out:
    cli_device_close(&j.cpu);
    ckpt_close(&c);
    free(j.report);
    return cli_finish("convert", st);
}

const cli_command cli_convert = {
    .name = "convert",
    .arguments = "IN OUT",
    .summary = "Convert a quantised checkpoint between e4m3fn and e4m3fnuz",
    .details = "IN and OUT are files or folders, as for quern quantize. The way to e4m3fnuz\n"
               "(gfx942) is always exact: bits are kept, scales doubled, -0 becomes 0 and NaN\n"
               "stays NaN. On the way back to e4m3fn a block is exact if its scale can be kept or\n"
               "halved; if a block is not exact, nothing is written unless --allow-rounding is\n"
               "given.",
    .options = options,
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run};
