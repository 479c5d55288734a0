// SPDX-License-Identifier: Apache-2.0
// The module API. Arguments: files with the kernels of this file (an ELF object of one chip, a bundle of several, a
// compressed bundle). Each is loaded, from its path and from memory, on the devices that it has code for.
#include "testing.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

struct Pair {
    short low;
    double high;
};

extern "C" __device__ int module_offset = 40;
extern "C" __managed__ int module_managed = 5;

extern "C" __global__ void module_scale(const int *x, int *out, int n, char factor, Pair pair) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = x[i] * factor + pair.low + int(pair.high) + module_offset + module_managed - 5;
}

static std::string contents(const char *path) {
    std::ifstream file(path, std::ios::binary);
    CHECK(file.good());
    return std::string(std::istreambuf_iterator<char>(file), {});
}

static void check_scaled(const std::vector<int> &got, int offset) {
    for (int i = 0; i < 100; i++)
        CHECK(got[i] == i * -3 + 5 + 1000 + offset);
}

static void test_launches(hipModule_t module) {
    hipFunction_t function;
    hipDeviceptr_t global;
    size_t bytes;
    OK(hipModuleGetFunction(&function, module, "module_scale"));
    OK(hipModuleGetGlobal(&global, &bytes, module, "module_offset"));
    CHECK(bytes == 4);
    CHECK(hipModuleGetFunction(&function, module, "no_such_kernel") == hipErrorNotFound);
    CHECK(hipModuleGetGlobal(&global, &bytes, module, "no_such_variable") == hipErrorNotFound);
    OK(hipModuleGetFunction(&function, module, "module_scale"));
    OK(hipModuleGetGlobal(&global, &bytes, module, "module_offset"));

    std::vector<int> x(100);
    for (int i = 0; i < 100; i++)
        x[i] = i;
    Buffer<int> in(x), out(100);
    struct {
        const int *x;
        int *out;
        int n;
        char factor;
        Pair pair;
    } args = {in.data, out.data, 100, -3, {5, 1000.5}};
    void *params[] = {&args.x, &args.out, &args.n, &args.factor, &args.pair};
    OK(hipModuleLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, nullptr, params, nullptr));
    check_scaled(out.read(), 40);

    hipDeviceptr_t managed; // has one address for host and device
    OK(hipModuleGetGlobal(&managed, &bytes, module, "module_managed"));
    CHECK(bytes == 4 && *(int *)managed == 5);
    *(int *)managed = 6;
    int offset = 77;
    OK(hipMemcpyHtoD(global, &offset, sizeof offset));
    OK(hipMemset(out.data, 0, 400));
    size_t size = sizeof args;
    void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END};
    OK(hipModuleLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
    check_scaled(out.read(), 78);

    int threads;
    OK(hipFuncGetAttribute(&threads, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(threads == 1024);
    CHECK(hipModuleLaunchKernel(function, 1, 1, 1, 2000, 1, 1, 0, nullptr, params, nullptr) != hipSuccess);
    CHECK(hipModuleLaunchKernel(function, 0, 1, 1, 64, 1, 1, 0, nullptr, params, nullptr) != hipSuccess);
    (void)hipGetLastError();
}

static int loaded;

static void test_file(const char *path) {
    hipModule_t module;
    hipError_t error = hipModuleLoad(&module, path);
    if (error == hipErrorNoBinaryForGpu || error == hipErrorInvalidImage) { // of another chip
        (void)hipGetLastError();
        return;
    }
    OK(error);
    test_launches(module);
    OK(hipModuleUnload(module));
    std::string bytes = contents(path);
    OK(hipModuleLoadData(&module, bytes.data()));
    bytes.assign(bytes.size(), '?'); // the library has what it needs
    test_launches(module);
    OK(hipModuleUnload(module));
    loaded++;
}

static std::vector<const char *> files;

int main(int argc, char **argv) {
    files.assign(argv + 1, argv + argc);
    on_each_device([] {
        for (const char *path : files)
            test_file(path);
        hipModule_t module;
        CHECK(hipModuleLoad(&module, "/no/such/file") == hipErrorFileNotFound);
        CHECK(hipModuleLoadData(&module, nullptr) != hipSuccess);
        CHECK(hipModuleLoadData(&module, "not a code object, not a bundle, nothing at all") != hipSuccess);
        (void)hipGetLastError();
    });
    printf("%d\n", loaded);
}
