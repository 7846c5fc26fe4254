/* Between a session and a checkpoint, both ways: sizes, options, parameters, momentum, progress. */
#ifndef MN_TRAIN_CHECKPOINT_SNAPSHOT_H
#define MN_TRAIN_CHECKPOINT_SNAPSHOT_H

#include "train/command/session.h"

/* Takes from s->from's /config every option that the command line leaves open. MN_USAGE: one that it names
 * with another value. */
mn_status mn_snapshot_options(struct mn_session *s);

/* MN_BAD_DATA when the data has another number of rows, so that the order of samples would be another one. */
mn_status mn_snapshot_check_data(const struct mn_session *s);

/* Warns on stderr about each part of the /fingerprint that differs here: results may differ in their last
 * bits. */
void mn_snapshot_warn(const struct mn_session *s);

/* The model's sizes as s->from has them, under the block plan. */
mn_status mn_snapshot_config(const struct mn_session *s, struct mn_model_config *out);

/* Copies parameters, or momentum, to the device. MN_BAD_DATA: a tensor that is missing or has another shape.
 */
mn_status mn_snapshot_model(struct mn_session *s);
mn_status mn_snapshot_momentum(struct mn_session *s);

/* Writes the session as a checkpoint, to --checkpoint, after optimizer step `step`. Errors:
 * mn_checkpoint_save's, MN_NO_MEMORY. */
mn_status mn_snapshot_save(const struct mn_session *s, int64_t step, double best);

#endif
