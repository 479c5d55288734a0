// SPDX-License-Identifier: Apache-2.0
// The safetensors format: reads a header from untrusted bytes, and writes one.
//
// A file is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes.
// The header maps each name to a dtype, a shape and two offsets into the bytes; the tensors fill
// the bytes without holes and without overlap. "__metadata__" maps strings to strings.
#ifndef CLI_SAFETENSORS_H
#define CLI_SAFETENSORS_H

#include "../cli.h"

enum { ST_MAX_DIMS = 16, ST_MAX_HEADER = 100'000'000 }; // the second is the format's own limit

typedef struct st_dtype {
    const char *name;
    int bits;      // an element's size; 4 and 6 for the packed kinds
    DLDataType dl; // bits == 0: no DLPack type that quern uses
} st_dtype;

typedef struct st_tensor {
    char *name;
    const st_dtype *dtype;
    int ndim;
    int64_t shape[ST_MAX_DIMS];
    int64_t begin, end; // bytes from the start of the data
} st_tensor;

typedef struct st_header {
    st_tensor *tensors; // sorted by name
    int64_t count;
    json_t *metadata;    // strings; null if there are none
    int64_t data_offset; // where the data starts in the file
} st_header;

/** Returns the dtype called name; null if the format has no such dtype. */
const st_dtype *st_dtype_find(const char *name);
/** Reads and checks the header of a whole file of `bytes` bytes; `file` is its name in messages.
 *  Errors: QN_E_INVALID; the message says which tensor is wrong and how. */
qn_status st_parse(st_header *out, const char *file, const void *data, int64_t bytes);
void st_free(st_header *header);
const st_tensor *st_find(const st_header *header, const char *name);
int64_t st_numel(const st_tensor *tensor);
/** Writes "[3, 128] F32" to buf, for messages, and returns buf. */
const char *st_text(const st_tensor *tensor, char *buf, size_t room);

/** Orders tensors, given by their addresses, as the format's own library does (widest dtype first,
 *  then by name, so that every tensor is aligned) and sets their offsets. Returns the data's
 *  size. */
int64_t st_layout(st_tensor **tensors, int64_t count);
/** Returns the length and the JSON header, padded to 8 bytes, for tensors that st_layout has
 *  placed; metadata may be null. The caller frees the text. */
char *st_header_make(st_tensor *const *tensors, int64_t count, json_t *metadata, int64_t *bytes);

#endif
