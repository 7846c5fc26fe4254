/* The log: one JSON object a line. Everything that depends on the clock sits in the object `time`, so that
 * logs of equal runs are equal without it; a resumed run drops what the log holds beyond its checkpoint and
 * goes on, so that it ends in the log of a run that never stopped, unless a line could not be written.
 * Options changed at a resume get a `resume` line.
 *
 *   {"event":"start","config":{…},"time":{"device":…}}
 *   {"event":"resume","step":45,"changed":{"lr":"0.01"},"time":{"seconds":…}}
 *   {"event":"step","step":10,"epoch":0,"samples":640,"loss":0.5,"rate":0.05,
 *    "time":{"seconds":…,"samples_per_second":…,"flops_per_second":…}}
 *   {"event":"eval","step":23,"epoch":1,"test_loss":0.4,"test_accuracy":0.9,"time":{"seconds":…}}
 *   {"event":"end","step":450,"horizon":450,"loss":0.01,"ended":"horizon",
 *    "time":{"seconds":…,"samples_per_second":…,"flops_per_second":…,"waiting":…,"device_bytes":…}}
 *
 * `start` has the options that make the run; `resume` those that changed it at that step.
 *
 * There is a line for each step that --on-nonfinite skip has left out: its loss is null, and "skipped" names
 * the value of its batch that was not finite ("the output of blocks.0, row 5"). An evaluation in which a
 * value is not finite has a test_loss of null and no test_accuracy.
 *
 * A step's line has "gradient_norm" too if gradients are clipped; elsewhere the update is the epilogue of
 * dW's product, and no gradient is ever whole in memory. test_accuracy is there with classes only, test_r2
 * with real targets of a file, test_metric where --metric names none of these and not the loss. A run ends
 * at its "horizon", at "stop-at", by "patience" or by a "signal"; if the log could not be written, there is
 * no such line. The last line has "skipped", how many steps were left out, if there were any. Its rates are
 * of the whole run; a run that is resumed drops it. */
#ifndef MN_TRAIN_COMMAND_LOG_H
#define MN_TRAIN_COMMAND_LOG_H

#include <stdio.h>
#include <sys/types.h>

#include "kernels/clock.h"
#include "train/command/session.h"
#include "train/json.h"
#include "train/trainer.h"

struct mn_log {
  FILE *file; /* NULL if no log is kept: every call is then MN_OK */
  const char *path;
  double start, last; /* seconds on the monotonic clock: of opening, of the last step line */
  int64_t last_samples;
  int begun;    /* the file is new */
  int ended;    /* the last line is this step's `end` event, which stays if the run takes no step */
  int64_t step; /* of the last step's line, 0 without one, */
  double loss;  /* and its loss, for the `end` line of a run that takes no step */
  int error;    /* errno of the first write that failed, else 0. The file gets no line from there on, and the
                   run must save its checkpoint and end; mn_log_close returns the failure. The log of the
                   resumed run lacks the lines from there to that checkpoint */
  off_t end;    /* the offset in the file of the next byte */
  struct mn_json json; /* writes a line */
};

/* Opens `path`, the log of the session's run; NULL to keep no log. A new run creates the file, and
 * writes the first line. A resumed run keeps an existing log up to the step of the checkpoint; a missing log
 * is created, and its first line has the options up to that step. MN_NO_CREATE: a new run's file exists, the
 * file is no log, or it cannot be created; MN_IO; MN_NO_MEMORY. An existing file is then unchanged. Close the
 * log in any case. */
mn_status mn_log_open(struct mn_log *log, const char *path, const struct mn_session *session);

/* Before the first step of a resumed run: takes back the last line if that is the `end` event, and writes the
 * line of a run that was resumed with other options, if there are any. It has
 * each option of session->changed, and the option that it excludes if there is one, with their values in
 * session->config. */
void mn_log_resume(struct mn_log *log, const struct mn_session *session);

/* Each writes a line; see `error` above. mn_log_step: the trainer's last step. `accuracy` is NaN without
 * classes, `r2` with them, `metric` unless --metric names another. `ended`: why a run ended that did not
 * fail. */
void mn_log_step(struct mn_log *log, const struct mn_trainer *trainer);
void mn_log_eval(struct mn_log *log, int64_t step, int64_t epoch, double loss, double accuracy, double r2,
                 double metric);
void mn_log_end(struct mn_log *log, const struct mn_trainer *trainer, const char *ended);

/* Closes the log in any case. Returns `status`, with its message; MN_IO if that is MN_OK but a line could not
 * be written. */
mn_status mn_log_close(struct mn_log *log, mn_status status);

#endif
