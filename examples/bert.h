// SPDX-License-Identifier: Apache-2.0
// A BERT encoder of sentences for examples/embed.c: its shapes and names, and its definition in
// double precision, with or without random errors of the size that FP8 makes.
#ifndef EXAMPLES_BERT_H
#define EXAMPLES_BERT_H

#include "checkpoint.h"

#include <math.h>

typedef struct bert {
    int64_t hidden, inner, layers, heads, positions, vocabulary;
    double eps;
} bert;

/** Sentences one behind the other: sentence s has the tokens starts[s] to starts[s + 1] - 1. */
typedef struct batch {
    int64_t sentences;
    int32_t *starts;
    const int32_t *ids;
} batch;

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, LINEARS, BLOCK = 128 };

typedef struct linear_shape {
    char name[256];
    int64_t n, k; // columns that come out, columns that go in
} linear_shape;

static inline linear_shape shape_of(const bert *m, int64_t layer, int which) {
    static const char *const names[LINEARS] = {"attention.self.query", "attention.self.key",
                                               "attention.self.value", "attention.output.dense",
                                               "intermediate.dense",   "output.dense"};
    linear_shape s = {.n = which == UP ? m->inner : m->hidden,
                      .k = which == DOWN ? m->inner : m->hidden};
    snprintf(s.name, sizeof s.name, "encoder.layer.%lld.%s", (long long)layer, names[which]);
    return s;
}

/** Writes the name of the norm behind a layer's attention (OUTPUT) or its other half (DOWN). */
static inline void norm_name(char name[256], int64_t layer, int behind) {
    snprintf(name, 256, "encoder.layer.%lld.%soutput.LayerNorm", (long long)layer,
             behind == OUTPUT ? "attention." : "");
}

static inline void expect_word(const json_t *config, const char *name, const char *accepted) {
    const char *word = json_string_value(json_object_get(config, name));
    if (!word || strcmp(word, accepted) != 0)
        fail("config.json: %s is %s; accepted: %s", name, word ? word : "missing", accepted);
}

static inline void read_bert(bert *m, const char *folder) {
    json_t *config = read_json(folder, "config.json", 1);
    json_t *pooling = read_json(folder, "1_Pooling/config.json", 0);
    expect_word(config, "model_type", "bert");
    expect_word(config, "hidden_act", "gelu");
    if (json_object_get(config, "position_embedding_type"))
        expect_word(config, "position_embedding_type", "absolute");
    if (pooling && !json_is_true(json_object_get(pooling, "pooling_mode_mean_tokens")))
        fail("1_Pooling/config.json: accepted: the mean of the tokens");
    *m = (bert){.hidden = integer(config, "hidden_size", 0),
                .inner = integer(config, "intermediate_size", 0),
                .layers = integer(config, "num_hidden_layers", 0),
                .heads = integer(config, "num_attention_heads", 0),
                .positions = integer(config, "max_position_embeddings", 0),
                .vocabulary = integer(config, "vocab_size", 0),
                .eps = json_number_value(json_object_get(config, "layer_norm_eps"))};
    if (m->hidden % m->heads)
        fail("config.json: hidden_size is no multiple of num_attention_heads");
    json_decref(pooling);
    json_decref(config);
}

// ---- numbers

static inline double number_at(const DLTensor *t, int64_t i) {
    const char *at = (const char *)t->data + i * t->dtype.bits / 8;
    uint32_t bits = 0;
    memcpy(&bits, at, t->dtype.bits / 8);
    if (t->dtype.code == kDLFloat && t->dtype.bits == 16) {
        _Float16 half;
        memcpy(&half, at, sizeof half);
        return (double)half;
    }
    if (t->dtype.code == kDLBfloat)
        bits <<= 16;
    else if (t->dtype.code != kDLFloat)
        fail("a tensor of FP8 where the model's own numbers are needed");
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/** Returns a tensor [rows, columns], or [columns] if rows is 0, in double precision. */
static inline double *numbers(checkpoint *c, const char *tensor, int64_t rows, int64_t columns) {
    const DLTensor t = find(c, tensor, rows, columns);
    const int64_t count = (rows ? rows : 1) * columns;
    double *values = allocate_host((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = number_at(&t, i);
    return values;
}

/** Returns "NAME.weight" or another part of a module, in double precision. */
static inline double *part(checkpoint *c, const char *module, const char *name, int64_t rows,
                           int64_t columns) {
    char full[300];
    snprintf(full, sizeof full, "%s.%s", module, name);
    return numbers(c, full, rows, columns);
}

/** Returns the sums of the three embeddings of each token, [tokens, hidden]. */
static inline double *sum_embeddings(const bert *m, checkpoint *c, const batch *b) {
    const int64_t h = m->hidden, tokens = b->starts[b->sentences];
    const DLTensor words = find(c, "embeddings.word_embeddings.weight", m->vocabulary, h);
    double *places = part(c, "embeddings.position_embeddings", "weight", m->positions, h);
    double *types = part(c, "embeddings.token_type_embeddings", "weight", 2, h);
    double *x = allocate_host((size_t)(tokens * h) * sizeof *x);
    for (int64_t s = 0; s < b->sentences; s++)
        for (int64_t t = b->starts[s]; t < b->starts[s + 1]; t++)
            for (int64_t i = 0; i < h; i++)
                x[t * h + i] = number_at(&words, b->ids[t] * h + i) +
                               places[(t - b->starts[s]) * h + i] + types[i];
    free(places);
    free(types);
    return x;
}

// ---- errors as FP8 makes them

static inline double uniform(uint64_t *state) { // splitmix64, -1/2 to 1/2
    uint64_t x = *state += 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53 - 0.5;
}

/** Adds to each number of a block what rounding to e4m3 may: at most half the step between the
 *  codes around it, where the block's largest number is 448. */
static inline void disturb_block(double *x, int64_t stride, int64_t rows, int64_t columns,
                                 uint64_t *state) {
    double most = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++)
            most = fmax(most, fabs(x[r * stride + i]));
    const double scale = most / 448;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++) {
            double *value = &x[r * stride + i];
            int exponent; // three bits behind the first; steps are equal below 2^-6
            frexp(*value / (scale > 0 ? scale : 1), &exponent);
            if (*value != 0) // a zero stays one
                *value += ldexp(scale, (exponent > -5 ? exponent : -5) - 4) * uniform(state);
        }
}

static inline void disturb(double *x, int64_t rows, int64_t columns, int64_t block_rows,
                           uint64_t *state) {
    for (int64_t r = 0; r < rows; r += block_rows)
        for (int64_t i = 0; i < columns; i += BLOCK)
            disturb_block(x + r * columns + i, columns,
                          rows - r < block_rows ? rows - r : block_rows,
                          columns - i < BLOCK ? columns - i : BLOCK, state);
}

// ---- the definition

/** Returns x w^T + bias, [tokens, n], of x [k, tokens]. Tokens lie side by side, so that sums over
 *  k go on in their order and still fill vectors. */
static inline double *sum_products(const linear_shape *s, const double *w, const double *bias,
                                   const double *across, int64_t tokens) {
    double *y = allocate_host((size_t)(tokens * s->n) * sizeof *y);
    double *sums = allocate_host((size_t)tokens * sizeof *sums);
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t t = 0; t < tokens; t++)
            sums[t] = bias[j];
        for (int64_t i = 0; i < s->k; i++)
            for (int64_t t = 0; t < tokens; t++)
                sums[t] += w[j * s->k + i] * across[i * tokens + t];
        for (int64_t t = 0; t < tokens; t++)
            y[t * s->n + j] = sums[t];
    }
    free(sums);
    return y;
}

/** Returns x w^T + bias, [tokens, n]; with a state, of disturbed x and w. */
static inline double *multiply_exactly(checkpoint *c, const linear_shape *s, const double *x,
                                       int64_t tokens, uint64_t *state) {
    const size_t bytes = (size_t)(tokens * s->k) * sizeof *x;
    double *w = part(c, s->name, "weight", s->n, s->k), *bias = part(c, s->name, "bias", 0, s->n);
    double *rows = allocate_host(bytes), *across = allocate_host(bytes);
    memcpy(rows, x, bytes);
    if (state) {
        disturb(w, s->n, s->k, BLOCK, state);
        disturb(rows, tokens, s->k, 1, state);
    }
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < s->k; i++)
            across[i * tokens + t] = rows[t * s->k + i];
    double *y = sum_products(s, w, bias, across, tokens);
    void *const used[] = {w, bias, rows, across};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        free(used[i]);
    return y;
}

/** Normalises the rows of x in place: (x - mean) / sqrt(variance + eps) * weight + bias. */
static inline void normalise_exactly(const bert *m, checkpoint *c, const char *name, double *x,
                                     int64_t tokens) {
    const int64_t h = m->hidden;
    double *weight = part(c, name, "weight", 0, h), *bias = part(c, name, "bias", 0, h);
    for (double *row = x; row < x + tokens * h; row += h) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < h; i++)
            mean += row[i] / (double)h;
        for (int64_t i = 0; i < h; i++)
            variance += (row[i] - mean) * (row[i] - mean) / (double)h;
        for (int64_t i = 0; i < h; i++)
            row[i] = (row[i] - mean) / sqrt(variance + m->eps) * weight[i] + bias[i];
    }
    free(weight);
    free(bias);
}

/** Writes the attention of a token's head over the keys of its sentence to o. */
static inline void attend_exactly(double *o, const double *q, const double *k, const double *v,
                                  int64_t keys, int64_t stride, int64_t dim) {
    double total = 0, most = -HUGE_VAL, *weights = allocate_host((size_t)keys * sizeof *weights);
    for (int64_t j = 0; j < keys; j++) {
        weights[j] = 0;
        for (int64_t i = 0; i < dim; i++)
            weights[j] += q[i] * k[j * stride + i] / sqrt((double)dim);
        most = fmax(most, weights[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        total += weights[j] = exp(weights[j] - most);
    for (int64_t i = 0; i < dim; i++) {
        o[i] = 0;
        for (int64_t j = 0; j < keys; j++)
            o[i] += weights[j] / total * v[j * stride + i];
    }
    free(weights);
}

/** Returns what attention adds to x, [tokens, hidden]. */
static inline double *attention_exactly(const bert *m, checkpoint *c, const batch *b, int64_t layer,
                                        const double *x, uint64_t *state) {
    const int64_t tokens = b->starts[b->sentences], h = m->hidden, dim = h / m->heads;
    double *y[3], *o = allocate_host((size_t)(tokens * h) * sizeof *o);
    for (int i = QUERY; i <= VALUE; i++) {
        const linear_shape s = shape_of(m, layer, i);
        y[i] = multiply_exactly(c, &s, x, tokens, state);
    }
    for (int64_t sentence = 0; sentence < b->sentences; sentence++) {
        const int64_t from = b->starts[sentence], to = b->starts[sentence + 1];
        for (int64_t t = from; t < to; t++)
            for (int64_t i = 0; i < h; i += dim)
                attend_exactly(o + t * h + i, y[QUERY] + t * h + i, y[KEY] + from * h + i,
                               y[VALUE] + from * h + i, to - from, h, dim);
    }
    const linear_shape s = shape_of(m, layer, OUTPUT);
    double *result = multiply_exactly(c, &s, o, tokens, state);
    for (int i = QUERY; i <= VALUE; i++)
        free(y[i]);
    free(o);
    return result;
}

/** Returns what the layer's other half adds to x, [tokens, hidden]. */
static inline double *other_half_exactly(const bert *m, checkpoint *c, int64_t layer,
                                         const double *x, int64_t tokens, uint64_t *state) {
    const linear_shape up = shape_of(m, layer, UP), down = shape_of(m, layer, DOWN);
    double *y = multiply_exactly(c, &up, x, tokens, state);
    for (int64_t i = 0; i < tokens * m->inner; i++)
        y[i] *= (1 + erf(y[i] / sqrt(2))) / 2; // GELU
    double *result = multiply_exactly(c, &down, y, tokens, state);
    free(y);
    return result;
}

/** Adds to x, normalises the sum by the norm behind OUTPUT or DOWN, and frees what was added. */
static inline void add_exactly(const bert *m, checkpoint *c, int64_t layer, int behind, double *x,
                               double *more, int64_t tokens) {
    char name[256];
    for (int64_t i = 0; i < tokens * m->hidden; i++)
        x[i] += more[i];
    norm_name(name, layer, behind);
    normalise_exactly(m, c, name, x, tokens);
    free(more);
}

/** Writes the mean of the rows of x, brought to length 1. */
static inline void pool_exactly(double *out, const double *x, int64_t rows, int64_t h) {
    double square = 0;
    for (int64_t i = 0; i < h; i++) {
        out[i] = 0;
        for (int64_t t = 0; t < rows; t++)
            out[i] += x[t * h + i]; // of length 1, the sum is the mean
        square += out[i] * out[i];
    }
    for (int64_t i = 0; i < h; i++)
        out[i] /= sqrt(square);
}

/** Returns the sentences' embeddings [sentences, hidden]: means of tokens, of length 1. With a
 *  state, which random errors come from, as FP8 may make them. */
static inline double *embed_exactly(const bert *m, checkpoint *c, const batch *b, uint64_t *state) {
    const int64_t h = m->hidden, tokens = b->starts[b->sentences];
    double *x = sum_embeddings(m, c, b);
    double *out = allocate_host((size_t)(b->sentences * h) * sizeof *out);
    normalise_exactly(m, c, "embeddings.LayerNorm", x, tokens);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        double *more = attention_exactly(m, c, b, layer, x, state);
        add_exactly(m, c, layer, OUTPUT, x, more, tokens);
        more = other_half_exactly(m, c, layer, x, tokens, state);
        add_exactly(m, c, layer, DOWN, x, more, tokens);
    }
    for (int64_t s = 0; s < b->sentences; s++)
        pool_exactly(out + s * h, x + b->starts[s] * h, b->starts[s + 1] - b->starts[s], h);
    free(x);
    return out;
}

#endif
