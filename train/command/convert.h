/* The rows of --data in a CSV or .npy file: how Python makes an HDF5 file of them. */
#ifndef MN_TRAIN_COMMAND_CONVERT_H
#define MN_TRAIN_COMMAND_CONVERT_H

#include <stdio.h>

#include "kernels/status.h"

/* After --data `path` could not be opened (MN_BAD_DATA): if it is a CSV or .npy file, makes that the message.
 */
mn_status mn_convert_refuse(const char *path);

/* Prints the three lines of Python behind such a message, with that file's name in them; after any other
 * message nothing. */
void mn_convert_show(FILE *out);

#endif
