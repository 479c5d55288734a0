// SPDX-License-Identifier: Apache-2.0
// What quern reads of a code object before it trusts it: each kernel's metadata and instructions.
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
 *  Errors: QN_E_INVALID (not such an object, or damaged), QN_E_NOT_FOUND (no such kernel). */
qn_status qni_object_kernel_find(qni_object_kernel *out, const void *object, size_t bytes,
                                 const char *entry);

/** The same of a PTX image, whose last byte is its text's zero; usage has only kernarg_bytes and
 *  waits_itself (ptx.c).
 */
qn_status qni_ptx_kernel_find(qni_object_kernel *out, const void *image, size_t bytes,
                              const char *entry);

/** A copy of a PTX image in which each kernel's head has the directives that a remark "// quern:
 *  KERNEL DIRECTIVES" at its begin asks for; to be freed. Errors: QN_E_MEMORY. */
qn_status qni_ptx_bound(char **out, const char *text, size_t bytes);

/** Whether a vmcnt wait stands between each LDS DMA and the next barrier, on every path (waits.c).
 *  gfx9 code. When not, *offset is that of the barrier. Not QN_OK: the code cannot be read. */
qn_status qni_waits_check(const uint8_t *code, size_t bytes, bool *is_good, size_t *offset);

#endif
