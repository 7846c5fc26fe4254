/* The commands behind the options: each turned into the one call that does its work. */
#ifndef MN_TRAIN_COMMAND_COMMANDS_H
#define MN_TRAIN_COMMAND_COMMANDS_H

#include <stdio.h>

#include "train/command/options.h"

/* Runs options->command; its result goes to `out`, notes to stderr. Returns what the command returns, with
 * its message. */
mn_status mn_command_run(FILE *out, const struct mn_options *options);

#endif
