// SPDX-License-Identifier: Apache-2.0
// Checks the size that a caller's struct states, and with it the version that the caller was
// compiled with.
#include "../runtime.h"

qn_status qni_check_struct(const char *op, const char *name, const char *type, const void *given,
                           size_t least_bytes, size_t most_bytes) {
    if (!given)
        return QN_FAIL(QN_E_INVALID, "%s: %s is null", op, name);
    const size_t struct_size = *(const size_t *)given;
    if (struct_size < least_bytes || struct_size > most_bytes)
        return QN_FAIL(QN_E_INVALID, "%s: %s.struct_size is %zu; set it to sizeof(%s)", op, name,
                       struct_size, type);
    return QN_OK;
}
