// SPDX-License-Identifier: Apache-2.0
// What a tuner asks of its thread's calls: to tell which kernels they may take, and to take one.
#include "tune.h"

#include <quern/tune.h>

#include <string.h>

enum { MAX_KERNELS = 64 }; // of an op, for one problem

_Atomic bool qni_tune_is_asked;

static thread_local struct {
    qn_tune_choice_fn each;
    void *context;
    const qni_op *op; // whose calls run `forced`
    const qni_variant *forced;
} asked;

void qn_tune_watch(qn_tune_choice_fn each, void *context) {
    qni_tune_is_asked = true;
    asked.each = each;
    asked.context = context;
}

qn_status qn_tune_force(const char *kernel) {
    const size_t length = kernel ? strlen(kernel) : 0;
    const qni_op *op = kernel ? qni_op_find(kernel, strcspn(kernel, ".")) : nullptr;
    const qni_variant *variant = op ? qni_variant_find(op, kernel, length) : nullptr;
    if (kernel && !variant)
        return QN_FAIL(QN_E_NOT_FOUND,
                       "tune_force: there is no kernel \"%.64s\"; accepted: names as quern check "
                       "prints them",
                       kernel);
    qni_tune_is_asked = true;
    asked.op = op;
    asked.forced = variant;
    return QN_OK;
}

const qni_variant *qni_tune_forced(const qni_op *op) {
    return asked.op == op ? asked.forced : nullptr;
}

/** Lists the kernels that can run the problem, the cheapest first; of equal ones that which a call
 *  would take. Returns their number. */
static int list_kernels(const qni_op *op, const qn_device *device, const void *problem,
                        qn_tune_kernel *kernels) {
    double costs[MAX_KERNELS];
    int count = 0;
    for (int i = 0; i < op->num_variants && count < MAX_KERNELS; i++) {
        const qni_variant *v = &op->variants[i];
        if (!qni_variant_fits(v, device, problem, nullptr))
            continue;
        const double cost = qni_cost_of(v, device, problem);
        int at = count++;
        for (; at > 0 && costs[at - 1] > cost; at--) {
            costs[at] = costs[at - 1];
            kernels[at] = kernels[at - 1];
        }
        costs[at] = cost;
        kernels[at] = (qn_tune_kernel){v->name, v->config.bits};
    }
    return count;
}

static bool report(const qni_op *op, const qn_device *device, const void *problem) {
    qn_tune_kernel kernels[MAX_KERNELS];
    char of_all[512], of_batch[256];
    const qn_tune_choice choice = {
        .op = op->name,
        .device = device->info.arch,
        .problem = qni_tune_describe_part(op, device, problem, false, of_all, sizeof of_all),
        .batch = qni_tune_describe_part(op, device, problem, true, of_batch, sizeof of_batch),
        .kernels = kernels,
        .num_kernels = list_kernels(op, device, problem, kernels)};
    return asked.each(asked.context, &choice);
}

qn_status qni_tune_report(const qni_op *op, const qn_device *device, const void *problem) {
    if (!asked.each || !op->keys || report(op, device, problem))
        return QN_OK;
    return QN_FAIL(QN_E_UNSUPPORTED, "%s: the choice was watched, and the call ended", op->name);
}
