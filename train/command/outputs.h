/* `minnow predict`: where outputs go. */
#ifndef MN_TRAIN_COMMAND_OUTPUTS_H
#define MN_TRAIN_COMMAND_OUTPUTS_H

#include <stdio.h>

#include "train/command/session.h"
#include "train/scores.h"

/* Outputs of a batch. */
struct mn_outputs {
  const double *y;        /* [count, K] */
  const uint8_t *outside; /* [count]: 1 for rows MN_X_DEVIATIONS or more from a column's mean */
  int64_t first, count;   /* of session->test */
};

/* Calls `take` with the outputs of session->test, batch by batch, and counts the rows that lie outside. An
 * error of `take` ends this, and is returned. */
mn_status mn_outputs_each(struct mn_session *session,
                          mn_status (*take)(void *to, const struct mn_outputs *outputs), void *to);

/* Writes the outputs for session->test to --out: CSV if its name ends so, else HDF5 (train/FILES.md). */
mn_status mn_write_outputs(FILE *out, struct mn_session *session);
mn_status mn_write_csv(FILE *out, struct mn_session *session); /* outputs_csv.c */

#endif
