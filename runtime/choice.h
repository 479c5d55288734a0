// SPDX-License-Identifier: Apache-2.0
// Kernels as data, and which of them runs. A variant is a kernel in one configuration: a line of
// its family's variants.def. Whether it can run a problem and what that would cost are two
// questions, and each variant answers both without knowledge of its neighbours.
#ifndef QNI_CHOICE_H
#define QNI_CHOICE_H

#include "device/device.h"

typedef struct qni_reason {
    char text[192];
} qni_reason;

/** Notes why a kernel cannot take a problem and gives false: return qni_no(why, "k=%ld is …", k).
 *  why is null when nobody will read it: then nothing is formatted. */
bool qni_no(qni_reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** A kernel in an image. `image` is a QN_IMAGE line of some variants.def; `defines` (null: none)
 *  are added to that image's own for a specialisation that is then JIT-compiled. A loaded kernel is
 *  found by its reference's address, without a lock: make references static. */
typedef struct qni_kernel_ref {
    const char *image; // "gemm_fp8_256x128"
    const char *entry; // "qk_gemm_fp8"
    const char *defines;
    int32_t max_scratch_bytes; // contract: more is an error at load
    int32_t max_sgpr_spills;   // contract: as many, or what the QN_IMAGE line allows
    bool uses_lds_dma;         // contract: a wait must stand before each barrier that follows a DMA
} qni_kernel_ref;

/** Features that a kernel needs: each of `all`, and at least one of `any` (0: whatever). */
typedef struct qni_needs {
    uint64_t all, any;
} qni_needs;

/** What the functions of a GPU kernel read of its line in variants.def. */
typedef struct qni_config {
    qni_kernel_ref
        kernel[3]; // by dtype, in the order of qni_dtype (f32, f16, bf16), or only the first
    uint32_t rows, columns,
        waves;      // the part of the result that a workgroup computes, and its waves
    uint32_t flags; // the family's own
} qni_config;

typedef struct qni_variant qni_variant;
/** Whether the variant can run the problem; else why not. */
typedef bool qni_supports_fn(const qni_variant *variant, const qn_device *device,
                             const void *problem, qni_reason *why);
/** The time that a problem which it supports would take, in a unit that the op's kernels share. */
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

/** An op and its kernels. Of kernels that cost the same the first is taken. */
typedef struct qni_op {
    const char *name; // "gemm"
    const qni_variant *variants;
    int num_variants;
} qni_op;

bool qni_device_meets(const qn_device *device, qni_needs needs);
/** Whether a variant can run the problem on the device; else why not. Honours QUERN_DISABLE, not
 *  QUERN_FORCE. */
bool qni_variant_fits(const qni_variant *variant, const qn_device *device, const void *problem,
                      qni_reason *why);
/** The cheapest variant that can run the problem, or the one that QUERN_FORCE names; logs the
 *  choice with QUERN_LOG=kernel. Errors: QN_E_UNSUPPORTED with the reason of each, QN_E_INVALID
 *  (QUERN_FORCE names no kernel). */
qn_status qni_choose(const qni_op *op, const qn_device *device, const void *problem,
                     const qni_variant **out);
/** Whether QUERN_DISABLE names a backend ("hip", "cuda", "sim", "cpu"). */
bool qni_is_backend_disabled(const char *backend);
/** Every op there is, null-terminated: what QUERN_DISABLE and QUERN_FORCE may name. From above,
 *  where the families are known, before any device is opened. */
void qni_choice_set_ops(const qni_op *const *ops);
/** Whether QUERN_DISABLE and QUERN_FORCE name kernels, ops and backends that there are.
 *  Errors: QN_E_INVALID, with the name that is unknown. */
qn_status qni_choice_check_environment(void);
/** Chooses and runs. */
qn_status qni_run(const qni_op *op, qn_stream *stream, const void *problem);

#endif
