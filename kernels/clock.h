/* The host's monotonic clock, and heartbeats: that the process gets on. Reading, drawing weights and
 * computing beat, and a watchdog counts (train/command/watchdog.h). */
#ifndef MN_KERNELS_CLOCK_H
#define MN_KERNELS_CLOCK_H

#include <stdint.h>

#include "kernels/status.h"

/* A clock that fails is a broken invariant. */
MN_C double mn_seconds(void);

/* Any thread calls it when it has done a piece of work that takes a second at most on a usual machine. */
MN_C void mn_heartbeat(void);

/* A beat of work whose end is known, of which `done` of `all` pieces are done; `what` says which. */
MN_C void mn_heartbeat_of(const char *what, int64_t done, int64_t all);

/* mn_heartbeat_of also calls `tell`, in the same thread; NULL ends that. Returns the one before. */
typedef void mn_teller(const char *what, int64_t done, int64_t all);
MN_C mn_teller *mn_heartbeat_tell(mn_teller *tell);

/* How many there were. */
MN_C int64_t mn_heartbeats(void);

/* From now on both kinds of beats also call `call`, in the thread that beats; NULL ends that. */
MN_C void mn_heartbeat_also(void (*call)(void));

#endif
