/* Who of a run's ranks is still alive. A thread of each rank sends a beat several times a second over a
 * connection of its own to rank 0, and rank 0's to each; it says also how far the rank has got.
 *
 * Rank 0 judges: a rank whose connection closes without a goodbye is gone, at once; one whose beats stay away
 * for `timeout` seconds hangs (stopped, its host down); and one whose beats go on, but which neither gets on
 * nor waits for others while others wait for it, hangs too, after `timeout` seconds or twice the longest step
 * if that is longer. Of rank 0 each judges by the first two. Then every rank ends with one line that names
 * the rank: exit code MN_INTERRUPTED where a checkpoint stands that --resume would go on from, else
 * MN_LIBRARY. Time counts only as far as the judge itself ran, so that a run which was stopped as a whole
 * goes on. Neither MPI nor NCCL is used, whose calls may wait for ever. */
#ifndef MN_ENGINE_HEARTBEAT_H
#define MN_ENGINE_HEARTBEAT_H

#include "engine/socket.h"

struct mn_heartbeat; /* opaque */

/* How a rank gets on: its owner writes it, atomically, and the thread reads it. */
struct mn_pace {
  int64_t count;  /* changes whenever the rank gets on */
  int64_t step;   /* that is under way; 0: something else is */
  double longest; /* seconds that a step took so far; 0: none has ended */
  int patient;    /* what is under way may take as long as it does */
};

struct mn_heartbeat_config {
  int rank, size;
  double timeout; /* seconds; 0: a rank may hang as long as it likes */
  int resumable;  /* a checkpoint stands already */
  const int *fds; /* [size]: rank 0's connection to each other; of the others fds[0], to rank 0. Theirs, who
                     close them after mn_heartbeat_close */
  char (*hosts)[MN_HOST]; /* [size], borrowed: of each rank; of the others hosts[0] */
};

/* Starts the thread. `*out` is the caller's. MN_NO_MEMORY, MN_LIBRARY. */
mn_status mn_heartbeat_open(struct mn_heartbeat **out, const struct mn_heartbeat_config *config);

/* Says goodbye, so that the others do not miss this rank, and ends the thread. NULL is fine. */
void mn_heartbeat_close(struct mn_heartbeat *heartbeat);

/* What this rank does, and whether a checkpoint stands (asked by the thread; may be NULL); both stay readable
 * until close. Before, what it does may take long. */
void mn_heartbeat_watch(struct mn_heartbeat *heartbeat, const struct mn_pace *pace, int (*resumable)(void));

/* Counts, atomically, what gets on beside the pace: calls among the ranks. */
int64_t *mn_heartbeat_count(struct mn_heartbeat *heartbeat);

/* Whether the rank waits for others from now on, other than in MPI, of which the thread knows. */
void mn_heartbeat_wait(struct mn_heartbeat *heartbeat, int waits);

/* Ends this rank with a line of its message, and all others without one, with the exit code. */
void mn_heartbeat_leave(struct mn_heartbeat *heartbeat, mn_status status, const char *message)
    __attribute__((noreturn));

#endif
