// SPDX-License-Identifier: Apache-2.0
// The calls of HIP 7 that the simulated GPU lacks. They exist so that programs load, and each is an
// error that names the call. The first time, standard error names it too.
//
// No call reads its arguments, so the declarations have none.
#include "runtime.h"

#define HIP_UNSUPPORTED(name)                                                                      \
    HIP_API hipError_t name(void);                                                                 \
    hipError_t name(void) {                                                                        \
        static atomic_flag is_told = ATOMIC_FLAG_INIT;                                             \
        if (!atomic_flag_test_and_set(&is_told))                                                   \
            sim_hip_report(#name, "not supported: see docs/hip.md");                               \
        return sim_hip_unsupported(#name);                                                         \
    }
#include "unsupported.def"
#undef HIP_UNSUPPORTED

/** Registers a texture or surface that is bound by name: the kernels of its unit are refused.
 *  (registry.c) */
void __hipRegisterTexture(void **handle, void *host, char *host_name, char *name, int type,
                          int is_normalized, int is_external) {
    (void)host, (void)host_name, (void)type, (void)is_normalized, (void)is_external;
    sim_hip_refuse_binary(handle, name);
}

void __hipRegisterSurface(void **handle, void *host, char *host_name, char *name, int type,
                          int is_external) {
    (void)host, (void)host_name, (void)type, (void)is_external;
    sim_hip_refuse_binary(handle, name);
}
