// SPDX-License-Identifier: Apache-2.0
// The layers of a model, from its config.json, by the names that transformers gives sizes.
#include "tune.h"

#include <stdlib.h>
#include <string.h>

static const DLDataType bf16 = {kDLBfloat, 16, 1};

/** Models whose feed-forward blocks have a gate, and whose layers add_layers therefore knows. */
static const char *const model_types[] = {
    "llama",
    "mistral",
    "ministral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi3",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "glm4",
    "glm4_moe",
    "olmo2",
    "olmo3",
    "granite",
    "cohere",
    "cohere2",
    "smollm3",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "seed_oss",
    "hunyuan_v1_dense",
};

/** A config.json, and what becomes of it. */
typedef struct config {
    const char *path;
    const json_t *json; // the language model's part
    tune_problems *p;
    DLDataType dtype; // of products of quantised layers
    unsigned ops;
    int64_t tp;
} config;

// ---- values

/** Reads a size. A value that is missing or null is `usual`; usual 0: the value must be there. */
static qn_status read_size(const config *c, const char *name, int64_t usual, int64_t *size) {
    const json_t *value = json_object_get(c->json, name);
    *size = usual;
    if (!value || json_is_null(value))
        return usual ? QN_OK
                     : cli_fail(QN_E_INVALID, "%s: has no %s, which the layers' sizes follow from",
                                c->path, name);
    *size = json_integer_value(value);
    return json_is_integer(value) && *size > 0 && *size <= 1 << 24
               ? QN_OK
               : cli_fail(QN_E_INVALID, "%s: %s is no number from 1 to %d", c->path, name, 1 << 24);
}

static bool has(const config *c, const char *name) {
    const json_t *value = json_object_get(c->json, name);
    return value && !json_is_null(value);
}

static qn_status split(const config *c, const char *what, int64_t *size) {
    if (*size % c->tp != 0)
        return cli_fail(QN_E_INVALID, "option --tp: %lld does not divide the %lld %s of %s",
                        (long long)c->tp, (long long)*size, what, c->path);
    *size /= c->tp;
    return QN_OK;
}

static bool is_wanted(const config *c, tune_op op) {
    return c->ops & 1U << op;
}

/** Adds a linear layer of n outputs and k inputs. */
static qn_status add(const config *c, int64_t n, int64_t k, DLDataType dtype) {
    return is_wanted(c, TUNE_GEMM) ? tune_add_gemm(c->p, n, k, dtype) : QN_OK;
}

// ---- layers

/** Adds q, k and v in one product, the projection behind them, and attention itself. */
static qn_status add_attention(const config *c, int64_t hidden) {
    int64_t heads, kv_heads, dim;
    CLI_TRY(read_size(c, "num_attention_heads", 0, &heads));
    CLI_TRY(read_size(c, "num_key_value_heads", heads, &kv_heads));
    CLI_TRY(read_size(c, "head_dim", hidden / heads ? hidden / heads : 1, &dim));
    CLI_TRY(split(c, "attention heads", &heads));
    if (kv_heads < c->tp)
        kv_heads = 1; // each process has a copy
    else
        CLI_TRY(split(c, "key heads", &kv_heads));
    if (heads % kv_heads != 0)
        return cli_fail(QN_E_INVALID, "%s: %lld attention heads are no multiple of %lld key heads",
                        c->path, (long long)heads, (long long)kv_heads);
    CLI_TRY(add(c, (heads + 2 * kv_heads) * dim, hidden, c->dtype));
    CLI_TRY(add(c, hidden, heads * dim, c->dtype));
    return is_wanted(c, TUNE_ATTENTION)
               ? tune_add_attention(c->p, &(tune_heads){heads, kv_heads, dim})
               : QN_OK;
}

/** Adds the products of attention with a latent cache (DeepSeek's). */
static qn_status add_latent(const config *c, int64_t hidden) {
    int64_t heads, q_rank = 0, kv_rank, nope, rope, v;
    CLI_TRY(read_size(c, "num_attention_heads", 0, &heads));
    CLI_TRY(read_size(c, "kv_lora_rank", 0, &kv_rank));
    CLI_TRY(read_size(c, "qk_nope_head_dim", 0, &nope));
    CLI_TRY(read_size(c, "qk_rope_head_dim", 0, &rope));
    CLI_TRY(read_size(c, "v_head_dim", 0, &v));
    CLI_TRY(split(c, "attention heads", &heads));
    if (has(c, "q_lora_rank")) {
        CLI_TRY(read_size(c, "q_lora_rank", 0, &q_rank));
        CLI_TRY(add(c, q_rank + kv_rank + rope, hidden, c->dtype));
    } else {
        CLI_TRY(add(c, kv_rank + rope, hidden, c->dtype));
    }
    CLI_TRY(add(c, heads * (nope + rope), q_rank ? q_rank : hidden, c->dtype));
    CLI_TRY(add(c, heads * (nope + v), kv_rank, c->dtype));
    CLI_TRY(add(c, hidden, heads * v, c->dtype));
    const bool is_known = kv_rank == 512 && rope == 64; // what qn_mla_decode takes
    return is_wanted(c, TUNE_MLA) && is_known ? tune_add_mla(c->p, heads) : QN_OK;
}

/** Adds a feed-forward block: gate and up in one product, then down. */
static qn_status add_block(const config *c, int64_t hidden, int64_t inner) {
    CLI_TRY(split(c, "columns of a feed-forward block", &inner));
    CLI_TRY(add(c, 2 * inner, hidden, c->dtype));
    CLI_TRY(add(c, hidden, inner, c->dtype));
    return is_wanted(c, TUNE_ACTIVATION)
               ? tune_add_rows(c->p, TUNE_ACTIVATION, "silu_and_mul", inner)
               : QN_OK;
}

static bool has_experts(const config *c) {
    return has(c, "num_local_experts") || has(c, "num_experts") || has(c, "n_routed_experts");
}

/** Returns whether some of a model's layers have a block without experts. */
static bool has_dense(const config *c) {
    return !has_experts(c) || json_array_size(json_object_get(c->json, "mlp_only_layers")) ||
           json_integer_value(json_object_get(c->json, "first_k_dense_replace")) > 0;
}

/** Adds the dense blocks. Experts' grouped products are not tuned; what all tokens share is a block
 *  like others. */
static qn_status add_blocks(const config *c, int64_t hidden) {
    int64_t inner, experts, shared;
    if (has_dense(c)) {
        CLI_TRY(read_size(c, "intermediate_size", 0, &inner));
        CLI_TRY(add_block(c, hidden, inner));
    }
    if (has(c, "shared_expert_intermediate_size")) {
        CLI_TRY(read_size(c, "shared_expert_intermediate_size", 0, &inner));
        return add_block(c, hidden, inner);
    }
    if (!has_experts(c) || !has(c, "n_shared_experts"))
        return QN_OK;
    CLI_TRY(read_size(c, "moe_intermediate_size", 0, &experts));
    CLI_TRY(read_size(c, "n_shared_experts", 0, &shared));
    return add_block(c, hidden, experts * shared);
}

/** Adds the norms before each layer, and what makes FP8 of their results. */
static qn_status add_norms(const config *c, int64_t hidden) {
    if (is_wanted(c, TUNE_NORM))
        CLI_TRY(tune_add_rows(c->p, TUNE_NORM, "rmsnorm", hidden));
    if (is_wanted(c, TUNE_NORM))
        CLI_TRY(tune_add_rows(c->p, TUNE_NORM, "fused_add_rmsnorm", hidden));
    return is_wanted(c, TUNE_QUANTIZE) && c->dtype.bits == 8 ? tune_add_quantize(c->p, hidden)
                                                             : QN_OK;
}

static qn_status add_layers(const config *c) {
    int64_t hidden, vocabulary;
    CLI_TRY(read_size(c, "hidden_size", 0, &hidden));
    CLI_TRY(has(c, "kv_lora_rank") ? add_latent(c, hidden) : add_attention(c, hidden));
    CLI_TRY(add_blocks(c, hidden));
    CLI_TRY(add_norms(c, hidden));
    CLI_TRY(read_size(c, "vocab_size", 0, &vocabulary));
    vocabulary = (vocabulary + c->tp - 1) / c->tp;
    return add(c, vocabulary, hidden, bf16); // the last layer stays as it is
}

// ---- the model

static qn_status check_type(const config *c) {
    enum { COUNT = sizeof model_types / sizeof *model_types };
    const char *type = json_string_value(json_object_get(c->json, "model_type"));
    char known[512] = "", guess[CLI_GUESS_ROOM];
    for (int i = 0; i < COUNT; i++) {
        const size_t used = strlen(known);
        if (type && strcmp(type, model_types[i]) == 0)
            return QN_OK;
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", model_types[i]);
    }
    if (!type)
        return cli_fail(QN_E_INVALID, "%s: has no model_type (accepted: %s)", c->path, known);
    return cli_fail(QN_E_UNSUPPORTED, "%s: model_type is '%.60s' (accepted: %s; or --shapes)%s",
                    c->path, type, known,
                    cli_guess(type, strlen(type), known, guess, sizeof guess));
}

/** Sets the dtype of products that the model's quantization_config asks for. */
static qn_status find_dtype(config *c, const json_t *top, DLDataType fp8) {
    const json_t *q = json_object_get(top, "quantization_config");
    const json_t *block = json_object_get(q, "weight_block_size");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    c->dtype = bf16;
    if (!q || json_is_null(q))
        return QN_OK;
    if (!method || strcmp(method, "fp8") != 0 || json_array_size(block) != 2 ||
        json_integer_value(json_array_get(block, 0)) != 128 ||
        json_integer_value(json_array_get(block, 1)) != 128)
        return cli_fail(QN_E_UNSUPPORTED,
                        "%s: quant_method is '%.60s'%s (accepted: fp8 with weight_block_size 128 x "
                        "128; or --dtype)",
                        c->path, method ? method : "",
                        method && strcmp(method, "fp8") == 0 ? " with other blocks" : "");
    c->dtype = fp8;
    return QN_OK;
}

static qn_status read_json(const char *path, json_t **json) {
    json_error_t error;
    *json = json_load_file(path, 0, &error);
    if (*json && json_is_object(*json))
        return QN_OK;
    return error.line < 0 && !*json
               ? cli_fail(QN_E_IO, "%s: %s", path, error.text)
               : cli_fail(QN_E_INVALID, "%s:%d: no config.json: %s", path, *json ? 1 : error.line,
                          *json ? "it is no object" : error.text);
}

qn_status tune_add_model(tune_problems *p, const tune_options *o, unsigned ops, DLDataType fp8,
                         const DLDataType *dtype) {
    config c = {.path = o->model, .p = p, .ops = ops, .tp = o->tp ? o->tp : 1};
    json_t *json = nullptr;
    qn_status st;
    CLI_TRY_OUT(read_json(o->model, &json));
    const json_t *text = json_object_get(json, "text_config"); // where a model also sees
    c.json = text ? text : json;
    CLI_TRY_OUT(check_type(&c));
    if (dtype)
        c.dtype = *dtype;
    else
        CLI_TRY_OUT(find_dtype(&c, json, fp8));
    CLI_TRY_OUT(add_layers(&c));
    if (p->count == 0)
        st = cli_fail(QN_E_UNSUPPORTED, "%s: has no layer of the named ops", o->model);
out:
    json_decref(json);
    return st;
}
