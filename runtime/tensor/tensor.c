// SPDX-License-Identifier: Apache-2.0
// DLPack tensors: the dtypes that quern knows, strides, and checks whose messages name the
// argument.
#include "../runtime.h"

#include <string.h>

const char *const qni_dtype_words[QNI_NUM_DTYPES + 1] = {
    [QNI_F32] = "f32",
    [QNI_F16] = "f16",
    [QNI_BF16] = "bf16",
    [QNI_E4M3FN] = "e4m3fn",
    [QNI_E4M3FNUZ] = "e4m3fnuz",
    [QNI_E5M2] = "e5m2",
    [QNI_E5M2FNUZ] = "e5m2fnuz",
    [QNI_I32] = "i32",
    [QNI_U8] = "u8",
    [QNI_I8] = "i8",
    [QNI_E8M0FNU] = "e8m0fnu",
    [QNI_I64] = "i64",
    [QNI_F64] = "f64",
    [QNI_BOOL] = "bool",
    [QNI_U64] = "u64",
};
const char *const qni_no_yes_words[3] = {"no", "yes"};

static const DLDataType dtypes[QNI_NUM_DTYPES] = {
    [QNI_F32] = {kDLFloat, 32, 1},
    [QNI_F16] = {kDLFloat, 16, 1},
    [QNI_BF16] = {kDLBfloat, 16, 1},
    [QNI_E4M3FN] = {kDLFloat8_e4m3fn, 8, 1},
    [QNI_E4M3FNUZ] = {kDLFloat8_e4m3fnuz, 8, 1},
    [QNI_E5M2] = {kDLFloat8_e5m2, 8, 1},
    [QNI_E5M2FNUZ] = {kDLFloat8_e5m2fnuz, 8, 1},
    [QNI_I32] = {kDLInt, 32, 1},
    [QNI_U8] = {kDLUInt, 8, 1},
    [QNI_I8] = {kDLInt, 8, 1},
    [QNI_E8M0FNU] = {kDLFloat8_e8m0fnu, 8, 1},
    [QNI_I64] = {kDLInt, 64, 1},
    [QNI_F64] = {kDLFloat, 64, 1},
    [QNI_BOOL] = {kDLBool, 8, 1},
    [QNI_U64] = {kDLUInt, 64, 1},
};

qni_dtype qni_dtype_of(const DLTensor *t) {
    for (int i = 0; i < QNI_NUM_DTYPES; i++) {
        const DLDataType *dl = &dtypes[i];
        if (dl->code == t->dtype.code && dl->bits == t->dtype.bits && dl->lanes == t->dtype.lanes)
            return (qni_dtype)i;
    }
    return QNI_DTYPE_NONE;
}

DLDataType qni_dl_dtype(qni_dtype dtype) {
    return dtypes[dtype];
}

const char *qni_dtype_name(qni_dtype dtype) {
    return dtype >= 0 && dtype < QNI_NUM_DTYPES ? qni_dtype_words[dtype] : "?";
}

const char *qni_dtype_text(const DLTensor *t) {
    static const struct {
        const char *name;
        DLDataType dl;
    } others[] = {{"i16", {kDLInt, 16, 1}},           {"u16", {kDLUInt, 16, 1}},
                  {"u32", {kDLUInt, 32, 1}},          {"u64", {kDLUInt, 64, 1}},
                  {"complex64", {kDLComplex, 64, 1}}, {"complex128", {kDLComplex, 128, 1}}};
    const qni_dtype dtype = qni_dtype_of(t);
    for (size_t i = 0; dtype == QNI_DTYPE_NONE && i < sizeof others / sizeof *others; i++)
        if (others[i].dl.code == t->dtype.code && others[i].dl.bits == t->dtype.bits &&
            others[i].dl.lanes == t->dtype.lanes)
            return others[i].name;
    return qni_dtype_name(dtype);
}

int64_t qni_dtype_bytes(qni_dtype dtype) {
    return dtypes[dtype].bits / 8;
}

/** A cursor over a text buffer: appends what fits, never writes past the end. */
typedef struct text_out {
    char *at, *end;
} text_out;

__attribute__((format(printf, 2, 3))) static void put(text_out *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(out->at, (size_t)(out->end - out->at), format, args);
    va_end(args);
    if (n > 0)
        out->at = n < out->end - out->at ? out->at + n : out->end - 1;
}

static void put_list(text_out *out, const int64_t *values, int count) {
    put(out, "[");
    for (int i = 0; i < count; i++)
        put(out, "%s%ld", i ? ", " : "", (long)values[i]);
    put(out, "]");
}

const char *qni_sizes_text(const int64_t *sizes, int count, char *buf, size_t room) {
    text_out out = {buf, buf + room};
    put(&out, "[");
    for (int i = 0; i < count; i++)
        if (sizes[i] < 0)
            put(&out, "%sany", i ? ", " : "");
        else
            put(&out, "%s%ld", i ? ", " : "", (long)sizes[i]);
    put(&out, "]");
    return buf;
}

const char *qni_dtypes_text(uint32_t set, char *buf, size_t room) {
    text_out out = {buf, buf + room};
    *buf = 0;
    for (int i = 0; i < QNI_NUM_DTYPES; i++)
        if (set >> i & 1)
            put(&out, "%s%s", *buf ? ", " : "", qni_dtype_name((qni_dtype)i));
    return buf;
}

const char *qni_tensor_text(const DLTensor *t, char *buf, size_t room) {
    text_out out = {buf, buf + room};
    if (!t) {
        put(&out, "null");
        return buf;
    }
    put_list(&out, t->shape, t->ndim);
    const char *const dtype = qni_dtype_text(t);
    if (*dtype != '?')
        put(&out, " %s", dtype);
    else
        put(&out, " dtype(code %d, %d bits, %d lanes)", t->dtype.code, t->dtype.bits,
            t->dtype.lanes);
    if (t->strides && t->ndim > 0) {
        put(&out, " strides ");
        put_list(&out, t->strides, t->ndim);
    }
    return buf;
}

int64_t qni_stride(const DLTensor *t, int i) {
    if (t->strides)
        return t->strides[i];
    int64_t stride = 1;
    for (int d = t->ndim - 1; d > i; d--)
        stride *= t->shape[d];
    return stride;
}

int64_t qni_numel(const DLTensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool qni_is_empty(const DLTensor *t) {
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] == 0)
            return true;
    return false;
}

bool qni_is_contiguous(const DLTensor *t) {
    int64_t want = 1;
    if (!t->strides || qni_is_empty(t))
        return true;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != want)
            return false;
        want *= t->shape[i];
    }
    return true;
}

/** Returns the bytes of an element, at least 1, so that a dtype without bits, which ops refuse by
 *  name, hides no overflow. */
static int64_t counted_bytes(const DLTensor *t) {
    const int64_t bits = t->dtype.bits * t->dtype.lanes;
    return bits > 8 ? (bits + 7) / 8 : 1;
}

/** The most bytes of a tensor. Room is left above, as ops may add two tensors' sizes, or round one
 *  up to whole blocks. */
constexpr int64_t max_bytes = (1ll << 62) - 1;

/** Returns whether a shape has more than max_bytes, with which later bound checks would be wrong. A
 *  dimension of 0 does not hide this. */
static bool size_overflows(const DLTensor *t) {
    int64_t bytes = counted_bytes(t);
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] > 0 &&
            (__builtin_mul_overflow(bytes, t->shape[i], &bytes) || bytes > max_bytes))
            return true;
    return false;
}

/** Returns whether the bytes from the lowest element to the highest are more than max_bytes.
 *  Strides may have either sign; strides of dimensions of 1 do not count. */
static bool reach_overflows(const DLTensor *t) {
    const int64_t size = counted_bytes(t);
    int64_t bytes = size, far;
    if (!t->strides || qni_is_empty(t))
        return false;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 1)
            continue;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &far) || far == INT64_MIN ||
            __builtin_mul_overflow(far < 0 ? -far : far, size, &far) ||
            __builtin_add_overflow(bytes, far, &bytes) || bytes > max_bytes)
            return true;
    }
    return false;
}

static qn_status check_device(const qn_stream *stream, const char *op, const char *name,
                              const DLTensor *t) {
    DLDevice want = stream->device->id;
    if (t->device.device_type == want.device_type && t->device.device_id == want.device_id)
        return QN_OK;
    return QN_FAIL(QN_E_INVALID,
                   "%s: %s is on DLPack device (%d, %d), the stream's device %s is (%d, %d)", op,
                   name, (int)t->device.device_type, t->device.device_id, stream->device->info.spec,
                   (int)want.device_type, want.device_id);
}

qn_status qni_check_sizes(const char *op, const char *name, const DLTensor *t, int ndim) {
    char text[256];
    if (!t)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null", op, name);
    if (t->ndim != ndim)
        return QN_FAIL(QN_E_INVALID, "%s: %s has %d dimensions, needs %d", op, name, t->ndim, ndim);
    if (ndim > 0 && !t->shape)
        return QN_FAIL(QN_E_INVALID, "%s: %s has a null shape", op, name);
    for (int i = 0; i < ndim; i++)
        if (t->shape[i] < 0)
            return QN_FAIL(QN_E_INVALID, "%s: %s is %s; sizes must be at least 0", op, name,
                           qni_tensor_text(t, text, sizeof text));
    if (size_overflows(t))
        return QN_FAIL(QN_E_INVALID, "%s: %s is %s, more bytes than 62 bits can count", op, name,
                       qni_tensor_text(t, text, sizeof text));
    return QN_OK;
}

qn_status qni_check_tensor(const qn_stream *stream, const char *op, const char *name,
                           const DLTensor *t, int ndim) {
    char text[256];
    if (!stream)
        return QN_FAIL(QN_E_INVALID, "%s: stream is null", op);
    const qn_status st = qni_check_sizes(op, name, t, ndim);
    if (st != QN_OK)
        return st;
    if (reach_overflows(t))
        return QN_FAIL(QN_E_INVALID,
                       "%s: %s is %s; it reaches over more bytes than 62 bits can count", op, name,
                       qni_tensor_text(t, text, sizeof text));
    if (!t->data && !qni_is_empty(t))
        return QN_FAIL(QN_E_INVALID, "%s: %s is %s with null data", op, name,
                       qni_tensor_text(t, text, sizeof text));
    return check_device(stream, op, name, t);
}

qn_status qni_check_shape(const char *op, const char *name, const DLTensor *t, int ndim,
                          const int64_t *want) {
    bool equal = t->ndim == ndim;
    for (int i = 0; equal && i < ndim; i++)
        equal = want[i] < 0 || t->shape[i] == want[i];
    if (equal)
        return QN_OK;
    char needs[192], has[192];
    return QN_FAIL(QN_E_INVALID, "%s: %s has shape %s, needs %s", op, name,
                   qni_sizes_text(t->shape, t->ndim, has, sizeof has),
                   qni_sizes_text(want, ndim, needs, sizeof needs));
}
