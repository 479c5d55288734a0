// SPDX-License-Identifier: Apache-2.0
// Graphs: their nodes, how these depend on each other, copies of graphs.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

// ---- lists of nodes

bool sim_nodes_has(const sim_nodes *nodes, const struct hipGraphNode *node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->list[i] == node)
            return true;
    return false;
}

bool sim_nodes_add(sim_nodes *nodes, hipGraphNode_t node) {
    if (sim_nodes_has(nodes, node))
        return true;
    hipGraphNode_t *grown = realloc(nodes->list, (nodes->count + 1) * sizeof *grown);
    if (!grown)
        return false;
    nodes->list = grown;
    nodes->list[nodes->count++] = node;
    return true;
}

static void remove_from(sim_nodes *nodes, const struct hipGraphNode *node) {
    size_t kept = 0;
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->list[i] != node)
            nodes->list[kept++] = nodes->list[i];
    nodes->count = kept;
}

void sim_nodes_clear(sim_nodes *nodes) {
    free(nodes->list);
    *nodes = (sim_nodes){};
}

// ---- operations

sim_op *sim_graph_copy_op(const sim_op *op) {
    sim_op *copy = malloc(op->bytes);
    if (!copy)
        return nullptr;
    memcpy(copy, op, op->bytes);
    if (copy->module)
        atomic_fetch_add(&copy->module->num_ops, 1);
    return copy;
}

void sim_graph_free_op(sim_op *op) {
    if (op && op->module)
        atomic_fetch_sub(&op->module->num_ops, 1);
    free(op); // a graph's operations own nothing beside themselves
}

// ---- graphs and nodes

bool sim_is_graph(hipGraph_t graph) {
    return graph && sim_handle_is(SIM_HANDLE_GRAPH, graph);
}

bool sim_is_node(hipGraphNode_t node) {
    return node && sim_handle_is(SIM_HANDLE_NODE, node);
}

hipGraph_t sim_graph_create(void) {
    hipGraph_t graph = calloc(1, sizeof *graph);
    if (!graph || !sim_handle_add(SIM_HANDLE_GRAPH, graph)) {
        free(graph);
        return nullptr;
    }
    graph->last = &graph->first;
    return graph;
}

static void free_node(hipGraphNode_t node) {
    sim_handle_remove(SIM_HANDLE_NODE, node);
    sim_nodes_clear(&node->on);
    sim_node_set_op(node, nullptr);
    if (node->child)
        sim_graph_destroy(node->child);
    if (node->block)
        sim_block_release(node->block, node->origin);
    free(node);
}

void sim_graph_destroy(hipGraph_t graph) {
    sim_handle_remove(SIM_HANDLE_GRAPH, graph);
    for (hipGraphNode_t node = graph->first, next; node; node = next) {
        next = node->next;
        free_node(node);
    }
    sim_kept_release(graph);
    free(graph);
}

void sim_graphs_free_all(void) {
    for (hipGraphExec_t exec; (exec = sim_handle_take(SIM_HANDLE_EXEC));) {
        sim_graph_destroy(exec->graph);
        free(exec->order);
        free(exec);
    }
    for (hipGraph_t graph; (graph = sim_handle_take(SIM_HANDLE_GRAPH));)
        if (!graph->is_inner)
            sim_graph_destroy(graph);
}

hipGraphNode_t sim_graph_add(hipGraph_t graph, hipGraphNodeType type, const hipGraphNode_t *on,
                             size_t count) {
    hipGraphNode_t node = calloc(1, sizeof *node);
    bool ok = node;
    if (node)
        *node = (struct hipGraphNode){.graph = graph, .type = type, .is_enabled = true};
    for (size_t i = 0; ok && i < count; i++)
        ok = sim_nodes_add(&node->on, on[i]);
    if (!ok || !sim_handle_add(SIM_HANDLE_NODE, node)) {
        if (node)
            sim_nodes_clear(&node->on);
        free(node);
        return nullptr;
    }
    *graph->last = node;
    graph->last = &node->next;
    graph->num_nodes++;
    return node;
}

void sim_graph_remove(hipGraphNode_t node) {
    hipGraph_t graph = node->graph;
    hipGraphNode_t *at = &graph->first;
    for (hipGraphNode_t other = graph->first; other; other = other->next)
        remove_from(&other->on, node);
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    if (graph->last == &node->next)
        graph->last = at;
    graph->num_nodes--;
    free_node(node);
}

bool sim_graph_order(hipGraph_t graph, hipGraphNode_t *order) {
    size_t done = 0, before;
    for (hipGraphNode_t node = graph->first; node; node = node->next)
        node->num_open = 1;
    do { // nodes mostly stand in order already, so that one pass does
        before = done;
        for (hipGraphNode_t node = graph->first; node; node = node->next) {
            bool is_ready = node->num_open;
            for (size_t i = 0; is_ready && i < node->on.count; i++)
                is_ready = !node->on.list[i]->num_open;
            if (is_ready) {
                node->num_open = 0;
                order[done++] = node;
            }
        }
    } while (done > before);
    return done == graph->num_nodes;
}

// ---- copies

static hipGraphNode_t copy_of(hipGraph_t clone, const struct hipGraphNode *origin) {
    hipGraphNode_t node = clone->first;
    while (node && node->origin != origin)
        node = node->next;
    return node;
}

bool sim_node_take_params(hipGraphNode_t to, const struct hipGraphNode *from) {
    hipGraph_t child = from->child ? sim_graph_clone(from->child) : nullptr;
    sim_op *op = from->op ? sim_graph_copy_op(from->op) : nullptr;
    bool ok = (!from->child || child) && (!from->op || op);
    if (!ok)
        sim_graph_free_op(op);
    if (!ok || !sim_node_set_op(to, op)) {
        if (child)
            sim_graph_destroy(child);
        return false;
    }
    if (to->child)
        sim_graph_destroy(to->child);
    to->child = child;
    if (child)
        child->is_inner = true;
    to->kind = from->kind;
    to->copy = from->copy;
    to->fill = from->fill;
    to->event = from->event;
    to->window = from->window;
    to->priority = from->priority;
    to->cooperative = from->cooperative;
    to->driver_copy = from->driver_copy;
    to->has_driver_copy = from->has_driver_copy;
    if (from->block && !to->block) {
        to->block = from->block;
        to->alloc = from->alloc;
        sim_block_keep(to->block, true);
    }
    return true;
}

/** Copies the nodes, then the dependencies, which may lead to later nodes. */
static bool copy_nodes(hipGraph_t clone, hipGraph_t graph) {
    for (hipGraphNode_t node = graph->first; node; node = node->next) {
        hipGraphNode_t copy = sim_graph_add(clone, node->type, nullptr, 0);
        if (!copy)
            return false;
        copy->origin = node;
        if (!sim_node_take_params(copy, node))
            return false;
    }
    for (hipGraphNode_t copy = clone->first; copy; copy = copy->next)
        for (size_t i = 0; i < copy->origin->on.count; i++)
            if (!sim_nodes_add(&copy->on, copy_of(clone, copy->origin->on.list[i])))
                return false;
    return true;
}

hipGraph_t sim_graph_clone(hipGraph_t graph) {
    hipGraph_t clone = sim_graph_create();
    if (clone && !(copy_nodes(clone, graph) && sim_kept_copy(clone, graph))) {
        sim_graph_destroy(clone);
        return nullptr;
    }
    if (clone)
        clone->origin = graph;
    return clone;
}

// ---- calls

hipError_t hipGraphCreate(hipGraph_t *out, unsigned flags) {
    SIM_HIP_START();
    if (!out || flags)
        return sim_hip_result(hipErrorInvalidValue);
    hipGraph_t graph = sim_graph_create();
    if (graph)
        *out = graph;
    return sim_hip_result(graph ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || graph->is_inner || graph->capture)
        return sim_hip_result(hipErrorInvalidValue);
    sim_graph_destroy(graph);
    return hipSuccess;
}

hipError_t hipGraphClone(hipGraph_t *out, hipGraph_t graph) {
    SIM_HIP_START();
    if (!out || !sim_is_graph(graph))
        return sim_hip_result(hipErrorInvalidValue);
    if (sim_graph_has_memory(graph))
        return sim_hip_result(hipErrorNotSupported); // as AMD's runtime has it
    hipGraph_t clone = sim_graph_clone(graph);
    if (clone)
        *out = clone;
    return sim_hip_result(clone ? hipSuccess : hipErrorOutOfMemory);
}

hipError_t hipGraphNodeFindInClone(hipGraphNode_t *out, hipGraphNode_t node, hipGraph_t clone) {
    SIM_HIP_START();
    if (!out || !sim_is_node(node) || !sim_is_graph(clone) || clone->origin != node->graph)
        return sim_hip_result(hipErrorInvalidValue);
    hipGraphNode_t copy = copy_of(clone, node);
    if (!copy)
        return sim_hip_result(hipErrorInvalidValue);
    *out = copy;
    return hipSuccess;
}

/** Checks pairs of nodes. Two nodes of a pair are of the graph and are not the same. */
static hipError_t check_pairs(hipGraph_t graph, const hipGraphNode_t *from,
                              const hipGraphNode_t *to, size_t count) {
    if (!sim_is_graph(graph) || (count && (!from || !to)))
        return hipErrorInvalidValue;
    for (size_t i = 0; i < count; i++)
        if (!sim_is_node(from[i]) || !sim_is_node(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph || from[i] == to[i]) {
            return hipErrorInvalidValue;
        }
    return hipSuccess;
}

hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from,
                                   const hipGraphNode_t *to, size_t count) {
    SIM_HIP_START();
    hipError_t error = check_pairs(graph, from, to, count);
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        error = sim_nodes_has(&to[i]->on, from[i])   ? hipErrorInvalidValue
                : sim_nodes_add(&to[i]->on, from[i]) ? hipSuccess
                                                     : hipErrorOutOfMemory;
    return sim_hip_result(error);
}

hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t *from,
                                      const hipGraphNode_t *to, size_t count) {
    SIM_HIP_START();
    hipError_t error = check_pairs(graph, from, to, count);
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        error = sim_nodes_has(&to[i]->on, from[i]) ? hipSuccess : hipErrorInvalidValue;
    for (size_t i = 0; error == hipSuccess && i < count; i++)
        remove_from(&to[i]->on, from[i]);
    return sim_hip_result(error);
}

// ---- what there is: a list's room is *count; without a list, *count is what there is

/** A list that the program wants. */
typedef struct answer {
    hipGraphNode_t *nodes, *more;
    size_t room, count;
} answer;

static void tell(answer *a, hipGraphNode_t node, hipGraphNode_t other) {
    if (a->count < a->room && a->nodes)
        a->nodes[a->count] = node;
    if (a->count < a->room && a->more)
        a->more[a->count] = other;
    a->count++;
}

/** Ends a list: places that are left over are null, and *count is what was written. */
static hipError_t finish(answer *a, size_t *count) {
    for (size_t i = a->count; a->nodes && i < a->room; i++) {
        a->nodes[i] = nullptr;
        if (a->more)
            a->more[i] = nullptr;
    }
    *count = a->nodes && a->count > a->room ? a->room : a->count;
    return hipSuccess;
}

hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !count)
        return sim_hip_result(hipErrorInvalidValue);
    answer a = {.nodes = nodes, .room = *count};
    for (hipGraphNode_t node = graph->first; node; node = node->next)
        tell(&a, node, nullptr);
    return finish(&a, count);
}

hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !count)
        return sim_hip_result(hipErrorInvalidValue);
    answer a = {.nodes = nodes, .room = *count};
    for (hipGraphNode_t node = graph->first; node; node = node->next)
        if (!node->on.count)
            tell(&a, node, nullptr);
    return finish(&a, count);
}

hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to,
                            size_t *count) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !count || !from != !to)
        return sim_hip_result(hipErrorInvalidValue);
    answer a = {.nodes = from, .more = to, .room = *count};
    for (hipGraphNode_t node = graph->first; node; node = node->next)
        for (size_t i = 0; i < node->on.count; i++)
            tell(&a, node->on.list[i], node);
    return finish(&a, count);
}

hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *nodes, size_t *count) {
    SIM_HIP_START();
    if (!sim_is_node(node) || !count)
        return sim_hip_result(hipErrorInvalidValue);
    answer a = {.nodes = nodes, .room = *count};
    for (size_t i = 0; i < node->on.count; i++)
        tell(&a, node->on.list[i], nullptr);
    return finish(&a, count);
}

hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t *nodes,
                                         size_t *count) {
    SIM_HIP_START();
    if (!sim_is_node(node) || !count)
        return sim_hip_result(hipErrorInvalidValue);
    answer a = {.nodes = nodes, .room = *count};
    for (hipGraphNode_t other = node->graph->first; other; other = other->next)
        if (sim_nodes_has(&other->on, node))
            tell(&a, other, nullptr);
    return finish(&a, count);
}

hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type) {
    SIM_HIP_START();
    if (!type || !sim_is_node(node))
        return sim_hip_result(hipErrorInvalidValue);
    *type = node->type;
    return hipSuccess;
}

hipError_t hipGraphDestroyNode(hipGraphNode_t node) {
    SIM_HIP_START();
    if (!sim_is_node(node) || node->graph->capture)
        return sim_hip_result(hipErrorInvalidValue);
    if (node->block)
        return sim_hip_result(hipErrorNotSupported); // as AMD's runtime has it
    sim_graph_remove(node);
    return hipSuccess;
}
