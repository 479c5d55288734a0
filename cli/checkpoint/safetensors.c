// SPDX-License-Identifier: Apache-2.0
// The safetensors format. Every number in a header is checked before it is used: the input is
// untrusted.
#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const st_dtype dtypes[] = {
    {"BOOL", 8, {0}},
    {"U8", 8, {kDLUInt, 8, 1}},
    {"I8", 8, {0}},
    {"F4", 4, {0}},
    {"F6_E2M3", 6, {0}},
    {"F6_E3M2", 6, {0}},
    {"F8_E5M2", 8, {kDLFloat8_e5m2, 8, 1}},
    {"F8_E4M3", 8, {kDLFloat8_e4m3fn, 8, 1}},
    {"F8_E8M0", 8, {0}},
    {"F8_E4M3FNUZ", 8, {kDLFloat8_e4m3fnuz, 8, 1}},
    {"F8_E5M2FNUZ", 8, {kDLFloat8_e5m2fnuz, 8, 1}},
    {"I16", 16, {0}},
    {"U16", 16, {0}},
    {"F16", 16, {kDLFloat, 16, 1}},
    {"BF16", 16, {kDLBfloat, 16, 1}},
    {"I32", 32, {kDLInt, 32, 1}},
    {"U32", 32, {0}},
    {"F32", 32, {kDLFloat, 32, 1}},
    {"C64", 64, {0}},
    {"F64", 64, {kDLFloat, 64, 1}},
    {"I64", 64, {0}},
    {"U64", 64, {0}},
};

const st_dtype *st_dtype_find(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return nullptr;
}

int64_t st_numel(const st_tensor *tensor) {
    int64_t n = 1;
    for (int i = 0; i < tensor->ndim; i++)
        n *= tensor->shape[i];
    return n;
}

const char *st_text(const st_tensor *t, char *buf, size_t room) {
    size_t used = 0;
    for (int i = 0; i < t->ndim && used < room; i++)
        used +=
            (size_t)snprintf(buf + used, room - used, "%s%" PRId64, i ? ", " : "[", t->shape[i]);
    if (used < room)
        snprintf(buf + used, room - used, "%s %s", t->ndim ? "]" : "[]", t->dtype->name);
    return buf;
}

// ---- reading

static qn_status read_shape(st_tensor *t, const char *file, const json_t *shape) {
    const size_t ndim = json_array_size(shape);
    if (!json_is_array(shape) || ndim > ST_MAX_DIMS)
        return cli_fail(QN_E_INVALID, "%s: tensor %s: shape is no array of at most %d numbers",
                        file, t->name, ST_MAX_DIMS);
    t->ndim = (int)ndim;
    int64_t numel = 1;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *value = json_array_get(shape, i);
        t->shape[i] = json_integer_value(value);
        if (!json_is_integer(value) || t->shape[i] < 0)
            return cli_fail(QN_E_INVALID,
                            "%s: tensor %s: shape[%zu] is %lld, accepted: whole numbers from 0",
                            file, t->name, i, (long long)t->shape[i]);
        if (__builtin_mul_overflow(numel, t->shape[i], &numel))
            return cli_fail(QN_E_INVALID, "%s: tensor %s: shape has more than 2^63 elements", file,
                            t->name);
    }
    return QN_OK;
}

static qn_status read_dtype(st_tensor *t, const char *file, const json_t *dtype) {
    const char *name = json_string_value(dtype);
    t->dtype = name ? st_dtype_find(name) : nullptr;
    if (t->dtype)
        return QN_OK;
    char accepted[256] = "";
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, "%s%s", i ? " " : "", dtypes[i].name);
    }
    return cli_fail(QN_E_INVALID, "%s: tensor %s: dtype is %s, accepted: %s", file, t->name,
                    name ? name : "no string", accepted);
}

/** Reads offsets, which must lie in the data and hold exactly the shape's elements. */
static qn_status read_offsets(st_tensor *t, const char *file, const json_t *offsets,
                              int64_t data_bytes) {
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return cli_fail(QN_E_INVALID, "%s: tensor %s: data_offsets are not two whole numbers", file,
                        t->name);
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    if (t->begin < 0 || t->end < t->begin || t->end > data_bytes)
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s: data_offsets [%" PRId64 ", %" PRId64
                        "] are outside the file's %" PRId64 " bytes of data",
                        file, t->name, t->begin, t->end, data_bytes);
    int64_t bits = 0;
    if (__builtin_mul_overflow(st_numel(t), (int64_t)t->dtype->bits, &bits) || bits % 8 != 0 ||
        bits / 8 != t->end - t->begin) {
        char text[256];
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s: data_offsets hold %" PRId64 " bytes, %s needs %" PRId64,
                        file, t->name, t->end - t->begin, st_text(t, text, sizeof text), bits / 8);
    }
    return QN_OK;
}

static qn_status read_tensor(st_tensor *t, const char *file, const char *name, const json_t *value,
                             int64_t data_bytes) {
    t->name = cli_text("%s", name);
    if (!json_is_object(value) || json_object_size(value) != 3)
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s: its entry is not {dtype, shape, data_offsets}", file, name);
    qn_status st;
    if ((st = read_dtype(t, file, json_object_get(value, "dtype"))) != QN_OK ||
        (st = read_shape(t, file, json_object_get(value, "shape"))) != QN_OK)
        return st;
    return read_offsets(t, file, json_object_get(value, "data_offsets"), data_bytes);
}

static qn_status read_metadata(st_header *out, const char *file, json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return cli_fail(QN_E_INVALID, "%s: __metadata__ is no object", file);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return cli_fail(
        QN_E_INVALID, "%s: __metadata__ %s is no string", file, key);
    out->metadata = json_incref(metadata);
    return QN_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const st_tensor *)a)->name, ((const st_tensor *)b)->name);
}

static int by_offset(const void *a, const void *b) {
    const st_tensor *x = *(const st_tensor *const *)a, *y = *(const st_tensor *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1
                           : x->end > y->end; // empty tensors come before the tensor that starts
                                              // where they lie
}

/** Checks that the tensors follow each other from 0 to the end of the data. */
static qn_status check_coverage(const st_header *h, const char *file, int64_t data_bytes) {
    const st_tensor **order = cli_alloc((size_t)h->count * sizeof *order);
    for (int64_t i = 0; i < h->count; i++)
        order[i] = &h->tensors[i];
    qsort(order, (size_t)h->count, sizeof *order, by_offset);
    int64_t end = 0;
    qn_status st = QN_OK;
    for (int64_t i = 0; st == QN_OK && i < h->count; end = order[i++]->end)
        if (order[i]->begin != end)
            st = cli_fail(QN_E_INVALID,
                          "%s: tensor %s: starts at byte %" PRId64
                          " of the data, which %s byte %" PRId64 ", where %s ends",
                          file, order[i]->name, order[i]->begin,
                          order[i]->begin < end ? "overlaps" : "leaves a hole after", end,
                          i ? order[i - 1]->name : "the header");
    if (st == QN_OK && end != data_bytes)
        st = cli_fail(QN_E_INVALID, "%s: %" PRId64 " bytes of data, the tensors fill %" PRId64,
                      file, data_bytes, end);
    free(order);
    return st;
}

static qn_status read_entries(st_header *out, const char *file, json_t *root, int64_t data_bytes) {
    const char *name;
    json_t *value;
    out->tensors = cli_alloc(json_object_size(root) * sizeof *out->tensors);
    json_object_foreach(root, name, value) {
        qn_status st =
            strcmp(name, "__metadata__") == 0
                ? read_metadata(out, file, value)
                : read_tensor(&out->tensors[out->count++], file, name, value, data_bytes);
        if (st != QN_OK)
            return st;
    }
    qsort(out->tensors, (size_t)out->count, sizeof *out->tensors, by_name);
    return check_coverage(out, file, data_bytes);
}

static qn_status read_length(int64_t *out, const char *file, const uint8_t *bytes, int64_t size) {
    if (size < 8)
        return cli_fail(QN_E_INVALID,
                        "%s: %" PRId64 " bytes long, a safetensors file has at least 8", file,
                        size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > ST_MAX_HEADER)
        return cli_fail(QN_E_INVALID, "%s: header of %" PRIu64 " bytes, accepted: at most %d", file,
                        length, ST_MAX_HEADER);
    if ((int64_t)length > size - 8)
        return cli_fail(QN_E_INVALID,
                        "%s: truncated: header of %" PRIu64 " bytes in a file of %" PRId64, file,
                        length, size);
    *out = (int64_t)length;
    return QN_OK;
}

qn_status st_parse(st_header *out, const char *file, const void *data, int64_t bytes) {
    *out = (st_header){0};
    int64_t length = 0;
    qn_status st = read_length(&length, file, data, bytes);
    if (st != QN_OK)
        return st;
    out->data_offset = 8 + length;
    json_error_t error;
    json_t *root =
        json_loadb((const char *)data + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return cli_fail(QN_E_INVALID, "%s: header is not valid JSON: %s (byte %d)", file,
                        error.text, error.position);
    st = json_is_object(root) ? read_entries(out, file, root, bytes - 8 - length)
                              : cli_fail(QN_E_INVALID, "%s: header is no JSON object", file);
    json_decref(root);
    if (st != QN_OK)
        st_free(out);
    return st;
}

void st_free(st_header *header) {
    for (int64_t i = 0; i < header->count; i++)
        free(header->tensors[i].name);
    free(header->tensors);
    json_decref(header->metadata);
    *header = (st_header){0};
}

const st_tensor *st_find(const st_header *header, const char *name) {
    st_tensor key = {.name = (char *)name};
    return header->count
               ? bsearch(&key, header->tensors, (size_t)header->count, sizeof key, by_name)
               : nullptr;
}

// ---- writing

static int by_width(const void *a, const void *b) {
    const st_tensor *x = *(const st_tensor *const *)a, *y = *(const st_tensor *const *)b;
    return x->dtype->bits != y->dtype->bits ? y->dtype->bits - x->dtype->bits
                                            : strcmp(x->name, y->name);
}

int64_t st_layout(st_tensor **tensors, int64_t count) {
    qsort(tensors, (size_t)count, sizeof *tensors, by_width);
    int64_t offset = 0;
    for (int64_t i = 0; i < count; i++) {
        tensors[i]->begin = offset;
        offset += st_numel(tensors[i]) * tensors[i]->dtype->bits / 8;
        tensors[i]->end = offset;
    }
    return offset;
}

char *st_header_make(st_tensor *const *tensors, int64_t count, json_t *metadata, int64_t *bytes) {
    json_t *root = json_object();
    if (metadata)
        cli_json_set(root, "__metadata__", json_incref(metadata));
    for (int64_t i = 0; i < count; i++) {
        const st_tensor *t = tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->ndim; d++)
            cli_json_add(shape, json_integer(t->shape[d]));
        cli_json_set(root, t->name,
                     cli_json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype->name, "shape", shape,
                                   "data_offsets", (json_int_t)t->begin, (json_int_t)t->end));
    }
    char *text = cli_json_dump(root, JSON_COMPACT);
    json_decref(root);
    const size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    char *header = cli_alloc(8 + padded);
    for (int i = 0; i < 8; i++)
        header[i] = (char)(padded >> 8 * i);
    memset(header + 8, ' ', padded);
    memcpy(header + 8, text, length);
    free(text);
    *bytes = 8 + (int64_t)padded;
    return header;
}
