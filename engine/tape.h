/* The tape: operations noted down once for a model and a batch size, and replayed for every step.
 *
 * Recording (a layer's …_record) notes a node: its operation, what it reads, what it writes, what its forward
 * saves. mn_tape_finish then counts each tensor's consumers, takes the buffers, and gives every consumer the
 * gradient sink of what it reads: an epilogue, which the consumer's backward hands, unopened, to the GEMM
 * that computes that gradient. So a block whose output feeds one GEMM receives dz instead of dy, and a
 * parameter in training receives its update. A tensor read more than once gets a store first, then adds, and
 * its own sink is applied to the sum. The tape knows no layer, and nothing is allocated after mn_tape_finish.
 */
#ifndef MN_ENGINE_TAPE_H
#define MN_ENGINE_TAPE_H

#include "engine/tensor.h"

enum { MN_NODE_INPUTS = 6 };

struct mn_tape;
struct mn_node;

struct mn_operation {
  const char *name;
  mn_status (*bind)(struct mn_tape *tape,
                    struct mn_node *node); /* at finish, once buffers and sinks stand; may be NULL */
  mn_status (*forward)(struct mn_tape *tape, struct mn_node *node);
  mn_status (*backward)(struct mn_tape *tape, struct mn_node *node);
};

struct mn_node {
  const struct mn_operation *operation;
  struct mn_tensor *inputs[MN_NODE_INPUTS]; /* NULL: not there */
  int operand[MN_NODE_INPUTS]; /* read by a GEMM, in the precision's form; else the real form is read */
  struct mn_tensor *output;    /* NULL for a loss */
  void *saved;                 /* the operation's own; allocated with mn_tape_host */
  const struct mn_epilogue
      *sinks[MN_NODE_INPUTS]; /* where each input's gradient goes; NULL: nobody wants it */
  struct mn_node *next, *previous;
};

struct mn_tape {
  struct mn_context *context;
  int training;    /* gradients are wanted */
  double *results; /* on the device: [0] the loss, [1] the number of rows classified correctly */
  struct mn_node *first, *last;
  int stepping;           /* within a step: what a forward leaves to be read may wait for the backward */
  int ran;                /* a step has; or, where the tape does not train, a forward */
  struct mn_graph *graph; /* NULL before the second time, and on the CPU */
  struct mn_owned *owned; /* everything that goes with the tape */
};

/* An empty tape; `*out` is the caller's. Tensors and nodes recorded on it go with it; parameters and the
 * context do not. */
mn_status mn_tape_open(struct mn_tape **out, struct mn_context *context, int training);
void mn_tape_close(struct mn_tape *tape); /* NULL is fine */

/* Zeroed host memory, and `count` elements of `size` bytes of device memory, that go with the tape. */
mn_status mn_tape_host(struct mn_tape *tape, void **out, size_t bytes);
mn_status mn_tape_device(struct mn_tape *tape, void **out, int64_t count, size_t size);

/* A tensor of the tape; its buffers come with mn_tape_finish, as its consumers need them. */
mn_status mn_tape_tensor(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                         int64_t cols);

/* The same for what the host writes before a step (a batch): it always has its real form. */
mn_status mn_tape_input(struct mn_tape *tape, struct mn_tensor **out, const char *name, int64_t rows,
                        int64_t cols);

/* Notes `node` (copied) at the end of the tape. */
mn_status mn_tape_record(struct mn_tape *tape, const struct mn_node *node);

/* Ends recording. The last node's output, if it has one, is where backward starts from: its gradient buffer
 * is to be filled by the caller. A tape that ends in a loss starts from 1. */
mn_status mn_tape_finish(struct mn_tape *tape);

/* Replays the recorded operations, and then their backward: once after each forward, whose saved tensors it
 * uses up. mn_tape_step is both, for every step of training.
 *
 * A step, and the forward of a tape that does not train, run the first time one by one, then, on CUDA, as one
 * graph, recorded the second time. What may change between them is what lies in device memory: the batch, the
 * parameters, the learning rate. */
mn_status mn_tape_forward(struct mn_tape *tape);
mn_status mn_tape_backward(struct mn_tape *tape);
mn_status mn_tape_step(struct mn_tape *tape);

/* For an operation's backward: applies the sink of `node`'s output, if the gradient was summed and not handed
 * over by its one consumer's GEMM. */
mn_status mn_tape_receive(struct mn_tape *tape, struct mn_node *node);

/* After a forward: the loss, and (where not NULL) how many rows were classified correctly. Waits for the
 * device. */
mn_status mn_tape_results(struct mn_tape *tape, double *loss, double *correct);

#endif
