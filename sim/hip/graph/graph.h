// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes that hold an operation to be copied into a stream, and how they depend on each
// other. As in HIP, a graph is for one thread at a time.
#ifndef SIM_HIP_GRAPH_H
#define SIM_HIP_GRAPH_H

#include "../runtime.h"

typedef struct sim_block sim_block; // memory of graphs (memory.c)

/** An object that a graph keeps, and how often. */
typedef struct sim_kept {
    struct sim_kept *next;
    hipUserObject_t object;
    unsigned count;
} sim_kept;

struct hipGraphNode {
    hipGraph_t graph;
    hipGraphNode_t next;   // of the graph, in the order of their making
    hipGraphNode_t origin; // of which this node is a copy; null: none
    hipGraphNodeType type;
    sim_nodes on; // on which it depends
    sim_op *op;   // copied for each launch; null: none
    hipMemcpyKind kind;
    hipMemcpy3DParms copy;          // of a copy, as the program gave it
    hipMemsetParams fill;           // of a fill
    void **kernel_params;           // of a kernel: into op's arguments
    hipLaunchAttributeValue window; // of a kernel: kept and told, as
    int priority;                   // this is
    int cooperative;                // the number that made the launch so, if an attribute did
    hipEvent_t event;               // of a record or wait; a reference
    hipGraph_t child;               // owned
    sim_block *block;               // of an allocation or its end; a reference
    hipMemAllocNodeParams alloc;
    HIP_MEMCPY3D driver_copy; // of a copy that a driver's call made
    bool has_driver_copy;
    bool is_enabled;
    unsigned num_open; // while nodes are put in order: nodes that have to come first
};

struct ihipGraph {
    hipGraphNode_t first, *last;
    size_t num_nodes;
    hipGraph_t origin; // of which this graph is a copy
    bool is_inner;     // a node or an executable graph owns it: no handle of the program
    struct sim_capture *capture;
    sim_kept *kept;
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
/** Frees an operation that a graph holds; null: nothing. */
void sim_graph_free_op(sim_op *op);
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

/** Checks a copy and gives it to a node. (copies.c) */
hipError_t sim_node_set_box(hipGraphNode_t node, const sim_box *box, hipMemcpyKind kind);
/** A copy of a node has its block too; it or the node lets go of it. (memory.c) */
void sim_block_keep(sim_block *block, bool is_instance);
void sim_block_release(sim_block *block, bool is_instance);
/** Queues a node that allocates or frees. */
hipError_t sim_block_launch(const struct hipGraphNode *node, sim_stream *stream);
/** Frees what an earlier launch has left. Errors: hipErrorInvalidValue if that must not be. */
hipError_t sim_blocks_prepare(hipGraph_t graph, bool frees, sim_stream *stream);
bool sim_graph_has_memory(hipGraph_t graph);
/** Returns whether a graph that allocates is executable already. */
bool sim_graph_has_instance(hipGraph_t graph);
/** Makes a captured node allocate, or free. Returns false without memory, or if `ptr` is no graph's
 *  to be freed. */
bool sim_block_capture_alloc(hipGraphNode_t node, sim_device *device, size_t bytes, void **out);
bool sim_block_capture_free(hipGraphNode_t node, void *ptr);
/** A copy of a graph keeps what the graph keeps. Returns false without memory. (objects.c) */
bool sim_kept_copy(hipGraph_t to, hipGraph_t from);
void sim_kept_release(hipGraph_t graph);

#endif
