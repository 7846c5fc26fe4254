/* Clipping by the norm of all gradients (struct mn_clipping, engine/hooks.h). */
#ifndef MN_TRAIN_CLIPPING_H
#define MN_TRAIN_CLIPPING_H

#include "train/optimizer.h"

/* Whether the tape clips, by products of rows by rows, and no gradient is stored. */
int mn_clips_by_grams(const struct mn_model *model, const struct mn_optimizer_config *config);

/* Takes the memory of `c`, whose max and rows are set, from `buffers`; none if max is 0. */
mn_status mn_clipping_open(struct mn_clipping *c, struct mn_tape *buffers, const struct mn_model *model);

/* Writes norm and scale of the stored gradients of a model, and of all shards. */
mn_status mn_clip_stored(const struct mn_clipping *c, const struct mn_model *model);

#endif
