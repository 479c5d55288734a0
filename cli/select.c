// SPDX-License-Identifier: Apache-2.0
// Chooses the tensors of a checkpoint that are quantised: linear layers by their names, and by
// --include and --exclude.
#include "select.h"

#include <fnmatch.h>
#include <string.h>

/** Weights with these parts in their names stay as they are: tables, norms, and layers that decide
 *  more than they compute. */
static const char *const kept[] = {"embed", "norm", "lm_head", "router", "mlp.gate."};

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/** Returns whether a pattern matches a name: with * ? or [ the whole name, else a part of it. */
static bool matches(const char *pattern, const char *name) {
    return strpbrk(pattern, "*?[") ? fnmatch(pattern, name, 0) == 0
                                   : strstr(name, pattern) != nullptr;
}

static bool matches_any(const cli_list *list, bool *used, const char *name) {
    bool found = false;
    for (int i = 0; i < list->count; i++)
        if (matches(list->items[i], name))
            found = used[i] = true;
    return found;
}

bool cli_is_float(const st_tensor *tensor) {
    return strcmp(tensor->dtype->name, "F32") == 0 || strcmp(tensor->dtype->name, "F16") == 0 ||
           strcmp(tensor->dtype->name, "BF16") == 0 || strcmp(tensor->dtype->name, "F64") == 0;
}

bool cli_select(cli_selection *selection, const st_tensor *tensor) {
    const char *name = tensor->name;
    if (tensor->ndim != 2 || !cli_is_float(tensor) || !ends_with(name, ".weight"))
        return false;
    const bool excluded = matches_any(&selection->exclude, selection->exclude_used, name);
    const bool included = matches_any(&selection->include, selection->include_used, name);
    bool is_kept = false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        is_kept = is_kept || strcasestr(name, kept[i]);
    return !excluded && (included || !is_kept);
}

static qn_status check_list(const char *option, const cli_list *list, const bool *used) {
    for (int i = 0; i < list->count; i++)
        if (!used[i])
            return cli_fail(QN_E_INVALID,
                            "option %s: '%s' matches no 2-D floating-point tensor named *.weight",
                            option, list->items[i]);
    return QN_OK;
}

qn_status cli_select_check(const cli_selection *selection) {
    const qn_status st = check_list("--include", &selection->include, selection->include_used);
    return st == QN_OK ? check_list("--exclude", &selection->exclude, selection->exclude_used) : st;
}
