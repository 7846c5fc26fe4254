/* The log: one JSON object a line. Everything that depends on the clock sits in the object `time`, so that
 * logs of equal runs are equal without it; a resumed run drops what the log holds beyond its checkpoint and
 * goes on, so that it ends in the log of a run that never stopped. Options changed at a resume get a `resume`
 * line.
 *
 *   {"event":"start","run":"…","config":{…},"time":{"device":…}}   the run, and the options that make it what
 * it is
 *   {"event":"resume","step":45,"run":"…","changed":{"lr":"0.01"},"time":{…}}   which it is after that step,
 * and why
 *   {"event":"step","step":10,"epoch":0,"samples":640,"loss":0.5,"rate":0.05,"time":{"seconds":…,"samples_per_second":…,"flops_per_second":…}}
 *   {"event":"eval","step":23,"epoch":1,"test_loss":0.4,"test_accuracy":0.9,"time":{…}}
 *   {"event":"end","step":450,"horizon":450,"loss":0.01,"ended":"horizon","time":{"seconds":…,"samples_per_second":…,"flops_per_second":…,"waiting":…,"device_bytes":…}}
 *
 * There is a line for each step that --on-nonfinite skip has left out: its loss is null, and "skipped" names
 * the value of its batch that was not finite ("the output of blocks.0, row 5"). An evaluation in which a
 * value is not finite has a test_loss of null and no test_accuracy.
 *
 * A step's line has "gradient_norm" too if gradients are clipped; elsewhere the update is the epilogue of
 * dW's product, and no gradient is ever whole in memory. test_accuracy is there with classes only. A run ends
 * at its "horizon", at "stop-at", by "patience", by a "signal", or by the "log", which could not be written
 * for a moment; its last line has "skipped", how many steps were left out, if there were any. The last
 * line's rates are of the whole run; a run that is resumed drops it. */
#ifndef MN_TRAIN_COMMAND_LOG_H
#define MN_TRAIN_COMMAND_LOG_H

#include <stdio.h>
#include <sys/types.h>

#include "engine/clock.h"
#include "train/command/options.h"
#include "train/trainer.h"

struct mn_log {
  FILE *file; /* to read; NULL: no log is kept, and every call is MN_OK */
  const char *path;
  double start, last; /* seconds on the monotonic clock: of opening, of the last step line */
  int64_t last_samples;
  int begun;    /* the file is new */
  int ended;    /* the last line is this step's `end` event, which the next write replaces */
  int64_t step; /* of the last step's line in a log that is gone on with, */
  double loss;  /* and its loss: a run that finds nothing to do has none of its own to end with */
  int error; /* errno of the first write that failed, else 0. The run is then to save its checkpoint and end:
                mn_log_close tries once more to write the lines from there on, and returns the failure. Where
                that is in vain too, a resumed log lacks them up to that checkpoint */
  FILE *lines; /* writes what is not in the file yet to `text`: `whole` bytes of whole lines, the first `done`
                  of which are there */
  char *text;
  size_t size, whole, done;
  off_t end; /* where in the file the next byte goes */
};

/* Whose log it is. */
struct mn_log_run {
  const char *id, *begun; /* struct mn_run: now, and without the changes that were made at this resume */
  const struct mn_checkpoint *from; /* what the run goes on from; NULL: a new one */
  const struct mn_text *config;     /* [count] */
  int count;
  const char *device;
};

/* Opens `path` (NULL: none) and locks it. A new run creates it, and writes the first line. For a resumed one, a
 * log that is there is kept up to the step of the checkpoint, if it says the checkpoint's run there, and did
 * not end before; one that is not there is created, and its first line has the options up to there.
 * MN_NO_CREATE: the file exists, or is no log of this run, or another writes it, or it cannot be created;
 * MN_IO; MN_NO_MEMORY. A file that was there is then as it was. Whatever it returns, close the log. */
mn_status mn_log_open(struct mn_log *log, const char *path, const struct mn_log_run *run);

/* The line of a run that was resumed after `step` with other options, if there are any: of each of
 * `changed` the name; its value now, and that of an option which it excludes, are in the config. */
void mn_log_resume(struct mn_log *log, int64_t step, const struct mn_text *changed, int changes,
                   const struct mn_log_run *run);

/* A line each; see `error` above. The trainer's last step; accuracy: NaN if there are no classes; the end
 * of a run that did not fail, and by what. */
void mn_log_step(struct mn_log *log, const struct mn_trainer *trainer);
void mn_log_eval(struct mn_log *log, int64_t step, int64_t epoch, double loss, double accuracy);
void mn_log_end(struct mn_log *log, const struct mn_trainer *trainer, const char *ended);

/* Closes it whatever comes. Returns `status`, with its message; if that is MN_OK but a line did not get into
 * the file, MN_IO. */
mn_status mn_log_close(struct mn_log *log, mn_status status);

#endif
