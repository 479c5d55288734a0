// SPDX-License-Identifier: Apache-2.0
// The calls that the fuzzer of HIP makes on modules, hiprtc's programs and graphs, as hip_calls.h
// has the others. Left out are calls that start clang.
#ifndef FUZZ_HIP_GRAPH_CALLS_H
#define FUZZ_HIP_GRAPH_CALLS_H

#include "hip_calls.h"

// ---- modules and launches

alignas(64) static const uint8_t for_gfx942[] = {
#embed "kernels.O3.co"
};
alignas(64) static const uint8_t for_gfx1151[] = {
#embed "kernels.gfx1151.O3.co"
};

static hipError_t load_module(void) {
    hipModule_t module = nullptr;
    const void *image = take(2) ? for_gfx942 : for_gfx1151;
    return made(MODULE, &module, hipModuleLoadData(take_out(&module), take_out((void *)image)));
}

static const char *take_name(void) {
    static const char *const names[] = {"t_ids", "t_count", "t_reduce", "table", "", "t_ids.kd"};
    return take(16) ? names[take(6)] : nullptr;
}

static hipError_t use_module(void) {
    hipModule_t module = any(MODULE);
    hipFunction_t function = nullptr;
    hipDeviceptr_t at;
    size_t bytes;
    unsigned count;
    switch (take(4)) {
    case 0:
        return hipModuleGetGlobal(take_out(&at), take_out(&bytes), module, take_name());
    case 1:
        return hipModuleGetFunctionCount(take_out(&count), module);
    default:
        return shown(FUNCTION, &function,
                     hipModuleGetFunction(take_out(&function), module, take_name()));
    }
}

static hipError_t load_library(void) {
    hipLibrary_t library = nullptr;
    const void *image = take(2) ? for_gfx942 : for_gfx1151;
    return made(LIBRARY, &library,
                hipLibraryLoadData(take_out(&library), take_out((void *)image), nullptr, nullptr,
                                   take(8) == 7, nullptr, nullptr, 0));
}

static hipError_t use_library(void) {
    hipLibrary_t library = any(LIBRARY);
    hipKernel_t kernel = any(KERNEL), list[3];
    hipFunction_t function = nullptr;
    const char *name;
    size_t offset, bytes;
    int value;
    switch (take(8)) {
    case 0:
        return shown(FUNCTION, &function, hipKernelGetFunction(take_out(&function), kernel));
    case 1:
        return hipKernelGetName(take_out(&name), kernel);
    case 2:
        return hipKernelGetLibrary(take_out(&library), kernel);
    case 3:
        return hipKernelGetParamInfo(kernel, take_count(), take_out(&offset), take_out(&bytes));
    case 4:
        return hipKernelGetAttribute(take_out(&value), (hipFunction_attribute)take(12), kernel,
                                     take_device());
    case 5:
        return hipKernelSetAttribute((hipFunction_attribute)take(12), (int)take_count(), kernel,
                                     take_device());
    case 6:
        return hipLibraryEnumerateKernels(take_out(list), take(4), library);
    default:
        kernel = nullptr;
        return shown(KERNEL, &kernel, hipLibraryGetKernel(take_out(&kernel), library, take_name()));
    }
}

static hipError_t ask_function(void) {
    hipFunction_t f = any(FUNCTION);
    int value, block;
    char names[64];
    switch (take(4)) {
    case 0:
        return hipFuncGetAttribute(take_out(&value), (hipFunction_attribute)take(12), f);
    case 1:
        return hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(take_out(&value), f,
                                                                  (int)take_count(), take_count());
    case 2:
        return hipModuleOccupancyMaxPotentialBlockSize(take_out(&value), take_out(&block), f,
                                                       take_count(), (int)take_count());
    default:
        return quernsim_evidence(f, names, sizeof names) && hipKernelNameRef(f)
                   ? hipSuccess
                   : hipErrorInvalidHandle;
    }
}

/** Launches with arguments that are device memory, mostly. */
static hipError_t launch(void) {
    hipFunction_t f = any(take(2) ? FUNCTION : KERNEL);
    void *memory = take(16) ? slots[MEMORY][take(SLOTS)] : take_memory();
    void *params[] = {&memory, &memory, &memory, &memory};
    const unsigned grid = take(4), block = take(8) ? take(65) : (unsigned)take_count();
    const unsigned lds = take(8) ? 0 : (unsigned)take_count();
    hipStream_t stream = any(STREAM);
    switch (take(4)) {
    case 0:
        return hipExtModuleLaunchKernel(f, grid * block, 1, 1, block, 1, 1, lds, stream,
                                        take_out(params), nullptr, any(EVENT), any(EVENT), take(3));
    case 1:
        return hipModuleLaunchCooperativeKernel(f, grid, 1, 1, block, 1, 1, lds, stream,
                                                take_out(params));
    default:
        return hipModuleLaunchKernel(f, grid, 1, 1, block, 1, 1, lds, stream, take_out(params),
                                     nullptr);
    }
}

/** Calls by a program's kernel or variable, where there is none. */
static hipError_t use_registered(void) {
    void *handle = any(FUNCTION), *out;
    const dim3 one = {1, 1, 1};
    hipFuncAttributes attributes;
    size_t bytes;
    switch (take(5)) {
    case 0:
        return hipLaunchKernel(handle, one, one, nullptr, 0, any(STREAM));
    case 1:
        return hipFuncGetAttributes(take_out(&attributes), handle);
    case 2:
        return hipGetSymbolAddress(take_out(&out), handle);
    case 3:
        return hipGetSymbolSize(take_out(&bytes), handle);
    default:
        return hipMemcpyToSymbol(handle, host, 4, take_count(), hipMemcpyHostToDevice);
    }
}

// ---- hiprtc

/** Returns an error of HIP's for a result of hiprtc's, which must be one that there is. */
static hipError_t of_rtc(hiprtcResult result) {
    if (strcmp(hiprtcGetErrorString(result), "unknown result") == 0)
        abort();
    return result == HIPRTC_SUCCESS ? hipSuccess : hipErrorInvalidValue;
}

/** Takes a source, a name or an expression, of which few are good, or none at all. */
static const char *take_text(void) {
    static char longest[6000];
    memset(longest, 'n', sizeof longest - 1);
    const char *const texts[] = {"int x;", "",         "y.h",  "a/b/y.h", "../y.h", "/y.h",
                                 "a/../b", "%s%n\n\"", "& &x", "x<",      longest,  nullptr};
    return texts[take(sizeof texts / sizeof *texts)];
}

/** Compiles with one option or with more than there is room for. The compiler fails at once. */
static hipError_t compile_program(hiprtcProgram program) {
    enum { MANY = 600 };
    const char *const all[] = {
        "-O1",  "--gpu-architecture=gfx942", "-arch=", "-fgpu-rdc", "-mwavefrontsize64", "",
        nullptr};
    const char *options[MANY], *option = all[take(sizeof all / sizeof *all)];
    for (unsigned i = 0; i < MANY; i++)
        options[i] = option;
    const int counts[] = {0, 1, 2, MANY, -1};
    return of_rtc(hiprtcCompileProgram(program, counts[take(5)], take_out(options)));
}

static hipError_t create_program(void) {
    const char *texts[] = {take_text(), take_text()}, *names[] = {take_text(), take_text()};
    hiprtcProgram program = nullptr;
    const char *source = take_text(), *name = take_text();
    const hipError_t error =
        made(PROGRAM, &program,
             of_rtc(hiprtcCreateProgram(take_out(&program), source, name, (int)take(4) - 1,
                                        take_out(texts), take_out(names))));
    return error == hipSuccess && take(2) ? compile_program(program) : error;
}

static hipError_t use_program(void) {
    hiprtcProgram p = any(PROGRAM);
    const char *name;
    size_t bytes;
    int version;
    char text[8192]; // a log tells the longest name twice at most
    switch (take(14)) {
    case 0:
        return of_rtc(hiprtcAddNameExpression(p, take_text()));
    case 1:
        return of_rtc(hiprtcGetLoweredName(p, take_text(), take_out(&name)));
    case 2:
        return of_rtc(hiprtcGetProgramLogSize(p, take_out(&bytes)));
    case 3:
        return of_rtc(hiprtcGetProgramLog(p, take_out(text)));
    case 4:
        return of_rtc(hiprtcGetCodeSize(p, take_out(&bytes)));
    case 5:
        return of_rtc(hiprtcGetBitcode(p, take_out(text)));
    case 6:
        return of_rtc(hiprtcGetCode(p, take_out(text)));
    case 7:
        return of_rtc(hiprtcGetBitcodeSize(p, take_out(&bytes)));
    case 8:
        hiprtcGetErrorString((hiprtcResult)take_count());
        return of_rtc(hiprtcVersion(take_out(&version), take_out(&version)));
    default:
        return compile_program(p);
    }
}

static hipError_t create_link(void) {
    int options[] = {10000, (int)take(2) ? 10001 : 7};
    const char *backend[] = {"-O1", nullptr};
    void *values[] = {backend, (void *)(uintptr_t)take(3)};
    hiprtcLinkState link = nullptr;
    const unsigned count = take(2) ? 0 : 2;
    if (take(2))
        return made(LINK, &link,
                    hipLinkCreate(count, take_out(options), take_out(values), take_out(&link)));
    return made(
        LINK, &link,
        of_rtc(hiprtcLinkCreate(count, take_out(options), take_out(values), take_out(&link))));
}

/** Adds what may be bitcode, a bundle or an archive, or says so. */
static hipError_t add_to_link(hiprtcLinkState link) {
    char data[256] = "";
    const unsigned form = take(3);
    if (form == 1)
        snprintf(data, sizeof data, "!<arch>\n%-48s%-10zu`\n", "a.bc/", take_count());
    else if (form == 2)
        memcpy(data, "__CLANG_OFFLOAD_BUNDLE__\1", 26);
    for (unsigned i = form ? 32 + take(64) : 0; i < sizeof data; i += 1 + take(128))
        data[i] = (char)take(256);
    const int type = take(8) ? 100 + (int)take(4) : (int)take_count();
    const unsigned options = !take(16);
    const size_t bytes = take(sizeof data);
    return take(2) ? hipLinkAddData(link, type, take_out(data), bytes, take_text(), options,
                                    nullptr, nullptr)
                   : of_rtc(hiprtcLinkAddData(link, type, take_out(data), bytes, take_text(),
                                              options, nullptr, nullptr));
}

static hipError_t use_link(void) {
    hiprtcLinkState link = any(LINK);
    void *code;
    size_t bytes;
    const int type = 100 + (int)take(4);
    const char *path = take(2) ? "/nowhere" : take(2) ? "/proc/self/comm" : nullptr;
    switch (take(6)) {
    case 0:
        return of_rtc(hiprtcLinkAddFile(link, type, path, 0, nullptr, nullptr));
    case 1:
        return hipLinkAddFile(link, type, path, take(2), nullptr, nullptr);
    case 2:
        return of_rtc(hiprtcLinkComplete(link, take_out(&code), take_out(&bytes)));
    case 3:
        return hipLinkComplete(link, take_out(&code), take_out(&bytes));
    default:
        return add_to_link(link);
    }
}

// ---- graphs

static hipError_t create_graph(void) {
    hipGraph_t graph = nullptr;
    if (take(2))
        return made(GRAPH, &graph, hipGraphCreate(take_out(&graph), take(8) == 7));
    return made(GRAPH, &graph, hipGraphClone(take_out(&graph), any(GRAPH)));
}

/** Takes up to two nodes on which a node is to depend. */
static size_t take_nodes(hipGraphNode_t nodes[2]) {
    nodes[0] = any(NODE);
    nodes[1] = any(NODE);
    return take(4) ? take(2) : take(3);
}

static hipKernelNodeParams take_kernel(void **params) {
    return (hipKernelNodeParams){.func = any(FUNCTION),
                                 .gridDim = {take(3), 1, 1},
                                 .blockDim = {take(65), 1, 1},
                                 .kernelParams = take_out(params)};
}

static hipMemsetParams take_fill(void) {
    return (hipMemsetParams){.dst = take(16) ? slots[MEMORY][take(SLOTS)] : any(RANGE),
                             .elementSize = take(5),
                             .height = take(3),
                             .pitch = take(65),
                             .width = take(17)};
}

/** Takes a batch that waits for nothing. Its memory may be gone when the graph runs. */
static hipBatchMemOpNodeParams take_batch(hipStreamBatchMemOpParams ops[2]) {
    enum { WRITE_32 = 2, FLUSH = 3 };
    void *at = take_memory();
    const int operation = is_own(at) || take(8) == 7 ? FLUSH : WRITE_32; // the first is none
    for (int i = 0; i < 2; i++)
        ops[i] = (hipStreamBatchMemOpParams){.value = {.operation = operation, .address = at}};
    return (hipBatchMemOpNodeParams){
        .count = take(3), .paramArray = take_out(ops), .flags = take(8) == 7};
}

static hipError_t add_batch(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                            size_t n) {
    hipStreamBatchMemOpParams ops[2];
    hipBatchMemOpNodeParams p = take_batch(ops);
    return hipGraphAddBatchMemOpNode(out, graph, on, n, take_out(&p));
}

static hipError_t use_batch_node(void) {
    hipGraphNode_t node = any(NODE);
    hipGraphExec_t exec = any(EXEC);
    hipStreamBatchMemOpParams ops[2];
    hipBatchMemOpNodeParams p = take_batch(ops);
    switch (take(3)) {
    case 0:
        return hipGraphBatchMemOpNodeSetParams(node, take_out(&p));
    case 1:
        return hipGraphExecBatchMemOpNodeSetParams(exec, node, take_out(&p));
    default:
        return hipGraphBatchMemOpNodeGetParams(node, take_out(&p));
    }
}

static hipError_t add_node(void) {
    hipGraph_t graph = any(GRAPH);
    hipGraphNode_t on[2], node = nullptr;
    const size_t n = take_nodes(on);
    hipGraphNode_t *out = take_out(&node);
    void *memory = slots[MEMORY][take(SLOTS)], *params[] = {&memory, &memory, &memory, &memory};
    const hipKernelNodeParams kernel = take_kernel(params);
    const hipMemcpy3DParms box = take_box();
    const hipMemsetParams fill = take_fill();
    const hipHostNodeParams call = {take(8) ? do_nothing : nullptr, nullptr};
    hipMemAllocNodeParams alloc = {.poolProps = {.allocType = 1, .location = {1, (int)take(3)}},
                                   .bytesize = take_count()};
    hipError_t error;
    switch (take(11)) {
    case 9:
        return shown(NODE, &node, add_batch(out, graph, on, n));
    case 0:
        return shown(NODE, &node, hipGraphAddEmptyNode(out, graph, on, n));
    case 1:
        return shown(NODE, &node, hipGraphAddKernelNode(out, graph, on, n, &kernel));
    case 2:
        return shown(NODE, &node, hipGraphAddMemcpyNode(out, graph, on, n, &box));
    case 3:
        return shown(NODE, &node, hipGraphAddMemsetNode(out, graph, on, n, &fill));
    case 4:
        return shown(NODE, &node, hipGraphAddHostNode(out, graph, on, n, &call));
    case 5:
        return shown(NODE, &node, hipGraphAddChildGraphNode(out, graph, on, n, any(GRAPH)));
    case 6:
        return shown(NODE, &node, hipGraphAddEventRecordNode(out, graph, on, n, any(EVENT)));
    case 7:
        return shown(NODE, &node, hipGraphAddEventWaitNode(out, graph, on, n, any(EVENT)));
    case 8:
        error = hipGraphAddMemAllocNode(out, graph, on, n, &alloc);
        shown(NODE, &node, error);
        return shown(MEMORY, &alloc.dptr, error);
    default:
        return shown(NODE, &node, hipGraphAddMemFreeNode(out, graph, on, n, any(MEMORY)));
    }
}

static hipError_t change_graph(void) {
    hipGraph_t graph = any(GRAPH);
    hipGraphNode_t a = any(NODE), b = any(NODE), list[4];
    size_t count = take(5);
    switch (take(7)) {
    case 0:
        return hipGraphAddDependencies(graph, &a, &b, take(2));
    case 1:
        return hipGraphRemoveDependencies(graph, &a, &b, take(2));
    case 2:
        return hipGraphGetNodes(graph, take_out(list), take_out(&count));
    case 3:
        return hipGraphNodeGetDependentNodes(a, take_out(list), take_out(&count));
    case 4:
        return shown(NODE, &b, hipGraphNodeFindInClone(take_out(&b), a, graph));
    case 5:
        return shown(GRAPH, &graph, hipGraphChildGraphNodeGetGraph(a, take_out(&graph)));
    default:
        return hipGraphDestroyNode(a);
    }
}

/** Changes a node, or its copy in an executable graph; or asks what it has. */
static hipError_t change_node(void) {
    hipGraphExec_t exec = any(EXEC);
    hipGraphNode_t node = any(NODE);
    void *memory = slots[MEMORY][take(SLOTS)], *params[] = {&memory, &memory, &memory, &memory};
    hipKernelNodeParams kernel = take_kernel(params);
    hipMemcpy3DParms box = take_box();
    hipMemsetParams fill = take_fill();
    hipLaunchAttributeValue value = {.number = (int)take(3)};
    unsigned enabled;
    switch (take(14)) {
    case 11:
        return hipGraphKernelNodeSetAttribute(node, (int)take(10), take_out(&value));
    case 12:
        return hipGraphKernelNodeGetAttribute(node, (int)take(10), take_out(&value));
    case 13:
        return hipGraphKernelNodeCopyAttributes(node, any(NODE));
    case 0:
        return hipGraphKernelNodeSetParams(node, take_out(&kernel));
    case 1:
        return hipGraphExecKernelNodeSetParams(exec, node, take_out(&kernel));
    case 2:
        return hipGraphKernelNodeGetParams(node, take_out(&kernel));
    case 3:
        return hipGraphExecMemcpyNodeSetParams(exec, node, take_out(&box));
    case 4:
        return hipGraphMemcpyNodeGetParams(node, take_out(&box));
    case 5:
        return hipGraphExecMemsetNodeSetParams(exec, node, take_out(&fill));
    case 6:
        return hipGraphExecChildGraphNodeSetParams(exec, node, any(GRAPH));
    case 7:
        return hipGraphExecEventRecordNodeSetEvent(exec, node, any(EVENT));
    case 8:
        return hipGraphEventWaitNodeSetEvent(node, any(EVENT));
    case 9:
        return hipGraphNodeSetEnabled(exec, node, take(2));
    default:
        return hipGraphNodeGetEnabled(exec, node, take_out(&enabled));
    }
}

static hipError_t use_graph(void) {
    hipGraphExec_t exec = nullptr;
    hipGraphNode_t node;
    hipGraphExecUpdateResult result;
    switch (take(5)) {
    case 0:
    case 1:
        return made(EXEC, &exec,
                    hipGraphInstantiateWithFlags(take_out(&exec), any(GRAPH), take(3)));
    case 2:
    case 3:
        return hipGraphLaunch(any(EXEC), any(STREAM));
    default:
        return hipGraphExecUpdate(any(EXEC), any(GRAPH), take_out(&node), take_out(&result));
    }
}

static hipError_t capture(void) {
    hipStream_t stream = any(STREAM);
    hipGraphNode_t on[2];
    hipGraph_t graph = nullptr;
    hipStreamCaptureStatus status;
    const hipStreamCaptureMode mode = (hipStreamCaptureMode)take(4);
    switch (take(7)) {
    case 0:
    case 1:
        return hipStreamBeginCapture(stream, mode);
    case 2:
        graph = any(GRAPH);
        return hipStreamBeginCaptureToGraph(stream, graph, on, nullptr, take_nodes(on), mode);
    case 3:
        return hipStreamIsCapturing(stream, take_out(&status));
    case 4:
        return hipStreamUpdateCaptureDependencies(stream, on, take_nodes(on), take(3));
    default: // what was captured into a graph of the program's is no new graph
        if (hipStreamEndCapture(stream, take_out(&graph)) != hipSuccess)
            return hipSuccess;
        end_life(GRAPH, graph);
        return made(GRAPH, &graph, hipSuccess);
    }
}

static hipError_t create_object(void) {
    hipUserObject_t object = nullptr;
    return made(OBJECT, &object,
                hipUserObjectCreate(take_out(&object), nullptr, take(8) ? do_nothing : nullptr,
                                    take(3), take(8) ? 1 : 0));
}

static hipError_t use_object(void) {
    hipUserObject_t object = any(OBJECT);
    const unsigned count = take(8) ? take(3) : (unsigned)take_count() & INT32_MAX;
    switch (take(4)) {
    case 0:
        return hipUserObjectRetain(object, take(3));
    case 1:
        return hipGraphRetainUserObject(any(GRAPH), object, take(3), take(3));
    case 2:
        return hipGraphReleaseUserObject(any(GRAPH), object, count);
    default:
        return hipUserObjectRelease(object, count);
    }
}

#endif
