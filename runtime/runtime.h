// SPDX-License-Identifier: Apache-2.0
// What ops use of the runtime: errors, tensor checks, choice of a kernel, launch, threads, log,
// environment.
#ifndef QNI_RUNTIME_H
#define QNI_RUNTIME_H

#include "choice.h"

#include <stdarg.h>
#include <stdio.h>

// ---- errors (error.c)

qn_status qni_fail(qn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Records the message and gives the code, to be returned at once: return QN_FAIL(QN_E_INVALID,
 * "…"). */
#define QN_FAIL(code, ...) qni_fail((code), __VA_ARGS__)
/** Returns the status of a call that did not succeed. */
#define QN_TRY(call)                                                                               \
    do {                                                                                           \
        const qn_status status_of_call = (call);                                                   \
        if (status_of_call != QN_OK)                                                               \
            return status_of_call;                                                                 \
    } while (0)
/** Of a call that did not succeed, keeps the status in st and goes to the label out, which gives
 *  back what is held. */
#define QN_TRY_OUT(call)                                                                           \
    do {                                                                                           \
        if ((st = (call)) != QN_OK)                                                                \
            goto out;                                                                              \
    } while (0)

// ---- structs that callers give (args.c)

/** The struct, which the message calls `name` ("args"), is not null, and its first member,
 *  struct_size, is within these bounds: QNI_CHECK_STRUCT and QNI_CHECK_STRUCT_FROM know them. */
qn_status qni_check_struct(const char *op, const char *name, const char *type, const void *given,
                           size_t least_bytes, size_t most_bytes);
/** The struct is this library's own. */
#define QNI_CHECK_STRUCT(op, name, type, given)                                                    \
    qni_check_struct((op), (name), #type, (const type *){given}, sizeof(type), sizeof(type))
/** The struct may be another version's: it has every member up to `last_needed`. */
#define QNI_CHECK_STRUCT_FROM(op, name, type, given, last_needed)                                  \
    qni_check_struct((op), (name), #type, (const type *){given},                                   \
                     offsetof(type, last_needed) + sizeof((type){}.last_needed), SIZE_MAX)

// ---- dtypes and tensors (tensor.c)

typedef enum qni_dtype {
    QNI_F32,
    QNI_F16,
    QNI_BF16,
    QNI_E4M3FN,
    QNI_E4M3FNUZ,
    QNI_E5M2,
    QNI_E5M2FNUZ,
    QNI_I32,
    QNI_U8,
    QNI_I8,
    QNI_I64, // no op takes this or the next; messages name them
    QNI_F64,
    QNI_NUM_DTYPES,
    QNI_DTYPE_NONE = -1 // not one that quern knows
} qni_dtype;

qni_dtype qni_dtype_of(const DLTensor *t);
DLDataType qni_dl_dtype(qni_dtype dtype);
const char *qni_dtype_name(qni_dtype dtype); // "bf16"; "?" for NONE
/** The same of a tensor, also of what is no dtype of ours: "u16", "complex64". */
const char *qni_dtype_text(const DLTensor *t);
int64_t qni_dtype_bytes(qni_dtype dtype);
/** "[3, 128] e4m3fn strides [128, 1]" into buf, for messages. Gives buf. */
const char *qni_tensor_text(const DLTensor *t, char *buf, size_t room);
static inline void *qni_data(const DLTensor *t) {
    return (char *)t->data + t->byte_offset;
}
/** Stride of dimension i in elements, also where strides is null (contiguous). */
int64_t qni_stride(const DLTensor *t, int i);
int64_t qni_numel(const DLTensor *t);
/** Whether a size is 0; also where the product of the others overflows, as in a tensor not checked
 *  yet. */
bool qni_is_empty(const DLTensor *t);
bool qni_is_contiguous(const DLTensor *t);
/** t is not null, has ndim dimensions, none negative, of bytes that 62 bits can count. The message
 *  begins "op: name ". */
qn_status qni_check_sizes(const char *op, const char *name, const DLTensor *t, int ndim);
/** And it reaches over no more bytes, its data are not null unless it is empty, and lie on the
 *  stream's device. */
qn_status qni_check_tensor(const qn_stream *stream, const char *op, const char *name,
                           const DLTensor *t, int ndim);
/** Sets of dtypes: 1 << dtype for each. */
constexpr uint32_t qni_of_f32 = 1u << QNI_F32, qni_of_i32 = 1u << QNI_I32,
                   qni_of_floats = qni_of_f32 | 1u << QNI_F16 | 1u << QNI_BF16,
                   qni_of_fp8 =
                       1u << QNI_E4M3FN | 1u << QNI_E4M3FNUZ | 1u << QNI_E5M2 | 1u << QNI_E5M2FNUZ;
/** t's dtype is one of the set: QN_E_UNSUPPORTED, with the set's names. */
qn_status qni_check_dtype(const char *op, const char *name, const DLTensor *t, uint32_t accepted);
/** shape[i] equals want[i] for every dimension (want[i] < 0: any). */
qn_status qni_check_shape(const char *op, const char *name, const DLTensor *t, int ndim,
                          const int64_t *want);
/** The data begin at a multiple of the element's size; of a dtype that quern does not know,
 *  anywhere. */
qn_status qni_check_alignment(const char *op, const char *name, const DLTensor *t);

// ---- how tensors lie in memory (strides.c)

/** The last dimension's elements are neighbours. */
qn_status qni_check_last_contiguous(const char *op, const char *name, const DLTensor *t);
/** No two indices name one element: for what is written. */
qn_status qni_check_elements_apart(const char *op, const char *name, const DLTensor *t);
/** The two share no byte; side-by-side slices of one tensor pass. Null tensors share nothing. */
qn_status qni_check_disjoint(const char *op, const char *name_a, const DLTensor *a,
                             const char *name_b, const DLTensor *b);
/** Each index names the same memory in both: an op in place. */
bool qni_is_same_memory(const DLTensor *a, const DLTensor *b);

// ---- index tensors and scales (indices.c)

/** A contiguous vector of i32; count < 0: of any length. */
qn_status qni_check_indices(const qn_stream *stream, const char *op, const char *name,
                            const DLTensor *t, int64_t count);
/** Whether contents are checked before a launch: on the CPU, where one index out of range would end
 *  the process, always; on GPUs with QUERN_VALIDATE. */
bool qni_validates_indices(const qn_stream *stream);
/** The indices where the host can read them, to be released: on the CPU in place, else a copy,
 *  after the stream has been waited for. */
qn_status qni_read_indices(qn_stream *stream, const char *op, const char *name,
                           const int32_t *indices, int64_t count, const int32_t **out);
void qni_release_indices(const qn_stream *stream, const int32_t *read); // null: nothing
/** Reads them: each is in low .. high - 1; or they begin at 0 or above, never fall, and end at high
 *  at most. */
qn_status qni_validate_range(qn_stream *stream, const char *op, const char *name,
                             const int32_t *indices, int64_t count, int64_t low, int64_t high);
qn_status qni_validate_rising(qn_stream *stream, const char *op, const char *name,
                              const int32_t *indptr, int64_t count, int64_t high);
/** One f32 that results are divided by: [1]; with QUERN_VALIDATE it is read, and must be above 0
 *  and finite. */
qn_status qni_check_given_scale(qn_stream *stream, const char *op, const char *name,
                                const DLTensor *t);

// ---- GPU kernels (image.c, jit.c)

/** Launches grid[0] x grid[1] x grid[2] workgroups of `threads`; args is the kernel's one by-value
 * struct. */
qn_status qni_launch(qn_stream *stream, const qni_kernel_ref *kernel, const uint32_t grid[3],
                     uint32_t threads, const void *args, size_t args_bytes);
/** What the loaded kernel uses (loads it if need be). */
qn_status qni_kernel_get_usage(qn_device *device, const qni_kernel_ref *kernel,
                               qni_kernel_usage *out);
/** How the meanings of the instructions are known that the kernels launched since the last call can
 *  reach: the letter and names of quernsim_evidence for the weakest kernel. 0: none, or the device
 *  is no simulated one. `names` null: only forgets what was launched. */
char qni_kernels_evidence(qn_device *device, char *names, size_t bytes);
/** Makes the place for a GPU's loaded images as it is opened, and unloads them as it is closed. */
qn_status qni_kernels_create(qn_device *device);
void qni_kernels_destroy(qn_device *device);

// ---- CPU threads (threads.c)

/** Calls body(context, i) for i in 0..count-1 on the CPU device's threads; returns when all are
 * done. Which thread runs which i is free: results must not depend on it. */
void qni_parallel(int64_t count, void (*body)(void *context, int64_t i), void *context);
int qni_num_threads(void);
/** memmove; shared among the threads if it is large: host_copy.c. */
void qni_copy_host(void *to, const void *from, int64_t bytes);

// ---- log (log.c): one line each, to stderr, only what QUERN_LOG asks for

typedef enum qni_log_topic {
    QNI_LOG_KERNEL = 1,
    QNI_LOG_JIT = 2,
    QNI_LOG_LAUNCH = 4
} qni_log_topic;
bool qni_log_is_on(qni_log_topic topic);
void qni_log(qni_log_topic topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- environment (env.c): read once, the only place that calls getenv

/** Strings are "" where a variable is unset or empty. docs/env.md says what each means. */
typedef struct qni_env {
    const char *device, *disable, *force, *cache_dir, *clang;
    const char *hip_library, *cuda_library, *sim_library;
    const char *path, *tmp_dir;
    unsigned log;    // qni_log_topic bits
    int num_threads; // 0: all of the machine's
    int jit_timeout_s;
    bool no_jit, batch_invariant, validate, serialize_kernel;
    bool lacks_memory; // a value could not be kept: qn_device_open and the cache's functions fail
    char error[256];   // "": every value was understood; else what qn_device_open says
} qni_env;
const qni_env *qni_env_get(void);

#endif
