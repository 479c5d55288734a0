// SPDX-License-Identifier: Apache-2.0
// quern quantize: turns a checkpoint's linear weights into FP8 with one scale for each block of 128
// x 128.
#include "../select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, MAX_CHUNK_BYTES = 32 << 20 };

static cli_selection selection;
static bool as_json, force, allow_nonfinite;

static const cli_option options[] = {
    {.name = "--include",
     .value = "PATTERN",
     .kind = CLI_LIST,
     .to = &selection.include,
     .help = "quantise these too, though their names would keep them"},
    {.name = "--exclude",
     .value = "PATTERN",
     .kind = CLI_LIST,
     .to = &selection.exclude,
     .help = "leave these as they are, even if included"},
    {.name = "--allow-nonfinite",
     .kind = CLI_FLAG,
     .to = &allow_nonfinite,
     .help = "accept NaN (it stays NaN) and infinity (it spoils its block)"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace OUT if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print the report as JSON"},
    {0}};

/** What one run of the command does. */
typedef struct job {
    cli_device cpu;
    json_t *quantized; // names and shapes
    json_t *kept;      // modules whose weight stays
    int64_t num_copied;
    const ckpt *c;
    const char *path; // of the result
    int64_t begun_ns, bytes_out;
    char *report;
} job;

// ---- planning

static qn_status check_weight(const ckpt *c, const ckpt_shard *shard, const st_tensor *t) {
    char text[256], *scale = cli_text("%s_scale_inv", t->name);
    qn_status st = QN_OK;
    if (!t->shape[0] || !t->shape[1])
        st = cli_fail(
            QN_E_INVALID,
            "%s: tensor %s is %s; a weight to quantise has at least one row and one column "
            "(--exclude leaves it as it is)",
            shard->map.path, t->name, st_text(t, text, sizeof text));
    else if (ckpt_find(c, scale, nullptr))
        st = cli_fail(QN_E_INVALID, "%s: tensor %s has a %s already", shard->map.path, t->name,
                      scale);
    free(scale);
    return st;
}

static void note_kept(job *j, const char *name) {
    const char *end = strstr(name, ".weight");
    if (end && strcmp(end, ".weight") == 0)
        cli_json_add(j->kept, json_stringn(name, (size_t)(end - name)));
    j->num_copied++;
}

static qn_status plan(void *context, const ckpt *c, const ckpt_shard *shard, ckpt_item *item) {
    job *j = context;
    const st_tensor *in = item->in;
    if (!cli_select(&selection, in)) {
        note_kept(j, in->name);
        return QN_OK;
    }
    item->is_copied = false;
    item->out[0].dtype = st_dtype_find("F8_E4M3");
    item->out[1] = (st_tensor){
        .name = cli_text("%s_scale_inv", in->name),
        .dtype = st_dtype_find("F32"),
        .ndim = 2,
        .shape = {(in->shape[0] + BLOCK - 1) / BLOCK, (in->shape[1] + BLOCK - 1) / BLOCK}};
    item->num_out = 2;
    cli_json_add(j->quantized, cli_json_pack("{s:s, s:[I, I]}", "name", in->name, "shape",
                                             (json_int_t)in->shape[0], (json_int_t)in->shape[1]));
    return check_weight(c, shard, in);
}

static json_t *quantization(void *context) {
    job *j = context;
    return cli_json_pack("{s:s, s:s, s:s, s:[i, i], s:O}", "quant_method", "fp8", "fmt", "e4m3",
                         "activation_scheme", "dynamic", "weight_block_size", BLOCK, BLOCK,
                         "modules_to_not_convert", j->kept);
}

// ---- writing

/** A part of one weight, in whole blocks save at the weight's edges. */
typedef struct chunk {
    const void *x;    // [rows, cols] of the tensor's dtype, or f32 for F64
    int64_t x_row;    // its row stride
    float *narrowed;  // room for F64 weights as f32
    uint8_t *q;       // [rows, cols]
    float *scale;     // [ceil(rows/128), ceil(cols/128)]
    int64_t row, col; // where the part begins
    int64_t rows, cols;
} chunk;

/** Returns the index in the chunk of a row's first value that is NaN or infinite; -1 if there is
 *  none. Such a value has all exponent bits set. */
static int64_t first_nonfinite(const st_tensor *t, const void *x, int64_t count) {
    const uint32_t half = strcmp(t->dtype->name, "BF16") == 0 ? 0x7F80 : 0x7C00;
    for (int64_t i = 0; i < count; i++) {
        const bool bad = t->dtype->bits > 16 ? !isfinite(((const float *)x)[i])
                                             : (((const uint16_t *)x)[i] & half) == half;
        if (bad)
            return i;
    }
    return -1;
}

/** Returns the bytes of an element in the chunk, where F64 is f32: a double that f32 cannot hold
 *  has become an infinity. */
static int64_t element_bytes(const st_tensor *t) {
    return t->dtype->bits == 16 ? 2 : 4;
}

static qn_status check_finite(const ckpt_shard *shard, const st_tensor *t, const chunk *k) {
    for (int64_t i = 0; i < k->rows && !allow_nonfinite; i++) {
        const char *row = (const char *)k->x + i * k->x_row * element_bytes(t);
        const int64_t at = first_nonfinite(t, row, k->cols);
        if (at >= 0)
            return cli_fail(QN_E_INVALID,
                            "%s: tensor %s: element [%" PRId64 ", %" PRId64
                            "] is NaN or infinite; accepted: finite values, or --allow-nonfinite",
                            shard->map.path, t->name, k->row + i, k->col + at);
    }
    return QN_OK;
}

/** Returns whether a tensor is read through a copy, because its offset in the file does not suit
 *  the dtype. */
static bool needs_copy(const ckpt_shard *shard, const st_tensor *t) {
    return t->dtype->bits == 64 ||
           (uintptr_t)ckpt_data(shard, t) % (uintptr_t)(t->dtype->bits / 8) != 0;
}

static void copy_row(void *to, const st_tensor *t, const char *from, int64_t count) {
    if (t->dtype->bits != 64) {
        memcpy(to, from, (size_t)(count * element_bytes(t)));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, from + 8 * i, 8);
        ((float *)to)[i] = (float)value;
    }
}

static void chunk_load(chunk *k, const ckpt_shard *shard, const st_tensor *t) {
    const int64_t row_bytes = t->shape[1] * t->dtype->bits / 8;
    const char *from =
        (const char *)ckpt_data(shard, t) + k->row * row_bytes + k->col * t->dtype->bits / 8;
    if (!k->narrowed) {
        k->x = from;
        k->x_row = t->shape[1];
        return;
    }
    k->x = k->narrowed;
    k->x_row = k->cols;
    for (int64_t i = 0; i < k->rows; i++)
        copy_row((char *)k->narrowed + i * k->cols * element_bytes(t), t, from + i * row_bytes,
                 k->cols);
}

static qn_status chunk_quantize(const job *j, const st_tensor *t, chunk *k) {
    DLDevice cpu = qn_device_id(j->cpu.device);
    int64_t shape[2] = {k->rows, k->cols}, strides[2] = {k->x_row, 1};
    int64_t blocks[2] = {(k->rows + BLOCK - 1) / BLOCK, (k->cols + BLOCK - 1) / BLOCK};
    DLDataType wide = t->dtype->bits == 64 ? (DLDataType){kDLFloat, 32, 1} : t->dtype->dl;
    DLTensor x = {.data = (void *)k->x,
                  .device = cpu,
                  .ndim = 2,
                  .dtype = wide,
                  .shape = shape,
                  .strides = strides};
    DLTensor q = {
        .data = k->q, .device = cpu, .ndim = 2, .dtype = {kDLFloat8_e4m3fn, 8, 1}, .shape = shape};
    DLTensor scale = {
        .data = k->scale, .device = cpu, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = blocks};
    qn_status st = qn_quantize_fp8(j->cpu.stream, &q, &scale, &x, BLOCK, BLOCK, 1e-10F);
    if (st == QN_OK)
        st = qn_stream_sync(j->cpu.stream);
    return st == QN_OK ? st : cli_fail_lib(st, t->name);
}

static qn_status write_chunk(const job *j, const ckpt_shard *shard, const ckpt_item *item,
                             ckpt_sink *sink, chunk *k) {
    const st_tensor *t = item->in;
    chunk_load(k, shard, t);
    CLI_TRY(check_finite(shard, t, k));
    CLI_TRY(chunk_quantize(j, t, k));
    CLI_TRY(ckpt_put_part(sink, &item->out[0], k->row, k->col, k->q, k->rows, k->cols));
    CLI_TRY(ckpt_put_part(sink, &item->out[1], k->row / BLOCK, k->col / BLOCK, k->scale,
                          (k->rows + BLOCK - 1) / BLOCK, (k->cols + BLOCK - 1) / BLOCK));
    ckpt_progress_part(shard, t, k->row, k->col, k->rows, k->cols);
    return QN_OK;
}

static qn_status write(void *context, const ckpt *, const ckpt_shard *shard, const ckpt_item *item,
                       ckpt_sink *sink) {
    const st_tensor *t = item->in;
    const ckpt_step step = ckpt_step_of(t, BLOCK, MAX_CHUNK_BYTES);
    chunk k = {.q = cli_alloc((size_t)(step.rows * step.cols))};
    k.scale = cli_alloc(
        (size_t)((step.rows + BLOCK - 1) / BLOCK * ((step.cols + BLOCK - 1) / BLOCK)) * 4);
    if (needs_copy(shard, t))
        k.narrowed = cli_alloc((size_t)(step.rows * step.cols) * 4);
    qn_status st = QN_OK;
    for (k.row = 0; st == QN_OK && k.row < t->shape[0]; k.row += step.rows)
        for (k.col = 0; st == QN_OK && k.col < t->shape[1]; k.col += step.cols) {
            k.rows = t->shape[0] - k.row < step.rows ? t->shape[0] - k.row : step.rows;
            k.cols = t->shape[1] - k.col < step.cols ? t->shape[1] - k.col : step.cols;
            st = write_chunk(context, shard, item, sink, &k);
        }
    free(k.q);
    free(k.scale);
    free(k.narrowed);
    return st;
}

// ---- the command

/** Checks that there is no FP8 matrix yet, and adds up how many tensors are selected. */
static qn_status check_shard(const ckpt_shard *shard, int64_t *selected) {
    for (int64_t i = 0; i < shard->header.count; i++) {
        const st_tensor *t = &shard->header.tensors[i];
        if (strncmp(t->dtype->name, "F8_E", 4) == 0 && t->ndim == 2)
            return cli_fail(QN_E_INVALID,
                            "%s: tensor %s is %s: quantised already; accepted: F32, F16, BF16, F64",
                            shard->map.path, t->name, t->dtype->name);
        *selected += cli_select(&selection, t);
    }
    return QN_OK;
}

/** Checks the checkpoint as a whole and the patterns, before any tensor is looked at alone. */
static qn_status check_selection(const ckpt *c) {
    json_t *old = ckpt_quantization(c);
    json_decref(old);
    if (old)
        return cli_fail(QN_E_INVALID, "%s: has a quantization_config: it is quantised already",
                        c->path);
    int64_t selected = 0;
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < c->num_shards; i++)
        st = check_shard(&c->shards[i], &selected);
    if (st == QN_OK)
        st = cli_select_check(&selection);
    if (st == QN_OK && !selected)
        st = cli_fail(
            QN_E_INVALID,
            "%s: nothing to quantise: no 2-D floating-point tensor named *.weight is left by "
            "its name and the patterns",
            c->path);
    return st;
}

static char *report_text(const job *j, int64_t bytes_in, int64_t time_ns) {
    char in[32], out[32], time[32];
    return cli_text(
        "%s: %zu of %zu tensors quantised, %s to %s, %s\n", j->path, json_array_size(j->quantized),
        json_array_size(j->quantized) + (size_t)j->num_copied,
        cli_bytes_text(bytes_in, in, sizeof in), cli_bytes_text(j->bytes_out, out, sizeof out),
        cli_time_text(time_ns, time, sizeof time));
}

static char *report_json(const job *j, int64_t bytes_in, int64_t time_ns) {
    return cli_json_lines(cli_json_pack(
        "{s:o, s:o, s:O, s:O, s:I, s:I, s:I, s:I}", "in", cli_json_text(j->c->path), "out",
        cli_json_text(j->path), "quantized", j->quantized, "modules_to_not_convert", j->kept,
        "tensors_copied", (json_int_t)j->num_copied, "bytes_in", (json_int_t)bytes_in, "bytes_out",
        (json_int_t)j->bytes_out, "time_ns", (json_int_t)time_ns));
}

/** Makes the report, which is printed once the result exists. */
static qn_status finish(void *context) {
    job *j = context;
    const int64_t time_ns = cli_now_ns() - j->begun_ns;
    int64_t bytes_in = 0;
    for (int i = 0; i < j->c->num_shards; i++)
        bytes_in += j->c->shards[i].map.bytes - j->c->shards[i].header.data_offset;
    j->report = (as_json ? report_json : report_text)(j, bytes_in, time_ns);
    return QN_OK;
}

static int run(int, char **arguments) {
    ckpt c = {0};
    job j = {.quantized = json_array(),
             .kept = json_array(),
             .c = &c,
             .path = arguments[1],
             .begun_ns = cli_now_ns()};
    ckpt_rule rule = {&j, plan, write, finish, quantization};
    qn_status st;
    CLI_TRY_OUT(ckpt_open(&c, arguments[0]));
    CLI_TRY_OUT(check_selection(&c));
    CLI_TRY_OUT(cli_device_open(&j.cpu, "cpu"));
    CLI_TRY_OUT(ckpt_rewrite(&c, j.path, force, &rule, &j.bytes_out));
    CLI_TRY_OUT(cli_print(j.report));
out:
    cli_device_close(&j.cpu);
    ckpt_close(&c);
    json_decref(j.quantized);
    json_decref(j.kept);
    free(j.report);
    return cli_finish("quantize", st);
}

const cli_command cli_quantize = {
    .name = "quantize",
    .arguments = "IN OUT",
    .summary = "Turn a checkpoint's linear weights into block-scaled FP8",
    .details =
        "IN and OUT are safetensors files, or folders with model.safetensors or with shards\n"
        "and their model.safetensors.index.json. Every 2-D floating-point tensor X.weight\n"
        "becomes X.weight (F8_E4M3) and X.weight_scale_inv (F32, one for each block of 128\n"
        "x 128), save where its name contains 'embed', 'norm', 'lm_head', 'router' or\n"
        "'mlp.gate.'; all other tensors are copied. config.json gains quantization_config,\n"
        "whose modules_to_not_convert lists the weights that were kept; a lone file has\n"
        "quantization_config in its metadata. A PATTERN matches a part of a name or, with *\n"
        "? or [, all of it.",
    .options = options,
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run};
