// SPDX-License-Identifier: Apache-2.0
// A program of several translation units, each with a fat binary: kernels of one name in two of them, a template in both,
// and a shared object that comes later and goes again. Linked with units_b.hip; argument: the shared object.
#include "units.h"

#include <dlfcn.h>

static __global__ void same_name(int *out) {
    *out = 1;
}

int run_a() {
    int *d = device_array<int>(2), got[2];
    same_name<<<1, 1>>>(d);
    in_both<10><<<1, 1>>>(d + 1);
    read_back(got, d, 2);
    OK(hipFree(d));
    return got[0] + got[1];
}

static int run_shared(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    int (*run)() = (int (*)())dlsym(library, "run_c");
    CHECK(run);
    int got = run();
    dlclose(library);
    return got;
}

int main(int, char **argv) {
    int devices;
    OK(hipGetDeviceCount(&devices));
    for (int i = 0; i < devices; i++) {
        OK(hipSetDevice(i));
        CHECK(run_a() == 11);
        CHECK(run_b() == 12);
        CHECK(run_shared(argv[1]) == 13);
        CHECK(run_shared(argv[1]) == 13);
    }
    return 0;
}
