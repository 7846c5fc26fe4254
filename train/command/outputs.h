/* `minnow predict`: where outputs go. */
#ifndef MN_TRAIN_COMMAND_OUTPUTS_H
#define MN_TRAIN_COMMAND_OUTPUTS_H

#include <stdio.h>

#include "train/command/session.h"
#include "train/scores.h"

/* Calls `take` with the outputs of session->test, doubles [count, K], batch by batch. An error
 * of `take` ends this, and is returned. */
mn_status mn_outputs_each(struct mn_session *session,
                          mn_status (*take)(void *to, const double *y, int64_t first, int64_t count),
                          void *to);

/* Writes the outputs for session->test to --out: CSV if its name ends so, else HDF5 (train/FILES.md). */
mn_status mn_write_outputs(FILE *out, struct mn_session *session);
mn_status mn_write_csv(FILE *out, struct mn_session *session); /* outputs_csv.c */

#endif
