// SPDX-License-Identifier: Apache-2.0
// What quern reads of a PTX image before the driver compiles it: that a kernel is there, and its arguments' size.
#include "object.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/** Where the parameter list of the kernel begins; null if there is no such kernel. */
static const char *find_entry(const char *text, const char *entry) {
    size_t length = strlen(entry);
    for (const char *at = strstr(text, ".entry "); at; at = strstr(at + 1, ".entry ")) {
        const char *name = at + strlen(".entry ");
        if (strncmp(name, entry, length) == 0 && name[length] == '(')
            return name + length + 1;
    }
    return nullptr;
}

qn_status qni_ptx_kernel_find(qni_object_kernel *out, const void *image, size_t bytes,
                              const char *entry) {
    const char *text = image, *end;
    if (bytes == 0 || text[bytes - 1] != 0 || !strstr(text, ".version "))
        return QN_FAIL(QN_E_INVALID, "image: %zu bytes that are not PTX ending in a zero", bytes);
    const char *parameter = find_entry(text, entry);
    if (!parameter)
        return QN_FAIL(QN_E_NOT_FOUND, "image: no kernel %s", entry);
    // One struct by value: ".param .align 8 .b8 NAME_param_0[96]"
    end = strchr(parameter, ')');
    const char *size = strchr(parameter, '[');
    if (!end || !size || size > end)
        return QN_FAIL(QN_E_INVALID, "image: kernel %s does not take one struct", entry);
    *out = (qni_object_kernel){.usage.kernarg_bytes = atoi(size + 1)};
    return QN_OK;
}
