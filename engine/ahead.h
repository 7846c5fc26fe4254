/* Work that a device is given ahead of its results: while one piece of it runs, the next one's rows are
 * gathered, and results are read behind that. Training's launches and an evaluation's batches are
 * such pieces. */
#ifndef MN_ENGINE_AHEAD_H
#define MN_ENGINE_AHEAD_H

#include "engine/thread.h"
#include "kernels/device.h"

struct mn_ahead {
  int (*more)(const void *data);    /* whether there is another piece */
  mn_status (*fill)(void *data);    /* fills a buffer for it, between ahead_begin and ahead_end … */
  mn_status (*give)(void *data);    /* … and gives the work that reads it, up to ahead_used */
  mn_status (*collect)(void *data); /* waits for the oldest piece under way, and reads its results */
};

/* Gives one piece. */
mn_status mn_ahead_give(struct mn_device *device, const struct mn_ahead *calls, void *data);

/* Gives and collects all pieces, in order, with up to `most` of them under way at once, whose number is
 * *under_way, 0 at first. After an error no more are given, and those that are under way are waited for all
 * the same: until then they use memory that the caller may want to free. An error of giving is returned after
 * the pieces before it are collected, unless collecting one of them fails. `outcome` keeps the error, which
 * later calls return. */
mn_status mn_ahead_run(struct mn_device *device, const struct mn_ahead *calls, void *data, int most,
                       int *under_way, struct mn_outcome *outcome);

#endif
