/* What replicas do with stored gradients before and in an optimizer's updates: each updates a share of the
 * rows of a weight, of whose gradient it has the sum over replicas, and gives it to the others in the form
 * that GEMMs read. Every rank calls each; `of` are all parameters of a model. */
#ifndef MN_ENGINE_RANKS_REPLICAS_H
#define MN_ENGINE_RANKS_REPLICAS_H

#include "engine/ranks/ranks.h"
#include "engine/tensor.h"

/* Gradients that were added up, which no tape sums: nothing is written where the updates will write
 * nothing. */
mn_status mn_replicas_sum(struct mn_device *device, struct mn_tensor *const *of, int count);

/* The gradient's elements that this rank adds to the norm: of what all replicas have, the first replica's. */
int64_t mn_replicas_own(const struct mn_device *device, const struct mn_tensor *t, const void **first);

/* squares[count], of this rank's own elements, become those of all replicas, and then all shards' follow:
 * *all[*number]. */
mn_status mn_ranks_squares(struct mn_device *device, double *squares, int64_t count, double **all,
                           int64_t *number);

/* The updates. gather: and the rest, the real form or the lower halves and what the rule keeps, for whoever
 * reads those. */
mn_status mn_replicas_update(struct mn_device *device, struct mn_tensor *const *of, int count);
mn_status mn_replicas_gather(struct mn_device *device, struct mn_tensor *const *of, int count);

#endif
