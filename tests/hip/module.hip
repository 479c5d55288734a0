// SPDX-License-Identifier: Apache-2.0
// The module API on a code object of its own: argument, its file. The same source is the program and the object.
#include "mini.h"

extern "C" __device__ int offset = 3;

extern "C" __global__ void scale(int *data, int n, short factor) {
    int i = (int)global_id();
    if (i < n)
        data[i] = data[i] * factor + offset;
}

int main(int, char **argv) {
    enum { N = 300, NOT_FOUND = 500 };
    hipModule_t module;
    hipFunction_t f;
    int data[N], n = N, *variable, seven = 7;
    short factor = -2;
    size_t bytes;
    OK(hipModuleLoad(&module, argv[1]));
    OK(hipModuleGetFunction(&f, module, "scale"));
    CHECK(hipModuleGetFunction(&f, module, "none") == NOT_FOUND);
    OK(hipModuleGetGlobal((void **)&variable, &bytes, module, "offset"));
    CHECK(bytes == sizeof(int));
    OK(hipMemcpy(variable, &seven, sizeof seven, hipMemcpyHostToDevice));
    for (int i = 0; i < N; i++)
        data[i] = i;
    int *d = device_array(N, data);
    void *args[] = {&d, &n, &factor};
    OK(hipModuleLaunchKernel(f, 5, 1, 1, 64, 1, 1, 0, nullptr, args, nullptr));
    scale<<<5, 64>>>(d, n, factor); // the program's own has its own variable
    read_back(data, d, N);
    for (int i = 0; i < N; i++)
        CHECK(data[i] == (i * -2 + 7) * -2 + 3);
    OK(hipModuleUnload(module));
    OK(hipFree(d));
    return 0;
}
