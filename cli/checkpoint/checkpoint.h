// SPDX-License-Identifier: Apache-2.0
// Checkpoints: one safetensors file, or a folder of them with an index, config.json and other
// files; and rewriting one, tensor by tensor, in bounded memory.
#ifndef CLI_CHECKPOINT_H
#define CLI_CHECKPOINT_H

#include "../file.h"
#include "safetensors.h"

typedef struct ckpt_shard {
    char *file; // name in the folder
    cli_map map;
    st_header header;
} ckpt_shard;

typedef struct ckpt {
    char *path;
    bool is_folder;
    ckpt_shard *shards;
    int num_shards;
    json_t *index; // model.safetensors.index.json; null if there is none
    char *config;  // the text of config.json; null if there is none
} ckpt;

/** Opens a file or folder and checks it whole: headers, index, no tensor twice.
 *  Errors: QN_E_NOT_FOUND (file or shard missing), QN_E_INVALID, QN_E_IO. */
qn_status ckpt_open(ckpt *out, const char *path);
void ckpt_close(ckpt *c);
const st_tensor *ckpt_find(const ckpt *c, const char *name, const ckpt_shard **shard);
const void *ckpt_data(const ckpt_shard *shard, const st_tensor *tensor);
/** Returns the quantization_config of config.json, or of a lone file's metadata; null if there is
 *  none. The caller releases it. */
json_t *ckpt_quantization(const ckpt *c);

// ---- rewriting (rewrite.c)

/** What one tensor becomes: up to two other tensors, or a copy of itself. */
typedef struct ckpt_item {
    const st_tensor *in;
    st_tensor out[2];
    int num_out;
    bool is_copied;
} ckpt_item;

typedef struct ckpt_sink ckpt_sink;

typedef struct ckpt_rule {
    void *context;
    /** Decides on shard's tensor item->in; the item comes as a copy. Names are owned by the
     *  item. */
    qn_status (*plan)(void *context, const ckpt *c, const ckpt_shard *shard, ckpt_item *item);
    /** Writes the outputs of an item that is no copy, with ckpt_put. */
    qn_status (*write)(void *context, const ckpt *c, const ckpt_shard *shard, const ckpt_item *item,
                       ckpt_sink *sink);
    /** Called when all is written and *bytes_out is known, right before the result gets its name. A
     *  rule makes its report here, as this is the last place that may run out of memory. */
    qn_status (*finish)(void *context);
    /** Returns the quantization_config for the result; called after every tensor has been
     *  planned. */
    json_t *(*quantization)(void *context);
} ckpt_rule;

/** Writes c, changed by the rule, to `path`: a file for a file, a folder for a folder. Nothing is
 *  left there on failure. *bytes_out is the size of the tensors written. */
qn_status ckpt_rewrite(const ckpt *c, const char *path, bool force, const ckpt_rule *rule,
                       int64_t *bytes_out);
/** Writes part of an output tensor, `offset` bytes from its start. */
qn_status ckpt_put(ckpt_sink *sink, const st_tensor *out, int64_t offset, const void *data,
                   int64_t bytes);
/** Writes part of an output matrix: rows x cols elements, at `data` without gaps, which begin at
 *  row and col. */
qn_status ckpt_put_part(ckpt_sink *sink, const st_tensor *out, int64_t row, int64_t col,
                        const void *data, int64_t rows, int64_t cols);
/** The parts in which a matrix is best processed: whole blocks of about most_bytes, and whole rows
 *  if a block's rows fit into that. */
typedef struct ckpt_step {
    int64_t rows, cols;
} ckpt_step;
ckpt_step ckpt_step_of(const st_tensor *matrix, int64_t block, int64_t most_bytes);
/** Notes that bytes of the input have been processed: shows progress and releases pages. */
void ckpt_progress(const ckpt_shard *shard, const st_tensor *in, int64_t begin, int64_t end);
void ckpt_progress_part(const ckpt_shard *shard, const st_tensor *in, int64_t row, int64_t col,
                        int64_t rows, int64_t cols);

/** Adds or replaces "quantization_config" in config.json's text, and keeps every other byte. The
 *  caller frees the text. */
char *ckpt_config_with(const char *config, const json_t *quantization);

#endif
