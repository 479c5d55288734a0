// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes that hold an operation to be copied into a stream, and how they depend on each
// other. As in HIP, a graph is for one thread at a time.
#ifndef SIM_HIP_GRAPH_H
#define SIM_HIP_GRAPH_H

#include "../runtime.h"

struct hipGraphNode {
    hipGraph_t graph;
    hipGraphNode_t next;   // of the graph, in the order of their making
    hipGraphNode_t origin; // of which this node is a copy; null: none
    hipGraphNodeType type;
    sim_nodes on; // on which it depends
    sim_op *op;   // copied for each launch; null: none
    hipMemcpyKind kind;
    hipMemcpy3DParms copy; // of a copy, as the program gave it
    hipMemsetParams fill;  // of a fill
    void **kernel_params;  // of a kernel: into op's arguments
    hipEvent_t event;      // of a record or wait; a reference
    hipGraph_t child;      // owned
    bool is_enabled;
    unsigned num_open; // while nodes are put in order: nodes that have to come first
};

struct ihipGraph {
    hipGraphNode_t first, *last;
    size_t num_nodes;
    hipGraph_t origin; // of which this graph is a copy
    bool is_inner;     // a node or an executable graph owns it: no handle of the program
    struct sim_capture *capture;
};

struct hipGraphExec {
    hipGraph_t graph;
    hipGraphNode_t *order;
    unsigned long long flags;
};

bool sim_is_graph(hipGraph_t graph);
bool sim_is_node(hipGraphNode_t node);
hipGraph_t sim_graph_create(void);
void sim_graph_destroy(hipGraph_t graph);
/** Copies a graph; null without memory. */
hipGraph_t sim_graph_clone(hipGraph_t graph);
/** Adds a node that depends on others. Returns null without memory. */
hipGraphNode_t sim_graph_add(hipGraph_t graph, hipGraphNodeType type, const hipGraphNode_t *on,
                             size_t count);
/** Takes a node out and frees it. */
void sim_graph_remove(hipGraphNode_t node);
/** Adds a node to a list, unless the list has it. Returns false without memory. */
bool sim_nodes_add(sim_nodes *nodes, hipGraphNode_t node);
void sim_nodes_clear(sim_nodes *nodes);
bool sim_nodes_has(const sim_nodes *nodes, const struct hipGraphNode *node);
/** Copies an operation that a graph holds; null without memory. */
sim_op *sim_graph_copy_op(const sim_op *op);
/** Gives a node an operation, or none, in place of the one it has. Returns false without memory:
 *  the operation is then freed, and the node as it was. (nodes.c) */
bool sim_node_set_op(hipGraphNode_t node, sim_op *op);
/** Puts a graph's nodes in an order in which each comes behind those on which it depends. Returns
 *  false if there is none. */
bool sim_graph_order(hipGraph_t graph, hipGraphNode_t *order);
/** Returns whether two graphs have the same nodes, of the same types, and dependencies. */
bool sim_graph_is_alike(hipGraph_t a, hipGraph_t b);
/** Checks where a node is to be added, and adds it. (nodes.c) */
hipError_t sim_graph_place(hipGraphNode_t *out, hipGraph_t graph, const hipGraphNode_t *on,
                           size_t count, hipGraphNodeType type);
/** Removes a node that was just added, on an error, which it returns. */
hipError_t sim_graph_keep(hipGraphNode_t *out, hipError_t error);
/** Returns hipErrorInvalidValue unless this is a node of the type. */
hipError_t sim_graph_typed(hipGraphNode_t node, hipGraphNodeType type);
/** Finds the copy of a node of the type in an executable graph. Errors: hipErrorInvalidValue. */
hipError_t sim_exec_typed(hipGraphNode_t *out, hipGraphExec_t exec, hipGraphNode_t node,
                          hipGraphNodeType type);
/** Fills in the parameters of a copy or fill. (copies.c) */
void sim_graph_describe_box(hipGraphNode_t node);
/** Returns the copy of a node in an executable graph, or null. */
hipGraphNode_t sim_exec_node(hipGraphExec_t exec, hipGraphNode_t node);
/** Makes an executable graph's node like another. Returns false without memory. */
bool sim_node_take_params(hipGraphNode_t to, const struct hipGraphNode *from);

#endif
