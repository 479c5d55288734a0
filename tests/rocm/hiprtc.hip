// SPDX-License-Identifier: Apache-2.0
// hiprtc: options, headers, name expressions, logs, code for each device; bitcode that is linked; errors.
#include "testing.h"

#include <cstring>
#include <string>

// Triton's wheel has no hip/hiprtc.h.
typedef struct _hiprtcProgram *hiprtcProgram;
typedef struct ihiprtcLinkState *hiprtcLinkState;
extern "C" {
int hiprtcCreateProgram(hiprtcProgram *, const char *, const char *, int, const char **, const char **);
int hiprtcDestroyProgram(hiprtcProgram *);
int hiprtcAddNameExpression(hiprtcProgram, const char *);
int hiprtcCompileProgram(hiprtcProgram, int, const char **);
int hiprtcGetLoweredName(hiprtcProgram, const char *, const char **);
int hiprtcGetProgramLogSize(hiprtcProgram, size_t *);
int hiprtcGetProgramLog(hiprtcProgram, char *);
int hiprtcGetCodeSize(hiprtcProgram, size_t *);
int hiprtcGetCode(hiprtcProgram, char *);
int hiprtcGetBitcodeSize(hiprtcProgram, size_t *);
int hiprtcGetBitcode(hiprtcProgram, char *);
int hiprtcLinkCreate(unsigned, int *, void **, hiprtcLinkState *);
int hiprtcLinkAddData(hiprtcLinkState, int, void *, size_t, const char *, unsigned, int *, void **);
int hiprtcLinkComplete(hiprtcLinkState, void **, size_t *);
int hiprtcLinkDestroy(hiprtcLinkState);
}

static const char *const source = R"(
#include "part/factor.h"
namespace space { __device__ int offset = 4; }
template <typename T> __global__ void scale(T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = x[i] * T(FACTOR) + T(space::offset) + T(SHIFT);
}
)";

static hiprtcProgram create(const char *text) {
    hiprtcProgram program;
    const char *header = "#define FACTOR 3\n", *name = "part/factor.h";
    CHECK(hiprtcCreateProgram(&program, text, "the program", 1, &header, &name) == 0);
    return program;
}

static std::string log_of(hiprtcProgram program) {
    size_t bytes = 0;
    CHECK(hiprtcGetProgramLogSize(program, &bytes) == 0);
    std::string log(bytes, 0);
    CHECK(hiprtcGetProgramLog(program, log.data()) == 0);
    return log;
}

static void test_code() {
    hiprtcProgram program = create(source);
    CHECK(hiprtcAddNameExpression(program, "scale<float>") == 0);
    CHECK(hiprtcAddNameExpression(program, "&space::offset") == 0);
    const char *name, *variable, *options[] = {"-DSHIFT=10", "-std=c++17"};
    CHECK(hiprtcGetLoweredName(program, "scale<float>", &name) == 9);
    CHECK(hiprtcCompileProgram(program, 2, options) == 0);
    CHECK(hiprtcAddNameExpression(program, "late") == 8);
    CHECK(hiprtcGetLoweredName(program, "scale<int>", &name) == 10);
    CHECK(hiprtcGetLoweredName(program, "scale<float>", &name) == 0);
    CHECK(hiprtcGetLoweredName(program, "&space::offset", &variable) == 0);
    size_t bytes;
    CHECK(hiprtcGetBitcodeSize(program, &bytes) == 4);
    CHECK(hiprtcGetCodeSize(program, &bytes) == 0);
    std::vector<char> code(bytes);
    CHECK(hiprtcGetCode(program, code.data()) == 0);
    hipModule_t module;
    hipFunction_t kernel;
    hipDeviceptr_t offset;
    OK(hipModuleLoadData(&module, code.data()));
    OK(hipModuleGetFunction(&kernel, module, name));
    OK(hipModuleGetGlobal(&offset, &bytes, module, variable));
    CHECK(bytes == sizeof(int));
    std::vector<float> x = random_floats(100);
    Buffer<float> device(x);
    int n = 100;
    void *args[] = {(void *)&device.data, &n};
    OK(hipModuleLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, nullptr, args, nullptr));
    std::vector<float> got = device.read();
    for (int i = 0; i < n; i++)
        CHECK(near(got[i], double(x[i]) * 3 + 14, 2)); // two roundings, one less where they are fused
    OK(hipModuleUnload(module));
    CHECK(hiprtcDestroyProgram(&program) == 0 && !program);
}

/** Compiles a program and runs its kernel "alone" by a wave of one value each. Returns the values. */
static std::vector<int> run_alone(hiprtcProgram program, std::vector<const char *> options, const std::vector<int> &x) {
    const bool ok = hiprtcCompileProgram(program, int(options.size()), options.data()) == 0;
    fputs(log_of(program).c_str(), stderr);
    CHECK(ok);
    size_t bytes;
    CHECK(hiprtcGetCodeSize(program, &bytes) == 0);
    std::vector<char> code(bytes);
    CHECK(hiprtcGetCode(program, code.data()) == 0);
    hipModule_t module;
    hipFunction_t kernel;
    OK(hipModuleLoadData(&module, code.data()));
    OK(hipModuleGetFunction(&kernel, module, "alone"));
    Buffer<int> device(x);
    void *args[] = {(void *)&device.data};
    OK(hipModuleLaunchKernel(kernel, 1, 1, 1, unsigned(x.size()), 1, 1, 0, nullptr, args, nullptr));
    std::vector<int> got = device.read();
    OK(hipModuleUnload(module));
    CHECK(hiprtcDestroyProgram(&program) == 0);
    return got;
}

/** A kernel that allocates, without including a header. */
static void test_malloc() {
    CHECK(run_alone(create(R"(
extern "C" __global__ void alone(int *x) {
    int *mine = (int *)malloc(4);
    *mine = 3 * *x;
    *x = *mine + 1;
    free(mine);
})"),
                    {}, {5})[0] == 16);
}

static int wave_of_device() {
    int wave, device;
    OK(hipGetDevice(&device));
    OK(hipDeviceGetAttribute(&wave, hipDeviceAttributeWarpSize, device));
    return wave;
}

/** Types and functions of HIP's, and of the C library's what AMD's hiprtc has, without a header. */
static void test_builtins() {
    const char *text = R"(
static_assert(sizeof(ptrdiff_t) == 8 && sizeof(clock_t) == 8);
static_assert(__AMDGCN_WAVEFRONT_SIZE == WAVE);
static_assert(__is_same(std::ptrdiff_t, POINTERS) && __is_same(std::clock_t, long));
#if defined(CHAR_BIT) || defined(INT_MAX)
#error macros that no header of the program defines
#endif
extern "C" __global__ void alone(int *x) {
    __shared__ int sum;
    int i = threadIdx.x, mine = x[i];
    float4 all = make_float4(mine, 1, 2, 3);
    all += all;
    if (i == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, int(all.x + all.y));
    __syncthreads();
    x[i] = sum + __shfl_xor(mine, 1) + PART;
})";
    // A header of the program's stands for one that this machine need not have; it is built in as well.
    const char *header = "#define PART 1000\n", *name = "hip/amd_detail/amd_hip_math_constants.h";
    for (const char *pointers : {"long", "long long"}) {
        hiprtcProgram program;
        CHECK(hiprtcCreateProgram(&program, text, nullptr, 1, &header, &name) == 0);
        std::string define = std::string("-DPOINTERS=") + pointers, wave = "-DWAVE=" + std::to_string(wave_of_device());
        std::vector<const char *> options{define.c_str(), wave.c_str()};
        if (pointers[4])
            options.push_back("-D__HIPRTC_PTRDIFF_T_IS_LONG_LONG__=1");
        std::vector<int> got = run_alone(program, options, {1, 2, 3, 4});
        for (int i = 0; i < 4; i++)
            CHECK(got[i] == 2 * (1 + 2 + 3 + 4) + 4 * 2 + (i ^ 1) + 1 + 1000);
    }
}

/** The size of a wave that an option asks for, and a log without a word. */
static void test_wave64() {
    hiprtcProgram program = create("static_assert(__AMDGCN_WAVEFRONT_SIZE == 64);\nextern \"C\" __global__ void alone(int *x) { *x = 7; }\n");
    std::vector<const char *> options;
    if (wave_of_device() == 32)
        options.push_back("-mwavefrontsize64");
    CHECK(hiprtcCompileProgram(program, int(options.size()), options.data()) == 0);
    CHECK(log_of(program).empty());
    CHECK(hiprtcDestroyProgram(&program) == 0);
}

static void test_errors() {
    hiprtcProgram program = create("__global__ void broken(int *x) { *x = no_such_name; }\n");
    CHECK(hiprtcCompileProgram(program, 0, nullptr) == 6);
    std::string log = log_of(program);
    CHECK(log.find("no_such_name") != std::string::npos && log.find("the program:1:") != std::string::npos);
    size_t bytes;
    CHECK(hiprtcGetCodeSize(program, &bytes) == 4);
    hiprtcProgram again = program;
    CHECK(hiprtcDestroyProgram(&program) == 0);
    CHECK(hiprtcDestroyProgram(&again) == 4);
    CHECK(hiprtcCompileProgram(again, 0, nullptr) == 4);
    CHECK(hiprtcCreateProgram(nullptr, "", "", 0, nullptr, nullptr) == 3);
}

static std::vector<char> bitcode(const char *text) {
    hiprtcProgram program = create(text);
    const char *options[] = {"-fgpu-rdc"};
    size_t bytes;
    CHECK(hiprtcCompileProgram(program, 1, options) == 0);
    CHECK(hiprtcGetCodeSize(program, &bytes) == 4);
    CHECK(hiprtcGetBitcodeSize(program, &bytes) == 0);
    std::vector<char> code(bytes);
    CHECK(hiprtcGetBitcode(program, code.data()) == 0);
    CHECK(hiprtcDestroyProgram(&program) == 0);
    return code;
}

/** Bundles bitcode for the current device, as clang-offload-bundler does. */
static std::vector<char> bundle(const std::vector<char> &code) {
    hipDeviceProp_t properties;
    int device;
    OK(hipGetDevice(&device));
    OK(hipGetDeviceProperties(&properties, device));
    std::string name = properties.gcnArchName, id = "hip-amdgcn-amd-amdhsa--" + name.substr(0, name.find(':'));
    const uint64_t header[] = {1, 4096, code.size(), id.size()};
    std::vector<char> out(4096 + code.size());
    memcpy(out.data(), "__CLANG_OFFLOAD_BUNDLE__", 24);
    memcpy(out.data() + 24, header, sizeof header);
    memcpy(out.data() + 24 + sizeof header, id.data(), id.size());
    memcpy(out.data() + 4096, code.data(), code.size());
    return out;
}

/** Puts a file into an archive, as ar does. */
static std::vector<char> archive(const std::vector<char> &file) {
    char text[69];
    snprintf(text, sizeof text, "!<arch>\n%-16s%-12s%-6s%-6s%-8s%-10zu`\n", "a.bc/", "0", "0", "0", "644", file.size());
    std::vector<char> out(text, text + 68);
    out.insert(out.end(), file.begin(), file.end());
    return out;
}

/** Links through HIP's own calls: bitcode in a bundle, and in a bundle in an archive. */
static void test_bundles() {
    std::vector<char> a = archive(bundle(bitcode("__device__ int thrice(int x) { return 3 * x; }\n")));
    std::vector<char> b = bundle(bitcode("__device__ int thrice(int);\nextern \"C\" __global__ void call(int *x) { *x = thrice(*x); }\n"));
    hipLinkState_t link;
    void *code;
    size_t bytes;
    OK(hipLinkCreate(0, nullptr, nullptr, &link));
    CHECK(hipLinkAddData(link, hipJitInputType(101), a.data(), a.size(), "a", 0, nullptr, nullptr) == hipErrorInvalidValue);
    CHECK(hipLinkAddData(link, hipJitInputType(102), a.data(), a.size() - 1, "a", 0, nullptr, nullptr) == hipErrorInvalidValue);
    OK(hipLinkAddData(link, hipJitInputType(102), a.data(), a.size(), "a", 0, nullptr, nullptr));
    OK(hipLinkAddData(link, hipJitInputType(101), b.data(), b.size(), "b", 0, nullptr, nullptr));
    OK(hipLinkComplete(link, &code, &bytes));
    hipModule_t module;
    hipFunction_t kernel;
    OK(hipModuleLoadData(&module, code));
    OK(hipLinkDestroy(link));
    CHECK(hipLinkDestroy(link) == hipErrorInvalidValue);
    OK(hipModuleGetFunction(&kernel, module, "call"));
    Buffer<int> x(std::vector<int>{14});
    void *args[] = {(void *)&x.data};
    OK(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr));
    CHECK(x.read()[0] == 42);
    OK(hipModuleUnload(module));
}

static void test_link() {
    std::vector<char> a = bitcode("__device__ int twice(int x) { return 2 * x; }\n");
    std::vector<char> b = bitcode("__device__ int twice(int);\nextern \"C\" __global__ void call(int *x) { *x = twice(*x) + 1; }\n");
    hiprtcLinkState link;
    void *code;
    size_t bytes;
    CHECK(hiprtcLinkCreate(0, nullptr, nullptr, &link) == 0);
    CHECK(hiprtcLinkAddData(link, 100, a.data(), a.size(), "a", 0, nullptr, nullptr) == 0);
    CHECK(hiprtcLinkAddData(link, 100, b.data(), b.size(), "b", 0, nullptr, nullptr) == 0);
    CHECK(hiprtcLinkComplete(link, &code, &bytes) == 0 && bytes);
    hipModule_t module;
    hipFunction_t kernel;
    OK(hipModuleLoadData(&module, code));
    CHECK(hiprtcLinkDestroy(link) == 0);
    OK(hipModuleGetFunction(&kernel, module, "call"));
    Buffer<int> x(std::vector<int>{20});
    void *args[] = {(void *)&x.data};
    OK(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr));
    CHECK(x.read()[0] == 41);
    OK(hipModuleUnload(module));
}

int main() {
    on_each_device(test_code);
    on_each_device(test_malloc);
    on_each_device(test_builtins);
    on_each_device(test_wave64);
    on_each_device(test_errors);
    on_each_device(test_link);
    on_each_device(test_bundles);
}
