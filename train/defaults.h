/* What `minnow train` takes where its user says nothing, from the rows and the widths of the blocks: what
 * suits real tables (tests/peers/tables.py). */
#ifndef MN_TRAIN_DEFAULTS_H
#define MN_TRAIN_DEFAULTS_H

#include "train/trainer.h"

/* Epochs; the least steps, which small tables take; rows a batch, and those of few rows; and the weight decay
 * of AdamW times the steps: at the default rate and schedule a weight without a gradient shrinks to 0.6 over
 * the run. Standardised x is divided by a few deviations: GroupNorm drops the length of a row where x
 * outweighs the bias, and a small x leaves it in. */
#define MN_EPOCHS 11
#define MN_LEAST_STEPS 100
#define MN_DECAY_STEPS 140
#define MN_BATCH_SMALL 32
#define MN_SMALL_ROWS 16384
#define MN_X_DEVIATIONS 6

/* Parts of mn_defaults. The most groups, at most 8, that divide every width and leave each group four
 * channels, or 1; rows a batch; steps of `epochs` passes (0: the default number, and at least MN_LEAST_STEPS)
 * in batches of `each`, −1 if they cannot be counted; AdamW's decay over so many steps. */
int64_t mn_default_groups(const int64_t *hidden, int64_t depth);
int64_t mn_default_batch(int64_t rows);
int64_t mn_default_steps(int64_t epochs, int64_t rows, int64_t each);
double mn_default_decay(enum mn_rule_kind rule, int64_t steps);
/* Rows of `rows` to measure `width` columns by: all or, of very many values, a sample of a few MiB. */
int64_t mn_default_measured(int64_t width, int64_t rows);
/* The loss that the targets are for, and a head unless the last block has the targets' width. */
void mn_default_outputs(struct mn_model_config *model, const struct mn_dataset *rows);

/* mn_model_standardize_by of one side, from `most` rows in all; `one`: 1 if all its columns are of one unit,
 * 0 if each has its own, −1: as they look. `out` gets the columns, for mn_columns_free. */
mn_status mn_model_standardize_side(struct mn_model *model, struct mn_dataset *rows, int side, int64_t most,
                                    int one, struct mn_columns *out, const int *stop);

#endif
