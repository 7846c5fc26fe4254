/* The windows in which samples come from a file, one after the other without end (kernels/order.h). A thread
 * reads them ahead. What comes depends on the order alone, not on the thread's speed: an error of reading a
 * window is returned only when the window is taken. */
#ifndef MN_DATA_WINDOWS_H
#define MN_DATA_WINDOWS_H

#include <pthread.h>
#include <semaphore.h>

#include "data/placement.h"
#include "engine/thread.h"
#include "kernels/order.h"

/* A window of the order of samples. begin: its first number. rows: by their numbers from there on.
 * outcome: of reading them. */
struct mn_window {
  struct mn_order order;
  int64_t begin, count;
  struct mn_rows rows;
  struct mn_outcome outcome;
};
enum { MN_WINDOWS = 2 };

struct mn_windows {
  const struct mn_placement *placement; /* borrowed; NULL if there are no windows */
  uint64_t seed;
  int shuffled;
  int64_t reading;                     /* the next window to read: the thread's while it runs */
  int64_t number, at;                  /* the window at hand, and how many of its samples have been taken */
  int64_t received;                    /* windows below this number were read and waited for */
  struct mn_window window[MN_WINDOWS]; /* window `number` in number % MN_WINDOWS */
  sem_t vacant, ready;                 /* count windows to be read, and windows that were read */
  double waited;                       /* seconds, for windows to be read */
  int stop;                            /* read and set atomically */
  int running;                         /* there is a thread to join */
  pthread_t thread;
};

/* Begins at sample `position` of the endless sequence; *windows is all 0. Close it also after an error, or
 * if it was not opened. */
mn_status mn_windows_open(struct mn_windows *windows, const struct mn_placement *placement, uint64_t seed,
                          int shuffled, int64_t position);
void mn_windows_close(struct mn_windows *windows);

/* The window at hand: waits for it or, without a thread, reads it. */
mn_status mn_windows_get(struct mn_windows *windows, struct mn_window **window);

/* Goes on to the next window. The memory of this one's rows may be overwritten. */
void mn_windows_next(struct mn_windows *windows);

#endif
