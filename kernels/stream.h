/* The order of a device's work: branches, work that runs ahead, graphs, and streams of another's. */
#ifndef MN_KERNELS_STREAM_H
#define MN_KERNELS_STREAM_H

#include <math.h>

#include "kernels/types.h"

/* A branch: work that runs beside the device's other work, on a CUDA stream of its own.
 *
 * branch_fork records the point that the branch depends on. Work given between branch_begin and branch_end,
 * of which there may be several pairs, is ordered after that point and after the branch's own work, not after
 * what else was given since, and uses the multiprocessors that the other work leaves idle: a short kernel
 * overlaps a long one that it does not depend on. Work given after branch_join is ordered after both. Each
 * branch can be there once at a time, in a graph too.
 *
 * A branch and the work beside it must not both use the products' workspace, nor both run mn_reduce
 * or mn_column_sums with a loss, which share one counter. On the CPU all four functions do
 * nothing, because work is done when it is given. */
enum mn_branch {
  MN_BRANCH_SUMS, /* shards' agreement on the flag, then column sums, at a lower priority than other work */
  MN_BRANCH_REPLICAS, /* exchanges of replicas, at a higher one, */
  MN_BRANCH_SHARDS,   /* and of shards, beside products */
  MN_BRANCH_SAVES,    /* download_beside's copies (kernels/memory.h), at the lowest */
  MN_BRANCHES,
};

/* Multiprocessors that products of our own GEMM leave free (struct mn_device, reserved_sms) while a sum over
 * replicas may run beside them: enough for the link's full rate (NOTES.md). */
enum { MN_EXCHANGE_MULTIPROCESSORS = 24 };

typedef mn_status mn_branch_fork_function(struct mn_device *device, enum mn_branch which);
#define mn_branch_fork(device, ...) (device)->kernels->branch_fork(device, __VA_ARGS__)
/* branch_end must be called after branch_begin, and branch_join after branch_fork, even when work in between
 * failed. MN_BRANCH_SAVES is forked alone: download_beside waits for its own work. */
typedef mn_status mn_branch_begin_function(struct mn_device *device, enum mn_branch which);
#define mn_branch_begin(device, ...) (device)->kernels->branch_begin(device, __VA_ARGS__)
typedef mn_status mn_branch_end_function(struct mn_device *device, enum mn_branch which);
#define mn_branch_end(device, ...) (device)->kernels->branch_end(device, __VA_ARGS__)
typedef mn_status mn_branch_join_function(struct mn_device *device, enum mn_branch which);
#define mn_branch_join(device, ...) (device)->kernels->branch_join(device, __VA_ARGS__)

/* Work that runs ahead: it fills a buffer that later work reads, beside the work that is running, on a CUDA
 * stream of its own. There are two buffers, used in turn; for each filling, in this order:
 *
 *   ahead_begin   work given from here on fills the buffer, after all that used it before
 *   ahead_end     work given from here on is ordered after the filling; must be called, even when work in
 *                 between failed
 *   ahead_used    the buffer's last reader was given
 *   ahead_wait    waits for that reader
 *
 * At most MN_AHEAD_MOST fillings are under way, of two loaders in turn: an evaluation's behind a launch of
 * training's. On the CPU, which does work when it is given, only the copy in ahead_used remains. */
enum { MN_AHEAD_MOST = 4 };
typedef mn_status mn_ahead_begin_function(struct mn_device *device);
#define mn_ahead_begin(device) (device)->kernels->ahead_begin(device)
typedef mn_status mn_ahead_end_function(struct mn_device *device);
#define mn_ahead_end(device) (device)->kernels->ahead_end(device)

/* Once the work given so far is done, `bytes` at `from` in the device's memory are copied to `to`, which is
 * memory of allocate_host, beside the work that follows. */
typedef mn_status mn_ahead_used_function(struct mn_device *device, void *to, const void *from, size_t bytes);
#define mn_ahead_used(device, ...) (device)->kernels->ahead_used(device, __VA_ARGS__)

/* Waits for the oldest filling that has not been waited for: its readers are done, and the copy is there.
 * *idle: the milliseconds between the end of the readers of the filling before and the end of this filling,
 * in which the device had no work but to wait for data; 0 if it did not wait. */
typedef mn_status mn_ahead_wait_function(struct mn_device *device, double *idle);
#define mn_ahead_wait(device, ...) (device)->kernels->ahead_wait(device, __VA_ARGS__)

/* Graphs: work that is captured once and launched again as a whole, so that a step of small kernels does not
 * wait for the host to launch them one by one. CUDA only: in the CPU's tables these entries are NULL, since
 * function calls are fast. */
struct mn_graph;

/* Work given between begin and end is captured and not run: kernels and device-to-device copies only, on
 * memory that outlives the graph. Each must have run once before, so that the libraries have chosen their
 * algorithms. `*out` is the caller's, for graph_free. end must be called after begin, even when work in
 * between failed. */
typedef mn_status mn_graph_begin_function(struct mn_device *device);
#define mn_graph_begin(device) (device)->kernels->graph_begin(device)
typedef mn_status mn_graph_end_function(struct mn_device *device, struct mn_graph **out);
#define mn_graph_end(device, ...) (device)->kernels->graph_end(device, __VA_ARGS__)
/* Runs what was captured, in order with the rest of the device's work. */
typedef mn_status mn_graph_launch_function(struct mn_device *device, struct mn_graph *graph);
#define mn_graph_launch(device, ...) (device)->kernels->graph_launch(device, __VA_ARGS__)
typedef void mn_graph_free_function(struct mn_device *device, struct mn_graph *graph); /* NULL is fine */
#define mn_graph_free(device, ...) (device)->kernels->graph_free(device, __VA_ARGS__)

/* Work in a CUDA stream of another's, such as PyTorch's current one. */
enum { MN_LIBRARY_WORKSPACE = 32 << 20, MN_LIBRARY_SCALARS = 8 };

/* Memory that a device's kernels use besides their operands. Streams that run side by side must not share the
 * memory, which is the device's, aligned to 256 bytes. */
struct mn_outside {
  int ordinal;     /* the device's; after the exchange, the thread's current GPU before it */
  void *stream;    /* a cudaStream_t of the device's GPU; NULL means its default stream */
  void *workspace; /* MN_LIBRARY_WORKSPACE bytes */
  void *scalars;   /* MN_LIBRARY_SCALARS bytes */
  void *scratch;   /* MN_LIBRARY_WORKSPACE bytes if products are added or updated with; else NULL */
  int *nonfinite;  /* the flag, and its mark (struct mn_device) */
  int mark;
};

/* Swaps the device's stream, workspace and flag with `outside`'s: work that is given afterwards goes to that
 * stream. A second call swaps them back, and must follow even if the work failed. In between only these may
 * be called: gemm (with an epilogue that stores, adds, updates or is a block's), epilogue, column_sums
 * without a loss, round and count. On the CPU only the flag and its mark are swapped. */
typedef void mn_exchange_function(struct mn_device *device, struct mn_outside *outside);
#define mn_exchange(device, ...) (device)->kernels->exchange(device, __VA_ARGS__)

/* What another's optimizer keeps of its steps, in the device's memory. The first count of a step has flags,
 * and may skip it; others have none, and follow that one. */
struct mn_counts {
  int *flags; /* [flag_count] of the backwards that the step goes by, which are cleared; NULL for none */
  int64_t *skipped, *told; /* how many steps were skipped, and a copy, perhaps in memory of allocate_host */
  float *steps; /* [members]: how many of AdamW's steps were not skipped, each the same; NULL for SGD */
  double *rate; /* [MN_RATES] of AdamW: first and second of this step, by these betas */
  double beta1, beta2;
  int flag_count, members;
};

/* Counts a step that begins. It is skipped, and the nonfinite flag set to its mark, if a flag is set. */
typedef mn_status mn_count_function(struct mn_device *device, const struct mn_counts *counts);
#define mn_count(device, ...) (device)->kernels->count(device, __VA_ARGS__)
MN_EVERYWHERE static inline void mn_count_step(const struct mn_counts *c, int skipped, int lane, int lanes) {
  for (int i = lane; i < c->members && !skipped; i += lanes) c->steps[i] += 1;
  if (lane == 0 && c->flags) *c->told = *c->skipped += skipped;
  if (lane > 0 || c->members == 0) return;
  c->rate[MN_RATE_FIRST] = 1 / (1 - pow(c->beta1, c->steps[0]));
  c->rate[MN_RATE_SECOND] = 1 / sqrt(1 - pow(c->beta2, c->steps[0]));
}

/* The entries of this header (kernels/kernels.h). */
#define MN_STREAMS(DEVICE, AS, CUDA)                                                                         \
  DEVICE(branch_fork)                                                                                        \
  AS(branch_begin, branch_fork)                                                                              \
  AS(branch_end, branch_fork)                                                                                \
  AS(branch_join, branch_fork)                                                                               \
  AS(ahead_begin, synchronize)                                                                               \
  AS(ahead_end, synchronize)                                                                                 \
  DEVICE(ahead_wait)                                                                                         \
  DEVICE(ahead_used)                                                                                         \
  CUDA(graph_begin)                                                                                          \
  CUDA(graph_end)                                                                                            \
  CUDA(graph_launch)                                                                                         \
  CUDA(graph_free)                                                                                           \
  DEVICE(exchange)                                                                                           \
  DEVICE(count)

#endif
