// SPDX-License-Identifier: Apache-2.0
// Embeds sentences by a BERT encoder whose weights are FP8, on any devices, beside the unquantised
// model in double precision. Run it, with quern and jansson installed:
//   cc -O2 embed.c $(pkg-config --cflags --libs quern jansson) -lm -o embed &&
//   quern quantize MODEL MODEL-fp8 &&
//   ./embed MODEL MODEL-fp8 cpu,sim:gfx942 "A cat sleeps." "A kitten naps." "The train is late."
// MODEL is a folder of sentence-transformers, such as all-MiniLM-L6-v2: config.json, tokenizer.json
// and model.safetensors or shards. --json before the folders prints token ids and embeddings.
//
// The exit status is 1 if on a device a similarity or an embedding is further from the unquantised
// model's than FP8 explains, or if the nearest sentence to one is another. What FP8 explains is
// measured: the model in double precision runs again with random errors in each weight and each
// input of a linear layer, as large as rounding to FP8 may make them. Accepted are six standard
// deviations of what these errors do: of a similarity, whose errors are near 0 on average, and of
// an embedding's distance, beyond the mean distance. Normal errors go beyond six deviations once in
// 500 million times. What is computed in f32 and f16 rounds to steps at most 2^-7 of FP8's.
#define _GNU_SOURCE
#include "bert.h"
#include "wordpiece.h"

#include <time.h>

enum { TRIALS = 4, DEVIATIONS = 6, MAX_RUNS = 9 };

static const DLDataType F32 = {kDLFloat, 32, 1}, F16 = {kDLFloat, 16, 1}, U8 = {kDLUInt, 8, 1};
static const float SMALLEST = 1e-10F; // amax of a group that is quantised

// ---- tensors on a device

/** A tensor's memory on the device, and its shape. */
typedef struct block {
    struct block *next;
    void *data;
    int64_t shape[3];
} block;

typedef struct linear {
    DLTensor weight, scale, bias;
    int is_packed;
} linear;

typedef struct layer {
    linear linears[LINEARS];
    DLTensor norm[2], norm_bias[2]; // behind attention, behind the other half
} layer;

typedef struct run {
    const bert *m;
    const batch *b;
    qn_device *device;
    qn_stream *stream;
    block *blocks;
    DLDataType fp8; // the kind that the device multiplies fastest
    layer *layers;
    DLTensor x, q, q_scale, rows[3], o, both, acts, acts_scale; // rows: queries, keys, values
    void *plan;                                                 // in host memory
    int64_t plan_bytes;
    DLTensor schedule, workspace;
    const char *kernel; // the last product's
} run;

/** Makes a tensor [rows, columns] on the device, or [columns] if rows is 0. */
static DLTensor make(run *r, DLDataType dtype, int64_t rows, int64_t columns) {
    block *b = allocate_host(sizeof *b);
    *b = (block){.next = r->blocks, .shape = {rows ? rows : columns, columns}};
    r->blocks = b;
    check(qn_malloc(r->device, &b->data, (rows ? rows : 1) * columns * dtype.bits / 8));
    return (DLTensor){.data = b->data,
                      .device = qn_device_id(r->device),
                      .ndim = rows ? 2 : 1,
                      .dtype = dtype,
                      .shape = b->shape};
}

static DLTensor send(run *r, DLTensor host, int64_t rows, int64_t columns) {
    DLTensor t = make(r, host.dtype, rows, columns);
    host.device = (DLDevice){kDLCPU, 0};
    host.ndim = t.ndim;
    host.shape = t.shape;
    check(qn_copy(r->stream, &t, &host));
    return t;
}

/** Sends numbers as f32, and frees them. */
static DLTensor send_numbers(run *r, double *values, int64_t rows, int64_t columns) {
    const int64_t count = (rows ? rows : 1) * columns;
    float *narrow = allocate_host((size_t)count * sizeof *narrow);
    for (int64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    const DLTensor t = send(r, (DLTensor){.data = narrow, .dtype = F32}, rows, columns);
    free(narrow);
    free(values);
    return t;
}

static double *repeat(double value, int64_t count) {
    double *values = allocate_host((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = value;
    return values;
}

static int64_t blocks_of(int64_t count) {
    return (count + BLOCK - 1) / BLOCK;
}

// ---- loading

/** Puts the weight into the order that the device's fastest kernel reads, if it has one. */
static void pack(run *r, linear *to) {
    int64_t shape[3];
    DLDataType dtype;
    const qn_status status = qn_gemm_packed_shape(r->device, &to->weight, shape, &dtype);
    if (status == QN_E_UNSUPPORTED)
        return;
    check(status);
    DLTensor packed = make(r, dtype, shape[1], shape[2]); // of one group
    DLTensor scale = make(r, F32, to->scale.shape[0], to->scale.shape[1]);
    packed.ndim = 3;
    memcpy(packed.shape, shape, sizeof shape);
    check(qn_gemm_pack(r->stream, &packed, &scale, &to->weight, &to->scale));
    *to = (linear){.weight = packed, .scale = scale, .bias = to->bias, .is_packed = 1};
    r->fp8 = dtype;
}

static void load_linear(run *r, checkpoint *c, linear *to, const linear_shape *s) {
    char name[300];
    snprintf(name, sizeof name, "%s.weight", s->name);
    const DLTensor weight = find(c, name, s->n, s->k);
    if (weight.dtype.bits != 8)
        fail("%s: %s is not FP8; quern quantize makes it so", c->folder, name);
    snprintf(name, sizeof name, "%s.weight_scale_inv", s->name);
    const DLTensor scale = find(c, name, blocks_of(s->n), blocks_of(s->k));
    *to = (linear){.weight = send(r, weight, s->n, s->k),
                   .scale = send(r, scale, blocks_of(s->n), blocks_of(s->k)),
                   .bias = send_numbers(r, part(c, s->name, "bias", 0, s->n), 0, s->n)};
    pack(r, to);
}

static void load_layer(run *r, checkpoint *c, int64_t l) {
    for (int i = 0; i < LINEARS; i++) {
        const linear_shape s = shape_of(r->m, l, i);
        load_linear(r, c, &r->layers[l].linears[i], &s);
    }
    for (int i = 0; i < 2; i++) {
        const int64_t h = r->m->hidden;
        char name[256];
        norm_name(name, l, i ? DOWN : OUTPUT);
        r->layers[l].norm[i] = send_numbers(r, part(c, name, "weight", 0, h), 0, h);
        r->layers[l].norm_bias[i] = send_numbers(r, part(c, name, "bias", 0, h), 0, h);
    }
}

/** Plans attention in which each token sees the tokens of its own sentence. */
static void plan_attention(run *r) {
    int64_t workspace = 0;
    const qn_attention_plan_args args = {.struct_size = sizeof args,
                                         .batches = r->b->sentences,
                                         .qo_indptr = r->b->starts,
                                         .kv_indptr = r->b->starts,
                                         .num_qo_heads = r->m->heads,
                                         .num_kv_heads = r->m->heads,
                                         .head_dim_vo = r->m->hidden / r->m->heads};
    check(qn_attention_plan(NULL, &r->plan_bytes, &workspace, &args));
    r->plan = allocate_host((size_t)r->plan_bytes);
    check(qn_attention_plan(r->plan, &r->plan_bytes, &workspace, &args));
    r->schedule = send(r, (DLTensor){.data = r->plan, .dtype = U8}, 0, r->plan_bytes);
    r->workspace = make(r, U8, 0, workspace);
}

static void load(run *r, checkpoint *c) {
    const int64_t h = r->m->hidden, inner = r->m->inner, tokens = r->b->starts[r->b->sentences];
    r->fp8 = (DLDataType){kDLFloat8_e4m3fn, 8, 1};
    r->layers = allocate_host((size_t)r->m->layers * sizeof *r->layers);
    for (int64_t l = 0; l < r->m->layers; l++)
        load_layer(r, c, l);
    r->q = make(r, r->fp8, tokens, h);
    r->q_scale = make(r, F32, tokens, blocks_of(h));
    for (int i = QUERY; i <= VALUE; i++)
        r->rows[i] = make(r, F16, tokens, h);
    r->o = make(r, F16, tokens, h);
    r->both = send_numbers(r, repeat(1, tokens * 2 * inner), tokens, 2 * inner);
    r->acts = make(r, r->fp8, tokens, inner);
    r->acts_scale = make(r, F32, tokens, blocks_of(inner));
    plan_attention(r);
}

// ---- running

/** Computes d = x w^T + bias, and adds d's old value if it stays. */
static void multiply(run *r, const linear *l, DLTensor *d, const DLTensor *x, const DLTensor *scale,
                     int d_stays) {
    check(qn_gemm(r->stream, &(qn_gemm_args){.struct_size = sizeof(qn_gemm_args),
                                             .d = d,
                                             .a = x,
                                             .b = &l->weight,
                                             .c = d_stays ? d : NULL,
                                             .scale_a = scale,
                                             .scale_b = &l->scale,
                                             .b_is_packed = l->is_packed,
                                             .bias = &l->bias}));
    r->kernel = qn_last_kernel();
}

static void quantise(run *r, const DLTensor *x) {
    check(qn_quantize_groups(r->stream, &r->q, &r->q_scale, x, BLOCK, 0, SMALLEST));
}

static void attend(run *r) {
    int64_t shape[] = {r->x.shape[0], r->m->heads, r->m->hidden / r->m->heads};
    DLTensor by_head[] = {r->rows[QUERY], r->rows[KEY], r->rows[VALUE], r->o};
    for (int i = 0; i < 4; i++) {
        by_head[i].ndim = 3;
        by_head[i].shape = shape;
    }
    check(qn_attention(
        r->stream, &(qn_attention_args){.struct_size = sizeof(qn_attention_args),
                                        .o = &by_head[3],
                                        .q = &by_head[0],
                                        .k = &by_head[1],
                                        .v = &by_head[2],
                                        .layout = QN_NHD,
                                        .plan = r->plan,
                                        .plan_bytes = r->plan_bytes,
                                        .schedule = &r->schedule,
                                        .workspace = r->workspace.data ? &r->workspace : NULL}));
}

static void run_layer(run *r, const layer *l) {
    const int64_t inner = r->m->inner;
    const float eps = (float)r->m->eps;
    int64_t shape[] = {r->x.shape[0], inner}, strides[] = {2 * inner, 1};
    DLTensor gate = r->both; // x GELU's; the other half of each row stays 1
    gate.shape = shape;
    gate.strides = strides;

    quantise(r, &r->x);
    for (int i = QUERY; i <= VALUE; i++)
        multiply(r, &l->linears[i], &r->rows[i], &r->q, &r->q_scale, 0);
    attend(r);
    quantise(r, &r->o);
    multiply(r, &l->linears[OUTPUT], &r->x, &r->q, &r->q_scale, 1);
    check(qn_layernorm(r->stream, &r->x, &r->x, &l->norm[0], &l->norm_bias[0], eps));

    quantise(r, &r->x);
    multiply(r, &l->linears[UP], &gate, &r->q, &r->q_scale, 0);
    check(qn_act_and_mul_dynamic_quant(r->stream, &r->acts, &r->acts_scale, &r->both, QN_GELU, 0,
                                       SMALLEST));
    multiply(r, &l->linears[DOWN], &r->x, &r->acts, &r->acts_scale, 1);
    check(qn_layernorm(r->stream, &r->x, &r->x, &l->norm[1], &l->norm_bias[1], eps));
}

/** Returns the means of each sentence's tokens, of length 1, from the device. */
static double *pool(run *r) {
    const int64_t h = r->m->hidden, sentences = r->b->sentences, tokens = r->x.shape[0];
    double *means = repeat(0, sentences * tokens);
    for (int64_t s = 0; s < sentences; s++)
        for (int64_t t = r->b->starts[s]; t < r->b->starts[s + 1]; t++)
            means[s * tokens + t] = 1. / (r->b->starts[s + 1] - r->b->starts[s]);
    const DLTensor a = send_numbers(r, means, sentences, tokens);
    const DLTensor length = send_numbers(r, repeat(1 / sqrt((double)h), h), 0, h);
    int64_t shape[] = {h, tokens}, strides[] = {1, h};
    DLTensor across = r->x, out = make(r, F32, sentences, h);
    across.shape = shape;
    across.strides = strides;
    check(qn_gemm(
        r->stream,
        &(qn_gemm_args){.struct_size = sizeof(qn_gemm_args), .d = &out, .a = &a, .b = &across}));
    check(qn_rmsnorm(r->stream, &out, &out, &length, 0)); // a root mean square of 1 / sqrt(h)

    float *narrow = allocate_host((size_t)(sentences * h) * sizeof *narrow);
    double *values = allocate_host((size_t)(sentences * h) * sizeof *values);
    DLTensor host = out;
    host.device = (DLDevice){kDLCPU, 0};
    host.data = narrow;
    check(qn_copy(r->stream, &host, &out));
    for (int64_t i = 0; i < sentences * h; i++)
        values[i] = narrow[i];
    free(narrow);
    return values;
}

static void unload(run *r) {
    for (block *b = r->blocks, *next; b; b = next) {
        next = b->next;
        qn_free(r->device, b->data);
        free(b);
    }
    free(r->layers);
    free(r->plan);
    qn_stream_destroy(r->stream);
    qn_device_close(r->device);
}

/** Returns the embeddings [sentences, hidden] that a device computes of FP8 weights. */
static double *embed(const bert *m, checkpoint *c, const batch *b, const char *device,
                     const char **kernel) {
    run r = {.m = m, .b = b};
    const int64_t h = m->hidden;
    check(qn_device_open(&r.device, device));
    check(qn_stream_create(&r.stream, r.device));
    load(&r, c);
    r.x = send_numbers(&r, sum_embeddings(m, c, b), b->starts[b->sentences], h);
    const DLTensor norm = send_numbers(&r, part(c, "embeddings.LayerNorm", "weight", 0, h), 0, h);
    const DLTensor bias = send_numbers(&r, part(c, "embeddings.LayerNorm", "bias", 0, h), 0, h);
    check(qn_layernorm(r.stream, &r.x, &r.x, &norm, &bias, (float)m->eps));
    for (int64_t l = 0; l < m->layers; l++)
        run_layer(&r, &r.layers[l]);
    double *embeddings = pool(&r);
    *kernel = r.kernel;
    unload(&r);
    return embeddings;
}

// ---- the report

/** What one run says: the unquantised model's, or a device's. */
typedef struct column {
    const char *name, *kernel;
    double *embeddings, *similarities, seconds;
} column;

typedef struct report {
    const bert *m;
    const batch *b;
    char **sentences;
    column columns[MAX_RUNS]; // the first is the unquantised model
    int num_columns;
    double accepted, accepted_distance;
} report;

/** Returns the cosines of all pairs, [sentences, sentences]. */
static double *compare(const double *embeddings, int64_t sentences, int64_t h) {
    double *similarities = repeat(0, sentences * sentences);
    for (int64_t i = 0; i < sentences; i++)
        for (int64_t j = 0; j < sentences; j++)
            for (int64_t e = 0; e < h; e++)
                similarities[i * sentences + j] += embeddings[i * h + e] * embeddings[j * h + e];
    return similarities;
}

static int64_t nearest(const report *r, const column *c, int64_t i) {
    const int64_t n = r->b->sentences;
    int64_t best = i ? 0 : 1;
    for (int64_t j = 0; j < n; j++)
        if (j != i && c->similarities[i * n + j] > c->similarities[i * n + best])
            best = j;
    return best;
}

static double distance(const double *a, const double *b, int64_t h) {
    double squares = 0;
    for (int64_t i = 0; i < h; i++)
        squares += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(squares);
}

/** Finds how far random errors of FP8's size move similarities and embeddings. */
static void measure_noise(report *r, checkpoint *original) {
    const int64_t n = r->b->sentences, h = r->m->hidden;
    const column *exact = &r->columns[0];
    double squares = 0, distances = 0, distance_squares = 0;
    uint64_t state = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        double *embeddings = embed_exactly(r->m, original, r->b, &state);
        double *similarities = compare(embeddings, n, h);
        for (int64_t i = 0; i < n * n; i++)
            squares += pow(similarities[i] - exact->similarities[i], 2);
        for (int64_t i = 0; i < n; i++) {
            const double far = distance(embeddings + i * h, exact->embeddings + i * h, h);
            distances += far / (double)(TRIALS * n);
            distance_squares += far * far / (double)(TRIALS * n);
        }
        free(embeddings);
        free(similarities);
    }
    r->accepted = DEVIATIONS * sqrt(squares / (double)(TRIALS * n * (n - 1))); // each pair twice
    r->accepted_distance =
        distances + DEVIATIONS * sqrt(fmax(distance_squares - distances * distances, 0));
}

static double larger(double a, double b) { // a NaN stays
    return isnan(a) || b <= a ? a : b;
}

static double most_difference(const report *r, const column *c) {
    double most = 0;
    for (int64_t i = 0; i < r->b->sentences * r->b->sentences; i++)
        most = larger(most, fabs(c->similarities[i] - r->columns[0].similarities[i]));
    return most;
}

static double most_distance(const report *r, const column *c) {
    const int64_t h = r->m->hidden;
    double most = 0;
    for (int64_t i = 0; i < r->b->sentences; i++)
        most = larger(most, distance(c->embeddings + i * h, r->columns[0].embeddings + i * h, h));
    return most;
}

/** Begins a table that has a column for each run. */
static void print_head(const report *r, const char *title) {
    printf("\n%s", title);
    for (int k = 0; k < r->num_columns; k++)
        printf("%16s", r->columns[k].name);
}

static void print_similarities(const report *r) {
    const int64_t n = r->b->sentences;
    print_head(r, "similarity");
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) {
            printf("\n%4lld%4lld  ", (long long)i + 1, (long long)j + 1);
            for (int k = 0; k < r->num_columns; k++)
                printf("%16.4f", r->columns[k].similarities[i * n + j]);
        }
    printf("\noff by at most            ");
    for (int k = 1; k < r->num_columns; k++)
        printf("%16.4f", most_difference(r, &r->columns[k]));
    printf("  accepted: %.4f\nembeddings apart          ", r->accepted);
    for (int k = 1; k < r->num_columns; k++)
        printf("%16.4f", most_distance(r, &r->columns[k]));
    printf("  accepted: %.4f\n", r->accepted_distance);
}

static void print_report(const report *r) {
    for (int64_t i = 0; i < r->b->sentences; i++)
        printf("%4lld  %s\n", (long long)i + 1, r->sentences[i]);
    print_similarities(r);
    print_head(r, "nearest to");
    for (int64_t i = 0; i < r->b->sentences; i++) {
        printf("\n%4lld      ", (long long)i + 1);
        for (int k = 0; k < r->num_columns; k++)
            printf("%16lld", (long long)nearest(r, &r->columns[k], i) + 1);
        printf("  %s", r->sentences[nearest(r, r->columns, i)]);
    }
    printf("\n\n");
    for (const column *c = r->columns; c < r->columns + r->num_columns; c++)
        printf("%s: %.1f s%s%s\n", c->name, c->seconds, c->kernel ? ", last product by " : "",
               c->kernel ? c->kernel : "");
}

static void print_json(const report *r) {
    const int64_t n = r->b->sentences, h = r->m->hidden;
    json_t *tokens = json_array(), *runs = json_array();
    for (int64_t s = 0; s < n; s++) {
        json_t *ids = json_array();
        for (int64_t t = r->b->starts[s]; t < r->b->starts[s + 1]; t++)
            json_array_append_new(ids, json_integer(r->b->ids[t]));
        json_array_append_new(tokens, ids);
    }
    for (int k = 0; k < r->num_columns; k++) {
        json_t *rows = json_array();
        for (int64_t i = 0; i < n * h; i++)
            if (json_array_append_new(rows, json_real(r->columns[k].embeddings[i])) != 0)
                fail("%s: an embedding is not finite", r->columns[k].name);
        json_array_append_new(
            runs, json_pack("{s:s, s:o}", "name", r->columns[k].name, "embeddings", rows));
    }
    json_t *root = json_pack("{s:o, s:o, s:f, s:f}", "tokens", tokens, "runs", runs, "accepted",
                             r->accepted, "accepted_distance", r->accepted_distance);
    if (!root || json_dumpf(root, stdout, JSON_COMPACT) != 0)
        fail("out of memory");
    printf("\n");
    json_decref(root);
}

/** Returns 1, and says why on stderr, if another sentence is nearest to one than unquantised. */
static int judge_nearest(const report *r, const column *c) {
    const int64_t n = r->b->sentences;
    const double *exact = r->columns[0].similarities;
    int status = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t got = nearest(r, c, i), want = nearest(r, r->columns, i);
        if (got == want)
            continue;
        fprintf(stderr, "embed: %s: nearest to %lld is %lld; unquantised it is %lld, by %.2g\n",
                c->name, (long long)i + 1, (long long)got + 1, (long long)want + 1,
                exact[i * n + want] - exact[i * n + got]);
        status = 1;
    }
    return status;
}

/** Returns 1, and says why on stderr, if a number is beyond what FP8 explains. */
static int judge_size(const column *c, const char *what, double size, double accepted) {
    if (size <= accepted)
        return 0;
    fprintf(stderr, "embed: %s: %s is off by %.4g; accepted: %.4g\n", c->name, what, size,
            accepted);
    return 1;
}

static int judge(const report *r) {
    int status = 0;
    for (const column *c = r->columns + 1; c < r->columns + r->num_columns; c++) {
        status |= judge_nearest(r, c);
        status |= judge_size(c, "a similarity", most_difference(r, c), r->accepted);
        status |= judge_size(c, "an embedding", most_distance(r, c), r->accepted_distance);
    }
    return status;
}

// ---- the command

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_column(report *r, const char *name, const char *kernel, double *embeddings,
                       double begin) {
    r->columns[r->num_columns++] =
        (column){.name = name,
                 .kernel = kernel,
                 .embeddings = embeddings,
                 .similarities = compare(embeddings, r->b->sentences, r->m->hidden),
                 .seconds = now() - begin};
}

/** Tokenizes the sentences. */
static void read_sentences(batch *b, const bert *m, const char *folder, char **sentences) {
    wordpiece words;
    id_list list = {0};
    open_wordpiece(&words, folder);
    b->starts = allocate_host((size_t)(b->sentences + 1) * sizeof *b->starts);
    b->starts[0] = 0;
    for (int64_t s = 0; s < b->sentences; s++) {
        tokenize(&words, &list, sentences[s]);
        b->starts[s + 1] = (int32_t)list.count;
        if (list.count - b->starts[s] > m->positions)
            fail("sentence %lld has %lld tokens; accepted: up to %lld", (long long)s + 1,
                 (long long)(list.count - b->starts[s]), (long long)m->positions);
    }
    for (int64_t i = 0; i < list.count; i++)
        if (list.ids[i] < 0 || list.ids[i] >= m->vocabulary)
            fail("tokenizer.json: id %d; config.json accepts 0 to %lld", list.ids[i],
                 (long long)m->vocabulary - 1);
    b->ids = list.ids;
    json_decref(words.root);
}

int main(int argc, char **argv) {
    static checkpoint original, quantised;
    const int is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    char **words = argv + 1 + is_json; // ORIGINAL, QUANTISED, DEVICES, sentences
    bert m;
    batch b = {.sentences = argc - 4 - is_json};
    if (b.sentences < 2) {
        fprintf(stderr, "usage: embed [--json] MODEL MODEL-FP8 DEVICE[,DEVICE...] SENTENCE "
                        "SENTENCE...\n");
        return 2;
    }
    report r = {.m = &m, .b = &b, .sentences = words + 3};
    open_checkpoint(&original, words[0]);
    open_checkpoint(&quantised, words[1]);
    read_bert(&m, words[0]);
    read_sentences(&b, &m, words[0], r.sentences);
    double begin = now();
    add_column(&r, "unquantised", NULL, embed_exactly(&m, &original, &b, NULL), begin);
    for (char *device = strtok(words[2], ","); device; device = strtok(NULL, ",")) {
        const char *kernel = NULL;
        if (r.num_columns == MAX_RUNS)
            fail("more than %d devices", MAX_RUNS - 1);
        begin = now();
        double *embeddings = embed(&m, &quantised, &b, device, &kernel);
        add_column(&r, device, kernel, embeddings, begin);
    }
    measure_noise(&r, &original);
    (is_json ? print_json : print_report)(&r);
    const int status = judge(&r);
    for (int k = 0; k < r.num_columns; k++) {
        free(r.columns[k].embeddings);
        free(r.columns[k].similarities);
    }
    close_checkpoint(&original);
    close_checkpoint(&quantised);
    free(b.starts);
    free((void *)b.ids);
    return status;
}
