// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any sequence of HIP calls, by one thread or two, over handles that are live,
// destroyed, of another kind, of another device or none at all. Each call gives an error that HIP
// has; none crashes, hangs or leaves anything behind; no handle can be destroyed twice.
//
// The first byte says whether there are two threads, which share all handles but graphs: a graph is
// for one thread at a time. Then each call is a byte that chooses it and bytes for its arguments.
// Fuzzes: libquernsim
// Needs: quern_test_objects
#include "hip_graph_calls.h"

#include <dirent.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// ---- the end of handles

static hipError_t destroy(kind k, void *handle) {
    switch (k) {
    case STREAM:
        return hipStreamDestroy(handle);
    case EVENT:
        return hipEventDestroy(handle);
    case MODULE:
        return hipModuleUnload(handle);
    case LIBRARY:
        return hipLibraryUnload(handle);
    case GRAPH:
        return hipGraphDestroy(handle);
    case EXEC:
        return hipGraphExecDestroy(handle);
    case ARRAY:
        return hipFreeArray(handle);
    case POOL:
        return hipMemPoolDestroy(handle);
    case PROGRAM:
        return of_rtc(hiprtcDestroyProgram((hiprtcProgram *)&handle));
    case LINK:
        return take(2) ? hipLinkDestroy(handle) : of_rtc(hiprtcLinkDestroy(handle));
    case PHYSICAL:
        return hipMemRelease(handle);
    case MEMORY:
        return hipFree(handle);
    case PINNED:
        return hipHostFree(handle);
    case RANGE:
        return hipMemAddressFree(handle, RANGE_BYTES);
    default: // functions and nodes go with their modules and graphs, objects with the last release
        return hipErrorNotSupported;
    }
}

static bool has_threads;

/** Destroys a handle that may be anything. Only one that is live can be destroyed; null, for
 *  memory, is no error. */
static hipError_t destroy_any(void) {
    const kind k = (kind)take(NUM_KINDS);
    void *handle = any(k);
    if (has_threads && (k == GRAPH || k == EXEC))
        return hipSuccess;
    const bool is_pinned = k == MEMORY && end_life(PINNED, handle); // hipFree takes both
    const bool is_live = is_pinned || end_life(k, handle);
    const hipError_t error = destroy(k, handle);
    if (error == hipSuccess && !is_live && handle && !has_threads) {
        fprintf(stderr, "kind %d: %p is destroyed, and was not live\n", k, handle);
        abort();
    }
    if (error != hipSuccess && is_live)
        put(is_pinned ? PINNED : k, handle, true);
    return error;
}

static hipError_t free_in_stream(void) {
    void *ptr = any(MEMORY);
    const bool is_live = end_life(MEMORY, ptr);
    const hipError_t error = hipFreeAsync(ptr, any(STREAM));
    if (error != hipSuccess && is_live)
        put(MEMORY, ptr, true);
    return error;
}

/** Forgets the live handles of a kind. */
static void forget(kind k) {
    pthread_mutex_lock(&live.lock);
    live.count[k] = 0;
    pthread_mutex_unlock(&live.lock);
}

// ---- calls

static hipError_t (*const calls[])(void) = {
    set_device,
    synchronize,
    ask_device,
    change_context,
    create_stream,
    ask_stream,
    wait_for_stream,
    call_from_stream,
    use_value,
    create_event,
    use_event,
    share_with_processes,
    create_memory,
    copy,
    copy_box,
    ask_memory,
    advise,
    register_memory,
    create_array,
    ask_array,
    create_pool,
    use_pool,
    share_pool,
    copy_batch,
    launch_by_parts,
    create_range,
    create_physical,
    use_range,
    pass_physical,
    load_library,
    use_library,
    load_module,
    use_module,
    ask_function,
    launch,
    use_registered,
    create_program,
    use_program,
    use_program,
    create_link,
    use_link,
    use_link,
    destroy_any,
    destroy_any,
    destroy_any,
    free_in_stream,
    create_object,
    // From here on, for one thread.
    use_object,
    create_graph,
    add_node,
    add_node,
    change_graph,
    change_node,
    use_batch_node,
    use_graph,
    use_graph,
    capture,
    capture,
};

enum { NUM_CALLS = sizeof calls / sizeof *calls, NUM_SHARED_CALLS = 47, MAX_CALLS = 200 };

/** Makes the calls of a part of the input. */
static void *run(void *part) {
    in = *(const input *)part;
    hipSetDevice(0);
    for (unsigned i = 0; i < MAX_CALLS && in.at < in.end; i++) {
        const unsigned n = take(has_threads ? NUM_SHARED_CALLS : NUM_CALLS);
        const hipError_t error = calls[n]();
        if (strcmp(hipGetErrorName(error), "hipErrorUnknown") == 0) {
            fprintf(stderr, "call %u: error %u, which HIP does not have\n", n, error);
            abort();
        }
    }
    hipSetDevice(0);
    return nullptr;
}

// ---- before and after

/** Makes a handle of each kind, so that every call has something to work with. */
static void make_some(void) {
    static const uint8_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    hipError_t (*const makers[])(void) = {
        create_event, create_array,   create_pool, create_range,  create_physical, load_module,
        load_library, create_program, create_link, create_object, create_graph,    create_stream};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        in = (input){ones, ones + sizeof ones};
        makers[i]();
    }
    for (int i = 0; i < 3; i++) {
        void *memory = nullptr, *pinned = nullptr;
        if (made(MEMORY, &memory, hipMalloc(&memory, 4096u << 2 * i)) != hipSuccess ||
            made(PINNED, &pinned, hipHostMalloc(&pinned, 4096, 0)) != hipSuccess)
            abort();
    }
    hipFunction_t function = nullptr;
    if (shown(FUNCTION, &function, hipModuleGetFunction(&function, slots[MODULE][0], "t_count")) !=
        hipSuccess)
        abort();
}

static void end_capture(hipStream_t stream) {
    hipGraph_t graph = nullptr;
    if (hipStreamEndCapture(stream, &graph) == hipSuccess) {
        end_life(GRAPH, graph);
        made(GRAPH, &graph, hipSuccess);
    }
}

/** Ends captures, without which nothing could be freed. */
static void end_captures(void) {
    const hipStream_t per_thread = (hipStream_t)2;
    for (size_t i = 0; i < live.count[STREAM]; i++)
        end_capture(live.list[STREAM][i]);
    for (int device = 1; device >= 0; device--)
        if (hipSetDevice(device) == hipSuccess)
            end_capture(per_thread);
}

/** Destroys everything that is live. */
static void destroy_all(void) {
    const kind order[] = {EXEC,    GRAPH, STREAM, EVENT, ARRAY,    MODULE, LIBRARY,
                          PROGRAM, LINK,  PINNED, POOL,  PHYSICAL, MEMORY};
    end_captures();
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        while (live.count[order[i]])
            destroy(order[i], live.list[order[i]][--live.count[order[i]]]);
    for (size_t i = 0; i < live.count[OBJECT]; i++)
        while (sim_handle_is(SIM_HANDLE_USER_OBJECT, live.list[OBJECT][i]))
            hipUserObjectRelease(live.list[OBJECT][i], 1);
    for (int device = 1; device >= 0; device--)
        if (hipSetDevice(device) != hipSuccess || hipDeviceReset() != hipSuccess)
            abort();
    for (size_t i = 0; i < live.count[RANGE]; i++)
        destroy(RANGE, live.list[RANGE][i]);
    for (kind k = 0; k < NUM_KINDS; k++) {
        forget(k);
        for (size_t i = 0; i < SLOTS; i++)
            slots[k][i] = nullptr;
        num_put[k] = 0;
    }
    for (size_t i = 0; i < sizeof host; i += 64)
        hipHostUnregister(host + i);
}

/** Returns whether a file in memory, which processes or addresses share, is open. */
static bool has_open_memory(void) {
    DIR *folder = opendir("/proc/self/fd");
    bool found = false;
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char target[64] = "";
        readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        found |= strncmp(target, "/memfd:", 7) == 0;
    }
    if (folder)
        closedir(folder);
    return found;
}

static char folder[] = "/tmp/hip_fuzz-XXXXXX"; // TMPDIR: where hiprtc works

static void remove_folder(void) {
    rmdir(folder);
}

/** Returns whether hiprtc has left anything in its folder. */
static bool has_left_files(void) {
    DIR *opened = opendir(folder);
    bool found = false;
    for (const struct dirent *entry; opened && (entry = readdir(opened));)
        found |= *entry->d_name != '.';
    if (opened)
        closedir(opened);
    return found;
}

/** Fails if anything is left: a handle, device memory, a file in memory or in hiprtc's folder. */
static void check_nothing_is_left(void) {
    for (sim_handle_kind k = 0; k <= SIM_HANDLE_FREEING; k++)
        if (k != SIM_HANDLE_CONTEXT && sim_handle_take(k)) {
            fprintf(stderr, "a handle of kind %d is left\n", k);
            abort();
        }
    for (uint32_t device = 0; device < 2; device++)
        if (sim_memory_used(sim_hip.memory, device)) {
            fprintf(stderr, "device %u: %lu bytes are left\n", device,
                    (unsigned long)sim_memory_used(sim_hip.memory, device));
            abort();
        }
    if (has_open_memory()) {
        fprintf(stderr, "a file in memory is left open\n");
        abort();
    }
    if (has_left_files()) {
        fprintf(stderr, "%s is not empty\n", folder);
        abort();
    }
}

static void start(void) {
    setenv("QUERN_CLANG", "false", 1); // hiprtc's compiler: it fails, which takes a millisecond
    if (!mkdtemp(folder) || setenv("TMPDIR", folder, 1) != 0 || atexit(remove_folder) != 0)
        abort();
    if (quernsim_configure("arch=gfx942,gfx1151;limit=2000;threads=1;check=bounds") != 0 ||
        hipInit(0) != hipSuccess)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool is_started;
    if (!is_started)
        start();
    is_started = true;
    if (!size)
        return hipSuccess;
    has_threads = data[0] & 1;
    make_some();
    const uint8_t *middle = data + 1 + (size - 1) / 2;
    input whole = {data + 1, data + size}, half = {data + 1, middle}, other = {middle, data + size};
    pthread_t thread;
    if (!has_threads) {
        run(&whole);
    } else if (pthread_create(&thread, nullptr, run, &half) == 0) {
        run(&other);
        pthread_join(thread, nullptr);
    }
    destroy_all();
    check_nothing_is_left();
    return 0;
}
