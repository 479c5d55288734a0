// SPDX-License-Identifier: Apache-2.0
// Prepares a PTX image before the driver compiles it: finds kernels, and puts directives into their
// heads.
#include "../runtime.h"
#include "object.h"

#include <stdlib.h>
#include <string.h>

static const char entry_word[] = ".entry ", remark[] = "// quern: ";

/** Returns whether the kernel whose head ends at `head` waits for the kernel before it on its
 *  stream. */
static bool has_wait(const char *head) {
    const char *wait = strstr(head, "griddepcontrol.wait"), *next = strstr(head, entry_word);
    return wait && (!next || wait < next);
}

/** Returns where the parameter list of the kernel begins; null if there is no such kernel. */
static const char *find_entry(const char *text, const char *entry) {
    const size_t length = strlen(entry);
    for (const char *at = strstr(text, entry_word); at; at = strstr(at + 1, entry_word)) {
        const char *name = at + strlen(entry_word);
        if (strncmp(name, entry, length) == 0 && name[length] == '(')
            return name + length + 1;
    }
    return nullptr;
}

/** Returns the LDS that a launch is to give the kernel: the constant ENTRY_lds_bytes, which
 *  QD_KERNEL_HEAD writes; 0 if the text has none. */
static int32_t find_launch_lds(const char *text, const char *entry) {
    static const char suffix[] = "_lds_bytes = ";
    const size_t length = strlen(entry);
    for (const char *at = strstr(text, suffix); at; at = strstr(at + 1, suffix))
        if ((size_t)(at - text) > length && at[-(ptrdiff_t)length - 1] == ' ' &&
            strncmp(at - length, entry, length) == 0)
            return atoi(at + strlen(suffix));
    return 0;
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
    *out = (qni_object_kernel){.usage.kernarg_bytes = atoi(size + 1),
                               .usage.launch_lds_bytes = find_launch_lds(text, entry),
                               .usage.waits_itself = has_wait(end)};
    return QN_OK;
}

/** Returns the directives of the kernel whose name begins at `name` and has `length` letters;
 *  *count becomes the number of their letters. */
static const char *find_directives(const char *text, const char *name, size_t length,
                                   size_t *count) {
    *count = 0;
    for (const char *at = strstr(text, remark); at; at = strstr(at + 1, remark)) {
        const char *entry = at + strlen(remark);
        if (strncmp(entry, name, length) != 0 || entry[length] != ' ')
            continue;
        *count = strcspn(entry + length, "\n");
        return entry + length;
    }
    return "";
}

qn_status qni_ptx_bound(char **out, const char *text, size_t bytes) {
    char *end = *out = malloc(2 * bytes + 1); // inserted directives are copied from the text, each
                                              // once
    if (!end)
        return QN_FAIL(QN_E_MEMORY, "image: out of memory");
    const char *from = text;
    for (const char *at = strstr(text, entry_word); at; at = strstr(at + 1, entry_word)) {
        const char *name = at + strlen(entry_word), *head = strchr(name, ')');
        if (!head)
            break;
        size_t count;
        const char *directives = find_directives(text, name, strcspn(name, "("), &count);
        end = (char *)mempcpy(end, from, (size_t)(head + 1 - from));
        end = (char *)mempcpy(end, directives, count);
        from = head + 1;
    }
    strcpy(end, from);
    return QN_OK;
}
