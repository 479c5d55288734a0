// SPDX-License-Identifier: Apache-2.0
// Kernels as data, and the choice of the kernel that runs. A variant is a kernel in one
// configuration: a line of its family's variants.def. Each variant answers two questions without
// knowledge of other variants: can it run a problem, and what would that cost.
#ifndef QNI_CHOICE_H
#define QNI_CHOICE_H

#include "device/device.h"

typedef struct qni_reason {
    char text[192];
} qni_reason;

/** Writes to `why` the reason for which a kernel cannot run a problem, and returns false:
 *  return qni_no(why, "k=%ld is …", k). If nobody will read the reason, why is null, and nothing is
 *  formatted. */
bool qni_no(qni_reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** A kernel in an image. `image` names a QN_IMAGE line of a variants.def. A reference with
 *  `defines` is a specialisation: it is JIT-compiled with these flags after the image's own; null:
 *  none. The runtime finds a loaded kernel by what its reference says, without a lock: references
 *  and their strings may lie anywhere and may go after a launch. */
typedef struct qni_kernel_ref {
    const char *image; // "gemm_fp8_256x128"
    const char *entry; // "qk_gemm_fp8"
    const char *defines;
    int32_t max_scratch_bytes; // contract: more scratch is an error at load
    int32_t max_sgpr_spills;   // contract: at most this many, or what the QN_IMAGE line allows
    bool uses_lds_dma;         // contract: a wait stands before each barrier that follows a DMA
} qni_kernel_ref;

/** Features that a kernel needs: each of `all`, and at least one of `any` if `any` is not 0. */
typedef struct qni_needs {
    uint64_t all, any;
} qni_needs;

enum { QNI_KERNEL_DTYPES = 3 };

/** What a line of variants.def says behind the functions: what those of GPU kernels read, and which
 *  kernels agree. */
typedef struct qni_config {
    /** By dtype, in the order of qni_dtype (f32, f16, bf16), then those of a second launch; or,
     *  where dtypes share them, those of one launch after the other. */
    qni_kernel_ref kernel[2 * QNI_KERNEL_DTYPES];
    uint32_t rows, columns,
        waves;      // the part of the result that a workgroup computes, and its waves
    uint32_t flags; // the family's own
    /** Kernels of an op that share a number other than 0 give a row the same bits on a device, so
     *  that a table may choose among them by the size of a batch. The check harness compares
     *  them. */
    uint32_t bits;
} qni_config;

typedef struct qni_variant qni_variant;
/** Returns whether the variant can run the problem; if not, writes the reason to `why`. */
typedef bool qni_supports_fn(const qni_variant *variant, const qn_device *device,
                             const void *problem, qni_reason *why);
/** Returns the time that the variant would take for a problem which it supports, in a unit that all
 *  kernels of the op share. */
typedef double qni_cost_fn(const qni_variant *variant, const qn_device *device,
                           const void *problem);
typedef qn_status qni_run_fn(const qni_variant *variant, qn_stream *stream, const void *problem);

/** Declares the functions that a line of variants.def names; nullptr declares nothing:
 *
 *    #define QN_VARIANT QN_PROTOTYPES
 *    #define QN_IMAGE(...)
 *    #include "variants.def"
 */
#define QN_PROTOTYPES(op, kernel, where, needs, supports, cost, run, ...)                          \
    QN_PROTOTYPE(qni_supports_fn, supports)                                                        \
    QN_PROTOTYPE(qni_cost_fn, cost)                                                                \
    qni_run_fn run;
// The third argument of QN_TAKE_THIRD is the declaration, unless the name is nullptr, whose comma
// moves an empty argument there.
#define QN_PROTOTYPE(type, name) QN_TAKE_THIRD(QN_MOVES_##name, , type name;, )
#define QN_MOVES_nullptr moved,
#define QN_TAKE_THIRD(...) QN_THIRD_OF(__VA_ARGS__)
#define QN_THIRD_OF(first, second, third, ...) third

struct qni_variant {
    const char *name; // "gemm.fp8_mfma_128x128", unique over all ops
    qni_needs needs;
    bool is_cpu;               // runs on the CPU device, else on GPUs
    qni_supports_fn *supports; // null: any valid problem
    qni_cost_fn *cost;         // null: dearer than every kernel that states a cost
    qni_run_fn *run;
    qni_config config;
};

/** A property by which a table of measured choices (tune.h) tells problems of an op apart. */
typedef struct qni_key {
    const char *name;         // "n"
    const char *const *words; // null: values are numbers from 0; else each is the index of a word
                              // of this list, which ends with null
    bool is_of_batch;         // a row's bits must not depend on the property
} qni_key;
enum { QNI_MAX_KEYS = 12 }; // of an op

/** Writes the values that a problem has of the op's keys to `values`, in the order of the keys. */
typedef void qni_describe_fn(const void *problem, int64_t *values);

/** An op and its kernels. Of kernels of equal cost the first is taken. */
typedef struct qni_op {
    const char *name; // "gemm"
    const qni_variant *variants;
    int num_variants;
    const qni_key *keys; // a nameless one ends them; null: no table speaks of the op
    qni_describe_fn *describe;
} qni_op;

/** These return the op of that name (`length` bytes), or the op's kernel; null if there is none. */
const qni_op *qni_op_find(const char *name, size_t length);
const qni_variant *qni_variant_find(const qni_op *op, const char *name, size_t length);

bool qni_device_meets(const qn_device *device, qni_needs needs);
/** Returns whether a variant is for the device's kind, QUERN_DISABLE allows it, and the device has
 *  the instructions that it needs; if not, writes the reason to `why`. */
bool qni_variant_is_here(const qni_variant *variant, const qn_device *device, qni_reason *why);
/** Returns whether a variant can run the problem on the device; if not, writes the reason to `why`.
 *  Honours QUERN_DISABLE, not QUERN_FORCE. */
bool qni_variant_fits(const qni_variant *variant, const qn_device *device, const void *problem,
                      qni_reason *why);
/** Returns the variant's cost of a problem that it can run; infinite if it states none. */
double qni_cost_of(const qni_variant *variant, const qn_device *device, const void *problem);
/** Returns the index of the cheapest variant that can run the problem, -1 if none can. */
int qni_find_cheapest(const qni_op *op, const qn_device *device, const void *problem);
/** Sets *out to the variant that qn_tune_force or QUERN_FORCE names, else to that of the table of
 *  QUERN_TUNE if the table can be followed, else to the cheapest variant that can run the problem;
 *  logs the choice with QUERN_LOG=kernel. Errors: QN_E_UNSUPPORTED, with each variant's reason,
 *  QN_E_INVALID (QUERN_FORCE names no kernel). */
qn_status qni_choose(const qni_op *op, const qn_device *device, const void *problem,
                     const qni_variant **out);
/** Returns whether QUERN_DISABLE names a backend ("hip", "cuda", "sim", "cpu"). */
bool qni_is_backend_disabled(const char *backend);
/** Sets the list of all ops, which ends with null: QUERN_DISABLE, QUERN_FORCE and the table of
 *  QUERN_TUNE may name these ops and their kernels. The layer above, which knows the families,
 *  calls this before any device is opened. */
void qni_choice_set_ops(const qni_op *const *ops);
const qni_op *const *qni_choice_ops(void);
/** Checks that QUERN_DISABLE and QUERN_FORCE name only kernels, ops and backends that exist, and
 *  that the table of QUERN_TUNE is sound. Errors: QN_E_INVALID, with the unknown name or the place
 *  of the table's fault; QN_E_IO, QN_E_MEMORY (the table cannot be read). */
qn_status qni_choice_check_environment(void);
/** Runs a chosen kernel, and has qn_last_kernel name it. */
qn_status qni_run_variant(const qni_variant *variant, qn_stream *stream, const void *problem);
/** Chooses a kernel for the problem and runs it. */
qn_status qni_run(const qni_op *op, qn_stream *stream, const void *problem);

#endif
