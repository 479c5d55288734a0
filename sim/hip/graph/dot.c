// SPDX-License-Identifier: Apache-2.0
// A graph as text for Graphviz: its nodes with what they do, its dependencies, graphs within.
#include "graph.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    VERBOSE = 1 << 0,
    KERNELS = 1 << 2,
    COPIES = 1 << 3,
    FILLS = 1 << 4,
    HOST = 1 << 5,
    EVENTS = 1 << 6,
    HANDLES = 1 << 10,
};

static const char *name_of(const struct hipGraphNode *node) {
    static const char *const names[] = {"KERNEL",     "MEMCPY",   "MEMSET",    "HOST",
                                        "GRAPH",      "EMPTY",    "WAIT",      "RECORD",
                                        "SEM_SIGNAL", "SEM_WAIT", "MEM_ALLOC", "MEM_FREE"};
    return node->type == hipGraphNodeTypeBatchMemOp ? "BATCH_MEM_OP" : names[node->type];
}

static void print_kernel(FILE *to, const struct hipGraphNode *node) {
    const sim_launch *l = sim_hip_launch_of(node->op);
    fprintf(to, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%zu>>>", l->function->kernel->name, l->grid[0],
            l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->dynamic_lds);
}

static void print_box(FILE *to, const struct hipGraphNode *node) {
    const sim_box *b = sim_hip_box_of(node->op);
    fprintf(to, "\\nto %p\\n%zu x %zu x %zu bytes", (void *)b->dst, b->width, b->height, b->depth);
    if (b->src)
        fprintf(to, "\\nfrom %p", (const void *)b->src);
    else
        fprintf(to, "\\nvalue %u", b->value);
}

/** Prints what a node does, as far as it is asked for. */
static void print_params(FILE *to, const struct hipGraphNode *node, unsigned flags) {
    const unsigned wanted = flags & VERBOSE ? UINT_MAX : flags;
    if (wanted & HANDLES)
        fprintf(to, "\\nnode %p", (const void *)node);
    if (node->type == hipGraphNodeTypeKernel && wanted & KERNELS)
        print_kernel(to, node);
    else if ((node->type == hipGraphNodeTypeMemcpy && wanted & COPIES) ||
             (node->type == hipGraphNodeTypeMemset && wanted & FILLS))
        print_box(to, node);
    else if (node->type == hipGraphNodeTypeHost && wanted & HOST)
        fprintf(to, "\\ndata %p", sim_hip_host_of(node->op)->userData);
    else if (node->event && wanted & EVENTS)
        fprintf(to, "\\nevent %p", (void *)node->event);
}

/** Prints a graph, whose nodes have names of their own if each graph has another prefix. */
static void print_graph(FILE *to, hipGraph_t graph, const char *prefix, unsigned flags) {
    fprintf(to, "subgraph \"cluster_%s\" {\nlabel=\"%s\"\n", prefix, prefix);
    for (hipGraphNode_t node = graph->first; node; node = node->next) {
        fprintf(to, "\"%s_%p\" [shape=box label=\"%s", prefix, (void *)node, name_of(node));
        print_params(to, node, flags);
        fputs("\"]\n", to);
        for (size_t i = 0; i < node->on.count; i++)
            fprintf(to, "\"%s_%p\" -> \"%s_%p\"\n", prefix, (void *)node->on.list[i], prefix,
                    (void *)node);
    }
    fputs("}\n", to);
    for (hipGraphNode_t node = graph->first; node; node = node->next) {
        char inner[64];
        snprintf(inner, sizeof inner, "graph_%p", (void *)node);
        if (node->child)
            print_graph(to, node->child, inner, flags);
    }
}

/** Writes a graph to a file. Flags that no node of ours has to do with print nothing, as with AMD's
 *  runtime. */
hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char *path, unsigned flags) {
    SIM_HIP_START();
    if (!sim_is_graph(graph) || !path)
        return sim_hip_result(hipErrorInvalidValue);
    FILE *to = fopen(path, "w");
    if (!to) {
        sim_hip_report("hipGraphDebugDotPrint", "%s: %s", path, strerror(errno));
        return sim_hip_result(hipErrorOperatingSystem);
    }
    fputs("digraph dot {\n", to);
    print_graph(to, graph, "graph", flags);
    fputs("}\n", to);
    const bool is_short = ferror(to); // fclose may succeed after a write that failed
    return sim_hip_result(fclose(to) == 0 && !is_short ? hipSuccess : hipErrorOperatingSystem);
}
