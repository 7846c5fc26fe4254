/* Graphs: work that is captured once and launched again as a whole, so that a step of small kernels does not
 * wait for the host to launch them one by one. CUDA only: in the CPU's tables these entries are NULL, since a
 * function call costs nothing. */
#ifndef MN_KERNELS_GRAPH_H
#define MN_KERNELS_GRAPH_H

#include "kernels/types.h"

struct mn_graph;

/* What is given to the device between begin and end is captured and not run: kernels and device-to-device
 * copies only, on memory that is not freed before the graph is. Each must have run once before, so that the
 * libraries have chosen their algorithms. `*out` is the caller's, for graph_free. end must be called after
 * begin, even when work in between failed. */
typedef mn_status mn_graph_begin_function(struct mn_device *device);
typedef mn_status mn_graph_end_function(struct mn_device *device, struct mn_graph **out);
/* Runs what was captured, in order with the rest of the device's work. */
typedef mn_status mn_graph_launch_function(struct mn_device *device, struct mn_graph *graph);
typedef void mn_graph_free_function(struct mn_device *device, struct mn_graph *graph); /* NULL is fine */

#endif
