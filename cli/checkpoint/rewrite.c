// SPDX-License-Identifier: Apache-2.0
// Rewrites a checkpoint by a rule: plans every tensor first, then streams shard after shard.
#include "checkpoint.h"

#include <ctype.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/** One shard's plan, and the file to which the shard is written. */
struct ckpt_sink {
    const ckpt_shard *shard;
    ckpt_item *items; // in the order of the header
    st_tensor **outs; // laid out
    int64_t num_outs, data_offset, data_bytes;
    char *header;
    cli_output file;
};

qn_status ckpt_put(ckpt_sink *sink, const st_tensor *out, int64_t offset, const void *data,
                   int64_t bytes) {
    return cli_output_write(&sink->file, data, bytes, sink->data_offset + out->begin + offset);
}

void ckpt_progress(const ckpt_shard *shard, const st_tensor *in, int64_t begin, int64_t end) {
    const int64_t start = shard->header.data_offset + in->begin;
    cli_map_release(&shard->map, start + begin, start + end);
    cli_progress_add(end - begin);
}

// ---- parts of matrices

ckpt_step ckpt_step_of(const st_tensor *matrix, int64_t block, int64_t most_bytes) {
    const int64_t rows = matrix->shape[0], cols = matrix->shape[1], bytes = matrix->dtype->bits / 8;
    const int64_t fit = most_bytes / (block * bytes); // columns of a row of blocks
    ckpt_step step = {block, cols};
    if (cols > fit)
        step.cols = fit / block * block;
    else if (cols)
        step.rows = fit / cols * block;
    step.rows = step.rows < rows ? step.rows : rows;
    return step;
}

qn_status ckpt_put_part(ckpt_sink *sink, const st_tensor *out, int64_t row, int64_t col,
                        const void *data, int64_t rows, int64_t cols) {
    const int64_t bytes = out->dtype->bits / 8, pitch = out->shape[1];
    if (cols == pitch)
        return ckpt_put(sink, out, row * pitch * bytes, data, rows * cols * bytes);
    qn_status st = QN_OK;
    for (int64_t i = 0; st == QN_OK && i < rows; i++)
        st = ckpt_put(sink, out, ((row + i) * pitch + col) * bytes,
                      (const char *)data + i * cols * bytes, cols * bytes);
    return st;
}

void ckpt_progress_part(const ckpt_shard *shard, const st_tensor *in, int64_t row, int64_t col,
                        int64_t rows, int64_t cols) {
    const int64_t bytes = in->dtype->bits / 8, pitch = in->shape[1];
    const bool is_whole = cols == pitch;
    for (int64_t i = 0; i < (is_whole ? 1 : rows); i++) {
        const int64_t begin = ((row + i) * pitch + col) * bytes;
        ckpt_progress(shard, in, begin, begin + (is_whole ? rows : 1) * cols * bytes);
    }
}

// ---- planning

static qn_status plan_item(ckpt_sink *sink, int64_t i, const ckpt *c, const ckpt_rule *rule) {
    ckpt_item *item = &sink->items[i];
    *item = (ckpt_item){.in = &sink->shard->header.tensors[i], .num_out = 1, .is_copied = true};
    item->out[0] = *item->in;
    item->out[0].name = cli_text("%s", item->in->name);
    const qn_status st = rule->plan(rule->context, c, sink->shard, item);
    for (int j = 0; j < item->num_out; j++)
        sink->outs[sink->num_outs++] = &item->out[j];
    return st;
}

static qn_status plan_shard(ckpt_sink *sink, const ckpt *c, const ckpt_shard *shard,
                            const ckpt_rule *rule) {
    sink->shard = shard;
    sink->items = cli_alloc((size_t)shard->header.count * sizeof *sink->items);
    sink->outs = cli_alloc(2 * (size_t)shard->header.count * sizeof *sink->outs);
    for (int64_t i = 0; i < shard->header.count; i++) {
        const qn_status st = plan_item(sink, i, c, rule);
        if (st != QN_OK)
            return st;
    }
    sink->data_bytes = st_layout(sink->outs, sink->num_outs);
    return QN_OK;
}

static void sink_free(ckpt_sink *sink) {
    cli_output_discard(&sink->file);
    for (int64_t i = 0; i < sink->num_outs; i++)
        free(sink->outs[i]->name);
    free(sink->header);
    free(sink->items);
    free(sink->outs);
}

// ---- writing shards

static qn_status copy_tensor(const ckpt_item *item, ckpt_sink *sink) {
    enum { STEP = 16 << 20 };
    const int64_t bytes = item->in->end - item->in->begin;
    const char *from = ckpt_data(sink->shard, item->in);
    for (int64_t at = 0; at < bytes; at += STEP) {
        const int64_t step = bytes - at < STEP ? bytes - at : STEP;
        const qn_status st = ckpt_put(sink, item->out, at, from + at, step);
        if (st != QN_OK)
            return st;
        ckpt_progress(sink->shard, item->in, at, at + step);
    }
    return QN_OK;
}

/** Returns a shard's metadata; null if it has none. A lone file keeps there what a folder has in
 *  config.json. */
static json_t *make_metadata(const ckpt *c, const ckpt_shard *shard, const json_t *quantization) {
    json_t *metadata = shard->header.metadata ? json_copy(shard->header.metadata) : json_object();
    if (!c->is_folder) {
        char *text = cli_json_dump(quantization, JSON_COMPACT);
        cli_json_set(metadata, "quantization_config", json_string(text));
        free(text);
    }
    if (!json_object_size(metadata)) {
        json_decref(metadata);
        metadata = nullptr;
    }
    return metadata;
}

static qn_status write_items(ckpt_sink *sink, const ckpt *c, const ckpt_rule *rule) {
    qn_status st = QN_OK;
    for (int64_t i = 0; st == QN_OK && i < sink->shard->header.count; i++) {
        const ckpt_item *item = &sink->items[i];
        st = item->is_copied ? copy_tensor(item, sink)
                             : rule->write(rule->context, c, sink->shard, item, sink);
    }
    return st;
}

/** Writes one shard under its temporary name; the caller commits it. */
static qn_status write_shard(ckpt_sink *sink, const ckpt *c, const char *path, bool force,
                             const ckpt_rule *rule, const json_t *quantization) {
    json_t *metadata = make_metadata(c, sink->shard, quantization);
    sink->header = st_header_make(sink->outs, sink->num_outs, metadata, &sink->data_offset);
    json_decref(metadata);
    CLI_TRY(cli_output_open(&sink->file, path, sink->data_offset + sink->data_bytes, force));
    CLI_TRY(cli_output_write(&sink->file, sink->header, sink->data_offset, 0));
    return write_items(sink, c, rule);
}

// ---- the folder's other files

/** Returns whether a file is written anew, not copied: a shard, the index, config.json or the list
 *  of files. */
static bool is_rewritten(const ckpt *c, const char *name) {
    for (int i = 0; i < c->num_shards; i++)
        if (strcmp(c->shards[i].file, name) == 0)
            return true;
    return strcmp(name, "config.json") == 0 || strcmp(name, cli_list_name) == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0;
}

static qn_status copy_folder(const ckpt *c, const char *from, const char *to, int depth);

static qn_status copy_entry(const ckpt *c, const char *from, const char *to, int depth) {
    if (!cli_is_folder(from))
        return cli_copy_file(from, to);
    if (depth == 16)
        return cli_fail(QN_E_INVALID, "%s: more than 16 folders deep", from);
    if (mkdir(to, 0777) != 0)
        return cli_fail_path(to, "cannot be created");
    return copy_folder(c, from, to, depth + 1);
}

/** Copies the files that are not rewritten, save the folder of version control, which is no part of
 *  a checkpoint. */
static qn_status copy_folder(const ckpt *c, const char *from, const char *to, int depth) {
    DIR *dir = opendir(from);
    if (!dir)
        return cli_fail_path(from, "cannot be read");
    qn_status st = QN_OK;
    for (const char *name; st == QN_OK && (name = cli_next_entry(dir, from, &st));) {
        if (strcmp(name, ".git") == 0 || (depth == 0 && is_rewritten(c, name)))
            continue;
        char *source = cli_path(from, name), *target = cli_path(to, name);
        st = copy_entry(c, source, target, depth);
        free(source);
        free(target);
    }
    closedir(dir);
    return st;
}

// ---- config.json and the index

/** Returns the end of the JSON value that starts at text, just behind its last byte. The text must
 *  be valid JSON. */
static const char *value_end(const char *text) {
    int depth = 0;
    for (bool in_string = false; *text; text++) {
        if (in_string) {
            if (*text == '\\')
                text++;
            else if (*text == '"')
                in_string = false;
            continue;
        }
        if (depth == 0 && (*text == ',' || *text == '}' || *text == ']'))
            return text;
        in_string = *text == '"';
        depth += (*text == '{' || *text == '[') - (*text == '}' || *text == ']');
    }
    return text;
}

/** Returns where the value of a top-level member starts; null if there is no member of that
 *  name. */
static const char *member_value(const char *object, const char *name) {
    const char *at = strchr(object, '{') + 1;
    while (*at) {
        at += strspn(at, " \t\r\n,");
        if (*at != '"')
            return nullptr;
        const char *key = at + 1;
        for (at = key; *at != '"'; at++)
            at += *at == '\\';
        const bool is_it =
            (size_t)(at - key) == strlen(name) && strncmp(key, name, strlen(name)) == 0;
        at = strchr(at, ':') + 1;
        at += strspn(at, " \t\r\n");
        if (is_it)
            return at;
        at = value_end(at);
    }
    return nullptr;
}

/** Returns the value as JSON, for a member of an object whose members are indented by two. */
static char *indented(const json_t *value) {
    char *text = cli_json_dump(value, JSON_INDENT(2));
    size_t lines = 0;
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    char *result = cli_alloc(strlen(text) + 2 * lines + 1), *to = result;
    for (const char *s = text; *s; s++) {
        *to++ = *s;
        if (*s == '\n')
            to = stpcpy(to, "  ");
    }
    free(text);
    return result;
}

char *ckpt_config_with(const char *config, const json_t *quantization) {
    static const char name[] = "quantization_config";
    char *value = indented(quantization), *result;
    const char *old = member_value(config, name);
    if (old) {
        const char *end = value_end(old);
        while (isspace((unsigned char)end[-1]))
            end--;
        result = cli_text("%.*s%s%s", (int)(old - config), config, value, end);
    } else {
        const char *close = strrchr(config, '}'), *end = close;
        while (isspace((unsigned char)end[-1]))
            end--;
        result = cli_text("%.*s%s\n  \"%s\": %s\n%s", (int)(end - config), config,
                          end[-1] == '{' ? "" : ",", name, value, close);
    }
    free(value);
    return result;
}

static qn_status write_config(const ckpt *c, const char *folder, const json_t *quantization) {
    char *path = cli_path(folder, "config.json");
    char *text = ckpt_config_with(c->config ? c->config : "{}\n", quantization);
    const qn_status st = cli_write_text(path, text, false);
    free(text);
    free(path);
    return st;
}

static qn_status write_index(const ckpt *c, const ckpt_sink *sinks, const char *folder) {
    json_t *map = json_object(), *index = json_copy(c->index);
    int64_t total = 0;
    for (int i = 0; i < c->num_shards; i++) {
        total += sinks[i].data_bytes;
        for (int64_t j = 0; j < sinks[i].num_outs; j++)
            cli_json_set(map, sinks[i].outs[j]->name, json_string(c->shards[i].file));
    }
    json_t *metadata = json_object_get(index, "metadata");
    metadata = json_is_object(metadata) ? json_copy(metadata) : json_object();
    cli_json_set(metadata, "total_size", json_integer(total));
    cli_json_set(index, "metadata", metadata);
    cli_json_set(index, "weight_map", map);
    char *text = cli_json_dump(index, JSON_INDENT(2)),
         *path = cli_path(folder, "model.safetensors.index.json");
    json_decref(index);
    const qn_status st = cli_write_text(path, text, false);
    free(text);
    free(path);
    return st;
}

// ---- the whole

/** Returns whether path is folder or lies in folder; both are without links. */
static bool lies_in(const char *path, const char *folder) {
    const size_t length = strlen(folder);
    return path && strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || !path[length] || folder[length - 1] == '/');
}

/** Returns the folder that holds path, without links; null if there is no such folder. */
static char *real_parent(const char *path) {
    char *copy = cli_text("%s", path), *parent = cli_real_path(dirname(copy));
    free(copy);
    return parent;
}

/** Checks that OUT is not IN, not inside IN, and does not hold IN, as --force would replace
 *  OUT. */
static qn_status check_apart(const ckpt *c, const char *path) {
    char *in = cli_real_path(c->path), *same = cli_real_path(path), *parent = real_parent(path);
    qn_status st = QN_OK;
    if (!in)
        st = cli_fail(QN_E_IO, "%s: is no longer there", c->path);
    else if (!parent)
        st = cli_fail(QN_E_NOT_FOUND, "%s: the folder that it is to be written to does not exist",
                      path);
    else if (lies_in(same, in) || (c->is_folder && lies_in(parent, in)))
        st = cli_fail(QN_E_INVALID, "%s: is %s or lies in it; the result needs a place of its own",
                      path, c->path);
    else if (same && lies_in(in, same))
        st = cli_fail(QN_E_INVALID, "%s: holds %s; the result needs a place of its own", path,
                      c->path);
    free(in);
    free(same);
    free(parent);
    return st;
}

static qn_status write_file(const ckpt *c, ckpt_sink *sink, const char *path, bool force,
                            const ckpt_rule *rule, const json_t *quantization) {
    CLI_TRY(write_shard(sink, c, path, force, rule, quantization));
    CLI_TRY(rule->finish(rule->context));
    return cli_output_commit(&sink->file);
}

static qn_status write_folder(const ckpt *c, ckpt_sink *sinks, const char *path, bool force,
                              const ckpt_rule *rule, const json_t *quantization) {
    cli_folder folder;
    qn_status st = cli_folder_open(&folder, path, force);
    if (st != QN_OK)
        return st;
    for (int i = 0; i < c->num_shards; i++) {
        char *file = cli_path(folder.temp->path, c->shards[i].file);
        st = write_shard(&sinks[i], c, file, false, rule, quantization);
        free(file);
        if (st == QN_OK)
            st = cli_output_commit(&sinks[i].file);
        if (st != QN_OK)
            goto out;
    }
    CLI_TRY_OUT(write_config(c, folder.temp->path, quantization));
    if (c->index)
        CLI_TRY_OUT(write_index(c, sinks, folder.temp->path));
    CLI_TRY_OUT(copy_folder(c, c->path, folder.temp->path, 0));
    CLI_TRY_OUT(rule->finish(rule->context));
    st = cli_folder_commit(&folder);
    return st;
out:
    cli_folder_discard(&folder);
    return st;
}

qn_status ckpt_rewrite(const ckpt *c, const char *path, bool force, const ckpt_rule *rule,
                       int64_t *bytes_out) {
    ckpt_sink *sinks = cli_alloc((size_t)c->num_shards * sizeof *sinks);
    json_t *quantization = nullptr;
    int64_t bytes_in = 0;
    int planned = 0;
    *bytes_out = 0;
    qn_status st;
    CLI_TRY_OUT(check_apart(c, path));
    for (; planned < c->num_shards; planned++) {
        bytes_in += c->shards[planned].map.bytes - c->shards[planned].header.data_offset;
        st = plan_shard(&sinks[planned], c, &c->shards[planned], rule);
        if (st != QN_OK) {
            planned++; // free what it has planned so far
            goto out;
        }
        *bytes_out += sinks[planned].data_bytes;
    }
    quantization = rule->quantization(rule->context);
    cli_progress_begin("writing", bytes_in);
    st = c->is_folder ? write_folder(c, sinks, path, force, rule, quantization)
                      : write_file(c, sinks, path, force, rule, quantization);
    cli_progress_end();
out:
    for (int i = 0; i < planned; i++)
        sink_free(&sinks[i]);
    free(sinks);
    json_decref(quantization);
    return st;
}
