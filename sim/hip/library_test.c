// SPDX-License-Identifier: Apache-2.0
// Libraries and their kernels, attributes of kernel nodes, masks of compute units.
#include "hip_testing.h"

/** Returns the test kernels' file. */
static char *file_of(const char *level) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/testdata/kernels.%s.co", build_dir(), level);
    return path;
}

static hipLibrary_t library_of(const char *level) {
    hipLibrary_t out;
    OK(hip.hipLibraryLoadFromFile(&out, file_of(level), nullptr, nullptr, 0, nullptr, nullptr, 0));
    return out;
}

/** Launches t_count, which counts work-items, by some handle; returns what it counted. */
static uint32_t count_by(void *function) {
    uint32_t got, *count = device_alloc(4, &(uint32_t){0});
    OK(launch(function, 2, 64, nullptr, &count, sizeof count));
    take(&got, count, 4);
    return got;
}

static void test_library(void **state) {
    (void)state;
    hipLibrary_t code = library_of("O3"), got;
    hipKernel_t kernel;
    hipFunction_t f;
    const char *name;
    OK(hip.hipLibraryGetKernel(&kernel, code, "t_count"));
    OK(hip.hipKernelGetFunction(&f, kernel));
    assert_int_equal(count_by(f), 128);
    assert_int_equal(count_by(kernel), 128);
    uint32_t *count = device_alloc(4, &(uint32_t){0}), counted;
    void *params[] = {&count};
    OK(hip.hipLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){3, 1, 1}, params, 0, nullptr));
    take(&counted, count, 4);
    assert_int_equal(counted, 3);
    OK(hip.hipKernelGetName(&name, kernel));
    assert_string_equal(name, "t_count");
    OK(hip.hipKernelGetLibrary(&got, kernel));
    assert_ptr_equal(got, code);
    OK(hip.hipDeviceReset()); // the code goes, and comes back
    assert_int_equal(count_by(kernel), 128);
    assert_int_equal(hip.hipLibraryGetKernel(&kernel, code, "none"), hipErrorNotFound);
    OK(hip.hipLibraryUnload(code));
    assert_int_equal(hip.hipLibraryUnload(code), hipErrorInvalidHandle);
    assert_int_equal(hip.hipKernelGetName(&name, kernel), hipErrorInvalidHandle);
    assert_int_equal(launch((hipFunction_t)kernel, 1, 1, nullptr, params, 8),
                     hipErrorInvalidHandle);
    reset();
}

static void test_kernels(void **state) {
    (void)state;
    hipLibrary_t code = library_of("O3");
    hipKernel_t kernels[64], kernel;
    unsigned count;
    bool found = false;
    OK(hip.hipLibraryGetKernel(&kernel, code, "t_count"));
    OK(hip.hipLibraryGetKernelCount(&count, code));
    assert_in_range(count, 2, 64);
    OK(hip.hipLibraryEnumerateKernels(kernels, count, code));
    for (unsigned i = 0; i < count; i++)
        found |= kernels[i] == kernel;
    assert_true(found);
    size_t offset, bytes;
    OK(hip.hipLibraryGetKernel(&kernel, code, "t_axpy")); // a struct of 24 bytes, a word
    OK(hip.hipKernelGetParamInfo(kernel, 1, &offset, &bytes));
    assert_int_equal(bytes, 4);
    assert_int_equal(hip.hipKernelGetParamInfo(kernel, 2, &offset, &bytes), hipErrorInvalidValue);
    int threads;
    OK(hip.hipKernelGetAttribute(&threads, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    assert_in_range(threads, 64, 1024);
    assert_int_equal(hip.hipKernelGetAttribute(&threads, HIP_FUNC_ATTRIBUTE_NUM_REGS, kernel, 77),
                     hipErrorInvalidDevice);
    const hipFunction_attribute lds = HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    OK(hip.hipKernelSetAttribute(lds, 1024, kernel, 0));
    assert_int_equal(hip.hipKernelSetAttribute(lds, 1 << 30, kernel, 0), hipErrorInvalidValue);
    OK(hip.hipLibraryUnload(code));
}

static void test_node_attributes(void **state) {
    (void)state;
    enum { WINDOW = 1, COOPERATIVE = 2, PRIORITY = 8 };
    hipGraph_t graph;
    hipGraphNode_t node, other;
    hipGraphExec_t exec;
    uint32_t got, *count = device_alloc(4, &(uint32_t){0});
    void *params[] = {&count};
    hipKernelNodeParams p = {.func = kernel(modules[0], "t_count"),
                             .gridDim = {2, 1, 1},
                             .blockDim = {64, 1, 1},
                             .kernelParams = params};
    hipLaunchAttributeValue value = {.number = 1}, back;
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddKernelNode(&node, graph, nullptr, 0, &p));
    OK(hip.hipGraphAddKernelNode(&other, graph, &node, 1, &p));
    OK(hip.hipGraphKernelNodeSetAttribute(node, COOPERATIVE, &value));
    OK(hip.hipGraphKernelNodeSetAttribute(node, PRIORITY,
                                          &(hipLaunchAttributeValue){.number = -1}));
    OK(hip.hipGraphKernelNodeSetParams(node, &p)); // attributes stay
    OK(hip.hipGraphKernelNodeCopyAttributes(node, other));
    OK(hip.hipGraphKernelNodeGetAttribute(other, COOPERATIVE, &back));
    assert_int_equal(back.number, 1);
    OK(hip.hipGraphKernelNodeGetAttribute(other, PRIORITY, &back));
    assert_int_equal(back.number, -1);
    value.window = (typeof(value.window)){count, 0, 1.5f, 0, 4};
    assert_int_equal(hip.hipGraphKernelNodeSetAttribute(node, WINDOW, &value),
                     hipErrorInvalidValue); // a share of 1.5
    assert_int_equal(hip.hipGraphKernelNodeSetAttribute(node, 3, &value), hipErrorInvalidValue);
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphLaunch(exec, nullptr));
    take(&got, count, 4);
    assert_int_equal(got, 256);
    p.gridDim.x = 1 << 20; // more than fit at a time
    OK(hip.hipGraphAddKernelNode(&other, graph, nullptr, 0, &p));
    assert_int_equal(hip.hipGraphKernelNodeSetAttribute(other, COOPERATIVE,
                                                        &(hipLaunchAttributeValue){.number = 1}),
                     hipErrorCooperativeLaunchTooLarge);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
}

static void test_masks(void **state) {
    (void)state;
    enum { WORDS = 10 };
    hipStream_t stream;
    const uint32_t mask[] = {0x5, 0xff};
    uint32_t got[WORDS];
    OK(hip.hipExtStreamCreateWithCUMask(&stream, 2, mask));
    OK(hip.hipExtStreamGetCUMask(stream, WORDS, got));
    assert_memory_equal(got, mask, sizeof mask);
    assert_int_equal(got[2], 0);
    OK(hip.hipStreamDestroy(stream));
    OK(hip.hipExtStreamCreateWithCUMask(&stream, 2, (uint32_t[]){0, 0})); // no units: all
    OK(hip.hipExtStreamGetCUMask(stream, WORDS, got));
    assert_int_equal(got[0], UINT32_MAX);
    OK(hip.hipStreamDestroy(stream));
    OK(hip.hipExtStreamGetCUMask(nullptr, WORDS, got)); // of 304 units
    assert_int_equal(got[0], UINT32_MAX);
    assert_int_equal(got[9], 0xffff);
    assert_int_equal(hip.hipExtStreamGetCUMask(nullptr, 1, got), hipErrorInvalidValue);
    assert_int_equal(hip.hipExtStreamCreateWithCUMask(&stream, 0, mask), hipErrorInvalidValue);
}

int main(void) {
    open_library();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_library, start),
        cmocka_unit_test_setup(test_kernels, start),
        cmocka_unit_test_setup(test_node_attributes, start),
        cmocka_unit_test_setup(test_masks, start),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
