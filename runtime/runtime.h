// SPDX-License-Identifier: Apache-2.0
// What ops use of the runtime: errors, checks of tensors, choice of a kernel, launch, threads, log
// and environment.
#ifndef QNI_RUNTIME_H
#define QNI_RUNTIME_H

#include "choice.h"

#include <stdarg.h>
#include <stdio.h>

// ---- errors (error.c)

qn_status qni_fail(qn_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Records the message and returns the code, which the caller returns at once:
 *  return QN_FAIL(QN_E_INVALID, "…"). */
#define QN_FAIL(code, ...) qni_fail((code), __VA_ARGS__)
/** Makes the surrounding function return the status of a call that failed. */
#define QN_TRY(call)                                                                               \
    do {                                                                                           \
        const qn_status status_of_call = (call);                                                   \
        if (status_of_call != QN_OK)                                                               \
            return status_of_call;                                                                 \
    } while (0)
/** Keeps the status of a call in st; if the call failed, goes to the label out, which frees what
 *  the function holds. */
#define QN_TRY_OUT(call)                                                                           \
    do {                                                                                           \
        if ((st = (call)) != QN_OK)                                                                \
            goto out;                                                                              \
    } while (0)

// ---- structs that callers give (args.c)

/** Checks that a struct, which messages call `name` ("args"), is not null and that struct_size, its
 *  first member, is within bounds. QNI_CHECK_STRUCT and QNI_CHECK_STRUCT_FROM know the bounds. */
qn_status qni_check_struct(const char *op, const char *name, const char *type, const void *given,
                           size_t least_bytes, size_t most_bytes);
/** Checks a struct that must be of this version of the library. */
#define QNI_CHECK_STRUCT(op, name, type, given)                                                    \
    qni_check_struct((op), (name), #type, (const type *){given}, sizeof(type), sizeof(type))
/** Checks a struct that may be of another version, if it has every member up to `last_needed`. */
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
    QNI_E8M0FNU, // scales that are powers of two
    QNI_I64,     // seeds and offsets
    QNI_F64,     // no op takes it; messages name it
    QNI_BOOL,
    QNI_U64, // numbers of other libraries' calls
    QNI_NUM_DTYPES,
    QNI_DTYPE_NONE = -1 // not one that quern knows
} qni_dtype;

qni_dtype qni_dtype_of(const DLTensor *t);
DLDataType qni_dl_dtype(qni_dtype dtype);
const char *qni_dtype_name(qni_dtype dtype); // "bf16"; "?" for NONE
/** The names of all dtypes by number, null behind the last: the words of a qni_key. */
extern const char *const qni_dtype_words[QNI_NUM_DTYPES + 1];
extern const char *const qni_no_yes_words[3]; // of a bool
/** Returns the name of a tensor's dtype, even if quern does not know the dtype: "u16",
 *  "complex64". */
const char *qni_dtype_text(const DLTensor *t);
int64_t qni_dtype_bytes(qni_dtype dtype);
/** Writes a tensor's shape, dtype and strides to buf, for messages: "[3, 128] e4m3fn strides
 *  [128, 1]". Returns buf. */
const char *qni_tensor_text(const DLTensor *t, char *buf, size_t room);
/** "[3, any]", negative sizes being any; and "f32, bf16", of a set of dtypes. */
const char *qni_sizes_text(const int64_t *sizes, int count, char *buf, size_t room);
const char *qni_dtypes_text(uint32_t set, char *buf, size_t room);
static inline void *qni_data(const DLTensor *t) {
    return (char *)t->data + t->byte_offset;
}
/** Returns the stride of dimension i in elements, also for a tensor whose strides are null
 *  (contiguous). */
int64_t qni_stride(const DLTensor *t, int i);
int64_t qni_numel(const DLTensor *t);
/** Returns whether a dimension has size 0. Multiplies no sizes, so that a tensor which is not
 *  checked yet cannot overflow. */
bool qni_is_empty(const DLTensor *t);
bool qni_is_contiguous(const DLTensor *t);
/** Checks that t is not null and has ndim dimensions, none of them negative, and that 62 bits can
 *  count its bytes. Messages of this and the other checks begin with "op: name ". */
qn_status qni_check_sizes(const char *op, const char *name, const DLTensor *t, int ndim);
/** Checks t as qni_check_sizes does, and that 62 bits can count the bytes from its first to its
 *  last element, that its data are not null unless it is empty, and that they lie on the stream's
 *  device. */
qn_status qni_check_tensor(const qn_stream *stream, const char *op, const char *name,
                           const DLTensor *t, int ndim);
/** Sets of dtypes: bit `dtype` is set for each dtype in the set. */
constexpr uint32_t qni_of_f32 = 1u << QNI_F32, qni_of_i32 = 1u << QNI_I32,
                   qni_of_floats = qni_of_f32 | 1u << QNI_F16 | 1u << QNI_BF16,
                   qni_of_fp8 =
                       1u << QNI_E4M3FN | 1u << QNI_E4M3FNUZ | 1u << QNI_E5M2 | 1u << QNI_E5M2FNUZ;
/** Checks that t's shape[i] equals want[i] for every dimension i; want[i] < 0 accepts any size. */
qn_status qni_check_shape(const char *op, const char *name, const DLTensor *t, int ndim,
                          const int64_t *want);

// ---- how tensors lie in memory (strides.c)

/** Checks that the elements of the last dimension are neighbours. */
qn_status qni_check_last_contiguous(const char *op, const char *name, const DLTensor *t);
/** Checks that no two indices name one element, for a tensor that is written. */
qn_status qni_check_elements_apart(const char *op, const char *name, const DLTensor *t);
/** Checks that two tensors share no byte. Slices of one tensor that lie side by side pass, and so
 *  do null tensors. */
qn_status qni_check_disjoint(const char *op, const char *name_a, const DLTensor *a,
                             const char *name_b, const DLTensor *b);
/** Returns whether the bytes of two tensors can be shared. */
bool qni_can_meet(const DLTensor *a, const DLTensor *b);
/** Returns whether each index names one element in both tensors, as for an op in place. */
bool qni_is_same_memory(const DLTensor *a, const DLTensor *b);

// ---- index tensors and scales (indices.c)

/** Returns whether the values of index tensors are checked before a launch: always on the CPU,
 *  where one index out of range would end the process; on GPUs only with QUERN_VALIDATE=1. */
bool qni_validates_indices(const qn_stream *stream);
/** Sets *out to the indices in memory that the host can read: in place on the CPU, else a copy that
 *  is made after the stream's work is done. The caller releases *out. */
qn_status qni_read_indices(qn_stream *stream, const char *op, const char *name,
                           const int32_t *indices, int64_t count, const int32_t **out);
void qni_release_indices(const qn_stream *stream, const int32_t *read); // null: nothing
/** Reads the indices and checks that each is in low .. high - 1. */
qn_status qni_validate_range(qn_stream *stream, const char *op, const char *name,
                             const int32_t *indices, int64_t count, int64_t low, int64_t high);
/** Reads the indices and checks that they begin at 0 or above, never fall, and end at high or
 *  below. */
qn_status qni_validate_rising(qn_stream *stream, const char *op, const char *name,
                              const int32_t *indptr, int64_t count, int64_t high);
/** With QUERN_VALIDATE=1, reads a scale and checks that it is above 0 and finite. */
qn_status qni_validate_scale(qn_stream *stream, const char *op, const char *name,
                             const float *given);

// ---- GPU kernels (image.c, jit.c)

/** Launches grid[0] x grid[1] x grid[2] workgroups of `threads` each; args is the struct that the
 *  kernel takes by value as its one argument. */
qn_status qni_launch(qn_stream *stream, const qni_kernel_ref *kernel, const uint32_t grid[3],
                     uint32_t threads, const void *args, size_t args_bytes);
/** Tells which registers, LDS and scratch a kernel uses; loads the kernel first if need be. */
qn_status qni_kernel_get_usage(qn_device *device, const qni_kernel_ref *kernel,
                               qni_kernel_usage *out);
/** Tells how well the simulated GPU knows the instructions of the kernels that were launched since
 *  the last call: returns the letter of quernsim_evidence for the kernel with the weakest evidence
 *  and writes the instructions' names. Returns 0 if none was launched, or if the device is not
 *  simulated. If `names` is null, only forgets which kernels were launched. */
char qni_kernels_evidence(qn_device *device, char *names, size_t bytes);
/** A tensor from which a kernel's tensor copies take boxes. Dimension 0 is the innermost, and its
 *  elements are neighbours. In LDS the 16-byte pieces of a box's rows are exchanged within
 *  swizzle_bytes (0: not at all; 32, 64, 128). What of a box lies outside the tensor reads as zero
 *  and is not written. */
typedef struct qni_tensor_map {
    const char *name; // in messages
    const void *data;
    qni_dtype dtype;
    int rank;                   // 1 to 5
    int64_t size[5], stride[5]; // in elements; stride[0] counts as 1
    uint32_t box[5];
    uint32_t swizzle_bytes;
} qni_tensor_map;
/** Returns whether the copies can take such boxes of the tensor; if not, writes the reason to
 *  `why`. For a kernel's supports (tensor_map.c). */
bool qni_tensor_map_fits(const qni_tensor_map *map, qni_reason *why);
/** Encodes the map for a kernel's struct: `out` is a qk_tensor_map in it. A map holds the tensor's
 *  address, so that each call encodes its own; the driver does that on the host, in under a
 *  microsecond. Errors: QN_E_UNSUPPORTED (no such copies on the device, or it does not fit). */
qn_status qni_tensor_map_encode(const qn_device *device, const qni_tensor_map *map, void *out);
/** Makes a GPU's table of loaded images, as the GPU is opened. */
qn_status qni_kernels_create(qn_device *device);
/** Unloads a GPU's images and frees the table, as the GPU is closed. */
void qni_kernels_destroy(qn_device *device);

// ---- CPU threads (threads.c)

/** Calls body(context, i) for i in 0..count-1 on the CPU device's threads, and returns when all
 *  calls are done. Any thread may run any i, so results must not depend on the thread. */
void qni_parallel(int64_t count, void (*body)(void *context, int64_t i), void *context);
/** Calls body(context, first, end, scratch) for runs of indices first..end-1, `per_run` of them or
 *  what is left of 0..count-1, as qni_parallel does. Each call has scratch of its own, of
 *  scratch_bytes, aligned to 64 (0: null). Returns false if there was too little memory for one;
 *  that run is left out then. */
bool qni_parallel_runs(int64_t count, int64_t per_run, int64_t scratch_bytes,
                       void (*body)(void *context, int64_t first, int64_t end, void *scratch),
                       void *context);
int qni_num_threads(void);
/** Copies as memmove does; the threads share a large copy (host_copy.c). */
void qni_copy_host(void *to, const void *from, int64_t bytes);

// ---- log (log.c): each message is one line on stderr, of the topics that QUERN_LOG names

typedef enum qni_log_topic {
    QNI_LOG_KERNEL = 1,
    QNI_LOG_JIT = 2,
    QNI_LOG_LAUNCH = 4
} qni_log_topic;
bool qni_log_is_on(qni_log_topic topic);
void qni_log(qni_log_topic topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- environment (env.c, the only file that calls getenv): read once

/** The environment variables that quern reads; docs/env.md says what each means. A string is "" if
 *  its variable is unset or empty. */
typedef struct qni_env {
    const char *device, *disable, *force, *tune, *cache_dir, *clang;
    const char *hip_library, *cuda_library, *sim_library, *rocm_path, *hip_path, *rocm_wheels;
    const char *path, *tmp_dir;
    unsigned log;    // qni_log_topic bits
    int num_threads; // 0: one for each of the machine's processors
    int jit_timeout_s;
    bool no_jit, batch_invariant, validate, serialize_kernel;
    bool lacks_memory; // no memory for a value: qn_device_open and the cache's functions fail
    char error[256];   // "": every value was understood; else the message of qn_device_open
} qni_env;
const qni_env *qni_env_get(void);

#endif
