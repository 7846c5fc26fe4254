/* The version of this library, which train/minnow.h has as macros. */
#ifndef MN_TRAIN_VERSION_H
#define MN_TRAIN_VERSION_H

#include "kernels/status.h"

MN_API const char *mn_version(void);

#endif
