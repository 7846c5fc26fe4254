/* The tape: operations recorded once for a model and a batch size, and replayed for every step.
 *
 * Recording (a layer's …_record) adds a node: its operation, what it reads, what it writes, what its forward
 * saves. mn_tape_finish then counts each tensor's consumers, allocates the buffers, and gives every consumer
 * the gradient sink of what it reads. A sink is an epilogue; the consumer's backward passes it to the GEMM
 * that computes that gradient. So a block whose output feeds one GEMM receives dz instead of dy, and a
 * parameter in training receives its update. The gradient of a tensor with several consumers is stored by the
 * first of them and added to by the others; its sink is then applied once, to the sum: by its producer's
 * backward or, for a parameter that several nodes share (tied weights), at the end of the tape's backward. A
 * sink that adds is given to all consumers instead. The tape knows no layer; its runs allocate nothing. */
#ifndef MN_ENGINE_TAPE_H
#define MN_ENGINE_TAPE_H

#include "engine/forms.h"

enum { MN_NODE_INPUTS = 36, MN_TAPE_GRAPHS = 64 }; /* inputs: of a narrow stack, with all its parameters */

/* On the CPU a tape whose largest product has fewer multiply-adds than MN_TAPE_SMALL runs on one thread, and
 * one below MN_TAPE_MEDIUM on half of the threads, or on one of two or three (measured: tests/RESULTS.md),
 * unless mn_device_open was given their number. */
enum { MN_TAPE_SMALL = 1 << 21, MN_TAPE_MEDIUM = 1 << 25 };

struct mn_tape;
struct mn_node;
struct mn_clipping;

/* One more change of a model's parameters; `changes` may be NULL. */
static inline void mn_count_change(int64_t *changes) {
  if (changes) __atomic_add_fetch(changes, 1, __ATOMIC_RELAXED);
}

struct mn_operation {
  /* Called by mn_tape_finish, when all buffers are allocated and all sinks are set; may be NULL. */
  mn_status (*bind)(struct mn_tape *tape, struct mn_node *node);
  mn_status (*forward)(struct mn_tape *tape, struct mn_node *node);
  /* Gives the inputs that other nodes wrote their gradients, and computes what `update` needs. */
  mn_status (*backward)(struct mn_tape *tape, struct mn_node *node);
  /* Appends squares of norms of the parameters' gradients to clipping->squares, of which *count are there.
   * NULL for an operation without parameters. */
  mn_status (*square)(struct mn_tape *tape, struct mn_node *node, const struct mn_clipping *clipping,
                      int64_t *count);
  /* The gradients of parameters, with their updates; may be NULL. Called for the nodes in the order of the
   * backward once that is done for all of them: an update must not come before a value that is not finite, in
   * whichever layer, has had the chance to stop it (tape->early: with the node's; an only node may update in
   * its backward). The tape forks MN_BRANCH_SUMS (kernels/stream.h) before and joins it after the last, for
   * what need not wait for the GEMMs. */
  mn_status (*update)(struct mn_tape *tape, struct mn_node *node);
  /* Follows mn_tape_resize; NULL if the tensors' rows are all that it goes by. */
  void (*resize)(struct mn_node *node, int64_t rows);
};

struct mn_node {
  const struct mn_operation *operation;
  struct mn_tensor *inputs[MN_NODE_INPUTS]; /* NULL if missing */
  int operand[MN_NODE_INPUTS]; /* whether a GEMM reads the input's planes; if not, its real form is read */
  struct mn_tensor *output;    /* NULL for a loss */
  void *saved;                 /* the operation's own; allocated with mn_tape_host */
  const struct mn_epilogue *sinks[MN_NODE_INPUTS]; /* each input's gradient sink, or NULL */
  struct mn_epilogue sums[MN_NODE_INPUTS];         /* sinks of inputs with several consumers */
  struct mn_node *next, *previous;
};

struct mn_tape {
  struct mn_device *device;
  int training;    /* gradients are wanted */
  double *results; /* on the device, or in memory of allocate_host: [0] the loss, [1] the weight of rows
                      classified correctly. The caller may set it to other memory before a run */
  int *nonfinite;  /* on the device: 0, or the mark of the first run in which a value of this tape's was not
                      finite; its updates then do not write */
  int mark;        /* the next run's; 1 unless the caller sets another; never 0 */
  struct mn_node *first, *last;
  int early;           /* each node's `update` comes with its own backward, and stores gradients */
  const void *weights; /* [rows] on the device, of the rows' losses; or NULL. Set before a run */
  const struct mn_clipping *clipping; /* borrowed; NULL if the tape does not clip */
  struct mn_tape_ranks *ranks;        /* what it does among ranks (engine/ranks/ranks.h); NULL for a single
                                         process */
  int replicas; /* among which the rows of a batch are divided, whose results are summed; 1 unless who
                   records sets it */
  int stepping; /* within a step: the loss's reduction may wait for the backward */
  int measure;  /* in the next step the scale of each dz is chosen by what this dz holds, which takes
                  passes over memory of their own; else by the last step's. Set for the first step,
                  for forward and backward by themselves, and by who takes a step again */
  int ran;      /* a step has run that did not measure */
  struct mn_graph *graphs[MN_TAPE_GRAPHS]; /* by mn_tape_graph */
  double largest_product;                  /* its multiply-adds; a layer that records a product raises it */
  int64_t *changes;       /* of a model whose parameters a run may change (mn_count_change); or NULL */
  struct mn_owned *owned; /* memory and tensors that are freed with the tape */
};

/* An empty tape; `*out` is the caller's. Tensors and nodes recorded on it go with it; parameters and the
 * device do not. */
mn_status mn_tape_open(struct mn_tape **out, struct mn_device *device, int training);
void mn_tape_close(struct mn_tape *tape); /* NULL is fine */

/* Zeroed host memory, and `count` elements of `size` bytes of device memory, not initialised. Both are freed
 * with the tape. */
mn_status mn_tape_host(struct mn_tape *tape, void **out, size_t bytes);
mn_status mn_tape_device(struct mn_tape *tape, void **out, int64_t count, size_t size);

/* Device memory that is gathered from all shards (mn_device_allocate_shared). */
mn_status mn_tape_shared(struct mn_tape *tape, void **out, int64_t count, size_t size);

/* A tensor [rows, cols] of the tape. mn_tape_finish allocates the buffers that its consumers need. If
 * the host writes the tensor before a step (a batch), set `keep`, so that it has its real form; or set
 * `outside` and point its forms to the batch before each run. */
mn_status mn_tape_tensor(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                         int64_t cols);

/* Appends `node` (copied) to the tape. */
mn_status mn_tape_record(struct mn_tape *tape, const struct mn_node *node);

/* From the next run on a batch has so many rows, at most as many as `x`, the tape's only input, was recorded
 * with. For a tape of a single process that does not train. */
void mn_tape_resize(struct mn_tape *tape, struct mn_tensor *x, int64_t rows);

/* Ends recording. If the last node has an output, backward starts from that output's gradient, which the
 * caller writes before. If the last node is a loss, its gradient is 1. */
mn_status mn_tape_finish(struct mn_tape *tape);

/* mn_tape_forward runs the recorded operations in order. mn_tape_backward runs their backward in reverse
 * order; it overwrites the forward's saved values, so it runs once after each forward. mn_tape_step does
 * both, or the forward alone if the tape does not train. */
mn_status mn_tape_forward(struct mn_tape *tape);
mn_status mn_tape_backward(struct mn_tape *tape);
mn_status mn_tape_step(struct mn_tape *tape);

/* Gives the device the work of run(data), which must be the same each time and on the same memory: the batch,
 * the parameters and the learning rate lie there. On the CPU by calling it; on CUDA as the tape's graph
 * `number`, below MN_TAPE_GRAPHS, which the first call captures: the work must have run once before, for
 * libraries to choose algorithms and allocate (kernels/stream.h). */
mn_status mn_tape_graph(struct mn_tape *tape, int number, mn_status (*run)(void *data), void *data);

/* mn_tape_step in this way; but the first step and one that measures scales are run directly. */
mn_status mn_tape_replay(struct mn_tape *tape, int number);

/* For an operation's backward: applies the sink of `node`'s output to the output's stored gradient. Returns
 * at once if the output has one consumer, whose GEMM has applied the sink. */
mn_status mn_tape_receive(struct mn_tape *tape, struct mn_node *node);

/* After a forward: the loss and, if not NULL, how many rows were classified right. Waits for the device. */
mn_status mn_tape_results(struct mn_tape *tape, double *loss, double *correct);

/* Whether a value of this tape's was not finite since it was opened or cleared. No update of the tape has
 * been applied since then. Waits for the device. Another tape's values do not count. */
mn_status mn_tape_nonfinite(struct mn_tape *tape, int *raised);
mn_status mn_tape_clear_nonfinite(struct mn_tape *tape);

/* Calls run(data) with this tape's flag and mark as the device's, which kernels set and updates read, and
 * with the tape's number of threads: for other work of the tape's step, such as an optimizer's. Returns what
 * run returns. */
mn_status mn_tape_run(struct mn_tape *tape, mn_status (*run)(void *data), void *data);

#endif
