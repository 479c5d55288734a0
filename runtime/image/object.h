// SPDX-License-Identifier: Apache-2.0
// What quern reads of a code object before the code object is trusted: each kernel's metadata and
// instructions.
#ifndef QNI_OBJECT_H
#define QNI_OBJECT_H

#include "../device/device.h"

/** A kernel inside a code object's bytes. */
typedef struct qni_object_kernel {
    qni_kernel_usage usage;
    const uint8_t *code;
    size_t code_bytes;
} qni_object_kernel;

/** Finds a kernel in an AMDGPU code object (ELF64, code object v3 or later).
 *  Errors: QN_E_INVALID (another kind of object, or a damaged one), QN_E_NOT_FOUND (no such
 *  kernel). */
qn_status qni_object_kernel_find(qni_object_kernel *out, const void *object, size_t bytes,
                                 const char *entry);

/** Finds a kernel in a PTX image, whose last byte is the zero that ends its text. Of out->usage,
 *  only kernarg_bytes, launch_lds_bytes and waits_itself are known (ptx.c). */
qn_status qni_ptx_kernel_find(qni_object_kernel *out, const void *image, size_t bytes,
                              const char *entry);

/** Copies a PTX image and adds directives to the heads of kernels: a remark "// quern: KERNEL
 *  DIRECTIVES" at the image's begin names a kernel and its directives. The caller frees *out.
 *  Errors: QN_E_MEMORY. */
qn_status qni_ptx_bound(char **out, const char *text, size_t bytes);

/** Finds out whether, in gfx9 code, a vmcnt wait stands between each LDS DMA and the next barrier,
 *  on every path (waits.c). If not, *is_good is false and *offset the barrier's. Errors: the code
 *  cannot be read. */
qn_status qni_waits_check(const uint8_t *code, size_t bytes, bool *is_good, size_t *offset);

#endif
