/* The commands: what each does, beneath the options. Each prints its result to `out` (borrowed), as lines or
 * with --json as one JSON object (train/json.h), and notes to stderr. MN_IO: `out` cannot be written. */
#ifndef MN_TRAIN_COMMAND_COMMANDS_H
#define MN_TRAIN_COMMAND_COMMANDS_H

#include <stdio.h>

#include "train/checkpoint/layout.h"
#include "train/command/options.h"
#include "train/json.h"

/* The text of a file of the sources, which the assembler puts into the program. */
#define MN_EMBED(name, path)                                                                                 \
  __asm__(".pushsection .rodata\n" #name ": .incbin \"" path "\"\n.byte 0\n.popsection\n");                  \
  extern const char name[] __attribute__((visibility("hidden")))

/* Runs options->command. Returns its status, with its message. */
mn_status mn_command_run(FILE *out, const struct mn_options *options);

/* Trains by the options. Progress and warnings go to stderr, the result (the last test metric) to `out`.
 * Returns MN_INTERRUPTED after a signal (train/command/watchdog.h), with the checkpoint saved; MN_FAILED if
 * training diverged, with step, tensor and row named and the last checkpoint left whole. An evaluation
 * without a finite loss does not end the run. */
mn_status mn_train(FILE *out, const struct mn_options *options);

/* `eval`: loss and scores of a checkpoint on a dataset or its test part. `predict`: the outputs of a
 * checkpoint for a dataset's x, as HDF5 or CSV (train/FILES.md). MN_FAILED: a value is not finite; it is
 * named with its row. */
mn_status mn_apply(FILE *out, const struct mn_options *options);

/* Writes the model of a checkpoint to --c or --numpy, as code that computes its outputs. Errors:
 * mn_checkpoint_load's; MN_NO_CREATE, MN_IO. */
mn_status mn_export(FILE *out, const struct mn_options *options, const char *path);

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

/* Shows the content of a file. For a CSV: its columns. For a checkpoint: sizes, tensors, progress, config
 * and fingerprint; its checksums are compared. For any other file: groups and datasets, with shape and type,
 * or why they cannot be described, and the rows that training would read. An error prints no answer.
 * MN_NO_INPUT: no such file; MN_BAD_DATA: not HDF5, damaged. */
mn_status mn_info(FILE *out, const char *path, int json);

/* Reads everything in an HDF5 file, a checkpoint by its own rules, and prints the verdict. MN_BAD_DATA if the
 * file is not whole, with the reason as message and in the JSON; other errors as in mn_info. */
mn_status mn_verify(FILE *out, const char *path, int json);

/* Compares all of /model, /optimizer and /progress of two checkpoints, reals in units in the last place (ULP:
 * how many numbers of that width lie between, +0 and −0 being neighbours; a NaN differs from everything but
 * the same bits). MN_OK when they are the same, MN_FAILED when not; else as mn_checkpoint_load. */
mn_status mn_diff(FILE *out, const char *a, const char *b, int json);

/* If the file of --data, or a file that the last message names, is .npy, .npz or .mat, or PyTorch's,
 * safetensors' or Keras' weights, prints the lines of Python that convert it. */
void mn_show_conversion(FILE *out, const struct mn_options *options);

/* A field of a checkpoint, a number or a text. */
void mn_inspect_field(struct mn_json *json, const char *key, const void *value, enum mn_hdf5_value_kind kind);

#endif
