/* That the process gets on: reading, drawing weights and computing beat, and a watchdog counts
 * (train/command/watchdog.h). */
#ifndef MN_KERNELS_HEARTBEAT_H
#define MN_KERNELS_HEARTBEAT_H

#include <stdint.h>

#include "kernels/status.h"

/* Any thread calls it when it has done a piece of work that takes a second at most on a usual machine. */
MN_C void mn_heartbeat(void);

/* How many there were. */
MN_C int64_t mn_heartbeats(void);

/* Each beat calls it, too, in the thread that beats; NULL: nothing. */
MN_C void mn_heartbeat_also(void (*call)(void));

#endif
