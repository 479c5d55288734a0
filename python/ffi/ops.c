// SPDX-License-Identifier: Apache-2.0
// The library's ops as TVM-FFI functions __tvm_ffi_NAME: each line of ops.def becomes one.
//
// A call checks that its arguments are of the kinds that the line names, finds the stream, and
// calls the library, which checks all else. A status that is an error becomes a Python exception
// with the library's message.
#include "ffi.h"

#include <stdio.h>
#include <string.h>

typedef struct ffi_op {
    const char *name, *parameters;
    qn_status (*run)(qn_stream *stream, const TVMFFIAny *args);
} ffi_op;

// ---- errors

int ffi_raise(const char *kind, const char *message) {
    TVMFFIErrorSetRaisedFromCStr(kind, message);
    return -1;
}

int ffi_finish(qn_status status) {
    switch (status) {
    case QN_OK:
        return 0;
    case QN_E_INVALID:
        return ffi_raise("ValueError", qn_last_error());
    case QN_E_UNSUPPORTED:
        return ffi_raise("NotImplementedError", qn_last_error());
    case QN_E_MEMORY:
        return ffi_raise("MemoryError", qn_last_error());
    case QN_E_IO:
        return ffi_raise("OSError", qn_last_error());
    case QN_E_NOT_FOUND:
        return ffi_raise("LookupError", qn_last_error());
    default:
        return ffi_raise("RuntimeError", qn_last_error());
    }
}

// ---- arguments

/** One word of an op's parameters: "residual!?", "eps:f". */
typedef struct parameter {
    const char *name;
    int length;          // of the name
    char kind;           // 't' tensor, 'f' number, 'i' integer
    bool may_be_missing; // None is accepted
    bool is_host;        // bytes that the library reads on the CPU
    bool is_nonzero;     // 0, which C takes for "not given", is not
    bool is_narrow;      // an integer of 32 bits
    bool is_flag;        // 0 or 1
} parameter;

/** Reads the word that begins at text. Returns what follows the word; null at the end. */
static const char *next_parameter(parameter *out, const char *text) {
    text += strspn(text, " ");
    if (!*text)
        return nullptr;
    const size_t whole = strcspn(text, " "), name = strcspn(text, "!?@: ");
    const char *colon = memchr(text, ':', whole);
    *out = (parameter){.name = text,
                       .length = (int)name,
                       .kind = colon ? colon[1] : 't',
                       .may_be_missing = memchr(text, '?', whole) != nullptr,
                       .is_host = memchr(text, '@', whole) != nullptr,
                       .is_nonzero = memchr(text, '*', whole) != nullptr,
                       .is_narrow = colon && memchr(colon, '3', whole - name) != nullptr,
                       .is_flag = colon && memchr(colon, '1', whole - name) != nullptr};
    return text + whole;
}

static bool fits(const parameter *p, const TVMFFIAny *arg) {
    const bool is_integer = arg->type_index == kTVMFFIInt || arg->type_index == kTVMFFIBool;
    if (p->kind == 'i')
        return is_integer;
    if (p->kind == 'f')
        return is_integer || arg->type_index == kTVMFFIFloat;
    return ffi_tensor(arg) || (arg->type_index == kTVMFFINone && p->may_be_missing);
}

static int raise_misfit(const char *op, const parameter *p, const TVMFFIAny *arg) {
    char text[256];
    const char *needs = p->kind == 'i'      ? "an integer"
                        : p->kind == 'f'    ? "a number"
                        : p->may_be_missing ? "a tensor (anything with __dlpack__) or None"
                                            : "a tensor (anything with __dlpack__)";
    snprintf(text, sizeof text, "%s: %.*s is %s, needs %s", op, p->length, p->name,
             arg->type_index == kTVMFFINone ? "None" : "something else", needs);
    return ffi_raise("TypeError", text);
}

static bool is_zero(const TVMFFIAny *arg) {
    return arg->type_index == kTVMFFIFloat ? (float)arg->v_float64 == 0 : arg->v_int64 == 0;
}

/** Returns whether a tensor is what a parameter of the CPU's takes: bytes in a row, there. */
static bool is_host_bytes(const DLTensor *t) {
    return t->device.device_type == kDLCPU && t->ndim == 1 && t->dtype.code == kDLUInt &&
           t->dtype.bits == 8 && t->dtype.lanes == 1 &&
           (!t->strides || t->strides[0] == 1 || t->shape[0] <= 1);
}

/** Raises for an argument of the right kind that C takes for another one. */
static int check_value(const char *op, const parameter *p, const TVMFFIAny *arg) {
    char text[256];
    const DLTensor *const t = p->is_host ? ffi_tensor(arg) : nullptr;
    if (t && !is_host_bytes(t))
        snprintf(text, sizeof text, "%s: %.*s is %s; accepted: u8 in one row, on the CPU", op,
                 p->length, p->name,
                 t->device.device_type == kDLCPU ? "another kind of tensor" : "on another device");
    else if (p->is_nonzero && is_zero(arg))
        snprintf(text, sizeof text, "%s: %.*s is 0; accepted: above 0, finite", op, p->length,
                 p->name);
    else if (p->is_narrow && arg->v_int64 != (int32_t)arg->v_int64)
        snprintf(text, sizeof text, "%s: %.*s is %ld; accepted: at most 32 bits", op, p->length,
                 p->name, (long)arg->v_int64);
    else if (p->is_flag && arg->v_int64 != 0 && arg->v_int64 != 1)
        snprintf(text, sizeof text, "%s: %.*s is %ld; accepted: True, False", op, p->length,
                 p->name, (long)arg->v_int64);
    else
        return 0;
    return ffi_raise("ValueError", text);
}

int ffi_check_args(const char *op, const char *parameters, const TVMFFIAny *args, int32_t count) {
    char text[128];
    int32_t wanted = 0;
    parameter p;
    for (const char *at = parameters; (at = next_parameter(&p, at)); wanted++) {
        if (wanted < count && !fits(&p, &args[wanted]))
            return raise_misfit(op, &p, &args[wanted]);
        if (wanted < count && check_value(op, &p, &args[wanted]) != 0)
            return -1;
    }
    if (wanted == count)
        return 0;
    snprintf(text, sizeof text, "%s: found %d arguments, needs %d", op, count, wanted);
    return ffi_raise("TypeError", text);
}

// ---- calls

/** Returns where the op runs: the device of the first tensor that is not on the CPU. */
static DLDevice device_of(const TVMFFIAny *args, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        const DLTensor *t = ffi_tensor(&args[i]);
        if (t && t->device.device_type != kDLCPU)
            return t->device;
    }
    return (DLDevice){kDLCPU, 0};
}

static int run(const ffi_op *op, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
    qn_stream *stream;
    if (ffi_check_args(op->name, op->parameters, args, count) != 0)
        return -1;
    qn_status status = ffi_stream_create(&stream, device_of(args, count));
    if (status != QN_OK)
        return ffi_finish(status);
    status = op->run(stream, args);
    qn_stream_destroy(stream);
    result->type_index = kTVMFFINone;
    return ffi_finish(status);
}

#define T(i) ffi_tensor(&args[i])
#define F(i) ffi_number(&args[i])
#define I(i) args[i].v_int64
/** The members of qn_rope_options that parameters i, i + 1, ... give. */
#define ROPE(i)                                                                                    \
    .struct_size = sizeof(qn_rope_options), .rotary_dim = I(i), .interleave = I(i + 1) != 0,       \
    .rope_scale = F(i + 2), .rope_theta = F(i + 3)
#define LLAMA31(i)                                                                                 \
    .low_freq_factor = F(i), .high_freq_factor = F(i + 1), .old_context_len = I(i + 2)
#define QN_FFI(name, parameters, ...)                                                              \
    static qn_status run_##name(qn_stream *stream, const TVMFFIAny *args) {                        \
        return __VA_ARGS__;                                                                        \
    }                                                                                              \
    FFI_EXPORT int __tvm_ffi_##name(void *self, const TVMFFIAny *args, int32_t count,              \
                                    TVMFFIAny *result);                                            \
    int __tvm_ffi_##name([[maybe_unused]] void *self, const TVMFFIAny *args, int32_t count,        \
                         TVMFFIAny *result) {                                                      \
        static const ffi_op op = {#name, parameters, run_##name};                                  \
        return run(&op, args, count, result);                                                      \
    }
#include "ops.def"
#undef QN_FFI

/** "NAME PARAMETERS" of every op, one a line: what the Python side makes its tables of. */
FFI_EXPORT int __tvm_ffi_op_table(void *self, const TVMFFIAny *args, int32_t count,
                                  TVMFFIAny *result);
int __tvm_ffi_op_table([[maybe_unused]] void *self, [[maybe_unused]] const TVMFFIAny *args,
                       [[maybe_unused]] int32_t count, TVMFFIAny *result) {
    static const char table[] =
#define QN_FFI(name, parameters, ...) #name " " parameters "\n"
#include "ops.def"
#undef QN_FFI
        ;
    return TVMFFIStringFromByteArray(&(TVMFFIByteArray){table, sizeof table - 1}, result);
}
