// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a code object or bundle must give a status, and an object that
// loads can be launched: its kernels must end, fault or run into the limit, and never leave the
// guest's memory.
//
// The last bytes choose the launch, so that seeds are code objects as compilers and bundlers make
// them. Everything goes through the HIP API, as in programs; only loading takes a size, which HIP's
// call does not.
// Fuzzes: libquernsim
#include "../../sim/hip/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUFFER_BYTES = 60000, ARGS_BYTES = 1024, MAX_KERNELS = 1 };

/** How kernels are launched. */
typedef struct trailer {
    uint8_t arch, grid, threads, lds, kernel, is_checked;
} trailer;

static void configure(const char *options) {
    if (quernsim_configure(options) != 0)
        abort();
}

/** Opens one device of each kind, whose kernels may execute 2000 instructions. */
static void start(void) {
    configure("arch=gfx90a,gfx942,gfx950,gfx1151,gfx1201,gfx11-generic,gfx12-generic;limit=2000;"
              "threads=1");
    if (hipInit(0) != hipSuccess)
        abort();
}

/** Returns the device of the chip that an ELF file's header names, else the one that the trailer
 *  chooses. */
static int choose_device(const uint8_t *data, size_t size, const trailer *t) {
    enum { MACHINE_AT = 48 };
    for (int i = 0; size > MACHINE_AT && i < SIM_NUM_ARCHS; i++)
        if (data[MACHINE_AT] == sim_chip_by_arch((sim_arch)i)->elf_mach)
            return i;
    return t->arch % SIM_NUM_ARCHS;
}

/** Launches with arguments that point to device memory full of such pointers. */
static void launch(hipFunction_t function, const trailer *t, void *buffer) {
    uint64_t args[ARGS_BYTES / 8];
    size_t bytes = sizeof args;
    for (size_t i = 0; i < ARGS_BYTES / 8; i++)
        args[i] = i % 3 == 2 ? i : (uintptr_t)buffer + 64 * i;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     HIP_LAUNCH_PARAM_END};
    hipModuleLaunchKernel(function, 1 + t->grid % 3u, 1, 1, 1 + t->threads % 130u, 1, 1,
                          t->lds * 5u, nullptr, nullptr, extra);
    hipDeviceSynchronize();
}

/** Launches kernels by the names in the object's text: those before ".kd". */
static void launch_kernels(hipModule_t module, const uint8_t *data, size_t size, const trailer *t) {
    void *buffer;
    if (hipMalloc(&buffer, BUFFER_BYTES) != hipSuccess)
        return;
    unsigned found = 0, launched = 0;
    for (size_t end = 1; end + 4 <= size && launched < MAX_KERNELS; end++) {
        char name[256];
        size_t first = end;
        while (first && data[first - 1] && end - first < sizeof name - 1)
            first--;
        hipFunction_t function;
        memcpy(name, data + first, end - first);
        name[end - first] = '\0';
        if (!memcmp(data + end, ".kd", 4) && found++ >= t->kernel % 16u &&
            hipModuleGetFunction(&function, module, name) == hipSuccess) {
            launch(function, t, buffer);
            launched++;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool is_started;
    trailer t;
    if (size < sizeof t)
        return 0;
    if (!is_started) {
        start();
        is_started = true;
    }
    size -= sizeof t;
    memcpy(&t, data + size, sizeof t);
    configure(t.is_checked & 1 ? "check=all" : "check=none");
    const int device = choose_device(data, size, &t);
    hipModule_t module;
    if (hipSetDevice(device) == hipSuccess &&
        sim_hip_load_module(&module, sim_hip_device_at(device), data, size, "fuzz") == hipSuccess) {
        launch_kernels(module, data, size, &t);
    }
    hipDeviceReset();
    return 0;
}
