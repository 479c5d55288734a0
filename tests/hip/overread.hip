// SPDX-License-Identifier: Apache-2.0
// A kernel that loads a little past the end of its array, as hand-written ones do, and sums up what is there. Its exit
// status says what came of it: 0, the right sums; 3, an illegal address; 1, anything else.
#include "mini.h"

enum { COUNT = 1000, REACH = 8, THREADS = 256, GROUPS = 4 };

/** Sums of `REACH` neighbours: the last ones have fewer. */
__global__ void sum(int *out, const int *in) {
    int i = (int)global_id(), total = 0;
    for (int k = 0; k < REACH; k++)
        total += in[i + k];
    if (i < COUNT)
        out[i] = total;
}

int main() {
    enum { ILLEGAL_ADDRESS = 700, FOUND = 3 };
    static int host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = i + 1;
    int *in = device_array<int>(COUNT, host), *out = device_array<int>(COUNT);
    sum<<<GROUPS, THREADS>>>(out, in);
    hipError_t error = hipDeviceSynchronize();
    if (error)
        return error == ILLEGAL_ADDRESS ? FOUND : 1;
    read_back(host, out, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int want = 0;
        for (int k = i; k < i + REACH && k < COUNT; k++)
            want += k + 1;
        CHECK(host[i] == want);
    }
    return 0;
}
