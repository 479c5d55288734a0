// SPDX-License-Identifier: Apache-2.0
// What the examples that run a checkpoint share: errors, JSON, and tensors in safetensors files. A
// program defines _GNU_SOURCE, includes this header first, and links jansson.
#ifndef EXAMPLES_CHECKPOINT_H
#define EXAMPLES_CHECKPOINT_H

#include <quern/quern.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

__attribute__((noreturn)) static inline void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static inline void check(qn_status status) {
    if (status != QN_OK)
        fail("%s", qn_last_error());
}

static inline void *allocate_host(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        fail("out of memory");
    return memory;
}

// ---- JSON

static inline json_t *read_json(const char *folder, const char *name, int is_needed) {
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!is_needed && access(path, F_OK) != 0)
        return NULL;
    json_t *root = json_load_file(path, 0, &error);
    if (!json_is_object(root))
        fail("%s: %s", path, root ? "no JSON object" : error.text);
    return root;
}

static inline int64_t integer(const json_t *config, const char *name, int64_t fallback) {
    const json_t *value = json_object_get(config, name);
    const int64_t result = json_is_integer(value) ? json_integer_value(value) : fallback;
    if (result < 1 || result > INT32_MAX)
        fail("config.json: %s is missing, or not a number from 1 on", name);
    return result;
}

// ---- tensors

/** A safetensors file in memory: eight bytes of the header's length, the header, the data. */
typedef struct shard {
    char path[4096];
    const unsigned char *bytes;
    size_t data, size; // where the data begin, and where the file ends
    json_t *header;
} shard;

enum { MAX_SHARDS = 256 };

typedef struct tensor_shape {
    struct tensor_shape *next;
    int64_t sizes[2];
} tensor_shape;

typedef struct checkpoint {
    const char *folder;
    json_t *index, *map; // which file has a tensor; NULL: model.safetensors has all
    shard shards[MAX_SHARDS];
    int num_shards;
    tensor_shape *shapes; // of the tensors that were asked for
} checkpoint;

static inline void open_shard(shard *s, const char *folder, const char *name) {
    struct stat about;
    uint64_t length = 0;
    json_error_t error;
    snprintf(s->path, sizeof s->path, "%s/%s", folder, name);
    const int file = open(s->path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) != 0)
        fail("%s: cannot be opened", s->path);
    s->size = (size_t)about.st_size;
    s->bytes = mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (s->bytes == MAP_FAILED)
        fail("%s: cannot be read", s->path);
    if (s->size >= sizeof length)
        memcpy(&length, s->bytes, sizeof length); // little-endian, as this machine
    if (s->size < sizeof length || length > s->size - sizeof length)
        fail("%s: no safetensors file: its header does not fit into it", s->path);
    s->data = sizeof length + length;
    s->header = json_loadb((const char *)s->bytes + sizeof length, length, 0, &error);
    if (!json_is_object(s->header))
        fail("%s: no safetensors file: its header is no JSON object", s->path);
}

static inline void open_checkpoint(checkpoint *c, const char *folder) {
    c->folder = folder;
    c->num_shards = 0;
    c->shapes = NULL;
    c->index = read_json(folder, "model.safetensors.index.json", 0);
    c->map = json_object_get(c->index, "weight_map");
}

static inline void close_checkpoint(checkpoint *c) {
    for (int i = 0; i < c->num_shards; i++) {
        json_decref(c->shards[i].header);
        munmap((void *)c->shards[i].bytes, c->shards[i].size);
    }
    for (tensor_shape *shape = c->shapes, *next; shape; shape = next) {
        next = shape->next;
        free(shape);
    }
    json_decref(c->index);
}

/** Returns the shard that has a tensor; NULL if the checkpoint has none of that name. */
static inline shard *shard_of(checkpoint *c, const char *tensor) {
    const char *name = "model.safetensors";
    if (c->map && !(name = json_string_value(json_object_get(c->map, tensor))))
        return NULL;
    for (int i = 0; i < c->num_shards; i++)
        if (strcmp(c->shards[i].path + strlen(c->folder) + 1, name) == 0)
            return &c->shards[i];
    if (c->num_shards == MAX_SHARDS)
        fail("%s: more than %d files", c->folder, MAX_SHARDS);
    open_shard(&c->shards[c->num_shards], c->folder, name);
    return &c->shards[c->num_shards++];
}

static inline DLDataType dtype_of(const char *path, const char *tensor, const char *name) {
    static const struct {
        const char *name;
        DLDataType dtype;
    } known[] = {{"BF16", {kDLBfloat, 16, 1}},
                 {"F16", {kDLFloat, 16, 1}},
                 {"F32", {kDLFloat, 32, 1}},
                 {"F8_E4M3", {kDLFloat8_e4m3fn, 8, 1}}};
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0)
            return known[i].dtype;
    fail("%s: %s is %s; accepted: BF16, F16, F32, F8_E4M3", path, tensor,
         name ? name : "of no dtype");
}

static inline int is_dtype(const DLTensor *t, DLDataType dtype) {
    return t->dtype.code == dtype.code && t->dtype.bits == dtype.bits;
}

/** Describes a tensor [rows, columns], or [columns] if rows is 0, where it lies in its file, until
 *  the checkpoint is closed. */
static inline DLTensor find(checkpoint *c, const char *tensor, int64_t rows, int64_t columns) {
    shard *s = shard_of(c, tensor);
    const json_t *entry = s ? json_object_get(s->header, tensor) : NULL;
    if (!entry)
        fail("%s: no tensor %s", c->folder, tensor);
    const int ndim = rows ? 2 : 1;
    tensor_shape *keep = allocate_host(sizeof *keep);
    *keep = (tensor_shape){.next = c->shapes, .sizes = {rows ? rows : columns, columns}};
    c->shapes = keep;
    int64_t *shape = keep->sizes;
    const json_t *found = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    int is_good = json_array_size(found) == (size_t)ndim && json_array_size(offsets) == 2;
    for (int i = 0; is_good && i < ndim; i++)
        is_good = json_integer_value(json_array_get(found, (size_t)i)) == shape[i];
    if (!is_good)
        fail("%s: %s does not have the shape that config.json asks for", s->path, tensor);
    const DLDataType dtype =
        dtype_of(s->path, tensor, json_string_value(json_object_get(entry, "dtype")));
    const uint64_t bytes = (uint64_t)shape[0] * (rows ? (uint64_t)columns : 1) * dtype.bits / 8,
                   begin = (uint64_t)json_integer_value(json_array_get(offsets, 0)),
                   end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    if (begin > end || end - begin != bytes || end > s->size - s->data)
        fail("%s: the data of %s are not where the header says", s->path, tensor);
    return (DLTensor){.data = (void *)(s->bytes + s->data + begin),
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = dtype,
                      .shape = shape};
}

#endif
