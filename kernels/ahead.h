/* Work that runs ahead: it fills a buffer that later work reads, beside the work that is running, on a CUDA
 * stream of its own. There are two buffers, used in turn; for each filling, in this order:
 *
 *   ahead_begin   work given from here on fills the buffer, after all that used it before
 *   ahead_end     work given from here on is ordered after the filling; must be called, even when work in
 *                 between failed
 *   ahead_used    the buffer's last reader was given
 *   ahead_wait    waits for that reader
 *
 * At most two fillings are under way: the third begins after the first was waited for. On the CPU, where work
 * is done when it is given, only the copy in ahead_used remains. */
#ifndef MN_KERNELS_AHEAD_H
#define MN_KERNELS_AHEAD_H

#include "kernels/types.h"

typedef mn_status mn_ahead_begin_function(struct mn_device *device);
typedef mn_status mn_ahead_end_function(struct mn_device *device);

/* Once the work given so far is done, `bytes` at `from` in the device's memory are copied to `to`, which is
 * memory of allocate_host, beside the work that follows. */
typedef mn_status mn_ahead_used_function(struct mn_device *device, void *to, const void *from, size_t bytes);

/* Waits for the oldest filling that has not been waited for: its readers are done, and the copy is there.
 * *idle: the milliseconds between the end of the readers of the filling before and the end of this filling,
 * in which the device had no work but to wait for data; 0 where it did not wait. */
typedef mn_status mn_ahead_wait_function(struct mn_device *device, double *idle);

/* Waits until all work given between ahead_begin and ahead_end is done; may be called between the two. */
typedef mn_status mn_ahead_finish_function(struct mn_device *device);

#endif
