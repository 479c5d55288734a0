// SPDX-License-Identifier: Apache-2.0
// Objects of the program that graphs keep: the program's function destroys one when nobody refers
// to it any more. As with AMD's runtime, giving back more than there is changes nothing and is no
// error.
#include "graph.h"

#include <limits.h>
#include <stdlib.h>

struct hipUserObject {
    hipHostFn_t destroy;
    void *data;
    unsigned count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all objects and what graphs keep

static bool is_object(hipUserObject_t object) {
    return sim_handle_is(SIM_HANDLE_USER_OBJECT, object);
}

/** Takes references away, with the lock held. Returns the object if it has to be destroyed. */
static hipUserObject_t take(hipUserObject_t object, unsigned count) {
    object->count -= count;
    return object->count ? nullptr : object;
}

/** Destroys an object, without the lock, as the program's function may make HIP calls. */
static void destroy(hipUserObject_t object) {
    if (!object)
        return;
    sim_handle_remove(SIM_HANDLE_USER_OBJECT, object);
    object->destroy(object->data);
    free(object);
}

static bool is_count(unsigned count) {
    return count && count <= INT_MAX;
}

hipError_t hipUserObjectCreate(hipUserObject_t *out, void *data, hipHostFn_t function,
                               unsigned count, unsigned flags) {
    enum { NO_DESTRUCTOR_SYNC = 1 };
    SIM_HIP_START();
    if (!out || !function || !is_count(count) || flags != NO_DESTRUCTOR_SYNC)
        return sim_hip_result(hipErrorInvalidValue);
    hipUserObject_t object = malloc(sizeof *object);
    if (!object || !sim_handle_add(SIM_HANDLE_USER_OBJECT, object)) {
        free(object);
        return sim_hip_result(hipErrorOutOfMemory);
    }
    *object = (struct hipUserObject){function, data, count};
    *out = object;
    return hipSuccess;
}

hipError_t hipUserObjectRetain(hipUserObject_t object, unsigned count) {
    SIM_HIP_START();
    if (!object || !is_count(count))
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    if (is_object(object))
        object->count += count;
    pthread_mutex_unlock(&lock);
    return hipSuccess;
}

hipError_t hipUserObjectRelease(hipUserObject_t object, unsigned count) {
    SIM_HIP_START();
    if (!object || !is_count(count))
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    const bool can = is_object(object) && object->count >= count;
    hipUserObject_t last = can ? take(object, count) : nullptr;
    pthread_mutex_unlock(&lock);
    destroy(last);
    return hipSuccess;
}

/** The program's own memory goes with the program, whose functions are no longer called. */
void sim_user_objects_free_all(void) {
    for (hipUserObject_t object; (object = sim_handle_take(SIM_HANDLE_USER_OBJECT));)
        free(object);
}

// ---- what graphs keep

/** Returns the place of an object in a graph's list; of the null at its end if it is not there. */
static sim_kept **place_of(hipGraph_t graph, hipUserObject_t object) {
    sim_kept **at = &graph->kept;
    while (*at && (*at)->object != object)
        at = &(*at)->next;
    return at;
}

/** Lets a graph keep an object, whose count is not changed. Returns false without memory. */
static bool keep(hipGraph_t graph, hipUserObject_t object, unsigned count) {
    sim_kept **at = place_of(graph, object);
    if (!*at && !(*at = calloc(1, sizeof **at)))
        return false;
    (*at)->object = object;
    (*at)->count += count;
    return true;
}

hipError_t hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned count,
                                    unsigned flags) {
    enum { MOVE = 1 };
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !object || !is_count(count) || (flags && flags != MOVE))
        return sim_hip_result(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    const bool is_there = is_object(object);
    const bool ok = !is_there || keep(graph, object, count);
    if (is_there && ok && flags != MOVE)
        object->count += count;
    pthread_mutex_unlock(&lock);
    return sim_hip_result(ok ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipGraphReleaseUserObject(hipGraph_t graph, hipUserObject_t object, unsigned count) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !object || !is_count(count))
        return sim_hip_result(hipErrorInvalidValue);
    hipUserObject_t last = nullptr;
    pthread_mutex_lock(&lock);
    sim_kept **at = place_of(graph, object), *kept = *at;
    if (kept && kept->count >= count) {
        kept->count -= count;
        last = take(object, count);
        if (!kept->count) {
            *at = kept->next;
            free(kept);
        }
    }
    pthread_mutex_unlock(&lock);
    destroy(last);
    return hipSuccess;
}

bool sim_kept_copy(hipGraph_t to, hipGraph_t from) {
    bool ok = true;
    pthread_mutex_lock(&lock);
    for (sim_kept *k = from->kept; k && ok; k = k->next)
        if ((ok = keep(to, k->object, k->count)))
            k->object->count += k->count;
    pthread_mutex_unlock(&lock);
    return ok;
}

void sim_kept_release(hipGraph_t graph) {
    for (sim_kept *k = graph->kept, *next; k; k = next) {
        next = k->next;
        pthread_mutex_lock(&lock);
        hipUserObject_t last = is_object(k->object) && k->object->count >= k->count
                                   ? take(k->object, k->count)
                                   : nullptr;
        pthread_mutex_unlock(&lock);
        destroy(last);
        free(k);
    }
    graph->kept = nullptr;
}
