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
 *  none. The runtime finds a loaded kernel by the address of its reference, without a lock, so
 *  references must be static. */
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

/** What the functions of a GPU kernel read from the kernel's line in variants.def. */
typedef struct qni_config {
    qni_kernel_ref
        kernel[3]; // by dtype, in the order of qni_dtype (f32, f16, bf16), or only the first
    uint32_t rows, columns,
        waves;      // the part of the result that a workgroup computes, and its waves
    uint32_t flags; // the family's own
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

struct qni_variant {
    const char *name; // "gemm.fp8_mfma_128x128", unique over all ops
    qni_needs needs;
    bool is_cpu;               // runs on the CPU device, else on GPUs
    qni_supports_fn *supports; // null: any valid problem
    qni_cost_fn *cost;         // null: dearer than every kernel that states a cost
    qni_run_fn *run;
    qni_config config;
};

/** An op and its kernels. Of kernels of equal cost the first is taken. */
typedef struct qni_op {
    const char *name; // "gemm"
    const qni_variant *variants;
    int num_variants;
} qni_op;

bool qni_device_meets(const qn_device *device, qni_needs needs);
/** Returns whether a variant can run the problem on the device; if not, writes the reason to `why`.
 *  Honours QUERN_DISABLE, not QUERN_FORCE. */
bool qni_variant_fits(const qni_variant *variant, const qn_device *device, const void *problem,
                      qni_reason *why);
/** Sets *out to the cheapest variant that can run the problem, or to the variant that QUERN_FORCE
 *  names; logs the choice with QUERN_LOG=kernel. Errors: QN_E_UNSUPPORTED, with each variant's
 *  reason, QN_E_INVALID (QUERN_FORCE names no kernel). */
qn_status qni_choose(const qni_op *op, const qn_device *device, const void *problem,
                     const qni_variant **out);
/** Returns whether QUERN_DISABLE names a backend ("hip", "cuda", "sim", "cpu"). */
bool qni_is_backend_disabled(const char *backend);
/** Sets the list of all ops, which ends with null: QUERN_DISABLE and QUERN_FORCE may name these
 *  ops and their kernels. The layer above, which knows the families, calls this before any device
 *  is opened. */
void qni_choice_set_ops(const qni_op *const *ops);
/** Checks that QUERN_DISABLE and QUERN_FORCE name only kernels, ops and backends that exist.
 *  Errors: QN_E_INVALID, with the unknown name. */
qn_status qni_choice_check_environment(void);
/** Chooses a kernel for the problem and runs it. */
qn_status qni_run(const qni_op *op, qn_stream *stream, const void *problem);

#endif
