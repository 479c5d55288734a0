// SPDX-License-Identifier: Apache-2.0
// Graphs: explicit nodes, capture of two streams, launches, updates, clones, children, and errors.
#include "testing.h"

#define GIVES(error, call)                                                                                                     \
    do {                                                                                                                       \
        CHECK((call) == (error));                                                                                              \
        (void)hipGetLastError();                                                                                               \
    } while (0)

enum { N = 200 };

__global__ void scale(int *x, int factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
}

__global__ void add(int *x, const int *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] += y[i];
}

static void count(void *data) {
    ++*(int *)data;
}

static hipKernelNodeParams scale_params(void **args) {
    hipKernelNodeParams p = {};
    p.func = (void *)scale;
    p.gridDim = dim3((N + 63) / 64);
    p.blockDim = dim3(64);
    p.kernelParams = args;
    return p;
}

// out = 3 * in, by explicit nodes; then by 5 after an update of the executable graph.
static void test_nodes() {
    std::vector<int> in = random_ints(N, -99, 99), out(N), want = in;
    Buffer<int> x(N);
    int factor = 3, n = N, calls = 0;
    void *args[] = {(void *)&x.data, &factor, &n};
    hipGraph_t graph;
    hipGraphNode_t load, kernel, store, host, empty;
    OK(hipGraphCreate(&graph, 0));
    OK(hipGraphAddMemcpyNode1D(&load, graph, nullptr, 0, x.data, in.data(), N * sizeof(int), hipMemcpyHostToDevice));
    hipKernelNodeParams params = scale_params(args);
    OK(hipGraphAddKernelNode(&kernel, graph, nullptr, 0, &params));
    OK(hipGraphAddMemcpyNode1D(&store, graph, &kernel, 1, out.data(), x.data, N * sizeof(int), hipMemcpyDeviceToHost));
    hipHostNodeParams call = {count, &calls};
    OK(hipGraphAddHostNode(&host, graph, &store, 1, &call));
    OK(hipGraphAddEmptyNode(&empty, graph, &host, 1));
    OK(hipGraphAddDependencies(graph, &load, &kernel, 1)); // the order of making is not the order of running
    size_t nodes = 0, edges = 0, roots = 0;
    OK(hipGraphGetNodes(graph, nullptr, &nodes));
    OK(hipGraphGetEdges(graph, nullptr, nullptr, &edges));
    OK(hipGraphGetRootNodes(graph, nullptr, &roots));
    CHECK(nodes == 5 && edges == 4 && roots == 1);
    factor = 1000; // the node has a copy of the arguments
    hipGraphExec_t exec;
    OK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    for (int launch = 1; launch <= 3; launch++) {
        OK(hipGraphLaunch(exec, nullptr));
        OK(hipStreamSynchronize(nullptr));
        CHECK(calls == launch);
        for (int i = 0; i < N; i++)
            CHECK(out[i] == 3 * in[i]);
    }
    factor = 5;
    OK(hipGraphExecKernelNodeSetParams(exec, kernel, &params));
    OK(hipGraphLaunch(exec, nullptr));
    OK(hipDeviceSynchronize());
    for (int i = 0; i < N; i++)
        CHECK(out[i] == 5 * in[i]);
    OK(hipGraphNodeSetEnabled(exec, kernel, 0));
    OK(hipGraphLaunch(exec, nullptr));
    OK(hipDeviceSynchronize());
    CHECK(out == in);
    hipKernelNodeParams got;
    OK(hipGraphKernelNodeGetParams(kernel, &got));
    CHECK(got.func == (void *)scale && got.gridDim.x == params.gridDim.x && *(int *)got.kernelParams[1] == 3);
    OK(hipGraphAddDependencies(graph, &empty, &load, 1)); // a circle
    hipGraphExec_t none;
    GIVES(hipErrorInvalidValue, hipGraphInstantiate(&none, graph, nullptr, nullptr, 0));
    OK(hipGraphRemoveDependencies(graph, &empty, &load, 1));
    GIVES(hipErrorInvalidValue, hipGraphAddDependencies(graph, &load, &load, 1));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    GIVES(hipErrorInvalidValue, hipGraphDestroy(graph));
    GIVES(hipErrorInvalidValue, hipGraphExecDestroy(exec));
    GIVES(hipErrorInvalidValue, hipGraphLaunch(exec, nullptr));
}

// Captures x = 2 * x and y = 3 * y on two streams, then x += y.
static hipGraph_t capture(hipStream_t a, hipStream_t b, int *x, int *y, int by) {
    hipEvent_t fork, meet;
    hipGraph_t graph;
    hipStreamCaptureStatus status;
    OK(hipEventCreateWithFlags(&fork, hipEventDisableTiming));
    OK(hipEventCreateWithFlags(&meet, hipEventDisableTiming));
    OK(hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
    OK(hipEventRecord(fork, a));
    OK(hipStreamWaitEvent(b, fork, 0));
    OK(hipStreamIsCapturing(b, &status));
    CHECK(status == hipStreamCaptureStatusActive);
    scale<<<(N + 63) / 64, 64, 0, a>>>(x, 2, N);
    scale<<<(N + 63) / 64, 64, 0, b>>>(y, by, N);
    OK(hipEventRecord(meet, b));
    GIVES(hipErrorCapturedEvent, hipEventQuery(meet));
    OK(hipStreamWaitEvent(a, meet, 0));
    add<<<(N + 63) / 64, 64, 0, a>>>(x, y, N);
    OK(hipStreamEndCapture(a, &graph));
    OK(hipStreamIsCapturing(b, &status));
    CHECK(status == hipStreamCaptureStatusNone);
    OK(hipEventDestroy(fork));
    OK(hipEventDestroy(meet));
    return graph;
}

static void test_capture() {
    hipStream_t a, b;
    OK(hipStreamCreateWithFlags(&a, hipStreamNonBlocking));
    OK(hipStreamCreateWithFlags(&b, hipStreamNonBlocking));
    std::vector<int> xs = random_ints(N, -99, 99), ys = random_ints(N, -99, 99);
    Buffer<int> x(xs), y(ys);
    hipGraph_t graph = capture(a, b, x.data, y.data, 3);
    CHECK(x.read() == xs); // nothing has run
    size_t nodes = 0, edges = 0;
    OK(hipGraphGetNodes(graph, nullptr, &nodes));
    OK(hipGraphGetEdges(graph, nullptr, nullptr, &edges));
    CHECK(nodes == 3 && edges == 2);
    hipGraphExec_t exec;
    OK(hipGraphInstantiateWithFlags(&exec, graph, 0));
    OK(hipGraphLaunch(exec, b));
    OK(hipStreamSynchronize(b));
    for (int i = 0; i < N; i++) {
        ys[i] *= 3;
        xs[i] = 2 * xs[i] + ys[i];
    }
    CHECK(x.read() == xs && y.read() == ys);
    hipGraph_t other = capture(a, b, x.data, y.data, 7);
    hipGraphNode_t wrong;
    hipGraphExecUpdateResult result;
    OK(hipGraphExecUpdate(exec, other, &wrong, &result));
    CHECK(result == hipGraphExecUpdateSuccess);
    OK(hipGraphLaunch(exec, a));
    OK(hipStreamSynchronize(a));
    for (int i = 0; i < N; i++) {
        ys[i] *= 7;
        xs[i] = 2 * xs[i] + ys[i];
    }
    CHECK(x.read() == xs && y.read() == ys);
    OK(hipGraphDestroy(other));
    OK(hipGraphCreate(&other, 0));
    GIVES(hipErrorGraphExecUpdateFailure, hipGraphExecUpdate(exec, other, &wrong, &result));
    CHECK(result == hipGraphExecUpdateErrorTopologyChanged);
    // As a child, behind a fill of x; the clone of it all runs when the others are gone.
    hipMemsetParams fill = {x.data, 4, 1, N * 4, 6, N};
    hipGraphNode_t set, child;
    OK(hipGraphAddMemsetNode(&set, other, nullptr, 0, &fill));
    OK(hipGraphAddChildGraphNode(&child, other, &set, 1, graph));
    hipGraph_t clone;
    OK(hipGraphClone(&clone, other));
    hipGraphNode_t found;
    OK(hipGraphNodeFindInClone(&found, child, clone));
    CHECK(found != child);
    OK(hipGraphDestroy(other));
    OK(hipGraphDestroy(graph));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphInstantiate(&exec, clone, nullptr, nullptr, 0));
    OK(hipGraphDestroy(clone));
    OK(hipGraphLaunch(exec, a));
    OK(hipStreamSynchronize(a));
    for (int i = 0; i < N; i++) {
        ys[i] *= 3;
        xs[i] = 2 * 6 + ys[i];
    }
    CHECK(x.read() == xs && y.read() == ys);
    OK(hipGraphExecDestroy(exec));
    OK(hipStreamDestroy(a));
    OK(hipStreamDestroy(b));
}

static void test_capture_errors() {
    hipStream_t a, b;
    hipEvent_t event;
    hipGraph_t graph;
    Buffer<int> x(N);
    OK(hipStreamCreate(&a));
    OK(hipStreamCreate(&b));
    OK(hipEventCreate(&event));
    GIVES(hipErrorStreamCaptureUnsupported, hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal));
    GIVES(hipErrorIllegalState, hipStreamEndCapture(a, &graph));
    OK(hipStreamBeginCapture(a, hipStreamCaptureModeRelaxed)); // waiting makes it invalid
    GIVES(hipErrorStreamCaptureUnsupported, hipStreamSynchronize(a));
    GIVES(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(a, &graph));
    CHECK(graph == nullptr);
    OK(hipStreamBeginCapture(a, hipStreamCaptureModeGlobal)); // so does the default stream
    GIVES(hipErrorIllegalState, hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
    GIVES(hipErrorStreamCaptureImplicit, hipMemset(x.data, 0, 4));
    GIVES(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(a, &graph));
    OK(hipStreamBeginCapture(a, hipStreamCaptureModeGlobal)); // and a stream that nobody waits for
    OK(hipEventRecord(event, a));
    OK(hipStreamWaitEvent(b, event, 0));
    scale<<<1, 64, 0, b>>>(x.data, 2, N);
    GIVES(hipErrorStreamCaptureUnmatched, hipStreamEndCapture(b, &graph));
    GIVES(hipErrorStreamCaptureUnjoined, hipStreamEndCapture(a, &graph));
    OK(hipStreamSynchronize(a));
    OK(hipStreamWaitEvent(b, event, 0)); // the capture has ended, and the event stands for nothing
    OK(hipStreamSynchronize(b));
    OK(hipStreamBeginCapture(a, hipStreamCaptureModeGlobal)); // a capture ends with its stream
    OK(hipEventRecord(event, a));
    OK(hipStreamWaitEvent(b, event, 0));
    scale<<<1, 64, 0, b>>>(x.data, 2, N);
    GIVES(hipErrorStreamCaptureUnsupported, hipDeviceSynchronize());
    OK(hipStreamDestroy(a));
    OK(hipStreamSynchronize(b));
    GIVES(hipErrorContextIsDestroyed, hipStreamEndCapture(a, &graph));
    OK(hipEventDestroy(event));
    OK(hipStreamDestroy(b));
}

static void test_events() {
    hipEvent_t event;
    hipGraph_t graph;
    hipGraphNode_t record, wait;
    hipGraphExec_t exec;
    OK(hipEventCreate(&event));
    OK(hipGraphCreate(&graph, 0));
    OK(hipGraphAddEventRecordNode(&record, graph, nullptr, 0, event));
    OK(hipGraphAddEventWaitNode(&wait, graph, &record, 1, event));
    hipEvent_t got;
    OK(hipGraphEventRecordNodeGetEvent(record, &got));
    CHECK(got == event);
    GIVES(hipErrorInvalidValue, hipGraphEventWaitNodeGetEvent(record, &got));
    OK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
    OK(hipGraphLaunch(exec, nullptr));
    OK(hipEventSynchronize(event));
    OK(hipGraphExecDestroy(exec));
    OK(hipGraphDestroy(graph));
    OK(hipEventDestroy(event));
}

int main() {
    on_each_device(test_nodes);
    on_each_device(test_capture);
    on_each_device(test_capture_errors);
    on_each_device(test_events);
}
