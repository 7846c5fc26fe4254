/* Batches, read ahead by one thread into a ring of host buffers (pinned where there is a GPU). */
#ifndef MN_DATA_LOADER_H
#define MN_DATA_LOADER_H

#include "data/dataset.h"
#include "kernels/types.h"

struct mn_loader;

/* Gives batches of exactly `batch` rows of `dataset` (which it borrows) in the order of data/order.h,
 * starting at sample `position` of the endless sequence (epoch = position / n). `device` (borrowed) says how
 * wide a real is and allocates the batches. Memory: three batches, and two windows of 4096 rows (one, read
 * once, where that is the whole dataset). The dataset is read by the loader's thread alone until the loader
 * is closed. MN_USAGE: batch is not from 1 to the dataset's rows; MN_BAD_DATA: position is below 0 or not
 * below 2⁶²; MN_NO_MEMORY. Close it with mn_loader_close, before the dataset and the device. */
MN_API mn_status mn_loader_open(struct mn_loader **out, struct mn_dataset *dataset, struct mn_device *device,
                                int64_t batch, uint64_t seed, int64_t position);

/* The next batch: x [batch, I] reals, y [batch, K] reals or [batch] int32 labels, NULL where the dataset has
 * no y; valid until the next call, so an upload from it must be done by then. An error of the reading thread
 * (a NaN in the data, a failing disk) comes back here, with its message, after all batches that do not need
 * the window it is in, and again at each later call. */
MN_API mn_status mn_loader_next(struct mn_loader *loader, const void **x, const void **y);

MN_API void mn_loader_close(struct mn_loader *loader); /* stops the thread; NULL is fine */

#endif
