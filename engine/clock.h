/* The host's monotonic clock. */
#ifndef MN_ENGINE_CLOCK_H
#define MN_ENGINE_CLOCK_H

#include "kernels/status.h"

MN_API double mn_seconds(void);

#endif
