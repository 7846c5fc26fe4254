/* `minnow plot`: the curves of one run or several, from their logs, drawn by gnuplot. */
#ifndef MN_TRAIN_COMMAND_PLOT_H
#define MN_TRAIN_COMMAND_PLOT_H

#include "kernels/status.h"

/* Reads `count` ≥ 1 logs (train/command/log.h) and draws training loss (as logged, and smoothed), test loss,
 * test accuracy if there is one, and learning rate over the optimizer steps into `out`: PNG if its name ends
 * in .png, else SVG. `out` is written in one rename when the picture is whole; on an error it is untouched.
 * If it exists, it is replaced only with `replace`. A last line without its newline, which a running run may
 * leave, is skipped.
 *
 * MN_NO_INPUT: no such log; MN_BAD_DATA: a line that is not a JSON object or lacks a value, with file and
 * line, or a log without a step or evaluation; MN_LIBRARY: gnuplot is missing or failed; MN_NO_CREATE, MN_IO:
 * `out` cannot be written; MN_NO_MEMORY. */
mn_status mn_plot(const char *out, int replace, char **logs, int count);

#endif
