// SPDX-License-Identifier: Apache-2.0
// Opens checkpoints: a safetensors file, or a folder with one, or with shards and their index.
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

static const char index_name[] = "model.safetensors.index.json";

const st_tensor *ckpt_find(const ckpt *c, const char *name, const ckpt_shard **shard) {
    for (int i = 0; i < c->num_shards; i++) {
        const st_tensor *t = st_find(&c->shards[i].header, name);
        if (t) {
            if (shard)
                *shard = &c->shards[i];
            return t;
        }
    }
    return nullptr;
}

const void *ckpt_data(const ckpt_shard *shard, const st_tensor *tensor) {
    return shard->map.data + shard->header.data_offset + tensor->begin;
}

static qn_status open_shard(ckpt_shard *out, const char *path, const char *file) {
    out->file = cli_text("%s", file);
    qn_status st = cli_map_open(&out->map, path);
    if (st == QN_OK)
        st = st_parse(&out->header, path, out->map.data, out->map.bytes);
    const qn_status pages =
        cli_check_pages(); // a header that became zeros is no fault of the header
    return pages == QN_OK ? st : pages;
}

/** Reads a JSON object from a file of text. */
static qn_status read_json(json_t **out, const char *path) {
    cli_map map;
    const qn_status st = cli_map_open(&map, path);
    if (st != QN_OK)
        return st;
    json_error_t error;
    *out = json_loadb(map.data ? (const char *)map.data : "", (size_t)map.bytes,
                      JSON_REJECT_DUPLICATES, &error);
    cli_map_close(&map);
    if (!*out)
        return cli_fail(QN_E_INVALID, "%s: not valid JSON: %s (line %d)", path, error.text,
                        error.line);
    return json_is_object(*out) ? QN_OK : cli_fail(QN_E_INVALID, "%s: no JSON object", path);
}

// ---- shards by their index

static int shard_find(const ckpt *c, const char *file) {
    for (int i = 0; i < c->num_shards; i++)
        if (strcmp(c->shards[i].file, file) == 0)
            return i;
    return -1;
}

/** Opens the shard called file, unless it is open. Refuses a name that leads outside the
 *  folder. */
static qn_status need_shard(ckpt *c, const char *index, const char *tensor, const char *file) {
    if (!file || !*file || strchr(file, '/') || *file == '.')
        return cli_fail(QN_E_INVALID, "%s: tensor %s: its shard is %s, accepted: a file name",
                        index, tensor, file ? file : "no string");
    if (shard_find(c, file) >= 0)
        return QN_OK;
    char *path = cli_path(c->path, file);
    const qn_status st =
        cli_exists(path) ? open_shard(&c->shards[c->num_shards++], path, file)
                         : cli_fail(QN_E_NOT_FOUND, "%s: shard missing; %s names it for tensor %s",
                                    path, index, tensor);
    free(path);
    return st;
}

static qn_status open_indexed(ckpt *c, const char *index) {
    qn_status st = read_json(&c->index, index);
    if (st != QN_OK)
        return st;
    json_t *map = json_object_get(c->index, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        return cli_fail(QN_E_INVALID, "%s: weight_map is no object that names tensors", index);
    c->shards = cli_alloc(json_object_size(map) * sizeof *c->shards);
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file) {
        if ((st = need_shard(c, index, tensor, json_string_value(file))) != QN_OK)
            return st;
        const ckpt_shard *shard = &c->shards[shard_find(c, json_string_value(file))];
        if (!st_find(&shard->header, tensor))
            return cli_fail(QN_E_INVALID, "%s: tensor %s is not in its shard %s", index, tensor,
                            shard->file);
    }
    return QN_OK;
}

/** Checks that the index names every tensor of every shard, so that each is in one shard only. */
static qn_status check_index(const ckpt *c) {
    json_t *map = json_object_get(c->index, "weight_map");
    for (int i = 0; i < c->num_shards; i++)
        for (int64_t j = 0; j < c->shards[i].header.count; j++) {
            const char *name = c->shards[i].header.tensors[j].name;
            const char *file = json_string_value(json_object_get(map, name));
            if (!file || strcmp(file, c->shards[i].file) != 0)
                return cli_fail(QN_E_INVALID, "%s/%s: tensor %s, but %s puts it %s%s", c->path,
                                c->shards[i].file, name, index_name, file ? "in " : "nowhere",
                                file ? file : "");
        }
    return QN_OK;
}

// ---- opening

static qn_status open_single(ckpt *c, const char *path, const char *file) {
    c->shards = cli_alloc(sizeof *c->shards);
    c->num_shards = 1;
    return open_shard(c->shards, path, file);
}

static qn_status open_weights(ckpt *c) {
    char *index = cli_path(c->path, index_name), *single = cli_path(c->path, "model.safetensors");
    qn_status st;
    if (cli_exists(index)) {
        st = open_indexed(c, index);
        if (st == QN_OK)
            st = check_index(c);
    } else if (cli_exists(single)) {
        st = open_single(c, single, "model.safetensors");
    } else {
        st = cli_fail(QN_E_NOT_FOUND, "%s: no checkpoint: it has neither %s nor model.safetensors",
                      c->path, index_name);
    }
    free(index);
    free(single);
    return st;
}

static qn_status read_config(ckpt *c) {
    char *path = cli_path(c->path, "config.json");
    qn_status st = QN_OK;
    if (cli_exists(path)) {
        json_t *parsed = nullptr;
        cli_map map = {0};
        if ((st = read_json(&parsed, path)) == QN_OK && (st = cli_map_open(&map, path)) == QN_OK)
            c->config = cli_text("%.*s", (int)map.bytes, (const char *)map.data);
        cli_map_close(&map);
        json_decref(parsed);
    }
    free(path);
    return st;
}

qn_status ckpt_open(ckpt *out, const char *path) {
    *out = (ckpt){.path = cli_text("%s", path), .is_folder = cli_is_folder(path)};
    const char *slash = strrchr(path, '/');
    qn_status st;
    if (out->is_folder)
        (void)((st = open_weights(out)) == QN_OK && (st = read_config(out)) == QN_OK);
    else
        st = open_single(out, path, slash ? slash + 1 : path);
    if (st != QN_OK)
        ckpt_close(out);
    return st;
}

void ckpt_close(ckpt *c) {
    for (int i = 0; i < c->num_shards; i++) {
        st_free(&c->shards[i].header);
        cli_map_close(&c->shards[i].map);
        free(c->shards[i].file);
    }
    free(c->shards);
    json_decref(c->index);
    free(c->config);
    free(c->path);
    *c = (ckpt){0};
}

json_t *ckpt_quantization(const ckpt *c) {
    if (!c->is_folder) {
        const char *text =
            json_string_value(json_object_get(c->shards[0].header.metadata, "quantization_config"));
        return text ? json_loads(text, 0, nullptr) : nullptr;
    }
    json_t *config = c->config ? json_loads(c->config, 0, nullptr) : nullptr;
    json_t *value = json_incref(json_object_get(config, "quantization_config"));
    json_decref(config);
    return value;
}
