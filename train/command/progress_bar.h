/* Progress on stderr: on a terminal of at least 40 columns that is not dumb one line, redrawn in place, with
 * a bar if there is room; else a plain line every ten seconds. It has no colours. */
#ifndef MN_TRAIN_COMMAND_PROGRESS_BAR_H
#define MN_TRAIN_COMMAND_PROGRESS_BAR_H

#include "train/trainer.h"

struct mn_progress_bar {
  int terminal, quiet, drawn;
  int64_t first;      /* step that the run goes on from */
  double start, last; /* seconds */
};

void mn_progress_bar_open(struct mn_progress_bar *progress, int64_t first, int quiet);

/* After a step; draws at most ten times a second on a terminal, and every ten seconds elsewhere: the step,
 * its loss, the time left, samples and floating-point operations a second and the share of the time in which
 * the device waited for rows, from the trainer's times. Fields that do not fit are dropped from the right. */
void mn_progress_bar_step(struct mn_progress_bar *progress, const struct mn_trainer *trainer);

/* Prints a line that stays, printf-like, unless quiet. All messages during training go through here, so that
 * they do not run into the bar. */
void mn_progress_bar_note(struct mn_progress_bar *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Clears the bar. */
void mn_progress_bar_close(struct mn_progress_bar *progress);

#endif
