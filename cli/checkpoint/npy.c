// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy format: a magic, a version, a length, and a Python dictionary that describes the
// array. Source: numpy.lib.format, versions 1.0 to 3.0.
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Returns the text behind 'key': in the header; null if there is no such key. */
static const char *entry(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at)
        return nullptr;
    at += strlen(quoted);
    at += strspn(at, " ");
    return *at == ':' ? at + 1 + strspn(at + 1, " ") : nullptr;
}

static qn_status read_dtype(npy *out, const char *path, const char *header) {
    static const struct {
        const char *text;
        DLDataType dtype;
    } known[] = {{"'<f4'", {kDLFloat, 32, 1}},
                 {"'<f2'", {kDLFloat, 16, 1}},
                 {"'|V2'", {kDLBfloat, 16, 1}},
                 {"'<V2'", {kDLBfloat, 16, 1}}};
    const char *descr = entry(header, "descr");
    for (size_t i = 0; descr && i < sizeof known / sizeof *known; i++)
        if (strncmp(descr, known[i].text, strlen(known[i].text)) == 0) {
            out->dtype = known[i].dtype;
            return QN_OK;
        }
    return cli_fail(QN_E_INVALID,
                    "%s: dtype is %.*s, accepted: '<f4' (f32), '<f2' (f16), '|V2' (bf16)", path,
                    descr ? (int)strcspn(descr, ",}") : 7, descr ? descr : "missing");
}

static bool read_size(const char **at, int64_t *size) {
    char *end;
    errno = 0;
    *size = strtoll(*at, &end, 10);
    const bool is_read = end != *at && !errno && *size >= 0;
    *at = end + strspn(end, ", ");
    return is_read;
}

static qn_status read_shape(npy *out, const char *path, const char *header) {
    const char *order = entry(header, "fortran_order"), *shape = entry(header, "shape");
    if (!order || strncmp(order, "False", 5) != 0)
        return cli_fail(QN_E_INVALID,
                        "%s: is in Fortran order, accepted: C order (rows contiguous)", path);
    const char *at = shape ? shape + 1 : "";
    if (!shape || *shape != '(' || !read_size(&at, &out->rows) || !read_size(&at, &out->cols) ||
        *at != ')')
        return cli_fail(QN_E_INVALID, "%s: shape is %.*s, accepted: two dimensions, (m, k)", path,
                        shape ? (int)strcspn(shape, ")") + 1 : 7, shape ? shape : "missing");
    return QN_OK;
}

static qn_status check_bytes(const npy *out, const char *path, int64_t found) {
    int64_t count, bytes;
    if (__builtin_mul_overflow(out->rows, out->cols, &count) ||
        __builtin_mul_overflow(count, (int64_t)out->dtype.bits / 8, &bytes) || bytes != found)
        return cli_fail(QN_E_INVALID,
                        "%s: holds %" PRId64 " bytes of data, a matrix of %" PRId64 " x %" PRId64
                        " of %d bytes needs another number",
                        path, found, out->rows, out->cols, out->dtype.bits / 8);
    return QN_OK;
}

qn_status npy_parse(npy *out, const char *path, const void *data, int64_t size) {
    const uint8_t *d = data;
    if (size < 12 || memcmp(d, "\x93NUMPY", 6) != 0)
        return cli_fail(QN_E_INVALID, "%s: no .npy file: it does not start with \\x93NUMPY", path);
    const int64_t start = d[6] == 1 ? 10 : 12;
    int64_t length = d[8] | d[9] << 8;
    if (start == 12)
        length |= (int64_t)d[10] << 16 | (int64_t)d[11] << 24;
    if (d[6] < 1 || d[6] > 3 || length > size - start)
        return cli_fail(QN_E_INVALID, "%s: truncated, or of version %d (accepted: 1 to 3)", path,
                        d[6]);
    out->data = d + start + length;
    char *header = cli_text("%.*s", (int)length, (const char *)d + start);
    qn_status st = read_dtype(out, path, header);
    if (st == QN_OK)
        st = read_shape(out, path, header);
    if (st == QN_OK)
        st = check_bytes(out, path, size - start - length);
    free(header);
    return st;
}

qn_status npy_open(npy *out, const char *path) {
    *out = (npy){0};
    qn_status st = cli_map_open(&out->map, path);
    if (st != QN_OK)
        return st;
    if ((st = npy_parse(out, path, out->map.data, out->map.bytes)) != QN_OK)
        npy_close(out);
    return st;
}

void npy_close(npy *array) {
    cli_map_close(&array->map);
    *array = (npy){0};
}

qn_status npy_write(cli_output *out, const char *path, const float *data, int64_t rows,
                    int64_t cols, bool force) {
    char header[128]; // 10 bytes, then text padded with blanks and ended by a newline
    char *dictionary =
        cli_text("{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 rows, cols);
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); // 0x76: the 118 bytes that follow
    memcpy(header + 10, dictionary, strlen(dictionary));
    header[sizeof header - 1] = '\n';
    free(dictionary);
    CLI_TRY(cli_output_open(out, path, (int64_t)sizeof header + rows * cols * 4, force));
    CLI_TRY(cli_output_write(out, header, sizeof header, 0));
    return cli_output_write(out, data, rows * cols * 4, sizeof header);
}
