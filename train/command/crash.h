/* What a user sees where the program is ended from within: by a crash, or by a library that calls exit. Most
 * often a library ran out of memory: HDF5 then follows a null pointer, frees twice, or exits without a word,
 * and libgomp exits. Either becomes one line; the crash then ends the process by its signal, with a core where
 * the system leaves one, and the exit with MN_LIBRARY. */
#ifndef MN_TRAIN_COMMAND_CRASH_H
#define MN_TRAIN_COMMAND_CRASH_H

#include "kernels/status.h"

/* From now on such an end is told. A signal that has a handler already, as a sanitizer's, is left to it. */
void mn_crash_open(void);

/* main has told all there is to tell, and returns `status`: a library that crashes as it cleans up does not
 * change that. */
void mn_crash_close(mn_status status);

#endif
