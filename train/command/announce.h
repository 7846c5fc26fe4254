/* What a command says on stderr about the device and the input that it works with. */
#ifndef MN_TRAIN_COMMAND_ANNOUNCE_H
#define MN_TRAIN_COMMAND_ANNOUNCE_H

#include "data/columns.h"
#include "train/checkpoint/checkpoint.h"
#include "train/command/options.h"
#include "train/model.h"
#include "train/trainer.h"

/* The device and the precision, and what a user should know about them: that tf32 or fp16x3 runs as fp32
 * there, that OpenBLAS does not know this processor and runs at a fraction of its speed. Nothing under
 * --quiet. */
void mn_announce_device(const struct mn_context *context, const struct mn_options *options);

/* The same, and which blocks pass nothing on, and which weights of the model fp16x3 does not take. */
void mn_announce_model(const struct mn_model *model, const struct mn_options *options);

/* Says what is trained and how: layers, parameters, loss, and optimizer, rate, schedule, steps and rows. */
void mn_announce_training(const struct mn_trainer *trainer, const struct mn_options *options);

/* Says which columns of x are constant and, unless they are `standardized`, that their scales or means lie so
 * far apart that training may not learn from some. Nothing of columns that were not measured. */
void mn_announce_columns(const struct mn_columns *columns, int standardized,
                         const struct mn_options *options);

/* Says which target is far from 0 or wide, so that outputs, which begin near 0, take long to come near it. */
void mn_announce_targets(const struct mn_columns *columns, const struct mn_options *options);

/* Says of a checkpoint that was loaded from `path` that it lacks checksums of its content, where it does.
 * Nothing where `quiet`. */
void mn_announce_sums(const struct mn_checkpoint *checkpoint, const char *path, int quiet);

/* Prints a line, printf-like. Nothing under --quiet. */
void mn_announce(const struct mn_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
