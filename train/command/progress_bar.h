/* Progress on stderr: on a terminal one line that is drawn over, with a bar, the rate and the time left; else
 * a plain line now and then. No colours, so there is nothing for NO_COLOR to turn off. */
#ifndef MN_TRAIN_COMMAND_PROGRESS_BAR_H
#define MN_TRAIN_COMMAND_PROGRESS_BAR_H

#include <stdint.h>

struct mn_progress_bar {
  int terminal, quiet, drawn;
  int64_t first, horizon, samples_per_step; /* the run goes from step `first` to `horizon` */
  double start, last;                       /* seconds */
};

void mn_progress_open(struct mn_progress_bar *progress, int64_t first, int64_t horizon,
                      int64_t samples_per_step, int quiet);

/* After step `step`; draws at most ten times a second on a terminal, and every ten seconds elsewhere. */
void mn_progress_step(struct mn_progress_bar *progress, int64_t step, double loss);

/* A line of its own, printf-like, that stays; warnings and evaluations go through here so that they do not
 * tear the bar. quiet holds back notes, not warnings. */
void mn_progress_note(struct mn_progress_bar *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mn_progress_warn(struct mn_progress_bar *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void mn_progress_close(struct mn_progress_bar *progress);

#endif
