/* The host's monotonic clock. */
#ifndef MN_ENGINE_CLOCK_H
#define MN_ENGINE_CLOCK_H

double mn_seconds(void);

#endif
