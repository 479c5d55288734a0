// SPDX-License-Identifier: Apache-2.0
// Graphs that allocate, nodes of any type and of the driver's calls, objects that graphs keep,
// graphs as text, capture into a graph of the program's.
#include "../hip_testing.h"

enum { COUNT = 300, BYTES = 4 * COUNT };
enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

static uint64_t attribute(int which) {
    uint64_t value;
    OK(hip.hipDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static hipGraphNode_t alloc_node(hipGraph_t graph, void **out) {
    hipGraphNode_t node;
    hipMemAllocNodeParams p = {.poolProps = {.allocType = 1, .location = {1, 0}},
                               .bytesize = BYTES};
    OK(hip.hipGraphAddMemAllocNode(&node, graph, nullptr, 0, &p));
    *out = p.dptr;
    return node;
}

/** A graph that fills memory of its own, counts in it 192 times, and copies it to `out`. */
static hipGraph_t counting_graph(void **inner, uint32_t *out, bool frees) {
    hipGraph_t graph;
    hipGraphNode_t alloc, fill, count, copy, end;
    OK(hip.hipGraphCreate(&graph, 0));
    alloc = alloc_node(graph, inner);
    const hipMemsetParams seven = {*inner, 4, 1, BYTES, 7, COUNT};
    OK(hip.hipGraphAddMemsetNode(&fill, graph, &alloc, 1, &seven));
    void *args[] = {inner};
    const hipKernelNodeParams kernel_params = {.func = kernel(modules[2], "t_count"),
                                               .gridDim = {3, 1, 1},
                                               .blockDim = {64, 1, 1},
                                               .kernelParams = args};
    OK(hip.hipGraphAddKernelNode(&count, graph, &fill, 1, &kernel_params));
    OK(hip.hipGraphAddMemcpyNode1D(&copy, graph, &count, 1, out, *inner, BYTES,
                                   hipMemcpyDeviceToHost));
    if (frees)
        OK(hip.hipGraphAddMemFreeNode(&end, graph, &copy, 1, *inner));
    return graph;
}

static void test_memory(void **state) {
    (void)state;
    void *inner;
    uint32_t out[COUNT];
    hipGraph_t graph = counting_graph(&inner, out, true), clone;
    hipGraphExec_t exec, second;
    assert_int_equal(hip.hipMemset(inner, 0, 4), hipErrorIllegalAddress); // not there yet
    OK(hip.hipDeviceReset());
    for (int l = 0; l < num_levels; l++)
        modules[l] = load(levels[l]);
    OK(hip.hipGraphDestroy(graph)); // its kernel is gone
    graph = counting_graph(&inner, out, true);
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    assert_int_equal(hip.hipGraphInstantiate(&second, graph, nullptr, nullptr, 0),
                     hipErrorNotSupported);
    assert_int_equal(hip.hipGraphClone(&clone, graph), hipErrorNotSupported);
    for (int i = 0; i < 3; i++) {
        memset(out, 0, BYTES);
        OK(hip.hipGraphLaunch(exec, nullptr));
        OK(hip.hipDeviceSynchronize());
        assert_int_equal(out[0], 7 + 192);
        assert_int_equal(out[COUNT - 1], 7);
    }
    assert_int_equal(attribute(USED), 0);
    assert_int_equal(attribute(USED_HIGH), BYTES);
    uint64_t zero = 0, one = 1;
    OK(hip.hipDeviceSetGraphMemAttribute(0, USED_HIGH, &zero));
    assert_int_equal(attribute(USED_HIGH), 0);
    assert_int_equal(attribute(RESERVED_HIGH), BYTES);
    assert_int_equal(hip.hipDeviceSetGraphMemAttribute(0, USED_HIGH, &one), hipErrorInvalidValue);
    assert_int_equal(hip.hipDeviceSetGraphMemAttribute(0, USED, &zero), hipErrorInvalidValue);
    assert_int_equal(hip.hipDeviceGetGraphMemAttribute(9, USED, &zero), hipErrorInvalidDevice);
    OK(hip.hipDeviceGraphMemTrim(0));
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphInstantiate(&second, graph, nullptr, nullptr, 0)); // now it may
    OK(hip.hipGraphExecDestroy(second));
    OK(hip.hipGraphDestroy(graph));
}

/** Memory that a graph leaves: the program frees it, or the next launch does, if it may. */
static void test_left_memory(void **state) {
    (void)state;
    void *inner;
    uint32_t out[COUNT], word;
    size_t before, after, total;
    OK(hip.hipMemGetInfo(&before, &total));
    hipGraph_t graph = counting_graph(&inner, out, false);
    hipGraphExec_t exec;
    OK(hip.hipGraphInstantiateWithFlags(&exec, graph, 0));
    OK(hip.hipGraphLaunch(exec, nullptr));
    assert_int_equal(hip.hipGraphLaunch(exec, nullptr), hipErrorInvalidValue);
    OK(hip.hipMemcpy(&word, inner, 4, hipMemcpyDeviceToHost));
    assert_int_equal(word, 7 + 192);
    assert_int_equal(attribute(USED), BYTES);
    OK(hip.hipFreeAsync(inner, nullptr));
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipFree(inner)); // which waits for the launch
    assert_int_equal(hip.hipFree(inner), hipErrorInvalidValue);
    assert_int_equal(attribute(USED), 0);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphInstantiateWithFlags(&exec, graph, 1)); // frees on launch
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipDeviceSynchronize());
    assert_int_equal(attribute(USED), BYTES); // it outlives the graph
    OK(hip.hipFree(inner));
    OK(hip.hipMemGetInfo(&after, &total));
    assert_int_equal(before, after);
}

static void test_memory_arguments(void **state) {
    (void)state;
    void *inner, *got, *plain = device_alloc(4, nullptr);
    hipGraph_t graph;
    hipGraphNode_t node, end;
    hipMemAllocNodeParams p = {.poolProps = {.allocType = 1, .location = {1, 0}}};
    OK(hip.hipGraphCreate(&graph, 0));
    assert_int_equal(hip.hipGraphAddMemAllocNode(&node, graph, nullptr, 0, &p),
                     hipErrorInvalidValue); // of no bytes
    p.bytesize = 1;
    p.poolProps.location.id = 77;
    assert_int_equal(hip.hipGraphAddMemAllocNode(&node, graph, nullptr, 0, &p),
                     hipErrorInvalidValue);
    node = alloc_node(graph, &inner);
    OK(hip.hipGraphMemAllocNodeGetParams(node, &p));
    assert_ptr_equal(p.dptr, inner);
    assert_int_equal(p.bytesize, BYTES);
    assert_int_equal(hip.hipGraphAddMemFreeNode(&end, graph, &node, 1, plain),
                     hipErrorInvalidValue);
    OK(hip.hipGraphAddMemFreeNode(&end, graph, &node, 1, inner));
    OK(hip.hipGraphMemFreeNodeGetParams(end, &got));
    assert_ptr_equal(got, inner);
    assert_int_equal(hip.hipGraphMemFreeNodeGetParams(node, &got), hipErrorInvalidValue);
    assert_int_equal(hip.hipGraphAddMemFreeNode(&end, graph, &node, 1, inner),
                     hipErrorInvalidValue); // twice
    assert_int_equal(hip.hipGraphDestroyNode(node), hipErrorNotSupported);
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipFree(plain));
}

static void test_captured_memory(void **state) {
    (void)state;
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    void *inner, *plain = device_alloc(4, nullptr);
    uint32_t out[COUNT];
    OK(hip.hipStreamCreate(&stream));
    OK(hip.hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    OK(hip.hipMallocAsync(&inner, BYTES, stream));
    OK(hip.hipMemsetD32Async(inner, 5, COUNT, stream));
    OK(hip.hipMemcpyAsync(out, inner, BYTES, hipMemcpyDeviceToHost, stream));
    assert_int_equal(hip.hipFreeAsync(plain, stream), hipErrorInvalidValue); // no graph's
    OK(hip.hipFreeAsync(inner, stream));
    OK(hip.hipStreamEndCapture(stream, &graph));
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for (int i = 0; i < 2; i++) {
        memset(out, 0, BYTES);
        OK(hip.hipGraphLaunch(exec, stream));
        OK(hip.hipStreamSynchronize(stream));
        assert_int_equal(out[COUNT - 1], 5);
    }
    assert_int_equal(attribute(USED), 0);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipStreamDestroy(stream));
    OK(hip.hipFree(plain));
}

/** Begins a capture, allocates, and returns how that and the capture's end went. */
static void allocate_while(hipStreamCaptureMode mode, hipError_t *allocated, hipError_t *ended) {
    hipStream_t stream;
    hipGraph_t graph = nullptr;
    void *memory = nullptr;
    OK(hip.hipStreamCreate(&stream));
    OK(hip.hipStreamBeginCapture(stream, mode));
    *allocated = hip.hipMalloc(&memory, 4);
    *ended = hip.hipStreamEndCapture(stream, &graph);
    if (graph)
        OK(hip.hipGraphDestroy(graph));
    OK(hip.hipFree(memory));
    OK(hip.hipStreamDestroy(stream));
}

/** A capture forbids allocations to its thread, unless its mode or the thread's is relaxed. */
static void test_forbidden(void **state) {
    (void)state;
    hipError_t allocated, ended;
    for (int mode = hipStreamCaptureModeGlobal; mode <= hipStreamCaptureModeThreadLocal; mode++) {
        allocate_while((hipStreamCaptureMode)mode, &allocated, &ended);
        assert_int_equal(allocated, hipErrorStreamCaptureUnsupported);
        assert_int_equal(ended, hipErrorStreamCaptureInvalidated);
    }
    allocate_while(hipStreamCaptureModeRelaxed, &allocated, &ended);
    OK(allocated);
    OK(ended);
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
    OK(hip.hipThreadExchangeStreamCaptureMode(&mode));
    allocate_while(hipStreamCaptureModeGlobal, &allocated, &ended);
    OK(hip.hipThreadExchangeStreamCaptureMode(&mode));
    OK(allocated);
    OK(ended);
}

/** A graph keeps the code of its kernels when the program unloads the module. */
static void test_unloaded_kernel(void **state) {
    (void)state;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipGraphNode_t node;
    hipModule_t module = load(levels[0]);
    hipFunction_t f = kernel(module, "t_count");
    uint32_t *count = device_alloc(4, &(uint32_t){0}), got;
    void *params[] = {&count};
    const hipKernelNodeParams p = {
        .func = f, .gridDim = {1, 1, 1}, .blockDim = {1, 1, 1}, .kernelParams = params};
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddKernelNode(&node, graph, nullptr, 0, &p));
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipModuleUnload(module));
    OK(hip.hipGraphLaunch(exec, nullptr));
    assert_int_equal(hip.hipGraphKernelNodeSetParams(node, &p), hipErrorInvalidDeviceFunction);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    take(&got, count, 4);
    assert_int_equal(got, 1);
}

// ---- nodes by their parameters

static void add_one(void *word) {
    ++*(uint32_t *)word;
}

static void test_any_node(void **state) {
    (void)state;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipGraphNode_t fill, copy, host, inner;
    uint32_t calls = 0, got[COUNT], *d = device_alloc(BYTES, nullptr);
    OK(hip.hipGraphCreate(&graph, 0));
    hipGraphNodeParams p = {.type = hipGraphNodeTypeMemset, .memset = {d, 4, 1, BYTES, 11, COUNT}};
    OK(hip.hipGraphAddNode(&fill, graph, nullptr, 0, &p));
    p = (hipGraphNodeParams){.type = hipGraphNodeTypeMemcpy};
    p.memcpy.copyParams = (hipMemcpy3DParms){.dstPtr = {got, BYTES, BYTES, 1},
                                             .srcPtr = {d, BYTES, BYTES, 1},
                                             .extent = {BYTES, 1, 1},
                                             .kind = hipMemcpyDeviceToHost};
    OK(hip.hipGraphAddNode(&copy, graph, &fill, 1, &p));
    p = (hipGraphNodeParams){.type = hipGraphNodeTypeHost, .host = {add_one, &calls}};
    OK(hip.hipGraphAddNode(&host, graph, &copy, 1, &p));
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipDeviceSynchronize());
    assert_true(got[0] == 11 && got[COUNT - 1] == 11 && calls == 1);
    p = (hipGraphNodeParams){.type = hipGraphNodeTypeMemset, .memset = {d, 4, 1, BYTES, 12, 3}};
    OK(hip.hipGraphExecNodeSetParams(exec, fill, &p));
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipDeviceSynchronize());
    assert_true(got[2] == 12 && got[3] == 11 && calls == 2);
    assert_int_equal(hip.hipGraphNodeSetParams(copy, &p), hipErrorInvalidValue); // another type
    OK(hip.hipGraphNodeSetParams(fill, &p));
    hipMemsetParams fill_params;
    OK(hip.hipGraphMemsetNodeGetParams(fill, &fill_params));
    assert_int_equal(fill_params.value, 12);
    p.reserved2 = 1;
    assert_int_equal(hip.hipGraphAddNode(&fill, graph, nullptr, 0, &p), hipErrorInvalidValue);
    p = (hipGraphNodeParams){.type = 8}; // a semaphore
    assert_int_equal(hip.hipGraphAddNode(&fill, graph, nullptr, 0, &p), hipErrorNotSupported);
    p.type = 99;
    assert_int_equal(hip.hipGraphAddNode(&fill, graph, nullptr, 0, &p), hipErrorInvalidValue);
    p = (hipGraphNodeParams){
        .type = hipGraphNodeTypeMemAlloc,
        .alloc = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = 8}};
    OK(hip.hipGraphAddNode(&inner, graph, nullptr, 0, &p));
    assert_non_null(p.alloc.dptr);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipFree(d));
}

static void test_driver_nodes(void **state) {
    (void)state;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipGraphNode_t fill, copy;
    uint8_t got[8 * 4] = {}, *d = device_alloc(8 * 16, nullptr);
    const hipDrvMemsetParams nines = {d + 3, 16, 9, 1, 5, 2};
    const HIP_MEMCPY3D out = {.srcXInBytes = 2,
                              .srcMemoryType = hipMemoryTypeDevice,
                              .srcDevice = d,
                              .srcPitch = 16,
                              .srcHeight = 4,
                              .dstMemoryType = hipMemoryTypeHost,
                              .dstHost = got,
                              .dstPitch = 8,
                              .dstHeight = 4,
                              .WidthInBytes = 8,
                              .Height = 4,
                              .Depth = 1};
    HIP_MEMCPY3D told;
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipDrvGraphAddMemsetNode(&fill, graph, nullptr, 0, &nines, nullptr));
    OK(hip.hipDrvGraphAddMemcpyNode(&copy, graph, &fill, 1, &out, nullptr));
    OK(hip.hipDrvGraphMemcpyNodeGetParams(copy, &told));
    assert_memory_equal(&told, &out, sizeof out);
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphLaunch(exec, nullptr));
    OK(hip.hipDeviceSynchronize());
    for (size_t i = 0; i < sizeof got; i++)
        assert_int_equal(got[i], i / 8 < 2 && i % 8 >= 1 && i % 8 <= 5 ? 9 : 0xEE);
    told.WidthInBytes = 0;
    assert_int_equal(hip.hipDrvGraphExecMemcpyNodeSetParams(exec, copy, &told, nullptr),
                     hipErrorInvalidValue);
    assert_int_equal(hip.hipDrvGraphMemcpyNodeSetParams(fill, &out), hipErrorInvalidValue);
    told.WidthInBytes = 9; // more than the pitch
    assert_int_equal(hip.hipDrvGraphMemcpyNodeSetParams(copy, &told), hipErrorInvalidValue);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipFree(d));
}

// ---- objects

static void test_objects(void **state) {
    (void)state;
    uint32_t ended = 0;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipUserObject_t object;
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipUserObjectCreate(&object, &ended, add_one, 1, 1));
    OK(hip.hipGraphRetainUserObject(graph, object, 1, 1)); // moves the program's reference
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphDestroy(graph));
    assert_int_equal(ended, 0); // the executable graph keeps it
    OK(hip.hipGraphExecDestroy(exec));
    assert_int_equal(ended, 1);
    OK(hip.hipUserObjectRetain(object, 1)); // gone: no error, as with AMD's runtime
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipUserObjectCreate(&object, &ended, add_one, 2, 1));
    OK(hip.hipGraphRetainUserObject(graph, object, 3, 0));
    OK(hip.hipUserObjectRelease(object, 2));
    OK(hip.hipGraphReleaseUserObject(graph, object, 2));
    assert_int_equal(ended, 1);
    OK(hip.hipGraphReleaseUserObject(graph, object, 1));
    assert_int_equal(ended, 2);
    assert_int_equal(hip.hipUserObjectCreate(&object, &ended, add_one, 0, 1), hipErrorInvalidValue);
    assert_int_equal(hip.hipUserObjectCreate(&object, &ended, add_one, 1, 0), hipErrorInvalidValue);
    assert_int_equal(hip.hipUserObjectCreate(&object, &ended, nullptr, 1, 1), hipErrorInvalidValue);
    assert_int_equal(hip.hipUserObjectRelease(nullptr, 1), hipErrorInvalidValue);
    OK(hip.hipGraphDestroy(graph));
}

// ---- text

static void test_dot(void **state) {
    (void)state;
    void *inner;
    uint32_t out[COUNT];
    char path[] = "/tmp/graph_test.XXXXXX", text[8192] = "";
    hipGraph_t graph = counting_graph(&inner, out, true);
    const int fd = mkstemp(path);
    OK(hip.hipGraphDebugDotPrint(graph, path, 1));
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_ptr_equal(strstr(text, "digraph dot {\n"), text);
    static const char *const parts[] = {"MEM_ALLOC", "MEMSET",           "value 7", "KERNEL",
                                        "t_count",   "(3,1,1),(64,1,1)", "MEMCPY",  "MEM_FREE"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(text, parts[i]));
    size_t edges = 0;
    for (const char *at = text; (at = strstr(at, " -> ")); at++)
        edges++;
    assert_int_equal(edges, 4);
    close(fd);
    unlink(path);
    assert_int_equal(hip.hipGraphDebugDotPrint(graph, "/nowhere/graph", 0),
                     hipErrorOperatingSystem);
    assert_int_equal(hip.hipGraphDebugDotPrint(nullptr, path, 0), hipErrorInvalidValue);
    OK(hip.hipGraphDestroy(graph));
}

static void test_capture_to_graph(void **state) {
    (void)state;
    hipStream_t stream;
    hipGraph_t graph, got;
    hipGraphNode_t first, nodes[2];
    size_t count = 2;
    uint8_t *d = device_alloc(16, nullptr);
    OK(hip.hipStreamCreate(&stream));
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddEmptyNode(&first, graph, nullptr, 0));
    assert_int_equal(hip.hipStreamBeginCaptureToGraph(stream, nullptr, nullptr, nullptr, 0,
                                                      hipStreamCaptureModeGlobal),
                     hipErrorInvalidValue);
    OK(hip.hipStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                        hipStreamCaptureModeGlobal));
    OK(hip.hipMemsetAsync(d, 1, 16, stream));
    OK(hip.hipStreamEndCapture(stream, &got));
    assert_ptr_equal(got, graph);
    OK(hip.hipGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 2);
    count = 1;
    OK(hip.hipGraphNodeGetDependencies(nodes[1], nodes, &count));
    assert_ptr_equal(nodes[0], first);
    // A capture that fails leaves the program its graph.
    OK(hip.hipStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                        hipStreamCaptureModeGlobal));
    assert_int_equal(hip.hipStreamSynchronize(stream), hipErrorStreamCaptureUnsupported);
    assert_int_equal(hip.hipStreamEndCapture(stream, &got), hipErrorStreamCaptureInvalidated);
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipStreamDestroy(stream));
    OK(hip.hipFree(d));
}

/** A copy keeps the direction by which it was made, in executable graphs and their updates. */
static void test_directions(void **state) {
    (void)state;
    uint32_t words[COUNT] = {};
    hipGraph_t graph, other;
    hipGraphExec_t exec;
    hipGraphNode_t copy, second, at;
    hipGraphExecUpdateResult result;
    void *d = device_alloc(BYTES, nullptr), *e = device_alloc(BYTES, nullptr);
    const hipError_t bad = hipErrorInvalidValue;
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphCreate(&other, 0));
    OK(hip.hipGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, d, words, BYTES,
                                   hipMemcpyHostToDevice));
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphExecMemcpyNodeSetParams1D(exec, copy, e, words, BYTES, hipMemcpyHostToDevice));
    assert_int_equal(
        hip.hipGraphExecMemcpyNodeSetParams1D(exec, copy, e, words, BYTES, hipMemcpyDefault), bad);
    assert_int_equal(
        hip.hipGraphExecMemcpyNodeSetParams1D(exec, copy, e, d, BYTES, hipMemcpyDeviceToDevice),
        bad);
    OK(hip.hipGraphAddMemcpyNode1D(&second, other, nullptr, 0, words, d, BYTES,
                                   hipMemcpyDeviceToHost));
    assert_int_equal(hip.hipGraphExecUpdate(exec, other, &at, &result),
                     hipErrorGraphExecUpdateFailure);
    assert_int_equal(result, hipGraphExecUpdateErrorParametersChanged);
    assert_ptr_equal(at, second);
    // A row is not copied onto itself, a box may be.
    hipMemcpy3DParms box = {.dstPtr = {d, BYTES, BYTES, 1},
                            .srcPtr = {d, BYTES, BYTES, 1},
                            .extent = {BYTES, 1, 1},
                            .kind = hipMemcpyDeviceToDevice};
    OK(hip.hipGraphAddMemcpyNode(&second, other, nullptr, 0, &box));
    assert_int_equal(
        hip.hipGraphAddMemcpyNode1D(&second, other, nullptr, 0, d, d, BYTES, hipMemcpyDefault),
        bad);
    box.srcPtr.pitch = 4; // less than the row
    assert_int_equal(hip.hipGraphAddMemcpyNode(&second, other, nullptr, 0, &box), bad);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    OK(hip.hipGraphDestroy(other));
    OK(hip.hipFree(d));
    OK(hip.hipFree(e));
}

/** A graph can be its own child, as it was before. */
static void test_own_child(void **state) {
    (void)state;
    uint8_t *d = device_alloc(4, nullptr), got[4];
    hipGraph_t graph, child;
    hipGraphExec_t exec;
    hipGraphNode_t fill, node;
    size_t count;
    const hipMemsetParams seven = {d, 1, 1, 4, 7, 4};
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddMemsetNode(&fill, graph, nullptr, 0, &seven));
    OK(hip.hipGraphAddChildGraphNode(&node, graph, &fill, 1, graph));
    OK(hip.hipGraphChildGraphNodeGetGraph(node, &child));
    OK(hip.hipGraphGetNodes(child, nullptr, &count));
    assert_int_equal(count, 1);
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hip.hipGraphLaunch(exec, nullptr));
    take(got, d, 4);
    assert_memory_equal(got, "\7\7\7\7", 4);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
}

enum { WAIT_32 = 1, WRITE_32 = 2, WRITE_64 = 5, EQUAL = 1 };

static const hipError_t bad = hipErrorInvalidValue;

/** A batch as a graph launches it: it waits for the program, and writes only then. */
static void test_batch_launch(hipGraphExec_t exec, uint64_t *words) {
    hipStream_t stream;
    OK(hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    words[0] = words[1] = 0;
    OK(hip.hipGraphLaunch(exec, stream));
    assert_int_equal(hip.hipStreamQuery(stream), hipErrorNotReady);
    assert_int_equal(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
    __atomic_store_n(&words[0], 5, __ATOMIC_RELEASE);
    OK(hip.hipStreamSynchronize(stream));
    OK(hip.hipStreamDestroy(stream));
}

/** What is given is copied, told again, and checked. */
static void test_batch_params(hipGraph_t graph, hipGraphNode_t node, hipBatchMemOpNodeParams p) {
    hipBatchMemOpNodeParams got;
    hipGraphNode_t other;
    OK(hip.hipGraphBatchMemOpNodeGetParams(node, &got));
    assert_int_equal(got.count, 2);
    assert_ptr_not_equal(got.paramArray, p.paramArray);
    assert_memory_equal(got.paramArray, p.paramArray, 2 * sizeof *p.paramArray);
    OK(hip.hipGraphAddEmptyNode(&other, graph, nullptr, 0));
    assert_int_equal(hip.hipGraphBatchMemOpNodeGetParams(other, &got), bad);
    assert_int_equal(hip.hipGraphBatchMemOpNodeSetParams(other, &p), bad);
    assert_int_equal(hip.hipGraphBatchMemOpNodeGetParams(node, nullptr), bad);
    assert_int_equal(hip.hipGraphBatchMemOpNodeSetParams(node, nullptr), bad);
    assert_int_equal(hip.hipGraphAddBatchMemOpNode(nullptr, graph, nullptr, 0, &p), bad);
    for (int i = 0; i < 4; i++) {
        hipBatchMemOpNodeParams wrong = p;
        wrong.count = i == 0 ? 0 : i == 1 ? 257 : 2;
        wrong.flags = i == 2;
        wrong.paramArray = i == 3 ? nullptr : p.paramArray;
        assert_int_equal(hip.hipGraphAddBatchMemOpNode(&other, graph, nullptr, 0, &wrong), bad);
        assert_int_equal(hip.hipGraphBatchMemOpNodeSetParams(node, &wrong), bad);
    }
}

static void test_batches(void **state) {
    (void)state;
    uint64_t *words;
    hipGraph_t graph;
    hipGraphExec_t exec;
    hipGraphNode_t node;
    OK(hip.hipHostMalloc((void **)&words, 2 * sizeof *words, 0));
    hipStreamBatchMemOpParams ops[2] = {
        {.value = {.operation = WAIT_32, .address = &words[0], .value = 5, .flags = EQUAL}},
        {.value = {.operation = WRITE_64, .address = &words[1], .value64 = UINT64_MAX - 1}}};
    hipBatchMemOpNodeParams p = {.count = 2, .paramArray = ops};
    OK(hip.hipGraphCreate(&graph, 0));
    OK(hip.hipGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &p));
    test_batch_params(graph, node, p);
    OK(hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    ops[1].value.value64 = 8; // nodes have their own copy
    test_batch_launch(exec, words);
    assert_int_equal(words[1], UINT64_MAX - 1);
    OK(hip.hipGraphExecBatchMemOpNodeSetParams(exec, node, &p));
    test_batch_launch(exec, words);
    assert_int_equal(words[1], 8);
    ops[1].value.operation = WRITE_32;
    OK(hip.hipGraphBatchMemOpNodeSetParams(node, &p)); // not in what was made of it
    hipGraphExecUpdateResult result;
    OK(hip.hipGraphExecUpdate(exec, graph, &(hipGraphNode_t){}, &result));
    words[1] = UINT64_MAX;
    ops[0].value.value = 0;
    test_batch_launch(exec, words);
    assert_int_equal(words[1], 8);
    OK(hip.hipHostFree(words));
    OK(hip.hipGraphLaunch(exec, nullptr)); // of memory that has gone
    assert_int_equal(hip.hipDeviceSynchronize(), hipErrorIllegalAddress);
    OK(hip.hipGraphExecDestroy(exec));
    OK(hip.hipGraphDestroy(graph));
    assert_int_equal(hip.hipGraphBatchMemOpNodeGetParams(node, &p), bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_memory, start),
        cmocka_unit_test_setup(test_left_memory, start),
        cmocka_unit_test_setup(test_memory_arguments, start),
        cmocka_unit_test_setup(test_captured_memory, start),
        cmocka_unit_test_setup(test_forbidden, start),
        cmocka_unit_test_setup(test_unloaded_kernel, start),
        cmocka_unit_test_setup(test_any_node, start),
        cmocka_unit_test_setup(test_driver_nodes, start),
        cmocka_unit_test_setup(test_objects, start),
        cmocka_unit_test_setup(test_dot, start),
        cmocka_unit_test_setup(test_capture_to_graph, start),
        cmocka_unit_test_setup(test_directions, start),
        cmocka_unit_test_setup(test_own_child, start),
        cmocka_unit_test_setup(test_batches, start),
    };
    open_library();
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
