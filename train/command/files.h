/* The files of a command, looked at before it starts, so that none of the user's is written over and no run
 * ends in a file that cannot be written. */
#ifndef MN_TRAIN_COMMAND_FILES_H
#define MN_TRAIN_COMMAND_FILES_H

#include "train/command/options.h"

/* Refuses, before anything is opened for writing,
 *
 *   a file to be written that is also one to be read, or to be written under another option: the same inode,
 *   or the same name in the same folder where it is not there yet, links followed (MN_USAGE);
 *   an existing --log without --resume, and an existing --out, or --plot without --resume, without --force; a
 *   folder in which no file can be written (MN_NO_CREATE, MN_IO);
 *   --plot where there is no gnuplot (MN_LIBRARY).
 *
 * Call it again when resuming has added --data from a checkpoint. */
mn_status mn_files_check(const struct mn_options *options);

#endif
