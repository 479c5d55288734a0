// SPDX-License-Identifier: Apache-2.0
// Lists the kernels that a device has, whatever the problem.
#include "runtime.h"

#include <quern/choice.h>

#include <string.h>

/** A kernel for problems that no other of its op takes: see qn_kernel. */
static bool is_general(const qni_variant *v) {
    const char *name = strchr(v->name, '.') + 1;
    if (v->is_cpu)
        return !v->needs.all && !v->needs.any;
    return strncmp(name, "any", 3) == 0 || strncmp(name, "gpu_any", 7) == 0;
}

static void report_op(const qn_device *device, const qni_op *op, qn_kernel_fn each, void *context) {
    const bool on_cpu = device->id.device_type == kDLCPU;
    for (const qni_variant *v = op->variants; v < op->variants + op->num_variants; v++) {
        qni_reason why = {""};
        if (v->is_cpu != on_cpu)
            continue;
        const bool is_here = qni_variant_is_here(v, device, &why);
        each(context, &(qn_kernel){.op = op->name,
                                   .name = v->name,
                                   .reason = is_here ? nullptr : why.text,
                                   .is_general = is_general(v)});
    }
}

qn_status qn_kernel_list(const qn_device *device, const char *op, qn_kernel_fn each,
                         void *context) {
    if (!device || !each)
        return QN_FAIL(QN_E_INVALID, "qn_kernel_list: %s is null", device ? "each" : "device");
    const qni_op *const one = op ? qni_op_find(op, strlen(op)) : nullptr;
    if (op && !one)
        return QN_FAIL(QN_E_NOT_FOUND, "qn_kernel_list: no op is called \"%s\"", op);
    const qni_op *const *ops = one ? (const qni_op *const[]){one, nullptr} : qni_choice_ops();
    for (; *ops; ops++)
        report_op(device, *ops, each, context);
    return QN_OK;
}
