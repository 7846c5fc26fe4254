/* Work that is recorded once and launched again as a whole, so that a step of small kernels does not wait for
 * the host to launch them one by one. CUDA alone: in the CPU's tables these entries are NULL, since calling a
 * function costs nothing. */
#ifndef MN_KERNELS_GRAPH_H
#define MN_KERNELS_GRAPH_H

#include "kernels/types.h"

struct mn_graph;

/* From begin to end, what is given to the device is recorded and not run: kernels and device-to-device copies
 * only, on memory that stays where it is, and each run once before, so that libraries have made their
 * choices. end gives the graph, the caller's for mn_graph_free, and is to be called whatever happened since
 * begin. */
typedef mn_status mn_graph_begin_function(struct mn_device *device);
typedef mn_status mn_graph_end_function(struct mn_device *device, struct mn_graph **out);
/* Runs what was recorded, in order with the rest of the device's work. */
typedef mn_status mn_graph_launch_function(struct mn_device *device, struct mn_graph *graph);
typedef void mn_graph_free_function(struct mn_device *device, struct mn_graph *graph); /* NULL is fine */

MN_C mn_graph_begin_function mn_graph_begin_cuda;
MN_C mn_graph_end_function mn_graph_end_cuda;
MN_C mn_graph_launch_function mn_graph_launch_cuda;
MN_C mn_graph_free_function mn_graph_free_cuda;

#endif
