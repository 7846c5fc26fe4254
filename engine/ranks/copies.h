/* What copies do with stored gradients before and in an optimizer's updates: each updates a share of the rows
 * of a weight, of whose gradient it has the sum over copies, and gives it to the others in the form that GEMMs
 * read. Every rank calls each; `of` are all parameters of a model. */
#ifndef MN_ENGINE_RANKS_COPIES_H
#define MN_ENGINE_RANKS_COPIES_H

#include "engine/ranks/ranks.h"
#include "engine/tensor.h"

/* Gradients that were added up, which no tape sums: nothing is written where the updates will write nothing. */
mn_status mn_copies_sum(struct mn_context *context, struct mn_tensor *const *of, int count);

/* The gradient's elements that this rank adds to the norm: of what all copies have, the first copy's. */
int64_t mn_copies_own(const struct mn_context *context, const struct mn_tensor *t, const void **first);

/* squares[count], of this rank's own elements, become those of all copies, and then all parts' follow:
 * *all[*number]. */
mn_status mn_ranks_squares(struct mn_context *context, double *squares, int64_t count, double **all,
                           int64_t *number);

/* The updates. gather: and the rest, the real form or the lower halves and what the rule keeps, for whoever
 * reads those. */
mn_status mn_copies_update(struct mn_context *context, struct mn_tensor *const *of, int count);
mn_status mn_copies_gather(struct mn_context *context, struct mn_tensor *const *of, int count);

#endif
