// SPDX-License-Identifier: Apache-2.0
// The shared object that units_a.hip's program opens.
#include "units.h"

static __global__ void same_name(int *out) {
    *out = 3;
}

extern "C" int run_c() {
    int *d = device_array<int>(2), got[2];
    same_name<<<1, 1>>>(d);
    in_both<10><<<1, 1>>>(d + 1);
    read_back(got, d, 2);
    OK(hipFree(d));
    return got[0] + got[1];
}
