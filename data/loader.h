/* Batches, read ahead by one thread into a ring of host buffers (pinned where there is a GPU). */
#ifndef MN_DATA_LOADER_H
#define MN_DATA_LOADER_H

#include "data/dataset.h"
#include "kernels/types.h"

struct mn_loader;

/* Streams batches of exactly `batch` rows of `dataset` (which it borrows) in the order of data/order.h,
 * starting at sample `position` of the endless sequence (epoch = position / n). `stream` says how wide a real
 * is and gives the buffers. MN_USAGE when batch is larger than the dataset. */
mn_status mn_loader_open(struct mn_loader **out, struct mn_dataset *dataset, struct mn_stream *stream,
                         int64_t batch, uint64_t seed, int64_t position);

/* The next batch: x [batch, I] reals, y [batch, K] reals or [batch] int32 labels; valid until the next call.
 * An error of the reading thread (a NaN in the data, a failing disk) comes back here, with its message. */
mn_status mn_loader_next(struct mn_loader *loader, const void **x, const void **y);

void mn_loader_close(struct mn_loader *loader); /* stops the thread; NULL is fine */

#endif
