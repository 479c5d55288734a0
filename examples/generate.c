// SPDX-License-Identifier: Apache-2.0
// Continues a prompt greedily by a Llama-shaped checkpoint: token ids in, token ids out, on any
// device. Run it, with quern and jansson installed:
//   cc -std=c11 generate.c $(pkg-config --cflags --libs quern jansson) -lm -o generate &&
//   ./generate FOLDER cpu 16 1 15043 3186
// FOLDER holds config.json and model.safetensors, or the shards that model.safetensors.index.json
// names, in bf16, f16 or f32. Generation ends after the number of tokens asked for, or with the
// checkpoint's end-of-text token, which is printed too.
#define _GNU_SOURCE
#include "checkpoint.h"

// ---- the model

typedef struct layer {
    DLTensor q, k, v, o, gate, up, down, norm, mlp_norm;
    void *k_cache, *v_cache; // [room, kv_heads, head_dim]
} layer;

typedef struct model {
    int64_t hidden, inner, layers, heads, kv_heads, head_dim, vocabulary;
    float eps;
    qn_rope_options rope;
    int is_llama31;
    json_t *ends; // ids that end a text
    qn_device *device;
    qn_stream *stream;
    DLDataType dtype;
    int64_t room; // tokens in the caches
    layer *layer;
    DLTensor embedding; // in its file
    DLTensor norm, head;
    void *x, *normed, *q_rows, *k_rows, *o_rows, *gates, *acts, *logits, *positions;
} model;

/** Reads how positions turn queries and keys; older files have it in two places. */
static void read_rope(model *m, const json_t *config) {
    const json_t *p = json_object_get(config, "rope_parameters");
    const json_t *scaling = p ? p : json_object_get(config, "rope_scaling");
    const json_t *theta = json_object_get(p ? p : config, "rope_theta");
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    m->rope = (qn_rope_options){.struct_size = sizeof m->rope};
    m->rope.rope_theta = json_is_number(theta) ? (float)json_number_value(theta) : 1e4F;
    if (!type || strcmp(type, "default") == 0)
        return;
    if (strcmp(type, "llama3") != 0)
        fail("config.json: rope_type is %s; accepted: default, llama3", type);
    m->is_llama31 = 1;
    m->rope.rope_scale = (float)json_number_value(json_object_get(scaling, "factor"));
    m->rope.low_freq_factor = (float)json_number_value(json_object_get(scaling, "low_freq_factor"));
    m->rope.high_freq_factor =
        (float)json_number_value(json_object_get(scaling, "high_freq_factor"));
    m->rope.old_context_len = integer(scaling, "original_max_position_embeddings", 0);
}

static void read_config(model *m, const json_t *config) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *act = json_string_value(json_object_get(config, "hidden_act"));
    if (!type || strcmp(type, "llama") != 0)
        fail("config.json: model_type is %s; accepted: llama", type ? type : "missing");
    if (act && strcmp(act, "silu") != 0)
        fail("config.json: hidden_act is %s; accepted: silu", act);
    if (json_is_true(json_object_get(config, "attention_bias")) ||
        json_is_true(json_object_get(config, "mlp_bias")))
        fail("config.json: attention_bias or mlp_bias is true; accepted: false");
    m->hidden = integer(config, "hidden_size", 0);
    m->inner = integer(config, "intermediate_size", 0);
    m->layers = integer(config, "num_hidden_layers", 0);
    m->heads = integer(config, "num_attention_heads", 0);
    m->kv_heads = integer(config, "num_key_value_heads", m->heads);
    m->head_dim = integer(config, "head_dim", m->hidden / m->heads);
    m->vocabulary = integer(config, "vocab_size", 0);
    m->eps = (float)json_number_value(json_object_get(config, "rms_norm_eps"));
    m->ends = json_object_get(config, "eos_token_id");
    read_rope(m, config);
}

static void *allocate(model *m, int64_t bytes) {
    void *memory;
    check(qn_malloc(m->device, &memory, bytes));
    return memory;
}

static DLTensor to_device(model *m, DLTensor host) {
    DLTensor t = host;
    int64_t count = 1;
    for (int i = 0; i < host.ndim; i++)
        count *= host.shape[i];
    if (!is_dtype(&host, m->dtype) || host.dtype.bits == 8)
        fail("the checkpoint's tensors are not all of one dtype of BF16, F16 and F32");
    t.device = qn_device_id(m->device);
    t.data = allocate(m, count * host.dtype.bits / 8);
    check(qn_copy(m->stream, &t, &host));
    return t;
}

static DLTensor weight(model *m, checkpoint *c, int64_t l, const char *name, int64_t rows,
                       int64_t columns) {
    char full[256];
    snprintf(full, sizeof full, "model.layers.%lld.%s.weight", (long long)l, name);
    return to_device(m, find(c, full, rows, columns));
}

static void load_layer(model *m, checkpoint *c, int64_t l) {
    layer *to = &m->layer[l];
    const int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    const int64_t element = m->dtype.bits / 8;
    *to = (layer){.q = weight(m, c, l, "self_attn.q_proj", q, m->hidden),
                  .k = weight(m, c, l, "self_attn.k_proj", kv, m->hidden),
                  .v = weight(m, c, l, "self_attn.v_proj", kv, m->hidden),
                  .o = weight(m, c, l, "self_attn.o_proj", m->hidden, q),
                  .gate = weight(m, c, l, "mlp.gate_proj", m->inner, m->hidden),
                  .up = weight(m, c, l, "mlp.up_proj", m->inner, m->hidden),
                  .down = weight(m, c, l, "mlp.down_proj", m->hidden, m->inner),
                  .norm = weight(m, c, l, "input_layernorm", 0, m->hidden),
                  .mlp_norm = weight(m, c, l, "post_attention_layernorm", 0, m->hidden),
                  .k_cache = allocate(m, m->room * kv * element),
                  .v_cache = allocate(m, m->room * kv * element)};
}

/** Loads the model, with room for what a prompt of `tokens` tokens needs at once. */
static void load(model *m, checkpoint *c, const json_t *config, int64_t tokens) {
    const int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    m->embedding = find(c, "model.embed_tokens.weight", m->vocabulary, m->hidden);
    m->dtype = m->embedding.dtype;
    m->norm = to_device(m, find(c, "model.norm.weight", 0, m->hidden));
    const int is_tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
    m->head =
        to_device(m, is_tied ? m->embedding : find(c, "lm_head.weight", m->vocabulary, m->hidden));
    m->layer = calloc((size_t)m->layers, sizeof *m->layer);
    if (!m->layer)
        fail("out of memory");
    for (int64_t l = 0; l < m->layers; l++)
        load_layer(m, c, l);
    const int64_t row = tokens * m->dtype.bits / 8;
    m->x = allocate(m, row * m->hidden);
    m->normed = allocate(m, row * m->hidden);
    m->q_rows = allocate(m, row * q);
    m->k_rows = allocate(m, row * kv);
    m->o_rows = allocate(m, row * q);
    m->gates = allocate(m, row * 2 * m->inner);
    m->acts = allocate(m, row * m->inner);
    m->logits = allocate(m, (int64_t)sizeof(float) * m->vocabulary);
    m->positions = allocate(m, (int64_t)sizeof(int32_t) * tokens);
}

// ---- a step

/** A tensor on the model's device, of the shape that stands in `shape`. */
static DLTensor rows_of(const model *m, void *data, int ndim, int64_t *shape) {
    return (DLTensor){.data = data,
                      .device = qn_device_id(m->device),
                      .ndim = ndim,
                      .dtype = m->dtype,
                      .shape = shape};
}

/** Computes d = a b^T, and adds c if it is not NULL. */
static void multiply(model *m, DLTensor *d, const DLTensor *a, const DLTensor *b,
                     const DLTensor *c) {
    check(qn_gemm(
        m->stream,
        &(qn_gemm_args){.struct_size = sizeof(qn_gemm_args), .d = d, .a = a, .b = b, .c = c}));
}

/** Attends to the n tokens from position `at` on, whose keys and values go to the caches. */
static void attend(model *m, layer *l, const DLTensor *normed, DLTensor *o, int64_t n, int64_t at) {
    const int64_t kv = m->kv_heads * m->head_dim, skipped = at * kv * m->dtype.bits / 8;
    int64_t flat_q[] = {n, m->heads * m->head_dim}, flat_kv[] = {n, kv};
    DLTensor q = rows_of(m, m->q_rows, 2, flat_q), k = rows_of(m, m->k_rows, 2, flat_kv);
    DLTensor v = rows_of(m, (char *)l->v_cache + skipped, 2, flat_kv);
    multiply(m, &q, normed, &l->q, NULL);
    multiply(m, &k, normed, &l->k, NULL);
    multiply(m, &v, normed, &l->v, NULL);

    int64_t by_head[] = {1, n, m->heads, m->head_dim}, by_kv[] = {n, m->kv_heads, m->head_dim};
    int64_t cached[] = {1, at + n, m->kv_heads, m->head_dim};
    DLTensor q_heads = rows_of(m, m->q_rows, 3, by_head + 1);
    DLTensor k_heads = rows_of(m, m->k_rows, 3, by_kv);
    DLTensor k_new = rows_of(m, (char *)l->k_cache + skipped, 3, by_kv), positions = q_heads;
    positions.data = m->positions;
    positions.ndim = 1;
    positions.dtype = (DLDataType){kDLInt, 32, 1};
    check((m->is_llama31 ? qn_apply_llama31_rope_pos_ids : qn_apply_rope_pos_ids)(
        m->stream, &q_heads, &k_new, &q_heads, &k_heads, &positions, &m->rope));

    DLTensor queries = rows_of(m, m->q_rows, 4, by_head), result = rows_of(m, o->data, 4, by_head);
    DLTensor keys = rows_of(m, l->k_cache, 4, cached), values = rows_of(m, l->v_cache, 4, cached);
    check(qn_attention(m->stream, &(qn_attention_args){.struct_size = sizeof(qn_attention_args),
                                                       .o = &result,
                                                       .q = &queries,
                                                       .k = &keys,
                                                       .v = &values,
                                                       .layout = QN_NHD,
                                                       .is_causal = 1}));
}

static void run_layer(model *m, layer *l, DLTensor *x, int64_t n, int64_t at) {
    int64_t of_hidden[] = {n, m->hidden}, of_heads[] = {n, m->heads * m->head_dim};
    int64_t of_inner[] = {n, m->inner}, of_both[] = {n, 2 * m->inner};
    int64_t strides[] = {2 * m->inner, 1};
    DLTensor normed = rows_of(m, m->normed, 2, of_hidden), o = rows_of(m, m->o_rows, 2, of_heads);
    check(qn_rmsnorm(m->stream, &normed, x, &l->norm, m->eps));
    attend(m, l, &normed, &o, n, at);
    multiply(m, x, &o, &l->o, x);

    DLTensor both = rows_of(m, m->gates, 2, of_both), acts = rows_of(m, m->acts, 2, of_inner);
    DLTensor gate = rows_of(m, m->gates, 2, of_inner), up = gate; // the halves of each row of both
    gate.strides = up.strides = strides;
    up.byte_offset = (uint64_t)m->inner * m->dtype.bits / 8;
    check(qn_rmsnorm(m->stream, &normed, x, &l->mlp_norm, m->eps));
    multiply(m, &gate, &normed, &l->gate, NULL);
    multiply(m, &up, &normed, &l->up, NULL);
    check(qn_silu_and_mul(m->stream, &acts, &both));
    multiply(m, x, &acts, &l->down, x);
}

/** Sends the tokens' rows of the embedding, and their positions. */
static void embed(model *m, DLTensor *x, const int32_t *ids, int64_t n, int64_t at) {
    const size_t bytes = (size_t)m->hidden * m->dtype.bits / 8;
    char *rows = allocate_host((size_t)n * bytes);
    int32_t *places = allocate_host((size_t)n * sizeof *places);
    for (int64_t t = 0; t < n; t++) {
        memcpy(rows + (size_t)t * bytes, (char *)m->embedding.data + (size_t)ids[t] * bytes, bytes);
        places[t] = (int32_t)(at + t);
    }
    DLTensor host = *x, numbers = *x, positions;
    host.data = rows;
    host.device = (DLDevice){kDLCPU, 0};
    numbers.ndim = 1;
    numbers.dtype = (DLDataType){kDLInt, 32, 1};
    positions = numbers;
    positions.data = m->positions;
    numbers.data = places;
    numbers.device = host.device;
    check(qn_copy(m->stream, x, &host));
    check(qn_copy(m->stream, &positions, &numbers));
    free(rows);
    free(places);
}

/** Runs the model over n tokens from position `at` on; returns the likeliest token behind them. */
static int32_t step(model *m, const int32_t *ids, int64_t n, int64_t at) {
    int64_t of_hidden[] = {n, m->hidden}, last[] = {1, m->hidden},
            of_vocabulary[] = {1, m->vocabulary};
    DLTensor x = rows_of(m, m->x, 2, of_hidden), row = rows_of(m, m->x, 2, last);
    DLTensor normed = rows_of(m, m->normed, 2, last);
    DLTensor logits = rows_of(m, m->logits, 2, of_vocabulary), host = logits;
    embed(m, &x, ids, n, at);
    for (int64_t l = 0; l < m->layers; l++)
        run_layer(m, &m->layer[l], &x, n, at);
    row.byte_offset = (uint64_t)((n - 1) * m->hidden) * m->dtype.bits / 8;
    check(qn_rmsnorm(m->stream, &normed, &row, &m->norm, m->eps));
    logits.dtype = host.dtype = (DLDataType){kDLFloat, 32, 1};
    multiply(m, &logits, &normed, &m->head, NULL);

    float *values = allocate_host((size_t)m->vocabulary * sizeof *values);
    host.data = values;
    host.device = (DLDevice){kDLCPU, 0};
    check(qn_copy(m->stream, &host, &logits));
    int32_t best = 0;
    for (int32_t i = 1; i < m->vocabulary; i++)
        if (values[i] > values[best])
            best = i;
    free(values);
    return best;
}

static int is_end(const model *m, int32_t id) {
    size_t i;
    const json_t *end;
    json_array_foreach(m->ends, i, end) if (json_integer_value(end) == id) return 1;
    return json_is_integer(m->ends) && json_integer_value(m->ends) == id;
}

// ---- the command

static int64_t number(const char *text, const char *what, int64_t least, int64_t most) {
    char *rest;
    const long long value = strtoll(text, &rest, 10);
    if (!*text || *rest || value < least || value > most)
        fail("%s is %s; accepted: %lld to %lld", what, text, (long long)least, (long long)most);
    return value;
}

static void generate(model *m, int32_t *ids, int64_t prompt) {
    int64_t done = 0;
    for (int64_t count = prompt; count < m->room; count++) {
        ids[count] = step(m, ids + done, count - done, done);
        done = count;
        printf("%d%s", ids[count], count + 1 < m->room && !is_end(m, ids[count]) ? " " : "\n");
        fflush(stdout);
        if (is_end(m, ids[count]))
            return;
    }
}

static void unload(model *m) {
    void *const rows[] = {m->x,    m->normed, m->q_rows,    m->k_rows,    m->o_rows,   m->gates,
                          m->acts, m->logits, m->positions, m->norm.data, m->head.data};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        qn_free(m->device, rows[i]);
    for (int64_t l = 0; l < m->layers; l++) {
        layer *of = &m->layer[l];
        void *const parts[] = {of->q.data,        of->k.data,  of->v.data,    of->o.data,
                               of->gate.data,     of->up.data, of->down.data, of->norm.data,
                               of->mlp_norm.data, of->k_cache, of->v_cache};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            qn_free(m->device, parts[i]);
    }
    qn_stream_destroy(m->stream);
    qn_device_close(m->device);
}

int main(int argc, char **argv) {
    static checkpoint c;
    model m = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: generate FOLDER DEVICE COUNT ID...\n");
        return 2;
    }
    open_checkpoint(&c, argv[1]);
    json_t *config = read_json(c.folder, "config.json", 1);
    read_config(&m, config);
    const int64_t prompt = argc - 4, count = number(argv[3], "COUNT", 1, 1 << 20);
    m.room = prompt + count;
    int32_t *ids = allocate_host((size_t)m.room * sizeof *ids);
    for (int64_t i = 0; i < prompt; i++)
        ids[i] = (int32_t)number(argv[4 + i], "ID", 0, m.vocabulary - 1);
    check(qn_device_open(&m.device, argv[2]));
    check(qn_stream_create(&m.stream, m.device));
    load(&m, &c, config, prompt);
    generate(&m, ids, prompt);
    unload(&m);
    close_checkpoint(&c);
    json_decref(config);
    free(ids);
    return 0;
}
