/* The log: one JSON object a line. Everything that depends on the clock sits in the object `time`, so that
 * logs of equal runs are equal without it; a resumed run drops what the log holds beyond its checkpoint and
 * goes on, so that it ends in the log of a run that never stopped.
 *
 *   {"event":"start","config":{…},"time":{"device":…}}     the options that make the run what it is
 *   {"event":"step","step":10,"epoch":0,"samples":640,"loss":0.5,"rate":0.05,"time":{"seconds":…,"samples_per_second":…}}
 *   {"event":"eval","step":23,"epoch":1,"test_loss":0.4,"test_accuracy":0.9,"time":{…}}      accuracy with
 * classes only
 */
#ifndef MN_TRAIN_COMMAND_LOG_H
#define MN_TRAIN_COMMAND_LOG_H

#include <stdio.h>

#include "kernels/status.h"
#include "train/command/options.h"

struct mn_log {
  FILE *file; /* NULL: no log is kept, and every call is MN_OK */
  const char *path;
  double start, last; /* seconds on the monotonic clock: of opening, of the last step line */
  int64_t last_samples;
};

/* Opens `path` (NULL: none). resumed ≥ 0: an existing log is kept up to optimizer step `resumed`; −1: a new
 * log. MN_NO_CREATE, MN_IO. */
mn_status mn_log_open(struct mn_log *log, const char *path, int64_t resumed);
mn_status mn_log_start(struct mn_log *log, const struct mn_option_text *config, int count,
                       const char *device);
mn_status mn_log_step(struct mn_log *log, int64_t step, int64_t epoch, int64_t samples, double loss,
                      double rate);
/* accuracy: NaN where there are no classes. */
mn_status mn_log_eval(struct mn_log *log, int64_t step, int64_t epoch, double loss, double accuracy);
/* Closes it whatever comes; MN_IO if a line did not get to the disk. */
mn_status mn_log_close(struct mn_log *log);

double mn_seconds(void); /* on the monotonic clock */

#endif
