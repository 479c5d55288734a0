// SPDX-License-Identifier: Apache-2.0
// Loads all kernels of a device, so that compiling them does not wait for their first calls.
#include "runtime.h"

#include <quern/cache.h>

#include <string.h>
#include <time.h>

#define FAIL(status, ...) QN_FAIL(status, "cache: " __VA_ARGS__)

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000L + t.tv_nsec;
}

/** Loads what the variant launches, for all dtypes. */
static qn_status load(qn_device *device, const qni_variant *variant) {
    constexpr int most = sizeof variant->config.kernel / sizeof *variant->config.kernel;
    for (int i = 0; i < most; i++) {
        const qni_kernel_ref *kernel = &variant->config.kernel[i];
        qni_kernel_usage usage;
        if (kernel->image)
            QN_TRY(qni_kernel_get_usage(device, kernel, &usage));
    }
    return QN_OK;
}

static qn_status fill_op(qn_device *device, const qni_op *op, qn_cache_fill_fn each,
                         void *context) {
    qn_status first = QN_OK;
    for (int i = 0; i < op->num_variants; i++) {
        const qni_variant *variant = &op->variants[i];
        if (variant->is_cpu || !qni_device_meets(device, variant->needs))
            continue;
        const int64_t begin = now_ns();
        const qn_status st = load(device, variant);
        each(context, &(qn_cache_fill_result){.op = op->name,
                                              .kernel = variant->name,
                                              .ns = now_ns() - begin,
                                              .error = st == QN_OK ? nullptr : qn_last_error()});
        first = first == QN_OK ? st : first;
    }
    return first;
}

qn_status qn_cache_fill(qn_device *device, const char *op, qn_cache_fill_fn each, void *context) {
    qn_status first = QN_OK;
    if (!device || !each)
        return FAIL(QN_E_INVALID, "%s is null", device ? "each" : "device");
    if (device->id.device_type == kDLCPU)
        return FAIL(QN_E_UNSUPPORTED, "%s has no kernels to compile", device->info.spec);
    if (op && !qni_op_find(op, strlen(op)))
        return FAIL(QN_E_NOT_FOUND, "no op is named '%s'", op);
    for (const qni_op *const *o = qni_choice_ops(); *o; o++) {
        if (op && strcmp((*o)->name, op) != 0)
            continue;
        const qn_status st = fill_op(device, *o, each, context);
        first = first == QN_OK ? st : first;
    }
    return first;
}
