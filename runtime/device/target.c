// SPDX-License-Identifier: Apache-2.0
// GPU targets: which images run on which chip.
#include "device.h"

#include <string.h>

const qni_target qni_targets[QNI_NUM_TARGETS] = {
#define QN_TARGET(name, version, wave, lds, features) {name, version, wave, lds, features},
#include "targets.def"
#undef QN_TARGET
};

const qni_target *qni_target_find(const char *name, size_t length) {
    for (int t = 0; t < QNI_NUM_TARGETS; t++)
        if (strlen(qni_targets[t].name) == length &&
            strncmp(qni_targets[t].name, name, length) == 0)
            return &qni_targets[t];
    return nullptr;
}

/** Returns the generic target whose images a target runs as well, as LLVM's AMDGPUUsage lists its
 *  members. */
static const char *generic_name(const char *arch, size_t length) {
    static const struct {
        const char *generic, *members;
    } families[] = {
        {"gfx11-generic", " gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 "},
        {"gfx12-generic", " gfx1200 gfx1201 "},
        {"sm_80", " sm_90a "}, // PTX of a plain target runs on every later GPU
    };
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const char *at = families[f].members + 1; *at; at += strcspn(at, " ") + 1)
            if (strcspn(at, " ") == length && strncmp(at, arch, length) == 0)
                return families[f].generic;
    return nullptr;
}

const qni_target *qni_target_generic(const qni_target *target) {
    const char *name = generic_name(target->name, strlen(target->name));
    return name ? qni_target_find(name, strlen(name)) : nullptr;
}

const qni_target *qni_target_of_capability(int major, int minor) {
    // PTX of sm_90a runs on 9.0 alone; PTX of plain targets runs on all later GPUs.
    const char *name = major == 9 && minor == 0 ? "sm_90a" : major >= 8 ? "sm_80" : "";
    return qni_target_find(name, strlen(name));
}

const char *const qni_cpu_archs[] = {"x86-64-avx512bf16", "x86-64-avx512", "x86-64-avx2", "x86-64",
                                     "generic",           nullptr};

const qni_target *qni_target_of_arch(const char *gcn_arch) {
    const size_t length = strcspn(gcn_arch, ":");
    const qni_target *exact = qni_target_find(gcn_arch, length);
    if (exact)
        return exact;
    const char *name = generic_name(gcn_arch, length);
    return name ? qni_target_find(name, strlen(name)) : nullptr;
}

/** Returns whether a name such as "sm_90" or "sm_120" is of a compute capability that has
 *  images. */
static bool is_nvidia_arch(const char *name, size_t length) {
    int capability = 0;
    if (length < 5 || length > 6 || strncmp(name, "sm_", 3) != 0)
        return false;
    for (size_t i = 3; i < length; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        capability = 10 * capability + (name[i] - '0');
    }
    return qni_target_of_capability(capability / 10, capability % 10);
}

qni_arch qni_arch_of(const char *name, size_t length) {
    for (const char *const *cpu = qni_cpu_archs; *cpu; cpu++)
        if (strlen(*cpu) == length && strncmp(*cpu, name, length) == 0)
            return QNI_ARCH_CPU;
    const qni_target *exact = qni_target_find(name, length);
    const bool is_amd = exact ? !qni_target_is_ptx(exact) : generic_name(name, length) != nullptr;
    return is_amd || is_nvidia_arch(name, length) ? QNI_ARCH_GPU : QNI_ARCH_UNKNOWN;
}
