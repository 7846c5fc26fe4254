/* What hangs on a tape: ranks, and clipping. */
#ifndef MN_ENGINE_HOOKS_H
#define MN_ENGINE_HOOKS_H

#include "engine/tape.h"

/* What ranks add to a device's work (engine/ranks/ranks.h). On the runs of a tape `forwarded` comes
 * after the forward's products, `before_updates` after the backward's, `ended` after the updates. */
struct mn_tape_hooks {
  size_t bytes;                              /* size of tape->ranks, zeroed */
  mn_status (*finish)(struct mn_tape *tape); /* recording has ended */
  mn_status (*forwarded)(struct mn_tape *tape);
  mn_status (*before_updates)(struct mn_tape *tape);
  mn_status (*ended)(struct mn_tape *tape, mn_status status);
  /* while recording: a layer's output, of which each rank may have a shard */
  mn_status (*record_allgather)(struct mn_tape *tape, struct mn_tensor **y, int64_t cols, int partial);
  /* a loss's parts, [rows, cols] of all shards, which a step gathers with the agreement on the flag */
  void (*gather_parts)(struct mn_tape *tape, void *whole, const void *piece, int64_t rows, int64_t cols);
  /* the scale of a gradient's planes, on which all agree */
  void (*agree)(struct mn_tape *tape, struct mn_scale *scale);
  /* on the host: all[ranks][bytes] becomes every rank's `mine` */
  mn_status (*allgather_host)(struct mn_device *device, void *all, const void *mine, size_t bytes);
  /* with stored gradients: summing those that no tape sums, the squares of their norms, the updates */
  mn_status (*sum)(struct mn_device *device, struct mn_tensor *const *of, int count);
  mn_status (*square)(struct mn_device *device, struct mn_tensor *const *of, int count,
                      const struct mn_clipping *clipping, double **squares, int64_t *number);
  mn_status (*update)(struct mn_device *device, struct mn_tensor *const *of, int count);
};

/* Clipping by the norm of all gradients, which are not stored. Between the backward and the updates each node
 * computes its part of the norm's square, and mn_clip the scale, by which the updates multiply
 * (struct mn_rule). */
struct mn_clipping {
  double max;           /* the largest norm */
  int64_t rows;         /* the tape's batch */
  double *scale, *norm; /* on the device, or norm as mn_tape.results; what mn_clip writes */
  double *squares;      /* on the device: the nodes' parts */
  double *scratch;      /* what mn_reduce needs */
  void *grams; /* mn_block_grams writes here (layers/norms.h), for the layer with the most channels */
};

#endif
